/* rules_copy.c -- copies: of the same size, of several tensors joined, of one repeated or
 * rotated, or with a part replaced.
 * src: aten/src/ATen/native/TensorShape.cpp. */
#include "op/rules.h"

/* ---- the same size ----------------------------------------------------- */

void plim_run_contiguous(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int64_t format = plim_arg_int(c, 1, 0);
    if (format != PLIM_FORMAT_CHANNELS_LAST && format != PLIM_FORMAT_CHANNELS_LAST_3D) {
        plim_ret(c, plim_at_contiguous(c->m, x));
        return;
    }
    plim_meta want = *plim_m_meta(c->m, x);
    plim_meta_channels_last(&want);
    bool same = !memcmp(want.stride, plim_m_meta(c->m, x)->stride,
                        (size_t)want.rank * sizeof want.stride[0]);
    plim_ret(c, same ? plim_m_ref(c->m, x) : plim_at_clone(c->m, x, &want));
}
void plim_run_clone(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int64_t format = plim_arg_int(c, 1, PLIM_FORMAT_PRESERVE);
    plim_meta like = plim_meta_like(plim_m_meta(c->m, x), plim_m_meta(c->m, x)->dtype);
    plim_ret(c, plim_at_clone(c->m, x, format == PLIM_FORMAT_PRESERVE ? &like : NULL));
}
static void run_to(plim_call *c, uint32_t format)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_dtype t = plim_arg_dtype(c, 1, plim_m_meta(c->m, x)->dtype);
    const bool contiguous =
        plim_arg_int(c, format, PLIM_FORMAT_PRESERVE) == PLIM_FORMAT_CONTIGUOUS;
    plim_ret(c, contiguous ? plim_at_to_contiguous(c->m, x, t) : plim_at_to(c->m, x, t));
}
void plim_run_to(plim_call *c) { run_to(c, 7); }
void plim_run_to_dtype(plim_call *c) { run_to(c, 4); }
void plim_run_type_as(plim_call *c)
{
    plim_dtype t = plim_m_meta(c->m, plim_arg_tensor(c, 1))->dtype;
    plim_ret(c, plim_at_to(c->m, plim_arg_tensor(c, 0), t));
}

/* A constant of the program.  A scalar stays on the CPU, from where kernels take it as an
 * argument; anything larger must be on the card. */
void plim_run_lift_fresh(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_ret(c, plim_m_meta(c->m, x)->rank ? plim_m_empty_like(c->m, x)
                                           : plim_m_outside(c->m, plim_m_meta(c->m, x)));
}

/* ---- joins ------------------------------------------------------------- */

enum { CAT_DIM, CAT_STACK }; /* in gnode.i */

/* Each input gets a narrow of g: no bytes, but g lives as long as any of them. */
static void cat_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    const plim_meta *gm = plim_m_meta(m, g[0]);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!plim_m_wants(m, n, i))
            continue;
        plim_meta part = *gm;
        if (n->i[CAT_STACK]) { /* stack: the joined dim is removed */
            part = n->in_meta[i];
            part.dtype = gm->dtype;
            for (int32_t k = 0, to = 0; k < gm->rank; k++)
                if (k != n->i[CAT_DIM])
                    part.stride[to++] = gm->stride[k];
        } else {
            part.dim[n->i[CAT_DIM]] = n->in_meta[i].dim[n->i[CAT_DIM]];
        }
        dx[i] = plim_m_alias(m, g[0], &part);
    }
}
static const plim_grad_fn cat_fn = {"CatBackward0", cat_backward};

static plim_t join_tensors(plim_machine *m, const plim_t *in, uint32_t n, int64_t dim,
                           bool stack)
{
    if (!n) {
        plim_m_fail(m, PLIM_ESHAPE, "cat needs at least one tensor");
        return 0;
    }
    uint32_t first = 0; /* legacy: empty 1-d tensors are skipped */
    while (first + 1 < n && plim_m_meta(m, in[first])->rank == 1 &&
           !plim_m_meta(m, in[first])->dim[0])
        first++;
    plim_meta out = *plim_m_meta(m, in[first]);
    int32_t d = plim_wrap_dim(m, dim, out.rank + (stack ? 1 : 0));
    bool channels_last = !stack; /* the result keeps a memory format that all inputs share */
    for (uint32_t i = 0; i < first; i++) /* but their type counts */
        out.dtype = plim_promote(out.dtype, plim_m_meta(m, in[i])->dtype);
    for (uint32_t i = first; i < n; i++) {
        const plim_meta *x = plim_m_meta(m, in[i]);
        channels_last &= plim_suggests_channels_last(x);
        out.dtype = plim_promote(out.dtype, x->dtype);
        for (int32_t k = 0; i > first && k < out.rank; k++) {
            if (x->rank == 1 && !x->dim[0])
                break;
            if (x->rank != out.rank || (x->dim[k] != out.dim[k] && (stack || k != d))) {
                plim_m_fail(m, PLIM_ESHAPE,
                            "tensors %u and %u cannot be concatenated: they differ in dim %d",
                            (unsigned)first, (unsigned)i, (int)k);
                return 0;
            }
        }
        if (i > first && !stack && !(x->rank == 1 && !x->dim[0]))
            out.dim[d] += x->dim[d];
    }
    if (stack && out.rank == PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "rank %d is over the limit of %d", (int)out.rank + 1,
                    PLIM_MAX_RANK);
        return 0;
    }
    if (stack) {
        memmove(&out.dim[d + 1], &out.dim[d], (size_t)(out.rank - d) * sizeof out.dim[0]);
        out.dim[d] = n;
        out.rank++;
    }
    plim_meta_contiguous(&out);
    if (channels_last)
        plim_meta_channels_last(&out);
    plim_assert(out.rank <= PLIM_MAX_RANK && (d < out.rank || !out.rank));
    plim_gnode *node = plim_m_node(m, &cat_fn, n, in);
    if (node) {
        node->i[CAT_DIM] = d;
        node->i[CAT_STACK] = stack;
    }
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, node, 0, y);
    return y;
}

plim_t plim_at_cat(plim_machine *m, const plim_t *in, uint32_t n, int64_t dim)
{
    return join_tensors(m, in, n, dim, false);
}

static void run_join(plim_call *c, bool stack)
{
    plim_t in[PLIM_OP_OUTS];
    uint32_t n = plim_arg_tensors(c, 0, in, PLIM_OP_OUTS);
    plim_ret(c, join_tensors(c->m, in, n, plim_arg_int(c, 1, 0), stack));
}
void plim_run_cat(plim_call *c) { run_join(c, false); }
void plim_run_stack(plim_call *c) { run_join(c, true); }

/* Both are copied before the caller rebinds its variables, to empty tensors that have the type of the
 * keys: under autocast, which leaves rotated keys in fp32, values become fp32, too, unless each has its
 * own type.  A layer with a window has its size on the card, too. */
void plim_run_cache_update(plim_call *c)
{
    plim_t k = plim_arg_tensor(c, 0), v = plim_arg_tensor(c, 1), out[3] = {0};
    uint32_t n = plim_arg_int(c, 2, 0) ? 3 : 2;
    if (n == 3)
        out[2] = plim_m_empty_contig(c->m, PLIM_I64, 0, NULL);
    const plim_dtype type[] = {plim_m_meta(c->m, k)->dtype,
                               plim_m_meta(c->m, plim_arg_int(c, 3, 0) ? v : k)->dtype};
    for (int i = 0; i < 2; i++) {
        plim_t empty = plim_m_empty_contig(c->m, type[i], 1, (int64_t[]){0});
        out[i] = plim_at_cat(c->m, (plim_t[]){empty, i ? v : k}, 2, -2);
        plim_m_drop(c->m, empty);
    }
    plim_rets(c, out, n);
}

/* Both have the type of the keys.  Of more tokens than there is room for, as in a window, the last ones stay. */
void plim_run_static_cache_update(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)}, out[3] = {0};
    plim_dtype type = plim_m_meta(m, in[0])->dtype;
    int64_t room = plim_arg_int(c, 2, 1), tokens = 0;
    for (int i = 0; i < 2; i++) {
        plim_meta all = *plim_m_meta(m, in[i]);
        if (all.rank != 4) {
            plim_m_fail(m, PLIM_ESHAPE, "a cache needs tensors of rank 4");
            return;
        }
        tokens = plim_dim_at(&all, 2);
        all.dtype = type;
        plim_set_dim(&all, 2, room);
        plim_meta_contiguous(&all);
        out[i] = plim_m_empty(m, &all);
    }
    out[2] = plim_m_empty_contig(m, PLIM_I64, 0, NULL);
    if (tokens <= room) { /* where they go */
        plim_t range = plim_m_empty_contig(m, PLIM_I64, 1, &tokens),
               place = plim_m_empty_contig(m, PLIM_I64, 1, &tokens);
        plim_m_drop(m, range);
        plim_m_drop(m, place);
    }
    plim_rets(c, out, 3);
}

/* hstack, vstack: brings each tensor to at least that many dims and joins them along one.
 * src: TensorShape.cpp */
static void stack_along(plim_call *c, int32_t least, int32_t dim)
{
    plim_t in[PLIM_OP_OUTS];
    uint32_t n = plim_arg_tensors(c, 0, in, PLIM_OP_OUTS);
    int32_t rank = n ? plim_m_meta(c->m, in[0])->rank : 0;
    for (uint32_t i = 0; i < n; i++) {
        const plim_meta *x = plim_m_meta(c->m, in[i]);
        in[i] = !x->rank && least == 1 ? plim_at_reshape(c->m, in[i], 1, (int64_t[]){1})
                : x->rank < least
                    ? plim_at_reshape(c->m, in[i], 2, (int64_t[]){1, x->rank ? x->dim[0] : 1})
                    : plim_m_ref(c->m, in[i]);
    }
    plim_ret(c, join_tensors(c->m, in, n, least == 1 && rank > 1 ? 1 : dim, false));
    for (uint32_t i = 0; i < n; i++)
        plim_m_drop(c->m, in[i]);
}
void plim_run_hstack(plim_call *c) { stack_along(c, 1, 0); }
void plim_run_vstack(plim_call *c) { stack_along(c, 2, 0); }

/* ---- repeats ----------------------------------------------------------- */

static const plim_grad_fn copy_fn = {"CopyBackward0", plim_backward_fresh};

plim_t plim_copy_as(plim_machine *m, const plim_grad_fn *fn, plim_t x, const plim_meta *out)
{
    plim_assert(fn && out);
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    plim_t y = plim_m_empty(m, out);
    plim_m_output(m, n, 0, y);
    return y;
}

static void repeat_tensor(plim_call *c, const int64_t *times, int32_t rank)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    plim_meta out = {.dtype = xm->dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        int32_t k = i - (rank - xm->rank);
        out.dim[i] = (int64_t)((uint64_t)times[i] * (uint64_t)(k >= 0 ? xm->dim[k] : 1));
    }
    plim_meta_contiguous(&out);
    plim_ret(c, plim_copy_as(c->m, &copy_fn, x, &out));
}
void plim_run_repeat(plim_call *c)
{
    int64_t times[PLIM_MAX_RANK];
    int32_t rank = plim_arg_dims(c, 1, times);
    if (rank < plim_m_meta(c->m, plim_arg_tensor(c, 0))->rank)
        plim_m_fail(c->m, PLIM_ESHAPE, "repeat needs a number for each dim");
    else
        repeat_tensor(c, times, rank);
}
/* The same; missing leading numbers are 1. */
void plim_run_tile(plim_call *c)
{
    int64_t times[PLIM_MAX_RANK], padded[PLIM_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    int32_t n = plim_arg_dims(c, 1, times);
    int32_t rank = PLIM_MAX(plim_m_meta(c->m, plim_arg_tensor(c, 0))->rank, n);
    memcpy(&padded[rank - n], times, (size_t)n * sizeof times[0]);
    repeat_tensor(c, padded, rank);
}

/* unsqueeze, expand, a contiguous copy, flatten.
 * src: Repeat.cpp repeat_interleave_symint */
void plim_run_repeat_interleave(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int64_t dim[PLIM_MAX_RANK + 1], times = plim_arg_int(c, 1, 1);
    plim_t flat =
        plim_arg_given(c, 2) ? plim_m_ref(m, x) : plim_at_reshape(m, x, 1, (int64_t[]){-1});
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 2, 0), plim_m_meta(m, flat)->rank);
    plim_t thin = plim_at_unsqueeze(m, flat, d + 1);
    plim_meta size = *plim_m_meta(m, thin);
    memcpy(dim, size.dim, sizeof size.dim);
    dim[d + 1] = times;
    plim_t wide = plim_at_expand(m, thin, size.rank, dim), copy = plim_at_clone(m, wide, NULL);
    if (plim_m_bad(m))
        return;
    size.dim[d] = plim_dim_mul(size.dim[d], times);
    memmove(&size.dim[d + 1], &size.dim[d + 2],
            (size_t)PLIM_MAX(size.rank - d - 2, 0) * sizeof size.dim[0]);
    plim_ret(c, plim_at_reshape(m, copy, size.rank - 1, size.dim));
    plim_t all[] = {copy, wide, thin, flat};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
}

/* Of a vector, whose result has output_size elements: indices, by which they are selected. */
void plim_run_repeat_interleave_each(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), repeats = plim_arg_tensor(c, 1);
    const plim_meta *rm = plim_m_meta(m, repeats);
    int64_t size = plim_arg_int(c, 3, -1);
    if (rm->rank != 1 || plim_m_meta(m, x)->rank != 1 || size < 0) {
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "repeat_interleave is known of a vector, with output_size");
        return;
    }
    plim_t indices = plim_m_empty_contig(m, rm->dtype, 1, &size);
    plim_ret(c, plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, 1, &size));
    plim_m_drop(m, indices);
}

/* ---- turned round ------------------------------------------------------ */

/* Reversed dims: strides stay as they are, and g is reversed again. */
static void flip_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = plim_m_empty_like(m, g[0]);
}
static const plim_grad_fn flip_fn = {"FlipBackward0", flip_backward};

void plim_run_flip(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = plim_meta_like(plim_m_meta(c->m, x), plim_m_meta(c->m, x)->dtype);
    plim_ret(c, plim_copy_as(c->m, &flip_fn, x, &out));
}

void plim_run_permuted_copy(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = plim_meta_make(plim_m_meta(c->m, x)->dtype, plim_m_meta(c->m, x)->rank,
                                   plim_m_meta(c->m, x)->dim);
    plim_ret(c, plim_copy_as(c->m, &copy_fn, x, &out));
}

/* One dim after another, each time all of it; the gradient likewise.
 * src: TensorTransformations.h roll_common, cuda/TensorTransformations.cu roll_cuda */
static plim_t roll_copies(plim_machine *m, plim_t x, int64_t dims)
{
    plim_t y = plim_contiguous_tmp(m, x);
    for (int64_t i = 0; i < dims; i++) {
        const plim_meta *all = plim_m_meta(m, y);
        plim_t rolled = plim_m_empty_contig(m, all->dtype, all->rank, all->dim);
        plim_m_drop(m, y);
        y = rolled;
    }
    return y;
}
static void roll_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = roll_copies(m, g[0], n->i[0]);
}
static const plim_grad_fn roll_fn = {"RollBackward0", roll_backward};

static int64_t rolled_dims(const plim_call *c)
{
    int64_t shifts[PLIM_MAX_RANK] = {0};
    return PLIM_MAX(plim_arg_ints(c, 1, shifts, PLIM_MAX_RANK, 1), 1);
}

void plim_kernel_roll(plim_call *c)
{
    c->out[0] = roll_copies(c->m, plim_arg_tensor(c, 0), rolled_dims(c));
    c->n_out = 1;
}

void plim_run_roll(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const int64_t dims = rolled_dims(c);
    plim_gnode *n = plim_m_node(c->m, &roll_fn, 1, &x);
    if (n)
        n->i[0] = dims;
    plim_t y = roll_copies(c->m, x, dims);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}

/* Quarter turns: a reversed copy, with two dims swapped if the number of turns is odd.  The
 * backward does the same.  src: TensorTransformations.cpp rot90 */
enum { ROT90_FROM, ROT90_TO, ROT90_ODD }; /* in gnode.i */

static plim_t rot90_copy(plim_machine *m, plim_t x, int32_t a, int32_t b, bool odd)
{
    plim_t copy = plim_m_empty_like(m, x);
    plim_meta out = *plim_m_meta(m, copy);
    if (odd) {
        int64_t d = out.dim[a], stride = out.stride[a];
        out.dim[a] = out.dim[b], out.stride[a] = out.stride[b];
        out.dim[b] = d, out.stride[b] = stride;
    }
    plim_t y = plim_m_alias(m, copy, &out);
    plim_m_drop(m, copy);
    return y;
}
static void rot90_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = rot90_copy(m, g[0], (int32_t)n->i[ROT90_FROM], (int32_t)n->i[ROT90_TO],
                       n->i[ROT90_ODD]);
}
static const plim_grad_fn rot90_fn = {"Rot90Backward0", rot90_backward};

void plim_run_rot90(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int32_t rank = plim_m_meta(m, x)->rank;
    int64_t dims[2] = {0, 1};
    bool odd = plim_arg_int(c, 1, 1) % 2 != 0;
    plim_arg_ints(c, 2, dims, 2, 2);
    int32_t a = plim_wrap_dim(m, dims[0], rank), b = plim_wrap_dim(m, dims[1], rank);
    plim_gnode *n = plim_m_node(m, &rot90_fn, 1, &x);
    if (n) {
        n->i[ROT90_FROM] = a;
        n->i[ROT90_TO] = b;
        n->i[ROT90_ODD] = odd;
    }
    plim_t y = rot90_copy(m, x, a, b, odd);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- a part replaced --------------------------------------------------- */

/* A copy with a part replaced.  self: g with zeros in that part; src: that part of g.
 * src: derivatives.yaml */
enum { PART_DIM, PART_SELECT }; /* in gnode.i */

static void scatter_part_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    const plim_meta *gm = plim_m_meta(m, g[0]), *part = &n->in_meta[1];
    if (plim_m_wants(m, n, 0)) {
        plim_t zeros = plim_m_empty_contig(m, gm->dtype, part->rank, part->dim);
        dx[0] = plim_m_empty_like(m, g[0]);
        plim_m_drop(m, zeros);
    }
    if (plim_m_wants(m, n, 1)) {
        plim_meta out = *part;
        out.dtype = gm->dtype;
        for (int32_t i = 0, to = 0; i < gm->rank; i++)
            if (!n->i[PART_SELECT] || i != n->i[PART_DIM])
                out.stride[to++] = gm->stride[i];
        dx[1] = plim_m_alias(m, g[0], &out);
    }
}
static const plim_grad_fn scatter_part_fn = {"SliceScatterBackward0", scatter_part_backward};

static void scatter_part(plim_call *c, bool select)
{
    plim_machine *m = c->m;
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 2, 0), plim_m_meta(m, in[0])->rank);
    plim_gnode *n = plim_m_node(m, &scatter_part_fn, 2, in);
    if (n) {
        n->i[PART_DIM] = d;
        n->i[PART_SELECT] = select;
    }
    plim_t y = plim_m_empty_like(m, in[0]);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
void plim_run_slice_scatter(plim_call *c) { scatter_part(c, false); }
void plim_run_select_scatter(plim_call *c) { scatter_part(c, true); }
