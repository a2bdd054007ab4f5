/* show.c -- a figure as a cell, and a cell as text, JSON and CSV: see report.h. */
#include "report/report.h"

#include <stdio.h>

/* "32x3x224x224", "()" for a scalar: the notation that plim_parse_shape reads. */
static plim_str cell_shape(plim_page *p, const plim_cell *c)
{
    plim_buf b;
    plim_buf_init(&b, &p->arena);
    for (int i = 0; i < c->rank; i++)
        plim_buf_printf(&b, "%s%" PRId64, i ? "x" : "", c->dim[i]);
    p->buf.bad |= b.bad;
    return c->rank < 0 ? PLIM_STR("-") : c->rank ? plim_buf_str(&b) : PLIM_STR("()");
}

static plim_text cell_tenths(uint64_t n)
{
    plim_text t;
    snprintf(t.s, sizeof t.s, "%" PRIu64 ".%" PRIu64, n / 10, n % 10);
    return t;
}

/* "≈ 41 ms", "≈ 1.2 s". */
static plim_str cell_ms(plim_page *p, double ms)
{
    bool seconds = ms >= 1000;
    return plim_arena_printf(&p->arena, "%s %s %s", plim_page_glyph(p, "\xe2\x89\x88", "~"),
                             plim_fmt_digits(seconds ? ms / 1000 : ms).s,
                             seconds ? "s" : "ms");
}

/* tight: rounds long counts, which make the table too wide. */
static plim_text cell_number(const plim_page *p, const plim_cell *c, bool tight)
{
    enum { LONG_COUNT = 1000000 };
    switch (c->kind) {
    case PLIM_CELL_BYTES:
    case PLIM_CELL_DELTA: return plim_page_bytes(p, c->n);
    case PLIM_CELL_METRIC: return plim_fmt_metric(c->n);
    case PLIM_CELL_REAL: return plim_fmt_fixed(c->real, 1);
    case PLIM_CELL_DIGITS: return plim_fmt_digits(c->real);
    case PLIM_CELL_TENTHS: return cell_tenths(c->n);
    default: return tight && c->n >= LONG_COUNT ? plim_fmt_metric(c->n) : plim_fmt_count(c->n);
    }
}

plim_str plim_cell_show(plim_page *p, const plim_cell *c, bool tight)
{
    const char *sign = c->negative ? "-" : c->kind == PLIM_CELL_DELTA && c->n ? "+" : "";
    plim_str s;
    if (c->measure)
        return plim_cell_show_measure(p, c);
    switch (c->kind) {
    case PLIM_CELL_UNKNOWN: p->unknowns = true; return PLIM_STR("-");
    case PLIM_CELL_TEXT: s = plim_page_clean(p, c->text); break;
    case PLIM_CELL_RANGE: s = plim_page_range(p, c->n, c->high); break;
    case PLIM_CELL_SHAPE: s = cell_shape(p, c); break;
    case PLIM_CELL_MS: s = cell_ms(p, c->real); break;
    case PLIM_CELL_BOOL: s = plim_str_of(c->n ? "yes" : "no"); break;
    default: s = plim_arena_printf(&p->arena, "%s%s", sign, cell_number(p, c, tight).s);
    }
    if (c->mark && s.p)
        s = plim_arena_printf(&p->arena, "%s%.*s", c->mark, PLIM_STR_ARG(s));
    p->buf.bad |= !s.p;
    return s.p ? s : PLIM_STR("");
}

void plim_cell_json(plim_jw *w, const plim_cell *c)
{
    switch (c->kind) {
    case PLIM_CELL_TEXT: plim_jw_cstr(w, c->text); break;
    case PLIM_CELL_BYTES:
    case PLIM_CELL_COUNT:
    case PLIM_CELL_METRIC: plim_jw_u64(w, c->n); break;
    case PLIM_CELL_DELTA:
    case PLIM_CELL_INT: plim_jw_i64(w, (int64_t)(c->negative ? -c->n : c->n)); break;
    case PLIM_CELL_BOOL: plim_jw_bool(w, c->n); break;
    case PLIM_CELL_REAL:
    case PLIM_CELL_DIGITS:
    case PLIM_CELL_MS: plim_jw_f64(w, c->real); break;
    case PLIM_CELL_TENTHS: plim_jw_f64(w, (double)c->n / 10); break;
    case PLIM_CELL_SHAPE:
        if (c->rank < 0) {
            plim_jw_null(w);
            break;
        }
        plim_jw_array(w);
        for (int i = 0; i < c->rank; i++)
            plim_jw_i64(w, c->dim[i]);
        plim_jw_end(w);
        break;
    default: plim_jw_null(w);
    }
}

/* Would a spreadsheet run the text?  Blanks before it, which may have been tabs or line ends, do not keep
 * it from that; the wide forms count in some languages.
 * src: OWASP, "CSV Injection" */
static bool csv_is_formula(plim_str s)
{
    static const char *const starts[] = {
        "=", "+", "-", "@", "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0"};
    while (s.n && *s.p == ' ')
        s = (plim_str){s.p + 1, s.n - 1};
    for (size_t i = 0; i < PLIM_COUNT(starts); i++)
        if (plim_str_starts(s, starts[i]))
            return true;
    return false;
}

/* Quotes text that contains a comma, a quote or a line end; quotes within it are doubled.
 * src: RFC 4180 section 2 */
static void csv_text(plim_page *p, plim_str s)
{
    const char *mark = csv_is_formula(s) ? "'" : "";
    bool plain = true;
    for (size_t i = 0; i < s.n; i++)
        plain = plain && s.p[i] != ',' && s.p[i] != '"';
    if (plain) {
        plim_page_puts(p, mark);
        plim_buf_add(&p->buf, s);
        return;
    }
    plim_page_puts(p, "\"");
    plim_page_puts(p, mark);
    for (size_t i = 0; i < s.n; i++)
        plim_buf_repeat(&p->buf, s.p[i] == '"' ? "\"\"" : (char[2]){s.p[i], 0}, 1);
    plim_page_puts(p, "\"");
}

void plim_cell_csv(plim_page *p, const plim_cell *c)
{
    switch (c->kind) {
    case PLIM_CELL_TEXT: csv_text(p, plim_page_clean(p, c->text)); break;
    case PLIM_CELL_SHAPE:
        if (c->rank >= 0)
            plim_buf_add(&p->buf, cell_shape(p, c));
        break;
    case PLIM_CELL_BYTES:
    case PLIM_CELL_COUNT:
    case PLIM_CELL_METRIC:
    case PLIM_CELL_DELTA:
    case PLIM_CELL_INT:
        plim_buf_printf(&p->buf, "%s%" PRIu64, c->negative ? "-" : "", c->n);
        break;
    case PLIM_CELL_BOOL: plim_page_puts(p, c->n ? "true" : "false"); break;
    case PLIM_CELL_REAL:
    case PLIM_CELL_DIGITS:
    case PLIM_CELL_MS: plim_page_puts(p, plim_fmt_fixed(c->real, 6).s); break;
    case PLIM_CELL_TENTHS: plim_page_puts(p, cell_tenths(c->n).s); break;
    default: break;
    }
}

/* ---- the cell of a figure -------------------------------------------------- */

static const void *field_at(const void *row, uint16_t at)
{
    return (const char *)row + at - 1;
}

#define FIELD_AS(T) (*(T const *)field_at(row, c->at))
#define ALSO_AS(T) (*(T const *)field_at(row, c->also_at))

/* Values of enumerators as the words of the library. */
static const char *word_of(const plim_column *c, const void *row)
{
    switch (c->kind) {
    case PLIM_KIND_TEXT: return FIELD_AS(const char *);
    case PLIM_KIND_CARD: return plim_report_card(FIELD_AS(const char *));
    case PLIM_KIND_CATEGORY: return plim_category_name(FIELD_AS(plim_category));
    case PLIM_KIND_CERTAINTY: return plim_certainty_name(FIELD_AS(plim_certainty));
    case PLIM_KIND_DTYPE: return plim_dtype_name(FIELD_AS(plim_dtype));
    case PLIM_KIND_FITS: return plim_report_fits(FIELD_AS(plim_fits));
    case PLIM_KIND_GAIN: return plim_report_gain(FIELD_AS(plim_inplace_gain));
    case PLIM_KIND_ITEM: return plim_item_kind_name(FIELD_AS(plim_item_kind));
    case PLIM_KIND_PHASE: return plim_phase_name(FIELD_AS(plim_phase));
    case PLIM_KIND_PLACE: return plim_serve_place_name(FIELD_AS(plim_serve_place));
    case PLIM_KIND_OOM_SOURCE: return plim_oom_source_name(FIELD_AS(plim_oom_source));
    case PLIM_KIND_RUN_FITS: return plim_run_fits(FIELD_AS(plim_vgpu_fits));
    case PLIM_KIND_RUN_END: return plim_run_end(FIELD_AS(plim_vgpu_end));
    case PLIM_KIND_RUN_BY: return plim_run_by(FIELD_AS(plim_vgpu_by));
    default: return NULL;
    }
}

static uint64_t number_of(const plim_column *c, const void *row)
{
    return c->index ? FIELD_AS(const uint64_t *)[c->index - 1] : FIELD_AS(uint64_t);
}

static plim_cell cell_difference(uint64_t a, uint64_t b)
{
    return a == UINT64_MAX || b == UINT64_MAX ? (plim_cell){.kind = PLIM_CELL_UNKNOWN}
                                              : plim_cell_delta(a, b);
}

static plim_cell field_cell(const plim_column *c, const void *row)
{
    if (c->kind >= PLIM_KIND_READ_TEXT && c->kind <= PLIM_KIND_TIME)
        return plim_cell_read(c->kind, field_at(row, c->at));
    switch (c->kind) {
    case PLIM_KIND_BYTES: return plim_cell_u64(PLIM_CELL_BYTES, number_of(c, row));
    case PLIM_KIND_COUNT: return plim_cell_u64(PLIM_CELL_COUNT, FIELD_AS(uint64_t));
    case PLIM_KIND_METRIC: return plim_cell_u64(PLIM_CELL_METRIC, FIELD_AS(uint64_t));
    case PLIM_KIND_COUNT32: return plim_cell_u64(PLIM_CELL_COUNT, FIELD_AS(uint32_t));
    case PLIM_KIND_INT: return plim_cell_int(FIELD_AS(int));
    case PLIM_KIND_INT64: return plim_cell_int(FIELD_AS(int64_t));
    case PLIM_KIND_STEP: return plim_cell_int(PLIM_MAX(FIELD_AS(int), 0));
    case PLIM_KIND_TENTHS: return plim_cell_u64(PLIM_CELL_TENTHS, (uint64_t)FIELD_AS(int));
    case PLIM_KIND_FLAG: return plim_cell_bool(FIELD_AS(bool));
    case PLIM_KIND_REAL: return (plim_cell){.kind = PLIM_CELL_REAL, .real = FIELD_AS(double)};
    case PLIM_KIND_DIGITS:
        return (plim_cell){.kind = PLIM_CELL_DIGITS, .real = FIELD_AS(double)};
    case PLIM_KIND_MS: return (plim_cell){.kind = PLIM_CELL_MS, .real = FIELD_AS(double)};
    case PLIM_KIND_SHAPE: return plim_cell_shape(FIELD_AS(int), field_at(row, c->also_at));
    case PLIM_KIND_RANGE: return plim_cell_range(FIELD_AS(uint64_t), ALSO_AS(uint64_t));
    case PLIM_KIND_DELTA: return cell_difference(ALSO_AS(uint64_t), FIELD_AS(uint64_t));
    default: return plim_cell_text(word_of(c, row));
    }
}

/* Does the cell say nothing: 0 or less, no text? */
static bool is_empty(const plim_cell *c)
{
    return c->kind == PLIM_CELL_TEXT ? !*c->text : c->negative || (!c->n && !(c->real > 0));
}

bool plim_column_known(const plim_column *c, const void *row)
{
    return (!c->known || *(const bool *)field_at(row, c->known)) &&
           (!c->any || *(const uint64_t *)field_at(row, c->any)) &&
           (!c->with || *(const char *const *)field_at(row, c->with)) &&
           (!c->unless || !*(const char *const *)field_at(row, c->unless));
}

plim_cell plim_column_cell(const plim_column *c, const void *row)
{
    if (c->get)
        return c->get(row);
    plim_cell cell = field_cell(c, row);
    if (!plim_column_known(c, row) || (c->empty && is_empty(&cell)))
        return (plim_cell){.kind = PLIM_CELL_UNKNOWN};
    if (c->exact && !*(const bool *)field_at(row, c->exact))
        cell.mark = "~";
    return cell;
}
