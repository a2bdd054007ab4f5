/* fit.c -- see fit.h.
 *
 * A size fits if the simulated run never runs out of memory on the card's
 * capacity less the CUDA context.  A simulation without a limit would not tell:
 * near the limit the allocator frees cached segments and retries, so a run fits
 * on less than it would reserve on a card of unlimited size. */
#include "fit/fit.h"

#include "fit/facts.h"
#include "time/time.h"

plim_status plim_fit_bounds(const plim_job *job, plim_arena *scratch, int64_t size,
                            const unsigned *what, uint32_t n, uint64_t room, plim_peaks *out,
                            plim_err *err)
{
    plim_assert(n > 0 && size >= 0);
    plim_graph g;
    plim_tape t;
    plim_step_info info;
    plim_err why = PLIM_ERR_INIT;
    plim_arena_reset(scratch);
    plim_status st = plim_job_graph(job, size, scratch, &g, &why);
    bool refused = st == PLIM_ERANGE;
    if (!st)
        st = plim_job_tape(job, &g, scratch, &t, &info, &why);
    for (uint32_t i = 0; i < n && !st; i++) {
        plim_sim sim;
        st = plim_fit_simulate(job, &t, room, what[i] | PLIM_SIM_STOP_AT_OOM, scratch, &sim,
                               &why);
        if (!st)
            out[i] = (plim_peaks){
                .requested = sim.peak_requested,
                .allocated = sim.peak_allocated,
                .reserved = sim.peak_reserved,
                .oom = sim.oom,
                .seconds = plim_time_of(&info.ledger, job->gpu, !job->step.infer).usual};
    }
    if (st && st != PLIM_ERANGE)
        return plim_fail(err, why.code, why.at, "%s", why.msg);
    for (uint32_t i = 0; i < n && st; i++) /* sizes beyond 64 bits do not fit any card */
        out[i] = (plim_peaks){.requested = UINT64_MAX,
                              .allocated = UINT64_MAX,
                              .reserved = UINT64_MAX,
                              .oom = true,
                              .refused = refused};
    return PLIM_OK;
}

plim_status plim_fit_size(const plim_job *job, plim_arena *scratch, int64_t size,
                          unsigned what, uint64_t room, plim_peaks *out, plim_err *err)
{
    *out = (plim_peaks){0};
    return plim_fit_bounds(job, scratch, size, &what, 1, room, out, err);
}

/* ---- the search ------------------------------------------------------------------ */

/* A run of the step at one size. */
typedef struct size_run {
    plim_arena arena;
    plim_graph g;
    plim_tape t;
    plim_step_info info;
    int64_t size; /* 0: none */
    plim_world world;
    plim_simulated high;
} size_run;

struct plim_fit_search {
    plim_arena scratch;
    plim_job *job;
    plim_facts facts;
    size_run runs[2], *kept, *next; /* the one that fitted last, and room for another */
    plim_asked asked;               /* by the runs of the current search */
    plim_step_info info;            /* of the last run */
    uint64_t n_events;              /* of all runs, for tests */
    bool drawn;                     /* the lines below are known */
    struct fit_line {
        double fixed, per_unit; /* bytes = fixed + per_unit * size */
    } usual, high;              /* by the size of what is estimated */
    int64_t batch;              /* of the last run at a size that was found */
};

plim_fit_search *plim_fit_search_new(plim_arena *a, plim_job *job)
{
    plim_fit_search *s = PLIM_NEW(a, plim_fit_search);
    if (!s)
        return NULL;
    s->facts.arena = a;
    s->job = job;
    s->kept = &s->runs[0];
    s->next = &s->runs[1];
    return s;
}

void plim_fit_search_free(plim_fit_search *s)
{
    if (!s)
        return;
    plim_arena_free(&s->scratch);
    plim_arena_free(&s->runs[0].arena);
    plim_arena_free(&s->runs[1].arena);
}

/* What fits is asked of one bound: the size of what is estimated, and what the card leaves. */
typedef struct fit_bound {
    unsigned what; /* 0 or PLIM_SIM_HIGH */
    uint64_t room;
    bool measured; /* the largest that fits will be, so its run is kept */
} fit_bound;

/* A run that an allocator serves while it is made, so that it ends where memory does. */
typedef struct served_run {
    plim_sim_follower *sim;
    bool timed; /* it may be the one that is measured */
    bool oom;
    plim_status st;
} served_run;

static bool is_over(void *ud)
{
    served_run *v = ud;
    v->st = plim_sim_catch_up(v->sim, &v->oom);
    return v->st || v->oom;
}

/* Runs the step in s->next, as far as it is served; NULL: all of it.  *refused: the model does not take
 * this size. */
static plim_status run_size(plim_fit_search *s, int64_t size, served_run *served,
                            bool *refused, plim_err *err)
{
    plim_assert(size > 0);
    size_run *r = s->next;
    plim_job job = *s->job;
    job.step.ends = served ? is_over : NULL;
    job.step.ends_ud = served;
    job.step.untimed = served && !served->timed;
    plim_arena_reset(&r->arena);
    r->size = 0;
    r->high.room = 0;
    plim_tape_init(&r->t, &r->arena);
    plim_status st = plim_job_graph(&job, size, &r->arena, &r->g, err);
    *refused = st == PLIM_ERANGE;
    if (!st) {
        s->job->bind.values = r->g.n_values;
        st = plim_job_tape(&job, &r->g, &r->arena, &r->t, &r->info, err);
    }
    s->n_events += r->t.n_events;
    if (st)
        return st;
    r->size = size;
    r->world = s->job->step.world;
    return PLIM_OK;
}

static void keep_run(plim_fit_search *s)
{
    size_run *r = s->kept;
    s->kept = s->next;
    s->next = r;
}

/* What the run in s->next has live at once is too much for less room: of sizes beyond 64 bits, for any. */
static bool note_live(plim_fit_search *s, const plim_fact *fact, bool measured)
{
    plim_assert(!fact->fits || measured);
    static const unsigned bounds[] = {0, PLIM_SIM_HIGH};
    plim_fact live = *fact;
    bool added = true;
    live.fits = false;
    for (size_t i = 0; i < PLIM_COUNT(bounds) && added; i++) {
        const plim_bound b = plim_sim_bound(bounds[i]);
        live.what = bounds[i];
        live.rooms =
            (plim_rooms){0, measured ? plim_tape_live_most(&s->next->t, b) : UINT64_MAX};
        added = plim_facts_add(&s->facts, &live);
    }
    return added;
}

/* Runs the step, served by this allocator, in s->next.  Fills in the fact, of which the size and the bound
 * are given, and notes what is live at once; *sim is valid until the next run. */
static plim_status serve_run(plim_fit_search *s, const plim_alloc_options *o, bool timed,
                             plim_fact *fact, const plim_sim **sim, plim_err *err)
{
    served_run served = {.timed = timed};
    plim_arena_reset(&s->scratch);
    plim_status st =
        plim_sim_follow(&s->scratch, &s->next->t, o, fact->what, &served.sim, err);
    if (!st)
        st = run_size(s, fact->size, &served, &fact->refused, err);
    fact->fits = !st && !is_over(&served); /* what is freed last is served, too */
    if (served.st || (st && st != PLIM_ERANGE))
        return served.st ? served.st : st;
    const bool measured = fact->fits || served.oom;
    fact->world = s->job->step.world;
    fact->asked = measured ? s->next->info.asked : plim_asked_all(&fact->world);
    *sim = plim_sim_followed(served.sim);
    fact->rooms = (*sim)->alike;
    return note_live(s, fact, measured) ? PLIM_OK : plim_oom(err);
}

/* Whether a size fits, by a run. */
static plim_status run_bound(plim_fit_search *s, fit_bound bound, plim_fact *fact,
                             plim_err *err)
{
    const plim_alloc_options o = plim_fit_allocator(s->job, bound.room, bound.what);
    const plim_sim *sim;
    plim_err why = PLIM_ERR_INIT;
    plim_status st = serve_run(s, &o, bound.measured, fact, &sim, &why);
    if (st)
        return plim_fail(err, why.code, why.at, "%s", why.msg);
    if (!plim_facts_add(&s->facts, fact))
        return plim_oom(err);
    if (fact->fits && bound.measured) {
        s->next->high = (plim_simulated){bound.room, *sim};
        keep_run(s);
    }
    return PLIM_OK;
}

/* The same, by what is known of it, if anything is. */
static plim_status try_size(plim_fit_search *s, int64_t size, fit_bound bound, bool *fits,
                            bool *refused, plim_err *err)
{
    const plim_fact *known =
        plim_facts_find(&s->facts, &s->job->step.world, size, bound.what, bound.room);
    plim_fact fact = known ? *known : (plim_fact){.size = size, .what = bound.what};
    PLIM_TRY(known ? PLIM_OK : run_bound(s, bound, &fact, err));
    plim_asked_add(&s->asked, &fact.asked);
    *refused = fact.refused;
    *fits = fact.fits;
    return PLIM_OK;
}

/* Does half of the size, or less, need more than the room already?  Twice the size never needs less.
 * The half is a power of two, and run with more room: other cards ask of it, too. */
static plim_status try_half(plim_fit_search *s, int64_t size, fit_bound bound, bool *exceeds,
                            plim_err *err)
{
    const plim_world *world = &s->job->step.world;
    plim_alloc_options live = {.capacity = plim_sat_mul(bound.room, 4)};
    plim_fact fact = {.size = 1, .what = bound.what};
    while (fact.size <= size / 4)
        fact.size *= 2;
    plim_assert(fact.size <= PLIM_MAX(size / 2, 1));
    const plim_fact *known = plim_facts_live(&s->facts, world, fact.size, bound.what);
    if (!known) {
        plim_err why = PLIM_ERR_INIT; /* of a size that nobody has asked for */
        const plim_sim *sim;
        plim_status st = plim_allocator_find(PLIM_STR("none"), &live.allocator, &why);
        if (!st)
            st = serve_run(s, &live, false, &fact, &sim, &why);
        if (st == PLIM_ENOMEM)
            return plim_oom(err);
        known = plim_facts_live(&s->facts, world, fact.size, bound.what);
    }
    *exceeds = known && fact.size <= size / 2 && bound.room < known->rooms.end;
    if (*exceeds)
        plim_asked_add(&s->asked, &known->asked);
    return PLIM_OK;
}

/* The same; after some strides the guess was far off, and a try of half the size covers many. */
static plim_status try_far(plim_fit_search *s, int64_t size, fit_bound bound, int64_t stride,
                           bool *fits, bool *refused, plim_err *err)
{
    enum { FAR = 16 };
    bool exceeds = false;
    plim_status st = stride > FAR ? try_half(s, size, bound, &exceeds, err) : PLIM_OK;
    if (st || !exceeds)
        return st ? st : try_size(s, size, bound, fits, refused, err);
    *fits = *refused = false;
    return PLIM_OK;
}

/* About the smallest room in which this size fits, from what it has live to what it would reserve. */
static plim_status find_needed(plim_fit_search *s, int64_t size, unsigned what,
                               plim_peaks without, uint64_t *needed, plim_err *err)
{
    enum { STEPS = 5 };
    uint64_t fails = without.allocated, fits = without.reserved;
    plim_status st = PLIM_OK;
    for (int i = 0; i < STEPS && !st; i++) {
        const uint64_t room = fails + (fits - fails) / 2;
        plim_peaks p;
        st = plim_fit_size(s->job, &s->scratch, size, what, room, &p, err);
        *(p.oom ? &fails : &fits) = room;
    }
    *needed = fits;
    return st;
}

static struct fit_line line_through(int64_t before, uint64_t p, int64_t last, uint64_t q)
{
    struct fit_line l = {0};
    plim_assert(before < last);
    if (q != UINT64_MAX && q > p)
        l.per_unit = (double)(q - p) / (double)(last - before);
    l.fixed = (double)q - l.per_unit * (double)last;
    return l;
}

/* Memory grows almost linearly with the size.  A line goes through two sizes that need some
 * gigabytes, on a card of unlimited size.  It depends only on the model and the settings, so
 * that the row of a card does not depend on the other cards of the list. */
static plim_status draw_lines(plim_fit_search *s, plim_err *err)
{
    enum { ENOUGH = 32, GROWTH = 4, BOUNDS = 2 };
    static const unsigned bounds[BOUNDS] = {0, PLIM_SIM_HIGH};
    struct fit_line *lines[BOUNDS] = {&s->usual, &s->high};
    const uint64_t large = 8ull << 30; /* bytes */
    const plim_gpu *gpu = s->job->gpu;
    plim_status st = PLIM_OK;
    int64_t size = 1;
    plim_peaks p[BOUNDS] = {{0}}, q[BOUNDS] = {{0}};
    plim_job_use_card(s->job, NULL);
    for (; !st && size < PLIM_FIT_MAX_SIZE && (size <= ENOUGH || q[1].allocated < large);
         size *= GROWTH) {
        memcpy(p, q, sizeof p);
        st = plim_fit_bounds(s->job, &s->scratch, size, bounds, BOUNDS, 0, q, err);
    }
    const int64_t last = size / GROWTH;
    for (int i = 0; i < BOUNDS && !st; i++) {
        uint64_t needed = q[i].allocated;
        if (needed != UINT64_MAX)
            st = find_needed(s, last, bounds[i], q[i], &needed, err);
        *lines[i] = line_through(last / GROWTH, p[i].allocated, last, needed);
    }
    plim_job_use_card(s->job, gpu);
    s->drawn = true;
    return st;
}

static int64_t guess_size(const plim_fit_search *s, fit_bound bound)
{
    const struct fit_line *l = bound.what == PLIM_SIM_HIGH ? &s->high : &s->usual;
    const uint64_t room = plim_fit_allowed(s->job, bound.room);
    double at = l->per_unit > 0 ? ((double)room - l->fixed) / l->per_unit : 1;
    return !(at > 1.0) ? 1 : at < (double)PLIM_FIT_MAX_SIZE ? (int64_t)at : PLIM_FIT_MAX_SIZE;
}

/* Narrows *lo, which fits, and *hi, which does not, until they are neighbours: in
 * doubling steps from a guess until the limit lies between two tries, then by
 * bisection. */
static plim_status search_size(plim_fit_search *s, fit_bound bound, int64_t at, int64_t *lo,
                               int64_t *hi, bool *refused, plim_err *err)
{
    plim_assert(*lo < *hi);
    int64_t stride = 1;
    bool up = false, down = false;
    while (*hi - *lo > 1) {
        bool fits = false, too_large = false;
        at = PLIM_MAX(*lo + 1, PLIM_MIN(at, *hi - 1));
        PLIM_TRY(try_far(s, at, bound, stride, &fits, &too_large, err));
        if (fits) {
            *lo = at;
            up = true;
        } else {
            *hi = at;
            *refused = too_large;
            down = true;
        }
        at = up && down ? *lo + (*hi - *lo) / 2 : up ? *lo + stride : *hi - stride;
        stride *= 2;
    }
    return PLIM_OK;
}

/* Near the limit a size may fit although smaller ones do not, as their blocks divide the segments less well.
 * Where one more is much, some are looked over. */
static plim_status leap_over(plim_fit_search *s, fit_bound bound, int64_t *lo, int64_t hi,
                             plim_err *err)
{
    enum { FEW = 64, OVER = 4, BEYOND = 8 };
    const int64_t most = guess_size(
        s, (fit_bound){bound.what, bound.room + bound.room / BEYOND, bound.measured});
    const bool few = *lo > 0 && *lo < FEW;
    int64_t at = *lo + 2; /* one more does not fit */
    while (few && at < hi && (at == *lo + 1 || at <= PLIM_MIN(*lo + OVER, most))) {
        bool fits = false, refused = false;
        PLIM_TRY(try_size(s, at, bound, &fits, &refused, err));
        if (fits)
            *lo = at;
        at++;
    }
    return PLIM_OK;
}

/* The largest size below `end` that is found to fit; *lo is one that does. */
static plim_status find_largest(plim_fit_search *s, fit_bound bound, int64_t guess,
                                int64_t end, int64_t *lo, bool *refused, plim_err *err)
{
    int64_t hi = end;
    PLIM_TRY(search_size(s, bound, guess, lo, &hi, refused, err));
    return *refused ? PLIM_OK : leap_over(s, bound, lo, end, err);
}

static bool is_kept(const plim_fit_search *s, int64_t size)
{
    const size_run *r = s->kept;
    return r->size == size && plim_asked_alike(&r->info.asked, &r->world, &s->job->step.world);
}

/* The figures at the size that was found, or at size 1 if none was: those of an estimate. */
static plim_status measure_size(plim_fit_search *s, int64_t size, plim_fit_row *row,
                                plim_err *err)
{
    plim_verdict v = {0};
    plim_err why = PLIM_ERR_INIT;
    plim_status st = PLIM_OK;
    bool refused = false;
    const bool found = size > 0;
    size = PLIM_MAX(size, 1);
    if (!is_kept(s, size)) {
        st = run_size(s, size, NULL, &refused, &why);
        keep_run(s);
    }
    plim_arena_reset(&s->scratch);
    if (!refused)
        s->info = s->kept->info;
    if (!st) {
        plim_asked_add(&s->asked, &s->info.asked);
        st = plim_verdict_after(s->job, &s->kept->t, &s->kept->high, true, &s->scratch, &v,
                                &why);
    }
    if (st == PLIM_ERANGE) /* as plim_fit_size */
        v.reserved = v.reserved_low = v.reserved_high = v.device_low = v.device_high =
            v.needed_low = v.needed_high = UINT64_MAX;
    else if (st)
        return plim_fail(err, why.code, why.at, "%s", why.msg);
    s->batch = s->kept->g.sizes.batch;
    row->reserved = v.reserved;
    row->reserved_low = v.reserved_low;
    row->reserved_high = v.reserved_high;
    row->device_low = v.device_low;
    row->device_high = v.device_high;
    row->needed_low = v.needed_low;
    row->needed_high = v.needed_high;
    row->headroom = v.headroom;
    row->verdict = found ? v.fits : PLIM_FITS_NO;
    plim_assert(row->device_low <= row->device_high && row->needed_low <= row->needed_high);
    plim_assert(row->reserved_low <= row->reserved && row->reserved <= row->reserved_high);
    return PLIM_OK;
}

/* The row of the card on which the last run was, at the size that was found. */
static void describe_card(const plim_fit_search *s, plim_fit_row *row)
{
    const plim_gpu *gpu = s->job->gpu;
    plim_assert(gpu);
    row->gpu = gpu->name;
    row->gpu_bytes = gpu->memory_bytes;
    row->gpu_exact = plim_gpu_exact(gpu);
    row->context_known = plim_fit_context(s->job).high > 0;
    row->price_usd = gpu->price_usd;
    plim_time t = plim_time_of(&s->info.ledger, gpu, !s->job->step.infer);
    row->samples_per_s = plim_job_samples_per_s(s->job, row->fits ? s->batch : 0, t.usual);
}

bool plim_fit_same(plim_fit_search *s, const plim_gpu *gpu, const plim_fit_row *solved,
                   plim_fit_row *row)
{
    if (!plim_fit_alike(s->job, gpu, &s->asked))
        return false;
    *row = *solved;
    plim_job_use_card(s->job, gpu);
    describe_card(s, row);
    return true;
}

plim_status plim_fit_card(plim_fit_search *s, const plim_gpu *gpu, plim_fit_row *row,
                          plim_err *err)
{
    const int64_t end = PLIM_FIT_MAX_SIZE + 1;
    int64_t lo = 0, usual, roomy = 0;
    bool refused = false, ended = false;
    plim_job_use_card(s->job, gpu);
    const plim_gpu_context context = plim_fit_context(s->job);
    const fit_bound high = {PLIM_SIM_HIGH, plim_fit_room(gpu, context.high), true},
                    middle = {0, plim_fit_room(gpu, context.usual), false},
                    tight = {PLIM_SIM_HIGH, plim_fit_leave_margin(s->job, high.room), false};
    plim_status st = s->drawn ? PLIM_OK : draw_lines(s, err);
    s->asked = plim_asked_nothing();
    *row = (plim_fit_row){0};
    if (!st)
        st = find_largest(s, high, guess_size(s, high), end, &lo, &refused, err);
    usual = lo;
    row->limited = lo == PLIM_FIT_MAX_SIZE || refused;
    if (!st && !row->limited)
        st = find_largest(s, middle, guess_size(s, middle), end, &usual, &ended, err);
    if (!st)
        st = measure_size(s, lo, row, err);
    if (!st && lo > 0 && s->job->find_margin) /* the line is as far off as above */
        st = find_largest(s, tight, lo - guess_size(s, high) + guess_size(s, tight), lo + 1,
                          &roomy, &ended, err);
    plim_assert(roomy <= lo && usual >= lo);
    row->batch = s->job->find_seq ? s->batch : lo;
    row->margin_known = s->job->find_margin;
    row->batch_margin = s->job->find_seq ? 0 : roomy;
    row->batch_usual = s->job->find_seq ? 0 : usual;
    row->seq = s->job->find_seq ? lo : 0;
    row->seq_margin = s->job->find_seq ? roomy : 0;
    row->seq_usual = s->job->find_seq ? usual : 0;
    row->fits = lo > 0;
    describe_card(s, row);
    return st;
}

uint64_t plim_fit_search_events(const plim_fit_search *s) { return s->n_events; }

const plim_step_info *plim_fit_search_info(const plim_fit_search *s) { return &s->info; }
