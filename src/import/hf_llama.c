/* hf_llama.c -- Llama and what was made after it: RMSNorm, rotary positions, grouped keys
 * and values, a gated MLP.
 * src: transformers 5.23 models/{llama,mistral,qwen2,qwen3,gemma,gemma2,gemma3}/ */
#include <math.h>

#include "import/hf_parts.h"

typedef struct config {
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, positions;
    int64_t window, pattern, max_window_layers;
    double eps, dropout, query_scalar, softcap, final_softcap;
    bool tie, attention_bias, mlp_bias, use_window;
    plim_str act, layer_types;
} config;

/* Which layers look no further back than `window`. */
typedef enum windows {
    WINDOW_NONE,
    WINDOW_ALL,     /* all of them, if there is a window */
    WINDOW_SOME,    /* layer_types, else all but each `pattern`-th */
    WINDOW_HIGHEST, /* layer_types, else from max_window_layers on; if use_sliding_window */
} windows;

/* What a model type does in its own way. */
typedef struct row {
    const char *prefix; /* of its classes */
    windows windows;
    bool qkv_bias;     /* whatever the file says */
    bool qk_norm;      /* of each head's queries and keys ... */
    bool late_qk_norm; /* ... once all are projected */
    bool gemma;        /* norms by 1 + weight, embedding times sqrt(hidden) */
    bool post_norms;   /* norms after attention and MLP as well */
    bool query_scalar; /* attention by 1 / sqrt(query_pre_attn_scalar) */
    bool eager;        /* attention written out, for its soft cap */
    bool two_tables;   /* of rotary positions: layers with a window have their own */
    const char *model; /* class of the decoder; NULL: "Model" */
} row;

typedef struct llama {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    const row *r;
    const char *norm, *decoder, *attention, *mlp; /* names of classes */
    const bool *windowed;                         /* by layer */
    plim_hf_rope rope, window_rope;
    uint32_t mask, window_mask;
} llama;

static const char *class_of(const llama *l, const char *suffix)
{
    return plim_nn_join(l->n, l->r->prefix, suffix);
}

static uint32_t norm(const llama *l, const char *name, uint32_t x)
{
    return (l->r->gemma ? plim_hf_rms_norm_1p : plim_hf_rms_norm)(l->n, name, l->norm, x,
                                                                  l->c->eps);
}

/* ---- a layer ------------------------------------------------------------------------ */

/* [batch, heads, seq, head_dim] */
static uint32_t project(const llama *l, const char *name, const char *norm_name, uint32_t x,
                        int64_t heads)
{
    const config *c = l->c;
    x = plim_nn_linear(l->n, name, x, heads * c->head_dim,
                       l->r->qkv_bias || c->attention_bias);
    x = plim_nn_view(l->n, x, INTS(l->h->batch, l->h->seq, -1, c->head_dim));
    if (norm_name && l->r->qk_norm)
        x = norm(l, norm_name, x);
    return plim_nn_transpose(l->n, x, 1, 2);
}

static uint32_t attention(const llama *l, uint32_t x, bool windowed)
{
    const config *c = l->c;
    plim_nn *n = l->n;
    plim_nn_enter(n, "self_attn", l->attention);
    plim_nn_order(n, "q_proj k_proj v_proj o_proj *");
    plim_hf_attention a = {
        .causal = true,
        .scale = 1 / sqrt(l->r->query_scalar ? c->query_scalar : (double)c->head_dim),
        .dropout = c->dropout,
        .softcap = c->softcap,
        .sinks = PLIM_NONE,
        .mask = windowed ? l->window_mask : l->mask};
    a.q = project(l, "q_proj", "q_norm", x, c->heads);
    a.k = project(l, "k_proj", "k_norm", x, c->kv_heads);
    a.v = project(l, "v_proj", NULL, x, c->kv_heads);
    if (l->r->late_qk_norm) {
        a.q = norm(l, "q_norm", a.q);
        a.k = norm(l, "k_norm", a.k);
    }
    plim_hf_rope rope = plim_hf_rope_heads(n, windowed ? l->window_rope : l->rope);
    a.q = plim_hf_rotate(n, a.q, rope);
    a.k = plim_hf_rotate(n, a.k, rope);
    x = l->r->eager ? plim_hf_eager(n, a) : plim_hf_sdpa(n, a);
    x = plim_nn_reshape(n, x, INTS(l->h->batch, l->h->seq, -1));
    x = plim_nn_linear(n, "o_proj", x, c->hidden, c->attention_bias);
    plim_nn_leave(n);
    return x;
}

static uint32_t mlp(const llama *l, uint32_t x)
{
    const config *c = l->c;
    plim_nn *n = l->n;
    plim_nn_enter(n, "mlp", l->mlp);
    uint32_t gate = plim_nn_linear(n, "gate_proj", x, c->ffn, c->mlp_bias);
    gate = plim_hf_act(l->h, "act_fn", c->act, gate);
    uint32_t up = plim_nn_linear(n, "up_proj", x, c->ffn, c->mlp_bias);
    x = plim_nn_binary(n, "aten.mul.Tensor", gate, up);
    x = plim_nn_linear(n, "down_proj", x, c->hidden, c->mlp_bias);
    plim_nn_leave(n);
    return x;
}

static uint32_t layer(const llama *l, int64_t i, uint32_t x)
{
    plim_nn *n = l->n;
    bool post = l->r->post_norms;
    plim_nn_enter(n, plim_nn_name(n, "layers.", i), l->decoder);
    plim_nn_order(n, "self_attn mlp *");
    uint32_t y = norm(l, "input_layernorm", x);
    y = attention(l, y, l->windowed && l->windowed[i]);
    if (post)
        y = norm(l, "post_attention_layernorm", y);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    y = norm(l, post ? "pre_feedforward_layernorm" : "post_attention_layernorm", x);
    y = mlp(l, y);
    if (post)
        y = norm(l, "post_feedforward_layernorm", y);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    plim_nn_leave(n);
    return x;
}

/* ---- the model ------------------------------------------------------------------------- */

static uint32_t embed(const llama *l, uint32_t ids, uint32_t *weight)
{
    const config *c = l->c;
    plim_nn *n = l->n;
    if (!l->r->gemma)
        return plim_nn_embedding(n, "embed_tokens", ids, c->vocab, c->hidden, weight);
    plim_nn_enter(n, "embed_tokens", class_of(l, "TextScaledWordEmbedding"));
    *weight = plim_nn_param(n, "weight", INTS(c->vocab, c->hidden));
    uint32_t scale =
        plim_nn_temporary_buffer(n, "embed_scale", PLIM_F32, (plim_ints){NULL, 0});
    uint32_t x = plim_nn_embedding_op(n, ids, *weight);
    x = plim_nn_binary(n, "aten.mul.Tensor", x, plim_nn_to_like(n, scale, *weight));
    plim_nn_leave(n);
    return x;
}

/* Is there a layer with a window, or without? */
static bool any_layer(const llama *l, bool windowed)
{
    for (int64_t i = 0; i < l->c->layers; i++)
        if ((l->windowed && l->windowed[i]) == windowed)
            return true;
    return false;
}

static void make_masks(llama *l, uint32_t positions, uint32_t embedded)
{
    const config *c = l->c;
    plim_hf_mask full = {.positions = positions, .eager = l->r->eager, .like = embedded};
    plim_hf_mask window = full;
    bool some = any_layer(l, true);
    window.window = c->window;
    if (l->r->windows != WINDOW_ALL || !some)
        l->mask = plim_hf_causal_mask(l->h, full);
    if (l->r->windows == WINDOW_SOME || some)
        l->window_mask = plim_hf_causal_mask(l->h, window);
}

static void make_ropes(llama *l, uint32_t positions, uint32_t embedded)
{
    const char *class = class_of(l, "RotaryEmbedding");
    int64_t dim = l->c->head_dim;
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

static uint32_t decoder(llama *l, uint32_t *embedding)
{
    plim_hf *h = l->h;
    plim_nn *n = l->n;
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "model", class_of(l, l->r->model ? l->r->model : "Model"));
    plim_nn_order(n, "* rotary_emb");
    uint32_t x = embed(l, ids, embedding);
    uint32_t positions = plim_hf_positions(h);
    make_masks(l, positions, x);
    make_ropes(l, positions, x);
    for (int64_t i = 0; i < l->c->layers && !n->st; i++)
        x = layer(l, i, x);
    x = norm(l, "norm", x);
    plim_nn_leave(n);
    return x;
}

/* By layer; NULL: none has a window. */
static const bool *find_windows(plim_hf *h, const config *c, windows w)
{
    bool has = w == WINDOW_HIGHEST ? c->use_window && c->window > 0 : c->window > 0;
    if (w == WINDOW_NONE || !has)
        return NULL;
    const bool *told = plim_hf_layers_called(
        h, w == WINDOW_ALL ? PLIM_STR("") : c->layer_types, "sliding_attention", c->layers);
    bool *out = told ? NULL : PLIM_NEW_N(h->n.g->arena, bool, c->layers);
    for (int64_t i = 0; out && i < c->layers; i++)
        out[i] = w == WINDOW_ALL    ? true
                 : w == WINDOW_SOME ? (i + 1) % c->pattern != 0
                                    : i >= c->max_window_layers;
    return told ? told : out;
}

static uint32_t softcapped(plim_nn *n, uint32_t x, double cap)
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
    l.mask = l.window_mask = PLIM_NONE;
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.head_dim = c.head_dim ? c.head_dim : c.hidden / c.heads;
    l.norm = class_of(&l, "RMSNorm");
    l.decoder = class_of(&l, "DecoderLayer");
    l.attention = class_of(&l, "Attention");
    l.mlp = class_of(&l, "MLP");
    l.windowed = find_windows(h, &c, l.r->windows);
    plim_nn_root(&h->n, class_of(&l, "ForCausalLM"));
    plim_hf_heads(h, c.heads, c.kv_heads, c.head_dim);
    plim_hf_tokens(h, "input_ids", c.positions, false);
    uint32_t x = decoder(&l, &embedding);
    x = plim_hf_lm_head(h, x, c.vocab, c.tie ? embedding : PLIM_NONE, false);
    if (c.final_softcap > 0)
        x = softcapped(&h->n, x, c.final_softcap);
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
    HF_OPTION(kv_heads, "num_key_value_heads", 0),
    HF_OPTION(head_dim, "head_dim", 0),
    HF_SIZE(positions, "max_position_embeddings", 2048),
    HF_OPTION(window, "sliding_window", 0),
    HF_SIZE(pattern, "sliding_window_pattern", 2),
    HF_OPTION(max_window_layers, "max_window_layers", 28),
    HF_BOOL(use_window, "use_sliding_window", 0),
    HF_RAW(layer_types, "layer_types"),
    HF_REAL(eps, "rms_norm_eps", 1e-6),
    HF_REAL(dropout, "attention_dropout", 0),
    HF_REAL(query_scalar, "query_pre_attn_scalar", 256),
    HF_REAL(softcap, "attn_logit_softcapping", 0),
    HF_REAL(final_softcap, "final_logit_softcapping", 0),
    HF_BOOL(tie, "tie_word_embeddings", 0),
    HF_BOOL(attention_bias, "attention_bias", 0),
    HF_BOOL(mlp_bias, "mlp_bias", 0),
    HF_WORD(act, "hidden_act hidden_activation", "silu"),
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

#define ROW(...) .row = &(const row){__VA_ARGS__}
static const plim_hf_family llama_families[] = {
    {"llama",   "LlamaForCausalLM", NULL, ROW(.prefix = "Llama")},
    {"mistral", "MistralForCausalLM", mistral_defaults, ROW(.prefix = "Mistral", .windows = WINDOW_ALL)},
    {"qwen2",   "Qwen2ForCausalLM", qwen2_defaults, ROW(.prefix = "Qwen2", .windows = WINDOW_HIGHEST, .qkv_bias = true)},
    {"qwen3",   "Qwen3ForCausalLM", qwen3_defaults, ROW(.prefix = "Qwen3", .windows = WINDOW_HIGHEST, .qk_norm = true)},
    {"gemma",   "GemmaForCausalLM", gemma_defaults, ROW(.prefix = "Gemma", .gemma = true)},
    {"gemma2",  "Gemma2ForCausalLM", gemma2_defaults,
     ROW(.prefix = "Gemma2", .windows = WINDOW_SOME, .gemma = true, .post_norms = true, .query_scalar = true, .eager = true)},
    {"gemma3_text", "Gemma3ForCausalLM", gemma3_defaults,
     ROW(.prefix = "Gemma3", .windows = WINDOW_SOME, .gemma = true, .post_norms = true,
         .query_scalar = true, .late_qk_norm = true, .two_tables = true, .model = "TextModel")},
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
    .build = llama_build,
};
