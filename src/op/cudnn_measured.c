/* cudnn_measured.c -- the workspaces of convolutions that were measured, by search in
 * cudnn_h100.def. */
#include <stdlib.h>

#include "op/cudnn.h"

enum { TF32, FP32, BF16, FP16 };
enum { NCHW, NHWC };
enum { KEYS = 9, PASSES = 3 };

typedef struct cudnn_took {
    uint16_t key[KEYS]; /* type, layout, sizes */
    int64_t bytes[PASSES];
} cudnn_took;

static const cudnn_took took_rows[] = {
#define PLIM_CUDNN_TOOK(type, layout, batch, in, side, out, group, kernel, to, forward,       \
                        input, weight)                                                        \
    {{type, layout, batch, in, side, out, group, kernel, to}, {forward, input, weight}},
#include "op/cudnn_h100.def"
#undef PLIM_CUDNN_TOOK
};

static int compare_keys(const void *a, const void *b)
{
    const uint16_t *x = ((const cudnn_took *)a)->key, *y = ((const cudnn_took *)b)->key;
    int i = 0;
    while (i < KEYS - 1 && x[i] == y[i])
        i++;
    return x[i] - y[i];
}

static int type_of(const plim_cudnn_sizes *s)
{
    switch (s->conv->x.dtype) {
    case PLIM_F32: return s->tensor_cores ? TF32 : FP32;
    case PLIM_BF16: return BF16;
    case PLIM_F16: return FP16;
    default: return -1;
    }
}

static bool is_square(const plim_meta *t) { return t->rank == 4 && t->dim[2] == t->dim[3]; }

/* False: none of the rows can be its own. */
static bool key_of(const plim_cudnn_sizes *s, cudnn_took *row)
{
    const plim_cudnn_conv *c = s->conv;
    const int64_t sizes[KEYS] = {type_of(s),  c->channels_last ? NHWC : NCHW,
                                 c->x.dim[0], c->x.dim[1],
                                 c->x.dim[2], c->w.dim[0],
                                 c->w.dim[1], c->w.dim[2],
                                 c->y.dim[2]};
    for (int i = 0; i < KEYS; i++) {
        if (sizes[i] < 0 || sizes[i] > UINT16_MAX)
            return false;
        row->key[i] = (uint16_t)sizes[i];
    }
    return is_square(&c->x) && is_square(&c->w) && is_square(&c->y) &&
           c->w.dim[0] == c->y.dim[1];
}

bool plim_cudnn_measured(const plim_cudnn_sizes *s, uint64_t *bytes)
{
    cudnn_took key = {0};
    if (!key_of(s, &key))
        return false;
    const cudnn_took *row =
        bsearch(&key, took_rows, PLIM_COUNT(took_rows), sizeof *took_rows, compare_keys);
    if (!row || row->bytes[s->conv->pass] < 0)
        return false;
    *bytes = (uint64_t)row->bytes[s->conv->pass];
    return true;
}
