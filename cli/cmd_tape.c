/* cmd_tape.c -- plimsoll tape MODEL: the allocations and frees themselves. */
#include "cmds.h"

static int tape_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    if (plim_tape_print(a->operand, &a->settings, a->render == PLIM_JSON, plim_console_put,
                        &a->console, &err))
        return plim_console_error(&err);
    return PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_tape = {
    .name = "tape",
    .usage = "MODEL",
    .doc = "the allocations and frees of the run, in order",
    .options =
        PLIM_USE_BATCH | PLIM_USE_FORWARD | PLIM_USE_STEP | PLIM_USE_CARD | PLIM_USE_JSON,
    .run = tape_run,
};
