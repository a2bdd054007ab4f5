/* layers.c -- plim_layers_run: the output, parameters and cost of each module call. */
#include "api/api.h"
#include "op/op.h"

typedef struct layers_result {
    plim_layers pub;
    plim_arena arena;
} layers_result;

typedef struct builder {
    const plim_graph *g;
    plim_arena *a, *scratch; /* of the result; for what it does not keep */
    plim_layer *row;         /* by scope */
} builder;

/* ---- costs: a node counts for its module and for all that contain it ----------- */

static void set_output(plim_layer *l, const plim_meta *m)
{
    l->dtype = m->dtype;
    l->rank = m->rank;
    memcpy(l->dim, m->dim, sizeof l->dim);
    if (!plim_meta_numel(m, &l->values) || !plim_meta_bytes(m, &l->bytes))
        l->values = l->bytes = UINT64_MAX;
}

static void add_node(builder *b, const plim_node *n)
{
    plim_cost c;
    plim_op_cost(b->g, n, &c);
    for (uint32_t s = n->scope; s != PLIM_NONE; s = b->g->scopes[s].parent) {
        plim_layer *l = &b->row[s];
        l->macs = plim_sat_add(l->macs, c.macs);
        l->flops = plim_sat_add(l->flops, c.flops);
        l->read = plim_sat_add(l->read, c.read);
        l->written = plim_sat_add(l->written, c.written);
        if (!n->n_outs)
            continue;
        /* the output of a module is that of its last op */
        set_output(l, &b->g->values[n->outs[0]].meta);
        l->inplace = n->inplace;
    }
}

/* ---- parameters: those of a module have names that begin with its path --------- */

static bool is_bias(plim_str name) { return plim_str_ends(name, PLIM_STR("bias")); }

static void add_parameter(plim_layer *l, const plim_value *v)
{
    uint64_t numel, bytes;
    if (!plim_meta_numel(&v->meta, &numel) || !plim_meta_bytes(&v->meta, &bytes))
        return;
    l->params = plim_sat_add(l->params, numel);
    l->parameter_bytes = plim_sat_add(l->parameter_bytes, bytes);
    if (!is_bias(v->name))
        l->weights = plim_sat_add(l->weights, numel);
}

/* Looks up each dotted prefix of a parameter's name among the paths.  A module that was
 * called twice has a row for each call. */
static bool add_parameters(builder *b)
{
    const plim_graph *g = b->g;
    plim_map paths = {0};
    uint32_t *earlier = PLIM_NEW_N(b->scratch, uint32_t, g->n_scopes);
    if (!earlier)
        return false;
    for (uint32_t s = 0; s < g->n_scopes; s++) {
        earlier[s] = PLIM_NONE;
        plim_map_get(&paths, g->scopes[s].path, &earlier[s]);
        if (!plim_map_put(b->scratch, &paths, g->scopes[s].path, s))
            return false;
    }
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind != PLIM_VALUE_PARAMETER || v->tied_to != PLIM_NONE)
            continue;
        for (size_t n = v->name.n; n-- > 0;) {
            uint32_t s = PLIM_NONE;
            if (n && v->name.p[n] != '.')
                continue;
            plim_map_get(&paths, (plim_str){v->name.p, n}, &s);
            for (; s != PLIM_NONE; s = earlier[s])
                add_parameter(&b->row[s], v);
        }
    }
    return true;
}

/* ---- rows ------------------------------------------------------------------------ */

static bool name_row(builder *b, plim_layer *l, plim_str path, plim_str type, int depth)
{
    l->name = plim__cstr(b->a, path);
    l->type = plim__cstr(b->a, type);
    l->depth = depth;
    l->rank = -1;
    l->leaf = true;
    return l->name && l->type;
}

static bool start_rows(builder *b)
{
    const plim_graph *g = b->g;
    for (uint32_t s = 0; s < g->n_scopes; s++) {
        uint32_t up = g->scopes[s].parent;
        if (!name_row(b, &b->row[s], g->scopes[s].path, g->scopes[s].type,
                      up == PLIM_NONE ? 0 : b->row[up].depth + 1))
            return false;
        if (up != PLIM_NONE)
            b->row[up].leaf = false;
    }
    return true;
}

PLIM__LIST(layer_list, plim_layer)
PLIM__LIST(activation_list, plim_activation)

/* Orders the rows: the model, its inputs, its modules.  The totals are over the leaves whose
 * output is a new tensor. */
static bool finish_rows(builder *b, plim_layers *out)
{
    const plim_graph *g = b->g;
    plim_layer *rows = PLIM_NEW_N(b->a, plim_layer, (uint64_t)g->n_scopes + g->n_inputs);
    if (!rows)
        return false;
    rows[out->n_layers++] = b->row[0];
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        if (!name_row(b, &rows[out->n_layers], v->name, PLIM_STR("Input"), 1))
            return false;
        set_output(&rows[out->n_layers++], &v->meta);
    }
    memcpy(rows + out->n_layers, b->row + 1, (g->n_scopes - 1) * sizeof *rows);
    out->n_layers += g->n_scopes - 1;
    for (uint32_t i = 0; i < out->n_layers; i++) {
        rows[i].inplace &= rows[i].leaf;
        if (!rows[i].leaf || rows[i].inplace || rows[i].rank < 0)
            continue;
        out->values = plim_sat_add(out->values, rows[i].values);
        out->bytes = plim_sat_add(out->bytes, rows[i].bytes);
    }
    out->macs = rows[0].macs;
    out->flops = rows[0].flops;
    out->read = rows[0].read;
    out->written = rows[0].written;
    out->layers = layer_list(b->a, rows, out->n_layers);
    return out->layers != NULL;
}

/* ---- activations by kind --------------------------------------------------------- */

static plim_activation *find_activation(plim_arena *a, plim_layers *out, const plim_op *op,
                                        plim_activation *list, plim_inplace_gain gain)
{
    for (uint32_t i = 0; i < out->n_activations; i++)
        if (!strcmp(list[i].op, op->name))
            return &list[i];
    list[out->n_activations] =
        (plim_activation){.op = plim__cstr(a, plim_str_of(op->name)), .gain = gain};
    return list[out->n_activations].op ? &list[out->n_activations++] : NULL;
}

static bool list_activations(const plim_graph *g, plim_arena *a, plim_layers *out)
{
    static const plim_inplace_gain gains[] = {[PLIM_INPLACE_MOMENT] = PLIM_GAIN_MOMENT,
                                              [PLIM_INPLACE_COPY] = PLIM_GAIN_NONE,
                                              [PLIM_INPLACE_LESS] = PLIM_GAIN_LESS};
    plim_activation *list = PLIM_NEW_N(a, plim_activation, plim_op_count());
    for (uint32_t i = 0; list && i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        plim_inplace kind = n->op && n->n_outs ? plim_op_inplace(n->op) : PLIM_INPLACE_NONE;
        uint64_t bytes;
        if (kind == PLIM_INPLACE_NONE)
            continue;
        plim_activation *row = find_activation(a, out, n->op, list, gains[kind]);
        if (!row)
            return false;
        row->count++;
        row->inplace += n->inplace;
        if (!n->inplace && plim_meta_bytes(&g->values[n->outs[0]].meta, &bytes))
            row->bytes = plim_sat_add(row->bytes, bytes);
    }
    out->activations = list ? activation_list(a, list, out->n_activations) : NULL;
    return out->activations != NULL;
}

static void cast_graph(plim_graph *g, plim_dtype t)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (plim_is_float(g->values[i].meta.dtype))
            g->values[i].meta.dtype = t;
}

static plim_status layers_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_layers *out = pub;
    plim_graph g;
    out->size = sizeof *out;
    out->settings = job->settings;
    plim_job_plain_call(job);
    job->bind.infer = true; /* leaves out auxiliary heads, which only training uses */
    PLIM_TRY(plim_job_graph(job, 0, job->scratch, &g, err));
    PLIM_TRY(plim__model_info(a, &g, &out->model, err));
    PLIM_TRY(plim_job_resolve(job, &g, NULL, err));
    if (job->step.dtype != PLIM_DTYPE_COUNT)
        cast_graph(&g, job->step.dtype);
    builder b = {&g, a, job->scratch, PLIM_NEW_N(job->scratch, plim_layer, g.n_scopes)};
    if (!b.row || !start_rows(&b))
        return plim_oom(err);
    for (uint32_t i = 0; i < g.n_nodes; i++)
        add_node(&b, &g.nodes[i]);
    if (g.n_outputs)
        set_output(&b.row[0], &g.values[g.outputs[0]].meta);
    return add_parameters(&b) && finish_rows(&b, out) && list_activations(&g, a, out)
               ? PLIM_OK
               : plim_oom(err);
}

plim_status plim_layers_run(const plim_model *m, const plim_settings *s, plim_layers **out,
                            plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(layers_result), offsetof(layers_result, arena), m, s,
                              layers_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_layers_free(plim_layers *l) { plim__result_free(l, offsetof(layers_result, arena)); }
