/* rules_slice.c -- views of parts: slices, indices, splits, diagonals, windows.
 * src: aten/src/ATen/native/TensorShape.cpp. */
#include "op/rules.h"

/* ---- one part ---------------------------------------------------------- */

/* slice, select, narrow: zeros of the whole input, the part copied in */
static const plim_grad_fn slice_fn = {"SliceBackward0", plim_backward_fresh};
static const plim_grad_fn select_fn = {"SelectBackward0", plim_backward_fresh};

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
    plim_ret(c, plim_view_as(c->m, &slice_fn, x, &out));
}

/* The start does not matter for memory. */
plim_t plim_at_narrow(plim_machine *m, plim_t x, int32_t d, int64_t length)
{
    plim_meta out = *plim_m_meta(m, x);
    out.dim[d] = length;
    return plim_view_as(m, &slice_fn, x, &out);
}

/* tensor_split: one slice per part, each with its own node.
 * src: TensorShape.cpp tensor_split_symint, _tensor_split_indices */
static void view_slices(plim_call *c, plim_t x, int32_t d, const int64_t *end, uint32_t n)
{
    int64_t size = plim_m_meta(c->m, x)->dim[d], from = 0;
    if (n + 1 > c->n_out) {
        plim_m_fail(c->m, PLIM_ESHAPE, "a split into %u parts has %u outputs", (unsigned)n + 1,
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
    int64_t end[PLIM_OP_OUTS];
    plim_t x = plim_arg_tensor(c, 0);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), plim_m_meta(c->m, x)->rank);
    uint32_t n = plim_arg_ints(c, 1, end, PLIM_COUNT(end), 1);
    view_slices(c, x, d, end, n);
}
void plim_run_tensor_split_sections(plim_call *c)
{
    int64_t end[PLIM_OP_OUTS];
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), xm->rank);
    int64_t parts = plim_arg_int(c, 1, 1), size = xm->dim[d], at = 0;
    if (parts < 1 || parts > (int64_t)PLIM_COUNT(end)) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "tensor_split into %" PRId64 " parts has no rule",
                    parts);
        return;
    }
    for (int64_t i = 0; i + 1 < parts; i++) /* the first parts take the remainder */
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
    return plim_view_as(m, fn, x, &out);
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
        plim_m_fail(c->m, PLIM_ESHAPE, "dims %d and %d of rank %d have no diagonal", (int)a,
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
    plim_ret(c, plim_view_as(c->m, &slice_fn, x, &out));
}

enum { UNFOLD_DIM, UNFOLD_OVERLAPS }; /* in gnode.i */

/* Zeros, and, if windows overlap, an index of positions along the dim.
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
        plim_m_fail(m, PLIM_ESHAPE,
                    "unfold: windows of %" PRId64 " in steps of %" PRId64
                    " do not fit a tensor of rank %d",
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

/* ---- several parts of one node ----------------------------------------- */

/* split, chunk, unbind: missing gradients become zeros, then one cat */
static void split_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t zero[PLIM_OP_OUTS] = {0};
    const plim_meta *any = NULL;
    uint32_t outs = PLIM_MIN(n->n_out, PLIM_OP_OUTS);
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

/* n outputs of one node, with the given sizes along d */
static void view_parts(plim_call *c, plim_t x, int32_t d, const int64_t *size, uint32_t n)
{
    plim_machine *m = c->m;
    plim_meta part = *plim_m_meta(m, x);
    plim_gnode *node = plim_m_node(m, &split_fn, 1, &x);
    if (n > c->n_out)
        plim_m_fail(m, PLIM_ESHAPE, "a split into %u parts has %u outputs", (unsigned)n,
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
    int64_t size[PLIM_OP_OUTS];
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), xm->rank);
    uint32_t n = plim_arg_ints(c, 1, size, PLIM_COUNT(size), 1);
    if (n == 1 && c->n_out >= 1 && size[0] > 0 &&
        xm->rank) { /* equal parts; the last may be smaller */
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
    int64_t size[PLIM_OP_OUTS], chunks = plim_arg_int(c, 1, 1);
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 2, 0), xm->rank);
    if (chunks < 1 || !xm->rank) {
        plim_m_fail(c->m, PLIM_ESHAPE, "a tensor cannot be divided into %" PRId64 " chunks",
                    chunks);
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
