/* retell.c -- a recording as a tape. */
#include "trace/recording.h"

typedef struct teller {
    const plim_recording *r;
    plim_tape *t;
    plim_arena *scratch;
    plim_id_map live;    /* address -> storage */
    plim_id_map waiting; /* address -> the stream that a free waits for */
    uint16_t *spare;     /* streams that no free waits for any more */
    uint32_t n_spare, cap_spare, next_stream;
    uint32_t *stacks;
    bool as_recorded;
} teller;

/* ---- what actions mean ------------------------------------------------------- */

static bool is_release(const plim_action *a)
{
    return a->kind == PLIM_TRACE_SEGMENT_FREE || a->kind == PLIM_TRACE_SEGMENT_UNMAP;
}

static bool names_empty_cache(const plim_recording *r, uint32_t stack)
{
    const plim_stack *s = &r->stacks[stack];
    for (uint32_t i = 0; i < s->n; i++)
        if (plim_str_ends(plim_recording_frame_text(r, r->frame_ids[s->first + i]),
                          PLIM_STR(" empty_cache")))
            return true;
    return false;
}

bool plim_recording_is_empty_cache(const plim_recording *r, uint32_t *i)
{
    bool named = names_empty_cache(r, r->actions[*i].stack);
    while (*i + 1 < r->n_actions && is_release(&r->actions[*i + 1]))
        ++*i;
    if (named || *i + 1 == r->n_actions)
        return true;
    uint8_t next = r->actions[*i + 1].kind;
    return next != PLIM_TRACE_SEGMENT_ALLOC && next != PLIM_TRACE_SEGMENT_MAP &&
           next != PLIM_TRACE_OOM;
}

/* Whether the free requested by action i is completed by the next one: no other stream uses
 * the block. */
static bool is_plain_free(const plim_recording *r, uint32_t i)
{
    return i + 1 < r->n_actions && r->actions[i + 1].kind == PLIM_TRACE_FREE_COMPLETED &&
           r->actions[i + 1].addr == r->actions[i].addr;
}

/* ---- telling them ------------------------------------------------------------ */

static bool tell_alloc(teller *w, uint64_t bytes, uint32_t stack, uint16_t stream,
                       uint32_t *storage)
{
    uint32_t label = w->r->stacks[stack].label;
    plim_storage s = {.bytes = bytes, .category = PLIM_CAT_TEMPORARY};
    if (label != PLIM_NONE && !(s.name = plim_recording_frame_text(w->r, label)).p)
        return false;
    *storage = plim_tape_alloc(w->t, &s);
    if (*storage == PLIM_NONE)
        return false;
    w->t->events[w->t->n_events - 1].stream = stream;
    w->stacks[*storage] = stack;
    return true;
}

static bool tell_block(teller *w, uint64_t addr, uint64_t bytes, uint32_t stack,
                       uint16_t stream)
{
    uint32_t storage;
    plim_id_slot *s = plim_id_at(w->scratch, &w->live, addr);
    if (!s || (s->live && !plim_tape_free_storage(w->t, s->value)) ||
        !tell_alloc(w, bytes, stack, stream, &storage))
        return false;
    s->live = true;
    s->value = storage;
    return true;
}

/* A free that waits for another stream: for one of its own, whose number is not used by any
 * allocation, so that it can be completed when the recorded one was. */
static bool tell_waiting(teller *w, uint64_t addr, uint32_t storage)
{
    if (!w->n_spare && w->next_stream == PLIM_ALL_STREAMS)
        return true; /* out of streams: it does not wait */
    uint16_t stream = w->n_spare ? w->spare[--w->n_spare] : (uint16_t)w->next_stream++;
    plim_id_slot *s = plim_id_at(w->scratch, &w->waiting, addr);
    if (!s)
        return false;
    s->live = true;
    s->value = stream;
    return plim_tape_event(
        w->t, (plim_event){.id = storage, .stream = stream, .kind = PLIM_EVENT_RECORD_STREAM});
}

static bool tell_free(teller *w, uint32_t i)
{
    const plim_action *a = &w->r->actions[i];
    plim_id_slot *s = plim_id_get(&w->live, a->addr);
    if (!s || !s->live)
        return true;
    s->live = false;
    uint32_t storage = s->value;
    if (a->kind == PLIM_TRACE_FREE_REQUESTED && !is_plain_free(w->r, i) &&
        !tell_waiting(w, a->addr, storage))
        return false;
    return plim_tape_free_storage(w->t, storage);
}

static bool tell_completed(teller *w, uint32_t i)
{
    plim_id_slot *s = plim_id_get(&w->waiting, w->r->actions[i].addr);
    if (!s || !s->live)
        return tell_free(w, i); /* its request was not recorded */
    s->live = false;
    if (!PLIM_PUSH_ROOM(w->scratch, w->spare, w->n_spare, w->cap_spare))
        return false;
    w->spare[w->n_spare++] = (uint16_t)s->value;
    return plim_tape_event(
        w->t, (plim_event){.stream = (uint16_t)s->value, .kind = PLIM_EVENT_STREAM_DONE});
}

static bool tell_failed(teller *w, const plim_action *a)
{
    uint32_t storage;
    return w->as_recorded || (tell_alloc(w, a->bytes, a->stack, a->stream, &storage) &&
                              plim_tape_free_storage(w->t, storage));
}

static bool tell_action(teller *w, uint32_t *i)
{
    const plim_action *a = &w->r->actions[*i];
    switch ((plim_trace_action)a->kind) {
    case PLIM_TRACE_ALLOC: return tell_block(w, a->addr, a->bytes, a->stack, a->stream);
    case PLIM_TRACE_FREE_REQUESTED: return tell_free(w, *i);
    case PLIM_TRACE_FREE_COMPLETED: return tell_completed(w, *i);
    case PLIM_TRACE_OOM: return tell_failed(w, a);
    case PLIM_TRACE_SEGMENT_FREE:
    case PLIM_TRACE_SEGMENT_UNMAP:
        return (!plim_recording_is_empty_cache(w->r, i) && !w->as_recorded) ||
               plim_tape_event(w->t, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE});
    case PLIM_TRACE_SEGMENT_ALLOC: /* follow from the requests */
    case PLIM_TRACE_SEGMENT_MAP: break;
    }
    return true;
}

/* Reserves room for all storages. */
static bool expect_storages(teller *w)
{
    const plim_recording *r = w->r;
    uint64_t n = r->n_before;
    for (uint32_t i = 0; i < r->n_actions; i++)
        n += r->actions[i].kind == PLIM_TRACE_ALLOC || r->actions[i].kind == PLIM_TRACE_OOM;
    plim_tape_expect(w->t, (uint32_t)PLIM_MIN(n, UINT32_MAX));
    return (w->stacks = PLIM_NEW_N(w->t->arena, uint32_t, n)) != NULL;
}

plim_status plim_recording_tape(const plim_recording *r, bool as_recorded, plim_tape *t,
                                uint32_t **stacks, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    teller w = {.r = r,
                .t = t,
                .scratch = &scratch,
                .next_stream = PLIM_MAX(r->n_streams, 1),
                .as_recorded = as_recorded};
    bool good = expect_storages(&w);
    for (uint32_t i = 0; i < r->n_before && good; i++) {
        const plim_recorded_block *b = &r->before[i];
        good = tell_block(&w, b->addr, b->bytes, b->stack, b->stream);
    }
    for (uint32_t i = 0; i < r->n_actions && good; i++)
        good = tell_action(&w, &i);
    plim_arena_free(&scratch);
    *stacks = w.stacks;
    return good ? PLIM_OK : plim_oom(err);
}
