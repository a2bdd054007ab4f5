/* onnx_list.c -- what an ONNX file holds, without running any of it. */
#include "import/onnx/onnx_priv.h"
#include "import/symexpr.h"

static plim_status list_tensor(plim_inventory *v, const onnx_tensor *t, bool initializer,
                               plim_err *err)
{
    plim_item it = {.name = plim_onnx_clean(v->arena, t->name),
                    .type = plim_str_of(plim_onnx_type(t->type)->name),
                    .kind = plim_onnx_item_kind(t, initializer),
                    .rank = t->rank,
                    .same_as = PLIM_NONE};
    memcpy(it.dim, t->dim, sizeof it.dim);
    if (!it.name.p || !plim_onnx_tensor_bytes(t, &it.bytes))
        return plim_oom(err);
    return plim_inventory_add(v, &it, err);
}

/* Tables stored in nodes are constants of the model; single numbers are not listed. */
static plim_status list_constants(plim_inventory *v, onnx_model *m, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < m->graph.n_nodes && !st; i++) {
        const onnx_node *n = &m->graph.nodes[i];
        onnx_tensor t;
        if (!plim_str_is(n->op, "Constant") || !n->n_attrs || !n->attrs[0].tensor.file.p ||
            !n->n_out)
            continue;
        st = plim_onnx_parse_tensor(m, n->attrs[0].tensor, &t);
        t.name = t.name.n ? t.name : n->out[0];
        if (!st && t.numel > ONNX_MAX_DATA)
            st = list_tensor(v, &t, false, err);
    }
    return st;
}

static plim_status list_dims(plim_inventory *v, const onnx_graph *g, plim_err *err)
{
    plim_map seen = {0};
    uint32_t at;
    plim_str name;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        for (int32_t d = 0; d < g->inputs[i].rank; d++) {
            const onnx_dim *x = &g->inputs[i].dim[d];
            if (x->known || !x->param.n || plim_map_get(&seen, x->param, &at))
                continue;
            name = plim_onnx_clean(v->arena, x->param);
            if (!name.p || !plim_map_put(v->arena, &seen, x->param, 1))
                return plim_oom(err);
            PLIM_TRY(plim_inventory_dim(v, name,
                                        plim_onnx_is_batch(g, &g->inputs[i], d) ? 1 : 0, err));
        }
    return PLIM_OK;
}

/* A path that leaves the folder is not opened, and is noted. */
static bool leaves_folder(plim_str path)
{
    for (size_t i = 0; i < path.n; i++) {
        bool begins = !i || path.p[i - 1] == '/' || path.p[i - 1] == '\\';
        if (begins && i + 1 < path.n && path.p[i] == '.' && path.p[i + 1] == '.' &&
            (i + 2 == path.n || path.p[i + 2] == '/' || path.p[i + 2] == '\\'))
            return true;
    }
    return path.n && (path.p[0] == '/' || path.p[0] == '\\' || memchr(path.p, ':', path.n));
}

static plim_status list_external(plim_inventory *v, const onnx_graph *g, plim_err *err)
{
    uint32_t n = 0;
    const onnx_tensor *odd = NULL, *one = NULL;
    for (uint32_t i = 0; i < g->n_inits; i++) {
        const onnx_tensor *t = &g->inits[i];
        if (!t->external)
            continue;
        n++;
        one = one ? one : t;
        odd = !odd && leaves_folder(t->location) ? t : odd;
    }
    if (!n)
        return PLIM_OK;
    const onnx_tensor *t = odd ? odd : one;
    plim_str file = plim_onnx_clean(v->arena, t->location),
             name = plim_onnx_clean(v->arena, t->name);
    if (!file.p || !name.p)
        return plim_oom(err);
    if (odd)
        return plim_inventory_note(v, err,
                                   "the external data of '%.*s' is in '%.*s', outside the "
                                   "model's folder; it was not opened",
                                   (int)PLIM_MIN(name.n, 80), name.p,
                                   (int)PLIM_MIN(file.n, 120), file.p);
    return plim_inventory_note(v, err,
                               "%u tensors have external data in '%.*s', which is not needed",
                               (unsigned)n, (int)PLIM_MIN(file.n, 120), file.p);
}

static plim_status list_facts(plim_inventory *v, const onnx_model *m, plim_err *err)
{
    plim_status st = plim_inventory_fact(v, err, "IR version", "%" PRId64, m->ir);
    for (uint32_t i = 0; i < m->n_opsets && !st; i++) {
        plim_str domain = plim_onnx_clean(v->arena, m->opsets[i].domain);
        domain = domain.n ? domain : PLIM_STR("ai.onnx");
        st = plim_inventory_fact(v, err, "operator set", "%.*s %" PRId64,
                                 (int)PLIM_MIN(domain.n, 80), domain.p, m->opsets[i].version);
    }
    if (!st)
        st = plim_inventory_fact(v, err, "nodes", "%u", (unsigned)m->graph.n_nodes);
    if (!st && m->n_functions)
        st = plim_inventory_fact(v, err, "functions", "%u", (unsigned)m->n_functions);
    return st;
}

plim_status plim_onnx_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    onnx_model m;
    plim_status st = plim_onnx_parse(&m, v->arena, s->bytes, err);
    if (st)
        return st;
    v->format = plim_arena_printf(v->arena, "ONNX, IR %" PRId64, m.ir);
    v->producer = plim_onnx_producer(v->arena, &m);
    if (!v->format.p || !v->producer.p)
        return plim_oom(err);
    for (uint32_t i = 0; i < m.graph.n_inits && !st; i++)
        st = list_tensor(v, &m.graph.inits[i], true, err);
    if (!st)
        st = list_constants(v, &m, err);
    if (!st)
        st = list_facts(v, &m, err);
    if (!st)
        st = list_dims(v, &m.graph, err);
    if (!st)
        st = list_external(v, &m.graph, err);
    if (!st && *plim_onnx_mode_note(&m))
        st = plim_inventory_note(v, err, "%s", plim_onnx_mode_note(&m));
    return st;
}
