/* test_hf.c -- models from a config.json: event by event against the export of the same model,
 * names and shapes against transformers, totals of other classes against published ones. */
#include <stdio.h>

#include "asked.h"
#include "base/fmt.h"
#include "import/hf/hf.h"
#include "model/model.h"
#include "step/step.h"
#include "unit.h"
#include "zoo/zoo.h"

extern const plim_importer plim_importer_hf;

#define GOLDEN(file) PLIM_SOURCE_DIR "/tests/golden/" file

/* ---- against exports --------------------------------------------------------------- */

/* tests/golden/hf/NAME.json and tests/golden/differential/NAME.pt2 are from the same
 * configuration, 16 sequences of 128 tokens. */
static const struct {
    const char *name;
    const char *differs; /* why the export differs from eager code; NULL: it does not */
    const char *in;      /* in this setting only; NULL: in all */
} models[] = {
    {"llama", NULL, NULL},
    {"mistral", NULL, NULL},
    {"mistral_window", NULL, NULL},
    {"qwen2", NULL, NULL},
    {"qwen3", NULL, NULL},
    {"gemma", NULL, NULL},
    {"gemma2", NULL, NULL},
    {"gemma3_text", NULL, NULL},
    {"phi3", NULL, NULL},
    {"mixtral", NULL, NULL},
    {"gpt_oss", NULL, NULL},
    {"qwen2_moe", "router weights are cast to the type of the logits, in the file to fp32",
     NULL},
    {"qwen3_moe", "as above", NULL},
    {"gpt2", NULL, NULL},
    {"gpt_neox", NULL, NULL},
    {"phi", NULL, NULL},
    {"gptj", NULL, NULL},
    {"opt", NULL, NULL},
    {"bloom", "its gelu is an autograd function, which the tracer looks into", NULL},
    {"falcon", NULL, NULL},
    {"falcon_new", NULL, NULL},
    {"deepseek_v2", "rotated heads are cast to the type of the heads, in the file to fp32",
     NULL},
    {"deepseek_v3", NULL, NULL},
    {"mamba", "with checkpoints the state of the token before goes one op later", NULL},
    {"mamba2", NULL, NULL},
    {"bert", NULL, NULL},
    {"bert_classifier", NULL, NULL},
    {"roberta", NULL, NULL},
    {"roberta_tokens", NULL, NULL},
    {"electra", NULL, NULL},
    {"electra_pretraining", NULL, NULL},
    {"distilbert", NULL, NULL},
    {"distilbert_answers", NULL, NULL},
    {"vit_hf", NULL, NULL},
    {"swin", "random numbers are of the type of what they scale, in the file fp32",
     "autocast"},
    {"clip", NULL, NULL},
    {"bart", NULL, NULL},
    {"whisper", NULL, NULL},
    {"t5",
     "casts that eager code makes where types differ are not in the file, nor that its checkpoints ask for a "
     "gradient of the decoder's bias",
     "autocast checkpoint"},
};

enum { BATCH = 16, SEQ = 128, MODELS_KNOWN = 34, RUNS = 136 };

static const struct {
    const char *name; /* as in results.txt */
    const char *words;
} settings[] = {
    {"sgd", "optimizer=sgd"},
    {"adamw", "optimizer=adamw"},
    {"autocast", "optimizer=adamw autocast=bf16"},
    {"checkpoint", "optimizer=sgd checkpoint=blocks"},
};

static void run(plim_arena *a, plim_tape *t, const char *path, const char *words)
{
    plim_step_info info;
    plim_graph g;
    asked_tape(path, words, a, &g, t, &info);
    if (plim_graph_check(&g))
        fail_msg("%s: %s", path, plim_graph_check(&g));
    assert_int_equal(info.unknown_ops, 0);
}

/* The order in which buffers are loaded is not in a file; after that everything is equal. */
static uint32_t after_load(const plim_tape *t)
{
    for (uint32_t i = 0; i < t->n_marks; i++)
        if (t->marks[i].step >= 0)
            return t->marks[i].first;
    return 0;
}

static uint64_t loaded(const plim_tape *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < after_load(t); i++)
        sum += t->storages[t->events[i].id].bytes;
    return sum;
}

/* That the names in forward refer to a tensor is not in a file: the model that is built may free some
 * later.  Sizes that the export has freed already. */
typedef struct early {
    uint64_t bytes[16];
    uint32_t n;
} early;

static bool frees_late(early *e, uint64_t bytes)
{
    for (uint32_t i = 0; i < e->n; i++)
        if (e->bytes[i] == bytes) {
            e->bytes[i] = e->bytes[--e->n];
            return true;
        }
    return false;
}

/* How many rows each expert has is counted in fp32 on a CPU, where the export was made, and cast: the second
 * tensor of that size in a row, and its end. */
static bool is_cast(const plim_tape *t, uint32_t at)
{
    enum { COUNTS = 4 * 4 };
    const plim_event *e = &t->events[at];
    plim_str of = t->storages[e->id].name;
    if (t->storages[e->id].bytes != COUNTS || !plim_str_ends(of, PLIM_STR("experts")))
        return false;
    for (uint32_t i = at; i-- > 0;)
        if (t->events[i].id == e->id)
            return is_cast(t, i);
    return at && !e[-1].kind && t->storages[e[-1].id].bytes == COUNTS;
}

/* Whether the last number of each sequence is 0, which is asked of values: not in an export. */
static bool asks_for_packing(const plim_tape *t, uint32_t at)
{
    enum { ASKED = 4 };
    static const uint64_t bytes[ASKED] = {BATCH, 1, BATCH, 1};
    if (at + ASKED > t->n_events)
        return false;
    for (uint32_t i = 0; i < ASKED; i++)
        if (t->storages[t->events[at + i].id].bytes != bytes[i] ||
            (t->events[at + i].kind == PLIM_EVENT_ALLOC) != (i < 2))
            return false;
    return true;
}

static void same_events(const char *name, const char *setting, const plim_tape *got,
                        const plim_tape *want)
{
    early e = {.n = 0};
    uint32_t i = after_load(got), j = after_load(want), casts = 0, asked = 0;
    assert_int_equal(i, j);
    assert_int_equal(loaded(got), loaded(want));
    while (i < got->n_events && j < want->n_events) {
        const plim_event *x = &got->events[i], *y = &want->events[j];
        const plim_storage *a = &got->storages[x->id], *b = &want->storages[y->id];
        if (is_cast(want, j))
            j++, casts++;
        else if (x->kind == y->kind && a->bytes == b->bytes)
            i++, j++;
        else if (asks_for_packing(got, i))
            i += 4, asked += 4;
        else if (x->kind && frees_late(&e, a->bytes))
            i++;
        else if (y->kind && e.n < PLIM_COUNT(e.bytes))
            e.bytes[e.n++] = b->bytes, j++;
        else
            fail_msg("%s, %s: event %u is %s %" PRIu64 " of '" PLIM_STR_FMT
                     "', the export has %s %" PRIu64 " of '" PLIM_STR_FMT "'",
                     name, setting, (unsigned)i, x->kind ? "-" : "+", a->bytes,
                     PLIM_STR_ARG(a->name), y->kind ? "-" : "+", b->bytes,
                     PLIM_STR_ARG(b->name));
    }
    assert_int_equal(got->n_events - asked, want->n_events - casts);
}

static void test_exports(void **state)
{
    (void)state;
    char config[256], file[256], words[192];
    for (size_t i = 0; i < PLIM_COUNT(models); i++)
        for (size_t k = 0; k < PLIM_COUNT(settings); k++) {
            if (models[i].differs && (!models[i].in || strstr(models[i].in, settings[k].name)))
                continue;
            plim_arena a = PLIM_ARENA_INIT;
            plim_tape got, want;
            snprintf(words, sizeof words, "gpu=h100 loop=typical %s", settings[k].words);
            snprintf(file, sizeof file, GOLDEN("differential/%s.pt2"), models[i].name);
            run(&a, &want, file, words);
            snprintf(words, sizeof words, "gpu=h100 loop=typical cache=off batch=%d seq=%d %s",
                     BATCH, SEQ, settings[k].words);
            snprintf(config, sizeof config, GOLDEN("hf/%s.json"), models[i].name);
            run(&a, &got, config, words);
            same_events(models[i].name, settings[k].name, &got, &want);
            plim_arena_free(&a);
        }
}

/* ---- against dry runs ------------------------------------------------------------------ */

static uint64_t peak_of(const plim_tape *t)
{
    uint64_t live = 0, peak = 0;
    for (uint32_t i = 0; i < t->n_events; i++) {
        const plim_storage *s = &t->storages[t->events[i].id];
        if (t->events[i].kind == PLIM_EVENT_ALLOC)
            live += s->bytes;
        else if (t->events[i].kind == PLIM_EVENT_FREE)
            live -= s->bytes;
        peak = PLIM_MAX(peak, live);
    }
    return peak;
}

static const char *words_called(const char *name)
{
    for (size_t i = 0; i < PLIM_COUNT(settings); i++)
        if (!strcmp(settings[i].name, name))
            return settings[i].words;
    fail_msg("no setting '%s'", name);
    return NULL;
}

static void compare_peak(const char *name, const char *setting, uint64_t peak)
{
    char config[256], words[192];
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape got;
    snprintf(words, sizeof words,
             "gpu=h100 torch=2.13 loop=typical cache=off batch=%d seq=%d %s", BATCH, SEQ,
             words_called(setting));
    snprintf(config, sizeof config, GOLDEN("hf/%s.json"), name);
    run(&a, &got, config, words);
    double off = ((double)peak_of(&got) - (double)peak) / (double)peak;
    if (off > 0.001 || off < -0.001)
        fail_msg("%s, %s: peak %" PRIu64 ", the dry run's is %" PRIu64, name, setting,
                 peak_of(&got), peak);
    plim_arena_free(&a);
}

static unsigned compare_peaks(const char *file)
{
    char line[256], name[64], setting[64];
    uint64_t peak;
    unsigned seen = 0;
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %63s %" SCNu64, name, setting, &peak) != 3)
            continue;
        for (size_t i = 0; i < PLIM_COUNT(models); i++)
            if (!strcmp(models[i].name, name)) {
                compare_peak(name, setting, peak);
                seen++;
            }
    }
    fclose(f);
    return seen;
}

/* tools/differential ran the same models, unexported, on a pretend card: the peaks agree
 * within 0.1 %, most of them exactly. */
static void test_dry_runs(void **state)
{
    (void)state;
    unsigned seen = compare_peaks(GOLDEN("differential/results.txt"));
    assert_true(seen >= RUNS);
    assert_int_equal(compare_peaks(GOLDEN("hf/dry_runs.txt")), 4);
}

/* ---- names, shapes, totals ----------------------------------------------------------------- */

static plim_status build_text(plim_arena *a, plim_graph *g, plim_str text, plim_err *err)
{
    const plim_binding tiny = {.batch = 1, .seq = 4};
    plim_source s = {.bytes = {.p = (const uint8_t *)text.p, .n = text.n}};
    *g = (plim_graph){.arena = a};
    return plim_importer_hf.read(g, &s, &tiny, err);
}

static uint64_t fnv1a(uint64_t h, plim_str s)
{
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 0x100000001b3;
    return h;
}

/* Hash of "model.norm.weight 4096\n" for each parameter; a second name of one is skipped. */
static uint64_t hash_parameters(plim_arena *a, const plim_graph *g, unsigned *count)
{
    uint64_t h = 0xcbf29ce484222325;
    *count = 0;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        plim_buf b;
        if (v->kind != PLIM_VALUE_PARAMETER || v->tied_to != PLIM_NONE)
            continue;
        plim_buf_init(&b, a);
        plim_buf_add(&b, v->name);
        plim_buf_puts(&b, " ");
        for (int32_t d = 0; d < v->meta.rank; d++)
            plim_buf_printf(&b, d ? "x%" PRId64 : "%" PRId64, v->meta.dim[d]);
        plim_buf_puts(&b, "\n");
        h = fnv1a(h, plim_buf_str(&b));
        ++*count;
    }
    return h;
}

static plim_str read_whole(plim_arena *a, const char *path)
{
    plim_bytes b;
    plim_err err = PLIM_ERR_INIT;
    if (plim_file_read(&b, path, &err))
        fail_msg("%s", err.msg);
    plim_str s = plim_arena_str(a, (plim_str){(const char *)b.p, (size_t)b.n});
    plim_file_close(&b);
    return s;
}

/* Every name and size, in order of registration, as in transformers. */
static void test_parameters(void **state)
{
    (void)state;
    char line[256], file[64], class[64], path[256];
    uint64_t total, hash;
    unsigned tensors, got, seen = 0;
    FILE *f = fopen(GOLDEN("hf/params.txt"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        plim_graph_counts c;
        if (sscanf(line, "%63s %63s %" SCNu64 " %u %" SCNx64, file, class, &total, &tensors,
                   &hash) != 5)
            continue;
        snprintf(path, sizeof path, GOLDEN("hf/full/%s.json"), file);
        plim_status st = build_text(&a, &g, read_whole(&a, path), &err);
        if (st == PLIM_EUNSUPPORTED && strstr(err.msg, "is not known")) {
            plim_arena_free(&a);
            continue;
        }
        if (st || plim_graph_count(&g, &c, &err))
            fail_msg("%s: %s", file, err.msg);
        CHECK_STR(file, g.scopes[0].type.p, class);
        uint64_t h = hash_parameters(&a, &g, &got);
        if (c.parameters != total || got != tensors || h != hash)
            fail_msg("%s: %" PRIu64 " parameters in %u tensors, of transformers %" PRIu64
                     " in %u%s",
                     file, c.parameters, got, total, tensors,
                     h == hash ? "" : ", and their names or shapes differ");
        plim_arena_free(&a);
        seen++;
    }
    fclose(f);
    assert_true(seen >= MODELS_KNOWN);
}

/* Published totals of classes other than those named in the models' own files; those are the
 * rows of src/zoo/names.def, which test_zoo.c builds.
 * src: the models' pages on the hub; Dosovitskiy et al. 2021, table 1: ViT-H, 632 million */
static const struct {
    const char *name, *class;
    uint64_t parameters;
} classes[] = {
    {"bert-base-uncased", "BertModel", 109482240},
    {"bert-base-cased", "BertModel", 108310272},
    {"bert-large-uncased", "BertModel", 335141888},
    {"roberta-base", "RobertaModel", 124645632},
    {"roberta-large", "RobertaModel", 355359744},
    {"distilbert-base", "DistilBertModel", 66362880},
    {"electra-small", "ElectraModel", 13483008},
    {"electra-base", "ElectraModel", 108891648},
    {"vit-huge-in21k", "ViTForImageClassification", 632045800},
};

static const char *config_of(const char *name)
{
    const plim_zoo_model *m;
    for (uint32_t i = 0; (m = plim_zoo_at(i, NULL)); i++)
        if (!strcmp(m->name, name))
            return m->config;
    fail_msg("no built-in model '%s'", name);
    return NULL;
}

static void test_other_classes(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(classes); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        plim_graph_counts c;
        const char *config = config_of(classes[i].name);
        /* of duplicate keys the last one counts */
        plim_str text =
            plim_arena_printf(&a, "%.*s, \"architectures\": [\"%s\"], \"num_labels\": 1000}",
                              (int)strlen(config) - 1, config, classes[i].class);
        if (build_text(&a, &g, text, &err) || plim_graph_count(&g, &c, &err))
            fail_msg("%s: %s", classes[i].name, err.msg);
        if (c.parameters != classes[i].parameters)
            fail_msg("%s %s: %" PRIu64 " parameters, published are %" PRIu64, classes[i].name,
                     classes[i].class, c.parameters, classes[i].parameters);
        plim_arena_free(&a);
    }
}

/* ---- what a file may say ----------------------------------------------------------------------- */

#define LLAMA                                                                                 \
    "\"model_type\":\"llama\",\"vocab_size\":32,\"hidden_size\":8,\"intermediate_size\":16,"  \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2"

static plim_graph_counts count_of(plim_arena *a, const char *text)
{
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_graph_counts c = {0};
    if (build_text(a, &g, plim_str_of(text), &err) || plim_graph_count(&g, &c, &err))
        fail_msg("%s: %s", text, err.msg);
    return c;
}

/* 32 * 8 twice, 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8 in the layer, 8 */
enum { LLAMA_PARAMETERS = 512 + 656 + 8 };

static const struct {
    const char *why, *text;
    uint64_t parameters, bytes;
} accepted[] = {
    {"plain", "{" LLAMA "}", LLAMA_PARAMETERS, 4 * LLAMA_PARAMETERS},
    {"tied", "{" LLAMA ",\"tie_word_embeddings\":true}", LLAMA_PARAMETERS - 256,
     4 * (LLAMA_PARAMETERS - 256)},
    {"dtype as transformers 5 writes it", "{" LLAMA ",\"dtype\":\"bfloat16\"}",
     LLAMA_PARAMETERS, 2 * LLAMA_PARAMETERS},
    {"dtype as before", "{" LLAMA ",\"torch_dtype\":\"float16\"}", LLAMA_PARAMETERS,
     2 * LLAMA_PARAMETERS},
    {"a null is what is not there", "{" LLAMA ",\"num_key_value_heads\":null}",
     LLAMA_PARAMETERS, 4 * LLAMA_PARAMETERS},
    {"one head of keys and values for both", "{" LLAMA ",\"num_key_value_heads\":1}",
     LLAMA_PARAMETERS - 64, 4 * (LLAMA_PARAMETERS - 64)},
    {"biases", "{" LLAMA ",\"attention_bias\":true,\"mlp_bias\":true}",
     LLAMA_PARAMETERS + 4 * 8 + 16 + 16 + 8, 4 * (LLAMA_PARAMETERS + 72)},
    {"sizes as floats, a byte order mark, bare infinities",
     "\xef\xbb\xbf{" LLAMA ",\"head_dim\":4.0,\"limit\":[0.0,Infinity,NaN]}", LLAMA_PARAMETERS,
     4 * LLAMA_PARAMETERS},
    {"the class alone says the type",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":32,\"hidden_size\":8,"
     "\"intermediate_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2}",
     LLAMA_PARAMETERS, 4 * LLAMA_PARAMETERS},
};

static void test_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(accepted); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph_counts c = count_of(&a, accepted[i].text);
        if (c.parameters != accepted[i].parameters || c.parameter_bytes != accepted[i].bytes)
            fail_msg("%s: %" PRIu64 " parameters, %" PRIu64 " bytes", accepted[i].why,
                     c.parameters, c.parameter_bytes);
        plim_arena_free(&a);
    }
}

/* What has parts that are not known is never whole; inside and alike say which text model was built. */
static void test_texts(void **state)
{
    (void)state;
    static const char sizes[] =
        "\"vocab_size\":32,\"hidden_size\":8,\"intermediate_size\":16,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":4}";
    static const struct {
        const char *before, *after, *says;
        int64_t more; /* parameters than a llama's */
    } rows[] = {
        {"{\"model_type\":\"sees\",\"text_config\":{\"model_type\":\"llama\",", "}",
         "only the text model of this 'sees' is counted; its other", 0},
        {"{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{\"depth\":2},", "",
         "only the text model of this 'qwen2_5_vl' is counted, as that of qwen2; its other",
         3 * 8},
        {"{\"model_type\":\"sees\",\"text_config\":{\"model_type\":\"arcee\",", "}",
         "only the text model of this 'sees' is counted; its other", -128},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        plim_graph_counts c = {0};
        plim_str text = plim_arena_printf(&a, "%s%s%s", rows[i].before, sizes, rows[i].after);
        if (build_text(&a, &g, text, &err) || plim_graph_count(&g, &c, &err))
            fail_msg("%s: %s", rows[i].before, err.msg);
        plim_str says = plim_arena_printf(&a, PLIM_STR_FMT, PLIM_STR_ARG(g.about.left_out));
        if (!strstr(says.p, rows[i].says))
            fail_msg("%s: '" PLIM_STR_FMT "'", rows[i].before, PLIM_STR_ARG(g.about.left_out));
        if (c.parameters != (uint64_t)(LLAMA_PARAMETERS + rows[i].more))
            fail_msg("%s: %" PRIu64 " parameters", rows[i].before, c.parameters);
        plim_arena_free(&a);
    }
}

static const struct {
    const char *why, *text, *message;
} refused[] = {
    {"unknown type", "{\"model_type\":\"vision3\"}",
     "model_type 'vision3' is not supported (docs/formats/huggingface.md lists those "
     "that are)"},
    {"nor is its text model",
     "{\"model_type\":\"vision3\",\"text_config\":{\"model_type\":\"llama9\"}}",
     "model_type 'vision3' is not supported (docs/formats/huggingface.md lists those "
     "that are)"},
    {"another head", "{" LLAMA ",\"architectures\":[\"LlamaForTokenClassification\"]}",
     "class 'LlamaForTokenClassification' is not supported: for this model type plimsoll "
     "builds LlamaForCausalLM"},
    {"quantized", "{" LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}",
     "quantized weights ('model.layers.0.self_attn.q_proj.qweight') cannot be trained: "
     "use --infer"},
    {"no type of parameters", "{" LLAMA ",\"dtype\":\"int4\"}",
     "dtype 'int4' is not a type of parameters"},
    {"no layers", "{" LLAMA ",\"num_hidden_layers\":0}",
     "'num_hidden_layers' is 0, not in 1..1024"},
    {"too many", "{" LLAMA ",\"num_hidden_layers\":1000000000}",
     "'num_hidden_layers' is 1000000000, not in 1..1024"},
    {"a tensor of 2^63", "{" LLAMA ",\"vocab_size\":9223372036854775807}",
     "'vocab_size' is 9223372036854775807, not in 1..2147483647"},
    {"too large together", "{" LLAMA ",\"vocab_size\":2147483647,\"hidden_size\":2147483646}",
     "size of 'model.embed_tokens.weight' overflows"},
    {"heads that do not share", "{" LLAMA ",\"num_key_value_heads\":3}",
     "2 heads are not a multiple of 3 key-value heads"},
    {"an activation", "{" LLAMA ",\"hidden_act\":\"quick\"}",
     "activation 'quick' is not supported"},
    {"a word for a number", "{" LLAMA ",\"head_dim\":\"four\"}", NULL},
    {"no object", "[]", NULL},
    {"its end is missing", "{" LLAMA, NULL},
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
        plim_status st = build_text(&a, &g, plim_str_of(refused[i].text), &err);
        CHECK(refused[i].why, st != PLIM_OK && err.code == st && err.msg[0]);
        if (refused[i].message)
            CHECK_STR(refused[i].why, cut_place(err.msg), refused[i].message);
        plim_arena_free(&a);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        plim_binding bind;
        const char *got; /* of input_ids; or the error */
    } cases[] = {
        {"as many tokens as it was made for",
         "{" LLAMA ",\"max_position_embeddings\":64}",
         {0},
         "[1, 64]"},
        {"but no more than 1024", "{" LLAMA "}", {0}, "[1, 1024]"},
        {"told", "{" LLAMA "}", {.batch = 3, .seq = 5}, "[3, 5]"},
        {"rotary positions have no end", "{" LLAMA "}", {.seq = 4096}, "[1, 4096]"},
        {"a table of positions has",
         "{\"model_type\":\"gpt2\"}",
         {.seq = 1025},
         "a sequence of 1025 tokens is longer than the position table of 1024"},
        {"more than there are",
         "{" LLAMA "}",
         {.batch = 1 << 30, .seq = 1 << 30},
         "1073741824 sequences of 1073741824 tokens exceed the limit of 1099511627776 tokens"},
    };
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g = {.arena = &a};
        plim_source s = {
            .bytes = {.p = (const uint8_t *)cases[i].text, .n = strlen(cases[i].text)}};
        char buf[96];
        plim_status st = plim_importer_hf.read(&g, &s, &cases[i].bind, &err);
        const char *got =
            st ? err.msg : plim_meta_str(&g.values[g.inputs[0]].meta, buf, sizeof buf);
        CHECK_STR(cases[i].why, got, cases[i].got);
        plim_arena_free(&a);
    }
}

static void test_inference(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g = {.arena = &a};
    const char *text = "{" LLAMA "}";
    const plim_binding bind = {.infer = true, .seq = 16};
    plim_source s = {.bytes = {.p = (const uint8_t *)text, .n = strlen(text)}};
    assert_int_equal(plim_importer_hf.read(&g, &s, &bind, &err), PLIM_OK);
    assert_int_equal(g.n_inputs, 1); /* no labels, no loss */
    assert_int_equal(g.n_outputs, 1);
    char buf[96];
    CHECK_STR("the logits", plim_meta_str(&g.values[g.outputs[0]].meta, buf, sizeof buf),
              "[1, 16, 32]");
    plim_arena_free(&a);
}

/* The elements of keys and values for each token in past_key_values, as transformers 5.23 ran
 * the same configuration with use_cache=True. */
static void test_kv_cache(void **state)
{
    (void)state;
    static const struct {
        const char *why, *name; /* tests/golden/hf/NAME.json */
        uint64_t elements;
    } cases[] = {
        {"as many heads of keys as of queries", "gpt2", 2048},
        {"fewer", "llama", 1024},
        {"heads of a size of their own", "gemma3_text", 1792},
        {"one for all heads", "falcon", 256},
        {"repeated before they are kept", "falcon_new", 2048},
        {"a latent for all heads", "deepseek_v2", 192},
        {"the same", "deepseek_v3", 192},
        {"a row of its own", "gpt_neox", 2048},
        {"a row of its own", "gptj", 2048},
        {"a row of its own", "phi", 2048},
        {"a row of its own", "opt", 2048},
        {"a row of its own", "bloom", 2048},
        {"a window bounds the tokens, not their size", "mistral_window", 1024},
        {"experts do not attend", "qwen3_moe", 1024},
        {"a state of constant size", "mamba", 0},
        {"an encoder", "bert", 0},
    };
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_model m = {0};
        plim_graph g;
        char path[256];
        const plim_binding bind = {.infer = true, .seq = 16};
        snprintf(path, sizeof path, GOLDEN("hf/%s.json"), cases[i].name);
        assert_int_equal(plim_model_find(&m, &a, path, &err), PLIM_OK);
        assert_int_equal(plim_model_graph(&m, &bind, &a, &g, &err), PLIM_OK);
        CHECK(cases[i].why, g.kv.elements == cases[i].elements);
        plim_model_close(&m);
        plim_arena_free(&a);
    }
}

/* ---- the list of what it holds ----------------------------------------------------------------------- */

static void list(plim_arena *a, plim_inventory *v, const char *text)
{
    plim_err err = PLIM_ERR_INIT;
    plim_source s = {.bytes = {.p = (const uint8_t *)text, .n = strlen(text)}};
    *v = (plim_inventory){.arena = a};
    if (plim_importer_hf.list(v, &s, &err))
        fail_msg("%s", err.msg);
}

static void test_list(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    list(&a, &v, "{" LLAMA ",\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\"}");
    assert_int_equal(v.n_notes, 0);
    assert_int_equal(v.n_items, 14); /* 12 parameters, 2 buffers */
    CHECK_STR("in the order of registration", v.items[0].name.p, "model.embed_tokens.weight");
    CHECK_STR("the head is", v.items[v.n_items - 1].name.p, "lm_head.weight");
    assert_int_equal(v.items[v.n_items - 1].same_as, 0);
    assert_true(plim_str_is(v.items[0].type, "bf16") && v.items[0].bytes == 512);
    assert_int_equal(v.n_dims, 2);
    assert_true(plim_str_is(v.dims[1].name, "seq") && v.dims[1].value == 1024);
    assert_true(plim_str_is(v.facts[0].value, "llama"));

    list(&a, &v, "{" LLAMA ",\"quantization_config\":{\"quant_method\":\"aqlm\"}}");
    assert_true(v.n_items && v.n_notes == 1);
    CHECK_STR("says so", v.notes[0].p,
              "parameters are listed as they are before quantization");

    list(&a, &v, "{\"model_type\":\"vision3\"}");
    assert_int_equal(v.n_items, 0);
    assert_int_equal(v.n_notes, 1);
    assert_non_null(strstr(v.notes[0].p, "llama, mistral"));
    plim_arena_free(&a);
}

/* made by tests/data/hf_folders.py */
static void list_folder(plim_arena *a, plim_inventory *v, const char *name)
{
    char path[256];
    plim_err err = PLIM_ERR_INIT;
    plim_source s = {.path = path};
    snprintf(path, sizeof path, PLIM_SOURCE_DIR "/tests/data/%s/config.json", name);
    *v = (plim_inventory){.arena = a};
    if (plim_file_read(&s.bytes, path, &err) || plim_importer_hf.list(v, &s, &err))
        fail_msg("%s", err.msg);
    plim_file_close(&s.bytes);
}

static void test_weights(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    list_folder(&a, &v, "llama-tiny"); /* all of them, in the type that the file says */
    assert_int_equal(v.n_notes, 0);
    assert_int_equal(v.n_items, 14);

    list_folder(&a, &v, "llama-other");
    assert_int_equal(v.n_items, 14);
    assert_int_equal(v.n_notes, 4);
    CHECK_STR(
        "missing", v.notes[0].p,
        "parameters missing from 'model.safetensors': 1, the first is 'model.norm.weight'");
    CHECK_STR("more", v.notes[1].p,
              "unexpected tensors in 'model.safetensors': 1, the first is 'model.extra'");
    CHECK_STR("shape", v.notes[2].p,
              "parameters with a different shape in 'model.safetensors': 1, the first is "
              "'model.embed_tokens.weight'");
    CHECK_STR("type", v.notes[3].p,
              "parameters with a different type in 'model.safetensors': 1, the first is "
              "'model.layers.0.self_attn.q_proj.weight'");

    list_folder(&a, &v, "unknown-tiny");
    uint64_t elements = 0;
    for (uint32_t i = 0; i < v.n_items; i++)
        elements += v.items[i].elements;
    assert_int_equal(elements, LLAMA_PARAMETERS);
    assert_int_equal(v.n_notes, 2);
    CHECK_STR(
        "what is not known", v.notes[1].p,
        "the list shows what 'model.safetensors' holds: the weights are exact, the model "
        "that uses them is not supported");
    plim_arena_free(&a);
}

/* ---- broken files, no memory ---------------------------------------------------------------------------- */

static void try_bytes(const char *text, size_t n)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_inventory v = {.arena = &a};
    plim_source s = {.bytes = {.p = (const uint8_t *)text, .n = n}};
    plim_status st = build_text(&a, &g, (plim_str){text, n}, &err);
    if (st)
        assert_true(err.code == st && err.msg[0]);
    else
        assert_null(plim_graph_check(&g));
    (void)plim_importer_hf.list(&v, &s, NULL);
    plim_arena_free(&a);
}

static void test_survives(void **state)
{
    (void)state;
    char text[] = "{" LLAMA ",\"layer_types\":[\"full_attention\"],\"rope_parameters\":"
                  "{\"partial_rotary_factor\":0.5},\"dtype\":\"bfloat16\"}";
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        char kept = text[i];
        try_bytes(text, i);
        text[i] = (char)(kept ^ 0xff);
        try_bytes(text, n);
        text[i] = (char)(kept ^ 1);
        try_bytes(text, n);
        text[i] = kept;
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    plim_status st = PLIM_ENOMEM;
    uint64_t n = 1;
    for (; st; n++) {
        plim_arena a = {.fail_after = n};
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        st = build_text(&a, &g, PLIM_STR("{" LLAMA "}"), &err);
        CHECK("it says so", (st == PLIM_OK || st == PLIM_ENOMEM) && err.code == st);
        plim_arena_free(&a);
    }
    CHECK("it takes more than a few", n > 30);
}

/* Each row of each group has what readers of the registry rely on, and is named on the page
 * that errors point at. */
static void test_registry(void **state)
{
    (void)state;
    const plim_hf_group *g, *found;
    plim_arena a = PLIM_ARENA_INIT;
    plim_str page = read_whole(&a, PLIM_SOURCE_DIR "/docs/formats/huggingface.md");
    char quoted[64];
    for (uint32_t i = 0; (g = plim_hf_group_at(i)) != NULL; i++) {
        assert_true(g->doc[0] && g->src[0] && g->n_families && g->n_keys && g->size);
        for (size_t k = 0; k < g->n_families; k++) {
            const plim_hf_family *f = &g->families[k];
            CHECK(f->model_type, plim_hf_find(plim_str_of(f->model_type), &found) == f);
            CHECK(f->model_type, f->classes[0] && found == g);
            snprintf(quoted, sizeof quoted, "`%s`", f->model_type);
            CHECK(f->model_type, strstr(page.p, quoted));
        }
    }
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exports),    cmocka_unit_test(test_dry_runs),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_other_classes),
        cmocka_unit_test(test_accepted),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_inference),
        cmocka_unit_test(test_kv_cache),   cmocka_unit_test(test_list),
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_weights),
        cmocka_unit_test(test_survives),   cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_registry)};
    return cmocka_run_group_tests_name("hf", tests, NULL, NULL);
}
