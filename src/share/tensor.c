/* tensor.c -- tensor parallelism as torch's parallelize_module makes it: see share.h.
 *
 * The weight of a module of the plan is a DTensor; this rank has a part of it: of the rows of
 * a colwise module, whose result is then a part of the features, or of the columns of a
 * rowwise one, whose results all ranks add up.  What lies between them divides by itself, as
 * its sizes follow from what it reads.
 *
 * With sequence parallelism, what lies between rowwise and colwise modules is divided, too: each
 * rank has a part of the tokens (dimension 1).  The parts are gathered before the first colwise
 * module that reads them and scattered after a rowwise one.  The table of the embedding is divided by
 * rows, and the head is colwise.
 * src: torch 2.13 torch/distributed/tensor/parallel/style.py, _api.py, _redistribute.py;
 * transformers 5.23 base_model_tp_plan */
#include <stdio.h>

#include "base/items.h"
#include "machine/machine_run.h"
#include "op/op.h"
#include "share/share.h"

typedef enum style { WHOLE, COLWISE, ROWWISE, TABLE, HEAD } style;

static const struct plan {
    const char *model_type, *colwise, *rowwise, *table, *head;
} plans[] = {
#define PLIM_PLAN(model_type, colwise, rowwise, table, head)                                  \
    {model_type, colwise, rowwise, table, head},
#include "share/plans.def"
#undef PLIM_PLAN
};

typedef struct dividing {
    plim_graph *g;
    const plim_share *share;
    const struct plan *plan;
    uint32_t read, gathered; /* sequence: what was gathered last, and the result */
    uint32_t scattered,
        sent; /* what was scattered last, and the copy that is sent until it is read */
    plim_err *err;
    plim_status st;
} dividing;

static int64_t parts_of(const dividing *d) { return d->share->size[PLIM_AXIS_tp]; }

static const struct plan *find_plan(plim_str model_type)
{
    for (size_t i = 0; i < PLIM_COUNT(plans); i++)
        if (plim_str_is(model_type, plans[i].model_type))
            return &plans[i];
    return NULL;
}

static plim_status refuse_model(const plim_graph *g, plim_err *err)
{
    char known[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < PLIM_COUNT(plans) && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                              plans[i].model_type);
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "tp: no plan is known for this model: '" PLIM_STR_FMT
                     "' is not one of %s, built from a config.json",
                     PLIM_STR_CUT(g->about.model_type.n ? g->about.model_type : g->about.name),
                     known);
}

/* Whether the path ends with one of the names "self_attn.q_proj mlp.up_proj". */
static bool is_named(plim_str path, const char *names)
{
    plim_str rest = plim_str_of(names), name;
    while (plim_item_word(&rest, ' ', &name))
        if (path.n > name.n && path.p[path.n - name.n - 1] == '.' && plim_str_ends(path, name))
            return true;
    return false;
}

static style style_of(const dividing *d, const plim_node *node)
{
    plim_str path = d->g->scopes[node->scope].path;
    if (d->share->sequence && plim_node_calls(node, "embedding") &&
        plim_str_is(path, d->plan->table))
        return TABLE;
    if (!plim_node_calls(node, "linear"))
        return WHOLE;
    if (d->share->sequence && plim_str_is(path, d->plan->head))
        return HEAD;
    return is_named(path, d->plan->colwise)   ? COLWISE
           : is_named(path, d->plan->rowwise) ? ROWWISE
                                              : WHOLE;
}

/* ---- parameters -------------------------------------------------------------------------- */

/* Heads stay whole: where `view` makes [batch, tokens, -1, size of a head] of the linear's result,
 * the ranks divide their number. */
static void check_heads(dividing *d, const plim_node *linear, const plim_node *view)
{
    const plim_arg *size = view->n_args > 1 ? &view->args[1] : NULL;
    int64_t features = d->g->values[linear->args[1].id].meta.dim[0];
    if (!size || !plim_node_calls(view, "view") || view->args[0].id != linear->outs[0] ||
        size->kind != PLIM_ARG_INTS || size->n != 4 || size->ints[3] < 1)
        return;
    int64_t heads = features / size->ints[3];
    if (heads % parts_of(d))
        d->st = plim_fail(d->err, PLIM_EUSAGE, 0,
                          "tp: %" PRId64 " cards do not divide the %" PRId64
                          " heads of '" PLIM_STR_FMT "'",
                          parts_of(d), heads, PLIM_STR_CUT(d->g->scopes[linear->scope].path));
}

static void divide_parameter(dividing *d, uint32_t id, int32_t dim)
{
    plim_value *v = &d->g->values[id];
    int64_t *size = &v->meta.dim[dim];
    if (*size % parts_of(d)) {
        d->st = plim_fail(d->err, PLIM_EUSAGE, 0,
                          "tp: %" PRId64 " cards do not divide the %" PRId64
                          " %s of '" PLIM_STR_FMT "'",
                          parts_of(d), *size, dim ? "columns" : "rows", PLIM_STR_CUT(v->name));
        return;
    }
    *size /= parts_of(d);
    plim_meta_contiguous(&v->meta);
}

static void divide_linear(dividing *d, const plim_node *node, style how)
{
    divide_parameter(d, node->args[1].id, how == ROWWISE);
    if (!d->st && how != ROWWISE && node->args[2].kind == PLIM_ARG_VALUE)
        divide_parameter(d, node->args[2].id, 0);
}

/* ---- nodes ------------------------------------------------------------------------------- */

static void keep_node(dividing *d, const plim_node *node)
{
    if (!d->st)
        d->st = plim_op_infer(d->g, node, d->err);
    if (!d->st && plim_graph_add_node(d->g, node) == PLIM_NONE)
        d->st = plim_oom(d->err);
}

/* A value like `id`, of a node that is not there yet. */
static uint32_t new_value(dividing *d, uint32_t id)
{
    plim_value v = d->g->values[id];
    v.kind = PLIM_VALUE_NODE;
    v.tied_to = v.node = PLIM_NONE;
    uint32_t made = plim_graph_add_value(d->g, &v);
    if (made == PLIM_NONE && !d->st)
        d->st = plim_oom(d->err);
    return made;
}

static plim_arg *new_args(dividing *d, const plim_arg *like, uint32_t n)
{
    plim_arg *args = PLIM_NEW_N(d->g->arena, plim_arg, n);
    if (args)
        memcpy(args, like, n * sizeof *args);
    else if (!d->st)
        d->st = plim_oom(d->err);
    return args;
}

/* outs = op(args) in this call */
static void add_op(dividing *d, uint32_t scope, const char *name, const plim_arg *like,
                   uint32_t n_args, const uint32_t *result, uint32_t n_outs)
{
    bool inplace;
    const plim_op *op = plim_op_find(plim_str_of(name), PLIM_STR("default"), &inplace);
    plim_arg *args = new_args(d, like, n_args);
    uint32_t *outs = PLIM_NEW_N(d->g->arena, uint32_t, n_outs + 1);
    plim_assert(op);
    if (!args || !outs) {
        d->st = d->st ? d->st : plim_oom(d->err);
        return;
    }
    if (n_outs)
        memcpy(outs, result, n_outs * sizeof *outs);
    keep_node(d, &(plim_node){.op = op,
                              .target = plim_str_of(op->name),
                              .scope = scope,
                              .n_args = n_args,
                              .n_outs = n_outs,
                              .args = args,
                              .outs = outs});
}

static plim_arg value_arg(uint32_t id) { return (plim_arg){.kind = PLIM_ARG_VALUE, .id = id}; }

static uint32_t caller_of(const dividing *d, uint32_t scope)
{
    uint32_t parent = d->g->scopes[scope].parent;
    return parent == PLIM_NONE ? scope : parent;
}

/* ---- parts of the sequence ------------------------------------------------------------------ */

/* The innermost call in which both are. */
static uint32_t common_scope(const plim_graph *g, uint32_t a, uint32_t b)
{
    for (uint32_t i = a; i != PLIM_NONE; i = g->scopes[i].parent)
        for (uint32_t k = b; k != PLIM_NONE; k = g->scopes[k].parent)
            if (i == k)
                return i;
    return 0;
}

/* A collective runs until its result is read. */
static void wait_before(dividing *d, const plim_node *node)
{
    bool reads = false;
    for (uint32_t i = 0; i < node->n_args && d->scattered != PLIM_NONE; i++)
        for (uint32_t k = 0; k < plim_arg_values(&node->args[i]); k++)
            reads |= plim_arg_value(&node->args[i], k) == d->scattered;
    if (!reads)
        return;
    uint32_t made_in = d->g->nodes[d->g->values[d->sent].node].scope;
    plim_arg sent = value_arg(d->sent);
    add_op(d, common_scope(d->g, made_in, node->scope), "held", &sent, 1, NULL, 0);
    d->scattered = PLIM_NONE;
}

static void scatter_tokens(dividing *d, uint32_t scope, const char *op, const plim_arg *args,
                           uint32_t n_args, uint32_t out)
{
    uint32_t outs[] = {out, new_value(d, out)};
    if (!d->st)
        add_op(d, scope, op, args, n_args, outs, 2);
    d->scattered = outs[0];
    d->sent = outs[1];
}

static plim_arg parts_arg(const dividing *d)
{
    return (plim_arg){.kind = PLIM_ARG_INT, .i = parts_of(d)};
}

static uint32_t gather_tokens(dividing *d, uint32_t scope, uint32_t id)
{
    if (d->read == id)
        return d->gathered;
    d->read = id;
    d->gathered = new_value(d, id);
    if (!d->st)
        add_op(d, scope, "tp_gather", (plim_arg[]){value_arg(id), parts_arg(d)}, 2,
               &d->gathered, 1);
    if (!d->st && !plim_graph_hold(d->g, scope, d->gathered))
        d->st = plim_oom(d->err);
    return d->gathered;
}

/* What ranks compute of their tokens with a whole parameter. */
static void mark_partial(dividing *d, const plim_node *node)
{
    for (uint32_t i = 0; i < node->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&node->args[i]); k++) {
            uint32_t id = plim_arg_value(&node->args[i], k);
            if (id != PLIM_NONE && d->g->values[id].kind == PLIM_VALUE_PARAMETER)
                d->g->values[id].partial = true;
        }
}

static void divide_table(dividing *d, const plim_node *node)
{
    const plim_arg args[] = {node->args[0], node->args[1], parts_arg(d)};
    divide_parameter(d, node->args[0].id, 0);
    if (!d->st)
        scatter_tokens(d, node->scope, "tp_embedding", args, PLIM_COUNT(args), node->outs[0]);
}

/* ---- modules of the plan ------------------------------------------------------------------ */

/* What a colwise module reads: all ranks have it, and each adds to its gradient. */
static uint32_t enter_module(dividing *d, const plim_node *node, style how)
{
    uint32_t in = node->args[0].id;
    if (d->share->sequence)
        return gather_tokens(d, how == HEAD ? node->scope : caller_of(d, node->scope), in);
    uint32_t entered = new_value(d, in);
    if (!d->st)
        add_op(d, node->scope, "tp_enter", &node->args[0], 1, &entered, 1);
    return entered;
}

/* What the module makes of a result that each rank has a part of. */
static void leave_module(dividing *d, const plim_node *node, style how, uint32_t made)
{
    const plim_arg args[] = {value_arg(made), parts_arg(d)};
    if (!d->share->sequence)
        add_op(d, node->scope, "tp_reduce", args, 1, node->outs, 1);
    else if (how == HEAD)
        add_op(d, caller_of(d, node->scope), "tp_unite", args, 2, node->outs, 1);
    else
        scatter_tokens(d, caller_of(d, node->scope), "tp_scatter", args, 2, node->outs[0]);
}

static void divide_linear_node(dividing *d, const plim_node *node, style how)
{
    plim_node moved = *node;
    plim_arg *args = new_args(d, node->args, node->n_args);
    uint32_t *outs = PLIM_NEW_N(d->g->arena, uint32_t, 1);
    divide_linear(d, node, how);
    if (!outs && !d->st)
        d->st = plim_oom(d->err);
    if (d->st)
        return;
    if (how != ROWWISE)
        args[0].id = enter_module(d, node, how);
    *outs = how == COLWISE ? node->outs[0] : new_value(d, node->outs[0]);
    moved.args = args;
    moved.outs = outs;
    if (!d->st)
        keep_node(d, &moved);
    if (!d->st && how != COLWISE)
        leave_module(d, node, how, *outs);
}

static void divide_nodes(dividing *d)
{
    uint32_t n;
    plim_node *old = plim_graph_take_nodes(d->g, &n);
    for (uint32_t i = 0; i < n && !d->st; i++) {
        style how = style_of(d, &old[i]);
        wait_before(d, &old[i]);
        if (how == COLWISE && i + 1 < n)
            check_heads(d, &old[i], &old[i + 1]);
        if (d->st)
            return;
        if (d->share->sequence && (how == WHOLE || how == TABLE))
            mark_partial(d, &old[i]);
        if (how == WHOLE)
            keep_node(d, &old[i]);
        else if (how == TABLE)
            divide_table(d, &old[i]);
        else
            divide_linear_node(d, &old[i], how);
    }
}

static plim_status refuse_sequence(const dividing *d)
{
    const plim_graph *g = d->g;
    if (!d->plan->table)
        return plim_fail(d->err, PLIM_EUSAGE, 0,
                         "sequence_parallel: no plan is known for '" PLIM_STR_FMT "'",
                         PLIM_STR_CUT(g->about.model_type));
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to != PLIM_NONE)
            return plim_fail(
                d->err, PLIM_EUSAGE, 0,
                "sequence_parallel divides the head and the embedding each by itself, but "
                "'" PLIM_STR_FMT "' is tied",
                PLIM_STR_CUT(g->values[i].name));
    if (g->sizes.seq % parts_of(d))
        return plim_fail(d->err, PLIM_EUSAGE, 0,
                         "sequence_parallel: %" PRId64 " cards do not divide %" PRId64
                         " tokens",
                         parts_of(d), g->sizes.seq);
    return PLIM_OK;
}

plim_status plim_share_tensor(plim_graph *g, const plim_share *s, plim_err *err)
{
    dividing d = {.g = g,
                  .share = s,
                  .plan = find_plan(g->about.model_type),
                  .read = PLIM_NONE,
                  .scattered = PLIM_NONE,
                  .err = err};
    if (!d.plan)
        return refuse_model(g, err);
    if (s->sequence)
        d.st = refuse_sequence(&d);
    for (uint32_t i = 0; i < g->n_values && !d.st; i++)
        if (g->values[i].adapter || g->values[i].packed)
            return plim_fail(
                err, PLIM_EUSAGE, 0,
                "tp divides plain weights: it cannot be combined with adapters or "
                "quantized weights");
    if (!d.st)
        divide_nodes(&d);
    return d.st;
}
