/* test_megatron_layout.c -- Megatron-LM's buffers: parameters do not overlap, and ranks update each element once. */
#include "share/megatron_layout.h"
#include "unit.h"

enum { N = 40 };

/* Sizes of many kinds, the first a table. */
static uint64_t fill(plim_mg_placed *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < N; i++) {
        int64_t rows = i ? 1 + (int64_t)(i * 37 % 11) * 64 : 5000, columns = 64 + i % 3 * 100;
        p[i] = (plim_mg_placed){
            .value = i, .rows = rows, .columns = columns, .numel = (uint64_t)(rows * columns)};
        sum += p[i].numel;
    }
    return sum;
}

static void check_places(const plim_mg_placed *p, uint64_t size, uint64_t sum)
{
    assert_true(size >= sum);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(p[i].at + p[i].numel <= size);
        for (uint32_t k = 0; k < i; k++)
            assert_true(p[i].at + p[i].numel <= p[k].at || p[k].at + p[k].numel <= p[i].at);
    }
}

static void test_parts(void **state)
{
    plim_mg_placed p[N];
    uint64_t updated[N] = {0}, sum = fill(p);
    (void)state;
    for (int64_t rank = 0; rank < 6; rank++) {
        check_places(p, plim_mg_lay_parts(p, N, 100000, (plim_mg_place){rank, 6}), sum);
        for (uint32_t i = 0; i < N; i++)
            updated[i] += p[i].last - p[i].first;
    }
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(updated[i], p[i].numel);
    check_places(p, plim_mg_lay_whole(p, N), sum);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(p[i].last, p[i].numel);
}

/* An owner's part of a bucket has the whole matrix, so buckets of an equal number of elements do not cut any. */
static void test_matrices(void **state)
{
    static const double buckets[] = {0, 50000, 1e18};
    plim_mg_placed p[N];
    plim_arena a = {0};
    (void)state;
    for (size_t k = 0; k < PLIM_COUNT(buckets); k++)
        for (int64_t ranks = 1; ranks < 9; ranks++) {
            uint64_t size, sum = fill(p);
            assert_true(plim_mg_lay_matrices(&a, p, N, buckets[k], ranks, &size));
            check_places(p, size, sum);
            assert_int_equal(size % (uint64_t)ranks, 0);
            for (uint32_t i = 0; i < N; i++) {
                assert_in_range(p[i].owner, 0, ranks - 1);
                assert_int_equal(p[i].at % 64, 0);
            }
            if (k == 2) /* one bucket: a rank's part is a range */
                for (uint32_t i = 0; i < N; i++)
                    assert_int_equal(p[i].at / (size / (uint64_t)ranks), p[i].owner);
        }
    plim_arena_free(&a);
}

/* Ten of one size for four ranks: there and back, as the source's example has it. */
static void test_dealt(void **state)
{
    static const int64_t owners[] = {0, 1, 2, 3, 3, 2, 1, 0, 0, 1};
    plim_mg_placed p[10] = {{0}};
    plim_arena a = {0};
    (void)state;
    for (uint32_t i = 0; i < 10; i++)
        p[i].numel = 100 + i;
    assert_true(plim_mg_deal_out(&a, p, 10, (const int64_t[]){4, 1}));
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(p[i].owner, owners[i]);
    plim_mg_claim(p, 10, 3);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(p[i].last, owners[i] == 3 ? p[i].numel : 0);
    plim_arena_free(&a);
}

/* Gaps behind matrices take what is smaller: what megatron-core 0.16.1 makes of these, its
 * build_data_parallel_buffer_index of the group that _get_parameter_groups finds. */
typedef struct placed {
    int64_t columns;
    uint64_t numel, at, own;
} placed;
static const struct {
    plim_mg_place rank;
    uint64_t size;
    uint32_t n;
    placed p[5];
} rows[] = {
    {{1, 4}, 120, 4, {{6, 60, 0, 30}, {6, 30, 60, 0}, {1, 6, 90, 0}, {1, 3, 96, 0}}},
    {{2, 3},
     180,
     5,
     {{10, 70, 0, 0}, {6, 18, 70, 0}, {4, 20, 90, 0}, {1, 9, 110, 0}, {1, 4, 119, 3}}},
    {{0, 2}, 0, 1, {{1, 0, 0, 0}}},
    {{0, 2}, 46, 3, {{1, 33, 0, 23}, {1, 8, 33, 0}, {1, 5, 41, 0}}},
    {{3, 4}, 144, 4, {{12, 72, 0, 0}, {4, 20, 72, 0}, {1, 12, 96, 0}, {1, 2, 92, 0}}},
    {{5, 8},
     1120,
     5,
     {{7, 700, 0, 0}, {5, 250, 700, 140}, {1, 3, 950, 0}, {1, 11, 953, 0}, {1, 20, 980, 0}}},
};

static void test_rows(void **state)
{
    plim_arena a = PLIM_ARENA_INIT;
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_mg_placed p[5];
        uint32_t n = rows[i].n;
        uint32_t n_given = 0;
        for (int matrices = 0; matrices < 2; matrices++) /* given after what has no rows */
            for (uint32_t k = 0; k < n; k++)
                if ((rows[i].p[k].columns > 1) == matrices)
                    p[n_given++] = (plim_mg_placed){.columns = rows[i].p[k].columns,
                                                    .numel = rows[i].p[k].numel};
        uint64_t size;
        assert_true(plim_mg_lay_rows(&a, p, n, rows[i].rank.of, &size));
        assert_int_equal(size, rows[i].size);
        plim_mg_take_part(p, n, size, rows[i].rank);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(p[k].at, rows[i].p[k].at);
            assert_int_equal(p[k].last - p[k].first, rows[i].p[k].own);
        }
    }
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts), cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_dealt), cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
