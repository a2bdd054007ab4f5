/* rules_matmul.c -- matrix products and linear.
 * src: docs/sources/operators.md 4; aten/src/ATen/native/Linear.cpp,
 * LinearAlgebra.cpp, cuda/Blas.cpp; torch/csrc/autograd/FunctionsManual.cpp. */
#include "op/rules.h"

/* ---- gemm -------------------------------------------------------------------- */

/* cuBLAS accepts the last two dims in row- or column-major order; anything else is copied for
 * the call.  src: Blas.cpp prepare_matrix_for_cublas. */
static bool gemm_ready(const plim_meta *t)
{
    int64_t rows = PLIM_MAX(plim_dim_at(t, -2), 1), cols = PLIM_MAX(plim_dim_at(t, -1), 1);
    int64_t down = plim_stride_at(t, -2), along = plim_stride_at(t, -1);
    return (down == 1 && along >= rows) || (along == 1 && down >= cols);
}

/* Temporaries of a product of a and b; lt: through cuBLASLt. */
static void gemm_scratch(plim_machine *m, plim_t a, plim_t b, bool lt)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b);
    plim_t ta = gemm_ready(x) ? 0 : plim_m_empty_contig(m, x->dtype, x->rank, x->dim);
    plim_t tb = gemm_ready(y) ? 0 : plim_m_empty_contig(m, y->dtype, y->rank, y->dim);
    plim_m_gemm(m, lt);
    plim_m_drop(m, tb);
    plim_m_drop(m, ta);
}

/* Kernels copy asynchronously what begins at a multiple of 4 bytes. */
static bool gemm_is_odd(const plim_meta *t)
{
    enum { AT_ONCE = 4 };
    uint64_t lead = (uint64_t)PLIM_MAX(plim_stride_at(t, -2), plim_stride_at(t, -1));
    return lead * plim_dtype_bytes(t->dtype) % AT_ONCE;
}

/* Each element of y is a sum over as many products as a has columns. */
static void gemm_product(plim_machine *m, const plim_meta *a, const plim_meta *b,
                         const plim_meta *y)
{
    uint64_t n = 0;
    int64_t inner = PLIM_MAX(plim_dim_at(a, -1), 0),
            outer = PLIM_MIN(plim_dim_at(y, -2), plim_dim_at(y, -1));
    if (!plim_meta_numel(y, &n))
        return;
    plim_m_product(m, PLIM_WORK_gemm, plim_sat_mul(n, (uint64_t)inner), y->dtype);
    plim_m_side(m, (uint64_t)PLIM_MAX(PLIM_MIN(inner, outer), 1));
    if (gemm_is_odd(a) || gemm_is_odd(b) || gemm_is_odd(y))
        plim_m_form(m, PLIM_FORM_ODD);
}

/* A new product over the last two dims. */
static plim_t matmul_gemm(plim_machine *m, plim_t a, plim_t b, bool lt)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b);
    int32_t r = x->rank;
    char sx[96], sy[96];
    if (r < 2 || y->rank != r || x->dim[r - 1] != y->dim[r - 2] ||
        (r == 3 && x->dim[0] != y->dim[0])) {
        plim_m_fail(m, PLIM_ESHAPE, "%s and %s cannot be multiplied",
                    plim_meta_str(x, sx, sizeof sx), plim_meta_str(y, sy, sizeof sy));
        return 0;
    }
    plim_meta out = *x;
    out.dim[r - 1] = y->dim[r - 1];
    plim_meta_contiguous(&out);
    plim_t c = plim_m_empty(m, &out);
    gemm_scratch(m, a, b, lt);
    gemm_product(m, x, y, &out);
    return c;
}

/* t's last two dims swapped, without autograd: owned. */
static plim_t matmul_transposed(plim_machine *m, plim_t t)
{
    plim_meta x = *plim_m_meta(m, t);
    int32_t r = x.rank - 2, c = x.rank - 1;
    if (r < 0)
        return plim_m_ref(m, t); /* no matrix: the product says so */
    int64_t d = x.dim[r], s = x.stride[r];
    x.dim[r] = x.dim[c], x.stride[r] = x.stride[c];
    x.dim[c] = d, x.stride[c] = s;
    return plim_m_alias(m, t, &x);
}

static bool column_major(const plim_meta *t)
{
    return t->rank == 2 && t->stride[0] == 1 && t->stride[1] == t->dim[0];
}

/* a b, laid out as `like`: a column-major result is computed as b^T a^T. */
static plim_t gemm_like(plim_machine *m, plim_t a, plim_t b, const plim_meta *like)
{
    if (!column_major(like))
        return matmul_gemm(m, a, b, false);
    plim_t at = matmul_transposed(m, a), bt = matmul_transposed(m, b);
    plim_t r = matmul_gemm(m, bt, at, false), y = matmul_transposed(m, r);
    plim_m_drop(m, r);
    plim_m_drop(m, bt);
    plim_m_drop(m, at);
    return y;
}

/* mm_mat1_backward: g mat2^T, in the layout of mat1. */
static plim_t grad_mat1(plim_machine *m, plim_t g, plim_t mat2, const plim_meta *mat1)
{
    plim_t t = matmul_transposed(m, mat2), r = gemm_like(m, g, t, mat1);
    plim_m_drop(m, t);
    return r;
}

/* mm_mat2_backward: mat1^T g, in the layout of mat2: W.t() gives a gradient that is contiguous
 * after the transpose's own backward. */
static plim_t grad_mat2(plim_machine *m, plim_t g, plim_t mat1, const plim_meta *mat2)
{
    plim_t t = matmul_transposed(m, mat1), r = gemm_like(m, t, g, mat2);
    plim_m_drop(m, t);
    return r;
}

/* ---- mm, bmm: mat2 first, then self (alphabetical) ------------------------------ */

/* Saved tensors are also released in the order of their names. */
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

/* Saving is guarded: an operand is saved only for the other one's gradient. */
static void save_operands(plim_machine *m, plim_gnode *n, uint32_t first, plim_t a,
                          uint32_t slot_a, plim_t b, uint32_t slot_b)
{
    if (n && plim_m_wants(m, n, first + 1))
        plim_m_save(m, n, slot_a, a);
    if (n && plim_m_wants(m, n, first))
        plim_m_save(m, n, slot_b, b);
}

static plim_t record_bmm(plim_machine *m, const plim_grad_fn *fn, plim_t a, plim_t b)
{
    plim_t in[2] = {a, b};
    plim_gnode *n = plim_m_node(m, fn, 2, in);
    save_operands(m, n, 0, a, MM_SELF, b, MM_MAT2);
    plim_t y = matmul_gemm(m, a, b, false);
    plim_m_output(m, n, 0, y);
    return y;
}

static plim_t multiply_batches(plim_machine *m, plim_t a, plim_t b)
{
    return record_bmm(m, &bmm_fn, a, b);
}
void plim_run_bmm(plim_call *c)
{
    plim_ret(c, multiply_batches(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)));
}

/* ---- mv, dot ------------------------------------------------------------------- */

/* A matrix times a vector, which is copied if it is an expanded scalar. */
static void gemv_scratch(plim_machine *m, plim_t vec)
{
    const plim_meta *v = plim_m_meta(m, vec);
    bool repeated = v->rank == 1 && v->dim[0] > 1 && !v->stride[0];
    plim_t copy = repeated ? plim_m_empty_contig(m, v->dtype, 1, v->dim) : 0;
    plim_m_gemm(m, false);
    plim_m_drop(m, copy);
}
void plim_kernel_gemv(plim_call *c) { gemv_scratch(c->m, plim_arg_tensor(c, 0)); }

/* self: g vec^T, an outer product; vec: self^T g, a gemv if self is a matrix */
static void mv_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_dtype t = plim_m_meta(m, g[0])->dtype;
    for (uint32_t i = 0; i < 2; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty_contig(m, t, n->in_meta[i].rank, n->in_meta[i].dim);
    if (dx[1] && n->in_meta[0].rank == 2)
        gemv_scratch(m, g[0]);
}
static const plim_grad_fn mv_fn = {"MvBackward0", mv_backward};
static const plim_grad_fn dot_fn = {"DotBackward0", mv_backward};

/* A matrix or vector a, times a vector. */
static plim_t times_vector(plim_machine *m, plim_t a, plim_t vec)
{
    plim_t in[2] = {a, vec};
    const plim_meta *x = plim_m_meta(m, a), *v = plim_m_meta(m, vec);
    if (!x->rank || x->rank > 2 || v->rank != 1 || plim_dim_at(x, -1) != v->dim[0]) {
        char sx[96], sv[96];
        plim_m_fail(m, PLIM_ESHAPE, "%s and %s cannot be multiplied",
                    plim_meta_str(x, sx, sizeof sx), plim_meta_str(v, sv, sizeof sv));
        return 0;
    }
    plim_gnode *n = plim_m_node(m, x->rank == 2 ? &mv_fn : &dot_fn, 2, in);
    save_operands(m, n, 0, a, 0, vec, 1);
    plim_t y = plim_m_empty_contig(m, x->dtype, x->rank - 1, x->dim);
    if (x->rank == 2)
        gemv_scratch(m, vec);
    else
        plim_m_gemm(m, false);
    plim_m_output(m, n, 0, y);
    return y;
}

/* ---- addmm: mat1 (dx), mat2 (dW), self (bias) ------------------------------------- */

enum { ADDMM_BETA, ADDMM_ALPHA }; /* in gnode.i: not 1 */

/* maybe_multiply(t, number): t, or its product with a number other than 1. */
static plim_t times_number(plim_machine *m, plim_t t, bool number)
{
    if (!number)
        return t;
    plim_t product = plim_iter_out(m, t, 0);
    plim_m_drop(m, t);
    return product;
}

static void addmm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    bool alpha = n->i[ADDMM_ALPHA] != 0;
    if (plim_m_wants(m, n, 1)) {
        plim_t product = grad_mat1(m, g[0], plim_m_saved(m, n, 1), &n->in_meta[1]);
        dx[1] = times_number(m, product, alpha);
    }
    if (plim_m_wants(m, n, 2)) {
        plim_t product = grad_mat2(m, g[0], plim_m_saved(m, n, 0), &n->in_meta[2]);
        dx[2] = times_number(m, product, alpha);
    }
    if (plim_m_wants(m, n, 0)) /* the engine sums it to the bias's size */
        dx[0] = times_number(m, plim_m_ref(m, g[0]), n->i[ADDMM_BETA]);
}
static const plim_grad_fn addmm_fn = {"AddmmBackward0", addmm_backward};
static const plim_grad_fn baddbmm_fn = {"BaddbmmBackward0", addmm_backward};

/* Whether a factor is given and is not 1. */
static bool not_one(const plim_call *c, uint32_t slot)
{
    double factor = plim_arg_float(c, slot, 1.0);
    return factor < 1.0 || factor > 1.0;
}

/* cuBLASLt serves a 1-d bias, times 1, when both dims of the weight exceed 1.
 * src: cuda/Blas.cpp; docs/sources/workspaces.md 2 */
static bool addmm_uses_lt(const plim_meta *bias, const plim_meta *w, bool beta)
{
    return !beta && bias->rank == 1 && plim_is_contiguous(bias) && w->rank == 2 &&
           w->dim[0] > 1 && w->dim[1] > 1;
}

void plim_kernel_mm(plim_call *c)
{
    gemm_scratch(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), false);
}
void plim_kernel_addmm(plim_call *c)
{
    plim_t bias = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 2);
    gemm_scratch(c->m, plim_arg_tensor(c, 1), w,
                 addmm_uses_lt(plim_m_meta(c->m, bias), plim_m_meta(c->m, w), not_one(c, 3)));
}
static plim_t matmul_addmm(plim_machine *m, const plim_grad_fn *fn, plim_t bias, plim_t a,
                           plim_t b, bool beta, bool alpha)
{
    plim_t in[3] = {bias, a, b};
    plim_gnode *n = plim_m_node(m, fn, 3, in);
    save_operands(m, n, 1, a, 0, b, 1);
    if (n) {
        n->i[ADDMM_BETA] = beta;
        n->i[ADDMM_ALPHA] = alpha;
    }
    plim_t y =
        matmul_gemm(m, a, b, addmm_uses_lt(plim_m_meta(m, bias), plim_m_meta(m, b), beta));
    plim_m_output(m, n, 0, y);
    return y;
}

static void run_addmm(plim_call *c, const plim_grad_fn *fn)
{
    plim_ret(c, matmul_addmm(c->m, fn, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                             plim_arg_tensor(c, 2), not_one(c, 3), not_one(c, 4)));
}
void plim_run_addmm(plim_call *c) { run_addmm(c, &addmm_fn); }
void plim_run_baddbmm(plim_call *c) { run_addmm(c, &baddbmm_fn); }

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
        if (big->stride[i] != plim_dim_mul(big->stride[i + 1], big->dim[i + 1]))
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
    int64_t fold[2] = {-1, plim_dim_at(&bm, -1)};
    plim_t flat = plim_at_reshape(m, big, 2, fold);
    plim_t y = matrix ? record_bmm(m, &mm_fn, flat, small) : times_vector(m, flat, small);
    plim_set_dim(&bm, -1, plim_m_meta(m, small)->dim[1]);
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

/* One operand expanded over the batch dims and reshaped to 3-D (a copy if it is broadcast or
 * not viewable). */
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
    dim[nb] = plim_dim_at(x, -2);
    dim[nb + 1] = plim_dim_at(x, -1);
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
    int64_t rows = plim_dim_at(&ba, -2), cols = plim_dim_at(&bb, -1);
    ba.rank -= 2;
    bb.rank -= 2;
    if (!plim_broadcast(&ba, &bb, &batch)) {
        plim_m_fail(m, PLIM_ESHAPE, "the batch dims of a matrix product do not broadcast");
        return 0;
    }
    plim_t x = matmul_operand(m, a, &batch), y = matmul_operand(m, b, &batch);
    plim_t p = multiply_batches(m, x, y);
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

/* A vector operand becomes a matrix with one row or column; the result drops that dim
 * again. */
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
        plim_m_fail(m, PLIM_ESHAPE, "matmul needs tensors of rank 1 or more");
        return 0;
    }
    if (rb == 1 && ra <= 2)
        return times_vector(m, a, b);
    if (ra == 2 && rb == 2)
        return record_bmm(m, &mm_fn, a, b);
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

/* ---- einsum: operands lined up by letter, contracted pair by pair ------------------- */

enum { EINSUM_LABELS = 52, EINSUM_DIMS = PLIM_MAX_RANK, EINSUM_MAX = 16 };

typedef struct einsum {
    int32_t place[EINSUM_LABELS]; /* index of the letter's dim in the aligned operands */
    int32_t times[EINSUM_LABELS]; /* number of occurrences before the arrow */
    int32_t ellipsis, ellipsis_rank;
    int32_t rank, out_rank;     /* total number of dims; those of the result come first */
    int32_t count[EINSUM_DIMS]; /* operands in which the dim is not 1 */
} einsum;

static int32_t einsum_label(char ch)
{
    return ch >= 'A' && ch <= 'Z' ? ch - 'A' : ch >= 'a' && ch <= 'z' ? ch - 'a' + 26 : -1;
}

/* The letters of one operand; a dot stands for the ellipsis. */
typedef struct einsum_term {
    char letter[2 * EINSUM_DIMS];
    int32_t n;
    bool dots;
} einsum_term;

/* Takes one operand's letters from *rest, up to a comma or the arrow. */
static bool einsum_next(plim_str *rest, einsum_term *t)
{
    *t = (einsum_term){.n = 0};
    while (rest->n && *rest->p != ',' && *rest->p != '-') {
        char ch = *rest->p;
        size_t step = ch == '.' ? 3 : 1;
        if (step > rest->n || t->n == 2 * EINSUM_DIMS ||
            (ch != ' ' && ch != '.' && einsum_label(ch) < 0))
            return false;
        if (ch != ' ')
            t->letter[t->n++] = ch;
        t->dots |= ch == '.';
        rest->p += step;
        rest->n -= step;
    }
    if (rest->n && *rest->p == ',')
        rest->p++, rest->n--;
    return true;
}

/* Assigns dims to letters: those of the result first, the others alphabetically.
 * src: Linear.cpp einsum */
static bool einsum_places(einsum *e, plim_str result, bool has_result)
{
    bool dots = !has_result;
    einsum_term t;
    if (!einsum_next(&result, &t))
        return false;
    for (int32_t i = 0; i < EINSUM_LABELS; i++)
        e->place[i] = -1;
    if (!has_result)
        e->rank = e->ellipsis_rank;
    for (int32_t i = 0; i < EINSUM_LABELS && !has_result; i++)
        if (e->times[i] == 1)
            e->place[i] = e->rank++;
    for (int32_t i = 0; i < t.n; i++) {
        int32_t label = einsum_label(t.letter[i]);
        if (label >= 0) {
            e->place[label] = e->rank++;
            continue;
        }
        dots = true;
        e->ellipsis = e->rank;
        e->rank += e->ellipsis_rank;
    }
    e->out_rank = e->rank;
    if (!dots) {
        e->ellipsis = e->rank;
        e->rank += e->ellipsis_rank;
    }
    for (int32_t i = 0; i < EINSUM_LABELS; i++)
        if (e->times[i] && e->place[i] < 0)
            e->place[i] = e->rank++;
    return e->rank <= EINSUM_DIMS;
}

/* x with the dim of every letter in its place, of size 1 where x lacks it: owned. */
static plim_t einsum_lined_up(plim_machine *m, einsum *e, plim_t x, const einsum_term *t)
{
    int64_t perm[EINSUM_DIMS] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int32_t letters = t->n - (t->dots ? 1 : 0), at = 0;
    int32_t rank = plim_m_meta(m, x)->rank, missing = e->ellipsis_rank - (rank - letters);
    if (rank < letters || (!t->dots && rank != letters)) {
        plim_m_fail(m, PLIM_ESHAPE, "einsum has %d subscripts for an operand of rank %d",
                    (int)letters, (int)rank);
        return 0;
    }
    x = plim_m_ref(m, x);
    for (int32_t i = 0; i < t->n && !plim_m_bad(m); i++) {
        int32_t label = einsum_label(t->letter[i]);
        if (label >= 0 && perm[e->place[label]] >= 0) {
            plim_m_fail(m, PLIM_EUNSUPPORTED,
                        "einsum with a subscript twice in one operand has no rule");
        } else if (label >= 0) {
            perm[e->place[label]] = at++;
        } else {
            for (int32_t k = 0; k < missing; k++) {
                plim_t wide = plim_at_unsqueeze(m, x, at);
                plim_m_drop(m, x);
                x = wide;
            }
            for (int32_t k = 0; k < e->ellipsis_rank; k++)
                perm[e->ellipsis + k] = at++;
        }
    }
    for (int32_t i = 0; i < e->rank && !plim_m_bad(m); i++) {
        if (perm[i] >= 0)
            continue;
        plim_t wide = plim_at_unsqueeze(m, x, plim_m_meta(m, x)->rank);
        plim_m_drop(m, x);
        x = wide;
        perm[i] = at++;
    }
    plim_t y = plim_at_permute(m, x, perm);
    plim_m_drop(m, x);
    for (int32_t i = 0; i < e->rank; i++)
        e->count[i] += plim_m_meta(m, y)->dim[i] != 1;
    return y;
}

/* Replaces *t by its sum over the dims of mask, with keepdim. */
static void einsum_sum(plim_machine *m, plim_t *t, uint32_t mask)
{
    if (!mask)
        return;
    plim_t s = plim_at_sum(m, *t, mask, true);
    plim_m_drop(m, *t);
    *t = s;
}

/* Dims of a product by where they occur: in both operands and the result, in one of them and
 * the result, or summed. */
typedef enum pair_kind { PAIR_BOTH, PAIR_LEFT, PAIR_SUMMED, PAIR_RIGHT, PAIR_KINDS } pair_kind;

typedef struct pair_dims {
    int64_t dim[PAIR_KINDS][EINSUM_DIMS], size[PAIR_KINDS];
    int32_t n[PAIR_KINDS];
} pair_dims;

/* t permuted to these kinds in order, with each of the first three flattened to one dim. */
static plim_t pair_operand(plim_machine *m, plim_t t, const pair_dims *p,
                           const pair_kind *kinds)
{
    int64_t perm[EINSUM_DIMS], size[3];
    int32_t n = 0;
    for (int32_t k = 0; k < PAIR_KINDS; k++)
        for (int32_t i = 0; i < p->n[kinds[k]]; i++)
            perm[n++] = p->dim[kinds[k]][i];
    for (int32_t k = 0; k < 3; k++)
        size[k] = p->size[kinds[k]];
    plim_t turned = plim_at_permute(m, t, perm), flat = plim_at_reshape(m, turned, 3, size);
    plim_m_drop(m, turned);
    return flat;
}

/* src: Linear.cpp sumproduct_pair, keepdim.  Takes both references. */
static plim_t sumproduct_pair(plim_machine *m, plim_t a, plim_t b, uint32_t sum)
{
    if (!sum) {
        plim_t y = plim_at_mul(m, a, b, false);
        plim_m_drop(m, b);
        plim_m_drop(m, a);
        return y;
    }
    int32_t rank = plim_m_meta(m, a)->rank, n = 0;
    pair_dims p = {.size = {1, 1, 1, 1}};
    int64_t size[EINSUM_DIMS], back[EINSUM_DIMS];
    for (int32_t i = 0; i < rank; i++) {
        int64_t x = plim_m_meta(m, a)->dim[i], y = plim_m_meta(m, b)->dim[i];
        bool summed = sum >> i & 1;
        pair_kind k = summed             ? PAIR_SUMMED
                      : x != 1 && y != 1 ? PAIR_BOTH
                      : x != 1           ? PAIR_LEFT
                                         : PAIR_RIGHT;
        p.dim[k][p.n[k]++] = i;
        p.size[k] *= k == PAIR_RIGHT ? y : x;
    }
    const pair_kind left[] = {PAIR_BOTH, PAIR_LEFT, PAIR_SUMMED, PAIR_RIGHT},
                    right[] = {PAIR_BOTH, PAIR_SUMMED, PAIR_RIGHT, PAIR_LEFT};
    for (int32_t k = 0; k < PAIR_KINDS; k++)
        for (int32_t i = 0; i < p.n[left[k]]; i++, n++) {
            int64_t d = p.dim[left[k]][i];
            size[n] = left[k] == PAIR_SUMMED  ? 1
                      : left[k] == PAIR_RIGHT ? plim_m_meta(m, b)->dim[d]
                                              : plim_m_meta(m, a)->dim[d];
            back[d] = n;
        }
    plim_t x = pair_operand(m, a, &p, left), y = pair_operand(m, b, &p, right);
    plim_t product3 = multiply_batches(m, x, y), seen = plim_at_view(m, product3, rank, size);
    plim_t r = plim_at_permute(m, seen, back);
    plim_t all[] = {seen, product3, y, x, b, a};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return r;
}

/* Contracts two operands into one: dims that only one of them has are summed before, those
 * that no other operand needs in the product.  Takes both references. */
static plim_t einsum_pair(plim_machine *m, einsum *e, plim_t a, plim_t b)
{
    uint32_t of_a = 0, of_b = 0, both = 0;
    for (int32_t d = e->out_rank; d < e->rank && !plim_m_bad(m); d++) {
        bool x = plim_m_meta(m, a)->dim[d] != 1, y = plim_m_meta(m, b)->dim[d] != 1;
        if (x && y) {
            if (--e->count[d] == 1) {
                both |= 1u << d;
                e->count[d] = 0;
            }
        } else if (e->count[d] == 1 && (x || y)) {
            *(x ? &of_a : &of_b) |= 1u << d;
            e->count[d] = 0;
        }
    }
    einsum_sum(m, &a, of_a);
    einsum_sum(m, &b, of_b);
    return plim_m_bad(m) ? 0 : sumproduct_pair(m, a, b, both);
}

static bool einsum_read(plim_call *c, einsum *e, einsum_term *term, const plim_t *in,
                        uint32_t n)
{
    plim_str rest = plim_arg_string(c, 0), result = {NULL, 0};
    for (uint32_t i = 0; i < n; i++) {
        if (!einsum_next(&rest, &term[i]))
            return false;
        for (int32_t k = 0; k < term[i].n; k++)
            if (einsum_label(term[i].letter[k]) >= 0)
                e->times[einsum_label(term[i].letter[k])]++;
        if (term[i].dots)
            e->ellipsis_rank =
                PLIM_MAX(e->ellipsis_rank, plim_m_meta(c->m, in[i])->rank - term[i].n + 1);
    }
    bool arrow = rest.n >= 2 && rest.p[0] == '-' && rest.p[1] == '>';
    if (arrow)
        result = (plim_str){rest.p + 2, rest.n - 2};
    return (arrow || !rest.n) && einsum_places(e, result, arrow);
}

/* Replaces operands i and j (i < j) by their product, at the end; or, from left to right, at
 * the front. */
static void einsum_contract(plim_machine *m, einsum *e, plim_t *op, uint32_t n, uint32_t i,
                            uint32_t j, bool in_front)
{
    plim_t a = op[i], b = op[j];
    memmove(&op[j], &op[j + 1], (n - j - 1) * sizeof *op);
    memmove(&op[i], &op[i + 1], (n - i - 2) * sizeof *op);
    if (in_front)
        memmove(&op[1], &op[0], (n - 2) * sizeof *op);
    op[in_front ? 0 : n - 2] = einsum_pair(m, e, a, b);
}

void plim_run_einsum(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t op[EINSUM_MAX] = {0};
    einsum_term term[EINSUM_MAX];
    einsum e = {.rank = 0};
    int64_t path[2 * EINSUM_MAX];
    uint32_t n = plim_arg_tensors(c, 1, op, EINSUM_MAX), all = n,
             steps = plim_arg_ints(c, 2, path, PLIM_COUNT(path), 1) / 2;
    plim_str text = plim_arg_string(c, 0);
    if (!n || !einsum_read(c, &e, term, op, n)) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "einsum of '" PLIM_STR_FMT "' has no rule",
                    PLIM_STR_ARG(text));
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        op[i] = einsum_lined_up(m, &e, op[i], &term[i]);
    for (uint32_t k = 0; n > 1 && !plim_m_bad(m); k++) {
        const int64_t *at = k < steps ? &path[2 * k] : NULL;
        if (at &&
            (at[0] == at[1] || PLIM_MIN(at[0], at[1]) < 0 || PLIM_MAX(at[0], at[1]) >= n)) {
            plim_m_fail(m, PLIM_ESHAPE,
                        "the path of einsum does not fit its operands: it names %" PRId64,
                        PLIM_MAX(at[0], at[1]));
            return;
        }
        einsum_contract(m, &e, op, n--, at ? (uint32_t)PLIM_MIN(at[0], at[1]) : 0,
                        at ? (uint32_t)PLIM_MAX(at[0], at[1]) : 1, !at);
    }
    plim_t y = op[0];
    if (e.rank > e.out_rank) {
        uint32_t rest = ((1u << e.rank) - 1) & ~((1u << e.out_rank) - 1);
        y = all > 1 ? plim_at_view(m, op[0], e.out_rank, plim_m_meta(m, op[0])->dim)
                    : plim_at_sum(m, op[0], rest, false);
        plim_m_drop(m, op[0]);
    }
    plim_ret(c, y);
}

/* ---- grouped products: rows of x, each by the matrix of its expert ------------------- */

enum { GROUPED_MAT2, GROUPED_OFFS, GROUPED_SELF };

/* CUTLASS for bf16 on sm_90: sizes, pointers and strides of the groups, and four tensor maps
 * per SM.  src: GroupMM.cu bf16bf16_grouped_gemm_impl_sm90_sm100; tests/golden/cuda */
static void grouped_scratch(plim_machine *m, plim_t a, plim_t b, plim_t offs)
{
    enum { SHAPE = 12, POINTER = 8, OPERANDS = 3, MAPS = 4 * 128 };
    if (!plim_world_is(plim_m_world(m), 90) || plim_m_meta(m, a)->dtype != PLIM_BF16 ||
        plim_m_meta(m, b)->dtype != PLIM_BF16)
        return;
    uint64_t groups = (uint64_t)plim_m_meta(m, offs)->dim[0], even = groups + groups % 2;
    plim_t sizes =
        plim_m_scratch(m, even * OPERANDS * POINTER + groups * (OPERANDS * POINTER + SHAPE));
    plim_m_drop(m, plim_m_scratch(m, (uint64_t)plim_m_sms(m, NULL) * MAPS));
    plim_m_drop(m, sizes);
}
void plim_kernel_grouped_mm(plim_call *c)
{
    if (plim_arg_tensor(c, 2))
        grouped_scratch(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                        plim_arg_tensor(c, 2));
}

/* a [S, K] times one matrix per group [E, K, N], or [K, S] times [S, N] into one matrix per
 * group; rows are aligned to 16 bytes.
 * src: GroupedMMUtils.h create_grouped_gemm_output_tensor */
static plim_t grouped_product(plim_machine *m, plim_t a, plim_t b, plim_t offs)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b), *o = plim_m_meta(m, offs);
    bool many = y->rank == 3;
    bool fits = x->rank == 2 && (many || y->rank == 2) && offs && o->rank == 1 &&
                x->dim[1] == plim_dim_at(y, -2);
    if (!fits) {
        char sx[96], sy[96];
        plim_m_fail(m, PLIM_ESHAPE, "grouped product of %s and %s has no rule",
                    plim_meta_str(x, sx, sizeof sx), plim_meta_str(y, sy, sizeof sy));
        return 0;
    }
    int64_t part = 128 / (int64_t)plim_dtype_rows[x->dtype].bits, width = plim_dim_at(y, -1);
    plim_meta out =
        plim_meta_make(x->dtype, many ? 2 : 3, (int64_t[]){o->dim[0], x->dim[0], 1});
    if (many)
        out.dim[0] = x->dim[0];
    plim_set_dim(&out, -1, (width + part - 1) / part * part);
    plim_meta_contiguous(&out);
    plim_t whole = plim_m_empty(m, &out);
    plim_set_dim(&out, -1, width);
    plim_t r = plim_m_alias(m, whole, &out);
    plim_m_drop(m, whole);
    grouped_scratch(m, a, b, offs);
    return r;
}

/* a b in groups; b^T a^T if the result is to be column-major */
static plim_t grouped_like(plim_machine *m, plim_t a, plim_t b, plim_t offs,
                           const plim_meta *like)
{
    int32_t r = like->rank;
    if (like->stride[r - 2] != 1 || like->stride[r - 1] != like->dim[r - 2])
        return grouped_product(m, a, b, offs);
    plim_t at = matmul_transposed(m, a), bt = matmul_transposed(m, b),
           y = grouped_product(m, bt, at, offs);
    plim_t turned = matmul_transposed(m, y), all[] = {y, bt, at};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return turned;
}

static void grouped_mm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t offs = plim_m_saved(m, n, GROUPED_OFFS);
    if (plim_m_wants(m, n, 1)) {
        plim_t xt = matmul_transposed(m, plim_m_saved(m, n, GROUPED_SELF));
        dx[1] = grouped_like(m, xt, g[0], offs, n->meta);
        plim_m_drop(m, xt);
    }
    if (plim_m_wants(m, n, 0)) {
        plim_t wt = matmul_transposed(m, plim_m_saved(m, n, GROUPED_MAT2));
        dx[0] = grouped_product(m, g[0], wt, offs);
        plim_m_drop(m, wt);
    }
}
static const plim_grad_fn grouped_mm_fn = {"GroupedMmBackward0", grouped_mm_backward};

/* x [S, K], weight [E, K, N], the end of each expert's rows [E].  An export of transformers
 * contains another op instead, because exporting counts as compiling; on a card this one runs.
 * src: derivatives.yaml; FunctionsManual.cpp _grouped_mm_mat2_backward;
 * transformers/integrations/moe.py _can_use_grouped_mm */
void plim_run_grouped_mm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)},
           offs = plim_arg_tensor(c, 2);
    if (plim_m_meta(m, in[1])->rank != 3) {
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "a grouped product whose second operand is not of rank 3 has no rule");
        return;
    }
    plim_gnode *n = plim_m_node(m, &grouped_mm_fn, 2, in);
    save_operands(m, n, 0, in[0], GROUPED_SELF, in[1], GROUPED_MAT2);
    plim_m_save(m, n, GROUPED_OFFS, offs);
    plim_m_note(m, n, plim_m_meta(m, in[1]));
    plim_t y = grouped_product(m, in[0], in[1], offs);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- linear -------------------------------------------------------------------------- */

/* A kernel of another package: not an op of PyTorch, without gradients, with temporaries whose
 * bounds are given by the graph's builder. */
void plim_run_packed_linear(plim_call *c)
{
    plim_machine *m = c->m;
    plim_meta y = *plim_m_meta(m, plim_arg_tensor(c, 0));
    if (!y.rank) {
        plim_m_fail(m, PLIM_ESHAPE, "linear needs an input of rank 1 or more");
        return;
    }
    plim_set_dim(&y, -1, plim_arg_int(c, 2, 0));
    plim_meta_contiguous(&y);
    /* a file may name this op, too, with bounds that are none */
    const uint64_t usual = (uint64_t)PLIM_MAX(plim_arg_int(c, 4, 0), 0),
                   low = (uint64_t)PLIM_MAX(plim_arg_int(c, 3, 0), 0),
                   high = (uint64_t)PLIM_MAX(plim_arg_int(c, 5, 0), 0);
    plim_t scratch =
        plim_m_scratch_range(m, PLIM_MIN(low, usual), usual, PLIM_MAX(high, usual));
    plim_ret(c, plim_m_empty(m, &y));
    plim_m_drop(m, scratch);
}

/* src: Linear.cpp.  The bias is fused into addmm for 2-D input and for contiguous input of any
 * other rank (formerly only 3-D); otherwise matmul, then add_. */
plim_t plim_at_linear(plim_machine *m, plim_t x, plim_t w, plim_t b)
{
    const plim_meta *xm = plim_m_meta(m, x), *wm = plim_m_meta(m, w);
    char sx[96], sw[96];
    if (!xm->rank || wm->rank < 1 || plim_dim_at(xm, -1) != plim_dim_at(wm, -1)) {
        plim_m_fail(m, PLIM_ESHAPE, "linear: input %s and weight %s do not match",
                    plim_meta_str(xm, sx, sizeof sx), plim_meta_str(wm, sw, sizeof sw));
        return 0;
    }
    int64_t in = plim_dim_at(wm, -1), out = wm->rank == 2 ? wm->dim[0] : 1;
    plim_t y;
    if (b && wm->rank == 2 && xm->rank == 2) {
        plim_t wt = plim_at_t(m, w);
        y = matmul_addmm(m, &addmm_fn, b, x, wt, false, false);
        plim_m_drop(m, wt);
    } else if (b && wm->rank == 2 && plim_is_contiguous(xm) &&
               (xm->rank == 3 || plim_m_world(m)->torch >= PLIM_SINCE_LINEAR_FOLDS_ANY_RANK)) {
        plim_t flat = plim_at_reshape(m, x, 2, (int64_t[]){-1, in});
        plim_t wt = plim_at_t(m, w);
        plim_t p = matmul_addmm(m, &addmm_fn, b, flat, wt, false, false);
        plim_meta size = *xm;
        plim_set_dim(&size, -1, out);
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
    return y;
}
void plim_run_linear(plim_call *c)
{
    plim_ret(c, plim_at_linear(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                               plim_arg_tensor(c, 2)));
}
