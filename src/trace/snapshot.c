/* snapshot.c -- PyTorch's CUDA memory snapshots: pickles of torch.cuda.memory._snapshot(), as
 * _dump_snapshot writes them, of every version so far.
 *
 *     {"segments": [...], "device_traces": [[action, ...], ...], "allocator_settings": ...}
 *     [segment, ...]                          without actions: 1.13, memory_snapshot()
 *
 * A snapshot may have gigabytes.  So frames, actions, blocks and segments are taken out of the
 * pickle one by one, as soon as each is complete, and only what a recording keeps of them
 * remains.  Blocks come before the segment that they belong to, and all blocks of many
 * segments before the first of these: a list of blocks has the number of its group as its
 * meaning until its segment comes.  So has the history of a block.
 *
 * src: torch/csrc/cuda/Module.cpp and torch/cuda/memory.py, 1.13 to 2.13;
 * docs/formats/snapshot.md */
#include <stdlib.h>

#include "base/pickle.h"
#include "trace/recording.h"

/* ---- dicts ------------------------------------------------------------------ */

/* The keys that matter.  The first group says what a dict is. */
#define KEYS(X)                                                                               \
    X(action)                                                                                 \
    X(filename)                                                                               \
    X(state)                                                                                  \
    X(total_size)                                                                             \
    X(real_size)                                                                              \
    X(addr)                                                                                   \
    X(address)                                                                                \
    X(size)                                                                                   \
    X(stream)                                                                                 \
    X(requested_size)                                                                         \
    X(frames)                                                                                 \
    X(history)                                                                                \
    X(pool_id)                                                                                \
    X(segment_pool_id)                                                                        \
    X(device_free)                                                                            \
    X(line)                                                                                   \
    X(name)                                                                                   \
    X(device)                                                                                 \
    X(segment_type)                                                                           \
    X(is_expandable)                                                                          \
    X(blocks)

typedef enum key {
#define ENUM(k) KEY_##k,
    KEYS(ENUM)
#undef ENUM
        KEY_COUNT
} key;

static const char *const key_names[] = {
#define NAME(k) #k,
    KEYS(NAME)
#undef NAME
};

typedef struct entry { /* values by key; absent: the dict does not have it */
    plim_pickle_value v[KEY_COUNT];
    uint32_t seen; /* bit k: has key k */
} entry;

static const struct {
    const char *name;
    uint8_t state;
} states[] = {{"active_allocated", PLIM_BLOCK_ALLOCATED},
              {"active_pending_free", PLIM_BLOCK_PENDING},
              {"active_awaiting_free", PLIM_BLOCK_PENDING},
              {"inactive", PLIM_BLOCK_FREE}};

/* What words mean, in the order of their numbers: keys, actions, states. */
enum {
    FIRST_ACTION = KEY_COUNT,
    FIRST_STATE = FIRST_ACTION + PLIM_TRACE_ACTIONS,
    MEANS_NOTHING = FIRST_STATE + PLIM_COUNT(states)
};

/* Of the meanings of a word (base/pickle.h), each plus one. */
enum { AS_WORD, AS_NAME };

typedef struct trace_list { /* the actions of one device, while they come */
    const plim_pickle_node *list;
    uint32_t first;
} trace_list;

typedef struct group { /* the blocks of a segment, or the history of a block */
    uint32_t first, n;
    bool used; /* what it belongs to has come */
} group;

typedef struct history {
    uint64_t bytes;
    uint32_t stack;
} history;

typedef struct stream {
    plim_recorded_stream is;
    uint32_t next; /* the same handle in another pool; PLIM_NONE: there is none */
} stream;

typedef struct snapshot {
    plim_recording *r;
    trace_list *traces;
    uint32_t n_traces, cap_traces;
    plim_id_map handles;                   /* handle -> the first of streams with it */
    stream *streams;                       /* in order of appearance */
    uint32_t n_streams, cap_streams, last; /* last: the one that was found last */
    plim_id_map pools;                     /* key -> number */
    bool pools_told;                       /* actions have a pool */
    group *groups;
    uint32_t n_groups, cap_groups;
    const plim_pickle_node *open; /* the list of the last group */
    history *histories;
    uint32_t n_histories, cap_histories, n_used; /* n_used: blocks whose segment has come */
} snapshot;

static uint32_t look_up(plim_str word)
{
    for (uint32_t i = 0; i < KEY_COUNT; i++)
        if (plim_str_is(word, key_names[i]))
            return i;
    for (uint32_t i = 0; i < PLIM_TRACE_ACTIONS; i++)
        if (plim_str_is(word, plim_trace_action_name((plim_trace_action)i)))
            return FIRST_ACTION + i;
    for (uint32_t i = 0; i < PLIM_COUNT(states); i++)
        if (plim_str_is(word, states[i].name))
            return FIRST_STATE + i;
    return MEANS_NOTHING;
}

/* What a value means as a word. */
static uint32_t find_word(plim_pickle_value v)
{
    if (v.kind != PLIM_PICKLE_STR)
        return MEANS_NOTHING;
    uint32_t *as = &plim_pickle_word_of(v)->meaning[AS_WORD];
    if (!*as)
        *as = look_up(plim_pickle_text(v)) + 1;
    return *as - 1;
}

/* What has more keys is nothing of ours; a large dict may be in many lists. */
enum { MOST_KEYS = 64 };

static void read_entry(const plim_pickle_node *dict, entry *e)
{
    e->seen = 0;
    for (uint32_t i = 0; i + 1 < dict->n && dict->n <= 2 * MOST_KEYS; i += 2) {
        uint32_t k = find_word(dict->items[i]);
        if (k >= KEY_COUNT)
            continue;
        e->v[k] = dict->items[i + 1];
        e->seen |= 1u << k;
    }
}

static bool has_key(const entry *e, key k) { return e->seen >> k & 1; }

/* ---- values ----------------------------------------------------------------- */

/* A number up to `max`.  `of` says what has it. */
static plim_status read_count(const entry *e, key k, const char *of, uint64_t max,
                              uint64_t *out, plim_err *err)
{
    if (!has_key(e, k))
        return plim_fail(err, PLIM_EFORMAT, 0, "%s has no '%s'", of, key_names[k]);
    if (e->v[k].kind != PLIM_PICKLE_INT || e->v[k].i < 0 || (uint64_t)e->v[k].i > max)
        return plim_fail(err, PLIM_EFORMAT, 0, "'%s' of %s is not a number from 0 to %" PRIu64,
                         key_names[k], of, max);
    *out = (uint64_t)e->v[k].i;
    return PLIM_OK;
}

#define MOST_BYTES ((1ull << 60) - 1)

static plim_status read_bytes(const entry *e, key k, const char *of, uint64_t *out,
                              plim_err *err)
{
    return read_count(e, k, of, MOST_BYTES, out, err);
}

static plim_status read_address(const entry *e, key k, const char *of, uint64_t *out,
                                plim_err *err)
{
    return read_count(e, k, of, INT64_MAX - MOST_BYTES, out, err);
}

/* The number of a stream in a pool. */
static plim_status find_stream(snapshot *s, uint64_t handle, uint32_t pool, uint16_t *out,
                               plim_err *err)
{
    enum { MOST = 30000 }; /* others are needed for frees that wait */
    const plim_recorded_stream is = {handle, pool},
                               *last = s->n_streams ? &s->streams[s->last].is : NULL;
    if (last && last->handle == is.handle && last->pool == is.pool) {
        *out = (uint16_t)s->last;
        return PLIM_OK;
    }
    plim_id_slot *slot = plim_id_at(s->r->arena, &s->handles, handle);
    if (!slot)
        return plim_oom(err);
    uint32_t first = slot->live ? slot->value : PLIM_NONE, i = first;
    while (i != PLIM_NONE && s->streams[i].is.pool != pool)
        i = s->streams[i].next;
    if (i == PLIM_NONE) {
        if (s->n_streams == MOST)
            return plim_fail(err, PLIM_EUNSUPPORTED, 0, "more than %d streams", MOST);
        if (!PLIM_GROW_ROOM(s->r->arena, s->streams, s->n_streams, s->cap_streams))
            return plim_oom(err);
        i = s->n_streams++;
        s->streams[i] = (stream){is, first};
        slot->live = true;
        slot->value = i;
    }
    s->last = i;
    *out = (uint16_t)i;
    return PLIM_OK;
}

/* What the pickle need not keep. */
static void spend_value(plim_pickle_value v, int64_t meaning)
{
    if (v.kind == PLIM_PICKLE_LIST || v.kind == PLIM_PICKLE_TUPLE) {
        v.node->spent = true;
        v.node->meaning = meaning;
    }
}

/* The number of a pool, from its id: (0, 0), or none at all, is the default one, (N, 0) that
 * of a CUDA graph, (0, N) a MemPool. */
static plim_status read_pool(snapshot *s, const entry *e, key k, uint32_t *out, plim_err *err)
{
    plim_pickle_value id = has_key(e, k) ? e->v[k] : (plim_pickle_value){0};
    *out = 0;
    if (id.kind == PLIM_PICKLE_TAKEN) { /* what it became, or in a damaged file anything */
        *out = id.i > 0 && id.i < s->r->n_pools ? (uint32_t)id.i : 0;
        return PLIM_OK;
    }
    if (plim_pickle_count(id) != 2)
        return PLIM_OK;
    const plim_pickle_value *part = id.node->items;
    uint64_t graph = part[0].kind == PLIM_PICKLE_INT ? (uint64_t)part[0].i : 0;
    uint64_t own = part[1].kind == PLIM_PICKLE_INT ? (uint64_t)part[1].i : 0;
    if (graph || own) {
        plim_id_slot *slot =
            plim_id_at(s->r->arena, &s->pools, graph ? 2 * graph : 2 * own + 1);
        if (!slot)
            return plim_oom(err);
        if (!slot->live) {
            slot->live = true;
            slot->value = s->r->n_pools++;
        }
        *out = slot->value;
    }
    spend_value(id, *out);
    return PLIM_OK;
}

/* The stream of an action or a segment, in its pool; the default one of either if the version
 * did not write it. */
static plim_status read_stream(snapshot *s, const entry *e, key pool_key, uint16_t *out,
                               plim_err *err)
{
    uint64_t handle = 0;
    uint32_t pool;
    plim_status st = read_pool(s, e, pool_key, &pool, err);
    if (!st && has_key(e, KEY_stream))
        st = read_count(e, KEY_stream, "an action or a segment", INT64_MAX, &handle, err);
    return st ? st : find_stream(s, handle, pool, out, err);
}

/* The number of a stack: a list of frames, which have been taken already. */
static plim_status read_stack(snapshot *s, const entry *e, uint32_t *out, plim_err *err)
{
    uint32_t ids[PLIM_STACK_MOST], n = 0;
    plim_pickle_value v = has_key(e, KEY_frames) ? e->v[KEY_frames] : (plim_pickle_value){0};
    *out = 0;
    if (v.kind == PLIM_PICKLE_TAKEN && v.i >= 0 && v.i < s->r->n_stacks) {
        *out = (uint32_t)v.i;
        return PLIM_OK;
    }
    if (v.kind != PLIM_PICKLE_LIST)
        return PLIM_OK;
    if (v.node->spent) {
        *out = (uint32_t)v.node->meaning;
        return PLIM_OK;
    }
    for (uint32_t i = 0; i < v.node->n && n < PLIM_COUNT(ids); i++) {
        plim_pickle_value f = v.node->items[i];
        if (f.kind == PLIM_PICKLE_TAKEN && f.i >= 0 && f.i < s->r->n_frames)
            ids[n++] = (uint32_t)f.i;
    }
    *out = plim_recording_stack_of(s->r, ids, n);
    spend_value(v, *out);
    return *out == PLIM_NONE ? plim_oom(err) : PLIM_OK;
}

/* ---- what is taken ---------------------------------------------------------- */

/* The number of the name of a file or a function. */
static uint32_t find_name(snapshot *s, const entry *e, key k)
{
    plim_pickle_value v = has_key(e, k) ? e->v[k] : (plim_pickle_value){0};
    if (v.kind != PLIM_PICKLE_STR)
        return plim_recording_name(s->r, PLIM_STR(""));
    uint32_t *as = &plim_pickle_word_of(v)->meaning[AS_NAME];
    if (!*as)
        *as = plim_recording_name(s->r, plim_pickle_text(v)) + 1; /* PLIM_NONE: again 0 */
    return *as - 1;
}

static plim_status take_frame(snapshot *s, const entry *e, plim_pickle_value *instead,
                              plim_err *err)
{
    int64_t line =
        has_key(e, KEY_line) && e->v[KEY_line].kind == PLIM_PICKLE_INT ? e->v[KEY_line].i : 0;
    uint32_t id = plim_recording_frame(s->r, find_name(s, e, KEY_filename), line,
                                       find_name(s, e, KEY_name));
    *instead = (plim_pickle_value){.kind = PLIM_PICKLE_TAKEN, .i = id};
    return id == PLIM_NONE ? plim_oom(err) : PLIM_OK;
}

static plim_status take_action(snapshot *s, plim_pickle_node *list, const entry *e,
                               plim_pickle_value *instead, plim_err *err)
{
    plim_recording *r = s->r;
    plim_action a = {0};
    uint32_t kind = find_word(e->v[KEY_action]) - FIRST_ACTION;
    plim_status st = read_stack(s, e, &a.stack, err);
    *instead = (plim_pickle_value){0};
    if (st || kind >= PLIM_TRACE_ACTIONS) /* others do not move memory */
        return st;
    a.kind = (uint8_t)kind;
    PLIM_TRY(kind == PLIM_TRACE_OOM ? read_bytes(e, KEY_device_free, "an oom", &a.addr, err)
                                    : read_address(e, KEY_addr, "an action", &a.addr, err));
    PLIM_TRY(read_bytes(e, KEY_size, "an action", &a.bytes, err));
    PLIM_TRY(read_stream(s, e, KEY_pool_id, &a.stream, err));
    s->pools_told |= has_key(e, KEY_pool_id);
    if (!s->n_traces || s->traces[s->n_traces - 1].list != list) {
        if (!PLIM_GROW_ROOM(r->arena, s->traces, s->n_traces, s->cap_traces))
            return plim_oom(err);
        s->traces[s->n_traces++] = (trace_list){list, r->n_actions};
    }
    return plim_recording_add(r, &a) ? PLIM_OK : plim_oom(err);
}

/* Adds an item, the number `item`, to the group of this list. */
static plim_status add_to_group(snapshot *s, plim_pickle_node *list, uint32_t item,
                                plim_err *err)
{
    if (!list->spent) {
        if (!PLIM_GROW_ROOM(s->r->arena, s->groups, s->n_groups, s->cap_groups))
            return plim_oom(err);
        list->spent = true;
        list->meaning = s->n_groups;
        s->groups[s->n_groups++] = (group){.first = item};
        s->open = list;
    }
    if (s->open != list || list->n)
        return plim_fail(err, PLIM_EFORMAT, 0, "blocks of several segments are mixed");
    s->groups[list->meaning].n++;
    return PLIM_OK;
}

/* The group that a list has become; each has one owner.  NULL: it is empty, or no list. */
static group *find_group(snapshot *s, const entry *e, key k)
{
    plim_pickle_value v = has_key(e, k) ? e->v[k] : (plim_pickle_value){0};
    if (v.kind != PLIM_PICKLE_LIST || !v.node->spent || v.node->meaning >= s->n_groups ||
        s->groups[v.node->meaning].used)
        return NULL;
    s->groups[v.node->meaning].used = true;
    return &s->groups[v.node->meaning];
}

static plim_status take_history(snapshot *s, plim_pickle_node *list, const entry *e,
                                plim_pickle_value *instead, plim_err *err)
{
    history h = {0};
    PLIM_TRY(read_bytes(e, KEY_real_size, "a block's history", &h.bytes, err));
    PLIM_TRY(read_stack(s, e, &h.stack, err));
    PLIM_TRY(add_to_group(s, list, s->n_histories, err));
    *instead = (plim_pickle_value){0};
    if (!PLIM_GROW_ROOM(s->r->arena, s->histories, s->n_histories, s->cap_histories))
        return plim_oom(err);
    s->histories[s->n_histories++] = h;
    return PLIM_OK;
}

static plim_status take_block(snapshot *s, plim_pickle_node *list, const entry *e,
                              plim_pickle_value *instead, plim_err *err)
{
    plim_recording *r = s->r;
    plim_recorded_block b = {0};
    uint32_t state = find_word(e->v[KEY_state]) - FIRST_STATE;
    if (state >= PLIM_COUNT(states))
        return plim_fail(err, PLIM_EFORMAT, 0, "unknown state '" PLIM_STR_FMT "' of a block",
                         PLIM_STR_CUT(plim_pickle_text(e->v[KEY_state])));
    b.state = states[state].state;
    plim_status st = read_bytes(e, KEY_size, "a block", &b.bytes, err);
    if (!st && has_key(e, KEY_requested_size))
        st = read_bytes(e, KEY_requested_size, "a block", &b.requested, err);
    if (!st)
        st = read_stack(s, e, &b.stack, err);
    if (st)
        return st;
    const group *past = find_group(s, e, KEY_history);
    if (past && past->first < s->n_histories) { /* the first is the latest allocation */
        b.requested = s->histories[past->first].bytes;
        b.stack = s->histories[past->first].stack;
    }
    if (b.state == PLIM_BLOCK_FREE)
        b.requested = 0; /* what it was when it was in use, or 0 */
    PLIM_TRY(add_to_group(s, list, r->n_blocks, err));
    *instead = (plim_pickle_value){0};
    if (!PLIM_GROW_ROOM(r->arena, r->blocks, r->n_blocks, r->cap_blocks))
        return plim_oom(err);
    r->blocks[r->n_blocks++] = b;
    return PLIM_OK;
}

static plim_status take_segment(snapshot *s, const entry *e, plim_pickle_value *instead,
                                plim_err *err)
{
    plim_recording *r = s->r;
    const group *blocks = find_group(s, e, KEY_blocks);
    plim_recorded_segment g = {.first = blocks ? blocks->first : 0,
                               .n = blocks ? blocks->n : 0};
    uint64_t device = 0, sum = 0;
    plim_status st = read_address(e, KEY_address, "a segment", &g.addr, err);
    if (!st)
        st = read_bytes(e, KEY_total_size, "a segment", &g.bytes, err);
    if (!st)
        st = read_stream(s, e, KEY_segment_pool_id, &g.stream, err);
    if (!st && has_key(e, KEY_device))
        st = read_count(e, KEY_device, "a segment", UINT16_MAX, &device, err);
    if (st)
        return st;
    g.device = (uint32_t)device;
    g.small = has_key(e, KEY_segment_type) &&
              plim_str_is(plim_pickle_text(e->v[KEY_segment_type]), "small");
    g.expandable = has_key(e, KEY_is_expandable) && e->v[KEY_is_expandable].i == 1;
    if (g.first + (uint64_t)g.n > r->n_blocks)
        return plim_fail(err, PLIM_EFORMAT, 0, "the blocks of a segment are something else");
    for (uint32_t i = g.first; i < g.first + g.n; i++) {
        r->blocks[i].addr = g.addr + sum;
        r->blocks[i].stream = g.stream;
        sum = plim_sat_add(sum, r->blocks[i].bytes);
    }
    if (sum != g.bytes)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "the blocks of the segment at 0x%" PRIx64 " have %" PRIu64
                         " bytes, the segment has %" PRIu64,
                         g.addr, sum, g.bytes);
    s->n_used += g.n;
    if (has_key(e, KEY_frames))
        spend_value(e->v[KEY_frames], 0);
    *instead = (plim_pickle_value){0};
    if (!PLIM_GROW_ROOM(r->arena, r->segments, r->n_segments, r->cap_segments))
        return plim_oom(err);
    r->segments[r->n_segments++] = g;
    return PLIM_OK;
}

static plim_status take_dict(void *ud, plim_pickle_node *list, plim_pickle_value *instead,
                             plim_err *err)
{
    snapshot *s = ud;
    entry e;
    read_entry(instead->node, &e);
    if (has_key(&e, KEY_action))
        return take_action(s, list, &e, instead, err);
    if (has_key(&e, KEY_filename))
        return take_frame(s, &e, instead, err);
    if (has_key(&e, KEY_state))
        return take_block(s, list, &e, instead, err);
    if (has_key(&e, KEY_total_size))
        return take_segment(s, &e, instead, err);
    if (has_key(&e, KEY_real_size))
        return take_history(s, list, &e, instead, err);
    return PLIM_OK;
}

/* ---- the device ------------------------------------------------------------- */

static uint32_t trace_end(const snapshot *s, uint32_t i)
{
    return i + 1 < s->n_traces ? s->traces[i + 1].first : s->r->n_actions;
}

/* The actions of the device with the most of them; without any, the device whose segments
 * have the most bytes. */
static void choose_device(snapshot *s, plim_pickle_value traces)
{
    plim_recording *r = s->r;
    uint32_t best = 0, first = 0, n = 0;
    for (uint32_t i = 0; i < s->n_traces; i++)
        if (trace_end(s, i) - s->traces[i].first > n) {
            first = s->traces[i].first;
            n = trace_end(s, i) - first;
            best = i;
        }
    r->n_devices = s->n_traces;
    if (n) {
        for (uint32_t d = 0; d < plim_pickle_count(traces); d++)
            if (plim_pickle_has_node(traces.node->items[d]) &&
                traces.node->items[d].node == s->traces[best].list)
                r->device = d;
        memmove(r->actions, r->actions + first, n * sizeof *r->actions);
    } else if (r->n_segments) {
        const plim_recorded_segment *most = r->segments;
        for (uint32_t i = 0; i < r->n_segments; i++)
            most = r->segments[i].bytes > most->bytes ? &r->segments[i] : most;
        r->device = most->device;
    }
    r->n_actions = n;
}

/* Keeps the segments of the device, in address order. */
static int compare_segments(const void *a, const void *b)
{
    const plim_recorded_segment *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static void keep_segments(plim_recording *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_segments; i++)
        if (r->segments[i].device == r->device)
            r->segments[n++] = r->segments[i];
    if (n != r->n_segments)
        r->n_devices = PLIM_MAX(r->n_devices, 2);
    r->n_segments = n;
    if (n)
        qsort(r->segments, n, sizeof *r->segments, compare_segments);
}

/* ---- pools and streams -------------------------------------------------------- */

/* The segment that the address lies in, by its index; PLIM_NONE: in none of them. */
static uint32_t find_segment(const plim_recording *r, uint64_t addr)
{
    uint32_t low = 0, high = r->n_segments;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (r->segments[mid].addr <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    const plim_recorded_segment *g = low ? &r->segments[low - 1] : NULL;
    return g && addr - g->addr < g->bytes ? low - 1 : PLIM_NONE;
}

/* Older versions write the pool of a segment, but not of an action, which is of the pool that
 * its segment is of.  Those of segments that are gone count as of the default pool.  From the
 * end backward, as the address of a segment may have been that of another before. */
static plim_status infer_pools(snapshot *s, plim_err *err)
{
    plim_recording *r = s->r;
    bool *later = PLIM_NEW_N(r->arena, bool, r->n_segments); /* it begins after this action */
    if (!later && r->n_segments)
        return plim_oom(err);
    for (uint32_t i = r->n_actions; i-- > 0;) {
        plim_action *a = &r->actions[i];
        uint32_t g = a->kind == PLIM_TRACE_OOM ? PLIM_NONE : find_segment(r, a->addr);
        if (g == PLIM_NONE || later[g])
            continue;
        plim_status st =
            find_stream(s, s->streams[a->stream].is.handle,
                        s->streams[r->segments[g].stream].is.pool, &a->stream, err);
        if (st)
            return st;
        later[g] = a->kind == PLIM_TRACE_SEGMENT_ALLOC;
    }
    return PLIM_OK;
}

typedef struct ranked {
    plim_recorded_stream is;
    uint32_t old;
} ranked;

static int compare_streams(const void *a, const void *b)
{
    const plim_recorded_stream *x = &((const ranked *)a)->is, *y = &((const ranked *)b)->is;
    return x->pool != y->pool ? (x->pool > y->pool) - (x->pool < y->pool)
                              : (x->handle > y->handle) - (x->handle < y->handle);
}

/* Numbers the streams by their handles, as the allocator orders them. */
static plim_status number_streams(snapshot *s, plim_err *err)
{
    plim_recording *r = s->r;
    ranked *by = PLIM_NEW_N(r->arena, ranked, s->n_streams);
    uint16_t *number = PLIM_NEW_N(r->arena, uint16_t, s->n_streams);
    r->streams = PLIM_NEW_N(r->arena, plim_recorded_stream, s->n_streams);
    r->n_streams = s->n_streams;
    if (s->n_streams && (!by || !number || !r->streams))
        return plim_oom(err);
    for (uint32_t i = 0; i < s->n_streams; i++)
        by[i] = (ranked){s->streams[i].is, i};
    if (s->n_streams)
        qsort(by, s->n_streams, sizeof *by, compare_streams);
    for (uint32_t i = 0; i < s->n_streams; i++) {
        number[by[i].old] = (uint16_t)i;
        r->streams[i] = by[i].is;
    }
    for (uint32_t i = 0; i < r->n_actions; i++)
        r->actions[i].stream = number[r->actions[i].stream];
    for (uint32_t i = 0; i < r->n_segments; i++) {
        plim_recorded_segment *g = &r->segments[i];
        g->stream = number[g->stream];
        for (uint32_t k = g->first; k < g->first + g->n; k++)
            r->blocks[k].stream = g->stream;
    }
    return PLIM_OK;
}

/* ---- the whole -------------------------------------------------------------- */

static bool detect_snapshot(plim_bytes file)
{
    return file.n >= 2 && file.p[0] == 0x80 && file.p[1] < 0x20; /* PROTO, of any version */
}

/* The settings in force, as text; older versions did not write them. */
static plim_status read_settings(plim_recording *r, plim_pickle_value root, plim_err *err)
{
    plim_pickle_value all = plim_pickle_get(root, "allocator_settings");
    plim_str conf = plim_pickle_text(plim_pickle_get(all, "PYTORCH_CUDA_ALLOC_CONF"));
    if (!conf.n)
        conf = plim_pickle_text(plim_pickle_get(all, "PYTORCH_ALLOC_CONF"));
    bool maps = false;
    for (uint32_t i = 0; i < r->n_actions; i++)
        maps |= r->actions[i].kind == PLIM_TRACE_SEGMENT_MAP;
    if (!conf.n && maps)
        conf = PLIM_STR("expandable_segments:True");
    r->conf = plim_arena_str(r->arena, conf.n ? conf : PLIM_STR(""));
    return r->conf.p ? PLIM_OK : plim_oom(err);
}

static plim_status check_root(const plim_recording *r, plim_pickle_value root, plim_err *err)
{
    bool list = root.kind == PLIM_PICKLE_LIST && (r->n_segments || !root.node->n);
    bool dict = root.kind == PLIM_PICKLE_DICT &&
                (plim_pickle_get(root, "segments").kind == PLIM_PICKLE_LIST ||
                 plim_pickle_get(root, "device_traces").kind == PLIM_PICKLE_LIST);
    return list || dict ? PLIM_OK
                        : plim_fail(err, PLIM_EFORMAT, 0,
                                    "a pickle, but not a CUDA memory snapshot: it has neither "
                                    "'segments' nor 'device_traces'");
}

static plim_status read_snapshot(plim_recording *r, plim_bytes file, plim_err *err)
{
    plim_arena scratch = {.limit = r->arena->limit};
    snapshot s = {.r = r};
    r->n_pools = 1;
    plim_pickle p;
    const plim_pickle_sink sink = {&s, take_dict};
    plim_status st = plim_pickle_read_plain(&p, &scratch, file, &sink, err);
    if (!st)
        st = check_root(r, p.root, err);
    if (!st && s.n_used != r->n_blocks)
        st = plim_fail(err, PLIM_EFORMAT, 0, "%" PRIu32 " blocks belong to no segment",
                       r->n_blocks - s.n_used);
    if (!st) {
        choose_device(&s, plim_pickle_get(p.root, "device_traces"));
        keep_segments(r);
        r->actions_known = r->n_actions > 0;
        r->state_known = plim_pickle_get(p.root, "segments").kind == PLIM_PICKLE_LIST ||
                         p.root.kind == PLIM_PICKLE_LIST;
        st = read_settings(r, p.root, err);
    }
    plim_arena_free(&scratch);
    if (!st && r->n_pools > 1 && !s.pools_told)
        st = infer_pools(&s, err);
    return st ? st : number_streams(&s, err);
}

const plim_recording_format plim_format_snapshot = {
    .name = "snapshot", .asks = true, .detect = detect_snapshot, .read = read_snapshot};
