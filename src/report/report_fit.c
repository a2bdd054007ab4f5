/* report_fit.c -- reports of the largest batch per card, of memory by batch, and of
 * checkpointed segments. */
#include "report/blocks.h"
#include "report/figures.h"

/* ---- fit ----------------------------------------------------------------- */

/* Whether the sequence length was searched for, and not the batch. */
static bool finds_seq(const plim_fit *f)
{
    const char *what = f->settings->text[PLIM_SET_find].p;
    return what && !strcmp(what, "seq");
}

/* Where the batch is searched for, batch_usual is at least batch. */
static bool searched_seq(const plim_fit_row *r) { return r->batch && !r->batch_usual; }

/* Less may fit: a part of what it needs is not counted. */
static bool is_at_most(const plim_fit_row *r)
{
    return !r->context_known || r->verdict == PLIM_FITS_INCOMPLETE;
}

/* Less may fit than what is counted says. */
static const char *mark_found(const plim_fit_row *r, int64_t n)
{
    return n && r->verdict == PLIM_FITS_INCOMPLETE ? "<=" : NULL;
}

static plim_cell cell_usual(const plim_fit_row *r, int64_t n)
{
    plim_cell c = n ? plim_cell_int(n) : plim_cell_text("none");
    c.mark = mark_found(r, n);
    return c;
}

static plim_cell cell_found(const plim_fit_row *r, int64_t n)
{
    plim_cell c = cell_usual(r, n);
    if (!c.mark)
        c.mark = r->limited ? ">=" : n && is_at_most(r) ? "<=" : NULL;
    return c;
}

static plim_cell cell_if(bool known, int64_t n)
{
    return known ? plim_cell_int(n) : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell cell_headroom(const plim_fit_row *r)
{
    return plim_cell_bytes_if(r->verdict == PLIM_FITS_YES, r->headroom);
}

/* clang-format off */
PLIM_GETTER(fit_batch_found, plim_fit_row, cell_found(r, r->batch))
PLIM_GETTER(fit_seq_found, plim_fit_row, cell_found(r, r->seq))
PLIM_GETTER(fit_batch_margin_found, plim_fit_row, cell_usual(r, r->batch_margin))
PLIM_GETTER(fit_seq_margin_found, plim_fit_row, cell_usual(r, r->seq_margin))
PLIM_GETTER(fit_batch_usual_found, plim_fit_row, cell_usual(r, r->batch_usual))
PLIM_GETTER(fit_seq_usual_found, plim_fit_row, cell_usual(r, r->seq_usual))
PLIM_GETTER(fit_batch_usual, plim_fit_row, cell_if(!searched_seq(r), r->batch_usual))
PLIM_GETTER(fit_batch_margin, plim_fit_row, cell_if(r->margin_known && !searched_seq(r), r->batch_margin))
PLIM_GETTER(fit_seq_margin, plim_fit_row, cell_if(r->margin_known && searched_seq(r), r->seq_margin))
PLIM_GETTER(fit_seq, plim_fit_row, cell_if(searched_seq(r), r->seq))
PLIM_GETTER(fit_seq_usual, plim_fit_row, cell_if(searched_seq(r), r->seq_usual))
PLIM_GETTER(fit_at_most, plim_fit_row, plim_cell_bool(is_at_most(r)))
PLIM_GETTER(fit_headroom, plim_fit_row, cell_headroom(r))
PLIM_GETTER(fit_headroom_shown, plim_fit_row, r->fits ? cell_headroom(r) : plim_cell_text(""))
PLIM_GETTER(fit_price_per, plim_fit_row, plim_report_price_per(r->price_usd, r->samples_per_s))
/* clang-format on */

#include "answers/fit.def"

#define FIT_ORDERS(found)                                                                     \
    {"throughput", "samples_per_s", false, NULL}, {"headroom", "headroom", false, NULL},      \
        {"price", PLIM_PRICE_PER, true, "gpu," found ",samples_per_s," PLIM_PRICE_SHOWN},     \
    {                                                                                         \
        "batch", found, false, NULL                                                           \
    }

enum { FIT_ORDER_COUNT = 4 };
static const plim_order batch_orders[FIT_ORDER_COUNT] = {FIT_ORDERS("batch")};
static const plim_order seq_orders[FIT_ORDER_COUNT] = {FIT_ORDERS("seq")};

static void fit_notes(plim_page *p, const plim_fit *f, bool sizes)
{
    const char *what = finds_seq(f) ? "sequence" : "batch";
    const char *least = finds_seq(f) ? "one token" : "batch 1";
    bool beyond = false, none = false, limited = false, marketed = false, known = false,
         unknown = false, margin = false, incomplete = false;
    for (uint32_t i = 0; i < f->n_cards; i++) {
        none |= !f->cards[i]->fits;
        margin |= f->cards[i]->margin_known;
        beyond |= f->model->seq_max && f->cards[i]->seq > f->model->seq_max;
        limited |= f->cards[i]->limited;
        marketed |= !f->cards[i]->gpu_exact;
        known |= f->cards[i]->context_known;
        unknown |= !f->cards[i]->context_known;
        incomplete |= f->cards[i]->verdict == PLIM_FITS_INCOMPLETE;
    }
    const struct {
        bool say;
        const char *what;
    } notes[] = {
        {known && sizes,
         plim_page_format(
             p,
             "device: reserved by the allocator plus the CUDA context, lower to upper "
             "bound; the %s fits with both at their upper bounds; headroom: what the card has "
             "beyond the needs of the %s then",
             what, what)},
        {known && sizes && margin,
         plim_page_format(
             p,
             "margin: the %s that leaves %s of what it reserves free besides, for "
             "what the simulated steps do not show (--margin)",
             what, f->settings->text[PLIM_SET_margin].p)},
        {none, plim_page_format(p, "none: not even %s fits; the figures are those of %s",
                                least, least)},
        {known && sizes,
         plim_page_format(p, "usual: the %s at the usual sizes; it may fail", what)},
        {beyond, "a sequence is longer than the model was made for"},
        {limited, ">= a lower bound: limited by the search or the model, not the card"},
        {incomplete, "<= an upper bound, incomplete: a part of the model is not counted"},
        {unknown, "<= an upper bound: the CUDA context size of this card is unknown"},
        {marketed, "~ estimated from the marketed size, not reported by a driver"},
    };
    plim_apart(p);
    for (size_t i = 0; i < PLIM_COUNT(notes); i++)
        if (notes[i].say)
            plim_paragraph(p, PLIM_PAINT_DIM, notes[i].what, 0);
    plim_if_unknown(p, "- unknown");
}

/* Text has no column for what was not searched for, and none for a speed that is known of no card. */
static plim_status fit_rows(plim_page *p, const plim_fit *f, plim_rows *out, plim_err *err)
{
    bool timed = false, margin = false, seq = finds_seq(f);
    for (uint32_t i = 0; i < f->n_cards; i++) {
        timed |= f->cards[i]->samples_per_s > 0;
        margin |= f->cards[i]->margin_known;
    }
    *out = PLIM_FIGURE_ROWS(fit_row, f->cards, f->n_cards);
    out->hidden = plim_page_format(
        p, "%s%s%s", seq ? "batch,batch_margin,batch_usual" : "seq,seq_margin,seq_usual",
        timed || p->style.sort ? "" : ",samples_per_s",
        margin ? ""
        : seq  ? ",seq_margin"
               : ",batch_margin");
    return plim_rows_order(p, out, seq ? seq_orders : batch_orders, FIT_ORDER_COUNT,
                           p->style.sort, err);
}

static plim_status fit_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_fit *f = subject;
    plim_rows r, sheet;
    PLIM_TRY(fit_rows(p, f, &r, err));
    plim_report_model_line(p, f->model);
    plim_table_main(p, r);
    fit_notes(p, f, !r.only);
    plim_data(p, "plimsoll/fit/1", plim_fit_figures, f, &r, 1);
    sheet = r;
    sheet.only = NULL; /* which is for people */
    plim_sheet(p, sheet);
    return PLIM_OK;
}

PLIM_ONE_MODEL(fit_model, plim_fit)

plim_status plim_fit_print(const plim_fit *f, plim_render r, const plim_style *st,
                           plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "fit", .model = fit_model, .build = fit_build};
    return plim_report_print(&report, f, r, st, put, ud, err);
}

/* ---- batches ------------------------------------------------------------- */

static plim_rows batch_rows(const plim_batches *b)
{
    return PLIM_FIGURE_ROWS(batch_row, b->batches, b->n_batches);
}

/* The smallest batch with 90 % of the most samples per second; 0: not known, or the largest
 * of the table, so that more may follow. */
static int64_t find_knee(const plim_batches *b)
{
    double most = 0;
    uint32_t i = 0;
    for (uint32_t k = 0; k < b->n_batches; k++)
        most = PLIM_MAX(most, b->batches[k]->samples_per_s);
    while (i + 1 < b->n_batches && b->batches[i]->samples_per_s < 0.9 * most)
        i++;
    return most > 0 && i + 1 < b->n_batches ? b->batches[i]->batch : 0;
}

/* From which batch on a larger one is hardly faster; docs/time.md says how near that is. */
static void say_knee(plim_page *p, const plim_batches *b)
{
    int64_t knee = find_knee(b), last = b->batches[b->n_batches - 1]->batch;
    const char *says =
        knee ? plim_page_format(p,
                                "throughput, an estimate: at least 90 %% of the highest "
                                "listed from batch %" PRId64 " on, give or take a doubling",
                                knee)
             : plim_page_format(p,
                                "throughput, an estimate: still grows at batch %" PRId64
                                ", the last one listed",
                                last);
    plim_paragraph(p, PLIM_PAINT_PLAIN, says, 0);
}

/* The smallest batch from which on every row is within 0.1 % of the line. */
static int64_t first_on_line(const plim_batches *b)
{
    uint32_t i = b->n_batches;
    while (i) {
        uint64_t peak = b->batches[i - 1]->peak_requested, line = b->batches[i - 1]->line;
        if ((peak > line ? peak - line : line - peak) > line / 1000)
            break;
        i--;
    }
    return i < b->n_batches ? b->batches[i]->batch : 0;
}

static plim_status batches_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_batches *b = subject;
    bool timed = b->n_batches && b->batches[b->n_batches - 1]->samples_per_s > 0;
    plim_rows r = batch_rows(b);
    plim_report_model_line(p, b->model);
    plim_apart(p);
    plim_line(p, " ", 0);
    plim_say(p, "peak(batch) =");
    plim_say(p, "%s", plim_fmt_bytes(b->fixed, p->style.si).s);
    plim_say(p, "+ batch x %s", plim_fmt_bytes(b->per_sample, p->style.si).s);
    if (first_on_line(b))
        plim_say(p, "(within 0.1 %% from batch %" PRId64 " on)", first_on_line(b));
    if (timed)
        say_knee(p, b);
    plim_apart(p);
    plim_sheet(p, r);
    r.hidden = timed ? NULL : "samples_per_s";
    plim_table(p, r, 0);
    plim_data(p, "plimsoll/batches/1", plim_batches_figures, b, NULL, 0);
    return PLIM_OK;
}

PLIM_ONE_MODEL(batches_model, plim_batches)

plim_status plim_batches_print(const plim_batches *b, plim_render r, const plim_style *st,
                               plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "batches", .model = batches_model, .build = batches_build};
    return plim_report_print(&report, b, r, st, put, ud, err);
}

/* ---- segments ------------------------------------------------------------ */

static plim_rows segment_rows(const plim_segments *s)
{
    return PLIM_FIGURE_ROWS(segment_row, s->segments, s->n_segments);
}

static const plim_segment_row *find_best(const plim_segments *s)
{
    uint32_t i = 0;
    while (i + 1 < s->n_segments && s->segments[i]->segments != s->best)
        i++;
    return s->segments[i];
}

static plim_status segments_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_segments *s = subject;
    const plim_segment_row *best = find_best(s);
    bool si = p->style.si;
    plim_report_model_line(p, s->model);
    plim_apart(p);
    plim_line(p, " ", 0);
    plim_say(p, "least: %s with %u segments of %u calls,",
             plim_fmt_bytes(best->peak_requested, si).s, (unsigned)best->segments,
             (unsigned)best->calls);
    plim_say(p, "%s without", plim_fmt_bytes(s->segments[0]->peak_requested, si).s);
    plim_apart(p);
    plim_table(p, segment_rows(s), 0);
    plim_data(p, "plimsoll/segments/1", plim_segments_figures, s, NULL, 0);
    plim_sheet(p, segment_rows(s));
    return PLIM_OK;
}

PLIM_ONE_MODEL(segments_model, plim_segments)

plim_status plim_segments_print(const plim_segments *s, plim_render r, const plim_style *st,
                                plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "segments", .model = segments_model, .build = segments_build};
    return plim_report_print(&report, s, r, st, put, ud, err);
}
