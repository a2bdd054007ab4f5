/* cmd_help.c -- plimsoll help [COMMAND] */
#include "cmds.h"

static int help_run(plim_args *a)
{
    const plim_cmd *cmd = NULL;
    if (!a->operand) {
        (a->manual ? plim_manual_print_all : plim_cmd_print_all)(&a->console);
        return PLIM_EXIT_DONE;
    }
    if (!(cmd = plim_cmd_find(a->operand)))
        return PLIM_EXIT_USAGE;
    (a->manual ? plim_manual_print : plim_cmd_print)(&a->console, cmd);
    return PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_help = {
    .name = "help",
    .usage = "[COMMAND]",
    .doc = "list the commands, or the options of one command",
    .options = PLIM_USE_MAN,
    .run = help_run,
};
