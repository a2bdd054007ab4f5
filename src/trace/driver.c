/* driver.c -- reads a recording of CUDA's driver; see driver.h. */
#include "trace/driver.h"

#include <stdlib.h>

enum { CHUNK = PLIM_DRIVER_CHUNK, SLOT = PLIM_DRIVER_SLOT };

bool plim_driver_detect(plim_bytes file)
{
    return file.n >= 8 && !memcmp(file.p, PLIM_DRIVER_MAGIC, 8);
}

/* ---- texts ------------------------------------------------------------------ */

static uint64_t text_key(uint32_t process, uint32_t id)
{
    return (uint64_t)process << 32 | id;
}

/* Equal texts of different processes have one index. */
static bool add_text(plim_driver_log *log, uint32_t process, uint32_t id, plim_str text)
{
    uint32_t index;
    if (!plim_map_get(&log->same_texts, text, &index)) {
        if (!PLIM_PUSH_ROOM(log->arena, log->texts, log->n_texts, log->cap_texts) ||
            !plim_map_put(log->arena, &log->same_texts, text, log->n_texts))
            return false;
        index = log->n_texts;
        log->texts[log->n_texts++] = text;
    }
    plim_id_slot *s = plim_id_at(log->arena, &log->text_map, text_key(process, id));
    if (s)
        s->value = index;
    return s != NULL;
}

static uint32_t text_index(const plim_driver_log *log, uint32_t process, uint32_t id)
{
    const plim_id_slot *s = id ? plim_id_get(&log->text_map, text_key(process, id)) : NULL;
    return s ? s->value : 0;
}

/* ---- chunks ----------------------------------------------------------------- */

static uint32_t find_process(plim_driver_log *log, const plim_driver_chunk *c)
{
    plim_id_slot *s = plim_id_at(log->arena, &log->process_map, c->process);
    if (!s)
        return PLIM_NONE;
    if (s->live)
        return s->value;
    if (!PLIM_PUSH_ROOM(log->arena, log->processes, log->n_processes, log->cap_processes))
        return PLIM_NONE;
    s->live = true;
    s->value = log->n_processes;
    log->processes[log->n_processes] = (plim_driver_process){.id = c->process, .pid = c->pid};
    return log->n_processes++;
}

static plim_driver_event event_at(const uint8_t *p)
{
    plim_driver_event e;
    memcpy(&e, p, sizeof e);
    return e;
}

/* The slots that the text of `e` takes, after its own; SIZE_MAX: it is not a text that there
 * can be. */
static size_t text_slots(const plim_driver_event *e, size_t room)
{
    size_t slots =
        e->bytes <= PLIM_DRIVER_TEXT_MOST ? (size_t)(e->bytes + SLOT - 1) / SLOT : SIZE_MAX;
    return slots <= room / SLOT && e->owner < PLIM_DRIVER_TEXTS ? slots : SIZE_MAX;
}

static bool add_run(plim_driver_log *log, plim_driver_run r)
{
    if (!PLIM_PUSH_ROOM(log->arena, log->runs, log->n_runs, log->cap_runs))
        return false;
    log->runs[log->n_runs++] = r;
    return true;
}

/* Texts, whose first use may be in another chunk; and the events, as runs: a thread that was
 * held up after it dated its event may have written it into a chunk that another thread, which
 * ended meanwhile, left with later ones. */
static bool read_chunk(plim_driver_log *log, plim_driver_run r, bool *damaged)
{
    const uint8_t *end = r.end;
    uint64_t last = 0;
    r.end = r.at;
    for (const uint8_t *p = r.at; p < end; p += SLOT) {
        plim_driver_event e = event_at(p);
        size_t room = (size_t)(end - p) - SLOT;
        if (e.kind >= PLIM_DRIVER_KIND_COUNT ||
            (e.kind == PLIM_DRIVER_TEXT && text_slots(&e, room) == SIZE_MAX)) {
            *damaged = true;
            break;
        }
        if (e.kind == PLIM_DRIVER_TEXT) {
            if (!add_text(log, r.process, e.owner,
                          (plim_str){(const char *)p + SLOT, (size_t)e.bytes}))
                return false;
            p += text_slots(&e, room) * SLOT;
            continue;
        }
        if (r.at < r.end && e.time < last) { /* another run */
            if (!add_run(log, r))
                return false;
            r.end = r.at;
        }
        if (r.at == r.end) {
            r.at = p;
            r.time = e.time;
        }
        r.end = p + SLOT;
        last = e.time;
        log->events++;
        log->processes[r.process].events++;
        log->last = PLIM_MAX(log->last, e.time);
        log->first = PLIM_MIN(log->first, e.time);
    }
    return r.at == r.end || add_run(log, r);
}

static plim_status add_chunk(plim_driver_log *log, plim_bytes file, uint64_t at, plim_err *err)
{
    plim_driver_chunk c;
    plim_driver_run r = {.at = file.p + at + sizeof c};
    bool damaged = false;
    memcpy(&c, file.p + at, sizeof c);
    if (!c.magic && !c.used)
        return PLIM_OK; /* handed out, and the process ended before it wrote */
    size_t room = (size_t)PLIM_MIN(file.n - at, (uint64_t)CHUNK) - sizeof c;
    damaged = c.magic != PLIM_DRIVER_CHUNK_MAGIC || c.used % SLOT || c.used > room;
    if (c.magic == PLIM_DRIVER_CHUNK_MAGIC) {
        r.end = r.at + PLIM_MIN((size_t)c.used, room) / SLOT * SLOT;
        r.process = find_process(log, &c);
        if (r.process == PLIM_NONE || !read_chunk(log, r, &damaged))
            return plim_oom(err);
    }
    log->damaged += damaged;
    return PLIM_OK;
}

static int compare_runs(const void *pa, const void *pb)
{
    const plim_driver_run *a = pa, *b = pb;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Who each process is: its own first event says. */
static void name_processes(plim_driver_log *log)
{
    for (uint32_t i = 0; i < log->n_runs; i++) {
        for (const uint8_t *p = log->runs[i].at; p < log->runs[i].end; p += SLOT) {
            plim_driver_event e = event_at(p);
            plim_driver_process *of = &log->processes[log->runs[i].process];
            if (e.kind == PLIM_DRIVER_TEXT)
                p += text_slots(&e, SIZE_MAX) * SLOT;
            if (e.kind == PLIM_DRIVER_EXIT)
                of->exited = true;
            if (e.kind != PLIM_DRIVER_PROCESS)
                continue;
            of->parent = (uint32_t)e.address;
            of->command = log->texts[text_index(log, log->runs[i].process, e.owner)];
        }
    }
}

plim_status plim_driver_read(plim_driver_log *log, plim_arena *a, plim_bytes file,
                             plim_err *err)
{
    plim_driver_head h;
    *log = (plim_driver_log){.arena = a};
    if (!plim_driver_detect(file))
        return plim_fail(err, PLIM_EFORMAT, 0, "not a recording of the CUDA driver");
    if (file.n < CHUNK)
        return plim_fail(err, PLIM_EFORMAT, file.n,
                         "the head of the recording ends at byte %" PRIu64 ", it has %d bytes",
                         file.n, CHUNK);
    memcpy(&h, file.p, sizeof h);
    if (h.version != PLIM_DRIVER_VERSION || h.chunk != CHUNK)
        return plim_fail(err, PLIM_EUNSUPPORTED, 8,
                         "the recording has version %" PRIu32 " and chunks of %" PRIu32
                         " bytes, only version %d with %d is known",
                         h.version, h.chunk, PLIM_DRIVER_VERSION, CHUNK);
    log->command = (plim_str){(const char *)file.p + sizeof h,
                              PLIM_MIN(h.command_bytes, CHUNK - (uint32_t)sizeof h)};
    log->ended = h.ended != 0;
    log->status = h.status;
    log->began = log->last = h.began;
    log->first = UINT64_MAX;
    log->lost = h.lost;
    if (!PLIM_PUSH_ROOM(a, log->texts, log->n_texts, log->cap_texts))
        return plim_oom(err);
    log->texts[log->n_texts++] = PLIM_STR("");
    for (uint64_t at = CHUNK; at + sizeof(plim_driver_chunk) <= file.n; at += CHUNK) {
        PLIM_TRY(add_chunk(log, file, at, err));
    }
    if (log->n_runs)
        qsort(log->runs, log->n_runs, sizeof *log->runs, compare_runs);
    name_processes(log);
    return PLIM_OK;
}

/* ---- walking ---------------------------------------------------------------- */

plim_status plim_driver_walk_begin(plim_driver_walk *w, const plim_driver_log *log,
                                   plim_arena *scratch, plim_err *err)
{
    *w = (plim_driver_walk){.log = log};
    w->heap = PLIM_NEW_N(scratch, plim_driver_run, log->n_runs);
    return w->heap || !log->n_runs ? PLIM_OK : plim_oom(err);
}

static void sink_run(plim_driver_walk *w, uint32_t i)
{
    plim_driver_run r = w->heap[i];
    for (uint32_t child; (child = 2 * i + 1) < w->n; i = child) {
        if (child + 1 < w->n && compare_runs(&w->heap[child + 1], &w->heap[child]) < 0)
            child++;
        if (compare_runs(&r, &w->heap[child]) <= 0)
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = r;
}

static void raise_run(plim_driver_walk *w, plim_driver_run r)
{
    uint32_t i = w->n++;
    for (; i && compare_runs(&r, &w->heap[(i - 1) / 2]) < 0; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = r;
}

/* The run at the top goes on by one event; false: it was its last. */
static bool advance_run(plim_driver_run *r, plim_driver_event *e)
{
    *e = event_at(r->at);
    r->at += SLOT;
    while (r->at < r->end) {
        plim_driver_event next = event_at(r->at);
        r->time = next.time;
        if (next.kind != PLIM_DRIVER_TEXT)
            return true;
        r->at += (text_slots(&next, SIZE_MAX) + 1) * SLOT;
    }
    return false;
}

bool plim_driver_walk_next(plim_driver_walk *w, plim_driver_event *e, uint32_t *process,
                           uint32_t *owner, uint32_t *file)
{
    const plim_driver_log *log = w->log;
    while (w->next_run < log->n_runs &&
           (!w->n || log->runs[w->next_run].time <= w->heap[0].time))
        raise_run(w, log->runs[w->next_run++]);
    if (!w->n)
        return false;
    *process = w->heap[0].process;
    if (!advance_run(&w->heap[0], e))
        w->heap[0] = w->heap[--w->n];
    if (w->n)
        sink_run(w, 0);
    *owner = text_index(log, *process, e->owner);
    *file = text_index(log, *process, e->file);
    return true;
}
