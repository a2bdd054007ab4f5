/* caching_free.c -- a block that the program has freed goes back to its pool, at once or when the streams
 * that used it have come as far: see caching.h.
 * src: docs/sources/caching-allocator.md */
#include "alloc/caching.h"

/* Changes a counter by the net amount, so that its peak sees only that. */
#define STAT_MOVE(c, p, stat, less, more)                                                     \
    ((more) > (less) ? STAT_UP(c, p, stat, (more) - (less))                                   \
                     : STAT_DOWN(c, p, stat, (less) - (more)))

void plim__put_back(caching *c, uint32_t b)
{
    plim_assert(c->blocks[b].uses == PLIM_NONE && !c->blocks[b].events);
    uint64_t size = c->blocks[b].size, requested = c->blocks[b].requested;
    uint32_t pool = c->blocks[b].pool;
    plim__tell(c, PLIM_TRACE_FREE_COMPLETED, c->nodes[b].addr, requested, c->blocks[b].stream);
    uint64_t before = plim__block_absorb(c, b, c->blocks[b].prev, FREE);
    uint64_t after = plim__block_absorb(c, b, c->blocks[b].next, FREE);
    const block *x = &c->blocks[b];
    plim_assert(x->size == size + before + after);
    plim__set_insert(c, b, FREE);
    if (x->virt == PLIM_NONE) {
        uint64_t joined = (before ? 1u : 0u) + (after ? 1u : 0u), split = is_split(x);
        uint64_t bytes = split ? x->size : 0;
        STAT_MOVE(c, pool, inactive_split, joined, split);
        STAT_MOVE(c, pool, inactive_split_bytes, before + after, bytes);
    }
    STAT_DOWN(c, pool, active, 1);
    STAT_DOWN(c, pool, active_bytes, size);
    STAT_DOWN(c, pool, requested_bytes, requested);
}

void plim__queue_events(caching *c, uint32_t b)
{
    plim_assert(c->blocks[b].state == ALLOCATED);
    block *x = &c->blocks[b];
    x->state = PENDING;
    for (uint32_t l = x->uses, next; l != PLIM_NONE; l = next) {
        stream *s = &c->streams[c->links[l].value];
        next = c->links[l].next;
        c->links[l] = (link){b, PLIM_NONE};
        if (s->tail == PLIM_NONE)
            s->head = l;
        else
            c->links[s->tail].next = l;
        s->tail = l;
        s->queued++;
        c->n_queued++;
        x->events++;
    }
    x->uses = PLIM_NONE;
}

void plim__process_events(caching *c)
{
    for (uint32_t i = 0; i < c->n_streams && c->n_queued; i++) {
        stream *s = &c->streams[i];
        for (; s->done; s->done--, s->queued--, c->n_queued--) {
            plim_assert(s->head != PLIM_NONE && s->queued >= s->done);
            uint32_t l = s->head, b = c->links[l].value;
            s->head = c->links[l].next;
            if (s->head == PLIM_NONE)
                s->tail = PLIM_NONE;
            c->links[l].next = c->unused_link;
            c->unused_link = l;
            if (--c->blocks[b].events == 0)
                plim__put_back(c, b);
        }
    }
    c->any_done = false;
}
