/* rules_zero.c -- the linear layer that DeepSpeed puts in the place of torch.nn.functional.linear for ZeRO-3:
 * autograd saves the weight itself and no view of it, so that its memory can be released and gathered
 * again.
 *
 * src: DeepSpeed 0.19 runtime/zero/linear.py LinearFunctionForZeroStage3 */
#include "op/rules.h"

enum { INPUT, WEIGHT, BIAS, INS };

static plim_t make_weight_gradient(plim_machine *m, plim_t g, plim_t input)
{
    plim_t rows = plim_at_fold_rows(m, g), turned = plim_at_t(m, rows),
           in = plim_at_fold_rows(m, input), grad = plim_at_matmul(m, turned, in),
           done[] = {in, turned, rows};
    for (size_t i = 0; i < PLIM_COUNT(done); i++)
        plim_m_drop(m, done[i]);
    return grad;
}

static void linear_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    const plim_meta *gm = g[0] ? plim_m_meta(m, g[0]) : NULL;
    if (!gm)
        return;
    if (plim_m_wants(m, n, INPUT))
        dx[INPUT] = plim_at_matmul(m, g[0], plim_m_saved(m, n, WEIGHT));
    if (plim_m_wants(m, n, WEIGHT))
        dx[WEIGHT] = make_weight_gradient(m, g[0], plim_m_saved(m, n, INPUT));
    if (plim_m_wants(m, n, BIAS))
        dx[BIAS] = plim_at_sum(m, g[0], (1u << (gm->rank - 1)) - 1, false);
}
static const plim_grad_fn linear_fn = {"LinearFunctionForZeroStage3Backward", linear_backward};

/* Tensors are saved once the output is there: a checkpoint stops after the product. */
void plim_run_zero3_linear(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[INS] = {plim_arg_tensor(c, INPUT), plim_arg_tensor(c, WEIGHT),
                      plim_arg_tensor(c, BIAS)};
    plim_gnode *n = plim_m_node(m, &linear_fn, INS, in);
    bool mode = plim_m_grad_mode(m), fused = plim_m_meta(m, in[INPUT])->rank == 2;
    plim_m_set_grad_mode(m, false);
    plim_t y = plim_at_linear(m, in[INPUT], in[WEIGHT], fused ? in[BIAS] : 0);
    if (in[BIAS] && !fused) {
        plim_t sum = plim_at_add(m, y, in[BIAS], true);
        plim_m_drop(m, y);
        y = sum;
    }
    plim_m_set_grad_mode(m, mode);
    for (uint32_t i = 0; i < INS; i++)
        plim_m_save(m, n, i, in[i]);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
