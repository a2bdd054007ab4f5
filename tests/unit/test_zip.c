/* test_zip.c -- the zip reader against archives that are built here byte by byte, and against
 * broken ones. */
#include "base/zip.h"

#include <stdio.h>
#include <zlib.h>

#include "unit.h"

/* ---- a small writer ---------------------------------------------------------- */

typedef struct member {
    const char *name, *text;
    int method;
    bool wide;     /* sizes and offset in a ZIP64 extra field */
    bool streamed; /* zero sizes in the local header, as torch writes them */
} member;

typedef struct zipped {
    uint8_t p[1 << 14];
    size_t n, directory, end; /* of the directory; of the 22-byte record */
    size_t entry[8], local[8];
} zipped;

static void put(zipped *z, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        z->p[z->n++] = (uint8_t)(v >> 8 * i);
}

static void put_bytes(zipped *z, const void *p, size_t n)
{
    memcpy(z->p + z->n, p, n);
    z->n += n;
}

static size_t deflated(uint8_t *out, size_t room, const char *text)
{
    z_stream s = {0};
    assert_int_equal(deflateInit2(&s, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    s.next_in = (Bytef *)(uintptr_t)text;
    s.avail_in = (uInt)strlen(text);
    s.next_out = out;
    s.avail_out = (uInt)room;
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    size_t n = room - s.avail_out;
    deflateEnd(&s);
    return n;
}

static void zip(zipped *z, const member *m, size_t count, bool zip64)
{
    uint8_t packed[4096];
    size_t packed_n[8];
    *z = (zipped){.n = 0};
    for (size_t i = 0; i < count; i++) {
        size_t text_n = strlen(m[i].text), name_n = strlen(m[i].name);
        const void *data = m[i].method ? (const void *)packed : m[i].text;
        packed_n[i] = m[i].method ? deflated(packed, sizeof packed, m[i].text) : text_n;
        z->local[i] = z->n;
        put(z, 0x04034b50, 4);
        put(z, 45, 2);
        put(z, m[i].streamed ? 0x0808 : 0, 2);
        put(z, (uint64_t)m[i].method, 2);
        put(z, 0, 4);
        put(z, m[i].streamed ? 0 : crc32(0, (const Bytef *)m[i].text, (uInt)text_n), 4);
        put(z, m[i].streamed ? 0 : packed_n[i], 4);
        put(z, m[i].streamed ? 0 : text_n, 4);
        put(z, name_n, 2);
        put(z, 6, 2);
        put_bytes(z, m[i].name, name_n);
        put(z, 0x4246, 2); /* "FB", torch's padding */
        put(z, 2, 2);
        put(z, 0x5a5a, 2);
        put_bytes(z, data, packed_n[i]);
    }
    z->directory = z->n;
    for (size_t i = 0; i < count; i++) {
        size_t text_n = strlen(m[i].text), name_n = strlen(m[i].name);
        z->entry[i] = z->n;
        put(z, 0x02014b50, 4);
        put(z, 45, 2);
        put(z, 45, 2);
        put(z, m[i].streamed ? 0x0808 : 0, 2);
        put(z, (uint64_t)m[i].method, 2);
        put(z, 0, 4);
        put(z, crc32(0, (const Bytef *)m[i].text, (uInt)text_n), 4);
        put(z, m[i].wide ? 0xffffffff : packed_n[i], 4);
        put(z, m[i].wide ? 0xffffffff : text_n, 4);
        put(z, name_n, 2);
        put(z, m[i].wide ? 28 + 5 : 0, 2);
        put(z, 3, 2);
        put(z, 0, 2);
        put(z, 0, 6);
        put(z, m[i].wide ? 0xffffffff : z->local[i], 4);
        put_bytes(z, m[i].name, name_n);
        if (m[i].wide) {
            put(z, 0x9999, 2); /* an unknown field before it */
            put(z, 1, 2);
            put(z, 7, 1);
            put(z, 1, 2);
            put(z, 24, 2);
            put(z, text_n, 8);
            put(z, packed_n[i], 8);
            put(z, z->local[i], 8);
        }
        put_bytes(z, "abc", 3);
    }
    size_t size = z->n - z->directory, end64 = z->n;
    if (zip64) {
        put(z, 0x06064b50, 4);
        put(z, 44, 8);
        put(z, 45, 2);
        put(z, 45, 2);
        put(z, 0, 8);
        put(z, count, 8);
        put(z, count, 8);
        put(z, size, 8);
        put(z, z->directory, 8);
        put(z, 0x07064b50, 4);
        put(z, 0, 4);
        put(z, end64, 8);
        put(z, 1, 4);
    }
    z->end = z->n;
    put(z, 0x06054b50, 4);
    put(z, 0, 4);
    put(z, zip64 ? 0xffff : count, 2);
    put(z, zip64 ? 0xffff : count, 2);
    put(z, zip64 ? 0xffffffff : size, 4);
    put(z, zip64 ? 0xffffffff : z->directory, 4);
    put(z, 4, 2);
    put_bytes(z, "PK\5\6", 4); /* a comment that looks like the record */
}

#define LONG_TEXT                                                                             \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const member some[] = {
    {"root/version", "3\n", 0, false, true},
    {"root/models/model.json", "{\"a\":1}", 0, false, true},
    {"root/deep/er/data.pkl", "deep", 0, false, false},
    {"root/data.pkl", LONG_TEXT, 8, false, false},
    {"root/wide", "far away", 0, true, true},
    {"root/wide_deflated", LONG_TEXT LONG_TEXT, 8, true, false},
    {"root/empty", "", 0, false, true},
    {"root/nothing_deflated", "", 8, false, true},
};

static plim_bytes bytes_of(const zipped *z) { return (plim_bytes){.p = z->p, .n = z->n}; }

/* ---- tests ---------------------------------------------------------------------- */

static void test_members(void **state)
{
    (void)state;
    static zipped made;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_zip z;
        plim_zip_entry e;
        plim_bytes got;
        zip(&made, some, PLIM_COUNT(some), zip64);
        assert_true(plim_zip_is(bytes_of(&made)));
        assert_int_equal(plim_zip_open(&z, bytes_of(&made), &err), PLIM_OK);
        size_t i = 0;
        for (uint64_t cursor = 0; plim_zip_next(&z, &cursor, &e); i++) {
            CHECK(some[i].name, plim_str_is(e.name, some[i].name));
            CHECK(some[i].name, e.size == strlen(some[i].text));
            CHECK(some[i].name, plim_zip_read(&z, &e, &a, 1000, &got, &err) == PLIM_OK);
            CHECK(some[i].name,
                  got.n == e.size && !memcmp(got.p, some[i].text, (size_t)got.n));
            bool slice = got.p >= made.p && got.p < made.p + made.n;
            CHECK(some[i].name, slice == (some[i].method == 0));
        }
        assert_int_equal(i, PLIM_COUNT(some));
        plim_arena_free(&a);
    }
}

static void test_find(void **state)
{
    (void)state;
    static zipped made;
    plim_zip z;
    plim_zip_entry e;
    zip(&made, some, PLIM_COUNT(some), false);
    assert_int_equal(plim_zip_open(&z, bytes_of(&made), NULL), PLIM_OK);
    assert_true(plim_zip_find(&z, "data.pkl", &e));
    CHECK("the least deep", plim_str_is(e.name, "root/data.pkl"));
    assert_true(plim_zip_find(&z, "er/data.pkl", &e));
    CHECK("with a folder", plim_str_is(e.name, "root/deep/er/data.pkl"));
    assert_true(plim_zip_find(&z, "root/version", &e));
    CHECK("part of a name is not a name", !plim_zip_find(&z, "ata.pkl", &e));
    CHECK("nor is a longer one", !plim_zip_find(&z, "x/root/version", &e));
}

/* One byte changed: the error from opening, or from reading the member. */
static const struct {
    const char *why;
    int from; /* 0: the file, 1: entry, 2: local header of member 1, 3: the end record */
    size_t at;
    uint8_t to;
    plim_status code;
    const char *text;
} broken[] = {
    {"encrypted", 1, 8, 1, PLIM_EUNSUPPORTED, "is encrypted"},
    {"masked headers", 1, 9, 0x28, PLIM_EUNSUPPORTED, "is encrypted"},
    {"bzip2", 1, 10, 12, PLIM_EUNSUPPORTED, "method 12: only 0 and 8"},
    {"too long for its directory", 1, 28, 255, PLIM_EFORMAT, "zip directory"},
    {"no entry mark", 1, 0, 'Q', PLIM_EFORMAT, "zip directory has no entry at byte"},
    {"another name in the local header", 2, 31, 'X', PLIM_EFORMAT, "a different name"},
    {"another method in the local header", 2, 8, 8, PLIM_EFORMAT,
     "a different name or method"},
    {"no local header", 2, 0, 'Q', PLIM_EFORMAT, "has no header at byte"},
    {"offset outside", 1, 44, 1, PLIM_EFORMAT, "has no header at byte"},
    {"packed beyond the directory", 1, 22, 1, PLIM_EFORMAT, "is truncated"},
    {"size is not packed size", 1, 24, 3, PLIM_EFORMAT, "cannot have 3 bytes from 7"},
    {"a size beyond the limit", 1, 26, 1, PLIM_EUNSUPPORTED, "more than 1000"},
    {"checksum", 1, 16, 0, PLIM_EFORMAT, "is damaged: checksum"},
    {"two disks", 3, 4, 1, PLIM_EUNSUPPORTED, "spans several disks"},
    {"more entries than fit", 3, 11, 1, PLIM_EUNSUPPORTED, "spans several disks"},
    {"directory past the end", 3, 14, 1, PLIM_EFORMAT, "runs past byte"},
    {"directory shorter than its entries", 3, 12, 200, PLIM_EFORMAT, "zip directory"},
    {"a comment of another length", 3, 20, 9, PLIM_EFORMAT, "has no end record"},
};

static void test_broken(void **state)
{
    (void)state;
    static zipped made;
    for (size_t i = 0; i < PLIM_COUNT(broken); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_zip z;
        plim_zip_entry e;
        plim_bytes got;
        zip(&made, some, 3, false);
        size_t from[] = {0, made.entry[1], made.local[1], made.end};
        made.p[from[broken[i].from] + broken[i].at] = broken[i].to;
        plim_status st = plim_zip_open(&z, bytes_of(&made), &err);
        if (!st) {
            uint64_t cursor = 0;
            assert_true(plim_zip_next(&z, &cursor, &e) && plim_zip_next(&z, &cursor, &e));
            st = plim_zip_read(&z, &e, &a, 1000, &got, &err);
        }
        CHECK(broken[i].why, st == broken[i].code && err.code == st);
        if (!strstr(err.msg, broken[i].text))
            fail_msg("%s: got \"%s\"", broken[i].why, err.msg);
        plim_arena_free(&a);
    }
}

static void test_end_records(void **state)
{
    (void)state;
    static zipped made;
    plim_zip z;
    plim_err err = PLIM_ERR_INIT;
    zip(&made, some, 2, true);
    made.p[made.end - 20 + 8] ^= 1; /* the locator's offset */
    assert_int_equal(plim_zip_open(&z, bytes_of(&made), &err), PLIM_EFORMAT);
    assert_non_null(strstr(err.msg, "no 64-bit end record"));

    zip(&made, some, 2, true);
    made.p[made.end - 20 + 15] = 0xff; /* near 2^64: no sum may overflow */
    assert_int_equal(plim_zip_open(&z, bytes_of(&made), NULL), PLIM_EFORMAT);

    err = (plim_err)PLIM_ERR_INIT;
    zip(&made, some, 2, true);
    made.p[made.end + 10] = 5; /* the narrow record names its own count */
    made.p[made.end + 11] = 0;
    made.p[made.end + 8] = 5;
    made.p[made.end + 9] = 0;
    assert_int_equal(plim_zip_open(&z, bytes_of(&made), &err), PLIM_EFORMAT);
    assert_non_null(strstr(err.msg, "two end records that differ"));

    zip(&made, some, 0, false);
    assert_int_equal(plim_zip_open(&z, bytes_of(&made), NULL), PLIM_OK);
    uint64_t cursor = 0;
    plim_zip_entry e;
    assert_false(plim_zip_next(&z, &cursor, &e));
    assert_int_equal(plim_zip_open(&z, (plim_bytes){.p = NULL}, NULL), PLIM_EFORMAT);
    assert_false(plim_zip_is((plim_bytes){.p = NULL}));
}

/* A member that inflates to more than it states, or to less, or not at all. */
static void test_inflate(void **state)
{
    (void)state;
    static zipped made;
    static const struct {
        const char *why;
        size_t at;
        uint8_t to;
        plim_status code;
    } T[] = {
        {"a size too small", 24, 10, PLIM_EFORMAT},
        {"a size too large", 24, 200, PLIM_EFORMAT},
        {"a size that no deflate reaches", 27, 0x7f, PLIM_EFORMAT},
        {"packed bytes left over", 20, 0xff, PLIM_EFORMAT},
        {"packed bytes missing", 20, 1, PLIM_EFORMAT},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = {.limit = 1 << 20};
        plim_err err = PLIM_ERR_INIT;
        plim_zip z;
        plim_zip_entry e;
        plim_bytes got;
        /* member 0 is followed by enough bytes to read too far */
        const member two[] = {some[3],
                              {"b", LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT, 0, 0, 0}};
        zip(&made, two, 2, false);
        made.p[made.entry[0] + T[i].at] = T[i].to;
        assert_int_equal(plim_zip_open(&z, bytes_of(&made), &err), PLIM_OK);
        assert_true(plim_zip_find(&z, "data.pkl", &e));
        plim_status st = plim_zip_read(&z, &e, &a, UINT64_MAX, &got, &err);
        CHECK(T[i].why, st == T[i].code);
        plim_arena_free(&a);
    }
}

/* The n-th allocation fails, for every n. */
static void test_no_memory(void **state)
{
    (void)state;
    static zipped made;
    zip(&made, some, PLIM_COUNT(some), true);
    plim_status st = PLIM_ENOMEM;
    for (uint64_t n = 1; st; n++) {
        plim_arena a = {.fail_after = n};
        plim_err err = PLIM_ERR_INIT;
        plim_zip z;
        plim_zip_entry e;
        plim_bytes got;
        assert_int_equal(plim_zip_open(&z, bytes_of(&made), &err), PLIM_OK);
        assert_true(plim_zip_find(&z, "wide_deflated", &e));
        st = plim_zip_read(&z, &e, &a, 1000, &got, &err);
        assert_true(st == PLIM_OK || (st == PLIM_ENOMEM && err.code == st));
        assert_true(n > 1 || st);
        plim_arena_free(&a);
    }
}

/* Cut off after each byte, and each byte changed: at worst an error. */
static void test_hostile(void **state)
{
    (void)state;
    static zipped made;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        zip(&made, some, PLIM_COUNT(some), zip64);
        for (size_t i = 0; i < 2 * made.n; i++) {
            plim_arena a = {.limit = 1 << 20};
            plim_zip z;
            plim_zip_entry e;
            plim_bytes got, file = bytes_of(&made);
            uint8_t was = made.p[i / 2];
            plim_err err = PLIM_ERR_INIT;
            if (i % 2)
                file.n = i / 2;
            else
                made.p[i / 2] = (uint8_t)~was;
            plim_status st = plim_zip_open(&z, file, &err);
            for (uint64_t cursor = 0; !st && plim_zip_next(&z, &cursor, &e);)
                (void)plim_zip_read(&z, &e, &a, 1000, &got, &err);
            assert_true(!st || err.msg[0]);
            assert_true(st || i % 2 == 0); /* no prefix of an archive is an archive */
            made.p[i / 2] = was;
            plim_arena_free(&a);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members), cmocka_unit_test(test_find),
        cmocka_unit_test(test_broken),  cmocka_unit_test(test_end_records),
        cmocka_unit_test(test_inflate), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
