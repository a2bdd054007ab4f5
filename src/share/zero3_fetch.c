/* zero3_fetch.c -- which parameters ZeRO-3 gathers and releases, and when: see zero3.h.
 *
 * src: DeepSpeed 0.19 runtime/zero/partitioned_param_coordinator.py, parameter_offload.py,
 * partition_parameters.py */
#include <stdlib.h>

#include "share/zero3.h"

static void enter_stream(plim_shared *x, const zero3_fetcher *z)
{
    plim_m_set_stream(x->m, z->overlaps ? ZERO3_GATHER_STREAM : ZERO3_DEFAULT_STREAM);
}
static void leave_stream(plim_shared *x) { plim_m_set_stream(x->m, ZERO3_DEFAULT_STREAM); }

/* ---- parameters ---------------------------------------------------------------------------- */

static void release_parameter(plim_shared *x, zero3_fetcher *z, zero3_param *p)
{
    for (uint32_t i = 0; i < p->n_in; i++)
        if (z->modules[p->in[i]].active)
            return;
    if (p->status != ZERO3_HERE || p->held)
        return;
    plim_m_record_stream(x->m, x->value[p->value], ZERO3_DEFAULT_STREAM);
    plim_zero3_put(x, p, 0);
    p->status = ZERO3_AWAY;
    z->live -= (double)p->numel;
}

static uint32_t add_flight(plim_shared *x, zero3_fetcher *z)
{
    for (uint32_t i = 0; i < z->n_flights; i++)
        if (!z->flights[i].unclaimed)
            return i;
    if (!PLIM_PUSH_ROOM(x->a, z->flights, z->n_flights, z->cap_flights) ||
        !(z->flights[z->n_flights].p = PLIM_NEW_N(x->a, uint32_t, (uint64_t)z->n + 1)) ||
        !(z->flights[z->n_flights].part = PLIM_NEW_N(x->a, plim_t, (uint64_t)z->n + 1))) {
        plim_m_oom(x->m);
        return PLIM_NONE;
    }
    return z->n_flights++;
}

plim_t plim_zero3_room(plim_shared *x, const zero3_fetcher *z, const uint32_t *list,
                       uint32_t n)
{
    uint64_t numel = 0;
    for (uint32_t i = 0; i < n; i++)
        numel = plim_sat_add(numel, plim_zero3_padded(x, &z->p[list[i]]));
    int64_t dim = (int64_t)PLIM_MIN(numel, (uint64_t)INT64_MAX);
    plim_m_place(x->m, PLIM_NONE,
                 n == 1 ? x->g->values[z->p[list[0]].value].name : PLIM_STR("parameters"),
                 "gathered", PLIM_CAT_PARAMETER);
    return plim_m_empty_contig(x->m, z->dtype, 1, &dim);
}

plim_t plim_zero3_part(plim_shared *x, const zero3_fetcher *z, uint32_t k)
{
    return z->on_host ? plim_share_flat(x, "part", PLIM_CAT_PARAMETER, z->dtype, z->p[k].each)
                      : 0;
}

/* A single parameter is gathered to where it stays, several into one tensor, from which they are
 * copied when the first is needed.  all_gather_coalesced */
static void gather_parameters(plim_shared *x, zero3_fetcher *z, const uint32_t *list,
                              uint32_t n)
{
    uint32_t at = n ? add_flight(x, z) : PLIM_NONE;
    if (at == PLIM_NONE)
        return;
    zero3_flight *f = &z->flights[at];
    f->n = f->unclaimed = n;
    f->arrived = false;
    for (uint32_t i = 0; i < n; i++) {
        zero3_param *p = &z->p[list[i]];
        f->p[i] = list[i];
        z->live += (double)p->numel;
        p->status = ZERO3_IN_FLIGHT;
        p->flight = at;
        p->at_in_flight = z->n_in_flight;
        z->in_flight[z->n_in_flight++] = list[i];
    }
    enter_stream(x, z);
    plim_t flat = plim_zero3_room(x, z, list, n);
    for (uint32_t i = 0; i < n; i++)
        f->part[i] = plim_zero3_part(x, z, list[i]);
    for (uint32_t i = n; n > 1 && i-- > 0;) /* copied into the tensor at once */
        plim_m_drop(x->m, f->part[i]);
    leave_stream(x);
    if (n == 1)
        plim_zero3_put(x, &z->p[list[0]], flat);
    else
        f->flat = flat;
}

static void finish_flight(plim_shared *x, zero3_fetcher *z, zero3_flight *f)
{
    plim_assert(!f->arrived && f->n > 0);
    enter_stream(x, z);
    for (uint32_t i = 0; i < f->n; i++) {
        zero3_param *p = &z->p[f->p[i]];
        if (f->n > 1) {
            plim_m_place(x->m, PLIM_NONE, x->g->values[p->value].name, "gathered",
                         PLIM_CAT_PARAMETER);
            plim_meta meta = *plim_m_meta(x->m, x->value[p->value]);
            plim_meta_contiguous(&meta);
            plim_zero3_put(x, p, plim_m_empty(x->m, &meta));
        }
        p->status = ZERO3_HERE;
    }
    leave_stream(x);
    if (f->n == 1)
        plim_m_drop(x->m, f->part[0]);
    f->arrived = true;
}

/* AllGatherCoalescedHandle.wait */
static void claim_parameter(plim_shared *x, zero3_fetcher *z, zero3_param *p)
{
    if (p->at_in_flight == PLIM_NONE)
        return;
    plim_assert(z->n_in_flight > 0 && p->at_in_flight < z->n_in_flight);
    uint32_t last = z->in_flight[--z->n_in_flight];
    z->in_flight[p->at_in_flight] = last;
    z->p[last].at_in_flight = p->at_in_flight;
    p->at_in_flight = PLIM_NONE;
    zero3_flight *f = &z->flights[p->flight];
    if (!f->arrived)
        finish_flight(x, z, f);
    plim_assert(f->unclaimed > 0);
    if (--f->unclaimed)
        return;
    plim_m_drop(x->m, f->flat);
    f->flat = 0;
}

static int compare_places(const void *a, const void *b)
{
    const uint32_t *i = a, *k = b;
    return *i < *k ? -1 : *i > *k;
}

void plim_zero3_sort(uint32_t *places, uint32_t n)
{
    if (n)
        qsort(places, n, sizeof *places, compare_places);
}

/* ---- the trace ------------------------------------------------------------------------------- */

static void claim_all(plim_shared *x, zero3_fetcher *z)
{
    while (z->n_in_flight) {
        zero3_param *p = &z->p[z->in_flight[z->n_in_flight - 1]];
        claim_parameter(x, z, p);
        release_parameter(x, z, p);
    }
}

static void check_trace(plim_shared *x, zero3_fetcher *z, uint32_t id)
{
    if (z->tracing != ZERO3_COMPLETE || (z->step < z->n_order && z->order[z->step] == id))
        return;
    z->tracing = ZERO3_INVALID;
    z->n_order = z->n_queue = z->next = 0;
    claim_all(x, z);
}

static void record_module(plim_shared *x, zero3_fetcher *z, uint32_t id)
{
    if (z->tracing != ZERO3_RECORDING)
        return;
    if (!PLIM_PUSH_ROOM(x->a, z->order, z->n_order, z->cap_order))
        plim_m_oom(x->m);
    else
        z->order[z->n_order++] = id;
}

static void complete_trace(plim_shared *x, zero3_fetcher *z)
{
    z->n_queue = 0;
    for (uint32_t s = 0; s < z->n_order; s++) {
        const zero3_module *m = &z->modules[z->order[s]];
        for (uint32_t i = 0; i < m->n; i++) {
            if (!PLIM_PUSH_ROOM(x->a, z->queue, z->n_queue, z->cap_queue)) {
                plim_m_oom(x->m);
                return;
            }
            z->queue[z->n_queue++] = (zero3_traced){m->p[i], s};
        }
    }
    z->tracing = ZERO3_COMPLETE;
}

static void begin_pass(plim_shared *x, zero3_fetcher *z)
{
    claim_all(x, z);
    if (z->tracing == ZERO3_RECORDING)
        complete_trace(x, z);
    else if (z->tracing == ZERO3_INVALID)
        z->tracing = ZERO3_RECORDING;
    for (uint32_t i = 0; i < z->n; i++)
        z->p[i].fetched = -1;
    z->next = 0;
    z->step = 0;
    z->live = 0;
}

/* What is needed now is not to be fetched later: it leaves the queue. */
static void leave_queue(zero3_fetcher *z, const zero3_module *m)
{
    uint32_t expected = 0, left = 0;
    for (uint32_t i = 0; i < m->n; i++)
        expected += z->p[m->p[i]].fetched < z->step;
    for (; z->next < z->n_queue && left < expected; left++) {
        const zero3_traced *t = &z->queue[z->next++];
        z->p[t->p].fetched = t->step;
    }
}

static void prefetch_parameters(plim_shared *x, zero3_fetcher *z)
{
    double most = PLIM_MIN(z->most_live - z->live, z->prefetch), numel = 0;
    uint32_t n = 0;
    while (z->next < z->n_queue && numel < most) {
        const zero3_traced *t = &z->queue[z->next++];
        zero3_param *p = &z->p[t->p];
        p->fetched = PLIM_MAX(p->fetched, t->step);
        if (p->status != ZERO3_AWAY || p->chosen)
            continue;
        p->chosen = true;
        z->list[n++] = t->p;
        numel += (double)p->numel;
    }
    for (uint32_t i = 0; i < n; i++)
        z->p[z->list[i]].chosen = false;
    plim_zero3_sort(z->list, n);
    gather_parameters(x, z, z->list, n);
}

/* ---- modules ---------------------------------------------------------------------------------- */

/* What is recomputed and not trained has no backward of its own that releases it: that of the module
 * which needs it does. */
static void hold_recomputed(plim_shared *x, zero3_fetcher *z, uint32_t k)
{
    if (!x->again || !z->n_backward || z->p[k].trained)
        return;
    zero3_module *by = &z->modules[z->backward[z->n_backward - 1]];
    for (uint32_t i = 0; i < by->n_held; i++)
        if (by->held[i] == k)
            return;
    if (!by->held && !(by->held = PLIM_NEW_N(x->a, uint32_t, (uint64_t)z->n + 1))) {
        plim_m_oom(x->m);
        return;
    }
    by->held[by->n_held++] = k;
    z->p[k].held++;
}

static void fetch_module(plim_shared *x, zero3_fetcher *z, uint32_t id)
{
    zero3_module *m = &z->modules[id];
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++)
        if (z->p[m->p[i]].status == ZERO3_AWAY)
            z->list[n++] = m->p[i];
    gather_parameters(x, z, z->list, n);
    m->active = true;
    for (uint32_t i = 0; i < m->n; i++) {
        hold_recomputed(x, z, m->p[i]);
        claim_parameter(x, z, &z->p[m->p[i]]);
    }
    if (z->tracing == ZERO3_COMPLETE) {
        leave_queue(z, m);
        prefetch_parameters(x, z);
    }
    z->step++;
}

bool plim_zero3_owns(const zero3_module *m, uint32_t k)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->p[i] == k)
            return true;
    return false;
}

/* Whether the next modules of the trace need it again. */
static bool is_reused(const zero3_fetcher *z, uint32_t k)
{
    double passed = 0;
    for (uint32_t s = (uint32_t)z->step; s < z->n_order && passed < z->reuse; s++) {
        const zero3_module *m = &z->modules[z->order[s]];
        if (plim_zero3_owns(m, k))
            return true;
        for (uint32_t i = 0; i < m->n; i++)
            passed += (double)z->p[m->p[i]].numel;
    }
    return false;
}

static bool is_released(const zero3_fetcher *z, uint32_t k)
{
    const zero3_param *p = &z->p[k];
    return z->tracing != ZERO3_COMPLETE ||
           (!p->persists && p->fetched <= z->step && !is_reused(z, k));
}

static void release_module(plim_shared *x, zero3_fetcher *z, uint32_t id)
{
    zero3_module *m = &z->modules[id];
    m->active = false;
    for (uint32_t i = 0; i < m->n; i++)
        if (is_released(z, m->p[i]))
            release_parameter(x, z, &z->p[m->p[i]]);
}

static void release_held(plim_shared *x, zero3_fetcher *z, zero3_module *m)
{
    for (; m->n_held; m->n_held--) {
        zero3_param *p = &z->p[m->held[m->n_held - 1]];
        plim_assert(p->held > 0);
        p->held--;
        if (!p->persists)
            release_parameter(x, z, p);
    }
}

void plim_zero3_forward(plim_shared *x, zero3_fetcher *z, uint32_t unit)
{
    plim_assert(unit <= x->units.n);
    if (!z->n)
        return;
    if (unit == x->units.n)
        begin_pass(x, z);
    check_trace(x, z, z->identity[unit]);
    record_module(x, z, z->identity[unit]);
    fetch_module(x, z, z->identity[unit]);
}

void plim_zero3_forward_end(plim_shared *x, zero3_fetcher *z, uint32_t unit)
{
    if (z->n)
        release_module(x, z, z->identity[unit]);
}

void plim_zero3_backward(plim_shared *x, zero3_fetcher *z, uint32_t unit)
{
    plim_assert(unit <= x->units.n);
    uint32_t id = z->n ? z->identity[unit] : 0;
    if (!z->n)
        return;
    check_trace(x, z, id);
    record_module(x, z, id);
    if (!z->modules[id].in_backward)
        z->backward[z->n_backward++] = id;
    z->modules[id].in_backward = true;
    fetch_module(x, z, id);
}

static void leave_backward(zero3_fetcher *z, uint32_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < z->n_backward; i++)
        if (z->backward[i] != id)
            z->backward[n++] = z->backward[i];
    z->n_backward = n;
    z->modules[id].in_backward = false;
}

void plim_zero3_backward_end(plim_shared *x, zero3_fetcher *z, uint32_t unit)
{
    if (!z->n)
        return;
    release_module(x, z, z->identity[unit]);
    release_held(x, z, &z->modules[z->identity[unit]]);
    leave_backward(z, z->identity[unit]);
}

/* Modules whose inputs need no gradient. */
void plim_zero3_returned(plim_shared *x, zero3_fetcher *z)
{
    while (z->n_backward) {
        zero3_module *m = &z->modules[z->backward[--z->n_backward]];
        m->active = m->in_backward = false;
        for (uint32_t i = 0; i < m->n; i++)
            if (!z->p[m->p[i]].persists)
                release_parameter(x, z, &z->p[m->p[i]]);
        release_held(x, z, m);
    }
}

void plim_zero3_release_all(plim_shared *x, zero3_fetcher *z)
{
    for (uint32_t i = 0; i <= x->units.n; i++)
        z->modules[i].active = false;
    for (uint32_t i = 0; i < z->n; i++) {
        claim_parameter(x, z, &z->p[i]);
        release_parameter(x, z, &z->p[i]);
    }
}
