/* diff.h -- two tapes set side by side: which storage of one is which of the other, where they
 * part, and why they probably do.
 *
 * Words: a storage has a "partner" if the alignment (align.h) says that the other tape has it
 * too.  A side is "told" if its tape says what its storages are; a recording of an allocator's
 * actions is not: of its storages only the partner's name and category are known. */
#ifndef PLIM_DIFF_H
#define PLIM_DIFF_H

#include "base/fmt.h"
#include "diff/align.h"

typedef struct plim_diff_tape {
    /* given */
    const plim_tape *tape;
    const char *letter; /* "A", "B": its name in sentences */
    bool told;
    bool later;           /* a recording that begins in the middle of a run */
    int64_t batch;        /* of a prediction; 0: not known */
    const uint32_t *live; /* storages live at its peak */
    uint32_t n_live;
    /* found by plim_diff_tapes */
    plim_requests requests;
    uint32_t *partner;        /* by request: the request of the other tape, or PLIM_NONE */
    uint32_t *allocs, *frees; /* by storage: its requests, or PLIM_NONE */
    uint32_t *storage;        /* by storage: the one of the other tape, or PLIM_NONE */
    uint32_t *seen;           /* by request: requests before it that have a partner */
    uint32_t n_seen;          /* requests that have one */
    uint32_t
        *last; /* by request: the partner of the last before it that has one, or PLIM_NONE */
} plim_diff_tape;

typedef struct plim_tape_diff {
    plim_arena *arena;
    plim_diff_tape a, b;
    bool by_name;        /* both sides tell, and they use the same names */
    uint64_t times, per; /* most of the sizes that differ, of storages that both have, are in b
                            times / per of what they are in a; 0: no two numbers are so */
    uint32_t n_equal, n_resized, n_only_a, n_only_b; /* requests */
    /* the first request that differs, of each tape; PLIM_NONE: the tape has ended there */
    bool parts;
    uint32_t first_a, first_b;
} plim_tape_diff;

/* `d` has the arena and what is given of both sides. */
plim_status plim_diff_tapes(plim_tape_diff *d, plim_err *err);

/* A storage as reports call it.  What has a partner is called as A calls it, unless only B tells
 * what it is. */
enum { PLIM_CATEGORY_UNKNOWN = PLIM_CAT_COUNT };
typedef struct plim_diff_label {
    plim_str name;     /* with its role; of a recording, a line of the program; NUL after it */
    plim_str module;   /* "layer1.0.conv1"; "": the model; a line is its own module */
    uint32_t category; /* PLIM_CATEGORY_UNKNOWN: neither side tells */
} plim_diff_label;
/* In d's arena, or of the recording; the name is {NULL, 0} if there is no memory. */
plim_diff_label plim_diff_label_of(const plim_tape_diff *d, const plim_diff_tape *side,
                                   uint32_t storage);
uint32_t plim_diff_category_of(const plim_tape_diff *d, const plim_diff_tape *side,
                               uint32_t storage);
/* Whether a storage of a that b has, too, has another size there. */
bool plim_diff_resized(const plim_tape_diff *d, uint32_t storage);
/* The position in the program of a request; NULL: the tape has none. */
const plim_mark *plim_diff_mark(const plim_diff_tape *side, uint32_t request);

/* ---- causes: causes.c ----------------------------------------------------------- */

typedef struct plim_cause {
    const char *name; /* "batch" */
    plim_str text;    /* a sentence or two; NUL after it */
    uint64_t bytes;   /* of the storages that it explains */
} plim_cause;
enum { PLIM_CAUSES_MOST = 32 };

/* The likely causes, that with the most bytes first; returns their number. */
plim_status plim_diff_causes(const plim_tape_diff *d, plim_cause out[PLIM_CAUSES_MOST],
                             uint32_t *n, plim_err *err);

#endif
