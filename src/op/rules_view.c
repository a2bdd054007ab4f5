/* rules_view.c -- views, copies, joins.
 * src: facts training-step.md 3.3; aten/src/ATen/native/TensorShape.cpp. */
#include "op/rules.h"

/* ---- gradients of views ---------------------------------------------------- */

plim_t plim_grad_reshape(plim_machine *m, plim_t g, const plim_meta *like)
{
    plim_meta out = *like;
    out.dtype = plim_m_meta(m, g)->dtype;
    if (plim_view_strides(plim_m_meta(m, g), out.rank, out.dim, out.stride))
        return plim_m_alias(m, g, &out);
    plim_meta_contiguous(&out);
    return plim_m_empty(m, &out); /* clone, then a view of it */
}

/* view, reshape, flatten: g.reshape(old size) */
static void view_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = plim_grad_reshape(m, g[0], &n->in_meta[0]);
}
static const plim_grad_fn view_fn = {"ViewBackward0", view_backward};

/* permute, transpose, t: the inverse permutation is in n->i */
static void permute_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    const plim_meta *gm = plim_m_meta(m, g[0]);
    plim_meta out = *gm;
    for (int32_t i = 0; i < gm->rank; i++) {
        out.dim[n->i[i]] = gm->dim[i];
        out.stride[n->i[i]] = gm->stride[i];
    }
    dx[0] = plim_m_alias(m, g[0], &out);
}
static const plim_grad_fn permute_fn = {"PermuteBackward0", permute_backward};

/* expand: the engine sums to the input's size */
static void expand_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = plim_same_size(plim_m_meta(m, g[0]), &n->in_meta[0])
                ? plim_m_ref(m, g[0])
                : plim_at_sum_to(m, g[0], &n->in_meta[0]);
}
static const plim_grad_fn expand_fn = {"ExpandBackward0", expand_backward};

void plim_backward_fresh(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = plim_m_empty_contig(m, plim_m_meta(m, g[0])->dtype, n->in_meta[0].rank,
                                n->in_meta[0].dim);
}

/* slice, select, narrow: zeros of the whole input, the part copied in */
static const plim_grad_fn slice_fn = {"SliceBackward0", plim_backward_fresh};
static const plim_grad_fn select_fn = {"SelectBackward0", plim_backward_fresh};

/* split, chunk, unbind: missing gradients become zeros, then one cat */
static void split_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t zero[256] = {0};
    const plim_meta *any = NULL;
    uint32_t outs = PLIM_MIN(n->n_out, 256);
    for (uint32_t i = 0; i < outs; i++)
        if (g[i])
            any = plim_m_meta(m, g[i]);
    for (uint32_t i = 0; i < outs && any; i++)
        if (!g[i]) {
            plim_meta z = *n->meta;
            z.dtype = any->dtype;
            zero[i] = plim_m_empty(m, &z);
        }
    plim_meta out = plim_meta_make(n->in_meta[0].dtype, n->in_meta[0].rank, n->in_meta[0].dim);
    dx[0] = plim_m_empty(m, &out);
    for (uint32_t i = 0; i < outs; i++)
        plim_m_drop(m, zero[i]);
}
static const plim_grad_fn split_fn = {"SplitBackward0", split_backward};

static void pass_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = plim_m_ref(m, g[0]);
}
static const plim_grad_fn clone_fn = {"CloneBackward0", pass_backward};
static const plim_grad_fn alias_fn = {"AliasBackward0", pass_backward};

/* ---- making views ------------------------------------------------------------ */

/* The same bytes, but no view to autograd: writing into the result leaves the
 * history of x alone. */
static plim_t alias_as_meta(plim_machine *m, const plim_grad_fn *fn, plim_t x,
                            const plim_meta *out)
{
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    plim_t y = plim_m_alias(m, x, out);
    plim_m_output(m, n, 0, y);
    return y;
}

static plim_t view_as_meta(plim_machine *m, const plim_grad_fn *fn, plim_t x,
                           const plim_meta *out)
{
    plim_t y = alias_as_meta(m, fn, x, out);
    plim_m_view_of(m, y, x);
    return y;
}

/* The -1 in dim filled in; fails the machine where the sizes do not fit. */
static bool view_size(plim_machine *m, const plim_meta *x, int32_t rank, int64_t *dim)
{
    if (rank <= PLIM_MAX_RANK && plim_infer_size(x, rank, dim))
        return true;
    char buf[96];
    plim_meta want = {.rank = PLIM_MIN(rank, PLIM_MAX_RANK)};
    memcpy(want.dim, dim, (size_t)want.rank * sizeof dim[0]);
    char to[96];
    plim_m_fail(m, PLIM_ESHAPE, "%s cannot be seen as %s", plim_meta_str(x, buf, sizeof buf),
                plim_meta_str(&want, to, sizeof to));
    return false;
}

typedef enum reshape_kind { RESHAPE_VIEW, RESHAPE_COPY, RESHAPE_UNSAFE } reshape_kind;

static plim_t reshape_with(plim_machine *m, plim_t x, int32_t rank, const int64_t *dim,
                           reshape_kind kind)
{
    plim_meta out = *plim_m_meta(m, x);
    int64_t size[PLIM_MAX_RANK] = {0};
    memcpy(size, dim, (size_t)PLIM_MIN(rank, PLIM_MAX_RANK) * sizeof dim[0]);
    if (!view_size(m, &out, rank, size))
        return 0;
    plim_meta from = out;
    out.rank = rank;
    memcpy(out.dim, size, sizeof size);
    if (plim_view_strides(&from, rank, size, out.stride))
        return kind == RESHAPE_UNSAFE ? alias_as_meta(m, &view_fn, x, &out)
                                      : view_as_meta(m, &view_fn, x, &out);
    if (kind != RESHAPE_COPY) {
        char buf[96];
        plim_m_fail(m, PLIM_ESHAPE, "%s has no view of this shape without a copy",
                    plim_meta_str(&from, buf, sizeof buf));
        return 0;
    }
    plim_t copy = plim_at_clone(m, x, NULL);
    plim_t y = plim_at_reshape_unsafe(m, copy, rank, size);
    plim_m_drop(m, copy);
    return y;
}

plim_t plim_at_view(plim_machine *m, plim_t x, int32_t rank, const int64_t *dim)
{
    return reshape_with(m, x, rank, dim, RESHAPE_VIEW);
}
plim_t plim_at_reshape(plim_machine *m, plim_t x, int32_t rank, const int64_t *dim)
{
    return reshape_with(m, x, rank, dim, RESHAPE_COPY);
}
plim_t plim_at_reshape_unsafe(plim_machine *m, plim_t x, int32_t rank, const int64_t *dim)
{
    return reshape_with(m, x, rank, dim, RESHAPE_UNSAFE);
}

plim_t plim_at_permute(plim_machine *m, plim_t x, const int64_t *perm)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = *xm;
    for (int32_t i = 0; i < xm->rank; i++) {
        int32_t d = plim_wrap_dim(m, perm[i], xm->rank);
        out.dim[i] = xm->dim[d];
        out.stride[i] = xm->stride[d];
    }
    plim_gnode *n = plim_m_node(m, &permute_fn, 1, &x);
    for (int32_t i = 0; n && i < xm->rank; i++)
        n->i[i] = perm[i] < 0 ? perm[i] + xm->rank : perm[i];
    plim_t y = plim_m_alias(m, x, &out);
    plim_m_output(m, n, 0, y);
    plim_m_view_of(m, y, x);
    return y;
}

plim_t plim_at_transpose(plim_machine *m, plim_t x, int32_t a, int32_t b)
{
    int64_t perm[PLIM_MAX_RANK] = {0};
    int32_t rank = plim_m_meta(m, x)->rank;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i == a ? b : i == b ? a : i;
    return plim_at_permute(m, x, perm);
}

plim_t plim_at_t(plim_machine *m, plim_t x)
{
    return plim_m_meta(m, x)->rank < 2 ? plim_at_permute(m, x, (int64_t[PLIM_MAX_RANK]){0})
                                       : plim_at_transpose(m, x, 0, 1);
}

plim_t plim_at_expand(plim_machine *m, plim_t x, int32_t rank, const int64_t *dim)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = {.dtype = xm->dtype, .rank = rank};
    if (rank > PLIM_MAX_RANK || rank < xm->rank) {
        plim_m_fail(m, PLIM_ESHAPE, "rank %d cannot be expanded to rank %d", (int)xm->rank,
                    (int)rank);
        return 0;
    }
    for (int32_t i = 0; i < rank; i++) {
        int32_t k = i - (rank - xm->rank);
        int64_t have = k >= 0 ? xm->dim[k] : 1;
        out.dim[i] = dim[i] == -1 ? have : dim[i];
        if (have != out.dim[i] && have != 1)
            plim_m_fail(m, PLIM_ESHAPE, "size %" PRId64 " cannot be expanded to %" PRId64,
                        have, out.dim[i]);
        out.stride[i] = k < 0 || have != out.dim[i] ? 0 : xm->stride[k];
    }
    return view_as_meta(m, &expand_fn, x, &out);
}

plim_t plim_at_unsqueeze(plim_machine *m, plim_t x, int32_t d)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = *xm;
    if (xm->rank == PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "rank %d is over the limit of %d", (int)xm->rank + 1,
                    PLIM_MAX_RANK);
        return 0;
    }
    out.rank++;
    for (int32_t i = out.rank - 1; i > d; i--) {
        out.dim[i] = xm->dim[i - 1];
        out.stride[i] = xm->stride[i - 1];
    }
    out.dim[d] = 1;
    out.stride[d] =
        d < xm->rank ? (int64_t)((uint64_t)xm->dim[d] * (uint64_t)xm->stride[d]) : 1;
    return view_as_meta(m, &view_fn, x, &out);
}

/* Drops the dims whose bits are set in mask and whose size is 1. */
static plim_t squeeze_mask(plim_machine *m, plim_t x, uint32_t mask)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = {.dtype = xm->dtype};
    for (int32_t i = 0; i < xm->rank; i++) {
        if (xm->dim[i] == 1 && (mask >> i & 1))
            continue;
        out.dim[out.rank] = xm->dim[i];
        out.stride[out.rank++] = xm->stride[i];
    }
    return view_as_meta(m, &view_fn, x, &out);
}
plim_t plim_at_squeeze(plim_machine *m, plim_t x, int32_t d)
{
    return squeeze_mask(m, x, 1u << d);
}

plim_t plim_at_clone(plim_machine *m, plim_t x, const plim_meta *layout)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = plim_meta_make(xm->dtype, xm->rank, xm->dim);
    if (layout)
        out = *layout;
    plim_gnode *n = plim_m_node(m, &clone_fn, 1, &x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_contiguous(plim_machine *m, plim_t x)
{
    return plim_is_contiguous(plim_m_meta(m, x)) ? plim_m_ref(m, x)
                                                 : plim_at_clone(m, x, NULL);
}

/* The engine's dtype check brings the gradient back: nothing to do here. */
static const plim_grad_fn to_copy_fn = {"ToCopyBackward0", pass_backward};

plim_t plim_at_to(plim_machine *m, plim_t x, plim_dtype t)
{
    const plim_meta *xm = plim_m_meta(m, x);
    if (xm->dtype == t)
        return plim_m_ref(m, x);
    plim_meta out = plim_meta_like(xm, t);
    plim_gnode *n = plim_is_float(t) ? plim_m_node(m, &to_copy_fn, 1, &x) : NULL;
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    return y;
}

/* ---- rules ---------------------------------------------------------------------- */

static int32_t view_ints(plim_call *c, uint32_t slot, int64_t *dim)
{
    return (int32_t)plim_arg_ints(c, slot, dim, PLIM_MAX_RANK, 1);
}

void plim_run_view(plim_call *c)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = view_ints(c, 1, dim);
    plim_ret(c, plim_at_view(c->m, plim_arg_tensor(c, 0), rank, dim));
}
void plim_run_unsafe_view(plim_call *c)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = view_ints(c, 1, dim);
    plim_ret(c, plim_at_reshape_unsafe(c->m, plim_arg_tensor(c, 0), rank, dim));
}
void plim_run_reshape_as(plim_call *c)
{
    const plim_meta *like = plim_m_meta(c->m, plim_arg_tensor(c, 1));
    plim_ret(c, plim_at_reshape(c->m, plim_arg_tensor(c, 0), like->rank, like->dim));
}
void plim_run_view_as(plim_call *c)
{
    const plim_meta *like = plim_m_meta(c->m, plim_arg_tensor(c, 1));
    plim_ret(c, plim_at_view(c->m, plim_arg_tensor(c, 0), like->rank, like->dim));
}
void plim_run_reshape(plim_call *c)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = view_ints(c, 1, dim);
    plim_ret(c, plim_at_reshape(c->m, plim_arg_tensor(c, 0), rank, dim));
}

void plim_run_flatten(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    int32_t a = plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), xm->rank);
    int32_t b = plim_wrap_dim(c->m, plim_arg_int(c, 2, -1), xm->rank), rank = 0;
    int64_t dim[PLIM_MAX_RANK] = {1};
    if (xm->rank && a == b) { /* nothing to join: the tensor itself */
        plim_ret(c, plim_m_ref(c->m, x));
        return;
    }
    for (int32_t i = 0; i < xm->rank; i++) {
        if (i > a && i <= b)
            dim[rank - 1] = (int64_t)((uint64_t)dim[rank - 1] * (uint64_t)xm->dim[i]);
        else
            dim[rank++] = xm->dim[i];
    }
    plim_ret(c, plim_at_reshape(c->m, x, PLIM_MAX(rank, 1), dim));
}

void plim_run_unflatten(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    int64_t part[PLIM_MAX_RANK], dim[2 * PLIM_MAX_RANK];
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), xm->rank);
    int32_t n = view_ints(c, 2, part), rank = 0;
    plim_meta one = plim_meta_make(xm->dtype, 1, &xm->dim[d]);
    if (!view_size(c->m, &one, n, part))
        return;
    for (int32_t i = 0; i < xm->rank; i++) {
        if (i != d)
            dim[rank++] = xm->dim[i];
        for (int32_t k = 0; i == d && k < n; k++)
            dim[rank++] = part[k];
    }
    plim_ret(c, plim_at_view(c->m, x, rank, dim));
}

void plim_run_permute(plim_call *c)
{
    int64_t perm[PLIM_MAX_RANK];
    plim_t x = plim_arg_tensor(c, 0);
    if (view_ints(c, 1, perm) != plim_m_meta(c->m, x)->rank)
        plim_m_fail(c->m, PLIM_ESHAPE, "permute needs one number a dim");
    else
        plim_ret(c, plim_at_permute(c->m, x, perm));
}
void plim_run_transpose(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int32_t rank = plim_m_meta(c->m, x)->rank;
    int32_t a = plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), rank);
    int32_t b = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), rank);
    plim_ret(c, plim_at_transpose(c->m, x, a, b));
}
/* All dims in reverse; or the last two swapped. */
void plim_run_reverse_dims(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int64_t perm[PLIM_MAX_RANK] = {0};
    int32_t rank = plim_m_meta(c->m, x)->rank;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = rank - 1 - i;
    plim_ret(c, plim_at_permute(c->m, x, perm));
}

void plim_run_matrix_t(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int32_t rank = plim_m_meta(c->m, x)->rank;
    if (rank < 2)
        plim_m_fail(c->m, PLIM_ESHAPE, "no matrices in rank %d", (int)rank);
    else
        plim_ret(c, plim_at_transpose(c->m, x, rank - 2, rank - 1));
}

/* Some dims to given places, the others in order where room is left. */
void plim_run_movedim(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int32_t rank = plim_m_meta(m, x)->rank;
    int64_t from[PLIM_MAX_RANK], to[PLIM_MAX_RANK], perm[PLIM_MAX_RANK];
    uint32_t n = plim_arg_ints(c, 1, from, PLIM_MAX_RANK, 1), moved = 0;
    if (plim_arg_ints(c, 2, to, PLIM_MAX_RANK, 1) != n) {
        plim_m_fail(m, PLIM_ESHAPE, "movedim of %u dims to another number of places",
                    (unsigned)n);
        return;
    }
    for (int32_t i = 0; i < rank; i++)
        perm[i] = -1;
    for (uint32_t i = 0; i < n; i++) {
        int32_t d = plim_wrap_dim(m, from[i], rank);
        perm[plim_wrap_dim(m, to[i], rank)] = d;
        moved |= 1u << d;
    }
    for (int32_t i = 0, d = 0; i < rank; i++) {
        if (perm[i] >= 0)
            continue;
        while (d < rank && (moved >> d & 1))
            d++;
        perm[i] = d++;
    }
    plim_ret(c, plim_at_permute(m, x, perm));
}

void plim_run_t(plim_call *c) { plim_ret(c, plim_at_t(c->m, plim_arg_tensor(c, 0))); }

void plim_run_squeeze(plim_call *c)
{
    int64_t dims[PLIM_MAX_RANK];
    plim_t x = plim_arg_tensor(c, 0);
    uint32_t n = plim_arg_ints(c, 1, dims, PLIM_MAX_RANK, 1), mask = 0;
    for (uint32_t i = 0; i < n; i++)
        mask |= 1u << plim_wrap_dim(c->m, dims[i], plim_m_meta(c->m, x)->rank);
    plim_ret(c, squeeze_mask(c->m, x, plim_arg_given(c, 1) ? mask : UINT32_MAX));
}
void plim_run_unsqueeze(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int32_t rank = plim_m_meta(c->m, x)->rank + 1;
    plim_ret(c, plim_at_unsqueeze(c->m, x, plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), rank)));
}

void plim_run_expand(plim_call *c)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = view_ints(c, 1, dim);
    plim_ret(c, plim_at_expand(c->m, plim_arg_tensor(c, 0), rank, dim));
}
void plim_run_expand_as(plim_call *c)
{
    const plim_meta *like = plim_m_meta(c->m, plim_arg_tensor(c, 1));
    plim_ret(c, plim_at_expand(c->m, plim_arg_tensor(c, 0), like->rank, like->dim));
}

/* Each vector along a dim of its own, expanded over the others'.
 * src: TensorShape.cpp meshgrid */
void plim_run_meshgrid(plim_call *c)
{
    plim_t in[PLIM_MAX_RANK];
    uint32_t n = plim_arg_tensors(c, 0, in, PLIM_COUNT(in));
    bool xy = plim_str_is(plim_arg_string(c, 1), "xy") && n > 1;
    int64_t all[PLIM_MAX_RANK];
    for (uint32_t i = 0; i < n; i++) {
        const plim_meta *x = plim_m_meta(c->m, in[i]);
        all[xy && i < 2 ? 1 - i : i] = x->rank ? x->dim[0] : 1;
    }
    for (uint32_t d = 0; d < PLIM_MIN(n, c->n_out); d++) {
        uint32_t i = xy && d < 2 ? 1 - d : d;
        int64_t one[PLIM_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
        one[d] = all[d];
        plim_t v = plim_at_view(c->m, in[i], (int32_t)n, one);
        c->out[i] = plim_at_expand(c->m, v, (int32_t)n, all);
        plim_m_drop(c->m, v);
    }
}

/* Each input expanded to the size that all broadcast to; one that has it is
 * passed on.  src: ExpandUtils.h expand_outplace */
void plim_run_broadcast_tensors(plim_call *c)
{
    plim_t in[64];
    uint32_t n = plim_arg_tensors(c, 0, in, PLIM_COUNT(in));
    plim_meta all = {.dtype = PLIM_F32};
    for (uint32_t i = 0; i < n; i++)
        if (!plim_broadcast(&all, plim_m_meta(c->m, in[i]), &all)) {
            plim_m_fail(c->m, PLIM_ESHAPE, "tensor %u does not broadcast", (unsigned)i);
            return;
        }
    for (uint32_t i = 0; i < PLIM_MIN(n, c->n_out); i++)
        c->out[i] = plim_same_size(plim_m_meta(c->m, in[i]), &all)
                        ? plim_m_ref(c->m, in[i])
                        : plim_at_expand(c->m, in[i], all.rank, all.dim);
}

void plim_run_slice(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(c->m, x);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), out.rank);
    int64_t size = out.rank ? out.dim[d] : 0, step = plim_arg_int(c, 4, 1);
    int64_t from = plim_arg_int(c, 2, 0), to = plim_arg_int(c, 3, INT64_MAX);
    if (step < 1 || !out.rank) {
        plim_m_fail(c->m, PLIM_ESHAPE, "slice step %" PRId64 " is below 1", step);
        return;
    }
    from = PLIM_MAX(from < 0 ? from + size : from, 0);
    to = to < 0 ? to + size : to;
    from = PLIM_MIN(from, size);
    to = PLIM_MAX(PLIM_MIN(to, size), from);
    out.dim[d] = (to - from) / step + ((to - from) % step != 0);
    out.stride[d] = (int64_t)((uint64_t)out.stride[d] * (uint64_t)step);
    plim_ret(c, view_as_meta(c->m, &slice_fn, x, &out));
}

/* Where it starts says nothing about memory. */
plim_t plim_at_narrow(plim_machine *m, plim_t x, int32_t d, int64_t length)
{
    plim_meta out = *plim_m_meta(m, x);
    out.dim[d] = length;
    return view_as_meta(m, &slice_fn, x, &out);
}

/* tensor_split: a slice for each part, with a node of its own.
 * src: TensorShape.cpp tensor_split_symint, _tensor_split_indices */
static void view_slices(plim_call *c, plim_t x, int32_t d, const int64_t *end, uint32_t n)
{
    int64_t size = plim_m_meta(c->m, x)->dim[d], from = 0;
    if (n + 1 > c->n_out) {
        plim_m_fail(c->m, PLIM_ESHAPE, "a split into %u has %u outputs", (unsigned)n + 1,
                    (unsigned)c->n_out);
        return;
    }
    for (uint32_t i = 0; i <= n; i++) {
        int64_t to =
            i < n ? PLIM_MIN(PLIM_MAX(end[i] < 0 ? end[i] + size : end[i], 0), size) : size;
        c->out[i] = plim_at_narrow(c->m, x, d, PLIM_MAX(to - from, 0));
        from = to;
    }
}
void plim_run_tensor_split_indices(plim_call *c)
{
    int64_t end[64];
    plim_t x = plim_arg_tensor(c, 0);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), plim_m_meta(c->m, x)->rank);
    uint32_t n = plim_arg_ints(c, 1, end, PLIM_COUNT(end), 1);
    view_slices(c, x, d, end, n);
}
void plim_run_tensor_split_sections(plim_call *c)
{
    int64_t end[64];
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), xm->rank);
    int64_t parts = plim_arg_int(c, 1, 1), size = xm->dim[d], at = 0;
    if (parts < 1 || parts > (int64_t)PLIM_COUNT(end)) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "tensor_split into %" PRId64 " parts", parts);
        return;
    }
    for (int64_t i = 0; i + 1 < parts; i++) /* the first parts take what does not divide */
        end[i] = at += size / parts + (i < size % parts);
    view_slices(c, x, d, end, (uint32_t)parts - 1);
}

static plim_t view_without_dim(plim_machine *m, const plim_grad_fn *fn, plim_t x, int32_t d)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = {.dtype = xm->dtype};
    for (int32_t i = 0; i < xm->rank; i++)
        if (i != d) {
            out.dim[out.rank] = xm->dim[i];
            out.stride[out.rank++] = xm->stride[i];
        }
    return view_as_meta(m, fn, x, &out);
}

void plim_run_select(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), plim_m_meta(c->m, x)->rank);
    plim_ret(c, view_without_dim(c->m, &select_fn, x, d));
}

void plim_run_narrow(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), plim_m_meta(c->m, x)->rank);
    plim_ret(c, plim_at_narrow(c->m, x, d, plim_arg_int(c, 3, 0)));
}

/* The elements i, i of two dims, as a last dim.  src: TensorShape.cpp diagonal */
void plim_run_diagonal(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta xm = *plim_m_meta(c->m, x), out = {.dtype = xm.dtype};
    int64_t offset = plim_arg_int(c, 1, 0);
    int32_t a = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), xm.rank),
            b = plim_wrap_dim(c->m, plim_arg_int(c, 3, 1), xm.rank);
    if (xm.rank < 2 || a == b) {
        plim_m_fail(c->m, PLIM_ESHAPE, "the diagonal of dims %d and %d of rank %d", (int)a,
                    (int)b, (int)xm.rank);
        return;
    }
    for (int32_t i = 0; i < xm.rank; i++)
        if (i != a && i != b) {
            out.dim[out.rank] = xm.dim[i];
            out.stride[out.rank++] = xm.stride[i];
        }
    int64_t rows = xm.dim[a] + PLIM_MIN(offset, 0), cols = xm.dim[b] - PLIM_MAX(offset, 0);
    out.dim[out.rank] = PLIM_MAX(PLIM_MIN(rows, cols), 0);
    out.stride[out.rank++] = xm.stride[a] + xm.stride[b];
    plim_ret(c, view_as_meta(c->m, &slice_fn, x, &out));
}

enum { UNFOLD_DIM, UNFOLD_OVERLAPS }; /* in gnode.i */

/* Zeros, and where windows overlap the places of a dim.
 * src: UnfoldBackward.cpp, UnfoldBackward.h */
static void unfold_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_backward_fresh(m, n, g, dx);
    if (n->i[UNFOLD_OVERLAPS])
        plim_m_drop(m,
                    plim_m_empty_contig(m, PLIM_I64, 1, &n->in_meta[0].dim[n->i[UNFOLD_DIM]]));
}
static const plim_grad_fn unfold_fn = {"UnfoldBackward0", unfold_backward};

/* Windows of one dim as a new last dim: a view. */
void plim_run_unfold(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(m, x);
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 1, 0), out.rank);
    int64_t size = plim_arg_int(c, 2, 1), step = plim_arg_int(c, 3, 1);
    if (!out.rank || out.rank == PLIM_MAX_RANK || size < 0 || step < 1 || size > out.dim[d]) {
        plim_m_fail(m, PLIM_ESHAPE, "windows of %" PRId64 ", %" PRId64 " apart, of rank %d",
                    size, step, (int)out.rank);
        return;
    }
    int64_t stride = out.stride[d];
    out.dim[d] = (out.dim[d] - size) / step + 1;
    out.stride[d] = (int64_t)((uint64_t)stride * (uint64_t)step);
    out.dim[out.rank] = size;
    out.stride[out.rank++] = stride;
    plim_gnode *n = plim_m_node(m, &unfold_fn, 1, &x);
    if (n) {
        n->i[UNFOLD_DIM] = d;
        n->i[UNFOLD_OVERLAPS] = step < size;
    }
    plim_t y = plim_m_alias(m, x, &out);
    plim_m_output(m, n, 0, y);
    plim_m_view_of(m, y, x);
    plim_ret(c, y);
}

/* n outputs of one node, sizes along d given */
static void view_parts(plim_call *c, plim_t x, int32_t d, const int64_t *size, uint32_t n)
{
    plim_machine *m = c->m;
    plim_meta part = *plim_m_meta(m, x);
    plim_gnode *node = plim_m_node(m, &split_fn, 1, &x);
    if (n > c->n_out)
        plim_m_fail(m, PLIM_ESHAPE, "a split into %u has %u outputs", (unsigned)n,
                    (unsigned)c->n_out);
    for (uint32_t i = 0; i < PLIM_MIN(n, c->n_out); i++) {
        part.dim[d] = size[i];
        c->out[i] = plim_m_alias(m, x, &part);
        plim_m_output(m, node, i, c->out[i]);
    }
    part = plim_meta_make(part.dtype, part.rank, part.dim);
    plim_m_note(m, node, &part);
}

void plim_run_split(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    int64_t size[64];
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), xm->rank);
    uint32_t n = plim_arg_ints(c, 1, size, PLIM_COUNT(size), 1);
    if (n == 1 && c->n_out >= 1 && size[0] > 0 &&
        xm->rank) { /* equal parts, the last may be smaller */
        int64_t each = size[0], left = xm->dim[d];
        for (n = 0; n < PLIM_COUNT(size) && left > 0; left -= each)
            size[n++] = PLIM_MIN(each, left);
    }
    view_parts(c, x, d, size, n);
}

void plim_run_chunk(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    int64_t size[64], chunks = plim_arg_int(c, 1, 1);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), xm->rank);
    if (chunks < 1 || !xm->rank) {
        plim_m_fail(c->m, PLIM_ESHAPE, "chunk into %" PRId64 " parts", chunks);
        return;
    }
    int64_t each = PLIM_MAX((xm->dim[d] + chunks - 1) / chunks, 1), left = xm->dim[d];
    uint32_t n = 0;
    for (; n < PLIM_COUNT(size) && left > 0; left -= each)
        size[n++] = PLIM_MIN(each, left);
    view_parts(c, x, d, size, n);
}

void plim_run_unbind(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(m, x);
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 1, 0), xm->rank);
    plim_gnode *node = plim_m_node(m, &split_fn, 1, &x);
    plim_meta part = {.dtype = xm->dtype};
    for (int32_t i = 0; i < xm->rank; i++)
        if (i != d) {
            part.dim[part.rank] = xm->dim[i];
            part.stride[part.rank++] = xm->stride[i];
        }
    for (uint32_t i = 0; i < c->n_out; i++) {
        c->out[i] = plim_m_alias(m, x, &part);
        plim_m_output(m, node, i, c->out[i]);
    }
    part = plim_meta_make(part.dtype, part.rank, part.dim);
    plim_m_note(m, node, &part);
}

void plim_run_alias(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_ret(c, view_as_meta(c->m, &alias_fn, x, plim_m_meta(c->m, x)));
}
void plim_run_detach(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_ret(c, plim_m_alias(c->m, x, plim_m_meta(c->m, x)));
}
/* MemoryFormat: 1 contiguous, 2 channels_last, 3 channels_last_3d, 4 preserve
 * (numbering of the export schema, formats.md 1b). */
enum { FORMAT_CHANNELS_LAST = 2, FORMAT_CHANNELS_LAST_3D = 3, FORMAT_PRESERVE = 4 };

void plim_run_contiguous(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int64_t format = plim_arg_int(c, 1, 0);
    if (format != FORMAT_CHANNELS_LAST && format != FORMAT_CHANNELS_LAST_3D) {
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
    int64_t format = plim_arg_int(c, 1, FORMAT_PRESERVE);
    plim_meta like = plim_meta_like(plim_m_meta(c->m, x), plim_m_meta(c->m, x)->dtype);
    plim_ret(c, plim_at_clone(c->m, x, format == FORMAT_PRESERVE ? &like : NULL));
}
void plim_run_to(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int64_t t = plim_arg_int(c, 1, plim_m_meta(c->m, x)->dtype);
    plim_ret(c,
             plim_at_to(c->m, x, t >= 0 && t < PLIM_DTYPE_COUNT ? (plim_dtype)t : PLIM_F32));
}
void plim_run_to_dtype(plim_call *c) { plim_run_to(c); }
void plim_run_type_as(plim_call *c)
{
    plim_dtype t = plim_m_meta(c->m, plim_arg_tensor(c, 1))->dtype;
    plim_ret(c, plim_at_to(c->m, plim_arg_tensor(c, 0), t));
}

/* A constant of the program.  A number is a tensor on the CPU, which kernels take
 * as an argument; anything larger has to be on the card. */
void plim_run_lift_fresh(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_ret(c, plim_m_meta(c->m, x)->rank ? plim_m_empty_like(c->m, x)
                                           : plim_m_outside(c->m, plim_m_meta(c->m, x)));
}

/* ---- joins ---------------------------------------------------------------------- */

enum { VIEW_MAX_JOIN = 256 };

/* Each input gets a narrow of g: no bytes, g lives as long as any of them. */
static void cat_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    const plim_meta *gm = plim_m_meta(m, g[0]);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!plim_m_wants(m, n, i))
            continue;
        plim_meta part = *gm;
        if (n->i[1]) { /* stack: the joined dim goes */
            part = n->in_meta[i];
            part.dtype = gm->dtype;
            for (int32_t k = 0, to = 0; k < gm->rank; k++)
                if (k != n->i[0])
                    part.stride[to++] = gm->stride[k];
        } else {
            part.dim[n->i[0]] = n->in_meta[i].dim[n->i[0]];
        }
        dx[i] = plim_m_alias(m, g[0], &part);
    }
}
static const plim_grad_fn cat_fn = {"CatBackward0", cat_backward};

static plim_t join(plim_machine *m, const plim_t *in, uint32_t n, int64_t dim, bool stack)
{
    if (!n) {
        plim_m_fail(m, PLIM_ESHAPE, "nothing to join");
        return 0;
    }
    uint32_t first = 0; /* legacy: empty 1-d tensors are skipped */
    while (first + 1 < n && plim_m_meta(m, in[first])->rank == 1 &&
           !plim_m_meta(m, in[first])->dim[0])
        first++;
    plim_meta out = *plim_m_meta(m, in[first]);
    int32_t d = plim_wrap_dim(m, dim, out.rank + (stack ? 1 : 0));
    bool channels_last = !stack; /* the result keeps a layout that all share */
    for (uint32_t i = first; i < n; i++) {
        const plim_meta *x = plim_m_meta(m, in[i]);
        channels_last &= plim_suggests_channels_last(x);
        out.dtype = plim_promote(out.dtype, x->dtype);
        for (int32_t k = 0; i > first && k < out.rank; k++) {
            if (x->rank == 1 && !x->dim[0])
                break;
            if (x->rank != out.rank || (x->dim[k] != out.dim[k] && (stack || k != d))) {
                plim_m_fail(m, PLIM_ESHAPE, "tensors %u and %u of a join differ in dim %d",
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
    plim_gnode *node = plim_m_node(m, &cat_fn, n, in);
    if (node) {
        node->i[0] = d;
        node->i[1] = stack;
    }
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, node, 0, y);
    return y;
}

plim_t plim_at_cat(plim_machine *m, const plim_t *in, uint32_t n, int64_t dim)
{
    return join(m, in, n, dim, false);
}

static void run_join(plim_call *c, bool stack)
{
    plim_t in[VIEW_MAX_JOIN];
    uint32_t n = plim_arg_tensors(c, 0, in, VIEW_MAX_JOIN);
    plim_ret(c, join(c->m, in, n, plim_arg_int(c, 1, 0), stack));
}
void plim_run_cat(plim_call *c) { run_join(c, false); }
void plim_run_stack(plim_call *c) { run_join(c, true); }

/* hstack, vstack: each at least so many dims, joined along one of them.
 * src: TensorShape.cpp */
static void stack_along(plim_call *c, int32_t least, int32_t dim)
{
    plim_t in[VIEW_MAX_JOIN];
    uint32_t n = plim_arg_tensors(c, 0, in, VIEW_MAX_JOIN);
    int32_t rank = n ? plim_m_meta(c->m, in[0])->rank : 0;
    for (uint32_t i = 0; i < n; i++) {
        const plim_meta *x = plim_m_meta(c->m, in[i]);
        in[i] = !x->rank && least == 1 ? plim_at_reshape(c->m, in[i], 1, (int64_t[]){1})
                : x->rank < least
                    ? plim_at_reshape(c->m, in[i], 2, (int64_t[]){1, x->rank ? x->dim[0] : 1})
                    : plim_m_ref(c->m, in[i]);
    }
    plim_ret(c, join(c->m, in, n, least == 1 && rank > 1 ? 1 : dim, false));
    for (uint32_t i = 0; i < n; i++)
        plim_m_drop(c->m, in[i]);
}
void plim_run_hstack(plim_call *c) { stack_along(c, 1, 0); }
void plim_run_vstack(plim_call *c) { stack_along(c, 2, 0); }

/* ---- copies of another size -------------------------------------------------------- */

static void copy_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_meta out =
        plim_meta_make(plim_m_meta(m, g[0])->dtype, n->in_meta[0].rank, n->in_meta[0].dim);
    dx[0] = plim_m_empty(m, &out);
}
static const plim_grad_fn copy_fn = {"CopyBackward0", copy_backward};

static plim_t fresh_copy(plim_machine *m, const plim_grad_fn *fn, plim_t x,
                         const plim_meta *out)
{
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    plim_t y = plim_m_empty(m, out);
    plim_m_output(m, n, 0, y);
    return y;
}

static void repeat(plim_call *c, const int64_t *times, int32_t rank)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    plim_meta out = {.dtype = xm->dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        int32_t k = i - (rank - xm->rank);
        out.dim[i] = (int64_t)((uint64_t)times[i] * (uint64_t)(k >= 0 ? xm->dim[k] : 1));
    }
    plim_meta_contiguous(&out);
    plim_ret(c, fresh_copy(c->m, &copy_fn, x, &out));
}
void plim_run_repeat(plim_call *c)
{
    int64_t times[PLIM_MAX_RANK];
    int32_t rank = view_ints(c, 1, times);
    if (rank < plim_m_meta(c->m, plim_arg_tensor(c, 0))->rank)
        plim_m_fail(c->m, PLIM_ESHAPE, "repeat has fewer numbers than dims");
    else
        repeat(c, times, rank);
}
/* The same; missing leading numbers are 1. */
void plim_run_tile(plim_call *c)
{
    int64_t times[PLIM_MAX_RANK], padded[PLIM_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    int32_t n = view_ints(c, 1, times);
    int32_t rank = PLIM_MAX(plim_m_meta(c->m, plim_arg_tensor(c, 0))->rank, n);
    memcpy(&padded[rank - n], times, (size_t)n * sizeof times[0]);
    repeat(c, padded, rank);
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
    size.dim[d] = (int64_t)((uint64_t)size.dim[d] * (uint64_t)times);
    memmove(&size.dim[d + 1], &size.dim[d + 2],
            (size_t)PLIM_MAX(size.rank - d - 2, 0) * sizeof size.dim[0]);
    plim_ret(c, plim_at_reshape(m, copy, size.rank - 1, size.dim));
    plim_t all[] = {copy, wide, thin, flat};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
}

/* Reversed dims: strides stay, and g is reversed again. */
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
    plim_ret(c, fresh_copy(c->m, &flip_fn, x, &out));
}

void plim_run_permuted_copy(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = plim_meta_make(plim_m_meta(c->m, x)->dtype, plim_m_meta(c->m, x)->rank,
                                   plim_m_meta(c->m, x)->dim);
    plim_ret(c, fresh_copy(c->m, &copy_fn, x, &out));
}

/* Composite on a card: [N, groups, C / groups, ...] with the two turned round, a copy
 * only where that moves something.  src: ChanelShuffle.cpp math_channel_shuffle */
void plim_run_channel_shuffle(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta xm = *plim_m_meta(m, x);
    int64_t groups = plim_arg_int(c, 1, 1);
    if (xm.rank < 3 || groups < 1 || xm.dim[1] % groups) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "channel_shuffle of %" PRId64 " channels in %" PRId64 " groups",
                    xm.rank < 3 ? 0 : xm.dim[1], groups);
        return;
    }
    int64_t dim[4] = {xm.dim[0], groups, xm.dim[1] / groups, 1};
    for (int32_t i = 2; i < xm.rank; i++)
        dim[3] *= xm.dim[i];
    plim_t split = plim_at_view(m, x, 4, dim),
           turned = plim_at_permute(m, split, (int64_t[]){0, 2, 1, 3}),
           copy = plim_at_contiguous(m, turned);
    plim_ret(c, plim_at_reshape(m, copy, xm.rank, xm.dim));
    plim_m_drop(m, copy);
    plim_m_drop(m, turned);
    plim_m_drop(m, split);
}

/* reflect and replicate save x for its size; constant saves nothing */
static const plim_grad_fn pad_fn = {"ConstantPadNdBackward0", copy_backward};

static plim_t pad_with(plim_machine *m, plim_t x, uint32_t n, const int64_t *pad, bool keep)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = *xm;
    if (n % 2 || (int32_t)n / 2 > xm->rank) {
        plim_m_fail(m, PLIM_ESHAPE, "pad has %u numbers for rank %d", (unsigned)n,
                    (int)xm->rank);
        return 0;
    }
    for (uint32_t i = 0; i < n / 2; i++) /* pairs from the last dim backwards */
        out.dim[xm->rank - 1 - (int32_t)i] += pad[2 * i] + pad[2 * i + 1];
    if (plim_suggests_channels_last(xm))
        plim_meta_channels_last(&out);
    else
        plim_meta_contiguous(&out);
    plim_gnode *node = plim_m_node(m, &pad_fn, 1, &x);
    if (keep)
        plim_m_save(m, node, 0, x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, node, 0, y);
    return y;
}

plim_t plim_at_pad(plim_machine *m, plim_t x, uint32_t n, const int64_t *pad)
{
    return pad_with(m, x, n, pad, false);
}

void plim_run_pad(plim_call *c)
{
    int64_t pad[2 * PLIM_MAX_RANK];
    uint32_t n = plim_arg_ints(c, 1, pad, PLIM_COUNT(pad), 1);
    plim_str mode = plim_arg_string(c, 2);
    plim_ret(c, pad_with(c->m, plim_arg_tensor(c, 0), n, pad,
                         mode.n && !plim_str_is(mode, "constant")));
}

/* Part of a copy replaced.  self: g with zeros there; src: that part of g.
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

/* Quarter turns: a reversed copy, for odd ones with two dims swapped.  Back again
 * the same.  src: TensorTransformations.cpp rot90 */
enum { TURN_FROM, TURN_TO, TURN_ODD }; /* in gnode.i */

static plim_t turned(plim_machine *m, plim_t x, int32_t a, int32_t b, bool odd)
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
static void turn_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = turned(m, g[0], (int32_t)n->i[TURN_FROM], (int32_t)n->i[TURN_TO], n->i[TURN_ODD]);
}
static const plim_grad_fn turn_fn = {"Rot90Backward0", turn_backward};

void plim_run_rot90(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int32_t rank = plim_m_meta(m, x)->rank;
    int64_t dims[2] = {0, 1};
    bool odd = plim_arg_int(c, 1, 1) % 2 != 0;
    plim_arg_ints(c, 2, dims, 2, 2);
    int32_t a = plim_wrap_dim(m, dims[0], rank), b = plim_wrap_dim(m, dims[1], rank);
    plim_gnode *n = plim_m_node(m, &turn_fn, 1, &x);
    if (n) {
        n->i[TURN_FROM] = a;
        n->i[TURN_TO] = b;
        n->i[TURN_ODD] = odd;
    }
    plim_t y = turned(m, x, a, b, odd);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- windows as columns, and back ------------------------------------------------------ */

typedef struct columns {
    int64_t kernel[2], dilation[2], padding[2], stride[2];
} columns;

static columns columns_of(plim_call *c, uint32_t first)
{
    columns k = {{1, 1}, {1, 1}, {0, 0}, {1, 1}};
    plim_arg_ints(c, first, k.kernel, 2, 2);
    plim_arg_ints(c, first + 1, k.dilation, 2, 2);
    plim_arg_ints(c, first + 2, k.padding, 2, 2);
    plim_arg_ints(c, first + 3, k.stride, 2, 2);
    return k;
}

/* src: Im2Col.cu.  A contiguous copy of the input, if it is not contiguous. */
static void columns_result(plim_call *c, const plim_meta *out)
{
    plim_t x = plim_arg_tensor(c, 0), xc = plim_contiguous_tmp(c->m, x);
    plim_ret(c, fresh_copy(c->m, &copy_fn, x, out));
    plim_m_drop(c->m, xc);
}

void plim_run_im2col(plim_call *c)
{
    plim_meta out = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    columns k = columns_of(c, 1);
    int32_t at = out.rank - 3;
    int64_t windows = 1;
    if (out.rank < 3 || out.rank > 4 || k.stride[0] < 1 || k.stride[1] < 1) {
        plim_m_fail(c->m, PLIM_ESHAPE, "windows of rank %d", (int)out.rank);
        return;
    }
    for (int32_t i = 0; i < 2; i++) {
        int64_t room =
            out.dim[at + 1 + i] + 2 * k.padding[i] - k.dilation[i] * (k.kernel[i] - 1) - 1;
        windows *= room < 0 ? 0 : room / k.stride[i] + 1;
    }
    out.dim[at] *= k.kernel[0] * k.kernel[1];
    out.dim[at + 1] = windows;
    out.rank--;
    plim_meta_contiguous(&out);
    columns_result(c, &out);
}
void plim_run_col2im(plim_call *c)
{
    plim_meta out = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    int64_t size[2] = {0, 0};
    columns k = columns_of(c, 2);
    int64_t taps = k.kernel[0] * k.kernel[1];
    int32_t at = out.rank - 2;
    plim_arg_ints(c, 1, size, 2, 2);
    if (out.rank < 2 || out.rank > 3 || taps < 1 || out.dim[at] % taps) {
        plim_m_fail(c->m, PLIM_ESHAPE, "columns of rank %d", (int)out.rank);
        return;
    }
    out.dim[at] /= taps;
    out.dim[at + 1] = size[0];
    out.dim[at + 2] = size[1];
    out.rank++;
    plim_meta_contiguous(&out);
    columns_result(c, &out);
}

void plim_run_pixel_unshuffle(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(c->m, x);
    int64_t r = plim_arg_int(c, 1, 1);
    if (out.rank < 3 || r < 1 || r > 1 << 15 || out.dim[out.rank - 2] % r ||
        out.dim[out.rank - 1] % r) {
        plim_m_fail(c->m, PLIM_ESHAPE, "an image cannot be unshuffled by a factor of %" PRId64,
                    r);
        return;
    }
    out.dim[out.rank - 3] *= r * r;
    out.dim[out.rank - 2] /= r;
    out.dim[out.rank - 1] /= r;
    plim_meta_contiguous(&out);
    plim_ret(c, fresh_copy(c->m, &copy_fn, x, &out));
}

void plim_run_pixel_shuffle(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(c->m, x);
    int64_t r = plim_arg_int(c, 1, 1);
    if (out.rank < 3 || r < 1 || r > 1 << 15 || out.dim[out.rank - 3] % (r * r)) {
        plim_m_fail(c->m, PLIM_ESHAPE, "channels cannot be shuffled by a factor of %" PRId64,
                    r);
        return;
    }
    out.dim[out.rank - 3] /= r * r;
    out.dim[out.rank - 2] *= r;
    out.dim[out.rank - 1] *= r;
    plim_meta_contiguous(&out);
    plim_ret(c, fresh_copy(c->m, &copy_fn, x, &out));
}
