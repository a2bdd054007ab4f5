/* test_json.c -- the reader against RFC 8259, the writer against the reader. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

/* ---- what is JSON and what is not ----------------------------------------- */

/* src: the examples of RFC 8259 and the corner cases that its grammar names */
static const struct {
    const char *why, *text;
    bool good;
} docs[] = {
    {"a scalar is a document", "1", true},
    {"space around it", " \n\t\r{ } ", true},
    {"nothing is none", "", false},
    {"only space is none", "  ", false},
    {"a second value", "1 2", false},
    {"an empty array", "[]", true},
    {"a comma before the end", "[1,]", false},
    {"a comma at the start", "[,1]", false},
    {"two commas", "[1,,2]", false},
    {"no comma", "[1 2]", false},
    {"an array never closed", "[1", false},
    {"an array closed as an object", "[1}", false},
    {"an object closed as an array", "{\"a\":1]", false},
    {"nested", "{\"a\":[{\"b\":[[]]},{}],\"c\":{}}", true},
    {"a key without a value", "{\"a\"}", false},
    {"a key without a colon", "{\"a\" 1}", false},
    {"a key that is not a string", "{1:1}", false},
    {"a comma before the brace", "{\"a\":1,}", false},
    {"the words", "[true,false,null]", true},
    {"part of a word", "[tru]", false},
    {"a word in capitals", "[True]", false},
    {"numbers", "[0,-0,10,1.5,-1e9,1E+2,1e-2,0.0]", true},
    {"a leading zero", "[01]", false},
    {"a leading plus", "[+1]", false},
    {"a minus alone", "[-]", false},
    {"a point without digits after", "[1.]", false},
    {"a point without digits before", "[.5]", false},
    {"an exponent without digits", "[1e]", false},
    {"NaN is Python's, not JSON's", "[NaN]", false},
    {"hexadecimal", "[0x1]", false},
    {"all escapes", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00fF\"", true},
    {"an unknown escape", "\"\\x\"", false},
    {"an escape of too few digits", "\"\\u12\"", false},
    {"an escape cut off", "\"\\", false},
    {"a tab inside a string", "\"a\tb\"", false},
    {"a newline far inside a string", "\"0123456789abcdef\n\"", false},
    {"a string never closed", "\"0123456789abcdef", false},
    {"bytes above 0x7f",
     "\"0123\xc3\xa9"
     "456789\"",
     true},
    {"single quotes", "'a'", false},
    {"a comment", "/* */ 1", false},
};

static void test_grammar(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(docs); i++) {
        plim_err err = PLIM_ERR_INIT;
        plim_json j;
        plim_json_init(&j, plim_str_of(docs[i].text), &err);
        plim_json_skip(&j);
        bool good = plim_json_end(&j) == PLIM_OK;
        CHECK(docs[i].why, good == docs[i].good);
        CHECK(docs[i].why, good == (err.code == PLIM_OK) && (good || err.msg[0]));
        /* the same document cut off anywhere is invalid, except for numbers and white space */
        for (size_t n = 1; good && n < strlen(docs[i].text); n++) {
            plim_json_init(&j, (plim_str){docs[i].text, n}, NULL);
            plim_json_skip(&j);
            if (docs[i].text[0] == '[' || docs[i].text[0] == '{' || docs[i].text[0] == '"')
                CHECK(docs[i].why, plim_json_end(&j) != PLIM_OK);
        }
    }
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * PLIM_JSON_MAX_DEPTH + 2];
    for (int deep = 0; deep < 2; deep++) {
        size_t n = PLIM_JSON_MAX_DEPTH + (size_t)deep;
        memset(text, '[', n);
        memset(text + n, ']', n);
        plim_err err = PLIM_ERR_INIT;
        plim_json j;
        plim_json_init(&j, (plim_str){text, 2 * n}, &err);
        plim_json_skip(&j);
        CHECK("the limit is allowed, one more is not", (plim_json_end(&j) == 0) == !deep);
        if (deep)
            CHECK_STR("the message says the limit", err.msg,
                      "JSON is nested deeper than 128 levels at byte 128");
    }
}

static void test_error_place(void **state)
{
    (void)state;
    plim_err err = PLIM_ERR_INIT;
    plim_json j;
    plim_json_init(&j, PLIM_STR("{\"a\": [1, 2, x]}"), &err);
    j.base = 100;
    plim_json_skip(&j);
    assert_int_equal(j.bad, PLIM_EFORMAT);
    assert_int_equal(err.at, 113);
    CHECK_STR("offsets are those of the file", err.msg,
              "invalid JSON: expected a value at byte 113");
    plim_json_skip(&j);
    assert_int_equal(plim_json_i64(&j), 0);
    CHECK_STR("the first error stays", err.msg, "invalid JSON: expected a value at byte 113");
}

/* ---- values ------------------------------------------------------------------ */

static void test_walk(void **state)
{
    (void)state;
    plim_json j, later;
    plim_str key;
    plim_json_init(&j,
                   PLIM_STR("{\"skip\":{\"x\":[1,{\"y\":\"}\"}]},\"n\":[1,-2],\"s\":\"a\\nb\","
                            "\"e\":[],\"b\":true,\"z\":null}"),
                   NULL);
    plim_arena a = PLIM_ARENA_INIT;
    char order[16] = "";
    assert_true(plim_json_object(&j));
    while (plim_json_member(&j, &key)) {
        strncat(order, key.p, 1);
        if (plim_str_is(key, "n")) {
            later = j;
            assert_true(plim_json_array(&j));
            assert_true(plim_json_item(&j));
            assert_int_equal(plim_json_i64(&j), 1);
            assert_true(plim_json_item(&j));
            assert_int_equal(plim_json_i64(&j), -2);
            assert_false(plim_json_item(&j));
        } else if (plim_str_is(key, "s")) {
            plim_str s = plim_json_unescape(&a, plim_json_str(&j));
            CHECK_STR("escapes are gone", s.p, "a\nb");
        } else if (plim_str_is(key, "e")) {
            assert_true(plim_json_array(&j));
            assert_false(plim_json_item(&j));
        } else if (plim_str_is(key, "b")) {
            assert_true(plim_json_bool(&j));
        } else if (plim_str_is(key, "z")) {
            assert_int_equal(plim_json_peek(&j), PLIM_JSON_NULL);
            plim_json_null(&j);
        } else {
            plim_json_skip(&j);
        }
    }
    CHECK_STR("members come in order", order, "snsebz");
    assert_int_equal(plim_json_end(&j), PLIM_OK);
    plim_str raw = plim_json_raw(&later);
    assert_true(plim_str_is(raw, "[1,-2]"));
    plim_arena_free(&a);
}

static void test_unescape(void **state)
{
    (void)state;
    static const struct {
        const char *why, *raw, *want;
    } T[] = {
        {"plain", "abc", "abc"},
        {"the short ones", "\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
        {"two bytes", "\\u00e9", "\xc3\xa9"},
        {"three bytes", "\\u20AC", "\xe2\x82\xac"},
        {"a pair is four bytes", "x\\ud83d\\ude00y", "x\xf0\x9f\x98\x80y"},
        {"a lone high surrogate", "\\ud83d!", "\xef\xbf\xbd!"},
        {"a lone low surrogate", "\\ude00", "\xef\xbf\xbd"},
        {"a high surrogate and no low one", "\\ud83d\\u0041",
         "\xef\xbf\xbd"
         "A"},
    };
    plim_arena a = PLIM_ARENA_INIT;
    for (size_t i = 0; i < PLIM_COUNT(T); i++)
        CHECK_STR(T[i].why, plim_json_unescape(&a, plim_str_of(T[i].raw)).p, T[i].want);
    plim_arena_free(&a);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        bool i_good, u_good;
        int64_t i;
        uint64_t u;
    } T[] = {
        {"zero", "0", true, true, 0, 0},
        {"minus zero", "-0", true, true, 0, 0},
        {"the largest signed", "9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"one more", "9223372036854775808", false, true, 0, 1ull << 63},
        {"the smallest signed", "-9223372036854775808", true, false, INT64_MIN, 0},
        {"one less", "-9223372036854775809", false, false, 0, 0},
        {"the largest unsigned", "18446744073709551615", false, true, 0, UINT64_MAX},
        {"one more than that", "18446744073709551616", false, false, 0, 0},
        {"a fraction of zero", "11008.0", true, true, 11008, 11008},
        {"a power of ten", "2e3", true, true, 2000, 2000},
        {"half", "0.5", false, false, 0, 0},
        {"beyond what a double counts", "1e17", false, false, 0, 0},
        {"minus one", "-1", true, false, -1, 0},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_json a, b;
        plim_json_init(&a, plim_str_of(T[i].text), NULL);
        b = a;
        int64_t s = plim_json_i64(&a);
        uint64_t u = plim_json_u64(&b);
        CHECK(T[i].why, (a.bad == 0) == T[i].i_good && s == T[i].i);
        CHECK(T[i].why, (b.bad == 0) == T[i].u_good && u == T[i].u);
        CHECK(T[i].why, (a.bad == 0 || a.bad == PLIM_ERANGE));
    }
}

static double read_f64(const char *text, bool lax)
{
    plim_json j;
    plim_json_init(&j, plim_str_of(text), NULL);
    j.lax = lax;
    double v = plim_json_f64(&j);
    assert_int_equal(plim_json_end(&j), PLIM_OK);
    return v;
}

static void test_doubles(void **state)
{
    (void)state;
    /* compared with the C library, in the C locale */
    static const char *const exact[] = {"0",
                                        "0.1",
                                        "1e-05",
                                        "-2.5",
                                        "1e22",
                                        "3.141592653589793",
                                        "123456789012345",
                                        "4369318097726.105",
                                        "1e-3"};
    for (size_t i = 0; i < PLIM_COUNT(exact); i++)
        CHECK(exact[i], !(fabs(read_f64(exact[i], false) - strtod(exact[i], NULL)) > 0));
    assert_true(isinf(read_f64("1e999", false)));
    assert_true(fabs(read_f64("1e-999", false)) <= 0);
    assert_true(isnan(read_f64("NaN", true)));
    assert_true(isinf(read_f64("Infinity", true)) && read_f64("-Infinity", true) < 0);
}

/* ---- writer ------------------------------------------------------------------- */

static void test_writer(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf b;
    plim_jw w;
    plim_buf_init(&b, &a);
    plim_jw_init(&w, &b);
    plim_jw_object(&w);
    plim_jw_key(&w, "a");
    plim_jw_array(&w);
    plim_jw_u64(&w, UINT64_MAX);
    plim_jw_i64(&w, INT64_MIN);
    plim_jw_array(&w);
    plim_jw_end(&w);
    plim_jw_object(&w);
    plim_jw_end(&w);
    plim_jw_end(&w);
    plim_jw_key(&w, "b\"");
    plim_jw_bool(&w, true);
    plim_jw_key(&w, "c");
    plim_jw_cstr(&w, NULL);
    plim_jw_key(&w, "d");
    plim_jw_f64(&w, 0.1);
    plim_jw_key(&w, "e");
    plim_jw_f64(&w, (double)NAN);
    plim_jw_end(&w);
    CHECK_STR("commas by themselves", plim_buf_str(&b).p,
              "{\"a\":[18446744073709551615,-9223372036854775808,[],{}],"
              "\"b\\\"\":true,\"c\":null,\"d\":0.1,\"e\":null}");
    plim_arena_free(&a);
}

static void test_writer_text(void **state)
{
    (void)state;
#define BAD "\xef\xbf\xbd"
    static const struct {
        const char *why, *in, *want;
    } T[] = {
        {"plain", "layer1.0", "\"layer1.0\""},
        {"quote and backslash", "a\"b\\c", "\"a\\\"b\\\\c\""},
        {"control characters", "\n\t\x01\x1f\x7f", "\"\\n\\t\\u0001\\u001f\\u007f\""},
        {"controls of Latin 1, which a terminal obeys",
         "\xc2\x80[\xc2\x9b"
         "31m\xc2\x9f",
         "\"\\u0080[\\u009b31m\\u009f\""},
        {"Latin 1 next to them", "\xc2\xa0\xc3\x80", "\"\xc2\xa0\xc3\x80\""},
        {"ends of lines and paragraphs", "\xe2\x80\xa8\xe2\x80\xa9", "\"\\u2028\\u2029\""},
        {"turns the direction",
         "\xe2\x80\xae"
         "gpj",
         "\"\\u202egpj\""},
        {"a tag, of two halves", "\xf3\xa0\x81\x81", "\"\\udb40\\udc41\""},
        {"a control cut off", "\xc2", "\"" BAD "\""},
        {"UTF-8 passes", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
         "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"a continuation alone", "a\x80z", "\"a" BAD "z\""},
        {"a sequence cut off", "\xe2\x82", "\"" BAD BAD "\""},
        {"overlong slash", "\xc0\xaf", "\"" BAD BAD "\""},
        {"overlong in three", "\xe0\x80\xaf", "\"" BAD BAD BAD "\""},
        {"a surrogate", "\xed\xa0\x80", "\"" BAD BAD BAD "\""},
        {"beyond U+10FFFF", "\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""},
        {"a byte that never is", "\xff", "\"" BAD "\""},
    };
    plim_arena a = PLIM_ARENA_INIT;
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_buf b;
        plim_jw w;
        plim_buf_init(&b, &a);
        plim_jw_init(&w, &b);
        plim_jw_cstr(&w, T[i].in);
        CHECK_STR(T[i].why, plim_buf_str(&b).p, T[i].want);
        /* the output can be read back */
        plim_json j;
        plim_json_init(&j, plim_buf_str(&b), NULL);
        plim_json_str(&j);
        CHECK(T[i].why, plim_json_end(&j) == PLIM_OK);
    }
    plim_arena_free(&a);
}

static void test_writer_doubles(void **state)
{
    (void)state;
    static const double T[] = {
        0, 1, -1.5, 0.1, 1e-5, 1.0 / 3, 5e-324, 1.7976931348623157e308, 1e21};
    plim_arena a = PLIM_ARENA_INIT;
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_buf b;
        plim_jw w;
        plim_buf_init(&b, &a);
        plim_jw_init(&w, &b);
        plim_jw_f64(&w, T[i]);
        CHECK(plim_buf_str(&b).p, !(fabs(strtod(plim_buf_str(&b).p, NULL) - T[i]) > 0));
        CHECK(plim_buf_str(&b).p, plim_buf_str(&b).n <= 24);
    }
    plim_arena_free(&a);
}

/* src: Unicode 15, table 3-7 */
static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t good;
    } T[] = {
        {"", 0},
        {"abc", 3},
        {"gr\xc3\xb6\xc3\x9f", 6},
        {"\xf0\x9f\x98\x80", 4}, /* U+1F600 */
        {"a\x80", 1},
        {"ab\xc3", 2},
        {"\xc0\xaf", 0},         /* '/' in two bytes */
        {"\xed\xa0\x80", 0},     /* half of a surrogate pair */
        {"\xf4\x90\x80\x80", 0}, /* beyond U+10FFFF */
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++)
        assert_int_equal(plim_json_utf8(plim_str_of(T[i].text)), T[i].good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),           cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_depth),          cmocka_unit_test(test_error_place),
        cmocka_unit_test(test_walk),           cmocka_unit_test(test_unescape),
        cmocka_unit_test(test_integers),       cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_writer),         cmocka_unit_test(test_writer_text),
        cmocka_unit_test(test_writer_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
