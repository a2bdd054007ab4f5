/* rules_collective.c -- what ranks that divide a model exchange: sums over them.
 * src: torch 2.13 torch/distributed/tensor/_redistribute.py, _api.py,
 * torch/distributed/_functional_collectives.py */
#include "op/rules.h"

/* The functional all_reduce writes into a contiguous clone of what it reads. */
static plim_t all_reduce(plim_machine *m, plim_t x)
{
    const plim_meta *xm = plim_m_meta(m, x);
    return plim_m_empty_contig(m, xm->dtype, xm->rank, xm->dim);
}

static void enter_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = all_reduce(m, g[0]);
}
static const plim_grad_fn enter_fn = {"_FromTorchTensorBackward", enter_backward};

/* DTensor.from_local(x, [Replicate()]): each rank's gradient is a part of the sum. */
void plim_run_tp_enter(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta like = *plim_m_meta(c->m, x);
    plim_ret(c, plim_view_as(c->m, &enter_fn, x, &like));
}

static const plim_grad_fn reduce_fn = {"RedistributeBackward", plim_backward_pass};

/* redistribute of a Partial() to Replicate(): each rank gets the whole gradient. */
void plim_run_tp_reduce(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(c->m, &reduce_fn, 1, &x);
    plim_t y = all_reduce(c->m, x);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}
