/* load.c -- model.to(device): parameters, buffers and constants, in the order in which PyTorch
 * walks the module tree.  src: docs/sources/training-step.md 1. */
#include "step/step.h"

/* ---- order -------------------------------------------------------------------------- */

/* A module tree built from dotted names: nodes in order of first appearance. */
typedef struct module {
    plim_str path;
    uint32_t parent, first_child, last_child, next;
} module;

typedef struct module_tree {
    module *mods;
    uint32_t n, cap;
    plim_map by_path;
} module_tree;

static uint32_t module_get(plim_arena *a, module_tree *t, plim_str path)
{
    uint32_t id;
    if (plim_map_get(&t->by_path, path, &id))
        return id;
    uint32_t parent = PLIM_NONE;
    if (path.n) {
        size_t dot = path.n;
        while (dot > 0 && path.p[dot - 1] != '.')
            dot--;
        parent = module_get(a, t, (plim_str){path.p, dot ? dot - 1 : 0});
        if (parent == PLIM_NONE)
            return PLIM_NONE;
    }
    plim_assert(!path.n || parent < t->n);
    if (!PLIM_PUSH_ROOM(a, t->mods, t->n, t->cap) || !plim_map_put(a, &t->by_path, path, t->n))
        return PLIM_NONE;
    id = t->n++;
    t->mods[id] = (module){path, parent, PLIM_NONE, PLIM_NONE, PLIM_NONE};
    if (parent != PLIM_NONE) {
        module *p = &t->mods[parent];
        if (p->last_child == PLIM_NONE)
            p->first_child = id;
        else
            t->mods[p->last_child].next = id;
        p->last_child = id;
    }
    return id;
}

static plim_str owner_path(plim_str name)
{
    size_t dot = name.n;
    while (dot > 0 && name.p[dot - 1] != '.')
        dot--;
    return (plim_str){name.p, dot ? dot - 1 : 0};
}

static bool is_loaded(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER || v->kind == PLIM_VALUE_BUFFER ||
           v->kind == PLIM_VALUE_CONSTANT;
}

enum { MAX_MODULE_DEPTH = 256 };

static uint32_t count_dots(plim_str path)
{
    uint32_t dots = 0;
    for (size_t k = 0; k < path.n; k++)
        dots += path.p[k] == '.';
    return dots;
}

/* Appends a module's own values to out[], which has n. */
static uint32_t emit_values(const uint32_t *head, const uint32_t *link, uint32_t mod,
                            uint32_t *out, uint32_t n)
{
    for (uint32_t v = head[mod]; v != PLIM_NONE; v = link[v])
        out[n++] = v;
    return n;
}

uint32_t plim_step_order(plim_arena *a, const plim_graph *g, bool parents_first,
                         uint32_t **out)
{
    module_tree t = {0};
    uint32_t *owner = PLIM_NEW_N(a, uint32_t, g->n_values), n = 0, id = 0;
    plim_str last = PLIM_STR("");
    *out = PLIM_NEW_N(a, uint32_t, g->n_values);
    if (!owner || !*out || module_get(a, &t, PLIM_STR("")) == PLIM_NONE)
        return PLIM_NONE;
    /* modules with scopes come in call order, which is their order of registration in all but
     * unusual models; the others come from the names of parameters */
    for (uint32_t i = 0; i < g->n_values; i++)
        if (is_loaded(&g->values[i])) {
            plim_str path = owner_path(g->values[i].name);
            if (!plim_str_eq(path, last)) /* a module's values come one after the other */
                id = count_dots(path) < MAX_MODULE_DEPTH ? module_get(a, &t, path) : 0;
            owner[i] = id;
            last = path;
            if (id == PLIM_NONE)
                return PLIM_NONE;
        }
    /* values by module: parameters before buffers, in file order within each */
    uint32_t *head = PLIM_NEW_N(a, uint32_t, t.n),
             *link = PLIM_NEW_N(a, uint32_t, g->n_values);
    if (!head || !link || !t.mods)
        return PLIM_NONE;
    memset(head, 0xff, t.n * sizeof *head);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = g->n_values; i-- > 0;)
            if (is_loaded(&g->values[i]) &&
                (g->values[i].kind == PLIM_VALUE_PARAMETER) == (pass == 1)) {
                link[i] = head[owner[i]];
                head[owner[i]] = i;
            }
    for (id = 0; id != PLIM_NONE;) { /* walks the tree without a stack */
        if (parents_first)
            n = emit_values(head, link, id, *out, n);
        if (t.mods[id].first_child != PLIM_NONE) {
            id = t.mods[id].first_child;
            continue;
        }
        for (;;) {
            if (!parents_first)
                n = emit_values(head, link, id, *out, n);
            if (t.mods[id].next != PLIM_NONE) {
                id = t.mods[id].next;
                break;
            }
            id = t.mods[id].parent;
            if (id == PLIM_NONE)
                break;
        }
    }
    plim_assert(n <= g->n_values);
    return n;
}

/* ---- recurrent nets -------------------------------------------------------------------- */

/* When a recurrent module is moved, it copies its weights into one buffer and makes them
 * views of it.  src: nn/modules/rnn.py flatten_parameters, cudnn/RNN.cpp
 * _cudnn_rnn_flatten_weight */
typedef struct flat {
    const uint32_t *weight; /* values */
    uint32_t n, left;       /* number of weights not moved yet */
    bool biases;
} flat;

enum { RNN_PARAMS = 2, RNN_HAS_BIASES = 3 }; /* arguments of lstm, gru, rnn */

static bool flat_of(const plim_graph *g, const plim_node *n, flat *out)
{
    if (!n->op || strcmp(n->op->family, "rnn") != 0 || n->n_args <= RNN_HAS_BIASES ||
        n->args[RNN_PARAMS].kind != PLIM_ARG_VALUES)
        return false;
    const plim_arg *params = &n->args[RNN_PARAMS];
    *out = (flat){params->ids, params->n, params->n,
                  n->args[RNN_HAS_BIASES].kind != PLIM_ARG_INT || n->args[RNN_HAS_BIASES].i};
    for (uint32_t i = 0; i < params->n; i++)
        if (params->ids[i] == PLIM_NONE ||
            g->values[params->ids[i]].kind != PLIM_VALUE_PARAMETER)
            return false;
    return params->n > 0;
}

static flat *flats_of(plim_arena *a, const plim_graph *g, uint32_t *n)
{
    flat *list = NULL, f;
    uint32_t cap = 0;
    *n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        bool known = !flat_of(g, &g->nodes[i], &f);
        for (uint32_t k = 0; !known && k < *n; k++) /* the module is called again */
            known = list[k].weight[0] == f.weight[0];
        if (known)
            continue;
        if (!PLIM_PUSH_ROOM(a, list, *n, cap))
            return NULL;
        list[(*n)++] = f;
    }
    return list;
}

/* cuDNN reserves room for biases even where there are none. */
static void flatten_weights(plim_machine *m, const flat *f, plim_t *value)
{
    plim_assert(f->n > 0 && !f->left);
    uint64_t total = 0, numel = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const plim_meta *w = plim_m_meta(m, value[f->weight[i]]);
        plim_meta_numel(w, &numel);
        total = plim_sat_add(total, numel);
        if (!f->biases && i % 2 == 0 && w->rank)
            total = plim_sat_add(total, 2 * (uint64_t)w->dim[0]);
    }
    int64_t dim = total > INT64_MAX ? INT64_MAX : (int64_t)total;
    plim_dtype t = plim_m_meta(m, value[f->weight[0]])->dtype;
    plim_t all = plim_m_empty_contig(m, t, 1, &dim);
    for (uint32_t i = 0; i < f->n; i++) {
        plim_t was = value[f->weight[i]];
        plim_t part = plim_m_alias(m, all, plim_m_meta(m, was));
        value[f->weight[i]] = plim_m_as_leaf(m, part, plim_m_requires_grad(m, was));
        plim_m_drop(m, was);
    }
    plim_m_drop(m, all);
}

/* ---- the whole of it ---------------------------------------------------------------------- */

static plim_dtype cast_dtype(plim_dtype chosen, plim_dtype own)
{
    return plim_is_float(own) && chosen != PLIM_DTYPE_COUNT ? chosen : own;
}

plim_meta plim_step_meta(plim_dtype dtype, const plim_meta *m)
{
    return plim_meta_like(m, cast_dtype(dtype, m->dtype));
}

/* Constants that the code copies to the device at each use: they stay on the CPU.
 * (torch.tensor([1.0]) in a forward is exported as such a constant with lift_fresh_copy.) */
static bool *on_host(plim_arena *a, const plim_graph *g)
{
    bool *host = PLIM_NEW_N(a, bool, (uint64_t)g->n_values + 1);
    bool any = false;
    for (uint32_t i = 0; host && i < g->n_values; i++)
        any |= host[i] = g->values[i].kind == PLIM_VALUE_CONSTANT;
    for (uint32_t i = 0; any && i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        bool lifts = plim_node_calls(n, "lift_fresh_copy");
        for (uint32_t k = 0; k < n->n_args && !lifts; k++)
            if (n->args[k].kind == PLIM_ARG_VALUE)
                host[n->args[k].id] = false;
    }
    return host;
}

typedef struct loading {
    plim_machine *m;
    const plim_graph *g;
    plim_t *value;
    bool on_host;
} loading;

static void load_value(const loading *l, uint32_t id, plim_dtype t)
{
    plim_machine *m = l->m;
    const plim_graph *g = l->g;
    const plim_value *v = &g->values[id];
    const plim_meta meta = plim_meta_like(&v->meta, t);
    bool param = v->kind == PLIM_VALUE_PARAMETER;
    plim_m_place(m, PLIM_NONE, v->name, NULL, param ? PLIM_CAT_PARAMETER : PLIM_CAT_BUFFER);
    plim_t made = l->on_host ? plim_m_outside(m, &meta) : plim_m_empty(m, &meta);
    l->value[id] = plim_m_as_leaf(m, made, param && v->requires_grad);
}

/* peft adds adapters to a model that is on the card: in the dtype of its parameters, and when
 * all are there it casts one after the other. */
static void load_adapters(const loading *l, const uint32_t *order, uint32_t n,
                          plim_dtype dtype)
{
    const plim_graph *g = l->g;
    for (uint32_t i = 0; i < n; i++)
        if (g->values[order[i]].adapter)
            load_value(l, order[i], cast_dtype(dtype, g->values[order[i]].made_as));
    for (uint32_t i = 0; i < n; i++) {
        const plim_value *v = &g->values[order[i]];
        plim_t was = v->adapter ? l->value[order[i]] : 0;
        if (!was || plim_m_meta(l->m, was)->dtype == v->meta.dtype)
            continue;
        load_value(l, order[i], v->meta.dtype);
        plim_m_drop(l->m, was);
    }
}

void plim_step_load(plim_machine *m, plim_arena *a, const plim_graph *g, plim_dtype dtype,
                    bool from_host, bool made_on_card, const uint32_t *values, uint32_t n,
                    plim_t *value)
{
    plim_assert(n <= g->n_values);
    const loading l = {m, g, value, from_host};
    uint32_t n_flats = 0, *order = PLIM_NEW_N(a, uint32_t, (uint64_t)n + 1);
    flat *flats = flats_of(a, g, &n_flats);
    bool *host = on_host(a, g);
    if (!order || (n_flats && !flats) || !host) {
        plim_m_oom(m);
        return;
    }
    memcpy(order, values, n * sizeof *order);
    for (uint32_t i = 0; i < n; i++) {
        const plim_value *v = &g->values[order[i]];
        if (v->tied_to != PLIM_NONE) { /* one tensor: loaded under its first name */
            if (value[v->tied_to]) {
                value[order[i]] = value[v->tied_to];
                continue;
            }
            order[i] = v->tied_to;
        } else if (value[order[i]] || v->adapter) {
            continue;
        }
        v = &g->values[order[i]];
        if (host[order[i]])
            value[order[i]] = plim_m_outside(m, &v->meta);
        else
            load_value(&l, order[i],
                       v->packed || (v->fp32 && made_on_card)
                           ? v->meta.dtype
                           : cast_dtype(dtype, v->meta.dtype));
        for (uint32_t k = 0; k < n_flats && !from_host; k++)
            for (uint32_t j = 0; j < flats[k].n; j++)
                if (flats[k].weight[j] == order[i] && !--flats[k].left)
                    flatten_weights(m, &flats[k], value);
    }
    load_adapters(&l, order, n, dtype);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to != PLIM_NONE)
            value[i] = value[g->values[i].tied_to];
}

void plim_step_tie(plim_machine *m, const plim_graph *g, plim_dtype dtype)
{
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->tied_to == PLIM_NONE)
            continue;
        const plim_meta meta = plim_step_meta(dtype, &v->meta);
        plim_m_place(m, PLIM_NONE, v->name, NULL, PLIM_CAT_TEMPORARY);
        plim_m_drop(m, plim_m_empty(m, &meta));
    }
}
