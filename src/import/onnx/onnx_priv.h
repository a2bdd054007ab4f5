/* onnx_priv.h -- shared by the files that read ONNX.
 *
 *     onnx_wire.c   protobuf's wire format
 *     onnx_proto.c  messages: tensors, types, nodes, graphs, functions
 *     onnx_bind.c   sizes that the file leaves open
 *     onnx_list.c   what a file holds, without running any of it
 *     onnx_scope.c  modules from the names of nodes
 *     onnx_val.c    values by name, numbers of small tensors
 *     onnx_op.c     common to all ops: operands, attributes, results
 *     onnx_shape.c  computation of result sizes
 *     onnx_fold.c   ops on small tensors whose numbers are known: shapes, most often
 *     onnx_ops_<family>.c   ops into nodes of our own
 *     onnx_ops.c    the table of them, onnx_ops.def
 *     onnx_run.c    nodes in order
 *     onnx.c        the importer: inputs and outputs, versions
 *
 * Each calls only those above it; If and Loop run their subgraphs through onnx.run_graph.
 *
 * A name of the file refers to an onnx_val.  It becomes a value of the graph when an op uses
 * it as a tensor; a value that is used only as a shape never does. */
#ifndef PLIM_ONNX_PRIV_H
#define PLIM_ONNX_PRIV_H

#include "import/import.h"
#include "import/onnx/onnx_wire.h"
#include "import/symexpr.h"
#include "nn/nn.h"

enum {
    ONNX_MAX_CALLS = 16,      /* nesting of functions and subgraphs */
    ONNX_MAX_STACK = 32,      /* scopes */
    ONNX_MAX_NODES = 1000000, /* after functions are inlined and loops unrolled */
    ONNX_MAX_TRIPS = 4096,
    ONNX_MAX_DATA = 4096, /* elements of a tensor whose numbers are tracked */
};

/* ---- onnx_proto.c: messages ----------------------------------------------------- */

/* src: onnx.proto TensorProto.DataType */
typedef struct onnx_type {
    const char *name;
    uint32_t bits; /* 0: text, without a size */
    plim_dtype dtype;
    bool known; /* dtype is valid */
} onnx_type;
const onnx_type *plim_onnx_type(uint64_t number); /* NULL: no such type */

typedef struct onnx_tensor {
    plim_str name, location; /* of external data */
    plim_str role;           /* "PARAMETER", "BUFFER" ...: its role as torch records it */
    uint64_t type;
    int32_t rank;
    int64_t dim[PLIM_MAX_RANK];
    uint64_t numel;
    bool external, sparse;
    onnx_wire body;
} onnx_tensor;

typedef struct onnx_dim {
    bool known;
    int64_t value;
    plim_str param; /* "": has no name at all */
} onnx_dim;

/* A ValueInfoProto. */
typedef struct onnx_info {
    plim_str name;
    bool tensor, has_shape;
    uint64_t type, at;
    int32_t rank;
    onnx_dim dim[PLIM_MAX_RANK];
} onnx_info;

typedef struct onnx_attr {
    plim_str name, ref; /* ref: the attribute of the function that it refers to */
    bool has_i, has_f, has_s;
    int64_t i;
    double f;
    plim_str s;
    int64_t *ints;
    double *floats;
    plim_str *strs;
    uint32_t n_ints, n_floats, n_strs, cap_ints, cap_floats, cap_strs;
    onnx_wire tensor, graph; /* .p NULL: absent */
    struct onnx_graph *parsed;
} onnx_attr;

typedef struct onnx_node {
    uint64_t at;
    plim_str name, op, domain, overload;
    plim_str scopes, types; /* "['', 'layer1', ...]", as torch writes them */
    plim_str *in, *out;
    onnx_attr *attrs;
    uint32_t n_in, n_out, n_attrs, cap_in, cap_out, cap_attrs;
    bool done; /* merged with another node */
} onnx_node;

/* The uses of a name: how many, and the only user if there is one. */
typedef struct onnx_use {
    uint32_t n, node;
} onnx_use;

/* A GraphProto, or the body of a FunctionProto. */
typedef struct onnx_graph {
    plim_str name;
    onnx_node *nodes;
    onnx_tensor *inits;
    onnx_info *inputs, *outputs, *infos;
    onnx_use *uses;
    uint32_t n_nodes, n_inits, n_inputs, n_outputs, n_infos, n_uses;
    uint32_t cap_nodes, cap_inits, cap_inputs, cap_outputs, cap_infos, cap_uses;
    plim_map use_of, info_of, init_of;
    bool nested; /* a node of it has a subgraph, which may use any name */
} onnx_graph;

typedef struct onnx_opset {
    plim_str domain;
    int64_t version;
} onnx_opset;

typedef struct onnx_function {
    plim_str name, domain, overload;
    onnx_graph body; /* its inputs and outputs have names only */
    onnx_attr *defaults;
    onnx_opset *opsets;
    uint32_t n_defaults, n_opsets, cap_defaults, cap_opsets;
    bool running;
} onnx_function;

typedef struct onnx_model {
    plim_arena *a;
    plim_err *err;
    plim_bytes file;
    int64_t ir;
    plim_str producer, version;
    onnx_graph graph;
    onnx_opset *opsets;
    onnx_function *functions;
    uint32_t n_opsets, n_functions, cap_opsets, cap_functions;
    plim_map function_of; /* by domain, name and overload */
} onnx_model;

enum { ONNX_NEWEST_IR = 14 };
bool plim_onnx_ir_known(int64_t ir);
/* PLIM_EUNSUPPORTED: another version of the IR. */
plim_status plim_onnx_parse(onnx_model *m, plim_arena *a, plim_bytes file, plim_err *err);
/* NULL: the node does not call a function.  PLIM_ENOMEM. */
plim_status plim_onnx_function(onnx_model *m, const onnx_node *n, onnx_function **out);
plim_status plim_onnx_parse_graph(onnx_model *m, onnx_wire w, onnx_graph *g);
plim_status plim_onnx_parse_tensor(onnx_model *m, onnx_wire w, onnx_tensor *t);
bool plim_onnx_domain_is(plim_str domain, const char *name); /* "" and "ai.onnx" are equal */
bool plim_onnx_tensor_bytes(const onnx_tensor *t, uint64_t *out);
plim_item_kind plim_onnx_item_kind(const onnx_tensor *t, bool initializer);
/* Text of the file for display: invalid UTF-8 and terminal control characters become '?'. */
plim_str plim_onnx_clean(plim_arena *a, plim_str s);

/* What an export for inference lacks compared with the model; "": nothing. */
const char *plim_onnx_mode_note(const onnx_model *m);
plim_str plim_onnx_producer(plim_arena *a, const onnx_model *m); /* "" if not known */
plim_status plim_onnx_list(plim_inventory *v, const plim_source *s, plim_err *err);

/* ---- values ------------------------------------------------------------------------ */

typedef struct onnx_data {
    bool is_float;
    uint32_t n;
    int64_t *i; /* or */
    double *f;
} onnx_data;

static inline double plim_onnx_number(const onnx_data *d, uint32_t k)
{
    return d->is_float ? d->f[k] : (double)d->i[k];
}

/* Its only number, if it is an integer or a bool; d may be NULL. */
static inline bool plim_onnx_single_int(const onnx_data *d, int64_t *out)
{
    if (!d || d->is_float || d->n != 1)
        return false;
    *out = d->i[0];
    return true;
}

typedef enum onnx_val_kind { ONNX_UNKNOWN, ONNX_TENSOR, ONNX_LIST, ONNX_ABSENT } onnx_val_kind;

typedef struct onnx_val {
    plim_str name;
    onnx_val_kind kind;
    bool constant;     /* from a Constant node, not an initializer */
    bool read;         /* reading its numbers was tried */
    bool used;         /* used as numbers, or part by part: not a tensor of its own */
    bool buffer;       /* the op that uses it says so: statistics, not a weight */
    bool flipped;      /* a matrix stored transposed, as in a Linear */
    plim_meta meta;    /* of a tensor */
    uint32_t id;       /* its value in the graph, or PLIM_NONE so far */
    uint32_t turned;   /* the matrix that this is the transpose of, or PLIM_NONE */
    uint32_t viewed;   /* the value whose elements this has in other dims, or PLIM_NONE */
    uint32_t permuted; /* the value whose dims this has in another order, or PLIM_NONE */
    const onnx_tensor *from; /* stored in the file */
    const onnx_data *data;   /* its numbers, if known */
    const uint32_t *items;   /* of a list */
    uint32_t n_items;
} onnx_val;
/* An onnx_val with these fields that is not yet a value of the graph nor derived from one. */
#define ONNX_VAL(...)                                                                         \
    ((onnx_val){.id = PLIM_NONE,                                                              \
                .turned = PLIM_NONE,                                                          \
                .viewed = PLIM_NONE,                                                          \
                .permuted = PLIM_NONE,                                                        \
                __VA_ARGS__})

typedef struct onnx_env {
    const struct onnx_env *up; /* a subgraph sees the names of the graph around it */
    onnx_graph *graph;
    plim_map vals;
    const onnx_opset *opsets;
    uint32_t n_opsets;
    struct onnx_env *caller; /* of a function */
    const onnx_node *call;
    const onnx_function *function;
} onnx_env;

typedef struct onnx onnx;
struct onnx {
    onnx_model m;
    plim_graph *g;
    plim_arena *a;
    plim_err *err;
    const plim_binding *bind;
    plim_symbols syms;
    onnx_val *vals;
    uint32_t n_vals, cap_vals;
    plim_nn nn;
    plim_map ops;                   /* name: its first row */
    plim_str stack[ONNX_MAX_STACK]; /* paths of the last node's scopes */
    uint32_t stack_scope[ONNX_MAX_STACK], n_stack;
    uint32_t n_run;
    int calls;
    uint32_t *fresh; /* vals in the order in which they became values of the graph */
    uint32_t n_fresh, cap_fresh;
    plim_str lost; /* the first node whose result is unknown, and its op */
    plim_str lost_op;
    uint32_t n_lost;
    /* plim_onnx_run_graph, for ops with subgraphs */
    plim_status (*run_graph)(onnx *f, onnx_env *env);
};

/* ---- onnx_val.c ---------------------------------------------------------------------- */

uint32_t plim_onnx_add_val(onnx *f, const onnx_val *v);
bool plim_onnx_find(const onnx_env *env, plim_str name, uint32_t *val);
uint32_t plim_onnx_stored_val(onnx *f, const onnx_tensor *t, plim_str name, bool constant);
plim_status plim_onnx_bind_name(onnx *f, onnx_env *env, plim_str name, uint32_t val);
plim_status plim_onnx_enter(onnx *f, onnx_env *env); /* defines its initializers */
/* Counts n more nodes or initializers as run; PLIM_EUNSUPPORTED: too many. */
plim_status plim_onnx_count_run(onnx *f, uint64_t n, uint64_t at);

/* Room for n numbers; NULL: more than ONNX_MAX_DATA, or no memory. */
onnx_data *plim_onnx_new_data(onnx *f, bool is_float, uint64_t n);
const onnx_data *plim_onnx_read_data(onnx *f, const onnx_tensor *t); /* NULL: not known */
const onnx_data *plim_onnx_data(onnx *f, uint32_t val);              /* NULL: not known */

/* ---- onnx_bind.c -------------------------------------------------------------------- */

plim_status plim_onnx_bind_sizes(onnx *f);
bool plim_onnx_is_batch(const onnx_graph *g, const onnx_info *in, int32_t d);
/* A shape whose symbols all have values; false: not known. */
bool plim_onnx_shape(onnx *f, const onnx_info *info, plim_meta *out);

/* ---- onnx_op.c: one node on its way into the graph ---------------------------------- */

typedef struct onnx_call {
    onnx *f;
    onnx_env *env;
    onnx_node *node;
    const struct onnx_op *op;
    int64_t opset;     /* version of the node's domain */
    uint32_t *in;      /* vals; PLIM_NONE: left out */
    uint32_t *out;     /* vals, set by the op */
    plim_meta *opaque; /* sizes of results that come from no rule */
    bool *is_opaque;
    uint32_t fused[6], n_fused; /* later nodes that this one has absorbed */
    bool plain;                 /* do not absorb any */
    plim_status st;
} onnx_call;

typedef struct onnx_op {
    const char *name, *domain;
    void (*lower)(onnx_call *c);
    const char *target; /* for the simple ones */
    const char *doc;
} onnx_op;

/* Attributes; in a function's body with the values of the caller. */
const onnx_attr *plim_onnx_attr(const onnx_call *c, const char *name);
int64_t plim_onnx_attr_int(const onnx_call *c, const char *name, int64_t def);
double plim_onnx_attr_float(const onnx_call *c, const char *name, double def);
plim_str plim_onnx_attr_str(const onnx_call *c, const char *name, const char *def);
plim_ints plim_onnx_attr_ints(const onnx_call *c, const char *name); /* .p NULL: none */

/* Operands.  For one that is left out or unknown: NULL, PLIM_NONE. */
onnx_val *plim_onnx_in(const onnx_call *c, uint32_t i);
const plim_meta *plim_onnx_in_meta(const onnx_call *c, uint32_t i);
const onnx_data *plim_onnx_in_data(const onnx_call *c, uint32_t i);
bool plim_onnx_in_ints(const onnx_call *c, uint32_t i, plim_ints *out);
uint32_t plim_onnx_in_id(onnx_call *c, uint32_t i); /* as a value of the graph */
uint32_t plim_onnx_id(onnx_call *c, uint32_t val);

/* The first n operands; false: one of them is missing or unknown. */
bool plim_onnx_need(onnx_call *c, uint32_t n, uint32_t *id);
/* A single number that would be a Python number in PyTorch, not a tensor. */
bool plim_onnx_scalar(const onnx_call *c, uint32_t i, double *out);
bool plim_onnx_wanted(const onnx_call *c, uint32_t k); /* whether a node uses result k */
/* The only user of the result of `n`, if it is an `op` that can be merged with c's node. */
onnx_node *plim_onnx_only_user(const onnx_call *c, const onnx_node *n, const char *op,
                               uint32_t *at);

/* Results. */
uint32_t plim_onnx_graph_val(onnx_call *c, uint32_t id);
void plim_onnx_out(onnx_call *c, uint32_t k, uint32_t id); /* PLIM_NONE: nothing */
void plim_onnx_out_val(onnx_call *c, uint32_t k, uint32_t val);
void plim_onnx_out_data(onnx_call *c, uint32_t k, const plim_meta *m, const onnx_data *d);
/* For an op without a rule: the result's size is known, its saved tensors are not. */
void plim_onnx_out_opaque(onnx_call *c, uint32_t k, const plim_meta *m);

/* ---- onnx_shape.c: what an op makes of sizes, for numbers and tensors alike ---------- */

/* A negative axis counts from the end; false: out of range. */
bool plim_onnx_axis(int64_t axis, int32_t rank, int32_t *out);
/* `axes`: an attribute in older operator sets, operand i in newer ones; *n 0: not given.
 * False: not known. */
bool plim_onnx_axes(const onnx_call *c, uint32_t i, int32_t rank, int32_t *axes, uint32_t *n);
/* Results of Reshape, Flatten, Squeeze, Unsqueeze: x's elements with other dims. */
bool plim_onnx_other_dims(const onnx_call *c, const plim_meta *x, plim_meta *out);
bool plim_onnx_perm(const onnx_call *c, const plim_meta *x, int64_t *perm);
typedef struct onnx_slice {
    int32_t axis;
    int64_t start, step, count;
} onnx_slice;
bool plim_onnx_slices(const onnx_call *c, const plim_meta *x, onnx_slice *list, uint32_t *n);
bool plim_onnx_split(const onnx_call *c, const plim_meta *x, int32_t *axis, int64_t *sizes,
                     uint32_t max);
bool plim_onnx_expand(const onnx_call *c, const plim_meta *x, plim_meta *out);
/* Dims from operand i, a list of numbers; false: not known, too many, or negative. */
bool plim_onnx_dims(const onnx_call *c, uint32_t i, plim_meta *out);

/* ---- onnx_fold.c -------------------------------------------------------------------- */

/* Computes the node if all its inputs are known numbers. */
bool plim_onnx_fold(onnx_call *c);

/* ---- onnx_scope.c: modules from the names of nodes ----------------------------------- */

plim_status plim_onnx_scope(onnx *f, const onnx_node *n, uint32_t *out);
void plim_onnx_name_types(onnx *f);

/* ---- onnx_ops.c ---------------------------------------------------------------------- */

bool plim_onnx_index_ops(onnx *f); /* false: no memory */
const onnx_op *plim_onnx_op_find(const onnx *f, plim_str domain, plim_str name);

/* ---- onnx_run.c ---------------------------------------------------------------------- */

plim_status plim_onnx_run_graph(onnx *f, onnx_env *env);

#endif
