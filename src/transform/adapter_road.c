/* adapter_road.c -- RoAd: rotations of pairs of outputs, with a scale.
 *
 *     result = self.base_layer(x).to(fp32)
 *     result = result * first + torch.stack((-x2, x1), dim=1).reshape(result.shape) * second
 *     return result.to(its dtype before)
 *
 * src: peft 0.21 tuners/road/layer.py */
#include "transform/adapter.h"

enum { VARIANT, GROUP_SIZE };    /* items */
enum { ROAD_1, ROAD_2, ROAD_4 }; /* variants: how many parameters an output has, roughly */
enum { THETA, ALPHA };           /* weights */

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    const plim_adapter *spec = plim_adapter_spec(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    int variant = (int)spec->item[VARIANT];
    int64_t group = (int64_t)spec->item[GROUP_SIZE], n = variant == ROAD_1   ? base->out / 2
                                                         : variant == ROAD_2 ? base->out
                                                                             : base->out * 2;
    if (group % 2 || base->out % group)
        plim_nn_fail(plim_adapter_nn(ad), PLIM_EUSAGE,
                     "road: group_size must be even and divide the %" PRId64
                     " outputs of '" PLIM_STR_FMT "', which %" PRId64 " does not",
                     base->out, PLIM_STR_CUT(base->path), group);
    w[THETA] = plim_adapter_weight(ad, "road_theta", "ParameterDict", "default", INTS(n));
    w[ALPHA] = plim_adapter_weight(ad, "road_alpha", "ParameterDict", "default", INTS(n));
}

/* The values of a group for each of its halves. */
static uint32_t for_both_halves(plim_nn *n, uint32_t x, int64_t half)
{
    x = plim_nn_reshape(n, x, INTS(-1, half));
    x = NN_OP(n, "aten.repeat_interleave.self_int", ARG_T("self", x), ARG_I("repeats", 2),
              ARG_I("dim", 0));
    return plim_nn_reshape(n, x, INTS(-1));
}

static uint32_t multiply_by(plim_nn *n, uint32_t a, uint32_t b)
{
    return plim_nn_binary(n, "aten.mul.Tensor", a, b);
}

/* The first or second part of each group. */
static uint32_t part_of(plim_nn *n, uint32_t x, int64_t at)
{
    return plim_nn_reshape(n, plim_nn_select(n, x, 1, at), INTS(-1));
}

/* _prepare_cols */
static void make_columns(plim_nn *n, int variant, int64_t group, uint32_t theta,
                         uint32_t alpha, uint32_t column[2])
{
    static const char *const turn[] = {"aten.cos.default", "aten.sin.default"};
    if (variant == ROAD_4) {
        uint32_t angles = plim_nn_reshape(n, theta, INTS(-1, 2, group)), a[2];
        for (int i = 0; i < 2; i++)
            column[i] = plim_nn_reshape(
                n, plim_nn_unary(n, turn[i], plim_nn_select(n, angles, 1, i)), INTS(-1));
        uint32_t scales = plim_nn_reshape(n, alpha, INTS(-1, 2, group));
        for (int i = 0; i < 2; i++)
            a[i] = part_of(n, scales, i);
        for (int i = 0; i < 2; i++)
            column[i] = multiply_by(n, a[i], column[i]);
        return;
    }
    if (variant == ROAD_1) {
        theta = for_both_halves(n, theta, group / 2);
        alpha = for_both_halves(n, alpha, group / 2);
    }
    for (int i = 0; i < 2; i++)
        column[i] = plim_nn_unary(n, turn[i], theta);
    for (int i = 0; i < 2; i++)
        column[i] = multiply_by(n, alpha, column[i]);
}

static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapter *spec = plim_adapter_spec(ad);
    int64_t group = (int64_t)spec->item[GROUP_SIZE];
    uint32_t column[2];
    x = plim_nn_to_like(n, plim_adapter_call_base(ad, x), w[THETA]);
    if (n->st)
        return;
    plim_meta was = n->g->values[x].meta;
    plim_ints shape = {was.dim, (uint32_t)was.rank};
    make_columns(n, (int)spec->item[VARIANT], group, w[THETA], w[ALPHA], column);
    uint32_t pairs = plim_nn_reshape(n, x, INTS(-1, 2, group / 2));
    uint32_t x1 = plim_nn_select(n, pairs, 1, 0), x2 = plim_nn_select(n, pairs, 1, 1);
    uint32_t turned[] = {plim_nn_unary(n, "aten.neg.default", x2), x1};
    uint32_t rotated =
        NN_OP(n, "aten.stack.default", ARG_TS("tensors", turned, 2), ARG_I("dim", 1));
    rotated = plim_nn_reshape(n, rotated, shape);
    uint32_t a = multiply_by(n, x, column[0]), b = multiply_by(n, rotated, column[1]);
    plim_adapter_cast_back(ad, plim_nn_binary(n, "aten.add.Tensor", a, b));
}

const plim_adapter_method plim_adapter_road = {
    .name = "road",
    .doc = "RoAd: rotations of pairs of outputs, with a scale",
    .src = "peft 0.21 tuners/road/layer.py",
    .targets = "lora",
    .plain_linear = true,
    .item = {{"variant", ROAD_1, 0, 0, "road_1 road_2 road_4", PLIM_ADAPTER_REAL, NULL},
             {"group_size", 64, 2, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL}},
    .make = add_weights,
    .call = write_call,
};
