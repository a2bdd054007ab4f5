/* advice.h -- one sentence about a finished estimate: what dominates its peak,
 * and what would save most. */
#ifndef PLIM_ADVICE_H
#define PLIM_ADVICE_H

#include "base/base.h"

/* The sentence, in `a`; {NULL, 0}: out of memory.  Reads the categories, the peak
 * and the phases of the estimate. */
plim_str plim_advice(plim_arena *a, const plim_estimate *e);

#endif
