/* told.c -- what a job says of itself: the settings that it used, what is left out. */
#include "job/job_priv.h"

#include <stdio.h>

#include "base/fmt.h"
#include "import/hf/hf_releases.h"

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

/* NULL: it takes none. */
static const char *find_images(const plim_job *job, const plim_graph *g)
{
    if (!g->sizes.takes_images)
        return NULL;
    const plim_graph_sizes *z = &g->sizes;
    if (z->width && z->images)
        return plim_arena_printf(job->arena, "%" PRId64 "@%" PRId64 "x%" PRId64, z->images,
                                 z->width, z->height)
            .p;
    if (z->width)
        return plim_arena_printf(job->arena, "%" PRId64 "x%" PRId64, z->width, z->height).p;
    return job->settings->images
               ? job->settings->images
               : plim_arena_printf(job->arena, "%" PRId64, g->sizes.images).p;
}

/* NULL: it takes none. */
static const char *find_audio(const plim_job *job, const plim_graph *g)
{
    return g->sizes.audio ? plim_arena_printf(job->arena, "%" PRId64, g->sizes.audio).p : NULL;
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
        {PLIM_SET_images, find_images(job, g)},
        {PLIM_SET_audio, find_audio(job, g)},
        {PLIM_SET_autocast,
         step->autocast == PLIM_F32 ? NULL : plim_dtype_name(step->autocast)},
        {PLIM_SET_optimizer, plim_arena_str(job->arena, step->optim.text).p},
        {PLIM_SET_ema, plim_arena_str(job->arena, step->ema.text).p},
        {PLIM_SET_cache, g->kv.elements ? (g->kv.returned ? "on" : "off") : NULL},
        {PLIM_SET_loop, info ? info->loop->name : NULL},
        {PLIM_SET_keep, keeps.p},
        {PLIM_SET_clip, step->clip ? "true" : "false"},
        {PLIM_SET_zero_grad, step->zero_grad_keeps ? "zeros" : "none"},
        {PLIM_SET_strategy, step->share.strategy.strategy
                                ? plim_arena_str(job->arena, step->share.strategy.text).p
                                : NULL},
        {PLIM_SET_transformers, g->about.transformers
                                    ? plim_hf_release_name(job->arena, g->about.transformers).p
                                    : NULL},
        {PLIM_SET_bitsandbytes, job->quant.kind && !job->settings->bitsandbytes
                                    ? "0.50"
                                    : job->settings->bitsandbytes},
        {PLIM_SET_torch, plim_torch_name(job->arena, step->world.lib.torch)},
    };
    plim_status st = put_int(job, PLIM_SET_batch, g->sizes.batch, err);
    if (!st)
        st = put_int(job, PLIM_SET_steps, step->steps, err);
    if (!st && info && !step->infer)
        st = put_text(job, PLIM_SET_loss, plim_job_loss_word(info->loss, job->fused), err);
    for (size_t i = 0; i < PLIM_COUNT(texts) && !st; i++)
        st = put_text(job, texts[i].id, texts[i].text, err);
    return st || !step->infer ? st : plim_settings_drop_training(job->settings, err);
}

/* ---- in words ------------------------------------------------------------------ */

/* Of a sequence of so many tokens. */
static uint64_t sequence_bytes(const plim_job *job, const plim_graph *g, uint64_t tokens)
{
    const plim_kv_type type = {"", 1,
                               (uint32_t)plim_dtype_bytes(plim_job_cache_dtype(job, g))};
    const plim_cache_rules r = {.keys = &type, .values = &type, .step = 1, .windows = 1};
    return plim_cache_sum(&g->kv, &r, tokens);
}

/* What an inference has of the cache, and what generating tokens adds: nothing in layers whose window is full. */
static void note_cache(const plim_job *job, const plim_graph *g, plim_buf *b)
{
    const uint64_t seq = (uint64_t)PLIM_MAX(g->sizes.seq, 0),
                   all = sequence_bytes(job, g, seq);
    const char *space = b->n ? " " : "";
    if (g->kv.returned)
        plim_buf_printf(b,
                        "%sThe output holds the KV cache of its tokens: each token that is "
                        "generated adds %s for each sequence.",
                        space, plim_fmt_bytes(sequence_bytes(job, g, seq + 1) - all, false).s);
    else
        plim_buf_printf(b,
                        "%sA KV cache for generation is not included: %s for each token, up "
                        "to %s for a sequence of %" PRId64 ".",
                        space, plim_fmt_bytes(sequence_bytes(job, g, 1), false).s,
                        plim_fmt_bytes(all, false).s, g->sizes.seq);
}

plim_status plim_job_note(const plim_job *job, plim_graph *g, plim_err *err)
{
    plim_buf b;
    plim_buf_init(&b, g->arena);
    plim_buf_add(&b, g->about.note);
    if (g->about.note.n && g->about.note.p[g->about.note.n - 1] != '.')
        plim_buf_puts(&b, ".");
    if (g->sizes.batch && g->sizes.batch_fixed)
        plim_buf_printf(&b,
                        "%sThe file was exported with a fixed batch size of %" PRId64
                        ": to estimate others, export it again with a dynamic batch "
                        "dimension.",
                        b.n ? " " : "", g->sizes.batch);
    if (g->kv.elements && job->step.infer)
        note_cache(job, g, &b);
    const char *torch = plim_torch_note(g->arena, job->settings->torch),
               *sold = plim_gpu_sold(g->arena, job->settings->vram);
    if (!torch || !sold)
        return plim_oom(err);
    plim_buf_printf(&b, "%s%s", *torch && b.n ? " " : "", torch);
    plim_buf_printf(&b, "%s%s", *sold && b.n ? " " : "", sold);
    if (job->alloc.allocator->model)
        plim_buf_printf(&b, "%s%s", b.n ? " " : "", job->alloc.allocator->model);
    PLIM_TRY(plim_job_say_uncompared(job, g->arena, &b, err));
    if (b.n > g->about.note.n + 1) /* more than a full stop was added */
        g->about.note = plim_buf_str(&b);
    return b.bad ? plim_oom(err) : PLIM_OK;
}

double plim_job_samples_per_s(const plim_job *job, int64_t batch, double seconds)
{
    plim_assert(batch >= 0);
    double samples = (double)batch * (job->step.infer ? 1 : job->step.accumulate);
    return seconds > 0 ? samples / seconds : 0;
}
