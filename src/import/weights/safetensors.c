/* safetensors.c -- weights in Hugging Face's format: a header in JSON, then the bytes of the
 * tensors, which are never read.
 *
 * The checks are those of the reference reader: both accept the same files.
 * src: github.com/huggingface/safetensors, safetensors/src/tensor.rs */
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "import/weights/weights.h"

enum { ST_HEADER_LIMIT = 100000000 };

static const struct {
    const char *name, *type;
    uint32_t bits;
} st_types[] = {
    {"F32", "fp32", 32},
    {"F16", "fp16", 16},
    {"BF16", "bf16", 16},
    {"F64", "fp64", 64},
    {"F8_E4M3", "fp8_e4m3fn", 8},
    {"F8_E5M2", "fp8_e5m2", 8},
    {"F8_E4M3FNUZ", "fp8_e4m3fnuz", 8},
    {"F8_E5M2FNUZ", "fp8_e5m2fnuz", 8},
    {"F8_E8M0", "fp8_e8m0fnu", 8},
    {"F6_E2M3", "fp6_e2m3", 6},
    {"F6_E3M2", "fp6_e3m2", 6},
    {"F4", "fp4_e2m1", 4},
    {"I64", "int64", 64},
    {"I32", "int32", 32},
    {"I16", "int16", 16},
    {"I8", "int8", 8},
    {"U64", "uint64", 64},
    {"U32", "uint32", 32},
    {"U16", "uint16", 16},
    {"U8", "uint8", 8},
    {"BOOL", "bool", 8},
    {"C64", "complex64", 64},
};

typedef struct st_span {
    uint64_t from, to; /* offsets in the data */
    uint32_t item;
} st_span;

typedef struct st_file {
    plim_inventory *v;
    plim_err *err;
    plim_json j;
    uint32_t first; /* first item of this file */
    uint32_t bits;  /* of the tensor being read */
    plim_str *names;
    st_span *spans;
    uint32_t n_names, cap_names, n_spans, cap_spans;
} st_file;

/* ---- one tensor ------------------------------------------------------------------ */

static void read_type(st_file *f, plim_item *it)
{
    plim_str name = plim_json_str(&f->j);
    for (size_t i = 0; i < PLIM_COUNT(st_types); i++)
        if (plim_str_is(name, st_types[i].name)) {
            it->type = plim_str_of(st_types[i].type);
            f->bits = st_types[i].bits;
            return;
        }
    plim_json_fail(&f->j, PLIM_EUNSUPPORTED,
                   "type '" PLIM_STR_FMT "' of '" PLIM_STR_FMT "' is unknown",
                   (int)PLIM_MIN(name.n, 20), name.n ? name.p : "", PLIM_STR_CUT(it->name));
}

static void read_shape(st_file *f, plim_item *it)
{
    plim_json_array(&f->j);
    while (plim_json_item(&f->j)) {
        uint64_t dim = plim_json_u64(&f->j);
        if (it->rank == PLIM_MAX_RANK)
            plim_json_fail(&f->j, PLIM_EUNSUPPORTED,
                           "'" PLIM_STR_FMT "' has more than %d dimensions",
                           PLIM_STR_CUT(it->name), PLIM_MAX_RANK);
        else if (dim > INT64_MAX)
            plim_json_fail(&f->j, PLIM_ERANGE, "size of '" PLIM_STR_FMT "' overflows",
                           PLIM_STR_CUT(it->name));
        if (f->j.bad)
            return;
        it->dim[it->rank++] = (int64_t)dim;
    }
}

static void read_offsets(st_file *f, st_span *s)
{
    uint64_t at[2] = {0, 0};
    uint32_t n = 0;
    plim_json_array(&f->j);
    for (; plim_json_item(&f->j); n++) {
        uint64_t x = plim_json_u64(&f->j);
        at[n ? 1 : 0] = x;
    }
    if (n != 2)
        plim_json_fail(&f->j, PLIM_EFORMAT, "data_offsets has %u numbers, expected 2",
                       (unsigned)n);
    *s = (st_span){at[0], at[1], f->v->n_items};
}

/* Computes it->bytes from shape and type and compares it with the span. */
static void check_bytes(st_file *f, plim_item *it, const st_span *s)
{
    uint64_t bits = f->bits;
    bool fits = true;
    for (int32_t i = it->rank; i-- > 0 && fits;)
        fits = plim_mul(bits, (uint64_t)it->dim[i], &bits);
    if (!fits)
        plim_json_fail(&f->j, PLIM_ERANGE, "size of '" PLIM_STR_FMT "' overflows",
                       PLIM_STR_CUT(it->name));
    else if (bits % 8)
        plim_json_fail(&f->j, PLIM_EFORMAT,
                       "'" PLIM_STR_FMT "' has %" PRIu64 " bits, not a whole number of bytes",
                       PLIM_STR_CUT(it->name), bits);
    else if (s->to < s->from || s->to - s->from != bits / 8)
        plim_json_fail(&f->j, PLIM_EFORMAT,
                       "'" PLIM_STR_FMT "' is %" PRIu64 " bytes by its shape, data_offsets "
                       "are %" PRIu64 " to %" PRIu64,
                       PLIM_STR_CUT(it->name), bits / 8, s->from, s->to);
    it->bytes = bits / 8;
}

static plim_status read_tensor(st_file *f, plim_str name)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    plim_item it = {.name = name, .kind = PLIM_ITEM_PARAMETER, .same_as = PLIM_NONE};
    st_span span = {0, 0, 0};
    plim_str key;
    bool seen[PLIM_COUNT(fields)] = {false};
    plim_json_object(&f->j);
    while (plim_json_member(&f->j, &key)) {
        size_t i = 0;
        while (i < PLIM_COUNT(fields) && !plim_str_is(key, fields[i]))
            i++;
        if (i == PLIM_COUNT(fields)) {
            plim_json_skip(&f->j);
            continue;
        }
        if (seen[i])
            plim_json_fail(&f->j, PLIM_EFORMAT, "duplicate '%s' of '" PLIM_STR_FMT "'",
                           fields[i], PLIM_STR_CUT(name));
        seen[i] = true;
        if (i == 0)
            read_type(f, &it);
        else if (i == 1)
            read_shape(f, &it);
        else
            read_offsets(f, &span);
    }
    for (size_t i = 0; i < PLIM_COUNT(fields); i++)
        if (!seen[i])
            plim_json_fail(&f->j, PLIM_EFORMAT, "'" PLIM_STR_FMT "' has no '%s'",
                           PLIM_STR_CUT(name), fields[i]);
    if (!f->j.bad)
        check_bytes(f, &it, &span);
    if (f->j.bad)
        return f->j.bad;
    if (!PLIM_PUSH_ROOM(f->v->arena, f->spans, f->n_spans, f->cap_spans))
        return plim_oom(f->err);
    f->spans[f->n_spans++] = span;
    return plim_inventory_add(f->v, &it, f->err);
}

/* ---- the header ------------------------------------------------------------------- */

static plim_str unescape_key(st_file *f, plim_str raw)
{
    return raw.n && memchr(raw.p, '\\', raw.n) ? plim_json_unescape(f->v->arena, raw) : raw;
}

static plim_status check_twice(st_file *f, const char *what)
{
    plim_str twice = plim_str_twice(f->names, f->n_names);
    f->n_names = 0;
    return twice.p ? plim_fail(f->err, PLIM_EFORMAT, 0, "%s '" PLIM_STR_FMT "' appears twice",
                               what, PLIM_STR_CUT(twice))
                   : PLIM_OK;
}

static plim_status push_name(st_file *f, plim_str raw, plim_str *name)
{
    *name = unescape_key(f, raw);
    if (!name->p || !PLIM_PUSH_ROOM(f->v->arena, f->names, f->n_names, f->cap_names))
        return plim_oom(f->err);
    f->names[f->n_names++] = *name;
    return PLIM_OK;
}

/* {"format": "pt"}: strings to strings. */
static plim_status read_metadata(st_file *f)
{
    plim_str raw, key;
    plim_status st = PLIM_OK;
    if (plim_json_peek(&f->j) == PLIM_JSON_NULL) {
        plim_json_null(&f->j);
        return f->j.bad;
    }
    plim_json_object(&f->j);
    while (!st && plim_json_member(&f->j, &raw)) {
        plim_str value = plim_json_str(&f->j);
        if (f->j.bad)
            break;
        st = push_name(f, raw, &key);
        value = unescape_key(f, value);
        key = plim_arena_str(f->v->arena, key); /* ends in a NUL */
        if (!st && (!value.p || !key.p))
            st = plim_oom(f->err);
        if (!st)
            st = plim_inventory_fact(f->v, f->err, key.p, PLIM_STR_FMT, PLIM_STR_ARG(value));
    }
    if (!st && !f->j.bad)
        st = check_twice(f, "metadata key");
    return st ? st : f->j.bad;
}

static plim_status read_header(st_file *f)
{
    static const char meta[] = "__metadata__";
    plim_json metadata = {.n = 0};
    plim_str raw, name;
    plim_status st = PLIM_OK;
    plim_json_object(&f->j);
    while (!st && plim_json_member(&f->j, &raw)) {
        st = push_name(f, raw, &name);
        if (!st && plim_str_is(name, meta)) {
            metadata = f->j;
            plim_json_skip(&f->j);
        } else if (!st) {
            st = read_tensor(f, name);
        }
    }
    if (!st && !plim_json_end(&f->j))
        st = check_twice(f, "tensor");
    if (!st && !f->j.bad && metadata.n) {
        f->j = metadata;
        st = read_metadata(f);
    }
    return st ? st : f->j.bad;
}

/* ---- the data, unseen --------------------------------------------------------------- */

static int compare_spans(const void *a, const void *b)
{
    const st_span *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
           : x->to != y->to   ? (x->to > y->to) - (x->to < y->to)
                              : (x->item > y->item) - (x->item < y->item);
}

/* Checks that the tensors cover the data without gaps or overlaps; with `cut` the data is not here. */
static plim_status check_spans(st_file *f, uint64_t data, uint64_t size, bool cut)
{
    uint64_t end = 0;
    plim_assert(data <= size);
    if (f->n_spans)
        qsort(f->spans, f->n_spans, sizeof *f->spans, compare_spans);
    for (uint32_t i = 0; i < f->n_spans; i++) {
        const st_span *s = &f->spans[i];
        if (s->from != end)
            return plim_fail(f->err, PLIM_EFORMAT, data,
                             "'" PLIM_STR_FMT "' begins at byte %" PRIu64
                             " of the data, the tensor before it ends at %" PRIu64,
                             PLIM_STR_CUT(f->v->items[s->item].name), s->from, end);
        end = s->to;
    }
    if (cut)
        return PLIM_OK;
    if (end > size - data)
        return plim_fail(f->err, PLIM_EFORMAT, size,
                         "the data should be %" PRIu64 " bytes, the file has %" PRIu64
                         ": it is truncated",
                         end, size - data);
    if (end < size - data)
        return plim_fail(f->err, PLIM_EFORMAT, data + end,
                         "the tensors are %" PRIu64 " bytes, the data %" PRIu64, end,
                         size - data);
    return PLIM_OK;
}

/* ---- the importer ------------------------------------------------------------------- */

static uint64_t header_size(plim_bytes b)
{
    plim_assert(b.n >= 8);
    uint64_t n = 0;
    for (int i = 8; i-- > 0;)
        n = n << 8 | b.p[i];
    return n;
}

static plim_status st_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    plim_bytes b = s->bytes;
    st_file f = {.v = v, .err = err, .first = v->n_items};
    uint64_t n = b.n >= 8 ? header_size(b) : 0;
    if (n > ST_HEADER_LIMIT)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "a header of %" PRIu64 " bytes, the limit is %d", n, ST_HEADER_LIMIT);
    if (b.n < 8 || n > b.n - 8)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "a header of %" PRIu64 " bytes in a file of %" PRIu64, n, b.n);
    PLIM_TRY(plim_bytes_need(b, 8, n, err));
    plim_str text = {(const char *)b.p + 8, (size_t)n};
    if (!n || text.p[0] != '{')
        return plim_fail(err, PLIM_EFORMAT, 8, "the header does not begin with '{'");
    plim_json_init(&f.j, text, err);
    f.j.base = 8;
    plim_status st = read_header(&f);
    size_t good = st ? text.n : plim_json_utf8(text);
    if (good < text.n)
        st = plim_fail(err, PLIM_EFORMAT, 8 + good,
                       "the header is not valid UTF-8 at byte %" PRIu64, 8 + (uint64_t)good);
    if (!st)
        st = check_spans(&f, 8 + n, b.n, s->cut);
    if (!st)
        st = plim_weights_packed(v, f.first, err);
    if (!st)
        st = plim_weights_adapter(v, f.first, s, err);
    v->format = PLIM_STR("safetensors");
    return st;
}

/* Whether the 8 bytes before the header are a number, and not text. */
static bool is_binary(plim_bytes b)
{
    size_t len;
    for (size_t i = 0; i < 8; i += len) {
        uint32_t c =
            plim_utf8_decode((plim_str){(const char *)b.p + i, (size_t)b.n - i}, &len);
        if (c == PLIM_UTF8_BAD || (c < ' ' && c != '\t' && c != '\n' && c != '\r'))
            return true;
    }
    return false;
}

static int st_probe(plim_bytes b)
{
    plim_json j;
    if (b.n <= 8 || !is_binary(b))
        return 0;
    plim_json_init(&j, (plim_str){(const char *)b.p + 8, PLIM_MIN((size_t)b.n - 8, 64)}, NULL);
    return plim_json_peek(&j) != PLIM_JSON_OBJECT ? 0
           : header_size(b) <= ST_HEADER_LIMIT    ? 80
                                                  : 50;
}

const plim_importer plim_importer_safetensors = {
    .name = "safetensors",
    .doc = "weights of Hugging Face and others, a single file",
    .src = "https://github.com/huggingface/safetensors#format",
    .gives = "parameters",
    .probe = st_probe,
    .asks = true,
    .without = "it holds weights but no model: give the folder with its config.json",
    .list = st_list,
};
