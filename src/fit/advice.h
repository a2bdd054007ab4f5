/* advice.h -- a paragraph about a finished estimate: what dominates its peak, and which
 * changes of settings would lower it. */
#ifndef PLIM_ADVICE_H
#define PLIM_ADVICE_H

#include "fit/changes.h"

typedef struct plim_advice {
    plim_str text;
    plim_change *rows; /* the changes that lower the peak */
    uint32_t n;
} plim_advice;

/* Reads the figures of the estimate, whose graph and tape are g and t; the result is in `a`.
 * The setting "advice" none: what dominates the peak, without changes. */
plim_status plim_advice_make(const plim_job *job, const plim_graph *g, const plim_tape *t,
                             const plim_estimate *e, plim_arena *a, plim_advice *out,
                             plim_err *err);

#endif
