/* fit.h -- simulates a run on a card, and finds the largest size that fits: the batch, or the
 * sequence length if the job searches for that. */
#ifndef PLIM_FIT_H
#define PLIM_FIT_H

#include "fit/verdict.h"

typedef struct plim_peaks {
    uint64_t requested, allocated, reserved; /* UINT64_MAX: beyond 64 bits */
    bool oom;
    bool refused;   /* with oom: the model does not take this batch */
    double seconds; /* of a step on the job's card, usually; 0: unknown */
} plim_peaks;

/* Builds the model at this size (plim_job_graph), runs the step and simulates it; `what` is 0,
 * PLIM_SIM_LOW or _HIGH; room, for the allocator: 0 means no limit.  Resets `scratch` and
 * works in it. */
plim_status plim_fit_size(const plim_job *job, plim_arena *scratch, int64_t size,
                          unsigned what, uint64_t room, plim_peaks *out, plim_err *err);
/* The same for each of n what[]: out[n]. */
plim_status plim_fit_bounds(const plim_job *job, plim_arena *scratch, int64_t size,
                            const unsigned *what, uint32_t n, uint64_t room, plim_peaks *out,
                            plim_err *err);

enum { PLIM_FIT_MAX_SIZE = 1 << 24 };

/* Searches the largest size that fits a card with context and workspaces at their
 * upper bounds.  One search serves many cards, one after the other. */
typedef struct plim_fit_search plim_fit_search;
plim_fit_search *plim_fit_search_new(plim_arena *a, plim_job *job); /* NULL: out of memory */
plim_status plim_fit_card(plim_fit_search *s, const plim_gpu *gpu, plim_fit_row *row,
                          plim_err *err);
/* The row of another card from that of the last card, if the memory of the run is the same on
 * both; false: it is not, and *row is unchanged. */
bool plim_fit_same(plim_fit_search *s, const plim_gpu *gpu, const plim_fit_row *solved,
                   plim_fit_row *row);
/* The rows of n cards, each as if it were alone; uses some threads if there are many.  Reports progress.
 * *info: as below, of one of them; loop NULL: there was none. */
plim_status plim_fit_cards(const plim_job *job, const plim_gpu *const *cards, uint32_t n,
                           plim_fit_row *rows, plim_step_info *info, plim_err *err);
/* Of the last run at a size that was found; loop NULL: there was none. */
const plim_step_info *plim_fit_search_info(const plim_fit_search *s);
/* Of all runs of the step so far, each up to its end or to where it needs more than there is. */
uint64_t plim_fit_search_events(const plim_fit_search *s);
void plim_fit_search_free(plim_fit_search *s); /* takes NULL */

#endif
