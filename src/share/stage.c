/* stage.c -- the stages of a pipeline that a rank has: see share.h.
 *
 * The repeated blocks of the model are divided among the stages, as evenly as possible.  The first
 * stage also has what comes before them, the last what comes after.  What every block reads, such as
 * rotary positions, each stage computes for itself.  A stage's input is the tensor that the block
 * before its first one passes on.
 *
 * A rank that has several stages has copies of the values, nodes and calls of each, as each is a
 * module of its own.
 * src: torch 2.13 torch/distributed/pipelining/stage.py */
#include "core/region.h"
#include "share/share.h"

typedef struct cutting {
    plim_graph *g;
    plim_regions blocks;
    uint32_t slot; /* of a block's inputs: what is handed on */
    plim_node *old;
    uint32_t n_old, n_values, n_scopes; /* of the model */
    uint32_t n_outputs;
    const uint32_t *outputs;
    /* the stage that is cut out: */
    uint32_t first, end; /* its blocks, [first, end) */
    bool *dropped;       /* by node */
    uint32_t *uses;      /* by value: of nodes that are not dropped */
    bool *leads;         /* by value: the first block's input is made of it */
    uint32_t *copy;      /* by value; NULL: it has the model's own */
    uint32_t root;       /* its call of the model */
    uint32_t entrance;   /* what its first block reads; PLIM_NONE: the model's inputs */
    plim_err *err;
} cutting;

static bool is_first(const cutting *c) { return !c->first; }
static bool is_last(const cutting *c) { return c->end == c->blocks.n; }

static uint32_t handed_to(const cutting *c, uint32_t block)
{
    plim_assert(block < c->blocks.n && c->slot < c->blocks.r[block].n_inputs);
    return c->blocks.r[block].input[c->slot];
}

static bool is_made_by(const cutting *c, const plim_region *block, uint32_t value)
{
    uint32_t node = c->g->values[value].node;
    return node != PLIM_NONE && node >= block->first && node < block->last;
}

/* Each block reads one tensor that the block before it made: those of two towers do not. */
static plim_status find_slot(cutting *c)
{
    const plim_region *before = &c->blocks.r[0], *r = &c->blocks.r[1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_inputs; i++)
        if (is_made_by(c, before, r->input[i])) {
            c->slot = i;
            n++;
        }
    bool alike = n == 1;
    for (uint32_t k = 2; alike && k < c->blocks.n; k++)
        alike = c->blocks.r[k].n_inputs == r->n_inputs &&
                is_made_by(c, &c->blocks.r[k - 1], handed_to(c, k));
    if (!alike || before->n_inputs != r->n_inputs)
        return plim_fail(c->err, PLIM_EUNSUPPORTED, 0,
                         "pp: blocks of this model do not pass one tensor to the next");
    return PLIM_OK;
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void count_uses(cutting *c, const plim_node *n, bool more)
{
    for (uint32_t i = 0; i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            uint32_t id = plim_arg_value(&n->args[i], k);
            plim_assert(id == PLIM_NONE || more || c->uses[id] > 0);
            if (id != PLIM_NONE)
                c->uses[id] += more ? 1 : UINT32_MAX; /* -1 */
        }
}

/* Blocks of other stages, and what comes after the last one. */
static void drop_blocks(cutting *c)
{
    const plim_region *r = c->blocks.r;
    uint32_t from = is_first(c) ? r[0].first : r[c->first].first,
             to = is_last(c) ? c->n_old : r[c->end].first;
    for (uint32_t i = 0; i < c->n_old; i++)
        c->dropped[i] = i >= r[0].first && (i < from || i >= to);
}

/* What only makes the first block's input, such as an embedding. */
static void drop_entrance(cutting *c, uint32_t entrance)
{
    memset(c->leads, 0, c->n_values * sizeof *c->leads);
    c->leads[entrance] = true;
    c->uses[entrance] = 0; /* read from the input */
    for (uint32_t i = c->blocks.r[0].first; i-- > 0;) {
        const plim_node *n = &c->old[i];
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

/* What the stage has of the model: nodes, and how often they read each value. */
static void choose_nodes(cutting *c)
{
    memset(c->uses, 0, c->n_values * sizeof *c->uses);
    drop_blocks(c);
    for (uint32_t i = 0; i < c->n_old; i++)
        if (!c->dropped[i])
            count_uses(c, &c->old[i], true);
    if (!is_first(c))
        drop_entrance(c, handed_to(c, 0));
}

/* ---- values --------------------------------------------------------------------------------- */

/* Of a block of another stage. */
static bool is_elsewhere(const cutting *c, plim_str name)
{
    for (uint32_t i = 0; i < c->blocks.n; i++) {
        plim_str path = c->g->scopes[c->blocks.r[i].scope].path;
        if ((i < c->first || i >= c->end) && plim_name_within(name, path))
            return true;
    }
    return false;
}

/* The model's own inputs are shared by the stages. */
static plim_status copy_values(cutting *c)
{
    plim_graph *g = c->g;
    for (uint32_t i = 0; i < c->n_values; i++) {
        plim_value v = g->values[i];
        bool kept = v.kind == PLIM_VALUE_INPUT || v.kind == PLIM_VALUE_NODE ||
                    c->uses[i] > 0 ||
                    (v.kind != PLIM_VALUE_PARAMETER && !is_elsewhere(c, v.name));
        c->copy[i] = PLIM_NONE;
        if (v.kind == PLIM_VALUE_INPUT)
            c->copy[i] = i;
        else if (kept && (c->copy[i] = plim_graph_add_value(g, &v)) == PLIM_NONE)
            return plim_oom(c->err);
    }
    return PLIM_OK;
}

static uint32_t copy_of(const cutting *c, uint32_t id)
{
    return id == PLIM_NONE || !c->copy ? id : c->copy[id];
}

/* What the stage's nodes read in the place of `id`; of what the model's first block is given, that
 * which the stage receives. */
static uint32_t read_of(const cutting *c, uint32_t id)
{
    bool given = !is_first(c) && id == handed_to(c, 0);
    return copy_of(c, given ? c->entrance : id);
}

static plim_status add_received(cutting *c, uint32_t id)
{
    plim_value *v = &c->g->values[id];
    v->kind = PLIM_VALUE_INPUT;
    v->received = true;
    v->name = PLIM_STR("received");
    v->node = PLIM_NONE;
    return plim_graph_add_input(c->g, id) ? PLIM_OK : plim_oom(c->err);
}

/* Parameters of no stage of this rank, and buffers that it has copies of. */
static plim_status drop_held(cutting *c)
{
    plim_graph *g = c->g;
    bool *used = PLIM_NEW_N(g->arena, bool, (uint64_t)g->n_values + 1);
    if (!used)
        return plim_oom(c->err);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args; k++)
            for (uint32_t j = 0; j < plim_arg_values(&g->nodes[i].args[k]); j++) {
                uint32_t id = plim_arg_value(&g->nodes[i].args[k], j);
                if (id != PLIM_NONE)
                    used[id] = true;
            }
    for (uint32_t i = 0; i < g->n_values; i++) {
        plim_value *v = &g->values[i];
        bool original = c->copy && i < c->n_values && v->kind != PLIM_VALUE_INPUT;
        bool elsewhere =
            !used[i] &&
            (v->kind == PLIM_VALUE_PARAMETER ||
             (v->kind == PLIM_VALUE_BUFFER && !c->copy && is_elsewhere(c, v->name)));
        if (!original && !elsewhere)
            continue;
        v->kind = PLIM_VALUE_NODE; /* that no node makes */
        v->node = PLIM_NONE;
    }
    return PLIM_OK;
}

/* ---- copies of nodes and calls ------------------------------------------------------------------ */

static plim_status read_args(cutting *c, plim_node *n)
{
    plim_arg *args = PLIM_NEW_N(c->g->arena, plim_arg, (uint64_t)n->n_args + 1);
    if (!args)
        return plim_oom(c->err);
    for (uint32_t k = 0; k < n->n_args; k++) {
        args[k] = n->args[k];
        if (args[k].kind == PLIM_ARG_VALUE)
            args[k].id = read_of(c, args[k].id);
        if (args[k].kind != PLIM_ARG_VALUES)
            continue;
        uint32_t *ids = PLIM_NEW_N(c->g->arena, uint32_t, (uint64_t)args[k].n + 1);
        if (!ids)
            return plim_oom(c->err);
        for (uint32_t j = 0; j < args[k].n; j++)
            ids[j] = read_of(c, args[k].ids[j]);
        args[k].ids = ids;
    }
    n->args = args;
    return PLIM_OK;
}

static plim_status add_node(cutting *c, const plim_node *old)
{
    plim_node n = *old;
    uint32_t *outs = PLIM_NEW_N(c->g->arena, uint32_t, (uint64_t)n.n_outs + 1);
    plim_status st = outs ? read_args(c, &n) : plim_oom(c->err);
    for (uint32_t k = 0; k < n.n_outs && !st; k++)
        outs[k] = copy_of(c, old->outs[k]);
    n.outs = outs;
    n.scope += c->root;
    if (!st && plim_graph_add_node(c->g, &n) == PLIM_NONE)
        st = plim_oom(c->err);
    return st;
}

static plim_status add_nodes(cutting *c)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < c->n_old && !st; i++) {
        for (uint32_t k = 0; c->dropped[i] && k < c->old[i].n_outs; k++)
            c->g->values[copy_of(c, c->old[i].outs[k])].node = PLIM_NONE;
        if (!c->dropped[i])
            st = add_node(c, &c->old[i]);
    }
    return st;
}

/* The tensors that a call was given; those that the stage lacks are left out. */
static plim_status read_call(cutting *c, uint32_t scope, uint32_t n)
{
    plim_scope *call = &c->g->scopes[scope];
    uint32_t *args = PLIM_NEW_N(c->g->arena, uint32_t, (uint64_t)n + 1), kept = 0;
    if (!args)
        return plim_oom(c->err);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t id = read_of(c, call->args[k]);
        if (id != PLIM_NONE)
            args[kept++] = id;
    }
    call->args = args;
    call->n_args = kept;
    return PLIM_OK;
}

static plim_status add_calls(cutting *c)
{
    plim_graph *g = c->g;
    plim_status st = PLIM_OK;
    c->root = c->copy ? g->n_scopes : 0;
    for (uint32_t i = 0; i < c->n_scopes && !st; i++) {
        uint32_t to = i;
        if (c->copy) {
            const plim_scope call = g->scopes[i];
            to = plim_graph_add_scope(g, i ? call.parent + c->root : 0, call.path, call.type);
            if (to == PLIM_NONE)
                return plim_oom(c->err);
            g->scopes[to].args = call.args;
            g->scopes[to].n_args = call.n_args;
        }
        st = read_call(c, to, g->scopes[to].n_args);
    }
    return st;
}

/* ---- stages ------------------------------------------------------------------------------------ */

/* What the stage passes on, or the model's outputs, which come first. */
static plim_status add_outputs(cutting *c, plim_chunk *chunk)
{
    plim_graph *g = c->g;
    uint32_t n = is_last(c) ? c->n_outputs : 1;
    chunk->sends = !is_last(c);
    chunk->n_outputs = n;
    chunk->output = g->n_outputs;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = chunk->sends ? handed_to(c, c->end) : c->outputs[i];
        if (!plim_graph_add_output(g, copy_of(c, id)))
            return plim_oom(c->err);
    }
    return PLIM_OK;
}

static plim_status cut_stage(cutting *c, plim_chunk *chunk)
{
    c->entrance = is_first(c) ? PLIM_NONE : handed_to(c, c->first);
    choose_nodes(c);
    plim_status st = c->copy ? copy_values(c) : PLIM_OK;
    if (!st)
        st = add_calls(c);
    if (!st)
        st = add_nodes(c);
    *chunk = (plim_chunk){.scope = c->root, .received = PLIM_NONE};
    if (is_first(c) || is_last(c)) /* tokens, or labels */
        chunk->n_loads = c->g->n_inputs;
    if (!st && !is_first(c)) {
        chunk->received = copy_of(c, c->entrance);
        st = add_received(c, chunk->received);
    }
    return st ? st : add_outputs(c, chunk);
}

/* The rank's stages; the last comes first among the outputs. */
static plim_status cut_stages(cutting *c, const plim_share *s)
{
    plim_graph *g = c->g;
    uint64_t ranks = (uint64_t)s->size[PLIM_AXIS_pp], n = (uint64_t)s->chunks,
             stages = ranks * n;
    plim_status st = PLIM_OK;
    g->part.n_chunks = (uint32_t)n;
    g->part.chunks = PLIM_NEW_N(g->arena, plim_chunk, n);
    if (!g->part.chunks)
        return plim_oom(c->err);
    for (uint64_t k = 0; k < n && !st; k++) {
        uint64_t at = k * ranks + (uint64_t)s->at[PLIM_AXIS_pp];
        c->first = (uint32_t)(at * c->blocks.n / stages);
        c->end = (uint32_t)((at + 1) * c->blocks.n / stages);
        plim_assert(c->first < c->end && c->end <= c->blocks.n);
        st = cut_stage(c, &g->part.chunks[k]);
    }
    return st ? st : drop_held(c);
}

static plim_status cut_graph(cutting *c, const plim_share *s)
{
    plim_graph *g = c->g;
    c->n_values = g->n_values;
    c->n_scopes = g->n_scopes;
    c->outputs = g->outputs;
    c->n_outputs = g->n_outputs;
    g->outputs = NULL;
    g->n_outputs = g->cap.outputs = 0;
    c->old = plim_graph_take_nodes(g, &c->n_old);
    c->dropped = PLIM_NEW_N(g->arena, bool, (uint64_t)c->n_old + 1);
    c->uses = PLIM_NEW_N(g->arena, uint32_t, (uint64_t)c->n_values + 1);
    c->leads = PLIM_NEW_N(g->arena, bool, (uint64_t)c->n_values + 1);
    c->copy = s->chunks > 1 ? PLIM_NEW_N(g->arena, uint32_t, (uint64_t)c->n_values + 1) : NULL;
    if (!c->dropped || !c->uses || !c->leads || (s->chunks > 1 && !c->copy))
        return plim_oom(c->err);
    return cut_stages(c, s);
}

plim_status plim_share_stage(plim_graph *g, const plim_share *s, plim_err *err)
{
    cutting c = {.g = g, .err = err};
    const plim_meta *loss = g->n_outputs > 1 ? &g->values[g->outputs[0]].meta : NULL;
    if (!loss || loss->rank || !plim_is_float(loss->dtype))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "pp needs a model whose first output is its loss, such as a language "
                         "model that is built from a config.json");
    uint64_t stages = (uint64_t)s->size[PLIM_AXIS_pp] * (uint64_t)s->chunks;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to != PLIM_NONE)
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "pp: '" PLIM_STR_FMT
                             "' is tied, but the first and the last stage do "
                             "not share parameters",
                             PLIM_STR_CUT(g->values[i].name));
    PLIM_TRY(plim_regions_find(g->arena, g, PLIM_STR("blocks"), &c.blocks, err));
    if (stages > c.blocks.n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "pp: %" PRIu64 " stages are more than the %u blocks of the model",
                         stages, (unsigned)c.blocks.n);
    PLIM_TRY(find_slot(&c));
    return cut_graph(&c, s);
}
