/* allocs.c -- the only list of allocators; the first is the default. */
#include "alloc/alloc_base.h"

static const plim_allocator *const allocators[] = {
    &plim_allocator_caching,
    &plim_allocator_none,
    &plim_allocator_bfc,
    &plim_allocator_async,
};

uint32_t plim_allocator_count(void) { return PLIM_COUNT(allocators); }

const plim_allocator *plim_allocator_at(uint32_t i)
{
    return i < PLIM_COUNT(allocators) ? allocators[i] : NULL;
}

plim_status plim_allocator_find(plim_str name, const plim_allocator **out, plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT(allocators); i++)
        if (!name.n || plim_str_is(name, allocators[i]->name)) {
            *out = allocators[i];
            return PLIM_OK;
        }
    return plim_fail(
        err, PLIM_EUSAGE, 0,
        "unknown allocator '%.*s': known are caching, none, bfc and cudaMallocAsync",
        (int)PLIM_MIN(name.n, 40), name.p);
}

plim_status plim_allocator_of_conf(plim_str conf, int torch, const plim_allocator **out,
                                   plim_err *err)
{
    plim_alloc_conf c;
    plim_alloc_conf_init(&c);
    plim_status st = plim_alloc_conf_parse(&c, conf, torch, err);
    *out = allocators[0];
    for (size_t i = 0; !st && c.backend && i < PLIM_COUNT(allocators); i++)
        if (allocators[i]->backend && !strcmp(allocators[i]->backend, c.backend))
            *out = allocators[i];
    return st;
}
