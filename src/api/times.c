/* times.c -- plim_times_run: what takes the time of a step. */
#include <stdlib.h>

#include "api/api.h"
#include "time/time.h"

typedef struct times_result {
    plim_times pub;
    plim_arena arena;
} times_result;

plim_step_time plim__step_time(const plim_job *job, const plim_graph *g,
                               const plim_ledger *ledger)
{
    plim_time t = plim_time_of(ledger, job->gpu, !job->step.infer);
    if (t.unknown)
        return (plim_step_time){.unknown = t.unknown};
    double samples = plim_job_samples_per_s(job, g->sizes.batch, t.usual);
    return (plim_step_time){.low_ms = t.low * 1e3,
                            .usual_ms = t.usual * 1e3,
                            .high_ms = t.high * 1e3,
                            .samples_per_s = samples,
                            .tokens_per_s = samples * (double)g->sizes.seq,
                            .computation = t.part[PLIM_TIME_COMPUTATION] / t.usual,
                            .memory = t.part[PLIM_TIME_MEMORY] / t.usual,
                            .launch = t.part[PLIM_TIME_LAUNCH] / t.usual};
}

/* ---- rows ---------------------------------------------------------------------- */

/* What takes longer comes first; without a card, what moves more. */
static int compare_times(const void *a, const void *b)
{
    const plim_time_row *x = *(const plim_time_row *const *)a,
                        *y = *(const plim_time_row *const *)b;
    if (x->ms < y->ms || x->ms > y->ms)
        return x->ms < y->ms ? 1 : -1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x > y ? 1 : -1;
}

static bool describe_work(const plim_job *job, const plim_graph *g, const plim_work *w,
                          plim_arena *a, plim_time_row *out)
{
    const plim_node *n = w->where == PLIM_NONE ? NULL : &g->nodes[w->where];
    const char *name = w->klass >= PLIM_WORK_optimizer ? job->step.optim.optim->name : "loss";
    plim_time_limit limit = PLIM_TIME_MEMORY;
    double s = job->gpu ? plim_time_row_of(w, job->gpu, &limit) : 0;
    *out = (plim_time_row){.layer = n ? plim__cstr(a, g->scopes[n->scope].path) : name,
                           .op = n ? plim__cstr(a, n->target) : name,
                           .phase = (plim_phase)w->phase,
                           .work = plim_work_name((plim_work_class)w->klass),
                           .dtype = w->macs ? plim_dtype_name((plim_dtype)w->dtype) : NULL,
                           .macs = w->macs,
                           .bytes = w->bytes,
                           .kernels = w->kernels,
                           .ms = s * 1e3,
                           .limit = s > 0 ? plim_time_limit_name(limit) : NULL};
    return out->layer && out->op;
}

static plim_status list_rows(const plim_job *job, const plim_graph *g,
                             const plim_ledger *ledger, plim_arena *a, plim_times *out,
                             plim_err *err)
{
    plim_time_row *rows = PLIM_NEW_N(a, plim_time_row, ledger->n);
    const plim_time_row **list = PLIM_NEW_N(a, const plim_time_row *, ledger->n + UINT64_C(1));
    if (!rows || !list)
        return plim_oom(err);
    for (uint32_t i = 0; i < ledger->n; i++) {
        if (!describe_work(job, g, &ledger->rows[i], a, &rows[i]))
            return plim_oom(err);
        list[i] = &rows[i];
    }
    qsort(list, ledger->n, sizeof *list, compare_times);
    out->ops = list;
    out->n_ops = ledger->n;
    return PLIM_OK;
}

static plim_status times_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_times *out = pub;
    plim_graph g;
    plim_tape tape;
    plim_step_info info;
    out->size = sizeof *out;
    PLIM_TRY(plim_job_card(job, err));
    PLIM_TRY(plim_job_graph(job, 0, job->scratch, &g, err));
    PLIM_TRY(plim__model_info(a, &g, &out->model, err));
    PLIM_TRY(plim_job_tape(job, &g, job->scratch, &tape, &info, err));
    PLIM_TRY(plim_job_resolve(job, &g, &info, err));
    out->settings = job->settings;
    if (job->gpu && !(out->gpu = plim__cstr(a, plim_str_of(job->gpu->name))))
        return plim_oom(err);
    out->time = plim__step_time(job, &g, &info.ledger);
    return list_rows(job, &g, &info.ledger, a, out, err);
}

plim_status plim_times_run(const plim_model *m, const plim_settings *s, plim_times **out,
                           plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(times_result), offsetof(times_result, arena), m, s,
                              times_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_times_free(plim_times *t) { plim__result_free(t, offsetof(times_result, arena)); }
