/* alexnet.c -- src: torchvision/models/alexnet.py (Krizhevsky 2014, one tower). */
#include "zoo/zoo.h"

static void alexnet_build(plim_nn *n, const void *row, uint32_t x)
{
    static const struct {
        plim_conv conv;
        bool pool;
    } features[] = {
        {{.out = 64, .kernel = 11, .stride = 4, .pad = 2, .bias = true}, true},
        {{.out = 192, .kernel = 5, .pad = 2, .bias = true}, true},
        {{.out = 384, .kernel = 3, .pad = 1, .bias = true}, false},
        {{.out = 256, .kernel = 3, .pad = 1, .bias = true}, false},
        {{.out = 256, .kernel = 3, .pad = 1, .bias = true}, true},
    };
    (void)row;
    plim_nn_root(n, "AlexNet");
    plim_nn_enter(n, "features", "Sequential");
    for (size_t i = 0; i < PLIM_COUNT(features); i++) {
        x = plim_nn_conv2d(n, NULL, x, features[i].conv);
        x = plim_nn_act(n, NULL, x, PLIM_RELU_);
        if (features[i].pool)
            x = plim_nn_max_pool2d(n, NULL, x, 3, 2, 0, false);
    }
    plim_nn_leave(n);
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 6);
    x = plim_nn_flatten1(n, x);
    plim_nn_enter(n, "classifier", "Sequential");
    x = plim_nn_dropout(n, NULL, x, 0.5);
    x = plim_nn_linear(n, NULL, x, 4096, true);
    x = plim_nn_act(n, NULL, x, PLIM_RELU_);
    x = plim_nn_dropout(n, NULL, x, 0.5);
    x = plim_nn_linear(n, NULL, x, 4096, true);
    x = plim_nn_act(n, NULL, x, PLIM_RELU_);
    x = plim_nn_linear(n, NULL, x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

static const plim_zoo_model alexnet_models[] = {
    {.name = "alexnet",
     .doc = "AlexNet, one tower",
     .src = "torchvision 0.20 models/alexnet.py",
     .parameters = 61100840,
     .input = {3, 224, 224},
     .build = alexnet_build},
};
PLIM_ZOO_FAMILY(alexnet, "alexnet");
