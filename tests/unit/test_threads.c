/* test_threads.c -- the library has no state of its own: what several threads ask at the
 * same time is answered as if each were alone.  `make tsan` watches the memory meanwhile. */
#include <pthread.h>

#include "asked.h"
#include "base/fmt.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

/* A model and what is asked of it.  Those that stand here twice share one handle. */
typedef struct question {
    const char *model, *settings;
    plim_model *handle; /* the threads', and that of the questions with the same model */
} question;

static question questions[] = {
    {DATA "resnet18.pt2", "batch=4 torch=1.13 loop=tight", NULL},
    {DATA "resnet18.pt2", "mode=infer dtype=bf16", NULL},
    {DATA "resnet18.pt2", "batch=8 optimizer=sgd,momentum=0.9 gpu=rtx4090", NULL},
    {"resnet18", "batch=32 optimizer=adamw,impl=fused autocast=fp16", NULL},
    {DATA "llama-tiny", "seq=64 optimizer=adamw,lr=1e-3", NULL},
    {DATA "llama-7b", "seq=128 checkpoint=blocks gpu=h100", NULL},
    {DATA "llama-7b", "seq=32 mode=infer dtype=fp16 gpu=a100", NULL},
    {DATA "vit_b_16.pt2", "batch=2 ema=averaged accumulate=2", NULL},
};
enum { QUESTIONS = PLIM_COUNT(questions) };

static void open_models(void)
{
    for (size_t i = 0; i < QUESTIONS; i++) {
        bool again = i && !strcmp(questions[i].model, questions[i - 1].model);
        questions[i].handle =
            again ? questions[i - 1].handle : asked_model(questions[i].model);
    }
}

static void close_models(void)
{
    for (size_t i = 0; i < QUESTIONS; i++)
        if (i + 1 == QUESTIONS || questions[i].handle != questions[i + 1].handle)
            plim_model_free(questions[i].handle);
}

static int put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

static void write_answer(const question *q, plim_buf *out)
{
    plim_err err = PLIM_ERR_INIT;
    plim_settings *s = asked_settings(q->settings);
    plim_estimate *e = NULL;
    if (plim_estimate_run(q->handle, s, &e, &err) || plim_estimate_json(e, put_buf, out, &err))
        plim_buf_printf(out, "error: %s", err.msg);
    plim_estimate_free(e);
    plim_settings_free(s);
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
    open_models();
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
    close_models();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_eight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
