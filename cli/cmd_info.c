/* cmd_info.c -- plimsoll info FILE: what a file holds. */
#include "cmds.h"

static int info_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_info *i = NULL;
    if (plim_info_run(a->operand, &a->settings, &i, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_info_print(i, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_info_free(i);
    return st ? plim_console_error(&err) : PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_info = {
    .name = "info",
    .usage = "FILE",
    .doc = "what a file holds: tensors, types, sizes left open",
    .options = PLIM_USE_BATCH | PLIM_USE_SIZES | PLIM_USE_DEPTH | PLIM_USE_JSON |
               PLIM_USE_CSV | PLIM_USE_TEXT,
    .run = info_run,
};
