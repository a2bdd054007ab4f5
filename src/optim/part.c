/* part.c -- see part.h. */
#include "optim/part.h"

double plim_optim_value(const plim_optim_spec *spec, plim_str name)
{
    for (uint32_t i = 0; i < spec->n_options; i++)
        if (plim_str_eq(spec->option[i].name, name))
            return spec->option[i].value;
    return 0;
}

double plim_optim_option(const plim_optim_spec *spec, const char *name)
{
    return plim_optim_value(spec, plim_str_of(name));
}

bool plim_optim_on(const plim_optim_run *r, const char *option)
{
    double v = plim_optim_option(r->spec, option);
    return v < 0 || v > 0;
}

plim_optim_impl plim_optim_impl_of(const plim_optim_run *r)
{
    if (r->spec->impl != PLIM_IMPL_DEFAULT)
        return r->spec->impl;
    bool foreach = !strncmp(r->spec->optim->impls, "foreach", strlen("foreach"));
    return foreach && r->torch->foreach_default ? PLIM_IMPL_FOREACH : PLIM_IMPL_FORLOOP;
}

plim_optim_param *plim_optim_next(plim_optim_run *r, uint32_t *i)
{
    plim_assert(*i <= r->n);
    while (*i < r->n) {
        plim_optim_param *p = &r->params[(*i)++];
        bool meant = r->which == PLIM_OPTIM_ALL || p->plain == (r->which == PLIM_OPTIM_PLAIN);
        if (meant && plim_m_grad(r->m, p->leaf))
            return p;
    }
    return NULL;
}

bool plim_optim_sparse(const plim_optim_run *r, const plim_optim_param *p)
{
    return plim_m_values(r->m, plim_m_grad(r->m, p->leaf)) != 0;
}

bool plim_optim_any_sparse(plim_optim_run *r)
{
    const plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        if (plim_optim_sparse(r, p))
            return true;
    return false;
}

/* ---- tensors ----------------------------------------------------------------------- */

plim_t plim_optim_like(plim_optim_run *r, const plim_optim_param *p, const char *role)
{
    plim_m_place(r->m, PLIM_NONE, p->name, role, PLIM_CAT_TEMPORARY);
    return plim_m_empty_like(r->m, p->leaf);
}

plim_t plim_optim_scalar(plim_optim_run *r, const plim_optim_param *p, const char *role)
{
    plim_m_place(r->m, PLIM_NONE, p->name, role, PLIM_CAT_TEMPORARY);
    return plim_m_empty_contig(r->m, PLIM_F32, 0, NULL);
}

void plim_optim_brief(plim_optim_run *r, const plim_optim_param *p, const char *role)
{
    plim_m_drop(r->m, plim_optim_like(r, p, role));
}

void plim_optim_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot, const char *role)
{
    plim_assert(slot < PLIM_COUNT(p->state));
    if (p->state[slot])
        return;
    plim_m_place(r->m, PLIM_NONE, p->name, role, PLIM_CAT_OPTIMIZER_STATE);
    p->state[slot] = plim_m_empty_like(r->m, p->leaf);
}

plim_t plim_optim_tensor_state(plim_optim_run *r, plim_str name, const char *role,
                               plim_dtype t, int32_t rank, const int64_t *dim)
{
    plim_m_place(r->m, PLIM_NONE, name, role, PLIM_CAT_OPTIMIZER_STATE);
    return plim_m_empty_contig(r->m, t, rank, dim);
}

void plim_optim_scalar_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot,
                             const char *role)
{
    plim_assert(slot < PLIM_COUNT(p->state));
    if (!p->state[slot])
        p->state[slot] = plim_optim_tensor_state(r, p->name, role, PLIM_F32, 0, NULL);
}

void plim_optim_count_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot,
                            const char *role)
{
    if (plim_optim_impl_of(r) == PLIM_IMPL_FUSED || plim_optim_on(r, "capturable"))
        plim_optim_scalar_state(r, p, slot, role);
}

/* ---- lists and locals ----------------------------------------------------------------- */

void plim_optim_list(plim_optim_run *r, int slot, const char *role)
{
    plim_assert(slot >= 0 && (size_t)slot < PLIM_COUNT(r->params->tmp));
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        p->tmp[slot] = plim_optim_like(r, p, role);
}

void plim_optim_brief_sums(plim_optim_run *r)
{
    bool each = plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP;
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        if (p->partial && each)
            plim_optim_brief(r, p, "sum");
        else if (p->partial)
            p->tmp[0] = plim_optim_like(r, p, "sum");
    plim_optim_list_free(r, 0);
}

void plim_optim_scalars(plim_optim_run *r, int slot, const char *role)
{
    plim_assert(slot >= 0 && (size_t)slot < PLIM_COUNT(r->params->tmp));
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        p->tmp[slot] = plim_optim_scalar(r, p, role);
}

void plim_optim_list_free(plim_optim_run *r, int slot)
{
    plim_assert(slot >= 0 && (size_t)slot < PLIM_COUNT(r->params->tmp));
    for (uint32_t i = r->n; i-- > 0;) {
        plim_m_drop(r->m, r->params[i].tmp[slot]);
        r->params[i].tmp[slot] = 0;
    }
}

/* -grad, or grad + weight decay, which sparse gradients do not have. */
static plim_t grad_copy(plim_optim_run *r, const plim_optim_param *p, const char *role)
{
    plim_assert(plim_m_grad(r->m, p->leaf));
    if (!plim_optim_sparse(r, p))
        return plim_optim_like(r, p, role);
    plim_m_place(r->m, PLIM_NONE, p->name, role, PLIM_CAT_TEMPORARY);
    return plim_m_sparse_copy(r->m, plim_m_grad(r->m, p->leaf));
}

bool plim_optim_grad_list(plim_optim_run *r, int slot, bool decay)
{
    plim_assert(slot >= 0 && (size_t)slot < PLIM_COUNT(r->params->tmp));
    bool copies = decay || plim_optim_on(r, "maximize");
    plim_optim_param *p;
    for (uint32_t i = 0; copies && (p = plim_optim_next(r, &i));)
        p->tmp[slot] = grad_copy(r, p, decay ? "grad + weight decay" : "negated grad");
    return copies;
}

void plim_optim_set(plim_optim_run *r, plim_t *local, plim_t value)
{
    plim_m_drop(r->m, *local);
    *local = value;
}

void plim_optim_grad(plim_optim_run *r, const plim_optim_param *p, bool negated_first,
                     bool decay, plim_t *grad)
{
    bool maximize = plim_optim_on(r, "maximize");
    if (!maximize || !negated_first)
        plim_optim_set(r, grad, 0);
    if (maximize)
        plim_optim_set(r, grad, grad_copy(r, p, "negated grad"));
    if (decay)
        plim_optim_set(r, grad, grad_copy(r, p, "grad + weight decay"));
}
