/* cmd_estimate.c -- plimsoll estimate MODEL: memory by category, and what is live at the
 * peak. */
#include "cmds.h"

#include <string.h>

static int explain_batch(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_batches *b = NULL;
    if (plim_batches_run(m, a->settings, &b, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_batches_print(b, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_batches_free(b);
    return plim_console_result(&a->console, st, &err);
}

static int explain_segments(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_segments *s = NULL;
    if (plim_segments_run(m, a->settings, &s, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_segments_print(s, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_segments_free(s);
    return plim_console_result(&a->console, st, &err);
}

static int explain_time(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_times *t = NULL;
    if (plim_times_run(m, a->settings, &t, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_times_print(t, a->render, &a->style, plim_console_put, &a->console, &err);
    plim_times_free(t);
    return plim_console_result(&a->console, st, &err);
}

static int estimate_explain(plim_args *a, const plim_model *m)
{
    if (!strcmp(a->explain, "batch"))
        return explain_batch(a, m);
    if (!strcmp(a->explain, "segments"))
        return explain_segments(a, m);
    return explain_time(a, m);
}

static int estimate_model(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_estimate *e = NULL;
    if (a->explain)
        return estimate_explain(a, m);
    if (a->style.quiet && a->render == PLIM_TEXT && /* which does not show it */
        plim_settings_set(a->settings, "advice", "none", &err))
        return plim_console_error(&err);
    if (plim_estimate_run(m, a->settings, &e, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_estimate_print(e, a->render, &a->style, plim_console_put, &a->console, &err);
    /* exit status 0 promises that the step fits, so "maybe" and "incomplete" count as no */
    const char *left_out = e->model->left_out;
    bool fits = e->fits == PLIM_FITS_YES || e->fits == PLIM_FITS_NO_CARD;
    bool no = !fits || e->over_budget || (e->budget_bytes && left_out && *left_out);
    plim_estimate_free(e);
    int code = plim_console_result(&a->console, st, &err);
    return code ? code : no ? PLIM_EXIT_NO : PLIM_EXIT_DONE;
}

static int estimate_run(plim_args *a) { return plim_cmd_with_model(a, estimate_model); }

const plim_cmd plim_cmd_estimate = {
    .name = "estimate",
    .usage = "MODEL",
    .doc = "predict memory, and show what is live at the peak",
    .about =
        "With a card, exit status 1 means that the step does not fit, or may not; with "
        "--budget, that it exceeds the budget. It is 1, too, where a part of the model is "
        "not counted.",
    .examples =
        {"plimsoll estimate resnet50 --batch 64 --optimizer adamw --gpu rtx4090",
         "plimsoll estimate llama-3.1-8b --dtype bf16 --seq 2048 --lora r=16 --gpu h100"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_PYTHON | PLIM_USE_EXPLAIN | PLIM_USE_JSON |
               PLIM_USE_CSV | PLIM_USE_SVG | PLIM_USE_TEXT | PLIM_USE_LIVE | PLIM_USE_SANDBOX |
               PLIM_USE_HUB,
    .run = estimate_run,
};
