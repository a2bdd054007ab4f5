/* rules_pointwise.c -- elementwise arithmetic, with broadcasting.
 * src: facts training-step.md 3.1; tools/autograd/derivatives.yaml; order of
 * gradients inside a node is alphabetical by formula (2.1). */
#include "op/rules.h"

/* ---- result type and layout ---------------------------------------------- */

/* Tensors with dims outrank 0-dim tensors, which outrank Python numbers, as
 * long as the category (bool < int < float) is the same. */
plim_dtype plim_result_type(const plim_machine *m, plim_t a, plim_t b)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b);
    int px = plim_m_is_wrapped(m, a) ? 0 : x->rank ? 2 : 1;
    int py = plim_m_is_wrapped(m, b) ? 0 : y->rank ? 2 : 1;
    if (px == py)
        return plim_promote(x->dtype, y->dtype);
    plim_dtype hi = px > py ? x->dtype : y->dtype, lo = px > py ? y->dtype : x->dtype;
    bool lo_wrapped = (px > py ? py : px) == 0;
    if (plim_is_float(lo) && !plim_is_float(hi) && !plim_dtype_rows[hi].is_complex)
        return lo_wrapped ? PLIM_F32 : lo;
    if (hi == PLIM_BOOL && lo != PLIM_BOOL)
        return lo;
    return hi;
}

plim_meta plim_iter_meta(plim_machine *m, plim_t a, plim_t b, plim_dtype t)
{
    const plim_meta *x = plim_m_meta(m, a);
    if (!b)
        return plim_meta_like(x, t);
    const plim_meta *y = plim_m_meta(m, b);
    plim_meta out = {.dtype = t};
    if (!plim_elementwise(x, y, &out)) {
        char sx[96], sy[96];
        plim_m_fail(m, PLIM_ESHAPE, "%s and %s do not broadcast",
                    plim_meta_str(x, sx, sizeof sx), plim_meta_str(y, sy, sizeof sy));
        return plim_meta_make(t, 0, NULL);
    }
    return out;
}

plim_t plim_iter_out(plim_machine *m, plim_t a, plim_t b)
{
    plim_meta meta =
        plim_iter_meta(m, a, b, b ? plim_result_type(m, a, b) : plim_m_meta(m, a)->dtype);
    return plim_m_empty(m, &meta);
}

int32_t plim_wrap_dim(plim_machine *m, int64_t dim, int32_t rank)
{
    int32_t n = PLIM_MAX(rank, 1);
    if (dim < -n || dim >= n) {
        plim_m_fail(m, PLIM_ESHAPE, "dim %" PRId64 " is outside a tensor of rank %d", dim,
                    (int)rank);
        return 0;
    }
    return (int32_t)(dim < 0 ? dim + n : dim);
}

plim_t plim_contiguous_tmp(plim_machine *m, plim_t t)
{
    const plim_meta *x = plim_m_meta(m, t);
    if (!t || plim_is_contiguous(x))
        return plim_m_ref(m, t);
    return plim_m_empty_contig(m, x->dtype, x->rank, x->dim);
}

/* A tensor argument, or a number wrapped as a 0-dim CPU tensor: owned. */
static plim_t pointwise_operand(const plim_call *c, uint32_t slot)
{
    if (slot < c->n_args && c->args[slot].kind == PLIM_ARG_VALUE)
        return plim_m_ref(c->m, plim_arg_tensor(c, slot));
    bool f = slot < c->n_args && c->args[slot].kind == PLIM_ARG_FLOAT;
    return plim_m_wrapped(c->m, f);
}

/* ---- add, sub: the gradient passes through --------------------------------- */

enum { ADD_ALPHA = 0 };

static void add_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1)) /* maybe_multiply(grad, alpha) */
        dx[1] = n->i[ADD_ALPHA] ? plim_iter_out(m, g[0], 0) : plim_m_ref(m, g[0]);
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_ref(m, g[0]);
}
static const plim_grad_fn add_fn = {"AddBackward0", add_backward};

/* sub: other = -grad; rsub: self = -grad */
static void sub_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = plim_iter_out(m, g[0], 0);
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_ref(m, g[0]);
}
static const plim_grad_fn sub_fn = {"SubBackward0", sub_backward};

/* The in-place result: the same tensor, now with another maker. */
static plim_t pointwise_inplace(plim_machine *m, plim_gnode *n, plim_t self)
{
    plim_t y = plim_m_ref(m, self);
    plim_m_rebase(m, n, y);
    return y;
}

/* Fails where an in-place result would have to grow. */
static void pointwise_check_inplace(plim_machine *m, plim_t self, plim_t other)
{
    plim_meta out;
    if (other && (!plim_broadcast(plim_m_meta(m, self), plim_m_meta(m, other), &out) ||
                  !plim_same_size(plim_m_meta(m, self), &out))) {
        char sx[96], sy[96];
        plim_m_fail(m, PLIM_ESHAPE, "in-place result %s cannot take %s",
                    plim_meta_str(plim_m_meta(m, self), sx, sizeof sx),
                    plim_meta_str(plim_m_meta(m, other), sy, sizeof sy));
    }
}

static plim_t additive(plim_machine *m, const plim_grad_fn *fn, plim_t a, plim_t b, bool alpha,
                       bool inplace)
{
    plim_t in[2] = {a, b};
    if (inplace)
        pointwise_check_inplace(m, a, b);
    plim_gnode *n = plim_m_node(m, fn, 2, in);
    if (n)
        n->i[ADD_ALPHA] = alpha;
    if (inplace)
        return pointwise_inplace(m, n, a);
    plim_t y = plim_iter_out(m, a, b);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_add(plim_machine *m, plim_t a, plim_t b, bool inplace)
{
    return additive(m, &add_fn, a, b, false, inplace);
}

plim_t plim_at_sub(plim_machine *m, plim_t a, plim_t b)
{
    return additive(m, &sub_fn, a, b, false, false);
}

static void run_additive(plim_call *c, const plim_grad_fn *fn, bool swap)
{
    plim_t a = plim_m_ref(c->m, plim_arg_tensor(c, 0)), b = pointwise_operand(c, 1);
    if (!a)
        a = plim_m_wrapped(c->m, true);
    double alpha = plim_arg_float(c, 2, 1.0);
    bool scaled = alpha < 1.0 || alpha > 1.0;
    plim_ret(c, additive(c->m, fn, swap ? b : a, swap ? a : b, scaled, c->inplace));
    plim_m_drop(c->m, a);
    plim_m_drop(c->m, b);
}
void plim_run_add(plim_call *c) { run_additive(c, &add_fn, false); }
void plim_run_sub(plim_call *c) { run_additive(c, &sub_fn, false); }
void plim_run_rsub(plim_call *c) { run_additive(c, &sub_fn, true); }

/* ---- mul, div ---------------------------------------------------------------- */

/* Saved tensors go in the order of their names. */
enum { SAVED_OTHER, SAVED_SELF };

static void mul_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = plim_iter_out(m, g[0], plim_m_saved(m, n, SAVED_SELF));
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_iter_out(m, g[0], plim_m_saved(m, n, SAVED_OTHER));
}
static const plim_grad_fn mul_fn = {"MulBackward0", mul_backward};

plim_t plim_at_mul(plim_machine *m, plim_t a, plim_t b, bool inplace)
{
    plim_t in[2] = {a, b};
    if (inplace)
        pointwise_check_inplace(m, a, b);
    plim_gnode *n = plim_m_node(m, &mul_fn, 2, in);
    bool save_a = n && plim_m_wants(m, n, 1);
    if (save_a && inplace) { /* the original is about to be overwritten */
        plim_t copy = plim_m_empty_like(m, a);
        plim_m_save(m, n, SAVED_SELF, copy);
        plim_m_drop(m, copy);
    } else if (save_a) {
        plim_m_save(m, n, SAVED_SELF, a);
    }
    if (n && plim_m_wants(m, n, 0))
        plim_m_save(m, n, SAVED_OTHER, b);
    if (inplace)
        return pointwise_inplace(m, n, a);
    plim_t y = plim_iter_out(m, a, b);
    plim_m_output(m, n, 0, y);
    return y;
}

void plim_run_mul(plim_call *c)
{
    plim_t a = plim_m_ref(c->m, plim_arg_tensor(c, 0)), b = pointwise_operand(c, 1);
    plim_ret(c, plim_at_mul(c->m, a, b, c->inplace));
    plim_m_drop(c->m, a);
    plim_m_drop(c->m, b);
}

/* other: -grad * ((self / other) / other), all four alive together, the right
 * side of the product first */
static void div_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t a = plim_m_saved(m, n, SAVED_SELF), b = plim_m_saved(m, n, SAVED_OTHER);
    if (plim_m_wants(m, n, 1)) {
        plim_t q1 = plim_iter_out(m, a, b), q2 = plim_iter_out(m, q1, b);
        plim_t neg = plim_iter_out(m, g[0], 0);
        dx[1] = plim_iter_out(m, neg, q2);
        plim_m_drop(m, neg);
        plim_m_drop(m, q2);
        plim_m_drop(m, q1);
    }
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_iter_out(m, g[0], b);
}
static const plim_grad_fn div_fn = {"DivBackward0", div_backward};

void plim_run_div(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t a = plim_m_ref(m, plim_arg_tensor(c, 0)), b = pointwise_operand(c, 1),
           in[2] = {a, b};
    if (c->inplace)
        pointwise_check_inplace(m, a, b);
    plim_gnode *n = plim_m_node(m, &div_fn, 2, in);
    if (n && plim_m_wants(m, n, 1))
        plim_m_save(m, n, SAVED_SELF, a);
    plim_m_save(m, n, SAVED_OTHER, b);
    plim_t y;
    if (c->inplace) {
        y = pointwise_inplace(m, n, a);
    } else {
        plim_dtype t = plim_result_type(m, a, b); /* true division yields a float */
        plim_meta meta =
            plim_iter_meta(m, a, b, plim_is_float(t) || plim_arg_given(c, 2) ? t : PLIM_F32);
        y = plim_m_empty(m, &meta);
        plim_m_output(m, n, 0, y);
    }
    plim_ret(c, y);
    plim_m_drop(m, a);
    plim_m_drop(m, b);
}

/* ---- unary --------------------------------------------------------------------- */

/* Backward formulas as chains of full-size results; the last is the gradient. */
typedef struct unary_row {
    const char *name;
    char save;        /* 'x' input, 'y' output, 0 nothing */
    int steps;        /* results in all, the last one stays */
    const char *grad; /* node name */
} unary_row;

/* src: derivatives.yaml
 *   neg: -g | sqrt: g / (2 y) | rsqrt: -0.5 g y^3 | reciprocal: -g (y y)
 *   exp: g y | log: g / x | abs: g sgn(x) | sin: g cos(x) | cos: g -sin(x)
 *   floor: zeros */
static const unary_row unary_rows[] = {
    {"neg", 0, 1, "NegBackward0"},       {"sqrt", 'y', 2, "SqrtBackward0"},
    {"rsqrt", 'y', 3, "RsqrtBackward0"}, {"reciprocal", 'y', 3, "ReciprocalBackward0"},
    {"exp", 'y', 1, "ExpBackward0"},     {"log", 'x', 1, "LogBackward0"},
    {"abs", 'x', 2, "AbsBackward0"},     {"sin", 'x', 2, "SinBackward0"},
    {"cos", 'x', 3, "CosBackward0"},     {"floor", 0, 1, "FloorBackward0"},
};

/* Temporaries of one C++ expression live until its end: all steps coexist. */
static void unary_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t tmp[4] = {0};
    int steps = (int)n->i[0];
    for (int k = 0; k < steps; k++)
        tmp[k] = plim_iter_out(m, g[0], 0);
    dx[0] = tmp[steps - 1];
    for (int k = steps - 2; k >= 0; k--)
        plim_m_drop(m, tmp[k]);
}
static const plim_grad_fn unary_fn = {"UnaryBackward0", unary_backward};

/* Saves of an elementwise op of one input, in place or not; returns the result. */
static plim_t unary_apply(plim_machine *m, plim_gnode *n, plim_t x, char save, bool inplace)
{
    if (save == 'x' && inplace && n) { /* codegen clones what the kernel overwrites */
        plim_t copy = plim_m_empty_like(m, x);
        plim_m_save(m, n, 0, copy);
        plim_m_drop(m, copy);
    } else if (save == 'x') {
        plim_m_save(m, n, 0, x);
    }
    plim_t y = inplace ? pointwise_inplace(m, n, x) : plim_m_empty_like(m, x);
    if (!inplace)
        plim_m_output(m, n, 0, y);
    if (save == 'y')
        plim_m_save(m, n, 0, y);
    return y;
}

void plim_run_unary(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const unary_row *row = NULL;
    for (size_t i = 0; i < PLIM_COUNT(unary_rows); i++)
        if (!strcmp(unary_rows[i].name, c->node->op->name))
            row = &unary_rows[i];
    if (!row) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "'%s' has no row among the unary ops",
                    c->node->op->name);
        return;
    }
    plim_gnode *n = plim_m_node(c->m, &unary_fn, 1, &x);
    if (n)
        n->i[0] = row->steps;
    plim_ret(c, unary_apply(c->m, n, x, row->save, c->inplace));
}

/* pow with a number: g * (p * x^(p-1)) */
static void pow_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0);
    if (!n->i[0]) { /* exponent 0 */
        dx[0] = plim_m_empty_like(m, x);
        return;
    }
    plim_t a = plim_iter_out(m, x, 0), b = plim_iter_out(m, a, 0);
    dx[0] = plim_iter_out(m, g[0], b);
    plim_m_drop(m, b);
    plim_m_drop(m, a);
}
static const plim_grad_fn pow_fn = {"PowBackward0", pow_backward};

void plim_run_pow(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    double p = plim_arg_float(c, 1, 2.0);
    plim_gnode *n = plim_m_node(c->m, &pow_fn, 1, &x);
    if (n)
        n->i[0] = p < 0.0 || p > 0.0;
    plim_ret(c, unary_apply(c->m, n, x, 'x', c->inplace));
}

/* clamp: a zero, a bool mask a bound, joined in place, then where(mask, g, 0) */
static void clamp_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_meta mask = plim_meta_like(plim_m_meta(m, plim_m_saved(m, n, 0)), PLIM_BOOL);
    plim_t zero = plim_m_empty_contig(m, plim_m_meta(m, g[0])->dtype, 0, NULL);
    plim_t lo = plim_m_empty(m, &mask);
    plim_t hi = n->i[0] == 2 ? plim_m_empty(m, &mask) : 0;
    dx[0] = plim_iter_out(m, g[0], 0);
    plim_m_drop(m, hi);
    plim_m_drop(m, lo);
    plim_m_drop(m, zero);
}
static const plim_grad_fn clamp_fn = {"ClampBackward1", clamp_backward};

void plim_run_clamp(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(c->m, &clamp_fn, 1, &x);
    if (n)
        n->i[0] = plim_arg_given(c, 1) + plim_arg_given(c, 2);
    plim_ret(c, unary_apply(c->m, n, x, 'x', c->inplace));
}

/* ---- two tensors, one chosen ------------------------------------------------------ */

/* where(a == b, g / 2, g).masked_fill_(a < b, 0): the arguments from the right */
static plim_t maximum_side(plim_machine *m, plim_t a, plim_t b, plim_t g)
{
    plim_meta mask = plim_iter_meta(m, a, b, PLIM_BOOL);
    plim_t lt = plim_m_empty(m, &mask), half = plim_iter_out(m, g, 0);
    plim_t eq = plim_m_empty(m, &mask), r = plim_iter_out(m, g, 0);
    plim_m_drop(m, eq);
    plim_m_drop(m, half);
    plim_m_drop(m, lt);
    return r;
}
static void maximum_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t a = plim_m_saved(m, n, SAVED_SELF), b = plim_m_saved(m, n, SAVED_OTHER);
    if (plim_m_wants(m, n, 1))
        dx[1] = maximum_side(m, a, b, g[0]);
    if (plim_m_wants(m, n, 0))
        dx[0] = maximum_side(m, a, b, g[0]);
}
static const plim_grad_fn maximum_fn = {"MaximumBackward0", maximum_backward};

void plim_run_maximum(plim_call *c)
{
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_gnode *n = plim_m_node(c->m, &maximum_fn, 2, in);
    plim_t y = plim_iter_out(c->m, in[0], in[1]);
    plim_m_save(c->m, n, SAVED_SELF, in[0]);
    plim_m_save(c->m, n, SAVED_OTHER, in[1]);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}

static void where_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = plim_iter_out(m, g[0], 0);
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_iter_out(m, g[0], 0);
}
static const plim_grad_fn where_fn = {"WhereBackward0", where_backward};

void plim_run_where(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t cond = plim_arg_tensor(c, 0),
           in[2] = {pointwise_operand(c, 1), pointwise_operand(c, 2)};
    plim_meta ab = plim_iter_meta(m, in[0], in[1], plim_result_type(m, in[0], in[1]));
    plim_meta out = ab;
    plim_gnode *n = plim_m_node(m, &where_fn, 2, in);
    plim_m_save(m, n, 0, cond);
    if (plim_broadcast(plim_m_meta(m, cond), &ab, &out))
        plim_meta_contiguous(&out);
    else
        plim_m_fail(m, PLIM_ESHAPE, "condition and values do not broadcast");
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
    plim_m_drop(m, in[0]);
    plim_m_drop(m, in[1]);
}

static void masked_fill_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_iter_out(m, g[0], 0);
}
static const plim_grad_fn masked_fill_fn = {"MaskedFillBackward0", masked_fill_backward};

void plim_run_masked_fill(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0), mask = plim_arg_tensor(c, 1);
    plim_gnode *n = plim_m_node(c->m, &masked_fill_fn, 1, &x);
    plim_m_save(c->m, n, 0, mask);
    if (c->inplace) {
        plim_ret(c, pointwise_inplace(c->m, n, x));
        return;
    }
    plim_meta meta = plim_iter_meta(c->m, x, mask, plim_m_meta(c->m, x)->dtype);
    plim_t y = plim_m_empty(c->m, &meta);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}

/* ---- no gradient --------------------------------------------------------------------- */

void plim_run_compare(plim_call *c)
{
    plim_t a = plim_arg_tensor(c, 0), b = plim_arg_tensor(c, 1);
    plim_meta meta = plim_iter_meta(c->m, a, b, PLIM_BOOL);
    plim_ret(c, c->inplace ? plim_m_ref(c->m, a) : plim_m_empty(c->m, &meta));
}

void plim_run_bitwise(plim_call *c)
{
    plim_t a = plim_arg_tensor(c, 0), b = pointwise_operand(c, 1);
    plim_ret(c, c->inplace ? plim_m_ref(c->m, a) : plim_iter_out(c->m, a, b));
    plim_m_drop(c->m, b);
}

void plim_run_random(plim_call *c)
{
    plim_ret(c, plim_m_empty_like(c->m, plim_arg_tensor(c, 0)));
}

/* What was there before gets no gradient, but a tensor of zeros is made for it. */
static void copy_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_empty_like(m, g[0]);
    if (plim_m_wants(m, n, 1))
        dx[1] = plim_m_ref(m, g[0]);
}
static const plim_grad_fn copy_fn = {"CopyBackwards", copy_backward};

void plim_run_copy(plim_call *c)
{
    plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    pointwise_check_inplace(c->m, in[0], in[1]);
    plim_ret(c, pointwise_inplace(c->m, plim_m_node(c->m, &copy_fn, 2, in), in[0]));
}

/* Writes into its argument: no request.  (Gradients through slices that are
 * written in place are not followed.) */
void plim_run_fill(plim_call *c) { plim_ret(c, plim_m_ref(c->m, plim_arg_tensor(c, 0))); }
