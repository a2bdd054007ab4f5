/* report_driver.c -- a recording of CUDA's driver: who held the memory of each device. */
#include "plimsoll_live.h"
#include "report/report.h"

/* A row of a device's table: what a library asked for, or a figure of the driver. */
typedef struct who_row {
    const char *who, *way;
    bool calls_known, peak_known;
    uint64_t calls, at_peak;
    bool end_known, negative; /* negative: less than nothing, as others gave memory back */
    uint64_t at_end;
} who_row;

static plim_cell end_cell(const who_row *r)
{
    return r->negative ? plim_cell_delta(0, r->at_end)
                       : plim_cell_bytes_if(r->end_known, r->at_end);
}

/* clang-format off */
PLIM_GETTER(who_who, who_row, plim_cell_text(r->who))
PLIM_GETTER(who_way, who_row, plim_cell_text(r->way))
PLIM_GETTER(who_calls, who_row, r->calls_known ? plim_cell_u64(PLIM_CELL_COUNT, r->calls) : plim_cell_text(""))
PLIM_GETTER(who_peak, who_row, r->peak_known ? plim_cell_u64(PLIM_CELL_BYTES, r->at_peak) : plim_cell_text(""))
PLIM_GETTER(who_end, who_row, end_cell(r))

static const plim_column who_columns[] = {
    /* name      title          in            align       least drop get */
    PLIM_COLUMN("who",      "who",         PLIM_IN_TEXT, PLIM_CUT_TAIL, 16, 0, who_who),
    PLIM_COLUMN("way",      "how",         PLIM_IN_TEXT, PLIM_LEFT,     0,  1, who_way),
    PLIM_COLUMN("calls",    "allocations", PLIM_IN_TEXT, PLIM_RIGHT,    0,  2, who_calls),
    PLIM_COLUMN("at_peak",  "at the peak", PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, who_peak),
    PLIM_COLUMN("at_end",   "at the end",  PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, who_end),
};

PLIM_GETTER(part_process, plim_driver_part, plim_cell_u64(PLIM_CELL_COUNT, r->process))
PLIM_GETTER(part_device, plim_driver_part, r->device < 0 ? (plim_cell){0} : plim_cell_int(r->device))
PLIM_GETTER(part_library, plim_driver_part, r->library ? plim_cell_text(r->library) : (plim_cell){0})
PLIM_GETTER(part_path, plim_driver_part, r->path ? plim_cell_text(r->path) : (plim_cell){0})
PLIM_GETTER(part_way, plim_driver_part, plim_cell_text(r->way))
PLIM_GETTER(part_on_device, plim_driver_part, plim_cell_bool(r->on_device))
PLIM_GETTER(part_calls, plim_driver_part, plim_cell_u64(PLIM_CELL_COUNT, r->calls))
PLIM_GETTER(part_failed, plim_driver_part, plim_cell_u64(PLIM_CELL_COUNT, r->failed))
PLIM_GETTER(part_at_peak, plim_driver_part, plim_cell_u64(PLIM_CELL_BYTES, r->at_peak))
PLIM_GETTER(part_at_end, plim_driver_part, plim_cell_u64(PLIM_CELL_BYTES, r->at_end))

static const plim_column part_columns[] = {
    PLIM_COLUMN("process",   "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_process),
    PLIM_COLUMN("device",    "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_device),
    PLIM_COLUMN("library",   "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_library),
    PLIM_COLUMN("path",      "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_path),
    PLIM_COLUMN("way",       "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_way),
    PLIM_COLUMN("on_device", "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_on_device),
    PLIM_COLUMN("calls",     "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_calls),
    PLIM_COLUMN("failed",    "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_failed),
    PLIM_COLUMN("at_peak",   "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_at_peak),
    PLIM_COLUMN("at_end",    "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, part_at_end),
};

PLIM_GETTER(line_process, plim_driver_line, plim_cell_u64(PLIM_CELL_COUNT, r->process))
PLIM_GETTER(line_device, plim_driver_line, plim_cell_int(r->device))
PLIM_GETTER(line_where, plim_driver_line, plim_cell_text(r->where))
PLIM_GETTER(line_calls, plim_driver_line, plim_cell_u64(PLIM_CELL_COUNT, r->calls))
PLIM_GETTER(line_at_peak, plim_driver_line, plim_cell_u64(PLIM_CELL_BYTES, r->at_peak))
PLIM_GETTER(line_at_end, plim_driver_line, plim_cell_u64(PLIM_CELL_BYTES, r->at_end))

static const plim_column line_columns[] = {
    PLIM_COLUMN("process", "",               PLIM_IN_DATA, PLIM_LEFT,     0,  0, line_process),
    PLIM_COLUMN("device",  "",               PLIM_IN_DATA, PLIM_LEFT,     0,  0, line_device),
    PLIM_COLUMN("where",   "line of Python", PLIM_IN_BOTH, PLIM_CUT_HEAD, 16, 0, line_where),
    PLIM_COLUMN("calls",   "allocations",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  2, line_calls),
    PLIM_COLUMN("at_peak", "at the peak",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, line_at_peak),
    PLIM_COLUMN("at_end",  "at the end",     PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, line_at_end),
};
/* clang-format on */

/* ---- text ------------------------------------------------------------------- */

static const char *show_seconds(plim_page *p, double s)
{
    plim_str text = plim_arena_printf(&p->arena, "%s s", plim_fmt_fixed(s, s < 10 ? 3 : 1).s);
    p->buf.bad |= !text.p;
    return text.p ? text.p : "";
}

static void driver_head(plim_page *p, const plim_driver_report *r)
{
    plim_flow f = plim_flow_open(p, plim_page_glyph(p, " \xc2\xb7 ", " | "), 0);
    plim_page_puts(p, "Recorded: ");
    plim_buf_add(&p->buf, plim_page_cut(p, plim_page_clean(p, r->command),
                                        p->width > 12 ? p->width - 10 : 2, false));
    plim_page_puts(p, "\n");
    plim_flow_printf(&f, "%s %s", plim_fmt_count(r->events).s,
                     r->events == 1 ? "event" : "events");
    plim_flow_printf(&f, "%" PRIu32 " %s", r->n_processes,
                     r->n_processes == 1 ? "process" : "processes");
    plim_flow_printf(&f, "%s", show_seconds(p, r->seconds));
    plim_flow_end(&f);
}

static bool belongs_to(const plim_driver_report *r, uint32_t i, const plim_driver_device *d)
{
    return r->parts[i].process == d->process && r->parts[i].device == d->device;
}

static const char *part_name(const plim_driver_part *p)
{
    return p->library ? p->library : "(not known)";
}

static who_row row_of(const plim_driver_part *p)
{
    return (who_row){.who = part_name(p),
                     .way = p->way,
                     .calls_known = true,
                     .calls = p->calls,
                     .peak_known = true,
                     .at_peak = p->at_peak,
                     .end_known = true,
                     .at_end = p->at_end};
}

/* The context, what each library holds, the rest, and the driver's own figure. */
static plim_status device_table(plim_page *p, const plim_driver_report *r,
                                const plim_driver_device *d, plim_err *err)
{
    enum { FIGURES = 3 };
    who_row *rows = PLIM_NEW_N(&p->arena, who_row, r->n_parts + (uint64_t)FIGURES);
    plim_rows table = {.columns = who_columns,
                       .n_columns = PLIM_COUNT(who_columns),
                       .items = rows,
                       .size = sizeof *rows};
    bool known = d->used != PLIM_LIVE_UNKNOWN;
    if (!rows)
        return plim_oom(err);
    rows[table.n++] = (who_row){.who = "CUDA context",
                                .way = "driver",
                                .peak_known = known,
                                .at_peak = d->context,
                                .end_known = known,
                                .at_end = d->context};
    for (uint32_t i = 0; i < r->n_parts; i++)
        if (belongs_to(r, i, d) && r->parts[i].on_device)
            rows[table.n++] = row_of(&r->parts[i]);
    rows[table.n++] = (who_row){.who = "the driver beyond that",
                                .way = "driver",
                                .end_known = known,
                                .negative = d->rest < 0,
                                .at_end = (uint64_t)(d->rest < 0 ? -d->rest : d->rest)};
    rows[table.n++] = (who_row){
        .who = "in use, as the driver says", .way = "", .end_known = known, .at_end = d->used};
    return plim_rows_text(p, &table, 2, err);
}

/* The same of memory that is not, or not always, on the device. */
static plim_status beside_table(plim_page *p, const plim_driver_report *r, plim_err *err)
{
    who_row *rows = PLIM_NEW_N(&p->arena, who_row, r->n_parts + UINT64_C(1));
    plim_rows table = {.columns = who_columns,
                       .n_columns = PLIM_COUNT(who_columns),
                       .items = rows,
                       .size = sizeof *rows};
    if (!rows)
        return plim_oom(err);
    for (uint32_t i = 0; i < r->n_parts; i++)
        if (!r->parts[i].on_device)
            rows[table.n++] = row_of(&r->parts[i]);
    if (!table.n)
        return PLIM_OK;
    plim_page_puts(
        p, "\nPinned memory of the host, managed memory, memory of other processes (each at "
           "its own peak)\n");
    return plim_rows_text(p, &table, 2, err);
}

static bool is_torch(const char *library)
{
    return library &&
           (!strncmp(library, "libc10_cuda", 11) || !strncmp(library, "libtorch", 8));
}

/* What the memory outside PyTorch is, if PyTorch is there. */
static void outside_line(plim_page *p, const plim_driver_report *r,
                         const plim_driver_device *d)
{
    enum { NAMED = 3 };
    bool si = p->style.si, context = d->context != PLIM_LIVE_UNKNOWN;
    uint64_t torch = 0, outside = context ? d->context : 0;
    for (uint32_t i = 0; i < r->n_parts; i++)
        if (belongs_to(r, i, d) && r->parts[i].on_device)
            *(is_torch(r->parts[i].library) ? &torch : &outside) += r->parts[i].at_peak;
    if (!torch || !outside)
        return;
    plim_flow f = plim_flow_open(p, " ", 2);
    plim_flow_printf(&f, "At the peak %s was PyTorch's and %s was not:",
                     plim_fmt_bytes(torch, si).s, plim_fmt_bytes(outside, si).s);
    if (context)
        plim_flow_printf(&f, "%s context", plim_fmt_bytes(d->context, si).s);
    for (uint32_t i = 0, n = 0; i < r->n_parts && n < NAMED; i++) {
        const plim_driver_part *part = &r->parts[i];
        if (!belongs_to(r, i, d) || !part->on_device || is_torch(part->library) ||
            !part->at_peak)
            continue;
        plim_flow_printf(&f, "%s%s %s", context || n ? "+ " : "",
                         plim_fmt_bytes(part->at_peak, si).s, part_name(part));
        n++;
    }
    plim_flow_end(&f);
}

/* What was held, at most, in each part of the time; like parts are one. */
static void device_timeline(plim_page *p, const plim_driver_report *r,
                            const plim_driver_device *d)
{
    enum { LEFT = 24, LEAST = 10 };
    uint32_t bar = p->width > LEFT + LEAST ? p->width - LEFT : LEAST;
    if (!d->peak)
        return;
    plim_page_puts(p, "\n  Held from\n");
    for (int i = 0; i < PLIM_DRIVER_TIMES; i++) {
        double from = r->first_s + (r->seconds - r->first_s) * i / PLIM_DRIVER_TIMES;
        if (i && d->most[i] == d->most[i - 1])
            continue;
        plim_text bytes = plim_fmt_bytes(d->most[i], p->style.si);
        plim_buf_printf(&p->buf, "  %9s %10s  ", show_seconds(p, from), bytes.s);
        plim_chart_bar(p, d->most[i], d->peak, PLIM_MIN(bar, 50));
        plim_page_puts(p, "\n");
    }
}

static plim_status device_text(plim_page *p, const plim_driver_report *r,
                               const plim_driver_device *d, plim_err *err)
{
    const plim_driver_process_info *who = &r->processes[d->process];
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_BOLD);
    if (d->device < 0)
        plim_page_puts(p, "A GPU that is not known");
    else
        plim_buf_printf(&p->buf, "GPU %" PRId32, d->device);
    if (d->total != PLIM_LIVE_UNKNOWN)
        plim_buf_printf(&p->buf, " (%s)", plim_fmt_bytes(d->total, p->style.si).s);
    plim_buf_printf(&p->buf, ", process %" PRIu32, who->pid);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    if (r->n_processes > 1 && *who->command) {
        plim_page_puts(p, ": ");
        plim_buf_add(&p->buf, plim_page_cut(p, plim_page_clean(p, who->command), 40, false));
    }
    plim_buf_printf(&p->buf, "\nPeak: %s after %s; at the end %s\n",
                    plim_fmt_bytes(d->peak, p->style.si).s, show_seconds(p, d->peak_s),
                    plim_fmt_bytes(d->at_end, p->style.si).s);
    plim_status st = device_table(p, r, d, err);
    if (st)
        return st;
    outside_line(p, r, d);
    if (!who->exited && d->used != PLIM_LIVE_UNKNOWN)
        plim_page_puts(p, "  It did not end by exit(): the driver was last asked earlier.\n");
    device_timeline(p, r, d);
    return PLIM_OK;
}

static void driver_failure(plim_page *p, const plim_driver_report *r)
{
    bool si = p->style.si;
    if (!r->failures)
        return;
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_BAD);
    plim_buf_printf(&p->buf, "Out of memory: %s %s failed\n", plim_fmt_count(r->failures).s,
                    r->failures == 1 ? "allocation" : "allocations");
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_flow_printf(&f, "The first: %s, after %s, by %s",
                     plim_fmt_bytes(r->failed_bytes, si).s, show_seconds(p, r->failed_s),
                     r->failed_library ? r->failed_library : "what is not known");
    if (r->failed_where)
        plim_flow_printf(&f, "at %s", r->failed_where);
    if (r->failed_free != PLIM_LIVE_UNKNOWN)
        plim_flow_printf(&f, "when %s was free", plim_fmt_bytes(r->failed_free, si).s);
    plim_flow_printf(&f, "and this process held %s.", plim_fmt_bytes(r->failed_held, si).s);
    plim_flow_end(&f);
}

static void driver_notes(plim_page *p, const plim_driver_report *r)
{
    const struct {
        uint64_t n;
        const char *one, *more;
    } notes[] = {
        {r->lost, "event could not be written and is missing",
         "events could not be written and are missing"},
        {r->damaged, "part of the file is damaged; what is sound in it was used",
         "parts of the file are damaged; what is sound in them was used"},
        {r->strangers, "release of memory whose allocation was not recorded",
         "releases of memory whose allocation was not recorded"},
    };
    for (size_t i = 0; i < PLIM_COUNT(notes); i++)
        if (notes[i].n)
            plim_buf_printf(&p->buf, "%s %s\n", plim_fmt_count(notes[i].n).s,
                            notes[i].n == 1 ? notes[i].one : notes[i].more);
}

static void quiet_figure(plim_page *p, const plim_driver_report *r,
                         const plim_driver_device *d, const char *name, uint64_t n)
{
    if (n != PLIM_LIVE_UNKNOWN)
        plim_buf_printf(&p->buf, "process%" PRIu32 ".gpu%" PRId32 ".%s %" PRIu64 "\n",
                        r->processes[d->process].pid, d->device, name, n);
}

static void driver_quiet(plim_page *p, const plim_driver_report *r)
{
    for (uint32_t i = 0; i < r->n_devices; i++) {
        const plim_driver_device *d = &r->devices[i];
        quiet_figure(p, r, d, "context", d->context);
        quiet_figure(p, r, d, "peak", d->peak);
        quiet_figure(p, r, d, "at_end", d->at_end);
        quiet_figure(p, r, d, "used", d->used);
    }
}

static plim_status driver_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_driver_report *r = subject;
    if (p->style.quiet) {
        driver_quiet(p, r);
        return PLIM_OK;
    }
    const plim_rows lines = {.columns = line_columns,
                             .n_columns = PLIM_COUNT(line_columns),
                             .items = r->lines,
                             .size = sizeof *r->lines,
                             .n = PLIM_MIN(r->n_lines, (uint32_t)p->style.top)};
    plim_status st = PLIM_OK;
    driver_head(p, r);
    for (uint32_t i = 0; i < r->n_devices && !st; i++)
        st = device_text(p, r, &r->devices[i], err);
    if (!st)
        st = beside_table(p, r, err);
    if (!st && r->n_lines) {
        plim_page_puts(p, "\nBy line of Python, where it was known\n");
        st = plim_rows_text(p, &lines, 2, err);
    }
    driver_failure(p, r);
    plim_report_unknowns(p);
    if (!r->n_devices)
        plim_page_wrap(p, "Nothing was allocated on a GPU.", 0);
    if (r->lost || r->damaged || r->strangers)
        plim_page_puts(p, "\n");
    driver_notes(p, r);
    return st;
}

/* ---- JSON ------------------------------------------------------------------- */

static void u64_json(plim_jw *w, const char *key, uint64_t n)
{
    plim_jw_key(w, key);
    if (n == PLIM_LIVE_UNKNOWN)
        plim_jw_null(w);
    else
        plim_jw_u64(w, n);
}

static void devices_json(plim_jw *w, const plim_driver_report *r)
{
    plim_jw_key(w, "devices");
    plim_jw_array(w);
    for (uint32_t i = 0; i < r->n_devices; i++) {
        const plim_driver_device *d = &r->devices[i];
        plim_jw_object(w);
        u64_json(w, "process", d->process);
        plim_jw_key(w, "device");
        plim_jw_i64(w, d->device);
        u64_json(w, "peak", d->peak);
        plim_jw_key(w, "peak_s");
        plim_jw_f64(w, d->peak_s);
        u64_json(w, "at_end", d->at_end);
        u64_json(w, "total", d->total);
        u64_json(w, "context", d->context);
        u64_json(w, "used", d->used);
        plim_jw_key(w, "rest");
        if (d->used == PLIM_LIVE_UNKNOWN)
            plim_jw_null(w);
        else
            plim_jw_i64(w, d->rest);
        plim_jw_key(w, "most");
        plim_jw_array(w);
        for (int k = 0; k < PLIM_DRIVER_TIMES; k++)
            plim_jw_u64(w, d->most[k]);
        plim_jw_end(w);
        plim_jw_end(w);
    }
    plim_jw_end(w);
}

static void processes_json(plim_jw *w, const plim_driver_report *r)
{
    plim_jw_key(w, "processes");
    plim_jw_array(w);
    for (uint32_t i = 0; i < r->n_processes; i++) {
        const plim_driver_process_info *p = &r->processes[i];
        plim_jw_object(w);
        u64_json(w, "pid", p->pid);
        u64_json(w, "parent", p->parent);
        plim_jw_key(w, "command");
        plim_jw_cstr(w, p->command);
        plim_jw_key(w, "exited");
        plim_jw_bool(w, p->exited);
        u64_json(w, "events", p->events);
        plim_jw_end(w);
    }
    plim_jw_end(w);
}

static void failure_json(plim_jw *w, const plim_driver_report *r)
{
    plim_jw_key(w, "oom");
    if (!r->failures) {
        plim_jw_null(w);
        return;
    }
    plim_jw_object(w);
    u64_json(w, "failures", r->failures);
    plim_jw_key(w, "device");
    plim_jw_i64(w, r->failed_device);
    u64_json(w, "requested", r->failed_bytes);
    u64_json(w, "free", r->failed_free);
    u64_json(w, "held", r->failed_held);
    plim_jw_key(w, "time_s");
    plim_jw_f64(w, r->failed_s);
    plim_jw_key(w, "library");
    plim_jw_cstr(w, r->failed_library);
    plim_jw_key(w, "where");
    plim_jw_cstr(w, r->failed_where);
    plim_jw_end(w);
}

static plim_status driver_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_driver_report *r = subject;
    const plim_rows parts = {.columns = part_columns,
                             .n_columns = PLIM_COUNT(part_columns),
                             .items = r->parts,
                             .size = sizeof *r->parts,
                             .n = r->n_parts};
    const plim_rows lines = {.columns = line_columns,
                             .n_columns = PLIM_COUNT(line_columns),
                             .items = r->lines,
                             .size = sizeof *r->lines,
                             .n = r->n_lines};
    plim_jw w;
    plim_report_json_open(&w, p, "plimsoll/record/1", NULL);
    plim_jw_key(&w, "command");
    plim_jw_cstr(&w, r->command);
    plim_jw_key(&w, "status");
    if (r->ended)
        plim_jw_i64(&w, r->status);
    else
        plim_jw_null(&w);
    plim_jw_key(&w, "first_s");
    plim_jw_f64(&w, r->first_s);
    plim_jw_key(&w, "seconds");
    plim_jw_f64(&w, r->seconds);
    u64_json(&w, "events", r->events);
    u64_json(&w, "lost", r->lost);
    u64_json(&w, "damaged", r->damaged);
    u64_json(&w, "strangers", r->strangers);
    processes_json(&w, r);
    devices_json(&w, r);
    plim_rows_json(&w, "parts", &parts);
    plim_rows_json(&w, "lines", &lines);
    failure_json(&w, r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

plim_status plim_driver_print(const plim_driver_report *r, plim_render how,
                              const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "record", .text = driver_text, .json = driver_json};
    PLIM_REQUIRE(r, err);
    return plim_report_print(&report, r, how, st, put, ud, err);
}
