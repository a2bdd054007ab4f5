/* cmd_oom.c -- plimsoll oom [FILE]: explains PyTorch's out-of-memory message. */
#include <string.h>

#include "cmds.h"

static int oom_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_oom_message *m = NULL;
    const char *path = a->operand && strcmp(a->operand, "-") != 0 ? a->operand : "/dev/stdin";
    if (plim_oom_load(path, &m, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_oom_print(m, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_oom_free(m);
    return plim_console_result(&a->console, st, &err);
}

const plim_cmd plim_cmd_oom = {
    .name = "oom",
    .usage = "[FILE]",
    .doc = "explain an out-of-memory message, from a file or stdin",
    .about = "The file may be a whole log; without one, the text is read from standard "
             "input. It says what the numbers mean, the likely cause and what helps. Exit "
             "status 3 means that the text has no such message.",
    .examples = {"plimsoll oom train.log", "python train.py 2>&1 | plimsoll oom"},
    .options = PLIM_USE_JSON | PLIM_USE_TEXT | PLIM_USE_SANDBOX,
    .run = oom_run,
};
