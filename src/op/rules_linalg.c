/* rules_linalg.c -- systems of linear equations.
 * src: aten/src/ATen/native/BatchLinearAlgebra.cpp, cuda/linalg/BatchLinearAlgebra.cpp,
 * cuda/linalg/BatchLinearAlgebraLib.cpp; torch/csrc/autograd/FunctionsManual.cpp. */
#include "op/rules.h"

/* ---- matrices in column-major order ------------------------------------------------ */

static plim_meta swap_last(plim_meta t)
{
    int32_t row = t.rank - 2, column = t.rank - 1;
    int64_t dim = t.dim[row], stride = t.stride[row];
    t.dim[row] = t.dim[column];
    t.stride[row] = t.stride[column];
    t.dim[column] = dim;
    t.stride[column] = stride;
    return t;
}

static plim_meta make_column_major(plim_meta t)
{
    t = swap_last(t);
    plim_meta_contiguous(&t);
    return swap_last(t);
}

static bool is_row_or_make_column_major(const plim_meta *t)
{
    plim_meta turned = swap_last(*t);
    return plim_is_contiguous(t) || plim_is_contiguous(&turned);
}

/* ---- solve_triangular ------------------------------------------------------------------ */

/* From this many rows on, few systems are solved one by one; from the second, by MAGMA, which
 * keeps its own memory. */
enum { ONE_BY_ONE_ROWS = 64, ONE_BY_ONE_SYSTEMS = 8, CUBLAS_ROWS = 512 };

/* Temporaries of the kernel: cuBLAS takes the addresses of many systems as two arrays. */
static void solve_scratch(plim_machine *m, plim_t a)
{
    const plim_meta *am = plim_m_meta(m, a);
    int64_t rows = plim_dim_at(am, -1);
    uint64_t systems = 1;
    for (int32_t i = 0; i < am->rank - 2; i++)
        systems = plim_sat_mul(systems, (uint64_t)am->dim[i]);
    if ((systems <= ONE_BY_ONE_SYSTEMS && rows >= ONE_BY_ONE_ROWS) || rows > CUBLAS_ROWS ||
        systems > INT32_MAX)
        return;
    int64_t count = (int64_t)systems;
    plim_t of_a = plim_m_empty_contig(m, PLIM_I64, 1, &count);
    plim_t of_x = plim_m_empty_contig(m, PLIM_I64, 1, &count);
    plim_m_drop(m, of_x);
    plim_m_drop(m, of_a);
}

/* x of a x = b, without autograd: a is copied only if it is in neither order. */
static plim_t solve_systems(plim_machine *m, plim_t a, plim_t b)
{
    plim_meta am = *plim_m_meta(m, a), bm = *plim_m_meta(m, b);
    uint64_t n = 0;
    if (am.rank < 2 || am.rank != bm.rank ||
        memcmp(am.dim, bm.dim, (size_t)(am.rank - 2) * sizeof *am.dim) != 0) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "systems of linear equations need matrices, as many as sides");
        return 0;
    }
    plim_meta out = make_column_major(bm), copy = make_column_major(am);
    plim_t x = plim_m_empty(m, &out);
    plim_t ready = is_row_or_make_column_major(&am) ? 0 : plim_m_empty(m, &copy);
    solve_scratch(m, a);
    plim_meta_numel(&out, &n);
    plim_m_product(m, PLIM_WORK_gemm, plim_sat_mul(n, (uint64_t)plim_dim_at(&am, -1)) / 2,
                   bm.dtype);
    plim_m_drop(m, ready);
    return x;
}

static plim_t transpose_matrix(plim_machine *m, plim_t t)
{
    int32_t rank = plim_m_meta(m, t)->rank;
    return plim_at_transpose(m, t, rank - 2, rank - 1);
}

enum { SOLVE_A, SOLVE_X }; /* saved */
enum { SOLVE_LEFT };       /* in gnode.i: a x = b, not x a = b */

/* Of b by the transposed matrix; of a, the triangle of a product with x.
 * src: linalg_solve_triangular_backward */
static void solve_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t a = transpose_matrix(m, plim_m_saved(m, n, SOLVE_A));
    plim_t of_b = solve_systems(m, a, g[0]);
    plim_m_drop(m, a);
    if (plim_m_wants(m, n, 0)) {
        plim_t x = transpose_matrix(m, plim_m_saved(m, n, SOLVE_X));
        plim_t all =
            n->i[SOLVE_LEFT] ? plim_at_matmul(m, of_b, x) : plim_at_matmul(m, x, of_b);
        plim_t minus = plim_iter_out(m, all, 0);
        plim_m_drop(m, all);
        plim_m_drop(m, x);
        const plim_meta *whole = plim_m_meta(m, minus);
        dx[0] = plim_m_empty_contig(m, whole->dtype, whole->rank, whole->dim);
        plim_m_drop(m, minus);
    }
    if (plim_m_wants(m, n, 1))
        dx[1] = of_b;
    else
        plim_m_drop(m, of_b);
}
static const plim_grad_fn solve_fn = {"LinalgSolveTriangularBackward0", solve_backward};

void plim_kernel_solve_triangular(plim_call *c) { solve_scratch(c->m, plim_arg_tensor(c, 0)); }

void plim_run_solve_triangular(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_gnode *n = plim_m_node(m, &solve_fn, 2, in);
    if (n)
        n->i[SOLVE_LEFT] = plim_arg_int(c, 3, 1);
    plim_m_save(m, n, SOLVE_A, in[0]);
    plim_t x = solve_systems(m, in[0], in[1]);
    plim_m_save(m, n, SOLVE_X, x);
    plim_m_output(m, n, 0, x);
    plim_ret(c, x);
}
