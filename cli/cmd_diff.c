/* cmd_diff.c -- plimsoll diff A B: two runs side by side, each predicted or recorded. */
#include "cmds.h"

static int diff_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_diff *d = NULL;
    if (plim_diff_run(a->operands[0], NULL, a->operands[1], NULL, a->settings, &d, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_diff_print(d, a->render, &a->style, plim_console_put, &a->console, &err);
    bool differs = d->differs;
    plim_diff_free(d);
    const int code = plim_console_result(&a->console, st, &err);
    return code ? code : differs ? PLIM_EXIT_NO : PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_diff = {
    .name = "diff",
    .usage = "A B",
    .doc = "compare a prediction with a recording",
    .about =
        "Each of A and B is a model, with the settings given, or what was recorded: a tape, "
        "a memory snapshot of PyTorch, or the log of a program that printed its figures. "
        "The report names the first event that differs and "
        "the likely cause. Exit status 1 means that they differ.",
    .examples = {"plimsoll diff gpt2 train.log --batch 8 --optimizer adamw --within 2%",
                 "plimsoll diff net.pt2 snapshot.pickle"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT |
               PLIM_USE_DIFF | PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = diff_run,
};
