/* free_set.h -- an ordered set of blocks: by key, then by address.
 *
 * A treap over an array of nodes that the caller owns.  A node's number stands
 * for the block, its priority is a hash of that number: nothing is allocated
 * here, and the same calls give the same tree on every machine.  A set is the
 * number of its root, PLIM_NONE when it is empty; a node is in one set at most. */
#ifndef PLIM_FREE_SET_H
#define PLIM_FREE_SET_H

#include "core/shape.h"

typedef struct plim_fs_node {
    uint64_t key;  /* of a free block: its size */
    uint64_t addr; /* distinct in a set */
    uint32_t left, right;
} plim_fs_node;

/* key and addr must be set before, and stay until the node is erased. */
void plim_fs_insert(plim_fs_node *n, uint32_t *root, uint32_t id);
void plim_fs_erase(plim_fs_node *n, uint32_t *root, uint32_t id); /* must be in */

/* The least member that is not before (key, addr); the greatest that is before
 * it.  PLIM_NONE: none.  The one after `id` is lower_bound(key, addr + 1). */
uint32_t plim_fs_lower_bound(const plim_fs_node *n, uint32_t root, uint64_t key,
                             uint64_t addr);
uint32_t plim_fs_before(const plim_fs_node *n, uint32_t root, uint64_t key, uint64_t addr);

static inline uint32_t plim_fs_next(const plim_fs_node *n, uint32_t root, uint32_t id)
{
    return plim_fs_lower_bound(n, root, n[id].key, n[id].addr + 1);
}
static inline uint32_t plim_fs_prev(const plim_fs_node *n, uint32_t root, uint32_t id)
{
    return plim_fs_before(n, root, n[id].key, n[id].addr);
}

#endif
