/* rules_softmax.c -- softmax and dropout.
 * src: docs/sources/operators.md 7; native/SoftMax.cpp, cuda/Dropout.cu. */
#include "op/rules.h"

/* ---- softmax: the result is saved ------------------------------------------------- */

/* The kernels are structured: the result is allocated first, then contiguous copies of the
 * operands (b may be absent). */
static void softmax_inside(plim_machine *m, plim_t a, plim_t b)
{
    plim_t ac = plim_contiguous_tmp(m, a), bc = plim_contiguous_tmp(m, b);
    plim_m_drop(m, bc);
    plim_m_drop(m, ac);
}
void plim_kernel_softmax(plim_call *c)
{
    softmax_inside(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1));
}

/* The backward of softmax uses g times y.  src: cuda/SoftMax.cu softmax_backward_cuda_out */
static void softmax_backward_inside(plim_machine *m, plim_t g, plim_t y)
{
    plim_t product = plim_iter_out(m, g, y);
    softmax_inside(m, product, y);
    plim_m_drop(m, product);
}
void plim_kernel_softmax_backward(plim_call *c)
{
    softmax_backward_inside(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1));
}

static plim_t softmax_grad(plim_machine *m, plim_gnode *n)
{
    const plim_meta *y = plim_m_meta(m, plim_m_saved(m, n, 0));
    return plim_m_empty_contig(m, n->in_meta[0].dtype, y->rank, y->dim);
}
static void softmax_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = softmax_grad(m, n);
    softmax_backward_inside(m, g[0], plim_m_saved(m, n, 0));
}
static void log_softmax_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = softmax_grad(m, n);
    softmax_inside(m, g[0], plim_m_saved(m, n, 0));
}
static const plim_grad_fn softmax_fn = {"SoftmaxBackward0", softmax_backward};
static const plim_grad_fn log_softmax_fn = {"LogSoftmaxBackward0", log_softmax_backward};

static plim_t softmax_into(plim_machine *m, plim_t x, plim_dtype t, bool is_log)
{
    plim_gnode *n = plim_m_node(m, is_log ? &log_softmax_fn : &softmax_fn, 1, &x);
    plim_t y = plim_m_empty_contig(m, t, plim_m_meta(m, x)->rank, plim_m_meta(m, x)->dim);
    softmax_inside(m, x, 0);
    plim_m_output(m, n, 0, y);
    plim_m_save(m, n, 0, y);
    return y;
}

plim_t plim_at_softmax(plim_machine *m, plim_t x, bool is_log)
{
    return softmax_into(m, x, plim_m_meta(m, x)->dtype, is_log);
}

/* Finds rows that are all -inf and sets them to 0 in place.
 * src: SoftMax.cpp _safe_softmax */
static void safe_softmax_inside(plim_machine *m, plim_t x)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta row = *xm;
    if (row.rank)
        plim_set_dim(&row, -1, 1);
    plim_t masked = plim_m_empty_contig(m, PLIM_BOOL, xm->rank, xm->dim);
    plim_t rows = plim_m_empty_contig(m, PLIM_BOOL, row.rank, row.dim);
    plim_t zero = plim_m_empty_contig(m, xm->dtype, 0, NULL);
    plim_m_drop(m, zero);
    plim_m_drop(m, rows);
    plim_m_drop(m, masked);
}
void plim_kernel_safe_softmax(plim_call *c)
{
    safe_softmax_inside(c->m, plim_arg_tensor(c, 0));
}

plim_t plim_at_safe_softmax(plim_machine *m, plim_t x)
{
    plim_t y = plim_at_softmax(m, x, false);
    safe_softmax_inside(m, x);
    return y;
}

/* fp16 to fp32 is part of the kernel on the card; other casts come before it.
 * src: SoftMax.cpp softmax, half_to_float */
void plim_run_softmax(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_dtype t = plim_arg_dtype(c, 2, plim_m_autocast_out(m, x));
    plim_wrap_dim(m, plim_arg_int(c, 1, -1), plim_m_meta(m, x)->rank);
    bool fused = plim_m_meta(m, x)->dtype == PLIM_F16 && t == PLIM_F32;
    plim_t xt = fused ? plim_m_ref(m, x) : plim_at_to(m, x, t);
    plim_ret(c, softmax_into(m, xt, t, c->node->op->name[0] == 'l'));
    plim_m_drop(m, xt);
}

/* ---- dropout ------------------------------------------------------------------------ */

/* y and the bool mask, which is allocated first. */
static void dropout_kernel(plim_machine *m, plim_t x, plim_t out[2])
{
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    out[1] = plim_m_empty(m, &mask);
    out[0] = plim_m_empty_like(m, x);
}
void plim_kernel_dropout(plim_call *c)
{
    dropout_kernel(c->m, plim_arg_tensor(c, 0), c->out);
    c->n_out = 2;
}

/* src: Dropout.cu dropout_backward_cuda, empty_like(grad, suggested format) */
static plim_t dropout_backward_kernel(plim_machine *m, plim_t g)
{
    plim_meta out = *plim_m_meta(m, g);
    if (plim_suggests_channels_last(&out))
        plim_meta_channels_last(&out);
    else
        plim_meta_contiguous(&out);
    return plim_m_empty(m, &out);
}
void plim_kernel_dropout_backward(plim_call *c)
{
    c->out[0] = dropout_backward_kernel(c->m, plim_arg_tensor(c, 0));
    c->n_out = 1;
}

static void dropout_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = dropout_backward_kernel(m, g[0]);
}
static const plim_grad_fn dropout_fn = {"NativeDropoutBackward0", dropout_backward};

/* CUDA, 0 < p < 1: one kernel writes a bool mask and y.  In place it is composite: noise of
 * the input's dtype, then mul_. */
plim_t plim_at_dropout(plim_machine *m, plim_t x, double p, bool train, bool inplace)
{
    if (!train || !(p > 0.0) || plim_m_world(m)->eval)
        return plim_m_ref(m, x);
    if (inplace || !(p < 1.0)) { /* p of 1: multiplies by a 0-dim zero */
        plim_t noise = p < 1.0 ? plim_m_empty_like(m, x)
                               : plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, 0, NULL);
        plim_t y = plim_at_mul(m, x, noise, inplace);
        plim_m_drop(m, noise);
        return y;
    }
    plim_gnode *n = plim_m_node(m, &dropout_fn, 1, &x);
    plim_t out[2];
    dropout_kernel(m, x, out);
    plim_m_save(m, n, 0, out[1]);
    plim_m_output(m, n, 0, out[0]);
    plim_m_drop(m, out[1]);
    return out[0];
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
