/* free_set.h -- a set of blocks ordered by key, then by rank, then by address.
 *
 * Keys are sorted into bins, eight for each power of two (the search for a fit is then mostly
 * one look at a bitmap), and each bin is a treap over an array of nodes that the caller owns.
 * A node's number identifies the block.  Its priority is a hash of that number, so that the
 * same calls give the same tree on every machine.  A node is in at most one set. */
#ifndef PLIM_FREE_SET_H
#define PLIM_FREE_SET_H

#include "core/shape.h"

typedef struct plim_fs_node {
    uint64_t key;  /* of a free block: its size */
    uint64_t rank; /* goes before the address; 0 where that decides */
    uint64_t addr; /* unique within a set */
    uint32_t left, right;
} plim_fs_node;

/* Below 4 KiB one bin for each 512 bytes, above it eight for each power of two. */
enum { PLIM_FS_BINS = (54 - 2) * 8 + 8 };

typedef struct plim_fs {
    uint32_t root[PLIM_FS_BINS]; /* PLIM_NONE: empty */
    uint64_t used[(PLIM_FS_BINS + 63) / 64];
} plim_fs;

plim_fs *plim_fs_new(plim_arena *a); /* empty; NULL: no memory */

/* key, rank and addr must be set before, and must not change until the node is erased. */
void plim_fs_insert(plim_fs_node *n, plim_fs *set, uint32_t id);
void plim_fs_erase(plim_fs_node *n, plim_fs *set, uint32_t id); /* must be a member */

/* The smallest member that is not before (key, rank, addr); the largest one that is before it.
 * PLIM_NONE: there is none, as in a set that is NULL. */
uint32_t plim_fs_lower_bound(const plim_fs_node *n, const plim_fs *set, uint64_t key,
                             uint64_t rank, uint64_t addr);
uint32_t plim_fs_before(const plim_fs_node *n, const plim_fs *set, uint64_t key, uint64_t rank,
                        uint64_t addr);

static inline uint32_t plim_fs_first(const plim_fs_node *n, const plim_fs *set)
{
    return plim_fs_lower_bound(n, set, 0, 0, 0);
}
static inline uint32_t plim_fs_next(const plim_fs_node *n, const plim_fs *set, uint32_t id)
{
    return plim_fs_lower_bound(n, set, n[id].key, n[id].rank, n[id].addr + 1);
}
static inline uint32_t plim_fs_prev(const plim_fs_node *n, const plim_fs *set, uint32_t id)
{
    return plim_fs_before(n, set, n[id].key, n[id].rank, n[id].addr);
}

#endif
