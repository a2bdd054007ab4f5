/* graph.c -- see graph.h. */
#include "core/graph.h"

plim_status plim_graph_init(plim_graph *g, plim_arena *a, plim_err *err)
{
    *g = (plim_graph){.arena = a};
    if (plim_graph_add_scope(g, PLIM_NONE, PLIM_STR(""), PLIM_STR("")) == PLIM_NONE)
        return plim_oom(err);
    return PLIM_OK;
}

void plim_graph_expect(plim_graph *g, uint32_t n)
{
    plim_value *v = g->n_values || !n ? NULL : PLIM_NEW_N(g->arena, plim_value, n);
    plim_node *nodes = g->n_nodes || !v ? NULL : PLIM_NEW_N(g->arena, plim_node, n);
    if (!nodes)
        return;
    g->values = v;
    g->nodes = nodes;
    g->cap.values = g->cap.nodes = n;
}

bool plim_graph_leave_out(plim_graph *g, plim_str what)
{
    plim_assert(what.n > 0);
    const plim_str before = g->about.left_out;
    g->about.left_out = before.n ? plim_arena_printf(g->arena, PLIM_STR_FMT "; " PLIM_STR_FMT,
                                                     PLIM_STR_ARG(before), PLIM_STR_ARG(what))
                                 : what;
    return g->about.left_out.p != NULL;
}

plim_str plim_graph_note(const plim_graph *g)
{
    const plim_str out = g->about.left_out, note = g->about.note;
    const bool sentence = note.n && note.p[0] >= 'A' && note.p[0] <= 'Z';
    return !out.n ? (note.n ? note : PLIM_STR(""))
                  : plim_arena_printf(g->arena, "incomplete: " PLIM_STR_FMT "%s" PLIM_STR_FMT,
                                      PLIM_STR_ARG(out),
                                      !note.n    ? ""
                                      : sentence ? ". "
                                                 : "; ",
                                      PLIM_STR_ARG(note));
}

plim_node *plim_graph_take_nodes(plim_graph *g, uint32_t *n)
{
    plim_node *old = g->nodes;
    *n = g->n_nodes;
    g->nodes = PLIM_NEW_N(g->arena, plim_node, *n);
    g->cap.nodes = g->nodes ? *n : 0;
    g->n_nodes = 0;
    return old;
}

uint32_t plim_graph_add_value(plim_graph *g, const plim_value *v)
{
    plim_assert((unsigned)v->meta.dtype < PLIM_DTYPE_COUNT);
    plim_assert(v->meta.rank >= 0 && v->meta.rank <= PLIM_MAX_RANK);
    if (!PLIM_PUSH_ROOM(g->arena, g->values, g->n_values, g->cap.values))
        return PLIM_NONE;
    g->values[g->n_values] = *v;
    return g->n_values++;
}

uint32_t plim_graph_add_node(plim_graph *g, const plim_node *n)
{
    plim_assert((n->args || !n->n_args) && (n->outs || !n->n_outs));
    if (!PLIM_PUSH_ROOM(g->arena, g->nodes, g->n_nodes, g->cap.nodes))
        return PLIM_NONE;
    g->nodes[g->n_nodes] = *n;
    plim_assert(n->scope < g->n_scopes);
    for (uint32_t i = 0; i < n->n_outs; i++) {
        plim_assert(n->outs[i] < g->n_values);
        g->values[n->outs[i]].node = g->n_nodes;
    }
    return g->n_nodes++;
}

uint32_t plim_graph_add_scope(plim_graph *g, uint32_t parent, plim_str path, plim_str type)
{
    if (!PLIM_PUSH_ROOM(g->arena, g->scopes, g->n_scopes, g->cap.scopes))
        return PLIM_NONE;
    plim_assert(parent < g->n_scopes || (parent == PLIM_NONE && !g->n_scopes));
    g->scopes[g->n_scopes] = (plim_scope){.parent = parent, .path = path, .type = type};
    return g->n_scopes++;
}

bool plim_graph_hold(plim_graph *g, uint32_t scope, uint32_t value)
{
    plim_scope *call = &g->scopes[scope];
    uint32_t *args = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)call->n_args + 1);
    if (!args)
        return false;
    if (call->n_args)
        memcpy(args, call->args, call->n_args * sizeof *args);
    args[call->n_args++] = value;
    call->args = args;
    return true;
}

bool plim_graph_add_input(plim_graph *g, uint32_t value)
{
    if (!PLIM_PUSH_ROOM(g->arena, g->inputs, g->n_inputs, g->cap.inputs))
        return false;
    plim_assert(value < g->n_values);
    g->inputs[g->n_inputs++] = value;
    return true;
}

bool plim_graph_add_output(plim_graph *g, uint32_t value)
{
    if (!PLIM_PUSH_ROOM(g->arena, g->outputs, g->n_outputs, g->cap.outputs))
        return false;
    plim_assert(value < g->n_values);
    g->outputs[g->n_outputs++] = value;
    return true;
}

bool plim_graph_add_dim(plim_graph *g, plim_str name, int64_t value)
{
    plim_assert(value >= 0);
    if (!PLIM_PUSH_ROOM(g->arena, g->sizes.dims, g->sizes.n_dims, g->sizes.cap_dims))
        return false;
    g->sizes.dims[g->sizes.n_dims++] = (plim_open_dim){name, value};
    return true;
}

plim_dtype plim_graph_dtype(const plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == PLIM_VALUE_PARAMETER && !g->values[i].packed)
            return g->values[i].meta.dtype;
    return PLIM_F32;
}

bool plim_graph_add_kv(plim_graph *g, const plim_kv_layers *kv)
{
    plim_assert(kv->keys >= 0 && kv->values >= 0);
    plim_assert(kv->layers >= 0 && kv->heads >= 0 && kv->copies >= 0);
    uint64_t token = plim_sat_mul((uint64_t)kv->layers, (uint64_t)kv->heads);
    token = plim_sat_mul(token, (uint64_t)(kv->copies ? kv->copies : 1));
    token = plim_sat_mul(token, plim_sat_add((uint64_t)kv->keys, (uint64_t)kv->values));
    g->kv.elements = plim_sat_add(g->kv.elements, token);
    return plim_cache_add(&g->kv, g->arena, kv);
}

/* ---- soundness ---------------------------------------------------------- */

static bool value_ready(const plim_graph *g, uint32_t id, uint32_t node)
{
    if (id >= g->n_values)
        return false;
    const plim_value *v = &g->values[id];
    return v->kind != PLIM_VALUE_NODE || (v->node != PLIM_NONE && v->node < node);
}

static bool args_ready(const plim_graph *g, uint32_t node)
{
    const plim_node *n = &g->nodes[node];
    for (uint32_t i = 0; i < n->n_args; i++) {
        const plim_arg *a = &n->args[i];
        for (uint32_t k = 0; k < plim_arg_values(a); k++) {
            uint32_t id = plim_arg_value(a, k);
            bool absent = a->kind == PLIM_ARG_VALUES && id == PLIM_NONE;
            if (!absent && !value_ready(g, id, node))
                return false;
        }
    }
    return true;
}

const char *plim_graph_check(const plim_graph *g)
{
    uint64_t bytes;
    for (uint32_t i = 0; i < g->n_scopes; i++)
        if (i == 0 ? g->scopes[0].parent != PLIM_NONE : g->scopes[i].parent >= i)
            return "a scope's parent does not come before it";
    for (uint32_t i = 0; i < g->n_scopes; i++)
        for (uint32_t k = 0; k < g->scopes[i].n_args; k++)
            if (g->scopes[i].args[k] >= g->n_values)
                return "a call's argument is out of range";
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->meta.rank < 0 || v->meta.rank > PLIM_MAX_RANK ||
            v->meta.dtype >= PLIM_DTYPE_COUNT)
            return "a value's rank or dtype is out of range";
        if (!plim_meta_bytes(&v->meta, &bytes))
            return "a value's size overflows";
        if (v->kind == PLIM_VALUE_NODE && v->node != PLIM_NONE && v->node >= g->n_nodes)
            return "a value's node is out of range";
        if (v->tied_to != PLIM_NONE && v->tied_to >= g->n_values)
            return "a tie points outside the graph";
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].scope >= g->n_scopes)
            return "a node's scope is out of range";
        if (!args_ready(g, i))
            return "a node uses a value before it is made";
        for (uint32_t k = 0; k < g->nodes[i].n_outs; k++)
            if (g->nodes[i].outs[k] >= g->n_values || g->values[g->nodes[i].outs[k]].node != i)
                return "a node's output is not its own";
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] >= g->n_values)
            return "an input is out of range";
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!value_ready(g, g->outputs[i], g->n_nodes))
            return "an output is never made";
    return NULL;
}

plim_status plim_graph_count(const plim_graph *g, plim_graph_counts *out, plim_err *err)
{
    plim_graph_counts c = {0};
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        uint64_t n, bytes;
        bool param = v->kind == PLIM_VALUE_PARAMETER;
        if ((!param && v->kind != PLIM_VALUE_BUFFER) || v->tied_to != PLIM_NONE)
            continue;
        if (!plim_meta_numel(&v->meta, &n) || !plim_meta_bytes(&v->meta, &bytes) ||
            !plim_add(param ? c.parameters : c.buffers, n,
                      param ? &c.parameters : &c.buffers) ||
            !plim_add(param ? c.parameter_bytes : c.buffer_bytes, bytes,
                      param ? &c.parameter_bytes : &c.buffer_bytes))
            return plim_fail(err, PLIM_ERANGE, i,
                             "the size of '" PLIM_STR_FMT "' does not fit 64 bits",
                             PLIM_STR_ARG(v->name));
        if (param && v->requires_grad)
            c.trainable += n;
    }
    plim_assert(c.trainable <= c.parameters);
    *out = c;
    return PLIM_OK;
}

uint32_t plim_graph_ops(const plim_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].n_outs || !plim_str_is(g->nodes[i].target, "plimsoll.held.default");
    return n;
}
