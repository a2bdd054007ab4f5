/* pt2_node.c -- see pt2_priv.h. */
#include "import/pt2/pt2_priv.h"

enum { PT2_MAX_INLINE = 16 };

/* ---- scopes ------------------------------------------------------------------------ */

/* "L['self'].layer1@2" is "layer1", as torch 2.1 wrote it and for a second call. */
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

/* Scope of a node with this "nn_module_stack".  What it has in common with the
 * node before is the same call of the same modules; the rest are new calls. */
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
        return PLIM_OK; /* made by no module */
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

/* ---- arguments --------------------------------------------------------------------- */

/* What an argument may hold, its tag in the file and what it becomes.  src:
 * torch/_export/serde/schema.py, Argument.  A tag that is not here leaves the
 * node without a rule. */
typedef enum pt2_as {
    AS_NONE,
    AS_TENSOR,
    AS_TENSORS,
    AS_INT,
    AS_INTS,
    AS_BOOL,
    AS_BOOLS,
    AS_FLOAT,
    AS_FLOATS,
    AS_STRING,
    AS_SCALAR_TYPE,
    AS_DEVICE
} pt2_as;

static const struct {
    const char *tag;
    pt2_as as;
} arg_tags[] = {
    {"as_tensor", AS_TENSOR},
    {"as_int", AS_INT},
    {"as_ints", AS_INTS},
    {"as_bool", AS_BOOL},
    {"as_float", AS_FLOAT},
    {"as_none", AS_NONE},
    {"as_sym_ints", AS_INTS},
    {"as_tensors", AS_TENSORS},
    {"as_sym_int", AS_INT},
    {"as_scalar_type", AS_SCALAR_TYPE},
    {"as_memory_format", AS_INT},
    {"as_layout", AS_INT},
    {"as_device", AS_DEVICE},
    {"as_string", AS_STRING},
    {"as_optional_tensor", AS_TENSOR},
    {"as_optional_tensors", AS_TENSORS},
    {"as_bools", AS_BOOLS},
    {"as_floats", AS_FLOATS},
    {"as_sym_bool", AS_BOOL},
    {"as_sym_float", AS_FLOAT},
    {"as_sym_floats", AS_FLOATS},
};

/* A number, or {"as_name": symbol} or {"as_int": number}. */
static plim_status read_int(pt2 *f, pt2_env *env, plim_json *j, int64_t *out)
{
    plim_str tag;
    plim_status st = PLIM_OK;
    if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        *out = plim_json_i64(j);
        return j->bad;
    }
    if (!plim_pt2_enter_union(j, &tag))
        return j->bad;
    if (plim_str_is(tag, "as_name") && !env->running) {
        env->later = true;
        plim_json_skip(j);
    } else if (plim_str_is(tag, "as_name")) {
        uint32_t at;
        plim_str name = plim_json_str(j);
        if (!j->bad && !plim_map_get(&env->syms, name, &at))
            plim_json_fail(j, PLIM_EFORMAT, "symbol '" PLIM_STR_FMT "' has no value",
                           PLIM_STR_ARG(name));
        if (!j->bad) {
            plim_json where = plim_pt2_json_at(f, at);
            pt2_size s = plim_pt2_read_size(&where);
            st = where.bad ? where.bad : plim_pt2_eval_size(f, &s, out);
        }
    } else {
        *out = plim_json_i64(j);
    }
    plim_pt2_leave_union(j);
    return st ? st : j->bad;
}

/* A number, "Infinity" as torch writes it, or {"as_float": number}; false for a
 * name: floats that are computed from sizes are not followed. */
static bool read_float(plim_json *j, double *out)
{
    plim_str tag;
    bool known = true;
    if (plim_json_peek(j) == PLIM_JSON_STRING) {
        plim_json word = *j;
        plim_str s = plim_json_str(j);
        word.n = word.at + 1 + s.n; /* up to the closing quote */
        word.at++;
        word.lax = true;
        word.err = NULL;
        *out = plim_json_f64(&word);
        return !word.bad;
    }
    if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        *out = plim_json_f64(j);
        return true;
    }
    if (plim_pt2_enter_union(j, &tag)) {
        known = plim_str_is(tag, "as_float");
        if (known)
            *out = plim_json_f64(j);
        else
            plim_json_skip(j);
        plim_pt2_leave_union(j);
    }
    return known;
}

static bool read_bool(plim_json *j, int64_t *out)
{
    plim_str tag;
    bool known = true;
    if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        *out = plim_json_bool(j);
        return true;
    }
    if (plim_pt2_enter_union(j, &tag)) {
        known = plim_str_is(tag, "as_bool");
        if (known)
            *out = plim_json_bool(j);
        else
            plim_json_skip(j);
        plim_pt2_leave_union(j);
    }
    return known;
}

/* A tensor that may be missing: {"name": ..}, {"as_tensor": ..}, {"as_none": ..}. */
static plim_status read_value(pt2 *f, pt2_env *env, plim_json *j, uint32_t *id)
{
    plim_str name = plim_pt2_read_name(j);
    *id = PLIM_NONE;
    if (j->bad || !name.n)
        return j->bad;
    if (env->running)
        return plim_pt2_get_value(f, env, name, id);
    *id = plim_pt2_name(f, env, name);
    return *id != PLIM_NONE ? PLIM_OK : plim_oom(f->err);
}

/* The items of a list argument.  *known: false if one is not. */
static plim_status read_list(pt2 *f, pt2_env *env, plim_json *j, pt2_as as, plim_arg *out,
                             bool *known)
{
    uint32_t *ids = NULL, n = 0, cap = 0;
    int64_t *ints = NULL;
    double *floats = NULL;
    plim_status st = PLIM_OK;
    plim_json_array(j);
    while (!st && plim_json_item(j)) {
        bool room = as == AS_TENSORS  ? PLIM_PUSH_ROOM(f->a, ids, n, cap)
                    : as == AS_FLOATS ? PLIM_PUSH_ROOM(f->a, floats, n, cap)
                                      : PLIM_PUSH_ROOM(f->a, ints, n, cap);
        if (!room)
            return plim_oom(f->err);
        if (as == AS_TENSORS)
            st = read_value(f, env, j, &ids[n]);
        else if (as == AS_INTS)
            st = read_int(f, env, j, &ints[n]);
        else
            *known &= as == AS_FLOATS ? read_float(j, &floats[n]) : read_bool(j, &ints[n]);
        n++;
    }
    out->n = n;
    if (as == AS_TENSORS) {
        out->kind = PLIM_ARG_VALUES;
        out->ids = ids;
    } else if (as == AS_FLOATS) {
        out->kind = PLIM_ARG_FLOATS;
        out->floats = floats;
    } else {
        out->kind = PLIM_ARG_INTS;
        out->ints = ints;
    }
    return st ? st : j->bad;
}

static plim_status read_text(pt2 *f, plim_json *j, plim_arg *out)
{
    plim_str s = plim_json_str(j);
    if (j->bad)
        return j->bad;
    out->kind = PLIM_ARG_STR;
    out->str = plim_json_unescape(f->a, s);
    return out->str.p ? PLIM_OK : plim_oom(f->err);
}

static plim_status read_device(pt2 *f, plim_json *j, plim_arg *out)
{
    plim_str key;
    plim_status st = PLIM_OK;
    plim_json_object(j);
    while (!st && plim_json_member(j, &key))
        if (plim_str_is(key, "type"))
            st = read_text(f, j, out);
        else
            plim_json_skip(j);
    return st ? st : j->bad;
}

/* Remembers where a subgraph stands instead of reading it; false: it is none. */
static bool take_graph(plim_json ahead, pt2_node *n)
{
    plim_str key;
    plim_json_object(&ahead);
    while (plim_json_member(&ahead, &key)) {
        if (plim_str_is(key, "graph")) {
            n->graph = (uint32_t)ahead.at;
            n->graph_arg = n->n_args;
        }
        plim_json_skip(&ahead);
    }
    return !ahead.bad;
}

/* An Argument: {"as_...": ...}. */
static plim_status read_arg(pt2 *f, pt2_env *env, plim_json *j, plim_arg *out, pt2_node *n)
{
    plim_str tag;
    plim_status st = PLIM_OK;
    plim_dtype dtype;
    bool *known = &n->known, some = plim_pt2_enter_union(j, &tag);
    if (some && plim_str_is(tag, "as_graph")) {
        env->later = true;
        if (env->running && take_graph(*j, n)) {
            plim_json_skip(j);
            plim_pt2_leave_union(j);
            return j->bad;
        }
    }
    *out = (plim_arg){.kind = PLIM_ARG_NONE};
    if (!some)
        return j->bad;
    size_t i = 0;
    while (i < PLIM_COUNT(arg_tags) && !plim_str_is(tag, arg_tags[i].tag))
        i++;
    if (i == PLIM_COUNT(arg_tags)) {
        *known = false;
        plim_json_skip(j);
        plim_pt2_leave_union(j);
        return j->bad;
    }
    switch (arg_tags[i].as) {
    case AS_NONE: plim_json_skip(j); break;
    case AS_TENSOR:
        st = read_value(f, env, j, &out->id);
        out->kind = out->id == PLIM_NONE ? PLIM_ARG_NONE : PLIM_ARG_VALUE;
        break;
    case AS_INT:
        out->kind = PLIM_ARG_INT;
        st = read_int(f, env, j, &out->i);
        break;
    case AS_BOOL:
        out->kind = PLIM_ARG_INT;
        *known &= read_bool(j, &out->i);
        break;
    case AS_FLOAT:
        out->kind = PLIM_ARG_FLOAT;
        *known &= read_float(j, &out->f);
        break;
    case AS_SCALAR_TYPE:
        out->kind = PLIM_ARG_INT;
        if (plim_pt2_read_scalar_type(j, &dtype))
            out->i = dtype;
        else
            *known = false;
        break;
    case AS_STRING: st = read_text(f, j, out); break;
    case AS_DEVICE: st = read_device(f, j, out); break;
    case AS_TENSORS:
    case AS_INTS:
    case AS_BOOLS:
    case AS_FLOATS: st = read_list(f, env, j, arg_tags[i].as, out, known); break;
    }
    plim_pt2_leave_union(j);
    return st ? st : j->bad;
}

/* A node's "inputs": [{"name": .., "arg": ..}, ...]. */
static plim_status read_args(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n)
{
    plim_str key;
    plim_status st = PLIM_OK;
    n->args = env->n_args;
    n->n_args = 0;
    plim_json_array(j);
    while (!st && plim_json_item(j)) {
        plim_named_arg one = {{NULL, 0}, {.kind = PLIM_ARG_NONE}};
        plim_json_object(j);
        while (!st && plim_json_member(j, &key))
            if (plim_str_is(key, "name"))
                one.name = plim_json_str(j);
            else if (plim_str_is(key, "arg"))
                st = read_arg(f, env, j, &one.arg, n);
            else
                plim_json_skip(j);
        if (!PLIM_PUSH_ROOM(f->a, env->args, env->n_args, env->cap_args))
            return plim_oom(f->err);
        env->args[env->n_args++] = one;
        n->n_args++;
    }
    return st ? st : j->bad;
}

static plim_status read_output_name(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n)
{
    plim_str name = plim_pt2_read_name(j);
    if (j->bad)
        return j->bad;
    n->known &= name.n != 0;
    if (!name.n)
        return PLIM_OK;
    uint32_t at = plim_pt2_name(f, env, name);
    if (at == PLIM_NONE || !PLIM_PUSH_ROOM(f->a, env->outs, env->n_outs, env->cap_outs))
        return plim_oom(f->err);
    env->outs[env->n_outs++] = at;
    n->n_outs++;
    return PLIM_OK;
}

/* Tensors that a node makes, lists among them laid flat.  Symbols are left out:
 * the file has their values. */
static plim_status read_outputs(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n)
{
    plim_str tag;
    plim_status st = PLIM_OK;
    n->outs = env->n_outs;
    n->n_outs = 0;
    plim_json_array(j);
    while (plim_json_item(j)) {
        if (!plim_pt2_enter_union(j, &tag))
            continue;
        if (plim_str_is(tag, "as_tensors") || plim_str_is(tag, "as_optional_tensors")) {
            plim_json_array(j);
            while (!st && plim_json_item(j))
                st = read_output_name(f, env, j, n);
        } else if (plim_str_is(tag, "as_tensor") || plim_str_is(tag, "as_optional_tensor")) {
            st = read_output_name(f, env, j, n);
        } else {
            n->known &= !plim_str_is(tag, "as_none");
            plim_json_skip(j);
        }
        if (st)
            return st;
        plim_pt2_leave_union(j);
    }
    return j->bad;
}

/* ---- nodes ----------------------------------------------------------------------------- */

/* Of the modules that it was called in: often those of the node before. */
static plim_status read_metadata(pt2 *f, plim_json *j, pt2_node *n, plim_str before)
{
    plim_str key, quoted = before;
    if (before.n) {
        quoted.p--;
        quoted.n += 2;
    }
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "stack_trace")) {
            if (!plim_pt2_skip_seen(f, j, &f->traces))
                return plim_oom(f->err);
        } else if (plim_str_is(key, "nn_module_stack") &&
                   plim_json_peek(j) == PLIM_JSON_STRING) {
            n->stack = plim_json_again(j, quoted) ? before : plim_json_str(j);
        } else {
            plim_json_skip(j);
        }
    return PLIM_OK;
}

typedef plim_status pt2_reader(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n);

/* Reads a part of a node, unless it has to wait for the node's turn: then it is skipped. */
static plim_status note_part(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n, pt2_reader *read)
{
    plim_json ahead = *j;
    ahead.err = NULL;
    plim_status st = read(f, env, &ahead, n);
    n->later |= env->later || ahead.bad;
    env->later = false;
    if (ahead.bad)
        plim_json_skip(j);
    else
        j->at = ahead.at;
    return ahead.bad ? PLIM_OK : st;
}

static plim_status note_node(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n)
{
    plim_str key, stack = env->n_nodes ? env->nodes[env->n_nodes - 1].stack : PLIM_STR("");
    plim_status st = PLIM_OK;
    *n = (pt2_node){.known = true};
    plim_json_object(j);
    while (!st && plim_json_member(j, &key)) {
        if (plim_str_is(key, "target")) {
            n->target = plim_json_str(j);
        } else if (plim_str_is(key, "inputs")) {
            n->inputs = (uint32_t)j->at;
            st = note_part(f, env, j, n, read_args);
        } else if (plim_str_is(key, "outputs")) {
            n->outputs = (uint32_t)j->at;
            st = note_part(f, env, j, n, read_outputs);
        } else if (plim_str_is(key, "metadata") && plim_json_peek(j) == PLIM_JSON_OBJECT) {
            st = read_metadata(f, j, n, stack);
        } else {
            plim_json_skip(j);
        }
    }
    if (!st && !j->bad && (!n->target.n || !n->inputs || !n->outputs))
        plim_json_fail(j, PLIM_EFORMAT, "a node without target, inputs or outputs");
    return st;
}

plim_status plim_pt2_note_nodes(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_json ahead = *j;
    pt2_node n;
    ahead.err = &env->after_nodes;
    env->after_nodes = (plim_err)PLIM_ERR_INIT;
    env->n_nodes = 0;
    plim_json_array(&ahead);
    while (plim_json_item(&ahead)) {
        plim_status st = note_node(f, env, &ahead, &n);
        if (st)
            return st;
        if (ahead.bad)
            break;
        if (!PLIM_PUSH_ROOM(f->a, env->nodes, env->n_nodes, env->cap_nodes))
            return plim_oom(f->err);
        env->nodes[env->n_nodes++] = n;
    }
    if (ahead.bad)
        plim_json_skip(j);
    else
        j->at = ahead.at;
    return j->bad;
}

static plim_str short_target(plim_str t)
{
    const char *prefix = "torch.ops.";
    size_t n = strlen(prefix);
    return plim_str_starts(t, prefix) ? (plim_str){t.p + n, t.n - n} : t;
}

/* "aten.conv2d.default": namespace, name, overload. */
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

/* Arguments into the slots of the rule; without one, as they stand. */
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

/* Those that only set a mode around a subgraph; its nodes stand in for them.
 * `mode` is the argument that says whether gradients are on. */
static const struct {
    const char *target;
    int mode;
} wrappers[] = {
    {"torch.ops.higher_order.wrap_with_set_grad_enabled", 0},
    {"torch.ops.higher_order.wrap_with_autocast", -1},
};

static int find_wrapper(plim_str target)
{
    for (size_t i = 0; i < PLIM_COUNT(wrappers); i++)
        if (plim_str_is(target, wrappers[i].target))
            return (int)i;
    return -1;
}

/* No gradients inside: the same as detached inputs, which take no memory. */
static plim_status detach(pt2 *f, uint32_t scope, uint32_t *id)
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
    plim_status st = plim_pt2_index_graph(f, &j, env);
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
                             "input '" PLIM_STR_FMT "' of a subgraph is given no tensor",
                             PLIM_STR_ARG(name));
        uint32_t id = a->id;
        if (no_grad)
            st = detach(f, scope, &id);
        uint32_t at = plim_pt2_name(f, env, name);
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
        return plim_fail(f->err, PLIM_EFORMAT, j.at,
                         "a subgraph has %u outputs where %u are used", (unsigned)k,
                         (unsigned)n->n_outs);
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

/* The tensors among the arguments, which have been places of names. */
static plim_status find_values(pt2 *f, pt2_env *env, const pt2_node *n)
{
    for (uint32_t i = 0; i < n->n_args; i++) {
        plim_arg *a = &env->args[n->args + i].arg;
        for (uint32_t k = 0; k < plim_arg_values(a); k++) {
            uint32_t *id =
                a->kind == PLIM_ARG_VALUE ? &a->id : (uint32_t *)(uintptr_t)&a->ids[k];
            const pt2_name *name = *id == PLIM_NONE ? NULL : &env->names[*id];
            if (name && name->id == PLIM_NONE)
                return plim_pt2_not_made(f, name->name);
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
        st = read_outputs(f, env, &j, n);
    }
    if (st || !n->n_outs) /* sizes and checks of sizes: the file has the results */
        return st;
    if ((st = find_scope(f, n->stack, &scope)) != 0)
        return st;
    if (n->later) {
        plim_json j = plim_pt2_json_at(f, n->inputs);
        st = read_args(f, env, &j, n);
    } else {
        st = find_values(f, env, n);
    }
    if (st)
        return st;
    const plim_named_arg *args = &env->args[n->args];
    int w = n->graph ? find_wrapper(n->target) : -1;
    if (w >= 0) {
        int mode = wrappers[w].mode;
        bool no_grad = mode >= 0 && (uint32_t)mode < n->n_args &&
                       args[mode].arg.kind == PLIM_ARG_INT && !args[mode].arg.i;
        return inline_graph(f, env, n, args, no_grad, scope);
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
