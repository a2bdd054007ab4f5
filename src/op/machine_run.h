/* machine_run.h -- a graph run on the machine: its nodes forwards (machine_run.c), and
 * autograd's backwards (engine.c). */
#ifndef PLIM_MACHINE_RUN_H
#define PLIM_MACHINE_RUN_H

#include "op/machine.h"

/* Runs one graph node.  value[]: handles by value id; the node's outputs are
 * put there.  Nodes without a rule get fresh outputs of the file's metas. */
void plim_m_run(plim_machine *m, const plim_graph *g, uint32_t node, plim_t *value);
/* loss.backward().  `name_of` says what layer a graph node belongs to; the
 * tape gets a mark for each autograd node. */
typedef void (*plim_m_visit)(void *ud, uint32_t where, const char *fn);
void plim_m_backward(plim_machine *m, plim_t root, plim_m_visit visit, void *ud);
/* Within a node's backward: from several roots with these gradients (borrowed). */
void plim_m_backward_from(plim_machine *m, const plim_t *root, const plim_t *g, uint32_t n,
                          plim_m_visit visit, void *ud);
uint32_t plim_m_unknown_ops(const plim_machine *m);

#endif
