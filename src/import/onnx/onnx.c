/* onnx.c -- ONNX models: IR 3 to 14, operator sets from 7 on.  docs/formats/onnx.md says what
 * is read and what is not known. */
#include "import/onnx/onnx_fields.h"
#include "import/onnx/onnx_priv.h"
#include "op/op.h"

/* ---- the model ---------------------------------------------------------------------------- */

static bool known_type(const onnx_info *in)
{
    const onnx_type *t = plim_onnx_type(in->type);
    return t && t->known;
}

static plim_status add_inputs(onnx *f, onnx_env *env)
{
    onnx_graph *g = &f->m.graph;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const onnx_info *in = &g->inputs[i];
        onnx_val val = ONNX_VAL(.kind = ONNX_UNKNOWN, .name = in->name);
        uint32_t at;
        if (plim_map_get(&env->vals, in->name, &at))
            continue;
        if (plim_onnx_shape(f, in, &val.meta)) {
            plim_value v = {.name = plim_onnx_clean(f->a, in->name),
                            .meta = val.meta,
                            .kind = PLIM_VALUE_INPUT,
                            .tied_to = PLIM_NONE,
                            .node = PLIM_NONE};
            val.kind = ONNX_TENSOR;
            val.id = v.name.p ? plim_graph_add_value(f->g, &v) : PLIM_NONE;
            if (val.id == PLIM_NONE || !plim_graph_add_input(f->g, val.id))
                return plim_oom(f->err);
        } else if (in->tensor && in->has_shape && known_type(in)) {
            plim_str name =
                plim_onnx_clean(f->a, (plim_str){in->name.p, PLIM_MIN(in->name.n, 80)});
            return plim_fail(f->err, PLIM_ERANGE, in->at,
                             "size of input '" PLIM_STR_FMT "' overflows", PLIM_STR_ARG(name));
        }
        at = plim_onnx_add_val(f, &val);
        if (at == PLIM_NONE || !plim_map_put(f->a, &env->vals, in->name, at))
            return plim_oom(f->err);
    }
    return PLIM_OK;
}

static plim_status nothing_known(onnx *f)
{
    if (!f->lost.p)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 0, "no output is a tensor");
    plim_str name = plim_onnx_clean(f->a, (plim_str){f->lost.p, PLIM_MIN(f->lost.n, 80)});
    plim_str op = plim_onnx_clean(f->a, (plim_str){f->lost_op.p, PLIM_MIN(f->lost_op.n, 40)});
    return plim_fail(f->err, PLIM_EUNSUPPORTED, 0,
                     "no output has a known shape: the file does not give the "
                     "output shapes of node '" PLIM_STR_FMT "' (" PLIM_STR_FMT ")",
                     PLIM_STR_ARG(name), PLIM_STR_ARG(op));
}

static plim_status add_outputs(onnx *f, onnx_env *env)
{
    const onnx_graph *g = &f->m.graph;
    onnx_node none = {.name = PLIM_STR(""), .op = PLIM_STR("")};
    onnx_call c = {.f = f, .env = env, .node = &none};
    if (!g->n_outputs)
        return plim_fail(f->err, PLIM_EFORMAT, 0, "a graph without outputs");
    f->nn.scope = 0;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uint32_t val, id;
        if (!plim_onnx_find(env, g->outputs[i].name, &val)) {
            plim_str name = plim_onnx_clean(f->a, g->outputs[i].name);
            return plim_fail(f->err, PLIM_EFORMAT, g->outputs[i].at,
                             "no node produces the output '%.*s'", (int)PLIM_MIN(name.n, 80),
                             name.p ? name.p : "");
        }
        id = plim_onnx_id(&c, val);
        if (c.st || f->nn.st)
            return c.st ? c.st : f->nn.st;
        if (id != PLIM_NONE && !plim_graph_add_output(f->g, id))
            return plim_oom(f->err);
    }
    return f->g->n_outputs ? PLIM_OK : nothing_known(f);
}

/* Weights that no node uses are on the device too. */
static plim_status add_unused(onnx *f, uint32_t n_stored)
{
    onnx_node none = {.name = PLIM_STR(""), .op = PLIM_STR("")};
    onnx_call c = {.f = f, .node = &none};
    for (uint32_t i = 0; i < n_stored && !c.st; i++)
        if (f->vals[i].from && f->vals[i].id == PLIM_NONE && !f->vals[i].used)
            (void)plim_onnx_id(&c, i);
    return c.st;
}

static plim_status run_model(onnx *f)
{
    onnx_env env = {.graph = &f->m.graph, .opsets = f->m.opsets, .n_opsets = f->m.n_opsets};
    plim_status st = plim_onnx_bind_sizes(f);
    if (!st)
        st = plim_onnx_enter(f, &env);
    uint32_t n_stored = f->n_vals;
    if (!st)
        st = add_inputs(f, &env);
    if (!st)
        st = plim_onnx_run_graph(f, &env);
    if (!st)
        st = add_outputs(f, &env);
    return st ? st : add_unused(f, n_stored);
}

/* ---- versions ------------------------------------------------------------------------------- */

enum { ONNX_MIN_OPSET = 7 };

static plim_status check_version(const onnx_model *m)
{
    for (uint32_t i = 0; i < m->n_opsets; i++)
        if (plim_onnx_domain_is(m->opsets[i].domain, "") &&
            m->opsets[i].version < ONNX_MIN_OPSET)
            return plim_fail(m->err, PLIM_EUNSUPPORTED, 0,
                             "operator set %" PRId64
                             " is older than %d: convert it with onnx.version_converter",
                             m->opsets[i].version, ONNX_MIN_OPSET);
    return PLIM_OK;
}

/* Sizes that are not known, of results and of all that is computed from them. */
static bool leave_lost(onnx *f)
{
    plim_str name = plim_onnx_clean(f->a, (plim_str){f->lost.p, PLIM_MIN(f->lost.n, 80)});
    plim_str op = plim_onnx_clean(f->a, (plim_str){f->lost_op.p, PLIM_MIN(f->lost_op.n, 40)});
    if (!f->n_lost || !name.p || !op.p)
        return !f->n_lost;
    plim_str says = plim_arena_printf(
        f->a,
        "the output sizes of node '" PLIM_STR_FMT "' (" PLIM_STR_FMT
        "), and of all that is computed from them, are unknown and not counted",
        PLIM_STR_ARG(name), PLIM_STR_ARG(op));
    return says.p && plim_graph_leave_out(f->g, says);
}

/* ---- the importer ---------------------------------------------------------------------------- */

static plim_status read_into(onnx *f, plim_bytes file)
{
    PLIM_TRY(plim_onnx_parse(&f->m, f->a, file, f->err));
    PLIM_TRY(check_version(&f->m));
    PLIM_TRY(plim_onnx_index_ops(f) ? run_model(f) : plim_oom(f->err));
    const char *wrong = plim_graph_check(f->g);
    if (wrong)
        return plim_fail(f->err, PLIM_EFORMAT, 0, "%s", wrong);
    f->g->about.format = PLIM_STR("onnx");
    f->g->about.producer = plim_onnx_producer(f->a, &f->m);
    f->g->about.note = plim_str_of(plim_onnx_mode_note(&f->m));
    plim_onnx_name_types(f);
    return f->g->about.producer.p && leave_lost(f) ? PLIM_OK : plim_oom(f->err);
}

static plim_status onnx_read(plim_graph *g, const plim_source *s, const plim_binding *bind,
                             plim_err *err)
{
    plim_err own = PLIM_ERR_INIT;
    onnx *f = PLIM_NEW(g->arena, onnx);
    if (!f)
        return plim_oom(err);
    f->g = g;
    f->a = f->syms.arena = g->arena;
    f->err = &own;
    f->bind = bind;
    f->run_graph = plim_onnx_run_graph;
    plim_nn_init(&f->nn, g, &own);
    plim_status st = read_into(f, s->bytes);
    return st ? plim_fail(err, st, own.at, "%s", own.msg) : PLIM_OK;
}

/* There is no magic: fields of a ModelProto in sequence, with a graph among them, at which a file may be
 * cut off. */
static int onnx_probe(plim_bytes b)
{
    onnx_wire w = plim_onnx_wire(b, NULL);
    onnx_field f = {0};
    bool numbered = false, known = false, graph = false, opset = false;
    /* wire types of the fields up to doc_string, which other protobufs do not have */
    static const uint8_t type[9] = {9, 0, 2, 2, 2, 0, 2, 2, 2};
    for (int i = 0; i < 4096 && plim_onnx_next(&w, &f); i++) {
        if (f.number < PLIM_COUNT(type) && f.type != type[f.number])
            return 0;
        numbered |= f.number == MODEL_IR_VERSION;
        known |= f.number == MODEL_IR_VERSION && plim_onnx_ir_known((int64_t)f.bits);
        graph |= f.number == MODEL_GRAPH;
        opset |= f.number == MODEL_OPSET_IMPORT;
    }
    bool cut = w.bad && f.number == MODEL_GRAPH && f.type == ONNX_BYTES;
    return known && graph               ? (opset && !w.bad ? 85 : 70)
           : numbered && graph && opset ? 60
           : known && cut               ? 50
           : known && opset             ? 40
                                        : 0;
}

const plim_importer plim_importer_onnx = {
    .name = "onnx",
    .doc = "ONNX, IR 3 to 14, operator sets from 7 on",
    .src = "https://github.com/onnx/onnx/blob/main/docs/IR.md",
    .gives = "graph, parameters",
    .probe = onnx_probe,
    .asks = true,
    .read = onnx_read,
    .list = plim_onnx_list,
};
