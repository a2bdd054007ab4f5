/* chunks.h -- regions of device memory that are cut into chunks, with the best fit first: what
 * BFC and the driver's pool have in common.  How large a region and a chunk are is up to them.
 *
 * One pool serves all streams, and a freed chunk merges with its free neighbours at once. */
#ifndef PLIM_CHUNKS_H
#define PLIM_CHUNKS_H

#include "alloc/alloc_base.h"
#include "alloc/free_set.h"

typedef enum plim_chunk_state {
    PLIM_CHUNK_UNUSED,
    PLIM_CHUNK_FREE,
    PLIM_CHUNK_LIVE
} plim_chunk_state;

typedef struct plim_chunk { /* its address and its size: see the node of the same number */
    uint64_t requested;
    uint32_t prev, next; /* in the region */
    uint16_t stream;     /* of the request */
    uint8_t state;       /* plim_chunk_state */
} plim_chunk;

typedef struct plim_chunks {
    plim_alloc base; /* base.full: our own memory is full, and the call that met it failed */
    plim_chunk *items;
    plim_fs_node *nodes; /* key: the size of the chunk */
    plim_fs *free;
    uint32_t n, cap, cap_nodes, unused;
} plim_chunks;

/* plim_alloc_base_init, and an empty list. */
plim_status plim__chunks_init(plim_chunks *c, plim_arena *a, const plim_alloc_options *o,
                              const plim_allocator *ops, plim_err *err);

/* Takes a region from the device, as one free chunk; false: out of memory. */
bool plim__chunks_grow(plim_chunks *c, uint64_t bytes);
/* The bytes of all regions that are entirely free, and their return to the device. */
uint64_t plim__chunks_idle(const plim_chunks *c);
void plim__chunks_shrink(plim_chunks *c);

/* The smallest free chunk of at least `size` bytes, of several the lowest; PLIM_NONE: none. */
uint32_t plim__chunks_fit(const plim_chunks *c, uint64_t size);
/* Hands out a free chunk; if `cut`, only its first `size` bytes. */
void plim__chunks_serve(plim_chunks *c, uint32_t i, uint64_t size, bool cut,
                        uint64_t requested, uint16_t stream);

/* For the row of the allocator. */
plim_status plim__chunks_release(plim_alloc *h, uint32_t i, plim_err *err);
uint32_t plim__chunks_blocks(const plim_alloc *h, plim_alloc_block *out, uint32_t max);
uint64_t plim__chunks_address(const plim_alloc *h, uint32_t i);

#endif
