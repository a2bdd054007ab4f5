/* advice.h -- one plain sentence about a finished estimate: what dominates its
 * peak, and what would help most. */
#ifndef PLIM_ADVICE_H
#define PLIM_ADVICE_H

#include "base/base.h"

/* Reads what the estimate says of its peak and phases; in `a`.  {NULL, 0}: no
 * memory. */
plim_str plim_advice(plim_arena *a, const plim_estimate *e);

#endif
