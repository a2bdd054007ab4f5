/* test_step.c -- the training loop: its events, one by one, against a listing worked out by
 * hand; its peaks with other optimizers and settings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asked.h"

#define MLP "mlp:1024,4096,4096,1000:relu"

typedef struct traced {
    plim_arena arena;
    plim_graph g;
    plim_tape tape;
} traced;

static void trace(traced *t, const char *model, const char *words)
{
    *t = (traced){.arena = PLIM_ARENA_INIT};
    asked_tape(model, words, &t->arena, &t->g, &t->tape, NULL);
    const char *bad = plim_tape_check(&t->tape);
    if (bad)
        fail_msg("%s: %s", model, bad);
}

/* ---- the listing ------------------------------------------------------------------ */

static void test_listing(void **state)
{
    (void)state;
    traced t;
    trace(&t, MLP, "batch=256 optimizer=adam workspace=off");
    FILE *f = fopen(PLIM_SOURCE_DIR "/tests/cases/step/mlp4096_adam.txt", "r");
    assert_non_null(f);
    char line[160], phase[32], who[32];
    long long delta, live, now = 0;
    uint32_t mark = 0, lines = 0;
    for (uint32_t i = 0; i < t.tape.n_events; i++) {
        const plim_event *e = &t.tape.events[i];
        while (mark + 1 < t.tape.n_marks && t.tape.marks[mark + 1].first <= i)
            mark++;
        const plim_mark *m = &t.tape.marks[mark];
        long long bytes = (long long)t.tape.storages[e->id].bytes;
        now += e->kind == PLIM_EVENT_ALLOC ? bytes : -bytes;
        if (m->step != 1)
            continue;
        do {
            if (!fgets(line, sizeof line, f))
                fail_msg("event %u: the listing ends here", (unsigned)i);
        } while (line[0] == '#');
        lines++;
        assert_int_equal(sscanf(line, "%31s %31s %lld %lld", phase, who, &delta, &live), 4);
        if (strcmp(phase, plim_phase_name((plim_phase)m->phase)) || live != now ||
            delta != (e->kind == PLIM_EVENT_ALLOC ? bytes : -bytes))
            fail_msg("line %u, '%s %s': wanted %+lld (%lld), got %s %+lld (%lld)", lines,
                     phase, who, delta, live, plim_phase_name((plim_phase)m->phase),
                     e->kind == PLIM_EVENT_ALLOC ? bytes : -bytes, now);
    }
    CHECK("nothing is left in the listing", !fgets(line, sizeof line, f));
    assert_int_equal(lines, 58);
    fclose(f);
    plim_arena_free(&t.arena);
}

/* ---- peaks --------------------------------------------------------------------------- */

static uint64_t peak_requested(const char *model, const char *words)
{
    plim_estimate *e = asked_estimate(model, words);
    uint64_t peak = e->peak_requested;
    plim_estimate_free(e);
    return peak;
}

/* P parameters, x and y, out and loss; each optimizer's share beyond 2P. */
static void test_optimizers(void **state)
{
    (void)state;
    enum { P = 100306848, REST = 1048576 + 2048 + 1024000 + 4, BIG = 67108864 };
    static const struct {
        const char *words;
        uint64_t peak;
    } rows[] = {
        {"optimizer=adam", 5 * P + REST},
        {"optimizer=adamw", 5 * P + REST},
        {"optimizer=adam", 503608868},
        {"optimizer=adamw", 503608868},
        {"optimizer=sgd", 206882632},
        {"optimizer=sgd,momentum=0.9", 307189480},
        {"optimizer=adagrad", 5 * P + REST}, /* state P, two lists of temporaries P each */
        /* one parameter at a time: the largest one's root and denominator, and the previous
         * one's denominator */
        {"optimizer=adam,impl=forloop", 4 * P + REST + 2 * BIG + 16384},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        char words[80];
        snprintf(words, sizeof words, "batch=256 workspace=off %s", rows[i].words);
        CHECK(words, peak_requested(MLP, words) == rows[i].peak);
    }
}

/* Before 2.0 zero_grad() zeroes in place: gradients are never freed. */
static void test_old_torch_keeps_gradients(void **state)
{
    (void)state;
    CHECK("1.13 needs more",
          peak_requested(MLP, "batch=256 optimizer=sgd workspace=off torch=1.13") >
              peak_requested(MLP, "batch=256 optimizer=sgd workspace=off"));
}

static void test_tight_loop_needs_no_more(void **state)
{
    (void)state;
    static const char *const models[] = {MLP, "resnet18", "mobilenet_v2"};
    for (size_t i = 0; i < PLIM_COUNT(models); i++)
        CHECK(models[i],
              peak_requested(models[i], "batch=4 optimizer=adam workspace=off loop=tight") <=
                  peak_requested(models[i], "batch=4 optimizer=adam workspace=off"));
}

/* After the run everything except what the loop holds has been freed: the live bytes at the
 * end are those after any later step. */
static void test_steps_do_not_leak(void **state)
{
    (void)state;
    static const char *const models[] = {MLP, "resnet18", "vgg11", "densenet121", "unet"};
    for (size_t i = 0; i < PLIM_COUNT(models); i++) {
        long long end[2];
        for (int more = 0; more < 2; more++) {
            traced t;
            trace(&t, models[i],
                  more ? "batch=2 steps=3 optimizer=adam" : "batch=2 steps=2 optimizer=adam");
            end[more] = 0;
            for (uint32_t k = 0; k < t.tape.n_events; k++) {
                const plim_event *e = &t.tape.events[k];
                long long bytes = (long long)t.tape.storages[e->id].bytes;
                end[more] += e->kind == PLIM_EVENT_ALLOC ? bytes : -bytes;
            }
            plim_arena_free(&t.arena);
        }
        CHECK(models[i], end[0] == end[1]);
    }
}

static void test_inference_keeps_nothing(void **state)
{
    (void)state;
    /* conv in and out at once, nothing saved: far below training */
    uint64_t infer = peak_requested("vgg16", "batch=8 mode=infer workspace=off");
    /* parameters; two results of the first block; x */
    uint64_t P = 138357544ull * 4, y = 8ull * 64 * 224 * 224 * 4, x = 8ull * 3 * 224 * 224 * 4;
    assert_int_equal(infer, P + 2 * y + x + 8 * 1000 * 4);
    CHECK("training takes more", peak_requested("vgg16", "batch=8 workspace=off") > 2 * infer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_old_torch_keeps_gradients),
        cmocka_unit_test(test_tight_loop_needs_no_more),
        cmocka_unit_test(test_steps_do_not_leak),
        cmocka_unit_test(test_inference_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
