/* test_double.c -- doubles from text and as text: src/base/double.c. */
#include "base/fmt.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

/* clang-format off */
static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        double v;
    } T[] = {
        {"an integer", "42", 42},
        {"a decimal", "0.9", 0.9},
        {"no digit before the point", ".5", 0.5},
        {"no digit after it", "2.", 2},
        {"plus", "+1e+2", 100},
        {"minus zero", "-0", -0.0},
        {"zero with an exponent", "0e999999999999", 0},
        {"capital E", "1E-5", 1e-5},
        {"beyond the fast path", "1e23", 1e23},
        {"20 digits", "12345678901234567890", 12345678901234567890.0},
        {"a tie, to even: down", "9007199254740993", 9007199254740992.0},
        {"a tie, to even: up", "9007199254740995", 9007199254740996.0},
        {"just above a tie", "9007199254740993.00000000000000000000000000000001", 9007199254740994.0},
        {"the largest", "1.7976931348623157e308", DBL_MAX},
        {"below the midpoint to 2^1024", "1.797693134862315807e308", DBL_MAX},
        {"above it", "1.797693134862315808e308", INFINITY},
        {"far above it", "1e999999999999", INFINITY},
        {"the least normal", "2.2250738585072014e-308", DBL_MIN},
        {"the largest subnormal", "2.2250738585072011e-308", 0x0.fffffffffffffp-1022},
        {"the least of all", "5e-324", 0x1p-1074},
        {"half of that is zero", "2.4703282292062327e-324", 0},
        {"a little more is not", "2.4703282292062328e-324", 0x1p-1074},
        {"far below it", "1e-999999999999", 0},
        {"infinity", "-inf", -INFINITY},
        {"infinity as JSON writes it", "Infinity", INFINITY},
        {"no number", "NaN", NAN},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        double v = 77;
        CHECK(T[i].why, plim_parse_double(plim_str_of(T[i].text), &v));
        CHECK(T[i].why, same(v, T[i].v));
    }
    static const char *const refused[] = {
        "", ".", "-", "e5", "1e", "1e+", "1,5", "1.2.3", "0x10", "1 ", " 1", "--1", "infi", "nano",
    };
    for (size_t i = 0; i < PLIM_COUNT(refused); i++) {
        double v = 77;
        CHECK(refused[i], !plim_parse_double(plim_str_of(refused[i]), &v) && same(v, 77));
    }
}
/* clang-format on */

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed ^ *seed >> 29;
}

/* Compared with the C library, in the C locale. */
static void test_random(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        char text[1200];
        double v, want;
        uint64_t bits = next_random(&seed);
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        /* exact with all its digits, halfway between two doubles, or an integer and an
         * exponent */
        if (i % 3 == 0)
            snprintf(text, sizeof text, "%.*e", i % 800, v);
        else if (i % 3 == 1)
            snprintf(text, sizeof text, "%.*g", 15 + i % 6, v);
        else
            snprintf(text, sizeof text, "%" PRIu64 "e%d", next_random(&seed) >> i % 64,
                     (int)(bits % 700) - 360);
        want = strtod(text, NULL);
        CHECK(text, plim_parse_double(plim_str_of(text), &v) && same(v, want));
    }
}

static void test_many_digits(void **state)
{
    (void)state;
    /* 2^53 + 1 is a tie; a digit after two thousand zeros breaks it */
    char text[2100];
    double v;
    memset(text, '0', sizeof text);
    memcpy(text, "9007199254740993.", 17);
    text[sizeof text - 1] = '1';
    assert_true(plim_parse_double((plim_str){text, sizeof text - 1}, &v));
    assert_true(same(v, 9007199254740992.0));
    assert_true(plim_parse_double((plim_str){text, sizeof text}, &v));
    assert_true(same(v, 9007199254740994.0));
}

static void test_fmt(void **state)
{
    (void)state;
    CHECK_STR("short", plim_fmt_double(0.1).s, "0.1");
    CHECK_STR("whole", plim_fmt_double(-20).s, "-20");
    CHECK_STR("small", plim_fmt_double(1e-5).s, "1e-05");
    CHECK_STR("17 digits", plim_fmt_double(0.1 + 0.2).s, "0.30000000000000004");
    CHECK_STR("the longest", plim_fmt_double(-DBL_MAX).s, "-1.7976931348623157e+308");
    CHECK_STR("infinity", plim_fmt_double((double)-INFINITY).s, "-inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_many_digits),
        cmocka_unit_test(test_fmt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
