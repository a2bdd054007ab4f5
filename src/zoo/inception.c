/* inception.c -- Inception v3 with its auxiliary head, which runs in training:
 * the main logits are output 0, the auxiliary ones output 1.
 * src: torchvision/models/inception.py. */
#include "zoo/zoo.h"

static const plim_norm norm = {0.001, 0.1};

/* One convolution of a branch: out, kernel h and w, padding h and w, stride. */
typedef struct conv_row {
    const char *name;
    int64_t out, kh, kw, ph, pw, stride;
} conv_row;

static uint32_t basic_conv(plim_nn *n, uint32_t x, conv_row c)
{
    plim_nn_enter(n, c.name, "BasicConv2d");
    x = plim_nn_conv2d(n, "conv", x,
                       (plim_conv){.out = c.out,
                                   .kernel = c.kh,
                                   .kernel_w = c.kw,
                                   .pad = c.ph,
                                   .pad_w = c.pw,
                                   .stride = c.stride});
    x = plim_nn_batch_norm2d(n, "bn", x, norm);
    x = plim_nn_unary(n, "aten.relu_.default", x);
    plim_nn_leave(n);
    return x;
}

#define K1(name, out) ((conv_row){name, out, 1, 1, 0, 0, 1})
#define K3(name, out) ((conv_row){name, out, 3, 3, 1, 1, 1})
#define K3S2(name, out) ((conv_row){name, out, 3, 3, 0, 0, 2})
#define K1X7(name, out) ((conv_row){name, out, 1, 7, 0, 3, 1})
#define K7X1(name, out) ((conv_row){name, out, 7, 1, 3, 0, 1})

static uint32_t avg_branch(plim_nn *n, uint32_t x, int64_t out)
{
    x = plim_nn_avg_pool_op(n, x, 3, 1, 1);
    return basic_conv(n, x, K1("branch_pool", out));
}

static uint32_t inception_a(plim_nn *n, const char *name, uint32_t x, int64_t pool)
{
    uint32_t b[4];
    plim_nn_enter(n, name, "InceptionA");
    b[0] = basic_conv(n, x, K1("branch1x1", 64));
    b[1] = basic_conv(n, x, K1("branch5x5_1", 48));
    b[1] = basic_conv(n, b[1], (conv_row){"branch5x5_2", 64, 5, 5, 2, 2, 1});
    b[2] = basic_conv(n, x, K1("branch3x3dbl_1", 64));
    b[2] = basic_conv(n, b[2], K3("branch3x3dbl_2", 96));
    b[2] = basic_conv(n, b[2], K3("branch3x3dbl_3", 96));
    b[3] = avg_branch(n, x, pool);
    x = plim_nn_cat(n, b, 4, 1);
    plim_nn_leave(n);
    return x;
}

static uint32_t inception_b(plim_nn *n, const char *name, uint32_t x)
{
    uint32_t b[3];
    plim_nn_enter(n, name, "InceptionB");
    b[0] = basic_conv(n, x, K3S2("branch3x3", 384));
    b[1] = basic_conv(n, x, K1("branch3x3dbl_1", 64));
    b[1] = basic_conv(n, b[1], K3("branch3x3dbl_2", 96));
    b[1] = basic_conv(n, b[1], K3S2("branch3x3dbl_3", 96));
    b[2] = plim_nn_max_pool_op(n, x, 3, 2, 0, false);
    x = plim_nn_cat(n, b, 3, 1);
    plim_nn_leave(n);
    return x;
}

static uint32_t inception_c(plim_nn *n, const char *name, uint32_t x, int64_t c7)
{
    uint32_t b[4];
    plim_nn_enter(n, name, "InceptionC");
    b[0] = basic_conv(n, x, K1("branch1x1", 192));
    b[1] = basic_conv(n, x, K1("branch7x7_1", c7));
    b[1] = basic_conv(n, b[1], K1X7("branch7x7_2", c7));
    b[1] = basic_conv(n, b[1], K7X1("branch7x7_3", 192));
    b[2] = basic_conv(n, x, K1("branch7x7dbl_1", c7));
    b[2] = basic_conv(n, b[2], K7X1("branch7x7dbl_2", c7));
    b[2] = basic_conv(n, b[2], K1X7("branch7x7dbl_3", c7));
    b[2] = basic_conv(n, b[2], K7X1("branch7x7dbl_4", c7));
    b[2] = basic_conv(n, b[2], K1X7("branch7x7dbl_5", 192));
    b[3] = avg_branch(n, x, 192);
    x = plim_nn_cat(n, b, 4, 1);
    plim_nn_leave(n);
    return x;
}

static uint32_t inception_d(plim_nn *n, const char *name, uint32_t x)
{
    uint32_t b[3];
    plim_nn_enter(n, name, "InceptionD");
    b[0] = basic_conv(n, x, K1("branch3x3_1", 192));
    b[0] = basic_conv(n, b[0], K3S2("branch3x3_2", 320));
    b[1] = basic_conv(n, x, K1("branch7x7x3_1", 192));
    b[1] = basic_conv(n, b[1], K1X7("branch7x7x3_2", 192));
    b[1] = basic_conv(n, b[1], K7X1("branch7x7x3_3", 192));
    b[1] = basic_conv(n, b[1], K3S2("branch7x7x3_4", 192));
    b[2] = plim_nn_max_pool_op(n, x, 3, 2, 0, false);
    x = plim_nn_cat(n, b, 3, 1);
    plim_nn_leave(n);
    return x;
}

/* The last step of a branch that splits in two: 1x3 and 3x1. */
static uint32_t split_3x3(plim_nn *n, uint32_t x, const char *a, const char *b)
{
    uint32_t half[2];
    half[0] = basic_conv(n, x, (conv_row){a, 384, 1, 3, 0, 1, 1});
    half[1] = basic_conv(n, x, (conv_row){b, 384, 3, 1, 1, 0, 1});
    return plim_nn_cat(n, half, 2, 1);
}

static uint32_t inception_e(plim_nn *n, const char *name, uint32_t x)
{
    uint32_t b[4];
    plim_nn_enter(n, name, "InceptionE");
    b[0] = basic_conv(n, x, K1("branch1x1", 320));
    b[1] = basic_conv(n, x, K1("branch3x3_1", 384));
    b[1] = split_3x3(n, b[1], "branch3x3_2a", "branch3x3_2b");
    b[2] = basic_conv(n, x, K1("branch3x3dbl_1", 448));
    b[2] = basic_conv(n, b[2], K3("branch3x3dbl_2", 384));
    b[2] = split_3x3(n, b[2], "branch3x3dbl_3a", "branch3x3dbl_3b");
    b[3] = avg_branch(n, x, 192);
    x = plim_nn_cat(n, b, 4, 1);
    plim_nn_leave(n);
    return x;
}

static uint32_t inception_aux(plim_nn *n, uint32_t x)
{
    uint32_t first = n->g->n_nodes;
    plim_nn_enter(n, "AuxLogits", "InceptionAux");
    x = plim_nn_avg_pool_op(n, x, 5, 3, 0);
    x = basic_conv(n, x, K1("conv0", 128));
    x = basic_conv(n, x, (conv_row){"conv1", 768, 5, 5, 0, 0, 1});
    x = plim_nn_adaptive_avg_op(n, x, 1);
    x = plim_nn_flatten1(n, x);
    x = plim_nn_linear(n, "fc", x, 1000, true);
    plim_nn_leave(n);
    if (n->infer)
        plim_nn_forget(n, first);
    return x;
}

static void inception_build(plim_nn *n, const void *row, uint32_t x)
{
    (void)row;
    plim_nn_root(n, "Inception3");
    x = basic_conv(n, x, K3S2("Conv2d_1a_3x3", 32));
    x = basic_conv(n, x, (conv_row){"Conv2d_2a_3x3", 32, 3, 3, 0, 0, 1});
    x = basic_conv(n, x, K3("Conv2d_2b_3x3", 64));
    x = plim_nn_max_pool2d(n, "maxpool1", x, 3, 2, 0, false);
    x = basic_conv(n, x, K1("Conv2d_3b_1x1", 80));
    x = basic_conv(n, x, (conv_row){"Conv2d_4a_3x3", 192, 3, 3, 0, 0, 1});
    x = plim_nn_max_pool2d(n, "maxpool2", x, 3, 2, 0, false);
    x = inception_a(n, "Mixed_5b", x, 32);
    x = inception_a(n, "Mixed_5c", x, 64);
    x = inception_a(n, "Mixed_5d", x, 64);
    x = inception_b(n, "Mixed_6a", x);
    x = inception_c(n, "Mixed_6b", x, 128);
    x = inception_c(n, "Mixed_6c", x, 160);
    x = inception_c(n, "Mixed_6d", x, 160);
    x = inception_c(n, "Mixed_6e", x, 192);
    uint32_t aux = inception_aux(n, x);
    x = inception_d(n, "Mixed_7a", x);
    x = inception_e(n, "Mixed_7b", x);
    x = inception_e(n, "Mixed_7c", x);
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    x = plim_nn_dropout(n, "dropout", x, 0.5);
    x = plim_nn_flatten1(n, x);
    plim_nn_output(n, plim_nn_linear(n, "fc", x, 1000, true));
    if (!n->infer)
        plim_nn_output(n, aux);
}

static const plim_zoo_model inception_models[] = {
    {.name = "inception_v3",
     .doc = "Inception v3 with its auxiliary head",
     .src = "torchvision 0.20 models/inception.py",
     .parameters = 27161264,
     .input = {3, 299, 299},
     .build = inception_build},
};
PLIM_ZOO_FAMILY(inception, "inception");
