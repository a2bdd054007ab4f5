/* cmds.c -- see cmds.h */
#include "cmds.h"
#include "door.h"
#include "topics.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The only list of commands, in the order of help. */
#define LIST(name, registry, doc) X(name)
#define OWN(name, registry) X(name)
#define CMDS                                                                                  \
    X(estimate)                                                                               \
    X(layers)                                                                                 \
    X(compare)                                                                                \
    X(fit)                                                                                    \
    X(serve)                                                                                  \
    X(info)                                                                                   \
    X(tape)                                                                                   \
    X(replay)                                                                                 \
    X(diff)                                                                                   \
    X(run)                                                                                    \
    X(record)                                                                                 \
    X(top)                                                                                    \
    X(oom)                                                                                    \
    X(size)                                                                                   \
    PLIM_CMD_LISTS(LIST, OWN)                                                                 \
    X(completion)                                                                             \
    X(help)

#define X(name) extern const plim_cmd plim_cmd_##name;
CMDS
#undef X

#define X(name) &plim_cmd_##name,
    static const plim_cmd *const cmds[] = {CMDS};
#undef X
enum { CMDS_COUNT = sizeof cmds / sizeof *cmds };

static const char cmds_notes[] =
    "\n"
    "MODEL is a built-in name ('plimsoll models'), an id of the Hugging Face hub\n"
    "(org/name), a folder, or a file, whose format is detected from its content\n"
    "('plimsoll formats').  An answer is for one process that runs eager PyTorch on\n"
    "one card: see docs/when-not-to-trust-it.md.\n"
    "\n"
    "'plimsoll help COMMAND' shows examples and the options of a command,\n"
    "'plimsoll --version' the version.\n"
    "\n"
    "Exit status: 0 success; 1 the answer is no: it does not fit, or may not;\n"
    "2 invalid command line; 3 invalid or unsupported file or model; 4 system error\n"
    "(I/O, out of memory, full disk).  Those of 'run' and 'record' are the command's.\n";

int plim_cmd_with_model(plim_args *a, int (*with)(plim_args *a, const plim_model *m))
{
    plim_err err = PLIM_ERR_INIT;
    plim_model *m = NULL;
    if (plim_door_model(a, a->operand, &m, &err))
        return plim_console_error(&err);
    int code = with(a, m);
    plim_model_free(m);
    return code;
}

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

static void print_topics(plim_console *c)
{
    char line[256] = "Topics, for 'plimsoll help TOPIC':";
    const plim_topic *t = NULL;
    for (size_t i = 0; (t = plim_topic_at(i)); i++) {
        size_t n = strlen(line);
        snprintf(line + n, sizeof line - n, "%s %s", i ? "," : "", t->name);
    }
    plim_console_puts(c, "\n");
    plim_opt_wrap(c, line, 0, 0);
}

void plim_cmd_print_all(plim_console *c)
{
    enum { DOC_COLUMN = 22 }; /* where descriptions begin */
    const plim_cmd *cmd = NULL;
    plim_console_puts(c, "usage: plimsoll COMMAND [ARGUMENT] [OPTIONS]\n\n");
    for (size_t i = 0; (cmd = plim_cmd_at(i)); i++) {
        char left[64];
        const char *optional = strstr(cmd->usage, " [");
        int n =
            snprintf(left, sizeof left, "  %s %.*s", cmd->name,
                     (int)(optional ? optional - cmd->usage : (ptrdiff_t)strlen(cmd->usage)),
                     cmd->usage);
        plim_console_puts(c, left);
        if (n >= DOC_COLUMN) {
            plim_console_puts(c, "\n");
            n = 0;
        }
        plim_opt_wrap(c, cmd->doc, DOC_COLUMN, (size_t)n);
    }
    plim_console_puts(c, cmds_notes);
    print_topics(c);
}

void plim_cmd_print(plim_console *c, const plim_cmd *cmd)
{
    char line[128];
    if (cmd->options & PLIM_USE_COMMAND) /* what follows COMMAND is its own */
        snprintf(line, sizeof line, "usage: plimsoll %s [OPTIONS] -- %s [ARGUMENT...]\n\n",
                 cmd->name, cmd->usage);
    else
        snprintf(line, sizeof line, "usage: plimsoll %s%s%s [OPTIONS]\n\n", cmd->name,
                 *cmd->usage ? " " : "", cmd->usage);
    plim_console_puts(c, line);
    for (int i = 0; i < PLIM_EXAMPLES && cmd->examples[i]; i++) {
        plim_console_puts(c, "  ");
        plim_console_puts(c, cmd->examples[i]);
        plim_console_puts(c, "\n");
    }
    plim_console_puts(c, "\n");
    plim_opt_wrap(c, cmd->doc, 0, 0);
    if (cmd->about) {
        plim_console_puts(c, "\n");
        plim_opt_wrap(c, cmd->about, 0, 0);
    }
    plim_opt_help(c, cmd->name, cmd->options);
}
