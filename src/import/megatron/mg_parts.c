/* mg_parts.c -- layers of Megatron-LM's models: see mg_parts.h.
 *
 * src: megatron-core 0.16 transformer, tensor_parallel, extensions/transformer_engine.py */
#include <math.h>

#include "import/megatron/mg_parts.h"

/* ---- linear layers, of which each rank has a part ------------------------------------------ */

static const char *class_of(const plim_mg *b, const char *te, const char *local)
{
    return b->te ? te : local;
}

uint32_t plim_mg_linear(plim_mg *b, uint32_t x, uint32_t weight, uint32_t bias, bool gathers,
                        bool te, int64_t defers)
{
    return NN_OP(&b->n, "plimsoll.megatron_linear.default", ARG_T("input", x),
                 ARG_T("weight", weight), ARG_MAYBE("bias", bias),
                 ARG_I("parts", gathers ? b->r->part.weights : 1), ARG_I("te", te),
                 ARG_I("accumulates", !b->c.no_accumulation_fusion), ARG_I("defers", defers));
}

/* Rows of the weight are divided.  *bias NULL: it is added; else it is left to the caller. */
static uint32_t add_column(plim_mg *b, const char *name, uint32_t x, int64_t out, bool biased,
                           uint32_t *bias)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, name, class_of(b, "TEColumnParallelLinear", "ColumnParallelLinear"));
    uint32_t w = plim_nn_param(n, "weight", INTS(out, plim_nn_dim(n, x, -1)));
    uint32_t v = biased ? plim_nn_param(n, "bias", INTS(out)) : PLIM_NONE;
    x = plim_mg_linear(b, x, w, bias ? PLIM_NONE : v, b->divided, b->te, 0);
    if (bias)
        *bias = v;
    plim_nn_leave(n);
    return x;
}

/* Its columns are; the caller adds the bias. */
static uint32_t add_row(plim_mg *b, const char *name, uint32_t x, uint32_t *bias)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, name, class_of(b, "TERowParallelLinear", "RowParallelLinear"));
    uint32_t w = plim_nn_param(n, "weight", INTS(b->c.hidden, plim_nn_dim(n, x, -1)));
    *bias = b->c.no_bias ? PLIM_NONE : plim_nn_param(n, "bias", INTS(b->c.hidden));
    x = plim_mg_linear(b, x, w, PLIM_NONE, false, b->te, 0);
    if (b->divided)
        x = NN_OP(n, "plimsoll.megatron_scatter.default", ARG_T("self", x),
                  ARG_I("parts", b->r->part.weights));
    plim_nn_leave(n);
    return x;
}

uint32_t plim_mg_norm(plim_mg *b, const char *name, uint32_t x)
{
    plim_nn *n = &b->n;
    if (plim_str_is(b->c.norm, "LayerNorm"))
        return plim_nn_layer_norm(n, name, x, 1e-5);
    int64_t size = plim_nn_dim(n, x, -1);
    plim_nn_enter(n, name, "RMSNorm");
    uint32_t w = plim_nn_param(n, "weight", INTS(size));
    x = NN_OP(n, "aten.rms_norm.default", ARG_T("input", x),
              ARG_IS("normalized_shape", INTS(size)), ARG_T("weight", w), ARG_F("eps", 1e-5));
    plim_nn_leave(n);
    return x;
}

/* residual + dropout(x + bias) */
static uint32_t add_residual(plim_mg *b, uint32_t x, uint32_t bias, uint32_t residual)
{
    plim_nn *n = &b->n;
    return NN_OP(n, "plimsoll.megatron_dropout_add.default", ARG_T("self", x),
                 ARG_MAYBE("bias", bias), ARG_T("residual", residual),
                 ARG_F("p", n->infer ? 0 : b->c.hidden_dropout),
                 ARG_I("fused", !b->c.no_dropout_fusion));
}

/* ---- attention -------------------------------------------------------------------------------- */

/* x cos + rotate_half(x) sin, of all features of a head.  src: rope_utils.py */
static uint32_t add_rope(plim_mg *b, uint32_t x)
{
    plim_nn *n = &b->n;
    if (b->te && !b->c.no_rope_fusion)
        return NN_OP(n, "plimsoll.megatron_rope.default", ARG_T("self", x),
                     ARG_T("freqs", b->freqs));
    int64_t size = plim_nn_dim(n, b->freqs, -1);
    uint32_t rest = plim_nn_slice(n, x, 3, size, INT64_MAX, 1);
    x = plim_nn_slice(n, x, 3, 0, size, 1);
    uint32_t cos = plim_nn_to_like(n, plim_nn_unary(n, "aten.cos.default", b->freqs), x);
    uint32_t sin = plim_nn_to_like(n, plim_nn_unary(n, "aten.sin.default", b->freqs), x);
    uint32_t half[2];
    uint32_t straight = plim_nn_binary(n, "aten.mul.Tensor", x, cos);
    plim_nn_chunk(n, x, 2, -1, half);
    half[1] = plim_nn_unary(n, "aten.neg.default", half[1]);
    uint32_t turned = plim_nn_cat(n, (uint32_t[]){half[1], half[0]}, 2, -1);
    turned = plim_nn_binary(n, "aten.mul.Tensor", turned, sin);
    x = plim_nn_binary(n, "aten.add.Tensor", straight, turned);
    return plim_nn_cat(n, (uint32_t[]){x, rest}, 2, -1);
}

/* One key and one value for each head.  src: torch.repeat_interleave of a dimension: a view, copied */
static uint32_t repeat_groups(plim_mg *b, uint32_t x)
{
    plim_nn *n = &b->n;
    int64_t times = b->r->heads / b->r->groups;
    if (times == 1)
        return x;
    return NN_OP(n, "aten.repeat_interleave.self_int", ARG_T("self", x),
                 ARG_I("repeats", times), ARG_I("dim", 2));
}

/* Scores of each pair of tokens, in memory. */
static uint32_t add_scores(plim_mg *b, uint32_t q, uint32_t k)
{
    plim_nn *n = &b->n;
    int64_t all = b->batch * b->r->heads, queries = plim_nn_dim(n, q, 0),
            keys = plim_nn_dim(n, k, 0);
    q = plim_nn_reshape(n, q, INTS(queries, all, -1));
    k = plim_nn_reshape(n, k, INTS(keys, all, -1));
    q = plim_nn_transpose(n, q, 0, 1);
    k = plim_nn_transpose(n, plim_nn_transpose(n, k, 0, 1), 1, 2);
    uint32_t to = b->te ? NN_OP(n, "aten.new_empty.default", ARG_T("self", q),
                                ARG_IS("size", INTS(all, queries, keys)))
                        : plim_nn_slice(n, b->buffer, 0, 0, all * queries * keys, 1);
    if (!b->te)
        to = plim_nn_view(n, to, INTS(all, queries, keys));
    uint32_t out = NN_OP(n, "aten.baddbmm.default", ARG_T("self", to), ARG_T("batch1", q),
                         ARG_T("batch2", k), ARG_I("beta", 0),
                         ARG_F("alpha", 1 / sqrt((double)b->c.channels)));
    return plim_nn_view(n, out, INTS(b->batch, b->r->heads, queries, keys));
}

/* What a stage without a batch, or a batch without a mask, makes in each layer.
 * src: transformer/utils.py get_default_causal_mask */
static uint32_t add_causal_mask(plim_mg *b, int64_t tokens)
{
    plim_nn *n = &b->n;
    uint32_t x = NN_OP(n, "aten.ones.default", ARG_IS("size", INTS(tokens, tokens)));
    x = NN_OP(n, "aten.triu.default", ARG_T("self", x), ARG_I("diagonal", 1));
    return plim_nn_to(n, x, PLIM_BOOL);
}

/* Of all pairs of which one is padded.  src: transformer_engine dot_product_attention/utils.py get_full_mask */
static uint32_t join_masks(plim_mg *b, const plim_mg_mask *mask)
{
    plim_nn *n = &b->n;
    uint32_t rows =
        plim_nn_unsqueeze(n, plim_nn_view(n, mask->queries, INTS(b->batch, 1, -1)), 3);
    return plim_nn_binary(n, "aten.logical_or.default", rows, mask->keys);
}

static uint32_t add_softmax(plim_mg *b, uint32_t x, const plim_mg_mask *mask)
{
    plim_nn *n = &b->n;
    bool half = n->dtype != PLIM_F32, padding = b->te && mask->padding;
    uint32_t pairs = padding ? join_masks(b, mask) : mask->keys;
    if (half && (b->te || !b->c.no_softmax_fusion))
        x = NN_OP(n, "plimsoll.megatron_softmax.default", ARG_T("self", x));
    else {
        if (half && b->c.softmax_fp32)
            x = plim_nn_to(n, x, PLIM_F32);
        if (pairs == PLIM_NONE)
            pairs = add_causal_mask(b, plim_nn_dim(n, x, -1));
        x = NN_OP(n, "aten.masked_fill_.Scalar", ARG_T("self", x), ARG_T("mask", pairs),
                  ARG_F("value", -10000));
        x = plim_nn_to(n, plim_nn_softmax(n, x, -1), n->dtype);
    }
    return padding ? NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", x),
                           ARG_T("mask", pairs), ARG_F("value", 0))
                   : x;
}

/* In one kernel, without the scores in memory. */
static uint32_t add_fused(plim_mg *b, uint32_t q, uint32_t k, uint32_t v)
{
    plim_nn *n = &b->n;
    return NN_OP(n, "plimsoll.megatron_attention.default", ARG_T("query", q), ARG_T("key", k),
                 ARG_T("value", v), ARG_F("p", n->infer ? 0 : b->c.attention_dropout),
                 ARG_I("deterministic", b->c.deterministic || b->c.no_atomics),
                 ARG_I("kernel", b->kernel), ARG_I("parts", b->r->contexts),
                 ARG_I("part", b->r->part.context));
}

static uint32_t add_unfused(plim_mg *b, uint32_t q, uint32_t k, uint32_t v,
                            const plim_mg_mask *mask)
{
    plim_nn *n = &b->n;
    int64_t all = b->batch * b->r->heads, queries = plim_nn_dim(n, q, 0),
            keys = plim_nn_dim(n, k, 0);
    k = repeat_groups(b, k);
    v = repeat_groups(b, v);
    uint32_t scores = add_scores(b, q, k);
    plim_nn_called(n, &scores, 1); /* a variable, until it returns */
    uint32_t x = add_softmax(b, scores, mask);
    if (b->c.attention_dropout > 0)
        x = plim_nn_dropout_op(n, x, b->c.attention_dropout);
    v = plim_nn_reshape(n, v, INTS(keys, all, -1));
    x = plim_nn_view(n, x, INTS(all, queries, -1));
    x = NN_OP(n, "aten.bmm.default", ARG_T("self", x),
              ARG_T("mat2", plim_nn_transpose(n, v, 0, 1)));
    x = plim_nn_view(n, x, INTS(b->batch, b->r->heads, queries, -1));
    x = plim_nn_contiguous(n, plim_nn_permute(n, x, INTS(2, 0, 1, 3)));
    return plim_nn_view(n, x, INTS(queries, b->batch, -1));
}

static uint32_t add_core(plim_mg *b, uint32_t q, uint32_t k, uint32_t v,
                         const plim_mg_mask *mask)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "core_attention",
                  class_of(b, "TEDotProductAttention", "DotProductAttention"));
    uint32_t x = b->fused_attention ? add_fused(b, q, k, v) : add_unfused(b, q, k, v, mask);
    plim_nn_leave(n);
    return x;
}

/* Queries of x, keys and values of another sequence. */
static uint32_t add_cross_attention(plim_mg *b, uint32_t x, const plim_mg_context *context,
                                    uint32_t *bias)
{
    plim_nn *n = &b->n;
    int64_t size = b->c.channels, heads = b->r->heads;
    uint32_t part[2];
    plim_nn_enter(n, "cross_attention", "CrossAttention");
    plim_nn_order(n, "core_attention linear_proj linear_q linear_kv");
    uint32_t kv =
        add_column(b, "linear_kv", context->states, 2 * heads * size, !b->c.no_bias, NULL);
    kv = plim_nn_view(n, kv, INTS(-1, b->batch, heads, 2 * size));
    plim_nn_chunk(n, kv, 2, -1, part);
    x = add_column(b, "linear_q", x, heads * size, !b->c.no_bias, NULL);
    x = plim_nn_view(n, x, INTS(-1, b->batch, heads, size));
    x = add_core(b, x, part[0], part[1], &context->mask);
    x = add_row(b, "linear_proj", x, bias);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_attention(plim_mg *b, uint32_t x, const plim_mg_mask *mask, uint32_t *bias)
{
    plim_nn *n = &b->n;
    int64_t size = b->c.channels, each = b->r->heads / b->r->groups;
    uint32_t part[3];
    plim_nn_enter(n, "self_attention", "SelfAttention");
    plim_nn_order(n, "core_attention linear_proj linear_qkv q_layernorm k_layernorm");
    x = add_column(b, "linear_qkv", x, (b->r->heads + 2 * b->r->groups) * size,
                   !b->c.no_bias || b->c.qkv_bias, NULL);
    x = plim_nn_view(n, x, INTS(-1, b->batch, b->r->groups, (each + 2) * size));
    plim_nn_split(n, x, INTS(each * size, size, size), 3, part);
    part[0] = plim_nn_reshape(n, part[0], INTS(plim_nn_dim(n, x, 0), b->batch, -1, size));
    if (b->c.qk_norm) {
        part[0] = plim_mg_norm(b, "q_layernorm", part[0]);
        part[1] = plim_mg_norm(b, "k_layernorm", part[1]);
    }
    for (int i = 0; i < 2 && b->freqs != PLIM_NONE; i++)
        part[i] = add_rope(b, part[i]);
    x = add_core(b, part[0], part[1], part[2], mask);
    x = add_row(b, "linear_proj", x, bias);
    plim_nn_leave(n);
    return x;
}

/* ---- MLP ---------------------------------------------------------------------------------------- */

static uint32_t add_activation(plim_mg *b, uint32_t x, uint32_t bias)
{
    plim_nn *n = &b->n;
    uint32_t half[2];
    bool fused = b->c.swiglu ? !b->c.no_swiglu_fusion
                             : !b->c.no_gelu_fusion && !b->c.no_bias && !b->c.squared_relu;
    if (fused)
        return NN_OP(n, "plimsoll.megatron_activation.default", ARG_T("self", x),
                     ARG_MAYBE("bias", bias), ARG_I("gated", b->c.swiglu));
    if (bias != PLIM_NONE)
        x = plim_nn_binary(n, "aten.add.Tensor", x, bias);
    if (b->c.squared_relu)
        return NN_OP(n, "aten.pow.Tensor_Scalar",
                     ARG_T("self", plim_nn_unary(n, "aten.relu.default", x)),
                     ARG_I("exponent", 2));
    if (!b->c.swiglu)
        return plim_nn_unary(n, "aten.gelu.default", x);
    plim_nn_chunk(n, x, 2, -1, half);
    x = plim_nn_unary(n, "aten.silu.default", half[0]);
    half[1] = plim_nn_scalar(n, "aten.add.Tensor", half[1], 0); /* + glu_linear_offset */
    return plim_nn_binary(n, "aten.mul.Tensor", x, half[1]);
}

static uint32_t add_mlp(plim_mg *b, uint32_t x, uint32_t *bias)
{
    plim_nn *n = &b->n;
    uint32_t first;
    plim_nn_enter(n, "mlp", "MLP");
    x = add_column(b, "linear_fc1", x, b->c.swiglu ? 2 * b->r->ffn : b->r->ffn, !b->c.no_bias,
                   &first);
    x = add_activation(b, x, first);
    x = add_row(b, "linear_fc2", x, bias);
    plim_nn_leave(n);
    return x;
}

/* ---- layers ----------------------------------------------------------------------------------- */

static uint32_t add_layer(plim_mg *b, int64_t i, uint32_t x, const plim_mg_mask *mask,
                          const plim_mg_context *context)
{
    plim_nn *n = &b->n;
    uint32_t y, bias;
    plim_nn_enter(n, plim_nn_name(n, "layers.", i), "TransformerLayer");
    y = plim_mg_norm(b, "input_layernorm", x);
    y = add_attention(b, y, mask, &bias);
    x = add_residual(b, y, bias, x);
    if (context) {
        y = plim_mg_norm(b, "pre_cross_attn_layernorm", x);
        y = add_cross_attention(b, y, context, &bias);
        x = add_residual(b, y, bias, x);
    }
    y = plim_mg_norm(b, "pre_mlp_layernorm", x);
    if (b->c.experts) {
        y = plim_mg_moe(n, b->r, b->te, y);
        bias = PLIM_NONE;
    } else
        y = add_mlp(b, y, &bias);
    x = add_residual(b, y, bias, x);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_mg_block(plim_mg *b, const char *name, int64_t layers, bool ends, uint32_t x,
                       plim_mg_mask mask, const plim_mg_context *context)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, name, "TransformerBlock");
    for (int64_t i = 0; i < layers && !n->st; i++)
        x = add_layer(b, i, x, &mask, context);
    if (ends)
        x = plim_mg_norm(b, "final_layernorm", x);
    plim_nn_leave(n);
    return x;
}
