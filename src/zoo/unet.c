/* unet.c -- U-Net (Ronneberger 2015) as it is most often trained: padded 3x3
 * convolutions with batch normalisation, transposed convolutions up, 3 channels
 * in, 2 classes out.  src: github.com/milesial/Pytorch-UNet
 * unet/unet_model.py, unet_parts.py, bilinear=False (2022, v4.0). */
#include "zoo/zoo.h"

static uint32_t double_conv(plim_nn *n, const char *name, uint32_t x, int64_t out)
{
    plim_nn_enter(n, name, "DoubleConv");
    plim_nn_enter(n, "double_conv", "Sequential");
    for (int i = 0; i < 2; i++) {
        x = plim_nn_conv2d(n, NULL, x, (plim_conv){.out = out, .kernel = 3, .pad = 1});
        x = plim_nn_batch_norm2d(n, NULL, x, PLIM_NORM);
        x = plim_nn_act(n, NULL, x, PLIM_RELU_);
    }
    plim_nn_leave(n);
    plim_nn_leave(n);
    return x;
}

static uint32_t down_block(plim_nn *n, const char *name, uint32_t x, int64_t out)
{
    plim_nn_enter(n, name, "Down");
    plim_nn_enter(n, "maxpool_conv", "Sequential");
    x = plim_nn_max_pool2d(n, NULL, x, 2, 2, 0, false);
    x = double_conv(n, "1", x, out);
    plim_nn_leave(n);
    plim_nn_leave(n);
    return x;
}

/* x is doubled in size, padded to the size of the skip connection, and concatenated after
 * it. */
static uint32_t up_block(plim_nn *n, const char *name, uint32_t x, uint32_t skip)
{
    int64_t out = plim_nn_dim(n, skip, 1);
    plim_nn_enter(n, name, "Up");
    x = plim_nn_conv_transpose2d(n, "up", x,
                                 (plim_conv){.out = out, .kernel = 2, .stride = 2});
    int64_t dy = plim_nn_dim(n, skip, 2) - plim_nn_dim(n, x, 2),
            dx = plim_nn_dim(n, skip, 3) - plim_nn_dim(n, x, 3);
    x = plim_nn_pad(n, x, INTS(dx / 2, dx - dx / 2, dy / 2, dy - dy / 2));
    x = plim_nn_cat(n, (uint32_t[]){skip, x}, 2, 1);
    x = double_conv(n, "conv", x, out);
    plim_nn_leave(n);
    return x;
}

static void unet_build(plim_nn *n, const void *row, uint32_t x)
{
    uint32_t level[4];
    (void)row;
    plim_nn_root(n, "UNet");
    level[0] = double_conv(n, "inc", x, 64);
    for (int i = 1; i < 4; i++)
        level[i] = down_block(n, plim_nn_name(n, "down", i), level[i - 1], 64 << i);
    x = down_block(n, "down4", level[3], 1024);
    for (int i = 1; i <= 4; i++)
        x = up_block(n, plim_nn_name(n, "up", i), x, level[4 - i]);
    plim_nn_enter(n, "outc", "OutConv");
    x = plim_nn_conv2d(n, "conv", x, (plim_conv){.out = 2, .bias = true});
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

static const plim_zoo_model unet_models[] = {
    {.name = "unet",
     .doc = "U-Net with batch normalisation, 3 channels in, 2 classes out",
     .src = "milesial/Pytorch-UNet unet/unet_model.py, bilinear=False",
     .parameters = 31037698,
     .input = {3, 512, 512},
     .build = unet_build},
};
PLIM_ZOO_FAMILY(unet, "unet");
