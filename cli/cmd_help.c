/* cmd_help.c -- plimsoll help [TOPIC], which may be a command */
#include "cmds.h"
#include "topics.h"

static const plim_topic *find_near(const char *name)
{
    const plim_topic *near = NULL, *t = NULL;
    for (size_t i = 0; !near && (t = plim_topic_at(i)); i++)
        if (plim_opt_near(name, t->name))
            near = t;
    return near;
}

static int help_topic(plim_args *a, const plim_topic *t)
{
    if (a->manual)
        return plim_console_usage("'%s' is a topic, and only commands have a manual page",
                                  t->name);
    plim_console_puts(&a->console, t->text);
    return PLIM_EXIT_DONE;
}

static int help_run(plim_args *a)
{
    const plim_cmd *cmd = NULL;
    const plim_topic *topic = a->operand ? plim_topic_find(a->operand) : NULL;
    if (!a->operand) {
        (a->manual ? plim_manual_print_all : plim_cmd_print_all)(&a->console);
        return PLIM_EXIT_DONE;
    }
    if (topic)
        return help_topic(a, topic);
    if ((topic = find_near(a->operand)))
        return plim_console_usage("unknown topic '%s'; did you mean '%s'?", a->operand,
                                  topic->name);
    if (!(cmd = plim_cmd_find(a->operand)))
        return PLIM_EXIT_USAGE;
    (a->manual ? plim_manual_print : plim_cmd_print)(&a->console, cmd);
    return PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_help = {
    .name = "help",
    .usage = "[TOPIC]",
    .doc = "list the commands, or explain a command or a topic",
    .examples = {"plimsoll help fit", "plimsoll help memory"},
    .options = PLIM_USE_MAN,
    .run = help_run,
};
