/* machine_run.h -- runs a graph on the machine: its nodes forward (machine_run.c), and
 * autograd's nodes backward (engine.c). */
#ifndef PLIM_MACHINE_RUN_H
#define PLIM_MACHINE_RUN_H

#include "machine/machine.h"

/* Runs one graph node.  value[] holds handles by value id and receives the node's outputs. A
 * node without a rule gets new outputs with the metas that the file gives. */
void plim_m_run(plim_machine *m, const plim_graph *g, uint32_t node, plim_t *value);
/* root.backward(grad); grad 0: of a loss, whose gradient is 1.  `visit` is called for each autograd node before it runs, with the graph
 * node that created it. */
typedef void (*plim_m_visit)(void *ud, uint32_t where, const char *fn);
void plim_m_backward(plim_machine *m, plim_t root, plim_t grad, plim_m_visit visit, void *ud);
/* register_post_accumulate_grad_hook on every leaf: called once its gradient is complete. */
void plim_m_on_grad(plim_machine *m, void (*call)(void *ud, plim_t leaf), void *ud);
/* Within a node's backward: starts from several roots with these gradients (borrowed). */
void plim_m_backward_from(plim_machine *m, const plim_t *root, const plim_t *g, uint32_t n,
                          plim_m_visit visit, void *ud);
/* engine_split.c: the same in two parts, as pipelines without bubbles run it.  The first leaves
 * input.grad; the graph stays, and what the second starts from, which leaves those of the
 * parameters.  NULL: an error, which the machine has. */
struct plim_split;
struct plim_split *plim_m_backward_input(plim_machine *m, plim_t root, plim_t grad,
                                         plim_t input, const plim_t *params, uint32_t n,
                                         plim_m_visit visit, void *ud);
void plim_m_backward_params(plim_machine *m, struct plim_split *s, plim_m_visit visit,
                            void *ud);
uint32_t plim_m_unknown_ops(const plim_machine *m);

/* Runs a node's rule on metas alone and writes sizes, strides and dtypes into its output
 * values.  The zoo gets its shapes this way; importers whose files have shapes use it as a
 * check.  PLIM_ESHAPE says what does not fit. */
plim_status plim_op_infer(plim_graph *g, const plim_node *n, plim_err *err);

#endif
