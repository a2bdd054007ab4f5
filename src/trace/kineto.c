/* kineto.c -- traces of torch.profiler, as export_chrome_trace and tensorboard_trace_handler
 * write them (Kineto's JSON, plain or in gzip), if profile_memory=True was set.
 *
 *     {"schemaVersion": 1, ..., "traceEvents": [event, ...], "traceName": ...}
 *     [event, ...]                            the older form of Chrome's traces
 *
 * A trace may have gigabytes, and most of its events are not about memory.  So the JSON is
 * read event by event, from a window that moves over the file or what gzip gives, and only two
 * things are kept: each "[memory]" event, and where the ops, annotations and Python functions
 * begin and end, which give it a stack.
 *
 * src: torch/csrc/autograd/profiler_kineto.cpp, 1.8 to 2.13; docs/formats/trace.md */
#include "base/json.h"
#include "base/window.h"
#include "trace/recording.h"

/* ---- what is kept ------------------------------------------------------------- */

typedef struct memory_event {
    int64_t ts; /* nanoseconds */
    uint64_t addr, allocated, reserved;
    int64_t bytes;  /* below 0: a free */
    uint32_t order; /* in the file */
    uint32_t thread;
    uint32_t group; /* the process and device */
    uint32_t stack;
    bool oom, counted; /* counted: has allocated and reserved */
} memory_event;

typedef enum span_kind { SPAN_NONE, SPAN_OP, SPAN_NOTE, SPAN_PYTHON } span_kind;

typedef struct span {
    int64_t ts, end;
    uint32_t thread, name;
} span;

typedef struct span_name {
    plim_str raw;   /* as written, escapes and all */
    uint32_t frame; /* PLIM_NONE: not made yet */
    span_kind kind;
} span_name;

typedef struct group { /* the memory of one device in one process */
    plim_str process;
    int64_t type, id;
    uint32_t n;
} group;

typedef struct reader {
    plim_recording *r;
    plim_arena *a;   /* until the end of the reading */
    plim_arena text; /* until the next label */
    plim_err *err;
    plim_json j;
    bool listed;    /* there is a list of events */
    bool in_events; /* within it */
    plim_window window;

    memory_event *memory;
    span *spans;
    span_name *names;
    group *groups;
    uint32_t n_memory, cap_memory, n_spans, cap_spans, n_names, cap_names, n_groups,
        cap_groups;
    plim_map name_map;
    plim_id_map thread_map;
    uint32_t n_threads;
    uint64_t n_events;
} reader;

/* ---- the window --------------------------------------------------------------- */

enum { LONGEST_WORD = 12 }; /* "\ud83d\ude00" */

/* The reader continues at `at` of the window. */
static void enter_window(reader *t, uint64_t at)
{
    t->j.p = t->window.p;
    t->j.n = t->window.n;
    t->j.base = t->window.base;
    t->j.at = at;
}

/* Moves the window on to byte `from` of it, and makes it longer if that is where it begins. */
static plim_status move_window(reader *t, uint64_t from)
{
    plim_status st = plim_window_move(&t->window, from, t->err);
    enter_window(t, 0);
    return st;
}

/* Whether the reader failed because the text ends, or might have. */
static bool failed_at_end(const plim_json *j) { return j->at + LONGEST_WORD >= j->n; }

/* Lets `parse` read what comes next; if that goes beyond the window, again with more of the
 * file.  *early: it goes beyond the file. */
static plim_status parse_whole(reader *t, plim_status (*parse)(reader *t), bool *early)
{
    for (;;) {
        const plim_json was = t->j;
        plim_err err = PLIM_ERR_INIT;
        t->j.err = &err;
        plim_status st = parse(t);
        if (!st)
            return PLIM_OK;
        bool end = t->j.bad && failed_at_end(&t->j);
        if (!end || !t->window.more) {
            *early = end;
            if (!end && t->err)
                *t->err = err;
            return st;
        }
        t->j = was;
        if ((st = move_window(t, was.at)))
            return st;
    }
}

/* Skips a value.  A number at the end of the window may go on in the next one. */
static plim_status skip_value(reader *t)
{
    bool number = plim_json_peek(&t->j) == PLIM_JSON_NUMBER;
    plim_json_skip(&t->j);
    if (number && t->j.at == t->j.n && t->window.more)
        plim_json_fail(&t->j, PLIM_EFORMAT, "a number ends early");
    return t->j.bad;
}

/* ---- names and threads -------------------------------------------------------- */

static uint64_t hash_text(uint64_t h, plim_str s)
{
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 0x100000001b3ull; /* FNV-1a */
    return (h ^ 0xff) * 0x100000001b3ull;
}

/* The number of a thread, by its ids as written.  If two ever had the same hash, only stacks
 * would suffer. */
static uint32_t find_thread(reader *t, plim_str pid, plim_str tid)
{
    uint64_t id = hash_text(hash_text(0xcbf29ce484222325ull, pid), tid);
    plim_id_slot *s = plim_id_at(t->a, &t->thread_map, id);
    if (!s)
        return PLIM_NONE;
    if (!s->live) {
        s->live = true;
        s->value = t->n_threads++;
    }
    return s->value;
}

static uint32_t find_name(reader *t, plim_str raw, span_kind kind)
{
    uint32_t id;
    if (plim_map_get(&t->name_map, raw, &id))
        return id;
    plim_str kept = plim_arena_str(t->a, raw);
    if (!kept.p || !PLIM_GROW_ROOM(t->a, t->names, t->n_names, t->cap_names) ||
        !plim_map_put(t->a, &t->name_map, kept, t->n_names))
        return PLIM_NONE;
    t->names[t->n_names] = (span_name){.raw = kept, .frame = PLIM_NONE, .kind = kind};
    return t->n_names++;
}

/* ---- one event ------------------------------------------------------------------ */

typedef struct event { /* members that matter, as written; n 0: not there */
    plim_str phase, category, name, pid, tid, ts, dur, args;
    uint64_t at; /* where args begin in the text */
} event;

#define IS(text, literal)                                                                     \
    ((text).n == sizeof(literal) - 1 && !memcmp((text).p, literal, sizeof(literal) - 1))

/* Where a member goes; NULL: it does not matter. */
static plim_str *find_member(event *e, plim_str key)
{
    return IS(key, "ph")     ? &e->phase
           : IS(key, "ts")   ? &e->ts
           : IS(key, "cat")  ? &e->category
           : IS(key, "pid")  ? &e->pid
           : IS(key, "tid")  ? &e->tid
           : IS(key, "dur")  ? &e->dur
           : IS(key, "name") ? &e->name
                             : NULL;
}

static bool is_memory(plim_str name)
{
    return IS(name, "[memory]") || IS(name, "[OutOfMemory]");
}

static void read_members(plim_json *j, event *e)
{
    plim_str key;
    *e = (event){0};
    while (plim_json_member(j, &key)) {
        plim_str *to = find_member(e, key);
        if (to) {
            *to = plim_json_peek(j) == PLIM_JSON_STRING ? plim_json_str(j) : plim_json_raw(j);
        } else if (IS(key, "args") && (!e->name.n || is_memory(e->name))) {
            plim_json_peek(j);
            e->at = j->base + j->at;
            e->args = plim_json_raw(j);
        } else {
            plim_json_skip(j);
        }
    }
}

/* Microseconds with a fraction, as nanoseconds: a double does not hold both today's date and
 * the nanosecond. */
static bool read_time(plim_str s, int64_t *out)
{
    const uint64_t most = INT64_MAX / 4; /* sums of two fit */
    uint64_t v = 0;
    size_t i = 0;
    int digits = -1; /* of the fraction; below 0: not there yet */
    for (; i < s.n && digits < 3; i++) {
        if (s.p[i] == '.' && digits < 0) {
            digits = 0;
            continue;
        }
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (!plim_mul(v, 10, &v) || !plim_add(v, (uint64_t)(s.p[i] - '0'), &v) || v > most)
            return false;
        digits += digits >= 0;
    }
    for (digits = PLIM_MAX(digits, 0); digits < 3; digits++)
        if (!plim_mul(v, 10, &v) || v > most)
            return false;
    *out = (int64_t)v;
    return s.n > 0;
}

/* ---- memory ----------------------------------------------------------------------- */

#define MOST_BYTES ((1ll << 60) - 1)

enum arg { ARG_ADDR, ARG_BYTES, ARG_ALLOCATED, ARG_RESERVED, ARG_TYPE, ARG_ID, ARG_COUNT };

static const struct {
    const char *key;
    int64_t least, most;
} args_read[ARG_COUNT] = {
    [ARG_ADDR] = {"Addr", 0, INT64_MAX - MOST_BYTES},
    [ARG_BYTES] = {"Bytes", -MOST_BYTES, MOST_BYTES},
    [ARG_ALLOCATED] = {"Total Allocated", 0, MOST_BYTES},
    [ARG_RESERVED] = {"Total Reserved", 0, MOST_BYTES},
    [ARG_TYPE] = {"Device Type", -1, 1 << 15},
    [ARG_ID] = {"Device Id", -1, 1 << 15},
};

/* Reads the args that matter into v; bit k of *seen: arg k is there. */
static plim_status read_args(const event *e, int64_t v[ARG_COUNT], uint32_t *seen,
                             plim_err *err)
{
    plim_json j;
    plim_str key;
    *seen = 0;
    plim_json_init(&j, e->args, err);
    j.base = e->at;
    plim_json_object(&j);
    while (!j.bad && plim_json_member(&j, &key)) {
        size_t k = 0;
        while (k < ARG_COUNT && !plim_str_is(key, args_read[k].key))
            k++;
        if (k == ARG_COUNT) {
            plim_json_skip(&j);
            continue;
        }
        v[k] = plim_json_i64(&j);
        *seen |= 1u << k;
        if (!j.bad && (v[k] < args_read[k].least || v[k] > args_read[k].most))
            plim_json_fail(&j, PLIM_EFORMAT,
                           "'%s' of a memory event is %" PRId64 ", not from %" PRId64
                           " to %" PRId64,
                           args_read[k].key, v[k], args_read[k].least, args_read[k].most);
    }
    return j.bad;
}

static plim_status find_group(reader *t, plim_str process, int64_t type, int64_t id,
                              uint32_t *out, plim_err *err)
{
    enum { MOST = 4096 };
    for (uint32_t i = t->n_groups; i-- > 0;) {
        const group *g = &t->groups[i];
        if (g->type == type && g->id == id && plim_str_eq(g->process, process)) {
            *out = i;
            return PLIM_OK;
        }
    }
    if (t->n_groups == MOST)
        return plim_fail(err, PLIM_EUNSUPPORTED, t->j.base + t->j.at,
                         "the trace has more than %d processes and devices", MOST);
    plim_str kept = plim_arena_str(t->r->arena, process);
    if (!kept.p || !PLIM_PUSH_ROOM(t->a, t->groups, t->n_groups, t->cap_groups))
        return plim_oom(err);
    *out = t->n_groups;
    t->groups[t->n_groups++] = (group){.process = kept, .type = type, .id = id};
    return PLIM_OK;
}

static plim_status keep_memory(reader *t, const event *e, plim_err *err)
{
    int64_t v[ARG_COUNT] = {0};
    uint32_t seen;
    memory_event m = {.order = t->n_memory, .oom = plim_str_is(e->name, "[OutOfMemory]")};
    const uint32_t needed = 1u << ARG_BYTES | 1u << ARG_TYPE | 1u << ARG_ID,
                   counters = 1u << ARG_ALLOCATED | 1u << ARG_RESERVED;
    PLIM_TRY(read_args(e, v, &seen, err));
    for (uint32_t k = 0; k < ARG_COUNT; k++)
        if (needed >> k & ~seen >> k & 1)
            return plim_fail(err, PLIM_EFORMAT, e->at,
                             "a memory event has no '%s' at byte %" PRIu64, args_read[k].key,
                             e->at);
    if (!m.oom && !(seen >> ARG_ADDR & 1))
        return plim_fail(err, PLIM_EUNSUPPORTED, e->at,
                         "the memory event at byte %" PRIu64
                         " has no address, as in PyTorch 1.8: its frees cannot be matched",
                         e->at);
    if (!read_time(e->ts, &m.ts))
        return plim_fail(err, PLIM_EFORMAT, e->at,
                         "the memory event at byte %" PRIu64 " has the time '" PLIM_STR_FMT
                         "', not microseconds",
                         e->at, PLIM_STR_CUT(e->ts));
    if (!v[ARG_BYTES])
        return PLIM_OK;
    m.addr = (uint64_t)v[ARG_ADDR];
    m.bytes = v[ARG_BYTES];
    m.allocated = (uint64_t)v[ARG_ALLOCATED];
    m.reserved = (uint64_t)v[ARG_RESERVED];
    m.counted = (seen & counters) == counters;
    m.thread = find_thread(t, e->pid, e->tid);
    PLIM_TRY(find_group(t, e->pid, v[ARG_TYPE], v[ARG_ID], &m.group, err));
    if (m.thread == PLIM_NONE || !PLIM_GROW_ROOM(t->a, t->memory, t->n_memory, t->cap_memory))
        return plim_oom(err);
    t->groups[m.group].n++;
    t->memory[t->n_memory++] = m;
    return PLIM_OK;
}

/* ---- spans ------------------------------------------------------------------------ */

/* What an event with a duration says about those within it.  Functions of Python that are
 * built in tell nothing that the ops do not. */
static span_kind classify_span(const event *e)
{
    if (!IS(e->phase, "X"))
        return SPAN_NONE;
    if (IS(e->category, "cpu_op") || IS(e->category, "Operator"))
        return SPAN_OP;
    if (IS(e->category, "user_annotation"))
        return SPAN_NOTE;
    return IS(e->category, "python_function") && !plim_str_starts(e->name, "<built-in")
               ? SPAN_PYTHON
               : SPAN_NONE;
}

static plim_status keep_span(reader *t, const event *e, span_kind kind, plim_err *err)
{
    int64_t dur;
    span s;
    if (!read_time(e->ts, &s.ts) || !read_time(e->dur, &dur))
        return PLIM_OK; /* of a clock that ran backwards: it encloses nothing */
    s.end = s.ts + dur;
    s.thread = find_thread(t, e->pid, e->tid);
    s.name = find_name(t, e->name, kind);
    if (s.thread == PLIM_NONE || s.name == PLIM_NONE ||
        !PLIM_GROW_ROOM(t->a, t->spans, t->n_spans, t->cap_spans))
        return plim_oom(err);
    t->spans[t->n_spans++] = s;
    return PLIM_OK;
}

/* ---- the file --------------------------------------------------------------------- */

/* The next event of the list, or its end. */
static plim_status parse_event(reader *t)
{
    event e;
    if (!plim_json_item(&t->j)) {
        t->in_events = t->j.bad != PLIM_OK;
        return t->j.bad;
    }
    if (plim_json_peek(&t->j) != PLIM_JSON_OBJECT)
        return skip_value(t);
    plim_json_object(&t->j);
    read_members(&t->j, &e);
    if (t->j.bad)
        return t->j.bad;
    t->n_events++;
    if (is_memory(e.name))
        return keep_memory(t, &e, t->j.err);
    span_kind kind = classify_span(&e);
    return kind ? keep_span(t, &e, kind, t->j.err) : PLIM_OK;
}

/* The next member of the file's object, or its end. */
static plim_status parse_member(reader *t)
{
    plim_str key;
    if (!plim_json_member(&t->j, &key))
        return t->j.bad;
    if (!plim_str_is(key, "traceEvents"))
        return skip_value(t);
    t->listed = t->in_events = plim_json_array(&t->j);
    return t->j.bad;
}

static plim_status parse_opening(reader *t)
{
    if (plim_json_peek(&t->j) == PLIM_JSON_ARRAY)
        t->listed = t->in_events = plim_json_array(&t->j);
    else
        plim_json_object(&t->j);
    return t->j.bad;
}

/* Nothing may follow; gzip checks its sum at the end. */
static plim_status read_rest(reader *t)
{
    for (;;) {
        plim_err err = PLIM_ERR_INIT;
        t->j.err = &err;
        if (plim_json_peek(&t->j) == PLIM_JSON_BAD && t->j.at == t->j.n && t->window.more) {
            PLIM_TRY(move_window(t, t->j.n));
            continue;
        }
        plim_status st = plim_json_end(&t->j);
        if (st && t->err)
            *t->err = err;
        return st;
    }
}

static plim_status read_events(reader *t, plim_bytes file)
{
    bool early = false;
    plim_json_init(&t->j, (plim_str){NULL, 0}, NULL);
    plim_status st = plim_window_open(&t->window, t->a, file, t->err);
    enter_window(t, 0);
    if (!st)
        st = parse_whole(t, parse_opening, &early);
    while (!st && t->j.depth)
        st = parse_whole(t, t->in_events ? parse_event : parse_member, &early);
    if (st && !early) /* wrong in the middle, whether the file was cut or not */
        return st;
    if (!early && !t->window.gzip.cut)
        return read_rest(t);
    t->r->ends_at = t->j.base + t->j.at;
    return t->n_memory ? PLIM_OK
                       : plim_fail(t->err, PLIM_EFORMAT, t->r->ends_at,
                                   "the trace ends early, at byte %" PRIu64
                                   ", before its first memory event",
                                   t->r->ends_at);
}

/* ---- order -------------------------------------------------------------------------- */

/* Of one thread. */
static int compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->ts != y->ts)
        return x->ts < y->ts ? -1 : 1;
    if (x->end != y->end) /* the outer one first */
        return x->end > y->end ? -1 : 1;
    return (x->name > y->name) - (x->name < y->name);
}

static int compare_times(const void *a, const void *b)
{
    const memory_event *x = a, *y = b;
    if (x->ts != y->ts)
        return x->ts < y->ts ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Begins a list of things by thread: counts[k + 1] of thread k become where those of thread k begin. */
static void sum_counts(uint32_t *counts, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        counts[k + 1] += counts[k];
}

/* Spans by thread, then time; *first: where those of each thread begin. */
static bool sort_spans(reader *t, uint32_t **first)
{
    uint32_t *at = PLIM_NEW_N(t->a, uint32_t, t->n_threads + UINT64_C(2));
    span *sorted = PLIM_NEW_N(t->a, span, t->n_spans);
    if (!at || !sorted)
        return false;
    for (uint32_t i = 0; i < t->n_spans; i++)
        at[t->spans[i].thread + 2]++;
    sum_counts(at, t->n_threads + 1);
    for (uint32_t i = 0; i < t->n_spans; i++)
        sorted[at[t->spans[i].thread + 1]++] = t->spans[i];
    t->spans = sorted;
    for (uint32_t k = 0; k < t->n_threads; k++)
        if (!plim_sort_items(sorted + at[k], at[k + 1] - at[k], sizeof *sorted, compare_spans))
            return false;
    *first = at;
    return true;
}

/* Memory events by time, and their numbers by thread, then time. */
static bool sort_memory(reader *t, uint32_t **first, uint32_t **events)
{
    uint32_t *at = PLIM_NEW_N(t->a, uint32_t, t->n_threads + UINT64_C(2));
    uint32_t *list = PLIM_NEW_N(t->a, uint32_t, t->n_memory);
    if (!at || !list ||
        !plim_sort_items(t->memory, t->n_memory, sizeof *t->memory, compare_times))
        return false;
    for (uint32_t i = 0; i < t->n_memory; i++)
        at[t->memory[i].thread + 2]++;
    sum_counts(at, t->n_threads + 1);
    for (uint32_t i = 0; i < t->n_memory; i++)
        list[at[t->memory[i].thread + 1]++] = i;
    *first = at;
    *events = list;
    return true;
}

/* ---- stacks ----------------------------------------------------------------------- */

/* A frame that is only a name. */
static uint32_t make_named(plim_recording *r, plim_str text)
{
    return plim_recording_frame(r, plim_recording_name(r, PLIM_STR("")), 0,
                                plim_recording_name(r, text));
}

/* "train.py(21): forward" as a frame of Python, anything else as a name. */
static uint32_t make_frame(plim_recording *r, plim_str text, span_kind kind)
{
    size_t open = 0, colon = 0;
    int64_t line = 0;
    for (size_t i = text.n; i-- > 0 && !open;) {
        if (text.p[i] == ':' && i && text.p[i - 1] == ')')
            colon = i;
        else if (text.p[i] == '(' && colon)
            open = i;
    }
    for (size_t i = open + 1; open && i + 1 < colon; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || line > INT32_MAX)
            return make_named(r, text);
        line = line * 10 + (text.p[i] - '0');
    }
    if (kind != SPAN_PYTHON || !open || colon + 2 > text.n)
        return make_named(r, text);
    plim_str name = {text.p + colon + 2, text.n - colon - 2};
    return plim_recording_frame(r, plim_recording_name(r, (plim_str){text.p, open}), line,
                                plim_recording_name(r, name));
}

static uint32_t frame_of(reader *t, uint32_t name)
{
    span_name *n = &t->names[name];
    if (n->frame != PLIM_NONE)
        return n->frame;
    plim_str text = plim_json_unescape(t->a, n->raw);
    if (text.p)
        n->frame = make_frame(t->r, text, n->kind);
    return n->frame;
}

/* Without a line of Python, the op that was called says most, and where:
 * "aten::conv2d in my_forward".  `inner`: spans, the innermost first. */
static uint32_t label_op(reader *t, const uint32_t *inner, uint32_t n)
{
    static const char engine[] = "autograd::engine::evaluate_function: ";
    const size_t longest =
        PLIM_FRAME_NAME_MOST; /* with each letter as an escape, such as \u0061 */
    plim_str op = {NULL, 0}, note = {NULL, 0};
    for (uint32_t i = 0; i < n && !note.p; i++) {
        const span_name *s = &t->names[t->spans[inner[i]].name];
        if (s->kind == SPAN_NOTE)
            note = s->raw;
        else if (s->kind == SPAN_OP)
            op = s->raw;
    }
    if (!op.p && !note.p)
        return PLIM_NONE;
    if (op.p && plim_str_starts(op, engine))
        op = (plim_str){op.p + sizeof engine - 1, op.n - (sizeof engine - 1)};
    op.n = PLIM_MIN(op.n, 6 * longest);
    note.n = PLIM_MIN(note.n, 6 * longest);
    plim_arena_reset(&t->text);
    plim_str text = !op.p     ? note
                    : !note.p ? op
                              : plim_arena_printf(&t->text, PLIM_STR_FMT " in " PLIM_STR_FMT,
                                                  PLIM_STR_ARG(op), PLIM_STR_ARG(note));
    text = text.p ? plim_json_unescape(&t->text, text) : text;
    text.n = PLIM_MIN(text.n, longest);
    return text.p ? make_named(t->r, text) : PLIM_NONE;
}

static bool is_python(const plim_recording *r, uint32_t frame)
{
    return r->names[r->frames[frame].file].python;
}

/* The stack of what happens within these spans, which are in the order in which they began. */
static plim_status make_stack(reader *t, const uint32_t *open, uint32_t n, int64_t ts,
                              uint32_t *out)
{
    enum { LOOK_AT = 1024 }; /* spans of a damaged trace may overlap without end */
    uint32_t inner[PLIM_STACK_MOST], frames[PLIM_STACK_MOST], depth = 0;
    for (uint32_t i = n; i-- > 0 && depth < PLIM_STACK_MOST && n - i <= LOOK_AT;) {
        if (t->spans[open[i]].end < ts)
            continue;
        inner[depth] = open[i];
        frames[depth] = frame_of(t, t->spans[open[i]].name);
        if (frames[depth++] == PLIM_NONE)
            return plim_oom(t->err);
    }
    uint32_t known = t->r->n_stacks;
    *out = plim_recording_stack_of(t->r, frames, depth);
    if (*out == PLIM_NONE)
        return plim_oom(t->err);
    plim_stack *s = &t->r->stacks[*out];
    if (*out < known || s->label == PLIM_NONE || is_python(t->r, s->label))
        return PLIM_OK;
    uint32_t label = label_op(t, inner, depth);
    t->r->stacks[*out].label = label != PLIM_NONE ? label : s->label;
    return PLIM_OK;
}

typedef struct span_list { /* that have begun, in that order */
    uint32_t *at;
    uint32_t n, cap;
} span_list;

/* Drops the last ones that have ended. */
static void close_spans(const reader *t, span_list *open, int64_t ts)
{
    while (open->n && t->spans[open->at[open->n - 1]].end < ts)
        open->n--;
}

/* The stacks of memory events of one thread, whose spans are [next, end). */
static plim_status find_thread_stacks(reader *t, const uint32_t *events, uint32_t n_events,
                                      uint32_t next, uint32_t end, span_list *open)
{
    plim_status st = PLIM_OK;
    open->n = 0;
    for (uint32_t i = 0; i < n_events && !st; i++) {
        memory_event *m = &t->memory[events[i]];
        for (; next < end && t->spans[next].ts <= m->ts; next++) {
            close_spans(t, open, t->spans[next].ts);
            if (!PLIM_GROW_ROOM(t->a, open->at, open->n, open->cap))
                return plim_oom(t->err);
            open->at[open->n++] = next;
        }
        close_spans(t, open, m->ts);
        if (m->bytes >= 0) /* who frees is not asked */
            st = make_stack(t, open->at, open->n, m->ts, &m->stack);
    }
    return st;
}

static plim_status find_stacks(reader *t)
{
    uint32_t *spans, *first, *events;
    span_list open = {0};
    plim_status st = PLIM_OK;
    if (!sort_spans(t, &spans) || !sort_memory(t, &first, &events))
        return plim_oom(t->err);
    for (uint32_t k = 0; k < t->n_threads && !st; k++)
        st = find_thread_stacks(t, events + first[k], first[k + 1] - first[k], spans[k],
                                spans[k + 1], &open);
    return st;
}

/* ---- actions ---------------------------------------------------------------------- */

static bool is_host(const group *g) { return g->type <= 0; }

/* The device with the most events; the memory of the CPU only if there is no other. */
static uint32_t choose_group(const reader *t)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < t->n_groups; i++) {
        const group *g = &t->groups[i], *b = &t->groups[best];
        if (is_host(g) != is_host(b) ? is_host(b) : g->n > b->n)
            best = i;
    }
    return best;
}

static bool comes_first(const reader *t, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (is_host(&t->groups[k]) == is_host(&t->groups[i]) &&
            plim_str_eq(t->groups[k].process, t->groups[i].process))
            return false;
    return true;
}

static void count_groups(reader *t, const group *chosen)
{
    plim_recording *r = t->r;
    r->host = is_host(chosen);
    r->device = r->host ? 0 : (uint32_t)PLIM_MAX(chosen->id, 0);
    r->process = chosen->process;
    for (uint32_t i = 0; i < t->n_groups; i++) {
        if (is_host(&t->groups[i]) != r->host)
            continue;
        r->n_processes += comes_first(t, i);
        r->n_devices += plim_str_eq(t->groups[i].process, chosen->process);
    }
}

static bool add_action(reader *t, const plim_action *a, const memory_event *m)
{
    plim_recording *r = t->r;
    if (!PLIM_GROW_ROOM(r->arena, r->counters, r->n_counters, r->cap_counters))
        return false;
    r->counters[r->n_counters++] = (plim_counters){m->allocated, m->reserved};
    return plim_recording_add(r, a);
}

/* One event as actions.  Reserved memory that has become less was released in between. */
static bool add_event(reader *t, const memory_event *m, const memory_event *was)
{
    plim_action a = {.addr = m->oom ? UINT64_MAX : m->addr,
                     .bytes = (uint64_t)(m->bytes < 0 ? -m->bytes : m->bytes),
                     .stack = m->stack,
                     .kind = m->oom ? PLIM_TRACE_OOM : PLIM_TRACE_ALLOC};
    t->r->n_events++;
    if (was && m->counted && m->reserved < was->reserved) {
        plim_action release = {.bytes = was->reserved - m->reserved,
                               .kind = PLIM_TRACE_SEGMENT_FREE};
        if (!add_action(t, &release, was))
            return false;
    }
    if (m->bytes >= 0)
        return add_action(t, &a, m);
    a.kind = PLIM_TRACE_FREE_REQUESTED;
    if (!add_action(t, &a, m))
        return false;
    a.kind = PLIM_TRACE_FREE_COMPLETED;
    return add_action(t, &a, m);
}

static plim_status tell_events(reader *t)
{
    const uint32_t chosen = choose_group(t);
    const memory_event *was = NULL;
    plim_recording *r = t->r;
    bool counted = true;
    count_groups(t, &t->groups[chosen]);
    for (uint32_t i = 0; i < t->n_memory; i++) {
        const memory_event *m = &t->memory[i];
        if (m->group != chosen)
            continue;
        if (!add_event(t, m, was))
            return plim_oom(t->err);
        counted &= m->counted;
        was = m;
    }
    if (!counted) {
        r->counters = NULL;
        r->n_counters = 0;
    }
    r->actions_known = true;
    r->blocks_only = !r->host;
    return PLIM_OK;
}

/* ---- the whole -------------------------------------------------------------------- */

static bool detect_trace(plim_bytes file)
{
    uint64_t i = 0;
    while (i < file.n && strchr(" \t\r\n", file.p[i]) && file.p[i])
        i++;
    return plim_gzip_is(file) || (i < file.n && (file.p[i] == '{' || file.p[i] == '['));
}

static plim_status check_events(const reader *t)
{
    if (t->n_memory)
        return PLIM_OK;
    if (!t->listed)
        return plim_fail(t->err, PLIM_EFORMAT, 0,
                         "JSON, but not a trace of torch.profiler: it has no 'traceEvents'");
    return plim_fail(t->err, PLIM_EFORMAT, 0,
                     "none of the %" PRIu64 " events of the trace is about memory: "
                     "torch.profiler.profile records it with profile_memory=True",
                     t->n_events);
}

static plim_status read_trace(plim_recording *r, plim_bytes file, plim_err *err)
{
    plim_arena scratch = {.limit = r->arena->limit};
    reader t = {.r = r, .a = &scratch, .err = err};
    plim_status st = read_events(&t, file);
    if (!st)
        st = check_events(&t);
    if (!st)
        st = find_stacks(&t);
    if (!st)
        st = tell_events(&t);
    plim_arena_free(&t.text);
    plim_arena_free(&scratch);
    return st;
}

const plim_recording_format plim_format_trace = {
    .name = "trace", .asks = true, .detect = detect_trace, .read = read_trace};
