/* history_print.c -- plim_history_print: the report of what happened. */
#include "live/live.h"
#include "report/blocks.h"
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

/* ---- blocks -------------------------------------------------------------------------------------- */

/* The greatest of `step` points from `at` on. */
static uint64_t find_greatest(const plim_history_device *d, uint32_t at, uint32_t step)
{
    uint64_t most = PLIM_LIVE_UNKNOWN;
    for (uint32_t i = at; i < at + step && i < PLIM_HISTORY_POINTS; i++)
        if (is_known(d->used[i]) && (!is_known(most) || d->used[i] > most))
            most = d->used[i];
    return most;
}

static uint64_t plot_top(const plim_history_device *d)
{
    return is_known(d->total) && d->total ? d->total : d->peak;
}

/* Columns of eighths, as high as the memory that was used is of all there is. */
static plim_status draw_plot(plim_page *p, const void *of, plim_err *err)
{
    enum { HEIGHT = 6, EIGHTHS = 8, WIDEST = 80 };
    (void)err;
    const plim_history_device *d = of;
    uint32_t room = PLIM_MIN(p->width, WIDEST);
    uint32_t step = (PLIM_HISTORY_POINTS + room - 1) / room;
    for (int y = HEIGHT - 1; y >= 0; y--) {
        uint64_t kept = p->buf.n; /* no spaces at the end of a line */
        for (uint32_t at = 0; at < PLIM_HISTORY_POINTS; at += step) {
            uint64_t v = find_greatest(d, at, step);
            double share = is_known(v) ? PLIM_MIN((double)v / (double)plot_top(d), 1.0) : 0;
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
    return PLIM_OK;
}

static void add_plot(plim_page *p, const plim_history *h, const plim_history_device *d)
{
    uint64_t top = plot_top(d);
    if (!is_known(top) || !top)
        return;
    plim_apart(p);
    plim_line(p, " ", 0);
    plim_in_quiet(p);
    plim_say(p, "GPU %s, memory, 0 to %s, from " PLIM_STR_FMT " to " PLIM_STR_FMT,
             d->gpu ? d->gpu : "-", plim_fmt_bytes(top, p->style.si).s,
             PLIM_STR_ARG(plim_page_time(p, h->first_ms)),
             PLIM_STR_ARG(plim_page_time(p, h->last_ms)));
    plim_chart(p, draw_plot, d);
    plim_in_quiet(p);
}

static plim_status add_processes(plim_page *p, const plim_history *h, plim_err *err)
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
    plim_apart(p);
    plim_table(p, rows, 0);
    plim_in_quiet(p);
    return PLIM_OK;
}

static plim_status history_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_history *h = subject;
    const plim_rows devices = PLIM_FIGURE_LIST(history_device, h->devices, h->n_devices);
    plim_data(p, "plimsoll/top-history/1", plim_history_figures, h, NULL, 0);
    plim_sheet(p, h->n_processes
                      ? PLIM_FIGURE_LIST(history_process, h->processes, h->n_processes)
                      : devices);
    if (!h->n_devices) {
        plim_line(p, " ", 0);
        plim_say(p, "The log has no readings of such a GPU.");
        return PLIM_OK;
    }
    for (uint32_t i = 0; i < h->n_devices; i++)
        if (is_known(h->devices[i].peak))
            p->scale = PLIM_MAX(p->scale, h->devices[i].peak);
    plim_table(p, devices, 0);
    plim_in_quiet(p);
    for (uint32_t i = 0; i < h->n_devices; i++)
        add_plot(p, h, &h->devices[i]);
    plim_status st = h->n_processes ? add_processes(p, h, err) : PLIM_OK;
    plim_paragraph_apart(p, PLIM_PAINT_DIM,
                         "'then': what a process held when the GPU had its peak.");
    plim_if_unknown(p, "- unknown");
    return st;
}

plim_status plim_history_print(const plim_history *h, plim_render how, const plim_style *st,
                               plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "top", .build = history_build};
    PLIM_REQUIRE(h, err);
    return plim_report_print(&report, h, how, st, put, ud, err);
}
