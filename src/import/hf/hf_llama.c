/* hf_llama.c -- Llama and its descendants: RMSNorm, rotary positions, grouped keys and values,
 * a gated MLP.
 * src: transformers 5.23 models/{llama,mistral,qwen2,qwen3,gemma,gemma2,gemma3}/ */
#include <math.h>

#include "import/hf/hf_moe.h"

typedef struct config {
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, positions;
    int64_t window, pattern, max_window_layers;
    double eps, dropout, query_scalar, softcap, final_softcap;
    double resid_dropout, partial; /* partial: the fraction of a head that is rotated */
    bool tie, attention_bias, mlp_bias, use_window;
    plim_str act, layer_types;
    int64_t experts, top_k, expert_ffn, shared_ffn, sparse_step;
    bool norm_topk;
    plim_str dense_layers;
} config;

/* Which layers attend only to the last `window` tokens, unless the file has layer_types. */
typedef enum windows {
    WINDOW_NONE,
    WINDOW_ALL,         /* all of them, if there is a window */
    WINDOW_ALL_IF_USED, /* the same, with use_sliding_window */
    WINDOW_PATTERN,     /* all but every `pattern`-th */
    WINDOW_HIGHEST,     /* with use_sliding_window: from max_window_layers on */
    WINDOW_LOWEST,      /* with use_sliding_window: every second below max_window_layers */
} windows;

struct llama;

/* How a model type routes tokens to experts. */
typedef struct moe {
    const char *block, *router; /* "SparseMoeBlock", "gate" */
    const char *order;          /* order of registration in the block */
    plim_hf_routes (*route)(const struct llama *l, uint32_t x);
    bool own_ffn;  /* moe_intermediate_size, not intermediate_size */
    bool shared;   /* and one expert for all tokens */
    bool or_dense; /* no experts: an ordinary feed-forward part */
} moe;

/* Peculiarities of a model type. */
typedef struct row {
    const char *prefix; /* of its classes */
    windows windows;
    bool qkv_bias;     /* whatever the file says */
    bool qk_norm;      /* of each head's queries and keys ... */
    bool late_qk_norm; /* ... after all are projected */
    bool gemma;        /* norms with a factor of 1 + weight, embedding times sqrt(hidden) */
    bool post_norms;   /* norms also after attention and MLP */
    bool query_scalar; /* attention scaled by 1 / sqrt(query_pre_attn_scalar) */
    bool eager;        /* eager attention, unless sdpa is asked for, which has no soft cap */
    bool two_tables;   /* of rotary positions: layers with a window have their own */
    const char *model; /* class of the decoder; NULL: "Model" */
    bool fused;        /* Phi-3: one product for q, k and v, one for gate and up */
    bool oss;          /* gpt-oss: sinks, cos and sin of half a head, norms in fp32 */
    int computed,
        shared; /* releases since which rotary positions are computed and not looked up in each layer, and since
                             which once for all layers; 0: as in most types */
    bool masked;    /* 4.38: sdpa, too, has a mask from a table */
    int tables;     /* release before which a layer has tables that it does not use */
    const moe *moe; /* experts in its layers; NULL: none */
} row;

typedef struct llama {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    const row *r;
    const char *norm, *decoder, *attention, *mlp; /* names of classes */
    const bool *windowed, *dense;                 /* by layer; NULL: none */
    plim_hf_rope rope, window_rope;
    uint32_t mask, window_mask;
    uint32_t
        table; /* before 4.40: the mask from which each layer takes its own; else PLIM_NONE */
} llama;

static const char *class_of(const llama *l, const char *suffix)
{
    return plim_nn_join(l->n, l->r->prefix, suffix);
}

static uint32_t add_norm(const llama *l, const char *name, uint32_t x)
{
    uint32_t (*norm)(plim_nn *, const char *, const char *, uint32_t, double) =
        l->r->gemma && l->h->version < PLIM_HF_SINCE_WIDE_GEMMA ? plim_hf_rms_norm_1p_narrow
        : l->r->gemma                                           ? plim_hf_rms_norm_1p
        : l->r->oss                                             ? plim_hf_rms_norm_wide
                                                                : plim_hf_rms_norm;
    return norm(l->n, name, l->norm, x, l->c->eps);
}

/* ---- attention ------------------------------------------------------------------------ */

/* [batch, heads, seq, head_dim] */
static uint32_t project_heads(const llama *l, const char *name, const char *norm_name,
                              uint32_t x, int64_t heads)
{
    const config *c = l->c;
    x = plim_nn_linear(l->n, name, x, heads * c->head_dim,
                       l->r->qkv_bias || c->attention_bias);
    x = plim_nn_view(l->n, x, INTS(l->h->batch, l->h->seq, -1, c->head_dim));
    if (norm_name && l->r->qk_norm)
        x = add_norm(l, norm_name, x);
    return plim_nn_transpose(l->n, x, 1, 2);
}

static void project_all(const llama *l, uint32_t x, plim_hf_attention *a)
{
    const config *c = l->c;
    a->q = project_heads(l, "q_proj", "q_norm", x, c->heads);
    a->k = project_heads(l, "k_proj", "k_norm", x, c->kv_heads);
    a->v = project_heads(l, "v_proj", NULL, x, c->kv_heads);
    if (l->r->late_qk_norm) {
        a->q = add_norm(l, "q_norm", a->q);
        a->k = add_norm(l, "k_norm", a->k);
    }
}

/* Phi-3: three parts of one product */
static void project_fused(const llama *l, uint32_t x, plim_hf_attention *a)
{
    const config *c = l->c;
    plim_nn *n = l->n;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    plim_ints heads = INTS(l->h->batch, l->h->seq, -1, c->head_dim);
    x = plim_nn_linear(n, "qkv_proj", x, q + 2 * kv, false);
    plim_nn_holds(n, x); /* qkv */
    a->q = plim_nn_slice(n, x, 2, 0, q, 1);
    a->k = plim_nn_slice(n, x, 2, q, q + kv, 1);
    a->v = plim_nn_slice(n, x, 2, q + kv, INT64_MAX, 1);
    a->q = plim_nn_transpose(n, plim_nn_view(n, a->q, heads), 1, 2);
    a->k = plim_nn_transpose(n, plim_nn_view(n, a->k, heads), 1, 2);
    a->v = plim_nn_transpose(n, plim_nn_view(n, a->v, heads), 1, 2);
}

/* Before 4.48 each layer has a module of rotary positions, with tables where those are looked up. */
static bool has_layer_rope(const llama *l)
{
    return l->h->version < PLIM_HF_SINCE_POSITIONS_ONCE;
}

static bool shares_rope(const llama *l)
{
    return !has_layer_rope(l) || (l->r->shared && l->h->version >= l->r->shared);
}

static bool looks_up_rope(const llama *l) { return l->h->version < l->r->computed; }

/* cos_cached[:seq].to(dtype)[position_ids] */
static uint32_t look_up_rope(const llama *l, uint32_t table, uint32_t x)
{
    plim_nn *n = l->n;
    table = plim_nn_to_like(n, plim_nn_slice(n, table, 0, 0, l->h->seq, 1), x);
    return NN_OP(n, "aten.index.Tensor", ARG_T("self", table),
                 ARG_TS("indices", &l->h->positions, 1));
}

/* Of values x. */
static plim_hf_rope layer_rope(const llama *l, uint32_t x)
{
    const int64_t dim = (int64_t)((double)l->c->head_dim * l->c->partial);
    const bool looked_up = looks_up_rope(l);
    uint32_t table[2] = {PLIM_NONE, PLIM_NONE};
    plim_nn *n = l->n;
    plim_hf_rope r = l->rope;
    plim_nn_enter(n, "rotary_emb", class_of(l, "RotaryEmbedding"));
    if (looked_up || shares_rope(l))
        plim_nn_fp32_buffer(n, "inv_freq", INTS(dim / 2), false);
    else
        r = plim_hf_rotary_in_layer(l->h, x, l->h->positions, dim);
    for (int i = 0; i < 2 && (looked_up || (l->r->tables && l->h->version < l->r->tables));
         i++)
        table[i] = plim_nn_temporary_buffer(n, i ? "sin_cached" : "cos_cached", n->dtype,
                                            INTS(l->c->positions, dim));
    plim_nn_leave(n);
    if (!looked_up) {
        plim_nn_hold_all(n, (const uint32_t[]){r.cos, r.sin},
                         2); /* of the layer's attention */
        return r;
    }
    return (plim_hf_rope){look_up_rope(l, table[0], x), look_up_rope(l, table[1], x)};
}

static void apply_rope(const llama *l, bool windowed, plim_hf_attention *a)
{
    plim_hf_rope rope = windowed ? l->window_rope : l->rope;
    if (has_layer_rope(l))
        rope = layer_rope(l, a->v);
    rope = plim_hf_rope_heads(l->n, rope);
    uint32_t rest[2];
    if (!l->r->fused || l->h->version < PLIM_HF_SINCE_PARTS_OF_PHI3) {
        uint32_t (*turn)(plim_nn *, uint32_t, plim_hf_rope) =
            l->r->oss ? plim_hf_rotate_halves : plim_hf_rotate;
        const uint32_t was[2] = {a->q, a->k}; /* variables, until both are turned */
        a->q = turn(l->n, a->q, rope);
        a->k = turn(l->n, a->k, rope);
        plim_hf_end_variables(l->n, was, 2);
        return;
    }
    a->q = plim_hf_rotated_part(l->n, a->q, rope, &rest[0]);
    a->k = plim_hf_rotated_part(l->n, a->k, rope, &rest[1]);
    a->q = plim_nn_cat(l->n, (uint32_t[]){plim_hf_rotate(l->n, a->q, rope), rest[0]}, 2, -1);
    a->k = plim_nn_cat(l->n, (uint32_t[]){plim_hf_rotate(l->n, a->k, rope), rest[1]}, 2, -1);
}

/* causal_mask[:, :, cache_position, :seq], in each layer */
static uint32_t mask_of_layer(const llama *l)
{
    plim_nn *n = l->n;
    uint32_t x = plim_nn_slice(n, l->table, 3, 0, l->h->seq, 1);
    uint32_t at[] = {PLIM_NONE, PLIM_NONE, plim_nn_select(n, l->h->positions, 0, 0)};
    x = NN_OP(n, "aten.index.Tensor", ARG_T("self", x), ARG_TS("indices", at, 3));
    plim_nn_holds(n, x);
    return x;
}

static uint32_t add_attention(const llama *l, uint32_t x, bool windowed)
{
    const config *c = l->c;
    plim_nn *n = l->n;
    plim_nn_enter(n, "self_attn", l->attention);
    plim_nn_order(n, l->r->fused ? "o_proj *" : "q_proj k_proj v_proj o_proj *");
    plim_hf_attention a = {
        .causal = true,
        .scale = 1 / sqrt(l->r->query_scalar ? c->query_scalar : (double)c->head_dim),
        .dropout = c->dropout,
        .softcap = c->softcap,
        .sinks = l->r->oss ? plim_nn_param(n, "sinks", INTS(c->heads)) : PLIM_NONE,
        .mask = windowed ? l->window_mask : l->mask};
    (l->r->fused ? project_fused : project_all)(l, x, &a);
    apply_rope(l, windowed, &a);
    plim_hf_update_cache(l->h, &a.k, &a.v, windowed ? l->c->window : 0);
    if (!plim_hf_follows(l->h, PLIM_HF_FUNCTIONS))
        plim_hf_repeat_keys(n, &a);
    if (l->table != PLIM_NONE)
        a.mask = mask_of_layer(l);
    const uint32_t held[] = {a.q, a.k, a.v}; /* variables, until it returns */
    plim_nn_hold_all(n, held, PLIM_COUNT(held));
    x = plim_hf_attend(l->h, a);
    x = plim_nn_reshape(n, x, INTS(l->h->batch, l->h->seq, -1));
    x = plim_nn_linear(n, "o_proj", x, c->hidden, c->attention_bias);
    plim_nn_leave(n);
    return x;
}

/* ---- the MLP ------------------------------------------------------------------------ */

static uint32_t add_mlp(const llama *l, const char *name, int64_t ffn, uint32_t x)
{
    return plim_hf_gated_mlp(l->h, name, l->mlp, l->c->act, x, ffn, l->c->mlp_bias);
}

static uint32_t fused_mlp(const llama *l, uint32_t x)
{
    plim_nn *n = l->n;
    uint32_t half[2];
    plim_nn_enter(n, "mlp", l->mlp);
    x = plim_nn_linear(n, "gate_up_proj", x, 2 * l->c->ffn, false);
    plim_nn_holds(n, x); /* up_states */
    plim_nn_chunk(n, x, 2, -1, half);
    half[0] = plim_hf_act(l->h, "activation_fn", l->c->act, half[0]);
    x = plim_nn_binary(n, "aten.mul.Tensor", half[1], half[0]);
    x = plim_nn_linear(n, "down_proj", x, l->c->hidden, false);
    plim_nn_leave(n);
    return x;
}

/* ---- experts ------------------------------------------------------------------------- */

static uint32_t router_logits(const llama *l, uint32_t x)
{
    const config *c = l->c;
    uint32_t w = plim_nn_param(l->n, "weight", INTS(c->experts, c->hidden));
    x = plim_nn_reshape(l->n, x, INTS(-1, c->hidden));
    return plim_nn_linear_op(l->n, x, w, PLIM_NONE);
}

static uint32_t normalize_topk(plim_nn *n, uint32_t weights)
{
    return plim_nn_binary(n, "aten.div_.Tensor", weights, plim_hf_sum(n, weights, -1, true));
}

static plim_hf_routes route_mixtral(const llama *l, uint32_t x)
{
    uint32_t top[2], logits = router_logits(l, x);
    uint32_t p = plim_nn_softmax(l->n, plim_nn_to(l->n, logits, PLIM_F32), -1);
    plim_hf_topk(l->n, p, l->c->top_k, top);
    return (plim_hf_routes){normalize_topk(l->n, top[0]), top[1], logits};
}

static plim_hf_routes route_qwen(const llama *l, uint32_t x)
{
    uint32_t top[2], logits = router_logits(l, x);
    plim_hf_topk(l->n, plim_hf_softmax32(l->n, logits, -1), l->c->top_k, top);
    if (l->c->norm_topk)
        top[0] = normalize_topk(l->n, top[0]);
    return (plim_hf_routes){plim_nn_to_like(l->n, top[0], logits), top[1], logits};
}

static plim_hf_routes route_oss(const llama *l, uint32_t x)
{
    const config *c = l->c;
    uint32_t top[2];
    uint32_t w = plim_nn_param(l->n, "weight", INTS(c->experts, c->hidden));
    uint32_t b = plim_nn_param(l->n, "bias", INTS(c->experts));
    uint32_t logits = plim_nn_linear_op(l->n, x, w, b);
    plim_hf_topk(l->n, logits, c->top_k, top);
    return (plim_hf_routes){plim_nn_softmax(l->n, top[0], 1), top[1], logits};
}

/* Adds the output of the expert that all tokens share. */
static uint32_t add_shared(const llama *l, uint32_t x, uint32_t shared, uint32_t y)
{
    uint32_t gate = plim_nn_linear(l->n, "shared_expert_gate", x, 1, false);
    gate = plim_nn_unary(l->n, "aten.sigmoid.default", gate);
    shared = plim_nn_binary(l->n, "aten.mul.Tensor", gate, shared);
    return plim_nn_binary(l->n, "aten.add.Tensor", y, shared);
}

static uint32_t sparse_mlp(const llama *l, uint32_t x)
{
    const config *c = l->c;
    const moe *m = l->r->moe;
    plim_nn *n = l->n;
    const plim_hf_experts e = {.type = class_of(l, "Experts"),
                               .experts = c->experts,
                               .ffn = m->own_ffn ? c->expert_ffn : c->ffn,
                               .act = c->act,
                               .oss = l->r->oss};
    uint32_t shared = PLIM_NONE;
    plim_nn_enter(n, "mlp", class_of(l, m->block));
    plim_nn_order(n, m->order);
    x = plim_nn_view(n, x, INTS(-1, c->hidden));
    if (m->shared)
        shared = add_mlp(l, "shared_expert", c->shared_ffn, x);
    plim_nn_enter(n, m->router, class_of(l, "TopKRouter"));
    plim_hf_routes r = m->route(l, x);
    plim_nn_leave(n);
    plim_nn_holds(n, r.logits);
    uint32_t y = plim_hf_run_experts(l->h, &e, x, r);
    if (m->shared)
        y = add_shared(l, x, shared, y);
    y = plim_nn_reshape(n, y, INTS(l->h->batch, l->h->seq, c->hidden));
    plim_nn_leave(n);
    return y;
}

static bool is_sparse(const llama *l, int64_t i)
{
    return l->r->moe && l->c->experts > 0 && !(l->dense && l->dense[i]) &&
           (i + 1) % l->c->sparse_step == 0;
}

static uint32_t feed_forward(const llama *l, int64_t i, uint32_t x)
{
    return is_sparse(l, i) ? sparse_mlp(l, x)
           : l->r->fused   ? fused_mlp(l, x)
                           : add_mlp(l, "mlp", l->c->ffn, x);
}

/* ---- a layer -------------------------------------------------------------------------- */

static uint32_t add_layer(const llama *l, int64_t i, uint32_t x)
{
    plim_nn *n = l->n;
    bool post = l->r->post_norms;
    plim_hf_layer(l->h, plim_nn_name(n, "layers.", i), l->decoder, x);
    plim_nn_order(n, "self_attn mlp *");
    uint32_t y = add_norm(l, "input_layernorm", x);
    y = add_attention(l, y, l->windowed && l->windowed[i]);
    if (post)
        y = add_norm(l, "post_attention_layernorm", y);
    if (l->r->fused && has_layer_rope(l))
        plim_nn_holds(n, y); /* attn_outputs */
    if (l->r->fused)
        y = plim_nn_dropout(n, "resid_attn_dropout", y, l->c->resid_dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    y = add_norm(l, post ? "pre_feedforward_layernorm" : "post_attention_layernorm", x);
    y = feed_forward(l, i, y);
    if (post)
        y = add_norm(l, "post_feedforward_layernorm", y);
    if (l->r->fused)
        y = plim_nn_dropout(n, "resid_mlp_dropout", y, l->c->resid_dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    plim_nn_leave(n);
    return x;
}

/* ---- the model ------------------------------------------------------------------------- */

static uint32_t embed_tokens(const llama *l, uint32_t ids, uint32_t *weight)
{
    const config *c = l->c;
    plim_nn *n = l->n;
    if (!l->r->gemma)
        return plim_nn_embedding(n, "embed_tokens", ids, c->vocab, c->hidden, weight);
    if (l->h->version < PLIM_HF_SINCE_SCALED_EMBEDDING) {
        uint32_t x = plim_nn_embedding(n, "embed_tokens", ids, c->vocab, c->hidden, weight);
        return plim_nn_scalar(n, "aten.mul.Tensor", x, sqrt((double)c->hidden));
    }
    plim_nn_enter(n, "embed_tokens", class_of(l, "TextScaledWordEmbedding"));
    *weight = plim_nn_param(n, "weight", INTS(c->vocab, c->hidden));
    uint32_t scale =
        plim_nn_temporary_buffer(n, "embed_scale", n->dtype, (plim_ints){NULL, 0});
    uint32_t x = plim_nn_embedding_op(n, ids, *weight);
    x = plim_nn_binary(n, "aten.mul.Tensor", x, plim_nn_to_like(n, scale, *weight));
    plim_nn_leave(n);
    return x;
}

/* Whether any layer has a window (or has none, if !windowed). */
static bool any_layer(const llama *l, bool windowed)
{
    for (int64_t i = 0; i < l->c->layers; i++)
        if ((l->windowed && l->windowed[i]) == windowed)
            return true;
    return false;
}

/* What each layer keeps. */
static void keep_tokens(const llama *l)
{
    const config *c = l->c;
    for (int64_t i = 0; i < c->layers; i++)
        plim_hf_cache(
            l->h, (plim_kv_layers){.layers = 1,
                                   .heads = c->kv_heads,
                                   .keys = c->head_dim,
                                   .values = c->head_dim,
                                   .window = l->windowed && l->windowed[i] ? c->window : 0});
}

/* Llama and Gemma of 4.38: a table of the largest size, as numbers for each sequence. */
static uint32_t table_mask(const llama *l)
{
    plim_nn *n = l->n;
    const int64_t side = l->c->positions;
    if (l->h->bind->prompts)
        plim_nn_fail(n, PLIM_EUNSUPPORTED,
                     "prompts of generate() are not known as transformers %d.%d masks them",
                     l->h->version / 100, l->h->version % 100);
    uint32_t table = plim_nn_temporary_buffer(n, "causal_mask", PLIM_BOOL, INTS(side, side));
    uint32_t x = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, table, 0), 0);
    x = NN_OP(n, "aten.repeat.default", ARG_T("self", x),
              ARG_IS("repeats", INTS(l->h->batch, 1, 1, 1)));
    x = plim_nn_scalar(n, "aten.mul.Tensor", plim_nn_to(n, x, n->dtype), -1e30);
    plim_nn_holds(n, x);
    return x;
}

static void make_masks(llama *l, uint32_t positions)
{
    if (l->r->masked && l->h->version < PLIM_HF_SINCE_MASKS_OF_THEIR_SIZE) {
        l->table = table_mask(l);
        return;
    }
    const plim_hf_mask full = {.positions = l->r->oss ? PLIM_NONE : positions};
    plim_hf_mask window = full;
    windows w = l->r->windows;
    bool some = any_layer(l, true);
    window.sliding = true;
    window.window = w == WINDOW_LOWEST && !l->c->use_window ? 0 : l->c->window;
    if (w >= WINDOW_PATTERN || !some)
        l->mask = plim_hf_causal_mask(l->h, full);
    if (some || w == WINDOW_PATTERN || w == WINDOW_LOWEST) /* masks made even if unused */
        l->window_mask = plim_hf_causal_mask(l->h, window);
}

static void make_ropes(llama *l, uint32_t positions, uint32_t embedded)
{
    const char *class = class_of(l, "RotaryEmbedding");
    int64_t dim = (int64_t)((double)l->c->head_dim * l->c->partial);
    if (!shares_rope(l))
        return;
    if (l->r->oss) {
        l->window_rope = l->rope =
            plim_hf_rotary_halves(l->h, class, embedded, positions, dim);
        return;
    }
    if (!l->r->two_tables) {
        l->rope = plim_hf_rotary(l->h, class, "", embedded, positions, dim);
        l->window_rope = l->rope;
        return;
    }
    if (any_layer(l, false))
        l->rope = plim_hf_rotary(l->h, class, "full_attention_", embedded, positions, dim);
    if (any_layer(l, true))
        l->window_rope =
            plim_hf_rotary(l->h, class, "sliding_attention_", embedded, positions, dim);
}

static uint32_t add_decoder(llama *l, uint32_t *embedding)
{
    plim_hf *h = l->h;
    plim_nn *n = l->n;
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "model", class_of(l, l->r->model ? l->r->model : "Model"));
    plim_nn_order(n, "* rotary_emb");
    uint32_t x = embed_tokens(l, ids, embedding);
    uint32_t positions = plim_hf_positions(h);
    plim_nn_holds(n, x); /* variables, until it returns */
    plim_nn_holds(n, positions);
    make_masks(l, positions);
    make_ropes(l, positions, x);
    for (int64_t i = 0; i < l->c->layers && !n->st; i++)
        x = add_layer(l, i, x);
    x = add_norm(l, "norm", x);
    plim_nn_leave(n);
    return x;
}

static bool has_window(const config *c, windows w, int64_t i)
{
    switch (w) {
    case WINDOW_NONE: return false;
    case WINDOW_ALL: return true;
    case WINDOW_ALL_IF_USED: return c->use_window;
    case WINDOW_PATTERN: return (i + 1) % c->pattern != 0;
    case WINDOW_HIGHEST: return c->use_window && i >= c->max_window_layers;
    case WINDOW_LOWEST: return c->use_window && i % 2 == 0 && i < c->max_window_layers;
    }
    return false;
}

/* By layer; NULL: none has a window. */
static const bool *find_windows(plim_hf *h, const config *c, windows w)
{
    bool *out = PLIM_NEW_N(h->n.g->arena, bool, c->layers);
    const bool *told =
        plim_hf_layers_called(h, "layer_types", c->layer_types, "sliding_attention",
                              "full_attention attention", c->layers);
    if (!c->window)
        return NULL;
    for (int64_t i = 0; out && i < c->layers; i++)
        out[i] = has_window(c, w, i);
    return told && w >= WINDOW_PATTERN ? told : out;
}

static uint32_t softcap_logits(plim_nn *n, uint32_t x, double cap)
{
    x = plim_nn_scalar(n, "aten.div.Tensor", x, cap);
    x = plim_nn_unary(n, "aten.tanh.default", x);
    return plim_nn_scalar(n, "aten.mul.Tensor", x, cap);
}

static void llama_build(plim_hf *h, const void *p)
{
    config c = *(const config *)p;
    llama l = {.h = h, .n = &h->n, .c = &c, .r = h->family->row};
    uint32_t embedding = PLIM_NONE;
    l.mask = l.window_mask = l.table = PLIM_NONE;
    const bool fused = h->flash || h->bind->attention == PLIM_ATTENTION_SDPA;
    h->eager |=
        l.r->oss || (l.r->eager && !fused && h->version >= PLIM_HF_SINCE_SOFTCAP_EAGER);
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.head_dim = c.head_dim ? c.head_dim : c.hidden / c.heads;
    l.norm = class_of(&l, "RMSNorm");
    l.decoder = class_of(&l, "DecoderLayer");
    l.attention = class_of(&l, "Attention");
    l.mlp = class_of(&l, "MLP");
    l.windowed = find_windows(h, &c, l.r->windows);
    l.dense = plim_hf_layers_in(h, "mlp_only_layers", c.dense_layers, c.layers);
    plim_nn_root(&h->n, class_of(&l, "ForCausalLM"));
    plim_hf_check_heads(h, c.heads, c.kv_heads, c.head_dim);
    if (l.r->moe && !l.r->moe->or_dense && !c.experts)
        plim_nn_fail(&h->n, PLIM_ERANGE, "'num_local_experts' is 0, not in 1..%d",
                     (int)INT32_MAX);
    keep_tokens(&l);
    plim_hf_tokens(h, "input_ids", c.positions, false);
    uint32_t x = add_decoder(&l, &embedding);
    x = plim_hf_lm_head(h, x, c.vocab, c.tie ? embedding : PLIM_NONE, false);
    if (c.final_softcap > 0)
        x = softcap_logits(&h->n, x, c.final_softcap);
    plim_hf_causal_outputs(h, x);
}

/* ---- configurations --------------------------------------------------------------------------- */

/* clang-format off */
static const plim_hf_key llama_keys[] = {
    HF_SIZE(vocab, "vocab_size", 32000),
    HF_SIZE(hidden, "hidden_size", 4096),
    HF_SIZE(ffn, "intermediate_size", 11008),
    HF_LAYERS(layers, "num_hidden_layers", 32),
    HF_SIZE(heads, "num_attention_heads", 32),
    HF_GIVEN_OR_NULL(kv_heads, "num_key_value_heads"),
    HF_GIVEN(head_dim, "head_dim"),
    HF_SIZE(positions, "max_position_embeddings", 2048),
    HF_OPTION_OR_NULL(window, "sliding_window", 0),
    HF_SIZE(pattern, "sliding_window_pattern", 2),
    HF_OPTION(max_window_layers, "max_window_layers", 28),
    HF_BOOL(use_window, "use_sliding_window", 0),
    HF_RAW(layer_types, "layer_types"),
    HF_REAL(eps, "rms_norm_eps", 1e-6),
    HF_SHARE(dropout, "attention_dropout", 0),
    HF_REAL(query_scalar, "query_pre_attn_scalar", 256),
    HF_REAL_OR_NULL(softcap, "attn_logit_softcapping", 0),
    HF_REAL_OR_NULL(final_softcap, "final_logit_softcapping", 0),
    HF_BOOL(tie, "tie_word_embeddings", 0),
    HF_BOOL(attention_bias, "attention_bias", 0),
    HF_BOOL(mlp_bias, "mlp_bias", 0),
    HF_WORD(act, "hidden_act hidden_activation", "silu"),
    HF_SHARE(resid_dropout, "resid_pdrop", 0),
    HF_SHARE(partial, "rope_parameters.partial_rotary_factor partial_rotary_factor", 1),
    HF_OPTION(experts, "num_local_experts num_experts", 0),
    {HF_ROW(top_k, "num_experts_per_tok", SIZE), .number = 2, .max = 1024},
    HF_SIZE(expert_ffn, "moe_intermediate_size", 1408),
    HF_SIZE(shared_ffn, "shared_expert_intermediate_size", 5632),
    HF_SIZE(sparse_step, "decoder_sparse_step", 1),
    HF_BOOL(norm_topk, "norm_topk_prob", 0),
    HF_RAW(dense_layers, "mlp_only_layers"),
};

HF_DEFAULTS(mistral_defaults, HF_IS("intermediate_size", 14336), HF_IS("num_key_value_heads", 8),
         HF_IS("max_position_embeddings", 131072), HF_IS("sliding_window", 4096));
HF_DEFAULTS(qwen2_defaults, HF_IS("vocab_size", 151936), HF_IS("intermediate_size", 22016), HF_IS("num_key_value_heads", 32),
         HF_IS("max_position_embeddings", 32768), HF_IS("sliding_window", 4096));
HF_DEFAULTS(qwen3_defaults, HF_IS("vocab_size", 151936), HF_IS("intermediate_size", 22016), HF_IS("num_key_value_heads", 32),
         HF_IS("head_dim", 128), HF_IS("max_position_embeddings", 32768), HF_IS("sliding_window", 4096));
HF_DEFAULTS(gemma_defaults, HF_IS("vocab_size", 256000), HF_IS("hidden_size", 3072), HF_IS("intermediate_size", 24576),
         HF_IS("num_hidden_layers", 28), HF_IS("num_attention_heads", 16), HF_IS("num_key_value_heads", 16),
         HF_IS("head_dim", 256), HF_IS("max_position_embeddings", 8192), HF_IS("tie_word_embeddings", 1),
         HF_SAYS("hidden_act", "gelu_pytorch_tanh"));
#define GEMMA2 HF_IS("hidden_size", 2304), HF_IS("intermediate_size", 9216), HF_IS("num_hidden_layers", 26), \
    HF_IS("num_attention_heads", 8), HF_IS("num_key_value_heads", 4), HF_IS("head_dim", 256), \
    HF_IS("sliding_window", 4096), HF_IS("tie_word_embeddings", 1), HF_SAYS("hidden_act", "gelu_pytorch_tanh")
HF_DEFAULTS(gemma2_defaults, HF_IS("vocab_size", 256000), HF_IS("max_position_embeddings", 8192), GEMMA2,
         HF_IS("attn_logit_softcapping", 50), HF_IS("final_logit_softcapping", 30));
HF_DEFAULTS(gemma3_defaults, HF_IS("vocab_size", 262208), HF_IS("max_position_embeddings", 131072), GEMMA2,
         HF_IS("sliding_window_pattern", 6));

HF_DEFAULTS(phi3_defaults, HF_IS("vocab_size", 32064), HF_IS("hidden_size", 3072), HF_IS("intermediate_size", 8192),
         HF_IS("max_position_embeddings", 4096), HF_IS("rms_norm_eps", 1e-5));
HF_DEFAULTS(mixtral_defaults, HF_IS("intermediate_size", 14336), HF_IS("num_key_value_heads", 8),
         HF_IS("max_position_embeddings", 131072), HF_IS("rms_norm_eps", 1e-5), HF_IS("num_local_experts", 8));
HF_DEFAULTS(qwen2_moe_defaults, HF_IS("vocab_size", 151936), HF_IS("hidden_size", 2048), HF_IS("intermediate_size", 5632),
         HF_IS("num_hidden_layers", 24), HF_IS("num_attention_heads", 16), HF_IS("num_key_value_heads", 16),
         HF_IS("max_position_embeddings", 32768), HF_IS("sliding_window", 4096), HF_IS("num_local_experts", 60),
         HF_IS("num_experts_per_tok", 4));
HF_DEFAULTS(qwen3_moe_defaults, HF_IS("vocab_size", 151936), HF_IS("hidden_size", 2048), HF_IS("intermediate_size", 6144),
         HF_IS("num_hidden_layers", 24), HF_IS("num_key_value_heads", 4), HF_IS("max_position_embeddings", 32768),
         HF_IS("sliding_window", 4096), HF_IS("num_local_experts", 128), HF_IS("num_experts_per_tok", 8),
         HF_IS("moe_intermediate_size", 768));
HF_DEFAULTS(gpt_oss_defaults, HF_IS("vocab_size", 201088), HF_IS("hidden_size", 2880), HF_IS("intermediate_size", 2880),
         HF_IS("num_hidden_layers", 36), HF_IS("num_attention_heads", 64), HF_IS("num_key_value_heads", 8),
         HF_IS("head_dim", 64), HF_IS("max_position_embeddings", 131072), HF_IS("sliding_window", 128),
         HF_IS("rms_norm_eps", 1e-5), HF_IS("attention_bias", 1), HF_IS("num_local_experts", 128),
         HF_IS("num_experts_per_tok", 4));

static const moe mixtral_moe = {"SparseMoeBlock", "gate", "gate experts", route_mixtral, false, false, false};
static const moe qwen2_moe = {"SparseMoeBlock", "gate", "gate experts shared_expert shared_expert_gate", route_qwen, true, true, true};
static const moe qwen3_moe = {"SparseMoeBlock", "gate", "experts gate", route_qwen, true, false, true};
static const moe oss_moe = {"MLP", "router", "router experts", route_oss, false, false, false};

#define ROW(...) .row = &(const row){__VA_ARGS__}
static const plim_hf_family llama_families[] = {
    {"llama",   "LlamaForCausalLM", NULL, ROW(.prefix = "Llama", .masked = true, .shared = 443, .tables = 441)},
    {"mistral", "MistralForCausalLM", mistral_defaults, ROW(.prefix = "Mistral", .windows = WINDOW_ALL, .computed = 442)},
    {"qwen2",   "Qwen2ForCausalLM", qwen2_defaults, ROW(.prefix = "Qwen2", .windows = WINDOW_HIGHEST, .qkv_bias = true, .computed = 445, .shared = 445)},
    {"qwen3",   "Qwen3ForCausalLM", qwen3_defaults, ROW(.prefix = "Qwen3", .windows = WINDOW_HIGHEST, .qk_norm = true)},
    {"gemma",   "GemmaForCausalLM", gemma_defaults, ROW(.prefix = "Gemma", .gemma = true, .masked = true)},
    {"gemma2",  "Gemma2ForCausalLM", gemma2_defaults,
     ROW(.prefix = "Gemma2", .windows = WINDOW_PATTERN, .gemma = true, .post_norms = true, .query_scalar = true, .eager = true)},
    {"gemma3_text", "Gemma3ForCausalLM", gemma3_defaults,
     ROW(.prefix = "Gemma3", .windows = WINDOW_PATTERN, .gemma = true, .post_norms = true,
         .query_scalar = true, .late_qk_norm = true, .two_tables = true, .model = "TextModel")},
    {"phi3", "Phi3ForCausalLM", phi3_defaults, ROW(.prefix = "Phi3", .windows = WINDOW_ALL, .fused = true)},
    {"mixtral", "MixtralForCausalLM", mixtral_defaults, ROW(.prefix = "Mixtral", .windows = WINDOW_ALL, .moe = &mixtral_moe)},
    {"qwen2_moe", "Qwen2MoeForCausalLM", qwen2_moe_defaults,
     ROW(.prefix = "Qwen2Moe", .windows = WINDOW_LOWEST, .qkv_bias = true, .moe = &qwen2_moe)},
    {"qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe_defaults,
     ROW(.prefix = "Qwen3Moe", .windows = WINDOW_ALL_IF_USED, .qk_norm = true, .moe = &qwen3_moe)},
    {"gpt_oss", "GptOssForCausalLM", gpt_oss_defaults,
     ROW(.prefix = "GptOss", .windows = WINDOW_PATTERN, .eager = true, .oss = true, .moe = &oss_moe)},
};
/* clang-format on */

const plim_hf_group plim_hf_llama = {
    .doc = "decoders with RMSNorm, rotary positions and a gated MLP",
    .src = "transformers 5.23 models/{llama,mistral,qwen2,qwen3,gemma,gemma2,gemma3}",
    .families = llama_families,
    .n_families = PLIM_COUNT(llama_families),
    .keys = llama_keys,
    .n_keys = PLIM_COUNT(llama_keys),
    .size = sizeof(config),
    .caches = true,
    .build = llama_build,
};
