/* cost.c -- what an op computes and moves: MACs, FLOPs, bytes. MACs as in torchvision's table:
 * convolutions, linear and matrix products (src: torchvision weight metas "_ops", fvcore's
 * rules); everything else costs FLOPs only. */
#include "op/rules.h"

/* NULL: absent. */
static const plim_meta *cost_input(const plim_cost_call *c, uint32_t slot)
{
    if (slot >= c->node->n_args || c->node->args[slot].kind != PLIM_ARG_VALUE)
        return NULL;
    return &c->g->values[c->node->args[slot].id].meta;
}

/* Of a list of tensors; NULL: absent. */
static const plim_meta *cost_nth(const plim_cost_call *c, const plim_arg *list, uint32_t k)
{
    plim_assert(k < list->n);
    return list->ids[k] == PLIM_NONE ? NULL : &c->g->values[list->ids[k]].meta;
}

static uint64_t cost_numel(const plim_meta *m)
{
    uint64_t n = 0;
    return m && plim_meta_numel(m, &n) ? n : 0;
}

static void set_macs(plim_cost *out, uint64_t macs)
{
    out->macs = macs;
    out->flops = plim_sat_mul(macs, 2);
}

void plim_cost_none(const plim_cost_call *c, plim_cost *out) { (void)c, (void)out; }
void plim_cost_view(const plim_cost_call *c, plim_cost *out) { (void)c, (void)out; }
void plim_cost_maybe_copy(const plim_cost_call *c, plim_cost *out) { (void)c, (void)out; }

void plim_cost_pointwise(const plim_cost_call *c, plim_cost *out)
{
    out->flops = c->out_numel;
}

void plim_cost_reduce(const plim_cost_call *c, plim_cost *out)
{
    out->flops = cost_numel(cost_input(c, 0));
}

/* mean, variance, scale and shift: about five operations per element */
void plim_cost_norm(const plim_cost_call *c, plim_cost *out)
{
    out->flops = plim_sat_mul(cost_numel(cost_input(c, 0)), 5);
}

/* Each output uses Cin/groups * k inputs: the weight's numel over Cout. */
void plim_cost_conv(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *w = cost_input(c, 1);
    if (w && w->rank > 2 && w->dim[0] > 0)
        set_macs(out, plim_sat_mul(c->out_numel, cost_numel(w) / (uint64_t)w->dim[0]));
}

/* Transposed: each input contributes to Cout/groups * k outputs. */
void plim_cost_conv_transpose(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *x = cost_input(c, 0), *w = cost_input(c, 1);
    if (x && w && w->rank > 2 && w->dim[0] > 0)
        set_macs(out, plim_sat_mul(cost_numel(x), cost_numel(w) / (uint64_t)w->dim[0]));
}

static void cost_inner(const plim_cost_call *c, const plim_meta *a, plim_cost *out)
{
    if (a && a->rank > 0)
        set_macs(out, plim_sat_mul(c->out_numel, (uint64_t)PLIM_MAX(plim_dim_at(a, -1), 0)));
}
void plim_cost_linear(const plim_cost_call *c, plim_cost *out)
{
    cost_inner(c, cost_input(c, 0), out);
}
/* A product with all rows of the weight that leaves a scalar. */
void plim_cost_linear_loss(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *w = cost_input(c, 1);
    if (w && w->rank == 2)
        set_macs(out,
                 plim_sat_mul(cost_numel(cost_input(c, 0)), (uint64_t)PLIM_MAX(w->dim[0], 0)));
}
void plim_cost_matmul(const plim_cost_call *c, plim_cost *out)
{
    cost_inner(c, cost_input(c, 0), out);
}
/* Two products of the size of the result. */
void plim_cost_hada_weight(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *a = cost_input(c, 0);
    if (a && a->rank == 2)
        set_macs(out, plim_sat_mul(2 * (uint64_t)PLIM_MAX(a->dim[1], 0), c->out_numel));
}
void plim_cost_addmm(const plim_cost_call *c, plim_cost *out)
{
    cost_inner(c, cost_input(c, 1), out);
}

/* The product of the sizes of all letters, as if contracted in one step. */
void plim_cost_einsum(const plim_cost_call *c, plim_cost *out)
{
    const plim_arg *text = &c->node->args[0], *in = &c->node->args[1];
    uint64_t macs = 1, seen = 0;
    if (c->node->n_args < 2 || text->kind != PLIM_ARG_STR || in->kind != PLIM_ARG_VALUES)
        return;
    uint32_t k = 0;
    int32_t d = 0;
    for (size_t i = 0; i < text->str.n && text->str.p[i] != '-' && k < in->n; i++) {
        char ch = text->str.p[i];
        bool letter = (ch | 32) >= 'a' && (ch | 32) <= 'z';
        const plim_meta *x = cost_nth(c, in, k);
        uint64_t bit = letter ? 1ull << (ch & 63) : 0;
        if (x && letter && !(seen & bit) && d < x->rank)
            macs = plim_sat_mul(macs, (uint64_t)PLIM_MAX(x->dim[d], 0));
        seen |= bit;
        d += letter;
        if (ch == ',') {
            k++;
            d = 0;
        }
    }
    set_macs(out, macs);
}

/* Each weight matrix is used once per step of each sequence. */
void plim_cost_rnn(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *x = cost_input(c, 0);
    uint64_t weights = 0;
    if (c->node->n_args < 3 || c->node->args[2].kind != PLIM_ARG_VALUES || !x || !x->rank)
        return;
    for (uint32_t i = 0; i < c->node->args[2].n; i++) {
        const plim_meta *w = cost_nth(c, &c->node->args[2], i);
        if (w && w->rank == 2)
            weights = plim_sat_add(weights, cost_numel(w));
    }
    uint64_t steps = cost_numel(x) / (uint64_t)PLIM_MAX(plim_dim_at(x, -1), 1);
    set_macs(out, plim_sat_mul(steps, weights));
}

/* One operation per element of the window. */
void plim_cost_pool(const plim_cost_call *c, plim_cost *out)
{
    const plim_arg *k = c->node->n_args > 1 ? &c->node->args[1] : NULL;
    uint64_t window = 1;
    for (uint32_t i = 0; k && k->kind == PLIM_ARG_INTS && i < k->n; i++)
        window = plim_sat_mul(window, (uint64_t)PLIM_MAX(k->ints[i], 1));
    if (k && k->kind == PLIM_ARG_INT)
        window = plim_sat_mul((uint64_t)PLIM_MAX(k->i, 1), (uint64_t)PLIM_MAX(k->i, 1));
    out->flops = plim_sat_mul(c->out_numel, window);
}

/* q k^T and p v: B H Sq Sk (D + Dv) */
void plim_cost_sdpa(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *q = cost_input(c, 0), *k = cost_input(c, 1), *v = cost_input(c, 2);
    if (!q || !k || !v || q->rank < 3 || k->rank < 3 || v->rank < 3)
        return;
    uint64_t rows = cost_numel(q) / (uint64_t)PLIM_MAX(plim_dim_at(q, -1), 1);
    uint64_t width =
        (uint64_t)PLIM_MAX(plim_dim_at(q, -1), 0) + (uint64_t)PLIM_MAX(plim_dim_at(v, -1), 0);
    set_macs(out, plim_sat_mul(plim_sat_mul(rows, (uint64_t)PLIM_MAX(plim_dim_at(k, -2), 0)),
                               width));
}

/* Of tokens in a row, as if all were one sequence. */
void plim_cost_flash_attention(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *q = cost_input(c, 0), *k = cost_input(c, 1);
    if (!q || !k || k->rank < 3)
        return;
    const int64_t keys = k->dim[k->rank == 3 ? 0 : 2];
    set_macs(out, plim_sat_mul(plim_sat_mul(cost_numel(q), (uint64_t)PLIM_MAX(keys, 0)), 2));
}

/* Of the keys of each other rank, half as many pairs as of the own. */
void plim_cost_cp_attention(const plim_cost_call *c, plim_cost *out)
{
    uint64_t parts = c->node->args[3].kind == PLIM_ARG_INT ? (uint64_t)c->node->args[3].i : 1;
    plim_cost_sdpa(c, out);
    set_macs(out, plim_sat_mul(out->macs, parts + 1) / 2);
}

/* The sequence is the first dimension. */
void plim_cost_megatron_attention(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *q = cost_input(c, 0), *k = cost_input(c, 1);
    if (q && k && k->rank) /* scores, and sums of values */
        set_macs(out, plim_sat_mul(plim_sat_add(cost_numel(q), cost_numel(c->out)),
                                   (uint64_t)k->dim[0]));
}

/* Each row is multiplied with the weight of one of the experts. */
void plim_cost_megatron_grouped(const plim_cost_call *c, plim_cost *out)
{
    const plim_meta *x = cost_input(c, 0);
    if (x && c->out->rank)
        set_macs(out, plim_sat_mul(cost_numel(x), (uint64_t)c->out->dim[c->out->rank - 1]));
}

/* ---- bytes moved ----------------------------------------------------------- */

/* Every operand is touched once. */
static void cost_bytes(const plim_graph *g, const plim_node *n, plim_cost *out)
{
    uint64_t b;
    for (uint32_t i = 0; i < n->n_args; i++) {
        const plim_arg *a = &n->args[i];
        for (uint32_t k = 0; k < plim_arg_values(a); k++) {
            uint32_t id = plim_arg_value(a, k);
            if (id != PLIM_NONE && plim_meta_bytes(&g->values[id].meta, &b))
                out->read = plim_sat_add(out->read, b);
        }
    }
    for (uint32_t i = 0; i < n->n_outs; i++)
        if (plim_meta_bytes(&g->values[n->outs[i]].meta, &b))
            out->written = plim_sat_add(out->written, b);
}

/* Whether the result shares the argument's memory: nothing was converted, and the strides of
 * the result are those that a view would have. */
static bool is_view(const plim_cost_call *c)
{
    const plim_meta *x = cost_input(c, 0), *y = c->out;
    int64_t stride[PLIM_MAX_RANK];
    if (!x || !y || x->dtype != y->dtype || !plim_view_strides(x, y->rank, y->dim, stride))
        return false;
    for (int32_t i = 0; i < y->rank; i++)
        if (y->dim[i] != 1 && y->stride[i] != stride[i])
            return false;
    return true;
}

plim_status plim_op_cost(const plim_graph *g, const plim_node *n, plim_cost *out)
{
    *out = (plim_cost){0};
    plim_cost_call c = {.g = g, .node = n};
    if (n->n_outs) {
        c.out = &g->values[n->outs[0]].meta;
        c.out_numel = cost_numel(c.out);
    }
    plim_assert(!n->op || n->op->cost);
    if (n->op)
        n->op->cost(&c, out);
    bool view = n->op && (n->op->cost == plim_cost_view ||
                          (n->op->cost == plim_cost_maybe_copy && is_view(&c)));
    if (!view)
        cost_bytes(g, n, out);
    return PLIM_OK;
}
