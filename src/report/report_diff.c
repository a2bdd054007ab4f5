/* report_diff.c -- two runs side by side: figures, what is live at the peaks, where they part and
 * why. */
#include "report/report.h"

/* clang-format off */
PLIM_GETTER(figure_name, plim_diff_figure, plim_cell_text(r->name))
PLIM_GETTER(figure_a, plim_diff_figure, plim_cell_bytes_if(r->a_known, r->a))
PLIM_GETTER(figure_b, plim_diff_figure, plim_cell_bytes_if(r->b_known, r->b))
PLIM_GETTER(figure_delta, plim_diff_figure,
            r->a_known && r->b_known ? plim_cell_delta(r->b, r->a) : (plim_cell){0})

PLIM_GETTER(figure_within, plim_diff_figure, plim_cell_u64(PLIM_CELL_BYTES, r->within))

static const plim_column figure_columns[] = {
    /* name    title    in            align       least drop get */
    PLIM_COLUMN("figure", "peak",  PLIM_IN_BOTH, PLIM_LEFT,  0,    0, figure_name),
    PLIM_COLUMN("a",      "A",     PLIM_IN_BOTH, PLIM_RIGHT, 0,    0, figure_a),
    PLIM_COLUMN("b",      "B",     PLIM_IN_BOTH, PLIM_RIGHT, 0,    0, figure_b),
    PLIM_COLUMN("delta",  "B - A", PLIM_IN_TEXT, PLIM_RIGHT, 0,    0, figure_delta),
    PLIM_COLUMN("within", "",      PLIM_IN_DATA, PLIM_RIGHT, 0,    0, figure_within),
};

static const char *row_text(const plim_diff_row *r)
{
    return !r->name ? "(not known)" : *r->name ? r->name : "(the model)";
}

PLIM_GETTER(row_title, plim_diff_row, plim_cell_text(row_text(r)))
PLIM_GETTER(row_name, plim_diff_row, r->name ? plim_cell_text(r->name) : (plim_cell){0})
PLIM_GETTER(row_category, plim_diff_row, plim_cell_text(r->category))
PLIM_GETTER(row_a, plim_diff_row, plim_cell_u64(PLIM_CELL_BYTES, r->a))
PLIM_GETTER(row_b, plim_diff_row, plim_cell_u64(PLIM_CELL_BYTES, r->b))
PLIM_GETTER(row_delta, plim_diff_row, plim_cell_delta(r->b, r->a))
PLIM_GETTER(row_a_tensors, plim_diff_row, plim_cell_u64(PLIM_CELL_COUNT, r->a_tensors))
PLIM_GETTER(row_b_tensors, plim_diff_row, plim_cell_u64(PLIM_CELL_COUNT, r->b_tensors))

#define SIDES                                                                     \
    PLIM_COLUMN("a",         "A",     PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, row_a),                \
    PLIM_COLUMN("b",         "B",     PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, row_b),                \
    PLIM_COLUMN("delta",     "B - A", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, row_delta),            \
    PLIM_COLUMN("a_tensors", "",      PLIM_IN_DATA, PLIM_RIGHT, 0, 0, row_a_tensors),        \
    PLIM_COLUMN("b_tensors", "",      PLIM_IN_DATA, PLIM_RIGHT, 0, 0, row_b_tensors)

static const plim_column category_columns[] = {
    PLIM_COLUMN("category", "category", PLIM_IN_BOTH, PLIM_LEFT, 0, 0, row_category), SIDES,
};
static const plim_column module_columns[] = {
    PLIM_COLUMN("name", "module", PLIM_IN_TEXT, PLIM_CUT_HEAD, 16, 0, row_title),
    PLIM_COLUMN("name", "",       PLIM_IN_DATA, PLIM_LEFT,     0,  0, row_name), SIDES,
};
static const plim_column line_columns[] = {
    PLIM_COLUMN("name", "line", PLIM_IN_TEXT, PLIM_CUT_HEAD, 16, 0, row_title), SIDES,
};
static const plim_column tensor_columns[] = {
    PLIM_COLUMN("name",     "tensor",   PLIM_IN_TEXT, PLIM_CUT_HEAD, 16, 0, row_title),
    PLIM_COLUMN("name",     "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, row_name),
    PLIM_COLUMN("category", "category", PLIM_IN_BOTH, PLIM_LEFT,     0,  1, row_category), SIDES,
};
/* clang-format on */

/* ---- text ---------------------------------------------------------------------- */

static void side_line(plim_page *p, const char *lead, const plim_diff_side *s)
{
    plim_flow f = plim_flow_lead(p, plim_page_glyph(p, " \xc2\xb7 ", " | "), lead);
    plim_page_paint(p, PLIM_PAINT_BOLD);
    plim_flow_add(&f, plim_page_clean(p, s->name));
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_flow_add(&f, plim_str_of(s->format));
    if (s->source)
        plim_flow_printf(&f, "figures of %s", s->source);
    else
        plim_flow_printf(&f, "%s events", plim_fmt_count(s->events).s);
    if (s->phases_known && s->peak_step >= 0)
        plim_flow_printf(&f, "peak in step %d, %s%s%s", s->peak_step,
                         plim_phase_name(s->peak_phase), *s->peak_op ? ", " : "", s->peak_op);
    else if (*s->peak_op)
        plim_flow_printf(&f, "peak at %s", s->peak_op);
    plim_flow_end(&f);
}

/* The rows that differ, of rows with these first. */
static uint32_t count_differing(const plim_diff_row *const *rows, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && rows[i]->a != rows[i]->b)
        i++;
    return i;
}

static void counts_line(plim_page *p, const plim_diff *d)
{
    const struct {
        uint64_t n;
        const char *says;
    } parts[] = {
        {d->resized, "of another size"}, {d->only_a, "only in A"}, {d->only_b, "only in B"}};
    plim_flow f = plim_flow_open(p, plim_page_glyph(p, " \xc2\xb7 ", " | "), 0);
    plim_page_puts(p, "\n");
    plim_flow_printf(&f, "%s events are equal", plim_fmt_count(d->equal).s);
    for (size_t i = 0; i < PLIM_COUNT(parts); i++)
        if (parts[i].n)
            plim_flow_printf(&f, "%s %s", plim_fmt_count(parts[i].n).s, parts[i].says);
    plim_flow_end(&f);
}

/* "A  allocates 9.00 MiB for 'fc.out' (activation) in step 0, forward, fc". */
static void event_line(plim_page *p, const char *lead, const plim_diff_event *e)
{
    plim_flow f = plim_flow_lead(p, " ", lead);
    if (!e) {
        plim_flow_printf(&f, "has ended");
        plim_flow_end(&f);
        return;
    }
    bool lines = !strcmp(e->category, "unknown");
    plim_flow_printf(&f, "event %s:", plim_fmt_count(e->event).s);
    plim_flow_printf(&f, e->frees ? "frees %s" : "allocates %s",
                     plim_fmt_bytes(e->bytes, p->style.si).s);
    if (*e->name && !lines)
        plim_flow_printf(&f, e->frees ? "of '%s' (%s)" : "for '%s' (%s)", e->name,
                         e->category);
    if (e->phase_known && e->step >= 0)
        plim_flow_printf(&f, "in step %d, %s%s%s", e->step, plim_phase_name(e->phase),
                         *e->where ? ", " : "", e->where);
    else if (e->phase_known)
        plim_flow_printf(&f, "before the first step");
    else if (*e->where)
        plim_flow_printf(&f, e->frees ? "allocated at %s" : "at %s", e->where);
    plim_flow_end(&f);
}

static void parting_text(plim_page *p, const plim_diff *d)
{
    if (!d->parts)
        return;
    plim_page_puts(p, "\nFirst difference\n");
    event_line(p, "  A  ", d->first_a);
    event_line(p, "  B  ", d->first_b);
    if (d->last) {
        plim_page_paint(p, PLIM_PAINT_DIM);
        plim_page_puts(p, "  before it, in both:\n");
        event_line(p, "     ", d->last);
        plim_page_paint(p, PLIM_PAINT_PLAIN);
    }
}

static void causes_text(plim_page *p, const plim_diff *d)
{
    if (d->n_causes)
        plim_page_puts(p, d->n_causes == 1 ? "\nLikely cause\n" : "\nLikely causes\n");
    else if (d->parts)
        plim_page_puts(p, "\nThe cause is not known.\n");
    for (uint32_t i = 0; i < d->n_causes; i++)
        plim_page_wrap(p, d->causes[i]->text, 2);
}

static plim_status peak_tables(plim_page *p, const plim_diff *d, plim_err *err)
{
    uint32_t modules = count_differing(d->modules, d->n_modules);
    uint32_t tensors = count_differing(d->tensors, d->n_tensors);
    bool told = d->n_categories > 1 ||
                (d->n_categories && strcmp(d->categories[0]->category, "unknown") != 0);
    plim_rows all = PLIM_ROWS_OF(category_columns, d->categories, d->n_categories);
    plim_status st = PLIM_OK;
    if (!told) /* two recordings */
        return plim_report_table(p, "Lines that differ, at the peak",
                                 PLIM_ROWS_OF(line_columns, d->modules, modules), err);
    plim_page_puts(p, "\nAt the peak, by category\n");
    st = plim_rows_text(p, &all, 2, err);
    if (!st)
        st = plim_report_table(p, "Modules that differ",
                               PLIM_ROWS_OF(module_columns, d->modules, modules), err);
    if (!st)
        st = plim_report_table(p, "Tensors that differ",
                               PLIM_ROWS_OF(tensor_columns, d->tensors, tensors), err);
    return st;
}

static void verdict_text(plim_page *p, const plim_diff *d)
{
    plim_page_puts(p, "\n");
    plim_page_paint(p, d->differs ? PLIM_PAINT_BAD : PLIM_PAINT_GOOD);
    if (d->figures_only && !d->within)
        plim_page_puts(p, d->differs ? "They differ by more than the log's rounding.\n"
                                     : "They do not differ, as far as the log tells.\n");
    else if (!d->parts && !d->figures_only)
        plim_page_puts(p, "They do not differ.\n");
    else if (!d->within)
        plim_page_puts(p, "They differ.\n");
    else
        plim_buf_printf(&p->buf, "The peaks differ by %s than %s.\n",
                        d->differs ? "more" : "no more", d->within);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
}

static plim_status diff_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_diff *d = subject;
    plim_rows figures = PLIM_ROWS_OF(figure_columns, d->figures, d->n_figures);
    if (p->style.quiet)
        return plim_rows_text(p, &figures, 0, err);
    side_line(p, "A  ", d->a);
    side_line(p, "B  ", d->b);
    plim_page_puts(p, "\n");
    plim_status st = plim_rows_text(p, &figures, 0, err);
    if (st)
        return st;
    if (d->figures_only) {
        verdict_text(p, d);
        plim_report_unknowns(p);
        return PLIM_OK;
    }
    counts_line(p, d);
    st = peak_tables(p, d, err);
    if (st)
        return st;
    parting_text(p, d);
    causes_text(p, d);
    verdict_text(p, d);
    plim_report_unknowns(p);
    return PLIM_OK;
}

/* ---- JSON and CSV ------------------------------------------------------------------ */

static void known_json(plim_jw *w, bool known, uint64_t n)
{
    if (known)
        plim_jw_u64(w, n);
    else
        plim_jw_null(w);
}

static void side_json(plim_jw *w, const char *key, const plim_diff_side *s)
{
    plim_jw_key(w, key);
    plim_jw_object(w);
    plim_jw_key(w, "name");
    plim_jw_cstr(w, s->name);
    plim_jw_key(w, "format");
    plim_jw_cstr(w, s->format);
    plim_jw_key(w, "source");
    plim_jw_cstr(w, s->source);
    plim_jw_key(w, "settings");
    if (s->settings)
        plim_settings_write(w, s->settings, "diff");
    else
        plim_jw_null(w);
    plim_jw_key(w, "gpu");
    plim_jw_cstr(w, s->gpu);
    plim_jw_key(w, "events");
    known_json(w, !s->source, s->events);
    plim_jw_key(w, "live");
    known_json(w, !s->source, s->live);
    plim_jw_key(w, "peak_step");
    if (s->phases_known)
        plim_jw_i64(w, s->peak_step);
    else
        plim_jw_null(w);
    plim_jw_key(w, "peak_phase");
    plim_jw_cstr(w, s->phases_known ? plim_phase_name(s->peak_phase) : NULL);
    plim_jw_key(w, "peak_op");
    plim_jw_cstr(w, *s->peak_op ? s->peak_op : NULL);
    plim_jw_end(w);
}

static void event_json(plim_jw *w, const char *key, const plim_diff_event *e)
{
    plim_jw_key(w, key);
    if (!e) {
        plim_jw_null(w);
        return;
    }
    plim_jw_object(w);
    plim_jw_key(w, "index");
    plim_jw_u64(w, e->event);
    plim_jw_key(w, "event");
    plim_jw_cstr(w, e->frees ? "free" : "alloc");
    plim_jw_key(w, "bytes");
    plim_jw_u64(w, e->bytes);
    plim_jw_key(w, "name");
    plim_jw_cstr(w, *e->name ? e->name : NULL);
    plim_jw_key(w, "category");
    plim_jw_cstr(w, e->category);
    plim_jw_key(w, "where");
    plim_jw_cstr(w, *e->where ? e->where : NULL);
    plim_jw_key(w, "step");
    if (e->phase_known)
        plim_jw_i64(w, e->step);
    else
        plim_jw_null(w);
    plim_jw_key(w, "phase");
    plim_jw_cstr(w, e->phase_known ? plim_phase_name(e->phase) : NULL);
    plim_jw_end(w);
}

static void parting_json(plim_jw *w, const plim_diff *d)
{
    plim_jw_key(w, "first_difference");
    if (!d->parts) {
        plim_jw_null(w);
        return;
    }
    plim_jw_object(w);
    event_json(w, "a", d->first_a);
    event_json(w, "b", d->first_b);
    event_json(w, "before", d->last);
    plim_jw_end(w);
}

/* clang-format off */
PLIM_GETTER(cause_name, plim_diff_cause, plim_cell_text(r->name))
PLIM_GETTER(cause_text, plim_diff_cause, plim_cell_text(r->text))
PLIM_GETTER(cause_bytes, plim_diff_cause, plim_cell_known(PLIM_CELL_BYTES, r->bytes))

static const plim_column cause_columns[] = {
    PLIM_COLUMN("cause", "", PLIM_IN_DATA, PLIM_LEFT,  0, 0, cause_name),
    PLIM_COLUMN("text",  "", PLIM_IN_DATA, PLIM_LEFT,  0, 0, cause_text),
    PLIM_COLUMN("bytes", "", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, cause_bytes),
};
/* clang-format on */

static void events_json(plim_jw *w, const plim_diff *d)
{
    const struct {
        const char *key;
        uint64_t n;
    } counts[] = {{"equal", d->equal},
                  {"resized", d->resized},
                  {"only_a", d->only_a},
                  {"only_b", d->only_b}};
    plim_jw_key(w, "events");
    plim_jw_object(w);
    for (size_t i = 0; i < PLIM_COUNT(counts); i++) {
        plim_jw_key(w, counts[i].key);
        known_json(w, !d->figures_only, counts[i].n);
    }
    plim_jw_end(w);
}

static plim_status diff_json(plim_page *p, const void *subject, plim_err *err)
{
    const plim_diff *d = subject;
    plim_jw w;
    (void)err;
    plim_report_json_open(&w, p, "plimsoll/diff/1", NULL);
    side_json(&w, "a", d->a);
    side_json(&w, "b", d->b);
    plim_jw_key(&w, "within");
    plim_jw_cstr(&w, d->within);
    plim_jw_key(&w, "differs");
    plim_jw_bool(&w, d->differs);
    const plim_rows figures = PLIM_ROWS_OF(figure_columns, d->figures, d->n_figures);
    const plim_rows categories =
        PLIM_ROWS_OF(category_columns, d->categories, d->n_categories);
    const plim_rows modules = PLIM_ROWS_OF(module_columns, d->modules, d->n_modules);
    const plim_rows tensors = PLIM_ROWS_OF(tensor_columns, d->tensors, d->n_tensors);
    const plim_rows causes = PLIM_ROWS_OF(cause_columns, d->causes, d->n_causes);
    plim_rows_json(&w, "figures", &figures);
    events_json(&w, d);
    plim_rows_json(&w, "categories", &categories);
    plim_rows_json(&w, "modules", &modules);
    plim_rows_json(&w, "tensors", &tensors);
    parting_json(&w, d);
    plim_rows_json(&w, "causes", &causes);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status diff_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_diff *d = subject;
    const plim_rows tensors = PLIM_ROWS_OF(tensor_columns, d->tensors, d->n_tensors);
    return plim_rows_csv(p, &tensors, err);
}

plim_status plim_diff_print(const plim_diff *d, plim_render r, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "diff", .text = diff_text, .json = diff_json, .csv = diff_csv};
    return plim_report_print(&report, d, r, st, put, ud, err);
}

plim_status plim_diff_json(const plim_diff *d, plim_put put, void *ud, plim_err *err)
{
    return plim_diff_print(d, PLIM_JSON, NULL, put, ud, err);
}
