/* hf_vit.c -- the vision transformer.
 * src: transformers 5.23 models/vit/modeling_vit.py */
#include "import/hf/hf_encoder.h"

typedef struct config {
    int64_t hidden, ffn, layers, heads, channels, pooled;
    double eps, dropout, attention_dropout;
    bool qkv_bias;
    plim_str act, pooler_act, image_size, patch_size;
    plim_hf_labels labels;
    int64_t image[2], patch; /* of image_size and patch_size */
} config;

static uint32_t add_embeddings(plim_hf *h, const config *c)
{
    plim_nn *n = &h->n;
    uint32_t x = plim_hf_pixels(h, PLIM_F32, c->channels, c->image);
    int64_t patches = (c->image[0] / c->patch) * (c->image[1] / c->patch);
    plim_nn_enter(n, "embeddings", "ViTEmbeddings");
    uint32_t first = plim_nn_param(n, "cls_token", INTS(1, 1, c->hidden));
    uint32_t where = plim_nn_param(n, "position_embeddings", INTS(1, patches + 1, c->hidden));
    x = plim_hf_to_parameters(n, x);
    plim_nn_enter(n, "patch_embeddings", "ViTPatchEmbeddings");
    x = plim_nn_conv2d(
        n, "projection", x,
        (plim_conv){.out = c->hidden, .kernel = c->patch, .stride = c->patch, .bias = true});
    x = NN_OP(n, "aten.flatten.using_ints", ARG_T("self", x), ARG_I("start_dim", 2));
    x = plim_nn_transpose(n, x, 1, 2);
    plim_nn_leave(n);
    first = plim_nn_expand(n, first, INTS(h->batch, -1, -1));
    x = plim_nn_cat(n, (uint32_t[]){first, x}, 2, 1);
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    x = plim_nn_dropout(n, "dropout", x, c->dropout);
    plim_nn_leave(n);
    return x;
}

static uint32_t project_heads(plim_hf *h, const config *c, const char *name, uint32_t x)
{
    x = plim_nn_linear(&h->n, name, x, c->hidden, c->qkv_bias);
    return plim_hf_split_heads(&h->n, x, c->hidden / c->heads);
}

static uint32_t add_attention(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "attention", "ViTAttention");
    uint32_t q = project_heads(h, c, "q_proj", x), k = project_heads(h, c, "k_proj", x),
             v = project_heads(h, c, "v_proj", x);
    plim_nn_called(n, (uint32_t[]){x, q, k, v}, 4); /* variables, until it returns */
    x = plim_hf_full_attention(
        h, (plim_hf_attention){
               .q = q, .k = k, .v = v, .mask = PLIM_NONE, .dropout = c->attention_dropout});
    x = plim_nn_linear(n, "o_proj", x, c->hidden, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_layer(plim_hf *h, const config *c, int64_t i, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, plim_nn_name(n, "layers.", i), "ViTLayer");
    plim_nn_order(n, "attention layernorm_before layernorm_after *");
    uint32_t y = plim_nn_layer_norm(n, "layernorm_before", x, c->eps);
    y = add_attention(h, c, y);
    y = plim_nn_dropout(n, "dropout", y, c->dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", y, x);
    y = plim_nn_layer_norm(n, "layernorm_after", x, c->eps);
    plim_nn_enter(n, "mlp", "ViTMLP");
    y = plim_hf_mlp(h, (plim_hf_ffn){"fc1", "activation_fn", "fc2"}, c->act, y, c->ffn, true);
    plim_nn_leave(n);
    y = plim_nn_dropout(n, "dropout", y, c->dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", y, x);
    plim_nn_leave(n);
    return x;
}

/* In the open module. */
static uint32_t add_encoder(plim_hf *h, const config *c)
{
    plim_nn *n = &h->n;
    uint32_t x = add_embeddings(h, c);
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_layer(h, c, i, x);
    return plim_nn_layer_norm(n, "layernorm", x, c->eps);
}

static void image_classification(plim_hf *h, const config *c)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "vit", "ViTModel");
    uint32_t x = add_encoder(h, c);
    plim_nn_leave(n);
    x = plim_nn_select(n, x, 1, 0);
    x = plim_nn_linear(n, "classifier", x, plim_hf_n_labels(h, &c->labels), true);
    plim_hf_sequence_outputs(h, x, &c->labels);
}

static void build_bare(plim_hf *h, const config *c)
{
    plim_nn *n = &h->n;
    uint32_t x = add_encoder(h, c);
    plim_nn_output(n, x);
    plim_nn_enter(n, "pooler", "ViTPooler");
    x = plim_nn_select(n, x, 1, 0);
    x = plim_nn_linear(n, "dense", x, c->pooled ? c->pooled : c->hidden, true);
    x = plim_hf_act(h, "activation", c->pooler_act, x);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

static void vit_build(plim_hf *h, const void *p)
{
    config c = *(const config *)p;
    plim_hf_check_head_width(h, c.hidden, c.heads);
    plim_hf_pair(h, "image_size", c.image_size, 224, c.image);
    c.patch = plim_hf_patch(h, c.patch_size, 16, c.image);
    plim_hf_batch(h, "pixel_values");
    plim_hf_root(h, "ViT");
    if (plim_str_is(plim_hf_class_head(h, "ViT"), "Model"))
        build_bare(h, &c);
    else
        image_classification(h, &c);
}

/* clang-format off */
static const plim_hf_key vit_keys[] = {
    HF_SIZE(hidden, "hidden_size", 768),
    HF_SIZE(ffn, "intermediate_size", 3072),
    HF_LAYERS(layers, "num_hidden_layers", 12),
    HF_SIZE(heads, "num_attention_heads", 12),
    HF_SIZE(channels, "num_channels", 3),
    HF_GIVEN(pooled, "pooler_output_size"),
    HF_REAL(eps, "layer_norm_eps", 1e-12),
    HF_SHARE(dropout, "hidden_dropout_prob", 0),
    HF_SHARE(attention_dropout, "attention_probs_dropout_prob", 0),
    HF_BOOL(qkv_bias, "qkv_bias", 1),
    HF_WORD(act, "hidden_act", "gelu"),
    HF_WORD(pooler_act, "pooler_act", "tanh"),
    HF_RAW(image_size, "image_size"),
    HF_RAW(patch_size, "patch_size"),
    HF_LABELS(labels),
};
/* clang-format on */

static const plim_hf_family vit_families[] = {
    {"vit", "ViTForImageClassification ViTModel", NULL, NULL}};

const plim_hf_group plim_hf_vit = {
    .doc = "the vision transformer",
    .src = "transformers 5.23 models/vit",
    .families = vit_families,
    .n_families = PLIM_COUNT(vit_families),
    .keys = vit_keys,
    .n_keys = PLIM_COUNT(vit_keys),
    .size = sizeof(config),
    .build = vit_build,
};
