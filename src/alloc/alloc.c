/* alloc.c -- shared by all allocators: see alloc.h and alloc_base.h. */
#include "alloc/alloc.h"

#include <stdio.h>
#include <stdlib.h>

#include "alloc/alloc_base.h"

/* ---- the device ---------------------------------------------------------- */

bool plim_device_allows(const plim_device *d, uint64_t bytes)
{
    return d->limit == UINT64_MAX || (bytes <= d->limit && d->used <= d->limit - bytes);
}

bool plim_device_reserve(plim_device *d, uint64_t bytes, uint64_t *addr)
{
    if (d->place && (*addr = d->place(d->place_ud)))
        return true;
    *addr = d->next;
    return plim_add(d->next, bytes, &d->next);
}

bool plim_device_take(plim_device *d, uint64_t bytes, uint64_t *addr)
{
    if (bytes > d->capacity - d->used || (addr && !plim_device_reserve(d, bytes, addr))) {
        d->pressed = true;
        return false;
    }
    d->used += bytes;
    return true;
}

/* ---- options ------------------------------------------------------------- */

/* src: docs/sources/caching-allocator.md 9 */
static uint64_t fraction_limit(int torch, double fraction, uint64_t total)
{
    bool nearest = plim_alloc_rules_of(torch)->fraction_nearest;
    if (fraction <= 0 || (nearest && fraction >= 1))
        return UINT64_MAX;
    return (uint64_t)(fraction * (double)total + (nearest ? 0.5 : 0));
}

static plim_status check_options(const plim_alloc_options *o, plim_err *err)
{
    if (o->capacity > PLIM_ALLOC_MAX || o->total > PLIM_ALLOC_MAX)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "capacity %" PRIu64 " is over the limit of %llu bytes",
                         PLIM_MAX(o->capacity, o->total), PLIM_ALLOC_MAX);
    if (o->total && o->total < o->capacity)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "capacity %" PRIu64 " is over the device's total of %" PRIu64,
                         o->capacity, o->total);
    if (!(o->fraction >= 0 && o->fraction <= 1))
        return plim_fail(err, PLIM_EUSAGE, 0, "memory fraction is not between 0 and 1");
    return PLIM_OK;
}

plim_status plim_alloc_base_init(plim_alloc *h, plim_arena *a, const plim_alloc_options *o,
                                 const plim_allocator *ops, plim_err *err)
{
    plim_status st = check_options(o, err);
    *h = (plim_alloc){.ops = ops, .arena = a, .torch = o->torch, .number = o->device};
    plim_alloc_conf_init(&h->conf);
    if (!st)
        st = plim_alloc_config(h, o->conf, err);
    if (st)
        return st;
    double fraction = o->fraction > 0 ? o->fraction : h->conf.fraction;
    if (fraction > 0 && fraction < 1 && !o->capacity)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "a memory fraction needs the capacity of a device");
    uint64_t capacity = o->capacity ? o->capacity : PLIM_DEVICE_UNLIMITED;
    uint64_t total = o->total ? o->total : capacity;
    h->device = (plim_device){.capacity = capacity,
                              .total = total,
                              .limit = fraction_limit(o->torch, fraction, total),
                              .next = o->first_address ? o->first_address : 0x7f0000000000};
    h->device.pressed = h->device.limit != UINT64_MAX;
    return PLIM_OK;
}

/* ---- calls --------------------------------------------------------------- */

plim_status plim_alloc_new(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                           plim_err *err)
{
    const plim_allocator *ops = o->allocator ? o->allocator : plim_allocator_at(0);
    return ops->create(a, o, out, err);
}

plim_status plim_alloc_malloc(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *block,
                              plim_err *err)
{
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
    return h->ops->hold ? h->ops->hold(h, stream, held, err) : PLIM_OK;
}

plim_status plim_alloc_empty_cache(plim_alloc *h, plim_err *err)
{
    return h->ops->empty_cache ? h->ops->empty_cache(h, err) : PLIM_OK;
}

plim_status plim_alloc_config(plim_alloc *h, plim_str conf, plim_err *err)
{
    plim_alloc_conf c = h->conf;
    plim_status st = plim_alloc_conf_parse(&c, conf, h->torch, err);
    if (st)
        return st;
    if (c.backend && h->ops->backend && strcmp(c.backend, h->ops->backend) != 0)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "backend '%s' is not what the allocator '%s' simulates", c.backend,
                         h->ops->name);
    h->conf = c;
    return PLIM_OK;
}

plim_status plim_alloc_set_fraction(plim_alloc *h, double fraction, plim_err *err)
{
    if (!(fraction > 0 && fraction <= 1))
        return plim_fail(err, PLIM_EUSAGE, 0, "memory fraction is not between 0 and 1");
    h->device.limit = fraction_limit(h->torch, fraction, h->device.total);
    h->device.pressed = true;
    return PLIM_OK;
}

/* ---- statistics ---------------------------------------------------------- */

/* Applies DO to every plim_stat of plim_alloc_stats. */
#define EACH_STAT(s, DO)                                                                      \
    DO((s)->allocation)                                                                       \
    DO((s)->segment)                                                                          \
    DO((s)->active)                                                                           \
    DO((s)->inactive_split)                                                                   \
    DO((s)->requested_bytes)                                                                  \
    DO((s)->allocated_bytes)                                                                  \
    DO((s)->active_bytes)                                                                     \
    DO((s)->reserved_bytes)                                                                   \
    DO((s)->inactive_split_bytes)                                                             \
    DO((s)->oversize_allocations)                                                             \
    DO((s)->oversize_segments)

void plim_alloc_reset_peak(plim_alloc *h)
{
#define RESET(stat) (stat).peak = (stat).current;
    EACH_STAT(&h->stats, RESET)
    for (int i = 0; i < PLIM_POOLS; i++) {
        EACH_STAT(&h->pool[i], RESET)
    }
#undef RESET
}

static void get_stats(const plim_alloc_stats *s, plim_alloc_stats *out)
{
    *out = *s;
#define FREED(stat) (stat).total_freed = (stat).total_allocated - (stat).current;
    EACH_STAT(out, FREED)
#undef FREED
}

bool plim_alloc_pressed(const plim_alloc *h) { return h->device.pressed; }

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

void plim_alloc_set_place(plim_alloc *h, plim_alloc_place place, void *ud)
{
    h->device.place = place;
    h->device.place_ud = ud;
}

uint64_t plim_alloc_address(const plim_alloc *h, uint32_t block)
{
    return h->ops->address(h, block);
}

static int compare_addr(const void *a, const void *b)
{
    const plim_alloc_block *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

void plim_alloc_sort_blocks(plim_alloc_block *blocks, uint32_t n)
{
    if (n)
        qsort(blocks, n, sizeof *blocks, compare_addr);
}

uint32_t plim_alloc_blocks(const plim_alloc *h, plim_alloc_block *out, uint32_t max)
{
    return h->ops->blocks(h, out, max);
}

/* ---- out of memory ------------------------------------------------------- */

void plim_alloc_note_oom(plim_alloc *h, uint64_t requested, uint64_t tried)
{
    h->stats.num_ooms++;
    h->oom = (plim_oom_record){.any = true,
                               .requested = requested,
                               .tried = tried,
                               .free = h->device.capacity - h->device.used,
                               .allocated = h->stats.allocated_bytes.current,
                               .reserved = h->stats.reserved_bytes.current};
}

/* Sizes as PyTorch prints them: a unit is used only above its bound, so 1 MiB is "1024.00
 * KiB".  Two decimals, ties to even as in printf.
 * src: docs/sources/caching-allocator.md 13 */
plim_text plim_alloc_size_text(uint64_t n)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    plim_text t;
    if (n <= 1024) {
        snprintf(t.s, sizeof t.s, "%" PRIu64 " bytes", n);
        return t;
    }
    uint32_t k = n <= 1ull << 20 ? 0 : n <= 1ull << 30 ? 1 : 2;
    uint64_t unit = 1024ull << (10 * k), whole = n / unit, part = n % unit * 100;
    uint64_t cents = part / unit, rest = part % unit;
    if (rest * 2 > unit || (rest * 2 == unit && cents % 2))
        cents++;
    snprintf(t.s, sizeof t.s, "%" PRIu64 ".%02" PRIu64 " %s", whole + cents / 100, cents % 100,
             units[k]);
    return t;
}

static void oom_text_old(const plim_alloc *h, plim_buf *b)
{
    const plim_oom_record *o = &h->oom;
    plim_buf_printf(b, "(GPU %" PRIu32 "; %s total capacity; %s already allocated; %s free; ",
                    h->number, plim_alloc_size_text(h->device.total).s,
                    plim_alloc_size_text(o->allocated).s, plim_alloc_size_text(o->free).s);
    if (h->device.limit != UINT64_MAX)
        plim_buf_printf(b, "%s allowed; ", plim_alloc_size_text(h->device.limit).s);
    plim_buf_printf(b,
                    "%s reserved in total by PyTorch) If reserved memory is >> allocated "
                    "memory try setting max_split_size_mb to avoid fragmentation.  See "
                    "documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
                    plim_alloc_size_text(o->reserved).s);
}

static void oom_text_new(const plim_alloc *h, const plim_alloc_rules *r, plim_buf *b)
{
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
                        r->oom == PLIM_OOM_OLD ? "" : ".");
        if (r->oom == PLIM_OOM_OLD)
            oom_text_old(h, &b);
        else
            oom_text_new(h, r, &b);
    }
    return b.bad ? (plim_str){NULL, 0} : plim_buf_str(&b);
}

const char *plim_trace_action_name(plim_trace_action a)
{
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
