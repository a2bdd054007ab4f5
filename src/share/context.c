/* context.c -- context parallelism as torch's context_parallel() makes it: see share.h.
 *
 * The model was built for a part of the tokens (plim_rank_part).  Its causal attention becomes ring
 * attention; all else is done token by token.  The hooks that make transformers' models call it without
 * a mask are on modules that are called self_attn.
 * src: torch 2.13 torch/distributed/tensor/experimental/_context_parallel; accelerate 1.11
 * big_modeling.py _attach_context_parallel_hooks */
#include "machine/machine_run.h"
#include "op/op.h"
#include "share/share.h"

enum { QUERY, KEY, VALUE, MASK, DROPOUT, CAUSAL, SCALE, GQA }; /* of the op */

static bool is_on(const plim_node *n, uint32_t slot)
{
    return slot < n->n_args && n->args[slot].kind == PLIM_ARG_INT && n->args[slot].i;
}

static bool drops_out(const plim_node *n)
{
    return n->n_args > DROPOUT && n->args[DROPOUT].kind == PLIM_ARG_FLOAT &&
           n->args[DROPOUT].f > 0;
}

static bool is_hooked(const plim_graph *g, const plim_node *n)
{
    for (uint32_t s = n->scope; s != PLIM_NONE; s = g->scopes[s].parent)
        if (plim_str_ends(g->scopes[s].path, PLIM_STR("self_attn")))
            return true;
    return false;
}

static plim_status check_attention(const plim_graph *g, const plim_node *n, plim_err *err)
{
    plim_str path = g->scopes[n->scope].path;
    if (!is_on(n, CAUSAL) || n->args[MASK].kind == PLIM_ARG_VALUE)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "cp: ring attention is causal attention to all tokens, that of "
                         "'" PLIM_STR_FMT "' is another one",
                         PLIM_STR_CUT(path));
    if (!is_hooked(g, n))
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "cp: accelerate makes modules called self_attn call ring attention, and "
            "'" PLIM_STR_FMT "' is not in one",
            PLIM_STR_CUT(path));
    return drops_out(n) ? plim_fail(err, PLIM_EUSAGE, 0,
                                    "cp: ring attention has no rule for dropout, which "
                                    "'" PLIM_STR_FMT "' has",
                                    PLIM_STR_CUT(path))
                        : PLIM_OK;
}

static plim_status replace_attention(plim_graph *g, const plim_share *s, plim_node *n,
                                     plim_err *err)
{
    bool inplace;
    plim_arg *args = PLIM_NEW_N(g->arena, plim_arg, 6);
    if (!args)
        return plim_oom(err);
    memcpy(args, n->args, 3 * sizeof *args);
    args[3] = (plim_arg){.kind = PLIM_ARG_INT, .i = s->size[PLIM_AXIS_cp]};
    args[4] = (plim_arg){.kind = PLIM_ARG_INT, .i = s->at[PLIM_AXIS_cp]};
    args[5] = (plim_arg){.kind = PLIM_ARG_INT, .i = is_on(n, GQA)};
    n->op = plim_op_find(PLIM_STR("cp_attention"), PLIM_STR("default"), &inplace);
    plim_assert(n->op);
    n->target = plim_str_of(n->op->name);
    n->args = args;
    n->n_args = 6;
    return plim_op_infer(g, n, err);
}

plim_status plim_share_context(plim_graph *g, const plim_share *s, plim_err *err)
{
    plim_status st = PLIM_OK;
    uint32_t found = 0;
    if (g->part.contexts != s->size[PLIM_AXIS_cp])
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "cp divides the tokens of decoders that plimsoll builds from a "
            "config.json: '" PLIM_STR_FMT "' is none",
            PLIM_STR_CUT(g->about.model_type.n ? g->about.model_type : g->about.name));
    for (uint32_t i = 0; i < g->n_nodes && !st; i++) {
        if (!plim_node_calls(&g->nodes[i], "scaled_dot_product_attention"))
            continue;
        st = check_attention(g, &g->nodes[i], err);
        if (!st)
            st = replace_attention(g, s, &g->nodes[i], err);
        found++;
    }
    return st || found ? st
                       : plim_fail(err, PLIM_EUSAGE, 0,
                                   "cp: this model has no scaled_dot_product_attention");
}
