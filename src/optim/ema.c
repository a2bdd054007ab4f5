/* ema.c -- averages of the model: here a run's parameters are all tensors of the model, in the
 * order in which deepcopy visits them, and state 0 is the copy.
 * src: the files that emas.def names */
#include "optim/part.h"

enum { COPY };

static void copy_parameters(plim_optim_run *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->params[i].buffer)
            plim_optim_state(r, &r->params[i], COPY, PLIM_EMA_ROLE);
}

/* deepcopy(model): the copy of a buffer starts as a scalar before it gets the copy of the
 * storage.  src: torch/_tensor.py __deepcopy__ */
static void copy_model(plim_optim_run *r)
{
    for (uint32_t i = 0; r->starting && i < r->n; i++) {
        plim_optim_param *p = &r->params[i];
        plim_optim_state(r, p, COPY, PLIM_EMA_ROLE);
        if (!p->buffer)
            continue;
        plim_m_place(r->m, PLIM_NONE, p->name, "empty", PLIM_CAT_TEMPORARY);
        plim_m_drop(r->m,
                    plim_m_empty_contig(r->m, plim_m_meta(r->m, p->leaf)->dtype, 0, NULL));
    }
}

static bool is_float(const plim_optim_run *r, const plim_optim_param *p)
{
    return plim_is_float(plim_m_meta(r->m, p->leaf)->dtype);
}

/* A Python float times the tensor: an integer tensor becomes fp32. */
static plim_t alloc_scaled(plim_optim_run *r, const plim_optim_param *p, const char *role)
{
    if (is_float(r, p))
        return plim_optim_like(r, p, role);
    plim_meta meta = plim_meta_like(plim_m_meta(r->m, p->leaf), PLIM_F32);
    plim_m_place(r->m, PLIM_NONE, p->name, role, PLIM_CAT_TEMPORARY);
    return plim_m_empty(r->m, &meta);
}

/* ema.copy_(decay * ema + (1 - decay) * p) */
static void mix_average(plim_optim_run *r, const plim_optim_param *p)
{
    plim_t old = alloc_scaled(r, p, "decay * ema"),
           new = alloc_scaled(r, p, "(1 - decay) * param");
    plim_t sum = alloc_scaled(r, p, "average");
    plim_m_drop(r->m, old);
    plim_m_drop(r->m, new);
    plim_m_drop(r->m, sum);
}

/* ---- averaged -------------------------------------------------------------------------- */

/* n_averaged.to(device) */
static plim_t averaged_count(plim_optim_run *r)
{
    plim_m_place(r->m, PLIM_NONE, PLIM_STR(""), "n_averaged", PLIM_CAT_TEMPORARY);
    return plim_m_empty_contig(r->m, PLIM_I64, 0, NULL);
}

/* The dtypes in use, those of parameters first. */
static int averaged_types(const plim_optim_run *r, bool buffers, plim_dtype *out)
{
    bool seen[PLIM_DTYPE_COUNT] = {0};
    int n = 0;
    for (int pass = 0; pass <= buffers; pass++)
        for (uint32_t i = 0; i < r->n; i++) {
            plim_dtype t = plim_m_meta(r->m, r->params[i].leaf)->dtype;
            if (r->params[i].buffer == (pass == 1) && !seen[t])
                out[n++] = t;
            seen[t] |= r->params[i].buffer == (pass == 1);
        }
    return n;
}

/* Averages the tensors of one dtype at once, the dtype seen last first (the order of an
 * unordered_map); integer tensors are still done one by one. */
static void averaged_foreach(plim_optim_run *r, bool buffers)
{
    plim_dtype types[PLIM_DTYPE_COUNT];
    for (int k = averaged_types(r, buffers, types); k-- > 0;) {
        plim_t n = averaged_count(r);
        for (uint32_t i = 0; i < r->n && !plim_is_float(types[k]); i++)
            if (plim_m_meta(r->m, r->params[i].leaf)->dtype == types[k])
                mix_average(r, &r->params[i]);
        plim_m_drop(r->m, n);
    }
}

static void averaged_forloop(plim_optim_run *r, bool buffers)
{
    plim_t n = 0;
    for (int pass = 0; pass <= buffers; pass++)
        for (uint32_t i = 0; i < r->n; i++)
            if (r->params[i].buffer == (pass == 1)) {
                plim_optim_set(r, &n, averaged_count(r));
                mix_average(r, &r->params[i]);
            }
    plim_m_drop(r->m, n);
}

void plim_ema_averaged(plim_optim_run *r)
{
    bool buffers = plim_optim_on(r, "use_buffers");
    copy_model(r);
    if (r->taken <= 1) /* the first update is a copy */
        return;
    if (plim_optim_impl_of(r) == PLIM_IMPL_FOREACH)
        averaged_foreach(r, buffers);
    else
        averaged_forloop(r, buffers);
}

/* ---- by hand, timm, diffusers ------------------------------------------------------------ */

void plim_ema_lerp(plim_optim_run *r)
{
    if (plim_optim_on(r, "buffers"))
        copy_model(r);
    else
        copy_parameters(r);
}

/* Runs over the state dict. */
void plim_ema_timm_v2(plim_optim_run *r)
{
    copy_model(r);
    for (uint32_t i = 0; !r->starting && i < r->n; i++)
        if (!r->params[i].transient)
            mix_average(r, &r->params[i]);
}

static bool has_average(const plim_optim_run *r, const plim_optim_param *p)
{
    return !p->buffer && plim_m_requires_grad(r->m, p->leaf); /* others are copied */
}

void plim_ema_diffusers(plim_optim_run *r)
{
    bool foreach = plim_optim_impl_of(r) == PLIM_IMPL_FOREACH;
    copy_parameters(r);
    for (uint32_t i = 0; !r->starting && i < r->n; i++) {
        plim_optim_param *p = &r->params[i];
        if (!has_average(r, p))
            continue;
        p->tmp[0] = plim_optim_like(r, p, "ema - param");
        if (foreach)
            continue;
        plim_t share = plim_optim_like(r, p, "(1 - decay) * difference");
        plim_optim_set(r, &p->tmp[0], 0);
        plim_m_drop(r->m, share);
    }
    plim_optim_list_free(r, 0);
}
