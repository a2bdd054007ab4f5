/* test_regex.c -- regular expressions: what they find, what is not understood, and that time is linear. */
#include "base/regex.h"
#include "unit.h"

static const struct {
    const char *regex, *finds, *misses; /* by '|': several texts */
} rows[] = {
    {"exps", "blk.0.ffn_up_exps.weight", "blk.0.ffn_up.weight"},
    {"\\.ffn_.*_exps\\.", "blk.3.ffn_gate_exps.weight", "blk.3.ffn_gate_inp.weight"},
    {"blk\\.(1[0-9]|2[0-3])\\.ffn", "blk.10.ffn_up.weight|blk.23.ffn_down.weight",
     "blk.1.ffn_up.weight|blk.24.ffn_up.weight|blk.100.ffn_up.weight"},
    {"^output", "output.weight", "blk.0.attn_output.weight"},
    {"weight$", "output.weight", "output.weight.scale"},
    {"^$", "", "a"},
    {"", "|a", NULL},
    {"ffn_(up|down|gate)_(ch|)exps", "ffn_up_exps|ffn_gate_chexps", "ffn_exps"},
    {"a+b?c*d", "aad|abd|abcccd", "bd|acb"},
    {"\\d+\\.\\w", "12.a", "a.b|12."},
    {"[^0-9.]x", "ax|-x", "1x|.x|x"},
    {"[]a]b", "]b|ab", "cb"},
    {"[a-]z", "-z|az", "bz"},
    {"(a|b)+c", "abbac", "d|c"},
    {"(a*)*b", "b|aaab", "aaaa"},
    {"(?:ab)+?c", "ababc", "ac"},
    {"a.c", "abc", "ac"},
    {"\\s\\S", " a", "ab|  "},
};

static bool next_text(const char **at, plim_str *out)
{
    if (!*at)
        return false;
    const char *end = strchr(*at, '|');
    *out = (plim_str){*at, end ? (size_t)(end - *at) : strlen(*at)};
    *at = end ? end + 1 : NULL;
    return true;
}

static void test_finds(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_regex r;
        plim_err err = PLIM_ERR_INIT;
        if (plim_regex_compile(&r, plim_str_of(rows[i].regex), &err))
            fail_msg("%s", err.msg);
        const char *at[] = {rows[i].misses, rows[i].finds};
        for (int found = 0; found < 2; found++)
            for (plim_str text; next_text(&at[found], &text);)
                if (plim_regex_finds(&r, text) != found)
                    fail_msg("'%s' in '" PLIM_STR_FMT "'", rows[i].regex, PLIM_STR_ARG(text));
    }
}

static const struct {
    const char *regex, *says;
} refused[] = {
    {"(a", "a group has no end"},       {"a)", "a group has no beginning"},
    {"[a", "a class has no end"},       {"*a", "nothing is repeated"},
    {"a{2}", "numbers of repetitions"}, {"a\\", "after its backslash"},
    {"(a)\\1", "after its backslash"},  {"(?=a)", "only (?: is supported"},
};

static void test_refused(void **state)
{
    (void)state;
    char text[4096];
    plim_regex r;
    for (size_t i = 0; i < PLIM_COUNT(refused); i++) {
        plim_err err = PLIM_ERR_INIT;
        if (plim_regex_compile(&r, plim_str_of(refused[i].regex), &err) != PLIM_EUSAGE ||
            !strstr(err.msg, refused[i].says))
            fail_msg("'%s': %s", refused[i].regex, err.msg);
    }
    const char *long_ones[] = {"a", "(", "[a]", "a|", "(a*)*"};
    for (size_t i = 0; i < PLIM_COUNT(long_ones); i++) {
        plim_err err = PLIM_ERR_INIT;
        size_t n = strlen(long_ones[i]);
        for (size_t k = 0; k + n < sizeof text; k += n)
            memcpy(text + k, long_ones[i], n);
        plim_str s = {text, sizeof text / n * n};
        assert_int_equal(plim_regex_compile(&r, s, &err), PLIM_EUSAGE);
    }
}

/* Expressions that take others exponential time. */
static void test_time(void **state)
{
    (void)state;
    static char text[100000];
    plim_regex r;
    plim_err err = PLIM_ERR_INIT;
    memset(text, 'a', sizeof text);
    assert_int_equal(plim_regex_compile(&r, PLIM_STR("((a*)*|a)*(a|a)*b"), &err), PLIM_OK);
    assert_false(plim_regex_finds(&r, (plim_str){text, sizeof text}));
}

/* Chance bytes as expressions, found in themselves or not. */
static void test_chance(void **state)
{
    (void)state;
    static const char bytes[] = "ab()[]|*+?.\\^$-dwD{1";
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        char text[24];
        size_t n = 0;
        for (; n < sizeof text; n++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if (seed >> 60 == 0)
                break;
            text[n] = bytes[(seed >> 33) % (sizeof bytes - 1)];
        }
        plim_regex r;
        plim_err err = PLIM_ERR_INIT;
        if (!plim_regex_compile(&r, (plim_str){text, n}, &err))
            plim_regex_finds(&r, (plim_str){text, n});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_time), cmocka_unit_test(test_chance)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
