/* hf_bart.c -- encoder-decoder models like BART: BART, with norms after each block, and
 * Whisper, with norms before it and audio instead of words.
 * src: transformers 5.23 models/{bart,whisper}/ */
#include <math.h>

#include "import/hf/hf_audio.h"
#include "import/hf/hf_encoder.h"

typedef struct half {
    int64_t layers, heads, ffn;
    double layerdrop;
} half;

typedef struct config {
    int64_t vocab, hidden, positions; /* BART */
    int64_t mels, frames, targets;    /* Whisper */
    half encoder, decoder;
    double dropout, attention_dropout, act_dropout;
    bool tie, scale_embedding;
    plim_str act;
} config;

typedef struct bart bart;

/* Peculiarities of a model type. */
typedef struct row {
    const char *prefix;
    bool norm_first;       /* and one more after all layers */
    bool labels_end_cache; /* use_cache is off where there are labels */
    bool early_scale;      /* queries are scaled separately, heads copied, keys have no bias */
    void (*build)(const bart *b);
} row;

struct bart {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    const row *r;
};

static const double eps = 1e-5;
enum { HOP = 160 }; /* samples of sound for each frame of Whisper's spectrogram */

static void enter_module(const bart *b, const char *name, const char *type)
{
    plim_nn_enter(b->n, name, plim_nn_join(b->n, b->r->prefix, type));
}

/* F.dropout, in the open module */
static uint32_t apply_dropout(const bart *b, uint32_t x)
{
    return plim_nn_dropout_op(b->n, x, b->c->dropout);
}

/* ---- attention ---------------------------------------------------------------------- */

static uint32_t project_heads(const bart *b, const char *name, uint32_t x, int64_t heads)
{
    plim_nn *n = b->n;
    int64_t dim = b->c->hidden / heads;
    bool early = b->r->early_scale, query = *name == 'q';
    x = plim_nn_linear(n, name, x, b->c->hidden, !early || *name != 'k');
    if (early && query)
        x = plim_nn_scalar(n, "aten.mul.Tensor", x, 1 / sqrt((double)dim));
    x = plim_hf_split_heads(n, x, dim);
    return early ? plim_nn_contiguous(n, x) : x;
}

/* Attention from x to `seen`: x itself, only earlier tokens if `causal`; or the encoder's
 * output */
static uint32_t attend_to(const bart *b, const char *name, uint32_t x, uint32_t seen,
                          int64_t heads, bool causal)
{
    plim_nn *n = b->n;
    enter_module(b, name, "Attention");
    plim_nn_order(n, "k_proj v_proj *");
    plim_hf_attention a = {
        .q = project_heads(b, "q_proj", x, heads),
        .k = project_heads(b, "k_proj", seen, heads),
        .v = project_heads(b, "v_proj", seen, heads),
        .mask = causal ? b->h->mask : PLIM_NONE,
        .sinks = PLIM_NONE,
        .causal = causal,
        .softmax = PLIM_HF_SOFTMAX_PLAIN,
        .scale = b->r->early_scale ? 1 : 1 / sqrt((double)b->c->hidden / (double)heads),
        .dropout = b->c->attention_dropout};
    if (causal || seen != x)
        plim_hf_update_cache(b->h, &a.k, &a.v, 0);
    plim_nn_called(n, (uint32_t[]){x, a.q, a.k, a.v}, 4); /* variables, until it returns */
    x = plim_hf_join_heads(n, plim_hf_attend(b->h, a));
    x = plim_nn_linear(n, "out_proj", x, b->c->hidden, true);
    plim_nn_leave(n);
    return x;
}

/* ---- a layer --------------------------------------------------------------------------- */

/* Attention with its norm and residual connection. */
static uint32_t add_attention(const bart *b, const char *name, uint32_t x, uint32_t memory,
                              int64_t heads, bool causal)
{
    plim_nn *n = b->n;
    const char *norm = plim_nn_join(n, name, "_layer_norm");
    uint32_t y = b->r->norm_first ? plim_nn_layer_norm(n, norm, x, eps) : x;
    y = attend_to(b, name, y, memory == PLIM_NONE ? y : memory, heads, causal);
    y = apply_dropout(b, y);
    uint32_t residual = x;
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    if (b->r->norm_first)
        return x;
    x = plim_nn_layer_norm(n, norm, x, eps);
    plim_hf_end_variable(n, residual);
    return x;
}

static uint32_t feed_forward(const bart *b, uint32_t x, int64_t ffn)
{
    plim_nn *n = b->n;
    const char *norm = "final_layer_norm";
    plim_nn_holds(n, x); /* residual, until it returns */
    uint32_t y = b->r->norm_first ? plim_nn_layer_norm(n, norm, x, eps) : x;
    uint32_t hidden = y;
    y = plim_nn_linear(n, "fc1", y, ffn, true);
    y = plim_hf_act(b->h, "activation_fn", b->c->act, y);
    plim_hf_end_variable(n, hidden);
    y = plim_nn_dropout_op(n, y, b->c->act_dropout);
    y = plim_nn_linear(n, "fc2", y, b->c->hidden, true);
    y = apply_dropout(b, y);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    return b->r->norm_first ? x : plim_nn_layer_norm(n, norm, x, eps);
}

/* `memory`: the encoder's output; PLIM_NONE in the encoder itself */
static uint32_t add_layers(const bart *b, uint32_t x, uint32_t memory)
{
    plim_nn *n = b->n;
    bool decoder = memory != PLIM_NONE;
    const half *s = decoder ? &b->c->decoder : &b->c->encoder;
    for (int64_t i = 0; i < s->layers && !n->st; i++) {
        enter_module(b, plim_nn_name(n, "layers.", i),
                     decoder ? "DecoderLayer" : "EncoderLayer");
        plim_nn_order(n, "self_attn self_attn_layer_norm encoder_attn "
                         "encoder_attn_layer_norm fc1 fc2 *");
        x = add_attention(b, "self_attn", x, PLIM_NONE, s->heads, decoder);
        if (decoder)
            x = add_attention(b, "encoder_attn", x, memory, s->heads, false);
        x = feed_forward(b, x, s->ffn);
        plim_nn_leave(n);
    }
    return b->r->norm_first ? plim_nn_layer_norm(n, "layer_norm", x, eps) : x;
}

static uint32_t labels_of(const bart *b)
{
    return b->n->infer ? PLIM_NONE : plim_hf_target(b->h, "labels");
}

/* Linear without bias over the decoder's output. */
static uint32_t lm_head(const bart *b, const char *name, uint32_t x, uint32_t table)
{
    plim_nn *n = b->n;
    plim_nn_enter(n, name, "Linear");
    uint32_t w = b->c->tie ? plim_nn_tie(n, "weight", table)
                           : plim_nn_param(n, "weight", INTS(b->c->vocab, b->c->hidden));
    x = plim_nn_linear_op(n, x, w, PLIM_NONE);
    plim_nn_leave(n);
    return x;
}

/* ---- BART --------------------------------------------------------------------------------- */

static uint32_t bart_table(const bart *b, uint32_t shared)
{
    return b->c->tie ? plim_nn_tie(b->n, "weight", shared)
                     : plim_nn_param(b->n, "weight", INTS(b->c->vocab, b->c->hidden));
}

/* `at`: positions shared by all sequences; PLIM_NONE: computed here, per sequence */
static uint32_t bart_positions(const bart *b, uint32_t at)
{
    plim_nn *n = b->n;
    enter_module(b, "embed_positions", "LearnedPositionalEmbedding");
    uint32_t w = plim_nn_param(n, "weight", INTS(b->c->positions + 2, b->c->hidden));
    at = at == PLIM_NONE
             ? plim_nn_expand(n, plim_nn_arange(n, b->h->seq), INTS(b->h->batch, -1))
             : plim_nn_unsqueeze(n, at, 0);
    at = plim_nn_embedding_op(n, plim_nn_scalar(n, "aten.add.Tensor", at, 2), w);
    plim_nn_leave(n);
    return at;
}

static uint32_t bart_half(const bart *b, uint32_t ids, uint32_t shared, uint32_t memory)
{
    plim_nn *n = b->n;
    bool decoder = memory != PLIM_NONE;
    double scale = b->c->scale_embedding ? sqrt((double)b->c->hidden) : 1;
    enter_module(b, decoder ? "decoder" : "encoder", decoder ? "Decoder" : "Encoder");
    plim_nn_order(n, "embed_tokens embed_positions * layernorm_embedding");
    enter_module(b, "embed_tokens", "ScaledWordEmbedding");
    uint32_t x = plim_nn_embedding_op(n, ids, bart_table(b, shared));
    x = plim_nn_scalar(n, "aten.mul.Tensor", x, scale);
    plim_nn_leave(n);
    uint32_t at = decoder ? plim_nn_arange(n, b->h->seq) : PLIM_NONE;
    if (decoder) {
        at = plim_nn_scalar(n, "aten.add.Tensor", at, 0);
        plim_hf_causal_mask(b->h, (plim_hf_mask){.positions = PLIM_NONE, .unpadded = true});
    }
    uint32_t where = bart_positions(b, at);
    plim_nn_called(n, (uint32_t[]){x, where}, 2); /* variables, until it returns */
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    x = plim_nn_layer_norm(n, "layernorm_embedding", x, eps);
    x = add_layers(b, apply_dropout(b, x), memory);
    plim_nn_leave(n);
    return x;
}

/* From here on tokens are those of the decoder. */
static void follow_target(const bart *b, uint32_t ids)
{
    b->h->seq = plim_nn_dim(b->n, ids, 1);
    if (b->h->seq > b->c->positions)
        plim_nn_fail(b->n, PLIM_ERANGE,
                     "the decoder gets %" PRId64
                     " tokens, the model has positions for %" PRId64,
                     b->h->seq, b->c->positions);
}

static void bart_lm(const bart *b)
{
    plim_nn *n = b->n;
    plim_hf_tokens(b->h, "input_ids", b->c->positions, true);
    uint32_t ids = plim_hf_ids(b->h), labels = labels_of(b);
    uint32_t bias = plim_nn_buffer(n, "final_logits_bias", n->dtype, INTS(1, b->c->vocab));
    uint32_t shifted = plim_hf_shift_right(b->h, labels);
    enter_module(b, "model", "Model");
    enter_module(b, "shared", "ScaledWordEmbedding");
    uint32_t shared = plim_nn_param(n, "weight", INTS(b->c->vocab, b->c->hidden));
    plim_nn_leave(n);
    uint32_t memory = bart_half(b, ids, shared, PLIM_NONE);
    follow_target(b, shifted);
    uint32_t x = bart_half(b, shifted, shared, memory);
    plim_nn_leave(n);
    plim_nn_holds(n, x); /* outputs, until it returns */
    plim_nn_holds(n, memory);
    x = lm_head(b, "lm_head", x, shared);
    x = plim_nn_binary(n, "aten.add.Tensor", x, bias);
    plim_hf_class_outputs(b->h, x, labels);
    plim_nn_output(n, memory);
}

/* ---- Whisper --------------------------------------------------------------------------------- */

static uint32_t add_conv1d(const bart *b, const char *name, uint32_t x, int64_t stride)
{
    const plim_hf_window along = {
        .channels = b->c->hidden, .kernel = 3, .stride = stride, .padding = 1, .bias = true};
    return plim_nn_unary(b->n, "aten.gelu.default", plim_hf_conv1d(b->n, name, x, along));
}

static uint32_t whisper_encoder(const bart *b, uint32_t sound)
{
    const config *c = b->c;
    plim_nn *n = b->n;
    enter_module(b, "encoder", "Encoder");
    uint32_t x = add_conv1d(b, "conv1", sound, 1);
    x = add_conv1d(b, "conv2", x, 2);
    x = plim_nn_permute(n, x, INTS(0, 2, 1));
    uint32_t where = plim_nn_arange(n, c->frames), table;
    where = plim_nn_embedding(n, "embed_positions", where, c->frames, c->hidden, &table);
    plim_nn_freeze(n, table);                     /* sines and cosines */
    plim_nn_called(n, (uint32_t[]){x, where}, 2); /* variables, until it returns */
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    x = add_layers(b, apply_dropout(b, x), PLIM_NONE);
    plim_nn_leave(n);
    return x;
}

static uint32_t whisper_decoder(const bart *b, uint32_t ids, uint32_t memory, uint32_t *table)
{
    const config *c = b->c;
    plim_nn *n = b->n;
    enter_module(b, "decoder", "Decoder");
    plim_nn_order(n, "embed_tokens embed_positions *");
    uint32_t x = plim_nn_embedding(n, "embed_tokens", ids, c->vocab, c->hidden, table);
    uint32_t at = plim_hf_positions(b->h);
    if (plim_nn_dim(n, at, 0) == 1) /* those of an input are of each sequence */
        at = NN_OP(n, "aten.repeat.default", ARG_T("self", at),
                   ARG_IS("repeats", INTS(b->h->batch, 1)));
    enter_module(b, "embed_positions", "PositionalEmbedding");
    uint32_t w = plim_nn_param(n, "weight", INTS(c->targets, c->hidden));
    uint32_t where = NN_OP(n, "aten.index.Tensor", ARG_T("self", w),
                           ARG_TS("indices", (&(const uint32_t){at}), 1));
    plim_nn_leave(n);
    plim_nn_called(n, (uint32_t[]){x, where}, 2); /* variables, until it returns */
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    x = apply_dropout(b, x);
    plim_hf_causal_mask(b->h, (plim_hf_mask){.positions = at, .unpadded = true});
    x = add_layers(b, x, memory);
    plim_nn_leave(n);
    return x;
}

static void whisper_lm(const bart *b)
{
    const config *c = b->c;
    plim_nn *n = b->n;
    uint32_t table = PLIM_NONE;
    plim_hf_tokens(b->h, n->infer ? "decoder_input_ids" : "labels", c->targets, true);
    plim_hf_whole_audio(b->h, 2 * c->frames * HOP);
    uint32_t sound = plim_hf_input(b->h, "input_features", n->dtype,
                                   INTS(b->h->batch, c->mels, 2 * c->frames));
    uint32_t labels = labels_of(b), shifted = plim_hf_shift_right(b->h, labels);
    enter_module(b, "model", "Model");
    uint32_t memory = whisper_encoder(b, sound);
    uint32_t x = whisper_decoder(b, shifted, memory, &table);
    plim_nn_leave(n);
    plim_nn_holds(n, x); /* outputs, until it returns */
    x = lm_head(b, "proj_out", x, table);
    plim_hf_class_outputs(b->h, x, labels);
    plim_nn_output(n, memory);
}

/* ---- configurations ----------------------------------------------------------------------------- */

static void bart_build(plim_hf *h, const void *p)
{
    const config *c = p;
    bart b = {.h = h, .n = &h->n, .c = c, .r = h->family->row};
    h->caching &= h->n.infer || !b.r->labels_end_cache;
    plim_hf_check_head_width(h, c->hidden, c->encoder.heads);
    plim_hf_check_head_width(h, c->hidden, c->decoder.heads);
    plim_hf_refuse(h, h->n.dtype == PLIM_F16, "dtype float16");
    plim_hf_refuse(h, c->encoder.layerdrop > 0 && !h->n.infer, "encoder_layerdrop");
    plim_hf_refuse(h, c->decoder.layerdrop > 0 && !h->n.infer, "decoder_layerdrop");
    plim_nn_root(&h->n, plim_nn_join(&h->n, b.r->prefix, "ForConditionalGeneration"));
    b.r->build(&b);
}

/* clang-format off */
static const plim_hf_key bart_keys[] = {
    HF_SIZE(vocab, "vocab_size", 50265),
    HF_SIZE(hidden, "d_model hidden_size", 1024),
    HF_SIZE(positions, "max_position_embeddings", 1024),
    HF_SIZE(mels, "num_mel_bins", 80),
    HF_SIZE(frames, "max_source_positions", 1500),
    HF_SIZE(targets, "max_target_positions", 448),
    HF_LAYERS(encoder.layers, "encoder_layers num_hidden_layers", 12),
    HF_SIZE(encoder.heads, "encoder_attention_heads num_attention_heads", 16),
    HF_SIZE(encoder.ffn, "encoder_ffn_dim", 4096),
    HF_SHARE(encoder.layerdrop, "encoder_layerdrop", 0),
    HF_LAYERS(decoder.layers, "decoder_layers", 12),
    HF_SIZE(decoder.heads, "decoder_attention_heads", 16),
    HF_SIZE(decoder.ffn, "decoder_ffn_dim", 4096),
    HF_SHARE(decoder.layerdrop, "decoder_layerdrop", 0),
    HF_SHARE(dropout, "dropout", 0.1),
    HF_SHARE(attention_dropout, "attention_dropout", 0),
    HF_SHARE(act_dropout, "activation_dropout", 0),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_BOOL(scale_embedding, "scale_embedding", 0),
    HF_WORD(act, "activation_function", "gelu"),
};

HF_DEFAULTS(whisper_defaults, HF_IS("vocab_size", 51865), HF_IS("d_model", 384), HF_IS("dropout", 0),
            HF_IS("encoder_layers", 4), HF_IS("encoder_attention_heads", 6), HF_IS("encoder_ffn_dim", 1536),
            HF_IS("decoder_layers", 4), HF_IS("decoder_attention_heads", 6), HF_IS("decoder_ffn_dim", 1536));

#define ROW(...) .row = &(const row){__VA_ARGS__}
static const plim_hf_family bart_families[] = {
    {"bart", "BartForConditionalGeneration", NULL, ROW(.prefix = "Bart", .labels_end_cache = true, .build = bart_lm)},
    {"whisper", "WhisperForConditionalGeneration", whisper_defaults,
     ROW(.prefix = "Whisper", .norm_first = true, .early_scale = true, .build = whisper_lm)},
};
/* clang-format on */

const plim_hf_group plim_hf_bart = {
    .doc = "BART and Whisper",
    .src = "transformers 5.23 models/{bart,whisper}",
    .families = bart_families,
    .n_families = PLIM_COUNT(bart_families),
    .keys = bart_keys,
    .n_keys = PLIM_COUNT(bart_keys),
    .size = sizeof(config),
    .caches = true,
    .encodes = true,
    .build = bart_build,
};
