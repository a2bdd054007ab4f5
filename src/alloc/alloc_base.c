/* alloc_base.c -- what the allocators share: see alloc_base.h, and alloc.h for their settings. */
#include "alloc/alloc_base.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the device ---------------------------------------------------------- */

bool plim_device_allows(const plim_device *d, uint64_t bytes)
{
    return d->limit == UINT64_MAX || (bytes <= d->limit && d->used <= d->limit - bytes);
}

const plim_placement plim_placement_upward = {.name = "upward"};

/* The address of memory, or of address space alone, by the placement or above all others. */
static bool place_range(plim_device *d, uint64_t bytes, bool placed, uint64_t *addr)
{
    *addr = 0;
    if (placed && !d->placement->take(d->places, bytes, addr)) {
        d->full = true;
        return false;
    }
    if (*addr)
        return true;
    *addr = d->next;
    return plim_add(d->next, bytes, &d->next);
}

bool plim_device_reserve(plim_device *d, uint64_t bytes, uint64_t *addr)
{
    return place_range(d, bytes, d->placement->take && d->placement->reserves, addr);
}

bool plim_device_take(plim_device *d, uint64_t bytes, uint64_t *addr)
{
    plim_assert(d->used <= d->capacity);
    if (bytes > d->capacity - d->used) {
        d->refused = PLIM_MIN(d->refused, plim_sat_add(d->used, bytes));
        return false;
    }
    if (addr && !place_range(d, bytes, d->placement->take != NULL, addr)) {
        d->asked = true; /* it is out of addresses, not of memory */
        return false;
    }
    d->used += bytes;
    d->held = PLIM_MAX(d->held, d->used);
    return true;
}

void plim_device_give(plim_device *d, uint64_t bytes, const uint64_t *addr)
{
    plim_assert(bytes <= d->used);
    d->used -= bytes;
    if (addr && d->placement->give)
        d->placement->give(d->places, *addr);
}

/* ---- options ------------------------------------------------------------- */

/* src: docs/sources/caching-allocator.md 9 */
static uint64_t fraction_limit(int torch, double fraction, uint64_t total)
{
    plim_assert(fraction >= 0 && fraction <= 1);
    bool nearest = plim_alloc_rules_of(torch)->fraction_nearest;
    if (fraction <= 0 || (nearest && fraction >= 1))
        return UINT64_MAX;
    return (uint64_t)(fraction * (double)total + (nearest ? 0.5 : 0));
}

static double fraction_of(const plim_alloc_options *o, const plim_alloc_conf *conf)
{
    plim_assert(!o->unlimited || !o->capacity);
    return o->unlimited ? 0 : o->fraction > 0 ? o->fraction : conf->fraction;
}

uint64_t plim_alloc_allowed(const plim_alloc_options *o, uint64_t total)
{
    plim_alloc_conf conf;
    plim_alloc_conf_init(&conf);
    bool read = !plim_alloc_conf_parse(&conf, o->conf, o->torch, NULL);
    return read ? fraction_limit(o->torch, fraction_of(o, &conf), total) : UINT64_MAX;
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

plim_status plim_alloc_config(plim_alloc *h, plim_str conf, plim_err *err)
{
    plim_alloc_conf c = h->conf;
    PLIM_TRY(plim_alloc_conf_parse(&c, conf, h->torch, err));
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
    h->device.asked = true;
    return PLIM_OK;
}

static plim_status open_places(plim_device *d, plim_arena *a, const plim_alloc_options *o,
                               plim_err *err)
{
    uint64_t first = o->first_address ? o->first_address : 0x7f0000000000;
    d->placement = o->placement ? o->placement : &plim_placement_nvidia;
    d->places = d->placement->open ? d->placement->open(a, first) : NULL;
    d->next = first + d->placement->span;
    return d->placement->open && !d->places ? plim_oom(err) : PLIM_OK;
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
    double fraction = fraction_of(o, &h->conf);
    if (fraction > 0 && fraction < 1 && !o->capacity)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "a memory fraction needs the capacity of a device");
    uint64_t capacity = o->capacity ? o->capacity : PLIM_DEVICE_UNLIMITED;
    uint64_t total = o->total ? o->total : capacity;
    h->device = (plim_device){.capacity = capacity,
                              .total = total,
                              .limit = fraction_limit(o->torch, fraction, total),
                              .refused = UINT64_MAX};
    plim_assert(total >= capacity);
    h->device.asked = h->device.limit != UINT64_MAX;
    return open_places(&h->device, a, o, err);
}

/* ---- calls --------------------------------------------------------------- */

/* ---- blocks -------------------------------------------------------------- */

static int compare_addr(const void *a, const void *b)
{
    const plim_alloc_block *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

void plim_alloc_sort_blocks(plim_alloc_block *blocks, uint32_t n)
{
    plim_assert(blocks || !n);
    if (n)
        qsort(blocks, n, sizeof *blocks, compare_addr);
}

/* ---- out of memory ------------------------------------------------------- */

void plim_alloc_note_oom(plim_alloc *h, uint64_t requested, uint64_t tried)
{
    plim_assert(h->stats.allocated_bytes.current <= h->stats.reserved_bytes.current);
    plim_assert(h->device.used <= h->device.capacity);
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
