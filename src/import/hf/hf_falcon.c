/* hf_falcon.c -- Falcon: one head of keys and values for all heads, or per group.
 * src: transformers 5.23 models/falcon/modeling_falcon.py */
#include <math.h>

#include "import/hf/hf_parts.h"

typedef struct config {
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, positions, norms;
    double eps, hidden_dropout, attention_dropout;
    bool tie, bias, alibi, multi_query, new_decoder, parallel;
    plim_str act;
} config;

/* FalconLinear: x @ w.T + b, not F.linear */
static uint32_t add_linear(plim_nn *n, const config *c, const char *name, uint32_t x,
                           int64_t out)
{
    plim_nn_enter(n, name, "FalconLinear");
    uint32_t w = plim_nn_param(n, "weight", INTS(out, plim_nn_dim(n, x, -1)));
    uint32_t b = c->bias ? plim_nn_param(n, "bias", INTS(out)) : PLIM_NONE;
    x = plim_nn_binary(n, "aten.matmul.default", x,
                       plim_nn_unary(n, "aten.numpy_T.default", w));
    if (c->bias)
        x = plim_nn_binary(n, "aten.add.Tensor", x, b);
    plim_nn_leave(n);
    return x;
}

/* ---- q, k and v of one product ----------------------------------------------------------- */

/* x[..., [i], :]: indexing with a list allocates a new tensor */
static uint32_t index_at(plim_nn *n, uint32_t x, uint32_t before)
{
    uint32_t index[4] = {PLIM_NONE, PLIM_NONE, PLIM_NONE, PLIM_NONE};
    index[before] = plim_nn_arange(n, 1);
    return NN_OP(n, "aten.index.Tensor", ARG_T("self", x),
                 ARG_TS("indices", index, before + 1));
}

static uint32_t broadcast_to(plim_nn *n, uint32_t x, plim_ints size)
{
    return NN_OP(n, "aten.broadcast_to.default", ARG_T("self", x), ARG_IS("size", size));
}

static uint32_t groups_to_heads(plim_nn *n, uint32_t x)
{
    return NN_OP(n, "aten.flatten.using_ints", ARG_T("self", x), ARG_I("start_dim", 2),
                 ARG_I("end_dim", 3));
}

/* _split_heads: [batch, seq, heads, dim] each */
static void split_heads(plim_hf *h, const config *c, uint32_t x, uint32_t out[3])
{
    plim_nn *n = &h->n;
    int64_t dim = c->hidden / c->heads, b = h->batch, s = h->seq;
    if (c->new_decoder) {
        int64_t group = c->heads / c->kv_heads;
        plim_ints size = INTS(b, s, c->kv_heads, group, dim);
        x = plim_nn_view(n, x, INTS(b, s, -1, group + 2, dim));
        out[0] = plim_nn_slice(n, x, 3, 0, -2, 1);
        out[1] = index_at(n, x, 3);
        out[2] = index_at(n, x, 3);
        out[1] = broadcast_to(n, out[1], size);
        out[2] = broadcast_to(n, out[2], size);
        for (int i = 0; i < 3; i++)
            out[i] = groups_to_heads(n, out[i]);
    } else if (c->multi_query) {
        x = plim_nn_view(n, x, INTS(b, s, c->heads + 2, dim));
        out[0] = plim_nn_slice(n, x, 2, 0, -2, 1);
        out[1] = index_at(n, x, 2);
        out[2] = index_at(n, x, 2);
    } else {
        x = plim_nn_view(n, x, INTS(b, s, c->heads, 3, dim));
        for (int i = 0; i < 3; i++)
            out[i] = plim_nn_select(n, x, -2, i);
    }
}

static int64_t qkv_width(const config *c)
{
    int64_t dim = c->hidden / c->heads;
    return c->new_decoder   ? (2 * c->kv_heads + c->heads) * dim
           : c->multi_query ? c->hidden + 2 * dim
                            : 3 * c->hidden;
}

static uint32_t attend_eager(plim_nn *n, const uint32_t qkv[3], uint32_t mask)
{
    double root = sqrt((double)plim_nn_dim(n, qkv[0], -1));
    uint32_t kt = plim_nn_transpose(n, qkv[1], -1, -2);
    uint32_t scores = plim_nn_binary(n, "aten.matmul.default", qkv[0], kt);
    scores = plim_nn_scalar(n, "aten.div_.Tensor", scores, root);
    uint32_t w = plim_nn_binary(n, "aten.add.Tensor", scores, mask);
    w = plim_nn_softmax(n, w, -1);
    plim_hf_end_variable(n, scores);
    plim_nn_returned(n, w, 1);
    return plim_nn_binary(n, "aten.matmul.default", w, qkv[2]);
}

static uint32_t attend_sdpa(plim_nn *n, const uint32_t qkv[3], uint32_t mask)
{
    const plim_named_arg args[] = {ARG_T("query", qkv[0]), ARG_T("key", qkv[1]),
                                   ARG_T("value", qkv[2]), ARG_F("dropout_p", 0),
                                   ARG_T("attn_mask", mask)};
    return plim_nn_op(n, "aten.scaled_dot_product_attention.default", args,
                      (uint32_t)PLIM_COUNT(args) - (mask == PLIM_NONE)); /* cp drops it */
}

static uint32_t add_attention(plim_hf *h, const config *c, uint32_t x, plim_hf_rope rope,
                              uint32_t mask)
{
    plim_nn *n = &h->n;
    int64_t dim = c->hidden / c->heads, b = h->batch, s = h->seq;
    uint32_t qkv[3];
    plim_nn_enter(n, "self_attention", "FalconAttention");
    x = add_linear(n, c, "query_key_value", x, qkv_width(c));
    plim_nn_holds(n, x); /* fused_qkv */
    split_heads(h, c, x, qkv);
    for (int i = 0; i < 3; i++) {
        int64_t heads = plim_nn_dim(n, qkv[i], 2);
        qkv[i] = plim_nn_transpose(n, qkv[i], 1, 2);
        qkv[i] = plim_nn_reshape(n, qkv[i], INTS(b, heads, s, dim));
    }
    rope = plim_hf_rope_heads(n, rope);
    const uint32_t was[2] = {qkv[0], qkv[1]}; /* variables, until both are turned */
    qkv[0] = plim_hf_rotate(n, qkv[0], rope);
    qkv[1] = plim_hf_rotate(n, qkv[1], rope);
    plim_hf_end_variables(n, was, 2);
    plim_hf_update_cache(h, &qkv[1], &qkv[2], 0);
    for (int i = 0; i < 3; i++)
        plim_nn_holds(n, qkv[i]); /* variables, until it returns */
    plim_hf_attends(h);
    x = (h->eager ? attend_eager : attend_sdpa)(n, qkv, mask);
    x = plim_nn_view(n, x, INTS(b, c->heads, s, dim));
    x = plim_nn_permute(n, x, INTS(0, 2, 1, 3));
    x = plim_nn_reshape(n, x, INTS(b, s, c->hidden));
    x = add_linear(n, c, "dense", x, c->hidden);
    plim_nn_leave(n);
    return x;
}

/* ---- a layer --------------------------------------------------------------------------------- */

static uint32_t add_mlp(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "mlp", "FalconMLP");
    x = add_linear(n, c, "dense_h_to_4h", x, c->ffn ? c->ffn : 4 * c->hidden);
    x = plim_hf_act(h, "act", c->act, x);
    x = add_linear(n, c, "dense_4h_to_h", x, c->hidden);
    plim_nn_leave(n);
    return x;
}

static uint32_t dropout_add(plim_nn *n, uint32_t x, uint32_t residual, double p)
{
    return plim_nn_binary(n, "aten.add.Tensor", residual, plim_nn_dropout_op(n, x, p));
}

static uint32_t add_layer(plim_hf *h, const config *c, int64_t i, uint32_t x,
                          plim_hf_rope rope, uint32_t mask)
{
    plim_nn *n = &h->n;
    bool two = c->new_decoder && c->norms == 2;
    uint32_t before, into_mlp;
    plim_hf_layer(h, plim_nn_name(n, "h.", i), "FalconDecoderLayer", x);
    plim_nn_order(n, "self_attention mlp post_attention_layernorm *");
    before = into_mlp = plim_nn_layer_norm(n, two ? "ln_attn" : "input_layernorm", x, c->eps);
    if (two)
        into_mlp = plim_nn_layer_norm(n, "ln_mlp", x, c->eps);
    uint32_t a = add_attention(h, c, before, rope, mask);
    if (!c->new_decoder && !c->parallel) {
        x = dropout_add(n, a, x, c->attention_dropout);
        into_mlp = plim_nn_layer_norm(n, "post_attention_layernorm", x, c->eps);
    }
    uint32_t y = add_mlp(h, c, into_mlp);
    if (c->new_decoder || c->parallel)
        y = plim_nn_binary(n, "aten.add_.Tensor", y, a);
    x = dropout_add(n, y, x, c->hidden_dropout);
    plim_hf_end_variables(n, (uint32_t[]){before, into_mlp, a, y}, 4);
    plim_nn_leave(n);
    return x;
}

/* ---- the model ---------------------------------------------------------------------------------- */

static void falcon_build(plim_hf *h, const void *p)
{
    config c = *(const config *)p;
    plim_nn *n = &h->n;
    uint32_t embedding;
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.norms = c.norms ? c.norms : c.new_decoder ? 2 : 1;
    plim_hf_check_heads(h, c.heads, c.kv_heads, c.hidden / c.heads);
    int64_t kv_heads = c.new_decoder ? c.kv_heads : c.multi_query ? 1 : c.heads;
    plim_hf_cache(h, (plim_kv_layers){.layers = c.layers,
                                      .heads = kv_heads,
                                      .keys = c.hidden / c.heads,
                                      .values = c.hidden / c.heads,
                                      .copies = c.new_decoder ? c.heads / kv_heads : 1});
    plim_hf_refuse(h, c.alibi, "alibi");
    plim_hf_tokens(h, "input_ids", c.positions, false);
    plim_nn_root(n, "FalconForCausalLM");
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "transformer", "FalconModel");
    plim_nn_order(n, "* rotary_emb");
    uint32_t x = plim_nn_embedding(n, "word_embeddings", ids, c.vocab, c.hidden, &embedding);
    uint32_t at = plim_hf_positions(h);
    uint32_t mask =
        plim_hf_causal_mask(h, (plim_hf_mask){.positions = PLIM_NONE, .always = true});
    plim_hf_rope rope =
        plim_hf_rotary(h, "FalconRotaryEmbedding", "", x, at, c.hidden / c.heads);
    for (int64_t i = 0; i < c.layers && !n->st; i++)
        x = add_layer(h, &c, i, x, rope, mask);
    x = plim_nn_layer_norm(n, "ln_f", x, c.eps);
    plim_nn_leave(n);
    x = plim_hf_lm_head(h, x, c.vocab, c.tie ? embedding : PLIM_NONE, false);
    plim_hf_causal_outputs(h, x);
}

/* clang-format off */
static const plim_hf_key falcon_keys[] = {
    HF_SIZE(vocab, "vocab_size", 65024),
    HF_SIZE(hidden, "hidden_size n_embed", 4544),
    HF_LAYERS(layers, "num_hidden_layers n_layer", 32),
    HF_SIZE(heads, "num_attention_heads n_head", 71),
    HF_GIVEN(kv_heads, "num_kv_heads n_head_kv"),
    HF_OPTION(norms, "num_ln_in_parallel_attn", 0),
    HF_GIVEN(ffn, "ffn_hidden_size"),
    HF_SIZE(positions, "max_position_embeddings", 2048),
    HF_REAL(eps, "layer_norm_epsilon", 1e-5),
    HF_SHARE(hidden_dropout, "hidden_dropout", 0),
    HF_SHARE(attention_dropout, "attention_dropout", 0),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_BOOL(bias, "bias", 0),
    HF_BOOL(alibi, "alibi", 0),
    HF_BOOL(multi_query, "multi_query", 1),
    HF_BOOL(new_decoder, "new_decoder_architecture", 0),
    HF_BOOL(parallel, "parallel_attn", 1),
    HF_WORD(act, "activation", "gelu"),
};
/* clang-format on */

static const plim_hf_family falcon_families[] = {{"falcon", "FalconForCausalLM", NULL, NULL}};

const plim_hf_group plim_hf_falcon = {
    .doc = "Falcon",
    .src = "transformers 5.23 models/falcon",
    .families = falcon_families,
    .n_families = PLIM_COUNT(falcon_families),
    .keys = falcon_keys,
    .n_keys = PLIM_COUNT(falcon_keys),
    .size = sizeof(config),
    .caches = true,
    .build = falcon_build,
};
