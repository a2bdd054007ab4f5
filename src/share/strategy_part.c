/* strategy_part.c -- what strategies have in common: see strategy.h. */
#include "op/rules.h"
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

plim_t plim_share_view(plim_shared *x, plim_t flat, uint64_t numel)
{
    int64_t dim = (int64_t)numel;
    plim_meta meta = plim_meta_make(plim_m_meta(x->m, flat)->dtype, 1, &dim);
    return plim_m_alias(x->m, flat, &meta);
}

void plim_share_map(plim_shared *x, uint32_t id, plim_t flat)
{
    plim_t view = plim_m_alias(x->m, flat, plim_m_meta(x->m, x->value[id]));
    plim_m_drop(x->m, x->value[id]);
    x->value[id] = plim_m_as_leaf(x->m, view, x->g->values[id].requires_grad);
}

void plim_share_tie(plim_shared *x)
{
    for (uint32_t i = 0; i < x->n_order; i++) {
        uint32_t id = x->order[i], of = x->g->values[id].tied_to;
        if (of != PLIM_NONE && x->value[id])
            x->value[id] = x->value[of];
    }
}

void plim_share_check_type(plim_shared *x, const char *what, uint32_t first,
                           plim_dtype of_first, uint32_t value, plim_dtype t)
{
    if (t != of_first)
        plim_m_fail(x->m, PLIM_EUSAGE,
                    "%s, but '" PLIM_STR_FMT "' is %s and '" PLIM_STR_FMT "' is %s", what,
                    PLIM_STR_ARG(x->g->values[first].name), plim_dtype_name(of_first),
                    PLIM_STR_ARG(x->g->values[value].name), plim_dtype_name(t));
}

plim_t plim_share_norm(plim_shared *x, uint64_t numel)
{
    plim_t wide = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F64, numel),
           norm = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F64, 1);
    plim_reduce_scratch(x->m, plim_m_meta(x->m, wide), 1);
    plim_m_drop(x->m, wide);
    return norm;
}

void plim_share_norms(plim_shared *x, plim_t *norms)
{
    plim_t overflow = plim_share_flat(x, "overflow", PLIM_CAT_TEMPORARY, PLIM_I32, 1), all;
    for (uint32_t k = 0; k < x->n_masters; k++) {
        norms[k] = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
        const plim_meta *meta = plim_m_meta(x->m, x->master[k]);
        plim_reduce_scratch(x->m, meta, (1u << meta->rank) - 1);
    }
    all = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
    for (uint32_t k = 0; k < x->n_masters; k++)
        plim_m_drop(x->m, norms[k]);
    plim_m_drop(x->m, all);
    plim_m_drop(x->m, overflow);
}

void plim_share_drop_gradients(plim_shared *x)
{
    for (uint32_t k = 0; k < x->n_masters; k++)
        plim_m_set_grad(x->m, x->master[k], 0);
}

plim_t plim_share_scale_loss(plim_shared *x, plim_t loss, plim_t *divided)
{
    plim_t factor = plim_m_wrapped(x->m, true);
    *divided = plim_at_mul(x->m, loss, factor, false);
    plim_t scaled = plim_at_mul(x->m, *divided, factor, false);
    plim_m_drop(x->m, factor);
    return scaled;
}

/* ---- units ------------------------------------------------------------------------------------ */

static plim_str path_of(const plim_shared *x, uint32_t unit)
{
    return x->g->scopes[x->units.r[unit].scope].path;
}

/* The innermost unit whose module has the value: "model.layers.3" that of
 * "model.layers.3.mlp.up.weight".  Those within a unit follow it. */
static uint32_t unit_of(const plim_shared *x, plim_str name, uint32_t last)
{
    uint32_t n = x->units.n, found = n;
    for (uint32_t k = 0; k <= n && found == n;
         k++) { /* neighbours are of the same unit, mostly */
        uint32_t i = (last + k) % (n + 1);
        if (i < n && plim_name_within(name, path_of(x, i)))
            found = i;
    }
    for (uint32_t i = found + 1; i < n && plim_name_within(path_of(x, i), path_of(x, found));
         i++)
        if (plim_name_within(name, path_of(x, i)))
            found = i;
    return found;
}

static bool is_moved(const plim_shared *x, uint32_t id)
{
    const plim_value *v = &x->g->values[id];
    return x->value[id] && v->tied_to == PLIM_NONE && v->kind != PLIM_VALUE_CONSTANT;
}

uint32_t *plim_share_units(const plim_shared *x)
{
    uint32_t *of = PLIM_NEW_N(x->a, uint32_t, (uint64_t)x->n_order + 1), last = 0;
    for (uint32_t i = 0; of && i < x->n_order; i++)
        of[i] = last = unit_of(x, x->g->values[x->order[i]].name, last);
    return of;
}

uint32_t *plim_share_foresee(plim_arena *a, const plim_graph *g, plim_shared *x)
{
    plim_err err = PLIM_ERR_INIT;
    uint32_t *order = PLIM_NEW_N(a, uint32_t, (uint64_t)g->n_values + 1);
    *x = (plim_shared){.a = a, .g = g, .order = order};
    if (!order)
        return NULL;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == PLIM_VALUE_PARAMETER && g->values[i].tied_to == PLIM_NONE)
            order[x->n_order++] = i;
    if (plim_regions_find(a, g, PLIM_STR("blocks"), &x->units, &err))
        x->units = (plim_regions){0};
    return plim_share_units(x);
}

uint32_t plim_share_list(const plim_shared *x, const uint32_t *of, uint32_t unit,
                         uint32_t *ids)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_order; i++)
        if (of[i] == unit && is_moved(x, x->order[i]))
            ids[n++] = x->order[i];
    return n;
}

uint32_t plim_share_move(plim_shared *x, uint32_t *ids, uint32_t n, plim_t *whole)
{
    uint32_t parameters = 0;
    for (int buffers = 0; buffers < 2; buffers++)
        for (uint32_t i = 0; i < n; i++) {
            const plim_value *v = &x->g->values[ids[i]];
            if ((v->kind != PLIM_VALUE_PARAMETER) != buffers)
                continue;
            plim_m_place(x->m, PLIM_NONE, v->name, NULL,
                         buffers ? PLIM_CAT_BUFFER : PLIM_CAT_PARAMETER);
            plim_t moved = plim_m_empty(x->m, plim_m_meta(x->m, x->value[ids[i]]));
            if (buffers) {
                plim_m_drop(x->m, x->value[ids[i]]);
                x->value[ids[i]] = moved;
            } else {
                whole[parameters] = moved;
                uint32_t id = ids[i];
                ids[i] = ids[parameters];
                ids[parameters++] = id;
            }
        }
    return parameters;
}
