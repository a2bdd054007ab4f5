/* cmd_info.c -- plimsoll info FILE: shows the contents of a model file. */
#include "cmds.h"

static int info_model(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_info *r = NULL;
    if (plim_info_run(m, a->settings, &r, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_info_print(r, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_info_free(r);
    return plim_console_result(&a->console, st, &err);
}

static int info_run(plim_args *a)
{
    if (a->style.top && !a->style.tensors && a->render == PLIM_TEXT)
        return plim_console_usage("'--top' needs '--tensors'");
    return plim_cmd_with_model(a, info_model);
}

const plim_cmd plim_cmd_info = {
    .name = "info",
    .usage = "FILE",
    .doc = "show the contents of a file: tensors, types, modules",
    .about = "A FILE may also be safetensors, GGUF or a PyTorch checkpoint. The report names "
             "what could not be determined.",
    .examples = {"plimsoll info net.pt2 --depth 1",
                 "plimsoll info model.safetensors --tensors --top 10"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_DEPTH | PLIM_USE_JSON | PLIM_USE_CSV |
               PLIM_USE_TEXT | PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = info_run,
};
