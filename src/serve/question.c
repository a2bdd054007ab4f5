/* question.c -- what engines ask of the question: see serve.h. */
#include "base/fmt.h"
#include "base/items.h"
#include "serve/serve.h"

/* ---- the model -------------------------------------------------------------------------- */

plim_dtype plim_question_dtype(const plim_serve_question *q)
{
    return q->g ? plim_job_cache_dtype(q->job, q->g) : PLIM_F16;
}

bool plim_question_whole(const plim_serve_question *q)
{
    return !(q->g && q->g->about.left_out.n) && (!q->draft || plim_question_whole(q->draft));
}

/* Rounded up. */
static uint64_t part_of(uint64_t bytes, plim_serve_fraction p)
{
    plim_assert(p.of > 0);
    uint64_t rest = bytes % p.of * p.n;
    return plim_sat_add(plim_sat_mul(bytes / p.of, p.n), rest / p.of + (rest % p.of != 0));
}

uint64_t plim_question_bytes(const plim_serve_question *q, const plim_value *v)
{
    plim_meta m = v->meta;
    uint64_t bytes;
    if (v->kind != PLIM_VALUE_NODE && !v->packed && plim_is_float(m.dtype) &&
        q->job->step.dtype != PLIM_DTYPE_COUNT)
        m.dtype = q->job->step.dtype;
    if (!plim_meta_bytes(&m, &bytes))
        return UINT64_MAX;
    return q->part ? part_of(bytes, q->part[v - q->g->values]) : bytes;
}

/* ---- keys and values -------------------------------------------------------------------- */

plim_cache_rules plim_question_rules(const plim_serve_question *q)
{
    return (plim_cache_rules){.keys = q->keys,
                              .values = q->values,
                              .state_bytes =
                                  (uint32_t)plim_dtype_bytes(plim_question_dtype(q)),
                              .step = 1,
                              .windows = 1};
}

uint64_t plim_question_kv(const plim_serve_question *q, const plim_kv_layers *kv)
{
    plim_assert(kv->layers >= 0);
    const plim_cache_rules r = plim_question_rules(q);
    return plim_sat_mul(plim_cache_row(kv, &r), (uint64_t)kv->layers);
}

uint64_t plim_question_token(const plim_serve_question *q)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; q->g && i < q->g->kv.n_kinds; i++)
        if (!q->g->kv.kinds[i].window)
            sum = plim_sat_add(sum, plim_question_kv(q, &q->g->kv.kinds[i]));
    return sum;
}

plim_serve_question plim_question_draft(const plim_serve_question *q)
{
    plim_assert(q->draft);
    plim_serve_question draft = *q->draft;
    draft.context = q->context;
    draft.concurrency = q->concurrency;
    draft.arena = q->arena;
    plim_job_use_card(draft.job, q->job->gpu);
    return draft;
}

/* ---- options ---------------------------------------------------------------------------- */

plim_str plim_question_option(const plim_serve_question *q, const char *name)
{
    plim_str given = plim_item_find(q->options, plim_str_of(name));
    return given.p ? given.n ? given : PLIM_STR("1")
                   : plim_item_find(plim_str_of(q->engine->options), plim_str_of(name));
}

plim_status plim_question_number(const plim_serve_question *q, const char *name, double least,
                                 double most, double *out, plim_err *err)
{
    plim_assert(least <= most);
    plim_str text = plim_question_option(q, name);
    if (plim_item_number(text, out) && *out >= least && *out <= most)
        return PLIM_OK;
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "option '%s' of %s is a number from %s to %s, not '" PLIM_STR_FMT "'",
                     name, q->engine->name, plim_fmt_digits(least).s, plim_fmt_digits(most).s,
                     PLIM_STR_CUT(text));
}
