/* mg_layer.c -- layers of Megatron-LM's models, and blocks of them: see mg_parts.h.
 *
 * src: megatron-core 0.16 transformer/attention.py, mlp.py, transformer_layer.py, transformer_block.py */
#include "import/megatron/mg_parts.h"

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
    return plim_mg_turn(n, x, cos, sin, rest);
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
        plim_mg_column(b, "linear_kv", context->states, 2 * heads * size, !b->c.no_bias, NULL);
    kv = plim_nn_view(n, kv, INTS(-1, b->batch, heads, 2 * size));
    plim_nn_chunk(n, kv, 2, -1, part);
    x = plim_mg_column(b, "linear_q", x, heads * size, !b->c.no_bias, NULL);
    x = plim_nn_view(n, x, INTS(-1, b->batch, heads, size));
    x = plim_mg_core(b, x, part[0], part[1], &context->mask);
    x = plim_mg_row(b, "linear_proj", x, bias);
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
    x = plim_mg_column(b, "linear_qkv", x, (b->r->heads + 2 * b->r->groups) * size,
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
    x = plim_mg_core(b, part[0], part[1], part[2], mask);
    x = plim_mg_row(b, "linear_proj", x, bias);
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
    y = b->c.latent ? plim_mg_mla(b, y, mask, &bias) : add_attention(b, y, mask, &bias);
    x = add_residual(b, y, bias, x);
    if (context) {
        y = plim_mg_norm(b, "pre_cross_attn_layernorm", x);
        y = add_cross_attention(b, y, context, &bias);
        x = add_residual(b, y, bias, x);
    }
    y = plim_mg_norm(b, "pre_mlp_layernorm", x);
    if (b->c.experts && b->r->has_experts[b->first_layer + i]) {
        y = plim_mg_moe(b, y);
        bias = PLIM_NONE;
    } else
        y = plim_mg_mlp(b, "mlp", "MLP", y, b->r->ffn, &bias);
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
