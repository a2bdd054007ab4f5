/* test_cache.c -- what layers keep, and what that takes by the rules of an engine; the numbers are by hand. */
#include <string.h>

#include "core/cache.h"
#include "unit.h"

static const plim_kv_type fp16 = {"fp16", 1, 2}, q8_0 = {"q8_0", 32, 34};

/* ---- layers ------------------------------------------------------------------------------- */

/* Kinds once, with all their layers; runs in order. */
static void test_order(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_cache c = {0};
    const plim_kv_layers all = {.layers = 1, .heads = 2, .keys = 8, .values = 8};
    plim_kv_layers window = all, none = {.layers = 3};
    window.window = 100;
    for (int i = 0; i < 4; i++) {
        assert_true(plim_cache_add(&c, &a, &window));
        assert_true(plim_cache_add(&c, &a, i == 1 ? &window : &all));
    }
    assert_true(plim_cache_add(&c, &a, &none));
    none.layers = 0;
    assert_true(plim_cache_add(&c, &a, &none));
    static const plim_cache_run runs[] = {{0, 1}, {1, 1}, {0, 3}, {1, 1},
                                          {0, 1}, {1, 1}, {2, 3}};
    assert_int_equal(c.n_kinds, 3);
    assert_int_equal(c.kinds[0].layers, 5);
    assert_int_equal(c.kinds[1].layers, 3);
    assert_int_equal(c.kinds[2].layers, 3);
    assert_int_equal(c.n_runs, PLIM_COUNT(runs));
    for (size_t i = 0; i < PLIM_COUNT(runs); i++) {
        assert_int_equal(c.runs[i].kind, runs[i].kind);
        assert_int_equal(c.runs[i].layers, runs[i].layers);
    }
    plim_arena_free(&a);
}

/* Each field makes a kind of its own: else layers that keep something else would count as the same. */
static void test_kinds(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_cache c = {0};
    const plim_kv_layers k[] = {
        {.layers = 1},
        {.layers = 1, .heads = 1},
        {.layers = 1, .keys = 1},
        {.layers = 1, .values = 1},
        {.layers = 1, .window = 1},
        {.layers = 1, .chunked = true},
        {.layers = 1, .cross = true},
        {.layers = 1, .copies = 1},
        {.layers = 1, .index_keys = 1},
        {.layers = 1, .index_values = 1},
        {.layers = 1, .ratio = 1},
        {.layers = 1, .channels = 1},
        {.layers = 1, .kernel = 1},
        {.layers = 1, .state = 1},
    };
    for (size_t i = 0; i < PLIM_COUNT(k); i++)
        assert_true(plim_cache_add(&c, &a, &k[i]));
    assert_int_equal(c.n_kinds, PLIM_COUNT(k));
    plim_arena_free(&a);
}

static void test_simple(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        plim_kv_layers k;
        bool simple;
    } T[] = {
        {"keys and values", {.heads = 1, .keys = 8, .values = 8, .window = 9}, true},
        {"a latent vector", {.heads = 1, .keys = 8}, true},
        {"a state", {.channels = 8, .kernel = 4, .state = 8}, true},
        {"nothing", {0}, true},
        {"both", {.heads = 1, .keys = 8, .values = 8, .state = 8}, false},
        {"a convolution besides", {.heads = 1, .keys = 8, .values = 8, .channels = 8}, false},
        {"an index", {.heads = 1, .keys = 8, .index_keys = 8}, false},
        {"compressed keys", {.heads = 1, .keys = 8, .window = 8, .ratio = 4}, false},
        {"of an encoder", {.heads = 1, .keys = 8, .values = 8, .cross = true}, false},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++)
        CHECK(T[i].why, plim_cache_is_simple(&T[i].k) == T[i].simple);
}

/* ---- bytes -------------------------------------------------------------------------------- */

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        plim_kv_layers k;
        plim_cache_rules r; /* types: fp16, unless set */
        uint64_t tokens, bytes, states;
    } T[] = {
        {"8 heads of 128 and 128",
         {.heads = 8, .keys = 128, .values = 128},
         {.step = 1},
         10,
         10 * 4096,
         0},
        {"keys and values of their own length",
         {.heads = 2, .keys = 8, .values = 4},
         {.step = 1},
         10,
         10 * 48,
         0},
        {"a latent vector has no values",
         {.heads = 1, .keys = 576},
         {.step = 1},
         10,
         10 * 1152,
         0},
        {"cells in multiples",
         {.heads = 1, .keys = 8, .values = 8},
         {.step = 256},
         257,
         512 * 32,
         0},
        {"no more than the window",
         {.heads = 1, .keys = 8, .values = 8, .window = 100},
         {.step = 1, .windows = 1},
         1000,
         100 * 32,
         0},
        {"a text shorter than it",
         {.heads = 1, .keys = 8, .values = 8, .window = 100},
         {.step = 1, .windows = 1},
         10,
         10 * 32,
         0},
        {"windows of 3 sequences and a batch, in multiples",
         {.heads = 1, .keys = 8, .values = 8, .window = 100},
         {.step = 256, .windows = 3, .ahead = 512},
         9999,
         1024 * 32,
         0},
        {"in blocks of 8 bits",
         {.heads = 2, .keys = 64, .values = 32},
         {.keys = &q8_0, .values = &q8_0, .step = 1},
         10,
         10 * 6 * 34,
         0},
        {"values as wide as in the widest layer",
         {.heads = 1, .keys = 8, .values = 8},
         {.step = 1, .least_values = 32},
         10,
         10 * 80,
         0},
        {"even without heads", {.values = 8}, {.step = 1, .least_values = 32}, 10, 10 * 64, 0},
        {"but not where nothing attends",
         {.state = 5},
         {.step = 1, .least_values = 32, .state_bytes = 4},
         10,
         0,
         20},
        {"an index for each token",
         {.heads = 1, .keys = 64, .index_keys = 16},
         {.step = 1},
         10,
         10 * 160,
         0},
        {"a key more for 4 tokens, and one of the index",
         {.heads = 1, .keys = 64, .window = 8, .index_keys = 16, .ratio = 4},
         {.step = 1, .windows = 1},
         22,
         8 * 128 + 6 * 160,
         0},
        {"one at least",
         {.heads = 1, .keys = 64, .window = 8, .ratio = 128},
         {.step = 1, .windows = 1},
         8,
         8 * 128 + 128,
         0},
        {"3 inputs of a convolution, and a state",
         {.channels = 10, .kernel = 4, .state = 100},
         {.step = 1, .state_bytes = 2},
         10,
         0,
         260},
        {"a state without a convolution",
         {.channels = 10, .state = 100},
         {.step = 1, .state_bytes = 4},
         10,
         0,
         400},
        {"both",
         {.heads = 1, .keys = 8, .values = 8, .state = 7},
         {.step = 1, .state_bytes = 4},
         2,
         64,
         28},
        {"of the tokens of an encoder",
         {.heads = 1, .keys = 8, .values = 8, .cross = true},
         {.step = 1, .source = 3},
         10,
         3 * 32,
         0},
        {"a layer that reads what another keeps",
         {0},
         {.step = 1, .state_bytes = 4},
         10,
         0,
         0},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_cache_rules r = T[i].r;
        r.keys = r.keys ? r.keys : &fp16;
        r.values = r.values ? r.values : &fp16;
        CHECK(T[i].why, plim_cache_bytes(&T[i].k, &r, T[i].tokens) == T[i].bytes);
        CHECK(T[i].why, plim_cache_state(&T[i].k, &r) == T[i].states);
    }
}

/* Of all layers, with their copies. */
static void test_sum(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_cache c = {0};
    const plim_kv_layers k[] = {
        {.layers = 3, .heads = 1, .keys = 8, .values = 8},
        {.layers = 2, .heads = 1, .keys = 8, .values = 8, .window = 4},
        {.layers = 1, .heads = 1, .keys = 8, .copies = 5},
        {.layers = 7, .state = 9},
    };
    const plim_cache_rules r = {.keys = &fp16, .values = &fp16, .step = 1, .windows = 1};
    for (size_t i = 0; i < PLIM_COUNT(k); i++)
        assert_true(plim_cache_add(&c, &a, &k[i]));
    assert_int_equal(plim_cache_sum(&c, &r, 10), 3 * 320 + 2 * 128 + 5 * 160);
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),  cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_simple), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
