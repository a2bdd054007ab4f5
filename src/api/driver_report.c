/* driver_report.c -- plim_driver_*: recordings of CUDA's driver, made and read. */
#include "api/api.h"
#include "plimsoll_live.h"
#include "trace/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

typedef struct driver_result {
    plim_driver_report pub;
    plim_arena arena;
} driver_result;

/* ---- making one ------------------------------------------------------------- */

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Writes the head where it lies; `rest` zeros follow. */
static plim_status write_head(const char *path, const char *mode, const plim_driver_head *h,
                              const char *command, plim_err *err)
{
    static const char zeros[PLIM_DRIVER_CHUNK];
    FILE *f = fopen(path, mode);
    bool good = f && fwrite(h, sizeof *h, 1, f) == 1;
    if (good && command) {
        size_t rest = PLIM_DRIVER_CHUNK - sizeof *h - h->command_bytes;
        good = fwrite(command, 1, h->command_bytes, f) == h->command_bytes &&
               fwrite(zeros, 1, rest, f) == rest;
    }
    int was = errno;
    if (f && fclose(f)) {
        was = good ? errno : was;
        good = false;
    }
    return good
               ? PLIM_OK
               : plim_fail(err, PLIM_EIO, 0, "cannot write '%.120s': %s", path, strerror(was));
}

plim_status plim_driver_create(const char *path, const char *command, plim_err *err)
{
    PLIM_REQUIRE(path, err);
    PLIM_REQUIRE(command, err);
    plim_driver_head h = {.version = PLIM_DRIVER_VERSION,
                          .chunk = PLIM_DRIVER_CHUNK,
                          .end = PLIM_DRIVER_CHUNK,
                          .began = read_clock(CLOCK_MONOTONIC),
                          .unix_ns = read_clock(CLOCK_REALTIME)};
    memcpy(h.magic, PLIM_DRIVER_MAGIC, sizeof h.magic);
    h.command_bytes = (uint32_t)PLIM_MIN(strlen(command), PLIM_DRIVER_CHUNK - sizeof h);
    return write_head(path, "wb", &h, command, err);
}

plim_status plim_driver_end(const char *path, int32_t status, plim_err *err)
{
    plim_driver_head h;
    PLIM_REQUIRE(path, err);
    FILE *f = fopen(path, "rb");
    bool good = f && fread(&h, sizeof h, 1, f) == 1;
    if (f)
        fclose(f);
    if (!good || memcmp(h.magic, PLIM_DRIVER_MAGIC, sizeof h.magic) != 0)
        return plim_fail(err, PLIM_EIO, 0, "'%.120s' is not the recording that was begun",
                         path);
    h.ended = read_clock(CLOCK_MONOTONIC);
    h.status = status;
    return write_head(path, "r+b", &h, NULL, err);
}

/* ---- reading one ------------------------------------------------------------ */

typedef struct filling {
    const plim_driver_log *log;
    const plim_driver_held *held;
    plim_arena *a;
    plim_driver_report *out;
    bool bad; /* no memory */
} filling;

static double seconds_of(const filling *f, uint64_t ns)
{
    return ns > f->log->began ? (double)(ns - f->log->began) / 1e9 : 0;
}

static const char *text_of(filling *f, uint32_t text)
{
    const char *z = plim__cstr(f->a, f->log->texts[text]);
    f->bad |= !z;
    return text ? z : NULL;
}

static const char *base_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

static const char *line_of(filling *f, uint32_t file, uint32_t line)
{
    if (!file)
        return NULL;
    plim_str s = plim_arena_printf(f->a, "%s:%" PRIu32, base_of(text_of(f, file)), line);
    f->bad |= !s.p;
    return s.p;
}

static void fill_processes(filling *f)
{
    plim_driver_process_info *list =
        PLIM_NEW_N(f->a, plim_driver_process_info, f->log->n_processes);
    f->bad |= !list;
    for (uint32_t i = 0; !f->bad && i < f->log->n_processes; i++) {
        const plim_driver_process *p = &f->log->processes[i];
        list[i] = (plim_driver_process_info){.pid = p->pid,
                                             .parent = p->parent,
                                             .command = plim__cstr(f->a, p->command),
                                             .exited = p->exited,
                                             .events = p->events};
        f->bad |= !list[i].command;
    }
    f->out->processes = list;
    f->out->n_processes = f->log->n_processes;
}

/* Holders that are not devices are left out: they are rows of `parts`. */
static void fill_devices(filling *f)
{
    plim_driver_device *list = PLIM_NEW_N(f->a, plim_driver_device, f->held->n_uses + 1u);
    f->bad |= !list;
    for (uint32_t i = 0; !f->bad && i < f->held->n_uses; i++) {
        const plim_driver_use *u = &f->held->uses[i];
        if (u->device < 0 && !u->peak)
            continue;
        plim_driver_device *d = &list[f->out->n_devices++];
        *d = (plim_driver_device){.process = u->process,
                                  .device = u->device,
                                  .peak = u->peak,
                                  .at_end = u->held,
                                  .peak_s = seconds_of(f, u->peak_time),
                                  .read = u->read};
        memcpy(d->most, u->most, sizeof d->most);
        if (!u->read)
            continue;
        d->total = u->total;
        d->context = u->before - PLIM_MIN(u->before_held, u->before);
        d->used = u->after;
        d->rest = (int64_t)(u->after - u->after_held - d->context);
    }
    f->out->devices = list;
}

static void fill_parts(filling *f)
{
    const plim_driver_holder *h = f->held->holders;
    plim_driver_part *list = PLIM_NEW_N(f->a, plim_driver_part, f->held->n_holders + 1u);
    uint32_t *owners = PLIM_NEW_N(f->a, uint32_t, f->held->n_holders + 1u);
    f->bad |= !list || !owners;
    for (uint32_t i = 0; !f->bad && i < f->held->n_holders; i++) {
        plim_driver_part *p = NULL;
        for (uint32_t k = f->out->n_parts; !p && k--;) {
            plim_driver_part *q = &list[k];
            if (q->process != h[i].process || q->device != h[i].device)
                break;
            if (q->way == plim_driver_way_name(h[i].way) && owners[k] == h[i].owner)
                p = q;
        }
        if (!p) {
            owners[f->out->n_parts] = h[i].owner;
            p = &list[f->out->n_parts++];
            *p = (plim_driver_part){.process = h[i].process,
                                    .device = h[i].device,
                                    .path = text_of(f, h[i].owner),
                                    .way = plim_driver_way_name(h[i].way),
                                    .on_device = h[i].way < PLIM_DRIVER_BY_MANAGED};
            p->library = base_of(p->path);
        }
        p->at_peak = plim_sat_add(p->at_peak, h[i].at_peak);
        p->at_end = plim_sat_add(p->at_end, h[i].held);
        p->calls += h[i].calls;
        p->failed += h[i].failed;
    }
    f->out->parts = list;
}

static int compare_parts(const void *pa, const void *pb)
{
    const plim_driver_part *a = pa, *b = pb;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->on_device != b->on_device)
        return a->on_device ? -1 : 1;
    if (a->at_peak != b->at_peak)
        return a->at_peak > b->at_peak ? -1 : 1;
    if (a->at_end != b->at_end)
        return a->at_end > b->at_end ? -1 : 1;
    int order = strcmp(a->path ? a->path : "", b->path ? b->path : "");
    return order ? order : strcmp(a->way, b->way);
}

static int compare_lines(const void *pa, const void *pb)
{
    const plim_driver_line *a = pa, *b = pb;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->at_peak != b->at_peak)
        return a->at_peak > b->at_peak ? -1 : 1;
    if (a->at_end != b->at_end)
        return a->at_end > b->at_end ? -1 : 1;
    return strcmp(a->where, b->where);
}

/* Each line has few ways and libraries: what has the same place is added up. */
static void fill_lines(filling *f)
{
    const plim_driver_holder *h = f->held->holders;
    plim_driver_line *list = PLIM_NEW_N(f->a, plim_driver_line, f->held->n_holders + 1u);
    plim_map places = {0};
    f->bad |= !list;
    for (uint32_t i = 0; !f->bad && i < f->held->n_holders; i++) {
        if (!h[i].file || h[i].way >= PLIM_DRIVER_BY_MANAGED)
            continue;
        plim_str key = plim_arena_printf(f->a, "%" PRIu32 " %" PRId32 " %" PRIu32 " %" PRIu32,
                                         h[i].process, h[i].device, h[i].file, h[i].line);
        uint32_t at = f->out->n_lines;
        if (!key.p || (!plim_map_get(&places, key, &at) &&
                       !plim_map_put(f->a, &places, key, f->out->n_lines))) {
            f->bad = true;
            break;
        }
        plim_driver_line *l = &list[at];
        if (at == f->out->n_lines) {
            *l = (plim_driver_line){.process = h[i].process,
                                    .device = h[i].device,
                                    .where = line_of(f, h[i].file, h[i].line)};
            f->out->n_lines++;
        }
        l->at_peak = plim_sat_add(l->at_peak, h[i].at_peak);
        l->at_end = plim_sat_add(l->at_end, h[i].held);
        l->calls += h[i].calls;
    }
    if (!f->bad)
        qsort(list, f->out->n_lines, sizeof *list, compare_lines);
    f->out->lines = list;
}

static void fill_failure(filling *f)
{
    const plim_driver_failure *x = &f->held->failure;
    f->out->failures = f->held->failures;
    if (!f->out->failures)
        return;
    f->out->oom_requested = x->bytes;
    f->out->oom_free = x->free;
    f->out->oom_held = x->held;
    f->out->oom_time_s = seconds_of(f, x->time);
    f->out->oom_device = x->device;
    f->out->oom_library = base_of(text_of(f, x->owner));
    f->out->oom_where = line_of(f, x->file, x->line);
}

static plim_status driver_fill(const char *path, plim_bytes file, plim_arena *a,
                               plim_driver_report *out, plim_err *err)
{
    plim_driver_log log;
    plim_driver_held held;
    plim_status st = plim_driver_read(&log, a, file, err);
    if (st)
        plim_err_prefix(err, "'%s': ", path);
    if (!st)
        st = plim_driver_hold(&log, a, &held, err);
    if (st)
        return st;
    filling f = {.log = &log, .held = &held, .a = a, .out = out};
    *out = (plim_driver_report){.size = sizeof *out,
                                .command = plim__cstr(a, log.command),
                                .ended = log.ended,
                                .status = log.status,
                                .first_s = log.events ? seconds_of(&f, log.first) : 0,
                                .seconds = seconds_of(&f, log.last),
                                .events = log.events,
                                .lost = log.lost,
                                .damaged = log.damaged,
                                .strangers = held.strangers};
    fill_processes(&f);
    fill_devices(&f);
    fill_parts(&f);
    fill_lines(&f);
    fill_failure(&f);
    if (f.bad || !out->command)
        return plim_oom(err);
    qsort((void *)(uintptr_t)out->parts, out->n_parts, sizeof *out->parts, compare_parts);
    return PLIM_OK;
}

bool plim_driver_is(const char *path)
{
    char magic[sizeof PLIM_DRIVER_MAGIC - 1];
    struct stat what; /* (what is read from a pipe is gone) */
    bool regular = path && !stat(path, &what) && S_ISREG(what.st_mode);
    FILE *f = regular ? fopen(path, "rb") : NULL;
    size_t n = f ? fread(magic, 1, sizeof magic, f) : 0;
    if (f)
        fclose(f);
    return plim_driver_detect((plim_bytes){.p = (const uint8_t *)magic, .n = n});
}

plim_status plim_driver_open(const char *path, plim_driver_report **out, plim_err *err)
{
    PLIM_REQUIRE(path, err);
    PLIM_REQUIRE(out, err);
    plim_budget budget;
    plim_budget_begin(&budget, PLIM_BUDGET_FREE);
    driver_result *r = plim__result_new(sizeof *r, offsetof(driver_result, arena));
    plim_bytes file = {0};
    plim_status st = r ? plim_file_read(&file, path, err) : plim_oom(err);
    if (!st)
        st = driver_fill(path, file, &r->arena, &r->pub, err);
    plim_file_close(&file);
    st = plim_budget_end(&budget, st, err);
    if (st)
        plim__result_free(r, offsetof(driver_result, arena));
    else
        *out = &r->pub;
    return st;
}

void plim_driver_free(plim_driver_report *r)
{
    plim__result_free(r, offsetof(driver_result, arena));
}
