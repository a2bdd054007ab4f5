/* diff.c -- see diff.h: partners, the scale, the place where two tapes part. */
#include "diff/diff.h"

#include <stdlib.h>

#include "base/idmap.h"

/* ---- partners ------------------------------------------------------------------ */

static uint32_t *fill_none(plim_arena *a, uint64_t n)
{
    uint32_t *list = PLIM_NEW_N(a, uint32_t, n + 1);
    for (uint64_t i = 0; list && i < n; i++)
        list[i] = PLIM_NONE;
    return list;
}

/* Finds the requests of each storage. */
static plim_status index_requests(plim_diff_tape *s, plim_arena *a, plim_err *err)
{
    plim_status st = plim_requests_of(&s->requests, s->tape, a, err);
    s->allocs = fill_none(a, s->tape->n_storages);
    s->frees = fill_none(a, s->tape->n_storages);
    s->seen = PLIM_NEW_N(a, uint32_t, s->requests.n + UINT64_C(1));
    s->last = PLIM_NEW_N(a, uint32_t, s->requests.n + UINT64_C(1));
    if (st || !s->allocs || !s->frees || !s->seen || !s->last)
        return st ? st : plim_oom(err);
    for (uint32_t i = 0; i < s->requests.n; i++) {
        const plim_request *q = &s->requests.at[i];
        (q->frees ? s->frees : s->allocs)[q->storage] = i;
    }
    return PLIM_OK;
}

/* Storages are partners if their allocations are. */
static plim_status pair_storages(plim_diff_tape *s, const plim_diff_tape *other, plim_arena *a,
                                 plim_err *err)
{
    s->n_seen = 0;
    if (!(s->storage = fill_none(a, s->tape->n_storages)))
        return plim_oom(err);
    for (uint32_t i = 0; i < s->requests.n; i++) {
        const plim_request *q = &s->requests.at[i];
        s->seen[i] = s->n_seen;
        s->n_seen += s->partner[i] != PLIM_NONE;
        if (!q->frees && s->partner[i] != PLIM_NONE)
            s->storage[q->storage] = other->requests.at[s->partner[i]].storage;
    }
    return PLIM_OK;
}

/* A free of another storage is not a partner. */
static void part_frees(plim_tape_diff *d)
{
    for (uint32_t i = 0; i < d->a.requests.n; i++) {
        const plim_request *q = &d->a.requests.at[i];
        uint32_t k = d->a.partner[i];
        if (q->frees && k != PLIM_NONE &&
            d->a.storage[q->storage] != d->b.requests.at[k].storage)
            d->a.partner[i] = d->b.partner[k] = PLIM_NONE;
    }
}

static void note_last(plim_diff_tape *s)
{
    uint32_t last = PLIM_NONE;
    for (uint32_t i = 0; i < s->requests.n; i++) {
        s->last[i] = last;
        if (s->partner[i] != PLIM_NONE)
            last = s->partner[i];
    }
}

/* Both sides from the partners of a. */
static plim_status pair_sides(plim_tape_diff *d, plim_err *err)
{
    if (!(d->b.partner = fill_none(d->arena, d->b.requests.n)))
        return plim_oom(err);
    for (uint32_t i = 0; i < d->a.requests.n; i++)
        if (d->a.partner[i] != PLIM_NONE)
            d->b.partner[d->a.partner[i]] = i;
    PLIM_TRY(pair_storages(&d->a, &d->b, d->arena, err));
    PLIM_TRY(pair_storages(&d->b, &d->a, d->arena, err));
    part_frees(d);
    note_last(&d->a);
    note_last(&d->b);
    return PLIM_OK;
}

/* Aligns with one likeness and, between the partners that it finds, with another. */
static plim_status align_sides(plim_tape_diff *d, const plim_likeness *how,
                               const plim_likeness *then, plim_err *err)
{
    if (!(d->a.partner = fill_none(d->arena, d->a.requests.n)))
        return plim_oom(err);
    plim_status st = plim_align(&d->a.requests, &d->b.requests, how, d->a.partner, err);
    if (!st && then)
        st = plim_align(&d->a.requests, &d->b.requests, then, d->a.partner, err);
    return st ? st : pair_sides(d, err);
}

/* Whether half of the requests of a, at least, have names that b has, too. */
static plim_status compare_names(plim_tape_diff *d, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_id_map names = {0};
    uint32_t known = 0;
    bool good = true;
    if (!d->a.told || !d->b.told)
        return PLIM_OK;
    for (uint32_t i = 0; i < d->b.requests.n && good; i++)
        good = plim_id_at(&scratch, &names, d->b.requests.at[i].name) != NULL;
    for (uint32_t i = 0; i < d->a.requests.n && good; i++)
        known += d->a.requests.at[i].name && plim_id_get(&names, d->a.requests.at[i].name);
    d->by_name = known && known >= d->a.requests.n / 2;
    plim_arena_free(&scratch);
    return good ? PLIM_OK : plim_oom(err);
}

/* ---- the scale ----------------------------------------------------------------- */

/* A size, and the bytes of all allocations of it that have no partner. */
typedef struct lone_size {
    uint64_t size, bytes;
} lone_size;

static int compare_sizes(const void *x, const void *y)
{
    const lone_size *p = x, *q = y;
    return p->size < q->size ? 1 : p->size > q->size ? -1 : 0;
}

/* The sizes of the allocations without a partner, the largest first, each once. */
static lone_size *list_lone(const plim_diff_tape *s, plim_arena *a, uint32_t *n)
{
    uint32_t m = 0;
    lone_size *list = PLIM_NEW_N(a, lone_size, s->requests.n + UINT64_C(1));
    *n = 0;
    for (uint32_t i = 0; list && i < s->requests.n; i++)
        if (!s->requests.at[i].frees && s->partner[i] == PLIM_NONE)
            list[m++] = (lone_size){s->requests.at[i].bytes, s->requests.at[i].bytes};
    if (list && m)
        qsort(list, m, sizeof *list, compare_sizes);
    for (uint32_t i = 0; i < m; i++) {
        if (*n && list[*n - 1].size == list[i].size)
            list[*n - 1].bytes = plim_sat_add(list[*n - 1].bytes, list[i].bytes);
        else
            list[(*n)++] = list[i];
    }
    return list;
}

static uint64_t find_divisor(uint64_t a, uint64_t b)
{
    plim_assert(a > 0 || b > 0);
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Bytes of the sizes of a that b has, too, at this scale. */
static uint64_t bytes_at_scale(const lone_size *a, uint32_t n_a, const lone_size *b,
                               uint32_t n_b, plim_likeness s)
{
    plim_assert(s.per > 0);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_a; i++) {
        lone_size want = {0, 0};
        if (!plim_mul(a[i].size, s.times, &want.size) || want.size % s.per)
            continue;
        want.size /= s.per;
        if (n_b && bsearch(&want, b, n_b, sizeof *b, compare_sizes))
            bytes = plim_sat_add(bytes, a[i].bytes);
    }
    return bytes;
}

/* The scale between the sizes that have no partner: that which most of their bytes have, if it
 * is more than half; else times is 0. */
static plim_status find_scale(const plim_tape_diff *d, plim_likeness *out, plim_err *err)
{
    enum { CANDIDATES = 16, FEWEST = 4 }; /* sizes on each side; fewer may be chance */
    plim_arena scratch = PLIM_ARENA_INIT;
    uint32_t n_a, n_b;
    lone_size *a = list_lone(&d->a, &scratch, &n_a), *b = list_lone(&d->b, &scratch, &n_b);
    uint64_t best = 0, all = 0;
    bool good = a && b;
    for (uint32_t i = 0; good && i < n_a; i++)
        all = plim_sat_add(all, a[i].bytes);
    for (uint32_t i = 0; good && n_a >= FEWEST && n_b >= FEWEST && i < CANDIDATES && i < n_a;
         i++)
        for (uint32_t k = 0; k < CANDIDATES && k < n_b; k++) {
            uint64_t by = find_divisor(b[k].size, a[i].size);
            plim_likeness s = {.times = b[k].size / by, .per = a[i].size / by};
            uint64_t bytes = bytes_at_scale(a, n_a, b, n_b, s);
            if (bytes > best && bytes > all / 2 && s.times != s.per) {
                best = bytes;
                out->times = s.times;
                out->per = s.per;
            }
        }
    plim_arena_free(&scratch);
    return good ? PLIM_OK : plim_oom(err);
}

/* ---- sizes that differ -------------------------------------------------------------- */

static bool same_size(const plim_request *a, const plim_request *b)
{
    return plim_request_alike(a, b, &(plim_likeness){.size = true});
}

bool plim_diff_resized(const plim_tape_diff *d, uint32_t storage)
{
    plim_assert(storage < d->a.tape->n_storages);
    uint32_t other = d->a.storage[storage];
    return other != PLIM_NONE && !same_size(&d->a.requests.at[d->a.allocs[storage]],
                                            &d->b.requests.at[d->b.allocs[other]]);
}

/* A ratio of two sizes, and the bytes of the storages with it. */
typedef struct ratio {
    uint64_t times, per, bytes;
} ratio;

static int compare_ratios(const void *x, const void *y)
{
    const ratio *p = x, *q = y;
    if (p->times != q->times)
        return p->times < q->times ? -1 : 1;
    return p->per < q->per ? -1 : p->per > q->per;
}

/* The ratio of most of the sizes that differ. */
static plim_status find_ratio(plim_tape_diff *d, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    ratio *list = PLIM_NEW_N(&scratch, ratio, d->a.tape->n_storages + UINT64_C(1));
    uint64_t all = 0, sum = 0, best = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; list && i < d->a.tape->n_storages; i++) {
        if (!plim_diff_resized(d, i))
            continue;
        uint64_t x = d->a.tape->storages[i].bytes;
        uint64_t y = d->b.tape->storages[d->a.storage[i]].bytes, by = find_divisor(x, y);
        list[n++] = (ratio){y / by, x / by, PLIM_MAX(x, y)};
        all = plim_sat_add(all, PLIM_MAX(x, y));
    }
    if (n)
        qsort(list, n, sizeof *list, compare_ratios);
    for (uint32_t i = 0; i < n; i++) {
        bool again = i && !compare_ratios(&list[i - 1], &list[i]);
        sum = plim_sat_add(again ? sum : 0, list[i].bytes);
        if (sum > best && sum > all / 2) {
            best = sum;
            d->times = list[i].times;
            d->per = list[i].per;
        }
    }
    plim_arena_free(&scratch);
    return list ? PLIM_OK : plim_oom(err);
}

/* ---- where they part ------------------------------------------------------------- */

static void count_requests(plim_tape_diff *d)
{
    uint32_t paired = 0;
    for (uint32_t i = 0; i < d->a.requests.n; i++) {
        uint32_t k = d->a.partner[i];
        if (k == PLIM_NONE)
            continue;
        paired++;
        d->n_resized += !same_size(&d->a.requests.at[i], &d->b.requests.at[k]);
    }
    plim_assert(paired <= d->b.requests.n && d->n_resized <= paired);
    d->n_equal = paired - d->n_resized;
    d->n_only_a = d->a.requests.n - paired;
    d->n_only_b = d->b.requests.n - paired;
}

static void find_first(plim_tape_diff *d)
{
    uint32_t i = 0;
    while (i < d->a.requests.n && d->a.partner[i] == i &&
           same_size(&d->a.requests.at[i], &d->b.requests.at[i]))
        i++;
    d->parts = i < d->a.requests.n || i < d->b.requests.n;
    d->first_a = i < d->a.requests.n ? i : PLIM_NONE;
    d->first_b = i < d->b.requests.n ? i : PLIM_NONE;
}

/* By names if they have the same; else by sizes, which may all be larger by a factor. */
static plim_status align_tapes(plim_tape_diff *d, plim_err *err)
{
    static const plim_likeness both = {.name = true, .size = true}, name = {.name = true};
    plim_likeness size = {.size = true};
    plim_status st = compare_names(d, err);
    if (!st)
        st = align_sides(d, d->by_name ? &both : &size, d->by_name ? &name : NULL, err);
    if (!st && !d->by_name)
        st = find_scale(d, &size, err);
    return st || !size.times ? st : align_sides(d, &size, NULL, err);
}

plim_status plim_diff_tapes(plim_tape_diff *d, plim_err *err)
{
    PLIM_TRY(index_requests(&d->a, d->arena, err));
    PLIM_TRY(index_requests(&d->b, d->arena, err));
    PLIM_TRY(align_tapes(d, err));
    PLIM_TRY(find_ratio(d, err));
    count_requests(d);
    find_first(d);
    return PLIM_OK;
}

/* ---- names ----------------------------------------------------------------------- */

static plim_str drop_part(plim_str name)
{
    while (name.n && name.p[name.n - 1] != '.')
        name.n--;
    name.n -= name.n > 0;
    return name;
}

/* Lines of programs have a colon or a space, names of tensors have neither. */
static plim_str find_module(plim_str name, uint32_t category)
{
    if (category == PLIM_CATEGORY_UNKNOWN || memchr(name.p, ':', name.n) ||
        memchr(name.p, ' ', name.n))
        return name;
    name = drop_part(name); /* "weight", "out" */
    return category == PLIM_CAT_GRADIENT || category == PLIM_CAT_OPTIMIZER_STATE
               ? drop_part(name) /* "weight.grad" */
               : name;
}

/* The storage as the side has it whose names and categories count; *side is that side. */
static const plim_storage *find_teller(const plim_tape_diff *d, const plim_diff_tape **side,
                                       uint32_t storage)
{
    plim_assert(storage < (*side)->tape->n_storages);
    const plim_diff_tape *teller = d->a.told || !d->b.told ? &d->a : &d->b;
    if (*side != teller && (*side)->storage[storage] != PLIM_NONE) {
        storage = (*side)->storage[storage];
        *side = teller;
    }
    return &(*side)->tape->storages[storage];
}

uint32_t plim_diff_category_of(const plim_tape_diff *d, const plim_diff_tape *side,
                               uint32_t storage)
{
    const plim_storage *s = find_teller(d, &side, storage);
    return side->told ? s->category : (uint32_t)PLIM_CATEGORY_UNKNOWN;
}

plim_diff_label plim_diff_label_of(const plim_tape_diff *d, const plim_diff_tape *side,
                                   uint32_t storage)
{
    plim_diff_label l = {.category = plim_diff_category_of(d, side, storage)};
    const plim_storage *s = find_teller(d, &side, storage);
    if (!side->told) /* many blocks have one name, a line of the program */
        l.name = s->name.p ? s->name : PLIM_STR("");
    else
        l.name = s->role && *s->role
                     ? plim_arena_printf(d->arena, PLIM_STR_FMT "%s%s", PLIM_STR_ARG(s->name),
                                         s->name.n ? "." : "", s->role)
                     : plim_arena_str(d->arena, s->name);
    if (l.name.p)
        l.module = find_module(l.name, l.category);
    return l;
}

const plim_mark *plim_diff_mark(const plim_diff_tape *side, uint32_t request)
{
    plim_assert(request < side->requests.n);
    const plim_tape *t = side->tape;
    uint32_t event = side->requests.at[request].event, low = 0, high = t->n_marks;
    while (low < high) { /* the last mark at or before the event */
        uint32_t mid = low + (high - low) / 2;
        if (t->marks[mid].first <= event)
            low = mid + 1;
        else
            high = mid;
    }
    return low ? &t->marks[low - 1] : NULL;
}
