/* ties.h -- finds parameters that are one tensor under several names, from how the graph uses
 * them.
 *
 * A model exported without its weights (on the meta device) does not say which parameters
 * share a storage, but torch.export assigns all uses of a shared tensor to one of its names.
 * So the other names are used nowhere, and the modules that they belong to use a parameter of
 * another module. */
#ifndef PLIM_TIES_H
#define PLIM_TIES_H

#include "core/graph.h"

/* Sets tied_to of such parameters. */
plim_status plim_ties_find(plim_graph *g, plim_err *err);

#endif
