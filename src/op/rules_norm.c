/* rules_norm.c -- batch, instance, layer and group normalisation.
 * src: facts training-step.md 3.6; aten/src/ATen/native/cudnn/BatchNorm.cpp,
 * cuda/Normalization.cu, cuda/layer_norm_kernel.cu, cuda/group_norm_kernel.cu. */
#include "op/rules.h"

/* Statistics are accumulated in fp32 for the 16-bit types. */
static plim_dtype norm_acc(plim_dtype t) { return t == PLIM_F64 ? PLIM_F64 : PLIM_F32; }

static plim_t norm_vector(plim_machine *m, plim_dtype t, int64_t n)
{
    return plim_m_empty_contig(m, t, 1, &n);
}

/* ---- batch_norm ------------------------------------------------------------------ */

/* saved: x, weight, running_mean, running_var, save_mean, save_var */
static void batch_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0);
    const plim_meta *xm = plim_m_meta(m, x);
    bool cl = plim_suggests_channels_last(xm);
    const plim_meta *gm = plim_m_meta(m, g[0]);
    bool fits = cl ? plim_is_channels_last(gm) : plim_is_contiguous(gm);
    plim_t gc = fits ? plim_m_ref(m, g[0]) : plim_m_empty_like(m, x);
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_empty_like(m, x);
    for (uint32_t i = 1; i <= 2; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = norm_vector(m, n->in_meta[i].dtype, n->in_meta[i].dim[0]);
    plim_m_drop(m, gc);
}
static const plim_grad_fn batch_norm_fn = {"CudnnBatchNormBackward0", batch_norm_backward};

static plim_t batch_norm(plim_machine *m, plim_t x, plim_t w, plim_t b, plim_t rm, plim_t rv,
                         bool training)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_t in[3] = {x, w, b};
    if (xm->rank < 2) {
        plim_m_fail(m, PLIM_ESHAPE, "batch_norm of a tensor of rank %d", (int)xm->rank);
        return 0;
    }
    plim_gnode *n = plim_m_node(m, &batch_norm_fn, 3, in);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, w);
    plim_m_save(m, n, 2, rm);
    plim_m_save(m, n, 3, rv);
    plim_t y = plim_m_empty_like(m, x);
    plim_t stat[2] = {0};
    for (uint32_t i = 0; training && i < 2; i++) { /* eval keeps no statistics */
        stat[i] = norm_vector(m, norm_acc(xm->dtype), xm->dim[1]);
        plim_m_save(m, n, 4 + i, stat[i]);
    }
    plim_m_drop(m, stat[0]);
    plim_m_drop(m, stat[1]);
    plim_m_output(m, n, 0, y);
    return y;
}

void plim_run_batch_norm(plim_call *c)
{
    plim_ret(c, batch_norm(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                           plim_arg_tensor(c, 2), plim_arg_tensor(c, 3), plim_arg_tensor(c, 4),
                           plim_arg_int(c, 5, 0) && !plim_m_world(c->m)->eval));
}

/* instance_norm: batch_norm over a view [1, N*C, ...], weight and bias repeated
 * to N*C.  src: Normalization.cpp instance_norm */
static void repeat_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    dx[0] = plim_m_empty(m, &n->in_meta[0]);
}
static const plim_grad_fn repeat_fn = {"RepeatBackward0", repeat_backward};

static plim_t repeat_vector(plim_machine *m, plim_t v, int64_t times)
{
    if (!v)
        return 0;
    const plim_meta *vm = plim_m_meta(m, v);
    plim_gnode *n = plim_m_node(m, &repeat_fn, 1, &v);
    plim_t y = norm_vector(m, vm->dtype, vm->dim[0] * times);
    plim_m_output(m, n, 0, y);
    return y;
}

void plim_run_instance_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta xm = *plim_m_meta(m, x);
    if (xm.rank < 3 || xm.dim[0] > 1 << 24 || xm.dim[1] > 1 << 24) {
        plim_m_fail(m, PLIM_ESHAPE, "instance_norm of a tensor of rank %d", (int)xm.rank);
        return;
    }
    plim_t w = repeat_vector(m, plim_arg_tensor(c, 1), xm.dim[0]);
    plim_t b = repeat_vector(m, plim_arg_tensor(c, 2), xm.dim[0]);
    plim_t rm = repeat_vector(m, plim_arg_tensor(c, 3), xm.dim[0]);
    plim_t rv = repeat_vector(m, plim_arg_tensor(c, 4), xm.dim[0]);
    int64_t dim[PLIM_MAX_RANK];
    memcpy(dim, xm.dim, sizeof dim);
    dim[1] *= dim[0];
    dim[0] = 1;
    plim_t xc = plim_at_contiguous(m, x), flat = plim_at_view(m, xc, xm.rank, dim);
    plim_t y = batch_norm(m, flat, w, b, rm, rv, plim_arg_int(c, 5, 1));
    plim_ret(c, plim_at_view(m, y, xm.rank, xm.dim));
    plim_m_drop(m, y);
    plim_m_drop(m, flat);
    plim_m_drop(m, xc);
    plim_m_drop(m, rv);
    plim_m_drop(m, rm);
    plim_m_drop(m, b);
    plim_m_drop(m, w);
}

/* ---- layer_norm ---------------------------------------------------------------------- */

enum { NORM_ROWS, NORM_COLS, NORM_GROUPS };

/* Partial sums for each of dgamma and dbeta when rows are many and columns
 * few; their sums take the place of the results made before.
 * src: facts 3.6 (read in the newest source, about 2.8 on) */
static void layer_norm_partials(plim_machine *m, const plim_gnode *n, plim_t *dx)
{
    const plim_world *w = plim_m_world(m);
    int64_t rows = n->i[NORM_ROWS], cols = n->i[NORM_COLS];
    int64_t blocks = (cols + 31) / 32;
    if (w->torch < 208 || rows <= 65536 || cols < 1 || cols / 32 >= plim_m_sms(m, NULL) / 2)
        return;
    int64_t parts = PLIM_MIN((rows + 31) / 32, 32768 / blocks);
    plim_meta part = plim_meta_make(n->in_meta[1].dtype, 2, (int64_t[]){parts, cols});
    uint64_t bytes = (uint64_t)parts * (uint64_t)cols * plim_dtype_bytes(part.dtype);
    plim_t partial[3] = {0};
    for (uint32_t i = 1; i <= 2; i++)
        partial[i] = dx[i] ? plim_m_scratch_about(m, bytes) : 0;
    for (uint32_t i = 1; i <= 2; i++) {
        plim_t sum = dx[i] ? plim_m_empty(m, &n->in_meta[i]) : 0;
        if (sum)
            plim_reduce_scratch(m, &part, 1);
        plim_m_drop(m, dx[i]);
        dx[i] = sum;
    }
    plim_m_drop(m, partial[2]);
    plim_m_drop(m, partial[1]);
}

/* saved: x, weight, bias, mean, rstd.  Contiguous copies of x and g are the
 * kernel's own, in forward and in backward. */
static void layer_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_contiguous_tmp(m, plim_m_saved(m, n, 0));
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_empty_like(m, x);
    for (uint32_t i = 1; i <= 2; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty(m, &n->in_meta[i]);
    plim_t gc = plim_contiguous_tmp(m, g[0]);
    if (dx[1])
        layer_norm_partials(m, n, dx);
    plim_m_drop(m, gc);
    plim_m_drop(m, x);
}
static const plim_grad_fn layer_norm_fn = {"NativeLayerNormBackward0", layer_norm_backward};

void plim_run_layer_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 2), b = plim_arg_tensor(c, 3),
           in[3] = {x, w, b};
    plim_meta xm = *plim_m_meta(m, x);
    int64_t shape[PLIM_MAX_RANK];
    int32_t k = (int32_t)plim_arg_ints(c, 1, shape, PLIM_MAX_RANK, 1);
    uint64_t cols = 1, rows = 1;
    for (int32_t i = 0; i < k; i++)
        if (k > xm.rank || shape[i] != xm.dim[xm.rank - k + i]) {
            char buf[96];
            plim_m_fail(m, PLIM_ESHAPE, "layer_norm over %d dims of %s: sizes differ", (int)k,
                        plim_meta_str(&xm, buf, sizeof buf));
            return;
        }
    for (int32_t i = 0; i < xm.rank; i++)
        if (i < xm.rank - k)
            rows *= (uint64_t)xm.dim[i];
        else
            cols *= (uint64_t)xm.dim[i];
    plim_gnode *n = plim_m_node(m, &layer_norm_fn, 3, in);
    plim_t xc = plim_contiguous_tmp(m, x);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, w);
    plim_m_save(m, n, 2, b);
    plim_t y = plim_m_empty_contig(m, xm.dtype, xm.rank, xm.dim);
    plim_meta one = xm;
    for (int32_t d = xm.rank - k; d < xm.rank; d++)
        one.dim[d] = 1;
    plim_t stat[2];
    for (uint32_t i = 0; i < 2; i++) {
        stat[i] = plim_m_empty_contig(m, norm_acc(xm.dtype), one.rank, one.dim);
        plim_m_save(m, n, 3 + i, stat[i]);
    }
    plim_m_drop(m, stat[0]);
    plim_m_drop(m, stat[1]);
    if (n) {
        n->i[NORM_ROWS] = (int64_t)rows;
        n->i[NORM_COLS] = (int64_t)cols;
    }
    plim_m_output(m, n, 0, y);
    plim_m_drop(m, xc);
    plim_ret(c, y);
}

/* ---- group_norm ------------------------------------------------------------------------ */

/* One pixel a channel: the 1-d kernels keep neither a and b nor ds and db. */
static bool group_norm_1d(const plim_meta *x)
{
    for (int32_t i = 2; i < x->rank; i++)
        if (x->dim[i] != 1)
            return false;
    return true;
}

/* saved: x, weight, mean, rstd; ds, db [N,C] and c2, c3 [N,G], c1 [N,C] are
 * kernel temporaries of the backward */
static void group_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0);
    plim_meta xm = *plim_m_meta(m, x);
    plim_dtype acc = norm_acc(xm.dtype);
    plim_t gc = plim_contiguous_tmp(m, g[0]), xc = plim_contiguous_tmp(m, x);
    int64_t nc[2] = {xm.dim[0], xm.dim[1]}, ng[2] = {xm.dim[0], n->i[NORM_GROUPS]};
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_empty_contig(m, xm.dtype, xm.rank, xm.dim);
    for (uint32_t i = 1; i <= 2; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty(m, &n->in_meta[i]);
    plim_t tmp[5] = {0};
    bool flat = group_norm_1d(&xm), affine = plim_m_saved(m, n, 1) != 0;
    if (!flat) {
        tmp[0] = plim_m_scratch_of(m, acc, 2, nc);
        tmp[1] = plim_m_scratch_of(m, acc, 2, nc);
    }
    if (dx[0]) {
        tmp[2] = plim_m_scratch_of(m, acc, 2, ng);
        tmp[3] = plim_m_scratch_of(m, acc, 2, ng);
        tmp[4] = flat || !affine ? 0 : plim_m_scratch_of(m, acc, 2, nc);
    }
    for (int i = 4; i >= 0; i--)
        plim_m_drop(m, tmp[i]);
    plim_m_drop(m, xc);
    plim_m_drop(m, gc);
}
static const plim_grad_fn group_norm_fn = {"NativeGroupNormBackward0", group_norm_backward};

void plim_run_group_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 2), b = plim_arg_tensor(c, 3),
           in[3] = {x, w, b};
    plim_meta xm = *plim_m_meta(m, x);
    int64_t groups = plim_arg_int(c, 1, 1);
    if (xm.rank < 2 || groups < 1 || xm.dim[1] % groups) {
        plim_m_fail(m, PLIM_ESHAPE, "group_norm of %" PRId64 " channels in %" PRId64 " groups",
                    xm.rank < 2 ? 0 : xm.dim[1], groups);
        return;
    }
    int64_t nc[2] = {xm.dim[0], xm.dim[1]}, ng[2] = {xm.dim[0], groups};
    plim_dtype acc = norm_acc(xm.dtype);
    plim_t xc = plim_at_contiguous(m, x); /* NCHW is forced, and recorded */
    in[0] = xc;
    plim_gnode *n = plim_m_node(m, &group_norm_fn, 3, in);
    plim_m_save(m, n, 0, xc);
    plim_m_save(m, n, 1, w);
    plim_t y = plim_m_empty_contig(m, xm.dtype, xm.rank, xm.dim);
    for (uint32_t i = 2; i <= 3; i++) {
        plim_t s = plim_m_empty_contig(m, xm.dtype, 2, ng);
        plim_m_save(m, n, i, s);
        plim_m_drop(m, s);
    }
    if ((w || b) && !group_norm_1d(&xm)) { /* y = a x + b */
        plim_t ta = plim_m_scratch_of(m, acc, 2, nc), tb = plim_m_scratch_of(m, acc, 2, nc);
        plim_m_drop(m, tb);
        plim_m_drop(m, ta);
    }
    if (n)
        n->i[NORM_GROUPS] = groups;
    plim_m_output(m, n, 0, y);
    plim_m_drop(m, xc);
    plim_ret(c, y);
}
