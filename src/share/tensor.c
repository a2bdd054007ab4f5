/* tensor.c -- tensor parallelism as torch's parallelize_module makes it: see share.h.
 *
 * The weight of a module of the plan is a DTensor, of which this rank has a part: of the rows of a
 * colwise module, whose result is then a part of the features, or of the columns of a rowwise
 * one, whose results all ranks add up.  What lies between them divides by itself, as its sizes
 * follow from what it reads.
 * src: torch 2.13 torch/distributed/tensor/parallel/style.py, _api.py, _redistribute.py;
 * transformers 5.23 base_model_tp_plan */
#include <stdio.h>

#include "base/items.h"
#include "op/op.h"
#include "share/share.h"

typedef enum style { WHOLE, COLWISE, ROWWISE } style;

static const struct plan {
    const char *model_type, *colwise, *rowwise;
} plans[] = {
#define PLIM_PLAN(model_type, colwise, rowwise) {model_type, colwise, rowwise},
#include "share/plans.def"
#undef PLIM_PLAN
};

typedef struct dividing {
    plim_graph *g;
    const plim_share *share;
    const struct plan *plan;
    const plim_op *enter, *reduce;
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
                     PLIM_STR_CUT(g->model_type.n ? g->model_type : g->name), known);
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
    if (!node->op || strcmp(node->op->name, "linear") != 0)
        return WHOLE;
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
    if (!size || !view->op || strcmp(view->op->name, "view") != 0 ||
        view->args[0].id != linear->outs[0] || size->kind != PLIM_ARG_INTS || size->n != 4 ||
        size->ints[3] < 1)
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
    if (!d->st && how == COLWISE && node->args[2].kind == PLIM_ARG_VALUE)
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

/* out = op(in), as a part of the module that `like` runs in */
static void add_collective(dividing *d, const plim_node *like, const plim_op *op, uint32_t in,
                           uint32_t out)
{
    plim_arg *arg = PLIM_NEW_N(d->g->arena, plim_arg, 1);
    uint32_t *outs = PLIM_NEW_N(d->g->arena, uint32_t, 1);
    if (!arg || !outs) {
        d->st = d->st ? d->st : plim_oom(d->err);
        return;
    }
    *arg = (plim_arg){.kind = PLIM_ARG_VALUE, .id = in};
    *outs = out;
    keep_node(d, &(plim_node){.op = op,
                              .target = plim_str_of(op->name),
                              .scope = like->scope,
                              .n_args = 1,
                              .n_outs = 1,
                              .args = arg,
                              .outs = outs});
}

static void rewrite_linear(dividing *d, const plim_node *node, style how)
{
    plim_node moved = *node;
    plim_arg *args = PLIM_NEW_N(d->g->arena, plim_arg, node->n_args);
    uint32_t *outs = PLIM_NEW_N(d->g->arena, uint32_t, 1);
    uint32_t made = new_value(d, how == COLWISE ? node->args[0].id : node->outs[0]);
    if (!args || !outs)
        d->st = d->st ? d->st : plim_oom(d->err);
    if (d->st)
        return;
    memcpy(args, node->args, node->n_args * sizeof *args);
    *outs = node->outs[0];
    moved.args = args;
    moved.outs = outs;
    if (how == COLWISE) {
        add_collective(d, node, d->enter, node->args[0].id, made);
        args[0].id = made;
        keep_node(d, &moved);
    } else {
        *outs = made;
        keep_node(d, &moved);
        add_collective(d, node, d->reduce, made, node->outs[0]);
    }
}

static void divide_nodes(dividing *d)
{
    plim_graph *g = d->g;
    plim_node *old = g->nodes;
    uint32_t n = g->n_nodes;
    g->nodes = NULL;
    g->n_nodes = g->cap_nodes = 0;
    plim_graph_expect(g, n);
    for (uint32_t i = 0; i < n && !d->st; i++) {
        style how = style_of(d, &old[i]);
        if (how == WHOLE) {
            keep_node(d, &old[i]);
            continue;
        }
        if (how == COLWISE && i + 1 < n)
            check_heads(d, &old[i], &old[i + 1]);
        if (!d->st)
            divide_linear(d, &old[i], how);
        if (!d->st)
            rewrite_linear(d, &old[i], how);
    }
}

plim_status plim_share_tensor(plim_graph *g, const plim_share *s, plim_err *err)
{
    bool inplace;
    dividing d = {.g = g,
                  .share = s,
                  .plan = find_plan(g->model_type),
                  .enter = plim_op_find(PLIM_STR("tp_enter"), PLIM_STR("default"), &inplace),
                  .reduce = plim_op_find(PLIM_STR("tp_reduce"), PLIM_STR("default"), &inplace),
                  .err = err};
    plim_assert(d.enter && d.reduce);
    if (!d.plan)
        return refuse_model(g, err);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].adapter || g->values[i].packed)
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "tp divides plain weights: it does not go with adapters or "
                             "quantized weights");
    divide_nodes(&d);
    return d.st;
}
