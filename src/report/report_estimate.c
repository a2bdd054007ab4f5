/* report_estimate.c -- the report of an estimate. */
#include "report/blocks.h"
#include "report/figures.h"

/* ---- the tensors that are live at the peak ------------------------------- */

/* A storage as the table in text has it: a plim_live to its figures. */
typedef struct live_row {
    plim_live of;
    const char *tensor; /* name.role */
} live_row;

static plim_cell cell_size(const plim_live *l)
{
    plim_cell c = plim_cell_u64(PLIM_CELL_BYTES, l->bytes);
    c.mark = l->certainty == PLIM_EXACT ? NULL : "~";
    return c;
}

/* Of a model that is counted in part only, what is counted may still be too much. */
enum { WITHIN, OVER, INCOMPLETE };
static int budget_verdict(const plim_estimate *e)
{
    return e->over_budget ? OVER : plim_report_whole(e->model) ? WITHIN : INCOMPLETE;
}

/* clang-format off */
PLIM_GETTER(live_tensor, live_row, plim_cell_text(r->tensor))
PLIM_GETTER(live_bytes, plim_live, cell_size(r))
PLIM_GETTER(memory_search, plim_estimate, plim_cell_bytes_if(r->search || !r->searched, r->search))
PLIM_GETTER(budget_within, plim_estimate, plim_cell_bool(budget_verdict(r) == WITHIN))
/* clang-format on */

#include "answers/estimate.def"

/* The n largest live storages as rows. */
static plim_rows live_rows(plim_page *p, const plim_estimate *e, uint32_t n)
{
    live_row *rows = PLIM_NEW_N(&p->arena, live_row, n);
    n = rows ? n : 0;
    p->buf.bad |= !rows;
    for (uint32_t i = 0; i < n; i++) {
        const plim_live *l = e->live[i];
        const char *name = l->name ? l->name : "", *role = l->role ? l->role : "";
        rows[i].of = *l;
        rows[i].tensor =
            plim_arena_printf(&p->arena, "%s%s%s", name, *name && *role ? "." : "", role).p;
    }
    plim_rows r = PLIM_FIGURE_ROWS(live, rows, n);
    r.size = sizeof *rows;
    return r;
}

/* ---- model and settings -------------------------------------------- */

/* A setting as the header of a report shows it; "": it is not shown. */
static const char *header_value(const plim_estimate *e, plim_setting_id id)
{
    const plim_setting_row *row = &plim_setting_rows[id];
    const char *text = e->settings->text[id].p;
    if (!text && id == PLIM_SET_dtype) /* of a model of several dtypes */
        text = plim_dtype_name(e->model->dtype);
    return !row->header || !text || (row->hidden && !strcmp(text, row->hidden)) ? "" : text;
}

/* "seq 1024 (default; the model allows 8192)"; {NULL, 0}: the model has none. */
static plim_str say_seq(plim_arena *a, const plim_estimate *e)
{
    const plim_model_info *m = e->model;
    bool given = e->settings->text[PLIM_SET_seq].p || e->settings->text[PLIM_SET_input].p;
    if (!m->seq)
        return (plim_str){NULL, 0};
    if (!m->seq_max || m->seq_max == m->seq)
        return plim_arena_printf(a, "seq %" PRId64 "%s", m->seq, given ? "" : " (default)");
    return plim_arena_printf(a, "seq %" PRId64 " (%sthe model allows %" PRId64 ")", m->seq,
                             given ? "" : "default; ", m->seq_max);
}

/* A setting as the line of settings has it; {NULL, 0}: it has not. */
static plim_str say_setting(plim_page *p, const plim_estimate *e, plim_setting_id id)
{
    const plim_setting_row *row = &plim_setting_rows[id];
    const char *value = header_value(e, id);
    if (id == PLIM_SET_seq)
        return say_seq(&p->arena, e);
    if (!*value)
        return (plim_str){NULL, 0};
    if (row->kind == PLIM_SETTING_SIZE)
        return plim_arena_printf(&p->arena, "%s%s", row->header,
                                 plim_fmt_bytes(e->gpu_bytes, p->style.si).s);
    return plim_arena_printf(&p->arena, "%s%s", row->header,
                             row->kind == PLIM_SETTING_FLAG ? "" : value);
}

void plim_report_settings_line(plim_page *p, const plim_estimate *const *list, uint32_t n)
{
    plim_line(p, plim_dot(p), 0);
    plim_block_paint(p, PLIM_PAINT_DIM);
    for (int i = 0; i < PLIM_SETTING_COUNT; i++) {
        plim_str said = say_setting(p, list[0], (plim_setting_id)i);
        bool same = said.p != NULL;
        for (uint32_t k = 1; k < n && same; k++) {
            plim_str other = say_setting(p, list[k], (plim_setting_id)i);
            same = other.p && plim_str_eq(other, said);
        }
        if (same)
            plim_say(p, "%s", said.p);
    }
}

/* ---- what is live at the peak -------------------------------------------- */

static void estimate_bars(plim_page *p, const plim_estimate *e)
{
    uint64_t most = 0;
    for (uint32_t c = 0; c < e->n_categories; c++)
        most = PLIM_MAX(most, e->category[c]);
    plim_bars(p, most);
    for (uint32_t c = 0; c < e->n_categories; c++)
        if (e->category[c])
            plim_bar_add(p, plim_category_name((plim_category)c), e->category[c],
                         plim_fmt_percent(e->category[c], e->peak_live_requested),
                         (plim_paint)(PLIM_PAINT_CATEGORY + c));
}

static void estimate_peak(plim_page *p, const plim_estimate *e)
{
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_BOLD, "Live at the peak:");
    plim_say_as(p, PLIM_PAINT_BOLD, "%s",
                plim_fmt_bytes(e->peak_live_requested, p->style.si).s);
    plim_say(p, "in");
    if (e->peak_step >= 0)
        plim_say(p, "step %d,", e->peak_step);
    plim_say(p, "%s", plim_phase_name(e->peak_phase));
    if (e->peak_op && *e->peak_op)
        plim_say(p, "at %s", e->peak_op);
    estimate_bars(p, e);
}

/* ---- the figures --------------------------------------------------- */

static plim_str estimate_bytes(plim_page *p, uint64_t n) { return plim_page_range(p, n, n); }

/* What determines the range of the reserved bytes. */
static const char *name_estimated(const plim_estimate *e)
{
    if (e->reserved_modelled)
        return "the driver's pool";
    if (e->reserved_waits)
        return "the timing of streams";
    for (uint32_t i = 0; i < e->n_live; i++)
        if (e->live[i]->certainty == PLIM_ESTIMATED &&
            e->live[i]->category != PLIM_CAT_WORKSPACE)
            return "estimates";
    return "workspace size";
}

/* The note after the reserved bytes, with their range if estimated sizes give one. */
static const char *estimate_reserved_note(plim_page *p, const plim_estimate *e)
{
    if (e->reserved_low == e->reserved_high)
        return "from CUDA";
    plim_str range = plim_page_range(p, e->reserved_low, e->reserved_high);
    return plim_page_format(p, "from CUDA; " PLIM_STR_FMT " by %s", PLIM_STR_ARG(range),
                            name_estimated(e));
}

static const char *estimate_device_note(plim_page *p, const plim_estimate *e)
{
    const bool measured =
        e->n_context_parts && strcmp(e->context_parts[0]->certainty, "assumed") != 0;
    return plim_page_format(p, "with %s context; usually %s",
                            measured ? "the CUDA" : "an assumed",
                            plim_fmt_bytes(e->device, p->style.si).s);
}

/* Under the figures: what the process has outside the allocator, if its parts are known. */
static void estimate_context(plim_page *p, const plim_estimate *e)
{
    const char *says = "Usually outside the allocator:";
    if (e->n_context_parts < 2)
        return;
    for (uint32_t i = 0; i < e->n_context_parts; i++)
        says = plim_page_format(p, "%s%s %s %s", says, i ? "," : "", e->context_parts[i]->name,
                                plim_fmt_bytes(e->context_parts[i]->usual, p->style.si).s);
    plim_paragraph(p, PLIM_PAINT_PLAIN, plim_page_format(p, "%s.", says), 2);
}

/* Under the figures: what the search of cuDNN does to them. */
static void estimate_search(plim_page *p, const plim_estimate *e)
{
    if (!e->searched)
        return;
    const char *says =
        "These figures leave out cuDNN's search for the fastest plan, which may "
        "briefly take all memory that is free.";
    if (e->search)
        says = plim_page_format(
            p,
            "device includes cuDNN's search for the fastest plan, which may briefly take all "
            "memory that is free; needed does not, since the search also works with less. "
            "Without the search, device ends at %s.",
            plim_fmt_bytes(e->device_high - e->search, p->style.si).s);
    plim_paragraph(p, PLIM_PAINT_PLAIN, says, 2);
}

static void estimate_figures(plim_page *p, const plim_estimate *e)
{
    const bool known = e->context_known;
    plim_apart(p);
    plim_facts(p, (plim_facts_style){.indent = 2, .name = 12, .bold = true});
    plim_fact_add(p, "requested", estimate_bytes(p, e->peak_requested), "by tensors");
    plim_fact_add(p, "allocated", estimate_bytes(p, e->peak_allocated),
                  "rounded up to blocks");
    plim_fact_add(p, "reserved", estimate_bytes(p, e->peak_reserved),
                  estimate_reserved_note(p, e));
    plim_fact_add(
        p, "device",
        known ? plim_page_range(p, e->device_low, e->device_high) : PLIM_STR("unknown"),
        known ? estimate_device_note(p, e) : "CUDA context size unknown for this card");
    if (e->fits != PLIM_FITS_NO_CARD)
        plim_fact_add(
            p, "needed",
            known ? plim_page_range(p, e->needed_low, e->needed_high) : PLIM_STR("unknown"),
            e->fits == PLIM_FITS_INCOMPLETE ? "the smallest memory what is counted fits in"
                                            : "the smallest memory it fits in");
    if (e->fits != PLIM_FITS_NO_CARD && e->margin)
        plim_fact_add(p, "margin", estimate_bytes(p, e->margin),
                      plim_page_format(p, "%s of reserved, for what is not simulated",
                                       e->settings->text[PLIM_SET_margin].p));
}

static void estimate_certainty(plim_page *p, const plim_estimate *e)
{
    if (!e->certainty[PLIM_ESTIMATED] && !e->certainty[PLIM_UNKNOWN_BYTES])
        return;
    plim_line(p, ", ", 2);
    for (uint32_t c = 0; c < e->n_certainties; c++)
        if (e->certainty[c])
            plim_say(p, "%s %s", plim_fmt_bytes(e->certainty[c], p->style.si).s,
                     plim_certainty_name((plim_certainty)c));
}

void plim_report_verdict(plim_page *p, const plim_report_card_fit *c)
{
    static const struct {
        plim_fits fits;
        plim_paint paint;
        const char *say;
    } rows[] = {{PLIM_FITS_YES, PLIM_PAINT_GOOD, "fits on"},
                {PLIM_FITS_NO, PLIM_PAINT_BAD, "does not fit on"},
                {PLIM_FITS_MAYBE, PLIM_PAINT_WARN, "may not fit on"},
                {PLIM_FITS_INCOMPLETE, PLIM_PAINT_WARN, "incomplete for"}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        if (c->fits != rows[i].fits)
            continue;
        plim_text bytes = plim_fmt_bytes(c->gpu_bytes, p->style.si);
        plim_line(p, " ", 2);
        plim_say_as(p, rows[i].paint, "%s", rows[i].say);
        plim_say(p, "%s", c->gpu ? c->gpu : "the card");
        if (!c->gpu || !strstr(c->gpu, bytes.s)) /* not after "a card of 2.00 GiB" */
            plim_say(p, "(%s%s)", c->gpu_exact ? "" : "~", bytes.s);
        if (c->fits == PLIM_FITS_MAYBE && !c->context_known)
            plim_say(p, "because its CUDA context size is unknown");
        if (c->fits == PLIM_FITS_INCOMPLETE)
            plim_say_glued(p, PLIM_PAINT_PLAIN, ": a part of the model is not counted");
        if (c->fits == PLIM_FITS_YES && c->headroom)
            plim_say(p, "with %s of headroom%s", plim_fmt_bytes(c->headroom, p->style.si).s,
                     c->short_of ? "," : "");
        if (c->fits == PLIM_FITS_YES && c->short_of)
            plim_say_as(p, PLIM_PAINT_WARN, "less than the margin of %s",
                        plim_fmt_bytes(c->short_of, p->style.si).s);
    }
}

void plim_report_tight(plim_page *p, const plim_buf *names, const plim_settings *s)
{
    if (names->n)
        plim_paragraph(
            p, PLIM_PAINT_DIM,
            plim_page_format(p, "fits without the margin of %s (--margin): " PLIM_STR_FMT,
                             s->text[PLIM_SET_margin].p, PLIM_STR_ARG(plim_buf_str(names))),
            0);
}

static void estimate_fit(plim_page *p, const plim_estimate *e)
{
    plim_report_verdict(p,
                        &(plim_report_card_fit){.fits = e->fits,
                                                .gpu = e->gpu,
                                                .gpu_bytes = e->gpu_bytes,
                                                .gpu_exact = e->gpu_exact,
                                                .context_known = e->context_known,
                                                .headroom = e->headroom,
                                                .short_of = e->margin_kept ? 0 : e->margin});
}

/* Whether the reserved bytes, at their upper bound, are within the budget. */
static void estimate_budget(plim_page *p, const plim_estimate *e)
{
    static const struct {
        plim_paint paint;
        const char *say;
    } rows[] = {[WITHIN] = {PLIM_PAINT_GOOD, "within"},
                [OVER] = {PLIM_PAINT_BAD, "over"},
                [INCOMPLETE] = {PLIM_PAINT_WARN, "incomplete for"}};
    const int verdict = budget_verdict(e);
    if (!e->budget_bytes)
        return;
    plim_line(p, " ", 2);
    plim_say_as(p, rows[verdict].paint, "%s the budget", rows[verdict].say);
    plim_say(p, "of %s", plim_fmt_bytes(e->budget_bytes, p->style.si).s);
    if (verdict == OVER)
        plim_say(p, "by %s",
                 plim_fmt_bytes(e->reserved_high - e->budget_bytes, p->style.si).s);
    else
        plim_say(p, "(%s)", plim_fmt_percent(e->reserved_high, e->budget_bytes).s);
    if (verdict == INCOMPLETE)
        plim_say_glued(p, PLIM_PAINT_PLAIN, ": a part of the model is not counted");
}

/* ---- quiet: name and value ----------------------------------------------- */

static void estimate_quiet(plim_page *p, const plim_estimate *e)
{
    const struct {
        const char *name;
        uint64_t n;
        bool known;
    } rows[] = {
        {"requested", e->peak_requested, true},
        {"allocated", e->peak_allocated, true},
        {"reserved", e->peak_reserved, true},
        {"device_low", e->device_low, e->context_known},
        {"device", e->device, e->context_known},
        {"device_high", e->device_high, e->context_known},
        {"reserved_low", e->reserved_low, true},
        {"reserved_high", e->reserved_high, true},
        {"margin", e->margin, true},
        {"needed_low", e->needed_low, e->context_known},
        {"needed_high", e->needed_high, e->context_known},
        {"memory", e->gpu_bytes, true},
        {"headroom", e->headroom, e->context_known && e->fits != PLIM_FITS_INCOMPLETE}};
    static const char *const budget_words[] = {"within", "over", "incomplete"};
    size_t n = PLIM_COUNT(rows) - (e->fits == PLIM_FITS_NO_CARD ? 4 : 0); /* those of a card */
    for (size_t i = 0; i < n; i++)
        if (rows[i].known)
            plim_value_u64(p, rows[i].name, rows[i].n);
        else
            plim_value_text(p, rows[i].name, "unknown");
    if (plim_report_fits(e->fits))
        plim_value_text(p, "fits", plim_report_fits(e->fits));
    if (e->fits == PLIM_FITS_YES)
        plim_value_text(p, "margin_kept", e->margin_kept ? "yes" : "no");
    if (e->budget_bytes)
        plim_value_text(p, "budget", budget_words[budget_verdict(e)]);
}

/* ---- the rest ------------------------------------------------------ */

static plim_status draw_timeline(plim_page *p, const void *estimate, plim_err *err)
{
    (void)err;
    plim_chart_timeline(p, estimate);
    return PLIM_OK;
}

static void estimate_timeline(plim_page *p, const plim_estimate *e)
{
    if (!e->n_buckets)
        return;
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_BOLD, "Timeline");
    plim_say(p, "%s",
             plim_page_glyph(p, "(\xe2\x96\x88 allocated, \xc2\xb7 reserved)",
                             "(# allocated, . reserved)"));
    plim_chart(p, draw_timeline, e);
}

static void estimate_live(plim_page *p, const plim_estimate *e)
{
    uint32_t n = PLIM_MIN(e->n_live, (uint32_t)p->style.top);
    if (!n)
        return;
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_BOLD, n == 1 ? "Largest tensor" : "Largest tensors");
    plim_say(p, "live at the peak (%" PRIu32 " of %" PRIu32 ")", n, e->n_live);
    plim_table(p, live_rows(p, e, n), 2);
}

static void estimate_unknown_ops(plim_page *p, const plim_estimate *e)
{
    if (!e->n_unknown_ops)
        return;
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_WARN,
                 e->n_unknown_ops == 1 ? "Op without a rule" : "Ops without a rule");
    plim_say_glued(p, PLIM_PAINT_PLAIN, ", counted with a bound:");
    plim_line(p, " ", 2);
    for (uint32_t i = 0; i < e->n_unknown_ops; i++)
        plim_say(p, "%s", e->unknown_ops[i]);
}

/* Only a model that computes its own loss leaves open what the loop does with the rest. */
static bool own_loss(const plim_estimate *e)
{
    static const char *const own[] = {"model", "linear_cross_entropy", "liger"};
    const char *loss = e->settings->text[PLIM_SET_loss].p;
    for (size_t i = 0; i < PLIM_COUNT(own) && loss; i++)
        if (!strcmp(loss, own[i]))
            return true;
    return false;
}

static plim_status estimate_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_estimate *e = subject;
    estimate_quiet(p, e);
    plim_report_model_line(p, e->model);
    plim_report_settings_line(p, &e, 1);
    plim_table_titled(p, "Ranks, worst first; the figures below are those of the worst",
                      PLIM_FIGURE_ROWS(rank, e->ranks, e->n_ranks));
    estimate_peak(p, e);
    estimate_certainty(p, e);
    estimate_figures(p, e);
    estimate_context(p, e);
    estimate_search(p, e);
    estimate_fit(p, e);
    estimate_budget(p, e);
    if (e->gpu)
        plim_report_step_time(p, &e->time, 2);
    estimate_timeline(p, e);
    estimate_live(p, e);
    estimate_unknown_ops(p, e);
    if (own_loss(e))
        plim_paragraph_apart(p, PLIM_PAINT_PLAIN, e->assumed);
    plim_paragraph_apart(p, PLIM_PAINT_BAD, e->oom ? e->oom_text : NULL);
    plim_paragraph_apart(p, PLIM_PAINT_BOLD, e->advice);
    plim_data(p, "plimsoll/estimate/1", plim_estimate_figures, e, NULL, 0);
    plim_picture(p, plim_timeline_svg, e);
    return PLIM_OK;
}

PLIM_ONE_MODEL(estimate_model, plim_estimate)

plim_status plim_estimate_print(const plim_estimate *e, plim_render r, const plim_style *st,
                                plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "estimate", .model = estimate_model, .build = estimate_build};
    return plim_report_print(&report, e, r, st, put, ud, err);
}
