/* cmd_gpus.c -- plimsoll gpus [FILTER]: lists the known cards; with --for MODEL, those that a
 * run fits on. */
#include "cmds.h"

static int gpus_for(plim_args *a, const plim_model *m)
{
    plim_err err = PLIM_ERR_INIT;
    plim_cards *c = NULL;
    if (plim_cards_run(m, a->settings, &c, &err))
        return plim_console_error(&err);
    plim_status st =
        plim_cards_print(c, a->render, &a->style, plim_console_put, &a->console, &err);
    bool any = false;
    for (uint32_t i = 0; i < c->n_cards; i++)
        any = any || c->cards[i]->fits == PLIM_FITS_YES;
    plim_cards_free(c);
    int code = plim_console_result(&a->console, st, &err);
    return code ? code : any ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
}

/* The key of a setting that was given; NULL: none. */
static const char *find_given(const plim_args *a)
{
    plim_setting_info s = PLIM_SETTING_INFO_INIT;
    for (uint32_t i = 0; plim_setting_at(i, &s); i++)
        if (plim_args_get(a, s.key))
            return s.key;
    return a->style.sort ? "sort" : NULL;
}

static int gpus_list(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    const char *given = find_given(a);
    if (given)
        return plim_console_usage("the setting '%s' needs '--for MODEL'", given);
    plim_status st = plim_registry_print(PLIM_REG_GPUS, a->operand, a->render, &a->style,
                                         plim_console_put, &a->console, &err);
    return plim_console_result(&a->console, st, &err);
}

static int gpus_run(plim_args *a)
{
    if (!a->for_model)
        return gpus_list(a);
    if (a->operand)
        return plim_console_usage("with '--for', name the cards with '--gpu', not '%s'",
                                  a->operand);
    a->operand = a->for_model;
    return plim_cmd_with_model(a, gpus_for);
}

const plim_cmd plim_cmd_gpus = {
    .name = "gpus",
    .usage = "[FILTER]",
    .doc = "list the known cards, or with --for those that fit a model",
    .examples = {"plimsoll gpus 4090",
                 "plimsoll gpus --for resnet50 --batch 128 --sort headroom"},
    .options = PLIM_USE_SETTINGS | PLIM_USE_PYTHON | PLIM_USE_FOR | PLIM_USE_CARDS |
               PLIM_USE_JSON | PLIM_USE_CSV | PLIM_USE_TEXT | PLIM_USE_SANDBOX | PLIM_USE_HUB,
    .run = gpus_run,
};
