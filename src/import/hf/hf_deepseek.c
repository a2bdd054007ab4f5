/* hf_deepseek.c -- DeepSeek V2 and V3: latent attention, routed experts and a shared one.
 * src: transformers 5.23 models/{deepseek_v2,deepseek_v3}/modeling_*.py */
#include <math.h>

#include "import/hf/hf_moe.h"

typedef struct config {
    int64_t vocab, hidden, ffn, layers, heads, positions;
    int64_t q_rank, kv_rank, nope, rope, v_dim;
    int64_t experts, shared, top_k, expert_ffn, dense_layers, groups, top_groups;
    double eps, dropout, scaling;
    bool tie, bias, mlp_bias, norm_topk, interleave;
    plim_str act, method;
} config;

struct deepseek;

typedef struct row {
    const char *prefix, *moe; /* of classes; the class of the block with experts */
    plim_hf_routes (*route)(const struct deepseek *d, uint32_t x);
    bool complex; /* rotates through complex numbers */
} row;

typedef struct deepseek {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    const row *r;
    plim_hf_rope rope; /* complex: only .cos is used */
} deepseek;

static const double latent_eps = 1e-6; /* of the norms inside attention: the class's default */

static const char *class_of(const deepseek *d, const char *suffix)
{
    return plim_nn_join(d->n, d->r->prefix, suffix);
}

static uint32_t add_norm(const deepseek *d, const char *name, uint32_t x, double eps)
{
    return plim_hf_rms_norm(d->n, name, class_of(d, "RMSNorm"), x, eps);
}

/* ---- rotary positions ------------------------------------------------------------------ */

/* Complex numbers of length 1, [1, seq, rope / 2] */
static uint32_t complex_table(const deepseek *d, uint32_t positions)
{
    plim_nn *n = d->n;
    plim_nn_enter(n, "rotary_emb", class_of(d, "RotaryEmbedding"));
    uint32_t angle = plim_hf_angles(d->h, "", positions, d->c->rope);
    uint32_t one = plim_nn_unary(n, "aten.ones_like.default", angle);
    uint32_t t = NN_OP(n, "aten.polar.default", ARG_T("abs", one), ARG_T("angle", angle));
    t = plim_nn_scalar(n, "aten.mul.Tensor", t, 1);
    plim_nn_leave(n);
    return t;
}

static uint32_t to_complex(plim_nn *n, uint32_t x, int64_t half)
{
    x = plim_nn_to(n, x, PLIM_F32);
    x = plim_nn_reshape(
        n, x, INTS(plim_nn_dim(n, x, 0), plim_nn_dim(n, x, 1), plim_nn_dim(n, x, 2), half, 2));
    return plim_nn_unary(n, "aten.view_as_complex.default", x);
}

static uint32_t rotate_complex_part(plim_nn *n, uint32_t x, uint32_t table, uint32_t like)
{
    x = plim_nn_binary(n, "aten.mul.Tensor", x, table);
    x = plim_nn_unary(n, "aten.view_as_real.default", x);
    x = NN_OP(n, "aten.flatten.using_ints", ARG_T("self", x), ARG_I("start_dim", 3));
    return plim_nn_to_like(n, x, like);
}

static void apply_rope_complex(const deepseek *d, uint32_t *q, uint32_t *k)
{
    plim_nn *n = d->n;
    uint32_t cq = to_complex(n, *q, d->c->rope / 2), ck = to_complex(n, *k, d->c->rope / 2);
    uint32_t table = plim_nn_unsqueeze(n, d->rope.cos, 1);
    *q = rotate_complex_part(n, cq, table, *q);
    *k = rotate_complex_part(n, ck, table, *k);
}

/* apply_rotary_pos_emb_interleave: adjacent elements form pairs */
static void apply_rope_interleaved(const deepseek *d, uint32_t *q, uint32_t *k)
{
    plim_nn *n = d->n;
    plim_hf_rope r = {plim_nn_slice(n, d->rope.cos, 2, 0, d->c->rope / 2, 1),
                      plim_nn_slice(n, d->rope.sin, 2, 0, d->c->rope / 2, 1)};
    uint32_t *x[2] = {q, k}, even[2], odd[2], turned[2];
    r = plim_hf_rope_heads(n, r);
    for (int i = 0; i < 2; i++) {
        even[i] = plim_nn_slice(n, *x[i], 3, 0, INT64_MAX, 2);
        odd[i] = plim_nn_slice(n, *x[i], 3, 1, INT64_MAX, 2);
    }
    for (int i = 0; i < 2; i++) {
        plim_hf_apply_rope(n, even[i], odd[i], r, turned);
        *x[i] = plim_nn_cat(n, turned, 2, -1);
    }
}

static void apply_rope(const deepseek *d, uint32_t *q, uint32_t *k)
{
    if (d->r->complex) {
        apply_rope_complex(d, q, k);
    } else if (d->c->interleave) {
        apply_rope_interleaved(d, q, k);
    } else {
        plim_hf_rope r = plim_hf_rope_heads(d->n, d->rope);
        *q = plim_hf_rotate(d->n, *q, r);
        *k = plim_hf_rotate(d->n, *k, r);
    }
}

/* ---- attention ----------------------------------------------------------------------------- */

static uint32_t project_queries(const deepseek *d, uint32_t x)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    int64_t all = c->heads * (c->nope + c->rope);
    if (!c->q_rank)
        return plim_nn_linear(n, "q_proj", x, all, false);
    x = plim_nn_linear(n, "q_a_proj", x, c->q_rank, c->bias);
    x = add_norm(d, "q_a_layernorm", x, latent_eps);
    return plim_nn_linear(n, "q_b_proj", x, all, false);
}

/* [batch, seq, n heads of dim] to [batch, heads, seq, dim], in two parts */
static uint32_t heads_of(const deepseek *d, uint32_t x, int64_t first, int64_t second,
                         uint32_t part[2])
{
    x = plim_nn_view(d->n, x, INTS(d->h->batch, d->h->seq, -1, first + second));
    x = plim_nn_transpose(d->n, x, 1, 2);
    plim_nn_split(d->n, x, INTS(first, second), -1, part);
    return x;
}

/* expand_kv: keys from the latent and from the part that all heads share */
static uint32_t expand_keys(const deepseek *d, uint32_t whole, uint32_t nope, uint32_t rope)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    rope = plim_nn_expand(n, rope, INTS(-1, c->heads, -1, -1));
    uint32_t k =
        NN_OP(n, "aten.new_empty.default", ARG_T("self", whole),
              ARG_IS("size", INTS(d->h->batch, c->heads, d->h->seq, c->nope + c->rope)));
    uint32_t to = plim_nn_slice(n, k, 3, 0, c->nope, 1);
    NN_OP(n, "aten.copy_.default", ARG_T("self", to), ARG_T("src", nope));
    to = plim_nn_slice(n, k, 3, c->nope, INT64_MAX, 1);
    NN_OP(n, "aten.copy_.default", ARG_T("self", to), ARG_T("src", rope));
    return k;
}

static uint32_t add_attention(const deepseek *d, uint32_t x)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    int64_t b = d->h->batch, s = d->h->seq;
    uint32_t q[2], latent[2], kv[2];
    plim_nn_enter(n, "self_attn", class_of(d, "Attention"));
    heads_of(d, project_queries(d, x), c->nope, c->rope, q);
    x = plim_nn_linear(n, "kv_a_proj_with_mqa", x, c->kv_rank + c->rope, c->bias);
    plim_nn_split(n, x, INTS(c->kv_rank, c->rope), -1, latent);
    latent[0] = add_norm(d, "kv_a_layernorm", latent[0], latent_eps);
    latent[0] = plim_nn_view(n, latent[0], INTS(b, 1, s, c->kv_rank));
    latent[1] = plim_nn_view(n, latent[1], INTS(b, 1, s, c->rope));
    apply_rope(d, &q[1], &latent[1]);
    plim_hf_update_cache(d->h, &latent[0], &latent[1], 0);
    plim_hf_attention a = {.mask = d->h->mask,
                           .sinks = PLIM_NONE,
                           .causal = true,
                           .scale = 1 / sqrt((double)(c->nope + c->rope)),
                           .dropout = c->dropout};
    a.q = plim_nn_cat(n, q, 2, -1);
    x = plim_nn_linear(n, "kv_b_proj", latent[0], c->heads * (c->nope + c->v_dim), false);
    x = heads_of(d, x, c->nope, c->v_dim, kv);
    a.k = expand_keys(d, x, kv[0], latent[1]);
    a.v = kv[1];
    x = plim_nn_reshape(n, plim_hf_attend(d->h, a), INTS(b, s, -1));
    x = plim_nn_linear(n, "o_proj", x, c->hidden, c->bias);
    plim_nn_leave(n);
    return x;
}

/* ---- the MLP ---------------------------------------------------------------------------------- */

static uint32_t add_mlp(const deepseek *d, const char *name, int64_t ffn, uint32_t x)
{
    return plim_hf_gated_mlp(d->h, name, class_of(d, "MLP"), d->c->act, x, ffn,
                             d->c->mlp_bias);
}

/* in fp32, including the weights */
static uint32_t router_logits(const deepseek *d, uint32_t x)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    uint32_t w = plim_nn_param(n, "weight", INTS(c->experts, c->hidden));
    x = plim_nn_view(n, x, INTS(-1, c->hidden));
    x = plim_nn_to(n, x, PLIM_F32);
    return plim_nn_linear_op(n, x, plim_nn_to(n, w, PLIM_F32), PLIM_NONE);
}

/* Masks experts outside the best groups with `value`. */
static uint32_t best_groups(const deepseek *d, uint32_t scores, uint32_t group, double value)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    uint32_t top[2];
    plim_hf_topk(n, group, c->top_groups, top);
    uint32_t mask = plim_nn_unary(n, "aten.zeros_like.default", group);
    mask = NN_OP(n, "aten.scatter_.value", ARG_T("self", mask), ARG_I("dim", 1),
                 ARG_T("index", top[1]), ARG_I("value", 1));
    mask = plim_nn_unsqueeze(n, mask, -1);
    mask = plim_nn_expand(n, mask, INTS(-1, c->groups, c->experts / c->groups));
    mask = plim_nn_reshape(n, mask, INTS(-1, c->experts));
    mask = plim_nn_to(n, mask, PLIM_BOOL);
    mask = plim_nn_unary(n, "aten.bitwise_not.default", mask);
    return NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", scores), ARG_T("mask", mask),
                 ARG_F("value", value));
}

static uint32_t grouped_scores(const deepseek *d, uint32_t scores)
{
    const config *c = d->c;
    return plim_nn_view(d->n, scores, INTS(-1, c->groups, c->experts / c->groups));
}

static plim_hf_routes route_v2(const deepseek *d, uint32_t x)
{
    plim_nn *n = d->n;
    uint32_t top[2], logits = router_logits(d, x), scores = plim_hf_softmax32(n, logits, -1);
    if (plim_str_is(d->c->method, "group_limited_greedy")) {
        const plim_named_arg a[] = {ARG_T("self", grouped_scores(d, scores)),
                                    ARG_I("dim", -1)};
        plim_nn_node(n, "aten.max.dim", a, PLIM_COUNT(a), top, 2);
        scores = best_groups(d, scores, top[0], 0);
    }
    plim_hf_topk(n, scores, d->c->top_k, top);
    return (plim_hf_routes){plim_nn_scalar(n, "aten.mul.Tensor", top[0], d->c->scaling),
                            top[1], logits};
}

static plim_hf_routes route_v3(const deepseek *d, uint32_t x)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    uint32_t top[2], two[2], logits = router_logits(d, x);
    uint32_t bias = plim_nn_buffer(n, "e_score_correction_bias", PLIM_F32, INTS(c->experts));
    uint32_t scores = plim_nn_unary(n, "aten.sigmoid.default", logits);
    uint32_t choice = plim_nn_binary(n, "aten.add.Tensor", scores, bias);
    plim_hf_topk(n, grouped_scores(d, choice), 2, two);
    choice = best_groups(d, choice, plim_hf_sum(n, two[0], -1, false), -HUGE_VAL);
    plim_hf_topk(n, choice, c->top_k, top);
    uint32_t w = NN_OP(n, "aten.gather.default", ARG_T("self", scores), ARG_I("dim", 1),
                       ARG_T("index", top[1]));
    if (c->norm_topk) {
        uint32_t sum = plim_hf_sum(n, w, -1, true);
        sum = plim_nn_scalar(n, "aten.add.Tensor", sum, 1e-20);
        w = plim_nn_binary(n, "aten.div_.Tensor", w, sum);
    }
    return (plim_hf_routes){plim_nn_scalar(n, "aten.mul.Tensor", w, c->scaling), top[1],
                            logits};
}

static uint32_t sparse_mlp(const deepseek *d, uint32_t x)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    const plim_hf_experts e = {.type = class_of(d, "Experts"),
                               .experts = c->experts,
                               .ffn = c->expert_ffn,
                               .act = c->act};
    plim_nn_enter(n, "mlp", class_of(d, d->r->moe));
    plim_nn_order(n, "experts gate *");
    plim_nn_enter(n, "gate", class_of(d, "TopkRouter"));
    plim_hf_routes r = d->r->route(d, x);
    plim_nn_leave(n);
    plim_nn_holds(n, r.logits);
    uint32_t y = plim_nn_view(n, x, INTS(-1, c->hidden));
    y = plim_hf_run_experts(d->h, &e, y, r);
    y = plim_nn_view(n, y, INTS(d->h->batch, d->h->seq, c->hidden));
    x = add_mlp(d, "shared_experts", c->expert_ffn * c->shared, x);
    x = plim_nn_binary(n, "aten.add.Tensor", y, x);
    plim_nn_leave(n);
    return x;
}

/* ---- the model ---------------------------------------------------------------------------------- */

static uint32_t add_layer(const deepseek *d, int64_t i, uint32_t x)
{
    const config *c = d->c;
    plim_nn *n = d->n;
    plim_hf_layer(d->h, plim_nn_name(n, "layers.", i), class_of(d, "DecoderLayer"), x);
    plim_nn_order(n, "self_attn mlp *");
    uint32_t y = add_attention(d, add_norm(d, "input_layernorm", x, c->eps));
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    y = add_norm(d, "post_attention_layernorm", x, c->eps);
    y = i < c->dense_layers ? add_mlp(d, "mlp", c->ffn, y) : sparse_mlp(d, y);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    plim_nn_leave(n);
    return x;
}

static void check_config(plim_hf *h, const config *c, bool v3)
{
    bool grouped = v3 || plim_str_is(c->method, "group_limited_greedy");
    plim_hf_check_heads(h, c->heads, c->heads, c->nope + c->rope);
    plim_hf_check_heads(h, c->heads, c->heads, c->nope + c->v_dim);
    if (grouped && (!c->groups || c->experts % c->groups))
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "%" PRId64 " experts cannot be split into %" PRId64 " groups", c->experts,
                     c->groups);
    if (c->shared > INT32_MAX / c->expert_ffn)
        plim_nn_fail(&h->n, PLIM_ERANGE,
                     "%" PRId64 " shared experts of size %" PRId64 " exceed the limit of %d",
                     c->shared, c->expert_ffn, (int)INT32_MAX);
}

static void deepseek_build(plim_hf *h, const void *p)
{
    config own = *(const config *)p, *c = &own;
    deepseek d = {.h = h, .n = &h->n, .c = c, .r = h->family->row};
    plim_nn *n = &h->n;
    uint32_t embedding;
    c->top_k =
        c->top_k ? c->top_k : 1; /* null in the class: it has weights, but does not run */
    check_config(h, c, !d.r->complex);
    plim_hf_cache(
        h, (plim_kv_layers){.layers = c->layers, .heads = 1, .keys = c->kv_rank + c->rope});
    plim_hf_tokens(h, "input_ids", c->positions, false);
    if (n->st)
        return;
    plim_nn_root(n, class_of(&d, "ForCausalLM"));
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "model", class_of(&d, "Model"));
    plim_nn_order(n, "* rotary_emb");
    uint32_t x = plim_nn_embedding(n, "embed_tokens", ids, c->vocab, c->hidden, &embedding);
    uint32_t positions = plim_hf_positions(h);
    plim_hf_causal_mask(h, (plim_hf_mask){.positions = positions});
    if (d.r->complex)
        d.rope.cos = complex_table(&d, positions);
    else
        d.rope = plim_hf_rotary(h, class_of(&d, "RotaryEmbedding"), "", x, positions, c->rope);
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_layer(&d, i, x);
    x = add_norm(&d, "norm", x, c->eps);
    plim_nn_leave(n);
    x = plim_hf_lm_head(h, x, c->vocab, c->tie ? embedding : PLIM_NONE, false);
    plim_hf_causal_outputs(h, x);
}

/* clang-format off */
static const plim_hf_key deepseek_keys[] = {
    HF_SIZE(vocab, "vocab_size", 102400),
    HF_SIZE(hidden, "hidden_size", 4096),
    HF_SIZE(ffn, "intermediate_size", 11008),
    HF_LAYERS(layers, "num_hidden_layers", 32),
    HF_SIZE(heads, "num_attention_heads", 32),
    HF_SIZE(positions, "max_position_embeddings", 2048),
    HF_OPTION_OR_NULL(q_rank, "q_lora_rank", 1536),
    HF_SIZE(kv_rank, "kv_lora_rank", 512),
    HF_SIZE(nope, "qk_nope_head_dim", 128),
    HF_SIZE(rope, "qk_rope_head_dim", 64),
    HF_SIZE(v_dim, "v_head_dim", 128),
    HF_SIZE(experts, "n_routed_experts num_experts num_local_experts", 64),
    HF_SIZE(shared, "n_shared_experts", 2),
    {HF_ROW(top_k, "num_experts_per_tok", OPTION), .number = 0, .max = 1024},
    HF_SIZE(expert_ffn, "moe_intermediate_size", 1407),
    HF_OPTION(dense_layers, "first_k_dense_replace", 0),
    HF_OPTION(groups, "n_group", 0),
    HF_OPTION(top_groups, "topk_group", 0),
    HF_REAL(eps, "rms_norm_eps", 1e-6),
    HF_SHARE(dropout, "attention_dropout", 0),
    HF_REAL(scaling, "routed_scaling_factor", 1),
    HF_BOOL(tie, "tie_word_embeddings", 0),
    HF_BOOL(bias, "attention_bias", 0),
    HF_BOOL(mlp_bias, "mlp_bias", 0),
    HF_BOOL(norm_topk, "norm_topk_prob", 0),
    HF_BOOL(interleave, "rope_interleave", 1),
    HF_WORD(act, "hidden_act", "silu"),
    HF_WORD(method, "topk_method", "greedy"),
};

HF_DEFAULTS(v3_defaults, HF_IS("vocab_size", 129280), HF_IS("hidden_size", 7168), HF_IS("intermediate_size", 18432),
            HF_IS("num_hidden_layers", 61), HF_IS("num_attention_heads", 128), HF_IS("max_position_embeddings", 4096),
            HF_IS("n_routed_experts", 256), HF_IS("n_shared_experts", 1), HF_IS("num_experts_per_tok", 8),
            HF_IS("moe_intermediate_size", 2048), HF_IS("first_k_dense_replace", 3), HF_IS("n_group", 8),
            HF_IS("topk_group", 4), HF_IS("routed_scaling_factor", 2.5), HF_IS("norm_topk_prob", 1));

static const row v2_row = {"DeepseekV2", "Moe", route_v2, true};
static const row v3_row = {"DeepseekV3", "MoE", route_v3, false};
static const plim_hf_family deepseek_families[] = {
    {"deepseek_v2", "DeepseekV2ForCausalLM", NULL, &v2_row},
    {"deepseek_v3", "DeepseekV3ForCausalLM", v3_defaults, &v3_row},
};
/* clang-format on */

const plim_hf_group plim_hf_deepseek = {
    .doc = "decoders with latent attention and shared experts",
    .src = "transformers 5.23 models/{deepseek_v2,deepseek_v3}",
    .families = deepseek_families,
    .n_families = PLIM_COUNT(deepseek_families),
    .keys = deepseek_keys,
    .n_keys = PLIM_COUNT(deepseek_keys),
    .size = sizeof(config),
    .caches = true,
    .build = deepseek_build,
};
