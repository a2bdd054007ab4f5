/* task.h -- a piece of work beside the caller's. */
#ifndef PLIM_TASK_H
#define PLIM_TASK_H

#include "base/base.h"

#ifndef __wasi__
#include <pthread.h>
#endif

typedef struct plim_task {
    void (*run)(void *ud);
    void *ud;
    bool beside; /* it has a thread, which plim_task_wait ends */
#ifndef __wasi__
    pthread_t thread;
#endif
} plim_task;

/* Runs run(ud) on a thread of its own if `beside`, or else, and where no thread is to be
 * had, here and now.  It may touch what nobody else does until plim_task_wait, and read
 * what nobody writes.  `t` stays where it is until then. */
void plim_task_start(plim_task *t, void (*run)(void *ud), void *ud, bool beside);
void plim_task_wait(plim_task *t);

#endif
