/* mg_stages.c -- the models of Megatron-LM, and of one the stages that a rank has: see mg.h. */
#include "base/needles.h"
#include "import/megatron/mg_parts.h"

static const plim_mg_model *const models[] = {&plim_mg_bert, &plim_mg_t5, &plim_mg_gpt};

/* Of several scripts, the first of the list. */
const plim_mg_model *plim_mg_named(plim_bytes b)
{
    const char *scripts[PLIM_COUNT(models)];
    plim_needles words;
    uint32_t first = PLIM_COUNT(models);
    for (size_t i = 0; i < PLIM_COUNT(models); i++)
        scripts[i] = models[i]->script;
    plim_needles_init(&words, scripts, sizeof scripts[0], PLIM_COUNT(models));
    plim_str text = {(const char *)b.p, (size_t)b.n};
    for (plim_needle m = PLIM_NEEDLE_FROM(0); first && plim_needles_next(&words, text, &m);)
        first = PLIM_MIN(first, m.word);
    return first < PLIM_COUNT(models) ? models[first] : NULL;
}

/* Scores, and sequences that are gathered, have a place that is never freed. */
static void add_buffer(plim_mg *b)
{
    int64_t seq = PLIM_MAX(b->seq, b->c.decoder_seq),
            scores = b->te ? 0 : b->batch * b->r->heads * seq * seq, tokens = b->batch * seq,
            gathered = b->divided ? tokens * b->c.hidden : 0,
            cards = b->r->expert_cards * b->r->expert_parts, size = PLIM_MAX(scores, gathered);
    if (b->c.experts && cards > 1 && plim_str_is(b->c.dispatcher, "allgather"))
        size =
            PLIM_MAX(size, plim_dim_mul(tokens / (b->divided ? b->r->part.weights : 1) * cards,
                                        b->c.hidden));
    b->buffer =
        size ? plim_nn_temporary_buffer(&b->n, "mpu", b->n.dtype, INTS(size)) : PLIM_NONE;
}

/* The first stages of all ranks come first, then their second ones. */
static int64_t count_before(const plim_mg_rank *r, int64_t chunk)
{
    plim_mg_rank any = *r;
    int64_t sum = 0, stage = r->part.stage;
    for (int64_t k = 0; k <= chunk; k++)
        for (any.part.stage = 0; any.part.stage < (k < chunk ? r->part.stages : stage);
             any.part.stage++)
            sum += r->layers(&any, k);
    return sum;
}

/* A stage, which is all of the model if there is one. */
static void add_stage(plim_mg *b, int64_t k, plim_chunk *out)
{
    const plim_rank_part *part = &b->r->part;
    plim_nn *n = &b->n;
    plim_mg_place at = {.layers = b->r->layers(b->r, k),
                        .first = !k && !part->stage,
                        .last = k + 1 == part->chunks && part->stage + 1 == part->stages};
    b->first_layer = count_before(b->r, k);
    *out = (plim_chunk){.scope = n->scope,
                        .received = PLIM_NONE,
                        .loads = n->g->n_inputs,
                        .output = n->g->n_outputs,
                        .n_outputs = 1,
                        .sends = !at.last};
    plim_nn_output(n, b->c.model->add_stage(b, at, &out->received));
    out->n_loads = n->g->n_inputs - out->loads;
}

static void add_stages(plim_mg *b)
{
    plim_nn *n = &b->n;
    const plim_rank_part *part = &b->r->part;
    const char *type = b->c.model->type;
    plim_chunk *chunks = PLIM_NEW_N(n->g->arena, plim_chunk, (uint64_t)part->chunks);
    if (!chunks) {
        n->st = plim_oom(n->err);
        return;
    }
    plim_nn_root(n, type);
    add_buffer(b);
    for (int64_t k = 0; k < part->chunks && !n->st; k++) {
        if (part->chunks > 1)
            plim_nn_enter(n, plim_nn_name(n, "", k), type);
        add_stage(b, k, &chunks[k]);
        if (part->chunks > 1)
            plim_nn_leave(n);
    }
    plim_nn_settle(n);
    if (part->stages > 1 && !n->st) {
        n->g->part.chunks = chunks;
        n->g->part.n_chunks = (uint32_t)part->chunks;
    }
}

plim_status plim_mg_build(plim_graph *g, const plim_mg_rank *r, plim_err *err)
{
    const plim_mg_args *c = &r->c;
    plim_mg b = {.r = r,
                 .c = *c,
                 .batch = r->batch,
                 .seq = r->seq,
                 .freqs = PLIM_NONE,
                 .table = PLIM_NONE,
                 .positions = PLIM_NONE,
                 .types = PLIM_NONE};
    plim_nn_init(&b.n, g, err);
    b.n.infer = r->infer;
    b.n.dtype = c->bf16 ? PLIM_BF16 : c->fp16 ? PLIM_F16 : PLIM_F32;
    b.divided = r->part.weights > 1 && r->part.sequence;
    b.te = plim_str_is(c->impl, "transformer_engine");
    b.fused_attention = b.te && (c->bf16 || c->fp16) && !plim_str_is(c->backend, "unfused") &&
                        !plim_str_is(c->backend, "local");
    b.kernel = plim_str_is(c->backend, "flash") ? 1 : plim_str_is(c->backend, "fused") ? 2 : 0;
    if (r->contexts > 1 && !b.fused_attention)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "context parallelism needs Transformer Engine's FlashAttention or "
                         "cuDNN's kernel in bf16 or fp16");
    add_stages(&b);
    return b.n.st;
}
