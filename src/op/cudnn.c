/* cudnn.c -- see cudnn.h. */
#include "op/cudnn.h"

enum { ANY = -1 };
typedef enum cudnn_usual { USUAL_NONE, USUAL_COPIES } cudnn_usual;
typedef enum cudnn_high { HIGH_TWICE, HIGH_WINOGRAD } cudnn_high;

typedef struct cudnn_row {
    int dtype, cc, torch;
    bool tf32;
    uint64_t row;
    cudnn_usual usual;
    cudnn_high high, search;
    const char *doc;
} cudnn_row;

#define PLIM_ANY ANY
static const cudnn_row cudnn_rows[] = {
#define PLIM_CUDNN(dtype, cc, torch, tf32, row, usual, high, search, doc)                     \
    {PLIM_##dtype, cc, torch, tf32, row, USUAL_##usual, HIGH_##high, HIGH_##search, doc},
#include "op/cudnn.def"
#undef PLIM_CUDNN
};

/* The last row matches everything. */
static const cudnn_row *find_row(const plim_world *world, plim_dtype dtype)
{
    const cudnn_row *r = cudnn_rows;
    while ((r->dtype != ANY && r->dtype != (int)dtype) || !plim_world_since(world, r->cc) ||
           world->lib.torch < r->torch || (r->tf32 && world->lib.no_tf32))
        r++;
    return r;
}

static uint64_t count_pixels(const plim_meta *t)
{
    uint64_t n = 1;
    for (int32_t i = 2; i < t->rank; i++)
        n *= (uint64_t)t->dim[i];
    return n;
}

static bool has_kernel_of(const plim_meta *w, int64_t side)
{
    for (int32_t i = 2; i < w->rank; i++)
        if (w->dim[i] != side)
            return false;
    return true;
}

/* 1x1, and as many outputs as inputs, so of stride 1: a matrix product of rows of pixels. */
static bool is_plain_product(const plim_cudnn_conv *c, uint64_t row)
{
    return row && has_kernel_of(&c->w, 1) && count_pixels(&c->x) == count_pixels(&c->y) &&
           count_pixels(&c->x) % row == 0;
}

plim_cudnn_bytes plim_cudnn_workspace(const plim_world *world, const plim_cudnn_conv *c)
{
    const cudnn_row *row = find_row(world, c->x.dtype);
    const uint64_t most = (uint64_t)1 << 60; /* beyond that no sum below is exact */
    plim_cudnn_bytes out = {0};
    uint64_t x, w, y;
    if (c->channels_last || !plim_meta_bytes(&c->x, &x) || !plim_meta_bytes(&c->w, &w) ||
        !plim_meta_bytes(&c->y, &y) || PLIM_MAX(x, PLIM_MAX(w, y)) > most)
        return out;
    const uint64_t operands[] = {[PLIM_CUDNN_FORWARD] = x + w,
                                 [PLIM_CUDNN_GRAD_INPUT] = y + w,
                                 [PLIM_CUDNN_GRAD_WEIGHT] = x + w + y};
    if (row->usual == USUAL_COPIES && !is_plain_product(c, row->row))
        out.usual = operands[c->pass];
    out.high = 2 * (x + w + y);
    /* Not fused, of 4x4 tiles that give 2x2: 16 numbers for each 4 of an input or output, 16
     * for 9 of a weight, kept in both directions. */
    const cudnn_high high = world->lib.benchmark ? row->search : row->high;
    if (high == HIGH_WINOGRAD && has_kernel_of(&c->w, 3) &&
        count_pixels(&c->x) == count_pixels(&c->y))
        out.high = (x + y) / 4 * 9 + 4 * w;
    return out;
}
