/* ends.c -- the two ends of a model, which some optimizers treat apart: its embeddings and its head. */
#include "op/op.h"

bool plim_leads_to_loss(const plim_node *n, bool bounds)
{
    static const char *const shapes[] = {"view", "reshape",  "contiguous",
                                         "to",   "to.dtype", "_to_copy"};
    static const char *const bound[] = {"div", "tanh", "mul"};
    bool leads = false;
    for (size_t i = 0; i < PLIM_COUNT(shapes); i++)
        leads |= plim_node_calls(n, shapes[i]);
    for (size_t i = 0; i < PLIM_COUNT(bound) && bounds; i++)
        leads |= plim_node_calls(n, bound[i]);
    return leads && n->n_outs == 1;
}

static bool is_loss(const plim_node *n)
{
    return plim_node_calls(n, "cross_entropy_loss") || plim_node_calls(n, "megatron_loss");
}

/* They have the head's weight as their second argument. */
static bool is_head(const plim_node *n)
{
    static const char *const ops[] = {"linear", "megatron_linear", "linear_cross_entropy",
                                      "liger_cross_entropy"};
    for (size_t i = 0; i < PLIM_COUNT(ops); i++)
        if (plim_node_calls(n, ops[i]))
            return true;
    return false;
}

static void mark_weight(const plim_graph *g, const plim_node *n, uint32_t i, bool *ends)
{
    uint32_t id = plim_node_value(n, i);
    if (id != PLIM_NONE)
        ends[plim_graph_owner(g, id)] = true;
}

bool *plim_find_ends(plim_arena *a, const plim_graph *g)
{
    bool *ends = PLIM_NEW_N(a, bool, (uint64_t)g->n_values + 1);
    uint32_t at = g->n_outputs ? g->values[g->outputs[0]].node : PLIM_NONE;
    for (uint32_t i = 0; i < g->n_nodes && ends; i++)
        if (plim_node_calls(&g->nodes[i], "embedding") ||
            plim_node_calls(&g->nodes[i], "embedding_bag"))
            mark_weight(g, &g->nodes[i], 0, ends);
    while (at != PLIM_NONE &&
           (is_loss(&g->nodes[at]) || plim_leads_to_loss(&g->nodes[at], true))) {
        uint32_t from = plim_node_value(&g->nodes[at], 0);
        at = from == PLIM_NONE ? PLIM_NONE : g->values[from].node;
    }
    if (ends && at != PLIM_NONE && is_head(&g->nodes[at]))
        mark_weight(g, &g->nodes[at], 1, ends);
    return ends;
}
