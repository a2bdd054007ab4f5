/* job.c -- see job.h. */
#include "job/job.h"

#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"

/* ---- settings ------------------------------------------------------------------ */

static plim_status put_text(plim_job *job, plim_setting_id id, const char *text, plim_err *err)
{
    return plim_settings_put(job->settings, id, text, err);
}

static plim_status put_int(plim_job *job, plim_setting_id id, int64_t n, plim_err *err)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, n);
    return plim_settings_put(job->settings, id, n ? text : NULL, err);
}

/* Sets a setting to its word n. */
static plim_status put_word(plim_job *job, plim_setting_id id, int n, plim_err *err)
{
    plim_str word = plim_arena_str(job->arena, plim_setting_word(id, n));
    return word.p ? plim_settings_put(job->settings, id, word.p, err) : plim_oom(err);
}

/* The dtype that a setting names; `none` if it is not set. */
static plim_dtype read_dtype(const plim_settings *s, plim_setting_id id, plim_dtype none)
{
    plim_dtype t;
    return s->text[id].p && plim_dtype_find(plim_str_of(s->text[id].p), &t) ? t : none;
}

/* Applies what the optimizer determines about the loop: the number of steps until its state
 * is complete, and whether it can accumulate. */
static plim_status apply_optimizer(plim_step_settings *step, plim_err *err)
{
    const plim_optim *o = step->optim.optim;
    enum { INFER_STEPS = 2 }; /* the second pass finds the allocator's cache filled */
    if (!step->steps)
        step->steps = step->infer ? INFER_STEPS
                                  : PLIM_MIN(plim_optim_steady_steps(&step->optim),
                                             (int)plim_setting_rows[PLIM_SET_steps].most);
    if (o->flags & PLIM_OPTIM_RUNS_MODEL && step->accumulate > 1)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'%s' runs the model inside its step: 'accumulate' must be 1, not %d",
                         o->name, step->accumulate);
    if (step->optim.in_backward && step->accumulate > 1)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "an optimizer in backward frees each gradient once it has used it: "
                         "'accumulate' must be 1, not %d",
                         step->accumulate);
    if (step->optim.in_backward && step->clip)
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "an optimizer in backward never has all gradients at once, so they "
            "cannot be clipped by their norm, as 'clip' and the loop 'trainer' do");
    return PLIM_OK;
}

static plim_status check_batch(const plim_binding *b, plim_err *err)
{
    bool first = b->n_inputs && !b->inputs[0].name.n && b->inputs[0].rank;
    int64_t given = first ? b->inputs[0].dim[0] : b->batch;
    if (!b->batch || given == b->batch)
        return PLIM_OK;
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "'batch' is %" PRId64 " but the first dim of the input is %" PRId64
                     ": set only one of them",
                     b->batch, given);
}

plim_status plim_job_card(plim_job *job, plim_err *err)
{
    const plim_settings *s = job->settings;
    const plim_gpu *gpu = NULL;
    plim_status st = PLIM_OK;
    if (s->gpu)
        st = plim_gpu_find(plim_str_of(s->gpu), &gpu, err);
    if (!st && s->vram && gpu) { /* the named card with another memory size */
        job->generic = *gpu;
        job->generic.memory_bytes = s->vram;
        job->generic.memory_kind = PLIM_GPU_GIVEN;
    } else if (!st && s->vram) {
        st = plim_gpu_generic(job->arena, s->vram, &job->generic, err);
    }
    if (s->vram)
        gpu = &job->generic;
    plim_job_use_card(job, gpu);
    return st;
}

static plim_status read_loop(plim_step_settings *step, const plim_settings *s, plim_err *err)
{
    const char *name = s->text[PLIM_SET_loop].p;
    plim_status st = name ? plim_loop_find(name, &step->loop, err) : PLIM_OK;
    if (st)
        return st;
    step->clip |= step->loop && step->loop->clip;
    step->keeps_given = s->keep != NULL;
    return s->keep ? plim_loop_keeps(s->keep, &step->keeps, err) : PLIM_OK;
}

/* Relies on settings.def to list the words in the order of the enumerators. */
static plim_status read_step(plim_step_settings *step, const plim_settings *s, plim_err *err)
{
    enum { TRAIN = 1, INFER }; /* mode */
    enum { NONE = 1, ZEROS };  /* zero_grad */
    step->infer = s->mode == INFER;
    step->steps = (int)s->steps;
    step->accumulate = (int)s->accumulate;
    step->clip = s->clip;
    step->grad_scaler = s->grad_scaler;
    step->empty_cache = s->empty_cache;
    step->dtype = read_dtype(s, PLIM_SET_dtype, PLIM_DTYPE_COUNT);
    step->autocast = read_dtype(s, PLIM_SET_autocast, PLIM_F32);
    step->loss = PLIM_MIN((plim_loss_kind)s->loss, PLIM_LOSS_MODEL); /* fused ones follow */
    step->checkpoint = plim_str_of(s->checkpoint);
    plim_status st = read_loop(step, s, err);
    if (!st)
        st = plim_optim_parse(plim_str_of(s->optimizer), &step->optim, err);
    if (!st)
        st = plim_ema_parse(plim_str_of(s->ema), &step->ema, err);
    if (!st)
        st = apply_optimizer(step, err);
    if (!st)
        st = plim_torch_find(s->torch, &step->torch, &step->world.lib.torch, err);
    if (st)
        return st;
    step->zero_grad_keeps =
        s->zero_grad ? s->zero_grad == ZEROS : !step->torch->zero_grad_to_none;
    return st;
}

typedef struct untried {
    bool given;
    const char *what;
} untried;

static plim_status refuse_untried(const char *with, const untried *u, size_t n, plim_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (u[i].given)
            return plim_fail(err, PLIM_EUSAGE, 0, "with %s, %s is not simulated", with,
                             u[i].what);
    return PLIM_OK;
}

/* Of DistributedDataParallel it sees as much as on one card. */
static plim_status check_scaler(const plim_step_settings *step, plim_err *err)
{
    const plim_share *share = &step->share;
    const plim_strategy *strategy = share->strategy.strategy;
    bool ddp = !strategy || !strcmp(strategy->name, "ddp");
    const untried all[] = {{!ddp, "a strategy other than ddp"},
                           {share->size[PLIM_AXIS_tp] > 1, "tp"},
                           {share->size[PLIM_AXIS_pp] > 1, "pp"},
                           {share->size[PLIM_AXIS_cp] > 1, "cp"},
                           {step->optim.in_backward, "an optimizer that steps in backward"},
                           {step->optim.optim->flags & PLIM_OPTIM_RUNS_MODEL,
                            "an optimizer that runs the model"}};
    return refuse_untried("grad_scaler", all, PLIM_COUNT(all), err);
}

static plim_status check_sequence(const plim_step_settings *step, plim_err *err)
{
    if (step->share.size[PLIM_AXIS_tp] < 2)
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "sequence_parallel divides the tokens among the cards of tp: give their "
            "number, such as --tp 8");
    return PLIM_OK;
}

/* src: transformers 5.23 distributed/configuration_utils.py */
static plim_status check_experts(const plim_share *s, plim_err *err)
{
    const plim_strategy *by = s->strategy.strategy;
    int64_t cards = s->size[PLIM_AXIS_dp];
    if (!by || strcmp(by->name, "fsdp2") != 0)
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "ep goes with dp and strategy fsdp2, such as --dp 8 --strategy fsdp2");
    if (cards % s->experts)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "ep: groups of %" PRId64 " cards do not divide the %" PRId64
                         " cards of dp",
                         s->experts, cards);
    const untried all[] = {{s->size[PLIM_AXIS_cp] > 1, "cp"},
                           {s->size[PLIM_AXIS_tp] > 1, "tp"},
                           {s->size[PLIM_AXIS_pp] > 1, "pp"},
                           {plim_strategy_number(&s->strategy, "replicate") > 1, "replicate"}};
    return refuse_untried("ep", all, PLIM_COUNT(all), err);
}

/* torch's lists of tensors (foreach, fused) take no DTensors beside tensors; with sequence
 * parallelism, all parameters are DTensors.
 * src: torch 2.13 torch/distributed/tensor/_dispatch.py try_replicate_spec_for_scalar_tensor */
static plim_status check_parts(plim_step_settings *step, plim_err *err)
{
    plim_optim_impl *impl = &step->optim.impl;
    const untried all[] = {{step->autocast != PLIM_F32, "autocast"},
                           {step->ema.optim != NULL, "ema"},
                           {step->clip, "clip"},
                           {step->optim.in_backward, "an optimizer that steps in backward"}};
    plim_status st = refuse_untried("tp", all, PLIM_COUNT(all), err);
    if (st)
        return st;
    const char *name = step->optim.optim->name;
    if (strcmp(name, "adamw") != 0 && strcmp(name, "adam") != 0 && strcmp(name, "sgd") != 0)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "with tp, the optimizer is adamw, adam or sgd, not '%s'", name);
    if (step->share.sequence && !strcmp(name, "sgd") &&
        (plim_optim_option(&step->optim, "momentum") != 0 ||
         plim_optim_option(&step->optim, "weight_decay") != 0 || *impl == PLIM_IMPL_FUSED))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "with sequence_parallel, sgd is simulated without momentum and "
                         "weight_decay, and not impl=fused");
    if (step->share.sequence)
        return PLIM_OK;
    if (*impl == PLIM_IMPL_FOREACH || *impl == PLIM_IMPL_FUSED)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "with tp, only some of the parameters are DTensors, and PyTorch's "
                         "foreach and fused optimizers do not take both: use impl=forloop");
    *impl = PLIM_IMPL_FORLOOP;
    return PLIM_OK;
}

/* Several stages of a rank.  src: torch 2.13 schedules.py ScheduleInterleaved1F1B */
static plim_status check_chunks(plim_share *share, const plim_settings *s, plim_err *err)
{
    bool several = share->schedule >= PLIM_SCHEDULE_INTERLEAVED;
    int64_t ranks = share->size[PLIM_AXIS_pp], n = share->microbatches,
            rounds = PLIM_MAX(1, n / ranks);
    if (s->stages_per_rank && !several)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'stages_per_rank' goes with schedule interleaved, looped_bfs or "
                         "zero_bubble");
    if (several)
        share->chunks = s->stages_per_rank ? s->stages_per_rank : 2;
    if (several && share->strategy.strategy)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "with several stages of a rank, dp is not simulated: use schedule "
                         "1f1b or gpipe");
    bool in_rounds = share->schedule == PLIM_SCHEDULE_INTERLEAVED ||
                     share->schedule == PLIM_SCHEDULE_ZERO_BUBBLE;
    if (in_rounds && n % rounds)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "schedule '%s' needs micro-batches that its %" PRId64
                         " rounds divide, such as a multiple of %" PRId64 ": not %" PRId64,
                         share->schedule == PLIM_SCHEDULE_INTERLEAVED ? "interleaved"
                                                                      : "zero_bubble",
                         rounds, ranks, n);
    return PLIM_OK;
}

/* What Megatron-LM does in ways of its own, or not at all. */
static plim_status check_megatron(const plim_step_settings *step, const plim_settings *s,
                                  plim_err *err)
{
    bool stages = step->share.size[PLIM_AXIS_pp] > 1;
    const untried all[] = {
        {s->lora != NULL, "lora"},
        {s->peft != NULL, "peft"},
        {s->quant != NULL, "quant"},
        {step->autocast != PLIM_F32, "autocast"},
        {step->ema.optim != NULL, "ema"},
        {step->share.schedule == PLIM_SCHEDULE_GPIPE, "schedule gpipe"},
        {step->share.schedule == PLIM_SCHEDULE_LOOPED, "schedule looped_bfs"},
        {step->share.schedule == PLIM_SCHEDULE_ZERO_BUBBLE, "schedule zero_bubble"},
        {stages && step->infer, "a pipeline of inference"},
        {stages && step->accumulate > 1, "accumulate beside the micro-batches of pp"},
    };
    return refuse_untried("a model of Megatron-LM", all, PLIM_COUNT(all), err);
}

/* Its schedules: micro-batches go through the ranks in groups, usually of as many.
 * src: megatron-core 0.16 pipeline_parallel/schedules.py forward_backward_pipelining_with_interleaving */
static plim_status check_groups(const plim_share *share, plim_err *err)
{
    int64_t ranks = share->size[PLIM_AXIS_pp], n = share->microbatches,
            group = (int64_t)plim_strategy_number(&share->strategy,
                                                  "microbatch_group_size_per_vp_stage");
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
                     " micro-batches into groups, the last one included, of at least as many as"
                     " the %" PRId64 " ranks",
                     group, n, ranks)
               : PLIM_OK;
}

static plim_status take_schedule(plim_share *share, int64_t chunks, plim_err *err)
{
    bool several = share->schedule == PLIM_SCHEDULE_INTERLEAVED;
    share->schedule = PLIM_SCHEDULE_MEGATRON;
    if (chunks && !several)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'stages_per_rank' goes with schedule interleaved");
    if (several)
        share->chunks = chunks ? chunks : 2;
    return several ? check_groups(share, err) : PLIM_OK;
}

static plim_status check_pipeline(plim_step_settings *step, const plim_settings *s,
                                  bool divides, plim_err *err)
{
    plim_share *share = &step->share;
    int64_t stages = share->size[PLIM_AXIS_pp];
    if (stages < 2 && (s->microbatches || s->schedule || s->stages_per_rank))
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "'%s' is about a pipeline: give the number of its stages, such as --pp 4",
            s->microbatches ? "microbatches"
            : s->schedule   ? "schedule"
                            : "stages_per_rank");
    share->schedule =
        s->schedule ? (plim_schedule)(s->schedule - 1) : PLIM_SCHEDULE_1F1B; /* words */
    share->microbatches = s->microbatches ? s->microbatches : stages;
    share->chunks = 1;
    plim_status st = divides ? check_megatron(step, s, err) : PLIM_OK;
    if (st)
        return st;
    if (stages < 2)
        return PLIM_OK;
    if (divides)
        return take_schedule(share, s->stages_per_rank, err);
    st = check_chunks(share, s, err);
    if (st)
        return st;
    if (share->schedule == PLIM_SCHEDULE_1F1B && share->microbatches < stages)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "schedule 1f1b needs as many micro-batches as stages: %" PRId64
                         " are fewer than %" PRId64,
                         share->microbatches, stages);
    if (share->strategy.strategy && share->strategy.strategy->wants_1f1b &&
        (share->schedule == PLIM_SCHEDULE_GPIPE || share->microbatches == stages))
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "under pp, PyTorch's DistributedDataParallel fails in the second step "
            "unless a forward pass follows the first backward pass: use fsdp2, or "
            "schedule 1f1b with more micro-batches than stages");
    bool split = share->schedule == PLIM_SCHEDULE_ZERO_BUBBLE;
    const untried all[] = {{step->infer, "infer"},
                           {split && !plim_str_is(step->checkpoint, "none"),
                            "checkpoint beside schedule zero_bubble"},
                           {s->sequence_parallel, "sequence_parallel"},
                           {s->sequences > 1, "sequences"},
                           {step->loss != PLIM_LOSS_DEFAULT && step->loss != PLIM_LOSS_MODEL,
                            "a loss that is not the model's own"},
                           {step->autocast != PLIM_F32, "autocast"},
                           {step->ema.optim != NULL, "ema"},
                           {step->accumulate > 1, "accumulate"},
                           {step->optim.in_backward, "an optimizer that steps in backward"},
                           {step->optim.optim->flags & PLIM_OPTIM_RUNS_MODEL,
                            "an optimizer that runs the model"}};
    return refuse_untried("pp", all, PLIM_COUNT(all), err);
}

/* What does not go with that strategy. */
static plim_status check_strategy(plim_step_settings *step, const plim_strategy *by,
                                  plim_err *err)
{
    plim_optim_spec *o = &step->optim;
    if ((by->from_host || by->modules) && step->ema.optim)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "ema '%s' copies whole parameters, of which '%s' leaves each rank a "
                         "shard: choose another strategy, or no ema",
                         step->ema.optim->name, by->name);
    if (o->in_backward)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "an optimizer in backward steps before '%s' has exchanged the "
                         "gradients: choose one of them",
                         by->name);
    if (by->one_type && o->optim->flags & PLIM_OPTIM_RUNS_MODEL)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "optimizer '%s' runs the model itself, and '%s' takes no closure: "
                         "choose another one",
                         o->optim->name, by->name);
    if (by->fused && !o->impl && strstr(o->optim->impls, "fused"))
        o->impl = PLIM_IMPL_FUSED;
    return PLIM_OK;
}

static plim_status read_share(plim_step_settings *step, const plim_settings *s, bool divides,
                              plim_err *err)
{
    const int64_t size[] = {
#define PLIM_AXIS(name, divide, alike, doc) s->name,
#include "share/axes.def"
#undef PLIM_AXIS
    };
    plim_status st =
        plim_share_make(size, s->rank, s->strategy, step->infer, divides, &step->share, err);
    if (!st)
        st = check_pipeline(step, s, divides, err);
    step->share.sequence = s->sequence_parallel;
    step->share.experts = s->ep ? s->ep : 1;
    if (!st && step->share.sequence)
        st = check_sequence(step, err);
    if (!st && step->share.size[PLIM_AXIS_tp] > 1 && !divides)
        st = check_parts(step, err);
    if (!st && step->share.experts > 1 && !divides)
        st = check_experts(&step->share, err);
    const plim_strategy *by = step->share.strategy.strategy;
    return st || !by ? st : check_strategy(step, by, err);
}

static bool is_checkpointed(const plim_step_settings *step)
{
    return !step->infer && !plim_str_is(step->checkpoint, "none");
}

/* How a training script calls a language model that is built here.  transformers turns the
 * cache off under checkpointing, whatever was asked for (merge_with_config_defaults). */
static void read_call(plim_job *job, const plim_settings *s)
{
    enum { ON = 1, OFF };               /* cache */
    enum { EQUAL = 1, PADDED, PACKED }; /* sequences */
    const plim_step_settings *step = &job->step;
    bool own_loss = step->loss == PLIM_LOSS_DEFAULT || step->loss == PLIM_LOSS_MODEL;
    const plim_loop *loop = step->loop ? step->loop : plim_loop_usual(own_loss);
    bool context = step->share.size[PLIM_AXIS_cp] > 1;
    job->bind.labels_are_inputs = loop->labels_are_inputs && !context;
    job->bind.positions_are_inputs = step->share.sequence; /* a part cannot count them */
    job->bind.padded = s->sequences == PADDED;
    job->bind.packed = s->sequences == PACKED;
    bool off = is_checkpointed(step) || s->cache == OFF ||
               step->share.size[PLIM_AXIS_pp] > 1 || context;
    job->bind.caching = off                             ? PLIM_CACHING_OFF
                        : s->cache == ON                ? PLIM_CACHING_ON
                        : step->infer || loop->no_cache ? PLIM_CACHING_OFF
                                                        : PLIM_CACHING_CONFIG;
}

void plim_job_plain_call(plim_job *job)
{
    job->bind.labels_are_inputs = job->bind.padded = job->bind.packed = false;
    job->bind.caching = PLIM_CACHING_OFF;
}

static plim_status read_sizes(plim_job *job, const plim_settings *s, plim_err *err)
{
    job->bind.batch = s->batch;
    job->bind.seq = s->seq;
    job->bind.infer = job->step.infer;
    read_call(job, s);
    plim_status st = plim_binding_inputs(job->arena, s->input, &job->bind, err);
    if (!st)
        st = plim_binding_dims(job->arena, s->dim, &job->bind, err);
    return st ? st : check_batch(&job->bind, err);
}

/* The last words of the setting are the model's own loss, fused with its head. */
static plim_status read_fused(plim_job *job, const plim_settings *s, plim_err *err)
{
    const plim_step_settings *step = &job->step;
    if (s->loss <= PLIM_LOSS_MODEL || step->infer)
        return PLIM_OK;
    job->fused = (plim_fused_loss)(s->loss - PLIM_LOSS_MODEL);
    const untried all[] = {{step->autocast != PLIM_F32, "autocast"},
                           {step->share.size[PLIM_AXIS_tp] > 1, "tp"},
                           {step->share.size[PLIM_AXIS_cp] > 1, "cp"},
                           {step->share.size[PLIM_AXIS_pp] > 1, "pp"}};
    return refuse_untried("a fused loss", all, PLIM_COUNT(all), err);
}

/* Calibrated on half of the measured runs and judged on the other: docs/accuracy.md. */
enum { MARGIN_PERCENT = 5 };

static plim_status read_libraries(plim_job *job, const plim_settings *s, plim_err *err)
{
    enum { TF32_OFF = 2 }; /* cudnn_tf32 */
    const plim_workspace workspace = plim_workspace_of(s->workspace);
    job->bound = workspace.bound;
    job->margin = MARGIN_PERCENT;
    plim_libraries *lib = &job->step.world.lib;
    lib->workspace = workspace.counted;
    lib->no_tf32 = s->cudnn_tf32 == TF32_OFF;
    lib->benchmark = s->cudnn_benchmark;
    return s->cublas_workspace ? plim_world_cublas(s->cublas_workspace, lib, err) : PLIM_OK;
}

/* Virtual tokens are put in front of whole sequences, by a module outside of those that are divided. */
static plim_status check_prompt(const plim_job *job, plim_err *err)
{
    const plim_share *share = &job->step.share;
    const plim_strategy *strategy = share->strategy.strategy;
    const untried all[] = {
        {job->bind.padded || job->bind.packed, "sequences padded or packed"},
        {strategy && strcmp(strategy->name, "ddp") != 0, "a strategy other than ddp"},
        {share->size[PLIM_AXIS_tp] > 1, "tp"},
        {share->size[PLIM_AXIS_pp] > 1, "pp"},
        {share->size[PLIM_AXIS_cp] > 1, "cp"}};
    return plim_adapter_tokens(&job->adapter)
               ? refuse_untried("virtual tokens of peft", all, PLIM_COUNT(all), err)
               : PLIM_OK;
}

static plim_status read_adapter(plim_job *job, const plim_settings *s, plim_err *err)
{
    plim_status st = PLIM_OK;
    if (s->lora && s->peft)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'lora' is a method of 'peft': give one of them");
    if (s->peft)
        st = plim_adapter_parse(job->arena, s->peft, &job->adapter, err);
    else if (s->lora)
        st = plim_adapter_parse_items(PLIM_STR("lora"), plim_str_of(s->lora), &job->adapter,
                                      err);
    return st ? st : check_prompt(job, err);
}

/* Packed weights get no gradients.  src: transformers trainer.py validate_quantization_for_training;
 * peft utils/other.py prepare_model_for_kbit_training */
static plim_status read_quant(plim_job *job, const plim_settings *s, plim_err *err)
{
    plim_status st = plim_quant_parse(plim_str_of(s->quant), &job->quant, err);
    if (st)
        return st;
    const plim_adapter *adapter = job->adapter.method ? &job->adapter : NULL;
    if (!job->step.infer && !adapter)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'quant' packs weights, which cannot be trained: train adapters with "
                         "'lora', or use --infer");
    if (adapter && plim_adapter_unpacked(adapter))
        return plim_fail(err, PLIM_EUSAGE, 0, "'quant' cannot be combined with %s",
                         plim_adapter_unpacked(adapter));
    job->quant.made_as = job->step.dtype;
    if (job->quant.prepare)
        job->step.dtype = PLIM_F32;
    return PLIM_OK;
}

/* ---- what the model's file says about the run ------------------------------------ */

static plim_status take_pair(plim_arena *a, plim_settings *s, plim_str pair, plim_err *err)
{
    enum { TRAIN = 1, INFER }; /* mode */
    for (int id = 0; id < PLIM_SETTING_COUNT; id++) {
        plim_str key = plim_str_of(plim_setting_rows[id].key);
        if (pair.n <= key.n || memcmp(pair.p, key.p, key.n) != 0 || pair.p[key.n] != '=')
            continue;
        bool unused = s->mode == INFER && plim_setting_rows[id].training;
        const char *value =
            plim_arena_str(a, (plim_str){pair.p + key.n + 1, pair.n - key.n - 1}).p;
        if (s->text[id].p || unused)
            return PLIM_OK;
        return value ? plim_settings_put(s, (plim_setting_id)id, value, err) : plim_oom(err);
    }
    return PLIM_OK;
}

static bool divides_itself(const plim_job *job)
{
    return job->model->importer && job->model->importer->divides;
}

static plim_status take_settings(plim_job *job, plim_err *err)
{
    const plim_importer *i = job->model->importer;
    const char *text = NULL;
    plim_str rest, pair;
    if (!i || !i->settings)
        return PLIM_OK;
    const plim_settings *set = job->settings;
    const plim_given given = {set->dp, set->tp, set->pp, set->batch};
    plim_status st = i->settings(&job->model->source, &given, job->arena, &text, err);
    if (st)
        plim_err_prefix(err, "'%s': ", job->model->source.path);
    rest = plim_str_of(text ? text : "");
    while (!st && plim_item_word(&rest, ';', &pair))
        st = take_pair(job->arena, job->settings, pair, err);
    return st;
}

plim_status plim_job_open(plim_job *job, plim_arena *a, const plim_model *model,
                          const plim_settings *s, plim_err *err)
{
    *job =
        (plim_job){.arena = a, .model = model, .given = s, .settings = plim_settings_in(a, s)};
    if (!job->settings)
        return plim_oom(err);
    plim_status st = take_settings(job, err);
    if (!st)
        st = plim_settings_preset(job->settings, err);
    if (!st)
        st = read_step(&job->step, job->settings, err);
    if (!st)
        st = read_share(&job->step, job->settings, divides_itself(job), err);
    if (!st && job->step.grad_scaler)
        st = check_scaler(&job->step, err);
    if (!st)
        st = read_sizes(job, job->settings, err);
    if (!st)
        st = read_fused(job, job->settings, err);
    if (!st)
        st = read_adapter(job, job->settings, err);
    if (!st && job->settings->quant)
        st = read_quant(job, job->settings, err);
    if (!st)
        st = read_libraries(job, job->settings, err);
    if (st)
        return st;
    job->alloc.torch = job->step.torch->version;
    job->alloc.conf = plim_str_of(job->settings->alloc_conf);
    plim_job_use_card(job, NULL);
    return plim_allocator_of_conf(job->alloc.conf, job->alloc.torch, &job->alloc.allocator,
                                  err);
}

/* The word for the dtype of all that --dtype would cast; NULL: it is not one dtype, or no
 * word of the setting.  Only then does giving the setting change nothing. */
static const char *find_model_dtype(const plim_graph *g)
{
    plim_dtype t = PLIM_DTYPE_COUNT;
    plim_str word;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind == PLIM_VALUE_NODE || v->packed || v->adapter ||
            !plim_is_float(v->meta.dtype))
            continue;
        if (t != PLIM_DTYPE_COUNT && t != v->meta.dtype)
            return NULL;
        t = v->meta.dtype;
    }
    if (t == PLIM_DTYPE_COUNT)
        t = PLIM_F32;
    for (int n = 1; (word = plim_setting_word(PLIM_SET_dtype, n)).p; n++)
        if (plim_str_is(word, plim_dtype_name(t)))
            return plim_dtype_name(t);
    return NULL;
}

plim_status plim_job_resolve(plim_job *job, const plim_graph *g, const plim_step_info *info,
                             plim_err *err)
{
    const plim_step_settings *step = &job->step;
    const plim_settings *s = job->settings;
    plim_str keeps =
        info ? plim_loop_keeps_text(job->arena, info->keeps) : (plim_str){NULL, 0};
    const struct {
        plim_setting_id id;
        const char *text;
    } texts[] = {
        {PLIM_SET_dtype, s->dtype ? s->text[PLIM_SET_dtype].p : find_model_dtype(g)},
        {PLIM_SET_autocast,
         step->autocast == PLIM_F32 ? NULL : plim_dtype_name(step->autocast)},
        {PLIM_SET_optimizer, plim_arena_str(job->arena, step->optim.text).p},
        {PLIM_SET_ema, plim_arena_str(job->arena, step->ema.text).p},
        {PLIM_SET_cache, g->kv_cache ? (g->cached ? "on" : "off") : NULL},
        {PLIM_SET_loop, info ? info->loop->name : NULL},
        {PLIM_SET_keep, keeps.p},
        {PLIM_SET_clip, step->clip ? "true" : "false"},
        {PLIM_SET_zero_grad, step->zero_grad_keeps ? "zeros" : "none"},
        {PLIM_SET_strategy, step->share.strategy.strategy
                                ? plim_arena_str(job->arena, step->share.strategy.text).p
                                : NULL},
        {PLIM_SET_torch, plim_torch_name(job->arena, step->world.lib.torch)},
    };
    plim_status st = put_int(job, PLIM_SET_batch, g->batch, err);
    if (!st)
        st = put_int(job, PLIM_SET_steps, step->steps, err);
    if (!st && info && !step->infer)
        st = put_word(job, PLIM_SET_loss, (int)info->loss + (int)job->fused, err);
    for (size_t i = 0; i < PLIM_COUNT(texts) && !st; i++)
        st = put_text(job, texts[i].id, texts[i].text, err);
    return st || !step->infer ? st : plim_settings_drop_training(job->settings, err);
}

plim_status plim_job_progress(const plim_job *job, uint32_t done, uint32_t total,
                              const char *what, plim_err *err)
{
    const plim_settings *s = job->settings;
    if (s->progress && s->progress(s->progress_ud, done, total, what))
        return plim_fail(err, PLIM_ECANCELED, done, "canceled at %" PRIu32 " of %" PRIu32,
                         done, total);
    return PLIM_OK;
}

/* ---- running ------------------------------------------------------------------ */

void plim_job_use_card(plim_job *job, const plim_gpu *gpu)
{
    job->gpu = gpu;
    job->step.world = plim_world_on(job->step.torch, gpu, job->step.world.lib);
}

/* The next length that the cards divide, if they have to: a search tries all. */
static int64_t divide_seq(const plim_share *s, int64_t seq)
{
    int64_t parts = s->size[PLIM_AXIS_cp] > 1 ? 2 * s->size[PLIM_AXIS_cp]
                    : s->sequence             ? s->size[PLIM_AXIS_tp]
                                              : 1;
    return seq + (parts - seq % parts) % parts;
}

plim_status plim_job_graph(const plim_job *job, int64_t size, plim_arena *a, plim_graph *g,
                           plim_err *err)
{
    plim_binding bind = job->bind;
    int64_t batch = job->find_seq ? 0 : size;
    const plim_strategy *by = job->step.share.strategy.strategy;
    const plim_transform_run run = {job->step.dtype, job->step.autocast, job->step.infer,
                                    is_checkpointed(&job->step), by && by->one_type};
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
    if (divides_itself(job)) {
        bind.part.weights = share.size[PLIM_AXIS_tp];
        bind.part.sequence = share.sequence;
        bind.part.stages = share.size[PLIM_AXIS_pp];
        bind.part.stage = share.at[PLIM_AXIS_pp];
        bind.part.chunks = share.chunks;
        share.size[PLIM_AXIS_tp] = share.size[PLIM_AXIS_pp] = share.size[PLIM_AXIS_cp] = 1;
    }
    plim_status st = plim_model_graph(job->model, &bind, a, g, err);
    if (!st && bind.caching == PLIM_CACHING_ON && !g->cached)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'cache' is on, but only decoders that plimsoll builds from a "
                         "config.json can keep keys and values");
    if (!st && (bind.padded || bind.packed) && !g->uneven)
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "sequences are %s only for %s that plimsoll builds from a config.json",
            bind.padded ? "padded" : "packed",
            bind.padded ? "BERT and its relatives and decoders"
                        : "decoders with position_ids");
    if (!st && job->settings->freeze && !job->step.infer)
        st = plim_freeze_apply(g, plim_str_of(job->settings->freeze), err);
    if (!st && job->quant.kind)
        st = plim_quant_apply(g, &job->quant, err);
    if (!st && job->adapter.method)
        st = plim_adapter_apply(g, &job->adapter, &run, err);
    if (!st && job->fused)
        st = plim_fuse_loss(g, job->fused, err);
    if (!st && share.experts > 1 && g->expert_ranks != share.experts)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "ep shares out experts, and this model has none that plimsoll built");
    return st ? st : plim_share_divide(g, &share, err);
}

plim_dtype plim_job_cache_dtype(const plim_job *job, const plim_graph *g)
{
    if (job->step.autocast != PLIM_F32)
        return job->step.autocast;
    if (job->step.dtype != PLIM_DTYPE_COUNT)
        return job->step.dtype;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == PLIM_VALUE_PARAMETER && !g->values[i].packed)
            return g->values[i].meta.dtype;
    return PLIM_F32;
}

plim_status plim_job_note(const plim_job *job, plim_graph *g, plim_err *err)
{
    plim_buf b;
    plim_buf_init(&b, g->arena);
    plim_buf_add(&b, g->note);
    if (g->note.n && g->note.p[g->note.n - 1] != '.')
        plim_buf_puts(&b, ".");
    if (g->batch && g->batch_fixed)
        plim_buf_printf(&b,
                        "%sThe file was exported with a fixed batch size of %" PRId64
                        ": to estimate others, export it again with a dynamic batch "
                        "dimension.",
                        b.n ? " " : "", g->batch);
    if (g->kv_cache && !g->cached && job->step.infer) {
        uint64_t token =
            plim_sat_mul(g->kv_cache, plim_dtype_bytes(plim_job_cache_dtype(job, g)));
        plim_buf_printf(&b,
                        "%sA KV cache for generation is not included: %s for each token, up "
                        "to %s for a sequence of %" PRId64 ".",
                        b.n ? " " : "", plim_fmt_bytes(token, false).s,
                        plim_fmt_bytes(plim_sat_mul(token, (uint64_t)g->seq), false).s,
                        g->seq);
    }
    const char *torch = plim_torch_note(g->arena, job->settings->torch);
    if (!torch)
        return plim_oom(err);
    plim_buf_printf(&b, "%s%s", *torch && b.n ? " " : "", torch);
    if (job->alloc.allocator->model)
        plim_buf_printf(&b, "%s%s", b.n ? " " : "", job->alloc.allocator->model);
    if (b.n > g->note.n + 1) /* more than a full stop was added */
        g->note = plim_buf_str(&b);
    return b.bad ? plim_oom(err) : PLIM_OK;
}

double plim_job_samples_per_s(const plim_job *job, int64_t batch, double seconds)
{
    double samples = (double)batch * (job->step.infer ? 1 : job->step.accumulate);
    return seconds > 0 ? samples / seconds : 0;
}

/* Gives every estimated storage the size of one bound. */
static void fix_storage_sizes(plim_tape *t, plim_bound b)
{
    for (uint32_t i = 0; i < t->n_storages; i++) {
        t->storages[i].bytes = plim_storage_bytes(&t->storages[i], b);
        t->storages[i].low = t->storages[i].high = 0;
    }
}

plim_status plim_job_tape(const plim_job *job, const plim_graph *g, plim_arena *a,
                          plim_tape *t, plim_step_info *info, plim_err *err)
{
    plim_tape_init(t, a);
    if (job->step.share.every_rank)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "only an estimate is about all ranks: give 'rank' a number");
    plim_status st = plim_step_run(a, g, &job->step, t, info, err);
    if (!st && job->bound != PLIM_BOUND_USUAL)
        fix_storage_sizes(t, job->bound);
    return st;
}
