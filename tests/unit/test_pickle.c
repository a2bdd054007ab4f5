/* test_pickle.c -- the pickle reader against Python's own (tests/data/pickles.txt, by
 * pickles.py), and against malicious pickles. */
#include "base/pickle.h"

#include <stdio.h>

#include "base/fmt.h"
#include "unit.h"

/* ---- values as text: what pickles.py prints --------------------------------------------- */

static void put_hex(plim_buf *b, const char *what, const void *p, size_t n)
{
    plim_buf_puts(b, what);
    for (size_t i = 0; i < n; i++)
        plim_buf_printf(b, "%02x", ((const uint8_t *)p)[i]);
}

static void put(plim_buf *b, plim_pickle_value v);

static void put_items(plim_buf *b, plim_pickle_value v)
{
    bool pairs = v.node->pairs;
    for (uint32_t i = 0; i < v.node->n; i++) {
        if (i)
            plim_buf_puts(b, pairs && i % 2 ? "=" : " ");
        put(b, v.node->items[i]);
    }
}

static void put_around(plim_buf *b, const char *open, plim_pickle_value v, const char *close)
{
    plim_buf_puts(b, open);
    put_items(b, v);
    plim_buf_puts(b, close);
}

static void put(plim_buf *b, plim_pickle_value v)
{
    uint8_t f[8];
    uint64_t u;
    switch (v.kind) {
    case PLIM_PICKLE_ABSENT:
    case PLIM_PICKLE_TAKEN: plim_buf_puts(b, "?"); break;
    case PLIM_PICKLE_NONE: plim_buf_puts(b, "None"); break;
    case PLIM_PICKLE_BOOL: plim_buf_puts(b, v.i ? "True" : "False"); break;
    case PLIM_PICKLE_INT: plim_buf_printf(b, "%" PRId64, v.i); break;
    case PLIM_PICKLE_LONG: put_hex(b, "long:", v.p, v.n); break;
    case PLIM_PICKLE_FLOAT:
        memcpy(&u, &v.f, sizeof u);
        for (int i = 0; i < 8; i++)
            f[i] = (uint8_t)(u >> (56 - 8 * i));
        put_hex(b, "", f, sizeof f);
        plim_buf_puts(b, "f");
        break;
    case PLIM_PICKLE_STR: put_hex(b, "s:", v.p, v.n); break;
    case PLIM_PICKLE_BYTES: put_hex(b, "b:", v.p, v.n); break;
    case PLIM_PICKLE_LIST: put_around(b, "[", v, "]"); break;
    case PLIM_PICKLE_TUPLE: put_around(b, "(", v, ")"); break;
    case PLIM_PICKLE_SET:
    case PLIM_PICKLE_DICT: put_around(b, "{", v, "}"); break;
    case PLIM_PICKLE_PERSISTENT: put_around(b, "@", v, ""); break;
    case PLIM_PICKLE_GLOBAL:
        plim_buf_printf(b, "<%.*s %.*s>", (int)v.node->items[0].n, v.node->items[0].p,
                        (int)v.node->items[1].n, v.node->items[1].p);
        break;
    case PLIM_PICKLE_CALL:
        put(b, v.node->call->fn);
        put(b, v.node->call->args);
        if (v.node->call->state.kind) {
            plim_buf_puts(b, "=");
            put(b, v.node->call->state);
        }
        if (v.node->n)
            put_around(b, "[", v, "]");
        break;
    }
}

/* ---- Python's own reading ------------------------------------------------------------------ */

static uint64_t unhex(const char *p, uint8_t *out)
{
    uint64_t n = 0;
    for (unsigned byte; sscanf(p, "%2x", &byte) == 1; p += 2)
        out[n++] = (uint8_t)byte;
    return n;
}

static char *read_text(const char *path, plim_arena *a)
{
    plim_bytes b = {0};
    plim_err err = PLIM_ERR_INIT;
    if (plim_file_read(&b, path, &err))
        fail_msg("%s", err.msg);
    plim_str s = plim_arena_str(a, (plim_str){(const char *)b.p, (size_t)b.n});
    plim_file_close(&b);
    return (char *)(uintptr_t)s.p;
}

static void test_python(void **state)
{
    (void)state;
    plim_arena file = PLIM_ARENA_INIT;
    char *text = read_text(PLIM_SOURCE_DIR "/tests/data/pickles.txt", &file);
    uint32_t n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (*line == '#')
            continue;
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_pickle p;
        plim_buf out;
        char *want = strchr(line, ' ');
        uint8_t *bytes = PLIM_NEW_N(&a, uint8_t, strlen(line));
        *want++ = 0;
        plim_bytes b = {.p = bytes, .n = unhex(line, bytes)};
        if (plim_pickle_read(&p, &a, b, 0, 0, &err))
            fail_msg("%.60s: %s", line, err.msg);
        plim_buf_init(&out, &a);
        put(&out, p.root);
        CHECK_STR(line, plim_buf_str(&out).p, want);
        CHECK(line, p.end == b.n);
        /* cut off at any byte, it is an error */
        for (uint64_t cut = 0; cut < b.n && b.n < 2000; cut++) {
            plim_err why = PLIM_ERR_INIT;
            CHECK(line, plim_pickle_read(&p, &a, (plim_bytes){.p = bytes, .n = cut}, 0, 0,
                                         &why) == PLIM_EFORMAT);
        }
        plim_arena_free(&a);
        n++;
    }
    assert_int_equal(n, 375);
    plim_arena_free(&file);
}

/* ---- looking at values ------------------------------------------------------------------------ */

static plim_status read_bytes(plim_pickle *p, plim_arena *a, const char *bytes, size_t n,
                              plim_err *err)
{
    return plim_pickle_read(p, a, (plim_bytes){.p = (const uint8_t *)bytes, .n = n}, 0, 1000,
                            err);
}

#define READ(p, a, bytes) read_bytes(p, a, bytes, sizeof(bytes) - 1, NULL)

static void test_look(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_pickle p;
    assert_int_equal(READ(&p, &a, "}(U\1aK\1U\1bK\2U\1aK\3u."), PLIM_OK);
    assert_int_equal(plim_pickle_get(p.root, "a").i, 3); /* the last one, as in Python */
    assert_int_equal(plim_pickle_get(p.root, "b").i, 2);
    assert_int_equal(plim_pickle_get(p.root, "c").kind, PLIM_PICKLE_ABSENT);
    assert_int_equal(plim_pickle_get(plim_pickle_get(p.root, "a"), "a").kind,
                     PLIM_PICKLE_ABSENT);

    assert_int_equal(READ(&p, &a, "(K\1cos\nsystem\n)Rt."), PLIM_OK);
    plim_pickle_value call = plim_pickle_at(p.root, 1);
    assert_int_equal(call.kind, PLIM_PICKLE_CALL);
    assert_true(plim_pickle_is_global(call.node->call->fn, "os", "system"));
    assert_false(plim_pickle_is_global(call.node->call->fn, "os", "syste"));
    assert_false(plim_pickle_is_global(call, "os", "system"));
    assert_int_equal(p.n_globals, 1);
    assert_int_equal(plim_pickle_at(p.root, 2).kind, PLIM_PICKLE_ABSENT);
    assert_int_equal(plim_pickle_count(p.root), 2);
    assert_int_equal(plim_pickle_count(plim_pickle_at(p.root, 0)), 0);
    plim_arena_free(&a);
}

/* A value that is used twice exists once, even if it contains itself. */
static void test_shared(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_pickle p;
    assert_int_equal(READ(&p, &a, "]q\1h\1a."), PLIM_OK);
    assert_true(plim_pickle_at(p.root, 0).node == p.root.node);
    plim_arena_free(&a);
}

/* Several pickles in sequence, as in legacy checkpoints. */
static void test_several(void **state)
{
    (void)state;
    static const uint8_t two[] = "K\1.K\2.";
    plim_arena a = PLIM_ARENA_INIT;
    plim_pickle p;
    plim_bytes b = {.p = two, .n = 6};
    assert_int_equal(plim_pickle_read(&p, &a, b, 0, 0, NULL), PLIM_OK);
    assert_true(p.root.i == 1 && p.end == 3);
    assert_int_equal(plim_pickle_read(&p, &a, b, p.end, 0, NULL), PLIM_OK);
    assert_true(p.root.i == 2 && p.end == 6);
    plim_arena_free(&a);
}

/* ---- what is wrong ------------------------------------------------------------------------------ */

#define BYTES(s) s, sizeof(s) - 1

static const struct {
    const char *why, *bytes;
    size_t n;
    plim_status code;
    const char *says;
} wrong[] = {
    {"nothing", BYTES(""), PLIM_EFORMAT,
     "pickle is truncated: no STOP before its end at byte 1000"},
    {"no value", BYTES("."), PLIM_EFORMAT,
     "pickle pops a value or a mark from an empty stack at byte 1000"},
    {"a mark hides what is under it", BYTES("K\1(a."), PLIM_EFORMAT,
     "pickle pops a value or a mark from an empty stack at byte 1003"},
    {"no mark", BYTES("K\1t."), PLIM_EFORMAT,
     "pickle pops a value or a mark from an empty stack at byte 1002"},
    {"a mark is not a value", BYTES("(."), PLIM_EFORMAT,
     "pickle pops a value or a mark from an empty stack at byte 1001"},
    {"an opcode that is none", BYTES("\xff."), PLIM_EFORMAT,
     "unknown pickle opcode 0xff at byte 1000"},
    {"a protocol to come", BYTES("\x80\x06N."), PLIM_EUNSUPPORTED,
     "unsupported pickle protocol 6: known are 0 to 5"},
    {"a string longer than the file",
     BYTES("X\xff\xff\xff\x7f"
           "abc"),
     PLIM_EFORMAT,
     "pickle is truncated: BINUNICODE at byte 1000 needs 2147483647 bytes, 3 are left"},
    {"a string longer than memory",
     BYTES("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
           "abc"),
     PLIM_EFORMAT,
     "pickle is truncated: BINUNICODE8 at byte 1000 needs 18446744073709551615 bytes, 3 are "
     "left"},
    {"a line without an end", BYTES("cos"), PLIM_EFORMAT,
     "pickle is truncated: GLOBAL at byte 1000 has no end of line"},
    {"memo 2^32 - 1", BYTES("Nr\xff\xff\xff\xff."), PLIM_EFORMAT,
     "pickle has memo entry 4294967295 after only 6 bytes"},
    {"memo 2^64", BYTES("Np18446744073709551616\n."), PLIM_EFORMAT,
     "pickle has a value other than digits at byte 1001"},
    {"no memo", BYTES("h\1."), PLIM_EFORMAT, "pickle has no memo entry 1 at byte 1000"},
    {"a gap in the memo", BYTES("Nq\2h\1."), PLIM_EFORMAT,
     "pickle has no memo entry 1 at byte 1003"},
    {"arguments that are no tuple", BYTES("cm\nn\nK\1R."), PLIM_EFORMAT,
     "pickle has a value other than a tuple of arguments at byte 1007"},
    {"a name that is none", BYTES("K\1K\2\x93."), PLIM_EFORMAT,
     "pickle has a value other than the names of a module and of something in it at byte 1004"},
    {"an append to a number", BYTES("K\1K\2a."), PLIM_EFORMAT,
     "pickle has a value other than a list at byte 1004"},
    {"an odd number of pairs", BYTES("}(K\1u."), PLIM_EFORMAT,
     "pickle has a value other than a dict and pairs for it at byte 1004"},
    {"an odd number of pairs at once", BYTES("(K\1d."), PLIM_EFORMAT,
     "pickle has a value other than a dict and pairs for it at byte 1003"},
    {"items and pairs", BYTES("cm\nn\n)RK\1aK\1K\2s."), PLIM_EFORMAT,
     "pickle has a value other than a dict and pairs for it at byte 1014"},
    {"a state for a list", BYTES("]}b."), PLIM_EFORMAT,
     "pickle has a value other than an object to give its state to at byte 1002"},
    {"a string without quotes", BYTES("Sabc\n."), PLIM_EFORMAT,
     "pickle has a value other than a string in quotes at byte 1000"},
    {"a number that is none", BYTES("Iabc\n."), PLIM_EFORMAT,
     "pickle has a value other than digits at byte 1000"},
    {"a float that is none", BYTES("Fabc\n."), PLIM_EFORMAT,
     "pickle has a value other than a number at byte 1000"},
    {"an extension", BYTES("\x82\1."), PLIM_EUNSUPPORTED,
     "pickle uses the extension registry at byte 1000"},
    {"a buffer elsewhere", BYTES("\x97."), PLIM_EUNSUPPORTED,
     "pickle uses out-of-band buffers at byte 1000"},
};

static void test_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(wrong); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_pickle p;
        plim_status st = read_bytes(&p, &a, wrong[i].bytes, wrong[i].n, &err);
        CHECK_STR(wrong[i].why, err.msg, wrong[i].says);
        CHECK(wrong[i].why, st == wrong[i].code && err.code == st);
        plim_arena_free(&a);
    }
}

/* A hundred thousand levels, a hundred thousand marks: memory is proportional, without
 * recursion. */
static void test_bounded(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const char *const patterns[] = {"]", "(",    "N",  "}",    ")",
                                           "2", "]q\1", "(l", "N\x85"};
    for (size_t k = 0; k < PLIM_COUNT(patterns); k++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_pickle p;
        size_t n = strlen(patterns[k]);
        char *bytes = PLIM_NEW_N(&a, char, N + 8);
        bytes[0] = 'N';
        for (size_t i = 1; i + n < N; i += n)
            memcpy(bytes + i, patterns[k], n);
        uint64_t before = a.used;
        (void)read_bytes(&p, &a, bytes, N, NULL);
        CHECK(patterns[k], a.used - before <= 128 * N);
        plim_arena_free(&a);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    plim_status st = PLIM_ENOMEM;
    uint64_t n = 1;
    for (; st; n++) {
        plim_arena a = {.fail_after = n};
        plim_err err = PLIM_ERR_INIT;
        plim_pickle p;
        st = read_bytes(&p, &a, BYTES("(K\1cm\nn\n)R}b](K\1K\2e}U\1aK\1sq\1(K\1im\nn\nK\1Qt."),
                        &err);
        CHECK("no memory or done", (st == PLIM_OK || st == PLIM_ENOMEM) && err.code == st);
        plim_arena_free(&a);
    }
    CHECK("it takes more than a few", n > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_python),    cmocka_unit_test(test_look),
        cmocka_unit_test(test_shared),    cmocka_unit_test(test_several),
        cmocka_unit_test(test_wrong),     cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
