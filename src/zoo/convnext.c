/* convnext.c -- src: torchvision/models/convnext.py. */
#include "zoo/zoo.h"

typedef struct convnext_row {
    int64_t dim;
    int layers[4];
    double drop; /* stochastic depth of the last block */
} convnext_row;

/* LayerNorm2d: over channels, through a permuted view. */
static uint32_t layer_norm2d(plim_nn *n, uint32_t x)
{
    plim_nn_enter(n, NULL, "LayerNorm2d");
    x = plim_nn_permute(n, x, INTS(0, 2, 3, 1));
    x = plim_nn_layer_norm_op(n, x, 1e-6);
    x = plim_nn_permute(n, x, INTS(0, 3, 1, 2));
    plim_nn_leave(n);
    return x;
}

static uint32_t cn_block(plim_nn *n, uint32_t x, double drop)
{
    uint32_t input = x;
    int64_t dim = plim_nn_dim(n, x, 1);
    plim_nn_enter(n, NULL, "CNBlock");
    uint32_t scale = plim_nn_param(n, "layer_scale", INTS(dim, 1, 1));
    plim_nn_enter(n, "block", "Sequential");
    x = plim_nn_conv2d(
        n, NULL, x,
        (plim_conv){.out = dim, .kernel = 7, .pad = 3, .groups = dim, .bias = true});
    x = plim_nn_permute_module(n, NULL, x, INTS(0, 2, 3, 1));
    x = plim_nn_layer_norm(n, NULL, x, 1e-6);
    x = plim_nn_linear(n, NULL, x, 4 * dim, true);
    x = plim_nn_act(n, NULL, x, PLIM_GELU);
    x = plim_nn_linear(n, NULL, x, dim, true);
    x = plim_nn_permute_module(n, NULL, x, INTS(0, 3, 1, 2));
    plim_nn_leave(n);
    x = plim_nn_binary(n, "aten.mul.Tensor", scale, x);
    x = plim_nn_stochastic_depth(n, x, drop);
    x = plim_nn_binary(n, "aten.add_.Tensor", x, input);
    plim_nn_leave(n);
    return x;
}

static void convnext_build(plim_nn *n, const void *row, uint32_t x)
{
    const convnext_row *r = row;
    int total = 0, id = 0;
    for (int i = 0; i < 4; i++)
        total += r->layers[i];
    plim_nn_root(n, "ConvNeXt");
    plim_nn_enter(n, "features", "Sequential");
    plim_nn_enter(n, NULL, "Conv2dNormActivation");
    x = plim_nn_conv2d(n, NULL, x,
                       (plim_conv){.out = r->dim, .kernel = 4, .stride = 4, .bias = true});
    x = layer_norm2d(n, x);
    plim_nn_leave(n);
    for (int i = 0; i < 4; i++) {
        plim_nn_enter(n, NULL, "Sequential");
        for (int k = 0; k < r->layers[i]; k++, id++)
            x = cn_block(n, x, r->drop * id / (total - 1.0));
        plim_nn_leave(n);
        if (i == 3)
            break;
        plim_nn_enter(n, NULL, "Sequential");
        x = layer_norm2d(n, x);
        x = plim_nn_conv2d(
            n, NULL, x,
            (plim_conv){.out = r->dim << (i + 1), .kernel = 2, .stride = 2, .bias = true});
        plim_nn_leave(n);
    }
    plim_nn_leave(n);
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    plim_nn_enter(n, "classifier", "Sequential");
    x = layer_norm2d(n, x);
    plim_nn_enter(n, NULL, "Flatten");
    x = plim_nn_flatten1(n, x);
    plim_nn_leave(n);
    x = plim_nn_linear(n, NULL, x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

/* clang-format off */
#define CONVNEXT(NAME, DOC, PARAMETERS, ...) \
    {.name = NAME, .doc = DOC, .src = "torchvision 0.20 models/convnext.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = convnext_build, .row = &(const convnext_row){__VA_ARGS__}}
static const plim_zoo_model convnext_models[] = {
    CONVNEXT("convnext_tiny",  "ConvNeXt Tiny",   28589128,  96, {3, 3, 9, 3},  0.1),
    CONVNEXT("convnext_small", "ConvNeXt Small",  50223688,  96, {3, 3, 27, 3}, 0.4),
    CONVNEXT("convnext_base",  "ConvNeXt Base",   88591464, 128, {3, 3, 27, 3}, 0.5),
    CONVNEXT("convnext_large", "ConvNeXt Large", 197767336, 192, {3, 3, 27, 3}, 0.5),
};
/* clang-format on */
PLIM_ZOO_FAMILY(convnext, "convnext");
