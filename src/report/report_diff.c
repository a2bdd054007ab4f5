/* report_diff.c -- two runs side by side: figures, what is live at the peaks, where they part and
 * why. */
#include "report/blocks.h"
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

/* ---- blocks --------------------------------------------------------------------- */

static void side_line(plim_page *p, const char *lead, const plim_diff_side *s)
{
    plim_line_lead(p, plim_dot(p), lead);
    plim_say_as(p, PLIM_PAINT_BOLD, "%s", s->name);
    plim_say(p, "%s", s->format);
    if (s->source)
        plim_say(p, "figures of %s", s->source);
    else
        plim_say(p, "%s events", plim_fmt_count(s->events).s);
    if (s->phases_known && s->peak_step >= 0)
        plim_say(p, "peak in step %d, %s%s%s", s->peak_step, plim_phase_name(s->peak_phase),
                 *s->peak_op ? ", " : "", s->peak_op);
    else if (*s->peak_op)
        plim_say(p, "peak at %s", s->peak_op);
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
        {d->resized, "differ in size"}, {d->only_a, "only in A"}, {d->only_b, "only in B"}};
    plim_apart(p);
    plim_line(p, plim_dot(p), 0);
    plim_say(p, "%s events are equal", plim_fmt_count(d->equal).s);
    for (size_t i = 0; i < PLIM_COUNT(parts); i++)
        if (parts[i].n)
            plim_say(p, "%s %s", plim_fmt_count(parts[i].n).s, parts[i].says);
}

/* "A  allocates 9.00 MiB for 'fc.out' (activation) in step 0, forward, fc". */
static void event_line(plim_page *p, const char *lead, const plim_diff_event *e)
{
    plim_line_lead(p, " ", lead);
    if (!e) {
        plim_say(p, "has ended");
        return;
    }
    bool lines = !strcmp(e->category, "unknown");
    plim_say(p, "event %s:", plim_fmt_count(e->index).s);
    plim_say(p, e->frees ? "frees %s" : "allocates %s",
             plim_fmt_bytes(e->bytes, p->style.si).s);
    if (*e->name && !lines)
        plim_say(p, e->frees ? "of '%s' (%s)" : "for '%s' (%s)", e->name, e->category);
    if (e->phase_known && e->step >= 0)
        plim_say(p, "in step %d, %s%s%s", e->step, plim_phase_name(e->phase),
                 *e->where ? ", " : "", e->where);
    else if (e->phase_known)
        plim_say(p, "before the first step");
    else if (*e->where)
        plim_say(p, e->frees ? "allocated at %s" : "at %s", e->where);
}

static void parting_text(plim_page *p, const plim_diff *d)
{
    if (!d->parts)
        return;
    plim_heading_apart(p, "First difference");
    event_line(p, "  A  ", d->first_a);
    event_line(p, "  B  ", d->first_b);
    if (d->last) {
        plim_paragraph(p, PLIM_PAINT_DIM, "before it, in both:", 2);
        event_line(p, "     ", d->last);
        plim_block_paint(p, PLIM_PAINT_DIM);
    }
}

static void causes_text(plim_page *p, const plim_diff *d)
{
    if (d->n_causes) {
        plim_heading_apart(p, d->n_causes == 1 ? "Likely cause" : "Likely causes");
    } else if (d->parts) {
        plim_paragraph_apart(p, PLIM_PAINT_PLAIN, "The cause is not known.");
    }
    for (uint32_t i = 0; i < d->n_causes; i++)
        plim_paragraph(p, PLIM_PAINT_PLAIN, d->causes[i]->text, 2);
}

static void peak_tables(plim_page *p, const plim_diff *d)
{
    uint32_t modules = count_differing(d->modules, d->n_modules);
    uint32_t tensors = count_differing(d->tensors, d->n_tensors);
    bool told = d->n_categories > 1 ||
                (d->n_categories && strcmp(d->categories[0]->category, "unknown") != 0);
    plim_rows differing = PLIM_FIGURE_ROWS(diff_module, d->modules, modules);
    differing.hidden = told ? "line" : "name";
    if (!told) { /* two recordings */
        plim_table_titled(p, "Lines that differ, at the peak", differing);
        return;
    }
    plim_heading_apart(p, "At the peak, by category");
    plim_table(p, PLIM_FIGURE_ROWS(diff_category, d->categories, d->n_categories), 2);
    plim_table_titled(p, "Modules that differ", differing);
    plim_table_titled(p, "Tensors that differ",
                      PLIM_FIGURE_ROWS(diff_row, d->tensors, tensors));
}

static const char *verdict_of(plim_page *p, const plim_diff *d)
{
    if (!d->events_known && !d->within)
        return d->differs ? "They differ by more than the log's rounding."
                          : "They do not differ, as far as the log says.";
    if (!d->parts && d->events_known)
        return "They do not differ.";
    return !d->within ? "They differ."
                      : plim_page_format(p, "The peaks differ by %s than %s.",
                                         d->differs ? "more" : "no more", d->within);
}

static plim_status diff_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_diff *d = subject;
    side_line(p, "A  ", d->a);
    side_line(p, "B  ", d->b);
    plim_table_main(p, PLIM_FIGURE_ROWS(diff_figure, d->figures, d->n_figures));
    if (d->events_known) {
        counts_line(p, d);
        peak_tables(p, d);
        parting_text(p, d);
        causes_text(p, d);
    }
    plim_paragraph_apart(p, d->differs ? PLIM_PAINT_BAD : PLIM_PAINT_GOOD, verdict_of(p, d));
    plim_if_unknown(p, "- unknown");
    plim_data(p, "plimsoll/diff/1", plim_diff_figures, d, NULL, 0);
    plim_sheet(p, PLIM_FIGURE_ROWS(diff_row, d->tensors, d->n_tensors));
    return PLIM_OK;
}

plim_status plim_diff_print(const plim_diff *d, plim_render r, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "diff", .build = diff_build};
    return plim_report_print(&report, d, r, st, put, ud, err);
}
