/* rules_moe.c -- Megatron-LM's mixtures of experts: routes, what moves tokens, and linear layers of several experts
 * at once.  How many rows a rank gets is an argument: it depends on the routes.
 * src: megatron-core 0.16 transformer/moe/moe_utils.py, token_dispatcher.py, tensor_parallel/mappings.py;
 * Transformer Engine 2.8 pytorch/module/grouped_linear.py */
#include "op/rules.h"

static plim_t rows_of(plim_machine *m, plim_t like, int64_t rows)
{
    plim_meta out = *plim_m_meta(m, like);
    plim_set_dim(&out, 0, rows);
    plim_meta_contiguous(&out);
    return plim_m_empty(m, &out);
}

/* ---- the router ----------------------------------------------------------------------------- */

enum { OF_X, OF_WEIGHT };

/* The product of both in the router's type, then in that of `like`. */
static plim_t product_as(plim_machine *m, plim_t a, plim_t b, const plim_meta *like)
{
    plim_dtype type = plim_m_meta(m, a)->dtype;
    plim_t wide = plim_at_to(m, b, type), y = plim_te_product(m, a, wide, type),
           out = plim_at_to(m, y, like->dtype);
    plim_m_drop(m, wide);
    plim_m_drop(m, y);
    return out;
}

static void router_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t rows = plim_at_fold_rows(m, g[0]),
           x = plim_at_fold_rows(m, plim_m_saved(m, n, OF_X)), turned = plim_at_t(m, rows);
    if (plim_m_wants(m, n, OF_X)) {
        plim_t flat = product_as(m, rows, plim_m_saved(m, n, OF_WEIGHT), &n->in_meta[OF_X]);
        dx[OF_X] = plim_at_reshape(m, flat, n->in_meta[OF_X].rank, n->in_meta[OF_X].dim);
        plim_m_drop(m, flat);
    }
    if (plim_m_wants(m, n, OF_WEIGHT))
        dx[OF_WEIGHT] = product_as(m, turned, x, &n->in_meta[OF_WEIGHT]);
    plim_m_drop(m, turned);
    plim_m_drop(m, x);
    plim_m_drop(m, rows);
}
static const plim_grad_fn router_fn = {"RouterGatingLinearFunctionBackward", router_backward};

/* router_gating_linear, by Transformer Engine, which makes a product in fp32 of operands in another type. */
void plim_run_megatron_router(plim_call *c)
{
    plim_machine *m = c->m;
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_dtype type = plim_arg_int(c, 2, 0) ? PLIM_F32 : plim_m_meta(m, in[0])->dtype;
    const plim_meta *x = plim_m_meta(m, in[0]), *w = plim_m_meta(m, in[1]);
    if (!x->rank || w->rank != 2 || plim_dim_at(x, -1) != w->dim[1]) {
        plim_m_fail(m, PLIM_ESHAPE, "the router's weight does not match its input");
        return;
    }
    plim_gnode *n = plim_m_node(m, &router_fn, PLIM_COUNT(in), in);
    plim_m_save(m, n, OF_X, in[0]);
    plim_m_save(m, n, OF_WEIGHT, in[1]);
    bool mode = plim_m_grad_mode(m);
    plim_m_set_grad_mode(m, false);
    plim_t turned = plim_at_t(m, in[1]), y = plim_te_product(m, in[0], turned, type);
    plim_m_drop(m, turned);
    plim_m_set_grad_mode(m, mode);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

static void attach_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = plim_m_ref(m, g[0]);
    if (plim_m_wants(m, n, 1))
        dx[1] = plim_m_empty(m, &n->in_meta[1]);
}
static const plim_grad_fn attach_fn = {"MoEAuxLossAutoScalerBackward", attach_backward};

/* The first, whose backward pass begins that of a loss, too. */
void plim_run_megatron_attach(plim_call *c)
{
    plim_machine *m = c->m;
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_gnode *n = plim_m_node(m, &attach_fn, PLIM_COUNT(in), in);
    plim_m_save(m, n, 0, in[1]);
    plim_t y = plim_m_alias(m, in[0], plim_m_meta(m, in[0]));
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- tokens ---------------------------------------------------------------------------------------- */

/* Which tokens the map has, expert by expert: arange(tokens).masked_select(map) */
void plim_run_megatron_indices(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t map = plim_arg_tensor(c, 0);
    int64_t rows = plim_arg_int(c, 1, 1), tokens = plim_dim_at(plim_m_meta(m, map), -1);
    uint64_t numel;
    plim_t range = plim_m_empty_contig(m, PLIM_I64, 1, &tokens);
    if (plim_meta_numel(plim_m_meta(m, map), &numel))
        plim_nonzero_scratch(m, numel);
    plim_t y = plim_m_empty_contig(m, PLIM_I64, 1, &rows);
    plim_m_drop(m, range);
    plim_ret(c, y);
}

static const plim_grad_fn select_fn = {"MaskedSelectBackward0", plim_backward_fresh};

/* probs.masked_select(map) */
void plim_run_megatron_select(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), map = plim_arg_tensor(c, 1);
    int64_t rows = plim_arg_int(c, 2, 1);
    uint64_t numel;
    plim_gnode *n = plim_m_node(m, &select_fn, 1, &x);
    plim_m_save(m, n, 0, map);
    plim_m_save(m, n, 1, x);
    if (plim_meta_numel(plim_m_meta(m, map), &numel))
        plim_nonzero_scratch(m, numel);
    plim_t y = plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, 1, &rows);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* An attribute of a module. */
void plim_run_megatron_attribute(plim_call *c)
{
    plim_m_set_attribute(c->m, plim_arg_string(c, 1), plim_arg_tensor(c, 0));
}

static const plim_grad_fn unpermute_fn = {"ScatterAddBackward0", plim_backward_fresh};

/* zeros(tokens, ...).scatter_add_(0, indices, x); where the order of sums is fixed, zeros twice */
void plim_run_megatron_unpermute(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int64_t rows = plim_arg_int(c, 2, 1);
    plim_gnode *n = plim_m_node(m, &unpermute_fn, 1, &x);
    plim_m_save(m, n, 0, plim_arg_tensor(c, 1));
    if (plim_arg_int(c, 3, 0)) /* index_add_ keeps what it adds */
        plim_m_save(m, n, 1, x);
    plim_t first = plim_arg_int(c, 3, 0) ? rows_of(m, x, rows) : 0, y = rows_of(m, x, rows);
    plim_m_drop(m, first);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- experts ------------------------------------------------------------------------------------------- */

static void weighted_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    for (uint32_t i = 0; i < 2; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty(m, &n->in_meta[i]);
}
static const plim_grad_fn weighted_fn = {"WeightedSwiGLUFunctionBackward", weighted_backward};

/* silu(x0) x1 scale, of the halves of x, in one kernel */
void plim_run_megatron_weighted_swiglu(plim_call *c)
{
    plim_machine *m = c->m;
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_meta out = *plim_m_meta(m, in[0]);
    if (out.rank)
        plim_set_dim(&out, -1, plim_dim_at(&out, -1) / 2);
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &weighted_fn, PLIM_COUNT(in), in);
    for (uint32_t i = 0; i < PLIM_COUNT(in); i++)
        plim_m_save(m, n, i, in[i]);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

enum { MOST_EXPERTS = 512, ACCUMULATES = 0 };

/* cuBLAS runs on several streams. */
static void keep_workspaces(plim_machine *m)
{
    static const plim_str keys[] = {{"workspace of grouped products 1", 31},
                                    {"workspace of grouped products 2", 31},
                                    {"workspace of grouped products 3", 31},
                                    {"workspace of grouped products 4", 31}};
    for (size_t i = 0; i < PLIM_COUNT(keys); i++)
        plim_te_workspace(m, keys[i]);
}

static plim_t grouped_result(plim_machine *m, const plim_meta *x, int64_t width)
{
    plim_meta out = *x;
    plim_set_dim(&out, -1, width);
    plim_meta_contiguous(&out);
    keep_workspaces(m);
    return plim_m_empty(m, &out);
}

static void grouped_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t gc = plim_contiguous_tmp(m, g[0]);
    if (plim_m_wants(m, n, 0))
        dx[0] = grouped_result(m, plim_m_meta(m, gc), plim_dim_at(&n->in_meta[0], -1));
    for (uint32_t i = 1; i < n->n_in; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = n->i[ACCUMULATES] ? plim_te_unread_gradient(m, &n->in_meta[i])
                                      : plim_m_empty(m, &n->in_meta[i]);
    plim_m_drop(m, gc);
}
static const plim_grad_fn grouped_fn = {"_GroupedLinearBackward", grouped_backward};

/* GroupedLinear: x W_i^T of the rows of each expert */
void plim_run_megatron_grouped_linear(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[1 + MOST_EXPERTS] = {plim_arg_tensor(c, 0)};
    uint32_t n_weights = plim_arg_tensors(c, 1, in + 1, MOST_EXPERTS);
    const plim_meta x = *plim_m_meta(m, in[0]);
    const plim_meta w = *plim_m_meta(m, in[1]);
    if (!n_weights || !x.rank || w.rank != 2 || plim_dim_at(&x, -1) != w.dim[1]) {
        plim_m_fail(m, PLIM_ESHAPE, "the weights of experts do not match their input");
        return;
    }
    plim_gnode *n = plim_m_node(m, &grouped_fn, 1 + n_weights, in);
    plim_m_save(m, n, 0, in[0]);
    if (n)
        n->i[ACCUMULATES] = plim_arg_int(c, 2, 0);
    plim_t y = grouped_result(m, &x, w.dim[0]);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
