/* moments.c -- Adam and its family: two moments per parameter.
 * src: torch/optim/<name>.py; docs/sources/optimizers.md 1, 2 */
#include "optim/part.h"

/* ---- adam, adamw --------------------------------------------------------------------- */

static void adam_states(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_count_state(r, p, 3, "step");
        plim_optim_state(r, p, 0, "exp_avg");
        plim_optim_state(r, p, 1, "exp_avg_sq");
        if (plim_optim_on(r, "amsgrad"))
            plim_optim_state(r, p, 2, "max_exp_avg_sq");
    }
}

static void adam_forloop(plim_optim_run *r, bool decay)
{
    bool maximum = plim_optim_on(r, "amsgrad") && plim_optim_on(r, "capturable");
    plim_optim_param *p;
    plim_t grad = 0, denom = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, true, decay, &grad);
        if (maximum)
            plim_optim_brief(r, p, "maximum");
        plim_t root = plim_optim_like(r, p, "sqrt"), next = plim_optim_like(r, p, "denom");
        plim_m_drop(r->m, root);
        plim_optim_set(r, &denom, next);
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, denom);
}

/* slots: 0 grads, 1 square roots, 2 and 3 bias corrections, 4 denominators */
static void adam_foreach(plim_optim_run *r, bool decay)
{
    bool lean = r->torch->adam_lists == 1;
    plim_optim_grad_list(r, 0, decay);
    if (lean) /* del device_grads, before the square roots */
        plim_optim_list_free(r, 0);
    if (plim_optim_on(r, "capturable")) {
        plim_optim_scalars(r, 2, "bias_correction1");
        plim_optim_scalars(r, 3, "bias_correction2");
    }
    plim_optim_list(r, 1, "sqrt");
    if (!lean)
        plim_optim_list(r, 4, "denom");
    for (int slot = 4; slot >= 0; slot--)
        plim_optim_list_free(r, slot);
}

static void step_adam(plim_optim_run *r, bool decay)
{
    adam_states(r);
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP)
        adam_forloop(r, decay);
    else if (plim_optim_impl_of(r) == PLIM_IMPL_FOREACH)
        adam_foreach(r, decay);
    else
        plim_optim_brief_sums(r); /* the others have larger temporaries */
}

/* Weight decay that is added to the gradient, not applied to the parameter. */
static bool coupled_decay(const plim_optim_run *r)
{
    return plim_optim_on(r, "weight_decay") && !plim_optim_on(r, "decoupled_weight_decay");
}

void plim_optim_adam(plim_optim_run *r) { step_adam(r, coupled_decay(r)); }
void plim_optim_adamw(plim_optim_run *r) { step_adam(r, false); }

/* ---- adamax ---------------------------------------------------------------------------- */

static void adamax_forloop(plim_optim_run *r)
{
    plim_optim_param *p;
    plim_t grad = 0, denom = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, false, plim_optim_on(r, "weight_decay"), &grad);
        plim_optim_brief(r, p, "abs");
        if (plim_optim_on(r, "capturable"))
            plim_optim_set(r, &denom, plim_optim_like(r, p, "denom"));
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, denom);
}

void plim_optim_adamax(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_count_state(r, p, 2, "step");
        plim_optim_state(r, p, 0, "exp_avg");
        plim_optim_state(r, p, 1, "exp_inf");
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP) {
        adamax_forloop(r);
        return;
    }
    if (!plim_optim_grad_list(r, 0, plim_optim_on(r, "weight_decay")))
        plim_optim_list(r, 0, "abs");
    if (plim_optim_on(r, "capturable")) {
        plim_optim_scalars(r, 1, "bias_correction");
        plim_optim_list(r, 2, "denom");
    }
    for (int slot = 0; slot < 3; slot++)
        plim_optim_list_free(r, slot);
}

/* ---- nadam ------------------------------------------------------------------------------- */

static void nadam_forloop(plim_optim_run *r)
{
    bool capturable = plim_optim_on(r, "capturable");
    plim_optim_param *p;
    plim_t grad = 0, denom = 0, exp_avg = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, true, false, &grad);
        plim_optim_set(r, &exp_avg, 0); /* the names are assigned before grad.add(param) */
        if (coupled_decay(r))
            plim_optim_set(r, &grad, plim_optim_like(r, p, "grad + weight decay"));
        plim_t quotient = plim_optim_like(r, p, "exp_avg_sq / bias_correction"),
               next = plim_optim_like(r, p, "denom");
        plim_m_drop(r->m, quotient);
        plim_optim_set(r, &denom, next);
        if (capturable) {
            plim_optim_set(r, &denom, plim_optim_like(r, p, "denom"));
            plim_optim_set(r, &grad, plim_optim_like(r, p, "grad"));
            plim_optim_set(r, &exp_avg, plim_optim_like(r, p, "exp_avg"));
        }
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, exp_avg);
    plim_m_drop(r->m, denom);
}

/* slots: 0 grads, 1 square roots, 2 mus, 3 mu_nexts, 4 intermediates, 5 numerator */
static void nadam_foreach(plim_optim_run *r)
{
    plim_optim_grad_list(r, 0, coupled_decay(r));
    plim_optim_list(r, 1, "sqrt");
    if (plim_optim_on(r, "capturable")) {
        plim_optim_scalars(r, 4, "exponent");
        plim_optim_scalars(r, 2, "mu");
        plim_optim_scalars(r, 3, "mu_next");
        for (int k = 0; k < 3; k++) { /* frees the exponents; bias_correction, denom, denom */
            plim_optim_list_free(r, 4);
            plim_optim_scalars(r, 4, "denom");
        }
        plim_optim_list_free(r, 4);
        plim_optim_list(r, 5, "numerator");
    }
    for (int slot = 0; slot < PLIM_OPTIM_MAX_LISTS; slot++)
        plim_optim_list_free(r, slot);
}

void plim_optim_nadam(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_count_state(r, p, 2, "step");
        plim_optim_count_state(r, p, 3, "mu_product");
        plim_optim_state(r, p, 0, "exp_avg");
        plim_optim_state(r, p, 1, "exp_avg_sq");
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP)
        nadam_forloop(r);
    else
        nadam_foreach(r);
}

/* ---- radam ---------------------------------------------------------------------------------- */

/* a * b, after which both are freed, or only the first */
static plim_t radam_times(plim_optim_run *r, const plim_optim_param *p, plim_t a, plim_t b)
{
    plim_t y = plim_optim_like(r, p, "update");
    plim_m_drop(r->m, a);
    plim_m_drop(r->m, b);
    return y;
}

/* sqrt(bias_correction2) / (exp_avg_sq.sqrt() + eps); a number on the left goes through the
 * reciprocal */
static plim_t radam_adaptive(plim_optim_run *r, const plim_optim_param *p, bool number)
{
    plim_t root = plim_optim_like(r, p, "sqrt"),
           inverse = number ? plim_optim_like(r, p, "1 / sqrt") : 0,
           y = plim_optim_like(r, p, "adaptive lr");
    plim_m_drop(r->m, inverse);
    plim_m_drop(r->m, root);
    return y;
}

/* Rectification starts when the length of the average exceeds 5. */
static bool radam_rectified(const plim_optim_run *r)
{
    double beta2 = plim_optim_option(r->spec, "beta2"), power = 1;
    for (uint64_t k = 0; k < r->taken && power > 1e-12; k++)
        power *= beta2;
    double infinite = 2 / (1 - beta2) - 1;
    return infinite - 2 * (double)r->taken * power / (1 - power) > 5;
}

static void radam_forloop(plim_optim_run *r)
{
    bool capturable = plim_optim_on(r, "capturable"), rectified = radam_rectified(r);
    plim_optim_param *p;
    plim_t grad = 0, corrected = 0, update = 0, t;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, true, coupled_decay(r), &grad);
        plim_optim_set(r, &corrected, plim_optim_like(r, p, "bias_corrected_exp_avg"));
        if (capturable) {
            t = radam_times(r, p, radam_adaptive(r, p, false), 0);
            plim_t chosen = plim_optim_like(r, p, "where");
            plim_m_drop(r->m, t);
            plim_optim_set(r, &update, chosen);
        }
        t = plim_optim_like(r, p, "update");
        if (capturable) {
            t = radam_times(r, p, t, 0);
        } else if (rectified) {
            t = radam_times(r, p, t, radam_adaptive(r, p, true));
            t = radam_times(r, p, t, 0);
        }
        plim_m_drop(r->m, t);
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, corrected);
    plim_m_drop(r->m, update);
}

/* torch.where(tensor > number, ..., number): the mask, the scalars, the result */
static void radam_where(plim_optim_run *r, int slot, int numbers)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_m_place(r->m, PLIM_NONE, p->name, "mask", PLIM_CAT_TEMPORARY);
        plim_t mask = plim_m_empty_contig(r->m, PLIM_BOOL, 0, NULL), number[2] = {0};
        for (int k = 0; k < numbers; k++)
            number[k] = plim_optim_scalar(r, p, "number");
        p->tmp[slot] = plim_optim_scalar(r, p, "rect");
        for (int k = 0; k < numbers; k++)
            plim_m_drop(r->m, number[k]);
        plim_m_drop(r->m, mask);
    }
}

/* slots: 0 divisors of the square roots, 1 the other bias correction, 2 num, 3 rect, 4
 * unrect_step_size, 5 short-lived temporaries */
static void radam_rectify(plim_optim_run *r)
{
    plim_optim_scalars(r, 2, "num");
    for (int k = 0; k < 2; k++) { /* rho - 2; denom */
        plim_optim_scalars(r, 5, "rho");
        plim_optim_list_free(r, 5);
    }
    radam_where(r, 3, 1);
    plim_optim_list_free(r, 2);
    radam_where(r, 4, 2);
    for (int slot = 1; slot >= 0; slot--) { /* the new list is there before */
        plim_optim_scalars(r, 5, "bias_correction");
        plim_optim_list_free(r, slot);
        for (uint32_t i = 0; i < r->n; i++) {
            r->params[i].tmp[slot] = r->params[i].tmp[5];
            r->params[i].tmp[5] = 0;
        }
    }
    plim_optim_list_free(r, 3);
    plim_optim_list_free(r, 1);
}

static void radam_foreach(plim_optim_run *r)
{
    bool capturable = plim_optim_on(r, "capturable"), decay = coupled_decay(r);
    bool maximize = plim_optim_on(r, "maximize");
    if (maximize)
        plim_optim_list(r, 2, "negated grad");
    if (capturable) {
        plim_optim_scalars(r, 1, "bias_correction1");
        plim_optim_scalars(r, 0, "bias_correction2");
    }
    if (decay && !maximize)
        plim_optim_list(r, 2, "grad + weight decay");
    plim_optim_list_free(r, 2); /* del grouped_grads */
    if (capturable)
        radam_rectify(r);
    plim_optim_list(r, 5, "buffer");
    for (int slot = 0; slot < PLIM_OPTIM_MAX_LISTS; slot++)
        plim_optim_list_free(r, slot);
}

void plim_optim_radam(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_count_state(r, p, 2, "step");
        plim_optim_state(r, p, 0, "exp_avg");
        plim_optim_state(r, p, 1, "exp_avg_sq");
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP)
        radam_forloop(r);
    else
        radam_foreach(r);
}
