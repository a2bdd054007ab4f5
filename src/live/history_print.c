/* history_print.c -- plim_history_print: what happened, as text with plots, JSON and CSV. */
#include <math.h>
#include <time.h>

#include "live/live.h"
#include "report/report.h"

static bool is_known(uint64_t v) { return v != PLIM_LIVE_UNKNOWN; }

/* A row of the report: a device, or a process with its device. */
typedef struct line {
    const plim_history_device *d;
    const plim_history_process *q; /* NULL: of a device */
    const char *peak_at, *growth, *full, *ran, *where, *pid;
} line;

static plim_cell number_cell(uint64_t v)
{
    return plim_cell_bytes_if(is_known(v), is_known(v) ? v : 0);
}

static plim_cell text_cell(const char *z)
{
    return z ? plim_cell_text(z) : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell real_cell(double v)
{
    return isfinite(v) ? plim_cell_int((int64_t)PLIM_MIN(PLIM_MAX(v, -1e18), 1e18))
                       : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static bool is_predicted(const plim_history_process *q)
{
    return is_known(q->peak) && is_known(q->predicted);
}

static plim_cell delta_cell(const plim_history_process *q)
{
    return is_predicted(q) ? plim_cell_delta(q->peak, q->predicted)
                           : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell difference_cell(const plim_history_process *q)
{
    return is_predicted(q) ? plim_cell_int((int64_t)(q->peak - q->predicted))
                           : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell ms_cell(bool known, int64_t ms)
{
    return known ? plim_cell_int(ms) : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

/* clang-format off */
PLIM_GETTER(device_gpu, line, text_cell(r->d->gpu))
PLIM_GETTER(device_name, line, text_cell(r->d->name))
PLIM_GETTER(device_total, line, number_cell(r->d->total))
PLIM_GETTER(device_peak, line, number_cell(r->d->peak))
PLIM_GETTER(device_free, line, number_cell(r->d->free_at_peak))
PLIM_GETTER(line_peak_at, line, text_cell(r->peak_at))
PLIM_GETTER(line_growth, line, text_cell(r->growth))
PLIM_GETTER(device_full, line, text_cell(r->full))
PLIM_GETTER(device_host, line, text_cell(r->d->host))
PLIM_GETTER(device_uuid, line, text_cell(r->d->uuid))
PLIM_GETTER(device_peak_ms, line, ms_cell(is_known(r->d->peak), r->d->peak_ms))
PLIM_GETTER(device_growth_data, line, real_cell(r->d->growth))
PLIM_GETTER(device_full_data, line, real_cell(r->d->full_in))

static const plim_column device_columns[] = {
    PLIM_COLUMN("host", "host", PLIM_IN_DATA, PLIM_LEFT, 0, 0, device_host),
    PLIM_COLUMN("gpu", "gpu", PLIM_IN_BOTH, PLIM_LEFT, 0, 0, device_gpu),
    PLIM_COLUMN("uuid", "uuid", PLIM_IN_DATA, PLIM_LEFT, 0, 0, device_uuid),
    PLIM_COLUMN("name", "name", PLIM_IN_BOTH, PLIM_CUT_TAIL, 10, 1, device_name),
    PLIM_COLUMN("total", "total", PLIM_IN_BOTH, PLIM_RIGHT, 0, 3, device_total),
    PLIM_COLUMN("peak", "peak", PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, device_peak),
    PLIM_COLUMN("free_at_peak", "free then", PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, device_free),
    PLIM_COLUMN("peak_at", "peak at", PLIM_IN_TEXT, PLIM_LEFT, 0, 2, line_peak_at),
    PLIM_COLUMN("growth", "growth", PLIM_IN_TEXT, PLIM_RIGHT, 0, 5, line_growth),
    PLIM_COLUMN("full", "full in", PLIM_IN_TEXT, PLIM_RIGHT, 0, 4, device_full),
    PLIM_COLUMN("peak_ms", "peak_ms", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, device_peak_ms),
    PLIM_COLUMN("growth_per_s", "growth_per_s", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, device_growth_data),
    PLIM_COLUMN("full_in_s", "full_in_s", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, device_full_data),
};

PLIM_GETTER(process_pid, line, text_cell(r->pid))
PLIM_GETTER(process_pid_data, line, number_cell(r->q->pid))
PLIM_GETTER(process_user, line, text_cell(r->q->user))
PLIM_GETTER(process_peak, line, number_cell(r->q->peak))
PLIM_GETTER(process_held, line, number_cell(r->q->held))
PLIM_GETTER(process_predicted, line, number_cell(r->q->predicted))
PLIM_GETTER(process_delta, line, delta_cell(r->q))
PLIM_GETTER(process_difference, line, difference_cell(r->q))
PLIM_GETTER(process_growth, line, real_cell(r->q->growth))
PLIM_GETTER(process_ran, line, text_cell(r->ran))
PLIM_GETTER(process_where, line, text_cell(r->where))
PLIM_GETTER(process_job, line, text_cell(r->q->job))
PLIM_GETTER(process_container, line, text_cell(r->q->container))
PLIM_GETTER(process_command, line, text_cell(r->q->command))
PLIM_GETTER(process_peak_ms, line, ms_cell(is_known(r->q->peak), r->q->peak_ms))
PLIM_GETTER(process_first_ms, line, ms_cell(true, r->q->first_ms))
PLIM_GETTER(process_last_ms, line, ms_cell(true, r->q->last_ms))

static const plim_column process_columns[] = {
    PLIM_COLUMN("host", "host", PLIM_IN_DATA, PLIM_LEFT, 0, 0, device_host),
    PLIM_COLUMN("gpu", "gpu", PLIM_IN_BOTH, PLIM_LEFT, 0, 0, device_gpu),
    PLIM_COLUMN("uuid", "uuid", PLIM_IN_DATA, PLIM_LEFT, 0, 0, device_uuid),
    PLIM_COLUMN("pid_shown", "pid", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, process_pid),
    PLIM_COLUMN("pid", "pid", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, process_pid_data),
    PLIM_COLUMN("user", "user", PLIM_IN_BOTH, PLIM_LEFT, 0, 3, process_user),
    PLIM_COLUMN("peak", "peak", PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, process_peak),
    PLIM_COLUMN("held", "then", PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, process_held),
    PLIM_COLUMN("predicted", "predicted", PLIM_IN_BOTH, PLIM_RIGHT, 0, 5, process_predicted),
    PLIM_COLUMN("delta", "difference", PLIM_IN_TEXT, PLIM_RIGHT, 0, 5, process_delta),
    PLIM_COLUMN("difference", "difference", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, process_difference),
    PLIM_COLUMN("growth", "growth", PLIM_IN_TEXT, PLIM_RIGHT, 0, 4, line_growth),
    PLIM_COLUMN("growth_per_s", "growth_per_s", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, process_growth),
    PLIM_COLUMN("ran", "seen for", PLIM_IN_TEXT, PLIM_RIGHT, 0, 6, process_ran),
    PLIM_COLUMN("where", "job, container", PLIM_IN_TEXT, PLIM_LEFT, 0, 2, process_where),
    PLIM_COLUMN("command", "command", PLIM_IN_BOTH, PLIM_CUT_TAIL, 12, 1, process_command),
    PLIM_COLUMN("job", "job", PLIM_IN_DATA, PLIM_LEFT, 0, 0, process_job),
    PLIM_COLUMN("container", "container", PLIM_IN_DATA, PLIM_LEFT, 0, 0, process_container),
    PLIM_COLUMN("peak_ms", "peak_ms", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, process_peak_ms),
    PLIM_COLUMN("first_ms", "first_ms", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, process_first_ms),
    PLIM_COLUMN("last_ms", "last_ms", PLIM_IN_DATA, PLIM_RIGHT, 0, 0, process_last_ms),
};
/* clang-format on */

/* ---- text ---------------------------------------------------------------------------------------- */

static const char *time_text(plim_page *p, int64_t ms)
{
    char text[64];
    time_t seconds = (time_t)(ms / 1000);
    struct tm t;
    if (!localtime_r(&seconds, &t) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &t))
        return NULL;
    return plim_arena_str(&p->arena, plim_str_of(text)).p;
}

static const char *where_text(plim_page *p, const plim_history_process *q)
{
    if (q->job && q->container)
        return plim_arena_printf(&p->arena, "job %s, %s", q->job, q->container).p;
    return q->job ? plim_arena_printf(&p->arena, "job %s", q->job).p : q->container;
}

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
    plim_flow_printf(&f, "GPU %s, memory, 0 to %s, from %s to %s", d->gpu ? d->gpu : "-",
                     plim_fmt_bytes(whole, p->style.si).s, time_text(p, h->first_ms),
                     time_text(p, h->last_ms));
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

static plim_status text_rows(plim_page *p, const plim_column *from, size_t n_from,
                             const line *lines, uint64_t n, bool where, bool predicted,
                             plim_err *err)
{
    plim_column columns[PLIM_COLUMNS_MAX];
    size_t k = 0;
    for (size_t i = 0; i < n_from; i++)
        if ((where || strcmp(from[i].name, "where") != 0) &&
            (predicted ||
             (strcmp(from[i].name, "predicted") != 0 && strcmp(from[i].name, "delta") != 0)))
            columns[k++] = from[i];
    plim_rows rows = {columns, k, lines, sizeof *lines, n, NULL, NULL};
    return plim_rows_text(p, &rows, 0, err);
}

static plim_status print_text(plim_page *p, const plim_history *h, line *devices,
                              line *processes, plim_err *err)
{
    bool where = false, predicted = false;
    if (!h->n_devices) {
        plim_page_puts(p, "The log has no reading of such a GPU.\n");
        return PLIM_OK;
    }
    for (uint32_t i = 0; i < h->n_devices; i++) {
        const plim_history_device *d = &h->devices[i];
        devices[i].peak_at = is_known(d->peak) ? time_text(p, d->peak_ms) : NULL;
        devices[i].growth = plim_live_growth_text(p, d->growth);
        devices[i].full = plim_live_duration_text(p, d->full_in);
        if (is_known(d->peak))
            p->scale = PLIM_MAX(p->scale, d->peak);
    }
    for (uint32_t i = 0; i < h->n_processes; i++) {
        const plim_history_process *q = &h->processes[i];
        processes[i].pid =
            is_known(q->pid) ? plim_arena_printf(&p->arena, "%" PRIu64, q->pid).p : NULL;
        processes[i].growth = plim_live_growth_text(p, q->growth);
        processes[i].ran =
            plim_live_duration_text(p, (double)(q->last_ms - q->first_ms) / 1000);
        processes[i].where = where_text(p, q);
        where = where || processes[i].where;
        predicted = predicted || is_known(q->predicted);
    }
    plim_status st = text_rows(p, device_columns, PLIM_COUNT(device_columns), devices,
                               h->n_devices, true, true, err);
    for (uint32_t i = 0; i < h->n_devices && !st; i++)
        text_plot(p, h, &h->devices[i]);
    if (!st && h->n_processes) {
        plim_page_puts(p, "\n");
        st = text_rows(p, process_columns, PLIM_COUNT(process_columns), processes,
                       h->n_processes, where, predicted, err);
    }
    if (!st && !p->style.quiet) {
        plim_report_paragraph(p, PLIM_PAINT_DIM,
                              "'then' is when the GPU had its peak: who held its memory.");
        plim_report_unknowns(p);
    }
    return st;
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_plot(plim_jw *w, const plim_history_device *d)
{
    plim_jw_key(w, "used");
    plim_jw_array(w);
    for (int i = 0; i < PLIM_HISTORY_POINTS; i++)
        if (is_known(d->used[i]))
            plim_jw_u64(w, d->used[i]);
        else
            plim_jw_null(w);
    plim_jw_end(w);
}

static plim_status print_json(plim_page *p, const plim_history *h, const plim_rows *devices,
                              const plim_rows *processes)
{
    plim_jw w;
    plim_report_json_open(&w, p, "plimsoll/top-history/1", NULL);
    plim_jw_key(&w, "first_ms");
    plim_jw_i64(&w, h->first_ms);
    plim_jw_key(&w, "last_ms");
    plim_jw_i64(&w, h->last_ms);
    plim_rows_json(&w, "devices", devices);
    plim_rows_json(&w, "processes", processes);
    plim_jw_key(&w, "plots");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < h->n_devices; i++) {
        plim_jw_object(&w);
        plim_jw_key(&w, "host");
        plim_jw_cstr(&w, h->devices[i].host);
        plim_jw_key(&w, "gpu");
        plim_jw_cstr(&w, h->devices[i].gpu);
        json_plot(&w, &h->devices[i]);
        plim_jw_end(&w);
    }
    plim_jw_end(&w);
    plim_report_json_close(&w);
    return PLIM_OK;
}

/* ---- which --------------------------------------------------------------------------------------- */

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
    line *devices = PLIM_NEW_N(&p.arena, line, h->n_devices + 1u);
    line *processes = PLIM_NEW_N(&p.arena, line, h->n_processes + 1u);
    plim_status done = PLIM_OK;
    if (!devices || !processes)
        done = plim_oom(err);
    for (uint32_t i = 0; !done && i < h->n_devices; i++)
        devices[i] = (line){.d = &h->devices[i]};
    for (uint32_t i = 0; !done && i < h->n_processes; i++)
        processes[i] = (line){.d = &h->devices[h->processes[i].device], .q = &h->processes[i]};
    plim_rows d = {device_columns,
                   PLIM_COUNT(device_columns),
                   devices,
                   sizeof *devices,
                   h->n_devices,
                   NULL,
                   NULL};
    plim_rows q = {process_columns,
                   PLIM_COUNT(process_columns),
                   processes,
                   sizeof *processes,
                   h->n_processes,
                   NULL,
                   NULL};
    if (!done)
        done = form == PLIM_LIVE_TEXT   ? print_text(&p, h, devices, processes, err)
               : form == PLIM_LIVE_JSON ? print_json(&p, h, &d, &q)
                                        : plim_rows_csv(&p, h->n_processes ? &q : &d, err);
    return plim_page_send(&p, done, put, ud, err);
}
