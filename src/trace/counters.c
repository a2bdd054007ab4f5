/* counters.c -- the recorded allocator's counters against those of the simulated one.
 *
 * The simulated allocator, on a device without a limit, is asked for the recorded blocks in
 * the recorded order, and releases what it can where reserved memory became less.  After each
 * event both must have the same bytes allocated and reserved.
 *
 * To ask for a block's whole size instead of what was requested changes nothing: the smallest
 * free block that holds the request is also the smallest that holds its size, since the
 * recorded one was either of that size or cut to it. */
#include "trace/recording.h"

typedef struct counter {
    const plim_recording *r;
    plim_arena *a;
    plim_alloc *h;
    plim_follow *out;
    plim_err *err;
    plim_id_map live; /* recorded address -> block */
} counter;

static plim_status count_alloc(counter *c, const plim_action *a)
{
    uint32_t block;
    plim_status st = plim_alloc_malloc(c->h, a->bytes, a->stream, &block, c->err);
    if (st || block == PLIM_NONE)
        return st;
    plim_id_slot *s = plim_id_at(c->a, &c->live, a->addr);
    if (!s)
        return plim_oom(c->err);
    s->live = true;
    s->value = block;
    return PLIM_OK;
}

static plim_status count_free(counter *c, const plim_action *a)
{
    plim_id_slot *s = plim_id_get(&c->live, a->addr);
    if (!s || !s->live)
        return PLIM_OK;
    s->live = false;
    return plim_alloc_free(c->h, s->value, c->err);
}

static plim_status compare_counters(counter *c, uint32_t i)
{
    const plim_action *a = &c->r->actions[i];
    const plim_counters *was = &c->r->counters[i];
    plim_alloc_stats s;
    plim_alloc_get_stats(c->h, &s);
    if (s.allocated_bytes.current == was->allocated &&
        s.reserved_bytes.current == was->reserved) {
        c->out->n_checked++;
        return PLIM_OK;
    }
    c->out->why = plim_arena_printf(
        c->r->arena,
        "after event %" PRIu32 ", %s of %" PRIu64 " bytes: recorded are %" PRIu64
        " bytes allocated and %" PRIu64 " reserved, simulated %" PRIu64 " and %" PRIu64,
        c->out->n_checked, a->kind == PLIM_TRACE_ALLOC ? "a block" : "a free", a->bytes,
        was->allocated, was->reserved, s.allocated_bytes.current, s.reserved_bytes.current);
    return c->out->why.p ? PLIM_OK : plim_oom(c->err);
}

static plim_status count_action(counter *c, uint32_t i)
{
    const plim_action *a = &c->r->actions[i];
    plim_status st = PLIM_OK;
    if (a->kind == PLIM_TRACE_SEGMENT_FREE)
        return plim_alloc_empty_cache(c->h, c->err);
    if (a->kind == PLIM_TRACE_ALLOC)
        st = count_alloc(c, a);
    else if (a->kind == PLIM_TRACE_FREE_COMPLETED)
        st = count_free(c, a);
    else
        return PLIM_OK;
    return st ? st : compare_counters(c, i);
}

plim_status plim_counters_follow(const plim_recording *r, int torch, plim_follow *out,
                                 plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_alloc_options o = {.torch = torch, .conf = r->conf};
    counter c = {.r = r, .a = &a, .out = out, .err = err};
    plim_status st = plim_alloc_new(&a, &o, &c.h, err);
    for (uint32_t i = 0; i < r->n_actions && !st && !out->why.n; i++)
        st = count_action(&c, i);
    out->agrees = !st && !out->why.n;
    plim_arena_free(&a);
    return st;
}
