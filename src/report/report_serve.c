/* report_serve.c -- what an inference engine holds of a model. */
#include "report/blocks.h"
#include "report/figures.h"

/* Whether it is known what the engine keeps of a request. */
static bool is_kept_known(const plim_serve *s)
{
    for (uint32_t i = 0; i < s->n_parts; i++)
        if (s->parts[i]->certainty == PLIM_UNKNOWN_BYTES)
            return false;
    return true;
}

/* The sure number; "none", and ">=" where more was not asked for.  Of a model that is counted in part none is
 * sure: the usual one, and "<=". */
static plim_cell cell_most(const plim_serve_most *m, plim_fits fits)
{
    const bool incomplete = fits == PLIM_FITS_INCOMPLETE;
    uint64_t n = incomplete ? m->usual : m->sure;
    plim_cell c = n ? plim_cell_u64(PLIM_CELL_COUNT, n) : plim_cell_text("none");
    c.mark = !n || (!incomplete && !(m->limited && n == m->usual)) ? NULL
             : incomplete                                          ? "<="
                                                                   : ">=";
    return c;
}

/* clang-format off */
PLIM_GETTER(serve_request_bytes, plim_serve, plim_cell_bytes_if(r->request_bytes || is_kept_known(r), r->request_bytes))
PLIM_GETTER(longest_shown, plim_serve_card, cell_most(&r->longest, r->fits))
PLIM_GETTER(requests_shown, plim_serve_card, cell_most(&r->requests, r->fits))
/* clang-format on */

#include "answers/serve.def"

/* ---- text --------------------------------------------------------------------------------- */

static void serve_head(plim_page *p, const plim_serve *s)
{
    const plim_settings *of = s->settings;
    const char *dtype = of->text[PLIM_SET_dtype].p, *weights = of->text[PLIM_SET_weights].p;
    plim_report_model_line(p, s->model);
    plim_line(p, plim_dot(p), 0);
    plim_block_paint(p, PLIM_PAINT_DIM);
    plim_say(p, "%s", of->text[PLIM_SET_engine].p);
    if (dtype)
        plim_say(p, "%s", dtype);
    if (weights && strcmp(weights, "none") != 0)
        plim_say(p, "%s", weights);
    plim_say(p, "kv %s", of->text[PLIM_SET_kv].p);
    if (of->draft)
        plim_say(p, "draft %s", of->draft);
    if (of->pp > 1)
        plim_say(p, "pp %" PRId64, of->pp);
    if (of->tp > 1)
        plim_say(p, "tp %" PRId64, of->tp);
    plim_say(p, "context %" PRIu64, s->context);
    plim_say(p, "concurrency %" PRIu64, s->concurrency);
    plim_paragraph(p, PLIM_PAINT_PLAIN, s->gpu, 0);
}

/* "131,072 B for each token, 1.00 GiB for a request of 8,192" */
static void serve_request(plim_page *p, const plim_serve *s)
{
    const char *before = is_kept_known(s) ? "KV cache: " : "KV cache, not exact: ";
    plim_line(p, ", ", 2);
    if (!s->request_bytes) {
        plim_say(p, is_kept_known(s) ? "a request keeps nothing"
                                     : "what a request keeps is not known");
        return;
    }
    if (s->token_bytes)
        plim_say(p, "%s%s bytes for each token", before, plim_fmt_count(s->token_bytes).s);
    plim_say(p, "%s%s for a request of %s tokens", s->token_bytes ? "" : before,
             plim_fmt_bytes(s->request_bytes, p->style.si).s, plim_fmt_count(s->context).s);
}

/* "53 requests of 8,192 tokens; usually 54" */
static void serve_most(plim_page *p, const plim_serve *s, const plim_serve_most *m,
                       const char *what)
{
    const char *least = m->limited ? plim_page_glyph(p, "\xe2\x89\xa5 ", ">= ") : "";
    plim_line(p, " ", 2);
    plim_say(p, "%s:", what);
    if (!m->usual)
        plim_say(p, "none");
    else if (s->fits == PLIM_FITS_INCOMPLETE)
        plim_say(p, "at most %s", plim_fmt_count(m->usual).s);
    else if (m->sure == m->usual)
        plim_say(p, "%s%s", least, plim_fmt_count(m->usual).s);
    else
        plim_say(p, "%s at the upper bounds, usually %s%s",
                 m->sure ? plim_fmt_count(m->sure).s : "none", least,
                 plim_fmt_count(m->usual).s);
}

static void serve_answers(plim_page *p, const plim_serve *s)
{
    plim_report_verdict(p, &(plim_report_card_fit){.fits = s->fits,
                                                   .gpu = s->gpu,
                                                   .gpu_bytes = s->gpu_bytes,
                                                   .gpu_exact = s->gpu_exact,
                                                   .context_known = s->context_known});
    if (!s->gpu)
        return;
    const char *many = s->concurrency == 1 ? "" : "s";
    serve_most(p, s, &s->longest_context,
               plim_page_format(p, "longest context for %s request%s",
                                plim_fmt_count(s->concurrency).s, many));
    serve_most(
        p, s, &s->most_requests,
        plim_page_format(p, "most requests of %s tokens", plim_fmt_count(s->context).s));
}

static plim_rows serve_parts(const plim_serve *s)
{
    plim_rows r = PLIM_FIGURE_ROWS(serve_row, s->parts, s->n_parts);
    bool host = false;
    for (uint32_t i = 0; i < s->n_parts; i++)
        host |= s->parts[i]->place == PLIM_ON_HOST;
    r.hidden = host ? NULL : "place";
    return r;
}

static void serve_total(plim_page *p, const plim_serve *s)
{
    plim_apart(p);
    plim_line(p, "; ", 2);
    plim_say(p, "total on the card: " PLIM_STR_FMT,
             PLIM_STR_ARG(plim_page_range(p, s->device_low, s->device_high)));
    if (s->device_low != s->device_high)
        plim_say(p, "usually %s", plim_page_bytes(p, s->device).s);
    if (s->host)
        plim_say(p, "on the host: %s", plim_page_bytes(p, s->host).s);
}

static plim_status serve_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_serve *s = subject;
    p->scale = s->device_high;
    serve_head(p, s);
    plim_table_main(p, serve_parts(s));
    serve_total(p, s);
    serve_request(p, s);
    serve_answers(p, s);
    if (s->n_says) {
        plim_heading_apart(p, "The engine prints at start:");
    }
    for (uint32_t i = 0; i < s->n_says; i++)
        plim_paragraph(p, PLIM_PAINT_PLAIN, s->says[i], 2);
    plim_data(p, "plimsoll/serve/1", plim_serve_figures, s, NULL, 0);
    plim_sheet(p, PLIM_FIGURE_ROWS(serve_row, s->parts, s->n_parts));
    return PLIM_OK;
}

PLIM_ONE_MODEL(serve_model, plim_serve)

plim_status plim_serve_print(const plim_serve *s, plim_render r, const plim_style *st,
                             plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "serve", .model = serve_model, .build = serve_build};
    return plim_report_print(&report, s, r, st, put, ud, err);
}

/* ---- on many cards ------------------------------------------------------------------------ */

static void served_notes(plim_page *p, const plim_serve_fit *f)
{
    bool incomplete = false;
    for (uint32_t i = 0; i < f->n_cards; i++)
        incomplete |= f->cards[i]->fits == PLIM_FITS_INCOMPLETE;
    int64_t cards = PLIM_MAX(f->settings->tp, 1) * PLIM_MAX(f->settings->pp, 1);
    const char *divided =
        cards > 1 ? plim_page_format(
                        p, "; each card is one of %" PRId64 " that divide the model", cards)
                  : "";
    plim_apart(p);
    plim_paragraph(
        p, PLIM_PAINT_DIM,
        plim_page_format(
            p,
            "weights: the largest format that fits at the upper bounds, else one that may "
            "fit, else the smallest; own: the model's. longest: the longest context for %s "
            "request%s; requests: the most of %s tokens; both at the upper bounds%s",
            plim_fmt_count(f->concurrency).s, f->concurrency == 1 ? "" : "s",
            plim_fmt_count(f->context).s, divided),
        0);
    if (incomplete)
        plim_paragraph(p, PLIM_PAINT_DIM,
                       "incomplete: a part of the model is not counted; <= an upper bound", 0);
}

static plim_status served_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_serve_fit *f = subject;
    const plim_rows r = PLIM_FIGURE_ROWS(serve_card, f->cards, f->n_cards);
    plim_report_model_line(p, f->model);
    plim_table_main(p, r);
    served_notes(p, f);
    plim_data(p, "plimsoll/serve-fit/1", plim_serve_fit_figures, f, NULL, 0);
    plim_sheet(p, r);
    return PLIM_OK;
}

PLIM_ONE_MODEL(served_model, plim_serve_fit)

plim_status plim_serve_fit_print(const plim_serve_fit *f, plim_render r, const plim_style *st,
                                 plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "serve_fit", .model = served_model, .build = served_build};
    return plim_report_print(&report, f, r, st, put, ud, err);
}
