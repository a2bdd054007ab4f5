/* changes.h -- changes of settings that may lower the peak of a run, each simulated. */
#ifndef PLIM_CHANGES_H
#define PLIM_CHANGES_H

#include "fit/verdict.h"

/* What the bytes live at the peak have in common: the same changes reduce them. */
typedef enum plim_part {
    PLIM_PART_SAMPLES,   /* grows with the batch */
    PLIM_PART_WEIGHTS,   /* parameters, their averages, gradients, buffers */
    PLIM_PART_OPTIMIZER, /* its state, and its temporaries during the step */
    PLIM_PART_WORKSPACE,
    PLIM_PART_COUNT
} plim_part;

typedef struct plim_changes {
    plim_change *rows; /* that lower the peak; those that fit first, then by what they save */
    uint32_t n;
    plim_str tried; /* all that were simulated: "--keep none, --batch 4"; may be empty */
} plim_changes;

/* Simulates some of the changes that apply to the run, those that reduce the largest parts
 * first: few if it fits or no card was chosen; else more, and combinations if none alone
 * makes it fit.  `e` has the figures of the run itself, `t` is its tape. */
plim_status plim_changes_simulate(const plim_job *job, const plim_graph *g, const plim_tape *t,
                                  const plim_estimate *e, const uint64_t part[PLIM_PART_COUNT],
                                  plim_arena *a, plim_changes *out, plim_err *err);

#endif
