/* foreign.c -- see foreign.h. */
#include "import/foreign.h"

#include "base/zip.h"

/* ---- by their first bytes ------------------------------------------------------------- */

static bool has_at(plim_bytes b, uint64_t at, const char *magic, size_t n)
{
    return b.n >= at + n && memcmp(b.p + at, magic, n) == 0;
}

#define MAGIC(name, at, bytes)                                                                \
    static bool is_##name(plim_bytes b) { return has_at(b, at, bytes, sizeof(bytes) - 1); }

MAGIC(hdf5, 0, "\x89HDF\r\n\x1a\n")
MAGIC(tflite, 4, "TFL3")
MAGIC(executorch, 4, "ET12")
MAGIC(mxnet, 0, "\x12\1\0\0\0\0\0\0")
MAGIC(ncnn, 0, "7767517\n")
MAGIC(lfs, 0, "version https://git-lfs.github.com/spec/")
MAGIC(tar, 257, "ustar")

static bool is_packed(plim_bytes b)
{
    static const struct {
        const char *magic;
        size_t n;
    } kinds[] = {{"\x1f\x8b\x08", 3},     {"BZh", 3},        {"\xfd\x37zXZ\0", 6},
                 {"\x28\xb5\x2f\xfd", 4}, {"Rar!\x1a\7", 6}, {"7z\xbc\xaf\x27\x1c", 6}};
    for (size_t i = 0; i < PLIM_COUNT(kinds); i++)
        if (has_at(b, 0, kinds[i].magic, kinds[i].n))
            return true;
    return false;
}

/* "ggml", "ggmf", "ggjt" as little-endian numbers. */
static bool is_ggml(plim_bytes b)
{
    return has_at(b, 0, "lmgg", 4) || has_at(b, 0, "fmgg", 4) || has_at(b, 0, "tjgg", 4);
}

/* ---- text ------------------------------------------------------------------------------- */

/* The beginning as text; "" if it is not text. */
static plim_str text_of(plim_bytes b)
{
    enum { LOOKED_AT = 4096 };
    size_t n = (size_t)PLIM_MIN(b.n, LOOKED_AT),
           skip = has_at(b, 0, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (n <= skip || memchr(b.p, 0, n))
        return (plim_str){"", 0};
    return (plim_str){(const char *)b.p + skip, n - skip};
}

/* The next line, trimmed; false: there is none. */
static bool next_line(plim_str *rest, plim_str *line)
{
    if (!rest->n)
        return false;
    const char *end = memchr(rest->p, '\n', rest->n);
    size_t n = end ? (size_t)(end - rest->p) : rest->n, skip = n + (end != NULL);
    *line = (plim_str){rest->p, n};
    *rest = (plim_str){rest->p + skip, rest->n - skip};
    while (line->n && strchr(" \t\r", line->p[line->n - 1]))
        line->n--;
    while (line->n && strchr(" \t\r", line->p[0]))
        line->p++, line->n--;
    return true;
}

/* The first line that is neither empty nor a comment. */
static plim_str first_line(plim_bytes b)
{
    plim_str rest = text_of(b), line = {"", 0};
    while (next_line(&rest, &line))
        if (line.n && !strchr("#;", line.p[0]))
            return line;
    return (plim_str){"", 0};
}

static bool is_darknet(plim_bytes b)
{
    plim_str line = first_line(b);
    return plim_str_is(line, "[net]") || plim_str_is(line, "[network]");
}

/* A line "layer {" or "layers{". */
static bool is_prototxt(plim_bytes b)
{
    plim_str rest = text_of(b), line;
    while (next_line(&rest, &line)) {
        size_t n = plim_str_starts(line, "layers")  ? 6
                   : plim_str_starts(line, "layer") ? 5
                                                    : 0;
        while (n && n < line.n && line.p[n] == ' ')
            n++;
        if (n && n < line.n && line.p[n] == '{')
            return true;
    }
    return false;
}

static bool is_html(plim_bytes b)
{
    plim_str line = first_line(b);
    return plim_str_starts(line, "<!DOCTYPE html") ||
           plim_str_starts(line, "<!doctype html") || plim_str_starts(line, "<html") ||
           plim_str_starts(line, "<HTML");
}

static bool is_openvino(plim_bytes b)
{
    plim_str rest = text_of(b), line;
    for (int i = 0; i < 3 && next_line(&rest, &line); i++)
        if (plim_str_starts(line, "<net "))
            return true;
    return false;
}

/* ---- protocol buffers ---------------------------------------------------------------------- */

/* Reads a number at *at and moves past it. */
static bool read_varint(plim_bytes b, uint64_t *at, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 63 && *at < b.n; shift += 7) {
        uint8_t c = b.p[(*at)++];
        *out |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return true;
    }
    return false;
}

/* Field 1 (tag 0x0a), a message or a string: returns its contents. */
static bool first_field(plim_bytes b, plim_bytes *in)
{
    uint64_t at = 1, n;
    if (!b.n || b.p[0] != 0x0a || !read_varint(b, &at, &n) || !n || n > b.n - at)
        return false;
    *in = (plim_bytes){.p = b.p + at, .n = n};
    return true;
}

static bool is_word(plim_bytes b)
{
    for (uint64_t i = 0; i < b.n && b.n < 256; i++)
        if (b.p[i] < 0x20 || b.p[i] > 0x7e)
            return false;
    return b.n > 0 && b.n < 256;
}

/* Version 1, followed by one model up to the end of the file. */
static bool is_savedmodel(plim_bytes b)
{
    uint64_t at = 3, n;
    return has_at(b, 0, "\x08\x01\x12", 3) && read_varint(b, &at, &n) && n > 1 &&
           n == b.n - at && b.p[at] == 0x0a;
}

/* Nodes, each with a name followed by an op. */
static bool is_graphdef(plim_bytes b)
{
    plim_bytes node, name;
    if (!first_field(b, &node) || !first_field(node, &name) || !is_word(name))
        return false;
    const uint8_t *next = name.p + name.n;
    return next + 2 < node.p + node.n && next[0] == 0x12 && next[2] >= 'A' && next[2] <= 'Z';
}

/* A name, then a layer: field 100, in old files 2, or an input: field 3. */
static bool is_caffemodel(plim_bytes b)
{
    plim_bytes name;
    if (!first_field(b, &name) || !is_word(name))
        return false;
    uint64_t at = (uint64_t)(name.p + name.n - b.p);
    return has_at(b, at, "\xa2\x06", 2) || has_at(b, at, "\x12", 1) ||
           has_at(b, at, "\x1a", 1);
}

/* ---- archives -------------------------------------------------------------------------------- */

static bool open_zip(plim_bytes b, plim_zip *z)
{
    return plim_zip_is(b) && !plim_zip_open(z, b, NULL);
}

static bool is_keras(plim_bytes b)
{
    plim_zip z;
    plim_zip_entry e;
    return open_zip(b, &z) && plim_zip_find(&z, "config.json", &e) &&
           plim_zip_find(&z, "metadata.json", &e);
}

static bool is_numpy(plim_bytes b)
{
    plim_zip z;
    plim_zip_entry e;
    uint64_t cursor = 0;
    if (has_at(b, 0, "\x93NUMPY", 6))
        return true;
    return open_zip(b, &z) && plim_zip_next(&z, &cursor, &e) && e.name.n > 4 &&
           memcmp(e.name.p + e.name.n - 4, ".npy", 4) == 0;
}

static bool is_zip(plim_bytes b)
{
    plim_zip z;
    return open_zip(b, &z);
}

/* ---- the list --------------------------------------------------------------------------------- */

static const plim_foreign foreigns[] = {
#define PLIM_FOREIGN(name, what, instead, src)                                                \
    {#name, is_##name, what, instead, what ": " instead, src},
#include "import/foreign.def"
#undef PLIM_FOREIGN
};

uint32_t plim_foreign_count(void) { return PLIM_COUNT(foreigns); }

const plim_foreign *plim_foreign_at(uint32_t i)
{
    return i < PLIM_COUNT(foreigns) ? &foreigns[i] : NULL;
}

const plim_foreign *plim_foreign_probe(plim_bytes b)
{
    for (size_t i = 0; i < PLIM_COUNT(foreigns); i++)
        if (foreigns[i].is(b))
            return &foreigns[i];
    return NULL;
}
