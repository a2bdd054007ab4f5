/* report_size.c -- the size of a tensor in every dtype. */
#include "core/shape.h"
#include "report/blocks.h"
#include "report/figures.h"

typedef struct plim_size_row {
    const char *dtype, *torch, *doc;
    uint32_t bits;
    uint64_t bytes;
    bool fits;
} plim_size_row;

typedef struct plim_size {
    int rank;
    int64_t dim[PLIM_MAX_RANK];
    uint64_t elements;
    const plim_size_row *const *dtypes;
    uint32_t n_dtypes;
} plim_size;

#include "answers/size.def"

/* The bytes of a number of elements, rounded up; false if they do not fit in 64 bits.
 * Intermediate results do not overflow. */
static bool size_of(uint64_t elements, uint64_t bits, uint64_t *bytes)
{
    uint64_t rest = (elements % 8 * bits + 7) / 8;
    return plim_mul(elements / 8, bits, bytes) && plim_add(*bytes, rest, bytes);
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

static plim_status size_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_size *s = subject;
    const plim_rows r = PLIM_FIGURE_ROWS(size_row, s->dtypes, s->n_dtypes);
    const plim_size_row *fp32 = s->dtypes[PLIM_F32];
    plim_cell shape = plim_cell_shape(s->rank, s->dim);
    bool si = p->style.si;
    plim_line(p, " ", 0);
    plim_in_quiet(p);
    plim_say(p, PLIM_STR_FMT, PLIM_STR_ARG(plim_cell_show(p, &shape, false)));
    plim_say(p, "= %s elements", plim_fmt_count(s->elements).s);
    if (fp32->fits) {
        plim_line(p, " ", 0);
        plim_in_quiet(p);
        plim_say_as(p, PLIM_PAINT_BOLD, "%s", size_short(fp32->bytes, si).s);
        plim_say(p, "= %s", size_short(fp32->bytes, !si).s);
        plim_say(p, "= %s bytes", plim_fmt_count(fp32->bytes).s);
        plim_say(p, "as fp32");
    }
    plim_apart(p);
    plim_table(p, r, 0);
    plim_if_unknown(p, "- 2^64 bytes or more");
    plim_block_paint(p, PLIM_PAINT_PLAIN);
    plim_data(p, "plimsoll/size/1", plim_size_figures, s, NULL, 0);
    plim_sheet(p, r);
    return PLIM_OK;
}

plim_status plim_size_print(const char *shape, plim_render how, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "size", .build = size_build};
    plim_size_row rows[PLIM_DTYPE_COUNT];
    const plim_size_row *list[PLIM_DTYPE_COUNT];
    plim_meta meta = {.rank = 0};
    plim_size s = {.dtypes = list, .n_dtypes = PLIM_DTYPE_COUNT};
    PLIM_REQUIRE(shape, err);
    plim_status rc =
        plim_parse_shape(plim_str_of(shape), meta.dim, PLIM_MAX_RANK, &meta.rank, err);
    if (rc)
        return rc;
    if (!plim_meta_numel(&meta, &s.elements))
        return plim_fail(err, PLIM_ERANGE, 0, "shape '%.60s' has more than 2^62 elements",
                         shape);
    s.rank = meta.rank;
    memcpy(s.dim, meta.dim, sizeof s.dim);
    for (int i = 0; i < PLIM_DTYPE_COUNT; i++) {
        const plim_dtype_row *t = &plim_dtype_rows[i];
        rows[i] = (plim_size_row){
            .dtype = t->name, .torch = t->torch, .doc = t->doc, .bits = t->bits};
        rows[i].fits = size_of(s.elements, t->bits, &rows[i].bytes);
        list[i] = &rows[i];
    }
    return plim_report_print(&report, &s, how, st, put, ud, err);
}
