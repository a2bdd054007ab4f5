/* top_log.h -- the readings of `plimsoll top`, kept in a file: docs/formats/log.md.
 *
 * Only what a reading changes is written, so a machine on which nothing happens costs next to
 * nothing.  The program is built with SQLite or without it; the library needs none. */
#ifndef PLIM_TOP_LOG_H
#define PLIM_TOP_LOG_H

#include "memory.h"
#include "opt.h"

#include <plimsoll_live.h>

/* Why there are no logs, a sentence; NULL: there are. */
const char *plim_top_log_missing(void);

typedef struct plim_top_log plim_top_log;
/* Opens a log to add to it, a new one if there is no such file. */
plim_status plim_top_log_open(const char *path, double keep_s, plim_top_log **out,
                              plim_err *err);
plim_status plim_top_log_add(plim_top_log *l, const plim_live_view *v, plim_err *err);
void plim_top_log_close(plim_top_log *l); /* takes NULL */

/* Reads what the log a->history says into *out, which lives in `m`. */
plim_status plim_top_history_read(const plim_args *a, plim_memory *m, plim_history *out,
                                  plim_err *err);
/* Prints it. */
int plim_top_history(plim_args *a);

#endif
