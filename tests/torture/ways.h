/* ways.h -- everything that plimsoll.h does with a file, as somebody who has one would call it. */
#ifndef TORTURE_WAYS_H
#define TORTURE_WAYS_H

#include "mutate.h"

/* What a file is taken for. */
#define TORTURE_WAYS(X)                                                                       \
    X(MODEL, "model")                                                                         \
    X(REPLAY, "replay") /* tapes, snapshots, traces, recordings: replay, and diff */          \
    X(LOG, "log")                                                                             \
    X(OOM, "oom")                                                                             \
    X(SETTINGS, "settings")

typedef enum torture_way {
#define X(id, name) WAY_##id,
    TORTURE_WAYS(X)
#undef X
        WAY_COUNT
} torture_way;

const char *torture_way_name(torture_way w);

/* One file, and how it is read. */
typedef struct torture_case {
    torture_way way;
    const char *name;    /* what it is called */
    torture_bytes bytes; /* of the caller, who also wrote them to `path` */
    const char *path;    /* the file; NULL: it is read from memory */
    const char *folder;  /* that it lies in, if that can be opened as a model; else NULL */
    bool large; /* a model whose step takes long: it is not run over and over for advice */
    uint64_t number; /* settings, and what is rarely called, follow from it */
} torture_case;

/* Those who watch: told before each call, and after it. */
typedef struct torture_watch {
    void (*begin)(const char *what);
    void (*end)(const char *what);
    void (*large)(uint32_t ops); /* calls from now on are about a graph of this size */
    void (*broken)(const char *what, const char *how, const char *message);
} torture_watch;

/* true: it was read, and not refused. */
bool torture_read(const torture_case *c, const torture_watch *watch);

#endif
