/* test_hf_types.c -- values of a wrong type in a config.json: for each family and each key that it reads, an
 * error that names the key, or the answer without the key. */
#include <stdio.h>

#include "import/hf/hf.h"
#include "unit.h"

extern const plim_importer plim_importer_hf;

/* What a key of a kind cannot be.  "=": also the answer without the key will do. */
static const struct {
    plim_hf_kind kind;
    const char *values[20];
} wrong[] = {
    {PLIM_HF_SIZE,
     {"\"x\"", "\"4\"", "true", "false", "[]", "[4]", "{}", "2.5", "-1", "0", "null", "1e30",
      "99999999999999999999", "-99999999999999999999", "NaN", "Infinity"}},
    {PLIM_HF_OPTION,
     {"\"x\"", "\"4\"", "true", "[]", "[4]", "{}", "2.5", "-1", "1e30", "99999999999999999999",
      "NaN", "=null"}},
    {PLIM_HF_GIVEN,
     {"\"x\"", "\"4\"", "true", "[]", "[4]", "{}", "2.5", "-1", "0", "1e30",
      "99999999999999999999", "=null"}},
    {PLIM_HF_REAL, {"\"x\"", "\"0.5\"", "true", "[]", "{}", "1e30", "-1e30", "NaN", "=null"}},
    {PLIM_HF_SHARE,
     {"\"x\"", "\"0.5\"", "true", "[]", "{}", "1.5", "-0.5", "1e30", "NaN", "=null"}},
    {PLIM_HF_BOOL, {"0", "1", "\"true\"", "\"\"", "[]", "{}", "2.5", "=null"}},
    {PLIM_HF_WORD, {"5", "true", "[]", "{}", "[\"gelu\"]", "=null"}},
    {PLIM_HF_RAW,
     {"=\"x\"", "=true", "={}", "=[]", "=[\"x\"]", "=[true]", "=[2.5]", "=[-1]", "=[null]",
      "=2.5", "=-1", "=99999999999999999999", "=[[1]]", "=null"}},
};

static plim_status build(plim_arena *a, plim_graph *g, const char *text, plim_err *err)
{
    plim_source s = {.bytes = {.p = (const uint8_t *)text, .n = strlen(text)}};
    const plim_binding bind = {.infer = true};
    *g = (plim_graph){.arena = a};
    plim_status st = plim_graph_init(g, a, err);
    return st ? st : plim_importer_hf.read(g, &s, &bind, err);
}

/* "a.b" is "b" in object "a". */
static void write_config(char *out, size_t n, const char *type, const char *class,
                         const char *key, const char *value)
{
    const char *dot = strchr(key, '.');
    int used =
        snprintf(out, n, "{\"model_type\":\"%s\",\"architectures\":[\"%s\"],", type, class);
    if (dot)
        snprintf(out + used, n - (size_t)used, "\"%.*s\":{\"%s\":%s}}", (int)(dot - key), key,
                 dot + 1, value);
    else
        snprintf(out + used, n - (size_t)used, "\"%s\":%s}", key, value);
}

typedef struct totals {
    uint64_t values, nodes, bytes, buffers;
} totals;

static totals totals_of(const plim_graph *g)
{
    plim_graph_counts c;
    assert_int_equal(plim_graph_count(g, &c, NULL), PLIM_OK);
    return (totals){g->n_values, g->n_nodes, c.parameter_bytes, c.buffer_bytes};
}

static const char *leaf_of(const char *key)
{
    const char *dot = strchr(key, '.');
    return dot ? dot + 1 : key;
}

/* The value of a key, in a file that is else the default of its family. */
static void try_value(const char *type, const char *class, const plim_hf_key *k,
                      const char *key, const char *value, const totals *usual)
{
    char text[1024];
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    const bool as_usual = value[0] == '=';
    write_config(text, sizeof text, type, class, key, value + as_usual);
    plim_status st = build(&a, &g, text, &err);
    CHECK(text, st == err.code);
    char first[64]; /* of its names, which an error may use */
    snprintf(first, sizeof first, "%.*s", (int)strcspn(leaf_of(k->names), " "),
             leaf_of(k->names));
    if (st && !strstr(err.msg, leaf_of(key)) && !strstr(err.msg, first))
        fail_msg("%s: does not name it: \"%s\"", text, err.msg);
    if (!st && !as_usual)
        fail_msg("%s: accepted", text);
    if (!st) {
        totals t = totals_of(&g);
        if (memcmp(&t, usual, sizeof t) != 0)
            fail_msg("%s: another model than without it", text);
    }
    plim_arena_free(&a);
}

static void try_key(const char *type, const char *class, const plim_hf_key *k, const char *key,
                    const totals *usual)
{
    for (size_t w = 0; w < PLIM_COUNT(wrong); w++)
        for (size_t i = 0; wrong[w].kind == k->kind && wrong[w].values[i]; i++)
            if (!k->null || strcmp(wrong[w].values[i], "=null") != 0)
                try_value(type, class, k, key, wrong[w].values[i], usual);
}

/* Each name of a key, the aliases too. */
static void try_names(const char *type, const char *class, const plim_hf_key *k,
                      const totals *usual)
{
    char key[128];
    for (const char *at = k->names; *at;) {
        size_t n = strcspn(at, " ");
        snprintf(key, sizeof key, "%.*s", (int)n, at);
        try_key(type, class, k, key, usual);
        at += n + (at[n] == ' ');
    }
}

static totals usual_totals(const char *type, const char *class)
{
    char text[512];
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"architectures\":[\"%s\"]}", type,
             class);
    if (build(&a, &g, text, &err))
        fail_msg("%s: %s", text, err.msg);
    totals t = totals_of(&g);
    plim_arena_free(&a);
    return t;
}

static void test_keys(void **state)
{
    (void)state;
    const plim_hf_group *g;
    char class[96];
    for (uint32_t i = 0; (g = plim_hf_group_at(i)); i++)
        for (size_t f = 0; f < g->n_families; f++)
            for (const char *at = g->families[f].classes; *at;) {
                size_t n = strcspn(at, " ");
                snprintf(class, sizeof class, "%.*s", (int)n, at);
                totals usual = usual_totals(g->families[f].model_type, class);
                for (size_t k = 0; k < g->n_keys; k++)
                    try_names(g->families[f].model_type, class, &g->keys[k], &usual);
                at += n + (at[n] == ' ');
            }
}

/* Keys that all files may have, and objects that are none. */
static void test_heads(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } T[] = {
        {"model_type", "5", "'model_type' is 5, expected a string"},
        {"model_type", "[\"llama\"]", "'model_type' is [\"llama\"], expected a string"},
        {"architectures", "\"LlamaForCausalLM\"", "'architectures' is \"LlamaForCausalLM\""},
        {"architectures", "[5]", "'architectures' is [5], expected a list of strings"},
        {"torch_dtype", "16", "'torch_dtype' is 16, expected a string"},
        {"use_cache", "1", "'use_cache' is 1, expected true or false"},
        {"quantization_config", "[]", "'quantization_config' is [], expected an object"},
        {"quantization_config", "{\"quant_method\":5}",
         "'quant_method' is 5, expected a string"},
        {"text_config", "true", "'text_config' is true, expected an object"},
        {"rope_parameters", "\"x\"", "'rope_parameters' is \"x\", expected an object"},
        {"rope_parameters", "[]", "'rope_parameters' is [], expected an object"},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        char text[512];
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        snprintf(text, sizeof text, "{%s\"%s\":%s}",
                 strcmp(T[i].key, "model_type") ? "\"model_type\":\"llama\"," : "", T[i].key,
                 T[i].value);
        CHECK(text, build(&a, &g, text, &err) == PLIM_EFORMAT);
        if (!strstr(err.msg, T[i].says))
            fail_msg("%s: \"%s\"", text, err.msg);
        plim_arena_free(&a);
    }
}

/* By the rules of validate_layer_type.  src: transformers 5.23 configuration_utils.py */
static void test_layer_types(void **state)
{
    (void)state;
    static const struct {
        const char *value, *says; /* "": fine */
    } T[] = {
        {"[\"full_attention\",\"sliding_attention\"]", ""},
        {"null", ""},
        {"\"sliding_attention\"", "'layer_types' is \"sliding_attention\", expected a list"},
        {"5", "'layer_types' is 5, expected a list"},
        {"{}", "'layer_types' is {}, expected a list"},
        {"[1,2]", "'layer_types' has 1 for layer 0"},
        {"[\"full_attention\",\"nothing\"]", "'layer_types' has \"nothing\" for layer 1"},
        {"[\"full_attention\",\"linear_attention\"]",
         "'layer_types' has \"linear_attention\" for layer 1"},
        {"[\"full_attention\"]", "'layer_types' has 1 items, the number of layers is 2"},
        {"[\"full_attention\",\"full_attention\",\"full_attention\"]",
         "'layer_types' has 3 items, the number of layers is 2"},
        {"[]", "'layer_types' has 0 items, the number of layers is 2"},
    };
    static const char *const types[] = {"llama", "qwen2", "gemma2", "gemma3_text", "gpt_oss"};
    for (size_t i = 0; i < PLIM_COUNT(T) * PLIM_COUNT(types); i++) {
        const size_t row = i / PLIM_COUNT(types);
        char text[512];
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"layer_types\":%s}",
                 types[i % PLIM_COUNT(types)], T[row].value);
        plim_status st = build(&a, &g, text, &err);
        if (!T[row].says[0] ? st != PLIM_OK : !st || !strstr(err.msg, T[row].says))
            fail_msg("%s: \"%s\"", text, err.msg);
        plim_arena_free(&a);
    }
}

/* Of all methods at once: what a method does not read is checked, too. */
static void test_quantization(void **state)
{
    (void)state;
    static const struct {
        const char *method, *key, *values[12];
    } T[] = {
        {"gptq", "bits", {"\"4\"", "true", "[]", "2.5", "99999999999999999999", "0", "-1"}},
        {"gptq", "group_size", {"\"128\"", "true", "{}", "2.5", "0"}},
        {"awq", "version", {"5", "[]", "true"}},
        {"gptq", "checkpoint_format", {"5", "[]"}},
        {"gptq", "modules_to_not_convert", {"\"lm_head\"", "5", "{}", "[5]", "[[]]"}},
        {"bitsandbytes", "load_in_8bit", {"1", "\"true\"", "[]"}},
        {"bitsandbytes", "bnb_4bit_quant_storage", {"8", "[]", "\"nothing\""}},
        {"fp8",
         "weight_block_size",
         {"\"x\"", "128", "[]", "[128]", "[128,2.5]", "[0,1]", "{}"}},
        {"fp8", "activation_scheme", {"5", "\"nothing\""}},
        {"compressed-tensors", "config_groups", {"5", "[]", "\"x\""}},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++)
        for (size_t k = 0; T[i].values[k]; k++) {
            char text[512];
            plim_arena a = PLIM_ARENA_INIT;
            plim_err err = PLIM_ERR_INIT;
            plim_graph g;
            snprintf(text, sizeof text,
                     "{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
                     "\"quantization_config\":{\"quant_method\":\"%s\",%s\"%s\":%s}}",
                     T[i].method,
                     strcmp(T[i].method, "bitsandbytes") ? "" : "\"load_in_4bit\":true,",
                     T[i].key, T[i].values[k]);
            plim_status st = build(&a, &g, text, &err);
            if (!st || st != err.code || !strstr(err.msg, T[i].key))
                fail_msg("%s: %d \"%s\"", text, (int)st, err.msg);
            plim_arena_free(&a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_layer_types),
        cmocka_unit_test(test_quantization),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
