/* mg_mlp.c -- the MLP of Megatron-LM's layers: see mg_parts.h.
 *
 * src: megatron-core 0.16 transformer/mlp.py, fusions/fused_bias_gelu.py, fused_bias_swiglu.py */
#include "import/megatron/mg_parts.h"

static uint32_t add_activation(plim_mg *b, uint32_t x, uint32_t bias)
{
    plim_nn *n = &b->n;
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
    return b->c.swiglu ? plim_mg_swiglu(n, x) : plim_nn_unary(n, "aten.gelu.default", x);
}

uint32_t plim_mg_mlp(plim_mg *b, const char *name, const char *type, uint32_t x, int64_t ffn,
                     uint32_t *bias)
{
    plim_nn *n = &b->n;
    uint32_t first;
    plim_nn_enter(n, name, type);
    x = plim_mg_column(b, "linear_fc1", x, b->c.swiglu ? 2 * ffn : ffn, !b->c.no_bias, &first);
    x = add_activation(b, x, first);
    x = plim_mg_row(b, "linear_fc2", x, bias);
    plim_nn_leave(n);
    return x;
}
