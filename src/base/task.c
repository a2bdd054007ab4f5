/* task.c -- see task.h. */
#include "base/task.h"

#ifdef __wasi__ /* has no threads */
static bool thread_start(plim_task *t)
{
    (void)t;
    return false;
}
static void thread_wait(plim_task *t) { (void)t; }
#else
static void *thread_main(void *task)
{
    plim_task *t = task;
    t->run(t->ud);
    return NULL;
}
static bool thread_start(plim_task *t)
{
    return pthread_create(&t->thread, NULL, thread_main, t) == 0;
}
static void thread_wait(plim_task *t) { pthread_join(t->thread, NULL); }
#endif

void plim_task_start(plim_task *t, void (*run)(void *ud), void *ud, bool apart)
{
    plim_assert(run);
    *t = (plim_task){.run = run, .ud = ud};
    t->apart = apart && thread_start(t);
    if (!t->apart)
        run(ud);
}

void plim_task_wait(plim_task *t)
{
    if (t->apart)
        thread_wait(t);
    t->apart = false;
}
