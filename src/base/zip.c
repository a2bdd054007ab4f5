/* zip.c -- see zip.h. */
#include "base/zip.h"

#include <zlib.h>

enum {
    EOCD_SIZE = 22,
    LOCATOR_SIZE = 20,
    EOCD64_SIZE = 56,
    CENTRAL_SIZE = 46,
    LOCAL_SIZE = 30,
    COMMENT_MAX = 0xffff,
    FLAG_ENCRYPTED = 1 << 0,
    FLAG_MASKED = 1 << 13, /* local headers are blanked: strong encryption */
};

static uint32_t read_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t read_u32(const uint8_t *p) { return read_u16(p) | read_u16(p + 2) << 16; }
static uint64_t read_u64(const uint8_t *p)
{
    return read_u32(p) | (uint64_t)read_u32(p + 4) << 32;
}

/* Whether "PK" and these two bytes are at an offset, which may lie outside the file. */
static bool has_mark(plim_bytes f, uint64_t at, uint64_t need, uint8_t a, uint8_t b)
{
    if (at > f.n || need > f.n - at)
        return false;
    const uint8_t *p = f.p + at;
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

/* With a member, or with its end. */
bool plim_zip_is(plim_bytes file)
{
    return has_mark(file, 0, 4, 3, 4) || has_mark(file, 0, 4, 5, 6);
}

/* ---- the end of the archive ------------------------------------------------- */

typedef struct zip_end {
    uint64_t entries, size, offset; /* of the central directory */
    uint64_t at;                    /* where the end records begin */
} zip_end;

/* The end record is at the end of the file, except for a comment of the length it states. */
static bool find_end(plim_bytes f, uint64_t *at)
{
    if (f.n < EOCD_SIZE)
        return false;
    uint64_t last = f.n - EOCD_SIZE, first = last > COMMENT_MAX ? last - COMMENT_MAX : 0;
    for (uint64_t i = last + 1; i-- > first;)
        if (has_mark(f, i, EOCD_SIZE, 5, 6) && read_u16(f.p + i + 20) == last - i) {
            *at = i;
            return true;
        }
    return false;
}

/* A narrow field either refers to the wide one or agrees with it. */
static bool field_agrees(uint64_t narrow, uint64_t sentinel, uint64_t wide)
{
    return narrow == sentinel || narrow == wide;
}

static plim_status read_end(plim_bytes f, zip_end *out, plim_err *err)
{
    uint64_t at, tail = PLIM_MIN(f.n, (uint64_t)COMMENT_MAX + EOCD_SIZE + LOCATOR_SIZE);
    plim_status st = plim_bytes_need(f, f.n - tail, tail, err);
    if (st)
        return st;
    if (!find_end(f, &at))
        return plim_fail(err, PLIM_EFORMAT, f.n,
                         "zip archive has no end record: the file is truncated");
    const uint8_t *p = f.p + at;
    if (read_u16(p + 4) != read_u16(p + 6) || read_u16(p + 8) != read_u16(p + 10) ||
        (read_u16(p + 4) != 0 && read_u16(p + 4) != 0xffff))
        return plim_fail(err, PLIM_EUNSUPPORTED, at, "zip archive spans several disks");
    *out = (zip_end){read_u16(p + 10), read_u32(p + 12), read_u32(p + 16), at};
    if (at < LOCATOR_SIZE || !has_mark(f, at - LOCATOR_SIZE, LOCATOR_SIZE, 6, 7))
        return PLIM_OK;

    uint64_t at64 = read_u64(f.p + at - LOCATOR_SIZE + 8);
    if (at64 <= f.n && f.n - at64 >= EOCD64_SIZE)
        st = plim_bytes_need(f, at64, EOCD64_SIZE, err);
    if (st)
        return st;
    if (!has_mark(f, at64, EOCD64_SIZE, 6, 6) || at64 > at - LOCATOR_SIZE - EOCD64_SIZE)
        return plim_fail(err, PLIM_EFORMAT, at - LOCATOR_SIZE,
                         "zip archive has no 64-bit end record where its locator points");
    zip_end narrow = *out;
    const uint8_t *q = f.p + at64;
    *out = (zip_end){read_u64(q + 32), read_u64(q + 40), read_u64(q + 48), at64};
    if (!field_agrees(narrow.entries, 0xffff, out->entries) ||
        !field_agrees(narrow.size, 0xffffffff, out->size) ||
        !field_agrees(narrow.offset, 0xffffffff, out->offset))
        return plim_fail(err, PLIM_EFORMAT, at, "zip archive has two end records that differ");
    return PLIM_OK;
}

/* ---- central directory -------------------------------------------------------- */

/* Sizes and an offset that do not fit 32 bits are in extra field 1, in this order, each only
 * if its narrow field is all ones. */
static bool read_wide(const uint8_t *extra, uint64_t n, plim_zip_entry *e)
{
    uint64_t *field[] = {&e->size, &e->packed, &e->header};
    while (n >= 4) {
        uint64_t id = read_u16(extra), len = read_u16(extra + 2);
        if (len > n - 4)
            return false;
        const uint8_t *p = extra + 4;
        for (size_t i = 0, left = (size_t)len; id == 1 && i < PLIM_COUNT(field); i++)
            if (*field[i] == 0xffffffff) {
                if (left < 8)
                    return false;
                *field[i] = read_u64(p);
                p += 8;
                left -= 8;
            }
        extra += 4 + len;
        n -= 4 + len;
    }
    return true;
}

/* Reads the header at *at and moves past it; `end` is the end of the directory. */
static plim_status read_entry(plim_bytes f, uint64_t *at, uint64_t end, plim_zip_entry *e,
                              plim_err *err)
{
    plim_assert(*at <= end && end <= f.n);
    const uint8_t *p = f.p + *at;
    if (end - *at < CENTRAL_SIZE || !has_mark(f, *at, CENTRAL_SIZE, 1, 2))
        return plim_fail(err, PLIM_EFORMAT, *at, "zip directory has no entry at byte %" PRIu64,
                         *at);
    uint64_t name = read_u16(p + 28), extra = read_u16(p + 30), comment = read_u16(p + 32);
    uint64_t total = CENTRAL_SIZE + name + extra + comment;
    if (total > end - *at)
        return plim_fail(err, PLIM_EFORMAT, *at,
                         "zip directory entry at byte %" PRIu64 " takes %" PRIu64
                         " bytes, %" PRIu64 " are left",
                         *at, total, end - *at);
    *e = (plim_zip_entry){.name = {(const char *)p + CENTRAL_SIZE, (size_t)name},
                          .header = read_u32(p + 42),
                          .packed = read_u32(p + 20),
                          .size = read_u32(p + 24),
                          .crc = read_u32(p + 16),
                          .flags = (uint16_t)read_u16(p + 8),
                          .method = (uint16_t)read_u16(p + 10)};
    if (!read_wide(p + CENTRAL_SIZE + name, extra, e))
        return plim_fail(err, PLIM_EFORMAT, *at,
                         "zip directory entry at byte %" PRIu64 " has a broken extra field",
                         *at);
    *at += total;
    return PLIM_OK;
}

plim_status plim_zip_open(plim_zip *z, plim_bytes file, plim_err *err)
{
    zip_end end = {0};
    plim_zip_entry e;
    plim_status st = read_end(file, &end, err);
    if (st)
        return st;
    if (end.offset > end.at || end.size > end.at - end.offset)
        return plim_fail(err, PLIM_EFORMAT, end.at,
                         "zip directory of %" PRIu64 " bytes at %" PRIu64
                         " runs past byte %" PRIu64,
                         end.size, end.offset, end.at);
    if (end.entries > end.size / CENTRAL_SIZE)
        return plim_fail(err, PLIM_EFORMAT, end.at,
                         "zip directory of %" PRIu64 " bytes cannot hold %" PRIu64 " entries",
                         end.size, end.entries);
    if ((st = plim_bytes_need(file, end.offset, end.size, err)) != PLIM_OK)
        return st;
    *z = (plim_zip){file, end.offset, end.offset + end.size};
    uint64_t at = z->at;
    for (uint64_t i = 0; i < end.entries; i++)
        if ((st = read_entry(file, &at, z->end, &e, err)) != 0)
            return st;
    if (at != z->end)
        return plim_fail(err, PLIM_EFORMAT, at,
                         "zip directory has bytes after its last entry, at %" PRIu64, at);
    return PLIM_OK;
}

bool plim_zip_next(const plim_zip *z, uint64_t *cursor, plim_zip_entry *out)
{
    plim_assert(z->at <= z->end && z->end <= z->file.n);
    uint64_t at = z->at + *cursor;
    if (at >= z->end || read_entry(z->file, &at, z->end, out, NULL) != PLIM_OK)
        return false;
    *cursor = at - z->at;
    return true;
}

static size_t depth_of(plim_str name)
{
    size_t n = 0;
    for (size_t i = 0; i < name.n; i++)
        n += name.p[i] == '/';
    return n;
}

bool plim_zip_find(const plim_zip *z, const char *name, plim_zip_entry *out)
{
    size_t n = strlen(name), best = SIZE_MAX;
    plim_zip_entry e;
    for (uint64_t cursor = 0; plim_zip_next(z, &cursor, &e);) {
        bool same = e.name.n >= n && memcmp(e.name.p + (e.name.n - n), name, n) == 0;
        if (!same || (e.name.n > n && e.name.p[e.name.n - n - 1] != '/') ||
            depth_of(e.name) >= best)
            continue;
        best = depth_of(e.name);
        *out = e;
    }
    return best != SIZE_MAX;
}

/* ---- members -------------------------------------------------------------------- */

#define ENTRY_ARG(e) (int)PLIM_MIN((e)->name.n, 80), (e)->name.p

static plim_status need_header(const plim_zip *z, const plim_zip_entry *e, plim_err *err)
{
    const uint64_t most = LOCAL_SIZE + 2 * 0xffff;
    return e->header < z->at
               ? plim_bytes_need(z->file, e->header, PLIM_MIN(most, z->at - e->header), err)
               : PLIM_OK;
}

/* Finds the member's bytes in the file. */
static plim_status find_data(const plim_zip *z, const plim_zip_entry *e, plim_bytes *out,
                             plim_err *err)
{
    PLIM_TRY(need_header(z, e, err));
    if (e->header >= z->at || !has_mark(z->file, e->header, LOCAL_SIZE, 3, 4))
        return plim_fail(err, PLIM_EFORMAT, e->header,
                         "zip member '%.*s' has no header at byte %" PRIu64, ENTRY_ARG(e),
                         e->header);
    const uint8_t *p = z->file.p + e->header;
    uint64_t name = read_u16(p + 26), extra = read_u16(p + 28);
    uint64_t left = z->at - e->header, skip = LOCAL_SIZE + name + extra;
    if (skip > left || e->packed > left - skip)
        return plim_fail(err, PLIM_EFORMAT, e->header,
                         "zip member '%.*s' is truncated: it needs %" PRIu64 " bytes, %" PRIu64
                         " are left",
                         ENTRY_ARG(e), e->packed, skip > left ? 0 : left - skip);
    if (!plim_str_eq(e->name, (plim_str){(const char *)p + LOCAL_SIZE, (size_t)name}) ||
        read_u16(p + 8) != e->method)
        return plim_fail(err, PLIM_EFORMAT, e->header,
                         "zip member '%.*s' has a different name or method in its own header",
                         ENTRY_ARG(e));
    *out = (plim_bytes){.p = p + skip, .n = e->packed};
    return plim_bytes_need(z->file, e->header + skip, e->packed, err);
}

static voidpf zip_alloc(voidpf arena, uInt n, uInt size)
{
    return plim_arena_new(arena, n, size);
}
static void zip_free(voidpf arena, voidpf p) { (void)arena, (void)p; }

/* Inflates to exactly out.n bytes from exactly in.n. */
static plim_status zip_inflate(plim_arena *a, plim_bytes in, uint8_t *out, uint64_t n)
{
    z_stream s = {.zalloc = zip_alloc, .zfree = zip_free, .opaque = a};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return PLIM_ENOMEM;
    const uint64_t step = 1u << 30; /* zlib uses 32-bit counts */
    uint64_t in_left = in.n, out_left = n;
    uint8_t none = 0;
    int rc = Z_OK;
    s.next_in = (z_const Bytef *)(uintptr_t)in.p; /* read only, though not always const */
    s.next_out = out_left ? out : &none;
    while (rc == Z_OK) {
        if (!s.avail_in && in_left) {
            s.avail_in = (uInt)PLIM_MIN(in_left, step);
            in_left -= s.avail_in;
        }
        if (!s.avail_out && out_left) {
            s.avail_out = (uInt)PLIM_MIN(out_left, step);
            out_left -= s.avail_out;
        }
        rc = inflate(&s, Z_NO_FLUSH); /* no progress possible: Z_BUF_ERROR */
    }
    plim_assert(in_left <= in.n && out_left <= n);
    bool whole = rc == Z_STREAM_END && !s.avail_in && !in_left && !s.avail_out && !out_left;
    inflateEnd(&s);
    return whole ? PLIM_OK : rc == Z_MEM_ERROR ? PLIM_ENOMEM : PLIM_EFORMAT;
}

/* Takes the member's bytes without checking them. */
static plim_status zip_take(const plim_zip *z, const plim_zip_entry *e, plim_arena *a,
                            uint64_t limit, plim_bytes *out, plim_err *err)
{
    plim_bytes data;
    if (e->flags & (FLAG_ENCRYPTED | FLAG_MASKED))
        return plim_fail(err, PLIM_EUNSUPPORTED, e->header, "zip member '%.*s' is encrypted",
                         ENTRY_ARG(e));
    if (e->method != 0 && e->method != 8)
        return plim_fail(err, PLIM_EUNSUPPORTED, e->header,
                         "zip member '%.*s' is compressed by method %d: only 0 and 8 are read",
                         ENTRY_ARG(e), e->method);
    if (e->size > limit)
        return plim_fail(err, PLIM_EUNSUPPORTED, e->header,
                         "zip member '%.*s' has %" PRIu64 " bytes, more than %" PRIu64,
                         ENTRY_ARG(e), e->size, limit);
    plim_status st = find_data(z, e, &data, err);
    if (st)
        return st;
    /* src: deflate gives at most 1032 bytes for one, zlib.net/zlib_tech.html; so a false size
     * cannot cost much memory */
    if (e->method == 0 ? e->size != e->packed : e->size / 1032 > e->packed)
        return plim_fail(err, PLIM_EFORMAT, e->header,
                         "zip member '%.*s' cannot have %" PRIu64 " bytes from %" PRIu64,
                         ENTRY_ARG(e), e->size, e->packed);
    if (e->method == 8) {
        uint8_t *p = PLIM_NEW_N(a, uint8_t, e->size);
        if (!p)
            return plim_oom(err);
        st = zip_inflate(a, data, p, e->size);
        if (st == PLIM_ENOMEM)
            return plim_oom(err);
        if (st)
            return plim_fail(err, st, e->header, "zip member '%.*s' cannot be inflated",
                             ENTRY_ARG(e));
        data = (plim_bytes){.p = p, .n = e->size};
    }
    *out = data;
    return PLIM_OK;
}

static void zip_sum(void *member)
{
    plim_zip_member *m = member;
    m->crc = (uint32_t)crc32_z(0, m->bytes.p, (z_size_t)m->bytes.n);
}

plim_status plim_zip_begin(const plim_zip *z, const plim_zip_entry *e, plim_arena *a,
                           uint64_t limit, plim_zip_member *m, plim_err *err)
{
    const uint64_t is_long = 1 << 20; /* takes longer than starting a thread */
    *m = (plim_zip_member){.entry = e};
    plim_status st = zip_take(z, e, a, limit, &m->bytes, err);
    if (!st)
        plim_task_start(&m->task, zip_sum, m, m->bytes.n >= is_long);
    return st;
}

plim_status plim_zip_check(plim_zip_member *m, plim_err *err)
{
    const plim_zip_entry *e = m->entry;
    plim_task_wait(&m->task);
    if (m->crc == e->crc)
        return PLIM_OK;
    return plim_fail(err, PLIM_EFORMAT, e->header,
                     "zip member '%.*s' is damaged: checksum %08" PRIx32
                     " instead of %08" PRIx32,
                     ENTRY_ARG(e), m->crc, e->crc);
}

plim_status plim_zip_read(const plim_zip *z, const plim_zip_entry *e, plim_arena *a,
                          uint64_t limit, plim_bytes *out, plim_err *err)
{
    plim_zip_member m = {.entry = e};
    PLIM_TRY(zip_take(z, e, a, limit, &m.bytes, err));
    zip_sum(&m);
    plim_status st = plim_zip_check(&m, err);
    if (!st)
        *out = m.bytes;
    return st;
}
