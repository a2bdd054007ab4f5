/* place.h -- where a driver puts memory: the addresses of what is taken from a simulated device.
 *
 * They decide nothing but ties: PyTorch takes the lowest of several free blocks of the same size
 * until 2.11 (plim_ties), so what it reserves may depend on them.  A placement is a row here and
 * a file; who knows the addresses, as the reader of a recording does, brings their own. */
#ifndef PLIM_PLACE_H
#define PLIM_PLACE_H

#include "base/base.h"

typedef struct plim_placement {
    const char *name;
    const char *src; /* on which driver it was seen; NULL: on none */
    uint64_t span;   /* the addresses that it has for itself, from `first` on */
    /* Its state for an empty device; NULL: no memory.  No `open`: there is none. */
    void *(*open)(plim_arena *a, uint64_t first);
    /* *addr 0: wherever, above all others.  false: no memory of our own.  No `take`: always so. */
    bool (*take)(void *ud, uint64_t bytes, uint64_t *addr);
    void (*give)(void *ud, uint64_t addr); /* back, what `take` placed; NULL: it is not told */
    bool reserves;                         /* it places address space without memory, too */
} plim_placement;

extern const plim_placement plim_placement_nvidia; /* the default */
/* Each above the last: where it was not seen, and where nothing depends on it. */
extern const plim_placement plim_placement_upward;

#endif
