/* casts.c -- see casts.h. */
#include "import/pt2/casts.h"

#include "op/op.h"

/* The input of a cast to its own dtype, or PLIM_NONE if it is another cast. */
static uint32_t cast_of(const plim_graph *g, const plim_node *n)
{
    static const char *const names[] = {"aten.to.", "aten.type_as."};
    if (n->n_outs != 1 || !n->n_args || n->args[0].kind != PLIM_ARG_VALUE)
        return PLIM_NONE;
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        size_t k = strlen(names[i]);
        const plim_meta *from = &g->values[n->args[0].id].meta,
                        *to = &g->values[n->outs[0]].meta;
        if (n->target.n > k && !strncmp(n->target.p, names[i], k) && from->dtype == to->dtype)
            return n->args[0].id;
    }
    return PLIM_NONE;
}

static bool is_within(const plim_graph *g, uint32_t scope, uint32_t of)
{
    while (scope != of && scope != PLIM_NONE)
        scope = g->scopes[scope].parent;
    return scope == of;
}

static uint32_t scope_of(const plim_graph *g, uint32_t value)
{
    uint32_t node = g->values[value].node;
    return node == PLIM_NONE ? 0 : g->nodes[node].scope;
}

/* The value that `user`, a scope, refers to: if it passed the value to a module that cast it,
 * the caller's argument, which the file shows under the cast's name. */
static uint32_t resolve_cast(const plim_graph *g, const uint32_t *cast, uint32_t v,
                             uint32_t user)
{
    while (v != PLIM_NONE && cast[v] != PLIM_NONE) {
        uint32_t module = scope_of(g, v);
        if (is_within(g, user, module) || is_within(g, scope_of(g, cast[v]), module))
            break;
        v = cast[v];
    }
    return v;
}

/* ---- who uses what ------------------------------------------------------------------- */

typedef struct uses {
    uint32_t *first; /* [n_values + 1] into node */
    uint32_t *node;  /* users, in order */
} uses;

/* at[v] goes up by one for each use of v; if there is a list, the user is stored at that
 * index. */
static void visit_uses(const plim_graph *g, uint32_t *at, uint32_t *list)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args; k++)
            for (uint32_t j = 0; j < plim_arg_values(&g->nodes[i].args[k]); j++) {
                uint32_t v = plim_arg_value(&g->nodes[i].args[k], j);
                if (v == PLIM_NONE)
                    continue;
                if (list)
                    list[at[v]] = i;
                at[v]++;
            }
}

static bool find_uses(const plim_graph *g, uses *u)
{
    u->first = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)g->n_values + 1);
    uint32_t *at = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)g->n_values + 1);
    if (!u->first || !at)
        return false;
    visit_uses(g, u->first + 1, NULL);
    for (uint32_t i = 0; i < g->n_values; i++)
        u->first[i + 1] += u->first[i];
    memcpy(at, u->first, ((size_t)g->n_values + 1) * sizeof *at);
    u->node = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)u->first[g->n_values] + 1);
    if (u->node)
        visit_uses(g, at, u->node);
    return u->node != NULL;
}

/* The next node after node i that uses v and produces a value, or NULL. */
static const plim_node *next_use(const plim_graph *g, const uses *u, uint32_t v, uint32_t i)
{
    uint32_t k = u->first[v], end = u->first[v + 1];
    while (k < end && u->node[k] <= i)
        k++;
    return k < end && g->nodes[u->node[k]].n_outs ? &g->nodes[u->node[k]] : NULL;
}

static uint32_t number_of(const plim_graph *g, const plim_node *n)
{
    return (uint32_t)(n - g->nodes);
}

static bool is_value(const plim_node *n, uint32_t k)
{
    return k < n->n_args && n->args[k].kind == PLIM_ARG_VALUE;
}

/* ---- casts --------------------------------------------------------------------------- */

/* x.to(float32) ... .to(input_dtype): the x whose cast, in the same module, value v was
 * computed from, a few ops earlier. */
enum { LOOK_BACK = 12 };

static uint32_t find_outer_cast(const plim_graph *g, const uint32_t *cast, const bool *back,
                                uint32_t v, uint32_t scope, int depth)
{
    while (depth-- > 0 && v != PLIM_NONE && g->values[v].node != PLIM_NONE) {
        const plim_node *n = &g->nodes[g->values[v].node];
        if (!is_within(g, n->scope, scope))
            break;
        if (cast[v] != PLIM_NONE && n->scope == scope) /* a cast back ends the search */
            return back[v] ? PLIM_NONE : cast[v];
        v = n->n_args && n->args[0].kind == PLIM_ARG_VALUE ? n->args[0].id : PLIM_NONE;
        for (uint32_t k = 1; k < n->n_args; k++) { /* the operand that is not a parameter */
            uint32_t other = n->args[k].kind == PLIM_ARG_VALUE ? n->args[k].id : PLIM_NONE;
            if (other != PLIM_NONE && cast[other] != PLIM_NONE)
                v = other;
        }
    }
    return PLIM_NONE;
}

/* A parameter is cast to the dtype of the tensor it is combined with: p.to(x.dtype)[:, None] +
 * x.  Returns that x, or PLIM_NONE. */
static uint32_t find_operand(const plim_graph *g, const uses *u, const plim_node *cast,
                             uint32_t at)
{
    uint32_t v = cast->outs[0], made_at = at;
    for (int views = 0; views < 4; views++) {
        const plim_node *n = next_use(g, u, v, at);
        if (!n)
            return PLIM_NONE;
        for (uint32_t k = 0; k < 2; k++)
            if (is_value(n, k) && n->args[k].id != v)
                return g->values[n->args[k].id].node < made_at ? n->args[k].id : PLIM_NONE;
        v = n->outs[0];
        at = number_of(g, n);
    }
    return PLIM_NONE;
}

/* Turns the node into name(a, b); leaves it alone if there is no such op.  false: no
 * memory. */
static bool rewrite_node(plim_graph *g, plim_node *n, const char *name, plim_arg a, plim_arg b,
                         plim_err *err)
{
    bool inplace;
    const plim_op *op = plim_op_find(plim_str_of(name), (plim_str){NULL, 0}, &inplace);
    plim_arg *args = PLIM_NEW_N(g->arena, plim_arg, 2);
    if (!args) {
        plim_oom(err);
        return false;
    }
    if (!op)
        return true;
    args[0] = a;
    args[1] = b;
    n->op = op;
    n->args = args;
    n->n_args = 2;
    return true;
}

static plim_arg value_arg(uint32_t id) { return (plim_arg){.kind = PLIM_ARG_VALUE, .id = id}; }

/* ---- noise --------------------------------------------------------------------------- */

/* empty(size, dtype=x.dtype) is exported with the dtype that x had.  If it is filled with
 * noise in place and then multiplied with an x of that dtype, it follows x again: new_empty(x,
 * size). */
static bool retype_noise(plim_graph *g, const uses *u, uint32_t i, plim_err *err)
{
    plim_node *n = &g->nodes[i];
    if (!n->op || strcmp(n->op->name, "empty") != 0 || !n->n_args || !n->n_outs)
        return true;
    uint32_t v = n->outs[0];
    const plim_node *use = next_use(g, u, v, i);
    while (use && use->inplace && is_value(use, 0) && use->args[0].id == v) {
        v = use->outs[0];
        use = next_use(g, u, v, number_of(g, use));
    }
    if (!use || v == n->outs[0] || !use->op || strcmp(use->op->name, "mul") != 0 ||
        !is_value(use, 0) || !is_value(use, 1))
        return true;
    uint32_t x = use->args[0].id == v ? use->args[1].id : use->args[0].id;
    bool before = g->values[x].node == PLIM_NONE || g->values[x].node < i;
    if (x == v || !before || g->values[x].meta.dtype != g->values[v].meta.dtype)
        return true;
    return rewrite_node(g, n, "new_empty", value_arg(x), n->args[0], err);
}

/* ---- both ---------------------------------------------------------------------------------- */

plim_status plim_casts_undo(plim_graph *g, plim_err *err)
{
    uint32_t *cast = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)g->n_values + 1);
    bool *back = PLIM_NEW_N(g->arena, bool, (uint64_t)g->n_values + 1);
    uses u;
    if (!cast || !back || !find_uses(g, &u))
        return plim_oom(err);
    for (uint32_t i = 0; i < g->n_values; i++)
        cast[i] = PLIM_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        plim_node *n = &g->nodes[i];
        plim_arg *args = (plim_arg *)n->args; /* owned by the reader, in its arena */
        for (uint32_t k = 0; k < n->n_args; k++) {
            if (args[k].kind == PLIM_ARG_VALUE)
                args[k].id = resolve_cast(g, cast, args[k].id, n->scope);
            for (uint32_t j = 0; args[k].kind == PLIM_ARG_VALUES && j < args[k].n; j++)
                ((uint32_t *)args[k].ids)[j] = resolve_cast(g, cast, args[k].ids[j], n->scope);
        }
        uint32_t from = cast_of(g, n);
        if (from == PLIM_NONE)
            continue;
        cast[n->outs[0]] = from;
        uint32_t to = PLIM_NONE;
        if (g->values[from].kind == PLIM_VALUE_PARAMETER)
            to = find_operand(g, &u, n, i);
        else if (n->scope)
            to = find_outer_cast(g, cast, back, from, n->scope, LOOK_BACK);
        back[n->outs[0]] = to != PLIM_NONE;
        /* a cast to the dtype of that value, whatever it is */
        if (to != PLIM_NONE && !rewrite_node(g, n, "type_as", n->args[0], value_arg(to), err))
            return PLIM_ENOMEM;
    }
    if (!find_uses(g, &u)) /* the uses have changed */
        return plim_oom(err);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!retype_noise(g, &u, i, err))
            return PLIM_ENOMEM;
    /* logits returned with a loss are the model's own, not those that the loss has cast */
    bool loss = g->n_outputs && !g->values[g->outputs[0]].meta.rank;
    for (uint32_t i = 1; i < g->n_outputs && loss; i++)
        if (cast[g->outputs[i]] != PLIM_NONE)
            g->outputs[i] = cast[g->outputs[i]];
    return PLIM_OK;
}
