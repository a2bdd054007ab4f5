/* alloc_async.c -- a model of PyTorch's backend:cudaMallocAsync, which leaves all to the pool of
 * the CUDA driver.
 *
 * Known is what PyTorch asks of the pool: that it keeps whatever it has (a release threshold of
 * 2^64 - 1), uses freed memory again on any stream, and gives the rest back at empty_cache.  Not
 * known is how the driver divides its memory: the figures below are a model, so what is reserved
 * is an estimate.
 *
 * src: c10/cuda/CUDAMallocAsyncAllocator.cpp; docs/sources/caching-allocator.md 16 */
#include "alloc/chunks.h"

/* The model.  Addresses were seen to be multiples of 512 bytes (NVIDIA/cudf issue 10384); that a
 * pool grows by 32 MiB, and by pages of 2 MiB when memory is short, is an assumption. */
#define MIN_CHUNK 512u
#define REGION (32ull << 20)
#define PAGE (2ull << 20)

static uint64_t round_up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

/* More memory for a request: a region, or after giving back what is unused, as much as there
 * is. */
static bool grow_pool(plim_chunks *c, uint64_t size)
{
    if (plim__chunks_grow(c, round_up(size, REGION)))
        return true;
    if (c->base.full)
        return false;
    plim__chunks_shrink(c);
    c->base.stats.num_alloc_retries++;
    return plim__chunks_grow(c, round_up(size, REGION)) ||
           (!c->base.full && plim__chunks_grow(c, round_up(size, PAGE)));
}

/* src: mallocAsync: the fraction limits the sum of the bytes requested, not what is reserved */
static bool within_fraction(const plim_alloc *h, uint64_t bytes)
{
    return bytes <= h->device.limit && h->live_requested <= h->device.limit - bytes;
}

/* Chunk i, or PLIM_NONE, is what a request got. */
static plim_status answer_request(plim_alloc *h, uint32_t i, uint64_t bytes, uint64_t size,
                                  uint32_t *out, plim_err *err)
{
    plim_assert(size >= bytes);
    plim_assert(i == PLIM_NONE || i < ((const plim_chunks *)h)->n);
    if (h->full)
        return plim_oom(err);
    if (i == PLIM_NONE)
        plim_alloc_note_oom(h, bytes, size);
    *out = i;
    return PLIM_OK;
}

static plim_status async_alloc(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *out,
                               plim_err *err)
{
    plim_chunks *c = (plim_chunks *)h;
    uint64_t size = round_up(bytes, MIN_CHUNK);
    uint32_t i = PLIM_NONE;
    if (within_fraction(h, bytes)) {
        i = plim__chunks_fit(c, size);
        if (i == PLIM_NONE && grow_pool(c, size))
            i = plim__chunks_fit(c, size);
    }
    if (i != PLIM_NONE)
        plim__chunks_serve(c, i, size, true, bytes, stream);
    return answer_request(h, i, bytes, size, out, err);
}

static plim_status async_empty_cache(plim_alloc *h, plim_err *err)
{
    (void)err;
    plim__chunks_shrink((plim_chunks *)h);
    return PLIM_OK;
}

/* src: mallocAsync; "Currently allocated" is the sum of the bytes requested */
static void async_oom_text(const plim_alloc *h, plim_buf *b)
{
    plim_buf_printf(
        b,
        "Allocation on device %" PRIu32 " would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : %s\n"
        "Requested               : %s\n"
        "Device limit            : %s\n"
        "Free (according to CUDA): %s\n"
        "PyTorch limit (set by user-supplied memory fraction)\n"
        "                        : %s",
        h->number, plim_alloc_size_text(h->live_requested).s,
        plim_alloc_size_text(h->oom.requested).s, plim_alloc_size_text(h->device.total).s,
        plim_alloc_size_text(h->oom.free).s, plim_alloc_size_text(h->device.limit).s);
}

static plim_status create_pool(plim_arena *a, const plim_alloc_options *o,
                               const plim_allocator *ops, plim_alloc **out, plim_err *err)
{
    plim_chunks *c = PLIM_NEW(a, plim_chunks);
    if (!c)
        return plim_oom(err);
    plim_status st = plim__chunks_init(c, a, o, ops, err);
    if (!st)
        *out = &c->base;
    return st;
}

static plim_status async_create(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                                plim_err *err)
{
    return create_pool(a, o, &plim_allocator_async, out, err);
}

/* ---- the most that a pool may reserve --------------------------------------------- */

/* No chunk is cut or merged: freed memory serves requests of its own size only, and none is
 * given back when memory runs out. */
static plim_status most_alloc(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *out,
                              plim_err *err)
{
    plim_chunks *c = (plim_chunks *)h;
    uint64_t size = round_up(bytes, MIN_CHUNK);
    uint32_t i = PLIM_NONE;
    if (within_fraction(h, bytes)) {
        i = plim__chunks_fit(c, size);
        if (i == PLIM_NONE || c->nodes[i].key != size)
            i = plim__chunks_grow(c, size) ? plim__chunks_fit(c, size) : PLIM_NONE;
    }
    if (i != PLIM_NONE)
        plim__chunks_serve(c, i, size, false, bytes, stream);
    return answer_request(h, i, bytes, size, out, err);
}

static const plim_allocator async_most;

static plim_status most_create(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                               plim_err *err)
{
    return create_pool(a, o, &async_most, out, err);
}

/* Not in the list: nobody has it. */
static const plim_allocator async_most = {
    .name = "cudaMallocAsync, at most",
    .doc = "a pool that uses memory again for requests of the same size only",
    .src = "an upper bound of our own",
    .backend = "cudaMallocAsync",
    .create = most_create,
    .alloc = most_alloc,
    .release = plim__chunks_release,
    .empty_cache = async_empty_cache,
    .blocks = plim__chunks_blocks,
    .address = plim__chunks_address,
    .oom_text = async_oom_text,
};

const plim_allocator plim_allocator_async = {
    .name = "cudaMallocAsync",
    .doc = "PyTorch's backend:cudaMallocAsync: a model of the pool of the CUDA driver",
    .src = "c10/cuda/CUDAMallocAsyncAllocator.cpp; docs/sources/caching-allocator.md 16",
    .backend = "cudaMallocAsync",
    .model =
        "How the CUDA driver's pool divides its memory is not documented: with "
        "cudaMallocAsync, reserved memory, free pieces and the point at which memory runs "
        "out are estimates.",
    .least = &plim_allocator_none,
    .most = &async_most,
    .create = async_create,
    .alloc = async_alloc,
    .release = plim__chunks_release,
    .empty_cache = async_empty_cache,
    .blocks = plim__chunks_blocks,
    .address = plim__chunks_address,
    .oom_text = async_oom_text,
};
