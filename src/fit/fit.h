/* fit.h -- what a run needs on a card, whether it fits, how large a batch does. */
#ifndef PLIM_FIT_H
#define PLIM_FIT_H

#include "alloc/sim.h"
#include "fit/job.h"

/* A tape on the job's card, of which `context` bytes are taken: on one without
 * bound if there is no card. */
plim_status plim_fit_simulate(const plim_job *job, const plim_tape *t, uint64_t context,
                              bool bounded, unsigned what, plim_arena *a, plim_sim *out,
                              plim_err *err);

typedef struct plim_peaks {
    uint64_t requested, allocated, reserved; /* UINT64_MAX: beyond 64 bits */
    bool oom;
    bool refused;    /* not by memory: the model takes no such batch */
    bool sms_matter; /* another number of SMs might change it */
} plim_peaks;

/* The whole way from a batch to its peaks; `what` is 0, PLIM_SIM_LOW or _HIGH.
 * Empties `scratch` and works there. */
plim_status plim_fit_batch(const plim_job *job, plim_arena *scratch, int64_t batch,
                           unsigned what, uint64_t context, bool bounded, plim_peaks *out,
                           plim_err *err);

enum { PLIM_FIT_MAX_BATCH = 1 << 24 };

/* The largest batch that surely fits the job's card, and the rest of the row.
 * Cards may be asked one after the other: answers help each other. */
typedef struct plim_fit_search plim_fit_search;
plim_fit_search *plim_fit_search_new(plim_arena *a, plim_job *job); /* NULL: no memory */
plim_status plim_fit_card(plim_fit_search *s, const plim_gpu *gpu, plim_fit_row *row,
                          plim_err *err);
void plim_fit_search_free(plim_fit_search *s); /* takes NULL */

#endif
