/* test_threads.c -- the library has no state of its own: what several threads ask at the
 * same time is answered as if each were alone.  `make tsan` watches the memory meanwhile. */
#include <pthread.h>

#include "base/fmt.h"
#include "unit.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

/* A model and what is asked of it.  Some models stand here twice: one file is then read
 * by several threads. */
typedef struct question {
    const char *model;
    plim_settings settings;
} question;

static const question questions[] = {
    {"resnet18", {.batch = 8, .optimizer = "sgd,momentum=0.9", .gpu = "rtx4090"}},
    {"resnet18", {.batch = 32, .optimizer = "adamw,impl=fused", .autocast = "fp16"}},
    {DATA "resnet18.pt2", {.batch = 4, .torch = "1.13", .loop = "tight"}},
    {DATA "resnet18.pt2", {.infer = true, .dtype = "bf16"}},
    {DATA "llama-tiny", {.seq = 64, .optimizer = "adamw,lr=1e-3"}},
    {DATA "llama-7b", {.seq = 128, .checkpoint = "blocks", .gpu = "h100"}},
    {DATA "llama-7b", {.seq = 32, .infer = true, .dtype = "fp16", .gpu = "a100"}},
    {DATA "vit_b_16.pt2", {.batch = 2, .ema = "averaged", .accumulate = 2}},
};
enum { QUESTIONS = PLIM_COUNT(questions) };

static void put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
}

static void write_answer(const question *q, plim_buf *out)
{
    plim_err err = PLIM_ERR_INIT;
    plim_style style = PLIM_STYLE_INIT;
    plim_estimate *e = NULL;
    if (plim_estimate_run(q->model, &q->settings, &e, &err) ||
        plim_estimate_print(e, PLIM_JSON, &style, put_buf, out, &err))
        plim_buf_printf(out, "error: %s", err.msg);
    plim_estimate_free(e);
}

/* A thread that asks everything, one thing after the other from `first` on. */
typedef struct asker {
    pthread_t thread;
    size_t first;
    plim_arena arena;
    plim_buf answer[QUESTIONS];
} asker;

static void *ask_all(void *ud)
{
    asker *a = ud;
    for (size_t i = 0; i < QUESTIONS; i++) {
        size_t q = (a->first + i) % QUESTIONS;
        plim_buf_init(&a->answer[q], &a->arena);
        write_answer(&questions[q], &a->answer[q]);
    }
    return NULL;
}

static void test_eight(void **state)
{
    (void)state;
    static asker alone, together[8];
    ask_all(&alone);
    for (size_t i = 0; i < PLIM_COUNT(together); i++) {
        together[i].first = i;
        assert_int_equal(pthread_create(&together[i].thread, NULL, ask_all, &together[i]), 0);
    }
    for (size_t i = 0; i < PLIM_COUNT(together); i++)
        pthread_join(together[i].thread, NULL);
    for (size_t q = 0; q < QUESTIONS; q++) {
        plim_str want = plim_buf_str(&alone.answer[q]);
        CHECK(questions[q].model, want.n > 1000 && !plim_str_starts(want, "error"));
        for (size_t i = 0; i < PLIM_COUNT(together); i++)
            CHECK(questions[q].model, plim_str_eq(plim_buf_str(&together[i].answer[q]), want));
    }
    for (size_t i = 0; i < PLIM_COUNT(together); i++)
        plim_arena_free(&together[i].arena);
    plim_arena_free(&alone.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_eight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
