/* verdict.c -- see verdict.h.
 *
 * The run fits if it does so with context and workspaces at their upper bounds.  Whether it also leaves the
 * margin of the job, for what a tape does not show, is said apart.  It does not fit if it fails
 * with the context at its lower bound, whatever the size of the workspaces:
 * smaller ones can fragment more, so all three sizes are tried.  An allocator that is a model
 * has bounds of its own, which go with those of the sizes.  What is shown follows the
 * verdict:
 *
 *   fits          what the run holds on the card: never more than the card has
 *   does not fit  what it would hold on a card without a limit: always more
 *   may not fit   from what it holds if it fits to what it would hold without a limit */
#include "fit/verdict.h"

#include "base/task.h"

uint64_t plim_fit_room(const plim_gpu *gpu, uint64_t context)
{
    if (!gpu)
        return 0;
    return gpu->memory_bytes > context ? gpu->memory_bytes - context : 1;
}

/* With NCCL's communicators, and what connects them. */
static plim_gpu_context process_context(const plim_job *job, plim_gpu_use use)
{
    const plim_share_nccl nccl = plim_share_buffers(&job->step.share);
    const plim_libraries *lib = &job->step.world.lib;
    use.eager = lib->eager;
    use.count[PLIM_GPU_COMMUNICATORS] =
        (plim_gpu_counted){nccl.groups, nccl.groups, nccl.groups};
    plim_gpu_context c = plim_gpu_context_of(job->gpu, lib->torch, use);
    if (nccl.groups && c.n_parts)
        plim_gpu_context_add(
            &c, (plim_gpu_part){.name = "NCCL's connections",
                                .low = nccl.low,
                                .usual = nccl.usual,
                                .high = nccl.high,
                                .known = PLIM_GPU_ASSUMED,
                                .src = "buffers of 2, 24 or 32 channels to each neighbour"});
    return c;
}

static plim_gpu_context tape_context(const plim_job *job, const plim_tape *t)
{
    plim_gpu_use use = plim_gpu_use_of(job->script ? PLIM_GPU_SCRIPT : PLIM_GPU_LOOP);
    plim_gpu_use_callers(&use, t->callers);
    return process_context(job, use);
}

/* Of a step that is not written yet: each thread may multiply, and run what is cuDNN's. */
plim_gpu_context plim_fit_context(const plim_job *job)
{
    const uint8_t threads = job->step.infer ? 1 : 3;
    const plim_tape t = {.callers = {[PLIM_CUBLAS] = threads, [PLIM_CUDNN] = threads}};
    return tape_context(job, &t);
}

plim_gpu_context plim_fit_engine_context(const plim_job *job)
{
    return process_context(job, plim_gpu_use_of(PLIM_GPU_ANY));
}

bool plim_fit_alike(const plim_job *job, const plim_gpu *other, const plim_asked *asked)
{
    const plim_gpu *gpu = job->gpu;
    const plim_libraries *lib = &job->step.world.lib;
    const plim_world world = plim_world_on(job->step.torch, other, *lib);
    return gpu->memory_bytes == other->memory_bytes &&
           plim_asked_alike(asked, &job->step.world, &world) &&
           plim_gpu_context_alike(gpu, other, lib->torch, lib->eager);
}

/* What a tape does not show of a run: see margin in job.h. */
static uint64_t margin_of(const plim_job *job, uint64_t reserved)
{
    const uint64_t one = PLIM_JOB_MARGIN_ONE;
    plim_assert(job->margin <= one);
    return reserved / one * job->margin + reserved % one * job->margin / one;
}

uint64_t plim_fit_allowed(const plim_job *job, uint64_t room)
{
    return room ? PLIM_MIN(room, plim_alloc_allowed(&job->alloc, job->gpu->memory_bytes)) : 0;
}

uint64_t plim_fit_leave_margin(const plim_job *job, uint64_t room)
{
    const uint64_t one = PLIM_JOB_MARGIN_ONE, all = one + job->margin,
                   allowed = plim_fit_allowed(job, room);
    uint64_t most = allowed / all * one + allowed % all * one / all;
    while (room && most + 1 + margin_of(job, most + 1) <= allowed)
        most++;
    plim_assert(most <= room);
    return PLIM_MAX(most, PLIM_MIN(room, 1));
}

/* Of a job that names none, the first. */
static const plim_allocator *named_allocator(const plim_job *job)
{
    return job->alloc.allocator ? job->alloc.allocator : plim_allocator_at(0);
}

plim_alloc_options plim_fit_allocator(const plim_job *job, uint64_t room, unsigned what)
{
    plim_alloc_options o = job->alloc;
    const plim_allocator *named = named_allocator(job);
    if (what & PLIM_SIM_LOW && named->least)
        o.allocator = named->least;
    else if (what & PLIM_SIM_HIGH && named->most)
        o.allocator = named->most;
    o.capacity = room;
    o.unlimited = !room;
    o.total = room && job->gpu ? PLIM_MAX(job->gpu->memory_bytes, room) : 0;
    return o;
}

plim_status plim_fit_simulate(const plim_job *job, const plim_tape *t, uint64_t room,
                              unsigned what, plim_arena *a, plim_sim *out, plim_err *err)
{
    const plim_alloc_options o = plim_fit_allocator(job, room, what);
    return plim_sim_run(a, t, &o, what, out, err);
}

/* ---- one size ------------------------------------------------------------------- */

/* What is needed is searched to a thousandth, but not to less than a segment: the allocator
 * gets memory in multiples of the smallest one. */
static uint64_t choose_unit(uint64_t needed)
{
    const uint64_t segment = 2u << 20;
    return PLIM_MAX(segment, needed >> 10);
}

/* The simulations of one size of what is estimated. */
typedef struct size_run {
    const plim_job *job;
    const plim_tape *tape;
    plim_verdict *v;             /* for the context */
    const plim_simulated *known; /* NULL: none */
    unsigned what;
    bool search;              /* for what is needed */
    bool margin;              /* is asked for */
    plim_arena *a, *scratch;  /* of the result, of tries; in a thread, its own */
    plim_sim sim;             /* on the card if it fits surely, else without a limit */
    bool fits_high, fits_low; /* with the context at its upper, at its lower bound */
    bool fits_tight;          /* and leaves the margin */
    uint64_t held;            /* reserved on the card, if it fits; else without a limit */
    uint64_t needs,
        enough; /* of the rooms left to search, it fails in those with less, and does not in
                                 those with as much */
    uint64_t fails;    /* a room in which it fails */
    uint64_t needed;   /* the smallest room in which it does not fail, once searched */
    plim_str oom_text; /* of !fits_low */
    plim_status st;
    plim_err err;
    plim_arena own, own_scratch;
    plim_task task;
} size_run;

static plim_status simulate_size(size_run *r, uint64_t room, unsigned what, plim_arena *a,
                                 plim_sim *sim)
{
    return plim_fit_simulate(r->job, r->tape, room, what, a, sim, &r->err);
}

static plim_status try_room(size_run *r, uint64_t room, bool *fits)
{
    plim_sim sim;
    unsigned what = (r->what & (PLIM_SIM_LOW | PLIM_SIM_HIGH)) | PLIM_SIM_STOP_AT_OOM;
    *fits = room >= r->enough;
    if (*fits || room < r->needs)
        return PLIM_OK;
    plim_arena_reset(r->scratch);
    plim_status st = simulate_size(r, room, what, r->scratch, &sim);
    *fits = !st && !sim.oom;
    if (*fits && sim.alike.end)
        r->enough = PLIM_MIN(r->enough, sim.alike.least);
    else if (!*fits)
        r->needs = PLIM_MAX(r->needs, sim.alike.end);
    return st;
}

/* The smallest room in which the run does not fail, up to `hi`, in which it does not. */
static plim_status search_needed(size_run *r, uint64_t hi)
{
    plim_status st = PLIM_OK;
    uint64_t unit = choose_unit(hi), fails = r->fails / unit,
             fits = hi / unit + (hi % unit > 0);
    while (!st && fails + 1 < fits) {
        uint64_t at = fails + (fits - fails) / 2;
        bool enough;
        st = try_room(r, at * unit, &enough);
        *(enough ? &fits : &fails) = at;
    }
    plim_assert(fails <= fits);
    r->needed = PLIM_MIN(hi, fits * unit);
    return st;
}

/* The same where `known` is enough for another size: what is less than that, if it is enough;
 * one simulation shows in most cases that it is not. */
static plim_status search_below(size_run *r, uint64_t known)
{
    plim_assert(known > 0);
    plim_status st = PLIM_OK;
    uint64_t less = known - PLIM_MIN(known, choose_unit(known));
    bool enough = r->held <= less;
    if (!enough && less > r->fails)
        st = try_room(r, less, &enough);
    r->needed = PLIM_MIN(known, r->held); /* within a unit of `known`, both are enough */
    return enough ? search_needed(r, PLIM_MIN(less, r->held)) : st;
}

/* What the tape does without a limit, for the figures, and with the context at its lower bound. */
static void run_beyond(size_run *r, uint64_t room)
{
    const uint64_t wide = plim_fit_room(r->job->gpu, r->v->context.low);
    plim_sim lean;
    r->st = simulate_size(r, 0, r->what, r->a, &r->sim);
    if (!r->st)
        r->st = simulate_size(
            r, wide, (r->what & ~(unsigned)PLIM_SIM_ALL) | PLIM_SIM_STOP_AT_OOM, r->a, &lean);
    if (r->st)
        return;
    r->fits_low = !lean.oom;
    r->held = r->fits_low ? lean.peak_reserved : r->sim.peak_reserved;
    r->oom_text = lean.oom_text;
    r->fails = plim_fit_allowed(r->job, r->fits_low ? room : wide);
    /* garbage collection, which depends on the limit, may have made it hold less */
    r->held = PLIM_MAX(r->held, r->fails + 1);
}

/* What fits may do so in less room, because the allocator gives back what it has cached. */
static void keep_margin(size_run *r, uint64_t room)
{
    const uint64_t tight = plim_fit_leave_margin(r->job, room);
    r->fits_tight = r->held <= tight;
    if (!r->fits_tight && r->needs <= tight)
        r->st = try_room(r, tight, &r->fits_tight);
}

/* Runs the tape with the context at its upper bound. */
static void run_size(void *run)
{
    size_run *r = run;
    const uint64_t room = plim_fit_room(r->job->gpu, r->v->context.high);
    r->needs = plim_tape_live_most(r->tape, plim_sim_bound(r->what));
    if (r->known && r->known->room == room)
        r->sim = r->known->sim;
    else
        r->st = simulate_size(r, room, r->what | PLIM_SIM_STOP_AT_OOM, r->a, &r->sim);
    if (r->st)
        return;
    r->fits_high = r->fits_low = !r->sim.oom;
    r->held = r->sim.peak_reserved;
    r->fails = r->sim.peak_allocated - (r->sim.peak_allocated > 0);
    if (!r->fits_high)
        run_beyond(r, room);
    else if (r->margin && room)
        keep_margin(r, room);
    plim_assert(r->st || r->fits_low || !r->fits_high);
    if (!r->st && r->search)
        r->st = search_needed(r, r->held);
}

/* ---- all sizes ------------------------------------------------------------------ */

/* The events of a tape that is worth a thread: simulating them takes some tenths of a
 * millisecond. */
enum { LONG_TAPE = 1 << 14 };

static bool has_bounds(const plim_job *job, const plim_tape *t)
{
    if (named_allocator(job)->model || t->waits)
        return true;
    for (uint32_t i = 0; i < t->n_storages; i++)
        if (t->storages[i].high)
            return true;
    return false;
}

enum { USUAL, LOW, HIGH, SIZES };

plim_fits plim_fit_counted(plim_fits counted, bool incomplete)
{
    const bool may = counted == PLIM_FITS_YES || counted == PLIM_FITS_MAYBE;
    return incomplete && may ? PLIM_FITS_INCOMPLETE : counted;
}

static void combine_sizes(const plim_job *job, const plim_tape *t, plim_verdict *v,
                          const size_run *runs, uint32_t n)
{
    plim_assert(n == 1 || n == SIZES);
    const size_run *high = &runs[n - 1];
    const bool card = job->gpu != NULL;
    bool any = false, all = true, tight = true;
    uint64_t needed_high = high->needed;
    v->reserved_low = v->needed_low = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const size_run *r = &runs[i];
        any |= r->fits_low;
        all &= r->fits_high;
        tight &= r->fits_tight;
        if (v->modelled) /* its most is not the most in every room */
            needed_high = PLIM_MAX(needed_high, r->needed);
        v->reserved_low = PLIM_MIN(v->reserved_low, r->held);
        v->needed_low = PLIM_MIN(v->needed_low, r->needed);
        if (r->fits_high || !high->fits_high)
            v->reserved_high =
                PLIM_MAX(v->reserved_high, PLIM_MAX(r->held, r->sim.peak_reserved));
    }
    v->fits = !card                                                      ? PLIM_FITS_NO_CARD
              : !any                                                     ? PLIM_FITS_NO
              : (v->modelled ? all : high->fits_high) && v->context.high ? PLIM_FITS_YES
                                                                         : PLIM_FITS_MAYBE;
    v->fits = plim_fit_counted(v->fits, t->incomplete);
    v->sim = runs[USUAL].sim;
    v->reserved = PLIM_MIN(PLIM_MAX(v->sim.peak_reserved, v->reserved_low), v->reserved_high);
    plim_assert(v->reserved_low <= v->reserved && v->reserved <= v->reserved_high);
    v->device_low = plim_sat_add(v->reserved_low, v->context.low);
    v->device_high = plim_sat_add(v->reserved_high, v->context.high);
    v->margin = margin_of(job, v->reserved_high);
    v->margin_kept = v->fits == PLIM_FITS_YES && (v->modelled ? tight : high->fits_tight);
    plim_assert(v->device_low <= v->device_high);
    if (v->searched && card && job->gpu->memory_bytes > v->device_high) {
        v->search = job->gpu->memory_bytes - v->device_high;
        v->device_high = job->gpu->memory_bytes;
    }
    if (!high->search) {
        v->needed_low = 0;
        return;
    }
    v->needed_low = plim_sat_add(v->needed_low, v->context.low);
    v->needed_high = plim_sat_add(needed_high, v->context.high);
    const uint64_t room = plim_fit_allowed(job, plim_fit_room(job->gpu, v->context.high));
    v->headroom = v->fits == PLIM_FITS_YES ? room - PLIM_MIN(room, needed_high) : 0;
}

static plim_status judge_tape(const plim_job *job, const plim_tape *t, unsigned what,
                              bool needed, const plim_simulated *known, plim_arena *a,
                              plim_verdict *out, plim_err *err)
{
    static const unsigned bounds[SIZES] = {[LOW] = PLIM_SIM_LOW, [HIGH] = PLIM_SIM_HIGH};
    size_run runs[SIZES];
    plim_arena scratch = PLIM_ARENA_INIT;
    uint32_t n = has_bounds(job, t) ? SIZES : 1;
    const size_run *failed = NULL;
    *out = (plim_verdict){0};
    out->context = tape_context(job, t);
    out->searched = t->searched;
    out->modelled = named_allocator(job)->model != NULL;
    out->waits = t->waits;
    const size_run *lean =
        &runs[n > 1 && !out->modelled ? LOW : USUAL]; /* whose words are shown */
    for (uint32_t i = n; i-- > 0;) {
        size_run *r = &runs[i];
        *r = (size_run){
            .job = job, .tape = t, .v = out, .what = bounds[i], .enough = UINT64_MAX};
        r->search = needed && (i != USUAL || n == 1 || out->modelled);
        r->margin = !known;
        r->what |= i == USUAL ? what : 0;
        r->known = i == n - 1 ? known : NULL; /* the highest, if there are several */
        bool threaded = i != USUAL && t->n_events >= LONG_TAPE;
        r->a = threaded ? &r->own : a;
        r->scratch = threaded ? &r->own_scratch : &scratch;
        plim_task_start(&r->task, run_size, r, threaded);
    }
    for (uint32_t i = 0; i < n; i++)
        plim_task_wait(&runs[i].task);
    if (needed && !runs[USUAL].search && !runs[USUAL].st)
        runs[USUAL].st =
            search_below(&runs[USUAL], PLIM_MIN(runs[LOW].needed, runs[HIGH].needed));
    for (uint32_t i = 0; i < n && !failed; i++)
        failed = runs[i].st ? &runs[i] : NULL;
    plim_status st =
        failed ? plim_fail(err, failed->err.code, failed->err.at, "%s", failed->err.msg)
               : PLIM_OK;
    if (!st)
        combine_sizes(job, t, out, runs, n);
    if (!st && out->fits == PLIM_FITS_NO) {
        out->oom_text = plim_arena_printf(a, PLIM_STR_FMT, PLIM_STR_ARG(lean->oom_text));
        st = out->oom_text.p ? PLIM_OK : plim_oom(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        plim_arena_free(&runs[i].own);
        plim_arena_free(&runs[i].own_scratch);
    }
    plim_arena_free(&scratch);
    return st;
}

plim_status plim_verdict_of(const plim_job *job, const plim_tape *t, unsigned what,
                            bool needed, plim_arena *a, plim_verdict *out, plim_err *err)
{
    return judge_tape(job, t, what, needed, NULL, a, out, err);
}

plim_status plim_verdict_after(const plim_job *job, const plim_tape *t,
                               const plim_simulated *high, bool needed, plim_arena *a,
                               plim_verdict *out, plim_err *err)
{
    return judge_tape(job, t, 0, needed, high, a, out, err);
}
