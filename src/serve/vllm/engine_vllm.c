/* engine_vllm.c -- vLLM: see engines.def.
 *
 * vLLM takes a share of the card, loads the weights, runs a batch of dummies to see what else it
 * needs, and makes of the rest a pool of blocks for keys and values.  Weights, pages and blocks
 * follow from its code; what the dummies need is estimated from what the layers produce and
 * from logs that users published. */
#include "base/fmt.h"
#include "serve/vllm/vllm_weights.h"

/* ---- options ------------------------------------------------------------------------------ */

typedef struct options {
    double utilization, tokens, sequences, block, eager, blocks, pool;
} options;

/* What vLLM's server takes for `auto`: more on a card of 70 GiB and more that is no A100.
 * src: engine/arg_utils.py get_batch_defaults */
static bool is_large(const plim_gpu *gpu)
{
    return gpu && gpu->memory_bytes >= UINT64_C(70) << 30 && !strstr(gpu->name, "A100");
}

static plim_status read_auto(const plim_serve_question *q, const char *name, double small,
                             double large, double *out, plim_err *err)
{
    if (!plim_str_is(plim_question_option(q, name), "auto"))
        return plim_question_number(q, name, 1, 1 << 24, out, err);
    *out = is_large(q->job->gpu) ? large : small;
    return PLIM_OK;
}

static plim_status read_options(const plim_serve_question *q, options *o, plim_err *err)
{
    plim_status st =
        plim_question_number(q, "gpu_memory_utilization", 0.01, 1, &o->utilization, err);
    if (!st)
        st = read_auto(q, "max_num_batched_tokens", 2048, 8192, &o->tokens, err);
    if (!st)
        st = read_auto(q, "max_num_seqs", 256, 1024, &o->sequences, err);
    if (!st)
        st = plim_question_number(q, "block_size", 1, 1 << 16, &o->block, err);
    if (!st)
        st = plim_question_number(q, "enforce_eager", 0, 1, &o->eager, err);
    if (!st)
        st = plim_question_number(q, "num_gpu_blocks_override", 0, 1e12, &o->blocks, err);
    return st ? st : plim_question_number(q, "kv_cache_memory_bytes", 0, 1e15, &o->pool, err);
}

static const plim_vllm_sizes *sizes_of(const plim_serve_question *q) { return q->measured; }

/* ---- the run of dummies ------------------------------------------------------------------------- */

/* Logits of each sequence in fp32 and what sampling makes of them, in bytes for each sequence and
 * word of the vocabulary: measured 41 and 39 (Llama-3-8B and Qwen2.5-7B, 2024 and early 2025), 16
 * (Qwen2.5-0.5B, 2026).
 * src: vllm pull request 10511 and issue 13882, kvcached pull request 448 */
enum { SAMPLER_LOW = 12, SAMPLER_USUAL = 16, SAMPLER_HIGH = 41 };

static bool has_sampler(const plim_serve_question *q) { return q->stage + 1 >= q->n_stages; }

static plim_status add_profile_run(const plim_serve_question *q, const options *o,
                                   plim_serve_answer *out, plim_err *err)
{
    const plim_meta *logits = &q->g->values[q->g->outputs[0]].meta;
    uint64_t words = logits->rank ? (uint64_t)logits->dim[logits->rank - 1] : 0;
    uint64_t rows = (uint64_t)PLIM_MIN(o->sequences, o->tokens);
    const uint64_t layers = plim_sat_mul(sizes_of(q)->widest, (uint64_t)o->tokens);
    words = has_sampler(q) ? plim_sat_mul(words, rows) : 0;
    const plim_serve_row row = {
        .part = "profile run",
        .low = PLIM_MAX(layers, plim_sat_mul(words, SAMPLER_LOW)),
        .usual = PLIM_MAX(layers, plim_sat_mul(words, SAMPLER_USUAL)),
        .high = PLIM_MAX(plim_sat_add(layers, layers / 2), plim_sat_mul(words, SAMPLER_HIGH)),
        .certainty = PLIM_ESTIMATED,
        .doc = "temporaries of a full batch"};
    return plim_answer_add(out, row, err);
}

/* ---- the pool ---------------------------------------------------------------------------------------- */

/* Layers are split into groups of as many each, which share the pool: each has a table of its own
 * of the blocks that it uses. */
typedef struct pool {
    uint64_t page;   /* bytes of a block in one layer */
    uint64_t layers; /* of a group */
    uint64_t groups;
    uint64_t blocks; /* of a request, in all groups */
    uint64_t block;  /* bytes of a block in all layers of a group, and in those of a draft */
} pool;

/* src: model_executor/layers/mamba/mamba_utils.py */
static uint64_t page_bytes(const plim_serve_question *q, const plim_kv_layers *kv,
                           uint64_t block)
{
    const plim_cache_rules r = plim_question_rules(q);
    return kv->heads ? plim_sat_mul(plim_cache_row(kv, &r), block) : plim_cache_state(kv, &r);
}

/* Blocks that a request of `context` tokens takes in a group.  A window may begin inside a
 * block.  src: v1/kv_cache_interface.py max_memory_usage_bytes */
static uint64_t count_blocks(const plim_serve_question *q, const options *o,
                             const plim_kv_layers *kv)
{
    const uint64_t block = (uint64_t)o->block;
    plim_cache_rules r = plim_question_rules(q);
    r.step = block;
    r.ahead = (uint64_t)o->tokens - !kv->chunked;
    if (!kv->heads)
        return 1;
    return plim_cache_tokens(kv, &r, q->context) / block + (kv->window && !kv->chunked);
}

/* src: v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size */
static plim_status plan_pool(const plim_serve_question *q, const options *o, pool *p,
                             plim_err *err)
{
    const plim_graph *g = q->g;
    uint64_t least = UINT64_MAX, most = 0;
    *p = (pool){0};
    for (uint32_t i = 0; i < g->kv.n_kinds; i++) {
        uint64_t page = page_bytes(q, &g->kv.kinds[i], (uint64_t)o->block);
        if (!page || !g->kv.kinds[i].layers)
            return plim_fail(err, PLIM_ERANGE, 0, "layers of '" PLIM_STR_FMT "' keep nothing",
                             PLIM_STR_CUT(g->about.name));
        if (i && page != p->page)
            return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "layers of '" PLIM_STR_FMT "' keep %" PRIu64 " and %" PRIu64
                             " bytes per block: how vLLM groups such layers is not known",
                             PLIM_STR_CUT(g->about.name), p->page, page);
        p->page = page;
        least = PLIM_MIN(least, (uint64_t)g->kv.kinds[i].layers);
        most = PLIM_MAX(most, (uint64_t)g->kv.kinds[i].layers);
    }
    p->layers = 2 * most < 3 * least ? most : least;
    for (uint32_t i = 0; i < g->kv.n_kinds; i++) {
        uint64_t groups = plim_ceil_div((uint64_t)g->kv.kinds[i].layers, p->layers);
        p->groups += groups;
        p->blocks =
            plim_sat_add(p->blocks, plim_sat_mul(groups, count_blocks(q, o, &g->kv.kinds[i])));
    }
    p->block = plim_sat_mul(p->page, p->layers);
    return PLIM_OK;
}

/* A draft's layers are of the same group, whatever a block takes in them, if all attend to all tokens.
 * src: v1/kv_cache_interface.py UniformTypeKVCacheSpecs */
static plim_status add_draft(const plim_serve_question *q, const options *o, pool *p,
                             plim_err *err)
{
    pool its;
    if (!q->draft)
        return PLIM_OK;
    const plim_serve_question draft = plim_question_draft(q);
    plim_status st = plan_pool(&draft, o, &its, err);
    if (!st && (p->groups > 1 || its.groups > 1 || its.blocks != p->blocks))
        return plim_fail(
            err, PLIM_EUNSUPPORTED, 0,
            "a draft is simulated only if all layers of both models attend to all "
            "tokens: how vLLM groups others is not known");
    p->block = plim_sat_add(p->block, its.block);
    return st;
}

static uint64_t weights_of(const plim_serve_question *q, plim_vllm_kernel in)
{
    uint64_t positions = PLIM_MAX((uint64_t)q->g->sizes.seq_max, q->context);
    const plim_vllm_sizes *sizes = sizes_of(q);
    return plim_sat_add(sizes->weights[in], plim_sat_mul(sizes->position, positions));
}

/* The kernel for experts in MXFP4 that the card usually gets, which may be another with other packages
 * or another release.  src: model_executor/layers/quantization/mxfp4.py get_mxfp4_backend */
static plim_vllm_kernel usual_kernel(const plim_serve_question *q)
{
    const int cc = q->job->gpu ? q->job->gpu->cc : 0;
    if (q->job->gpu && (!cc || (cc >= 100 && cc < 120)))
        return PLIM_IN_FLASHINFER; /* AMD's kernels fill up as much */
    return cc == 90 ? PLIM_IN_TRITON : PLIM_IN_MARLIN;
}

/* The one that takes the least: a card that has no others gets its usual one. */
static plim_vllm_kernel least_kernel(const plim_serve_question *q)
{
    plim_vllm_kernel usual = usual_kernel(q);
    return !q->job->gpu || usual == PLIM_IN_FLASHINFER ? PLIM_IN_FILE : usual;
}

static plim_status add_weights(const plim_serve_question *q, const char *part, const char *doc,
                               plim_serve_answer *out, plim_err *err)
{
    plim_serve_row row = {.part = part,
                          .low = weights_of(q, least_kernel(q)),
                          .usual = weights_of(q, usual_kernel(q)),
                          .high = weights_of(q, PLIM_IN_FLASHINFER),
                          .doc = doc};
    row.certainty = row.low == row.high ? PLIM_EXACT : PLIM_ESTIMATED;
    return plim_answer_add(out, row, err);
}

/* ---- the answer ------------------------------------------------------------------------------------------- */

enum { MIB = 1 << 20 };

/* What the process takes outside PyTorch from its start on, and the graphs of each size of batch.
 * src: 0.03 to 0.20 GiB in vllm issue 13882 and pull requests 12126, 14447, 0.11 in kvcached 448;
 * graphs 0.36 in gpustack/runner pull request 251, 0.69 and 1.62 in vllm pull request 39559; between
 * two cards 0.14 of RTX 4090 (issue 13061), 1.79 of H100 (pull request 10511), else as in share.c */
static plim_status add_others(const plim_serve_question *q, const options *o,
                              plim_serve_answer *out, plim_err *err)
{
    const uint64_t mib = MIB;
    plim_status st = add_profile_run(q, o, out, err);
    if (!st)
        st = plim_answer_add(out,
                             (plim_serve_row){.part = "outside PyTorch",
                                              .low = 30 * mib,
                                              .usual = 112 * mib,
                                              .high = 205 * mib,
                                              .certainty = PLIM_ESTIMATED,
                                              .doc = "kernels, loaded later"},
                             err);
    if (!st && (q->cards > 1 || q->n_stages > 1))
        st = plim_answer_add(out,
                             (plim_serve_row){.part = "NCCL",
                                              .low = 24 * mib,
                                              .usual = 288 * mib,
                                              .high = 1900 * mib,
                                              .certainty = PLIM_ESTIMATED,
                                              .doc = "between the cards"},
                             err);
    if (st || o->eager > 0)
        return st;
    return plim_answer_add(out,
                           (plim_serve_row){.part = "CUDA graphs",
                                            .low = 300 * mib,
                                            .usual = 700 * mib,
                                            .high = 1700 * mib,
                                            .certainty = PLIM_ESTIMATED,
                                            .doc = "one per batch size"},
                           err);
}

/* Without a card: the blocks of the requests. */
static plim_serve_row needed_blocks(const plim_serve_question *q, const pool *p)
{
    uint64_t bytes = plim_sat_mul(p->block, p->blocks);
    bytes = plim_sat_mul(bytes, q->concurrency);
    return (plim_serve_row){.part = "KV cache",
                            .low = bytes,
                            .usual = bytes,
                            .high = bytes,
                            .doc = "blocks of the requests"};
}

/* The rest of the card's share. */
static plim_serve_row remaining_blocks(const plim_serve_question *q, const options *o,
                                       const pool *p, const plim_serve_answer *out)
{
    const plim_serve_row sum = plim_answer_total(out, PLIM_ON_CARD);
    double share = o->utilization * (double)q->job->gpu->memory_bytes;
    uint64_t budget = (uint64_t)share + (share > (double)(uint64_t)share);
    plim_serve_row r = {.part = "KV cache",
                        .low = budget - PLIM_MIN(budget, sum.high),
                        .usual = budget - PLIM_MIN(budget, sum.usual),
                        .high = budget - PLIM_MIN(budget, sum.low),
                        .certainty = PLIM_ESTIMATED,
                        .rest = true,
                        .doc = "the rest of its share"};
    double told = o->blocks > 0 ? o->blocks * (double)p->block : o->pool;
    if (told > 0) {
        r.low = r.usual = r.high = (uint64_t)told;
        r.certainty = PLIM_EXACT;
        r.rest = false;
        r.doc = "as told";
    }
    return r;
}

/* What vLLM refuses to start with; nothing: it starts, or may. */
static plim_status say_refusal(const plim_serve_question *q, const plim_serve_row *row,
                               plim_serve_answer *out, plim_err *err)
{
    const double gib = 1 << 30;
    if (!row->high)
        return plim_answer_say(out, err,
                               "No available memory for the cache blocks. Try increasing "
                               "`gpu_memory_utilization` when initializing the engine.");
    return plim_answer_say(out, err,
                           "To serve at least one request with the models's max seq len "
                           "(%" PRIu64 "), (%.2f GiB KV cache is needed, which is larger than "
                           "the available KV cache memory (%.2f GiB).",
                           q->context, (double)out->request_bytes / gib,
                           (double)row->usual / gib);
}

static plim_status say_pool(const plim_serve_question *q, const options *o, const pool *p,
                            const uint64_t blocks[3], plim_serve_answer *out, plim_err *err)
{
    bool one = blocks[0] == blocks[2];
    const uint64_t size = (uint64_t)o->block, groups = PLIM_MAX(p->groups, 1);
    plim_status st =
        plim_answer_say(out, err, "GPU KV cache size: %s%s%s tokens",
                        plim_fmt_count(blocks[0] / groups * size).s, one ? "" : " to ",
                        one ? "" : plim_fmt_count(blocks[2] / groups * size).s);
    if (st)
        return st;
    return one ? plim_answer_say(out, err,
                                 "Maximum concurrency for %s tokens per request: %.2fx",
                                 plim_fmt_count(q->context).s, out->requests)
               : plim_answer_say(
                     out, err, "Maximum concurrency for %s tokens per request: %.2fx to %.2fx",
                     plim_fmt_count(q->context).s, out->requests_low, out->requests_high);
}

/* How many requests the pool holds, and what vLLM says of it. */
static plim_status fill_pool(const plim_serve_question *q, const options *o, const pool *p,
                             const plim_serve_row *row, plim_serve_answer *out, plim_err *err)
{
    const uint64_t block = PLIM_MAX(p->block, 1);
    const uint64_t blocks[3] = {row->low / block, row->usual / block, row->high / block};
    out->pool = true;
    out->requests_low = (double)blocks[0] / (double)p->blocks;
    out->requests = (double)blocks[1] / (double)p->blocks;
    out->requests_high = (double)blocks[2] / (double)p->blocks;
    return row->high < out->request_bytes ? say_refusal(q, row, out, err)
                                          : say_pool(q, o, p, blocks, out, err);
}

static plim_status answer_vllm(const plim_serve_question *q, plim_serve_answer *out,
                               plim_err *err)
{
    options o;
    pool p;
    PLIM_TRY(read_options(q, &o, err));
    PLIM_TRY(plan_pool(q, &o, &p, err));
    PLIM_TRY(add_draft(q, &o, &p, err));
    plim_str doc = PLIM_STR("and tables of positions");
    if (q->n_stages > 1)
        doc = plim_arena_printf(out->arena, "of stage %" PRIu64 " of %" PRIu64 ", the fullest",
                                q->stage + 1, q->n_stages);
    if (!doc.p)
        return plim_oom(err);
    out->request_bytes = plim_sat_mul(p.block, p.blocks);
    plim_status st = add_weights(q, "weights", doc.p, out, err);
    if (!st && q->draft) {
        const plim_serve_question draft = plim_question_draft(q);
        out->token_bytes = plim_sat_add(out->token_bytes, plim_question_token(&draft));
        st = add_weights(&draft, "draft's weights", "of the model that guesses", out, err);
    }
    if (!st)
        st = add_others(q, &o, out, err);
    const plim_serve_row row =
        q->job->gpu ? remaining_blocks(q, &o, &p, out) : needed_blocks(q, &p);
    if (!st)
        st = plim_answer_add(out, row, err);
    if (!st && q->job->gpu)
        st = fill_pool(q, &o, &p, &row, out, err);
    return st;
}

static plim_status prepare_vllm(plim_serve_question *q, plim_graph *g, plim_err *err)
{
    double by_expert;
    PLIM_TRY(plim_question_number(q, "enable_expert_parallel", 0, 1, &by_expert, err));
    return plim_question_divide(q, g, by_expert > 0, plim_vllm_measure, err);
}

const plim_engine_code plim_engine_vllm = {.prepare = prepare_vllm, .answer = answer_vllm};
