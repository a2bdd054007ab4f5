/* rules_loss.c -- losses.
 * src: facts training-step.md 3.7; native/LossNLL.cpp, Loss.cpp, cuda/Loss.cu. */
#include "op/rules.h"

enum { REDUCTION_NONE = 0 };

static plim_t loss_scalar(plim_machine *m, plim_t like)
{
    return plim_m_empty_contig(m, plim_m_meta(m, like)->dtype, 0, NULL);
}

/* ---- nll_loss --------------------------------------------------------------------- */

/* The loss and total_weight; the kernel for images sizes that first. */
static void nll_kernel(plim_machine *m, plim_t x, plim_t target, bool reduce, plim_t out[2])
{
    const plim_meta *xm = plim_m_meta(m, x), *tm = plim_m_meta(m, target);
    bool images = xm->rank > 2;
    if (images)
        out[1] = loss_scalar(m, x);
    out[0] = reduce ? loss_scalar(m, x) : plim_m_empty_contig(m, xm->dtype, tm->rank, tm->dim);
    if (!images)
        out[1] = loss_scalar(m, x);
}
void plim_kernel_nll(plim_call *c)
{
    nll_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
               plim_arg_int(c, 2, 1) != REDUCTION_NONE, c->out);
    c->n_out = 2;
}

/* saved: x, target, weight, total_weight */
static void nll_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    plim_t x = plim_m_saved(m, n, 0);
    dx[0] = plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, plim_m_meta(m, x)->rank,
                                plim_m_meta(m, x)->dim);
}
static const plim_grad_fn nll_fn = {"NllLossBackward0", nll_backward};

static plim_t nll(plim_machine *m, plim_t x, plim_t target, plim_t weight, bool reduce)
{
    const plim_meta *xm = plim_m_meta(m, x), *tm = plim_m_meta(m, target);
    char a[96], b[96];
    bool fits = xm->rank >= 1 && tm->rank == xm->rank - 1 &&
                (xm->rank < 2 || tm->dim[0] == xm->dim[0]);
    if (!fits) {
        plim_m_fail(m, PLIM_ESHAPE, "nll_loss of %s with a target of %s",
                    plim_meta_str(xm, a, sizeof a), plim_meta_str(tm, b, sizeof b));
        return 0;
    }
    plim_gnode *n = plim_m_node(m, &nll_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, target);
    plim_m_save(m, n, 2, weight);
    plim_t out[2];
    nll_kernel(m, x, target, reduce, out);
    plim_m_save(m, n, 3, out[1]);
    plim_m_drop(m, out[1]);
    plim_m_output(m, n, 0, out[0]);
    return out[0];
}

void plim_run_nll(plim_call *c)
{
    plim_ret(c, nll(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2),
                    plim_arg_int(c, 3, 1) != REDUCTION_NONE));
}

/* ---- cross_entropy ------------------------------------------------------------------- */

/* Probabilities as target: log_softmax, times target (saves the target), sum. */
static plim_t cross_entropy_soft(plim_machine *m, plim_t logp, plim_t target)
{
    plim_t prod = plim_at_mul(m, logp, target, false);
    plim_t y = loss_scalar(m, logp);
    plim_m_drop(m, prod);
    return y;
}

plim_t plim_at_cross_entropy(plim_machine *m, plim_t x, plim_t target, plim_t weight,
                             bool reduce)
{
    plim_t logp = plim_at_softmax(m, x, true);
    plim_t y;
    if (plim_is_float(plim_m_meta(m, target)->dtype)) {
        y = cross_entropy_soft(m, logp, target);
    } else {
        plim_t wide = plim_m_autocast_f32(m, logp);
        y = nll(m, wide, target, weight, reduce);
        plim_m_drop(m, wide);
    }
    plim_m_drop(m, logp);
    return y;
}

void plim_run_cross_entropy(plim_call *c)
{
    if (plim_arg_float(c, 5, 0.0) > 0.0)
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "label smoothing has no rule");
    plim_ret(c, plim_at_cross_entropy(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                                      plim_arg_tensor(c, 2),
                                      plim_arg_int(c, 3, 1) != REDUCTION_NONE));
}

/* ---- elementwise losses ------------------------------------------------------------------ */

/* A 0-dim result on a storage of full size: mse_loss, smooth_l1_loss and
 * binary_cross_entropy make their result as large as the elementwise loss and
 * then resize it, which never shrinks a storage.
 * src: Loss.cpp TORCH_META_FUNC(mse_loss), cuda/Loss.cu binary_cross_entropy_out_cuda;
 * seen in the recordings of tests/golden/torch */
static plim_t shrunk_scalar(plim_machine *m, plim_t full)
{
    plim_meta scalar = plim_meta_make(plim_m_meta(m, full)->dtype, 0, NULL);
    plim_t y = plim_m_alias(m, full, &scalar);
    plim_m_drop(m, full);
    return y;
}

static void loss_mean_scratch(plim_machine *m, plim_t full)
{
    plim_reduce_scratch(m, plim_m_meta(m, full), (1u << plim_m_meta(m, full)->rank) - 1);
}

static void pair_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    for (uint32_t i = 0; i < 2; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty_like(m, plim_m_saved(m, n, i));
    (void)g;
}
static const plim_grad_fn pair_fn = {"MseLossBackward0", pair_backward};

/* The result, of full size, then the elementwise loss; Huber's is not a
 * structured kernel: the elementwise loss, then its mean. */
static plim_t pair_loss_kernel(plim_machine *m, plim_t x, plim_t target, bool reduce,
                               bool structured)
{
    plim_t y = structured ? plim_iter_out(m, x, target) : 0;
    plim_t each = reduce || !structured ? plim_iter_out(m, x, target) : 0;
    if (!reduce)
        return structured ? y : each;
    y = structured ? shrunk_scalar(m, y) : loss_scalar(m, each);
    loss_mean_scratch(m, each);
    plim_m_drop(m, each);
    return y;
}
static void kernel_pair_loss(plim_call *c, bool structured)
{
    c->out[0] = pair_loss_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                                 plim_arg_int(c, 2, 1) != REDUCTION_NONE, structured);
    c->n_out = 1;
}
void plim_kernel_pair_loss(plim_call *c) { kernel_pair_loss(c, true); }
void plim_kernel_huber_loss(plim_call *c) { kernel_pair_loss(c, false); }

static plim_t pair_loss(plim_machine *m, plim_t x, plim_t target, bool reduce, bool structured)
{
    plim_t in[2] = {x, target};
    plim_gnode *n = plim_m_node(m, &pair_fn, 2, in);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, target);
    plim_t y = pair_loss_kernel(m, x, target, reduce, structured);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_mse(plim_machine *m, plim_t x, plim_t target, bool reduce)
{
    plim_t t = plim_m_autocast_f32(m, target), xf = plim_m_autocast_f32(m, x);
    plim_t y = pair_loss(m, xf, t, reduce, true);
    plim_m_drop(m, xf);
    plim_m_drop(m, t);
    return y;
}

void plim_run_pair_loss(plim_call *c)
{
    plim_ret(c, pair_loss(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                          plim_arg_int(c, 2, 1) != REDUCTION_NONE,
                          strcmp(c->node->op->name, "huber_loss") != 0));
}

/* ---- l1: (x - t).abs().mean() -------------------------------------------------------------- */

static void abs_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t sgn = plim_m_empty_like(m, plim_m_saved(m, n, 0));
    dx[0] = plim_iter_out(m, sgn, g[0]);
    plim_m_drop(m, sgn);
}
static const plim_grad_fn abs_fn = {"AbsBackward0", abs_backward};
static const plim_grad_fn l1_mean_fn = {"MeanBackward0", plim_backward_fresh};

void plim_run_l1(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t diff = plim_at_sub(m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1));
    plim_gnode *n = plim_m_node(m, &abs_fn, 1, &diff);
    plim_m_save(m, n, 0, diff);
    plim_t mag = plim_m_empty_like(m, diff);
    plim_m_output(m, n, 0, mag);
    plim_t y = mag;
    if (plim_arg_int(c, 2, 1) != REDUCTION_NONE) {
        n = plim_m_node(m, &l1_mean_fn, 1, &mag);
        y = loss_scalar(m, mag);
        plim_reduce_scratch(m, plim_m_meta(m, mag), (1u << plim_m_meta(m, mag)->rank) - 1);
        plim_m_output(m, n, 0, y);
        plim_m_drop(m, mag);
    }
    plim_m_drop(m, diff);
    plim_ret(c, y);
}

/* ---- binary cross entropy -------------------------------------------------------------------- */

static void bce_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    dx[0] = plim_m_empty_like(m, plim_m_saved(m, n, 0));
}
static const plim_grad_fn bce_fn = {"BinaryCrossEntropyBackward0", bce_backward};

static plim_gnode *bce_node(plim_machine *m, plim_t x, plim_t target)
{
    plim_gnode *n = plim_m_node(m, &bce_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, target);
    return n;
}

static plim_t bce_kernel(plim_machine *m, plim_t x, bool reduce)
{
    plim_t y = plim_m_empty_like(m, x);
    if (!reduce)
        return y;
    plim_t mean = loss_scalar(m, x); /* copied into the result */
    loss_mean_scratch(m, x);
    plim_m_drop(m, mean);
    return shrunk_scalar(m, y);
}
void plim_kernel_bce(plim_call *c)
{
    c->out[0] =
        bce_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_int(c, 1, 1) != REDUCTION_NONE);
    c->n_out = 1;
}

void plim_run_bce(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = bce_node(m, x, plim_arg_tensor(c, 1));
    plim_t y = bce_kernel(m, x, plim_arg_int(c, 3, 1) != REDUCTION_NONE);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* Full-size temporaries that are all alive until the mean is taken: log_sigmoid(x)
 * and (1 - t) from 2.4 on, five before. */
plim_t plim_at_bce_logits(plim_machine *m, plim_t x, plim_t target, bool reduce)
{
    plim_t tmp[5] = {0};
    int tmps = plim_m_world(m)->torch >= 204 ? 2 : 5;
    plim_gnode *n = bce_node(m, x, target);
    for (int i = 0; i < tmps; i++)
        tmp[i] = plim_m_empty_like(m, x);
    plim_t y = reduce ? loss_scalar(m, x) : plim_m_ref(m, tmp[1]); /* (1 - t), in place */
    if (reduce)
        loss_mean_scratch(m, x);
    for (int i = tmps - 1; i >= 0; i--)
        plim_m_drop(m, tmp[i]);
    plim_m_output(m, n, 0, y);
    return y;
}

void plim_run_bce_logits(plim_call *c)
{
    plim_ret(c, plim_at_bce_logits(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                                   plim_arg_int(c, 4, 1) != REDUCTION_NONE));
}
