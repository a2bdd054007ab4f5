/* sim.c -- see sim.h.
 *
 * The counters for rows and buckets are the same maxima over different intervals of the tape.
 * So one interval at a time is tracked, up to the next mark or bucket edge, and its maxima are
 * folded into both.  A run without rows and buckets has one interval, its whole length. */
#include "alloc/sim.h"

#include "alloc/alloc_base.h"

/* Used as a block: the storage was never allocated. */
#define FAILED (PLIM_NONE - 1)

typedef struct levels {
    uint64_t requested, allocated, reserved;
} levels;

typedef struct run {
    plim_arena *a;
    const plim_tape *t;
    plim_alloc *h;
    unsigned what;
    plim_bound bound;
    plim_sim *out;
    plim_err *err;
    uint32_t *block; /* by storage: PLIM_NONE before its alloc and for 0 bytes */
    uint32_t n_blocks;
    levels now, high; /* high: of this interval */
    uint32_t mark;    /* the next one */
} run;

static void raise_to(levels *high, const levels *now)
{
    high->requested = PLIM_MAX(high->requested, now->requested);
    high->allocated = PLIM_MAX(high->allocated, now->allocated);
    high->reserved = PLIM_MAX(high->reserved, now->reserved);
}

/* ---- events -------------------------------------------------------------- */

static plim_status sum_free(run *r)
{
    uint32_t n = plim_alloc_blocks(r->h, NULL, 0);
    plim_alloc_block *blocks = PLIM_NEW_N(r->a, plim_alloc_block, n);
    if (!blocks && n)
        return plim_oom(r->err);
    plim_alloc_blocks(r->h, blocks, n);
    for (uint32_t i = 0; i < n; i++) {
        plim_free_blocks *pool = &r->out->oom_free[blocks[i].small ? 0 : 1];
        if (blocks[i].state != PLIM_BLOCK_FREE)
            continue;
        pool->bytes += blocks[i].bytes;
        pool->largest = PLIM_MAX(pool->largest, blocks[i].bytes);
        pool->blocks++;
    }
    plim_assert(r->h->device.used <= r->h->device.capacity);
    r->out->oom_device_free = r->h->device.capacity - r->h->device.used;
    return PLIM_OK;
}

static plim_status run_oom(run *r, uint32_t i)
{
    plim_assert(r->t->events[i].kind == PLIM_EVENT_ALLOC);
    plim_sim *o = r->out;
    r->block[r->t->events[i].id] = FAILED;
    if (o->oom)
        return PLIM_OK;
    o->oom = true;
    o->oom_event = i;
    o->oom_text = plim_alloc_oom_text(r->h, r->a);
    if (!o->oom_text.p)
        return plim_oom(r->err);
    return r->what & PLIM_SIM_FREE ? sum_free(r) : PLIM_OK;
}

static plim_status run_alloc(run *r, uint32_t i)
{
    const plim_event *e = &r->t->events[i];
    uint64_t bytes = plim_storage_bytes(&r->t->storages[e->id], r->bound);
    uint32_t *block = &r->block[e->id];
    plim_status st = plim_alloc_malloc(r->h, bytes, e->stream, block, r->err);
    if (st || *block == PLIM_NONE)
        return st || !bytes ? st : run_oom(r, i);
    r->now.requested = r->h->live_requested;
    r->now.allocated = r->h->stats.allocated_bytes.current;
    r->now.reserved = r->h->stats.reserved_bytes.current;
    /* counters rise only here, so peaks are updated only here */
    raise_to(&r->high, &r->now);
    plim_assert(r->now.allocated <= r->now.reserved);
    if (r->now.requested > r->out->peak_requested) {
        r->out->peak_requested = r->now.requested;
        r->out->peak_requested_event = i;
    }
    if (r->now.allocated > r->out->peak_allocated) {
        r->out->peak_allocated = r->now.allocated;
        r->out->peak_allocated_event = i;
    }
    r->out->peak_reserved = PLIM_MAX(r->out->peak_reserved, r->now.reserved);
    r->out->peak_active = PLIM_MAX(r->out->peak_active, r->h->stats.active_bytes.current);
    return PLIM_OK;
}

static plim_status run_free(run *r, uint32_t i)
{
    uint32_t block = r->block[r->t->events[i].id];
    if (block >= FAILED)
        return PLIM_OK;
    plim_status st = plim_alloc_free(r->h, block, r->err);
    plim_assert(r->h->live_requested <= r->now.requested);
    r->now.requested = r->h->live_requested;
    r->now.allocated = r->h->stats.allocated_bytes.current;
    return st;
}

static plim_status run_event(run *r, uint32_t i)
{
    const plim_event *e = &r->t->events[i];
    plim_status st = PLIM_OK;
    switch ((plim_event_kind)e->kind) {
    case PLIM_EVENT_ALLOC: return run_alloc(r, i);
    case PLIM_EVENT_FREE: return run_free(r, i);
    case PLIM_EVENT_RECORD_STREAM:
        if (r->block[e->id] < FAILED && r->bound != PLIM_BOUND_LOW)
            st = plim_alloc_record_stream(r->h, r->block[e->id], e->stream, r->err);
        break;
    case PLIM_EVENT_STREAM_DONE: plim_alloc_stream_done(r->h, e->stream); break;
    case PLIM_EVENT_EMPTY_CACHE:
        st = plim_alloc_empty_cache(r->h, r->err);
        r->now.reserved = r->h->stats.reserved_bytes.current;
        break;
    case PLIM_EVENT_RESET_PEAK: plim_alloc_reset_peak(r->h); break;
    case PLIM_EVENT_FRACTION:
        st = plim_alloc_set_fraction(r->h, (double)e->id / PLIM_FRACTION_ONE, r->err);
        break;
    case PLIM_EVENT_CONFIG:
        st = plim_alloc_config(r->h, r->t->configs[e->id], r->err);
        if (st)
            plim_err_prefix(r->err, "event %" PRIu32 ": ", i);
        break;
    }
    return st;
}

/* ---- stretches ----------------------------------------------------------- */

/* The bucket of an event, and the event at which a bucket begins. */
static uint32_t bucket_of(const run *r, uint32_t event)
{
    plim_assert(event < r->t->n_events && r->out->n_buckets <= r->t->n_events);
    return (uint32_t)((uint64_t)event * r->out->n_buckets / r->t->n_events);
}
static uint32_t bucket_begin(const run *r, uint32_t bucket)
{
    uint64_t n = r->out->n_buckets;
    plim_assert(n > 0 && bucket <= n);
    return (uint32_t)((bucket * (uint64_t)r->t->n_events + n - 1) / n);
}

/* Starts the rows and buckets that begin at this event. */
static void enter_stretch(run *r, uint32_t event)
{
    const plim_tape *t = r->t;
    plim_sim *o = r->out;
    while (r->mark < t->n_marks && t->marks[r->mark].first <= event) {
        const plim_mark *m = &t->marks[r->mark++];
        plim_assert(!o->rows || o->n_rows < t->n_marks);
        if (o->rows)
            o->rows[o->n_rows++] = (plim_phase_row){.step = m->step,
                                                    .phase = (plim_phase)m->phase,
                                                    .requested = r->now.requested,
                                                    .allocated = r->now.allocated,
                                                    .reserved = r->now.reserved,
                                                    .peak_requested = r->now.requested,
                                                    .peak_allocated = r->now.allocated,
                                                    .peak_reserved = r->now.reserved};
    }
    r->high = r->now;
    if (!o->buckets || event >= t->n_events)
        return;
    uint32_t b = bucket_of(r, event);
    if (bucket_begin(r, b) == event) {
        const plim_mark *m = r->mark ? &t->marks[r->mark - 1] : NULL;
        o->buckets[b].step = m ? m->step : -1;
        o->buckets[b].phase = m ? (plim_phase)m->phase : PLIM_PHASE_LOAD;
    }
}

/* Folds the interval that ends before `end` into its row and its bucket. */
static void leave_stretch(run *r, uint32_t end)
{
    plim_assert(end <= r->t->n_events);
    plim_sim *o = r->out;
    if (o->n_rows) {
        plim_phase_row *row = &o->rows[o->n_rows - 1];
        row->requested = r->now.requested;
        row->allocated = r->now.allocated;
        row->reserved = r->now.reserved;
        row->peak_requested = PLIM_MAX(row->peak_requested, r->high.requested);
        row->peak_allocated = PLIM_MAX(row->peak_allocated, r->high.allocated);
        row->peak_reserved = PLIM_MAX(row->peak_reserved, r->high.reserved);
    }
    if (o->buckets && end) {
        plim_bucket *b = &o->buckets[bucket_of(r, end - 1)];
        b->requested = PLIM_MAX(b->requested, r->high.requested);
        b->allocated = PLIM_MAX(b->allocated, r->high.allocated);
        b->reserved = PLIM_MAX(b->reserved, r->high.reserved);
    }
}

/* The end of the interval that begins at `event`. */
static uint32_t stretch_end(const run *r, uint32_t event)
{
    uint32_t end = r->t->n_events;
    if (r->out->rows && r->mark < r->t->n_marks)
        end = PLIM_MIN(end, r->t->marks[r->mark].first);
    if (r->out->buckets)
        end = PLIM_MIN(end, bucket_begin(r, bucket_of(r, event) + 1));
    return end;
}

static plim_status run_all(run *r)
{
    plim_status st = PLIM_OK;
    uint32_t i = 0, n = r->t->n_events;
    bool stop = false;
    enter_stretch(r, 0);
    while (i < n && !st && !stop) {
        uint32_t end = stretch_end(r, i);
        for (; i < end && !st && !stop; i++) {
            st = run_event(r, i);
            stop = r->out->oom && (r->what & PLIM_SIM_STOP_AT_OOM);
        }
        leave_stretch(r, i);
        if (!stop)
            enter_stretch(r, i);
    }
    r->out->n_events = i;
    return st;
}

/* Makes room for the blocks of all storages that the tape has by now. */
static plim_status make_blocks(run *r)
{
    uint32_t n = r->t->n_storages;
    if (n > r->n_blocks) {
        uint32_t cap = PLIM_MAX(n, r->t->cap_storages),
                 *block = PLIM_NEW_N(r->a, uint32_t, cap);
        if (!block)
            return plim_oom(r->err);
        if (r->n_blocks)
            memcpy(block, r->block, r->n_blocks * sizeof *block);
        while (r->n_blocks < cap)
            block[r->n_blocks++] = PLIM_NONE;
        r->block = block;
    }
    plim_assert(n <= r->n_blocks);
    return PLIM_OK;
}

/* ---- after the run ------------------------------------------------------- */

plim_status plim_sim_live_after(plim_arena *a, const plim_tape *t, uint32_t last,
                                uint32_t **out, uint32_t *n, plim_err *err)
{
    uint8_t *live = PLIM_NEW_N(a, uint8_t, t->n_storages);
    uint32_t *ids, count = 0;
    plim_assert(last == PLIM_NONE || last < t->n_events);
    if (!live)
        return plim_oom(err);
    for (uint32_t i = 0; last != PLIM_NONE && i <= last; i++) {
        const plim_event *e = &t->events[i];
        if (e->kind == PLIM_EVENT_ALLOC || e->kind == PLIM_EVENT_FREE) {
            count += (e->kind == PLIM_EVENT_ALLOC) - (uint32_t)live[e->id];
            live[e->id] = e->kind == PLIM_EVENT_ALLOC;
        }
    }
    ids = PLIM_NEW_N(a, uint32_t, count);
    if (!ids)
        return plim_oom(err);
    *out = ids;
    *n = count;
    for (uint32_t id = 0; id < t->n_storages; id++)
        if (live[id])
            *ids++ = id;
    return PLIM_OK;
}

/* The storages live at the peak; those that failed or have no bytes hold no block. */
static plim_status find_live(run *r)
{
    plim_sim *o = r->out;
    uint32_t n;
    plim_status st =
        plim_sim_live_after(r->a, r->t, o->peak_allocated_event, &o->live, &n, r->err);
    for (uint32_t i = 0; !st && i < n; i++)
        if (r->block[o->live[i]] < FAILED)
            o->live[o->n_live++] = o->live[i];
    return st;
}

static plim_status make_room(run *r)
{
    plim_sim *o = r->out;
    if (r->what & PLIM_SIM_ROWS)
        o->rows = PLIM_NEW_N(r->a, plim_phase_row, r->t->n_marks);
    if (r->what & PLIM_SIM_TIMELINE) {
        o->n_buckets = PLIM_MIN(r->t->n_events, (uint32_t)PLIM_BUCKETS);
        o->buckets = PLIM_NEW_N(r->a, plim_bucket, o->n_buckets);
    }
    if ((r->what & PLIM_SIM_ROWS && !o->rows) || (r->what & PLIM_SIM_TIMELINE && !o->buckets))
        return plim_oom(r->err);
    return make_blocks(r);
}

static void sum_up(run *r)
{
    plim_assert(r->now.requested <= r->out->peak_requested);
    plim_alloc_get_stats(r->h, &r->out->stats);
    r->out->requested = r->now.requested;
    r->out->alike = plim_alloc_rooms(r->h);
}

plim_status plim_sim_run(plim_arena *a, const plim_tape *tape, const plim_alloc_options *o,
                         unsigned what, plim_sim *out, plim_err *err)
{
    plim_sim sim = {.peak_requested_event = PLIM_NONE,
                    .peak_allocated_event = PLIM_NONE,
                    .oom_event = PLIM_NONE};
    run r = {.a = a, .t = tape, .what = what, .out = &sim, .err = err};
    r.bound = plim_sim_bound(what);
    plim_status st = make_room(&r);
    if (!st)
        st = plim_alloc_new(a, o, &r.h, err);
    if (!st)
        st = run_all(&r);
    if (!st && what & PLIM_SIM_LIVE)
        st = find_live(&r);
    if (st)
        return st;
    sum_up(&r);
    if (sim.buckets && sim.peak_allocated_event != PLIM_NONE)
        sim.peak_bucket = bucket_of(&r, sim.peak_allocated_event);
    *out = sim;
    return PLIM_OK;
}

/* ---- beside the writer of the tape --------------------------------------- */

struct plim_sim_follower {
    run run;
    plim_sim sim;
};

plim_status plim_sim_follow(plim_arena *a, const plim_tape *tape, const plim_alloc_options *o,
                            unsigned what, plim_sim_follower **out, plim_err *err)
{
    plim_sim_follower *f = *out = PLIM_NEW(a, plim_sim_follower);
    plim_assert(!(what & PLIM_SIM_ALL));
    if (!f)
        return plim_oom(err);
    f->sim = (plim_sim){.peak_requested_event = PLIM_NONE,
                        .peak_allocated_event = PLIM_NONE,
                        .oom_event = PLIM_NONE};
    f->run = (run){.a = a, .t = tape, .what = what, .out = &f->sim, .err = err};
    f->run.bound = plim_sim_bound(what);
    return plim_alloc_new(a, o, &f->run.h, err);
}

plim_status plim_sim_catch_up(plim_sim_follower *f, bool *oom)
{
    run *r = &f->run;
    plim_sim *o = &f->sim;
    plim_status st = make_blocks(r);
    plim_assert(o->n_events <= r->t->n_events);
    while (!st && !o->oom && o->n_events < r->t->n_events)
        st = run_event(r, o->n_events++);
    *oom = o->oom;
    return st;
}

const plim_sim *plim_sim_followed(plim_sim_follower *f)
{
    sum_up(&f->run);
    return &f->sim;
}
