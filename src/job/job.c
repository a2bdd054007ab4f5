/* job.c -- see job.h. */
#include "job/job.h"

#include "base/fmt.h"
#include "base/items.h"
#include "import/hf/hf_releases.h"
#include "job/job_priv.h"
#include "job/together.h"

/* ---- the step ------------------------------------------------------------------ */

/* The dtype that a setting names; `none` if it is not set. */
static plim_dtype read_dtype(const plim_settings *s, plim_setting_id id, plim_dtype none)
{
    plim_dtype t;
    return s->text[id].p && plim_dtype_find(plim_str_of(s->text[id].p), &t) ? t : none;
}

/* Steps until the optimizer's state is complete. */
static int usual_steps(const plim_step_settings *step)
{
    plim_assert(step->infer || step->optim.optim);
    enum { INFER_STEPS = 2 }; /* the second pass finds the allocator's cache filled */
    return step->infer ? INFER_STEPS
                       : PLIM_MIN(plim_optim_steady_steps(&step->optim),
                                  (int)plim_setting_rows[PLIM_SET_steps].most);
}

static plim_status read_loop(plim_step_settings *step, const plim_settings *s, plim_err *err)
{
    const char *name = s->text[PLIM_SET_loop].p;
    PLIM_TRY(name ? plim_loop_find(name, &step->loop, err) : PLIM_OK);
    step->clip |= step->loop && step->loop->clip;
    step->keeps_given = s->keep != NULL;
    return s->keep ? plim_loop_keeps(s->keep, &step->keeps, err) : PLIM_OK;
}

static plim_status read_step(plim_job *job, plim_err *err)
{
    const plim_settings *s = job->settings;
    plim_step_settings *step = &job->step;
    step->infer = plim_setting_is(s, PLIM_SET_mode, "infer");
    step->steps = (int)s->steps;
    step->accumulate = (int)s->accumulate;
    step->clip = s->clip;
    step->grad_scaler = s->grad_scaler;
    step->made_on_card = plim_setting_is(s, PLIM_SET_made, "card");
    step->empty_cache = s->empty_cache;
    step->dtype = read_dtype(s, PLIM_SET_dtype, PLIM_DTYPE_COUNT);
    step->autocast = read_dtype(s, PLIM_SET_autocast, PLIM_F32);
    step->loss = plim_job_loss(s);
    step->checkpoint = plim_str_of(s->checkpoint);
    plim_status st = read_loop(step, s, err);
    if (!st)
        st = plim_optim_parse(plim_str_of(s->optimizer), &step->optim, err);
    if (!st)
        st = plim_ema_parse(plim_str_of(s->ema), &step->ema, err);
    if (!st && !step->steps)
        step->steps = usual_steps(step);
    if (!st)
        st = plim_together_check(job, PLIM_TOGETHER_OPTIMIZER, NULL, err);
    if (!st)
        st = plim_torch_find(s->torch, &step->torch, &step->world.lib.torch, err);
    if (st)
        return st;
    step->zero_grad_keeps = s->zero_grad ? plim_setting_is(s, PLIM_SET_zero_grad, "zeros")
                                         : !step->torch->zero_grad_to_none;
    return st;
}

/* ---- the model and what is trained ---------------------------------------------- */

/* How a training script calls a language model that is built here.  transformers turns the
 * cache off under checkpointing, whatever was asked for (merge_with_config_defaults). */
static void read_call(plim_job *job, const plim_settings *s)
{
    const plim_step_settings *step = &job->step;
    bool own_loss = step->loss == PLIM_LOSS_DEFAULT || step->loss == PLIM_LOSS_MODEL;
    const plim_loop *loop = step->loop ? step->loop : plim_loop_usual(own_loss);
    bool context = step->share.size[PLIM_AXIS_cp] > 1;
    job->bind.labels_are_inputs = loop->labels_are_inputs && !context;
    job->bind.positions_are_inputs = step->share.sequence; /* a part cannot count them */
    job->bind.attention = (plim_attention)s->attention;    /* in the order of its words */
    job->bind.padded = plim_setting_is(s, PLIM_SET_sequences, "padded");
    job->bind.packed = plim_setting_is(s, PLIM_SET_sequences, "packed");
    job->bind.checkpoints = plim_job_checkpoints(step);
    bool off = job->bind.checkpoints || plim_setting_is(s, PLIM_SET_cache, "off") ||
               step->share.size[PLIM_AXIS_pp] > 1 || context;
    job->bind.caching = off                                        ? PLIM_CACHING_OFF
                        : plim_setting_is(s, PLIM_SET_cache, "on") ? PLIM_CACHING_ON
                        : loop->no_cache                           ? PLIM_CACHING_OFF
                                                                   : PLIM_CACHING_CONFIG;
}

void plim_job_plain_call(plim_job *job)
{
    job->bind.labels_are_inputs = job->bind.padded = job->bind.packed = false;
    job->bind.caching = PLIM_CACHING_OFF;
    job->bind.attention = PLIM_ATTENTION_DEFAULT;
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

static plim_status read_sizes(plim_job *job, const plim_settings *s, plim_err *err)
{
    job->bind.batch = s->batch;
    job->bind.seq = s->seq;
    job->bind.infer = job->step.infer;
    read_call(job, s);
    PLIM_TRY(plim_hf_release_parse(s->transformers, &job->bind.transformers, err));
    PLIM_TRY(plim_binding_inputs(job->arena, s->input, &job->bind, err));
    PLIM_TRY(plim_binding_images(s->images, &job->bind, err));
    PLIM_TRY(plim_binding_audio(s->audio, &job->bind, err));
    PLIM_TRY(plim_binding_dims(job->arena, s->dim, &job->bind, err));
    return check_batch(&job->bind, err);
}

static plim_status read_fused(plim_job *job, const plim_settings *s, plim_err *err)
{
    if (!job->step.infer)
        job->fused = plim_job_fused_loss(s);
    return plim_together_check(job, PLIM_TOGETHER_LOSS, NULL, err);
}

static plim_status read_adapter(plim_job *job, const plim_settings *s, plim_err *err)
{
    plim_status st = plim_together_check(job, PLIM_TOGETHER_ADAPTERS, NULL, err);
    if (st)
        return st;
    if (s->peft)
        st = plim_adapter_parse(job->arena, s->peft, &job->adapter, err);
    else if (s->lora)
        st = plim_adapter_parse_items(PLIM_STR("lora"), plim_str_of(s->lora), &job->adapter,
                                      err);
    return st ? st : plim_together_check(job, PLIM_TOGETHER_ADAPTER, NULL, err);
}

static plim_status read_quant(plim_job *job, const plim_settings *s, plim_err *err)
{
    plim_status st = plim_quant_parse(plim_str_of(s->quant), &job->quant, err);
    if (!st)
        st = plim_quant_release(s->bitsandbytes, &job->quant.release, err);
    if (!st)
        st = plim_together_check(job, PLIM_TOGETHER_QUANT, NULL, err);
    job->quant.made_as = job->step.dtype;
    if (job->quant.prepare)
        job->step.dtype = PLIM_F32;
    return st;
}

/* The preset is calibrated on half of the measured runs and judged on the other: docs/accuracy.md. */
static plim_status read_margin(plim_job *job, const plim_settings *s, plim_err *err)
{
    double percent;
    if (!plim_parse_percent(plim_str_of(s->margin), &percent) || percent > 100)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'margin': '%s' is not a percentage from 0%% to 100%%", s->margin);
    job->margin = (unsigned)(percent * PLIM_JOB_MARGIN_ONE / 100 + 0.5);
    plim_assert(job->margin <= PLIM_JOB_MARGIN_ONE);
    return PLIM_OK;
}

static plim_status read_libraries(plim_job *job, const plim_settings *s, plim_err *err)
{
    const plim_workspace workspace = plim_workspace_of(s->workspace);
    job->bound = workspace.bound;
    plim_libraries *lib = &job->step.world.lib;
    lib->workspace = workspace.counted;
    lib->no_tf32 = plim_setting_is(s, PLIM_SET_cudnn_tf32, "off");
    lib->benchmark = s->cudnn_benchmark;
    lib->eager = plim_setting_is(s, PLIM_SET_module_loading, "eager");
    if (lib->torch < PLIM_GPU_LAZY_SINCE &&
        plim_setting_is(s, PLIM_SET_module_loading, "lazy"))
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "'module_loading' is lazy, which came with PyTorch %d.%d; this is %d.%d",
            PLIM_GPU_LAZY_SINCE / 100, PLIM_GPU_LAZY_SINCE % 100, lib->torch / 100,
            lib->torch % 100);
    return s->cublas_workspace ? plim_world_cublas(s->cublas_workspace, lib, err) : PLIM_OK;
}

/* ---- what the model's file says about the run ------------------------------------ */

/* A value that a setting does not take is the file's fault. */
static plim_status take_value(plim_settings *s, plim_setting_id id, const char *value,
                              plim_err *err)
{
    plim_err why = PLIM_ERR_INIT;
    plim_status st = plim_settings_put(s, id, value, &why);
    return st == PLIM_EUSAGE
               ? plim_fail(err, PLIM_EFORMAT, 0, "%s: %s", plim_setting_rows[id].key, why.msg)
           : st ? plim_fail(err, st, 0, "%s", why.msg)
                : PLIM_OK;
}

static plim_status take_pair(plim_arena *a, plim_settings *s, plim_str pair, plim_err *err)
{
    for (int id = 0; id < PLIM_SETTING_COUNT; id++) {
        plim_str key = plim_str_of(plim_setting_rows[id].key);
        if (pair.n <= key.n || memcmp(pair.p, key.p, key.n) != 0 || pair.p[key.n] != '=')
            continue;
        bool unused =
            plim_setting_is(s, PLIM_SET_mode, "infer") && plim_setting_rows[id].training;
        const char *value =
            plim_arena_str(a, (plim_str){pair.p + key.n + 1, pair.n - key.n - 1}).p;
        if (s->text[id].p || unused)
            return PLIM_OK;
        return value ? take_value(s, (plim_setting_id)id, value, err) : plim_oom(err);
    }
    return PLIM_OK;
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
    rest = plim_str_of(text ? text : "");
    while (!st && plim_item_word(&rest, ';', &pair))
        st = take_pair(job->arena, job->settings, pair, err);
    if (st)
        plim_err_prefix(err, "'%s': ", plim_model_subject(job->model));
    return st;
}

/* ---- all of it ------------------------------------------------------------------ */

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
        st = read_step(job, err);
    if (!st)
        st = plim_job_read_share(job, err);
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
    if (!st)
        st = read_margin(job, job->settings, err);
    if (st)
        return st;
    plim_assert(job->step.steps > 0 && job->step.accumulate > 0);
    job->alloc.torch = job->step.torch->version;
    job->alloc.conf = plim_str_of(job->settings->alloc_conf);
    plim_job_use_card(job, NULL);
    return plim_allocator_of_conf(job->alloc.conf, job->alloc.torch, &job->alloc.allocator,
                                  err);
}

/* ---- the card ------------------------------------------------------------------ */

plim_status plim_job_card(plim_job *job, plim_err *err)
{
    const plim_settings *s = job->settings;
    const plim_gpu *gpu = NULL;
    plim_status st = PLIM_OK;
    if (s->gpu)
        st = plim_gpu_find(plim_str_of(s->gpu), &gpu, err);
    if (!st && s->vram && gpu) { /* the named card with another memory size */
        job->generic = *gpu;
        plim_gpu_give(&job->generic, s->vram);
        job->generic.memory_kind = PLIM_GPU_GIVEN;
    } else if (!st && s->vram) {
        st = plim_gpu_generic(job->arena, s->vram, &job->generic, err);
    }
    if (s->vram)
        gpu = &job->generic;
    if (!st && !gpu && plim_alloc_allowed(&job->alloc, 1) != UINT64_MAX)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'alloc_conf': a memory fraction needs a card: give 'gpu' or 'vram'");
    plim_job_use_card(job, gpu);
    return st;
}

void plim_job_use_card(plim_job *job, const plim_gpu *gpu)
{
    plim_assert(job->step.torch);
    job->gpu = gpu;
    job->step.world = plim_world_on(job->step.torch, gpu, job->step.world.lib);
}

plim_status plim_job_progress(const plim_job *job, uint32_t done, uint32_t total,
                              const char *what, plim_err *err)
{
    plim_assert(!total || done <= total);
    const plim_settings *s = job->settings;
    if (s->progress && s->progress(s->progress_ud, done, total, what))
        return plim_fail(err, PLIM_ECANCELED, done, "canceled at %" PRIu32 " of %" PRIu32,
                         done, total);
    return PLIM_OK;
}
