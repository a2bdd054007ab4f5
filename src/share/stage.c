/* stage.c -- a stage of a pipeline: see share.h.
 *
 * The repeated blocks of the model are divided among the stages, as evenly as possible.  The first
 * stage also has what comes before them, the last what comes after.  What every block reads, such as
 * rotary positions, each stage computes for itself.  A stage's input is the tensor that the block
 * before its first one hands on.
 * src: torch 2.13 torch/distributed/pipelining/stage.py */
#include "core/region.h"
#include "share/share.h"

typedef struct cutting {
    plim_graph *g;
    plim_regions blocks;
    uint32_t first, end; /* blocks [first, end) are this stage's */
    uint32_t slot;       /* of a block's inputs: what is handed on */
    bool *dropped;       /* by node */
    uint32_t *uses;      /* by value: of nodes that are not dropped */
    bool *leads;         /* by value: the first block's input is made of it */
    plim_err *err;
} cutting;

static bool is_first(const cutting *c) { return !c->first; }
static bool is_last(const cutting *c) { return c->end == c->blocks.n; }

static uint32_t handed_to(const cutting *c, uint32_t block)
{
    return c->blocks.r[block].input[c->slot];
}

/* A block reads one tensor that the block before it made. */
static plim_status find_slot(cutting *c)
{
    const plim_region *before = &c->blocks.r[0], *r = &c->blocks.r[1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        uint32_t node = c->g->values[r->input[i]].node;
        if (node != PLIM_NONE && node >= before->first && node < before->last) {
            c->slot = i;
            n++;
        }
    }
    bool alike = n == 1;
    for (uint32_t k = 2; alike && k < c->blocks.n; k++)
        alike = c->blocks.r[k].n_inputs == r->n_inputs;
    if (!alike || before->n_inputs != r->n_inputs)
        return plim_fail(c->err, PLIM_EUNSUPPORTED, 0,
                         "pp: blocks of this model do not hand one tensor on to the next");
    return PLIM_OK;
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void count_uses(cutting *c, const plim_node *n, bool more)
{
    for (uint32_t i = 0; i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            uint32_t id = plim_arg_value(&n->args[i], k);
            if (id != PLIM_NONE)
                c->uses[id] += more ? 1 : UINT32_MAX; /* -1 */
        }
}

/* Blocks of other stages, and what comes after the last one. */
static void drop_blocks(cutting *c)
{
    const plim_region *r = c->blocks.r;
    uint32_t from = is_first(c) ? r[0].first : r[c->first].first,
             to = is_last(c) ? c->g->n_nodes : r[c->end].first;
    for (uint32_t i = r[0].first; i < c->g->n_nodes; i++)
        c->dropped[i] = i < from || i >= to;
}

/* What only makes the first block's input, such as an embedding. */
static void drop_entrance(cutting *c, uint32_t entrance)
{
    const plim_graph *g = c->g;
    c->leads[entrance] = true;
    c->uses[entrance] = 0; /* read from the input */
    for (uint32_t i = c->blocks.r[0].first; i-- > 0;) {
        const plim_node *n = &g->nodes[i];
        bool leads = false, used = false;
        for (uint32_t k = 0; k < n->n_outs; k++) {
            leads |= c->leads[n->outs[k]];
            used |= c->uses[n->outs[k]] != 0;
        }
        if (!leads || used)
            continue;
        c->dropped[i] = true;
        count_uses(c, n, false);
        for (uint32_t k = 0; k < n->n_args; k++)
            for (uint32_t j = 0; j < plim_arg_values(&n->args[k]); j++)
                if (plim_arg_value(&n->args[k], j) != PLIM_NONE)
                    c->leads[plim_arg_value(&n->args[k], j)] = true;
    }
}

static plim_status keep_nodes(cutting *c)
{
    plim_graph *g = c->g;
    uint32_t n;
    plim_node *old = plim_graph_take_nodes(g, &n);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; c->dropped[i] && k < old[i].n_outs; k++)
            g->values[old[i].outs[k]].node = PLIM_NONE;
        if (!c->dropped[i] && plim_graph_add_node(g, &old[i]) == PLIM_NONE)
            return plim_oom(c->err);
    }
    return PLIM_OK;
}

/* ---- values --------------------------------------------------------------------------------- */

/* Every reader of `from` reads `to`. */
static plim_status replace_value(cutting *c, uint32_t from, uint32_t to)
{
    plim_graph *g = c->g;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        plim_node *n = &g->nodes[i];
        plim_arg *args = NULL;
        for (uint32_t k = 0; k < n->n_args; k++) {
            if (n->args[k].kind != PLIM_ARG_VALUE || n->args[k].id != from)
                continue;
            if (!args) {
                if (!(args = PLIM_NEW_N(g->arena, plim_arg, n->n_args)))
                    return plim_oom(c->err);
                memcpy(args, n->args, n->n_args * sizeof *args);
                n->args = args;
            }
            args[k].id = to;
        }
    }
    for (uint32_t i = 0; i < g->n_scopes; i++) {
        plim_scope *call = &g->scopes[i];
        uint32_t *args = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)call->n_args + 1);
        if (!args)
            return plim_oom(c->err);
        for (uint32_t k = 0; k < call->n_args; k++)
            args[k] = call->args[k] == from ? to : call->args[k];
        call->args = args;
    }
    return PLIM_OK;
}

static plim_status add_input(cutting *c, uint32_t id)
{
    plim_value *v = &c->g->values[id];
    v->kind = PLIM_VALUE_INPUT;
    v->received = true;
    v->name = PLIM_STR("received");
    v->node = PLIM_NONE;
    return plim_graph_add_input(c->g, id) ? PLIM_OK : plim_oom(c->err);
}

static void drop_parameters(cutting *c)
{
    plim_graph *g = c->g;
    memset(c->uses, 0, g->n_values * sizeof *c->uses);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        count_uses(c, &g->nodes[i], true);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == PLIM_VALUE_PARAMETER && !c->uses[i]) {
            g->values[i].kind = PLIM_VALUE_NODE; /* that no node makes */
            g->values[i].node = PLIM_NONE;
        }
}

static plim_status cut_graph(cutting *c)
{
    plim_graph *g = c->g;
    c->dropped = PLIM_NEW_N(g->arena, bool, (uint64_t)g->n_nodes + 1);
    c->uses = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)g->n_values + 1);
    c->leads = PLIM_NEW_N(g->arena, bool, (uint64_t)g->n_values + 1);
    if (!c->dropped || !c->uses || !c->leads)
        return plim_oom(c->err);
    uint32_t entrance = handed_to(c, 0), in = handed_to(c, c->first);
    uint32_t out = is_last(c) ? PLIM_NONE : handed_to(c, c->end);
    drop_blocks(c);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!c->dropped[i])
            count_uses(c, &g->nodes[i], true);
    if (!is_first(c))
        drop_entrance(c, entrance);
    plim_status st = keep_nodes(c);
    if (!st && !is_first(c))
        st = replace_value(c, entrance, in);
    if (!st && !is_first(c))
        st = add_input(c, in);
    if (st)
        return st;
    if (out != PLIM_NONE) {
        g->outputs[0] = out;
        g->n_outputs = 1;
    }
    drop_parameters(c);
    return PLIM_OK;
}

plim_status plim_share_stage(plim_graph *g, const plim_share *s, plim_err *err)
{
    cutting c = {.g = g, .err = err};
    const plim_meta *loss = g->n_outputs > 1 ? &g->values[g->outputs[0]].meta : NULL;
    if (!loss || loss->rank || !plim_is_float(loss->dtype))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "pp needs a model whose first output is its loss, such as a language "
                         "model that is built from a config.json");
    uint64_t stages = (uint64_t)s->size[PLIM_AXIS_pp], at = (uint64_t)s->at[PLIM_AXIS_pp];
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to != PLIM_NONE)
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "pp: '" PLIM_STR_FMT
                             "' is tied, but the first and the last stage do "
                             "not share parameters",
                             PLIM_STR_CUT(g->values[i].name));
    plim_status st = plim_regions_find(g->arena, g, PLIM_STR("blocks"), &c.blocks, err);
    if (st)
        return st;
    if (stages > c.blocks.n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "pp: %" PRIu64 " stages are more than the blocks of the model, %u",
                         stages, (unsigned)c.blocks.n);
    c.first = (uint32_t)(at * c.blocks.n / stages);
    c.end = (uint32_t)((at + 1) * c.blocks.n / stages);
    if ((st = find_slot(&c)))
        return st;
    return cut_graph(&c);
}
