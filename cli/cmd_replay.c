/* cmd_replay.c -- plimsoll replay FILE: replays a tape or a recording through a simulated
 * allocator. */
#include <string.h>

#include <plimsoll_live.h>

#include "cmds.h"

/* Whether another allocator or card is asked for than what was recorded. */
static bool replay_is_what_if(const plim_args *a)
{
    static const char *const keys[] = {"allocator", "alloc_conf", "gpu", "vram", "fraction"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (plim_args_get(a, keys[i]))
            return true;
    return false;
}

/* A recording of CUDA's driver has no allocator: it is reported, not replayed. */
static int replay_driver(plim_args *a, const char *path)
{
    plim_err err = PLIM_ERR_INIT;
    plim_driver_report *r = NULL;
    if (plim_driver_open(path, &r, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_driver_print(r, a->render, &a->style, plim_console_put, &a->console, &err);
    bool oom = r->failures;
    plim_driver_free(r);
    int code = plim_console_result(&a->console, st, &err);
    return code ? code : oom ? PLIM_EXIT_NO : PLIM_EXIT_DONE;
}

static int replay_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_replay *r = NULL;
    if (plim_driver_is(a->operand) && !replay_is_what_if(a))
        return replay_driver(a, a->operand);
    const char *path = strcmp(a->operand, "-") ? a->operand : "/dev/stdin";
    if (plim_replay_run(path, a->settings, &r, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_replay_print(r, a->render, &a->style, plim_console_put, &a->console, &err);
    bool oom = r->oom || (r->recorded && r->recorded->as_recorded && r->recorded->oom);
    plim_replay_free(r);
    const int code = plim_console_result(&a->console, st, &err);
    return code ? code : oom ? PLIM_EXIT_NO : PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_replay = {
    .name = "replay",
    .usage = "FILE",
    .doc = "replay a tape, a snapshot, a trace or a recording",
    .about = "Any of the allocator's settings may differ from those of the tape. Exit status "
             "1 means that it ran out of memory.",
    .examples = {"plimsoll replay step.tape --gpu t4",
                 "plimsoll replay snapshot.pickle --alloc-conf expandable_segments:True"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_JSON | PLIM_USE_TEXT | PLIM_USE_SANDBOX,
    .run = replay_run,
};
