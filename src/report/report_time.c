/* report_time.c -- the time of a step: one line of an estimate, and the list of what takes it. */
#include "report/report.h"

/* "41 ms (34-51 ms)", all in the unit of the greatest. */
static void flow_range(plim_flow *f, const char *about, const plim_step_time *t)
{
    double unit = t->high_ms >= 1000 ? 1000 : 1;
    const char *name = unit > 1 ? "s" : "ms";
    plim_flow_printf(f, "%s %s %s", about, plim_fmt_digits(t->usual_ms / unit).s, name);
    plim_flow_printf(f, "(%s-%s %s),", plim_fmt_digits(t->low_ms / unit).s,
                     plim_fmt_digits(t->high_ms / unit).s, name);
}

/* What limits most of the time. */
static const char *name_limit(const plim_step_time *t, double *share)
{
    *share = PLIM_MAX(t->memory, PLIM_MAX(t->computation, t->launch));
    return *share <= t->memory        ? "memory traffic"
           : *share <= t->computation ? "computation"
                                      : "kernel launches";
}

void plim_report_step_time(plim_page *p, const plim_step_time *t, uint32_t indent)
{
    plim_flow f = plim_flow_open(p, " ", indent);
    double share;
    if (t->unknown) {
        plim_flow_printf(&f, "step time unknown: %s", t->unknown);
        plim_flow_end(&f);
        return;
    }
    const char *limit = name_limit(t, &share);
    plim_flow_printf(&f, "step time, an estimate:");
    flow_range(&f, plim_page_glyph(p, "\xe2\x89\x88", "~"), t);
    if (t->samples_per_s > 0)
        plim_flow_printf(&f, "%s samples/s,", plim_fmt_digits(t->samples_per_s).s);
    plim_flow_printf(&f, "%u %% limited by %s", (unsigned)(share * 100 + 0.5), limit);
    plim_flow_end(&f);
}

static void json_real(plim_jw *w, const char *key, double v, bool known)
{
    plim_jw_key(w, key);
    if (known)
        plim_jw_f64(w, v);
    else
        plim_jw_null(w);
}

void plim_report_step_time_json(plim_jw *w, const plim_step_time *t)
{
    bool known = !t->unknown;
    plim_jw_key(w, "time");
    plim_jw_object(w);
    json_real(w, "low_ms", t->low_ms, known);
    json_real(w, "usual_ms", t->usual_ms, known);
    json_real(w, "high_ms", t->high_ms, known);
    json_real(w, "samples_per_s", t->samples_per_s, known && t->samples_per_s > 0);
    json_real(w, "computation", t->computation, known);
    json_real(w, "memory", t->memory, known);
    json_real(w, "launch", t->launch, known);
    plim_jw_key(w, "unknown");
    plim_jw_cstr(w, t->unknown);
    plim_jw_end(w);
}

/* ---- the list -------------------------------------------------------------- */

static plim_cell time_ms_cell(double ms)
{
    return ms > 0 ? (plim_cell){.kind = PLIM_CELL_REAL, .real = ms}
                  : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell macs_cell(uint64_t macs)
{
    return macs ? plim_cell_u64(PLIM_CELL_METRIC, macs) : plim_cell_text("");
}

/* clang-format off */
PLIM_GETTER(time_layer, plim_time_row, plim_cell_text(r->layer))
PLIM_GETTER(time_op, plim_time_row, plim_cell_text(r->op))
PLIM_GETTER(time_phase, plim_time_row, plim_cell_text(plim_phase_name(r->phase)))
PLIM_GETTER(time_work, plim_time_row, plim_cell_text(r->work))
PLIM_GETTER(time_dtype, plim_time_row, plim_cell_text(r->dtype))
PLIM_GETTER(time_macs, plim_time_row, plim_cell_u64(PLIM_CELL_COUNT, r->macs))
PLIM_GETTER(time_macs_text, plim_time_row, macs_cell(r->macs))
PLIM_GETTER(time_bytes, plim_time_row, plim_cell_u64(PLIM_CELL_BYTES, r->bytes))
PLIM_GETTER(time_kernels, plim_time_row, plim_cell_u64(PLIM_CELL_COUNT, r->kernels))
PLIM_GETTER(time_ms, plim_time_row, time_ms_cell(r->ms))
PLIM_GETTER(time_limit, plim_time_row, plim_cell_text(r->limit))

static const plim_column time_columns[] = {
    /* name    title         in            align          least drop get */
    PLIM_COLUMN("layer",   "layer",     PLIM_IN_BOTH, PLIM_CUT_HEAD, 14,   0,   time_layer),
    PLIM_COLUMN("op",      "op",        PLIM_IN_BOTH, PLIM_CUT_TAIL, 12,   5,   time_op),
    PLIM_COLUMN("phase",   "phase",     PLIM_IN_BOTH, PLIM_LEFT,     0,    1,   time_phase),
    PLIM_COLUMN("work",    "work",      PLIM_IN_DATA, PLIM_LEFT,     0,    4,   time_work),
    PLIM_COLUMN("dtype",   "dtype",     PLIM_IN_DATA, PLIM_LEFT,     0,    4,   time_dtype),
    PLIM_COLUMN("macs",    "",          PLIM_IN_DATA, PLIM_RIGHT,    0,    3,   time_macs),
    PLIM_COLUMN("",        "MACs",      PLIM_IN_TEXT, PLIM_RIGHT,    0,    3,   time_macs_text),
    PLIM_COLUMN("bytes",   "moved",     PLIM_IN_BOTH, PLIM_RIGHT,    0,    2,   time_bytes),
    PLIM_COLUMN("kernels", "",          PLIM_IN_DATA, PLIM_RIGHT,    0,    6,   time_kernels),
    PLIM_COLUMN("ms",      "ms",        PLIM_IN_BOTH, PLIM_RIGHT,    0,    0,   time_ms),
    PLIM_COLUMN("limit",   "limited by",PLIM_IN_BOTH, PLIM_LEFT,     0,    1,   time_limit),
};
/* clang-format on */
enum { TIME_OF_CARD = 2 }; /* the last columns of the text */

static plim_rows time_rows(const plim_times *t)
{
    return PLIM_ROWS_OF(time_columns, t->rows, t->n);
}

static plim_status times_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_times *t = subject;
    plim_rows r = time_rows(t);
    r.n = PLIM_MIN(r.n, (uint64_t)PLIM_MAX(p->style.top, 1));
    plim_report_model_line(p, t->model);
    plim_page_puts(p, "\n");
    if (t->gpu)
        plim_report_step_time(p, &t->step, 0);
    else
        plim_page_wrap(p,
                       "Times need a card, which --gpu names. Without one, the ops are "
                       "listed by the memory traffic that they cause.",
                       0);
    if (!r.n || !(t->rows[0]->ms > 0)) /* no row has a time */
        r.n_columns -= TIME_OF_CARD;
    plim_page_puts(p, "\n");
    plim_status st = plim_rows_text(p, &r, 0, err);
    if (!st && r.n < t->n)
        plim_buf_printf(&p->buf, "... and %" PRIu64 " more (--top)\n", t->n - r.n);
    return st;
}

static plim_status times_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_times *t = subject;
    const plim_rows r = time_rows(t);
    plim_jw w;
    plim_report_json_open(&w, p, "plimsoll/time/1", t->model);
    plim_jw_key(&w, "settings");
    plim_settings_write(&w, t->settings, "estimate");
    plim_jw_key(&w, "gpu");
    plim_jw_cstr(&w, t->gpu);
    plim_report_step_time_json(&w, &t->step);
    plim_rows_json(&w, "ops", &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status times_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_rows r = time_rows(subject);
    return plim_rows_csv(p, &r, err);
}

plim_status plim_times_print(const plim_times *t, plim_render r, const plim_style *st,
                             plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "time", .text = times_text, .json = times_json, .csv = times_csv};
    return plim_report_print(&report, t, r, st, put, ud, err);
}

plim_status plim_times_json(const plim_times *t, plim_put put, void *ud, plim_err *err)
{
    return plim_times_print(t, PLIM_JSON, NULL, put, ud, err);
}
