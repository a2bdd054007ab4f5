/* report_cards.c -- the same run on many cards. */
#include "report/report.h"

plim_cell plim_report_price(int usd)
{
    return plim_cell_known(PLIM_CELL_COUNT, usd > 0 ? (uint64_t)usd : 0);
}

plim_cell plim_report_price_per(int usd, double samples_per_s)
{
    return plim_cell_digits(samples_per_s > 0 ? usd / samples_per_s : 0);
}

/* What the card has beyond the needs of the run, at the upper bounds. */
static plim_cell card_margin(const plim_card_row *r)
{
    return plim_cell_bytes_if(r->context_known,
                              r->gpu_bytes - PLIM_MIN(r->gpu_bytes, r->needed_high));
}

/* clang-format off */
PLIM_GETTER(card_get_card, plim_card_row, plim_cell_text(plim_report_card(r->gpu)))
PLIM_GETTER(card_get_gpu, plim_card_row, plim_cell_text(r->gpu))
PLIM_GETTER(card_get_memory, plim_card_row, plim_cell_card(r->gpu_bytes, r->gpu_exact))
PLIM_GETTER(card_get_exact, plim_card_row, plim_cell_bool(r->gpu_exact))
PLIM_GETTER(card_get_fits, plim_card_row, plim_cell_text(plim_report_fits(r->fits)))
PLIM_GETTER(card_get_device, plim_card_row, plim_cell_bytes_if(r->context_known, r->device))
PLIM_GETTER(card_get_device_low, plim_card_row, plim_cell_bytes_if(r->context_known, r->device_low))
PLIM_GETTER(card_get_device_high, plim_card_row, plim_cell_bytes_if(r->context_known, r->device_high))
PLIM_GETTER(card_get_needed_low, plim_card_row, plim_cell_bytes_if(r->context_known, r->needed_low))
PLIM_GETTER(card_get_needed_high, plim_card_row, plim_cell_bytes_if(r->context_known, r->needed_high))
PLIM_GETTER(card_get_margin, plim_card_row, card_margin(r))
PLIM_GETTER(card_get_step, plim_card_row, plim_cell_ms(r->time.usual_ms))
PLIM_GETTER(card_get_step_low, plim_card_row, plim_cell_ms(r->time.low_ms))
PLIM_GETTER(card_get_step_high, plim_card_row, plim_cell_ms(r->time.high_ms))
PLIM_GETTER(card_get_speed, plim_card_row, plim_cell_digits(r->time.samples_per_s))
PLIM_GETTER(card_get_price, plim_card_row, plim_report_price(r->price_usd))
PLIM_GETTER(card_get_price_per, plim_card_row, plim_report_price_per(r->price_usd, r->time.samples_per_s))

static const plim_column card_columns[] = {
    /* name          title        in            align         least drop get */
    {"gpu",          "card",      PLIM_IN_TEXT, PLIM_CUT_TAIL, 26, 0, card_get_card},
    {"gpu",          "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, card_get_gpu},
    {"gpu_bytes",    "memory",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  2, card_get_memory},
    {"gpu_exact",    "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, card_get_exact},
    {"fits",         "fits",      PLIM_IN_BOTH, PLIM_LEFT,     0,  0, card_get_fits},
    {"device_low",   "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, card_get_device_low},
    {"device",       "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, card_get_device},
    {"device_high",  "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, card_get_device_high},
    {"needed_low",   "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, card_get_needed_low},
    {"needed_high",  "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, card_get_needed_high},
    {"margin",       "margin",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  3, card_get_margin},
    {"low_ms",       "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, card_get_step_low},
    {"usual_ms",     "step",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  1, card_get_step},
    {"high_ms",      "",          PLIM_IN_DATA, PLIM_RIGHT,    0,  0, card_get_step_high},
    {"samples_per_s", "samples/s", PLIM_IN_BOTH, PLIM_RIGHT,   0,  0, card_get_speed},
    PLIM_PRICE_COLUMNS(card_get_price, card_get_price_per),
};
/* clang-format on */

static const plim_order card_orders[] = {
    {"throughput", "samples_per_s", false, NULL},
    {"headroom", "margin", false, NULL},
    {"price", PLIM_PRICE_PER, true, "gpu,fits,samples_per_s," PLIM_PRICE_SHOWN},
};

static plim_status card_rows(plim_page *p, const plim_cards *c, plim_rows *out, plim_err *err)
{
    *out = PLIM_ROWS_OF(card_columns, c->rows, c->n);
    return plim_rows_order(p, out, card_orders, PLIM_COUNT(card_orders),
                           p->style.sort ? p->style.sort : card_orders[0].word, err);
}

/* Keeps the rows of cards on which the run fits, or may. */
static bool keep_fitting(plim_page *p, plim_rows *r)
{
    const plim_card_row *const *all = r->items;
    const plim_card_row **kept = PLIM_NEW_N(&p->arena, const plim_card_row *, r->n);
    uint64_t n = 0;
    for (uint64_t i = 0; kept && i < r->n; i++)
        if (all[i]->fits != PLIM_FITS_NO)
            kept[n++] = all[i];
    r->items = kept;
    r->n = n;
    return kept != NULL;
}

static void card_notes(plim_page *p, const plim_cards *c, uint64_t shown)
{
    bool marketed = false, unknown = false;
    for (uint32_t i = 0; i < c->n; i++) {
        marketed |= c->rows[i]->fits != PLIM_FITS_NO && !c->rows[i]->gpu_exact;
        unknown |= c->rows[i]->fits != PLIM_FITS_NO && !c->rows[i]->context_known;
    }
    uint64_t others = c->n - shown;
    if (others)
        plim_buf_printf(&p->buf, "%sit does not fit on %" PRIu64 " %scard%s\n",
                        shown ? "\n" : "", others, shown ? "other " : "",
                        others > 1 ? "s" : "");
    if (!shown)
        return;
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_DIM);
    plim_page_wrap(p,
                   "margin: what the card has beyond the memory that the run needs, at the "
                   "upper bounds; step and samples/s: an estimate",
                   0);
    plim_page_wrap(p,
                   unknown
                       ? "maybe: at the lower bounds only, or the CUDA context size of the "
                         "card is unknown"
                       : "",
                   0);
    plim_page_wrap(
        p, marketed ? "~ estimated from the marketed size, not reported by a driver" : "", 0);
    plim_page_wrap(p, p->unknowns ? "- unknown" : "", 0);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
}

static plim_status cards_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_cards *c = subject;
    plim_rows r;
    plim_status st = card_rows(p, c, &r, err);
    if (!st && !keep_fitting(p, &r))
        st = plim_oom(err);
    if (!st && !p->style.quiet) {
        plim_report_model_line(p, c->model);
        plim_page_puts(p, "\n");
    }
    if (!st && r.n)
        st = plim_rows_text(p, &r, 0, err);
    if (!st && !p->style.quiet) {
        card_notes(p, c, r.n);
        plim_report_paragraph(p, PLIM_PAINT_WARN, c->model->note);
    }
    return st;
}

static plim_status cards_json(plim_page *p, const void *subject, plim_err *err)
{
    const plim_cards *c = subject;
    plim_rows r;
    plim_jw w;
    plim_status st = card_rows(p, c, &r, err);
    if (st)
        return st;
    plim_report_json_open(&w, p, "plimsoll/cards/1", c->model);
    plim_jw_key(&w, "settings");
    plim_settings_write(&w, c->settings, "gpus");
    plim_rows_json(&w, "cards", &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status cards_csv(plim_page *p, const void *subject, plim_err *err)
{
    plim_rows r;
    plim_status st = card_rows(p, subject, &r, err);
    r.only = NULL; /* which is for text */
    return st ? st : plim_rows_csv(p, &r, err);
}

plim_status plim_cards_print(const plim_cards *c, plim_render r, const plim_style *st,
                             plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "cards", .text = cards_text, .json = cards_json, .csv = cards_csv};
    return plim_report_print(&report, c, r, st, put, ud, err);
}

plim_status plim_cards_json(const plim_cards *c, plim_put put, void *ud, plim_err *err)
{
    return plim_cards_print(c, PLIM_JSON, NULL, put, ud, err);
}
