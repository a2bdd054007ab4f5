/* record.h -- the recorder that `plimsoll record` preloads into a program: what its files
 * share.
 *
 * It stands between a program and CUDA's driver, passes every call on unchanged, and writes
 * down those that take or give memory.  It works in processes that it knows nothing about, so:
 * no lock is held across a call of the driver, nothing is allocated with malloc, nothing is
 * printed, and what cannot be recorded is counted as lost rather than waited for. */
#ifndef PLIM_RECORD_H
#define PLIM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/driver_file.h"

/* ---- writer.c: the file ----------------------------------------------------- */

/* Whether events are wanted: PLIMSOLL_RECORD names a file that can be written. */
bool plim_record_wanted(void);
/* Writes down an event; fills in its thread.  Keeps errno. */
void plim_record_event(plim_driver_event *e);
/* The number of a text; if it is long, its end is kept; 0: there is no room. */
uint32_t plim_record_text(const char *text);
uint64_t plim_record_now(void);
/* How many times this process has forked: what was found out before is the parent's. */
unsigned plim_record_forks(void);

/* ---- caller.c: who called --------------------------------------------------- */

/* The library that called, as a text: of the address, or, if that is a CUDA runtime, the one
 * that called it. */
uint32_t plim_record_owner(void *caller);
/* The innermost line of Python, if this thread has one now and it may be asked for. */
void plim_record_python(plim_driver_event *e);

/* ---- hooks.c ---------------------------------------------------------------- */

/* The real dlsym. */
typedef void *(*plim_record_find)(void *, const char *);
plim_record_find plim_record_dlsym(void);

#endif
