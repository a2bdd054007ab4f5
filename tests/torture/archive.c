/* archive.c -- see archive.h. */
#include "archive.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST = 8 << 20, LOCAL = 30, CENTRAL = 46, END = 22 };

static uint32_t read_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t read_u32(const uint8_t *p) { return read_u16(p) | read_u16(p + 2) << 16; }

/* window: as inflateInit2 has it. */
static bool unpack_span(tree_arena *a, tree_span packed, int window, tree_span *out)
{
    z_stream z;
    memset(&z, 0, sizeof z);
    size_t cap = packed.n * 16 + 4096;
    if (cap > MOST)
        cap = MOST;
    uint8_t *p = tree_new(a, cap);
    if (packed.n > UINT32_MAX || inflateInit2(&z, window) != Z_OK)
        return false;
    z.next_in = (Bytef *)(uintptr_t)packed.p;
    z.avail_in = (uInt)packed.n;
    z.next_out = p;
    z.avail_out = (uInt)cap;
    int end = inflate(&z, Z_FINISH);
    *out = (tree_span){p, cap - z.avail_out};
    inflateEnd(&z);
    return end == Z_STREAM_END;
}

static bool read_member(tree_arena *a, tree_span f, const uint8_t *central,
                        archive_member *out)
{
    uint32_t method = read_u16(central + 10), packed = read_u32(central + 20),
             at = read_u32(central + 42);
    if (at > f.n || f.n - at < LOCAL)
        return false;
    size_t data = at + LOCAL + (size_t)read_u16(f.p + at + 26) + read_u16(f.p + at + 28);
    if (data > f.n || packed > f.n - data)
        return false;
    out->name = (tree_span){central + CENTRAL, read_u16(central + 28)};
    out->data = (tree_span){f.p + data, packed};
    return method == 0 || (method == 8 && unpack_span(a, out->data, -MAX_WBITS, &out->data));
}

bool archive_read(tree_arena *a, tree_span f, archive *out)
{
    size_t end = f.n;
    do {
        if (end < END)
            return false;
        end--;
    } while (end > f.n - END || memcmp(f.p + end, "PK\5\6", 4) != 0);
    uint32_t n = read_u16(f.p + end + 10);
    size_t at = read_u32(f.p + end + 16);
    out->member = tree_new(a, (n + 1) * sizeof *out->member);
    for (out->n = 0; out->n < n; out->n++) {
        if (at > f.n || f.n - at < CENTRAL || memcmp(f.p + at, "PK\1\2", 4) != 0)
            return false;
        size_t next = at + CENTRAL + (size_t)read_u16(f.p + at + 28) +
                      read_u16(f.p + at + 30) + read_u16(f.p + at + 32);
        if (next > f.n || !read_member(a, f, f.p + at, &out->member[out->n]))
            return false;
        at = next;
    }
    return true;
}

static void put_figure(uint8_t *p, size_t n, uint64_t v)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* What the local header and the directory have in common: version to name length. */
static void put_common(uint8_t *p, const archive_member *m)
{
    put_figure(p, 2, 20);
    put_figure(p + 10, 4,
               crc32(0, m->data.p ? m->data.p : (const Bytef *)"", (uInt)m->data.n));
    put_figure(p + 14, 4, m->data.n);
    put_figure(p + 18, 4, m->data.n);
    put_figure(p + 22, 2, m->name.n & 0xffff);
}

void archive_write(const archive *z, tree_buf *out)
{
    tree_buf directory = {NULL, 0, 0};
    const size_t start = out->n;
    for (uint32_t i = 0; i < z->n; i++) {
        const archive_member *m = &z->member[i];
        uint8_t local[LOCAL] = "PK\3\4", central[CENTRAL] = "PK\1\2";
        put_common(local + 4, m);
        put_common(central + 6, m);
        put_figure(central + 42, 4, out->n - start);
        tree_add(&directory, central, sizeof central);
        tree_add(&directory, m->name.p, m->name.n & 0xffff);
        tree_add(out, local, sizeof local);
        tree_add(out, m->name.p, m->name.n & 0xffff);
        tree_add(out, m->data.p, m->data.n);
    }
    uint8_t end[END] = "PK\5\6";
    put_figure(end + 8, 2, z->n);
    put_figure(end + 10, 2, z->n);
    put_figure(end + 12, 4, directory.n);
    put_figure(end + 16, 4, out->n - start);
    tree_add(out, directory.p, directory.n);
    tree_add(out, end, sizeof end);
    free(directory.p);
}

bool gzip_read(tree_arena *a, tree_span file, tree_span *out)
{
    return unpack_span(a, file, MAX_WBITS + 16, out);
}

void gzip_write(tree_span data, tree_buf *out)
{
    z_stream z;
    memset(&z, 0, sizeof z);
    if (deflateInit2(&z, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    z.next_in = (Bytef *)(uintptr_t)data.p;
    z.avail_in = (uInt)data.n;
    int st = Z_OK;
    while (st == Z_OK) {
        uint8_t piece[4096];
        z.next_out = piece;
        z.avail_out = sizeof piece;
        st = deflate(&z, Z_FINISH);
        tree_add(out, piece, sizeof piece - z.avail_out);
    }
    deflateEnd(&z);
}
