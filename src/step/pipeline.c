/* pipeline.c -- a step of one rank of a pipeline, which has one stage or several.
 *
 *     schedule.step(x)     micro-batches run forward and backward in the order of the schedule
 *
 * What a stage receives has a buffer for each micro-batch, made in the first step: activations
 * first, then gradients.  A micro-batch's output and autograd graph live until its backward pass,
 * losses until the step's end.  A tensor that was sent lives as long as the schedule has a name for
 * what sends it.
 * src: torch 2.13 torch/distributed/pipelining/schedules.py, stage.py */
#include "op/rules.h"
#include "step/run.h"

/* A micro-batch in a stage. */
typedef struct flight {
    plim_t x[PLIM_RUN_INPUTS];   /* views of the batch, or what is received; owned */
    plim_t activation, gradient; /* the buffers, owned; 0: nothing is received */
    plim_t out, loss;            /* owned */
    plim_t sent, sent_back;      /* an output, the gradient of what was received: owned */
} flight;

typedef struct stage {
    const plim_chunk *chunk;
    uint32_t first, last; /* its nodes, [first, last) */
    flight *flights;      /* by micro-batch */
} stage;

struct plim_pipeline {
    stage *stages;
    uint32_t n;            /* of this rank */
    uint32_t microbatches; /* of a step */
    uint32_t passes;       /* backward passes of a step so far */
};

static bool has_sender(const stage *s) { return s->chunk->received != PLIM_NONE; }

/* What a stage hands on is in the type in which its modules compute. */
static plim_meta handed_meta(const plim_run *r, const plim_value *v)
{
    plim_meta meta = plim_step_meta(r->s->dtype, &v->meta);
    return plim_meta_like(&meta, plim_strategy_computes(&r->s->share.strategy, meta.dtype));
}

static plim_t make_buffer(plim_run *r, uint32_t value)
{
    plim_meta meta = handed_meta(r, &r->g->values[value]);
    plim_meta_contiguous(&meta);
    return plim_m_leaf(r->m, &meta, false);
}

static void make_buffers(plim_run *r)
{
    const plim_pipeline *p = r->pipeline;
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received"), NULL, PLIM_CAT_ACTIVATION);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; has_sender(&p->stages[i]) && k < p->microbatches; k++)
            p->stages[i].flights[k].activation = make_buffer(r, p->stages[i].chunk->received);
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received gradient"), NULL, PLIM_CAT_TEMPORARY);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; p->stages[i].chunk->sends && k < p->microbatches; k++)
            p->stages[i].flights[k].gradient =
                make_buffer(r, r->g->outputs[p->stages[i].chunk->output]);
}

static void take_inputs(plim_run *r, const stage *s, flight *f)
{
    const plim_graph *g = r->g;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        if (v->received && g->inputs[i] != s->chunk->received)
            continue;
        plim_meta meta =
            v->received ? handed_meta(r, v) : plim_step_meta(r->s->dtype, &v->meta);
        plim_t view = plim_m_alias(r->m, v->received ? f->activation : r->held->x[i], &meta);
        f->x[i] = plim_m_as_leaf(r->m, view, v->received);
    }
}

static void run_forward(plim_run *r, const stage *s, uint32_t k)
{
    flight *f = &s->flights[k];
    const plim_chunk *c = s->chunk;
    plim_m_set_grad_mode(r->m, true);
    take_inputs(r, s, f);
    memcpy(r->now->x, f->x, sizeof f->x);
    plim_run_stage(r, c, s->first, s->last);
    plim_m_set_grad_mode(r->m, false);
    f->out = plim_m_ref(r->m, r->out[c->output + c->n_outputs - 1]);
    if (!c->sends)
        f->loss = plim_m_ref(r->m, r->out[c->output]);
}

static void keep_input_gradient(plim_run *r, const stage *s, flight *f)
{
    for (uint32_t i = 0; i < r->g->n_inputs; i++)
        if (r->g->inputs[i] == s->chunk->received) {
            f->sent_back = plim_m_ref(r->m, plim_m_grad(r->m, f->x[i]));
            plim_m_set_grad(r->m, f->x[i], 0);
        }
}

static void run_backward(plim_run *r, const stage *s, uint32_t k)
{
    plim_pipeline *p = r->pipeline;
    flight *f = &s->flights[k];
    r->shared.more_passes = ++p->passes < p->n * p->microbatches;
    plim_run_mark(r, PLIM_PHASE_BACKWARD, PLIM_STR("loss"));
    plim_m_backward(r->m, s->chunk->sends ? f->out : f->loss, f->gradient, plim_run_visit, r);
    keep_input_gradient(r, s, f);
    plim_run_release(r, f->x, PLIM_RUN_INPUTS);
    plim_run_release(r, &f->out, 1);
    if (s->chunk->sends)
        return;
    for (uint32_t i = s->chunk->output; i < s->chunk->output + s->chunk->n_outputs; i++) {
        plim_t detached = /* for t in stage_output: t.detach_() */
            r->out[i] ? plim_m_detached(r->m, r->out[i]) : 0;
        plim_run_release(r, &r->out[i], 1);
        r->out[i] = detached;
    }
}

/* ---- schedules of one stage -------------------------------------------------------------------- */

static void run_gpipe(plim_run *r)
{
    const stage *s = &r->pipeline->stages[0];
    uint32_t n = r->pipeline->microbatches;
    for (uint32_t k = 0; k < n; k++) {
        run_forward(r, s, k);
        s->flights[k].sent = s->chunk->sends ? plim_m_detached(r->m, s->flights[k].out) : 0;
    }
    for (uint32_t k = 0; k < n; k++)
        run_backward(r, s, k);
}

/* The last forward pass but one of the warm-up is sent by itself, and its name is bound anew once all
 * forward passes have run; others are sent together with what is received. */
static void run_1f1b(plim_run *r)
{
    const plim_share *share = &r->s->share;
    const stage *s = &r->pipeline->stages[0];
    uint32_t n = r->pipeline->microbatches;
    uint32_t ahead =
        (uint32_t)PLIM_MIN(n, share->size[PLIM_AXIS_pp] - share->at[PLIM_AXIS_pp]);
    flight *f = s->flights;
    for (uint32_t k = 0; k < ahead; k++)
        run_forward(r, s, k);
    if (ahead > 1 && s->chunk->sends)
        f[ahead - 2].sent = plim_m_detached(r->m, f[ahead - 2].out);
    for (uint32_t k = 0; k < n; k++) {
        run_backward(r, s, k);
        if (k)
            plim_run_release(r, &f[k - 1].sent_back, 1);
        if (k + ahead < n)
            run_forward(r, s, k + ahead);
        else if (ahead > 1)
            plim_run_release(r, &f[ahead - 2].sent, 1);
    }
}

/* ---- schedules of several stages ---------------------------------------------------------------- */

/* An action of the schedule: names end with it, all that was sent lives until the step's end. */
static void act_forward(plim_run *r, uint32_t at, uint32_t k)
{
    const stage *s = &r->pipeline->stages[at];
    run_forward(r, s, k);
    plim_run_release(r, r->out + s->chunk->output, s->chunk->n_outputs);
    if (s->chunk->sends)
        s->flights[k].sent = plim_m_detached(r->m, s->flights[k].out);
}

static void run_looped(plim_run *r)
{
    const plim_pipeline *p = r->pipeline;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->microbatches; k++)
            act_forward(r, i, k);
    for (uint32_t i = p->n; i-- > 0;)
        for (uint32_t k = p->microbatches; k-- > 0;)
            run_backward(r, &p->stages[i], k);
}

/* The stage and the micro-batch of the n-th forward pass: rounds of micro-batches go through all
 * stages of the rank.  Backward passes take the stages the other way round. */
static void act_nth(plim_run *r, uint32_t n, uint32_t round, bool backward)
{
    const plim_pipeline *p = r->pipeline;
    uint32_t at = n / round % p->n, k = n / (round * p->n) * round + n % round;
    if (backward)
        run_backward(r, &p->stages[p->n - 1 - at], k);
    else
        act_forward(r, at, k);
}

static void run_interleaved(plim_run *r)
{
    const plim_share *s = &r->s->share;
    const plim_pipeline *p = r->pipeline;
    uint32_t ranks = (uint32_t)s->size[PLIM_AXIS_pp], n = p->n * p->microbatches;
    uint32_t round = p->microbatches / PLIM_MAX(1, p->microbatches / ranks);
    uint32_t ahead = (p->n - 1) * round + 2 * (ranks - 1 - (uint32_t)s->at[PLIM_AXIS_pp]);
    ahead = PLIM_MIN(ahead, n);
    for (uint32_t i = 0; i < ahead; i++)
        act_nth(r, i, round, false);
    for (uint32_t i = 0; i < n; i++) {
        if (ahead + i < n)
            act_nth(r, ahead + i, round, false);
        act_nth(r, i, round, true);
    }
}

static void (*const schedules[])(plim_run *r) = {
    [PLIM_SCHEDULE_1F1B] = run_1f1b,
    [PLIM_SCHEDULE_GPIPE] = run_gpipe,
    [PLIM_SCHEDULE_INTERLEAVED] = run_interleaved,
    [PLIM_SCHEDULE_LOOPED] = run_looped,
};

/* ---- the step -------------------------------------------------------------------------------------- */

/* The nodes of each stage, which follow one another. */
static void find_nodes(const plim_graph *g, plim_pipeline *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        p->stages[i].first = p->stages[i].last = g->n_nodes;
    p->stages[0].first = 0;
    for (uint32_t i = 0, at = 0; i < g->n_nodes && p->n > 1; i++) {
        uint32_t s = g->nodes[i].scope;
        while (g->scopes[s].parent)
            s = g->scopes[s].parent;
        while (at < p->n && p->stages[at].chunk->scope != s)
            p->stages[at++].last = i;
        plim_assert(at < p->n);
        p->stages[at].first = PLIM_MIN(p->stages[at].first, i);
    }
}

void plim_run_pipelined(plim_run *r)
{
    const plim_graph *g = r->g;
    plim_pipeline *p = PLIM_NEW(r->a, plim_pipeline);
    if (!g->n_chunks)
        return;
    if (!p || !(p->stages = PLIM_NEW_N(r->a, stage, g->n_chunks))) {
        plim_m_oom(r->m);
        return;
    }
    p->n = g->n_chunks;
    p->microbatches = (uint32_t)r->s->share.microbatches;
    for (uint32_t i = 0; i < p->n; i++) {
        p->stages[i].chunk = &g->chunks[i];
        if (!(p->stages[i].flights = PLIM_NEW_N(r->a, flight, p->microbatches)))
            plim_m_oom(r->m);
    }
    find_nodes(g, p);
    r->pipeline = p;
    r->shared.defers = true;
    const plim_chunk *last = &g->chunks[p->n - 1];
    if (!last->sends) /* the model's outputs are its loss and others: stage.c */
        r->loss_at = g->values[g->outputs[last->output + last->n_outputs - 1]].node + 1;
}

void plim_run_pipeline(plim_run *r)
{
    plim_pipeline *p = r->pipeline;
    plim_run_fetch(r, 1);
    plim_run_zero_grads(r);
    if (!r->step)
        make_buffers(r);
    plim_batch part = {.y = r->held->y};
    r->now = &part;
    p->passes = 0;
    schedules[r->s->share.schedule](r);
    plim_shared_reduce(&r->shared);
    r->now = r->held;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->microbatches; k++) {
            flight *f = &p->stages[i].flights[k];
            plim_t *rest[] = {&f->loss, &f->sent, &f->sent_back};
            for (size_t j = 0; j < PLIM_COUNT(rest); j++)
                plim_run_release(r, rest[j], 1);
        }
    plim_run_release(r, r->out, r->g->n_outputs);
}
