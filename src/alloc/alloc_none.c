/* alloc_none.c -- no caching: each request gets memory of exactly its size, which is returned
 * when it is freed.  A lower bound for every allocator: whatever reserves more does so through
 * rounding, caching or fragmentation. */
#include "alloc/alloc_base.h"

typedef struct piece {
    uint64_t bytes, addr;
    uint32_t next_unused;
    uint16_t stream;
    bool live;
} piece;

typedef struct none {
    plim_alloc base;
    piece *pieces;
    uint32_t n, cap, unused;
} none;

/* Counts one block more or less in every counter. */
static void none_count(plim_alloc_stats *s, uint64_t bytes,
                       void (*move)(plim_stat *stat, uint64_t n))
{
    move(&s->allocation, 1);
    move(&s->active, 1);
    move(&s->segment, 1);
    move(&s->requested_bytes, bytes);
    move(&s->allocated_bytes, bytes);
    move(&s->active_bytes, bytes);
    move(&s->reserved_bytes, bytes);
}

static plim_status none_alloc(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *out,
                              plim_err *err)
{
    plim_assert(bytes > 0);
    none *c = (none *)h;
    uint64_t addr = 0;
    uint32_t p = c->unused;
    if (p == PLIM_NONE && !PLIM_PUSH_ROOM(h->arena, c->pieces, c->n, c->cap))
        return plim_oom(err);
    if (!plim_device_allows(&h->device, bytes) ||
        !plim_device_take(&h->device, bytes, &addr)) {
        plim_alloc_note_oom(h, bytes, bytes);
        return PLIM_OK;
    }
    if (p == PLIM_NONE)
        p = c->n++;
    else
        c->unused = c->pieces[p].next_unused;
    c->pieces[p] = (piece){.bytes = bytes, .addr = addr, .stream = stream, .live = true};
    none_count(&h->stats, bytes, plim_stat_up);
    h->stats.num_device_alloc++;
    h->live_requested += bytes;
    *out = p;
    return PLIM_OK;
}

static plim_status none_release(plim_alloc *h, uint32_t p, plim_err *err)
{
    none *c = (none *)h;
    uint64_t bytes = c->pieces[p].bytes;
    plim_assert(p < c->n && c->pieces[p].live && bytes <= h->device.used);
    plim_assert(bytes <= h->live_requested);
    (void)err;
    plim_device_give(&h->device, bytes, &c->pieces[p].addr);
    c->pieces[p] = (piece){.next_unused = c->unused};
    c->unused = p;
    none_count(&h->stats, bytes, plim_stat_down);
    h->stats.num_device_free++;
    h->live_requested -= bytes;
    return PLIM_OK;
}

static uint64_t none_address(const plim_alloc *h, uint32_t p)
{
    plim_assert(((const none *)h)->pieces[p].live);
    return ((const none *)h)->pieces[p].addr;
}

static uint32_t none_blocks(const plim_alloc *h, plim_alloc_block *out, uint32_t max)
{
    const none *c = (const none *)h;
    uint32_t n = 0;
    for (uint32_t p = 0; p < c->n; p++) {
        const piece *x = &c->pieces[p];
        if (x->live && n++ < max)
            out[n - 1] = (plim_alloc_block){.addr = x->addr,
                                            .bytes = x->bytes,
                                            .requested = x->bytes,
                                            .block = p,
                                            .stream = x->stream,
                                            .state = PLIM_BLOCK_ALLOCATED,
                                            .first = true};
    }
    plim_alloc_sort_blocks(out, PLIM_MIN(n, max));
    return n;
}

static plim_status none_create(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                               plim_err *err)
{
    none *c = PLIM_NEW(a, none);
    if (!c)
        return plim_oom(err);
    plim_alloc_options any = *o; /* nothing depends on where a piece lies */
    any.placement = &plim_placement_upward;
    PLIM_TRY(plim_alloc_base_init(&c->base, a, &any, &plim_allocator_none, err));
    c->unused = PLIM_NONE;
    *out = &c->base;
    return PLIM_OK;
}

const plim_allocator plim_allocator_none = {
    .name = "none",
    .doc = "each request by itself, to the byte: the lower bound of any allocator",
    .src = "what PYTORCH_NO_CUDA_MEMORY_CACHING=1 asks of the driver, before its pages",
    .create = none_create,
    .alloc = none_alloc,
    .release = none_release,
    .blocks = none_blocks,
    .address = none_address,
};
