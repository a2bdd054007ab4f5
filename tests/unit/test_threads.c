/* test_threads.c -- the library has no global state: concurrent calls from several threads
 * return what each would return alone.  `make tsan` checks memory accesses meanwhile. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "asked.h"
#include "scenarios.h"
#include "unit.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

/* Each pair asks about the same model: several threads read one handle. */
static const char *const models[] = {
    "resnet18",          DATA "resnet18.pt2", DATA "llama-7b",
    DATA "vit_b_16.pt2", DATA "llama-tiny", /* whose ranks have threads of their own */
};
static const char *const settings[] = {
    "{'batch':8,'optimizer':'sgd,momentum=0.9','gpu':'rtx4090'}",
    "{'batch':32,'optimizer':'adamw,impl=fused','autocast':'fp16'}",
    "{'batch':4,'torch':'1.13','loop':'tight'}",
    "{'mode':'infer','dtype':'bf16'}",
    "{'seq':128,'checkpoint':'blocks','gpu':'h100'}",
    "{'seq':32,'mode':'infer','dtype':'fp16','gpu':'a100'}",
    "{'batch':2,'ema':'averaged','accumulate':2}",
    "{'batch':1,'optimizer':'lbfgs'}",
    "{'seq':64,'dp':8,'strategy':'zero1','optimizer':'adamw','rank':'all'}",
    "{'seq':32,'dp':3,'tp':2,'strategy':'fsdp2','optimizer':'adamw','rank':'all','gpu':'t4'}",
};
enum { QUESTIONS = PLIM_COUNT(settings) };

/* Shared by all threads. */
static plim_model *model[PLIM_COUNT(models)];
static plim_settings *setting[QUESTIONS];

static int put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

static void write_answer(size_t question, plim_buf *out)
{
    plim_err err = PLIM_ERR_INIT;
    plim_estimate *e = NULL;
    if (plim_estimate_run(model[question / 2], setting[question], &e, &err) ||
        plim_estimate_print(e, PLIM_JSON, NULL, put_buf, out, &err))
        plim_buf_printf(out, "error: %s", err.msg);
    plim_estimate_free(e);
}

/* A thread that makes every call, in sequence from `first` on. */
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
        write_answer(q, &a->answer[q]);
    }
    return NULL;
}

static void open_all(void)
{
    plim_err err = PLIM_ERR_INIT;
    for (size_t i = 0; i < PLIM_COUNT(models); i++)
        assert_int_equal(plim_model_open(models[i], &model[i], &err), PLIM_OK);
    for (size_t i = 0; i < QUESTIONS; i++) {
        char json[128];
        snprintf(json, sizeof json, "%s", settings[i]);
        for (char *p = json; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        if (plim_settings_new(&setting[i], &err) ||
            plim_settings_set_json(setting[i], json, strlen(json), &err))
            fail_msg("%s: %s", json, err.msg);
    }
}

static void close_all(void)
{
    for (size_t i = 0; i < PLIM_COUNT(models); i++)
        plim_model_free(model[i]);
    for (size_t i = 0; i < QUESTIONS; i++)
        plim_settings_free(setting[i]);
}

static void test_eight(void **state)
{
    (void)state;
    static asker alone, together[8];
    open_all();
    ask_all(&alone);
    for (size_t i = 0; i < PLIM_COUNT(together); i++) {
        together[i].first = i;
        assert_int_equal(pthread_create(&together[i].thread, NULL, ask_all, &together[i]), 0);
    }
    for (size_t i = 0; i < PLIM_COUNT(together); i++)
        pthread_join(together[i].thread, NULL);
    for (size_t q = 0; q < QUESTIONS; q++) {
        plim_str want = plim_buf_str(&alone.answer[q]);
        CHECK(settings[q], want.n > 1000 && !plim_str_starts(want, "error"));
        for (size_t i = 0; i < PLIM_COUNT(together); i++)
            CHECK(settings[q], plim_str_eq(plim_buf_str(&together[i].answer[q]), want));
    }
    for (size_t i = 0; i < PLIM_COUNT(together); i++)
        plim_arena_free(&together[i].arena);
    plim_arena_free(&alone.arena);
    close_all();
}

/* A thread that asks each scenario with handles of its own, from `first` on. */
typedef struct player {
    pthread_t thread;
    size_t first, n;
    answer *got;
} player;

static const scenario *scenario_at(size_t i)
{
    return i < n_scenarios ? &scenarios[i] : &families[i - n_scenarios];
}

static void *play_all(void *ud)
{
    player *p = ud;
    for (size_t i = 0; i < p->n; i++) {
        size_t at = (p->first + i) % p->n;
        ask_scenario(scenario_at(at), 0, &p->got[at]);
    }
    return NULL;
}

static void test_scenarios(void **state)
{
    (void)state;
    static player alone, together[8];
    size_t n = n_scenarios + n_families;
    uint64_t before = plim_memory_held();
    alone = (player){.n = n, .got = calloc(n, sizeof *alone.got)};
    play_all(&alone);
    for (size_t i = 0; i < PLIM_COUNT(together); i++) {
        together[i] = (player){.first = i * 11, .n = n, .got = calloc(n, sizeof *alone.got)};
        assert_int_equal(pthread_create(&together[i].thread, NULL, play_all, &together[i]), 0);
    }
    for (size_t i = 0; i < PLIM_COUNT(together); i++)
        pthread_join(together[i].thread, NULL);
    for (size_t k = 0; k < n; k++) {
        plim_str want = plim_buf_str(&alone.got[k].text);
        CHECK(scenario_at(k)->model, alone.got[k].st == PLIM_OK && want.n);
        for (size_t i = 0; i < PLIM_COUNT(together); i++) {
            CHECK(scenario_at(k)->model,
                  plim_str_eq(plim_buf_str(&together[i].got[k].text), want));
            plim_arena_free(&together[i].got[k].arena);
        }
        plim_arena_free(&alone.got[k].arena);
    }
    for (size_t i = 0; i < PLIM_COUNT(together); i++)
        free(together[i].got);
    free(alone.got);
    CHECK("nothing is left behind", plim_memory_held() == before);
}

static plim_fit *fit_cards(const plim_model *m, plim_settings *s, const char *gpu)
{
    plim_fit *f = NULL;
    plim_err err = PLIM_ERR_INIT;
    asked_set(s, "gpu", gpu);
    if (plim_fit_run(m, s, &f, &err))
        fail_msg("%s", err.msg);
    return f;
}

/* A call shares a long list of cards among threads of its own: each row is as without them. */
static void test_cards(void **state)
{
    (void)state;
    uint64_t before = plim_memory_held();
    plim_model *m = asked_model("mlp:4096,4096,4096,10:relu");
    plim_settings *s = asked_settings("optimizer=adam");
    plim_fit *all = fit_cards(m, s, "all");
    CHECK("a long list", all->n_cards > 64);
    for (uint32_t i = 0; i < all->n_cards; i += 16) {
        const plim_fit_row *row = all->cards[i];
        plim_fit *one = fit_cards(m, s, row->gpu);
        CHECK(row->gpu, one->cards[0]->batch == row->batch &&
                            one->cards[0]->batch_usual == row->batch_usual &&
                            one->cards[0]->needed_high == row->needed_high);
        plim_fit_free(one);
    }
    plim_fit_free(all);
    plim_settings_free(s);
    plim_model_free(m);
    CHECK("nothing is left behind", plim_memory_held() == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_eight),
                                       cmocka_unit_test(test_scenarios),
                                       cmocka_unit_test(test_cards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
