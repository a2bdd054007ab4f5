/* report_diff.c -- two runs side by side: figures, what is live at the peaks, where they part and
 * why. */
#include "report/figures.h"

static const char *row_text(const plim_diff_row *r)
{
    return !r->name ? "(not known)" : *r->name ? r->name : "(the model)";
}

/* clang-format off */
PLIM_GETTER(figure_delta, plim_diff_figure,
            r->a_known && r->b_known ? plim_cell_delta(r->b, r->a) : (plim_cell){0})
PLIM_GETTER(row_title, plim_diff_row, plim_cell_text(row_text(r)))
PLIM_GETTER(row_name, plim_diff_row, r->name ? plim_cell_text(r->name) : (plim_cell){0})
PLIM_GETTER(event_word, plim_diff_event, plim_cell_text(r->frees ? "free" : "alloc"))
/* clang-format on */

#include "answers/diff.def"

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
    plim_flow_printf(&f, "event %s:", plim_fmt_count(e->index).s);
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
    plim_rows all = PLIM_FIGURE_ROWS(diff_category, d->categories, d->n_categories);
    plim_status st = PLIM_OK;
    plim_rows differing = PLIM_FIGURE_ROWS(diff_module, d->modules, modules);
    differing.hidden = told ? "line" : "name";
    if (!told) /* two recordings */
        return plim_report_table(p, "Lines that differ, at the peak", differing, err);
    plim_page_puts(p, "\nAt the peak, by category\n");
    st = plim_rows_text(p, &all, 2, err);
    if (!st)
        st = plim_report_table(p, "Modules that differ", differing, err);
    if (!st)
        st = plim_report_table(p, "Tensors that differ",
                               PLIM_FIGURE_ROWS(diff_row, d->tensors, tensors), err);
    return st;
}

static void verdict_text(plim_page *p, const plim_diff *d)
{
    plim_page_puts(p, "\n");
    plim_page_paint(p, d->differs ? PLIM_PAINT_BAD : PLIM_PAINT_GOOD);
    if (!d->events_known && !d->within)
        plim_page_puts(p, d->differs ? "They differ by more than the log's rounding.\n"
                                     : "They do not differ, as far as the log tells.\n");
    else if (!d->parts && d->events_known)
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
    plim_rows figures = PLIM_FIGURE_ROWS(diff_figure, d->figures, d->n_figures);
    if (p->style.quiet)
        return plim_rows_text(p, &figures, 0, err);
    side_line(p, "A  ", d->a);
    side_line(p, "B  ", d->b);
    plim_page_puts(p, "\n");
    plim_status st = plim_rows_text(p, &figures, 0, err);
    if (st)
        return st;
    if (!d->events_known) {
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

static plim_status diff_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    return plim_report_json(p, "plimsoll/diff/1", plim_diff_figures, subject, NULL);
}

static plim_status diff_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_diff *d = subject;
    const plim_rows tensors = PLIM_FIGURE_ROWS(diff_row, d->tensors, d->n_tensors);
    return plim_rows_csv(p, &tensors, err);
}

plim_status plim_diff_print(const plim_diff *d, plim_render r, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "diff", .text = diff_text, .json = diff_json, .csv = diff_csv};
    return plim_report_print(&report, d, r, st, put, ud, err);
}
