/* onnx_op.c -- see onnx_priv.h: common to all ops. */
#include "import/onnx/onnx_priv.h"

/* ---- attributes -------------------------------------------------------------------- */

static const onnx_attr *attr_in(const onnx_attr *list, uint32_t n, plim_str name)
{
    for (uint32_t i = 0; i < n; i++)
        if (plim_str_eq(list[i].name, name))
            return &list[i];
    return NULL;
}

/* Resolves a reference to one of the function's attributes: the caller's, or its default. */
static const onnx_attr *attr_of(const onnx_env *env, const onnx_node *node, plim_str name)
{
    const onnx_attr *a = attr_in(node->attrs, node->n_attrs, name);
    while (a && a->ref.n) {
        const onnx_attr *given = NULL;
        plim_str ref = a->ref;
        while (env && !env->function)
            env = env->up;
        if (!env)
            return NULL;
        given = attr_in(env->call->attrs, env->call->n_attrs, ref);
        a = given ? given : attr_in(env->function->defaults, env->function->n_defaults, ref);
        if (!given)
            return a && !a->ref.n ? a : NULL;
        env = env->caller;
    }
    return a;
}

const onnx_attr *plim_onnx_attr(const onnx_call *c, const char *name)
{
    return attr_of(c->env, c->node, plim_str_of(name));
}

int64_t plim_onnx_attr_int(const onnx_call *c, const char *name, int64_t def)
{
    const onnx_attr *a = plim_onnx_attr(c, name);
    return a && a->has_i ? a->i : def;
}

double plim_onnx_attr_float(const onnx_call *c, const char *name, double def)
{
    const onnx_attr *a = plim_onnx_attr(c, name);
    return a && a->has_f ? a->f : def;
}

plim_str plim_onnx_attr_str(const onnx_call *c, const char *name, const char *def)
{
    const onnx_attr *a = plim_onnx_attr(c, name);
    return a && a->has_s ? a->s : plim_str_of(def);
}

plim_ints plim_onnx_attr_ints(const onnx_call *c, const char *name)
{
    const onnx_attr *a = plim_onnx_attr(c, name);
    return a && a->n_ints ? (plim_ints){a->ints, a->n_ints} : (plim_ints){NULL, 0};
}

/* ---- operands ----------------------------------------------------------------------- */

onnx_val *plim_onnx_in(const onnx_call *c, uint32_t i)
{
    if (i >= c->node->n_in || c->in[i] == PLIM_NONE)
        return NULL;
    onnx_val *v = &c->f->vals[c->in[i]];
    return v->kind == ONNX_ABSENT ? NULL : v;
}

const plim_meta *plim_onnx_in_meta(const onnx_call *c, uint32_t i)
{
    const onnx_val *v = plim_onnx_in(c, i);
    return v && v->kind == ONNX_TENSOR ? &v->meta : NULL;
}

const onnx_data *plim_onnx_in_data(const onnx_call *c, uint32_t i)
{
    const onnx_val *v = plim_onnx_in(c, i);
    return v ? plim_onnx_data(c->f, c->in[i]) : NULL;
}

bool plim_onnx_in_ints(const onnx_call *c, uint32_t i, plim_ints *out)
{
    const onnx_data *d = plim_onnx_in_data(c, i);
    if (!d || d->is_float)
        return false;
    *out = (plim_ints){d->i, d->n};
    return true;
}

/* ---- operands as tensors ------------------------------------------------------------ */

/* "onnx::MatMul_123" is meaningless: named after the module that uses it instead. */
static plim_str stored_name(onnx_call *c, plim_str name)
{
    plim_str path = c->f->g->scopes[c->f->nn.scope].path;
    if ((plim_str_starts(name, "onnx::") || plim_str_starts(name, "val_")) && path.n)
        return plim_arena_printf(
            c->f->a, PLIM_STR_FMT ".%s", PLIM_STR_ARG(path),
            c->node->n_in > 2 && plim_str_eq(c->node->in[2], name) ? "bias" : "weight");
    return plim_onnx_clean(c->f->a, name);
}

static uint32_t stored_value(onnx_call *c, const onnx_val *val)
{
    onnx *f = c->f;
    plim_item_kind kind =
        val->buffer ? PLIM_ITEM_BUFFER : plim_onnx_item_kind(val->from, !val->constant);
    plim_value v = {.name = stored_name(c, val->from->name.n ? val->from->name : val->name),
                    .meta = val->meta,
                    .kind = kind == PLIM_ITEM_PARAMETER ? PLIM_VALUE_PARAMETER
                            : kind == PLIM_ITEM_BUFFER  ? PLIM_VALUE_BUFFER
                                                        : PLIM_VALUE_CONSTANT,
                    .requires_grad =
                        kind == PLIM_ITEM_PARAMETER && plim_is_float(val->meta.dtype),
                    .persistent = true,
                    .tied_to = PLIM_NONE,
                    .node = PLIM_NONE};
    return v.name.p ? plim_graph_add_value(f->g, &v) : PLIM_NONE;
}

/* Numbers that the model computes from sizes: a tensor filled with them. */
static uint32_t computed_value(onnx_call *c, const onnx_val *v)
{
    plim_ints size = {v->meta.dim, (uint32_t)v->meta.rank};
    return NN_OP(&c->f->nn, "aten.full.default", ARG_IS("size", size), ARG_F("fill_value", 0),
                 ARG_I("dtype", v->meta.dtype));
}

uint32_t plim_onnx_id(onnx_call *c, uint32_t val)
{
    onnx *f = c->f;
    if (val == PLIM_NONE || f->vals[val].kind != ONNX_TENSOR)
        return PLIM_NONE;
    if (f->vals[val].id == PLIM_NONE) {
        onnx_val v = f->vals[val];
        uint32_t id = v.from   ? stored_value(c, &v)
                      : v.data ? computed_value(c, &v)
                               : PLIM_NONE;
        if (id == PLIM_NONE || !PLIM_PUSH_ROOM(f->a, f->fresh, f->n_fresh, f->cap_fresh)) {
            if (!f->nn.st && !c->st)
                c->st = plim_oom(f->err);
            return PLIM_NONE;
        }
        f->vals[val].id = id;
        f->fresh[f->n_fresh++] = val;
    }
    if (f->vals[val].flipped) /* stored transposed, needed as it is in the file */
        return NN_OP(&f->nn, "aten.t.default", ARG_T("self", f->vals[val].id));
    return f->vals[val].id;
}

uint32_t plim_onnx_in_id(onnx_call *c, uint32_t i)
{
    return plim_onnx_in(c, i) ? plim_onnx_id(c, c->in[i]) : PLIM_NONE;
}

bool plim_onnx_need(onnx_call *c, uint32_t n, uint32_t *id)
{
    for (uint32_t i = 0; i < n; i++)
        if (!plim_onnx_in(c, i) || plim_onnx_in(c, i)->kind != ONNX_TENSOR)
            return false;
    for (uint32_t i = 0; i < n; i++)
        if ((id[i] = plim_onnx_in_id(c, i)) == PLIM_NONE)
            return false;
    return true;
}

bool plim_onnx_scalar(const onnx_call *c, uint32_t i, double *out)
{
    const onnx_val *v = plim_onnx_in(c, i);
    uint64_t n;
    if (!v || v->kind != ONNX_TENSOR || v->id != PLIM_NONE || !plim_meta_numel(&v->meta, &n) ||
        n != 1 || (v->from && plim_str_is(v->from->role, "PARAMETER")))
        return false;
    const onnx_data *d = plim_onnx_in_data(c, i);
    if (!d || d->n != 1)
        return false;
    *out = plim_onnx_number(d, 0);
    return true;
}

bool plim_onnx_wanted(const onnx_call *c, uint32_t k)
{
    uint32_t use;
    return k < c->node->n_out && c->node->out[k].n &&
           plim_map_get(&c->env->graph->use_of, c->node->out[k], &use);
}

onnx_node *plim_onnx_only_user(const onnx_call *c, const onnx_node *by, const char *op,
                               uint32_t *at)
{
    const onnx_graph *g = c->env->graph;
    uint32_t use;
    if (!by || c->plain || g->nested || !by->n_out ||
        !plim_map_get(&g->use_of, by->out[0], &use) || g->uses[use].n != 1 ||
        g->uses[use].node == PLIM_NONE)
        return NULL;
    *at = g->uses[use].node;
    onnx_node *n = &g->nodes[*at];
    return n > by && n->n_out == 1 && plim_str_is(n->op, op) &&
                   plim_onnx_domain_is(n->domain, "")
               ? n
               : NULL;
}

/* ---- results ------------------------------------------------------------------------- */

uint32_t plim_onnx_graph_val(onnx_call *c, uint32_t id)
{
    if (id == PLIM_NONE)
        return PLIM_NONE;
    onnx_val v =
        ONNX_VAL(.kind = ONNX_TENSOR, .name = PLIM_STR(""), .meta = c->f->g->values[id].meta);
    v.id = id;
    uint32_t at = plim_onnx_add_val(c->f, &v);
    if (at == PLIM_NONE && !c->st)
        c->st = plim_oom(c->f->err);
    return at;
}

void plim_onnx_out_val(onnx_call *c, uint32_t k, uint32_t val)
{
    if (k < c->node->n_out && c->node->out[k].n)
        c->out[k] = val;
}

void plim_onnx_out(onnx_call *c, uint32_t k, uint32_t id)
{
    if (k >= c->node->n_out || !c->node->out[k].n || id == PLIM_NONE || c->f->nn.st)
        return;
    plim_value *v = &c->f->g->values[id];
    if (v->kind == PLIM_VALUE_NODE && !(v->name = plim_onnx_clean(c->f->a, c->node->out[k])).p)
        c->st = plim_oom(c->f->err);
    else
        c->out[k] = plim_onnx_graph_val(c, id);
}

void plim_onnx_out_data(onnx_call *c, uint32_t k, const plim_meta *m, const onnx_data *d)
{
    onnx_val v = ONNX_VAL(.kind = ONNX_TENSOR, .name = PLIM_STR(""), .meta = *m, .data = d);
    if (k >= c->node->n_out || !c->node->out[k].n || !d)
        return;
    c->out[k] = plim_onnx_add_val(c->f, &v);
    if (c->out[k] == PLIM_NONE && !c->st)
        c->st = plim_oom(c->f->err);
}

void plim_onnx_out_opaque(onnx_call *c, uint32_t k, const plim_meta *m)
{
    uint64_t bytes;
    if (k >= c->node->n_out || !c->node->out[k].n)
        return;
    if (!plim_meta_bytes(m, &bytes)) {
        plim_nn_fail(&c->f->nn, PLIM_ERANGE, "size of the output overflows");
        return;
    }
    c->opaque[k] = plim_meta_make(m->dtype, m->rank, m->dim);
    c->is_opaque[k] = true;
}
