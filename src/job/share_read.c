/* share_read.c -- the settings of training on several cards.  Here is what goes together by
 * its numbers; what does not by its kind has a row in together.def. */
#include "job/job_priv.h"
#include "job/together.h"

/* ---- the pipeline ----------------------------------------------------------------------- */

/* Megatron-LM's: micro-batches go through the ranks in groups, usually of as many.
 * src: megatron-core 0.16 pipeline_parallel/schedules.py
 * forward_backward_pipelining_with_interleaving */
static plim_status check_groups(const plim_share *share, plim_err *err)
{
    int64_t ranks = share->size[PLIM_AXIS_pp], n = share->microbatches,
            group = (int64_t)plim_strategy_number(&share->strategy,
                                                  "microbatch_group_size_per_vp_stage");
    plim_assert(ranks > 1 && n > 0);
    if (!group && n % ranks == 0)
        return PLIM_OK;
    if (!group)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "schedule interleaved needs a multiple of the %" PRId64
                         " ranks as number of micro-batches, not %" PRId64,
                         ranks, n);
    return group < ranks || group > n || (n % group && n % group < ranks)
               ? plim_fail(
                     err, PLIM_EUSAGE, 0,
                     "groups of %" PRId64 " do not divide %" PRId64
                     " micro-batches into groups, the last one included, of at least as many "
                     "as the %" PRId64 " ranks",
                     group, n, ranks)
               : PLIM_OK;
}

/* src: torch 2.13 schedules.py ScheduleInterleaved1F1B */
static plim_status check_rounds(const plim_share *share, plim_err *err)
{
    int64_t ranks = share->size[PLIM_AXIS_pp], n = share->microbatches,
            rounds = PLIM_MAX(1, n / ranks);
    plim_assert(ranks > 1 && n > 0);
    bool interleaved = share->schedule == PLIM_SCHEDULE_INTERLEAVED;
    if ((interleaved || share->schedule == PLIM_SCHEDULE_ZERO_BUBBLE) && n % rounds)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "schedule '%s' needs micro-batches that its %" PRId64
                         " rounds divide, such as a multiple of %" PRId64 ": not %" PRId64,
                         interleaved ? "interleaved" : "zero_bubble", rounds, ranks, n);
    if (share->schedule == PLIM_SCHEDULE_1F1B && n < ranks)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "schedule 1f1b needs as many micro-batches as stages: %" PRId64
                         " are fewer than %" PRId64,
                         n, ranks);
    return PLIM_OK;
}

/* Several stages of a rank are two, unless told. */
static void take_schedule(plim_share *share, const plim_settings *s)
{
    share->schedule = plim_job_schedule(s);
    share->microbatches = s->microbatches ? s->microbatches : share->size[PLIM_AXIS_pp];
    bool several =
        share->schedule != PLIM_SCHEDULE_1F1B && share->schedule != PLIM_SCHEDULE_GPIPE;
    share->chunks = several && s->stages_per_rank ? s->stages_per_rank : several ? 2 : 1;
}

static plim_status read_pipeline(plim_job *job, plim_err *err)
{
    plim_share *share = &job->step.share;
    take_schedule(share, job->settings);
    plim_status st = plim_together_check(job, PLIM_TOGETHER_SCHEDULE, NULL, err);
    if (st || share->size[PLIM_AXIS_pp] < 2)
        return st;
    if (!plim_job_divides_itself(job)) {
        PLIM_TRY(check_rounds(share, err));
        return plim_together_check(job, PLIM_TOGETHER_PIPELINE, NULL, err);
    }
    if (share->schedule == PLIM_SCHEDULE_INTERLEAVED)
        st = check_groups(share, err);
    share->schedule = PLIM_SCHEDULE_MEGATRON;
    return st;
}

/* ---- all of it -------------------------------------------------------------------------- */

static plim_status check_experts(const plim_share *s, plim_err *err)
{
    int64_t cards = s->size[PLIM_AXIS_dp];
    plim_assert(s->experts > 0);
    return cards % s->experts ? plim_fail(err, PLIM_EUSAGE, 0,
                                          "ep: groups of %" PRId64
                                          " cards do not divide the %" PRId64 " cards of dp",
                                          s->experts, cards)
                              : PLIM_OK;
}

/* The optimizer's kernels: lists of tensors do not mix DTensors with tensors, and Megatron-LM
 * brings an optimizer of its own. */
static void choose_kernels(plim_job *job)
{
    plim_optim_spec *o = &job->step.optim;
    const plim_share *share = &job->step.share;
    if (share->size[PLIM_AXIS_tp] > 1 && !plim_job_divides_itself(job) && !share->sequence)
        o->impl = PLIM_IMPL_FORLOOP;
    if (share->strategy.flags & PLIM_FUSED_OPTIM && !o->impl &&
        strstr(o->optim->impls, "fused"))
        o->impl = PLIM_IMPL_FUSED;
}

static plim_status read_strategy(plim_job *job, plim_err *err)
{
    plim_step_settings *step = &job->step;
    plim_status st = plim_together_check(job, PLIM_TOGETHER_AXES, NULL, err);
    if (!st && !step->infer)
        st = plim_share_choose(job->settings->strategy, &step->share, err);
    return st ? st : plim_together_check(job, PLIM_TOGETHER_STRATEGY, NULL, err);
}

plim_status plim_job_read_share(plim_job *job, plim_err *err)
{
    const plim_settings *s = job->settings;
    plim_share *share = &job->step.share;
    const int64_t size[] = {
#define PLIM_AXIS(name, ...) s->name,
#include "share/axes.def"
#undef PLIM_AXIS
    };
    plim_status st = plim_share_make(size, s->rank, share, err);
    if (!st)
        st = read_strategy(job, err);
    if (!st)
        st = read_pipeline(job, err);
    share->sequence = s->sequence_parallel;
    share->experts = s->ep ? s->ep : 1;
    if (!st)
        st = plim_together_check(job, PLIM_TOGETHER_PARTS, NULL, err);
    if (!st && share->experts > 1 && !plim_job_divides_itself(job))
        st = check_experts(share, err);
    if (!st)
        st = plim_together_check(job, PLIM_TOGETHER_EXPERTS, NULL, err);
    if (!st)
        choose_kernels(job);
    return st ? st : plim_together_check(job, PLIM_TOGETHER_SCALER, NULL, err);
}
