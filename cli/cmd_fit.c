/* cmd_fit.c -- plimsoll fit MODEL --gpu A,B|all: the largest batch for each card. */
#include "cmds.h"

static int fit_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_fit *f = NULL;
    const char *gpus = a->settings.gpu;
    if (!gpus && !a->settings.vram)
        return plim_console_usage("'fit' needs a card: --gpu CARD, --gpu all or --vram SIZE");
    if (gpus && a->settings.vram)
        return plim_console_usage("'--gpu' and '--vram' are two cards: give one");
    a->settings.gpu = NULL; /* a list is not a card */
    if (plim_fit_run(a->operand, &a->settings, gpus, &f, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_fit_print(f, a->render, &a->style, plim_console_put, &a->console, &err);
    bool any = false;
    for (uint32_t i = 0; i < f->n; i++)
        any = any || f->rows[i].batch > 0;
    plim_fit_free(f);
    if (st)
        return plim_console_error(&err);
    return any ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
}

const plim_cmd plim_cmd_fit = {
    .name = "fit",
    .usage = "MODEL",
    .doc = "the largest batch for each card",
    .options = PLIM_USE_FORWARD | PLIM_USE_STEP | PLIM_USE_CARD | PLIM_USE_MEMORY |
               PLIM_USE_POOL | PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT,
    .run = fit_run,
};
