/* cmd_lists.c -- plimsoll models, ops, optimizers ...: the lists of what plimsoll knows. */
#include "cmds.h"

#include <string.h>

static int lists_print(plim_args *a, plim_registry r)
{
    plim_err err = PLIM_ERR_INIT;
    plim_status st = plim_registry_print(r, a->operand, a->render, &a->style, plim_console_put,
                                         &a->console, &err);
    return plim_console_result(&a->console, st, &err);
}

#define OWN(id, registry) /* its command is in cmd_gpus.c */
#define LIST(id, registry, text)                                                              \
    static int lists_##id(plim_args *a) { return lists_print(a, PLIM_REG_##registry); }       \
    const plim_cmd plim_cmd_##id = {                                                          \
        .name = #id,                                                                          \
        .usage = "[FILTER]",                                                                  \
        .doc = text,                                                                          \
        .examples = {"plimsoll " #id, "plimsoll " #id " --json"},                             \
        .options = PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT,                              \
        .run = lists_##id,                                                                    \
    };
PLIM_CMD_LISTS(LIST, OWN)
#undef LIST
#undef OWN

bool plim_cmd_list(const char *name, plim_registry *out)
{
#define OWN(id, registry)                                                                     \
    if (!strcmp(name, #id)) {                                                                 \
        *out = PLIM_REG_##registry;                                                           \
        return true;                                                                          \
    }
#define LIST(id, registry, text) OWN(id, registry)
    PLIM_CMD_LISTS(LIST, OWN)
#undef LIST
#undef OWN
    return false;
}
