/* adapter_hira.c -- HiRA: the weight itself, times one of low rank, elementwise.
 *
 *     result = self.base_layer(x)
 *     result = result + F.linear(dropout(x.to(fp32)), weight * (hira_A.T @ hira_B.T).T)
 *     return result.to(its dtype before)
 *
 * src: peft 0.21 tuners/hira/layer.py */
#include "transform/adapter.h"

enum { R, DROPOUT }; /* items */
enum { A, B };       /* weights */

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    const plim_adapted *base = plim_adapter_base(ad);
    int64_t r = (int64_t)plim_adapter_spec(ad)->item[R];
    w[A] = plim_adapter_weight(ad, "hira_A", "ParameterDict", "default", INTS(r, base->in));
    w[B] = plim_adapter_weight(ad, "hira_B", "ParameterDict", "default", INTS(base->out, r));
}

static uint32_t transpose_matrix(plim_nn *n, uint32_t x)
{
    return plim_nn_unary(n, "aten.t.default", x);
}

/* transpose() of peft makes a new parameter, which requires a gradient. */
static uint32_t turned_parameter(plim_nn *n, uint32_t weight)
{
    weight = plim_nn_unary(n, "aten.detach.default", transpose_matrix(n, weight));
    return NN_OP(n, "aten.requires_grad_.default", ARG_T("self", weight));
}

static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    uint32_t result = plim_adapter_call_base(ad, x);
    if (base->weight == PLIM_NONE) {
        plim_nn_fail(n, PLIM_EUNSUPPORTED, "hira: '" PLIM_STR_FMT "' has no weight",
                     PLIM_STR_CUT(base->path));
        return;
    }
    uint32_t product = plim_nn_binary(n, "aten.matmul.default", transpose_matrix(n, w[A]),
                                      transpose_matrix(n, w[B]));
    x = plim_adapter_cast(ad, x, w[A]);
    x = plim_adapter_dropout(ad, "hira_dropout.default", x,
                             plim_adapter_spec(ad)->item[DROPOUT]);
    uint32_t rows = base->transposed ? turned_parameter(n, base->weight) : base->weight;
    rows = plim_nn_binary(n, "aten.mul.Tensor", rows, transpose_matrix(n, product));
    uint32_t delta = plim_nn_linear_op(n, x, rows, PLIM_NONE);
    plim_nn_called(n, (uint32_t[]){product, x, delta}, 3); /* variables */
    plim_adapter_cast_back(ad, plim_nn_binary(n, "aten.add.Tensor", result, delta));
}

const plim_adapter_method plim_adapter_hira = {
    .name = "hira",
    .doc = "HiRA: the weight itself times one of low rank, elementwise",
    .src = "peft 0.21 tuners/hira/layer.py",
    .targets = "lora",
    .item = {{"r", 32, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL},
             {"dropout", 0, 0, 1, NULL, PLIM_ADAPTER_REAL, "hira_dropout"}},
    .make = add_weights,
    .call = write_call,
};
