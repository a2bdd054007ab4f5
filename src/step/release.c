/* release.c -- when Python releases a value.  src: docs/sources/training-step.md 1. */
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

/* The node after which a value made in scope `from` is no longer held because of its use by
 * node `u`.  If the use is in a deeper call than the one that both share, the value was an
 * argument of that call, and a running call holds its arguments until it returns. */
static uint32_t held_until(const plim_graph *g, const uint32_t *depth, const uint32_t *last,
                           uint32_t from, uint32_t u)
{
    plim_assert(from < g->n_scopes && u < g->n_nodes);
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
    uint32_t n = g->lifetimes ? node : held_until(g, depth, last, from, node);
    if (until[value] == PLIM_NONE || until[value] < n)
        until[value] = n;
}

/* A running call holds its arguments, used or not, up to the node `held`. */
static void note_call(const plim_graph *g, uint32_t held, uint32_t *until, uint32_t value)
{
    uint32_t maker = g->values[value].node;
    if (maker != PLIM_NONE && maker < held)
        until[value] = PLIM_MAX(until[value], held);
}

bool plim_step_release_plan(plim_arena *a, const plim_graph *g, plim_release *out)
{
    uint32_t *depth = PLIM_NEW_N(a, uint32_t, g->n_scopes),
             *held =
                 PLIM_NEW_N(a, uint32_t, g->n_scopes); /* arguments of that call: so long */
    uint32_t *until = PLIM_NEW_N(a, uint32_t, g->n_values);
    out->first = PLIM_NEW_N(a, uint32_t, (uint64_t)g->n_nodes + 2);
    out->ids = PLIM_NEW_N(a, uint32_t, g->n_values);
    if (!depth || !held || !until || !out->first || !out->ids)
        return false;
    for (uint32_t i = 0; i < g->n_scopes; i++)
        depth[i] = scope_depth(g, i);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        /* to its last node, or to its first: what holds them then is said by a node */
        const uint32_t at = g->lifetimes ? g->n_nodes - 1 - i : i;
        for (uint32_t s = g->nodes[at].scope; s != PLIM_NONE; s = g->scopes[s].parent)
            held[s] = at;
    }
    for (uint32_t i = 0; i < g->n_values; i++) /* unused results are freed at once */
        until[i] = g->values[i].node;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_args; k++)
            for (uint32_t j = 0; j < plim_arg_values(&n->args[k]); j++)
                note_use(g, depth, held, until, plim_arg_value(&n->args[k], j), i);
    }
    for (uint32_t i = 0; i < g->n_scopes; i++)
        for (uint32_t k = 0; k < g->scopes[i].n_args; k++)
            note_call(g, held[i], until, g->scopes[i].args[k]);
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
    plim_assert(out->first[g->n_nodes] <= g->n_values);
    memcpy(at, out->first, (size_t)g->n_nodes * sizeof *at);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == PLIM_VALUE_NODE && until[i] != PLIM_NONE)
            out->ids[at[until[i]]++] = i;
    return true;
}
