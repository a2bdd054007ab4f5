/* alloc_base.h -- what every simulated allocator has: the counters, its device, and the record
 * of its last out-of-memory.  For the files of this room. */
#ifndef PLIM_ALLOC_BASE_H
#define PLIM_ALLOC_BASE_H

#include "alloc/alloc.h"
#include "alloc/alloc_conf.h"
#include "base/fmt.h"

/* Sizes stay below this and sums below four times that, so nothing here can overflow.
 * src: CUDACachingAllocator.cpp refuses 1 EiB and above */
#define PLIM_ALLOC_MAX (1ull << 60)
#define PLIM_DEVICE_UNLIMITED (2 * PLIM_ALLOC_MAX) /* the capacity if none is given */

/* A device that only counts bytes. */
typedef struct plim_device {
    uint64_t capacity; /* never 0 */
    uint64_t total;    /* what cudaMemGetInfo calls total */
    uint64_t used;     /* taken by the allocator */
    uint64_t limit;    /* of set_per_process_memory_fraction; UINT64_MAX: none */
    uint64_t next;     /* the address of what has none by a placement; it only grows */
    uint64_t held;     /* the most of `used` so far */
    uint64_t refused;  /* the least that a request it refused would have made of it */
    bool asked;        /* for its size: what it refused is not all that its size decides */
    const plim_placement *placement;
    void *places; /* its state */
    bool full;    /* it had no memory of ours */
} plim_device;

/* The numbers in an out-of-memory text, as they were when malloc failed. */
typedef struct plim_oom_record {
    bool any, absurd;   /* absurd: 1 EiB or more was requested */
    uint64_t requested; /* as the program asked */
    uint64_t tried, free, allocated, reserved;
} plim_oom_record;

struct plim_alloc {
    const plim_allocator *ops;
    plim_arena *arena;
    int torch;
    uint32_t number; /* of the device */
    plim_alloc_conf conf;
    plim_device device;
    plim_alloc_stats stats;            /* freed is computed on request */
    plim_alloc_stats pool[PLIM_POOLS]; /* small, large; only the counters that a pool has */
    plim_alloc_watch watch;            /* NULL: none */
    void *watch_ud;
    uint64_t live_requested; /* requested_bytes, but falls when free() is called */
    plim_oom_record oom;
    bool full; /* our own memory */
};

/* Checks the options and parses conf, which must not ask for another allocator; the device is
 * empty. */
plim_status plim_alloc_base_init(plim_alloc *h, plim_arena *a, const plim_alloc_options *o,
                                 const plim_allocator *ops, plim_err *err);

/* Whether set_per_process_memory_fraction permits this; checked before the device is asked. */
bool plim_device_allows(const plim_device *d, uint64_t bytes);
/* Takes memory from the device; false: out of memory, or `full`.  addr NULL: memory without an
 * address of its own. */
bool plim_device_take(plim_device *d, uint64_t bytes, uint64_t *addr);
void plim_device_give(plim_device *d, uint64_t bytes, const uint64_t *addr);
bool plim_device_reserve(plim_device *d, uint64_t bytes, uint64_t *addr); /* addresses only */

/* Records the malloc that just failed; `tried` is the size that the allocator made of it. */
void plim_alloc_note_oom(plim_alloc *h, uint64_t requested, uint64_t tried);

void plim_alloc_sort_blocks(plim_alloc_block *blocks, uint32_t n); /* by address */

static inline void plim_stat_up(plim_stat *s, uint64_t n)
{
    s->current += n;
    s->peak = PLIM_MAX(s->peak, s->current);
    s->allocated = plim_sat_add(s->allocated, n); /* the sum saturates at 16 EiB */
}
static inline void plim_stat_down(plim_stat *s, uint64_t n)
{
    plim_assert(s->current >= n);
    s->current -= n;
    plim_assert(s->current <= s->peak);
}

/* Sizes as PyTorch prints them in messages. */
plim_text plim_alloc_size_text(uint64_t n);

extern const plim_allocator plim_allocator_caching, plim_allocator_none, plim_allocator_bfc,
    plim_allocator_async;

#endif
