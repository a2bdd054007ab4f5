/* hf_opt.c -- OPT.  src: transformers 5.23 models/opt/modeling_opt.py */

#include "import/hf/hf_parts.h"

typedef struct config {
    int64_t vocab, hidden, ffn, layers, heads, positions, width;
    double dropout, attention_dropout;
    bool tie, bias, affine, norm_first, no_final_norm;
    plim_str act;
} config;

static const double eps = 1e-5; /* the default of nn.LayerNorm */

static uint32_t heads_of(plim_hf *h, const config *c, uint32_t x)
{
    x = plim_nn_view(&h->n, x, INTS(h->batch, -1, c->heads, c->hidden / c->heads));
    return plim_nn_transpose(&h->n, x, 1, 2);
}

static uint32_t add_attention(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "self_attn", "OPTAttention");
    plim_nn_order(n, "k_proj v_proj q_proj out_proj");
    plim_hf_attention a = {.mask = h->mask,
                           .sinks = PLIM_NONE,
                           .causal = true,
                           .scale = 1,
                           .dropout = c->attention_dropout};
    uint32_t q = plim_nn_linear(n, "q_proj", x, c->hidden, c->bias);
    q = plim_nn_scalar(n, "aten.mul.Tensor", q, 1 / plim_hf_head_root(c->hidden, c->heads));
    a.q = heads_of(h, c, q);
    uint32_t k = plim_nn_linear(n, "k_proj", x, c->hidden, c->bias);
    uint32_t v = plim_nn_linear(n, "v_proj", x, c->hidden, c->bias);
    a.k = heads_of(h, c, k);
    a.v = heads_of(h, c, v);
    plim_hf_update_cache(h, &a.k, &a.v, 0);
    plim_nn_called(n, (uint32_t[]){a.q, a.k, a.v}, 3); /* variables, until it returns */
    x = plim_nn_reshape(n, plim_hf_attend(h, a), INTS(h->batch, h->seq, -1));
    x = plim_nn_linear(n, "out_proj", x, c->hidden, c->bias);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_layer(plim_hf *h, const config *c, int64_t i, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_hf_layer(h, plim_nn_name(n, "layers.", i), "OPTDecoderLayer", x);
    plim_nn_order(n, "self_attn self_attn_layer_norm fc1 fc2 *");
    uint32_t y = c->norm_first ? plim_nn_layer_norm(n, "self_attn_layer_norm", x, eps) : x;
    y = plim_nn_dropout_op(n, add_attention(h, c, y), c->dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    if (!c->norm_first)
        x = plim_nn_layer_norm(n, "self_attn_layer_norm", x, eps);
    x = plim_nn_reshape(n, x, INTS(-1, c->hidden));
    y = c->norm_first ? plim_nn_layer_norm(n, "final_layer_norm", x, eps) : x;
    y = plim_hf_mlp(h, (plim_hf_ffn){"fc1", "activation_fn", "fc2"}, c->act, y, c->ffn,
                    c->bias);
    y = plim_nn_dropout_op(n, y, c->dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    x = plim_nn_view(n, x, INTS(h->batch, h->seq, c->hidden));
    if (!c->norm_first)
        x = plim_nn_layer_norm(n, "final_layer_norm", x, eps);
    plim_nn_leave(n);
    return x;
}

/* A table with two more rows than positions, which come from the attention_mask, or one of ones. */
static uint32_t embed_positions(plim_hf *h, const config *c)
{
    plim_nn *n = &h->n;
    uint32_t mask = plim_hf_padding(h);
    if (mask == PLIM_NONE)
        mask = NN_OP(n, "aten.ones.default", ARG_IS("size", INTS(h->batch, h->seq)));
    uint32_t p = NN_OP(n, "aten.cumsum.default", ARG_T("self", mask), ARG_I("dim", 1));
    p = plim_nn_binary(n, "aten.mul.Tensor", p, mask);
    p = plim_nn_scalar(n, "aten.sub.Tensor", p, 1);
    p = h->positions = plim_nn_to(n, p, PLIM_I64);
    plim_hf_causal_mask(h, (plim_hf_mask){.positions = PLIM_NONE});
    plim_nn_enter(n, "embed_positions", "OPTLearnedPositionalEmbedding");
    uint32_t w = plim_nn_param(n, "weight", INTS(c->positions + 2, c->hidden));
    p = plim_nn_embedding_op(n, plim_nn_scalar(n, "aten.add.Tensor", p, 2), w);
    plim_nn_leave(n);
    return p;
}

static uint32_t add_decoder(plim_hf *h, const config *c, int64_t width, uint32_t *embedding)
{
    plim_nn *n = &h->n;
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "model", "OPTModel");
    plim_nn_enter(n, "decoder", "OPTDecoder");
    plim_nn_order(n, "embed_tokens embed_positions project_out project_in final_layer_norm *");
    ids = plim_nn_view(n, ids, INTS(-1, h->seq));
    uint32_t x = plim_nn_embedding(n, "embed_tokens", ids, c->vocab, width, embedding);
    uint32_t where = embed_positions(h, c);
    if (width != c->hidden)
        x = plim_nn_linear(n, "project_in", x, c->hidden, false);
    plim_nn_called(n, (uint32_t[]){x, where}, 2); /* variables, until it returns */
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_layer(h, c, i, x);
    if (c->norm_first && !c->no_final_norm)
        x = plim_nn_layer_norm(n, "final_layer_norm", x, eps);
    if (width != c->hidden)
        x = plim_nn_linear(n, "project_out", x, width, false);
    plim_nn_leave(n);
    plim_nn_leave(n);
    return x;
}

static void opt_build(plim_hf *h, const void *p)
{
    const config *c = p;
    uint32_t embedding = PLIM_NONE;
    plim_hf_check_heads(h, c->heads, c->heads, c->hidden / c->heads);
    plim_hf_cache_heads(h, c->layers, c->heads, c->hidden / c->heads);
    plim_hf_refuse(h, !c->affine, "layer_norm_elementwise_affine");
    plim_hf_tokens(h, "input_ids", c->positions, true);
    plim_nn_root(&h->n, "OPTForCausalLM");
    uint32_t x = add_decoder(h, c, c->width ? c->width : c->hidden, &embedding);
    x = plim_hf_lm_head(h, x, c->vocab, c->tie ? embedding : PLIM_NONE, false);
    plim_hf_causal_outputs(h, x);
}

/* clang-format off */
static const plim_hf_key opt_keys[] = {
    HF_SIZE(vocab, "vocab_size", 50272),
    HF_SIZE(hidden, "hidden_size", 768),
    HF_SIZE(ffn, "ffn_dim", 3072),
    HF_LAYERS(layers, "num_hidden_layers", 12),
    HF_SIZE(heads, "num_attention_heads", 12),
    HF_SIZE(positions, "max_position_embeddings", 2048),
    HF_GIVEN(width, "word_embed_proj_dim"),
    HF_SHARE(dropout, "dropout", 0.1),
    HF_SHARE(attention_dropout, "attention_dropout", 0),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_BOOL(bias, "enable_bias", 1),
    HF_BOOL(affine, "layer_norm_elementwise_affine", 1),
    HF_BOOL(norm_first, "do_layer_norm_before", 1),
    HF_BOOL(no_final_norm, "_remove_final_layer_norm", 0),
    HF_WORD(act, "activation_function", "relu"),
};
/* clang-format on */

static const plim_hf_family opt_families[] = {{"opt", "OPTForCausalLM", NULL, NULL}};

const plim_hf_group plim_hf_opt = {
    .doc = "OPT",
    .src = "transformers 5.23 models/opt",
    .families = opt_families,
    .n_families = PLIM_COUNT(opt_families),
    .keys = opt_keys,
    .n_keys = PLIM_COUNT(opt_keys),
    .size = sizeof(config),
    .caches = true,
    .build = opt_build,
};
