/* advice.c -- see advice.h.  Every change that it names has been simulated. */
#include "fit/advice.h"

#include "base/fmt.h"
#include "optim/optim.h"

/* ---- what dominates ---------------------------------------------------------------------- */

static plim_part choose_part(plim_category c, plim_phase peak)
{
    switch (c) {
    case PLIM_CAT_PARAMETER:
    case PLIM_CAT_BUFFER:
    case PLIM_CAT_GRADIENT: return PLIM_PART_WEIGHTS;
    case PLIM_CAT_OPTIMIZER_STATE: return PLIM_PART_OPTIMIZER;
    case PLIM_CAT_TEMPORARY:
        return peak == PLIM_PHASE_OPTIMIZER ? PLIM_PART_OPTIMIZER : PLIM_PART_SAMPLES;
    case PLIM_CAT_WORKSPACE: return PLIM_PART_WORKSPACE;
    default: return PLIM_PART_SAMPLES;
    }
}

static void sum_parts(const plim_estimate *e, uint64_t part[PLIM_PART_COUNT])
{
    for (int c = 0; c < PLIM_CAT_COUNT; c++)
        part[choose_part((plim_category)c, e->peak_phase)] += e->category[c];
    part[PLIM_PART_OPTIMIZER] -= e->ema;
    part[PLIM_PART_WEIGHTS] += e->ema;
}

static void say_samples(plim_buf *b, const plim_job *job, const plim_estimate *e,
                        uint64_t bytes)
{
    bool infer = job->step.infer, one = e->model->batch < 2;
    const char *what = infer ? "inputs and layer outputs" : "activations";
    if (one)
        plim_buf_printf(b, "%s are", infer ? "Inputs and layer outputs" : "Activations");
    else
        plim_buf_printf(b, "Memory that grows with the batch, mostly %s, is", what);
    plim_buf_printf(b, " %s of the peak.", plim_fmt_percent(bytes, e->peak_live_requested).s);
}

static void say_weights(plim_buf *b, const plim_job *job, const plim_estimate *e,
                        uint64_t bytes)
{
    plim_buf_printf(b, "%s are %s of the peak.",
                    job->step.infer ? "Parameters"
                    : e->ema        ? "Parameters, gradients and the averaged copy"
                                    : "Parameters and gradients",
                    plim_fmt_percent(bytes, e->peak_live_requested).s);
}

static void say_optimizer(plim_buf *b, const plim_job *job, const plim_estimate *e,
                          uint64_t bytes)
{
    uint64_t state = e->category[PLIM_CAT_OPTIMIZER_STATE] - e->ema;
    plim_buf_printf(b, "The %s of %s %s %s of the peak.",
                    state == bytes ? "state"
                    : state        ? "state and temporaries"
                                   : "temporaries",
                    job->step.optim.optim->name, state == bytes ? "is" : "are",
                    plim_fmt_percent(bytes, e->peak_live_requested).s);
}

static void say_workspace(plim_buf *b, const plim_job *job, const plim_estimate *e,
                          uint64_t bytes)
{
    (void)job;
    plim_buf_printf(b,
                    "Library workspaces are %s of the peak (%s): cuBLAS's is the same for any "
                    "model, cuDNN's grow with the batch.",
                    plim_fmt_percent(bytes, e->peak_live_requested).s,
                    plim_fmt_bytes(bytes, false).s);
}

static void say_dominant(plim_buf *b, const plim_job *job, const plim_estimate *e,
                         const uint64_t part[PLIM_PART_COUNT])
{
    static void (*const say[PLIM_PART_COUNT])(plim_buf *, const plim_job *,
                                              const plim_estimate *, uint64_t) = {
        say_samples, say_weights, say_optimizer, say_workspace};
    int top = 0;
    for (int p = 1; p < PLIM_PART_COUNT; p++)
        if (part[p] > part[top])
            top = p;
    say[top](b, job, e, part[top]);
}

/* ---- what would lower the peak ----------------------------------------------------------- */

enum { SHOWN = 4 }; /* changes in a sentence */

/* "--keep none would lower the peak by 1.00 GiB (reserved by 2.00 GiB); ..." */
static void say_savings(plim_buf *b, const plim_changes *c)
{
    for (uint32_t i = 0; i < PLIM_MIN(c->n, SHOWN); i++)
        plim_buf_printf(b, "%s%s %s %s (reserved by %s)", i ? "; " : " ", c->rows[i].settings,
                        i ? "by" : "would lower the peak by",
                        plim_fmt_bytes(c->rows[i].saved_allocated, false).s,
                        plim_fmt_bytes(c->rows[i].saved_reserved, false).s);
    plim_buf_printf(b, ".");
}

/* The changes with one verdict: " Would fit: --keep none (peak lower by ...)." */
static void say_verdict(plim_buf *b, const plim_changes *c, plim_fits fits, const char *head)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n && n < SHOWN; i++) {
        if (c->rows[i].fits != fits)
            continue;
        plim_buf_printf(b, "%s %s (peak lower by %s, reserved by %s)", n ? ";" : head,
                        c->rows[i].settings,
                        plim_fmt_bytes(c->rows[i].saved_allocated, false).s,
                        plim_fmt_bytes(c->rows[i].saved_reserved, false).s);
        n++;
    }
    plim_buf_printf(b, "%s", n ? "." : "");
}

static void say_verdicts(plim_buf *b, const plim_changes *c, plim_fits now)
{
    const bool no = now == PLIM_FITS_NO;
    say_verdict(b, c, PLIM_FITS_YES, " Would fit:");
    say_verdict(b, c, PLIM_FITS_MAYBE, no ? " Might fit:" : " Might still not fit:");
    say_verdict(b, c, PLIM_FITS_INCOMPLETE, " Would fit as far as it is counted:");
    say_verdict(b, c, PLIM_FITS_NO, no ? " Would not fit either:" : " Would not fit:");
}

static void say_changes(plim_buf *b, const plim_changes *c, const plim_estimate *e)
{
    bool settled = plim_fit_settled(e->fits);
    if (!c->tried.n)
        plim_buf_printf(b, " No other setting that would lower it applies.");
    else if (!c->n)
        plim_buf_printf(b,
                        " None of the simulated changes would lower it by 1 %% or more: "
                        "%s.",
                        c->tried.p);
    else if (settled || !e->context_known)
        say_savings(b, c);
    else
        say_verdicts(b, c, e->fits);
}

plim_status plim_advice_make(const plim_job *job, const plim_graph *g, const plim_tape *t,
                             const plim_estimate *e, plim_arena *a, plim_advice *out,
                             plim_err *err)
{
    bool settled = plim_fit_settled(e->fits);
    const plim_settings *s = job->settings;
    uint64_t part[PLIM_PART_COUNT] = {0};
    plim_changes changes = {0};
    plim_buf b;
    plim_buf_init(&b, a);
    sum_parts(e, part);
    if (!e->peak_live_requested) {
        plim_buf_printf(&b, "Nothing is allocated.");
    } else {
        say_dominant(&b, job, e, part);
        bool wanted = plim_setting_is(s, PLIM_SET_advice, "always") ||
                      (plim_setting_is(s, PLIM_SET_advice, "auto") && !settled);
        plim_status st =
            wanted ? plim_changes_simulate(job, g, t, e, part, a, &changes, err) : PLIM_OK;
        if (st)
            return st;
        if (wanted)
            say_changes(&b, &changes, e);
        else if (!plim_setting_is(s, PLIM_SET_advice, "none"))
            plim_buf_printf(&b, " --advice always simulates what would lower it.");
    }
    *out = (plim_advice){plim_buf_str(&b), changes.rows, changes.n};
    return b.bad ? plim_oom(err) : PLIM_OK;
}
