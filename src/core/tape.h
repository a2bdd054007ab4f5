/* tape.h -- the second waist: what memory is asked for, event by event.
 *
 * The step lowering, a snapshot, a recording or a text file make a tape;
 * allocators, the timeline and the reports read one.
 *
 * Text form (also what `plimsoll replay` reads), '#' starts a comment:
 *
 *     plimsoll-tape 1
 *     @ 0 forward features.0      step, phase, op: holds until the next @
 *     + 17 3211264 activation features.0.out
 *     + 18 512 workspace stream=1
 *     - 12
 *     ! empty_cache               also: reset_peak, sync, config KEY:VALUE,...
 *     r 17 stream=1               record_stream
 *
 * Ids are unique for the life of a storage. */
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
    PLIM_EVENT_CONFIG, /* .id: index into tape->configs */
} plim_event_kind;

typedef struct plim_event {
    uint32_t id; /* storage index */
    uint16_t stream;
    uint8_t kind;
} plim_event;

typedef struct plim_storage {
    uint64_t bytes;   /* as requested */
    plim_str name;    /* "layer1.0.conv1.weight", "layer1.0.bn1"; may be empty */
    const char *role; /* printed after the name with a dot: "out", "grad"; NULL: nothing */
    uint64_t ext_id;  /* the id in a text tape */
    const plim_meta *meta; /* the first tensor on it; NULL if not known */
    uint8_t category;      /* plim_category */
    uint8_t certainty;     /* plim_certainty */
} plim_storage;

/* Where we are: holds from event `first` to the next mark. */
typedef struct plim_mark {
    uint32_t first;
    int32_t step;  /* -1: load */
    uint8_t phase; /* plim_phase */
    plim_str op;   /* layer or op name; may be empty */
} plim_mark;

typedef struct plim_tape {
    plim_arena *arena;
    plim_event *events;
    plim_storage *storages;
    plim_mark *marks;
    plim_str *configs;
    uint32_t n_events, n_storages, n_marks, n_configs;
    uint32_t cap_events, cap_storages, cap_marks, cap_configs;
} plim_tape;

void plim_tape_init(plim_tape *t, plim_arena *a);

/* Each returns false when the arena is full. */
bool plim_tape_mark(plim_tape *t, int32_t step, plim_phase phase, plim_str op);
uint32_t plim_tape_alloc(plim_tape *t, const plim_storage *s); /* PLIM_NONE: full */
bool plim_tape_free_storage(plim_tape *t, uint32_t storage);
bool plim_tape_event(plim_tape *t, plim_event e);

/* Reads the text form.  Errors name the line and what is wrong with it:
 * freeing what is not live, an id that is live already, a bad number. */
plim_status plim_tape_parse(plim_tape *t, plim_bytes text, plim_err *err);

/* NULL if sound: each storage allocated once, freed at most once and after
 * its alloc, marks ascending. */
const char *plim_tape_check(const plim_tape *t);

#endif
