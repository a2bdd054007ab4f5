/* sim.h -- runs a whole tape through a simulated allocator: peaks, the timeline, what is live
 * at the peak, out of memory. */
#ifndef PLIM_SIM_H
#define PLIM_SIM_H

#include "alloc/alloc.h"
#include "core/tape.h"

/* Results requested besides peaks, statistics and out-of-memory; 0 is the fastest. */
enum {
    PLIM_SIM_ROWS = 1 << 0,     /* counters at the end of each mark */
    PLIM_SIM_LIVE = 1 << 1,     /* storages that are live at the allocated peak */
    PLIM_SIM_TIMELINE = 1 << 2, /* buckets over the events */
    PLIM_SIM_ALL = PLIM_SIM_ROWS | PLIM_SIM_LIVE | PLIM_SIM_TIMELINE,
    PLIM_SIM_STOP_AT_OOM = 1 << 3, /* else the storage is left out and the run continues */
    PLIM_SIM_LOW = 1 << 4,  /* takes sizes that are not exact at their lower bound, and streams
                             * as if they had run what they were given */
    PLIM_SIM_HIGH = 1 << 5, /* or at their upper bound */
    PLIM_SIM_FREE = 1 << 6, /* sums the free blocks when memory first ran out */
};

/* The bound at which a run with these flags takes sizes. */
static inline plim_bound plim_sim_bound(unsigned what)
{
    return what & PLIM_SIM_LOW    ? PLIM_BOUND_LOW
           : what & PLIM_SIM_HIGH ? PLIM_BOUND_HIGH
                                  : PLIM_BOUND_USUAL;
}

/* Events are indices into tape->events; PLIM_NONE: no event.  A peak's event is the first one
 * at which the counter had that value. */
enum { PLIM_BUCKETS = 240 }; /* of the timeline, at most */

typedef struct plim_sim {
    /* each the maximum of its own over the run, whatever reset_peak does */
    uint64_t peak_requested; /* bytes of live storages, as requested */
    uint64_t peak_allocated, peak_reserved, peak_active;
    uint32_t peak_requested_event, peak_allocated_event;

    plim_alloc_stats stats; /* at the end of the run */
    uint64_t requested;     /* live at the end */
    uint32_t n_events;      /* events run: all, or up to and including the one that failed */

    plim_rooms alike;   /* capacities with which the run is the same, but for oom_text and
                           oom_device_free; empty: not known */
    bool oom;           /* the device was out of memory, at least once */
    uint32_t oom_event; /* the first event that ran out of memory */
    plim_str oom_text;  /* and the message PyTorch would have printed; NUL after it */
    plim_free_blocks oom_free[PLIM_POOLS]; /* at that event: small, large */
    uint64_t oom_device_free;              /* bytes free on the device at that event */

    plim_phase_row *rows; /* one per mark, in the tape's order */
    uint32_t n_rows;
    uint32_t *live; /* storages, in the order of their allocs */
    uint32_t n_live;
    plim_bucket *buckets;            /* PLIM_BUCKETS, fewer if the tape has fewer events */
    uint32_t n_buckets, peak_bucket; /* the bucket in which allocated peaks */
} plim_sim;

/* Runs `tape`, which must be sound (plim_tape_check), on an empty device.  Everything in *out
 * lives in `a`.  PLIM_EUSAGE: an option, or a config of the tape, is wrong; PLIM_ENOMEM: `a`
 * is full. */
plim_status plim_sim_run(plim_arena *a, const plim_tape *tape, const plim_alloc_options *o,
                         unsigned what, plim_sim *out, plim_err *err);

/* The same while the tape is being written, up to where the device is first out of memory, if it ever is:
 * so that its writer need not go on.  Everything lives in `a`; `what`: PLIM_SIM_LOW or _HIGH only. */
typedef struct plim_sim_follower plim_sim_follower;
plim_status plim_sim_follow(plim_arena *a, const plim_tape *tape, const plim_alloc_options *o,
                            unsigned what, plim_sim_follower **out, plim_err *err);
/* Runs what has been written since; *oom: the device is out of memory. */
plim_status plim_sim_catch_up(plim_sim_follower *f, bool *oom);
const plim_sim *plim_sim_followed(plim_sim_follower *f); /* the figures so far */

/* The storages that are live after event `last` (PLIM_NONE: none), in the order of their
 * allocs, in `a`. */
plim_status plim_sim_live_after(plim_arena *a, const plim_tape *t, uint32_t last,
                                uint32_t **out, uint32_t *n, plim_err *err);

#endif
