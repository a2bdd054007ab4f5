/* cudnn.c -- see cudnn.h. */
#include "op/cudnn.h"

#include <limits.h>

enum { ANY = -1, MEASURED_TORCH = 211 /* with cuDNN 9.19 */ };
typedef enum cudnn_usual { USUAL_NONE, USUAL_COPIES, USUAL_HOPPER } cudnn_usual;
typedef enum cudnn_high { HIGH_TWICE, HIGH_WINOGRAD } cudnn_high;

typedef struct cudnn_row {
    int dtype, from, to, torch;
    bool tf32;
    uint64_t row;
    cudnn_usual usual;
    cudnn_high high, search;
    const char *doc;
} cudnn_row;

#define PLIM_ANY ANY
#define NEWEST (INT_MAX - 1)
static const cudnn_row cudnn_rows[] = {
#define PLIM_CUDNN(dtype, from, to, torch, tf32, row, usual, high, search, doc)               \
    {PLIM_##dtype, from, to, torch, tf32, row, USUAL_##usual, HIGH_##high, HIGH_##search, doc},
#include "op/cudnn.def"
#undef PLIM_CUDNN
};

static bool matches_card(const cudnn_row *r, const plim_world *world)
{
    return plim_world_since(world, r->from) && !plim_world_since(world, r->to + 1);
}

/* The last row matches everything. */
static const cudnn_row *find_row(const plim_world *world, plim_dtype dtype)
{
    const cudnn_row *r = cudnn_rows;
    while ((r->dtype != ANY && r->dtype != (int)dtype) || world->lib.torch < r->torch ||
           (r->tf32 && world->lib.no_tf32) || !matches_card(r, world))
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

/* False: too large for sums to be exact, empty, no convolution, or of groups that do not divide the channels. */
static bool measure_conv(const plim_cudnn_conv *c, bool tensor_cores, plim_cudnn_sizes *s)
{
    const uint64_t most = (uint64_t)1 << 50; /* bytes, so that padded sums fit */
    const bool transposed = c->w.dim[0] != c->y.dim[1];
    *s = (plim_cudnn_sizes){.conv = c, .tensor_cores = tensor_cores};
    if (!plim_meta_bytes(&c->x, &s->x) || !plim_meta_bytes(&c->w, &s->w) ||
        !plim_meta_bytes(&c->y, &s->y) || PLIM_MAX(s->x, PLIM_MAX(s->w, s->y)) > most ||
        !s->x || !s->w || !s->y || c->w.rank < 2 || c->x.rank < 2 || c->y.rank < 2)
        return false;
    s->batch = (uint64_t)c->x.dim[0];
    s->in = (uint64_t)c->x.dim[1];
    s->out = (uint64_t)c->y.dim[1];
    s->groups = (transposed ? s->out : s->in) / (uint64_t)c->w.dim[1];
    s->taps = count_pixels(&c->w);
    s->in_pixels = count_pixels(&c->x);
    s->out_pixels = count_pixels(&c->y);
    return s->groups > 0 && s->in % s->groups == 0 && s->out % s->groups == 0;
}

/* 1x1, and as many outputs as inputs, so of stride 1: a matrix product of rows of pixels. */
static bool is_plain_product(const plim_cudnn_sizes *s, uint64_t row)
{
    return row && s->taps == 1 && s->in_pixels == s->out_pixels && s->in_pixels % row == 0;
}

static uint64_t at_most(const plim_cudnn_sizes *s, cudnn_high high)
{
    if (high == HIGH_WINOGRAD && has_kernel_of(&s->conv->w, 3) &&
        s->in_pixels == s->out_pixels)
        return plim_cudnn_winograd(s);
    return 2 * (s->x + s->w + s->y);
}

static plim_cudnn_bytes copied_operands(const cudnn_row *row, const plim_cudnn_sizes *s,
                                        bool search)
{
    const uint64_t operands[] = {[PLIM_CUDNN_FORWARD] = s->x + s->w,
                                 [PLIM_CUDNN_GRAD_INPUT] = s->y + s->w,
                                 [PLIM_CUDNN_GRAD_WEIGHT] = s->x + s->w + s->y};
    plim_cudnn_bytes out = {.high = at_most(s, search ? row->search : row->high)};
    if (s->conv->channels_last)
        return (plim_cudnn_bytes){0};
    if (row->usual == USUAL_COPIES && !is_plain_product(s, row->row))
        out.usual = operands[s->conv->pass];
    return out;
}

static plim_cudnn_bytes by_rules(const cudnn_row *row, const plim_cudnn_sizes *s, bool search)
{
    if (row->usual != USUAL_HOPPER)
        return copied_operands(row, s, search);
    plim_cudnn_bytes out = plim_cudnn_hopper(s);
    if (search)
        out.high = PLIM_MAX(out.high, at_most(s, row->search));
    return out;
}

/* The row of the card and the sizes of the convolution; NULL: it needs nothing. */
static const cudnn_row *look_up(const plim_world *world, const plim_cudnn_conv *c,
                                plim_cudnn_sizes *s)
{
    const cudnn_row *row = find_row(world, c->x.dtype);
    return measure_conv(c, row->tf32 || c->x.dtype != PLIM_F32, s) ? row : NULL;
}

plim_cudnn_bytes plim_cudnn_ruled(const plim_world *world, const plim_cudnn_conv *c)
{
    plim_cudnn_sizes s;
    const cudnn_row *row = look_up(world, c, &s);
    return row ? by_rules(row, &s, world->lib.benchmark) : (plim_cudnn_bytes){0};
}

plim_cudnn_bytes plim_cudnn_workspace(const plim_world *world, const plim_cudnn_conv *c)
{
    plim_cudnn_sizes s;
    const cudnn_row *row = look_up(world, c, &s);
    if (!row)
        return (plim_cudnn_bytes){0};
    plim_cudnn_bytes out = by_rules(row, &s, world->lib.benchmark);
    if (row->usual != USUAL_HOPPER || !plim_cudnn_measured(&s, &out.usual))
        return out;
    out.high = PLIM_MAX(out.high, out.usual);
    /* of the same cuDNN, and it does not choose by time */
    if (world->lib.torch == MEASURED_TORCH && !world->lib.benchmark)
        out.low = out.high = out.usual;
    return out;
}
