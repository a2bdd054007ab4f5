/* arena.c -- arenas, and the maps that lie in them: see base.h. */
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arena ------------------------------------------------------------- */

struct plim_arena_chunk {
    plim_arena_chunk *next;
    uint64_t used, cap;
    uint64_t mapped; /* size of its own mapping; 0: from the heap */
    /* the data follows, 16-aligned */
};

#define CHUNK_HEAD ((sizeof(plim_arena_chunk) + 15) / 16 * 16)
#define CHUNK_MIN (64u << 10)
#define CHUNK_GROWN (256u << 10)
#define CHUNK_LARGE (2u << 20) /* one large page: its first write faults in all of it */

/* Capacity of the next chunk: twice what there is while that is small, then whole large pages.
 * An estimate of 80 layers takes 30 MB: with pages of 4 KiB a third of its time would be spent
 * on page faults. */
static uint64_t chunk_cap(const plim_arena *a, uint64_t bytes)
{
    uint64_t least = PLIM_MAX(bytes, PLIM_MAX((uint64_t)CHUNK_MIN, a->used));
    if (least < (a->lean ? CHUNK_LARGE : CHUNK_GROWN) ||
        least > UINT64_MAX - CHUNK_LARGE - CHUNK_HEAD)
        return least;
    return (bytes + CHUNK_HEAD + CHUNK_LARGE - 1) / CHUNK_LARGE * CHUNK_LARGE - CHUNK_HEAD;
}

/* Zeroed; NULL: no memory. */
static plim_arena_chunk *chunk_new(uint64_t cap)
{
    plim_arena_chunk *c = NULL;
    uint64_t bytes = cap + CHUNK_HEAD, mapped = 0;
    if (cap > SIZE_MAX - CHUNK_HEAD || !plim_memory_take(bytes))
        return NULL;
    if (bytes >= CHUNK_LARGE && (c = plim_os_pages((size_t)bytes)))
        mapped = bytes;
    if (!c && !(c = calloc(1, (size_t)bytes))) {
        plim_memory_give(bytes);
        return NULL;
    }
    c->cap = cap;
    c->mapped = mapped;
    return c;
}

static void *chunk_take(plim_arena_chunk *c, uint64_t bytes)
{
    plim_assert(bytes <= c->cap - c->used);
    void *p = (uint8_t *)c + CHUNK_HEAD + c->used;
    c->used += bytes;
    return p;
}

static void chunks_free(plim_arena_chunk *c)
{
    for (plim_arena_chunk *next; c; c = next) {
        next = c->next;
        plim_memory_give(c->cap + CHUNK_HEAD);
        if (c->mapped)
            plim_os_pages_free(c, (size_t)c->mapped);
        else
            free(c);
    }
}

/* Where the smallest spare chunk with room for that many bytes is linked in; NULL: none has it. */
static plim_arena_chunk **find_spare(plim_arena *a, uint64_t bytes)
{
    plim_arena_chunk **best = NULL;
    for (plim_arena_chunk **at = &a->spare; *at; at = &(*at)->next)
        if ((*at)->cap >= bytes && (!best || (*at)->cap < (*best)->cap))
            best = at;
    return best;
}

/* Adds a chunk with room for that many bytes: a spare one, or a new one.  Chunks grow with
 * use, so a large result costs few mallocs and a small one little memory.  Spare ones that are
 * too small are given back first: else an arena that is reset again and again would grow. */
static bool chunk_push(plim_arena *a, uint64_t bytes)
{
    plim_arena_chunk **spare = find_spare(a, bytes), *c;
    if (spare) {
        c = *spare;
        *spare = c->next;
    } else {
        chunks_free(a->spare);
        a->spare = NULL;
        if (!(c = chunk_new(chunk_cap(a, bytes))))
            return false;
    }
    plim_assert(!c->used && c->cap >= bytes);
    c->next = a->head;
    a->head = c;
    return true;
}

static PLIM_COLD void *no_memory(void)
{
    plim_budget_failed();
    return NULL;
}

void *plim_arena_new(plim_arena *a, uint64_t n, uint64_t size)
{
    uint64_t bytes, limit = a->limit ? a->limit : UINT64_MAX;
    a->calls++;
    if (plim_memory_fails() || (a->fail_after && a->calls >= a->fail_after))
        return no_memory();
    if (!plim_mul(n, size, &bytes) || bytes > PLIM_MIN(limit, UINT64_MAX - 15))
        return no_memory();
    bytes = PLIM_MAX((bytes + 15) & ~15ull, 16);
    if (bytes > limit - PLIM_MIN(a->used, limit) ||
        ((!a->head || bytes > a->head->cap - a->head->used) && !chunk_push(a, bytes)))
        return no_memory();
    a->used += bytes;
    return chunk_take(a->head, bytes);
}

void plim_arena_free(plim_arena *a)
{
    chunks_free(a->head);
    chunks_free(a->spare);
    chunks_free(a->large);
    a->head = a->spare = a->large = NULL;
    a->used = 0;
}

void plim_arena_reset(plim_arena *a)
{
    for (plim_arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        memset((uint8_t *)c + CHUNK_HEAD, 0, (size_t)c->used);
        c->used = 0;
        plim_assert(c->used <= c->cap);
        c->next = a->spare;
        a->spare = c;
    }
    chunks_free(a->large);
    a->head = a->large = NULL;
    a->used = 0;
}

static void chunks_insert(plim_arena_chunk **at, plim_arena_chunk *list)
{
    for (plim_arena_chunk *next; list; list = next) {
        next = list->next;
        list->next = *at;
        *at = list;
        at = &list->next;
    }
}

void plim_arena_adopt(plim_arena *a, plim_arena *from)
{
    plim_assert(a != from);
    chunks_insert(a->head ? &a->head->next : &a->head,
                  from->head); /* the first one has room */
    chunks_insert(&a->large, from->large);
    a->used += from->used;
    from->head = from->large = NULL;
    plim_arena_free(from);
}

plim_str plim_arena_str(plim_arena *a, plim_str s)
{
    char *p = s.n < SIZE_MAX ? plim_arena_new(a, s.n + 1, 1) : NULL;
    if (!p)
        return (plim_str){NULL, 0};
    if (s.n)
        memcpy(p, s.p, s.n);
    return (plim_str){p, s.n};
}

plim_str plim_arena_vprintf(plim_arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = n < 0 ? NULL : plim_arena_new(a, (uint64_t)n + 1, 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p ? (plim_str){p, (size_t)n} : (plim_str){NULL, 0};
}

plim_str plim_arena_printf(plim_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    plim_str s = plim_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return s;
}

plim_str plim_arena_append(plim_arena *a, plim_str before, const char *between,
                           const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    plim_str more = plim_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return more.p && before.n
               ? plim_arena_printf(a, PLIM_STR_FMT "%s" PLIM_STR_FMT, PLIM_STR_ARG(before),
                                   between, PLIM_STR_ARG(more))
               : more;
}

bool plim_arena_grow_to(plim_arena *a, void **items, uint64_t n, uint32_t *cap, uint64_t size)
{
    plim_assert(n <= *cap && size && (*items || !n));
    uint64_t want = *cap ? (uint64_t)*cap * 2 : 16;
    if (want > UINT32_MAX)
        return false;
    void *p = plim_arena_new(a, want, size);
    if (!p)
        return false;
    if (n)
        memcpy(p, *items, (size_t)(n * size));
    *items = p;
    *cap = (uint32_t)want;
    return true;
}

/* ---- large arrays ------------------------------------------------------- */

static void *chunk_data(plim_arena_chunk *c) { return (uint8_t *)c + CHUNK_HEAD; }

/* Where the list has the chunk of this array; NULL: nowhere. */
static plim_arena_chunk **find_large(plim_arena *a, const void *items)
{
    for (plim_arena_chunk **at = &a->large; *at; at = &(*at)->next)
        if (chunk_data(*at) == items)
            return at;
    return NULL;
}

/* Gives a chunk of pages, without a copy, the capacity `cap`; false: it cannot. */
static bool chunk_widen(plim_arena_chunk **at, uint64_t cap)
{
    plim_assert(cap >= (*at)->cap);
    plim_arena_chunk *c = *at;
    uint64_t bytes = cap + CHUNK_HEAD, more = cap - c->cap;
    if (!c->mapped || bytes > SIZE_MAX || !plim_memory_take(more))
        return false;
    if (!(c = plim_os_pages_more(c, (size_t)c->mapped, (size_t)bytes))) {
        plim_memory_give(more);
        return false;
    }
    c->cap = cap;
    c->mapped = bytes;
    *at = c;
    return true;
}

/* The chunk of an array, with room for `cap` bytes; NULL: no memory.  `at`: its chunk until now; NULL: it
 * had none. */
static plim_arena_chunk *large_renew(plim_arena *a, plim_arena_chunk **at, const void *items,
                                     uint64_t filled, uint64_t cap)
{
    plim_arena_chunk *fresh;
    if (at && chunk_widen(at, cap))
        return *at;
    if (!(fresh = chunk_new(cap)))
        return NULL;
    if (filled)
        memcpy(chunk_data(fresh), items, (size_t)filled);
    if (at) {
        plim_arena_chunk *old = *at;
        *at = old->next;
        old->next = NULL;
        chunks_free(old);
    }
    fresh->next = a->large;
    return a->large = fresh;
}

bool plim_arena_move_to(plim_arena *a, void **items, uint64_t n, uint32_t *cap, uint64_t size)
{
    plim_assert(n <= *cap && size);
    uint64_t want = (uint64_t)*cap * 2, bytes, limit = a->limit ? a->limit : UINT64_MAX;
    if (!plim_mul(want, size, &bytes) || bytes < CHUNK_LARGE || want > UINT32_MAX)
        return plim_arena_grow_to(a, items, n, cap, size);
    plim_arena_chunk **at = find_large(a, *items), *c = NULL;
    uint64_t had = at ? (*at)->cap : 0;
    a->calls++;
    if (!plim_memory_fails() && !(a->fail_after && a->calls >= a->fail_after) &&
        bytes - had <= limit - PLIM_MIN(a->used, limit))
        c = large_renew(a, at, *items, n * size, bytes);
    if (!c)
        return no_memory() != NULL;
    a->used += bytes - had;
    *items = chunk_data(c);
    *cap = (uint32_t)want;
    return true;
}

bool plim_sort_items(void *items, uint64_t n, uint64_t size,
                     int (*compare)(const void *, const void *))
{
    plim_assert(size && compare);
    const char *item = items;
    uint64_t in_order = 1;
    while (in_order < n && compare(item, item + size) <= 0) {
        item += size;
        in_order++;
    }
    if (in_order >= n)
        return true;
    if (n * size > SIZE_MAX || !plim_memory_take(n * size)) {
        plim_budget_failed();
        return false;
    }
    qsort(items, (size_t)n, (size_t)size, compare);
    plim_memory_give(n * size);
    return true;
}

/* ---- map --------------------------------------------------------------- */

/* Never 0. */
static uint32_t map_hash(plim_str s) { return (uint32_t)plim_str_hash(s) | 1; }

static plim_map_slot *map_slot(const plim_map *m, plim_str key, uint32_t hash)
{
    plim_assert(hash && m->n < m->cap && !(m->cap & (m->cap - 1)));
    uint32_t i = hash >> 1 & (m->cap - 1);
    while (m->slots[i].hash &&
           (m->slots[i].hash != hash || !plim_str_eq(m->slots[i].key, key)))
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static bool map_grow(plim_arena *a, plim_map *m)
{
    uint64_t cap = m->cap ? (uint64_t)m->cap * 2 : 64;
    plim_map_slot *fresh = cap <= 1u << 30 ? PLIM_NEW_N(a, plim_map_slot, cap) : NULL;
    if (!fresh)
        return false;
    uint32_t last = (uint32_t)cap - 1;
    for (uint32_t i = 0; i < m->cap; i++) {
        uint32_t k = m->slots[i].hash >> 1 & last;
        if (!m->slots[i].hash)
            continue;
        while (fresh[k].hash)
            k = (k + 1) & last;
        fresh[k] = m->slots[i];
    }
    plim_assert(m->n < cap);
    m->slots = fresh;
    m->cap = (uint32_t)cap;
    return true;
}

uint32_t *plim_map_at(plim_arena *a, plim_map *m, plim_str key)
{
    if (m->n * 2 >= m->cap && !map_grow(a, m))
        return NULL;
    uint32_t hash = map_hash(key);
    plim_map_slot *s = map_slot(m, key, hash);
    if (!s->hash) {
        m->n++;
        *s = (plim_map_slot){key, 0, hash};
    }
    return &s->value;
}

bool plim_map_put(plim_arena *a, plim_map *m, plim_str key, uint32_t value)
{
    uint32_t *at = plim_map_at(a, m, key);
    if (at)
        *at = value;
    return at != NULL;
}

bool plim_map_get(const plim_map *m, plim_str key, uint32_t *value)
{
    if (!m->cap)
        return false;
    const plim_map_slot *s = map_slot(m, key, map_hash(key));
    if (s->hash)
        *value = s->value;
    return s->hash != 0;
}
