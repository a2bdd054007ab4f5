/* hf_gpt2.c -- GPT-2.  src: transformers 5.23 models/gpt2/modeling_gpt2.py */
#include <math.h>

#include "import/hf/hf_parts.h"
#include "import/hf/hf_quant.h"

typedef struct config {
    int64_t vocab, positions, hidden, layers, heads, inner;
    double eps, resid_dropout, embed_dropout, attention_dropout;
    bool scale, inverse_layer, tie, upcast, cross;
    plim_str act;
} config;

/* Conv1D: a Linear with its weight transposed */
static uint32_t add_conv1d(plim_hf *h, const char *name, uint32_t x, int64_t out)
{
    plim_nn *n = &h->n;
    int64_t b = plim_nn_dim(n, x, 0), s = plim_nn_dim(n, x, 1), in = plim_nn_dim(n, x, 2);
    plim_nn_enter(n, name, "Conv1D");
    uint32_t packed = plim_hf_packed_conv1d(h, x, out);
    if (packed != PLIM_NONE) {
        plim_nn_leave(n);
        return packed;
    }
    uint32_t w = plim_nn_param(n, "weight", INTS(in, out));
    uint32_t bias = plim_nn_param(n, "bias", INTS(out));
    x = plim_nn_view(n, x, INTS(-1, in));
    x = NN_OP(n, "aten.addmm.default", ARG_T("self", bias), ARG_T("mat1", x),
              ARG_T("mat2", w));
    x = plim_nn_view(n, x, INTS(b, s, out));
    plim_nn_leave(n);
    return x;
}

static uint32_t heads_of(plim_hf *h, uint32_t x, int64_t dim)
{
    x = plim_nn_view(&h->n, x, INTS(h->batch, h->seq, -1, dim));
    return plim_nn_transpose(&h->n, x, 1, 2);
}

static uint32_t scalar_like(plim_nn *n, uint32_t x)
{
    return NN_OP(n, "aten.new_full.default", ARG_T("self", x),
                 ARG_IS("size", ((plim_ints){NULL, 0})), ARG_F("fill_value", 1));
}

/* Eager attention with a table of which tokens are later; scalars are tensors. */
static uint32_t attend_by_table(plim_hf *h, const config *c, uint32_t table,
                                const plim_hf_attention *a)
{
    plim_nn *n = &h->n;
    uint32_t w =
        plim_nn_binary(n, "aten.matmul.default", a->q, plim_nn_transpose(n, a->k, 2, 3));
    if (c->scale)
        w = plim_nn_binary(n, "aten.div.Tensor", w, scalar_like(n, w));
    if (c->inverse_layer)
        w = plim_nn_scalar(n, "aten.div.Tensor", w, 2);
    table = plim_nn_slice(n, plim_nn_slice(n, table, 2, 0, h->seq, 1), 3, 0, h->seq, 1);
    const uint32_t least = scalar_like(n, w);
    w = NN_OP(n, "aten.where.self", ARG_T("condition", table), ARG_T("self", w),
              ARG_T("other", least));
    w = plim_nn_to_like(n, plim_nn_softmax(n, w, -1), a->v);
    w = plim_nn_dropout_op(n, w, a->dropout);
    plim_nn_holds(n, w); /* attn_weights, until the module returns */
    uint32_t y = plim_nn_binary(n, "aten.matmul.default", w, a->v);
    plim_hf_end_variable(n, least);
    plim_hf_attends(h);
    return plim_nn_contiguous(n, plim_nn_transpose(n, y, 1, 2));
}

/* In each layer; it was not used with sdpa either. */
static uint32_t make_table(plim_hf *h, const config *c)
{
    const int64_t side = c->positions;
    const uint32_t table =
        plim_nn_temporary_buffer(&h->n, "bias", PLIM_BOOL, INTS(1, 1, side, side));
    plim_nn_temporary_buffer(&h->n, "masked_bias", h->n.dtype, ((plim_ints){NULL, 0}));
    return table;
}

static uint32_t add_attention(plim_hf *h, const config *c, int64_t i, uint32_t x)
{
    plim_nn *n = &h->n;
    int64_t dim = c->hidden / c->heads;
    uint32_t part[3], normed = x;
    plim_nn_enter(n, "attn", "GPT2Attention");
    const bool tables = h->version < PLIM_HF_SINCE_NO_TABLE_IN_GPT2;
    const uint32_t table = tables ? make_table(h, c) : PLIM_NONE;
    x = add_conv1d(h, "c_attn", x, 3 * c->hidden);
    plim_nn_split(n, x, INTS(c->hidden, c->hidden, c->hidden), 2, part);
    plim_hf_attention a = {.mask = h->mask,
                           .sinks = PLIM_NONE,
                           .causal = true,
                           .softmax = PLIM_HF_SOFTMAX_CAST,
                           .scale = c->scale ? 1 / sqrt((double)dim) : 1,
                           .dropout = c->attention_dropout};
    if (c->inverse_layer)
        a.scale /= (double)(i + 1);
    a.k = heads_of(h, part[1], dim);
    a.v = heads_of(h, part[2], dim);
    a.q = heads_of(h, part[0], dim);
    plim_hf_update_cache(h, &a.k, &a.v, 0);
    plim_nn_called(n, (uint32_t[]){normed, a.q, a.k, a.v},
                   4); /* variables, until it returns */
    x = tables && h->eager ? attend_by_table(h, c, table, &a) : plim_hf_attend(h, a);
    x = plim_nn_reshape(n, x, INTS(h->batch, h->seq, -1));
    x = add_conv1d(h, "c_proj", x, c->hidden);
    x = plim_nn_dropout(n, "resid_dropout", x, c->resid_dropout);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_mlp(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "mlp", "GPT2MLP");
    x = add_conv1d(h, "c_fc", x, c->inner ? c->inner : 4 * c->hidden);
    x = plim_hf_act(h, "act", c->act, x);
    x = add_conv1d(h, "c_proj", x, c->hidden);
    x = plim_nn_dropout(n, "dropout", x, c->resid_dropout);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_block(plim_hf *h, const config *c, int64_t i, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_hf_layer(h, plim_nn_name(n, "h.", i), "GPT2Block", x);
    uint32_t normed = plim_nn_layer_norm(n, "ln_1", x, c->eps);
    uint32_t y = add_attention(h, c, i, normed);
    plim_nn_called(n, (uint32_t[]){x, h->positions, y}, 3); /* attn_output is a variable */
    x = plim_nn_binary(n, "aten.add.Tensor", y, x);
    plim_hf_end_variable(n, normed); /* hidden_states, until the sum is there */
    normed = plim_nn_layer_norm(n, "ln_2", x, c->eps);
    x = plim_nn_binary(n, "aten.add.Tensor", x, add_mlp(h, c, normed));
    plim_hf_end_variable(n, normed);
    plim_nn_leave(n);
    return x;
}

static void gpt2_build(plim_hf *h, const void *p)
{
    const config *c = p;
    plim_nn *n = &h->n;
    uint32_t embedding;
    plim_hf_check_heads(h, c->heads, c->heads, c->hidden / c->heads);
    plim_hf_cache_heads(h, c->layers, c->heads, c->hidden / c->heads);
    plim_hf_tokens(h, "input_ids", c->positions, true);
    plim_hf_refuse(h, c->cross, "add_cross_attention");
    plim_hf_refuse(h, c->upcast, "reorder_and_upcast_attn");
    plim_nn_root(n, "GPT2LMHeadModel");
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "transformer", "GPT2Model");
    ids = plim_nn_view(n, ids, INTS(-1, h->seq));
    uint32_t x = plim_nn_embedding(n, "wte", ids, c->vocab, c->hidden, &embedding);
    uint32_t at = plim_hf_positions(h);
    uint32_t where = plim_nn_embedding(n, "wpe", at, c->positions, c->hidden, NULL);
    plim_nn_called(n, (uint32_t[]){x, where},
                   2); /* inputs_embeds and position_embeds: variables */
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    if (!h->eager || h->version >= PLIM_HF_SINCE_NO_TABLE_IN_GPT2)
        plim_hf_causal_mask(h, (plim_hf_mask){.positions = at});
    x = plim_nn_dropout(n, "drop", x, c->embed_dropout);
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_block(h, c, i, x);
    x = plim_nn_layer_norm(n, "ln_f", x, c->eps);
    x = plim_nn_view(n, x, INTS(-1, h->seq, c->hidden));
    plim_nn_leave(n);
    x = plim_hf_lm_head(h, x, c->vocab, c->tie ? embedding : PLIM_NONE, false);
    plim_hf_causal_outputs(h, x);
}

/* clang-format off */
static const plim_hf_key gpt2_keys[] = {
    HF_SIZE(vocab, "vocab_size", 50257),
    HF_SIZE(positions, "n_positions max_position_embeddings", 1024),
    HF_SIZE(hidden, "n_embd hidden_size", 768),
    HF_LAYERS(layers, "n_layer num_hidden_layers", 12),
    HF_SIZE(heads, "n_head num_attention_heads", 12),
    HF_GIVEN(inner, "n_inner"),
    HF_REAL(eps, "layer_norm_epsilon", 1e-5),
    HF_SHARE(resid_dropout, "resid_pdrop", 0.1),
    HF_SHARE(embed_dropout, "embd_pdrop", 0.1),
    HF_SHARE(attention_dropout, "attn_pdrop", 0.1),
    HF_BOOL(scale, "scale_attn_weights", 1),
    HF_BOOL(inverse_layer, "scale_attn_by_inverse_layer_idx", 0),
    HF_BOOL(upcast, "reorder_and_upcast_attn", 0),
    HF_BOOL(cross, "add_cross_attention", 0),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_WORD(act, "activation_function", "gelu_new"),
};
/* clang-format on */

static const plim_hf_family gpt2_families[] = {{"gpt2", "GPT2LMHeadModel", NULL, NULL}};

const plim_hf_group plim_hf_gpt2 = {
    .doc = "GPT-2",
    .src = "transformers 5.23 models/gpt2",
    .families = gpt2_families,
    .n_families = PLIM_COUNT(gpt2_families),
    .keys = gpt2_keys,
    .n_keys = PLIM_COUNT(gpt2_keys),
    .size = sizeof(config),
    .caches = true,
    .build = gpt2_build,
};
