/* adapter_loha.c -- LoHa: the elementwise product of two weights of low rank.
 *
 *     result = self.base_layer(x)
 *     result = result + F.linear(x.to(fp32), (w1_a @ w1_b) * (w2_a @ w2_b) * scale)
 *     return result.to(its dtype before)
 *
 * src: peft 0.21 tuners/loha/layer.py, lycoris_utils.py */
#include "transform/adapter.h"

enum { R, ALPHA };               /* items */
enum { W1_A, W1_B, W2_A, W2_B }; /* weights */

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    static const char *const name[] = {"hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"};
    const plim_adapted *base = plim_adapter_base(ad);
    int64_t r = (int64_t)plim_adapter_spec(ad)->item[R];
    for (uint32_t i = W1_A; i <= W2_B; i++) {
        bool left = i == W1_A || i == W2_A;
        w[i] = plim_adapter_weight(ad, name[i], "ParameterDict", "default",
                                   left ? INTS(base->out, r) : INTS(r, base->in));
    }
}

static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    uint32_t result = plim_adapter_call_base(ad, x);
    uint32_t delta =
        NN_OP(n, "aten.hada_weight.default", ARG_T("w1a", w[W1_A]), ARG_T("w1b", w[W1_B]),
              ARG_T("w2a", w[W2_A]), ARG_T("w2b", w[W2_B]));
    plim_adapter_add_product(ad, x, delta, result);
}

const plim_adapter_method plim_adapter_loha = {
    .name = "loha",
    .doc = "LoHa: the elementwise product of two weights of low rank",
    .src = "peft 0.21 tuners/loha/layer.py, lycoris_utils.py",
    .targets = "lora",
    .plain_linear = true,
    .item = {{"r", 8, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL},
             {"alpha", 8, 0, 1e9, NULL, PLIM_ADAPTER_REAL, NULL}},
    .make = add_weights,
    .call = write_call,
};
