/* squeezenet.c -- src: torchvision/models/squeezenet.py. */
#include "zoo/zoo.h"

typedef struct squeezenet_row {
    int64_t stem, stem_kernel;
    int pool_before[3]; /* Fire modules, counted from 0, with a pool before them */
} squeezenet_row;

static uint32_t conv_relu(plim_nn *n, const char *name, const char *act, uint32_t x,
                          int64_t out, int64_t kernel)
{
    x = plim_nn_conv2d(
        n, name, x,
        (plim_conv){.out = out, .kernel = kernel, .pad = kernel / 2, .bias = true});
    return plim_nn_act(n, act, x, PLIM_RELU_);
}

static uint32_t fire_block(plim_nn *n, uint32_t x, int64_t squeeze, int64_t expand)
{
    uint32_t e[2];
    plim_nn_enter(n, NULL, "Fire");
    x = conv_relu(n, "squeeze", "squeeze_activation", x, squeeze, 1);
    e[0] = conv_relu(n, "expand1x1", "expand1x1_activation", x, expand, 1);
    e[1] = conv_relu(n, "expand3x3", "expand3x3_activation", x, expand, 3);
    x = plim_nn_cat(n, e, 2, 1);
    plim_nn_leave(n);
    return x;
}

static void squeezenet_build(plim_nn *n, const void *row, uint32_t x)
{
    static const int64_t squeeze[8] = {16, 16, 32, 32, 48, 48, 64, 64};
    const squeezenet_row *r = row;
    plim_nn_root(n, "SqueezeNet");
    plim_nn_enter(n, "features", "Sequential");
    x = plim_nn_conv2d(
        n, NULL, x,
        (plim_conv){.out = r->stem, .kernel = r->stem_kernel, .stride = 2, .bias = true});
    x = plim_nn_act(n, NULL, x, PLIM_RELU_);
    for (int i = 0; i < 8; i++) {
        if (i == r->pool_before[0] || i == r->pool_before[1] || i == r->pool_before[2])
            x = plim_nn_max_pool2d(n, NULL, x, 3, 2, 0, true);
        x = fire_block(n, x, squeeze[i], 4 * squeeze[i]);
    }
    plim_nn_leave(n);
    plim_nn_enter(n, "classifier", "Sequential");
    x = plim_nn_dropout(n, NULL, x, 0.5);
    x = plim_nn_conv2d(n, NULL, x, (plim_conv){.out = 1000, .bias = true});
    x = plim_nn_act(n, NULL, x, PLIM_RELU_);
    x = plim_nn_adaptive_avg_pool2d(n, NULL, x, 1);
    plim_nn_leave(n);
    plim_nn_output(n, plim_nn_flatten1(n, x));
}

/* clang-format off */
#define SQUEEZENET(NAME, DOC, PARAMETERS, ...) \
    {.name = NAME, .doc = DOC, .src = "torchvision 0.20 models/squeezenet.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = squeezenet_build, .row = &(const squeezenet_row){__VA_ARGS__}}
static const plim_zoo_model squeezenet_models[] = {
    SQUEEZENET("squeezenet1_0", "SqueezeNet 1.0",                     1248424, 96, 7, {0, 3, 7}),
    SQUEEZENET("squeezenet1_1", "SqueezeNet 1.1, less work than 1.0", 1235496, 64, 3, {0, 2, 4}),
};
/* clang-format on */
PLIM_ZOO_FAMILY(squeezenet, "squeezenet");
