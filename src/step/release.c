/* release.c -- when Python lets go of a value, and in which order a module
 * tree is moved to the device.  src: facts training-step.md 1. */
#include "step/step.h"

/* ---- scopes -------------------------------------------------------------------- */

static uint32_t scope_depth(const plim_graph *g, uint32_t s)
{
    uint32_t d = 0;
    while (g->scopes[s].parent != PLIM_NONE) {
        s = g->scopes[s].parent;
        d++;
    }
    return d;
}

/* The node after which a value made in scope `from` is no longer held because
 * of its use by node `u`.  If the use happens in a deeper call than the one
 * that both share, the value was an argument of that call, and a running call
 * holds its arguments until it returns. */
static uint32_t held_until(const plim_graph *g, const uint32_t *depth, const uint32_t *last,
                           uint32_t from, uint32_t u)
{
    uint32_t a = from, b = g->nodes[u].scope, call = PLIM_NONE;
    while (depth[a] > depth[b])
        a = g->scopes[a].parent;
    while (a != b) {
        if (depth[b] >= depth[a]) {
            call = b;
            b = g->scopes[b].parent;
        }
        if (a != b && depth[a] > depth[b])
            a = g->scopes[a].parent;
    }
    return call == PLIM_NONE ? u : last[call];
}

static void note_use(const plim_graph *g, const uint32_t *depth, const uint32_t *last,
                     uint32_t *until, uint32_t value, uint32_t node)
{
    if (value == PLIM_NONE)
        return;
    const plim_value *v = &g->values[value];
    uint32_t from = v->node == PLIM_NONE ? 0 : g->nodes[v->node].scope;
    uint32_t n = held_until(g, depth, last, from, node);
    if (until[value] == PLIM_NONE || until[value] < n)
        until[value] = n;
}

bool plim_step_release_plan(plim_arena *a, const plim_graph *g, plim_release *out)
{
    uint32_t *depth = PLIM_NEW_N(a, uint32_t, g->n_scopes),
             *last = PLIM_NEW_N(a, uint32_t, g->n_scopes);
    uint32_t *until = PLIM_NEW_N(a, uint32_t, g->n_values);
    out->first = PLIM_NEW_N(a, uint32_t, (uint64_t)g->n_nodes + 2);
    out->ids = PLIM_NEW_N(a, uint32_t, g->n_values);
    if (!depth || !last || !until || !out->first || !out->ids)
        return false;
    for (uint32_t i = 0; i < g->n_scopes; i++)
        depth[i] = scope_depth(g, i);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t s = g->nodes[i].scope; s != PLIM_NONE; s = g->scopes[s].parent)
            last[s] = i;
    for (uint32_t i = 0; i < g->n_values; i++) /* unused results die where they are made */
        until[i] = g->values[i].node;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_args; k++) {
            if (n->args[k].kind == PLIM_ARG_VALUE)
                note_use(g, depth, last, until, n->args[k].id, i);
            for (uint32_t j = 0; n->args[k].kind == PLIM_ARG_VALUES && j < n->args[k].n; j++)
                note_use(g, depth, last, until, n->args[k].ids[j], i);
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++)
        until[g->outputs[i]] = PLIM_NONE; /* the loop holds them */
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == PLIM_VALUE_NODE && until[i] != PLIM_NONE)
            out->first[until[i] + 1]++;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        out->first[i + 1] += out->first[i];
    uint32_t *at = PLIM_NEW_N(a, uint32_t, (uint64_t)g->n_nodes + 1);
    if (!at)
        return false;
    memcpy(at, out->first, (size_t)g->n_nodes * sizeof *at);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == PLIM_VALUE_NODE && until[i] != PLIM_NONE)
            out->ids[at[until[i]]++] = i;
    return true;
}

/* ---- load order ------------------------------------------------------------------ */

/* A module tree from dotted names: nodes in order of first appearance. */
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
    return (v->kind == PLIM_VALUE_PARAMETER || v->kind == PLIM_VALUE_BUFFER ||
            v->kind == PLIM_VALUE_CONSTANT) &&
           v->tied_to == PLIM_NONE;
}

enum { MAX_MODULE_DEPTH = 256 };

/* src: torch/nn/modules/module.py _apply: children, parameters, buffers */
uint32_t plim_step_load_order(plim_arena *a, const plim_graph *g, uint32_t **out)
{
    module_tree t = {0};
    uint32_t *owner = PLIM_NEW_N(a, uint32_t, g->n_values), n = 0, id;
    *out = PLIM_NEW_N(a, uint32_t, g->n_values);
    if (!owner || !*out || module_get(a, &t, PLIM_STR("")) == PLIM_NONE)
        return PLIM_NONE;
    /* modules that scopes show come in call order, which is how they were
     * registered in all but odd models; parameters give the rest */
    for (uint32_t i = 0; i < g->n_values; i++)
        if (is_loaded(&g->values[i])) {
            plim_str path = owner_path(g->values[i].name);
            uint32_t dots = 0;
            for (size_t k = 0; k < path.n; k++)
                dots += path.p[k] == '.';
            owner[i] = dots < MAX_MODULE_DEPTH ? module_get(a, &t, path) : 0;
            if (owner[i] == PLIM_NONE)
                return PLIM_NONE;
        }
    /* values by module: parameters before buffers, file order within */
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
    for (id = 0; id != PLIM_NONE;) { /* post-order walk without a stack */
        while (t.mods[id].first_child != PLIM_NONE)
            id = t.mods[id].first_child;
        for (;;) {
            for (uint32_t v = head[id]; v != PLIM_NONE; v = link[v])
                (*out)[n++] = v;
            if (t.mods[id].next != PLIM_NONE) {
                id = t.mods[id].next;
                break;
            }
            id = t.mods[id].parent;
            if (id == PLIM_NONE)
                break;
        }
    }
    return n;
}
