/* main.c -- plimsoll COMMAND ...: finds the command, reads its options, runs it. */
#include "cmds.h"
#include "door.h"
#include "sandbox.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

/* '--sandbox always', where it cannot be. */
static int main_refuse(const char *lacks)
{
    plim_err err = {.code = PLIM_EIO};
    snprintf(err.msg, sizeof err.msg, "'--sandbox always': %s", lacks);
    return plim_console_error(&err);
}

/* Gives up access to all but the files that the command reads. */
static int main_enclose(const plim_args *a)
{
    static const char in[] = "/dev/stdin";
    const char *how = a->sandbox ? a->sandbox : "auto";
    plim_err err = PLIM_ERR_INIT;
    plim_sandbox box;
    if (!strcmp(how, "never"))
        return PLIM_EXIT_DONE;
    plim_sandbox_begin(&box);
    plim_sandbox_allow(&box, in, sizeof in - 1);
    for (int i = 0; i < a->n_operands + (a->for_model != NULL); i++)
        if (plim_model_paths(i < a->n_operands ? a->operands[i] : a->for_model, a->settings,
                             plim_sandbox_allow, &box, &err))
            return plim_console_error(&err);
    plim_sandbox_enter(&box);
    return box.lacks && !strcmp(how, "always") ? main_refuse(box.lacks) : PLIM_EXIT_DONE;
}

/* Fetches what the command needs and only the hub has, as long as there is a network. */
static int main_fetch(const plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    for (int i = 0; i < a->n_operands + (a->for_model != NULL); i++)
        if (plim_model_fetch(i < a->n_operands ? a->operands[i] : a->for_model, a->settings,
                             a->offline, &err))
            return plim_console_error(&err);
    return PLIM_EXIT_DONE;
}

static int main_command(plim_args *a, int argc, char **argv)
{
    const plim_cmd *cmd = plim_cmd_find(argv[1]);
    if (!cmd)
        return PLIM_EXIT_USAGE;
    int code = plim_opt_parse(a, cmd->name, cmd->usage, cmd->options, argc - 2, argv + 2);
    if (code)
        return code;
    if (a->help) {
        plim_cmd_print(&a->console, cmd);
        return PLIM_EXIT_DONE;
    }
    if (cmd->options & PLIM_USE_HUB)
        code = main_fetch(a);
    if (!code && cmd->options & PLIM_USE_PYTHON)
        code = plim_door_open(a);
    if (!code && cmd->options & PLIM_USE_SANDBOX)
        code = main_enclose(a);
    return code ? code : cmd->run(a);
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
    int error = plim_terminal_start(&argc, &argv);
    if (error)
        return plim_console_failed("cannot open", "/dev/null", error);
    if (plim_settings_new(&a.settings, &err))
        return plim_console_error(&err);
    plim_settings_on_progress(a.settings, plim_console_progress, NULL);
    int code = main_run(&a, argc, argv);
    plim_settings_free(a.settings);
    return plim_console_close(&a.console, code);
}
