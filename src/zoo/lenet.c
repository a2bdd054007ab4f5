/* lenet.c -- LeNet-5 (LeCun 1998) in its common form: full connections between the
 * convolutions, average pools, tanh.  A 28x28 digit is padded by 2 in the first layer; a 32x32
 * one, as in the paper, is not.
 * src: "Gradient-based learning applied to document recognition", II.B */
#include "zoo/zoo.h"

static void lenet_build(plim_nn *n, const void *row, uint32_t x)
{
    int64_t h = plim_nn_dim(n, x, 2), w = plim_nn_dim(n, x, 3), pad = h == 28 ? 2 : 0;
    (void)row;
    if (h != w || (h != 28 && h != 32))
        plim_nn_fail(n, PLIM_ESHAPE,
                     "the image must be 28x28 or 32x32, not %" PRId64 "x%" PRId64, h, w);
    plim_nn_root(n, "LeNet5");
    plim_nn_enter(n, "features", "Sequential");
    x = plim_nn_conv2d(n, NULL, x,
                       (plim_conv){.out = 6, .kernel = 5, .pad = pad, .bias = true});
    x = plim_nn_act(n, NULL, x, PLIM_TANH);
    x = plim_nn_avg_pool2d(n, NULL, x, 2);
    x = plim_nn_conv2d(n, NULL, x, (plim_conv){.out = 16, .kernel = 5, .bias = true});
    x = plim_nn_act(n, NULL, x, PLIM_TANH);
    x = plim_nn_avg_pool2d(n, NULL, x, 2);
    plim_nn_leave(n);
    x = plim_nn_flatten1(n, x);
    plim_nn_enter(n, "classifier", "Sequential");
    x = plim_nn_linear(n, NULL, x, 120, true);
    x = plim_nn_act(n, NULL, x, PLIM_TANH);
    x = plim_nn_linear(n, NULL, x, 84, true);
    x = plim_nn_act(n, NULL, x, PLIM_TANH);
    x = plim_nn_linear(n, NULL, x, 10, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

static const plim_zoo_model lenet_models[] = {
    {.name = "lenet5",
     .alias = "lenet",
     .doc = "LeNet-5, for digits of 28x28 or 32x32",
     .src = "LeCun et al. 1998, section II.B",
     .parameters = 61706,
     .input = {1, 28, 28},
     .build = lenet_build},
};
PLIM_ZOO_FAMILY(lenet, "lenet");
