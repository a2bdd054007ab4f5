/* test_hf_quant.c -- packed weights: their tensors against those of transformers and
 * bitsandbytes, their bytes against published ones, temporaries of a product, refusals. */
#include <stdio.h>
#include <stdlib.h>

#include "asked.h"
#include "base/fmt.h"
#include "import/hf/hf.h"
#include "step/step.h"

extern const plim_importer plim_importer_hf;

static plim_status build(plim_arena *a, plim_graph *g, plim_str text, const plim_binding *b,
                         plim_err *err)
{
    plim_source s = {.bytes = {.p = (const uint8_t *)text.p, .n = text.n}};
    *g = (plim_graph){.arena = a};
    return plim_importer_hf.read(g, &s, b, err);
}

static const plim_binding infer = {.batch = 1, .seq = 4, .infer = true};

/* ---- against transformers -------------------------------------------------------------- */

/* A line of a state dict: "NAME DTYPE SIZES" of a value, as packed.py writes it. */
static void line_of(const plim_value *v, char *out, size_t size)
{
    int n = snprintf(out, size, PLIM_STR_FMT " %s ", PLIM_STR_ARG(v->name),
                     plim_dtype_rows[v->meta.dtype].torch + strlen("torch."));
    for (int32_t i = 0; i < v->meta.rank; i++)
        n += snprintf(out + n, size - (size_t)n, "%s%" PRId64, i ? "x" : "", v->meta.dim[i]);
    if (!v->meta.rank)
        snprintf(out + n, size - (size_t)n, "scalar");
}

static bool has_line(const plim_graph *g, const char *line)
{
    char mine[256];
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind != PLIM_VALUE_PARAMETER &&
            !(v->kind == PLIM_VALUE_BUFFER && v->persistent))
            continue;
        line_of(v, mine, sizeof mine);
        if (!strcmp(mine, line))
            return true;
    }
    return false;
}

static uint32_t stored(const plim_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        n +=
            v->kind == PLIM_VALUE_PARAMETER || (v->kind == PLIM_VALUE_BUFFER && v->persistent);
    }
    return n;
}

static void test_recorded(void **state)
{
    (void)state;
    FILE *f = fopen(PLIM_SOURCE_DIR "/tests/golden/hf/packed.txt", "r");
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g = {.n_values = 0};
    char line[2048], name[64] = "";
    uint32_t cases = 0, want = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *config = strchr(line, '{');
        if (!config) {
            want++;
            if (!has_line(&g, line))
                fail_msg("%s: no tensor '%s'", name, line);
            continue;
        }
        assert_int_equal(want, stored(&g)); /* of the previous case: no more than these */
        plim_err err = PLIM_ERR_INIT;
        plim_str text = plim_arena_str(&a, plim_str_of(config));
        config[-1] = 0;
        snprintf(name, sizeof name, "%.60s", line);
        if (build(&a, &g, text, &infer, &err))
            fail_msg("%s: %s", name, err.msg);
        if (plim_graph_check(&g))
            fail_msg("%s: %s", name, plim_graph_check(&g));
        want = 0;
        cases++;
    }
    assert_int_equal(want, stored(&g));
    assert_int_equal(cases, 7);
    fclose(f);
    plim_arena_free(&a);
}

/* ---- which modules -------------------------------------------------------------------------- */

#define TINY_AND(more)                                                                        \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":64,"                  \
    "\"num_attention_heads\":1,\"num_hidden_layers\":11,\"vocab_size\":64," more "}"
#define MIXTURE                                                                               \
    "\"hidden_size\":64,\"intermediate_size\":64,\"num_attention_heads\":1,"                  \
    "\"num_key_value_heads\":1,\"num_hidden_layers\":1,\"num_local_experts\":2,\"vocab_size\":64,"
#define AWQ_WITHOUT(name)                                                                     \
    "\"quantization_config\":{\"quant_method\":\"awq\",\"modules_to_not_convert\":[\"" name   \
    "\"]}"
#define FP8 "\"quantization_config\":{\"quant_method\":\"fp8\"}"
#define INSIDE(text) "{\"model_type\":\"llava_next\",\"text_config\":" text "}"

/* Whether the value of that name exists, and its number of elements; 0: it does not. */
static const struct {
    const char *what, *text, *name;
    uint64_t numbers;
} modules[] = {
    {"a layer", TINY_AND(AWQ_WITHOUT("model.layers.1")), "model.layers.1.mlp.up_proj.weight",
     4096},
    {"not another", TINY_AND(AWQ_WITHOUT("model.layers.1")),
     "model.layers.10.mlp.up_proj.qweight", 512},
    {"up to a dot", TINY_AND(AWQ_WITHOUT("model.layers.1.")),
     "model.layers.1.mlp.up_proj.weight", 4096},
    {"an end", TINY_AND(AWQ_WITHOUT("p_proj")), "model.layers.1.mlp.up_proj.weight", 4096},
    {"nothing ends all", TINY_AND(AWQ_WITHOUT("")), "model.layers.1.mlp.up_proj.weight", 4096},
    {"a name of the whole model", TINY_AND(AWQ_WITHOUT("model.language_model.layers.1")),
     "model.layers.1.mlp.up_proj.weight", 4096},
    {"an older one", TINY_AND(AWQ_WITHOUT("language_model.model.layers.1")),
     "model.layers.1.mlp.up_proj.weight", 4096},
    {"experts",
     "{\"model_type\":\"mixtral\"," MIXTURE
     "\"quantization_config\":{\"quant_method\":\"fp8\","
     "\"modules_to_not_convert\":[\"block_sparse_moe.experts\",\"mlp.experts\"]}}",
     "model.layers.0.mlp.experts.down_proj", 8192},
    {"blocks where none are given", TINY_AND(FP8),
     "model.layers.0.mlp.up_proj.weight_scale_inv", 1},
    {"a text model's own", INSIDE(TINY_AND(FP8)),
     "model.layers.0.mlp.up_proj.weight_scale_inv", 1},
    {"the last null", TINY_AND(FP8 ",\"quantization_config\":null"),
     "model.layers.0.mlp.up_proj.weight_scale_inv", 0},
    {"4 bits before 8",
     TINY_AND("\"quantization_config\":{\"load_in_4bit\":true,\"load_in_8bit\":true}"),
     "model.layers.0.mlp.up_proj.weight.absmax", 64},
    {"Conv1D",
     "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":1,\"n_layer\":1,"
     "\"quantization_config\":{\"load_in_8bit\":true}}",
     "transformer.h.0.attn.c_attn.SCB", 192},
    {"no Conv1D", "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":1,\"n_layer\":1," FP8 "}",
     "transformer.h.0.attn.c_attn.weight_scale_inv", 0},
    {"the head's own Linear", "{\"model_type\":\"roberta\",\"num_hidden_layers\":1," FP8 "}",
     "lm_head.dense.weight_scale_inv", 36},
    {"the last module", "{\"model_type\":\"clip\"," FP8 "}",
     "text_projection.weight_scale_inv", 0},
};

static uint64_t numbers_of(const plim_graph *g, const char *name)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (plim_str_is(g->values[i].name, name))
            (void)plim_meta_numel(&g->values[i].meta, &n);
    return n;
}

static void test_modules(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(modules); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        if (build(&a, &g, plim_str_of(modules[i].text), &infer, &err))
            fail_msg("%s: %s", modules[i].what, err.msg);
        uint64_t n = numbers_of(&g, modules[i].name);
        if (n != modules[i].numbers)
            fail_msg("%s: '%s' has %" PRIu64 " numbers, not %" PRIu64, modules[i].what,
                     modules[i].name, n, modules[i].numbers);
        plim_arena_free(&a);
    }
}

/* ---- against published sizes ---------------------------------------------------------------- */

#define LLAMA_7B                                                                              \
    "{\"model_type\":\"llama\",\"hidden_size\":4096,\"intermediate_size\":11008,"             \
    "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"vocab_size\":32000,"               \
    "\"torch_dtype\":\"float16\",\"quantization_config\":"
#define COMPRESSED(weights)                                                                   \
    "{\"quant_method\":\"compressed-tensors\",\"ignore\":[\"lm_head\"],"                      \
    "\"config_groups\":{\"group_0\":{\"weights\":{" weights "}}}}"
#define GPT_OSS_20B                                                                           \
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":2880,\"intermediate_size\":2880,"            \
    "\"num_hidden_layers\":24,\"num_attention_heads\":64,\"num_key_value_heads\":8,"          \
    "\"head_dim\":64,\"num_local_experts\":32,\"num_experts_per_tok\":4,"                     \
    "\"vocab_size\":201088,\"sliding_window\":128,\"attention_bias\":true,"                   \
    "\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":false,\"quantization_config\":"

/* 6,476,005,376 weights of 224 Linears of a Llama 7B; 262,410,240 others in fp16 */
#define PACKED 6476005376u
#define OTHERS (2u * 262410240u)
/* columns with an index each: 32 layers of 6 * 4096 + 11008 */
#define COLUMNS (32u * (6u * 4096u + 11008u))
#define ROWS (32u * (5u * 4096u + 2u * 11008u))

static const struct {
    const char *what, *text;
    uint64_t bytes;
    double published; /* in GB; 0: none */
} sizes[] = {
    {"GPTQ, groups of 128",
     LLAMA_7B "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128}}",
     OTHERS + PACKED / 2 + PACKED / 128 * 2 + PACKED / 256 + 4 * COLUMNS, 3.90},
    {"AWQ", LLAMA_7B "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128}}",
     OTHERS + PACKED / 2 + PACKED / 128 * 2 + PACKED / 256, 3.89},
    {"GPTQ, 8 bits, one group a row",
     LLAMA_7B "{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1}}",
     OTHERS + PACKED + 3 * ROWS + 4 * COLUMNS, 0},
    {"int8", LLAMA_7B "{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}}",
     OTHERS + PACKED + 4 * ROWS, 0},
    {"w8a8", LLAMA_7B COMPRESSED("\"num_bits\":8,\"strategy\":\"channel\"") "}",
     OTHERS + PACKED + 4 * ROWS, 0},
    {"w8a8 in fp8, a scale for each weight",
     LLAMA_7B COMPRESSED("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\"") "}",
     OTHERS + PACKED + 4 * 224, 0},
    {"w4a16",
     LLAMA_7B COMPRESSED("\"num_bits\":4,\"strategy\":\"group\",\"group_size\":128") "}",
     OTHERS + PACKED / 2 + PACKED / 128 * 2 + 16 * 224, 0},
    {"gpt-oss-20b", GPT_OSS_20B "{\"quant_method\":\"mxfp4\"}}", 13761264768u, 13.76},
};

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(sizes); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        if (build(&a, &g, plim_str_of(sizes[i].text), &infer, &err))
            fail_msg("%s: %s", sizes[i].what, err.msg);
        uint64_t sum = 0, bytes;
        for (uint32_t k = 0; k < g.n_values; k++) {
            const plim_value *v = &g.values[k];
            if (v->kind == PLIM_VALUE_PARAMETER ||
                (v->kind == PLIM_VALUE_BUFFER && v->persistent))
                sum += plim_meta_bytes(&v->meta, &bytes) ? bytes : 0;
        }
        if (sum != sizes[i].bytes)
            fail_msg("%s: %" PRIu64 " bytes, not %" PRIu64, sizes[i].what, sum,
                     sizes[i].bytes);
        double off = (double)sum / 1e9 - sizes[i].published;
        CHECK(sizes[i].what, sizes[i].published < 1 || (off < 0.01 && off > -0.01));
        plim_arena_free(&a);
    }
}

/* ---- running them ----------------------------------------------------------------------------- */

/* A layer of 64 x 64 weights in 4 bits: bytes of scratch of its product. */
static void scratch_of(int64_t tokens, const char *packing, uint64_t out[3])
{
    char text[512], path[] = "/tmp/plimsoll-quant-XXXXXX", file[64];
    snprintf(text, sizeof text,
             "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":64,"
             "\"num_attention_heads\":1,\"num_hidden_layers\":1,\"vocab_size\":64,"
             "\"max_position_embeddings\":4096,\"dtype\":\"bfloat16\","
             "\"quantization_config\":%s}",
             packing);
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/config.json", path);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    plim_arena a = PLIM_ARENA_INIT;
    plim_step_info info;
    plim_graph g;
    plim_tape t;
    char words[64];
    snprintf(words, sizeof words, "mode=infer seq=%" PRId64 " dtype=fp32", tokens);
    asked_tape(path, words, &a, &g, &t, &info);
    memset(out, 0, 3 * sizeof *out);
    assert_int_equal(info.unknown_ops, 0);
    for (uint32_t i = 0; i < t.n_storages; i++) {
        const plim_storage *x = &t.storages[i];
        if (x->category == PLIM_CAT_BUFFER) /* fp32 was requested: excluded */
            assert_true(!x->meta || x->meta->dtype != PLIM_F32 || x->bytes < 64 * 64 * 4);
        if (x->category != PLIM_CAT_WORKSPACE || !strstr(x->name.p, "q_proj"))
            continue;
        out[0] = x->low, out[1] = x->bytes, out[2] = x->high;
    }
    plim_arena_free(&a);
    remove(file);
    remove(path);
}

static void test_scratch(void **state)
{
    (void)state;
    enum { WEIGHT = 64 * 64 * 2 }; /* dequantized to bf16 */
    static const char nf4[] = "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}",
                      fp8[] = "{\"quant_method\":\"fp8\",\"scale_fmt\":null,"
                              "\"modules_to_not_convert\":null}", /* nulls are defaults */
        int8[] = "{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}";
    static const struct {
        const char *packing;
        int64_t tokens;
        uint64_t want[3];
    } T[] = {
        {nf4, 1, {0, 0, 0}},
        {nf4, 4, {0, 0, WEIGHT}},
        {nf4, 512, {0, WEIGHT, WEIGHT}},
        {nf4, 2048, {WEIGHT, WEIGHT, WEIGHT}},
        {fp8, 10, {10 * 68, 10 * 68, 10 * 68}},                /* 64 and a scale in fp32 */
        {int8, 10, {10 * 324, 10 * 324, 10 * 324 + 10 * 128}}, /* 64, 4, 4 * 64; x in fp16 */
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        uint64_t got[3];
        scratch_of(T[i].tokens, T[i].packing, got);
        for (int k = 0; k < 3; k++)
            if (got[k] != T[i].want[k])
                fail_msg("%s, %d tokens: figure %d is %" PRIu64 ", not %" PRIu64, T[i].packing,
                         (int)T[i].tokens, k, got[k], T[i].want[k]);
    }
}

/* ---- what is not built ------------------------------------------------------------------------- */

#define TINY(packing)                                                                         \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":64,"                  \
    "\"num_attention_heads\":1,\"num_hidden_layers\":1,\"vocab_size\":64,"                    \
    "\"quantization_config\":" packing "}"
#define TINY_MIXTURE(packing)                                                                 \
    "{\"model_type\":\"mixtral\",\"hidden_size\":64,\"intermediate_size\":64,"                \
    "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"num_hidden_layers\":1,"            \
    "\"vocab_size\":64,\"quantization_config\":" packing "}"

static const struct {
    const char *why, *text, *message;
} refused[] = {
    {"unknown method", TINY("{\"quant_method\":\"aqlm\"}"),
     "quantization method 'aqlm' is not supported, only gptq, awq, bitsandbytes_4bit, "
     "bitsandbytes_8bit, fp8, mxfp4, compressed-tensors"},
    {"no method", TINY("{\"bits\":4}"), "'quantization_config' has no 'quant_method'"},
    {"nothing", TINY("{}"), "'quantization_config' has no 'quant_method'"},
    {"a word", TINY("\"gptq\""), "'quantization_config' is \"gptq\", expected an object"},
    {"a list", TINY("[\"gptq\"]"), "'quantization_config' is [\"gptq\"], expected an object"},
    {"a method in a method", TINY("{\"quant_method\":{\"quant_method\":\"gptq\"}}"), NULL},
    {"a name as long as none is",
     TINY("{\"quant_method\":\"gptqgptqgptqgptqgptqgptqgptqgptqgptqgptq\"}"), NULL},
    {"bits", TINY("{\"quant_method\":\"gptq\",\"bits\":5}"),
     "'bits' is 5, expected 2, 3, 4 or 8"},
    {"no bits by name", TINY("{\"quant_method\":\"bitsandbytes\"}"),
     "quantization method 'bitsandbytes' is not supported, only gptq, awq, "
     "bitsandbytes_4bit, bitsandbytes_8bit, fp8, mxfp4, compressed-tensors"},
    {"no groups", TINY("{\"quant_method\":\"compressed-tensors\"}"),
     "'quantization_config' has no 'config_groups.group_0'"},
    {"two groups",
     TINY("{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"a\":1},"
          "\"group_1\":{\"a\":1}}}"),
     "'config_groups.group_1' is set: this variant is not supported"},
    {"floats of 4 bits", TINY(COMPRESSED("\"num_bits\":4,\"type\":\"float\"")),
     "weights of 4 bits are not supported, only 4 (int) and 8"},
    {"a group of none", TINY(COMPRESSED("\"num_bits\":4,\"strategy\":\"group\"")),
     "'group_size' is 0, not in 1..2147483647"},
    {"a strategy", TINY(COMPRESSED("\"num_bits\":8,\"strategy\":\"token\"")),
     "'weights.strategy' is 'token', expected one of: tensor channel group"},
    {"bits that are none", TINY("{\"quant_method\":\"gptq\",\"bits\":1e300}"), NULL},
    {"group", TINY("{\"quant_method\":\"awq\",\"group_size\":-2}"),
     "'group_size' is -2, expected -1 or 1..2147483647"},
    {"no group", TINY("{\"quant_method\":\"gptq\",\"group_size\":0}"),
     "'group_size' is 0, expected -1 or 1..2147483647"},
    {"a layout", TINY("{\"quant_method\":\"awq\",\"version\":\"gemv\"}"),
     "'format' is 'gemv', expected one of: gemm GEMM"},
    {"Marlin's layout", TINY("{\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}"),
     "'format' is 'marlin', expected one of: gptq gptq_v2"},
    {"modules by themselves",
     TINY("{\"quant_method\":\"gptq\",\"dynamic\":{\"-:.*q_proj\":{}}}"),
     "'dynamic' is set: this variant is not supported"},
    {"some modules",
     TINY("{\"quant_method\":\"gptq\",\"modules_in_block_to_quantize\":[[\"mlp.up_proj\"]]}"),
     "'modules_in_block_to_quantize' is set: this variant is not supported"},
    {"the head too", TINY("{\"quant_method\":\"gptq\",\"lm_head\":true}"),
     "'lm_head' is set: this variant is not supported"},
    {"taken apart", TINY("{\"quant_method\":\"fp8\",\"dequantize\":true}"),
     "'dequantize' is set: this variant is not supported"},
    {"int8 of the name alone",
     TINY("{\"load_in_8bit\":true,\"llm_int8_has_fp16_weight\":true}"),
     "'llm_int8_has_fp16_weight' is set: this variant is not supported"},
    {"scales of another kind", TINY("{\"quant_method\":\"fp8\",\"scale_fmt\":\"int\"}"),
     "'scale_fmt' is 'int', expected one of: float ue8m0"},
    {"rows that do not fill words",
     "{\"model_type\":\"llama\",\"hidden_size\":72,\"num_attention_heads\":1,"
     "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3}}",
     "'model.layers.0.self_attn.q_proj': 72 weights of 3 bits do not fill whole 32-bit words"},
    {"patterns", TINY("{\"quant_method\":\"awq\",\"modules_to_not_convert\":[\"re:.*gate\"]}"),
     "'modules_to_not_convert' has the pattern 're:.*gate': only plain names are supported"},
    {"blocks", TINY("{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}"),
     "'weight_block_size' is not a list of two sizes"},
    {"blocks of nothing", TINY("{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}"),
     "'weight_block_size' is not a list of two sizes"},
    {"static scales", TINY("{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}"),
     "'activation_scheme' is 'static', expected one of: dynamic"},
    {"storage",
     TINY("{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,"
          "\"bnb_4bit_quant_storage\":\"int3\"}"),
     "'bnb_4bit_quant_storage' is 'int3', which is not a data type"},
    {"experts by themselves", TINY_MIXTURE("{\"quant_method\":\"gptq\"}"),
     "experts quantized with 'gptq' are not supported"},
    {"a word for a number", TINY("{\"quant_method\":\"gptq\",\"bits\":\"four\"}"), NULL},
};

/* The message without " at byte 144", which is where the file says it. */
static const char *cut_place(char *msg)
{
    char *place = strstr(msg, " at byte ");
    if (place)
        *place = '\0';
    return msg;
}

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(refused); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        plim_status st = build(&a, &g, plim_str_of(refused[i].text), &infer, &err);
        CHECK(refused[i].why, st != PLIM_OK && err.code == st && err.msg[0]);
        if (refused[i].message)
            CHECK_STR(refused[i].why, cut_place(err.msg), refused[i].message);
        plim_arena_free(&a);
    }
}

/* Its own quantization_config, about which the file around it says nothing. */
static void test_training_inside(void **state)
{
    (void)state;
    const plim_binding train = {.batch = 1, .seq = 4};
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    assert_int_equal(build(&a, &g, PLIM_STR(INSIDE(TINY_AND(FP8))), &train, &err),
                     PLIM_EUNSUPPORTED);
    plim_inventory v = {.arena = &a};
    static const char unknown[] =
        INSIDE(TINY_AND("\"quantization_config\":{\"quant_method\":\"hqq\"}"));
    plim_source s = {.bytes = {.p = (const uint8_t *)unknown, .n = sizeof unknown - 1}};
    assert_int_equal(plim_importer_hf.list(&v, &s, &err), PLIM_OK);
    assert_int_equal(v.n_items,
                     3 + 2 + 11 * 9); /* before quantization; two for the rotary table */
    plim_arena_free(&a);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char *const texts[] = {
        TINY("{\"load_in_4bit\":true,\"bnb_4bit_use_double_quant\":true,"
             "\"llm_int8_skip_modules\":[\"q_proj\",\"lm_head\"]}"),
        TINY("{\"quant_method\":\"hqq\"}"),
    };
    for (size_t k = 0; k < PLIM_COUNT(texts); k++) {
        plim_status st = PLIM_ENOMEM;
        for (uint64_t n = 1; st == PLIM_ENOMEM; n++) {
            plim_arena a = {.fail_after = n};
            plim_err err = PLIM_ERR_INIT;
            plim_graph g;
            st = build(&a, &g, plim_str_of(texts[k]), &infer, &err);
            CHECK(texts[k], err.code == st);
            plim_arena_free(&a);
        }
        CHECK(texts[k], st == (k ? PLIM_EUNSUPPORTED : PLIM_OK));
    }
}

static void test_training(void **state)
{
    (void)state;
    const plim_binding train = {.batch = 1, .seq = 4};
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    assert_int_equal(build(&a, &g, PLIM_STR(TINY("{\"quant_method\":\"fp8\"}")), &train, &err),
                     PLIM_EUNSUPPORTED);
    assert_string_equal(
        err.msg,
        "quantized weights ('model.layers.0.self_attn.q_proj.weight') cannot be trained: "
        "use --infer");
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_published),       cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_training),
        cmocka_unit_test(test_training_inside), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
