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
 * A node with a part that cannot be read so early (an argument is a symbol or a subgraph)
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
    uint32_t inputs, outputs; /* their offsets; 0: there are none */
    uint32_t args, n_args;    /* inputs, in env.args */
    uint32_t outs, n_outs;    /* tensors that it produces, in env.outs */
    uint32_t graph;           /* offset of the subgraph of a higher-order op; 0: it has none */
    uint32_t graph_arg;       /* which argument that is */
    bool later;               /* args and outs are read when the node is run */
    bool known;               /* rules can read all arguments; all outputs are tensors */
} pt2_node;

/* Texts, each recorded once.  Layers are alike, so most texts occur again, and in the same
 * order as before. */
typedef struct pt2_seen {
    struct pt2_seen_row {
        plim_str raw;
        uint32_t next; /* the one that followed it the last time */
    } * rows;
    uint32_t n, cap, last;
} pt2_seen;

typedef struct pt2_shape {
    uint32_t read; /* f.bound when it was read; 0: not yet */
    bool requires_grad;
    plim_meta meta;
} pt2_shape;

typedef struct pt2_name {
    plim_str name;
    uint32_t at;    /* offset of its TensorMeta; 0: it has none */
    uint32_t shape; /* its parsed form, in env.shapes */
    uint32_t id;    /* its value, or PLIM_NONE */
} pt2_name;

/* Names of one graph of the file; subgraphs have their own. */
typedef struct pt2_env {
    plim_map tensors; /* by name: index into names, plus one */
    plim_map syms;    /* symbolic int, float or bool: index of its value */
    pt2_name *names;
    pt2_seen metas;    /* TensorMetas */
    pt2_shape *shapes; /* the parsed form of each */
    uint32_t n_names, cap_names, n_shapes, cap_shapes;
    plim_json inputs, outputs;
    pt2_node *nodes;
    uint32_t n_nodes, cap_nodes;
    plim_err after_nodes; /* error in the node that follows these */
    plim_named_arg
        *args;      /* of all nodes; a tensor is an index into names until its node is run */
    uint32_t *outs; /* indices into names */
    uint32_t n_args, cap_args, n_outs, cap_outs;
    bool running; /* phase two: tensors are values, symbols have values */
    bool later;   /* something was found that must wait for phase two */
} pt2_env;

typedef struct pt2_size {
    bool is_expr;
    int64_t value; /* or hint */
    bool has_hint;
    plim_str expr;
} pt2_size;

/* A tensor that is an input of the graph. */
typedef struct pt2_input {
    plim_value_kind kind;
    plim_str arg, name; /* name in the graph; name in the model */
    bool persistent;
} pt2_input;

typedef struct pt2_range {
    plim_str expr;
    int64_t min, max;
} pt2_range;

/* What the target of a node refers to. */
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
    plim_str note; /* of the Python package, about an export that it made: the next two, too */
    plim_str source;    /* whose library built the module: "transformers 5.24.0" */
    plim_str attention; /* how that computes attention: "sdpa" */
    plim_str left_out;  /* what it does not count, as a clause */
    plim_str type;      /* of its configuration: "smollm3" */
    bool autocast;      /* a part of the model runs in an autocast region of its own */
    plim_symbols syms;
    pt2_input *inputs;
    plim_str *outputs;
    pt2_range *ranges;
    uint32_t n_inputs, cap_inputs, n_outputs, cap_outputs, n_ranges, cap_ranges;
    plim_map targets; /* texts as in the file: index into ops, plus one */
    pt2_op *ops;
    uint32_t n_ops, cap_ops;
    pt2_seen traces;               /* stack traces of nodes */
    const char *last_stack;        /* module stack of the last node that has one */
    plim_str stack[PT2_MAX_STACK]; /* its entries */
    uint32_t stack_scope[PT2_MAX_STACK];
    uint32_t n_stack;
    uint32_t bound; /* grows when a symbol gets a value during the run */
    uint32_t calls; /* offset of "module_call_graph"; 0: there is none */
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

/* Enters a one-key object, {"as_int": 3}; false if it is empty.  Leaving it skips whatever
 * else it holds. */
bool plim_pt2_enter_union(plim_json *j, plim_str *tag);
void plim_pt2_leave_union(plim_json *j);

/* A tensor's name: "x", {"name": "x"} or {"as_tensor": {"name": "x"}}; {NULL, 0}
 * for anything else (constants, None). */
plim_str plim_pt2_read_name(plim_json *j);

/* Skips a text, which becomes s->last; false: no memory. */
bool plim_pt2_skip_seen(pt2 *f, plim_json *j, pt2_seen *s);

pt2_size plim_pt2_read_size(plim_json *j);
/* The size as a number; a symbol that is not bound gets the file's hint. */
plim_status plim_pt2_eval_size(pt2 *f, const pt2_size *s, int64_t *out);
bool plim_pt2_read_scalar_type(plim_json *j, plim_dtype *out); /* false: not known */

/* A tensor of the graph, its sizes not evaluated yet. */
plim_status plim_pt2_find_tensor(pt2 *f, const pt2_env *env, plim_str name, pt2_tensor *t);
/* Index of a name in env->names, added if new; PLIM_NONE: no memory. */
uint32_t plim_pt2_intern_name(pt2 *f, pt2_env *env, plim_str name);
/* Adds a value under this name; gets the one that has it. */
plim_status plim_pt2_add_value(pt2 *f, pt2_env *env, uint32_t name, plim_value v,
                               uint32_t *id);
plim_status plim_pt2_get_value(pt2 *f, const pt2_env *env, plim_str name, uint32_t *id);
uint32_t plim_pt2_find_value(const pt2_env *env, plim_str name); /* or PLIM_NONE */
plim_status plim_pt2_undefined(pt2 *f, plim_str name);           /* the error */

/* ---- pt2_note.c --------------------------------------------------------------- */

/* Records the parts of a Graph and its nodes.  An error in a node that is valid JSON is
 * reported when the node is run. */
plim_status plim_pt2_note_graph(pt2 *f, plim_json *j, pt2_env *env);

/* Reads a node's "inputs" and "outputs"; in phase two a second time, for a node that had to
 * wait.  Symbols among the outputs are left out: the file has their values. */
plim_status plim_pt2_read_args(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n);
plim_status plim_pt2_read_outputs(pt2 *f, pt2_env *env, plim_json *j, pt2_node *n);

/* ---- pt2_bind.c: symbols get their values, the graph its batch ------------- */

plim_status plim_pt2_bind_sizes(pt2 *f, const pt2_env *env);

/* ---- pt2_run.c ----------------------------------------------------------------- */

plim_status plim_pt2_run_nodes(pt2 *f, pt2_env *env);

/* ---- strings: up to and after a separator --------------------------- */

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
