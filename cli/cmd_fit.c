/* cmd_fit.c -- plimsoll fit MODEL [--gpu A,B]: finds the largest batch for each card. */
#include "cmds.h"

#include <string.h>

static int fit_model(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_fit *f = NULL;
    if (plim_fit_run(m, a->settings, &f, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_fit_print(f, a->render, &a->style, plim_console_put, &a->console, &err);
    bool any = false;
    for (uint32_t i = 0; i < f->n_cards; i++)
        any = any || (f->cards[i]->fits && f->cards[i]->verdict != PLIM_FITS_INCOMPLETE);
    plim_fit_free(f);
    int code = plim_console_result(&a->console, st, &err);
    return code ? code : any ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
}

/* Files of settings and programs have the sizes of other answers, which the search leaves aside;
 * who types one means it. */
static int refuse_found(const plim_args *a)
{
    const char *find = plim_args_get(a, "find");
    bool seq = find && !strcmp(find, "seq");
    if (a->batch_typed && !seq)
        return plim_console_usage("'fit' finds the largest batch: for a given one, use "
                                  "'plimsoll estimate --batch N', or '--find seq' for its "
                                  "longest sequence");
    if (a->seq_typed && seq)
        return plim_console_usage("'--find seq' finds the longest sequence: for a given one, "
                                  "leave it out");
    return PLIM_EXIT_DONE;
}

static int serve_model(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_serve_fit *f = NULL;
    if (plim_serve_fit_run(m, a->settings, &f, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_serve_fit_print(f, a->render, &a->style, plim_console_put, &a->console, &err);
    bool any = false;
    for (uint32_t i = 0; i < f->n_cards; i++)
        any = any || f->cards[i]->fits == PLIM_FITS_YES;
    plim_serve_fit_free(f);
    int code = plim_console_result(&a->console, st, &err);
    return code ? code : any ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
}

/* Settings of a server say nothing of a run of PyTorch. */
static int refuse_served(const plim_args *a)
{
    static const char *const keys[] = {"engine", "context", "concurrency", "weights", "kv"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (plim_args_get(a, keys[i]))
            return plim_console_usage("'--%s' needs '--serve'", keys[i]);
    return PLIM_EXIT_DONE;
}

static int fit_run(plim_args *a)
{
    int code = a->serve ? PLIM_EXIT_DONE : refuse_served(a);
    if (!code && a->serve)
        return plim_cmd_with_model(a, serve_model);
    if (!code)
        code = refuse_found(a);
    return code ? code : plim_cmd_with_model(a, fit_model);
}

const plim_cmd plim_cmd_fit = {
    .name = "fit",
    .usage = "MODEL",
    .doc = "find the largest batch for each card",
    .about =
        "Without a card, tries all of them. --find seq finds the longest sequence instead, "
        "--serve what an inference engine can serve. "
        "Exit status 1 means that no card fits a batch of 1, or that a part of the model is not "
        "counted.",
    .examples = {"plimsoll fit resnet50 --optimizer adamw --gpu t4,rtx4090,h100",
                 "plimsoll fit gpt2 --find seq --batch 8 --gpu t4"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_PYTHON | PLIM_USE_FIT | PLIM_USE_CARDS |
               PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT | PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = fit_run,
};
