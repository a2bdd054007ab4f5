/* fit.c -- see fit.h.
 *
 * A batch fits if the simulated run never runs out of memory on the card's
 * capacity less the CUDA context.  A simulation without a limit would not tell:
 * near the limit the allocator frees cached segments and retries, so a run fits
 * on less than it would reserve on a card of unlimited size. */
#include "fit/fit.h"

static uint64_t compute_room(const plim_gpu *gpu, uint64_t context)
{
    return gpu->memory_bytes > context ? gpu->memory_bytes - context : 0;
}

plim_status plim_fit_simulate(const plim_job *job, const plim_tape *t, uint64_t context,
                              bool bounded, unsigned what, plim_arena *a, plim_sim *out,
                              plim_err *err)
{
    plim_alloc_options o = job->alloc;
    if (bounded && job->gpu) {
        o.total = job->gpu->memory_bytes;
        o.capacity = PLIM_MAX(compute_room(job->gpu, context), 1); /* 0 means no limit */
    }
    return plim_sim_run(a, t, &o, what, out, err);
}

plim_status plim_fit_batch(const plim_job *job, plim_arena *scratch, int64_t batch,
                           unsigned what, uint64_t context, bool bounded, plim_peaks *out,
                           plim_err *err)
{
    plim_graph g;
    plim_tape t;
    plim_sim sim;
    plim_step_info info;
    plim_err why = PLIM_ERR_INIT;
    plim_arena_reset(scratch);
    *out = (plim_peaks){0};
    plim_status st = plim_job_graph(job, batch, scratch, &g, &why);
    out->refused = st == PLIM_ERANGE;
    if (!st)
        st = plim_job_tape(job, &g, scratch, &t, &info, &why);
    if (!st)
        st = plim_fit_simulate(job, &t, context, bounded, what | PLIM_SIM_STOP_AT_OOM, scratch,
                               &sim, &why);
    if (st == PLIM_ERANGE) { /* sizes beyond 64 bits do not fit any card */
        out->oom = true;
        out->requested = out->allocated = out->reserved = UINT64_MAX;
        return PLIM_OK;
    }
    if (st)
        return plim_fail(err, why.code, why.at, "%s", why.msg);
    *out = (plim_peaks){.requested = sim.peak_requested,
                        .allocated = sim.peak_allocated,
                        .reserved = sim.peak_reserved,
                        .oom = sim.oom,
                        .sms_matter = info.sms_matter};
    return PLIM_OK;
}

/* ---- the search ------------------------------------------------------------------ */

/* A card whose row is known. */
typedef struct solved {
    int cc, sms;
    bool sms_matter; /* any run of the search depends on the number of SMs */
    uint64_t bytes, room;
    plim_fit_row row;
} solved;

struct plim_fit_search {
    plim_arena *arena;
    plim_arena scratch;
    plim_job *job;
    solved *done;
    uint32_t n, cap;
    bool sms_matter;          /* in the current search */
    bool drawn;               /* the line below is known */
    double fixed, per_sample; /* bytes = fixed + per_sample * batch */
};

plim_fit_search *plim_fit_search_new(plim_arena *a, plim_job *job)
{
    plim_fit_search *s = PLIM_NEW(a, plim_fit_search);
    if (!s)
        return NULL;
    s->arena = a;
    s->job = job;
    return s;
}

void plim_fit_search_free(plim_fit_search *s)
{
    if (s)
        plim_arena_free(&s->scratch);
}

static plim_status try_batch(plim_fit_search *s, int64_t batch, unsigned what,
                             uint64_t context, bool bounded, plim_peaks *out, plim_err *err)
{
    plim_status st =
        plim_fit_batch(s->job, &s->scratch, batch, what, context, bounded, out, err);
    s->sms_matter |= out->sms_matter;
    return st;
}

/* Memory grows almost linearly with the batch.  The line goes through two batches
 * that need some gigabytes, on a card of unlimited size.  It depends only on the
 * model and the settings, so that the row of a card does not depend on the other
 * cards of the list. */
static plim_status draw_line(plim_fit_search *s, plim_err *err)
{
    enum { ENOUGH = 32, GROWTH = 4 };
    const uint64_t large = 8ull << 30; /* bytes */
    const plim_gpu *gpu = s->job->gpu;
    plim_status st = PLIM_OK;
    int64_t batch = 1;
    plim_peaks p = {0}, q = {0};
    plim_job_use_card(s->job, NULL);
    for (; !st && batch < PLIM_FIT_MAX_BATCH && (batch <= ENOUGH || q.allocated < large);
         batch *= GROWTH) {
        p = q;
        st = try_batch(s, batch, PLIM_SIM_HIGH, 0, false, &q, err);
    }
    plim_job_use_card(s->job, gpu);
    int64_t last = batch / GROWTH, before = last / GROWTH;
    if (q.allocated != UINT64_MAX && q.allocated > p.allocated)
        s->per_sample = (double)(q.allocated - p.allocated) / (double)(last - before);
    s->fixed = (double)q.allocated - s->per_sample * (double)last;
    s->drawn = true;
    return st;
}

static int64_t guess_batch(const plim_fit_search *s, uint64_t room)
{
    double at = s->per_sample > 0 ? ((double)room - s->fixed) / s->per_sample : 1;
    return !(at > 1.0)                       ? 1
           : at < (double)PLIM_FIT_MAX_BATCH ? (int64_t)at
                                             : PLIM_FIT_MAX_BATCH;
}

/* Narrows *lo, which fits, and *hi, which does not, until they are neighbours: in
 * doubling steps from the guess until the limit lies between two tries, then by
 * bisection. */
static plim_status search_batch(plim_fit_search *s, uint64_t context, int64_t *lo,
                                uint64_t *reserved, int64_t *hi, bool *refused, plim_err *err)
{
    int64_t at = guess_batch(s, compute_room(s->job->gpu, context)), stride = 1;
    bool up = false, down = false;
    while (*hi - *lo > 1) {
        plim_peaks p;
        at = PLIM_MAX(*lo + 1, PLIM_MIN(at, *hi - 1));
        plim_status st = try_batch(s, at, PLIM_SIM_HIGH, context, true, &p, err);
        if (st)
            return st;
        if (p.oom) {
            *hi = at;
            *refused = p.refused;
            down = true;
        } else {
            *lo = at;
            *reserved = p.reserved;
            up = true;
        }
        at = up && down ? *lo + (*hi - *lo) / 2 : up ? *lo + stride : *hi - stride;
        stride *= 2;
    }
    return PLIM_OK;
}

/* The bytes on the device at the batch that was found, or at batch 1 if none was. */
static plim_status measure_device(plim_fit_search *s, uint64_t low, uint64_t high,
                                  plim_fit_row *row, plim_err *err)
{
    plim_peaks p;
    bool bounded = row->batch > 0;
    int64_t batch = PLIM_MAX(row->batch, 1);
    plim_status st = PLIM_OK;
    if (!bounded && !(st = try_batch(s, batch, PLIM_SIM_HIGH, 0, false, &p, err)))
        row->reserved = p.reserved;
    row->device_high = plim_sat_add(row->reserved, high);
    if (!st)
        st = try_batch(s, batch, PLIM_SIM_LOW, high, bounded, &p, err);
    if (!st) /* smaller workspaces can fragment more: takes the lower of both */
        row->device_low =
            plim_sat_add(p.oom ? row->reserved : PLIM_MIN(p.reserved, row->reserved), low);
    return st;
}

static const solved *find_solved(const plim_fit_search *s, const plim_gpu *gpu, uint64_t room)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const solved *p = &s->done[i];
        if (p->cc == gpu->cc && p->room == room && p->bytes == gpu->memory_bytes &&
            (p->sms == gpu->sms || !p->sms_matter))
            return p;
    }
    return NULL;
}

plim_status plim_fit_card(plim_fit_search *s, const plim_gpu *gpu, plim_fit_row *row,
                          plim_err *err)
{
    uint64_t low, high;
    int64_t lo = 0, hi = PLIM_FIT_MAX_BATCH + 1;
    bool refused = false;
    plim_job_use_card(s->job, gpu);
    plim_gpu_context(gpu, s->job->step.torch->version, &low, &high);
    *row = (plim_fit_row){.gpu_bytes = gpu->memory_bytes};
    const solved *known = find_solved(s, gpu, compute_room(gpu, high));
    if (known)
        *row = known->row;
    row->gpu = gpu->name;
    row->gpu_exact = gpu->memory_kind == PLIM_GPU_DRIVER || gpu->memory_kind == PLIM_GPU_GIVEN;
    row->context_known = high > 0;
    if (known)
        return PLIM_OK;
    plim_status st = s->drawn ? PLIM_OK : draw_line(s, err);
    s->sms_matter = false;
    if (!st)
        st = search_batch(s, high, &lo, &row->reserved, &hi, &refused, err);
    row->batch = lo;
    row->limited = lo == PLIM_FIT_MAX_BATCH || refused;
    if (!st)
        st = measure_device(s, low, high, row, err);
    if (st)
        return st;
    if (!PLIM_PUSH_ROOM(s->arena, s->done, s->n, s->cap))
        return plim_oom(err);
    s->done[s->n++] = (solved){
        gpu->cc, gpu->sms, s->sms_matter, gpu->memory_bytes, compute_room(gpu, high), *row};
    return PLIM_OK;
}
