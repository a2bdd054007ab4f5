/* shufflenet.c -- ShuffleNet V2.  src: torchvision/models/shufflenetv2.py. */
#include "zoo/zoo.h"

typedef struct shufflenet_row {
    int64_t out[5]; /* conv1, three stages, conv5 */
} shufflenet_row;

static uint32_t conv_bn(plim_nn *n, uint32_t x, plim_conv c, bool relu)
{
    x = plim_nn_conv2d(n, NULL, x, c);
    x = plim_nn_batch_norm2d(n, NULL, x, PLIM_NORM);
    return relu ? plim_nn_act(n, NULL, x, PLIM_RELU_) : x;
}

static uint32_t depthwise_conv(plim_nn *n, uint32_t x, int64_t stride)
{
    int64_t c = plim_nn_dim(n, x, 1);
    return conv_bn(n, x,
                   (plim_conv){.out = c, .kernel = 3, .stride = stride, .pad = 1, .groups = c},
                   false);
}

static uint32_t channel_shuffle(plim_nn *n, uint32_t x, int64_t groups)
{
    int64_t b = plim_nn_dim(n, x, 0), c = plim_nn_dim(n, x, 1), h = plim_nn_dim(n, x, 2),
            w = plim_nn_dim(n, x, 3);
    x = plim_nn_view(n, x, INTS(b, groups, c / groups, h, w));
    x = plim_nn_transpose(n, x, 1, 2);
    x = plim_nn_contiguous(n, x);
    return plim_nn_view(n, x, INTS(b, c, h, w));
}

static uint32_t inverted_residual(plim_nn *n, uint32_t x, int64_t out, int64_t stride)
{
    uint32_t half[2] = {x, x}; /* the inputs of the two branches */
    plim_nn_enter(n, NULL, "InvertedResidual");
    if (stride == 1) {
        plim_named_arg a[] = {ARG_T("self", x), ARG_I("chunks", 2), ARG_I("dim", 1)};
        plim_nn_node(n, "aten.chunk.default", a, 3, half, 2);
    } else {
        plim_nn_enter(n, "branch1", "Sequential");
        half[0] = depthwise_conv(n, x, stride);
        half[0] = conv_bn(n, half[0], (plim_conv){.out = out / 2}, true);
        plim_nn_leave(n);
    }
    plim_nn_enter(n, "branch2", "Sequential");
    half[1] = conv_bn(n, half[1], (plim_conv){.out = out / 2}, true);
    half[1] = depthwise_conv(n, half[1], stride);
    half[1] = conv_bn(n, half[1], (plim_conv){.out = out / 2}, true);
    plim_nn_leave(n);
    x = channel_shuffle(n, plim_nn_cat(n, half, 2, 1), 2);
    plim_nn_leave(n);
    return x;
}

static void shufflenet_build(plim_nn *n, const void *row, uint32_t x)
{
    static const int repeats[3] = {4, 8, 4};
    const shufflenet_row *r = row;
    plim_nn_root(n, "ShuffleNetV2");
    plim_nn_enter(n, "conv1", "Sequential");
    x = conv_bn(n, x, (plim_conv){.out = r->out[0], .kernel = 3, .stride = 2, .pad = 1}, true);
    plim_nn_leave(n);
    x = plim_nn_max_pool2d(n, "maxpool", x, 3, 2, 1, false);
    for (int i = 0; i < 3; i++) {
        plim_nn_enter(n, plim_nn_name(n, "stage", i + 2), "Sequential");
        for (int k = 0; k < repeats[i]; k++)
            x = inverted_residual(n, x, r->out[i + 1], k ? 1 : 2);
        plim_nn_leave(n);
    }
    plim_nn_enter(n, "conv5", "Sequential");
    x = conv_bn(n, x, (plim_conv){.out = r->out[4]}, true);
    plim_nn_leave(n);
    x = plim_nn_mean_hw(n, x);
    plim_nn_output(n, plim_nn_linear(n, "fc", x, 1000, true));
}

/* clang-format off */
#define SHUFFLENET(NAME, ALIAS, DOC, PARAMETERS, ...) \
    {.name = NAME, .alias = ALIAS, .doc = DOC, .src = "torchvision 0.20 models/shufflenetv2.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = shufflenet_build, .row = &(const shufflenet_row){{__VA_ARGS__}}}
static const plim_zoo_model shufflenet_models[] = {
    SHUFFLENET("shufflenet_v2_x0_5", NULL,            "ShuffleNet V2, half the channels",    1366792, 24,  48,  96, 192, 1024),
    SHUFFLENET("shufflenet_v2_x1_0", "shufflenet_v2", "ShuffleNet V2",                       2278604, 24, 116, 232, 464, 1024),
    SHUFFLENET("shufflenet_v2_x1_5", NULL,            "ShuffleNet V2, 1.5 times the channels", 3503624, 24, 176, 352, 704, 1024),
    SHUFFLENET("shufflenet_v2_x2_0", NULL,            "ShuffleNet V2, twice the channels",   7393996, 24, 244, 488, 976, 2048),
};
/* clang-format on */
PLIM_ZOO_FAMILY(shufflenet, "shufflenet");
