/* engine_sglang.c -- SGLang: see engines.def.
 *
 * SGLang looks at what is free on the card, loads the weights, and gives weights and a pool of
 * tokens the static fraction of what was free.  The rest is left for what comes later and is
 * not measured before: the table of requests, buffers of attention, CUDA graphs, temporaries.
 * The fraction, the pool and the table follow from its code; what comes later is estimated.
 *
 * src: sglang 0.5.10.post1, below srt/; logs that users published, by pull request or issue of
 * sglang */
#include <math.h>

#include "base/fmt.h"
#include "fit/verdict.h"
#include "serve/serve.h"

enum { LOW, USUAL, HIGH, BOUNDS };
static const uint64_t mib = UINT64_C(1) << 20;

/* ---- options ---------------------------------------------------------------------------- */

typedef struct options {
    double fraction; /* 0: by the card */
    double requests; /* that run at once; 0: as many as there is room for */
    double chunk, batch, graphs, pieces, page, tokens;
} options;

/* What it takes for `auto`, by the memory of the card: tokens of a chunk of a prompt, and the
 * largest batch that has a CUDA graph.  src: server_args.py _handle_gpu_memory_settings */
static const struct preset {
    uint64_t gib;                       /* less than so many; 0: any */
    double chunk, batch, batch_of_four; /* that of four cards and more */
} presets[] = {{20, 2048, 8, 8},
               {35, 2048, 24, 80},
               {60, 4096, 32, 160},
               {160, 8192, 256, 512},
               {0, 16384, 512, 512}};
static const struct preset no_card = {0, 4096, 160, 160};

static const struct preset *find_preset(const plim_gpu *gpu)
{
    size_t i = 0;
    if (!gpu)
        return &no_card;
    while (presets[i].gib && gpu->memory_bytes >= presets[i].gib << 30)
        i++;
    return &presets[i];
}

static bool is_latent(const plim_graph *g) { return g->kv.n_kinds && !g->kv.kinds[0].values; }

static bool is_blackwell(const plim_gpu *gpu) /* of data centers */
{
    return gpu && gpu->cc >= 100 && gpu->cc < 120;
}

/* The kernels of Blackwell have pages of 64 tokens.
 * src: server_args.py _get_default_attn_backend, _handle_attention_backend_compatibility */
static double usual_page(const plim_serve_question *q)
{
    return is_blackwell(q->job->gpu) && !is_latent(q->g) ? 64 : 1;
}

static plim_status read_auto(const plim_serve_question *q, const char *name, double usual,
                             double least, double most, double *out, plim_err *err)
{
    *out = usual;
    return plim_str_is(plim_question_option(q, name), "auto")
               ? PLIM_OK
               : plim_question_number(q, name, least, most, out, err);
}

static plim_status read_options(const plim_serve_question *q, options *o, plim_err *err)
{
    const double most = 1 << 24;
    const struct preset *p = find_preset(q->job->gpu);
    double no_graphs, no_pieces;
    PLIM_TRY(read_auto(q, "mem_fraction_static", 0, 0.01, 1, &o->fraction, err));
    PLIM_TRY(read_auto(q, "max_running_requests", 0, 1, most, &o->requests, err));
    PLIM_TRY(read_auto(q, "chunked_prefill_size", p->chunk, 1, most, &o->chunk, err));
    PLIM_TRY(read_auto(q, "cuda_graph_max_bs", q->cards < 4 ? p->batch : p->batch_of_four, 1,
                       1 << 16, &o->batch, err));
    PLIM_TRY(read_auto(q, "page_size", usual_page(q), 1, 1 << 16, &o->page, err));
    PLIM_TRY(plim_question_number(q, "disable_cuda_graph", 0, 1, &no_graphs, err));
    PLIM_TRY(plim_question_number(q, "disable_piecewise_cuda_graph", 0, 1, &no_pieces, err));
    PLIM_TRY(plim_question_number(q, "max_total_tokens", 0, 1e12, &o->tokens, err));
    o->graphs = no_graphs > 0 ? 0 : 1;
    o->pieces = no_pieces > 0 ? 0 : 1;
    return PLIM_OK;
}

/* ---- weights ---------------------------------------------------------------------------- */

typedef struct sizes {
    uint64_t weights[BOUNDS];
    uint64_t position; /* of tables of positions, for each */
    uint64_t widest;   /* as plim_question_widest says */
} sizes;

/* How experts in MXFP4 are filled up: for Triton's kernels, whose layout on Hopper fills up
 * more, and for FlashInfer's.  src: layers/quantization/mxfp4.py create_weights; on Hopper as
 * in vllm_weights.c */
static void filled_bytes(const plim_serve_question *q, const plim_value *v,
                         uint64_t bytes[BOUNDS])
{
    static const plim_serve_filling triton = {1, 64, false}, hopper = {256, 256, true},
                                    flashinfer = {256, 256, false};
    const plim_gpu *gpu = q->job->gpu;
    if (!plim_question_filled(q, v, &triton))
        return;
    bytes[LOW] = plim_question_filled(q, v, &triton);
    bytes[USUAL] = plim_question_filled(q, v,
                                        is_blackwell(gpu)          ? &flashinfer
                                        : gpu && gpu->cc / 10 == 9 ? &hopper
                                                                   : &triton);
    bytes[HIGH] = plim_question_filled(q, v, &flashinfer);
}

/* Latent attention has copies of kv_b_proj in two parts: in its own type, or in that of the
 * model.
 * src: models/deepseek_common/deepseek_weight_loader.py post_load_weights */
static void absorbed_bytes(const plim_serve_question *q, const plim_value *v,
                           uint64_t bytes[BOUNDS])
{
    const bool weight = plim_str_ends(v->name, PLIM_STR("kv_b_proj.weight")),
               packed = plim_str_ends(v->name, PLIM_STR("kv_b_proj.qweight")) ||
                        plim_str_ends(v->name, PLIM_STR("kv_b_proj.weight_packed"));
    if (!weight && !packed)
        return;
    const uint64_t own = bytes[LOW],
                   wide = plim_sat_mul(own, (packed ? 2 : 1) *
                                                plim_dtype_bytes(plim_question_dtype(q)));
    bytes[LOW] = plim_sat_add(bytes[LOW], own);
    bytes[USUAL] = bytes[HIGH] = plim_sat_add(own, v->packed ? wide : own);
}

static plim_status measure_model(const plim_serve_question *q, const void **out, plim_err *err)
{
    sizes *s = PLIM_NEW(q->arena, sizes);
    if (!s)
        return plim_oom(err);
    for (uint32_t i = 0; i < q->g->n_values; i++) {
        const plim_value *v = &q->g->values[i];
        s->position = plim_sat_add(s->position, plim_serve_positions(v));
        if (!plim_serve_has_weight(v))
            continue;
        const uint64_t plain = plim_question_bytes(q, v);
        uint64_t bytes[BOUNDS] = {plain, plain, plain};
        filled_bytes(q, v, bytes);
        absorbed_bytes(q, v, bytes);
        for (int b = LOW; b < BOUNDS; b++)
            s->weights[b] = plim_sat_add(s->weights[b], bytes[b]);
    }
    s->position = plim_sat_mul(s->position, 4); /* fp32: layers/rotary_embedding/base.py */
    *out = s;
    return plim_question_widest(q, &s->widest, err);
}

static plim_status prepare_sglang(plim_serve_question *q, plim_graph *g, plim_err *err)
{
    double ranks;
    PLIM_TRY(plim_question_number(q, "ep_size", 1, 1 << 16, &ranks, err));
    if (q->n_stages > 1)
        return plim_fail(err, PLIM_EUSAGE, 0, "pp: stages of SGLang are not simulated");
    if (ranks > 1 && (uint64_t)ranks != q->cards)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "option 'ep_size' of %s is 1 or that of --tp, %" PRIu64 ", not %.0f",
                         q->engine->name, q->cards, ranks);
    return plim_question_divide(q, g, ranks > 1, measure_model, err);
}

/* ---- what layers keep ------------------------------------------------------------------- */

/* Bytes of a token in the layers that keep all, and in those with a pool of windows apart. */
typedef struct kept {
    uint64_t all, windowed, window;
} kept;

/* gpt-oss has a pool of its own for layers with a window; other models keep all tokens in
 * them.
 * src: configs/model_config.py is_hybrid_swa_model */
static plim_status read_kept(const plim_serve_question *q, kept *k, plim_err *err)
{
    const bool apart = plim_str_is(q->g->about.model_type, "gpt_oss");
    *k = (kept){0};
    for (uint32_t i = 0; i < q->g->kv.n_kinds; i++) {
        const plim_kv_layers *kv = &q->g->kv.kinds[i];
        if (!kv->heads)
            return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "layers of '" PLIM_STR_FMT
                             "' keep the state of a recurrence: SGLang's pool for it is not "
                             "simulated",
                             PLIM_STR_CUT(q->g->about.name));
        uint64_t *to = apart && kv->window ? &k->windowed : &k->all;
        *to = plim_sat_add(*to, plim_question_kv(q, kv));
        if (apart && kv->window)
            k->window = PLIM_MAX(k->window, (uint64_t)kv->window);
    }
    if (!k->all)
        return plim_fail(err, PLIM_ERANGE, 0, "layers of '" PLIM_STR_FMT "' keep nothing",
                         PLIM_STR_CUT(q->g->about.name));
    return PLIM_OK;
}

static uint64_t whole_pages(uint64_t tokens, const options *o)
{
    return tokens / (uint64_t)o->page * (uint64_t)o->page;
}

static uint64_t fill_pages(uint64_t tokens, const options *o)
{
    return plim_round_up(tokens, (uint64_t)o->page);
}

/* Tokens of the pool of windows, for each of the other.  src: server_args.py
 * swa_full_tokens_ratio */
static const double windows = 0.8;

static uint64_t windowed_tokens(uint64_t tokens, const kept *k, const options *o)
{
    return k->windowed ? whole_pages((uint64_t)((double)tokens * windows), o) : 0;
}

/* Bytes of both; each has a page for dummies.  src: mem_cache/memory_pool.py */
static uint64_t pool_bytes(uint64_t tokens, const kept *k, const options *o)
{
    const uint64_t page = (uint64_t)o->page;
    if (!tokens)
        return 0;
    uint64_t bytes = plim_sat_mul(plim_sat_add(tokens, page), k->all);
    if (k->windowed)
        bytes =
            plim_sat_add(bytes, plim_sat_mul(plim_sat_add(windowed_tokens(tokens, k, o), page),
                                             k->windowed));
    return bytes;
}

/* Tokens whose keys and values fit in so many bytes.
 * src: model_runner_kv_cache_mixin.py _resolve_token_capacity, _resolve_hybrid_swa_tokens */
static uint64_t count_tokens(double bytes, const kept *k, const options *o)
{
    const double both = (double)k->all + (double)k->windowed;
    double tokens = bytes > 0 ? floor(bytes / both) : 0;
    if (o->tokens > 0)
        tokens = PLIM_MIN(tokens, o->tokens);
    uint64_t n = whole_pages((uint64_t)PLIM_MIN(tokens, 1e15), o);
    if (!k->windowed)
        return n;
    return whole_pages(
        (uint64_t)((double)n * both / ((double)k->all + windows * (double)k->windowed)), o);
}

/* ---- the static fraction ---------------------------------------------------------------- */

/* Sizes for which graphs are captured. */
typedef struct steps {
    double from, to, by;
} steps;

/* How many are not above `most`, and the last one. */
static double count_steps(const steps *s, size_t n, double most, double *last)
{
    double sum = 0;
    *last = 0;
    for (size_t i = 0; i < n && s[i].from <= most; i++) {
        const double further = floor((PLIM_MIN(most, s[i].to) - s[i].from) / s[i].by);
        *last = s[i].from + further * s[i].by;
        sum += further + 1;
    }
    return sum;
}

/* Batches; the largest has one, too.  src: server_args.py _generate_cuda_graph_batch_sizes */
static double count_graphs(const options *o)
{
    static const steps of[] = {
        {1, 2, 1}, {4, 12, 4}, {16, 256, 8}, {272, 496, 16}, {512, 1 << 16, 32}};
    double last, n = count_steps(of, PLIM_COUNT(of), o->batch, &last);
    return n + (last < o->batch);
}

/* Tokens of a prompt, for pieces of a pass; 2048 at most with latent attention.
 * src: server_args.py _generate_piecewise_cuda_graph_tokens */
static double count_pieces(const plim_serve_question *q, const options *o)
{
    static const steps of[] = {{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                               {576, 1024, 64}, {1280, 4096, 256}, {4608, 1 << 24, 512}};
    double last;
    return o->pieces > 0
               ? count_steps(of, PLIM_COUNT(of), is_latent(q->g) ? 2048 : o->chunk, &last)
               : 0;
}

/* What it reserves of a card of so many MiB.  src: server_args.py _handle_gpu_memory_settings
 */
static double usual_fraction(const plim_serve_question *q, const options *o, double card)
{
    double reserved =
        512 + 1.5 * PLIM_MAX(o->chunk, 2048) + 2 * o->batch + (double)q->cards / 8 * 1024;
    if (o->pieces > 0)
        reserved += is_latent(q->g) ? 1.5 * 1024 : 8 * count_pieces(q, o);
    if (card > 60 * 1024)
        reserved = PLIM_MAX(reserved, 10 * 1024);
    return PLIM_MAX(floor((card - reserved) / card * 1000 + 0.5) / 1000, 0);
}

/* nvidia-smi, which it asks, reports more memory than CUDA: 0.4 % on B200, 3 % on T4.
 * src: 46068 MiB of an L40S of 44.39 GiB (13023); docs/sources/cards.md */
static double find_fraction(const plim_serve_question *q, const options *o, int bound)
{
    static const double more[BOUNDS] = {1, 1.01, 1.03};
    const double card = (double)q->job->gpu->memory_bytes / (double)mib;
    return o->fraction > 0 ? o->fraction : usual_fraction(q, o, card * more[bound]);
}

/* ---- rows ------------------------------------------------------------------------------- */

typedef struct answer {
    const plim_serve_question *q;
    const options *o;
    const sizes *sizes;
    kept kept;
    uint64_t tokens[BOUNDS]; /* of the pool */
    uint64_t running[BOUNDS];
    plim_serve_answer *out;
    plim_err *err;
} answer;

static plim_status add_row(const answer *a, const char *part, uint64_t low, uint64_t usual,
                           uint64_t high, const char *doc)
{
    return plim_answer_add(
        a->out,
        (plim_serve_row){.part = part,
                         .low = low,
                         .usual = usual,
                         .high = high,
                         .certainty = low == high ? PLIM_EXACT : PLIM_ESTIMATED,
                         .doc = doc},
        a->err);
}

/* Of communication, which is there before the weights: 1 GiB of two H200 (7873), 2.01 of eight
 * (11716). */
static uint64_t nccl_bytes(const plim_serve_question *q, int bound)
{
    static const uint64_t of[BOUNDS] = {24, 1024, 2100};
    return q->cards > 1 ? of[bound] * mib : 0;
}

/* With the weights come kernels and the rest of the allocator's blocks: 0.07 GiB of
 * Llama-3.1-8B (13023). */
static plim_status add_weights(const answer *a)
{
    const plim_serve_question *q = a->q;
    const uint64_t positions =
        plim_sat_mul(a->sizes->position, PLIM_MAX((uint64_t)q->g->sizes.seq_max, q->context));
    const uint64_t *w = a->sizes->weights;
    plim_status st = add_row(a, "weights", plim_sat_add(w[LOW], positions),
                             plim_sat_add(w[USUAL], positions),
                             plim_sat_add(w[HIGH], positions), "and tables of positions");
    if (!st && q->g->packed_weights) /* what else kernels make of them was not looked at */
        a->out->rows[a->out->n_rows - 1].certainty = PLIM_ESTIMATED;
    if (!st)
        st = add_row(a, "outside PyTorch", 0, 72 * mib, 205 * mib, "kernels, loaded first");
    if (!st && q->cards > 1)
        st = add_row(a, "NCCL", nccl_bytes(q, LOW), nccl_bytes(q, USUAL), nccl_bytes(q, HIGH),
                     "between the cards");
    return st;
}

/* What the pool gets: the static fraction of what is free without the context and NCCL, less
 * what came with the weights.  src: model_runner_kv_cache_mixin.py profile_max_num_token */
static double find_room(const answer *a, int bound)
{
    const int others = HIGH - bound; /* the pool is largest where they are smallest */
    const plim_gpu_context c = plim_fit_engine_context(a->q->job);
    const plim_serve_row sum = plim_answer_total(a->out, PLIM_ON_CARD);
    const uint64_t contexts[BOUNDS] = {c.low, c.usual, c.high},
                   held[BOUNDS] = {sum.low, sum.usual, sum.high},
                   nccl = nccl_bytes(a->q, others);
    const double free =
        (double)a->q->job->gpu->memory_bytes - (double)contexts[others] - (double)nccl;
    return free * find_fraction(a->q, a->o, bound) - (double)(held[others] - nccl);
}

static void fill_tokens(answer *a)
{
    const plim_serve_question *q = a->q;
    for (int b = LOW; b < BOUNDS; b++)
        a->tokens[b] = q->job->gpu
                           ? count_tokens(find_room(a, b), &a->kept, a->o)
                           : plim_sat_mul(fill_pages(q->context, a->o), q->concurrency);
}

/* src: model_runner_kv_cache_mixin.py _resolve_max_num_reqs */
static void fill_running(answer *a)
{
    for (int b = LOW; b < BOUNDS; b++) {
        double most = floor((double)a->tokens[b] / (double)a->q->context * 512);
        most = PLIM_MAX(PLIM_MIN(most, 4096), 2048);
        most = a->o->requests > 0 ? PLIM_MIN(a->o->requests, most)
                                  : PLIM_MIN(most, floor((double)a->tokens[b] / 2));
        a->running[b] = (uint64_t)most;
    }
}

static plim_status add_pool(const answer *a)
{
    const uint64_t *n = a->tokens;
    plim_serve_row r = {.part = "KV cache",
                        .low = pool_bytes(n[LOW], &a->kept, a->o),
                        .usual = pool_bytes(n[USUAL], &a->kept, a->o),
                        .high = pool_bytes(n[HIGH], &a->kept, a->o),
                        .doc = a->q->job->gpu ? "the rest of its fraction"
                                              : "tokens of the requests"};
    r.certainty = r.low == r.high ? PLIM_EXACT : PLIM_ESTIMATED;
    /* it is largest where the others are smallest, unless the fraction is uncertain, too */
    r.rest = r.low != r.high && a->o->fraction > 0;
    return plim_answer_add(a->out, r, a->err);
}

/* The table has an int32 for each token that a request may have.  src:
 * mem_cache/memory_pool.py */
static uint64_t table_bytes(const answer *a, int bound)
{
    return plim_sat_mul(plim_sat_mul(a->running[bound], a->q->context + 4), 4);
}

/* A graph of a batch takes 28 MiB (1.00 GiB for 36 of them, 12978; 1.44 for 52, 11830; 0.6 for
 * 23, 7873) or up to 122 (Llama 4, 8538); one of pieces 8, by its own reckoning. */
static plim_status add_graphs(const answer *a)
{
    const double graphs = count_graphs(a->o), pieces = count_pieces(a->q, a->o);
    if (a->o->graphs <= 0)
        return PLIM_OK;
    return add_row(a, "CUDA graphs", mib * (uint64_t)(8 * graphs),
                   mib * (uint64_t)(28 * graphs + 8 * pieces),
                   mib * (uint64_t)(122 * graphs + 24 * pieces), "one per batch size");
}

/* Buffers of FlashInfer and of Blackwell's kernels; those of Hopper and Triton need none.
 * src: environ.py SGLANG_FLASHINFER_WORKSPACE_SIZE, layers/attention/flashinfer_backend.py
 * (512 MiB for Qwen2 and Qwen3), trtllm_mha_backend.py */
static plim_status add_buffers(const answer *a)
{
    const plim_gpu *gpu = a->q->job->gpu;
    const bool none = gpu && (gpu->cc / 10 == 9 || (is_latent(a->q->g) && !is_blackwell(gpu)));
    return add_row(a, "attention", 0, none ? 0 : 384 * mib, 512 * mib,
                   "buffers of its kernels");
}

/* A chunk of prompts, or the logits of running requests: in the model's type and in fp32,
 * softmax of them, and a sort if requests limit what is drawn.  src:
 * layers/logits_processor.py, sampler.py */
static plim_status add_temporaries(const answer *a)
{
    enum { LOGITS = 6, SOFTMAX = 10, SORTED = 30 };
    const plim_serve_question *q = a->q;
    const plim_meta *logits = &q->g->values[q->g->outputs[0]].meta;
    const uint64_t asked = plim_sat_mul(q->context, q->concurrency),
                   chunk = (uint64_t)a->o->chunk,
                   words =
                       plim_sat_mul(logits->rank ? (uint64_t)logits->dim[logits->rank - 1] : 0,
                                    PLIM_MIN(q->concurrency, PLIM_MAX(a->running[HIGH], 1))),
                   layers = plim_sat_mul(a->sizes->widest, chunk);
    const uint64_t least = plim_sat_mul(a->sizes->widest, PLIM_MIN(asked, chunk));
    return add_row(a, "temporaries", PLIM_MAX(least, plim_sat_mul(words, LOGITS)),
                   PLIM_MAX(layers, plim_sat_mul(words, SOFTMAX)),
                   PLIM_MAX(plim_sat_add(layers, layers / 2), plim_sat_mul(words, SORTED)),
                   "of a chunk of prompts");
}

static plim_status add_later(const answer *a)
{
    PLIM_TRY(add_row(a, "request table", table_bytes(a, LOW), table_bytes(a, USUAL),
                     table_bytes(a, HIGH), "where tokens of requests lie"));
    PLIM_TRY(add_buffers(a));
    PLIM_TRY(add_graphs(a));
    return add_temporaries(a);
}

/* ---- the answer ------------------------------------------------------------------------- */

/* Tokens of windows that a request has: with a chunk of its prompt, until the next one. */
static double count_requests(const answer *a, int bound)
{
    const options *o = a->o;
    const uint64_t context = a->q->context,
                   window =
                       plim_sat_add(a->kept.window, bound == LOW ? (uint64_t)o->chunk : 0);
    double n = (double)a->tokens[bound] / (double)fill_pages(context, o);
    if (a->kept.windowed)
        n = PLIM_MIN(n, (double)windowed_tokens(a->tokens[bound], &a->kept, o) /
                            (double)fill_pages(PLIM_MIN(context, window), o));
    return PLIM_MIN(n, (double)a->running[bound]);
}

static plim_status say_pool(const answer *a)
{
    const bool one = a->tokens[LOW] == a->tokens[HIGH],
               same = a->running[LOW] == a->running[HIGH];
    if (!a->tokens[HIGH])
        return plim_answer_say(
            a->out, a->err,
            "Not enough memory. Please try to increase --mem-fraction-static.");
    return plim_answer_say(a->out, a->err,
                           "max_total_num_tokens=%" PRIu64 "%s%s, chunked_prefill_size=%.0f, "
                           "max_running_requests=%" PRIu64 "%s%s, context_len=%" PRIu64,
                           a->tokens[LOW], one ? "" : " to ",
                           one ? "" : plim_fmt_digits((double)a->tokens[HIGH]).s, a->o->chunk,
                           a->running[LOW], same ? "" : " to ",
                           same ? "" : plim_fmt_digits((double)a->running[HIGH]).s,
                           a->q->context);
}

static plim_status fill_answer(answer *a)
{
    plim_serve_answer *out = a->out;
    out->token_bytes = a->kept.all;
    out->request_bytes =
        plim_sat_add(plim_sat_mul(fill_pages(a->q->context, a->o), a->kept.all),
                     plim_sat_mul(fill_pages(PLIM_MIN(a->q->context, a->kept.window), a->o),
                                  a->kept.windowed));
    if (!a->q->job->gpu)
        return PLIM_OK;
    out->pool = true;
    out->requests_low = count_requests(a, LOW);
    out->requests = count_requests(a, USUAL);
    out->requests_high = count_requests(a, HIGH);
    return say_pool(a);
}

static plim_status answer_sglang(const plim_serve_question *q, plim_serve_answer *out,
                                 plim_err *err)
{
    options o;
    answer a = {.q = q, .o = &o, .sizes = q->measured, .out = out, .err = err};
    PLIM_TRY(read_options(q, &o, err));
    PLIM_TRY(read_kept(q, &a.kept, err));
    PLIM_TRY(add_weights(&a));
    fill_tokens(&a);
    fill_running(&a);
    PLIM_TRY(add_pool(&a));
    PLIM_TRY(add_later(&a));
    return fill_answer(&a);
}

const plim_engine_code plim_engine_sglang = {.prepare = prepare_sglang,
                                             .answer = answer_sglang};
