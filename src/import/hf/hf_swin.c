/* hf_swin.c -- the Swin transformer.
 * src: transformers 5.23 models/swin/modeling_swin.py */
#include <math.h>

#include "import/hf/hf_encoder.h"

enum { STAGES = 8 };

typedef struct config {
    int64_t width, channels, window;
    double ratio, dropout, attention_dropout, drop_path, eps;
    bool qkv_bias, absolute;
    plim_str act, image_size, patch_size, depths, heads;
    plim_hf_labels labels;
} config;

/* The sizes of a stage. */
typedef struct stage {
    int64_t width, depth, heads;
    int64_t height, across; /* size of its grid of patches */
    int64_t window, shift;  /* shift: in every other block */
    bool last;
} stage;

typedef struct swin {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    stage stages[STAGES];
    uint32_t n_stages;
    int64_t blocks, image[2], patch;
} swin;

/* ---- windows ---------------------------------------------------------------------------- */

/* [batch, height, across, c] to [windows, window, window, c] */
static uint32_t partition_windows(plim_nn *n, uint32_t x, int64_t w)
{
    int64_t c = plim_nn_dim(n, x, 3);
    x = plim_nn_view(n, x,
                     INTS(plim_nn_dim(n, x, 0), plim_nn_dim(n, x, 1) / w, w,
                          plim_nn_dim(n, x, 2) / w, w, c));
    x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 2, 3));
    return plim_nn_view(n, x, INTS(-1, w, w, c));
}

static uint32_t reverse_windows(plim_nn *n, uint32_t x, int64_t w, int64_t height,
                                int64_t across)
{
    int64_t c = plim_nn_dim(n, x, 3);
    x = plim_nn_view(n, x, INTS(-1, height / w, across / w, w, w, c));
    x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 2, 3));
    return plim_nn_view(n, x, INTS(-1, height, across, c));
}

static uint32_t roll_grid(plim_nn *n, uint32_t x, int64_t by)
{
    if (!by)
        return x;
    return NN_OP(n, "aten.roll.default", ARG_T("self", x), ARG_IS("shifts", INTS(by, by)),
                 ARG_IS("dims", INTS(1, 2)));
}

/* Which of three strips a row is in: whole windows, the last one, or rolled over. */
static uint32_t strip_numbers(plim_nn *n, uint32_t row, int64_t size, const stage *s)
{
    const int64_t from[2] = {size - s->window, size - s->shift};
    uint32_t in[2];
    for (int i = 0; i < 2; i++) {
        in[i] = NN_OP(n, "aten.ge.Scalar", ARG_T("self", row), ARG_I("other", from[i]));
        in[i] = plim_nn_to(n, in[i], PLIM_I64);
    }
    return plim_nn_binary(n, "aten.add.Tensor", in[0], in[1]);
}

static uint32_t fill_where(plim_nn *n, uint32_t x, const char *where, uint32_t of,
                           double value)
{
    uint32_t mask = NN_OP(n, where, ARG_T("self", of), ARG_I("other", 0));
    return NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", x), ARG_T("mask", mask),
                 ARG_F("value", value));
}

/* get_attn_mask: rolled-over patches do not attend to their new neighbours */
static uint32_t rolled_mask(const swin *m, const stage *s, int64_t height, int64_t across)
{
    plim_nn *n = m->n;
    uint32_t y = plim_nn_arange(n, height), x = plim_nn_arange(n, across);
    y = strip_numbers(n, y, height, s);
    x = strip_numbers(n, x, across, s);
    y = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, y, 0), 2), 3);
    y = plim_nn_scalar(n, "aten.mul.Tensor", y, 3);
    x = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, x, 0), 1), 3);
    x = plim_hf_to_parameters(n, plim_nn_binary(n, "aten.add.Tensor", y, x));
    x = plim_nn_view(n, partition_windows(n, x, s->window), INTS(-1, s->window * s->window));
    x = plim_nn_binary(n, "aten.sub.Tensor", plim_nn_unsqueeze(n, x, 1),
                       plim_nn_unsqueeze(n, x, 2));
    y = fill_where(n, x, "aten.ne.Scalar", x, -100);
    return fill_where(n, y, "aten.eq.Scalar", x, 0);
}

/* ---- attention ---------------------------------------------------------------------------- */

static uint32_t project_heads(const swin *m, const stage *s, const char *name, uint32_t x)
{
    x = plim_nn_linear(m->n, name, x, s->width, m->c->qkv_bias);
    return plim_hf_split_heads(m->n, x, s->width / s->heads);
}

/* [1, heads, tokens of a window, the same] */
static uint32_t position_bias(const swin *m, const stage *s)
{
    plim_nn *n = m->n;
    int64_t w = m->c->window, area = w * w;
    plim_nn_enter(n, "relative_position_bias", "SwinRelativePositionBias");
    uint32_t table = plim_nn_param(n, "relative_position_bias_table",
                                   INTS((2 * w - 1) * (2 * w - 1), s->heads));
    uint32_t at =
        plim_nn_temporary_buffer(n, "relative_position_index", PLIM_I64, INTS(area * area));
    uint32_t x = NN_OP(n, "aten.index.Tensor", ARG_T("self", table),
                       ARG_TS("indices", (&(const uint32_t){at}), 1));
    x = plim_nn_view(n, x, INTS(area, area, -1));
    x = plim_nn_contiguous(n, plim_nn_permute(n, x, INTS(2, 0, 1)));
    x = plim_nn_unsqueeze(n, x, 0);
    plim_nn_leave(n);
    return x;
}

/* x: [windows, tokens, width]; mask: for the windows of one image, or PLIM_NONE */
static uint32_t add_attention(const swin *m, const stage *s, uint32_t x, uint32_t mask)
{
    plim_nn *n = m->n;
    plim_nn_enter(n, "attention", "SwinAttention");
    plim_nn_order(n, "q_proj k_proj v_proj o_proj *");
    int64_t tokens = plim_nn_dim(n, x, 1);
    plim_hf_attention a = {.q = project_heads(m, s, "q_proj", x),
                           .k = project_heads(m, s, "k_proj", x),
                           .v = project_heads(m, s, "v_proj", x),
                           .sinks = PLIM_NONE,
                           .scale = 1 / sqrt((double)s->width / (double)s->heads),
                           .dropout = m->c->attention_dropout};
    a.mask = position_bias(m, s);
    if (mask != PLIM_NONE) {
        mask = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, mask, 1), 0);
        mask = plim_nn_expand(n, mask, INTS(m->h->batch, -1, -1, -1, -1));
        mask = plim_nn_reshape(n, mask, INTS(-1, 1, tokens, tokens));
        a.mask = plim_nn_binary(n, "aten.add.Tensor", a.mask, mask);
    }
    x = plim_hf_join_heads(n, plim_hf_attend(m->h, a));
    x = plim_nn_linear(n, "o_proj", x, s->width, true);
    plim_nn_leave(n);
    return x;
}

/* ---- a block ---------------------------------------------------------------------------------- */

static uint32_t drop_path(const swin *m, uint32_t x, double rate)
{
    plim_nn *n = m->n;
    if (rate <= 0 || n->infer)
        return x;
    plim_nn_enter(n, "drop_path", "SwinDropPath");
    uint32_t kept = NN_OP(n, "aten.new_empty.default", ARG_T("self", x), /* torch.rand */
                          ARG_IS("size", INTS(plim_nn_dim(n, x, 0), 1, 1)));
    kept = plim_nn_scalar(n, "aten.add.Tensor", kept, 1 - rate);
    kept = plim_nn_unary(n, "aten.floor.default", kept);
    x = plim_nn_scalar(n, "aten.div.Tensor", x, 1 - rate);
    x = plim_nn_binary(n, "aten.mul.Tensor", x, kept);
    plim_nn_leave(n);
    return x;
}

/* Attention within windows, shifted by half a window in every other block. */
static uint32_t attend_windows(const swin *m, const stage *s, uint32_t x, int64_t shift)
{
    plim_nn *n = m->n;
    int64_t w = s->window, right = (w - s->across % w) % w, below = (w - s->height % w) % w;
    int64_t height = s->height + below, across = s->across + right;
    x = plim_nn_view(n, x, INTS(m->h->batch, s->height, s->across, s->width));
    x = plim_nn_pad(n, x, INTS(0, 0, 0, right, 0, below));
    x = partition_windows(n, roll_grid(n, x, -shift), w);
    x = plim_nn_view(n, x, INTS(-1, w * w, s->width));
    uint32_t mask = shift ? rolled_mask(m, s, height, across) : PLIM_NONE;
    x = add_attention(m, s, x, mask);
    x = plim_nn_dropout(n, "dropout", x, m->c->dropout);
    x = plim_nn_view(n, x, INTS(-1, w, w, s->width));
    x = roll_grid(n, reverse_windows(n, x, w, height, across), shift);
    if (right || below) {
        x = plim_nn_slice(n, x, 1, 0, s->height, 1);
        x = plim_nn_slice(n, x, 2, 0, s->across, 1);
        x = plim_nn_contiguous(n, x);
    }
    return plim_nn_view(n, x, INTS(m->h->batch, s->height * s->across, s->width));
}

/* The i-th block of its stage, the at-th of all. */
static uint32_t add_block(const swin *m, const stage *s, int64_t i, int64_t at, uint32_t x)
{
    plim_nn *n = m->n;
    const config *c = m->c;
    double rate = c->drop_path * (double)at / (double)PLIM_MAX(m->blocks - 1, 1);
    plim_nn_enter(n, plim_nn_name(n, "blocks.", i), "SwinLayer");
    plim_nn_order(n, "attention layernorm_before layernorm_after *");
    uint32_t y = plim_nn_layer_norm(n, "layernorm_before", x, c->eps);
    y = attend_windows(m, s, y, i % 2 ? s->shift : 0);
    x = plim_nn_binary(n, "aten.add.Tensor", x, drop_path(m, y, rate));
    y = plim_nn_layer_norm(n, "layernorm_after", x, c->eps);
    plim_nn_enter(n, "mlp", "SwinMLP");
    y = plim_hf_mlp(m->h, (plim_hf_ffn){"fc1", "activation_fn", "fc2"}, c->act, y,
                    (int64_t)(c->ratio * (double)s->width), true);
    plim_nn_leave(n);
    y = plim_nn_dropout(n, "dropout", y, c->dropout);
    x = plim_nn_binary(n, "aten.add.Tensor", y, x);
    plim_nn_leave(n);
    return x;
}

/* ---- a stage ------------------------------------------------------------------------------------- */

/* Merges four patches into one of twice the width. */
static uint32_t merge_patches(const swin *m, const stage *s, uint32_t x)
{
    plim_nn *n = m->n;
    uint32_t part[4];
    plim_nn_enter(n, "downsample", "SwinPatchMerging");
    plim_nn_order(n, "reduction norm");
    x = plim_nn_view(n, x, INTS(m->h->batch, s->height, s->across, s->width));
    if (s->height % 2 || s->across % 2)
        x = plim_nn_pad(n, x, INTS(0, 0, 0, s->across % 2, 0, s->height % 2));
    for (int i = 0; i < 4; i++) {
        part[i] = plim_nn_slice(n, x, 1, i % 2, INT64_MAX, 2);
        part[i] = plim_nn_slice(n, part[i], 2, i / 2, INT64_MAX, 2);
    }
    x = plim_nn_cat(n, part, 4, -1);
    x = plim_nn_view(n, x, INTS(m->h->batch, -1, 4 * s->width));
    x = plim_nn_layer_norm(n, "norm", x, 1e-5);
    x = plim_nn_linear(n, "reduction", x, 2 * s->width, false);
    plim_nn_leave(n);
    return x;
}

/* The image-shaped hidden states for a backbone, computed whether or not they are used. */
static void as_picture(const swin *m, uint32_t x, int64_t height, int64_t across)
{
    x = plim_nn_view(m->n, x, INTS(m->h->batch, height, across, plim_nn_dim(m->n, x, 2)));
    plim_nn_contiguous(m->n, plim_nn_permute(m->n, x, INTS(0, 3, 1, 2)));
}

static uint32_t add_encoder(const swin *m, uint32_t x)
{
    plim_nn *n = m->n;
    int64_t at = 0;
    plim_nn_enter(n, "encoder", "SwinEncoder");
    for (uint32_t k = 0; k < m->n_stages; k++) {
        const stage *s = &m->stages[k];
        plim_nn_enter(n, plim_nn_name(n, "layers.", k), "SwinStage");
        for (int64_t i = 0; i < s->depth && !n->st; i++)
            x = add_block(m, s, i, at++, x);
        if (!s->last)
            x = merge_patches(m, s, x);
        as_picture(m, x, s->last ? s->height : (s->height + 1) / 2,
                   s->last ? s->across : (s->across + 1) / 2);
        plim_nn_leave(n);
    }
    plim_nn_leave(n);
    return x;
}

/* ---- the model ------------------------------------------------------------------------------------- */

static uint32_t add_embeddings(const swin *m, uint32_t x)
{
    const config *c = m->c;
    const stage *s = m->stages;
    plim_nn *n = m->n;
    uint32_t where = PLIM_NONE;
    plim_nn_enter(n, "embeddings", "SwinEmbeddings");
    if (c->absolute)
        where =
            plim_nn_param(n, "position_embeddings", INTS(1, s->height * s->across, c->width));
    plim_nn_enter(n, "patch_embeddings", "SwinPatchEmbeddings");
    x = plim_nn_conv2d(
        n, "projection", x,
        (plim_conv){.out = c->width, .kernel = m->patch, .stride = m->patch, .bias = true});
    x = NN_OP(n, "aten.flatten.using_ints", ARG_T("self", x), ARG_I("start_dim", 2));
    x = plim_nn_transpose(n, x, 1, 2);
    plim_nn_leave(n);
    x = plim_nn_layer_norm(n, "norm", x, 1e-5);
    if (c->absolute)
        x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    x = plim_nn_dropout(n, "dropout", x, c->dropout);
    plim_nn_leave(n);
    return x;
}

/* The hidden states of all patches, and their mean; in the open module. */
static uint32_t add_backbone(const swin *m, uint32_t *mean)
{
    plim_nn *n = m->n;
    uint32_t x = add_embeddings(m, plim_hf_pixels(m->h, n->dtype, m->c->channels, m->image));
    x = plim_nn_layer_norm(n, "layernorm", add_encoder(m, x), m->c->eps);
    uint32_t y = plim_nn_transpose(n, x, 1, 2);
    plim_nn_enter(n, "pooler", "AdaptiveAvgPool1d");
    y = NN_OP(n, "aten.adaptive_avg_pool1d.default", ARG_T("self", y),
              ARG_IS("output_size", INTS(1)));
    plim_nn_leave(n);
    *mean = plim_nn_flatten1(n, y);
    return x;
}

/* The sizes of all stages, from the lists in the file. */
static void make_stages(swin *m)
{
    plim_hf *h = m->h;
    int64_t depth[STAGES] = {2, 2, 6, 2}, heads[STAGES] = {3, 6, 12, 24};
    uint32_t n_depth = plim_hf_list(h, "depths", m->c->depths, depth, STAGES);
    uint32_t n_heads = plim_hf_list(h, "num_heads", m->c->heads, heads, STAGES);
    m->n_stages = n_depth ? n_depth : 4;
    if (m->n_stages != (n_heads ? n_heads : 4))
        plim_nn_fail(&h->n, PLIM_ESHAPE, "'depths' has %u items, 'num_heads' has %u",
                     (unsigned)m->n_stages, (unsigned)(n_heads ? n_heads : 4));
    stage s = {.width = m->c->width,
               .height = m->image[0] / m->patch,
               .across = m->image[1] / m->patch};
    for (uint32_t i = 0; i < m->n_stages && !h->n.st; i++) {
        int64_t least = PLIM_MIN(s.height, s.across);
        s.depth = depth[i];
        s.heads = heads[i];
        s.window = m->c->window;
        s.shift = least <= s.window ? 0 : s.window / 2;
        s.last = i + 1 == m->n_stages;
        if (least < s.window)
            plim_nn_fail(&h->n, PLIM_ESHAPE,
                         "stage %u has a grid of %" PRId64 " x %" PRId64
                         ", smaller than its windows of %" PRId64,
                         (unsigned)i, s.height, s.across, s.window);
        plim_hf_check_head_width(h, s.width, s.heads);
        m->stages[i] = s;
        m->blocks += s.depth;
        if (m->blocks > PLIM_HF_MAX_LAYERS)
            plim_nn_fail(&h->n, PLIM_ERANGE, "'depths' sums to more than %d",
                         (int)PLIM_HF_MAX_LAYERS);
        s.width *= 2;
        s.height = (s.height + 1) / 2;
        s.across = (s.across + 1) / 2;
    }
}

static void swin_build(plim_hf *h, const void *p)
{
    const config *c = p;
    plim_nn *n = &h->n;
    swin m = {.h = h, .n = n, .c = c};
    uint32_t mean;
    h->flash = false; /* which its bias is not made for */
    plim_hf_pair(h, "image_size", c->image_size, 224, m.image);
    m.patch = plim_hf_patch(h, c->patch_size, 4, m.image);
    plim_hf_refuse(h, m.image[0] % m.patch || m.image[1] % m.patch,
                   "image_size that is not a multiple of patch_size");
    make_stages(&m);
    plim_hf_batch(h, "pixel_values");
    plim_hf_root(h, "Swin");
    if (n->st)
        return;
    if (plim_str_is(plim_hf_class_head(h, "Swin"), "Model")) {
        plim_nn_output(n, add_backbone(&m, &mean));
        plim_nn_output(n, mean);
        return;
    }
    plim_nn_enter(n, "swin", "SwinModel");
    add_backbone(&m, &mean);
    plim_nn_leave(n);
    mean = plim_nn_linear(n, "classifier", mean, plim_hf_n_labels(h, &c->labels), true);
    plim_hf_sequence_outputs(h, mean, &c->labels);
}

/* clang-format off */
static const plim_hf_key swin_keys[] = {
    HF_SIZE(width, "embed_dim", 96),
    HF_SIZE(channels, "num_channels", 3),
    HF_SIZE(window, "window_size", 7),
    HF_REAL(ratio, "mlp_ratio", 4),
    HF_SHARE(dropout, "hidden_dropout_prob", 0),
    HF_SHARE(attention_dropout, "attention_probs_dropout_prob", 0),
    HF_SHARE(drop_path, "drop_path_rate", 0.1),
    HF_REAL(eps, "layer_norm_eps", 1e-5),
    HF_BOOL(qkv_bias, "qkv_bias", 1),
    HF_BOOL(absolute, "use_absolute_embeddings", 0),
    HF_WORD(act, "hidden_act", "gelu"),
    HF_RAW(image_size, "image_size"),
    HF_RAW(patch_size, "patch_size"),
    HF_RAW(depths, "depths"),
    HF_RAW(heads, "num_heads num_attention_heads"),
    HF_LABELS(labels),
};
/* clang-format on */

static const plim_hf_family swin_families[] = {
    {"swin", "SwinForImageClassification SwinModel", NULL, NULL}};

const plim_hf_group plim_hf_swin = {
    .doc = "the Swin transformer",
    .src = "transformers 5.23 models/swin",
    .families = swin_families,
    .n_families = PLIM_COUNT(swin_families),
    .keys = swin_keys,
    .n_keys = PLIM_COUNT(swin_keys),
    .size = sizeof(config),
    .build = swin_build,
};
