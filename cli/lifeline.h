/* lifeline.h -- a file in which `run` and the processes of its command hold locks, so that each
 * side knows whether the other is there.  The kernel drops a lock when its holder ends, in
 * whatever way.
 *
 * The first byte is locked by `run`.  A process that gets this lock reads the file: the number
 * of the signal for which it is to end, 0 if `run` has ended without minding who is left, and
 * nothing if `run` was killed.  The second byte is locked, shared, by each process that has
 * imported PyTorch.  plimsoll_front/lifeline.py is the other side. */
#ifndef PLIM_LIFELINE_H
#define PLIM_LIFELINE_H

#include <stdbool.h>
#include <sys/types.h>

/* Creates the file and locks it; -1, which the functions below take, too: there is none, as
 * where the file system has no locks. */
int plim_lifeline_open(const char *path);

/* Is there such a file, in the folder that is open, of a `run` that has ended? */
bool plim_lifeline_lost(int folder, const char *name);

/* Tells the processes that hold it to end for this signal; 0: to go on.  Nothing is said if
 * it was said before. */
void plim_lifeline_cut(int lifeline, int number);

/* A process that still holds it; 0: there is none; -1: it is another container's. */
pid_t plim_lifeline_holder(int lifeline);

#endif
