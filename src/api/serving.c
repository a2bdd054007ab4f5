/* serving.c -- plim_serve_run: a model as an inference engine holds it. */
#include "api/api.h"
#include "base/items.h"
#include "serve/serve.h"

typedef struct serve_result {
    plim_serve pub;
    plim_arena arena;
} serve_result;

PLIM__LIST(serve_rows, plim_serve_row)

static plim_status search_most(const plim_serve_question *q, plim_serve_axis axis,
                               plim_serve_most *out, plim_err *err)
{
    bool limited;
    if (plim_question_whole(q))
        PLIM_TRY(plim_engine_most(q, axis, true, &out->sure, &limited, err));
    return plim_engine_most(q, axis, false, &out->usual, &out->limited, err);
}

/* Nothing of a training step; a request is not a batch. */
static plim_status set_inference(plim_job *job, plim_err *err)
{
    job->step.infer = job->bind.infer = true;
    job->step.share = (plim_share){.world = 1}; /* 'tp' is the engine's */
    plim_job_plain_call(job);
    return plim_settings_put(job->settings, PLIM_SET_mode, "infer", err);
}

/* Of a file that holds weights only. */
static plim_status describe_weights(const plim_serve_question *q, plim_arena *a,
                                    const plim_model_info **out, plim_err *err)
{
    plim_model_info *m = PLIM_NEW(a, plim_model_info);
    if (!m)
        return plim_oom(err);
    *m = (plim_model_info){.size = sizeof *m,
                           .left_out = "",
                           .releases = "",
                           .name = plim__cstr(a, q->job->model->name),
                           .format = plim__cstr(a, q->held->format),
                           .producer = plim__cstr(a, q->held->producer)};
    PLIM_TRY(plim_engine_note(q, &m->note, err));
    for (uint32_t i = 0; i < q->held->n_items; i++) {
        m->parameters = plim_sat_add(m->parameters, q->held->items[i].elements);
        m->parameter_bytes = plim_sat_add(m->parameter_bytes, q->held->items[i].bytes);
    }
    *out = m;
    return m->name && m->format && m->producer ? PLIM_OK : plim_oom(err);
}

/* What is left out of the draft, and what is to be said of the memory that is given. */
static plim_status add_notes(const plim_serve_question *q, plim_arena *a,
                             const plim_model_info **model, plim_err *err)
{
    const plim_str left = q->draft && q->draft->g ? q->draft->g->about.left_out : PLIM_STR("");
    const char *sold = plim_gpu_sold(a, q->job->settings->vram);
    plim_model_info *m = PLIM_NEW(a, plim_model_info);
    if (!sold || !m)
        return plim_oom(err);
    *m = **model;
    plim_graph g = {.arena = a, .about = {.left_out = plim_str_of(m->left_out)}};
    g.about.note = q->g ? q->g->about.note : plim_str_of(m->note);
    if (*sold)
        g.about.note = plim_arena_printf(a, PLIM_STR_FMT "%s%s", PLIM_STR_ARG(g.about.note),
                                         g.about.note.n ? ". " : "", sold);
    const plim_str says = plim_arena_printf(a, "draft: " PLIM_STR_FMT, PLIM_STR_ARG(left));
    if (!g.about.note.p || !says.p || (left.n && !plim_graph_leave_out(&g, says)))
        return plim_oom(err);
    m->left_out = plim__cstr(a, g.about.left_out);
    m->note = plim__cstr(a, plim_graph_note(&g));
    *model = m;
    return m->left_out && m->note ? PLIM_OK : plim_oom(err);
}

/* *draft: to be closed by the caller, whatever the status; NULL: there is none. */
static plim_status open_question(plim_serve_question *q, plim_job *job, plim_arena *a,
                                 const plim_model_info **model, plim_model **draft,
                                 plim_err *err)
{
    const char *name = job->settings->draft;
    plim_status st = plim_question_open(q, job, a, false, err);
    if (!st && name)
        st = plim_model_open(name, draft, err);
    if (!st && name)
        st = plim_question_open_draft(q, *draft, err);
    if (!st)
        st = q->g ? plim__model_info(a, q->g, model, err) : describe_weights(q, a, model, err);
    return st ? st : add_notes(q, a, model, err);
}

static void describe_answer(const plim_serve_question *q, const plim_serve_answer *a,
                            plim_serve *out)
{
    const plim_serve_row card = plim_answer_total(a, PLIM_ON_CARD);
    const plim_gpu *gpu = q->job->gpu;
    out->engine = q->engine->name;
    out->gpu = gpu ? gpu->name : NULL;
    out->gpu_bytes = gpu ? gpu->memory_bytes : 0;
    out->gpu_exact = gpu && plim_gpu_exact(gpu);
    out->device_low = card.low;
    out->device = card.usual;
    out->device_high = card.high;
    out->host = plim_answer_total(a, PLIM_ON_HOST).usual;
    out->context_known = !a->context_unknown;
    out->context = q->context;
    out->concurrency = q->concurrency;
    out->token_bytes = a->token_bytes;
    out->request_bytes = a->request_bytes;
    out->fits = plim_answer_fits(q, a);
    out->says = a->says;
    out->n_says = a->n_says;
    out->n_parts = a->n_rows;
}

static plim_status fill_answer(const plim_serve_question *q, plim_arena *a, plim_serve *out,
                               plim_err *err)
{
    plim_serve_answer answer;
    PLIM_TRY(plim_engine_ask(q, a, &answer, err));
    describe_answer(q, &answer, out);
    if (!(out->parts = serve_rows(a, answer.rows, answer.n_rows)))
        return plim_oom(err);
    if (!q->job->gpu)
        return PLIM_OK;
    PLIM_TRY(search_most(q, PLIM_MOST_CONTEXT, &out->longest_context, err));
    return search_most(q, PLIM_MOST_REQUESTS, &out->most_requests, err);
}

static plim_status serve_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_serve *out = pub;
    plim_serve_question q;
    plim_model *draft = NULL;
    out->size = sizeof *out;
    out->settings = job->settings;
    plim_status st = set_inference(job, err);
    if (!st)
        st = plim_job_card(job, err);
    if (!st)
        st = open_question(&q, job, a, &out->model, &draft, err);
    if (!st && q.weights.n && !job->settings->weights) /* as published */
        st = plim_settings_put(job->settings, PLIM_SET_weights, q.weights.p, err);
    if (!st)
        st = fill_answer(&q, a, out, err);
    plim_model_free(draft);
    return st;
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

/* ---- on many cards -------------------------------------------------------------------------- */

typedef struct serve_fit_result {
    plim_serve_fit pub;
    plim_arena arena;
} serve_fit_result;

PLIM__LIST(serve_cards, plim_serve_card)

/* The model with its weights in each format that the engine has for it. */
enum { FORMATS = 16 };
typedef struct formats {
    plim_serve_question question[FORMATS];
    const char *name[FORMATS];
    uint32_t n;
} formats;

/* Formats that do not suit the model, or that a file excludes, are left out. */
static plim_status list_formats(const plim_serve_question *q, const char *given, plim_arena *a,
                                formats *out, plim_err *err)
{
    plim_str rest = plim_str_of(q->engine->formats), one;
    out->n = 0;
    if (given) {
        out->question[0] = *q;
        out->name[out->n++] = given;
        return PLIM_OK;
    }
    while (plim_item_word(&rest, ' ', &one)) {
        plim_err why = PLIM_ERR_INIT;
        plim_assert(out->n < FORMATS);
        plim_status st = plim_question_format(q, one, a, &out->question[out->n], &why);
        if (st == PLIM_EUSAGE || st == PLIM_EUNSUPPORTED || st == PLIM_ESHAPE)
            continue;
        if (st)
            return plim_fail(err, st, why.at, "%s", why.msg);
        plim_str format = out->question[out->n].weights;
        if (!(out->name[out->n] = plim__cstr(a, format.n ? format : one)))
            return plim_oom(err);
        out->n++;
    }
    return PLIM_OK;
}

/* The first format that fits at the upper bounds, else the first that may fit, else the last,
 * the smallest. */
static plim_status choose_format(const formats *f, plim_arena *scratch, uint32_t *at,
                                 plim_err *err)
{
    plim_serve_answer answer;
    uint32_t may = f->n - 1;
    for (*at = 0; *at < f->n; ++*at) {
        plim_serve_question q = f->question[*at];
        q.arena = scratch;
        plim_arena_reset(scratch);
        plim_status st = plim_engine_ask(&q, scratch, &answer, err);
        plim_fits fits = st ? PLIM_FITS_NO : plim_answer_fits(&q, &answer);
        if (st || fits == PLIM_FITS_YES || fits == PLIM_FITS_INCOMPLETE)
            return st;
        if (fits == PLIM_FITS_MAYBE)
            may = PLIM_MIN(may, *at);
    }
    *at = may;
    return PLIM_OK;
}

static plim_status fill_card(const formats *f, const plim_gpu *gpu, plim_arena *scratch,
                             plim_serve_card *row, plim_err *err)
{
    plim_serve_answer answer;
    uint32_t at;
    PLIM_TRY(choose_format(f, scratch, &at, err));
    plim_serve_question q = f->question[at];
    q.arena = scratch;
    plim_arena_reset(scratch);
    PLIM_TRY(plim_engine_ask(&q, scratch, &answer, err));
    const plim_serve_row sum = plim_answer_total(&answer, PLIM_ON_CARD);
    *row = (plim_serve_card){.gpu = gpu->name,
                             .gpu_bytes = gpu->memory_bytes,
                             .gpu_exact = plim_gpu_exact(gpu),
                             .context_known = !answer.context_unknown,
                             .weights = f->name[at],
                             .fits = plim_answer_fits(&q, &answer),
                             .device_low = sum.low,
                             .device = sum.usual,
                             .device_high = sum.high};
    PLIM_TRY(search_most(&q, PLIM_MOST_CONTEXT, &row->longest, err));
    return search_most(&q, PLIM_MOST_REQUESTS, &row->requests, err);
}

static plim_status serve_fit_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_serve_fit *out = pub;
    const plim_gpu **cards = NULL;
    plim_serve_question q;
    formats f;
    plim_model *draft = NULL;
    plim_arena scratch = PLIM_ARENA_INIT;
    out->size = sizeof *out;
    out->settings = job->settings;
    plim_status st = set_inference(job, err);
    if (!st)
        st = plim__list_cards(job, a, &cards, &out->n_cards, err);
    if (!st)
        st = open_question(&q, job, a, &out->model, &draft, err);
    if (!st)
        st = list_formats(&q, job->settings->weights, a, &f, err);
    plim_serve_card *rows = st ? NULL : PLIM_NEW_N(a, plim_serve_card, out->n_cards);
    if (!st && !rows)
        st = plim_oom(err);
    for (uint32_t i = 0; i < out->n_cards && !st; i++) {
        st = plim_job_progress(job, i, out->n_cards, cards[i]->name, err);
        plim_job_use_card(job, cards[i]);
        if (!st)
            st = fill_card(&f, cards[i], &scratch, &rows[i], err);
    }
    plim_arena_free(&scratch);
    plim_model_free(draft);
    if (st)
        return st;
    out->engine = q.engine->name;
    out->context = q.context;
    out->concurrency = q.concurrency;
    out->cards = serve_cards(a, rows, out->n_cards);
    return out->cards ? PLIM_OK : plim_oom(err);
}

plim_status plim_serve_fit_run(const plim_model *m, const plim_settings *s,
                               plim_serve_fit **out, plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(serve_fit_result), offsetof(serve_fit_result, arena), m,
                              s, serve_fit_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_serve_fit_free(plim_serve_fit *f)
{
    plim__result_free(f, offsetof(serve_fit_result, arena));
}
