/* test_tape.c -- tapes: built, read, written, checked. */
#include "core/tape.h"

#include <stdio.h>

#include "base/fmt.h"
#include "unit.h"

static plim_bytes bytes_of(const char *text)
{
    return (plim_bytes){.p = (const uint8_t *)text, .n = strlen(text)};
}

static plim_tape tape_of(plim_arena *a, const char *text)
{
    plim_tape t;
    plim_err err = PLIM_ERR_INIT;
    plim_tape_init(&t, a);
    if (plim_tape_parse(&t, bytes_of(text), &err))
        fail_msg("%s", err.msg);
    CHECK(text, plim_tape_check(&t) == NULL);
    return t;
}

static int put(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

static const char *text_of(plim_arena *a, const plim_tape *t)
{
    plim_buf b;
    plim_buf_init(&b, a);
    assert_int_equal(plim_tape_write(t, put, &b, NULL), PLIM_OK);
    return plim_buf_str(&b).p;
}

/* Every kind of line, as the writer writes it. */
static const char all_lines[] =
    "plimsoll-tape 1\n"
    "@ -1 load\n"
    "+ 7 4194304 parameter features.0.weight\n"
    "@ 0 forward features.0\n"
    "+ 8 512 workspace stream=1 certainty=estimated\n"
    "+ 9 0 activation a%20b%23c%25d%3de.out certainty=unknown\n"
    "r 7 stream=65534\n"
    "- 7\n"
    "! sync\n"
    "! sync stream=1\n"
    "! config max_split_size_mb:30,roundup_power2_divisions:[64:8,>:1]\n"
    "! empty_cache\n"
    "+ 7 1 gradient\n"
    "! reset_peak\n"
    "@ 2147483647 optimizer\n";

static void test_read(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, all_lines);
    assert_true(t.n_storages == 4 && t.n_events == 11 && t.n_marks == 3 && t.n_configs == 1);
    const plim_storage *s = t.storages;
    assert_true(s[0].bytes == 4194304 && s[0].ext_id == 7 && s[3].ext_id == 7);
    assert_true(s[0].category == PLIM_CAT_PARAMETER && s[0].certainty == PLIM_EXACT);
    assert_true(plim_str_is(s[0].name, "features.0.weight") && !s[0].role && !s[0].meta);
    assert_true(s[1].certainty == PLIM_ESTIMATED && s[1].name.n == 0);
    assert_true(plim_str_is(s[2].name, "a b#c%d=e.out"));
    assert_true(t.events[1].stream == 1 && t.events[1].kind == PLIM_EVENT_ALLOC);
    assert_true(t.events[3].kind == PLIM_EVENT_RECORD_STREAM && t.events[3].stream == 65534);
    assert_true(t.events[4].kind == PLIM_EVENT_FREE && t.events[4].id == 0);
    assert_true(t.events[5].stream == PLIM_ALL_STREAMS && t.events[6].stream == 1);
    assert_true(t.events[9].id == 3); /* an id may be reused */
    assert_true(t.marks[0].step == -1 && t.marks[0].phase == PLIM_PHASE_LOAD);
    assert_true(t.marks[1].first == 1 && plim_str_is(t.marks[1].op, "features.0"));
    assert_true(t.marks[2].step == INT32_MAX && t.marks[2].first == t.n_events);
    assert_string_equal(text_of(&a, &t), all_lines);
    plim_arena_free(&a);
}

/* Forms that people write, and the writer's form of each. */
static void test_forms(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *written;
    } rows[] = {
        {"units", "+ 1 4MiB\n+ 2 1.5k", "+ 1 4194304 temporary\n+ 2 1536 temporary\n"},
        {"comments and space", "  # x\n\n\t+ 1  5 # y\r\n", "+ 1 5 temporary\n"},
        {"a comment may touch", "+ 1 5#y\n- 1#", "+ 1 5 temporary\n- 1\n"},
        {"load by name", "@ load load w", "@ -1 load w\n"},
        {"attributes anywhere", "+ 1 5 stream=2 input certainty=exact x",
         "+ 1 5 input x stream=2\n"},
        {"bounds", "+ 1 5 workspace w high=9 certainty=estimated low=0",
         "+ 1 5 workspace w certainty=estimated low=0 high=9\n"},
        {"usually none", "+ 1 0 workspace w certainty=estimated low=0 high=9",
         "+ 1 0 workspace w certainty=estimated low=0 high=9\n"},
        {"the largest numbers", "+ 18446744073709551615 18446744073709551615",
         "+ 18446744073709551615 18446744073709551615 temporary\n"},
        {"UTF-8 as it is", "+ 1 5 input caf\xc3\xa9", "+ 1 5 input caf\xc3\xa9\n"},
        {"settings back to their defaults", "! config", "! config\n"},
        {"upper case digits", "+ 1 5 input a%2Fb", "+ 1 5 input a/b\n"},
        {"a part of the card", "! fraction .125", "! fraction 0.125\n"},
        {"all of it", "! fraction 1.0", "! fraction 1\n"},
        {"to nine digits", "! fraction 0.3333333334", "! fraction 0.333333333\n"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        char text[256], want[256];
        snprintf(text, sizeof text, "# before\nplimsoll-tape 1 # now\n%s", rows[i].text);
        snprintf(want, sizeof want, "plimsoll-tape 1\n%s", rows[i].written);
        plim_tape t = tape_of(&a, text);
        CHECK_STR(rows[i].why, text_of(&a, &t), want);
        plim_arena_free(&a);
    }
}

/* clang-format off */
#define TAPE "plimsoll-tape 1\n"
static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *msg;
        uint64_t at;
    } rows[] = {
        {"", "not a tape: the first line must be 'plimsoll-tape 1'", 0},
        {"# only this\n", "not a tape: the first line must be 'plimsoll-tape 1'", 0},
        {"+ 1 5\n", "line 1: not a tape: the first line must be 'plimsoll-tape 1'", 0},
        {"plimsoll-tape 2\n", "line 1: unsupported tape version '2': known is 1", 0},
        {"plimsoll-tape 1 x\n", "line 1: unexpected 'x'", 0},
        {TAPE "\nhello\n", "line 3: unknown line type 'hello': expected +, -, @, ! or r", 17},
        {TAPE "+", "line 2: missing id", 16},
        {TAPE "+ x 5", "line 2: 'x' is not a valid id", 16},
        {TAPE "+ 1", "line 2: missing size", 16},
        {TAPE "+ 1 5 low=6 high=9", "line 2: 5 bytes are not between low=6 and high=9", 16},
        {TAPE "+ 1 5 high=4", "line 2: 5 bytes are not between low=0 and high=4", 16},
        {TAPE "+ 1 -5",
         "line 2: '-5' is not a size: write a number and B, KiB, MiB, GiB, KB, MB or GB", 16},
        {TAPE "+ 1 18446744073709551616",
         "line 2: size '18446744073709551616' is over the limit of 18446744073709551615 bytes", 16},
        {TAPE "+ 1 5 thing", "line 2: unknown category 'thing'", 16},
        {TAPE "+ 1 5 input a b", "line 2: unexpected 'b'", 16},
        {TAPE "+ 1 5 input x=y", "line 2: unexpected 'x=y'", 16},
        {TAPE "+ 1 5 input a%2", "line 2: '%' in 'a%2' is not followed by two hex digits", 16},
        {TAPE "+ 1 5 input a%2g",
         "line 2: '%' in 'a%2g' is not followed by two hex digits", 16},
        {TAPE "+ 1 5 stream=65535", "line 2: stream 65535 is over the limit of 65534", 16},
        {TAPE "+ 1 5 certainty=", "line 2: missing certainty", 16},
        {TAPE "+ 1 5\n+ 1 6", "line 3: id '1' is already allocated", 22},
        {TAPE "- 1", "line 2: free of '1', which was never allocated", 16},
        {TAPE "+ 1 5\n- 1\n- 1", "line 4: free of '1', which is already freed", 26},
        {TAPE "+ 1 5\n- 1 2", "line 3: unexpected '2'", 22},
        {TAPE "+ 1 5\nr 1", "line 3: missing stream=N", 22},
        {TAPE "r 1 stream=1", "line 2: record_stream of '1', which was never allocated", 16},
        {TAPE "! stop", "line 2: unknown event 'stop'", 16},
        {TAPE "! sync stream=x", "line 2: 'x' is not a valid stream", 16},
        {TAPE "! sync 3", "line 2: unexpected '3'", 16},
        {TAPE "! config a:1 b:2", "line 2: unexpected 'b:2'", 16},
        {TAPE "! fraction 1.01", "line 2: '1.01' is not a number above 0 and at most 1", 16},
        {TAPE "! fraction 0", "line 2: '0' is not a number above 0 and at most 1", 16},
        {TAPE "! fraction", "line 2: '' is not a number above 0 and at most 1", 16},
        {TAPE "! fraction 1e", "line 2: '1e' is not a number above 0 and at most 1", 16},
        {TAPE "@ 0", "line 2: missing phase", 16},
        {TAPE "@ -2 load", "line 2: '-2' is not a valid step", 16},
        {TAPE "@ 2147483648 load",
         "line 2: step 2147483648 is over the limit of 2147483647", 16},
        {TAPE "@ 0 foreward", "line 2: unknown phase 'foreward'", 16},
    };
    /* clang-format on */
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_tape t;
        plim_err err = PLIM_ERR_INIT;
        plim_tape_init(&t, &a);
        plim_status st = plim_tape_parse(&t, bytes_of(rows[i].text), &err);
        CHECK(rows[i].text, st == PLIM_EFORMAT);
        CHECK_STR(rows[i].text, err.msg, rows[i].msg);
        CHECK(rows[i].text, err.at == rows[i].at);
        plim_arena_free(&a);
    }
}

/* A file that is one endless line is rejected after its beginning. */
static void test_long_line(void **state)
{
    (void)state;
    static const struct {
        const char *why, *start, *msg;
        char fill;
    } rows[] = {
        {"a name", "plimsoll-tape 1\n+ 1 5 input ",
         "line 2: the line is over the limit of 1048576 bytes", 'x'},
        {"a comment behind the header", "plimsoll-tape 1 # ",
         "line 1: the line is over the limit of 1048576 bytes", 'x'},
        {"blanks", "plimsoll-tape 1\n",
         "line 2: unknown line type '': expected +, -, @, ! or r", ' '},
        {"no tape at all", "", "line 1: not a tape: the first line must be 'plimsoll-tape 1'",
         0},
    };
    static char text[(1 << 20) + 100];
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_tape t;
        plim_err err = PLIM_ERR_INIT;
        memset(text, rows[i].fill, sizeof text);
        memcpy(text, rows[i].start, strlen(rows[i].start));
        plim_tape_init(&t, &a);
        plim_status st = plim_tape_parse(
            &t, (plim_bytes){.p = (const uint8_t *)text, .n = sizeof text}, &err);
        CHECK(rows[i].why, st == PLIM_EFORMAT);
        CHECK_STR(rows[i].why, err.msg, rows[i].msg);
        plim_arena_free(&a);
    }
}

/* No byte in a name, an op or a config breaks the grammar. */
static void test_names(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t;
    char every[255];
    for (int i = 0; i < 255; i++)
        every[i] = (char)(i + 1);
    plim_str name = {every, sizeof every};
    plim_storage s = {.name = name, .role = "out", .category = PLIM_CAT_OUTPUT};
    plim_tape_init(&t, &a);
    assert_true(plim_tape_mark(&t, 3, PLIM_PHASE_LOSS, name));
    assert_int_equal(plim_tape_alloc(&t, &s), 0);
    assert_true(plim_tape_config(&t, name));
    const char *text = text_of(&a, &t);
    plim_tape u = tape_of(&a, text);
    assert_true(plim_str_eq(u.marks[0].op, name) && plim_str_eq(u.configs[0], name));
    assert_int_equal(u.storages[0].name.n, sizeof every + 4);
    assert_memory_equal(u.storages[0].name.p, every, sizeof every);
    assert_string_equal(text_of(&a, &u), text);
    plim_arena_free(&a);
}

static void test_json(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t = tape_of(&a, "plimsoll-tape 1\n+ 1 5 input x\n@ 0 forward f\n"
                              "+ 2 6 activation stream=1 certainty=unknown\nr 1 stream=1\n"
                              "- 1\n! sync\n! sync stream=1\n! empty_cache\n! config a:1\n"
                              "! reset_peak\n! fraction 0.25\n");
    plim_buf b;
    plim_buf_init(&b, &a);
    assert_int_equal(plim_tape_write_json(&t, put, &b, NULL), PLIM_OK);
    assert_string_equal(
        plim_buf_str(&b).p,
        "{\"event\":\"alloc\",\"id\":1,\"bytes\":5,\"category\":\"input\","
        "\"certainty\":\"exact\",\"name\":\"x\",\"stream\":0,"
        "\"step\":-1,\"phase\":\"load\",\"op\":\"\"}\n"
        "{\"event\":\"alloc\",\"id\":2,\"bytes\":6,\"category\":\"activation\","
        "\"certainty\":\"unknown\",\"name\":\"\",\"stream\":1,"
        "\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"record_stream\",\"id\":1,\"stream\":1,"
        "\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"free\",\"id\":1,\"bytes\":5,"
        "\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"sync\",\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"sync\",\"stream\":1,\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"empty_cache\",\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"config\",\"config\":\"a:1\","
        "\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"reset_peak\",\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n"
        "{\"event\":\"fraction\",\"fraction\":0.25,"
        "\"step\":0,\"phase\":\"forward\",\"op\":\"f\"}\n");
    plim_arena_free(&a);
}

static void test_build(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape t;
    plim_storage s = {.bytes = 8, .name = PLIM_STR("fc"), .role = "grad"};
    plim_tape_init(&t, &a);
    assert_true(plim_tape_mark(&t, 0, PLIM_PHASE_BACKWARD, PLIM_STR("fc")));
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(plim_tape_alloc(&t, &s), i);
    assert_int_equal(t.storages[99].ext_id, 100);
    assert_true(plim_tape_free_storage(&t, 99));
    assert_null(plim_tape_check(&t));
    assert_true(strstr(text_of(&a, &t), "+ 100 8 parameter fc.grad\n- 100\n") != NULL);
    plim_arena_free(&a);
}

/* Each rule of the checker, violated. */
static void test_check(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    static const char base[] = "plimsoll-tape 1\n+ 1 5\n@ 0 forward\n+ 2 6\n- 1\n@ 0 loss\n";
    plim_tape t = tape_of(&a, base);
    t.events[2].id = 7;
    assert_string_equal(plim_tape_check(&t), "a storage is used before its alloc");
    t = tape_of(&a, base);
    t.events[1] = t.events[2];
    t.n_storages = 1;
    assert_string_equal(plim_tape_check(&t), "a storage is used after its free");
    t = tape_of(&a, base);
    t.events[1].id = 0;
    assert_string_equal(plim_tape_check(&t), "storages are not in the order of their allocs");
    t = tape_of(&a, base);
    t.n_events = 1;
    t.n_marks = 0;
    assert_string_equal(plim_tape_check(&t), "a storage is never allocated");
    t = tape_of(&a, base);
    t.marks[0].first = 3;
    t.marks[1].first = 2;
    assert_string_equal(plim_tape_check(&t), "marks do not ascend");
    t = tape_of(&a, base);
    t.marks[1].first = 4;
    assert_string_equal(plim_tape_check(&t), "marks do not ascend");
    t = tape_of(&a, base);
    t.marks[1].phase = PLIM_PHASE_COUNT;
    assert_string_equal(plim_tape_check(&t), "a mark has a step or phase that does not exist");
    t = tape_of(&a, base);
    t.storages[1].category = PLIM_CAT_COUNT;
    assert_string_equal(plim_tape_check(&t),
                        "a storage has a category or certainty that does not exist");
    t = tape_of(&a, base);
    t.events[1].stream = PLIM_ALL_STREAMS;
    assert_string_equal(plim_tape_check(&t), "an alloc on a stream that does not exist");
    t = tape_of(&a, base);
    t.events[2] = (plim_event){.kind = PLIM_EVENT_CONFIG};
    assert_string_equal(plim_tape_check(&t), "a config does not exist");
    t = tape_of(&a, base);
    t.events[2] = (plim_event){.kind = PLIM_EVENT_FRACTION};
    assert_string_equal(plim_tape_check(&t), "a fraction is not in (0, 1]");
    t = tape_of(&a, base);
    t.events[2].kind = 99;
    assert_string_equal(plim_tape_check(&t), "an event of no known kind");
    plim_arena_free(&a);
}

/* The n-th allocation fails, for each n until none does. */
static void test_faults(void **state)
{
    (void)state;
    plim_status st = PLIM_ENOMEM;
    uint64_t n = 0;
    while (st == PLIM_ENOMEM) {
        plim_arena a = {.fail_after = ++n}, plenty = PLIM_ARENA_INIT;
        plim_tape t;
        plim_err err = PLIM_ERR_INIT;
        plim_buf b;
        plim_buf_init(&b, &plenty);
        plim_tape_init(&t, &a);
        st = plim_tape_parse(&t, bytes_of(all_lines), &err);
        if (!st)
            st = plim_tape_write(&t, put, &b, &err);
        if (!st)
            st = plim_tape_write_json(&t, put, &b, &err);
        assert_int_equal(st, err.code);
        plim_arena_free(&a);
        plim_arena_free(&plenty);
    }
    assert_int_equal(st, PLIM_OK);
    assert_true(n > 8);
}

/* Sparse ids, freed in another order, reused. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 3000 };
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf b;
    plim_buf_init(&b, &a);
    plim_buf_puts(&b, "plimsoll-tape 1\n");
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < N; i++)
            plim_buf_printf(&b, "+ %" PRIu64 " %" PRIu64 "\n", i * i * i * 1000003, i);
        for (uint64_t i = N; i-- > 0;)
            plim_buf_printf(&b, "- %" PRIu64 "\n", i * i * i * 1000003);
    }
    plim_tape t = tape_of(&a, plim_buf_str(&b).p);
    assert_int_equal(t.n_storages, 2 * N);
    assert_int_equal(t.n_events, 4 * N);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(t.events[N + i].id, N - 1 - i);
        assert_int_equal(t.events[3 * N + i].id, 2 * N - 1 - i);
        assert_int_equal(t.storages[N + i].bytes, i);
    }
    plim_arena_free(&a);
}

static void test_words(void **state)
{
    (void)state;
    for (int i = 0; i < PLIM_PHASE_COUNT; i++)
        assert_true(plim_phase_name((plim_phase)i)[0] > 'A');
    for (int i = 0; i < PLIM_CAT_COUNT; i++)
        assert_true(plim_category_name((plim_category)i)[0] > 'A');
    assert_string_equal(plim_certainty_name(PLIM_UNKNOWN_BYTES), "unknown");
    assert_string_equal(plim_category_name(PLIM_CAT_OPTIMIZER_STATE), "optimizer_state");
    assert_string_equal(plim_phase_name(PLIM_PHASE_ZERO_GRAD), "zero_grad");
    assert_string_equal(plim_phase_name(PLIM_PHASE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),   cmocka_unit_test(test_forms),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_json),
        cmocka_unit_test(test_build),  cmocka_unit_test(test_check),
        cmocka_unit_test(test_faults), cmocka_unit_test(test_many),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
