/* vit.c -- Vision Transformer.  src: torchvision/models/vision_transformer.py,
 * torch/nn/functional.py multi_head_attention_forward (need_weights=False). For another image
 * size than 224 the model is built with that image_size. */
#include "zoo/zoo.h"

typedef struct vit_row {
    int64_t patch, layers, heads, hidden, mlp;
} vit_row;

static const double eps = 1e-6;

/* in_proj of query, key and value at once: [L, N, 3E] into three of [L, N, E]. */
static void qkv_packed(plim_nn *n, uint32_t x, uint32_t *qkv)
{
    int64_t e = plim_nn_dim(n, x, -1);
    uint32_t w = plim_nn_param(n, "in_proj_weight", INTS(3 * e, e));
    uint32_t b = plim_nn_param(n, "in_proj_bias", INTS(3 * e));
    x = plim_nn_linear_op(n, x, w, b);
    x = NN_OP(n, "aten.unflatten.int", ARG_T("self", x), ARG_I("dim", -1),
              ARG_IS("sizes", INTS(3, e)));
    x = plim_nn_unsqueeze(n, x, 0);
    x = plim_nn_transpose(n, x, 0, -2);
    x = NN_OP(n, "aten.squeeze.dim", ARG_T("self", x), ARG_I("dim", -2));
    x = plim_nn_contiguous(n, x);
    for (int i = 0; i < 3; i++)
        qkv[i] = plim_nn_select(n, x, 0, i);
}

/* MultiheadAttention(batch_first=True) of x with itself. */
static uint32_t self_attention(plim_nn *n, uint32_t x, int64_t heads)
{
    uint32_t qkv[3];
    int64_t b = plim_nn_dim(n, x, 0), len = plim_nn_dim(n, x, 1), e = plim_nn_dim(n, x, 2);
    plim_nn_enter(n, "self_attention", "MultiheadAttention");
    x = plim_nn_transpose(n, x, 1, 0);
    qkv_packed(n, x, qkv);
    for (int i = 0; i < 3; i++) {
        qkv[i] = plim_nn_view(n, qkv[i], INTS(len, b * heads, e / heads));
        qkv[i] = plim_nn_transpose(n, qkv[i], 0, 1);
    }
    for (int i = 0; i < 3; i++)
        qkv[i] = plim_nn_view(n, qkv[i], INTS(b, heads, len, e / heads));
    x = NN_OP(n, "aten.scaled_dot_product_attention.default", ARG_T("query", qkv[0]),
              ARG_T("key", qkv[1]), ARG_T("value", qkv[2]));
    x = plim_nn_permute(n, x, INTS(2, 0, 1, 3));
    x = plim_nn_reshape(n, x, INTS(b * len, e));
    uint32_t w = plim_nn_param(n, "out_proj.weight", INTS(e, e));
    uint32_t bias = plim_nn_param(n, "out_proj.bias", INTS(e));
    x = plim_nn_linear_op(n, x, w, bias);
    x = plim_nn_view(n, x, INTS(len, b, e));
    x = plim_nn_transpose(n, x, 1, 0);
    plim_nn_leave(n);
    return x;
}

static uint32_t encoder_block(plim_nn *n, const vit_row *r, int64_t index, uint32_t input)
{
    plim_nn_enter(n, plim_nn_name(n, "encoder_layer_", index), "EncoderBlock");
    uint32_t x = plim_nn_layer_norm(n, "ln_1", input, eps);
    x = self_attention(n, x, r->heads);
    x = plim_nn_dropout(n, "dropout", x, 0);
    x = plim_nn_binary(n, "aten.add.Tensor", x, input);
    uint32_t y = plim_nn_layer_norm(n, "ln_2", x, eps);
    plim_nn_enter(n, "mlp", "MLPBlock");
    y = plim_nn_linear(n, NULL, y, r->mlp, true);
    y = plim_nn_act(n, NULL, y, PLIM_GELU);
    y = plim_nn_dropout(n, NULL, y, 0);
    y = plim_nn_linear(n, NULL, y, r->hidden, true);
    y = plim_nn_dropout(n, NULL, y, 0);
    plim_nn_leave(n);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    plim_nn_leave(n);
    return x;
}

static void vit_build(plim_nn *n, const void *row, uint32_t x)
{
    const vit_row *r = row;
    int64_t b = plim_nn_dim(n, x, 0), h = plim_nn_dim(n, x, 2), w = plim_nn_dim(n, x, 3);
    int64_t patches = (h / r->patch) * (w / r->patch);
    if (h != w || h % r->patch)
        plim_nn_fail(n, PLIM_ESHAPE,
                     "an image of %" PRId64 "x%" PRId64
                     " is not a square of patches of %" PRId64,
                     h, w, r->patch);
    plim_nn_root(n, "VisionTransformer");
    uint32_t cls = plim_nn_param(n, "class_token", INTS(1, 1, r->hidden));
    x = plim_nn_conv2d(
        n, "conv_proj", x,
        (plim_conv){.out = r->hidden, .kernel = r->patch, .stride = r->patch, .bias = true});
    x = plim_nn_reshape(n, x, INTS(b, r->hidden, patches));
    x = plim_nn_permute(n, x, INTS(0, 2, 1));
    cls = NN_OP(n, "aten.expand.default", ARG_T("self", cls), ARG_IS("size", INTS(b, -1, -1)));
    x = plim_nn_cat(n, (uint32_t[]){cls, x}, 2, 1);
    plim_nn_enter(n, "encoder", "Encoder");
    uint32_t pos = plim_nn_param(n, "pos_embedding", INTS(1, patches + 1, r->hidden));
    x = plim_nn_binary(n, "aten.add.Tensor", x, pos);
    x = plim_nn_dropout(n, "dropout", x, 0);
    plim_nn_enter(n, "layers", "Sequential");
    for (int64_t i = 0; i < r->layers; i++)
        x = encoder_block(n, r, i, x);
    plim_nn_leave(n);
    x = plim_nn_layer_norm(n, "ln", x, eps);
    plim_nn_leave(n);
    x = plim_nn_select(n, x, 1, 0);
    plim_nn_enter(n, "heads", "Sequential");
    x = plim_nn_linear(n, "head", x, 1000, true);
    plim_nn_leave(n);
    plim_nn_output(n, x);
}

/* clang-format off */
#define VIT(NAME, DOC, PARAMETERS, ...) \
    {.name = NAME, .doc = DOC, .src = "torchvision 0.20 models/vision_transformer.py", .parameters = PARAMETERS, \
     .input = {3, 224, 224}, .build = vit_build, .row = &(const vit_row){__VA_ARGS__}}
static const plim_zoo_model vit_models[] = {
    VIT("vit_b_16", "Vision Transformer Base, patches of 16",   86567656, 16, 12, 12, 768, 3072),
    VIT("vit_b_32", "Vision Transformer Base, patches of 32",   88224232, 32, 12, 12, 768, 3072),
    VIT("vit_l_16", "Vision Transformer Large, patches of 16", 304326632, 16, 24, 16, 1024, 4096),
};
/* clang-format on */
PLIM_ZOO_FAMILY(vit, "vit");
