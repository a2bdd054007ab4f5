/* sandbox.h -- what a command that only reads files gives up before it reads the first.
 *
 * From then on the process reads the files that it was allowed, and opens nothing else; it writes to
 * what is open already, and starts no program, has no network, and reaches no other process.  A
 * reader with a mistake in it, and a file that makes use of it, have no more.
 *
 * sandbox_linux.c is for Linux, sandbox_none.c for other systems.  docs/decisions/0013 has the
 * reasons. */
#ifndef PLIM_SANDBOX_H
#define PLIM_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct plim_sandbox {
    int rules;         /* the files, as the kernel has them; -1: it takes none */
    const char *lacks; /* what this system cannot do, as a sentence; NULL: nothing */
    uint64_t last[2];  /* the folder that was added last, which several files may be in */
} plim_sandbox;

/* Begins a list of files that may be read. */
void plim_sandbox_begin(plim_sandbox *s);

/* Adds a file, or the files of a folder but not those of its folders, nor hidden ones; a path
 * that does not exist is not an error.  A plim_put, whose `sandbox` is a plim_sandbox: returns
 * 0. */
int plim_sandbox_allow(void *sandbox, const char *path, size_t n);

/* Gives up all else, for good, as far as the system can; s->lacks says what it cannot.  The
 * process has a single thread. */
void plim_sandbox_enter(plim_sandbox *s);

#endif
