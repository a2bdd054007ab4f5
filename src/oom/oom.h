/* oom.h -- out-of-memory messages as people paste them: the numbers in a text,
 * and what they say about the cause.
 *
 * The text is somebody's log: wrapped, coloured, prefixed, cut off, with several
 * messages.  What a message does not say stays unknown.  The simulated allocator
 * writes such messages too (alloc/alloc.h); it is not used here. */
#ifndef PLIM_OOM_H
#define PLIM_OOM_H

#include "base/base.h"

/* The kind of card that a message names. */
typedef struct plim_oom_device {
    const char *words;    /* of the message, reduced */
    const char *vendor;   /* as in gpu/gpus.def */
    const char *variable; /* that configures PyTorch's allocator; NULL: none is known */
    const char *monitor;  /* the command that lists the processes on a card */
} plim_oom_device;

/* The part of a result that is not public. */
typedef struct plim_oom_view {
    plim_oom_number number[PLIM_OOM_QUANTITY_COUNT];
    bool absurd;        /* "more than 1EB" */
    bool expandable_on; /* the message is of a version that would advise it otherwise */
    bool without_limit; /* of a version that does not print the limit of the process */
    bool no_expandable; /* of a version that does not have expandable segments */
    const plim_oom_device *device;
} plim_oom_view;

static inline bool plim_oom_known(const plim_oom_number *n) { return n->bytes != UINT64_MAX; }

/* Reads a text in parts, of any size, and keeps the last message with numbers.  _new: in `a`; NULL: no
 * memory.  _take is a plim_take. */
typedef struct plim_oom_reader plim_oom_reader;
plim_oom_reader *plim_oom_reader_new(plim_arena *a);
size_t plim_oom_take(void *reader, plim_str text, bool last);
/* What the message says; PLIM_EFORMAT: there is none.  Lists live in `a`. */
plim_status plim_oom_parse(plim_arena *a, const plim_oom_reader *reader, plim_oom_view *view,
                           plim_oom_message *out, plim_err *err);

/* Fills in the derived numbers, the cards, the causes and the remedies. */
plim_status plim_oom_explain(plim_arena *a, plim_oom_view *view, plim_oom_message *out,
                             plim_err *err);

#endif
