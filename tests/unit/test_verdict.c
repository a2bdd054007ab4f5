/* test_verdict.c -- estimate and fit say the same of the same run, and what they say does not
 * contradict itself, whatever the model, the settings and the card. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "asked.h"

static uint64_t seed = 0x2545f4914f6cdd1du;
static uint32_t dice(uint32_t n)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)((seed >> 32) % n);
}
#define PICK(table) (table)[dice(PLIM_COUNT(table))]

/* "MODEL, batch N on CARD": the reason of a check. */
static char why[256];

static void check_figures(const plim_estimate *e)
{
    CHECK(why, e->peak_requested <= e->peak_allocated);
    CHECK(why, e->peak_allocated <= e->peak_reserved);
    CHECK(why, e->reserved_low <= e->peak_reserved && e->peak_reserved <= e->reserved_high);
    CHECK(why, e->context_low <= e->context_high);
    CHECK(why, e->device_low == e->reserved_low + e->context_low);
    CHECK(why, e->device_high == e->reserved_high + e->context_high + e->search);
    CHECK(why, e->margin == e->reserved_high / 20);
    CHECK(why, !e->margin_kept || e->fits == PLIM_FITS_YES);
    CHECK(why, e->margin_kept || e->fits != PLIM_FITS_YES || e->headroom < e->margin);
    CHECK(why, e->fits != PLIM_FITS_YES || e->headroom == e->gpu_bytes - e->needed_high);
    CHECK(why, e->device == (e->context_known ? e->peak_reserved + e->context : e->device));
    CHECK(why, e->device_low <= e->device && e->device <= e->device_high);
    CHECK(why, e->needed_low <= e->needed_high);
    CHECK(why, e->needed_low <= e->device_low && e->needed_high <= e->device_high);
    CHECK(why, e->needed_high >=
                   (e->fits == PLIM_FITS_NO_CARD ? 0 : e->peak_allocated + e->context_high));
}

static int put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

/* "KEY" as the two outputs write it: a line, and a member of a JSON object. */
static void check_line(const char *quiet, const char *json, const char *line, const char *key,
                       uint64_t n, bool known)
{
    char text[96], member[96];
    snprintf(text, sizeof text, known ? "\n%s %" PRIu64 "\n" : "\n%s unknown\n", line, n);
    snprintf(member, sizeof member, known ? "\"%s\":%" PRIu64 : "\"%s\":null", key, n);
    if (!strstr(quiet, text))
        fail_msg("%s: no line '%s' in:\n%s", why, text + 1, quiet);
    if (!strstr(json, member))
        fail_msg("%s: no member %s in the JSON", why, member);
}

/* What is printed for people and for programs is what was checked. */
static void check_outputs(const plim_estimate *e)
{
    const char *fits = e->fits == PLIM_FITS_YES          ? "yes"
                       : e->fits == PLIM_FITS_NO         ? "no"
                       : e->fits == PLIM_FITS_INCOMPLETE ? "incomplete"
                                                         : "maybe";
    const struct {
        const char *line, *key;
        uint64_t n;
        bool known;
    } rows[] = {{"allocated", "peak_allocated", e->peak_allocated, true},
                {"reserved", "peak_reserved", e->peak_reserved, true},
                {"reserved_low", "reserved_low", e->reserved_low, true},
                {"reserved_high", "reserved_high", e->reserved_high, true},
                {"device_low", "device_low", e->device_low, e->context_known},
                {"device_high", "device_high", e->device_high, e->context_known},
                {"device", "device", e->device, e->context_known},
                {"needed_low", "needed_low", e->needed_low, e->context_known},
                {"needed_high", "needed_high", e->needed_high, e->context_known},
                {"margin", "margin", e->margin, true},
                {"memory", "gpu_bytes", e->gpu_bytes, true}};
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf quiet, json;
    plim_err err = PLIM_ERR_INIT;
    char verdict[32];
    const plim_style st = {.size = sizeof st, .quiet = true};
    plim_buf_init(&quiet, &a);
    plim_buf_init(&json, &a);
    plim_status bad = plim_estimate_print(e, PLIM_TEXT, &st, put_buf, &quiet, &err);
    bad = bad ? bad : plim_estimate_print(e, PLIM_JSON, NULL, put_buf, &json, &err);
    assert_int_equal(bad, PLIM_OK);
    const char *text = plim_buf_str(&quiet).p, *object = plim_buf_str(&json).p;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        check_line(text, object, rows[i].line, rows[i].key, rows[i].n, rows[i].known);
    snprintf(verdict, sizeof verdict, "\nfits %s\n", fits);
    CHECK(why, strstr(text, verdict));
    snprintf(verdict, sizeof verdict, "\"fits\":\"%s\"", fits);
    CHECK(why, strstr(object, verdict));
    plim_arena_free(&a);
}

/* The verdict is where the card lies in the ranges. */
static void check_verdict(const plim_estimate *e)
{
    uint64_t card = e->gpu_bytes;
    switch (e->fits) {
    case PLIM_FITS_NO_CARD: CHECK(why, !card); break;
    case PLIM_FITS_INCOMPLETE: CHECK(why, *e->model->left_out); break;
    case PLIM_FITS_YES:
        CHECK(why, e->context_known && e->device_high <= card && e->needed_high <= card);
        break;
    case PLIM_FITS_NO: CHECK(why, e->device_low > card && e->needed_low > card); break;
    case PLIM_FITS_MAYBE:
        CHECK(why, e->device_low <= card && e->needed_low <= card);
        CHECK(why, !e->context_known || (e->device_high > card && e->needed_high > card));
        break;
    }
    CHECK(why, e->oom == (e->fits == PLIM_FITS_NO) && e->oom == (e->oom_text != NULL));
}

static plim_estimate *ask(const char *model, const plim_settings *s, int64_t batch)
{
    plim_settings *one = NULL;
    char text[32];
    assert_int_equal(plim_settings_copy(s, &one, NULL), PLIM_OK);
    const char *gpu = plim_settings_get(s, "gpu"), *vram = plim_settings_get(s, "vram");
    snprintf(text, sizeof text, "%" PRId64, batch);
    snprintf(why, sizeof why, "%s, batch %s on %s", model, text, gpu ? gpu : vram);
    asked_set(one, "batch", text);
    plim_estimate *e = asked_estimate_of(model, one);
    check_figures(e);
    check_verdict(e);
    check_outputs(e);
    plim_settings_free(one);
    return e;
}

/* A row has the figures of an estimate at its batch, or at batch 1 if none fits. */
static void check_row(const char *model, const plim_settings *s, const plim_fit_row *r)
{
    plim_estimate *e = ask(model, s, PLIM_MAX(r->batch, 1));
    CHECK(why, !r->batch || e->fits == PLIM_FITS_YES || !r->context_known);
    CHECK(why, r->batch || e->fits != PLIM_FITS_YES);
    CHECK(why, r->gpu_bytes == e->gpu_bytes && r->reserved == e->peak_reserved);
    CHECK(why, r->reserved_low == e->reserved_low && r->reserved_high == e->reserved_high);
    CHECK(why, r->device_low == e->device_low && r->device_high == e->device_high);
    CHECK(why, r->needed_low == e->needed_low && r->needed_high == e->needed_high);
    plim_estimate_free(e);
    if (r->batch_margin) {
        e = ask(model, s, r->batch_margin);
        CHECK(why, e->margin_kept || !r->context_known);
        plim_estimate_free(e);
    }
    if (r->limited)
        return;
    if (r->batch_margin < r->batch) {
        e = ask(model, s, r->batch_margin + 1);
        CHECK(why, !e->margin_kept);
        plim_estimate_free(e);
    }
    e = ask(model, s, r->batch + 1);
    CHECK(why, e->fits != PLIM_FITS_YES);
    plim_estimate_free(e);
    e = ask(model, s, r->batch + r->batch / 20 + 2);
    plim_estimate_free(e);
}

static uint64_t check_fit(const char *model, const plim_settings *s)
{
    plim_fit *f = NULL;
    plim_err err = PLIM_ERR_INIT;
    plim_model *m = asked_model(model);
    if (plim_fit_run(m, s, &f, &err))
        fail_msg("%s: %s", model, err.msg);
    assert_int_equal(f->n_cards, 1);
    check_row(model, s, f->cards[0]);
    uint64_t needed = f->cards[0]->needed_high;
    plim_fit_free(f);
    plim_model_free(m);
    return needed;
}

static const char *const models[] = {"resnet18",
                                     "resnet50",
                                     "swin_t",
                                     "vgg16",
                                     "unet",
                                     "mobilenet_v2",
                                     "squeezenet1_1",
                                     "mlp:1024,4096,4096,1000:relu",
                                     "lenet5",
                                     "gpt2",
                                     PLIM_SOURCE_DIR "/tests/data/llama-tiny"};

static plim_settings *random_settings(void)
{
    static const char *const optimizers[] = {"sgd", "sgd,momentum=0.9", "adam",
                                             "adamw,impl=fused"};
    static const char *const workspaces[] = {NULL, NULL, NULL, "off", "low", "high"};
    static const char *const confs[] = {NULL,
                                        NULL,
                                        NULL,
                                        "expandable_segments:True",
                                        "max_split_size_mb:128",
                                        "garbage_collection_threshold:0.8"};
    static const char *const dtypes[] = {NULL, NULL, "bf16"};
    plim_settings *s = asked_settings(NULL);
    asked_set(s, "optimizer", PICK(optimizers));
    asked_set(s, "workspace", PICK(workspaces));
    asked_set(s, "alloc_conf", PICK(confs));
    asked_set(s, "dtype", PICK(dtypes));
    asked_set(s, "mode", dice(4) == 0 ? "infer" : NULL);
    return s;
}

static void test_cards(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        plim_settings *s = random_settings();
        plim_gpu_info gpu = PLIM_GPU_INFO_INIT;
        plim_gpu_info_at(dice(plim_registry_count(PLIM_REG_GPUS)), &gpu);
        asked_set(s, "gpu", gpu.name);
        check_fit(PICK(models), s);
        plim_settings_free(s);
    }
}

/* Cards of odd sizes, then of just what the run needs and of a little more and less. */
static void test_sizes(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        plim_settings *s = random_settings();
        const char *model = PICK(models);
        char text[32];
        uint64_t bytes = (1200ull << 20) + (uint64_t)dice(8000) * ((1ull << 20) + 12345);
        for (int k = 0; k < 3; k++) {
            snprintf(text, sizeof text, "%" PRIu64, bytes);
            asked_set(s, "vram", text);
            bytes = check_fit(model, s) - k * (1ull << 20);
        }
        plim_settings_free(s);
    }
}

/* Cards that have less than a run would hold without them: a run of 2.9 GiB on cards from
 * where nothing fits to where all of it does. */
static void test_limits(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("optimizer=sgd,momentum=0.9");
    plim_fits before = PLIM_FITS_NO;
    for (uint64_t mib = 2600; mib <= 4600; mib += 100) {
        char text[32];
        snprintf(text, sizeof text, "%" PRIu64 "MiB", mib);
        asked_set(s, "vram", text);
        plim_estimate *e = ask("resnet50", s, 32);
        CHECK(why, e->fits == before || before != PLIM_FITS_YES);
        before = e->fits;
        plim_estimate_free(e);
    }
    assert_int_equal(before, PLIM_FITS_YES);
    plim_settings_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cards),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
