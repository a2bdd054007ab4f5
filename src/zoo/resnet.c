/* resnet.c -- ResNet, Wide ResNet, ResNeXt.  src: torchvision/models/resnet.py. */
#include "zoo/zoo.h"

typedef struct resnet_row {
    bool bottleneck;
    int layers[4];
    int64_t groups, width; /* of the 3x3 convolutions: width per group, base 64 */
} resnet_row;

static uint32_t basic_block(plim_nn *n, uint32_t x, int64_t planes, int64_t stride)
{
    x = plim_nn_conv2d(n, "conv1", x,
                       (plim_conv){.out = planes, .kernel = 3, .stride = stride, .pad = 1});
    x = plim_nn_batch_norm2d(n, "bn1", x, PLIM_NORM);
    x = plim_nn_act(n, "relu", x, PLIM_RELU_);
    x = plim_nn_conv2d(n, "conv2", x, (plim_conv){.out = planes, .kernel = 3, .pad = 1});
    return plim_nn_batch_norm2d(n, "bn2", x, PLIM_NORM);
}

static uint32_t bottleneck_block(plim_nn *n, const resnet_row *r, uint32_t x, int64_t planes,
                                 int64_t stride)
{
    int64_t width = planes * r->width / 64 * r->groups;
    x = plim_nn_conv2d(n, "conv1", x, (plim_conv){.out = width});
    x = plim_nn_batch_norm2d(n, "bn1", x, PLIM_NORM);
    x = plim_nn_act(n, "relu", x, PLIM_RELU_);
    x = plim_nn_conv2d(
        n, "conv2", x,
        (plim_conv){
            .out = width, .kernel = 3, .stride = stride, .pad = 1, .groups = r->groups});
    x = plim_nn_batch_norm2d(n, "bn2", x, PLIM_NORM);
    x = plim_nn_act(n, "relu", x, PLIM_RELU_);
    x = plim_nn_conv2d(n, "conv3", x, (plim_conv){.out = planes * 4});
    return plim_nn_batch_norm2d(n, "bn3", x, PLIM_NORM);
}

static uint32_t residual_block(plim_nn *n, const resnet_row *r, uint32_t x, int64_t planes,
                               int64_t stride)
{
    int64_t out = r->bottleneck ? planes * 4 : planes;
    uint32_t identity = x;
    plim_nn_enter(n, NULL, r->bottleneck ? "Bottleneck" : "BasicBlock");
    x = r->bottleneck ? bottleneck_block(n, r, x, planes, stride)
                      : basic_block(n, x, planes, stride);
    if (stride != 1 || plim_nn_dim(n, identity, 1) != out) {
        plim_nn_enter(n, "downsample", "Sequential");
        identity =
            plim_nn_conv2d(n, NULL, identity, (plim_conv){.out = out, .stride = stride});
        identity = plim_nn_batch_norm2d(n, NULL, identity, PLIM_NORM);
        plim_nn_leave(n);
    }
    x = plim_nn_binary(n, "aten.add_.Tensor", x, identity);
    x = plim_nn_act(n, "relu", x, PLIM_RELU_);
    plim_nn_leave(n);
    return x;
}

static void resnet_build(plim_nn *n, const void *row, uint32_t x)
{
    const resnet_row *r = row;
    plim_nn_root(n, "ResNet");
    x = plim_nn_conv2d(n, "conv1", x,
                       (plim_conv){.out = 64, .kernel = 7, .stride = 2, .pad = 3});
    x = plim_nn_batch_norm2d(n, "bn1", x, PLIM_NORM);
    x = plim_nn_act(n, "relu", x, PLIM_RELU_);
    x = plim_nn_max_pool2d(n, "maxpool", x, 3, 2, 1, false);
    for (int i = 0; i < 4; i++) {
        plim_nn_enter(n, plim_nn_name(n, "layer", i + 1), "Sequential");
        for (int k = 0; k < r->layers[i]; k++)
            x = residual_block(n, r, x, 64 << i, i && !k ? 2 : 1);
        plim_nn_leave(n);
    }
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    x = plim_nn_flatten1(n, x);
    plim_nn_output(n, plim_nn_linear(n, "fc", x, 1000, true));
}

/* clang-format off */
#define RESNET(NAME, ALIAS, DOC, PARAMETERS, ...) \
    {.name = NAME, .alias = ALIAS, .doc = DOC, .src = "torchvision 0.20 models/resnet.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = resnet_build, .row = &(const resnet_row){__VA_ARGS__}}
static const plim_zoo_model resnet_models[] = {
    RESNET("resnet18",          NULL,        "ResNet, 18 layers",                                 11689512, false, {2, 2, 2, 2},  1, 64),
    RESNET("resnet34",          NULL,        "ResNet, 34 layers",                                 21797672, false, {3, 4, 6, 3},  1, 64),
    RESNET("resnet50",          NULL,        "ResNet, 50 layers (stride in the 3x3, v1.5)",       25557032, true,  {3, 4, 6, 3},  1, 64),
    RESNET("resnet101",         NULL,        "ResNet, 101 layers",                                44549160, true,  {3, 4, 23, 3}, 1, 64),
    RESNET("resnet152",         NULL,        "ResNet, 152 layers",                                60192808, true,  {3, 8, 36, 3}, 1, 64),
    RESNET("resnext50_32x4d",   "resnext50", "ResNeXt, 50 layers, 32 groups of 4",                25028904, true,  {3, 4, 6, 3},  32, 4),
    RESNET("resnext101_32x8d",  "resnext101", "ResNeXt, 101 layers, 32 groups of 8",              88791336, true,  {3, 4, 23, 3}, 32, 8),
    RESNET("resnext101_64x4d",  NULL,        "ResNeXt, 101 layers, 64 groups of 4",               83455272, true,  {3, 4, 23, 3}, 64, 4),
    RESNET("wide_resnet50_2",   NULL,        "Wide ResNet, 50 layers, twice the inner channels",  68883240, true,  {3, 4, 6, 3},  1, 128),
    RESNET("wide_resnet101_2",  NULL,        "Wide ResNet, 101 layers, twice the inner channels", 126886696, true, {3, 4, 23, 3}, 1, 128),
};
/* clang-format on */
PLIM_ZOO_FAMILY(resnet, "resnet");
