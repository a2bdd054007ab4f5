/* gguf.c -- GGUF, versions 2 and 3, of either byte order: what llama.cpp and its kin
 * run.  Metadata and the list of tensors are read, their data is not.
 * src: github.com/ggml-org/ggml, docs/gguf.md and src/gguf.cpp */
#include <stdio.h>

#include "import/weights/gguf_priv.h"

/* Nothing real comes near; what claims more would have us walk through its zeros. */
#define GGUF_HEADER_LIMIT (256ull << 20)
#define GGUF_MAX_KVS 65536u
#define GGUF_MAX_TENSORS (1u << 20)
enum { GGUF_MAX_NAME = 64, GGUF_MAX_DIMS = 4, GGUF_MAX_NESTING = 4, GGUF_ALIGNMENT = 32 };

static const struct {
    const char *name;
    uint32_t block, bytes;
} ggml_types[] = {
#define PLIM_GGML_TYPE(id, name, block, bytes) [id] = {name, block, bytes},
#define PLIM_GGML_FILE(id, name)
#include "import/weights/ggml_types.def"
#undef PLIM_GGML_TYPE
#undef PLIM_GGML_FILE
};

/* Bytes of a value; 0: it says itself. */
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
                           " goes beyond the first %llu, the limit of what is read",
                           what, n, f->at, GGUF_HEADER_LIMIT);
    else
        f->bad = plim_fail(f->err, PLIM_EFORMAT, f->at,
                           "%s of %" PRIu64 " bytes at byte %" PRIu64 ", the file has %" PRIu64
                           ": it is cut off",
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

static uint64_t gguf_uint(gguf *f, uint32_t width, const char *what)
{
    if (!gguf_room(f, width, what))
        return 0;
    f->at += width;
    return uint_at(f, f->at - width, width);
}

static uint32_t gguf_u32(gguf *f, const char *what) { return (uint32_t)gguf_uint(f, 4, what); }

static plim_str gguf_str(gguf *f, const char *what)
{
    uint64_t n = gguf_uint(f, 8, what);
    if (!gguf_room(f, n, what))
        return (plim_str){"", 0};
    f->at += n;
    return (plim_str){(const char *)f->b.p + f->at - n, (size_t)n};
}

/* ---- metadata ------------------------------------------------------------------------ */

static void skip_values(gguf *f, plim_str key, uint64_t type, uint64_t n, int depth);

static void skip_array(gguf *f, plim_str key, int depth)
{
    uint32_t type = gguf_u32(f, "an array");
    uint64_t n = gguf_uint(f, 8, "an array");
    if (!f->bad && depth >= GGUF_MAX_NESTING)
        f->bad = plim_fail(f->err, PLIM_EUNSUPPORTED, f->at,
                           "metadata '" PLIM_STR_FMT "' has arrays nested deeper than %d",
                           PLIM_STR_CUT(key), GGUF_MAX_NESTING);
    skip_values(f, key, type, n, depth + 1);
}

/* Strings and arrays begin with their length, so that none is less than 8 bytes. */
static void skip_values(gguf *f, plim_str key, uint64_t type, uint64_t n, int depth)
{
    uint64_t bytes;
    if (!f->bad && type >= GGUF_TYPES)
        f->bad = plim_fail(f->err, PLIM_EFORMAT, f->at,
                           "metadata '" PLIM_STR_FMT "' has type %" PRIu64 ", the last is %d",
                           PLIM_STR_CUT(key), type, GGUF_TYPES - 1);
    if (f->bad)
        return;
    if (!plim_mul(n, widths[type] ? widths[type] : 8, &bytes))
        bytes = UINT64_MAX;
    if (!gguf_room(f, bytes, n == 1 ? "a value" : "an array"))
        return;
    if (widths[type])
        f->at += bytes;
    else
        for (uint64_t i = 0; i < n && !f->bad; i++)
            if (type == GGUF_STRING)
                gguf_str(f, "a string");
            else
                skip_array(f, key, depth);
}

static void read_kv(gguf *f, gguf_kv *kv)
{
    *kv = (gguf_kv){.key = gguf_str(f, "a key"), .n = 1};
    uint32_t type = gguf_u32(f, "a type");
    if (!f->bad && !kv->key.n)
        f->bad = plim_fail(f->err, PLIM_EFORMAT, f->at,
                           "metadata without a name before byte %" PRIu64, f->at);
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

const gguf_kv *plim_gguf_of_model(const gguf *f, const char *key)
{
    size_t n = f->arch.n, m = strlen(key);
    for (uint32_t i = 0; n && i < f->n_kvs; i++) {
        plim_str k = f->kvs[i].key;
        if (k.n == n + 1 + m && memcmp(k.p, f->arch.p, n) == 0 && k.p[n] == '.' &&
            memcmp(k.p + n + 1, key, m) == 0)
            return &f->kvs[i];
    }
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
    gguf_u32(f, "GGUF");
    f->version = gguf_u32(f, "the version");
    f->big = !f->bad && f->version && !(f->version & 0xffff);
    if (f->big)
        f->version = (uint32_t)uint_at(f, 4, 4);
    if (f->bad)
        return f->bad;
    if (f->version == 1)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 4,
                         "GGUF version 1, of which few were made in 2023: convert the model "
                         "again with a current llama.cpp");
    if (f->version != 2 && f->version != 3)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 4,
                         "GGUF version %u, the newest known is 3", (unsigned)f->version);
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
    return twice.p
               ? plim_fail(f->err, PLIM_EFORMAT, 0,
                           "metadata '" PLIM_STR_FMT "' is there twice", PLIM_STR_CUT(twice))
               : PLIM_OK;
}

/* Opens b; what is left to read are its tensors. */
static plim_status read_metadata(gguf *f, plim_bytes b, plim_arena *a, plim_err *err)
{
    *f = (gguf){.b = b, .limit = PLIM_MIN(b.n, GGUF_HEADER_LIMIT), .err = err};
    plim_status st = read_version(f);
    f->n_tensors = gguf_uint(f, 8, "the number of tensors");
    uint64_t n = gguf_uint(f, 8, "the number of metadata");
    if (st || f->bad)
        return st ? st : f->bad;
    if (n > GGUF_MAX_KVS || f->n_tensors > GGUF_MAX_TENSORS)
        return plim_fail(err, PLIM_EUNSUPPORTED, 8,
                         "%" PRIu64 " tensors and %" PRIu64 " metadata, the limits are %u "
                         "and %u",
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

/* ---- tensors --------------------------------------------------------------------------- */

static plim_status check_type(gguf *f, const plim_item *it, uint32_t type)
{
    if (type >= PLIM_COUNT(ggml_types) || !ggml_types[type].name)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, f->at,
                         "type %u of '" PLIM_STR_FMT "' is not known, the last known is %u",
                         (unsigned)type, PLIM_STR_CUT(it->name),
                         (unsigned)PLIM_COUNT(ggml_types) - 1);
    if (!ggml_types[type].bytes)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, f->at,
                         "type %s of '" PLIM_STR_FMT "' is one that llama.cpp has dropped: "
                         "convert the model again",
                         ggml_types[type].name, PLIM_STR_CUT(it->name));
    return PLIM_OK;
}

/* Rows are whole blocks; in it->bytes what they take. */
static plim_status check_size(gguf *f, plim_item *it, uint32_t type)
{
    uint64_t n = 1, row = it->rank ? (uint64_t)it->dim[it->rank - 1] : 1;
    bool fits = true;
    for (int32_t i = 0; i < it->rank && fits; i++)
        fits = plim_mul(n, (uint64_t)it->dim[i], &n);
    if (!fits || !plim_mul(n / ggml_types[type].block, ggml_types[type].bytes, &it->bytes))
        return plim_fail(f->err, PLIM_ERANGE, f->at, "size of '" PLIM_STR_FMT "' overflows",
                         PLIM_STR_CUT(it->name));
    if (row % ggml_types[type].block)
        return plim_fail(f->err, PLIM_EFORMAT, f->at,
                         "'" PLIM_STR_FMT "' has rows of %" PRIu64
                         " elements, no multiple of the %u in a block of %s",
                         PLIM_STR_CUT(it->name), row, (unsigned)ggml_types[type].block,
                         ggml_types[type].name);
    return PLIM_OK;
}

/* One entry of the list.  *offset: its place in the data. */
static plim_status read_tensor(gguf *f, plim_item *it, uint64_t *offset)
{
    *it = (plim_item){.kind = PLIM_ITEM_PARAMETER, .same_as = PLIM_NONE};
    it->name = gguf_str(f, "a tensor's name");
    uint32_t rank = gguf_u32(f, "a tensor");
    if (!f->bad && it->name.n > GGUF_MAX_NAME)
        return plim_fail(f->err, PLIM_EFORMAT, f->at,
                         "a tensor's name of %zu bytes, the limit is %d", it->name.n,
                         GGUF_MAX_NAME);
    if (!f->bad && rank > GGUF_MAX_DIMS)
        return plim_fail(f->err, PLIM_EFORMAT, f->at,
                         "'" PLIM_STR_FMT "' has %u dimensions, the limit is %d",
                         PLIM_STR_CUT(it->name), (unsigned)rank, GGUF_MAX_DIMS);
    for (uint32_t i = rank; i-- > 0 && !f->bad;) { /* the fastest first, ours last */
        uint64_t dim = gguf_uint(f, 8, "a tensor");
        if (dim > INT64_MAX)
            return plim_fail(f->err, PLIM_ERANGE, f->at,
                             "size of '" PLIM_STR_FMT "' overflows", PLIM_STR_CUT(it->name));
        it->dim[i] = (int64_t)dim;
    }
    it->rank = (int32_t)rank;
    uint32_t type = gguf_u32(f, "a tensor");
    *offset = gguf_uint(f, 8, "a tensor");
    plim_status st = f->bad ? f->bad : check_type(f, it, type);
    if (!st)
        st = check_size(f, it, type);
    if (!st)
        it->type = plim_str_of(ggml_types[type].name);
    return st;
}

static plim_status read_alignment(const gguf *f, uint64_t *out)
{
    const gguf_kv *kv = plim_gguf_find(f, "general.alignment");
    *out = GGUF_ALIGNMENT;
    if (kv && (!plim_gguf_number(f, kv, 0, out) || kv->array || !*out || *out & (*out - 1) ||
               *out > UINT32_MAX))
        return plim_fail(f->err, PLIM_EFORMAT, kv->at,
                         "general.alignment is no power of two: %" PRIu64, *out);
    return PLIM_OK;
}

static uint64_t padded(uint64_t n, uint64_t alignment)
{
    return plim_sat_add(n, alignment - 1) & ~(alignment - 1);
}

/* All tensors of a part: one after the other in the data, each aligned. */
static plim_status read_tensors(gguf *f, plim_inventory *v)
{
    plim_item it;
    uint64_t alignment, offset = 0, next = 0, end = 0;
    plim_status st = read_alignment(f, &alignment);
    for (uint64_t i = 0; i < f->n_tensors && !st; i++) {
        st = read_tensor(f, &it, &offset);
        if (!st && offset != next)
            st = plim_fail(f->err, PLIM_EFORMAT, f->at,
                           "'" PLIM_STR_FMT "' begins at byte %" PRIu64
                           " of the data instead of %" PRIu64,
                           PLIM_STR_CUT(it.name), offset, next);
        if (!st)
            st = plim_inventory_add(v, &it, f->err);
        end = plim_sat_add(next, it.bytes);
        next = padded(end, alignment);
    }
    end = plim_sat_add(end, padded(f->at, alignment));
    if (!st && f->n_tensors && end > f->b.n)
        st = plim_fail(f->err, PLIM_EFORMAT, f->b.n,
                       "the tensors end at byte %" PRIu64 ", the file has %" PRIu64
                       ": it is cut off",
                       end, f->b.n);
    return st;
}

static plim_status check_tensors(const plim_inventory *v, uint32_t first, plim_err *err)
{
    uint32_t n = v->n_items - first;
    plim_str *names = PLIM_NEW_N(v->arena, plim_str, (uint64_t)n + 1);
    if (!names)
        return plim_oom(err);
    for (uint32_t i = 0; i < n; i++)
        names[i] = v->items[first + i].name;
    plim_str twice = plim_str_twice(names, n);
    return twice.p ? plim_fail(err, PLIM_EFORMAT, 0,
                               "tensor '" PLIM_STR_FMT "' is there twice", PLIM_STR_CUT(twice))
                   : PLIM_OK;
}

/* ---- models in several files ------------------------------------------------------------ */

/* src: llama.cpp tools/gguf-split, llama_split_path */
static const char split_format[] = "-%05u-of-%05u.gguf";
enum { SPLIT_TAIL = sizeof "-00001-of-00002.gguf" - 1 };

typedef struct gguf_split {
    uint64_t no, count, n_tensors; /* this part of so many; tensors of all */
} gguf_split;

static gguf_split split_of(const gguf *f)
{
    gguf_split s = {0, 1, UINT64_MAX};
    plim_gguf_number(f, plim_gguf_find(f, "split.no"), 0, &s.no);
    plim_gguf_number(f, plim_gguf_find(f, "split.count"), 0, &s.count);
    plim_gguf_number(f, plim_gguf_find(f, "split.tensors.count"), 0, &s.n_tensors);
    s.count = PLIM_MAX(s.count, 1);
    return s;
}

/* "a/m-00002-of-00003.gguf" to "m" */
static plim_status split_stem(const plim_source *s, const gguf_split *split, plim_str *stem,
                              plim_err *err)
{
    char tail[64];
    plim_str path = plim_str_of(s->path);
    for (size_t i = path.n; i-- > 0;)
        if (path.p[i] == '/') {
            path = (plim_str){path.p + i + 1, path.n - i - 1};
            break;
        }
    snprintf(tail, sizeof tail, split_format, (unsigned)split->no + 1, (unsigned)split->count);
    if (split->no >= split->count || split->count > 99999 || path.n <= SPLIT_TAIL ||
        memcmp(path.p + path.n - SPLIT_TAIL, tail, SPLIT_TAIL) != 0)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "part %" PRIu64 " of %" PRIu64
                         " of a model, whose name does not end in '%s': the others cannot be "
                         "found",
                         plim_sat_add(split->no, 1), split->count, tail);
    *stem = (plim_str){path.p, path.n - SPLIT_TAIL};
    return PLIM_OK;
}

/* Opens part `no` into *part and *f, and lists its tensors. */
static plim_status list_part(plim_inventory *v, const plim_source *s, plim_str name,
                             const gguf_split *want, plim_source *part, gguf *f, plim_err *err)
{
    plim_status st = plim_source_beside(s, name, v->arena, part, err);
    if (!st)
        st = read_metadata(f, part->bytes, v->arena, err);
    if (st)
        return st;
    gguf_split is = split_of(f);
    if (is.no != want->no || is.count != want->count)
        return plim_fail(err, PLIM_EFORMAT, 0, "it is part %" PRIu64 " of %" PRIu64,
                         plim_sat_add(is.no, 1), is.count);
    return read_tensors(f, v);
}

/* Lists all parts; the first, which has the metadata, is left open in *head and *f. */
static plim_status list_parts(plim_inventory *v, const plim_source *s, const gguf_split *split,
                              plim_source *head, gguf *f, plim_err *err)
{
    uint32_t first = v->n_items;
    plim_str stem = {NULL, 0};
    plim_status st = split_stem(s, split, &stem, err);
    gguf_split want = *split;
    for (want.no = 0; want.no < want.count && !st; want.no++) {
        char tail[64];
        plim_err why = PLIM_ERR_INIT;
        plim_source other = {.path = NULL}, *part = want.no ? &other : head;
        gguf other_f;
        snprintf(tail, sizeof tail, split_format, (unsigned)want.no + 1, (unsigned)want.count);
        plim_str name =
            plim_arena_printf(v->arena, PLIM_STR_FMT "%s", PLIM_STR_ARG(stem), tail);
        if (!name.p)
            return plim_oom(err);
        st = list_part(v, s, name, &want, part, want.no ? &other_f : f, &why);
        plim_source_close(&other);
        if (st)
            plim_fail(err, st, why.at, "part '" PLIM_STR_FMT "': %s", PLIM_STR_CUT(name),
                      why.msg);
    }
    uint32_t n = v->n_items - first;
    if (!st && split->n_tensors != UINT64_MAX && split->n_tensors != n)
        st = plim_fail(err, PLIM_EFORMAT, 0,
                       "the parts hold %u tensors, split.tensors.count is %" PRIu64,
                       (unsigned)n, split->n_tensors);
    return st;
}

/* ---- the importer ------------------------------------------------------------------------ */

static plim_status name_format(plim_inventory *v, const gguf *f, uint64_t parts, plim_err *err)
{
    v->format = plim_arena_printf(v->arena, "GGUF %u%s", (unsigned)f->version,
                                  f->big ? ", big-endian" : "");
    if (parts > 1 && v->format.p)
        v->format = plim_arena_printf(v->arena, PLIM_STR_FMT ", %" PRIu64 " parts",
                                      PLIM_STR_ARG(v->format), parts);
    return v->format.p ? PLIM_OK : plim_oom(err);
}

static plim_status gguf_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    gguf f;
    uint32_t first = v->n_items;
    plim_source head = {.path = NULL};
    plim_status st = read_metadata(&f, s->bytes, v->arena, err);
    if (st)
        return st;
    gguf_split split = split_of(&f);
    st = split.count > 1 ? list_parts(v, s, &split, &head, &f, err) : read_tensors(&f, v);
    if (!st)
        st = check_tensors(v, first, err);
    if (!st)
        st = plim_gguf_facts(&f, v, first, err);
    if (!st)
        st = name_format(v, &f, split.count, err);
    plim_source_close(&head);
    return st;
}

static int gguf_probe(plim_bytes b)
{
    return b.n >= 4 && memcmp(b.p, "GGUF", 4) == 0 ? 95 : 0;
}

const plim_importer plim_importer_gguf = {
    .name = "gguf",
    .doc = "llama.cpp and its kin, versions 2 and 3, in one file or in parts",
    .src = "https://github.com/ggml-org/ggml/blob/master/docs/gguf.md",
    .gives = "parameters, cache",
    .probe = gguf_probe,
    .without = "it holds weights for llama.cpp, no model that PyTorch runs: name the folder "
               "with the model's config.json",
    .list = gguf_list,
};
