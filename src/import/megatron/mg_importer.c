/* mg_importer.c -- what the arguments mean for one rank, and the importer: see mg.h. */
#include "base/fmt.h"
#include "import/megatron/mg.h"

/* ---- arguments ---------------------------------------------------------------------------- */

/* Megatron-LM's defaults that depend on other arguments.  src: arguments.py validate_args */
static plim_status complete_args(plim_mg_args *c, plim_err *err)
{
    if (c->encoder_layers)
        c->layers = c->encoder_layers;
    if (c->encoder_seq)
        c->seq = c->encoder_seq;
    const struct {
        int64_t value;
        const char *name;
    } required[] = {{c->layers, "num-layers"},
                    {c->hidden, "hidden-size"},
                    {c->heads, "num-attention-heads"},
                    {c->seq, "seq-length"}};
    for (size_t i = 0; i < PLIM_COUNT(required); i++)
        if (required[i].value < 1)
            return plim_fail(err, PLIM_EFORMAT, 0, "--%s is missing", required[i].name);
    if (c->layers > PLIM_MG_MOST_LAYERS)
        return plim_fail(err, PLIM_ERANGE, 0, "--num-layers is %" PRId64 ", the limit is %d",
                         c->layers, PLIM_MG_MOST_LAYERS);
    if (!c->channels)
        c->channels = c->hidden / c->heads;
    if (!c->channels)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "--hidden-size %" PRId64
                         " is less than the number of heads, %" PRId64,
                         c->hidden, c->heads);
    if (!c->ffn) /* two thirds for a gated one, in multiples of 64 */
        c->ffn = c->swiglu ? 4 * c->hidden * 2 / 3 / 64 * 64 : 4 * c->hidden;
    if (!c->ffn)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "--hidden-size %" PRId64 " leaves --ffn-hidden-size at 0", c->hidden);
    if (!c->grouped || !c->groups)
        c->groups = c->heads;
    if (!c->positions)
        c->positions = c->seq;
    if (c->rotary)
        c->position = PLIM_STR("rope");
    c->softmax_fp32 |= c->layer_scaling;
    if (c->experts == 1) /* an MLP like any other */
        c->experts = 0;
    if (!c->moe_ffn)
        c->moe_ffn = c->ffn;
    if (!c->tokenizer.n)
        c->tokenizer = plim_str_of(c->model->tokenizer);
    return c->model->complete(c, err);
}

/* src: transformer_config.py MLATransformerConfig */
static plim_status check_latent(const plim_mg_args *c, plim_err *err)
{
    enum { MOST = 1 << 16 };
    const struct {
        int64_t value, least;
        const char *name;
    } sizes[] = {{c->q_rank, 0, "q-lora-rank"},
                 {c->kv_rank, 1, "kv-lora-rank"},
                 {c->qk_size, 1, "qk-head-dim"},
                 {c->rope_size, 2, "qk-pos-emb-head-dim"},
                 {c->v_size, 1, "v-head-dim"}};
    for (size_t i = 0; c->latent && i < PLIM_COUNT(sizes); i++)
        if (sizes[i].value < sizes[i].least || sizes[i].value > MOST)
            return plim_fail(err, PLIM_ERANGE, 0,
                             "--%s is %" PRId64 ", the limits are %" PRId64 " and %d",
                             sizes[i].name, sizes[i].value, sizes[i].least, (int)MOST);
    if (c->latent && c->rope_size % 2)
        return plim_fail(err, PLIM_EFORMAT, 0, "--qk-pos-emb-head-dim %" PRId64 " is odd",
                         c->rope_size);
    if (c->latent && c->groups != c->heads)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "--multi-latent-attention has no groups of heads");
    return c->latent && plim_str_is(c->rope_type, "rope") &&
                   plim_str_is(c->position, "rope") && !c->no_rope_fusion
               ? plim_fail(err, PLIM_EFORMAT, 0,
                           "--rope-type rope needs --no-rope-fusion: the fused kernel is "
                           "for yarn")
               : PLIM_OK;
}

static plim_status check_experts(const plim_mg_args *c, plim_err *err)
{
    if (!c->experts)
        return PLIM_OK;
    if (c->experts > PLIM_MG_MOST_EXPERTS)
        return plim_fail(err, PLIM_ERANGE, 0, "--num-experts is %" PRId64 ", the limit is %d",
                         c->experts, (int)PLIM_MG_MOST_EXPERTS);
    if (!c->top_k || c->top_k > c->experts)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "--moe-router-topk is %" PRId64 " of %" PRId64 " experts", c->top_k,
                         c->experts);
    if (c->router_group_top &&
        (!c->router_groups || c->experts % c->router_groups ||
         c->router_group_top > c->router_groups || c->top_k % c->router_group_top ||
         c->top_k / c->router_group_top > c->experts / c->router_groups))
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "%" PRId64 " of %" PRId64 " groups of experts do not give %" PRId64
                         " of %" PRId64 " experts",
                         c->router_group_top, c->router_groups, c->top_k, c->experts);
    if (c->expert_bias && !plim_str_is(c->score, "sigmoid"))
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "--moe-router-enable-expert-bias needs "
                         "--moe-router-score-function sigmoid");
    if (!c->no_bias)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "experts with biases are not simulated: --disable-bias-linear");
    return c->grouped_gemm && plim_str_is(c->impl, "local")
               ? plim_fail(err, PLIM_EUNSUPPORTED, 0,
                           "--moe-grouped-gemm is simulated with Transformer Engine")
               : PLIM_OK;
}

static plim_status check_words(const plim_mg_args *c, plim_err *err)
{
    const struct {
        const char *name;
        plim_str word;
        const char *known[4];
    } words[] = {
        {"position-embedding-type", c->position, {"learned_absolute", "rope", "none"}},
        {"normalization", c->norm, {"LayerNorm", "RMSNorm"}},
        {"transformer-impl", c->impl, {"transformer_engine", "local"}},
        {"rope-type", c->rope_type, {"yarn", "rope"}},
        {"optimizer", c->optimizer, {"adam", "sgd", "muon", "dist_muon"}},
        {"moe-token-dispatcher-type", c->dispatcher, {"allgather", "alltoall"}},
        {"moe-router-load-balancing-type", c->balancing, {"sinkhorn", "aux_loss", "none"}},
        {"moe-router-score-function", c->score, {"softmax", "sigmoid"}},
        {"moe-router-dtype", c->router_type, {"fp32", "none"}},
    };
    for (size_t i = 0; i < PLIM_COUNT(words); i++) {
        size_t k = 0;
        while (k < PLIM_COUNT(words[i].known) && words[i].known[k] &&
               !plim_str_is(words[i].word, words[i].known[k]))
            k++;
        if (k == PLIM_COUNT(words[i].known) || !words[i].known[k])
            return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "--%s " PLIM_STR_FMT " is not simulated", words[i].name,
                             PLIM_STR_CUT(words[i].word));
    }
    return c->bf16 && c->fp16
               ? plim_fail(err, PLIM_EFORMAT, 0, "--bf16 and --fp16 exclude each other")
               : PLIM_OK;
}

/* ---- layers of stages ------------------------------------------------------------------------ */

/* src: transformer_block.py get_num_layers_to_build */
static int64_t layers_of_rank(const plim_mg_args *c, int64_t stages, int64_t stage)
{
    int64_t rest = c->layers, others = stages;
    if (c->first_layers && !stage)
        return c->first_layers;
    if (c->last_layers && stage + 1 == stages)
        return c->last_layers;
    if (c->first_layers || c->last_layers) {
        rest -= c->first_layers + c->last_layers;
        others -= (c->first_layers > 0) + (c->last_layers > 0);
    }
    return others > 0 ? (rest + c->embedding_counts + c->loss_counts) / others : 0;
}

static int64_t layers_of_chunk(const plim_mg_rank *r, int64_t chunk)
{
    const plim_rank_part *p = &r->part;
    int64_t n = layers_of_rank(&r->c, p->stages, p->stage) / p->chunks;
    n -= r->c.embedding_counts && !p->stage && !chunk;
    return n - (r->c.loss_counts && p->stage + 1 == p->stages && chunk + 1 == p->chunks);
}

/* Every layer is on some stage, and every stage has one, unless the embedding or the head counts as one. */
static plim_status check_layers(const plim_mg_rank *r, plim_err *err)
{
    plim_mg_rank any = *r;
    int64_t sum = 0, least = INT64_MAX;
    for (any.part.stage = 0; any.part.stage < r->part.stages; any.part.stage++)
        for (int64_t k = 0; k < r->part.chunks; k++) {
            int64_t n = layers_of_chunk(&any, k);
            sum += n;
            least = PLIM_MIN(least, n);
        }
    return sum == r->c.layers && least >= !(r->c.embedding_counts || r->c.loss_counts)
               ? PLIM_OK
               : plim_fail(err, PLIM_EUSAGE, 0,
                           "pp: the %" PRId64 " layers cannot be divided among %" PRId64
                           " ranks with %" PRId64 " %s each",
                           r->c.layers, r->part.stages, r->part.chunks,
                           r->part.chunks > 1 ? "stages" : "stage");
}

/* ---- sizes ------------------------------------------------------------------------------------- */

/* This rank's share of a number; all ranks have the same. */
static plim_status divide_number(const plim_mg_rank *r, int64_t n, const char *what,
                                 int64_t *out, plim_err *err)
{
    *out = n / r->part.weights;
    return n % r->part.weights == 0
               ? PLIM_OK
               : plim_fail(err, PLIM_EUSAGE, 0,
                           "tp: %" PRId64 " cards do not divide the %" PRId64 " %s",
                           r->part.weights, n, what);
}

/* Of the experts, and of the features of each. */
static plim_status divide_experts(plim_mg_rank *r, plim_err *err)
{
    const plim_mg_args *c = &r->c;
    r->expert_cards = PLIM_MAX(r->part.experts, 1);
    r->expert_parts = c->etp ? c->etp : r->part.weights;
    r->expert_ffn = c->moe_ffn / r->expert_parts;
    if (c->experts % r->expert_cards)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "ep: %" PRId64 " cards do not divide the %" PRId64 " experts",
                         r->expert_cards, c->experts);
    return c->moe_ffn % r->expert_parts
               ? plim_fail(err, PLIM_EUSAGE, 0,
                           "%" PRId64 " cards do not divide the %" PRId64
                           " features of an expert",
                           r->expert_parts, c->moe_ffn)
               : PLIM_OK;
}

/* What --vocab-file usually has for a tokenizer. */
static const struct vocabulary {
    const char *tokenizer, *of;
    int64_t tokens;
} vocabularies[] = {
    {"BertWordPieceLowerCase", "bert-large-uncased", 30522},
    {"BertWordPieceCase", "bert-large-cased", 28996},
    {NULL, "GPT-2", 50257},
};

static const struct vocabulary *usual_vocabulary(const plim_mg_args *c)
{
    const struct vocabulary *v = vocabularies;
    while (v->tokenizer && !plim_str_is(c->tokenizer, v->tokenizer))
        v++;
    return v;
}

/* A vocabulary is padded to a multiple for each card.  src: vocab_utils.py */
static plim_status divide_sizes(plim_mg_rank *r, plim_err *err)
{
    const plim_mg_args *c = &r->c;
    int64_t multiple = c->vocab_multiple * r->part.weights,
            vocab = c->vocab ? c->vocab : usual_vocabulary(c)->tokens + c->extra_ids,
            padded = c->padded_vocab, tokens;
    if (!padded)
        padded = (vocab + multiple - 1) / multiple * multiple;
    plim_status st = divide_number(r, c->heads, "heads", &r->heads, err);
    if (!st)
        st = divide_number(r, c->groups, "groups of heads", &r->groups, err);
    if (!st)
        st = divide_number(r, c->ffn, "features of the MLP", &r->ffn, err);
    if (!st)
        st = divide_number(r, padded, "tokens of the vocabulary", &r->vocab, err);
    if (!st && r->part.sequence)
        st = divide_number(r, r->seq, "tokens of a sequence", &tokens, err);
    if (!st && r->part.sequence)
        st = divide_number(r, c->decoder_seq, "tokens of a decoded sequence", &tokens, err);
    if (!st && c->experts && c->shared_ffn)
        st = divide_number(r, c->shared_ffn, "features of the shared experts", &r->shared_ffn,
                           err);
    if (!st && c->experts)
        st = divide_experts(r, err);
    if (!st && c->experts)
        st = plim_mg_pattern(c->layer_freq, c->layers, r->has_experts, err);
    if (!st && r->heads % r->groups)
        st = plim_fail(err, PLIM_EFORMAT, 0,
                       "%" PRId64 " heads are not a multiple of %" PRId64 " groups", c->heads,
                       c->groups);
    return st;
}

/* Scores of all pairs of tokens are the largest tensor whose size the builder computes. */
static plim_status check_scores(const plim_mg_rank *r, plim_err *err)
{
    enum { MOST_BITS = 60 };
    uint64_t seq = (uint64_t)PLIM_MAX(r->seq, r->c.decoder_seq),
             pairs = plim_sat_mul(seq, seq),
             all = plim_sat_mul((uint64_t)r->batch, (uint64_t)r->c.heads),
             width = plim_sat_mul((uint64_t)r->batch, seq);
    all = PLIM_MAX(plim_sat_mul(pairs, all), plim_sat_mul(width, (uint64_t)r->c.hidden));
    return all >> MOST_BITS ? plim_fail(err, PLIM_ERANGE, 0,
                                        "a batch of %" PRId64 " sequences of %" PRId64
                                        " tokens is too large",
                                        r->batch, r->seq)
                            : PLIM_OK;
}

static plim_status open_sizes(plim_mg_rank *r, const plim_binding *bind, plim_err *err)
{
    r->batch = bind && bind->batch ? bind->batch : r->c.batch ? r->c.batch : 1;
    r->seq = bind && bind->seq ? bind->seq : r->c.seq;
    for (uint32_t i = 0; bind && i < bind->n_dims; i++) {
        bool batch = plim_str_is(bind->dims[i].name, "batch");
        if (!batch && !plim_str_is(bind->dims[i].name, "seq"))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "the model has no open size '" PLIM_STR_FMT
                             "', only 'batch' and 'seq'",
                             PLIM_STR_CUT(bind->dims[i].name));
        *(batch ? &r->batch : &r->seq) = bind->dims[i].value;
    }
    if (bind && bind->n_inputs)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "set 'batch' and 'seq' instead of shapes of inputs");
    if (plim_str_is(r->c.position, "learned_absolute") && r->seq > r->c.positions)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "sequences of %" PRId64 " tokens are longer than "
                         "--max-position-embeddings, %" PRId64,
                         r->seq, r->c.positions);
    return check_scores(r, err);
}

/* A rank has two of 2 n parts of a sequence. */
static plim_status divide_tokens(plim_mg_rank *r, plim_err *err)
{
    if (r->contexts > 1 && r->seq % (2 * r->contexts))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "cp: %" PRId64 " cards need a sequence of a multiple of %" PRId64
                         " tokens, not of %" PRId64,
                         r->contexts, 2 * r->contexts, r->seq);
    r->seq /= r->contexts;
    return PLIM_OK;
}

/* The sizes of the groups that exchange heads for tokens, and of the rings of such groups. */
static plim_status read_levels(plim_mg_rank *r, plim_err *err)
{
    plim_str list = r->c.cp_levels, item;
    int64_t size[2] = {0}, product = 1;
    int32_t n = 0;
    for (; n < 3 && plim_mg_next_item(&list, &item); n++)
        if (n < 2)
            product = plim_parse_dim(item, &size[n]) ? plim_dim_mul(product, size[n]) : 0;
    r->ways = size[0];
    return n == 2 && product == r->contexts
               ? PLIM_OK
               : plim_fail(err, PLIM_EUSAGE, 0,
                           "cp: --cp-comm-type a2a+p2p needs two "
                           "--hierarchical-context-parallel-sizes whose product is %" PRId64,
                           r->contexts);
}

/* How ranks that share out tokens attend to those of the others. */
static plim_status choose_exchange(plim_mg_rank *r, plim_err *err)
{
    plim_str list = r->c.cp_comm, kind, item;
    plim_status st = PLIM_OK;
    plim_mg_next_item(&list, &kind);
    bool alike = true;
    while (plim_mg_next_item(&list, &item)) /* of each layer */
        alike = alike && plim_str_eq(item, kind);
    r->ways = 1;
    if (r->contexts < 2)
        return PLIM_OK;
    if (alike && plim_str_is(kind, "a2a"))
        r->ways = r->contexts;
    else if (alike && plim_str_is(kind, "a2a+p2p"))
        st = read_levels(r, err);
    else if (!alike || !plim_str_is(kind, "p2p"))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "--cp-comm-type is simulated as p2p, a2a or a2a+p2p in all layers");
    if (!st && (r->heads % r->ways || r->groups % r->ways))
        st = plim_fail(err, PLIM_EUSAGE, 0,
                       "cp: %" PRId64 " cards do not divide both the %" PRId64
                       " heads and the %" PRId64 " heads of keys",
                       r->ways, r->heads, r->groups);
    return st;
}

static plim_status check_ranks(const plim_mg_rank *r, plim_err *err)
{
    const plim_mg_model *m = r->c.model;
    if (r->part.stages > 1 && !m->stages)
        return plim_fail(err, PLIM_EUSAGE, 0, "pp: %s of Megatron-LM has no pipelines",
                         m->type);
    return r->contexts > 1 && (!m->contexts || r->c.latent)
               ? plim_fail(err, PLIM_EUNSUPPORTED, 0,
                           "cp: context parallelism of %s is not simulated",
                           r->c.latent ? "multi-latent attention" : m->type)
               : PLIM_OK;
}

static plim_status read_rank(plim_bytes bytes, const plim_binding *bind, plim_mg_rank *r,
                             plim_err *err)
{
    *r = (plim_mg_rank){.layers = layers_of_chunk, .infer = bind && bind->infer};
    if (bind)
        r->part = bind->part;
    r->part.weights = PLIM_MAX(r->part.weights, 1);
    r->part.stages = PLIM_MAX(r->part.stages, 1);
    r->part.chunks = PLIM_MAX(r->part.chunks, 1);
    r->contexts = PLIM_MAX(r->part.contexts, 1);
    PLIM_TRY(plim_mg_read(bytes, &r->c, err));
    PLIM_TRY(check_ranks(r, err));
    PLIM_TRY(complete_args(&r->c, err));
    PLIM_TRY(check_words(&r->c, err));
    PLIM_TRY(check_latent(&r->c, err));
    PLIM_TRY(check_experts(&r->c, err));
    PLIM_TRY(check_layers(r, err));
    PLIM_TRY(open_sizes(r, bind, err));
    PLIM_TRY(divide_tokens(r, err));
    PLIM_TRY(divide_sizes(r, err));
    return choose_exchange(r, err);
}

/* ---- settings ------------------------------------------------------------------------------------ */

/* Of each rank of a pipeline; the embedding or the head may count as one.
 * src: Megatron-LM d98e8a64 arguments.py validate_args */
static int64_t count_layers(const plim_mg_args *c, int64_t ranks)
{
    return (c->layers + c->embedding_counts + c->loss_counts) / ranks;
}

/* Stages of each rank of a pipeline. */
static int64_t count_chunks(const plim_mg_args *c, int64_t ranks)
{
    return c->chunks         ? c->chunks
           : c->chunk_layers ? count_layers(c, ranks) / c->chunk_layers
                             : 1;
}

static plim_status check_chunks(const plim_mg_args *c, const plim_given *given, plim_err *err)
{
    int64_t ranks = given->pp ? given->pp : c->pp;
    return ranks > 1 && !c->chunks && c->chunk_layers &&
                   count_layers(c, ranks) % c->chunk_layers
               ? plim_fail(err, PLIM_EFORMAT, 0,
                           "--num-layers-per-virtual-pipeline-stage %" PRId64
                           " does not divide the %" PRId64 " layers of a rank",
                           c->chunk_layers, count_layers(c, ranks))
               : PLIM_OK;
}

static bool has_module(const plim_mg_args *c, const char *module)
{
    plim_str list = c->recompute_modules, item;
    while (plim_mg_next_item(&list, &item))
        if (plim_str_is(item, module))
            return true;
    return false;
}

/* The modules of selective recomputation; `stage` precedes names where a rank has several stages. */
static void print_modules(plim_buf *out, const plim_mg_args *c, const char *stage,
                          const char *block)
{
    const bool cross = c->model == &plim_mg_t5 && plim_str_is(plim_str_of(block), "decoder");
    const struct {
        bool given;
        const char *path;
    } modules[] = {
        {has_module(c, "core_attn"), "self_attention.core_attention"},
        {has_module(c, "core_attn") && cross, "cross_attention.core_attention"},
        {has_module(c, c->experts > 1 ? "moe" : "mlp"), "mlp"},
        {has_module(c, "shared_experts") && c->experts > 1, "mlp.shared_experts"},
    };
    for (size_t i = 0; i < PLIM_COUNT(modules); i++)
        if (modules[i].given)
            plim_buf_printf(out, "%s%s.layers.*.%s,", stage, block, modules[i].path);
}

/* The layers of method block. */
static void print_layers(plim_buf *out, const plim_mg_args *c, const char *stage,
                         const char *block)
{
    for (int64_t i = 0; i < c->recompute_layers; i++)
        plim_buf_printf(out, "%s%s.layers.%" PRId64 ",", stage, block, i);
}

/* Of method block, the first layers of each stage. */
static void print_recompute(plim_buf *out, const plim_mg_args *c, const plim_given *given)
{
    int64_t ranks = given->pp ? given->pp : c->pp;
    const char *stage = ranks > 1 && count_chunks(c, ranks) > 1 ? "*." : "";
    bool full = plim_str_is(c->recompute, "full"),
         blocks = plim_str_is(c->recompute_method, "block");
    if (!full && !plim_str_is(c->recompute, "selective") && !c->recompute_activations)
        return;
    plim_buf units;
    plim_buf_init(&units, out->arena);
    for (size_t i = 0; i < PLIM_COUNT(c->model->blocks) && c->model->blocks[i]; i++)
        if (!full)
            print_modules(&units, c, stage, c->model->blocks[i]);
        else if (blocks)
            print_layers(&units, c, stage, c->model->blocks[i]);
    if (full && !blocks)
        plim_buf_puts(&units, "blocks,");
    if (units.n) /* a model may have none of these modules */
        plim_buf_printf(out, ";checkpoint=" PLIM_STR_FMT "reentrant",
                        PLIM_STR_ARG(plim_buf_str(&units)));
    out->bad |= units.bad;
}

/* Of these, a unit is a whole module whose result is kept; the others' results are made again, too. */
static plim_status check_modules(const plim_mg_args *c, plim_err *err)
{
    plim_str list = c->recompute_modules, item;
    while (plim_mg_next_item(&list, &item))
        if (!plim_str_is(item, "core_attn") && !plim_str_is(item, "mlp") &&
            !plim_str_is(item, "moe") && !plim_str_is(item, "shared_experts"))
            return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "--recompute-modules " PLIM_STR_FMT " is not simulated",
                             PLIM_STR_CUT(item));
    if (has_module(c, "moe") && has_module(c, "shared_experts"))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "--recompute-modules moe with shared_experts is not simulated");
    if (has_module(c, "mlp") &&
        !c->no_bias) /* autograd comes back to the bias again and again */
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "--recompute-modules mlp needs --disable-bias-linear: of an MLP with "
                         "biases, Megatron-LM's backward pass does not end");
    return c->experts > 1 && !plim_str_is(c->layer_freq, "1") &&
                   has_module(c, "moe") != has_module(c, "mlp")
               ? plim_fail(err, PLIM_EUNSUPPORTED, 0,
                           "--recompute-modules with one of mlp and moe is not simulated "
                           "where layers have both kinds")
               : PLIM_OK;
}

static plim_status check_recompute(const plim_mg_args *c, plim_err *err)
{
    bool full = plim_str_is(c->recompute, "full"),
         blocks = plim_str_is(c->recompute_method, "block");
    if (full && blocks && !c->recompute_layers)
        return plim_fail(err, PLIM_EFORMAT, 0, "--recompute-num-layers is missing, or 0");
    if (full && !blocks && c->recompute_layers > 1)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "units of %" PRId64 " recomputed layers are not simulated, only of 1",
                         c->recompute_layers);
    if (full && blocks && c->recompute_layers > PLIM_MG_MOST_LAYERS)
        return plim_fail(err, PLIM_ERANGE, 0,
                         "--recompute-num-layers is %" PRId64 ", the limit is %d",
                         c->recompute_layers, PLIM_MG_MOST_LAYERS);
    return full ? PLIM_OK : check_modules(c, err);
}

/* Micro-batches of a step: of the global batch, each rank of dp has an equal part. */
static void print_pipeline(plim_buf *out, const plim_mg_args *c, const plim_given *given)
{
    int64_t ranks = given->pp ? given->pp : c->pp,
            batch = given->batch ? given->batch
                    : c->batch   ? c->batch
                                 : 1,
            data = given->dp ? given->dp : 1, n = c->global_batch / batch / data,
            chunks = count_chunks(c, PLIM_MAX(ranks, 1));
    if (ranks < 2)
        return;
    plim_buf_printf(out, ";pp=%" PRId64 ";microbatches=%" PRId64, ranks, PLIM_MAX(n, 1));
    if (chunks > 1)
        plim_buf_printf(out, ";schedule=interleaved;stages_per_rank=%" PRId64, chunks);
}

/* What Megatron-FSDP does here: all is shared out, among all ranks that have other data. */
static plim_status check_fsdp(const plim_mg_args *c, plim_err *err)
{
    const struct {
        const char *name;
        plim_str given;
        const char *only;
    } words[] = {{"data-parallel-sharding-strategy", c->sharding, "optim_grads_params"},
                 {"outer-dp-sharding-strategy", c->outer_sharding, "no_shard"},
                 {"megatron-fsdp-main-params-dtype", c->main_params, "fp32"}};
    const struct {
        bool given;
        const char *what;
    } others[] = {
        {c->recompute.n || c->recompute_activations, "recomputation"},
        {c->instances > 1, "--num-distributed-optimizer-instances"},
        {c->fp16, "--fp16"},
        {plim_str_has(c->optimizer, "muon"), "muon"},
        {!plim_str_is(c->grad_comm, "auto") && !plim_str_eq(c->grad_comm, c->main_grads),
         "gradients that are exchanged in another type than the main gradients"},
        {c->fsdp_version != 1, "--megatron-fsdp-version other than 1"},
        {c->fsdp_unit > 0, "--suggested-communication-unit-size"},
        {c->fsdp_double, "--fsdp-double-buffer"},
        {c->user_buffers, "--use-nccl-ub"},
    };
    if (!c->fsdp)
        return PLIM_OK;
    for (size_t i = 0; i < PLIM_COUNT(words); i++)
        if (!plim_str_is(words[i].given, words[i].only))
            return plim_fail(
                err, PLIM_EUNSUPPORTED, 0,
                "--use-megatron-fsdp is simulated with --%s %s, not " PLIM_STR_FMT,
                words[i].name, words[i].only, PLIM_STR_CUT(words[i].given));
    for (size_t i = 0; i < PLIM_COUNT(others); i++)
        if (others[i].given)
            return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "--use-megatron-fsdp with %s is not simulated", others[i].what);
    return PLIM_OK;
}

static const char *choose_optimizer(const plim_mg_args *c)
{
    return plim_str_is(c->optimizer, "sgd") ? "sgd" : "adamw";
}

static void print_fsdp(plim_buf *out, const plim_mg_args *c)
{
    bool own = plim_str_is(c->main_grads, "auto");
    plim_buf_printf(out,
                    ";optimizer=%s;strategy=megatron_fsdp,main_grads=" PLIM_STR_FMT
                    ",overlap_grad_reduce=%d",
                    choose_optimizer(c), PLIM_STR_CUT(own ? PLIM_STR("none") : c->main_grads),
                    c->overlap);
    if (c->loads)
        plim_buf_puts(out, ",load=1");
}

/* Muon has a distributed optimizer of its own. */
static void print_optimizer(plim_buf *out, const plim_mg_args *c)
{
    bool muon = plim_str_has(c->optimizer, "muon"),
         layer_wise = muon && (c->distributed || plim_str_is(c->optimizer, "dist_muon"));
    if (muon)
        plim_buf_printf(out, ";optimizer=emerging_muon,ns_steps=%" PRId64 ",nesterov=%d",
                        c->muon_steps, c->muon_nesterov);
    else
        plim_buf_printf(out, ";optimizer=%s", choose_optimizer(c));
    plim_buf_printf(out, ";strategy=megatron,use_distributed_optimizer=%d",
                    muon ? layer_wise && !c->no_layer_wise_layout : c->distributed);
    if (layer_wise)
        plim_buf_puts(out, ",layer_wise=1");
    plim_buf_printf(out, ",grad_reduce_in_fp32=%d,overlap_grad_reduce=%d",
                    c->bf16 ? !c->narrow_gradients : c->wide_gradients, c->overlap);
    if (c->instances > 1)
        plim_buf_printf(out, ",num_distributed_optimizer_instances=%" PRId64, c->instances);
    if (c->group)
        plim_buf_printf(out, ",microbatch_group_size_per_vp_stage=%" PRId64, c->group);
    if (c->flush)
        plim_buf_puts(out, ",overlap_p2p_comm_warmup_flush=1");
}

static void print_settings(plim_buf *out, const plim_mg_args *c, const plim_given *given)
{
    plim_buf_puts(out, "loop=megatron");
    (c->fsdp ? print_fsdp : print_optimizer)(out, c);
    if (c->cublas.n)
        plim_buf_printf(out, ";cublas_workspace=" PLIM_STR_FMT, PLIM_STR_CUT(c->cublas));
    if (c->tp > 1)
        plim_buf_printf(out, ";tp=%" PRId64, c->tp);
    if (c->cp > 1)
        plim_buf_printf(out, ";cp=%" PRId64, c->cp);
    if (c->ep > 1 && c->experts > 1)
        plim_buf_printf(out, ";ep=%" PRId64, c->ep);
    if ((given->tp ? given->tp : c->tp) > 1 && c->sequence_parallel)
        plim_buf_puts(out, ";sequence_parallel=true");
    print_pipeline(out, c, given);
    print_recompute(out, c, given);
}

static plim_status megatron_settings(const plim_source *s, const plim_given *given,
                                     plim_arena *a, const char **out, plim_err *err)
{
    plim_mg_args c;
    plim_buf text;
    PLIM_TRY(plim_mg_read(s->bytes, &c, err));
    PLIM_TRY(check_recompute(&c, err));
    PLIM_TRY(check_chunks(&c, given, err));
    PLIM_TRY(check_fsdp(&c, err));
    plim_buf_init(&text, a);
    print_settings(&text, &c, given);
    plim_str all = plim_buf_str(&text);
    *out = text.bad ? NULL : plim_arena_str(a, all).p;
    return *out ? PLIM_OK : plim_oom(err);
}

/* ---- the importer ------------------------------------------------------------------------------------ */

static int megatron_probe(plim_bytes b) { return plim_mg_names_model(b) ? 50 : 0; }

static plim_status note_vocabulary(plim_graph *g, const plim_mg_args *c, plim_err *err)
{
    const struct vocabulary *v = usual_vocabulary(c);
    plim_buf text;
    plim_buf_init(&text, g->arena);
    plim_buf_printf(&text,
                    "The file does not give --vocab-size: that of %s, %" PRId64 ", is taken.",
                    v->of, v->tokens);
    g->about.note = plim_buf_str(&text);
    return text.bad ? plim_oom(err) : PLIM_OK;
}

static plim_status megatron_read(plim_graph *g, const plim_source *s, const plim_binding *bind,
                                 plim_err *err)
{
    plim_mg_rank r;
    PLIM_TRY(read_rank(s->bytes, bind, &r, err));
    PLIM_TRY(plim_graph_init(g, g->arena, err));
    g->sizes.batch = r.batch;
    g->sizes.seq = r.seq * r.contexts;
    g->sizes.seq_max = plim_str_is(r.c.position, "learned_absolute") ? r.c.positions : 0;
    if (r.c.experts) {
        g->part.expert_ranks = r.expert_cards;
        g->part.expert_parts = r.expert_parts;
    }
    g->about.format = PLIM_STR("Megatron-LM arguments");
    g->about.producer = PLIM_STR("Megatron-LM d98e8a64, megatron-core 0.16");
    g->about.model_type = plim_str_of(r.c.model->name);
    PLIM_TRY(r.c.vocab || r.c.padded_vocab ? PLIM_OK : note_vocabulary(g, &r.c, err));
    return plim_mg_build(g, &r, err);
}

const plim_importer plim_importer_megatron = {
    .name = "megatron",
    .doc =
        "arguments of Megatron-LM's training scripts, in a shell script or YAML: GPT, BERT, T5",
    .src = "megatron-core 0.16; docs/formats/megatron.md",
    .gives = "graph, parameters, training",
    .probe = megatron_probe,
    .read = megatron_read,
    .built = true,
    .divides = true,
    .settings = megatron_settings,
};
