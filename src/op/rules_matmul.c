/* rules_matmul.c -- matrix products and linear.
 * src: facts training-step.md 3.4, 2.1; aten/src/ATen/native/Linear.cpp,
 * LinearAlgebra.cpp, cuda/Blas.cpp; torch/csrc/autograd/FunctionsManual.cpp. */
#include "op/rules.h"

/* ---- gemm -------------------------------------------------------------------- */

/* cuBLAS takes the last two dims in row- or column-major order; anything else
 * is cloned for the call.  src: Blas.cpp prepare_matrix_for_cublas. */
static bool gemm_ready(const plim_meta *t)
{
    int32_t r = t->rank - 2, c = t->rank - 1;
    int64_t rows = PLIM_MAX(t->dim[r], 1), cols = PLIM_MAX(t->dim[c], 1);
    return (t->stride[r] == 1 && t->stride[c] >= rows) ||
           (t->stride[c] == 1 && t->stride[r] >= cols);
}

/* A fresh product of the last two dims; lt: through cuBLASLt. */
static plim_t gemm(plim_machine *m, plim_t a, plim_t b, bool lt)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b);
    int32_t r = x->rank;
    char sx[96], sy[96];
    if (r < 2 || y->rank != r || x->dim[r - 1] != y->dim[r - 2] ||
        (r == 3 && x->dim[0] != y->dim[0])) {
        plim_m_fail(m, PLIM_ESHAPE, "%s x %s do not chain", plim_meta_str(x, sx, sizeof sx),
                    plim_meta_str(y, sy, sizeof sy));
        return 0;
    }
    plim_meta out = *x;
    out.dim[r - 1] = y->dim[r - 1];
    plim_meta_contiguous(&out);
    plim_t c = plim_m_empty(m, &out);
    plim_t ta = gemm_ready(x) ? 0 : plim_m_empty_contig(m, x->dtype, x->rank, x->dim);
    plim_t tb = gemm_ready(y) ? 0 : plim_m_empty_contig(m, y->dtype, y->rank, y->dim);
    plim_m_gemm(m, lt);
    plim_m_drop(m, tb);
    plim_m_drop(m, ta);
    return c;
}

/* t's last two dims swapped, without autograd: owned. */
static plim_t flipped(plim_machine *m, plim_t t)
{
    plim_meta x = *plim_m_meta(m, t);
    int32_t r = x.rank - 2, c = x.rank - 1;
    int64_t d = x.dim[r], s = x.stride[r];
    x.dim[r] = x.dim[c], x.stride[r] = x.stride[c];
    x.dim[c] = d, x.stride[c] = s;
    return plim_m_alias(m, t, &x);
}

static bool column_major(const plim_meta *t)
{
    return t->rank == 2 && t->stride[0] == 1 && t->stride[1] == t->dim[0];
}

/* a b, laid out as `like`: column-major comes from b^T a^T. */
static plim_t gemm_like(plim_machine *m, plim_t a, plim_t b, const plim_meta *like)
{
    if (!column_major(like))
        return gemm(m, a, b, false);
    plim_t at = flipped(m, a), bt = flipped(m, b);
    plim_t r = gemm(m, bt, at, false), y = flipped(m, r);
    plim_m_drop(m, r);
    plim_m_drop(m, bt);
    plim_m_drop(m, at);
    return y;
}

/* mm_mat1_backward: g mat2^T, laid out as mat1 was. */
static plim_t grad_mat1(plim_machine *m, plim_t g, plim_t mat2, const plim_meta *mat1)
{
    plim_t t = flipped(m, mat2), r = gemm_like(m, g, t, mat1);
    plim_m_drop(m, t);
    return r;
}

/* mm_mat2_backward: mat1^T g, laid out as mat2 was: W.t() gives a gradient
 * that is contiguous after the transpose's own backward. */
static plim_t grad_mat2(plim_machine *m, plim_t g, plim_t mat1, const plim_meta *mat2)
{
    plim_t t = flipped(m, mat1), r = gemm_like(m, t, g, mat2);
    plim_m_drop(m, t);
    return r;
}

/* ---- mm, bmm: mat2 first, then self (alphabetical) ------------------------------ */

/* Saved tensors are released in the order of their names, too. */
enum { MM_MAT2, MM_SELF };

static void mm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = grad_mat2(m, g[0], plim_m_saved(m, n, MM_SELF), &n->in_meta[1]);
    if (plim_m_wants(m, n, 0))
        dx[0] = grad_mat1(m, g[0], plim_m_saved(m, n, MM_MAT2), &n->in_meta[0]);
}
static const plim_grad_fn mm_fn = {"MmBackward0", mm_backward};
static const plim_grad_fn bmm_fn = {"BmmBackward0", mm_backward};

/* Saves are guarded: an operand is kept only for the other one's gradient. */
static void save_operands(plim_machine *m, plim_gnode *n, uint32_t first, plim_t a,
                          uint32_t slot_a, plim_t b, uint32_t slot_b)
{
    if (n && plim_m_wants(m, n, first + 1))
        plim_m_save(m, n, slot_a, a);
    if (n && plim_m_wants(m, n, first))
        plim_m_save(m, n, slot_b, b);
}

static plim_t product(plim_machine *m, const plim_grad_fn *fn, plim_t a, plim_t b)
{
    plim_t in[2] = {a, b};
    plim_gnode *n = plim_m_node(m, fn, 2, in);
    save_operands(m, n, 0, a, MM_SELF, b, MM_MAT2);
    plim_t y = gemm(m, a, b, false);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_bmm(plim_machine *m, plim_t a, plim_t b) { return product(m, &bmm_fn, a, b); }
void plim_run_bmm(plim_call *c)
{
    plim_ret(c, plim_at_bmm(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)));
}

/* ---- mv, dot ------------------------------------------------------------------- */

/* self: g vec^T, an outer product; vec: self^T g, a gemv where self is a matrix */
static void mv_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_dtype t = plim_m_meta(m, g[0])->dtype;
    for (uint32_t i = 0; i < 2; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty_contig(m, t, n->in_meta[i].rank, n->in_meta[i].dim);
    if (dx[1] && n->in_meta[0].rank == 2)
        plim_m_gemm(m, false);
}
static const plim_grad_fn mv_fn = {"MvBackward0", mv_backward};
static const plim_grad_fn dot_fn = {"DotBackward0", mv_backward};

/* A matrix or vector a, times a vector. */
static plim_t times_vector(plim_machine *m, plim_t a, plim_t vec)
{
    plim_t in[2] = {a, vec};
    const plim_meta *x = plim_m_meta(m, a), *v = plim_m_meta(m, vec);
    if (x->dim[x->rank - 1] != v->dim[0]) {
        char sx[96], sv[96];
        plim_m_fail(m, PLIM_ESHAPE, "%s x %s do not chain", plim_meta_str(x, sx, sizeof sx),
                    plim_meta_str(v, sv, sizeof sv));
        return 0;
    }
    plim_gnode *n = plim_m_node(m, x->rank == 2 ? &mv_fn : &dot_fn, 2, in);
    save_operands(m, n, 0, a, 0, vec, 1);
    plim_t y = plim_m_empty_contig(m, x->dtype, x->rank - 1, x->dim);
    plim_m_gemm(m, false);
    plim_m_output(m, n, 0, y);
    return y;
}

/* ---- addmm: mat1 (dx), mat2 (dW), self (bias) ------------------------------------- */

static void addmm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = grad_mat1(m, g[0], plim_m_saved(m, n, 1), &n->in_meta[1]);
    if (plim_m_wants(m, n, 2))
        dx[2] = grad_mat2(m, g[0], plim_m_saved(m, n, 0), &n->in_meta[2]);
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_ref(m, g[0]); /* the engine sums it to the bias */
}
static const plim_grad_fn addmm_fn = {"AddmmBackward0", addmm_backward};
static const plim_grad_fn baddbmm_fn = {"BaddbmmBackward0", addmm_backward};

/* cuBLASLt serves a 1-d bias when both dims of the weight exceed 1.
 * src: facts caching-allocator.md 19.2 */
static bool addmm_uses_lt(const plim_meta *bias, const plim_meta *w)
{
    return bias->rank == 1 && plim_is_contiguous(bias) && w->rank == 2 && w->dim[0] > 1 &&
           w->dim[1] > 1;
}

static plim_t addmm(plim_machine *m, const plim_grad_fn *fn, plim_t bias, plim_t a, plim_t b)
{
    plim_t in[3] = {bias, a, b};
    plim_gnode *n = plim_m_node(m, fn, 3, in);
    save_operands(m, n, 1, a, 0, b, 1);
    plim_t y = gemm(m, a, b, addmm_uses_lt(plim_m_meta(m, bias), plim_m_meta(m, b)));
    plim_m_output(m, n, 0, y);
    return y;
}
void plim_run_addmm(plim_call *c)
{
    plim_ret(c, addmm(c->m, &addmm_fn, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                      plim_arg_tensor(c, 2)));
}
void plim_run_baddbmm(plim_call *c)
{
    plim_ret(c, addmm(c->m, &baddbmm_fn, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                      plim_arg_tensor(c, 2)));
}

/* ---- matmul: fold to mm, or expand to bmm ------------------------------------------ */

/* src: LinearAlgebra.cpp should_fold */
static bool matmul_folds(plim_machine *m, plim_t a, plim_t b)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b);
    bool a_larger = x->rank >= y->rank;
    const plim_meta *big = a_larger ? x : y, *small = a_larger ? y : x;
    if (big->rank < 3 || small->rank > 2)
        return false;
    if (plim_m_requires_grad(m, a_larger ? b : a))
        return true;
    if (x->rank == 2)
        return false;
    for (int32_t i = 0; i + 2 < big->rank; i++)
        if (big->stride[i] != big->stride[i + 1] * big->dim[i + 1])
            return false;
    return true;
}

static plim_t matmul_folded(plim_machine *m, plim_t a, plim_t b)
{
    bool a_larger = plim_m_meta(m, a)->rank >= plim_m_meta(m, b)->rank;
    int32_t ra = plim_m_meta(m, a)->rank, rb = plim_m_meta(m, b)->rank;
    plim_t big = a_larger ? plim_m_ref(m, a) : plim_at_transpose(m, b, rb - 2, rb - 1);
    plim_t small = a_larger || ra == 1 ? plim_m_ref(m, a_larger ? b : a) : plim_at_t(m, a);
    plim_meta bm = *plim_m_meta(m, big);
    bool matrix = plim_m_meta(m, small)->rank == 2;
    int64_t fold[2] = {-1, bm.dim[bm.rank - 1]};
    plim_t flat = plim_at_reshape(m, big, 2, fold);
    plim_t y = matrix ? product(m, &mm_fn, flat, small) : times_vector(m, flat, small);
    bm.dim[bm.rank - 1] = plim_m_meta(m, small)->dim[1];
    plim_t out = plim_at_reshape_unsafe(m, y, matrix ? bm.rank : bm.rank - 1, bm.dim);
    if (!a_larger && matrix) {
        plim_t t = plim_at_transpose(m, out, bm.rank - 2, bm.rank - 1);
        plim_m_drop(m, out);
        out = plim_at_contiguous(m, t);
        plim_m_drop(m, t);
    }
    plim_m_drop(m, y);
    plim_m_drop(m, flat);
    plim_m_drop(m, small);
    plim_m_drop(m, big);
    return out;
}

/* One operand expanded over the batch dims and reshaped to 3-D (a copy where
 * it is broadcast or not viewable). */
static plim_t matmul_operand(plim_machine *m, plim_t t, const plim_meta *batch)
{
    const plim_meta *x = plim_m_meta(m, t);
    int64_t dim[PLIM_MAX_RANK];
    int32_t nb = batch->rank;
    if (nb + 2 > PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "rank %d is over the limit of %d", (int)nb + 2,
                    PLIM_MAX_RANK);
        return 0;
    }
    memcpy(dim, batch->dim, (size_t)nb * sizeof dim[0]);
    dim[nb] = x->dim[x->rank - 2];
    dim[nb + 1] = x->dim[x->rank - 1];
    plim_meta full = plim_meta_make(x->dtype, nb + 2, dim);
    plim_t e = plim_same_size(x, &full) ? plim_m_ref(m, t) : plim_at_expand(m, t, nb + 2, dim);
    uint64_t bs = 1;
    for (int32_t i = 0; i < nb; i++)
        bs *= (uint64_t)batch->dim[i];
    int64_t dim3[3] = {(int64_t)bs, dim[nb], dim[nb + 1]};
    plim_t r = plim_at_reshape(m, e, 3, dim3);
    plim_m_drop(m, e);
    return r;
}

static plim_t matmul_batched(plim_machine *m, plim_t a, plim_t b)
{
    plim_meta ba = *plim_m_meta(m, a), bb = *plim_m_meta(m, b), batch = {.dtype = ba.dtype};
    int64_t rows = ba.dim[ba.rank - 2], cols = bb.dim[bb.rank - 1];
    ba.rank -= 2;
    bb.rank -= 2;
    if (!plim_broadcast(&ba, &bb, &batch)) {
        plim_m_fail(m, PLIM_ESHAPE, "batch dims of a matrix product do not broadcast");
        return 0;
    }
    plim_t x = matmul_operand(m, a, &batch), y = matmul_operand(m, b, &batch);
    plim_t p = plim_at_bmm(m, x, y);
    int64_t dim[PLIM_MAX_RANK];
    memcpy(dim, batch.dim, sizeof dim);
    if (plim_m_bad(m))
        return 0;
    dim[batch.rank] = rows;
    dim[batch.rank + 1] = cols;
    plim_t out = plim_at_reshape_unsafe(m, p, batch.rank + 2, dim);
    plim_m_drop(m, p);
    plim_m_drop(m, y);
    plim_m_drop(m, x);
    return out;
}

/* A vector operand becomes a matrix of one row or column, which the result
 * then loses again. */
static plim_t matmul_vector(plim_machine *m, plim_t a, plim_t b)
{
    bool va = plim_m_meta(m, a)->rank == 1, vb = plim_m_meta(m, b)->rank == 1;
    plim_t x = va ? plim_at_unsqueeze(m, a, 0) : plim_m_ref(m, a);
    plim_t y = vb ? plim_at_unsqueeze(m, b, 1) : plim_m_ref(m, b);
    plim_t p = plim_at_matmul(m, x, y);
    int32_t r = plim_m_meta(m, p)->rank;
    plim_t q = vb && r ? plim_at_squeeze(m, p, r - 1) : plim_m_ref(m, p);
    r = plim_m_meta(m, q)->rank;
    plim_t out = va && r ? plim_at_squeeze(m, q, vb ? r - 1 : r - 2) : plim_m_ref(m, q);
    plim_m_drop(m, q);
    plim_m_drop(m, p);
    plim_m_drop(m, y);
    plim_m_drop(m, x);
    return out;
}

plim_t plim_at_matmul(plim_machine *m, plim_t a, plim_t b)
{
    int32_t ra = plim_m_meta(m, a)->rank, rb = plim_m_meta(m, b)->rank;
    if (plim_m_bad(m))
        return 0;
    if (!ra || !rb) {
        plim_m_fail(m, PLIM_ESHAPE, "a matrix product of a scalar");
        return 0;
    }
    if (rb == 1 && ra <= 2)
        return times_vector(m, a, b);
    if (ra == 2 && rb == 2)
        return product(m, &mm_fn, a, b);
    if (matmul_folds(m, a, b))
        return matmul_folded(m, a, b);
    if (ra >= 2 && rb >= 2)
        return matmul_batched(m, a, b);
    return matmul_vector(m, a, b);
}
void plim_run_matmul(plim_call *c)
{
    plim_ret(c, plim_at_matmul(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)));
}

/* ---- linear -------------------------------------------------------------------------- */

/* src: Linear.cpp.  Bias is fused into addmm for 2-D input and for contiguous
 * input of any other rank (3-D only before 2.4); otherwise matmul, then add_. */
void plim_run_linear(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 1), b = plim_arg_tensor(c, 2);
    const plim_meta *xm = plim_m_meta(m, x), *wm = plim_m_meta(m, w);
    char sx[96], sw[96];
    if (!xm->rank || wm->rank < 1 || xm->dim[xm->rank - 1] != wm->dim[wm->rank - 1]) {
        plim_m_fail(m, PLIM_ESHAPE, "linear of %s by a weight of %s",
                    plim_meta_str(xm, sx, sizeof sx), plim_meta_str(wm, sw, sizeof sw));
        return;
    }
    int64_t in = wm->dim[wm->rank - 1], out = wm->rank == 2 ? wm->dim[0] : 1;
    plim_t y;
    if (b && wm->rank == 2 && xm->rank == 2) {
        plim_t wt = plim_at_t(m, w);
        y = addmm(m, &addmm_fn, b, x, wt);
        plim_m_drop(m, wt);
    } else if (b && wm->rank == 2 && plim_is_contiguous(xm) &&
               (xm->rank == 3 || plim_m_world(m)->torch >= 204)) {
        plim_t flat = plim_at_reshape(m, x, 2, (int64_t[]){-1, in});
        plim_t wt = plim_at_t(m, w);
        plim_t p = addmm(m, &addmm_fn, b, flat, wt);
        plim_meta size = *xm;
        size.dim[size.rank - 1] = out;
        y = plim_at_reshape_unsafe(m, p, size.rank, size.dim);
        plim_m_drop(m, p);
        plim_m_drop(m, wt);
        plim_m_drop(m, flat);
    } else {
        plim_t wt = plim_at_t(m, w);
        y = plim_at_matmul(m, x, wt);
        plim_m_drop(m, wt);
        if (b) {
            plim_t s = plim_at_add(m, y, b, true);
            plim_m_drop(m, y);
            y = s;
        }
    }
    plim_ret(c, y);
}
