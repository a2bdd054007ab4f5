/* report_pretend.c -- what a program did to a card that does not exist. */
#include "report/report.h"

#include <stdio.h>

enum { GROUPS_SHOWN = 6 }; /* of one line */

static const char *const kinds[PLIM_CAT_COUNT] = {
    [PLIM_CAT_PARAMETER] = "Parameter", [PLIM_CAT_BUFFER] = "Buffer",
    [PLIM_CAT_GRADIENT] = "Gradient",   [PLIM_CAT_OPTIMIZER_STATE] = "Optimizer state",
    [PLIM_CAT_INPUT] = "Input",         [PLIM_CAT_ACTIVATION] = "Activation",
    [PLIM_CAT_TEMPORARY] = "Temporary", [PLIM_CAT_WORKSPACE] = "Workspace",
    [PLIM_CAT_OUTPUT] = "Output",
};

/* ---- phases ---------------------------------------------------------------- */

/* clang-format off */
PLIM_GETTER(phase_step, plim_phase_row, plim_cell_int(r->step))

static const plim_column phase_columns[] = {
    /* name            title            in            align       least drop get */
    {"step",           "step",          PLIM_IN_BOTH, PLIM_RIGHT, 0, 2, phase_step},
    {"phase",          "phase",         PLIM_IN_BOTH, PLIM_LEFT,  0, 0, plim_phase_get_phase},
    {"requested",      "",              PLIM_IN_DATA, PLIM_RIGHT, 0, 0, plim_phase_get_requested},
    {"allocated",      "allocated",     PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, plim_phase_get_allocated},
    {"reserved",       "reserved",      PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, plim_phase_get_reserved},
    {"peak_requested", "",              PLIM_IN_DATA, PLIM_RIGHT, 0, 0, plim_phase_get_peak_requested},
    {"peak_allocated", "peak allocated", PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, plim_phase_get_peak_allocated},
    {"peak_reserved",  "",              PLIM_IN_DATA, PLIM_RIGHT, 0, 0, plim_phase_get_peak_reserved},
};
/* clang-format on */

static plim_rows phase_rows(const plim_pretend_report *r, uint32_t n)
{
    return (plim_rows){.columns = phase_columns,
                       .n_columns = PLIM_COUNT(phase_columns),
                       .items = r->phases,
                       .size = sizeof *r->phases,
                       .n = PLIM_MIN(n, r->n_phases)};
}

/* ---- text ------------------------------------------------------------------ */

static plim_str shape_text(plim_page *p, const plim_pretend_tensors *t)
{
    plim_buf b;
    plim_buf_init(&b, &p->arena);
    if (t->rank < 0) {
        plim_buf_printf(&b, "%" PRIu64 " bytes", t->count ? t->bytes / t->count : 0);
        return plim_buf_str(&b);
    }
    plim_buf_puts(&b, "(");
    for (int i = 0; i < t->rank; i++)
        plim_buf_printf(&b, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    plim_buf_puts(&b, t->rank == 1 ? ",)" : ")");
    return plim_buf_str(&b);
}

/* As gpu_mem_track prints them. */
static void print_groups(plim_page *p, const plim_pretend_report *r, uint32_t line)
{
    uint32_t shown = 0, more = 0;
    uint64_t rest = 0;
    for (uint32_t i = 0; i < r->n_tensors; i++) {
        const plim_pretend_tensors *t = &r->tensors[i];
        if (t->line != line)
            continue;
        if (++shown > GROUPS_SHOWN) {
            more++;
            rest += t->bytes;
            continue;
        }
        plim_str shape = shape_text(p, t);
        plim_buf_printf(&p->buf, "    + | %" PRIu32 " * Size:" PLIM_STR_FMT " | %s | %s\n",
                        t->count, PLIM_STR_ARG(shape), plim_fmt_metric(t->bytes).s,
                        kinds[t->category]);
    }
    if (more)
        plim_buf_printf(&p->buf, "    + | %" PRIu32 " more | %s\n", more,
                        plim_fmt_metric(rest).s);
}

static const char *line_name(const char *line) { return *line ? line : "(no line)"; }

static void print_lines(plim_page *p, const plim_pretend_report *r)
{
    uint32_t top = (uint32_t)p->style.top, n = 0;
    plim_page_puts(p, "\nLive at the peak, by line\n");
    for (; n < r->n_lines && n < top && r->lines[n].live; n++) {
        plim_page_puts(p, "  ");
        plim_page_paint(p, PLIM_PAINT_BOLD);
        plim_buf_add(&p->buf, plim_page_clean(p, line_name(r->lines[n].line)));
        plim_page_paint(p, PLIM_PAINT_PLAIN);
        plim_buf_printf(&p->buf, "  %s\n", plim_fmt_bytes(r->lines[n].live, p->style.si).s);
        print_groups(p, r, n);
    }
    uint64_t rest = 0;
    uint32_t more = 0;
    for (uint32_t i = n; i < r->n_lines; i++) {
        rest += r->lines[i].live;
        more += r->lines[i].live > 0;
    }
    if (more)
        plim_buf_printf(&p->buf, "  and %" PRIu32 " more lines  %s\n", more,
                        plim_fmt_bytes(rest, p->style.si).s);
}

static void print_verdict(plim_page *p, const plim_pretend_report *r)
{
    bool oom = r->oom_text != NULL;
    plim_page_paint(p, oom ? PLIM_PAINT_BAD : PLIM_PAINT_GOOD);
    if (oom)
        plim_buf_printf(&p->buf, "Out of memory at " PLIM_STR_FMT,
                        PLIM_STR_ARG(plim_page_clean(p, line_name(r->oom_line))));
    else
        plim_page_puts(p, "It fits");
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_page_puts(p, "\n");
    if (oom)
        plim_page_wrap(p, r->oom_text, 2);
}

static void print_figures(plim_page *p, const plim_pretend_report *r)
{
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {{"requested", r->peak_requested},
                {"allocated", r->peak_allocated},
                {"reserved", r->peak_reserved}};
    plim_page_puts(p, "\nPeak\n");
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        plim_buf_printf(&p->buf, "  %-10s %12s  %s bytes\n", rows[i].name,
                        plim_fmt_bytes(rows[i].bytes, p->style.si).s,
                        plim_fmt_count(rows[i].bytes).s);
    if (r->context_known) {
        plim_str range = plim_page_range(p, r->peak_reserved + r->context_low,
                                         r->peak_reserved + r->context_high);
        plim_buf_printf(&p->buf, "  %-10s %12.*s  with the CUDA context\n", "device",
                        PLIM_STR_ARG(range));
    }
    plim_buf_printf(&p->buf, "  in step %d, %s", r->peak_step, plim_phase_name(r->peak_phase));
    if (*r->peak_op)
        plim_buf_printf(&p->buf, " (" PLIM_STR_FMT ")",
                        PLIM_STR_ARG(plim_page_clean(p, r->peak_op)));
    plim_buf_printf(&p->buf, ", %s\n", line_name(r->peak_line));
}

static void print_caveats(plim_page *p, const plim_pretend_report *r)
{
    if (r->truncated)
        plim_page_wrap(p,
                       "\nThe story was too long to keep: what was live at the peak is as "
                       "of its first part.",
                       0);
    if (!r->n_caveats)
        return;
    plim_page_puts(p, "\nRemarks\n");
    for (uint32_t i = 0; i < r->n_caveats; i++)
        plim_buf_printf(&p->buf, "  " PLIM_STR_FMT "%s" PLIM_STR_FMT " (%s x)\n",
                        PLIM_STR_ARG(plim_page_clean(p, r->caveats[i].line)),
                        *r->caveats[i].line ? "  " : "",
                        PLIM_STR_ARG(plim_page_clean(p, r->caveats[i].what)),
                        plim_fmt_count(r->caveats[i].count).s);
}

static plim_status run_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_pretend_report *r = subject;
    enum { PHASES_SHOWN = 24 };
    if (p->style.quiet) {
        plim_buf_printf(&p->buf,
                        "peak_requested %" PRIu64 "\npeak_allocated %" PRIu64
                        "\npeak_reserved %" PRIu64 "\nnum_ooms %" PRIu64 "\n",
                        r->peak_requested, r->peak_allocated, r->peak_reserved, r->num_ooms);
        return PLIM_OK;
    }
    const char *name = plim_report_card(r->card.name);
    plim_buf_printf(&p->buf, "%s", name);
    if (!strstr(name, "iB")) /* a generic card is called by its size */
        plim_buf_printf(&p->buf, ", %s", plim_fmt_bytes(r->card.total, p->style.si).s);
    plim_buf_printf(&p->buf, " %s PyTorch %s\n", plim_page_glyph(p, "\xc2\xb7", "|"),
                    r->card.torch);
    print_verdict(p, r);
    if (!r->storages) {
        plim_page_puts(p, "Nothing was asked of the card.\n");
        print_caveats(p, r);
        return PLIM_OK;
    }
    print_figures(p, r);
    print_lines(p, r);
    plim_page_puts(p, r->n_phases > PHASES_SHOWN ? "\nThe first phases\n" : "\nPhases\n");
    plim_rows phases = phase_rows(r, PHASES_SHOWN);
    plim_status st = plim_rows_text(p, &phases, 2, err);
    if (!st)
        print_caveats(p, r);
    return st;
}

/* ---- JSON ------------------------------------------------------------------ */

static void json_card(plim_jw *w, const plim_pretend_report *r)
{
    plim_jw_key(w, "card");
    plim_jw_object(w);
    plim_jw_key(w, "name");
    plim_jw_cstr(w, r->card.name);
    plim_jw_key(w, "bytes");
    plim_jw_u64(w, r->card.total);
    plim_jw_key(w, "context_low");
    plim_jw_u64(w, r->context_low);
    plim_jw_key(w, "context_high");
    plim_jw_u64(w, r->context_high);
    plim_jw_end(w);
    plim_jw_key(w, "torch");
    plim_jw_cstr(w, r->card.torch);
}

static void json_peak(plim_jw *w, const plim_pretend_report *r)
{
    plim_jw_key(w, "peak");
    plim_jw_object(w);
    plim_jw_key(w, "step");
    plim_jw_i64(w, r->peak_step);
    plim_jw_key(w, "phase");
    plim_jw_cstr(w, plim_phase_name(r->peak_phase));
    plim_jw_key(w, "op");
    plim_jw_cstr(w, r->peak_op);
    plim_jw_key(w, "line");
    plim_jw_cstr(w, r->peak_line);
    for (int i = 0; i < PLIM_CAT_COUNT; i++) {
        plim_jw_key(w, plim_category_name((plim_category)i));
        plim_jw_u64(w, r->category[i]);
    }
    plim_jw_end(w);
}

static void json_tensors(plim_jw *w, const plim_pretend_report *r, uint32_t line)
{
    plim_jw_key(w, "tensors");
    plim_jw_array(w);
    for (uint32_t i = 0; i < r->n_tensors; i++) {
        const plim_pretend_tensors *t = &r->tensors[i];
        if (t->line != line)
            continue;
        plim_jw_object(w);
        plim_jw_key(w, "count");
        plim_jw_u64(w, t->count);
        plim_jw_key(w, "category");
        plim_jw_cstr(w, plim_category_name(t->category));
        plim_jw_key(w, "dtype");
        plim_jw_cstr(w, t->dtype < 0 ? NULL : plim_dtype_name((plim_dtype)t->dtype));
        plim_jw_key(w, "shape");
        if (t->rank < 0) {
            plim_jw_null(w);
        } else {
            plim_jw_array(w);
            for (int k = 0; k < t->rank; k++)
                plim_jw_i64(w, t->dim[k]);
            plim_jw_end(w);
        }
        plim_jw_key(w, "bytes");
        plim_jw_u64(w, t->bytes);
        plim_jw_end(w);
    }
    plim_jw_end(w);
}

static void json_lines(plim_jw *w, const plim_pretend_report *r)
{
    plim_jw_key(w, "lines");
    plim_jw_array(w);
    for (uint32_t i = 0; i < r->n_lines; i++) {
        plim_jw_object(w);
        plim_jw_key(w, "line");
        plim_jw_cstr(w, *r->lines[i].line ? r->lines[i].line : NULL);
        plim_jw_key(w, "allocations");
        plim_jw_u64(w, r->lines[i].allocations);
        plim_jw_key(w, "requested");
        plim_jw_u64(w, r->lines[i].requested);
        plim_jw_key(w, "live_at_peak");
        plim_jw_u64(w, r->lines[i].live);
        json_tensors(w, r, i);
        plim_jw_end(w);
    }
    plim_jw_end(w);
}

static void json_caveats(plim_jw *w, const plim_pretend_report *r)
{
    plim_jw_key(w, "caveats");
    plim_jw_array(w);
    for (uint32_t i = 0; i < r->n_caveats; i++) {
        plim_jw_object(w);
        plim_jw_key(w, "line");
        plim_jw_cstr(w, r->caveats[i].line);
        plim_jw_key(w, "what");
        plim_jw_cstr(w, r->caveats[i].what);
        plim_jw_key(w, "count");
        plim_jw_u64(w, r->caveats[i].count);
        plim_jw_end(w);
    }
    plim_jw_end(w);
}

static plim_status run_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_pretend_report *r = subject;
    const struct {
        const char *key;
        uint64_t n;
    } numbers[] = {{"peak_requested", r->peak_requested},
                   {"peak_allocated", r->peak_allocated},
                   {"peak_reserved", r->peak_reserved},
                   {"events", r->events},
                   {"storages", r->storages},
                   {"num_ooms", r->num_ooms},
                   {"num_alloc_retries", r->num_alloc_retries}};
    plim_jw w;
    plim_rows phases = phase_rows(r, r->n_phases);
    plim_report_json_open(&w, p, "plimsoll/run/1", NULL);
    json_card(&w, r);
    for (size_t i = 0; i < PLIM_COUNT(numbers); i++) {
        plim_jw_key(&w, numbers[i].key);
        plim_jw_u64(&w, numbers[i].n);
    }
    plim_jw_key(&w, "truncated");
    plim_jw_bool(&w, r->truncated);
    json_peak(&w, r);
    json_lines(&w, r);
    plim_rows_json(&w, "phases", &phases);
    json_caveats(&w, r);
    plim_jw_key(&w, "oom_line");
    plim_jw_cstr(&w, r->oom_line);
    plim_jw_key(&w, "oom_text");
    plim_jw_cstr(&w, r->oom_text);
    plim_report_json_close(&w);
    return PLIM_OK;
}

plim_status plim_pretend_report_print(const plim_pretend_report *r, plim_render how,
                                      const plim_style *st, plim_put put, void *ud,
                                      plim_err *err)
{
    static const plim_report report = {"run", run_text, run_json, NULL};
    return plim_report_print(&report, r, how, st, put, ud, err);
}
