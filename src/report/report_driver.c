/* report_driver.c -- a recording of CUDA's driver: who held the memory of each device. */
#include "plimsoll_live.h"
#include "report/blocks.h"
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

/* ---- blocks ----------------------------------------------------------------- */

static const char *show_seconds(plim_page *p, double s)
{
    return plim_page_format(p, "%s s", plim_fmt_fixed(s, s < 10 ? 3 : 1).s);
}

static void driver_head(plim_page *p, const plim_driver_report *r)
{
    plim_code(p, 0, "Recorded: %s", r->command);
    plim_line(p, plim_dot(p), 0);
    plim_say(p, "%s %s", plim_fmt_count(r->events).s, r->events == 1 ? "event" : "events");
    plim_say(p, "%" PRIu32 " %s", r->n_processes,
             r->n_processes == 1 ? "process" : "processes");
    plim_say(p, "%s", show_seconds(p, r->seconds));
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
    plim_table(p, table, 2);
    return PLIM_OK;
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
    plim_heading_apart(p, "Pinned memory of the host, managed memory, memory of other "
                          "processes (each at its own peak)");
    plim_table(p, table, 2);
    return PLIM_OK;
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
    plim_line(p, " ", 2);
    plim_say(p, "At the peak %s was PyTorch's and %s was not:", plim_fmt_bytes(torch, si).s,
             plim_fmt_bytes(outside, si).s);
    if (context)
        plim_say(p, "%s context", plim_fmt_bytes(d->context, si).s);
    for (uint32_t i = 0, n = 0; i < r->n_parts && n < NAMED; i++) {
        const plim_driver_part *part = &r->parts[i];
        if (!belongs_to(r, i, d) || !part->on_device || is_torch(part->library) ||
            !part->at_peak)
            continue;
        plim_say(p, "%s%s %s", context || n ? "+ " : "", plim_fmt_bytes(part->at_peak, si).s,
                 part_name(part));
        n++;
    }
}

typedef struct held_chart {
    const plim_driver_report *r;
    const plim_driver_device *d;
} held_chart;

/* What was held, at most, in each part of the time; like parts are one. */
static plim_status draw_held(plim_page *p, const void *of, plim_err *err)
{
    enum { LEFT = 24, LEAST = 10, MOST = 50 };
    (void)err;
    const plim_driver_report *r = ((const held_chart *)of)->r;
    const plim_driver_device *d = ((const held_chart *)of)->d;
    uint32_t bar = p->width > LEFT + LEAST ? p->width - LEFT : LEAST;
    for (int i = 0; i < PLIM_DRIVER_TIMES; i++) {
        double from = r->first_s + (r->seconds - r->first_s) * i / PLIM_DRIVER_TIMES;
        if (i && d->most[i] == d->most[i - 1])
            continue;
        plim_text bytes = plim_fmt_bytes(d->most[i], p->style.si);
        plim_buf_printf(&p->buf, "  %9s %10s  ", show_seconds(p, from), bytes.s);
        plim_chart_bar(p, d->most[i], d->peak, PLIM_MIN(bar, MOST));
        plim_page_puts(p, "\n");
    }
    return PLIM_OK;
}

static void device_timeline(plim_page *p, const plim_driver_report *r,
                            const plim_driver_device *d)
{
    held_chart *of = PLIM_NEW(&p->arena, held_chart);
    p->buf.bad |= !of;
    if (!d->peak || !of)
        return;
    *of = (held_chart){r, d};
    plim_apart(p);
    plim_line(p, " ", 2);
    plim_say(p, "Held from");
    plim_chart(p, draw_held, of);
}

static void device_head(plim_page *p, const plim_driver_report *r, const plim_driver_device *d)
{
    const plim_driver_process_info *who = &r->processes[d->process];
    const bool si = p->style.si;
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_BOLD,
                 d->device < 0 ? "An unknown GPU"
                               : plim_page_format(p, "GPU %" PRId32, d->device));
    if (d->read)
        plim_say_as(p, PLIM_PAINT_BOLD, "(%s)", plim_fmt_bytes(d->total, si).s);
    plim_say_glued(p, PLIM_PAINT_BOLD, ", process %" PRIu32, who->pid);
    if (r->n_processes > 1 && *who->command)
        plim_say_glued(
            p, PLIM_PAINT_PLAIN, ": " PLIM_STR_FMT,
            PLIM_STR_ARG(plim_page_cut(p, plim_page_clean(p, who->command), 40, false)));
    plim_line(p, " ", 0);
    plim_say(p, "Peak: %s after %s; at the end %s", plim_fmt_bytes(d->peak, si).s,
             show_seconds(p, d->peak_s), plim_fmt_bytes(d->at_end, si).s);
}

static plim_status add_device(plim_page *p, const plim_driver_report *r,
                              const plim_driver_device *d, plim_err *err)
{
    device_head(p, r, d);
    PLIM_TRY(device_table(p, r, d, err));
    outside_line(p, r, d);
    if (!r->processes[d->process].exited && d->read)
        plim_paragraph(p, PLIM_PAINT_PLAIN,
                       "It did not end by exit(): the driver's figures are older.", 2);
    device_timeline(p, r, d);
    return PLIM_OK;
}

static void driver_failure(plim_page *p, const plim_driver_report *r)
{
    bool si = p->style.si;
    if (!r->failures)
        return;
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_BAD, "Out of memory:");
    plim_say_as(p, PLIM_PAINT_BAD, "%s %s failed", plim_fmt_count(r->failures).s,
                r->failures == 1 ? "allocation" : "allocations");
    plim_line(p, " ", 0);
    plim_say(p, "The first: %s, after %s, by %s", plim_fmt_bytes(r->oom_requested, si).s,
             show_seconds(p, r->oom_time_s),
             r->oom_library ? r->oom_library : "what is not known");
    if (r->oom_where)
        plim_say(p, "at %s", r->oom_where);
    if (r->oom_free != PLIM_LIVE_UNKNOWN)
        plim_say(p, "when %s was free", plim_fmt_bytes(r->oom_free, si).s);
    plim_say(p, "and this process held %s.", plim_fmt_bytes(r->oom_held, si).s);
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
    plim_apart(p);
    for (size_t i = 0; i < PLIM_COUNT(notes); i++)
        if (notes[i].n)
            plim_paragraph(p, PLIM_PAINT_PLAIN,
                           plim_page_format(p, "%s %s", plim_fmt_count(notes[i].n).s,
                                            notes[i].n == 1 ? notes[i].one : notes[i].more),
                           0);
}

static void add_value(plim_page *p, const plim_driver_report *r, const plim_driver_device *d,
                      const char *name, bool known, uint64_t n)
{
    if (known)
        plim_value_u64(p,
                       plim_page_format(p, "process%" PRIu32 ".gpu%" PRId32 ".%s",
                                        r->processes[d->process].pid, d->device, name),
                       n);
}

static void driver_values(plim_page *p, const plim_driver_report *r)
{
    p->has_quiet = true;
    for (uint32_t i = 0; i < r->n_devices; i++) {
        const plim_driver_device *d = &r->devices[i];
        add_value(p, r, d, "context", d->read, d->context);
        add_value(p, r, d, "peak", true, d->peak);
        add_value(p, r, d, "at_end", true, d->at_end);
        add_value(p, r, d, "used", d->read, d->used);
    }
}

static plim_status driver_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_driver_report *r = subject;
    plim_status st = PLIM_OK;
    driver_values(p, r);
    driver_head(p, r);
    for (uint32_t i = 0; i < r->n_devices && !st; i++)
        st = add_device(p, r, &r->devices[i], err);
    if (!st)
        st = beside_table(p, r, err);
    if (r->n_lines) {
        plim_heading_apart(p, "By line of Python, where it was known");
        plim_table(p,
                   PLIM_FIGURE_LIST(driver_line, r->lines,
                                    PLIM_MIN(r->n_lines, (uint32_t)p->style.top)),
                   2);
    }
    driver_failure(p, r);
    plim_if_unknown(p, "- unknown");
    if (!r->n_devices)
        plim_paragraph(p, PLIM_PAINT_PLAIN, "Nothing was allocated on a GPU.", 0);
    driver_notes(p, r);
    plim_data(p, "plimsoll/record/1", plim_driver_report_figures, r, NULL, 0);
    return st;
}

plim_status plim_driver_print(const plim_driver_report *r, plim_render how,
                              const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "record", .build = driver_build};
    PLIM_REQUIRE(r, err);
    return plim_report_print(&report, r, how, st, put, ud, err);
}
