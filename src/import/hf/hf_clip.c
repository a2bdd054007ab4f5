/* hf_clip.c -- CLIP: an image tower, a text tower, and the similarity of each pair.
 * src: transformers 5.23 models/clip/modeling_clip.py */
#include <math.h>

#include "import/hf/hf_encoder.h"

typedef struct tower {
    int64_t hidden, ffn, layers, heads;
    double eps, dropout;
    plim_str act;
} tower;

typedef struct config {
    tower text, vision;
    int64_t vocab, positions, channels, width;
    plim_str eos, image_size, patch_size;
    int64_t image[2], patch; /* of image_size and patch_size */
} config;

/* ---- what both towers are made of --------------------------------------------------- */

static uint32_t project_heads(plim_hf *h, const tower *t, const char *name, uint32_t x)
{
    x = plim_nn_linear(&h->n, name, x, t->hidden, true);
    return plim_hf_split_heads(&h->n, x, t->hidden / t->heads);
}

static uint32_t add_attention(plim_hf *h, const tower *t, uint32_t x, bool causal)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "self_attn", "CLIPAttention");
    plim_nn_order(n, "k_proj v_proj *");
    plim_hf_attention a = {.q = project_heads(h, t, "q_proj", x),
                           .k = project_heads(h, t, "k_proj", x),
                           .v = project_heads(h, t, "v_proj", x),
                           .mask = PLIM_NONE,
                           .sinks = PLIM_NONE,
                           .causal = causal,
                           .scale = 1 / sqrt((double)t->hidden / (double)t->heads),
                           .dropout = t->dropout};
    plim_nn_called(n, (uint32_t[]){x, a.q, a.k, a.v}, 4); /* variables, until it returns */
    x = plim_hf_join_heads(n, plim_hf_attend(h, a));
    x = plim_nn_linear(n, "out_proj", x, t->hidden, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_layer(plim_hf *h, const tower *t, int64_t i, uint32_t x, bool causal)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, plim_nn_name(n, "layers.", i), "CLIPEncoderLayer");
    plim_nn_order(n, "self_attn layer_norm1 mlp *");
    uint32_t y = plim_nn_layer_norm(n, "layer_norm1", x, t->eps);
    y = add_attention(h, t, y, causal);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    y = plim_nn_layer_norm(n, "layer_norm2", x, t->eps);
    plim_nn_enter(n, "mlp", "CLIPMLP");
    y = plim_hf_mlp(h, (plim_hf_ffn){"fc1", "activation_fn", "fc2"}, t->act, y, t->ffn, true);
    plim_nn_leave(n);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_encoder(plim_hf *h, const tower *t, uint32_t x, bool causal)
{
    plim_nn_enter(&h->n, "encoder", "CLIPEncoder");
    for (int64_t i = 0; i < t->layers && !h->n.st; i++)
        x = add_layer(h, t, i, x, causal);
    plim_nn_leave(&h->n);
    return x;
}

/* The output of a tower: all hidden states, and the pooled one. */
typedef struct seen {
    uint32_t all, one;
} seen;

/* ---- pictures --------------------------------------------------------------------------- */

static uint32_t vision_embeddings(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    int64_t side = c->image[0] / c->patch, width = c->vision.hidden, count = side * side + 1;
    plim_nn_enter(n, "embeddings", "CLIPVisionEmbeddings");
    uint32_t first = plim_nn_param(n, "class_embedding", INTS(width));
    uint32_t where = plim_nn_temporary_buffer(n, "position_ids", PLIM_I64, INTS(1, count));
    x = plim_hf_to_parameters(n, x);
    x = plim_nn_conv2d(n, "patch_embedding", x,
                       (plim_conv){.out = width, .kernel = c->patch, .stride = c->patch});
    x = NN_OP(n, "aten.flatten.using_ints", ARG_T("self", x), ARG_I("start_dim", 2));
    x = plim_nn_transpose(n, x, 1, 2);
    first = plim_nn_expand(n, first, INTS(h->batch, 1, -1));
    x = plim_nn_cat(n, (uint32_t[]){first, x}, 2, 1);
    where = plim_nn_embedding(n, "position_embedding", where, count, width, NULL);
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    plim_nn_leave(n);
    return x;
}

static seen add_vision(plim_hf *h, const config *c, uint32_t pixels)
{
    plim_nn *n = &h->n;
    seen s;
    plim_nn_enter(n, "vision_model", "CLIPVisionModel");
    uint32_t x = vision_embeddings(h, c, pixels);
    x = plim_nn_layer_norm(n, "pre_layrnorm", x, c->vision.eps);
    s.all = add_encoder(h, &c->vision, x, false);
    s.one = plim_nn_select(n, s.all, 1, 0);
    s.one = plim_nn_layer_norm(n, "post_layernorm", s.one, c->vision.eps);
    plim_nn_leave(n);
    return s;
}

/* ---- text ----------------------------------------------------------------------------------- */

static uint32_t text_embeddings(plim_hf *h, const config *c, uint32_t ids)
{
    plim_nn *n = &h->n;
    int64_t width = c->text.hidden;
    plim_nn_enter(n, "embeddings", "CLIPTextEmbeddings");
    plim_nn_order(n, "token_embedding *");
    uint32_t where =
        plim_nn_temporary_buffer(n, "position_ids", PLIM_I64, INTS(1, c->positions));
    where = plim_nn_slice(n, where, 1, 0, h->seq, 1);
    uint32_t x = plim_nn_embedding(n, "token_embedding", ids, c->vocab, width, NULL);
    where = plim_nn_embedding(n, "position_embedding", where, c->positions, width, NULL);
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    plim_nn_leave(n);
    return x;
}

/* The hidden state of the last token of each text. */
static uint32_t at_the_end(plim_hf *h, const config *c, uint32_t x, uint32_t ids)
{
    plim_nn *n = &h->n;
    uint32_t at[2];
    at[0] = plim_nn_arange(n, h->batch);
    at[1] = plim_nn_to(n, ids, PLIM_I32);
    if (!plim_str_is(c->eos, "2")) { /* with 2 it is assumed to be the largest token */
        at[1] = NN_OP(n, "aten.eq.Scalar", ARG_T("self", at[1]), ARG_I("other", 0));
        at[1] = plim_nn_to(n, at[1], PLIM_I32);
    }
    at[1] = NN_OP(n, "aten.argmax.default", ARG_T("self", at[1]), ARG_I("dim", -1));
    return NN_OP(n, "aten.index.Tensor", ARG_T("self", x), ARG_TS("indices", at, 2));
}

static seen add_text(plim_hf *h, const config *c, uint32_t ids)
{
    plim_nn *n = &h->n;
    seen s;
    plim_nn_enter(n, "text_model", "CLIPTextModel");
    ids = plim_nn_view(n, ids, INTS(-1, h->seq));
    uint32_t x = add_encoder(h, &c->text, text_embeddings(h, c, ids), true);
    s.all = plim_nn_layer_norm(n, "final_layer_norm", x, c->text.eps);
    s.one = at_the_end(h, c, s.all, ids);
    plim_nn_leave(n);
    return s;
}

/* ---- both -------------------------------------------------------------------------------------- */

/* x / ||x|| */
static uint32_t normalize_l2(plim_nn *n, uint32_t x)
{
    uint32_t y = NN_OP(n, "aten.pow.Tensor_Scalar", ARG_T("self", x), ARG_I("exponent", 2));
    y = NN_OP(n, "aten.sum.dim_IntList", ARG_T("self", y), ARG_IS("dim", INTS(-1)),
              ARG_I("keepdim", 1));
    y = NN_OP(n, "aten.pow.Tensor_Scalar", ARG_T("self", y), ARG_F("exponent", 0.5));
    return plim_nn_binary(n, "aten.div.Tensor", x, y);
}

/* Each pair is contrasted with all others of the batch. */
static uint32_t contrastive_loss(plim_hf *h, uint32_t similarity)
{
    uint32_t right = plim_nn_arange(&h->n, h->batch);
    return NN_OP(&h->n, "aten.cross_entropy_loss.default", ARG_T("self", similarity),
                 ARG_T("target", right));
}

static uint32_t clip_loss(plim_hf *h, uint32_t similarity)
{
    plim_nn *n = &h->n;
    uint32_t a = contrastive_loss(h, similarity);
    uint32_t b = contrastive_loss(h, plim_nn_unary(n, "aten.numpy_T.default", similarity));
    return plim_nn_scalar(n, "aten.div.Tensor", plim_nn_binary(n, "aten.add.Tensor", a, b), 2);
}

static void clip_build(plim_hf *h, const void *p)
{
    config c = *(const config *)p;
    plim_nn *n = &h->n;
    plim_hf_check_head_width(h, c.text.hidden, c.text.heads);
    plim_hf_check_head_width(h, c.vision.hidden, c.vision.heads);
    plim_hf_pair(h, "image_size", c.image_size, 224, c.image);
    if (c.eos.n && c.eos.p[0] != '-' && c.eos.p[0] != '[' &&
        !(c.eos.p[0] >= '0' && c.eos.p[0] <= '9'))
        plim_hf_not(h, "eos_token_id", c.eos, "a whole number, or a list of them");
    c.patch = plim_hf_patch(h, c.patch_size, 32, c.image);
    plim_hf_refuse(h, c.image[0] != c.image[1], "image_size with two different sides");
    plim_hf_tokens(h, "input_ids", c.positions, true);
    plim_nn_root(n, "CLIPModel");
    plim_nn_order(n, "text_model vision_model visual_projection text_projection");
    uint32_t ids = plim_hf_ids(h), pixels = plim_hf_pixels(h, PLIM_F32, c.channels, c.image);
    uint32_t scale = plim_nn_param(n, "logit_scale", (plim_ints){NULL, 0});
    seen picture = add_vision(h, &c, pixels);
    picture.one = plim_nn_linear(n, "visual_projection", picture.one, c.width, false);
    seen words = add_text(h, &c, ids);
    words.one = plim_nn_linear(n, "text_projection", words.one, c.width, false);
    uint32_t a = normalize_l2(n, picture.one), b = normalize_l2(n, words.one);
    uint32_t x =
        plim_nn_binary(n, "aten.matmul.default", b, plim_nn_unary(n, "aten.t.default", a));
    x = plim_nn_binary(n, "aten.mul.Tensor", x, plim_nn_unary(n, "aten.exp.default", scale));
    uint32_t by_picture = plim_nn_unary(n, "aten.t.default", x);
    if (!n->infer)
        plim_nn_output(n, clip_loss(h, x));
    const uint32_t out[] = {by_picture, x,         b,           a,
                            words.all,  words.one, picture.all, picture.one};
    for (size_t i = 0; i < PLIM_COUNT(out); i++)
        plim_nn_output(n, out[i]);
}

/* clang-format off */
#define TEXT(name) "text_config." name " text_config_dict." name
#define VISION(name) "vision_config." name " vision_config_dict." name
static const plim_hf_key clip_keys[] = {
    HF_SIZE(text.hidden, TEXT("hidden_size"), 512),
    HF_SIZE(text.ffn, TEXT("intermediate_size"), 2048),
    HF_LAYERS(text.layers, TEXT("num_hidden_layers"), 12),
    HF_SIZE(text.heads, TEXT("num_attention_heads"), 8),
    HF_REAL(text.eps, TEXT("layer_norm_eps"), 1e-5),
    HF_SHARE(text.dropout, TEXT("attention_dropout"), 0),
    HF_WORD(text.act, TEXT("hidden_act"), "quick_gelu"),
    HF_SIZE(vocab, TEXT("vocab_size"), 49408),
    HF_SIZE(positions, TEXT("max_position_embeddings"), 77),
    HF_RAW(eos, TEXT("eos_token_id")),
    HF_SIZE(vision.hidden, VISION("hidden_size"), 768),
    HF_SIZE(vision.ffn, VISION("intermediate_size"), 3072),
    HF_LAYERS(vision.layers, VISION("num_hidden_layers"), 12),
    HF_SIZE(vision.heads, VISION("num_attention_heads"), 12),
    HF_REAL(vision.eps, VISION("layer_norm_eps"), 1e-5),
    HF_SHARE(vision.dropout, VISION("attention_dropout"), 0),
    HF_WORD(vision.act, VISION("hidden_act"), "quick_gelu"),
    HF_SIZE(channels, VISION("num_channels"), 3),
    HF_RAW(image_size, VISION("image_size")),
    HF_RAW(patch_size, VISION("patch_size")),
    HF_SIZE(width, "projection_dim", 512),
};
/* clang-format on */

static const plim_hf_family clip_families[] = {{"clip", "CLIPModel", NULL, NULL}};

const plim_hf_group plim_hf_clip = {
    .doc = "CLIP",
    .src = "transformers 5.23 models/clip",
    .families = clip_families,
    .n_families = PLIM_COUNT(clip_families),
    .keys = clip_keys,
    .n_keys = PLIM_COUNT(clip_keys),
    .size = sizeof(config),
    .build = clip_build,
};
