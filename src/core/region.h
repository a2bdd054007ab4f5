/* region.h -- which parts of a graph are checkpointed.
 *
 * "blocks"          each outermost module of a list whose modules contain others, such as
 *                   BertLayer or BasicBlock
 * "layer*.*"        each outermost module whose path matches; several patterns: "layers.*,head"
 * "segments=N"      as checkpoint_sequential(model, N): the top level's calls in N
 *                   parts; the last is not checkpointed
 * ",reentrant"      after any of these: use_reentrant=True
 * src: torch/utils/checkpoint.py */
#ifndef PLIM_REGION_H
#define PLIM_REGION_H

#include "core/graph.h"

/* Whether the path of a module is as this pattern: '*' stands for anything but a dot, '**' for
 * anything. */
bool plim_path_like(plim_str path, plim_str like);

typedef struct plim_region {
    uint32_t first, last; /* nodes [first, last) */
    uint32_t scope;       /* the module call they form; PLIM_NONE: several calls */
    uint32_t *input;      /* values from outside, except parameters */
    uint32_t *output;     /* values that are used outside */
    uint32_t n_inputs, n_outputs;
} plim_region;

typedef struct plim_regions {
    plim_region *r;
    uint32_t n;
    bool reentrant;
} plim_regions;

/* `how` NULL or "none": no regions.  PLIM_EUSAGE if nothing matches. */
plim_status plim_regions_find(plim_arena *a, const plim_graph *g, plim_str how,
                              plim_regions *out, plim_err *err);

/* Every call of a module but the model's, before those that it makes. */
plim_status plim_regions_modules(plim_arena *a, const plim_graph *g, plim_regions *out,
                                 plim_err *err);

/* Number of calls that can be divided into segments. */
plim_status plim_regions_calls(plim_arena *a, const plim_graph *g, uint32_t *n, plim_err *err);

#endif
