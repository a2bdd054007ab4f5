/* test_hf.c -- models from a config.json: event by event against the export of the same
 * model, names and shapes against transformers, totals against published ones. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fmt.h"
#include "fit/job.h"
#include "import/hf.h"
#include "unit.h"

extern const plim_importer plim_importer_hf;

#define GOLDEN(file) PLIM_SOURCE_DIR "/tests/golden/" file

/* ---- against exports --------------------------------------------------------------- */

/* tests/golden/hf/NAME.json and tests/golden/differential/NAME.pt2 come of one
 * configuration, 16 sequences of 128 tokens. */
static const struct {
    const char *name;
    const char *differs; /* why the export is not what eager code does; NULL: it is */
} models[] = {
    {"llama", NULL},
    {"mistral", NULL},
    {"mistral_window", NULL},
    {"qwen2", NULL},
    {"qwen3", NULL},
    {"gemma", NULL},
    {"gemma2", NULL},
    {"gemma3_text", NULL},
    {"phi3", NULL},
    {"mixtral", NULL},
    {"gpt_oss", NULL},
    {"qwen2_moe", "router weights are cast to the type of the logits, in the file to fp32"},
    {"qwen3_moe", "likewise"},
    {"gpt2", NULL},
    {"gpt_neox", NULL},
    {"phi", NULL},
    {"gptj", NULL},
    {"opt", NULL},
    {"bloom", "its gelu is an autograd function, which the tracer looks into"},
    {"falcon", NULL},
    {"falcon_new", NULL},
    {"deepseek_v2", "rotated heads are cast to the type of the heads, in the file to fp32"},
    {"deepseek_v3", NULL},
    {"mamba", "with checkpoints the state of the token before goes one op later"},
    {"mamba2", NULL},
    {"bert", NULL},
    {"bert_classifier", NULL},
    {"roberta", NULL},
    {"roberta_tokens", NULL},
    {"electra", NULL},
    {"electra_pretraining", NULL},
    {"distilbert", NULL},
    {"distilbert_answers", NULL},
    {"vit_hf", NULL},
};

enum { BATCH = 16, SEQ = 128, MODELS_KNOWN = 29, TOTALS = 85 };

static const struct {
    const char *name; /* as in results.txt */
    plim_settings s;
} settings[] = {
    {"sgd", {.optimizer = "sgd"}},
    {"adamw", {.optimizer = "adamw"}},
    {"autocast", {.optimizer = "adamw", .autocast = "bf16"}},
    {"checkpoint", {.optimizer = "sgd", .checkpoint = "blocks"}},
};

static void run(plim_arena *a, plim_tape *t, const char *path, const plim_settings *s)
{
    plim_err err = PLIM_ERR_INIT;
    plim_step_info info;
    plim_graph g;
    plim_job job;
    if (plim_job_open(&job, a, path, s, &err) || plim_job_graph(&job, 0, a, &g, &err) ||
        plim_job_tape(&job, &g, a, t, &info, &err))
        fail_msg("%s: %s", path, err.msg);
    if (plim_graph_check(&g))
        fail_msg("%s: %s", path, plim_graph_check(&g));
    assert_int_equal(info.unknown_ops, 0);
    plim_job_close(&job);
}

/* The order in which buffers are loaded is not in a file; from there on all is the same. */
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

static void same_events(const char *name, const char *setting, const plim_tape *got,
                        const plim_tape *want)
{
    assert_int_equal(after_load(got), after_load(want));
    assert_int_equal(loaded(got), loaded(want));
    for (uint32_t i = after_load(got); i < PLIM_MIN(got->n_events, want->n_events); i++) {
        const plim_event *x = &got->events[i], *y = &want->events[i];
        const plim_storage *a = &got->storages[x->id], *b = &want->storages[y->id];
        if (x->kind != y->kind || a->bytes != b->bytes)
            fail_msg("%s, %s: event %u is %s %" PRIu64 " of '" PLIM_STR_FMT
                     "', the export has %s %" PRIu64 " of '" PLIM_STR_FMT "'",
                     name, setting, (unsigned)i, x->kind ? "-" : "+", a->bytes,
                     PLIM_STR_ARG(a->name), y->kind ? "-" : "+", b->bytes,
                     PLIM_STR_ARG(b->name));
    }
    assert_int_equal(got->n_events, want->n_events);
}

static void test_exports(void **state)
{
    (void)state;
    char config[256], file[256];
    for (size_t i = 0; i < PLIM_COUNT(models); i++)
        for (size_t k = 0; k < PLIM_COUNT(settings) && !models[i].differs; k++) {
            plim_arena a = PLIM_ARENA_INIT;
            plim_tape got, want;
            plim_settings s = settings[k].s;
            s.gpu = "h100";
            snprintf(file, sizeof file, GOLDEN("differential/%s.pt2"), models[i].name);
            run(&a, &want, file, &s);
            snprintf(config, sizeof config, GOLDEN("hf/%s.json"), models[i].name);
            s.batch = BATCH;
            s.seq = SEQ;
            run(&a, &got, config, &s);
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

static const plim_settings *setting_called(const char *name)
{
    for (size_t i = 0; i < PLIM_COUNT(settings); i++)
        if (!strcmp(settings[i].name, name))
            return &settings[i].s;
    fail_msg("no setting '%s'", name);
    return NULL;
}

/* tools/differential ran the same models on a card that does not exist, as they are. */
static void test_dry_runs(void **state)
{
    (void)state;
    char line[256], name[64], setting[64], config[256];
    uint64_t peak, seen = 0;
    FILE *f = fopen(GOLDEN("differential/results.txt"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        size_t i = 0;
        if (sscanf(line, "%63s %63s %" SCNu64, name, setting, &peak) != 3)
            continue;
        while (i < PLIM_COUNT(models) && strcmp(models[i].name, name) != 0)
            i++;
        if (i == PLIM_COUNT(models))
            continue;
        plim_arena a = PLIM_ARENA_INIT;
        plim_tape got;
        plim_settings s = *setting_called(setting);
        s.gpu = "h100";
        s.torch = "2.13";
        s.batch = BATCH;
        s.seq = SEQ;
        snprintf(config, sizeof config, GOLDEN("hf/%s.json"), name);
        run(&a, &got, config, &s);
        double off = ((double)peak_of(&got) - (double)peak) / (double)peak;
        if (off > 0.005 || off < -0.005)
            fail_msg("%s, %s: peak %" PRIu64 ", the dry run's is %" PRIu64, name, setting,
                     peak_of(&got), peak);
        plim_arena_free(&a);
        seen++;
    }
    fclose(f);
    assert_true(seen >= 40);
}

/* ---- names, shapes, totals ----------------------------------------------------------------- */

static plim_status build_text(plim_arena *a, plim_graph *g, plim_str text, plim_err *err)
{
    const plim_binding tiny = {.batch = 1, .seq = 4};
    plim_source s = {{(const uint8_t *)text.p, text.n}, NULL};
    *g = (plim_graph){.arena = a};
    return plim_importer_hf.read(g, &s, &tiny, err);
}

static uint64_t fnv1a(uint64_t h, plim_str s)
{
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 0x100000001b3;
    return h;
}

/* "model.norm.weight 4096\n" of each parameter; a second name of one is no other. */
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
        for (int32_t d = 0; d < v->meta.rank; d++)
            plim_buf_printf(&b, d ? "x%" PRId64 : " %" PRId64, v->meta.dim[d]);
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
    if (plim_file_map(&b, path, &err))
        fail_msg("%s", err.msg);
    plim_str s = plim_arena_str(a, (plim_str){(const char *)b.p, (size_t)b.n});
    plim_file_unmap(&b);
    return s;
}

/* Every name and size, in the order of registration, as transformers has them. */
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

/* totals.txt: what was published of models that people use */
static void test_totals(void **state)
{
    (void)state;
    char line[1024];
    unsigned seen = 0;
    FILE *f = fopen(GOLDEN("hf/totals.txt"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        plim_graph_counts c;
        char *name = strrchr(line, '#'), *json = strchr(line, '{');
        if (line[0] == '#')
            continue;
        plim_str text = {json, (size_t)(name - json)};
        if (build_text(&a, &g, text, &err) || plim_graph_count(&g, &c, &err))
            fail_msg("%s%s", name, err.msg);
        if (c.parameters != strtoull(line, NULL, 10))
            fail_msg("%" PRIu64 " parameters, published are %s", c.parameters, line);
        plim_arena_free(&a);
        seen++;
    }
    fclose(f);
    assert_true(seen >= TOTALS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exports), cmocka_unit_test(test_dry_runs),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_totals)};
    return cmocka_run_group_tests_name("hf", tests, NULL, NULL);
}
