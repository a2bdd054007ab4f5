/* model.c -- see model.h. */
#include "step/model.h"

#include "base/fmt.h"
#include "base/zip.h"
#include "op/op.h"
#include "zoo/zoo.h"

/* "dir/resnet18.pt2" to "resnet18" */
static plim_str stem_of(plim_str path)
{
    plim_str s = path;
    for (size_t i = 0; i < path.n; i++)
        if (path.p[i] == '/')
            s = (plim_str){path.p + i + 1, path.n - i - 1};
    for (size_t i = s.n; i-- > 1;)
        if (s.p[i] == '.')
            return (plim_str){s.p, i};
    return s.n ? s : path;
}

plim_status plim_model_open(plim_model *m, const char *text, plim_err *err)
{
    *m = (plim_model){.text = plim_str_of(text), .name = plim_str_of(text)};
    if (plim_zoo_has(m->text))
        return PLIM_OK;
    plim_err why = PLIM_ERR_INIT;
    if (plim_file_map(&m->file, text, &why)) {
        /* no such file, and more likely a misspelt name than a path: what is near? */
        if (!plim_file_exists(text) && !memchr(text, '/', m->text.n) &&
            !memchr(text, '.', m->text.n))
            return plim_zoo_unknown(m->text, err);
        return plim_fail(err, why.code, why.at, "%s", why.msg);
    }
    m->importer = plim_importer_probe(m->file);
    if (m->importer) {
        m->name = stem_of(m->text);
        return PLIM_OK;
    }
    /* an archive that broke on its way, most often? then say what is wrong with it */
    plim_zip zip;
    plim_status st = PLIM_OK;
    if (plim_zip_is(m->file) && plim_zip_open(&zip, m->file, &why))
        st = plim_fail(err, why.code, why.at, "'%s': %s", text, why.msg);
    plim_model_close(m);
    return st ? st
              : plim_fail(err, PLIM_EFORMAT, 0, "'%s' is in no format that plimsoll reads",
                          text);
}

void plim_model_close(plim_model *m)
{
    plim_file_unmap(&m->file);
    m->importer = NULL;
}

/* ---- into a graph ------------------------------------------------------------ */

/* A second opinion on each node of a file: run its rule on the file's shapes.
 * Where the two disagree the file is right and the rule not to be trusted.
 * Strides are left out: some depend on the device that the model was exported
 * on. */
static plim_status verify(plim_graph *g, plim_err *err)
{
    enum { MAX_OUTS = 64 };
    plim_meta told[MAX_OUTS];
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        plim_node *n = &g->nodes[i];
        plim_err why = PLIM_ERR_INIT;
        if (!n->op || n->n_outs > MAX_OUTS) {
            n->op = NULL;
            continue;
        }
        for (uint32_t k = 0; k < n->n_outs; k++)
            told[k] = g->values[n->outs[k]].meta;
        if (plim_op_infer(g, n, &why) == PLIM_ENOMEM)
            return plim_oom(err);
        bool agree = why.code == PLIM_OK;
        for (uint32_t k = 0; k < n->n_outs; k++) {
            plim_value *v = &g->values[n->outs[k]];
            agree =
                agree && v->meta.dtype == told[k].dtype && plim_same_size(&v->meta, &told[k]);
            v->meta = told[k];
        }
        if (!agree)
            n->op = NULL;
    }
    return PLIM_OK;
}

plim_status plim_model_graph(const plim_model *m, const plim_binding *bind, plim_arena *a,
                             plim_graph *g, plim_err *err)
{
    if (plim_graph_init(g, a, err))
        return PLIM_ENOMEM;
    plim_status st = m->importer ? m->importer->read(g, m->file, bind, err)
                                 : plim_zoo_build(g, m->text, bind, err);
    if (!st && m->importer)
        st = verify(g, err);
    if (st && err && m->importer)
        plim_err_prefix(err, "'" PLIM_STR_FMT "': ", PLIM_STR_ARG(m->text));
    if (!st && !g->name.n)
        g->name = plim_arena_str(a, m->name);
    return st;
}

/* ---- --input -------------------------------------------------------------------- */

static plim_str upto(plim_str *rest, char sep)
{
    const char *p = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    size_t n = p ? (size_t)(p - rest->p) : rest->n;
    plim_str head = {rest->p, n};
    *rest = (plim_str){rest->p + n + (p != NULL), rest->n - n - (p != NULL)};
    return head;
}

plim_status plim_binding_inputs(plim_arena *a, const char *text, plim_binding *bind,
                                plim_err *err)
{
    plim_str rest = plim_str_of(text);
    if (!text)
        return PLIM_OK;
    struct plim_input_shape *list = NULL;
    uint32_t n = 0, cap = 0;
    while (rest.n) {
        plim_str shape = upto(&rest, ';'), name = {NULL, 0};
        if (memchr(shape.p, '=', shape.n))
            name = upto(&shape, '=');
        if (!PLIM_PUSH_ROOM(a, list, n, cap))
            return plim_oom(err);
        list[n] = (struct plim_input_shape){.name = plim_arena_str(a, name)};
        plim_status st =
            plim_parse_shape(shape, list[n].dim, PLIM_MAX_RANK, &list[n].rank, err);
        if (st) {
            plim_err_prefix(err, "input: ");
            return st;
        }
        n++;
    }
    bind->inputs = list;
    bind->n_inputs = n;
    return PLIM_OK;
}
