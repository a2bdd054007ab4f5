/* adapter_lokr.c -- LoKr: the Kronecker product of two small weights, which may be of low rank
 * themselves.
 *
 *     result = self.base_layer(x)
 *     result = result + F.linear(x.to(fp32), torch.kron(w1, w2) * scale)
 *     return result.to(its dtype before)
 *
 * src: peft 0.21 tuners/lokr/layer.py, lycoris_utils.py; ATen/native/LinearAlgebra.cpp KronImpl */
#include "transform/adapter.h"

enum { R, ALPHA, DECOMPOSE_BOTH, DECOMPOSE_FACTOR }; /* items */
enum { W1, W1_B, W2, W2_B };                         /* weights; _B: if it is of low rank */

/* The two factors of a dimension: `factor` and the rest if it divides it, else the two that
 * are closest, where the smaller one is at most the factor (-1: any): factorization(). */
static void factor_dim(int64_t dim, int64_t factor, int64_t out[2])
{
    bool given = factor > 0 && dim % factor == 0;
    int64_t m = given ? factor : 1, most = factor < 0 ? dim : factor;
    for (int64_t i = 2; !given && i <= most && i <= dim / i; i++)
        if (dim % i == 0)
            m = i;
    out[0] = m;
    out[1] = dim / m;
}

/* A matrix, or its two factors. */
static void make_factor(plim_adapting *ad, const char *const name[3], int64_t rows,
                        int64_t columns, bool low, uint32_t w[2])
{
    int64_t r = (int64_t)plim_adapter_spec(ad)->item[R];
    w[0] = plim_adapter_weight(ad, name[low], "ParameterDict", "default",
                               low ? INTS(rows, r) : INTS(rows, columns));
    if (low)
        w[1] = plim_adapter_weight(ad, name[2], "ParameterDict", "default", INTS(r, columns));
}

static void add_weights(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS])
{
    static const char *const w1[] = {"lokr_w1", "lokr_w1_a", "lokr_w1_b"};
    static const char *const w2[] = {"lokr_w2", "lokr_w2_a", "lokr_w2_b"};
    const plim_adapter *spec = plim_adapter_spec(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    int64_t in[2], out[2], factor = (int64_t)spec->item[DECOMPOSE_FACTOR];
    double r = spec->item[R];
    factor_dim(base->in, factor, in);
    factor_dim(base->out, factor, out);
    make_factor(ad, w1, out[0], in[0],
                spec->item[DECOMPOSE_BOTH] > 0 && r < (double)PLIM_MAX(out[0], in[0]) / 2,
                &w[W1]);
    make_factor(ad, w2, out[1], in[1], r < (double)PLIM_MAX(out[1], in[1]) / 2, &w[W2]);
}

static uint32_t factor_of(plim_nn *n, const uint32_t w[2])
{
    return w[1] == PLIM_NONE ? w[0] : plim_nn_binary(n, "aten.matmul.default", w[0], w[1]);
}

static void write_call(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x)
{
    plim_nn *n = plim_adapter_nn(ad);
    const plim_adapter *spec = plim_adapter_spec(ad);
    const plim_adapted *base = plim_adapter_base(ad);
    uint32_t result = plim_adapter_call_base(ad, x);
    uint32_t w1 = factor_of(n, &w[W1]), w2 = factor_of(n, &w[W2]);
    w1 = plim_nn_view(n, w1, INTS(plim_nn_dim(n, w1, 0), 1, plim_nn_dim(n, w1, 1), 1));
    w2 = plim_nn_view(n, w2, INTS(1, plim_nn_dim(n, w2, 0), 1, plim_nn_dim(n, w2, 1)));
    uint32_t delta = plim_nn_view(n, plim_nn_binary(n, "aten.mul.Tensor", w1, w2),
                                  INTS(base->out, base->in));
    delta = plim_nn_scalar(n, "aten.mul.Tensor", delta, spec->item[ALPHA] / spec->item[R]);
    plim_adapter_add_product(ad, x, delta, result);
}

const plim_adapter_method plim_adapter_lokr = {
    .name = "lokr",
    .doc = "LoKr: the Kronecker product of two small weights",
    .src = "peft 0.21 tuners/lokr/layer.py, lycoris_utils.py",
    .targets = "lora",
    .plain_linear = true,
    .item = {{"r", 8, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL},
             {"alpha", 8, 0, 1e9, NULL, PLIM_ADAPTER_REAL, NULL},
             {"decompose_both", 0, 0, 1, NULL, PLIM_ADAPTER_FLAG, NULL},
             {"decompose_factor", -1, -1, 65536, NULL, PLIM_ADAPTER_WHOLE, NULL}},
    .make = add_weights,
    .call = write_call,
};
