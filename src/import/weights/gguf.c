/* gguf.c -- GGUF, versions 2 and 3, of either byte order: the format of llama.cpp and
 * compatible programs.  Metadata and the list of tensors are read, their data is not.
 * src: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and src/gguf.cpp there */
#include <stdio.h>

#include "import/weights/gguf_priv.h"

enum { GGUF_MAX_NAME = 64, GGUF_MAX_DIMS = 4, GGUF_ALIGNMENT = 32 };

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

bool plim_ggml_type_find(plim_str name, uint32_t *elements, uint32_t *bytes)
{
    for (size_t i = 0; i < PLIM_COUNT(ggml_types); i++)
        if (ggml_types[i].name && ggml_types[i].bytes &&
            plim_str_is(name, ggml_types[i].name)) {
            *elements = ggml_types[i].block;
            *bytes = ggml_types[i].bytes;
            return true;
        }
    return false;
}

/* ---- tensors --------------------------------------------------------------------------- */

static plim_status check_type(gguf *f, const plim_item *it, uint32_t type)
{
    if (type >= PLIM_COUNT(ggml_types) || !ggml_types[type].name)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, f->at,
                         "type %u of '" PLIM_STR_FMT "' is unknown, the highest known is %u",
                         (unsigned)type, PLIM_STR_CUT(it->name),
                         (unsigned)PLIM_COUNT(ggml_types) - 1);
    if (!ggml_types[type].bytes)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, f->at,
                         "type %s of '" PLIM_STR_FMT
                         "' was removed from llama.cpp: convert the model again",
                         ggml_types[type].name, PLIM_STR_CUT(it->name));
    return PLIM_OK;
}

/* Checks that rows are whole blocks; sets it->bytes. */
static plim_status check_size(gguf *f, plim_item *it, uint32_t type)
{
    plim_assert(type < PLIM_COUNT(ggml_types) && ggml_types[type].block);
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
                         " elements, not a multiple of the %u in a block of %s",
                         PLIM_STR_CUT(it->name), row, (unsigned)ggml_types[type].block,
                         ggml_types[type].name);
    return PLIM_OK;
}

/* One entry of the list.  *offset: its offset in the data. */
static plim_status read_tensor(gguf *f, plim_item *it, uint64_t *offset)
{
    *it = (plim_item){.kind = PLIM_ITEM_PARAMETER, .same_as = PLIM_NONE};
    it->name = plim_gguf_read_str(f, "a tensor's name");
    uint32_t rank = plim_gguf_read_u32(f, "a tensor");
    if (!f->bad && it->name.n > GGUF_MAX_NAME)
        return plim_fail(f->err, PLIM_EFORMAT, f->at,
                         "a tensor's name of %zu bytes, the limit is %d", it->name.n,
                         GGUF_MAX_NAME);
    if (!f->bad && rank > GGUF_MAX_DIMS)
        return plim_fail(f->err, PLIM_EFORMAT, f->at,
                         "'" PLIM_STR_FMT "' has %u dimensions, the limit is %d",
                         PLIM_STR_CUT(it->name), (unsigned)rank, GGUF_MAX_DIMS);
    for (uint32_t i = rank; i-- > 0 && !f->bad;) { /* fastest first, ours last */
        uint64_t dim = plim_gguf_read_uint(f, 8, "a tensor");
        if (dim > INT64_MAX)
            return plim_fail(f->err, PLIM_ERANGE, f->at,
                             "size of '" PLIM_STR_FMT "' overflows", PLIM_STR_CUT(it->name));
        it->dim[i] = (int64_t)dim;
    }
    it->rank = (int32_t)rank;
    uint32_t type = plim_gguf_read_u32(f, "a tensor");
    *offset = plim_gguf_read_uint(f, 8, "a tensor");
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
                         "general.alignment is not a power of two: %" PRIu64, *out);
    return PLIM_OK;
}

static uint64_t pad_to(uint64_t n, uint64_t alignment)
{
    return plim_sat_add(n, alignment - 1) & ~(alignment - 1);
}

/* All tensors of a part: consecutive in the data, each aligned. */
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
                           " of the data, expected %" PRIu64,
                           PLIM_STR_CUT(it.name), offset, next);
        if (!st)
            st = plim_inventory_add(v, &it, f->err);
        end = plim_sat_add(next, it.bytes);
        next = pad_to(end, alignment);
    }
    end = plim_sat_add(end, pad_to(f->at, alignment));
    if (!st && f->n_tensors && end > f->b.n)
        st = plim_fail(f->err, PLIM_EFORMAT, f->b.n,
                       "the tensors end at byte %" PRIu64 ", the file has %" PRIu64
                       ": it is truncated",
                       end, f->b.n);
    return st;
}

static plim_status check_tensors(const plim_inventory *v, uint32_t first, plim_err *err)
{
    plim_assert(first <= v->n_items);
    uint32_t n = v->n_items - first;
    plim_str *names = PLIM_NEW_N(v->arena, plim_str, (uint64_t)n + 1);
    if (!names)
        return plim_oom(err);
    for (uint32_t i = 0; i < n; i++)
        names[i] = v->items[first + i].name;
    plim_str twice = plim_str_twice(names, n);
    return twice.p ? plim_fail(err, PLIM_EFORMAT, 0, "tensor '" PLIM_STR_FMT "' appears twice",
                               PLIM_STR_CUT(twice))
                   : PLIM_OK;
}

/* ---- models in several files ------------------------------------------------------------ */

/* src: llama.cpp tools/gguf-split, llama_split_path */
static const char split_format[] = "-%05u-of-%05u.gguf";
enum { SPLIT_TAIL = sizeof "-00001-of-00002.gguf" - 1 };

typedef struct gguf_split {
    uint64_t no, count, n_tensors; /* this part's number; of all: parts, tensors */
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
                         "the name of part %" PRIu64 " of %" PRIu64
                         " does not end in '%s': the other parts cannot be found",
                         plim_sat_add(split->no, 1), split->count, tail);
    *stem = (plim_str){path.p, path.n - SPLIT_TAIL};
    return PLIM_OK;
}

/* Opens part `no` into *part and *f, and lists its tensors. */
static plim_status list_part(plim_inventory *v, const plim_source *s, plim_str name,
                             const gguf_split *want, plim_source *part, gguf *f, plim_err *err)
{
    PLIM_TRY(plim_source_beside(s, name, v->arena, part, err));
    PLIM_TRY(plim_gguf_read_metadata(f, part->bytes, v->arena, err));
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
    PLIM_TRY(plim_gguf_read_metadata(&f, s->bytes, v->arena, err));
    gguf_split split = split_of(&f);
    plim_status st =
        split.count > 1 ? list_parts(v, s, &split, &head, &f, err) : read_tensors(&f, v);
    if (!st)
        st = check_tensors(v, first, err);
    if (!st)
        st = plim_gguf_check_layers(&f, v, first, err);
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
    .doc = "llama.cpp and compatible programs, versions 2 and 3, in one file or in parts",
    .src = "https://github.com/ggml-org/ggml/blob/master/docs/gguf.md",
    .gives = "parameters, cache",
    .probe = gguf_probe,
    .asks = true,
    .without = "it holds weights for llama.cpp, not a model that "
               "PyTorch runs: give the folder with the model's "
               "config.json",
    .list = gguf_list,
};
