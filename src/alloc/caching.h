/* caching.h -- the internals of PyTorch's caching allocator, for alloc_caching.c and the
 * caching_*.c only: what a segment, a block and a pool are.
 *
 * A segment is what one cudaMalloc returned (or, for expandable segments, one reserved address
 * range): a chain of blocks in address order that covers it.
 *
 *     segment   | allocated | free | allocated |      free      |
 *                 <- prev                next ->
 *
 * Free blocks are also in an ordered set, one per stream and pool (small, large).
 *
 * src: c10/cuda/CUDACachingAllocator.cpp, five versions from 1.9 to 2.15;
 * docs/sources/caching-allocator.md 1 to 11 */
#ifndef PLIM_CACHING_H
#define PLIM_CACHING_H

#include "alloc/alloc_base.h"
#include "alloc/free_set.h"

/* src: CUDACachingAllocator.cpp, the same in every version read */
#define MIN_BLOCK 512u /* sizes are multiples of it */
#define SMALL_MAX PLIM_SMALL_MAX
#define SMALL_SEGMENT PLIM_SMALL_SEGMENT
#define LARGE_MIN (10ull << 20)  /* from here on a request gets its own segment, */
#define LARGE_ROUND (2ull << 20) /* rounded up to this */

enum { SMALL, LARGE, POOLS = PLIM_POOLS };

typedef enum state { UNUSED, FREE, ALLOCATED, PENDING, UNMAPPED } state;

typedef struct block { /* address and set links: see the node of the same number */
    uint64_t size, requested;
    uint32_t prev, next; /* in the segment */
    uint32_t uses;       /* other streams that use it: a list of links */
    uint32_t events;     /* how many of them still ran after the free */
    uint32_t born;       /* the pool's request count when the block became free */
    uint32_t virt;       /* expandable segment, or PLIM_NONE */
    uint32_t number;     /* for ties: of the segment or of the block, as PyTorch makes them */
    uint16_t stream;
    uint8_t state, pool;
} block;

typedef struct link { /* item of a block's uses (a stream) or a stream's queue (a block) */
    uint32_t value, next;
} link;

typedef struct stream {
    plim_fs *free[POOLS], *unmapped[POOLS]; /* NULL until needed */
    uint32_t head, tail;                    /* frees that wait for this stream, in order */
    uint32_t queued, done;                  /* in the queue; the first `done` are over */
    bool held;                              /* of a private pool: it keeps what it has */
} stream;

typedef struct virt { /* an expandable segment */
    uint64_t base, page;
    uint32_t next_unused;
} virt;

typedef struct caching {
    plim_alloc base;
    block *blocks;
    plim_fs_node *nodes;
    stream *streams;
    link *links;
    virt *virts;
    uint32_t n_blocks, cap_blocks, cap_nodes, unused_block;
    uint32_t n_streams, cap_streams; /* highest number seen, plus one */
    uint32_t n_links, cap_links, unused_link;
    uint32_t last_number;
    uint32_t n_virts, cap_virts, unused_virt;
    uint32_t n_queued; /* in all queues */
    bool any_done;
    plim_ties ties;
    uint32_t requests[POOLS]; /* for the age of free blocks */
    uint32_t n_big[POOLS];    /* free blocks for which is_big() holds */
} caching;

typedef struct request {
    uint64_t bytes, size, segment; /* as requested, rounded, to take from the device */
    uint16_t stream;
    uint8_t pool;
} request;

/* Changes a counter both of a pool and of all pools together. */
#define STAT_UP(c, p, stat, n)                                                                \
    (plim_stat_up(&(c)->base.stats.stat, n), plim_stat_up(&(c)->base.pool[p].stat, n))
#define STAT_DOWN(c, p, stat, n)                                                              \
    (plim_stat_down(&(c)->base.stats.stat, n), plim_stat_down(&(c)->base.pool[p].stat, n))

/* Reports an event to the watcher, if there is one. */
static inline void plim__tell(const caching *c, plim_trace_action what, uint64_t addr,
                              uint64_t bytes, uint16_t number)
{
    if (c->base.watch)
        c->base.watch(c->base.watch_ud, what, addr, bytes, number);
}

static inline bool is_split(const block *b)
{
    return b->prev != PLIM_NONE || b->next != PLIM_NONE;
}
/* Whether the block could be returned to the device: every segment and every page, whatever
 * the settings, has at least this size. */
static inline uint64_t big_size(uint32_t pool)
{
    return pool == SMALL ? SMALL_SEGMENT : LARGE_MIN;
}
static inline bool is_big(const block *b) { return b->size >= big_size(b->pool); }
static inline bool is_room(const block *b) { return b->state == FREE || b->state == UNMAPPED; }
static inline bool is_whole_segment(const block *b)
{
    return b->virt == PLIM_NONE && !is_split(b);
}
static inline uint64_t round_up(uint64_t n, uint64_t step)
{
    return (n + step - 1) / step * step;
}

/* ---- caching_block.c ------------------------------------------------------- */

/* A new block with the fields of `like`; PLIM_NONE and base.full if there is no memory. */
uint32_t plim__block_new(caching *c, const block *like, uint64_t addr);
void plim__block_drop(caching *c, uint32_t b);

/* Creates the set if it does not exist yet, so that an insert cannot fail; false and base.full
 * if there is no memory. */
bool plim__set_ready(caching *c, plim_fs **set);
/* Inserts the block into the set of its state: free blocks by size, unmapped ones by address. */
void plim__set_insert(caching *c, uint32_t b, state st);
void plim__set_erase(caching *c, uint32_t b);

/* Merges `src`, if it is a neighbour in the given state, into `dst`, which is in no set.
 * Returns the bytes gained. */
uint64_t plim__block_absorb(caching *c, uint32_t dst, uint32_t src, state st);

/* Splits a block that is in no set: it keeps the first `size` bytes.  The rest becomes a new
 * block after it, in no set either.  PLIM_NONE: no memory. */
uint32_t plim__block_cut(caching *c, uint32_t b, uint64_t size);
/* The same where PyTorch makes the new block of the first bytes: they have the new number. */
uint32_t plim__block_cut_first(caching *c, uint32_t b, uint64_t size);

/* cudaFree of a segment that consists of one free block. */
void plim__cuda_free(caching *c, uint32_t b);

bool plim__stream_ready(caching *c, uint16_t number); /* makes room for it; false: no memory */

/* A segment, and a block in use, which is not yet: the counters, and the block's state. */
void plim__count_segment(caching *c, uint32_t pool, uint64_t bytes);
void plim__count_block(caching *c, uint32_t b, uint64_t requested);

/* ---- caching_virtual.c: expandable segments -------------------------------- */

/* A block of at least r->size bytes, in no set: free memory, with more pages mapped behind it
 * if needed, or newly mapped pages alone.  PLIM_NONE: the device is out of pages; those mapped
 * until then stay, as free memory. */
uint32_t plim__expand(caching *c, const request *r);

/* Unmaps the whole pages inside a free block. */
void plim__unmap_block(caching *c, uint32_t b);

/* ---- caching_release.c: giving memory back --------------------------------- */

/* With max_split_size_mb only: releases one large enough segment of this stream and pool, else
 * several from the largest down.  True if that made room. */
bool plim__release_oversize(caching *c, const request *r);

/* Releases all that is cached, after waiting for every stream. */
void plim__release_cached(caching *c);

/* Releases unsplit large segments that were not used for long, when more than the threshold is
 * in use. */
void plim__collect_garbage(caching *c);

/* ---- caching_restore.c ----------------------------------------------------- */

plim_status plim__caching_restore(plim_alloc *h, plim_alloc_block *blocks, uint32_t n,
                                  plim_err *err); /* plim_alloc_restore */

/* Releases one segment that is free: plim_alloc_give_back. */
bool plim__give_back(plim_alloc *h, uint64_t addr, uint64_t bytes, uint16_t stream);

/* ---- caching_free.c ---------------------------------------------------------- */

/* Returns a block to its pool, merged with its neighbours. */
void plim__put_back(caching *c, uint32_t b);

/* Queues one event on each stream that used the block. */
void plim__queue_events(caching *c, uint32_t b);

/* Completes the frees whose streams have finished. */
void plim__process_events(caching *c);

#endif
