/* fit.c -- see fit.h.
 *
 * A batch fits when the run, simulated on what the card leaves beside its
 * context, never is out of memory.  Most answers come without that simulation:
 * on a card without bound the same run reserves `reserved` and has `allocated`
 * in use at most, so it fits wherever the first fits and nowhere that the second
 * does not; between them the allocator gives cached memory back and tries again,
 * which only a simulation on exactly that card can tell. */
#include "fit/fit.h"

void plim_fit_bounds(const plim_job *job, plim_conv_ws *low, plim_conv_ws *high)
{
    bool bounds = job->conv_ws == PLIM_CONV_WS_USUAL;
    *low = bounds ? PLIM_CONV_WS_LOW : job->conv_ws;
    *high = bounds ? PLIM_CONV_WS_HIGH : job->conv_ws;
}

plim_status plim_fit_simulate(const plim_job *job, const plim_tape *t, uint64_t context,
                              bool bounded, unsigned what, plim_arena *a, plim_sim *out,
                              plim_err *err)
{
    plim_alloc_options o = job->alloc;
    if (bounded && job->gpu) {
        uint64_t total = job->gpu->memory_bytes;
        o.total = total;
        o.capacity = total > context ? total - context : 1; /* 0 would be: no limit */
    }
    return plim_sim_run(a, t, &o, what, out, err);
}

plim_status plim_fit_batch(const plim_job *job, int64_t batch, plim_conv_ws ws,
                           uint64_t context, bool bounded, plim_sim *out, bool *huge,
                           plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    plim_tape t;
    plim_err why = PLIM_ERR_INIT;
    plim_status st = plim_job_graph(job, batch, &a, &g, &why);
    if (!st)
        st = plim_job_tape(job, &g, ws, &a, &t, NULL, &why);
    if (!st)
        st = plim_fit_simulate(job, &t, context, bounded, PLIM_SIM_STOP_AT_OOM, &a, out, &why);
    plim_arena_free(&a);
    out->oom_text = (plim_str){NULL, 0}; /* it lived there */
    if (huge)
        *huge = st == PLIM_ERANGE;
    if (!st || (huge && *huge))
        return PLIM_OK;
    return plim_fail(err, why.code, why.at, "%s", why.msg);
}

/* ---- what a batch needs without bound, remembered ------------------------------ */

/* Cards on which every request is the same. */
typedef struct class_key {
    int cc, sms;
} class_key;

typedef struct point {
    class_key on;
    int64_t batch;
    uint64_t reserved, allocated; /* UINT64_MAX: too large to be counted */
} point;

struct plim_fit_search {
    plim_arena *arena;
    plim_job *job;
    plim_conv_ws low, high;
    point *points; /* of the upper bound */
    uint32_t n, cap;
};

plim_fit_search *plim_fit_search_new(plim_arena *a, plim_job *job)
{
    plim_fit_search *s = PLIM_NEW(a, plim_fit_search);
    if (!s)
        return NULL;
    s->arena = a;
    s->job = job;
    plim_fit_bounds(job, &s->low, &s->high);
    return s;
}

static class_key class_of(const plim_gpu *g) { return (class_key){g->cc, g->sms}; }

static plim_status unbounded(plim_fit_search *s, int64_t batch, const point **out,
                             plim_err *err)
{
    class_key key = class_of(s->job->gpu);
    for (uint32_t i = 0; i < s->n; i++) {
        const point *p = &s->points[i];
        if (p->batch == batch && p->on.cc == key.cc && p->on.sms == key.sms) {
            *out = p;
            return PLIM_OK;
        }
    }
    plim_sim sim;
    bool huge;
    plim_status st = plim_fit_batch(s->job, batch, s->high, 0, false, &sim, &huge, err);
    if (st)
        return st;
    if (!PLIM_PUSH_ROOM(s->arena, s->points, s->n, s->cap))
        return plim_oom(err);
    s->points[s->n] = (point){key, batch, huge ? UINT64_MAX : sim.peak_reserved,
                              huge ? UINT64_MAX : sim.peak_allocated};
    *out = &s->points[s->n++];
    return PLIM_OK;
}

/* ---- the search ------------------------------------------------------------------ */

typedef struct answer {
    bool fits;
    uint64_t reserved; /* what it takes there; without bound where it does not fit */
} answer;

static plim_status try_batch(plim_fit_search *s, int64_t batch, uint64_t context, answer *out,
                             plim_err *err)
{
    uint64_t total = s->job->gpu->memory_bytes, room = total > context ? total - context : 0;
    const point *p = NULL;
    plim_status st = unbounded(s, batch, &p, err);
    if (st)
        return st;
    *out = (answer){p->reserved <= room, p->reserved};
    if (out->fits || p->allocated > room)
        return PLIM_OK;
    plim_sim sim;
    bool huge;
    st = plim_fit_batch(s->job, batch, s->high, context, true, &sim, &huge, err);
    if (!st && !huge && !sim.oom)
        *out = (answer){true, sim.peak_reserved};
    return st;
}

/* Memory is nearly a straight line over the batch: the line through the two
 * points that lie closest around `room`, or the two last ones below it. */
static int64_t guess(const plim_fit_search *s, uint64_t room)
{
    const point *a = NULL, *b = NULL; /* a below b */
    for (uint32_t i = 0; i < s->n; i++) {
        const point *p = &s->points[i];
        if (p->reserved <= room && (!a || p->reserved > a->reserved))
            a = p;
        if (p->reserved > room && p->reserved != UINT64_MAX &&
            (!b || p->reserved < b->reserved))
            b = p;
    }
    for (uint32_t i = 0; a && !b && i < s->n; i++) /* none above: another one below */
        if (s->points[i].batch < a->batch && (!b || s->points[i].batch > b->batch))
            b = &s->points[i];
    if (!a || !b || a->batch == b->batch || a->reserved == b->reserved)
        return a ? a->batch * 2 : 1;
    double slope = ((double)b->reserved - (double)a->reserved) / (double)(b->batch - a->batch);
    double at = (double)a->batch + ((double)room - (double)a->reserved) / slope;
    if (!(at > 1.0))
        return 1;
    return at < (double)PLIM_FIT_MAX_BATCH ? (int64_t)at : PLIM_FIT_MAX_BATCH;
}

/* Between lo, which fits, and hi, which does not: from where the line points
 * outwards in doubling steps until both are near, then by halves. */
static plim_status search(plim_fit_search *s, uint64_t context, int64_t *lo, answer *at_lo,
                          int64_t *hi, plim_err *err)
{
    uint64_t total = s->job->gpu->memory_bytes;
    int64_t at = guess(s, total > context ? total - context : 0), stride = 1;
    bool up = false, down = false;
    while (*hi - *lo > 1) {
        answer a;
        at = PLIM_MAX(*lo + 1, PLIM_MIN(at, *hi - 1));
        plim_status st = try_batch(s, at, context, &a, err);
        if (st)
            return st;
        if (a.fits) {
            *lo = at;
            *at_lo = a;
            up = true;
        } else {
            *hi = at;
            down = true;
        }
        at = up && down ? *lo + (*hi - *lo) / 2 : up ? *lo + stride : *hi - stride;
        stride *= 2;
    }
    return PLIM_OK;
}

/* The lower end of what the device gives: no cuDNN workspace, lowest context. */
static plim_status low_end(const plim_fit_search *s, int64_t batch, uint64_t context,
                           uint64_t *out, plim_err *err)
{
    plim_sim sim;
    bool huge;
    plim_status st = plim_fit_batch(s->job, batch, s->low, 0, false, &sim, &huge, err);
    if (!st)
        *out = huge ? UINT64_MAX : sim.peak_reserved + context;
    return st;
}

plim_status plim_fit_card(plim_fit_search *s, const plim_gpu *gpu, plim_fit_row *row,
                          plim_err *err)
{
    uint64_t low, high;
    answer at = {false, 0};
    int64_t lo = 0, hi = 2;
    plim_job_on(s->job, gpu);
    plim_gpu_context(gpu, s->job->step.torch->version, &low, &high);
    *row = (plim_fit_row){.gpu = gpu->name,
                          .gpu_bytes = gpu->memory_bytes,
                          .gpu_exact = gpu->memory_kind == PLIM_GPU_DRIVER ||
                                       gpu->memory_kind == PLIM_GPU_GIVEN,
                          .context_known = high > 0};
    plim_status st = try_batch(s, 1, high, &at, err);
    if (!st && at.fits) {
        lo = 1;
        hi = PLIM_FIT_MAX_BATCH + 1;
        st = search(s, high, &lo, &at, &hi, err);
    }
    if (st)
        return st;
    row->batch = lo;
    row->limited = lo == PLIM_FIT_MAX_BATCH;
    row->reserved = at.reserved;
    row->device_high = at.reserved > UINT64_MAX - high ? UINT64_MAX : at.reserved + high;
    return low_end(s, PLIM_MAX(lo, 1), low, &row->device_low, err);
}
