/* tape.h -- the memory requests of a program, event by event: the second of the two interfaces
 * between rooms.
 *
 * The step lowering, a snapshot, a recording or a text file makes a tape; allocators, the
 * timeline and the reports read one.
 *
 * Text form (also what `plimsoll replay` reads), '#' starts a comment:
 *
 *     plimsoll-tape 1
 *     @ 0 forward features.0      step, phase, op: holds until the next @
 *     + 17 3211264 activation features.0.out
 *     + 18 512 workspace stream=1 certainty=estimated
 *     - 12
 *     r 17 stream=1               record_stream
 *     ! empty_cache               also: reset_peak, fraction X, config KEY:VALUE,...,
 *     ! sync stream=1             without stream=: of all of them
 *
 * Ids are unique for the life of a storage.  In names, ops and configs a space, a control
 * character, '#', '%' and '=' are written as %XX.  The full grammar is in
 * docs/formats/tape.md. */
#ifndef PLIM_TAPE_H
#define PLIM_TAPE_H

#include "core/shape.h"

typedef enum plim_event_kind {
    PLIM_EVENT_ALLOC,
    PLIM_EVENT_FREE,
    PLIM_EVENT_RECORD_STREAM, /* .stream uses storage .id */
    PLIM_EVENT_STREAM_DONE,   /* all work queued on .stream has finished */
    PLIM_EVENT_EMPTY_CACHE,
    PLIM_EVENT_RESET_PEAK,
    PLIM_EVENT_CONFIG,   /* .id: index into tape->configs */
    PLIM_EVENT_FRACTION, /* .id: usable fraction of the device, of PLIM_FRACTION_ONE */
} plim_event_kind;

#define PLIM_FRACTION_ONE 1000000000u

/* .stream of a STREAM_DONE that is about all streams; no stream has this number. */
#define PLIM_ALL_STREAMS UINT16_MAX

typedef struct plim_event {
    uint32_t id; /* storage index */
    uint16_t stream;
    uint8_t kind;
} plim_event;

/* Sizes that are not known exactly lie between two bounds; a tape carries all three figures,
 * and whoever runs it chooses one. */
typedef enum plim_bound { PLIM_BOUND_USUAL, PLIM_BOUND_LOW, PLIM_BOUND_HIGH } plim_bound;

typedef struct plim_storage {
    uint64_t bytes;     /* as requested */
    uint64_t low, high; /* bounds of it if it is not exact; high 0: as bytes */
    plim_str name;      /* "layer1.0.conv1.weight", "layer1.0.bn1"; may be empty */
    const char *role;   /* printed after the name with a dot: "out", "grad"; NULL: nothing */
    uint64_t ext_id;    /* the id in a text tape */
    const plim_meta *meta; /* the first tensor on it; NULL if not known */
    uint8_t category;      /* plim_category */
    uint8_t certainty;     /* plim_certainty */
} plim_storage;

static inline uint64_t plim_storage_bytes(const plim_storage *s, plim_bound b)
{
    plim_assert(!s->high || s->low <= s->high);
    return !s->high || b == PLIM_BOUND_USUAL ? s->bytes
           : b == PLIM_BOUND_LOW             ? s->low
                                             : s->high;
}

/* A position in the program: holds from event `first` to the next mark. */
typedef struct plim_mark {
    uint32_t first;
    int32_t step;  /* -1: load */
    uint8_t phase; /* plim_phase */
    plim_str op;   /* layer or op name; may be empty */
} plim_mark;

/* CUDA's libraries that take memory of the driver's, beside PyTorch's allocator. */
typedef enum plim_cuda_library {
    PLIM_CUBLAS,
    PLIM_CUDNN,
    PLIM_CUFFT,
    PLIM_CUSOLVER,
    PLIM_CUDA_LIBRARIES
} plim_cuda_library;

typedef struct plim_tape {
    plim_arena *arena;
    plim_event *events;
    plim_storage *storages;
    plim_mark *marks;
    plim_str *configs;
    uint32_t n_events, n_storages, n_marks, n_configs;
    uint32_t cap_events, cap_storages, cap_marks, cap_configs;
    plim_bound bound; /* of sizes that are not exact only this one is kept; USUAL: all three */
    bool (*ends)(void *ud); /* asks whether the writer may stop; NULL: it may not */
    void *ends_ud;
    bool waits; /* streams use storages of others: until when is known within bounds only */
    bool incomplete; /* a part of the model makes no requests here: see left_out in graph.h */
    bool searched;   /* cuDNN tried its plans, for which it may take all memory that is free */
    uint8_t callers
        [PLIM_CUDA_LIBRARIES]; /* the threads that call each: 1 the main one, 2 autograd's */
} plim_tape;

void plim_tape_init(plim_tape *t, plim_arena *a);
/* Reserves room for that many storages with two events each, so that the arrays need not be
 * moved as they grow.  Only a hint: a wrong number does no harm. */
void plim_tape_expect(plim_tape *t, uint32_t storages);

/* Each returns false when the arena is full.  Strings are borrowed: they must
 * live as long as the tape. */
bool plim_tape_mark(plim_tape *t, int32_t step, plim_phase phase, plim_str op);
/* Returns the index of the new storage (storages are numbered in the order of their allocs),
 * or PLIM_NONE when the arena is full.  Sets ext_id to index + 1; a reader whose file has its
 * own ids overwrites that. */
uint32_t plim_tape_alloc(plim_tape *t, const plim_storage *s);
bool plim_tape_free_storage(plim_tape *t, uint32_t storage);
bool plim_tape_config(plim_tape *t, plim_str conf);
bool plim_tape_event(plim_tape *t, plim_event e);

/* Reads the text form into an initialised tape; keeps no reference to `text`.  PLIM_EFORMAT
 * names the line and what is wrong with it (a free of what is not live, an id that is live
 * already, a bad number); err->at is the byte where that line begins. */
plim_status plim_tape_parse(plim_tape *t, plim_bytes text, plim_err *err);

/* Writes the text form, line by line.  It parses back to the same tape, except that a name and
 * its role become one name.  PLIM_ENOMEM: t's arena. */
plim_status plim_tape_write(const plim_tape *t, plim_put put, void *ud, plim_err *err);

/* The same as JSON, one object a line:
 *     {"event":"alloc","id":17,"bytes":512,"category":"activation",
 *      "certainty":"exact","name":"fc.out","stream":0,
 *      "step":0,"phase":"forward","op":"fc"}
 * Other events are "free" (id, bytes), "record_stream" (id, stream), "sync"
 * (stream, if it is one), "empty_cache", "reset_peak", "fraction" (fraction) and
 * "config" (config). */
plim_status plim_tape_write_json(const plim_tape *t, plim_put put, void *ud, plim_err *err);

/* The most bytes that are live at once: what any allocator needs at least. */
uint64_t plim_tape_live_most(const plim_tape *t, plim_bound b);

/* NULL if the tape is sound: each storage is allocated once, in order, and freed at most once
 * and after its alloc; marks ascend; everything is within its range. */
const char *plim_tape_check(const plim_tape *t);

#endif
