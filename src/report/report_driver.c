/* report_driver.c -- a recording of CUDA's driver: who held the memory of each device. */
#include "plimsoll_live.h"
#include "report/figures.h"

/* A row of a device's table: what a library asked for, or a figure of the driver. */
typedef struct plim_driver_who {
    const char *who, *way;
    bool calls_known, peak_known;
    uint64_t calls, at_peak;
    bool end_known, negative; /* negative: less than nothing, as others gave memory back */
    uint64_t at_end;
} plim_driver_who;

static plim_cell end_cell(const plim_driver_who *r)
{
    return r->negative ? plim_cell_delta(0, r->at_end)
                       : plim_cell_bytes_if(r->end_known, r->at_end);
}

/* clang-format off */
PLIM_GETTER(who_calls, plim_driver_who, r->calls_known ? plim_cell_u64(PLIM_CELL_COUNT, r->calls) : plim_cell_text(""))
PLIM_GETTER(who_peak, plim_driver_who, r->peak_known ? plim_cell_u64(PLIM_CELL_BYTES, r->at_peak) : plim_cell_text(""))
PLIM_GETTER(who_end, plim_driver_who, end_cell(r))
PLIM_GETTER(part_device, plim_driver_part, r->device < 0 ? (plim_cell){0} : plim_cell_int(r->device))
/* clang-format on */

#include "answers/record.def"

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

static plim_driver_who row_of(const plim_driver_part *p)
{
    return (plim_driver_who){.who = part_name(p),
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
    plim_driver_who *rows =
        PLIM_NEW_N(&p->arena, plim_driver_who, r->n_parts + (uint64_t)FIGURES);
    plim_rows table = PLIM_FIGURE_LIST(driver_who, rows, 0);
    bool known = d->read;
    if (!rows)
        return plim_oom(err);
    rows[table.n++] = (plim_driver_who){.who = "CUDA context",
                                        .way = "driver",
                                        .peak_known = known,
                                        .at_peak = d->context,
                                        .end_known = known,
                                        .at_end = d->context};
    for (uint32_t i = 0; i < r->n_parts; i++)
        if (belongs_to(r, i, d) && r->parts[i].on_device)
            rows[table.n++] = row_of(&r->parts[i]);
    rows[table.n++] =
        (plim_driver_who){.who = "the driver beyond that",
                          .way = "driver",
                          .end_known = known,
                          .negative = d->rest < 0,
                          .at_end = (uint64_t)(d->rest < 0 ? -d->rest : d->rest)};
    rows[table.n++] = (plim_driver_who){
        .who = "in use, as the driver says", .way = "", .end_known = known, .at_end = d->used};
    return plim_rows_text(p, &table, 2, err);
}

/* The same of memory that is not, or not always, on the device. */
static plim_status beside_table(plim_page *p, const plim_driver_report *r, plim_err *err)
{
    plim_driver_who *rows = PLIM_NEW_N(&p->arena, plim_driver_who, r->n_parts + UINT64_C(1));
    plim_rows table = PLIM_FIGURE_LIST(driver_who, rows, 0);
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
    bool si = p->style.si, context = d->read;
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
    if (d->read)
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
    if (!who->exited && d->read)
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
                     plim_fmt_bytes(r->oom_requested, si).s, show_seconds(p, r->oom_time_s),
                     r->oom_library ? r->oom_library : "what is not known");
    if (r->oom_where)
        plim_flow_printf(&f, "at %s", r->oom_where);
    if (r->oom_free != PLIM_LIVE_UNKNOWN)
        plim_flow_printf(&f, "when %s was free", plim_fmt_bytes(r->oom_free, si).s);
    plim_flow_printf(&f, "and this process held %s.", plim_fmt_bytes(r->oom_held, si).s);
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
                         const plim_driver_device *d, const char *name, bool known, uint64_t n)
{
    if (known)
        plim_buf_printf(&p->buf, "process%" PRIu32 ".gpu%" PRId32 ".%s %" PRIu64 "\n",
                        r->processes[d->process].pid, d->device, name, n);
}

static void driver_quiet(plim_page *p, const plim_driver_report *r)
{
    for (uint32_t i = 0; i < r->n_devices; i++) {
        const plim_driver_device *d = &r->devices[i];
        quiet_figure(p, r, d, "context", d->read, d->context);
        quiet_figure(p, r, d, "peak", true, d->peak);
        quiet_figure(p, r, d, "at_end", true, d->at_end);
        quiet_figure(p, r, d, "used", d->read, d->used);
    }
}

static plim_status driver_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_driver_report *r = subject;
    if (p->style.quiet) {
        driver_quiet(p, r);
        return PLIM_OK;
    }
    const plim_rows lines =
        PLIM_FIGURE_LIST(driver_line, r->lines, PLIM_MIN(r->n_lines, (uint32_t)p->style.top));
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

static plim_status driver_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    return plim_report_json(p, "plimsoll/record/1", plim_driver_report_figures, subject, NULL);
}

plim_status plim_driver_print(const plim_driver_report *r, plim_render how,
                              const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "record", .text = driver_text, .json = driver_json};
    PLIM_REQUIRE(r, err);
    return plim_report_print(&report, r, how, st, put, ud, err);
}
