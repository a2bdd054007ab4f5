/* scaler.c -- see scaler.h.
 * src: torch 2.13 torch/amp/grad_scaler.py */
#include "step/scaler.h"

#include "op/rules.h"
#include "optim/part.h"

static plim_t new_number(const plim_scaler *s, const char *role, plim_dtype type,
                         plim_category cat)
{
    plim_m_place(s->m, PLIM_NONE, PLIM_STR("GradScaler"), role, cat);
    return plim_m_empty_contig(s->m, type, 0, NULL);
}

static plim_t brief_number(const plim_scaler *s, const char *role, plim_dtype type)
{
    return new_number(s, role, type, PLIM_CAT_TEMPORARY);
}

plim_t plim_scaler_scale(plim_scaler *s, plim_t loss)
{
    if (!s->on)
        return loss;
    if (!s->scale) {
        s->scale = new_number(s, "scale", PLIM_F32, PLIM_CAT_OPTIMIZER_STATE);
        s->growth = new_number(s, "growth_tracker", PLIM_I32, PLIM_CAT_OPTIMIZER_STATE);
    }
    plim_m_place(s->m, PLIM_NONE, PLIM_STR("GradScaler"), "loss", PLIM_CAT_TEMPORARY);
    plim_t scaled = plim_at_mul(s->m, loss, s->scale, false);
    plim_m_drop(s->m, loss);
    return scaled;
}

/* src: torch 2.13 ATen/native/cuda/AmpKernels.cu, which is built for fp16, fp32 and fp64 */
static bool takes_gradients(plim_scaler *s, plim_optim_run *o, bool fp16)
{
    const plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(o, &i));) {
        plim_dtype type = plim_m_meta(s->m, p->leaf)->dtype;
        if (type != PLIM_BF16 && (fp16 || type != PLIM_F16))
            continue;
        plim_m_fail(
            s->m, PLIM_EUSAGE,
            "GradScaler does not unscale gradients in %s: with autocast fp16, what is trained must be fp32",
            plim_dtype_name(type));
        return false;
    }
    return true;
}

/* All gradients in place, by copies of both numbers; that of the second is kept.  Takes them. */
static void scale_gradients(plim_scaler *s, plim_t inverse, plim_t found)
{
    s->found = brief_number(s, "found_inf", PLIM_F32);
    plim_t copy = brief_number(s, "inv_scale", PLIM_F32);
    plim_m_drop(s->m, copy);
    plim_m_drop(s->m, inverse);
    plim_m_drop(s->m, found);
}

void plim_scaler_unscale(plim_scaler *s, plim_optim_run *o)
{
    plim_assert(!s->unscaled);
    if (!s->on || !takes_gradients(s, o, false))
        return;
    plim_t wide = brief_number(s, "inv_scale", PLIM_F64),
           reciprocal = brief_number(s, "inv_scale", PLIM_F64);
    plim_m_drop(s->m, wide);
    plim_t inverse = brief_number(s, "inv_scale", PLIM_F32);
    plim_m_drop(s->m, reciprocal);
    scale_gradients(s, inverse, brief_number(s, "found_inf", PLIM_F32));
    s->unscaled = true;
}

/* A fused optimizer divides by the scale itself, and skips what is infinite. */
void plim_scaler_begin_step(plim_scaler *s, plim_optim_run *o)
{
    if (!s->on)
        return;
    if (plim_optim_impl_of(o) != PLIM_IMPL_FUSED) {
        if (!s->unscaled)
            plim_scaler_unscale(s, o);
        return;
    }
    if (!s->unscaled && takes_gradients(s, o, true)) {
        plim_t one = brief_number(s, "inv_scale", PLIM_F32);
        scale_gradients(s, one, brief_number(s, "found_inf", PLIM_F32));
    }
    s->of_step[0] = brief_number(s, "found_inf", PLIM_F32); /* sum() of one number */
    if (!s->unscaled)
        s->of_step[1] = brief_number(s, "grad_scale", PLIM_F32);
}

void plim_scaler_update(plim_scaler *s)
{
    const plim_t done[] = {s->of_step[0], s->of_step[1], s->found};
    for (size_t i = 0; i < PLIM_COUNT(done); i++)
        plim_m_drop(s->m, done[i]);
    s->of_step[0] = s->of_step[1] = s->found = 0;
    s->unscaled = false;
}
