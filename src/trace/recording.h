/* recording.h -- what a program did with its GPU memory, as something else wrote it down:
 * PyTorch's memory snapshots, traces of its profiler, what `plimsoll record` writes, and
 * plimsoll's own tapes.
 *
 * A reader (a row of recordings.c) turns a file into a list of actions, in order, with the
 * stack of each, and the segments and blocks at the end, if the format has them.  From there a
 * tape is made, which any allocator can serve (plim_recording_tape), and the recorded
 * allocator is compared with the simulated one (plim_recording_follow).
 *
 * Words: a recording "begins at the start" if no block was live before its first action. */
#ifndef PLIM_RECORDING_H
#define PLIM_RECORDING_H

#include "alloc/alloc.h"
#include "base/idmap.h"
#include "core/tape.h"

/* One action of the recorded allocator. */
typedef struct plim_action {
    uint64_t addr;  /* of an OOM: bytes free on the device, UINT64_MAX if unknown */
    uint64_t bytes; /* of a block: as requested; of an OOM: rounded */
    uint32_t stack;
    uint16_t stream; /* index into streams */
    uint8_t kind;    /* plim_trace_action */
} plim_action;

/* Memory is never shared between streams, nor between pools. */
typedef struct plim_recorded_stream {
    uint64_t handle;
    uint32_t pool; /* 0: the default one; others are private (CUDA graphs, MemPool) */
} plim_recorded_stream;

/* The recorded allocator's counters after an action. */
typedef struct plim_counters {
    uint64_t allocated, reserved;
} plim_counters;

typedef struct plim_recorded_block {
    uint64_t addr, bytes, requested; /* requested: 0 if unknown */
    uint32_t stack;
    uint16_t stream;
    uint8_t state; /* plim_block_state */
} plim_recorded_block;

typedef struct plim_recorded_segment {
    uint64_t addr, bytes;
    uint32_t first, n; /* its blocks, in address order */
    uint32_t device;
    uint16_t stream;
    bool small, expandable;
} plim_recorded_segment;

/* A call stack, innermost frame first.  Stack 0 is "not recorded". */
typedef struct plim_stack {
    uint32_t first, n; /* in frame_ids */
    uint32_t hash;
    uint32_t label; /* the frame that names it, in frames; PLIM_NONE: it has none */
} plim_stack;

/* The name of a file or of a function, kept once. */
typedef struct plim_code_name {
    plim_str text;
    uint32_t last; /* where the last part of a path begins */
    bool python;   /* as a file: lines of Python */
    bool library;  /* which belong to Python itself or an installed package */
} plim_code_name;

typedef struct plim_frame {
    uint32_t file, name; /* in names */
    int64_t line;
    plim_str text; /* see plim_recording_frame_text */
} plim_frame;

typedef struct plim_recording {
    plim_arena *arena;
    const char *format; /* "tape", "snapshot", ... */
    bool given;         /* the file is a tape: `tape` is all there is */
    bool actions_known; /* else the file has only the state at the end */
    bool state_known;   /* segments and blocks at the end */
    plim_tape tape;

    plim_action *actions;
    uint32_t n_actions, cap_actions;
    plim_recorded_segment *segments;
    plim_recorded_block *blocks;
    uint32_t n_segments, cap_segments, n_blocks, cap_blocks;
    plim_recorded_stream *streams; /* by pool, then handle */
    uint32_t n_streams, n_pools;
    uint32_t device, n_devices; /* the one that is read: the one with the most actions */
    plim_str conf;              /* the allocator's settings; "" if not recorded */

    /* of a trace of the profiler */
    plim_counters *counters; /* one for each action; NULL: not recorded */
    uint32_t n_counters, cap_counters;
    uint32_t n_events;    /* that the actions were told by */
    plim_str process;     /* the one that is read, as written */
    uint32_t n_processes; /* 0: the format does not say */
    bool host;            /* the memory is the CPU's */
    bool blocks_only;     /* actions have the bytes of blocks: what was requested is unknown */
    uint64_t ends_at;     /* the file breaks off at this byte; 0: it is whole */
    uint64_t rest_bytes;  /* of `before`, in its last n_rest: blocks that no event names */
    uint32_t n_rest;

    plim_code_name *names;
    plim_frame *frames;
    uint32_t *frame_ids;
    plim_stack *stacks;
    uint32_t n_names, cap_names, n_frames, cap_frames, n_frame_ids, cap_frame_ids, n_stacks,
        cap_stacks;
    plim_map name_map;
    plim_id_map frame_map, stack_map;

    /* found by plim_recording_read: what was live before the first action */
    plim_recorded_block *before;
    uint32_t n_before, cap_before;
    uint64_t before_bytes;
    uint32_t n_gaps; /* actions that contradict earlier ones: some are missing between */
} plim_recording;

/* Reads a file of any known format, by its content; large ones in a window that moves on.  PLIM_EFORMAT,
 * PLIM_EUNSUPPORTED: the message says where and why.  What it returns may refer to `file`. */
plim_status plim_recording_read(plim_recording *r, plim_arena *a, plim_bytes file,
                                plim_err *err);

/* What the file is by its first bytes, all that is looked at: "a tape"; NULL: no recording. */
const char *plim_recording_what(plim_bytes file);

/* Whether the simulated allocator, from the start, should do what the recorded one did. */
bool plim_recording_from_start(const plim_recording *r);

/* A frame as it is shown, "train.py:21 forward"; NUL after it; {NULL, 0}: no memory. */
enum { PLIM_FRAME_NAME_MOST = 400 }; /* bytes; names in C++ have thousands */
plim_str plim_recording_frame_text(const plim_recording *r, uint32_t frame);

/* The requests as a tape.  `as_recorded`: memory that the allocator released by itself is
 * released there too, and requests that failed are left out, so that a device without a limit
 * serves it as the recorded one did.  Otherwise both are left to the simulated allocator; a
 * request that failed is freed at once if it is served.  A storage has the name of the frame
 * that labels its stack; *stacks has the stack of each storage. */
plim_status plim_recording_tape(const plim_recording *r, bool as_recorded, plim_tape *t,
                                uint32_t **stacks, plim_err *err);

/* Whether the run of releases at *i was asked for (torch.cuda.empty_cache) rather than made by
 * the allocator because memory was short; *i moves to its last action. */
bool plim_recording_is_empty_cache(const plim_recording *r, uint32_t *i);

/* The memory that the program had when the recording began, for plim_alloc_restore: by stream, and
 * so by pool. */
typedef struct plim_rewound {
    plim_alloc_block *blocks; /* in the recording's arena */
    uint32_t n;
    bool lost; /* the actions do not lead to the state at the end: there are no blocks */
} plim_rewound;
/* `pools`: an allocator for each pool, which says how large a block is. */
plim_status plim_recording_rewind(const plim_recording *r, plim_alloc *const *pools,
                                  plim_rewound *out, plim_err *err);

/* The recorded allocator against the simulated one: addresses, segments and blocks, or the
 * counters if those are what the format has. */
typedef struct plim_follow {
    bool followed;       /* else `why` says why not */
    bool agrees;         /* segments and blocks at the end are equal */
    plim_str why;        /* the first difference */
    uint32_t n_checked;  /* allocations with the address, or events with the counters, that
                            were recorded */
    bool oom;            /* the recording has an out-of-memory */
    uint32_t oom_action; /* the first; of a trace, its event */
    uint32_t oom_stack;
    uint64_t oom_bytes, oom_device_free; /* the latter UINT64_MAX if unknown */
    uint64_t oom_reserved;               /* by the allocator, then */
    bool oom_free_known; /* the free blocks are those of the recorded allocator */
    plim_free_blocks oom_free[PLIM_POOLS];
    plim_alloc_stats stats; /* of the simulated allocator, of all pools; not of a trace */
} plim_follow;
plim_status plim_recording_follow(const plim_recording *r, int torch, plim_follow *out,
                                  plim_err *err);

/* The same, and *torch becomes the version whose allocator agrees with a recording without counters:
 * it stays if that does or none does, else it is the newest one before. */
plim_status plim_recording_guess_torch(const plim_recording *r, int *torch, plim_follow *out,
                                       plim_err *err);

/* The same for a recording with counters, once its `why` is empty: sets what is about the
 * comparison. */
plim_status plim_counters_follow(const plim_recording *r, int torch, plim_follow *out,
                                 plim_err *err);

/* The settings of a recording that does not have them, as far as its counters tell: expandable
 * segments, if the simulated allocator agrees only with them. */
plim_status plim_recording_guess_conf(plim_recording *r, int torch, plim_err *err);

/* Whether the recorded settings can be simulated; `why` (or NULL) says why not. */
bool plim_recording_conf_known(const plim_recording *r, int torch, plim_err *why);

/* ---- for readers ------------------------------------------------------------ */

typedef struct plim_recording_format {
    const char *name;
    bool asks;                        /* for the bytes that it reads; else all are there */
    bool (*detect)(plim_bytes begin); /* the first ones */
    plim_status (*read)(plim_recording *r, plim_bytes file, plim_err *err);
} plim_recording_format;
extern const plim_recording_format plim_format_snapshot, plim_format_trace;

bool plim_recording_add(plim_recording *r, const plim_action *a); /* false: no memory */
/* The numbers of the name of a file or a function, of a frame with such, and of a stack of frames;
 * PLIM_NONE: no memory. */
uint32_t plim_recording_name(plim_recording *r, plim_str text);
uint32_t plim_recording_frame(plim_recording *r, uint32_t file, int64_t line, uint32_t name);
enum { PLIM_STACK_MOST = 64 }; /* frames further out are dropped */
uint32_t plim_recording_stack_of(plim_recording *r, const uint32_t *frames, uint32_t n);

#endif
