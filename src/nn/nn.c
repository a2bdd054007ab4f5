/* nn.c -- see nn.h. */
#include "nn/nn.h"
#include "base/fmt.h"
#include "machine/machine_run.h"

#include <stdio.h>

void plim_nn_init(plim_nn *n, plim_graph *g, plim_err *err)
{
    *n = (plim_nn){.g = g, .err = err, .linear = plim_nn_plain_linear};
}

void plim_nn_fail(plim_nn *n, plim_status st, const char *fmt, ...)
{
    char msg[192];
    va_list ap;
    if (n->st)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    n->st = plim_fail(n->err, st, 0, "%s", msg);
}

static void nn_oom(plim_nn *n)
{
    if (!n->st)
        n->st = plim_oom(n->err);
}

/* ---- names and scopes ---------------------------------------------------------- */

/* a, b and c concatenated in the arena, NUL after them. */
static plim_str nn_join(plim_nn *n, plim_str a, plim_str b, plim_str c)
{
    const plim_str part[3] = {a, b, c};
    plim_str s = {NULL, a.n + b.n + c.n};
    char *p = n->st ? NULL : PLIM_NEW_N(n->g->arena, char, s.n + 1);
    if (!p) {
        nn_oom(n);
        return PLIM_STR("");
    }
    s.p = p;
    for (int i = 0; i < 3; i++) {
        if (part[i].n)
            memcpy(p, part[i].p, part[i].n);
        p += part[i].n;
    }
    return s;
}

const char *plim_nn_name(plim_nn *n, const char *stem, int64_t number)
{
    plim_assert(number >= 0);
    char text[20], *end = text + sizeof text;
    const char *first = plim_write_digits(end, number > 0 ? (uint64_t)number : 0);
    return nn_join(n, plim_str_of(stem), (plim_str){first, (size_t)(end - first)},
                   PLIM_STR(""))
        .p;
}

const char *plim_nn_join(plim_nn *n, const char *a, const char *b)
{
    return nn_join(n, plim_str_of(a), plim_str_of(b), PLIM_STR("")).p;
}

/* "layer1.0" and "conv1" to "layer1.0.conv1" */
static plim_str nn_path(plim_nn *n, const char *name)
{
    plim_str up = n->g->scopes[n->scope].path;
    return nn_join(n, up, up.n ? PLIM_STR(".") : PLIM_STR(""), plim_str_of(name));
}

void plim_nn_root(plim_nn *n, const char *type) { n->g->scopes[0].type = plim_str_of(type); }

void plim_nn_enter(plim_nn *n, const char *name, const char *type)
{
    if (n->st)
        return;
    plim_assert(n->depth + 1 < PLIM_NN_DEPTH);
    if (!name)
        name = plim_nn_name(n, "", n->next[n->depth]++);
    plim_str path = nn_path(n, name);
    uint32_t s = plim_graph_add_scope(n->g, n->scope, path, plim_str_of(type));
    if (s == PLIM_NONE) {
        nn_oom(n);
        return;
    }
    n->scope = s;
    n->next[++n->depth] = 0;
}

void plim_nn_called(plim_nn *n, const uint32_t *args, uint32_t count)
{
    uint32_t *ids = n->st ? NULL : PLIM_NEW_N(n->g->arena, uint32_t, (uint64_t)count + 1),
             k = 0;
    if (!ids) {
        n->st = n->st ? n->st : plim_oom(n->err);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        if (args[i] != PLIM_NONE)
            ids[k++] = args[i];
    n->g->scopes[n->scope].args = ids;
    n->g->scopes[n->scope].n_args = k;
}

void plim_nn_holds(plim_nn *n, uint32_t id)
{
    if (!n->st && !plim_graph_hold(n->g, n->scope, id))
        n->st = plim_oom(n->err);
}

void plim_nn_hold_all(plim_nn *n, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        plim_nn_holds(n, ids[i]);
}

void plim_nn_ends(plim_nn *n, uint32_t id)
{
    const plim_named_arg a[] = {ARG_T("self", id)};
    plim_nn_node(n, "plimsoll.held.default", a, PLIM_COUNT(a), NULL, 0);
}

void plim_nn_returned(plim_nn *n, uint32_t id, uint32_t through)
{
    uint32_t scope = n->scope;
    for (uint32_t i = 0; i <= through && scope; i++)
        scope = n->g->scopes[scope].parent;
    if (!n->st && !plim_graph_hold(n->g, scope, id))
        n->st = plim_oom(n->err);
}

void plim_nn_leave(plim_nn *n)
{
    if (n->st)
        return;
    n->scope = n->g->scopes[n->scope].parent;
    plim_assert(n->depth > 0);
    n->depth--;
}

/* ---- values --------------------------------------------------------------------- */

int64_t plim_nn_dim(const plim_nn *n, uint32_t x, int32_t dim)
{
    if (n->st)
        return 1;
    const plim_meta *m = &n->g->values[x].meta;
    if (dim < 0)
        dim += m->rank;
    return dim >= 0 && dim < m->rank ? m->dim[dim] : 1;
}

static uint32_t nn_leaf(plim_nn *n, const char *name, plim_value v, plim_ints dim)
{
    plim_assert(dim.n <= PLIM_MAX_RANK);
    uint64_t bytes;
    if (n->st)
        return PLIM_NONE;
    v.name = nn_path(n, name);
    v.meta = plim_meta_make(v.meta.dtype, (int32_t)dim.n, dim.p);
    v.tied_to = v.node = PLIM_NONE;
    if (!plim_meta_bytes(&v.meta, &bytes)) {
        plim_nn_fail(n, PLIM_ERANGE, "size of '" PLIM_STR_FMT "' overflows",
                     PLIM_STR_ARG(v.name));
        return PLIM_NONE;
    }
    uint32_t id = plim_graph_add_value(n->g, &v);
    if (id == PLIM_NONE || !PLIM_PUSH_ROOM(n->g->arena, n->leaves, n->n_leaves, n->cap_leaves))
        nn_oom(n);
    else
        n->leaves[n->n_leaves++] = (struct plim_nn_leaf){id, n->scope};
    return id;
}

void plim_nn_forget(plim_nn *n, uint32_t first)
{
    plim_graph *g = n->g;
    if (n->st)
        return;
    for (uint32_t i = first; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_outs; k++)
            g->values[g->nodes[i].outs[k]].node = PLIM_NONE;
    g->n_nodes = first;
}

uint32_t plim_nn_param(plim_nn *n, const char *name, plim_ints dim)
{
    plim_value v = {.kind = PLIM_VALUE_PARAMETER, .requires_grad = true};
    v.meta.dtype = n->dtype;
    return nn_leaf(n, name, v, dim);
}

uint32_t plim_nn_buffer(plim_nn *n, const char *name, plim_dtype t, plim_ints dim)
{
    plim_value v = {.kind = PLIM_VALUE_BUFFER, .persistent = true};
    v.meta.dtype = t;
    return nn_leaf(n, name, v, dim);
}

uint32_t plim_nn_packed(plim_nn *n, const char *name, plim_dtype t, plim_ints dim)
{
    plim_value v = {.kind = PLIM_VALUE_BUFFER, .persistent = true, .packed = true};
    v.meta.dtype = t;
    return nn_leaf(n, name, v, dim);
}

uint32_t plim_nn_temporary_buffer(plim_nn *n, const char *name, plim_dtype t, plim_ints dim)
{
    plim_value v = {.kind = PLIM_VALUE_BUFFER};
    v.meta.dtype = t;
    return nn_leaf(n, name, v, dim);
}

uint32_t plim_nn_fp32_buffer(plim_nn *n, const char *name, plim_ints dim, bool persistent)
{
    plim_value v = {.kind = PLIM_VALUE_BUFFER, .fp32 = true, .persistent = persistent};
    v.meta.dtype = PLIM_F32;
    return nn_leaf(n, name, v, dim);
}

void plim_nn_freeze(plim_nn *n, uint32_t param)
{
    plim_assert(n->st || param != PLIM_NONE);
    if (!n->st)
        n->g->values[param].requires_grad = false;
}

uint32_t plim_nn_tie(plim_nn *n, const char *name, uint32_t param)
{
    if (n->st)
        return PLIM_NONE;
    plim_meta m = n->g->values[param].meta;
    uint32_t id = plim_nn_param(n, name, (plim_ints){m.dim, (uint32_t)m.rank});
    if (!n->st)
        n->g->values[id].tied_to = param;
    return id;
}

uint32_t plim_nn_input(plim_nn *n, const char *name, plim_dtype t, plim_ints dim)
{
    plim_value v = {.name = plim_str_of(name),
                    .kind = PLIM_VALUE_INPUT,
                    .meta = plim_meta_make(t, (int32_t)dim.n, dim.p),
                    .tied_to = PLIM_NONE,
                    .node = PLIM_NONE};
    uint64_t bytes;
    if (n->st)
        return PLIM_NONE;
    if (!plim_meta_bytes(&v.meta, &bytes)) {
        plim_nn_fail(n, PLIM_ERANGE, "size of the input '%s' overflows", name);
        return PLIM_NONE;
    }
    uint32_t id = plim_graph_add_value(n->g, &v);
    if (id == PLIM_NONE || !plim_graph_add_input(n->g, id))
        nn_oom(n);
    return id;
}

void plim_nn_output(plim_nn *n, uint32_t x)
{
    if (!n->st && !plim_graph_add_output(n->g, x))
        nn_oom(n);
}

/* ---- the order of registration ---------------------------------------------------- */

void plim_nn_order(plim_nn *n, const char *children)
{
    if (n->st)
        return;
    if (!PLIM_PUSH_ROOM(n->g->arena, n->orders, n->n_orders, n->cap_orders)) {
        nn_oom(n);
        return;
    }
    n->orders[n->n_orders++] = (struct plim_nn_order){n->scope, children};
}

/* The tree of scopes with the leaves of each, and the leaves in their new order. */
typedef struct settling {
    const plim_graph *g;
    uint32_t *child, *sibling; /* by scope */
    uint32_t *leaf, *next;     /* by scope; by leaf: into `leaves` */
    const char **order;        /* by scope */
    const struct plim_nn_leaf *leaves;
    uint32_t *out; /* value ids */
    uint32_t n_out;
} settling;

/* Whether this is the scope's own name: "model.layers.0" is "0" within its parent. */
static bool scope_is(const plim_graph *g, uint32_t scope, const char *name, size_t n)
{
    plim_str path = g->scopes[scope].path;
    return path.n >= n && memcmp(path.p + path.n - n, name, n) == 0 &&
           (path.n == n || path.p[path.n - n - 1] == '.');
}

/* Whether the child is one of the names in "q_proj k_proj". */
static bool is_named(const settling *s, uint32_t child, const char *names)
{
    for (size_t len; *names; names += len + (names[len] == ' ')) {
        len = strcspn(names, " ");
        if (scope_is(s->g, child, names, len))
            return true;
    }
    return false;
}

static void settle_scope(settling *s, uint32_t scope)
{
    const char *all = s->order[scope] ? s->order[scope] : "", *name = all;
    for (uint32_t l = s->leaf[scope]; l != PLIM_NONE; l = s->next[l])
        s->out[s->n_out++] = s->leaves[l].value;
    for (size_t len; *name; name += len + (name[len] == ' ')) {
        len = strcspn(name, " ");
        for (uint32_t c = s->child[scope]; c != PLIM_NONE; c = s->sibling[c])
            if (*name == '*' ? !is_named(s, c, all) : scope_is(s->g, c, name, len))
                settle_scope(s, c);
    }
    for (uint32_t c = s->child[scope]; c != PLIM_NONE && !*all; c = s->sibling[c])
        settle_scope(s, c);
}

static bool settle_tree(plim_nn *n, settling *s)
{
    plim_arena *a = n->g->arena;
    uint32_t scopes = n->g->n_scopes;
    *s = (settling){.g = n->g, .leaves = n->leaves};
    s->child = PLIM_NEW_N(a, uint32_t, scopes);
    s->sibling = PLIM_NEW_N(a, uint32_t, scopes);
    s->leaf = PLIM_NEW_N(a, uint32_t, scopes);
    s->order = PLIM_NEW_N(a, const char *, scopes);
    s->next = PLIM_NEW_N(a, uint32_t, n->n_leaves);
    s->out = PLIM_NEW_N(a, uint32_t, n->n_leaves);
    if (!s->child || !s->sibling || !s->leaf || !s->order || !s->next || !s->out)
        return false;
    for (uint32_t i = 0; i < scopes; i++)
        s->child[i] = s->sibling[i] = s->leaf[i] = PLIM_NONE;
    for (uint32_t i = scopes; i-- > 1;) { /* backwards: each is put at the front */
        uint32_t up = n->g->scopes[i].parent;
        s->sibling[i] = s->child[up];
        s->child[up] = i;
    }
    for (uint32_t i = n->n_leaves; i-- > 0;) {
        s->next[i] = s->leaf[n->leaves[i].scope];
        s->leaf[n->leaves[i].scope] = i;
    }
    for (uint32_t i = 0; i < n->n_orders; i++)
        s->order[n->orders[i].scope] = n->orders[i].children;
    return true;
}

/* Replaces the ids in every use of a value; arguments are in the builder's own arena. */
static void nn_rename(plim_graph *g, const uint32_t *id)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to != PLIM_NONE)
            g->values[i].tied_to = id[g->values[i].tied_to];
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args; k++) {
            plim_arg *a = (plim_arg *)&g->nodes[i].args[k];
            if (a->kind == PLIM_ARG_VALUE && a->id != PLIM_NONE)
                a->id = id[a->id];
            for (uint32_t j = 0; a->kind == PLIM_ARG_VALUES && j < a->n; j++)
                if (a->ids[j] != PLIM_NONE)
                    ((uint32_t *)a->ids)[j] = id[a->ids[j]];
        }
}

void plim_nn_settle(plim_nn *n)
{
    plim_graph *g = n->g;
    settling s;
    if (n->st || !n->n_orders)
        return;
    uint32_t *id = PLIM_NEW_N(g->arena, uint32_t, g->n_values);
    plim_value *moved = PLIM_NEW_N(g->arena, plim_value, n->n_leaves);
    if (!id || !moved || !settle_tree(n, &s)) {
        nn_oom(n);
        return;
    }
    settle_scope(&s, 0);
    for (uint32_t i = 0; i < g->n_values; i++)
        id[i] = i;
    for (uint32_t i = 0; i < n->n_leaves; i++) {
        moved[i] = g->values[s.out[i]];
        id[s.out[i]] = n->leaves[i].value;
    }
    for (uint32_t i = 0; i < n->n_leaves; i++)
        g->values[n->leaves[i].value] = moved[i];
    nn_rename(g, id);
}

/* ---- nodes ------------------------------------------------------------------------ */

/* Splits "aten.relu_.default" into its parts; NULL: failed. */
static const struct plim_nn_target *nn_find(plim_nn *n, const char *target)
{
    uint32_t at = (uint32_t)((uintptr_t)target * 0x9e3779b97f4a7c15u >> 32) % PLIM_NN_CACHE;
    struct plim_nn_target *t = &n->cache[at];
    if (t->target == target)
        return t;
    const char *base = strchr(target, '.') + 1, *overload = strchr(base, '.') + 1;
    t->target = NULL;
    t->op = plim_op_find((plim_str){base, (size_t)(overload - base) - 1},
                         plim_str_of(overload), &t->inplace);
    if (!t->op)
        plim_nn_fail(n, PLIM_EUNSUPPORTED, "op '%s' has no rule", target);
    else if (!plim_schema_read(n->g->arena, t->op->schema, &t->schema))
        nn_oom(n);
    if (n->st)
        return NULL;
    t->target = target;
    return t;
}

/* Lists are on the caller's stack: copies them into the graph's arena. */
static bool nn_keep_lists(plim_nn *n, plim_arg *args, uint32_t n_args)
{
    for (uint32_t i = 0; i < n_args; i++) {
        uint64_t size = args[i].kind == PLIM_ARG_INTS     ? sizeof(int64_t)
                        : args[i].kind == PLIM_ARG_VALUES ? sizeof(uint32_t)
                                                          : 0;
        if (!size || !args[i].n)
            continue;
        void *p = plim_arena_new(n->g->arena, args[i].n, size);
        if (!p)
            return false;
        memcpy(p, args[i].ints, (size_t)(args[i].n * size));
        args[i].ints = p;
    }
    return true;
}

static uint32_t nn_result(plim_nn *n, plim_str name)
{
    plim_value v = {
        .name = name, .kind = PLIM_VALUE_NODE, .tied_to = PLIM_NONE, .node = PLIM_NONE};
    return plim_graph_add_value(n->g, &v);
}

/* ---- shapes --------------------------------------------------------------------------- */

/* Recognises calls of an op with sizes that were inferred before: a model consists of layers
 * that are alike.  A rule's shapes depend on its arguments only, and on tensors only through
 * their metas. */

static uint64_t nn_mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x9e3779b97f4a7c15u; }

static uint64_t nn_hash(const plim_graph *g, const plim_node *node)
{
    uint64_t h = nn_mix(0, (uint64_t)(uintptr_t)node->op);
    for (uint32_t i = 0; i < node->n_args; i++) {
        const plim_arg *a = &node->args[i];
        h = nn_mix(h, a->kind == PLIM_ARG_INT ? (uint64_t)a->i : (uint64_t)a->kind);
        for (uint32_t k = 0; k < plim_arg_values(a); k++) {
            uint32_t id = plim_arg_value(a, k);
            const plim_meta *m = id == PLIM_NONE ? NULL : &g->values[id].meta;
            for (int32_t d = 0; m && d < m->rank; d++)
                h = nn_mix(h, (uint64_t)m->dim[d]);
        }
    }
    return h ^ h >> 32;
}

static bool nn_same_values(const plim_graph *g, const plim_arg *a, const plim_arg *b)
{
    for (uint32_t k = 0; k < plim_arg_values(a); k++) {
        uint32_t x = plim_arg_value(a, k), y = plim_arg_value(b, k);
        bool both = x != PLIM_NONE && y != PLIM_NONE;
        if (x != y && !(both && !memcmp(&g->values[x].meta, &g->values[y].meta,
                                        sizeof g->values[x].meta)))
            return false;
    }
    return true;
}

static bool nn_same_arg(const plim_graph *g, const plim_arg *a, const plim_arg *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case PLIM_ARG_NONE: return true;
    case PLIM_ARG_VALUE: return nn_same_values(g, a, b);
    case PLIM_ARG_VALUES: return a->n == b->n && nn_same_values(g, a, b);
    case PLIM_ARG_INT: return a->i == b->i;
    case PLIM_ARG_INTS:
        return a->n == b->n && (!a->n || !memcmp(a->ints, b->ints, a->n * sizeof *a->ints));
    case PLIM_ARG_STR: return plim_str_eq(a->str, b->str);
    case PLIM_ARG_FLOAT: return !(a->f < b->f) && !(a->f > b->f);
    case PLIM_ARG_FLOATS: break;
    }
    return false;
}

static bool nn_same_call(const plim_graph *g, const plim_node *a, const plim_node *b)
{
    bool same = a->op == b->op && a->inplace == b->inplace && a->n_args == b->n_args &&
                a->n_outs == b->n_outs;
    for (uint32_t i = 0; same && i < a->n_args; i++)
        same = nn_same_arg(g, &a->args[i], &b->args[i]);
    return same;
}

/* The shapes of the node's outputs: from its rule, or from an equal call. */
static plim_status nn_infer(plim_nn *n, const plim_node *node)
{
    plim_graph *g = n->g;
    uint32_t *slot = &n->seen[nn_hash(g, node) % PLIM_NN_CACHE];
    const plim_node *like = *slot && *slot <= g->n_nodes ? &g->nodes[*slot - 1] : NULL;
    *slot = g->n_nodes + 1;
    if (!like || !nn_same_call(g, node, like))
        return plim_op_infer(g, node, n->err);
    for (uint32_t i = 0; i < node->n_outs; i++)
        g->values[node->outs[i]].meta = g->values[like->outs[i]].meta;
    return PLIM_OK;
}

static void nn_check_sizes(plim_nn *n, const plim_node *node)
{
    uint64_t bytes;
    for (uint32_t i = 0; i < node->n_outs; i++)
        if (!plim_meta_bytes(&n->g->values[node->outs[i]].meta, &bytes))
            plim_nn_fail(n, PLIM_ERANGE, "size of the output of '" PLIM_STR_FMT "' overflows",
                         PLIM_STR_ARG(n->g->scopes[n->scope].path));
}

void plim_nn_node(plim_nn *n, const char *target, const plim_named_arg *args, uint32_t n_args,
                  uint32_t *out, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = PLIM_NONE;
    if (n->st)
        return;
    plim_graph *g = n->g;
    const struct plim_nn_target *t = nn_find(n, target);
    if (!t)
        return;
    plim_node node = {.op = t->op,
                      .target = plim_str_of(target),
                      .inplace = t->inplace,
                      .scope = n->scope,
                      .n_args = t->schema.n,
                      .n_outs = n_out};
    plim_arg *bound;
    n->st = plim_op_bind_read(g->arena, t->op, &t->schema, args, n_args, &bound, n->err);
    if (n->st)
        return;
    uint32_t *outs = PLIM_NEW_N(g->arena, uint32_t, n_out);
    if (!outs || !nn_keep_lists(n, bound, node.n_args)) {
        nn_oom(n);
        return;
    }
    node.args = bound;
    node.outs = outs;
    for (uint32_t i = 0; i < n_out; i++) {
        outs[i] = nn_result(n, plim_str_of(node.op->name));
        if (outs[i] == PLIM_NONE) {
            nn_oom(n);
            return;
        }
    }
    n->st = nn_infer(n, &node);
    if (!n->st)
        nn_check_sizes(n, &node);
    if (!n->st && plim_graph_add_node(g, &node) == PLIM_NONE)
        nn_oom(n);
    for (uint32_t i = 0; i < n_out && !n->st; i++)
        out[i] = outs[i];
}

uint32_t plim_nn_op(plim_nn *n, const char *target, const plim_named_arg *args,
                    uint32_t n_args)
{
    uint32_t out;
    plim_nn_node(n, target, args, n_args, &out, 1);
    return out;
}

uint32_t plim_nn_unary(plim_nn *n, const char *target, uint32_t x)
{
    return NN_OP(n, target, ARG_T("self", x));
}

uint32_t plim_nn_binary(plim_nn *n, const char *target, uint32_t a, uint32_t b)
{
    return NN_OP(n, target, ARG_T("self", a), ARG_T("other", b));
}

uint32_t plim_nn_scalar(plim_nn *n, const char *target, uint32_t x, double other)
{
    if (!n->st && !plim_is_float(n->g->values[x].meta.dtype))
        return NN_OP(n, target, ARG_T("self", x), ARG_I("other", (int64_t)other));
    return NN_OP(n, target, ARG_T("self", x), ARG_F("other", other));
}

uint32_t plim_nn_to(plim_nn *n, uint32_t x, plim_dtype t)
{
    return NN_OP(n, "aten.to.dtype", ARG_T("self", x), ARG_I("dtype", t));
}

uint32_t plim_nn_to_like(plim_nn *n, uint32_t x, uint32_t of)
{
    return plim_nn_binary(n, "aten.type_as.default", x, of);
}

uint32_t plim_nn_expand(plim_nn *n, uint32_t x, plim_ints size)
{
    return NN_OP(n, "aten.expand.default", ARG_T("self", x), ARG_IS("size", size));
}

void plim_nn_chunk(plim_nn *n, uint32_t x, uint32_t count, int64_t dim, uint32_t *out)
{
    const plim_named_arg a[] = {ARG_T("self", x), ARG_I("chunks", count), ARG_I("dim", dim)};
    plim_nn_node(n, "aten.chunk.default", a, PLIM_COUNT(a), out, count);
}

void plim_nn_split(plim_nn *n, uint32_t x, plim_ints sizes, int64_t dim, uint32_t *out)
{
    const plim_named_arg a[] = {ARG_T("self", x), ARG_IS("split_sizes", sizes),
                                ARG_I("dim", dim)};
    plim_nn_node(n, "aten.split_with_sizes.default", a, PLIM_COUNT(a), out, sizes.n);
}

uint32_t plim_nn_arange(plim_nn *n, int64_t end)
{
    return NN_OP(n, "aten.arange.default", ARG_I("end", end));
}

uint32_t plim_nn_softmax(plim_nn *n, uint32_t x, int64_t dim)
{
    return NN_OP(n, "aten.softmax.int", ARG_T("self", x), ARG_I("dim", dim));
}

uint32_t plim_nn_cat(plim_nn *n, const uint32_t *x, uint32_t count, int64_t dim)
{
    return NN_OP(n, "aten.cat.default", ARG_TS("tensors", x, count), ARG_I("dim", dim));
}

uint32_t plim_nn_flatten1(plim_nn *n, uint32_t x)
{
    return NN_OP(n, "aten.flatten.using_ints", ARG_T("self", x), ARG_I("start_dim", 1));
}

uint32_t plim_nn_view(plim_nn *n, uint32_t x, plim_ints size)
{
    return NN_OP(n, "aten.view.default", ARG_T("self", x), ARG_IS("size", size));
}

uint32_t plim_nn_reshape(plim_nn *n, uint32_t x, plim_ints shape)
{
    return NN_OP(n, "aten.reshape.default", ARG_T("self", x), ARG_IS("shape", shape));
}

uint32_t plim_nn_permute(plim_nn *n, uint32_t x, plim_ints dims)
{
    return NN_OP(n, "aten.permute.default", ARG_T("self", x), ARG_IS("dims", dims));
}

uint32_t plim_nn_transpose(plim_nn *n, uint32_t x, int64_t dim0, int64_t dim1)
{
    return NN_OP(n, "aten.transpose.int", ARG_T("self", x), ARG_I("dim0", dim0),
                 ARG_I("dim1", dim1));
}

/* Python's .contiguous() of a contiguous tensor does not reach the dispatcher. */
uint32_t plim_nn_contiguous(plim_nn *n, uint32_t x)
{
    if (n->st || plim_is_contiguous(&n->g->values[x].meta))
        return x;
    return plim_nn_unary(n, "aten.contiguous.default", x);
}

uint32_t plim_nn_unsqueeze(plim_nn *n, uint32_t x, int64_t dim)
{
    return NN_OP(n, "aten.unsqueeze.default", ARG_T("self", x), ARG_I("dim", dim));
}

uint32_t plim_nn_select(plim_nn *n, uint32_t x, int64_t dim, int64_t index)
{
    return NN_OP(n, "aten.select.int", ARG_T("self", x), ARG_I("dim", dim),
                 ARG_I("index", index));
}

uint32_t plim_nn_slice(plim_nn *n, uint32_t x, int64_t dim, int64_t start, int64_t end,
                       int64_t step)
{
    return NN_OP(n, "aten.slice.Tensor", ARG_T("self", x), ARG_I("dim", dim),
                 ARG_I("start", start), ARG_I("end", end), ARG_I("step", step));
}

uint32_t plim_nn_pad(plim_nn *n, uint32_t x, plim_ints pad)
{
    return NN_OP(n, "aten.pad.default", ARG_T("self", x), ARG_IS("pad", pad));
}

uint32_t plim_nn_mean_hw(plim_nn *n, uint32_t x)
{
    return NN_OP(n, "aten.mean.dim", ARG_T("self", x), ARG_IS("dim", INTS(2, 3)));
}

uint32_t plim_nn_linear_op(plim_nn *n, uint32_t x, uint32_t weight, uint32_t bias)
{
    if (bias == PLIM_NONE)
        return NN_OP(n, "aten.linear.default", ARG_T("input", x), ARG_T("weight", weight));
    return NN_OP(n, "aten.linear.default", ARG_T("input", x), ARG_T("weight", weight),
                 ARG_T("bias", bias));
}

uint32_t plim_nn_dropout_op(plim_nn *n, uint32_t x, double p)
{
    return NN_OP(n, "aten.dropout.default", ARG_T("input", x), ARG_F("p", p),
                 ARG_I("train", 1));
}

uint32_t plim_nn_layer_norm_op(plim_nn *n, uint32_t x, double eps)
{
    plim_ints dim = INTS(plim_nn_dim(n, x, -1));
    uint32_t w = plim_nn_param(n, "weight", dim), b = plim_nn_param(n, "bias", dim);
    return NN_OP(n, "aten.layer_norm.default", ARG_T("input", x),
                 ARG_IS("normalized_shape", dim), ARG_T("weight", w), ARG_T("bias", b),
                 ARG_F("eps", eps));
}

uint32_t plim_nn_avg_pool_op(plim_nn *n, uint32_t x, int64_t kernel, int64_t stride,
                             int64_t pad)
{
    return NN_OP(n, "aten.avg_pool2d.default", ARG_T("self", x),
                 ARG_IS("kernel_size", INTS(kernel, kernel)),
                 ARG_IS("stride", INTS(stride, stride)), ARG_IS("padding", INTS(pad, pad)));
}

uint32_t plim_nn_max_pool_op(plim_nn *n, uint32_t x, int64_t kernel, int64_t stride,
                             int64_t pad, bool ceil)
{
    return NN_OP(n, "aten.max_pool2d.default", ARG_T("self", x),
                 ARG_IS("kernel_size", INTS(kernel, kernel)),
                 ARG_IS("stride", INTS(stride, stride)), ARG_IS("padding", INTS(pad, pad)),
                 ARG_I("ceil_mode", ceil));
}

uint32_t plim_nn_adaptive_avg_op(plim_nn *n, uint32_t x, int64_t size)
{
    return NN_OP(n, "aten.adaptive_avg_pool2d.default", ARG_T("self", x),
                 ARG_IS("output_size", INTS(size, size)));
}

/* ---- modules ------------------------------------------------------------------------ */

static plim_conv conv_defaults(plim_conv c)
{
    c.kernel = c.kernel ? c.kernel : 1;
    c.stride = c.stride ? c.stride : 1;
    c.groups = c.groups ? c.groups : 1;
    c.pad_w = c.kernel_w ? c.pad_w : c.pad;
    c.kernel_w = c.kernel_w ? c.kernel_w : c.kernel;
    return c;
}

uint32_t plim_nn_conv2d(plim_nn *n, const char *name, uint32_t x, plim_conv c)
{
    c = conv_defaults(c);
    plim_nn_enter(n, name, "Conv2d");
    uint32_t w = plim_nn_param(
        n, "weight", INTS(c.out, plim_nn_dim(n, x, 1) / c.groups, c.kernel, c.kernel_w));
    uint32_t b = c.bias ? plim_nn_param(n, "bias", INTS(c.out)) : PLIM_NONE;
    plim_ints stride = INTS(c.stride, c.stride), pad = INTS(c.pad, c.pad_w);
    plim_named_arg a[6] = {ARG_T("input", x),         ARG_T("weight", w),
                           ARG_IS("stride", stride),  ARG_IS("padding", pad),
                           ARG_I("groups", c.groups), ARG_T("bias", b)};
    x = plim_nn_op(n, "aten.conv2d.default", a, c.bias ? 6 : 5);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_conv_transpose2d(plim_nn *n, const char *name, uint32_t x, plim_conv c)
{
    c = conv_defaults(c);
    plim_nn_enter(n, name, "ConvTranspose2d");
    uint32_t w =
        plim_nn_param(n, "weight", INTS(plim_nn_dim(n, x, 1), c.out, c.kernel, c.kernel_w));
    uint32_t b = plim_nn_param(n, "bias", INTS(c.out));
    x = NN_OP(n, "aten.conv_transpose2d.input", ARG_T("input", x), ARG_T("weight", w),
              ARG_T("bias", b), ARG_IS("stride", INTS(c.stride, c.stride)));
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_batch_norm2d(plim_nn *n, const char *name, uint32_t x, plim_norm norm)
{
    plim_nn_enter(n, name, "BatchNorm2d");
    plim_ints c = INTS(plim_nn_dim(n, x, 1));
    uint32_t w = plim_nn_param(n, "weight", c), b = plim_nn_param(n, "bias", c);
    uint32_t mean = plim_nn_buffer(n, "running_mean", PLIM_F32, c);
    uint32_t var = plim_nn_buffer(n, "running_var", PLIM_F32, c);
    uint32_t count = plim_nn_buffer(n, "num_batches_tracked", PLIM_I64, (plim_ints){NULL, 0});
    NN_OP(n, "aten.add_.Tensor", ARG_T("self", count), ARG_I("other", 1));
    x = NN_OP(n, "aten.batch_norm.default", ARG_T("input", x), ARG_T("weight", w),
              ARG_T("bias", b), ARG_T("running_mean", mean), ARG_T("running_var", var),
              ARG_I("training", 1), ARG_F("momentum", norm.momentum), ARG_F("eps", norm.eps));
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_layer_norm(plim_nn *n, const char *name, uint32_t x, double eps)
{
    plim_nn_enter(n, name, "LayerNorm");
    x = plim_nn_layer_norm_op(n, x, eps);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_plain_linear(plim_nn *n, uint32_t x, int64_t out, bool bias)
{
    uint32_t w = plim_nn_param(n, "weight", INTS(out, plim_nn_dim(n, x, -1)));
    uint32_t b = bias ? plim_nn_param(n, "bias", INTS(out)) : PLIM_NONE;
    return plim_nn_linear_op(n, x, w, b);
}

uint32_t plim_nn_linear(plim_nn *n, const char *name, uint32_t x, int64_t out, bool bias)
{
    plim_nn_enter(n, name, "Linear");
    x = n->linear(n, x, out, bias);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_embedding_op(plim_nn *n, uint32_t ids, uint32_t weight)
{
    return NN_OP(n, "aten.embedding.default", ARG_T("weight", weight), ARG_T("indices", ids));
}

uint32_t plim_nn_embedding(plim_nn *n, const char *name, uint32_t ids, int64_t rows,
                           int64_t width, uint32_t *weight)
{
    plim_nn_enter(n, name, "Embedding");
    uint32_t w = plim_nn_param(n, "weight", INTS(rows, width));
    uint32_t x = plim_nn_embedding_op(n, ids, w);
    plim_nn_leave(n);
    if (weight)
        *weight = w;
    return x;
}

/* clang-format off */
static const struct {
    const char *type, *target;
} act_rows[] = {
    [PLIM_RELU]        = {"ReLU",        "aten.relu.default"},
    [PLIM_RELU_]       = {"ReLU",        "aten.relu_.default"},
    [PLIM_RELU6_]      = {"ReLU6",       "aten.hardtanh_.default"},
    [PLIM_SILU_]       = {"SiLU",        "aten.silu_.default"},
    [PLIM_HARDSWISH_]  = {"Hardswish",   "aten.hardswish_.default"},
    [PLIM_GELU]        = {"GELU",        "aten.gelu.default"},
    [PLIM_TANH]        = {"Tanh",        "aten.tanh.default"},
    [PLIM_SIGMOID]     = {"Sigmoid",     "aten.sigmoid.default"},
    [PLIM_HARDSIGMOID] = {"Hardsigmoid", "aten.hardsigmoid.default"},
};
/* clang-format on */

uint32_t plim_nn_act(plim_nn *n, const char *name, uint32_t x, plim_act a)
{
    plim_nn_enter(n, name, act_rows[a].type);
    if (a == PLIM_RELU6_) /* F.hardtanh(x, 0, 6) */
        x = NN_OP(n, act_rows[a].target, ARG_T("self", x), ARG_F("min_val", 0),
                  ARG_F("max_val", 6));
    else
        x = plim_nn_unary(n, act_rows[a].target, x);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_max_pool2d(plim_nn *n, const char *name, uint32_t x, int64_t kernel,
                            int64_t stride, int64_t pad, bool ceil)
{
    plim_nn_enter(n, name, "MaxPool2d");
    x = plim_nn_max_pool_op(n, x, kernel, stride, pad, ceil);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_avg_pool2d(plim_nn *n, const char *name, uint32_t x, int64_t kernel)
{
    plim_nn_enter(n, name, "AvgPool2d");
    x = plim_nn_avg_pool_op(n, x, kernel, kernel, 0);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_adaptive_avg_pool2d(plim_nn *n, const char *name, uint32_t x, int64_t size)
{
    plim_nn_enter(n, name, "AdaptiveAvgPool2d");
    x = plim_nn_adaptive_avg_op(n, x, size);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_dropout(plim_nn *n, const char *name, uint32_t x, double p)
{
    plim_nn_enter(n, name, "Dropout");
    x = plim_nn_dropout_op(n, x, p);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_dropout_(plim_nn *n, const char *name, uint32_t x, double p)
{
    plim_nn_enter(n, name, "Dropout");
    x = NN_OP(n, "aten.dropout_.default", ARG_T("self", x), ARG_F("p", p), ARG_I("train", 1));
    plim_nn_leave(n);
    return x;
}

/* ---- torchvision.ops ------------------------------------------------------------------ */

/* src: torchvision/ops/misc.py ConvNormActivation */
uint32_t plim_nn_conv_norm_act(plim_nn *n, const char *name, uint32_t x, plim_conv c,
                               plim_norm norm, plim_act act)
{
    c.pad = c.kernel ? (c.kernel - 1) / 2 : 0;
    plim_nn_enter(n, name, "Conv2dNormActivation");
    x = plim_nn_conv2d(n, NULL, x, c);
    x = plim_nn_batch_norm2d(n, NULL, x, norm);
    if (act != PLIM_ACT_NONE)
        x = plim_nn_act(n, NULL, x, act);
    plim_nn_leave(n);
    return x;
}

/* src: torchvision/ops/misc.py SqueezeExcitation */
uint32_t plim_nn_squeeze_excite(plim_nn *n, const char *name, uint32_t x, int64_t squeeze,
                                plim_act act, plim_act scale)
{
    int64_t in = plim_nn_dim(n, x, 1);
    plim_nn_enter(n, name, "SqueezeExcitation");
    uint32_t s = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    s = plim_nn_conv2d(n, "fc1", s, (plim_conv){.out = squeeze, .bias = true});
    s = plim_nn_act(n, "activation", s, act);
    s = plim_nn_conv2d(n, "fc2", s, (plim_conv){.out = in, .bias = true});
    s = plim_nn_act(n, "scale_activation", s, scale);
    x = plim_nn_binary(n, "aten.mul.Tensor", s, x);
    plim_nn_leave(n);
    return x;
}

/* src: torchvision/ops/stochastic_depth.py */
uint32_t plim_nn_stochastic_depth(plim_nn *n, uint32_t x, double p)
{
    if (p == 0 || n->infer)
        return x;
    double survival = 1.0 - p;
    plim_nn_enter(n, "stochastic_depth", "StochasticDepth");
    /* torch.empty(size, dtype=x.dtype): of the type that x has when it runs */
    uint32_t noise = NN_OP(n, "aten.new_empty.default", ARG_T("self", x),
                           ARG_IS("size", INTS(plim_nn_dim(n, x, 0), 1, 1, 1)));
    noise = NN_OP(n, "aten.bernoulli_.float", ARG_T("self", noise), ARG_F("p", survival));
    noise = NN_OP(n, "aten.div_.Tensor", ARG_T("self", noise), ARG_F("other", survival));
    x = plim_nn_binary(n, "aten.mul.Tensor", x, noise);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_nn_permute_module(plim_nn *n, const char *name, uint32_t x, plim_ints dims)
{
    plim_nn_enter(n, name, "Permute");
    x = plim_nn_permute(n, x, dims);
    plim_nn_leave(n);
    return x;
}

int64_t plim_nn_make_divisible8(double v)
{
    int64_t r = (int64_t)(v + 4) / 8 * 8;
    r = PLIM_MAX(r, 8);
    return (double)r < 0.9 * v ? r + 8 : r;
}
