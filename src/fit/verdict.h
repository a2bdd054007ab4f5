/* verdict.h -- what a run holds on its card, what it needs at least, and whether it fits.
 *
 * The run is simulated with everything estimated at its usual size and at its two bounds.
 * It holds what its allocator reserves: cached memory too, if there is room.  It needs
 * less than that, because the allocator gives cached memory back before it fails. */
#ifndef PLIM_VERDICT_H
#define PLIM_VERDICT_H

#include "alloc/sim.h"
#include "job/job.h"

/* What a card leaves to the allocator after `context` bytes; 0: no limit, without a card. */
uint64_t plim_fit_room(const plim_gpu *gpu, uint64_t context);
/* Of the room, what a memory fraction allows. */
uint64_t plim_fit_allowed(const plim_job *job, uint64_t room);
/* The most of the room that leaves the margin of the job, within what a memory fraction allows; 0: no limit. */
uint64_t plim_fit_leave_margin(const plim_job *job, uint64_t room);
/* Is the memory of the job's run on another card that on its own?  They may differ in speed.
 * `asked`: what the run has asked of the job's card. */
bool plim_fit_alike(const plim_job *job, const plim_gpu *other, const plim_asked *asked);
/* Of the job's card and settings; all 0: unknown. */
plim_gpu_context plim_fit_context(const plim_job *job);
/* The same of an engine that serves the model. */
plim_gpu_context plim_fit_engine_context(const plim_job *job);

/* The job's allocator, on its card, with `room` bytes; 0: no limit.  `what` are PLIM_SIM_... flags. */
plim_alloc_options plim_fit_allocator(const plim_job *job, uint64_t room, unsigned what);
/* Simulates a tape with it. */
plim_status plim_fit_simulate(const plim_job *job, const plim_tape *t, uint64_t room,
                              unsigned what, plim_arena *a, plim_sim *out, plim_err *err);

typedef struct plim_verdict {
    plim_fits fits;
    plim_sim sim;      /* of the usual sizes; without a limit if they do not fit surely */
    uint64_t reserved; /* of the usual sizes, within the range below */
    uint64_t reserved_low, reserved_high;
    plim_gpu_context context;         /* 0: unknown */
    uint64_t device_low, device_high; /* reserved + context; with search */
    uint64_t margin;                  /* what the job's margin is of reserved_high */
    bool margin_kept;                 /* it fits with that much less, too */
    uint64_t headroom; /* what the card has beyond needed_high, if it is searched for */
    bool modelled;     /* the allocator is a model: the range is its */
    bool waits;        /* the tape does: its range is that, too */
    uint64_t search;   /* what cuDNN's search adds to device_high: all that is free */
    bool searched;
    uint64_t needed_low, needed_high; /* the smallest capacity of a card, with context;
                                           0: not asked for */
    plim_str oom_text;                /* with everything at its lower bound; fits: no */
} plim_verdict;

/* The verdict on a model from that on what is counted of it: where that is not all, it is never a yes. */
plim_fits plim_fit_counted(plim_fits counted, bool incomplete);

/* Nothing is to be changed, or no change that is simulated would settle it. */
static inline bool plim_fit_settled(plim_fits fits)
{
    return fits == PLIM_FITS_YES || fits == PLIM_FITS_NO_CARD || fits == PLIM_FITS_INCOMPLETE;
}

/* Judges a tape on the job's card, or on a card without a limit.  `what` (PLIM_SIM_...) is
 * wanted of the usual sizes; what is needed takes some ten more simulations and is searched
 * for only if `needed`.  *out lives in `a`. */
plim_status plim_verdict_of(const plim_job *job, const plim_tape *t, unsigned what,
                            bool needed, plim_arena *a, plim_verdict *out, plim_err *err);

/* A simulation of sizes at their upper bound, and the room for it, which is that of the context at its upper
 * bound; 0: there was none. */
typedef struct plim_simulated {
    uint64_t room;
    plim_sim sim;
} plim_simulated;

/* The same with what = 0, where that has been simulated before, and whether the margin is kept is not asked. */
plim_status plim_verdict_after(const plim_job *job, const plim_tape *t,
                               const plim_simulated *high, bool needed, plim_arena *a,
                               plim_verdict *out, plim_err *err);

#endif
