/* task.h -- runs a function in parallel with its caller. */
#ifndef PLIM_TASK_H
#define PLIM_TASK_H

#include "base/base.h"

#ifndef __wasi__
#include <pthread.h>
#endif

typedef struct plim_task {
    void (*run)(void *ud);
    void *ud;
    bool apart; /* it has a thread, which plim_task_wait joins */
#ifndef __wasi__
    pthread_t thread;
#endif
} plim_task;

/* Runs run(ud) on its own thread if `apart` is set and a thread can be started, otherwise at
 * once.  Until plim_task_wait, run may write only what nobody else touches and read only what
 * nobody writes, and `t` must not move. */
void plim_task_start(plim_task *t, void (*run)(void *ud), void *ud, bool apart);
void plim_task_wait(plim_task *t);

#endif
