/* report_size.c -- the size of a tensor in every dtype. */
#include "core/shape.h"
#include "report/report.h"

typedef struct size_row {
    const plim_dtype_row *dtype;
    uint64_t bytes;
    bool fits; /* in 64 bits */
} size_row;

/* The bytes of a number of elements, rounded up; false if they do not fit in 64 bits.
 * Intermediate results do not overflow. */
static bool size_of(uint64_t elements, uint64_t bits, uint64_t *bytes)
{
    uint64_t rest = (elements % 8 * bits + 7) / 8;
    return plim_mul(elements / 8, bits, bytes) && plim_add(*bytes, rest, bytes);
}

static plim_cell size_bytes(const size_row *r, plim_cell_kind kind)
{
    return plim_cell_u64(r->fits ? kind : PLIM_CELL_UNKNOWN, r->bytes);
}

/* clang-format off */
PLIM_GETTER(size_dtype, size_row, plim_cell_text(r->dtype->name))
PLIM_GETTER(size_torch, size_row, plim_cell_text(r->dtype->torch))
PLIM_GETTER(size_bits, size_row, plim_cell_u64(PLIM_CELL_COUNT, r->dtype->bits))
PLIM_GETTER(size_human, size_row, size_bytes(r, PLIM_CELL_BYTES))
PLIM_GETTER(size_exact, size_row, size_bytes(r, PLIM_CELL_COUNT))
PLIM_GETTER(size_doc, size_row, plim_cell_text(r->dtype->doc))

static const plim_column size_columns[] = {
    /* name    title    in            align       least drop get */
    PLIM_COLUMN("dtype",  "dtype", PLIM_IN_BOTH, PLIM_LEFT,     0,  0, size_dtype),
    PLIM_COLUMN("torch",  "torch", PLIM_IN_BOTH, PLIM_LEFT,     0,  1, size_torch),
    PLIM_COLUMN("bits",   "bits",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, size_bits),
    PLIM_COLUMN("",       "size",  PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, size_human),
    PLIM_COLUMN("bytes",  "bytes", PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, size_exact),
    PLIM_COLUMN("doc",    "",      PLIM_IN_TEXT, PLIM_CUT_TAIL, 24, 2, size_doc),
};
/* clang-format on */

typedef struct size_ask {
    plim_meta meta;
    uint64_t elements;
    size_row rows[PLIM_DTYPE_COUNT];
} size_ask;

static plim_rows size_rows(const size_ask *a)
{
    return (plim_rows){.columns = size_columns,
                       .n_columns = PLIM_COUNT(size_columns),
                       .items = a->rows,
                       .size = sizeof a->rows[0],
                       .n = PLIM_COUNT(a->rows)};
}

/* Shortens "3.00 MB" to "3 MB". */
static plim_text size_short(uint64_t bytes, bool si)
{
    plim_text t = plim_fmt_bytes(bytes, si);
    char *unit = strchr(t.s, ' '), *point = strchr(t.s, '.'), *end = unit;
    if (!point || !unit)
        return t;
    while (end > point && (end[-1] == '0' || end[-1] == '.'))
        end--;
    memmove(end, unit, strlen(unit) + 1);
    return t;
}

static plim_status size_text(plim_page *p, const void *subject, plim_err *err)
{
    const size_ask *a = subject;
    const plim_rows r = size_rows(a);
    const size_row *fp32 = &a->rows[PLIM_F32];
    plim_cell shape = plim_cell_shape(a->meta.rank, a->meta.dim);
    bool si = p->style.si;
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_flow_add(&f, plim_cell_show(p, &shape, false));
    plim_flow_printf(&f, "= %s elements", plim_fmt_count(a->elements).s);
    plim_flow_end(&f);
    if (fp32->fits) {
        f = plim_flow_open(p, " ", 0);
        plim_page_paint(p, PLIM_PAINT_BOLD);
        plim_flow_printf(&f, "%s", size_short(fp32->bytes, si).s);
        plim_page_paint(p, PLIM_PAINT_PLAIN);
        plim_flow_printf(&f, "= %s", size_short(fp32->bytes, !si).s);
        plim_flow_printf(&f, "= %s bytes", plim_fmt_count(fp32->bytes).s);
        plim_flow_printf(&f, "as fp32");
        plim_flow_end(&f);
    }
    if (p->style.quiet)
        return PLIM_OK;
    plim_page_puts(p, "\n");
    plim_status st = plim_rows_text(p, &r, 0, err);
    if (!st && p->unknowns)
        plim_page_puts(p, "- 2^64 bytes or more\n");
    return st;
}

static plim_status size_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const size_ask *a = subject;
    const plim_rows r = size_rows(a);
    plim_jw w;
    plim_report_json_open(&w, p, "plimsoll/size/1", NULL);
    plim_jw_key(&w, "shape");
    plim_jw_array(&w);
    for (int i = 0; i < a->meta.rank; i++)
        plim_jw_i64(&w, a->meta.dim[i]);
    plim_jw_end(&w);
    plim_jw_key(&w, "elements");
    plim_jw_u64(&w, a->elements);
    plim_rows_json(&w, "dtypes", &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status size_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_rows r = size_rows(subject);
    return plim_rows_csv(p, &r, err);
}

plim_status plim_size_print(const char *shape, plim_render how, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "size", .text = size_text, .json = size_json, .csv = size_csv};
    size_ask ask = {.elements = 0};
    PLIM_REQUIRE(shape, err);
    plim_status rc =
        plim_parse_shape(plim_str_of(shape), ask.meta.dim, PLIM_MAX_RANK, &ask.meta.rank, err);
    if (rc)
        return rc;
    if (!plim_meta_numel(&ask.meta, &ask.elements))
        return plim_fail(err, PLIM_ERANGE, 0, "shape '%.60s' has more than 2^62 elements",
                         shape);
    for (int i = 0; i < PLIM_DTYPE_COUNT; i++) {
        size_row *row = &ask.rows[i];
        row->dtype = &plim_dtype_rows[i];
        row->fits = size_of(ask.elements, plim_dtype_rows[i].bits, &row->bytes);
    }
    return plim_report_print(&report, &ask, how, st, put, ud, err);
}
