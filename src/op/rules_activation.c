/* rules_activation.c -- activations: one kernel each way.
 * src: docs/sources/operators.md 2; derivatives.yaml; gen_variable_type.py for the clone that
 * an in-place form saves if its formula uses the input. */
#include "op/rules.h"

typedef struct activation_row {
    const char *name;
    char save;         /* out of place: 'x' input, 'y' result */
    char save_inplace; /* in place: 'y' result, 'c' a clone of the input */
    bool module;       /* torch.nn has it with inplace=True */
} activation_row;

static const activation_row activation_rows[] = {
    /* name         out  in-place */
    {"relu", 'y', 'y', true},         {"sigmoid", 'y', 'y', false},
    {"tanh", 'y', 'y', false},        {"leaky_relu", 'x', 'y', true},
    {"elu", 'x', 'y', true},          {"selu", 'x', 'y', true},
    {"celu", 'x', 'y', true},         {"threshold", 'x', 'c', true},
    {"gelu", 'x', 'c', false},        {"silu", 'x', 'c', true},
    {"mish", 'x', 'c', true},         {"relu6", 'x', 'c', true},
    {"hardtanh", 'x', 'c', true},     {"hardswish", 'x', 'c', true},
    {"hardsigmoid", 'x', 'c', true},  {"softplus", 'x', 'c', false},
    {"softshrink", 'x', 'c', false},  {"hardshrink", 'x', 'c', false},
    {"log_sigmoid", 'x', 'c', false},
};

static const activation_row *find_activation(const char *name)
{
    for (size_t i = 0; i < PLIM_COUNT(activation_rows); i++)
        if (!strcmp(activation_rows[i].name, name))
            return &activation_rows[i];
    return NULL;
}

plim_inplace plim_op_inplace(const plim_op *op)
{
    const activation_row *row =
        op->run == plim_run_activation ? find_activation(op->name) : NULL;
    if (!row || !row->module)
        return PLIM_INPLACE_NONE;
    return row->save_inplace == 'c' ? PLIM_INPLACE_COPY
           : row->save == 'y'       ? PLIM_INPLACE_MOMENT
                                    : PLIM_INPLACE_LESS;
}

static void activation_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = plim_iter_out(m, g[0], plim_m_saved(m, n, 0));
}
static const plim_grad_fn activation_fn = {"ActivationBackward0", activation_backward};

void plim_run_activation(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    const activation_row *row = find_activation(c->node->op->name);
    if (!row) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "activation '%s' has no rule", c->node->op->name);
        return;
    }
    plim_gnode *n = plim_m_node(m, &activation_fn, 1, &x);
    if (!c->inplace) {
        if (row->save == 'x')
            plim_m_save(m, n, 0, x);
        plim_t y = plim_m_empty_like(m, x);
        plim_m_output(m, n, 0, y);
        if (row->save == 'y')
            plim_m_save(m, n, 0, y);
        plim_ret(c, y);
        return;
    }
    if (n && row->save_inplace == 'c') { /* before the kernel overwrites it */
        plim_t copy = plim_m_empty_like(m, x);
        plim_m_save(m, n, 0, copy);
        plim_m_drop(m, copy);
    }
    plim_t y = plim_m_ref(m, x);
    plim_m_rebase(m, n, y);
    if (row->save_inplace == 'y')
        plim_m_save(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- glu ------------------------------------------------------------------ */

static void glu_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    dx[0] = plim_m_empty_like(m, plim_m_saved(m, n, 0));
}
static const plim_grad_fn glu_fn = {"GluBackward0", glu_backward};

void plim_run_glu(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(m, x);
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 1, -1), out.rank);
    if (!out.rank || out.dim[d] % 2) {
        plim_m_fail(m, PLIM_ESHAPE, "glu halves a dim of size %" PRId64 ", which is odd",
                    out.rank ? out.dim[d] : 0);
        return;
    }
    out.dim[d] /= 2;
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &glu_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- prelu: one kernel makes dx and a full-size dw, then dw is reduced ------ */

static void prelu_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0), w = plim_m_saved(m, n, 1);
    plim_t dxf = plim_iter_out(m, x, g[0]), dwf = plim_iter_out(m, x, g[0]);
    const plim_meta *wm = plim_m_meta(m, w);
    const plim_meta *xm = plim_m_meta(m, x);
    uint32_t keep = wm->rank && wm->dim[0] > 1 && xm->rank > 1 ? 1u << 1 : 0;
    dx[1] = plim_m_empty(m, wm);
    plim_reduce_scratch(m, xm, ((1u << xm->rank) - 1) & ~keep);
    plim_m_drop(m, dwf);
    dx[0] = dxf;
}
static const plim_grad_fn prelu_fn = {"PreluKernelBackward0", prelu_backward};

void plim_run_prelu(plim_call *c)
{
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_gnode *n = plim_m_node(c->m, &prelu_fn, 2, in);
    plim_m_save(c->m, n, 0, in[0]);
    plim_m_save(c->m, n, 1, in[1]);
    plim_t y = plim_m_empty_like(c->m, in[0]);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}

/* ---- kernels of their own on a card ------------------------------------------- */

/* The CPU keeps a buffer for backward; a card leaves it empty. */
void plim_kernel_log_sigmoid(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    c->out[0] = plim_m_empty_like(c->m, x);
    c->out[1] = plim_m_empty_contig(c->m, plim_m_meta(c->m, x)->dtype, 1, (int64_t[]){0});
    c->n_out = 2;
}
/* One kernel over the gradient and x, where the CPU uses a formula. */
void plim_kernel_like_second(plim_call *c)
{
    c->out[0] = plim_iter_out(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1));
    c->n_out = 1;
}
