/* rules_collective.c -- what ranks that divide a model exchange: sums over them, and parts.
 * src: torch 2.13 torch/distributed/tensor/_redistribute.py, _api.py, placement_types.py,
 * torch/distributed/_functional_collectives.py */
#include "op/rules.h"

static plim_t contiguous_like(plim_machine *m, plim_t x)
{
    const plim_meta *xm = plim_m_meta(m, x);
    return plim_m_empty_contig(m, xm->dtype, xm->rank, xm->dim);
}

static void enter_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = contiguous_like(m, g[0]); /* which the functional all_reduce writes into */
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
    plim_t y = contiguous_like(c->m, x);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}

/* ---- parts of a sequence: dimension 1 ---------------------------------------------------------- */

enum { PARTS, DIM }; /* in gnode.i */

static plim_meta scale_dim(const plim_machine *m, plim_t x, int32_t dim, int64_t times,
                           int64_t over)
{
    plim_meta out = *plim_m_meta(m, x);
    plim_set_dim(&out, dim, plim_dim_mul(plim_dim_at(&out, dim), times) / PLIM_MAX(over, 1));
    plim_meta_contiguous(&out);
    return out;
}

/* The collective joins parts in front, from where they are copied unless they lie right already. */
static plim_t all_gather(plim_machine *m, plim_t x, int64_t parts, int32_t dim)
{
    plim_meta joined = scale_dim(m, x, 0, parts, 1), out = scale_dim(m, x, dim, parts, 1);
    bool in_place = true;
    for (int32_t i = 0; i < dim; i++)
        in_place &= plim_m_meta(m, x)->dim[i] == 1;
    plim_t gathered = plim_m_empty(m, in_place ? &out : &joined);
    if (in_place)
        return gathered;
    plim_t y = plim_m_empty(m, &out);
    plim_m_drop(m, gathered);
    return y;
}

/* The collective divides what it reads in front, where the parts are brought first.  This copy
 * lives until somebody waits for the result: *sent, owned. */
static plim_t reduce_scatter(plim_machine *m, plim_t x, int64_t parts, plim_t *sent)
{
    plim_meta out = scale_dim(m, x, 1, 1, parts);
    plim_t tmp = plim_contiguous_tmp(m, x);
    *sent = contiguous_like(m, x);
    plim_m_drop(m, tmp);
    return plim_m_empty(m, &out);
}

static void gather_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t sent;
    dx[0] = reduce_scatter(m, g[0], n->i[PARTS], &sent);
    plim_m_drop(m, sent);
}

static void unite_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_meta part = scale_dim(m, g[0], (int32_t)n->i[DIM], 1, n->i[PARTS]);
    dx[0] = plim_m_empty(m, &part);
}

static void scatter_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    dx[0] = all_gather(m, g[0], n->i[PARTS], 1);
}

static const plim_grad_fn gather_fn = {"RedistributeBackward", gather_backward},
                          unite_fn = {"RedistributeBackward", unite_backward},
                          scatter_fn = {"RedistributeBackward", scatter_backward};

static plim_gnode *part_node(plim_machine *m, const plim_grad_fn *fn, plim_t x, int64_t parts,
                             int32_t dim)
{
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    if (n) {
        n->i[PARTS] = parts;
        n->i[DIM] = dim;
    }
    return n;
}

static void gather_along(plim_call *c, const plim_grad_fn *fn, int32_t dim)
{
    plim_t x = plim_arg_tensor(c, 0);
    int64_t parts = plim_arg_int(c, 1, 1);
    plim_gnode *n = part_node(c->m, fn, x, parts, dim);
    plim_t y = all_gather(c->m, x, parts, dim);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}

/* redistribute of a Shard(1) to Replicate(), whose gradient is a Partial(). */
void plim_run_tp_gather(plim_call *c) { gather_along(c, &gather_fn, 1); }
/* The same of a Shard(-1), whose gradient all ranks have. */
void plim_run_tp_unite(plim_call *c)
{
    gather_along(c, &unite_fn, plim_m_meta(c->m, plim_arg_tensor(c, 0))->rank - 1);
}

static void return_scattered(plim_call *c, plim_t x, int64_t parts)
{
    plim_gnode *n = part_node(c->m, &scatter_fn, x, parts, 1);
    plim_t sent, y = reduce_scatter(c->m, x, parts, &sent);
    plim_m_output(c->m, n, 0, y);
    plim_rets(c, (plim_t[]){y, sent}, 2);
}

/* redistribute of a Partial() to Shard(1). */
void plim_run_tp_scatter(plim_call *c)
{
    return_scattered(c, plim_arg_tensor(c, 0), plim_arg_int(c, 1, 1));
}

/* What it reads is not needed any longer. */
void plim_run_held(plim_call *c) { (void)c; }

/* ---- rows of experts ------------------------------------------------------------------------------- */

static void exchange_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t sent = plim_contiguous_tmp(m, g[0]);
    (void)n;
    dx[0] = contiguous_like(m, sent);
    plim_m_drop(m, sent);
}
static const plim_grad_fn exchange_fn = {"_C10DAllToAllSingleBackward", exchange_backward};

/* all_to_all_single_autograd, where a rank receives as many rows as it sends */
void plim_run_ep_exchange(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(c->m, &exchange_fn, 1, &x);
    plim_t sent = plim_contiguous_tmp(c->m, x), y = contiguous_like(c->m, sent);
    plim_m_drop(c->m, sent);
    plim_m_output(c->m, n, 0, y);
    plim_ret(c, y);
}

/* ---- a part of the vocabulary --------------------------------------------------------------------- */

/* The gradient is one of the whole table, a Partial(), until the optimizer reads its part. */
static void table_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t whole =
        plim_at_embedding_gradient(m, g[0], plim_m_saved(m, n, 0),
                                   plim_dim_mul(n->in_meta[0].dim[0], n->i[PARTS]), false);
    dx[0] = plim_m_alias(m, whole, &n->in_meta[0]);
    plim_m_drop(m, whole);
}
static const plim_grad_fn table_fn = {"EmbeddingBackward0", table_backward};

/* Which tokens another rank has, kept until their rows are masked; then the tokens' rows here. */
static plim_t masked_tokens(plim_machine *m, plim_t ids, plim_t *rows)
{
    plim_meta mask = *plim_m_meta(m, ids);
    mask.dtype = PLIM_BOOL;
    plim_meta_contiguous(&mask);
    plim_t below = plim_m_empty(m, &mask), above = plim_m_empty(m, &mask),
           either = plim_m_empty(m, &mask);
    plim_m_drop(m, below);
    plim_m_drop(m, above);
    plim_t copy = contiguous_like(m, ids);
    *rows = contiguous_like(m, ids);
    plim_m_drop(m, copy);
    return either;
}

/* src: torch 2.13 torch/distributed/tensor/_ops/_mask_buffer.py, placement_types.py _MaskPartial */
void plim_run_tp_embedding(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t w = plim_arg_tensor(c, 0), ids = plim_arg_tensor(c, 1), rows;
    int64_t parts = plim_arg_int(c, 2, 1);
    plim_meta out = *plim_m_meta(m, ids);
    out.dtype = plim_m_meta(m, w)->dtype;
    out.dim[out.rank++] = plim_m_meta(m, w)->dim[1];
    plim_meta_contiguous(&out);
    plim_gnode *n = part_node(m, &table_fn, w, parts, 0);
    plim_m_save(m, n, 0, ids);
    plim_t mask = masked_tokens(m, ids, &rows), y = plim_m_empty(m, &out);
    plim_m_drop(m, rows);
    plim_m_output(m, n, 0, y);
    plim_m_drop(m, mask);
    return_scattered(c, y, parts);
    plim_m_drop(m, y);
}
