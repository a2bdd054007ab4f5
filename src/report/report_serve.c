/* report_serve.c -- what an inference engine holds of a model. */
#include "report/report.h"

/* clang-format off */
PLIM_GETTER(serve_part, plim_serve_row, plim_cell_text(r->part))
PLIM_GETTER(serve_place, plim_serve_row, plim_cell_text(plim_serve_place_name(r->place)))
PLIM_GETTER(serve_range, plim_serve_row, plim_cell_range(r->low, r->high))
PLIM_GETTER(serve_low, plim_serve_row, plim_cell_u64(PLIM_CELL_BYTES, r->low))
PLIM_GETTER(serve_usual, plim_serve_row, plim_cell_u64(PLIM_CELL_BYTES, r->usual))
PLIM_GETTER(serve_high, plim_serve_row, plim_cell_u64(PLIM_CELL_BYTES, r->high))
PLIM_GETTER(serve_certainty, plim_serve_row, plim_cell_text(plim_certainty_name(r->certainty)))
PLIM_GETTER(serve_doc, plim_serve_row, plim_cell_text(r->doc))

static const plim_column serve_columns[] = {
    /* name       title       in            align         least drop get */
    PLIM_COLUMN("part",      "part",      PLIM_IN_BOTH, PLIM_LEFT,     0,  0, serve_part),
    PLIM_COLUMN("place",     "on",        PLIM_IN_BOTH, PLIM_LEFT,     0,  3, serve_place),
    PLIM_COLUMN("bytes",     "bytes",     PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, serve_range),
    PLIM_COLUMN("low",       "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, serve_low),
    PLIM_COLUMN("usual",     "usually",   PLIM_IN_BOTH, PLIM_RIGHT,    0,  1, serve_usual),
    PLIM_COLUMN("high",      "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, serve_high),
    PLIM_COLUMN("certainty", "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, serve_certainty),
    PLIM_COLUMN("doc",       "",          PLIM_IN_BOTH, PLIM_CUT_TAIL, 12, 2, serve_doc),
};
/* clang-format on */

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

/* Whether it is known what the engine keeps of a request. */
static bool is_kept_known(const plim_serve *s)
{
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (s->rows[i]->certainty == PLIM_UNKNOWN_BYTES)
            return false;
    return true;
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
    serve_most(p, one.p, &s->longest);
    serve_most(p, two.p, &s->requests);
}

static plim_rows serve_parts(const plim_serve *s)
{
    plim_rows r = PLIM_ROWS_OF(serve_columns, s->rows, s->n_rows);
    bool host = false;
    for (uint32_t i = 0; i < s->n_rows; i++)
        host |= s->rows[i]->place == PLIM_ON_HOST;
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
    plim_report_paragraph(p, PLIM_PAINT_WARN, s->model->note);
    return PLIM_OK;
}

/* ---- data --------------------------------------------------------------------------------- */

static void json_most(plim_jw *w, const char *key, const plim_serve *s,
                      const plim_serve_most *m)
{
    plim_jw_key(w, key);
    if (!s->gpu) {
        plim_jw_null(w);
        return;
    }
    plim_jw_object(w);
    plim_jw_key(w, "sure");
    plim_jw_u64(w, m->sure);
    plim_jw_key(w, "usual");
    plim_jw_u64(w, m->usual);
    plim_jw_key(w, "limited");
    plim_jw_bool(w, m->limited);
    plim_jw_end(w);
}

static void json_number(plim_jw *w, const char *key, uint64_t n, bool known)
{
    plim_jw_key(w, key);
    if (known)
        plim_jw_u64(w, n);
    else
        plim_jw_null(w);
}

static plim_status serve_json(plim_page *p, const void *subject, plim_err *err)
{
    const plim_serve *s = subject;
    const plim_rows r = serve_parts(s);
    plim_jw w;
    (void)err;
    plim_report_json_open(&w, p, "plimsoll/serve/1", s->model);
    plim_jw_key(&w, "settings");
    plim_settings_write(&w, s->settings, "serve");
    plim_jw_key(&w, "engine");
    plim_jw_cstr(&w, s->engine);
    plim_jw_key(&w, "gpu");
    plim_jw_cstr(&w, s->gpu);
    json_number(&w, "gpu_bytes", s->gpu_bytes, s->gpu != NULL);
    plim_rows_json(&w, "parts", &r);
    json_number(&w, "device_low", s->device_low, true);
    json_number(&w, "device", s->device, true);
    json_number(&w, "device_high", s->device_high, true);
    json_number(&w, "host", s->host, true);
    json_number(&w, "context", s->context, true);
    json_number(&w, "concurrency", s->concurrency, true);
    json_number(&w, "token_bytes", s->token_bytes, s->token_bytes > 0);
    json_number(&w, "request_bytes", s->request_bytes, s->request_bytes || is_kept_known(s));
    plim_jw_key(&w, "fits");
    plim_jw_cstr(&w, plim_report_fits(s->fits));
    json_most(&w, "longest_context", s, &s->longest);
    json_most(&w, "most_requests", s, &s->requests);
    plim_jw_key(&w, "says");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < s->n_says; i++)
        plim_jw_cstr(&w, s->says[i]);
    plim_jw_end(&w);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status serve_csv(plim_page *p, const void *subject, plim_err *err)
{
    plim_rows r = serve_parts(subject);
    r.only = NULL;
    return plim_rows_csv(p, &r, err);
}

plim_status plim_serve_print(const plim_serve *s, plim_render r, const plim_style *st,
                             plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "serve", .text = serve_text, .json = serve_json, .csv = serve_csv};
    return plim_report_print(&report, s, r, st, put, ud, err);
}

plim_status plim_serve_json(const plim_serve *s, plim_put put, void *ud, plim_err *err)
{
    return plim_serve_print(s, PLIM_JSON, NULL, put, ud, err);
}

/* ---- on many cards ------------------------------------------------------------------------ */

/* The sure number; "none", and ">=" where more was not asked for. */
static plim_cell most_cell(const plim_serve_most *m, bool sure)
{
    uint64_t n = sure ? m->sure : m->usual;
    plim_cell c = n ? plim_cell_u64(PLIM_CELL_COUNT, n) : plim_cell_text("none");
    c.mark = n && m->limited && n == m->usual ? ">=" : NULL;
    return c;
}

/* clang-format off */
PLIM_GETTER(served_card, plim_serve_card, plim_cell_text(plim_report_card(r->gpu)))
PLIM_GETTER(served_gpu, plim_serve_card, plim_cell_text(r->gpu))
PLIM_GETTER(served_memory, plim_serve_card, plim_cell_card(r->gpu_bytes, r->gpu_exact))
PLIM_GETTER(served_exact, plim_serve_card, plim_cell_bool(r->gpu_exact))
PLIM_GETTER(served_weights, plim_serve_card, plim_cell_text(r->weights))
PLIM_GETTER(served_fits, plim_serve_card, plim_cell_text(plim_report_fits(r->fits)))
PLIM_GETTER(served_device, plim_serve_card, plim_cell_range(r->device_low, r->device_high))
PLIM_GETTER(served_low, plim_serve_card, plim_cell_u64(PLIM_CELL_BYTES, r->device_low))
PLIM_GETTER(served_usual, plim_serve_card, plim_cell_u64(PLIM_CELL_BYTES, r->device))
PLIM_GETTER(served_high, plim_serve_card, plim_cell_u64(PLIM_CELL_BYTES, r->device_high))
PLIM_GETTER(served_longest, plim_serve_card, most_cell(&r->longest, true))
PLIM_GETTER(served_requests, plim_serve_card, most_cell(&r->requests, true))
PLIM_GETTER(served_longest_sure, plim_serve_card, plim_cell_u64(PLIM_CELL_COUNT, r->longest.sure))
PLIM_GETTER(served_longest_usual, plim_serve_card, plim_cell_u64(PLIM_CELL_COUNT, r->longest.usual))
PLIM_GETTER(served_longest_limited, plim_serve_card, plim_cell_bool(r->longest.limited))
PLIM_GETTER(served_requests_sure, plim_serve_card, plim_cell_u64(PLIM_CELL_COUNT, r->requests.sure))
PLIM_GETTER(served_requests_usual, plim_serve_card, plim_cell_u64(PLIM_CELL_COUNT, r->requests.usual))
PLIM_GETTER(served_requests_limited, plim_serve_card, plim_cell_bool(r->requests.limited))

static const plim_column served_columns[] = {
    /* name              title      in            align         least drop get */
    PLIM_COLUMN("gpu",              "card",    PLIM_IN_TEXT, PLIM_CUT_TAIL, 26, 0, served_card),
    PLIM_COLUMN("gpu",              "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, served_gpu),
    PLIM_COLUMN("gpu_bytes",        "memory",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  3, served_memory),
    PLIM_COLUMN("gpu_exact",        "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, served_exact),
    PLIM_COLUMN("weights",          "weights", PLIM_IN_BOTH, PLIM_LEFT,     0,  0, served_weights),
    PLIM_COLUMN("fits",             "fits",    PLIM_IN_BOTH, PLIM_LEFT,     0,  0, served_fits),
    PLIM_COLUMN("device",           "device",  PLIM_IN_TEXT, PLIM_RIGHT,    0,  2, served_device),
    PLIM_COLUMN("device_low",       "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, served_low),
    PLIM_COLUMN("device",           "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, served_usual),
    PLIM_COLUMN("device_high",      "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, served_high),
    PLIM_COLUMN("longest",          "longest", PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, served_longest),
    PLIM_COLUMN("requests",         "requests", PLIM_IN_TEXT, PLIM_RIGHT,   0,  0, served_requests),
    PLIM_COLUMN("longest_sure",     "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, served_longest_sure),
    PLIM_COLUMN("longest_usual",    "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, served_longest_usual),
    PLIM_COLUMN("longest_limited",  "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, served_longest_limited),
    PLIM_COLUMN("requests_sure",    "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, served_requests_sure),
    PLIM_COLUMN("requests_usual",   "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, served_requests_usual),
    PLIM_COLUMN("requests_limited", "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, served_requests_limited),
};
/* clang-format on */

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
    const plim_rows r = PLIM_ROWS_OF(served_columns, f->rows, f->n);
    if (!p->style.quiet) {
        plim_report_model_line(p, f->model);
        plim_page_puts(p, "\n");
    }
    plim_status st = plim_rows_text(p, &r, 0, err);
    if (st || p->style.quiet)
        return st;
    served_notes(p, f);
    plim_report_paragraph(p, PLIM_PAINT_WARN, f->model->note);
    return PLIM_OK;
}

static plim_status served_json(plim_page *p, const void *subject, plim_err *err)
{
    const plim_serve_fit *f = subject;
    const plim_rows r = PLIM_ROWS_OF(served_columns, f->rows, f->n);
    plim_jw w;
    (void)err;
    plim_report_json_open(&w, p, "plimsoll/serve-fit/1", f->model);
    plim_jw_key(&w, "settings");
    plim_settings_write(&w, f->settings, "serve");
    plim_jw_key(&w, "engine");
    plim_jw_cstr(&w, f->engine);
    json_number(&w, "context", f->context, true);
    json_number(&w, "concurrency", f->concurrency, true);
    plim_rows_json(&w, "cards", &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status served_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_serve_fit *f = subject;
    const plim_rows r = PLIM_ROWS_OF(served_columns, f->rows, f->n);
    return plim_rows_csv(p, &r, err);
}

plim_status plim_serve_fit_print(const plim_serve_fit *f, plim_render r, const plim_style *st,
                                 plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "serve_fit", .text = served_text, .json = served_json, .csv = served_csv};
    return plim_report_print(&report, f, r, st, put, ud, err);
}

plim_status plim_serve_fit_json(const plim_serve_fit *f, plim_put put, void *ud, plim_err *err)
{
    return plim_serve_fit_print(f, PLIM_JSON, NULL, put, ud, err);
}
