/* alloc_caching.c -- PyTorch's CUDA caching allocator.
 *
 * A segment is what one cudaMalloc gave (or one reserved address range, for
 * expandable segments): a chain of blocks in address order that covers it.
 *
 *     segment   | allocated | free | allocated |      free      |
 *                 <- prev                next ->
 *
 * Free blocks are also in an ordered set, one for each stream and pool (small,
 * large); a request takes the best fit of its own set, split if that leaves
 * enough, and freeing merges neighbours at once.  When nothing fits, memory
 * comes from the device; when the device has none, cached segments go back to
 * it in a fixed order and it is tried again.
 *
 * PyTorch breaks ties of equal sizes by the order in which segments were made,
 * older versions by address; addresses only grow here, so both are one.
 *
 * Not simulated: private pools (CUDA graphs, MemPool) and free-memory callbacks.
 *
 * src: facts caching-allocator.md 1-13, 15 (c10/cuda/CUDACachingAllocator.cpp,
 * five versions from 1.8 to main of 2026) */
#include "alloc/alloc_base.h"
#include "alloc/free_set.h"

/* src: CUDACachingAllocator.cpp, the same in every version read */
#define MIN_BLOCK 512u         /* sizes are multiples of it */
#define SMALL_MAX (1ull << 20) /* the largest block of the small pool */
#define SMALL_SEGMENT (2ull << 20)
#define LARGE_MIN (10ull << 20)  /* from here on a segment of its own, */
#define LARGE_ROUND (2ull << 20) /* rounded up to this */

enum { SMALL, LARGE, POOLS };

typedef enum state { UNUSED, FREE, ALLOCATED, PENDING, UNMAPPED } state;

typedef struct block { /* address and order are in the node of the same number */
    uint64_t size, requested;
    uint32_t prev, next; /* in the segment */
    uint32_t uses;       /* other streams that use it: a list of links */
    uint32_t events;     /* of those, still running after the free */
    uint32_t born;       /* the pool's request count when it became free */
    uint32_t virt;       /* expandable segment, or PLIM_NONE */
    uint16_t stream;
    uint8_t state, pool;
} block;

typedef struct link { /* of a block's uses (a stream) or a stream's queue (a block) */
    uint32_t value, next;
} link;

typedef struct stream {
    uint32_t free[POOLS], unmapped[POOLS]; /* sets */
    uint32_t head, tail;                   /* frees that wait for this stream, in order */
    uint32_t queued, done;                 /* of the queue; the first `done` are over */
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
    uint32_t n_streams, cap_streams; /* numbers seen, plus one */
    uint32_t n_links, cap_links, unused_link;
    uint32_t n_virts, cap_virts, unused_virt;
    uint32_t n_queued; /* in all queues */
    bool any_done;
    uint32_t requests[POOLS]; /* for the age of free blocks */
} caching;

typedef struct request {
    uint64_t bytes, size, segment; /* asked for, rounded, to get from the device */
    uint16_t stream;
    uint8_t pool;
} request;

/* ---- blocks -------------------------------------------------------------- */

/* A new block like `like`; PLIM_NONE and base.full when there is no memory. */
static uint32_t block_new(caching *c, const block *like, uint64_t addr)
{
    block copy = *like; /* it may lie in the array that grows */
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
    c->blocks[b] = copy;
    c->nodes[b] = (plim_fs_node){.addr = addr, .left = PLIM_NONE, .right = PLIM_NONE};
    return b;
}

static void block_drop(caching *c, uint32_t b)
{
    c->blocks[b].state = UNUSED;
    c->blocks[b].next = c->unused_block;
    c->unused_block = b;
}

static bool is_split(const block *b) { return b->prev != PLIM_NONE || b->next != PLIM_NONE; }

static uint32_t *set_of(caching *c, const block *b)
{
    stream *s = &c->streams[b->stream];
    return b->state == UNMAPPED ? &s->unmapped[b->pool] : &s->free[b->pool];
}

/* Into the set of its state: free blocks by size, unmapped ones by address. */
static void set_insert(caching *c, uint32_t b, state st)
{
    block *x = &c->blocks[b];
    x->state = (uint8_t)st;
    x->born = c->requests[x->pool];
    c->nodes[b].key = st == UNMAPPED ? 0 : x->size;
    plim_fs_insert(c->nodes, set_of(c, x), b);
}

static void set_erase(caching *c, uint32_t b)
{
    plim_fs_erase(c->nodes, set_of(c, &c->blocks[b]), b);
}

/* Makes `src`, if it is a neighbour in the given state, part of `dst`, which is
 * in no set.  Returns the bytes gained. */
static uint64_t block_absorb(caching *c, uint32_t dst, uint32_t src, state st)
{
    if (src == PLIM_NONE || c->blocks[src].state != st)
        return 0;
    block *d = &c->blocks[dst], *s = &c->blocks[src];
    set_erase(c, src);
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
    block_drop(c, src);
    return gained;
}

/* Cuts a block that is in no set: it keeps the first `size` bytes.  The rest, a
 * new block after it, is in no set either.  PLIM_NONE: no memory. */
static uint32_t block_cut(caching *c, uint32_t b, uint64_t size)
{
    uint32_t rest = block_new(c, &c->blocks[b], c->nodes[b].addr + size);
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

/* ---- sizes --------------------------------------------------------------- */

static uint32_t log2_floor(uint64_t n)
{
    uint32_t l = 0;
    while (n >>= 1)
        l++;
    return l;
}

static uint64_t round_up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

/* n to a multiple of the d-th part of the power of two below it. */
static uint64_t round_division(uint64_t n, uint32_t d)
{
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

/* Bytes that a block could have without moving: its own and the address space
 * after it. */
static uint64_t extent(const caching *c, uint32_t b)
{
    const block *x = &c->blocks[b];
    bool grows = x->next != PLIM_NONE && c->blocks[x->next].state == UNMAPPED;
    return x->size + (grows ? c->blocks[x->next].size : 0);
}

/* The best fit lies in an expandable segment.  With expandable segments on, a
 * block that can still grow is taken last; with them off, none is taken. */
static uint32_t fit_expandable(const caching *c, uint32_t set, uint32_t b)
{
    uint32_t next;
    if (!c->base.conf.expandable) {
        while (b != PLIM_NONE && c->blocks[b].virt != PLIM_NONE)
            b = plim_fs_next(c->nodes, set, b);
        return b;
    }
    while (c->blocks[b].virt != PLIM_NONE &&
           (next = plim_fs_next(c->nodes, set, b)) != PLIM_NONE &&
           extent(c, next) < extent(c, b))
        b = next;
    return b;
}

/* Out of its set; PLIM_NONE if nothing fits. */
static uint32_t take_cached(caching *c, const request *r)
{
    const plim_alloc_conf *f = &c->base.conf;
    uint32_t set = c->streams[r->stream].free[r->pool];
    if (gc_active(c))
        c->requests[r->pool]++;
    uint32_t b = plim_fs_lower_bound(c->nodes, set, r->size, 0);
    if (b != PLIM_NONE && c->blocks[b].virt != PLIM_NONE)
        b = fit_expandable(c, set, b);
    if (b == PLIM_NONE)
        return PLIM_NONE;
    uint64_t size = c->blocks[b].size;
    bool oversize = r->size >= f->max_split;
    if (oversize ? size - r->size >= f->max_non_split_slack : size >= f->max_split)
        return PLIM_NONE;
    set_erase(c, b);
    return b;
}

/* ---- from the device ----------------------------------------------------- */

static void count_segment(caching *c, uint64_t bytes)
{
    plim_alloc_stats *s = &c->base.stats;
    plim_stat_up(&s->segment, 1);
    plim_stat_up(&s->reserved_bytes, bytes);
    if (bytes >= c->base.conf.max_split)
        plim_stat_up(&s->oversize_segments, 1);
    s->num_device_alloc++;
}

static uint32_t cuda_malloc(caching *c, const request *r)
{
    uint64_t addr = 0;
    block fresh = {.size = r->segment,
                   .prev = PLIM_NONE,
                   .next = PLIM_NONE,
                   .uses = PLIM_NONE,
                   .virt = PLIM_NONE,
                   .stream = r->stream,
                   .state = FREE,
                   .pool = r->pool};
    if (!plim_device_take(&c->base.device, r->segment, &addr))
        return PLIM_NONE;
    uint32_t b = block_new(c, &fresh, addr);
    if (b != PLIM_NONE)
        count_segment(c, r->segment);
    return b;
}

/* cudaFree of a segment that is one free block. */
static void cuda_free(caching *c, uint32_t b)
{
    plim_alloc_stats *s = &c->base.stats;
    uint64_t size = c->blocks[b].size;
    set_erase(c, b);
    block_drop(c, b);
    c->base.device.used -= size;
    plim_stat_down(&s->segment, 1);
    plim_stat_down(&s->reserved_bytes, size);
    if (size >= c->base.conf.max_split && s->oversize_segments.current)
        plim_stat_down(&s->oversize_segments, 1);
    s->num_device_free++;
}

/* ---- expandable segments ------------------------------------------------- */

/* Address space for one more: nine eighths of the device, in whole pages, all
 * of it unmapped.  PLIM_NONE: even that is too small. */
static uint32_t virt_new(caching *c, const request *r)
{
    /* 64 TiB stand for a device without limit */
    uint64_t total =
        c->base.device.capacity > PLIM_ALLOC_MAX ? 1ull << 46 : c->base.device.total;
    uint64_t page = r->pool == SMALL ? SMALL_SEGMENT : c->base.conf.large_segment, addr = 0;
    uint64_t size = round_up(total + total / 8, page);
    if (c->base.device.capacity > PLIM_ALLOC_MAX)
        size = PLIM_MAX(size, round_up(r->size, page));
    if (size < r->size || !plim_device_reserve(&c->base.device, size, &addr))
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
                   .stream = r->stream,
                   .pool = r->pool};
    uint32_t b = block_new(c, &fresh, addr);
    if (b != PLIM_NONE)
        set_insert(c, b, UNMAPPED);
    return b;
}

static bool is_room(const block *b) { return b->state == FREE || b->state == UNMAPPED; }

/* Are there `size` bytes of free and unmapped blocks from b on? */
static bool has_room(const caching *c, uint32_t b, uint64_t size)
{
    uint64_t bytes = 0;
    for (; bytes < size && b != PLIM_NONE && is_room(&c->blocks[b]); b = c->blocks[b].next)
        bytes += c->blocks[b].size;
    return bytes >= size;
}

/* The lowest such place, beginning with the free block before unmapped space. */
static uint32_t find_room(caching *c, const request *r)
{
    uint32_t set = c->streams[r->stream].unmapped[r->pool];
    for (uint32_t u = plim_fs_lower_bound(c->nodes, set, 0, 0); u != PLIM_NONE;
         u = plim_fs_next(c->nodes, set, u)) {
        uint32_t prev = c->blocks[u].prev;
        uint32_t b = prev != PLIM_NONE && is_room(&c->blocks[prev]) ? prev : u;
        if (has_room(c, b, r->size))
            return b;
    }
    return virt_new(c, r);
}

/* Gives memory to the first whole pages of an unmapped block that hold `size`
 * bytes; it becomes a free block, merged with its neighbours. */
static bool map_block(caching *c, uint32_t b, uint64_t size)
{
    uint64_t bytes = round_up(size, c->virts[c->blocks[b].virt].page);
    if (!plim_device_take(&c->base.device, bytes, NULL))
        return false;
    set_erase(c, b);
    if (bytes < c->blocks[b].size) {
        uint32_t rest = block_cut(c, b, bytes);
        if (rest == PLIM_NONE)
            return false;
        set_insert(c, rest, UNMAPPED);
    }
    block_absorb(c, b, c->blocks[b].prev, FREE);
    block_absorb(c, b, c->blocks[b].next, FREE);
    set_insert(c, b, FREE);
    plim_stat_up(&c->base.stats.reserved_bytes, bytes);
    c->base.stats.num_device_alloc++;
    return true;
}

/* What was mapped before a failure stays, as free memory. */
static uint32_t expand(caching *c, const request *r)
{
    uint32_t b = find_room(c, r);
    if (b == PLIM_NONE)
        return PLIM_NONE;
    if (c->blocks[b].state == UNMAPPED &&
        !map_block(c, b, PLIM_MIN(c->blocks[b].size, r->size)))
        return PLIM_NONE;
    while (c->blocks[b].size < r->size) {
        uint64_t missing = r->size - c->blocks[b].size;
        b = c->blocks[b].next; /* unmapped: the free block before it joins it */
        if (!map_block(c, b, PLIM_MIN(missing, c->blocks[b].size)))
            return PLIM_NONE;
    }
    set_erase(c, b);
    return b;
}

/* Takes the memory from the whole pages inside a free block. */
static void unmap_block(caching *c, uint32_t b)
{
    uint32_t v = c->blocks[b].virt;
    uint64_t page = c->virts[v].page, base = c->virts[v].base;
    uint64_t at = c->nodes[b].addr - base, end = at + c->blocks[b].size;
    uint64_t first = round_up(at, page), last = end / page * page;
    if (last <= first)
        return;
    set_erase(c, b);
    if (last < end) {
        uint32_t rest = block_cut(c, b, last - at);
        if (rest == PLIM_NONE)
            return;
        set_insert(c, rest, FREE);
    }
    if (first > at) {
        uint32_t head = b;
        b = block_cut(c, head, first - at);
        if (b == PLIM_NONE)
            return;
        set_insert(c, head, FREE);
    }
    block_absorb(c, b, c->blocks[b].prev, UNMAPPED);
    block_absorb(c, b, c->blocks[b].next, UNMAPPED);
    c->base.device.used -= last - first;
    plim_stat_down(&c->base.stats.reserved_bytes, last - first);
    c->base.stats.num_device_free++;
    if (is_split(&c->blocks[b])) {
        set_insert(c, b, UNMAPPED);
    } else { /* the whole segment: its addresses go too */
        c->virts[v].next_unused = c->unused_virt;
        c->unused_virt = v;
        block_drop(c, b);
    }
}

/* ---- giving back --------------------------------------------------------- */

static bool is_whole_segment(const block *b) { return b->virt == PLIM_NONE && !is_split(b); }

/* With max_split_size_mb only: one large enough segment of this stream and
 * pool, else several from the largest down.  True if that made room. */
static bool release_oversize(caching *c, const request *r)
{
    uint64_t split = c->base.conf.max_split, want = PLIM_MAX(r->size, split), got = 0;
    const uint32_t *set = &c->streams[r->stream].free[r->pool];
    if (split == UINT64_MAX)
        return false;
    uint32_t b = plim_fs_lower_bound(c->nodes, *set, want, 0), prev;
    if (b != PLIM_NONE && is_whole_segment(&c->blocks[b])) {
        cuda_free(c, b);
        return true;
    }
    b = b != PLIM_NONE ? plim_fs_prev(c->nodes, *set, b)
                       : plim_fs_before(c->nodes, *set, UINT64_MAX, UINT64_MAX);
    for (; b != PLIM_NONE && got < want && c->blocks[b].size >= split; b = prev) {
        prev = plim_fs_prev(c->nodes, *set, b);
        if (is_whole_segment(&c->blocks[b])) {
            got += c->blocks[b].size;
            cuda_free(c, b);
        }
    }
    return got >= want;
}

/* Every free block of a pool for which `pick` is true, in set order.  What
 * `act` puts back is smaller, so it is not met again. */
static void each_free(caching *c, int pool, bool (*pick)(const block *b),
                      void (*act)(caching *c, uint32_t b))
{
    for (uint32_t s = 0; s < c->n_streams; s++) {
        uint32_t b = plim_fs_lower_bound(c->nodes, c->streams[s].free[pool], 0, 0);
        while (b != PLIM_NONE && !c->base.full) {
            uint64_t key = c->nodes[b].key, addr = c->nodes[b].addr;
            if (pick(&c->blocks[b]))
                act(c, b);
            b = plim_fs_lower_bound(c->nodes, c->streams[s].free[pool], key, addr + 1);
        }
    }
}

static bool is_expandable(const block *b) { return b->virt != PLIM_NONE; }

static void process_events(caching *c);

static void release_cached(caching *c)
{
    for (uint32_t s = 0; s < c->n_streams; s++)
        c->streams[s].done = c->streams[s].queued;
    process_events(c);
    c->base.stats.num_sync_all_streams++;
    for (int pool = LARGE; pool >= SMALL; pool--) {
        each_free(c, pool, is_whole_segment, cuda_free);
        if (c->n_virts)
            each_free(c, pool, is_expandable, unmap_block);
    }
}

/* Frees unsplit large segments that have not been asked for long: those of at
 * least average age, again and again until enough was freed.  Expandable ones
 * count for the average and stay, as in PyTorch. */
static void collect_garbage(caching *c)
{
    const plim_device *d = &c->base.device;
    uint64_t floor = (uint64_t)(c->base.conf.gc * (double)d->limit);
    uint64_t total_age = 0, count = 0, target = d->used - PLIM_MIN(floor, d->used), got = 0;
    if (d->used <= floor)
        return;
    for (uint32_t s = 0; s < c->n_streams; s++) {
        uint32_t set = c->streams[s].free[LARGE];
        for (uint32_t b = plim_fs_lower_bound(c->nodes, set, 0, 0); b != PLIM_NONE;
             b = plim_fs_next(c->nodes, set, b))
            if (!is_split(&c->blocks[b])) {
                total_age += c->requests[LARGE] - c->blocks[b].born;
                count++;
            }
    }
    for (bool freed = true; freed && got < target && count;) {
        double average = (double)total_age / (double)count;
        freed = false;
        for (uint32_t s = 0; s < c->n_streams; s++) {
            uint32_t set = c->streams[s].free[LARGE], next;
            for (uint32_t b = plim_fs_lower_bound(c->nodes, set, 0, 0); b != PLIM_NONE;
                 b = next) {
                uint32_t age = c->requests[LARGE] - c->blocks[b].born;
                next = plim_fs_next(c->nodes, c->streams[s].free[LARGE], b);
                if (!is_whole_segment(&c->blocks[b]) || (double)age < average)
                    continue;
                freed = true;
                got += c->blocks[b].size;
                total_age -= age;
                count--;
                cuda_free(c, b);
            }
        }
    }
}

/* ---- malloc -------------------------------------------------------------- */

static uint32_t try_device(caching *c, const request *r)
{
    if (!plim_device_allows(&c->base.device, r->segment)) /* expandable or not */
        return PLIM_NONE;
    return c->base.conf.expandable ? expand(c, r) : cuda_malloc(c, r);
}

static uint32_t take_new(caching *c, const request *r)
{
    if (gc_active(c))
        collect_garbage(c);
    uint32_t b = try_device(c, r);
    if (b == PLIM_NONE && !c->base.full && release_oversize(c, r))
        b = try_device(c, r);
    if (b == PLIM_NONE && !c->base.full) {
        release_cached(c);
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

/* Hands out a block that fits, what is too much of it goes back. */
static void serve(caching *c, const request *r, uint32_t b)
{
    plim_alloc_stats *s = &c->base.stats;
    bool counts = c->blocks[b].virt == PLIM_NONE, was_split = is_split(&c->blocks[b]);
    if (should_split(c, r, c->blocks[b].size - r->size)) {
        uint32_t rest = block_cut(c, b, r->size);
        if (rest == PLIM_NONE)
            return;
        set_insert(c, rest, FREE);
        if (counts && was_split) {
            plim_stat_down(&s->inactive_split_bytes, r->size);
        } else if (counts) {
            plim_stat_up(&s->inactive_split_bytes, c->blocks[rest].size);
            plim_stat_up(&s->inactive_split, 1);
        }
    } else if (counts && was_split) {
        plim_stat_down(&s->inactive_split_bytes, c->blocks[b].size);
        plim_stat_down(&s->inactive_split, 1);
    }
    block *x = &c->blocks[b];
    x->state = ALLOCATED;
    x->requested = r->bytes;
    plim_stat_up(&s->allocation, 1);
    plim_stat_up(&s->allocated_bytes, x->size);
    plim_stat_up(&s->active, 1);
    plim_stat_up(&s->active_bytes, x->size);
    plim_stat_up(&s->requested_bytes, r->bytes);
    if (x->size >= c->base.conf.max_split)
        plim_stat_up(&s->oversize_allocations, 1);
}

/* Makes the stream known; false: no memory. */
static bool stream_room(caching *c, uint16_t number)
{
    while (c->n_streams <= number) {
        if (!PLIM_PUSH_ROOM(c->base.arena, c->streams, c->n_streams, c->cap_streams))
            return false;
        c->streams[c->n_streams++] = (stream){.free = {PLIM_NONE, PLIM_NONE},
                                              .unmapped = {PLIM_NONE, PLIM_NONE},
                                              .head = PLIM_NONE,
                                              .tail = PLIM_NONE};
    }
    return true;
}

static plim_status caching_alloc(plim_alloc *h, uint64_t bytes, uint16_t number, uint32_t *out,
                                 plim_err *err)
{
    caching *c = (caching *)h;
    if (number >= c->n_streams && !stream_room(c, number))
        return plim_oom(err);
    if (c->any_done)
        process_events(c);
    request r = {.bytes = bytes, .size = round_size(&h->conf, bytes), .stream = number};
    r.pool = r.size <= SMALL_MAX ? SMALL : LARGE;
    uint32_t b = take_cached(c, &r);
    if (b == PLIM_NONE) {
        r.segment = segment_size(&h->conf, r.size);
        b = take_new(c, &r);
    }
    if (b != PLIM_NONE)
        serve(c, &r, b);
    if (h->full)
        return plim_oom(err);
    if (b == PLIM_NONE)
        plim_alloc_note_oom(h, r.segment);
    *out = b;
    return PLIM_OK;
}

/* ---- free ---------------------------------------------------------------- */

static void move_stat(plim_stat *s, uint64_t less, uint64_t more)
{
    if (more > less)
        plim_stat_up(s, more - less);
    else
        plim_stat_down(s, less - more);
}

/* Back into its pool, merged with its neighbours. */
static void put_back(caching *c, uint32_t b)
{
    plim_alloc_stats *s = &c->base.stats;
    uint64_t size = c->blocks[b].size, requested = c->blocks[b].requested;
    uint64_t before = block_absorb(c, b, c->blocks[b].prev, FREE);
    uint64_t after = block_absorb(c, b, c->blocks[b].next, FREE);
    const block *x = &c->blocks[b];
    set_insert(c, b, FREE);
    if (x->virt == PLIM_NONE) { /* one net change, as peaks see it */
        bool split = is_split(x);
        move_stat(&s->inactive_split, (before ? 1u : 0u) + (after ? 1u : 0u), split);
        move_stat(&s->inactive_split_bytes, before + after, split ? x->size : 0);
    }
    plim_stat_down(&s->active, 1);
    plim_stat_down(&s->active_bytes, size);
    plim_stat_down(&s->requested_bytes, requested);
}

/* One event in the queue of each stream that used the block. */
static void queue_events(caching *c, uint32_t b)
{
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

static void process_events(caching *c)
{
    for (uint32_t i = 0; i < c->n_streams && c->n_queued; i++) {
        stream *s = &c->streams[i];
        for (; s->done; s->done--, s->queued--, c->n_queued--) {
            uint32_t l = s->head, b = c->links[l].value;
            s->head = c->links[l].next;
            if (s->head == PLIM_NONE)
                s->tail = PLIM_NONE;
            c->links[l].next = c->unused_link;
            c->unused_link = l;
            if (--c->blocks[b].events == 0)
                put_back(c, b);
        }
    }
    c->any_done = false;
}

static plim_status caching_release(plim_alloc *h, uint32_t b, plim_err *err)
{
    caching *c = (caching *)h;
    plim_alloc_stats *s = &h->stats;
    const block *x = &c->blocks[b];
    (void)err;
    plim_assert(b < c->n_blocks && x->state == ALLOCATED);
    plim_stat_down(&s->allocation, 1);
    plim_stat_down(&s->allocated_bytes, x->size);
    if (x->size >= h->conf.max_split && s->oversize_allocations.current)
        plim_stat_down(&s->oversize_allocations, 1);
    if (x->uses == PLIM_NONE)
        put_back(c, b);
    else
        queue_events(c, b);
    return PLIM_OK;
}

/* ---- streams ------------------------------------------------------------- */

static plim_status caching_record_stream(plim_alloc *h, uint32_t b, uint16_t number,
                                         plim_err *err)
{
    caching *c = (caching *)h;
    if (number == c->blocks[b].stream)
        return PLIM_OK;
    for (uint32_t l = c->blocks[b].uses; l != PLIM_NONE; l = c->links[l].next)
        if (c->links[l].value == number)
            return PLIM_OK;
    if (!stream_room(c, number))
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

static plim_status caching_empty_cache(plim_alloc *h, plim_err *err)
{
    release_cached((caching *)h);
    return h->full ? plim_oom(err) : PLIM_OK;
}

/* ---- looking inside ------------------------------------------------------ */

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
    plim_status st = plim_alloc_base_init(&c->base, a, o, &plim_allocator_caching, err);
    if (st)
        return st;
    c->unused_block = c->unused_link = c->unused_virt = PLIM_NONE;
    *out = &c->base;
    return PLIM_OK;
}

const plim_allocator plim_allocator_caching = {
    .name = "caching",
    .doc = "PyTorch's CUDA caching allocator, 1.13 to 2.15, byte for byte",
    .src = "pytorch c10/cuda/CUDACachingAllocator.cpp, facts caching-allocator.md",
    .create = caching_create,
    .alloc = caching_alloc,
    .release = caching_release,
    .record_stream = caching_record_stream,
    .stream_done = caching_stream_done,
    .empty_cache = caching_empty_cache,
    .blocks = caching_blocks,
};
