/* vgpu_history.c -- what the allocator holds and has done, as torch.cuda.memory shows it. */
#include "vgpu/vgpu_priv.h"

/* ---- counters ----------------------------------------------------------------- */

static const struct {
    const char *name;
    plim_stat_kind kind;
    size_t at;
} stat_rows[] = {
#define ROW(field, kind)                                                                      \
    {                                                                                         \
#field, kind, offsetof(plim_alloc_stats, field)                                       \
    }
    ROW(allocation, PLIM_STAT_POOLS),
    ROW(segment, PLIM_STAT_POOLS),
    ROW(active, PLIM_STAT_POOLS),
    ROW(inactive_split, PLIM_STAT_POOLS),
    ROW(allocated_bytes, PLIM_STAT_POOLS),
    ROW(reserved_bytes, PLIM_STAT_POOLS),
    ROW(active_bytes, PLIM_STAT_POOLS),
    ROW(inactive_split_bytes, PLIM_STAT_POOLS),
    ROW(requested_bytes, PLIM_STAT_POOLS),
    ROW(oversize_allocations, PLIM_STAT_WHOLE),
    ROW(oversize_segments, PLIM_STAT_WHOLE),
    ROW(num_alloc_retries, PLIM_STAT_NUMBER),
    ROW(num_ooms, PLIM_STAT_NUMBER),
    ROW(num_sync_all_streams, PLIM_STAT_NUMBER),
    ROW(num_device_alloc, PLIM_STAT_NUMBER),
    ROW(num_device_free, PLIM_STAT_NUMBER),
#undef ROW
};

static void read_stats(const plim_vgpu *d, plim_alloc_stats out[3])
{
    plim_alloc_get_stats(d->h, &out[0]);
    plim_alloc_get_pool_stats(d->h, true, &out[1]);
    plim_alloc_get_pool_stats(d->h, false, &out[2]);
}

static plim_stat stat_since(const plim_alloc_stats *now, const plim_alloc_stats *zero,
                            size_t at, plim_stat_kind kind)
{
    const void *n = (const char *)now + at, *z = (const char *)zero + at;
    if (kind == PLIM_STAT_NUMBER)
        return (plim_stat){.current = *(const uint64_t *)n - *(const uint64_t *)z};
    plim_stat s = *(const plim_stat *)n;
    s.allocated -= ((const plim_stat *)z)->allocated;
    s.freed -= ((const plim_stat *)z)->freed;
    return s;
}

uint32_t plim_vgpu_stats(plim_vgpu *d, plim_vgpu_stat *out, uint32_t max)
{
    plim_alloc_stats s[3];
    pthread_mutex_lock(&d->lock);
    read_stats(d, s);
    for (uint32_t i = 0; i < PLIM_COUNT(stat_rows) && i < max; i++) {
        size_t at = stat_rows[i].at;
        plim_stat_kind kind = stat_rows[i].kind;
        out[i] = (plim_vgpu_stat){.name = stat_rows[i].name, .kind = kind};
        out[i].all = stat_since(&s[0], &d->zero[0], at, kind);
        if (kind == PLIM_STAT_POOLS) {
            out[i].small = stat_since(&s[1], &d->zero[1], at, kind);
            out[i].large = stat_since(&s[2], &d->zero[2], at, kind);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return PLIM_COUNT(stat_rows);
}

void plim_vgpu_reset_accumulated(plim_vgpu *d)
{
    pthread_mutex_lock(&d->lock);
    read_stats(d, d->zero);
    pthread_mutex_unlock(&d->lock);
}

/* ---- blocks ------------------------------------------------------------------- */

_Static_assert((int)PLIM_VGPU_BLOCK_FREE == (int)PLIM_BLOCK_FREE &&
                   (int)PLIM_VGPU_BLOCK_ALLOCATED == (int)PLIM_BLOCK_ALLOCATED &&
                   (int)PLIM_VGPU_BLOCK_PENDING == (int)PLIM_BLOCK_PENDING &&
                   (int)PLIM_VGPU_BLOCK_UNMAPPED == (int)PLIM_BLOCK_UNMAPPED,
               "the public numbers are the allocator's own");

uint32_t plim_vgpu_blocks(plim_vgpu *d, plim_vgpu_block *out, uint32_t max)
{
    plim_arena a = PLIM_ARENA_INIT;
    pthread_mutex_lock(&d->lock);
    uint32_t n = plim_alloc_blocks(d->h, NULL, 0), highest = 0;
    plim_alloc_block *b = PLIM_NEW_N(&a, plim_alloc_block, n);
    if (b && max)
        plim_alloc_blocks(d->h, b, n);
    for (uint32_t i = 0; i < d->n_slots; i++)
        if (d->slots[i].block != PLIM_NONE)
            highest = PLIM_MAX(highest, d->slots[i].block);
    uint32_t *owner = PLIM_NEW_N(&a, uint32_t, (uint64_t)highest + 1);
    for (uint32_t i = 0; owner && i < d->n_slots; i++)
        if (d->slots[i].block != PLIM_NONE)
            owner[d->slots[i].block] = i + 1;
    for (uint32_t i = 0; b && owner && i < n && i < max; i++) {
        bool live = b[i].state == PLIM_BLOCK_ALLOCATED && b[i].block <= highest;
        const vgpu_slot *s =
            live && owner[b[i].block] ? &d->slots[owner[b[i].block] - 1] : NULL;
        out[i] = (plim_vgpu_block){.addr = b[i].addr,
                                   .bytes = b[i].bytes,
                                   .requested = b[i].requested,
                                   .stream = b[i].stream,
                                   .state = b[i].state,
                                   .first = b[i].first,
                                   .small = b[i].small,
                                   .expandable = b[i].expandable,
                                   .line = s ? plim__vgpu_line_text(d, s->line) : "",
                                   .op = s ? s->op : ""};
    }
    pthread_mutex_unlock(&d->lock);
    plim_arena_free(&a);
    return b && owner ? n : 0;
}

/* ---- actions ------------------------------------------------------------------ */

/* The allocator did something; the lock is held by whoever made it do so.  Action
 * k lies at k modulo the number that are kept. */
static void watch_action(void *ud, plim_trace_action action, uint64_t addr, uint64_t bytes,
                         uint16_t stream)
{
    plim_vgpu *d = ud;
    bool room = d->n_traces < d->max_traces &&
                PLIM_PUSH_ROOM(&d->history, d->traces, d->n_traces, d->cap_traces);
    if (room)
        d->n_traces++;
    else
        d->max_traces = d->n_traces;
    if (d->n_traces)
        d->traces[d->traced % d->n_traces] =
            (plim_vgpu_trace){.action = plim_trace_action_name(action),
                              .addr = addr,
                              .bytes = bytes,
                              .number = d->traced,
                              .stream = stream,
                              .line = plim__vgpu_line_text(d, d->line_now),
                              .op = d->op_now ? d->op_now : ""};
    d->traced++;
}

void plim_vgpu_history(plim_vgpu *d, uint64_t entries, bool clear)
{
    uint32_t max = (uint32_t)PLIM_MIN(entries, UINT32_MAX);
    pthread_mutex_lock(&d->lock);
    if (clear || (max && max != d->asked_traces)) {
        plim_arena_reset(&d->history);
        d->traces = NULL;
        d->n_traces = d->cap_traces = 0;
        d->traced = 0;
        d->max_traces = d->asked_traces = max;
    }
    plim_alloc_set_watch(d->h, max ? watch_action : NULL, d);
    pthread_mutex_unlock(&d->lock);
}

uint32_t plim_vgpu_traces(plim_vgpu *d, plim_vgpu_trace *out, uint32_t max)
{
    pthread_mutex_lock(&d->lock);
    uint32_t n = d->n_traces;
    for (uint32_t i = 0; i < n && i < max; i++)
        out[i] = d->traces[(d->traced - n + i) % n];
    pthread_mutex_unlock(&d->lock);
    return n;
}
