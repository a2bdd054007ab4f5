/* window.h -- goes through the bytes of a file, or through what a gzip file inflates to, in order, in a
 * window that moves on: of a file of gigabytes, the longest thing in it is in memory at once.  Bytes that are
 * in memory already are the window, all of them. */
#ifndef PLIM_WINDOW_H
#define PLIM_WINDOW_H

#include "base/gzip.h"

typedef struct plim_window {
    const char *p; /* its bytes, until the next move */
    uint64_t n;
    uint64_t base; /* offset of p in the file, or in what it inflates to */
    bool more;     /* bytes may follow */

    plim_arena *arena;
    plim_bytes file;
    uint64_t next; /* byte of the file */
    plim_gzip gzip;
    bool zipped;
    char *room;
    uint32_t cap;
} plim_window;

/* Lives in `a`. */
plim_status plim_window_open(plim_window *w, plim_arena *a, plim_bytes file, plim_err *err);

/* Moves a window with more to come on to byte `from` of it, and makes it longer if that is
 * where it begins. */
plim_status plim_window_move(plim_window *w, uint64_t from, plim_err *err);

#endif
