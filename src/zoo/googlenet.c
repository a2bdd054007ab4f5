/* googlenet.c -- GoogLeNet (Inception v1 with batch normalisation), without the
 * auxiliary heads: torchvision's count and GFLOPS are those of this model.
 * src: torchvision/models/googlenet.py, aux_logits=False. */
#include "zoo/zoo.h"

static const plim_norm norm = {0.001, 0.1};

/* BasicConv2d */
static uint32_t basic_conv(plim_nn *n, const char *name, uint32_t x, plim_conv c)
{
    plim_nn_enter(n, name, "BasicConv2d");
    x = plim_nn_conv2d(n, "conv", x, c);
    x = plim_nn_batch_norm2d(n, "bn", x, norm);
    x = plim_nn_unary(n, "aten.relu_.default", x);
    plim_nn_leave(n);
    return x;
}

typedef struct inception_row {
    const char *name;
    int64_t c1, c3red, c3, c5red, c5, pool;
    int64_t pool_after; /* kernel of the max pool that follows; 0: none */
} inception_row;

/* branch2 and branch3: both 3x3 (the "5x5" is a known mistake of the original). */
static uint32_t reduced_branch(plim_nn *n, const char *name, uint32_t x, int64_t red,
                               int64_t out)
{
    plim_nn_enter(n, name, "Sequential");
    x = basic_conv(n, NULL, x, (plim_conv){.out = red});
    x = basic_conv(n, NULL, x, (plim_conv){.out = out, .kernel = 3, .pad = 1});
    plim_nn_leave(n);
    return x;
}

static uint32_t inception_block(plim_nn *n, uint32_t x, const inception_row *r)
{
    uint32_t b[4];
    plim_nn_enter(n, r->name, "Inception");
    b[0] = basic_conv(n, "branch1", x, (plim_conv){.out = r->c1});
    b[1] = reduced_branch(n, "branch2", x, r->c3red, r->c3);
    b[2] = reduced_branch(n, "branch3", x, r->c5red, r->c5);
    plim_nn_enter(n, "branch4", "Sequential");
    b[3] = plim_nn_max_pool2d(n, NULL, x, 3, 1, 1, true);
    b[3] = basic_conv(n, NULL, b[3], (plim_conv){.out = r->pool});
    plim_nn_leave(n);
    x = plim_nn_cat(n, b, 4, 1);
    plim_nn_leave(n);
    return x;
}

static void googlenet_build(plim_nn *n, const void *row, uint32_t x)
{
    static const inception_row blocks[] = {
        {"inception3a", 64, 96, 128, 16, 32, 32, 0},
        {"inception3b", 128, 128, 192, 32, 96, 64, 3},
        {"inception4a", 192, 96, 208, 16, 48, 64, 0},
        {"inception4b", 160, 112, 224, 24, 64, 64, 0},
        {"inception4c", 128, 128, 256, 24, 64, 64, 0},
        {"inception4d", 112, 144, 288, 32, 64, 64, 0},
        {"inception4e", 256, 160, 320, 32, 128, 128, 2},
        {"inception5a", 256, 160, 320, 32, 128, 128, 0},
        {"inception5b", 384, 192, 384, 48, 128, 128, 0},
    };
    int pools = 2;
    (void)row;
    plim_nn_root(n, "GoogLeNet");
    x = basic_conv(n, "conv1", x, (plim_conv){.out = 64, .kernel = 7, .stride = 2, .pad = 3});
    x = plim_nn_max_pool2d(n, "maxpool1", x, 3, 2, 0, true);
    x = basic_conv(n, "conv2", x, (plim_conv){.out = 64});
    x = basic_conv(n, "conv3", x, (plim_conv){.out = 192, .kernel = 3, .pad = 1});
    x = plim_nn_max_pool2d(n, "maxpool2", x, 3, 2, 0, true);
    for (size_t i = 0; i < PLIM_COUNT(blocks); i++) {
        x = inception_block(n, x, &blocks[i]);
        if (blocks[i].pool_after)
            x = plim_nn_max_pool2d(n, plim_nn_name(n, "maxpool", ++pools), x,
                                   blocks[i].pool_after, 2, 0, true);
    }
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    x = plim_nn_flatten1(n, x);
    x = plim_nn_dropout(n, "dropout", x, 0.2);
    plim_nn_output(n, plim_nn_linear(n, "fc", x, 1000, true));
}

static const plim_zoo_model googlenet_models[] = {
    {.name = "googlenet",
     .doc = "GoogLeNet without auxiliary heads",
     .src = "torchvision 0.20 models/googlenet.py",
     .parameters = 6624904,
     .input = {3, 224, 224},
     .build = googlenet_build},
};
PLIM_ZOO_FAMILY(googlenet, "googlenet");
