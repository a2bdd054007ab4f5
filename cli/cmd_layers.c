/* cmd_layers.c -- plimsoll layers MODEL...: shape, parameters, memory and cost of each layer. */
#include "cmds.h"
#include "door.h"

/* Reads the layers of the model that is called so; NULL after printing an error. */
static plim_layers *layers_of(const plim_args *a, const char *name, int *code)
{
    plim_err err = PLIM_ERR_INIT;
    plim_model *m = NULL;
    plim_layers *r = NULL;
    if (plim_door_model(a, name, &m, &err) || plim_layers_run(m, a->settings, &r, &err))
        *code = plim_console_error(&err);
    plim_model_free(m);
    return r;
}

static int layers_run(plim_args *a)
{
    enum { MOST = 64 };
    plim_err err = PLIM_ERR_INIT;
    plim_layers *list[MOST];
    int n = 0, code = PLIM_EXIT_DONE;
    if (a->n_operands > MOST)
        return plim_console_usage("'layers' takes up to %d models, not %d", MOST,
                                  a->n_operands);
    while (n < a->n_operands && (list[n] = layers_of(a, a->operands[n], &code)))
        n++;
    if (!code) {
        plim_status st =
            plim_layers_print_all((const plim_layers *const *)list, (uint32_t)n, a->render,
                                  &a->style, plim_console_put, &a->console, &err);
        code = plim_console_result(&a->console, st, &err);
    }
    while (n-- > 0)
        plim_layers_free(list[n]);
    return code;
}

const plim_cmd plim_cmd_layers = {
    .name = "layers",
    .usage = "MODEL...",
    .doc = "show shape, parameters, memory and MACs of each layer",
    .examples = {"plimsoll layers resnet50 --depth 1",
                 "plimsoll layers vgg16 --types Conv2d,Linear --sort params --top 5"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_PYTHON | PLIM_USE_LAYERS | PLIM_USE_JSON |
               PLIM_USE_CSV | PLIM_USE_TEXT | PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = layers_run,
};
