/* alloc.h -- simulated GPU allocators: what happens to the memory that a tape requests.
 *
 * An allocator is a row of allocs.c.  It serves requests one by one from a simulated device
 * and keeps the counters of torch.cuda.memory_stats.  Most callers want sim.h, which runs a
 * whole tape through one.
 *
 * Out of memory on the *modelled* device is an answer, not an error: the block is PLIM_NONE,
 * stats.num_ooms has grown and plim_alloc_oom_text returns what PyTorch would have said.  A
 * plim_status is about plimsoll itself. */
#ifndef PLIM_ALLOC_H
#define PLIM_ALLOC_H

#include "alloc/place.h"
#include "base/fmt.h"
#include "core/tape.h"

struct plim_allocator;
enum { PLIM_POOLS = 2 };                /* for requests up to 1 MiB, and above */
#define PLIM_SMALL_MAX (1ull << 20)     /* the largest block of the small pool */
#define PLIM_SMALL_SEGMENT (2ull << 20) /* of which each segment has as many bytes */

/* Zero means "the default" everywhere. */
typedef struct plim_alloc_options {
    const struct plim_allocator *allocator; /* NULL: the first row */
    int torch;                              /* 100 * major + minor; 0: the newest known */
    plim_str conf;     /* as PYTORCH_CUDA_ALLOC_CONF; borrowed during the call only */
    uint64_t capacity; /* bytes the allocator can get from the device; 0: no limit */
    uint64_t total;    /* of the device; 0: capacity.  The rest is the context */
    double fraction;   /* set_per_process_memory_fraction, (0, 1]; 0: never called */
    bool unlimited;    /* capacity is 0, and no memory fraction counts, that of conf either */
    uint32_t device;   /* N of "GPU N" in the out-of-memory text */
    uint64_t first_address;          /* where addresses begin; 0: at the default */
    const plim_placement *placement; /* where memory lies; NULL: as NVIDIA's driver has it */
} plim_alloc_options;
#define PLIM_ALLOC_OPTIONS_INIT                                                               \
    {                                                                                         \
        0                                                                                     \
    }

/* src: torch.cuda.memory_stats, with its names, columns "all".  A peak moves only when its
 * counter rises; reset_peak sets it to the counter. */
typedef struct plim_alloc_stats {
    plim_stat allocation, segment, active, inactive_split; /* counts */
    plim_stat requested_bytes;                             /* as requested */
    plim_stat allocated_bytes;      /* whole blocks; falls when free() is called */
    plim_stat active_bytes;         /* falls when other streams are done too */
    plim_stat reserved_bytes;       /* obtained from CUDA */
    plim_stat inactive_split_bytes; /* free, but in a segment that is partly used */
    plim_stat oversize_allocations, oversize_segments; /* max_split_size_mb and above */
    uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc,
        num_device_free;
} plim_alloc_stats;

typedef enum plim_block_state {
    PLIM_BLOCK_FREE,
    PLIM_BLOCK_ALLOCATED,
    PLIM_BLOCK_PENDING,  /* freed, but another stream may still use it */
    PLIM_BLOCK_UNMAPPED, /* address space of an expandable segment without memory */
} plim_block_state;

/* One block of a segment, for callers that look inside. */
typedef struct plim_alloc_block {
    uint64_t addr, bytes;
    uint64_t requested; /* 0 unless allocated or pending */
    uint32_t block;     /* the handle that malloc returned; meaningless if free */
    uint16_t stream;
    uint8_t state; /* plim_block_state */
    bool small;    /* of the small pool (requests up to 1 MiB) */
    bool expandable;
    bool first; /* a segment begins here */
} plim_alloc_block;

typedef struct plim_alloc plim_alloc;

/* A new allocator on an empty device; it lives in `a`.  PLIM_EUSAGE names the option, or the
 * key of `conf`, and the values it may have. */
plim_status plim_alloc_new(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                           plim_err *err);

/* Gives an allocator that has served nothing the memory of a program that runs: blocks as
 * plim_alloc_blocks has them, but segment by segment, of expandable ones with the unmapped address
 * space.  Each block in use gets its handle; one that is pending is as if allocated.  Streams that
 * may have used it, the age of what is free and the order in which all was made are not known.
 * PLIM_EUNSUPPORTED: the allocator cannot begin with what it has not served. */
plim_status plim_alloc_restore(plim_alloc *h, plim_alloc_block *blocks, uint32_t n,
                               plim_err *err);

/* The bytes of the block that a request would get of a free one of `room` bytes in a segment of
 * its own pool; UINT64_MAX: it does not fit. */
uint64_t plim_alloc_block_bytes(const plim_alloc *h, uint64_t bytes, uint64_t room);

/* The calls of a program, in order.  A block handle is valid until the block is freed; handles
 * are reused.  PLIM_ENOMEM: the arena is full, the allocator must not be used any more.
 *
 * malloc of 0 bytes returns no block (PLIM_NONE) and moves no counter; freeing PLIM_NONE does
 * nothing.  Streams are 0..PLIM_ALL_STREAMS - 1. */
plim_status plim_alloc_malloc(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *block,
                              plim_err *err);
plim_status plim_alloc_free(plim_alloc *h, uint32_t block, plim_err *err);
plim_status plim_alloc_record_stream(plim_alloc *h, uint32_t block, uint16_t stream,
                                     plim_err *err);
/* All work queued on the stream (or on PLIM_ALL_STREAMS) has finished; the next malloc takes
 * notice. */
void plim_alloc_stream_done(plim_alloc *h, uint16_t stream);
/* A private pool of PyTorch (a CUDA graph, a MemPool) has a number of a stream to itself.  While
 * it is held, by a graph that may be launched again, nothing of it goes back to the device. */
plim_status plim_alloc_hold(plim_alloc *h, uint16_t stream, bool held, plim_err *err);
plim_status plim_alloc_empty_cache(plim_alloc *h, plim_err *err);
/* Gives one segment back, which must be free; false: there is no such segment. */
bool plim_alloc_give_back(plim_alloc *h, uint64_t addr, uint64_t bytes, uint16_t stream);
void plim_alloc_reset_peak(plim_alloc *h);
/* torch.cuda.memory._set_allocator_settings.  PLIM_EUSAGE as for plim_alloc_new; nothing has
 * changed then. */
plim_status plim_alloc_config(plim_alloc *h, plim_str conf, plim_err *err);
/* What the memory fraction of the options leaves of a device's total; UINT64_MAX: there is none, or
 * plim_alloc_open says what is wrong with the options. */
uint64_t plim_alloc_allowed(const plim_alloc_options *o, uint64_t total);
/* torch.cuda.set_per_process_memory_fraction: a fraction of the device's total. */
plim_status plim_alloc_set_fraction(plim_alloc *h, double fraction, plim_err *err);

/* Capacities from `least` to less than `end`. */
typedef struct plim_rooms {
    uint64_t least, end;
} plim_rooms;

/* Those on which all so far would have been the same, but for the words of an out-of-memory text:
 * the device would have given and refused the same.  Empty: it was asked for its size otherwise. */
plim_rooms plim_alloc_rooms(const plim_alloc *h);

void plim_alloc_get_stats(const plim_alloc *h, plim_alloc_stats *out);
/* Counters of several allocators together: of one of them they went from *was to *is. */
void plim_alloc_sum_stats(plim_alloc_stats *sum, const plim_alloc_stats *was,
                          const plim_alloc_stats *is);
/* As above, for one pool: columns "small_pool" (requests up to 1 MiB) and "large_pool", which
 * have no oversize_ and num_ counters. */
void plim_alloc_get_pool_stats(const plim_alloc *h, bool small, plim_alloc_stats *out);

/* Events inside the allocator, for a watcher: an address and bytes, for blocks the requested
 * ones.  OOM has the device's free bytes instead of an address, and rounded bytes.
 * src: docs/sources/caching-allocator.md 12 */
typedef enum plim_trace_action {
    PLIM_TRACE_ALLOC,
    PLIM_TRACE_FREE_REQUESTED, /* free() is called */
    PLIM_TRACE_FREE_COMPLETED, /* and other streams are finished with it too */
    PLIM_TRACE_SEGMENT_ALLOC,
    PLIM_TRACE_SEGMENT_FREE,
    PLIM_TRACE_SEGMENT_MAP, /* pages of an expandable segment */
    PLIM_TRACE_SEGMENT_UNMAP,
    PLIM_TRACE_OOM,
} plim_trace_action;
enum { PLIM_TRACE_ACTIONS = PLIM_TRACE_OOM + 1 };
const char *plim_trace_action_name(plim_trace_action a); /* PyTorch's word: "segment_alloc" */
typedef void (*plim_alloc_watch)(void *ud, plim_trace_action action, uint64_t addr,
                                 uint64_t bytes, uint16_t stream);
/* Sets the watcher; NULL removes it.  Only the caching allocator reports events. */
void plim_alloc_set_watch(plim_alloc *h, plim_alloc_watch watch, void *ud);

/* Who knows where memory of the device lies, as a recording does, may say so, before the first
 * request.  Segments that overlap do no harm, but blocks are then not told apart by their
 * addresses. */
void plim_alloc_set_place(plim_alloc *h, const plim_placement *place, void *ud);

/* The address of a live block. */
uint64_t plim_alloc_address(const plim_alloc *h, uint32_t block);

/* The message of the last failed malloc; {NULL, 0} if none failed or the arena is full. */
plim_str plim_alloc_oom_text(const plim_alloc *h, plim_arena *a);

/* Writes up to `max` blocks in address order; returns how many there are. */
uint32_t plim_alloc_blocks(const plim_alloc *h, plim_alloc_block *out, uint32_t max);

/* ---- the list of allocators ------------------------------------------------ */

typedef struct plim_allocator {
    const char *name, *doc, *src;
    const char
        *backend;      /* the value of PyTorch's setting "backend" that chooses it, or NULL */
    const char *model; /* for an allocator that is not simulated exactly: what is estimated */
    /* for such a one: allocators that reserve no more, and no less, than it may */
    const struct plim_allocator *least, *most;
    plim_status (*create)(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                          plim_err *err);
    plim_status (*restore)(plim_alloc *h, plim_alloc_block *blocks, uint32_t n,
                           plim_err *err); /* this and the next, NULL: it cannot */
    uint64_t (*block_bytes)(const plim_alloc *h, uint64_t bytes, uint64_t room);
    plim_status (*alloc)(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *block,
                         plim_err *err);
    plim_status (*release)(plim_alloc *h, uint32_t block, plim_err *err);
    plim_status (*record_stream)(
        plim_alloc *h, uint32_t block, uint16_t stream,
        plim_err *err); /* this and the next, NULL: no free ever waits */
    void (*stream_done)(plim_alloc *h, uint16_t stream);
    /* NULL: there are no private pools */
    plim_status (*hold)(plim_alloc *h, uint16_t stream, bool held, plim_err *err);
    plim_status (*empty_cache)(plim_alloc *h, plim_err *err); /* NULL: nothing is given back */
    /* NULL: it never chooses among segments */
    bool (*give_back)(plim_alloc *h, uint64_t addr, uint64_t bytes, uint16_t stream);
    uint32_t (*blocks)(const plim_alloc *h, plim_alloc_block *out, uint32_t max);
    uint64_t (*address)(const plim_alloc *h, uint32_t block);
    void (*oom_text)(const plim_alloc *h, plim_buf *out); /* NULL: as PyTorch's */
} plim_allocator;

uint32_t plim_allocator_count(void);
const plim_allocator *plim_allocator_at(uint32_t i);
/* PLIM_EUSAGE lists the known names; "" is the first row. */
plim_status plim_allocator_find(plim_str name, const plim_allocator **out, plim_err *err);
/* The allocator that PyTorch's setting "backend" chooses; the first row without it. */
plim_status plim_allocator_of_conf(plim_str conf, int torch, const plim_allocator **out,
                                   plim_err *err);

#endif
