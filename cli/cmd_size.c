/* cmd_size.c -- plimsoll size 256x3x100x100: the size of a tensor in every data type. */
#include "cmds.h"

static int size_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_status st =
        plim_size_print(a->operand, a->render, &a->style, plim_console_put, &a->console, &err);
    return plim_console_result(&a->console, st, &err);
}

const plim_cmd plim_cmd_size = {
    .name = "size",
    .usage = "SHAPE",
    .doc = "show the size of a tensor in every data type",
    .examples = {"plimsoll size 256x3x100x100", "plimsoll size 4096x4096 --csv"},
    .options = PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT,
    .run = size_run,
};
