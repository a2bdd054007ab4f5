/* efficientnet.c -- src: torchvision/models/efficientnet.py. */
#include "zoo/zoo.h"

typedef struct efficientnet_row {
    double width, depth, dropout;
    plim_norm norm;
} efficientnet_row;

typedef struct stage_row {
    int64_t expand, kernel, stride, in, out, layers;
} stage_row;

static const stage_row stages[] = {
    {1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},   {6, 5, 2, 24, 40, 2},  {6, 3, 2, 40, 80, 3},
    {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4}, {6, 3, 1, 192, 320, 1}};

/* int(math.ceil(num_layers * depth_mult)) */
static int64_t stage_layers(const efficientnet_row *r, const stage_row *s)
{
    double d = (double)s->layers * r->depth;
    int64_t k = (int64_t)d;
    return (double)k < d ? k + 1 : k;
}

static uint32_t mbconv_block(plim_nn *n, const efficientnet_row *r, const stage_row *s,
                             uint32_t x, int64_t out, int64_t stride, double drop)
{
    uint32_t input = x;
    int64_t in = plim_nn_dim(n, x, 1);
    int64_t expanded = plim_nn_make_divisible8((double)(in * s->expand));
    plim_nn_enter(n, NULL, "MBConv");
    plim_nn_enter(n, "block", "Sequential");
    if (expanded != in)
        x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = expanded}, r->norm,
                                  PLIM_SILU_);
    x = plim_nn_conv_norm_act(
        n, NULL, x,
        (plim_conv){
            .out = expanded, .kernel = s->kernel, .stride = stride, .groups = expanded},
        r->norm, PLIM_SILU_);
    x = plim_nn_squeeze_excite(n, NULL, x, PLIM_MAX(in / 4, 1), PLIM_SILU_, PLIM_SIGMOID);
    x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = out}, r->norm, PLIM_ACT_NONE);
    plim_nn_leave(n);
    if (stride == 1 && in == out) {
        x = plim_nn_stochastic_depth(n, x, drop);
        x = plim_nn_binary(n, "aten.add_.Tensor", x, input);
    }
    plim_nn_leave(n);
    return x;
}

static void efficientnet_build(plim_nn *n, const void *row, uint32_t x)
{
    const efficientnet_row *r = row;
    int64_t total = 0, id = 0;
    for (size_t i = 0; i < PLIM_COUNT(stages); i++)
        total += stage_layers(r, &stages[i]);
    plim_nn_root(n, "EfficientNet");
    plim_nn_enter(n, "features", "Sequential");
    x = plim_nn_conv_norm_act(
        n, NULL, x,
        (plim_conv){.out = plim_nn_make_divisible8(32 * r->width), .kernel = 3, .stride = 2},
        r->norm, PLIM_SILU_);
    for (size_t i = 0; i < PLIM_COUNT(stages); i++) {
        const stage_row *s = &stages[i];
        int64_t out = plim_nn_make_divisible8((double)s->out * r->width);
        plim_nn_enter(n, NULL, "Sequential");
        for (int64_t k = 0; k < stage_layers(r, s); k++, id++)
            x = mbconv_block(n, r, s, x, out, k ? 1 : s->stride,
                             0.2 * (double)id / (double)total);
        plim_nn_leave(n);
    }
    x = plim_nn_conv_norm_act(n, NULL, x, (plim_conv){.out = 4 * plim_nn_dim(n, x, 1)},
                              r->norm, PLIM_SILU_);
    plim_nn_leave(n);
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    x = plim_nn_flatten1(n, x);
    plim_nn_enter(n, "classifier", "Sequential");
    x = plim_nn_dropout_(n, NULL, x, r->dropout);
    x = plim_nn_linear(n, NULL, x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

/* clang-format off */
#define EFFICIENTNET(NAME, DOC, PARAMETERS, SIZE, ...) \
    {.name = NAME, .doc = DOC, .src = "torchvision 0.20 models/efficientnet.py", .parameters = PARAMETERS, \
     .input = {3, SIZE, SIZE}, .build = efficientnet_build, .row = &(const efficientnet_row){__VA_ARGS__}}
/* The image size is the crop at which torchvision counted its GFLOPS. */
static const plim_zoo_model efficientnet_models[] = {
    EFFICIENTNET("efficientnet_b0", "EfficientNet B0",  5288548, 224, 1.0, 1.0, 0.2, {1e-5, 0.1}),
    EFFICIENTNET("efficientnet_b1", "EfficientNet B1",  7794184, 240, 1.0, 1.1, 0.2, {1e-5, 0.1}),
    EFFICIENTNET("efficientnet_b2", "EfficientNet B2",  9109994, 288, 1.1, 1.2, 0.3, {1e-5, 0.1}),
    EFFICIENTNET("efficientnet_b3", "EfficientNet B3", 12233232, 300, 1.2, 1.4, 0.3, {1e-5, 0.1}),
    EFFICIENTNET("efficientnet_b4", "EfficientNet B4", 19341616, 380, 1.4, 1.8, 0.4, {1e-5, 0.1}),
    EFFICIENTNET("efficientnet_b5", "EfficientNet B5", 30389784, 456, 1.6, 2.2, 0.4, {0.001, 0.01}),
    EFFICIENTNET("efficientnet_b6", "EfficientNet B6", 43040704, 528, 1.8, 2.6, 0.5, {0.001, 0.01}),
    EFFICIENTNET("efficientnet_b7", "EfficientNet B7", 66347960, 600, 2.0, 3.1, 0.5, {0.001, 0.01}),
};
/* clang-format on */
PLIM_ZOO_FAMILY(efficientnet, "efficientnet");
