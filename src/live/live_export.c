/* live_export.c -- plim_live_export: a view as gpustat's JSON, and as metrics. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "live/live.h"
#include "report/report.h"

#define MIB (UINT64_C(1) << 20)

static bool is_known(uint64_t v) { return v != PLIM_LIVE_UNKNOWN; }

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

static void write_gpustat(plim_page *p, const plim_live_view *v)
{
    time_t seconds = (time_t)(v->time_ms / 1000);
    struct tm t;
    char when[64] = "";
    plim_jw w;
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
    plim_jw_end(&w);
    plim_page_puts(p, "\n");
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
    put_label(p, "gpu", plim_live_device_id(&p->arena, v, device), &comma);
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
static void write_metrics(plim_page *p, const plim_live_view *v)
{
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
}

/* ---- which ------------------------------------------------------------------------------------------- */

plim_status plim_live_export(const plim_live_view *v, plim_live_form form, plim_put put,
                             void *ud, plim_err *err)
{
    static void (*const forms[PLIM_LIVE_FORM_COUNT])(plim_page *, const plim_live_view *) = {
        [PLIM_LIVE_GPUSTAT] = write_gpustat, [PLIM_LIVE_PROMETHEUS] = write_metrics};
    PLIM_REQUIRE(v, err);
    PLIM_REQUIRE(put, err);
    if ((unsigned)form >= PLIM_LIVE_FORM_COUNT)
        return plim_fail(err, PLIM_EUSAGE, (uint64_t)form, "there is no form %d", (int)form);
    plim_page p;
    plim_page_open(&p, NULL);
    forms[form](&p, v);
    return plim_page_send(&p, PLIM_OK, put, ud, err);
}
