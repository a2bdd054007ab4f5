/* built.c -- what a job runs: its graph and its tape. */
#include "job/job_priv.h"
#include "job/together.h"

/* The next length that the cards divide, if they have to: a search tries all. */
static int64_t divide_seq(const plim_share *s, int64_t seq)
{
    plim_assert(seq >= 0 && s->size[PLIM_AXIS_cp] > 0 && s->size[PLIM_AXIS_tp] > 0);
    int64_t parts = s->size[PLIM_AXIS_cp] > 1 ? 2 * s->size[PLIM_AXIS_cp]
                    : s->sequence             ? s->size[PLIM_AXIS_tp]
                                              : 1;
    return seq + (parts - seq % parts) % parts;
}

/* What changes a graph leaves a sound one. */
static plim_status check_sound(plim_status st, const plim_graph *g)
{
    plim_assert(st || !plim_graph_check(g));
    (void)g;
    return st;
}

/* What a model keeps from step to step is known in the type of its parameters. */
static plim_status check_kept(const plim_job *job, const plim_graph *g, plim_err *err)
{
    const bool other = g->keeps && job->step.autocast != PLIM_F32;
    return other ? plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "autocast: what this model keeps from step to step is not known "
                             "then; choose the type of its parameters, 'dtype'")
                 : PLIM_OK;
}

plim_status plim_job_graph(const plim_job *job, int64_t size, plim_arena *a, plim_graph *g,
                           plim_err *err)
{
    plim_assert(size >= 0);
    plim_binding bind = job->bind;
    int64_t batch = job->find_seq ? 0 : size;
    const plim_transform_run run = {job->step.dtype, job->step.autocast, job->step.infer,
                                    plim_job_checkpoints(&job->step),
                                    job->step.share.strategy.flags & PLIM_ONE_TYPE};
    if (batch && bind.n_inputs) { /* replaces the batch dimension of the given shapes */
        struct plim_input_shape *in = PLIM_NEW_N(a, struct plim_input_shape, bind.n_inputs);
        if (!in)
            return plim_oom(err);
        for (uint32_t i = 0; i < bind.n_inputs; i++) {
            in[i] = bind.inputs[i];
            if (in[i].rank && in[i].dim[0] == bind.inputs[0].dim[0])
                in[i].dim[0] = batch;
        }
        bind.inputs = in;
    }
    if (batch)
        bind.batch = batch;
    bind.seq_tried = size && job->find_seq;
    if (bind.seq_tried)
        bind.seq = divide_seq(&job->step.share, size);
    bind.virtual_tokens = plim_adapter_tokens(&job->adapter);
    plim_share share = job->step.share;
    bind.part.contexts = share.size[PLIM_AXIS_cp];
    bind.part.context = share.at[PLIM_AXIS_cp];
    bind.part.experts = share.experts;
    if (plim_job_divides_itself(job)) {
        bind.part.weights = share.size[PLIM_AXIS_tp];
        bind.part.sequence = share.sequence;
        bind.part.stages = share.size[PLIM_AXIS_pp];
        bind.part.stage = share.at[PLIM_AXIS_pp];
        bind.part.chunks = share.chunks;
        share.size[PLIM_AXIS_tp] = share.size[PLIM_AXIS_pp] = share.size[PLIM_AXIS_cp] = 1;
    }
    plim_status st = check_sound(plim_model_graph(job->model, &bind, a, g, err), g);
    if (!st)
        st = plim_together_check(job, PLIM_TOGETHER_GRAPH, g, err);
    if (!st)
        st = check_kept(job, g, err);
    if (!st && job->settings->freeze && !job->step.infer)
        st = check_sound(plim_freeze_apply(g, plim_str_of(job->settings->freeze), err), g);
    if (!st && job->quant.kind)
        st = check_sound(plim_quant_apply(g, &job->quant, err), g);
    if (!st && job->adapter.method) {
        st = check_sound(plim_adapter_apply(g, &job->adapter, &run, err), g);
        g->about.releases = plim_arena_append(g->arena, g->about.releases, ", ", "peft 0.21");
        if (!st && !g->about.releases.p)
            st = plim_oom(err);
    }
    if (!st && job->fused)
        st = check_sound(plim_fuse_loss(g, job->fused, err), g);
    if (!st)
        st = plim_together_check(job, PLIM_TOGETHER_DIVISION, g, err);
    return st ? st : check_sound(plim_share_divide(g, &share, err), g);
}

plim_dtype plim_job_cache_dtype(const plim_job *job, const plim_graph *g)
{
    if (job->step.autocast != PLIM_F32)
        return job->step.autocast;
    if (job->step.dtype != PLIM_DTYPE_COUNT)
        return job->step.dtype;
    return plim_graph_dtype(g);
}

plim_status plim_job_tape(const plim_job *job, const plim_graph *g, plim_arena *a,
                          plim_tape *t, plim_step_info *info, plim_err *err)
{
    plim_assert(job->step.torch && job->alloc.allocator);
    plim_tape_init(t, a);
    t->bound = job->bound;
    t->incomplete = g->about.left_out.n > 0;
    if (job->step.share.every_rank)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "only an estimate is about all ranks: give 'rank' a number");
    return plim_step_run(a, g, &job->step, t, info, err);
}
