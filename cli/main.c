/* main.c -- plimsoll COMMAND ...: finds the command, reads its options, runs it. */
#include "cmds.h"

#include <string.h>

static int main_command(plim_args *a, int argc, char **argv)
{
    const plim_cmd *cmd = plim_cmd_find(argv[1]);
    if (!cmd)
        return PLIM_EXIT_USAGE;
    int code = plim_opt_parse(a, cmd->name, cmd->usage, cmd->options, argc - 2, argv + 2);
    if (code)
        return code;
    if (!a->help)
        return cmd->run(a);
    plim_cmd_print(&a->console, cmd);
    return PLIM_EXIT_DONE;
}

static int main_run(plim_args *a, int argc, char **argv)
{
    if (argc < 2)
        return plim_console_usage("which command? (see 'plimsoll help')");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        plim_cmd_print_all(&a->console);
        return PLIM_EXIT_DONE;
    }
    if (!strcmp(argv[1], "--version")) {
        plim_console_puts(&a->console, "plimsoll ");
        plim_console_puts(&a->console, plim_version());
        plim_console_puts(&a->console, "\n");
        return PLIM_EXIT_DONE;
    }
    return main_command(a, argc, argv);
}

int main(int argc, char **argv)
{
    plim_args a = {.settings = PLIM_SETTINGS_INIT,
                   .style = PLIM_STYLE_INIT,
                   .replay = PLIM_REPLAY_OPTIONS_INIT};
    int code = main_run(&a, argc, argv);
    return plim_console_close(&a.console, code);
}
