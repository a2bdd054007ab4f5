/* test_card.c -- requests that only the kernels of a card make, which no recording on a CPU
 * can show: those under one layer's mark, worked out by hand. */
#include <string.h>

#include "asked.h"
#include "job/job.h"
#include "nn/nn.h"

#define GOLDEN PLIM_SOURCE_DIR "/tests/golden/torch/"
enum { MAX_REQUESTS = 64 };

typedef struct traced {
    plim_arena arena;
    plim_graph g;
    plim_tape tape;
} traced;

/* Either a model, or a graph built by the test. */
typedef void (*build_fn)(plim_nn *n, plim_graph *g);

static void trace(traced *t, const char *model, build_fn build, const char *words)
{
    plim_err err = PLIM_ERR_INIT;
    plim_settings *s = asked_settings(words);
    plim_model *m = asked_model(model);
    plim_job job;
    *t = (traced){.arena = PLIM_ARENA_INIT};
    plim_status st = plim_job_open(&job, &t->arena, m, s, &err);
    if (!st)
        st = plim_job_card(&job, &err);
    if (!st && !build)
        st = plim_job_graph(&job, 0, &t->arena, &t->g, &err);
    if (!st && build && !(st = plim_graph_init(&t->g, &t->arena, &err))) {
        plim_nn n;
        plim_nn_init(&n, &t->g, &err);
        plim_nn_root(&n, "Model");
        build(&n, &t->g);
        st = n.st;
    }
    if (!st)
        st = plim_job_tape(&job, &t->g, &t->arena, &t->tape, NULL, &err);
    if (st)
        fail_msg("%s: %s", model, err.msg);
    plim_model_free(m);
    plim_settings_free(s);
}

/* The requests of the first step in a phase while `op` runs, in order. */
static uint32_t requests(const traced *t, plim_phase phase, const char *op, uint64_t *out)
{
    uint32_t mark = 0, n = 0;
    for (uint32_t i = 0; i < t->tape.n_events; i++) {
        const plim_event *e = &t->tape.events[i];
        while (mark + 1 < t->tape.n_marks && t->tape.marks[mark + 1].first <= i)
            mark++;
        const plim_mark *m = &t->tape.marks[mark];
        if (m->step == 0 && m->phase == phase && plim_str_is(m->op, op) &&
            e->kind == PLIM_EVENT_ALLOC && n < MAX_REQUESTS)
            out[n++] = t->tape.storages[e->id].bytes;
    }
    return n;
}

typedef struct expected {
    const char *why;
    const char *model; /* NULL: build */
    build_fn build;
    const char *settings;
    plim_phase phase;
    const char *op;
    uint64_t bytes[16]; /* 0: the end */
} expected;

/* ---- graphs ---------------------------------------------------------------------- */

static uint32_t input_of(plim_nn *n, plim_graph *g, plim_ints dim)
{
    plim_value v = {.name = PLIM_STR("x"), .kind = PLIM_VALUE_INPUT};
    (void)n;
    v.meta = plim_meta_make(PLIM_F32, (int32_t)dim.n, dim.p);
    v.node = v.tied_to = PLIM_NONE;
    uint32_t x = plim_graph_add_value(g, &v);
    plim_graph_add_input(g, x);
    return x;
}

/* The gradient comes back with its last dims swapped. */
static void dropped_transpose(plim_nn *n, plim_graph *g)
{
    uint32_t x = input_of(n, g, INTS(2, 6, 8));
    x = plim_nn_linear(n, "fc", x, 8, true);
    x = plim_nn_dropout(n, "drop", x, 0.5);
    plim_graph_add_output(g, plim_nn_contiguous(n, plim_nn_transpose(n, x, 1, 2)));
}

static void all_dropped(plim_nn *n, plim_graph *g)
{
    uint32_t x = plim_nn_linear(n, "fc", input_of(n, g, INTS(2, 6, 8)), 8, true);
    plim_graph_add_output(g, plim_nn_dropout(n, "drop", x, 1.0));
}

/* As attention in fp16 often does it: softmax(x, -1, dtype=torch.float32). */
static void softmax_in_fp32(plim_nn *n, plim_graph *g)
{
    uint32_t x = plim_nn_linear(n, "fc", input_of(n, g, INTS(2, 6, 8)), 8, true);
    plim_graph_add_output(g, NN_OP(n, "aten.softmax.int", ARG_T("self", x), ARG_I("dim", -1),
                                   ARG_I("dtype", PLIM_F32)));
}

static void many_rows(plim_nn *n, plim_graph *g)
{
    plim_graph_add_output(
        g, plim_nn_layer_norm(n, "norm", input_of(n, g, INTS(20000, 6, 16)), 1e-5));
}

static void matrix_vector(plim_nn *n, plim_graph *g)
{
    uint32_t x = input_of(n, g, INTS(6, 8)), v = plim_nn_param(n, "v", INTS(8));
    plim_graph_add_output(
        g, NN_OP(n, "aten.matmul.default", ARG_T("self", x), ARG_T("other", v)));
}

static void transposed_product(plim_nn *n, plim_graph *g)
{
    uint32_t x = plim_nn_transpose(n, input_of(n, g, INTS(2, 6, 8)), 1, 2);
    uint32_t w = plim_nn_param(n, "w", INTS(6, 4));
    plim_graph_add_output(
        g, NN_OP(n, "aten.matmul.default", ARG_T("self", x), ARG_T("other", w)));
}

/* ---- the cases --------------------------------------------------------------------- */

#define SDPA "aten.scaled_dot_product_attention.default"

static const expected cases[] = {
    /* q, k, v [4, 2 heads, 6, 8] in bf16: 768 bytes each, in memory [B, S, H, D],
     * so neither g nor out is copied; rows are rounded up to 128 and heads to 32
     * columns: 4 * 2 * 128 * 4, and 4 * 128 * 2 * 32 * 4 */
    {"flash, backward",
     GOLDEN "attention.pt2",
     NULL,
     "batch=4 dtype=bf16 loss=mse",
     PLIM_PHASE_BACKWARD,
     SDPA,
     {768, 768, 768, 4096, 131072}},
    /* the random state is on the card since 2.7 */
    {"flash, forward",
     GOLDEN "attention.pt2",
     NULL,
     "batch=4 dtype=bf16 loss=mse",
     PLIM_PHASE_FORWARD,
     SDPA,
     {768, 192, 16, 8}},
    {"flash of 2.6, forward",
     GOLDEN "attention.pt2",
     NULL,
     "batch=4 dtype=bf16 loss=mse torch=2.6",
     PLIM_PHASE_FORWARD,
     SDPA,
     {768, 192}},
    /* before the Ampere cards: the memory-efficient kernels, whose backward gathers dq
     * in tiles of 64 x 64 fp32 with 16 bytes for a lock: 4 * 2 * 16400 */
    {"efficient in 16 bits, backward",
     GOLDEN "attention.pt2",
     NULL,
     "batch=4 dtype=fp16 loss=mse gpu=t4",
     PLIM_PHASE_BACKWARD,
     SDPA,
     {768, 768, 768, 192, 131200}},
    /* bf16 has no fused kernel there: q, k, v in fp32, q and k scaled, both copied to 3 dims;
     * scores and softmax 4 * 2 * 6 * 6 * 4, the check for empty rows; the softmax in bf16; v
     * copied, product, result in bf16 */
    {"bf16 before Ampere, forward",
     GOLDEN "attention.pt2",
     NULL,
     "batch=4 dtype=bf16 loss=mse gpu=t4 workspace=off",
     PLIM_PHASE_FORWARD,
     SDPA,
     {1536, 1536, 1536, 1536, 1536, 1536, 1536, 1152, 1152, 288, 48, 4, 576, 1536, 1536, 768}},
    /* result and row sums; the random state, which is not drawn, is on the CPU; 8 x 8
     * positions: rows of the mask start at multiples of 8, no padding */
    {"a mask, 2.1",
     GOLDEN "masked_attention.pt2",
     NULL,
     "batch=4 loss=mse torch=2.1",
     PLIM_PHASE_FORWARD,
     SDPA,
     {2048, 1024}},
    /* there it is on the card, and comes first: recorded in tests/golden/cuda */
    {"a mask, 2.14",
     GOLDEN "masked_attention.pt2",
     NULL,
     "batch=4 loss=mse torch=2.14",
     PLIM_PHASE_FORWARD,
     SDPA,
     {8, 8, 2048, 1024}},
    /* 2.0 has no fused kernel for a mask: q and k scaled and copied to 3 dims as v
     * is, scores 4 * 2 * 8 * 8 * 4, softmax, result */
    {"a mask, 2.0",
     GOLDEN "masked_attention.pt2",
     NULL,
     "batch=4 loss=mse torch=2.0 workspace=off",
     PLIM_PHASE_FORWARD,
     SDPA,
     {2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048}},
    /* ones and tril of 6 x 6, made additive through a third */
    {"causal by the composite path",
     GOLDEN "causal_attention.pt2",
     NULL,
     "batch=4 loss=mse torch=1.13 workspace=off",
     PLIM_PHASE_FORWARD,
     SDPA,
     {1536, 36, 36, 144, 36, 1536, 1536, 1536, 1152, 1152, 1536, 1536}},
    /* 600 * 6 = 3600 indices over a table of 50 rows of 8: sorted, original, range;
     * cub's room: one pass over 6 bits (2048), which needs no buffers, a counter, one tile
     * (1024), slack; dW; segment offsets, a count, keys and their
     * scan; 50 partials, their offsets and the scan, a count; 3600 / 10 + 50 = 410 segments' offsets,
     * and as many numbers again, as these are more than 4 for each of few rows */
    {"embedding of many indices, backward",
     GOLDEN "embedding.pt2",
     NULL,
     "batch=600 loss=mse",
     PLIM_PHASE_BACKWARD,
     "aten.embedding.default",
     {28800, 28800, 28800, 3583, 1600, 28800, 8, 28800, 1279, 400, 400, 1279, 8, 3280, 3280}},
    {"embedding of 3072 indices, backward",
     GOLDEN "embedding.pt2",
     NULL,
     "batch=512 loss=mse",
     PLIM_PHASE_BACKWARD,
     "aten.embedding.default",
     {1600}},
    /* 20000 * 6 rows of 16: 3750 partial rows for each result, and their sums */
    {"layer_norm of many rows, backward",
     NULL,
     many_rows,
     "loss=mse",
     PLIM_PHASE_BACKWARD,
     "norm",
     {64, 64, 240000, 240000, 64, 64}},
    {"layer_norm of many rows, backward in 2.7",
     NULL,
     many_rows,
     "loss=mse torch=2.7",
     PLIM_PHASE_BACKWARD,
     "norm",
     {64, 64}},
    /* [4, 8, 8, 8] in 2 groups: dx, dgamma, dbeta; ds, db [4, 8]; c2, c3 [4, 2];
     * c1 [4, 8] */
    {"group_norm, backward",
     GOLDEN "group_norm.pt2",
     NULL,
     "batch=4 loss=mse",
     PLIM_PHASE_BACKWARD,
     "1",
     {8192, 32, 32, 128, 128, 32, 32, 128}},
    /* native_dropout: mask of 1 byte, then y; its gradient is contiguous whatever g is, so the
     * layer before needs no copy of it: dW and db only */
    {"dropout, forward",
     NULL,
     dropped_transpose,
     "loss=mse",
     PLIM_PHASE_FORWARD,
     "drop",
     {96, 384}},
    {"dropout of everything: a zero of no dims, multiplied in",
     NULL,
     all_dropped,
     "loss=mse",
     PLIM_PHASE_FORWARD,
     "drop",
     {4, 384}},
    {"dropout of a transposed gradient, backward",
     NULL,
     dropped_transpose,
     "loss=mse workspace=off",
     PLIM_PHASE_BACKWARD,
     "fc",
     {256, 32}},
    /* one kernel from fp16 to fp32, and one back; bf16 is cast on both ways */
    {"softmax of fp16 in fp32, forward",
     NULL,
     softmax_in_fp32,
     "dtype=fp16 loss=sum",
     PLIM_PHASE_FORWARD,
     "aten.softmax.int",
     {384}},
    {"softmax of fp16 in fp32, backward",
     NULL,
     softmax_in_fp32,
     "dtype=fp16 loss=sum",
     PLIM_PHASE_BACKWARD,
     "aten.softmax.int",
     {192, 384}},
    {"softmax of bf16 in fp32, forward",
     NULL,
     softmax_in_fp32,
     "dtype=bf16 loss=sum",
     PLIM_PHASE_FORWARD,
     "aten.softmax.int",
     {384, 384}},
    /* dW, cuBLAS, db; then the column sum of 8192 rows by 768: blocks of 32 x 4
     * threads, 4 columns each: v = 8192 / 4 = 2048, 6 blocks of columns, 108 * 16
     * blocks fit: c = min(288, 128) = 128 slices of 768 * 32 * 4 values; 6 counters */
    {"bias gradient, A100",
     "mlp:8,768",
     NULL,
     "batch=8192 loss=mse",
     PLIM_PHASE_BACKWARD,
     "0",
     {24576, 8519680, 3072, 50331648, 24}},
    /* 132 * 16 blocks, 24 blocks of columns: c = 88 */
    {"bias gradient, H100",
     "mlp:8,3072",
     NULL,
     "batch=8192 loss=mse gpu=h100",
     PLIM_PHASE_BACKWARD,
     "0",
     {98304, 33554432, 12288, 138412032, 96}},
    {"bias gradient of few rows",
     "mlp:8,4096",
     NULL,
     "batch=256 loss=mse",
     PLIM_PHASE_BACKWARD,
     "0",
     {131072, 8519680, 16384}},
    /* the gradient of the vector is a gemv, the autograd thread's first cuBLAS call; g, one
     * number expanded to 6, is copied for it */
    {"mv, backward",
     NULL,
     matrix_vector,
     "loss=sum torch=2.14",
     PLIM_PHASE_BACKWARD,
     "aten.matmul.default",
     {32, 24, 8519680}},
    /* under no_grad a parameter still has requires_grad set, so the product is folded: x
     * copied to [16, 6], times w */
    {"a transposed operand, inference",
     NULL,
     transposed_product,
     "mode=infer workspace=off",
     PLIM_PHASE_FORWARD,
     "aten.matmul.default",
     {384, 256}},
};

static void test_requests(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        const expected *c = &cases[i];
        uint64_t got[MAX_REQUESTS];
        uint32_t want = 0;
        traced t;
        trace(&t, c->model ? c->model : "mlp:1,1", c->build, c->settings);
        uint32_t n = requests(&t, c->phase, c->op, got);
        while (want < PLIM_COUNT(c->bytes) && c->bytes[want])
            want++;
        for (uint32_t k = 0; k < n && k < want; k++)
            if (got[k] != c->bytes[k])
                fail_msg("%s: request %u is %llu bytes, wanted %llu", c->why, (unsigned)k,
                         (unsigned long long)got[k], (unsigned long long)c->bytes[k]);
        if (n != want)
            fail_msg("%s: %u requests, wanted %u", c->why, (unsigned)n, (unsigned)want);
        plim_arena_free(&t.arena);
    }
}

/* nn.MultiheadAttention keeps q in [S, B, H, D]: the flash backward copies g and
 * out.  [2, 12, 5, 64] in bf16 is 15360 bytes: two copies, dq, dk, dv; then the
 * row sums 2 * 12 * 128 * 4 and dq in fp32 2 * 128 * 12 * 64 * 4. */
static void test_flash_of_multihead_attention(void **state)
{
    (void)state;
    static const uint64_t want[] = {15360, 15360, 15360, 15360, 15360, 12288, 786432};
    uint64_t got[MAX_REQUESTS];
    bool found = false;
    traced t;
    trace(&t, GOLDEN "vit_b_16.pt2", NULL, "batch=2 dtype=bf16");
    uint32_t n = requests(&t, PLIM_PHASE_BACKWARD,
                          "encoder.layers.encoder_layer_11.self_attention", got);
    for (uint32_t i = 0; i + PLIM_COUNT(want) <= n; i++)
        found = found || !memcmp(&got[i], want, sizeof want);
    CHECK("copies of g and out before the gradients", found);
    plim_arena_free(&t.arena);
}

/* ---- what has no rule says so ------------------------------------------------------- */

static uint32_t one_group(plim_nn *n, plim_graph *g)
{
    uint32_t x = input_of(n, g, INTS(4, 8)), w = plim_nn_param(n, "w", INTS(8, 4));
    return NN_OP(n, "aten._grouped_mm.default", ARG_T("self", x), ARG_T("mat2", w));
}

static uint32_t sparse_embedding(plim_nn *n, plim_graph *g)
{
    uint32_t w = plim_nn_param(n, "w", INTS(50, 8)),
             i = plim_nn_buffer(n, "i", PLIM_I64, INTS(4));
    (void)g;
    return NN_OP(n, "aten.embedding.default", ARG_T("weight", w), ARG_T("indices", i),
                 ARG_I("scale_grad_by_freq", 1), ARG_I("sparse", 1));
}

static void test_no_rule_no_number(void **state)
{
    (void)state;
    static uint32_t (*const build[])(plim_nn *, plim_graph *) = {one_group, sparse_embedding};
    for (size_t i = 0; i < PLIM_COUNT(build); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        plim_nn n;
        assert_int_equal(plim_graph_init(&g, &a, &err), PLIM_OK);
        plim_nn_init(&n, &g, &err);
        plim_nn_root(&n, "Model");
        build[i](&n, &g);
        assert_int_equal(n.st, PLIM_EUNSUPPORTED);
        plim_arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_flash_of_multihead_attention),
        cmocka_unit_test(test_no_rule_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
