/* rules_factory.c -- tensors from nothing: one request each, no history. */
#include "op/rules.h"

static plim_dtype factory_dtype(plim_call *c, uint32_t slot, plim_dtype def)
{
    int64_t t = plim_arg_int(c, slot, def);
    return t >= 0 && t < PLIM_DTYPE_COUNT ? (plim_dtype)t : def;
}

static void factory(plim_call *c, uint32_t size_slot, plim_dtype t)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = (int32_t)plim_arg_ints(c, size_slot, dim, PLIM_MAX_RANK, 1);
    plim_ret(c, plim_m_empty_contig(c->m, t, rank, dim));
}

static plim_dtype first_dtype(plim_call *c)
{
    return plim_m_meta(c->m, plim_arg_tensor(c, 0))->dtype;
}

void plim_run_factory(plim_call *c) { factory(c, 0, factory_dtype(c, 1, PLIM_F32)); }
void plim_run_full(plim_call *c)
{
    bool f = c->n_args > 1 && c->args[1].kind == PLIM_ARG_FLOAT;
    factory(c, 0, factory_dtype(c, 2, f ? PLIM_F32 : PLIM_I64));
}
void plim_run_new(plim_call *c) { factory(c, 1, factory_dtype(c, 2, first_dtype(c))); }
void plim_run_new_full(plim_call *c) { factory(c, 1, factory_dtype(c, 3, first_dtype(c))); }

static void factory_like(plim_call *c, uint32_t dtype_slot)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, 0));
    plim_meta out = plim_meta_like(x, factory_dtype(c, dtype_slot, x->dtype));
    plim_ret(c, plim_m_empty(c->m, &out));
}
void plim_run_like(plim_call *c) { factory_like(c, 1); }
void plim_run_like_value(plim_call *c) { factory_like(c, 2); }
