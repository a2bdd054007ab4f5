/* mg_parts.c -- linear layers, norms and attention of Megatron-LM's models: see mg_parts.h.
 *
 * src: megatron-core 0.16 tensor_parallel/layers.py, transformer/dot_product_attention.py,
 * extensions/transformer_engine.py */
#include <math.h>

#include "import/megatron/mg_parts.h"

/* ---- linear layers that are divided among ranks
 * --------------------------------------------- */

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
uint32_t plim_mg_column(plim_mg *b, const char *name, uint32_t x, int64_t out, bool biased,
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
uint32_t plim_mg_row(plim_mg *b, const char *name, uint32_t x, uint32_t *bias)
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

uint32_t plim_mg_turn(plim_nn *n, uint32_t x, uint32_t cos, uint32_t sin, uint32_t rest)
{
    uint32_t half[2];
    uint32_t straight = plim_nn_binary(n, "aten.mul.Tensor", x, cos);
    plim_nn_chunk(n, x, 2, -1, half);
    half[1] = plim_nn_unary(n, "aten.neg.default", half[1]);
    uint32_t turned = plim_nn_cat(n, (uint32_t[]){half[1], half[0]}, 2, -1);
    turned = plim_nn_binary(n, "aten.mul.Tensor", turned, sin);
    x = plim_nn_binary(n, "aten.add.Tensor", straight, turned);
    return plim_nn_cat(n, (uint32_t[]){x, rest}, 2, -1);
}

uint32_t plim_mg_swiglu(plim_nn *n, uint32_t x)
{
    uint32_t half[2];
    plim_nn_chunk(n, x, 2, -1, half);
    x = plim_nn_unary(n, "aten.silu.default", half[0]);
    half[1] = plim_nn_scalar(n, "aten.add.Tensor", half[1], 0); /* + glu_linear_offset */
    return plim_nn_binary(n, "aten.mul.Tensor", x, half[1]);
}

/* ---- attention -------------------------------------------------------------------------------- */

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

/* Of all pairs with a padded token.  src: transformer_engine dot_product_attention/utils.py
 * get_full_mask */
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
                 ARG_I("kernel", b->kernel), ARG_I("parts", b->r->contexts / b->r->ways),
                 ARG_I("part", b->r->part.context / b->r->ways), ARG_I("ways", b->r->ways));
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

uint32_t plim_mg_core(plim_mg *b, uint32_t q, uint32_t k, uint32_t v, const plim_mg_mask *mask)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "core_attention",
                  class_of(b, "TEDotProductAttention", "DotProductAttention"));
    uint32_t x = b->fused_attention ? add_fused(b, q, k, v) : add_unfused(b, q, k, v, mask);
    plim_nn_leave(n);
    return x;
}
