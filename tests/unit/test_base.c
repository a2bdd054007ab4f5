/* test_base.c -- errors, checked sizes, arena, map, files: src/base/base.h. */
#include "base/base.h"
#include "base/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static void test_errors(void **state)
{
    (void)state;
    plim_err err = PLIM_ERR_INIT;
    plim_err_prefix(&err, "nothing: ");
    CHECK_STR("no error, no prefix", err.msg, "");
    CHECK("the code comes back",
          plim_fail(&err, PLIM_ERANGE, 7, "%d is over the limit of %d", 5, 4) == PLIM_ERANGE);
    CHECK("also the second time", plim_fail(&err, PLIM_EIO, 8, "later") == PLIM_EIO);
    CHECK("the first error wins", err.code == PLIM_ERANGE && err.at == 7);
    plim_err_prefix(&err, "cannot load '%s': ", "m.pt2");
    CHECK_STR("context goes before", err.msg, "cannot load 'm.pt2': 5 is over the limit of 4");
    CHECK("NULL is allowed", plim_fail(NULL, PLIM_EIO, 0, "x") == PLIM_EIO);
    plim_err_prefix(NULL, "x");
    CHECK("our own memory", plim_oom(NULL) == PLIM_ENOMEM);

    char longest[400];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    plim_err cut = PLIM_ERR_INIT;
    plim_fail(&cut, PLIM_EIO, 0, "%s", longest);
    CHECK("a long message is cut", strlen(cut.msg) == sizeof cut.msg - 1);
    plim_err_prefix(&cut, "%s", longest);
    CHECK("a long prefix too", strlen(cut.msg) == sizeof cut.msg - 1);
}

/* Names in messages are of files, and are cut wherever 80 bytes end. */
static void test_hostile_errors(void **state)
{
    (void)state;
    static const struct {
        const char *why, *name, *want;
    } rows[] = {
        {"one line", "a\nplimsoll: all is well\r\n", "'a plimsoll: all is well  '"},
        {"no colours", "\x1b[31mred\x7f", "'?[31mred?'"},
        {"nor by one character",
         "\xc2\x9b"
         "31m",
         "'?31m'"},
        {"nor by one byte",
         "\x9b"
         "31m",
         "'?31m'"},
        {"other ends of lines",
         "a\xe2\x80\xa8"
         "b",
         "'a?b'"},
        {"left to right",
         "a\xe2\x80\xae"
         "b",
         "'a?b'"},
        {"other languages stay", "\xe5\xb1\x82.\xc3\xa9", "'\xe5\xb1\x82.\xc3\xa9'"},
        {"half a character", "\xe5\xb1", "'?\?'"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        plim_str name = plim_str_of(rows[i].name);
        plim_fail(&err, PLIM_EFORMAT, 0, "'" PLIM_STR_FMT "'", PLIM_STR_CUT(name));
        CHECK_STR(rows[i].why, err.msg, rows[i].want);
        plim_err_prefix(&err, "%s: ", rows[i].name);
        plim_str all = plim_str_of(err.msg);
        CHECK(rows[i].why, !memchr(all.p, '\n', all.n) && !memchr(all.p, '\x1b', all.n) &&
                               plim_str_ends(all, plim_str_of(rows[i].want)));
    }
    char longest[300] = "";
    for (size_t i = 0; i + 4 < sizeof longest; i += 2)
        memcpy(longest + i, "\xc3\xa9", 2);
    plim_err cut = PLIM_ERR_INIT;
    plim_fail(&cut, PLIM_EIO, 0, "%s", longest);
    CHECK("cut within a character",
          strlen(cut.msg) == sizeof cut.msg - 1 && cut.msg[sizeof cut.msg - 2] == '?');
}

static void test_status(void **state)
{
    (void)state;
#define X(id, value, text)                                                                    \
    CHECK(#id, PLIM_##id == (value));                                                         \
    CHECK_STR(#id, plim_status_name(PLIM_##id), text);
    PLIM_STATUS_MAP(X)
#undef X
    CHECK("a stranger has a name too", plim_status_name((plim_status)-99) != NULL);
}

static void test_sizes(void **state)
{
    (void)state;
    uint64_t n = 77;
    CHECK("product", plim_mul(3, 4, &n) && n == 12);
    CHECK("nothing times much", plim_mul(0, UINT64_MAX, &n) && n == 0);
    CHECK("much times nothing", plim_mul(UINT64_MAX, 0, &n) && n == 0);
    CHECK("the last that fits", plim_mul(UINT64_MAX, 1, &n) && n == UINT64_MAX);
    n = 77;
    CHECK("2^64 does not fit", !plim_mul(1ull << 32, 1ull << 32, &n) && n == 77);
    CHECK("sum", plim_add(UINT64_MAX - 1, 1, &n) && n == UINT64_MAX);
    n = 77;
    CHECK("one too many", !plim_add(UINT64_MAX, 1, &n) && n == 77);
}

static void test_strings(void **state)
{
    (void)state;
    CHECK("NULL is empty", plim_str_of(NULL).n == 0);
    CHECK("equal", plim_str_eq(PLIM_STR("ab"), plim_str_of("ab")));
    CHECK("empty ones are equal", plim_str_eq(PLIM_STR(""), (plim_str){NULL, 0}));
    CHECK("length counts", !plim_str_is(PLIM_STR("ab"), "abc"));
    CHECK("prefix", plim_str_starts(PLIM_STR("abc"), "ab"));
    CHECK("longer than the text", !plim_str_starts(PLIM_STR("a"), "ab"));
}

static void test_arena(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    uint8_t *first = plim_arena_new(&a, 3, 5);
    uint8_t *second = plim_arena_new(&a, 1, 1);
    CHECK("memory", first && second);
    CHECK("aligned", (uintptr_t)first % 16 == 0 && (uintptr_t)second % 16 == 0);
    for (int i = 0; i < 15; i++)
        CHECK("zeroed", first[i] == 0);
    CHECK("no item is not a reason for NULL", plim_arena_new(&a, 0, 8) != NULL);
    CHECK("n * size wraps", plim_arena_new(&a, UINT64_MAX / 2, 4) == NULL);
    plim_limit_memory(64 << 20);
    CHECK("over the process's limit", plim_arena_new(&a, 5, 16 << 20) == NULL);
    plim_limit_memory(0);
    uint8_t *big = plim_arena_new(&a, 1, 5u << 20);
    CHECK("larger than a chunk", big != NULL);
    memset(big, 0xaa, 5u << 20);
    CHECK("the limit is counted", a.used >= 5u << 20);

    plim_str s = plim_arena_str(&a, (plim_str){"hello!", 5});
    CHECK("a copy, with a NUL", plim_str_is(s, "hello") && s.p[5] == '\0');
    CHECK("an empty copy is not NULL", plim_arena_str(&a, (plim_str){NULL, 0}).p != NULL);
    CHECK("formatted", plim_str_is(plim_arena_printf(&a, "%d.%s", 3, "weight"), "3.weight"));
    CHECK("appended",
          plim_str_is(plim_arena_append(&a, PLIM_STR("a"), ", ", "%d", 3), "a, 3"));
    CHECK("to nothing", plim_str_is(plim_arena_append(&a, PLIM_STR(""), ", ", "%d", 3), "3"));
    plim_arena_free(&a);
    plim_arena_free(&a);

    a = (plim_arena){.limit = 100};
    CHECK("below the limit", plim_arena_new(&a, 1, 96) != NULL);
    CHECK("above it", plim_arena_new(&a, 1, 16) == NULL);
    CHECK("strings too", plim_arena_str(&a, PLIM_STR("x")).p == NULL);
    plim_arena_free(&a);

    a = (plim_arena){.fail_after = 3};
    CHECK("one", plim_arena_new(&a, 1, 1) != NULL);
    CHECK("two", plim_arena_new(&a, 1, 1) != NULL);
    CHECK("the third fails", plim_arena_new(&a, 1, 1) == NULL);
    CHECK("and all after it", plim_arena_new(&a, 1, 1) == NULL);
    plim_arena_free(&a);
}

/* An arena that is used again and again holds what one use needs, whatever the order of its requests. */
static void test_arena_again(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    uint64_t held = plim_memory_held(), most = 0, seed = 1;
    for (int use = 0; use < 200; use++) {
        uint64_t used = 0, sum = 12u << 20;
        plim_arena_reset(&a);
        while (used < sum) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t bytes = (seed >> 33) % ((seed >> 60) ? 40000 : 5u << 20) + 1;
            uint8_t *p = plim_arena_new(&a, bytes, 1);
            assert_non_null(p);
            assert_true(!p[0] && !p[bytes - 1]); /* zeroed */
            memset(p, 0xaa, bytes);
            used += bytes;
        }
        most = PLIM_MAX(most, plim_memory_held() - held);
    }
    CHECK("what one use takes, twice at most", most < 2 * (20u << 20));
    plim_arena_free(&a);
    CHECK("all is given back", plim_memory_held() == held);
}

/* What work within a budget takes ends in its limit, and one failure makes all of it fail. */
static void test_budget(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT, b = PLIM_ARENA_INIT;
    plim_budget outer, inner;
    plim_err err = PLIM_ERR_INIT;
    CHECK("before", plim_arena_new(&a, 1, 100 << 20) != NULL);
    plim_budget_begin(&outer, PLIM_BUDGET_FREE);
    plim_budget_begin(&inner, 1 << 20); /* allows 128 MiB and 64 times that */
    CHECK("what was taken before does not count", plim_arena_new(&b, 1, 150 << 20) != NULL);
    CHECK("in proportion to the input", plim_arena_new(&b, 1, 50 << 20) == NULL);
    CHECK("without a report", plim_budget_end(&inner, PLIM_OK, NULL) == PLIM_ENOMEM);
    CHECK("its own limit is not the outer one's",
          plim_budget_end(&outer, PLIM_OK, &err) == PLIM_OK);
    plim_arena_free(&b);

    plim_budget_begin(&outer, PLIM_BUDGET_FREE);
    plim_budget_begin(&inner, 0);
    b.fail_after = b.calls + 2;
    CHECK("one", plim_arena_new(&b, 1, 1) && !plim_arena_new(&b, 1, 1));
    plim_fail(&err, PLIM_EFORMAT, 7, "misled");
    CHECK("another error", plim_budget_end(&inner, PLIM_EFORMAT, &err) == PLIM_ENOMEM);
    CHECK("replaced", err.code == PLIM_ENOMEM && strstr(err.msg, "out of memory"));
    CHECK("the outer has failed, too", plim_budget_end(&outer, PLIM_OK, &err) == PLIM_ENOMEM);
    CHECK("outside, nothing is recorded", !plim_arena_new(&b, 1, 1));
    plim_arena_free(&b);

    b.fail_after = 0;
    err = (plim_err)PLIM_ERR_INIT;
    plim_budget one, free_one, two;
    plim_budget_begin(&one, 1 << 20); /* 192 MiB */
    CHECK("for the first", plim_arena_new(&b, 1, 100 << 20) != NULL);
    CHECK("is done", plim_budget_end(&one, PLIM_OK, &err) == PLIM_OK);
    plim_budget_begin(&free_one, PLIM_BUDGET_FREE);
    CHECK("for the other", plim_arena_new(&b, 1, 3 << 20) != NULL);
    CHECK("is done, too", plim_budget_end(&free_one, PLIM_OK, &err) == PLIM_OK);
    /* 128 MiB twice and 64 times as much as the file has and the other holds */
    plim_budget_join(&two, &one, &free_one);
    CHECK("what both hold counts", two.held >= 103 << 20 && two.limit > 384u << 20);
    CHECK("as much as is left", plim_arena_new(&b, 1, 280 << 20) != NULL);
    CHECK("not more", plim_arena_new(&b, 1, 300 << 20) == NULL);
    CHECK("so it fails", plim_budget_end(&two, PLIM_OK, &err) == PLIM_ENOMEM);
    CHECK("and says why", strstr(err.msg, "comparing these two takes more than"));
    plim_arena_free(&b);

    plim_limit_memory(1u << 30);
    plim_budget_begin(&inner, 0);
    b.fail_after = 0;
    CHECK("a limit that was given is the only one", plim_arena_new(&b, 1, 300 << 20) != NULL);
    CHECK("and nothing failed", plim_budget_end(&inner, PLIM_OK, &err) == PLIM_OK);
    plim_limit_memory(0);
    plim_arena_free(&a);
    plim_arena_free(&b);
}

static void test_push(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    struct {
        uint32_t *items;
        uint32_t n, cap;
    } v = {0};
    for (uint32_t i = 0; i < 10000; i++) {
        CHECK("room", PLIM_PUSH_ROOM(&a, v.items, v.n, v.cap));
        v.items[v.n++] = i;
    }
    for (uint32_t i = 0; i < 10000; i++)
        CHECK("kept in order", v.items[i] == i);
    plim_arena_free(&a);

    a = (plim_arena){.limit = 256};
    v.items = NULL;
    v.n = v.cap = 0;
    while (v.n < 1000 && PLIM_PUSH_ROOM(&a, v.items, v.n, v.cap))
        v.items[v.n++] = 1;
    CHECK("stops at the limit", v.n > 0 && v.n < 1000);
    plim_arena_free(&a);
}

/* An array that grows far has a place of its own, and its old one is given back. */
static void test_grow(void **state)
{
    (void)state;
    enum { N = 3000000 };
    plim_arena a = PLIM_ARENA_INIT, other = PLIM_ARENA_INIT;
    uint64_t before = plim_memory_held(), *items = NULL, *more = NULL;
    uint32_t n = 0, cap = 0, n_more = 0, cap_more = 0;
    for (uint64_t i = 0; i < N; i++) {
        CHECK("room", PLIM_GROW_ROOM(&a, items, n, cap));
        items[n++] = i;
        if (i % 4)
            continue;
        CHECK("room next to it", PLIM_GROW_ROOM(&a, more, n_more, cap_more));
        more[n_more++] = ~i;
    }
    for (uint64_t i = 0; i < N; i++)
        CHECK("kept in order", items[i] == i && more[i / 4] == ~(i / 4 * 4));
    CHECK("zeroed", items[cap - 1] == 0);
    uint64_t held = plim_memory_held() - before,
             all = (cap + (uint64_t)cap_more) * sizeof *items;
    CHECK("no old copies", held >= all && held < all + (9 << 20));
    CHECK("counted", a.used >= all && a.used <= held);
    plim_arena_adopt(&other, &a);
    CHECK("goes with its arena", items[N - 1] == N - 1);
    plim_arena_reset(&other);
    CHECK("and is given back", plim_memory_held() - before < 9 << 20);
    plim_arena_free(&other);
    CHECK("all of it", plim_memory_held() == before);

    a = (plim_arena){.limit = 20 << 20};
    items = NULL;
    n = cap = 0;
    while (n < N && PLIM_GROW_ROOM(&a, items, n, cap))
        items[n++] = 1;
    CHECK("stops at the limit", n == 2097152 && items[n - 1] == 1);
    plim_arena_free(&a);
}

static int compare_numbers(const void *x, const void *y)
{
    const uint64_t *p = x, *q = y;
    return *p < *q ? -1 : *p > *q;
}

static void test_sort(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    uint64_t *list = test_malloc(N * sizeof *list);
    for (uint64_t i = 0; i < N; i++)
        list[i] = i;
    plim_limit_memory(plim_memory_held() + (1 << 20));
    CHECK("in order", plim_sort_items(list, N, sizeof *list, compare_numbers));
    list[N - 1] = 7;
    CHECK("needs a copy", !plim_sort_items(list, N, sizeof *list, compare_numbers));
    plim_limit_memory(0);
    CHECK("sorted", plim_sort_items(list, N, sizeof *list, compare_numbers));
    CHECK("so", list[7] == 7 && list[8] == 7 && list[N - 1] == N - 2);
    CHECK("nothing", plim_sort_items(NULL, 0, 8, compare_numbers));
    test_free(list);
}

static void test_map(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_map m = {0};
    uint32_t got = 77;
    CHECK("an empty map holds nothing", !plim_map_get(&m, PLIM_STR("x"), &got) && got == 77);
    for (uint32_t i = 0; i < 5000; i++)
        CHECK("put", plim_map_put(&a, &m, plim_arena_printf(&a, "conv2d_%u", i), i));
    for (uint32_t i = 0; i < 5000; i++) {
        plim_str key = plim_arena_printf(&a, "conv2d_%u", i);
        CHECK("found by its letters", plim_map_get(&m, key, &got) && got == i);
    }
    CHECK("not there", !plim_map_get(&m, PLIM_STR("conv2d_5000"), &got));
    CHECK("a key put again", plim_map_put(&a, &m, PLIM_STR("conv2d_7"), 70) && m.n == 5000);
    CHECK("has the new value", plim_map_get(&m, PLIM_STR("conv2d_7"), &got) && got == 70);
    CHECK("the empty key is a key", plim_map_put(&a, &m, PLIM_STR(""), 9) &&
                                        plim_map_get(&m, PLIM_STR(""), &got) && got == 9);
    plim_arena_free(&a);

    a = (plim_arena){.fail_after = 1};
    m = (plim_map){0};
    CHECK("no memory", !plim_map_put(&a, &m, PLIM_STR("x"), 1));
    plim_arena_free(&a);
}

static void test_files(void **state)
{
    (void)state;
    plim_err err = PLIM_ERR_INIT;
    plim_bytes b = {0};
    CHECK("no such file", plim_file_read(&b, "/no/such/file", &err) == PLIM_EIO);
    CHECK_STR("says which and why", err.msg,
              "cannot open '/no/such/file': No such file or directory");
    CHECK("a folder is not a file", plim_file_read(&b, "/", NULL) == PLIM_EIO);
    plim_file_close(&b);

    char path[] = "plimsoll-test-XXXXXX";
    int fd = mkstemp(path);
    CHECK("a file of our own", fd >= 0);
    CHECK("an empty file is not an error",
          plim_file_read(&b, path, NULL) == PLIM_OK && b.n == 0);
    plim_file_close(&b);
    CHECK("written", write(fd, "hello", 5) == 5);
    CHECK("mapped", plim_file_read(&b, path, NULL) == PLIM_OK && b.n == 5);
    CHECK("its bytes", memcmp(b.p, "hello", 5) == 0);
    plim_file_close(&b);
    CHECK("given back", b.p == NULL && b.n == 0);
    close(fd);
    remove(path);

    /* needs more than one read, and leaves more than a page at the end to unmap */
    static char text[60000];
    int ends[2];
    memset(text, 'p', sizeof text);
    CHECK("a pipe", pipe(ends) == 0);
    CHECK("filled", write(ends[1], text, sizeof text) == sizeof text);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    CHECK("read to its end", plim_file_read(&b, path, NULL) == PLIM_OK && b.n == sizeof text);
    CHECK("its bytes", memcmp(b.p, text, sizeof text) == 0);
    plim_file_close(&b);
    CHECK("at its end it is empty", plim_file_read(&b, path, NULL) == PLIM_OK && b.n == 0);
    close(ends[0]);
    err = (plim_err)PLIM_ERR_INIT;
    CHECK("no end", plim_file_read(&b, "/dev/zero", &err) == PLIM_EIO && b.p == NULL);
    CHECK_STR("says the limit", err.msg,
              "'/dev/zero' is not a regular file and is over the limit of 268435456 bytes");
}

/* Cut short while it is read, a file is an error; a map of it would be a signal. */
static void test_shrinking(void **state)
{
    (void)state;
    enum { SIZE = 8 << 20, LEFT = 1 << 20 };
    plim_bytes b;
    plim_err err = PLIM_ERR_INIT;
    char path[] = "/tmp/plimsoll-shrink-XXXXXX";
    int fd = mkstemp(path);
    CHECK("a file of our own", fd >= 0 && ftruncate(fd, SIZE) == 0);
    CHECK("opened", plim_file_open(&b, path, true, &err) == PLIM_OK && b.n == SIZE && b.file);
    CHECK("cut short", ftruncate(fd, LEFT) == 0);
    CHECK("what is left can be read", plim_bytes_need(b, 0, LEFT, &err) == PLIM_OK);
    char copy[16] = "x";
    CHECK("and copied", plim_bytes_copy(b, LEFT - 16, 16, copy, &err) == PLIM_OK && !copy[0]);
    plim_err gone = PLIM_ERR_INIT;
    CHECK("the rest is not", plim_bytes_copy(b, LEFT - 8, 16, copy, &gone) == PLIM_EIO);
    CHECK("which says so", strstr(gone.msg, "there is nothing at byte 1048576"));
    CHECK("zeros", b.p[LEFT - 1] == 0);
    CHECK("the rest cannot", plim_bytes_need(b, SIZE - 1, 1, &err) == PLIM_EIO);
    CHECK("says what happened", strstr(err.msg, "had 8388608 bytes and was truncated"));
    plim_file_close(&b);
    close(fd);
    remove(path);

    CHECK("a place for a pipe", mkdir("/tmp/plimsoll-fifo", 0700) == 0);
    CHECK("a pipe", mkfifo("/tmp/plimsoll-fifo/config.json", 0600) == 0);
    err = (plim_err)PLIM_ERR_INIT;
    CHECK("is not waited for",
          plim_file_open(&b, "/tmp/plimsoll-fifo/config.json", true, &err) == PLIM_EIO);
    CHECK("and named", strstr(err.msg, "is not a regular file"));
    remove("/tmp/plimsoll-fifo/config.json");
    remove("/tmp/plimsoll-fifo");
}

static void test_twice(void **state)
{
    (void)state;
    static const struct {
        const char *why, *list[4], *twice;
    } T[] = {
        {"nothing", {NULL}, NULL},
        {"one", {"a"}, NULL},
        {"all different", {"b", "a", "ab", ""}, NULL},
        {"far apart", {"b", "a", "c", "b"}, "b"},
        {"the first of two", {"z", "y", "z", "y"}, "y"},
        {"empty ones", {"", "a", ""}, ""},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_str list[4];
        uint64_t n = 0;
        for (; n < 4 && T[i].list[n]; n++)
            list[n] = plim_str_of(T[i].list[n]);
        plim_str got = plim_str_twice(list, n);
        CHECK(T[i].why, !got.p == !T[i].twice);
        CHECK(T[i].why, !got.p || plim_str_is(got, T[i].twice));
    }
    assert_true(plim_str_compare(PLIM_STR("a"), PLIM_STR("ab")) < 0);
    assert_true(plim_str_compare(PLIM_STR("b"), PLIM_STR("ab")) > 0);
    assert_true(plim_str_compare(PLIM_STR("\xff"), PLIM_STR("a")) > 0); /* unsigned */
    assert_int_equal(plim_str_compare(PLIM_STR("ab"), PLIM_STR("ab")), 0);
}

static void count_up(void *ud)
{
    for (int i = 0; i < 1000; i++)
        ++*(int *)ud;
}

/* With a thread or without, the work is done exactly once, before the wait returns. */
static void test_task(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        plim_task t[3];
        int n[3] = {0};
        for (int i = 0; i < 3; i++)
            plim_task_start(&t[i], count_up, &n[i], apart);
        for (int i = 0; i < 3; i++) {
            plim_task_wait(&t[i]);
            plim_task_wait(&t[i]); /* harmless */
            assert_int_equal(n[i], 1000);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task),        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_errors),      cmocka_unit_test(test_hostile_errors),
        cmocka_unit_test(test_status),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_strings),     cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_again), cmocka_unit_test(test_budget),
        cmocka_unit_test(test_shrinking),   cmocka_unit_test(test_grow),
        cmocka_unit_test(test_sort),        cmocka_unit_test(test_push),
        cmocka_unit_test(test_map),         cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
