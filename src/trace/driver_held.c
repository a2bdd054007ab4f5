/* driver_held.c -- what was held, by whom: the events of a recording of the driver, one by
 * one; see driver.h. */
#include "trace/driver.h"

#include <stdlib.h>

enum block_kind { NO_BLOCK, MEMORY, HANDLE, MAPPING, NODE };

typedef struct block {
    uint64_t at; /* its address or handle */
    uint64_t bytes, context;
    uint32_t holder; /* of a mapping: the block that is mapped */
    uint32_t owners; /* of a handle: who made it, who retained it, each mapping */
    uint32_t process;
    uint32_t storage; /* on the tape */
    uint8_t in, kind; /* space, block_kind */
} block;

/* Addresses and handles are numbers of the driver: each of their own kind. */
typedef enum space { ADDRESSES, HOST_ADDRESSES, HANDLES, ARRAYS, GRAPHS, SPACES } space;

enum { DEVICES = 64 };
typedef struct owner_maps {
    plim_id_map map[SPACES];
    uint64_t primary[DEVICES]; /* contexts */
    uint32_t retained[DEVICES];
    bool over; /* has called exit(): what is given back then says nothing */
} owner_maps;

typedef struct holder_ids { /* the key of a holder; no padding */
    uint32_t process, owner, file, line, way;
    int32_t device;
} holder_ids;

typedef struct keeper {
    const plim_driver_log *log;
    plim_arena *a, scratch;
    plim_driver_held *out;
    plim_tape *tape; /* what this use says is told to it; NULL: nothing */
    const plim_driver_use *told;
    owner_maps *maps; /* of each process */
    plim_map holders;
    plim_id_map uses;
    block *blocks; /* 0 is none */
    uint32_t n_blocks, cap_blocks;
    uint32_t *spare;
    uint32_t n_spare, cap_spare;
} keeper;

const char *plim_driver_way_name(plim_driver_way w)
{
    plim_assert((unsigned)w < PLIM_DRIVER_WAYS);
    static const char *const names[PLIM_DRIVER_WAYS] = {
        "allocated", "pool", "mapped", "array", "graph", "managed", "pinned host", "shared"};
    return names[w];
}

/* ---- uses and holders ------------------------------------------------------- */

static plim_driver_use *find_use(keeper *k, uint32_t process, int32_t device)
{
    plim_id_slot *s =
        plim_id_at(&k->scratch, &k->uses, (uint64_t)process << 32 | (uint32_t)device);
    if (!s)
        return NULL;
    if (!s->live) {
        if (!PLIM_PUSH_ROOM(k->a, k->out->uses, k->out->n_uses, k->out->cap_uses))
            return NULL;
        s->live = true;
        s->value = k->out->n_uses;
        k->out->uses[k->out->n_uses++] =
            (plim_driver_use){.process = process, .device = device};
    }
    return &k->out->uses[s->value];
}

/* One that is there. */
static plim_driver_use *use_of(keeper *k, const plim_driver_holder *h)
{
    const plim_id_slot *s =
        plim_id_get(&k->uses, (uint64_t)h->process << 32 | (uint32_t)h->device);
    return &k->out->uses[s->value];
}

static uint32_t find_holder(keeper *k, const holder_ids *ids)
{
    uint32_t at;
    plim_str key = {(const char *)ids, sizeof *ids};
    if (plim_map_get(&k->holders, key, &at))
        return at;
    key = plim_arena_str(&k->scratch, key);
    if (!key.p ||
        !PLIM_PUSH_ROOM(k->a, k->out->holders, k->out->n_holders, k->out->cap_holders) ||
        !plim_map_put(&k->scratch, &k->holders, key, k->out->n_holders))
        return PLIM_NONE;
    k->out->holders[k->out->n_holders] =
        (plim_driver_holder){.process = ids->process,
                             .owner = ids->owner,
                             .file = ids->file,
                             .line = ids->line,
                             .device = ids->device,
                             .way = (plim_driver_way)ids->way};
    return k->out->n_holders++;
}

static bool is_on_device(plim_driver_way w) { return w < PLIM_DRIVER_BY_MANAGED; }

/* A peak is only known to be one when something is given back, or at the end. */
static void note_peak(keeper *k, plim_driver_use *u)
{
    for (uint32_t i = 0; i < k->out->n_holders; i++) {
        plim_driver_holder *h = &k->out->holders[i];
        if (h->process == u->process && h->device == u->device && is_on_device(h->way))
            h->at_peak = h->held;
    }
    u->pending = false;
}

static uint32_t span_of(const plim_driver_log *log, uint64_t time)
{
    plim_assert(log->first <= log->last);
    uint64_t all = log->last - log->first, at = PLIM_MAX(time, log->first) - log->first;
    return all ? (uint32_t)PLIM_MIN((double)at / (double)all * PLIM_DRIVER_SPANS,
                                    (double)(PLIM_DRIVER_SPANS - 1))
               : 0;
}

/* What is held lasts until the next change. */
static void extend_spans(plim_driver_use *u, uint32_t to)
{
    plim_assert(to < PLIM_DRIVER_SPANS);
    while (u->span < to)
        u->most[++u->span] = u->held;
}

static void take_bytes(keeper *k, plim_driver_holder *h, uint64_t bytes, uint64_t time)
{
    plim_driver_use *u = use_of(k, h);
    h->held = plim_sat_add(h->held, bytes);
    if (!is_on_device(h->way)) {
        h->at_peak = PLIM_MAX(h->at_peak, h->held); /* its own: it is not on the device */
        return;
    }
    extend_spans(u, span_of(k->log, time));
    u->held = plim_sat_add(u->held, bytes);
    u->most[u->span] = PLIM_MAX(u->most[u->span], u->held);
    if (u->held > u->peak) {
        u->peak = u->held;
        u->peak_time = time;
        u->pending = true;
    }
}

static void give_bytes(keeper *k, plim_driver_holder *h, uint64_t bytes, uint64_t time)
{
    plim_driver_use *u = use_of(k, h);
    if (is_on_device(h->way)) {
        if (u->pending)
            note_peak(k, u);
        extend_spans(u, span_of(k->log, time));
        u->held -= PLIM_MIN(bytes, u->held);
    }
    h->held -= PLIM_MIN(bytes, h->held);
}

/* ---- blocks ----------------------------------------------------------------- */

static uint32_t new_block(keeper *k, block b)
{
    uint32_t i = k->n_spare ? k->spare[--k->n_spare] : k->n_blocks;
    if (i == k->n_blocks) {
        if (!PLIM_PUSH_ROOM(&k->scratch, k->blocks, k->n_blocks, k->cap_blocks))
            return PLIM_NONE;
        k->n_blocks++;
    }
    k->blocks[i] = b;
    return i;
}

static bool drop_block(keeper *k, uint32_t i)
{
    plim_assert(i < k->n_blocks && k->blocks[i].kind != NO_BLOCK);
    k->blocks[i].kind = NO_BLOCK;
    if (!PLIM_PUSH_ROOM(&k->scratch, k->spare, k->n_spare, k->cap_spare))
        return false;
    k->spare[k->n_spare++] = i;
    return true;
}

/* A handle or a mapping goes; memory with its last owner. */
static bool end_block(keeper *k, uint32_t i, uint64_t time)
{
    plim_assert(i < k->n_blocks);
    block *b = &k->blocks[i];
    if (b->kind == MAPPING) {
        uint32_t of = b->holder;
        return drop_block(k, i) && end_block(k, of, time);
    }
    if (b->kind == NO_BLOCK || b->kind == NODE || --b->owners)
        return true; /* a node allocates again at the next launch */
    if (b->storage != PLIM_NONE && !plim_tape_free_storage(k->tape, b->storage))
        return false;
    give_bytes(k, &k->out->holders[b->holder], b->bytes, time);
    return drop_block(k, i);
}

/* What lies at an address or has a handle now; PLIM_NONE: nothing that was recorded.  A slot
 * of the map may be of a block that is gone. */
static uint32_t block_at(const keeper *k, uint32_t process, space in, uint64_t at)
{
    const plim_id_slot *s = plim_id_get(&k->maps[process].map[in], at);
    if (!s || !s->live)
        return PLIM_NONE;
    const block *b = &k->blocks[s->value];
    return b->kind && b->in == in && b->process == process && b->at == at ? s->value
                                                                          : PLIM_NONE;
}

/* Ends what lies at an address; a stranger is counted. */
static bool end_at(keeper *k, uint32_t process, space in, uint64_t at, uint64_t time)
{
    uint32_t i = block_at(k, process, in, at);
    if (i != PLIM_NONE)
        return end_block(k, i, time);
    k->out->strangers += at != 0; /* 0: as free(NULL) */
    return true;
}

/* Puts a block in its place.  What lay there was given back by something that is not
 * recorded; but the number of a handle may be used again while what it was is mapped. */
static bool put_block(keeper *k, block b, uint64_t time)
{
    uint32_t old = block_at(k, b.process, (space)b.in, b.at);
    if (old != PLIM_NONE && b.in != HANDLES && !end_block(k, old, time))
        return false;
    plim_id_slot *s = plim_id_at(&k->scratch, &k->maps[b.process].map[b.in], b.at);
    uint32_t i = s ? new_block(k, b) : PLIM_NONE;
    if (i == PLIM_NONE)
        return false;
    s->live = true;
    s->value = i;
    return true;
}

/* ---- events ----------------------------------------------------------------- */

static void fail_call(keeper *k, const plim_driver_event *e, const plim_driver_holder *h)
{
    if (!k->out->failures++)
        k->out->failure = (plim_driver_failure){.process = h->process,
                                                .owner = h->owner,
                                                .file = h->file,
                                                .line = h->line,
                                                .device = h->device,
                                                .time = e->time,
                                                .bytes = e->bytes,
                                                .free = e->free,
                                                .held = use_of(k, h)->held};
}

static bool tell_block(keeper *k, const plim_driver_holder *h, block *b)
{
    if (!k->tape || h->process != k->told->process || h->device != k->told->device ||
        !is_on_device(h->way))
        return true;
    plim_storage s = {
        .bytes = b->bytes, .category = PLIM_CAT_TEMPORARY, .name = k->log->texts[h->owner]};
    b->storage = plim_tape_alloc(k->tape, &s);
    return b->storage != PLIM_NONE;
}

static bool take_memory(keeper *k, const plim_driver_event *e, holder_ids ids, space in)
{
    if (!find_use(k, ids.process, ids.device))
        return false;
    uint32_t at = find_holder(k, &ids);
    if (at == PLIM_NONE)
        return false;
    plim_driver_holder *h = &k->out->holders[at];
    if (e->result) {
        h->failed++;
        fail_call(k, e, h);
        return true;
    }
    h->calls += e->kind != PLIM_DRIVER_GRAPH_MEMORY;
    block b = {.at = e->address,
               .bytes = e->bytes,
               .context = e->other,
               .holder = at,
               .owners = 1,
               .process = ids.process,
               .storage = PLIM_NONE,
               .in = (uint8_t)in,
               .kind = in == HANDLES ? HANDLE : MEMORY};
    if (!tell_block(k, h, &b) || !put_block(k, b, e->time))
        return false;
    take_bytes(k, h, e->bytes, e->time);
    return true;
}

/* The address is given back, perhaps after each launch, or by another graph; the memory is that
 * of all graphs of the device. */
static bool add_node(keeper *k, const plim_driver_event *e, holder_ids ids)
{
    if (!find_use(k, ids.process, ids.device))
        return false;
    uint32_t at = find_holder(k, &ids);
    if (at == PLIM_NONE)
        return false;
    k->out->holders[at].calls++;
    return put_block(k,
                     (block){.at = e->address,
                             .holder = at,
                             .process = ids.process,
                             .storage = PLIM_NONE,
                             .in = ADDRESSES,
                             .kind = NODE},
                     e->time);
}

/* What graphs hold now takes the place of what they held. */
static bool set_graphs(keeper *k, const plim_driver_event *e, holder_ids ids)
{
    plim_driver_event now = *e;
    now.address = (uint64_t)e->device + 1;
    return take_memory(k, &now, ids, GRAPHS);
}

/* An address may be opened several times. */
static bool open_shared(keeper *k, const plim_driver_event *e, holder_ids ids)
{
    uint32_t i = e->result ? PLIM_NONE : block_at(k, ids.process, ADDRESSES, e->address);
    if (i == PLIM_NONE || k->blocks[i].kind != MEMORY ||
        k->out->holders[k->blocks[i].holder].way != PLIM_DRIVER_BY_SHARE)
        return take_memory(k, e, ids, ADDRESSES);
    k->blocks[i].owners++;
    return true;
}

/* How much another process has shared by a handle is known when it is mapped. */
static bool map_handle(keeper *k, uint32_t process, const plim_driver_event *e)
{
    uint32_t of = block_at(k, process, HANDLES, e->other);
    if (of == PLIM_NONE)
        return true;
    block b = {.at = e->address,
               .bytes = e->bytes,
               .holder = of,
               .process = process,
               .storage = PLIM_NONE,
               .in = ADDRESSES,
               .kind = MAPPING};
    plim_driver_holder *h = &k->out->holders[k->blocks[of].holder];
    if (h->way == PLIM_DRIVER_BY_SHARE && !k->blocks[of].bytes) {
        k->blocks[of].bytes = e->bytes;
        take_bytes(k, h, e->bytes, e->time);
    }
    k->blocks[of].owners++;
    return put_block(k, b, e->time);
}

/* A range may have many mappings. */
static bool unmap_range(keeper *k, uint32_t process, const plim_driver_event *e)
{
    for (uint64_t at = e->address, left = e->bytes; left;) {
        uint32_t i = block_at(k, process, ADDRESSES, at);
        if (i == PLIM_NONE || k->blocks[i].kind != MAPPING)
            return true;
        uint64_t bytes = k->blocks[i].bytes;
        if (!end_block(k, i, e->time))
            return false;
        if (!bytes || bytes > left)
            return true;
        at += bytes;
        left -= bytes;
    }
    return true;
}

/* With a context goes what was allocated in it. */
static bool end_context(keeper *k, uint32_t process, uint64_t context, uint64_t time)
{
    for (int in = 0; in < SPACES; in++) {
        plim_id_map *m = &k->maps[process].map[in];
        for (uint32_t i = 0; context && i < m->cap; i++) {
            uint32_t of =
                m->slots[i].used ? block_at(k, process, (space)in, m->slots[i].id) : PLIM_NONE;
            if (of != PLIM_NONE && k->blocks[of].kind == MEMORY &&
                k->blocks[of].context == context && !end_block(k, of, time))
                return false;
        }
    }
    return true;
}

static bool change_primary(keeper *k, uint32_t process, const plim_driver_event *e)
{
    owner_maps *m = &k->maps[process];
    if (e->device < 0 || e->device >= DEVICES)
        return true; /* made by cuCtxCreate */
    if (e->kind == PLIM_DRIVER_CONTEXT) {
        m->primary[e->device] = e->address;
        m->retained[e->device]++;
        return true;
    }
    m->retained[e->device] -= m->retained[e->device] > 0;
    return (e->kind == PLIM_DRIVER_PRIMARY_LEFT && m->retained[e->device]) ||
           end_context(k, process, m->primary[e->device], e->time);
}

static bool read_memory(keeper *k, uint32_t process, const plim_driver_event *e)
{
    plim_driver_use *u = find_use(k, process, e->device);
    if (!u || e->bytes > e->other)
        return u != NULL;
    u->total = e->other;
    u->after = e->other - e->bytes;
    u->after_held = u->held;
    if (!u->read) {
        u->before = u->after;
        u->before_held = u->held;
    }
    u->read = true;
    return true;
}

static bool keep_event(keeper *k, const plim_driver_event *e, holder_ids ids)
{
    uint32_t p = ids.process;
    if (k->maps[p].over)
        return true;
    switch ((plim_driver_kind)e->kind) {
    case PLIM_DRIVER_ALLOC:
        ids.way = PLIM_DRIVER_BY_ALLOC;
        return take_memory(k, e, ids, ADDRESSES);
    case PLIM_DRIVER_MANAGED:
        ids.way = PLIM_DRIVER_BY_MANAGED;
        return take_memory(k, e, ids, ADDRESSES);
    case PLIM_DRIVER_POOL:
        ids.way = PLIM_DRIVER_BY_POOL;
        return take_memory(k, e, ids, ADDRESSES);
    case PLIM_DRIVER_ARRAY:
        ids.way = PLIM_DRIVER_BY_ARRAY;
        return take_memory(k, e, ids, ARRAYS);
    case PLIM_DRIVER_HOST:
        ids.way = PLIM_DRIVER_BY_HOST;
        return take_memory(k, e, ids, HOST_ADDRESSES);
    case PLIM_DRIVER_CREATE:
        ids.way = e->device < 0 ? PLIM_DRIVER_BY_HOST : PLIM_DRIVER_BY_MAP;
        return take_memory(k, e, ids, HANDLES);
    case PLIM_DRIVER_GRAPH_NODE: ids.way = PLIM_DRIVER_BY_GRAPH; return add_node(k, e, ids);
    case PLIM_DRIVER_GRAPH_MEMORY:
        ids.way = PLIM_DRIVER_BY_GRAPH;
        return set_graphs(k, e, ids);
    case PLIM_DRIVER_SHARED: ids.way = PLIM_DRIVER_BY_SHARE; return open_shared(k, e, ids);
    case PLIM_DRIVER_IMPORT:
        ids.way = PLIM_DRIVER_BY_SHARE;
        return take_memory(k, e, ids, HANDLES);
    case PLIM_DRIVER_FREE: return end_at(k, p, ADDRESSES, e->address, e->time);
    case PLIM_DRIVER_HOST_FREE: return end_at(k, p, HOST_ADDRESSES, e->address, e->time);
    case PLIM_DRIVER_ARRAY_FREE: return end_at(k, p, ARRAYS, e->address, e->time);
    case PLIM_DRIVER_RETAIN: {
        uint32_t of = block_at(k, p, HANDLES, e->address);
        if (of != PLIM_NONE)
            k->blocks[of].owners++;
        return true;
    }
    case PLIM_DRIVER_RELEASE: return end_at(k, p, HANDLES, e->address, e->time);
    case PLIM_DRIVER_MAP: return map_handle(k, p, e);
    case PLIM_DRIVER_UNMAP: return unmap_range(k, p, e);
    case PLIM_DRIVER_CONTEXT:
    case PLIM_DRIVER_PRIMARY_LEFT:
    case PLIM_DRIVER_PRIMARY_RESET: return change_primary(k, p, e);
    case PLIM_DRIVER_CONTEXT_END: return end_context(k, p, e->address, e->time);
    case PLIM_DRIVER_READING: return read_memory(k, p, e);
    case PLIM_DRIVER_EXIT: k->maps[p].over = true; return true;
    case PLIM_DRIVER_TEXT:
    case PLIM_DRIVER_PROCESS:
    case PLIM_DRIVER_MODULE:
    case PLIM_DRIVER_GRAPH:
    case PLIM_DRIVER_KIND_COUNT: break;
    }
    return true;
}

static int compare_holders(const void *pa, const void *pb)
{
    const plim_driver_holder *a = pa, *b = pb;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (is_on_device(a->way) != is_on_device(b->way))
        return is_on_device(a->way) ? -1 : 1;
    if (a->at_peak != b->at_peak)
        return a->at_peak > b->at_peak ? -1 : 1;
    if (a->held != b->held)
        return a->held > b->held ? -1 : 1;
    if (a->owner != b->owner)
        return a->owner < b->owner ? -1 : 1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return (int)a->way - (int)b->way;
}

static plim_status keep_all(keeper *k, plim_err *err)
{
    plim_driver_walk w;
    plim_driver_event e;
    holder_ids ids = {0};
    plim_status st = plim_driver_walk_begin(&w, k->log, &k->scratch, err);
    while (!st && plim_driver_walk_next(&w, &e, &ids.process, &ids.owner, &ids.file)) {
        ids.line = e.line;
        ids.device = e.device;
        if (!keep_event(k, &e, ids))
            st = plim_oom(err);
    }
    return st;
}

static plim_status hold_all(const plim_driver_log *log, plim_arena *a, plim_driver_held *out,
                            plim_tape *tape, const plim_driver_use *told, plim_err *err)
{
    keeper k = {.log = log,
                .a = a,
                .scratch = PLIM_ARENA_INIT,
                .out = out,
                .tape = tape,
                .told = told};
    *out = (plim_driver_held){0};
    k.maps = PLIM_NEW_N(&k.scratch, owner_maps, log->n_processes);
    plim_status st = !k.maps && log->n_processes ? plim_oom(err) : keep_all(&k, err);
    for (uint32_t i = 0; !st && i < out->n_uses; i++) {
        plim_driver_use *u = &out->uses[i];
        if (u->pending)
            note_peak(&k, u);
        extend_spans(u, PLIM_DRIVER_SPANS - 1);
    }
    if (!st && out->n_holders)
        qsort(out->holders, out->n_holders, sizeof *out->holders, compare_holders);
    plim_arena_free(&k.scratch);
    return st;
}

plim_status plim_driver_hold(const plim_driver_log *log, plim_arena *a, plim_driver_held *out,
                             plim_err *err)
{
    return hold_all(log, a, out, NULL, NULL, err);
}

plim_status plim_driver_tape(const plim_driver_log *log, plim_tape *t, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_driver_held held, again;
    const plim_driver_use *most = NULL;
    plim_status st = plim_driver_hold(log, &scratch, &held, err);
    for (uint32_t i = 0; !st && i < held.n_uses; i++)
        most = !most || held.uses[i].peak > most->peak ? &held.uses[i] : most;
    if (most)
        st = hold_all(log, &scratch, &again, t, most, err);
    plim_arena_free(&scratch);
    return st;
}
