/* cmd_serve.c -- plimsoll serve MODEL: what an inference engine holds of a model. */
#include "cmds.h"

static int serve_model(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_serve *s = NULL;
    if (plim_serve_run(m, a->settings, &s, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_serve_print(s, a->render, &a->style, plim_console_put, &a->console, &err);
    bool fits = s->fits == PLIM_FITS_YES || s->fits == PLIM_FITS_NO_CARD;
    plim_serve_free(s);
    int code = plim_console_result(&a->console, st, &err);
    return code ? code : fits ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
}

static int serve_run(plim_args *a) { return plim_cmd_with_model(a, serve_model); }

const plim_cmd plim_cmd_serve = {
    .name = "serve",
    .usage = "MODEL",
    .doc = "predict the memory of an inference engine",
    .examples =
        {"plimsoll serve llama-3.1-8b --gpu rtx4090 --context 16384",
         "plimsoll serve llama-3.1-8b --engine llama.cpp --weights Q4_K_M --gpu rtx3060"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT |
               PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = serve_run,
};
