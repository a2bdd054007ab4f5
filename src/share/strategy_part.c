/* strategy_part.c -- what strategies have in common: see strategy.h. */
#include "share/strategy.h"

/* ---- options ------------------------------------------------------------------------- */

uint32_t plim_share_option(const plim_strategy_spec *s, plim_str name)
{
    uint32_t i = 0;
    while (i < s->n_options && !plim_str_eq(s->option[i].name, name))
        i++;
    return i;
}

double plim_strategy_number(const plim_strategy_spec *spec, const char *option)
{
    uint32_t i = plim_share_option(spec, plim_str_of(option));
    plim_assert(i < spec->n_options);
    return spec->option[i].number;
}

plim_dtype plim_strategy_dtype(const plim_strategy_spec *spec, const char *option)
{
    uint32_t i = plim_share_option(spec, plim_str_of(option));
    plim_assert(i < spec->n_options);
    return spec->option[i].dtype;
}

plim_dtype plim_strategy_computes(const plim_strategy_spec *spec, plim_dtype t)
{
    uint32_t i = plim_share_option(spec, PLIM_STR("param"));
    bool other = i < spec->n_options && spec->option[i].dtype != PLIM_DTYPE_COUNT;
    return other && plim_is_float(t) ? spec->option[i].dtype : t;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

plim_t plim_share_flat(plim_shared *x, const char *role, plim_category c, plim_dtype t,
                       uint64_t numel)
{
    int64_t dim = numel > INT64_MAX ? INT64_MAX : (int64_t)numel;
    plim_m_place(x->m, PLIM_NONE, plim_str_of(role), NULL, c);
    return plim_m_empty_contig(x->m, t, 1, &dim);
}

uint64_t plim_share_numel(const plim_shared *x, plim_t t)
{
    uint64_t n = 0;
    plim_meta_numel(plim_m_meta(x->m, t), &n);
    return n;
}
