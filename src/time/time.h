/* time.h -- how long a step takes on a card: an estimate from the work of its kernels
 * (machine/work.h), the rates of the card, and how near each class of work comes to them
 * (rates.def, fitted by tools/speed.py).
 *
 *     op    max(2 MACs / (peak x e), bytes / (bandwidth x m)) + kernels x launch
 *     step  the sum over its ops, or what the CPU needs to start its kernels if that is more
 */
#ifndef PLIM_TIME_H
#define PLIM_TIME_H

#include "gpu/gpu.h"
#include "machine/work.h"

typedef enum plim_time_limit {
    PLIM_TIME_COMPUTATION,
    PLIM_TIME_MEMORY,
    PLIM_TIME_LAUNCH,
    PLIM_TIME_LIMITS
} plim_time_limit;
const char *plim_time_limit_name(plim_time_limit l); /* "computation" */

typedef struct plim_time {
    const char *unknown;           /* why there is no figure; NULL: there is one */
    double low, usual, high;       /* seconds */
    double part[PLIM_TIME_LIMITS]; /* of the usual time; they sum to it */
} plim_time;

plim_time plim_time_of(const plim_ledger *ledger, const plim_gpu *gpu, bool train);

/* One row's seconds, and what limits it; 0: the card's rate is not known. */
double plim_time_row_of(const plim_work *row, const plim_gpu *gpu, plim_time_limit *limit);

#endif
