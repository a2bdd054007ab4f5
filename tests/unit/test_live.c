/* test_live.c -- what `top` remembers from reading to reading, and which numbers it believes. */
#include <math.h>

#include "live/live.h"
#include "unit.h"

enum { GB = 1000000000 };

/* A reading of one GPU with 40 GB and one process. */
static plim_reading read_one(plim_arena *a, uint64_t pid, uint64_t started, uint64_t memory)
{
    plim_reading r = {.arena = a, .root = "/nonexistent"};
    plim_live_device *d = plim_reading_device(&r, "nvml");
    d->uuid = "GPU-1";
    plim_reading_memory(&r, d, 40ull * GB, memory, 40ull * GB - memory);
    plim_live_process *p = plim_reading_process(&r, pid, "compute");
    p->started = started;
    p->memory = memory;
    return r;
}

static const struct {
    const char *why;
    int64_t ms;
    uint64_t pid, started, gigabytes, ticks;
    double growth, full_in, cpu;
    uint64_t peak;
} ticks[] = {
    {"the first reading has no growth", 0, 7, 1, 2, 100, NAN, NAN, NAN, 2},
    {"2 GB in 2 s; 36 GB are free", 2000, 7, 1, 4, 300, 1e9, 36, 100, 4},
    {"the peak stays, growth is over all readings", 4000, 7, 1, 3, 300, 0.25e9, 148, 0, 4},
    {"a clock that does not advance gives no rate of the CPU", 4000, 7, 1, 2, 300, 0, NAN, NAN,
     4},
    {"another process under the same pid begins anew", 6000, 7, 2, 1, 0, NAN, NAN, NAN, 1},
    {"shrinking is no time to full", 7000, 7, 2, 0, 50, -1e9, NAN, 50, 1},
};

static bool same_real(double a, double b)
{
    return isnan(b) ? isnan(a) : fabs(a - b) <= 1e-6 * (1 + fabs(b));
}

static void test_growth(void **state)
{
    plim_arena keep = PLIM_ARENA_INIT;
    plim_past *past = plim_past_new(&keep);
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(ticks); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_reading r = read_one(&a, ticks[i].pid, ticks[i].started, ticks[i].gigabytes * GB);
        plim_past_add(past, &r, &ticks[i].ticks, ticks[i].ms);
        const plim_live_process *p = r.processes;
        CHECK(ticks[i].why, p->peak == ticks[i].peak * GB);
        CHECK(ticks[i].why, same_real(p->growth_per_s, ticks[i].growth));
        CHECK(ticks[i].why, same_real(p->full_in_s, ticks[i].full_in));
        CHECK(ticks[i].why, same_real(p->cpu_percent, ticks[i].cpu));
        plim_arena_free(&a);
    }
    uint64_t used[8], busy[8];
    CHECK("each reading is in the plot, the newest first",
          plim_past_of(past, 0, used, busy, 8) == PLIM_COUNT(ticks) && used[0] == 0 &&
              used[1] == GB && busy[0] == PLIM_LIVE_UNKNOWN);
    plim_arena_free(&keep);
}

static void test_unknown_memory(void **state)
{
    plim_arena keep = PLIM_ARENA_INIT, a = PLIM_ARENA_INIT;
    plim_past *past = plim_past_new(&keep);
    const uint64_t none = PLIM_LIVE_UNKNOWN;
    (void)state;
    for (int i = 0; i < 3; i++) {
        plim_reading r = read_one(&a, 7, 1, GB);
        r.processes->memory = none;
        plim_past_add(past, &r, &none, i * 1000);
        CHECK("unknown has no peak and no growth",
              r.processes->peak == none && isnan(r.processes->growth_per_s));
    }
    plim_arena_free(&a);
    plim_arena_free(&keep);
}

static const struct {
    const char *why;
    uint64_t total, used, free;
    bool believed;
} memories[] = {
    {"a GPU", 40ull * GB, GB, 39ull * GB, true},
    {"reserved memory is neither used nor free", 40ull * GB, GB, 38ull * GB, true},
    {"no memory at all", 0, 0, 0, false},
    {"more used than there is", GB, 2ull * GB, 0, false},
    {"more free than there is", GB, 0, 2ull * GB, false},
    {"minus one", UINT64_MAX, 0, 0, false},
};

static void test_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(memories); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_reading r = {.arena = &a};
        plim_live_device *d = plim_reading_device(&r, "nvml");
        plim_reading_memory(&r, d, memories[i].total, memories[i].used, memories[i].free);
        CHECK(memories[i].why, (d->total != PLIM_LIVE_UNKNOWN) == memories[i].believed);
        CHECK(memories[i].why, !d->trouble == memories[i].believed);
        plim_arena_free(&a);
    }
}

/* A day of readings, a second apart, with processes that come and go: after the first minutes
 * nothing more is taken. */
static void test_day(void **state)
{
    enum { DAY = 86400, WARM = 1000, MOST = 20 };
    plim_arena keep = PLIM_ARENA_INIT, a = PLIM_ARENA_INIT;
    plim_past *past = plim_past_new(&keep);
    uint64_t cpu[MOST] = {0}, warm = 0, warm_tick = 0;
    (void)state;
    for (int i = 0; i < DAY; i++) {
        plim_arena_reset(&a);
        plim_reading r = read_one(&a, 7, 1, GB);
        for (int k = 1; k < (i % MOST) + 1 && k < MOST; k++)
            plim_reading_process(&r, (uint64_t)(100 + i / 3 + k), "compute")->memory = GB;
        plim_past_add(past, &r, cpu, (int64_t)i * 1000);
        if (i == WARM) {
            warm = keep.used;
            warm_tick = a.used;
        }
    }
    CHECK("a day takes no more than a quarter of an hour", keep.used == warm && warm);
    CHECK("a reading takes what a reading took", a.used <= 4 * warm_tick);
    plim_arena_free(&a);
    plim_arena_free(&keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_unknown_memory),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
