/* cmd_layers.c -- plimsoll layers MODEL: shape, parameters, memory and cost of each layer. */
#include "cmds.h"

static int layers_model(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_layers *r = NULL;
    if (plim_layers_run(m, a->settings, &r, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_layers_print(r, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_layers_free(r);
    return plim_console_result(&a->console, st, &err);
}

static int layers_run(plim_args *a) { return plim_cmd_with_model(a, layers_model); }

const plim_cmd plim_cmd_layers = {
    .name = "layers",
    .usage = "MODEL",
    .doc = "show shape, parameters, memory and MACs of each layer",
    .options =
        PLIM_USE_SETTINGS | PLIM_USE_LAYERS | PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT,
    .run = layers_run,
};
