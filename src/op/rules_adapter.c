/* rules_adapter.c -- autograd functions of peft's adapters.  src: peft 0.21 tuners/loha/layer.py HadaWeight */
#include "op/rules.h"

enum { W1_A, W1_B, W2_A, W2_B, WEIGHTS };

static plim_t turned_product(plim_machine *m, plim_t a, bool turn_a, plim_t b, bool turn_b)
{
    plim_t left = turn_a ? plim_at_t(m, a) : plim_m_ref(m, a),
           right = turn_b ? plim_at_t(m, b) : plim_m_ref(m, b);
    plim_t product = plim_at_matmul(m, left, right);
    plim_m_drop(m, right);
    plim_m_drop(m, left);
    return product;
}

/* grad_out * (a @ b) */
static plim_t weigh_gradient(plim_machine *m, plim_t g, plim_t a, plim_t b)
{
    plim_t other = plim_at_matmul(m, a, b), weighed = plim_at_mul(m, g, other, false);
    plim_m_drop(m, other);
    return weighed;
}

static void hada_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t w[WEIGHTS], scaled = plim_iter_out(m, g[0], 0), weighed = 0;
    for (uint32_t i = 0; i < WEIGHTS; i++)
        w[i] = plim_m_saved(m, n, i);
    for (uint32_t pair = W1_A; pair < WEIGHTS; pair += 2) {
        uint32_t other = pair == W1_A ? W2_A : W1_A;
        plim_t next = weigh_gradient(m, scaled, w[other], w[other + 1]);
        plim_m_drop(m, weighed); /* as the name is rebound */
        weighed = next;
        dx[pair] = turned_product(m, weighed, false, w[pair + 1], true);
        dx[pair + 1] = turned_product(m, w[pair], true, weighed, false);
    }
    plim_m_drop(m, weighed);
    plim_m_drop(m, scaled);
}
static const plim_grad_fn hada_fn = {"HadaWeightBackward", hada_backward};

/* (w1a @ w1b) * (w2a @ w2b) * scale, of a scale on the CPU; none of the products is kept. */
void plim_run_hada_weight(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t w[WEIGHTS];
    for (uint32_t i = 0; i < WEIGHTS; i++)
        w[i] = plim_arg_tensor(c, i);
    bool mode = plim_m_grad_mode(m);
    plim_m_set_grad_mode(m, false);
    plim_t a = plim_at_matmul(m, w[W1_A], w[W1_B]), b = plim_at_matmul(m, w[W2_A], w[W2_B]);
    plim_t product = plim_at_mul(m, a, b, false);
    plim_m_drop(m, b);
    plim_m_drop(m, a);
    plim_t delta = plim_iter_out(m, product, 0);
    plim_m_drop(m, product);
    plim_m_set_grad_mode(m, mode);
    plim_gnode *n = plim_m_node(m, &hada_fn, WEIGHTS, w);
    for (uint32_t i = 0; i < WEIGHTS; i++)
        plim_m_save(m, n, i, w[i]);
    plim_m_output(m, n, 0, delta);
    plim_ret(c, delta);
}
