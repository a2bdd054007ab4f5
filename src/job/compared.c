/* compared.c -- which settings of a job no recorded run of the real code has together. */
#include "base/fmt.h"
#include "base/items.h"
#include "job/job_priv.h"

#define MEGATRON "a model of Megatron-LM"

static const struct {
    const char *a, *b;
} pairs[] = {
#define PLIM_COMPARED(a, b) {a, b},
#include "job/compared.def"
#undef PLIM_COMPARED
};

/* As tools/combinations.py calls it: "tp", or, of several values, "strategy fsdp2". */
typedef struct choice {
    plim_str name;
    bool meets;
} choice;

enum { CHOICES = PLIM_SETTING_COUNT + 1, SHOWN = 4 };

static bool is_compared(plim_str a, plim_str b)
{
    for (size_t i = 0; i < PLIM_COUNT(pairs); i++)
        if ((plim_str_is(a, pairs[i].a) && plim_str_is(b, pairs[i].b)) ||
            (plim_str_is(b, pairs[i].a) && plim_str_is(a, pairs[i].b)))
            return true;
    return false;
}

/* The setting's value, in short, if the job has another one than most. */
static plim_str value_of(const plim_job *job, plim_setting_id id)
{
    const plim_setting_row *row = &plim_setting_rows[id];
    const char *by = job->step.share.strategy.name;
    plim_str text = plim_str_of(job->settings->text[id].p ? job->settings->text[id].p : ""),
             value = {"", 0};
    if (id == PLIM_SET_strategy && by)
        text = plim_str_of(by);
    plim_item_word(&text, ',', &value);
    const char *hidden = row->hidden                      ? row->hidden
                         : row->kind == PLIM_SETTING_WORD ? row->preset
                         : row->kind == PLIM_SETTING_INT  ? "1"
                                                          : NULL;
    bool usual = hidden && plim_str_is(value, hidden);
    return usual || (job->step.infer && row->training) ? PLIM_STR("") : value;
}

static plim_status list_choices(const plim_job *job, plim_arena *a, choice *out, uint32_t *n,
                                plim_err *err)
{
    for (int id = 0; id < PLIM_SETTING_COUNT; id++) {
        const plim_setting_row *row = &plim_setting_rows[id];
        plim_str first = plim_str_of(row->pairs ? row->pairs : ""), ask = {"", 0},
                 value = value_of(job, (plim_setting_id)id);
        plim_item_word(&first, ';', &ask);
        if (!ask.n || !value.n)
            continue;
        out[*n] = (choice){plim_str_of(row->key), row->meets};
        if (row->kind == PLIM_SETTING_WORD || plim_str_ends(ask, PLIM_STR("=*")) ||
            memchr(ask.p, '/', ask.n))
            out[*n].name =
                plim_arena_printf(a, "%s " PLIM_STR_FMT, row->key, PLIM_STR_ARG(value));
        if (!out[(*n)++].name.p)
            return plim_oom(err);
    }
    if (plim_job_divides_itself(job))
        out[(*n)++] = (choice){PLIM_STR(MEGATRON), true};
    return PLIM_OK;
}

plim_status plim_job_say_uncompared(const plim_job *job, plim_arena *a, plim_buf *b,
                                    plim_err *err)
{
    choice all[CHOICES];
    uint32_t n = 0, found = 0;
    plim_status st = list_choices(job, a, all, &n, err);
    bool own = plim_job_divides_itself(job); /* whose settings meet in the model */
    for (uint32_t i = 0; i < n && !st; i++)
        for (uint32_t k = own ? PLIM_MAX(i + 1, n - 1) : i + 1; k < n; k++) {
            if ((!all[i].meets && !all[k].meets) || is_compared(all[i].name, all[k].name))
                continue;
            if (found++ < SHOWN)
                plim_buf_printf(b, "%s" PLIM_STR_FMT " with " PLIM_STR_FMT,
                                found > 1 ? ", "
                                : b->n    ? " Not compared with runs of the real code: "
                                          : "Not compared with runs of the real code: ",
                                PLIM_STR_ARG(all[i].name), PLIM_STR_ARG(all[k].name));
        }
    if (found > SHOWN)
        plim_buf_printf(b, " and %u more", (unsigned)(found - SHOWN));
    if (found)
        plim_buf_puts(b, " (docs/combinations.md).");
    return st;
}
