/* engine_llama.c -- llama.cpp: see engines.def.
 *
 * Tensors of the layers that are offloaded lie on the card, token_embd on the host; the cache of a
 * layer lies where the layer does.  The buffers of the computation are what ggml's allocator lays
 * out for the largest batch (gg_model.c, ggml.c). */
#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"
#include "base/regex.h"
#include "serve/llama/gg_file.h"

enum { CELLS = 256 }; /* a cache has a multiple of them */
enum { MOST_OVERRIDES = 16, ALL_LAYERS = 1 << 20 };

/* Where tensors lie whose names a regular expression matches, in the first layers. */
typedef struct override {
    plim_regex regex;
    plim_serve_place place;
    double layers; /* ALL_LAYERS: whatever the layer, or of none */
} override;

typedef struct options {
    double layers, ubatch, batch, unified, whole_windows;
    bool flash;
    override *overrides; /* the first that matches counts */
    uint32_t n_overrides, cap_overrides;
} options;

/* ---- overrides ------------------------------------------------------------------------------ */

static plim_status add_override(plim_arena *a, options *o, plim_str regex,
                                plim_serve_place place, double layers, plim_err *err)
{
    if (o->n_overrides == MOST_OVERRIDES)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "option 'override_tensor' of llama.cpp has too many expressions, the "
                         "limit is %d",
                         (int)MOST_OVERRIDES);
    if (!PLIM_PUSH_ROOM(a, o->overrides, o->n_overrides, o->cap_overrides))
        return plim_oom(err);
    override *to = &o->overrides[o->n_overrides++];
    to->place = place;
    to->layers = layers;
    return plim_regex_compile(&to->regex, regex, err);
}

/* "REGEX=CPU" */
static plim_status read_override(plim_arena *a, options *o, plim_str text, plim_err *err)
{
    size_t cut = text.n;
    while (cut && text.p[cut - 1] != '=')
        cut--;
    plim_str place = {text.p + cut, text.n - cut};
    bool host = plim_str_is(place, "CPU");
    if (!cut || (!host && !plim_str_is(place, "CUDA0")))
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "option 'override_tensor' of llama.cpp is REGEX=CPU or REGEX=CUDA0, or "
            "several separated by ';', not '" PLIM_STR_FMT "'",
            PLIM_STR_CUT(text));
    return add_override(a, o, (plim_str){text.p, cut - 1}, host ? PLIM_ON_HOST : PLIM_ON_CARD,
                        ALL_LAYERS, err);
}

/* The options that stand for expressions of llama.cpp's own.  src: common/common.h */
static plim_status read_kinds(const plim_serve_question *q, options *o, plim_err *err)
{
    static const struct {
        const char *name, *regex;
        double most; /* 1: it has no number, and means all layers */
    } kinds[] = {
        {"cpu_moe", "\\.ffn_(up|down|gate|gate_up)_(ch|)exps", 1},
        {"n_cpu_moe", "\\.ffn_(up|down|gate|gate_up)_(ch|)exps", ALL_LAYERS},
        {"n_cpu_ffn", "\\.ffn_(up|down|gate)\\.", ALL_LAYERS},
    };
    plim_status st = PLIM_OK;
    for (size_t i = 0; i < PLIM_COUNT(kinds) && !st; i++) {
        double n;
        st = plim_question_number(q, kinds[i].name, 0, kinds[i].most, &n, err);
        if (!st && n > 0)
            st = add_override(q->arena, o, plim_str_of(kinds[i].regex), PLIM_ON_HOST,
                              kinds[i].most > 1 ? n : ALL_LAYERS, err);
    }
    return st;
}

static plim_status read_overrides(const plim_serve_question *q, options *o, plim_err *err)
{
    plim_str rest = plim_question_option(q, "override_tensor"), one;
    plim_status st = PLIM_OK;
    while (!st && !plim_str_is(rest, "none") && plim_item_word(&rest, ';', &one))
        st = read_override(q->arena, o, one, err);
    return st ? st : read_kinds(q, o, err);
}

static bool find_override(const options *o, int64_t layer, plim_str name,
                          plim_serve_place *out)
{
    enum { LONGEST = 256 };
    char text[LONGEST];
    if (!o->n_overrides)
        return false;
    int n = layer < 0 ? snprintf(text, sizeof text, PLIM_STR_FMT, PLIM_STR_ARG(name))
                      : snprintf(text, sizeof text, "blk.%" PRId64 "." PLIM_STR_FMT, layer,
                                 PLIM_STR_ARG(name));
    plim_str whole = {text, PLIM_MIN((size_t)PLIM_MAX(n, 0), sizeof text - 1)};
    for (uint32_t i = 0; i < o->n_overrides; i++) {
        const override *at = &o->overrides[i];
        bool here = at->layers == ALL_LAYERS || (layer >= 0 && (double)layer < at->layers);
        if (here && plim_regex_finds(&at->regex, whole)) {
            *out = at->place;
            return true;
        }
    }
    return false;
}

/* ---- options ---------------------------------------------------------------------------------- */

static plim_status read_options(const plim_serve_question *q, options *o, plim_err *err)
{
    plim_str flash = plim_question_option(q, "flash_attn");
    bool all = plim_str_is(plim_question_option(q, "n_gpu_layers"), "all");
    *o = (options){.layers = ALL_LAYERS, .flash = !plim_str_is(flash, "off")};
    if (!plim_str_is(flash, "auto") && !plim_str_is(flash, "on") && o->flash)
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "option 'flash_attn' of llama.cpp is auto, on or off, not '" PLIM_STR_FMT "'",
            PLIM_STR_CUT(flash));
    plim_status st =
        all ? PLIM_OK : plim_question_number(q, "n_gpu_layers", 0, 1 << 20, &o->layers, err);
    if (!st)
        st = plim_question_number(q, "ubatch_size", 1, 1 << 20, &o->ubatch, err);
    if (!st)
        st = plim_question_number(q, "batch_size", 1, 1 << 20, &o->batch, err);
    if (!st)
        st = plim_question_number(q, "kv_unified", 0, 1, &o->unified, err);
    if (!st)
        st = plim_question_number(q, "swa_full", 0, 1, &o->whole_windows, err);
    if (!st)
        st = read_overrides(q, o, err);
    if (!st && !o->flash && q->values->elements > 1)
        st = plim_fail(err, PLIM_EUSAGE, 0,
                       "llama.cpp holds values as '%s' with flash attention only",
                       q->values->name);
    return st;
}

/* ---- what lies where ------------------------------------------------------------------------- */

/* The last n_gpu_layers layers are on the card; the output counts as one after them. */
static bool is_offloaded(const options *o, const plim_gg_file *f, int64_t layer)
{
    return (double)layer >= (double)f->all_layers + 1 - o->layers;
}

static bool has_output_there(const options *o, const plim_gg_file *f)
{
    return is_offloaded(o, f, f->all_layers);
}

static bool move_weight(const void *ud, int64_t layer, const char *name, plim_gg_place *place)
{
    plim_serve_place to = PLIM_ON_HOST;
    bool found = find_override(ud, layer, plim_str_of(name), &to);
    *place = to == PLIM_ON_CARD ? PLIM_GG_DEVICE : PLIM_GG_HOST;
    return found;
}

/* src: llama-arch.cpp, LLM_TENSOR_LAYER_INPUT */
static const char inputs[] =
    "token_embd.weight position_embd.weight token_types.weight per_layer_token_embd.weight";

static plim_serve_place place_tensor(const options *o, const plim_gg_file *f,
                                     const plim_gg_tensor *t)
{
    plim_serve_place moved;
    if (find_override(o, t->layer, t->name, &moved))
        return moved;
    if (t->layer < 0 && plim_item_has(inputs, t->name))
        return PLIM_ON_HOST;
    bool first = f->model.encodes && plim_str_starts(t->name, "token_embd_norm.");
    return is_offloaded(o, f,
                        first          ? 0
                        : t->layer < 0 ? f->all_layers
                                       : t->layer)
               ? PLIM_ON_CARD
               : PLIM_ON_HOST;
}

static plim_serve_row exact_row(const char *part, plim_serve_place place, uint64_t bytes,
                                const char *doc)
{
    return (plim_serve_row){
        .part = part, .place = place, .low = bytes, .usual = bytes, .high = bytes, .doc = doc};
}

/* On the card the last row of a quantized matrix is filled up to a multiple of 512 elements, and a
 * tensor to one of 128 bytes.
 * src: ggml-cuda.cu ggml_backend_cuda_buffer_type_get_alloc_size, MATRIX_ROW_PADDING */
static uint64_t bytes_on(plim_serve_place place, const plim_gg_tensor *t)
{
    enum { ROW = 512, ALIGNMENT = 128 };
    if (place != PLIM_ON_CARD)
        return t->bytes;
    const uint64_t row = PLIM_MAX((uint64_t)t->n[0], t->block);
    const uint64_t missing = t->block > 1 ? plim_round_up(row, ROW) - row : 0;
    const uint64_t blocks = PLIM_MAX(t->elements / t->block, 1);
    const uint64_t filling = plim_sat_mul(t->bytes / blocks, missing / t->block);
    return plim_round_up(plim_sat_add(t->bytes, filling), ALIGNMENT);
}

static plim_status add_weights(const plim_serve_question *q, const options *o,
                               const plim_gg_file *f, plim_serve_answer *out, plim_err *err)
{
    uint64_t bytes[PLIM_PLACE_COUNT] = {0}, elements = 0, all = 0;
    bool output = false;
    const plim_gg_tensor *embed = NULL;
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const plim_gg_tensor *t = &f->tensors[i];
        plim_serve_place place = place_tensor(o, f, t);
        if (t->layer >= f->model.layers) /* it predicts further tokens, and is not loaded */
            continue;
        bytes[place] = plim_sat_add(bytes[place], bytes_on(place, t));
        elements = plim_sat_add(elements, t->elements);
        all = plim_sat_add(all, t->bytes);
        output |= plim_str_is(t->name, "output.weight");
        embed = plim_str_is(t->name, "token_embd.weight") ? t : embed;
    }
    if (!output && !f->model.encodes && embed && has_output_there(o, f)) /* a copy */
        bytes[PLIM_ON_CARD] = plim_sat_add(bytes[PLIM_ON_CARD], bytes_on(PLIM_ON_CARD, embed));
    const char *doc = plim_arena_printf(q->arena, "%.4f bits per weight",
                                        8.0 * (double)all / (double)elements)
                          .p;
    if (!doc)
        return plim_oom(err);
    plim_status st = PLIM_OK;
    for (int p = 0; p < PLIM_PLACE_COUNT && !st; p++)
        if (bytes[p])
            st = plim_answer_add(out, exact_row("model", (plim_serve_place)p, bytes[p], doc),
                                 err);
    return st;
}

/* ---- the cache ---------------------------------------------------------------------------------- */

static int64_t pad_cells(uint64_t n)
{
    return (int64_t)PLIM_MIN(plim_sat_add(n, CELLS - 1) / CELLS * CELLS,
                             (uint64_t)INT64_MAX / 4);
}

static plim_gg_context context_of(const plim_serve_question *q, const options *o,
                                  const plim_gg_file *f)
{
    const plim_gg_model *m = &f->model;
    int64_t requests = (int64_t)q->concurrency, one = pad_cells(q->context);
    bool unified = o->unified > 0 || requests == 1;
    plim_gg_context c = {.streams = unified ? 1 : requests,
                         .cells = unified ? pad_cells(plim_sat_mul(q->context, q->concurrency))
                                          : one,
                         .key_bytes = PLIM_MAX(q->keys->bytes / q->keys->elements, 1),
                         .value_bytes = PLIM_MAX(q->values->bytes / q->values->elements, 1),
                         .card = q->job->gpu || o->layers > 0,
                         .flash = o->flash,
                         .output_there = has_output_there(o, f),
                         .moved = move_weight,
                         .moved_ud = o};
    while (c.first < m->layers && !is_offloaded(o, f, c.first))
        c.first++;
    uint64_t window = plim_sat_add(
        plim_sat_mul((uint64_t)m->window, unified ? q->concurrency : 1), (uint64_t)o->ubatch);
    c.windowed_cells =
        o->whole_windows > 0 ? c.cells : pad_cells(PLIM_MIN((uint64_t)c.cells, window));
    uint64_t total = plim_sat_mul((uint64_t)c.cells, (uint64_t)c.streams);
    c.tokens = (int64_t)PLIM_MIN(total, (uint64_t)o->ubatch);
    c.tokens = (c.tokens + requests - 1) / requests * requests;
    c.outputs = PLIM_MIN(c.tokens, q->guesses ? requests : (int64_t)o->batch);
    if (m->encodes) { /* tokens see those of the batch */
        c.streams = 1;
        c.cells = c.windowed_cells = c.tokens;
    }
    return c;
}

/* src: llama-context.cpp llama_init_from_model */
static plim_status check_blocks(const plim_kv_type *t, const char *what, int64_t head,
                                plim_err *err)
{
    return head % t->elements
               ? plim_fail(err, PLIM_EUSAGE, 0,
                           "kv: %s of %" PRId64 " elements do not fill the blocks of %u that "
                           "'%s' has",
                           what, head, (unsigned)t->elements, t->name)
               : PLIM_OK;
}

static plim_status check_types(const plim_serve_question *q, const plim_cache *c,
                               plim_err *err)
{
    for (uint32_t i = 0; i < c->n_kinds; i++) {
        const plim_kv_layers *k = &c->kinds[i];
        PLIM_TRY(check_blocks(q->keys, "keys", k->keys, err));
        PLIM_TRY(check_blocks(q->values, "values", k->values, err));
        PLIM_TRY(check_blocks(q->keys, "keys of the index", k->index_keys, err));
    }
    return PLIM_OK;
}

/* Sequences share a stream, or have one each; values that are not transposed for flash attention are as wide in
 * all layers as in the widest.  src: llama-kv-cache.cpp, llama-kv-cache-iswa.cpp */
static plim_cache_rules rules_of(const plim_serve_question *q, const options *o,
                                 const plim_gg_file *f, uint64_t streams)
{
    return (plim_cache_rules){.keys = q->keys,
                              .values = q->values,
                              .state_bytes = 4,
                              .step = CELLS,
                              .windows = streams == 1 ? q->concurrency : 1,
                              .ahead = (uint64_t)o->ubatch,
                              .least_values = o->flash ? 0 : f->kept.widest_values};
}

/* Of an architecture that is not known any layer may keep less, or all that the metadata give, and a state. */
static plim_serve_row unsure_row(const plim_gg_file *f, const char *part,
                                 plim_serve_place place, uint64_t usual, uint64_t most)
{
    return (plim_serve_row){.part = part,
                            .place = place,
                            .usual = usual,
                            .high = PLIM_MAX(usual, most),
                            .certainty = PLIM_UNKNOWN_BYTES,
                            .doc = f->kept.doubt};
}

typedef struct kept_bytes {
    uint64_t tokens, states; /* of all requests */
} kept_bytes;

static plim_status add_kept(const plim_gg_file *f, plim_serve_place place, const kept_bytes *b,
                            const kept_bytes *most, plim_serve_answer *out, plim_err *err)
{
    plim_serve_row cache = exact_row("KV cache", place, b->tokens, "cells of all requests"),
                   state =
                       exact_row("state", place, b->states, "of recurrences, all requests");
    if (f->kept.doubt) {
        cache = unsure_row(f, "KV cache", place, b->tokens, most->tokens);
        state = unsure_row(f, "state", place, b->states, most->states);
    }
    plim_status st = cache.high ? plim_answer_add(out, cache, err) : PLIM_OK;
    return st || !state.high ? st : plim_answer_add(out, state, err);
}

/* What one of those layers has of all requests. */
static kept_bytes keep_layer(const plim_serve_question *q, const options *o,
                             const plim_gg_file *f, const plim_gg_context *c,
                             const plim_kv_layers *of)
{
    plim_kv_layers k = *of;
    const uint64_t streams = f->kept.apart ? q->concurrency : (uint64_t)c->streams;
    const plim_cache_rules r = rules_of(q, o, f, streams);
    if (o->whole_windows > 0)
        k.window = 0;
    return (kept_bytes){plim_sat_mul(plim_cache_bytes(&k, &r, (uint64_t)c->cells), streams),
                        plim_sat_mul(plim_cache_state(&k, &r), q->concurrency)};
}

static void add_layer(kept_bytes *sum, const kept_bytes *layer)
{
    sum->tokens = plim_sat_add(sum->tokens, layer->tokens);
    sum->states = plim_sat_add(sum->states, layer->states);
}

static uint64_t sum_tokens(const plim_serve_question *q, const options *o,
                           const plim_gg_file *f)
{
    const plim_cache_rules r = rules_of(q, o, f, 1);
    const plim_cache *c = &f->kept.cache;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->n_kinds; i++)
        if (!c->kinds[i].window)
            sum = plim_sat_add(sum, plim_sat_mul(plim_cache_row(&c->kinds[i], &r),
                                                 (uint64_t)c->kinds[i].layers));
    return sum;
}

static plim_status add_cache(const plim_serve_question *q, const options *o,
                             const plim_gg_file *f, const plim_gg_context *c,
                             plim_serve_answer *out, plim_err *err)
{
    const plim_cache *cache = &f->kept.cache;
    const kept_bytes most = keep_layer(q, o, f, c, &f->kept.most);
    kept_bytes here[PLIM_PLACE_COUNT] = {{0}}, highest[PLIM_PLACE_COUNT] = {{0}}, all = {0};
    int64_t layer = 0;
    PLIM_TRY(check_types(q, cache, err));
    for (uint32_t i = 0; i < cache->n_runs; i++) {
        const kept_bytes one = keep_layer(q, o, f, c, &cache->kinds[cache->runs[i].kind]);
        for (int64_t n = 0; n < cache->runs[i].layers; n++, layer++) {
            const int place = is_offloaded(o, f, layer) ? PLIM_ON_CARD : PLIM_ON_HOST;
            add_layer(&here[place], &one);
            add_layer(&highest[place], &most);
            add_layer(&all, &one);
        }
    }
    if (f->listed) {
        out->token_bytes = sum_tokens(q, o, f);
        out->request_bytes = plim_sat_add(all.tokens, all.states) / q->concurrency;
    }
    plim_status st = PLIM_OK;
    for (int p = 0; p < PLIM_PLACE_COUNT && !st; p++)
        st = add_kept(f, (plim_serve_place)p, &here[p], &highest[p], out, err);
    return st;
}

/* ---- the buffers of the computation ------------------------------------------------------------------ */

/* Where no graph can be built like it: two results as wide as the widest, and four hidden states.  On CPU backends
 * llama.cpp takes between 0.8 and 1.5 times as much for Mamba, Jamba, Granite, Falcon-H1, LFM2 and Qwen3-Next
 * (tests/golden/llamacpp). */
static uint64_t guess_compute(const plim_gg_file *f, const plim_gg_context *c)
{
    enum { WIDEST = 2, HIDDEN = 4 };
    const plim_gg_model *m = &f->model;
    uint64_t widest = 0;
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const plim_gg_tensor *t = &f->tensors[i];
        bool matrix = t->n[1] > 1 && t->n[0] == m->hidden && !plim_item_has(inputs, t->name);
        const uint64_t times = t->n[2] > 1 ? (uint64_t)PLIM_MAX(m->used, 1) : 1;
        if (matrix)
            widest = PLIM_MAX(widest, plim_sat_mul((uint64_t)t->n[1], times));
    }
    if (!m->encodes)
        widest = PLIM_MAX(widest, (uint64_t)m->vocab);
    const uint64_t row =
        plim_sat_add(plim_sat_mul(WIDEST, widest), plim_sat_mul(HIDDEN, (uint64_t)m->hidden));
    const uint64_t mask = (uint64_t)c->cells * (c->flash ? 2 : 4),
                   scores =
                       c->flash ? 0 : plim_sat_mul(4 * (uint64_t)c->cells, (uint64_t)m->heads);
    return plim_sat_mul((uint64_t)c->tokens,
                        plim_sat_add(plim_sat_mul(row, 4), plim_sat_add(mask, scores)));
}

/* Exact for the graphs that are known.  For others the bounds are as far off as the guess may be. */
static plim_serve_row compute_row(const plim_gg_file *f, bool exact, bool laid,
                                  plim_serve_place place, uint64_t bytes)
{
    enum { UNSURE = 4 };
    plim_serve_row r = exact_row("compute", place, bytes, "the largest batch");
    if (exact)
        return r;
    if (!f->listed)
        return unsure_row(f, r.part, place, bytes, plim_sat_mul(bytes, UNSURE));
    r.certainty = PLIM_ESTIMATED;
    r.low = laid ? bytes - bytes / 4 : bytes / 2;
    r.high = plim_sat_add(bytes, laid ? bytes / 2 : bytes);
    return r;
}

/* Bytes of the buffers in each place.  A cache of blocks rotates what it holds, which is left out. */
static plim_status lay_out(const plim_gg_file *f, const plim_gg_context *c, bool laid,
                           uint64_t bytes[PLIM_GG_PLACES], plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    if (!laid) {
        bytes[c->card ? PLIM_GG_DEVICE : PLIM_GG_HOST] = guess_compute(f, c);
        return PLIM_OK;
    }
    plim_gg_graph *g = plim_gg_build(&scratch, &f->model, c);
    laid = g && plim_gg_layout(g, &scratch, bytes);
    plim_arena_free(&scratch);
    return laid ? PLIM_OK : plim_oom(err);
}

/* Logits of a token of each request, or embeddings and room for logits.  For all tokens of
 * a batch an encoder makes it larger.  src: llama-context.cpp output_reserve, encode */
static plim_serve_row output_row(const plim_serve_question *q, const plim_gg_file *f,
                                 const plim_gg_context *c)
{
    const plim_gg_model *m = &f->model;
    const uint64_t logits = plim_sat_mul((uint64_t)m->vocab * 4, q->concurrency);
    plim_serve_row r = exact_row("output", PLIM_ON_HOST, logits, "logits");
    if (!f->listed)
        return unsure_row(f, r.part, PLIM_ON_HOST, logits, logits);
    if (!m->encodes)
        return r;
    const uint64_t token =
        plim_sat_mul(4, plim_sat_add((uint64_t)m->vocab, (uint64_t)f->embedding));
    r.doc = "embeddings, room for logits";
    r.certainty = PLIM_ESTIMATED;
    r.low = plim_sat_mul(token, q->concurrency);
    r.usual = r.high = PLIM_MAX(r.low, plim_sat_mul(token, (uint64_t)c->tokens));
    return r;
}

/* Whether layers keep nothing but keys and values. */
static bool is_plain(const plim_cache *c)
{
    bool plain = true;
    for (uint32_t i = 0; i < c->n_kinds; i++)
        plain &= !c->kinds[i].state && !c->kinds[i].channels && !c->kinds[i].index_keys &&
                 (!c->kinds[i].heads || c->kinds[i].values);
    return plain;
}

static plim_status add_compute(const plim_serve_question *q, const plim_gg_file *f,
                               const plim_gg_context *c, plim_serve_answer *out, plim_err *err)
{
    static const plim_serve_place places[] = {PLIM_ON_CARD, PLIM_ON_HOST};
    uint64_t bytes[PLIM_GG_PLACES] = {0};
    const bool exact = f->known && q->keys->elements == 1 && q->values->elements == 1;
    const bool laid = f->sound && is_plain(&f->kept.cache);
    plim_status st = lay_out(f, c, laid, bytes, err);
    for (int p = 0; p < PLIM_GG_PLACES && !st; p++)
        if (bytes[p])
            st = plim_answer_add(out, compute_row(f, exact, laid, places[p], bytes[p]), err);
    return st ? st : plim_answer_add(out, output_row(q, f, c), err);
}

static plim_status answer_llama(const plim_serve_question *q, plim_serve_answer *out,
                                plim_err *err)
{
    options o;
    plim_gg_file f;
    PLIM_TRY(read_options(q, &o, err));
    PLIM_TRY(plim_gg_file_open(q, q->weights, &f, err));
    const plim_gg_context c = context_of(q, &o, &f);
    PLIM_TRY(add_weights(q, &o, &f, out, err));
    PLIM_TRY(add_cache(q, &o, &f, &c, out, err));
    return add_compute(q, &f, &c, out, err);
}

/* A file has experts in MXFP4 as they are; other weights are dequantized for it. */
static const char *name_published(const char *packed)
{
    return strcmp(packed, "mxfp4") ? NULL : "BF16_MXFP4";
}

const plim_engine_code plim_engine_llama = {
    .answer = answer_llama, .note = plim_gg_note, .published = name_published};
