/* adapter_vera.c -- VeRA: two vectors that scale random matrices, which all modules share.
 *
 *     result = self.base_layer(x)
 *     result = result + lambda_b * F.linear(lambda_d * F.linear(dropout(x.to(fp32)), A), B)
 *     return result.to(its dtype before)
 *
 * A and B have the size of the widest module; each takes a part.
 *
 * src: peft 0.21 tuners/vera/layer.py, model.py */
#include "transform/adapter.h"

enum { R, DROPOUT };                             /* items */
enum { LAMBDA_B, LAMBDA_D, SHARED_A, SHARED_B }; /* weights */

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    int64_t r = (int64_t)plim_adapter_spec(ad)->item[R], in, out;
    plim_adapter_widest(ad, &in, &out);
    w[LAMBDA_B] = plim_adapter_weight(ad, "vera_lambda_b", "ParameterDict", "default",
                                      INTS(plim_adapter_base(ad)->out));
    w[LAMBDA_D] =
        plim_adapter_weight(ad, "vera_lambda_d", "ParameterDict", "default", INTS(r));
    w[SHARED_A] = plim_adapter_shared(ad, "vera_A", "default", INTS(r, in));
    w[SHARED_B] = plim_adapter_shared(ad, "vera_B", "default", INTS(out, r));
}

static uint32_t part_of(plim_nn *n, uint32_t w, int64_t dim, int64_t size)
{
    return plim_nn_slice(n, w, dim, 0, size, 1);
}

static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    uint32_t result = plim_adapter_call_base(ad, x), given = x;
    uint32_t a = part_of(n, w[SHARED_A], 1, base->in),
             b = part_of(n, w[SHARED_B], 0, base->out);
    x = plim_adapter_cast(ad, x, w[LAMBDA_D]);
    x = plim_adapter_dropout(ad, "vera_dropout.default", x,
                             plim_adapter_spec(ad)->item[DROPOUT]);
    x = plim_nn_linear_op(n, x, a, PLIM_NONE);
    x = plim_nn_binary(n, "aten.mul.Tensor", w[LAMBDA_D], x);
    x = plim_nn_linear_op(n, x, b, PLIM_NONE);
    x = plim_nn_binary(n, "aten.mul.Tensor", w[LAMBDA_B], x);
    x = plim_adapter_cast_back(ad, plim_nn_binary(n, "aten.add.Tensor", result, x));
    plim_nn_to_like(n, x, given);
}

const plim_adapter_method plim_adapter_vera = {
    .name = "vera",
    .doc = "VeRA: two vectors that scale random matrices, which all modules share",
    .src = "peft 0.21 tuners/vera/layer.py, model.py",
    .targets = "lora",
    .bias = true,
    .item = {{"r", 256, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL},
             {"dropout", 0, 0, 1, NULL, PLIM_ADAPTER_REAL, "vera_dropout"}},
    .make = add_weights,
    .call = write_call,
};
