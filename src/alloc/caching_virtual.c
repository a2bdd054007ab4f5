/* caching_virtual.c -- expandable segments: address space larger than the device's memory,
 * mapped page by page.  See caching.h.
 * src: docs/sources/caching-allocator.md 10 */
#include "alloc/caching.h"

/* Reserves address space for one more segment: nine eighths of the device, in whole pages, all
 * of it unmapped.  PLIM_NONE: even that is too small. */
static uint32_t virt_new(caching *c, const request *r)
{
    plim_device *d = &c->base.device;
    bool unlimited = d->capacity == PLIM_DEVICE_UNLIMITED;
    uint64_t total = unlimited ? 1ull << 46 : d->total; /* 64 TiB if there is no limit */
    uint64_t page = r->pool == SMALL ? SMALL_SEGMENT : c->base.conf.large_segment, addr = 0;
    uint64_t size = round_up(total + total / 8, page);
    d->asked = true;
    if (unlimited)
        size = PLIM_MAX(size, round_up(r->size, page));
    if (size < r->size || !plim_device_reserve(&c->base.device, size, &addr) ||
        !plim__set_ready(c, &c->streams[r->stream].unmapped[r->pool]))
        return PLIM_NONE;
    uint32_t v = c->unused_virt;
    if (v != PLIM_NONE) {
        c->unused_virt = c->virts[v].next_unused;
    } else {
        if (!PLIM_PUSH_ROOM(c->base.arena, c->virts, c->n_virts, c->cap_virts)) {
            c->base.full = true;
            return PLIM_NONE;
        }
        v = c->n_virts++;
    }
    c->virts[v] = (virt){.base = addr, .page = page};
    block fresh = {.size = size,
                   .prev = PLIM_NONE,
                   .next = PLIM_NONE,
                   .uses = PLIM_NONE,
                   .virt = v,
                   .number = ++c->last_number,
                   .stream = r->stream,
                   .pool = r->pool};
    uint32_t b = plim__block_new(c, &fresh, addr);
    if (b != PLIM_NONE)
        plim__set_insert(c, b, UNMAPPED);
    return b;
}

/* Whether there are `size` bytes of free and unmapped blocks from b on. */
static bool has_room(const caching *c, uint32_t b, uint64_t size)
{
    uint64_t bytes = 0;
    for (; bytes < size && b != PLIM_NONE && is_room(&c->blocks[b]); b = c->blocks[b].next)
        bytes += c->blocks[b].size;
    return bytes >= size;
}

/* The lowest such place; it may begin with the free block before unmapped space. */
static uint32_t find_room(caching *c, const request *r)
{
    const plim_fs *set = c->streams[r->stream].unmapped[r->pool];
    for (uint32_t u = plim_fs_first(c->nodes, set); u != PLIM_NONE;
         u = plim_fs_next(c->nodes, set, u)) {
        uint32_t prev = c->blocks[u].prev;
        uint32_t b = prev != PLIM_NONE && is_room(&c->blocks[prev]) ? prev : u;
        if (has_room(c, b, r->size))
            return b;
    }
    return virt_new(c, r);
}

/* Maps the first whole pages of an unmapped block that hold `size` bytes; they become a free
 * block, merged with its neighbours. */
static bool map_block(caching *c, uint32_t b, uint64_t size)
{
    plim_assert(c->blocks[b].state == UNMAPPED && size && size <= c->blocks[b].size);
    uint64_t bytes = round_up(size, c->virts[c->blocks[b].virt].page);
    if (!plim_device_take(&c->base.device, bytes, NULL))
        return false;
    plim__tell(c, PLIM_TRACE_SEGMENT_MAP, c->nodes[b].addr, bytes, c->blocks[b].stream);
    plim__set_erase(c, b);
    if (bytes < c->blocks[b].size) {
        uint32_t rest = plim__block_cut(c, b, bytes);
        if (rest == PLIM_NONE)
            return false;
        plim__set_insert(c, rest, UNMAPPED);
    }
    plim__block_absorb(c, b, c->blocks[b].prev, FREE);
    plim__block_absorb(c, b, c->blocks[b].next, FREE);
    plim__set_insert(c, b, FREE);
    STAT_UP(c, c->blocks[b].pool, reserved_bytes, bytes);
    c->base.stats.num_device_alloc++;
    return true;
}

uint32_t plim__expand(caching *c, const request *r)
{
    uint32_t b = find_room(c, r);
    if (b == PLIM_NONE)
        return PLIM_NONE;
    if (c->blocks[b].state == UNMAPPED &&
        !map_block(c, b, PLIM_MIN(c->blocks[b].size, r->size)))
        return PLIM_NONE;
    while (c->blocks[b].size < r->size) {
        uint64_t missing = r->size - c->blocks[b].size;
        b = c->blocks[b].next; /* unmapped: merged with the free block before it */
        if (!map_block(c, b, PLIM_MIN(missing, c->blocks[b].size)))
            return PLIM_NONE;
    }
    plim_assert(c->blocks[b].state == FREE && c->blocks[b].size >= r->size);
    plim__set_erase(c, b);
    return b;
}

void plim__unmap_block(caching *c, uint32_t b)
{
    plim_assert(c->blocks[b].state == FREE && c->blocks[b].virt < c->n_virts);
    uint32_t v = c->blocks[b].virt;
    uint64_t page = c->virts[v].page, base = c->virts[v].base;
    uint64_t at = c->nodes[b].addr - base, end = at + c->blocks[b].size;
    plim_assert(base <= c->nodes[b].addr);
    uint64_t first = round_up(at, page), last = end / page * page;
    if (last <= first)
        return;
    plim__tell(c, PLIM_TRACE_SEGMENT_UNMAP, base + first, last - first, c->blocks[b].stream);
    plim__set_erase(c, b);
    if (first > at) {
        uint32_t head = b;
        b = plim__block_cut_first(c, head, first - at);
        if (b == PLIM_NONE)
            return;
        plim__set_insert(c, head, FREE);
    }
    if (last < end) {
        uint32_t rest = plim__block_cut(c, b, last - first);
        if (rest == PLIM_NONE)
            return;
        plim__set_insert(c, rest, FREE);
    }
    plim__block_absorb(c, b, c->blocks[b].prev, UNMAPPED);
    plim__block_absorb(c, b, c->blocks[b].next, UNMAPPED);
    plim_device_give(&c->base.device, last - first, NULL);
    STAT_DOWN(c, c->blocks[b].pool, reserved_bytes, last - first);
    c->base.stats.num_device_free++;
    if (is_split(&c->blocks[b])) {
        plim__set_insert(c, b, UNMAPPED);
    } else { /* the whole segment: its addresses are released too */
        c->virts[v].next_unused = c->unused_virt;
        c->unused_virt = v;
        plim__block_drop(c, b);
    }
}
