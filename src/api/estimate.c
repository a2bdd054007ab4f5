/* estimate.c -- plim_estimate_run: from a model and settings to the memory at the
 * peak. */
#include <stdlib.h>

#include "api/api.h"
#include "base/os.h"
#include "base/task.h"
#include "fit/advice.h"
#include "fit/verdict.h"
#include "op/op.h"

typedef struct estimate_result {
    plim_estimate pub;
    plim_arena arena;
} estimate_result;

typedef struct work {
    plim_job *job;
    plim_arena *a, *scratch; /* of the result; for what it does not keep */
    plim_estimate *e;
    plim_err *err;
    plim_graph g;
    plim_tape tape; /* with workspaces of the usual size */
    plim_sim sim;
} work;

/* ---- on the card ------------------------------------------------------------------ */

PLIM__LIST(context_part_list, plim_context_part)

static plim_status list_context(work *w, const plim_gpu_context *c)
{
    plim_context_part *parts = PLIM_NEW_N(w->a, plim_context_part, c->n_parts);
    if (!parts && c->n_parts)
        return plim_oom(w->err);
    for (uint32_t i = 0; i < c->n_parts; i++)
        parts[i] = (plim_context_part){.name = c->part[i].name,
                                       .low = c->part[i].low,
                                       .usual = c->part[i].usual,
                                       .high = c->part[i].high,
                                       .certainty = plim_gpu_known_name(c->part[i].known),
                                       .source = c->part[i].src};
    w->e->context_parts = context_part_list(w->a, parts, c->n_parts);
    w->e->n_context_parts = c->n_parts;
    return w->e->context_parts ? PLIM_OK : plim_oom(w->err);
}

static plim_status judge_tape(work *w)
{
    plim_estimate *e = w->e;
    plim_verdict v;
    PLIM_TRY(plim_verdict_of(w->job, &w->tape, PLIM_SIM_ALL, w->job->gpu != NULL, w->scratch,
                             &v, w->err));
    w->sim = v.sim;
    e->fits = v.fits;
    e->oom = v.fits == PLIM_FITS_NO;
    if (e->oom && !(e->oom_text = plim__cstr(w->a, v.oom_text)))
        return plim_oom(w->err);
    const plim_gpu *gpu = w->job->gpu;
    e->gpu_bytes = gpu ? gpu->memory_bytes : 0;
    e->gpu_exact = gpu && plim_gpu_exact(gpu);
    if (gpu && !(e->gpu = plim__cstr(w->a, plim_str_of(gpu->name))))
        return plim_oom(w->err);
    e->peak_requested = v.sim.peak_requested;
    e->peak_allocated = v.sim.peak_allocated;
    e->peak_reserved = v.reserved;
    e->reserved_low = v.reserved_low;
    e->reserved_high = v.reserved_high;
    e->reserved_modelled = v.modelled;
    e->reserved_waits = v.waits;
    e->context_known = v.context.high > 0;
    e->context_low = v.context.low;
    e->context = v.context.usual;
    e->context_high = v.context.high;
    e->device = plim_sat_add(v.reserved, v.context.usual);
    e->search = v.search;
    e->searched = v.searched;
    e->device_low = v.device_low;
    e->device_high = v.device_high;
    e->needed_low = v.needed_low;
    e->needed_high = v.needed_high;
    e->margin = v.margin;
    e->margin_kept = v.margin_kept;
    e->headroom = v.headroom;
    plim_assert(e->reserved_low <= e->peak_reserved && e->peak_reserved <= e->reserved_high);
    plim_assert(e->peak_requested <= e->peak_allocated && e->device_low <= e->device_high);
    e->budget_bytes = w->job->settings->budget;
    e->over_budget = e->budget_bytes && e->reserved_high > e->budget_bytes;
    return list_context(w, &v.context);
}

/* ---- what is live at the peak -------------------------------------------------------- */

typedef struct by_size {
    uint64_t bytes;
    uint32_t id;
} by_size;

static int compare_sizes(const void *a, const void *b)
{
    const by_size *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->id > y->id ? 1 : -1;
}

static void describe_storage(const plim_storage *s, plim_live *out)
{
    *out = (plim_live){.role = s->role ? s->role : "",
                       .category = (plim_category)s->category,
                       .certainty = (plim_certainty)s->certainty,
                       .bytes = s->bytes};
    if (!s->meta)
        return;
    out->dtype = s->meta->dtype;
    out->rank = s->meta->rank;
    memcpy(out->dim, s->meta->dim, sizeof out->dim);
}

PLIM__LIST(live_list, plim_live)
PLIM__LIST(phase_list, plim_phase_row)
PLIM__LIST(bucket_list, plim_bucket)

static plim_status list_live(work *w)
{
    uint32_t n = w->sim.n_live;
    uint64_t *category = PLIM_NEW_N(w->a, uint64_t, PLIM_CAT_COUNT);
    uint64_t *certainty = PLIM_NEW_N(w->a, uint64_t, PLIM_CERTAINTY_COUNT);
    by_size *order = PLIM_NEW_N(w->scratch, by_size, n);
    plim_live *live = PLIM_NEW_N(w->a, plim_live, n);
    if (!order || !live || !category || !certainty)
        return plim_oom(w->err);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (by_size){w->tape.storages[w->sim.live[i]].bytes, w->sim.live[i]};
    qsort(order, n, sizeof *order, compare_sizes);
    for (uint32_t i = 0; i < n; i++) {
        const plim_storage *s = &w->tape.storages[order[i].id];
        describe_storage(s, &live[i]);
        if (!(live[i].name = plim__cstr(w->a, s->name)))
            return plim_oom(w->err);
        category[live[i].category] += s->bytes;
        certainty[live[i].certainty] += s->bytes;
        w->e->peak_live_requested += s->bytes;
        if (s->category == PLIM_CAT_OPTIMIZER_STATE && !strcmp(live[i].role, PLIM_EMA_ROLE))
            w->e->ema += s->bytes;
    }
    plim_assert(w->e->ema <= category[PLIM_CAT_OPTIMIZER_STATE]);
    w->e->category = category;
    w->e->n_categories = PLIM_CAT_COUNT;
    w->e->certainty = certainty;
    w->e->n_certainties = PLIM_CERTAINTY_COUNT;
    w->e->live = live_list(w->a, live, n);
    w->e->n_live = n;
    return w->e->live ? PLIM_OK : plim_oom(w->err);
}

/* ---- phases and timeline ---------------------------------------------------------------- */

/* zero_grad is not shown as a phase: it counts as the start of the forward pass that
 * follows or, in loops that end with it, as the end of the phase before. */
static uint8_t choose_phase(const plim_tape *t, uint32_t mark)
{
    plim_assert(mark < t->n_marks);
    const plim_mark *m = &t->marks[mark];
    if (m->phase != PLIM_PHASE_ZERO_GRAD)
        return m->phase;
    bool before = mark + 1 < t->n_marks && m[1].phase == PLIM_PHASE_FORWARD;
    return before || !mark ? (uint8_t)PLIM_PHASE_FORWARD : m[-1].phase;
}

static plim_status list_phases(work *w)
{
    const plim_tape *t = &w->tape;
    plim_phase_row *rows = NULL;
    uint32_t n = 0, cap = 0;
    for (uint32_t i = 0; i < w->sim.n_rows; i++) {
        plim_phase_row r = w->sim.rows[i];
        r.phase = (plim_phase)choose_phase(t, i);
        plim_phase_row *last = n ? &rows[n - 1] : NULL;
        if (last && last->step == r.step && last->phase == r.phase) {
            r.peak_requested = PLIM_MAX(r.peak_requested, last->peak_requested);
            r.peak_allocated = PLIM_MAX(r.peak_allocated, last->peak_allocated);
            r.peak_reserved = PLIM_MAX(r.peak_reserved, last->peak_reserved);
            *last = r;
            continue;
        }
        if (!PLIM_PUSH_ROOM(w->a, rows, n, cap))
            return plim_oom(w->err);
        rows[n++] = r;
    }
    w->e->phases = phase_list(w->a, rows, n);
    w->e->n_phases = n;
    return w->e->phases ? PLIM_OK : plim_oom(w->err);
}

static plim_status list_timeline(work *w)
{
    uint32_t n = w->sim.n_buckets;
    plim_bucket *buckets = PLIM_NEW_N(w->a, plim_bucket, n + 1u);
    if (!buckets)
        return plim_oom(w->err);
    if (n)
        memcpy(buckets, w->sim.buckets, n * sizeof *buckets);
    w->e->buckets = bucket_list(w->a, buckets, n);
    w->e->n_buckets = n;
    w->e->peak_bucket = w->sim.peak_bucket;
    return w->e->buckets ? PLIM_OK : plim_oom(w->err);
}

static plim_status name_peak(work *w)
{
    const plim_tape *t = &w->tape;
    uint32_t mark = 0;
    while (mark + 1 < t->n_marks && t->marks[mark + 1].first <= w->sim.peak_allocated_event)
        mark++;
    if (t->n_marks) {
        w->e->peak_step = t->marks[mark].step;
        w->e->peak_phase = (plim_phase)choose_phase(t, mark);
    }
    w->e->peak_op = plim__cstr(w->a, t->n_marks ? t->marks[mark].op : PLIM_STR(""));
    return w->e->peak_op ? PLIM_OK : plim_oom(w->err);
}

/* Adds up the activations that are live when the first backward pass begins. */
static void sum_saved(work *w)
{
    const plim_tape *t = &w->tape;
    uint32_t mark = 0, end;
    while (mark < t->n_marks && t->marks[mark].phase != PLIM_PHASE_BACKWARD)
        mark++;
    end = mark < t->n_marks ? t->marks[mark].first : 0;
    for (uint32_t i = 0; i < end; i++) {
        const plim_event *ev = &t->events[i];
        bool alloc = ev->kind == PLIM_EVENT_ALLOC;
        if (!alloc && ev->kind != PLIM_EVENT_FREE)
            continue; /* its id is not a storage, or nothing changes */
        const plim_storage *s = &t->storages[ev->id];
        if (s->category == PLIM_CAT_ACTIVATION)
            w->e->saved_activations += alloc ? s->bytes : -s->bytes;
    }
}

/* ---- FLOPs -------------------------------------------------------------------------------- */

/* The number of values of an argument that want a gradient. */
static uint32_t count_differentiable(const plim_arg *a, const bool *wants)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plim_arg_values(a); i++) {
        uint32_t id = plim_arg_value(a, i);
        n += id != PLIM_NONE && wants[id];
    }
    return n;
}

/* `wants` spreads from the parameters forward.  The backward pass of a matrix product is
 * one product of the same size for each operand that wants a gradient; any other op costs
 * about as much as its forward pass. */
static plim_status count_flops(work *w)
{
    const plim_graph *g = &w->g;
    bool *wants = PLIM_NEW_N(w->scratch, bool, g->n_values);
    if (!wants)
        return plim_oom(w->err);
    for (uint32_t i = 0; i < g->n_values; i++)
        wants[i] = g->values[i].kind == PLIM_VALUE_PARAMETER && g->values[i].requires_grad;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        plim_cost c;
        uint32_t operands = 0, all = 0;
        plim_op_cost(g, n, &c);
        for (uint32_t k = 0; k < n->n_args; k++) {
            all += count_differentiable(&n->args[k], wants);
            operands += k < 2 ? count_differentiable(&n->args[k], wants) : 0;
        }
        for (uint32_t k = 0; k < n->n_outs; k++)
            wants[n->outs[k]] = all > 0;
        w->e->forward_macs = plim_sat_add(w->e->forward_macs, c.macs);
        w->e->flops_forward = plim_sat_add(w->e->flops_forward, c.flops);
        for (uint32_t k = 0; !w->job->step.infer && k < (c.macs ? operands : all > 0); k++)
            w->e->flops_backward = plim_sat_add(w->e->flops_backward, c.flops);
    }
    return PLIM_OK;
}

/* ---- advice -------------------------------------------------------------------------------- */

PLIM__LIST(change_list, plim_change)

static plim_status list_changes(work *w)
{
    plim_advice advice;
    PLIM_TRY(plim_advice_make(w->job, &w->g, &w->tape, w->e, w->a, &advice, w->err));
    w->e->advice = advice.text.p;
    w->e->changes = change_list(w->a, advice.rows, advice.n);
    w->e->n_changes = advice.n;
    return w->e->changes ? PLIM_OK : plim_oom(w->err);
}

/* ---- ranks ---------------------------------------------------------------------------------- */

PLIM__LIST(rank_list, plim_rank)

static int compare_ranks(const void *a, const void *b)
{
    const plim_rank *const x = a, *const y = b;
    const uint64_t mine[] = {x->peak_reserved, x->peak_allocated, x->peak_requested},
                   other[] = {y->peak_reserved, y->peak_allocated, y->peak_requested};
    for (size_t i = 0; i < PLIM_COUNT(mine); i++)
        if (mine[i] != other[i])
            return mine[i] < other[i] ? 1 : -1;
    return 0;
}

/* Simulates some of the groups, while others simulate the rest. */
typedef struct rank_worker {
    plim_job job; /* a copy: about one rank after the other */
    const plim_share_group *groups;
    plim_rank *rows; /* of all groups */
    uint32_t first, step, n;
    plim_arena scratch;
    plim_status st;
    plim_err err;
    plim_task task;
} rank_worker;

enum { MOST_WORKERS = 16 };

static plim_status run_rank(rank_worker *w, int64_t rank, plim_rank *out)
{
    plim_tape tape;
    plim_verdict v;
    plim_step_info info;
    plim_graph g;
    plim_share_place(&w->job.step.share, rank);
    plim_arena_reset(&w->scratch);
    PLIM_TRY(plim_job_graph(&w->job, 0, &w->scratch, &g, &w->err));
    PLIM_TRY(plim_job_tape(&w->job, &g, &w->scratch, &tape, &info, &w->err));
    PLIM_TRY(plim_verdict_of(&w->job, &tape, 0, false, &w->scratch, &v, &w->err));
    out->peak_requested = v.sim.peak_requested;
    out->peak_allocated = v.sim.peak_allocated;
    out->peak_reserved = v.reserved;
    out->fits = v.fits;
    return PLIM_OK;
}

/* The first worker, whose thread is the caller's, reports the progress. */
static void run_groups(void *worker)
{
    rank_worker *w = worker;
    for (uint32_t i = w->first; i < w->n && !w->st; i += w->step) {
        if (!w->first)
            w->st = plim_job_progress(&w->job, i, w->n, w->rows[i].ranks, &w->err);
        if (!w->st)
            w->st = run_rank(w, w->groups[i].first, &w->rows[i]);
    }
}

static plim_status run_ranks(work *w, const plim_share_group *groups, uint32_t n,
                             plim_rank *rows)
{
    uint32_t wide = PLIM_MIN(PLIM_MIN(plim_os_processors(), MOST_WORKERS), n);
    plim_assert(wide > 0);
    rank_worker *workers = PLIM_NEW_N(w->scratch, rank_worker, wide);
    const rank_worker *failed = NULL;
    if (!workers)
        return plim_oom(w->err);
    for (uint32_t k = wide; k-- > 0;) {
        workers[k] = (rank_worker){.job = *w->job,
                                   .groups = groups,
                                   .rows = rows,
                                   .first = k,
                                   .step = wide,
                                   .n = n,
                                   .scratch = PLIM_ARENA_INIT,
                                   .err = PLIM_ERR_INIT};
        plim_task_start(&workers[k].task, run_groups, &workers[k], k != 0);
    }
    for (uint32_t k = 0; k < wide; k++) {
        plim_task_wait(&workers[k].task);
        plim_arena_free(&workers[k].scratch);
        failed = failed ? failed : workers[k].st ? &workers[k] : NULL;
    }
    return failed ? plim_fail(w->err, failed->err.code, failed->err.at, "%s", failed->err.msg)
                  : PLIM_OK;
}

typedef struct rank_graphs {
    const plim_graph *first; /* that of rank 0, which is there */
    plim_job job;            /* a copy */
    plim_arena scratch;
    plim_graph made;
} rank_graphs;

static plim_status make_rank_graph(void *ud, int64_t rank, const plim_graph **g, plim_err *err)
{
    rank_graphs *graphs = ud;
    *g = rank ? &graphs->made : graphs->first;
    if (!rank)
        return PLIM_OK;
    plim_share_place(&graphs->job.step.share, rank);
    plim_arena_reset(&graphs->scratch);
    return plim_job_graph(&graphs->job, 0, &graphs->scratch, &graphs->made, err);
}

/* Simulates a rank of each group, and goes on as the worst. */
static plim_status list_ranks(work *w)
{
    plim_share *s = &w->job->step.share;
    plim_share_group *groups = NULL;
    uint32_t n = 0, worst = 0;
    if (!s->every_rank)
        return PLIM_OK;
    s->every_rank = false; /* from here on it is about one after the other */
    rank_graphs graphs = {.first = &w->g, .job = *w->job, .scratch = PLIM_ARENA_INIT};
    plim_status st =
        plim_share_groups(w->scratch, s, make_rank_graph, &graphs, &groups, &n, w->err);
    plim_arena_free(&graphs.scratch);
    plim_rank *rows = st ? NULL : PLIM_NEW_N(w->a, plim_rank, n);
    if (st || !rows)
        return st ? st : plim_oom(w->err);
    for (uint32_t i = 0; i < n; i++) {
        rows[i].ranks = plim__cstr(w->a, groups[i].ranks);
        rows[i].count = (uint64_t)groups[i].n;
        if (!rows[i].ranks)
            return plim_oom(w->err);
    }
    if ((st = run_ranks(w, groups, n, rows)))
        return st;
    for (uint32_t i = 1; i < n; i++)
        if (compare_ranks(&rows[worst], &rows[i]) > 0)
            worst = i;
    plim_share_place(s, groups[worst].first);
    qsort(rows, n, sizeof *rows, compare_ranks);
    w->e->ranks = rank_list(w->a, rows, n);
    w->e->n_ranks = n;
    return w->e->ranks ? plim_job_graph(w->job, 0, w->scratch, &w->g, w->err)
                       : plim_oom(w->err);
}

/* ---- all of it --------------------------------------------------------------------------- */

static plim_status estimate_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    work state = {.job = job, .a = a, .scratch = job->scratch, .e = pub, .err = err},
         *w = &state;
    plim_step_info info;
    w->e->size = sizeof *w->e;
    plim_status st = plim_job_card(job, err);
    job->step.untimed = !job->gpu || plim_share_exchanges(&job->step.share);
    if (!st)
        st = plim_job_graph(job, 0, w->scratch, &w->g, err);
    if (!st)
        st = list_ranks(w);
    if (!st)
        st = plim_job_note(job, &w->g, err);
    if (!st)
        st = plim__model_info(a, &w->g, &w->e->model, err);
    if (!st)
        st = plim__unknown_targets(a, &w->g, &w->e->unknown_ops, &w->e->n_unknown_ops, err);
    if (!st)
        st = plim_job_tape(job, &w->g, w->scratch, &w->tape, &info, err);
    if (!st)
        st = plim_job_resolve(job, &w->g, &info, err);
    if (!st)
        st = plim_job_assumed(job, &w->g, &info, a, &w->e->assumed, err);
    if (!st && job->settings->gpu) /* replaces an alias */
        st = plim_settings_put(job->settings, PLIM_SET_gpu, job->gpu->name, err);
    w->e->settings = job->settings;
    if (!st)
        st = judge_tape(w);
    if (!st)
        st = list_live(w);
    if (!st)
        st = list_phases(w);
    if (!st)
        st = list_timeline(w);
    if (!st)
        st = name_peak(w);
    if (!st) {
        sum_saved(w);
        st = count_flops(w);
    }
    if (!st)
        w->e->time = plim__step_time(job, &w->g, &info.ledger);
    if (!st)
        st = list_changes(w);
    return st;
}

plim_status plim_estimate_run(const plim_model *m, const plim_settings *s, plim_estimate **out,
                              plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(estimate_result), offsetof(estimate_result, arena), m, s,
                              estimate_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_estimate_free(plim_estimate *e)
{
    plim__result_free(e, offsetof(estimate_result, arena));
}
