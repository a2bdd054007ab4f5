/* call.h -- calls of modules in a graph that is rewritten: runs of nodes of the same scope. */
#ifndef PLIM_TRANSFORM_CALL_H
#define PLIM_TRANSFORM_CALL_H

#include "core/graph.h"

static inline bool plim_is_leaf(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER || v->kind == PLIM_VALUE_BUFFER;
}

/* The end of the run of nodes of the same scope that begins at nodes[i], i < n. */
uint32_t plim_call_end(const plim_node *nodes, uint32_t n, uint32_t i);

/* The tensor that the call of the nodes [first, last) was given: the first that is not a
 * parameter and that none of them makes; or PLIM_NONE. */
uint32_t plim_call_input(const plim_graph *g, const plim_node *first, const plim_node *last);

/* Makes the last node of the graph, whose only result was made last, produce `value` in its place. */
void plim_call_gives(plim_graph *g, uint32_t value);

/* "q_proj" is the last part of the path, as is "self_attn.q_proj". */
bool plim_path_ends(plim_str path, plim_str name);

#endif
