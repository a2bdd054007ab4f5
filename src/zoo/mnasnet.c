/* mnasnet.c -- MNASNet B1.  src: torchvision/models/mnasnet.py. */
#include "zoo/zoo.h"

typedef struct mnasnet_row {
    int64_t depths[8]; /* _get_depths(alpha) */
} mnasnet_row;

static const plim_norm mnas_norm = {1e-5, 1 - 0.9997}; /* _BN_MOMENTUM */

/* The three members of the module list for one convolution. */
static uint32_t conv_bn(plim_nn *n, uint32_t x, plim_conv c, bool relu)
{
    c.pad = c.kernel / 2;
    x = plim_nn_conv2d(n, NULL, x, c);
    x = plim_nn_batch_norm2d(n, NULL, x, mnas_norm);
    return relu ? plim_nn_act(n, NULL, x, PLIM_RELU_) : x;
}

static uint32_t inverted_residual(plim_nn *n, uint32_t x, int64_t out, int64_t kernel,
                                  int64_t stride, int64_t expand)
{
    uint32_t input = x;
    int64_t in = plim_nn_dim(n, x, 1), mid = in * expand;
    plim_nn_enter(n, NULL, "_InvertedResidual");
    plim_nn_enter(n, "layers", "Sequential");
    x = conv_bn(n, x, (plim_conv){.out = mid}, true);
    x = conv_bn(n, x,
                (plim_conv){.out = mid, .kernel = kernel, .stride = stride, .groups = mid},
                true);
    x = conv_bn(n, x, (plim_conv){.out = out}, false);
    plim_nn_leave(n);
    if (stride == 1 && in == out)
        x = plim_nn_binary(n, "aten.add.Tensor", x, input);
    plim_nn_leave(n);
    return x;
}

static void mnasnet_build(plim_nn *n, const void *row, uint32_t x)
{
    static const struct {
        int64_t kernel, stride, expand, repeats;
    } stacks[] = {{3, 2, 3, 3}, {5, 2, 3, 3}, {5, 2, 6, 3},
                  {3, 1, 6, 2}, {5, 2, 6, 4}, {3, 1, 6, 1}};
    const int64_t *d = ((const mnasnet_row *)row)->depths;
    plim_nn_root(n, "MNASNet");
    plim_nn_enter(n, "layers", "Sequential");
    x = conv_bn(n, x, (plim_conv){.out = d[0], .kernel = 3, .stride = 2}, true);
    x = conv_bn(n, x, (plim_conv){.out = d[0], .kernel = 3, .groups = d[0]}, true);
    x = conv_bn(n, x, (plim_conv){.out = d[1]}, false);
    for (size_t i = 0; i < PLIM_COUNT(stacks); i++) {
        plim_nn_enter(n, NULL, "Sequential");
        for (int64_t k = 0; k < stacks[i].repeats; k++)
            x = inverted_residual(n, x, d[i + 2], stacks[i].kernel, k ? 1 : stacks[i].stride,
                                  stacks[i].expand);
        plim_nn_leave(n);
    }
    x = conv_bn(n, x, (plim_conv){.out = 1280}, true);
    plim_nn_leave(n);
    x = plim_nn_mean_hw(n, x);
    plim_nn_enter(n, "classifier", "Sequential");
    x = plim_nn_dropout_(n, NULL, x, 0.2);
    x = plim_nn_linear(n, NULL, x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

/* clang-format off */
#define MNASNET(NAME, ALIAS, DOC, PARAMETERS, ...) \
    {.name = NAME, .alias = ALIAS, .doc = DOC, .src = "torchvision 0.20 models/mnasnet.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = mnasnet_build, .row = &(const mnasnet_row){{__VA_ARGS__}}}
static const plim_zoo_model mnasnet_models[] = {
    MNASNET("mnasnet0_5",  NULL,      "MNASNet B1, half the channels", 2218512, 16,  8, 16, 24,  40,  48,  96, 160),
    MNASNET("mnasnet0_75", NULL,      "MNASNet B1, 0.75 of the channels", 3170208, 24, 16, 24, 32, 64, 72, 144, 240),
    MNASNET("mnasnet1_0",  "mnasnet", "MNASNet B1",                    4383312, 32, 16, 24, 40,  80,  96, 192, 320),
    MNASNET("mnasnet1_3",  NULL,      "MNASNet B1, 1.3 of the channels", 6282256, 40, 24, 32, 56, 104, 128, 248, 416),
};
/* clang-format on */
PLIM_ZOO_FAMILY(mnasnet, "mnasnet");
