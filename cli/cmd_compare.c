/* cmd_compare.c -- plimsoll compare MODEL...: size, cost and memory of models side by side. */
#include "cmds.h"
#include "door.h"

/* The estimate of the model that is called so; NULL after printing an error. */
static plim_estimate *estimate_of(const plim_args *a, const char *name, int *code)
{
    plim_err err = PLIM_ERR_INIT;
    plim_model *m = NULL;
    plim_estimate *e = NULL;
    if (plim_door_model(a, name, &m, &err) || plim_estimate_run(m, a->settings, &e, &err))
        *code = plim_console_error(&err);
    plim_model_free(m);
    return e;
}

static int compare_run(plim_args *a)
{
    enum { MOST = 256 };
    plim_err err = PLIM_ERR_INIT;
    plim_estimate *list[MOST];
    int n = 0, code = PLIM_EXIT_DONE;
    if (a->n_operands > MOST)
        return plim_console_usage("'compare' takes up to %d models, not %d", MOST,
                                  a->n_operands);
    if (plim_settings_set(a->settings, "advice", "none", &err)) /* which it does not show */
        return plim_console_error(&err);
    while (n < a->n_operands && (list[n] = estimate_of(a, a->operands[n], &code)))
        n++;
    if (!code) {
        plim_status st =
            plim_compare_print((const plim_estimate *const *)list, (uint32_t)n, a->render,
                               &a->style, plim_console_put, &a->console, &err);
        code = plim_console_result(&a->console, st, &err);
    }
    while (n-- > 0)
        plim_estimate_free(list[n]);
    return code;
}

const plim_cmd plim_cmd_compare = {
    .name = "compare",
    .usage = "MODEL...",
    .doc = "show size, cost, memory, accuracy of models side by side",
    .examples = {"plimsoll compare resnet18 mobilenet_v2 --batch 32",
                 "plimsoll compare alexnet vgg16 resnet50 --batch 32 --gpu t4 --csv"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_PYTHON | PLIM_USE_JSON | PLIM_USE_CSV |
               PLIM_USE_SVG | PLIM_USE_TEXT | PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = compare_run,
};
