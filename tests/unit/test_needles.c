/* test_needles.c -- words in texts: each place that a comparison with each word at each byte finds, in that
 * order; and a file in parts. */
#include "base/needles.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "texts.h"
#include "unit.h"

/* Of small alphabets: words that overlap, begin alike, and hold one another. */
static void make_words(plim_arena *a, uint64_t *seed, const char **words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t length = 3 + texts_random(seed, 14);
        char *word = PLIM_NEW_N(a, char, length + 1);
        for (uint32_t k = 0; k < length; k++)
            word[k] = "ab\xff"[texts_random(seed, 3)];
        words[i] = word;
    }
}

static void check_text(const plim_needles *s, const char *const *words, uint32_t n,
                       plim_str text)
{
    plim_needle m = PLIM_NEEDLE_FROM(0);
    for (size_t at = 0; at < text.n; at++)
        for (uint32_t k = 0; k < n; k++) {
            if (!plim_str_starts((plim_str){text.p + at, text.n - at}, words[k]))
                continue;
            CHECK(words[k], plim_needles_next(s, text, &m));
            CHECK(words[k], m.at == at && m.word == k);
        }
    CHECK("no more", !plim_needles_next(s, text, &m));
}

static void test_random(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "b", "\xff", "ab", "aaa", "c"};
    static plim_needles s;
    uint64_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        plim_arena a = PLIM_ARENA_INIT;
        const char *words[PLIM_NEEDLES_MOST];
        uint32_t n = 1 + texts_random(&seed, PLIM_NEEDLES_MOST);
        make_words(&a, &seed, words, n);
        plim_needles_init(&s, words, sizeof words[0], n);
        plim_str text =
            texts_make(&a, &seed, texts_random(&seed, 300), letters, PLIM_COUNT(letters));
        char *exact = malloc(text.n + 1); /* so that a byte more is seen */
        assert_non_null(exact);
        memcpy(exact, text.p, text.n);
        check_text(&s, words, n, (plim_str){exact, text.n});
        free(exact);
        plim_arena_free(&a);
    }
}

/* A search that begins in a word does not find it. */
static void test_from(void **state)
{
    (void)state;
    static const char *const words[] = {"memory", "memo"};
    static plim_needles s;
    plim_needles_init(&s, words, sizeof words[0], 2);
    plim_str text = PLIM_STR("a memory");
    plim_needle m = PLIM_NEEDLE_FROM(2);
    CHECK("the first of two", plim_needles_next(&s, text, &m) && m.at == 2 && m.word == 0);
    CHECK("the second", plim_needles_next(&s, text, &m) && m.at == 2 && m.word == 1);
    CHECK("no more", !plim_needles_next(&s, text, &m));
    m = PLIM_NEEDLE_FROM(3);
    CHECK("behind its first letter", !plim_needles_next(&s, text, &m));
    m = PLIM_NEEDLE_FROM(9);
    CHECK("behind the end", !plim_needles_next(&s, text, &m));
}

/* ---- a file in parts ------------------------------------------------------------------- */

typedef struct taker {
    uint64_t seed, sum, total;
    bool ended;
} taker;

/* Leaves what it likes of each part, as long as it is less than 64 KiB. */
static size_t take_some(void *ud, plim_str text, bool last)
{
    taker *t = ud;
    size_t left = texts_random(&t->seed, 65536);
    left = last ? 0 : PLIM_MIN(text.n, left);
    for (size_t i = 0; i < text.n - left; i++)
        t->sum = t->sum * 31 + (uint8_t)text.p[i];
    t->total += text.n - left;
    CHECK("one is the last", !t->ended);
    t->ended = last;
    return text.n - left;
}

static void test_parts(void **state)
{
    (void)state;
    enum { SIZE = 3000001 };
    static char bytes[SIZE];
    uint64_t seed = 7, sum = 0;
    char path[] = "/tmp/plimsoll-parts-XXXXXX";
    int fd = mkstemp(path);
    CHECK("a file of our own", fd >= 0);
    taker t = {.seed = 1};
    CHECK("empty",
          plim_file_each(path, take_some, &t, NULL) == PLIM_OK && t.ended && !t.total);
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (char)texts_random(&seed, 256);
        sum = sum * 31 + (uint8_t)bytes[i];
    }
    CHECK("written", write(fd, bytes, SIZE) == SIZE);
    for (uint64_t i = 0; i < 20; i++) {
        t = (taker){.seed = i};
        uint64_t held = plim_memory_held();
        CHECK("read", plim_file_each(path, take_some, &t, NULL) == PLIM_OK && t.ended);
        CHECK("each byte once, in order", t.total == SIZE && t.sum == sum);
        CHECK("what it took is given back", plim_memory_held() == held);
    }
    close(fd);
    remove(path);
    plim_err err = PLIM_ERR_INIT;
    CHECK("no such file", plim_file_each(path, take_some, &t, &err) == PLIM_EIO);
    err = (plim_err)PLIM_ERR_INIT;
    CHECK("a folder", plim_file_each("/", take_some, &t, &err) == PLIM_EIO);
    CHECK_STR("says so", err.msg, "cannot read '/': is a directory");
}

typedef struct shrinker {
    int fd;
    uint64_t total;
} shrinker;

static size_t take_and_cut(void *ud, plim_str text, bool last)
{
    shrinker *s = ud;
    (void)last;
    s->total += text.n;
    CHECK("cut short", ftruncate(s->fd, 1 << 20) == 0);
    return text.n;
}

static void test_shrinking(void **state)
{
    (void)state;
    plim_err err = PLIM_ERR_INIT;
    char path[] = "/tmp/plimsoll-shrink-XXXXXX";
    shrinker s = {.fd = mkstemp(path)};
    CHECK("a file of our own", s.fd >= 0 && ftruncate(s.fd, 8 << 20) == 0);
    CHECK("an error", plim_file_each(path, take_and_cut, &s, &err) == PLIM_EIO);
    CHECK("says what happened", strstr(err.msg, "had 8388608 bytes and was truncated"));
    CHECK("what was left was read", s.total == 1 << 20);
    close(s.fd);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_from),
        cmocka_unit_test(test_parts), cmocka_unit_test(test_shrinking)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
