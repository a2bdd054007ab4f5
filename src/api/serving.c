/* serving.c -- plim_serve_run: a model as an inference engine holds it. */
#include "api/api.h"
#include "serve/serve.h"

typedef struct serve_result {
    plim_serve pub;
    plim_arena arena;
} serve_result;

PLIM__LIST(serve_rows, plim_serve_row)

static plim_status search_most(const plim_serving *s, plim_serve_axis axis,
                               plim_served_most *out, plim_err *err)
{
    bool limited;
    plim_status st = plim_serve_most(s, axis, true, &out->sure, &limited, err);
    return st ? st : plim_serve_most(s, axis, false, &out->usual, &out->limited, err);
}

/* Nothing of a training step; a request is not a batch. */
static plim_status set_inference(plim_job *job, plim_err *err)
{
    job->step.infer = job->bind.infer = true;
    plim_job_plain_call(job);
    return plim_settings_put(job->settings, PLIM_SET_mode, "infer", err);
}

/* Of a file that holds weights only. */
static plim_status describe_weights(const plim_serving *s, plim_arena *a,
                                    const plim_model_info **out, plim_err *err)
{
    plim_model_info *m = PLIM_NEW(a, plim_model_info);
    if (!m)
        return plim_oom(err);
    *m = (plim_model_info){.size = sizeof *m,
                           .name = plim__cstr(a, s->job->model->name),
                           .format = plim__cstr(a, s->held->format),
                           .producer = plim__cstr(a, s->held->producer),
                           .note = ""};
    for (uint32_t i = 0; i < s->held->n_items; i++) {
        m->parameters = plim_sat_add(m->parameters, s->held->items[i].elements);
        m->parameter_bytes = plim_sat_add(m->parameter_bytes, s->held->items[i].bytes);
    }
    *out = m;
    return m->name && m->format && m->producer ? PLIM_OK : plim_oom(err);
}

static void describe_served(const plim_serving *s, const plim_served *a, plim_serve *out)
{
    const plim_serve_row card = plim_served_total(a, PLIM_ON_CARD);
    const plim_gpu *gpu = s->job->gpu;
    out->engine = s->engine->name;
    out->gpu = gpu ? gpu->name : NULL;
    out->gpu_bytes = gpu ? gpu->memory_bytes : 0;
    out->gpu_exact = gpu && plim_gpu_exact(gpu);
    out->device_low = card.low;
    out->device = card.usual;
    out->device_high = card.high;
    out->host = plim_served_total(a, PLIM_ON_HOST).usual;
    out->context_known = !a->context_unknown;
    out->context = s->context;
    out->concurrency = s->concurrency;
    out->token_bytes = a->token_bytes;
    out->request_bytes = a->request_bytes;
    out->fits = plim_served_fits(s, a);
    out->says = a->says;
    out->n_says = a->n_says;
    out->n_rows = a->n_rows;
}

static plim_status serve_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_serve *out = pub;
    plim_serving s;
    plim_served answer;
    out->size = sizeof *out;
    out->settings = job->settings;
    plim_status st = set_inference(job, err);
    if (!st)
        st = plim_serving_open(&s, job, a, err);
    if (!st)
        st = s.g ? plim__model_info(a, s.g, &out->model, err)
                 : describe_weights(&s, a, &out->model, err);
    if (!st)
        st = plim_serve_ask(&s, a, &answer, err);
    if (st)
        return st;
    describe_served(&s, &answer, out);
    if (!(out->rows = serve_rows(a, answer.rows, answer.n_rows)))
        return plim_oom(err);
    if (!job->gpu)
        return PLIM_OK;
    st = search_most(&s, PLIM_MOST_CONTEXT, &out->longest, err);
    return st ? st : search_most(&s, PLIM_MOST_REQUESTS, &out->requests, err);
}

plim_status plim_serve_run(const plim_model *m, const plim_settings *s, plim_serve **out,
                           plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(serve_result), offsetof(serve_result, arena), m, s,
                              serve_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_serve_free(plim_serve *s) { plim__result_free(s, offsetof(serve_result, arena)); }
