/* op.h -- the ops that have a rule: the rows of ops.def, by name, and what they say of a node. */
#ifndef PLIM_OP_H
#define PLIM_OP_H

#include "core/rule.h"

/* Whether it only gives its first argument another shape or type, or, with `bounds`, bounds it
 * (softcapping): what lies between a model's head and its loss. */
bool plim_leads_to_loss(const plim_node *n, bool bounds);
/* By value id, as plim_graph_owner() gives it: whether it is a table of an embedding or the weight of the
 * head, which is the linear layer that the first output comes from.  NULL: our memory is full. */
bool *plim_find_ends(plim_arena *a, const plim_graph *g);

uint32_t plim_op_count(void);
const plim_op *plim_op_at(uint32_t i);

/* Finds the row for "conv2d", "default" or "add_", "Tensor": the row of this overload if there
 * is one, else that of the base name.  A trailing '_' sets *inplace.  NULL: no rule. */
const plim_op *plim_op_find(plim_str base, plim_str overload, bool *inplace);

typedef struct plim_named_arg {
    plim_str name;
    plim_arg arg;
} plim_named_arg;

/* "input, weight, bias=None", read: a slot for each argument, and its default (ARG_NONE: it has none). */
typedef struct plim_schema {
    const plim_named_arg *slots;
    uint32_t n;
} plim_schema;
/* In `a`; false: our memory is full. */
bool plim_schema_read(plim_arena *a, const char *text, plim_schema *out);

/* Puts arguments into the slots of a schema and fills in defaults.  *unknown (may be NULL) is
 * set to the first name that is not in the schema.  *args lives in `a`. */
plim_status plim_schema_bind(plim_arena *a, const plim_schema *schema,
                             const plim_named_arg *given, uint32_t n_given, plim_arg **args,
                             plim_str *unknown, plim_err *err);
/* The same for an op's schema, which must have every name (else PLIM_EUNSUPPORTED; the caller
 * then lowers the node without a rule). */
plim_status plim_op_bind(plim_arena *a, const plim_op *op, const plim_named_arg *given,
                         uint32_t n_given, const plim_arg **args, uint32_t *n_args,
                         plim_err *err);
/* The same with its schema, where that has been read before. */
plim_status plim_op_bind_read(plim_arena *a, const plim_op *op, const plim_schema *schema,
                              const plim_named_arg *given, uint32_t n_given, plim_arg **args,
                              plim_err *err);

/* What the in-place form of an activation changes in what is kept for backward. */
typedef enum plim_inplace {
    PLIM_INPLACE_NONE,   /* no activation, or torch.nn has no in-place form of it */
    PLIM_INPLACE_MOMENT, /* the result is kept either way: less memory only while it runs */
    PLIM_INPLACE_COPY,   /* a copy of the input is kept instead of the input */
    PLIM_INPLACE_LESS,   /* the result is kept instead of the input */
} plim_inplace;
plim_inplace plim_op_inplace(const plim_op *op);

/* Cost of a node from the metas in its graph; without a rule, only the bytes of its
 * operands. */
plim_status plim_op_cost(const plim_graph *g, const plim_node *n, plim_cost *out);

#endif
