/* free_set.h -- a set of blocks ordered by key, then by rank, by address, by number.
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
    uint64_t addr;
    uint32_t left, right;
} plim_fs_node;

/* Below 4 KiB one bin for each 512 bytes, above it eight for each power of two. */
enum { PLIM_FS_BINS = (54 - 2) * 8 + 8 };

typedef struct plim_fs {
    uint32_t root[PLIM_FS_BINS]; /* PLIM_NONE: empty */
    uint64_t used[(PLIM_FS_BINS + 63) / 64];
} plim_fs;

plim_fs *plim_fs_new(plim_arena *a); /* empty; NULL: no memory */

/* A place in that order, of a node or between two. */
typedef struct plim_fs_at {
    uint64_t key, rank, addr;
    uint32_t id;
} plim_fs_at;

static inline plim_fs_at plim_fs_place(const plim_fs_node *n, uint32_t id)
{
    return (plim_fs_at){n[id].key, n[id].rank, n[id].addr, id};
}

/* key, rank and addr must be set before, and must not change until the node is erased. */
void plim_fs_insert(plim_fs_node *n, plim_fs *set, uint32_t id);
void plim_fs_erase(plim_fs_node *n, plim_fs *set, uint32_t id); /* must be a member */

/* The smallest member that is not before `at`; the largest one that is before it.  PLIM_NONE:
 * there is none, as in a set that is NULL. */
uint32_t plim_fs_lower_bound(const plim_fs_node *n, const plim_fs *set, const plim_fs_at *at);
uint32_t plim_fs_before(const plim_fs_node *n, const plim_fs *set, const plim_fs_at *at);

/* The smallest member with this key or a larger one. */
static inline uint32_t plim_fs_fit(const plim_fs_node *n, const plim_fs *set, uint64_t key)
{
    return plim_fs_lower_bound(n, set, &(plim_fs_at){.key = key});
}
/* The smallest member after `at`. */
static inline uint32_t plim_fs_after(const plim_fs_node *n, const plim_fs *set, plim_fs_at at)
{
    at.id++;
    return plim_fs_lower_bound(n, set, &at);
}
static inline uint32_t plim_fs_first(const plim_fs_node *n, const plim_fs *set)
{
    return plim_fs_fit(n, set, 0);
}
static inline uint32_t plim_fs_next(const plim_fs_node *n, const plim_fs *set, uint32_t id)
{
    return plim_fs_after(n, set, plim_fs_place(n, id));
}
static inline uint32_t plim_fs_prev(const plim_fs_node *n, const plim_fs *set, uint32_t id)
{
    const plim_fs_at at = plim_fs_place(n, id);
    return plim_fs_before(n, set, &at);
}

#endif
