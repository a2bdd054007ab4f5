/* open.c -- the settings of a server, read into a question: see serve.h. */
#include "serve/serve.h"

#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"
#include "import/hf/hf_quant.h"
#include "import/weights/gguf.h"
#include "zoo/zoo.h"

/* ---- types of keys and values ----------------------------------------------------------- */

/* src: ggml-common.h (blocks); vLLM config/cache.py */
static const plim_kv_type kv_types[] = {
    {"fp32", 1, 4},   {"fp16", 1, 2},   {"bf16", 1, 2},   {"fp8", 1, 1},
    {"q8_0", 32, 34}, {"f16", 1, 2},    {"f32", 1, 4},    {"q5_1", 32, 24},
    {"q5_0", 32, 22}, {"q4_1", 32, 20}, {"q4_0", 32, 18}, {"iq4_nl", 32, 18},
};

/* auto: the type in which the model computes. */
static plim_status find_kv(const plim_serve_question *q, plim_str name,
                           const plim_kv_type **out, plim_err *err)
{
    const plim_engine *e = q->engine;
    plim_str type = plim_str_is(name, "auto")
                        ? plim_str_of(plim_dtype_name(plim_question_dtype(q)))
                        : name;
    *out = NULL;
    for (size_t i = 0; plim_item_has(e->kv, name) && i < PLIM_COUNT(kv_types); i++)
        if (plim_str_is(type, kv_types[i].name))
            *out = &kv_types[i];
    return *out ? PLIM_OK
                : plim_fail(err, PLIM_EUSAGE, 0,
                            "%s does not hold keys and values as '" PLIM_STR_FMT
                            "': give one of %s",
                            e->name, PLIM_STR_CUT(type), e->kv);
}

/* "fp8" for both, or "q8_0,q4_0" for keys and values. */
static plim_status read_kv(plim_serve_question *q, plim_str text, plim_err *err)
{
    plim_str keys, values;
    if (!plim_item_word(&text, ',', &keys)) {
        plim_str all = plim_str_of(q->engine->kv);
        plim_item_word(&all, ' ', &keys);
    }
    if (!plim_item_word(&text, ',', &values))
        values = keys;
    if (text.n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'kv' has one type, or two for keys and values, not more");
    PLIM_TRY(find_kv(q, keys, &q->keys, err));
    return find_kv(q, values, &q->values, err);
}

static plim_status check_options(const plim_serve_question *q, plim_err *err)
{
    plim_str rest = q->options, key, value;
    while (plim_item_next(&rest, &key, &value))
        if (!plim_item_find(plim_str_of(q->engine->options), key).p)
            return plim_item_unknown("engine", q->engine->name, key, q->engine->options, err);
    return PLIM_OK;
}

static plim_status find_engine(plim_serve_question *q, plim_str text, plim_err *err)
{
    plim_str name = {"", 0}, value;
    plim_item_next(&text, &name, &value);
    q->options = text;
    q->engine = plim_engine_find(name, err);
    if (!q->engine)
        return PLIM_EUSAGE;
    bool several = q->cards > 1 || q->n_stages > 1;
    if (several && !(q->engine->flags & PLIM_ENGINE_PARTS))
        return plim_fail(err, PLIM_EUSAGE, 0, "%s: engine '%s' is simulated on one card only",
                         q->cards > 1 ? "tp" : "pp", q->engine->name);
    return check_options(q, err);
}

/* ---- opening ---------------------------------------------------------------------------- */

/* Whether the model is a file of weights that says how they are served. */
static bool is_file(const plim_serve_question *q)
{
    const plim_importer *im = q->job->model->importer;
    return im && !strcmp(im->name, "gguf");
}

static plim_status list_weights(plim_serve_question *q, plim_err *err)
{
    plim_inventory *held = PLIM_NEW(q->arena, plim_inventory);
    plim_graph g = {0};
    bool graph;
    if (!held)
        return plim_oom(err);
    q->held = held;
    const plim_gguf *f;
    plim_status st = plim_gguf_open(q->job->model->source.bytes, q->arena, &f, err);
    if (!st && (!plim_gguf_model_number(f, "context_length", 0, &q->most_context) ||
                q->most_context > UINT32_MAX))
        q->most_context = 0;
    return st ? st
              : plim_model_list(q->job->model, &q->job->bind, q->arena, held, &g, &graph, err);
}

static plim_status refuse_model(const plim_serve_question *q, plim_err *err)
{
    return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                     "'" PLIM_STR_FMT
                     "' does not generate text, or what it keeps for each token "
                     "is not known: give a model by name ('plimsoll models'), or its "
                     "config.json",
                     PLIM_STR_CUT(q->job->model->name));
}

/* An engine that gets a graph holds keys and values, or states. */
static plim_status check_cache(const plim_serve_question *q, plim_err *err)
{
    for (uint32_t i = 0; i < q->g->kv.n_kinds; i++)
        if (!plim_cache_is_simple(&q->g->kv.kinds[i]))
            return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "how %s holds what layers of '" PLIM_STR_FMT
                             "' keep is not known",
                             q->engine->name, PLIM_STR_CUT(q->g->about.name));
    return PLIM_OK;
}

static plim_status read_model(plim_serve_question *q, plim_err *err)
{
    if (is_file(q) && q->engine->flags & PLIM_ENGINE_FILES)
        return list_weights(q, err);
    plim_graph *g = PLIM_NEW(q->arena, plim_graph);
    if (!g)
        return plim_oom(err);
    q->g = g;
    plim_err why = PLIM_ERR_INIT, none = PLIM_ERR_INIT;
    plim_status st = plim_job_graph(q->job, 0, q->arena, g, &why);
    bool other = st == PLIM_EUSAGE && !q->job->bind.packing.n;
    q->job->bind.seq = other ? 0 : 1; /* a model without sequences? */
    if (st && (!other || plim_job_graph(q->job, 0, q->arena, g, &none)))
        return plim_fail(err, st, why.at, "%s", why.msg);
    if (!g->kv.n_kinds)
        return refuse_model(q, err);
    PLIM_TRY(check_cache(q, err));
    if (g->sizes.takes_images &&
        !plim_graph_leave_out(g,
                              PLIM_STR("what encoders of images hold while they run on those "
                                       "of a request is left out")))
        return plim_oom(err);
    q->most_context = g->sizes.seq_max > 0 ? (uint64_t)g->sizes.seq_max : 0;
    if (q->engine->flags & PLIM_ENGINE_HALVES && plim_question_dtype(q) == PLIM_F32 &&
        !q->job->settings->dtype)
        q->job->step.dtype =
            q->job->gpu && q->job->gpu->cc && q->job->gpu->cc < 80 ? PLIM_F16 : PLIM_BF16;
    return q->engine->code->prepare ? q->engine->code->prepare(q, g, err) : PLIM_OK;
}

#define TOKENS_MOST (1ull << 40)

static plim_status read_sizes(plim_serve_question *q, plim_err *err)
{
    const plim_settings *set = q->job->settings;
    uint64_t most = q->most_context;
    enum { CONTEXT = 4096 }; /* of a model that has no limit */
    q->context = set->context ? (uint64_t)set->context : most ? most : CONTEXT;
    q->concurrency = (uint64_t)set->concurrency;
    if (q->context > TOKENS_MOST / q->concurrency)
        return plim_fail(err, PLIM_ERANGE, 0,
                         "%" PRIu64 " requests of %" PRIu64
                         " tokens exceed the limit of %llu tokens",
                         q->concurrency, q->context, TOKENS_MOST);
    if (most && q->context > most && !q->guesses)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "a context of %" PRIu64 " tokens is longer than the %" PRIu64
                         " positions that the model was made for",
                         q->context, most);
    return PLIM_OK;
}

static plim_status check_draft(const plim_serve_question *q, plim_err *err)
{
    if (!q->job->settings->draft)
        return PLIM_OK;
    if (!q->engine->apart)
        return plim_fail(err, PLIM_EUSAGE, 0, "a draft is not simulated for engine '%s'",
                         q->engine->name);
    return q->n_stages > 1 ? plim_fail(err, PLIM_EUSAGE, 0,
                                       "a draft is not simulated with stages of a pipeline")
                           : PLIM_OK;
}

/* Writes what was not given into the settings. */
static plim_status record_used(const plim_serve_question *q, plim_err *err)
{
    plim_settings *set = q->job->settings;
    char text[64];
    snprintf(text, sizeof text, "%" PRIu64, q->context);
    plim_status st = plim_settings_put(set, PLIM_SET_context, text, err);
    if (!st && !set->engine)
        st = plim_settings_put(set, PLIM_SET_engine, q->engine->name, err);
    snprintf(text, sizeof text, "%s%s%s", q->keys->name, q->keys == q->values ? "" : ",",
             q->keys == q->values ? "" : q->values->name);
    if (!st)
        st = plim_settings_put(set, PLIM_SET_kv, text, err);
    return st || !q->g ? st
                       : plim_settings_put(set, PLIM_SET_dtype,
                                           plim_dtype_name(plim_question_dtype(q)), err);
}

/* The format in which the engine gets a model that is published quantized; NULL: it is not. */
static const char *published_weights(const plim_serve_question *q)
{
    const plim_model *m = q->job->model;
    const char *packed = m->importer ? NULL : plim_zoo_weights(m->text);
    const plim_engine_code *code = q->engine->code;
    return packed && code->published ? code->published(packed) : packed;
}

static plim_status choose_weights(plim_serve_question *q, plim_err *err)
{
    const char *given = q->job->settings->weights;
    bool files = q->engine->flags & PLIM_ENGINE_FILES;
    if (!given)
        given = published_weights(q);
    q->weights = plim_str_of(given && strcmp(given, "none") != 0 ? given : "");
    return q->weights.n && !files ? plim_hf_quant_find(q->weights, &q->job->bind.packing, err)
                                  : PLIM_OK;
}

plim_status plim_question_open(plim_serve_question *out, plim_job *job, plim_arena *a,
                               bool guesses, plim_err *err)
{
    const plim_settings *set = job->settings;
    *out = (plim_serve_question){.job = job,
                                 .arena = a,
                                 .guesses = guesses,
                                 .cards = (uint64_t)PLIM_MAX(set->tp, 1),
                                 .n_stages = (uint64_t)PLIM_MAX(set->pp, 1)};
    job->bind.batch = job->bind.seq = 1;
    job->bind.images.none = true;
    const char *usual = plim_engine_usual(is_file(out))->name;
    PLIM_TRY(find_engine(out, plim_str_of(set->engine ? set->engine : usual), err));
    job->bind.images.apart = out->engine->flags & PLIM_ENGINE_FILES;
    PLIM_TRY(check_draft(out, err));
    PLIM_TRY(choose_weights(out, err));
    PLIM_TRY(read_model(out, err));
    PLIM_TRY(read_kv(out, plim_str_of(set->kv ? set->kv : ""), err));
    PLIM_TRY(read_sizes(out, err));
    return record_used(out, err);
}

plim_status plim_question_format(const plim_serve_question *q, plim_str format, plim_arena *a,
                                 plim_serve_question *out, plim_err *err)
{
    plim_job *job = q->job;
    const plim_str packing = job->bind.packing;
    *out = *q;
    out->arena = a;
    if (plim_str_is(format, "own"))
        return PLIM_OK;
    out->weights = format;
    if (q->engine->flags & PLIM_ENGINE_FILES)
        return q->held ? plim_fail(err, PLIM_EUSAGE, 0, "a file has its own types") : PLIM_OK;
    plim_status st = plim_hf_quant_find(format, &job->bind.packing, err);
    if (!st)
        st = read_model(out, err);
    job->bind.packing = packing;
    return st;
}
