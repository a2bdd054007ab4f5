/* door_windows.c -- see door.h: on Windows no Python is started. */
#include "door.h"

int plim_door_open(plim_args *a)
{
    (void)a;
    return PLIM_EXIT_DONE;
}

plim_status plim_door_model(const plim_args *a, const char *name, plim_model **out,
                            plim_err *err)
{
    (void)a;
    return plim_model_open(name, out, err);
}
