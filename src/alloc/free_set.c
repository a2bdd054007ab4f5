/* free_set.c -- see free_set.h. */
#include "alloc/free_set.h"

static uint32_t priority(uint32_t id)
{
    id = (id ^ id >> 16) * 0x7feb352du;
    return (id ^ id >> 15) * 0x846ca68bu;
}

static bool before(const plim_fs_node *a, uint64_t key, uint64_t addr)
{
    return a->key < key || (a->key == key && a->addr < addr);
}

uint32_t plim_fs_lower_bound(const plim_fs_node *n, uint32_t root, uint64_t key, uint64_t addr)
{
    uint32_t best = PLIM_NONE;
    while (root != PLIM_NONE) {
        if (before(&n[root], key, addr)) {
            root = n[root].right;
        } else {
            best = root;
            root = n[root].left;
        }
    }
    return best;
}

uint32_t plim_fs_before(const plim_fs_node *n, uint32_t root, uint64_t key, uint64_t addr)
{
    uint32_t best = PLIM_NONE;
    while (root != PLIM_NONE) {
        if (before(&n[root], key, addr)) {
            best = root;
            root = n[root].right;
        } else {
            root = n[root].left;
        }
    }
    return best;
}

/* Goes down to where the new node's priority puts it, then splits the subtree
 * that stands there into what comes before and after it. */
void plim_fs_insert(plim_fs_node *n, uint32_t *root, uint32_t id)
{
    uint64_t key = n[id].key, addr = n[id].addr;
    uint32_t *link = root, p = priority(id);
    while (*link != PLIM_NONE && priority(*link) >= p)
        link = before(&n[*link], key, addr) ? &n[*link].right : &n[*link].left;
    uint32_t rest = *link, *less = &n[id].left, *more = &n[id].right;
    *link = id;
    while (rest != PLIM_NONE) {
        if (before(&n[rest], key, addr)) {
            *less = rest;
            less = &n[rest].right;
            rest = *less;
        } else {
            *more = rest;
            more = &n[rest].left;
            rest = *more;
        }
    }
    *less = *more = PLIM_NONE;
}

/* Puts the merged children of the node where it stood. */
void plim_fs_erase(plim_fs_node *n, uint32_t *root, uint32_t id)
{
    uint32_t *link = root;
    while (*link != id) {
        plim_assert(*link != PLIM_NONE);
        link = before(&n[*link], n[id].key, n[id].addr) ? &n[*link].right : &n[*link].left;
    }
    uint32_t less = n[id].left, more = n[id].right;
    while (less != PLIM_NONE && more != PLIM_NONE) {
        if (priority(less) >= priority(more)) {
            *link = less;
            link = &n[less].right;
            less = *link;
        } else {
            *link = more;
            link = &n[more].left;
            more = *link;
        }
    }
    *link = less != PLIM_NONE ? less : more;
}
