/* advice.c -- see advice.h.
 *
 * What a change would save is computed from the bytes live at the peak and from
 * the peaks of the other phases, below which the peak cannot fall.  It is not
 * simulated, hence the "about". */
#include "fit/advice.h"

#include "base/fmt.h"
#include "optim/optim.h"
#include "settings/settings.h"

/* Categories that the same change would reduce. */
typedef enum advice_part {
    PART_SAMPLES,   /* grows with the batch */
    PART_WEIGHTS,   /* parameters, their averages, gradients, buffers */
    PART_OPTIMIZER, /* its state, and its temporaries during the step */
    PART_WORKSPACE,
    PART_COUNT
} advice_part;

static advice_part choose_part(plim_category c, plim_phase peak)
{
    switch (c) {
    case PLIM_CAT_PARAMETER:
    case PLIM_CAT_BUFFER:
    case PLIM_CAT_GRADIENT: return PART_WEIGHTS;
    case PLIM_CAT_OPTIMIZER_STATE: return PART_OPTIMIZER;
    case PLIM_CAT_TEMPORARY:
        return peak == PLIM_PHASE_OPTIMIZER ? PART_OPTIMIZER : PART_SAMPLES;
    case PLIM_CAT_WORKSPACE: return PART_WORKSPACE;
    default: return PART_SAMPLES;
    }
}

static bool is_inference(const plim_estimate *e)
{
    return !strcmp(e->settings->text[PLIM_SET_mode].p, "infer");
}

/* The peak of this phase (`same`) or of all other phases. */
static uint64_t find_peak(const plim_estimate *e, plim_phase phase, bool same)
{
    uint64_t top = 0;
    for (uint32_t i = 0; i < e->n_phases; i++)
        if ((e->phases[i]->phase == phase) == same)
            top = PLIM_MAX(top, e->phases[i]->peak_requested);
    return top;
}

/* Limits a saving: the peak cannot fall below the `next` highest one. */
static uint64_t limit_saving(const plim_estimate *e, uint64_t saved, uint64_t next)
{
    return e->peak_requested > next ? PLIM_MIN(saved, e->peak_requested - next) : 0;
}

static plim_str say_samples(plim_arena *a, const plim_estimate *e, uint64_t bytes,
                            plim_text share)
{
    bool infer = is_inference(e);
    if (e->model->batch < 2)
        return plim_arena_printf(a, "%s are %s of the peak; --dtype bf16 would save about %s.",
                                 infer ? "Inputs and layer outputs" : "Activations", share.s,
                                 plim_fmt_bytes(bytes / 2, false).s);
    uint64_t next = infer ? 0 : find_peak(e, PLIM_PHASE_OPTIMIZER, true);
    return plim_arena_printf(
        a,
        "Memory that grows with the batch, mostly %s, is %s of the peak; halving the batch "
        "to %" PRId64 " would save about %s.",
        infer ? "inputs and layer outputs" : "activations", share.s, e->model->batch / 2,
        plim_fmt_bytes(limit_saving(e, bytes / 2, next), false).s);
}

static plim_str say_weights(plim_arena *a, const plim_estimate *e, uint64_t bytes,
                            plim_text share)
{
    const char *what = is_inference(e) ? "Parameters"
                       : e->ema_bytes  ? "Parameters, gradients and the averaged copy"
                                       : "Parameters and gradients";
    const char *dtype = e->settings->text[PLIM_SET_dtype].p;
    if (strcmp(dtype ? dtype : plim_dtype_name(e->model->dtype), "fp32") != 0)
        return plim_arena_printf(
            a, "%s are %s of the peak; only a smaller model would need less.", what, share.s);
    return plim_arena_printf(a, "%s are %s of the peak; --dtype bf16 would save about %s.",
                             what, share.s, plim_fmt_bytes(bytes / 2, false).s);
}

/* The implementation with the fewest temporaries; NULL if it is in use already. */
static const char *find_better_impl(const plim_estimate *e)
{
    plim_optim_spec s;
    if (plim_optim_parse(plim_str_of(e->settings->optimizer), &s, NULL) ||
        s.impl == PLIM_IMPL_FUSED)
        return NULL;
    if (strstr(s.optim->impls, "fused"))
        return "fused";
    return strstr(s.optim->impls, "foreach") && s.impl != PLIM_IMPL_FORLOOP ? "forloop" : NULL;
}

/* Without optimizer state the peaks of all phases are lower, without its temporaries
 * only that of the optimizer phase. */
static plim_str say_optimizer(plim_arena *a, const plim_estimate *e, uint64_t bytes,
                              plim_text share)
{
    plim_str name = {e->settings->optimizer, strcspn(e->settings->optimizer, ",")};
    uint64_t next = find_peak(e, PLIM_PHASE_OPTIMIZER, false);
    uint64_t state = e->category[PLIM_CAT_OPTIMIZER_STATE] - e->ema_bytes;
    uint64_t made = bytes - state;
    plim_text sgd =
                  plim_fmt_bytes(limit_saving(e, bytes, next - PLIM_MIN(next, state)), false),
              other = plim_fmt_bytes(limit_saving(e, made, next), false);
    const char *impl = find_better_impl(e);
    if (!made)
        return plim_arena_printf(a,
                                 "The state of " PLIM_STR_FMT " is %s of the peak; plain SGD "
                                 "keeps none and would save about %s.",
                                 PLIM_STR_ARG(name), share.s, sgd.s);
    plim_str subject = plim_arena_printf(a, "The %s of " PLIM_STR_FMT " are %s of the peak",
                                         state ? "state and temporaries" : "temporaries",
                                         PLIM_STR_ARG(name), share.s);
    if (!subject.p)
        return subject;
    if (!impl)
        return plim_arena_printf(a, PLIM_STR_FMT "; plain SGD would save about %s.",
                                 PLIM_STR_ARG(subject), sgd.s);
    return plim_arena_printf(a, PLIM_STR_FMT "; impl=%s would save about %s%s%s.",
                             PLIM_STR_ARG(subject), impl, other.s,
                             state ? ", plain SGD about " : "", state ? sgd.s : "");
}

static plim_str say_workspace(plim_arena *a, const plim_estimate *e, uint64_t bytes,
                              plim_text share)
{
    (void)e;
    return plim_arena_printf(
        a,
        "Library workspaces are %s of the peak (%s): that of cuBLAS is the same for any "
        "model, those of cuDNN grow with the batch.",
        share.s, plim_fmt_bytes(bytes, false).s);
}

plim_str plim_advice(plim_arena *a, const plim_estimate *e)
{
    static plim_str (*const say[PART_COUNT])(plim_arena *, const plim_estimate *, uint64_t,
                                             plim_text) = {say_samples, say_weights,
                                                           say_optimizer, say_workspace};
    uint64_t bytes[PART_COUNT] = {0};
    int top = 0;
    for (int c = 0; c < PLIM_CAT_COUNT; c++)
        bytes[choose_part((plim_category)c, e->peak_phase)] += e->category[c];
    bytes[PART_OPTIMIZER] -= e->ema_bytes;
    bytes[PART_WEIGHTS] += e->ema_bytes;
    for (int p = 1; p < PART_COUNT; p++)
        if (bytes[p] > bytes[top])
            top = p;
    if (!e->peak_live_requested)
        return PLIM_STR("Nothing is allocated.");
    return say[top](a, e, bytes[top], plim_fmt_percent(bytes[top], e->peak_live_requested));
}
