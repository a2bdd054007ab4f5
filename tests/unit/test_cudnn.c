/* test_cudnn.c -- cuDNN's workspace of single convolutions: in bytes worked out by hand, and as an
 * H100 took it (tests/golden/gpu/h100-cudnn9.19-workspaces.txt). */
#include <inttypes.h>
#include <stdio.h>
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
        plim_cudnn_bytes got = plim_cudnn_workspace(rows[i].world, &c);
        check_bytes(rows[i].why, "usual", got.usual, rows[i].usual);
        CHECK(rows[i].why, got.low <= got.usual && got.usual <= got.high);
    }
}

typedef struct score {
    unsigned rows, equal, near, inside;
} score;

/* Equal: to 1 KiB, for the few hundred bytes that some kernels take.  Near: to 2 % of x and y. */
static void judge(const plim_world *world, const plim_cudnn_conv *c, uint64_t took, score *s)
{
    const plim_cudnn_bytes says = plim_cudnn_workspace(world, c);
    const uint64_t off = says.usual > took ? says.usual - took : took - says.usual;
    uint64_t x = 0, y = 0;
    assert_true(plim_meta_bytes(&c->x, &x) && plim_meta_bytes(&c->y, &y));
    s->rows++;
    s->equal += off <= 1024;
    s->near += off <= PLIM_MAX((x + y) / 50, 1024);
    s->inside += took >= says.low && took <= PLIM_MAX(says.high, 1024);
}

static void judge_line(const char *line, score by_pass[3])
{
    char type[8], layout[8], took[3][24];
    long long n, in, side, out, group, kernel, to;
    if (sscanf(line, "%7s %7s %lldx%lldx%lld %lldx%lldx%lld %lld %23s %23s %23s", type, layout,
               &n, &in, &side, &out, &group, &kernel, &to, took[0], took[1], took[2]) != 12)
        fail_msg("not a convolution: %s", line);
    const plim_dtype t = !strcmp(type, "bf16")   ? PLIM_BF16
                         : !strcmp(type, "fp16") ? PLIM_F16
                                                 : PLIM_F32;
    plim_cudnn_conv c = {.x = shape_of(t, n, in, side, side),
                         .w = shape_of(t, out, group, kernel, kernel),
                         .y = shape_of(t, n, out, to, to),
                         .channels_last = !strcmp(layout, "nhwc")};
    for (int pass = 0; pass < 3; pass++) {
        unsigned long long bytes;
        c.pass = (plim_cudnn_pass)pass;
        if (sscanf(took[pass], "%llu", &bytes) == 1)
            judge(strcmp(type, "fp32") ? &h100 : &h100_fp32, &c, bytes, &by_pass[pass]);
    }
}

/* How many of the recorded workspaces the rules meet: no fewer may be. */
static void test_recorded(void **state)
{
    (void)state;
    static const char *const names[] = {"forward", "of the input", "of the weight"};
    static const score least[] = {
        {1134, 1008, 1010, 1132}, {1144, 1026, 1030, 1144}, {1182, 759, 838, 1177}};
    score got[3] = {0};
    char line[160];
    FILE *f = fopen(PLIM_SOURCE_DIR "/tests/golden/gpu/h100-cudnn9.19-workspaces.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (line[0] != '#')
            judge_line(line, got);
    (void)fclose(f);
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
        cmocka_unit_test(test_recorded), cmocka_unit_test(test_huge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
