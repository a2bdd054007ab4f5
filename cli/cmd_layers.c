/* cmd_layers.c -- plimsoll layers MODEL: what each layer holds and costs. */
#include "cmds.h"

static int layers_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_layers *l = NULL;
    if (plim_layers_run(a->operand, &a->settings, &l, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_layers_print(l, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_layers_free(l);
    return st ? plim_console_error(&err) : PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_layers = {
    .name = "layers",
    .usage = "MODEL",
    .doc = "what each layer holds and costs: shapes, parameters, MACs",
    .options = PLIM_USE_BATCH | PLIM_USE_FORWARD | PLIM_USE_LAYERS | PLIM_USE_JSON |
               PLIM_USE_CSV | PLIM_USE_TEXT,
    .run = layers_run,
};
