/* driver.h -- a recording of CUDA's driver: read from its file, and what each process held,
 * by the library that asked for it.
 *
 * The file may be of a program that was killed, cut short, or anything else: what is sound in
 * it is used, and what is not is counted. */
#ifndef PLIM_DRIVER_H
#define PLIM_DRIVER_H

#include "base/idmap.h"
#include "core/tape.h"
#include "trace/driver_file.h"

/* A run of events in order of time; texts may lie between them. */
typedef struct plim_driver_run {
    const uint8_t *at, *end; /* events left */
    uint64_t time;           /* of the first */
    uint32_t process;        /* index */
} plim_driver_run;

typedef struct plim_driver_process {
    uint64_t id; /* in chunks */
    uint32_t pid, parent;
    plim_str command; /* "": not recorded */
    bool exited;      /* by exit() */
    uint64_t events;
} plim_driver_process;

typedef struct plim_driver_log {
    plim_arena *arena;
    plim_str command; /* that was recorded */
    bool ended;       /* somebody saw it end, with this status */
    int32_t status;
    uint64_t began, first, last; /* ns: of the recording, its first and its last event */
    uint64_t events, lost;
    uint64_t damaged; /* chunks that are not, or not wholly, what the format says */
    plim_driver_process *processes; /* in order of their first event */
    uint32_t n_processes, cap_processes;

    plim_driver_run *runs; /* by time */
    uint32_t n_runs, cap_runs;
    plim_str *texts; /* texts[0] is "" */
    uint32_t n_texts, cap_texts;
    plim_id_map process_map, text_map;
    plim_map same_texts;
} plim_driver_log;

bool plim_driver_detect(plim_bytes file);
/* What it returns refers to `file`. */
plim_status plim_driver_read(plim_driver_log *log, plim_arena *a, plim_bytes file,
                             plim_err *err);

/* The events of all threads, in order of time. */
typedef struct plim_driver_walk {
    const plim_driver_log *log;
    plim_driver_run *heap; /* runs that are under way, the earliest first */
    uint32_t n, next_run;
} plim_driver_walk;
plim_status plim_driver_walk_begin(plim_driver_walk *w, const plim_driver_log *log,
                                   plim_arena *scratch, plim_err *err);
/* false: no event is left.  *process is an index; *owner and *file are indices of texts. */
bool plim_driver_walk_next(plim_driver_walk *w, plim_driver_event *e, uint32_t *process,
                           uint32_t *owner, uint32_t *file);

/* ---- what was held ---------------------------------------------------------- */

/* How memory was asked for. */
typedef enum plim_driver_way {
    PLIM_DRIVER_BY_ALLOC,
    PLIM_DRIVER_BY_POOL,
    PLIM_DRIVER_BY_MAP, /* cuMemCreate, on the device */
    PLIM_DRIVER_BY_ARRAY,
    PLIM_DRIVER_BY_GRAPH,   /* nodes of CUDA graphs */
    PLIM_DRIVER_BY_MANAGED, /* from here on: not, or not always, on the device */
    PLIM_DRIVER_BY_HOST,
    PLIM_DRIVER_BY_SHARE, /* another process has it */
    PLIM_DRIVER_WAYS
} plim_driver_way;
const char *plim_driver_way_name(plim_driver_way w);

/* What one library asked for in one way, or at one line of Python. */
typedef struct plim_driver_holder {
    uint32_t process, owner, file, line; /* file and line 0: not known */
    int32_t device;
    plim_driver_way way;
    uint64_t held, at_peak, calls, failed;
} plim_driver_holder;

enum { PLIM_DRIVER_SPANS = 16 }; /* parts of the time, for a timeline */

/* A device as one process used it. */
typedef struct plim_driver_use {
    uint32_t process;
    int32_t device;
    uint64_t held, peak, peak_time;
    uint64_t total;                   /* bytes of the device; 0: not known */
    uint64_t before, before_held;     /* in use by everybody at the first reading */
    uint64_t after, after_held;       /* at the last */
    bool read;                        /* there was a reading */
    uint64_t most[PLIM_DRIVER_SPANS]; /* held in each part of the time */
    uint32_t span;                    /* while it is filled in: the part of now, */
    bool pending;                     /* and the holders at the peak are not noted yet */
} plim_driver_use;

typedef struct plim_driver_failure {
    uint32_t process, owner, file, line;
    int32_t device;
    uint64_t time, bytes, free; /* UINT64_MAX: not known */
    uint64_t held;
} plim_driver_failure;

typedef struct plim_driver_held {
    plim_driver_holder *holders; /* by process, device, then bytes at the peak */
    uint32_t n_holders, cap_holders;
    plim_driver_use *uses;
    uint32_t n_uses, cap_uses;
    plim_driver_failure failure; /* the first */
    uint64_t failures;
    uint64_t strangers; /* releases of what was not seen to be allocated */
} plim_driver_held;
plim_status plim_driver_hold(const plim_driver_log *log, plim_arena *a, plim_driver_held *out,
                             plim_err *err);
/* The allocations on one device by one process, the pair with the highest peak, as a tape. */
plim_status plim_driver_tape(const plim_driver_log *log, plim_tape *t, plim_err *err);

#endif
