/* alloc.c -- the calls of every allocator, and its messages: see alloc.h. */
#include "alloc/alloc.h"

#include <stdio.h>
#include <stdlib.h>

#include "alloc/alloc_base.h"

plim_status plim_alloc_new(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                           plim_err *err)
{
    const plim_allocator *ops = o->allocator ? o->allocator : plim_allocator_at(0);
    return ops->create(a, o, out, err);
}

plim_status plim_alloc_restore(plim_alloc *h, plim_alloc_block *blocks, uint32_t n,
                               plim_err *err)
{
    if (!h->ops->restore)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "the allocator '%s' cannot begin with memory that it has not served",
                         h->ops->name);
    return h->ops->restore(h, blocks, n, err);
}

uint64_t plim_alloc_block_bytes(const plim_alloc *h, uint64_t bytes, uint64_t room)
{
    bool fits = h->ops->block_bytes && bytes && bytes < PLIM_ALLOC_MAX;
    return fits ? h->ops->block_bytes(h, bytes, room) : UINT64_MAX;
}

plim_status plim_alloc_malloc(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *block,
                              plim_err *err)
{
    plim_assert(stream != PLIM_ALL_STREAMS);
    *block = PLIM_NONE;
    if (!bytes)
        return PLIM_OK;
    if (bytes >= PLIM_ALLOC_MAX) {
        h->oom =
            (plim_oom_record){.any = true, .absurd = true, .requested = bytes, .tried = bytes};
        return PLIM_OK;
    }
    return h->ops->alloc(h, bytes, stream, block, err);
}

plim_status plim_alloc_free(plim_alloc *h, uint32_t block, plim_err *err)
{
    return block == PLIM_NONE ? PLIM_OK : h->ops->release(h, block, err);
}

plim_status plim_alloc_record_stream(plim_alloc *h, uint32_t block, uint16_t stream,
                                     plim_err *err)
{
    plim_assert(stream != PLIM_ALL_STREAMS);
    bool waits = block != PLIM_NONE && h->ops->record_stream;
    return waits ? h->ops->record_stream(h, block, stream, err) : PLIM_OK;
}

void plim_alloc_stream_done(plim_alloc *h, uint16_t stream)
{
    if (h->ops->stream_done)
        h->ops->stream_done(h, stream);
}

plim_status plim_alloc_hold(plim_alloc *h, uint16_t stream, bool held, plim_err *err)
{
    plim_assert(stream != PLIM_ALL_STREAMS);
    return h->ops->hold ? h->ops->hold(h, stream, held, err) : PLIM_OK;
}

plim_status plim_alloc_empty_cache(plim_alloc *h, plim_err *err)
{
    return h->ops->empty_cache ? h->ops->empty_cache(h, err) : PLIM_OK;
}

bool plim_alloc_give_back(plim_alloc *h, uint64_t addr, uint64_t bytes, uint16_t stream)
{
    return h->ops->give_back && h->ops->give_back(h, addr, bytes, stream);
}

/* ---- statistics ---------------------------------------------------------- */

/* Applies DO to every plim_stat of plim_alloc_stats. */
#define EACH_STAT(DO)                                                                         \
    DO(allocation)                                                                            \
    DO(segment)                                                                               \
    DO(active)                                                                                \
    DO(inactive_split)                                                                        \
    DO(requested_bytes)                                                                       \
    DO(allocated_bytes)                                                                       \
    DO(active_bytes)                                                                          \
    DO(reserved_bytes)                                                                        \
    DO(inactive_split_bytes)                                                                  \
    DO(oversize_allocations)                                                                  \
    DO(oversize_segments)

static void move_stat(plim_stat *sum, const plim_stat *was, const plim_stat *is)
{
    sum->current += is->current - was->current;
    sum->allocated += is->allocated - was->allocated;
    sum->freed += is->freed - was->freed;
    sum->peak = PLIM_MAX(sum->peak, sum->current);
}

void plim_alloc_reset_peak(plim_alloc *h)
{
    plim_alloc_stats *all[] = {&h->stats, &h->pool[0], &h->pool[1]};
#define RESET(stat) all[i]->stat.peak = all[i]->stat.current;
    for (size_t i = 0; i < PLIM_COUNT(all); i++) {
        EACH_STAT(RESET)
    }
#undef RESET
}

static void get_stats(const plim_alloc_stats *s, plim_alloc_stats *out)
{
    *out = *s;
#define FREED(stat) out->stat.freed = out->stat.allocated - out->stat.current;
    EACH_STAT(FREED)
#undef FREED
}

void plim_alloc_sum_stats(plim_alloc_stats *sum, const plim_alloc_stats *was,
                          const plim_alloc_stats *is)
{
#define MOVE(s) move_stat(&sum->s, &was->s, &is->s);
    EACH_STAT(MOVE)
#undef MOVE
#define MOVE(n) sum->n += is->n - was->n;
    MOVE(num_alloc_retries)
    MOVE(num_ooms)
    MOVE(num_sync_all_streams)
    MOVE(num_device_alloc)
    MOVE(num_device_free)
#undef MOVE
}

plim_rooms plim_alloc_rooms(const plim_alloc *h)
{
    const plim_device *d = &h->device;
    return d->asked ? (plim_rooms){0, 0} : (plim_rooms){d->held, d->refused};
}

void plim_alloc_get_stats(const plim_alloc *h, plim_alloc_stats *out)
{
    get_stats(&h->stats, out);
}

void plim_alloc_get_pool_stats(const plim_alloc *h, bool small, plim_alloc_stats *out)
{
    get_stats(&h->pool[small ? 0 : 1], out);
}

void plim_alloc_set_watch(plim_alloc *h, plim_alloc_watch watch, void *ud)
{
    h->watch = watch;
    h->watch_ud = ud;
}

void plim_alloc_set_place(plim_alloc *h, const plim_placement *place, void *ud)
{
    plim_assert(!h->device.held);
    h->device.placement = place;
    h->device.places = ud;
}

uint64_t plim_alloc_address(const plim_alloc *h, uint32_t block)
{
    plim_assert(block != PLIM_NONE);
    return h->ops->address(h, block);
}

uint32_t plim_alloc_blocks(const plim_alloc *h, plim_alloc_block *out, uint32_t max)
{
    return h->ops->blocks(h, out, max);
}

/* ---- out of memory ------------------------------------------------------- */

static void oom_text_old(const plim_alloc *h, bool advises, plim_buf *b)
{
    const plim_oom_record *o = &h->oom;
    plim_buf_printf(b, "(GPU %" PRIu32 "; %s total capacity; %s already allocated; %s free; ",
                    h->number, plim_alloc_size_text(h->device.total).s,
                    plim_alloc_size_text(o->allocated).s, plim_alloc_size_text(o->free).s);
    if (h->device.limit != UINT64_MAX)
        plim_buf_printf(b, "%s allowed; ", plim_alloc_size_text(h->device.limit).s);
    plim_buf_printf(b, "%s reserved in total by PyTorch)",
                    plim_alloc_size_text(o->reserved).s);
    if (advises)
        plim_buf_puts(b, " If reserved memory is >> allocated memory try setting "
                         "max_split_size_mb to avoid fragmentation.  See documentation for "
                         "Memory Management and PYTORCH_CUDA_ALLOC_CONF");
}

static void oom_text_new(const plim_alloc *h, const plim_alloc_rules *r, plim_buf *b)
{
    plim_assert(h->oom.allocated <= h->oom.reserved && h->oom.free <= h->device.total);
    static const char hint[] =
        "expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://";
    static const char new_page[] =
        "docs.pytorch.org/docs/stable/notes/"
        "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
    static const char old_page[] =
        "pytorch.org/docs/stable/notes/cuda.html#environment-variables)";
    const plim_oom_record *o = &h->oom;
    plim_buf_printf(b, "GPU %" PRIu32 " has a total %s of %s of which %s is free. ", h->number,
                    r->oom == PLIM_OOM_CAPACTY ? "capacty" : "capacity",
                    plim_alloc_size_text(h->device.total).s, plim_alloc_size_text(o->free).s);
    if (h->device.total > h->device.capacity)
        plim_buf_printf(b, "Including non-PyTorch memory, this process has %s memory in use. ",
                        plim_alloc_size_text(h->device.total - o->free).s);
    if (h->device.limit != UINT64_MAX && r->says_allowed)
        plim_buf_printf(b, "%s allowed; ", plim_alloc_size_text(h->device.limit).s);
    plim_buf_printf(b,
                    "Of the allocated memory %s is allocated by PyTorch, and %s is reserved "
                    "by PyTorch but unallocated. If reserved but unallocated memory is large "
                    "try setting ",
                    plim_alloc_size_text(o->allocated).s,
                    plim_alloc_size_text(o->reserved - o->allocated).s);
    if (r->oom == PLIM_OOM_CAPACTY) {
        plim_buf_puts(b, "max_split_size_mb to avoid fragmentation.  See documentation for "
                         "Memory Management and PYTORCH_CUDA_ALLOC_CONF");
        return;
    }
    plim_buf_printf(b, "PYTORCH_%sALLOC_CONF=%s", r->oom == PLIM_OOM_ALLOC_CONF ? "" : "CUDA_",
                    hint);
    plim_buf_puts(b, r->oom == PLIM_OOM_DOCS ? new_page : old_page);
}

plim_str plim_alloc_oom_text(const plim_alloc *h, plim_arena *a)
{
    const plim_alloc_rules *r = plim_alloc_rules_of(h->torch);
    plim_buf b;
    if (!h->oom.any)
        return (plim_str){NULL, 0};
    plim_buf_init(&b, a);
    if (h->ops->oom_text) {
        h->ops->oom_text(h, &b);
    } else if (h->oom.absurd) {
        plim_buf_puts(&b, "CUDA out of memory. Tried to allocate more than 1EB memory.");
    } else {
        plim_buf_printf(&b, "CUDA out of memory. Tried to allocate %s%s ",
                        plim_alloc_size_text(h->oom.tried).s,
                        r->oom <= PLIM_OOM_OLD ? "" : ".");
        if (r->oom <= PLIM_OOM_OLD)
            oom_text_old(h, r->oom == PLIM_OOM_OLD, &b);
        else
            oom_text_new(h, r, &b);
    }
    return b.bad ? (plim_str){NULL, 0} : plim_buf_str(&b);
}

const char *plim_trace_action_name(plim_trace_action a)
{
    plim_assert((unsigned)a < PLIM_TRACE_ACTIONS);
    static const char *const names[PLIM_TRACE_ACTIONS] = {
        [PLIM_TRACE_ALLOC] = "alloc",
        [PLIM_TRACE_FREE_REQUESTED] = "free_requested",
        [PLIM_TRACE_FREE_COMPLETED] = "free_completed",
        [PLIM_TRACE_SEGMENT_ALLOC] = "segment_alloc",
        [PLIM_TRACE_SEGMENT_FREE] = "segment_free",
        [PLIM_TRACE_SEGMENT_MAP] = "segment_map",
        [PLIM_TRACE_SEGMENT_UNMAP] = "segment_unmap",
        [PLIM_TRACE_OOM] = "oom",
    };
    return names[a];
}
