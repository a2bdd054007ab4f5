/* fitting.c -- plim_fit_run and plim_batches_run: many batches of one model. */
#include "api/api.h"
#include "fit/fit.h"

typedef struct fit_result {
    plim_fit pub;
    plim_arena arena;
} fit_result;

typedef struct batches_result {
    plim_batches pub;
    plim_arena arena;
} batches_result;

/* What a row says about the model does not depend on the batch. */
static plim_status info_at(const plim_job *job, int64_t batch, plim_arena *a,
                           plim_model_info *out, plim_err *err)
{
    plim_graph g;
    plim_status st = plim_job_graph(job, batch, a, &g, err);
    if (!st)
        st = plim__model_info(a, &g, out, err);
    if (!st && g.batch_fixed)
        st = plim_fail(err, PLIM_EUNSUPPORTED, 0,
                       "'%s' holds one batch size only (%" PRId64
                       "): export it again with a dynamic batch dimension",
                       out->name, g.batch);
    if (!st && !g.batch)
        st = plim_fail(err, PLIM_EUNSUPPORTED, 0, "'%s' has no batch dimension", out->name);
    return st;
}

/* ---- fit --------------------------------------------------------------------- */

static plim_str next_name(const char **rest)
{
    size_t n = strcspn(*rest, ",");
    plim_str s = {*rest, n};
    *rest += n + ((*rest)[n] == ',');
    return s;
}

/* "rtx4090,a100", "all", or NULL for the card of the settings. */
static plim_status cards(const plim_job *job, const char *names, plim_arena *a,
                         const plim_gpu ***out, uint32_t *n, plim_err *err)
{
    const plim_gpu **list = NULL;
    uint32_t cap = 0;
    bool all = names && !strcmp(names, "all");
    for (uint32_t i = 0; all && i < plim_gpu_count(); i++) {
        if (!PLIM_PUSH_ROOM(a, list, *n, cap))
            return plim_oom(err);
        list[(*n)++] = plim_gpu_at(i);
    }
    for (const char *rest = names; !all && rest && *rest;) {
        plim_str name = next_name(&rest);
        if (!name.n)
            return plim_fail(err, PLIM_EUSAGE, 0, "an empty name in the list of cards '%s'",
                             names);
        if (!PLIM_PUSH_ROOM(a, list, *n, cap))
            return plim_oom(err);
        plim_status st = plim_gpu_find(name, &list[*n], err);
        if (st)
            return st;
        ++*n;
    }
    if (!names && job->gpu) {
        if (!PLIM_PUSH_ROOM(a, list, *n, cap))
            return plim_oom(err);
        list[(*n)++] = job->gpu;
    }
    *out = list;
    return list ? PLIM_OK : plim_fail(err, PLIM_EUSAGE, 0, "no card is named");
}

static plim_status fill_fit(plim_job *job, const char *names, plim_arena *a, plim_fit *out,
                            plim_err *err)
{
    const plim_gpu **list = NULL;
    uint32_t n = 0;
    plim_status st = cards(job, names, a, &list, &n, err);
    if (!st)
        st = info_at(job, 1, a, &out->model, err);
    if (st || !list)
        return st;
    plim_fit_search *search = plim_fit_search_new(a, job);
    plim_fit_row *rows = PLIM_NEW_N(a, plim_fit_row, n);
    if (!search || !rows)
        return plim_oom(err);
    for (uint32_t i = 0; i < n && !st; i++)
        st = plim_fit_card(search, list[i], &rows[i], err);
    plim_fit_search_free(search);
    out->rows = rows;
    out->n = n;
    return st;
}

plim_status plim_fit_run(const char *model, const plim_settings *s, const char *gpus,
                         plim_fit **out, plim_err *err)
{
    fit_result *r = plim__result_new(sizeof *r, offsetof(fit_result, arena));
    plim_job job = {0};
    if (!r)
        return plim_oom(err);
    plim_status st = plim_job_open(&job, &r->arena, model, s, err);
    if (!st)
        st = fill_fit(&job, gpus, &r->arena, &r->pub, err);
    plim_job_close(&job);
    if (st)
        plim_fit_free(&r->pub);
    else
        *out = &r->pub;
    return st;
}

void plim_fit_free(plim_fit *f) { plim__result_free(f, offsetof(fit_result, arena)); }

/* ---- explain ------------------------------------------------------------------- */

static plim_status batch_row(const plim_job *job, int64_t batch, plim_batch_row *row,
                             plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_peaks p;
    plim_status st = plim_fit_batch(job, &scratch, batch, 0, 0, false, &p, err);
    plim_arena_free(&scratch);
    *row = (plim_batch_row){.batch = batch,
                            .peak_requested = p.requested,
                            .peak_allocated = p.allocated,
                            .peak_reserved = p.reserved};
    return st;
}

/* The line through the two largest batches; below the batch where something
 * fixed takes over (an optimizer's step) the truth lies above it. */
static void draw_line(plim_batches *b, plim_batch_row *rows, uint32_t n)
{
    const plim_batch_row *q = &rows[n - 1], *p = n > 1 ? q - 1 : q;
    if (q->peak_requested > p->peak_requested)
        b->per_sample =
            (q->peak_requested - p->peak_requested) / (uint64_t)(q->batch - p->batch);
    uint64_t grown = b->per_sample * (uint64_t)q->batch;
    b->fixed = q->peak_requested > grown ? q->peak_requested - grown : 0;
    for (uint32_t i = 0; i < n; i++)
        rows[i].line = b->fixed + b->per_sample * (uint64_t)rows[i].batch;
}

enum { EXPLAIN_LEAST = 64, EXPLAIN_ROWS = 64 };

static plim_status fill_batches(const plim_job *job, plim_arena *a, plim_batches *out,
                                plim_err *err)
{
    int64_t last = PLIM_MAX(job->given->batch, EXPLAIN_LEAST);
    plim_status st = info_at(job, 1, a, &out->model, err);
    plim_batch_row *rows = PLIM_NEW_N(a, plim_batch_row, EXPLAIN_ROWS);
    if (!rows)
        return plim_oom(err);
    for (int64_t batch = 1, before = 0; !st && batch > before;) {
        plim_batch_row *row = &rows[out->n];
        st = batch_row(job, batch, row, err);
        if (row->peak_requested == UINT64_MAX) /* the export, or 64 bits, end below it */
            break;
        out->n++;
        before = batch;
        batch = PLIM_MIN(batch * 2, last);
    }
    if (!st && !out->n)
        st = plim_fail(err, PLIM_ERANGE, 0, "batch 1 takes more than 2^64 bytes");
    if (st)
        return st;
    draw_line(out, rows, out->n);
    out->rows = rows;
    return PLIM_OK;
}

plim_status plim_batches_run(const char *model, const plim_settings *s, plim_batches **out,
                             plim_err *err)
{
    batches_result *r = plim__result_new(sizeof *r, offsetof(batches_result, arena));
    plim_job job = {0};
    if (!r)
        return plim_oom(err);
    plim_status st = plim_job_open(&job, &r->arena, model, s, err);
    if (!st)
        st = fill_batches(&job, &r->arena, &r->pub, err);
    plim_job_close(&job);
    if (st)
        plim_batches_free(&r->pub);
    else
        *out = &r->pub;
    return st;
}

void plim_batches_free(plim_batches *b)
{
    plim__result_free(b, offsetof(batches_result, arena));
}
