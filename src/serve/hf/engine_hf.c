/* engine_hf.c -- transformers' own generate(): see engines.def.
 *
 * A pass over the prompt fills the cache; a pass for each new token grows it: each layer joins
 * its keys, then its values, to those of the token while the old ones live.  A static cache has its size from
 * the first pass on.  The pass over the prompt is run on the simulated machine; what the later ones need lies between
 * two bounds. */
#include "fit/fit.h"
#include "serve/serve.h"

/* ---- weights ------------------------------------------------------------------------------ */

static uint64_t sum_weights(const plim_serve_question *q)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < q->g->n_values; i++) {
        const plim_value *v = &q->g->values[i];
        bool held = v->kind == PLIM_VALUE_PARAMETER || v->kind == PLIM_VALUE_BUFFER;
        if (held && v->tied_to == PLIM_NONE)
            sum = plim_sat_add(sum, plim_question_bytes(q, v));
    }
    return sum;
}

/* ---- keys and values ---------------------------------------------------------------------- */

/* Of a token in those layers, with the copies that transformers makes of shared heads. */
static uint64_t token_bytes(const plim_serve_question *q, const plim_kv_layers *kv)
{
    return plim_sat_mul(plim_question_kv(q, kv), (uint64_t)PLIM_MAX(kv->copies, 1));
}

/* Of all requests, each of so many tokens.  Past its window a layer keeps views of what it
 * joined last, which is as long as the window.  src: DynamicSlidingWindowLayer.update */
static uint64_t sum_cache(const plim_serve_question *q, uint64_t tokens)
{
    const plim_cache_rules r = plim_question_rules(q);
    return plim_sat_mul(plim_cache_sum(&q->g->kv, &r, tokens), q->concurrency);
}

/* The same for the layer that keeps the most. */
static uint64_t largest_layer(const plim_serve_question *q, uint64_t tokens)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < q->g->kv.n_kinds; i++) {
        const plim_kv_layers *kv = &q->g->kv.kinds[i];
        if (kv->layers)
            most = PLIM_MAX(most, token_bytes(q, kv) / (uint64_t)kv->layers);
    }
    return plim_sat_mul(plim_sat_mul(most, tokens), q->concurrency);
}

/* Tokens for which a static cache has room, all but the last one; 0: it is not static.
 * src: generation/utils.py _prepare_cache_for_generation */
static uint64_t static_room(const plim_serve_question *q)
{
    return plim_str_is(plim_question_option(q, "cache_implementation"), "static")
               ? plim_sat_sub(q->context, 1)
               : 0;
}

/* ---- passes --------------------------------------------------------------------------------- */

/* What generate() holds in addition to what the model gets, all of integers of 8 bytes: the prompts, of
 * which the model gets a copy, the flags of unfinished requests, the tokens that begin a text
 * and fill it up.  src: generation/utils.py _sample, _prepare_special_tokens */
static uint64_t own_tensors(const plim_serve_question *q, uint64_t tokens)
{
    return plim_sat_add(plim_sat_mul(8 * (tokens + 1), q->concurrency), 16);
}

/* A pass over so many tokens of each request, with an empty cache, for each of n what[]. */
static plim_status run_pass(const plim_serve_question *q, uint64_t tokens,
                            const unsigned *what, uint32_t n, plim_peaks *out, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_job job = *q->job;
    job.bind.batch = (int64_t)q->concurrency;
    job.bind.seq = (int64_t)tokens;
    job.bind.infer = job.step.infer = job.bind.prompts = true;
    job.bind.caching = PLIM_CACHING_ON;
    job.bind.cache_room = (int64_t)static_room(q);
    job.step.steps = 1;
    plim_status st = plim_fit_bounds(&job, &scratch, 0, what, n, 0, out, err);
    plim_arena_free(&scratch);
    for (uint32_t i = 0; i < n && !st; i++)
        out[i].requested = plim_sat_add(out[i].requested, own_tensors(q, tokens));
    return st;
}

/* Heads of queries: what has four dimensions, [batch, heads, 1, size]. */
static uint64_t count_heads(const plim_graph *g)
{
    int64_t most = 1;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].meta.rank == 4)
            most = PLIM_MAX(most, g->values[i].meta.dim[1]);
    return (uint64_t)most;
}

/* Heads of queries for each that keeps keys and values, at most. */
static uint64_t count_groups(const plim_serve_question *q)
{
    uint64_t heads = count_heads(q->g), least = heads;
    for (uint32_t i = 0; i < q->g->kv.n_kinds; i++)
        if (q->g->kv.kinds[i].heads > 0)
            least = PLIM_MIN(least, (uint64_t)q->g->kv.kinds[i].heads);
    return PLIM_MAX(heads / least, 1);
}

/* Whether attention is a kernel, and not op by op. */
static bool has_kernel(const plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (plim_node_attends(&g->nodes[i]))
            return true;
    return false;
}

/* Where it is not, its variables live until it returns (queries, repeated keys and values), and
 * the masks of each request do: at most so much of it is missing from the simulated pass. */
static uint64_t loose_variables(const plim_serve_question *q, uint64_t prompt)
{
    enum { MASK_BYTES = 4 };
    if (has_kernel(q->g))
        return 0;
    uint64_t masks = plim_sat_mul(plim_sat_mul(prompt, prompt), q->concurrency);
    uint64_t repeated = plim_sat_mul(largest_layer(q, prompt), count_groups(q));
    return plim_sat_add(plim_sat_mul(masks, MASK_BYTES), plim_sat_mul(repeated, 2));
}

/* Passes over a token where the cache is static: compiled, into kernels that need less than op by op, whose
 * tensors a CUDA graph may keep.  `pass`: op by op. */
static plim_serve_row static_pass(uint64_t pass, uint64_t held)
{
    return (plim_serve_row){
        .low = held, .usual = pass, .high = plim_sat_add(pass, plim_sat_sub(pass, held))};
}

/* The last pass over a token, where `token` is what one needs besides the cache.  In one layer the
 * old keys live alongside the joined ones.  At most, attention without a kernel repeats keys and
 * values for each head that shares them, and has scores in fp32 and in the model's type. */
static plim_serve_row last_pass(const plim_serve_question *q, uint64_t token)
{
    enum { SCORE_BYTES = 16 };
    const uint64_t tokens = plim_sat_sub(q->context, 1), heads = count_heads(q->g);
    const uint64_t layer = largest_layer(q, tokens);
    uint64_t scores = plim_sat_mul(plim_sat_mul(heads, tokens), q->concurrency);
    uint64_t repeated = plim_sat_mul(layer, count_groups(q));
    plim_serve_row r = {.low = plim_sat_add(token, sum_cache(q, plim_sat_sub(tokens, 1)))};
    r.usual = plim_sat_add(token, sum_cache(q, tokens));
    r.usual = plim_sat_add(r.usual, layer / 2);
    r.high = plim_sat_add(r.usual, plim_sat_add(layer, repeated));
    r.high = plim_sat_add(r.high, plim_sat_mul(scores, SCORE_BYTES));
    return r;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static plim_status add_part(plim_serve_answer *out, const char *name, uint64_t low,
                            uint64_t usual, uint64_t high, const char *doc, plim_err *err)
{
    return plim_answer_add(
        out,
        (plim_serve_row){.part = name,
                         .low = low,
                         .usual = usual,
                         .high = high,
                         .certainty = low == high ? PLIM_EXACT : PLIM_ESTIMATED,
                         .doc = doc},
        err);
}

/* What is live besides weights and cache at the peak of all passes, and what the allocator
 * reserves in addition. */
static plim_status add_temporaries(const plim_serve_question *q, const plim_peaks first[3],
                                   const plim_serve_row *last, uint64_t held,
                                   plim_serve_answer *out, plim_err *err)
{
    uint64_t low = plim_sat_sub(PLIM_MAX(first[0].requested, last->low), held);
    uint64_t usual = plim_sat_sub(PLIM_MAX(first[1].requested, last->usual), held);
    uint64_t high = plim_sat_sub(PLIM_MAX(first[2].requested, last->high), held);
    bool prompt = first[1].requested >= last->usual;
    uint64_t spare = plim_sat_sub(first[1].reserved, first[1].requested);
    uint64_t grown = static_room(q) ? 0 : sum_cache(q, plim_sat_sub(q->context, 1));
    plim_status st = add_part(
        out, "temporaries", low, usual, high,
        prompt ? "of the pass over the prompts" : "of the passes over new tokens", err);
    /* each pass over a growing cache asks for tensors of another size, which leaves holes: at most as
     * much as all of the cache at its former size */
    return st ? st
              : add_part(out, "cached blocks", 0, spare, plim_sat_add(spare, grown),
                         "free, kept by PyTorch", err);
}

static plim_status run_passes(const plim_serve_question *q, uint64_t prompt,
                              plim_peaks first[3], plim_peaks *token, plim_err *err)
{
    static const unsigned bounds[] = {PLIM_SIM_LOW, 0, PLIM_SIM_HIGH};
    PLIM_TRY(run_pass(q, prompt, bounds, PLIM_COUNT(bounds), first, err));
    first[2].requested = plim_sat_add(first[2].requested, loose_variables(q, prompt));
    return run_pass(q, 1, &bounds[1], 1, token, err);
}

static plim_status check_cache(const plim_serve_question *q, plim_err *err)
{
    plim_str cache = plim_question_option(q, "cache_implementation");
    return plim_str_is(cache, "dynamic") || plim_str_is(cache, "static")
               ? PLIM_OK
               : plim_fail(
                     err, PLIM_EUSAGE, 0,
                     "option 'cache_implementation' of hf is dynamic or static, not '" PLIM_STR_FMT
                     "'",
                     PLIM_STR_CUT(cache));
}

static plim_status answer_hf(const plim_serve_question *q, plim_serve_answer *out,
                             plim_err *err)
{
    double asked;
    plim_peaks first[3], token;
    plim_status st = plim_question_number(q, "new_tokens", 1, 1 << 24, &asked, err);
    if (!st)
        st = check_cache(q, err);
    if (st)
        return st;
    const uint64_t prompt = PLIM_MAX(plim_sat_sub(q->context, (uint64_t)asked), 1);
    if ((st = run_passes(q, prompt, first, &token, err)))
        return st;
    const uint64_t weights = sum_weights(q);
    const uint64_t cache = sum_cache(q, plim_sat_sub(q->context, 1));
    const plim_serve_row last =
        static_room(q) ? static_pass(token.requested, plim_sat_add(weights, cache))
                       : last_pass(q, plim_sat_sub(token.requested, sum_cache(q, 1)));
    out->request_bytes = cache / q->concurrency;
    st = add_part(out, "weights", weights, weights, weights, "and buffers", err);
    if (!st)
        st = add_part(out, "KV cache", cache, cache, cache,
                      static_room(q) ? "of the size that it has at the end"
                                     : "after the last pass",
                      err);
    if (!st)
        st = add_temporaries(q, first, &last, plim_sat_add(weights, cache), out, err);
    return st;
}

const plim_engine_code plim_engine_hf = {.answer = answer_hf};
