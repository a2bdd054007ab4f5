/* pt2_priv.h -- between the files that read torch.export archives; each calls only
 * those above it:
 *
 *     pt2_tensor.c  pieces of JSON, sizes, tensors, names
 *     pt2_note.c    first phase: where the parts of a graph are, what its nodes say
 *     pt2_bind.c    between them: symbols get the values that the caller asks for
 *     pt2_run.c     second phase: nodes in order, scopes, subgraphs
 *     pt2.c         the archive, the program's parts, tied weights
 *
 * The model is one JSON text, which is walked in place and never copied.  Of a model that
 * computes relu(x) with a batch s0, which the example inputs had as 8:
 *
 *     {"graph_module": {
 *        "graph": {
 *          "inputs": [{"as_tensor": {"name": "x"}}],
 *          "nodes": [{"target": "torch.ops.aten.relu.default",
 *                     "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}],
 *                     "outputs": [{"as_tensor": {"name": "y"}}]}],
 *          "tensor_values": {
 *            "x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "s0",
 *                  "hint": {"as_int": 8}}}, {"as_int": 4}], ..},
 *            "y": {the same}},
 *          "outputs": [{"as_tensor": {"name": "y"}}]},
 *        "signature": {"input_specs": [{"user_input": {"arg": .. "x" ..}}], ..}}}
 *
 * Phase one (plim_pt2_note_graph) goes through it once.  No size has a value yet and no
 * tensor exists, so it makes rows of tables:
 *
 *     env.names   [0] "x": its TensorMeta is at byte 310, shapes[0]; no value
 *                 [1] "y": its TensorMeta is at byte 420, shapes[0] (the same text); no value
 *     env.nodes   [0] aten.relu.default: args[0..1), outs[0..1)
 *     env.args    [0] self = the tensor names[0]
 *     env.outs    [0] names[1]
 *
 * A node of which a part cannot be read so early (an argument is a symbol or a subgraph)
 * is marked `later`: only the place of its inputs and outputs is noted.
 *
 * Then plim_pt2_bind_sizes gives s0 its value: --batch, or else the hint, 8.
 *
 * Phase two (plim_pt2_run_nodes) goes through env.nodes in order and adds to the graph.
 * The signature made x an input, value 0: names[0].id = 0.  relu's argument, names[0],
 * becomes value 0; its result is value 1, whose shape is evaluated now, [8, 4]; and
 * names[1].id = 1 is what later nodes and the outputs find under "y". */
#ifndef PLIM_PT2_PRIV_H
#define PLIM_PT2_PRIV_H

#include "base/json.h"
#include "import/import.h"
#include "import/symexpr.h"
#include "op/op.h"

enum { PT2_MAX_STACK = 64 };

typedef struct pt2_node {
    plim_str target, stack;
    uint32_t inputs, outputs; /* where they are; 0: there are none */
    uint32_t args, n_args;    /* inputs, in env.args */
    uint32_t outs, n_outs;    /* tensors that it makes, in env.outs */
    uint32_t graph;           /* where the subgraph of a higher-order op is; 0: it has none */
    uint32_t graph_arg;       /* which argument that is */
    bool later;               /* args and outs are to be read when its turn comes */
    bool known;               /* a rule can read each argument, and each output is a tensor */
} pt2_node;

/* Texts, each noted once.  Layers are alike, so that most come again, and in the order in
 * which they came before. */
typedef struct pt2_seen {
    struct pt2_seen_row {
        plim_str raw;
        uint32_t next; /* the other one that came after it the last time */
    } * rows;
    uint32_t n, cap, last;
} pt2_seen;

typedef struct pt2_shape {
    uint32_t read; /* f.bound when it was; 0: not yet */
    bool requires_grad;
    plim_meta meta;
} pt2_shape;

typedef struct pt2_name {
    plim_str name;
    uint32_t at;    /* its TensorMeta; 0: it has none */
    uint32_t shape; /* what that says, in env.shapes */
    uint32_t id;    /* its value, or PLIM_NONE */
} pt2_name;

/* Names of one graph of the file; subgraphs have their own. */
typedef struct pt2_env {
    plim_map tensors; /* name: place in names, plus one */
    plim_map syms;    /* symbolic int, float or bool: place of its value */
    pt2_name *names;
    pt2_seen metas;    /* TensorMetas */
    pt2_shape *shapes; /* what each of them says */
    uint32_t n_names, cap_names, n_shapes, cap_shapes;
    plim_json inputs, outputs;
    pt2_node *nodes;
    uint32_t n_nodes, cap_nodes;
    plim_err after_nodes; /* what is wrong with the one that comes after these */
    plim_named_arg
        *args;      /* of all nodes; until its turn comes, a tensor is a place in names */
    uint32_t *outs; /* places in names */
    uint32_t n_args, cap_args, n_outs, cap_outs;
    bool running; /* tensors are values, symbols have theirs */
    bool later;   /* something was met that has to wait for that */
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

/* What stands behind the target of a node. */
typedef struct pt2_op {
    plim_str target; /* a copy, without "torch.ops." */
    const plim_op *op;
    bool inplace;
} pt2_op;

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
    plim_map targets; /* as they stand in the file: place in ops, plus one */
    pt2_op *ops;
    uint32_t n_ops, cap_ops;
    pt2_seen traces;               /* stack traces of nodes */
    const char *last_stack;        /* module stack of the last node that has one */
    plim_str stack[PT2_MAX_STACK]; /* its entries */
    uint32_t stack_scope[PT2_MAX_STACK];
    uint32_t n_stack;
    uint32_t bound; /* grows when a symbol gets a value on the way */
    uint32_t calls; /* where "module_call_graph" is; 0: there is none */
    int inlined;
} pt2;

#define PT2_PUSH(f, list, n, cap, item)                                                       \
    (PLIM_PUSH_ROOM((f)->a, (f)->list, (f)->n, (f)->cap)                                      \
         ? ((f)->list[(f)->n++] = (item), true)                                               \
         : false)

/* ---- pt2_tensor.c: each plim_pt2_* without a status leaves errors in j -------- */

typedef struct pt2_tensor {
    plim_dtype dtype;
    bool requires_grad, sparse, has_strides;
    int32_t rank, n_strides;
    pt2_size size[PLIM_MAX_RANK], stride[PLIM_MAX_RANK];
} pt2_tensor;

plim_json plim_pt2_json_at(const pt2 *f, uint32_t at);

/* Into a one-key object, {"as_int": 3}; false if it is empty.  Out of it:
 * whatever else it may hold is skipped. */
bool plim_pt2_enter_union(plim_json *j, plim_str *tag);
void plim_pt2_leave_union(plim_json *j);

/* A tensor's name: "x", {"name": "x"} or {"as_tensor": {"name": "x"}}; {NULL, 0}
 * for anything else (constants, None). */
plim_str plim_pt2_read_name(plim_json *j);

/* Skips a text, which becomes s->last; false: no memory. */
bool plim_pt2_skip_seen(pt2 *f, plim_json *j, pt2_seen *s);

pt2_size plim_pt2_read_size(plim_json *j);
/* The size as a number; a symbol that nothing bound takes the file's hint. */
plim_status plim_pt2_eval_size(pt2 *f, const pt2_size *s, int64_t *out);
bool plim_pt2_read_scalar_type(plim_json *j, plim_dtype *out); /* false: not known */

/* A tensor of the graph, its sizes not evaluated yet. */
plim_status plim_pt2_find_tensor(pt2 *f, const pt2_env *env, plim_str name, pt2_tensor *t);
/* The place of a name in env->names, made if new; PLIM_NONE: no memory. */
uint32_t plim_pt2_intern_name(pt2 *f, pt2_env *env, plim_str name);
/* A new value of this name; one that is there. */
plim_status plim_pt2_add_value(pt2 *f, pt2_env *env, uint32_t name, plim_value v,
                               uint32_t *id);
plim_status plim_pt2_get_value(pt2 *f, const pt2_env *env, plim_str name, uint32_t *id);
uint32_t plim_pt2_find_value(const pt2_env *env, plim_str name); /* PLIM_NONE: there is none */
plim_status plim_pt2_undefined(pt2 *f, plim_str name);           /* says so */

/* ---- pt2_note.c --------------------------------------------------------------- */

/* Notes the parts of a Graph and its nodes; what is wrong with a node, though it is JSON,
 * is said when its turn comes. */
plim_status plim_pt2_note_graph(pt2 *f, plim_json *j, pt2_env *env);

/* A node's "inputs" and "outputs"; again, once the graph is running, of one that had to
 * wait.  Symbols among the outputs are left out: the file has their values. */
plim_status plim_pt2_read_args(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n);
plim_status plim_pt2_read_outputs(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n);

/* ---- pt2_bind.c: symbols get their values, the graph its batch ------------- */

plim_status plim_pt2_bind_sizes(pt2 *f, const pt2_env *env);

/* ---- pt2_run.c ----------------------------------------------------------------- */

plim_status plim_pt2_run_nodes(pt2 *f, pt2_env *env);

/* ---- strings: up to and after a separator ------------------------------------------------------------------ */

static inline plim_str plim_pt2_upto(plim_str *rest, char sep)
{
    plim_str head = *rest;
    const char *p = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    if (p)
        head.n = (size_t)(p - head.p);
    size_t skip = head.n + (p != NULL);
    *rest = skip ? (plim_str){rest->p + skip, rest->n - skip} : head;
    return head;
}

static inline plim_str plim_pt2_after_last(plim_str s, char sep)
{
    for (size_t i = s.n; i-- > 0;)
        if (s.p[i] == sep)
            return (plim_str){s.p + i + 1, s.n - i - 1};
    return s;
}

#endif
