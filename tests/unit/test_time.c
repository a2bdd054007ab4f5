/* test_time.c -- the work of a step against figures worked out by hand, and its time. */
#include "time/time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "asked.h"
#include "step/step.h"

#define MLP "mlp:8,16,4:relu"
#define WIDE "mlp:4096,4096,4096:relu"
#define SGD "batch=2 optimizer=sgd loss=mse"

static const plim_gpu *card(const char *name)
{
    const plim_gpu *g = NULL;
    plim_err err = PLIM_ERR_INIT;
    CHECK(name, !plim_gpu_find(plim_str_of(name), &g, &err));
    return g;
}

static plim_times *times_of(const char *model, const char *words)
{
    plim_model *m = asked_model(model);
    plim_settings *s = asked_settings(words);
    plim_times *t = NULL;
    plim_err err = PLIM_ERR_INIT;
    CHECK(err.msg, !plim_times_run(m, s, &t, &err));
    plim_settings_free(s);
    plim_model_free(m);
    return t;
}

/* fp32, so 4 bytes an element: x is 2 x 8, the weights 16 x 8 and 4 x 16.  Backward of the
 * second layer multiplies for dx and dW, that of the first for dW only: the input wants no
 * gradient. */
static void test_ledger(void **state)
{
    (void)state;
    static const struct {
        const char *layer;
        plim_phase phase;
        uint64_t macs, bytes;
    } rows[] = {
        {"0", PLIM_PHASE_FORWARD, 2 * 8 * 16, 4 * (2 * 8 + 16 * 8 + 16 + 2 * 16)},
        {"1", PLIM_PHASE_FORWARD, 0, 4 * (2 * 16 + 2 * 16)},
        {"2", PLIM_PHASE_FORWARD, 2 * 16 * 4, 4 * (2 * 16 + 4 * 16 + 4 + 2 * 4)},
        {"2", PLIM_PHASE_BACKWARD, 2 * (2 * 16 * 4),
         4 * (2 * 4 + 2 * 16 + 4 * 16 + (2 * 16 + 4 * 16 + 4))},
        {"1", PLIM_PHASE_BACKWARD, 0, 4 * (3 * 2 * 16)},
        {"0", PLIM_PHASE_BACKWARD, 2 * 8 * 16, 4 * (2 * 16 + 2 * 8 + 16 * 8 + 16)},
        {"sgd", PLIM_PHASE_OPTIMIZER, 0, 3 * 4 * (8 * 16 + 16 + 16 * 4 + 4)},
    };
    plim_times *t = times_of(MLP, SGD);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        bool found = false;
        for (uint32_t k = 0; k < t->n_ops; k++)
            if (!strcmp(t->ops[k]->layer, rows[i].layer) &&
                t->ops[k]->phase == rows[i].phase) {
                found = true;
                assert_int_equal(t->ops[k]->macs, rows[i].macs);
                assert_int_equal(t->ops[k]->bytes, rows[i].bytes);
            }
        CHECK(rows[i].layer, found);
    }
    CHECK_STR("no card", t->time.unknown, "no card was chosen");
    plim_times_free(t);
}

/* A second forward pass of checkpoints, casts of autocast and the MACs of an inference. */
static void test_what_runs(void **state)
{
    (void)state;
    plim_times *plain = times_of("vit_b_16", "batch=2"),
               *again = times_of("vit_b_16", "batch=2 checkpoint=blocks"),
               *cast = times_of("vit_b_16", "batch=2 autocast=fp16"),
               *infer = times_of("vit_b_16", "batch=2 mode=infer");
    plim_estimate *e = asked_estimate("vit_b_16", "batch=2");
    const plim_times *const all[] = {plain, again, cast, infer};
    uint64_t macs[4] = {0}, halves = 0;
    for (int i = 0; i < 4; i++)
        for (uint32_t k = 0; k < all[i]->n_ops; k++) {
            macs[i] += all[i]->ops[k]->macs;
            halves +=
                i == 2 && all[i]->ops[k]->macs && strcmp(all[i]->ops[k]->dtype, "fp16") == 0;
        }
    assert_int_equal(macs[3], e->forward_macs);
    CHECK("backward multiplies about twice as much",
          10 * macs[0] > 29 * macs[3] && 10 * macs[0] < 31 * macs[3]);
    CHECK("blocks run twice, up to what backward needs", macs[1] > macs[0] + macs[3] / 2);
    CHECK("as many products in fp16", macs[2] == macs[0] && halves > 100);
    plim_estimate_free(e);
    plim_times_free(plain);
    plim_times_free(again);
    plim_times_free(cast);
    plim_times_free(infer);
}

static void test_rows(void **state)
{
    (void)state;
    const plim_gpu *gpu = card("rtx3090");
    plim_time_limit limit;
    plim_work add = {.klass = PLIM_WORK_pointwise, .known = true, .bytes = 9358000000};
    double one = plim_time_row_of(&add, gpu, &limit);
    assert_int_equal(limit, PLIM_TIME_MEMORY);
    CHECK("not faster than the memory, 935.8 GB/s", one >= 0.010 && one < 0.020);
    plim_work mm = {.klass = PLIM_WORK_gemm,
                    .dtype = PLIM_F16,
                    .known = true,
                    .macs = 35685000000000,
                    .bytes = 1};
    double product = plim_time_row_of(&mm, gpu, &limit);
    assert_int_equal(limit, PLIM_TIME_COMPUTATION);
    CHECK("not faster than the peak with fp32 accumulation, 71.37 TFLOPS",
          product >= 0.999 && product < 1.5);
    mm.dtype = PLIM_F32;
    CHECK("fp32 is slower", plim_time_row_of(&mm, gpu, &limit) > 1.9 * product);
    mm.dtype = PLIM_F64;
    CHECK("no rate for fp64", plim_time_row_of(&mm, gpu, &limit) == 0);
    add.bytes *= 2;
    CHECK("twice the bytes take twice as long",
          fabs(plim_time_row_of(&add, gpu, &limit) - 2 * one) < 1e-9);
}

static void test_tokens(void **state)
{
    (void)state;
    plim_times *t = times_of("gpt2", "batch=4 seq=64 gpu=rtx3090");
    CHECK("4 times 64 tokens a step",
          fabs(t->time.tokens_per_s * t->time.usual_ms - 4 * 64e3) < 1e-6);
    plim_times_free(t);
}

static void test_step(void **state)
{
    (void)state;
    plim_times *t = times_of("resnet50", "batch=64 autocast=fp16 gpu=rtx3090");
    double sum = 0;
    assert_null(t->time.unknown);
    for (uint32_t i = 0; i < t->n_ops; i++) {
        sum += t->ops[i]->ms;
        CHECK("longest first", !i || t->ops[i]->ms <= t->ops[i - 1]->ms);
    }
    CHECK("the ops make the step", fabs(sum - t->time.usual_ms) < 1e-6 * sum);
    CHECK("a range", t->time.low_ms < t->time.usual_ms && t->time.usual_ms < t->time.high_ms);
    CHECK("throughput", fabs(t->time.samples_per_s * t->time.usual_ms - 64e3) < 1e-6);
    CHECK("no tokens", !(t->time.tokens_per_s > 0));
    CHECK("shares", fabs(t->time.computation + t->time.memory + t->time.launch - 1) < 1e-9);
    plim_times_free(t);
}

/* What is known of a card and a dtype decides how wide the range is: whole steps, single
 * kernels of matrix products, or neither.  That of small steps is the CPU's. */
static void test_range(void **state)
{
    (void)state;
    static const struct {
        const char *model, *words;
        double low, high;
    } rows[] = {
        {WIDE, "batch=4096 optimizer=sgd loss=mse gpu=v100-pcie-32g", 0.80, 1.66},
        {WIDE, "batch=4096 mode=infer gpu=a100-pcie", 0.80, 1.66},
        {WIDE, "batch=4096 mode=infer gpu=gtx1050", 0.6, 1.7},
        {WIDE, "batch=4096 mode=infer gpu=rtx3090", 0.6, 1.7},
        {WIDE, "batch=4096 mode=infer gpu=h100-pcie autocast=fp16", 0.6, 1.7},
        {WIDE, "batch=4096 mode=infer gpu=h100", 0.77, 1.25},
        {WIDE, "batch=4096 mode=infer gpu=h100 autocast=fp16", 0.77, 1.25},
        {WIDE, "batch=4096 mode=infer gpu=h200 autocast=fp16", 0.6, 1.7},
        {"vgg16", "batch=32 gpu=h100", 0.77, 1.25},
        {"vgg16", "batch=32 gpu=h200", 0.6, 1.7},
        {MLP, "batch=2 mode=infer gpu=h100", 0.77, 1.25},
        {"resnet18", "batch=256 mode=infer gpu=v100-pcie-32g", 0.6, 1.7},
        {"resnet18", "batch=256 mode=infer gpu=rtx3090 autocast=fp16", 0.82, 1.25},
        {"resnet18", "batch=256 gpu=rtx3090 autocast=fp16", 0.77, 1.35},
        {MLP, "batch=2 mode=infer gpu=rtx3090", 0.5, 1.6},
        {MLP, "batch=2 mode=infer gpu=gtx1050", 0.5, 1.6},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_times *t = times_of(rows[i].model, rows[i].words);
        assert_null(t->time.unknown);
        CHECK(rows[i].words, fabs(t->time.low_ms / t->time.usual_ms - rows[i].low) < 1e-9);
        CHECK(rows[i].words, fabs(t->time.high_ms / t->time.usual_ms - rows[i].high) < 1e-9);
        plim_times_free(t);
    }
}

/* Microseconds of single kernels on an H100: README.md of tests/golden/time.  Those of a backward pass have both
 * gradients.  The work is what the ledger has for them. */
static void test_kinds(void **state)
{
    (void)state;
    enum { M = 1000000 };
    static const struct {
        const char *why;
        double us;
        plim_work work;
    } rows[] = {
        {"bf16, 4096 x 4096 x 4096",
         194.4,
         {.klass = PLIM_WORK_gemm,
          .dtype = PLIM_BF16,
          .macs = UINT64_C(68719) * M,
          .bytes = 101 * M,
          .side = 4096}},
        {"fp32, 4096 x 4096 x 4096",
         2712,
         {.klass = PLIM_WORK_gemm,
          .dtype = PLIM_F32,
          .macs = UINT64_C(68719) * M,
          .bytes = 201 * M,
          .side = 4096}},
        {"fp32, with a side of 96",
         437.4,
         {.klass = PLIM_WORK_gemm,
          .dtype = PLIM_F32,
          .macs = UINT64_C(7399) * M,
          .bytes = 385 * M,
          .side = 96}},
        {"addition, 200704 x 192",
         155.2,
         {.klass = PLIM_WORK_pointwise, .dtype = PLIM_F32, .bytes = 462 * M}},
        {"layer norm of 200704 rows",
         309.3,
         {.klass = PLIM_WORK_norm, .dtype = PLIM_F32, .bytes = 154 * M, .blocks = 200704}},
        {"layer norm of 8192 rows",
         58.2,
         {.klass = PLIM_WORK_norm, .dtype = PLIM_F32, .bytes = 134 * M, .blocks = 8192}},
        {"batch norm of 64 channels",
         486.4,
         {.klass = PLIM_WORK_batch_norm, .dtype = PLIM_F32, .bytes = 616 * M, .blocks = 64}},
        {"as many bytes in 256",
         247.7,
         {.klass = PLIM_WORK_batch_norm, .dtype = PLIM_F32, .bytes = 616 * M, .blocks = 256}},
        {"half of them in bf16, by PyTorch's own kernel",
         796.9,
         {.klass = PLIM_WORK_batch_norm, .dtype = PLIM_BF16, .bytes = 308 * M, .blocks = 64}},
        {"VGG, NCHW in TF32",
         370.7,
         {.klass = PLIM_WORK_conv,
          .dtype = PLIM_F32,
          .macs = UINT64_C(59190) * M,
          .bytes = 112 * M}},
        {"VGG, NCHW in fp16",
         221.8,
         {.klass = PLIM_WORK_conv,
          .dtype = PLIM_F16,
          .macs = UINT64_C(59190) * M,
          .bytes = 56 * M}},
        {"VGG, channels_last in fp16",
         154.6,
         {.klass = PLIM_WORK_conv,
          .dtype = PLIM_F16,
          .form = PLIM_FORM_LAST,
          .macs = UINT64_C(59190) * M,
          .bytes = 56 * M}},
        {"depthwise 7 x 7",
         318.9,
         {.klass = PLIM_WORK_conv_depthwise,
          .dtype = PLIM_F32,
          .macs = 472 * M,
          .bytes = 77 * M}},
        {"its gradients",
         1064.8,
         {.klass = PLIM_WORK_conv_depthwise,
          .dtype = PLIM_F32,
          .gradient = true,
          .macs = 944 * M,
          .bytes = 115 * M}},
        {"the gradient of a pool",
         637.1,
         {.klass = PLIM_WORK_pool, .dtype = PLIM_F32, .gradient = true, .bytes = 360 * M}},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_time_limit limit;
        plim_work work = rows[i].work;
        work.kernels = 1;
        double us = plim_time_row_of(&work, card("h100"), &limit) * 1e6;
        CHECK(rows[i].why, fabs(us / rows[i].us - 1) < 0.15);
    }
}

/* What a row is for the H100 alone: the same step on a card that has no kinds takes the same time with and without
 * it. */
static void test_unmeasured_card(void **state)
{
    (void)state;
    plim_work plain = {.klass = PLIM_WORK_gemm,
                       .dtype = PLIM_F16,
                       .macs = 1 << 30,
                       .bytes = 1 << 20,
                       .kernels = 1},
              marked = plain;
    plim_time_limit limit;
    marked.form = PLIM_FORM_ODD;
    marked.side = 32;
    marked.bias = 1 << 20;
    double a100[] = {plim_time_row_of(&plain, card("a100"), &limit),
                     plim_time_row_of(&marked, card("a100"), &limit)},
           h100[] = {plim_time_row_of(&plain, card("h100"), &limit),
                     plim_time_row_of(&marked, card("h100"), &limit)};
    CHECK("the same", fabs(a100[0] - a100[1]) < 1e-15);
    CHECK("rows that begin anywhere are slow", h100[1] > 2 * h100[0]);
}

/* The CPU beside a card that was measured: ops, nodes and kernels, more for models of transformers. */
static void test_host(void **state)
{
    (void)state;
    plim_work rows[10];
    for (int i = 0; i < 10; i++)
        rows[i] =
            (plim_work){.klass = PLIM_WORK_pointwise, .known = true, .kernels = 1, .bytes = 4};
    plim_graph own = {0}, library = {.about.model_type = PLIM_STR("gpt2")};
    plim_ledger l = {.graph = &own, .rows = rows, .n = 10, .calls = 20, .nodes = 5};
    double lean = plim_time_of(&l, card("h100"), true).usual;
    l.graph = &library;
    plim_time t = plim_time_of(&l, card("h100"), true);
    CHECK("10 kernels, 20 calls, 5 nodes", fabs(lean - (105 + 386 + 46) * 1e-6) < 1e-9);
    CHECK("15.6 us more a call", fabs(t.usual - lean - 312e-6) < 1e-9);
    CHECK("so launches limit it", t.part[PLIM_TIME_LAUNCH] > 0.9 * t.usual);
}

/* 10 kernels in a row that take no time on the card: the program cannot start them faster. */
static void test_bound_by_the_program(void **state)
{
    (void)state;
    plim_work rows[10];
    for (int i = 0; i < 10; i++)
        rows[i] =
            (plim_work){.klass = PLIM_WORK_pointwise, .known = true, .kernels = 1, .bytes = 4};
    plim_ledger l = {.rows = rows, .n = 10};
    plim_time t = plim_time_of(&l, card("rtx5090"), false);
    assert_null(t.unknown);
    CHECK("32 us each", fabs(t.usual - 320e-6) < 1e-9);
    CHECK("so launches limit it", t.part[PLIM_TIME_LAUNCH] > 0.99 * t.usual);
}

/* Milliseconds and the smallest batch with 90 % of the most samples per second that NVIDIA
 * measured on a V100, in mixed precision: DeepLearningExamples@729963d
 * PyTorch/Classification/ConvNets/resnet50v1.5.  The time within its range, the batch within one
 * doubling. */
static void test_batches(void **state)
{
    (void)state;
    static const double ms[] = {12.78, 13.01, 13.41, 13.65, 14.0, 15.84, 23.18, 43.55, 84.14};
    double rate[PLIM_COUNT(ms)], most = 0;
    for (size_t i = 0; i < PLIM_COUNT(ms); i++) {
        char words[64];
        snprintf(words, sizeof words, "batch=%d mode=infer autocast=fp16 gpu=v100", 1 << i);
        plim_times *t = times_of("resnet50", words);
        CHECK(words, t->time.low_ms <= ms[i] && ms[i] <= t->time.high_ms);
        rate[i] = t->time.samples_per_s;
        most = PLIM_MAX(most, rate[i]);
        plim_times_free(t);
    }
    size_t knee = 0;
    while (rate[knee] < 0.9 * most)
        knee++;
    CHECK("64, or one doubling from it", knee >= 5 && knee <= 7);
}

static void test_unknown(void **state)
{
    (void)state;
    plim_work row = {
        .klass = PLIM_WORK_gemm, .dtype = PLIM_F16, .known = true, .macs = 1, .bytes = 1};
    plim_ledger l = {.rows = &row, .n = 1};
    CHECK("no fp16 rate", plim_time_of(&l, card("gtx1050"), false).unknown != NULL);
    row.dtype = PLIM_F32;
    CHECK("fp32", plim_time_of(&l, card("gtx1050"), false).unknown == NULL);
    row.klass = PLIM_WORK_rnn;
    CHECK("not measured", plim_time_of(&l, card("rtx3090"), false).unknown != NULL);
    row.klass = PLIM_WORK_gemm;
    row.known = false;
    CHECK("no rule", plim_time_of(&l, card("rtx3090"), false).unknown != NULL);
    l.n = 0;
    CHECK("nothing", plim_time_of(&l, card("rtx3090"), false).unknown != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_what_runs),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_bound_by_the_program),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_unmeasured_card),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
