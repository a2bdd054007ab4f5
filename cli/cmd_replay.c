/* cmd_replay.c -- plimsoll replay FILE: a tape through an allocator. */
#include <string.h>

#include "cmds.h"

static int replay_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_replay *r = NULL;
    if (a->settings.gpu && a->settings.vram)
        return plim_console_usage("'--gpu' and '--vram' are two cards: give one");
    a->replay.torch = a->settings.torch;
    a->replay.alloc_conf = a->settings.alloc_conf;
    a->replay.gpu = a->settings.gpu;
    a->replay.capacity = a->settings.vram;
    const char *path = strcmp(a->operand, "-") ? a->operand : "/dev/stdin";
    if (plim_replay_run(path, &a->replay, &r, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_replay_print(r, a->render, &a->style, plim_console_put, &a->console, &err);
    bool oom = r->oom;
    plim_replay_free(r);
    if (st)
        return plim_console_error(&err);
    return oom ? PLIM_EXIT_NO : PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_replay = {
    .name = "replay",
    .usage = "FILE",
    .doc = "a tape through PyTorch's allocator, with any settings",
    .options = PLIM_USE_REPLAY | PLIM_USE_CARD | PLIM_USE_MEMORY | PLIM_USE_POOL |
               PLIM_USE_JSON | PLIM_USE_TEXT,
    .run = replay_run,
};
