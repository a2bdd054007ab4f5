/* allocs.c -- the only list of allocators; the first is the default. */
#include "alloc/alloc_base.h"

static const plim_allocator *const allocators[] = {
    &plim_allocator_caching,
    &plim_allocator_none,
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
    return plim_fail(err, PLIM_EUSAGE, 0, "unknown allocator '%.*s': known are %s and %s",
                     (int)PLIM_MIN(name.n, 40), name.p, allocators[0]->name,
                     allocators[1]->name);
}
