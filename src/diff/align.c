/* align.c -- see align.h.
 *
 * src: E. W. Myers, An O(ND) Difference Algorithm and Its Variations, Algorithmica 1 (1986),
 * section 4b: the middle of a shortest path is searched from both ends at once, which takes
 * memory for two diagonals only; then the parts before and after it are aligned. */
#include "diff/align.h"

/* Edits within which the middle of a part is searched.  Beyond that the part is divided where
 * the search came furthest, so each request is looked at about so many times at most: all of them
 * that often are about MOST_WORK, a second or less. */
enum { LEAST_EDITS = 256, MOST_WORK = 200000000 };

static uint64_t hash_text(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)p[i]) * 0x100000001b3ull; /* FNV-1a */
    return h;
}

/* Of "NAME.ROLE", as a text tape has it.  A workspace is named after what it is for. */
static uint64_t hash_name(const plim_storage *s)
{
    uint64_t h = hash_text(0xcbf29ce484222325ull + (s->category == PLIM_CAT_WORKSPACE),
                           s->name.p, s->name.n);
    bool role = s->role && *s->role;
    if (role && s->name.n)
        h = hash_text(h, ".", 1);
    if (role)
        h = hash_text(h, s->role, strlen(s->role));
    return s->name.n || role ? h | 1 : 0;
}

plim_status plim_requests_of(plim_requests *out, const plim_tape *t, plim_arena *a,
                             plim_err *err)
{
    *out = (plim_requests){.at = PLIM_NEW_N(a, plim_request, t->n_events)};
    if (t->n_events && !out->at)
        return plim_oom(err);
    for (uint32_t i = 0; i < t->n_events; i++) {
        const plim_event *e = &t->events[i];
        if (e->kind != PLIM_EVENT_ALLOC && e->kind != PLIM_EVENT_FREE)
            continue;
        const plim_storage *s = &t->storages[e->id];
        if (s->bytes)
            out->at[out->n++] = (plim_request){.bytes = s->bytes,
                                               .low = plim_storage_bytes(s, PLIM_BOUND_LOW),
                                               .high = plim_storage_bytes(s, PLIM_BOUND_HIGH),
                                               .name = hash_name(s),
                                               .event = i,
                                               .storage = e->id,
                                               .frees = e->kind == PLIM_EVENT_FREE};
    }
    return PLIM_OK;
}

bool plim_request_alike(const plim_request *a, const plim_request *b, const plim_likeness *how)
{
    if (a->frees != b->frees || (how->name && a->name != b->name))
        return false;
    return !how->size || (a->low <= b->bytes && b->bytes <= a->high) ||
           (b->low <= a->bytes && a->bytes <= b->high) ||
           (how->times &&
            plim_sat_mul(a->bytes, how->times) == plim_sat_mul(b->bytes, how->per));
}

/* ---- the middle of a part ------------------------------------------------------ */

typedef struct aligner {
    const plim_requests *a, *b;
    const plim_likeness *how;
    int64_t *forward, *backward; /* by diagonal, from that of -1 - b->n on */
    int64_t edits;               /* at most, of a search */
} aligner;

/* Requests [a0, a1) of a and [b0, b1) of b. */
typedef struct part {
    int64_t a0, a1, b0, b1;
} part;

typedef struct part_list {
    part *at;
    uint32_t n, cap;
} part_list;

/* A search from one end.  On diagonal d, where a request of a is d further than that of b, it
 * has come as far as request at[d] of a. */
typedef struct search {
    int64_t *at;
    int64_t first, last; /* the diagonals that it has reached */
} search;

static bool is_alike(const aligner *w, int64_t i, int64_t k)
{
    plim_assert(i >= 0 && i < w->a->n && k >= 0 && k < w->b->n);
    return plim_request_alike(&w->a->at[i], &w->b->at[k], w->how);
}

/* Widens the search by a diagonal on each side, if the part has one there; `nowhere` is what no
 * path has reached. */
static void widen_search(search *s, const part *p, int64_t nowhere)
{
    if (s->first > p->a0 - p->b1)
        s->at[--s->first - 1] = nowhere;
    else
        s->first++;
    if (s->last < p->a1 - p->b0)
        s->at[++s->last + 1] = nowhere;
    else
        s->last--;
}

static bool has_diagonal(const search *s, int64_t d) { return s->first <= d && d <= s->last; }

/* One more edit on each diagonal of the search from the beginning.  Returns whether it met the
 * other search, and the diagonal in *met. */
static bool search_forward(const aligner *w, const part *p, search *s, const search *other,
                           int64_t *met)
{
    widen_search(s, p, -1);
    for (int64_t d = s->last; d >= s->first; d -= 2) {
        int64_t i = PLIM_MAX(s->at[d - 1] + 1, s->at[d + 1]);
        while (i < p->a1 && i - d < p->b1 && is_alike(w, i, i - d))
            i++;
        s->at[d] = i;
        if (other && has_diagonal(other, d) && other->at[d] <= i) {
            *met = d;
            return true;
        }
    }
    return false;
}

/* The same from the end. */
static bool search_backward(const aligner *w, const part *p, search *s, const search *other,
                            int64_t *met)
{
    widen_search(s, p, INT64_MAX);
    for (int64_t d = s->last; d >= s->first; d -= 2) {
        int64_t i = PLIM_MIN(s->at[d - 1], s->at[d + 1] - 1);
        while (i > p->a0 && i - d > p->b0 && is_alike(w, i - 1, i - 1 - d))
            i--;
        s->at[d] = i;
        if (other && has_diagonal(other, d) && i <= other->at[d]) {
            *met = d;
            return true;
        }
    }
    return false;
}

/* A place in the part: before request a of a, and before request b of b. */
typedef struct place {
    int64_t a, b;
} place;

/* The place to which a search has come on diagonal d, moved into the part. */
static place place_at(const part *p, int64_t i, int64_t d)
{
    i = PLIM_MAX(PLIM_MIN(i, p->a1), p->a0);
    i = PLIM_MAX(PLIM_MIN(i, p->b1 + d), p->b0 + d);
    plim_assert(i >= p->a0 && i <= p->a1 && i - d >= p->b0 && i - d <= p->b1);
    return (place){i, i - d};
}

/* Where either search has come furthest. */
static place find_furthest(const part *p, const search *f, const search *r)
{
    place best = {p->a0, p->b0};
    int64_t most = -1;
    for (int64_t d = f->first; d <= f->last; d += 2) {
        place at = place_at(p, f->at[d], d);
        int64_t gone = at.a - p->a0 + at.b - p->b0;
        if (gone > most) {
            most = gone;
            best = at;
        }
    }
    for (int64_t d = r->first; d <= r->last; d += 2) {
        place at = place_at(p, r->at[d], d);
        int64_t gone = p->a1 - at.a + p->b1 - at.b;
        if (gone > most) {
            most = gone;
            best = at;
        }
    }
    return best;
}

/* A place through which a good alignment of the part goes.  Both of its sides have requests,
 * of which neither the first nor the last ones are alike. */
static place find_middle(const aligner *w, const part *p)
{
    plim_assert(p->a0 < p->a1 && p->b0 < p->b1);
    const int64_t begin = p->a0 - p->b0, end = p->a1 - p->b1;
    const bool odd = ((begin - end) & 1) != 0;
    int64_t *zero = w->forward + w->b->n + 1, *other = w->backward + w->b->n + 1, met;
    search f = {.at = zero, .first = begin, .last = begin};
    search r = {.at = other, .first = end, .last = end};
    f.at[begin] = p->a0;
    r.at[end] = p->a1;
    for (int64_t edits = 0; edits < w->edits; edits++) {
        if (search_forward(w, p, &f, odd ? &r : NULL, &met))
            return place_at(p, f.at[met], met);
        if (search_backward(w, p, &r, odd ? NULL : &f, &met))
            return place_at(p, r.at[met], met);
    }
    return find_furthest(p, &f, &r);
}

/* ---- all parts ----------------------------------------------------------------- */

/* Makes partners of the requests that are alike at both ends of the part. */
static void trim_part(const aligner *w, part *p, uint32_t *partner)
{
    plim_assert(p->a0 <= p->a1 && p->b0 <= p->b1);
    while (p->a0 < p->a1 && p->b0 < p->b1 && is_alike(w, p->a0, p->b0))
        partner[p->a0++] = (uint32_t)p->b0++;
    while (p->a0 < p->a1 && p->b0 < p->b1 && is_alike(w, p->a1 - 1, p->b1 - 1))
        partner[--p->a1] = (uint32_t)--p->b1;
}

/* Puts the parts between the partners that are given on the list. */
static bool list_gaps(const aligner *w, const uint32_t *partner, plim_arena *scratch,
                      part_list *out)
{
    part gap = {0, 0, 0, 0};
    for (; gap.a1 <= w->a->n; gap.a1++) {
        bool end = gap.a1 == w->a->n;
        if (!end && partner[gap.a1] == PLIM_NONE)
            continue;
        gap.b1 = end ? w->b->n : partner[gap.a1];
        if (!PLIM_PUSH_ROOM(scratch, out->at, out->n, out->cap))
            return false;
        out->at[out->n++] = gap;
        gap.a0 = gap.a1 + 1;
        gap.b0 = gap.b1 + 1;
    }
    return true;
}

static bool align_parts(const aligner *w, uint32_t *partner, plim_arena *scratch)
{
    part_list list = {0};
    if (!list_gaps(w, partner, scratch, &list))
        return false;
    while (list.n) {
        part p = list.at[--list.n];
        trim_part(w, &p, partner);
        if (p.a0 >= p.a1 || p.b0 >= p.b1)
            continue;
        place m = find_middle(w, &p);
        plim_assert(m.a - p.a0 + m.b - p.b0 > 0 && p.a1 - m.a + p.b1 - m.b > 0);
        list.at[list.n++] = (part){m.a, p.a1, m.b, p.b1};
        if (!PLIM_PUSH_ROOM(scratch, list.at, list.n, list.cap))
            return false;
        list.at[list.n++] = (part){p.a0, m.a, p.b0, m.b};
    }
    return true;
}

plim_status plim_align(const plim_requests *a, const plim_requests *b,
                       const plim_likeness *how, uint32_t *partner, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    uint64_t diagonals = (uint64_t)a->n + b->n + 3;
    aligner w = {.a = a,
                 .b = b,
                 .how = how,
                 .forward = PLIM_NEW_N(&scratch, int64_t, diagonals),
                 .backward = PLIM_NEW_N(&scratch, int64_t, diagonals),
                 .edits = PLIM_MAX(LEAST_EDITS, (int64_t)(MOST_WORK / diagonals))};
    bool good = w.forward && w.backward && align_parts(&w, partner, &scratch);
    plim_arena_free(&scratch);
    return good ? PLIM_OK : plim_oom(err);
}
