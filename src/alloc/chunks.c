/* chunks.c -- see chunks.h. */
#include "alloc/chunks.h"

/* ---- the list and the set of free chunks ---------------------------------- */

static bool is_split(const plim_chunk *x)
{
    return x->prev != PLIM_NONE || x->next != PLIM_NONE;
}

/* A new chunk, in no set; PLIM_NONE and base.full: no memory. */
static uint32_t add_chunk(plim_chunks *c, uint64_t addr, uint64_t size)
{
    plim_assert(size > 0);
    uint32_t i = c->unused;
    if (i != PLIM_NONE) {
        c->unused = c->items[i].next;
    } else {
        if (!PLIM_PUSH_ROOM(c->base.arena, c->items, c->n, c->cap) ||
            !PLIM_PUSH_ROOM(c->base.arena, c->nodes, c->n, c->cap_nodes)) {
            c->base.full = true;
            return PLIM_NONE;
        }
        i = c->n++;
    }
    c->items[i] = (plim_chunk){.prev = PLIM_NONE, .next = PLIM_NONE, .state = PLIM_CHUNK_FREE};
    c->nodes[i] =
        (plim_fs_node){.key = size, .addr = addr, .left = PLIM_NONE, .right = PLIM_NONE};
    return i;
}

static void drop_chunk(plim_chunks *c, uint32_t i)
{
    plim_assert(c->items[i].state != PLIM_CHUNK_UNUSED);
    c->items[i] = (plim_chunk){.next = c->unused};
    c->unused = i;
}

/* A free chunk of a region that is not entirely free is what PyTorch calls an inactive split. */
static void put_free(plim_chunks *c, uint32_t i)
{
    plim_assert(c->nodes[i].key > 0);
    c->items[i].state = PLIM_CHUNK_FREE;
    plim_fs_insert(c->nodes, c->free, i);
    if (is_split(&c->items[i])) {
        plim_stat_up(&c->base.stats.inactive_split, 1);
        plim_stat_up(&c->base.stats.inactive_split_bytes, c->nodes[i].key);
    }
}

static void take_free(plim_chunks *c, uint32_t i)
{
    plim_assert(c->items[i].state == PLIM_CHUNK_FREE);
    plim_fs_erase(c->nodes, c->free, i);
    if (is_split(&c->items[i])) {
        plim_stat_down(&c->base.stats.inactive_split, 1);
        plim_stat_down(&c->base.stats.inactive_split_bytes, c->nodes[i].key);
    }
}

/* ---- regions --------------------------------------------------------------- */

bool plim__chunks_grow(plim_chunks *c, uint64_t bytes)
{
    uint64_t addr = 0;
    if (!plim_device_take(&c->base.device, bytes, &addr))
        return false;
    uint32_t i = add_chunk(c, addr, bytes);
    if (i == PLIM_NONE)
        return false;
    put_free(c, i);
    plim_stat_up(&c->base.stats.segment, 1);
    plim_stat_up(&c->base.stats.reserved_bytes, bytes);
    c->base.stats.num_device_alloc++;
    return true;
}

static bool is_idle(const plim_chunk *x)
{
    return x->state == PLIM_CHUNK_FREE && !is_split(x);
}

uint64_t plim__chunks_idle(const plim_chunks *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n; i++)
        bytes += is_idle(&c->items[i]) ? c->nodes[i].key : 0;
    return bytes;
}

void plim__chunks_shrink(plim_chunks *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t bytes = c->nodes[i].key;
        if (!is_idle(&c->items[i]))
            continue;
        take_free(c, i);
        plim_device_give(&c->base.device, bytes, &c->nodes[i].addr);
        drop_chunk(c, i);
        plim_stat_down(&c->base.stats.segment, 1);
        plim_stat_down(&c->base.stats.reserved_bytes, bytes);
        c->base.stats.num_device_free++;
    }
}

/* ---- requests -------------------------------------------------------------- */

uint32_t plim__chunks_fit(const plim_chunks *c, uint64_t size)
{
    return plim_fs_fit(c->nodes, c->free, size);
}

/* Leaves the first `size` bytes to the chunk; the rest becomes a free one after it. */
static bool cut_chunk(plim_chunks *c, uint32_t i, uint64_t size)
{
    plim_assert(size > 0 && size < c->nodes[i].key);
    uint32_t rest = add_chunk(c, c->nodes[i].addr + size, c->nodes[i].key - size);
    if (rest == PLIM_NONE)
        return false;
    c->nodes[i].key = size;
    c->items[rest].prev = i;
    c->items[rest].next = c->items[i].next;
    if (c->items[rest].next != PLIM_NONE)
        c->items[c->items[rest].next].prev = rest;
    c->items[i].next = rest;
    put_free(c, rest);
    return true;
}

static void count_chunk(plim_chunks *c, uint32_t i, void (*move)(plim_stat *s, uint64_t n))
{
    plim_alloc_stats *s = &c->base.stats;
    uint64_t size = c->nodes[i].key;
    move(&s->allocation, 1);
    move(&s->active, 1);
    move(&s->allocated_bytes, size);
    move(&s->active_bytes, size);
    move(&s->requested_bytes, c->items[i].requested);
}

void plim__chunks_serve(plim_chunks *c, uint32_t i, uint64_t size, bool cut,
                        uint64_t requested, uint16_t stream)
{
    plim_assert(size <= c->nodes[i].key && requested <= size);
    take_free(c, i);
    if (cut && size < c->nodes[i].key && !cut_chunk(c, i, size))
        return;
    plim_chunk *x = &c->items[i];
    x->state = PLIM_CHUNK_LIVE;
    x->requested = requested;
    x->stream = stream;
    count_chunk(c, i, plim_stat_up);
    c->base.live_requested += requested;
}

/* Merges `next`, which is in no set, into the chunk before it, which is in none either. */
static uint32_t join_chunks(plim_chunks *c, uint32_t next)
{
    uint32_t i = c->items[next].prev;
    plim_assert(c->nodes[i].addr + c->nodes[i].key == c->nodes[next].addr);
    plim_assert(i != PLIM_NONE && c->items[i].next == next);
    c->nodes[i].key += c->nodes[next].key;
    c->items[i].next = c->items[next].next;
    if (c->items[i].next != PLIM_NONE)
        c->items[c->items[i].next].prev = i;
    drop_chunk(c, next);
    return i;
}

static bool is_free(const plim_chunks *c, uint32_t i)
{
    return i != PLIM_NONE && c->items[i].state == PLIM_CHUNK_FREE;
}

plim_status plim__chunks_release(plim_alloc *h, uint32_t i, plim_err *err)
{
    plim_chunks *c = (plim_chunks *)h;
    uint32_t prev = c->items[i].prev, next = c->items[i].next;
    (void)err;
    plim_assert(i < c->n && c->items[i].state == PLIM_CHUNK_LIVE);
    count_chunk(c, i, plim_stat_down);
    plim_assert(h->live_requested >= c->items[i].requested);
    h->live_requested -= c->items[i].requested;
    if (is_free(c, next)) {
        take_free(c, next);
        i = join_chunks(c, next);
    }
    if (is_free(c, prev)) {
        take_free(c, prev);
        i = join_chunks(c, i);
    }
    put_free(c, i);
    return PLIM_OK;
}

/* ---- looking inside -------------------------------------------------------- */

uint64_t plim__chunks_address(const plim_alloc *h, uint32_t i)
{
    plim_assert(i < ((const plim_chunks *)h)->n);
    return ((const plim_chunks *)h)->nodes[i].addr;
}

uint32_t plim__chunks_blocks(const plim_alloc *h, plim_alloc_block *out, uint32_t max)
{
    const plim_chunks *c = (const plim_chunks *)h;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const plim_chunk *x = &c->items[i];
        bool live = x->state == PLIM_CHUNK_LIVE;
        if (x->state != PLIM_CHUNK_UNUSED && n++ < max)
            out[n - 1] =
                (plim_alloc_block){.addr = c->nodes[i].addr,
                                   .bytes = c->nodes[i].key,
                                   .requested = live ? x->requested : 0,
                                   .block = i,
                                   .stream = x->stream,
                                   .state = live ? PLIM_BLOCK_ALLOCATED : PLIM_BLOCK_FREE,
                                   .first = x->prev == PLIM_NONE};
    }
    plim_alloc_sort_blocks(out, PLIM_MIN(n, max));
    return n;
}

plim_status plim__chunks_init(plim_chunks *c, plim_arena *a, const plim_alloc_options *o,
                              const plim_allocator *ops, plim_err *err)
{
    plim_alloc_options upward = *o; /* where their regions lie was not seen */
    upward.placement = &plim_placement_upward;
    PLIM_TRY(plim_alloc_base_init(&c->base, a, &upward, ops, err));
    c->unused = PLIM_NONE;
    c->free = plim_fs_new(a);
    return c->free ? PLIM_OK : plim_oom(err);
}
