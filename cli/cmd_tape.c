/* cmd_tape.c -- plimsoll tape MODEL: prints the allocations and frees of a run. */
#include "cmds.h"

static int tape_model(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_status st = plim_tape_print(m, a->settings, a->render == PLIM_JSON, plim_console_put,
                                     &a->console, &err);
    return plim_console_result(&a->console, st, &err);
}

static int tape_run(plim_args *a) { return plim_cmd_with_model(a, tape_model); }

const plim_cmd plim_cmd_tape = {
    .name = "tape",
    .usage = "MODEL",
    .doc = "print the allocations and frees of a run, in order",
    .about = "The output is text, which 'plimsoll replay' reads, or JSON lines.",
    .examples = {"plimsoll tape resnet50 --batch 32 > step.tape", "plimsoll tape gpt2 --json"},
    .options =
        PLIM_USE_SETTINGS | PLIM_USE_PYTHON | PLIM_USE_JSON | PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = tape_run,
};
