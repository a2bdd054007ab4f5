/* test_cudnn.c -- cuDNN's workspace of single convolutions: in bytes worked out by hand, and as an
 * H100 took it (src/op/cudnn_h100.def). */
#include <inttypes.h>
#include <string.h>

#include "op/cudnn.h"
#include "unit.h"

static void check_bytes(const char *why, const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("%s: %s is %" PRIu64 ", not %" PRIu64, why, what, got, want);
}

/* Bytes of fp32: batch 2, 8 to 16 channels, 14 x 14 pixels; weights of 1x1 and 3x3. */
enum {
    X = 2 * 8 * 14 * 14 * 4,
    Y = 2 * 16 * 14 * 14 * 4,
    W1 = 16 * 8 * 4,
    W3 = 16 * 8 * 9 * 4,
    TILED =
        (X + Y) / 196 * 256 / 4 * 9 + 4 * W3, /* Winograd's: 14 pixels are four tiles of 4 */
};

static plim_meta shape_of(plim_dtype type, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return plim_meta_make(type, 4, (int64_t[]){n, c, h, w});
}

/* 8 to 16 channels, from sides `in` to `out` with a square kernel. */
static plim_cudnn_conv conv_of(plim_cudnn_pass pass, plim_dtype type, int64_t kernel,
                               int64_t in, int64_t out)
{
    return (plim_cudnn_conv){.pass = pass,
                             .x = shape_of(type, 2, 8, in, in),
                             .w = shape_of(type, 16, 8, kernel, kernel),
                             .y = shape_of(type, 2, 16, out, out)};
}

static const plim_world a100 = {.lib.torch = 215, .cc = 80}, t4 = {.lib.torch = 215, .cc = 75},
                        old = {.lib.torch = 113, .cc = 80},
                        exact = {.lib = {.torch = 215, .no_tf32 = true}, .cc = 80},
                        search = {.lib = {.torch = 215, .benchmark = true}, .cc = 80},
                        rtx3060 = {.lib.torch = 215, .cc = 86},
                        rtx4060 = {.lib.torch = 215, .cc = 89},
                        rtx5090 = {.lib.torch = 215, .cc = 120};

static void test_workspaces(void **state)
{
    (void)state;
    enum { TWICE1 = 2 * (X + Y + W1), TWICE3 = 2 * (X + Y + W3) };
    static const struct {
        const char *why;
        const plim_world *world;
        plim_cudnn_pass pass;
        plim_dtype type;
        int64_t kernel, in, out;
        uint64_t usual, high;
    } rows[] = {
        {"forward: input and weight", &a100, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14, X + W3,
         TWICE3},
        {"of the input: gradient and weight", &a100, PLIM_CUDNN_GRAD_INPUT, PLIM_F32, 3, 14,
         14, Y + W3, TWICE3},
        {"of the weight: all three", &a100, PLIM_CUDNN_GRAD_WEIGHT, PLIM_F32, 3, 14, 14,
         X + Y + W3, TWICE3},
        {"1x1: rows of 196 pixels need no copy", &a100, PLIM_CUDNN_FORWARD, PLIM_F32, 1, 14,
         14, 0, TWICE1},
        {"nor backward", &a100, PLIM_CUDNN_GRAD_WEIGHT, PLIM_F32, 1, 14, 14, 0, TWICE1},
        {"1x1: 49 pixels are not rows of 16 bytes", &a100, PLIM_CUDNN_FORWARD, PLIM_F32, 1, 7,
         7, X / 4 + W1, 2 * (X / 4 + Y / 4 + W1)},
        {"1x1 of stride 2 is not a plain product", &a100, PLIM_CUDNN_FORWARD, PLIM_F32, 1, 14,
         7, X + W1, 2 * (X + Y / 4 + W1)},
        {"16 bit: 196 pixels are not rows of 8", &a100, PLIM_CUDNN_FORWARD, PLIM_F16, 1, 14,
         14, (X + W1) / 2, TWICE1 / 2},
        {"16 bit: 64 pixels are", &a100, PLIM_CUDNN_FORWARD, PLIM_BF16, 1, 8, 8, 0,
         2 * 2 * (2 * 8 * 64 + 2 * 16 * 64 + 128)},
        {"fp16 has tensor cores on Turing", &t4, PLIM_CUDNN_FORWARD, PLIM_F16, 3, 14, 14,
         (X + W3) / 2, TWICE3 / 2},
        {"bf16 has not", &t4, PLIM_CUDNN_FORWARD, PLIM_BF16, 3, 14, 14, 0, TWICE3 / 2},
        {"fp32 without TF32: none, Winograd at most", &t4, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14,
         14, 0, TILED},
        {"allow_tf32 off: the same", &exact, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14, 0,
         TILED},
        {"Winograd is of stride 1", &exact, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 7, 0,
         2 * (X + Y / 4 + W3)},
        {"fp64: none", &a100, PLIM_CUDNN_FORWARD, PLIM_F64, 3, 14, 14, 0, 2 * TWICE3},
        {"before PyTorch 2.0: none", &old, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14, 0, TILED},
        {"GeForce: none fits, the operands twice at most", &rtx3060, PLIM_CUDNN_FORWARD,
         PLIM_F32, 3, 14, 14, 0, TWICE3},
        {"of Ada, too", &rtx4060, PLIM_CUDNN_GRAD_WEIGHT, PLIM_F32, 3, 14, 14, 0, TWICE3},
        {"and of the RTX 50", &rtx5090, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14, 0, TWICE3},
        {"the search may choose Winograd", &search, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14,
         X + W3, TILED},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_cudnn_conv c =
            conv_of(rows[i].pass, rows[i].type, rows[i].kernel, rows[i].in, rows[i].out);
        plim_cudnn_bytes n = plim_cudnn_workspace(rows[i].world, &c);
        check_bytes(rows[i].why, "usual", n.usual, rows[i].usual);
        check_bytes(rows[i].why, "high", n.high, rows[i].high);
        check_bytes(rows[i].why, "low", n.low, 0);
        c.channels_last = true;
        n = plim_cudnn_workspace(rows[i].world, &c);
        CHECK("channels_last: nothing to copy", !n.low && !n.usual && !n.high);
    }
}

/* ---- Hopper ------------------------------------------------------------------------ */

static const plim_world h100 = {.lib.torch = 211, .cc = 90},
                        h100_fp32 = {.lib = {.torch = 211, .no_tf32 = true}, .cc = 90},
                        h100_old = {.lib.torch = 203, .cc = 90};

static void test_hopper(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        const plim_world *world;
        plim_cudnn_pass pass;
        plim_dtype type;
        int64_t batch, in, out, kernel, side, out_side;
        bool channels_last;
        uint64_t usual;
    } rows[] = {
        {"VGG: copies of all three, and 16 bytes", &h100, PLIM_CUDNN_FORWARD, PLIM_BF16, 64,
         64, 64, 3, 224, 224, false, 2 * 411041792 + 73728 + 16},
        {"fp32 of 64 channels: y is written in NCHW", &h100, PLIM_CUDNN_FORWARD, PLIM_F32, 32,
         64, 128, 3, 56, 28, false, 25690112 + 294912 + 16},
        {"channels are padded to 16 bytes", &h100, PLIM_CUDNN_FORWARD, PLIM_BF16, 64, 3, 64, 7,
         224, 112, false, (8 * 224 * 224 + 64 * 112 * 112) * 128 + 64 * 8 * 49 * 2 + 16},
        {"few channels of 3x3: nothing", &h100, PLIM_CUDNN_FORWARD, PLIM_F32, 32, 3, 64, 3,
         224, 224, false, 0},
        {"1x1: a product", &h100, PLIM_CUDNN_FORWARD, PLIM_BF16, 64, 256, 64, 1, 56, 56, false,
         0},
        {"of its weight: a product for each sample", &h100, PLIM_CUDNN_GRAD_WEIGHT, PLIM_BF16,
         64, 256, 64, 1, 56, 56, false, 64 * 256 * 64 * 4},
        {"1x1 of stride 2 copies x and y", &h100, PLIM_CUDNN_FORWARD, PLIM_BF16, 64, 256, 512,
         1, 14, 7, false, 64 * (256 * 196 + 512 * 49) * 2 + 16},
        {"sums of parts fill the card: 9 tiles, 14 times", &h100, PLIM_CUDNN_GRAD_WEIGHT,
         PLIM_F32, 32, 64, 64, 3, 56, 56, false,
         2 * 25690112 + 147456 + 16 + 14 * 9 * 64 * 64 * 4},
        {"channels_last: nothing to copy", &h100, PLIM_CUDNN_FORWARD, PLIM_BF16, 64, 64, 64, 3,
         224, 224, true, 0},
        {"but sums of parts", &h100, PLIM_CUDNN_GRAD_WEIGHT, PLIM_F16, 64, 64, 64, 3, 224, 224,
         true, 13 * 9 * 64 * 64 * 4},
        {"without TF32: Winograd, for a weight", &h100_fp32, PLIM_CUDNN_GRAD_WEIGHT, PLIM_F32,
         32, 64, 64, 3, 224, 224, false, 1850277888},
        {"and channels_last is copied", &h100_fp32, PLIM_CUDNN_FORWARD, PLIM_F32, 8, 64, 64, 3,
         56, 56, true, 2 * 6422528 + 147456 + 16},
        {"before cuDNN 9: as on an A100", &h100_old, PLIM_CUDNN_FORWARD, PLIM_F32, 32, 64, 64,
         3, 56, 56, false, 25690112 + 147456},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const int64_t n = rows[i].batch, k = rows[i].kernel;
        const plim_cudnn_conv c = {
            .pass = rows[i].pass,
            .x = shape_of(rows[i].type, n, rows[i].in, rows[i].side, rows[i].side),
            .w = shape_of(rows[i].type, rows[i].out, rows[i].in, k, k),
            .y = shape_of(rows[i].type, n, rows[i].out, rows[i].out_side, rows[i].out_side),
            .channels_last = rows[i].channels_last};
        plim_cudnn_bytes got = plim_cudnn_ruled(rows[i].world, &c);
        check_bytes(rows[i].why, "usual", got.usual, rows[i].usual);
        CHECK(rows[i].why, got.low <= got.usual && got.usual <= got.high);
    }
}

/* ---- as measured --------------------------------------------------------------------- */

enum { TF32, FP32, BF16, FP16, NCHW, NHWC };

typedef struct took {
    int type, layout;
    int64_t batch, in, side, out, group, kernel, to, bytes[3];
} took;

static const took measured[] = {
#define PLIM_CUDNN_TOOK(type, layout, batch, in, side, out, group, kernel, to, forward,       \
                        input, weight)                                                        \
    {type, layout, batch, in, side, out, group, kernel, to, {forward, input, weight}},
#include "op/cudnn_h100.def"
#undef PLIM_CUDNN_TOOK
};

static plim_cudnn_conv conv_taken(const took *r, int pass)
{
    const plim_dtype t = r->type == BF16 ? PLIM_BF16 : r->type == FP16 ? PLIM_F16 : PLIM_F32;
    return (plim_cudnn_conv){.pass = (plim_cudnn_pass)pass,
                             .x = shape_of(t, r->batch, r->in, r->side, r->side),
                             .w = shape_of(t, r->out, r->group, r->kernel, r->kernel),
                             .y = shape_of(t, r->batch, r->out, r->to, r->to),
                             .channels_last = r->layout == NHWC};
}

static const plim_world *world_of(const took *r)
{
    return r->type == FP32 ? &h100_fp32 : &h100;
}

/* Each row is the answer on its card and cuDNN; with another cuDNN, or a search, it is what is
 * usual, within the bounds of the rules. */
static void test_measured(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(measured); i++)
        for (int pass = 0; pass < 3; pass++) {
            const plim_cudnn_conv c = conv_taken(&measured[i], pass);
            const int64_t bytes = measured[i].bytes[pass];
            plim_world other = *world_of(&measured[i]), tried = other;
            other.lib.torch = 210;
            tried.lib.benchmark = true;
            plim_cudnn_bytes n = plim_cudnn_workspace(world_of(&measured[i]), &c);
            if (bytes < 0) {
                CHECK("not measured", n.low == 0);
                continue;
            }
            check_bytes("measured", "usual", n.usual, (uint64_t)bytes);
            check_bytes("measured", "low", n.low, n.usual);
            check_bytes("measured", "high", n.high, n.usual);
            n = plim_cudnn_workspace(&other, &c);
            check_bytes("another cuDNN", "usual", n.usual, (uint64_t)bytes);
            CHECK("another cuDNN: a range", n.low == 0 && n.high >= n.usual);
            n = plim_cudnn_workspace(&tried, &c);
            CHECK("a search: a range", n.low == 0 && n.high >= n.usual);
        }
}

/* Only what is the same in every size is measured. */
static void test_like_measured(void **state)
{
    (void)state;
    const took row = {TF32, NCHW, 32, 64, 56, 64, 64, 3, 56, {25837584, 51527696, 53592743}};
    plim_cudnn_conv c = conv_taken(&row, PLIM_CUDNN_FORWARD);
    check_bytes("as it is", "high", plim_cudnn_workspace(&h100, &c).high, 25837584);
    c.x.dim[3] = 58;
    CHECK("not square", plim_cudnn_workspace(&h100, &c).low == 0);
    c = conv_taken(&row, PLIM_CUDNN_FORWARD);
    c.x.dim[0] = c.y.dim[0] = 32 + (1 << 16);
    CHECK("beyond 16 bits", plim_cudnn_workspace(&h100, &c).low == 0);
    c = conv_taken(&row, PLIM_CUDNN_FORWARD);
    c.x.dtype = c.w.dtype = c.y.dtype = PLIM_F64;
    CHECK("of no such type", plim_cudnn_workspace(&h100, &c).low == 0);
    c = conv_taken(&row, PLIM_CUDNN_FORWARD);
    check_bytes("before cuDNN 9: as on an A100", "usual",
                plim_cudnn_workspace(&h100_old, &c).usual, 25690112 + 147456);
}

typedef struct score {
    unsigned rows, equal, near, inside;
} score;

/* Equal: to 1 KiB, for the few hundred bytes that some kernels take.  Near: to 2 % of x and y. */
static void judge(const took *r, int pass, score *s)
{
    const plim_cudnn_conv c = conv_taken(r, pass);
    const plim_cudnn_bytes says = plim_cudnn_ruled(world_of(r), &c);
    const uint64_t bytes = (uint64_t)r->bytes[pass];
    const uint64_t off = says.usual > bytes ? says.usual - bytes : bytes - says.usual;
    uint64_t x = 0, y = 0;
    assert_true(plim_meta_bytes(&c.x, &x) && plim_meta_bytes(&c.y, &y));
    s->rows++;
    s->equal += off <= 1024;
    s->near += off <= PLIM_MAX((x + y) / 50, 1024);
    s->inside += bytes >= says.low && bytes <= PLIM_MAX(says.high, 1024);
}

/* How many of the measured workspaces the rules meet, which do not know them: no fewer may be. */
static void test_rules(void **state)
{
    (void)state;
    static const char *const names[] = {"forward", "of the input", "of the weight"};
    static const score least[] = {
        {1389, 1247, 1250, 1387}, {1399, 1258, 1265, 1399}, {1437, 971, 1061, 1432}};
    score got[3] = {0};
    for (size_t i = 0; i < PLIM_COUNT(measured); i++)
        for (int pass = 0; pass < 3; pass++)
            if (measured[i].bytes[pass] >= 0)
                judge(&measured[i], pass, &got[pass]);
    for (size_t i = 0; i < PLIM_COUNT(got); i++)
        if (got[i].rows != least[i].rows || got[i].equal < least[i].equal ||
            got[i].near < least[i].near || got[i].inside < least[i].inside)
            fail_msg("%s: of %u, %u are equal, %u near, %u within the bounds", names[i],
                     got[i].rows, got[i].equal, got[i].near, got[i].inside);
}

/* An input of 2^64 bytes and more: a sum would not be a number. */
static void test_huge(void **state)
{
    (void)state;
    plim_cudnn_conv c = conv_of(PLIM_CUDNN_GRAD_WEIGHT, PLIM_F32, 3, 14, 14);
    c.x.dim[0] = (int64_t)1 << 52;
    plim_cudnn_bytes n = plim_cudnn_workspace(&a100, &c);
    CHECK("beyond what is counted: none", !n.usual && !n.high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workspaces), cmocka_unit_test(test_hopper),
        cmocka_unit_test(test_measured),   cmocka_unit_test(test_like_measured),
        cmocka_unit_test(test_rules),      cmocka_unit_test(test_huge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
