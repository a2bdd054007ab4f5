/* rules_softmax.c -- softmax and dropout.
 * src: facts training-step.md 3.7; native/SoftMax.cpp, cuda/Dropout.cu. */
#include "op/rules.h"

/* ---- softmax: the result is saved ------------------------------------------------- */

/* The kernels are structured: the result comes first, contiguous copies of
 * their operands after it. */
static void softmax_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t y = plim_m_saved(m, n, 0);
    const plim_meta *ym = plim_m_meta(m, y);
    dx[0] = plim_m_empty_contig(m, n->in_meta[0].dtype, ym->rank, ym->dim);
    plim_t gc = plim_contiguous_tmp(m, g[0]);
    plim_t yc = plim_contiguous_tmp(m, y);
    plim_m_drop(m, yc);
    plim_m_drop(m, gc);
}
static const plim_grad_fn softmax_fn = {"SoftmaxBackward0", softmax_backward};
static const plim_grad_fn log_softmax_fn = {"LogSoftmaxBackward0", softmax_backward};

static plim_t softmax_into(plim_machine *m, plim_t x, plim_dtype t, bool is_log)
{
    plim_gnode *n = plim_m_node(m, is_log ? &log_softmax_fn : &softmax_fn, 1, &x);
    plim_t y = plim_m_empty_contig(m, t, plim_m_meta(m, x)->rank, plim_m_meta(m, x)->dim);
    plim_t xc = plim_contiguous_tmp(m, x);
    plim_m_drop(m, xc);
    plim_m_output(m, n, 0, y);
    plim_m_save(m, n, 0, y);
    return y;
}

plim_t plim_at_softmax(plim_machine *m, plim_t x, bool is_log)
{
    return softmax_into(m, x, plim_m_meta(m, x)->dtype, is_log);
}

/* fp16 to fp32 is one kernel on the card; other casts come before it.
 * src: SoftMax.cpp softmax, half_to_float */
void plim_run_softmax(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int64_t arg = plim_arg_int(c, 2, plim_m_meta(m, x)->dtype);
    plim_dtype t = arg >= 0 && arg < PLIM_DTYPE_COUNT ? (plim_dtype)arg : PLIM_F32;
    plim_wrap_dim(m, plim_arg_int(c, 1, -1), plim_m_meta(m, x)->rank);
    bool fused = plim_m_meta(m, x)->dtype == PLIM_F16 && t == PLIM_F32;
    plim_t xt = fused ? plim_m_ref(m, x) : plim_at_to(m, x, t);
    plim_ret(c, softmax_into(m, xt, t, c->node->op->name[0] == 'l'));
    plim_m_drop(m, xt);
}

/* ---- dropout ------------------------------------------------------------------------ */

/* src: Dropout.cu dropout_backward_cuda, empty_like(grad, suggested format) */
static void dropout_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    plim_meta out = *plim_m_meta(m, g[0]);
    if (plim_suggests_channels_last(&out))
        plim_meta_channels_last(&out);
    else
        plim_meta_contiguous(&out);
    dx[0] = plim_m_empty(m, &out);
}
static const plim_grad_fn dropout_fn = {"NativeDropoutBackward0", dropout_backward};

/* CUDA, 0 < p < 1: one kernel writes a bool mask and y (mask first).  In place
 * goes the composite way: noise of the input's dtype, mul_. */
plim_t plim_at_dropout(plim_machine *m, plim_t x, double p, bool train, bool inplace)
{
    if (!train || !(p > 0.0) || plim_m_world(m)->eval)
        return plim_m_ref(m, x);
    if (inplace || !(p < 1.0)) { /* p of 1: a zero of no dims is multiplied in */
        plim_t noise = p < 1.0 ? plim_m_empty_like(m, x)
                               : plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, 0, NULL);
        plim_t y = plim_at_mul(m, x, noise, inplace);
        plim_m_drop(m, noise);
        return y;
    }
    plim_gnode *n = plim_m_node(m, &dropout_fn, 1, &x);
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    plim_t k = plim_m_empty(m, &mask);
    plim_t y = plim_m_empty_like(m, x);
    plim_m_save(m, n, 0, k);
    plim_m_output(m, n, 0, y);
    plim_m_drop(m, k);
    return y;
}

void plim_run_dropout(plim_call *c)
{
    plim_ret(c, plim_at_dropout(c->m, plim_arg_tensor(c, 0), plim_arg_float(c, 1, 0.5),
                                plim_arg_int(c, 2, 0), c->inplace));
}

/* dropout2d: noise of [N, C, 1, 1], multiplied in */
void plim_run_feature_dropout(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    double p = plim_arg_float(c, 1, 0.5);
    if (!plim_arg_int(c, 2, 0) || !(p > 0.0) || plim_m_world(m)->eval) {
        plim_ret(c, plim_m_ref(m, x));
        return;
    }
    plim_meta noise = *plim_m_meta(m, x);
    for (int32_t i = 2; i < noise.rank; i++)
        noise.dim[i] = 1;
    plim_t k = plim_m_empty_contig(m, noise.dtype, noise.rank, noise.dim);
    plim_ret(c, plim_at_mul(m, x, k, c->inplace));
    plim_m_drop(m, k);
}
