/* cudnn.h -- the workspace that cuDNN asks for in one convolution.
 *
 * cuDNN chooses its kernels at run time and publishes no formula, so the answer is a range
 * with a usual value: rows of cudnn.def, which say whose kernels they are.  What PyTorch itself
 * copies is in rules_conv.c. */
#ifndef PLIM_CUDNN_H
#define PLIM_CUDNN_H

#include "machine/machine.h"

typedef enum plim_cudnn_pass {
    PLIM_CUDNN_FORWARD,
    PLIM_CUDNN_GRAD_INPUT,
    PLIM_CUDNN_GRAD_WEIGHT
} plim_cudnn_pass;

/* A convolution y = w * x, in any pass; of a transposed one x is the smaller side, too. */
typedef struct plim_cudnn_conv {
    plim_cudnn_pass pass;
    plim_meta x, w, y;
    bool channels_last; /* it runs on NHWC operands */
} plim_cudnn_conv;

typedef struct plim_cudnn_bytes {
    uint64_t low, usual, high;
} plim_cudnn_bytes;

/* All 0: there is none. */
plim_cudnn_bytes plim_cudnn_workspace(const plim_world *world, const plim_cudnn_conv *conv);
/* By the rules alone, as of a convolution that nobody measured. */
plim_cudnn_bytes plim_cudnn_ruled(const plim_world *world, const plim_cudnn_conv *conv);

/* Bytes of the operands, and what the rules ask of a convolution. */
typedef struct plim_cudnn_sizes {
    const plim_cudnn_conv *conv;
    uint64_t x, w, y;
    uint64_t batch, in, out, groups; /* channels of x and y; groups of them */
    uint64_t taps;                   /* elements of the kernel */
    uint64_t in_pixels, out_pixels;
    bool tensor_cores;
} plim_cudnn_sizes;

/* Of Winograd's algorithm, not fused, for 3x3 of stride 1: tiles of 6x6 for each 4x4, so 36
 * numbers for 16 of an input or output, and 36 for 9 of a weight. */
uint64_t plim_cudnn_winograd(const plim_cudnn_sizes *s);
/* Of Hopper's kernels. */
plim_cudnn_bytes plim_cudnn_hopper(const plim_cudnn_sizes *s);
/* What an H100 took without a search.  False: this one was not measured. */
bool plim_cudnn_measured(const plim_cudnn_sizes *s, uint64_t *bytes);

#endif
