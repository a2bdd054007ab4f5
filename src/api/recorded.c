/* recorded.c -- see recorded.h. */
#include "api/recorded.h"

#include <stdlib.h>

#include "api/api.h"

PLIM__LIST(live_list, plim_live_stack)
PLIM__LIST(segment_list, plim_held_segment)

/* ---- live at the peak ---------------------------------------------------------- */

static int compare_live(const void *a, const void *b)
{
    const plim_live_stack *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->where ? x->where : "", y->where ? y->where : "");
}

static plim_status name_stack(const plim_recording *r, uint32_t stack, plim_live_stack *out,
                              plim_err *err)
{
    const plim_stack *s = &r->stacks[stack];
    const char **frames = PLIM_NEW_N(r->arena, const char *, s->n + UINT64_C(1));
    if (!frames)
        return plim_oom(err);
    for (uint32_t i = 0; i < s->n; i++)
        if (!(frames[i] = plim_recording_frame_text(r, r->frame_ids[s->first + i]).p))
            return plim_oom(err);
    out->where = s->label == PLIM_NONE ? NULL : plim_recording_frame_text(r, s->label).p;
    out->frames = frames;
    out->n_frames = s->n;
    return s->label == PLIM_NONE || out->where ? PLIM_OK : plim_oom(err);
}

/* Whether the stack stands for blocks that no event names, so that nobody knows how many. */
static bool is_rest(const plim_recording *r, uint32_t stack)
{
    return r->n_rest && stack == r->before[r->n_before - 1].stack;
}

plim_status plim__recorded_live(const plim_recording *r, const plim_tape *t,
                                const uint32_t *stacks, const plim_sim *sim,
                                plim_recorded *out, plim_err *err)
{
    plim_live_stack *by = PLIM_NEW_N(r->arena, plim_live_stack, r->n_stacks);
    uint32_t n = 0;
    plim_status st = by ? PLIM_OK : plim_oom(err);
    if (st)
        return st;
    for (uint32_t i = 0; i < sim->n_live; i++) {
        plim_live_stack *s = &by[stacks[sim->live[i]]];
        s->bytes += t->storages[sim->live[i]].bytes;
        s->blocks += !is_rest(r, stacks[sim->live[i]]);
    }
    for (uint32_t i = 0; i < r->n_stacks && !st; i++) {
        if (!by[i].blocks && !by[i].bytes)
            continue;
        by[n] = by[i];
        by[n].size = sizeof *by;
        st = name_stack(r, i, &by[n++], err);
    }
    if (st)
        return st;
    if (n)
        qsort(by, n, sizeof *by, compare_live);
    out->live_at_peak = live_list(r->arena, by, n);
    out->n_live_at_peak = n;
    return out->live_at_peak ? PLIM_OK : plim_oom(err);
}

/* ---- segments ------------------------------------------------------------------- */

static int compare_free(const void *a, const void *b)
{
    const plim_held_segment *x = a, *y = b;
    if (x->free != y->free)
        return x->free > y->free ? -1 : 1;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

static plim_held_segment sum_segment(const plim_recording *r, const plim_recorded_segment *g,
                                     plim_free_recorded *pools)
{
    plim_held_segment s = {.size = sizeof s,
                           .pool = g->small ? "small" : "large",
                           .bytes = g->bytes,
                           .stream = g->stream,
                           .expandable = g->expandable,
                           .rounding_known = true};
    for (uint32_t i = g->first; i < g->first + g->n; i++) {
        const plim_recorded_block *b = &r->blocks[i];
        plim_free_blocks *pool = g->small ? &pools->small : &pools->large;
        if (b->state == PLIM_BLOCK_FREE) {
            s.free += b->bytes;
            s.largest = PLIM_MAX(s.largest, b->bytes);
            s.pieces++;
            pool->bytes += b->bytes;
            pool->largest = PLIM_MAX(pool->largest, b->bytes);
            pool->blocks++;
        } else {
            s.allocated += b->bytes;
            s.rounding += b->bytes - PLIM_MIN(b->requested, b->bytes);
            s.rounding_known &= b->requested != 0;
            s.blocks++;
        }
    }
    return s;
}

static plim_status sum_segments(const plim_recording *r, plim_recorded *out, plim_err *err)
{
    plim_held_segment *s = PLIM_NEW_N(r->arena, plim_held_segment, r->n_segments);
    plim_free_recorded *pools = PLIM_NEW(r->arena, plim_free_recorded);
    if (!pools || (r->n_segments && !s))
        return plim_oom(err);
    for (uint32_t i = 0; i < r->n_segments; i++)
        s[i] = sum_segment(r, &r->segments[i], pools);
    if (r->n_segments)
        qsort(s, r->n_segments, sizeof *s, compare_free);
    out->segments = segment_list(r->arena, s, r->n_segments);
    out->n_segments = r->n_segments;
    out->free = pools;
    return out->segments ? PLIM_OK : plim_oom(err);
}

/* ---- the recorded allocator ------------------------------------------------------ */

static plim_status fill_oom(const plim_recording *r, const plim_follow *f, plim_recorded *out,
                            plim_err *err)
{
    plim_live_stack stack;
    plim_status st = name_stack(r, f->oom_stack, &stack, err);
    plim_failed_request *oom = PLIM_NEW(r->arena, plim_failed_request);
    plim_free_blocks *pools = PLIM_NEW_N(r->arena, plim_free_blocks, PLIM_POOLS);
    if (st || !oom || !pools)
        return st ? st : plim_oom(err);
    memcpy(pools, f->oom_free, sizeof f->oom_free);
    *oom = (plim_failed_request){.size = sizeof *oom,
                                 .action = f->oom_action,
                                 .where = stack.where,
                                 .requested = f->oom_bytes,
                                 .device = f->oom_device_free,
                                 .device_known = f->oom_device_free != UINT64_MAX,
                                 .reserved = f->oom_reserved,
                                 .small = f->oom_free_known ? &pools[0] : NULL,
                                 .large = f->oom_free_known ? &pools[1] : NULL};
    out->oom = oom;
    return PLIM_OK;
}

/* ---- a trace ---------------------------------------------------------------------- */

static void sum_counters(const plim_recording *r, plim_trace_counters *t)
{
    for (uint32_t i = 0; i < r->n_counters; i++) {
        const plim_counters *c = &r->counters[i];
        if (c->allocated > t->peak_allocated)
            t->peak_unused = c->reserved - PLIM_MIN(c->allocated, c->reserved);
        t->peak_allocated = PLIM_MAX(t->peak_allocated, c->allocated);
        t->peak_reserved = PLIM_MAX(t->peak_reserved, c->reserved);
        t->end_allocated = c->allocated;
        t->end_reserved = c->reserved;
    }
}

static plim_status fill_trace(const plim_recording *r, plim_recorded *out, plim_err *err)
{
    plim_traced *t = PLIM_NEW(r->arena, plim_traced);
    plim_trace_counters *counters = PLIM_NEW(r->arena, plim_trace_counters);
    const char *process = plim__cstr(r->arena, r->process);
    if (!t || !counters || !process)
        return plim_oom(err);
    *t = (plim_traced){.size = sizeof *t,
                       .process = process,
                       .processes = r->n_processes,
                       .host = r->host,
                       .requested_known = !r->blocks_only,
                       .ends_at = r->ends_at,
                       .rest_bytes = r->rest_bytes};
    if (r->counters) {
        sum_counters(r, counters);
        t->counters = counters;
    }
    out->actions = r->n_events;
    out->before_blocks = r->n_before - r->n_rest;
    out->before_known = !r->rest_bytes;
    out->trace = t;
    return PLIM_OK;
}

/* ---- the whole -------------------------------------------------------------------- */

plim_status plim__recorded_fill(const plim_recording *r, int torch, const plim_follow *f,
                                plim_recorded *out, plim_err *err)
{
    plim_status st = PLIM_OK;
    *out = (plim_recorded){.size = sizeof *out,
                           .format = r->format,
                           .actions = r->n_actions,
                           .device = r->device,
                           .devices = PLIM_MAX(r->n_devices, 1),
                           .from_start = plim_recording_from_start(r),
                           .before_blocks = r->n_before,
                           .before_known = true,
                           .before_bytes = r->before_bytes,
                           .gaps = r->n_gaps,
                           .alloc_conf = r->conf.n ? plim__cstr(r->arena, r->conf) : "",
                           .torch = plim_torch_name(r->arena, torch),
                           .checked = f->followed,
                           .agrees = f->agrees,
                           .counters_recorded = f->agrees && !r->counters,
                           .addresses = f->n_checked};
    if (!out->alloc_conf || !out->torch)
        return plim_oom(err);
    if (f->why.n && !(out->difference = plim__cstr(r->arena, f->why)))
        return plim_oom(err);
    if (r->n_processes)
        st = fill_trace(r, out, err);
    if (!st && f->oom)
        st = fill_oom(r, f, out, err);
    return st || !r->state_known ? st : sum_segments(r, out, err);
}
