/* rules_view.c -- views of a whole tensor: other shapes, permutations, expansions.
 * src: docs/sources/operators.md 3; aten/src/ATen/native/TensorShape.cpp. */
#include "op/rules.h"

/* ---- gradients of views ---------------------------------------------------- */

/* g.reshape(dims) inside a backward: a view, or a copy if there is no such view. */
static plim_t reshape_gradient(plim_machine *m, plim_t g, const plim_meta *like)
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
    dx[0] = reshape_gradient(m, g[0], &n->in_meta[0]);
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

static const plim_grad_fn alias_fn = {"AliasBackward0", plim_backward_pass};

/* ---- making views ------------------------------------------------------------ */

/* The same storage, but not a view for autograd: writing into the result does not change the
 * history of x. */
static plim_t alias_as_meta(plim_machine *m, const plim_grad_fn *fn, plim_t x,
                            const plim_meta *out)
{
    plim_assert(fn && out);
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    plim_t y = plim_m_alias(m, x, out);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_view_as(plim_machine *m, const plim_grad_fn *fn, plim_t x, const plim_meta *out)
{
    plim_t y = alias_as_meta(m, fn, x, out);
    plim_m_view_of(m, y, x);
    return y;
}

/* Replaces a -1 in dim; fails the machine if the sizes do not fit. */
static bool view_size(plim_machine *m, const plim_meta *x, int32_t rank, int64_t *dim)
{
    if (rank <= PLIM_MAX_RANK && plim_infer_size(x, rank, dim))
        return true;
    char buf[96];
    plim_meta want = {.rank = PLIM_MIN(rank, PLIM_MAX_RANK)};
    memcpy(want.dim, dim, (size_t)want.rank * sizeof dim[0]);
    char to[96];
    plim_m_fail(m, PLIM_ESHAPE, "%s cannot be viewed as %s", plim_meta_str(x, buf, sizeof buf),
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
    plim_assert(rank <= PLIM_MAX_RANK);
    if (plim_view_strides(&from, rank, size, out.stride))
        return kind == RESHAPE_UNSAFE ? alias_as_meta(m, &view_fn, x, &out)
                                      : plim_view_as(m, &view_fn, x, &out);
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
plim_t plim_at_fold_rows(plim_machine *m, plim_t x)
{
    return plim_at_reshape(m, x, 2, (int64_t[]){-1, plim_dim_at(plim_m_meta(m, x), -1)});
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
    return plim_view_as(m, &expand_fn, x, &out);
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
    return plim_view_as(m, &view_fn, x, &out);
}

/* Removes the dims whose bits are set in mask and whose size is 1. */
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
    return plim_view_as(m, &view_fn, x, &out);
}
plim_t plim_at_squeeze(plim_machine *m, plim_t x, int32_t d)
{
    return squeeze_mask(m, x, 1u << d);
}

/* ---- rules ---------------------------------------------------------------------- */

void plim_run_view(plim_call *c)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = plim_arg_dims(c, 1, dim);
    plim_ret(c, plim_at_view(c->m, plim_arg_tensor(c, 0), rank, dim));
}
void plim_run_unsafe_view(plim_call *c)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = plim_arg_dims(c, 1, dim);
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
    int32_t rank = plim_arg_dims(c, 1, dim);
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
    int32_t n = plim_arg_dims(c, 2, part), rank = 0;
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
    if (plim_arg_dims(c, 1, perm) != plim_m_meta(c->m, x)->rank)
        plim_m_fail(c->m, PLIM_ESHAPE, "permute needs one index for each dim");
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
        plim_m_fail(c->m, PLIM_ESHAPE, "a tensor of rank %d holds no matrices to transpose",
                    (int)rank);
    else
        plim_ret(c, plim_at_transpose(c->m, x, rank - 2, rank - 1));
}

/* Moves some dims to given places; the others fill the remaining places in order. */
void plim_run_movedim(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int32_t rank = plim_m_meta(m, x)->rank;
    int64_t from[PLIM_MAX_RANK], to[PLIM_MAX_RANK], perm[PLIM_MAX_RANK];
    uint32_t n = plim_arg_ints(c, 1, from, PLIM_MAX_RANK, 1), moved = 0;
    if (plim_arg_ints(c, 2, to, PLIM_MAX_RANK, 1) != n) {
        plim_m_fail(m, PLIM_ESHAPE, "movedim moves %u dims to a different number of places",
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
    int32_t rank = plim_arg_dims(c, 1, dim);
    plim_ret(c, plim_at_expand(c->m, plim_arg_tensor(c, 0), rank, dim));
}
void plim_run_expand_as(plim_call *c)
{
    const plim_meta *like = plim_m_meta(c->m, plim_arg_tensor(c, 1));
    plim_ret(c, plim_at_expand(c->m, plim_arg_tensor(c, 0), like->rank, like->dim));
}

/* Each vector along its own dim, expanded over those of the others.
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

/* Each input expanded to the common broadcast size; one that already has it is returned as it
 * is.  src: ExpandUtils.h expand_outplace */
void plim_run_broadcast_tensors(plim_call *c)
{
    plim_t in[64];
    uint32_t n = plim_arg_tensors(c, 0, in, PLIM_COUNT(in));
    plim_meta all = {.dtype = PLIM_F32};
    for (uint32_t i = 0; i < n; i++)
        if (!plim_broadcast(&all, plim_m_meta(c->m, in[i]), &all)) {
            plim_m_fail(c->m, PLIM_ESHAPE, "tensor %u does not broadcast with the others",
                        (unsigned)i);
            return;
        }
    for (uint32_t i = 0; i < PLIM_MIN(n, c->n_out); i++)
        c->out[i] = plim_same_size(plim_m_meta(c->m, in[i]), &all)
                        ? plim_m_ref(c->m, in[i])
                        : plim_at_expand(c->m, in[i], all.rank, all.dim);
}

void plim_run_alias(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_ret(c, plim_view_as(c->m, &alias_fn, x, plim_m_meta(c->m, x)));
}
void plim_run_requires_grad(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    if (!plim_m_requires_grad(c->m, x)) /* else it has a history */
        plim_m_as_leaf(c->m, x, true);
    plim_ret(c, plim_m_ref(c->m, x));
}
void plim_run_detach(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_ret(c, plim_m_alias(c->m, x, plim_m_meta(c->m, x)));
}
