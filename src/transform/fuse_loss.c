/* fuse_loss.c -- the model's head and its loss in one op: see transform.h.
 *
 * src: torch 2.13 nn/functional.py linear_cross_entropy; liger-kernel 0.8.5 transformers/model/loss_utils.py
 * LigerForCausalLMLoss */
#include "nn/nn.h"
#include "op/op.h"
#include "transform/transform.h"

typedef struct fusing {
    plim_nn n;
    plim_fused_loss how;
    bool *gone;          /* by node */
    uint32_t loss, head; /* nodes: the cross entropy and the linear layer */
} fusing;

static plim_status find_head(fusing *f)
{
    plim_graph *g = f->n.g;
    uint32_t at = g->n_outputs ? g->values[g->outputs[0]].node : PLIM_NONE;
    if (at == PLIM_NONE || !plim_node_calls(&g->nodes[at], "cross_entropy_loss"))
        return plim_fail(
            f->n.err, PLIM_EUSAGE, 0,
            "a fused loss needs a model whose first output is the cross entropy of "
            "its logits, such as a language model that is built from a config.json");
    f->loss = at;
    do {
        f->gone[at] = true;
        uint32_t from = plim_node_value(&g->nodes[at], 0);
        at = from == PLIM_NONE ? PLIM_NONE : g->values[from].node;
    } while (at != PLIM_NONE && plim_leads_to_loss(&g->nodes[at], f->how == PLIM_FUSED_LIGER));
    if (at == PLIM_NONE || !plim_node_calls(&g->nodes[at], "linear"))
        return plim_fail(
            f->n.err, PLIM_EUSAGE, 0,
            "a fused loss needs logits of a linear layer, not of '" PLIM_STR_FMT "'",
            PLIM_STR_ARG(at == PLIM_NONE ? PLIM_STR("an input") : g->nodes[at].target));
    f->head = at;
    f->gone[at] = true;
    return PLIM_OK;
}

/* Nothing else may read what is not made any more. */
static plim_status check_readers(const fusing *f)
{
    const plim_graph *g = f->n.g;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args && !f->gone[i]; k++)
            for (uint32_t j = 0; j < plim_arg_values(&g->nodes[i].args[k]); j++) {
                uint32_t id = plim_arg_value(&g->nodes[i].args[k], j);
                uint32_t by = id == PLIM_NONE ? PLIM_NONE : g->values[id].node;
                if (by != PLIM_NONE && f->gone[by])
                    return plim_fail(f->n.err, PLIM_EUSAGE, 0,
                                     "a fused loss makes no logits, but '" PLIM_STR_FMT
                                     "' reads them",
                                     PLIM_STR_CUT(g->nodes[i].target));
            }
    return PLIM_OK;
}

static void drop_outputs(fusing *f)
{
    plim_graph *g = f->n.g;
    uint32_t n = 1;
    for (uint32_t i = 1; i < g->n_outputs; i++) {
        uint32_t by = g->values[g->outputs[i]].node;
        if (by == PLIM_NONE || !f->gone[by])
            g->outputs[n++] = g->outputs[i];
    }
    g->n_outputs = n;
}

static void add_loss(fusing *f, const plim_node *head, const plim_node *loss)
{
    plim_nn *n = &f->n;
    uint32_t x = plim_node_value(head, 0), bias = plim_node_value(head, 2);
    n->scope = loss->scope;
    x = plim_nn_view(n, x, INTS(-1, plim_nn_dim(n, x, -1)));
    const plim_named_arg in[] = {ARG_T("input", x), ARG_T("weight", plim_node_value(head, 1)),
                                 ARG_T("target", plim_node_value(loss, 1)),
                                 ARG_T("bias", bias)};
    n->g->outputs[0] =
        plim_nn_op(n,
                   f->how == PLIM_FUSED_LIGER ? "plimsoll.liger_cross_entropy.default"
                                              : "plimsoll.linear_cross_entropy.default",
                   in, PLIM_COUNT(in) - (bias == PLIM_NONE));
}

static void replace_nodes(fusing *f)
{
    plim_graph *g = f->n.g;
    uint32_t n;
    plim_node *old = plim_graph_take_nodes(g, &n);
    for (uint32_t i = 0; i < n && !f->n.st; i++) {
        for (uint32_t k = 0; f->gone[i] && k < old[i].n_outs; k++)
            g->values[old[i].outs[k]].node = PLIM_NONE;
        if (i == f->loss)
            add_loss(f, &old[f->head], &old[i]);
        else if (!f->gone[i] && plim_graph_add_node(g, &old[i]) == PLIM_NONE)
            f->n.st = plim_oom(f->n.err);
    }
}

plim_status plim_fuse_loss(plim_graph *g, plim_fused_loss how, plim_err *err)
{
    fusing f = {.how = how};
    plim_nn_init(&f.n, g, err);
    if (!(f.gone = PLIM_NEW_N(g->arena, bool, (uint64_t)g->n_nodes + 1)))
        return plim_oom(err);
    plim_status st = find_head(&f);
    if (!st)
        st = check_readers(&f);
    if (st)
        return st;
    drop_outputs(&f);
    replace_nodes(&f);
    return f.n.st;
}
