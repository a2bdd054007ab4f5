/* mobilenet.c -- MobileNet V2 and V3.
 * src: torchvision/models/mobilenetv2.py, mobilenetv3.py. */
#include "zoo/zoo.h"

/* ---- V2 -------------------------------------------------------------------------- */

static uint32_t v2_block(plim_nn *n, uint32_t x, int64_t out, int64_t stride, int64_t expand)
{
    uint32_t input = x;
    int64_t in = plim_nn_dim(n, x, 1), hidden = in * expand;
    plim_nn_enter(n, NULL, "InvertedResidual");
    plim_nn_enter(n, "conv", "Sequential");
    if (expand != 1)
        x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = hidden}, PLIM_NORM,
                                  PLIM_RELU6_);
    x = plim_nn_conv_norm_act(
        n, NULL, x,
        (plim_conv){.out = hidden, .kernel = 3, .stride = stride, .groups = hidden}, PLIM_NORM,
        PLIM_RELU6_);
    x = plim_nn_conv2d(n, NULL, x, (plim_conv){.out = out});
    x = plim_nn_batch_norm2d(n, NULL, x, PLIM_NORM);
    plim_nn_leave(n);
    if (stride == 1 && in == out)
        x = plim_nn_binary(n, "aten.add.Tensor", input, x);
    plim_nn_leave(n);
    return x;
}

static void v2_build(plim_nn *n, const void *row, uint32_t x)
{
    static const struct {
        int64_t expand, out, repeat, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    (void)row;
    plim_nn_root(n, "MobileNetV2");
    plim_nn_enter(n, "features", "Sequential");
    x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = 32, .kernel = 3, .stride = 2},
                              PLIM_NORM, PLIM_RELU6_);
    for (size_t i = 0; i < PLIM_COUNT(stages); i++)
        for (int64_t k = 0; k < stages[i].repeat; k++)
            x = v2_block(n, x, stages[i].out, k ? 1 : stages[i].stride, stages[i].expand);
    x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = 1280}, PLIM_NORM, PLIM_RELU6_);
    plim_nn_leave(n);
    x = plim_nn_adaptive_avg_op(n, x, 1);
    x = plim_nn_flatten1(n, x);
    plim_nn_enter(n, "classifier", "Sequential");
    x = plim_nn_dropout(n, NULL, x, 0.2);
    x = plim_nn_linear(n, NULL, x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

/* ---- V3 -------------------------------------------------------------------------- */

typedef struct v3_block_row {
    int64_t kernel, expanded, out;
    bool se, hs; /* squeeze and excitation; hardswish, else relu */
    int64_t stride;
} v3_block_row;

typedef struct v3_row {
    const v3_block_row *blocks;
    uint32_t n;
    int64_t last;
} v3_row;

static const plim_norm v3_norm = {0.001, 0.01};

static uint32_t v3_block(plim_nn *n, uint32_t x, const v3_block_row *b)
{
    uint32_t input = x;
    int64_t in = plim_nn_dim(n, x, 1);
    int64_t quarter = b->expanded / 4;
    plim_act act = b->hs ? PLIM_HARDSWISH_ : PLIM_RELU_;
    plim_nn_enter(n, NULL, "InvertedResidual");
    plim_nn_enter(n, "block", "Sequential");
    if (b->expanded != in)
        x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = b->expanded}, v3_norm, act);
    x = plim_nn_conv_norm_act(n, NULL, x,
                              (plim_conv){.out = b->expanded,
                                          .kernel = b->kernel,
                                          .stride = b->stride,
                                          .groups = b->expanded},
                              v3_norm, act);
    if (b->se)
        x = plim_nn_squeeze_excite(n, NULL, x, plim_nn_make_divisible8((double)quarter),
                                   PLIM_RELU, PLIM_HARDSIGMOID);
    x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = b->out}, v3_norm, PLIM_ACT_NONE);
    plim_nn_leave(n);
    if (b->stride == 1 && in == b->out)
        x = plim_nn_binary(n, "aten.add_.Tensor", x, input);
    plim_nn_leave(n);
    return x;
}

static void v3_build(plim_nn *n, const void *row, uint32_t x)
{
    const v3_row *r = row;
    plim_nn_root(n, "MobileNetV3");
    plim_nn_enter(n, "features", "Sequential");
    x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = 16, .kernel = 3, .stride = 2},
                              v3_norm, PLIM_HARDSWISH_);
    for (uint32_t i = 0; i < r->n; i++)
        x = v3_block(n, x, &r->blocks[i]);
    x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = 6 * plim_nn_dim(n, x, 1)},
                              v3_norm, PLIM_HARDSWISH_);
    plim_nn_leave(n);
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    x = plim_nn_flatten1(n, x);
    plim_nn_enter(n, "classifier", "Sequential");
    x = plim_nn_linear(n, NULL, x, r->last, true);
    x = plim_nn_act(n, NULL, x, PLIM_HARDSWISH_);
    x = plim_nn_dropout_(n, NULL, x, 0.2);
    x = plim_nn_linear(n, NULL, x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

/* clang-format off */
/* kernel, expanded, out, se, hs, stride */
static const v3_block_row v3_large[] = {
    {3,  16,  16, false, false, 1},
    {3,  64,  24, false, false, 2},
    {3,  72,  24, false, false, 1},
    {5,  72,  40, true,  false, 2},
    {5, 120,  40, true,  false, 1},
    {5, 120,  40, true,  false, 1},
    {3, 240,  80, false, true,  2},
    {3, 200,  80, false, true,  1},
    {3, 184,  80, false, true,  1},
    {3, 184,  80, false, true,  1},
    {3, 480, 112, true,  true,  1},
    {3, 672, 112, true,  true,  1},
    {5, 672, 160, true,  true,  2},
    {5, 960, 160, true,  true,  1},
    {5, 960, 160, true,  true,  1},
};
static const v3_block_row v3_small[] = {
    {3,  16, 16, true,  false, 2},
    {3,  72, 24, false, false, 2},
    {3,  88, 24, false, false, 1},
    {5,  96, 40, true,  true,  2},
    {5, 240, 40, true,  true,  1},
    {5, 240, 40, true,  true,  1},
    {5, 120, 48, true,  true,  1},
    {5, 144, 48, true,  true,  1},
    {5, 288, 96, true,  true,  2},
    {5, 576, 96, true,  true,  1},
    {5, 576, 96, true,  true,  1},
};
/* clang-format on */

static const plim_zoo_model mobilenet_models[] = {
    {.name = "mobilenet_v2",
     .doc = "MobileNet V2",
     .src = "torchvision 0.20 models/mobilenetv2.py",
     .parameters = 3504872,
     .input = {3, 224, 224},
     .build = v2_build},
    {.name = "mobilenet_v3_small",
     .doc = "MobileNet V3 Small",
     .src = "torchvision 0.20 models/mobilenetv3.py",
     .parameters = 2542856,
     .input = {3, 224, 224},
     .build = v3_build,
     .row = &(const v3_row){v3_small, PLIM_COUNT(v3_small), 1024}},
    {.name = "mobilenet_v3_large",
     .doc = "MobileNet V3 Large",
     .src = "torchvision 0.20 models/mobilenetv3.py",
     .parameters = 5483032,
     .input = {3, 224, 224},
     .build = v3_build,
     .row = &(const v3_row){v3_large, PLIM_COUNT(v3_large), 1280}},
};
PLIM_ZOO_FAMILY(mobilenet, "mobilenet");
