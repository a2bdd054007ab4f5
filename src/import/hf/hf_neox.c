/* hf_neox.c -- decoders with LayerNorm that rotate a part of each head and run attention and
 * MLP in parallel: GPT-NeoX (Pythia) and Phi.
 * src: transformers 5.23 models/{gpt_neox,phi}/modeling_*.py */

#include "import/hf/hf_parts.h"

typedef struct config {
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, positions;
    double eps, attention_dropout, hidden_dropout, embed_dropout, partial;
    bool tie, bias, parallel, qk_norm;
    plim_str act;
} config;

/* [batch, heads, seq, dim] */
static uint32_t heads_of(plim_hf *h, uint32_t x, int64_t dim)
{
    x = plim_nn_view(&h->n, x, INTS(h->batch, h->seq, -1, dim));
    return plim_nn_transpose(&h->n, x, 1, 2);
}

static uint32_t rotary_attention(plim_hf *h, const config *c, plim_hf_attention a,
                                 plim_hf_rope rope, bool own)
{
    plim_nn *n = &h->n;
    a.mask = h->mask;
    a.sinks = PLIM_NONE;
    a.causal = true;
    a.scale = 1 / plim_hf_head_root(c->hidden, c->heads);
    a.dropout = c->attention_dropout;
    plim_hf_rotate_parts(n, &a.q, &a.k, plim_hf_rope_heads(n, rope), own);
    plim_hf_update_cache(h, &a.k, &a.v, 0);
    const uint32_t held[] = {a.q, a.k, a.v}; /* variables, until it returns */
    plim_nn_hold_all(n, held, PLIM_COUNT(held));
    return plim_nn_reshape(n, plim_hf_attend(h, a), INTS(h->batch, h->seq, -1));
}

/* ---- GPT-NeoX ------------------------------------------------------------------------ */

static uint32_t neox_attention(plim_hf *h, const config *c, uint32_t x, plim_hf_rope rope)
{
    plim_nn *n = &h->n;
    uint32_t part[3];
    plim_nn_enter(n, "attention", "GPTNeoXAttention");
    x = plim_nn_linear(n, "query_key_value", x, 3 * c->hidden, c->bias);
    x = heads_of(h, x, 3 * (c->hidden / c->heads));
    plim_nn_holds(n, x); /* qkv */
    plim_nn_chunk(n, x, 3, -1, part);
    x = rotary_attention(h, c, (plim_hf_attention){.q = part[0], .k = part[1], .v = part[2]},
                         rope, true);
    x = plim_nn_linear(n, "dense", x, c->hidden, c->bias);
    plim_nn_leave(n);
    return x;
}

static uint32_t neox_mlp(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "mlp", "GPTNeoXMLP");
    x = plim_hf_mlp(h, (plim_hf_ffn){"dense_h_to_4h", "act", "dense_4h_to_h"}, c->act, x,
                    c->ffn, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t neox_layer(plim_hf *h, const config *c, int64_t i, uint32_t x,
                           plim_hf_rope rope)
{
    plim_nn *n = &h->n;
    plim_hf_layer(h, plim_nn_name(n, "layers.", i), "GPTNeoXLayer", x);
    plim_nn_order(n, "input_layernorm post_attention_layernorm attention *");
    uint32_t y = plim_nn_layer_norm(n, "input_layernorm", x, c->eps);
    y = neox_attention(h, c, y, rope);
    y = plim_nn_dropout(n, "post_attention_dropout", y, c->hidden_dropout);
    if (!c->parallel)
        x = y = plim_nn_binary(n, "aten.add.Tensor", y, x);
    uint32_t z = plim_nn_layer_norm(n, "post_attention_layernorm", x, c->eps);
    z = neox_mlp(h, c, z);
    z = plim_nn_dropout(n, "post_mlp_dropout", z, c->hidden_dropout);
    const uint32_t outputs[] = {y, z}; /* attn_output and mlp_output */
    z = plim_nn_binary(n, "aten.add.Tensor", z, y);
    if (c->parallel)
        z = plim_nn_binary(n, "aten.add.Tensor", z, x);
    plim_hf_end_variables(n, outputs, 2);
    plim_nn_leave(n);
    return z;
}

/* ---- Phi --------------------------------------------------------------------------------- */

static uint32_t phi_attention(plim_hf *h, const config *c, uint32_t x, plim_hf_rope rope)
{
    plim_nn *n = &h->n;
    int64_t dim = c->hidden / c->heads, kv = c->kv_heads ? c->kv_heads : c->heads;
    plim_hf_attention a;
    plim_nn_enter(n, "self_attn", "PhiAttention");
    a.q = heads_of(h, plim_nn_linear(n, "q_proj", x, c->heads * dim, true), dim);
    a.k = heads_of(h, plim_nn_linear(n, "k_proj", x, kv * dim, true), dim);
    a.v = heads_of(h, plim_nn_linear(n, "v_proj", x, kv * dim, true), dim);
    x = rotary_attention(h, c, (plim_hf_attention){.q = a.q, .k = a.k, .v = a.v}, rope, false);
    x = plim_nn_linear(n, "dense", x, c->hidden, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t phi_mlp(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "mlp", "PhiMLP");
    x = plim_hf_mlp(h, (plim_hf_ffn){"fc1", "activation_fn", "fc2"}, c->act, x, c->ffn, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t phi_layer(plim_hf *h, const config *c, int64_t i, uint32_t x,
                          plim_hf_rope rope)
{
    plim_nn *n = &h->n;
    plim_hf_layer(h, plim_nn_name(n, "layers.", i), "PhiDecoderLayer", x);
    plim_nn_order(n, "self_attn mlp *");
    uint32_t y = plim_nn_layer_norm(n, "input_layernorm", x, c->eps);
    uint32_t a = phi_attention(h, c, y, rope);
    a = plim_nn_dropout(n, "resid_dropout", a, c->hidden_dropout);
    uint32_t z = plim_nn_dropout(n, "resid_dropout", phi_mlp(h, c, y), c->hidden_dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", plim_nn_binary(n, "aten.add.Tensor", a, z), x);
    plim_hf_end_variables(n, (uint32_t[]){y, a, z}, 3);
    plim_nn_leave(n);
    return x;
}

/* ---- the model ------------------------------------------------------------------------------ */

typedef struct row {
    const char *prefix, *base; /* of classes; the name of the decoder within the model */
    const char *embedding, *dropout, *norm, *order;
    uint32_t (*layer)(plim_hf *h, const config *c, int64_t i, uint32_t x, plim_hf_rope rope);
    bool head_bias;
} row;

static void neox_build(plim_hf *h, const void *p)
{
    const config *c = p;
    const row *r = h->family->row;
    plim_nn *n = &h->n;
    uint32_t embedding;
    int64_t dim = c->hidden / c->heads, kv = c->kv_heads ? c->kv_heads : c->heads;
    plim_hf_check_heads(h, c->heads, kv, dim);
    plim_hf_cache_heads(h, c->layers, kv, dim);
    plim_hf_refuse(h, c->qk_norm, "qk_layernorm");
    plim_hf_tokens(h, "input_ids", c->positions, false);
    plim_nn_root(n, plim_nn_join(n, r->prefix, "ForCausalLM"));
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, r->base, plim_nn_join(n, r->prefix, "Model"));
    plim_nn_order(n, r->order);
    uint32_t x = plim_nn_embedding(n, r->embedding, ids, c->vocab, c->hidden, &embedding);
    uint32_t at = plim_hf_positions(h);
    plim_hf_causal_mask(h, (plim_hf_mask){.positions = at});
    plim_nn_holds(n, x); /* inputs_embeds */
    x = plim_nn_dropout(n, r->dropout, x, c->embed_dropout);
    plim_hf_rope rope = plim_hf_rotary(h, plim_nn_join(n, r->prefix, "RotaryEmbedding"), "", x,
                                       at, (int64_t)((double)dim * c->partial));
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = r->layer(h, c, i, x, rope);
    x = plim_nn_layer_norm(n, r->norm, x, c->eps);
    plim_nn_leave(n);
    x = plim_hf_lm_head(h, x, c->vocab, c->tie ? embedding : PLIM_NONE, r->head_bias);
    plim_hf_causal_outputs(h, x);
}

/* clang-format off */
static const plim_hf_key neox_keys[] = {
    HF_SIZE(vocab, "vocab_size", 50432),
    HF_SIZE(hidden, "hidden_size", 6144),
    HF_SIZE(ffn, "intermediate_size", 24576),
    HF_LAYERS(layers, "num_hidden_layers", 44),
    HF_SIZE(heads, "num_attention_heads", 64),
    HF_GIVEN(kv_heads, "num_key_value_heads"),
    HF_SIZE(positions, "max_position_embeddings", 2048),
    HF_REAL(eps, "layer_norm_eps", 1e-5),
    HF_SHARE(attention_dropout, "attention_dropout", 0),
    HF_SHARE(hidden_dropout, "hidden_dropout resid_pdrop", 0),
    HF_SHARE(embed_dropout, "embd_pdrop", 0),
    HF_SHARE(partial, "rope_parameters.partial_rotary_factor rotary_pct partial_rotary_factor", 0.25),
    HF_BOOL(tie, "tie_word_embeddings", 0),
    HF_BOOL(bias, "attention_bias", 1),
    HF_BOOL(parallel, "use_parallel_residual", 1),
    HF_BOOL(qk_norm, "qk_layernorm", 0),
    HF_WORD(act, "hidden_act", "gelu"),
};

HF_DEFAULTS(phi_defaults, HF_IS("vocab_size", 51200), HF_IS("hidden_size", 2048), HF_IS("intermediate_size", 8192),
            HF_IS("num_hidden_layers", 24), HF_IS("num_attention_heads", 32),
            HF_IS("rope_parameters.partial_rotary_factor", 0.5), HF_SAYS("hidden_act", "gelu_new"));

static const row neox_row = {"GPTNeoX", "gpt_neox", "embed_in", "emb_dropout", "final_layer_norm",
                             "* rotary_emb", neox_layer, false};
static const row phi_row = {"Phi", "model", "embed_tokens", "embed_dropout", "final_layernorm",
                            "* rotary_emb final_layernorm", phi_layer, true};
static const plim_hf_family neox_families[] = {
    {"gpt_neox", "GPTNeoXForCausalLM", NULL, &neox_row},
    {"phi", "PhiForCausalLM", phi_defaults, &phi_row},
};
/* clang-format on */

const plim_hf_group plim_hf_neox = {
    .doc = "decoders with LayerNorm, heads rotated in part, attention parallel to the MLP",
    .src = "transformers 5.23 models/{gpt_neox,phi}",
    .families = neox_families,
    .n_families = PLIM_COUNT(neox_families),
    .keys = neox_keys,
    .n_keys = PLIM_COUNT(neox_keys),
    .size = sizeof(config),
    .caches = true,
    .build = neox_build,
};
