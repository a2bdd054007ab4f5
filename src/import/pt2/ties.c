/* ties.c -- see ties.h. */
#include "import/pt2/ties.h"

/* "transformer.wte.weight" is "weight" of "transformer.wte". */
static plim_str module_of(plim_str name)
{
    for (size_t i = name.n; i-- > 0;)
        if (name.p[i] == '.')
            return (plim_str){name.p, i};
    return (plim_str){name.p, 0};
}

static plim_str member_of(plim_str name)
{
    size_t n = module_of(name).n;
    return n ? (plim_str){name.p + n + 1, name.n - n - 1} : name;
}

static bool same_meta(const plim_meta *a, const plim_meta *b)
{
    if (a->dtype != b->dtype || !plim_same_size(a, b))
        return false;
    return a->rank == 0 ||
           memcmp(a->stride, b->stride, (size_t)a->rank * sizeof a->stride[0]) == 0;
}

typedef struct ties {
    plim_graph *g;
    bool *used; /* by value id */
    plim_map
        foreign;     /* module path and member: the parameter of another module that it uses */
    plim_map owners; /* modules that own the parameters used in place of tied ones */
} ties;

/* A key made of two strings, separated by a NUL. */
static plim_str key_of(ties *t, plim_str a, plim_str b)
{
    char *p = PLIM_NEW_N(t->g->arena, char, (uint64_t)a.n + b.n + 1);
    if (!p)
        return (plim_str){NULL, 0};
    if (a.n)
        memcpy(p, a.p, a.n);
    if (b.n)
        memcpy(p + a.n + 1, b.p, b.n); /* a NUL in between */
    return (plim_str){p, a.n + b.n + 1};
}

static bool note_use(ties *t, uint32_t id, uint32_t scope)
{
    const plim_value *v = &t->g->values[id];
    plim_str path = t->g->scopes[scope].path, key;
    t->used[id] = true;
    if (v->kind != PLIM_VALUE_PARAMETER || plim_str_eq(module_of(v->name), path))
        return true;
    key = key_of(t, path, member_of(v->name));
    return key.p && plim_map_put(t->g->arena, &t->foreign, key, id);
}

static bool note_uses(ties *t)
{
    for (uint32_t i = 0; i < t->g->n_nodes; i++) {
        const plim_node *n = &t->g->nodes[i];
        for (uint32_t k = 0; k < n->n_args; k++) {
            const plim_arg *a = &n->args[k];
            for (uint32_t m = 0; m < plim_arg_values(a); m++) {
                uint32_t id = plim_arg_value(a, m);
                if (id != PLIM_NONE && !note_use(t, id, n->scope))
                    return false;
            }
        }
    }
    for (uint32_t i = 0; i < t->g->n_outputs; i++)
        t->used[t->g->outputs[i]] = true;
    return true;
}

static bool is_idle(const ties *t, const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER && v->tied_to == PLIM_NONE &&
           !t->used[v - t->g->values];
}

/* wte.weight is used nowhere, and module wte uses lm_head.weight. */
static bool tie_by_module(ties *t, plim_value *v)
{
    uint32_t id;
    plim_str key = key_of(t, module_of(v->name), member_of(v->name));
    if (!key.p)
        return false;
    if (!plim_map_get(&t->foreign, key, &id) || !same_meta(&v->meta, &t->g->values[id].meta))
        return true;
    v->tied_to = id;
    return plim_map_put(t->g->arena, &t->owners, module_of(t->g->values[id].name), id);
}

static plim_str meta_key(ties *t, const plim_value *v)
{
    char dims[256];
    return plim_arena_printf(t->g->arena, "%d%s" PLIM_STR_FMT, (int)v->meta.dtype,
                             plim_meta_str(&v->meta, dims, sizeof dims),
                             PLIM_STR_ARG(member_of(v->name)));
}

/* A name without a module call of its own (T5's shared.weight, BERT's second decoder bias) is
 * tied if exactly one parameter of those modules matches it. */
static bool tie_by_owner(ties *t)
{
    plim_map like = {0};
    uint32_t id;
    for (uint32_t i = 0; i < t->g->n_values; i++) {
        const plim_value *v = &t->g->values[i];
        if (v->kind != PLIM_VALUE_PARAMETER || !t->used[i] ||
            !plim_map_get(&t->owners, module_of(v->name), &id))
            continue;
        plim_str key = meta_key(t, v);
        bool again = plim_map_get(&like, key, &id);
        if (!key.p || !plim_map_put(t->g->arena, &like, key, again ? PLIM_NONE : i))
            return false;
    }
    for (uint32_t i = 0; like.n && i < t->g->n_values; i++) {
        plim_value *v = &t->g->values[i];
        if (!is_idle(t, v))
            continue;
        plim_str key = meta_key(t, v);
        if (!key.p)
            return false;
        if (plim_map_get(&like, key, &id) && id != PLIM_NONE &&
            same_meta(&v->meta, &t->g->values[id].meta))
            v->tied_to = id;
    }
    return true;
}

plim_status plim_ties_find(plim_graph *g, plim_err *err)
{
    ties t = {.g = g};
    t.used = PLIM_NEW_N(g->arena, bool, g->n_values);
    if (!t.used || !note_uses(&t))
        return plim_oom(err);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (is_idle(&t, &g->values[i]) && !tie_by_module(&t, &g->values[i]))
            return plim_oom(err);
    return tie_by_owner(&t) ? PLIM_OK : plim_oom(err);
}
