/* hf_bloom.c -- BLOOM: ALiBi instead of positions, eager attention.
 * src: transformers 5.23 models/bloom/modeling_bloom.py */
#include <math.h>

#include "import/hf/hf_parts.h"

typedef struct config {
    int64_t vocab, hidden, layers, heads;
    double eps, hidden_dropout, attention_dropout;
    bool tie, residual_after_norm, exact;
} config;

/* base ** (first, first + step ... count of them) */
static uint32_t slope_powers(plim_nn *n, int64_t count, int64_t step)
{
    const plim_named_arg base[] = {ARG_IS("size", ((plim_ints){NULL, 0})),
                                   ARG_F("fill_value", 0.5), ARG_I("dtype", PLIM_F32)};
    const plim_named_arg range[] = {ARG_I("start", 1), ARG_I("end", 1 + count * step),
                                    ARG_I("step", step), ARG_I("dtype", PLIM_I32)};
    uint32_t b = plim_nn_op(n, "aten.full.default", base, PLIM_COUNT(base));
    uint32_t e = plim_nn_op(n, "aten.arange.start_step", range, PLIM_COUNT(range));
    return NN_OP(n, "aten.pow.Tensor_Tensor", ARG_T("self", b), ARG_T("exponent", e));
}

/* build_alibi_tensor without a mask: [batch * heads, 1, seq] */
static uint32_t build_alibi(plim_hf *h, const config *c, uint32_t like)
{
    plim_nn *n = &h->n;
    int64_t whole = 1;
    while (whole * 2 <= c->heads)
        whole *= 2;
    uint32_t slopes = slope_powers(n, whole, 1);
    if (whole < c->heads) {
        uint32_t more = slope_powers(n, c->heads - whole, 2);
        slopes = plim_nn_cat(n, (uint32_t[]){slopes, more}, 2, 0);
    }
    slopes = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, slopes, 1), 2);
    uint32_t a = plim_nn_binary(n, "aten.mul.Tensor", slopes, plim_nn_arange(n, h->seq));
    a = NN_OP(n, "aten.repeat.default", ARG_T("self", a),
              ARG_IS("repeats", INTS(h->batch, 1, 1)));
    return plim_nn_to_like(n, a, like);
}

/* ---- a block ------------------------------------------------------------------------- */

static uint32_t dropout_add(plim_nn *n, uint32_t x, uint32_t residual, double p)
{
    return plim_nn_binary(n, "aten.add.Tensor", residual, plim_nn_dropout_op(n, x, p));
}

/* q, k or v of the fused product, [batch * heads, seq, dim] */
static uint32_t split_heads(plim_hf *h, const config *c, uint32_t x)
{
    return plim_nn_reshape(&h->n, x, INTS(h->batch * c->heads, -1, c->hidden / c->heads));
}

static uint32_t attention_weights(plim_hf *h, const config *c, uint32_t q, uint32_t k,
                                  uint32_t bias, uint32_t mask)
{
    plim_nn *n = &h->n;
    double scale = 1 / plim_hf_head_root(c->hidden, c->heads);
    uint32_t w = NN_OP(n, "aten.baddbmm.default", ARG_T("self", bias), ARG_T("batch1", q),
                       ARG_T("batch2", k), ARG_F("beta", 1), ARG_F("alpha", scale));
    plim_nn_holds(n, w); /* attention_scores */
    w = plim_nn_view(n, w, INTS(h->batch, c->heads, h->seq, -1));
    w = plim_nn_binary(n, "aten.add.Tensor", w, mask);
    plim_nn_holds(n, w); /* attn_weights */
    w = plim_nn_to_like(n, plim_hf_softmax32(n, w, -1), bias);
    w = plim_nn_dropout(n, "attention_dropout", w, c->attention_dropout);
    plim_nn_returned(n, w, 0);
    return plim_nn_view(n, w, INTS(h->batch * c->heads, h->seq, -1));
}

static uint32_t add_attention(plim_hf *h, const config *c, uint32_t x, uint32_t residual,
                              uint32_t bias, uint32_t mask)
{
    plim_nn *n = &h->n;
    int64_t dim = c->hidden / c->heads;
    uint32_t qkv[3];
    plim_nn_enter(n, "self_attention", "BloomAttention");
    x = plim_nn_linear(n, "query_key_value", x, 3 * c->hidden, true);
    plim_nn_holds(n, x);
    x = plim_nn_view(n, x, INTS(h->batch, h->seq, c->heads, 3, dim));
    for (int i = 0; i < 3; i++)
        qkv[i] = plim_nn_transpose(n, plim_nn_select(n, x, 3, i), 1, 2);
    plim_hf_update_cache(h, &qkv[1], &qkv[2], 0);
    uint32_t q = split_heads(h, c, qkv[0]);
    uint32_t k = plim_nn_transpose(n, split_heads(h, c, qkv[1]), -1, -2);
    uint32_t v = split_heads(h, c, qkv[2]);
    const uint32_t held[] = {q, k, v}; /* variables, until it returns */
    plim_nn_hold_all(n, held, PLIM_COUNT(held));
    x = NN_OP(n, "aten.bmm.default", ARG_T("self", attention_weights(h, c, q, k, bias, mask)),
              ARG_T("mat2", v));
    x = plim_nn_view(n, x, INTS(h->batch, c->heads, h->seq, dim));
    x = plim_nn_permute(n, x, INTS(0, 2, 1, 3));
    x = plim_nn_reshape(n, x, INTS(h->batch, h->seq, c->hidden));
    x = plim_nn_linear(n, "dense", x, c->hidden, true);
    x = dropout_add(n, x, residual, c->hidden_dropout);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_mlp(plim_hf *h, const config *c, uint32_t x, uint32_t residual)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "mlp", "BloomMLP");
    /* its gelu is a custom function that saves its input, as the fused one does */
    x = plim_hf_mlp(h, (plim_hf_ffn){"dense_h_to_4h", "gelu_impl", "dense_4h_to_h"},
                    PLIM_STR("gelu_pytorch_tanh"), x, 4 * c->hidden, true);
    x = dropout_add(n, x, residual, c->hidden_dropout);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_block(plim_hf *h, const config *c, int64_t i, uint32_t x, uint32_t bias,
                          uint32_t mask)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, plim_nn_name(n, "h.", i), "BloomBlock");
    uint32_t y = plim_nn_layer_norm(n, "input_layernorm", x, c->eps);
    x = add_attention(h, c, y, c->residual_after_norm ? y : x, bias, mask);
    y = plim_nn_layer_norm(n, "post_attention_layernorm", x, c->eps);
    x = add_mlp(h, c, y, c->residual_after_norm ? y : x);
    plim_nn_leave(n);
    return x;
}

static void bloom_build(plim_hf *h, const void *p)
{
    enum { NO_LIMIT = INT32_MAX };
    const config *c = p;
    plim_nn *n = &h->n;
    uint32_t embedding;
    plim_hf_check_heads(h, c->heads, c->heads, c->hidden / c->heads);
    plim_hf_cache_heads(h, c->layers, c->heads, c->hidden / c->heads);
    plim_hf_refuse(h, c->exact, "slow_but_exact");
    plim_hf_tokens(h, "input_ids", NO_LIMIT, false);
    plim_nn_root(n, "BloomForCausalLM");
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "transformer", "BloomModel");
    uint32_t x = plim_nn_embedding(n, "word_embeddings", ids, c->vocab, c->hidden, &embedding);
    x = plim_nn_layer_norm(n, "word_embeddings_layernorm", x, c->eps);
    uint32_t bias = build_alibi(h, c, x);
    h->eager = true;
    plim_hf_attends(h);
    uint32_t mask = plim_hf_causal_mask(h, (plim_hf_mask){.positions = PLIM_NONE});
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_block(h, c, i, x, bias, mask);
    x = plim_nn_layer_norm(n, "ln_f", x, c->eps);
    plim_nn_leave(n);
    x = plim_hf_lm_head(h, x, c->vocab, c->tie ? embedding : PLIM_NONE, false);
    plim_hf_causal_outputs(h, x);
}

/* clang-format off */
static const plim_hf_key bloom_keys[] = {
    HF_SIZE(vocab, "vocab_size", 250880),
    HF_SIZE(hidden, "hidden_size n_embed", 64),
    HF_LAYERS(layers, "n_layer num_hidden_layers", 2),
    HF_SIZE(heads, "n_head num_attention_heads", 8),
    HF_REAL(eps, "layer_norm_epsilon", 1e-5),
    HF_SHARE(hidden_dropout, "hidden_dropout", 0),
    HF_SHARE(attention_dropout, "attention_dropout", 0),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_BOOL(residual_after_norm, "apply_residual_connection_post_layernorm", 0),
    HF_BOOL(exact, "slow_but_exact", 0),
};
/* clang-format on */

static const plim_hf_family bloom_families[] = {{"bloom", "BloomForCausalLM", NULL, NULL}};

const plim_hf_group plim_hf_bloom = {
    .doc = "BLOOM",
    .src = "transformers 5.23 models/bloom",
    .families = bloom_families,
    .n_families = PLIM_COUNT(bloom_families),
    .keys = bloom_keys,
    .n_keys = PLIM_COUNT(bloom_keys),
    .size = sizeof(config),
    .caches = true,
    .build = bloom_build,
};
