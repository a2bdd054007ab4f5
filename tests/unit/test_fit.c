/* test_fit.c -- for whatever fit returns, B fits by estimate and B + 1 does not. */
#include <stdio.h>
#include <string.h>

#include "asked.h"

static uint64_t seed = 0x9e3779b97f4a7c15u;
static uint32_t dice(uint32_t n)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)((seed >> 32) % n);
}
#define PICK(table) (table)[dice(PLIM_COUNT(table))]

/* The estimate that a row summarizes. */
static plim_estimate *estimate_on(const char *model, const plim_settings *s, const char *gpu,
                                  int64_t batch)
{
    plim_settings *one = NULL;
    char text[32];
    assert_int_equal(plim_settings_copy(s, &one, NULL), PLIM_OK);
    snprintf(text, sizeof text, "%lld", (long long)batch);
    asked_set(one, "gpu", gpu);
    asked_set(one, "batch", text);
    plim_estimate *e = asked_estimate_of(model, one);
    plim_settings_free(one);
    return e;
}

static plim_fits fits(const char *model, const plim_settings *s, const char *gpu,
                      int64_t batch)
{
    plim_estimate *e = estimate_on(model, s, gpu, batch);
    plim_fits f = e->fits;
    plim_estimate_free(e);
    return f;
}

/* Opens, searches and closes. */
static plim_status fit(const char *model, const plim_settings *s, plim_fit **out,
                       plim_err *err)
{
    plim_model *m = asked_model(model);
    plim_status st = plim_fit_run(m, s, out, err);
    plim_model_free(m);
    return st;
}

static void check_row(const char *model, const plim_settings *s, const plim_fit_row *r)
{
    if (r->batch && r->context_known && fits(model, s, r->gpu, r->batch) != PLIM_FITS_YES)
        fail_msg("%s: batch %lld does not fit %s", model, (long long)r->batch, r->gpu);
    if (!r->limited && fits(model, s, r->gpu, r->batch + 1) == PLIM_FITS_YES)
        fail_msg("%s: batch %lld fits %s too", model, (long long)r->batch + 1, r->gpu);
    CHECK(model, !r->batch || r->device_high <= r->gpu_bytes);
    CHECK(model, r->device_low <= r->device_high);
}

static void test_property(void **state)
{
    (void)state;
    static const char *const models[] = {"resnet18",     "alexnet",
                                         "mobilenet_v2", "squeezenet1_1",
                                         "vgg11",        "mlp:1024,4096,4096,1000:relu",
                                         "lenet5",       "vit_b_16"};
    static const char *const optimizers[] = {"sgd", "sgd,momentum=0.9", "adam",
                                             "adam,impl=fused", "rmsprop"};
    static const char *const torches[] = {NULL, "1.13", "2.1", "2.8"};
    static const char *const workspaces[] = {NULL, "off", "high"};
    static const char *const confs[] = {NULL, NULL, "expandable_segments:True",
                                        "max_split_size_mb:128",
                                        "garbage_collection_threshold:0.8"};
    for (int round = 0; round < 24; round++) {
        plim_settings *s = asked_settings(NULL);
        asked_set(s, "optimizer", PICK(optimizers));
        asked_set(s, "torch", PICK(torches));
        asked_set(s, "workspace", PICK(workspaces));
        asked_set(s, "mode", dice(4) == 0 ? "infer" : NULL);
        const char *model = PICK(models), *conf = PICK(confs);
        const char *torch = plim_settings_get(s, "torch");
        if (!torch || strcmp(torch, "1.13") != 0)
            asked_set(s, "alloc_conf", conf);
        plim_gpu_info gpu = PLIM_GPU_INFO_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_fit *f = NULL;
        plim_gpu_info_at(dice(plim_registry_count(PLIM_REG_GPUS)), &gpu);
        asked_set(s, "gpu", gpu.name);
        if (fit(model, s, &f, &err))
            fail_msg("%s on %s: %s", model, gpu.name, err.msg);
        assert_int_equal(f->n_cards, 1);
        check_row(model, s, f->cards[0]);
        plim_fit_free(f);
        plim_settings_free(s);
    }
}

static void check_alone(const char *model, plim_settings *s, const plim_fit_row *r)
{
    plim_fit *f = NULL;
    asked_set(s, "gpu", r->gpu);
    assert_int_equal(fit(model, s, &f, NULL), PLIM_OK);
    const plim_fit_row *own = f->cards[0];
    assert_string_equal(own->gpu, r->gpu);
    CHECK(r->gpu, own->batch == r->batch && own->batch_usual == r->batch_usual &&
                      own->seq == r->seq && own->seq_usual == r->seq_usual &&
                      own->fits == r->fits && own->limited == r->limited);
    CHECK(r->gpu, own->reserved == r->reserved && own->reserved_low == r->reserved_low &&
                      own->reserved_high == r->reserved_high &&
                      own->device_low == r->device_low && own->device_high == r->device_high &&
                      own->needed_low == r->needed_low && own->needed_high == r->needed_high);
    CHECK(r->gpu, !(own->samples_per_s < r->samples_per_s) &&
                      !(own->samples_per_s > r->samples_per_s));
    plim_fit_free(f);
}

/* No row depends on the others, nor on the threads that share them: each is that of its card alone. */
static void test_alone(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"resnet18", "optimizer=sgd,momentum=0.9"},
        {"smollm2-135m", "find=seq dtype=bf16 mode=infer"},
        {"lenet5", "optimizer=adam autocast=fp16 workspace=high"},
    };
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        plim_settings *s = asked_settings(cases[i][1]);
        plim_fit *all = NULL;
        assert_int_equal(fit(cases[i][0], s, &all, NULL), PLIM_OK);
        assert_int_equal(all->n_cards, plim_registry_count(PLIM_REG_GPUS));
        for (uint32_t k = (uint32_t)i; k < all->n_cards; k += 19)
            check_alone(cases[i][0], s, all->cards[k]);
        plim_fit_free(all);
        plim_settings_free(s);
    }
}

static int stop_later(void *ud, uint32_t done, uint32_t total, const char *what)
{
    uint32_t *left = ud;
    (void)what;
    CHECK("a part of all", done < total);
    return !--*left;
}

/* A long list ends where it is told to. */
static void test_canceled(void **state)
{
    (void)state;
    for (uint32_t calls = 1; calls <= 7; calls += 3) {
        plim_settings *s = asked_settings("optimizer=adam");
        plim_err err = PLIM_ERR_INIT;
        plim_fit *f = NULL;
        uint32_t left = calls;
        plim_settings_on_progress(s, stop_later, &left);
        assert_int_equal(fit("mlp:64,64,10:relu", s, &f, &err), PLIM_ECANCELED);
        assert_int_equal(left, 0);
        assert_null(f);
        CHECK("it says where", strstr(err.msg, "canceled at"));
        plim_settings_free(s);
    }
}

/* What is cached from card to card does not change a result; no card means all. */
static void test_all_is_each(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("optimizer=sgd,momentum=0.9");
    plim_err err = PLIM_ERR_INIT;
    plim_fit *all = NULL, *named = NULL;
    if (fit("resnet18", s, &all, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(all->n_cards, plim_registry_count(PLIM_REG_GPUS));
    asked_set(s, "gpu", "all");
    if (fit("resnet18", s, &named, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(named->n_cards, all->n_cards);
    for (uint32_t i = 0; i < all->n_cards; i++) {
        assert_string_equal(named->cards[i]->gpu, all->cards[i]->gpu);
        assert_int_equal(named->cards[i]->batch, all->cards[i]->batch);
    }
    plim_fit_free(named);
    for (uint32_t i = 0; i < all->n_cards; i++) {
        const plim_fit_row *r = all->cards[i];
        CHECK(r->gpu, r->batch || r->gpu_bytes < 2ull << 30);
        if (i % 16 == 0)
            check_row("resnet18", s, r);
    }
    plim_fit_free(all);
    plim_settings_free(s);
}

static void test_own_card(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("vram=6GiB");
    plim_fit *f = NULL;
    assert_int_equal(fit("resnet18", s, &f, NULL), PLIM_OK);
    assert_int_equal(f->n_cards, 1);
    CHECK("its size is ours", f->cards[0]->gpu_bytes == 6ull << 30 && f->cards[0]->gpu_exact);
    CHECK("something fits", f->cards[0]->batch > 1);
    plim_fit_free(f);
    asked_set(s, "vram", "2MiB");
    f = NULL;
    assert_int_equal(fit("resnet18", s, &f, NULL), PLIM_OK);
    assert_int_equal(f->cards[0]->batch, 0);
    plim_fit_free(f);
    plim_settings_free(s);
}

static void test_refusals(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("gpu=rtx4090,nope");
    plim_err err = PLIM_ERR_INIT;
    plim_fit *f = NULL;
    assert_int_equal(fit("resnet18", s, &f, &err), PLIM_EUSAGE);
    CHECK("it names the card", strstr(err.msg, "nope"));
    err.code = PLIM_OK;
    asked_set(s, "gpu", "rtx4090");
    asked_set(s, "vram", "6GiB");
    asked_set(s, "gpu", "rtx4090,t4");
    assert_int_equal(fit("resnet18", s, &f, &err), PLIM_EUSAGE);
    assert_string_equal(err.msg, "one memory size is given for 2 cards");
    assert_null(f);
    plim_settings_free(s);
}

/* With --vram, a card is the named one with that much memory: its context and its speed. */
static void test_part_of_card(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("gpu=a100-40gb vram=8GiB");
    plim_fit *f = NULL;
    assert_int_equal(fit("resnet18", s, &f, NULL), PLIM_OK);
    const plim_fit_row *r = f->cards[0];
    plim_estimate *e = estimate_on("resnet18", s, "a100-40gb", r->batch);
    assert_int_equal(f->n_cards, 1);
    CHECK("the name", strstr(r->gpu, "A100"));
    CHECK("the size", r->gpu_bytes == 8ull << 30 && e->gpu_bytes == r->gpu_bytes);
    CHECK("the context", e->context == 530ull << 20);
    CHECK("the same figures", r->device_high == e->device_high && r->samples_per_s > 0);
    plim_estimate_free(e);
    plim_fit_free(f);
    plim_settings_free(s);
}

/* A memory fraction is of the card's memory; what fits keeps within it, and the margin does, too. */
static void test_fraction(void **state)
{
    (void)state;
    plim_settings *s =
        asked_settings("gpu=a100-40gb alloc_conf=per_process_memory_fraction:0.25");
    plim_fit *f = NULL;
    assert_int_equal(fit("resnet18", s, &f, NULL), PLIM_OK);
    const plim_fit_row *r = f->cards[0];
    const uint64_t allowed = r->gpu_bytes / 4;
    CHECK("within", r->reserved_high <= allowed && r->reserved_high > allowed * 9 / 10);
    CHECK("headroom", r->headroom <= allowed / 20);
    CHECK("the margin", r->batch_margin < r->batch && r->batch_margin >= r->batch * 9 / 10);
    plim_estimate *e = estimate_on("resnet18", s, "a100-40gb", r->batch_margin);
    CHECK("it is kept", e->fits == PLIM_FITS_YES && e->margin_kept);
    plim_estimate_free(e);
    e = estimate_on("resnet18", s, "a100-40gb", r->batch * 2);
    CHECK("it does not fit", e->fits == PLIM_FITS_NO && e->reserved_low > allowed);
    CHECK("the card has room", e->device_high < e->gpu_bytes);
    plim_estimate_free(e);
    plim_fit_free(f);
    plim_settings_free(s);
}

/* memory = model + batch x sample: where activations dominate, the line is exact up to the
 * reduction scratch that depends on the batch. */
static void test_explain(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("optimizer=sgd workspace=off");
    plim_model *m = asked_model("vgg16");
    plim_batches *b = NULL;
    assert_int_equal(plim_batches_run(m, s, &b, NULL), PLIM_OK);
    assert_int_equal(b->batches[0]->batch, 1);
    assert_int_equal(b->batches[b->n_batches - 1]->batch, 64);
    CHECK("the line goes through the last",
          b->batches[b->n_batches - 1]->line == b->batches[b->n_batches - 1]->peak_requested);
    for (uint32_t i = b->n_batches - 3; i < b->n_batches; i++)
        CHECK("a straight line", b->batches[i]->line == b->batches[i]->peak_requested);
    CHECK("the model itself", b->fixed >= 138357544ull * 4);
    plim_batches_free(b);
    plim_settings_free(s);
    plim_model_free(m);
}

/* Two sources of a speed: equal, or unknown in both. */
static bool same_speed(double a, const plim_step_time *t)
{
    double b = t->unknown ? 0 : t->samples_per_s;
    return a <= b && b <= a;
}

/* Cards of equal memory share a search, not a speed. */
static void test_speed(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("accumulate=2");
    plim_fit *f = NULL;
    int known = 0;
    assert_int_equal(fit("resnet18", s, &f, NULL), PLIM_OK);
    for (uint32_t i = 0; i < f->n_cards; i += 5) {
        const plim_fit_row *r = f->cards[i];
        if (!r->batch)
            continue;
        plim_estimate *e = estimate_on("resnet18", s, r->gpu, r->batch);
        CHECK(r->gpu, same_speed(r->samples_per_s, &e->time));
        known += r->samples_per_s > 0;
        plim_estimate_free(e);
    }
    CHECK("most are known", known > 20);
    plim_fit_free(f);
    plim_settings_free(s);
}

/* A row of cards is the estimate on that card. */
static void test_cards(void **state)
{
    (void)state;
    const char *const model = "resnet18";
    plim_settings *s = asked_settings("optimizer=adamw batch=160");
    plim_model *m = asked_model(model);
    plim_cards *c = NULL;
    bool seen[3] = {false};
    assert_int_equal(plim_cards_run(m, s, &c, NULL), PLIM_OK);
    assert_int_equal(c->n_cards, plim_registry_count(PLIM_REG_GPUS));
    for (uint32_t i = 0; i < c->n_cards; i++) {
        const plim_card_row *r = c->cards[i];
        seen[r->fits + 1] = true;
        if (i % 3)
            continue;
        plim_estimate *e = estimate_on(model, s, r->gpu, 160);
        assert_int_equal(r->fits, e->fits);
        assert_int_equal(r->gpu_bytes, e->gpu_bytes);
        assert_int_equal(r->device_low, e->device_low);
        assert_int_equal(r->device, e->device);
        assert_int_equal(r->device_high, e->device_high);
        assert_int_equal(r->needed_low, e->needed_low);
        assert_int_equal(r->needed_high, e->needed_high);
        CHECK(r->gpu, same_speed(r->time.unknown ? 0 : r->time.samples_per_s, &e->time));
        plim_estimate_free(e);
    }
    CHECK("some fit, some may, some do not", seen[0] && seen[1] && seen[2]);
    plim_cards_free(c);
    asked_set(s, "gpu", "t4,nope");
    c = NULL;
    assert_int_equal(plim_cards_run(m, s, &c, NULL), PLIM_EUSAGE);
    assert_null(c);
    plim_model_free(m);
    plim_settings_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_property),     cmocka_unit_test(test_all_is_each),
        cmocka_unit_test(test_alone),        cmocka_unit_test(test_canceled),
        cmocka_unit_test(test_own_card),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_part_of_card), cmocka_unit_test(test_fraction),
        cmocka_unit_test(test_explain),      cmocka_unit_test(test_speed),
        cmocka_unit_test(test_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
