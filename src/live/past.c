/* past.c -- what is remembered from tick to tick: peaks, growth, and the plots of devices.
 *
 * Everything here has a fixed size once the greatest number of processes at a time was seen:
 * the slot of a process that has ended is used again. */
#include <math.h>

#include "live/live.h"

enum {
    SAMPLES = 16,      /* over which growth is measured */
    TRACKS_MOST = 4096 /* processes; further ones have no peak but their present */
};

/* Memory at the last ticks, in a ring. */
typedef struct trend {
    int64_t time_ms[SAMPLES];
    uint64_t bytes[SAMPLES];
    uint32_t n, next;
} trend;

typedef struct track {
    uint64_t device, pid, started; /* pid 0: the slot is free */
    uint64_t peak, cpu_ticks;
    int64_t cpu_ms;
    uint32_t seen; /* the tick in which it was there last */
    trend trend;
} track;

typedef struct device_past {
    uint64_t key;
    trend trend;
    uint64_t used[PLIM_PAST_MOST], busy[PLIM_PAST_MOST];
    uint32_t n, next;
} device_past;

struct plim_past {
    plim_arena *arena;
    track *tracks;
    uint32_t n_tracks, cap_tracks;
    device_past *devices;
    uint32_t n_devices, cap_devices;
    uint32_t tick;
    uint32_t shown[PLIM_LIVE_DEVICES_MOST]; /* the past of each device of the last reading */
    uint32_t n_shown;
};

plim_past *plim_past_new(plim_arena *a)
{
    plim_past *p = PLIM_NEW(a, plim_past);
    if (p)
        p->arena = a;
    return p;
}

/* ---- growth --------------------------------------------------------------------------------- */

static void add_sample(trend *t, int64_t now_ms, uint64_t bytes)
{
    if (bytes == PLIM_LIVE_UNKNOWN) {
        t->n = 0;
        return;
    }
    t->time_ms[t->next] = now_ms;
    t->bytes[t->next] = bytes;
    t->next = (t->next + 1) % SAMPLES;
    t->n = PLIM_MIN(t->n + 1, SAMPLES);
}

/* Bytes a second from the oldest sample to the newest. */
static double measure_growth(const trend *t)
{
    uint32_t last = (t->next + SAMPLES - 1) % SAMPLES,
             first = (t->next + SAMPLES - t->n) % SAMPLES;
    if (t->n < 2 || t->time_ms[last] <= t->time_ms[first])
        return (double)NAN;
    return ((double)t->bytes[last] - (double)t->bytes[first]) * 1000.0 /
           (double)(t->time_ms[last] - t->time_ms[first]);
}

static double measure_full(double growth, uint64_t free_bytes)
{
    return growth > 0 && free_bytes != PLIM_LIVE_UNKNOWN ? (double)free_bytes / growth
                                                         : (double)NAN;
}

/* ---- devices ---------------------------------------------------------------------------------- */

static uint64_t hash_text(uint64_t h, const char *z) /* FNV-1a */
{
    for (; z && *z; z++)
        h = (h ^ (unsigned char)*z) * UINT64_C(0x100000001b3);
    return h * UINT64_C(0x100000001b3);
}

static uint64_t device_key(const plim_live_device *d)
{
    uint64_t h = hash_text(UINT64_C(0xcbf29ce484222325) + d->index, d->source);
    h = hash_text(h, d->uuid ? d->uuid : d->pci);
    return hash_text(h, d->mig);
}

static uint32_t find_device(plim_past *p, uint64_t key)
{
    for (uint32_t i = 0; i < p->n_devices; i++)
        if (p->devices[i].key == key)
            return i;
    if (p->n_devices == PLIM_LIVE_DEVICES_MOST ||
        !PLIM_PUSH_ROOM(p->arena, p->devices, p->n_devices, p->cap_devices))
        return UINT32_MAX;
    p->devices[p->n_devices] = (device_past){.key = key};
    return p->n_devices++;
}

static void add_device(plim_past *p, plim_live_device *d, uint32_t i, int64_t now_ms)
{
    uint32_t at = find_device(p, device_key(d));
    p->shown[i] = at;
    if (at == UINT32_MAX)
        return;
    device_past *past = &p->devices[at];
    add_sample(&past->trend, now_ms, d->used);
    d->growth_per_s = measure_growth(&past->trend);
    d->full_in_s = measure_full(d->growth_per_s, d->free);
    past->used[past->next] = d->used;
    past->busy[past->next] = d->busy_percent;
    past->next = (past->next + 1) % PLIM_PAST_MOST;
    past->n = PLIM_MIN(past->n + 1, PLIM_PAST_MOST);
}

uint32_t plim_past_of(const plim_past *p, uint32_t device, uint64_t *used, uint64_t *busy,
                      uint32_t max)
{
    if (device >= p->n_shown || p->shown[device] == UINT32_MAX)
        return 0;
    const device_past *d = &p->devices[p->shown[device]];
    uint32_t n = PLIM_MIN(d->n, max);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (d->next + PLIM_PAST_MOST - 1 - i) % PLIM_PAST_MOST;
        used[i] = d->used[at];
        busy[i] = d->busy[at];
    }
    return n;
}

/* ---- processes ---------------------------------------------------------------------------------- */

static track *find_track(plim_past *p, uint64_t device, const plim_live_process *q)
{
    track *unused = NULL;
    for (uint32_t i = 0; i < p->n_tracks; i++) {
        track *t = &p->tracks[i];
        if (t->pid == q->pid && t->started == q->started && t->device == device)
            return t;
        if (!t->pid && !unused)
            unused = t;
    }
    if (!unused) {
        if (p->n_tracks == TRACKS_MOST ||
            !PLIM_PUSH_ROOM(p->arena, p->tracks, p->n_tracks, p->cap_tracks))
            return NULL;
        unused = &p->tracks[p->n_tracks++];
    }
    *unused = (track){.device = device,
                      .pid = q->pid,
                      .started = q->started,
                      .peak = PLIM_LIVE_UNKNOWN,
                      .cpu_ticks = PLIM_LIVE_UNKNOWN};
    return unused;
}

/* Ticks of /proc are hundredths of a second: USER_HZ. */
static double measure_cpu(const track *t, uint64_t ticks, int64_t now_ms)
{
    if (ticks == PLIM_LIVE_UNKNOWN || t->cpu_ticks == PLIM_LIVE_UNKNOWN ||
        ticks < t->cpu_ticks || now_ms <= t->cpu_ms)
        return (double)NAN;
    return (double)(ticks - t->cpu_ticks) * 1000.0 / (double)(now_ms - t->cpu_ms);
}

static void add_process(plim_past *p, plim_reading *r, plim_live_process *q, uint64_t ticks,
                        int64_t now_ms)
{
    const plim_live_device *d = &r->devices[q->device];
    track *t = find_track(p, device_key(d), q);
    q->peak = q->memory;
    if (!t)
        return;
    t->seen = p->tick;
    if (q->memory != PLIM_LIVE_UNKNOWN)
        t->peak = t->peak == PLIM_LIVE_UNKNOWN ? q->memory : PLIM_MAX(t->peak, q->memory);
    q->peak = t->peak;
    add_sample(&t->trend, now_ms, q->memory);
    q->growth_per_s = measure_growth(&t->trend);
    q->full_in_s = measure_full(q->growth_per_s, d->free);
    q->cpu_percent = measure_cpu(t, ticks, now_ms);
    t->cpu_ticks = ticks;
    t->cpu_ms = now_ms;
}

void plim_past_add(plim_past *p, plim_reading *r, const uint64_t *cpu_ticks, int64_t now_ms)
{
    p->tick++;
    for (uint32_t i = 0; i < r->n_devices; i++)
        add_device(p, &r->devices[i], i, now_ms);
    p->n_shown = r->n_devices;
    for (uint32_t i = 0; i < r->n_processes; i++)
        add_process(p, r, &r->processes[i], cpu_ticks[i], now_ms);
    for (uint32_t i = 0; i < p->n_tracks; i++)
        if (p->tracks[i].seen != p->tick)
            p->tracks[i].pid = 0;
}
