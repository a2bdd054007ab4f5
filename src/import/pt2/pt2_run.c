/* pt2_run.c -- the second phase: see pt2_priv.h. */
#include "import/pt2/pt2_priv.h"

enum { PT2_MAX_INLINE = 16 };

/* ---- scopes ------------------------------------------------------------------------ */

/* "L['self'].layer1@2" becomes "layer1": torch 2.1 wrote it so, and so is a second call. */
static plim_str clean_path(plim_str s)
{
    static const char self[] = "L['self']";
    if (plim_str_starts(s, self)) {
        size_t n = sizeof self - 1;
        n += s.n > n && s.p[n] == '.';
        s = (plim_str){s.p + n, s.n - n};
    }
    size_t digits = 0;
    while (digits < s.n && s.p[s.n - 1 - digits] >= '0' && s.p[s.n - 1 - digits] <= '9')
        digits++;
    if (digits && digits < s.n && s.p[s.n - 1 - digits] == '@')
        s.n -= digits + 1;
    return s;
}

/* entry: "key,path,type" */
static uint32_t open_scope(pt2 *f, plim_str entry, uint32_t parent)
{
    plim_str rest = entry;
    plim_pt2_upto(&rest, ',');
    plim_str raw_type = plim_pt2_after_last(rest, ',');
    plim_str path = clean_path((plim_str){rest.p, rest.n - raw_type.n});
    if (path.n && path.p[path.n - 1] == ',')
        path = clean_path((plim_str){path.p, path.n - 1});
    plim_str type = plim_json_unescape(f->a, plim_pt2_after_last(raw_type, '.'));
    path = plim_json_unescape(f->a, path);
    if (!type.p || !path.p)
        return PLIM_NONE;
    if (path.n)
        return plim_graph_add_scope(f->g, parent, path, type);
    if (!f->g->scopes[0].type.n)
        f->g->scopes[0].type = type;
    return 0;
}

/* Scope of a node with this "nn_module_stack".  The part it shares with the node before is the
 * same call of the same modules; the rest are new calls. */
static plim_status find_scope(pt2 *f, plim_str text, uint32_t *out)
{
    uint32_t depth = 0, parent = 0;
    bool same = true;
    *out = 0;
    if (text.n && text.p == f->last_stack) {
        *out = f->stack_scope[f->n_stack - 1];
        return PLIM_OK;
    }
    if (!text.n || plim_str_starts(text, "_empty_nn_module_stack"))
        return PLIM_OK; /* not made in a module */
    f->last_stack = text.p;
    while (text.n && depth < PT2_MAX_STACK) {
        plim_str entry = plim_pt2_upto(&text, ';');
        same = same && depth < f->n_stack && plim_str_eq(entry, f->stack[depth]);
        if (!same) {
            f->stack[depth] = entry;
            f->stack_scope[depth] = open_scope(f, entry, parent);
            if (f->stack_scope[depth] == PLIM_NONE)
                return plim_oom(f->err);
        }
        parent = f->stack_scope[depth++];
    }
    f->n_stack = depth;
    *out = parent;
    return PLIM_OK;
}

/* ---- targets ----------------------------------------------------------------------- */

static plim_str short_target(plim_str t)
{
    const char *prefix = "torch.ops.";
    size_t n = strlen(prefix);
    return plim_str_starts(t, prefix) ? (plim_str){t.p + n, t.n - n} : t;
}

/* Splits "aten.conv2d.default" into namespace, name, overload. */
static const plim_op *find_op(plim_str target, bool *inplace)
{
    plim_str rest = target, space = plim_pt2_upto(&rest, '.'),
             overload = plim_pt2_after_last(rest, '.');
    plim_str base = {rest.p, rest.n - overload.n};
    if (base.n)
        base.n--; /* the dot */
    else
        base = overload, overload = (plim_str){NULL, 0};
    *inplace = base.n > 1 && base.p[base.n - 1] == '_' && base.p[base.n - 2] != '_';
    bool known = plim_str_is(space, "aten") || plim_str_is(space, "transformers");
    return known ? plim_op_find(base, overload, inplace) : NULL;
}

/* NULL: no memory. */
static const pt2_op *know_target(pt2 *f, plim_str raw)
{
    uint32_t *at = plim_map_at(f->a, &f->targets, raw);
    if (!at || !PLIM_PUSH_ROOM(f->a, f->ops, f->n_ops, f->cap_ops))
        return NULL;
    if (!*at) {
        pt2_op *row = &f->ops[f->n_ops];
        row->target = plim_json_unescape(f->a, short_target(raw));
        row->op = find_op(row->target, &row->inplace);
        if (!row->target.p)
            return NULL;
        *at = ++f->n_ops;
    }
    return &f->ops[*at - 1];
}

/* Binds arguments to the slots of the rule; without a rule, keeps them in order. */
static plim_status bind_args(pt2 *f, plim_node *n, const plim_named_arg *args, uint32_t n_args)
{
    if (n->op) {
        plim_status st = plim_op_bind(f->a, n->op, args, n_args, &n->args, &n->n_args, NULL);
        if (st == PLIM_OK || st == PLIM_ENOMEM)
            return st ? plim_oom(f->err) : st;
        n->op = NULL;
    }
    plim_arg *plain = PLIM_NEW_N(f->a, plim_arg, n_args);
    if (!plain)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < n_args; i++)
        plain[i] = args[i].arg;
    n->args = plain;
    n->n_args = n_args;
    return PLIM_OK;
}

/* Adds a node of this target with its scope and outputs. */
static plim_status add_node(pt2 *f, plim_str target, plim_node n, const plim_named_arg *args,
                            uint32_t n_args, bool rule)
{
    const pt2_op *known = know_target(f, target);
    if (!known)
        return plim_oom(f->err);
    n.op = rule ? known->op : NULL;
    n.target = known->target;
    n.inplace = known->inplace;
    plim_status st = bind_args(f, &n, args, n_args);
    if (!st && plim_graph_add_node(f->g, &n) == PLIM_NONE)
        return plim_oom(f->err);
    return st;
}

/* ---- higher-order ops ---------------------------------------------------------- */

/* Ops that only set a mode around a subgraph; the subgraph's nodes replace them.  `mode` is
 * the argument that says whether gradients, or autocast, are on. */
enum { WRAP_GRAD, WRAP_AUTOCAST };
static const struct {
    const char *target;
    uint32_t mode;
} wrappers[] = {
    [WRAP_GRAD] = {"torch.ops.higher_order.wrap_with_set_grad_enabled", 0},
    [WRAP_AUTOCAST] = {"torch.ops.higher_order.wrap_with_autocast", 2},
};

static int find_wrapper(plim_str target)
{
    for (size_t i = 0; i < PLIM_COUNT(wrappers); i++)
        if (plim_str_is(target, wrappers[i].target))
            return (int)i;
    return -1;
}

/* Without gradients inside: equivalent to detached inputs, which take no memory. */
static plim_status detach_input(pt2 *f, uint32_t scope, uint32_t *id)
{
    plim_named_arg self = {PLIM_STR("self"), {.kind = PLIM_ARG_VALUE, .id = *id}};
    plim_value v = f->g->values[*id];
    if (!plim_is_float(v.meta.dtype))
        return PLIM_OK;
    v.kind = PLIM_VALUE_NODE;
    v.requires_grad = false;
    v.tied_to = v.node = PLIM_NONE;
    uint32_t *out = PLIM_NEW(f->a, uint32_t);
    if (!out || (*out = plim_graph_add_value(f->g, &v)) == PLIM_NONE)
        return plim_oom(f->err);
    *id = *out;
    plim_node n = {.scope = scope, .outs = out, .n_outs = 1};
    return add_node(f, PLIM_STR("aten.detach.default"), n, &self, 1, true);
}

static plim_status enter_graph(pt2 *f, pt2_env *env, const pt2_node *n,
                               const plim_named_arg *args, bool no_grad, uint32_t scope)
{
    plim_json j = plim_pt2_json_at(f, n->graph);
    plim_status st = plim_pt2_note_graph(f, &j, env);
    uint32_t i = n->graph_arg;
    if (st)
        return st;
    j = env->inputs;
    plim_json_array(&j);
    while (!st && plim_json_item(&j)) {
        plim_str name = plim_pt2_read_name(&j);
        const plim_arg *a = ++i < n->n_args ? &args[i].arg : NULL;
        if (j.bad || !name.n)
            continue;
        if (!a || a->kind != PLIM_ARG_VALUE)
            return plim_fail(f->err, PLIM_EFORMAT, j.at,
                             "input '" PLIM_STR_FMT "' of a subgraph is not given a tensor",
                             PLIM_STR_ARG(name));
        uint32_t id = a->id;
        if (no_grad)
            st = detach_input(f, scope, &id);
        uint32_t at = plim_pt2_intern_name(f, env, name);
        if (at == PLIM_NONE)
            return plim_oom(f->err);
        if (!st)
            env->names[at].id = id;
    }
    return st ? st : j.bad;
}

static plim_status leave_graph(pt2 *f, const pt2_env *inner, pt2_env *env, const pt2_node *n)
{
    plim_json j = inner->outputs;
    plim_status st = PLIM_OK;
    uint32_t k = 0, id;
    plim_json_array(&j);
    while (!st && plim_json_item(&j)) {
        plim_str name = plim_pt2_read_name(&j);
        if (j.bad || !name.n)
            continue;
        st = plim_pt2_get_value(f, inner, name, &id);
        if (!st && k < n->n_outs)
            env->names[env->outs[n->outs + k++]].id = id;
    }
    if (!st && !j.bad && k < n->n_outs)
        return plim_fail(f->err, PLIM_EFORMAT, j.at, "a subgraph has %u outputs, %u are used",
                         (unsigned)k, (unsigned)n->n_outs);
    return st ? st : j.bad;
}

static plim_status inline_graph(pt2 *f, pt2_env *env, const pt2_node *n,
                                const plim_named_arg *args, bool no_grad, uint32_t scope)
{
    pt2_env inner = {0};
    if (f->inlined >= PT2_MAX_INLINE)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, n->graph,
                         "subgraphs are nested deeper than %d", PT2_MAX_INLINE);
    f->inlined++;
    plim_status st = enter_graph(f, &inner, n, args, no_grad, scope);
    if (!st)
        st = plim_pt2_run_nodes(f, &inner);
    if (!st)
        st = leave_graph(f, &inner, env, n);
    f->inlined--;
    return st;
}

/* ---- in order -------------------------------------------------------------------- */

/* Replaces the tensors among the arguments, so far indices into names, by values. */
static plim_status find_values(pt2 *f, pt2_env *env, const pt2_node *n)
{
    for (uint32_t i = 0; i < n->n_args; i++) {
        plim_arg *a = &env->args[n->args + i].arg;
        for (uint32_t k = 0; k < plim_arg_values(a); k++) {
            uint32_t *id =
                a->kind == PLIM_ARG_VALUE ? &a->id : (uint32_t *)(uintptr_t)&a->ids[k];
            const pt2_name *name = *id == PLIM_NONE ? NULL : &env->names[*id];
            if (name && name->id == PLIM_NONE)
                return plim_pt2_undefined(f, name->name);
            if (name)
                *id = name->id;
        }
    }
    return PLIM_OK;
}

static plim_status run_node(pt2 *f, pt2_env *env, pt2_node *n)
{
    uint32_t scope;
    plim_status st = PLIM_OK;
    if (n->later) {
        plim_json j = plim_pt2_json_at(f, n->outputs);
        n->known = true;
        st = plim_pt2_read_outputs(f, env, &j, n);
    }
    if (st || !n->n_outs) /* sizes and checks of sizes: the file has the results */
        return st;
    if ((st = find_scope(f, n->stack, &scope)) != 0)
        return st;
    if (n->later) {
        plim_json j = plim_pt2_json_at(f, n->inputs);
        st = plim_pt2_read_args(f, env, &j, n);
    } else {
        st = find_values(f, env, n);
    }
    if (st)
        return st;
    const plim_named_arg *args = &env->args[n->args];
    int w = n->graph ? find_wrapper(n->target) : -1;
    if (w >= 0) {
        uint32_t mode = wrappers[w].mode;
        const plim_arg *on = mode < n->n_args ? &args[mode].arg : NULL;
        bool off = on && on->kind == PLIM_ARG_INT && !on->i;
        f->autocast |= w == WRAP_AUTOCAST && !off;
        return inline_graph(f, env, n, args, w == WRAP_GRAD && off, scope);
    }
    uint32_t *outs = PLIM_NEW_N(f->a, uint32_t, n->n_outs);
    if (!outs)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < n->n_outs && !st; i++) {
        uint32_t name = env->outs[n->outs + i];
        plim_value v = {.name = env->names[name].name, .kind = PLIM_VALUE_NODE};
        st = plim_pt2_add_value(f, env, name, v, &outs[i]);
    }
    plim_node node = {.scope = scope, .outs = outs, .n_outs = n->n_outs};
    return st ? st : add_node(f, n->target, node, args, n->n_args, n->known);
}

plim_status plim_pt2_run_nodes(pt2 *f, pt2_env *env)
{
    env->running = true;
    for (uint32_t i = 0; i < env->n_nodes; i++) {
        pt2_node *n = &env->nodes[i];
        plim_status st = run_node(f, env, n);
        if (st) {
            plim_err_prefix(f->err, "node '%.*s': ", (int)PLIM_MIN(n->target.n, 80),
                            n->target.p);
            return st;
        }
    }
    const plim_err *after = &env->after_nodes;
    return after->code ? plim_fail(f->err, after->code, after->at, "%s", after->msg) : PLIM_OK;
}
