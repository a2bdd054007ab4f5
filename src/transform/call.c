/* call.c -- see call.h. */
#include "transform/call.h"

static bool node_makes(const plim_node *n, uint32_t value)
{
    for (uint32_t i = 0; i < n->n_outs; i++)
        if (n->outs[i] == value)
            return true;
    return false;
}

uint32_t plim_call_end(const plim_node *nodes, uint32_t n, uint32_t i)
{
    uint32_t end = i + 1;
    while (end < n && nodes[end].scope == nodes[i].scope)
        end++;
    return end;
}

uint32_t plim_call_input(const plim_graph *g, const plim_node *first, const plim_node *last)
{
    for (const plim_node *n = first; n < last; n++)
        for (uint32_t i = 0; i < n->n_args; i++) {
            uint32_t id = n->args[i].kind == PLIM_ARG_VALUE ? n->args[i].id : PLIM_NONE;
            bool own = id == PLIM_NONE || plim_is_leaf(&g->values[id]);
            for (const plim_node *k = first; k < n && !own; k++)
                own = node_makes(k, id);
            if (!own)
                return id;
        }
    return PLIM_NONE;
}

void plim_call_gives(plim_graph *g, uint32_t value)
{
    plim_node *last = &g->nodes[g->n_nodes - 1];
    *(uint32_t *)last->outs = value;
    g->values[value].node = g->n_nodes - 1;
    g->n_values--; /* that result */
}

bool plim_path_ends(plim_str path, plim_str name)
{
    return plim_str_ends(path, name) &&
           (path.n == name.n || path.p[path.n - name.n - 1] == '.');
}
