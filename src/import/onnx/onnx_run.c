/* onnx_run.c -- see onnx_priv.h: runs nodes in the order of the file, which ONNX requires to
 * be an execution order.  Each node is computed here (shapes), or written into the graph in
 * terms of ATen, whose rules give the sizes, or left without a rule. */
#include "import/onnx/onnx_priv.h"

/* ---- results that no op gives ------------------------------------------------------- */

static uint32_t no_val(onnx *f, onnx_val_kind kind)
{
    onnx_val v = ONNX_VAL(.kind = kind, .name = PLIM_STR(""));
    return plim_onnx_add_val(f, &v);
}

/* ---- one node --------------------------------------------------------------------------- */

/* "node '/conv1/Conv' (Conv)": prefix of any error in it. */
static plim_status node_failed(onnx *f, const onnx_node *n, plim_status st)
{
    plim_str name = n->name.n ? n->name : n->n_out ? n->out[0] : PLIM_STR("");
    name = plim_onnx_clean(f->a, (plim_str){name.p, PLIM_MIN(name.n, 80)});
    plim_str op = plim_onnx_clean(f->a, (plim_str){n->op.p, PLIM_MIN(n->op.n, 40)});
    if (name.p && op.p && st != PLIM_ENOMEM)
        plim_err_prefix(f->err,
                        "node '" PLIM_STR_FMT "' (" PLIM_STR_FMT "): ", PLIM_STR_ARG(name),
                        PLIM_STR_ARG(op));
    return st;
}

static int64_t opset_of(const onnx_env *env, plim_str domain)
{
    while (env->up)
        env = env->up;
    for (uint32_t i = 0; i < env->n_opsets; i++)
        if (plim_str_eq(env->opsets[i].domain, domain) ||
            (plim_onnx_domain_is(domain, "") &&
             plim_onnx_domain_is(env->opsets[i].domain, "")))
            return env->opsets[i].version;
    return 1;
}

static plim_status find_inputs(onnx_call *c)
{
    const onnx_node *n = c->node;
    for (uint32_t i = 0; i < n->n_in; i++) {
        c->in[i] = PLIM_NONE;
        if (n->in[i].n && !plim_onnx_find(c->env, n->in[i], &c->in[i])) {
            plim_str name =
                plim_onnx_clean(c->f->a, (plim_str){n->in[i].p, PLIM_MIN(n->in[i].n, 80)});
            return plim_fail(c->f->err, PLIM_EFORMAT, n->at,
                             "no node before it produces its input '" PLIM_STR_FMT "'",
                             PLIM_STR_ARG(name));
        }
    }
    return PLIM_OK;
}

/* What the file itself says about a result. */
static bool declared_meta(const onnx_call *c, uint32_t k, plim_meta *out)
{
    const onnx_graph *g = c->env->graph;
    uint32_t at;
    plim_str name = c->n_fused ? g->nodes[c->fused[c->n_fused - 1]].out[0] : c->node->out[k];
    if (!plim_map_get(&g->info_of, name, &at))
        return false;
    const onnx_info *info = at < g->n_infos ? &g->infos[at] : &g->outputs[at - g->n_infos];
    return plim_onnx_shape(c->f, info, out);
}

/* "onnx.NonZero", "com.microsoft.MatMulNBits": the target of an op without a rule */
static plim_str opaque_target(onnx_call *c)
{
    const onnx_node *n = c->node;
    plim_str op = {n->op.p, PLIM_MIN(n->op.n, 80)},
             domain = {n->domain.p, PLIM_MIN(n->domain.n, 80)};
    if (plim_onnx_domain_is(n->domain, ""))
        domain = PLIM_STR("onnx");
    plim_str t = plim_arena_printf(c->f->a, PLIM_STR_FMT "." PLIM_STR_FMT,
                                   PLIM_STR_ARG(domain), PLIM_STR_ARG(op));
    return t.p ? plim_onnx_clean(c->f->a, t) : t;
}

/* Results known only by their size, as one node without a rule; if there are none, a
 * note that the node exists. */
static plim_status add_opaque(onnx_call *c)
{
    onnx *f = c->f;
    uint32_t n_out = 0;
    for (uint32_t k = 0; k < c->node->n_out; k++)
        n_out += c->is_opaque[k];
    plim_arg *args = PLIM_NEW_N(f->a, plim_arg, c->node->n_in + 1);
    uint32_t *outs = PLIM_NEW_N(f->a, uint32_t, n_out + 1);
    plim_node n = {.target = opaque_target(c), .scope = f->nn.scope};
    if (!args || !outs || !n.target.p)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < c->node->n_in; i++) {
        uint32_t id = plim_onnx_in_id(c, i);
        if (id != PLIM_NONE)
            args[n.n_args++] = (plim_arg){.kind = PLIM_ARG_VALUE, .id = id};
    }
    for (uint32_t k = 0; k < c->node->n_out; k++) {
        if (!c->is_opaque[k])
            continue;
        plim_value v = {.name = plim_onnx_clean(f->a, c->node->out[k]),
                        .meta = c->opaque[k],
                        .kind = PLIM_VALUE_NODE,
                        .tied_to = PLIM_NONE,
                        .node = PLIM_NONE};
        uint32_t id = v.name.p ? plim_graph_add_value(f->g, &v) : PLIM_NONE;
        if (id == PLIM_NONE)
            return plim_oom(f->err);
        outs[n.n_outs++] = id;
        c->out[k] = plim_onnx_graph_val(c, id);
    }
    n.args = args;
    n.outs = outs;
    if (f->nn.st || c->st)
        return f->nn.st ? f->nn.st : c->st;
    return plim_graph_add_node(f->g, &n) == PLIM_NONE ? plim_oom(f->err) : PLIM_OK;
}

/* State of the graph before a node. */
typedef struct place {
    uint32_t n_nodes, n_values, n_fresh;
} place;

/* Removes what a rule that failed has written, also in subgraphs. */
static void undo_lowering(onnx *f, place from)
{
    while (f->n_fresh > from.n_fresh) {
        onnx_val *v = &f->vals[f->fresh[--f->n_fresh]];
        v->id = PLIM_NONE;
        v->flipped = false;
    }
    f->g->n_nodes = from.n_nodes;
    f->g->n_values = from.n_values;
    f->nn.st = PLIM_OK;
}

/* Results that the op did not set: as in the file, or not known. */
static plim_status complete_results(onnx_call *c)
{
    onnx *f = c->f;
    bool opaque = false, lost = false, some = false;
    for (uint32_t k = 0; k < c->node->n_out; k++)
        some |= c->out[k] != PLIM_NONE;
    for (uint32_t k = 0; k < c->node->n_out; k++) {
        if (!c->node->out[k].n || c->out[k] != PLIM_NONE)
            continue;
        if (some && !plim_onnx_wanted(c, k)) {
            if ((c->out[k] = no_val(f, ONNX_ABSENT)) == PLIM_NONE) /* not used */
                return plim_oom(f->err);
            continue;
        }
        if (!c->is_opaque[k])
            c->is_opaque[k] = declared_meta(c, k, &c->opaque[k]);
        opaque |= c->is_opaque[k];
        lost |= !c->is_opaque[k];
    }
    plim_status st = opaque || lost ? add_opaque(c) : PLIM_OK;
    if (!lost || st)
        return st;
    if (!f->n_lost++) {
        f->lost = c->node->name.n ? c->node->name : c->node->out[0];
        f->lost_op = c->node->op;
    }
    for (uint32_t k = 0; k < c->node->n_out; k++)
        if (c->out[k] == PLIM_NONE && (c->out[k] = no_val(f, ONNX_UNKNOWN)) == PLIM_NONE)
            return plim_oom(f->err);
    return PLIM_OK;
}

/* If a rule and the file disagree, the file is right and the rule cannot be trusted: it is
 * removed from the node. */
static bool file_disagrees(onnx_call *c)
{
    for (uint32_t k = 0; k < c->node->n_out; k++) {
        plim_meta told;
        const onnx_val *v = c->out[k] == PLIM_NONE ? NULL : &c->f->vals[c->out[k]];
        if (v && c->node->out[k].n && v->kind == ONNX_TENSOR && declared_meta(c, k, &told) &&
            (told.dtype != v->meta.dtype || !plim_same_size(&told, &v->meta)))
            return true;
    }
    return false;
}

static void forget_results(onnx_call *c)
{
    c->n_fused = 0;
    for (uint32_t k = 0; k < c->node->n_out; k++) {
        c->out[k] = PLIM_NONE;
        c->is_opaque[k] = false;
    }
}

/* Decides what to do about a rule that failed: reading fails only for an impossible size, and
 * for shapes that do not fit where the file does not give the result. */
static plim_status rule_failed(onnx_call *c, const plim_err *why)
{
    plim_meta m;
    bool told = c->node->n_out > 0;
    for (uint32_t k = 0; k < c->node->n_out; k++)
        told = told && (!c->node->out[k].n || declared_meta(c, k, &m));
    if (why->code == PLIM_EUNSUPPORTED || (why->code == PLIM_ESHAPE && told))
        return PLIM_OK;
    return plim_fail(c->f->err, why->code, c->node->at, "%s", why->msg);
}

/* One attempt; false: the graph is as it was, and *why may give the reason. */
static bool try_lowering(onnx_call *c, plim_err *why)
{
    onnx *f = c->f;
    place from = {f->g->n_nodes, f->g->n_values, f->n_fresh};
    *why = (plim_err)PLIM_ERR_INIT;
    f->nn.err = why;
    if (c->op)
        c->op->lower(c);
    f->nn.err = f->err;
    if (!f->nn.st && (c->st || !file_disagrees(c)))
        return true;
    undo_lowering(f, from);
    c->plain |= c->n_fused > 0;
    forget_results(c);
    return false;
}

/* Tries together with nodes that follow, then alone, then without a rule. */
static plim_status lower_node(onnx_call *c)
{
    plim_err why;
    plim_status st = plim_onnx_scope(c->f, c->node, &c->f->nn.scope);
    if (st)
        return st;
    bool ok = try_lowering(c, &why);
    if (!ok && c->plain)
        ok = try_lowering(c, &why);
    if (!ok && why.code)
        st = rule_failed(c, &why);
    return st ? st : c->st ? c->st : complete_results(c);
}

static plim_status run_op(onnx_call *c)
{
    onnx *f = c->f;
    f->nn.st = PLIM_OK;
    return plim_onnx_fold(c) || c->st ? c->st : lower_node(c);
}

/* ---- functions ------------------------------------------------------------------------ */

static plim_status call_function(onnx_call *c, onnx_function *fn)
{
    onnx *f = c->f;
    onnx_env inner = {.graph = &fn->body,
                      .opsets = fn->opsets,
                      .n_opsets = fn->n_opsets,
                      .caller = c->env,
                      .call = c->node,
                      .function = fn};
    if (fn->running)
        return plim_fail(f->err, PLIM_EFORMAT, c->node->at,
                         "the function calls itself, directly or indirectly");
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < fn->body.n_inputs && !st; i++)
        st = plim_onnx_bind_name(f, &inner, fn->body.inputs[i].name,
                                 i < c->node->n_in ? c->in[i] : PLIM_NONE);
    fn->running = true;
    if (!st)
        st = plim_onnx_run_graph(f, &inner);
    fn->running = false;
    for (uint32_t k = 0; k < fn->body.n_outputs && k < c->node->n_out && !st; k++)
        if (!plim_onnx_find(&inner, fn->body.outputs[k].name, &c->out[k]))
            return plim_fail(f->err, PLIM_EFORMAT, c->node->at,
                             "the function does not produce its output %u", (unsigned)k);
    for (uint32_t k = 0; k < c->node->n_out && !st; k++)
        if (c->out[k] == PLIM_NONE && (c->out[k] = no_val(f, ONNX_ABSENT)) == PLIM_NONE)
            return plim_oom(f->err);
    return st;
}

/* ---- in order --------------------------------------------------------------------------- */

static plim_status name_output(onnx_call *c, plim_str name, uint32_t val)
{
    uint32_t other;
    if (!name.n)
        return PLIM_OK;
    if (plim_map_get(&c->env->vals, name, &other)) {
        name = plim_onnx_clean(c->f->a, (plim_str){name.p, PLIM_MIN(name.n, 80)});
        return plim_fail(c->f->err, PLIM_EFORMAT, c->node->at,
                         "its output '" PLIM_STR_FMT "' is produced a second time",
                         PLIM_STR_ARG(name));
    }
    return plim_onnx_bind_name(c->f, c->env, name, val);
}

static plim_status run_node(onnx *f, onnx_env *env, onnx_node *n)
{
    onnx_call c = {.f = f,
                   .env = env,
                   .node = n,
                   .opset = opset_of(env, n->domain),
                   .in = PLIM_NEW_N(f->a, uint32_t, n->n_in + 1),
                   .out = PLIM_NEW_N(f->a, uint32_t, n->n_out + 1),
                   .opaque = PLIM_NEW_N(f->a, plim_meta, n->n_out + 1),
                   .is_opaque = PLIM_NEW_N(f->a, bool, n->n_out + 1)};
    if (!c.in || !c.out || !c.opaque || !c.is_opaque)
        return plim_oom(f->err);
    for (uint32_t k = 0; k < n->n_out; k++)
        c.out[k] = PLIM_NONE;
    if (!n->n_out)
        return plim_fail(f->err, PLIM_EFORMAT, n->at, "it has no output");
    plim_status st = plim_onnx_count_run(f, 1, n->at);
    if (!st)
        st = find_inputs(&c);
    onnx_function *fn = NULL;
    if (!st)
        st = plim_onnx_function(&f->m, n, &fn);
    if (!fn)
        c.op = plim_onnx_op_find(f, n->domain, n->op);
    if (!st)
        st = fn ? call_function(&c, fn) : run_op(&c);
    for (uint32_t k = 0; k < n->n_out && !st; k++)
        st = name_output(&c, n->out[k], c.out[k]);
    for (uint32_t i = 0; i < c.n_fused && !st; i++) {
        onnx_node *also = &env->graph->nodes[c.fused[i]];
        also->done = true;
        st = name_output(&c, also->out[0], c.out[0]); /* the result is that of the last one */
    }
    return st;
}

plim_status plim_onnx_run_graph(onnx *f, onnx_env *env)
{
    plim_status st = PLIM_OK;
    if (f->calls >= ONNX_MAX_CALLS)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 0,
                         "functions and subgraphs are nested deeper than %d", ONNX_MAX_CALLS);
    f->calls++;
    for (uint32_t i = 0; i < env->graph->n_nodes && !st; i++) {
        onnx_node *n = &env->graph->nodes[i];
        bool done = n->done;
        n->done = false; /* for the next run of this body */
        if (!done && (st = run_node(f, env, n)) != PLIM_OK)
            st = node_failed(f, n, st);
    }
    f->calls--;
    return st;
}
