/* hf_gptj.c -- GPT-J: attention in parallel with the MLP, eager, rotating adjacent pairs.
 * src: transformers 5.23 models/gptj/modeling_gptj.py */

#include "import/hf/hf_parts.h"

typedef struct config {
    int64_t vocab, positions, hidden, layers, heads, inner, rotary;
    double eps, resid_dropout, embed_dropout, attention_dropout;
    bool tie;
    plim_str act;
} config;

static uint32_t swap_heads(plim_nn *n, uint32_t x)
{
    return plim_nn_permute(n, x, INTS(0, 2, 1, 3));
}

/* The tables of sines and cosines at these positions, [1, seq, rotary / 2] each. */
static void look_up(plim_hf *h, const config *c, uint32_t table, uint32_t positions,
                    uint32_t out[2])
{
    plim_nn *n = &h->n;
    uint32_t t = NN_OP(n, "aten.repeat.default", ARG_T("self", table),
                       ARG_IS("repeats", INTS(1, 1, 1)));
    uint32_t at = plim_nn_unsqueeze(n, positions, -1);
    at = NN_OP(n, "aten.repeat.default", ARG_T("self", at),
               ARG_IS("repeats", INTS(1, 1, c->rotary)));
    const uint32_t held[] = {t, at}; /* embed_positions and repeated_position_ids */
    t = NN_OP(n, "aten.gather.default", ARG_T("self", t), ARG_I("dim", 1), ARG_T("index", at));
    plim_nn_called(n, (uint32_t[]){held[0], held[1], t}, 3); /* until it returns */
    plim_nn_split(n, t, INTS(c->rotary / 2, c->rotary / 2), -1, out);
}

static uint32_t repeat_pairs(plim_nn *n, uint32_t x)
{
    x = plim_nn_unsqueeze(n, x, 2);
    return NN_OP(n, "aten.repeat_interleave.self_int", ARG_T("self", x), ARG_I("repeats", 2),
                 ARG_I("dim", 3));
}

/* apply_rotary_pos_emb: x cos + rotate_every_two(x) sin */
static uint32_t apply_rope(plim_nn *n, uint32_t x, const uint32_t table[2])
{
    uint32_t sin = repeat_pairs(n, table[0]), cos = repeat_pairs(n, table[1]);
    uint32_t y = plim_nn_binary(n, "aten.mul.Tensor", x, cos);
    uint32_t even = plim_nn_slice(n, x, 3, 0, INT64_MAX, 2);
    uint32_t odd = plim_nn_slice(n, x, 3, 1, INT64_MAX, 2);
    uint32_t pair[2] = {plim_nn_unary(n, "aten.neg.default", odd), even};
    x = NN_OP(n, "aten.stack.default", ARG_TS("tensors", pair, 2), ARG_I("dim", -1));
    x = NN_OP(n, "aten.flatten.using_ints", ARG_T("self", x), ARG_I("start_dim", -2));
    x = plim_nn_binary(n, "aten.mul.Tensor", x, sin);
    return plim_nn_binary(n, "aten.add.Tensor", y, x);
}

static void rotate_both(plim_nn *n, const config *c, uint32_t *q, uint32_t *k,
                        const uint32_t table[2])
{
    uint32_t k_part = plim_nn_slice(n, *k, 3, 0, c->rotary, 1);
    uint32_t k_rest = plim_nn_slice(n, *k, 3, c->rotary, INT64_MAX, 1);
    uint32_t q_part = plim_nn_slice(n, *q, 3, 0, c->rotary, 1);
    uint32_t q_rest = plim_nn_slice(n, *q, 3, c->rotary, INT64_MAX, 1);
    const uint32_t was[2] = {*k, *q};
    k_part = apply_rope(n, k_part, table);
    q_part = apply_rope(n, q_part, table);
    const uint32_t held[] = {k_part, k_rest, q_part, q_rest}; /* until it returns */
    plim_nn_hold_all(n, held, PLIM_COUNT(held));
    *k = plim_nn_cat(n, (uint32_t[]){k_part, k_rest}, 2, -1);
    *q = plim_nn_cat(n, (uint32_t[]){q_part, q_rest}, 2, -1);
    plim_hf_end_variables(n, was, 2);
    *k = swap_heads(n, *k);
    *q = swap_heads(n, *q);
}

/* _attn, in fp32 up to the softmax */
static uint32_t eager_attention(plim_nn *n, const config *c, uint32_t q, uint32_t k,
                                uint32_t v, uint32_t mask)
{
    double root = plim_hf_head_root(c->hidden, c->heads);
    q = plim_nn_to(n, q, PLIM_F32);
    k = plim_nn_to(n, k, PLIM_F32);
    uint32_t w = plim_nn_binary(n, "aten.matmul.default", q, plim_nn_transpose(n, k, -1, -2));
    w = plim_nn_scalar(n, "aten.div.Tensor", w, root);
    w = plim_nn_binary(n, "aten.add.Tensor", w, mask);
    w = plim_nn_softmax(n, w, -1);
    w = plim_nn_to_like(n, w, v);
    w = plim_nn_dropout(n, "attn_dropout", w, c->attention_dropout);
    plim_nn_returned(n, w, 0);
    uint32_t y = plim_nn_binary(n, "aten.matmul.default", w, v);
    plim_hf_end_variables(n, (uint32_t[]){q, k}, 2);
    return y;
}

static uint32_t add_attention(plim_hf *h, const config *c, uint32_t x, uint32_t positions,
                              uint32_t mask)
{
    plim_nn *n = &h->n;
    plim_ints heads = INTS(h->batch, h->seq, c->heads, c->hidden / c->heads);
    uint32_t table[2];
    plim_nn_enter(n, "attn", "GPTJAttention");
    plim_nn_order(n, "k_proj v_proj q_proj *");
    uint32_t all =
        plim_nn_fp32_buffer(n, "embed_positions", INTS(c->positions, c->rotary), false);
    uint32_t q = plim_nn_linear(n, "q_proj", x, c->hidden, false);
    uint32_t k = plim_nn_linear(n, "k_proj", x, c->hidden, false);
    uint32_t v = plim_nn_linear(n, "v_proj", x, c->hidden, false);
    q = plim_nn_view(n, q, heads);
    k = plim_nn_view(n, k, heads);
    v = swap_heads(n, plim_nn_view(n, v, heads));
    look_up(h, c, all, positions, table);
    rotate_both(n, c, &q, &k, table);
    plim_hf_update_cache(h, &k, &v, 0);
    const uint32_t held[] = {q, k, v}; /* variables, until it returns */
    plim_nn_hold_all(n, held, PLIM_COUNT(held));
    x = plim_nn_contiguous(n, swap_heads(n, eager_attention(n, c, q, k, v, mask)));
    x = plim_nn_view(n, x, INTS(h->batch, h->seq, c->hidden));
    x = plim_nn_linear(n, "out_proj", x, c->hidden, false);
    x = plim_nn_dropout(n, "resid_dropout", x, c->resid_dropout);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_mlp(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "mlp", "GPTJMLP");
    x = plim_hf_mlp(h, (plim_hf_ffn){"fc_in", "act", "fc_out"}, c->act, x,
                    c->inner ? c->inner : 4 * c->hidden, true);
    x = plim_nn_dropout(n, "dropout", x, c->resid_dropout);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_block(plim_hf *h, const config *c, int64_t i, uint32_t x,
                          uint32_t positions, uint32_t mask)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, plim_nn_name(n, "h.", i), "GPTJBlock");
    uint32_t y = plim_nn_layer_norm(n, "ln_1", x, c->eps);
    uint32_t a = add_attention(h, c, y, positions, mask);
    uint32_t z = add_mlp(h, c, y);
    x = plim_nn_binary(n, "aten.add.Tensor", plim_nn_binary(n, "aten.add.Tensor", a, z), x);
    plim_hf_end_variables(n, (uint32_t[]){y, a, z}, 3);
    plim_nn_leave(n);
    return x;
}

static void gptj_build(plim_hf *h, const void *p)
{
    const config *c = p;
    plim_nn *n = &h->n;
    uint32_t embedding;
    plim_hf_check_heads(h, c->heads, c->heads, c->hidden / c->heads);
    plim_hf_cache_heads(h, c->layers, c->heads, c->hidden / c->heads);
    plim_hf_tokens(h, "input_ids", c->positions, true);
    plim_nn_root(n, "GPTJForCausalLM");
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "transformer", "GPTJModel");
    uint32_t x = plim_nn_embedding(n, "wte", ids, c->vocab, c->hidden, &embedding);
    uint32_t positions = plim_hf_positions(h);
    h->eager = true;
    plim_hf_attends(h);
    uint32_t mask = plim_hf_causal_mask(h, (plim_hf_mask){.positions = positions});
    plim_nn_holds(n, x); /* inputs_embeds */
    x = plim_nn_dropout(n, "drop", x, c->embed_dropout);
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_block(h, c, i, x, positions, mask);
    x = plim_nn_layer_norm(n, "ln_f", x, c->eps);
    x = plim_nn_view(n, x, INTS(-1, h->seq, c->hidden));
    plim_nn_leave(n);
    x = plim_hf_lm_head(h, x, c->vocab, c->tie ? embedding : PLIM_NONE, true);
    plim_hf_causal_outputs(h, x);
}

/* clang-format off */
static const plim_hf_key gptj_keys[] = {
    HF_SIZE(vocab, "vocab_size", 50400),
    HF_SIZE(positions, "n_positions max_position_embeddings", 2048),
    HF_SIZE(hidden, "n_embd hidden_size", 4096),
    HF_LAYERS(layers, "n_layer num_hidden_layers", 28),
    HF_SIZE(heads, "n_head num_attention_heads", 16),
    HF_SIZE(rotary, "rotary_dim", 64),
    HF_GIVEN(inner, "n_inner"),
    HF_REAL(eps, "layer_norm_epsilon", 1e-5),
    HF_SHARE(resid_dropout, "resid_pdrop", 0),
    HF_SHARE(embed_dropout, "embd_pdrop", 0),
    HF_SHARE(attention_dropout, "attn_pdrop", 0),
    HF_BOOL(tie, "tie_word_embeddings", 0),
    HF_WORD(act, "activation_function", "gelu_new"),
};
/* clang-format on */

static const plim_hf_family gptj_families[] = {{"gptj", "GPTJForCausalLM", NULL, NULL}};

const plim_hf_group plim_hf_gptj = {
    .doc = "GPT-J",
    .src = "transformers 5.23 models/gptj",
    .families = gptj_families,
    .n_families = PLIM_COUNT(gptj_families),
    .keys = gptj_keys,
    .n_keys = PLIM_COUNT(gptj_keys),
    .size = sizeof(config),
    .caches = true,
    .build = gptj_build,
};
