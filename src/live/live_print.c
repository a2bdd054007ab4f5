/* live_print.c -- plim_live_print: a view as text, JSON, CSV, gpustat's JSON, and metrics. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "live/live.h"
#include "report/report.h"

#define MIB (UINT64_C(1) << 20)

static bool is_known(uint64_t v) { return v != PLIM_LIVE_UNKNOWN; }

/* "0", and of an instance "0:1/0". */
static const char *device_id(plim_arena *a, const plim_live_view *v, uint32_t i)
{
    const plim_live_device *d = &v->devices[i];
    const char *other =
        v->n_looks && strcmp(d->source, v->looks[0].source) != 0 && v->looks[0].devices
            ? d->source
            : "";
    return plim_arena_printf(a, "%s%" PRIu32 "%s%s", other, d->index, d->mig ? ":" : "",
                             d->mig ? d->mig : "")
        .p;
}

/* ---- text -------------------------------------------------------------------------------------- */

typedef struct device_line {
    const char *id, *name, *busy, *temperature, *power, *full;
    uint64_t used, total, free;
} device_line;

typedef struct process_line {
    const plim_live_process *p;
    const char *id, *pid, *user, *growth, *full, *where, *command;
} process_line;

/* Can the peak of the process be set beside what was predicted? */
static bool is_predicted(const plim_live_process *q)
{
    return is_known(q->peak) && is_known(q->predicted);
}

static plim_cell bytes_cell(uint64_t v)
{
    return is_known(v) ? plim_cell_u64(PLIM_CELL_BYTES, v)
                       : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell text_cell(const char *z)
{
    return z ? plim_cell_text(z) : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static const char *percent_text(plim_page *p, uint64_t v)
{
    return is_known(v) ? plim_arena_printf(&p->arena, "%" PRIu64 " %%", v).p : NULL;
}

/* "45 s", "12 min", "3.5 h": how long until it is full. */
const char *plim_live_duration_text(plim_page *p, double s)
{
    enum { MINUTE = 60, HOUR = 3600, DAY = 86400, LONG = 30 };
    if (!isfinite(s))
        return NULL;
    if (s >= LONG * (double)DAY)
        return "> 30 d";
    return s < 2 * MINUTE ? plim_arena_printf(&p->arena, "%.0f s", s).p
           : s < 2 * HOUR ? plim_arena_printf(&p->arena, "%.0f min", s / MINUTE).p
           : s < 2 * DAY  ? plim_arena_printf(&p->arena, "%.0f h", s / HOUR).p
                          : plim_arena_printf(&p->arena, "%.0f d", s / DAY).p;
}

const char *plim_live_growth_text(plim_page *p, double v)
{
    if (!isfinite(v))
        return NULL;
    uint64_t size = (uint64_t)PLIM_MIN(fabs(v), 1e18);
    return plim_arena_printf(&p->arena, "%s%s/s", v < 0 ? "-" : "+",
                             plim_fmt_bytes(size, p->style.si).s)
        .p;
}

/* clang-format off */
PLIM_GETTER(device_get_id, device_line, plim_cell_text(r->id))
PLIM_GETTER(device_get_name, device_line, text_cell(r->name))
PLIM_GETTER(device_get_used, device_line, bytes_cell(r->used))
PLIM_GETTER(device_get_total, device_line, bytes_cell(r->total))
PLIM_GETTER(device_get_free, device_line, bytes_cell(r->free))
PLIM_GETTER(device_get_busy, device_line, text_cell(r->busy))
PLIM_GETTER(device_get_temperature, device_line, text_cell(r->temperature))
PLIM_GETTER(device_get_power, device_line, text_cell(r->power))
PLIM_GETTER(device_get_full, device_line, text_cell(r->full))

static const plim_column device_columns[] = {
    PLIM_COLUMN("gpu", "gpu", PLIM_IN_TEXT, PLIM_LEFT, 0, 0, device_get_id),
    PLIM_COLUMN("name", "name", PLIM_IN_TEXT, PLIM_CUT_TAIL, 10, 1, device_get_name),
    PLIM_COLUMN("used", "used", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, device_get_used),
    PLIM_COLUMN("free", "free", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, device_get_free),
    PLIM_COLUMN("total", "total", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, device_get_total),
    PLIM_COLUMN("busy", "busy", PLIM_IN_TEXT, PLIM_RIGHT, 0, 4, device_get_busy),
    PLIM_COLUMN("temperature", "temp", PLIM_IN_TEXT, PLIM_RIGHT, 0, 6, device_get_temperature),
    PLIM_COLUMN("power", "power", PLIM_IN_TEXT, PLIM_RIGHT, 0, 7, device_get_power),
    PLIM_COLUMN("full", "full in", PLIM_IN_TEXT, PLIM_RIGHT, 0, 5, device_get_full),
};

PLIM_GETTER(process_get_id, process_line, plim_cell_text(r->id))
PLIM_GETTER(process_get_pid, process_line, plim_cell_text(r->pid))
PLIM_GETTER(process_get_user, process_line, text_cell(r->user))
PLIM_GETTER(process_get_memory, process_line, bytes_cell(r->p->memory))
PLIM_GETTER(process_get_peak, process_line, bytes_cell(r->p->peak))
PLIM_GETTER(process_get_predicted, process_line, bytes_cell(r->p->predicted))
PLIM_GETTER(process_get_difference, process_line, is_predicted(r->p) ? plim_cell_delta(r->p->peak, r->p->predicted) : (plim_cell){.kind = PLIM_CELL_UNKNOWN})
PLIM_GETTER(process_get_growth, process_line, text_cell(r->growth))
PLIM_GETTER(process_get_full, process_line, text_cell(r->full))
PLIM_GETTER(process_get_where, process_line, text_cell(r->where))
PLIM_GETTER(process_get_command, process_line, text_cell(r->command))

static const plim_column process_columns[] = {
    PLIM_COLUMN("gpu", "gpu", PLIM_IN_TEXT, PLIM_LEFT, 0, 0, process_get_id),
    PLIM_COLUMN("pid", "pid", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, process_get_pid),
    PLIM_COLUMN("user", "user", PLIM_IN_TEXT, PLIM_LEFT, 0, 3, process_get_user),
    PLIM_COLUMN("memory", "memory", PLIM_IN_TEXT, PLIM_RIGHT, 0, 0, process_get_memory),
    PLIM_COLUMN("peak", "peak", PLIM_IN_TEXT, PLIM_RIGHT, 0, 6, process_get_peak),
    PLIM_COLUMN("predicted", "predicted", PLIM_IN_TEXT, PLIM_RIGHT, 0, 7, process_get_predicted),
    PLIM_COLUMN("difference", "difference", PLIM_IN_TEXT, PLIM_RIGHT, 0, 7, process_get_difference),
    PLIM_COLUMN("growth", "growth", PLIM_IN_TEXT, PLIM_RIGHT, 0, 4, process_get_growth),
    PLIM_COLUMN("full", "full in", PLIM_IN_TEXT, PLIM_RIGHT, 0, 5, process_get_full),
    PLIM_COLUMN("where", "job, container", PLIM_IN_TEXT, PLIM_LEFT, 0, 2, process_get_where),
    PLIM_COLUMN("command", "command", PLIM_IN_TEXT, PLIM_CUT_TAIL, 12, 1, process_get_command),
};
/* clang-format on */

static plim_status text_devices(plim_page *p, const plim_live_view *v, plim_err *err)
{
    size_t n =
        PLIM_COUNT(device_columns) - 1; /* the last says something after several ticks */
    device_line *lines = PLIM_NEW_N(&p->arena, device_line, v->n_devices);
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_devices; i++) {
        const plim_live_device *d = &v->devices[i];
        device_line *l = &lines[i];
        *l = (device_line){.id = device_id(&p->arena, v, i),
                           .name = d->name,
                           .used = d->used,
                           .free = d->free,
                           .total = d->total,
                           .busy = percent_text(p, d->busy),
                           .full = plim_live_duration_text(p, d->full_in)};
        if (is_known(d->temperature))
            l->temperature = plim_arena_printf(&p->arena, "%" PRIu64 " %s", d->temperature,
                                               plim_page_glyph(p,
                                                               "\xc2\xb0"
                                                               "C",
                                                               "C"))
                                 .p;
        if (is_known(d->power))
            l->power =
                plim_arena_printf(&p->arena, "%" PRIu64 " W", (d->power + 500) / 1000).p;
        if (is_known(d->total))
            p->scale = PLIM_MAX(p->scale, d->total);
        if (l->full)
            n = PLIM_COUNT(device_columns);
    }
    plim_rows rows = {device_columns, n, lines, sizeof *lines, v->n_devices, NULL, NULL};
    return plim_rows_text(p, &rows, 0, err);
}

static const char *process_where(plim_page *p, const plim_live_process *q)
{
    if (q->job && q->container)
        return plim_arena_printf(&p->arena, "job %s, %s", q->job, q->container).p;
    return q->job ? plim_arena_printf(&p->arena, "job %s", q->job).p : q->container;
}

static plim_status text_processes(plim_page *p, const plim_live_view *v, plim_err *err)
{
    plim_column columns[PLIM_COUNT(process_columns)];
    size_t n = 0;
    bool growth = false, where = false, predicted = false;
    process_line *lines = PLIM_NEW_N(&p->arena, process_line, v->n_processes);
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_processes; i++) {
        const plim_live_process *q = &v->processes[i];
        lines[i] = (process_line){.p = q,
                                  .id = device_id(&p->arena, v, q->device),
                                  .pid = plim_arena_printf(&p->arena, "%" PRIu64, q->pid).p,
                                  .user = q->user,
                                  .growth = plim_live_growth_text(p, q->growth),
                                  .full = plim_live_duration_text(p, q->full_in),
                                  .where = process_where(p, q),
                                  .command = q->command_line ? q->command_line : q->command};
        growth = growth || lines[i].growth;
        where = where || lines[i].where;
        predicted = predicted || is_known(q->predicted);
    }
    for (size_t i = 0; i < PLIM_COUNT(process_columns); i++) { /* columns that say something */
        const char *name = process_columns[i].name;
        bool says = !strcmp(name, "growth") || !strcmp(name, "full") ? growth
                    : !strcmp(name, "peak")                          ? growth || predicted
                    : !strcmp(name, "predicted") || !strcmp(name, "difference") ? predicted
                    : !strcmp(name, "where")                                    ? where
                                                                                : true;
        if (says)
            columns[n++] = process_columns[i];
    }
    plim_rows rows = {columns, n, lines, sizeof *lines, v->n_processes, NULL, NULL};
    return plim_rows_text(p, &rows, 0, err);
}

static void text_head(plim_page *p, const plim_live_view *v)
{
    plim_flow f = plim_flow_open(p, " \xc2\xb7 ", 0);
    f.gap = plim_page_glyph(p, " \xc2\xb7 ", ", ");
    if (v->host)
        plim_flow_printf(&f, "%s", v->host);
    if (v->driver)
        plim_flow_printf(&f, "NVIDIA driver %s", v->driver);
    if (v->cuda)
        plim_flow_printf(&f, "CUDA %s", v->cuda);
    if (v->host || v->driver || v->cuda) {
        plim_flow_end(&f);
        plim_page_puts(p, "\n");
    }
}

static void text_looks(plim_page *p, const plim_live_view *v)
{
    plim_page_puts(p, "No GPU was found. Plimsoll looked for one in\n\n");
    for (uint32_t i = 0; i < v->n_looks; i++) {
        const plim_live_look *k = &v->looks[i];
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

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_number(plim_jw *w, const char *key, uint64_t v)
{
    plim_jw_key(w, key);
    if (is_known(v))
        plim_jw_u64(w, v);
    else
        plim_jw_null(w);
}

static void json_real(plim_jw *w, const char *key, double v, double unit)
{
    plim_jw_key(w, key);
    plim_jw_f64(w, isfinite(v) ? round(v / unit) * unit : (double)NAN);
}

static void json_text(plim_jw *w, const char *key, const char *z)
{
    plim_jw_key(w, key);
    plim_jw_cstr(w, z);
}

static void json_flag(plim_jw *w, const char *key, bool v)
{
    plim_jw_key(w, key);
    plim_jw_bool(w, v);
}

static void json_process(plim_jw *w, const plim_live_process *q)
{
    plim_jw_object(w);
    json_number(w, "pid", q->pid);
    json_text(w, "kind", q->kind);
    json_text(w, "user", q->user);
    json_text(w, "command", q->command);
    json_text(w, "command_line", q->command_line);
    json_number(w, "memory", q->memory);
    json_number(w, "peak", q->peak);
    json_number(w, "predicted", q->predicted);
    plim_jw_key(w, "difference");
    if (is_predicted(q))
        plim_jw_i64(w, (int64_t)(q->peak - q->predicted));
    else
        plim_jw_null(w);
    json_real(w, "growth_per_s", q->growth, 1);
    json_real(w, "full_in_s", q->full_in, 1);
    json_number(w, "busy_percent", q->busy);
    json_real(w, "cpu_percent", q->cpu, 1);
    json_number(w, "host_memory", q->host_memory);
    json_text(w, "container", q->container);
    json_text(w, "job", q->job);
    json_flag(w, "elsewhere", q->elsewhere);
    plim_jw_end(w);
}

static void json_device(plim_jw *w, const plim_live_view *v, uint32_t i)
{
    const plim_live_device *d = &v->devices[i];
    plim_jw_object(w);
    json_number(w, "index", d->index);
    json_text(w, "mig", d->mig);
    json_text(w, "source", d->source);
    json_text(w, "driver", d->driver);
    json_text(w, "name", d->name);
    json_text(w, "uuid", d->uuid);
    json_text(w, "pci", d->pci);
    plim_jw_key(w, "memory");
    plim_jw_object(w);
    json_number(w, "total", d->total);
    json_number(w, "used", d->used);
    json_number(w, "free", d->free);
    json_number(w, "reserved", d->reserved);
    json_flag(w, "used_includes_reserved", d->used_includes_reserved);
    json_flag(w, "unified", d->unified);
    json_real(w, "growth_per_s", d->growth, 1);
    json_real(w, "full_in_s", d->full_in, 1);
    plim_jw_end(w);
    json_number(w, "busy_percent", d->busy);
    json_number(w, "memory_busy_percent", d->memory_busy);
    json_number(w, "temperature_c", d->temperature);
    json_number(w, "power_mw", d->power);
    json_number(w, "power_limit_mw", d->power_limit);
    json_number(w, "fan_percent", d->fan);
    json_number(w, "clock_mhz", d->clock);
    json_number(w, "memory_clock_mhz", d->memory_clock);
    json_text(w, "trouble", d->trouble);
    plim_jw_key(w, "processes");
    plim_jw_array(w);
    for (uint32_t k = 0; k < v->n_processes; k++)
        if (v->processes[k].device == i)
            json_process(w, &v->processes[k]);
    plim_jw_end(w);
    plim_jw_end(w);
}

static plim_status print_json(plim_page *p, const void *subject, plim_err *err)
{
    const plim_live_view *v = subject;
    plim_jw w;
    (void)err;
    plim_report_json_open(&w, p, "plimsoll/top/1", NULL);
    plim_jw_key(&w, "time_ms");
    plim_jw_i64(&w, v->time_ms);
    json_text(&w, "host", v->host);
    json_text(&w, "nvidia_driver", v->driver);
    json_text(&w, "cuda", v->cuda);
    plim_jw_key(&w, "devices");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < v->n_devices; i++)
        json_device(&w, v, i);
    plim_jw_end(&w);
    plim_jw_key(&w, "looked");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < v->n_looks; i++) {
        plim_jw_object(&w);
        json_text(&w, "source", v->looks[i].source);
        json_text(&w, "where", v->looks[i].where);
        json_text(&w, "found", v->looks[i].found);
        json_number(&w, "devices", v->looks[i].devices);
        plim_jw_end(&w);
    }
    plim_jw_end(&w);
    plim_jw_key(&w, "notes");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < v->n_notes; i++)
        plim_jw_cstr(&w, v->notes[i]);
    plim_jw_end(&w);
    plim_report_json_close(&w);
    return PLIM_OK;
}

/* ---- the JSON of gpustat ----------------------------------------------------------------------- */

/* src: gpustat 1.1.1, core.py: memory is that of nvmlDeviceGetMemoryInfo, in whole MiB, so what
 * is reserved counts as used; an unknown number is null. */
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
    json_real(w, "cpu_percent", isfinite(q->cpu) ? q->cpu : 0, 1);
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
    json_text(&w, "driver_version", v->driver);
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
        json_number(&w, "temperature.gpu", d->temperature);
        json_number(&w, "fan.speed", d->fan);
        json_number(&w, "utilization.gpu", d->busy);
        json_number(&w, "utilization.enc", PLIM_LIVE_UNKNOWN);
        json_number(&w, "utilization.dec", PLIM_LIVE_UNKNOWN);
        gpustat_scaled(&w, "power.draw", d->power, 1000);
        gpustat_scaled(&w, "enforced.power.limit", d->power_limit, 1000);
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

/* ---- CSV ------------------------------------------------------------------------------------------ */

typedef struct csv_line {
    const plim_live_device *d;
    const plim_live_process *q; /* NULL: the device has none */
} csv_line;

static plim_cell csv_number(uint64_t v)
{
    return is_known(v) ? plim_cell_u64(PLIM_CELL_BYTES, v)
                       : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell csv_real(double v)
{
    return isfinite(v) ? plim_cell_int((int64_t)PLIM_MIN(PLIM_MAX(v, -1e18), 1e18))
                       : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell csv_difference(const plim_live_process *q)
{
    return q && is_predicted(q) ? plim_cell_int((int64_t)(q->peak - q->predicted))
                                : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

#define CSV_DEVICES(X)                                                                        \
    X(gpu, csv_number(r->d->index))                                                           \
    X(mig, text_cell(r->d->mig))                                                              \
    X(uuid, text_cell(r->d->uuid))                                                            \
    X(name, text_cell(r->d->name))                                                            \
    X(total, csv_number(r->d->total))                                                         \
    X(used, csv_number(r->d->used))                                                           \
    X(free, csv_number(r->d->free))                                                           \
    X(reserved, csv_number(r->d->reserved))                                                   \
    X(busy_percent, csv_number(r->d->busy))                                                   \
    X(temperature_c, csv_number(r->d->temperature))                                           \
    X(power_mw, csv_number(r->d->power))                                                      \
    X(pid, csv_number(r->q ? r->q->pid : PLIM_LIVE_UNKNOWN))                                  \
    X(user, text_cell(r->q ? r->q->user : NULL))                                              \
    X(memory, csv_number(r->q ? r->q->memory : PLIM_LIVE_UNKNOWN))                            \
    X(peak, csv_number(r->q ? r->q->peak : PLIM_LIVE_UNKNOWN))                                \
    X(predicted, csv_number(r->q ? r->q->predicted : PLIM_LIVE_UNKNOWN))                      \
    X(difference, csv_difference(r->q))                                                       \
    X(growth_per_s, csv_real(r->q ? r->q->growth : (double)NAN))                              \
    X(full_in_s, csv_real(r->q ? r->q->full_in : (double)NAN))                                \
    X(job, text_cell(r->q ? r->q->job : NULL))                                                \
    X(container, text_cell(r->q ? r->q->container : NULL))                                    \
    X(command, text_cell(r->q ? r->q->command_line : NULL))

#define X(name, cell) PLIM_GETTER(csv_get_##name, csv_line, cell)
CSV_DEVICES(X)
#undef X

static plim_status print_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_live_view *v = subject;
#define X(name, cell) PLIM_COLUMN(#name, #name, PLIM_IN_DATA, PLIM_LEFT, 0, 0, csv_get_##name),
    static const plim_column columns[] = { CSV_DEVICES(X) };
#undef X
    csv_line *lines =
        PLIM_NEW_N(&p->arena, csv_line, (uint64_t)v->n_devices + v->n_processes + 1);
    uint64_t n = 0;
    if (!lines)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_devices; i++) {
        uint64_t before = n;
        for (uint32_t k = 0; k < v->n_processes; k++)
            if (v->processes[k].device == i)
                lines[n++] = (csv_line){&v->devices[i], &v->processes[k]};
        if (n == before)
            lines[n++] = (csv_line){&v->devices[i], NULL};
    }
    plim_rows rows = {columns, PLIM_COUNT(columns), lines, sizeof *lines, n, NULL, NULL};
    return plim_rows_csv(p, &rows, err);
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
     DEVICE(busy), 100},
    {"plimsoll_device_temperature_celsius", "celsius", "Temperature of the GPU.",
     DEVICE(temperature), 1},
    {"plimsoll_device_power_watts", "watts", "Power draw.", DEVICE(power), 1000},
    {"plimsoll_device_power_limit_watts", "watts", "Power limit.", DEVICE(power_limit), 1000},
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
