/* plain.c -- optimizers without Adam's two moments: sgd, rmsprop, adagrad, adadelta,
 * asgd, rprop.  src: torch/optim/<name>.py; docs/sources/optimizers.md 1, 2 */
#include "optim/part.h"

/* ---- sgd --------------------------------------------------------------------------- */

static void sgd_buffers(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; plim_optim_on(r, "momentum") && (p = plim_optim_next(r, &i));)
        plim_optim_state(r, p, 0, "momentum_buffer");
}

static void sgd_forloop(plim_optim_run *r)
{
    bool momentum = plim_optim_on(r, "momentum"), nesterov = plim_optim_on(r, "nesterov");
    plim_optim_param *p;
    plim_t grad = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, true, plim_optim_on(r, "weight_decay"), &grad);
        if (momentum) {
            plim_optim_state(r, p, 0, "momentum_buffer");
            plim_optim_set(r, &grad, nesterov ? plim_optim_like(r, p, "nesterov") : 0);
        }
    }
    plim_m_drop(r->m, grad);
}

void plim_optim_sgd(plim_optim_run *r)
{
    plim_optim_impl impl = plim_optim_impl_of(r);
    plim_optim_brief_sums(r);
    if (impl == PLIM_IMPL_FORLOOP) {
        sgd_forloop(r);
        return;
    }
    if (impl == PLIM_IMPL_FOREACH)
        plim_optim_grad_list(r, 0, plim_optim_on(r, "weight_decay"));
    sgd_buffers(r);
    plim_optim_list_free(r, 0); /* with momentum: when grads is rebound to the buffers */
}

/* ---- rmsprop, adagrad: one temporary a parameter, kept until the next exists ---------- */

static void root_forloop(plim_optim_run *r)
{
    plim_optim_param *p;
    plim_t grad = 0, root = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, false, plim_optim_on(r, "weight_decay"), &grad);
        plim_optim_set(r, &root, plim_optim_like(r, p, "sqrt"));
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, root);
}

void plim_optim_rmsprop(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_count_state(r, p, 3, "step");
        plim_optim_state(r, p, 0, "square_avg");
        if (plim_optim_on(r, "momentum"))
            plim_optim_state(r, p, 1, "momentum_buffer");
        if (plim_optim_on(r, "centered"))
            plim_optim_state(r, p, 2, "grad_avg");
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP) {
        root_forloop(r);
        return;
    }
    plim_optim_grad_list(r, 1, plim_optim_on(r, "weight_decay"));
    plim_optim_list(r, 0, "sqrt");
    plim_optim_list_free(r, 0);
    plim_optim_list_free(r, 1);
}

/* The numerator reuses the weight decay copy if there is one. */
void plim_optim_adagrad(plim_optim_run *r)
{
    plim_optim_impl impl = plim_optim_impl_of(r);
    for (uint32_t i = 0; r->starting && i < r->n; i++) {
        plim_optim_count_state(r, &r->params[i], 1, "step");
        plim_optim_state(r, &r->params[i], 0, "sum");
    }
    if (r->starting || impl == PLIM_IMPL_FUSED)
        return;
    if (plim_optim_any_sparse(r)) {
        plim_optim_sparse_adagrad(r);
        return;
    }
    if (impl == PLIM_IMPL_FORLOOP) {
        root_forloop(r);
        return;
    }
    bool copies = plim_optim_grad_list(r, 1, plim_optim_on(r, "weight_decay"));
    plim_optim_list(r, 0, "std");
    if (!copies)
        plim_optim_list(r, 1, "numerator");
    plim_optim_list_free(r, 1);
    plim_optim_list_free(r, 0);
}

/* ---- adadelta ------------------------------------------------------------------------ */

static void adadelta_forloop(plim_optim_run *r)
{
    plim_optim_param *p;
    plim_t grad = 0, std = 0, delta = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, false, plim_optim_on(r, "weight_decay"), &grad);
        plim_optim_set(r, &std, plim_optim_like(r, p, "std"));
        plim_optim_set(r, &delta, plim_optim_like(r, p, "delta"));
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, std);
    plim_m_drop(r->m, delta);
}

void plim_optim_adadelta(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_count_state(r, p, 2, "step");
        plim_optim_state(r, p, 0, "square_avg");
        plim_optim_state(r, p, 1, "acc_delta");
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP) {
        adadelta_forloop(r);
        return;
    }
    plim_optim_grad_list(r, 0, plim_optim_on(r, "weight_decay"));
    plim_optim_list(r, 1, "std");
    plim_optim_list(r, 2, "deltas");
    for (int slot = 0; slot < 3; slot++)
        plim_optim_list_free(r, slot);
}

/* ---- asgd -------------------------------------------------------------------------------- */

/* lr / ((1 + lambd * lr * step) ** alpha), with the step on the card */
static plim_t asgd_eta(plim_optim_run *r, plim_optim_param *p)
{
    plim_t t = plim_optim_scalar(r, p, "eta");
    for (int i = 0; i < 2; i++)
        plim_optim_set(r, &t, plim_optim_scalar(r, p, "eta"));
    plim_t inverse = plim_optim_scalar(r, p, "eta"), eta = plim_optim_scalar(r, p, "eta");
    plim_m_drop(r->m, inverse);
    plim_m_drop(r->m, t);
    return eta;
}

static void asgd_foreach(plim_optim_run *r)
{
    bool decay = plim_optim_on(r, "weight_decay"), maximize = plim_optim_on(r, "maximize");
    bool capturable = plim_optim_on(r, "capturable");
    plim_optim_param *p;
    if (maximize)
        plim_optim_list(r, 0, "negated grad");
    if (!maximize || !decay) {
        plim_optim_list(r, 1, "intermediate");
        plim_optim_list_free(r, 1);
    }
    plim_optim_list(r, 1, "intermediate");
    plim_optim_list_free(r, 1);
    if (capturable) {
        plim_optim_scalars(r, 2, "mu");
        plim_optim_list_free(r, 2);
        plim_optim_scalars(r, 1, "eta");
    } else {
        for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
            p->tmp[1] = asgd_eta(r, p);
        plim_optim_scalars(r, 2, "mu");
    }
    for (int slot = 0; slot < 3; slot++)
        plim_optim_list_free(r, slot);
}

static void asgd_forloop(plim_optim_run *r)
{
    plim_optim_param *p;
    plim_t grad = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, false, plim_optim_on(r, "weight_decay"), &grad);
        if (plim_optim_on(r, "capturable"))
            plim_optim_brief(r, p, "param - ax");
    }
    plim_m_drop(r->m, grad);
}

void plim_optim_asgd(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        bool fresh = !p->state[1];
        plim_optim_scalar_state(r, p, 0, "step");
        plim_t number = fresh ? plim_optim_scalar(r, p, "lr") : 0; /* clone().detach() */
        plim_optim_scalar_state(r, p, 1, "eta");
        plim_m_drop(r->m, number);
        plim_optim_scalar_state(r, p, 2, "mu");
        plim_optim_state(r, p, 3, "ax");
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP)
        asgd_forloop(r);
    else
        asgd_foreach(r);
}

/* ---- rprop --------------------------------------------------------------------------------- */

static plim_t rprop_mask(plim_optim_run *r, const plim_optim_param *p)
{
    plim_meta mask = plim_meta_like(plim_m_meta(r->m, p->leaf), PLIM_BOOL);
    plim_m_place(r->m, PLIM_NONE, p->name, "mask", PLIM_CAT_TEMPORARY);
    return plim_m_empty(r->m, &mask);
}

/* t.copy_(torch.where(mask, number, t)), or t[mask] = number */
static void rprop_where(plim_optim_run *r, const plim_optim_param *p, bool where)
{
    plim_t mask = rprop_mask(r, p);
    if (where) {
        plim_meta number =
            plim_meta_make(plim_m_meta(r->m, p->leaf)->dtype, 0, (const int64_t[]){0});
        plim_m_place(r->m, PLIM_NONE, p->name, "where", PLIM_CAT_TEMPORARY);
        plim_t n = plim_m_empty(r->m, &number), out = plim_m_empty_like(r->m, p->leaf);
        plim_m_drop(r->m, n);
        plim_m_drop(r->m, mask);
        plim_m_drop(r->m, out);
    } else {
        plim_m_drop(r->m, mask);
    }
}

static void rprop_foreach(plim_optim_run *r)
{
    bool capturable = plim_optim_on(r, "capturable");
    plim_optim_param *p;
    plim_t sign = 0;
    plim_optim_list(r, 0, "signs");
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_set(r, &sign, plim_m_ref(r->m, p->tmp[0]));
        for (int k = 0; k < 3; k++)
            rprop_where(r, p, capturable);
    }
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        rprop_where(r, p, true);
    plim_optim_list_free(r, 0);
    plim_optim_list(r, 1, "grad signs");
    plim_m_drop(r->m, sign); /* the variable of the loop still held the last one */
    plim_optim_list_free(r, 1);
}

static void rprop_forloop(plim_optim_run *r)
{
    bool capturable = plim_optim_on(r, "capturable");
    plim_optim_param *p;
    plim_t grad = 0, sign = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, false, false, &grad);
        plim_t product = plim_optim_like(r, p, "grad * prev"),
               next = plim_optim_like(r, p, "sign");
        plim_m_drop(r->m, product);
        plim_optim_set(r, &sign, next);
        for (int k = 0; k < 3; k++)
            rprop_where(r, p, capturable);
        plim_optim_set(r, &grad, plim_optim_like(r, p, "grad"));
        rprop_where(r, p, capturable);
        plim_optim_brief(r, p, "grad sign");
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, sign);
}

void plim_optim_rprop(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_count_state(r, p, 2, "step");
        plim_optim_state(r, p, 0, "prev");
        plim_optim_state(r, p, 1, "step_size");
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP)
        rprop_forloop(r);
    else
        rprop_foreach(r);
}
