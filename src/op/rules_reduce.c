/* rules_reduce.c -- sums, means, variances.  src: docs/sources/operators.md 10 */
#include "op/rules.h"

#include "base/fmt.h"
#include "machine/reduction.h"

/* ---- the rules ---------------------------------------------------------------------- */

typedef struct reduce_dims {
    uint32_t mask;
    bool keep;
} reduce_dims;

/* dim argument at slot (int, list or None: all) */
static reduce_dims reduce_args(plim_call *c, uint32_t dim_slot, uint32_t keep_slot)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, 0));
    int64_t dims[PLIM_MAX_RANK];
    uint32_t n = dim_slot ? plim_arg_ints(c, dim_slot, dims, PLIM_MAX_RANK, 1) : 0;
    reduce_dims r = {.keep = keep_slot && plim_arg_int(c, keep_slot, 0)};
    for (uint32_t i = 0; i < n; i++)
        r.mask |= 1u << plim_wrap_dim(c->m, dims[i], x->rank);
    if (!n)
        r.mask = x->rank ? (1u << x->rank) - 1 : 0;
    return r;
}

static void reduce_kernel(plim_call *c, plim_partial partial, plim_dtype out)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, 0));
    plim_m_reduce(c->m, x, reduce_args(c, 1, 0).mask, partial,
                  out == PLIM_DTYPE_COUNT ? x->dtype : out);
}
void plim_kernel_reduce(plim_call *c) { reduce_kernel(c, PLIM_PARTIAL_SUM, PLIM_DTYPE_COUNT); }
void plim_kernel_extreme(plim_call *c)
{
    reduce_kernel(c, PLIM_PARTIAL_EXTREME, PLIM_DTYPE_COUNT);
}
void plim_kernel_flag(plim_call *c) { reduce_kernel(c, PLIM_PARTIAL_FLAG, PLIM_BOOL); }
void plim_kernel_place(plim_call *c) { reduce_kernel(c, PLIM_PARTIAL_PLACE, PLIM_I64); }
void plim_kernel_extreme_place(plim_call *c)
{
    reduce_kernel(c, PLIM_PARTIAL_PLACE, PLIM_DTYPE_COUNT);
}
void plim_kernel_moments(plim_call *c)
{
    reduce_kernel(c, PLIM_PARTIAL_MOMENTS, PLIM_DTYPE_COUNT);
}
void plim_kernel_pair(plim_call *c) { reduce_kernel(c, PLIM_PARTIAL_PAIR, PLIM_DTYPE_COUNT); }
/* Small integers and bools are cast to the 64 bits that they are summed in. */
static void sum_scratch(plim_machine *m, const plim_meta *x, uint32_t mask)
{
    plim_meta wide = plim_meta_like(x, PLIM_I64);
    bool narrow = !plim_is_float(x->dtype) && !plim_dtype_rows[x->dtype].is_complex &&
                  x->dtype != PLIM_I64;
    plim_t cast = narrow ? plim_m_empty(m, &wide) : 0;
    plim_reduce_scratch(m, narrow ? &wide : x, mask);
    plim_m_drop(m, cast);
}
void plim_kernel_sum(plim_call *c)
{
    sum_scratch(c->m, plim_m_meta(c->m, plim_arg_tensor(c, 0)), reduce_args(c, 1, 0).mask);
}

/* One partial result per chunk of 65536 elements, and the offset of each tensor's first; in
 * older versions as many for every tensor as the longest one has.  Then one norm each.
 * src: ForeachReduceOp.cu; tests/golden/cuda (2.15) */
void plim_kernel_foreach_norm(plim_call *c)
{
    enum { CHUNK = 65536 };
    uint64_t chunks = 1, sum = 0, n = 0;
    plim_t *x = c->out; /* read before the results overwrite it */
    uint32_t k = plim_arg_tensors(c, 0, x, c->n_out);
    plim_dtype t = k ? plim_m_meta(c->m, x[0])->dtype : PLIM_F32;
    for (uint32_t i = 0; i < k; i++)
        if (plim_meta_numel(plim_m_meta(c->m, x[i]), &n)) {
            chunks = PLIM_MAX(chunks, plim_ceil_div(n, CHUNK));
            sum += plim_ceil_div(n, CHUNK);
        }
    t = plim_arg_dtype(c, 1, t);
    plim_dtype acc = plim_dtype_bytes(t) == 2 ? PLIM_F32 : t;
    bool packed = plim_m_world(c->m)->torch >= PLIM_SINCE_FOREACH_NORM_PACKED;
    plim_t begin = packed ? plim_m_scratch_of(c->m, PLIM_I64, 1, (int64_t[]){k + 1}) : 0;
    plim_t partial =
        plim_m_scratch_of(c->m, acc, 1, (int64_t[]){(int64_t)(packed ? sum : k * chunks)});
    for (uint32_t i = 0; i < k; i++)
        c->out[i] = plim_m_empty_contig(c->m, t, 0, NULL);
    plim_m_drop(c->m, partial);
    plim_m_drop(c->m, begin);
    c->n_out = k;
}

static plim_meta reduced_meta(const plim_meta *x, reduce_dims r, plim_dtype t)
{
    plim_meta out = {.dtype = t};
    for (int32_t i = 0; i < x->rank; i++) {
        bool gone = r.mask >> i & 1;
        if (!gone || r.keep)
            out.dim[out.rank++] = gone ? 1 : x->dim[i];
    }
    plim_assert(out.rank <= x->rank);
    plim_meta_contiguous(&out);
    return out;
}

static plim_t reduce_out(plim_machine *m, plim_t x, reduce_dims r, plim_dtype t,
                         plim_partial partial)
{
    plim_meta out = reduced_meta(plim_m_meta(m, x), r, t);
    plim_t y = plim_m_empty(m, &out);
    plim_m_reduce(m, plim_m_meta(m, x), r.mask, partial, t);
    return y;
}
static plim_t sum_out(plim_machine *m, plim_t x, reduce_dims r, plim_dtype t)
{
    plim_meta out = reduced_meta(plim_m_meta(m, x), r, t);
    plim_t y = plim_m_empty(m, &out);
    sum_scratch(m, plim_m_meta(m, x), r.mask);
    return y;
}

enum { REDUCE_MASK, REDUCE_KEEP }; /* in gnode.i: the dims, and keepdim */

/* sum: an expanded view of g, with stride 0 in the reduced dims */
static plim_t expanded_grad(plim_machine *m, plim_gnode *n, plim_t g)
{
    const plim_meta *gm = plim_m_meta(m, g);
    plim_meta out = n->in_meta[0];
    uint32_t mask = (uint32_t)n->i[REDUCE_MASK];
    bool keep = n->i[REDUCE_KEEP];
    out.dtype = gm->dtype;
    for (int32_t i = 0, k = 0; i < out.rank; i++) {
        bool gone = mask >> i & 1;
        out.stride[i] = gone ? 0 : gm->stride[k];
        k += !gone || keep;
    }
    return plim_m_alias(m, g, &out);
}
static void sum_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = expanded_grad(m, n, g[0]);
}
static const plim_grad_fn sum_fn = {"SumBackward1", sum_backward};

/* mean: that view divided by the count, a dense result */
static const plim_grad_fn mean_fn = {"MeanBackward1", plim_backward_fresh};

/* Sums of integers are 64-bit. */
static plim_dtype sum_dtype(plim_dtype t) { return plim_is_float(t) ? t : PLIM_I64; }

static plim_t sum_of(plim_machine *m, plim_t x, reduce_dims r, plim_dtype t)
{
    plim_gnode *n = plim_m_node(m, &sum_fn, 1, &x);
    if (n) {
        n->i[REDUCE_MASK] = r.mask;
        n->i[REDUCE_KEEP] = r.keep;
    }
    plim_t y = sum_out(m, x, r, t);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_sum(plim_machine *m, plim_t x, uint32_t mask, bool keep)
{
    return sum_of(m, x, (reduce_dims){mask, keep}, sum_dtype(plim_m_meta(m, x)->dtype));
}
plim_t plim_at_sum_all(plim_machine *m, plim_t x)
{
    return plim_at_sum(m, x, (1u << plim_m_meta(m, x)->rank) - 1, false);
}

static void run_sum_over(plim_call *c, reduce_dims r, uint32_t dtype_slot)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_dtype t = sum_dtype(plim_m_autocast_out(c->m, x));
    plim_ret(c, sum_of(c->m, x, r, plim_arg_dtype(c, dtype_slot, t)));
}
void plim_run_sum(plim_call *c) { run_sum_over(c, reduce_args(c, 0, 0), 1); }
void plim_run_sum_dim(plim_call *c) { run_sum_over(c, reduce_args(c, 1, 2), 3); }

/* by_dim: not over all dims, with its own formula, which in older versions saved self */
static plim_t mean_of(plim_machine *m, plim_t x, reduce_dims r, plim_dtype t, bool by_dim)
{
    plim_gnode *n = plim_m_node(m, &mean_fn, 1, &x);
    if (by_dim && plim_m_world(m)->torch < PLIM_SINCE_MEAN_WITHOUT_INPUT)
        plim_m_save(m, n, 0, x);
    plim_t y = reduce_out(m, x, r, t, PLIM_PARTIAL_SUM);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_mean(plim_machine *m, plim_t x, uint32_t mask)
{
    return mean_of(m, x, (reduce_dims){mask, true}, plim_m_meta(m, x)->dtype, true);
}

static void run_mean_over(plim_call *c, reduce_dims r, uint32_t dtype_slot, bool by_dim)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_dtype t = plim_arg_dtype(c, dtype_slot, plim_m_meta(c->m, x)->dtype);
    plim_ret(c, mean_of(c->m, x, r, t, by_dim));
}
void plim_run_mean(plim_call *c) { run_mean_over(c, reduce_args(c, 0, 0), 1, false); }
void plim_run_mean_dim(plim_call *c) { run_mean_over(c, reduce_args(c, 1, 2), 3, true); }

/* var: (2/(n-1) g) * (x - mean(x)), the right factor first; std first divides g by twice its
 * result, where that is not 0 */
static void var_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0);
    plim_t gs = 0;
    if (plim_m_saved(m, n, 1)) {
        plim_t twice = plim_iter_out(m, g[0], 0);
        gs = plim_iter_out(m, g[0], 0);
        plim_meta zero = plim_meta_like(plim_m_meta(m, g[0]), PLIM_BOOL);
        plim_t mask = plim_m_empty(m, &zero);
        plim_m_drop(m, mask);
        plim_m_drop(m, twice);
    }
    plim_t mean = plim_iter_out(m, g[0], 0);
    plim_t diff = plim_m_empty_like(m, x);
    plim_t scaled = plim_iter_out(m, g[0], 0);
    dx[0] = plim_m_empty_like(m, x);
    plim_m_drop(m, scaled);
    plim_m_drop(m, diff);
    plim_m_drop(m, mean);
    plim_m_drop(m, gs);
}
static const plim_grad_fn var_fn = {"VarBackward0", var_backward};
static const plim_grad_fn std_fn = {"StdBackward0", var_backward};

static void run_var_like(plim_call *c, uint32_t dim_slot, uint32_t keep_slot)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    reduce_dims r = reduce_args(c, dim_slot, keep_slot);
    bool is_std = c->node->op->name[0] == 's';
    plim_gnode *n = plim_m_node(m, is_std ? &std_fn : &var_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_t y = reduce_out(m, x, r, plim_m_meta(m, x)->dtype, PLIM_PARTIAL_MOMENTS);
    if (is_std)
        plim_m_save(m, n, 1, y);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
void plim_run_var(plim_call *c) { run_var_like(c, 0, 0); }
void plim_run_var_dim(plim_call *c) { run_var_like(c, 1, 3); }

/* max over a dim: values and int64 indices; backward scatters into zeros */
static const plim_grad_fn max_dim_fn = {"MaxBackward0", plim_backward_fresh};

void plim_run_max_dim(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    reduce_dims r = reduce_args(c, 1, 2);
    plim_gnode *n = plim_m_node(m, &max_dim_fn, 1, &x);
    plim_dtype t = plim_m_meta(m, x)->dtype;
    plim_meta value = reduced_meta(plim_m_meta(m, x), r, t),
              index = reduced_meta(plim_m_meta(m, x), r, PLIM_I64);
    plim_t y = plim_m_empty(m, &value), i = plim_m_empty(m, &index);
    plim_m_reduce(m, plim_m_meta(m, x), r.mask, PLIM_PARTIAL_PLACE, t);
    plim_m_save(m, n, 0, i);
    plim_m_output(m, n, 0, y);
    plim_rets(c, (plim_t[]){y, i}, 2);
}

/* amax: g / count * mask, where count = (y == x).sum(): the mask is cast to int64 for the
 * sum */
static void amax_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0);
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    plim_meta wide = plim_meta_like(&mask, PLIM_I64),
              reduced = plim_meta_like(plim_m_meta(m, g[0]), PLIM_I64);
    plim_t eq = plim_m_empty(m, &mask), count = plim_m_empty(m, &reduced);
    plim_t cast = plim_m_empty(m, &wide);
    plim_reduce_scratch(m, &wide, (uint32_t)n->i[REDUCE_MASK]);
    plim_m_drop(m, cast);
    plim_t share = plim_iter_out(m, g[0], 0);
    dx[0] = plim_m_empty_like(m, x);
    plim_m_drop(m, share);
    plim_m_drop(m, count);
    plim_m_drop(m, eq);
}
static const plim_grad_fn amax_fn = {"AmaxBackward0", amax_backward};

void plim_run_amax(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    reduce_dims r = reduce_args(c, 1, 2);
    plim_gnode *n = plim_m_node(m, &amax_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_t y = reduce_out(m, x, r, plim_m_meta(m, x)->dtype, PLIM_PARTIAL_EXTREME);
    plim_m_save(m, n, 1, y);
    if (n)
        n->i[REDUCE_MASK] = r.mask;
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

void plim_run_argmax(plim_call *c)
{
    reduce_dims r = reduce_args(c, 1, 2);
    plim_ret(c, reduce_out(c->m, plim_arg_tensor(c, 0), r, PLIM_I64, PLIM_PARTIAL_PLACE));
}

/* any, all: no gradient */
void plim_run_any(plim_call *c)
{
    reduce_dims r = reduce_args(c, 1, 2);
    plim_ret(c, reduce_out(c->m, plim_arg_tensor(c, 0), r, PLIM_BOOL, PLIM_PARTIAL_FLAG));
}

enum { KEPT_RESULT, KEPT_SELF }; /* saved, in the order of the names */

/* max, min over all: g / (x == y).sum(), distributed by that mask; x and y may be NaN, which
 * is checked first.
 * src: FunctionsManual.cpp evenly_distribute_backward, the path of a card */
static void max_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, KEPT_SELF);
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL),
              wide = plim_meta_like(&mask, PLIM_I64);
    plim_t nan = plim_m_empty(m, &mask), nan_y = plim_m_empty_contig(m, PLIM_BOOL, 0, NULL);
    plim_t eq = plim_m_empty(m, &mask);
    plim_t count = plim_m_empty_contig(m, PLIM_I64, 0, NULL), cast = plim_m_empty(m, &wide);
    plim_reduce_scratch(m, &wide, (uint32_t)n->i[REDUCE_MASK]);
    plim_m_drop(m, cast);
    plim_t share = plim_iter_out(m, g[0], 0);
    dx[0] = plim_m_empty_like(m, x);
    plim_t all[] = {share, count, eq, nan_y, nan};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
}
static const plim_grad_fn max_fn = {"MaxBackward1", max_backward};

/* Saves x and the result, which backward compares or divides. */
static void run_kept(plim_call *c, const plim_grad_fn *fn, reduce_dims r, plim_dtype t,
                     plim_partial partial)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    plim_m_save(m, n, KEPT_SELF, x);
    plim_t y = reduce_out(m, x, r, t, partial);
    plim_m_save(m, n, KEPT_RESULT, y);
    if (n)
        n->i[REDUCE_MASK] = r.mask;
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
void plim_run_max(plim_call *c)
{
    run_kept(c, &max_fn, reduce_args(c, 0, 0), plim_m_meta(c->m, plim_arg_tensor(c, 0))->dtype,
             PLIM_PARTIAL_EXTREME);
}

/* prod: g * (y / x), after a search for zeros, assumed to find none.
 * src: FunctionsManual.cpp prod_backward */
static void prod_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    plim_t x = plim_m_saved(m, n, KEPT_SELF), y = plim_m_saved(m, n, KEPT_RESULT);
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    plim_t zero = plim_m_empty(m, &mask);
    uint64_t numel = 0;
    plim_meta_numel(&mask, &numel);
    plim_nonzero_scratch(m, numel);
    plim_m_drop(m, zero);
    plim_t q = plim_iter_out(m, x, y);
    dx[0] = plim_m_empty_like(m, q);
    plim_m_drop(m, q);
}
static const plim_grad_fn prod_fn = {"ProdBackward0", prod_backward};

void plim_run_prod(plim_call *c)
{
    run_kept(c, &prod_fn, reduce_args(c, 0, 0),
             plim_m_autocast_out(c->m, plim_arg_tensor(c, 0)), PLIM_PARTIAL_SUM);
}

/* ---- norms ------------------------------------------------------------------------------ */

/* Of order 2: g * (x / norm), where the norm is not 0; of order 1: sgn(x) g.
 * src: FunctionsManual.cpp norm_backward */
static void norm1_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t sign = plim_m_empty_like(m, plim_m_saved(m, n, KEPT_SELF));
    dx[0] = plim_iter_out(m, sign, g[0]);
    plim_m_drop(m, sign);
}
static void norm2_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, KEPT_SELF);
    plim_meta zero =
        plim_meta_like(plim_m_meta(m, plim_m_saved(m, n, KEPT_RESULT)), PLIM_BOOL);
    plim_t part = plim_iter_out(m, x, plim_m_saved(m, n, KEPT_RESULT)),
           mask = plim_m_empty(m, &zero);
    dx[0] = plim_iter_out(m, part, 0);
    plim_m_drop(m, mask);
    plim_m_drop(m, part);
    (void)g;
}
static const plim_grad_fn norm1_fn = {"LinalgVectorNormBackward0", norm1_backward};
static const plim_grad_fn norm2_fn = {"LinalgVectorNormBackward0", norm2_backward};

static void run_norm(plim_call *c, double order, reduce_dims r)
{
    plim_t x = plim_arg_tensor(c, 0);
    bool first = order >= 1 && order <= 1, second = order >= 2 && order <= 2;
    if (first || second || !plim_m_would_record(c->m, 1, &x))
        run_kept(c, first ? &norm1_fn : &norm2_fn, r, plim_m_autocast_out(c->m, x),
                 PLIM_PARTIAL_SUM);
    else
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "the gradient of a norm of order %s has no rule",
                    plim_fmt_double(order).s);
}
void plim_run_vector_norm(plim_call *c)
{
    run_norm(c, plim_arg_float(c, 1, 2), reduce_args(c, 2, 3));
}
void plim_run_norm(plim_call *c)
{
    run_norm(c, plim_arg_float(c, 1, 2), reduce_args(c, 0, 0));
}

/* ---- log of a sum of exponentials --------------------------------------------------------- */

/* g * (x - y).exp() */
static void logsumexp_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, KEPT_SELF), diff = plim_m_empty_like(m, x),
           power = plim_m_empty_like(m, x);
    (void)g;
    dx[0] = plim_m_empty_like(m, x);
    plim_m_drop(m, power);
    plim_m_drop(m, diff);
}
static const plim_grad_fn logsumexp_fn = {"LogsumexpBackward0", logsumexp_backward};

/* The maximum, with infinities replaced by 0; exp of the difference, summed into the result.
 * src: ReduceOps.cpp logsumexp_out_impl */
static plim_t logsumexp_kernel(plim_machine *m, plim_t x, reduce_dims r)
{
    reduce_dims keep = {r.mask, true};
    plim_dtype t = plim_m_meta(m, x)->dtype;
    plim_t max = reduce_out(m, x, keep, t, PLIM_PARTIAL_EXTREME);
    plim_meta mask = plim_meta_like(plim_m_meta(m, max), PLIM_BOOL);
    plim_t magnitude = plim_m_empty_like(m, max), inf = plim_m_empty(m, &mask);
    plim_m_drop(m, inf);
    plim_m_drop(m, magnitude);
    plim_t power = plim_m_empty_like(m, x), y = reduce_out(m, power, r, t, PLIM_PARTIAL_SUM);
    plim_m_drop(m, power);
    plim_m_drop(m, max);
    return y;
}
plim_t plim_logsumexp_last(plim_machine *m, plim_t x)
{
    const int32_t rank = plim_m_meta(m, x)->rank;
    return logsumexp_kernel(m, x, (reduce_dims){1u << (rank - 1), false});
}
void plim_kernel_logsumexp(plim_call *c)
{
    c->out[0] = logsumexp_kernel(c->m, plim_arg_tensor(c, 0), reduce_args(c, 1, 2));
    c->n_out = 1;
}

void plim_run_logsumexp(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(m, &logsumexp_fn, 1, &x);
    plim_m_save(m, n, KEPT_SELF, x);
    plim_t y = logsumexp_kernel(m, x, reduce_args(c, 1, 2));
    plim_m_save(m, n, KEPT_RESULT, y);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* (x != 0).sum(), of bools x.sum() */
void plim_kernel_count_nonzero(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    plim_meta flags = plim_meta_like(xm, PLIM_BOOL);
    plim_t mask = xm->dtype == PLIM_BOOL ? plim_m_ref(c->m, x) : plim_m_empty(c->m, &flags);
    c->out[0] = sum_out(c->m, mask, reduce_args(c, 1, 0), PLIM_I64);
    c->n_out = 1;
    plim_m_drop(c->m, mask);
}

/* ---- variance and mean together -------------------------------------------------------------- */

/* The gradient of var, plus the expanded g of the mean divided by the count.
 * src: FunctionsManual.cpp var_mean_backward, std_mean_backward */
static void var_mean_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t part = 0;
    if (g[0])
        var_backward(m, n, g, &part);
    plim_t aux = g[1] ? plim_m_empty_like(m, plim_m_saved(m, n, 0)) : 0;
    dx[0] = part && aux ? plim_m_empty_like(m, part) : plim_m_ref(m, part ? part : aux);
    plim_m_drop(m, aux);
    plim_m_drop(m, part);
}
static const plim_grad_fn var_mean_fn = {"VarMeanBackward0", var_mean_backward};
static const plim_grad_fn std_mean_fn = {"StdMeanBackward0", var_mean_backward};

void plim_run_var_mean(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    reduce_dims r = reduce_args(c, 1, 3);
    plim_dtype t = plim_m_meta(m, x)->dtype;
    bool is_std = c->node->op->name[0] == 's';
    plim_gnode *n = plim_m_node(m, is_std ? &std_mean_fn : &var_mean_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_meta size = reduced_meta(plim_m_meta(m, x), r, t);
    plim_t y = plim_m_empty(m, &size), mean = plim_m_empty(m, &size);
    plim_m_reduce(m, plim_m_meta(m, x), r.mask, PLIM_PARTIAL_MOMENTS, t);
    if (is_std)
        plim_m_save(m, n, 1, y);
    plim_m_output(m, n, 0, y);
    plim_m_output(m, n, 1, mean);
    plim_rets(c, (plim_t[]){y, mean}, 2);
}

/* ---- a direction times a length ------------------------------------------------------------- */

/* The gradients of v and g; the norms are saved in the accumulator's dtype.
 * src: cuda/WeightNorm.cu */
enum { WEIGHT_NORM_G, WEIGHT_NORM_NORMS, WEIGHT_NORM_V };

static void weight_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    const plim_meta *v = plim_m_meta(m, plim_m_saved(m, n, WEIGHT_NORM_V)),
                    *length = plim_m_meta(m, plim_m_saved(m, n, WEIGHT_NORM_G));
    (void)g;
    dx[0] = plim_m_empty_contig(m, v->dtype, v->rank, v->dim);
    dx[1] = plim_m_empty_contig(m, length->dtype, length->rank, length->dim);
}
static const plim_grad_fn weight_norm_fn = {"WeightNormInterfaceBackward0",
                                            weight_norm_backward};

void plim_run_weight_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    const plim_meta *v = plim_m_meta(m, in[0]);
    plim_meta norms = *plim_m_meta(m, in[1]);
    if (plim_dtype_bytes(norms.dtype) == 2)
        norms.dtype = PLIM_F32;
    plim_gnode *n = plim_m_node(m, &weight_norm_fn, 2, in);
    plim_m_save(m, n, WEIGHT_NORM_V, in[0]);
    plim_m_save(m, n, WEIGHT_NORM_G, in[1]);
    plim_t w = plim_m_empty_contig(m, v->dtype, v->rank, v->dim),
           kept = plim_m_empty(m, &norms);
    plim_m_save(m, n, WEIGHT_NORM_NORMS, kept);
    plim_m_drop(m, kept);
    plim_m_output(m, n, 0, w);
    plim_ret(c, w);
}
