/* reading.c -- what one tick found: see live.h */
#include <math.h>

#include "live/live.h"

plim_live_device *plim_reading_device(plim_reading *r, const char *source)
{
    const uint64_t no = PLIM_LIVE_UNKNOWN;
    if (r->n_devices >= PLIM_LIVE_DEVICES_MOST ||
        !PLIM_PUSH_ROOM(r->arena, r->devices, r->n_devices, r->cap_devices)) {
        r->full = true;
        return NULL;
    }
    plim_live_device *d = &r->devices[r->n_devices++];
    *d = (plim_live_device){.source = source,
                            .total = no,
                            .used = no,
                            .free = no,
                            .reserved = no,
                            .busy_percent = no,
                            .memory_busy_percent = no,
                            .temperature_c = no,
                            .power_mw = no,
                            .power_limit_mw = no,
                            .fan_percent = no,
                            .clock_mhz = no,
                            .memory_clock_mhz = no,
                            .growth_per_s = (double)NAN,
                            .full_in_s = (double)NAN};
    return d;
}

plim_live_process *plim_reading_process(plim_reading *r, uint64_t pid, const char *kind)
{
    if (!r->n_devices || r->n_processes >= PLIM_LIVE_PROCESSES_MOST ||
        !PLIM_PUSH_ROOM(r->arena, r->processes, r->n_processes, r->cap_processes)) {
        r->full = true;
        return NULL;
    }
    plim_live_process *p = &r->processes[r->n_processes++];
    *p = PLIM_LIVE_NOBODY;
    p->device = r->n_devices - 1;
    p->pid = pid;
    p->kind = kind;
    return p;
}

void plim_reading_assign(plim_reading *r)
{
    for (uint32_t i = 0; i < r->n_processes; i++) {
        plim_live_device *d = &r->devices[r->processes[i].device];
        if (!d->n_processes++)
            d->processes = &r->processes[i];
    }
}

const char *plim_reading_text(plim_reading *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    plim_str s = plim_arena_vprintf(r->arena, fmt, args);
    va_end(args);
    return s.p;
}

void plim_reading_note(plim_reading *r, const char *note)
{
    for (uint32_t i = 0; note && i < r->n_notes; i++)
        if (!strcmp(r->notes[i], note))
            return;
    if (note && PLIM_PUSH_ROOM(r->arena, r->notes, r->n_notes, r->cap_notes))
        r->notes[r->n_notes++] = note;
}

void plim_reading_memory(plim_reading *r, plim_live_device *d, uint64_t total, uint64_t used,
                         uint64_t free_bytes)
{
    if (!total || total > INT64_MAX || used > total || free_bytes > total) {
        d->trouble =
            plim_reading_text(r,
                              "the driver says that %" PRIu64 " of %" PRIu64
                              " bytes are used and %" PRIu64 " are free, which is impossible",
                              used, total, free_bytes);
        return;
    }
    d->total = total;
    d->used = used;
    d->free = free_bytes;
}
