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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_matrices),
                                       cmocka_unit_test(test_dealt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
