/* live_print.c -- plim_live_print: the report of a view. */
#include <math.h>

#include "live/live.h"
#include "report/blocks.h"
#include "report/figures.h"

static bool is_known(uint64_t v) { return v != PLIM_LIVE_UNKNOWN; }

const char *plim_live_device_id(plim_arena *a, const plim_live_view *v, uint32_t i)
{
    const plim_live_device *d = &v->devices[i];
    const char *other =
        v->n_looked && strcmp(d->source, v->looked[0].source) != 0 && v->looked[0].devices
            ? d->source
            : "";
    return plim_arena_printf(a, "%s%" PRIu32 "%s%s", other, d->index, d->mig ? ":" : "",
                             d->mig ? d->mig : "")
        .p;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

/* A device as text shows it. */
typedef struct plim_live_shown {
    plim_live_device device;
    const char *id;
} plim_live_shown;

/* A process with its device. */
typedef struct plim_live_line {
    plim_live_device device;
    plim_live_process process; /* of which nothing is known: the device has none */
    const char *id, *where, *command;
} plim_live_line;

#include "answers/top.def"

static plim_status add_devices(plim_page *p, const plim_live_view *v, plim_err *err)
{
    plim_live_shown *lines = PLIM_NEW_N(&p->arena, plim_live_shown, v->n_devices);
    plim_rows rows = PLIM_FIGURE_LIST(live_shown, lines, v->n_devices);
    rows.hidden = "full"; /* it says something after several ticks */
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_devices; i++) {
        const plim_live_device *d = &v->devices[i];
        lines[i] = (plim_live_shown){*d, plim_live_device_id(&p->arena, v, i)};
        if (is_known(d->total))
            p->scale = PLIM_MAX(p->scale, d->total);
        if (isfinite(d->full_in_s))
            rows.hidden = NULL;
    }
    plim_table(p, rows, 0);
    plim_in_quiet(p);
    return PLIM_OK;
}

const char *plim_live_where(plim_arena *a, const char *job, const char *container)
{
    return !job        ? container
           : container ? plim_arena_printf(a, "job %s, %s", job, container).p
                       : plim_arena_printf(a, "job %s", job).p;
}

static plim_live_line line_of(plim_arena *a, const plim_live_view *v,
                              const plim_live_process *q)
{
    return (plim_live_line){.device = v->devices[q->device],
                            .process = *q,
                            .id = plim_live_device_id(a, v, q->device),
                            .where = plim_live_where(a, q->job, q->container),
                            .command = q->command_line ? q->command_line : q->command};
}

static plim_status add_processes(plim_page *p, const plim_live_view *v, plim_err *err)
{
    bool growth = false, where = false, predicted = false;
    plim_live_line *lines = PLIM_NEW_N(&p->arena, plim_live_line, v->n_processes);
    plim_rows rows = PLIM_FIGURE_LIST(live_line, lines, v->n_processes);
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_processes; i++) {
        const plim_live_process *q = &v->processes[i];
        lines[i] = line_of(&p->arena, v, q);
        growth = growth || isfinite(q->growth_per_s);
        where = where || lines[i].where;
        predicted = predicted || is_known(q->predicted);
    }
    rows.hidden = plim_page_format(
        p, "%s%s%s%s", /* columns that say nothing */
        growth ? "" : "growth_per_s,full_in_s,", growth || predicted ? "" : "peak,",
        predicted ? "" : "predicted,difference,", where ? "" : "where");
    plim_apart(p);
    plim_table(p, rows, 0);
    plim_in_quiet(p);
    return PLIM_OK;
}

static void add_head(plim_page *p, const plim_live_view *v)
{
    if (!v->host && !v->nvidia_driver && !v->cuda)
        return;
    plim_line(p, plim_page_glyph(p, " \xc2\xb7 ", ", "), 0);
    if (v->host)
        plim_say(p, "%s", v->host);
    if (v->nvidia_driver)
        plim_say(p, "NVIDIA driver %s", v->nvidia_driver);
    if (v->cuda)
        plim_say(p, "CUDA %s", v->cuda);
    p->apart = !p->style.quiet;
}

static void add_looks(plim_page *p, const plim_live_view *v)
{
    plim_line(p, " ", 0);
    plim_say(p, "No GPU was found. Plimsoll looked for one in");
    plim_apart(p);
    for (uint32_t i = 0; i < v->n_looked; i++) {
        const plim_live_look *k = &v->looked[i];
        plim_paragraph(p, PLIM_PAINT_PLAIN,
                       plim_page_format(p, "%s: %s", k->where ? k->where : k->source,
                                        k->found ? k->found : "no device could be read"),
                       2);
    }
}

static void add_notes(plim_page *p, const plim_live_view *v)
{
    for (uint32_t i = 0; i < v->n_devices; i++) {
        const plim_live_device *d = &v->devices[i];
        const char *id = plim_live_device_id(&p->arena, v, i);
        if (d->trouble)
            plim_paragraph_apart(p, PLIM_PAINT_WARN,
                                 plim_page_format(p, "GPU %s: %s.", id, d->trouble));
        if (d->unified)
            plim_paragraph_apart(
                p, PLIM_PAINT_DIM,
                plim_page_format(
                    p,
                    "GPU %s: unified memory, shared with the machine; free is what "
                    "all programs together can still take.",
                    id));
    }
    for (uint32_t i = 0; i < v->n_notes; i++)
        plim_paragraph_apart(p, PLIM_PAINT_DIM, plim_page_format(p, "Note: %s.", v->notes[i]));
}

/* A line for each process, and for each device without one. */
static plim_status add_sheet(plim_page *p, const plim_live_view *v, plim_err *err)
{
    const plim_live_process nobody = PLIM_LIVE_NOBODY;
    uint64_t most = (uint64_t)v->n_devices + v->n_processes + 1, n = 0;
    plim_live_line *lines = PLIM_NEW_N(&p->arena, plim_live_line, most);
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_devices; i++) {
        const plim_live_device *d = &v->devices[i];
        for (uint32_t k = 0; k < d->n_processes; k++)
            lines[n++] = (plim_live_line){.device = *d, .process = d->processes[k]};
        if (!d->n_processes)
            lines[n++] = (plim_live_line){.device = *d, .process = nobody};
    }
    plim_sheet(p, PLIM_FIGURE_LIST(live_line, lines, n));
    return PLIM_OK;
}

static plim_status live_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_live_view *v = subject;
    plim_status st = PLIM_OK;
    if (v->n_devices) {
        add_head(p, v);
        st = add_devices(p, v, err);
        if (!st && v->n_processes)
            st = add_processes(p, v, err);
    } else {
        add_looks(p, v);
    }
    add_notes(p, v);
    plim_if_unknown(p, "- unknown");
    plim_data(p, "plimsoll/top/1", plim_live_view_figures, v, NULL, 0);
    return st ? st : add_sheet(p, v, err);
}

plim_status plim_live_print(const plim_live_view *v, plim_render how, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "top", .build = live_build};
    PLIM_REQUIRE(v, err);
    return plim_report_print(&report, v, how, st, put, ud, err);
}
