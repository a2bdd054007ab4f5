/* test_advice.c -- the changes that an estimate recommends: each, run on its own, gives the
 * figures that the estimate printed for it. */
#include <stdio.h>
#include <string.h>

#include "asked.h"
#include "base/fmt.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

/* The settings of the words with a change such as "--batch 4 --accumulate 2" on top. */
static plim_settings *changed_settings(const char *words, const char *change)
{
    char text[512], *rest = NULL;
    plim_settings *s = asked_settings(words);
    snprintf(text, sizeof text, "%s", change);
    for (char *key = strtok_r(text, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
        asked_set(s, key, strtok_r(NULL, " ", &rest));
    return s;
}

static void check_change(const char *model, const char *words, const plim_estimate *e,
                         const plim_change *c)
{
    plim_settings *s = changed_settings(words, c->settings);
    plim_estimate *with = asked_estimate_of(model, s);
    if (e->peak_allocated - with->peak_allocated != c->saved_allocated ||
        e->peak_reserved - with->peak_reserved != c->saved_reserved || with->fits != c->fits)
        fail_msg("%s, %s, %s: saves %llu and %llu, not %llu and %llu", model, words,
                 c->settings, (unsigned long long)(e->peak_allocated - with->peak_allocated),
                 (unsigned long long)(e->peak_reserved - with->peak_reserved),
                 (unsigned long long)c->saved_allocated,
                 (unsigned long long)c->saved_reserved);
    plim_estimate_free(with);
    plim_settings_free(s);
}

/* The figures of each change that the text names are in the text. */
static void check_text(const plim_estimate *e)
{
    uint32_t named = 0;
    for (uint32_t i = 0; i < e->n_changes; i++) {
        const char *at = strstr(e->advice, e->changes[i]->settings);
        named += at && strstr(at, plim_fmt_bytes(e->changes[i]->saved_allocated, false).s) &&
                 strstr(at, plim_fmt_bytes(e->changes[i]->saved_reserved, false).s);
    }
    if (named < PLIM_MIN(e->n_changes, 4))
        fail_msg("%u of %u changes are named: %s", named, e->n_changes, e->advice);
    assert_null(strstr(e->advice, "about"));
}

static uint32_t check_estimate(const char *model, const char *words)
{
    plim_estimate *e = asked_estimate(model, words);
    uint32_t n = e->n_changes;
    for (uint32_t i = 0; i < n; i++) {
        check_change(model, words, e, e->changes[i]);
        CHECK(words, e->changes[i]->saved_allocated > 0);
    }
    check_text(e);
    plim_estimate_free(e);
    return n;
}

static uint64_t seed = 20260731;

static uint32_t dice(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static void test_each_change(void **state)
{
    (void)state;
    static const char *const models[] = {
        "resnet18",          "mlp:64,4096,4096,10:relu", "squeezenet1_1",        "vit_b_16",
        DATA "resnet18.pt2", DATA "llama-tiny",          DATA "small_static.pt2"};
    static const char *const optimizers[] = {"sgd",
                                             "sgd,momentum=0.9",
                                             "adamw",
                                             "adam,impl=fused",
                                             "adamw,amsgrad=1,impl=foreach",
                                             "rmsprop",
                                             "adafactor"};
    static const char *const more[] = {"",
                                       "gpu=t4",
                                       "vram=300MiB",
                                       "vram=700MiB torch=1.13",
                                       "dtype=bf16",
                                       "autocast=bf16",
                                       "checkpoint=blocks",
                                       "keep=none vram=1GiB",
                                       "mode=infer",
                                       "loop=trainer",
                                       "workspace=high vram=400MiB"};
    uint32_t n = 0;
    for (uint32_t i = 0; i < 40; i++) {
        char words[256];
        const char *model = models[i % PLIM_COUNT(models)];
        bool fixed = strstr(model, "static");
        const char *extra = more[i % PLIM_COUNT(more)];
        if (strstr(extra, "checkpoint") && (fixed || !strncmp(model, "mlp", 3)))
            continue; /* it has no blocks */
        snprintf(words, sizeof words, "%s optimizer=%s advice=always %s",
                 fixed   ? ""
                 : i % 3 ? "batch=16"
                         : "batch=1",
                 optimizers[dice(PLIM_COUNT(optimizers))], extra);
        n += check_estimate(model, words);
    }
    assert_true(n > 60);
}

/* ---- what is said -------------------------------------------------------------------- */

static void test_texts(void **state)
{
    (void)state;
    static const struct {
        const char *why, *model, *words, *says;
    } rows[] = {
        {"fits", "resnet18", "batch=8 gpu=h100 advice=always", "would lower the peak by"},
        {"fits, and nobody asked", "resnet18", "batch=8 gpu=h100",
         "--advice always simulates"},
        {"a change fits", "resnet50", "batch=256 gpu=t4", "Would fit: --checkpoint blocks"},
        {"only a combination fits", "resnet50", "batch=128 optimizer=adamw vram=4GiB",
         "Would fit: --batch 64 --dtype bf16 ("},
        {"nothing fits", "resnet18", "batch=8 vram=16MiB", "Would not fit either: "},
        {"already in bf16", "resnet18", "mode=infer dtype=bf16 keep=none advice=always",
         "No other setting that would lower it applies."},
        {"tried, in vain", "mlp:7,8,9", "mode=infer batch=2 keep=none advice=always",
         "None of the simulated changes would lower it by 1 % or more: "},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_estimate *e = asked_estimate(rows[i].model, rows[i].words);
        if (!strstr(e->advice, rows[i].says))
            fail_msg("%s: %s", rows[i].why, e->advice);
        plim_estimate_free(e);
    }
}

/* The setting "advice" none simulates nothing and changes no figure. */
static void test_none(void **state)
{
    (void)state;
    plim_estimate *e = asked_estimate("resnet18", "batch=8 advice=always"),
                  *none = asked_estimate("resnet18", "batch=8 advice=none");
    assert_true(e->n_changes > 0);
    assert_int_equal(none->n_changes, 0);
    assert_int_equal(none->peak_reserved, e->peak_reserved);
    assert_true(!strncmp(none->advice, e->advice, strlen(none->advice)));
    assert_null(strstr(none->advice, "--"));
    plim_estimate_free(e);
    plim_estimate_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_change),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
