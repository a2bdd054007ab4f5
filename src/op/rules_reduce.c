/* rules_reduce.c -- sums, means, variances, and the buffer they take on a card.
 * src: facts training-step.md 3.9, 4.3; aten/src/ATen/native/cuda/Reduce.cuh. */
#include "op/rules.h"

/* ---- the global buffer of a reduction ------------------------------------------- */

static uint64_t pow2_below(uint64_t v, uint64_t cap)
{
    uint64_t p = 1;
    while (p * 2 <= v && p * 2 <= cap)
        p *= 2;
    return p;
}
static uint64_t ceil_div(uint64_t a, uint64_t b) { return b ? (a + b - 1) / b : 0; }

/* Bytes of the buffer and the semaphores for O outputs of R inputs each.
 * fast: the reduced dim moves fastest.  src: setReduceConfig in Reduce.cuh */
static void reduce_buffer(plim_machine *m, uint64_t O, uint64_t R, bool fast, bool quarter,
                          uint64_t acc, uint64_t *buffer, uint64_t *semaphores)
{
    uint64_t dim0 = fast ? R : O, dim1 = fast ? O : R, vec = 1;
    *buffer = *semaphores = 0;
    if (!O || !R)
        return;
    if (fast && quarter && R > 128)
        dim0 /= 4;
    if (!fast) {
        vec = O % 4 == 0 ? 4 : O % 2 == 0 ? 2 : 1;
        dim0 /= vec;
    }
    uint64_t max = 512 / vec;
    uint64_t bw = PLIM_MIN(pow2_below(dim0, max), 32);
    uint64_t bh = PLIM_MIN(pow2_below(dim1, max), max / bw);
    bw = PLIM_MIN(pow2_below(dim0, max), max / bh);
    uint64_t nt = bw * bh, step_in = 1, step_out = 1;
    if (fast)
        step_in *= bw;
    else
        step_out *= bw;
    uint64_t v = ceil_div(R, step_in);
    bool by_y = v >= 16 * bh || v >= 256;
    if (by_y)
        step_in *= bh;
    else
        step_out *= bh;
    v = ceil_div(R, step_in);
    if (!by_y || v < 256)
        return;
    int threads = 0;
    uint64_t sms = (uint64_t)plim_m_sms(m, &threads);
    uint64_t gx = ceil_div(O / vec, step_out),
             target = sms * ((uint64_t)threads / PLIM_MAX(nt, 1));
    if (gx > target)
        return;
    uint64_t c = PLIM_MAX(PLIM_MIN(ceil_div(target, gx), ceil_div(v, 16)), ceil_div(v, 256));
    if (c <= 1)
        return;
    *buffer = fast ? acc * O * c : acc * O * c * bw * vec;
    *semaphores = 4 * gx;
}

void plim_reduce_scratch(plim_machine *m, const plim_meta *x, uint32_t mask)
{
    uint64_t O = 1, R = 1, buffer, semaphores;
    int reduced = 0;
    if (!plim_m_world(m)->workspace || plim_m_bad(m))
        return;
    int64_t min_in = INT64_MAX, min_out = INT64_MAX;
    for (int32_t i = 0; i < x->rank; i++) {
        if (x->dim[i] <= 1)
            continue;
        if (mask >> i & 1) {
            R *= (uint64_t)x->dim[i];
            min_in = PLIM_MIN(min_in, x->stride[i]);
            /* neighbours that both are reduced and adjoin coalesce into one */
            bool joined = i + 1 < x->rank && (mask >> (i + 1) & 1) &&
                          x->stride[i] == x->stride[i + 1] * x->dim[i + 1];
            reduced += !joined;
        } else {
            O *= (uint64_t)x->dim[i];
            min_out = PLIM_MIN(min_out, x->stride[i]);
        }
    }
    reduce_buffer(m, O, R, min_in <= min_out, reduced == 1 && min_in == 1,
                  plim_dtype_bytes(x->dtype) == 8 ? 8 : 4, &buffer, &semaphores);
    plim_t b = plim_m_scratch_about(m, buffer), s = plim_m_scratch_about(m, semaphores);
    plim_m_drop(m, s);
    plim_m_drop(m, b);
}

/* ---- sum_to ------------------------------------------------------------------------ */

plim_t plim_at_sum_to(plim_machine *m, plim_t g, const plim_meta *want)
{
    const plim_meta *gm = plim_m_meta(m, g);
    int32_t lead = gm->rank - want->rank;
    uint32_t mask = 0;
    char a[96], b[96];
    if (lead < 0) {
        plim_m_fail(m, PLIM_ESHAPE, "a gradient of %s cannot be summed to %s",
                    plim_meta_str(gm, a, sizeof a), plim_meta_str(want, b, sizeof b));
        return 0;
    }
    for (int32_t i = 0; i < gm->rank; i++) {
        if (i < lead || (want->dim[i - lead] == 1 && gm->dim[i] != 1))
            mask |= 1u << i;
        else if (want->dim[i - lead] != gm->dim[i]) {
            plim_m_fail(m, PLIM_ESHAPE, "a gradient of %s cannot be summed to %s",
                        plim_meta_str(gm, a, sizeof a), plim_meta_str(want, b, sizeof b));
            return 0;
        }
    }
    plim_meta out = plim_meta_make(gm->dtype, want->rank, want->dim);
    if (!mask) /* leading dims of 1 at most: a view */
        return plim_m_alias(m, g, &out);
    plim_t r = plim_m_empty(m, &out);
    plim_reduce_scratch(m, gm, mask);
    if (!lead)
        return r;
    plim_t y = plim_m_alias(m, r, &out); /* keepdim, then a view without the leading dims */
    plim_m_drop(m, r);
    return y;
}

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

static plim_meta reduced_meta(const plim_meta *x, reduce_dims r, plim_dtype t)
{
    plim_meta out = {.dtype = t};
    for (int32_t i = 0; i < x->rank; i++) {
        bool gone = r.mask >> i & 1;
        if (!gone || r.keep)
            out.dim[out.rank++] = gone ? 1 : x->dim[i];
    }
    plim_meta_contiguous(&out);
    return out;
}

static plim_t reduce_out(plim_machine *m, plim_t x, reduce_dims r, plim_dtype t)
{
    plim_meta out = reduced_meta(plim_m_meta(m, x), r, t);
    plim_t y = plim_m_empty(m, &out);
    plim_reduce_scratch(m, plim_m_meta(m, x), r.mask);
    return y;
}

/* sum: an expanded view of g, stride 0 where it was reduced */
static plim_t expanded_grad(plim_machine *m, plim_gnode *n, plim_t g)
{
    const plim_meta *gm = plim_m_meta(m, g);
    plim_meta out = n->in_meta[0];
    uint32_t mask = (uint32_t)n->i[0];
    bool keep = n->i[1];
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

static void run_sum_like(plim_call *c, const plim_grad_fn *fn, uint32_t dim_slot,
                         uint32_t keep_slot, uint32_t dtype_slot)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    reduce_dims r = reduce_args(c, dim_slot, keep_slot);
    plim_dtype t = plim_m_meta(m, x)->dtype;
    if (!plim_is_float(t) && fn == &sum_fn)
        t = PLIM_I64; /* integer sums are 64-bit */
    int64_t want = plim_arg_int(c, dtype_slot, t);
    t = want >= 0 && want < PLIM_DTYPE_COUNT ? (plim_dtype)want : t;
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    if (n) {
        n->i[0] = r.mask;
        n->i[1] = r.keep;
        if (fn == &mean_fn && plim_m_world(m)->torch < 200 && dim_slot)
            plim_m_save(m, n, 0, x); /* 1.13's formula asked for self */
    }
    plim_t y = reduce_out(m, x, r, t);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
plim_t plim_at_sum_all(plim_machine *m, plim_t x)
{
    reduce_dims all = {.mask = (1u << plim_m_meta(m, x)->rank) - 1};
    plim_gnode *n = plim_m_node(m, &sum_fn, 1, &x);
    if (n)
        n->i[0] = all.mask;
    plim_t y = reduce_out(m, x, all, plim_m_meta(m, x)->dtype);
    plim_m_output(m, n, 0, y);
    return y;
}

void plim_run_sum(plim_call *c) { run_sum_like(c, &sum_fn, 0, 0, 1); }
void plim_run_sum_dim(plim_call *c) { run_sum_like(c, &sum_fn, 1, 2, 3); }
void plim_run_mean(plim_call *c) { run_sum_like(c, &mean_fn, 0, 0, 1); }
void plim_run_mean_dim(plim_call *c) { run_sum_like(c, &mean_fn, 1, 2, 3); }

/* var: (2/(n-1) g) * (x - mean(x)), the right side first; std divides g by
 * twice its result, where that is not 0, before */
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
    plim_t y = reduce_out(m, x, r, plim_m_meta(m, x)->dtype);
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
    plim_t y = reduce_out(m, x, r, plim_m_meta(m, x)->dtype);
    plim_meta index = reduced_meta(plim_m_meta(m, x), r, PLIM_I64);
    plim_t i = plim_m_empty(m, &index);
    plim_m_save(m, n, 0, i);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
    if (c->n_out > 1)
        c->out[1] = i;
    else
        plim_m_drop(m, i);
}

/* amax: g / count * mask, where count = (y == x).sum(): the mask is cast to
 * int64 to be counted */
static void amax_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0);
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    plim_meta wide = plim_meta_like(&mask, PLIM_I64),
              few = plim_meta_like(plim_m_meta(m, g[0]), PLIM_I64);
    plim_t eq = plim_m_empty(m, &mask), count = plim_m_empty(m, &few);
    plim_t cast = plim_m_empty(m, &wide);
    plim_reduce_scratch(m, &wide, (uint32_t)n->i[0]);
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
    plim_t y = reduce_out(m, x, r, plim_m_meta(m, x)->dtype);
    plim_m_save(m, n, 1, y);
    if (n)
        n->i[0] = r.mask;
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

void plim_run_argmax(plim_call *c)
{
    reduce_dims r = reduce_args(c, 1, 2);
    plim_ret(c, reduce_out(c->m, plim_arg_tensor(c, 0), r, PLIM_I64));
}
