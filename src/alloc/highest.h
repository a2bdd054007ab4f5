/* highest.h -- a set of numbers with a size each, which finds the highest that has enough.
 *
 * A treap over an array of nodes that the caller owns; each node knows the largest size below
 * it.  A node's priority is a hash of its index, so that the same calls give the same tree on
 * every machine. */
#ifndef PLIM_HIGHEST_H
#define PLIM_HIGHEST_H

#include "core/shape.h"

typedef struct plim_highest_node {
    uint64_t key;  /* what is high; no two are equal */
    uint64_t size; /* set by plim_highest_insert and _resize only */
    uint64_t most; /* of this node and those below it */
    uint32_t left, right;
} plim_highest_node;

/* n[id].key is set before, and stays.  `root` is PLIM_NONE while the set is empty. */
void plim_highest_insert(plim_highest_node *n, uint32_t *root, uint32_t id, uint64_t size);
void plim_highest_erase(plim_highest_node *n, uint32_t *root, uint32_t id);
void plim_highest_resize(plim_highest_node *n, uint32_t root, uint32_t id, uint64_t size);

/* The member with the highest key of those with at least this size; PLIM_NONE: none has it. */
uint32_t plim_highest_find(const plim_highest_node *n, uint32_t root, uint64_t size);
/* The nearest member whose key is larger; PLIM_NONE: there is none. */
uint32_t plim_highest_above(const plim_highest_node *n, uint32_t root, uint64_t key);

#endif
