/* caching_block.c -- blocks and the sets of free ones: see caching.h. */
#include "alloc/caching.h"

uint32_t plim__block_new(caching *c, const block *like, uint64_t addr)
{
    block copy = *like; /* `like` may be in the array that grows */
    uint32_t b = c->unused_block;
    if (b != PLIM_NONE) {
        c->unused_block = c->blocks[b].next;
    } else {
        if (!PLIM_PUSH_ROOM(c->base.arena, c->blocks, c->n_blocks, c->cap_blocks) ||
            !PLIM_PUSH_ROOM(c->base.arena, c->nodes, c->n_blocks, c->cap_nodes)) {
            c->base.full = true;
            return PLIM_NONE;
        }
        b = c->n_blocks++;
    }
    if (c->ties == PLIM_TIES_BLOCK)
        copy.number = ++c->last_number;
    plim_assert(c->cap_nodes >= c->n_blocks && copy.size > 0);
    c->blocks[b] = copy;
    c->nodes[b] = (plim_fs_node){.addr = addr, .left = PLIM_NONE, .right = PLIM_NONE};
    return b;
}

void plim__block_drop(caching *c, uint32_t b)
{
    plim_assert(c->blocks[b].state != UNUSED);
    c->blocks[b].state = UNUSED;
    c->blocks[b].next = c->unused_block;
    c->unused_block = b;
}

bool plim__set_ready(caching *c, plim_fs **set)
{
    if (!*set && !(*set = plim_fs_new(c->base.arena)))
        c->base.full = true;
    return *set != NULL;
}

static plim_fs *set_of(const caching *c, const block *b)
{
    const stream *s = &c->streams[b->stream];
    return b->state == UNMAPPED ? s->unmapped[b->pool] : s->free[b->pool];
}

void plim__set_insert(caching *c, uint32_t b, state st)
{
    plim_assert(c->blocks[b].size > 0);
    block *x = &c->blocks[b];
    plim_assert(st == FREE || st == UNMAPPED);
    x->state = (uint8_t)st;
    x->born = c->requests[x->pool];
    c->nodes[b].key = st == UNMAPPED ? 0 : x->size;
    c->nodes[b].rank = st == FREE && c->ties != PLIM_TIES_ADDRESS ? x->number : 0;
    c->n_big[x->pool] += st == FREE && is_big(x);
    plim_fs_insert(c->nodes, set_of(c, x), b);
}

void plim__set_erase(caching *c, uint32_t b)
{
    plim_assert(b < c->n_blocks);
    const block *x = &c->blocks[b];
    plim_assert(is_room(x));
    c->n_big[x->pool] -= x->state == FREE && is_big(x);
    plim_fs_erase(c->nodes, set_of(c, x), b);
}

uint64_t plim__block_absorb(caching *c, uint32_t dst, uint32_t src, state st)
{
    if (src == PLIM_NONE || c->blocks[src].state != st)
        return 0;
    block *d = &c->blocks[dst], *s = &c->blocks[src];
    plim_assert(d->prev == src || d->next == src);
    plim_assert(d->stream == s->stream && d->pool == s->pool && d->virt == s->virt);
    plim__set_erase(c, src);
    if (d->prev == src) {
        c->nodes[dst].addr = c->nodes[src].addr;
        d->prev = s->prev;
        if (d->prev != PLIM_NONE)
            c->blocks[d->prev].next = dst;
    } else {
        d->next = s->next;
        if (d->next != PLIM_NONE)
            c->blocks[d->next].prev = dst;
    }
    uint64_t gained = s->size;
    d->size += gained;
    plim__block_drop(c, src);
    return gained;
}

uint32_t plim__block_cut(caching *c, uint32_t b, uint64_t size)
{
    plim_assert(size && size < c->blocks[b].size);
    uint32_t rest = plim__block_new(c, &c->blocks[b], c->nodes[b].addr + size);
    if (rest == PLIM_NONE)
        return PLIM_NONE;
    block *x = &c->blocks[b], *r = &c->blocks[rest];
    r->size -= size;
    r->requested = 0;
    r->prev = b;
    if (r->next != PLIM_NONE)
        c->blocks[r->next].prev = rest;
    x->size = size;
    x->next = rest;
    return rest;
}

uint32_t plim__block_cut_first(caching *c, uint32_t b, uint64_t size)
{
    uint32_t rest = plim__block_cut(c, b, size);
    if (rest == PLIM_NONE)
        return PLIM_NONE;
    uint32_t number = c->blocks[b].number;
    c->blocks[b].number = c->blocks[rest].number;
    c->blocks[rest].number = number;
    return rest;
}

void plim__cuda_free(caching *c, uint32_t b)
{
    plim_alloc_stats *s = &c->base.stats;
    uint64_t size = c->blocks[b].size;
    uint32_t pool = c->blocks[b].pool;
    plim_assert(c->blocks[b].state == FREE && is_whole_segment(&c->blocks[b]));
    plim__tell(c, PLIM_TRACE_SEGMENT_FREE, c->nodes[b].addr, size, c->blocks[b].stream);
    plim__set_erase(c, b);
    plim_device_give(&c->base.device, size, &c->nodes[b].addr);
    plim__block_drop(c, b);
    STAT_DOWN(c, pool, segment, 1);
    STAT_DOWN(c, pool, reserved_bytes, size);
    if (size >= c->base.conf.max_split && s->oversize_segments.current)
        plim_stat_down(&s->oversize_segments, 1);
    s->num_device_free++;
}

bool plim__stream_ready(caching *c, uint16_t number)
{
    while (c->n_streams <= number) {
        if (!PLIM_PUSH_ROOM(c->base.arena, c->streams, c->n_streams, c->cap_streams))
            return false;
        c->streams[c->n_streams++] = (stream){.head = PLIM_NONE, .tail = PLIM_NONE};
    }
    return true;
}

void plim__count_segment(caching *c, uint32_t pool, uint64_t bytes)
{
    plim_assert(bytes >= MIN_BLOCK && pool < POOLS);
    STAT_UP(c, pool, segment, 1);
    STAT_UP(c, pool, reserved_bytes, bytes);
    if (bytes >= c->base.conf.max_split)
        plim_stat_up(&c->base.stats.oversize_segments, 1);
}

void plim__count_block(caching *c, uint32_t b, uint64_t requested)
{
    block *x = &c->blocks[b];
    plim_assert(x->uses == PLIM_NONE && !x->events && x->size >= requested);
    x->state = ALLOCATED;
    x->requested = requested;
    STAT_UP(c, x->pool, allocation, 1);
    STAT_UP(c, x->pool, allocated_bytes, x->size);
    STAT_UP(c, x->pool, active, 1);
    STAT_UP(c, x->pool, active_bytes, x->size);
    STAT_UP(c, x->pool, requested_bytes, requested);
    c->base.live_requested += requested;
    if (x->size >= c->base.conf.max_split)
        plim_stat_up(&c->base.stats.oversize_allocations, 1);
}
