/* onnx_ops_flow.c -- ONNX ops with subgraphs, and lists of tensors.
 *
 * A branch is taken if its condition is a known number, a loop is unrolled if its count is
 * known.  Otherwise only what the file says about the results is known. */
#include "import/onnx/onnx_ops.h"

/* ---- graphs in nodes ------------------------------------------------------------------- */

static onnx_graph *body_of(onnx_call *c, const char *name)
{
    for (uint32_t i = 0; i < c->node->n_attrs; i++) {
        onnx_attr *a = &c->node->attrs[i];
        if (!plim_str_is(a->name, name) || !a->graph.file.p)
            continue;
        if (!a->parsed) {
            onnx_graph *g = PLIM_NEW(c->f->a, onnx_graph);
            c->st = g ? plim_onnx_parse_graph(&c->f->m, a->graph, g) : plim_oom(c->f->err);
            if (c->st)
                return NULL;
            a->parsed = g;
        }
        return a->parsed;
    }
    return NULL;
}

/* Runs a body with vals as its inputs; `out` receives those of its outputs. */
static bool run_body(onnx_call *c, onnx_graph *g, const uint32_t *in, uint32_t n_in,
                     uint32_t *out)
{
    onnx *f = c->f;
    onnx_env env = {.up = c->env, .graph = g};
    uint32_t scope = NN->scope;
    plim_err *err = NN->err;
    c->st = plim_onnx_enter(f, &env);
    for (uint32_t i = 0; i < g->n_inputs && i < n_in && !c->st; i++)
        c->st = plim_onnx_bind_name(f, &env, g->inputs[i].name, in[i]);
    if (!c->st)
        c->st = f->run_graph(f, &env);
    for (uint32_t i = 0; i < g->n_outputs && !c->st; i++)
        if (!plim_onnx_find(&env, g->outputs[i].name, &out[i]))
            c->st = plim_fail(f->err, PLIM_EFORMAT, c->node->at,
                              "its subgraph does not produce output %u", (unsigned)i);
    NN->scope = scope;
    NN->err = err;
    return !c->st;
}

static uint32_t *new_vals(onnx_call *c, uint64_t n)
{
    uint32_t *p = PLIM_NEW_N(c->f->a, uint32_t, n + 1);
    if (!p && !c->st)
        c->st = plim_oom(c->f->err);
    return p;
}

static bool read_condition(const onnx_call *c, uint32_t val, bool *out)
{
    int64_t i = 0;
    bool known = val != PLIM_NONE && plim_onnx_single_int(plim_onnx_data(c->f, val), &i);
    *out = i != 0;
    return known;
}

void plim_onnx_if(onnx_call *c)
{
    bool yes;
    if (!c->node->n_in || !read_condition(c, c->in[0], &yes))
        return;
    onnx_graph *g = body_of(c, yes ? "then_branch" : "else_branch");
    uint32_t *out = g ? new_vals(c, g->n_outputs) : NULL;
    if (!out || !run_body(c, g, NULL, 0, out))
        return;
    for (uint32_t k = 0; k < c->node->n_out && k < g->n_outputs; k++)
        plim_onnx_out_val(c, k, out[k]);
}

static uint32_t int_val(onnx_call *c, plim_dtype t, int64_t v)
{
    onnx_val val = ONNX_VAL(.kind = ONNX_TENSOR, .name = PLIM_STR(""),
                            .meta = plim_meta_make(t, 0, NULL));
    onnx_data *d = plim_onnx_new_data(c->f, false, 1);
    if (d)
        d->i[0] = v;
    val.data = d;
    uint32_t id = d ? plim_onnx_add_val(c->f, &val) : PLIM_NONE;
    if (id == PLIM_NONE && !c->st)
        c->st = plim_oom(c->f->err);
    return id;
}

static uint32_t list_val(onnx_call *c, const uint32_t *items, uint32_t n)
{
    onnx_val v =
        ONNX_VAL(.kind = ONNX_LIST, .name = PLIM_STR(""), .items = items, .n_items = n);
    uint32_t id = plim_onnx_add_val(c->f, &v);
    if (id == PLIM_NONE && !c->st)
        c->st = plim_oom(c->f->err);
    return id;
}

/* The results of all iterations, stacked. */
static uint32_t stack_rounds(onnx_call *c, const uint32_t *vals, uint32_t n, uint32_t every)
{
    uint32_t *id = new_vals(c, n);
    for (uint32_t i = 0; id && i < n; i++)
        if ((id[i] = plim_onnx_id(c, vals[(uint64_t)i * every])) == PLIM_NONE)
            return PLIM_NONE;
    if (!id || !n)
        return PLIM_NONE;
    return NN_OP(NN, "aten.stack.default", ARG_TS("tensors", id, n));
}

/* src: onnx/defs/controlflow/defs.cc Loop: count and condition, then the carried values; its
 * results are the final carried values and the stacked results of the iterations */
void plim_onnx_loop(onnx_call *c)
{
    plim_ints trips = {NULL, 0};
    bool go = true;
    uint32_t carried = c->node->n_in > 2 ? c->node->n_in - 2 : 0;
    onnx_graph *g = body_of(c, "body");
    if (!g || g->n_inputs != carried + 2 || g->n_outputs < carried + 1 ||
        !plim_onnx_in_ints(c, 0, &trips) || trips.n != 1 || trips.p[0] > ONNX_MAX_TRIPS ||
        (plim_onnx_in(c, 1) && !read_condition(c, c->in[1], &go)))
        return;
    uint32_t width = g->n_outputs, n = 0, max = (uint32_t)PLIM_MAX(trips.p[0], 0);
    if ((uint64_t)width * max > ONNX_MAX_NODES)
        return;
    uint32_t *in = new_vals(c, carried + 2), *out = new_vals(c, (uint64_t)width * (max + 1));
    if (!in || !out)
        return;
    for (uint32_t i = 0; i < carried; i++)
        in[i + 2] = c->in[i + 2];
    for (; n < max && go; n++) {
        uint32_t *row = out + (uint64_t)width * n;
        in[0] = int_val(c, PLIM_I64, n);
        in[1] = int_val(c, PLIM_BOOL, 1);
        if (c->st || !run_body(c, g, in, carried + 2, row))
            return;
        if (!read_condition(c, row[0], &go)) /* the number of iterations is not known */
            return;
        for (uint32_t i = 0; i < carried; i++)
            in[i + 2] = row[i + 1];
    }
    for (uint32_t k = 0; k < c->node->n_out; k++)
        if (k < carried)
            plim_onnx_out_val(c, k, in[k + 2]);
        else if (k + 1 < width)
            plim_onnx_out(c, k, stack_rounds(c, out + k + 1, n, width));
}

/* ---- lists ---------------------------------------------------------------------------------- */

static const onnx_val *list_in(const onnx_call *c, uint32_t i)
{
    const onnx_val *v = plim_onnx_in(c, i);
    return v && v->kind == ONNX_LIST ? v : NULL;
}

/* A negative position counts from the end. */
static bool list_position(const onnx_call *c, uint32_t i, uint32_t n, int64_t def,
                          uint32_t *out)
{
    plim_ints at = {&def, 1};
    if (plim_onnx_in(c, i) && (!plim_onnx_in_ints(c, i, &at) || at.n != 1))
        return false;
    int64_t v = at.p[0] + (at.p[0] < 0 ? (int64_t)n : 0);
    *out = (uint32_t)v;
    return v >= 0 && v <= n;
}

void plim_onnx_sequence(onnx_call *c)
{
    uint32_t *items = new_vals(c, c->node->n_in);
    if (!items)
        return;
    if (c->node->n_in)
        memcpy(items, c->in, c->node->n_in * sizeof *items);
    plim_onnx_out_val(c, 0, list_val(c, items, c->node->n_in));
}

void plim_onnx_sequence_insert(onnx_call *c)
{
    const onnx_val *v = list_in(c, 0);
    uint32_t at, n = v ? v->n_items : 0;
    if (!v || c->node->n_in < 2 || !list_position(c, 2, n, n, &at))
        return;
    const uint32_t *old = v->items;
    uint32_t *items = new_vals(c, (uint64_t)n + 1);
    for (uint32_t i = 0; items && i <= n; i++)
        items[i] = i == at ? c->in[1] : old[i - (i > at)];
    if (items)
        plim_onnx_out_val(c, 0, list_val(c, items, n + 1));
}

void plim_onnx_sequence_erase(onnx_call *c)
{
    const onnx_val *v = list_in(c, 0);
    uint32_t at, n = v ? v->n_items : 0;
    if (!n || !list_position(c, 1, n, n - 1, &at) || at == n)
        return;
    const uint32_t *old = v->items;
    uint32_t *items = new_vals(c, n);
    for (uint32_t i = 0; items && i < n - 1; i++)
        items[i] = old[i + (i >= at)];
    if (items)
        plim_onnx_out_val(c, 0, list_val(c, items, n - 1));
}

void plim_onnx_sequence_at(onnx_call *c)
{
    const onnx_val *v = list_in(c, 0);
    uint32_t at;
    if (v && plim_onnx_in(c, 1) && list_position(c, 1, v->n_items, 0, &at) && at < v->n_items)
        plim_onnx_out_val(c, 0, v->items[at]);
}

void plim_onnx_sequence_length(onnx_call *c)
{
    const onnx_val *v = list_in(c, 0);
    if (v)
        plim_onnx_out_val(c, 0, int_val(c, PLIM_I64, v->n_items));
}

void plim_onnx_sequence_concat(onnx_call *c)
{
    const onnx_val *v = list_in(c, 0);
    bool fresh = plim_onnx_attr_int(c, "new_axis", 0) != 0;
    int64_t axis = plim_onnx_attr_int(c, "axis", 0);
    uint32_t n = v ? v->n_items : 0, *id = v ? new_vals(c, n) : NULL;
    const uint32_t *items = v ? v->items : NULL;
    for (uint32_t i = 0; id && i < n; i++)
        if ((id[i] = plim_onnx_id(c, items[i])) == PLIM_NONE)
            return;
    if (id && n)
        plim_onnx_out(c, 0,
                      fresh ? NN_OP(NN, "aten.stack.default", ARG_TS("tensors", id, n),
                                    ARG_I("dim", axis))
                            : plim_nn_cat(NN, id, n, axis));
}

/* src: onnx/defs/sequence/defs.cc SplitToSequence */
void plim_onnx_split_to_sequence(onnx_call *c)
{
    enum { MAX_PARTS = 64 };
    const plim_meta *x = plim_onnx_in_meta(c, 0), *by = plim_onnx_in_meta(c, 1);
    int64_t sizes[MAX_PARTS], one = 1;
    plim_ints given = {&one, 1};
    int32_t axis;
    uint32_t id, n = 0, parts[MAX_PARTS], *items;
    if (!x || !plim_onnx_axis(plim_onnx_attr_int(c, "axis", 0), x->rank, &axis) ||
        (plim_onnx_in(c, 1) && !plim_onnx_in_ints(c, 1, &given)))
        return;
    bool even = !by || !by->rank, drop = !by && !plim_onnx_attr_int(c, "keepdims", 1);
    for (int64_t left = x->dim[axis]; left > 0; n++) {
        int64_t size = even ? given.p[0] : n < given.n ? given.p[n] : 0;
        if (n == MAX_PARTS || size < 1)
            return;
        sizes[n] = PLIM_MIN(size, left);
        left -= sizes[n];
    }
    if (!n || !plim_onnx_need(c, 1, &id))
        return;
    plim_named_arg a[3] = {ARG_T("self", id), ARG_IS("split_sizes", ((plim_ints){sizes, n})),
                           ARG_I("dim", axis)};
    plim_nn_node(NN, "aten.split_with_sizes.default", a, 3, parts, n);
    if (!(items = new_vals(c, n)))
        return;
    for (uint32_t i = 0; i < n && !NN->st; i++) {
        if (drop)
            parts[i] =
                NN_OP(NN, "aten.squeeze.dim", ARG_T("self", parts[i]), ARG_I("dim", axis));
        items[i] = plim_onnx_graph_val(c, parts[i]);
    }
    if (!NN->st)
        plim_onnx_out_val(c, 0, list_val(c, items, n));
}
