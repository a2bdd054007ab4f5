/* place_nvidia.h -- the addresses that NVIDIA's driver gives, for whoever knows what a context
 * has left: see place_nvidia.c for the rule, and place.h for what it decides. */
#ifndef PLIM_PLACE_NVIDIA_H
#define PLIM_PLACE_NVIDIA_H

#include "base/base.h"

typedef struct plim_place_range {
    uint64_t begin, end;
} plim_place_range;

/* `left`: what the context left of its own reservations, the oldest first.  New ones lie in
 * `gap`, from its end downward.  NULL: no memory. */
void *plim__driver_open(plim_arena *a, plim_place_range gap, const plim_place_range *left,
                        size_t n_left);
/* As plim_placement has them. */
bool plim__driver_take(void *driver, uint64_t bytes, uint64_t *addr);
void plim__driver_give(void *driver, uint64_t addr);

#endif
