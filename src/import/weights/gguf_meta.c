/* gguf_meta.c -- the bytes of a GGUF file and its metadata, up to the list of tensors.
 * src: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and src/gguf.cpp there */
#include "import/weights/gguf_priv.h"

/* No real file comes near; a file that claims more would make us read its zeros. */
#define GGUF_HEADER_LIMIT (256ull << 20)
#define GGUF_MAX_KVS 65536u
#define GGUF_MAX_TENSORS (1u << 20)
enum { GGUF_NEWEST = 3, GGUF_MAX_NESTING = 4 };

/* Bytes of a value; 0: variable, given by the value. */
static const uint8_t widths[GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
    [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* ---- bytes --------------------------------------------------------------------------- */

static bool gguf_room(gguf *f, uint64_t n, const char *what)
{
    if (f->bad || n <= f->limit - f->at)
        return !f->bad;
    if (f->limit < f->b.n)
        f->bad = plim_fail(f->err, PLIM_EUNSUPPORTED, f->at,
                           "%s of %" PRIu64 " bytes at byte %" PRIu64
                           " goes beyond the first %llu bytes, the limit of the header",
                           what, n, f->at, GGUF_HEADER_LIMIT);
    else
        f->bad = plim_fail(f->err, PLIM_EFORMAT, f->at,
                           "%s of %" PRIu64 " bytes at byte %" PRIu64 ", the file has %" PRIu64
                           ": it is truncated",
                           what, n, f->at, f->b.n);
    return false;
}

static uint64_t uint_at(const gguf *f, uint64_t at, uint32_t width)
{
    uint64_t x = 0;
    for (uint32_t i = 0; i < width; i++)
        x = x << 8 | f->b.p[at + (f->big ? i : width - 1 - i)];
    return x;
}

/* The next n bytes, which the file has, are in memory. */
static bool gguf_there(gguf *f, uint64_t n)
{
    if (!f->bad)
        f->bad = plim_bytes_ahead(f->b, &f->there, f->at, n, f->err);
    return !f->bad;
}

uint64_t plim_gguf_read_uint(gguf *f, uint32_t width, const char *what)
{
    if (!gguf_room(f, width, what) || !gguf_there(f, width))
        return 0;
    f->at += width;
    return uint_at(f, f->at - width, width);
}

uint32_t plim_gguf_read_u32(gguf *f, const char *what)
{
    return (uint32_t)plim_gguf_read_uint(f, 4, what);
}

plim_str plim_gguf_read_str(gguf *f, const char *what)
{
    uint64_t n = plim_gguf_read_uint(f, 8, what);
    if (!gguf_room(f, n, what) || !gguf_there(f, n))
        return (plim_str){"", 0};
    f->at += n;
    return (plim_str){(const char *)f->b.p + f->at - n, (size_t)n};
}

/* ---- metadata ------------------------------------------------------------------------ */

static void skip_values(gguf *f, plim_str key, uint64_t type, uint64_t n, int depth);

static void skip_array(gguf *f, plim_str key, int depth)
{
    uint32_t type = plim_gguf_read_u32(f, "an array");
    uint64_t n = plim_gguf_read_uint(f, 8, "an array");
    if (!f->bad && depth >= GGUF_MAX_NESTING)
        f->bad = plim_fail(f->err, PLIM_EUNSUPPORTED, f->at,
                           "metadata key '" PLIM_STR_FMT "' has arrays nested deeper than %d",
                           PLIM_STR_CUT(key), GGUF_MAX_NESTING);
    skip_values(f, key, type, n, depth + 1);
}

/* Strings and arrays begin with their length, so each has at least 8 bytes. */
static void skip_values(gguf *f, plim_str key, uint64_t type, uint64_t n, int depth)
{
    uint64_t bytes;
    if (!f->bad && type >= GGUF_TYPES)
        f->bad = plim_fail(f->err, PLIM_EFORMAT, f->at,
                           "metadata key '" PLIM_STR_FMT "' has type %" PRIu64
                           ", the highest known is %d",
                           PLIM_STR_CUT(key), type, GGUF_TYPES - 1);
    if (f->bad)
        return;
    if (!plim_mul(n, widths[type] ? widths[type] : 8, &bytes))
        bytes = UINT64_MAX;
    if (!gguf_room(f, bytes, n == 1 ? "a value" : "an array"))
        return;
    if (widths[type])
        f->at += gguf_there(f, bytes) ? bytes : 0;
    else
        for (uint64_t i = 0; i < n && !f->bad; i++)
            if (type == GGUF_STRING)
                plim_gguf_read_str(f, "a string");
            else
                skip_array(f, key, depth);
}

static void read_kv(gguf *f, gguf_kv *kv)
{
    *kv = (gguf_kv){.key = plim_gguf_read_str(f, "a key"), .n = 1};
    uint32_t type = plim_gguf_read_u32(f, "a type");
    if (!f->bad && !kv->key.n)
        f->bad = plim_fail(f->err, PLIM_EFORMAT, f->at,
                           "a metadata key without a name before byte %" PRIu64, f->at);
    kv->at = f->at;
    skip_values(f, kv->key, type, 1, 0);
    if (f->bad)
        return;
    kv->array = type == GGUF_ARRAY;
    if (kv->array) {
        type = (uint32_t)uint_at(f, kv->at, 4);
        kv->n = uint_at(f, kv->at + 4, 8);
        kv->at += 12;
    }
    kv->type = (gguf_type)type;
}

const gguf_kv *plim_gguf_find(const gguf *f, const char *key)
{
    for (uint32_t i = 0; i < f->n_kvs; i++)
        if (plim_str_is(f->kvs[i].key, key))
            return &f->kvs[i];
    return NULL;
}

plim_str plim_gguf_own_key(const gguf *f, plim_str key)
{
    const size_t n = f->arch.n;
    if (!n || key.n <= n + 1 || key.p[n] != '.' || memcmp(key.p, f->arch.p, n) != 0)
        return PLIM_STR("");
    return (plim_str){key.p + n + 1, key.n - n - 1};
}

const gguf_kv *plim_gguf_of_model(const gguf *f, const char *key)
{
    for (uint32_t i = 0; i < f->n_kvs; i++)
        if (plim_str_is(plim_gguf_own_key(f, f->kvs[i].key), key))
            return &f->kvs[i];
    return NULL;
}

bool plim_gguf_number(const gguf *f, const gguf_kv *kv, uint64_t i, uint64_t *out)
{
    if (!kv || (kv->array && i >= kv->n))
        return false;
    uint32_t width = widths[kv->type];
    bool is_signed = kv->type == GGUF_I8 || kv->type == GGUF_I16 || kv->type == GGUF_I32 ||
                     kv->type == GGUF_I64;
    if (!width || kv->type == GGUF_F32 || kv->type == GGUF_F64)
        return false;
    uint64_t x = uint_at(f, kv->at + (kv->array ? i * width : 0), width);
    if (is_signed && x >> (width * 8 - 1))
        return false;
    *out = x;
    return true;
}

bool plim_gguf_string(const gguf *f, const gguf_kv *kv, plim_str *out)
{
    if (!kv || kv->array || kv->type != GGUF_STRING)
        return false;
    *out = (plim_str){(const char *)f->b.p + kv->at + 8, (size_t)uint_at(f, kv->at, 8)};
    return true;
}

/* ---- up to the tensors ---------------------------------------------------------------- */

static plim_status read_version(gguf *f)
{
    enum { SOON = 16 }; /* versions that there may be one day */
    plim_gguf_read_u32(f, "GGUF");
    f->version = plim_gguf_read_u32(f, "the version");
    if (f->bad)
        return f->bad;
    f->big = true;
    const uint64_t swapped = uint_at(f, 4, 4);
    f->big = swapped && swapped < SOON;
    if (f->big)
        f->version = (uint32_t)swapped;
    if (f->version == 1)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 4,
                         "GGUF version 1 is not supported: convert the model "
                         "again with a current llama.cpp");
    if (!f->version || f->version > GGUF_NEWEST)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 4,
                         "GGUF version %" PRIu32 " is not supported, the newest known is %d",
                         f->version, GGUF_NEWEST);
    return PLIM_OK;
}

static plim_status check_keys(const gguf *f, plim_arena *a)
{
    plim_str *keys = PLIM_NEW_N(a, plim_str, (uint64_t)f->n_kvs + 1);
    if (!keys)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < f->n_kvs; i++)
        keys[i] = f->kvs[i].key;
    plim_str twice = plim_str_twice(keys, f->n_kvs);
    return twice.p ? plim_fail(f->err, PLIM_EFORMAT, 0,
                               "metadata key '" PLIM_STR_FMT "' appears twice",
                               PLIM_STR_CUT(twice))
                   : PLIM_OK;
}

/* Opens b and reads up to the list of tensors. */
plim_status plim_gguf_read_metadata(gguf *f, plim_bytes b, plim_arena *a, plim_err *err)
{
    *f = (gguf){.b = b, .limit = PLIM_MIN(b.n, GGUF_HEADER_LIMIT), .err = err};
    plim_status st = read_version(f);
    f->n_tensors = plim_gguf_read_uint(f, 8, "the number of tensors");
    uint64_t n = plim_gguf_read_uint(f, 8, "the number of metadata keys");
    if (st || f->bad)
        return st ? st : f->bad;
    if (n > GGUF_MAX_KVS || f->n_tensors > GGUF_MAX_TENSORS)
        return plim_fail(err, PLIM_EUNSUPPORTED, 8,
                         "%" PRIu64 " tensors and %" PRIu64
                         " metadata keys, the limits are %u and %u",
                         f->n_tensors, n, GGUF_MAX_TENSORS, GGUF_MAX_KVS);
    while (f->n_kvs < n && !f->bad) {
        if (!PLIM_PUSH_ROOM(a, f->kvs, f->n_kvs, f->cap_kvs))
            return plim_oom(err);
        read_kv(f, &f->kvs[f->n_kvs]);
        f->n_kvs++;
    }
    if (f->bad)
        return f->bad;
    plim_gguf_string(f, plim_gguf_find(f, "general.architecture"), &f->arch);
    return check_keys(f, a);
}

/* ---- for other rooms -------------------------------------------------------------------- */

plim_status plim_gguf_open(plim_bytes b, plim_arena *a, const plim_gguf **out, plim_err *err)
{
    gguf *f = PLIM_NEW(a, gguf);
    if (!f)
        return plim_oom(err);
    *out = f;
    return plim_gguf_read_metadata(f, b, a, err);
}

plim_str plim_gguf_arch(const plim_gguf *f) { return f->arch; }

bool plim_gguf_model_number(const plim_gguf *f, const char *key, uint64_t i, uint64_t *out)
{
    return plim_gguf_number(f, plim_gguf_of_model(f, key), i, out);
}

uint64_t plim_gguf_model_most(const plim_gguf *f, const char *key, uint64_t n)
{
    const gguf_kv *kv = plim_gguf_of_model(f, key);
    uint64_t x, most = 0;
    for (uint64_t i = 0; i < n && plim_gguf_number(f, kv, i, &x); i++)
        if (x <= INT32_MAX)
            most = PLIM_MAX(most, x);
    return most;
}
