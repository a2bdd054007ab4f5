/* serve.c -- the engines, and the search for the most that they hold: see serve.h. */
#include "serve/serve.h"

#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"
#include "import/hf/hf_quant.h"
#include "import/weights/gguf.h"
#include "zoo/zoo.h"

/* ---- the list of engines ------------------------------------------------------------------ */

static const plim_engine engines[] = {
#define PLIM_ENGINE(id, name, options, kv, formats, flags, apart, doc, src)                   \
    {name, options, kv, formats, flags, apart, doc, src, plim_engine_##id},
#include "serve/engines.def"
#undef PLIM_ENGINE
};

const plim_engine *plim_engine_at(uint32_t i)
{
    return i < PLIM_COUNT(engines) ? &engines[i] : NULL;
}

/* ---- types of keys and values ---------------------------------------------------------------- */

/* src: ggml-common.h (blocks); vLLM config/cache.py */
static const plim_kv_type kv_types[] = {
    {"fp32", 1, 4},   {"fp16", 1, 2},   {"bf16", 1, 2},   {"fp8", 1, 1},
    {"q8_0", 32, 34}, {"f16", 1, 2},    {"f32", 1, 4},    {"q5_1", 32, 24},
    {"q5_0", 32, 22}, {"q4_1", 32, 20}, {"q4_0", 32, 18}, {"iq4_nl", 32, 18},
};

/* auto: the type in which the model computes. */
static plim_status find_kv(const plim_serving *s, plim_str name, const plim_kv_type **out,
                           plim_err *err)
{
    const plim_engine *e = s->engine;
    plim_str type =
        plim_str_is(name, "auto") ? plim_str_of(plim_dtype_name(plim_serving_dtype(s))) : name;
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
static plim_status read_kv(plim_serving *s, plim_str text, plim_err *err)
{
    plim_str keys, values;
    if (!plim_item_word(&text, ',', &keys)) {
        plim_str all = plim_str_of(s->engine->kv);
        plim_item_word(&all, ' ', &keys);
    }
    if (!plim_item_word(&text, ',', &values))
        values = keys;
    if (text.n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'kv' has one type, or two for keys and values, not more");
    plim_status st = find_kv(s, keys, &s->keys, err);
    return st ? st : find_kv(s, values, &s->values, err);
}

static plim_status check_options(const plim_serving *s, plim_err *err)
{
    plim_str rest = s->options, key, value;
    while (plim_item_next(&rest, &key, &value))
        if (!plim_item_find(plim_str_of(s->engine->options), key).p)
            return plim_item_unknown("engine", s->engine->name, key, s->engine->options, err);
    return PLIM_OK;
}

static plim_status find_engine(plim_serving *s, plim_str text, plim_err *err)
{
    plim_str name = {"", 0}, value;
    char word[64];
    plim_item_next(&text, &name, &value);
    snprintf(word, sizeof word, PLIM_STR_FMT, (int)PLIM_MIN(name.n, sizeof word - 1), name.p);
    s->options = text;
    s->engine =
        plim_row_find("engine", word, engines, PLIM_COUNT(engines), sizeof *engines, err);
    if (!s->engine)
        return PLIM_EUSAGE;
    bool several = s->cards > 1 || s->n_stages > 1;
    if (several && !(s->engine->flags & PLIM_ENGINE_PARTS))
        return plim_fail(err, PLIM_EUSAGE, 0, "%s: engine '%s' is simulated on one card only",
                         s->cards > 1 ? "tp" : "pp", s->engine->name);
    return check_options(s, err);
}

/* ---- opening -------------------------------------------------------------------------------------- */

static plim_status list_weights(plim_serving *s, plim_err *err)
{
    plim_inventory *held = PLIM_NEW(s->arena, plim_inventory);
    plim_graph g = {0};
    bool graph;
    if (!held)
        return plim_oom(err);
    s->held = held;
    const plim_gguf *f;
    plim_status st = plim_gguf_open(s->job->model->source.bytes, s->arena, &f, err);
    if (!st && (!plim_gguf_model_number(f, "context_length", 0, &s->most_context) ||
                s->most_context > UINT32_MAX))
        s->most_context = 0;
    return st ? st
              : plim_model_list(s->job->model, &s->job->bind, s->arena, held, &g, &graph, err);
}

static plim_status refuse_model(const plim_serving *s, plim_err *err)
{
    return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                     "'" PLIM_STR_FMT "' is no model that generates text, or what it keeps of "
                     "a token is not known: give one by name ('plimsoll models'), or its "
                     "config.json",
                     PLIM_STR_CUT(s->job->model->name));
}

static plim_status divide_model(plim_serving *s, plim_graph *g, plim_err *err)
{
    double by_expert;
    if (!(s->engine->flags & PLIM_ENGINE_PARTS))
        return PLIM_OK;
    plim_status st = plim_serving_number(s, "enable_expert_parallel", 0, 1, &by_expert, err);
    if (st)
        return st;
    s->by_expert = by_expert > 0;
    st = plim_serving_divide(s, g, err);
    if (st || s->n_stages > 1)
        return st ? st : plim_serving_stages(s, g, err);
    return plim_serving_measure(s, &s->sizes, err);
}

static plim_status read_model(plim_serving *s, plim_err *err)
{
    const plim_importer *im = s->job->model->importer;
    if (im && !strcmp(im->name, "gguf") && s->engine->flags & PLIM_ENGINE_FILES)
        return list_weights(s, err);
    plim_graph *g = PLIM_NEW(s->arena, plim_graph);
    if (!g)
        return plim_oom(err);
    s->g = g;
    plim_err why = PLIM_ERR_INIT, none = PLIM_ERR_INIT;
    plim_status st = plim_job_graph(s->job, 0, s->arena, g, &why);
    bool other = st == PLIM_EUSAGE && !s->job->bind.packing.n;
    s->job->bind.seq = other ? 0 : 1; /* a model without sequences? */
    if (st && (!other || plim_job_graph(s->job, 0, s->arena, g, &none)))
        return plim_fail(err, st, why.at, "%s", why.msg);
    if (!g->n_kv)
        return refuse_model(s, err);
    s->most_context = g->seq_max > 0 ? (uint64_t)g->seq_max : 0;
    if (s->engine->flags & PLIM_ENGINE_HALVES && plim_serving_dtype(s) == PLIM_F32 &&
        !s->job->settings->dtype)
        s->job->step.dtype =
            s->job->gpu && s->job->gpu->cc && s->job->gpu->cc < 80 ? PLIM_F16 : PLIM_BF16;
    return divide_model(s, g, err);
}

#define TOKENS_MOST (1ull << 40)

static plim_status read_sizes(plim_serving *s, plim_err *err)
{
    const plim_settings *set = s->job->settings;
    uint64_t most = s->most_context;
    enum { CONTEXT = 4096 }; /* of a model that has no limit */
    s->context = set->context ? (uint64_t)set->context : most ? most : CONTEXT;
    s->concurrency = (uint64_t)set->concurrency;
    if (s->context > TOKENS_MOST / s->concurrency)
        return plim_fail(err, PLIM_ERANGE, 0,
                         "%" PRIu64 " requests of %" PRIu64
                         " tokens exceed the limit of %llu tokens",
                         s->concurrency, s->context, TOKENS_MOST);
    if (most && s->context > most && !s->guesses)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "a context of %" PRIu64 " tokens is longer than the %" PRIu64
                         " positions that the model was made for",
                         s->context, most);
    return PLIM_OK;
}

static plim_status check_draft(const plim_serving *s, plim_err *err)
{
    if (!s->job->settings->draft)
        return PLIM_OK;
    if (!s->engine->apart)
        return plim_fail(err, PLIM_EUSAGE, 0, "engine '%s' is simulated without a draft",
                         s->engine->name);
    return s->n_stages > 1 ? plim_fail(err, PLIM_EUSAGE, 0,
                                       "a draft is simulated without stages of a pipeline")
                           : PLIM_OK;
}

/* Writes what was not given into the settings. */
static plim_status record_used(const plim_serving *s, plim_err *err)
{
    plim_settings *set = s->job->settings;
    char text[64];
    snprintf(text, sizeof text, "%" PRIu64, s->context);
    plim_status st = plim_settings_put(set, PLIM_SET_context, text, err);
    if (!st && !set->engine)
        st = plim_settings_put(set, PLIM_SET_engine, s->engine->name, err);
    snprintf(text, sizeof text, "%s%s%s", s->keys->name, s->keys == s->values ? "" : ",",
             s->keys == s->values ? "" : s->values->name);
    if (!st)
        st = plim_settings_put(set, PLIM_SET_kv, text, err);
    return st || !s->g ? st
                       : plim_settings_put(set, PLIM_SET_dtype,
                                           plim_dtype_name(plim_serving_dtype(s)), err);
}

/* The format in which the engine gets a built-in model that is published quantized, or NULL.  A
 * file of llama.cpp has experts in MXFP4 as they are; other weights are dequantized for it. */
static const char *published_weights(const plim_serving *s, bool files)
{
    const plim_model *m = s->job->model;
    const char *packed = m->importer ? NULL : plim_zoo_weights(m->text);
    return !packed || !files ? packed : strcmp(packed, "mxfp4") ? NULL : "BF16_MXFP4";
}

static plim_status choose_weights(plim_serving *s, plim_err *err)
{
    const char *given = s->job->settings->weights;
    bool files = s->engine->flags & PLIM_ENGINE_FILES;
    if (!given)
        given = published_weights(s, files);
    s->weights = plim_str_of(given && strcmp(given, "none") != 0 ? given : "");
    return s->weights.n && !files ? plim_hf_quant_find(s->weights, &s->job->bind.packing, err)
                                  : PLIM_OK;
}

plim_status plim_serving_open(plim_serving *out, plim_job *job, plim_arena *a, bool guesses,
                              plim_err *err)
{
    const plim_settings *set = job->settings;
    *out = (plim_serving){.job = job,
                          .arena = a,
                          .guesses = guesses,
                          .cards = (uint64_t)PLIM_MAX(set->tp, 1),
                          .n_stages = (uint64_t)PLIM_MAX(set->pp, 1)};
    job->bind.batch = job->bind.seq = 1;
    const plim_importer *im = job->model->importer;
    const char *usual = im && !strcmp(im->name, "gguf") ? "llama.cpp" : "vllm";
    plim_status st = find_engine(out, plim_str_of(set->engine ? set->engine : usual), err);
    if (!st)
        st = check_draft(out, err);
    if (!st)
        st = choose_weights(out, err);
    if (!st)
        st = read_model(out, err);
    if (!st)
        st = read_kv(out, plim_str_of(set->kv ? set->kv : ""), err);
    if (!st)
        st = read_sizes(out, err);
    return st ? st : record_used(out, err);
}

plim_status plim_serving_format(const plim_serving *s, plim_str format, plim_arena *a,
                                plim_serving *out, plim_err *err)
{
    plim_job *job = s->job;
    const plim_str packing = job->bind.packing;
    *out = *s;
    out->arena = a;
    if (plim_str_is(format, "own"))
        return PLIM_OK;
    out->weights = format;
    if (s->engine->flags & PLIM_ENGINE_FILES)
        return s->held ? plim_fail(err, PLIM_EUSAGE, 0, "a file has its own types") : PLIM_OK;
    plim_status st = plim_hf_quant_find(format, &job->bind.packing, err);
    if (!st)
        st = read_model(out, err);
    job->bind.packing = packing;
    return st;
}

/* ---- the answer --------------------------------------------------------------------------------------- */

/* Whether all is held at its lower (0), usual (1) or upper (2) bound. */
static bool holds_all(const plim_serving *s, const plim_served *out, int bound)
{
    const plim_serve_row sum = plim_served_total(out, PLIM_ON_CARD);
    const uint64_t bytes[] = {sum.low, sum.usual, sum.high};
    const double room[] = {out->requests_high, out->requests, out->requests_low};
    if (bound == 2 && sum.certainty == PLIM_UNKNOWN_BYTES) /* the bound is none */
        return false;
    return bytes[bound] <= s->job->gpu->memory_bytes &&
           (!out->pool || room[bound] >= (double)s->concurrency);
}

plim_fits plim_served_fits(const plim_serving *s, const plim_served *out)
{
    return !s->job->gpu           ? PLIM_FITS_NO_CARD
           : holds_all(s, out, 2) ? (out->context_unknown ? PLIM_FITS_MAYBE : PLIM_FITS_YES)
           : holds_all(s, out, 0) ? PLIM_FITS_MAYBE
                                  : PLIM_FITS_NO;
}

static plim_status run_engine(const plim_serving *s, plim_arena *a, plim_served *out,
                              plim_err *err)
{
    *out = (plim_served){.arena = a, .token_bytes = plim_serving_token(s)};
    return s->engine->serve(s, out, err);
}

/* What the engine has of a model that guesses, as of any other. */
static plim_status add_draft(const plim_serving *s, plim_served *out, plim_err *err)
{
    const plim_serving draft = plim_serving_draft_of(s);
    plim_served its;
    plim_status st = run_engine(&draft, out->arena, &its, err);
    for (uint32_t i = 0; i < its.n_rows && !st; i++) {
        plim_serve_row row = its.rows[i];
        row.part = plim_arena_printf(out->arena, "draft's %s", row.part).p;
        st = row.part ? plim_served_part(out, row, err) : plim_oom(err);
    }
    out->token_bytes = plim_sat_add(out->token_bytes, its.token_bytes);
    out->request_bytes = plim_sat_add(out->request_bytes, its.request_bytes);
    return st;
}

static plim_status ask_engine(const plim_serving *s, plim_arena *a, plim_served *out,
                              plim_err *err)
{
    plim_status st = run_engine(s, a, out, err);
    if (!st && s->draft && s->engine->flags & PLIM_ENGINE_APART)
        st = add_draft(s, out, err);
    return st ? st : plim_served_context(s, out, err);
}

/* Whether `a` holds fewer requests, or takes more. */
static bool is_worse(const plim_served *a, const plim_served *b)
{
    if (a->pool && a->requests != b->requests)
        return a->requests < b->requests;
    return plim_served_total(a, PLIM_ON_CARD).usual > plim_served_total(b, PLIM_ON_CARD).usual;
}

plim_status plim_serve_ask(const plim_serving *s, plim_arena *a, plim_served *out,
                           plim_err *err)
{
    if (s->n_stages < 2)
        return ask_engine(s, a, out, err);
    plim_status st = PLIM_OK;
    for (uint64_t i = 0; i < s->n_stages && !st; i++) {
        const plim_serving at = plim_serving_at(s, i);
        plim_served one;
        st = ask_engine(&at, a, &one, err);
        if (!st && (!i || is_worse(&one, out)))
            *out = one;
    }
    return st;
}

/* ---- the longest, the most ------------------------------------------------------------------------------ */

static plim_status ask_held(const plim_serving *s, plim_serve_axis axis, uint64_t n, bool sure,
                            bool *held, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_serving at = *s;
    plim_served out;
    *(axis == PLIM_MOST_CONTEXT ? &at.context : &at.concurrency) = n;
    at.arena = &scratch;
    plim_status st = plim_serve_ask(&at, &scratch, &out, err);
    *held = !st && holds_all(&at, &out, sure ? 2 : 1);
    plim_arena_free(&scratch);
    return st;
}

plim_status plim_serve_most(const plim_serving *s, plim_serve_axis axis, bool sure,
                            uint64_t *out, bool *limited, plim_err *err)
{
    enum { CONTEXT_MOST = 1 << 24, REQUESTS_MOST = 1 << 20 }; /* far beyond any card */
    uint64_t low = 0, high = axis == PLIM_MOST_REQUESTS ? REQUESTS_MOST
                             : s->most_context          ? s->most_context
                                                        : CONTEXT_MOST;
    plim_status st = PLIM_OK;
    bool held;
    const uint64_t most = high;
    while (!st && low < high) {
        uint64_t n = low + (high - low + 1) / 2;
        st = ask_held(s, axis, n, sure, &held, err);
        if (held)
            low = n;
        else
            high = n - 1;
    }
    *out = low;
    *limited = low == most;
    return st;
}
