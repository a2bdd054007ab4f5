/* report_cards.c -- the same run on many cards. */
#include "report/blocks.h"
#include "report/figures.h"

plim_cell plim_report_price_per(int usd, double samples_per_s)
{
    return plim_cell_digits(samples_per_s > 0 ? usd / samples_per_s : 0);
}

/* clang-format off */
PLIM_GETTER(card_price_per, plim_card_row, plim_report_price_per(r->price_usd, r->time.samples_per_s))
/* clang-format on */

#include "answers/cards.def"

static const plim_order card_orders[] = {
    {"throughput", "samples_per_s", false, NULL},
    {"headroom", "headroom", false, NULL},
    {"price", PLIM_PRICE_PER, true, "gpu,fits,samples_per_s," PLIM_PRICE_SHOWN},
};

static plim_status card_rows(plim_page *p, const plim_cards *c, plim_rows *out, plim_err *err)
{
    *out = PLIM_FIGURE_ROWS(card_row, c->cards, c->n_cards);
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
    bool marketed = false, unknown = false, incomplete = false;
    plim_buf tight;
    plim_buf_init(&tight, &p->arena);
    for (uint32_t i = 0; i < c->n_cards; i++) {
        marketed |= c->cards[i]->fits != PLIM_FITS_NO && !c->cards[i]->gpu_exact;
        unknown |= c->cards[i]->fits == PLIM_FITS_MAYBE && !c->cards[i]->context_known;
        incomplete |= c->cards[i]->fits == PLIM_FITS_INCOMPLETE;
    }
    uint64_t others = c->n_cards - shown;
    if (others) {
        plim_apart(p);
        plim_line(p, " ", 0);
        plim_say(p, "it does not fit on %" PRIu64 " %scard%s", others, shown ? "other " : "",
                 others > 1 ? "s" : "");
    }
    if (!shown)
        return;
    plim_apart(p);
    plim_paragraph(p, PLIM_PAINT_DIM,
                   "headroom: what the card has beyond the needs of the run, at the upper "
                   "bounds; step and samples/s: an estimate",
                   0);
    for (uint32_t i = 0; i < c->n_cards; i++)
        if (c->cards[i]->fits == PLIM_FITS_YES && !c->cards[i]->margin_kept)
            plim_buf_printf(&tight, "%s%s", tight.n ? ", " : "",
                            plim_report_card(c->cards[i]->gpu));
    plim_report_tight(p, &tight, c->settings);
    plim_paragraph(p, PLIM_PAINT_DIM,
                   unknown ? "maybe: fits only at the lower bounds, or the CUDA context "
                             "size of the card is unknown"
                           : NULL,
                   0);
    plim_paragraph(p, PLIM_PAINT_DIM,
                   incomplete ? "incomplete: a part of the model is not counted" : NULL, 0);
    plim_paragraph(
        p, PLIM_PAINT_DIM,
        marketed ? "~ estimated from the marketed size, not reported by a driver" : NULL, 0);
    plim_if_unknown(p, "- unknown");
}

static plim_status cards_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_cards *c = subject;
    plim_rows r, all;
    PLIM_TRY(card_rows(p, c, &r, err));
    all = r;
    plim_data(p, "plimsoll/cards/1", plim_cards_figures, c, &all, 1);
    all.only = NULL; /* which is for people */
    plim_sheet(p, all);
    if (!keep_fitting(p, &r))
        return plim_oom(err);
    plim_report_model_line(p, c->model);
    p->has_quiet = true; /* which shows nothing if it fits on no card */
    if (r.n)
        plim_table_main(p, r);
    card_notes(p, c, r.n);
    return PLIM_OK;
}

PLIM_ONE_MODEL(cards_model, plim_cards)

plim_status plim_cards_print(const plim_cards *c, plim_render r, const plim_style *st,
                             plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "cards", .model = cards_model, .build = cards_build};
    return plim_report_print(&report, c, r, st, put, ud, err);
}
