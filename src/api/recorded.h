/* recorded.h -- what plim_replay_run says of a recording.  For replay.c. */
#ifndef PLIM_RECORDED_H
#define PLIM_RECORDED_H

#include "alloc/sim.h"
#include "trace/recording.h"

/* What the recording itself says, and how the simulated allocator of that version compares with it. */
plim_status plim__recorded_fill(const plim_recording *r, int torch, const plim_follow *f,
                                plim_recorded *out, plim_err *err);
/* The storages that were live at the peak of `sim`, by their stacks. */
plim_status plim__recorded_live(const plim_recording *r, const plim_tape *t,
                                const uint32_t *stacks, const plim_sim *sim,
                                plim_recorded *out, plim_err *err);

#endif
