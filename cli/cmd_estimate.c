/* cmd_estimate.c -- plimsoll estimate MODEL: how much memory, of what, and why. */
#include "cmds.h"

#include <string.h>

static int explain_batch(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_batches *b = NULL;
    if (plim_batches_run(a->operand, &a->settings, &b, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_batches_print(b, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_batches_free(b);
    return st ? plim_console_error(&err) : PLIM_EXIT_DONE;
}

static int explain_segments(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_segments *s = NULL;
    if (plim_segments_run(a->operand, &a->settings, &s, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_segments_print(s, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_segments_free(s);
    return st ? plim_console_error(&err) : PLIM_EXIT_DONE;
}

static int estimate_explain(plim_args *a)
{
    if (!strcmp(a->explain, "batch"))
        return explain_batch(a);
    if (!strcmp(a->explain, "segments"))
        return explain_segments(a);
    return plim_console_usage("'--explain' is '%s', what can be explained is: batch, segments",
                              a->explain);
}

static int estimate_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_estimate *e = NULL;
    if (a->settings.gpu && a->settings.vram)
        return plim_console_usage("'--gpu' and '--vram' are two cards: give one");
    if (a->explain)
        return estimate_explain(a);
    if (plim_estimate_run(a->operand, &a->settings, &e, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_estimate_print(e, a->render, &a->style, plim_console_put, &a->console, &err);
    bool no = e->fits == 0 || e->fits == -1; /* only a sure yes is a yes */
    plim_estimate_free(e);
    if (st)
        return plim_console_error(&err);
    return no ? PLIM_EXIT_NO : PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_estimate = {
    .name = "estimate",
    .usage = "MODEL",
    .doc = "how much memory, of what, and what is live at the peak",
    .options = PLIM_USE_BATCH | PLIM_USE_FORWARD | PLIM_USE_STEP | PLIM_USE_CARD |
               PLIM_USE_MEMORY | PLIM_USE_POOL | PLIM_USE_EXPLAIN | PLIM_USE_JSON |
               PLIM_USE_TEXT | PLIM_USE_LIVE,
    .run = estimate_run,
};
