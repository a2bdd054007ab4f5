/* hf_t5.c -- T5, of both versions.
 * src: transformers 5.23 models/t5/modeling_t5.py, integrations/sdpa_attention.py */
#include <math.h>

#include "import/hf/hf_encoder.h"

typedef struct config {
    int64_t vocab, hidden, dim, ffn, layers, decoder_layers, heads, buckets, distance;
    double dropout, eps;
    bool tie;
    plim_str feed_forward;
} config;

typedef struct stack {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    bool decoder;
    uint32_t table;  /* shared.weight */
    uint32_t memory; /* the encoder's output; in the decoder only */
    uint32_t
        positions; /* cache_position, of which layers are told, unused or its last one; or PLIM_NONE */
    uint32_t mask[2]; /* before masking_utils.py: the same */
    uint32_t bias[2]; /* of positions: for a layer's own tokens, and for the encoder's */
} stack;

static uint32_t add_norm(const stack *s, const char *name, uint32_t x)
{
    plim_nn *n = s->n;
    plim_nn_enter(n, name, "T5LayerNorm");
    uint32_t w = plim_nn_param(n, "weight", INTS(s->c->hidden));
    uint32_t v = plim_nn_to(n, x, PLIM_F32);
    v = NN_OP(n, "aten.pow.Tensor_Scalar", ARG_T("self", v), ARG_I("exponent", 2));
    v = NN_OP(n, "aten.mean.dim", ARG_T("self", v), ARG_IS("dim", INTS(-1)),
              ARG_I("keepdim", 1));
    plim_nn_called(n, (uint32_t[]){x, v}, 2); /* variance, until it returns */
    v = plim_nn_scalar(n, "aten.add.Tensor", v, s->c->eps);
    v = plim_nn_unary(n, "aten.rsqrt.default", v);
    x = plim_nn_binary(n, "aten.mul.Tensor", x, v);
    x = plim_nn_to_like(n, x, w); /* a cast if weights have 16 bits */
    x = plim_nn_binary(n, "aten.mul.Tensor", w, x);
    plim_nn_leave(n);
    return x;
}

static uint32_t apply_dropout(const stack *s, uint32_t x)
{
    return plim_nn_dropout(s->n, "dropout", x, s->c->dropout);
}

/* ---- where tokens stand to each other ---------------------------------------------------- */

static uint32_t min_of(plim_nn *n, uint32_t a, uint32_t b)
{
    return plim_nn_binary(n, "aten.min.other", a, b);
}

/* _relative_position_bucket: near distances have their own, far ones share some */
static uint32_t position_buckets(const stack *s, uint32_t distance)
{
    plim_nn *n = s->n;
    int64_t count = s->c->buckets, exact;
    uint32_t side = PLIM_NONE, is_small, far, most;
    if (s->decoder) {
        most = plim_nn_unary(n, "aten.zeros_like.default", distance);
        distance = plim_nn_unary(n, "aten.neg.default", min_of(n, distance, most));
    } else {
        count /= 2;
        side = NN_OP(n, "aten.gt.Scalar", ARG_T("self", distance), ARG_I("other", 0));
        side = plim_nn_to(n, side, PLIM_I64);
        side = plim_nn_scalar(n, "aten.mul.Tensor", side, (double)count);
        side = plim_nn_scalar(n, "aten.add.Tensor", side, 0);
        distance = plim_nn_unary(n, "aten.abs.default", distance);
    }
    exact = PLIM_MAX(count / 2, 1);
    is_small = NN_OP(n, "aten.lt.Scalar", ARG_T("self", distance), ARG_I("other", exact));
    far = plim_nn_to(n, distance, PLIM_F32);
    far = plim_nn_scalar(n, "aten.div.Tensor", far, (double)exact);
    far = plim_nn_unary(n, "aten.log.default", far);
    far =
        plim_nn_scalar(n, "aten.div.Tensor", far, log((double)s->c->distance / (double)exact));
    far = plim_nn_scalar(n, "aten.mul.Tensor", far, (double)(count - exact));
    far = plim_nn_to(n, far, PLIM_I64);
    far = plim_nn_scalar(n, "aten.add.Tensor", far, (double)exact);
    most =
        NN_OP(n, "aten.full_like.default", ARG_T("self", far), ARG_I("fill_value", count - 1));
    far = min_of(n, far, most);
    far = NN_OP(n, "aten.where.self", ARG_T("condition", is_small), ARG_T("self", distance),
                ARG_T("other", far));
    return s->decoder ? plim_nn_scalar(n, "aten.add.Tensor", far, 0)
                      : plim_nn_binary(n, "aten.add_.Tensor", side, far);
}

/* compute_bias: [1, heads, seq, seq] */
static uint32_t position_bias(const stack *s)
{
    plim_nn *n = s->n;
    uint32_t from = plim_nn_unsqueeze(n, plim_nn_arange(n, s->h->seq), 1);
    from = plim_nn_scalar(n, "aten.add.Tensor", from, 0);
    uint32_t to = plim_nn_unsqueeze(n, plim_nn_arange(n, s->h->seq), 0);
    uint32_t x = position_buckets(s, plim_nn_binary(n, "aten.sub.Tensor", to, from));
    x = plim_nn_embedding(n, "relative_attention_bias", x, s->c->buckets, s->c->heads, NULL);
    return plim_nn_unsqueeze(n, plim_nn_permute(n, x, INTS(2, 0, 1)), 0);
}

/* Zeros, of which checkpoints ask for a gradient. */
static uint32_t no_bias(const stack *s, const plim_hf_attention *a)
{
    plim_nn *n = s->n;
    uint32_t x = NN_OP(n, "aten.new_zeros.default", ARG_T("self", a->q),
                       ARG_IS("size", INTS(1, s->c->heads, plim_nn_dim(n, a->q, 2),
                                           plim_nn_dim(n, a->k, 2))));
    if (s->h->bind->checkpoints && !n->infer)
        NN_OP(n, "plimsoll.requires_grad.default", ARG_T("self", x));
    return x;
}

/* create_position_bias_mask of a decoder: future positions get the smallest number */
static uint32_t mask_future(const stack *s, uint32_t bias)
{
    plim_nn *n = s->n;
    int64_t seq = s->h->seq;
    uint32_t from = plim_nn_unsqueeze(n, plim_nn_arange(n, seq), 1);
    uint32_t to = plim_nn_unsqueeze(n, plim_nn_arange(n, seq), 0);
    uint32_t seen = plim_nn_binary(n, "aten.ge.Tensor", from, to);
    seen = plim_nn_view(n, seen, INTS(1, 1, seq, seq));
    return NN_OP(n, "aten.where.ScalarOther", ARG_T("condition", seen), ARG_T("self", bias),
                 ARG_F("other", -1e30));
}

static uint32_t sdpa_mask(const stack *s, uint32_t bias, bool cross)
{
    bool future = s->decoder && !cross && s->h->seq > 1;
    uint32_t mask = future ? mask_future(s, bias) : bias;
    return s->h->version < PLIM_HF_SINCE_CONTIGUOUS_BIAS ? mask
                                                         : plim_nn_contiguous(s->n, mask);
}

/* ---- a block ------------------------------------------------------------------------------ */

static uint32_t project_heads(const stack *s, const char *name, uint32_t x)
{
    x = plim_nn_linear(s->n, name, x, s->c->heads * s->c->dim, false);
    return plim_hf_split_heads(s->n, x, s->c->dim);
}

/* cache_position[-1] + 1, which the open module holds. */
static void count_tokens(const stack *s)
{
    if (s->positions != PLIM_NONE)
        plim_nn_holds(s->n, plim_nn_scalar(s->n, "aten.add.Tensor",
                                           plim_nn_select(s->n, s->positions, 0, -1), 1));
}

/* Attention from x to `seen`, which is x itself unless `cross`; *bias is created once and
 * shared by all blocks. */
static uint32_t attend_to(const stack *s, uint32_t x, uint32_t seen, bool cross,
                          uint32_t *bias)
{
    plim_nn *n = s->n;
    plim_nn_enter(n, cross ? "EncDecAttention" : "SelfAttention", "T5Attention");
    plim_nn_order(n, "q k v o relative_attention_bias");
    plim_hf_attention a = {.q = project_heads(s, "q", x),
                           .k = project_heads(s, "k", seen),
                           .v = project_heads(s, "v", seen),
                           .sinks = PLIM_NONE,
                           .scale = 1,
                           .dropout = s->c->dropout,
                           .softmax = PLIM_HF_SOFTMAX_PLAIN,
                           .biased = true,
                           .through = 1};
    if (s->decoder)
        plim_hf_update_cache(s->h, &a.k, &a.v, 0);
    plim_nn_called(n, (uint32_t[]){x, seen, a.q, a.k, a.v},
                   5); /* variables, until it returns */
    const bool earlier = s->h->version < PLIM_HF_SINCE_T5_MASKS;
    if (*bias == PLIM_NONE) {
        if (!cross)
            count_tokens(s); /* real_seq_length */
        *bias = cross ? no_bias(s, &a) : position_bias(s);
        if (earlier)
            *bias = plim_nn_binary(n, "aten.add.Tensor", *bias, s->mask[cross]);
    }
    a.bias = *bias;
    a.keeps_scores = earlier;
    if (earlier)
        a.softmax = PLIM_HF_SOFTMAX_FLOAT;
    a.mask = earlier                ? PLIM_NONE
             : !s->h->eager         ? sdpa_mask(s, *bias, cross)
             : s->decoder && !cross ? s->h->mask
                                    : PLIM_NONE;
    x = plim_hf_join_heads(n, plim_hf_attend(s->h, a));
    x = plim_nn_linear(n, "o", x, s->c->hidden, false);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_attention(stack *s, const char *name, uint32_t x, bool cross)
{
    plim_nn *n = s->n;
    plim_nn_enter(n, name, cross ? "T5LayerCrossAttention" : "T5LayerSelfAttention");
    plim_nn_order(n, "SelfAttention EncDecAttention *");
    if (cross)
        count_tokens(s); /* query_length */
    uint32_t normed = add_norm(s, "layer_norm", x);
    uint32_t y = attend_to(s, normed, cross ? s->memory : normed, cross, &s->bias[cross]);
    plim_nn_called(n, (uint32_t[]){x, normed, y}, 3); /* attention_output */
    x = plim_nn_binary(n, "aten.add.Tensor", x, apply_dropout(s, y));
    plim_nn_leave(n);
    return x;
}

/* "gated-gelu": whether it is gated, and the activation. */
static bool is_gated(plim_str name, plim_str *act)
{
    static const char prefix[] = "gated-";
    size_t n = sizeof prefix - 1;
    bool yes = name.n > n && !memcmp(name.p, prefix, n);
    *act = yes ? (plim_str){name.p + n, name.n - n} : name;
    if (plim_str_is(name, "gated-gelu"))
        *act = PLIM_STR("gelu_new");
    return yes;
}

/* Under autocast the input has another dtype than the weight, so it is cast. */
static uint32_t last_linear(const stack *s, uint32_t x)
{
    plim_nn *n = s->n;
    plim_nn_enter(n, "wo", "Linear");
    uint32_t w = plim_nn_param(n, "weight", INTS(s->c->hidden, s->c->ffn));
    x = plim_nn_linear_op(n, plim_nn_to_like(n, x, w), w, PLIM_NONE);
    plim_nn_leave(n);
    return x;
}

/* Both factors are variables of the open module, until it returns. */
static uint32_t multiply_gate(const stack *s, uint32_t gate, uint32_t up)
{
    plim_nn_called(s->n, (uint32_t[]){gate, up}, 2);
    return plim_nn_binary(s->n, "aten.mul.Tensor", gate, up);
}

static uint32_t feed_forward(const stack *s, const char *name, uint32_t x)
{
    const config *c = s->c;
    plim_nn *n = s->n;
    plim_str act;
    bool gate = is_gated(c->feed_forward, &act);
    plim_nn_enter(n, name, "T5LayerFF");
    plim_nn_order(n, "DenseReluDense *");
    uint32_t y = add_norm(s, "layer_norm", x);
    plim_nn_enter(n, "DenseReluDense", gate ? "T5DenseGatedActDense" : "T5DenseActDense");
    uint32_t up = plim_nn_linear(n, gate ? "wi_0" : "wi", y, c->ffn, false);
    up = plim_hf_act(s->h, "act", act, up);
    if (gate)
        up = multiply_gate(s, up, plim_nn_linear(n, "wi_1", y, c->ffn, false));
    y = last_linear(s, apply_dropout(s, up));
    plim_nn_leave(n);
    plim_nn_called(n, (uint32_t[]){x, y}, 2); /* forwarded_states */
    x = plim_nn_binary(n, "aten.add.Tensor", x, apply_dropout(s, y));
    plim_nn_leave(n);
    return x;
}

static uint32_t add_block(stack *s, int64_t i, uint32_t x)
{
    plim_nn *n = s->n;
    plim_nn_enter(n, plim_nn_name(n, "block.", i), "T5Block");
    plim_nn_called(n, &s->positions, 1);
    x = add_attention(s, "layer.0", x, false);
    if (s->decoder)
        x = add_attention(s, "layer.1", x, true);
    x = feed_forward(s, s->decoder ? "layer.2" : "layer.1", x);
    plim_nn_leave(n);
    return x;
}

/* Of ones, for each sequence; biases of positions are added to them. */
static void make_masks(stack *s)
{
    if (s->h->version >= PLIM_HF_SINCE_MASK_AT_POSITIONS) {
        s->positions = plim_nn_arange(s->n, s->h->seq);
        plim_nn_holds(s->n, s->positions);
    }
    const uint32_t ones = plim_hf_ones(s->h, PLIM_F32, s->h->seq);
    if (!s->decoder) {
        s->mask[0] = plim_hf_numbers(s->h, ones);
        return;
    }
    s->mask[0] = plim_hf_causal_numbers(s->h, ones, s->positions);
    s->mask[1] =
        plim_hf_numbers(s->h, plim_hf_ones(s->h, PLIM_I64, plim_nn_dim(s->n, s->memory, 1)));
}

static uint32_t run_stack(stack s, uint32_t ids)
{
    plim_nn *n = s.n;
    plim_nn_enter(n, s.decoder ? "decoder" : "encoder", "T5Stack");
    plim_nn_enter(n, "embed_tokens", "Embedding");
    uint32_t x = plim_nn_embedding_op(n, ids, plim_nn_tie(n, "weight", s.table));
    plim_nn_leave(n);
    plim_nn_called(n, &x, 1); /* inputs_embeds, until it returns */
    if (s.h->version < PLIM_HF_SINCE_T5_MASKS)
        make_masks(&s);
    else if (s.decoder && s.h->eager)
        plim_hf_causal_mask(s.h, (plim_hf_mask){.positions = PLIM_NONE, .unpadded = true});
    x = apply_dropout(&s, x);
    for (int64_t i = 0; i < (s.decoder ? s.c->decoder_layers : s.c->layers) && !n->st; i++)
        x = add_block(&s, i, x);
    x = add_norm(&s, "final_layer_norm", x);
    x = apply_dropout(&s, x);
    plim_nn_leave(n);
    return x;
}

/* ---- the model --------------------------------------------------------------------------------- */

static void t5_build(plim_hf *h, const void *p)
{
    config c = *(const config *)p;
    plim_nn *n = &h->n;
    stack s = {
        .h = h, .n = n, .c = &c, .positions = PLIM_NONE, .bias = {PLIM_NONE, PLIM_NONE}};
    h->flash = false; /* which its bias is not made for */
    c.decoder_layers = c.decoder_layers ? c.decoder_layers : c.layers;
    plim_hf_check_heads(h, c.heads, c.heads, c.dim);
    plim_hf_refuse(h, n->dtype == PLIM_F16, "dtype float16");
    plim_hf_tokens(h, "input_ids", INT32_MAX, false); /* its positions are relative */
    plim_nn_root(n, "T5ForConditionalGeneration");
    uint32_t ids = plim_hf_ids(h), labels = PLIM_NONE;
    if (!n->infer)
        labels = plim_hf_target(h, "labels");
    plim_nn_enter(n, "shared", "Embedding");
    s.table = plim_nn_param(n, "weight", INTS(c.vocab, c.hidden));
    plim_nn_leave(n);
    s.memory = run_stack(s, ids);
    s.decoder = true;
    uint32_t shifted = plim_hf_shift_right(h, labels);
    h->seq = plim_nn_dim(n, shifted, 1); /* tokens are those of the decoder from here on */
    uint32_t x = run_stack(s, shifted);
    if (h->version < PLIM_HF_SINCE_T5_MASKS)
        plim_nn_holds(n, x); /* decoder_outputs */
    if (c.tie)
        x = plim_nn_scalar(n, "aten.mul.Tensor", x, 1 / sqrt((double)c.hidden));
    plim_nn_enter(n, "lm_head", "Linear");
    uint32_t w = c.tie ? plim_nn_tie(n, "weight", s.table)
                       : plim_nn_param(n, "weight", INTS(c.vocab, c.hidden));
    x = plim_nn_linear_op(n, x, w, PLIM_NONE);
    plim_nn_leave(n);
    plim_hf_class_outputs(h, x, labels);
    plim_nn_output(n, s.memory);
}

/* clang-format off */
static const plim_hf_key t5_keys[] = {
    HF_SIZE(vocab, "vocab_size", 32128),
    HF_SIZE(hidden, "d_model hidden_size", 512),
    HF_SIZE(dim, "d_kv head_dim", 64),
    HF_SIZE(ffn, "d_ff", 2048),
    HF_LAYERS(layers, "num_layers num_hidden_layers", 6),
    {HF_ROW(decoder_layers, "num_decoder_layers", GIVEN), .max = PLIM_HF_MAX_LAYERS},
    HF_SIZE(heads, "num_heads num_attention_heads", 8),
    HF_SIZE(buckets, "relative_attention_num_buckets", 32),
    HF_SIZE(distance, "relative_attention_max_distance", 128),
    HF_SHARE(dropout, "dropout_rate", 0.1),
    HF_REAL(eps, "layer_norm_epsilon", 1e-6),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_WORD(feed_forward, "feed_forward_proj", "relu"),
};
/* clang-format on */

static const plim_hf_family t5_families[] = {{"t5", "T5ForConditionalGeneration", NULL, NULL}};

const plim_hf_group plim_hf_t5 = {
    .doc = "T5",
    .src = "transformers 5.23 models/t5",
    .families = t5_families,
    .n_families = PLIM_COUNT(t5_families),
    .keys = t5_keys,
    .n_keys = PLIM_COUNT(t5_keys),
    .size = sizeof(config),
    .caches = true,
    .encodes = true,
    .build = t5_build,
};
