/* alloc_caching.c -- PyTorch's CUDA caching allocator.
 *
 * A request takes the best fit of its stream and pool, split if the remainder is large enough;
 * a free merges neighbours at once.  If nothing fits, memory is taken from the device; if the
 * device has none, cached segments are released to it in a fixed order and the request is
 * tried again.
 *
 * Ties between equal sizes are broken as the version does (plim_ties).
 *
 * A private pool (CUDA graphs, MemPool) is a stream of its own, which whoever knows of it can
 * hold.  Not simulated: free-memory callbacks. */
#include "alloc/caching.h"

/* ---- sizes --------------------------------------------------------------- */

static uint32_t log2_floor(uint64_t n)
{
    uint32_t l = 0;
    while (n >>= 1)
        l++;
    return l;
}

/* n rounded to a multiple of 1/d of the power of two below it. */
static uint64_t round_division(uint64_t n, uint32_t d)
{
    plim_assert(n > 0);
    uint64_t power = 1ull << log2_floor(n);
    return d <= 1 || n == power ? n : round_up(n, power / d);
}

static uint64_t round_size(const plim_alloc_conf *f, uint64_t n)
{
    if (n < MIN_BLOCK)
        return MIN_BLOCK;
    if (f->divides && n <= f->bypass) {
        uint32_t l = log2_floor(n), i = l < 20 ? 0 : PLIM_MIN(l - 20, PLIM_DIVISIONS - 1);
        uint32_t d = f->division[i];
        if (d >= f->min_division && n > (uint64_t)MIN_BLOCK * d)
            return round_division(n, d);
    }
    return (n + MIN_BLOCK - 1) & ~(uint64_t)(MIN_BLOCK - 1);
}

static uint64_t segment_size(const plim_alloc_conf *f, uint64_t size)
{
    return size <= SMALL_MAX  ? SMALL_SEGMENT
           : size < LARGE_MIN ? f->large_segment
                              : round_up(size, LARGE_ROUND);
}

/* ---- from the pools ------------------------------------------------------ */

static bool gc_active(const caching *c)
{
    return c->base.device.limit != UINT64_MAX && c->base.conf.gc > 0;
}

/* Bytes that a block could have without moving: its own and the address space that follows. */
static uint64_t block_extent(const caching *c, uint32_t b)
{
    const block *x = &c->blocks[b];
    bool grows = x->next != PLIM_NONE && c->blocks[x->next].state == UNMAPPED;
    return x->size + (grows ? c->blocks[x->next].size : 0);
}

/* The best fit lies in an expandable segment.  With expandable segments on, a block that can
 * still grow is taken last; with them off, none is taken. */
static uint32_t fit_expandable(const caching *c, const plim_fs *set, uint32_t b)
{
    plim_assert(b != PLIM_NONE);
    uint32_t next;
    if (!c->base.conf.expandable) {
        while (b != PLIM_NONE && c->blocks[b].virt != PLIM_NONE)
            b = plim_fs_next(c->nodes, set, b);
        return b;
    }
    while (c->blocks[b].virt != PLIM_NONE &&
           (next = plim_fs_next(c->nodes, set, b)) != PLIM_NONE &&
           block_extent(c, next) < block_extent(c, b))
        b = next;
    return b;
}

/* Takes the best fit out of its set; PLIM_NONE if nothing fits. */
static uint32_t take_cached(caching *c, const request *r)
{
    const plim_alloc_conf *f = &c->base.conf;
    const plim_fs *set = c->streams[r->stream].free[r->pool];
    if (gc_active(c))
        c->requests[r->pool]++;
    uint32_t b = plim_fs_fit(c->nodes, set, r->size);
    if (b != PLIM_NONE && c->blocks[b].virt != PLIM_NONE)
        b = fit_expandable(c, set, b);
    if (b == PLIM_NONE)
        return PLIM_NONE;
    uint64_t size = c->blocks[b].size;
    bool oversize = r->size >= f->max_split;
    if (oversize ? size - r->size >= f->max_non_split_slack : size >= f->max_split)
        return PLIM_NONE;
    plim__set_erase(c, b);
    return b;
}

/* ---- from the device ----------------------------------------------------- */

static uint32_t cuda_malloc(caching *c, const request *r)
{
    uint64_t addr = 0;
    block fresh = {.size = r->segment,
                   .prev = PLIM_NONE,
                   .next = PLIM_NONE,
                   .uses = PLIM_NONE,
                   .virt = PLIM_NONE,
                   .number = ++c->last_number,
                   .stream = r->stream,
                   .state = FREE,
                   .pool = r->pool};
    if (!plim_device_take(&c->base.device, r->segment, &addr)) {
        c->base.full |= c->base.device.full;
        return PLIM_NONE;
    }
    uint32_t b = plim__block_new(c, &fresh, addr);
    if (b != PLIM_NONE) {
        plim__count_segment(c, r->pool, r->segment);
        c->base.stats.num_device_alloc++;
        plim__tell(c, PLIM_TRACE_SEGMENT_ALLOC, addr, r->segment, r->stream);
    }
    return b;
}

/* ---- malloc -------------------------------------------------------------- */

static uint32_t try_device(caching *c, const request *r)
{
    if (!plim_device_allows(&c->base.device, r->segment)) /* expandable or not */
        return PLIM_NONE;
    return c->base.conf.expandable ? plim__expand(c, r) : cuda_malloc(c, r);
}

static uint32_t take_new(caching *c, const request *r)
{
    if (gc_active(c))
        plim__collect_garbage(c);
    uint32_t b = try_device(c, r);
    if (b == PLIM_NONE && !c->base.full && plim__release_oversize(c, r))
        b = try_device(c, r);
    if (b == PLIM_NONE && !c->base.full) {
        plim__release_cached(c);
        c->base.stats.num_alloc_retries++;
        b = try_device(c, r);
    }
    return b;
}

static bool should_split(const caching *c, const request *r, uint64_t rest)
{
    if (r->pool == SMALL || c->base.conf.expandable)
        return rest >= MIN_BLOCK;
    return r->size < c->base.conf.max_split && rest > SMALL_MAX;
}

/* Hands out a block that fits; the excess goes back to the pool. */
static void serve_block(caching *c, const request *r, uint32_t b)
{
    plim_assert(c->blocks[b].size >= r->size && r->size >= r->bytes);
    bool counts = c->blocks[b].virt == PLIM_NONE, was_split = is_split(&c->blocks[b]);
    if (should_split(c, r, c->blocks[b].size - r->size)) {
        uint32_t rest = plim__block_cut_first(c, b, r->size);
        if (rest == PLIM_NONE)
            return;
        plim__set_insert(c, rest, FREE);
        if (counts && was_split) {
            STAT_DOWN(c, r->pool, inactive_split_bytes, r->size);
        } else if (counts) {
            STAT_UP(c, r->pool, inactive_split_bytes, c->blocks[rest].size);
            STAT_UP(c, r->pool, inactive_split, 1);
        }
    } else if (counts && was_split) {
        STAT_DOWN(c, r->pool, inactive_split_bytes, c->blocks[b].size);
        STAT_DOWN(c, r->pool, inactive_split, 1);
    }
    plim__count_block(c, b, r->bytes);
    plim__tell(c, PLIM_TRACE_ALLOC, c->nodes[b].addr, r->bytes, r->stream);
}

static request request_of(const plim_alloc *h, uint64_t bytes, uint16_t number)
{
    request r = {.bytes = bytes, .size = round_size(&h->conf, bytes), .stream = number};
    r.pool = r.size <= SMALL_MAX ? SMALL : LARGE;
    return r;
}

static uint64_t caching_block_bytes(const plim_alloc *h, uint64_t bytes, uint64_t room)
{
    const request r = request_of(h, bytes, 0);
    if (r.size > room)
        return UINT64_MAX;
    return should_split((const caching *)h, &r, room - r.size) ? r.size : room;
}

static plim_status caching_alloc(plim_alloc *h, uint64_t bytes, uint16_t number, uint32_t *out,
                                 plim_err *err)
{
    caching *c = (caching *)h;
    if (number >= c->n_streams && !plim__stream_ready(c, number))
        return plim_oom(err);
    if (c->any_done)
        plim__process_events(c);
    request r = request_of(h, bytes, number);
    if (!plim__set_ready(c, &c->streams[number].free[r.pool]))
        return plim_oom(err);
    uint32_t b = take_cached(c, &r);
    if (b == PLIM_NONE) {
        r.segment = segment_size(&h->conf, r.size);
        b = take_new(c, &r);
    }
    if (b != PLIM_NONE)
        serve_block(c, &r, b);
    if (h->full)
        return plim_oom(err);
    if (b == PLIM_NONE) {
        plim_alloc_note_oom(h, bytes, r.segment);
        plim__tell(c, PLIM_TRACE_OOM, h->oom.free, r.size, number);
    }
    *out = b;
    return PLIM_OK;
}

/* ---- free ---------------------------------------------------------------- */

static plim_status caching_release(plim_alloc *h, uint32_t b, plim_err *err)
{
    caching *c = (caching *)h;
    plim_alloc_stats *s = &h->stats;
    const block *x = &c->blocks[b];
    (void)err;
    plim_assert(b < c->n_blocks && x->state == ALLOCATED);
    STAT_DOWN(c, x->pool, allocation, 1);
    STAT_DOWN(c, x->pool, allocated_bytes, x->size);
    h->live_requested -= x->requested;
    if (x->size >= h->conf.max_split && s->oversize_allocations.current)
        plim_stat_down(&s->oversize_allocations, 1);
    plim__tell(c, PLIM_TRACE_FREE_REQUESTED, c->nodes[b].addr, x->requested, x->stream);
    if (x->uses == PLIM_NONE)
        plim__put_back(c, b);
    else
        plim__queue_events(c, b);
    return PLIM_OK;
}

/* ---- streams ------------------------------------------------------------- */

static plim_status caching_record_stream(plim_alloc *h, uint32_t b, uint16_t number,
                                         plim_err *err)
{
    caching *c = (caching *)h;
    plim_assert(b < c->n_blocks && c->blocks[b].state == ALLOCATED);
    if (number == c->blocks[b].stream)
        return PLIM_OK;
    for (uint32_t l = c->blocks[b].uses; l != PLIM_NONE; l = c->links[l].next)
        if (c->links[l].value == number)
            return PLIM_OK;
    if (!plim__stream_ready(c, number))
        return plim_oom(err);
    uint32_t l = c->unused_link;
    if (l != PLIM_NONE) {
        c->unused_link = c->links[l].next;
    } else {
        if (!PLIM_PUSH_ROOM(h->arena, c->links, c->n_links, c->cap_links))
            return plim_oom(err);
        l = c->n_links++;
    }
    c->links[l] = (link){number, c->blocks[b].uses};
    c->blocks[b].uses = l;
    return PLIM_OK;
}

static void caching_stream_done(plim_alloc *h, uint16_t number)
{
    caching *c = (caching *)h;
    uint32_t first = number == PLIM_ALL_STREAMS ? 0 : number;
    uint32_t end = number == PLIM_ALL_STREAMS ? c->n_streams : number + 1u;
    for (uint32_t i = first; i < end && i < c->n_streams && c->n_queued; i++) {
        c->streams[i].done = c->streams[i].queued;
        c->any_done |= c->streams[i].done > 0;
    }
}

static plim_status caching_hold(plim_alloc *h, uint16_t number, bool held, plim_err *err)
{
    caching *c = (caching *)h;
    if (!plim__stream_ready(c, number))
        return plim_oom(err);
    c->streams[number].held = held;
    return PLIM_OK;
}

static plim_status caching_empty_cache(plim_alloc *h, plim_err *err)
{
    plim__release_cached((caching *)h);
    return h->full ? plim_oom(err) : PLIM_OK;
}

/* ---- looking inside ------------------------------------------------------ */

static uint64_t caching_address(const plim_alloc *h, uint32_t b)
{
    plim_assert(b < ((const caching *)h)->n_blocks);
    return ((const caching *)h)->nodes[b].addr;
}

static uint32_t caching_blocks(const plim_alloc *h, plim_alloc_block *out, uint32_t max)
{
    static const uint8_t states[] = {[FREE] = PLIM_BLOCK_FREE,
                                     [ALLOCATED] = PLIM_BLOCK_ALLOCATED,
                                     [PENDING] = PLIM_BLOCK_PENDING,
                                     [UNMAPPED] = PLIM_BLOCK_UNMAPPED};
    const caching *c = (const caching *)h;
    uint32_t n = 0;
    for (uint32_t b = 0; b < c->n_blocks; b++) {
        const block *x = &c->blocks[b];
        bool live = x->state == ALLOCATED || x->state == PENDING;
        if (x->state != UNUSED && n++ < max)
            out[n - 1] = (plim_alloc_block){.addr = c->nodes[b].addr,
                                            .bytes = x->size,
                                            .requested = live ? x->requested : 0,
                                            .block = b,
                                            .stream = x->stream,
                                            .state = states[x->state],
                                            .small = x->pool == SMALL,
                                            .expandable = x->virt != PLIM_NONE,
                                            .first = x->prev == PLIM_NONE};
    }
    plim_alloc_sort_blocks(out, PLIM_MIN(n, max));
    return n;
}

static plim_status caching_create(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                                  plim_err *err)
{
    caching *c = PLIM_NEW(a, caching);
    if (!c)
        return plim_oom(err);
    plim_alloc_options placed = *o;
    c->ties = plim_alloc_rules_of(o->torch)->ties;
    if (!o->placement && c->ties != PLIM_TIES_ADDRESS) /* then nothing depends on it */
        placed.placement = &plim_placement_upward;
    PLIM_TRY(plim_alloc_base_init(&c->base, a, &placed, &plim_allocator_caching, err));
    c->unused_block = c->unused_link = c->unused_virt = PLIM_NONE;
    *out = &c->base;
    return PLIM_OK;
}

const plim_allocator plim_allocator_caching = {
    .name = "caching",
    .doc = "PyTorch's CUDA caching allocator, 1.8 to 2.15, byte for byte",
    .src = "c10/cuda/CUDACachingAllocator.cpp; docs/sources/caching-allocator.md",
    .backend = "native",
    .create = caching_create,
    .restore = plim__caching_restore,
    .block_bytes = caching_block_bytes,
    .alloc = caching_alloc,
    .release = caching_release,
    .record_stream = caching_record_stream,
    .stream_done = caching_stream_done,
    .hold = caching_hold,
    .empty_cache = caching_empty_cache,
    .give_back = plim__give_back,
    .blocks = caching_blocks,
    .address = caching_address,
};
