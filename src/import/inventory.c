/* inventory.c -- see inventory.h. */
#include "import/inventory.h"

plim_status plim_inventory_add(plim_inventory *v, const plim_item *item, plim_err *err)
{
    plim_item it = *item;
    if (it.rank < 0 || it.rank > PLIM_MAX_RANK)
        return plim_fail(err, PLIM_ERANGE, v->n_items,
                         "'" PLIM_STR_FMT "' has %d dimensions, the limit is %d",
                         PLIM_STR_ARG(it.name), (int)it.rank, (int)PLIM_MAX_RANK);
    it.elements = 1;
    for (int32_t i = 0; i < it.rank; i++)
        if (it.dim[i] < 0 || !plim_mul(it.elements, (uint64_t)it.dim[i], &it.elements))
            return plim_fail(err, PLIM_ERANGE, v->n_items,
                             "size of '" PLIM_STR_FMT "' overflows", PLIM_STR_ARG(it.name));
    it.name = plim_arena_str(v->arena, it.name);
    it.type = plim_arena_str(v->arena, it.type);
    if (!it.name.p || !it.type.p ||
        !PLIM_PUSH_ROOM(v->arena, v->items, v->n_items, v->cap_items))
        return plim_oom(err);
    v->items[v->n_items++] = it;
    return PLIM_OK;
}

plim_status plim_inventory_fact(plim_inventory *v, plim_err *err, const char *key,
                                const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    plim_note_pair f = {plim_arena_str(v->arena, plim_str_of(key)),
                        plim_arena_vprintf(v->arena, fmt, ap)};
    va_end(ap);
    if (!f.key.p || !f.value.p ||
        !PLIM_PUSH_ROOM(v->arena, v->facts, v->n_facts, v->cap_facts))
        return plim_oom(err);
    v->facts[v->n_facts++] = f;
    return PLIM_OK;
}

plim_status plim_inventory_note(plim_inventory *v, plim_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    plim_str note = plim_arena_vprintf(v->arena, fmt, ap);
    va_end(ap);
    if (!note.p || !PLIM_PUSH_ROOM(v->arena, v->notes, v->n_notes, v->cap_notes))
        return plim_oom(err);
    v->notes[v->n_notes++] = note;
    return PLIM_OK;
}

/* Of a token, and of a sequence: windows count as if they kept all. */
plim_status plim_inventory_cache(plim_inventory *v, const plim_cache *c, plim_dtype type,
                                 const plim_dtype *states, plim_err *err)
{
    const plim_kv_type held = {"", 1, (uint32_t)plim_dtype_bytes(type)};
    const plim_cache_rules r = {.keys = &held,
                                .values = &held,
                                .state_bytes =
                                    states ? (uint32_t)plim_dtype_bytes(*states) : 0,
                                .step = 1};
    uint64_t all = 0, sliding = 0, state = 0, window = 0;
    for (uint32_t i = 0; i < c->n_kinds; i++) {
        const plim_kv_layers *k = &c->kinds[i];
        const uint64_t layers = (uint64_t)k->layers,
                       row = plim_sat_mul(layers, plim_cache_row(k, &r));
        all = plim_sat_add(all, row);
        sliding = plim_sat_add(sliding, k->window ? row : 0);
        window = PLIM_MAX(window, (uint64_t)k->window);
        state = plim_sat_add(state, plim_sat_mul(layers, plim_cache_state(k, &r)));
    }
    plim_status st = PLIM_OK;
    if (all || states)
        st = plim_inventory_fact(v, err, "kv_cache_bytes_per_token", "%" PRIu64 " (%s)", all,
                                 plim_dtype_rows[type].name);
    if (!st && states && state)
        st = plim_inventory_fact(v, err, "state_bytes_per_sequence", "%" PRIu64 " (%s)", state,
                                 plim_dtype_rows[*states].name);
    return st || !sliding
               ? st
               : plim_inventory_note(v, err,
                                     "%" PRIu64 " of the %" PRIu64
                                     " bytes of KV cache per token are in sliding-window "
                                     "layers, which keep only the last %" PRIu64 " tokens",
                                     sliding, all, window);
}

plim_status plim_inventory_about(plim_inventory *v, const plim_graph *g, plim_err *err)
{
    const plim_str note = plim_graph_note(g);
    if (!note.p)
        return plim_oom(err);
    return note.n ? plim_inventory_note(v, err, PLIM_STR_FMT, PLIM_STR_ARG(note)) : PLIM_OK;
}

plim_status plim_inventory_dim(plim_inventory *v, plim_str name, int64_t value, plim_err *err)
{
    plim_open_dim d = {plim_arena_str(v->arena, name), value};
    if (!d.name.p || !PLIM_PUSH_ROOM(v->arena, v->dims, v->n_dims, v->cap_dims))
        return plim_oom(err);
    v->dims[v->n_dims++] = d;
    return PLIM_OK;
}

/* ---- of a graph ------------------------------------------------------------------ */

static bool is_stored(const plim_value *v, plim_item_kind *kind)
{
    switch (v->kind) {
    case PLIM_VALUE_PARAMETER: *kind = PLIM_ITEM_PARAMETER; return true;
    case PLIM_VALUE_BUFFER: *kind = PLIM_ITEM_BUFFER; return true;
    case PLIM_VALUE_CONSTANT: *kind = PLIM_ITEM_CONSTANT; return true;
    case PLIM_VALUE_NODE:
    case PLIM_VALUE_INPUT: break;
    }
    return false;
}

plim_status plim_inventory_graph(plim_inventory *v, const plim_graph *g, plim_err *err)
{
    uint32_t *place = PLIM_NEW_N(v->arena, uint32_t, g->n_values + 1);
    plim_status st = PLIM_OK;
    if (!place)
        return plim_oom(err);
    uint32_t first = v->n_items;
    for (uint32_t i = 0; i < g->n_values && !st; i++) {
        const plim_value *x = &g->values[i];
        plim_item it = {.name = x->name,
                        .type = plim_str_of(plim_dtype_rows[x->meta.dtype].name),
                        .rank = x->meta.rank,
                        .same_as = x->tied_to}; /* still a value id: mapped below */
        if (!is_stored(x, &it.kind))
            continue;
        memcpy(it.dim, x->meta.dim, sizeof it.dim);
        if (!plim_meta_bytes(&x->meta, &it.bytes))
            return plim_fail(err, PLIM_ERANGE, i, "size of '" PLIM_STR_FMT "' overflows",
                             PLIM_STR_ARG(x->name));
        place[i] = v->n_items;
        st = plim_inventory_add(v, &it, err);
    }
    for (uint32_t i = first; i < v->n_items && !st; i++)
        if (v->items[i].same_as != PLIM_NONE)
            v->items[i].same_as = place[v->items[i].same_as];
    for (uint32_t i = 0; i < g->sizes.n_dims && !st; i++)
        st = plim_inventory_dim(v, g->sizes.dims[i].name, g->sizes.dims[i].value, err);
    if (!st && g->kv.n_kinds)
        st = plim_inventory_cache(v, &g->kv, plim_graph_dtype(g), NULL, err);
    return st;
}

const char *plim_item_kind_name(plim_item_kind k)
{
    static const char *const names[PLIM_ITEM_KINDS] = {
        [PLIM_ITEM_PARAMETER] = "parameters", [PLIM_ITEM_BUFFER] = "buffers",
        [PLIM_ITEM_CONSTANT] = "constants",   [PLIM_ITEM_OPTIMIZER_STATE] = "optimizer state",
        [PLIM_ITEM_OTHER] = "other tensors",
    };
    return (unsigned)k < PLIM_ITEM_KINDS ? names[k] : "unknown";
}
