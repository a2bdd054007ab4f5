/* answer.c -- how engines put their answer together, and what it comes to: see serve.h. */
#include <stdarg.h>
#include <stdio.h>

#include "fit/verdict.h"
#include "serve/serve.h"

const char *plim_serve_place_name(plim_serve_place p)
{
    static const char *const names[] = {"card", "host"};
    return (unsigned)p < PLIM_COUNT(names) ? names[p] : "?";
}

plim_status plim_answer_add(plim_serve_answer *out, plim_serve_row row, plim_err *err)
{
    plim_assert(row.low <= row.usual && row.usual <= row.high);
    if (!PLIM_PUSH_ROOM(out->arena, out->rows, out->n_rows, out->cap_rows))
        return plim_oom(err);
    out->rows[out->n_rows++] = row;
    return PLIM_OK;
}

/* What the system keeps of unified memory, which leaves *c. */
static plim_status add_system(plim_serve_answer *out, plim_gpu_context *c, plim_err *err)
{
    const plim_gpu_part *p = c->n_parts ? &c->part[c->n_parts - 1] : NULL;
    if (!p || strcmp(p->name, PLIM_GPU_SYSTEM) != 0)
        return PLIM_OK;
    c->low -= p->low;
    c->usual -= p->usual;
    c->high -= p->high;
    return plim_answer_add(out,
                           (plim_serve_row){.part = p->name,
                                            .low = p->low,
                                            .usual = p->usual,
                                            .high = p->high,
                                            .certainty = PLIM_ESTIMATED,
                                            .doc = "of memory that it shares"},
                           err);
}

plim_status plim_answer_context(const plim_serve_question *q, plim_serve_answer *out,
                                plim_err *err)
{
    plim_gpu_context c = plim_fit_engine_context(q->job);
    PLIM_TRY(add_system(out, &c, err));
    out->context_unknown = q->job->gpu && !c.high;
    if (!q->job->gpu || !c.high)
        return PLIM_OK;
    return plim_answer_add(out,
                           (plim_serve_row){.part = "CUDA context",
                                            .low = c.low,
                                            .usual = c.usual,
                                            .high = c.high,
                                            .certainty = PLIM_ESTIMATED,
                                            .doc = "of the process"},
                           err);
}

plim_status plim_answer_say(plim_serve_answer *out, plim_err *err, const char *fmt, ...)
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

plim_serve_row plim_answer_total(const plim_serve_answer *out, plim_serve_place place)
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
    plim_assert(sum.low <= sum.usual && sum.usual <= sum.high);
    return sum;
}

/* ---- the verdict ------------------------------------------------------------------------ */

bool plim_answer_holds(const plim_serve_question *q, const plim_serve_answer *out, int bound)
{
    plim_assert(!out->pool ||
                (out->requests_low <= out->requests && out->requests <= out->requests_high));
    plim_assert(bound >= 0 && bound <= 2 && q->job->gpu);
    const plim_serve_row sum = plim_answer_total(out, PLIM_ON_CARD);
    const uint64_t bytes[] = {sum.low, sum.usual, sum.high};
    const double room[] = {out->requests_high, out->requests, out->requests_low};
    if (bound == 2 && sum.certainty == PLIM_UNKNOWN_BYTES) /* the bound is none */
        return false;
    return bytes[bound] <= q->job->gpu->memory_bytes &&
           (!out->pool || room[bound] >= (double)q->concurrency);
}

static plim_fits counted_fits(const plim_serve_question *q, const plim_serve_answer *out)
{
    return !q->job->gpu ? PLIM_FITS_NO_CARD
           : plim_answer_holds(q, out, 2)
               ? (out->context_unknown ? PLIM_FITS_MAYBE : PLIM_FITS_YES)
           : plim_answer_holds(q, out, 0) ? PLIM_FITS_MAYBE
                                          : PLIM_FITS_NO;
}

plim_fits plim_answer_fits(const plim_serve_question *q, const plim_serve_answer *out)
{
    return plim_fit_counted(counted_fits(q, out), !plim_question_whole(q));
}
