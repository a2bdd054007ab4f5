/* adapter_ia3.c -- IA3: a vector that scales the output of a module, or its input.
 *
 *     result = self.base_layer(x)
 *     return (result * ia3_l.flatten()).to(result.dtype)
 *
 * src: peft 0.21 tuners/ia3/layer.py, model.py */
#include "base/items.h"
#include "transform/adapter.h"

/* Whether it scales the input: of the layer that leads out of the feed-forward block.  peft looks
 * at the end of the path alone. */
static bool is_feedforward(plim_adapting *ad)
{
    const plim_adapted *base = plim_adapter_base(ad);
    plim_str names = plim_adapter_spec(ad)->text, name;
    if (!names.n)
        names =
            plim_adapter_family("ia3 feedforward", plim_adapter_nn(ad)->g->about.model_type);
    while (plim_item_word(&names, '+', &name))
        if (plim_str_ends(base->path, name))
            return true;
    return false;
}

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    const plim_adapted *base = plim_adapter_base(ad);
    plim_ints dim = is_feedforward(ad) ? INTS(1, base->in) : INTS(base->out, 1);
    w[0] = plim_adapter_weight(ad, "ia3_l", "ParameterDict", "default", dim);
}

static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    bool input = is_feedforward(ad);
    uint32_t scale = plim_nn_reshape(n, w[0], INTS(-1));
    scale = plim_nn_scalar(n, "aten.mul.Tensor", scale, 1);
    plim_nn_holds(n, scale);
    if (input) {
        uint32_t scaled =
            plim_nn_binary(n, "aten.mul.Tensor", plim_adapter_cast(ad, x, w[0]), scale);
        x = plim_nn_to_like(n, scaled, x);
        plim_nn_holds(n, x);
        plim_adapter_call_base(ad, x);
        return;
    }
    x = plim_adapter_call_base(ad, x);
    plim_nn_holds(n, x);
    plim_adapter_cast_back(ad, plim_nn_binary(n, "aten.mul.Tensor", x, scale));
}

const plim_adapter_method plim_adapter_ia3 = {
    .name = "ia3",
    .doc = "IA3: a vector that scales the output of a module, or its input",
    .src = "peft 0.21 tuners/ia3/layer.py, model.py",
    .text = "feedforward",
    .make = add_weights,
    .call = write_call,
};
