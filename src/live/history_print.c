/* history_print.c -- plim_history_print: what happened, as text with plots, JSON and CSV. */
#include "live/live.h"
#include "report/figures.h"

static bool is_known(uint64_t v) { return v != PLIM_LIVE_UNKNOWN; }

/* A process as the table in text has it: a plim_history_process to its figures. */
typedef struct process_row {
    plim_history_process of;
    const char *where;
} process_row;

static plim_cell cell_ran(const plim_history_process *q)
{
    return plim_cell_measure(PLIM_KIND_DURATION, (double)(q->last_ms - q->first_ms) / 1000);
}

PLIM_GETTER(process_ran, plim_history_process, cell_ran(r))
PLIM_GETTER(process_where, process_row,
            r->where ? plim_cell_text(r->where) : (plim_cell){.kind = PLIM_CELL_UNKNOWN})

#include "answers/history.def"

/* ---- text ---------------------------------------------------------------------------------------- */

/* The greatest of `step` points from `at` on. */
static uint64_t find_greatest(const plim_history_device *d, uint32_t at, uint32_t step)
{
    uint64_t most = PLIM_LIVE_UNKNOWN;
    for (uint32_t i = at; i < at + step && i < PLIM_HISTORY_POINTS; i++)
        if (is_known(d->used[i]) && (!is_known(most) || d->used[i] > most))
            most = d->used[i];
    return most;
}

/* Columns of eighths, as high as the memory that was used is of all there is. */
static void text_plot(plim_page *p, const plim_history *h, const plim_history_device *d)
{
    enum { HEIGHT = 6, EIGHTHS = 8, WIDEST = 80 };
    uint32_t room = PLIM_MIN(p->width, WIDEST);
    uint32_t step = (PLIM_HISTORY_POINTS + room - 1) / room;
    uint64_t whole = is_known(d->total) && d->total ? d->total : d->peak;
    if (!is_known(whole) || !whole)
        return;
    plim_page_puts(p, "\n");
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_flow_printf(&f, "GPU %s, memory, 0 to %s, from %.*s to %.*s", d->gpu ? d->gpu : "-",
                     plim_fmt_bytes(whole, p->style.si).s,
                     PLIM_STR_ARG(plim_page_time(p, h->first_ms)),
                     PLIM_STR_ARG(plim_page_time(p, h->last_ms)));
    plim_flow_end(&f);
    for (int y = HEIGHT - 1; y >= 0; y--) {
        uint64_t kept = p->buf.n; /* no spaces at the end of a line */
        for (uint32_t at = 0; at < PLIM_HISTORY_POINTS; at += step) {
            uint64_t v = find_greatest(d, at, step);
            double share = is_known(v) ? PLIM_MIN((double)v / (double)whole, 1.0) : 0;
            int rest = PLIM_MIN((int)(share * HEIGHT * EIGHTHS + 0.5) - y * EIGHTHS, EIGHTHS);
            char block[4] = {'\xe2', '\x96', (char)(0x80 + rest), 0};
            plim_page_puts(p, rest <= 0         ? " "
                              : !p->style.ascii ? block
                              : rest >= 4       ? "#"
                                                : ".");
            if (rest > 0)
                kept = p->buf.n;
        }
        p->buf.n = kept;
        plim_page_puts(p, "\n");
    }
}

static plim_status text_processes(plim_page *p, const plim_history *h, plim_err *err)
{
    bool where = false, predicted = false;
    process_row *lines = PLIM_NEW_N(&p->arena, process_row, h->n_processes);
    plim_rows rows = PLIM_FIGURE_LIST(history_process, lines, h->n_processes);
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < h->n_processes; i++) {
        const plim_history_process *q = &h->processes[i];
        lines[i] = (process_row){*q, plim_live_where(&p->arena, q->job, q->container)};
        where = where || lines[i].where;
        predicted = predicted || is_known(q->predicted);
    }
    rows.hidden = where && predicted ? NULL
                  : where            ? "predicted,difference"
                  : predicted        ? "where"
                                     : "predicted,difference,where";
    return plim_rows_text(p, &rows, 0, err);
}

static plim_status print_text(plim_page *p, const plim_history *h, plim_err *err)
{
    const plim_rows devices = PLIM_FIGURE_LIST(history_device, h->devices, h->n_devices);
    if (!h->n_devices) {
        plim_page_puts(p, "The log has no reading of such a GPU.\n");
        return PLIM_OK;
    }
    for (uint32_t i = 0; i < h->n_devices; i++)
        if (is_known(h->devices[i].peak))
            p->scale = PLIM_MAX(p->scale, h->devices[i].peak);
    plim_status st = plim_rows_text(p, &devices, 0, err);
    for (uint32_t i = 0; i < h->n_devices && !st; i++)
        text_plot(p, h, &h->devices[i]);
    if (!st && h->n_processes) {
        plim_page_puts(p, "\n");
        st = text_processes(p, h, err);
    }
    if (!st && !p->style.quiet) {
        plim_report_paragraph(p, PLIM_PAINT_DIM,
                              "'then' is when the GPU had its peak: who held its memory.");
        plim_report_unknowns(p);
    }
    return st;
}

/* ---- JSON, CSV, and which ------------------------------------------------------------------------ */

static plim_status print_csv(plim_page *p, const plim_history *h, plim_err *err)
{
    const plim_rows devices = PLIM_FIGURE_LIST(history_device, h->devices, h->n_devices);
    const plim_rows processes =
        PLIM_FIGURE_LIST(history_process, h->processes, h->n_processes);
    return plim_rows_csv(p, h->n_processes ? &processes : &devices, err);
}

plim_status plim_history_print(const plim_history *h, plim_live_form form,
                               const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    PLIM_REQUIRE(h, err);
    PLIM_REQUIRE(put, err);
    if (form != PLIM_LIVE_TEXT && form != PLIM_LIVE_JSON && form != PLIM_LIVE_CSV)
        return plim_fail(err, PLIM_EUSAGE, (uint64_t)form, "a history has no form %d",
                         (int)form);
    plim_page p;
    plim_page_open(&p, st);
    plim_status done =
        form == PLIM_LIVE_TEXT ? print_text(&p, h, err)
        : form == PLIM_LIVE_JSON
            ? plim_report_json(&p, "plimsoll/top-history/1", plim_history_figures, h, NULL)
            : print_csv(&p, h, err);
    return plim_page_send(&p, done, put, ud, err);
}
