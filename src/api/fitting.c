/* fitting.c -- plim_fit_run, plim_batches_run, plim_segments_run: one model, simulated with
 * many batches or numbers of segments. */
#include "api/api.h"
#include "core/region.h"
#include "fit/fit.h"
#include "job/together.h"

typedef struct fit_result {
    plim_fit pub;
    plim_arena arena;
} fit_result;

typedef struct batches_result {
    plim_batches pub;
    plim_arena arena;
} batches_result;

typedef struct segments_result {
    plim_segments pub;
    plim_arena arena;
} segments_result;

/* Builds the model at this batch, for what does not depend on the batch; fails if the batch
 * cannot be changed. */
static plim_status read_model_info(const plim_job *job, int64_t batch, plim_arena *a,
                                   plim_graph *g, const plim_model_info **out, plim_err *err)
{
    plim_status st = plim_job_graph(job, batch, job->scratch, g, err);
    if (!st)
        st = plim_job_note(job, g, err);
    if (!st)
        st = plim__model_info(a, g, out, err);
    if (!st && g->sizes.batch_fixed)
        st = plim_fail(err, PLIM_EUNSUPPORTED, 0,
                       "'%s' was exported with a fixed batch size of %" PRId64
                       ": export it again with a dynamic batch dimension",
                       (*out)->name, g->sizes.batch);
    if (!st && !g->sizes.batch)
        st = plim_fail(err, PLIM_EUNSUPPORTED, 0, "'%s' has no batch dimension", (*out)->name);
    return st;
}

/* The same for a model whose sequence length can be changed. */
static plim_status read_seq_info(const plim_job *job, plim_arena *a, plim_graph *g,
                                 const plim_model_info **out, plim_err *err)
{
    plim_graph shortest;
    plim_status st = plim_job_graph(job, 1, job->scratch, &shortest, err);
    if (!st)
        st = plim_job_graph(job, 0, job->scratch, g, err);
    if (!st)
        st = plim_job_note(job, g, err);
    if (!st)
        st = plim__model_info(a, g, out, err);
    if (!st && shortest.sizes.seq != 1 && shortest.sizes.seq == g->sizes.seq)
        st = plim_fail(err, PLIM_EUNSUPPORTED, 0, "'%s' has no sequence length to search for",
                       (*out)->name);
    return st;
}

/* ---- fit --------------------------------------------------------------------- */

plim_status plim__list_cards(plim_job *job, plim_arena *a, const plim_gpu ***out, uint32_t *n,
                             plim_err *err)
{
    const plim_settings *s = job->settings;
    *n = 1;
    if (s->gpu || !s->vram)
        PLIM_TRY(plim_gpu_list(a, s->gpu ? s->gpu : "all", out, n, err));
    if (!s->vram)
        return PLIM_OK;
    if (*n > 1)
        return plim_fail(err, PLIM_EUSAGE, 0, "one memory size is given for %" PRIu32 " cards",
                         *n);
    PLIM_TRY(plim_job_card(job, err));
    *out = PLIM_NEW(a, const plim_gpu *);
    if (!*out)
        return plim_oom(err);
    **out = job->gpu;
    return PLIM_OK;
}

PLIM__LIST(fit_list, plim_fit_row)

static plim_status fit_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_fit *out = pub;
    const plim_gpu **cards = NULL;
    uint32_t n = 0;
    plim_graph g;
    out->size = sizeof *out;
    out->settings = job->settings;
    job->find_seq = plim_setting_is(job->settings, PLIM_SET_find, "seq");
    job->find_margin =
        job->settings->gpu || job->settings->vram ||
        (job->given && job->given->margin); /* of all cards it takes as long again */
    plim_status st = plim__list_cards(job, a, &cards, &n, err);
    if (!st)
        st = job->find_seq ? read_seq_info(job, a, &g, &out->model, err)
                           : read_model_info(job, 1, a, &g, &out->model, err);
    if (st || !cards)
        return st;
    plim_step_info info;
    plim_fit_row *rows = PLIM_NEW_N(a, plim_fit_row, n);
    if (!rows)
        return plim_oom(err);
    st = plim_fit_cards(job, cards, n, rows, &info, err);
    if (!st)
        st = plim_job_resolve(job, &g, info.loop ? &info : NULL, err);
    if (!st) /* it was searched for, not given */
        st = plim_settings_put(job->settings, job->find_seq ? PLIM_SET_seq : PLIM_SET_batch,
                               NULL, err);
    out->cards = fit_list(a, rows, n);
    out->n_cards = n;
    return st ? st : out->cards ? PLIM_OK : plim_oom(err);
}

plim_status plim_fit_run(const plim_model *m, const plim_settings *s, plim_fit **out,
                         plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(fit_result), offsetof(fit_result, arena), m, s, fit_fill,
                              &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_fit_free(plim_fit *f) { plim__result_free(f, offsetof(fit_result, arena)); }

/* ---- explain ------------------------------------------------------------------- */

static plim_status simulate_batch(const plim_job *job, int64_t batch, plim_batch_row *row,
                                  plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_peaks p;
    plim_status st = plim_fit_size(job, &scratch, batch, 0, 0, &p, err);
    plim_arena_free(&scratch);
    *row = (plim_batch_row){.batch = batch,
                            .peak_requested = p.requested,
                            .peak_allocated = p.allocated,
                            .peak_reserved = p.reserved,
                            .samples_per_s = plim_job_samples_per_s(job, batch, p.seconds)};
    return st;
}

/* The line through the two largest batches.  Small batches lie above it where the peak does
 * not depend on the batch, as in the optimizer step. */
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

enum {
    EXPLAIN_LEAST = 64, /* the largest batch of the table is at least this */
    EXPLAIN_ROWS = 64   /* the batch doubles in each row, within 64 bits */
};

PLIM__LIST(batch_list, plim_batch_row)

static plim_status batches_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_batches *out = pub;
    plim_graph g;
    out->size = sizeof *out;
    int64_t last = PLIM_MAX(job->settings->batch, EXPLAIN_LEAST);
    plim_status st = plim_job_card(job, err);
    if (!st)
        st = read_model_info(job, 1, a, &g, &out->model, err);
    plim_batch_row *rows = PLIM_NEW_N(a, plim_batch_row, EXPLAIN_ROWS);
    if (!rows)
        return plim_oom(err);
    for (int64_t batch = 1, before = 0; !st && batch > before;) {
        plim_batch_row *row = &rows[out->n_batches];
        st = plim_job_progress(job, out->n_batches, 0, "batches", err);
        if (!st)
            st = simulate_batch(job, batch, row, err);
        if (st)
            break;
        if (row->peak_requested == UINT64_MAX) /* beyond the range of the export or 64 bits */
            break;
        out->n_batches++;
        before = batch;
        batch = PLIM_MIN(batch * 2, last);
    }
    if (!st && !out->n_batches)
        st = plim_fail(err, PLIM_ERANGE, 0, "batch 1 needs more than 2^64 bytes");
    if (st)
        return st;
    draw_line(out, rows, out->n_batches);
    out->batches = batch_list(a, rows, out->n_batches);
    return out->batches ? PLIM_OK : plim_oom(err);
}

plim_status plim_batches_run(const plim_model *m, const plim_settings *s, plim_batches **out,
                             plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(batches_result), offsetof(batches_result, arena), m, s,
                              batches_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_batches_free(plim_batches *b)
{
    plim__result_free(b, offsetof(batches_result, arena));
}

/* ---- segments ------------------------------------------------------------------- */

static plim_status simulate_segments(const plim_job *job, const plim_graph *g,
                                     uint32_t segments, plim_segment_row *row, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_job one = *job;
    plim_tape t;
    plim_sim sim;
    plim_step_info info;
    one.step.checkpoint = plim_arena_printf(&scratch, "segments=%u", (unsigned)segments);
    plim_status st = one.step.checkpoint.p ? PLIM_OK : plim_oom(err);
    if (!st)
        st = plim_job_tape(&one, g, &scratch, &t, &info, err);
    if (!st)
        st = plim_fit_simulate(&one, &t, 0, 0, &scratch, &sim, err);
    if (!st) {
        row->segments = segments;
        row->peak_requested = sim.peak_requested;
        row->peak_allocated = sim.peak_allocated;
        row->peak_reserved = sim.peak_reserved;
    }
    plim_arena_free(&scratch);
    return st;
}

PLIM__LIST(segment_list, plim_segment_row)

static plim_status segments_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_segments *out = pub;
    plim_graph g;
    uint32_t best = 0;
    out->size = sizeof *out;
    plim_status st = plim_job_card(job, err);
    if (!st)
        st = plim_job_graph(job, 0, job->scratch, &g, err);
    if (!st)
        st = plim__model_info(a, &g, &out->model, err);
    if (!st)
        st = plim_regions_calls(a, &g, &out->calls, err);
    plim_segment_row *rows = st ? NULL : PLIM_NEW_N(a, plim_segment_row, out->calls);
    if (!rows)
        return st ? st : plim_oom(err);
    for (uint32_t k = 1; k <= out->calls && !st; k++) {
        uint32_t each = out->calls / k;
        if (k > 1 && k < out->calls && out->calls / (k + 1) == each)
            continue; /* more segments of the same size follow */
        plim_segment_row *row = &rows[out->n_segments];
        st = plim_job_progress(job, k - 1, out->calls, "segments", err);
        if (!st)
            st = simulate_segments(job, &g, k, row, err);
        row->calls = each;
        if (!st && row->peak_requested < rows[best].peak_requested)
            best = out->n_segments;
        out->n_segments++;
    }
    out->best = rows[best].segments;
    out->segments = segment_list(a, rows, out->n_segments);
    return st ? st : out->segments ? PLIM_OK : plim_oom(err);
}

plim_status plim_segments_run(const plim_model *m, const plim_settings *s, plim_segments **out,
                              plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(segments_result), offsetof(segments_result, arena), m, s,
                              segments_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_segments_free(plim_segments *s)
{
    plim__result_free(s, offsetof(segments_result, arena));
}
