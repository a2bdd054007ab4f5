/* megatron_layout.c -- see megatron_layout.h. */
#include "share/megatron_layout.h"

#include <stdlib.h>

#include "share/strategy.h"

enum { PARAM_ALIGNMENT = 64, BUCKET_ALIGNMENT = 128 }; /* elements */

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return plim_sat_mul(a / x, b);
}

/* That share out the experts and the features of each. */
static int64_t count_expert_cards(const plim_graph *g)
{
    return PLIM_MAX(g->part.expert_ranks, 1) * PLIM_MAX(g->part.expert_parts, 1);
}

/* Ranks of a stage that follow one another divide an expert, then share out experts. */
plim_mg_place plim_mg_place_of(const plim_graph *g, const plim_share *s, int64_t data_part,
                               bool expert)
{
    int64_t tp = s->size[PLIM_AXIS_tp], all = plim_share_data_parts(s),
            cards = count_expert_cards(g);
    return expert ? (plim_mg_place){(data_part * tp + s->at[PLIM_AXIS_tp]) / cards,
                                    PLIM_MAX(all * tp / cards, 1)}
                  : (plim_mg_place){data_part, all};
}

bool plim_mg_check_experts(plim_shared *x)
{
    int64_t cards = count_expert_cards(x->g),
            all = plim_share_parts(x) * x->share->size[PLIM_AXIS_tp];
    if (all % cards)
        plim_m_fail(x->m, PLIM_EUSAGE,
                    "experts are shared out among %" PRId64
                    " cards, which do not divide the %" PRId64 " cards of a stage",
                    cards, all);
    return all % cards == 0;
}

double plim_mg_bucket_size(const plim_share *s)
{
    const double least = 40e6, each = 1e6;
    double given = plim_strategy_number(&s->strategy, "bucket_size");
    if (plim_strategy_number(&s->strategy, "overlap_grad_reduce") <= 0)
        return (double)UINT64_MAX;
    return given >= 0 ? given : PLIM_MAX(least, each * (double)plim_share_data_parts(s));
}

uint64_t plim_mg_lay_whole(plim_mg_placed *p, uint32_t n)
{
    uint64_t at = 0;
    for (uint32_t i = n; i-- > 0;) {
        p[i].at = at;
        p[i].last = p[i].numel;
        at = plim_sat_add(at, p[i].numel);
    }
    return at;
}

/* ---- the distributed optimizer ----------------------------------------------------------------- */

/* Gives a rank its piece of each parameter of a bucket. */
static void divide_bucket(plim_mg_placed *p, uint32_t n, uint64_t from, uint64_t to,
                          plim_mg_place own)
{
    uint64_t each = (to - from) / (uint64_t)own.of, first = from + each * (uint64_t)own.at,
             last = first + each;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t a = PLIM_MAX(first, p[i].at), b = PLIM_MIN(last, p[i].at + p[i].numel);
        p[i].first = a < b ? a - p[i].at : 0;
        p[i].last = a < b ? b - p[i].at : 0;
    }
}

/* The last parameters come first, as backward has their gradients first. */
uint64_t plim_mg_lay_parts(plim_mg_placed *p, uint32_t n, double bucket, plim_mg_place own)
{
    uint64_t at = 0, from = 0, divisor = common_multiple((uint64_t)own.of, BUCKET_ALIGNMENT);
    uint32_t top = n; /* of the open bucket */
    for (uint32_t i = n; i-- > 0;) {
        at = plim_round_up(at, PARAM_ALIGNMENT);
        if (p[i].alone && i + 1 < top) {
            at = plim_round_up(at, divisor);
            divide_bucket(&p[i + 1], top - i - 1, from, at, own);
            from = at;
            top = i + 1;
        }
        p[i].at = at;
        at = plim_sat_add(at, p[i].numel);
        if (i && !p[i].alone && (double)(at - from) < bucket)
            continue;
        at = plim_round_up(at, divisor);
        divide_bucket(&p[i], top - i, from, at, own);
        from = at;
        top = i;
    }
    return at;
}

/* ---- Megatron-FSDP: parts of whole rows -------------------------------------------------------- */

/* For sorting: a parameter by its size, by the work of its update or by its columns. */
typedef struct ranked {
    double by;
    uint32_t at;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->by < y->by ? -1 : x->by > y->by ? 1 : (x->at > y->at) - (x->at < y->at);
}

/* A multiple of the columns of all, unless a parameter fits without. */
static uint64_t fold_columns(const plim_mg_placed *p, uint32_t n)
{
    uint64_t unit = n ? (uint64_t)p[0].columns : 1;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t columns = (uint64_t)p[i].columns;
        if (columns != unit && (unit % columns || p[i].numel % unit) && p[i].numel >= unit)
            unit = common_multiple(unit, columns);
    }
    return unit;
}

/* What lies in the gap behind a parameter that does not end with a unit: the end of another one, from its right, and
 * those that are smaller than a unit, from its left. */
static uint64_t fill_gap(plim_mg_placed *p, uint32_t n, uint32_t after, uint64_t unit,
                         bool *done, uint64_t end)
{
    uint64_t rest = p[after].numel % unit, space = unit - rest, from = end - space;
    for (uint32_t i = after + 1; i < n; i++) {
        uint64_t other = p[i].numel % unit;
        if (done[i] || p[i].numel < unit || !other || rest + other > unit)
            continue;
        p[i].at = end - other;
        done[i] = true;
        space -= other;
        end += p[i].numel / unit * unit;
        break;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (done[i] || p[i].numel >= unit || p[i].numel > space)
            continue;
        p[i].at = from;
        done[i] = true;
        space -= p[i].numel;
        from += p[i].numel;
    }
    return end;
}

static uint64_t place_rows(plim_mg_placed *p, uint32_t n, uint64_t unit, bool *done)
{
    uint64_t at = 0;
    for (int small = 0; small < 2; small++)
        for (uint32_t i = 0; i < n; i++) {
            if (done[i] || (p[i].numel < unit) != small)
                continue;
            p[i].at = at;
            done[i] = true;
            if (small || p[i].numel % unit == 0)
                at = plim_sat_add(at, p[i].numel);
            else
                at = fill_gap(p, n, i, unit, done, at + (p[i].numel / unit + 1) * unit);
        }
    return at;
}

bool plim_mg_lay_rows(plim_arena *a, plim_mg_placed *p, uint32_t n, int64_t ranks,
                      uint64_t *size)
{
    ranked *order = PLIM_NEW_N(a, ranked, (uint64_t)n + 1);
    plim_mg_placed *room = PLIM_NEW_N(a, plim_mg_placed, (uint64_t)n + 1);
    bool *done = PLIM_NEW_N(a, bool, (uint64_t)n + 1);
    if (!order || !room || !done)
        return false;
    for (uint32_t i = 0; i < n; i++)
        order[i] = (ranked){-(double)p[i].columns, i};
    qsort(order, n, sizeof *order, compare_ranked);
    memcpy(room, p, n * sizeof *p);
    for (uint32_t i = 0; i < n; i++)
        p[i] = room[order[i].at];
    uint64_t unit = fold_columns(p, n);
    *size = plim_round_up(place_rows(p, n, unit, done), plim_sat_mul((uint64_t)ranks, unit));
    return true;
}

void plim_mg_take_part(plim_mg_placed *p, uint32_t n, uint64_t size, plim_mg_place own)
{
    divide_bucket(p, n, 0, size, own);
}

/* ---- the layer-wise optimizer: matrices as wholes ------------------------------------------------ */

/* From the smallest to the largest, there and back through the ranks, each has the next one. */
bool plim_mg_deal_out(plim_arena *a, plim_mg_placed *p, uint32_t n, const int64_t ranks[2])
{
    int64_t dealt[2] = {0};
    ranked *order = PLIM_NEW_N(a, ranked, (uint64_t)n + 1);
    if (!order)
        return false;
    for (uint32_t i = 0; i < n; i++)
        order[i] = (ranked){(double)p[i].numel, i};
    qsort(order, n, sizeof *order, compare_ranked);
    for (uint32_t k = 0; k < n; k++) {
        plim_mg_placed *q = &p[order[k].at];
        int64_t of = ranks[q->expert], at = dealt[q->expert]++ % (2 * of);
        q->owner = at < of ? at : 2 * of - 1 - at;
    }
    return true;
}

void plim_mg_claim(plim_mg_placed *p, uint32_t n, int64_t rank)
{
    for (uint32_t i = 0; i < n; i++) {
        p[i].first = 0;
        p[i].last = p[i].owner == rank ? p[i].numel : 0;
    }
}

/* A layout while it is made.  `load` and `end` are by rank: of all buckets so far the work, of the open one the
 * elements; `filled` guesses the latter, as long as the bucket takes more. */
typedef struct packing {
    plim_mg_placed *p;
    ranked *order;
    double *load;
    uint64_t *end, *filled;
    int64_t ranks;
    uint64_t divisor, at;
} packing;

static int64_t find_least(const uint64_t *of, int64_t n)
{
    int64_t least = 0;
    for (int64_t k = 1; k < n; k++)
        if (of[k] < of[least])
            least = k;
    return least;
}

static uint64_t find_most(const uint64_t *of, int64_t n)
{
    uint64_t most = 0;
    for (int64_t k = 0; k < n; k++)
        most = PLIM_MAX(most, of[k]);
    return most;
}

/* What Newton and Schulz's iteration multiplies. */
static double count_work(const plim_mg_placed *p)
{
    double rows = (double)p->rows, columns = (double)p->columns;
    return PLIM_MAX(rows, columns) * PLIM_MIN(rows, columns) * PLIM_MIN(rows, columns);
}

/* The rank with the least work of those that have room, or with the most room. */
static int64_t choose_rank(const packing *k, uint64_t numel, double most)
{
    int64_t best = -1;
    for (int64_t r = 0; r < k->ranks; r++) {
        uint64_t end = plim_round_up(k->end[r], PARAM_ALIGNMENT) + numel;
        if ((double)end <= most && (best < 0 || k->load[r] < k->load[best]))
            best = r;
    }
    return best < 0 ? find_least(k->end, k->ranks) : best;
}

/* The parameters [from, to); the last is the first of the bucket, and the costliest are placed
 * first. */
static void pack_bucket(packing *k, uint32_t from, uint32_t to)
{
    const double slack = 1.3;
    uint64_t sum = 0;
    memset(k->end, 0, (size_t)k->ranks * sizeof *k->end);
    for (uint32_t i = from; i < to; i++) {
        sum = plim_sat_add(sum, k->p[i].numel);
        k->order[i - from] = (ranked){-count_work(&k->p[i]), to - 1 - i};
    }
    qsort(k->order, to - from, sizeof *k->order, compare_ranked);
    for (uint32_t i = 0; i < to - from; i++) {
        plim_mg_placed *p = &k->p[to - 1 - k->order[i].at];
        int64_t r = choose_rank(k, p->numel, (double)sum / (double)k->ranks * slack);
        p->at = plim_round_up(k->end[r], PARAM_ALIGNMENT);
        k->end[r] = p->at + p->numel;
        k->load[r] += count_work(p);
        p->owner = r;
    }
    uint64_t each = plim_round_up(find_most(k->end, k->ranks), k->divisor);
    for (uint32_t i = from; i < to; i++)
        k->p[i].at += k->at + each * (uint64_t)k->p[i].owner;
    k->at = plim_sat_add(k->at, plim_sat_mul(each, (uint64_t)k->ranks));
}

/* Whether the open bucket has room for it without growing. */
static bool has_room(const packing *k, uint64_t numel)
{
    uint64_t least = k->filled[find_least(k->filled, k->ranks)];
    return plim_round_up(least, PARAM_ALIGNMENT) + numel <=
           plim_round_up(find_most(k->filled, k->ranks), k->divisor);
}

static void pack_all(packing *k, uint32_t n, double bucket)
{
    const double floor = 0.9;
    uint64_t sum = 0, most = 0;
    uint32_t top = n; /* of the open bucket */
    for (uint32_t i = n; i-- > 0;) {
        double least = PLIM_MAX(bucket, (double)k->ranks * (double)most * floor);
        if (top > i + 1 && (double)sum >= least && !has_room(k, k->p[i].numel)) {
            pack_bucket(k, i + 1, top);
            memset(k->filled, 0, (size_t)k->ranks * sizeof *k->filled);
            sum = most = 0;
            top = i + 1;
        }
        int64_t r = find_least(k->filled, k->ranks);
        k->filled[r] = plim_round_up(k->filled[r], PARAM_ALIGNMENT) + k->p[i].numel;
        sum = plim_sat_add(sum, k->p[i].numel);
        most = PLIM_MAX(most, k->p[i].numel);
    }
    if (top)
        pack_bucket(k, 0, top);
}

bool plim_mg_lay_matrices(plim_arena *a, plim_mg_placed *p, uint32_t n, double bucket,
                          int64_t ranks, uint64_t *numel)
{
    uint64_t of = (uint64_t)ranks;
    packing k = {.p = p,
                 .order = PLIM_NEW_N(a, ranked, (uint64_t)n + 1),
                 .load = PLIM_NEW_N(a, double, of),
                 .end = PLIM_NEW_N(a, uint64_t, of),
                 .filled = PLIM_NEW_N(a, uint64_t, of),
                 .ranks = ranks,
                 .divisor = common_multiple(PARAM_ALIGNMENT,
                                            common_multiple(of, BUCKET_ALIGNMENT) / of)};
    if (!k.order || !k.load || !k.end || !k.filled)
        return false;
    pack_all(&k, n, bucket);
    *numel = k.at;
    return true;
}
