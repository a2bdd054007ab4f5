/* test_cudnn.c -- cuDNN's workspace of single convolutions, in bytes worked out by hand. */
#include <inttypes.h>

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
    W3 = 16 * 8 * 9 * 4
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
                        search = {.lib = {.torch = 215, .benchmark = true}, .cc = 80};

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
         14, 0, (X + Y) / 4 * 9 + 4 * W3},
        {"allow_tf32 off: the same", &exact, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14, 0,
         (X + Y) / 4 * 9 + 4 * W3},
        {"Winograd is of stride 1", &exact, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 7, 0,
         2 * (X + Y / 4 + W3)},
        {"fp64: none", &a100, PLIM_CUDNN_FORWARD, PLIM_F64, 3, 14, 14, 0, 2 * TWICE3},
        {"before PyTorch 2.0: none", &old, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14, 0,
         (X + Y) / 4 * 9 + 4 * W3},
        {"the search may choose Winograd", &search, PLIM_CUDNN_FORWARD, PLIM_F32, 3, 14, 14,
         X + W3, (X + Y) / 4 * 9 + 4 * W3},
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workspaces),
                                       cmocka_unit_test(test_huge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
