/* caching_restore.c -- the caching allocator of a program that runs: see plim_alloc_restore. */
#include "alloc/caching.h"

/* The address space of an expandable segment; PLIM_NONE: no memory. */
static uint32_t restore_virt(caching *c, const plim_alloc_block *b)
{
    if (!PLIM_PUSH_ROOM(c->base.arena, c->virts, c->n_virts, c->cap_virts))
        return PLIM_NONE;
    const uint64_t page = b->small ? SMALL_SEGMENT : c->base.conf.large_segment;
    c->virts[c->n_virts] = (virt){.base = b->addr, .page = page};
    return c->n_virts++;
}

/* The first block of a segment, like which all of it are, or the one after `prev`. */
static uint32_t restore_block(caching *c, const plim_alloc_block *b, uint32_t prev)
{
    block fresh = {.size = b->bytes,
                   .prev = prev,
                   .next = PLIM_NONE,
                   .uses = PLIM_NONE,
                   .virt = PLIM_NONE,
                   .stream = b->stream,
                   .pool = b->small ? SMALL : LARGE};
    if (prev == PLIM_NONE) {
        fresh.number = ++c->last_number;
        if (b->expandable && (fresh.virt = restore_virt(c, b)) == PLIM_NONE)
            return PLIM_NONE;
    } else {
        const block *before = &c->blocks[prev];
        plim_assert(before->stream == fresh.stream && before->pool == fresh.pool);
        plim_assert(c->nodes[prev].addr + before->size == b->addr);
        fresh.number = before->number;
        fresh.virt = before->virt;
    }
    uint32_t at = plim__block_new(c, &fresh, b->addr);
    if (at != PLIM_NONE && prev != PLIM_NONE)
        c->blocks[prev].next = at;
    return at;
}

/* The block is in its chain: its place in the sets, and the counters. */
static void restore_state(caching *c, const plim_alloc_block *b)
{
    const uint32_t at = b->block;
    const block *x = &c->blocks[at];
    if (b->state == PLIM_BLOCK_UNMAPPED)
        plim__set_insert(c, at, UNMAPPED);
    else if (b->state != PLIM_BLOCK_FREE)
        plim__count_block(c, at, b->requested);
    else
        plim__set_insert(c, at, FREE);
    if (b->state == PLIM_BLOCK_FREE && x->virt == PLIM_NONE && is_split(x)) {
        STAT_UP(c, x->pool, inactive_split, 1);
        STAT_UP(c, x->pool, inactive_split_bytes, x->size);
    }
}

/* Room for what the segment's blocks are, and will be. */
static bool restore_sets(caching *c, const plim_alloc_block *b)
{
    const uint32_t pool = b->small ? SMALL : LARGE;
    return plim__stream_ready(c, b->stream) &&
           plim__set_ready(c, &c->streams[b->stream].free[pool]) &&
           (!b->expandable || plim__set_ready(c, &c->streams[b->stream].unmapped[pool]));
}

/* A segment: its blocks from `first` to before `end`. */
static bool restore_segment(caching *c, plim_alloc_block *b, uint32_t first, uint32_t end)
{
    uint64_t mapped = 0;
    uint32_t prev = PLIM_NONE;
    for (uint32_t i = first; i < end; i++) {
        if ((prev = b[i].block = restore_block(c, &b[i], prev)) == PLIM_NONE)
            return false;
        mapped += b[i].state == PLIM_BLOCK_UNMAPPED ? 0 : b[i].bytes;
    }
    for (uint32_t i = first; i < end; i++)
        restore_state(c, &b[i]);
    const uint32_t pool = b[first].small ? SMALL : LARGE;
    c->base.device.used += mapped;
    c->base.device.held = PLIM_MAX(c->base.device.held, c->base.device.used);
    if (!b[first].expandable)
        plim__count_segment(c, pool, mapped);
    else
        STAT_UP(c, pool, reserved_bytes, mapped);
    return true;
}

plim_status plim__caching_restore(plim_alloc *h, plim_alloc_block *blocks, uint32_t n,
                                  plim_err *err)
{
    caching *c = (caching *)h;
    plim_assert(!c->n_blocks);
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !blocks[end].first;)
            end++;
        if (!restore_sets(c, &blocks[i]) || !restore_segment(c, blocks, i, end))
            return plim_oom(err);
    }
    return PLIM_OK;
}
