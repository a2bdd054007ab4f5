/* recordings.c -- the formats of recordings; see recording.h. */
#include "trace/recording.h"

#include "base/gzip.h"
#include "base/json.h"
#include "trace/driver.h"

/* ---- plimsoll's own tapes ------------------------------------------------------ */

static bool detect_tape(plim_bytes file)
{
    (void)file; /* what no other format claims: its reader says best what is wrong */
    return true;
}

static plim_status read_tape(plim_recording *r, plim_bytes file, plim_err *err)
{
    r->given = true;
    return plim_tape_parse(&r->tape, file, err);
}

static const plim_recording_format format_tape = {
    .name = "tape", .detect = detect_tape, .read = read_tape};

/* ---- recordings of CUDA's driver -------------------------------------------------- */

static plim_status read_driver(plim_recording *r, plim_bytes file, plim_err *err)
{
    plim_driver_log log;
    plim_status st = plim_driver_read(&log, r->arena, file, err);
    r->given = true;
    return st ? st : plim_driver_tape(&log, &r->tape, err);
}

static const plim_recording_format format_driver = {
    .name = "driver", .detect = plim_driver_detect, .read = read_driver};

static const plim_recording_format *const formats[] = {
    &plim_format_snapshot,
    &format_driver,
    &plim_format_trace,
    &format_tape,
};

/* ---- by their first bytes -------------------------------------------------------- */

enum { LOOKED_AT = 64 << 10 };

/* Of a file that is not all in memory, these bytes are. */
static plim_bytes first_bytes(plim_bytes file)
{
    return (plim_bytes){.p = file.p, .n = PLIM_MIN(file.n, (uint64_t)LOOKED_AT)};
}

static plim_str head_of(plim_bytes file)
{
    const plim_bytes begin = first_bytes(file);
    return (plim_str){(const char *)begin.p, (size_t)begin.n};
}

/* Keys of torch.cuda.memory._snapshot(); nothing else has the first one, or two of the others.
 * src: torch/csrc/cuda/Module.cpp THCPModule_memorySnapshot */
static bool begins_as_snapshot(plim_str head)
{
    static const char *const keys[] = {"segments", "allocator_settings", "total_size",
                                       "segment_type", "allocated_size"};
    enum { PROTO = 0x80, TEXT = ' ' };
    int found = 2 * plim_str_has(head, "device_traces");
    if (head.n < 2 || (uint8_t)head.p[0] != PROTO || (uint8_t)head.p[1] >= TEXT)
        return false;
    for (size_t i = 0; i < PLIM_COUNT(keys); i++)
        found += plim_str_has(head, keys[i]);
    return found > 1;
}

/* An object with the keys of a trace, or a list of events. */
static bool begins_as_trace(plim_str head)
{
    plim_json j;
    plim_str key;
    int marks = 0; /* of Kineto, whose list of events may begin later */
    plim_json_init(&j, head, NULL);
    bool list = plim_json_peek(&j) == PLIM_JSON_ARRAY;
    if (list && (plim_json_array(&j), !plim_json_item(&j)))
        return false;
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (plim_str_is(key, list ? "ph" : "traceEvents"))
            return true;
        marks += !list &&
                 (plim_str_is(key, "schemaVersion") || plim_str_is(key, "deviceProperties"));
        plim_json_skip(&j);
    }
    return marks > 1;
}

static bool begins_as_packed_trace(plim_bytes file)
{
    const plim_str head = head_of(file);
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_gzip g;
    uint64_t got = 0;
    char *text = PLIM_NEW_N(&scratch, char, LOOKED_AT);
    bool trace = text && plim_gzip_is(file) &&
                 !plim_gzip_open(&g, &scratch, (plim_bytes){.p = file.p, .n = head.n}, NULL) &&
                 !plim_gzip_read(&g, text, LOOKED_AT, &got, NULL) &&
                 begins_as_trace((plim_str){text, (size_t)got});
    plim_arena_free(&scratch);
    return trace;
}

/* Whether the first line that is not empty begins as that of a tape. */
static bool begins_as_tape(plim_str head)
{
    while (head.n &&
           (*head.p == ' ' || *head.p == '\t' || *head.p == '\r' || *head.p == '\n')) {
        head.p++;
        head.n--;
    }
    return plim_str_starts(head, "plimsoll-tape");
}

const char *plim_recording_what(plim_bytes file)
{
    const plim_str head = head_of(file);
    if (plim_driver_detect(file))
        return "a recording of the CUDA driver";
    if (begins_as_snapshot(head))
        return "a memory snapshot of PyTorch";
    if (begins_as_trace(head) || begins_as_packed_trace(file))
        return "a trace of torch.profiler";
    return begins_as_tape(head) ? "a tape" : NULL;
}

/* ---- what was live before ------------------------------------------------------ */

static bool add_before(plim_recording *r, uint64_t addr, uint64_t bytes, uint32_t stack,
                       uint16_t stream)
{
    if (!PLIM_GROW_ROOM(r->arena, r->before, r->n_before, r->cap_before))
        return false;
    r->before[r->n_before++] = (plim_recorded_block){.addr = addr,
                                                     .bytes = bytes,
                                                     .requested = bytes,
                                                     .stack = stack,
                                                     .stream = stream,
                                                     .state = PLIM_BLOCK_ALLOCATED};
    r->before_bytes = plim_sat_add(r->before_bytes, bytes);
    return true;
}

enum { GONE, LIVE, PENDING }; /* values of a slot of the map from addresses */

/* One action; what is freed but was never allocated was live before. */
static bool note_action(plim_recording *r, plim_arena *scratch, plim_id_map *m,
                        const plim_action *a)
{
    if (a->kind > PLIM_TRACE_FREE_COMPLETED)
        return true;
    plim_id_slot *s = plim_id_at(scratch, m, a->addr);
    if (!s)
        return false;
    bool known = s->live;
    s->live = true; /* this address has been met */
    if (a->kind == PLIM_TRACE_ALLOC) {
        r->n_gaps += s->value != GONE;
        s->value = LIVE;
    } else if (a->kind == PLIM_TRACE_FREE_REQUESTED) {
        if (!known && !add_before(r, a->addr, a->bytes, 0, a->stream))
            return false;
        r->n_gaps += known && s->value != LIVE;
        s->value = PENDING;
    } else {
        if (!known && !add_before(r, a->addr, a->bytes, 0, a->stream))
            return false;
        r->n_gaps += known && s->value != PENDING;
        s->value = GONE;
    }
    return true;
}

static plim_status find_before(plim_recording *r, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_id_map m = {0};
    bool good = true;
    for (uint32_t i = 0; i < r->n_actions && good; i++)
        good = note_action(r, &scratch, &m, &r->actions[i]);
    for (uint32_t i = 0; i < r->n_segments && good; i++) {
        const plim_recorded_segment *g = &r->segments[i];
        for (uint32_t k = g->first; k < g->first + g->n && good; k++) {
            const plim_recorded_block *b = &r->blocks[k];
            const plim_id_slot *s = plim_id_get(&m, b->addr);
            if (b->state != PLIM_BLOCK_ALLOCATED || (s && s->value == LIVE))
                continue;
            r->n_gaps += s != NULL;
            good = add_before(r, b->addr, b->requested ? b->requested : b->bytes, b->stack,
                              g->stream);
        }
    }
    plim_arena_free(&scratch);
    return good ? PLIM_OK : plim_oom(err);
}

/* What the first counters have beyond the blocks that are known to have been live.  Nothing
 * says how many they are; as a multiple of what a segment is rounded to and a rest, the
 * simulated allocator adds nothing to them. */
static plim_status find_rest(plim_recording *r, plim_err *err)
{
    if (!r->n_counters)
        return PLIM_OK;
    const plim_action *a = &r->actions[0];
    const uint64_t round = 2ull << 20;
    uint64_t held = r->counters[0].allocated, more = r->before_bytes;
    if (a->kind == PLIM_TRACE_ALLOC)
        more += a->bytes;
    else if (a->kind == PLIM_TRACE_FREE_REQUESTED)
        held += a->bytes;
    if (held <= more)
        return PLIM_OK;
    uint32_t name = plim_recording_name(r, PLIM_STR("in use before the trace began"));
    uint32_t frame = plim_recording_frame(r, plim_recording_name(r, PLIM_STR("")), 0, name);
    uint32_t stack = frame == PLIM_NONE ? PLIM_NONE : plim_recording_stack_of(r, &frame, 1);
    uint64_t part[] = {(held - more) / round * round, (held - more) % round};
    r->rest_bytes = held - more;
    for (uint32_t i = 0; i < PLIM_COUNT(part); i++) {
        r->n_rest += part[i] != 0;
        if (stack == PLIM_NONE ||
            (part[i] && !add_before(r, UINT64_MAX - i, part[i], stack, 0)))
            return plim_oom(err);
    }
    return PLIM_OK;
}

/* Counters that move by anything else than the bytes of the action: actions between are
 * missing. */
static void find_jumps(plim_recording *r)
{
    for (uint32_t i = 1; i < r->n_counters; i++) {
        const plim_action *a = &r->actions[i];
        uint64_t was = r->counters[i - 1].allocated, is = r->counters[i].allocated;
        if (a->kind == PLIM_TRACE_ALLOC)
            was += a->bytes;
        else if (a->kind == PLIM_TRACE_FREE_REQUESTED)
            is += a->bytes;
        r->n_gaps += was != is;
    }
}

/* Whether the counters begin like those of an empty allocator: it takes 20 MiB, or 2 MiB, or
 * as much as is needed. */
static bool counts_from_start(const plim_recording *r)
{
    const uint64_t usual = 20ull << 20, round = 2ull << 20;
    uint64_t bytes = r->actions[0].bytes;
    uint64_t most = PLIM_MAX(usual, (bytes + round - 1) / round * round);
    return !r->host && r->actions[0].kind == PLIM_TRACE_ALLOC &&
           r->counters[0].allocated == bytes && r->counters[0].reserved <= most;
}

bool plim_recording_from_start(const plim_recording *r)
{
    uint64_t recorded = 0, held = 0;
    if (r->n_counters)
        return !r->n_before && !r->n_gaps && counts_from_start(r);
    for (uint32_t i = 0; i < r->n_actions; i++) {
        const plim_action *a = &r->actions[i];
        bool more = a->kind == PLIM_TRACE_SEGMENT_ALLOC || a->kind == PLIM_TRACE_SEGMENT_MAP;
        bool less = a->kind == PLIM_TRACE_SEGMENT_FREE || a->kind == PLIM_TRACE_SEGMENT_UNMAP;
        if (less && recorded < a->bytes)
            return false;
        recorded += more ? a->bytes : 0;
        recorded -= less ? a->bytes : 0;
    }
    for (uint32_t i = 0; i < r->n_segments; i++)
        held += r->segments[i].bytes;
    return r->state_known && r->actions_known && !r->n_before && !r->n_gaps &&
           recorded == held;
}

plim_status plim_recording_read(plim_recording *r, plim_arena *a, plim_bytes file,
                                plim_err *err)
{
    const plim_bytes begin = first_bytes(file);
    *r = (plim_recording){.arena = a};
    plim_tape_init(&r->tape, a);
    for (size_t i = 0; i < PLIM_COUNT(formats); i++) {
        if (!formats[i]->detect(begin))
            continue;
        r->format = formats[i]->name;
        if (plim_recording_stack_of(r, NULL, 0) == PLIM_NONE)
            return plim_oom(err);
        plim_status st = formats[i]->asks ? PLIM_OK : plim_bytes_need(file, 0, file.n, err);
        if (!st)
            st = formats[i]->read(r, file, err);
        if (st || r->given)
            return st;
        find_jumps(r);
        PLIM_TRY(find_before(r, err));
        return find_rest(r, err);
    }
    return PLIM_OK; /* not reached: a tape is whatever is nothing else */
}
