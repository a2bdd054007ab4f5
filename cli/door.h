/* door.h -- the door of last resort: a model that the library does not build is built by a Python
 * that has its own library (transformers, diffusers, timm, torchvision), which writes its graph:
 * python/plimsoll/_door.py, in a process of its own, for a limited time.
 *
 * Whether it is needed, a process in the sandbox finds out, which reads the file; nothing of it
 * is read here.  The Python is that of --python, PLIMSOLL_PYTHON, VIRTUAL_ENV, or python3; it is
 * not in the sandbox, so `--sandbox always` starts none.
 *
 * door_posix.c is for systems that have processes to fork, door_windows.c for Windows. */
#ifndef PLIM_DOOR_H
#define PLIM_DOOR_H

#include "opt.h"

/* The graphs of those models of the command line that need it, as plim_door_model opens them.
 * Returns the exit code, after printing why there is none: what the library says of the model,
 * and what would answer. */
int plim_door_open(plim_args *a);

/* plim_model_open, or the graph that was made of the model. */
plim_status plim_door_model(const plim_args *a, const char *name, plim_model **out,
                            plim_err *err);

#endif
