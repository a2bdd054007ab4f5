/* adapter_lora.c -- LoRA and DoRA: a weight of low rank added to that of the module.
 *
 *     result = self.base_layer(x)
 *     x = x.to(lora_A.weight.dtype)
 *     result = result + lora_B(lora_A(dropout(x))) * scaling
 *     return result.to(its dtype before)
 *
 * src: peft 0.21 tuners/lora/layer.py, dora.py, bnb.py */
#include "transform/adapter.h"

#include <math.h>

enum { R, ALPHA, DROPOUT, RSLORA, DORA }; /* items */
enum { A, B, MAGNITUDE };                 /* weights */

static bool has_dora(const plim_adapter *spec) { return spec->item[DORA] > 0; }
static const char *name_unpacked(const plim_adapter *spec)
{
    return has_dora(spec) ? "dora" : NULL;
}

/* alpha / r, and r is alpha by default. */
static double find_scale(const plim_adapter *spec)
{
    double r = spec->item[R], alpha = spec->item[ALPHA] < 0 ? r : spec->item[ALPHA];
    return alpha / (spec->item[RSLORA] > 0 ? sqrt(r) : r);
}

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    const plim_adapter *spec = plim_adapter_spec(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    int64_t r = (int64_t)spec->item[R];
    w[A] = plim_adapter_weight(ad, "lora_A.default", "Linear", "weight", INTS(r, base->in));
    w[B] = plim_adapter_weight(ad, "lora_B.default", "Linear", "weight", INTS(base->out, r));
    if (has_dora(spec))
        w[MAGNITUDE] = plim_adapter_weight(ad, "lora_magnitude_vector.default",
                                           "DoraLinearLayer", "weight", INTS(base->out));
}

static uint32_t call_linear(plim_nn *n, const char *name, uint32_t x, uint32_t weight)
{
    plim_nn_enter(n, name, "Linear");
    x = plim_nn_linear_op(n, x, weight, PLIM_NONE);
    plim_nn_leave(n);
    return x;
}

static uint32_t scale_by(plim_nn *n, uint32_t x, double by)
{
    return plim_nn_scalar(n, "aten.mul.Tensor", x, by);
}

/* DoraLinearLayer.forward: to the result `result` it adds
 *     (magnitude / norm - 1) * result + magnitude / norm * lora_B(lora_A(x)) * scaling
 * with the norm of the rows of the adapted weight, which is made again each time. */
static uint32_t call_dora(plim_adapting *ad, const uint32_t *w, uint32_t x, uint32_t result,
                          double by)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    plim_nn_enter(n, "lora_magnitude_vector.default", "DoraLinearLayer");
    uint32_t eye = NN_OP(n, "aten.eye.default", ARG_I("n", plim_nn_dim(n, x, -1)),
                         ARG_I("dtype", n->dtype));
    uint32_t delta = plim_nn_linear_op(n, eye, w[A], PLIM_NONE);
    delta = plim_nn_unary(n, "aten.t.default", plim_nn_linear_op(n, delta, w[B], PLIM_NONE));
    delta = plim_nn_to_like(n, delta, x);
    uint32_t weight = plim_nn_to_like(n, base->weight, x);
    uint32_t constant = plim_nn_unary(n, "aten.detach.default", delta);
    uint32_t rows = base->transposed ? plim_nn_unary(n, "aten.t.default", weight) : weight;
    uint32_t sum = plim_nn_binary(n, "aten.add.Tensor", rows, scale_by(n, constant, by));
    uint32_t norm = NN_OP(n, "aten.linalg_vector_norm.default", ARG_T("self", sum),
                          ARG_IS("dim", INTS(1)));
    norm = plim_nn_unary(n, "aten.detach.default", norm);
    uint32_t scale =
        plim_nn_view(n, plim_nn_binary(n, "aten.div.Tensor", w[MAGNITUDE], norm), INTS(1, -1));
    uint32_t low = plim_nn_linear_op(n, x, w[A], PLIM_NONE);
    low = plim_nn_linear_op(n, low, w[B], PLIM_NONE);
    if (result == PLIM_NONE)
        result = plim_nn_linear_op(n, x, rows, PLIM_NONE);
    else if (base->bias != PLIM_NONE)
        result = plim_nn_binary(n, "aten.sub.Tensor", result, base->bias);
    plim_nn_called(n, (uint32_t[]){delta, weight, norm, scale, low, result},
                   6); /* variables */
    result = plim_nn_binary(n, "aten.mul.Tensor",
                            plim_nn_scalar(n, "aten.sub.Tensor", scale, 1), result);
    low = scale_by(n, plim_nn_binary(n, "aten.mul.Tensor", scale, low), by);
    x = plim_nn_binary(n, "aten.add.Tensor", result, low);
    plim_nn_leave(n);
    return x;
}

/* Packed layers cast the adapter's part before they add it; that of 4 bits copies the result. */
static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapter *spec = plim_adapter_spec(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    double by = find_scale(spec), p = spec->item[DROPOUT];
    uint32_t result = plim_adapter_call_base(ad, x);
    if (plim_str_is(base->type, "Linear4bit"))
        result = plim_nn_unary(n, "aten.clone.default", result);
    if (has_dora(spec) && base->weight == PLIM_NONE)
        plim_nn_fail(n, PLIM_EUNSUPPORTED, "lora: '" PLIM_STR_FMT "' has no weight for dora",
                     PLIM_STR_CUT(base->path));
    x = plim_adapter_cast(ad, x, w[A]);
    x = plim_adapter_dropout(ad, "lora_dropout.default", x, p);
    if (has_dora(spec)) {
        x = call_dora(ad, w, x, plim_adapter_drops(ad, p) ? PLIM_NONE : result, by);
    } else {
        x = call_linear(n, "lora_A.default", x, w[A]);
        x = call_linear(n, "lora_B.default", x, w[B]);
        x = scale_by(n, x, by);
    }
    if (base->packed && !plim_adapter_autocast(ad))
        x = plim_adapter_cast_back(ad, x);
    x = plim_nn_binary(n, "aten.add.Tensor", result, x);
    if (!base->packed)
        plim_adapter_cast_back(ad, x);
}

const plim_adapter_method plim_adapter_lora = {
    .name = "lora",
    .doc = "LoRA: a weight of low rank added to the module's; with dora, scaled",
    .src = "peft 0.21 tuners/lora/layer.py, dora.py, bnb.py",
    .bias = true,
    .item = {{"r", 8, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL},
             {"alpha", -1, 0, 1e9, NULL, PLIM_ADAPTER_REAL, "lora_alpha"},
             {"dropout", 0, 0, 1, NULL, PLIM_ADAPTER_REAL, "lora_dropout"},
             {"rslora", 0, 0, 1, NULL, PLIM_ADAPTER_FLAG, "use_rslora"},
             {"dora", 0, 0, 1, NULL, PLIM_ADAPTER_FLAG, "use_dora"}},
    .unpacked = name_unpacked,
    .make = add_weights,
    .call = write_call,
};
