/* test_judge.c -- a slow and simple reference for the allocators: after every event of
 * thousands of random tapes it inspects all blocks and recounts everything.  It knows the
 * rules, but shares no code with the allocators. */
#include <stdio.h>
#include <stdlib.h>

#include "alloc/sim.h"
#include "unit.h"

enum { TAPES = 10000, FAULTS = 300, EVENTS = 120, MOST = 512, STREAMS = 3 };
#define MIB (1ull << 20)

/* ---- random tapes -------------------------------------------------------- */

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* The settings that a tape runs under, as the judge parses them. */
typedef struct setting {
    int torch;
    const char *conf;
    uint64_t split_mb, slack_mb, large_mb; /* split 0: no limit */
    bool expandable, divides;
} setting;

static const setting settings[] = {
    {113, "", 0, 20, 20, false, false},
    {200, "roundup_power2_divisions:1", 0, 20, 20, false, true},
    {200, "max_split_size_mb:21", 21, 20, 20, false, false},
    {204, "expandable_segments:True", 0, 20, 20, true, false},
    {204, "expandable_segments:True,roundup_power2_divisions:[1:4,4:8,>:2]", 0, 20, 20, true,
     true},
    {206, "max_split_size_mb:24,max_non_split_rounding_mb:32", 24, 32, 20, false, false},
    {209, "max_split_size_mb:20,expandable_segments:True", 20, 20, 20, true, false},
    {210, "garbage_collection_threshold:0.6", 0, 20, 20, false, false},
    {211, "large_segment_size_mb:32", 0, 32, 32, false, false},
    {211, "large_segment_size_mb:14,max_split_size_mb:40", 40, 14, 14, false, false},
    {0, "roundup_power2_divisions:8", 0, 20, 20, false, true},
    {0, "garbage_collection_threshold:0.3,expandable_segments:True", 0, 20, 20, true, false},
    {0, "", 0, 20, 20, false, false},
};

static uint64_t random_bytes(void)
{
    static const uint64_t range[] = {2048, MIB, 2 * MIB, 12 * MIB, 40 * MIB};
    return draw(40) == 0 ? 0 : 1 + draw(range[draw(PLIM_COUNT(range))]);
}

/* Some tapes change expandable segments during the run (but never the size of a page: older
 * segments keep theirs). */
static void random_tape(plim_tape *t, const setting *s)
{
    uint32_t live[EVENTS], n = 0;
    bool streams = draw(2);
    bool switches = draw(8) == 0 && s->torch != 113 && s->torch != 200 && s->large_mb == 20;
    for (int i = 0; i < EVENTS; i++) {
        uint64_t what = draw(100);
        if (n && what < 38) {
            uint32_t k = (uint32_t)draw(n);
            plim_tape_free_storage(t, live[k]);
            live[k] = live[--n];
        } else if (n && streams && what < 46) {
            plim_tape_event(t, (plim_event){.kind = PLIM_EVENT_RECORD_STREAM,
                                            .id = live[draw(n)],
                                            .stream = (uint16_t)draw(STREAMS)});
        } else if (streams && what < 50) {
            uint64_t stream = draw(STREAMS + 1);
            plim_tape_event(t, (plim_event){.kind = PLIM_EVENT_STREAM_DONE,
                                            .stream = stream == STREAMS ? PLIM_ALL_STREAMS
                                                                        : (uint16_t)stream});
        } else if (what < 52) {
            plim_tape_event(t, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE});
        } else if (what < 53) {
            plim_tape_event(t, (plim_event){.kind = PLIM_EVENT_RESET_PEAK});
        } else if (switches && what < 56) {
            plim_tape_config(t, draw(2) ? PLIM_STR("expandable_segments:True")
                                        : PLIM_STR("expandable_segments:False"));
        } else {
            plim_storage row = {.bytes = random_bytes()};
            live[n++] = plim_tape_alloc(t, &row);
            t->events[t->n_events - 1].stream = (uint16_t)(streams ? draw(STREAMS) : 0);
        }
    }
}

/* ---- what the judge knows ------------------------------------------------ */

typedef enum life { UNBORN, LIVE, WAITING, GONE } life;

typedef struct piece { /* of each storage */
    life life;
    uint64_t bytes;
    uint32_t block;
    uint16_t stream;
    bool uses[STREAMS], waits[STREAMS], over[STREAMS];
} piece;

typedef struct judge {
    char where[96];
    const plim_tape *tape;
    plim_alloc *h;
    setting now;
    bool has_expandable, mixed; /* ever; settings changed during the run */
    uint64_t capacity, limit;
    piece pieces[EVENTS];
    plim_alloc_block blocks[MOST], before[MOST];
    uint32_t n_blocks, n_before;
    plim_alloc_stats stats, old;
    uint64_t high_requested, high_allocated, high_since_reset;
} judge;

/* Frees whose streams have all finished (or, with `force`, all frees). */
static void judge_complete(judge *j, bool force)
{
    for (uint32_t i = 0; i < j->tape->n_storages; i++) {
        piece *p = &j->pieces[i];
        bool done = p->life == WAITING;
        for (int s = 0; s < STREAMS; s++)
            done = done && (force || !p->waits[s] || p->over[s]);
        if (done)
            p->life = GONE;
    }
}

static bool completes_something(const judge *j)
{
    for (uint32_t i = 0; i < j->tape->n_storages; i++)
        for (int s = 0; s < STREAMS; s++)
            if (j->pieces[i].life == WAITING && j->pieces[i].over[s])
                return true;
    return false;
}

static void look(judge *j)
{
    j->n_blocks = plim_alloc_blocks(j->h, j->blocks, MOST);
    CHECK(j->where, j->n_blocks <= MOST);
    plim_alloc_get_stats(j->h, &j->stats);
    CHECK(j->where, !j->n_blocks || j->blocks[0].first);
}

/* ---- rules --------------------------------------------------------------- */

static bool ends_segment(const judge *j, uint32_t i)
{
    return i + 1 == j->n_blocks || j->blocks[i + 1].first;
}

/* Blocks cover their segments, in order, and overlap no other segment. */
static void judge_tiles(const judge *j)
{
    for (uint32_t i = 0; i + 1 < j->n_blocks; i++) {
        const plim_alloc_block *a = &j->blocks[i], *b = a + 1;
        if (b->first) {
            CHECK(j->where, a->addr + a->bytes <= b->addr);
            continue;
        }
        CHECK(j->where, a->addr + a->bytes == b->addr);
        CHECK(j->where, a->stream == b->stream && a->small == b->small &&
                            a->expandable == b->expandable);
        CHECK("free neighbours are one block",
              !(a->state == PLIM_BLOCK_FREE && b->state == PLIM_BLOCK_FREE));
        CHECK("unmapped neighbours are one block",
              !(a->state == PLIM_BLOCK_UNMAPPED && b->state == PLIM_BLOCK_UNMAPPED));
    }
    for (uint32_t i = 0; i < j->n_blocks; i++) {
        bool odd = j->now.torch == 200 && j->now.divides;
        CHECK(j->where, j->blocks[i].bytes > 0 && (odd || j->blocks[i].bytes % 512 == 0));
        CHECK(j->where, j->blocks[i].expandable || j->blocks[i].state != PLIM_BLOCK_UNMAPPED);
    }
}

static void judge_segments(const judge *j)
{
    uint64_t base = 0, mapped = 0, large = j->now.large_mb * MIB;
    for (uint32_t i = 0; i < j->n_blocks; i++) {
        const plim_alloc_block *b = &j->blocks[i];
        uint64_t page = b->small ? 2 * MIB : large;
        if (b->first) {
            base = b->addr;
            mapped = 0;
        }
        if (b->state == PLIM_BLOCK_UNMAPPED)
            CHECK("pages are whole", (b->addr - base) % page == 0 && b->bytes % page == 0);
        else
            mapped += b->bytes;
        if (!ends_segment(j, i))
            continue;
        if (b->expandable)
            CHECK("pages are whole", mapped % page == 0);
        else if (b->small)
            CHECK("small segments have 2 MiB", mapped == 2 * MIB);
        else
            CHECK("large segments have 20 MiB or are 2 MiB steps from 10 MiB",
                  mapped == large || (mapped >= 10 * MIB && mapped % (2 * MIB) == 0));
    }
}

/* Each storage that is in use is one block, and no other block is in use. */
static void judge_pieces(const judge *j)
{
    uint32_t in_use = 0, expected = 0;
    for (uint32_t i = 0; i < j->n_blocks; i++)
        in_use += j->blocks[i].state == PLIM_BLOCK_ALLOCATED ||
                  j->blocks[i].state == PLIM_BLOCK_PENDING;
    for (uint32_t s = 0; s < j->tape->n_storages; s++) {
        const piece *p = &j->pieces[s];
        uint32_t found = 0;
        if ((p->life != LIVE && p->life != WAITING) || p->block == PLIM_NONE)
            continue;
        expected++;
        for (uint32_t i = 0; i < j->n_blocks; i++) {
            const plim_alloc_block *b = &j->blocks[i];
            if (b->block == p->block &&
                b->state == (p->life == LIVE ? PLIM_BLOCK_ALLOCATED : PLIM_BLOCK_PENDING) &&
                b->requested == p->bytes && b->stream == p->stream && b->bytes >= p->bytes)
                found++;
        }
        CHECK(j->where, found == 1);
    }
    CHECK(j->where, in_use == expected);
}

static void judge_stat(const judge *j, const char *name, const plim_stat *s, uint64_t want)
{
    if (s->current != want)
        fail_msg("%s: %s is %" PRIu64 ", the blocks say %" PRIu64, j->where, name, s->current,
                 want);
    CHECK(name, s->peak >= s->current);
    CHECK(name, s->allocated - s->freed == s->current);
}

static void judge_counters(const judge *j)
{
    uint64_t allocated = 0, active = 0, reserved = 0, requested = 0, split_bytes = 0;
    uint64_t n_allocated = 0, n_active = 0, n_split = 0, segments = 0;
    for (uint32_t i = 0; i < j->n_blocks; i++) {
        const plim_alloc_block *b = &j->blocks[i];
        bool alone = b->first && ends_segment(j, i);
        bool is_live = b->state == PLIM_BLOCK_ALLOCATED;
        bool is_active = is_live || b->state == PLIM_BLOCK_PENDING;
        bool is_split = b->state == PLIM_BLOCK_FREE && !alone && !b->expandable;
        allocated += is_live ? b->bytes : 0;
        active += is_active ? b->bytes : 0;
        requested += b->requested;
        reserved += b->state != PLIM_BLOCK_UNMAPPED ? b->bytes : 0;
        split_bytes += is_split ? b->bytes : 0;
        n_allocated += is_live;
        n_active += is_active;
        n_split += is_split;
        segments += b->first && !b->expandable;
    }
    const plim_alloc_stats *s = &j->stats;
    judge_stat(j, "allocated_bytes", &s->allocated_bytes, allocated);
    judge_stat(j, "active_bytes", &s->active_bytes, active);
    judge_stat(j, "reserved_bytes", &s->reserved_bytes, reserved);
    judge_stat(j, "requested_bytes", &s->requested_bytes, requested);
    judge_stat(j, "allocation", &s->allocation, n_allocated);
    judge_stat(j, "active", &s->active, n_active);
    judge_stat(j, "segment", &s->segment, segments);
    judge_stat(j, "inactive_split", &s->inactive_split, n_split);
    judge_stat(j, "inactive_split_bytes", &s->inactive_split_bytes, split_bytes);
    CHECK("within the device", !j->capacity || reserved <= j->capacity);
    CHECK("within the fraction", j->has_expandable || reserved <= j->limit);
    CHECK("the peak of allocated is the highest it was",
          s->allocated_bytes.peak == j->high_since_reset);
    CHECK("reserved covers active", reserved >= active && active >= allocated);
}

/* ---- one malloc ---------------------------------------------------------- */

static uint64_t up512(uint64_t n) { return (n + 511) / 512 * 512; }

static const plim_alloc_block *find_block(const judge *j, uint32_t block)
{
    for (uint32_t i = 0; i < j->n_blocks; i++)
        if (j->blocks[i].block == block && j->blocks[i].state == PLIM_BLOCK_ALLOCATED)
            return &j->blocks[i];
    fail_msg("%s: the block is not there", j->where);
    return NULL;
}

/* The largest size that the block may have: the request rounded, plus a remainder too small to
 * split off. */
static void judge_size(const judge *j, const piece *p)
{
    const plim_alloc_block *b = find_block(j, p->block);
    uint64_t size = PLIM_MAX(up512(p->bytes), 512);
    if (j->now.divides)
        return; /* vectors.txt covers these sizes */
    bool oversize = j->now.split_mb && size >= j->now.split_mb * MIB;
    CHECK("the pool is chosen by the rounded size", b->small == (size <= MIB));
    if (b->small || j->now.expandable)
        CHECK("cut to the last 512 bytes", b->bytes == size);
    else if (oversize)
        CHECK("not cut, but not too large",
              b->bytes - size < PLIM_MAX(j->now.slack_mb, 2) * MIB);
    else
        CHECK("cut if more than 1 MiB is left", b->bytes - size <= MIB);
}

/* Unless something prevents it, the smallest free block that fits is taken, of several the
 * lowest; only if there is none does memory come from the device. */
static void judge_best_fit(const judge *j, const piece *p)
{
    const plim_alloc_block *b = find_block(j, p->block), *best = NULL;
    uint64_t size = PLIM_MAX(up512(p->bytes), 512);
    if (j->now.divides || j->now.split_mb || j->has_expandable || j->mixed)
        return;
    for (uint32_t i = 0; i < j->n_before; i++) {
        const plim_alloc_block *f = &j->before[i];
        if (f->state == PLIM_BLOCK_FREE && f->stream == p->stream &&
            f->small == (size <= MIB) && f->bytes >= size && (!best || f->bytes < best->bytes))
            best = f; /* in address order: the first of equals stays */
    }
    if (best)
        CHECK("best fit", b->addr == best->addr);
    else
        CHECK("a new segment",
              b->first && j->stats.num_device_alloc == j->old.num_device_alloc + 1);
}

/* Out of memory means that everything cached was released and the request still did not
 * fit. */
static void judge_oom(const judge *j, uint64_t bytes)
{
    uint64_t size = up512(bytes), reserved = j->stats.reserved_bytes.current;
    uint64_t need = size <= MIB       ? 2 * MIB
                    : size < 10 * MIB ? j->now.large_mb * MIB
                                      : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    CHECK("only a device with a limit is full", j->capacity || j->limit != UINT64_MAX);
    CHECK("counted", j->stats.num_ooms == j->old.num_ooms + 1 &&
                         j->stats.num_alloc_retries == j->old.num_alloc_retries + 1);
    for (uint32_t i = 0; i < j->n_blocks; i++) {
        const plim_alloc_block *b = &j->blocks[i];
        CHECK("nothing waits", b->state != PLIM_BLOCK_PENDING);
        CHECK("no cached segment is left", b->state != PLIM_BLOCK_FREE || b->expandable ||
                                               !b->first || !ends_segment(j, i));
    }
    if (!j->now.divides && !j->now.expandable)
        CHECK("no room on the device",
              reserved + need > j->capacity || reserved + need > j->limit);
}

/* ---- events -------------------------------------------------------------- */

static void judge_alloc(judge *j, const plim_event *e)
{
    piece *p = &j->pieces[e->id];
    bool quiet = !completes_something(j);
    *p = (piece){.life = LIVE,
                 .bytes = j->tape->storages[e->id].bytes,
                 .block = PLIM_NONE,
                 .stream = e->stream};
    memcpy(j->before, j->blocks, sizeof j->blocks);
    j->n_before = j->n_blocks;
    j->old = j->stats;
    assert_int_equal(plim_alloc_malloc(j->h, p->bytes, e->stream, &p->block, NULL), PLIM_OK);
    look(j);
    if (p->bytes)
        judge_complete(j, j->stats.num_sync_all_streams > j->old.num_sync_all_streams);
    if (p->block == PLIM_NONE) {
        p->life = GONE;
        if (p->bytes)
            judge_oom(j, p->bytes);
        return;
    }
    judge_size(j, p);
    if (quiet && j->stats.num_alloc_retries == j->old.num_alloc_retries &&
        j->stats.num_device_free == j->old.num_device_free)
        judge_best_fit(j, p);
}

static void judge_free(judge *j, const plim_event *e)
{
    piece *p = &j->pieces[e->id];
    if (p->life != LIVE)
        return;
    p->life = GONE;
    for (int s = 0; s < STREAMS; s++)
        if (p->uses[s] && s != p->stream) {
            p->waits[s] = true;
            p->life = WAITING;
        }
    assert_int_equal(plim_alloc_free(j->h, p->block, NULL), PLIM_OK);
    if (p->block == PLIM_NONE)
        p->life = GONE;
}

static void judge_done(judge *j, uint16_t stream)
{
    plim_alloc_stream_done(j->h, stream);
    for (uint32_t i = 0; i < j->tape->n_storages; i++)
        for (int s = 0; s < STREAMS; s++)
            if (j->pieces[i].life == WAITING && j->pieces[i].waits[s] &&
                (stream == PLIM_ALL_STREAMS || stream == s))
                j->pieces[i].over[s] = true;
}

static void judge_event(judge *j, const plim_event *e)
{
    switch ((plim_event_kind)e->kind) {
    case PLIM_EVENT_ALLOC: judge_alloc(j, e); break;
    case PLIM_EVENT_FREE: judge_free(j, e); break;
    case PLIM_EVENT_RECORD_STREAM:
        if (j->pieces[e->id].life != LIVE)
            break;
        j->pieces[e->id].uses[e->stream] = true;
        assert_int_equal(
            plim_alloc_record_stream(j->h, j->pieces[e->id].block, e->stream, NULL), PLIM_OK);
        break;
    case PLIM_EVENT_STREAM_DONE: judge_done(j, e->stream); break;
    case PLIM_EVENT_EMPTY_CACHE:
        assert_int_equal(plim_alloc_empty_cache(j->h, NULL), PLIM_OK);
        judge_complete(j, true);
        break;
    case PLIM_EVENT_RESET_PEAK:
        plim_alloc_reset_peak(j->h);
        j->high_since_reset = 0;
        break;
    case PLIM_EVENT_CONFIG:
        assert_int_equal(plim_alloc_config(j->h, j->tape->configs[e->id], NULL), PLIM_OK);
        j->now.expandable = plim_str_is(j->tape->configs[e->id], "expandable_segments:True");
        j->now.split_mb = 0; /* each parse starts from the defaults */
        j->now.slack_mb = 20;
        j->now.divides = false;
        j->has_expandable |= j->now.expandable;
        j->mixed = true;
        break;
    case PLIM_EVENT_FRACTION: break; /* does not occur in random tapes */
    }
}

static uint64_t live_requested(const judge *j)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < j->tape->n_storages; i++)
        sum += j->pieces[i].life == LIVE ? j->pieces[i].bytes : 0;
    return sum;
}

/* Frees what is left and empties the cache: no memory may remain.  (Address space may, if the
 * device had no page for it.) */
static void judge_end(judge *j)
{
    for (uint32_t i = 0; i < j->tape->n_storages; i++)
        if (j->pieces[i].life == LIVE)
            plim_alloc_free(j->h, j->pieces[i].block, NULL);
    assert_int_equal(plim_alloc_empty_cache(j->h, NULL), PLIM_OK);
    look(j);
    for (uint32_t i = 0; i < j->n_blocks; i++)
        CHECK(j->where, j->blocks[i].state == PLIM_BLOCK_UNMAPPED && j->blocks[i].first &&
                            ends_segment(j, i));
    judge_counters(j);
    CHECK(j->where, j->stats.reserved_bytes.current == 0 && j->stats.active.current == 0);
}

/* ---- one tape ------------------------------------------------------------ */

/* sim.h over the same tape must give the same result. */
static void judge_sim(const judge *j, plim_arena *a, const plim_alloc_options *o)
{
    plim_sim sim;
    uint64_t live = 0;
    assert_int_equal(plim_sim_run(a, j->tape, o, PLIM_SIM_ALL, &sim, NULL), PLIM_OK);
    CHECK(j->where, memcmp(&sim.stats, &j->stats, sizeof sim.stats) == 0);
    CHECK(j->where, sim.peak_requested == j->high_requested);
    CHECK(j->where, sim.peak_allocated == j->high_allocated);
    CHECK(j->where, sim.requested == live_requested(j));
    CHECK(j->where, sim.oom == (j->stats.num_ooms > 0) && sim.n_events == j->tape->n_events);
    for (uint32_t i = 0; i < sim.n_live; i++)
        live += j->tape->storages[sim.live[i]].bytes;
    CHECK("live at the peak", live <= sim.peak_allocated && live <= sim.peak_requested);
    CHECK("the peak has a bucket",
          !sim.peak_allocated || sim.buckets[sim.peak_bucket].allocated == sim.peak_allocated);
}

/* Our own memory runs out at the n-th request, for each n until it does not: this must be an
 * error, and nothing else. */
static void judge_faults(const judge *j, const plim_alloc_options *o)
{
    plim_status st = PLIM_ENOMEM;
    for (uint64_t n = 1; st == PLIM_ENOMEM; n++) {
        plim_arena a = {.fail_after = n};
        plim_err err = PLIM_ERR_INIT;
        plim_sim sim;
        st = plim_sim_run(&a, j->tape, o, PLIM_SIM_ALL, &sim, &err);
        CHECK(j->where, st == err.code && n < 1000);
        plim_arena_free(&a);
    }
    assert_int_equal(st, PLIM_OK);
}

static void judge_tape(judge *j, int number)
{
    static const uint64_t capacities[] = {0, 0, 64 * MIB, 100 * MIB, 150 * MIB, 400 * MIB};
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t;
    memset(j, 0, sizeof *j);
    seed = (uint64_t)number * 2654435761u + 99;
    const setting *s = &settings[draw(PLIM_COUNT(settings))];
    plim_alloc_options o = {.torch = s->torch,
                            .conf = plim_str_of(s->conf),
                            .capacity = capacities[draw(PLIM_COUNT(capacities))]};
    if (o.capacity && draw(3) == 0)
        o.fraction = 0.5;
    plim_tape_init(&t, &a);
    random_tape(&t, s);
    CHECK("sound", plim_tape_check(&t) == NULL);
    j->tape = &t;
    j->now = *s;
    j->has_expandable = s->expandable;
    j->capacity = o.capacity;
    j->limit = o.fraction > 0 ? o.capacity / 2 : UINT64_MAX;
    assert_int_equal(plim_alloc_new(&a, &o, &j->h, NULL), PLIM_OK);
    for (uint32_t i = 0; i < t.n_events; i++) {
        snprintf(j->where, sizeof j->where, "tape %d, event %" PRIu32 ", '%s'", number, i,
                 s->conf);
        judge_event(j, &t.events[i]);
        look(j);
        j->high_requested = PLIM_MAX(j->high_requested, live_requested(j));
        j->high_allocated = PLIM_MAX(j->high_allocated, j->stats.allocated_bytes.current);
        j->high_since_reset = PLIM_MAX(j->high_since_reset, j->stats.allocated_bytes.current);
        judge_tiles(j);
        judge_segments(j);
        judge_pieces(j);
        judge_counters(j);
    }
    judge_sim(j, &a, &o);
    if (number < FAULTS)
        judge_faults(j, &o);
    judge_end(j);
    plim_arena_free(&a);
}

static void test_tapes(void **state)
{
    (void)state;
    static judge j;
    for (int i = 0; i < TAPES; i++)
        judge_tape(&j, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
