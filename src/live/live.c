/* live.c -- plim_live_open, plim_live_tick: asks the sources, then /proc, then the past. */
#include <stdlib.h>

#include "live/live.h"

enum { SOURCES_MOST = 8 };

struct plim_live_monitor {
    plim_arena arena; /* this struct and all that lives as long as it */
    plim_arena tick;
    const char *root;
    void *states[SOURCES_MOST];
    plim_live_look looks[SOURCES_MOST];
    uint32_t n_sources;
    plim_past *past;
    plim_live_view view;
};

static plim_status open_sources(plim_live_monitor *l, const plim_live_options *o,
                                plim_err *err)
{
    const plim_live_source *source;
    for (uint32_t i = 0; i < SOURCES_MOST && (source = plim_live_source_at(i)); i++) {
        l->states[i] = plim_arena_new(&l->arena, 1, source->state_size);
        if (!l->states[i])
            return plim_oom(err);
        l->looks[i] = (plim_live_look){.source = source->name};
        l->n_sources = i + 1;
        source->open(l->states[i], o, &l->arena, &l->looks[i]);
    }
    return PLIM_OK;
}

plim_status plim_live_open(const plim_live_options *o, plim_live_monitor **out, plim_err *err)
{
    const plim_live_options standard = {0};
    plim_arena a = PLIM_ARENA_INIT;
    PLIM_REQUIRE(out, err);
    plim_live_options given = o ? *o : standard;
    plim_live_monitor *l = PLIM_NEW(&a, plim_live_monitor);
    if (!l)
        return plim_oom(err);
    l->arena = a;
    l->root = plim_arena_str(&l->arena, plim_str_of(given.root ? given.root : "")).p;
    l->past = plim_past_new(&l->arena);
    given.root = l->root;
    plim_status st = l->root && l->past ? open_sources(l, &given, err) : plim_oom(err);
    if (st)
        plim_live_close(l);
    else
        *out = l;
    return st;
}

void plim_live_close(plim_live_monitor *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < l->n_sources; i++)
        plim_live_source_at(i)->close(l->states[i]);
    plim_arena a = l->arena; /* l lies in it */
    plim_arena_free(&l->tick);
    plim_arena_free(&a);
}

/* ---- a tick ------------------------------------------------------------------------------------ */

/* A device that an earlier source has described already is left out with its processes.  The
 * numbers of a PCI address may have leading zeros: 00000000:01:00.0 is 0000:01:00.0. */
static bool same_pci(const char *a, const char *b)
{
    while (a && *a == '0')
        a++;
    while (b && *b == '0')
        b++;
    if (!a || !b)
        return false;
    plim_str x = plim_str_of(a), y = plim_str_of(b);
    if (x.n != y.n)
        return false;
    for (size_t i = 0; i < x.n; i++) /* hexadecimal digits of either case */
        if ((x.p[i] | 0x20) != (y.p[i] | 0x20))
            return false;
    return true;
}

static void drop_known(plim_reading *r, uint32_t first)
{
    uint32_t n = first, n_processes = 0;
    for (uint32_t i = first; i < r->n_devices; i++) {
        bool known = false;
        for (uint32_t k = 0; k < first; k++)
            known = known || same_pci(r->devices[k].pci, r->devices[i].pci);
        for (uint32_t k = 0; k < r->n_processes; k++)
            if (r->processes[k].device == i)
                r->processes[k].device = known ? UINT32_MAX : n;
        if (!known)
            r->devices[n++] = r->devices[i];
    }
    r->n_devices = n;
    for (uint32_t k = 0; k < r->n_processes; k++)
        if (r->processes[k].device != UINT32_MAX)
            r->processes[n_processes++] = r->processes[k];
    r->n_processes = n_processes;
}

static int order_processes(const void *pa, const void *pb)
{
    const plim_live_process *a = pa, *b = pb;
    uint64_t x = a->memory + 1, y = b->memory + 1; /* unknown: 0 */
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (x != y)
        return x > y ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* Of the machine's own memory a driver may not say what a process has; its pages tell. */
static void finish_process(plim_reading *r, plim_live_process *p, uint64_t *ticks)
{
    *ticks = PLIM_LIVE_UNKNOWN;
    if (!p->elsewhere)
        plim_process_facts(r, p, ticks);
}

static plim_status fill_view(plim_live_monitor *l, plim_reading *r, int64_t now_ms,
                             plim_err *err)
{
    uint64_t *ticks = PLIM_NEW_N(r->arena, uint64_t, (uint64_t)r->n_processes + 1);
    if (!ticks)
        return plim_oom(err);
    if (r->n_processes)
        qsort(r->processes, r->n_processes, sizeof *r->processes, order_processes);
    for (uint32_t i = 0; i < r->n_processes; i++)
        finish_process(r, &r->processes[i], &ticks[i]);
    plim_reading_assign(r);
    plim_past_add(l->past, r, ticks, now_ms);
    if (r->full)
        plim_reading_note(r, "there are more devices or processes than can be shown");
    l->view = (plim_live_view){.time_ms = now_ms,
                               .host = plim_host_name(r),
                               .nvidia_driver = r->driver,
                               .cuda = r->cuda,
                               .devices = r->devices,
                               .n_devices = r->n_devices,
                               .processes = r->processes,
                               .n_processes = r->n_processes,
                               .looked = l->looks,
                               .n_looked = l->n_sources,
                               .notes = r->notes,
                               .n_notes = r->n_notes};
    return PLIM_OK;
}

plim_status plim_live_tick(plim_live_monitor *l, int64_t now_ms, const plim_live_view **out,
                           plim_err *err)
{
    PLIM_REQUIRE(l, err);
    PLIM_REQUIRE(out, err);
    plim_arena_reset(&l->tick);
    plim_reading r = {.arena = &l->tick, .root = l->root};
    for (uint32_t i = 0; i < l->n_sources; i++) {
        uint32_t first = r.n_devices;
        plim_live_source_at(i)->read(l->states[i], &r);
        drop_known(&r, first);
        l->looks[i].devices = r.n_devices - first;
    }
    plim_status st = fill_view(l, &r, now_ms, err);
    if (!st)
        *out = &l->view;
    return st;
}

uint32_t plim_live_past(const plim_live_monitor *l, uint32_t device, uint64_t *used,
                        uint64_t *busy, uint32_t max)
{
    return l && used && busy ? plim_past_of(l->past, device, used, busy, max) : 0;
}

uint64_t plim_live_footprint(const plim_live_monitor *l) { return l ? l->arena.used : 0; }
