/* cmds.c -- see cmds.h */
#include "cmds.h"

#include <stdio.h>
#include <string.h>

enum { CMDS_COUNT = 15 };

static const plim_cmd *const cmds[CMDS_COUNT] = {
    &plim_cmd_estimate, &plim_cmd_layers,  &plim_cmd_fit,  &plim_cmd_info,
    &plim_cmd_tape,     &plim_cmd_replay,  &plim_cmd_run,  &plim_cmd_size,
    &plim_cmd_models,   &plim_cmd_gpus,    &plim_cmd_ops,  &plim_cmd_optimizers,
    &plim_cmd_profiles, &plim_cmd_formats, &plim_cmd_help,
};

static const char cmds_notes[] =
    "\n"
    "MODEL is a built-in name ('plimsoll models') or a file; its format is found from\n"
    "its content ('plimsoll formats').\n"
    "\n"
    "'plimsoll help COMMAND' lists the options of a command; 'plimsoll --version'\n"
    "says which version this is.\n"
    "\n"
    "Exit status: 0 done; 1 the answer is no: it does not fit; 2 a mistake on the\n"
    "command line; 3 a file or a model that is not right; 4 the machine said no: a\n"
    "file that cannot be read, no memory, a full disk.\n";

const plim_cmd *plim_cmd_at(size_t i) { return i < CMDS_COUNT ? cmds[i] : NULL; }

const plim_cmd *plim_cmd_find(const char *name)
{
    const plim_cmd *near = NULL, *cmd = NULL;
    for (size_t i = 0; (cmd = plim_cmd_at(i)); i++) {
        if (!strcmp(cmd->name, name))
            return cmd;
        int distance = plim_opt_near(name, cmd->name);
        if (distance && (!near || distance < plim_opt_near(name, near->name)))
            near = cmd;
    }
    if (near)
        plim_console_usage("unknown command '%s'; did you mean '%s'?", name, near->name);
    else
        plim_console_usage("unknown command '%s' (see 'plimsoll help')", name);
    return NULL;
}

void plim_cmd_print_all(plim_console *c)
{
    enum { DOC = 22 };
    const plim_cmd *cmd = NULL;
    plim_console_puts(c, "usage: plimsoll COMMAND [ARGUMENT] [OPTIONS]\n\n");
    for (size_t i = 0; (cmd = plim_cmd_at(i)); i++) {
        char left[64];
        int n = snprintf(left, sizeof left, "  %s %s", cmd->name, cmd->usage);
        plim_console_puts(c, left);
        plim_opt_wrap(c, cmd->doc, DOC, (size_t)n);
    }
    plim_console_puts(c, cmds_notes);
}

void plim_cmd_print(plim_console *c, const plim_cmd *cmd)
{
    char line[128];
    snprintf(line, sizeof line, "usage: plimsoll %s%s%s [OPTIONS]\n\n", cmd->name,
             *cmd->usage ? " " : "", cmd->usage);
    plim_console_puts(c, line);
    plim_opt_wrap(c, cmd->doc, 0, 0);
    plim_opt_help(c, cmd->options);
}
