/* report_machine.c -- what a program did to several cards of one machine: which is the
 * fullest, then each card's own report. */
#include "report/report_vgpu.h"

#include <stdio.h>

typedef struct machine {
    const plim_vgpu_report *const *r;
    uint32_t n;
} machine;

static bool is_fuller(const plim_vgpu_report *a, const plim_vgpu_report *b)
{
    return a->peak_reserved != b->peak_reserved ? a->peak_reserved > b->peak_reserved
                                                : a->peak_allocated > b->peak_allocated;
}

/* The card that ran out of memory, else the one that reserved the most. */
static uint32_t find_fullest(const machine *m)
{
    uint32_t fullest = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        if (plim_run_died(m->r[i]))
            return i;
        if (is_fuller(m->r[i], m->r[fullest]))
            fullest = i;
    }
    return fullest;
}

/* ---- the cards ------------------------------------------------------------- */

typedef struct card_row {
    const plim_vgpu_report *r;
    char name[16]; /* "cuda:0" */
} card_row;

static plim_cell card_fits(const plim_vgpu_report *r)
{
    static const char *const words[PLIM_VGPU_END_COUNT] = {"yes", "so far", "no", "unknown"};
    plim_vgpu_end end = plim_run_died(r) ? PLIM_VGPU_END_MEMORY : r->end;
    return plim_cell_text(r->storages ? words[end] : "unused");
}

static plim_cell card_device(const plim_vgpu_report *r)
{
    return r->context_known && r->storages
               ? plim_cell_range(r->peak_reserved + r->context_low,
                                 r->peak_reserved + r->context_high)
               : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

/* clang-format off */
PLIM_GETTER(card_get_name, card_row, plim_cell_text(r->name))
PLIM_GETTER(card_get_fits, card_row, card_fits(r->r))
PLIM_GETTER(card_get_allocated, card_row, plim_cell_u64(PLIM_CELL_BYTES, r->r->peak_allocated))
PLIM_GETTER(card_get_reserved, card_row, plim_cell_u64(PLIM_CELL_BYTES, r->r->peak_reserved))
PLIM_GETTER(card_get_device, card_row, card_device(r->r))
PLIM_GETTER(card_get_line, card_row, plim_cell_text(r->r->peak_line))

static const plim_column card_columns[] = {
    /* name            title             in            align         least drop get */
    PLIM_COLUMN("card",           "card",           PLIM_IN_TEXT, PLIM_LEFT,     0,  0, card_get_name),
    PLIM_COLUMN("fits",           "fits",           PLIM_IN_TEXT, PLIM_LEFT,     0,  0, card_get_fits),
    PLIM_COLUMN("peak_allocated", "peak allocated", PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, card_get_allocated),
    PLIM_COLUMN("peak_reserved",  "reserved",       PLIM_IN_TEXT, PLIM_RIGHT,    0,  1, card_get_reserved),
    PLIM_COLUMN("device",         "device",         PLIM_IN_TEXT, PLIM_RIGHT,    0,  2, card_get_device),
    PLIM_COLUMN("peak_line",      "peak at",        PLIM_IN_TEXT, PLIM_CUT_HEAD, 16, 3, card_get_line),
};
/* clang-format on */

static plim_status print_cards(plim_page *p, const machine *m, plim_err *err)
{
    card_row *rows = PLIM_NEW_N(&p->arena, card_row, m->n);
    if (!rows)
        return plim_oom(err);
    for (uint32_t i = 0; i < m->n; i++) {
        rows[i].r = m->r[i];
        snprintf(rows[i].name, sizeof rows[i].name, "cuda:%" PRIu32, m->r[i]->card.index);
    }
    const plim_rows table = {.columns = card_columns,
                             .n_columns = PLIM_COUNT(card_columns),
                             .items = rows,
                             .size = sizeof *rows,
                             .n = m->n};
    plim_page_puts(p, "\n");
    return plim_rows_text(p, &table, 2, err);
}

/* ---- text ------------------------------------------------------------------ */

/* "It fits: cuda:1 is the fullest, with 5.49 GiB of 23.64 GiB reserved" */
static void print_verdict(plim_page *p, const machine *m)
{
    static const char *const words[PLIM_VGPU_END_COUNT] = {
        "It fits", "It fits, as far as it ran", "Out of memory", "No verdict"};
    const plim_vgpu_report *full = m->r[find_fullest(m)];
    bool died = plim_run_died(full);
    uint64_t num_ooms = 0;
    for (uint32_t i = 0; i < m->n; i++)
        num_ooms += m->r[i]->num_ooms;
    plim_page_paint(p, died ? PLIM_PAINT_BAD : PLIM_PAINT_GOOD);
    plim_page_puts(p, words[died ? PLIM_VGPU_END_MEMORY : full->end]);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    if (!died && full->end != PLIM_VGPU_END_ERROR)
        plim_run_recovered(p, num_ooms);
    plim_buf_printf(&p->buf, ": cuda:%" PRIu32 " is the fullest, with %s of %s reserved\n",
                    full->card.index, plim_fmt_bytes(full->peak_reserved, p->style.si).s,
                    plim_fmt_bytes(full->card.total, p->style.si).s);
    for (uint32_t i = 0; i < m->n; i++) {
        char lead[48];
        snprintf(lead, sizeof lead, "cuda:%" PRIu32 " ran out of memory at ",
                 m->r[i]->card.index);
        if (plim_run_died(m->r[i]))
            plim_run_memory(p, lead, m->r[i]);
    }
}

static void print_quiet(plim_page *p, const plim_vgpu_report *r)
{
    const struct {
        const char *name;
        uint64_t n;
    } rows[] = {{"peak_requested", r->peak_requested},
                {"peak_allocated", r->peak_allocated},
                {"peak_reserved", r->peak_reserved},
                {"num_ooms", r->num_ooms}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        plim_buf_printf(&p->buf, "cuda:%" PRIu32 " %s %" PRIu64 "\n", r->card.index,
                        rows[i].name, rows[i].n);
}

static plim_status machine_text(plim_page *p, const void *subject, plim_err *err)
{
    const machine *m = subject;
    uint64_t used = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        used += m->r[i]->storages;
        if (p->style.quiet)
            print_quiet(p, m->r[i]);
    }
    if (p->style.quiet)
        return PLIM_OK;
    plim_buf_printf(&p->buf, "%" PRIu32 " x ", m->n);
    plim_run_title(p, m->r[0]);
    if (used)
        print_verdict(p, m);
    else
        plim_page_puts(p, "The script used no card\n");
    plim_status st = used ? print_cards(p, m, err) : PLIM_OK;
    for (uint32_t i = 0; i < m->n && !st; i++) {
        if (!m->r[i]->peak_requested)
            continue;
        plim_page_paint(p, PLIM_PAINT_BOLD);
        plim_buf_printf(&p->buf, "\ncuda:%" PRIu32 "\n", m->r[i]->card.index);
        plim_page_paint(p, PLIM_PAINT_PLAIN);
        st = plim_run_body(p, m->r[i], err);
    }
    for (uint32_t i = 0; i < m->n && !st; i++)
        plim_run_caveats(p, m->r[i]);
    return st;
}

/* ---- JSON ------------------------------------------------------------------ */

static plim_status machine_json(plim_page *p, const void *subject, plim_err *err)
{
    const machine *m = subject;
    plim_jw w;
    (void)err;
    plim_report_json_open(&w, p, "plimsoll/machine/1", NULL);
    plim_jw_key(&w, "fullest");
    plim_jw_u64(&w, m->r[find_fullest(m)]->card.index);
    plim_jw_key(&w, "cards");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < m->n; i++) {
        plim_jw_object(&w);
        plim_jw_key(&w, "device");
        plim_jw_u64(&w, m->r[i]->card.index);
        plim_run_json(&w, m->r[i]);
        plim_jw_end(&w);
    }
    plim_jw_end(&w);
    plim_report_json_close(&w);
    return PLIM_OK;
}

plim_status plim_vgpu_machine_print(const plim_vgpu_report *const *r, uint32_t n,
                                    plim_render how, const plim_style *st, plim_put put,
                                    void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "run", .text = machine_text, .json = machine_json};
    PLIM_REQUIRE(r, err);
    if (!n)
        return plim_fail(err, PLIM_EUSAGE, 0, "a machine without a card");
    const machine m = {r, n};
    return n == 1 ? plim_vgpu_report_print(r[0], how, st, put, ud, err)
                  : plim_report_print(&report, &m, how, st, put, ud, err);
}
