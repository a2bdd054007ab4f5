/* append.c -- see graph.h: a graph that becomes part of another. */
#include "core/graph.h"

typedef struct joining {
    plim_graph *g;
    const plim_graph *part;
    const plim_append *how;
    uint32_t *values, *scopes; /* of the part: their ids in the whole */
    bool bad;
} joining;

static void *note_room(joining *j, void *p)
{
    j->bad |= !p;
    return p;
}

static plim_str name_within(joining *j, plim_str name)
{
    plim_str s = name.n ? plim_arena_printf(j->g->arena, PLIM_STR_FMT "." PLIM_STR_FMT,
                                            PLIM_STR_ARG(j->how->name), PLIM_STR_ARG(name))
                        : j->how->name;
    j->bad |= !s.p;
    return s;
}

static uint32_t moved_id(const joining *j, uint32_t id)
{
    return id == PLIM_NONE ? PLIM_NONE : j->values[id];
}

static void add_values(joining *j)
{
    for (uint32_t i = 0; i < j->part->n_values && !j->bad; i++) {
        plim_value v = j->part->values[i];
        const bool held = v.kind == PLIM_VALUE_PARAMETER || v.kind == PLIM_VALUE_BUFFER;
        j->values[i] = PLIM_NONE;
        if (!held && !j->how->runs)
            continue;
        v.name = name_within(j, v.name);
        v.requires_grad &= j->how->trained;
        v.tied_to = moved_id(j, v.tied_to); /* an earlier one */
        v.node = PLIM_NONE;
        j->values[i] = plim_graph_add_value(j->g, &v);
        j->bad |= j->values[i] == PLIM_NONE;
    }
}

static void add_scopes(joining *j)
{
    for (uint32_t i = 0; i < j->part->n_scopes && !j->bad; i++) {
        const plim_scope *s = &j->part->scopes[i];
        uint32_t parent = i ? j->scopes[s->parent] : 0;
        j->scopes[i] = plim_graph_add_scope(j->g, parent, name_within(j, s->path), s->type);
        j->bad |= j->scopes[i] == PLIM_NONE;
        for (uint32_t k = 0; k < s->n_args && !j->bad; k++)
            j->bad |= !plim_graph_hold(j->g, j->scopes[i], moved_id(j, s->args[k]));
    }
}

static uint32_t *moved_ids(joining *j, const uint32_t *ids, uint32_t n)
{
    uint32_t *out = note_room(j, PLIM_NEW_N(j->g->arena, uint32_t, PLIM_MAX(n, 1u)));
    for (uint32_t i = 0; out && i < n; i++)
        out[i] = moved_id(j, ids[i]);
    return out;
}

static void add_nodes(joining *j)
{
    for (uint32_t i = 0; i < j->part->n_nodes && !j->bad; i++) {
        plim_node n = j->part->nodes[i];
        plim_arg *args =
            note_room(j, PLIM_NEW_N(j->g->arena, plim_arg, PLIM_MAX(n.n_args, 1u)));
        for (uint32_t k = 0; args && k < n.n_args; k++) {
            args[k] = n.args[k];
            if (args[k].kind == PLIM_ARG_VALUE)
                args[k].id = moved_id(j, args[k].id);
            else if (args[k].kind == PLIM_ARG_VALUES)
                args[k].ids = moved_ids(j, n.args[k].ids, args[k].n);
        }
        n.args = args;
        n.outs = moved_ids(j, n.outs, n.n_outs);
        n.scope = j->scopes[n.scope];
        if (!j->bad)
            j->bad |= plim_graph_add_node(j->g, &n) == PLIM_NONE;
    }
}

bool plim_graph_append(plim_graph *g, const plim_graph *part, const plim_append *how)
{
    joining j = {.g = g, .part = part, .how = how};
    j.values = note_room(&j, PLIM_NEW_N(g->arena, uint32_t, PLIM_MAX(part->n_values, 1u)));
    j.scopes = note_room(&j, PLIM_NEW_N(g->arena, uint32_t, PLIM_MAX(part->n_scopes, 1u)));
    if (!j.bad)
        add_values(&j);
    if (how->runs && !j.bad) {
        add_scopes(&j);
        add_nodes(&j);
        for (uint32_t i = 0; i < part->n_inputs && !j.bad; i++)
            j.bad |= !plim_graph_add_input(g, j.values[part->inputs[i]]);
        for (uint32_t i = 0; how->returns && i < part->n_outputs && !j.bad; i++)
            j.bad |= !plim_graph_add_output(g, j.values[part->outputs[i]]);
        g->lifetimes |= part->lifetimes;
    }
    return !j.bad;
}
