/* report_serve.c -- what an inference engine holds of a model. */
#include "report/figures.h"

/* Whether it is known what the engine keeps of a request. */
static bool is_kept_known(const plim_serve *s)
{
    for (uint32_t i = 0; i < s->n_parts; i++)
        if (s->parts[i]->certainty == PLIM_UNKNOWN_BYTES)
            return false;
    return true;
}

/* The sure number; "none", and ">=" where more was not asked for. */
static plim_cell cell_most(const plim_serve_most *m)
{
    uint64_t n = m->sure;
    plim_cell c = n ? plim_cell_u64(PLIM_CELL_COUNT, n) : plim_cell_text("none");
    c.mark = n && m->limited && n == m->usual ? ">=" : NULL;
    return c;
}

/* clang-format off */
PLIM_GETTER(serve_request_bytes, plim_serve, plim_cell_bytes_if(r->request_bytes || is_kept_known(r), r->request_bytes))
PLIM_GETTER(longest_shown, plim_serve_card, cell_most(&r->longest))
PLIM_GETTER(requests_shown, plim_serve_card, cell_most(&r->requests))
/* clang-format on */

#include "answers/serve.def"

/* ---- text --------------------------------------------------------------------------------- */

static void serve_head(plim_page *p, const plim_serve *s)
{
    const char *engine = s->settings->text[PLIM_SET_engine].p;
    const char *kv = s->settings->text[PLIM_SET_kv].p;
    const char *weights = s->settings->text[PLIM_SET_weights].p;
    plim_report_model_line(p, s->model);
    plim_flow f = plim_flow_open(p, plim_page_glyph(p, " \xc2\xb7 ", " | "), 0);
    plim_page_paint(p, PLIM_PAINT_DIM);
    plim_flow_printf(&f, "%s", engine);
    if (s->settings->text[PLIM_SET_dtype].p)
        plim_flow_printf(&f, "%s", s->settings->text[PLIM_SET_dtype].p);
    if (weights && strcmp(weights, "none") != 0)
        plim_flow_printf(&f, "%s", weights);
    plim_flow_printf(&f, "kv %s", kv);
    if (s->settings->draft)
        plim_flow_printf(&f, "draft %s", s->settings->draft);
    if (s->settings->pp > 1)
        plim_flow_printf(&f, "pp %" PRId64, s->settings->pp);
    if (s->settings->tp > 1)
        plim_flow_printf(&f, "tp %" PRId64, s->settings->tp);
    plim_flow_printf(&f, "context %" PRIu64, s->context);
    plim_flow_printf(&f, "concurrency %" PRIu64, s->concurrency);
    plim_flow_end(&f);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    if (s->gpu)
        plim_page_wrap(p, s->gpu, 0);
}

/* "131,072 B for each token, 1.00 GiB for a request of 8,192" */
static void serve_request(plim_page *p, const plim_serve *s)
{
    plim_flow f = plim_flow_lead(p, ", ", "  ");
    if (!s->request_bytes) {
        plim_flow_printf(&f, is_kept_known(s) ? "nothing is kept of a request"
                                              : "what is kept of a request is not known");
        plim_flow_end(&f);
        return;
    }
    if (s->token_bytes)
        plim_flow_printf(&f, "KV cache: %s bytes for each token",
                         plim_fmt_count(s->token_bytes).s);
    plim_flow_printf(&f, "%s%s for a request of %s tokens", s->token_bytes ? "" : "KV cache: ",
                     plim_fmt_bytes(s->request_bytes, p->style.si).s,
                     plim_fmt_count(s->context).s);
    plim_flow_end(&f);
}

/* "53 requests of 8,192 tokens; usually 54" */
static void serve_most(plim_page *p, const char *what, const plim_serve_most *m)
{
    plim_flow f = plim_flow_lead(p, " ", "  ");
    const char *least = m->limited ? plim_page_glyph(p, "\xe2\x89\xa5 ", ">= ") : "";
    plim_flow_printf(&f, "%s:", what);
    if (!m->usual)
        plim_flow_printf(&f, "none");
    else if (m->sure == m->usual)
        plim_flow_printf(&f, "%s%s", least, plim_fmt_count(m->usual).s);
    else
        plim_flow_printf(&f, "%s surely, usually %s%s",
                         m->sure ? plim_fmt_count(m->sure).s : "none", least,
                         plim_fmt_count(m->usual).s);
    plim_flow_end(&f);
}

static void serve_answers(plim_page *p, const plim_serve *s)
{
    plim_buf longest, most;
    plim_buf_init(&longest, &p->arena);
    plim_buf_init(&most, &p->arena);
    plim_buf_printf(&longest, "longest context for %s request%s",
                    plim_fmt_count(s->concurrency).s, s->concurrency == 1 ? "" : "s");
    plim_buf_printf(&most, "most requests of %s tokens", plim_fmt_count(s->context).s);
    plim_report_verdict(p, &(plim_report_card_fit){.fits = s->fits,
                                                   .gpu = s->gpu,
                                                   .gpu_bytes = s->gpu_bytes,
                                                   .gpu_exact = s->gpu_exact,
                                                   .context_known = s->context_known});
    if (!s->gpu)
        return;
    plim_str one = plim_arena_str(&p->arena, plim_buf_str(&longest));
    plim_str two = plim_arena_str(&p->arena, plim_buf_str(&most));
    p->buf.bad |= longest.bad || most.bad || !one.p || !two.p;
    if (p->buf.bad)
        return;
    serve_most(p, one.p, &s->longest_context);
    serve_most(p, two.p, &s->most_requests);
}

static plim_rows serve_parts(const plim_serve *s)
{
    plim_rows r = PLIM_FIGURE_ROWS(serve_row, s->parts, s->n_parts);
    bool host = false;
    for (uint32_t i = 0; i < s->n_parts; i++)
        host |= s->parts[i]->place == PLIM_ON_HOST;
    r.only = host ? NULL : "part,bytes,usual,doc";
    return r;
}

static plim_status serve_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_serve *s = subject;
    const plim_rows r = serve_parts(s);
    p->scale = s->device_high;
    if (!p->style.quiet) {
        serve_head(p, s);
        plim_page_puts(p, "\n");
    }
    plim_status st = plim_rows_text(p, &r, 0, err);
    if (st || p->style.quiet)
        return st;
    plim_page_puts(p, "\n");
    plim_flow f = plim_flow_lead(p, "; ", "  ");
    plim_flow_printf(&f, "total on the card: %.*s",
                     PLIM_STR_ARG(plim_page_range(p, s->device_low, s->device_high)));
    if (s->device_low != s->device_high)
        plim_flow_printf(&f, "usually %s", plim_page_bytes(p, s->device).s);
    if (s->host)
        plim_flow_printf(&f, "on the host: %s", plim_page_bytes(p, s->host).s);
    plim_flow_end(&f);
    serve_request(p, s);
    serve_answers(p, s);
    if (s->n_says)
        plim_page_puts(p, "\nThe engine says when it starts:\n");
    for (uint32_t i = 0; i < s->n_says; i++)
        plim_page_wrap(p, s->says[i], 2);
    return PLIM_OK;
}

/* ---- data --------------------------------------------------------------------------------- */

static plim_status serve_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    return plim_report_json(p, "plimsoll/serve/1", plim_serve_figures, subject, NULL);
}

static plim_status serve_csv(plim_page *p, const void *subject, plim_err *err)
{
    plim_rows r = serve_parts(subject);
    r.only = NULL;
    return plim_rows_csv(p, &r, err);
}

PLIM_ONE_MODEL(serve_model, plim_serve)

plim_status plim_serve_print(const plim_serve *s, plim_render r, const plim_style *st,
                             plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "serve",
                                       .model = serve_model,
                                       .text = serve_text,
                                       .json = serve_json,
                                       .csv = serve_csv};
    return plim_report_print(&report, s, r, st, put, ud, err);
}

/* ---- on many cards ------------------------------------------------------------------------ */

static void served_notes(plim_page *p, const plim_serve_fit *f)
{
    plim_buf b;
    plim_buf_init(&b, &p->arena);
    plim_buf_printf(
        &b,
        "weights: the largest format that surely fits, else that may, else the smallest; own: that of the "
        "model. longest: the longest context for %s request%s; requests: the most "
        "of %s tokens; both at the upper bounds",
        plim_fmt_count(f->concurrency).s, f->concurrency == 1 ? "" : "s",
        plim_fmt_count(f->context).s);
    int64_t cards = PLIM_MAX(f->settings->tp, 1) * PLIM_MAX(f->settings->pp, 1);
    if (cards > 1)
        plim_buf_printf(&b, "; each card is one of %" PRId64 " that divide the model", cards);
    plim_str text = plim_arena_str(&p->arena, plim_buf_str(&b));
    p->buf.bad |= b.bad || !text.p;
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_DIM);
    plim_page_wrap(p, text.p ? text.p : "", 0);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
}

static plim_status served_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_serve_fit *f = subject;
    const plim_rows r = PLIM_FIGURE_ROWS(serve_card, f->cards, f->n_cards);
    if (!p->style.quiet) {
        plim_report_model_line(p, f->model);
        plim_page_puts(p, "\n");
    }
    plim_status st = plim_rows_text(p, &r, 0, err);
    if (st || p->style.quiet)
        return st;
    served_notes(p, f);
    return PLIM_OK;
}

static plim_status served_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    return plim_report_json(p, "plimsoll/serve-fit/1", plim_serve_fit_figures, subject, NULL);
}

static plim_status served_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_serve_fit *f = subject;
    const plim_rows r = PLIM_FIGURE_ROWS(serve_card, f->cards, f->n_cards);
    return plim_rows_csv(p, &r, err);
}

PLIM_ONE_MODEL(served_model, plim_serve_fit)

plim_status plim_serve_fit_print(const plim_serve_fit *f, plim_render r, const plim_style *st,
                                 plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "serve_fit",
                                       .model = served_model,
                                       .text = served_text,
                                       .json = served_json,
                                       .csv = served_csv};
    return plim_report_print(&report, f, r, st, put, ud, err);
}
