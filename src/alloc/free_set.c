/* free_set.c -- see free_set.h. */
#include "alloc/free_set.h"

/* ---- bins ---------------------------------------------------------------- */

#if defined(__GNUC__)
static uint32_t log2_floor(uint64_t v) { return 63u - (uint32_t)__builtin_clzll(v); }
static uint32_t lowest_bit(uint64_t v) { return (uint32_t)__builtin_ctzll(v); }
#else
static uint32_t log2_floor(uint64_t v)
{
    uint32_t n = 0;
    while (v >>= 1)
        n++;
    return n;
}
static uint32_t lowest_bit(uint64_t v) { return log2_floor(v & (~v + 1)); }
#endif

/* Monotonic: never falls as the key rises. */
static uint32_t bin_of(uint64_t key)
{
    uint64_t units = key >> 9;
    if (units < 8)
        return (uint32_t)units;
    uint32_t l = log2_floor(units);
    plim_assert((l - 2) * 8 + 7 < PLIM_FS_BINS);
    return (l - 2) * 8 + (uint32_t)(units >> (l - 3) & 7);
}

/* The first non-empty bin from `bin` on, or PLIM_NONE. */
static uint32_t used_from(const plim_fs *set, uint32_t bin)
{
    uint64_t mask = ~0ull << bin % 64;
    for (uint32_t w = bin / 64; w < PLIM_COUNT(set->used); w++, mask = ~0ull)
        if (set->used[w] & mask)
            return w * 64 + lowest_bit(set->used[w] & mask);
    return PLIM_NONE;
}

plim_fs *plim_fs_new(plim_arena *a)
{
    plim_fs *set = PLIM_NEW(a, plim_fs);
    for (uint32_t i = 0; set && i < PLIM_FS_BINS; i++)
        set->root[i] = PLIM_NONE;
    return set;
}

/* ---- one treap ----------------------------------------------------------- */

static uint32_t node_priority(uint32_t id)
{
    id = (id ^ id >> 16) * 0x7feb352du;
    return (id ^ id >> 15) * 0x846ca68bu;
}

static bool node_before(const plim_fs_node *n, uint32_t id, const plim_fs_at *at)
{
    const plim_fs_node *a = &n[id];
    return a->key != at->key     ? a->key < at->key
           : a->rank != at->rank ? a->rank < at->rank
           : a->addr != at->addr ? a->addr < at->addr
                                 : id < at->id;
}

/* Descends to the place that the new node's priority gives it, then splits the subtree there
 * into what comes before and after the node. */
void plim_fs_insert(plim_fs_node *n, plim_fs *set, uint32_t id)
{
    const plim_fs_at at = plim_fs_place(n, id);
    uint32_t bin = bin_of(at.key), p = node_priority(id), *link = &set->root[bin];
    set->used[bin / 64] |= 1ull << bin % 64;
    while (*link != PLIM_NONE && node_priority(*link) >= p)
        link = node_before(n, *link, &at) ? &n[*link].right : &n[*link].left;
    uint32_t rest = *link, *less = &n[id].left, *more = &n[id].right;
    *link = id;
    while (rest != PLIM_NONE) {
        if (node_before(n, rest, &at)) {
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

/* Replaces the node by its merged children. */
void plim_fs_erase(plim_fs_node *n, plim_fs *set, uint32_t id)
{
    const plim_fs_at at = plim_fs_place(n, id);
    uint32_t bin = bin_of(at.key), *link = &set->root[bin];
    while (*link != id) {
        plim_assert(*link != PLIM_NONE);
        link = node_before(n, *link, &at) ? &n[*link].right : &n[*link].left;
    }
    uint32_t less = n[id].left, more = n[id].right;
    while (less != PLIM_NONE && more != PLIM_NONE) {
        if (node_priority(less) >= node_priority(more)) {
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
    if (set->root[bin] == PLIM_NONE)
        set->used[bin / 64] &= ~(1ull << bin % 64);
}

/* ---- searches ------------------------------------------------------------ */

uint32_t plim_fs_lower_bound(const plim_fs_node *n, const plim_fs *set, const plim_fs_at *at)
{
    uint32_t best = PLIM_NONE, bin = bin_of(at->key);
    if (!set)
        return PLIM_NONE;
    for (uint32_t id = set->root[bin]; id != PLIM_NONE;) {
        if (node_before(n, id, at)) {
            id = n[id].right;
        } else {
            best = id;
            id = n[id].left;
        }
    }
    if (best != PLIM_NONE || (bin = used_from(set, bin + 1)) == PLIM_NONE)
        return best;
    for (best = set->root[bin]; n[best].left != PLIM_NONE;)
        best = n[best].left;
    return best;
}

uint32_t plim_fs_before(const plim_fs_node *n, const plim_fs *set, const plim_fs_at *at)
{
    uint32_t best = PLIM_NONE;
    for (uint32_t bin = bin_of(at->key) + 1; set && bin-- > 0 && best == PLIM_NONE;)
        for (uint32_t id = set->root[bin]; id != PLIM_NONE;) {
            if (node_before(n, id, at)) {
                best = id;
                id = n[id].right;
            } else {
                id = n[id].left;
            }
        }
    return best;
}
