/* rule.h -- what an op is to a graph whose nodes call it: a row of op/ops.def.
 *
 * A rule is written as PyTorch executes the op on CUDA in eager mode: it makes the outputs on
 * the abstract machine (machine/machine.h), records the autograd node and saves tensors in it.
 * Shapes, saved tensors, temporaries and their order all follow from running the rule; nothing
 * is stated twice.  The op's cost (MACs, bytes moved) is a second small function, because it is
 * needed separately. */
#ifndef PLIM_RULE_H
#define PLIM_RULE_H

#include "core/graph.h"

/* Results of a node that a rule gives, or tensors in a list, at most. */
enum { PLIM_OP_OUTS = 1024 };

struct plim_call;
struct plim_cost_call;

typedef struct plim_cost {
    uint64_t macs;  /* multiply-accumulates of matmul-like work, as torchvision counts */
    uint64_t flops; /* 2 * macs, or one per elementary operation */
    uint64_t read, written; /* bytes moved if every operand is touched once */
} plim_cost;

typedef struct plim_op {
    const char *name;   /* "conv2d", or "mean.dim" for one overload only */
    const char *schema; /* "input, weight, bias=None, stride=1, ..." */
    const char *family; /* rules_<family>.c */
    void (*run)(struct plim_call *c);
    void (*cost)(const struct plim_cost_call *c, plim_cost *out);
    const char *doc, *src;
} plim_op;

/* Whether the node calls the op of that row. */
static inline bool plim_node_calls(const plim_node *n, const char *op)
{
    return n->op && !strcmp(n->op->name, op);
}

/* Whether it is attention by a fused kernel, of PyTorch or of flash-attn. */
static inline bool plim_node_attends(const plim_node *n)
{
    return plim_node_calls(n, "scaled_dot_product_attention") ||
           plim_node_calls(n, "flash_attention");
}

#endif
