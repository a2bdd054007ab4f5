/* served.c -- what engines ask of the question, and how they put their answer together: see
 * serve.h. */
#include <stdarg.h>
#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"
#include "fit/verdict.h"
#include "serve/serve.h"

/* ---- the model --------------------------------------------------------------------------------- */

plim_dtype plim_serving_dtype(const plim_serving *s)
{
    return s->g ? plim_job_cache_dtype(s->job, s->g) : PLIM_F16;
}

/* Rounded up. */
static uint64_t part_of(uint64_t bytes, plim_serve_part p)
{
    uint64_t rest = bytes % p.of * p.n;
    return plim_sat_add(plim_sat_mul(bytes / p.of, p.n), rest / p.of + (rest % p.of != 0));
}

uint64_t plim_serving_bytes(const plim_serving *s, const plim_value *v)
{
    plim_meta m = v->meta;
    uint64_t bytes;
    if (v->kind != PLIM_VALUE_NODE && !v->packed && plim_is_float(m.dtype) &&
        s->job->step.dtype != PLIM_DTYPE_COUNT)
        m.dtype = s->job->step.dtype;
    if (!plim_meta_bytes(&m, &bytes))
        return UINT64_MAX;
    return s->part ? part_of(bytes, s->part[v - s->g->values]) : bytes;
}

/* ---- keys and values ------------------------------------------------------------------------- */

uint64_t plim_kv_row(const plim_kv_type *t, uint64_t elements)
{
    uint64_t bytes;
    return elements % t->elements == 0 && plim_mul(elements / t->elements, t->bytes, &bytes)
               ? bytes
               : 0;
}

uint64_t plim_serving_kv(const plim_serving *s, const plim_kv_layers *kv)
{
    uint64_t row = plim_sat_add(plim_kv_row(s->keys, (uint64_t)(kv->heads * kv->keys)),
                                plim_kv_row(s->values, (uint64_t)(kv->heads * kv->values)));
    return plim_sat_mul(row, (uint64_t)kv->layers);
}

uint64_t plim_serving_token(const plim_serving *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; s->g && i < s->g->n_kv; i++)
        if (!s->g->kv[i].window)
            sum = plim_sat_add(sum, plim_serving_kv(s, &s->g->kv[i]));
    return sum;
}

plim_serving plim_serving_draft_of(const plim_serving *s)
{
    plim_serving draft = *s->draft;
    draft.context = s->context;
    draft.concurrency = s->concurrency;
    draft.arena = s->arena;
    plim_job_use_card(draft.job, s->job->gpu);
    return draft;
}

/* ---- options ------------------------------------------------------------------------------------- */

plim_str plim_serving_option(const plim_serving *s, const char *name)
{
    plim_str given = plim_item_find(s->options, plim_str_of(name));
    return given.p ? given.n ? given : PLIM_STR("1")
                   : plim_item_find(plim_str_of(s->engine->options), plim_str_of(name));
}

plim_status plim_serving_number(const plim_serving *s, const char *name, double least,
                                double most, double *out, plim_err *err)
{
    plim_str text = plim_serving_option(s, name);
    if (plim_item_number(text, out) && *out >= least && *out <= most)
        return PLIM_OK;
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "option '%s' of %s is a number from %s to %s, not '" PLIM_STR_FMT "'",
                     name, s->engine->name, plim_fmt_digits(least).s, plim_fmt_digits(most).s,
                     PLIM_STR_CUT(text));
}

/* ---- the answer -------------------------------------------------------------------------------------- */

const char *plim_serve_place_name(plim_serve_place p)
{
    static const char *const names[] = {"card", "host"};
    return (unsigned)p < PLIM_COUNT(names) ? names[p] : "?";
}

plim_status plim_served_part(plim_served *out, plim_serve_row row, plim_err *err)
{
    plim_assert(row.low <= row.usual && row.usual <= row.high);
    if (!PLIM_PUSH_ROOM(out->arena, out->rows, out->n_rows, out->cap_rows))
        return plim_oom(err);
    out->rows[out->n_rows++] = row;
    return PLIM_OK;
}

plim_status plim_served_context(const plim_serving *s, plim_served *out, plim_err *err)
{
    const plim_gpu_context c = plim_fit_context(s->job);
    out->context_unknown = s->job->gpu && !c.high;
    if (!s->job->gpu || !c.high)
        return PLIM_OK;
    return plim_served_part(out,
                            (plim_serve_row){.part = "CUDA context",
                                             .low = c.low,
                                             .usual = c.usual,
                                             .high = c.high,
                                             .certainty = PLIM_ESTIMATED,
                                             .doc = "of the process"},
                            err);
}

plim_status plim_served_say(plim_served *out, plim_err *err, const char *fmt, ...)
{
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    plim_str s = plim_arena_str(out->arena, plim_str_of(line));
    if (!s.p || !PLIM_PUSH_ROOM(out->arena, out->says, out->n_says, out->cap_says))
        return plim_oom(err);
    out->says[out->n_says++] = s.p;
    return PLIM_OK;
}

plim_serve_row plim_served_total(const plim_served *out, plim_serve_place place)
{
    plim_serve_row sum = {.part = "total", .place = place};
    for (uint32_t i = 0; i < out->n_rows; i++) {
        const plim_serve_row *r = &out->rows[i];
        if (r->place != place)
            continue;
        sum.low = plim_sat_add(sum.low, r->rest ? r->high : r->low);
        sum.usual = plim_sat_add(sum.usual, r->usual);
        sum.high = plim_sat_add(sum.high, r->rest ? r->low : r->high);
        sum.certainty = PLIM_MAX(sum.certainty, r->certainty);
    }
    return sum;
}
