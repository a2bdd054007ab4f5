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
static const char *const exported[] = {"llama", "mistral", "mistral_window", "qwen2",
                                       "qwen3", "gemma",   "gemma2",         "gemma3_text"};

static const struct {
    const char *why;
    plim_settings s;
} settings[] = {
    {"sgd", {.optimizer = "sgd"}},
    {"adamw", {.optimizer = "adamw"}},
    {"bf16 autocast", {.optimizer = "adamw", .autocast = "bf16"}},
    {"blocks checkpointed", {.optimizer = "sgd", .checkpoint = "blocks"}},
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

static void same_events(const char *name, const char *why, const plim_tape *got,
                        const plim_tape *want)
{
    for (uint32_t i = 0; i < PLIM_MIN(got->n_events, want->n_events); i++) {
        const plim_event *x = &got->events[i], *y = &want->events[i];
        const plim_storage *a = &got->storages[x->id], *b = &want->storages[y->id];
        if (x->kind != y->kind || x->id != y->id || a->bytes != b->bytes)
            fail_msg("%s, %s: event %u is %s %" PRIu64 " of '" PLIM_STR_FMT
                     "', the export has %s %" PRIu64 " of '" PLIM_STR_FMT "'",
                     name, why, (unsigned)i, x->kind ? "-" : "+", a->bytes,
                     PLIM_STR_ARG(a->name), y->kind ? "-" : "+", b->bytes,
                     PLIM_STR_ARG(b->name));
    }
    assert_int_equal(got->n_events, want->n_events);
}

static void test_exports(void **state)
{
    (void)state;
    char config[256], file[256];
    for (size_t i = 0; i < PLIM_COUNT(exported); i++)
        for (size_t k = 0; k < PLIM_COUNT(settings); k++) {
            plim_arena a = PLIM_ARENA_INIT;
            plim_tape got, want;
            plim_settings s = settings[k].s;
            s.gpu = "h100";
            snprintf(file, sizeof file, GOLDEN("differential/%s.pt2"), exported[i]);
            run(&a, &want, file, &s);
            snprintf(config, sizeof config, GOLDEN("hf/%s.json"), exported[i]);
            s.batch = 16;
            s.seq = 128;
            run(&a, &got, config, &s);
            same_events(exported[i], settings[k].why, &got, &want);
            plim_arena_free(&a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exports)};
    return cmocka_run_group_tests_name("hf", tests, NULL, NULL);
}
