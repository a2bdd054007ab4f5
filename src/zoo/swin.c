/* swin.c -- Swin Transformer.  src: torchvision/models/swin_transformer.py. */
#include "zoo/zoo.h"

typedef struct swin_row {
    int64_t dim;
    int layers[4];
    double drop; /* stochastic depth of the last block */
} swin_row;

enum { WINDOW = 7, AREA = WINDOW * WINDOW, SHIFT = WINDOW / 2, HEAD = 32 };
static const double eps = 1e-5, scale = 0.17677669529663687; /* HEAD ** -0.5 */

/* The table of relative position biases, gathered for a window: [1, heads, 49, 49]. */
static uint32_t position_bias(plim_nn *n, uint32_t table, uint32_t index)
{
    uint32_t x =
        NN_OP(n, "aten.index.Tensor", ARG_T("self", table), ARG_TS("indices", &index, 1));
    x = plim_nn_view(n, x, INTS(AREA, AREA, -1));
    x = plim_nn_permute(n, x, INTS(2, 0, 1));
    x = plim_nn_contiguous(n, x);
    return plim_nn_unsqueeze(n, x, 0);
}

/* [B, H, W, C] into [B * windows, 49, C]. */
static uint32_t to_windows(plim_nn *n, uint32_t x)
{
    int64_t b = plim_nn_dim(n, x, 0), h = plim_nn_dim(n, x, 1) / WINDOW,
            w = plim_nn_dim(n, x, 2) / WINDOW, c = plim_nn_dim(n, x, 3);
    x = plim_nn_view(n, x, INTS(b, h, WINDOW, w, WINDOW, c));
    x = plim_nn_permute(n, x, INTS(0, 1, 3, 2, 4, 5));
    return plim_nn_reshape(n, x, INTS(b * h * w, AREA, c));
}

static uint32_t from_windows(plim_nn *n, uint32_t x, int64_t b, int64_t h, int64_t w)
{
    int64_t c = plim_nn_dim(n, x, -1);
    x = plim_nn_view(n, x, INTS(b, h / WINDOW, w / WINDOW, WINDOW, WINDOW, c));
    x = plim_nn_permute(n, x, INTS(0, 1, 3, 2, 4, 5));
    return plim_nn_reshape(n, x, INTS(b, h, w, c));
}

/* Which pixels of a shifted window may attend to each other: the image is divided into nine
 * regions, which are numbered and compared. */
static uint32_t attention_mask(plim_nn *n, uint32_t like, int64_t h, int64_t w,
                               const int64_t shift[2])
{
    uint32_t mask =
        NN_OP(n, "aten.new_zeros.default", ARG_T("self", like), ARG_IS("size", INTS(h, w)));
    for (int i = 0; i < 9; i++) {
        uint32_t part = mask;
        for (int d = 0; d < 2; d++) {
            int64_t cut[4] = {0, -WINDOW, -shift[d], INT64_MAX};
            int k = d ? i % 3 : i / 3;
            if (cut[k] != 0 || cut[k + 1] != INT64_MAX) /* all of the dim: no slice */
                part = plim_nn_slice(n, part, d, cut[k], cut[k + 1], 1);
        }
        NN_OP(n, "aten.fill_.Scalar", ARG_T("self", part), ARG_I("value", i));
    }
    mask = plim_nn_view(n, mask, INTS(h / WINDOW, WINDOW, w / WINDOW, WINDOW));
    mask = plim_nn_permute(n, mask, INTS(0, 2, 1, 3));
    mask = plim_nn_reshape(n, mask, INTS((h / WINDOW) * (w / WINDOW), AREA));
    uint32_t a = plim_nn_unsqueeze(n, mask, 1), b = plim_nn_unsqueeze(n, mask, 2);
    mask = plim_nn_binary(n, "aten.sub.Tensor", a, b);
    uint32_t other = NN_OP(n, "aten.ne.Scalar", ARG_T("self", mask), ARG_I("other", 0));
    uint32_t hidden = NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", mask),
                            ARG_T("mask", other), ARG_F("value", -100.0));
    uint32_t same = NN_OP(n, "aten.eq.Scalar", ARG_T("self", mask), ARG_I("other", 0));
    return NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", hidden), ARG_T("mask", same),
                 ARG_F("value", 0.0));
}

static uint32_t mask_scores(plim_nn *n, uint32_t attn, uint32_t mask, int64_t heads)
{
    int64_t windows = plim_nn_dim(n, mask, 0), b = plim_nn_dim(n, attn, 0) / windows;
    attn = plim_nn_view(n, attn, INTS(b, windows, heads, AREA, AREA));
    mask = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, mask, 1), 0);
    attn = plim_nn_binary(n, "aten.add.Tensor", attn, mask);
    return plim_nn_view(n, attn, INTS(-1, heads, AREA, AREA));
}

/* x[:, :h, :w, :].contiguous() */
static uint32_t unpad_windows(plim_nn *n, uint32_t x, int64_t h, int64_t w)
{
    uint32_t whole = x;
    if (plim_nn_dim(n, x, 1) != h)
        x = plim_nn_slice(n, x, 1, 0, h, 1);
    if (plim_nn_dim(n, x, 2) != w)
        x = plim_nn_slice(n, x, 2, 0, w, 1);
    if (x == whole)
        x = plim_nn_unary(n, "aten.alias.default", x);
    return plim_nn_contiguous(n, x);
}

/* shifted_window_attention */
static uint32_t window_attention(plim_nn *n, uint32_t x, uint32_t bias, bool shifted)
{
    int64_t b = plim_nn_dim(n, x, 0), h = plim_nn_dim(n, x, 1), w = plim_nn_dim(n, x, 2),
            c = plim_nn_dim(n, x, 3), heads = c / HEAD;
    int64_t pad_w = (WINDOW - w % WINDOW) % WINDOW, pad_h = (WINDOW - h % WINDOW) % WINDOW;
    int64_t ph = h + pad_h, pw = w + pad_w;
    /* a window as large as the image is not shifted */
    int64_t shift[2] = {shifted && ph > WINDOW ? SHIFT : 0,
                        shifted && pw > WINDOW ? SHIFT : 0};
    bool roll = shift[0] + shift[1] > 0;
    x = plim_nn_pad(n, x, INTS(0, 0, 0, pad_w, 0, pad_h));
    if (roll)
        x = NN_OP(n, "aten.roll.default", ARG_T("self", x),
                  ARG_IS("shifts", INTS(-shift[0], -shift[1])), ARG_IS("dims", INTS(1, 2)));
    x = to_windows(n, x);
    uint32_t windows = x, qkv[3];
    uint32_t weight = plim_nn_param(n, "qkv.weight", INTS(3 * c, c));
    x = plim_nn_linear_op(n, x, weight, plim_nn_param(n, "qkv.bias", INTS(3 * c)));
    x = plim_nn_reshape(n, x, INTS(plim_nn_dim(n, windows, 0), AREA, 3, heads, HEAD));
    x = plim_nn_permute(n, x, INTS(2, 0, 3, 1, 4));
    for (int i = 0; i < 3; i++)
        qkv[i] = plim_nn_select(n, x, 0, i);
    uint32_t q = NN_OP(n, "aten.mul.Tensor", ARG_T("self", qkv[0]), ARG_F("other", scale));
    uint32_t attn =
        plim_nn_binary(n, "aten.matmul.default", q, plim_nn_transpose(n, qkv[1], -2, -1));
    attn = plim_nn_binary(n, "aten.add.Tensor", attn, bias);
    if (roll) {
        uint32_t mask = attention_mask(n, windows, ph, pw, shift);
        attn = mask_scores(n, attn, mask, heads);
        plim_nn_holds(n, mask);
    }
    attn = NN_OP(n, "aten.softmax.int", ARG_T("self", attn), ARG_I("dim", -1));
    attn = plim_nn_dropout_op(n, attn, 0);
    const uint32_t held[] = {bias, qkv[0], q, attn}; /* variables, until it returns */
    plim_nn_hold_all(n, held, PLIM_COUNT(held));
    x = plim_nn_binary(n, "aten.matmul.default", attn, qkv[2]);
    x = plim_nn_transpose(n, x, 1, 2);
    x = plim_nn_reshape(n, x, INTS(plim_nn_dim(n, windows, 0), AREA, c));
    plim_nn_ends(n, windows); /* x until now */
    weight = plim_nn_param(n, "proj.weight", INTS(c, c));
    x = plim_nn_linear_op(n, x, weight, plim_nn_param(n, "proj.bias", INTS(c)));
    x = plim_nn_dropout_op(n, x, 0);
    x = from_windows(n, x, b, ph, pw);
    if (roll)
        x = NN_OP(n, "aten.roll.default", ARG_T("self", x),
                  ARG_IS("shifts", INTS(shift[0], shift[1])), ARG_IS("dims", INTS(1, 2)));
    return unpad_windows(n, x, h, w);
}

static uint32_t swin_block(plim_nn *n, uint32_t x, bool shifted, double drop)
{
    int64_t c = plim_nn_dim(n, x, -1), side = 2 * WINDOW - 1;
    plim_nn_enter(n, NULL, "SwinTransformerBlock");
    uint32_t y = plim_nn_layer_norm(n, "norm1", x, eps);
    plim_nn_enter(n, "attn", "ShiftedWindowAttention");
    uint32_t table =
        plim_nn_param(n, "relative_position_bias_table", INTS(side * side, c / HEAD));
    uint32_t index = plim_nn_buffer(n, "relative_position_index", PLIM_I64, INTS(AREA * AREA));
    y = window_attention(n, y, position_bias(n, table, index), shifted);
    plim_nn_leave(n);
    y = plim_nn_stochastic_depth(n, y, drop);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    y = plim_nn_layer_norm(n, "norm2", x, eps);
    plim_nn_enter(n, "mlp", "MLP");
    y = plim_nn_linear(n, NULL, y, 4 * c, true);
    y = plim_nn_act(n, NULL, y, PLIM_GELU);
    y = plim_nn_dropout(n, NULL, y, 0);
    y = plim_nn_linear(n, NULL, y, c, true);
    y = plim_nn_dropout(n, NULL, y, 0);
    plim_nn_leave(n);
    y = plim_nn_stochastic_depth(n, y, drop);
    x = plim_nn_binary(n, "aten.add.Tensor", x, y);
    plim_nn_leave(n);
    return x;
}

/* Every second row and column, four in all, concatenated; odd sizes are padded. */
static uint32_t patch_merging(plim_nn *n, uint32_t x)
{
    int64_t c = plim_nn_dim(n, x, 3);
    uint32_t part[4];
    plim_nn_enter(n, NULL, "PatchMerging");
    x = plim_nn_pad(n, x,
                    INTS(0, 0, 0, plim_nn_dim(n, x, 2) % 2, 0, plim_nn_dim(n, x, 1) % 2));
    for (int i = 0; i < 4; i++) {
        part[i] = plim_nn_slice(n, x, 1, i % 2, INT64_MAX, 2);
        part[i] = plim_nn_slice(n, part[i], 2, i / 2, INT64_MAX, 2);
    }
    x = plim_nn_cat(n, part, 4, -1);
    /* registered before the norm, called after it */
    uint32_t weight = plim_nn_param(n, "reduction.weight", INTS(2 * c, 4 * c));
    x = plim_nn_layer_norm(n, "norm", x, eps);
    plim_nn_enter(n, "reduction", "Linear");
    x = plim_nn_linear_op(n, x, weight, PLIM_NONE);
    plim_nn_leave(n);
    plim_nn_leave(n);
    return x;
}

static void swin_build(plim_nn *n, const void *row, uint32_t x)
{
    const swin_row *r = row;
    int total = 0, id = 0;
    for (int i = 0; i < 4; i++)
        total += r->layers[i];
    plim_nn_root(n, "SwinTransformer");
    plim_nn_enter(n, "features", "Sequential");
    plim_nn_enter(n, NULL, "Sequential");
    x = plim_nn_conv2d(n, NULL, x,
                       (plim_conv){.out = r->dim, .kernel = 4, .stride = 4, .bias = true});
    x = plim_nn_permute_module(n, NULL, x, INTS(0, 2, 3, 1));
    x = plim_nn_layer_norm(n, NULL, x, eps);
    plim_nn_leave(n);
    for (int i = 0; i < 4; i++) {
        plim_nn_enter(n, NULL, "Sequential");
        for (int k = 0; k < r->layers[i]; k++, id++)
            x = swin_block(n, x, k % 2 != 0, r->drop * (double)id / (total - 1));
        plim_nn_leave(n);
        if (i < 3)
            x = patch_merging(n, x);
    }
    plim_nn_leave(n);
    x = plim_nn_layer_norm(n, "norm", x, eps);
    x = plim_nn_permute_module(n, "permute", x, INTS(0, 3, 1, 2));
    x = plim_nn_adaptive_avg_pool2d(n, "avgpool", x, 1);
    plim_nn_enter(n, "flatten", "Flatten");
    x = plim_nn_flatten1(n, x);
    plim_nn_leave(n);
    plim_nn_output(n, plim_nn_linear(n, "head", x, 1000, true));
}

static const plim_zoo_model swin_models[] = {
    {.name = "swin_t",
     .doc = "Swin Transformer Tiny",
     .src = "torchvision 0.20 models/swin_transformer.py",
     .parameters = 28288354,
     .input = {3, 224, 224},
     .build = swin_build,
     .row = &(const swin_row){96, {2, 2, 6, 2}, 0.2}},
};
PLIM_ZOO_FAMILY(swin, "swin");
