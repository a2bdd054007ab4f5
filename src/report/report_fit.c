/* report_fit.c -- reports of the largest batch per card, of memory by batch, and of
 * checkpointed segments. */
#include "report/report.h"

/* ---- fit ----------------------------------------------------------------- */

/* Whether the sequence length was searched for, and not the batch. */
static bool finds_seq(const plim_fit *f)
{
    const char *what = f->settings->text[PLIM_SET_find].p;
    return what && !strcmp(what, "seq");
}

/* Where the batch is searched for, batch_usual is at least batch. */
static bool searched_seq(const plim_fit_row *r) { return r->batch && !r->batch_usual; }

static plim_cell fit_found(const plim_fit_row *r, int64_t n)
{
    plim_cell c = n ? plim_cell_int(n) : plim_cell_text("none");
    c.mark = r->limited ? ">=" : n && !r->context_known ? "<=" : NULL;
    return c;
}

static plim_cell fit_device(const plim_fit_row *r)
{
    return r->context_known ? plim_cell_range(r->device_low, r->device_high)
                            : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

/* What the card has beyond the needs of the batch, at the upper bounds. */
static plim_cell fit_headroom(const plim_fit_row *r)
{
    return r->fits ? plim_cell_bytes_if(r->context_known,
                                        r->gpu_bytes - PLIM_MIN(r->gpu_bytes, r->needed_high))
                   : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell fit_reserved(const plim_fit_row *r)
{
    return plim_cell_range(r->reserved_low, r->reserved_high);
}

static plim_cell fit_margin(const plim_fit_row *r)
{
    return r->fits ? fit_headroom(r) : plim_cell_text("");
}

/* clang-format off */
PLIM_GETTER(fit_get_card, plim_fit_row, plim_cell_text(plim_report_card(r->gpu)))
PLIM_GETTER(fit_get_gpu, plim_fit_row, plim_cell_text(r->gpu))
PLIM_GETTER(fit_get_memory, plim_fit_row, plim_cell_card(r->gpu_bytes, r->gpu_exact))
PLIM_GETTER(fit_get_exact, plim_fit_row, plim_cell_bool(r->gpu_exact))
PLIM_GETTER(fit_get_batch, plim_fit_row, fit_found(r, r->batch))
PLIM_GETTER(fit_get_number, plim_fit_row, plim_cell_int(r->batch))
PLIM_GETTER(fit_get_usual, plim_fit_row, r->batch_usual ? plim_cell_int(r->batch_usual) : plim_cell_text("none"))
PLIM_GETTER(fit_get_usual_number, plim_fit_row, searched_seq(r) ? (plim_cell){0} : plim_cell_int(r->batch_usual))
PLIM_GETTER(fit_get_seq, plim_fit_row, fit_found(r, r->seq))
PLIM_GETTER(fit_get_seq_number, plim_fit_row, searched_seq(r) ? plim_cell_int(r->seq) : (plim_cell){0})
PLIM_GETTER(fit_get_seq_usual, plim_fit_row, r->seq_usual ? plim_cell_int(r->seq_usual) : plim_cell_text("none"))
PLIM_GETTER(fit_get_seq_usual_number, plim_fit_row, searched_seq(r) ? plim_cell_int(r->seq_usual) : (plim_cell){0})
PLIM_GETTER(fit_get_limited, plim_fit_row, plim_cell_bool(r->limited))
PLIM_GETTER(fit_get_at_most, plim_fit_row, plim_cell_bool(!r->context_known))
PLIM_GETTER(fit_get_reserved, plim_fit_row, plim_cell_u64(PLIM_CELL_BYTES, r->reserved))
PLIM_GETTER(fit_get_device, plim_fit_row, fit_device(r))
PLIM_GETTER(fit_get_low, plim_fit_row, plim_cell_bytes_if(r->context_known, r->device_low))
PLIM_GETTER(fit_get_high, plim_fit_row, plim_cell_bytes_if(r->context_known, r->device_high))
PLIM_GETTER(fit_get_margin, plim_fit_row, fit_margin(r))
PLIM_GETTER(fit_get_reserved_range, plim_fit_row, fit_reserved(r))
PLIM_GETTER(fit_get_reserved_low, plim_fit_row, plim_cell_u64(PLIM_CELL_BYTES, r->reserved_low))
PLIM_GETTER(fit_get_reserved_high, plim_fit_row, plim_cell_u64(PLIM_CELL_BYTES, r->reserved_high))
PLIM_GETTER(fit_get_headroom, plim_fit_row, fit_headroom(r))
PLIM_GETTER(fit_get_speed, plim_fit_row, plim_cell_digits(r->samples_per_s))
PLIM_GETTER(fit_get_price, plim_fit_row, plim_report_price(r->price_usd))
PLIM_GETTER(fit_get_price_per, plim_fit_row, plim_report_price_per(r->price_usd, r->samples_per_s))
PLIM_GETTER(fit_get_needed_low, plim_fit_row, plim_cell_bytes_if(r->context_known, r->needed_low))
PLIM_GETTER(fit_get_needed_high, plim_fit_row, plim_cell_bytes_if(r->context_known, r->needed_high))

/* What is found is the batch, or the sequence length; the last columns are PLIM_SPEED_COLUMNS. */
#define FIT_COLUMNS(found, get, get_usual) \
    /* name         title      in            align         least drop get */ \
    {"gpu",         "card",     PLIM_IN_TEXT, PLIM_CUT_TAIL, 26, 0, fit_get_card}, \
    {"gpu",         "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_gpu}, \
    {"gpu_bytes",   "memory",   PLIM_IN_BOTH, PLIM_RIGHT,    0,  3, fit_get_memory}, \
    {"gpu_exact",   "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_exact}, \
    {found,         found,      PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, get}, \
    {"batch",       "",         PLIM_IN_DATA, PLIM_RIGHT,    0,  0, fit_get_number}, \
    {found "_usual", "usual",   PLIM_IN_TEXT, PLIM_RIGHT,    0,  1, get_usual}, \
    {"limited",     "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_limited}, \
    {"at_most",     "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_at_most}, \
    {"reserved",    "reserved", PLIM_IN_TEXT, PLIM_RIGHT,    0,  4, fit_get_reserved_range}, \
    {"reserved",    "",         PLIM_IN_DATA, PLIM_RIGHT,    0,  0, fit_get_reserved}, \
    {"device",      "device",   PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, fit_get_device}, \
    {"device_low",  "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_low}, \
    {"device_high", "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_high}, \
    {"margin",      "margin",   PLIM_IN_TEXT, PLIM_RIGHT,    0,  2, fit_get_margin}, \
    {"reserved_low", "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_reserved_low}, \
    {"reserved_high", "",       PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_reserved_high}, \
    {"needed_low",  "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_needed_low}, \
    {"needed_high", "",         PLIM_IN_DATA, PLIM_LEFT,     0,  0, fit_get_needed_high}, \
    {"batch_usual", "",         PLIM_IN_DATA, PLIM_RIGHT,    0,  0, fit_get_usual_number}, \
    {"margin",      "",         PLIM_IN_DATA, PLIM_RIGHT,    0,  0, fit_get_headroom}, \
    {"seq",         "",         PLIM_IN_DATA, PLIM_RIGHT,    0,  0, fit_get_seq_number}, \
    {"seq_usual",   "",         PLIM_IN_DATA, PLIM_RIGHT,    0,  0, fit_get_seq_usual_number}, \
    {"samples_per_s", "samples/s", PLIM_IN_BOTH, PLIM_RIGHT, 0,  0, fit_get_speed}, \
    PLIM_PRICE_COLUMNS(fit_get_price, fit_get_price_per)

static const plim_column batch_found[] = {FIT_COLUMNS("batch", fit_get_batch, fit_get_usual)};
static const plim_column seq_found[] = {FIT_COLUMNS("seq", fit_get_seq, fit_get_seq_usual)};
/* clang-format on */

#define FIT_ORDERS(found)                                                                     \
    {"throughput", "samples_per_s", false, NULL}, {"headroom", "margin", false, NULL},        \
        {"price", PLIM_PRICE_PER, true, "gpu," found ",samples_per_s," PLIM_PRICE_SHOWN},     \
    {                                                                                         \
        "batch", found, false, NULL                                                           \
    }

enum { FIT_ORDER_COUNT = 4 };
static const plim_order batch_orders[FIT_ORDER_COUNT] = {FIT_ORDERS("batch")};
static const plim_order seq_orders[FIT_ORDER_COUNT] = {FIT_ORDERS("seq")};

/* A sentence with this word in the two places of the format. */
static const char *say_what(plim_page *p, const char *format, const char *what)
{
    plim_str s = plim_arena_printf(&p->arena, format, what, what);
    return s.p ? s.p : "";
}

static void fit_notes(plim_page *p, const plim_fit *f, bool sizes)
{
    const char *what = finds_seq(f) ? "sequence" : "batch";
    bool beyond = false, none = false, limited = false, marketed = false, known = false,
         unknown = false;
    for (uint32_t i = 0; i < f->n; i++) {
        none |= !f->rows[i]->fits;
        beyond |= f->model->seq_max && f->rows[i]->seq > f->model->seq_max;
        limited |= f->rows[i]->limited;
        marketed |= !f->rows[i]->gpu_exact;
        known |= f->rows[i]->context_known;
        unknown |= !f->rows[i]->context_known;
    }
    const struct {
        bool say;
        const char *what;
    } notes[] = {
        {none, say_what(p, "none: not even %s fits; the figures are those of %s",
                        finds_seq(f) ? "one token" : "batch 1")},
        {known && sizes,
         say_what(p, "usual: the %s at the usual sizes, without a margin; it may fail", what)},
        {beyond, "a sequence is longer than the model was made for"},
        {limited, ">= a lower bound: limited by the search or the model, not the card"},
        {unknown, "<= an upper bound: the CUDA context size of this card is unknown"},
        {marketed, "~ estimated from the marketed size, not reported by a driver"},
        {p->unknowns, "- unknown"},
    };
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_DIM);
    if (known && sizes)
        plim_page_wrap(
            p,
            say_what(p,
                     "device: reserved by the allocator plus the CUDA context, lower to upper "
                     "bound; the %s fits with both at their upper bounds; margin: what the "
                     "card has beyond the memory that the %s needs then",
                     what),
            0);
    for (size_t i = 0; i < PLIM_COUNT(notes); i++)
        if (notes[i].say)
            plim_page_wrap(p, notes[i].what, 0);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
}

/* Text has no column for a speed that is known of no card. */
static plim_status fit_rows(plim_page *p, const plim_fit *f, uint8_t in, plim_rows *out,
                            plim_err *err)
{
    bool timed = false;
    for (uint32_t i = 0; i < f->n; i++)
        timed |= f->rows[i]->samples_per_s > 0;
    *out = finds_seq(f) ? PLIM_ROWS_OF(seq_found, f->rows, f->n)
                        : PLIM_ROWS_OF(batch_found, f->rows, f->n);
    if (in == PLIM_IN_TEXT && !timed && !p->style.sort)
        out->n_columns -= PLIM_SPEED_COLUMNS;
    return plim_rows_order(p, out, finds_seq(f) ? seq_orders : batch_orders, FIT_ORDER_COUNT,
                           p->style.sort, err);
}

static plim_status fit_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_fit *f = subject;
    plim_rows r;
    plim_status st = fit_rows(p, f, PLIM_IN_TEXT, &r, err);
    if (!st && !p->style.quiet) {
        plim_report_model_line(p, f->model);
        plim_page_puts(p, "\n");
    }
    if (!st)
        st = plim_rows_text(p, &r, 0, err);
    if (!st && !p->style.quiet)
        fit_notes(p, f, !r.only);
    if (!st && !p->style.quiet)
        plim_report_paragraph(p, PLIM_PAINT_WARN, f->model->note);
    return st;
}

static plim_status fit_json(plim_page *p, const void *subject, plim_err *err)
{
    const plim_fit *f = subject;
    plim_rows r;
    plim_jw w;
    plim_status st = fit_rows(p, f, PLIM_IN_DATA, &r, err);
    if (st)
        return st;
    plim_report_json_open(&w, p, "plimsoll/fit/1", f->model);
    plim_jw_key(&w, "settings");
    plim_settings_write(&w, f->settings, "fit");
    plim_rows_json(&w, "cards", &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status fit_csv(plim_page *p, const void *subject, plim_err *err)
{
    plim_rows r;
    plim_status st = fit_rows(p, subject, PLIM_IN_DATA, &r, err);
    r.only = NULL; /* which is for text */
    return st ? st : plim_rows_csv(p, &r, err);
}

plim_status plim_fit_print(const plim_fit *f, plim_render r, const plim_style *st,
                           plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "fit", .text = fit_text, .json = fit_json, .csv = fit_csv};
    return plim_report_print(&report, f, r, st, put, ud, err);
}

plim_status plim_fit_json(const plim_fit *f, plim_put put, void *ud, plim_err *err)
{
    return plim_fit_print(f, PLIM_JSON, NULL, put, ud, err);
}

/* ---- batches ------------------------------------------------------------- */

/* clang-format off */
PLIM_GETTER(batch_batch, plim_batch_row, plim_cell_int(r->batch))
PLIM_GETTER(batch_requested, plim_batch_row, plim_cell_u64(PLIM_CELL_BYTES, r->peak_requested))
PLIM_GETTER(batch_allocated, plim_batch_row, plim_cell_u64(PLIM_CELL_BYTES, r->peak_allocated))
PLIM_GETTER(batch_reserved, plim_batch_row, plim_cell_u64(PLIM_CELL_BYTES, r->peak_reserved))
PLIM_GETTER(batch_line, plim_batch_row, plim_cell_u64(PLIM_CELL_BYTES, r->line))
PLIM_GETTER(batch_off, plim_batch_row, plim_cell_delta(r->peak_requested, r->line))
PLIM_GETTER(batch_rate, plim_batch_row, plim_cell_rate(r->samples_per_s))

static const plim_column batch_columns[] = {
    /* name            title        in            align     least drop get */
    {"batch",          "batch",      PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, batch_batch},
    {"peak_requested", "requested",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, batch_requested},
    {"line",           "line",       PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, batch_line},
    {"difference",     "difference", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, batch_off},
    {"peak_allocated", "allocated",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, batch_allocated},
    {"peak_reserved",  "reserved",   PLIM_IN_BOTH, PLIM_RIGHT, 0, 2, batch_reserved},
    {"samples_per_s",  "samples/s",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, batch_rate}, /* the last */
};
/* clang-format on */

static plim_rows batch_rows(const plim_batches *b)
{
    return PLIM_ROWS_OF(batch_columns, b->rows, b->n);
}

/* The smallest batch with 90 % of the most samples per second; 0: not known, or the largest
 * of the table, so that more may follow. */
static int64_t find_knee(const plim_batches *b)
{
    double most = 0;
    uint32_t i = 0;
    for (uint32_t k = 0; k < b->n; k++)
        most = PLIM_MAX(most, b->rows[k]->samples_per_s);
    while (i + 1 < b->n && b->rows[i]->samples_per_s < 0.9 * most)
        i++;
    return most > 0 && i + 1 < b->n ? b->rows[i]->batch : 0;
}

/* From which batch on a larger one is hardly faster; docs/time.md says how near that is. */
static void say_knee(plim_page *p, const plim_batches *b)
{
    int64_t knee = find_knee(b), last = b->rows[b->n - 1]->batch;
    plim_str s =
        knee ? plim_arena_printf(&p->arena,
                                 "throughput, an estimate: at least 90 %% of the highest "
                                 "listed from batch %" PRId64 " on, give or take a doubling",
                                 knee)
             : plim_arena_printf(&p->arena,
                                 "throughput, an estimate: still grows at batch %" PRId64
                                 ", the last one listed",
                                 last);
    if (s.p)
        plim_page_wrap(p, s.p, 0);
}

/* The smallest batch from which on every row is within 0.1 % of the line. */
static int64_t first_on_line(const plim_batches *b)
{
    uint32_t i = b->n;
    while (i) {
        uint64_t peak = b->rows[i - 1]->peak_requested, line = b->rows[i - 1]->line;
        if ((peak > line ? peak - line : line - peak) > line / 1000)
            break;
        i--;
    }
    return i < b->n ? b->rows[i]->batch : 0;
}

static plim_status batches_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_batches *b = subject;
    bool timed = b->n && b->rows[b->n - 1]->samples_per_s > 0;
    plim_rows r = batch_rows(b);
    r.n_columns -= !timed;
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_report_model_line(p, b->model);
    plim_page_puts(p, "\n");
    plim_flow_printf(&f, "peak(batch) =");
    plim_flow_printf(&f, "%s", plim_fmt_bytes(b->fixed, p->style.si).s);
    plim_flow_printf(&f, "+ batch x %s", plim_fmt_bytes(b->per_sample, p->style.si).s);
    if (first_on_line(b))
        plim_flow_printf(&f, "(within 0.1 %% from batch %" PRId64 " on)", first_on_line(b));
    plim_flow_end(&f);
    if (timed)
        say_knee(p, b);
    plim_page_puts(p, "\n");
    return plim_rows_text(p, &r, 0, err);
}

static plim_status batches_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_batches *b = subject;
    const plim_rows r = batch_rows(b);
    plim_jw w;
    plim_report_json_open(&w, p, "plimsoll/batches/1", b->model);
    plim_jw_key(&w, "fixed");
    plim_jw_u64(&w, b->fixed);
    plim_jw_key(&w, "per_sample");
    plim_jw_u64(&w, b->per_sample);
    plim_rows_json(&w, "batches", &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status batches_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_rows r = batch_rows(subject);
    return plim_rows_csv(p, &r, err);
}

plim_status plim_batches_print(const plim_batches *b, plim_render r, const plim_style *st,
                               plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "batches", .text = batches_text, .json = batches_json, .csv = batches_csv};
    return plim_report_print(&report, b, r, st, put, ud, err);
}

plim_status plim_batches_json(const plim_batches *b, plim_put put, void *ud, plim_err *err)
{
    return plim_batches_print(b, PLIM_JSON, NULL, put, ud, err);
}

/* ---- segments ------------------------------------------------------------ */

/* clang-format off */
PLIM_GETTER(segment_segments, plim_segment_row, plim_cell_int(r->segments))
PLIM_GETTER(segment_calls, plim_segment_row, plim_cell_int(r->calls))
PLIM_GETTER(segment_requested, plim_segment_row, plim_cell_u64(PLIM_CELL_BYTES, r->peak_requested))
PLIM_GETTER(segment_allocated, plim_segment_row, plim_cell_u64(PLIM_CELL_BYTES, r->peak_allocated))
PLIM_GETTER(segment_reserved, plim_segment_row, plim_cell_u64(PLIM_CELL_BYTES, r->peak_reserved))

static const plim_column segment_columns[] = {
    /* name            title        in            align     least drop get */
    {"segments",       "segments",   PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, segment_segments},
    {"calls",          "calls each", PLIM_IN_BOTH, PLIM_RIGHT, 0, 3, segment_calls},
    {"peak_requested", "requested",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, segment_requested},
    {"peak_allocated", "allocated",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, segment_allocated},
    {"peak_reserved",  "reserved",   PLIM_IN_BOTH, PLIM_RIGHT, 0, 2, segment_reserved},
};
/* clang-format on */

static plim_rows segment_rows(const plim_segments *s)
{
    return PLIM_ROWS_OF(segment_columns, s->rows, s->n);
}

static plim_status segments_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_segments *s = subject;
    const plim_rows r = segment_rows(s);
    const plim_segment_row *best = s->rows[s->best];
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_report_model_line(p, s->model);
    plim_page_puts(p, "\n");
    plim_flow_printf(&f, "least: %s with %u segments of %u calls,",
                     plim_fmt_bytes(best->peak_requested, p->style.si).s,
                     (unsigned)best->segments, (unsigned)best->calls);
    plim_flow_printf(&f, "%s without",
                     plim_fmt_bytes(s->rows[0]->peak_requested, p->style.si).s);
    plim_flow_end(&f);
    plim_page_puts(p, "\n");
    return plim_rows_text(p, &r, 0, err);
}

static plim_status segments_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_segments *s = subject;
    const plim_rows r = segment_rows(s);
    plim_jw w;
    plim_report_json_open(&w, p, "plimsoll/segments/1", s->model);
    plim_jw_key(&w, "calls");
    plim_jw_u64(&w, s->calls);
    plim_jw_key(&w, "best");
    plim_jw_u64(&w, s->rows[s->best]->segments);
    plim_rows_json(&w, "segments", &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status segments_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_rows r = segment_rows(subject);
    return plim_rows_csv(p, &r, err);
}

plim_status plim_segments_print(const plim_segments *s, plim_render r, const plim_style *st,
                                plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "segments", .text = segments_text, .json = segments_json, .csv = segments_csv};
    return plim_report_print(&report, s, r, st, put, ud, err);
}

plim_status plim_segments_json(const plim_segments *s, plim_put put, void *ud, plim_err *err)
{
    return plim_segments_print(s, PLIM_JSON, NULL, put, ud, err);
}
