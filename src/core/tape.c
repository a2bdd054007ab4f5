/* tape.c -- builds, reads, writes and checks tapes: see tape.h. */
#include "core/tape.h"

#include "base/idmap.h"
#include "base/json.h"
#include "base/utf8.h"

/* ---- words --------------------------------------------------------------- */

static const char *const phase_names[PLIM_PHASE_COUNT] = {
    [PLIM_PHASE_LOAD] = "load",           [PLIM_PHASE_INPUTS] = "inputs",
    [PLIM_PHASE_ZERO_GRAD] = "zero_grad", [PLIM_PHASE_FORWARD] = "forward",
    [PLIM_PHASE_LOSS] = "loss",           [PLIM_PHASE_BACKWARD] = "backward",
    [PLIM_PHASE_OPTIMIZER] = "optimizer",
};

static const char *const category_names[PLIM_CAT_COUNT] = {
    [PLIM_CAT_PARAMETER] = "parameter", [PLIM_CAT_BUFFER] = "buffer",
    [PLIM_CAT_GRADIENT] = "gradient",   [PLIM_CAT_OPTIMIZER_STATE] = "optimizer_state",
    [PLIM_CAT_INPUT] = "input",         [PLIM_CAT_ACTIVATION] = "activation",
    [PLIM_CAT_TEMPORARY] = "temporary", [PLIM_CAT_WORKSPACE] = "workspace",
    [PLIM_CAT_OUTPUT] = "output",
};

static const char *const certainty_names[PLIM_CERTAINTY_COUNT] = {
    [PLIM_EXACT] = "exact",
    [PLIM_ESTIMATED] = "estimated",
    [PLIM_UNKNOWN_BYTES] = "unknown",
};

static const char *const event_names[] = {
    [PLIM_EVENT_ALLOC] = "alloc",
    [PLIM_EVENT_FREE] = "free",
    [PLIM_EVENT_RECORD_STREAM] = "record_stream",
    [PLIM_EVENT_STREAM_DONE] = "sync",
    [PLIM_EVENT_EMPTY_CACHE] = "empty_cache",
    [PLIM_EVENT_RESET_PEAK] = "reset_peak",
    [PLIM_EVENT_CONFIG] = "config",
    [PLIM_EVENT_FRACTION] = "fraction",
};
_Static_assert(PLIM_COUNT(event_names) == PLIM_EVENT_FRACTION + 1, "a name for each event");

static const char *name_at(const char *const *names, uint32_t count, uint32_t i)
{
    return i < count ? names[i] : "?";
}

const char *plim_phase_name(plim_phase p)
{
    return name_at(phase_names, PLIM_PHASE_COUNT, (uint32_t)p);
}
const char *plim_category_name(plim_category c)
{
    return name_at(category_names, PLIM_CAT_COUNT, (uint32_t)c);
}
const char *plim_certainty_name(plim_certainty c)
{
    return name_at(certainty_names, PLIM_CERTAINTY_COUNT, (uint32_t)c);
}

/* ---- builder ------------------------------------------------------------- */

void plim_tape_init(plim_tape *t, plim_arena *a) { *t = (plim_tape){.arena = a}; }

void plim_tape_expect(plim_tape *t, uint32_t storages)
{
    enum { A_MARK = 4 }; /* typical number of storages between two marks */
    if (t->n_storages || t->n_events || t->n_marks || storages > UINT32_MAX / 2)
        return;
    plim_storage *s = PLIM_NEW_N(t->arena, plim_storage, storages);
    plim_event *e = PLIM_NEW_N(t->arena, plim_event, storages * 2);
    plim_mark *m = PLIM_NEW_N(t->arena, plim_mark, storages / A_MARK);
    if (!s || !e || !m)
        return;
    t->storages = s;
    t->cap_storages = storages;
    t->events = e;
    t->cap_events = storages * 2;
    t->marks = m;
    t->cap_marks = storages / A_MARK;
}

bool plim_tape_mark(plim_tape *t, int32_t step, plim_phase phase, plim_str op)
{
    if (!PLIM_PUSH_ROOM(t->arena, t->marks, t->n_marks, t->cap_marks))
        return false;
    plim_assert(step >= -1 && phase < PLIM_PHASE_COUNT);
    t->marks[t->n_marks++] =
        (plim_mark){.first = t->n_events, .step = step, .phase = (uint8_t)phase, .op = op};
    return true;
}

bool plim_tape_event(plim_tape *t, plim_event e)
{
    plim_assert(e.kind != PLIM_EVENT_ALLOC || e.stream != PLIM_ALL_STREAMS);
    plim_assert(e.kind <= PLIM_EVENT_FRACTION);
    if (!PLIM_PUSH_ROOM(t->arena, t->events, t->n_events, t->cap_events))
        return false;
    plim_assert((e.kind != PLIM_EVENT_FREE && e.kind != PLIM_EVENT_RECORD_STREAM) ||
                e.id < t->n_storages);
    t->waits |= e.kind == PLIM_EVENT_RECORD_STREAM;
    t->events[t->n_events++] = e;
    return true;
}

uint32_t plim_tape_alloc(plim_tape *t, const plim_storage *s)
{
    plim_assert(!s->high || (s->low <= s->bytes && s->bytes <= s->high));
    uint32_t id = t->n_storages;
    if (!PLIM_PUSH_ROOM(t->arena, t->storages, t->n_storages, t->cap_storages) ||
        !plim_tape_event(t, (plim_event){.id = id, .kind = PLIM_EVENT_ALLOC}))
        return PLIM_NONE;
    plim_assert(s->category < PLIM_CAT_COUNT && s->certainty < PLIM_CERTAINTY_COUNT);
    t->storages[id] = *s;
    t->storages[id].ext_id = (uint64_t)id + 1;
    if (t->bound != PLIM_BOUND_USUAL) {
        t->storages[id].bytes = plim_storage_bytes(s, t->bound);
        t->storages[id].low = t->storages[id].high = 0;
    }
    t->n_storages++;
    return id;
}

bool plim_tape_free_storage(plim_tape *t, uint32_t storage)
{
    return plim_tape_event(t, (plim_event){.id = storage, .kind = PLIM_EVENT_FREE});
}

bool plim_tape_config(plim_tape *t, plim_str conf)
{
    if (!PLIM_PUSH_ROOM(t->arena, t->configs, t->n_configs, t->cap_configs) ||
        !plim_tape_event(t, (plim_event){.id = t->n_configs, .kind = PLIM_EVENT_CONFIG}))
        return false;
    t->configs[t->n_configs++] = conf;
    return true;
}

/* ---- reader: one line ---------------------------------------------------- */

typedef struct reader {
    plim_tape *t;
    plim_err *err;
    plim_str text, line; /* the rest of the line */
    size_t at;           /* offset of the line */
    uint32_t number;
    plim_id_map ids; /* of the file -> the last storage that had it */
} reader;

/* Keeps error messages short if a binary file is passed as a tape. */
#define SHOWN(s) (int)PLIM_MIN((s).n, 40), (s).p

#define READER_FAIL(r, ...)                                                                   \
    (plim_fail((r)->err, PLIM_EFORMAT, (r)->at, __VA_ARGS__),                                 \
     plim_err_prefix((r)->err, "line %" PRIu32 ": ", (r)->number), PLIM_EFORMAT)

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The next word of the line; n == 0 at its end or at a comment. */
static plim_str next_word(reader *r)
{
    plim_str *s = &r->line;
    while (s->n && is_space(*s->p))
        *s = (plim_str){s->p + 1, s->n - 1};
    plim_str w = {s->p, 0};
    while (w.n < s->n && !is_space(s->p[w.n]) && s->p[w.n] != '#')
        w.n++;
    *s = (plim_str){s->p + w.n, s->n - w.n};
    if (!w.n)
        s->n = 0;
    return w;
}

/* A binary file may have gigabytes without a line end: the search for one is bounded. */
enum { LONGEST_LINE = 1 << 20 };

/* A longer line is cut, one byte above the limit. */
static bool next_line(reader *r)
{
    if (r->at >= r->text.n)
        return false;
    const char *p = r->text.p + r->at;
    size_t n = PLIM_MIN(r->text.n - r->at, (size_t)LONGEST_LINE + 1);
    const char *end = memchr(p, '\n', n);
    r->line = (plim_str){p, end ? (size_t)(end - p) : n};
    r->number++;
    return true;
}

static bool all_digits(plim_str w, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < w.n; i++)
        if (w.p[i] < '0' || w.p[i] > '9' || !plim_mul(v, 10, &v) ||
            !plim_add(v, (uint64_t)(w.p[i] - '0'), &v))
            return false;
    *out = v;
    return w.n > 0;
}

/* A number up to `max`; `what` names it in the error. */
static plim_status read_number(reader *r, plim_str w, const char *what, uint64_t max,
                               uint64_t *out)
{
    if (!w.n)
        return READER_FAIL(r, "missing %s", what);
    if (!all_digits(w, out))
        return READER_FAIL(r, "'%.*s' is not a valid %s", SHOWN(w), what);
    if (*out > max)
        return READER_FAIL(r, "%s %" PRIu64 " is over the limit of %" PRIu64, what, *out, max);
    return PLIM_OK;
}

static plim_status read_word(reader *r, plim_str w, const char *what, const char *const *names,
                             uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++)
        if (plim_str_is(w, names[i])) {
            *out = (uint8_t)i;
            return PLIM_OK;
        }
    if (!w.n)
        return READER_FAIL(r, "missing %s", what);
    return READER_FAIL(r, "unknown %s '%.*s'", what, SHOWN(w));
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A copy with %XX decoded. */
static plim_status read_name(reader *r, plim_str w, plim_str *out)
{
    char *p = plim_arena_new(r->t->arena, (uint64_t)w.n + 1, 1);
    if (!p)
        return plim_oom(r->err);
    *out = (plim_str){p, 0};
    for (size_t i = 0; i < w.n; i++) {
        char c = w.p[i];
        if (c == '%') {
            int hi = i + 2 < w.n ? hex_digit(w.p[i + 1]) : -1;
            int lo = i + 2 < w.n ? hex_digit(w.p[i + 2]) : -1;
            if (hi < 0 || lo < 0)
                return READER_FAIL(r, "'%%' in '%.*s' is not followed by two hex digits",
                                   SHOWN(w));
            c = (char)(hi << 4 | lo);
            i += 2;
        }
        p[out->n++] = c;
    }
    return PLIM_OK;
}

static plim_status read_end(reader *r)
{
    plim_str w = next_word(r);
    return w.n ? READER_FAIL(r, "unexpected '%.*s'", SHOWN(w)) : PLIM_OK;
}

/* "stream=3": true if w is KEY=..., with the text after '=' in *value. */
static bool is_attribute(plim_str w, const char *key, plim_str *value)
{
    size_t n = strlen(key);
    if (!plim_str_starts(w, key) || w.n <= n || w.p[n] != '=')
        return false;
    *value = (plim_str){w.p + n + 1, w.n - n - 1};
    return true;
}

static plim_status read_stream(reader *r, plim_str w, uint16_t *out)
{
    uint64_t v = 0;
    plim_status st = read_number(r, w, "stream", PLIM_ALL_STREAMS - 1, &v);
    if (!st)
        *out = (uint16_t)v;
    return st;
}

/* ---- reader: lines ------------------------------------------------------- */

/* + ID BYTES [CATEGORY [NAME]] [stream=N] [certainty=WORD] [low=N] [high=N] */
static plim_status read_alloc(reader *r)
{
    plim_storage s = {.category = PLIM_CAT_TEMPORARY};
    uint64_t id = 0;
    uint16_t stream = 0;
    int bare = 0;
    plim_status st = read_number(r, next_word(r), "id", UINT64_MAX, &id);
    if (st)
        return st;
    plim_str w = next_word(r), value;
    if (!all_digits(w, &s.bytes)) { /* accepts "4MiB", as people write it */
        plim_err why = PLIM_ERR_INIT;
        if (!w.n)
            return READER_FAIL(r, "missing size");
        if (plim_parse_size(w, &s.bytes, &why))
            return READER_FAIL(r, "%s", why.msg);
    }
    for (w = next_word(r); w.n && !st; w = next_word(r)) {
        if (is_attribute(w, "stream", &value))
            st = read_stream(r, value, &stream);
        else if (is_attribute(w, "certainty", &value))
            st = read_word(r, value, "certainty", certainty_names, PLIM_CERTAINTY_COUNT,
                           &s.certainty);
        else if (is_attribute(w, "low", &value))
            st = read_number(r, value, "low", UINT64_MAX, &s.low);
        else if (is_attribute(w, "high", &value))
            st = read_number(r, value, "high", UINT64_MAX, &s.high);
        else if (memchr(w.p, '=', w.n) || bare == 2)
            st = READER_FAIL(r, "unexpected '%.*s'", SHOWN(w));
        else if (bare++ == 0)
            st = read_word(r, w, "category", category_names, PLIM_CAT_COUNT, &s.category);
        else
            st = read_name(r, w, &s.name);
    }
    if (st)
        return st;
    if ((s.low || s.high) && (s.low > s.bytes || s.bytes > s.high))
        return READER_FAIL(
            r, "%" PRIu64 " bytes are not between low=%" PRIu64 " and high=%" PRIu64, s.bytes,
            s.low, s.high);
    plim_id_slot *slot = plim_id_at(r->t->arena, &r->ids, id);
    if (!slot)
        return plim_oom(r->err);
    if (slot->live)
        return READER_FAIL(r, "id '%" PRIu64 "' is already allocated", id);
    uint32_t storage = plim_tape_alloc(r->t, &s);
    if (storage == PLIM_NONE)
        return plim_oom(r->err);
    r->t->storages[storage].ext_id = id;
    r->t->events[r->t->n_events - 1].stream = stream;
    slot->value = storage;
    slot->live = true;
    return PLIM_OK;
}

/* Reads the id of a live storage; its slot goes to *slot. */
static plim_status read_live(reader *r, const char *verb, plim_id_slot **slot)
{
    uint64_t id = 0;
    PLIM_TRY(read_number(r, next_word(r), "id", UINT64_MAX, &id));
    *slot = plim_id_get(&r->ids, id);
    if (!*slot)
        return READER_FAIL(r, "%s of '%" PRIu64 "', which was never allocated", verb, id);
    if (!(*slot)->live)
        return READER_FAIL(r, "%s of '%" PRIu64 "', which is already freed", verb, id);
    return PLIM_OK;
}

/* - ID */
static plim_status read_free(reader *r)
{
    plim_id_slot *slot = NULL;
    PLIM_TRY(read_live(r, "free", &slot));
    slot->live = false;
    return plim_tape_free_storage(r->t, slot->value) ? read_end(r) : plim_oom(r->err);
}

/* r ID stream=N */
static plim_status read_record(reader *r)
{
    plim_id_slot *slot = NULL;
    plim_event e = {.kind = PLIM_EVENT_RECORD_STREAM};
    plim_str value = {NULL, 0};
    PLIM_TRY(read_live(r, "record_stream", &slot));
    if (!is_attribute(next_word(r), "stream", &value))
        return READER_FAIL(r, "missing stream=N");
    PLIM_TRY(read_stream(r, value, &e.stream));
    e.id = slot->value;
    return plim_tape_event(r->t, e) ? read_end(r) : plim_oom(r->err);
}

/* "0.25", "1", in units of 1 / PLIM_FRACTION_ONE; 0 and values above 1 are rejected. */
static plim_status read_fraction(reader *r, plim_str w, uint32_t *out)
{
    double v;
    if (!plim_parse_double(w, &v) || !(v > 0 && v <= 1))
        return READER_FAIL(r, "'%.*s' is not a number above 0 and at most 1", SHOWN(w));
    *out = PLIM_MAX((uint32_t)(v * PLIM_FRACTION_ONE + 0.5), 1);
    return PLIM_OK;
}

/* ! empty_cache | reset_peak | sync [stream=N] | fraction X | config KEY:VALUE,... */
static plim_status read_bang(reader *r)
{
    plim_str w = next_word(r), value, conf;
    plim_event e = {.kind = PLIM_EVENT_EMPTY_CACHE};
    plim_status st = PLIM_OK;
    if (plim_str_is(w, "config")) {
        st = read_name(r, next_word(r), &conf);
        if (!st && !plim_tape_config(r->t, conf))
            st = plim_oom(r->err);
        return st ? st : read_end(r);
    }
    if (plim_str_is(w, "reset_peak")) {
        e.kind = PLIM_EVENT_RESET_PEAK;
    } else if (plim_str_is(w, "sync")) {
        e = (plim_event){.kind = PLIM_EVENT_STREAM_DONE, .stream = PLIM_ALL_STREAMS};
        reader ahead = *r;
        if (is_attribute(next_word(&ahead), "stream", &value)) {
            st = read_stream(r, value, &e.stream);
            next_word(r);
        }
    } else if (plim_str_is(w, "fraction")) {
        e.kind = PLIM_EVENT_FRACTION;
        st = read_fraction(r, next_word(r), &e.id);
    } else if (!plim_str_is(w, "empty_cache")) {
        return READER_FAIL(r, "unknown event '%.*s'", SHOWN(w));
    }
    if (!st && !plim_tape_event(r->t, e))
        st = plim_oom(r->err);
    return st ? st : read_end(r);
}

/* @ STEP PHASE [OP], where STEP is a number, or -1 or "load" for the time before step 0 */
static plim_status read_mark(reader *r)
{
    plim_str w = next_word(r), op = {NULL, 0};
    uint64_t step = 0;
    uint8_t phase = 0;
    bool load = plim_str_is(w, "load") || plim_str_is(w, "-1");
    plim_status st = load ? PLIM_OK : read_number(r, w, "step", INT32_MAX, &step);
    if (!st)
        st = read_word(r, next_word(r), "phase", phase_names, PLIM_PHASE_COUNT, &phase);
    if (st)
        return st;
    w = next_word(r);
    if (w.n)
        st = read_name(r, w, &op);
    if (!st && !plim_tape_mark(r->t, load ? -1 : (int32_t)step, (plim_phase)phase, op))
        st = plim_oom(r->err);
    return st ? st : read_end(r);
}

static plim_status read_line(reader *r)
{
    static const struct {
        char sign;
        plim_status (*read)(reader *r);
    } lines[] = {
        {'+', read_alloc}, {'-', read_free},   {'@', read_mark},
        {'!', read_bang},  {'r', read_record},
    };
    plim_str w = next_word(r); /* there is one: empty lines are handled before */
    for (size_t i = 0; i < PLIM_COUNT(lines); i++)
        if (w.n == 1 && w.p[0] == lines[i].sign)
            return lines[i].read(r);
    return READER_FAIL(r, "unknown line type '%.*s': expected +, -, @, ! or r", SHOWN(w));
}

static plim_status read_header(reader *r)
{
    plim_str name = next_word(r), version = next_word(r);
    if (!plim_str_is(name, "plimsoll-tape"))
        return READER_FAIL(r, "not a tape: the first line must be 'plimsoll-tape 1'");
    if (!plim_str_is(version, "1"))
        return READER_FAIL(r, "unsupported tape version '%.*s': known is 1", SHOWN(version));
    return read_end(r);
}

plim_status plim_tape_parse(plim_tape *t, plim_bytes text, plim_err *err)
{
    reader r = {.t = t, .err = err, .text = {(const char *)text.p, (size_t)text.n}};
    plim_status st = PLIM_OK;
    bool header = false;
    if (text.n > SIZE_MAX)
        return plim_oom(err);
    while (!st && next_line(&r)) {
        size_t next = r.at + r.line.n + 1;
        bool cut = r.line.n > LONGEST_LINE;
        reader ahead = r;
        if (!cut && !next_word(&ahead).n) {
            r.at = next;
            continue;
        }
        st = header ? read_line(&r) : read_header(&r);
        if (!st && cut)
            st = READER_FAIL(&r, "the line is over the limit of %d bytes", LONGEST_LINE);
        header = true;
        r.at = next;
    }
    if (!st && !header)
        st = plim_fail(err, PLIM_EFORMAT, 0,
                       "not a tape: the first line must be 'plimsoll-tape 1'");
    return st;
}

/* ---- writer: text -------------------------------------------------------- */

/* Lines are built in one buffer of the tape's arena and passed on one by one. */
typedef struct writer {
    const plim_tape *t;
    plim_buf line;
    plim_put put;
    void *ud;
    plim_status st; /* of the first failure: nothing is written after it */
    plim_err *err;
} writer;

static void writer_flush(writer *w)
{
    if (!w->st && w->line.bad)
        w->st = plim_oom(w->err);
    if (!w->st)
        w->st = plim_put_out(w->put, w->ud, plim_buf_str(&w->line), w->err);
    w->line.n = 0;
}

/* Bytes that would break the line grammar, or that no terminal shows, are written as %XX: spaces, '#', '%'
 * and '=', control characters, what is not UTF-8. */
static void put_name(plim_buf *b, plim_str s)
{
    for (size_t i = 0, n; i < s.n; i += n) {
        plim_str rest = {s.p + i, s.n - i};
        uint32_t c = plim_utf8_decode(rest, &n);
        bool plain = plim_utf8_shows(c) && !(c < 0x80 && strchr(" #%=", (int)c));
        if (plain)
            plim_buf_add(b, (plim_str){rest.p, n});
        for (size_t k = 0; k < n && !plain; k++)
            plim_buf_printf(b, "%%%02x", (uint8_t)rest.p[k]);
    }
}

/* NAME.ROLE; either may be missing. */
static void put_storage_name(plim_buf *b, const plim_storage *s, bool escape)
{
    plim_str role = plim_str_of(s->role ? s->role : "");
    void (*put)(plim_buf *, plim_str) = escape ? put_name : plim_buf_add;
    put(b, s->name);
    if (role.n) {
        plim_buf_puts(b, s->name.n ? "." : "");
        put(b, role);
    }
}

static void write_alloc(plim_buf *b, const plim_storage *s, uint16_t stream)
{
    plim_buf_printf(b, "+ %" PRIu64 " %" PRIu64 " %s", s->ext_id, s->bytes,
                    plim_category_name((plim_category)s->category));
    if (s->name.n || s->role) {
        plim_buf_puts(b, " ");
        put_storage_name(b, s, true);
    }
    if (stream)
        plim_buf_printf(b, " stream=%u", stream);
    if (s->certainty != PLIM_EXACT)
        plim_buf_printf(b, " certainty=%s", plim_certainty_name((plim_certainty)s->certainty));
    if (s->high)
        plim_buf_printf(b, " low=%" PRIu64 " high=%" PRIu64, s->low, s->high);
}

static void write_event(writer *w, const plim_event *e)
{
    plim_buf *b = &w->line;
    switch ((plim_event_kind)e->kind) {
    case PLIM_EVENT_ALLOC: write_alloc(b, &w->t->storages[e->id], e->stream); break;
    case PLIM_EVENT_FREE:
        plim_buf_printf(b, "- %" PRIu64, w->t->storages[e->id].ext_id);
        break;
    case PLIM_EVENT_RECORD_STREAM:
        plim_buf_printf(b, "r %" PRIu64 " stream=%u", w->t->storages[e->id].ext_id, e->stream);
        break;
    case PLIM_EVENT_STREAM_DONE:
        plim_buf_puts(b, "! sync");
        if (e->stream != PLIM_ALL_STREAMS)
            plim_buf_printf(b, " stream=%u", e->stream);
        break;
    case PLIM_EVENT_EMPTY_CACHE:
    case PLIM_EVENT_RESET_PEAK: plim_buf_printf(b, "! %s", event_names[e->kind]); break;
    case PLIM_EVENT_CONFIG:
        plim_buf_puts(b, w->t->configs[e->id].n ? "! config " : "! config");
        put_name(b, w->t->configs[e->id]);
        break;
    case PLIM_EVENT_FRACTION:
        plim_buf_printf(b, "! fraction %s",
                        plim_fmt_double((double)e->id / PLIM_FRACTION_ONE).s);
        break;
    }
    plim_buf_puts(b, "\n");
    writer_flush(w);
}

static void write_mark(writer *w, const plim_mark *m)
{
    plim_buf_printf(&w->line, "@ %" PRId32 " %s", m->step,
                    plim_phase_name((plim_phase)m->phase));
    if (m->op.n) {
        plim_buf_puts(&w->line, " ");
        put_name(&w->line, m->op);
    }
    plim_buf_puts(&w->line, "\n");
    writer_flush(w);
}

plim_status plim_tape_write(const plim_tape *t, plim_put put, void *ud, plim_err *err)
{
    writer w = {.t = t, .put = put, .ud = ud, .err = err};
    uint32_t mark = 0;
    plim_buf_init(&w.line, t->arena);
    plim_buf_puts(&w.line, "plimsoll-tape 1\n");
    writer_flush(&w);
    for (uint32_t i = 0; i <= t->n_events && !w.st; i++) {
        while (mark < t->n_marks && t->marks[mark].first <= i)
            write_mark(&w, &t->marks[mark++]);
        if (i < t->n_events)
            write_event(&w, &t->events[i]);
    }
    return w.st;
}

/* ---- writer: JSON lines -------------------------------------------------- */

static void json_storage(writer *w, plim_jw *j, plim_buf *name, const plim_event *e)
{
    const plim_storage *s = &w->t->storages[e->id];
    plim_jw_key(j, "id");
    plim_jw_u64(j, s->ext_id);
    if (e->kind == PLIM_EVENT_RECORD_STREAM)
        return;
    plim_jw_key(j, "bytes");
    plim_jw_u64(j, s->bytes);
    if (e->kind == PLIM_EVENT_FREE)
        return;
    name->n = 0;
    put_storage_name(name, s, false);
    plim_jw_key(j, "category");
    plim_jw_cstr(j, plim_category_name((plim_category)s->category));
    plim_jw_key(j, "certainty");
    plim_jw_cstr(j, plim_certainty_name((plim_certainty)s->certainty));
    if (s->high) {
        plim_jw_key(j, "low");
        plim_jw_u64(j, s->low);
        plim_jw_key(j, "high");
        plim_jw_u64(j, s->high);
    }
    plim_jw_key(j, "name");
    plim_jw_str(j, plim_buf_str(name));
}

static void json_event(writer *w, plim_buf *name, const plim_mark *m, const plim_event *e)
{
    plim_jw j;
    plim_jw_init(&j, &w->line);
    plim_jw_object(&j);
    plim_jw_key(&j, "event");
    plim_jw_cstr(&j, event_names[e->kind]);
    if (e->kind <= PLIM_EVENT_RECORD_STREAM)
        json_storage(w, &j, name, e);
    if (e->kind == PLIM_EVENT_CONFIG) {
        plim_jw_key(&j, "config");
        plim_jw_str(&j, w->t->configs[e->id]);
    } else if (e->kind == PLIM_EVENT_FRACTION) {
        plim_jw_key(&j, "fraction");
        plim_jw_f64(&j, (double)e->id / PLIM_FRACTION_ONE);
    }
    bool one_stream = e->kind == PLIM_EVENT_ALLOC || e->kind == PLIM_EVENT_RECORD_STREAM ||
                      (e->kind == PLIM_EVENT_STREAM_DONE && e->stream != PLIM_ALL_STREAMS);
    if (one_stream) {
        plim_jw_key(&j, "stream");
        plim_jw_u64(&j, e->stream);
    }
    plim_jw_key(&j, "step");
    plim_jw_i64(&j, m->step);
    plim_jw_key(&j, "phase");
    plim_jw_cstr(&j, plim_phase_name((plim_phase)m->phase));
    plim_jw_key(&j, "op");
    plim_jw_str(&j, m->op);
    plim_jw_end(&j);
    plim_buf_puts(&w->line, "\n");
    writer_flush(w);
}

plim_status plim_tape_write_json(const plim_tape *t, plim_put put, void *ud, plim_err *err)
{
    writer w = {.t = t, .put = put, .ud = ud, .err = err};
    plim_mark before = {.step = -1, .phase = PLIM_PHASE_LOAD};
    const plim_mark *at = &before;
    plim_buf name;
    uint32_t mark = 0;
    plim_buf_init(&w.line, t->arena);
    plim_buf_init(&name, t->arena);
    for (uint32_t i = 0; i < t->n_events && !w.st; i++) {
        while (mark < t->n_marks && t->marks[mark].first <= i)
            at = &t->marks[mark++];
        json_event(&w, &name, at, &t->events[i]);
    }
    return w.st ? w.st : name.bad ? plim_oom(err) : PLIM_OK;
}

/* ---- checker ------------------------------------------------------------- */

static const char *check_marks(const plim_tape *t)
{
    for (uint32_t i = 0; i < t->n_marks; i++) {
        const plim_mark *m = &t->marks[i];
        if (m->first > t->n_events || (i && m->first < m[-1].first))
            return "marks do not ascend";
        if (m->phase >= PLIM_PHASE_COUNT || m->step < -1)
            return "a mark has a step or phase that does not exist";
    }
    return NULL;
}

/* Storages are numbered in the order of their allocs, so "allocated once" needs no table;
 * "freed once" does. */
static const char *check_event(const plim_tape *t, const plim_event *e, uint8_t *freed,
                               uint32_t *allocs)
{
    switch ((plim_event_kind)e->kind) {
    case PLIM_EVENT_ALLOC:
        if (e->stream == PLIM_ALL_STREAMS)
            return "an alloc on a stream that does not exist";
        return e->id == (*allocs)++ ? NULL : "storages are not in the order of their allocs";
    case PLIM_EVENT_FREE:
    case PLIM_EVENT_RECORD_STREAM:
        if (e->id >= *allocs)
            return "a storage is used before its alloc";
        if (freed[e->id])
            return "a storage is used after its free";
        freed[e->id] = e->kind == PLIM_EVENT_FREE;
        return NULL;
    case PLIM_EVENT_CONFIG: return e->id < t->n_configs ? NULL : "a config does not exist";
    case PLIM_EVENT_FRACTION:
        return e->id && e->id <= PLIM_FRACTION_ONE ? NULL : "a fraction is not in (0, 1]";
    case PLIM_EVENT_STREAM_DONE:
    case PLIM_EVENT_EMPTY_CACHE:
    case PLIM_EVENT_RESET_PEAK: return NULL;
    }
    return "an event of no known kind";
}

uint64_t plim_tape_live_most(const plim_tape *t, plim_bound b)
{
    uint64_t live = 0, most = 0;
    for (uint32_t i = 0; i < t->n_events; i++) {
        const plim_event *e = &t->events[i];
        plim_assert(e->kind != PLIM_EVENT_FREE ||
                    live >= plim_storage_bytes(&t->storages[e->id], b));
        if (e->kind == PLIM_EVENT_FREE)
            live -= plim_storage_bytes(&t->storages[e->id], b);
        if (e->kind != PLIM_EVENT_ALLOC)
            continue;
        if (!plim_add(live, plim_storage_bytes(&t->storages[e->id], b), &live))
            return UINT64_MAX;
        most = PLIM_MAX(most, live);
    }
    return most;
}

const char *plim_tape_check(const plim_tape *t)
{
    uint8_t *freed = PLIM_NEW_N(t->arena, uint8_t, t->n_storages);
    const char *wrong = freed ? check_marks(t) : "there is no memory to check it";
    uint32_t allocs = 0;
    for (uint32_t i = 0; i < t->n_storages && !wrong; i++)
        if (t->storages[i].category >= PLIM_CAT_COUNT ||
            t->storages[i].certainty >= PLIM_CERTAINTY_COUNT)
            wrong = "a storage has a category or certainty that does not exist";
    for (uint32_t i = 0; i < t->n_events && !wrong; i++)
        wrong = check_event(t, &t->events[i], freed, &allocs);
    return !wrong && allocs != t->n_storages ? "a storage is never allocated" : wrong;
}
