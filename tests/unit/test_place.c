/* test_place.c -- the addresses of NVIDIA's driver: every allocation that
 * tests/golden/driver/probe.py recorded on a card, and the same rule in its simplest form, which
 * shares no code with place_nvidia.c, while chance decides. */
#include "alloc/place_nvidia.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

#define PAGE (2ull << 20)
#define STEP 16 /* pages of a reservation's step */
enum { EVENTS = 4096, LEFT = 16 };

typedef struct event { /* an allocation of `pages` at `place`, or a release of that number */
    int64_t pages, place;
    uint32_t number;
} event;

static event events[EVENTS];

/* "1@-223 10@5 -0 ...": returns how many. */
static uint32_t read_events(FILE *f, int64_t base)
{
    uint32_t n = 0;
    for (char word[64]; fscanf(f, "%63s", word) == 1 && strcmp(word, "#") != 0; n++) {
        assert_true(n < EVENTS);
        char *at = strchr(word, '@');
        events[n] = (event){0};
        if (at)
            events[n] = (event){strtoll(word, NULL, 10), base + strtoll(at + 1, NULL, 10), 0};
        else
            events[n].number = (uint32_t)strtoul(word + 1, NULL, 10);
    }
    return n;
}

static int64_t round_pages(int64_t n) { return (n + STEP - 1) / STEP * STEP; }

/* What a recording shows of the address space before it: its own reservations begin at a
 * multiple of their step, those that the context left end at one, and began no higher than an
 * allocation in them.  The gap ends where the first of its own does. */
static size_t find_left(uint32_t n, plim_place_range left[LEFT], uint64_t *top)
{
    int64_t end = 0;
    size_t n_left = 0;
    for (uint32_t i = 0; i < n; i++) {
        const event *e = &events[i];
        if (e->pages && e->place % STEP == 0 && !end)
            end = e->place + round_pages(e->pages);
        if (!e->pages || e->place % STEP == 0 || (end && e->place < end))
            continue;
        uint64_t begin = (uint64_t)e->place * PAGE,
                 above = (uint64_t)round_pages(e->place) * PAGE;
        size_t k = 0;
        while (k < n_left && left[k].end != above)
            k++;
        assert_true(k < LEFT);
        if (k == n_left)
            left[n_left++] = (plim_place_range){begin, above};
        left[k].begin = PLIM_MIN(left[k].begin, begin);
    }
    *top = (uint64_t)end * PAGE;
    return n_left;
}

static int higher_first(const void *a, const void *b)
{
    const plim_place_range *x = a, *y = b;
    return (x->begin < y->begin) - (x->begin > y->begin);
}

/* Returns how many allocations there were. */
static uint32_t replay_events(const char *name, uint32_t n)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_place_range left[LEFT], gap = {0, 0};
    size_t n_left = find_left(n, left, &gap.end);
    static uint64_t places[EVENTS];
    uint32_t taken = 0;
    qsort(left, n_left, sizeof *left, higher_first);
    void *driver = plim__driver_open(&a, gap, left, n_left);
    assert_non_null(driver);
    for (uint32_t i = 0; i < n; i++) {
        const event *e = &events[i];
        if (!e->pages) {
            plim__driver_give(driver, places[e->number]);
            continue;
        }
        assert_true(plim__driver_take(driver, (uint64_t)e->pages * PAGE, &places[taken]));
        if (places[taken] != (uint64_t)e->place * PAGE)
            fail_msg("%s, event %" PRIu32 ": %" PRId64 " pages are at page %" PRId64
                     ", simulated at %" PRIu64,
                     name, i, e->pages, e->place, (uint64_t)(places[taken] / PAGE));
        taken++;
    }
    plim_arena_free(&a);
    return taken;
}

static void test_recorded(void **state)
{
    (void)state;
    FILE *f = fopen(PLIM_SOURCE_DIR "/tests/golden/driver/h100-580.159.04.txt", "r");
    uint32_t taken = 0, sequences = 0;
    char name[32], first[32];
    assert_non_null(f);
    assert_int_equal(fscanf(f, "#"), 0);
    for (; fscanf(f, " %31[a-z0-9]: CUDA %*d, from %31s", name, first) == 2; sequences++)
        taken +=
            replay_events(name, read_events(f, (int64_t)(strtoull(first, NULL, 16) / PAGE)));
    fclose(f);
    assert_int_equal(sequences, 9);
    assert_int_equal(taken, 8346);
}

/* ---- the rule, page by page ------------------------------------------------------ */

enum { HOMES = 512, PAGES = 1024, CONTEXT = 2 };

typedef struct home { /* owner of each page: the number of an allocation, + 1 */
    int64_t begin, pages;
    bool stays;
    uint32_t owner[PAGES];
} home;

static home homes[HOMES]; /* the oldest first */
static uint32_t n_homes;

/* The first page of the smallest hole, of several the lowest; -1: none is large enough. */
static int64_t find_hole(const home *h, int64_t pages)
{
    int64_t best = -1, smallest = PAGES + 1;
    for (int64_t i = 0, end; i < h->pages; i = end + 1) {
        for (end = i; end < h->pages && !h->owner[end];)
            end++;
        if (end - i >= pages && end - i < smallest) {
            smallest = end - i;
            best = i;
        }
    }
    return best;
}

/* The end of the highest gap for so many pages below `top`. */
static int64_t find_gap(int64_t top, int64_t pages)
{
    for (int64_t end = top;;) {
        int64_t below = INT64_MIN, next = end;
        for (uint32_t i = 0; i < n_homes; i++)
            if (!homes[i].stays && homes[i].begin < end &&
                homes[i].begin + homes[i].pages > below) {
                below = homes[i].begin + homes[i].pages;
                next = homes[i].begin;
            }
        if (below == INT64_MIN || end - below >= pages + STEP)
            return end;
        end = next;
    }
}

static int64_t take_pages(int64_t pages, int64_t top, uint32_t number)
{
    uint32_t i = n_homes;
    while (i > 0 && find_hole(&homes[i - 1], pages) < 0)
        i--;
    if (!i) {
        int64_t size = round_pages(pages);
        assert_true(n_homes < HOMES && size <= PAGES);
        homes[n_homes] = (home){.begin = find_gap(top, size) - size, .pages = size};
        i = ++n_homes;
    }
    home *h = &homes[i - 1];
    int64_t at = find_hole(h, pages);
    for (int64_t k = 0; k < pages; k++)
        h->owner[at + k] = number + 1;
    return h->begin + at;
}

static void give_pages(uint32_t number)
{
    for (uint32_t i = 0; i < n_homes; i++) {
        home *h = &homes[i];
        bool had = false, any = false;
        for (int64_t k = 0; k < h->pages; k++) {
            had |= h->owner[k] == number + 1;
            h->owner[k] = h->owner[k] == number + 1 ? 0 : h->owner[k];
            any |= h->owner[k] != 0;
        }
        if (had && !any && !h->stays)
            memmove(h, h + 1, (--n_homes - i) * sizeof *h);
        if (had)
            return;
    }
}

static uint64_t seed = 7;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static int64_t random_pages(void)
{
    static const uint32_t most[] = {2, 12, 40, 700};
    return 1 + draw(most[draw(4)]);
}

/* Returns whether the memory that it may have was enough. */
static bool play(uint64_t limit, uint32_t steps, uint32_t often)
{
    enum { LIVE = 150 };
    const int64_t top = 1 << 20;
    plim_arena a = {.limit = limit};
    plim_place_range left[CONTEXT] = {
        {(uint64_t)(top + 30) * PAGE, (uint64_t)(top + 64) * PAGE},
        {(uint64_t)(top + 1) * PAGE, (uint64_t)(top + 16) * PAGE}};
    void *driver =
        plim__driver_open(&a, (plim_place_range){0, (uint64_t)top * PAGE}, left, CONTEXT);
    uint32_t live[LIVE], n = 0, number = 0;
    static uint64_t places[EVENTS];
    bool enough = driver != NULL;
    homes[0] = (home){.begin = top + 30, .pages = 34, .stays = true};
    homes[1] = (home){.begin = top + 1, .pages = 15, .stays = true};
    n_homes = CONTEXT;
    for (uint32_t i = 0; enough && i < steps; i++) {
        if (n == LIVE || (n && draw(100) < often)) {
            uint32_t k = draw(n);
            plim__driver_give(driver, places[live[k]]);
            give_pages(live[k]);
            live[k] = live[--n];
            continue;
        }
        int64_t pages = random_pages();
        enough = plim__driver_take(driver, (uint64_t)pages * PAGE - draw(2), &places[number]);
        if (!enough)
            break;
        assert_int_equal(places[number], (uint64_t)take_pages(pages, top, number) * PAGE);
        live[n++] = number++;
    }
    plim_arena_free(&a);
    return enough;
}

static void test_random(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++)
        assert_true(play(0, 1500, 20 + 4 * i));
}

/* A full arena is said, whichever allocation meets it. */
static void test_memory(void **state)
{
    (void)state;
    uint32_t failed = 0;
    for (uint64_t limit = 1; limit < 1 << 19; limit += limit / 4 + 1)
        failed += !play(limit, 1000, 30);
    assert_true(failed > 10);
}

/* Where there is no room below, memory lies wherever. */
static void test_end(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    void *driver = plim__driver_open(&a, (plim_place_range){0, 96 * PAGE}, NULL, 0);
    uint64_t first, second, third;
    assert_true(plim__driver_take(driver, 33 * PAGE, &first) && first == 48 * PAGE);
    assert_true(plim__driver_take(driver, 33 * PAGE, &second) && !second);
    assert_true(plim__driver_take(driver, UINT64_MAX / 2, &second) && !second);
    assert_true(plim__driver_take(driver, 32 * PAGE, &third) && third == 16 * PAGE);
    plim__driver_give(driver, 5 * PAGE); /* it gave no such address */
    plim__driver_give(driver, first);
    assert_true(plim__driver_take(driver, 64 * PAGE, &first) && !first);
    plim__driver_give(driver, third);
    assert_true(plim__driver_take(driver, 64 * PAGE, &first) && first == 32 * PAGE);
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
