/* pt2_note.c -- the first phase: see pt2_priv.h. */
#include "import/pt2/pt2_priv.h"

/* ---- arguments --------------------------------------------------------------------- */

/* Kinds of arguments: the tag in the file and the kind it becomes.  src:
 * torch/_export/serde/schema.py, Argument.  A tag not listed leaves the node without a
 * rule. */
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

/* A number, "Infinity" as torch writes it, or {"as_float": number}; false for a name: floats
 * computed from sizes are not tracked. */
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

/* A tensor that may be absent: {"name": ..}, {"as_tensor": ..}, {"as_none": ..}. */
static plim_status read_value(pt2 *f, pt2_env *env, plim_json *j, uint32_t *id)
{
    plim_str name = plim_pt2_read_name(j);
    *id = PLIM_NONE;
    if (j->bad || !name.n)
        return j->bad;
    if (env->running)
        return plim_pt2_get_value(f, env, name, id);
    *id = plim_pt2_intern_name(f, env, name);
    return *id != PLIM_NONE ? PLIM_OK : plim_oom(f->err);
}

/* The items of a list argument.  *known is set to false if one is not known. */
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

/* Records the place of a subgraph instead of reading it; false: not a subgraph. */
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
plim_status plim_pt2_read_args(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n)
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
    uint32_t at = plim_pt2_intern_name(f, env, name);
    if (at == PLIM_NONE || !PLIM_PUSH_ROOM(f->a, env->outs, env->n_outs, env->cap_outs))
        return plim_oom(f->err);
    env->outs[env->n_outs++] = at;
    n->n_outs++;
    return PLIM_OK;
}

/* Tensors that a node produces, with lists flattened.  Symbols are left out: the file has
 * their values. */
plim_status plim_pt2_read_outputs(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n)
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

/* The stack of modules that it was called in: often that of the node before. */
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

/* Reads a part of a node; if it must wait until the node is run, skips it. */
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
            st = note_part(f, env, j, n, plim_pt2_read_args);
        } else if (plim_str_is(key, "outputs")) {
            n->outputs = (uint32_t)j->at;
            st = note_part(f, env, j, n, plim_pt2_read_outputs);
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

static plim_status note_nodes(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_json ahead = *j;
    pt2_node n;
    ahead.err = &env->after_nodes;
    env->after_nodes = (plim_err)PLIM_ERR_INIT;
    env->n_nodes = 0;
    plim_json_array(&ahead);
    while (plim_json_item(&ahead)) {
        PLIM_TRY(note_node(f, env, &ahead, &n));
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

/* ---- where the parts of a graph are ---------------------------------------------- */

/* {"name": ..., "name": ...}: records the place of each value. */
static plim_status index_names(pt2 *f, plim_json *j, plim_map *map)
{
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        plim_json_peek(j);
        if (!plim_map_put(f->a, map, key, (uint32_t)j->at))
            return plim_oom(f->err);
        plim_json_skip(j);
    }
    return j->bad;
}

/* The same for tensors. */
static plim_status index_tensors(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        uint32_t name = plim_pt2_intern_name(f, env, key);
        plim_json_peek(j);
        uint32_t at = (uint32_t)j->at;
        if (name == PLIM_NONE || !plim_pt2_skip_seen(f, j, &env->metas) ||
            !PLIM_PUSH_ROOM(f->a, env->shapes, env->n_shapes, env->cap_shapes))
            return plim_oom(f->err);
        env->n_shapes = env->metas.n;
        env->names[name].at = at;
        env->names[name].shape = env->metas.last;
    }
    return j->bad;
}

plim_status plim_pt2_note_graph(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_str key;
    plim_status st = PLIM_OK;
    bool nodes = false;
    plim_json_object(j);
    while (!st && plim_json_member(j, &key)) {
        if (plim_str_is(key, "inputs"))
            env->inputs = *j;
        else if (plim_str_is(key, "outputs"))
            env->outputs = *j;
        if (plim_str_is(key, "nodes")) {
            nodes = true;
            st = note_nodes(f, j, env);
        } else if (plim_str_is(key, "tensor_values"))
            st = index_tensors(f, j, env);
        else if (plim_str_is(key, "sym_int_values") || plim_str_is(key, "sym_float_values") ||
                 plim_str_is(key, "sym_bool_values"))
            st = index_names(f, j, &env->syms);
        else
            plim_json_skip(j);
    }
    if (!st && !j->bad && (!nodes || !env->inputs.p || !env->outputs.p))
        plim_json_fail(j, PLIM_EFORMAT, "a graph without inputs, outputs or nodes");
    return st ? st : j->bad;
}
