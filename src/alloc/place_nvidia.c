/* place_nvidia.c -- how NVIDIA's driver places memory.
 *
 *  - Memory lies in reservations of address space, each of a multiple of 32 MiB.  An allocation
 *    takes the newest reservation that has room, and in it the smallest hole, of several the
 *    lowest.
 *  - Where none has room, one of the rounded size is made, at the upper end of the highest gap
 *    that is larger than that by 32 MiB at least.
 *  - A reservation in which nothing is left goes.  What the context left of its own are the
 *    oldest, and stay.
 *
 * src: docs/sources/caching-allocator.md 17, tests/golden/driver
 * Not simulated: allocations of less than a page, which share pages by a rule of their own; what
 * else the process maps, which moves the gaps. */
#include "alloc/place_nvidia.h"

#include "alloc/alloc_base.h"
#include "alloc/free_set.h"
#include "alloc/highest.h"

#define PAGE (2ull << 20)
#define STEP (32ull << 20)

typedef struct piece {   /* used or a hole; its address: see the node of the same number */
    uint32_t prev, next; /* in the reservation, by address */
    uint32_t home;
    bool live;
} piece;

typedef struct reservation {
    uint64_t begin, end;
    uint64_t age; /* the number of it */
    bool stays;
} reservation;

typedef struct driver {
    plim_arena *arena;
    piece *pieces;
    plim_fs_node *nodes;
    plim_fs *holes; /* key: the age of the reservation; rank: the size */
    plim_fs *live;  /* by address */
    reservation *homes;
    plim_highest_node *ages; /* size: of the largest hole */
    plim_highest_node *gaps; /* key: the beginning; size: of the gap below it */
    uint32_t n_pieces, cap_pieces, cap_nodes, unused_piece;
    uint32_t n_homes, cap_homes, cap_ages, cap_gaps, unused_home;
    uint32_t age_root, gap_root;
    uint64_t made; /* reservations so far */
} driver;

static uint64_t round_up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

/* ---- pieces -------------------------------------------------------------- */

static uint32_t add_piece(driver *d, uint32_t home, uint64_t addr, uint64_t size)
{
    uint32_t p = d->unused_piece;
    if (p != PLIM_NONE) {
        d->unused_piece = d->pieces[p].next;
    } else {
        if (!PLIM_PUSH_ROOM(d->arena, d->pieces, d->n_pieces, d->cap_pieces) ||
            !PLIM_PUSH_ROOM(d->arena, d->nodes, d->n_pieces, d->cap_nodes))
            return PLIM_NONE;
        p = d->n_pieces++;
    }
    d->pieces[p] = (piece){.prev = PLIM_NONE, .next = PLIM_NONE, .home = home};
    d->nodes[p] = (plim_fs_node){.rank = size, .addr = addr};
    return p;
}

static void drop_piece(driver *d, uint32_t p)
{
    d->pieces[p].next = d->unused_piece;
    d->unused_piece = p;
}

static void put_hole(driver *d, uint32_t p)
{
    d->pieces[p].live = false;
    d->nodes[p].key = d->homes[d->pieces[p].home].age;
    plim_fs_insert(d->nodes, d->holes, p);
}

static void put_live(driver *d, uint32_t p)
{
    d->pieces[p].live = true;
    d->nodes[p].key = 0;
    d->nodes[p].rank = 0; /* found by its address */
    plim_fs_insert(d->nodes, d->live, p);
}

/* Leaves the first `size` bytes of a piece that is in no set; the rest becomes a hole. */
static bool cut_piece(driver *d, uint32_t p, uint64_t size)
{
    uint64_t bytes = d->nodes[p].rank;
    plim_assert(size && size <= bytes);
    if (size == bytes)
        return true;
    uint32_t rest = add_piece(d, d->pieces[p].home, d->nodes[p].addr + size, bytes - size);
    if (rest == PLIM_NONE)
        return false;
    d->pieces[rest].prev = p;
    d->pieces[rest].next = d->pieces[p].next;
    if (d->pieces[rest].next != PLIM_NONE)
        d->pieces[d->pieces[rest].next].prev = rest;
    d->pieces[p].next = rest;
    put_hole(d, rest);
    return true;
}

/* Takes the hole `next` into the piece before it, which is in no set. */
static void join_hole(driver *d, uint32_t p, uint32_t next)
{
    plim_assert(d->pieces[p].next == next && !d->pieces[next].live);
    d->pieces[p].next = d->pieces[next].next;
    if (d->pieces[p].next != PLIM_NONE)
        d->pieces[d->pieces[p].next].prev = p;
    drop_piece(d, next);
}

static bool is_hole(const driver *d, uint32_t p)
{
    return p != PLIM_NONE && !d->pieces[p].live;
}

/* Where a piece ends: where the next one or the reservation does. */
static uint64_t end_of(const driver *d, uint32_t p)
{
    uint32_t next = d->pieces[p].next;
    return next != PLIM_NONE ? d->nodes[next].addr : d->homes[d->pieces[p].home].end;
}

/* ---- reservations -------------------------------------------------------- */

/* Says anew how large the largest hole is. */
static void measure_holes(driver *d, uint32_t home)
{
    uint64_t age = d->homes[home].age;
    uint32_t p = plim_fs_before(d->nodes, d->holes, &(plim_fs_at){.key = age + 1});
    bool any = p != PLIM_NONE && d->nodes[p].key == age;
    plim_highest_resize(d->ages, d->age_root, home, any ? d->nodes[p].rank : 0);
}

/* A number for a reservation; PLIM_NONE: no memory. */
static uint32_t number_home(driver *d)
{
    uint32_t h = d->unused_home;
    if (h != PLIM_NONE) {
        d->unused_home = (uint32_t)d->homes[h].begin;
        return h;
    }
    if (!PLIM_PUSH_ROOM(d->arena, d->homes, d->n_homes, d->cap_homes) ||
        !PLIM_PUSH_ROOM(d->arena, d->ages, d->n_homes, d->cap_ages) ||
        !PLIM_PUSH_ROOM(d->arena, d->gaps, d->n_homes, d->cap_gaps))
        return PLIM_NONE;
    return d->n_homes++;
}

/* A new reservation, all of it a hole; PLIM_NONE: no memory. */
static uint32_t add_home(driver *d, uint64_t begin, uint64_t end, bool stays)
{
    uint32_t h = number_home(d);
    if (h == PLIM_NONE)
        return PLIM_NONE;
    d->homes[h] = (reservation){begin, end, ++d->made, stays};
    uint32_t p = add_piece(d, h, begin, end - begin);
    if (p == PLIM_NONE)
        return PLIM_NONE;
    put_hole(d, p);
    d->ages[h].key = d->made;
    plim_highest_insert(d->ages, &d->age_root, h, end - begin);
    return h;
}

/* Of `size` bytes, in a gap; *h PLIM_NONE: there is no gap for it.  false: no memory. */
static bool reserve_home(driver *d, uint64_t size, uint32_t *h)
{
    uint32_t above = plim_highest_find(d->gaps, d->gap_root, size + STEP);
    *h = PLIM_NONE;
    if (above == PLIM_NONE)
        return true;
    uint64_t end = d->gaps[above].key, gap = d->gaps[above].size;
    *h = add_home(d, end - size, end, false);
    if (*h == PLIM_NONE)
        return false;
    plim_highest_resize(d->gaps, d->gap_root, above, 0);
    d->gaps[*h].key = end - size;
    plim_highest_insert(d->gaps, &d->gap_root, *h, gap - size);
    return true;
}

/* Gives up a reservation, of which nothing is used: its only piece is in no set. */
static void drop_home(driver *d, uint32_t h, uint32_t p)
{
    const reservation *r = &d->homes[h];
    uint32_t above = plim_highest_above(d->gaps, d->gap_root, r->begin);
    uint64_t gap = d->gaps[above].size + (r->end - r->begin) + d->gaps[h].size;
    drop_piece(d, p);
    plim_highest_erase(d->gaps, &d->gap_root, h);
    plim_highest_resize(d->gaps, d->gap_root, above, gap);
    plim_highest_erase(d->ages, &d->age_root, h);
    d->homes[h].begin = d->unused_home;
    d->unused_home = h;
}

/* ---- the placement ------------------------------------------------------- */

bool plim__driver_take(void *ud, uint64_t bytes, uint64_t *addr)
{
    driver *d = ud;
    uint64_t size = round_up(PLIM_MAX(bytes, 1), PAGE);
    uint32_t home = plim_highest_find(d->ages, d->age_root, size);
    *addr = 0;
    if (home == PLIM_NONE && !reserve_home(d, round_up(size, STEP), &home))
        return false;
    if (home == PLIM_NONE)
        return true;
    const plim_fs_at at = {.key = d->homes[home].age, .rank = size};
    uint32_t p = plim_fs_lower_bound(d->nodes, d->holes, &at);
    plim_assert(p != PLIM_NONE && d->pieces[p].home == home);
    plim_fs_erase(d->nodes, d->holes, p);
    if (!cut_piece(d, p, size))
        return false;
    put_live(d, p);
    measure_holes(d, home);
    *addr = d->nodes[p].addr;
    return true;
}

void plim__driver_give(void *ud, uint64_t addr)
{
    driver *d = ud;
    uint32_t p = plim_fs_lower_bound(d->nodes, d->live, &(plim_fs_at){.addr = addr});
    if (p == PLIM_NONE || d->nodes[p].addr != addr)
        return; /* it was placed above all others */
    uint32_t home = d->pieces[p].home, prev = d->pieces[p].prev, next = d->pieces[p].next;
    plim_fs_erase(d->nodes, d->live, p);
    if (is_hole(d, next)) {
        plim_fs_erase(d->nodes, d->holes, next);
        join_hole(d, p, next);
    }
    d->pieces[p].live = false;
    if (is_hole(d, prev)) {
        plim_fs_erase(d->nodes, d->holes, prev);
        join_hole(d, prev, p);
        p = prev;
    }
    d->nodes[p].rank = end_of(d, p) - d->nodes[p].addr;
    const reservation *r = &d->homes[home];
    if (!r->stays && d->nodes[p].rank == r->end - r->begin) {
        drop_home(d, home, p);
        return;
    }
    put_hole(d, p);
    measure_holes(d, home);
}

/* The gap for all reservations: whose number is that of none. */
static bool open_gap(driver *d, plim_place_range gap)
{
    uint32_t top = number_home(d);
    if (top == PLIM_NONE)
        return false;
    d->gaps[top].key = gap.end;
    plim_highest_insert(d->gaps, &d->gap_root, top, gap.end - gap.begin);
    return true;
}

void *plim__driver_open(plim_arena *a, plim_place_range gap, const plim_place_range *left,
                        size_t n_left)
{
    driver *d = PLIM_NEW(a, driver);
    if (!d)
        return NULL;
    *d = (driver){.arena = a,
                  .holes = plim_fs_new(a),
                  .live = plim_fs_new(a),
                  .unused_piece = PLIM_NONE,
                  .unused_home = PLIM_NONE,
                  .age_root = PLIM_NONE,
                  .gap_root = PLIM_NONE};
    if (!d->holes || !d->live || !open_gap(d, gap))
        return NULL;
    for (size_t i = 0; i < n_left; i++)
        if (add_home(d, left[i].begin, left[i].end, true) == PLIM_NONE)
            return NULL;
    return d;
}

/* ---- a context of PyTorch ------------------------------------------------- */

#define SPAN (1ull << 47) /* of addresses: most are used below the context */

/* What it has left, in pages from the middle of the span, and where the gap ends.
 * src: docs/sources/caching-allocator.md 17: the first segments of 94 runs of PyTorch 2.11, H100,
 * driver 580.159.04, CUDA 13.0.  Assumed for other cards, drivers and versions. */
static const struct {
    int32_t begin, end;
} context[] = {{245, 256}, {0, 207}, {-4, 0}};
#define GAP_END (-256)

static void *open_context(plim_arena *a, uint64_t first)
{
    plim_place_range left[PLIM_COUNT(context)];
    uint64_t middle = first + SPAN / 2;
    for (size_t i = 0; i < PLIM_COUNT(context); i++)
        left[i] = (plim_place_range){middle + (uint64_t)(context[i].begin * (int64_t)PAGE),
                                     middle + (uint64_t)(context[i].end * (int64_t)PAGE)};
    plim_place_range gap = {first, middle + (uint64_t)(GAP_END * (int64_t)PAGE)};
    return plim__driver_open(a, gap, left, PLIM_COUNT(left));
}

const plim_placement plim_placement_nvidia = {
    .name = "nvidia",
    .src = "driver 580.159.04, CUDA 13.0, H100; assumed for other drivers and cards",
    .span = SPAN,
    .open = open_context,
    .take = plim__driver_take,
    .give = plim__driver_give,
};
