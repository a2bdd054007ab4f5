/* test_fmt.c -- numbers as text and back: src/base/fmt.h. */
#include "base/fmt.h"

#include "unit.h"

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint64_t n;
        const char *iec, *si;
    } rows[] = {
        {"nothing is bytes", 0, "0 B", "0 B"},
        {"below both units", 999, "999 B", "999 B"},
        {"between the two units", 1000, "1000 B", "1.00 KB"},
        {"just below 1 KiB", 1023, "1023 B", "1.02 KB"},
        {"the unit itself", 1024, "1.00 KiB", "1.02 KB"},
        {"half up", 1536, "1.50 KiB", "1.54 KB"},
        {"1.005 rounds up", 1005, "1005 B", "1.01 KB"},
        {"a GiB", 1ull << 30, "1.00 GiB", "1.07 GB"},
        {"rounding carries into the next unit", (1ull << 30) - 1, "1.00 GiB", "1.07 GB"},
        {"the same with 1000", 999999999, "953.67 MiB", "1.00 GB"},
        {"an A100 as its driver tells", 42474471424ull, "39.56 GiB", "42.47 GB"},
        {"a big unit", 1ull << 50, "1.00 PiB", "1.13 PB"},
        {"the largest number", UINT64_MAX, "16.00 EiB", "18.45 EB"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        CHECK_STR(rows[i].why, plim_fmt_bytes(rows[i].n, false).s, rows[i].iec);
        CHECK_STR(rows[i].why, plim_fmt_bytes(rows[i].n, true).s, rows[i].si);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    CHECK_STR("no comma", plim_fmt_count(999).s, "999");
    CHECK_STR("one comma", plim_fmt_count(1000).s, "1,000");
    CHECK_STR("ResNet-50", plim_fmt_count(25557032).s, "25,557,032");
    CHECK_STR("the largest", plim_fmt_count(UINT64_MAX).s, "18,446,744,073,709,551,615");
    CHECK_STR("small counts stay whole", plim_fmt_metric(999).s, "999");
    CHECK_STR("millions", plim_fmt_metric(25557032).s, "25.56 M");
    CHECK_STR("billions", plim_fmt_metric(4089184256ull).s, "4.09 G");
    CHECK_STR("an eighth", plim_fmt_percent(1, 8).s, "12.5 %");
    CHECK_STR("all", plim_fmt_percent(7, 7).s, "100.0 %");
    CHECK_STR("more than all", plim_fmt_percent(3, 2).s, "150.0 %");
    CHECK_STR("huge numbers do not wrap", plim_fmt_percent(UINT64_MAX, UINT64_MAX).s,
              "100.0 %");
    CHECK_STR("part of nothing", plim_fmt_percent(1, 0).s, "-");
    CHECK_STR("a whole rate", plim_fmt_fixed(1008, 1).s, "1008");
    CHECK_STR("zeros are cut", plim_fmt_fixed(82.60, 2).s, "82.6");
    CHECK_STR("rounded", plim_fmt_fixed(1.8625, 2).s, "1.86");
    CHECK_STR("a zero in the middle stays", plim_fmt_fixed(9.01, 2).s, "9.01");
    CHECK_STR("below zero is no rate", plim_fmt_fixed(-1, 2).s, "-");
}

static void test_parse_size(void **state)
{
    (void)state;
    const uint64_t gib = 1ull << 30;
    const struct {
        const char *text;
        plim_status st;
        uint64_t want;
    } rows[] = {
        {"24GiB", PLIM_OK, 24 * gib},
        {"24 gib", PLIM_OK, 24 * gib},
        {"24g", PLIM_OK, 24 * gib},
        {"24G", PLIM_OK, 24 * gib},
        {"24GB", PLIM_OK, 24000000000ull},
        {"500M", PLIM_OK, 500ull << 20},
        {"500MB", PLIM_OK, 500000000},
        {"512", PLIM_OK, 512},
        {" 512 B ", PLIM_OK, 512},
        {"0", PLIM_OK, 0},
        {"1.5GiB", PLIM_OK, gib * 3 / 2},
        {"0.25g", PLIM_OK, gib / 4},
        {".5k", PLIM_OK, 512},
        {"1.k", PLIM_OK, 1024},
        {"23.64GiB", PLIM_OK, 25383256719ull}, /* floor(23.64 * 2^30) */
        {"0.1GB", PLIM_OK, 100000000},
        {"15.9999999999999999999EiB", PLIM_OK, UINT64_MAX}, /* a byte below 2^64, floored */
        {"18446744073709551615", PLIM_OK, UINT64_MAX},
        {"18446744073709551616", PLIM_ERANGE, 0},
        {"16EiB", PLIM_ERANGE, 0},
        {"99999999999999999999999999GB", PLIM_ERANGE, 0},
        {"", PLIM_EUSAGE, 0},
        {".", PLIM_EUSAGE, 0},
        {"GiB", PLIM_EUSAGE, 0},
        {"24Q", PLIM_EUSAGE, 0},
        {"24GiBs", PLIM_EUSAGE, 0},
        {"24Gi", PLIM_EUSAGE, 0},
        {"-1", PLIM_EUSAGE, 0},
        {"1.2.3G", PLIM_EUSAGE, 0},
        {"1e9", PLIM_EUSAGE, 0},
        {"24 G B", PLIM_EUSAGE, 0},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        uint64_t n = 77;
        plim_status st = plim_parse_size(plim_str_of(rows[i].text), &n, &err);
        CHECK(rows[i].text, st == rows[i].st);
        CHECK(rows[i].text, st == PLIM_OK ? n == rows[i].want : n == 77 && err.code == st);
    }
    plim_err err = PLIM_ERR_INIT;
    uint64_t n;
    plim_parse_size(PLIM_STR("24Q"), &n, &err);
    CHECK_STR("the message", err.msg,
              "'24Q' is not a size: write a number and B, KiB, MiB, GiB, KB, MB or GB");
}

static void test_parse_shape(void **state)
{
    (void)state;
    const struct {
        const char *text;
        plim_status st;
        int32_t rank;
        int64_t dim[4];
    } rows[] = {
        {"500x500x3", PLIM_OK, 3, {500, 500, 3}},
        {"1,3,224,224", PLIM_OK, 4, {1, 3, 224, 224}},
        {"(32, 10)", PLIM_OK, 2, {32, 10}},
        {"[3]", PLIM_OK, 1, {3}},
        {"(3,)", PLIM_OK, 1, {3}},
        {"()", PLIM_OK, 0, {0}},
        {"[ ]", PLIM_OK, 0, {0}},
        {"7", PLIM_OK, 1, {7}},
        {"2 x 3 * 4", PLIM_OK, 3, {2, 3, 4}},
        {"2X3", PLIM_OK, 2, {2, 3}},
        {"2\xc3\x97"
         "3",
         PLIM_OK,
         2,
         {2, 3}},
        {"0x4", PLIM_OK, 2, {0, 4}},
        {"9223372036854775807", PLIM_OK, 1, {INT64_MAX}},
        {"9223372036854775808", PLIM_ERANGE, 0, {0}},
        {"99999999999999999999", PLIM_ERANGE, 0, {0}},
        {"1,2,3,4,5", PLIM_ERANGE, 0, {0}},
        {"", PLIM_EUSAGE, 0, {0}},
        {"x", PLIM_EUSAGE, 0, {0}},
        {"3x", PLIM_EUSAGE, 0, {0}},
        {"3,", PLIM_EUSAGE, 0, {0}},
        {"3xx3", PLIM_EUSAGE, 0, {0}},
        {"-3", PLIM_EUSAGE, 0, {0}},
        {"3 4", PLIM_EUSAGE, 0, {0}},
        {"(3", PLIM_EUSAGE, 0, {0}},
        {"3.5", PLIM_EUSAGE, 0, {0}},
        {"(,)", PLIM_EUSAGE, 0, {0}},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        int64_t dim[4] = {0};
        int32_t rank = 77;
        plim_status st = plim_parse_shape(plim_str_of(rows[i].text), dim, 4, &rank, &err);
        CHECK(rows[i].text, st == rows[i].st);
        CHECK(rows[i].text, rank == (st == PLIM_OK ? rows[i].rank : 77));
        for (int32_t k = 0; st == PLIM_OK && k < rank; k++)
            CHECK(rows[i].text, dim[k] == rows[i].dim[k]);
    }
}

static void test_parse_dim(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t dim; /* -1: it is none */
    } rows[] = {{"7", 7},   {"0", 0},    {"[3]", 3}, {"(3,)", 3}, {"()", -1},
                {"[]", -1}, {"2x3", -1}, {"", -1},   {"x", -1},   {"9223372036854775808", -1}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        int64_t dim = -1;
        CHECK(rows[i].text,
              plim_parse_dim(plim_str_of(rows[i].text), &dim) == (rows[i].dim >= 0));
        CHECK(rows[i].text, dim == rows[i].dim);
    }
}

static void test_parse_version(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n, part[3];
    } rows[] = {{"4.46", 2, {4, 46}},
                {"4.46.3", 3, {4, 46, 3}},
                {"0.43.1.post1", 4, {0, 43, 1}},
                {"5", 1, {5}},
                {"", 0, {0}},
                {"5.", 0, {5}},
                {".5", 0, {0}},
                {"4.100", 0, {4, 10}},
                {"4.46a", 0, {4, 46}}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        int part[3];
        CHECK(rows[i].text, plim_parse_version(rows[i].text, part) == rows[i].n);
        CHECK(rows[i].text, !memcmp(part, rows[i].part, sizeof part));
    }
}

static void test_width(void **state)
{
    (void)state;
    CHECK("ascii", plim_text_width(PLIM_STR("GiB")) == 3);
    CHECK("box drawing is narrow", plim_text_width(PLIM_STR("\xe2\x94\x80\xe2\x94\x82")) == 2);
    CHECK("accents", plim_text_width(PLIM_STR("caf\xc3\xa9")) == 4);
    CHECK("a combining accent takes no room", plim_text_width(PLIM_STR("e\xcc\x81")) == 1);
    CHECK("chinese is wide", plim_text_width(PLIM_STR("\xe5\xb1\x82")) == 2);
    CHECK("a byte that is not utf-8", plim_text_width(PLIM_STR("a\xff"
                                                               "b")) == 3);
    CHECK("a cut sequence", plim_text_width(PLIM_STR("a\xe5\xb1")) == 3);
    CHECK("an overlong slash is two bytes", plim_text_width(PLIM_STR("\xc0\xaf")) == 2);
}

static void test_buf(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf b;
    plim_buf_init(&b, &a);
    CHECK("empty is not NULL", plim_buf_str(&b).p && plim_buf_str(&b).n == 0);
    for (int i = 0; i < 1000; i++)
        plim_buf_printf(&b, "%d,", i);
    plim_buf_repeat(&b, "ab", 2);
    CHECK("everything is there", plim_buf_str(&b).n == 10 * 2 + 90 * 3 + 900 * 4 + 4);
    CHECK_STR("and ends in a NUL", b.p + b.n - 8, "999,abab");
    plim_arena_free(&a);

    a.limit = 1000;
    plim_buf_init(&b, &a);
    plim_buf_repeat(&b, "0123456789", 200);
    CHECK("a full arena is remembered", b.bad);
    CHECK("what fitted is whole", plim_buf_str(&b).n % 10 == 0);
    plim_arena_free(&a);
}

/* Pieces of an output, until one is refused. */
typedef struct taken {
    uint64_t bytes, pieces, most;
} taken;

static int take_piece(void *ud, const char *text, size_t n)
{
    taken *t = ud;
    CHECK("the next", t->bytes % 10 == (uint64_t)(text[0] - '0'));
    t->bytes += n;
    return ++t->pieces > t->most;
}

static void test_buf_put(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf b;
    taken all = {.most = UINT64_MAX}, few = {.most = 2};
    plim_buf_init(&b, &a);
    plim_buf_put(&b, take_piece, &all);
    plim_buf_repeat(&b, "0123456789", 1000000);
    CHECK("in pieces", all.pieces > 100 && !b.bad && !b.unput);
    CHECK("but for the last", all.bytes + plim_buf_str(&b).n == 10000000);
    CHECK("in little memory", a.used < 1 << 20);
    plim_buf_put(&b, take_piece, &few);
    few.bytes = all.bytes;
    plim_buf_repeat(&b, "0123456789", 1000000);
    CHECK("none after one that fails", b.unput && few.pieces == 3);
    plim_arena_free(&a);
}

static void test_edit_distance(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        uint32_t n;
    } rows[] = {{"", "", 0},
                {"a", "", 1},
                {"", "abc", 3},
                {"kitten", "sitting", 3},
                {"resnet50", "resnet50", 0},
                {"flaw", "lawn", 2},
                {"resnet5o", "resnet50", 1},
                {"resent50", "resnet50", 1},
                {"ab", "ba", 1},
                {"abcd", "badc", 2}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_str a = plim_str_of(rows[i].a), b = plim_str_of(rows[i].b);
        assert_int_equal(plim_edit_distance(a, b), rows[i].n);
        assert_int_equal(plim_edit_distance(b, a), rows[i].n);
    }
    char tail[80];
    memset(tail, 'x', sizeof tail);
    CHECK("too long to compare",
          plim_edit_distance((plim_str){tail, sizeof tail}, PLIM_STR("x")) == PLIM_NAME_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edit_distance), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_numbers),       cmocka_unit_test(test_parse_size),
        cmocka_unit_test(test_parse_dim),     cmocka_unit_test(test_parse_shape),
        cmocka_unit_test(test_width),         cmocka_unit_test(test_buf),
        cmocka_unit_test(test_buf_put),       cmocka_unit_test(test_parse_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
