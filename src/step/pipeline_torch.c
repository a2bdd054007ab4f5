/* pipeline_torch.c -- torch.distributed.pipelining's schedules of a pipeline: see pipeline.h.
 *
 *     schedule.step(x)     micro-batches run forward and backward in the order of the schedule
 *
 * What a stage receives has a buffer for each micro-batch, made in the first step: activations
 * first, then gradients.  A micro-batch's output and autograd graph live until its backward pass,
 * losses until the step's end.  A tensor that was sent lives as long as the schedule has a name for
 * what sends it.
 * src: torch 2.13 torch/distributed/pipelining/schedules.py, stage.py */
#include "op/rules.h"
#include "step/pipeline.h"

static void make_buffers(plim_run *r)
{
    const plim_pipeline *p = r->pipeline;
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received"), NULL, PLIM_CAT_ACTIVATION);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; plim_stage_receives(&p->stages[i]) && k < p->microbatches; k++)
            p->stages[i].flights[k].activation =
                plim_stage_buffer(r, p->stages[i].chunk->received);
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received gradient"), NULL, PLIM_CAT_TEMPORARY);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; p->stages[i].chunk->sends && k < p->microbatches; k++)
            p->stages[i].flights[k].gradient =
                plim_stage_buffer(r, r->g->outputs[p->stages[i].chunk->output]);
}

static void take_inputs(plim_run *r, const plim_stage *s, plim_flight *f)
{
    const plim_graph *g = r->g;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        if (v->received && g->inputs[i] != s->chunk->received)
            continue;
        plim_meta meta = v->received ? *plim_m_meta(r->m, f->activation)
                                     : plim_step_meta(r->s->dtype, &v->meta);
        plim_t view = plim_m_alias(r->m, v->received ? f->activation : r->held->x[i], &meta);
        f->x[i] =
            v->received ? plim_m_as_input(r->m, view) : plim_m_as_leaf(r->m, view, false);
    }
}

static void run_forward(plim_run *r, const plim_stage *s, uint32_t k)
{
    take_inputs(r, s, &s->flights[k]);
    plim_stage_forward(r, s, k);
}

/* What was received, which is one of the inputs; 0: nothing. */
static plim_t find_received(const plim_run *r, const plim_stage *s, const plim_flight *f)
{
    for (uint32_t i = 0; i < r->g->n_inputs; i++)
        if (r->g->inputs[i] == s->chunk->received)
            return f->x[i];
    return 0;
}

static void run_backward(plim_run *r, const plim_stage *s, uint32_t k)
{
    plim_flight *f = &s->flights[k];
    plim_t received = find_received(r, s, f);
    plim_stage_backward(r, s, k);
    f->sent_back = plim_m_ref(r->m, plim_m_grad(r->m, received));
    plim_m_set_grad(r->m, received, 0);
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

/* ---- backward passes in two parts ------------------------------------------------------------- */

/* Those that the stage's nodes read. */
static bool *mark_params(plim_run *r, const plim_stage *s)
{
    const plim_graph *g = r->g;
    bool *read = PLIM_NEW_N(r->a, bool, (uint64_t)g->n_values + 1);
    for (uint32_t i = s->first; read && i < s->last; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args; k++)
            for (uint32_t j = 0; j < plim_arg_values(&g->nodes[i].args[k]); j++) {
                uint32_t id = plim_arg_value(&g->nodes[i].args[k], j);
                if (id != PLIM_NONE)
                    read[id] = g->values[id].kind == PLIM_VALUE_PARAMETER &&
                               g->values[id].requires_grad;
            }
    return read;
}

static void list_params(plim_run *r, plim_stage *s)
{
    const plim_shared *x = &r->shared;
    bool *read = s->params ? NULL : mark_params(r, s);
    if (s->params)
        return;
    if (!read || !(s->params = PLIM_NEW_N(r->a, plim_t, (uint64_t)x->n_order + 1))) {
        plim_m_oom(r->m);
        return;
    }
    for (uint32_t i = 0; i < x->n_order; i++)
        if (read[x->order[i]])
            s->params[s->n_params++] = r->value[x->order[i]];
}

static void detach_tensor(plim_run *r, plim_t *t)
{
    plim_t detached = *t ? plim_m_detached(r->m, *t) : 0;
    plim_m_drop(r->m, *t);
    *t = detached;
}

/* The first stage, whose input has no gradient, leaves all for the second part. */
static void run_backward_input(plim_run *r, plim_stage *s, uint32_t k)
{
    plim_flight *f = &s->flights[k];
    plim_t received = find_received(r, s, f);
    if (!received)
        return;
    list_params(r, s);
    plim_run_mark(r, PLIM_PHASE_BACKWARD, PLIM_STR("loss"));
    f->split = plim_m_backward_input(r->m, s->chunk->sends ? f->out : f->loss, f->gradient,
                                     received, s->params, s->n_params, plim_run_visit, r);
    f->sent_back = plim_m_ref(r->m, plim_m_grad(r->m, received));
    f->added = plim_m_ref(r->m, f->sent_back); /* the second part does not clear it */
    detach_tensor(r, &f->loss);
    if (s->chunk->sends)
        detach_tensor(r, &f->out);
    else
        plim_run_release(r, &f->out, 1);
}

static void run_backward_params(plim_run *r, plim_stage *s, uint32_t k)
{
    plim_flight *f = &s->flights[k];
    plim_t received = find_received(r, s, f);
    if (!received) {
        run_backward(r, s, k);
        return;
    }
    plim_run_mark(r, PLIM_PHASE_BACKWARD, PLIM_STR("parameters"));
    plim_m_backward_params(r->m, f->split, plim_run_visit, r);
    f->split = NULL;
    plim_m_set_grad(r->m, received, 0);
    plim_run_release(r, f->x, PLIM_RUN_INPUTS);
    plim_run_release(r, &f->out, 1);
}

/* ---- schedules of one stage -------------------------------------------------------------------- */

static void run_gpipe(plim_run *r)
{
    const plim_stage *s = &r->pipeline->stages[0];
    uint32_t n = r->pipeline->microbatches;
    for (uint32_t k = 0; k < n; k++) {
        run_forward(r, s, k);
        s->flights[k].sent = s->chunk->sends ? plim_m_detached(r->m, s->flights[k].out) : 0;
    }
    for (uint32_t k = 0; k < n; k++)
        run_backward(r, s, k);
}

/* The last forward pass but one of the warm-up is sent by itself, and its name is rebound once all
 * forward passes have run; others are sent together with what is received. */
static void run_1f1b(plim_run *r)
{
    const plim_share *share = &r->s->share;
    const plim_stage *s = &r->pipeline->stages[0];
    uint32_t n = r->pipeline->microbatches;
    uint32_t ahead =
        (uint32_t)PLIM_MIN(n, share->size[PLIM_AXIS_pp] - share->at[PLIM_AXIS_pp]);
    plim_flight *f = s->flights;
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
    const plim_stage *s = &r->pipeline->stages[at];
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

typedef enum action { FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_PARAMS } action;

/* The stage and the micro-batch of the n-th forward pass: rounds of micro-batches go through all
 * stages of the rank.  Backward passes take the stages the other way round. */
static void act_nth(plim_run *r, uint32_t n, uint32_t round, action what)
{
    const plim_pipeline *p = r->pipeline;
    uint32_t at = n / round % p->n, k = n / (round * p->n) * round + n % round;
    plim_stage *back = &p->stages[p->n - 1 - at];
    plim_assert(at < p->n && k < p->microbatches);
    switch (what) {
    case FORWARD: act_forward(r, at, k); break;
    case BACKWARD: run_backward(r, back, k); break;
    case BACKWARD_INPUT: run_backward_input(r, back, k); break;
    case BACKWARD_PARAMS: run_backward_params(r, back, k); break;
    }
}

static uint32_t count_round(const plim_run *r)
{
    const plim_pipeline *p = r->pipeline;
    uint32_t ranks = (uint32_t)r->s->share.size[PLIM_AXIS_pp];
    return p->microbatches / PLIM_MAX(1, p->microbatches / ranks);
}

static void run_interleaved(plim_run *r)
{
    const plim_share *s = &r->s->share;
    const plim_pipeline *p = r->pipeline;
    uint32_t ranks = (uint32_t)s->size[PLIM_AXIS_pp], n = p->n * p->microbatches;
    uint32_t round = count_round(r);
    uint32_t ahead = (p->n - 1) * round + 2 * (ranks - 1 - (uint32_t)s->at[PLIM_AXIS_pp]);
    ahead = PLIM_MIN(ahead, n);
    for (uint32_t i = 0; i < ahead; i++)
        act_nth(r, i, round, FORWARD);
    for (uint32_t i = 0; i < n; i++) {
        if (ahead + i < n)
            act_nth(r, ahead + i, round, FORWARD);
        act_nth(r, i, round, BACKWARD);
    }
}

/* Gradients of parameters follow those of inputs by as many micro-batches as the rank's number, where
 * other ranks would wait. */
static void run_zero_bubble(plim_run *r)
{
    const plim_share *s = &r->s->share;
    const plim_pipeline *p = r->pipeline;
    uint32_t at = (uint32_t)s->at[PLIM_AXIS_pp], n = p->n * p->microbatches,
             round = count_round(r);
    uint32_t ahead = (p->n - 1) * round + (uint32_t)s->size[PLIM_AXIS_pp] - 1 - at;
    ahead = PLIM_MIN(ahead, n);
    for (uint32_t i = 0; i < ahead; i++)
        act_nth(r, i, round, FORWARD);
    for (uint32_t i = 0; i < n + at; i++) {
        if (ahead + i < n)
            act_nth(r, ahead + i, round, FORWARD);
        if (i < n)
            act_nth(r, i, round, BACKWARD_INPUT);
        if (i >= at)
            act_nth(r, i - at, round, BACKWARD_PARAMS);
    }
}

/* ---- the step ---------------------------------------------------------------------------------- */

static void (*const schedules[])(plim_run *r) = {
    [PLIM_SCHEDULE_1F1B] = run_1f1b,
    [PLIM_SCHEDULE_GPIPE] = run_gpipe,
    [PLIM_SCHEDULE_INTERLEAVED] = run_interleaved,
    [PLIM_SCHEDULE_LOOPED] = run_looped,
    [PLIM_SCHEDULE_ZERO_BUBBLE] = run_zero_bubble,
};

/* Buffers for what is received are made in the first step, and the batch of all micro-batches is on the
 * card from the start. */
void plim_run_torch(plim_run *r)
{
    plim_assert(r->s->share.schedule < PLIM_COUNT(schedules));
    plim_run_fetch(r, 1);
    plim_run_zero_grads(r);
    if (!r->step)
        make_buffers(r);
    for (uint32_t i = 0; i < r->pipeline->n; i++) /* clear_runtime_states() */
        for (uint32_t k = 0; k < r->pipeline->microbatches; k++)
            plim_run_release(r, &r->pipeline->stages[i].flights[k].added, 1);
    plim_batch part = {.y = r->held->y};
    r->now = &part;
    schedules[r->s->share.schedule](r);
    plim_shared_reduce(&r->shared);
    r->now = r->held;
}
