/* vgg.c -- src: torchvision/models/vgg.py. */
#include "zoo/zoo.h"

typedef struct vgg_row {
    int convs[5]; /* before each pool */
    bool bn;
} vgg_row;

static void vgg_build(plim_nn *n, const void *row, uint32_t x)
{
    static const int64_t width[5] = {64, 128, 256, 512, 512};
    const vgg_row *r = row;
    plim_nn_root(n, "VGG");
    plim_nn_enter(n, "features", "Sequential");
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < r->convs[i]; k++) {
            x = plim_nn_conv2d(
                n, NULL, x, (plim_conv){.out = width[i], .kernel = 3, .pad = 1, .bias = true});
            if (r->bn)
                x = plim_nn_batch_norm2d(n, NULL, x, PLIM_NORM);
            x = plim_nn_act(n, NULL, x, PLIM_RELU_);
        }
        x = plim_nn_max_pool2d(n, NULL, x, 2, 2, 0, false);
    }
    plim_nn_leave(n);
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 7);
    x = plim_nn_flatten1(n, x);
    plim_nn_enter(n, "classifier", "Sequential");
    for (int i = 0; i < 2; i++) {
        x = plim_nn_linear(n, NULL, x, 4096, true);
        x = plim_nn_act(n, NULL, x, PLIM_RELU_);
        x = plim_nn_dropout(n, NULL, x, 0.5);
    }
    x = plim_nn_linear(n, NULL, x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

/* clang-format off */
#define VGG(NAME, DOC, PARAMETERS, BN, ...) \
    {.name = NAME, .doc = DOC, .src = "torchvision 0.20 models/vgg.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = vgg_build, .row = &(const vgg_row){{__VA_ARGS__}, BN}}
static const plim_zoo_model vgg_models[] = {
    VGG("vgg11",    "VGG, configuration A",                          132863336, false, 1, 1, 2, 2, 2),
    VGG("vgg11_bn", "VGG, configuration A with batch normalisation", 132868840, true,  1, 1, 2, 2, 2),
    VGG("vgg13",    "VGG, configuration B",                          133047848, false, 2, 2, 2, 2, 2),
    VGG("vgg13_bn", "VGG, configuration B with batch normalisation", 133053736, true,  2, 2, 2, 2, 2),
    VGG("vgg16",    "VGG, configuration D",                          138357544, false, 2, 2, 3, 3, 3),
    VGG("vgg16_bn", "VGG, configuration D with batch normalisation", 138365992, true,  2, 2, 3, 3, 3),
    VGG("vgg19",    "VGG, configuration E",                          143667240, false, 2, 2, 4, 4, 4),
    VGG("vgg19_bn", "VGG, configuration E with batch normalisation", 143678248, true,  2, 2, 4, 4, 4),
};
/* clang-format on */
PLIM_ZOO_FAMILY(vgg, "vgg");
