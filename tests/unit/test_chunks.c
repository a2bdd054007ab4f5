/* test_chunks.c -- BFC and the model of the driver's pool under random requests: after each one
 * all blocks are inspected and everything is counted again. */
#include "alloc/alloc.h"

#include <stdio.h>

#include "unit.h"

enum { RUNS = 400, STEPS = 150, MOST = 1024 };
#define MIB (1ull << 20)

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

typedef struct look {
    plim_alloc_block blocks[MOST];
    uint32_t n;
    plim_alloc_stats stats;
} look;

static void take_look(const plim_alloc *h, look *l)
{
    l->n = plim_alloc_blocks(h, l->blocks, MOST);
    assert_true(l->n <= MOST);
    plim_alloc_get_stats(h, &l->stats);
}

/* The blocks of a region cover it; regions do not overlap; no two free neighbours. */
static void check_tiles(const char *why, const look *l)
{
    for (uint32_t i = 0; i + 1 < l->n; i++) {
        const plim_alloc_block *a = &l->blocks[i], *b = a + 1;
        uint64_t end = a->addr + a->bytes;
        CHECK(why, b->first ? end <= b->addr : end == b->addr);
        CHECK(why, b->first || a->state != PLIM_BLOCK_FREE || b->state != PLIM_BLOCK_FREE);
    }
}

static void check_counters(const char *why, const look *l, uint64_t requested)
{
    uint64_t live = 0, all = 0, split = 0, regions = 0, asked = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const plim_alloc_block *b = &l->blocks[i];
        bool alone = b->first && (i + 1 == l->n || b[1].first);
        bool is_free = b->state == PLIM_BLOCK_FREE;
        all += b->bytes;
        live += is_free ? 0 : b->bytes;
        asked += b->requested;
        split += is_free && !alone ? b->bytes : 0;
        regions += b->first;
        CHECK(why, b->bytes % 256 == 0 && b->bytes >= b->requested);
    }
    CHECK(why, asked == requested && l->stats.requested_bytes.current == requested);
    CHECK(why, l->stats.allocated_bytes.current == live);
    CHECK(why, l->stats.reserved_bytes.current == all && l->stats.segment.current == regions);
    CHECK(why, l->stats.inactive_split_bytes.current == split);
    CHECK(why, l->stats.allocated_bytes.peak >= live && l->stats.reserved_bytes.peak >= all);
    CHECK(why, requested <= live && live <= all);
}

/* The smallest block that was free before and holds the request, the lowest of several, is the
 * one that was taken; only without one does memory come from the device. */
static void check_fit(const char *why, const plim_alloc *h, const look *before,
                      const look *after, uint64_t size, uint32_t block)
{
    const plim_alloc_block *best = NULL;
    for (uint32_t i = 0; i < before->n; i++) {
        const plim_alloc_block *b = &before->blocks[i];
        if (b->state == PLIM_BLOCK_FREE && b->bytes >= size &&
            (!best || b->bytes < best->bytes))
            best = b;
    }
    if (best)
        CHECK(why, plim_alloc_address(h, block) == best->addr);
    else
        CHECK(why, after->stats.num_device_alloc > before->stats.num_device_alloc);
}

typedef struct subject {
    const char *name, *conf;
    uint64_t capacity, step; /* step: sizes are multiples of it */
} subject;

static void run_subject(const subject *s, uint64_t number)
{
    static look before, after;
    plim_arena a = PLIM_ARENA_INIT;
    plim_alloc_options o = {.conf = plim_str_of(s->conf), .capacity = s->capacity};
    plim_alloc *h = NULL;
    uint32_t live[STEPS], n = 0;
    uint64_t sizes[STEPS], requested = 0;
    seed = number;
    assert_int_equal(plim_allocator_find(plim_str_of(s->name), &o.allocator, NULL), PLIM_OK);
    assert_int_equal(plim_alloc_new(&a, &o, &h, NULL), PLIM_OK);
    take_look(h, &after);
    for (uint32_t i = 0; i < STEPS; i++) {
        char why[96];
        snprintf(why, sizeof why, "%s '%s', run %" PRIu64 ", step %" PRIu32, s->name, s->conf,
                 number, i);
        before = after;
        if (n && draw(100) < 45) {
            uint32_t k = (uint32_t)draw(n);
            assert_int_equal(plim_alloc_free(h, live[k], NULL), PLIM_OK);
            requested -= sizes[k];
            live[k] = live[--n];
            sizes[k] = sizes[n];
            take_look(h, &after);
        } else {
            static const uint64_t range[] = {4096, MIB, 8 * MIB, 40 * MIB};
            uint64_t bytes = 1 + draw(range[draw(PLIM_COUNT(range))]);
            uint64_t size = (bytes + s->step - 1) / s->step * s->step;
            assert_int_equal(plim_alloc_malloc(h, bytes, (uint16_t)draw(3), &live[n], NULL),
                             PLIM_OK);
            take_look(h, &after);
            if (live[n] != PLIM_NONE) {
                check_fit(why, h, &before, &after, size, live[n]);
                sizes[n++] = bytes;
                requested += bytes;
            } else {
                CHECK(why, after.stats.num_ooms == before.stats.num_ooms + 1);
            }
        }
        check_tiles(why, &after);
        check_counters(why, &after, requested);
        CHECK(why, !s->capacity || after.stats.reserved_bytes.current <= s->capacity);
    }
    while (n)
        assert_int_equal(plim_alloc_free(h, live[--n], NULL), PLIM_OK);
    take_look(h, &after);
    for (uint32_t i = 0; i < after.n; i++)
        CHECK(s->name, after.blocks[i].first && after.blocks[i].state == PLIM_BLOCK_FREE);
    check_counters(s->name, &after, 0);
    plim_arena_free(&a);
}

static void test_random(void **state)
{
    (void)state;
    static const subject subjects[] = {
        {"bfc", "", 0, 256},
        {"bfc", "", 400 * MIB, 256},
        {"bfc", "preallocate:False", 200 * MIB, 256},
        {"bfc", "preallocate:False,garbage_collection:True", 150 * MIB, 256},
        {"bfc", "memory_limit_mb:300", 0, 256},
        {"bfc", "memory_limit_mb:300", 200 * MIB, 256},
        {"cudaMallocAsync", "", 0, 512},
        {"cudaMallocAsync", "", 150 * MIB, 512},
    };
    for (uint64_t i = 0; i < RUNS; i++)
        run_subject(&subjects[i % PLIM_COUNT(subjects)], i);
}

/* What a model may reserve at most and at least, counted without an allocator: for each size the
 * most that were live at once, and what was live. */
static void test_bounds(void **state)
{
    (void)state;
    enum { SIZES = 12 };
    for (uint64_t number = 0; number < RUNS / 4; number++) {
        plim_arena a = PLIM_ARENA_INIT;
        const plim_allocator *model = NULL;
        plim_allocator_find(PLIM_STR("cudaMallocAsync"), &model, NULL);
        const plim_allocator *kinds[] = {model->least, model, model->most};
        plim_alloc_stats stats[PLIM_COUNT(kinds)];
        uint64_t most = 0, live = 0, peak = 0;
        for (uint32_t k = 0; k < PLIM_COUNT(kinds); k++) {
            plim_alloc_options o = {.allocator = kinds[k],
                                    .conf = PLIM_STR("backend:cudaMallocAsync")};
            plim_alloc *h = NULL;
            uint32_t blocks[STEPS], n = 0;
            uint64_t sizes[STEPS], held[SIZES] = {0}, top[SIZES] = {0};
            seed = number;
            most = live = peak = 0;
            assert_int_equal(plim_alloc_new(&a, &o, &h, NULL), PLIM_OK);
            for (uint32_t i = 0; i < STEPS; i++) {
                uint64_t at = draw(SIZES), bytes = 1024ull << at;
                if (n && draw(100) < 45) {
                    at = draw(n);
                    assert_int_equal(plim_alloc_free(h, blocks[at], NULL), PLIM_OK);
                    held[sizes[at]]--;
                    live -= 1024ull << sizes[at];
                    sizes[at] = sizes[--n];
                    blocks[at] = blocks[n];
                    continue;
                }
                assert_int_equal(plim_alloc_malloc(h, bytes, 0, &blocks[n], NULL), PLIM_OK);
                sizes[n++] = at;
                held[at]++;
                top[at] = top[at] > held[at] ? top[at] : held[at];
                live += bytes;
                peak = peak > live ? peak : live;
            }
            for (uint32_t i = 0; i < SIZES; i++)
                most += top[i] << i << 10;
            plim_alloc_get_stats(h, &stats[k]);
        }
        assert_int_equal(stats[0].reserved_bytes.peak, peak);
        assert_int_equal(stats[1].allocated_bytes.peak, peak);
        assert_true(stats[1].reserved_bytes.peak >= peak);
        assert_int_equal(stats[2].allocated_bytes.peak, peak);
        assert_int_equal(stats[2].reserved_bytes.peak, most);
        plim_arena_free(&a);
    }
}

/* Settings that it does not have, or cannot use. */
static void test_settings(void **state)
{
    (void)state;
    static const struct {
        const char *conf;
        uint64_t capacity;
        double fraction;
        const char *msg;
    } rows[] = {
        {"expandable_segments:True", 0, 0,
         "unknown setting 'expandable_segments' of the BFC allocator: known are preallocate, "
         "mem_fraction, memory_limit_mb and garbage_collection"},
        {"preallocate:true", 1, 0,
         "allocator setting 'preallocate' is 'true', not True or False"},
        {"preallocate:True", 0, 0, "preallocate:True needs the capacity of a device"},
        {"mem_fraction:0.5", 0, 0, "a memory fraction needs the capacity of a device"},
        {"mem_fraction:1.5", 1, 0,
         "allocator setting 'mem_fraction' is '1.5', not above 0 and at most 1"},
        {"memory_limit_mb:0", 1, 0,
         "allocator setting 'memory_limit_mb' is 0, below the minimum of 1"},
        {"preallocate", 1, 0, "allocator settings 'preallocate' are not key:value,key:value"},
        {"", 1, 2, "memory fraction is not between 0 and 1"},
    };
    plim_arena a = PLIM_ARENA_INIT;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_alloc_options o = {.conf = plim_str_of(rows[i].conf),
                                .capacity = rows[i].capacity,
                                .fraction = rows[i].fraction};
        plim_alloc *h;
        plim_err err = PLIM_ERR_INIT;
        plim_allocator_find(PLIM_STR("bfc"), &o.allocator, NULL);
        CHECK(rows[i].conf, plim_alloc_new(&a, &o, &h, &err) == PLIM_EUSAGE);
        CHECK_STR(rows[i].conf, err.msg, rows[i].msg);
    }
    plim_arena_free(&a);
}

/* PyTorch's own words for the allocator, and its message when memory runs out. */
static void test_backend(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_alloc_options o = {.capacity = 100 * MIB, .fraction = 0.5};
    plim_alloc *h;
    plim_err err = PLIM_ERR_INIT;
    uint32_t block;
    assert_int_equal(
        plim_allocator_of_conf(PLIM_STR("backend:cudaMallocAsync"), 0, &o.allocator, NULL),
        PLIM_OK);
    assert_string_equal(o.allocator->name, "cudaMallocAsync");
    assert_non_null(o.allocator->model);
    assert_int_equal(plim_alloc_new(&a, &o, &h, NULL), PLIM_OK);
    plim_alloc_malloc(h, 3 * MIB, 0, &block, NULL);
    plim_alloc_malloc(h, 60 * MIB + 1, 0, &block, NULL);
    assert_string_equal(plim_alloc_oom_text(h, &a).p,
                        "Allocation on device 0 would exceed allowed memory. (out of memory)\n"
                        "Currently allocated     : 3.00 MiB\n"
                        "Requested               : 60.00 MiB\n"
                        "Device limit            : 100.00 MiB\n"
                        "Free (according to CUDA): 68.00 MiB\n"
                        "PyTorch limit (set by user-supplied memory fraction)\n"
                        "                        : 50.00 MiB");
    assert_int_equal(plim_alloc_config(h, PLIM_STR("backend:native"), &err),
                     PLIM_EUNSUPPORTED);
    assert_string_equal(err.msg, "backend 'native' is not what the allocator "
                                 "'cudaMallocAsync' simulates");
    assert_int_equal(plim_allocator_of_conf(PLIM_STR("backend:native"), 0, &o.allocator, NULL),
                     PLIM_OK);
    assert_string_equal(o.allocator->name, "caching");
    o.conf = PLIM_STR("backend:cudaMallocAsync");
    assert_int_equal(plim_alloc_new(&a, &o, &h, &err), PLIM_EUNSUPPORTED);
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
