/* mg_gpt.c -- Megatron-LM's GPTModel, what one rank has of it.
 *
 * Tensors are [sequence, batch, features].  With tensor parallelism a rank has a part of the heads, of
 * the features of the MLP and of the vocabulary; with sequence parallelism, between these, a part of
 * the sequence.
 * src: megatron-core 0.16 models/gpt, models/common/embeddings, transformer, tensor_parallel,
 * extensions/transformer_engine.py; Megatron-LM d98e8a64 pretrain_gpt.py */
#include <math.h>

#include "import/megatron/mg.h"

/* A tensor that may be PLIM_NONE. */
#define ARG_MAYBE(slot, x)                                                                    \
    {                                                                                         \
        PLIM_STR(slot),                                                                       \
        {                                                                                     \
            .kind = (x) == PLIM_NONE ? PLIM_ARG_NONE : PLIM_ARG_VALUE, .id = (x)              \
        }                                                                                     \
    }

typedef struct builder {
    plim_nn n;
    const plim_mg_rank *r;
    plim_mg_args c;
    int64_t batch, seq;
    bool te;      /* modules of Transformer Engine */
    bool divided; /* the sequence is, too */
    bool fused_attention;
    int64_t kernel;       /* of it: 0 chosen by the card, 1 FlashAttention, 2 cuDNN */
    uint32_t mask, freqs; /* PLIM_NONE: none */
    uint32_t table;       /* of the embedding */
    uint32_t buffer;      /* that is made once: GlobalMemoryBuffer; PLIM_NONE: none */
} builder;

/* ---- linear layers, of which each rank has a part ------------------------------------------ */

static bool is_rotary(const builder *b) { return plim_str_is(b->c.position, "rope"); }

static const char *class_of(const builder *b, const char *te, const char *local)
{
    return b->te ? te : local;
}

static uint32_t add_linear(builder *b, uint32_t x, uint32_t weight, uint32_t bias,
                           bool gathers, bool te, int64_t defers)
{
    return NN_OP(&b->n, "plimsoll.megatron_linear.default", ARG_T("input", x),
                 ARG_T("weight", weight), ARG_MAYBE("bias", bias),
                 ARG_I("parts", gathers ? b->r->part.weights : 1), ARG_I("te", te),
                 ARG_I("accumulates", !b->c.no_accumulation_fusion), ARG_I("defers", defers));
}

/* Rows of the weight are divided.  *bias NULL: it is added; else it is left to the caller. */
static uint32_t add_column(builder *b, const char *name, uint32_t x, int64_t out, bool biased,
                           uint32_t *bias)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, name, class_of(b, "TEColumnParallelLinear", "ColumnParallelLinear"));
    uint32_t w = plim_nn_param(n, "weight", INTS(out, plim_nn_dim(n, x, -1)));
    uint32_t v = biased ? plim_nn_param(n, "bias", INTS(out)) : PLIM_NONE;
    x = add_linear(b, x, w, bias ? PLIM_NONE : v, b->divided, b->te, 0);
    if (bias)
        *bias = v;
    plim_nn_leave(n);
    return x;
}

/* Its columns are; the caller adds the bias. */
static uint32_t add_row(builder *b, const char *name, uint32_t x, uint32_t *bias)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, name, class_of(b, "TERowParallelLinear", "RowParallelLinear"));
    uint32_t w = plim_nn_param(n, "weight", INTS(b->c.hidden, plim_nn_dim(n, x, -1)));
    *bias = b->c.no_bias ? PLIM_NONE : plim_nn_param(n, "bias", INTS(b->c.hidden));
    x = add_linear(b, x, w, PLIM_NONE, false, b->te, 0);
    if (b->divided)
        x = NN_OP(n, "plimsoll.megatron_scatter.default", ARG_T("self", x),
                  ARG_I("parts", b->r->part.weights));
    plim_nn_leave(n);
    return x;
}

static uint32_t add_norm(builder *b, const char *name, uint32_t x)
{
    plim_nn *n = &b->n;
    if (plim_str_is(b->c.norm, "LayerNorm"))
        return plim_nn_layer_norm(n, name, x, 1e-5);
    int64_t size = plim_nn_dim(n, x, -1);
    plim_nn_enter(n, name, "RMSNorm");
    uint32_t w = plim_nn_param(n, "weight", INTS(size));
    x = NN_OP(n, "aten.rms_norm.default", ARG_T("input", x),
              ARG_IS("normalized_shape", INTS(size)), ARG_T("weight", w), ARG_F("eps", 1e-5));
    plim_nn_leave(n);
    return x;
}

/* residual + dropout(x + bias) */
static uint32_t add_residual(builder *b, uint32_t x, uint32_t bias, uint32_t residual)
{
    plim_nn *n = &b->n;
    return NN_OP(n, "plimsoll.megatron_dropout_add.default", ARG_T("self", x),
                 ARG_MAYBE("bias", bias), ARG_T("residual", residual),
                 ARG_F("p", n->infer ? 0 : b->c.hidden_dropout),
                 ARG_I("fused", !b->c.no_dropout_fusion));
}

/* ---- attention -------------------------------------------------------------------------------- */

/* x cos + rotate_half(x) sin, of all features of a head.  src: rope_utils.py */
static uint32_t add_rope(builder *b, uint32_t x)
{
    plim_nn *n = &b->n;
    if (b->te && !b->c.no_rope_fusion)
        return NN_OP(n, "plimsoll.megatron_rope.default", ARG_T("self", x),
                     ARG_T("freqs", b->freqs));
    int64_t size = plim_nn_dim(n, b->freqs, -1);
    uint32_t rest = plim_nn_slice(n, x, 3, size, INT64_MAX, 1);
    x = plim_nn_slice(n, x, 3, 0, size, 1);
    uint32_t cos = plim_nn_to_like(n, plim_nn_unary(n, "aten.cos.default", b->freqs), x);
    uint32_t sin = plim_nn_to_like(n, plim_nn_unary(n, "aten.sin.default", b->freqs), x);
    uint32_t half[2];
    uint32_t straight = plim_nn_binary(n, "aten.mul.Tensor", x, cos);
    plim_nn_chunk(n, x, 2, -1, half);
    half[1] = plim_nn_unary(n, "aten.neg.default", half[1]);
    uint32_t turned = plim_nn_cat(n, (uint32_t[]){half[1], half[0]}, 2, -1);
    turned = plim_nn_binary(n, "aten.mul.Tensor", turned, sin);
    x = plim_nn_binary(n, "aten.add.Tensor", straight, turned);
    return plim_nn_cat(n, (uint32_t[]){x, rest}, 2, -1);
}

/* One key and one value for each head.  src: torch.repeat_interleave of a dimension: a view, copied */
static uint32_t repeat_groups(builder *b, uint32_t x)
{
    plim_nn *n = &b->n;
    int64_t times = b->r->heads / b->r->groups;
    if (times == 1)
        return x;
    return NN_OP(n, "aten.repeat_interleave.self_int", ARG_T("self", x),
                 ARG_I("repeats", times), ARG_I("dim", 2));
}

/* Scores of each pair of tokens, in memory. */
static uint32_t add_scores(builder *b, uint32_t q, uint32_t k)
{
    plim_nn *n = &b->n;
    int64_t all = b->batch * b->r->heads;
    q = plim_nn_reshape(n, q, INTS(b->seq, all, -1));
    k = plim_nn_reshape(n, k, INTS(b->seq, all, -1));
    q = plim_nn_transpose(n, q, 0, 1);
    k = plim_nn_transpose(n, plim_nn_transpose(n, k, 0, 1), 1, 2);
    uint32_t to = b->te ? NN_OP(n, "aten.new_empty.default", ARG_T("self", q),
                                ARG_IS("size", INTS(all, b->seq, b->seq)))
                        : plim_nn_slice(n, b->buffer, 0, 0, all * b->seq * b->seq, 1);
    if (!b->te)
        to = plim_nn_view(n, to, INTS(all, b->seq, b->seq));
    uint32_t out = NN_OP(n, "aten.baddbmm.default", ARG_T("self", to), ARG_T("batch1", q),
                         ARG_T("batch2", k), ARG_I("beta", 0),
                         ARG_F("alpha", 1 / sqrt((double)b->c.channels)));
    return plim_nn_view(n, out, INTS(b->batch, b->r->heads, b->seq, b->seq));
}

/* What a stage without a batch, or a batch without a mask, makes in each layer.
 * src: transformer/utils.py get_default_causal_mask */
static uint32_t add_mask(builder *b)
{
    plim_nn *n = &b->n;
    uint32_t x = NN_OP(n, "aten.ones.default", ARG_IS("size", INTS(b->seq, b->seq)));
    x = NN_OP(n, "aten.triu.default", ARG_T("self", x), ARG_I("diagonal", 1));
    return plim_nn_to(n, x, PLIM_BOOL);
}

static uint32_t add_softmax(builder *b, uint32_t x)
{
    plim_nn *n = &b->n;
    bool half = n->dtype != PLIM_F32;
    if (half && (b->te || !b->c.no_softmax_fusion))
        return NN_OP(n, "plimsoll.megatron_softmax.default", ARG_T("self", x));
    if (half && b->c.softmax_fp32)
        x = plim_nn_to(n, x, PLIM_F32);
    x = NN_OP(n, "aten.masked_fill_.Scalar", ARG_T("self", x),
              ARG_T("mask", b->mask == PLIM_NONE ? add_mask(b) : b->mask),
              ARG_F("value", -10000));
    x = plim_nn_softmax(n, x, -1);
    return plim_nn_to(n, x, n->dtype);
}

static uint32_t add_core(builder *b, uint32_t q, uint32_t k, uint32_t v)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "core_attention",
                  class_of(b, "TEDotProductAttention", "DotProductAttention"));
    uint32_t x;
    if (b->fused_attention) {
        x = NN_OP(n, "plimsoll.megatron_attention.default", ARG_T("query", q), ARG_T("key", k),
                  ARG_T("value", v), ARG_F("p", n->infer ? 0 : b->c.attention_dropout),
                  ARG_I("deterministic", b->c.deterministic || b->c.no_atomics),
                  ARG_I("kernel", b->kernel), ARG_I("parts", b->r->contexts),
                  ARG_I("part", b->r->part.context));
        plim_nn_leave(n);
        return x;
    }
    k = repeat_groups(b, k);
    v = repeat_groups(b, v);
    uint32_t scores = add_scores(b, q, k);
    plim_nn_called(n, &scores, 1); /* a variable, until it returns */
    x = add_softmax(b, scores);
    if (b->c.attention_dropout > 0)
        x = plim_nn_dropout_op(n, x, b->c.attention_dropout);
    v = plim_nn_reshape(n, v, INTS(b->seq, b->batch * b->r->heads, -1));
    x = plim_nn_view(n, x, INTS(b->batch * b->r->heads, b->seq, -1));
    x = NN_OP(n, "aten.bmm.default", ARG_T("self", x),
              ARG_T("mat2", plim_nn_transpose(n, v, 0, 1)));
    x = plim_nn_view(n, x, INTS(b->batch, b->r->heads, b->seq, -1));
    x = plim_nn_contiguous(n, plim_nn_permute(n, x, INTS(2, 0, 1, 3)));
    x = plim_nn_view(n, x, INTS(b->seq, b->batch, -1));
    plim_nn_leave(n);
    return x;
}

static uint32_t add_attention(builder *b, uint32_t x, uint32_t *bias)
{
    plim_nn *n = &b->n;
    int64_t size = b->c.channels, each = b->r->heads / b->r->groups;
    uint32_t part[3];
    plim_nn_enter(n, "self_attention", "SelfAttention");
    plim_nn_order(n, "core_attention linear_proj linear_qkv q_layernorm k_layernorm");
    x = add_column(b, "linear_qkv", x, (b->r->heads + 2 * b->r->groups) * size,
                   !b->c.no_bias || b->c.qkv_bias, NULL);
    x = plim_nn_view(n, x, INTS(b->seq, b->batch, b->r->groups, (each + 2) * size));
    plim_nn_split(n, x, INTS(each * size, size, size), 3, part);
    part[0] = plim_nn_reshape(n, part[0], INTS(b->seq, b->batch, -1, size));
    if (b->c.qk_norm) {
        part[0] = add_norm(b, "q_layernorm", part[0]);
        part[1] = add_norm(b, "k_layernorm", part[1]);
    }
    for (int i = 0; i < 2 && is_rotary(b); i++)
        part[i] = add_rope(b, part[i]);
    x = add_core(b, part[0], part[1], part[2]);
    x = add_row(b, "linear_proj", x, bias);
    plim_nn_leave(n);
    return x;
}

/* ---- MLP ---------------------------------------------------------------------------------------- */

static uint32_t add_activation(builder *b, uint32_t x, uint32_t bias)
{
    plim_nn *n = &b->n;
    uint32_t half[2];
    bool fused = b->c.swiglu ? !b->c.no_swiglu_fusion
                             : !b->c.no_gelu_fusion && !b->c.no_bias && !b->c.squared_relu;
    if (fused)
        return NN_OP(n, "plimsoll.megatron_activation.default", ARG_T("self", x),
                     ARG_MAYBE("bias", bias), ARG_I("gated", b->c.swiglu));
    if (bias != PLIM_NONE)
        x = plim_nn_binary(n, "aten.add.Tensor", x, bias);
    if (b->c.squared_relu)
        return NN_OP(n, "aten.pow.Tensor_Scalar",
                     ARG_T("self", plim_nn_unary(n, "aten.relu.default", x)),
                     ARG_I("exponent", 2));
    if (!b->c.swiglu)
        return plim_nn_unary(n, "aten.gelu.default", x);
    plim_nn_chunk(n, x, 2, -1, half);
    x = plim_nn_unary(n, "aten.silu.default", half[0]);
    half[1] = plim_nn_scalar(n, "aten.add.Tensor", half[1], 0); /* + glu_linear_offset */
    return plim_nn_binary(n, "aten.mul.Tensor", x, half[1]);
}

static uint32_t add_mlp(builder *b, uint32_t x, uint32_t *bias)
{
    plim_nn *n = &b->n;
    uint32_t first;
    plim_nn_enter(n, "mlp", "MLP");
    x = add_column(b, "linear_fc1", x, b->c.swiglu ? 2 * b->r->ffn : b->r->ffn, !b->c.no_bias,
                   &first);
    x = add_activation(b, x, first);
    x = add_row(b, "linear_fc2", x, bias);
    plim_nn_leave(n);
    return x;
}

/* ---- the model ------------------------------------------------------------------------------------ */

static uint32_t add_layer(builder *b, int64_t i, uint32_t x)
{
    plim_nn *n = &b->n;
    uint32_t y, bias;
    plim_nn_enter(n, plim_nn_name(n, "layers.", i), "TransformerLayer");
    y = add_norm(b, "input_layernorm", x);
    y = add_attention(b, y, &bias);
    x = add_residual(b, y, bias, x);
    y = add_norm(b, "pre_mlp_layernorm", x);
    if (b->c.experts) {
        y = plim_mg_moe(n, b->r, b->te, y);
        bias = PLIM_NONE;
    } else
        y = add_mlp(b, y, &bias);
    x = add_residual(b, y, bias, x);
    plim_nn_leave(n);
    return x;
}

/* The first and the last stage add up the gradients of the table that both have. */
static void share_table(builder *b, uint32_t table)
{
    if (!b->c.untied && b->r->part.stages > 1 && table != PLIM_NONE)
        b->n.g->values[table].shared = true;
}

static uint32_t look_up(builder *b, uint32_t ids)
{
    plim_nn *n = &b->n;
    return b->c.deterministic ? NN_OP(n, "aten.index.Tensor", ARG_T("self", b->table),
                                      ARG_TS("indices", &ids, 1))
                              : plim_nn_embedding_op(n, ids, b->table);
}

/* Rows of the table of which other ranks have a part, too. */
static uint32_t embed_part(builder *b, uint32_t ids)
{
    plim_nn *n = &b->n;
    uint32_t below = NN_OP(n, "aten.lt.Scalar", ARG_T("self", ids), ARG_I("other", 0));
    uint32_t above =
        NN_OP(n, "aten.ge.Scalar", ARG_T("self", ids), ARG_I("other", b->r->vocab));
    uint32_t mask = plim_nn_binary(n, "aten.__or__.Tensor", below, above);
    ids = plim_nn_scalar(n, "aten.sub.Tensor", plim_nn_unary(n, "aten.clone.default", ids), 0);
    uint32_t x = look_up(b, ids);
    mask = plim_nn_unsqueeze(n, mask, -1);
    return NN_OP(n, "aten.masked_fill_.Scalar", ARG_T("self", x), ARG_T("mask", mask),
                 ARG_F("value", 0));
}

static uint32_t add_embedding(builder *b, uint32_t ids, uint32_t at)
{
    plim_nn *n = &b->n;
    bool learned = plim_str_is(b->c.position, "learned_absolute");
    plim_nn_enter(n, "embedding", "LanguageModelEmbedding");
    plim_nn_enter(n, "word_embeddings", "VocabParallelEmbedding");
    b->table = plim_nn_param(n, "weight", INTS(b->r->vocab, b->c.hidden));
    share_table(b, b->table);
    uint32_t x = b->r->part.weights > 1 ? embed_part(b, ids) : look_up(b, ids);
    if (b->divided && !learned) {
        x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 0, 1));
        x = NN_OP(n, "plimsoll.megatron_scatter.default", ARG_T("self", x),
                  ARG_I("parts", b->r->part.weights));
    }
    plim_nn_leave(n);
    if (learned) {
        uint32_t where =
            plim_nn_embedding(n, "position_embeddings", at, b->c.positions, b->c.hidden, NULL);
        plim_nn_called(n, (uint32_t[]){x, where}, 2); /* variables, until it returns */
        x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    }
    if (!b->divided || learned)
        x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 0, 1));
    if (b->divided && learned)
        x = plim_nn_unary(n, "aten.clone.default",
                          NN_OP(n, "plimsoll.megatron_split.default", ARG_T("self", x),
                                ARG_I("parts", b->r->part.weights)));
    if (b->c.hidden_dropout > 0)
        x = plim_nn_dropout_op(n, x, b->c.hidden_dropout);
    plim_nn_leave(n);
    return x;
}

/* Where the embedding is on another stage, a tied head has a copy of its table. */
static uint32_t add_head(builder *b, uint32_t x, bool has_table)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "output_layer", "ColumnParallelLinear");
    uint32_t w = b->c.untied || !has_table
                     ? plim_nn_param(n, "weight", INTS(b->r->vocab, b->c.hidden))
                     : b->table;
    share_table(b, w);
    /* micro-batches whose gradient of the weight is computed after all others */
    int64_t most = b->c.deferral_limit ? b->c.deferral_limit : INT32_MAX;
    x = add_linear(b, x, w, PLIM_NONE, b->divided, false,
                   b->c.defers && b->r->part.stages > 1 ? most : 0);
    plim_nn_leave(n);
    return x;
}

/* The sum of the losses that count. */
static uint32_t add_loss(builder *b, uint32_t logits, uint32_t labels, uint32_t counts)
{
    plim_nn *n = &b->n;
    labels = plim_nn_contiguous(n, plim_nn_transpose(n, labels, 0, 1));
    uint32_t x = NN_OP(n, "plimsoll.megatron_loss.default", ARG_T("self", logits),
                       ARG_T("target", labels), ARG_I("fused", b->c.fused_loss));
    x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 0, 1));
    x = plim_nn_binary(n, "aten.mul.Tensor", plim_nn_view(n, x, INTS(-1)),
                       plim_nn_view(n, counts, INTS(-1)));
    return plim_nn_unary(n, "aten.sum.default", x);
}

/* ---- stages ------------------------------------------------------------------------------------- */

/* Scores, and sequences that are gathered, have a place that lives for ever. */
static void add_buffer(builder *b)
{
    int64_t scores = b->te ? 0 : b->batch * b->r->heads * b->seq * b->seq,
            tokens = b->batch * b->seq, gathered = b->divided ? tokens * b->c.hidden : 0,
            cards = b->r->expert_cards * b->r->expert_parts, size = PLIM_MAX(scores, gathered);
    if (b->c.experts && cards > 1 && plim_str_is(b->c.dispatcher, "allgather"))
        size =
            PLIM_MAX(size, plim_dim_mul(tokens / (b->divided ? b->r->part.weights : 1) * cards,
                                        b->c.hidden));
    b->buffer =
        size ? plim_nn_temporary_buffer(&b->n, "mpu", b->n.dtype, INTS(size)) : PLIM_NONE;
}

typedef struct batch {
    uint32_t tokens, labels, counts, positions;
} batch;

/* Stages between the first and the last have no batch. */
static batch add_batch(builder *b, bool first, bool last)
{
    plim_nn *n = &b->n;
    batch in = {PLIM_NONE, PLIM_NONE, PLIM_NONE, PLIM_NONE};
    plim_ints size = INTS(b->batch, b->seq);
    if (first)
        in.tokens = plim_nn_input(n, "tokens", PLIM_I64, size);
    if (last && !n->infer) {
        in.labels = plim_nn_input(n, "labels", PLIM_I64, size);
        in.counts = plim_nn_input(n, "loss_mask", PLIM_F32, size);
    }
    b->mask = PLIM_NONE;
    if ((first || last) && !b->c.no_mask)
        b->mask =
            plim_nn_input(n, "attention_mask", PLIM_BOOL,
                          INTS(b->batch, 1, b->seq, plim_dim_mul(b->seq, b->r->contexts)));
    if (first)
        in.positions = plim_nn_input(n, "position_ids", PLIM_I64, size);
    return in;
}

static void add_frequencies(builder *b)
{
    plim_nn *n = &b->n;
    int64_t size = PLIM_MAX((int64_t)((double)b->c.channels * b->c.rotary_percent), 2);
    b->freqs = PLIM_NONE;
    if (!is_rotary(b))
        return;
    plim_nn_temporary_buffer(n, "rotary_pos_emb.inv_freq", PLIM_F32, INTS(size / 2));
    b->freqs =
        plim_nn_temporary_buffer(n, "rotary_pos_emb", PLIM_F32, INTS(b->seq, 1, 1, size));
}

static uint32_t add_received(builder *b)
{
    int64_t seq = b->seq / (b->divided ? b->r->part.weights : 1);
    uint32_t x =
        plim_nn_input(&b->n, "received", b->n.dtype, INTS(seq, b->batch, b->c.hidden));
    if (x != PLIM_NONE)
        b->n.g->values[x].received = true;
    return x;
}

/* A stage, which is all of the model if there is one.  Its layers are numbered from 0. */
static void add_stage(builder *b, int64_t chunk, plim_chunk *out)
{
    plim_nn *n = &b->n;
    const plim_rank_part *part = &b->r->part;
    bool first = !chunk && !part->stage,
         last = chunk + 1 == part->chunks && part->stage + 1 == part->stages;
    int64_t layers = b->r->layers(b->r, chunk);
    *out = (plim_chunk){n->scope, PLIM_NONE, n->g->n_outputs, 1, !last};
    batch in = add_batch(b, first, last);
    uint32_t x = first ? add_embedding(b, in.tokens, in.positions) : add_received(b);
    if (!first)
        out->received = x;
    add_frequencies(b);
    plim_nn_enter(n, "decoder", "TransformerBlock");
    for (int64_t i = 0; i < layers && !n->st; i++)
        x = add_layer(b, i, x);
    if (last)
        x = add_norm(b, "final_layernorm", x);
    plim_nn_leave(n);
    if (last)
        x = add_head(b, x, first);
    if (last && !n->infer)
        x = add_loss(b, x, in.labels, in.counts);
    plim_nn_output(n, x);
}

static void add_stages(builder *b)
{
    plim_nn *n = &b->n;
    const plim_rank_part *part = &b->r->part;
    plim_chunk *chunks = PLIM_NEW_N(n->g->arena, plim_chunk, (uint64_t)part->chunks);
    if (!chunks) {
        n->st = plim_oom(n->err);
        return;
    }
    plim_nn_root(n, "GPTModel");
    add_buffer(b);
    for (int64_t k = 0; k < part->chunks && !n->st; k++) {
        if (part->chunks > 1)
            plim_nn_enter(n, plim_nn_name(n, "", k), "GPTModel");
        add_stage(b, k, &chunks[k]);
        if (part->chunks > 1)
            plim_nn_leave(n);
    }
    plim_nn_settle(n);
    if (part->stages > 1 && !n->st) {
        n->g->chunks = chunks;
        n->g->n_chunks = (uint32_t)part->chunks;
    }
}

plim_status plim_mg_build(plim_graph *g, const plim_mg_rank *r, plim_err *err)
{
    const plim_mg_args *c = &r->c;
    builder b = {.r = r, .c = *c, .batch = r->batch, .seq = r->seq};
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
