/* nn.h -- modules of torch.nn that write a graph: each call adds the scope, the parameters,
 * the buffers and the nodes that an export of the same module in train mode shows.  Model code
 * then reads like the original.
 *
 * The builder's error is sticky: after the first one every function returns PLIM_NONE and does
 * nothing, so model code needs no checks.
 *
 * `name` NULL: the next index, as in a Sequential.  Parameters are named by the dotted path of
 * the modules that are open. */
#ifndef PLIM_NN_H
#define PLIM_NN_H

#include "op/op.h"

enum { PLIM_NN_DEPTH = 16, PLIM_NN_CACHE = 256 };

typedef struct plim_nn {
    plim_graph *g;
    plim_err *err;
    plim_status st;
    bool infer;       /* as after model.eval(): no stochastic depth, no auxiliary heads */
    plim_dtype dtype; /* of parameters; fp32 by default */
    /* Writes the contents of a Linear module, which is open; default: plim_nn_plain_linear. */
    uint32_t (*linear)(struct plim_nn *n, uint32_t x, int64_t out, bool bias);
    uint32_t scope, depth;
    uint32_t next[PLIM_NN_DEPTH]; /* index of the next unnamed child */
    /* ops looked up so far, by the address of the target's text: a model uses the same few ops
     * hundreds of times */
    struct plim_nn_target {
        const char *target;
        const plim_op *op;
        bool inplace;
        plim_schema schema;
    } cache[PLIM_NN_CACHE];
    uint32_t seen[PLIM_NN_CACHE]; /* nodes whose shapes were inferred, plus 1, by hash */
    struct plim_nn_leaf {         /* parameters and buffers, and the scopes that own them */
        uint32_t value, scope;
    } * leaves;
    struct plim_nn_order {
        uint32_t scope;
        const char *children;
    } * orders;
    uint32_t n_leaves, cap_leaves, n_orders, cap_orders;
} plim_nn;

void plim_nn_init(plim_nn *n, plim_graph *g, plim_err *err);
void plim_nn_fail(plim_nn *n, plim_status st, const char *fmt, ...) PLIM_PRINTF(3, 4);

/* ---- modules: enter, do, leave --------------------------------------------- */

void plim_nn_root(plim_nn *n, const char *type); /* the model's own class */
void plim_nn_enter(plim_nn *n, const char *name, const char *type);
void plim_nn_leave(plim_nn *n);
/* The open module was called with these tensors, used or not: its call keeps them alive.
 * PLIM_NONE entries are skipped. */
void plim_nn_called(plim_nn *n, const uint32_t *args, uint32_t count);
/* This one, too. */
void plim_nn_holds(plim_nn *n, uint32_t id);
void plim_nn_hold_all(plim_nn *n, const uint32_t *ids, size_t count);
/* A variable of a function that is not a module ends here: until now it held this one. */
void plim_nn_ends(plim_nn *n, uint32_t id);
/* The open module returns this one, too, and so do `through` callers: a variable of the next one,
 * until that returns. */
void plim_nn_returned(plim_nn *n, uint32_t id, uint32_t through);
/* "denselayer", 3: the text "denselayer3" in the graph's arena. */
const char *plim_nn_name(plim_nn *n, const char *stem, int64_t number);
/* "Llama", "RMSNorm": the text "LlamaRMSNorm" in the graph's arena. */
const char *plim_nn_join(plim_nn *n, const char *a, const char *b);

/* For a module that registers its children in another order than it calls them: their names,
 * "self_attn mlp *", with a star for all others.  Parameters are loaded and optimized in the
 * order of registration, so the model ends with plim_nn_settle, which puts them into that
 * order (ids of values change). */
void plim_nn_order(plim_nn *n, const char *children);
void plim_nn_settle(plim_nn *n);

/* ---- sizes, and lists of them ---------------------------------------------- */

typedef struct plim_ints {
    const int64_t *p;
    uint32_t n;
} plim_ints;
#define INTS(...)                                                                             \
    ((plim_ints){(const int64_t[]){__VA_ARGS__},                                              \
                 sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)})

int64_t plim_nn_dim(const plim_nn *n, uint32_t x,
                    int32_t dim); /* negative: from the end; returns 1 after an error */

/* ---- leaves ------------------------------------------------------------------ */

/* Removes the nodes from `first` on: their modules exist but do not run. */
void plim_nn_forget(plim_nn *n, uint32_t first);
uint32_t plim_nn_param(plim_nn *n, const char *name, plim_ints dim);
uint32_t plim_nn_buffer(plim_nn *n, const char *name, plim_dtype t, plim_ints dim);
uint32_t plim_nn_temporary_buffer(plim_nn *n, const char *name, plim_dtype t,
                                  plim_ints dim); /* persistent=False */
/* Made in fp32 whatever the type of the model, which casts it when it is cast. */
uint32_t plim_nn_fp32_buffer(plim_nn *n, const char *name, plim_ints dim, bool persistent);
/* Part of a packed weight: casts of the model do not change its type. */
uint32_t plim_nn_packed(plim_nn *n, const char *name, plim_dtype t, plim_ints dim);
/* requires_grad_(False) */
void plim_nn_freeze(plim_nn *n, uint32_t param);
/* A second name for a parameter: the same storage. */
uint32_t plim_nn_tie(plim_nn *n, const char *name, uint32_t param);
uint32_t plim_nn_input(plim_nn *n, const char *name, plim_dtype t, plim_ints dim);
void plim_nn_output(plim_nn *n, uint32_t x);

/* ---- ops ----------------------------------------------------------------------- */

#define ARG_T(slot, x)                                                                        \
    {                                                                                         \
        PLIM_STR(slot), { .kind = PLIM_ARG_VALUE, .id = (x) }                                 \
    }
#define ARG_TS(slot, list, count)                                                             \
    {                                                                                         \
        PLIM_STR(slot), { .kind = PLIM_ARG_VALUES, .n = (count), .ids = (list) }              \
    }
#define ARG_I(slot, x)                                                                        \
    {                                                                                         \
        PLIM_STR(slot), { .kind = PLIM_ARG_INT, .i = (x) }                                    \
    }
#define ARG_F(slot, x)                                                                        \
    {                                                                                         \
        PLIM_STR(slot), { .kind = PLIM_ARG_FLOAT, .f = (x) }                                  \
    }
#define ARG_IS(slot, list)                                                                    \
    {                                                                                         \
        PLIM_STR(slot), { .kind = PLIM_ARG_INTS, .n = (list).n, .ints = (list).p }            \
    }

/* Adds a node of `target` with n_out results in out; lists are copied. NN_OP(n,
 * "aten.relu.default", ARG_T("self", x)) returns its only result. */
void plim_nn_node(plim_nn *n, const char *target, const plim_named_arg *args, uint32_t n_args,
                  uint32_t *out, uint32_t n_out);
uint32_t plim_nn_op(plim_nn *n, const char *target, const plim_named_arg *args,
                    uint32_t n_args);
#define NN_OP(n, target, ...)                                                                 \
    plim_nn_op((n), (target), (const plim_named_arg[]){__VA_ARGS__},                          \
               sizeof((const plim_named_arg[]){__VA_ARGS__}) / sizeof(plim_named_arg))

/* torch.flatten(x, 1), F.relu(x), a + b ... : nodes in the open module. */
uint32_t plim_nn_unary(plim_nn *n, const char *target, uint32_t x);
uint32_t plim_nn_binary(plim_nn *n, const char *target, uint32_t a, uint32_t b);
/* x * 0.5, x + 1 ...: an integer if x is of an integer type */
uint32_t plim_nn_scalar(plim_nn *n, const char *target, uint32_t x, double other);
uint32_t plim_nn_to(plim_nn *n, uint32_t x, plim_dtype t);     /* x.to(t), or x itself */
uint32_t plim_nn_to_like(plim_nn *n, uint32_t x, uint32_t of); /* x.to(of.dtype) */
uint32_t plim_nn_expand(plim_nn *n, uint32_t x, plim_ints size);
void plim_nn_chunk(plim_nn *n, uint32_t x, uint32_t count, int64_t dim, uint32_t *out);
/* torch.split(x, sizes, dim): sizes.n results */
void plim_nn_split(plim_nn *n, uint32_t x, plim_ints sizes, int64_t dim, uint32_t *out);
uint32_t plim_nn_arange(plim_nn *n, int64_t end);
uint32_t plim_nn_softmax(plim_nn *n, uint32_t x, int64_t dim);
uint32_t plim_nn_cat(plim_nn *n, const uint32_t *x, uint32_t count, int64_t dim);
uint32_t plim_nn_flatten1(plim_nn *n, uint32_t x);
uint32_t plim_nn_view(plim_nn *n, uint32_t x, plim_ints size);
uint32_t plim_nn_reshape(plim_nn *n, uint32_t x, plim_ints shape);
uint32_t plim_nn_permute(plim_nn *n, uint32_t x, plim_ints dims);
uint32_t plim_nn_transpose(plim_nn *n, uint32_t x, int64_t dim0, int64_t dim1);
uint32_t plim_nn_contiguous(plim_nn *n, uint32_t x); /* no node if x is contiguous */
uint32_t plim_nn_unsqueeze(plim_nn *n, uint32_t x, int64_t dim);
uint32_t plim_nn_select(plim_nn *n, uint32_t x, int64_t dim, int64_t index);
uint32_t plim_nn_slice(plim_nn *n, uint32_t x, int64_t dim, int64_t start, int64_t end,
                       int64_t step);
uint32_t plim_nn_pad(plim_nn *n, uint32_t x, plim_ints pad);
uint32_t plim_nn_mean_hw(plim_nn *n, uint32_t x);
uint32_t plim_nn_linear_op(plim_nn *n, uint32_t x, uint32_t weight,
                           uint32_t bias); /* F.linear */
uint32_t plim_nn_dropout_op(plim_nn *n, uint32_t x, double p);
uint32_t plim_nn_layer_norm_op(plim_nn *n, uint32_t x, double eps);
uint32_t plim_nn_avg_pool_op(plim_nn *n, uint32_t x, int64_t kernel, int64_t stride,
                             int64_t pad);
uint32_t plim_nn_max_pool_op(plim_nn *n, uint32_t x, int64_t kernel, int64_t stride,
                             int64_t pad, bool ceil);
uint32_t plim_nn_adaptive_avg_op(plim_nn *n, uint32_t x, int64_t size);

/* ---- modules ------------------------------------------------------------------- */

/* Zero means the module's default: kernel, stride, groups 1, padding 0. */
typedef struct plim_conv {
    int64_t out, kernel, stride, pad, groups;
    int64_t kernel_w, pad_w; /* where they differ from kernel and pad: kernel_w > 0 */
    bool bias;
} plim_conv;
uint32_t plim_nn_conv2d(plim_nn *n, const char *name, uint32_t x, plim_conv c);
uint32_t plim_nn_conv_transpose2d(plim_nn *n, const char *name, uint32_t x, plim_conv c);

typedef struct plim_norm {
    double eps, momentum;
} plim_norm;
#define PLIM_NORM ((plim_norm){1e-5, 0.1}) /* BatchNorm2d's defaults */
uint32_t plim_nn_batch_norm2d(plim_nn *n, const char *name, uint32_t x, plim_norm norm);
uint32_t plim_nn_layer_norm(plim_nn *n, const char *name, uint32_t x, double eps);
uint32_t plim_nn_linear(plim_nn *n, const char *name, uint32_t x, int64_t out, bool bias);
uint32_t plim_nn_plain_linear(plim_nn *n, uint32_t x, int64_t out, bool bias);
/* `weight` (may be NULL) is set to the table, so that others can be tied to it */
uint32_t plim_nn_embedding(plim_nn *n, const char *name, uint32_t ids, int64_t rows,
                           int64_t width, uint32_t *weight);
uint32_t plim_nn_embedding_op(plim_nn *n, uint32_t ids, uint32_t weight);

typedef enum plim_act {
    PLIM_ACT_NONE,
    PLIM_RELU,
    PLIM_RELU_, /* _: inplace=True */
    PLIM_RELU6_,
    PLIM_SILU_,
    PLIM_HARDSWISH_,
    PLIM_GELU,
    PLIM_TANH,
    PLIM_SIGMOID,
    PLIM_HARDSIGMOID,
} plim_act;
uint32_t plim_nn_act(plim_nn *n, const char *name, uint32_t x, plim_act a);

uint32_t plim_nn_max_pool2d(plim_nn *n, const char *name, uint32_t x, int64_t kernel,
                            int64_t stride, int64_t pad, bool ceil);
uint32_t plim_nn_avg_pool2d(plim_nn *n, const char *name, uint32_t x, int64_t kernel);
uint32_t plim_nn_adaptive_avg_pool2d(plim_nn *n, const char *name, uint32_t x, int64_t size);
uint32_t plim_nn_dropout(plim_nn *n, const char *name, uint32_t x, double p);
uint32_t plim_nn_dropout_(plim_nn *n, const char *name, uint32_t x, double p);

/* ---- torchvision.ops ------------------------------------------------------------ */

/* Conv2dNormActivation: padding (kernel - 1) / 2, no bias. */
uint32_t plim_nn_conv_norm_act(plim_nn *n, const char *name, uint32_t x, plim_conv c,
                               plim_norm norm, plim_act act);
/* SqueezeExcitation as module `name`. */
uint32_t plim_nn_squeeze_excite(plim_nn *n, const char *name, uint32_t x, int64_t squeeze,
                                plim_act act, plim_act scale);
/* StochasticDepth(p, "row") as module "stochastic_depth"; x itself if p is 0, or
 * for inference. */
uint32_t plim_nn_stochastic_depth(plim_nn *n, uint32_t x, double p);
uint32_t plim_nn_permute_module(plim_nn *n, const char *name, uint32_t x, plim_ints dims);
/* _make_divisible(v, 8) of torchvision/models/_utils.py */
int64_t plim_nn_make_divisible8(double v);

#endif
