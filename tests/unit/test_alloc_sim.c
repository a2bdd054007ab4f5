/* test_alloc_sim.c -- a whole tape: rows, timeline, the peak and what is live there, out of
 * memory; and every allocator of the list. */
#include "alloc/sim.h"

#include "unit.h"

#define MIB (1ull << 20)

static plim_tape tape_of(plim_arena *a, const char *text)
{
    plim_tape t;
    plim_err err = PLIM_ERR_INIT;
    plim_tape_init(&t, a);
    if (plim_tape_parse(&t, (plim_bytes){.p = (const uint8_t *)text, .n = strlen(text)}, &err))
        fail_msg("%s", err.msg);
    CHECK("sound", plim_tape_check(&t) == NULL);
    return t;
}

static plim_sim run(plim_arena *a, const plim_tape *t, plim_alloc_options o, unsigned what)
{
    plim_sim sim;
    plim_err err = PLIM_ERR_INIT;
    if (plim_sim_run(a, t, &o, what, &sim, &err))
        fail_msg("%s", err.msg);
    return sim;
}

/* Worked out by hand: 4 + 16 MiB fill one segment of 20, 12 MiB have their own. */
static const char two_steps[] = "plimsoll-tape 1\n"
                                "@ load load\n"
                                "+ 1 4MiB parameter w\n"
                                "@ 0 forward conv\n"
                                "+ 2 16MiB activation conv.out\n"
                                "+ 3 12MiB temporary\n"
                                "- 3\n"
                                "@ 0 backward conv\n"
                                "- 2\n"
                                "+ 4 1000 gradient\n"
                                "@ 1 zero_grad\n"
                                "! empty_cache\n";

static void test_rows(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, two_steps);
    plim_sim s = run(&a, &t, (plim_alloc_options)PLIM_ALLOC_OPTIONS_INIT, PLIM_SIM_ALL);
    static const plim_phase_row want[] = {
        {-1, PLIM_PHASE_LOAD, 4 * MIB, 4 * MIB, 20 * MIB, 4 * MIB, 4 * MIB, 20 * MIB},
        {0, PLIM_PHASE_FORWARD, 20 * MIB, 20 * MIB, 32 * MIB, 32 * MIB, 32 * MIB, 32 * MIB},
        /* a phase begins with the current counters */
        {0, PLIM_PHASE_BACKWARD, 4 * MIB + 1000, 4 * MIB + 1024, 34 * MIB, 20 * MIB, 20 * MIB,
         34 * MIB},
        {1, PLIM_PHASE_ZERO_GRAD, 4 * MIB + 1000, 4 * MIB + 1024, 22 * MIB, 4 * MIB + 1000,
         4 * MIB + 1024, 34 * MIB},
    };
    assert_int_equal(s.n_rows, PLIM_COUNT(want));
    for (uint32_t i = 0; i < s.n_rows; i++) {
        const plim_phase_row *got = &s.rows[i], *w = &want[i];
        char why[16] = "row ";
        why[4] = (char)('0' + i);
        CHECK(why, got->step == w->step && got->phase == w->phase);
        CHECK(why, got->requested == w->requested && got->allocated == w->allocated);
        CHECK(why, got->reserved == w->reserved && got->peak_requested == w->peak_requested);
        CHECK(why, got->peak_allocated == w->peak_allocated);
        CHECK(why, got->peak_reserved == w->peak_reserved);
    }
    plim_arena_free(&a);
}

static void test_peak(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, two_steps);
    plim_sim s = run(&a, &t, (plim_alloc_options)PLIM_ALLOC_OPTIONS_INIT, PLIM_SIM_ALL);
    assert_true(s.peak_requested == 32 * MIB && s.peak_allocated == 32 * MIB);
    assert_true(s.peak_active == 32 * MIB && s.peak_reserved == 34 * MIB);
    assert_true(s.requested == 4 * MIB + 1000);
    assert_int_equal(s.peak_allocated_event, 2);
    assert_int_equal(s.peak_requested_event, 2);
    assert_int_equal(s.n_live, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(s.live[i], i);
    assert_true(!s.oom && s.oom_event == PLIM_NONE && s.n_events == t.n_events);
    /* one bucket per event: the timeline is the tape */
    assert_int_equal(s.n_buckets, t.n_events);
    assert_int_equal(s.peak_bucket, 2);
    assert_true(s.buckets[0].allocated == 4 * MIB && s.buckets[0].step == -1);
    assert_true(s.buckets[2].allocated == 32 * MIB &&
                s.buckets[2].phase == PLIM_PHASE_FORWARD);
    assert_true(s.buckets[6].reserved == 34 * MIB && s.buckets[6].step == 1);
    /* without these extras the results are the same */
    plim_sim fast = run(&a, &t, (plim_alloc_options)PLIM_ALLOC_OPTIONS_INIT, 0);
    assert_true(!fast.rows && !fast.live && !fast.buckets);
    assert_memory_equal(&fast.stats, &s.stats, sizeof s.stats);
    assert_true(fast.peak_allocated == s.peak_allocated &&
                fast.peak_requested_event == s.peak_requested_event);
    plim_arena_free(&a);
}

/* 1000 allocs of 1 MiB, then their frees: the buckets rise and fall, their maximum is the
 * peak, and each event is in exactly one. */
static void test_timeline(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t;
    plim_storage one = {.bytes = MIB};
    plim_tape_init(&t, &a);
    for (int i = 0; i < 1000; i++)
        plim_tape_alloc(&t, &one);
    for (uint32_t i = 0; i < 1000; i++)
        plim_tape_free_storage(&t, i);
    plim_sim s = run(&a, &t, (plim_alloc_options)PLIM_ALLOC_OPTIONS_INIT, PLIM_SIM_ALL);
    assert_int_equal(s.n_buckets, PLIM_BUCKETS);
    for (uint32_t i = 0; i < s.n_buckets; i++) {
        /* events [i * 2000 / 240, (i + 1) * 2000 / 240), edges rounded up */
        uint64_t begin = (i * 2000 + 239) / 240, end = ((i + 1) * 2000 + 239) / 240;
        uint64_t live = end <= 1000 ? end : begin >= 1000 ? 2000 - begin : 1000;
        CHECK("the highest level in the bucket", s.buckets[i].requested == live * MIB);
    }
    assert_true(s.buckets[s.peak_bucket].allocated == 1000 * MIB);
    assert_int_equal(s.n_rows, 0);
    plim_arena_free(&a);
}

static const char too_much[] = "plimsoll-tape 1\n"
                               "+ 1 40MiB\n"
                               "+ 2 30MiB\n"
                               "r 2 stream=1\n"
                               "- 2\n"
                               "+ 3 0\n"
                               "+ 4 20MiB\n"
                               "+ 5 100MiB\n"
                               "- 3\n";

static void test_oom(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, too_much);
    plim_alloc_options o = {.capacity = 64 * MIB, .torch = 205};
    plim_sim s = run(&a, &t, o, PLIM_SIM_ALL);
    assert_true(s.oom && s.oom_event == 1 && s.n_events == t.n_events);
    assert_true(s.stats.num_ooms == 2 && s.peak_allocated == 60 * MIB);
    assert_int_equal(s.n_live, 2); /* neither the failed one nor the one without bytes */
    assert_true(s.live[0] == 0 && s.live[1] == 3);
    assert_true(plim_str_starts(s.oom_text,
                                "CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has"));
    assert_int_equal(s.oom_text.p[s.oom_text.n], '\0');
    s = run(&a, &t, o, PLIM_SIM_ALL | PLIM_SIM_STOP_AT_OOM);
    assert_true(s.oom && s.n_events == 2 && s.stats.num_ooms == 1);
    assert_true(s.peak_allocated == 40 * MIB && s.requested == 40 * MIB);
    plim_arena_free(&a);
}

static void test_nothing(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, "plimsoll-tape 1\n@ 0 forward\n");
    plim_sim s = run(&a, &t, (plim_alloc_options)PLIM_ALLOC_OPTIONS_INIT, PLIM_SIM_ALL);
    assert_true(s.n_events == 0 && s.n_live == 0 && s.n_buckets == 0 && s.n_rows == 1);
    assert_true(s.peak_allocated == 0 && s.peak_allocated_event == PLIM_NONE);
    plim_arena_free(&a);
}

static void test_options(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        plim_alloc_options o;
        const char *msg;
    } rows[] = {
        {"too large",
         {.capacity = 1ull << 61},
         "capacity 2305843009213693952 is over the limit of 1152921504606846976 bytes"},
        {"more than there is",
         {.capacity = 2, .total = 1},
         "capacity 2 is over the device's total of 1"},
        {"fraction",
         {.capacity = 1, .fraction = 1.5},
         "memory fraction is not between 0 and 1"},
        {"fraction of nothing",
         {.fraction = 0.5},
         "a memory fraction needs the capacity of a device"},
        {"settings", {.conf = {"x:1", 3}}, "unknown allocator setting 'x'"},
    };
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, two_steps);
    plim_sim s;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        CHECK(rows[i].why, plim_sim_run(&a, &t, &rows[i].o, 0, &s, &err) == PLIM_EUSAGE);
        CHECK_STR(rows[i].why, err.msg, rows[i].msg);
    }
    t = tape_of(&a, "plimsoll-tape 1\n+ 1 5\n! config y:1\n");
    plim_err err = PLIM_ERR_INIT;
    plim_alloc_options o = PLIM_ALLOC_OPTIONS_INIT;
    assert_int_equal(plim_sim_run(&a, &t, &o, 0, &s, &err), PLIM_EUSAGE);
    assert_string_equal(err.msg, "event 1: unknown allocator setting 'y'");
    plim_arena_free(&a);
}

/* A tape that uses every table of the allocator: the n-th allocation of our own memory fails,
 * for each n until none does. */
static void test_faults(void **state)
{
    (void)state;
    static const char busy[] = "plimsoll-tape 1\n"
                               "@ 0 forward a\n"
                               "+ 1 1MiB\n+ 2 1000 stream=40\n+ 3 4MiB\n+ 4 4MiB\n"
                               "r 1 stream=3\nr 3 stream=40\n- 1\n- 3\n"
                               "! sync\n+ 5 700\n+ 6 30MiB\n- 4\n"
                               "! config expandable_segments:True\n"
                               "+ 7 9MiB\n+ 8 25MiB\n+ 9 50MiB\n- 8\n! empty_cache\n"
                               "+ 10 500MiB\n+ 11 12\n"
                               "+ 20 1\n+ 21 1\n+ 22 1\n+ 23 1\n+ 24 1\n+ 25 1\n+ 26 1\n"
                               "+ 27 1\n+ 28 1\n+ 29 1\n+ 30 1\n+ 31 1\n+ 32 1\n";
    plim_arena ta = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&ta, busy);
    plim_alloc_options o = {.capacity = 256 * MIB};
    for (uint32_t i = 0; i < plim_allocator_count(); i++) {
        uint64_t n = 0;
        plim_status st = PLIM_ENOMEM;
        o.allocator = plim_allocator_at(i);
        while (st == PLIM_ENOMEM) {
            plim_arena a = {.fail_after = ++n};
            plim_err err = PLIM_ERR_INIT;
            plim_sim s;
            st = plim_sim_run(&a, &t, &o, PLIM_SIM_ALL, &s, &err);
            assert_int_equal(st, err.code);
            assert_true(n < 1000);
            plim_arena_free(&a);
        }
        assert_int_equal(st, PLIM_OK);
        CHECK(o.allocator->name, n > 5);
    }
    plim_arena_free(&ta);
}

/* The tape runs through every allocator of the list, ends with nothing live, and reserves no
 * less than is live; "none" reserves exactly that. */
static void test_allocators(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, two_steps);
    const plim_allocator *found = NULL;
    plim_err err = PLIM_ERR_INIT;
    plim_tape_free_storage(&t, 0);
    plim_tape_free_storage(&t, 3);
    plim_tape_event(&t, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE});
    for (uint32_t i = 0; i < plim_allocator_count(); i++) {
        const plim_allocator *al = plim_allocator_at(i);
        CHECK(al->name, al->doc[0] && al->src[0]);
        CHECK(al->name, plim_allocator_find(plim_str_of(al->name), &found, NULL) == PLIM_OK);
        CHECK(al->name, found == al);
        plim_sim s = run(&a, &t, (plim_alloc_options){.allocator = al}, PLIM_SIM_ALL);
        CHECK(al->name, s.peak_requested == 32 * MIB && s.requested == 0);
        CHECK(al->name, s.peak_requested <= s.peak_allocated);
        CHECK(al->name, s.peak_allocated <= s.peak_reserved);
        CHECK(al->name, s.stats.active.current == 0);
        if (al->empty_cache || strcmp(al->name, "none") == 0)
            CHECK(al->name, s.stats.reserved_bytes.current == 0);
        CHECK(al->name, strcmp(al->name, "none") != 0 || s.peak_reserved == 32 * MIB);
    }
    assert_null(plim_allocator_at(plim_allocator_count()));
    assert_int_equal(plim_allocator_find(PLIM_STR(""), &found, NULL), PLIM_OK);
    assert_string_equal(found->name, "caching");
    assert_int_equal(plim_allocator_find(PLIM_STR("slab"), &found, &err), PLIM_EUSAGE);
    assert_string_equal(err.msg, "unknown allocator 'slab': known are caching, none, bfc and "
                                 "cudaMallocAsync");
    plim_arena_free(&a);
}

/* The allocator "none" reserves exactly what is requested. */
static void test_none(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_alloc_options o = {.capacity = 1000, .torch = 205};
    plim_alloc *h = NULL;
    plim_alloc_block blocks[4];
    uint32_t x, y, z;
    plim_allocator_find(PLIM_STR("none"), &o.allocator, NULL);
    assert_int_equal(plim_alloc_new(&a, &o, &h, NULL), PLIM_OK);
    plim_alloc_malloc(h, 600, 0, &x, NULL);
    plim_alloc_malloc(h, 300, 2, &y, NULL);
    plim_alloc_malloc(h, 101, 0, &z, NULL);
    assert_int_equal(z, PLIM_NONE);
    assert_true(plim_str_starts(plim_alloc_oom_text(h, &a),
                                "CUDA out of memory. Tried to allocate 101 bytes. GPU 0 has a "
                                "total capacity of 1000 bytes of which 100 bytes is free."));
    assert_int_equal(plim_alloc_blocks(h, blocks, 4), 2);
    assert_true(blocks[0].bytes == 600 && blocks[1].bytes == 300 && blocks[1].stream == 2);
    plim_alloc_free(h, x, NULL);
    plim_alloc_malloc(h, 700, 0, &z, NULL);
    assert_int_equal(z, x); /* handles are reused */
    plim_alloc_stats s;
    plim_alloc_get_stats(h, &s);
    assert_true(s.reserved_bytes.current == 1000 && s.requested_bytes.peak == 1000);
    assert_true(s.num_device_alloc == 3 && s.num_device_free == 1 && s.num_ooms == 1);
    plim_arena_free(&a);
}

/* Downward, as a driver may give them. */
static bool place_below(void *ud, uint64_t bytes, uint64_t *addr)
{
    (void)bytes;
    *addr = *(uint64_t *)ud -= 64 * MIB;
    return true;
}

static const plim_placement below = {.name = "below", .take = place_below};

/* Two free segments of one size, the newer one at the lower address; each was filled by two
 * blocks of 1 MiB.  PyTorch's numbers for blocks, by hand: the first segment is 1, its first
 * half becomes block 2, the second half stays 1; in the other one they are 4 and 3.  The halves
 * freed last, 2 and 3, keep their numbers.  512 bytes of the first segment are block 5, with
 * which the rest merges. */
static void test_ties(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        int torch;
        bool older[2]; /* whether a request is served from the older segment */
    } rows[] = {{"the lowest address", 211, {false, false}},
                {"the block made first", 212, {true, false}},
                {"the segment made first", 213, {true, true}}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_alloc_options o = {.torch = rows[i].torch};
        plim_alloc *h;
        uint64_t next = 1ull << 40;
        uint32_t b[4], x;
        CHECK(rows[i].why, plim_alloc_new(&a, &o, &h, NULL) == PLIM_OK);
        plim_alloc_set_place(h, &below, &next);
        for (int k = 0; k < 4; k++)
            plim_alloc_malloc(h, MIB, 0, &b[k], NULL);
        uint64_t older = plim_alloc_address(h, b[0]), newer = plim_alloc_address(h, b[2]);
        CHECK(rows[i].why, older == (1ull << 40) - 64 * MIB && newer == older - 64 * MIB);
        plim_alloc_free(h, b[1], NULL);
        plim_alloc_free(h, b[0], NULL);
        plim_alloc_free(h, b[2], NULL);
        plim_alloc_free(h, b[3], NULL);
        for (int k = 0; k < 2; k++) {
            plim_alloc_malloc(h, 512, 0, &x, NULL);
            CHECK(rows[i].why, plim_alloc_address(h, x) == (rows[i].older[k] ? older : newer));
            plim_alloc_free(h, x, NULL);
        }
        plim_arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_peak),
        cmocka_unit_test(test_timeline), cmocka_unit_test(test_oom),
        cmocka_unit_test(test_nothing),  cmocka_unit_test(test_options),
        cmocka_unit_test(test_faults),   cmocka_unit_test(test_allocators),
        cmocka_unit_test(test_none),     cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
