/* densenet.c -- src: torchvision/models/densenet.py. */
#include "zoo/zoo.h"

typedef struct densenet_row {
    int64_t growth;
    int layers[4];
    int64_t stem;
} densenet_row;

enum { MAX_LAYERS = 48, BN_SIZE = 4 };

static uint32_t dense_layer(plim_nn *n, int index, const uint32_t *features, int64_t growth)
{
    plim_nn_enter(n, plim_nn_name(n, "denselayer", index), "_DenseLayer");
    uint32_t all = plim_nn_cat(n, features, (uint32_t)index, 1);
    uint32_t x = plim_nn_batch_norm2d(n, "norm1", all, PLIM_NORM);
    x = plim_nn_act(n, "relu1", x, PLIM_RELU_);
    x = plim_nn_conv2d(n, "conv1", x, (plim_conv){.out = BN_SIZE * growth});
    plim_nn_ends(n, all); /* bn_function's variable */
    plim_nn_holds(n, x);  /* bottleneck_output */
    x = plim_nn_batch_norm2d(n, "norm2", x, PLIM_NORM);
    x = plim_nn_act(n, "relu2", x, PLIM_RELU_);
    x = plim_nn_conv2d(n, "conv2", x, (plim_conv){.out = growth, .kernel = 3, .pad = 1});
    plim_nn_leave(n);
    return x;
}

static uint32_t dense_block(plim_nn *n, int index, uint32_t x, int layers, int64_t growth)
{
    uint32_t features[MAX_LAYERS + 1] = {x};
    plim_nn_enter(n, plim_nn_name(n, "denseblock", index), "_DenseBlock");
    for (int i = 1; i <= layers; i++)
        features[i] = dense_layer(n, i, features, growth);
    x = plim_nn_cat(n, features, (uint32_t)layers + 1, 1);
    plim_nn_leave(n);
    return x;
}

static uint32_t transition_block(plim_nn *n, int index, uint32_t x)
{
    plim_nn_enter(n, plim_nn_name(n, "transition", index), "_Transition");
    x = plim_nn_batch_norm2d(n, "norm", x, PLIM_NORM);
    x = plim_nn_act(n, "relu", x, PLIM_RELU_);
    x = plim_nn_conv2d(n, "conv", x, (plim_conv){.out = plim_nn_dim(n, x, 1) / 2});
    x = plim_nn_avg_pool2d(n, "pool", x, 2);
    plim_nn_leave(n);
    return x;
}

static void densenet_build(plim_nn *n, const void *row, uint32_t x)
{
    const densenet_row *r = row;
    plim_nn_root(n, "DenseNet");
    plim_nn_enter(n, "features", "Sequential");
    x = plim_nn_conv2d(n, "conv0", x,
                       (plim_conv){.out = r->stem, .kernel = 7, .stride = 2, .pad = 3});
    x = plim_nn_batch_norm2d(n, "norm0", x, PLIM_NORM);
    x = plim_nn_act(n, "relu0", x, PLIM_RELU_);
    x = plim_nn_max_pool2d(n, "pool0", x, 3, 2, 1, false);
    for (int i = 0; i < 4; i++) {
        x = dense_block(n, i + 1, x, r->layers[i], r->growth);
        if (i < 3)
            x = transition_block(n, i + 1, x);
    }
    x = plim_nn_batch_norm2d(n, "norm5", x, PLIM_NORM);
    plim_nn_leave(n);
    x = plim_nn_unary(n, "aten.relu_.default", x);
    x = plim_nn_adaptive_avg_op(n, x, 1);
    x = plim_nn_flatten1(n, x);
    plim_nn_output(n, plim_nn_linear(n, "classifier", x, 1000, true));
}

/* clang-format off */
#define DENSENET(NAME, DOC, PARAMETERS, ...) \
    {.name = NAME, .doc = DOC, .src = "torchvision 0.20 models/densenet.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = densenet_build, .row = &(const densenet_row){__VA_ARGS__}}
static const plim_zoo_model densenet_models[] = {
    DENSENET("densenet121", "DenseNet, 121 layers, growth 32",  7978856, 32, {6, 12, 24, 16}, 64),
    DENSENET("densenet161", "DenseNet, 161 layers, growth 48", 28681000, 48, {6, 12, 36, 24}, 96),
    DENSENET("densenet169", "DenseNet, 169 layers, growth 32", 14149480, 32, {6, 12, 32, 32}, 64),
    DENSENET("densenet201", "DenseNet, 201 layers, growth 32", 20013928, 32, {6, 12, 48, 32}, 64),
};
/* clang-format on */
PLIM_ZOO_FAMILY(densenet, "densenet");
