/* processes.h -- the processes that `run` starts: it waits for them, and ends them when it is
 * told to end itself.
 *
 * Ending goes by steps: they get the signal; some seconds later those that have imported
 * PyTorch, descendants too, write their report and end (lifeline.h); then they are killed.  If
 * `run` itself is killed, so are the processes that it started. */
#ifndef PLIM_PROCESSES_H
#define PLIM_PROCESSES_H

#include <stdbool.h>

enum { PLIM_PROCESSES_MOST = 64 }; /* that are started at once */

typedef struct plim_processes {
    char **command;
    int n;         /* how often it is started */
    bool together; /* they talk to one another: when one has failed, the others are ended */
    int lifeline;
    void (*prepare)(const void *ud,
                    int i); /* called in process i, before the command begins */
    const void *ud;
} plim_processes;

/* From here on signals that would end this program are kept for plim_processes_run. */
void plim_processes_keep_signals(void);

/* Runs them.  Their exit status as a shell has it, of several the first that is not 0; -1: one
 * could not be started. */
int plim_processes_run(const plim_processes *p);

#endif
