/* follow.c -- the recorded allocator against the simulated one.
 *
 * The simulated allocator, on a device without a limit, has what the program had when the recording
 * began, if that is not the start (rewind.c), and is asked for what was recorded, in the same order.  At each request it must take a new segment exactly if the recorded one did, and
 * hand out the same address in it; in the end the blocks must be the same.
 *
 * What both take at the same request is the same memory, so the simulated device has it at the
 * recorded address: PyTorch's choice among free blocks may depend on that.
 *
 * Pools have no memory in common, so each has a simulated allocator of its own.  How long a
 * private pool is held nobody says: it is emptied when memory of it was released. */
#include <stdlib.h>

#include "alloc/alloc_conf.h"
#include "trace/recording.h"

typedef struct taken { /* a segment or pages that one side took at this request */
    uint64_t addr, bytes;
} taken;

typedef struct taken_list {
    taken *items;
    uint32_t n, cap;
} taken_list;

typedef struct pool {
    plim_arena *a;
    plim_alloc *h;
    plim_id_map live;        /* recorded address -> block */
    taken_list ours, theirs; /* since the last request */
    uint32_t n_placed;       /* of theirs: the simulated device has them */
    uint16_t first_stream;   /* which is number 0 of its allocator */
    bool full;
    bool released;          /* memory of it, in this run of releases */
    uint64_t reserved;      /* by the recorded allocator */
    plim_alloc_stats stats; /* as they are counted in those of all pools */
} pool;

typedef struct follower {
    const plim_recording *r;
    plim_arena *a;
    pool *pools;
    plim_follow *out;
    plim_err *err;
    bool in_parts; /* its settings release a part of what is free when memory is short */
    bool
        oldest_unknown; /* the oldest of equal free blocks is taken, and some are from before */
} follower;

static pool *pool_of(const follower *f, uint32_t action)
{
    return &f->pools[f->r->streams[f->r->actions[action].stream].pool];
}

/* Counts what the pool did since the last time. */
static void count_pool(const follower *f, pool *p)
{
    plim_alloc_stats now;
    plim_alloc_get_stats(p->h, &now);
    plim_alloc_sum_stats(&f->out->stats, &p->stats, &now);
    p->stats = now;
}

/* ---- what is taken from the device --------------------------------------------- */

static bool add_taken(plim_arena *a, taken_list *l, uint64_t addr, uint64_t bytes)
{
    if (!PLIM_PUSH_ROOM(a, l->items, l->n, l->cap))
        return false;
    l->items[l->n++] = (taken){addr, bytes};
    return true;
}

static void watch_segments(void *ud, plim_trace_action what, uint64_t addr, uint64_t bytes,
                           uint16_t stream)
{
    pool *p = ud;
    (void)stream;
    if (what == PLIM_TRACE_SEGMENT_ALLOC || what == PLIM_TRACE_SEGMENT_MAP)
        p->full |= !add_taken(p->a, &p->ours, addr, bytes);
}

static bool place_segment(void *ud, uint64_t bytes, uint64_t *addr)
{
    pool *p = ud;
    (void)bytes;
    *addr = p->n_placed < p->theirs.n ? p->theirs.items[p->n_placed++].addr : 0;
    return true;
}

static const plim_placement as_recorded = {
    .name = "recorded", .take = place_segment, .reserves = true};

/* ---- differences ------------------------------------------------------------- */

static plim_status note_difference(follower *f, const char *fmt, ...) PLIM_PRINTF(2, 3);
static plim_status note_difference(follower *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    f->out->why = plim_arena_vprintf(f->r->arena, fmt, ap);
    va_end(ap);
    return f->out->why.p ? PLIM_OK : plim_oom(f->err);
}

static bool has_differed(const follower *f) { return f->out->why.n != 0; }

static plim_status compare_taken(follower *f, uint32_t i)
{
    const plim_action *a = &f->r->actions[i];
    const pool *p = pool_of(f, i);
    for (uint32_t k = 0; k < PLIM_MAX(p->ours.n, p->theirs.n); k++) {
        uint64_t ours = k < p->ours.n ? p->ours.items[k].bytes : 0;
        uint64_t theirs = k < p->theirs.n ? p->theirs.items[k].bytes : 0;
        if (ours != theirs)
            return note_difference(f,
                                   "action %" PRIu32 ", a request for %" PRIu64
                                   " bytes: recorded are %" PRIu64
                                   " bytes taken from the device, simulated %" PRIu64,
                                   i, a->bytes, theirs, ours);
    }
    return PLIM_OK;
}

/* ---- actions ----------------------------------------------------------------- */

static plim_status follow_alloc(follower *f, uint32_t i)
{
    const plim_action *a = &f->r->actions[i];
    pool *p = pool_of(f, i);
    uint32_t block;
    p->ours.n = p->n_placed = 0;
    plim_status st = plim_alloc_malloc(p->h, a->bytes, (uint16_t)(a->stream - p->first_stream),
                                       &block, f->err);
    if (st || p->full)
        return st ? st : plim_oom(f->err);
    count_pool(f, p);
    st = compare_taken(f, i);
    p->theirs.n = 0;
    if (st || has_differed(f))
        return st;
    if (block == PLIM_NONE)
        return note_difference(f, "action %" PRIu32 ", a request for %" PRIu64 " bytes, fails",
                               i, a->bytes);
    uint64_t addr = plim_alloc_address(p->h, block);
    if (addr != a->addr)
        return note_difference(f,
                               "action %" PRIu32 ", a request for %" PRIu64
                               " bytes: recorded at 0x%" PRIx64 ", simulated at 0x%" PRIx64,
                               i, a->bytes, a->addr, addr);
    f->out->n_checked++;
    plim_id_slot *s = plim_id_at(f->a, &p->live, a->addr);
    if (!s)
        return plim_oom(f->err);
    s->live = true;
    s->value = block;
    return PLIM_OK;
}

/* A block is free when no stream uses it any more; until then it is as if in use. */
static plim_status follow_completed(follower *f, uint32_t i)
{
    pool *p = pool_of(f, i);
    plim_id_slot *s = plim_id_get(&p->live, f->r->actions[i].addr);
    if (!s || !s->live)
        return PLIM_OK;
    s->live = false;
    PLIM_TRY(plim_alloc_free(p->h, s->value, f->err));
    count_pool(f, p);
    return PLIM_OK;
}

/* Released because memory was short, by settings that release a part of what is free: which part depends
 * on the device and on ages, so it is taken from the recording, as long as it is free here, too. */
static plim_status follow_part(follower *f, uint32_t i)
{
    const plim_action *a = &f->r->actions[i];
    pool *p = pool_of(f, i);
    if (plim_alloc_give_back(p->h, a->addr, a->bytes, (uint16_t)(a->stream - p->first_stream)))
        return PLIM_OK;
    return note_difference(f,
                           "action %" PRIu32 ": recorded is a release of %" PRIu64
                           " bytes at 0x%" PRIx64 ", which simulated is no segment or in use",
                           i, a->bytes, a->addr);
}

/* Releases all that is free, if `whole`, and compares what stays reserved after these actions. */
static plim_status compare_reserved(follower *f, uint32_t first, uint32_t last, bool whole)
{
    for (pool *p = f->pools; p < f->pools + f->r->n_pools; p++) {
        if (!p->released)
            continue;
        p->released = false;
        if (whole)
            PLIM_TRY(plim_alloc_empty_cache(p->h, f->err));
        count_pool(f, p);
        if (p->stats.reserved_bytes.current != p->reserved)
            return note_difference(f,
                                   "actions %" PRIu32 " to %" PRIu32
                                   ", a release of memory: recorded are "
                                   "%" PRIu64 " bytes that stay reserved, simulated %" PRIu64,
                                   first, last, p->reserved, p->stats.reserved_bytes.current);
    }
    return PLIM_OK;
}

static plim_status follow_release(follower *f, uint32_t *i)
{
    uint32_t first = *i;
    bool asked = plim_recording_is_empty_cache(f->r, i);
    for (uint32_t k = first; k <= *i; k++) {
        pool *p = pool_of(f, k);
        p->released = true;
        p->reserved -= PLIM_MIN(p->reserved, f->r->actions[k].bytes);
        if (!asked && f->in_parts && !has_differed(f))
            PLIM_TRY(follow_part(f, k));
    }
    return has_differed(f) ? PLIM_OK : compare_reserved(f, first, *i, asked || !f->in_parts);
}

/* The free blocks of the pool in which memory first ran out. */
static plim_status follow_oom(follower *f, uint32_t i)
{
    const plim_alloc *h = pool_of(f, i)->h;
    plim_follow *o = f->out;
    if (o->oom_free_known)
        return PLIM_OK;
    uint32_t n = plim_alloc_blocks(h, NULL, 0);
    plim_alloc_block *b = PLIM_NEW_N(f->a, plim_alloc_block, n);
    if (!b && n)
        return plim_oom(f->err);
    plim_alloc_blocks(h, b, n);
    for (uint32_t k = 0; k < n; k++) {
        if (b[k].state != PLIM_BLOCK_FREE)
            continue;
        plim_free_blocks *free = &o->oom_free[b[k].small ? 0 : 1];
        free->bytes += b[k].bytes;
        free->largest = PLIM_MAX(free->largest, b[k].bytes);
        free->blocks++;
    }
    o->oom_free_known = true;
    return PLIM_OK;
}

static plim_status follow_action(follower *f, uint32_t *i)
{
    const plim_action *a = &f->r->actions[*i];
    switch ((plim_trace_action)a->kind) {
    case PLIM_TRACE_ALLOC: return follow_alloc(f, *i);
    case PLIM_TRACE_FREE_REQUESTED: return PLIM_OK;
    case PLIM_TRACE_FREE_COMPLETED: return follow_completed(f, *i);
    case PLIM_TRACE_SEGMENT_FREE:
    case PLIM_TRACE_SEGMENT_UNMAP: return follow_release(f, i);
    case PLIM_TRACE_OOM: return follow_oom(f, *i);
    case PLIM_TRACE_SEGMENT_ALLOC:
    case PLIM_TRACE_SEGMENT_MAP: break;
    }
    pool *p = pool_of(f, *i);
    p->reserved += a->bytes;
    return add_taken(f->a, &p->theirs, a->addr, a->bytes) ? PLIM_OK : plim_oom(f->err);
}

/* ---- the end ------------------------------------------------------------------ */

static const char *state_name(bool live) { return live ? "in use" : "free"; }

static int compare_blocks(const void *a, const void *b)
{
    const plim_alloc_block *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static plim_status compare_block(follower *f, const plim_alloc_block *o,
                                 const plim_recorded_block *t)
{
    bool live = t->state != PLIM_BLOCK_FREE, ours = o->state != PLIM_BLOCK_FREE;
    if (o->addr == t->addr && o->bytes == t->bytes && ours == live &&
        (!live || !t->requested || o->requested == t->requested))
        return PLIM_OK;
    return note_difference(f,
                           "at the end: recorded is a block of %" PRIu64 " bytes at 0x%" PRIx64
                           ", %s; simulated one of %" PRIu64 " at 0x%" PRIx64 ", %s",
                           t->bytes, t->addr, state_name(live), o->bytes, o->addr,
                           state_name(ours));
}

/* The blocks of both, in the order of their addresses. */
static plim_status compare_ends(follower *f)
{
    const plim_recording *r = f->r;
    uint32_t n = 0, kept = 0, at = 0;
    for (uint32_t i = 0; i < r->n_pools; i++)
        n += plim_alloc_blocks(f->pools[i].h, NULL, 0);
    plim_alloc_block *b = PLIM_NEW_N(f->a, plim_alloc_block, n);
    if (!b && n)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < r->n_pools; i++) {
        uint32_t first = kept;
        uint32_t end = first + plim_alloc_blocks(f->pools[i].h, b + first, n - first);
        for (uint32_t k = first; k < end; k++)
            if (b[k].state != PLIM_BLOCK_UNMAPPED)
                b[kept++] = b[k];
    }
    if (kept)
        qsort(b, kept, sizeof *b, compare_blocks);
    for (uint32_t i = 0; i < r->n_segments; i++) {
        const plim_recorded_segment *g = &r->segments[i];
        for (uint32_t k = g->first; k < g->first + g->n; k++, at++) {
            plim_status st = at < kept ? compare_block(f, &b[at], &r->blocks[k]) : PLIM_OK;
            if (st || has_differed(f))
                return st;
        }
    }
    if (at != kept)
        return note_difference(
            f, "at the end: recorded are %" PRIu32 " blocks, simulated %" PRIu32, at, kept);
    return PLIM_OK;
}

/* ---- the whole ---------------------------------------------------------------- */

bool plim_recording_conf_known(const plim_recording *r, int torch, plim_err *why)
{
    plim_alloc_conf conf;
    plim_alloc_conf_init(&conf);
    return !plim_alloc_conf_parse(&conf, r->conf, torch, why) && conf.fraction <= 0;
}

static bool is_exact(const plim_recording *r, int torch)
{
    const plim_allocator *was;
    return !plim_allocator_of_conf(r->conf, torch, &was, NULL) && !was->model;
}

static plim_status why_not(const plim_recording *r, int torch, plim_follow *out, plim_err *err)
{
    const char *why = NULL;
    if (r->host)
        why = "the memory is that of the CPU, which has no caching allocator";
    else if (!r->actions_known)
        why = "the file has no history of allocations";
    else if (r->n_processes && !r->counters)
        why = "the trace does not have the allocator's counters";
    else if (!r->state_known && !r->counters)
        why = "the file does not say how the allocator's segments were divided";
    else if (r->n_gaps)
        why = "some of its events are missing";
    else if (r->counters && !plim_recording_from_start(r))
        why = "the recording begins when the program has memory already";
    else if (!plim_recording_conf_known(r, torch, NULL))
        why = "the recorded settings of the allocator are not all known";
    else if (!is_exact(r, torch))
        why = "the recorded allocator is one that is only modelled";
    out->followed = !why;
    out->why = why ? plim_arena_str(r->arena, plim_str_of(why)) : (plim_str){NULL, 0};
    return !why || out->why.p ? PLIM_OK : plim_oom(err);
}

static void note_oom(const plim_recording *r, plim_follow *out)
{
    uint64_t reserved = 0;
    uint32_t events = 0;
    for (uint32_t i = 0; i < r->n_actions && !out->oom; i++) {
        const plim_action *a = &r->actions[i];
        events += a->kind == PLIM_TRACE_ALLOC || a->kind == PLIM_TRACE_FREE_COMPLETED;
        if (a->kind == PLIM_TRACE_SEGMENT_ALLOC || a->kind == PLIM_TRACE_SEGMENT_MAP)
            reserved += a->bytes;
        else if (a->kind == PLIM_TRACE_SEGMENT_FREE || a->kind == PLIM_TRACE_SEGMENT_UNMAP)
            reserved -= PLIM_MIN(reserved, a->bytes);
        if (a->kind != PLIM_TRACE_OOM)
            continue;
        out->oom = true;
        out->oom_action = r->n_events ? events : i;
        out->oom_stack = a->stack;
        out->oom_bytes = a->bytes;
        out->oom_device_free = a->addr;
        out->oom_reserved = r->counters ? r->counters[i].reserved : reserved;
    }
}

static bool releases_parts(const plim_recording *r, int torch)
{
    plim_alloc_conf conf;
    plim_alloc_conf_init(&conf);
    plim_alloc_conf_parse(&conf, r->conf, torch, NULL);
    return conf.gc > 0 || conf.max_split != UINT64_MAX;
}

/* An allocator for each pool.  Until 2.4 private pools did not use expandable segments. */
static plim_status open_pools(follower *f, int torch)
{
    const plim_recording *r = f->r;
    plim_str plain = plim_arena_printf(f->a, PLIM_STR_FMT "%sexpandable_segments:False",
                                       PLIM_STR_ARG(r->conf), r->conf.n ? "," : "");
    bool private_expandable = plim_alloc_rules_of(torch)->private_expandable;
    f->pools = PLIM_NEW_N(f->a, pool, r->n_pools);
    if (!f->pools || !plain.p)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < r->n_pools; i++) {
        plim_alloc_options o = {.torch = torch,
                                .conf = !i || private_expandable ? r->conf : plain};
        pool *p = &f->pools[i];
        p->a = f->a;
        PLIM_TRY(plim_alloc_new(f->a, &o, &p->h, f->err));
        plim_alloc_set_watch(p->h, watch_segments, p);
        plim_alloc_set_place(p->h, &as_recorded, p);
    }
    for (uint32_t i = r->n_streams; i-- > 0;) /* by pool */
        f->pools[r->streams[i].pool].first_stream = (uint16_t)i;
    return PLIM_OK;
}

/* What a pool begins with: blocks of its streams, by their numbers in it. */
static plim_status restore_pool(follower *f, pool *p, const plim_alloc_block *of, uint32_t n)
{
    plim_alloc_block *b = PLIM_NEW_N(f->a, plim_alloc_block, n);
    if (!b)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < n; i++) {
        b[i] = of[i];
        b[i].stream = (uint16_t)(b[i].stream - p->first_stream);
        p->reserved += b[i].state == PLIM_BLOCK_UNMAPPED ? 0 : b[i].bytes;
    }
    PLIM_TRY(plim_alloc_restore(p->h, b, n, f->err));
    for (uint32_t i = 0; i < n; i++) {
        if (b[i].state != PLIM_BLOCK_ALLOCATED)
            continue;
        plim_id_slot *s = plim_id_at(f->a, &p->live, b[i].addr);
        if (!s)
            return plim_oom(f->err);
        s->live = true;
        s->value = b[i].block;
    }
    count_pool(f, p);
    return PLIM_OK;
}

static plim_status restore_pools(follower *f, int torch)
{
    const plim_recording *r = f->r;
    plim_rewound had;
    plim_alloc **pools = PLIM_NEW_N(f->a, plim_alloc *, r->n_pools);
    for (uint32_t i = 0; pools && i < r->n_pools; i++)
        pools[i] = f->pools[i].h;
    PLIM_TRY(pools ? plim_recording_rewind(r, pools, &had, f->err) : plim_oom(f->err));
    if (had.lost) {
        f->out->followed = false;
        return note_difference(
            f, "the actions do not lead to the state at the end: some are missing");
    }
    f->oldest_unknown = had.n && plim_alloc_rules_of(torch)->ties != PLIM_TIES_ADDRESS;
    for (uint32_t i = 0, end; i < had.n; i = end) {
        const uint32_t number = r->streams[had.blocks[i].stream].pool;
        for (end = i + 1; end < had.n && r->streams[had.blocks[end].stream].pool == number;)
            end++;
        PLIM_TRY(restore_pool(f, &f->pools[number], had.blocks + i, end - i));
    }
    return PLIM_OK;
}

/* Where the simulated allocator parts from the recorded one because it does not know which of two
 * free blocks is older, it says nothing about either. */
static plim_status forgive_oldest(follower *f)
{
    f->out->followed = false;
    return note_difference(
        f,
        "the recording begins when the program has memory already, and does not say which of its "
        "free blocks of one size is the oldest, which is taken");
}

plim_status plim_recording_follow(const plim_recording *r, int torch, plim_follow *out,
                                  plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    follower f = {.r = r, .a = &a, .out = out, .err = err};
    *out = (plim_follow){0};
    note_oom(r, out);
    plim_status st = why_not(r, torch, out, err);
    if (st || !out->followed)
        return st;
    if (r->counters)
        return plim_counters_follow(r, torch, out, err);
    f.in_parts = releases_parts(r, torch);
    st = open_pools(&f, torch);
    if (!st && !plim_recording_from_start(r))
        st = restore_pools(&f, torch);
    for (uint32_t i = 0; i < r->n_actions && !st && !has_differed(&f); i++)
        st = follow_action(&f, &i);
    if (!st && !has_differed(&f))
        st = compare_ends(&f);
    out->agrees = !st && !has_differed(&f);
    if (!st && !out->agrees && f.oldest_unknown)
        st = forgive_oldest(&f);
    plim_arena_free(&a);
    return st;
}

plim_status plim_recording_guess_torch(const plim_recording *r, int *torch, plim_follow *out,
                                       plim_err *err)
{
    plim_follow f;
    PLIM_TRY(plim_recording_follow(r, *torch, out, err));
    for (int other = *torch; !out->agrees && !r->counters;) {
        const plim_alloc_rules *rules = plim_alloc_rules_of(other);
        if (rules == plim_alloc_rules_of(1))
            return PLIM_OK;
        other = rules->since - 1;
        PLIM_TRY(plim_recording_follow(r, other, &f, err));
        if (f.agrees) {
            *torch = other;
            *out = f;
        }
    }
    return PLIM_OK;
}

plim_status plim_recording_guess_conf(plim_recording *r, int torch, plim_err *err)
{
    plim_recording other = *r;
    plim_follow f;
    if (!r->counters || r->conf.n)
        return PLIM_OK;
    plim_status st = plim_recording_follow(r, torch, &f, err);
    if (st || !f.followed || f.agrees)
        return st;
    other.conf = PLIM_STR("expandable_segments:True");
    if (!plim_recording_conf_known(&other, torch, NULL))
        return PLIM_OK;
    st = plim_recording_follow(&other, torch, &f, err);
    if (!st && f.agrees)
        r->conf = other.conf;
    return st;
}
