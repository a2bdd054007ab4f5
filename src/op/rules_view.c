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
            plim_meta z = n->meta;
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
    plim_meta out = *plim_m_meta(c->m, x);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 1, 0), out.rank);
    out.dim[d] = plim_arg_int(c, 3, 0);
    plim_ret(c, view_as_meta(c->m, &slice_fn, x, &out));
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
    if (node) {
        node->meta = plim_meta_make(part.dtype, part.rank, part.dim);
    }
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
    if (node)
        node->meta = plim_meta_make(part.dtype, part.rank, part.dim);
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

static void join(plim_call *c, bool stack)
{
    plim_machine *m = c->m;
    plim_t in[VIEW_MAX_JOIN];
    uint32_t n = plim_arg_tensors(c, 0, in, VIEW_MAX_JOIN);
    if (!n) {
        plim_m_fail(m, PLIM_ESHAPE, "nothing to join");
        return;
    }
    uint32_t first = 0; /* legacy: empty 1-d tensors are skipped */
    while (first + 1 < n && plim_m_meta(m, in[first])->rank == 1 &&
           !plim_m_meta(m, in[first])->dim[0])
        first++;
    plim_meta out = *plim_m_meta(m, in[first]);
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 1, 0), out.rank + (stack ? 1 : 0));
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
                return;
            }
        }
        if (i > first && !stack && !(x->rank == 1 && !x->dim[0]))
            out.dim[d] += x->dim[d];
    }
    if (stack && out.rank == PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "rank %d is over the limit of %d", (int)out.rank + 1,
                    PLIM_MAX_RANK);
        return;
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
    plim_ret(c, y);
}
void plim_run_cat(plim_call *c) { join(c, false); }
void plim_run_stack(plim_call *c) { join(c, true); }

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

void plim_run_repeat(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    int64_t times[PLIM_MAX_RANK];
    int32_t rank = view_ints(c, 1, times);
    plim_meta out = {.dtype = xm->dtype, .rank = rank};
    if (rank < xm->rank) {
        plim_m_fail(c->m, PLIM_ESHAPE, "repeat has fewer numbers than dims");
        return;
    }
    for (int32_t i = 0; i < rank; i++) {
        int32_t k = i - (rank - xm->rank);
        out.dim[i] = (int64_t)((uint64_t)times[i] * (uint64_t)(k >= 0 ? xm->dim[k] : 1));
    }
    plim_meta_contiguous(&out);
    plim_ret(c, fresh_copy(c->m, &copy_fn, x, &out));
}

void plim_run_permuted_copy(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = plim_meta_make(plim_m_meta(c->m, x)->dtype, plim_m_meta(c->m, x)->rank,
                                   plim_m_meta(c->m, x)->dim);
    plim_ret(c, fresh_copy(c->m, &copy_fn, x, &out));
}

/* reflect and replicate save x for its size; constant saves nothing */
static const plim_grad_fn pad_fn = {"ConstantPadNdBackward0", copy_backward};

void plim_run_pad(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = *xm;
    int64_t pad[2 * PLIM_MAX_RANK];
    uint32_t n = plim_arg_ints(c, 1, pad, PLIM_COUNT(pad), 1);
    if (n % 2 || (int32_t)n / 2 > xm->rank) {
        plim_m_fail(m, PLIM_ESHAPE, "pad has %u numbers for rank %d", (unsigned)n,
                    (int)xm->rank);
        return;
    }
    for (uint32_t i = 0; i < n / 2; i++) /* pairs from the last dim backwards */
        out.dim[xm->rank - 1 - (int32_t)i] += pad[2 * i] + pad[2 * i + 1];
    if (plim_suggests_channels_last(xm))
        plim_meta_channels_last(&out);
    else
        plim_meta_contiguous(&out);
    plim_str mode = plim_arg_string(c, 2);
    plim_gnode *node = plim_m_node(m, &pad_fn, 1, &x);
    if (mode.n && !plim_str_is(mode, "constant"))
        plim_m_save(m, node, 0, x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, node, 0, y);
    plim_ret(c, y);
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
