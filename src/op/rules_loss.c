/* rules_loss.c -- losses.
 * src: docs/sources/operators.md 7; native/LossNLL.cpp, Loss.cpp, cuda/Loss.cu. */
#include "op/rules.h"

enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

static plim_t loss_scalar(plim_machine *m, plim_t like)
{
    return plim_m_empty_contig(m, plim_m_meta(m, like)->dtype, 0, NULL);
}

/* ---- nll_loss --------------------------------------------------------------------- */

/* The loss and total_weight; the kernel for images allocates total_weight first. */
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

static plim_t nll_loss(plim_machine *m, plim_t x, plim_t target, plim_t weight, bool reduce)
{
    const plim_meta *xm = plim_m_meta(m, x), *tm = plim_m_meta(m, target);
    char a[96], b[96];
    bool fits = xm->rank >= 1 && tm->rank == xm->rank - 1 &&
                (xm->rank < 2 || tm->dim[0] == xm->dim[0]);
    if (!fits) {
        plim_m_fail(m, PLIM_ESHAPE, "nll_loss: input %s and target %s do not match",
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
    plim_ret(c, nll_loss(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                         plim_arg_tensor(c, 2), plim_arg_int(c, 3, 1) != REDUCTION_NONE));
}

/* ---- cross_entropy ------------------------------------------------------------------- */

/* x multiplied or divided by something that is not a tensor of the graph, or negated; `kept`
 * (0: none) is a tensor that backward needs. */
static void scaled_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = plim_iter_out(m, g[0], 0);
}
static const plim_grad_fn scaled_fn = {"MulBackward0", scaled_backward};

static plim_t loss_scaled(plim_machine *m, plim_t x, plim_t kept)
{
    plim_gnode *n = plim_m_node(m, &scaled_fn, 1, &x);
    plim_m_save(m, n, 0, kept);
    plim_t y = plim_iter_out(m, x, 0);
    plim_m_output(m, n, 0, y);
    return y;
}

/* The weight of each class, broadcast over x's other dims. */
static plim_t weight_along(plim_machine *m, plim_t weight, plim_t x)
{
    int32_t rank = plim_m_meta(m, x)->rank;
    int64_t dim[PLIM_MAX_RANK];
    for (int32_t i = 0; i < rank; i++)
        dim[i] = i == (rank > 1) ? -1 : 1;
    return plim_at_view(m, weight, rank, dim);
}

static uint32_t class_dim(const plim_machine *m, plim_t x)
{
    return plim_m_meta(m, x)->rank > 1 ? 1u << 1 : 1u;
}

/* Probabilities as target: -(log_softmax * target * weight).sum() / N, one expression whose
 * temporaries live to its end.  src: LossNLL.cpp cross_entropy_loss_prob_target */
static plim_t cross_entropy_soft(plim_machine *m, plim_t logp, plim_t target, plim_t weight,
                                 int64_t reduction, bool smooth)
{
    plim_t given = plim_m_ref(m, target);
    if (smooth) { /* target * (1 - smoothing) + smoothing / classes */
        plim_t less = plim_iter_out(m, target, 0);
        plim_m_drop(m, given);
        given = plim_iter_out(m, less, 0);
        plim_m_drop(m, less);
    }
    plim_t part = plim_at_mul(m, logp, given, false), product = plim_m_ref(m, part);
    if (weight) {
        plim_t along = weight_along(m, weight, logp);
        plim_m_drop(m, product);
        product = plim_at_mul(m, part, along, false);
        plim_m_drop(m, along);
    }
    plim_t sum = reduction == REDUCTION_NONE
                     ? plim_at_sum(m, product, class_dim(m, logp), false)
                     : plim_at_sum_all(m, product);
    plim_t y = loss_scaled(m, sum, 0), all[] = {sum, product, part, given};
    if (reduction == REDUCTION_MEAN) {
        plim_t mean = loss_scaled(m, y, 0);
        plim_m_drop(m, y);
        y = mean;
    }
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return y;
}

static void unmask_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = plim_iter_out(m, g[0], 0);
}
static const plim_grad_fn unmask_fn = {"MaskedFillBackward0", unmask_backward};

/* -(logp * weight).sum(classes) */
static plim_t smooth_each(plim_machine *m, plim_t logp, plim_t weight)
{
    plim_t x = plim_m_ref(m, logp);
    if (weight) {
        plim_t along = weight_along(m, weight, logp);
        plim_m_drop(m, x);
        x = plim_at_mul(m, logp, along, false);
        plim_m_drop(m, along);
    }
    plim_t sum = plim_at_sum(m, x, class_dim(m, logp), false), y = loss_scaled(m, sum, 0);
    plim_m_drop(m, sum);
    plim_m_drop(m, x);
    return y;
}

/* The divisor of the mean if no target is ignored: the number of targets, or the sum of their
 * weights.  out[] receives what lives to the end of the expression. */
enum { OVER_SUM, OVER_WEIGHTS, OVER_TARGETS, OVER_USED, OVER_COUNT };

static void smooth_over(plim_machine *m, plim_t target, plim_t weight, plim_t out[OVER_COUNT])
{
    plim_meta flags = plim_meta_like(plim_m_meta(m, target), PLIM_BOOL);
    uint64_t n = 0;
    plim_meta_numel(&flags, &n);
    out[OVER_USED] = plim_m_empty(m, &flags);
    out[OVER_TARGETS] = out[OVER_WEIGHTS] = 0;
    if (weight) { /* weight.gather(0, target.masked_select(used)).sum() */
        plim_nonzero_scratch(m, n);
        plim_t where = plim_m_empty_contig(m, PLIM_I64, 1, (int64_t[]){(int64_t)n});
        out[OVER_TARGETS] = plim_m_empty_contig(m, PLIM_I64, 1, (int64_t[]){(int64_t)n});
        plim_m_drop(m, where);
        out[OVER_WEIGHTS] =
            plim_m_empty_contig(m, plim_m_meta(m, weight)->dtype, 1, (int64_t[]){(int64_t)n});
    }
    out[OVER_SUM] = plim_at_sum_all(m, out[weight ? OVER_WEIGHTS : OVER_USED]);
}

/* (1 - smoothing) * nll + the smoothed part over all classes, where the target is not ignored.
 * src: LossNLL.cpp cross_entropy_loss_label_smoothing */
static plim_t cross_entropy_smooth(plim_machine *m, plim_t logp, plim_t target, plim_t weight,
                                   int64_t reduction)
{
    plim_t hard = nll_loss(m, logp, target, weight, reduction != REDUCTION_NONE);
    plim_t each = smooth_each(m, logp, weight);
    plim_meta flags = plim_meta_like(plim_m_meta(m, target), PLIM_BOOL);
    plim_t ignored = plim_m_empty(m, &flags), all = plim_m_ref(m, each);
    plim_gnode *n = plim_m_node(m, &unmask_fn, 1, &each);
    plim_m_save(m, n, 0, ignored);
    plim_m_rebase(m, n, each);
    if (reduction != REDUCTION_NONE) {
        plim_t over[OVER_COUNT] = {0};
        if (reduction == REDUCTION_MEAN)
            smooth_over(m, target, weight, over);
        plim_t total = plim_at_sum_all(m, each);
        plim_m_drop(m, all);
        all = over[OVER_SUM] ? loss_scaled(m, total, over[OVER_SUM]) : plim_m_ref(m, total);
        plim_m_drop(m, total);
        for (int i = 0; i < OVER_COUNT; i++)
            plim_m_drop(m, over[i]);
    }
    plim_t right = loss_scaled(m, all, 0), left = loss_scaled(m, hard, 0);
    plim_t y = plim_at_add(m, left, right, false);
    plim_t gone[] = {left, right, all, ignored, each, hard};
    for (size_t i = 0; i < PLIM_COUNT(gone); i++)
        plim_m_drop(m, gone[i]);
    return y;
}

static plim_t cross_entropy(plim_machine *m, plim_t x, plim_t target, plim_t weight,
                            int64_t reduction, bool smooth)
{
    plim_t logp = plim_at_softmax(m, x, true), wide = plim_m_autocast_f32(m, logp), y;
    bool soft = plim_is_float(plim_m_meta(m, target)->dtype);
    if (soft)
        y = cross_entropy_soft(m, logp, target, weight, reduction, smooth);
    else if (smooth)
        y = cross_entropy_smooth(m, wide, target, weight, reduction);
    else
        y = nll_loss(m, wide, target, weight, reduction != REDUCTION_NONE);
    plim_m_drop(m, wide);
    plim_m_drop(m, logp);
    return y;
}

plim_t plim_at_cross_entropy(plim_machine *m, plim_t x, plim_t target, plim_t weight,
                             bool reduce)
{
    return cross_entropy(m, x, target, weight, reduce ? REDUCTION_MEAN : REDUCTION_NONE,
                         false);
}

void plim_run_cross_entropy(plim_call *c)
{
    plim_ret(c, cross_entropy(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                              plim_arg_tensor(c, 2), plim_arg_int(c, 3, REDUCTION_MEAN),
                              plim_arg_float(c, 5, 0.0) > 0.0));
}

/* ---- elementwise losses ------------------------------------------------------------------ */

/* A 0-dim result on a storage of full size: mse_loss, smooth_l1_loss and binary_cross_entropy
 * allocate their result as large as the elementwise loss and then resize it, which never
 * shrinks a storage.
 * src: Loss.cpp TORCH_META_FUNC(mse_loss), cuda/Loss.cu binary_cross_entropy_out_cuda; seen in
 * the recordings of tests/golden/torch */
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

/* The result, of full size, then the elementwise loss.  Huber's is not a structured kernel: it
 * allocates the elementwise loss, then its mean. */
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
static const plim_grad_fn loss_mean_fn = {"MeanBackward0", plim_backward_fresh};

/* The elementwise losses, or their mean or sum.  Owns its arguments. */
static plim_t loss_reduce(plim_machine *m, plim_t each, int64_t reduction)
{
    if (reduction == REDUCTION_NONE)
        return each;
    plim_t y;
    if (reduction == REDUCTION_MEAN) {
        plim_gnode *n = plim_m_node(m, &loss_mean_fn, 1, &each);
        y = loss_scalar(m, each);
        loss_mean_scratch(m, each);
        plim_m_output(m, n, 0, y);
    } else {
        y = plim_at_sum_all(m, each);
    }
    plim_m_drop(m, each);
    return y;
}

void plim_run_l1(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t diff = plim_at_sub(m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1));
    plim_gnode *n = plim_m_node(m, &abs_fn, 1, &diff);
    plim_m_save(m, n, 0, diff);
    plim_t mag = plim_m_empty_like(m, diff);
    plim_m_output(m, n, 0, mag);
    plim_m_drop(m, diff);
    plim_ret(c, loss_reduce(m, mag, plim_arg_int(c, 2, REDUCTION_MEAN)));
}

/* ---- kl_div: xlogy(t, t) - t * x, or exp(t) * (t - x) where t is a logarithm ---------------- */

void plim_run_kl_div(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), t = plim_arg_tensor(c, 1), a, b, each;
    if (plim_arg_int(c, 3, 0)) {
        a = plim_at_sub(m, t, x);
        b = plim_m_empty_like(m, t);
        each = plim_at_mul(m, b, a, false);
    } else {
        a = plim_at_mul(m, t, x, false);
        b = plim_m_empty_like(m, t);
        each = plim_at_sub(m, b, a);
    }
    plim_m_drop(m, b);
    plim_m_drop(m, a);
    plim_ret(c, loss_reduce(m, each, plim_arg_int(c, 2, REDUCTION_MEAN)));
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

/* Full-size temporaries that all live until the mean is computed: log_sigmoid(x) and (1 - t),
 * or five. */
plim_t plim_at_bce_logits(plim_machine *m, plim_t x, plim_t target, bool reduce)
{
    plim_t tmp[5] = {0};
    int tmps = plim_m_world(m)->torch >= PLIM_SINCE_BCE_LOGITS_LEAN ? 2 : 5;
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

/* ---- ctc_loss -----------------------------------------------------------------------------------
 * src: native/LossCTC.cpp, cuda/LossCTC.cu; cuDNN's takes targets of int32 on the host alone, which no model has.  Orders
 * of requests: a CUDA build of 2.13 on stub libraries */

/* Sizes: time, batch, classes; and labels of the longest target. */
typedef struct ctc {
    int64_t time, batch, classes, longest;
} ctc;

/* -1: the targets are one after the other, and lengths on the card do not tell the longest. */
static int64_t longest_target(plim_call *c, uint32_t slot, const plim_meta *targets)
{
    const plim_arg *a = slot < c->n_args ? &c->args[slot] : NULL;
    int64_t most = 0;
    if (!a || a->kind != PLIM_ARG_INTS)
        return targets && targets->rank == 2 ? targets->dim[1] : -1;
    for (uint32_t i = 0; i < a->n; i++)
        most = PLIM_MAX(most, PLIM_MIN(a->ints[i], INT32_MAX));
    return most;
}

static bool read_ctc(plim_machine *m, plim_t log_probs, int64_t longest, ctc *out)
{
    const plim_meta *x = plim_m_meta(m, log_probs);
    char text[96];
    if (x->rank != 3 || longest < 0 || longest > INT32_MAX) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "ctc_loss: log_probs %s, %s",
                    plim_meta_str(x, text, sizeof text),
                    x->rank == 3 ? "but how long the longest target is depends on values"
                                 : "not of 3 dims");
        return false;
    }
    *out = (ctc){x->dim[0], x->dim[1], x->dim[2], longest};
    return true;
}

/* The lengths of targets and of inputs, and where each target begins: lists of the host, copied to the card. */
static void copy_ctc_lists(plim_machine *m, int64_t batch, plim_t list[3])
{
    for (int i = 0; i < 3; i++)
        list[i] = plim_m_empty_contig(m, PLIM_I64, 1, &batch);
}

/* In the order in which both kernels release them. */
static void drop_ctc_lists(plim_machine *m, const plim_t list[3])
{
    plim_m_drop(m, list[1]);
    plim_m_drop(m, list[0]);
    plim_m_drop(m, list[2]);
}

/* The loss of each sequence, and log_alpha. */
static void ctc_kernel(plim_machine *m, plim_t log_probs, const ctc *s, plim_t out[2])
{
    const plim_dtype t = plim_m_meta(m, log_probs)->dtype;
    const int64_t alpha[3] = {s->batch, s->time, 2 * s->longest + 1};
    plim_t list[3];
    copy_ctc_lists(m, s->batch, list);
    out[1] = plim_m_empty_contig(m, t, 3, alpha);
    out[0] = plim_m_empty_contig(m, t, 1, &s->batch);
    drop_ctc_lists(m, list);
}

/* Large problems collect the blanks, every other position, apart from the rest; the condition is that of the source. */
static void collect_blanks(plim_machine *m, const ctc *s, plim_dtype t)
{
    if (2 * s->time + 24 * s->batch / 10 + 2 * s->classes / 10 <= 450)
        return;
    const int64_t dim[3] = {s->batch, s->time, s->longest + 1};
    plim_t both = plim_m_empty_contig(m, t, 3, dim);
    plim_m_drop(m, plim_logsumexp_last(m, both));
    plim_m_drop(m, both);
}

static plim_t ctc_backward_kernel(plim_machine *m, plim_t log_probs, const ctc *s,
                                  bool zero_infinity)
{
    const plim_meta *x = plim_m_meta(m, log_probs);
    const int64_t alpha[3] = {s->batch, s->time, 2 * s->longest + 1};
    plim_t list[3];
    copy_ctc_lists(m, s->batch, list);
    plim_t beta = plim_m_empty_contig(m, x->dtype, 3, alpha),
           grad = plim_m_empty_contig(m, x->dtype, 3, x->dim);
    collect_blanks(m, s, x->dtype);
    if (zero_infinity) {
        plim_t zero = plim_m_empty_contig(m, x->dtype, 0, NULL),
               infinite = plim_m_empty_contig(m, PLIM_BOOL, 1, &s->batch), was = grad;
        grad = plim_m_empty_contig(m, x->dtype, 3, x->dim);
        plim_m_drop(m, infinite);
        plim_m_drop(m, zero);
        plim_m_drop(m, was);
    }
    plim_m_drop(m, beta);
    drop_ctc_lists(m, list);
    return grad;
}

void plim_kernel_ctc_loss(plim_call *c)
{
    ctc s;
    plim_t x = plim_arg_tensor(c, 0);
    if (read_ctc(c->m, x, longest_target(c, 1, NULL), &s))
        ctc_kernel(c->m, x, &s, c->out);
    c->n_out = 2;
}

void plim_kernel_ctc_loss_backward(plim_call *c)
{
    ctc s;
    plim_t x = plim_arg_tensor(c, 0);
    if (read_ctc(c->m, x, longest_target(c, 1, NULL), &s))
        c->out[0] = ctc_backward_kernel(c->m, x, &s, plim_arg_int(c, 2, 0) != 0);
    c->n_out = 1;
}

enum { CTC_LOG_PROBS, CTC_TARGETS, CTC_LOSS, CTC_ALPHA };
enum { CTC_LONGEST, CTC_ZERO_INFINITY }; /* of n->i */

static void ctc_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    ctc s;
    plim_t x = plim_m_saved(m, n, CTC_LOG_PROBS);
    (void)g;
    if (read_ctc(m, x, n->i[CTC_LONGEST], &s))
        dx[0] = ctc_backward_kernel(m, x, &s, n->i[CTC_ZERO_INFINITY] != 0);
}
static const plim_grad_fn ctc_fn = {"CtcLossBackward0", ctc_backward};

/* Infinite losses replaced by 0.  Owns its argument. */
static plim_t ctc_finite(plim_machine *m, plim_t each)
{
    plim_t zero = plim_m_empty_contig(m, plim_m_meta(m, each)->dtype, 0, NULL);
    plim_meta flags = plim_meta_like(plim_m_meta(m, each), PLIM_BOOL);
    plim_t infinite = plim_m_empty(m, &flags), y = plim_at_where(m, infinite, zero, each);
    plim_m_drop(m, zero);
    plim_m_drop(m, infinite);
    plim_m_drop(m, each);
    return y;
}

static void ctc_divided_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = plim_iter_out(m, g[0], plim_m_saved(m, n, 0));
}
static const plim_grad_fn ctc_divided_fn = {"DivBackward0", ctc_divided_backward};

/* Each loss by the length of its target, which is at least 1.  Owns its argument. */
static plim_t ctc_divided(plim_machine *m, plim_t each)
{
    plim_t lengths = plim_m_empty_like(m, each), clamped = plim_m_empty_like(m, each);
    plim_m_drop(m, lengths);
    plim_gnode *n = plim_m_node(m, &ctc_divided_fn, 1, &each);
    plim_m_save(m, n, 0, clamped);
    plim_t y = plim_m_empty_like(m, each);
    plim_m_output(m, n, 0, y);
    plim_m_drop(m, clamped);
    plim_m_drop(m, each);
    return y;
}

void plim_run_ctc_loss(plim_call *c)
{
    plim_machine *m = c->m;
    ctc s;
    plim_t x = plim_arg_tensor(c, 0), targets = plim_arg_tensor(c, 1), out[2] = {0};
    const plim_meta *tm = plim_m_meta(m, targets);
    const int64_t reduction = plim_arg_int(c, 5, REDUCTION_MEAN),
                  longest = plim_arg_int(c, 7, longest_target(c, 3, tm));
    const bool zero_infinity = plim_arg_int(c, 6, 0) != 0;
    if (tm->dtype == PLIM_I32)
        plim_m_fail(m, PLIM_EUNSUPPORTED, "ctc_loss of int32 targets: cuDNN may compute it");
    if (plim_m_bad(m) || !read_ctc(m, x, longest, &s))
        return;
    plim_gnode *n = plim_m_node(m, &ctc_fn, 1, &x);
    plim_m_save(m, n, CTC_LOG_PROBS, x);
    plim_m_save(m, n, CTC_TARGETS, targets);
    ctc_kernel(m, x, &s, out);
    plim_m_save(m, n, CTC_LOSS, out[0]);
    plim_m_save(m, n, CTC_ALPHA, out[1]);
    plim_m_drop(m, out[1]);
    if (n) {
        n->i[CTC_LONGEST] = s.longest;
        n->i[CTC_ZERO_INFINITY] = zero_infinity;
    }
    plim_m_output(m, n, 0, out[0]);
    plim_t each = zero_infinity ? ctc_finite(m, out[0]) : out[0];
    if (reduction == REDUCTION_MEAN)
        each = ctc_divided(m, each);
    plim_ret(c, loss_reduce(m, each, reduction));
}
