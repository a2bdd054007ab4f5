/* main.c -- plimsoll COMMAND ...: finds the command, reads its options, runs it. */
#include "cmds.h"
#include "terminal.h"

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
    if (argc < 2) { /* as git does */
        plim_cmd_print_all(&a->console);
        return PLIM_EXIT_USAGE;
    }
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
    plim_args a = {.style = PLIM_STYLE_INIT};
    plim_err err = PLIM_ERR_INIT;
    plim_terminal_start(&argc, &argv);
    if (plim_settings_new(&a.settings, &err))
        return plim_console_error(&err);
    plim_settings_on_progress(a.settings, plim_console_progress, NULL);
    int code = main_run(&a, argc, argv);
    plim_settings_free(a.settings);
    return plim_console_close(&a.console, code);
}
