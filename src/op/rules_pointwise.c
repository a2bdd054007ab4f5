/* rules_pointwise.c -- elementwise arithmetic, with broadcasting.
 * src: docs/sources/operators.md 1; tools/autograd/derivatives.yaml; the gradients of one node
 * are computed in alphabetical order of their formulas (docs/sources/training-step.md 2). */
#include "op/rules.h"

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

/* The in-place result: the same tensor, now with another grad_fn. */
static plim_t pointwise_inplace(plim_machine *m, plim_gnode *n, plim_t self)
{
    plim_t y = plim_m_ref(m, self);
    plim_m_rebase(m, n, y);
    return y;
}

/* Fails if an in-place result would have to grow. */
static void pointwise_check_inplace(plim_machine *m, plim_t self, plim_t other)
{
    plim_meta out;
    if (other && (!plim_broadcast(plim_m_meta(m, self), plim_m_meta(m, other), &out) ||
                  !plim_same_size(plim_m_meta(m, self), &out))) {
        char sx[96], sy[96];
        plim_m_fail(m, PLIM_ESHAPE, "the in-place result %s cannot hold a broadcast with %s",
                    plim_meta_str(plim_m_meta(m, self), sx, sizeof sx),
                    plim_meta_str(plim_m_meta(m, other), sy, sizeof sy));
    }
}

static plim_t add_or_sub(plim_machine *m, const plim_grad_fn *fn, plim_t a, plim_t b,
                         bool alpha, bool inplace)
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
    return add_or_sub(m, &add_fn, a, b, false, inplace);
}

plim_t plim_at_sub(plim_machine *m, plim_t a, plim_t b)
{
    return add_or_sub(m, &sub_fn, a, b, false, false);
}

static void run_additive(plim_call *c, const plim_grad_fn *fn, bool swap)
{
    plim_t a = plim_m_ref(c->m, plim_arg_tensor(c, 0)), b = pointwise_operand(c, 1);
    if (!a)
        a = plim_m_wrapped(c->m, true);
    double alpha = plim_arg_float(c, 2, 1.0);
    bool scaled = alpha < 1.0 || alpha > 1.0;
    plim_ret(c, add_or_sub(c->m, fn, swap ? b : a, swap ? a : b, scaled, c->inplace));
    plim_m_drop(c->m, a);
    plim_m_drop(c->m, b);
}
void plim_run_add(plim_call *c) { run_additive(c, &add_fn, false); }
void plim_run_sub(plim_call *c) { run_additive(c, &sub_fn, false); }
void plim_run_rsub(plim_call *c) { run_additive(c, &sub_fn, true); }

/* Differences of neighbours, taken n times.  src: ReduceOps.cpp diff */
void plim_run_diff(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t part[3] = {plim_arg_tensor(c, 3), plim_arg_tensor(c, 0), plim_arg_tensor(c, 4)};
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 2, -1), plim_m_meta(m, part[1])->rank);
    uint32_t first = part[0] ? 0 : 1, n_parts = 2 - first + (part[2] != 0);
    plim_t x = n_parts > 1 ? plim_at_cat(m, &part[first], n_parts, d) : plim_m_ref(m, part[1]);
    const plim_meta *xm = plim_m_meta(m, x);
    enum { MOST = 64 }; /* orders: each adds as many ops */
    int64_t n = PLIM_MIN(plim_arg_int(c, 1, 1), xm->rank ? xm->dim[d] : 0);
    if (n < 1 || n > MOST) {
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "diff of order %" PRId64 " has no rule for a tensor of rank %d", n,
                    (int)xm->rank);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t length = plim_m_meta(m, x)->dim[d] - 1;
        plim_t b = plim_at_narrow(m, x, d, length), a = plim_at_narrow(m, x, d, length);
        plim_m_drop(m, x);
        x = plim_at_sub(m, a, b);
        plim_m_drop(m, b);
        plim_m_drop(m, a);
    }
    plim_ret(c, x);
}

/* ---- mul, div ---------------------------------------------------------------- */

/* Saved tensors are released in the order of their names. */
enum { SAVED_OTHER, SAVED_SELF };

/* g * conj(factor); if the input was real and the product complex, its real part */
static plim_t mul_grad(plim_machine *m, plim_t g, plim_t factor, plim_dtype want)
{
    plim_t conj = plim_resolved_conj(m, factor), product = plim_iter_out(m, g, conj);
    plim_m_drop(m, conj);
    if (plim_dtype_rows[want].is_complex || !plim_is_complex(m, product))
        return product;
    plim_t real = plim_real_part(m, product);
    plim_m_drop(m, product);
    return real;
}

static void mul_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = mul_grad(m, g[0], plim_m_saved(m, n, SAVED_SELF), n->in_meta[1].dtype);
    if (plim_m_wants(m, n, 0))
        dx[0] = mul_grad(m, g[0], plim_m_saved(m, n, SAVED_OTHER), n->in_meta[0].dtype);
}
static const plim_grad_fn mul_fn = {"MulBackward0", mul_backward};

/* A copy, if the result is about to be written over it. */
static void save_self(plim_machine *m, plim_gnode *n, plim_t a, bool inplace)
{
    plim_t saved = inplace ? plim_m_empty_like(m, a) : plim_m_ref(m, a);
    plim_m_save(m, n, SAVED_SELF, saved);
    plim_m_drop(m, saved);
}

plim_t plim_at_mul(plim_machine *m, plim_t a, plim_t b, bool inplace)
{
    plim_t in[2] = {a, b};
    if (inplace)
        pointwise_check_inplace(m, a, b);
    plim_gnode *n = plim_m_node(m, &mul_fn, 2, in);
    if (n && plim_m_wants(m, n, 1))
        save_self(m, n, a, inplace);
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

/* other: -grad * ((self / other) / other), all four alive together, the right factor of the
 * product first */
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
        save_self(m, n, a, c->inplace);
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

/* Backward formulas as chains of full-size results; the last one is the gradient. */
typedef struct unary_row {
    const char *name;
    char save;        /* 'x' input, 'y' output, 0 nothing */
    int steps;        /* results in total, the last one remains */
    const char *grad; /* node name */
} unary_row;

/* src: derivatives.yaml
 *   neg: -g | sqrt: g / (2 y) | rsqrt: -0.5 g y^3 | reciprocal: -g (y y)
 *   exp: g y | exp2: g y ln 2 | expm1: g (y + 1)
 *   log: g / x | log2, log10: g / (x ln b) | log1p: g / (x + 1)
 *   abs: g sgn(x) | sin: g cos(x) | cos: g -sin(x) | tan: g (1 + y^2)
 *   sinh: g cosh(x) | cosh: g sinh(x)
 *   asin: g rsqrt(-x x + 1) | acos: g -rsqrt(-x x + 1) | atan: g / (x x + 1)
 *   erf, erfc: c exp(-(x^2)) g
 *   floor, ceil, round, trunc, sign: zeros */
static const unary_row unary_rows[] = {
    {"neg", 0, 1, "NegBackward0"},        {"negative", 0, 1, "NegBackward0"},
    {"absolute", 'x', 2, "AbsBackward0"}, {"sqrt", 'y', 2, "SqrtBackward0"},
    {"rsqrt", 'y', 3, "RsqrtBackward0"},  {"reciprocal", 'y', 3, "ReciprocalBackward0"},
    {"exp", 'y', 1, "ExpBackward0"},      {"exp2", 'y', 2, "Exp2Backward0"},
    {"expm1", 'y', 2, "Expm1Backward0"},  {"log", 'x', 1, "LogBackward0"},
    {"log2", 'x', 2, "Log2Backward0"},    {"log10", 'x', 2, "Log10Backward0"},
    {"log1p", 'x', 2, "Log1PBackward0"},  {"abs", 'x', 2, "AbsBackward0"},
    {"sin", 'x', 2, "SinBackward0"},      {"cos", 'x', 3, "CosBackward0"},
    {"tan", 'y', 3, "TanBackward0"},      {"sinh", 'x', 2, "SinhBackward0"},
    {"cosh", 'x', 2, "CoshBackward0"},    {"asin", 'x', 5, "AsinBackward0"},
    {"acos", 'x', 6, "AcosBackward0"},    {"atan", 'x', 3, "AtanBackward0"},
    {"erf", 'x', 5, "ErfBackward0"},      {"erfc", 'x', 5, "ErfcBackward0"},
    {"floor", 0, 1, "FloorBackward0"},    {"ceil", 0, 1, "CeilBackward0"},
    {"round", 0, 1, "RoundBackward0"},    {"trunc", 0, 1, "TruncBackward0"},
    {"sign", 0, 1, "SignBackward0"},
};

enum { UNARY_STEPS }; /* in gnode.i: number of kernels in its backward */

/* Temporaries of one C++ expression live until its end: all steps coexist. */
static void unary_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t tmp[8] = {0};
    int steps = (int)n->i[UNARY_STEPS];
    for (int k = 0; k < steps; k++)
        tmp[k] = plim_iter_out(m, g[0], 0);
    dx[0] = tmp[steps - 1];
    for (int k = steps - 2; k >= 0; k--)
        plim_m_drop(m, tmp[k]);
}
static const plim_grad_fn unary_fn = {"UnaryBackward0", unary_backward};

/* Saves for an elementwise op of one input, in place or not; returns the result. */
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
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "op '%s' has no rule", c->node->op->name);
        return;
    }
    plim_gnode *n = plim_m_node(c->m, &unary_fn, 1, &x);
    if (n)
        n->i[UNARY_STEPS] = row->steps;
    plim_ret(c, unary_apply(c->m, n, x, row->save, c->inplace));
}

plim_t plim_at_rsqrt(plim_machine *m, plim_t x)
{
    plim_gnode *n = plim_m_node(m, &unary_fn, 1, &x);
    if (n)
        n->i[UNARY_STEPS] = 3;
    return unary_apply(m, n, x, 'y', false);
}

enum { POW_NONZERO }; /* in gnode.i: the exponent is not 0 */

/* pow with a number: g * (p * x^(p-1)) */
static void pow_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0);
    if (!n->i[POW_NONZERO]) {
        dx[0] = plim_m_empty_like(m, x);
        return;
    }
    plim_t a = plim_iter_out(m, x, 0), b = plim_iter_out(m, a, 0);
    dx[0] = plim_iter_out(m, g[0], b);
    plim_m_drop(m, b);
    plim_m_drop(m, a);
}
static const plim_grad_fn pow_fn = {"PowBackward0", pow_backward};

static plim_t pow_number(plim_machine *m, plim_t x, double p, bool inplace)
{
    plim_gnode *n = plim_m_node(m, &pow_fn, 1, &x);
    if (n)
        n->i[POW_NONZERO] = p < 0.0 || p > 0.0;
    return unary_apply(m, n, x, 'x', inplace);
}

plim_t plim_at_square(plim_machine *m, plim_t x)
{
    plim_t wide = plim_m_autocast_f32(m, x), y = pow_number(m, wide, 2.0, false);
    plim_m_drop(m, wide);
    return y;
}

void plim_run_pow(plim_call *c)
{
    double p = plim_arg_float(c, 1, 2.0);
    plim_ret(c, pow_number(c->m, plim_arg_tensor(c, 0), p, c->inplace));
}

/* self: where(exponent == 0, 0, g * (exponent * self^(exponent - 1)))
 * exponent: g * where(self == 0 and exponent >= 0, 0, result * log(self)); first
 * src: FunctionsManual.cpp pow_backward_self, pow_backward_exponent */
enum { POW_EXPONENT, POW_RESULT, POW_SELF };

static plim_t pow_grad_exponent(plim_machine *m, plim_gnode *n, plim_t g)
{
    plim_t e = plim_m_saved(m, n, POW_EXPONENT), y = plim_m_saved(m, n, POW_RESULT),
           x = plim_m_saved(m, n, POW_SELF);
    if (!x) { /* a number: g * (result * log(self)) */
        plim_t part = plim_m_empty_like(m, y), r = plim_iter_out(m, g, part);
        plim_m_drop(m, part);
        return r;
    }
    /* both sides of logical_and, then its result; the right side first */
    plim_meta mask = plim_meta_like(plim_m_meta(m, e), PLIM_BOOL),
              left = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL),
              both = plim_iter_meta(m, x, e, PLIM_BOOL);
    plim_t ge = plim_m_empty(m, &mask), none = plim_m_empty(m, &left),
           cond = plim_m_empty(m, &both);
    plim_m_drop(m, none);
    plim_m_drop(m, ge);
    plim_t log = plim_m_empty_like(m, x), part = plim_iter_out(m, y, x),
           zero = plim_m_empty_contig(m, plim_m_meta(m, g)->dtype, 0, NULL),
           chosen = plim_iter_out(m, y, x), r = plim_iter_out(m, g, y);
    plim_t all[] = {chosen, part, log, zero, cond};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return r;
}

static plim_t pow_grad_self(plim_machine *m, plim_gnode *n, plim_t g)
{
    plim_t e = plim_m_saved(m, n, POW_EXPONENT), x = plim_m_saved(m, n, POW_SELF);
    plim_meta mask = plim_meta_like(plim_m_meta(m, e), PLIM_BOOL);
    plim_t less = plim_m_empty_like(m, e), power = plim_iter_out(m, x, e),
           scaled = plim_iter_out(m, x, e), full = plim_iter_out(m, g, scaled);
    plim_t zero = plim_m_empty_contig(m, plim_m_meta(m, full)->dtype, 0, NULL);
    plim_t none = plim_m_empty(m, &mask), r = plim_iter_out(m, full, 0);
    plim_t all[] = {none, zero, full, scaled, power, less};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return r;
}

static void pow_tensor_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = pow_grad_exponent(m, n, g[0]);
    if (plim_m_wants(m, n, 0))
        dx[0] = pow_grad_self(m, n, g[0]);
}
static const plim_grad_fn pow_tensor_fn = {"PowBackward1", pow_tensor_backward};

void plim_run_pow_tensor(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[2] = {pointwise_operand(c, 0), plim_arg_tensor(c, 1)};
    plim_gnode *n = plim_m_node(m, &pow_tensor_fn, 2, in);
    plim_m_save(m, n, POW_EXPONENT, in[1]);
    if (!plim_m_is_wrapped(m, in[0]))
        plim_m_save(m, n, POW_SELF, in[0]);
    plim_t y = plim_iter_out(m, in[0], in[1]);
    if (plim_m_is_wrapped(m, in[0])) /* the number, on the card */
        plim_m_drop(m, plim_m_empty_contig(m, PLIM_F64, 0, NULL));
    if (n && plim_m_wants(m, n, 1))
        plim_m_save(m, n, POW_RESULT, y);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
    plim_m_drop(m, in[0]);
}

enum { CLAMP_BOUNDS }; /* in gnode.i: number of bounds given */

/* clamp: a zero, a bool mask per bound, combined in place, then where(mask, g, 0) */
static void clamp_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_meta mask = plim_meta_like(plim_m_meta(m, plim_m_saved(m, n, 0)), PLIM_BOOL);
    plim_t zero = plim_m_empty_contig(m, plim_m_meta(m, g[0])->dtype, 0, NULL);
    plim_t lo = plim_m_empty(m, &mask);
    plim_t hi = n->i[CLAMP_BOUNDS] == 2 ? plim_m_empty(m, &mask) : 0;
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
        n->i[CLAMP_BOUNDS] = plim_arg_given(c, 1) + plim_arg_given(c, 2);
    plim_ret(c, unary_apply(c->m, n, x, 'x', c->inplace));
}

/* ---- remainders, angles ------------------------------------------------------------- */

/* self: g; other: -g * self.div(other, floor or trunc) */
static void remainder_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1)) {
        plim_t q =
            plim_iter_out(m, plim_m_saved(m, n, SAVED_SELF), plim_m_saved(m, n, SAVED_OTHER));
        plim_t neg = plim_iter_out(m, g[0], 0);
        dx[1] = plim_iter_out(m, neg, q);
        plim_m_drop(m, neg);
        plim_m_drop(m, q);
    }
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_ref(m, g[0]);
}
static const plim_grad_fn remainder_fn = {"RemainderBackward0", remainder_backward};

void plim_run_remainder(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t a = plim_m_ref(m, plim_arg_tensor(c, 0)), b = pointwise_operand(c, 1),
           in[2] = {a, b};
    plim_gnode *n = plim_m_node(m, &remainder_fn, 2, in);
    if (n && plim_m_wants(m, n, 1)) {
        save_self(m, n, a, c->inplace);
        plim_m_save(m, n, SAVED_OTHER, b);
    }
    plim_t y = c->inplace ? pointwise_inplace(m, n, a) : plim_iter_out(m, a, b);
    if (!c->inplace)
        plim_m_output(m, n, 0, y);
    plim_ret(c, y);
    plim_m_drop(m, b);
    plim_m_drop(m, a);
}

/* recip = 1 / (self self + other other), 0 at the origin; self: g other recip; other: g -self
 * recip.  One expression: its temporaries live to its end.
 * src: FunctionsManual.cpp atan2_backward */
static void atan2_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t a = plim_m_saved(m, n, SAVED_SELF), b = plim_m_saved(m, n, SAVED_OTHER);
    plim_t bb = plim_m_empty_like(m, b), aa = plim_m_empty_like(m, a),
           sum = plim_iter_out(m, aa, bb);
    plim_m_drop(m, aa);
    plim_m_drop(m, bb);
    plim_meta origin = plim_meta_like(plim_m_meta(m, sum), PLIM_BOOL);
    plim_t recip = plim_m_empty_like(m, sum), part[2] = {0}, neg = 0;
    plim_m_drop(m, plim_m_empty(m, &origin));
    if (plim_m_wants(m, n, 0)) {
        part[0] = plim_iter_out(m, g[0], b);
        dx[0] = plim_iter_out(m, part[0], recip);
    }
    if (plim_m_wants(m, n, 1)) {
        neg = plim_m_empty_like(m, a);
        part[1] = plim_iter_out(m, g[0], neg);
        dx[1] = plim_iter_out(m, part[1], recip);
    }
    plim_t all[] = {part[1], neg, part[0], recip, sum};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
}
static const plim_grad_fn atan2_fn = {"Atan2Backward0", atan2_backward};

/* A new result over both inputs; both are saved for backward. */
static void run_pair(plim_call *c, const plim_grad_fn *fn)
{
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_gnode *n = plim_m_node(c->m, fn, 2, in);
    plim_t y = plim_iter_out(c->m, in[0], in[1]);
    plim_m_save(c->m, n, SAVED_SELF, in[0]);
    plim_m_save(c->m, n, SAVED_OTHER, in[1]);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}
void plim_run_atan2(plim_call *c) { run_pair(c, &atan2_fn); }

/* A cross product: the gradient of each side is one too. */
static void cross_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = plim_iter_out(m, g[0], plim_m_saved(m, n, SAVED_SELF));
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_iter_out(m, g[0], plim_m_saved(m, n, SAVED_OTHER));
}
static const plim_grad_fn cross_fn = {"LinalgCrossBackward0", cross_backward};
void plim_run_cross(plim_call *c) { run_pair(c, &cross_fn); }

/* ---- three tensors ---------------------------------------------------------------------- */

enum { THREE_SELF, THREE_A, THREE_B }; /* the inputs, and the slots they are saved in */

/* addcmul: a: g * (b * value); b: g * (a * value) */
static void addcmul_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, THREE_SELF))
        dx[THREE_SELF] = plim_m_ref(m, g[0]);
    for (uint32_t i = THREE_A; i <= THREE_B; i++)
        if (plim_m_wants(m, n, i)) {
            plim_t other = plim_m_empty_like(m, plim_m_saved(m, n, THREE_A + THREE_B - i));
            dx[i] = plim_iter_out(m, g[0], other);
            plim_m_drop(m, other);
        }
}
static const plim_grad_fn addcmul_fn = {"AddcmulBackward0", addcmul_backward};

/* addcdiv: a: g * (value / b); b: -g * (value a / (b b)) */
static void addcdiv_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t a = plim_m_saved(m, n, THREE_A), b = plim_m_saved(m, n, THREE_B);
    if (plim_m_wants(m, n, THREE_SELF))
        dx[THREE_SELF] = plim_m_ref(m, g[0]);
    if (plim_m_wants(m, n, THREE_A)) {
        plim_t scaled = plim_m_empty_like(m, b);
        dx[THREE_A] = plim_iter_out(m, g[0], scaled);
        plim_m_drop(m, scaled);
    }
    if (plim_m_wants(m, n, THREE_B)) {
        plim_t bb = plim_m_empty_like(m, b), va = plim_m_empty_like(m, a),
               q = plim_iter_out(m, va, bb), neg = plim_iter_out(m, g[0], 0);
        dx[THREE_B] = plim_iter_out(m, neg, q);
        plim_t all[] = {neg, q, va, bb};
        for (size_t i = 0; i < PLIM_COUNT(all); i++)
            plim_m_drop(m, all[i]);
    }
}
static const plim_grad_fn addcdiv_fn = {"AddcdivBackward0", addcdiv_backward};

static plim_t iter_out3(plim_machine *m, plim_t a, plim_t b, plim_t c)
{
    plim_meta bc = plim_iter_meta(m, b, c, plim_result_type(m, b, c));
    plim_t t = plim_m_outside(m, &bc), y = plim_iter_out(m, a, t);
    plim_m_drop(m, t);
    return y;
}

/* Each of a and b is saved for the other's gradient; own: also for its own. */
static void run_addc(plim_call *c, const plim_grad_fn *fn, bool own)
{
    plim_machine *m = c->m;
    plim_t in[3] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2)};
    plim_gnode *n = plim_m_node(m, fn, 3, in);
    bool want[3] = {false, false, false};
    if (n)
        plim_m_wanted(m, n, want, 3);
    if (want[THREE_B])
        plim_m_save(m, n, THREE_A, in[THREE_A]);
    if (want[THREE_A] || (own && want[THREE_B]))
        plim_m_save(m, n, THREE_B, in[THREE_B]);
    plim_t y = c->inplace ? pointwise_inplace(m, n, in[0])
                          : iter_out3(m, in[0], in[THREE_A], in[THREE_B]);
    if (!c->inplace)
        plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
void plim_run_addcmul(plim_call *c) { run_addc(c, &addcmul_fn, false); }
void plim_run_addcdiv(plim_call *c) { run_addc(c, &addcdiv_fn, true); }

/* self: g * (1 - weight); end: g * weight; weight: g * (end - self) */
enum { LERP_SELF, LERP_END, LERP_WEIGHT };

static void lerp_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t w = plim_m_saved(m, n, LERP_WEIGHT);
    if (plim_m_wants(m, n, LERP_END))
        dx[LERP_END] = plim_iter_out(m, g[0], w);
    if (plim_m_wants(m, n, LERP_SELF)) {
        plim_t rest = w ? plim_m_empty_like(m, w) : 0;
        dx[LERP_SELF] = plim_iter_out(m, g[0], rest);
        plim_m_drop(m, rest);
    }
    if (plim_m_wants(m, n, LERP_WEIGHT)) {
        plim_t diff =
            plim_iter_out(m, plim_m_saved(m, n, LERP_END), plim_m_saved(m, n, LERP_SELF));
        dx[LERP_WEIGHT] = plim_iter_out(m, g[0], diff);
        plim_m_drop(m, diff);
    }
}
static const plim_grad_fn lerp_fn = {"LerpBackward0", lerp_backward};

void plim_run_lerp(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[3] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2)};
    plim_gnode *n = plim_m_node(m, &lerp_fn, 3, in);
    if (n && plim_m_wants(m, n, LERP_WEIGHT)) {
        plim_m_save(m, n, LERP_SELF, in[LERP_SELF]);
        plim_m_save(m, n, LERP_END, in[LERP_END]);
    }
    plim_m_save(m, n, LERP_WEIGHT, in[LERP_WEIGHT]);
    plim_t y = c->inplace ? pointwise_inplace(m, n, in[0])
                          : iter_out3(m, in[0], in[1], in[2] ? in[2] : in[1]);
    if (!c->inplace)
        plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- two tensors, one chosen ------------------------------------------------------ */

/* where(a == b, g / 2, g).masked_fill_(a < b, 0): arguments are evaluated from the right */
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

/* where(condition, g, 0), the other gradient evaluated first; a number becomes a tensor on the
 * card.  src: TensorCompare.cpp where(Tensor, Tensor, Scalar) */
static plim_t where_grad(plim_machine *m, plim_t g)
{
    plim_t zero = plim_m_empty_contig(m, plim_m_meta(m, g)->dtype, 0, NULL),
           r = plim_iter_out(m, g, 0);
    plim_m_drop(m, zero);
    return r;
}
static void where_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 1))
        dx[1] = where_grad(m, g[0]);
    if (plim_m_wants(m, n, 0))
        dx[0] = where_grad(m, g[0]);
}
static const plim_grad_fn where_fn = {"WhereBackward0", where_backward};

static plim_t choose_by(plim_machine *m, plim_t cond, const plim_t in[2], const plim_meta *out)
{
    plim_gnode *n = plim_m_node(m, &where_fn, 2, in);
    plim_m_save(m, n, 0, cond);
    plim_t y = plim_m_empty(m, out);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_where(plim_machine *m, plim_t cond, plim_t a, plim_t b)
{
    const plim_meta out = *plim_m_meta(m, b);
    return choose_by(m, cond, (plim_t[]){a, b}, &out);
}

void plim_run_where(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t cond = plim_arg_tensor(c, 0),
           in[2] = {pointwise_operand(c, 1), pointwise_operand(c, 2)};
    plim_dtype t = plim_result_type(m, in[0], in[1]);
    if (t == PLIM_F64 && plim_m_is_wrapped(m, in[0]) && plim_m_is_wrapped(m, in[1]))
        t = PLIM_F32; /* two numbers have the default type */
    plim_meta ab = plim_iter_meta(m, in[0], in[1], t);
    plim_meta out = ab;
    for (int i = 0; i < 2; i++)
        if (plim_m_is_wrapped(m, in[i])) {
            plim_m_drop(m, in[i]);
            in[i] = plim_m_empty_contig(m, ab.dtype, 0, NULL);
        }
    if (plim_broadcast(plim_m_meta(m, cond), &ab, &out))
        plim_meta_contiguous(&out);
    else
        plim_m_fail(m, PLIM_ESHAPE, "the condition and the values of where do not broadcast");
    plim_ret(c, choose_by(m, cond, in, &out));
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

/* isinf computes |x| first; isfinite compares that, and x with itself.
 * src: TensorCompare.cpp */
void plim_run_isinf(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), magnitude = plim_m_empty_like(m, x);
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    plim_ret(c, plim_m_empty(m, &mask));
    plim_m_drop(m, magnitude);
}
static plim_t isfinite_mask(plim_machine *m, plim_t x)
{
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    plim_t magnitude = plim_m_empty_like(m, x), bounded = plim_m_empty(m, &mask),
           number = plim_m_empty(m, &mask), y = plim_m_empty(m, &mask);
    plim_m_drop(m, number);
    plim_m_drop(m, bounded);
    plim_m_drop(m, magnitude);
    return y;
}
void plim_run_isfinite(plim_call *c)
{
    plim_ret(c, isfinite_mask(c->m, plim_arg_tensor(c, 0)));
}

/* g * isfinite(x) */
static void nan_to_num_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t mask = isfinite_mask(m, plim_m_saved(m, n, 0));
    dx[0] = plim_iter_out(m, g[0], mask);
    plim_m_drop(m, mask);
}
static const plim_grad_fn nan_to_num_fn = {"NanToNumBackward0", nan_to_num_backward};

void plim_run_nan_to_num(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(c->m, &nan_to_num_fn, 1, &x);
    plim_ret(c, unary_apply(c->m, n, x, 'x', c->inplace));
}

/* Indices of intervals. */
void plim_run_bucketize(plim_call *c)
{
    plim_meta out = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    out.dtype = plim_arg_int(c, 2, 0) ? PLIM_I32 : PLIM_I64;
    plim_meta_contiguous(&out);
    plim_ret(c, plim_m_empty(c->m, &out));
}

/* A column times a row.  src: LinearAlgebra.cpp outer */
void plim_run_outer(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t a = plim_arg_tensor(c, 0);
    int64_t column[2] = {plim_m_meta(m, a)->dim[0], 1};
    plim_t x = plim_at_reshape(m, a, 2, column);
    plim_ret(c, plim_at_mul(m, x, plim_arg_tensor(c, 1), false));
    plim_m_drop(m, x);
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

/* The overwritten tensor gets no gradient, but zeros are allocated for it. */
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

/* Writes into its argument: no request.  (Gradients through slices that are written in place
 * are not tracked.) */
void plim_run_fill(plim_call *c) { plim_ret(c, plim_m_ref(c->m, plim_arg_tensor(c, 0))); }
