/* pt2.c -- torch.export archives (.pt2), and the model JSON out of one.
 *
 * Read by what fields are there, not by version: torch 2.1 to 2.14 differ in
 * where the archive keeps its JSON and in which optional fields it writes.
 * docs/formats/pt2.md says what is read.  The JSON is walked in place: a first
 * pass notes where the parts of the graph are, then nodes are read in order and
 * sizes evaluated where they are met. */
#include <stdio.h>

#include "base/json.h"
#include "base/zip.h"
#include "import/import.h"
#include "import/symexpr.h"
#include "import/ties.h"
#include "op/op.h"

#define PT2_JSON_LIMIT (1ull << 30)
enum { PT2_MAX_STACK = 64, PT2_MAX_INLINE = 16 };

/* Names of one graph of the file; subgraphs have their own. */
typedef struct pt2_env {
    plim_map metas; /* tensor name: place of its TensorMeta in the JSON */
    plim_map syms;  /* symbolic int, float or bool: place of its value */
    plim_map ids;   /* tensor name: value id */
    plim_json inputs, outputs, nodes;
} pt2_env;

typedef struct pt2_size {
    bool is_expr;
    int64_t value; /* or hint */
    bool has_hint;
    plim_str expr;
} pt2_size;

/* A tensor that comes into the graph. */
typedef struct pt2_input {
    plim_value_kind kind;
    plim_str arg, name; /* as in the graph; as in the model */
    bool persistent;
} pt2_input;

typedef struct pt2_range {
    plim_str expr;
    int64_t min, max;
} pt2_range;

typedef struct pt2 {
    plim_graph *g;
    plim_arena *a;
    plim_err *err;
    const plim_binding *bind;
    plim_json text; /* of the whole JSON, at its start */
    plim_str producer;
    plim_symbols syms;
    pt2_input *inputs;
    plim_str *outputs;
    pt2_range *ranges;
    uint32_t n_inputs, cap_inputs, n_outputs, cap_outputs, n_ranges, cap_ranges;
    plim_str stack[PT2_MAX_STACK]; /* module stack of the last node, entry by entry */
    uint32_t stack_scope[PT2_MAX_STACK];
    uint32_t n_stack;
    int inlined;
} pt2;

#define PUSH(f, list, n, cap, item)                                                           \
    (PLIM_PUSH_ROOM((f)->a, (f)->list, (f)->n, (f)->cap)                                      \
         ? ((f)->list[(f)->n++] = (item), true)                                               \
         : false)

static plim_json json_at(const pt2 *f, uint32_t at)
{
    plim_json j = f->text;
    j.at = at;
    return j;
}

/* Into a one-key object, {"as_int": 3}; false if it is empty. */
static bool enter_union(plim_json *j, plim_str *tag)
{
    return plim_json_object(j) && plim_json_member(j, tag);
}

/* Out of it: whatever else it may hold is skipped. */
static void leave_union(plim_json *j)
{
    plim_str key;
    while (plim_json_member(j, &key))
        plim_json_skip(j);
}

/* A tensor's name: "x", {"name": "x"} or {"as_tensor": {"name": "x"}}; {NULL, 0}
 * for anything else (constants, None). */
static plim_str read_name(plim_json *j)
{
    plim_str name = {NULL, 0}, key;
    if (plim_json_peek(j) == PLIM_JSON_STRING)
        return plim_json_str(j);
    if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        plim_json_skip(j);
        return name;
    }
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "name") || plim_str_is(key, "as_tensor"))
            name = read_name(j);
        else
            plim_json_skip(j);
    return name;
}

/* ======================================================================== */
/* Sizes                                                                     */
/* ======================================================================== */

static int64_t read_hint(plim_json *j, bool *has)
{
    plim_str tag;
    int64_t v = 0;
    switch (plim_json_peek(j)) {
    case PLIM_JSON_NUMBER: *has = true; return plim_json_i64(j);
    case PLIM_JSON_OBJECT:
        if (enter_union(j, &tag)) {
            if (plim_str_is(tag, "as_int"))
                v = read_hint(j, has);
            else
                plim_json_skip(j);
            leave_union(j);
        }
        return v;
    default: plim_json_skip(j); return 0;
    }
}

static void read_expr(plim_json *j, pt2_size *out)
{
    plim_str key;
    out->is_expr = true;
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "expr_str"))
            out->expr = plim_json_str(j);
        else if (plim_str_is(key, "hint"))
            out->value = read_hint(j, &out->has_hint);
        else
            plim_json_skip(j);
}

static pt2_size read_size(plim_json *j)
{
    pt2_size s = {0};
    plim_str tag;
    if (plim_json_peek(j) == PLIM_JSON_NUMBER) {
        s.value = plim_json_i64(j);
    } else if (enter_union(j, &tag)) {
        if (plim_str_is(tag, "as_int"))
            s.value = plim_json_i64(j);
        else if (plim_str_is(tag, "as_expr"))
            read_expr(j, &s);
        else
            plim_json_fail(j, PLIM_EUNSUPPORTED, "a size given as '" PLIM_STR_FMT "'",
                           PLIM_STR_ARG(tag));
        leave_union(j);
    }
    return s;
}

/* The size as a number; a symbol that nothing bound takes the file's hint. */
static plim_status eval_size(pt2 *f, const pt2_size *s, int64_t *out)
{
    plim_str missing, symbol;
    *out = s->value;
    if (!s->is_expr)
        return PLIM_OK;
    plim_err why = PLIM_ERR_INIT;
    plim_status st = plim_symexpr_eval(&f->syms, s->expr, out, &missing, &why);
    if (st == PLIM_ESHAPE && missing.n && s->has_hint) {
        if (plim_symexpr_is_symbol(s->expr, &symbol)) {
            plim_symbol *sym = plim_symbol_get(&f->syms, symbol);
            if (!sym)
                return plim_oom(f->err);
            sym->bound = true;
            sym->value = s->value;
        }
        *out = s->value;
        return PLIM_OK;
    }
    if (st == PLIM_ESHAPE && missing.n)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, why.at,
                         "size '" PLIM_STR_FMT "' depends on the data", PLIM_STR_ARG(missing));
    return st ? plim_fail(f->err, st, why.at, "%s", why.msg) : PLIM_OK;
}

/* ======================================================================== */
/* Tensors                                                                   */
/* ======================================================================== */

/* src: torch/_export/serde/schema.py, ScalarType: not the numbers of
 * c10::ScalarType.  Names stood in the files of torch 2.1. */
static const struct {
    int number;
    const char *name;
    plim_dtype dtype;
} scalar_types[] = {
    {1, "BYTE", PLIM_U8},
    {2, "CHAR", PLIM_I8},
    {3, "SHORT", PLIM_I16},
    {4, "INT", PLIM_I32},
    {5, "LONG", PLIM_I64},
    {6, "HALF", PLIM_F16},
    {7, "FLOAT", PLIM_F32},
    {8, "DOUBLE", PLIM_F64},
    {9, "COMPLEXHALF", PLIM_C32},
    {10, "COMPLEXFLOAT", PLIM_C64},
    {11, "COMPLEXDOUBLE", PLIM_C128},
    {12, "BOOL", PLIM_BOOL},
    {13, "BFLOAT16", PLIM_BF16},
    {28, "UINT16", PLIM_U16},
    {29, "FLOAT8E4M3FN", PLIM_F8E4M3FN},
    {30, "FLOAT8E5M2", PLIM_F8E5M2},
    {31, "FLOAT8E4M3FNUZ", PLIM_F8E4M3FNUZ},
    {32, "FLOAT8E5M2FNUZ", PLIM_F8E5M2FNUZ},
};

static bool read_scalar_type(plim_json *j, plim_dtype *out)
{
    bool named = plim_json_peek(j) == PLIM_JSON_STRING;
    plim_str name = named ? plim_json_str(j) : (plim_str){NULL, 0};
    int64_t number = named ? 0 : plim_json_i64(j);
    for (size_t i = 0; i < PLIM_COUNT(scalar_types) && !j->bad; i++)
        if (named ? plim_str_is(name, scalar_types[i].name)
                  : number == scalar_types[i].number) {
            *out = scalar_types[i].dtype;
            return true;
        }
    return false;
}

typedef struct pt2_tensor {
    plim_dtype dtype;
    bool requires_grad, sparse, has_strides;
    int32_t rank, n_strides;
    pt2_size size[PLIM_MAX_RANK], stride[PLIM_MAX_RANK];
} pt2_tensor;

static int32_t read_sizes(plim_json *j, pt2_size *out)
{
    int32_t n = 0;
    plim_json_array(j);
    while (plim_json_item(j)) {
        if (n == PLIM_MAX_RANK) {
            plim_json_fail(j, PLIM_EUNSUPPORTED, "a tensor of more than %d dimensions",
                           PLIM_MAX_RANK);
            return n;
        }
        out[n++] = read_size(j);
    }
    return n;
}

/* A TensorMeta, its sizes not evaluated yet. */
static void read_tensor(plim_json *j, pt2_tensor *t)
{
    enum { STRIDED = 7, MKLDNN = 6 };
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        if (plim_str_is(key, "dtype")) {
            if (!read_scalar_type(j, &t->dtype))
                plim_json_fail(j, PLIM_EUNSUPPORTED, "a tensor of an unknown data type");
        } else if (plim_str_is(key, "sizes")) {
            t->rank = read_sizes(j, t->size);
        } else if (plim_str_is(key, "strides")) {
            t->has_strides = true;
            t->n_strides = read_sizes(j, t->stride);
        } else if (plim_str_is(key, "requires_grad")) {
            t->requires_grad = plim_json_bool(j);
        } else if (plim_str_is(key, "layout") && plim_json_peek(j) == PLIM_JSON_NUMBER) {
            int64_t layout = plim_json_i64(j);
            t->sparse = layout != STRIDED && layout != MKLDNN;
        } else if (plim_str_is(key, "meta")) { /* torch 2.1: a TensorValue around it */
            read_tensor(j, t);
        } else {
            plim_json_skip(j);
        }
    }
}

static plim_status find_tensor(pt2 *f, const pt2_env *env, plim_str name, pt2_tensor *t)
{
    uint32_t at;
    *t = (pt2_tensor){.rank = -1};
    if (!plim_map_get(&env->metas, name, &at))
        return plim_fail(f->err, PLIM_EFORMAT, 0, "tensor '" PLIM_STR_FMT "' has no shape",
                         PLIM_STR_ARG(name));
    plim_json j = json_at(f, at);
    read_tensor(&j, t);
    if (!j.bad && t->rank < 0)
        plim_json_fail(&j, PLIM_EFORMAT, "tensor '" PLIM_STR_FMT "' has no sizes",
                       PLIM_STR_ARG(name));
    if (!j.bad && t->has_strides && t->n_strides != t->rank)
        plim_json_fail(&j, PLIM_EFORMAT,
                       "tensor '" PLIM_STR_FMT "' has %d sizes and %d strides",
                       PLIM_STR_ARG(name), (int)t->rank, (int)t->n_strides);
    if (!j.bad && t->sparse)
        plim_json_fail(&j, PLIM_EUNSUPPORTED, "tensor '" PLIM_STR_FMT "' is sparse",
                       PLIM_STR_ARG(name));
    return j.bad;
}

static plim_status tensor_meta(pt2 *f, const pt2_env *env, plim_str name, plim_meta *m,
                               bool *requires_grad)
{
    pt2_tensor t;
    uint64_t bytes;
    plim_status st = find_tensor(f, env, name, &t);
    *m = (plim_meta){.dtype = t.dtype, .rank = t.rank};
    *requires_grad = t.requires_grad;
    for (int32_t i = 0; i < t.rank && !st; i++) {
        st = eval_size(f, &t.size[i], &m->dim[i]);
        if (!st && t.has_strides)
            st = eval_size(f, &t.stride[i], &m->stride[i]);
    }
    if (st)
        return st;
    if (!t.has_strides)
        plim_meta_contiguous(m);
    if (!plim_meta_bytes(m, &bytes)) {
        char dims[128];
        return plim_fail(f->err, PLIM_ERANGE, 0,
                         "tensor '" PLIM_STR_FMT "' of %s is too large", PLIM_STR_ARG(name),
                         plim_meta_str(m, dims, sizeof dims));
    }
    return PLIM_OK;
}

/* A new value under this name of the graph. */
static plim_status add_value(pt2 *f, pt2_env *env, plim_str arg, plim_value v, uint32_t *id)
{
    uint32_t old;
    bool requires_grad;
    if (plim_map_get(&env->ids, arg, &old))
        return plim_fail(f->err, PLIM_EFORMAT, 0, "tensor '" PLIM_STR_FMT "' is made twice",
                         PLIM_STR_ARG(arg));
    plim_status st = tensor_meta(f, env, arg, &v.meta, &requires_grad);
    if (st)
        return st;
    v.name = plim_json_unescape(f->a, v.name);
    v.requires_grad = v.kind == PLIM_VALUE_PARAMETER && requires_grad;
    v.tied_to = PLIM_NONE;
    v.node = PLIM_NONE;
    if (!v.name.p || (*id = plim_graph_add_value(f->g, &v)) == PLIM_NONE ||
        !plim_map_put(f->a, &env->ids, arg, *id))
        return plim_oom(f->err);
    return PLIM_OK;
}

static plim_status get_value(pt2 *f, const pt2_env *env, plim_str name, uint32_t *id)
{
    if (plim_map_get(&env->ids, name, id))
        return PLIM_OK;
    return plim_fail(f->err, PLIM_EFORMAT, 0, "tensor '" PLIM_STR_FMT "' is used but not made",
                     PLIM_STR_ARG(name));
}

/* ======================================================================== */
/* First pass: where things are                                              */
/* ======================================================================== */

/* {"name": ..., "name": ...}: the place of each value. */
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

static plim_status index_graph(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_str key;
    plim_status st = PLIM_OK;
    plim_json_object(j);
    while (!st && plim_json_member(j, &key)) {
        plim_json *part = plim_str_is(key, "inputs")    ? &env->inputs
                          : plim_str_is(key, "outputs") ? &env->outputs
                          : plim_str_is(key, "nodes")   ? &env->nodes
                                                        : NULL;
        if (part)
            *part = *j;
        if (plim_str_is(key, "tensor_values"))
            st = index_names(f, j, &env->metas);
        else if (plim_str_is(key, "sym_int_values") || plim_str_is(key, "sym_float_values") ||
                 plim_str_is(key, "sym_bool_values"))
            st = index_names(f, j, &env->syms);
        else
            plim_json_skip(j);
    }
    if (!st && !j->bad && (!env->nodes.p || !env->inputs.p || !env->outputs.p))
        plim_json_fail(j, PLIM_EFORMAT, "a graph without inputs, outputs or nodes");
    return st ? st : j->bad;
}

/* ---- signature: what the graph's inputs and outputs are -------------------- */

/* src: torch/_export/serde/schema.py, InputSpec.  What is not here (tokens,
 * custom objects, plain numbers) is not a tensor. */
static const struct {
    const char *tag, *name_key;
    plim_value_kind kind;
} input_specs[] = {
    {"parameter", "parameter_name", PLIM_VALUE_PARAMETER},
    {"buffer", "buffer_name", PLIM_VALUE_BUFFER},
    {"tensor_constant", "tensor_constant_name", PLIM_VALUE_CONSTANT},
    {"user_input", "", PLIM_VALUE_INPUT},
};

/* The same, as torch 2.1 wrote it: {"arg": "name in the model"}. */
static const struct {
    const char *key;
    plim_value_kind kind;
} input_dicts[] = {
    {"inputs_to_parameters", PLIM_VALUE_PARAMETER},
    {"inputs_to_buffers", PLIM_VALUE_BUFFER},
    {"inputs_to_lifted_tensor_constants", PLIM_VALUE_CONSTANT},
};

static bool read_input_spec(pt2 *f, plim_json *j)
{
    plim_str tag, key;
    if (!enter_union(j, &tag))
        return !j->bad;
    size_t i = 0;
    while (i < PLIM_COUNT(input_specs) && !plim_str_is(tag, input_specs[i].tag))
        i++;
    if (i == PLIM_COUNT(input_specs)) {
        plim_json_skip(j);
        leave_union(j);
        return true;
    }
    pt2_input in = {.kind = input_specs[i].kind, .persistent = true};
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "arg"))
            in.arg = read_name(j);
        else if (plim_str_is(key, input_specs[i].name_key))
            in.name = read_name(j);
        else if (plim_str_is(key, "persistent") && plim_json_peek(j) == PLIM_JSON_BOOL)
            in.persistent = plim_json_bool(j);
        else
            plim_json_skip(j);
    leave_union(j);
    if (!in.name.n)
        in.name = in.arg;
    return !in.arg.n || PUSH(f, inputs, n_inputs, cap_inputs, in);
}

static bool read_output_spec(pt2 *f, plim_json *j)
{
    plim_str tag, key, name = {NULL, 0};
    if (!enter_union(j, &tag))
        return !j->bad;
    bool wanted = plim_str_is(tag, "user_output") || plim_str_is(tag, "loss_output");
    if (wanted) {
        plim_json_object(j);
        while (plim_json_member(j, &key))
            if (plim_str_is(key, "arg"))
                name = read_name(j);
            else
                plim_json_skip(j);
    } else {
        plim_json_skip(j);
    }
    leave_union(j);
    return !name.n || PUSH(f, outputs, n_outputs, cap_outputs, name);
}

static bool read_input_dict(pt2 *f, plim_json *j, plim_value_kind kind)
{
    pt2_input in = {.kind = kind, .persistent = true};
    plim_json_object(j);
    while (plim_json_member(j, &in.arg)) {
        in.name = plim_json_str(j);
        if (!PUSH(f, inputs, n_inputs, cap_inputs, in))
            return false;
    }
    return true;
}

static plim_status read_signature(pt2 *f, plim_json *j)
{
    plim_str key;
    bool room = true;
    plim_json_object(j);
    while (room && plim_json_member(j, &key)) {
        size_t i = 0;
        while (i < PLIM_COUNT(input_dicts) && !plim_str_is(key, input_dicts[i].key))
            i++;
        if (i < PLIM_COUNT(input_dicts)) {
            room = read_input_dict(f, j, input_dicts[i].kind);
        } else if (plim_str_is(key, "input_specs") || plim_str_is(key, "output_specs")) {
            bool in = key.p[0] == 'i';
            plim_json_array(j);
            while (room && plim_json_item(j))
                room = in ? read_input_spec(f, j) : read_output_spec(f, j);
        } else if (plim_str_is(key, "user_inputs") || plim_str_is(key, "user_outputs")) {
            bool in = key.p[5] == 'i';
            plim_json_array(j);
            while (room && plim_json_item(j)) {
                plim_str name = read_name(j);
                pt2_input input = {PLIM_VALUE_INPUT, name, name, true};
                if (name.n)
                    room = in ? PUSH(f, inputs, n_inputs, cap_inputs, input)
                              : PUSH(f, outputs, n_outputs, cap_outputs, name);
            }
        } else {
            plim_json_skip(j);
        }
    }
    return j->bad ? j->bad : room ? PLIM_OK : plim_oom(f->err);
}

/* ---- the top ------------------------------------------------------------------ */

static int64_t read_bound(plim_json *j, int64_t unbounded)
{
    if (plim_json_peek(j) == PLIM_JSON_NUMBER)
        return plim_json_i64(j);
    plim_json_skip(j);
    return unbounded;
}

static plim_status read_ranges(pt2 *f, plim_json *j)
{
    plim_str key;
    pt2_range r;
    plim_json_object(j);
    while (plim_json_member(j, &r.expr)) {
        r.min = 0;
        r.max = INT64_MAX;
        plim_json_object(j);
        while (plim_json_member(j, &key))
            if (plim_str_is(key, "min_val"))
                r.min = read_bound(j, 0);
            else if (plim_str_is(key, "max_val"))
                r.max = read_bound(j, INT64_MAX);
            else
                plim_json_skip(j);
        if (!PUSH(f, ranges, n_ranges, cap_ranges, r))
            return plim_oom(f->err);
    }
    return j->bad;
}

static plim_status read_module(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_str key;
    plim_status st = PLIM_OK;
    bool graph = false, signature = false;
    plim_json_object(j);
    while (!st && plim_json_member(j, &key))
        if (plim_str_is(key, "graph")) {
            graph = true;
            st = index_graph(f, j, env);
        } else if (plim_str_is(key, "signature")) {
            signature = true;
            st = read_signature(f, j);
        } else {
            plim_json_skip(j);
        }
    if (!st && !j->bad && (!graph || !signature))
        plim_json_fail(j, PLIM_EFORMAT, "an exported program without %s",
                       graph ? "signature" : "graph");
    return st ? st : j->bad;
}

static plim_status read_program(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_str key;
    plim_status st = PLIM_OK;
    bool found = false;
    plim_json_object(j);
    while (!st && plim_json_member(j, &key))
        if (plim_str_is(key, "graph_module")) {
            found = true;
            st = read_module(f, j, env);
        } else if (plim_str_is(key, "range_constraints")) {
            st = read_ranges(f, j);
        } else if (plim_str_is(key, "torch_version") &&
                   plim_json_peek(j) == PLIM_JSON_STRING) {
            f->producer = plim_json_str(j);
        } else {
            plim_json_skip(j);
        }
    if (!st && !plim_json_end(j) && !found)
        plim_json_fail(j, PLIM_EFORMAT, "JSON without 'graph_module'");
    return st ? st : j->bad;
}

/* ======================================================================== */
/* Binding                                                                   */
/* ======================================================================== */

/* Puts what the caller asks of a size beside what the file says. */
static plim_status bind_size(pt2 *f, const pt2_size *s, int64_t want, bool *fixed)
{
    plim_str missing;
    *fixed = !s->is_expr;
    if (!s->is_expr)
        return s->value == want ? PLIM_OK : PLIM_EUNSUPPORTED;
    return plim_symexpr_solve(&f->syms, s->expr, want, &missing, f->err);
}

static plim_status bind_shape(pt2 *f, const pt2_env *env, const struct plim_input_shape *shape)
{
    uint32_t i = 0;
    while (i < f->n_inputs &&
           (f->inputs[i].kind != PLIM_VALUE_INPUT ||
            (shape->name.n && !plim_str_eq(f->inputs[i].name, shape->name))))
        i++;
    if (i == f->n_inputs)
        return plim_fail(f->err, PLIM_EUSAGE, 0, "the model has no input '" PLIM_STR_FMT "'",
                         PLIM_STR_ARG(shape->name));
    plim_str name = f->inputs[i].name;
    pt2_tensor t;
    plim_status st = find_tensor(f, env, f->inputs[i].arg, &t);
    if (st)
        return st;
    if (t.rank != shape->rank)
        return plim_fail(f->err, PLIM_ESHAPE, 0,
                         "input '" PLIM_STR_FMT "' has %d dimensions, not %d",
                         PLIM_STR_ARG(name), (int)t.rank, (int)shape->rank);
    for (int32_t d = 0; d < t.rank; d++) {
        bool fixed;
        st = bind_size(f, &t.size[d], shape->dim[d], &fixed);
        if (st && fixed)
            return plim_fail(f->err, st, 0,
                             "dimension %d of input '" PLIM_STR_FMT "' is fixed at %" PRId64
                             ", not %" PRId64
                             ": export again with dynamic_shapes={'" PLIM_STR_FMT
                             "': {%d: torch.export.Dim('dim%d')}}",
                             (int)d, PLIM_STR_ARG(name), t.size[d].value, shape->dim[d],
                             PLIM_STR_ARG(name), (int)d, (int)d);
        if (st) {
            plim_err_prefix(f->err, "dimension %d of input '" PLIM_STR_FMT "': ", (int)d,
                            PLIM_STR_ARG(name));
            return st;
        }
    }
    return PLIM_OK;
}

/* The size in dimension d that stands for all: of the first input where it is a
 * symbol, else of the first input that has it.  False: none has it. */
static plim_status leading_size(pt2 *f, const pt2_env *env, int32_t d, pt2_size *out,
                                plim_str *name, bool *found)
{
    *found = false;
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        pt2_tensor t;
        if (f->inputs[i].kind != PLIM_VALUE_INPUT)
            continue;
        plim_status st = find_tensor(f, env, f->inputs[i].arg, &t);
        if (st)
            return st;
        if (t.rank <= d || (*found && !t.size[d].is_expr))
            continue;
        *out = t.size[d];
        *name = f->inputs[i].name;
        *found = true;
        if (out->is_expr)
            break;
    }
    return PLIM_OK;
}

/* Inputs may have symbols of their own for one and the same size: those with
 * the same hint follow. */
static void bind_followers(pt2 *f, const pt2_env *env, int32_t d, const pt2_size *lead,
                           int64_t want)
{
    for (uint32_t i = 0; i < f->n_inputs && lead->has_hint; i++) {
        pt2_tensor t;
        plim_str missing;
        if (f->inputs[i].kind == PLIM_VALUE_INPUT &&
            find_tensor(f, env, f->inputs[i].arg, &t) == PLIM_OK && t.rank > d &&
            t.size[d].is_expr && t.size[d].has_hint && t.size[d].value == lead->value)
            (void)plim_symexpr_solve(&f->syms, t.size[d].expr, want, &missing, NULL);
    }
}

/* --batch is dimension 0, --seq dimension 1. */
static plim_status bind_leading(pt2 *f, const pt2_env *env, int32_t d, int64_t want,
                                const char *what)
{
    pt2_size size;
    plim_str name;
    bool found, fixed;
    plim_status st = leading_size(f, env, d, &size, &name, &found);
    if (st || !want)
        return st;
    if (!found)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 0, "no input of the model has a %s", what);
    st = bind_size(f, &size, want, &fixed);
    if (st && fixed)
        return plim_fail(f->err, st, 0,
                         "%s is fixed at %" PRId64
                         " in this export: export again with dynamic_shapes={'" PLIM_STR_FMT
                         "': {%d: torch.export.Dim('%s')}}",
                         what, size.value, PLIM_STR_ARG(name), (int)d, what);
    if (st)
        plim_err_prefix(f->err, "%s: ", what);
    else if (!fixed)
        bind_followers(f, env, d, &size, want);
    return st;
}

/* Symbols of inputs that nobody asked about are as they were at export. */
static plim_status bind_hints(pt2 *f, const pt2_env *env)
{
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        pt2_tensor t;
        plim_str missing;
        if (f->inputs[i].kind != PLIM_VALUE_INPUT)
            continue;
        plim_status st = find_tensor(f, env, f->inputs[i].arg, &t);
        if (st)
            return st;
        for (int32_t d = 0; d < t.rank; d++) {
            int64_t v;
            if (t.size[d].is_expr && t.size[d].has_hint &&
                plim_symexpr_eval(&f->syms, t.size[d].expr, &v, &missing, NULL) && missing.n)
                (void)plim_symexpr_solve(&f->syms, t.size[d].expr, t.size[d].value, &missing,
                                         NULL);
        }
    }
    return PLIM_OK;
}

/* src: torch/_export/utils.py, _check_input_constraints_for_graph: a lower
 * bound of 2 comes from tracing, 0 and 1 run all the same */
static plim_status check_ranges(pt2 *f)
{
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        const pt2_range *r = &f->ranges[i];
        plim_str missing;
        int64_t v;
        if (plim_symexpr_eval(&f->syms, r->expr, &v, &missing, NULL))
            continue;
        if ((r->min > 2 && v < r->min) || v > r->max)
            return plim_fail(f->err, PLIM_ERANGE, 0,
                             "size '" PLIM_STR_FMT "' is %" PRId64 ", outside of %" PRId64
                             " to %" PRId64 " that the model was exported for",
                             PLIM_STR_ARG(r->expr), v, r->min, r->max);
    }
    return PLIM_OK;
}

static plim_status bind_sizes(pt2 *f, const pt2_env *env)
{
    static const plim_binding nothing = {0};
    const plim_binding *b = f->bind ? f->bind : &nothing;
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < b->n_inputs && !st; i++)
        st = bind_shape(f, env, &b->inputs[i]);
    if (!st)
        st = bind_leading(f, env, 0, b->batch, "batch");
    if (!st)
        st = bind_leading(f, env, 1, b->seq, "seq");
    if (!st)
        st = bind_hints(f, env);
    if (!st)
        st = check_ranges(f);
    pt2_size size;
    plim_str name;
    bool found = false;
    if (!st)
        st = leading_size(f, env, 0, &size, &name, &found);
    f->g->batch_fixed = !found || !size.is_expr;
    return st || !found ? st : eval_size(f, &size, &f->g->batch);
}

/* ======================================================================== */
/* Scopes                                                                    */
/* ======================================================================== */

static plim_str upto(plim_str *rest, char sep)
{
    const char *p = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    size_t n = p ? (size_t)(p - rest->p) : rest->n;
    plim_str head = {rest->p, n};
    *rest = (plim_str){rest->p + n + (p != NULL), rest->n - n - (p != NULL)};
    return head;
}

static plim_str after_last(plim_str s, char sep)
{
    for (size_t i = s.n; i-- > 0;)
        if (s.p[i] == sep)
            return (plim_str){s.p + i + 1, s.n - i - 1};
    return s;
}

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
    upto(&rest, ',');
    plim_str raw_type = after_last(rest, ',');
    plim_str path = clean_path((plim_str){rest.p, rest.n - raw_type.n});
    if (path.n && path.p[path.n - 1] == ',')
        path = clean_path((plim_str){path.p, path.n - 1});
    plim_str type = plim_json_unescape(f->a, after_last(raw_type, '.'));
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
    if (!text.n || plim_str_starts(text, "_empty_nn_module_stack"))
        return PLIM_OK; /* made by no module */
    while (text.n && depth < PT2_MAX_STACK) {
        plim_str entry = upto(&text, ';');
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

/* ======================================================================== */
/* Arguments                                                                 */
/* ======================================================================== */

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
static plim_status read_int(pt2 *f, const pt2_env *env, plim_json *j, int64_t *out)
{
    plim_str tag;
    plim_status st = PLIM_OK;
    if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        *out = plim_json_i64(j);
        return j->bad;
    }
    if (!enter_union(j, &tag))
        return j->bad;
    if (plim_str_is(tag, "as_name")) {
        uint32_t at;
        plim_str name = plim_json_str(j);
        if (!j->bad && !plim_map_get(&env->syms, name, &at))
            plim_json_fail(j, PLIM_EFORMAT, "symbol '" PLIM_STR_FMT "' has no value",
                           PLIM_STR_ARG(name));
        if (!j->bad) {
            plim_json where = json_at(f, at);
            pt2_size s = read_size(&where);
            st = where.bad ? where.bad : eval_size(f, &s, out);
        }
    } else {
        *out = plim_json_i64(j);
    }
    leave_union(j);
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
    if (enter_union(j, &tag)) {
        known = plim_str_is(tag, "as_float");
        if (known)
            *out = plim_json_f64(j);
        else
            plim_json_skip(j);
        leave_union(j);
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
    if (enter_union(j, &tag)) {
        known = plim_str_is(tag, "as_bool");
        if (known)
            *out = plim_json_bool(j);
        else
            plim_json_skip(j);
        leave_union(j);
    }
    return known;
}

/* A tensor that may be missing: {"name": ..}, {"as_tensor": ..}, {"as_none": ..}. */
static plim_status read_value(pt2 *f, const pt2_env *env, plim_json *j, uint32_t *id)
{
    plim_str name = read_name(j);
    *id = PLIM_NONE;
    return j->bad ? j->bad : name.n ? get_value(f, env, name, id) : PLIM_OK;
}

/* The items of a list argument.  *known: false if one is not. */
static plim_status read_list(pt2 *f, const pt2_env *env, plim_json *j, pt2_as as,
                             plim_arg *out, bool *known)
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

/* An Argument: {"as_...": ...}. */
static plim_status read_arg(pt2 *f, const pt2_env *env, plim_json *j, plim_arg *out,
                            bool *known)
{
    plim_str tag;
    plim_status st = PLIM_OK;
    plim_dtype dtype;
    *out = (plim_arg){.kind = PLIM_ARG_NONE};
    if (!enter_union(j, &tag))
        return j->bad;
    size_t i = 0;
    while (i < PLIM_COUNT(arg_tags) && !plim_str_is(tag, arg_tags[i].tag))
        i++;
    if (i == PLIM_COUNT(arg_tags)) {
        *known = false;
        plim_json_skip(j);
        leave_union(j);
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
        if (read_scalar_type(j, &dtype))
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
    leave_union(j);
    return st ? st : j->bad;
}

typedef struct pt2_args {
    plim_named_arg *items;
    uint32_t n, cap;
    bool known;      /* each is something that a rule can read */
    plim_json graph; /* the subgraph of a higher-order op: .p is NULL if none */
    uint32_t graph_at;
} pt2_args;

/* Remembers where a subgraph stands instead of reading it. */
static bool take_graph(plim_json *j, pt2_args *args)
{
    plim_json ahead = *j;
    plim_str tag, key;
    if (!enter_union(&ahead, &tag) || !plim_str_is(tag, "as_graph"))
        return false;
    plim_json_object(&ahead);
    while (plim_json_member(&ahead, &key)) {
        if (plim_str_is(key, "graph")) {
            args->graph = ahead;
            args->graph_at = args->n;
        }
        plim_json_skip(&ahead);
    }
    return !ahead.bad;
}

/* A node's "inputs": [{"name": .., "arg": ..}, ...]. */
static plim_status read_args(pt2 *f, const pt2_env *env, plim_json j, pt2_args *args)
{
    plim_str key;
    plim_status st = PLIM_OK;
    *args = (pt2_args){.known = true};
    plim_json_array(&j);
    while (!st && plim_json_item(&j)) {
        plim_named_arg one = {{NULL, 0}, {.kind = PLIM_ARG_NONE}};
        plim_json_object(&j);
        while (!st && plim_json_member(&j, &key))
            if (plim_str_is(key, "name"))
                one.name = plim_json_str(&j);
            else if (plim_str_is(key, "arg") && take_graph(&j, args))
                plim_json_skip(&j);
            else if (plim_str_is(key, "arg"))
                st = read_arg(f, env, &j, &one.arg, &args->known);
            else
                plim_json_skip(&j);
        if (!PLIM_PUSH_ROOM(f->a, args->items, args->n, args->cap))
            return plim_oom(f->err);
        args->items[args->n++] = one;
    }
    return st ? st : j.bad;
}

/* ======================================================================== */
/* Nodes                                                                     */
/* ======================================================================== */

typedef struct pt2_node {
    plim_str target, stack;
    plim_json inputs, outputs; /* .p is NULL if there are none */
} pt2_node;

typedef struct pt2_names {
    plim_str *items;
    uint32_t n, cap;
    bool gaps; /* an output that is None stood among them */
} pt2_names;

static plim_status run_nodes(pt2 *f, pt2_env *env);

static void read_metadata(plim_json *j, pt2_node *n)
{
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "nn_module_stack") && plim_json_peek(j) == PLIM_JSON_STRING)
            n->stack = plim_json_str(j);
        else
            plim_json_skip(j);
}

static void read_node(plim_json *j, pt2_node *n)
{
    plim_str key;
    *n = (pt2_node){0};
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        if (plim_str_is(key, "target")) {
            n->target = plim_json_str(j);
        } else if (plim_str_is(key, "metadata") && plim_json_peek(j) == PLIM_JSON_OBJECT) {
            read_metadata(j, n);
        } else {
            if (plim_str_is(key, "inputs"))
                n->inputs = *j;
            else if (plim_str_is(key, "outputs"))
                n->outputs = *j;
            plim_json_skip(j);
        }
    }
    if (!j->bad && (!n->target.n || !n->inputs.p || !n->outputs.p))
        plim_json_fail(j, PLIM_EFORMAT, "a node without target, inputs or outputs");
}

static plim_status read_output_name(pt2 *f, plim_json *j, pt2_names *names)
{
    plim_str name = read_name(j);
    if (j->bad)
        return j->bad;
    names->gaps |= !name.n;
    if (!name.n)
        return PLIM_OK;
    if (!PLIM_PUSH_ROOM(f->a, names->items, names->n, names->cap))
        return plim_oom(f->err);
    names->items[names->n++] = name;
    return PLIM_OK;
}

/* Tensors that a node makes, lists among them laid flat.  Symbols are left out:
 * the file has their values. */
static plim_status read_outputs(pt2 *f, plim_json j, pt2_names *names)
{
    plim_str tag;
    plim_status st = PLIM_OK;
    *names = (pt2_names){0};
    plim_json_array(&j);
    while (plim_json_item(&j)) {
        if (!enter_union(&j, &tag))
            continue;
        if (plim_str_is(tag, "as_tensors") || plim_str_is(tag, "as_optional_tensors")) {
            plim_json_array(&j);
            while (!st && plim_json_item(&j))
                st = read_output_name(f, &j, names);
        } else if (plim_str_is(tag, "as_tensor") || plim_str_is(tag, "as_optional_tensor")) {
            st = read_output_name(f, &j, names);
        } else {
            names->gaps |= plim_str_is(tag, "as_none");
            plim_json_skip(&j);
        }
        if (st)
            return st;
        leave_union(&j);
    }
    return j.bad;
}

/* "aten.conv2d.default": namespace, name, overload. */
static const plim_op *find_op(plim_str target, bool *inplace)
{
    plim_str rest = target, space = upto(&rest, '.'), overload = after_last(rest, '.');
    plim_str base = {rest.p, rest.n - overload.n};
    if (base.n)
        base.n--; /* the dot */
    else
        base = overload, overload = (plim_str){NULL, 0};
    *inplace = base.n > 1 && base.p[base.n - 1] == '_' && base.p[base.n - 2] != '_';
    return plim_str_is(space, "aten") ? plim_op_find(base, overload, inplace) : NULL;
}

/* Arguments into the slots of the rule; without one, as they stand. */
static plim_status bind_args(pt2 *f, plim_node *n, const pt2_args *args)
{
    if (n->op) {
        plim_status st =
            plim_op_bind(f->a, n->op, args->items, args->n, &n->args, &n->n_args, NULL);
        if (st == PLIM_OK || st == PLIM_ENOMEM)
            return st ? plim_oom(f->err) : st;
        n->op = NULL;
    }
    plim_arg *plain = PLIM_NEW_N(f->a, plim_arg, args->n);
    if (!plain)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < args->n; i++)
        plain[i] = args->items[i].arg;
    n->args = plain;
    n->n_args = args->n;
    return PLIM_OK;
}

static plim_status add_node(pt2 *f, plim_str target, uint32_t scope, const pt2_args *args,
                            const uint32_t *outs, uint32_t n_outs, bool rule)
{
    plim_node n = {.target = target, .scope = scope, .outs = outs, .n_outs = n_outs};
    n.op = find_op(target, &n.inplace);
    if (!rule)
        n.op = NULL;
    plim_status st = bind_args(f, &n, args);
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
    pt2_args args = {.items = &self, .n = 1};
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
    return add_node(f, PLIM_STR("aten.detach.default"), scope, &args, out, 1, true);
}

static plim_status enter_graph(pt2 *f, pt2_env *env, const pt2_args *args, bool no_grad,
                               uint32_t scope)
{
    plim_json j = args->graph;
    plim_status st = index_graph(f, &j, env);
    uint32_t i = args->graph_at;
    if (st)
        return st;
    j = env->inputs;
    plim_json_array(&j);
    while (!st && plim_json_item(&j)) {
        plim_str name = read_name(&j);
        const plim_arg *a = ++i < args->n ? &args->items[i].arg : NULL;
        if (j.bad || !name.n)
            continue;
        if (!a || a->kind != PLIM_ARG_VALUE)
            return plim_fail(f->err, PLIM_EFORMAT, j.at,
                             "input '" PLIM_STR_FMT "' of a subgraph is given no tensor",
                             PLIM_STR_ARG(name));
        uint32_t id = a->id;
        if (no_grad)
            st = detach(f, scope, &id);
        if (!st && !plim_map_put(f->a, &env->ids, name, id))
            return plim_oom(f->err);
    }
    return st ? st : j.bad;
}

static plim_status leave_graph(pt2 *f, const pt2_env *inner, pt2_env *env,
                               const pt2_names *names)
{
    plim_json j = inner->outputs;
    plim_status st = PLIM_OK;
    uint32_t k = 0, id;
    plim_json_array(&j);
    while (!st && plim_json_item(&j)) {
        plim_str name = read_name(&j);
        if (j.bad || !name.n)
            continue;
        st = get_value(f, inner, name, &id);
        if (!st && k < names->n && !plim_map_put(f->a, &env->ids, names->items[k++], id))
            return plim_oom(f->err);
    }
    if (!st && !j.bad && k < names->n)
        return plim_fail(f->err, PLIM_EFORMAT, j.at,
                         "a subgraph has %u outputs where %u are used", (unsigned)k,
                         (unsigned)names->n);
    return st ? st : j.bad;
}

static plim_status inline_graph(pt2 *f, pt2_env *env, const pt2_args *args,
                                const pt2_names *names, bool no_grad, uint32_t scope)
{
    pt2_env inner = {0};
    if (f->inlined >= PT2_MAX_INLINE)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, args->graph.at,
                         "subgraphs are nested deeper than %d", PT2_MAX_INLINE);
    f->inlined++;
    plim_status st = enter_graph(f, &inner, args, no_grad, scope);
    if (!st)
        st = run_nodes(f, &inner);
    if (!st)
        st = leave_graph(f, &inner, env, names);
    f->inlined--;
    return st;
}

/* ---- in order -------------------------------------------------------------------- */

static plim_str short_target(plim_str t)
{
    const char *prefix = "torch.ops.";
    size_t n = strlen(prefix);
    return plim_str_starts(t, prefix) ? (plim_str){t.p + n, t.n - n} : t;
}

static plim_status run_node(pt2 *f, pt2_env *env, const pt2_node *n)
{
    pt2_names names;
    pt2_args args;
    uint32_t scope;
    plim_status st = read_outputs(f, n->outputs, &names);
    if (st || !names.n) /* sizes and checks of sizes: the file has the results */
        return st;
    if ((st = find_scope(f, n->stack, &scope)) != 0 ||
        (st = read_args(f, env, n->inputs, &args)) != 0)
        return st;
    int w = args.graph.p ? find_wrapper(n->target) : -1;
    if (w >= 0) {
        int mode = wrappers[w].mode;
        bool no_grad = mode >= 0 && (uint32_t)mode < args.n &&
                       args.items[mode].arg.kind == PLIM_ARG_INT && !args.items[mode].arg.i;
        return inline_graph(f, env, &args, &names, no_grad, scope);
    }
    uint32_t *outs = PLIM_NEW_N(f->a, uint32_t, names.n);
    plim_str target = plim_json_unescape(f->a, short_target(n->target));
    if (!outs || !target.p)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < names.n && !st; i++) {
        plim_value v = {.name = names.items[i], .kind = PLIM_VALUE_NODE};
        st = add_value(f, env, names.items[i], v, &outs[i]);
    }
    return st ? st
              : add_node(f, target, scope, &args, outs, names.n, args.known && !names.gaps);
}

static plim_status run_nodes(pt2 *f, pt2_env *env)
{
    plim_json j = env->nodes;
    plim_status st = PLIM_OK;
    pt2_node n;
    plim_json_array(&j);
    while (!st && plim_json_item(&j)) {
        read_node(&j, &n);
        if (j.bad)
            return j.bad;
        st = run_node(f, env, &n);
        if (st)
            plim_err_prefix(f->err, "node '%.*s': ", (int)PLIM_MIN(n.target.n, 80),
                            n.target.p);
    }
    return st ? st : j.bad;
}

static plim_status add_inputs(pt2 *f, pt2_env *env)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < f->n_inputs && !st; i++) {
        const pt2_input *in = &f->inputs[i];
        plim_value v = {.name = in->name, .kind = in->kind, .persistent = in->persistent};
        uint32_t id;
        st = add_value(f, env, in->arg, v, &id);
        if (!st && in->kind == PLIM_VALUE_INPUT && !plim_graph_add_input(f->g, id))
            return plim_oom(f->err);
    }
    return st;
}

static plim_status add_outputs(pt2 *f, const pt2_env *env)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < f->n_outputs && !st; i++) {
        uint32_t id;
        st = get_value(f, env, f->outputs[i], &id);
        if (!st && !plim_graph_add_output(f->g, id))
            return plim_oom(f->err);
    }
    return st;
}

static plim_status read_graph(pt2 *f)
{
    pt2_env env = {0};
    plim_json j = f->text;
    plim_status st = read_program(f, &j, &env);
    if (!st)
        st = bind_sizes(f, &env);
    if (!st)
        st = add_inputs(f, &env);
    if (!st)
        st = run_nodes(f, &env);
    return st ? st : add_outputs(f, &env);
}

/* ======================================================================== */
/* Archives                                                                  */
/* ======================================================================== */

typedef struct pt2_file {
    bool archive;
    plim_zip zip;
    plim_zip_entry entry; /* the model JSON */
    plim_str model;       /* its name, "model" unless given */
} pt2_file;

/* "root/models/NAME.json", whatever the root is called: NAME. */
static bool is_model(plim_str path, plim_str *name)
{
    static const char tail[] = ".json", flat[] = "serialized_exported_program.json";
    plim_str file = after_last(path, '/'), dir = {path.p, path.n - file.n};
    size_t n = sizeof tail - 1;
    if (plim_str_is(file, flat)) {
        *name = PLIM_STR("model");
        return true;
    }
    if (dir.n)
        dir.n--;
    if (!plim_str_is(after_last(dir, '/'), "models") || file.n <= n ||
        memcmp(file.p + file.n - n, tail, n) != 0)
        return false;
    *name = (plim_str){file.p, file.n - n};
    return true;
}

/* The one model, or the one of several that is called "model". */
static uint32_t find_models(pt2_file *p)
{
    plim_zip_entry e;
    plim_str name;
    uint32_t n = 0;
    for (uint64_t cursor = 0; plim_zip_next(&p->zip, &cursor, &e);)
        if (is_model(e.name, &name)) {
            if (!n || plim_str_is(name, "model")) {
                p->entry = e;
                p->model = name;
            }
            n++;
        }
    return n;
}

static plim_status open_archive(pt2_file *p, plim_bytes b, plim_arena *a, plim_bytes *json,
                                plim_err *err)
{
    plim_zip_entry e;
    plim_status st = plim_zip_open(&p->zip, b, err);
    if (st)
        return st;
    uint32_t n = find_models(p);
    if (!n && plim_zip_find(&p->zip, "archive_format", &e))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "a compiled package without a graph: save the model with "
                         "torch.export.save");
    if (!n)
        return plim_fail(err, PLIM_EFORMAT, 0, "a zip archive without an exported program");
    if (n > 1 && !plim_str_is(p->model, "model"))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "a package of %u models: save one model a file", (unsigned)n);
    return plim_zip_read(&p->zip, &p->entry, a, PT2_JSON_LIMIT, json, err);
}

/* ---- tied weights by their place in the archive ------------------------------------ */

typedef struct pt2_payload {
    uint32_t value;
    plim_str place;
} pt2_payload;

/* Names of records under data/weights that hold any bytes: an export from the
 * meta device has them empty. */
static bool index_records(pt2 *f, const plim_zip *z, plim_map *records)
{
    plim_zip_entry e;
    for (uint64_t cursor = 0; plim_zip_next(z, &cursor, &e);) {
        plim_str file = after_last(e.name, '/'), dir = {e.name.p, e.name.n - file.n};
        if (dir.n)
            dir.n--;
        if (e.size && plim_str_is(after_last(dir, '/'), "weights") &&
            !plim_map_put(f->a, records, file, 1))
            return false;
    }
    return true;
}

/* {"path_name": "weight_0", "tensor_meta": {"storage_offset": ..}}: a text that
 * is the same for the same place of the same record. */
static plim_str read_place(pt2 *f, plim_json *j, const plim_map *records)
{
    plim_str key, inner, path = {NULL, 0};
    int64_t offset = 0;
    uint32_t one;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        if (plim_str_is(key, "path_name") && plim_json_peek(j) == PLIM_JSON_STRING) {
            path = plim_json_str(j);
        } else if (plim_str_is(key, "tensor_meta") && plim_json_peek(j) == PLIM_JSON_OBJECT) {
            plim_json_object(j);
            while (plim_json_member(j, &inner))
                if (plim_str_is(inner, "storage_offset"))
                    offset = read_size(j).value;
                else
                    plim_json_skip(j);
        } else {
            plim_json_skip(j);
        }
    }
    if (j->bad || !plim_map_get(records, path, &one))
        return (plim_str){NULL, 0};
    return plim_arena_printf(f->a, "%" PRId64 " " PLIM_STR_FMT, offset, PLIM_STR_ARG(path));
}

/* Parameters at one place are one; torch.export gives the uses to the last. */
static bool tie_places(pt2 *f, const pt2_payload *list, uint32_t n)
{
    plim_map last = {0};
    uint32_t id;
    for (uint32_t i = 0; i < n; i++)
        if (!plim_map_put(f->a, &last, list[i].place, list[i].value))
            return false;
    for (uint32_t i = 0; i < n; i++) {
        plim_value *v = &f->g->values[list[i].value];
        if (plim_map_get(&last, list[i].place, &id) && id != list[i].value &&
            v->meta.dtype == f->g->values[id].meta.dtype &&
            plim_same_size(&v->meta, &f->g->values[id].meta))
            v->tied_to = id;
    }
    return true;
}

/* *known: the archive says where each weight is. */
static plim_status tie_by_place(pt2 *f, const pt2_file *p, bool *known)
{
    plim_zip_entry e;
    plim_bytes text;
    plim_map names = {0}, records = {0};
    pt2_payload *list = NULL;
    uint32_t n = 0, cap = 0;
    plim_str key, fqn, file;
    *known = false;
    file = plim_arena_printf(f->a, "weights/" PLIM_STR_FMT "_weights_config.json",
                             PLIM_STR_ARG(p->model));
    if (!file.p)
        return plim_oom(f->err);
    if (!p->archive || !plim_zip_find(&p->zip, file.p, &e))
        return PLIM_OK;
    plim_status st = plim_zip_read(&p->zip, &e, f->a, PT2_JSON_LIMIT, &text, f->err);
    if (st)
        return st;
    for (uint32_t i = 0; i < f->g->n_values; i++)
        if (f->g->values[i].kind == PLIM_VALUE_PARAMETER &&
            !plim_map_put(f->a, &names, f->g->values[i].name, i))
            return plim_oom(f->err);
    if (!index_records(f, &p->zip, &records))
        return plim_oom(f->err);
    plim_json j;
    plim_json_init(&j, (plim_str){(const char *)text.p, (size_t)text.n}, f->err);
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (!plim_str_is(key, "config") || plim_json_peek(&j) != PLIM_JSON_OBJECT) {
            plim_json_skip(&j);
            continue;
        }
        plim_json_object(&j);
        while (plim_json_member(&j, &fqn)) {
            pt2_payload one = {0, read_place(f, &j, &records)};
            if (!one.place.p || !plim_map_get(&names, fqn, &one.value))
                continue;
            if (!PLIM_PUSH_ROOM(f->a, list, n, cap))
                return plim_oom(f->err);
            list[n++] = one;
        }
    }
    *known = n > 0;
    return j.bad ? j.bad : tie_places(f, list, n) ? PLIM_OK : plim_oom(f->err);
}

/* ---- the importer ------------------------------------------------------------------- */

static plim_status pt2_import(pt2 *f, const pt2_file *p)
{
    bool known;
    plim_status st = read_graph(f);
    if (!st)
        st = tie_by_place(f, p, &known);
    if (!st && !known)
        st = plim_ties_find(f->g, f->err);
    if (st)
        return st;
    const char *wrong = plim_graph_check(f->g);
    if (wrong)
        return plim_fail(f->err, PLIM_EFORMAT, 0, "%s", wrong);
    plim_str version = upto(&f->producer, '+');
    f->g->format = PLIM_STR("pt2");
    f->g->producer = version.n ? plim_arena_printf(f->a, "torch " PLIM_STR_FMT,
                                                   (int)PLIM_MIN(version.n, 40), version.p)
                               : PLIM_STR("torch");
    if (p->archive && !plim_str_is(p->model, "model"))
        f->g->name = plim_json_unescape(f->a, p->model);
    return f->g->producer.p && (!p->archive || plim_str_is(p->model, "model") || f->g->name.p)
               ? PLIM_OK
               : plim_oom(f->err);
}

static plim_status pt2_read(plim_graph *g, plim_bytes b, const plim_binding *bind,
                            plim_err *err)
{
    pt2_file p = {.archive = plim_zip_is(b)};
    plim_bytes json = b;
    plim_status st = p.archive ? open_archive(&p, b, g->arena, &json, err) : PLIM_OK;
    if (st)
        return st;
    if (json.n > PT2_JSON_LIMIT)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "a model JSON of %" PRIu64 " bytes, more than %llu", json.n,
                         PT2_JSON_LIMIT);
    pt2 f = {.g = g, .a = g->arena, .err = err, .bind = bind};
    f.syms.arena = g->arena;
    plim_json_init(&f.text, (plim_str){(const char *)json.p, (size_t)json.n}, err);
    if (p.archive && p.entry.method == 0)
        f.text.base = (uint64_t)(json.p - b.p);
    return pt2_import(&f, &p);
}

/* The model JSON by itself: an object whose "graph_module" comes early. */
static bool is_program(plim_bytes b)
{
    plim_json j;
    plim_str key;
    plim_json_init(&j, (plim_str){(const char *)b.p, (size_t)PLIM_MIN(b.n, 1u << 16)}, NULL);
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (plim_str_is(key, "graph_module"))
            return true;
        plim_json_skip(&j);
    }
    return false;
}

static int pt2_probe(plim_bytes b)
{
    pt2_file p = {0};
    plim_zip_entry e;
    if (!plim_zip_is(b))
        return is_program(b) ? 90 : 0;
    if (plim_zip_open(&p.zip, b, NULL))
        return 0;
    return find_models(&p) ? 95 : plim_zip_find(&p.zip, "archive_format", &e) ? 60 : 0;
}

const plim_importer plim_importer_pt2 = {
    .name = "pt2",
    .doc = "torch.export archive, torch 2.1 to 2.14, or the model JSON out of one",
    .src = "https://docs.pytorch.org/docs/stable/export/pt2_archive.html",
    .gives = "graph, parameters, shapes, scopes",
    .probe = pt2_probe,
    .read = pt2_read,
};
