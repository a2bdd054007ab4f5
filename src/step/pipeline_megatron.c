/* pipeline_megatron.c -- Megatron-LM's schedules of a pipeline: see pipeline.h.
 *
 *     forward_backward_pipelining_without_interleaving(...)
 *     forward_backward_pipelining_with_interleaving(...)
 *
 * A micro-batch is loaded where it is used, and what is received is a new tensor.  What was sent is freed,
 * its place in the autograd graph stays.  Variables live until they are rebound.
 * src: megatron-core 0.16 pipeline_parallel/schedules.py, p2p_communication.py */
#include "op/rules.h"
#include "step/pipeline.h"

/* ---- variables ------------------------------------------------------------------------------ */

/* Those of the schedule, owned.  The graph of an output holds its input. */
typedef struct names {
    plim_t input, output, freed_output, input_of_output, output_gradient, input_gradient;
} names;

static void bind_name(plim_run *r, plim_t *name, plim_t t)
{
    plim_m_drop(r->m, *name);
    *name = t;
}

static void drop_output(plim_run *r, names *n)
{
    bind_name(r, &n->output, 0);
    bind_name(r, &n->freed_output, 0);
    bind_name(r, &n->input_of_output, 0);
}

static void drop_names(plim_run *r, names *n)
{
    bind_name(r, &n->input, 0);
    drop_output(r, n);
    bind_name(r, &n->output_gradient, 0);
    bind_name(r, &n->input_gradient, 0);
}

/* input = inputs.pop(0); output = outputs.pop(0) */
static void pop_flight(plim_run *r, plim_flight *f, names *n)
{
    bind_name(r, &n->input, f->activation);
    bind_name(r, &n->output, f->out);
    bind_name(r, &n->freed_output, f->sent);
    bind_name(r, &n->input_of_output, plim_m_ref(r->m, f->activation));
    f->activation = f->out = f->sent = 0;
}

/* ---- what stages pass on ------------------------------------------------------------------------- */

static void receive_activation(plim_run *r, const plim_stage *s, uint32_t k)
{
    if (!plim_stage_receives(s))
        return;
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received"), NULL, PLIM_CAT_ACTIVATION);
    plim_t t = plim_stage_buffer(r, s->chunk->received);
    s->flights[k].activation = plim_m_as_input(r->m, t);
}

static void receive_gradient(plim_run *r, const plim_stage *s, uint32_t k)
{
    if (!s->chunk->sends)
        return;
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("received gradient"), NULL, PLIM_CAT_TEMPORARY);
    s->flights[k].gradient = plim_stage_buffer(r, r->g->outputs[s->chunk->output]);
}

/* deallocate_output_tensor(): a tensor of one element takes the place of what was sent. */
static void free_output(plim_run *r, const plim_stage *s, uint32_t k)
{
    plim_flight *f = &s->flights[k];
    if (s->chunk->sends)
        plim_m_storage_free(r->m, f->out);
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("freed output"), NULL, PLIM_CAT_TEMPORARY);
    plim_dtype t = plim_m_meta(r->m, f->out)->dtype;
    f->sent = plim_m_empty_contig(r->m, t, 1, (int64_t[]){1});
}

/* ---- passes ------------------------------------------------------------------------------------------ */

static void take_inputs(plim_run *r, const plim_stage *s, plim_flight *f)
{
    const plim_graph *g = r->g;
    plim_run_mark(r, PLIM_PHASE_INPUTS, PLIM_STR(""));
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        plim_meta meta = plim_step_meta(r->s->dtype, &v->meta);
        plim_m_place(r->m, PLIM_NONE, v->name, NULL, PLIM_CAT_INPUT);
        if (g->inputs[i] == s->chunk->received)
            f->x[i] = plim_m_ref(r->m, f->activation);
        else if (i - s->chunk->loads < s->chunk->n_loads && !v->received)
            f->x[i] = plim_m_leaf(r->m, &meta, false);
    }
}

/* model.set_input_tensor(input); forward_step() */
static void run_forward(plim_run *r, plim_stage *s, uint32_t k)
{
    plim_flight *f = &s->flights[k];
    bind_name(r, &s->entered, plim_m_ref(r->m, f->activation));
    take_inputs(r, s, f);
    plim_stage_forward(r, s, k);
    plim_run_release(r, f->x, PLIM_RUN_INPUTS);
    plim_run_release(r, r->out, r->g->n_outputs);
}

/* Of a flight that was popped. */
static void run_backward(plim_run *r, const plim_stage *s, uint32_t k, names *n)
{
    plim_flight *f = &s->flights[k];
    f->out = plim_m_ref(r->m, n->output);
    plim_stage_backward(r, s, k);
    plim_run_release(r, &f->loss, 1);
    plim_run_release(r, &f->out, 1);
    bind_name(r, &n->input_gradient, plim_m_ref(r->m, plim_m_grad(r->m, n->input)));
}

/* ---- one stage a rank ------------------------------------------------------------------------------ */

static void run_plain(plim_run *r)
{
    const plim_share *share = &r->s->share;
    plim_stage *s = &r->pipeline->stages[0];
    uint32_t n = r->pipeline->microbatches,
             ahead = (uint32_t)(share->size[PLIM_AXIS_pp] - share->at[PLIM_AXIS_pp] - 1);
    plim_flight *f = s->flights;
    names var = {0};
    ahead = PLIM_MIN(ahead, n);
    for (uint32_t k = 0; k < ahead; k++) {
        receive_activation(r, s, k);
        run_forward(r, s, k);
        free_output(r, s, k);
    }
    if (ahead < n)
        receive_activation(r, s, ahead);
    for (uint32_t k = 0; k < n; k++) {
        bool steady = k + ahead < n; /* afterwards only what is left goes backward */
        if (steady) {
            run_forward(r, s, k + ahead);
            drop_output(r, &var);
        } else
            pop_flight(r, &f[k], &var);
        receive_gradient(r, s, k);
        bind_name(r, &var.output_gradient, plim_m_ref(r->m, f[k].gradient));
        if (steady) {
            free_output(r, s, k + ahead);
            pop_flight(r, &f[k], &var);
        }
        run_backward(r, s, k, &var);
        bind_name(r, &f[k].gradient, 0);
        if (k + ahead + 1 < n)
            receive_activation(r, s, k + ahead + 1);
        if (steady)
            bind_name(r, &var.input, 0);
    }
    drop_names(r, &var);
}

/* ---- several stages a rank --------------------------------------------------------------------------- */

/* Passes of all stages are numbered: groups of micro-batches, usually as many as ranks, go through all stages of
 * a rank, forward in their order, backward the other way round. */
typedef struct interleaved {
    plim_run *r;
    plim_stage *stages;
    uint32_t ranks, at, chunks, n; /* n: micro-batches */
    uint32_t group;              /* of them that go through a stage before the next one runs */
    bool prefetches;             /* what is received is there before the pass before it runs */
    uint32_t *received, *graded; /* by stage: of its micro-batches, so many were received */
} interleaved;

static uint32_t chunk_of(const interleaved *p, uint32_t pass, bool forward, uint32_t *k)
{
    uint32_t group = pass / (p->group * p->chunks), first = group * p->group,
             size = PLIM_MIN(p->group, p->n - first),
             within = pass - group * p->group * p->chunks, chunk = within / size;
    *k = first + within % size;
    return forward ? chunk : p->chunks - 1 - chunk;
}

/* recv_tensor_from_previous_stage(): whether, after this pass, a tensor comes, and for which stage.  What
 * the last rank sends goes to the next stage of the first. */
static bool comes_next(const interleaved *p, uint32_t pass, bool forward, uint32_t *chunk)
{
    uint32_t total = p->n * p->chunks, k, last = forward ? p->chunks - 1 : 0;
    bool leads = forward ? !p->at : p->at + 1 == p->ranks;
    if (!leads) {
        *chunk = chunk_of(p, (pass + 1) % total, forward, &k);
        return true;
    }
    if (pass < p->ranks - 1)
        return false; /* nothing has come as far as that yet */
    *chunk = chunk_of(p, pass - (p->ranks - 1), forward, &k);
    if (*chunk == last)
        return false;
    *chunk += forward ? 1 : UINT32_MAX; /* -1 */
    return true;
}

static void receive_forward(interleaved *p, uint32_t pass)
{
    uint32_t chunk;
    if (comes_next(p, pass, true, &chunk) && p->received[chunk] < p->n)
        receive_activation(p->r, &p->stages[chunk], p->received[chunk]++);
}

static void receive_backward(interleaved *p, uint32_t pass)
{
    uint32_t chunk;
    if (comes_next(p, pass, false, &chunk) && p->graded[chunk] < p->n)
        receive_gradient(p->r, &p->stages[chunk], p->graded[chunk]++);
}

/* The names of a helper function end with it. */
static void act_backward(interleaved *p, uint32_t pass, names *var)
{
    uint32_t k, chunk = chunk_of(p, pass, false, &k);
    plim_stage *s = &p->stages[chunk];
    names local = {0};
    pop_flight(p->r, &s->flights[k], &local);
    run_backward(p->r, s, k, &local);
    bind_name(p->r, &s->flights[k].gradient, 0);
    bind_name(p->r, &var->input_gradient, plim_m_ref(p->r->m, local.input_gradient));
    drop_names(p->r, &local);
}

/* The output of the pass before this one has been sent. */
static void free_sent(interleaved *p, uint32_t pass)
{
    uint32_t k, chunk = chunk_of(p, pass, true, &k);
    free_output(p->r, &p->stages[chunk], k);
}

/* A handle of what was waited for last has that tensor to the end: NCCL's holds what it received. */
static void await_input(interleaved *p, uint32_t pass, names *var)
{
    uint32_t k, chunk = chunk_of(p, pass, true, &k);
    if (pass && (p->at || chunk))
        bind_name(p->r, &var->input,
                  plim_m_ref(p->r->m, p->stages[chunk].flights[k].activation));
}

/* What came last has a name, too. */
static void name_input(interleaved *p, uint32_t pass, names *var)
{
    uint32_t next;
    bool comes = pass + 1 < p->n * p->chunks && comes_next(p, pass, true, &next);
    bind_name(
        p->r, &var->input,
        comes ? plim_m_ref(p->r->m, p->stages[next].flights[p->received[next] - 1].activation)
              : 0);
}

static void warm_up(interleaved *p, uint32_t ahead, names *var)
{
    for (uint32_t i = 0; i < ahead; i++) {
        uint32_t k, chunk = chunk_of(p, i, true, &k);
        bool early = p->prefetches && p->at;
        if (p->prefetches)
            await_input(p, i, var);
        if (early)
            receive_forward(p, i);
        run_forward(p->r, &p->stages[chunk], k);
        if (!early)
            receive_forward(p, i);
        if (!p->prefetches)
            name_input(p, i, var);
        free_sent(p, i);
    }
}

static void run_interleaved(plim_run *r, interleaved *p)
{
    uint32_t total = p->n * p->chunks, last = p->chunks - 1,
             ahead = (p->ranks - p->at - 1) * 2 + last * p->group;
    names var = {0};
    ahead = PLIM_MIN(ahead, total);
    receive_activation(r, &p->stages[0], p->received[0]++);
    warm_up(p, ahead, &var);
    receive_gradient(r, &p->stages[last], p->graded[last]++);
    for (uint32_t i = 0; i < total; i++) {
        uint32_t k;
        if (i + ahead < total) {
            uint32_t chunk = chunk_of(p, i + ahead, true, &k);
            if (i)
                free_sent(p, i + ahead - 1);
            run_forward(r, &p->stages[chunk], k);
            if (i + ahead + 1 < total)
                receive_forward(p, i + ahead);
        } else if (i && i + ahead == total)
            free_sent(p, total - 1);
        bool early = p->prefetches && i + ahead >= total && p->at + 1 < p->ranks;
        if (early && i + 1 < total)
            receive_backward(p, i);
        act_backward(p, i, &var);
        if (!early && i + 1 < total)
            receive_backward(p, i);
    }
    drop_names(r, &var);
}

void plim_run_megatron(plim_run *r)
{
    const plim_share *s = &r->s->share;
    const plim_pipeline *p = r->pipeline;
    plim_batch part = {0};
    interleaved it = {
        .r = r,
        .stages = p->stages,
        .ranks = (uint32_t)s->size[PLIM_AXIS_pp],
        .at = (uint32_t)s->at[PLIM_AXIS_pp],
        .chunks = p->n,
        .n = p->microbatches,
        .group = (uint32_t)s->size[PLIM_AXIS_pp],
        .prefetches = plim_strategy_number(&s->strategy, "overlap_p2p_comm_warmup_flush") > 0,
        .received = PLIM_NEW_N(r->a, uint32_t, p->n),
        .graded = PLIM_NEW_N(r->a, uint32_t, p->n)};
    if (!it.received || !it.graded) {
        plim_m_oom(r->m);
        return;
    }
    double group = plim_strategy_number(&s->strategy, "microbatch_group_size_per_vp_stage");
    if (group >= 1 && group <= p->microbatches)
        it.group = (uint32_t)group;
    r->now = &part;
    if (p->n > 1)
        run_interleaved(r, &it);
    else
        run_plain(r);
    plim_m_catch_up(r->m);
    plim_shared_reduce(&r->shared);
    r->now = r->held;
}
