/* adapter_miss.c -- MiSS: one matrix for sums over shards of the input.
 *
 *     result = self.base_layer(x)
 *     result = result + dropout(x.to(fp32)).reshape(*, in / r, r).sum(dim=-2) @ miss
 *     return result.to(its dtype before)
 *
 * "mini" repeats a narrow matrix; "bat" makes the whole weight again instead of calling the module.
 *
 * src: peft 0.21 tuners/miss/layer.py */
#include "transform/adapter.h"

enum { R, MINI_R, DROPOUT, INIT }; /* items */
enum { PLAIN, BAT, MINI };         /* of init */

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    const plim_adapter *spec = plim_adapter_spec(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    int64_t r = (int64_t)spec->item[R], mini = (int64_t)spec->item[MINI_R];
    int init = (int)spec->item[INIT];
    if (r > base->in)
        plim_nn_fail(plim_adapter_nn(ad), PLIM_EUSAGE,
                     "miss: r is %" PRId64 ", more than the %" PRId64
                     " inputs of '" PLIM_STR_FMT "'",
                     r, base->in, PLIM_STR_CUT(base->path));
    if (init == BAT && (base->in % r || base->out % r || base->weight == PLIM_NONE))
        plim_nn_fail(plim_adapter_nn(ad), PLIM_EUSAGE,
                     "miss: bat needs an r that divides inputs and outputs, and %" PRId64
                     " does not divide %" PRId64 " and %" PRId64 " of '" PLIM_STR_FMT "'",
                     r, base->in, base->out, PLIM_STR_CUT(base->path));
    if (init == MINI && base->out % mini)
        plim_nn_fail(plim_adapter_nn(ad), PLIM_EUSAGE,
                     "miss: mini_r must divide the %" PRId64 " outputs of '" PLIM_STR_FMT "'",
                     base->out, PLIM_STR_CUT(base->path));
    w[0] = plim_adapter_weight(ad, "miss_block", "ParameterDict", "default",
                               init == BAT    ? INTS(base->out / r, r, r)
                               : init == MINI ? INTS(r, mini)
                                              : INTS(r, base->out));
}

/* MissLinear.get_delta_weight: the weight in blocks of r x r, each times its own of `block`. */
static uint32_t bat_delta(plim_nn *n, const plim_adapted *base, uint32_t weight,
                          uint32_t block)
{
    int64_t r = plim_nn_dim(n, block, -1);
    uint32_t w = plim_nn_to_like(n, weight, block);
    plim_nn_holds(n, w);
    w = plim_nn_reshape(n, w, INTS(base->out / r, r, base->in / r, r));
    w = plim_nn_permute(n, w, INTS(2, 0, 1, 3));
    w = plim_nn_binary(n, "aten.matmul.default", w, block);
    w = plim_nn_binary(n, "aten.add.Tensor", w, block);
    w = plim_nn_permute(n, w, INTS(1, 2, 0, 3));
    return plim_nn_reshape(n, w, INTS(base->out, base->in));
}

static void call_bat(plim_adapting *ad, uint32_t block, uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    uint32_t weight = plim_nn_unary(n, "aten.clone.default", base->weight);
    uint32_t delta = bat_delta(n, base, weight, block);
    weight = plim_nn_binary(n, "aten.add.Tensor", weight, delta);
    uint32_t in = plim_adapter_cast(ad, x, weight);
    uint32_t bias =
        base->bias == PLIM_NONE ? PLIM_NONE : plim_nn_to_like(n, base->bias, weight);
    plim_nn_called(n, (uint32_t[]){weight, delta, bias}, 3); /* variables */
    plim_nn_to_like(n, plim_nn_linear_op(n, in, weight, bias), x);
}

/* x.reshape(*, shards, r).sum(dim=-2) */
static uint32_t sum_shards(plim_nn *n, uint32_t x, int64_t shards, int64_t r)
{
    int64_t dim[PLIM_MAX_RANK];
    if (n->st)
        return PLIM_NONE;
    uint32_t rank = (uint32_t)n->g->values[x].meta.rank;
    if (rank + 1 > PLIM_MAX_RANK) {
        plim_nn_fail(n, PLIM_EUNSUPPORTED, "miss: an input of %" PRIu32 " dims", rank);
        return PLIM_NONE;
    }
    memcpy(dim, n->g->values[x].meta.dim, sizeof dim);
    dim[rank - 1] = shards;
    dim[rank] = r;
    x = plim_nn_reshape(n, x, (plim_ints){dim, rank + 1});
    return NN_OP(n, "aten.sum.dim_IntList", ARG_T("self", x), ARG_IS("dim", INTS(-2)));
}

static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapter *spec = plim_adapter_spec(ad);
    int64_t r = (int64_t)spec->item[R], in = plim_nn_dim(n, x, -1);
    if ((int)spec->item[INIT] == BAT) {
        call_bat(ad, w[0], x);
        return;
    }
    uint32_t result = plim_adapter_call_base(ad, x), block = w[0], given = x;
    if ((int)spec->item[INIT] == MINI)
        block = NN_OP(n, "aten.repeat.default", ARG_T("self", block),
                      ARG_IS("repeats", INTS(1, plim_adapter_base(ad)->out /
                                                    (int64_t)spec->item[MINI_R])));
    plim_nn_holds(n, block);
    if (in % r) {
        x = plim_nn_pad(n, x, INTS(0, r - in % r));
        in += r - in % r;
    }
    x = plim_adapter_cast(ad, x, w[0]);
    x = plim_adapter_dropout(ad, "miss_dropout.default", x, spec->item[DROPOUT]);
    x = sum_shards(n, x, in / r, r);
    x = plim_nn_binary(n, "aten.matmul.default", x, block);
    plim_nn_to_like(n, plim_nn_binary(n, "aten.add.Tensor", result, x), given);
}

const plim_adapter_method plim_adapter_miss = {
    .name = "miss",
    .doc = "MiSS: one matrix for sums over shards of the input",
    .src = "peft 0.21 tuners/miss/layer.py",
    .targets = "lora",
    .bias = true,
    .plain_linear = true,
    .item = {{"r", 64, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL},
             {"mini_r", 1, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL},
             {"dropout", 0, 0, 1, NULL, PLIM_ADAPTER_REAL, "miss_dropout"},
             {"init", PLAIN, 0, 0, "plain bat mini", PLIM_ADAPTER_REAL, "init_weights"}},
    .make = add_weights,
    .call = write_call,
};
