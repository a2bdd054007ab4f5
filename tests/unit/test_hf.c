/* test_hf.c -- models from a config.json: event by event against the export of the same
 * model, names and shapes against transformers, totals against published ones. */
#include <stdio.h>

#include "base/fmt.h"
#include "fit/job.h"
#include "import/hf.h"
#include "unit.h"

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
};

enum { BATCH = 16, SEQ = 128 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exports),
                                       cmocka_unit_test(test_dry_runs)};
    return cmocka_run_group_tests_name("hf", tests, NULL, NULL);
}
