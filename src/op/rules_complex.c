/* rules_complex.c -- complex numbers, as rotary embeddings use them.
 * src: FunctionsManual.cpp polar_backward; native/ComplexHelper.h; a conjugate is a view with
 * a bit, and an op that does not know the bit gets a copy (ConjugateFallback.cpp) */
#include "op/rules.h"

plim_dtype plim_complex_part(plim_dtype t)
{
    return t == PLIM_C128 ? PLIM_F64 : t == PLIM_C32 ? PLIM_F16 : PLIM_F32;
}

plim_dtype plim_complex_of(plim_dtype part)
{
    return part == PLIM_F64 ? PLIM_C128 : part == PLIM_F16 ? PLIM_C32 : PLIM_C64;
}

bool plim_is_complex(const plim_machine *m, plim_t t)
{
    return t && plim_dtype_rows[plim_m_meta(m, t)->dtype].is_complex;
}

plim_t plim_resolved_conj(plim_machine *m, plim_t t)
{
    return plim_is_complex(m, t) ? plim_m_empty_like(m, t) : plim_m_ref(m, t);
}

/* The real parts: strides count parts, not complex numbers. */
static plim_meta complex_parts(const plim_meta *x)
{
    plim_meta out = *x;
    out.dtype = plim_complex_part(x->dtype);
    for (int32_t i = 0; i < x->rank; i++)
        out.stride[i] = (int64_t)(2 * (uint64_t)x->stride[i]);
    return out;
}

plim_t plim_real_part(plim_machine *m, plim_t t)
{
    plim_meta out = complex_parts(plim_m_meta(m, t));
    return plim_m_alias(m, t, &out);
}

/* ---- pairs of numbers as complex ones, and back --------------------------------- */

static plim_meta complex_pairs(const plim_meta *x)
{
    plim_meta out = complex_parts(x);
    out.dim[out.rank] = 2;
    out.stride[out.rank++] = 1;
    return out;
}

static bool complex_joined(plim_machine *m, const plim_meta *x, plim_meta *out)
{
    *out = *x;
    bool ok = plim_is_float(x->dtype) && x->dtype != PLIM_BF16 && x->rank &&
              plim_dim_at(x, -1) == 2 && plim_stride_at(x, -1) == 1;
    if (ok)
        out->rank--;
    for (int32_t i = 0; ok && i < out->rank; i++) {
        ok = x->stride[i] % 2 == 0;
        out->stride[i] /= 2;
    }
    char buf[96];
    if (!ok)
        plim_m_fail(m, PLIM_ESHAPE,
                    "%s cannot be viewed as complex: its last dim must be 2, with stride 1",
                    plim_meta_str(x, buf, sizeof buf));
    else
        out->dtype = plim_complex_of(x->dtype);
    return ok;
}

static void view_as_complex_backward(plim_machine *m, plim_gnode *n, const plim_t *g,
                                     plim_t *dx)
{
    (void)n;
    plim_t dense = plim_contiguous_tmp(m, g[0]);
    plim_meta out = complex_pairs(plim_m_meta(m, dense));
    dx[0] = plim_m_alias(m, dense, &out);
    plim_m_drop(m, dense);
}
static const plim_grad_fn view_as_complex_fn = {"ViewAsComplexBackward0",
                                                view_as_complex_backward};

static void view_as_real_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    plim_meta out;
    plim_t dense = plim_contiguous_tmp(m, g[0]);
    if (complex_joined(m, plim_m_meta(m, dense), &out))
        dx[0] = plim_m_alias(m, dense, &out);
    plim_m_drop(m, dense);
}
static const plim_grad_fn view_as_real_fn = {"ViewAsRealBackward0", view_as_real_backward};

static plim_t complex_view(plim_machine *m, const plim_grad_fn *fn, plim_t x,
                           const plim_meta *out)
{
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    plim_t y = plim_m_alias(m, x, out);
    plim_m_output(m, n, 0, y);
    plim_m_view_of(m, y, x);
    return y;
}

void plim_run_view_as_complex(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out;
    if (complex_joined(c->m, plim_m_meta(c->m, x), &out))
        plim_ret(c, complex_view(c->m, &view_as_complex_fn, x, &out));
}

void plim_run_view_as_real(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *xm = plim_m_meta(c->m, x);
    if (!plim_is_complex(c->m, x) || xm->rank == PLIM_MAX_RANK) {
        char buf[96];
        plim_m_fail(c->m, PLIM_ESHAPE, "%s cannot be viewed as real",
                    plim_meta_str(xm, buf, sizeof buf));
        return;
    }
    plim_meta out = complex_pairs(xm);
    plim_ret(c, complex_view(c->m, &view_as_real_fn, x, &out));
}

/* ---- length and angle -------------------------------------------------------------- */

/* abs: real(conj(g) * sgn(result)), angle: real(conj(g) * (result * i)); both are computed
 * even if only one is needed, and are views of products */
static void polar_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    for (uint32_t i = 0; i < 2; i++) {
        plim_t with = plim_iter_out(m, plim_m_saved(m, n, 0), 0);
        plim_t conj = plim_resolved_conj(m, g[0]), product = plim_iter_out(m, conj, with);
        plim_m_drop(m, conj);
        plim_m_drop(m, with);
        dx[i] = plim_real_part(m, product);
        plim_m_drop(m, product);
    }
}
static const plim_grad_fn polar_fn = {"PolarBackward0", polar_backward};

void plim_run_polar(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_meta out =
        plim_iter_meta(m, in[0], in[1], plim_complex_of(plim_m_meta(m, in[0])->dtype));
    plim_gnode *n = plim_m_node(m, &polar_fn, 2, in);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_m_save(m, n, 0, y);
    plim_ret(c, y);
}
