/* idmap.h -- 64-bit ids that a file chose (of storages, addresses, streams) to numbers. */
#ifndef PLIM_IDMAP_H
#define PLIM_IDMAP_H

#include "base/base.h"

typedef struct plim_id_slot {
    uint64_t id;
    uint32_t value;
    bool used; /* by some id */
    bool live; /* free for the owner of the map; false at first */
} plim_id_slot;

typedef struct plim_id_map {
    plim_id_slot *slots;
    uint32_t n, cap; /* a power of two, at most half full */
} plim_id_map;

/* The slot of an id, which this adds with value 0 if it is new.  NULL: no memory.  Valid until
 * the next call. */
plim_id_slot *plim_id_at(plim_arena *a, plim_id_map *m, uint64_t id);
/* The slot of an id that is in the map, or NULL. */
plim_id_slot *plim_id_get(const plim_id_map *m, uint64_t id);

#endif
