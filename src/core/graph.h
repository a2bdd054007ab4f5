/* graph.h -- a model as ops over values, the first of the two interfaces between rooms.
 *
 * Everything that describes a model makes one of these (importers, the zoo); everything that
 * analyses a model reads one.  Plain arrays and 32-bit ids: value 0 and scope 0 are real
 * (scope 0 is the model itself), "none" is PLIM_NONE.  All memory belongs to graph->arena.
 *
 * Nodes are in execution order.  A node's arguments are bound to the slots of its op's schema:
 * args[i] is schema argument i, ARG_NONE where the caller gave none and the schema has no
 * default. */
#ifndef PLIM_GRAPH_H
#define PLIM_GRAPH_H

#include "core/cache.h"
#include "core/shape.h"

typedef enum plim_value_kind {
    PLIM_VALUE_NODE, /* produced by a node */
    PLIM_VALUE_PARAMETER,
    PLIM_VALUE_BUFFER,
    PLIM_VALUE_CONSTANT, /* a tensor stored with the model, neither of the two above */
    PLIM_VALUE_INPUT,    /* given by the caller of the model */
} plim_value_kind;

typedef struct plim_value {
    plim_str name; /* "layer1.0.conv1.weight" for parameters, else the export's name */
    plim_meta meta;
    plim_value_kind kind;
    bool requires_grad; /* parameters only: as the model has it */
    bool persistent;    /* buffers: part of the state dict */
    bool packed;        /* buffers: quantized and packed, so that casts leave the type alone */
    bool fp32;    /* buffers: in fp32 until the model is cast, not if it is made in a type */
    bool adapter; /* parameters: added to the model once it is loaded and cast, */
    plim_dtype made_as; /* in this dtype, and then cast to their own */
    bool partial;       /* parameters: the gradient of each rank is a part of a sum */
    bool shared;        /* parameters: another stage has it, too, and adds to its gradient */
    bool received;      /* inputs: the stage before sends it, and expects its gradient */
    uint32_t tied_to;   /* parameters: same storage as this value, or PLIM_NONE */
    uint32_t node;      /* the node that produces it; PLIM_NONE: none does, or no longer */
} plim_value;

typedef enum plim_arg_kind {
    PLIM_ARG_NONE,
    PLIM_ARG_VALUE,  /* .id */
    PLIM_ARG_VALUES, /* .ids, .n; an id may be PLIM_NONE (optional tensor) */
    PLIM_ARG_INT,    /* .i: also bool, dtype (plim_dtype), memory format */
    PLIM_ARG_INTS,   /* .ints, .n */
    PLIM_ARG_FLOAT,  /* .f */
    PLIM_ARG_FLOATS, /* .floats, .n */
    PLIM_ARG_STR,    /* .str */
} plim_arg_kind;

typedef struct plim_arg {
    plim_arg_kind kind;
    uint32_t n;
    union {
        uint32_t id;
        const uint32_t *ids;
        int64_t i;
        const int64_t *ints;
        double f;
        const double *floats;
        plim_str str;
    };
} plim_arg;

/* The values that an argument names: how many, and the k-th (PLIM_NONE for an absent item of a
 * list). */
static inline uint32_t plim_arg_values(const plim_arg *a)
{
    return a->kind == PLIM_ARG_VALUES ? a->n : a->kind == PLIM_ARG_VALUE;
}
static inline uint32_t plim_arg_value(const plim_arg *a, uint32_t k)
{
    plim_assert(k < plim_arg_values(a));
    return a->kind == PLIM_ARG_VALUES ? a->ids[k] : a->id;
}

struct plim_op;

typedef struct plim_node {
    const struct plim_op *op; /* NULL: no rule; lowered to a bounded estimate */
    plim_str target;          /* as the file wrote it: "aten.conv2d.default" */
    bool inplace;             /* target's name ends in '_': the op writes its first argument */
    uint32_t scope;           /* innermost module call */
    uint32_t n_args, n_outs;
    const plim_arg *args;
    const uint32_t *outs; /* value ids */
} plim_node;

/* The value that argument i is; PLIM_NONE: it is none, or not there. */
static inline uint32_t plim_node_value(const plim_node *n, uint32_t i)
{
    return i < n->n_args && n->args[i].kind == PLIM_ARG_VALUE ? n->args[i].id : PLIM_NONE;
}

/* One call of one module.  The chain of parents is the call stack; calling a
 * shared module twice makes two scopes of the same path. */
typedef struct plim_scope {
    uint32_t parent;      /* PLIM_NONE for scope 0 */
    plim_str path;        /* "layer1.0.conv1"; "" for the model */
    plim_str type;        /* "Conv2d" */
    const uint32_t *args; /* value ids of the tensors it was called with, if known */
    uint32_t n_args;
} plim_scope;

/* A size that the file leaves open. */
typedef struct plim_open_dim {
    plim_str name;
    int64_t value; /* what an estimate uses by default; 0: it must be given */
} plim_open_dim;

/* A part of the model that runs by itself, a stage of a pipeline. */
typedef struct plim_chunk {
    uint32_t scope;          /* its call of the model; 0: it has all nodes */
    uint32_t received;       /* an input; PLIM_NONE: it has the model's */
    uint32_t loads, n_loads; /* of the graph's inputs, those of its batch, from the first on */
    uint32_t output, n_outputs; /* of the graph's outputs, from the first on */
    bool sends;                 /* them to another stage; else the first is the loss */
} plim_chunk;

/* What the model is called, where it is from, and what is known of it. */
typedef struct plim_graph_about {
    plim_str name, format, producer;
    plim_str
        origin; /* of a model of the hub: its commit, and which cache it is from; else empty */
    plim_str model_type; /* of a config.json: "llama"; else empty */
    plim_str
        releases; /* of the libraries whose classes it is built after: "transformers 5.24"; or empty */
    int transformers;   /* the same as a number: 524; 0: none */
    plim_str attention; /* where there is a choice, the one that was made: "sdpa", "eager" */
    plim_str note; /* what a reader should know about figures from this graph; may be empty */
    plim_str left_out; /* what of the model the graph does not have; empty: it is whole */
    uint32_t top1;     /* published top-1 accuracy, thousandths of a percent; 0: not known */
} plim_graph_about;

/* The sizes of its inputs: those that the user may give, and those that it was built with. */
typedef struct plim_graph_sizes {
    plim_open_dim *dims; /* by name, for --dim */
    uint32_t n_dims, cap_dims;
    int64_t batch;    /* what the batch dimension was bound to; 0: there is none */
    bool batch_fixed; /* the file holds one batch size only */
    int64_t seq;      /* the sequence length that it was built with; 0: not known */
    int64_t seq_max;  /* the longest that the model was made for; 0: no limit, or not known */
    int64_t virtual_tokens; /* in front of those of each sequence, as bound */
    int64_t images;         /* of each sequence, as bound */
    bool takes_images;      /* besides tokens, or makes them */
    int64_t width, height;  /* of those that it makes; 0: it makes none */
    int64_t audio;          /* samples of sound in each sequence; 0: it hears none */
    bool uneven;            /* sequences are padded or packed, as bound: an input says how */
} plim_graph_sizes;

/* Which part of the model it is, where several ranks share one. */
typedef struct plim_graph_part {
    int64_t contexts;     /* it is about one of so many parts of the tokens; 0: about all */
    int64_t expert_ranks; /* each has a part of the experts; 0: all are here, or none */
    int64_t expert_parts; /* of the features of each; 0 or 1: they are not divided */
    plim_chunk *chunks;   /* in the order of the stages; none: the graph is whole */
    uint32_t n_chunks;
} plim_graph_part;

typedef struct plim_graph {
    plim_arena *arena;
    plim_value *values;
    plim_node *nodes;
    plim_scope *scopes;
    uint32_t *inputs, *outputs; /* value ids, in the model's order */
    uint32_t n_values, n_nodes, n_scopes, n_inputs, n_outputs;
    struct {
        uint32_t values, nodes, scopes, inputs, outputs;
    } cap;                  /* what the arrays have room for */
    bool labels_are_inputs; /* an input serves as labels, too */
    bool denoises;          /* its output is compared with noise, in fp32 */
    bool keeps;     /* some inputs are what it made in the step before, in its own type */
    bool lifetimes; /* nodes say how long variables live: a value goes after its last use */
    uint64_t packed_weights; /* of quantized modules, which are not among its parameters */
    plim_graph_about about;
    plim_graph_sizes sizes;
    plim_cache kv; /* what generation keeps of the tokens that it has seen */
    plim_graph_part part;
} plim_graph;

/* The value that has the tensor: of a tied parameter the one that it is tied to. */
static inline uint32_t plim_graph_owner(const plim_graph *g, uint32_t id)
{
    return g->values[id].tied_to == PLIM_NONE ? id : g->values[id].tied_to;
}

/* Whether what is called so, "layer1.0.weight", belongs to the module "layer1". */
static inline bool plim_name_within(plim_str name, plim_str module)
{
    return name.n > module.n && name.p[module.n] == '.' && !memcmp(name.p, module.p, module.n);
}

/* Whether it belongs to one of several experts. */
static inline bool plim_name_in_experts(plim_str name)
{
    return plim_str_has(name, ".experts.");
}

plim_status plim_graph_init(plim_graph *g, plim_arena *a, plim_err *err); /* makes scope 0 */
/* Called before the first value: reserves room for n values and n nodes, so that the arrays
 * need not be moved as they grow.  Only a hint: a wrong number does no harm. */
void plim_graph_expect(plim_graph *g, uint32_t n);

/* A part of the model is not in the graph, as a clause says ("only the encoder is counted"): no verdict on it is
 * a yes.  False: our memory is full. */
bool plim_graph_leave_out(plim_graph *g, plim_str what);
/* What is left out, then the note, in words; {NULL, 0}: our memory is full. */
plim_str plim_graph_note(const plim_graph *g);

/* Takes all nodes out, *n of them: a transform puts them back, or others in their place.  Owned by
 * the arena. */
plim_node *plim_graph_take_nodes(plim_graph *g, uint32_t *n);

/* Builders copy nothing: strings and arrays must live in g->arena.  Each
 * returns the new id, or PLIM_NONE when the arena is full. */
uint32_t plim_graph_add_value(plim_graph *g, const plim_value *v);
uint32_t plim_graph_add_node(plim_graph *g, const plim_node *n); /* sets outs' .node */
uint32_t plim_graph_add_scope(plim_graph *g, uint32_t parent, plim_str path, plim_str type);
/* The running call of the scope holds this value, too.  False: our memory is full. */
bool plim_graph_hold(plim_graph *g, uint32_t scope, uint32_t value);
bool plim_graph_add_input(plim_graph *g, uint32_t value);
bool plim_graph_add_output(plim_graph *g, uint32_t value);
bool plim_graph_add_dim(plim_graph *g, plim_str name, int64_t value);
/* Of its first parameter that is not packed; fp32 if there is none. */
plim_dtype plim_graph_dtype(const plim_graph *g);
bool plim_graph_add_kv(plim_graph *g, const plim_kv_layers *kv); /* and to kv.elements */

/* How a part of a model becomes part of a whole. */
typedef struct plim_append {
    plim_str name; /* of the module that it is */
    bool runs;     /* its nodes, too; else only what it holds */
    bool trained;  /* else its parameters are frozen */
    bool returns;  /* its outputs are those of the whole */
} plim_append;
/* What they refer to is shared, so that both are of one arena.  False: our memory is full. */
bool plim_graph_append(plim_graph *g, const plim_graph *part, const plim_append *how);

/* NULL if the graph is sound, else what is wrong: ids in range, each value
 * made before it is used, scopes acyclic, sizes that do not overflow. */
const char *plim_graph_check(const plim_graph *g);

/* How many ops it has: nodes, but for those that only say how long a variable lives. */
uint32_t plim_graph_ops(const plim_graph *g);

/* Checked sums over parameters and buffers; tied ones count once. */
typedef struct plim_graph_counts {
    uint64_t parameters, trainable, buffers; /* elements */
    uint64_t parameter_bytes, buffer_bytes;
} plim_graph_counts;
plim_status plim_graph_count(const plim_graph *g, plim_graph_counts *out, plim_err *err);

#endif
