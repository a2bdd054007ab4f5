/* processes.h -- the processes that `run` and `record` start: they wait for them, and end them
 * when they are told to end themselves.
 *
 * Ending goes by steps: they get the signal; some seconds later those that hold the lifeline
 * (lifeline.h), descendants too, write their report and end; then they are killed.  If this
 * program itself is killed, so are the processes that it started. */
#ifndef PLIM_PROCESSES_H
#define PLIM_PROCESSES_H

#include <stdbool.h>

enum { PLIM_PROCESSES_MOST = 64 }; /* that are started at once */

typedef struct plim_processes {
    char **command;
    int n;         /* how often it is started */
    bool together; /* they talk to one another: when one has failed, the others are ended */
    int lifeline;
    const char *name;  /* of the command of plimsoll, for what is said */
    const char *fault; /* what one may have done that ends by SIGSEGV; NULL: not known */
    /* Called in process i, before the command begins; false: it cannot, and errno says why. */
    bool (*prepare)(const void *ud, int i);
    const void *ud;
} plim_processes;

/* From here on signals that would end this program are kept for plim_processes_run. */
void plim_processes_keep_signals(void);

/* Runs them.  Their exit status as a shell has it, of several the first that is not 0; -1: one
 * could not be started, and the reason was printed. */
int plim_processes_run(const plim_processes *p);

#endif
