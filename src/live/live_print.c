/* live_print.c -- plim_live_print: a view as text, JSON, CSV, gpustat's JSON, and metrics. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "live/live.h"
#include "report/figures.h"

#define MIB (UINT64_C(1) << 20)

static bool is_known(uint64_t v) { return v != PLIM_LIVE_UNKNOWN; }

/* "0", and of an instance "0:1/0". */
static const char *device_id(plim_arena *a, const plim_live_view *v, uint32_t i)
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

/* ---- text -------------------------------------------------------------------------------------- */

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

static plim_status text_devices(plim_page *p, const plim_live_view *v, plim_err *err)
{
    plim_live_shown *lines = PLIM_NEW_N(&p->arena, plim_live_shown, v->n_devices);
    plim_rows rows = PLIM_FIGURE_LIST(live_shown, lines, v->n_devices);
    rows.hidden = "full"; /* it says something after several ticks */
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_devices; i++) {
        const plim_live_device *d = &v->devices[i];
        lines[i] = (plim_live_shown){*d, device_id(&p->arena, v, i)};
        if (is_known(d->total))
            p->scale = PLIM_MAX(p->scale, d->total);
        if (isfinite(d->full_in_s))
            rows.hidden = NULL;
    }
    return plim_rows_text(p, &rows, 0, err);
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
                            .id = device_id(a, v, q->device),
                            .where = plim_live_where(a, q->job, q->container),
                            .command = q->command_line ? q->command_line : q->command};
}

static plim_status text_processes(plim_page *p, const plim_live_view *v, plim_err *err)
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
    rows.hidden =
        plim_arena_printf(&p->arena, "%s%s%s%s", /* columns that say nothing */
                          growth ? "" : "growth_per_s,full_in_s,",
                          growth || predicted ? "" : "peak,",
                          predicted ? "" : "predicted,difference,", where ? "" : "where")
            .p;
    return rows.hidden ? plim_rows_text(p, &rows, 0, err) : plim_oom(err);
}

static void text_head(plim_page *p, const plim_live_view *v)
{
    plim_flow f = plim_flow_open(p, " \xc2\xb7 ", 0);
    f.gap = plim_page_glyph(p, " \xc2\xb7 ", ", ");
    if (v->host)
        plim_flow_printf(&f, "%s", v->host);
    if (v->nvidia_driver)
        plim_flow_printf(&f, "NVIDIA driver %s", v->nvidia_driver);
    if (v->cuda)
        plim_flow_printf(&f, "CUDA %s", v->cuda);
    if (v->host || v->nvidia_driver || v->cuda) {
        plim_flow_end(&f);
        plim_page_puts(p, "\n");
    }
}

static void text_looks(plim_page *p, const plim_live_view *v)
{
    plim_page_puts(p, "No GPU was found. Plimsoll looked for one in\n\n");
    for (uint32_t i = 0; i < v->n_looked; i++) {
        const plim_live_look *k = &v->looked[i];
        plim_str line = plim_arena_printf(&p->arena, "%s: %s", k->where ? k->where : k->source,
                                          k->found ? k->found : "no device could be read");
        plim_page_wrap(p, line.p ? line.p : "", 2);
    }
}

static void text_notes(plim_page *p, const plim_live_view *v)
{
    for (uint32_t i = 0; i < v->n_devices; i++) {
        const plim_live_device *d = &v->devices[i];
        const char *id = device_id(&p->arena, v, i);
        if (d->trouble)
            plim_report_paragraph(
                p, PLIM_PAINT_WARN,
                plim_arena_printf(&p->arena, "GPU %s: %s.", id, d->trouble).p);
        if (d->unified)
            plim_report_paragraph(
                p, PLIM_PAINT_DIM,
                plim_arena_printf(&p->arena,
                                  "GPU %s: unified memory, that of the machine; free is what "
                                  "all programs together can still take.",
                                  id)
                    .p);
    }
    for (uint32_t i = 0; i < v->n_notes; i++)
        plim_report_paragraph(p, PLIM_PAINT_DIM,
                              plim_arena_printf(&p->arena, "Note: %s.", v->notes[i]).p);
}

static plim_status print_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_live_view *v = subject;
    plim_status st = PLIM_OK;
    if (!v->n_devices) {
        text_looks(p, v);
        text_notes(p, v);
        return st;
    }
    if (!p->style.quiet)
        text_head(p, v);
    st = text_devices(p, v, err);
    if (!st && v->n_processes) {
        plim_page_puts(p, "\n");
        st = text_processes(p, v, err);
    }
    if (!st && !p->style.quiet) {
        text_notes(p, v);
        plim_report_unknowns(p);
    }
    return st;
}

/* ---- JSON and CSV ------------------------------------------------------------------------------- */

static plim_status print_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    return plim_report_json(p, "plimsoll/top/1", plim_live_view_figures, subject, NULL);
}

static plim_status print_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_live_view *v = subject;
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
    const plim_rows rows = PLIM_FIGURE_LIST(live_line, lines, n);
    return plim_rows_csv(p, &rows, err);
}

/* ---- the JSON of gpustat ----------------------------------------------------------------------- */

/* src: gpustat 1.1.1, core.py: memory is that of nvmlDeviceGetMemoryInfo, in whole MiB, so what
 * is reserved counts as used; an unknown number is null. */
static void json_number(plim_jw *w, const char *key, uint64_t v)
{
    plim_jw_key(w, key);
    if (is_known(v))
        plim_jw_u64(w, v);
    else
        plim_jw_null(w);
}

static void json_text(plim_jw *w, const char *key, const char *z)
{
    plim_jw_key(w, key);
    plim_jw_cstr(w, z);
}

static void gpustat_scaled(plim_jw *w, const char *key, uint64_t v, uint64_t by)
{
    json_number(w, key, is_known(v) ? v / by : v);
}

static void gpustat_process(plim_jw *w, const plim_live_process *q)
{
    const char *slash = q->argv && q->argv[0] ? strrchr(q->argv[0], '/') : NULL;
    plim_jw_object(w);
    json_text(w, "username", q->user);
    json_text(w, "command",
              slash                   ? slash + 1
              : q->argv && q->argv[0] ? q->argv[0]
                                      : q->command);
    plim_jw_key(w, "full_command");
    plim_jw_array(w);
    for (const char *const *word = q->argv; word && *word; word++)
        plim_jw_cstr(w, *word);
    plim_jw_end(w);
    gpustat_scaled(w, "gpu_memory_usage", q->memory, MIB);
    plim_jw_key(w, "cpu_percent");
    plim_jw_f64(w, isfinite(q->cpu_percent) ? round(q->cpu_percent) : 0);
    json_number(w, "cpu_memory_usage", q->host_memory);
    json_number(w, "pid", q->pid);
    plim_jw_end(w);
}

static plim_status print_gpustat(plim_page *p, const void *subject, plim_err *err)
{
    const plim_live_view *v = subject;
    time_t seconds = (time_t)(v->time_ms / 1000);
    struct tm t;
    char when[64] = "";
    plim_jw w;
    (void)err;
    if (localtime_r(&seconds, &t))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &t);
    plim_jw_init(&w, &p->buf);
    plim_jw_object(&w);
    json_text(&w, "hostname", v->host);
    json_text(&w, "driver_version", v->nvidia_driver);
    json_text(
        &w, "query_time",
        plim_arena_printf(&p->arena, "%s.%06d", when, (int)(v->time_ms % 1000) * 1000).p);
    plim_jw_key(&w, "gpus");
    plim_jw_array(&w);
    for (uint32_t i = 0, index = 0; i < v->n_devices; i++) {
        const plim_live_device *d = &v->devices[i];
        if (d->mig) /* gpustat knows whole GPUs only */
            continue;
        plim_jw_object(&w);
        json_number(&w, "index", index++);
        json_text(&w, "uuid", d->uuid);
        json_text(&w, "name", d->name);
        json_number(&w, "temperature.gpu", d->temperature_c);
        json_number(&w, "fan.speed", d->fan_percent);
        json_number(&w, "utilization.gpu", d->busy_percent);
        json_number(&w, "utilization.enc", PLIM_LIVE_UNKNOWN);
        json_number(&w, "utilization.dec", PLIM_LIVE_UNKNOWN);
        gpustat_scaled(&w, "power.draw", d->power_mw, 1000);
        gpustat_scaled(&w, "enforced.power.limit", d->power_limit_mw, 1000);
        gpustat_scaled(&w, "memory.used",
                       is_known(d->total) && is_known(d->free) ? d->total - d->free : d->used,
                       MIB);
        gpustat_scaled(&w, "memory.total", d->total, MIB);
        plim_jw_key(&w, "processes");
        plim_jw_array(&w);
        for (uint32_t k = 0; k < v->n_processes; k++) {
            const plim_live_device *on = &v->devices[v->processes[k].device];
            if (on->index == d->index && !strcmp(on->source, d->source))
                gpustat_process(&w, &v->processes[k]);
        }
        plim_jw_end(&w);
        plim_jw_end(&w);
    }
    plim_jw_end(&w);
    plim_report_json_close(&w);
    return PLIM_OK;
}

/* ---- metrics ----------------------------------------------------------------------------------------- */

/* A gauge of devices or processes.  src: the text format of Prometheus 0.0.4 and OpenMetrics
 * 1.0: with gauges only, one block for each family, and "# EOF", a text is valid in both. */
typedef struct gauge {
    const char *name, *unit, *help;
    size_t at; /* of a uint64_t in the device or process */
    double by; /* what the number is divided by */
} gauge;

#define DEVICE(field) offsetof(plim_live_device, field)
#define PROCESS(field) offsetof(plim_live_process, field)

static const gauge device_gauges[] = {
    {"plimsoll_device_memory_total_bytes", "bytes", "Memory of the GPU.", DEVICE(total), 1},
    {"plimsoll_device_memory_used_bytes", "bytes", "Memory in use.", DEVICE(used), 1},
    {"plimsoll_device_memory_free_bytes", "bytes", "Memory that is free.", DEVICE(free), 1},
    {"plimsoll_device_memory_reserved_bytes", "bytes", "Memory that the driver reserves.",
     DEVICE(reserved), 1},
    {"plimsoll_device_busy_ratio", "ratio", "Share of the time in which a kernel ran.",
     DEVICE(busy_percent), 100},
    {"plimsoll_device_temperature_celsius", "celsius", "Temperature of the GPU.",
     DEVICE(temperature_c), 1},
    {"plimsoll_device_power_watts", "watts", "Power draw.", DEVICE(power_mw), 1000},
    {"plimsoll_device_power_limit_watts", "watts", "Power limit.", DEVICE(power_limit_mw),
     1000},
};

static const gauge process_gauges[] = {
    {"plimsoll_process_memory_bytes", "bytes", "Memory of the process on the GPU.",
     PROCESS(memory), 1},
    {"plimsoll_process_memory_peak_bytes", "bytes",
     "Greatest memory of the process since the monitor was started.", PROCESS(peak), 1},
    {"plimsoll_process_memory_predicted_bytes", "bytes",
     "Peak that was predicted, PLIMSOLL_PREDICTED in the environment of the process.",
     PROCESS(predicted), 1},
};

static uint64_t gauge_value(const gauge *g, const void *row)
{
    uint64_t v;
    memcpy(&v, (const char *)row + g->at, sizeof v);
    return v;
}

static void put_label(plim_page *p, const char *name, const char *value, bool *comma)
{
    if (!value)
        return;
    plim_buf_printf(&p->buf, "%s%s=\"", *comma ? "," : "", name);
    *comma = true;
    plim_str s = plim_page_clean(p, value); /* UTF-8, without line ends */
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\\' || s.p[i] == '"')
            plim_page_puts(p, "\\");
        plim_buf_add(&p->buf, (plim_str){s.p + i, 1});
    }
    plim_page_puts(p, "\"");
}

static void put_labels(plim_page *p, const plim_live_view *v, uint32_t device,
                       const plim_live_process *q)
{
    const plim_live_device *d = &v->devices[device];
    bool comma = false;
    put_label(p, "gpu", device_id(&p->arena, v, device), &comma);
    put_label(p, "uuid", d->uuid, &comma);
    put_label(p, "model", d->name, &comma);
    if (q) {
        put_label(p, "pid", plim_arena_printf(&p->arena, "%" PRIu64, q->pid).p, &comma);
        put_label(p, "kind", q->kind, &comma);
        put_label(p, "user", q->user, &comma);
        put_label(p, "command", q->command, &comma);
        put_label(p, "job", q->job, &comma);
        put_label(p, "container", q->container, &comma);
    }
}

static void put_sample(plim_page *p, const gauge *g, const plim_live_view *v, uint32_t device,
                       const plim_live_process *q, bool *head)
{
    uint64_t n = gauge_value(g, q ? (const void *)q : &v->devices[device]);
    if (!is_known(n))
        return;
    if (!*head)
        plim_buf_printf(&p->buf, "# HELP %s %s\n# TYPE %s gauge\n# UNIT %s %s\n", g->name,
                        g->help, g->name, g->name, g->unit);
    *head = true;
    plim_buf_printf(&p->buf, "%s{", g->name);
    put_labels(p, v, device, q);
    if (g->by > 1)
        plim_buf_printf(&p->buf, "} %s\n", plim_fmt_double((double)n / g->by).s);
    else
        plim_buf_printf(&p->buf, "} %" PRIu64 "\n", n);
}

/* A process may be listed twice, for compute and for graphics; the kind tells them apart. */
static plim_status print_metrics(plim_page *p, const void *subject, plim_err *err)
{
    const plim_live_view *v = subject;
    (void)err;
    for (size_t g = 0; g < PLIM_COUNT(device_gauges); g++) {
        bool head = false;
        for (uint32_t i = 0; i < v->n_devices; i++)
            put_sample(p, &device_gauges[g], v, i, NULL, &head);
    }
    for (size_t g = 0; g < PLIM_COUNT(process_gauges); g++) {
        bool head = false;
        for (uint32_t i = 0; i < v->n_processes; i++)
            put_sample(p, &process_gauges[g], v, v->processes[i].device, &v->processes[i],
                       &head);
    }
    plim_page_puts(p, "# EOF\n");
    return PLIM_OK;
}

/* ---- which ------------------------------------------------------------------------------------------- */

plim_status plim_live_print(const plim_live_view *v, plim_live_form form, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report_fn forms[PLIM_LIVE_FORM_COUNT] = {
        [PLIM_LIVE_TEXT] = print_text,
        [PLIM_LIVE_JSON] = print_json,
        [PLIM_LIVE_CSV] = print_csv,
        [PLIM_LIVE_GPUSTAT] = print_gpustat,
        [PLIM_LIVE_PROMETHEUS] = print_metrics};
    PLIM_REQUIRE(v, err);
    PLIM_REQUIRE(put, err);
    if ((unsigned)form >= PLIM_LIVE_FORM_COUNT)
        return plim_fail(err, PLIM_EUSAGE, (uint64_t)form, "there is no form %d", (int)form);
    plim_page p;
    plim_page_open(&p, st);
    return plim_page_send(&p, forms[form](&p, v, err), put, ud, err);
}
