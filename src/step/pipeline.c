/* pipeline.c -- a step of one stage of a pipeline.
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

struct plim_flight {
    plim_t x[PLIM_RUN_INPUTS];   /* views of the batch, or what is received; owned */
    plim_t activation, gradient; /* the buffers, owned; 0: nothing is received */
    plim_t out, loss;            /* owned */
    plim_t sent, sent_back;      /* an output, the gradient of what was received: owned */
};

static bool has_sender(const plim_run *r) { return r->s->share.at[PLIM_AXIS_pp] > 0; }
bool plim_run_sends(const plim_run *r)
{
    return r->s->share.at[PLIM_AXIS_pp] + 1 < r->s->share.size[PLIM_AXIS_pp];
}

static uint32_t count_flights(const plim_run *r) { return (uint32_t)r->s->share.microbatches; }

/* The last input of a stage that is not the first. */
static uint32_t received_input(const plim_run *r) { return r->g->n_inputs - 1; }

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
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received"), NULL, PLIM_CAT_ACTIVATION);
    for (uint32_t k = 0; has_sender(r) && k < count_flights(r); k++)
        r->flights[k].activation = make_buffer(r, r->g->inputs[received_input(r)]);
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received gradient"), NULL, PLIM_CAT_TEMPORARY);
    for (uint32_t k = 0; plim_run_sends(r) && k < count_flights(r); k++)
        r->flights[k].gradient = make_buffer(r, r->g->outputs[0]);
}

static void take_inputs(plim_run *r, plim_flight *f)
{
    const plim_graph *g = r->g;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        plim_meta meta =
            v->received ? handed_meta(r, v) : plim_step_meta(r->s->dtype, &v->meta);
        plim_t view = plim_m_alias(r->m, v->received ? f->activation : r->held->x[i], &meta);
        f->x[i] = plim_m_as_leaf(r->m, view, v->received);
    }
}

static void run_forward(plim_run *r, plim_flight *f)
{
    plim_m_set_grad_mode(r->m, true);
    take_inputs(r, f);
    memcpy(r->now->x, f->x, sizeof f->x);
    plim_run_forward(r);
    plim_m_set_grad_mode(r->m, false);
    f->out = plim_m_ref(r->m, r->out[r->g->n_outputs - 1]);
    if (!plim_run_sends(r))
        f->loss = plim_m_ref(r->m, r->out[0]);
}

static void run_backward(plim_run *r, plim_flight *f)
{
    r->shared.more_passes = f + 1 < r->flights + count_flights(r);
    plim_run_mark(r, PLIM_PHASE_BACKWARD, PLIM_STR("loss"));
    plim_m_backward(r->m, plim_run_sends(r) ? f->out : f->loss, f->gradient, plim_run_visit,
                    r);
    if (has_sender(r)) {
        plim_t leaf = f->x[received_input(r)];
        f->sent_back = plim_m_ref(r->m, plim_m_grad(r->m, leaf));
        plim_m_set_grad(r->m, leaf, 0);
    }
    plim_run_release(r, f->x, PLIM_RUN_INPUTS);
    plim_run_release(r, &f->out, 1);
    if (!plim_run_sends(r)) /* for t in stage_output: t.detach_() */
        for (uint32_t i = 0; i < r->g->n_outputs; i++) {
            plim_t detached = plim_m_detached(r->m, r->out[i]);
            plim_run_release(r, &r->out[i], 1);
            r->out[i] = detached;
        }
}

static void run_gpipe(plim_run *r, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        run_forward(r, &r->flights[k]);
        r->flights[k].sent = plim_run_sends(r) ? plim_m_detached(r->m, r->flights[k].out) : 0;
    }
    for (uint32_t k = 0; k < n; k++)
        run_backward(r, &r->flights[k]);
}

/* The last forward pass but one of the warm-up is sent by itself, and its name is bound anew once all
 * forward passes have run; others are sent together with what is received. */
static void run_1f1b(plim_run *r, uint32_t n)
{
    const plim_share *s = &r->s->share;
    uint32_t ahead = (uint32_t)PLIM_MIN(n, s->size[PLIM_AXIS_pp] - s->at[PLIM_AXIS_pp]);
    for (uint32_t k = 0; k < ahead; k++)
        run_forward(r, &r->flights[k]);
    if (ahead > 1 && plim_run_sends(r))
        r->flights[ahead - 2].sent = plim_m_detached(r->m, r->flights[ahead - 2].out);
    for (uint32_t k = 0; k < n; k++) {
        run_backward(r, &r->flights[k]);
        if (k)
            plim_run_release(r, &r->flights[k - 1].sent_back, 1);
        if (k + ahead < n)
            run_forward(r, &r->flights[k + ahead]);
        else if (ahead > 1)
            plim_run_release(r, &r->flights[ahead - 2].sent, 1);
    }
}

void plim_run_pipelined(plim_run *r)
{
    const plim_graph *g = r->g;
    if (r->s->share.size[PLIM_AXIS_pp] < 2)
        return;
    if (!(r->flights = PLIM_NEW_N(r->a, plim_flight, count_flights(r))))
        plim_m_oom(r->m);
    r->shared.defers = true;
    if (!plim_run_sends(r)) /* the model's outputs are its loss and others: stage.c */
        r->loss_at = g->values[g->outputs[g->n_outputs - 1]].node + 1;
}

void plim_run_pipeline(plim_run *r)
{
    uint32_t n = count_flights(r);
    plim_run_fetch(r, 1);
    plim_run_zero_grads(r);
    if (!r->step)
        make_buffers(r);
    plim_batch part = {.y = r->held->y};
    r->now = &part;
    (r->s->share.schedule == PLIM_SCHEDULE_GPIPE ? run_gpipe : run_1f1b)(r, n);
    plim_shared_reduce(&r->shared);
    r->now = r->held;
    for (uint32_t k = 0; k < n; k++) {
        plim_t *rest[] = {&r->flights[k].loss, &r->flights[k].sent, &r->flights[k].sent_back};
        for (size_t i = 0; i < PLIM_COUNT(rest); i++)
            plim_run_release(r, rest[i], 1);
    }
    plim_run_release(r, r->out, r->g->n_outputs);
}
