/* hf_wav2vec2.c -- encoders of sound as it is, with connectionist temporal classification: wav2vec 2.0 and models that are
 * built alike.
 *
 * What draws of the host decide is taken as large as it can be: no layer is dropped, and the spans that SpecAugment masks
 * are as many as there can be, and do not overlap.
 * src: transformers 5.24 models/{wav2vec2,hubert,unispeech,unispeech_sat}/, loss/loss_ctc.py */
#include "import/hf/hf_audio.h"
#include "import/hf/hf_encoder.h"

enum { CONVS = 16 };

typedef struct config {
    int64_t vocab, hidden, layers, heads, ffn, adapter, projected;
    int64_t positions, groups; /* of the convolution that tells positions */
    int64_t mask_length, mask_least, feature_length;
    double dropout, attention_dropout, act_dropout, projection_dropout, final_dropout;
    double layerdrop, mask_share, feature_share, eps;
    bool conv_bias, stable, augments, zero_infinity, adds, weighted, batch_norm,
        projection_norm;
    plim_str act, conv_act, conv_norm, dims, strides, kernels, reduction;
    plim_hf_labels labels;
} config;

/* Peculiarities of a model type. */
typedef struct row {
    const char *prefix, *base;
    bool features; /* the encoder returns what it projected, too */
    bool compared; /* training steps of its class for CTC, with runs */
} row;

typedef struct wav2vec2 {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    const row *r;
    uint32_t convs;
    int64_t dim[CONVS], stride[CONVS], kernel[CONVS];
    int64_t samples, frames; /* of each sequence */
} wav2vec2;

static void enter_module(const wav2vec2 *w, const char *name, const char *type)
{
    plim_nn_enter(w->n, name, plim_nn_join(w->n, w->r->prefix, type));
}

/* ---- features ----------------------------------------------------------------------------- */

/* GroupNorm with a group for each channel. */
static uint32_t add_group_norm(plim_nn *n, const char *name, uint32_t x)
{
    const int64_t channels = plim_nn_dim(n, x, 1);
    plim_nn_enter(n, name, "GroupNorm");
    uint32_t weight = plim_nn_param(n, "weight", INTS(channels)),
             bias = plim_nn_param(n, "bias", INTS(channels));
    x = NN_OP(n, "aten.group_norm.default", ARG_T("input", x), ARG_I("num_groups", channels),
              ARG_T("weight", weight), ARG_T("bias", bias));
    plim_nn_leave(n);
    return x;
}

static uint32_t add_conv_layer(const wav2vec2 *w, uint32_t i, uint32_t x)
{
    plim_nn *n = w->n;
    const bool layer_norm = plim_str_is(w->c->conv_norm, "layer"),
               group_norm = !layer_norm && !i;
    enter_module(w, plim_nn_name(n, "conv_layers.", i),
                 layer_norm   ? "LayerNormConvLayer"
                 : group_norm ? "GroupNormConvLayer"
                              : "NoLayerNormConvLayer");
    plim_nn_called(n, &x, 1);
    x = plim_hf_conv1d(n, "conv", x,
                       (plim_hf_window){.channels = w->dim[i],
                                        .kernel = w->kernel[i],
                                        .stride = w->stride[i],
                                        .bias = w->c->conv_bias});
    if (group_norm)
        x = add_group_norm(n, "layer_norm", x);
    if (layer_norm) {
        x = plim_nn_transpose(n, x, -2, -1);
        x = plim_nn_layer_norm(n, "layer_norm", x, 1e-5);
        x = plim_nn_transpose(n, x, -2, -1);
    }
    x = plim_hf_act(w->h, "activation", w->c->conv_act, x);
    plim_nn_leave(n);
    return x;
}

/* Its input gets a gradient, which only checkpoints would need. */
static uint32_t extract_features(const wav2vec2 *w, uint32_t x)
{
    plim_nn *n = w->n;
    enter_module(w, "feature_extractor", "FeatureEncoder");
    x = plim_nn_unsqueeze(n, x, 1);
    if (!n->infer)
        NN_OP(n, "plimsoll.requires_grad.default", ARG_T("self", x));
    for (uint32_t i = 0; i < w->convs && !n->st; i++)
        x = add_conv_layer(w, i, x);
    plim_nn_leave(n);
    return plim_nn_transpose(n, x, 1, 2);
}

static uint32_t project_features(const wav2vec2 *w, uint32_t x)
{
    plim_nn *n = w->n;
    enter_module(w, "feature_projection", "FeatureProjection");
    plim_nn_called(n, &x, 1);
    if (w->c->projection_norm)
        x = plim_nn_layer_norm(n, "layer_norm", x, w->c->eps);
    if (w->r->features)
        plim_nn_returned(n, x, 1);
    x = plim_nn_linear(n, "projection", x, w->c->hidden, true);
    x = plim_nn_dropout(n, "dropout", x, w->c->projection_dropout);
    plim_nn_leave(n);
    return x;
}

/* ---- SpecAugment ----------------------------------------------------------------------------- */

/* Positions that are masked at most of so many: whole spans.  src: _compute_mask_indices */
static int64_t most_masked(const wav2vec2 *w, double share, int64_t length, int64_t least,
                           int64_t all)
{
    if (length > all) {
        plim_nn_fail(w->n, PLIM_EUSAGE,
                     "SpecAugment masks spans of %" PRId64 ", but there are %" PRId64
                     ": transformers refuses so short a sound",
                     length, all);
        return 0;
    }
    const double spans = share * (double)all / (double)length;
    int64_t most = (int64_t)spans;
    most = PLIM_MAX(most + ((double)most < spans), least); /* the draw rounds up */
    return PLIM_MIN(PLIM_MIN(most, all / length), all - length + 1) * length;
}

static uint32_t copy_mask(const wav2vec2 *w, int64_t width)
{
    return NN_OP(w->n, "aten.zeros.default", ARG_IS("size", INTS(w->h->batch, width)),
                 ARG_I("dtype", PLIM_BOOL));
}

static uint32_t put_masked(const wav2vec2 *w, uint32_t x, uint32_t mask, uint32_t value,
                           int64_t masked)
{
    return NN_OP(w->n, "aten.index_put_.default", ARG_T("self", x),
                 ARG_TS("indices", &mask, 1), ARG_T("values", value), ARG_I("true", masked));
}

/* embedding: what masked frames become; PLIM_NONE: nothing is masked */
static uint32_t mask_frames(const wav2vec2 *w, uint32_t x, uint32_t embedding)
{
    const config *c = w->c;
    plim_nn *n = w->n;
    if (n->infer || !c->augments)
        return x;
    uint32_t frames = PLIM_NONE;
    if (c->mask_share > 0) {
        const int64_t masked =
            most_masked(w, c->mask_share, c->mask_length, c->mask_least, w->frames);
        frames = copy_mask(w, w->frames);
        x = put_masked(w, x, frames, embedding, w->h->batch * masked);
    }
    if (c->feature_share > 0) {
        most_masked(w, c->feature_share, c->feature_length, 0, c->hidden);
        uint32_t features = plim_nn_unsqueeze(n, copy_mask(w, c->hidden), 1);
        features = plim_nn_expand(n, features, INTS(-1, w->frames, -1));
        uint32_t zero = NN_OP(n, "aten.zeros.default", ARG_IS("size", ((plim_ints){NULL, 0})));
        x = put_masked(w, x, features, zero, 0);
    }
    plim_hf_end_variables(n, &frames, frames != PLIM_NONE);
    return x;
}

/* ---- the encoder ------------------------------------------------------------------------------- */

/* A convolution whose weight is made of its direction and norm for each call; one that is even is too long by one. */
static uint32_t add_positions(const wav2vec2 *w, uint32_t x)
{
    const config *c = w->c;
    plim_nn *n = w->n;
    const int64_t size = c->hidden;
    enter_module(w, "pos_conv_embed", "PositionalConvEmbedding");
    plim_nn_called(n, &x, 1);
    x = plim_nn_transpose(n, x, 1, 2);
    plim_nn_enter(n, "conv", "ParametrizedConv1d");
    uint32_t bias = plim_nn_param(n, "bias", INTS(size));
    uint32_t norm =
        plim_nn_param(n, "parametrizations.weight.original0", INTS(1, 1, c->positions));
    uint32_t direction = plim_nn_param(n, "parametrizations.weight.original1",
                                       INTS(size, size / c->groups, c->positions));
    uint32_t weight = NN_OP(n, "aten._weight_norm.default", ARG_T("v", direction),
                            ARG_T("g", norm), ARG_I("dim", 2));
    x = NN_OP(n, "aten.conv1d.default", ARG_T("input", x), ARG_T("weight", weight),
              ARG_T("bias", bias), ARG_IS("padding", INTS(c->positions / 2)),
              ARG_I("groups", c->groups));
    plim_nn_leave(n);
    if (c->positions % 2 == 0)
        x = plim_nn_slice(n, x, 2, 0, -1, 1);
    x = plim_hf_act(w->h, "activation", c->conv_act, x);
    x = plim_nn_transpose(n, x, 1, 2);
    plim_nn_leave(n);
    return x;
}

static uint32_t project_heads(const wav2vec2 *w, const char *name, uint32_t x)
{
    x = plim_nn_linear(w->n, name, x, w->c->hidden, true);
    return plim_hf_split_heads(w->n, x, w->c->hidden / w->c->heads);
}

static uint32_t add_attention(const wav2vec2 *w, uint32_t x)
{
    plim_nn *n = w->n;
    enter_module(w, "attention", "Attention");
    plim_nn_order(n, "k_proj v_proj *");
    uint32_t q = project_heads(w, "q_proj", x), k = project_heads(w, "k_proj", x),
             v = project_heads(w, "v_proj", x);
    plim_nn_called(n, (uint32_t[]){x, q, k, v}, 4); /* variables, until it returns */
    x = plim_hf_full_attention(w->h, (plim_hf_attention){.q = q,
                                                         .k = k,
                                                         .v = v,
                                                         .mask = PLIM_NONE,
                                                         .dropout = w->c->attention_dropout,
                                                         .softmax = PLIM_HF_SOFTMAX_PLAIN});
    x = plim_nn_linear(n, "out_proj", x, w->c->hidden, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t feed_forward(const wav2vec2 *w, uint32_t x)
{
    const config *c = w->c;
    plim_nn *n = w->n;
    enter_module(w, "feed_forward", "FeedForward");
    x = plim_nn_linear(n, "intermediate_dense", x, c->ffn, true);
    x = plim_hf_act(w->h, "intermediate_act_fn", c->act, x);
    x = plim_nn_dropout(n, "intermediate_dropout", x, c->act_dropout);
    x = plim_nn_linear(n, "output_dense", x, c->hidden, true);
    x = plim_nn_dropout(n, "output_dropout", x, c->dropout);
    plim_nn_leave(n);
    return x;
}

/* One for each language, in each layer. */
static uint32_t add_adapter(const wav2vec2 *w, uint32_t x)
{
    plim_nn *n = w->n;
    enter_module(w, "adapter_layer", "AttnAdapterLayer");
    x = plim_nn_layer_norm(n, "norm", x, 1e-5);
    x = plim_nn_linear(n, "linear_1", x, w->c->adapter, true);
    x = plim_nn_act(n, "act_fn", x, PLIM_RELU);
    x = plim_nn_linear(n, "linear_2", x, w->c->hidden, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_layer(const wav2vec2 *w, int64_t i, uint32_t x)
{
    const config *c = w->c;
    plim_nn *n = w->n;
    enter_module(w, plim_nn_name(n, "layers.", i),
                 c->stable ? "EncoderLayerStableLayerNorm" : "EncoderLayer");
    plim_nn_order(n, "attention layer_norm feed_forward final_layer_norm *");
    plim_nn_called(n, &x, 1); /* attn_residual */
    uint32_t y = c->stable ? plim_nn_layer_norm(n, "layer_norm", x, c->eps) : x;
    y = add_attention(w, y);
    y = plim_nn_dropout(n, "dropout", y, c->dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    if (!c->stable)
        x = plim_nn_layer_norm(n, "layer_norm", x, c->eps);
    y = c->stable ? plim_nn_layer_norm(n, "final_layer_norm", x, c->eps) : x;
    x = plim_nn_binary(n, "aten.add.Tensor", x, feed_forward(w, y));
    if (!c->stable)
        x = plim_nn_layer_norm(n, "final_layer_norm", x, c->eps);
    else if (c->adapter)
        x = plim_nn_binary(n, "aten.add.Tensor", x, add_adapter(w, x));
    plim_nn_leave(n);
    return x;
}

static uint32_t add_encoder(const wav2vec2 *w, uint32_t x)
{
    const config *c = w->c;
    plim_nn *n = w->n;
    enter_module(w, "encoder", c->stable ? "EncoderStableLayerNorm" : "Encoder");
    plim_nn_order(n, "pos_conv_embed layer_norm *");
    plim_nn_called(n, &x, 1);
    uint32_t where = add_positions(w, x);
    plim_nn_holds(n, where); /* position_embeddings */
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    if (!c->stable)
        x = plim_nn_layer_norm(n, "layer_norm", x, c->eps);
    x = plim_nn_dropout(n, "dropout", x, c->dropout);
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_layer(w, i, x);
    if (c->stable)
        x = plim_nn_layer_norm(n, "layer_norm", x, c->eps);
    plim_nn_leave(n);
    return x;
}

/* In the open module, the model without a head. */
static uint32_t add_model(const wav2vec2 *w, uint32_t sound)
{
    const config *c = w->c;
    plim_nn *n = w->n;
    const bool masks = c->mask_share > 0 || c->feature_share > 0;
    uint32_t embedding =
        masks ? plim_nn_param(n, "masked_spec_embed", INTS(c->hidden)) : PLIM_NONE;
    uint32_t x = extract_features(w, sound);
    if (!w->r->features)
        plim_nn_holds(n, x);
    x = project_features(w, x);
    x = mask_frames(w, x, embedding);
    return add_encoder(w, x);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* How many frames each sound has, as the class works it out from a mask of its samples. */
static uint32_t count_frames(const wav2vec2 *w, uint32_t sound)
{
    plim_nn *n = w->n;
    uint32_t ones =
        NN_OP(n, "aten.ones_like.default", ARG_T("self", sound), ARG_I("dtype", PLIM_I64));
    plim_nn_holds(n, ones); /* attention_mask */
    uint32_t x =
        NN_OP(n, "aten.sum.dim_IntList", ARG_T("self", ones), ARG_IS("dim", INTS(-1)));
    for (uint32_t i = 0; i < w->convs; i++) {
        x = plim_nn_scalar(n, "aten.sub.Tensor", x, (double)w->kernel[i]);
        x = plim_nn_scalar(n, "aten.floor_divide.default", x, (double)w->stride[i]);
        x = plim_nn_scalar(n, "aten.add.Tensor", x, 1);
    }
    plim_nn_holds(n, x); /* input_lengths */
    return x;
}

/* src: loss/loss_ctc.py ForCTCLoss; no label is padding */
static uint32_t ctc_loss(const wav2vec2 *w, uint32_t logits, uint32_t labels, uint32_t lengths)
{
    plim_nn *n = w->n;
    uint32_t given = NN_OP(n, "aten.ne.Scalar", ARG_T("self", labels), ARG_I("other", -100));
    uint32_t letters = NN_OP(n, "aten.ne.Scalar", ARG_T("self", labels), ARG_I("other", 0));
    uint32_t mask = plim_nn_binary(n, "aten.bitwise_and.Tensor", given, letters);
    uint32_t counts =
        NN_OP(n, "aten.sum.dim_IntList", ARG_T("self", mask), ARG_IS("dim", INTS(-1)));
    uint32_t flat = NN_OP(n, "aten.index.Tensor", ARG_T("self", labels),
                          ARG_TS("indices", &mask, 1), ARG_I("true", w->h->batch * w->h->seq));
    uint32_t x = NN_OP(n, "aten.log_softmax.int", ARG_T("self", logits), ARG_I("dim", -1),
                       ARG_I("dtype", PLIM_F32));
    x = plim_nn_transpose(n, x, 0, 1);
    x = NN_OP(n, "aten.ctc_loss.Tensor", ARG_T("log_probs", x), ARG_T("targets", flat),
              ARG_T("input_lengths", lengths), ARG_T("target_lengths", counts),
              ARG_I("reduction", plim_str_is(w->c->reduction, "mean") ? 1 : 2),
              ARG_I("zero_infinity", w->c->zero_infinity), ARG_I("longest", w->h->seq));
    plim_hf_end_variables(n, (uint32_t[]){mask, counts}, 2);
    return x;
}

static uint32_t read_sound(const wav2vec2 *w)
{
    return plim_hf_input(w->h, "input_values", w->n->dtype, INTS(w->h->batch, w->samples));
}

/* The model in a class with a head, which holds what it returned. */
static uint32_t add_base(const wav2vec2 *w, uint32_t sound)
{
    enter_module(w, w->r->base, "Model");
    uint32_t x = add_model(w, sound);
    plim_nn_leave(w->n);
    plim_nn_holds(w->n, x);
    return x;
}

static void build_ctc(const wav2vec2 *w)
{
    plim_nn *n = w->n;
    uint32_t sound = read_sound(w), labels = PLIM_NONE;
    if (!n->infer) {
        labels = plim_hf_target(w->h, "labels");
        uint32_t most = plim_nn_unary(n, "aten.max.default", labels);
        NN_OP(n, "aten.ge.Scalar", ARG_T("self", most), ARG_I("other", w->c->vocab));
    }
    uint32_t x = add_base(w, sound);
    x = plim_nn_dropout(n, "dropout", x, w->c->final_dropout);
    plim_nn_holds(n, x); /* hidden_states */
    x = plim_nn_linear(n, "lm_head", x, w->c->vocab, true);
    if (!n->infer)
        plim_nn_output(n, ctc_loss(w, x, labels, count_frames(w, sound)));
    plim_nn_output(n, x);
}

static void build_classifier(const wav2vec2 *w)
{
    plim_nn *n = w->n;
    uint32_t x = add_base(w, read_sound(w));
    x = plim_nn_linear(n, "projector", x, w->c->projected, true);
    plim_nn_holds(n, x); /* hidden_states */
    uint32_t pooled = NN_OP(n, "aten.mean.dim", ARG_T("self", x), ARG_IS("dim", INTS(1)));
    plim_nn_holds(n, pooled);
    x = plim_nn_linear(n, "classifier", pooled, plim_hf_n_labels(w->h, &w->c->labels), true);
    plim_hf_class_outputs(w->h, x, PLIM_NONE);
}

static void build_bare(const wav2vec2 *w)
{
    plim_nn_output(w->n, add_model(w, read_sound(w)));
}

/* ---- configurations ------------------------------------------------------------------------------- */

static void read_list(wav2vec2 *w, const char *key, plim_str raw, const int64_t usual[7],
                      int64_t *out)
{
    uint32_t n = plim_hf_list(w->h, key, raw, out, CONVS);
    if (!raw.n) {
        n = 7;
        memcpy(out, usual, 7 * sizeof *out);
    }
    if (w->convs && n != w->convs)
        plim_nn_fail(w->n, PLIM_ESHAPE,
                     "'%s' has %u items, 'conv_dim' has %u: one for each convolution", key,
                     (unsigned)n, (unsigned)w->convs);
    w->convs = n;
}

/* The convolutions shorten the sound to frames. */
static void read_convs(wav2vec2 *w)
{
    static const int64_t dims[7] = {512, 512, 512, 512, 512, 512, 512},
                         strides[7] = {5, 2, 2, 2, 2, 2, 2},
                         kernels[7] = {10, 3, 3, 3, 3, 2, 2};
    read_list(w, "conv_dim", w->c->dims, dims, w->dim);
    read_list(w, "conv_stride", w->c->strides, strides, w->stride);
    read_list(w, "conv_kernel", w->c->kernels, kernels, w->kernel);
    w->frames = w->samples;
    for (uint32_t i = 0; i < w->convs && !w->n->st; i++) {
        if (w->frames < w->kernel[i])
            plim_nn_fail(w->n, PLIM_EUSAGE,
                         "audio: %" PRId64 " samples are too few for the convolutions",
                         w->samples);
        w->frames = (w->frames - w->kernel[i]) / w->stride[i] + 1;
    }
}

/* Letters of the labels: as 'seq' says, or one for every three frames, somewhat more than are spoken. */
static void count_letters(wav2vec2 *w, bool takes)
{
    enum { FRAMES_OF_LETTER = 3 };
    plim_hf *h = w->h;
    const int64_t asked = h->bind->seq;
    if (!takes) {
        if (asked)
            plim_nn_fail(
                w->n, PLIM_EUSAGE,
                "'seq' is the length of labels, which this model is not given: 'audio' is "
                "that of its input");
        return;
    }
    h->seq = asked ? asked : PLIM_MAX(w->frames / FRAMES_OF_LETTER, 1);
    h->seq_max = w->frames;
    if (h->seq > w->frames)
        plim_nn_fail(w->n, h->bind->seq_tried ? PLIM_ERANGE : PLIM_EUSAGE,
                     "labels of %" PRId64 " letters are longer than the %" PRId64
                     " frames of the audio",
                     h->seq, w->frames);
    if (!asked)
        plim_hf_note(h, "labels have %" PRId64 " letters, unless 'seq' says otherwise",
                     h->seq);
}

/* What draws decide. */
static void note_draws(const wav2vec2 *w)
{
    const config *c = w->c;
    if (w->n->infer)
        return;
    if (c->layerdrop > 0)
        plim_hf_note(w->h, "all layers run, although layerdrop %g leaves some out",
                     c->layerdrop);
    if (c->augments && (c->mask_share > 0 || c->feature_share > 0))
        plim_hf_note(w->h, "SpecAugment masks as much as its draws allow");
}

static void wav2vec2_build(plim_hf *h, const void *p)
{
    const config *c = p;
    wav2vec2 w = {.h = h, .n = &h->n, .c = c, .r = h->family->row};
    const plim_str head = plim_hf_class_head(h, w.r->prefix);
    const bool ctc = plim_str_is(head, "ForCTC");
    plim_hf_check_head_width(h, c->hidden, c->heads);
    plim_hf_refuse(h, c->adds, "add_adapter");
    plim_hf_refuse(h, c->batch_norm, "conv_pos_batch_norm");
    plim_hf_refuse(h, c->weighted && !ctc, "use_weighted_layer_sum");
    plim_hf_refuse(h,
                   !plim_str_is(c->conv_norm, "group") && !plim_str_is(c->conv_norm, "layer"),
                   "feat_extract_norm");
    if (c->hidden % c->groups)
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "%" PRId64 " groups do not divide a hidden size of %" PRId64, c->groups,
                     c->hidden);
    plim_hf_batch(h, "input_values");
    w.samples = plim_hf_samples(h, "input_values");
    read_convs(&w);
    count_letters(&w, ctc && !h->n.infer);
    if (h->n.st)
        return;
    note_draws(&w);
    if (h->n.infer || !ctc || !w.r->compared)
        plim_hf_note(h, "this class was not compared with runs%s",
                     h->n.infer ? " of inference" : "");
    plim_hf_root(h, w.r->prefix);
    if (ctc)
        build_ctc(&w);
    else if (plim_str_is(head, "ForSequenceClassification"))
        build_classifier(&w);
    else
        build_bare(&w);
}

/* clang-format off */
static const plim_hf_key wav2vec2_keys[] = {
    HF_SIZE(vocab, "vocab_size", 32),
    HF_SIZE(hidden, "hidden_size", 768),
    HF_LAYERS(layers, "num_hidden_layers", 12),
    HF_SIZE(heads, "num_attention_heads", 12),
    HF_SIZE(ffn, "intermediate_size", 3072),
    HF_GIVEN_OR_NULL(adapter, "adapter_attn_dim"),
    HF_SIZE(projected, "classifier_proj_size", 256),
    HF_SIZE(positions, "num_conv_pos_embeddings", 128),
    HF_SIZE(groups, "num_conv_pos_embedding_groups", 16),
    HF_SIZE(mask_length, "mask_time_length", 10),
    HF_OPTION(mask_least, "mask_time_min_masks", 2),
    HF_SIZE(feature_length, "mask_feature_length", 10),
    HF_SHARE(dropout, "hidden_dropout", 0.1),
    HF_SHARE(attention_dropout, "attention_dropout", 0.1),
    HF_SHARE(act_dropout, "activation_dropout", 0.1),
    HF_SHARE(projection_dropout, "feat_proj_dropout", 0),
    HF_SHARE(final_dropout, "final_dropout", 0.1),
    HF_SHARE(layerdrop, "layerdrop", 0.1),
    HF_SHARE(mask_share, "mask_time_prob", 0.05),
    HF_SHARE(feature_share, "mask_feature_prob", 0),
    HF_REAL(eps, "layer_norm_eps", 1e-5),
    HF_BOOL(conv_bias, "conv_bias", 0),
    HF_BOOL(stable, "do_stable_layer_norm", 0),
    HF_BOOL(augments, "apply_spec_augment", 1),
    HF_BOOL(zero_infinity, "ctc_zero_infinity", 0),
    HF_BOOL(adds, "add_adapter", 0),
    HF_BOOL(weighted, "use_weighted_layer_sum", 0),
    HF_BOOL(batch_norm, "conv_pos_batch_norm", 0),
    HF_BOOL(projection_norm, "feat_proj_layer_norm", 1),
    HF_WORD(act, "hidden_act", "gelu"),
    HF_WORD(conv_act, "feat_extract_activation", "gelu"),
    HF_WORD(conv_norm, "feat_extract_norm", "group"),
    HF_WORD(reduction, "ctc_loss_reduction", "sum"),
    HF_RAW(dims, "conv_dim"),
    HF_RAW(strides, "conv_stride"),
    HF_RAW(kernels, "conv_kernel"),
    HF_LABELS(labels),
};

#define CLASSES(prefix) prefix "ForCTC " prefix "ForSequenceClassification " prefix "Model"
#define ROW(...) .row = &(const row){__VA_ARGS__}
static const plim_hf_family wav2vec2_families[] = {
    {"wav2vec2", CLASSES("Wav2Vec2"), NULL, ROW("Wav2Vec2", "wav2vec2", .features = true, .compared = true)},
    {"hubert", CLASSES("Hubert"), NULL, ROW("Hubert", "hubert", .features = false)},
    {"unispeech", CLASSES("UniSpeech"), NULL, ROW("UniSpeech", "unispeech", .features = true)},
    {"unispeech-sat", CLASSES("UniSpeechSat"), NULL, ROW("UniSpeechSat", "unispeech_sat", .features = true)},
};
/* clang-format on */

const plim_hf_group plim_hf_wav2vec2 = {
    .doc = "wav2vec 2.0, HuBERT, UniSpeech",
    .src = "transformers 5.24 models/{wav2vec2,hubert,unispeech,unispeech_sat}",
    .families = wav2vec2_families,
    .n_families = PLIM_COUNT(wav2vec2_families),
    .keys = wav2vec2_keys,
    .n_keys = PLIM_COUNT(wav2vec2_keys),
    .size = sizeof(config),
    .newest = true,
    .build = wav2vec2_build,
};
