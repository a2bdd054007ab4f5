/* model.c -- see model.h. */
#include "model/model.h"
#include "machine/machine_run.h"

#include "base/json.h"
#include "base/zip.h"
#include "import/foreign.h"
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

/* What a folder may hold under a name that all such folders use, the file that
 * says most first. */
static const char *const in_folder[] = {
    "config.json",
    "model.safetensors.index.json",
    "model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "saved_model.pb",
    "model_index.json",
};

/* What a folder is that holds none of them, by what it holds instead. */
static const struct {
    const char *file, *is;
} other_folders[] = {
    {"adapter_config.json", "an adapter, not a model: name its model, with --peft"},
};

static plim_status refuse_folder(plim_arena *a, plim_str folder, plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT(other_folders); i++) {
        plim_str path = plim_arena_printf(a, PLIM_STR_FMT "/%s", PLIM_STR_ARG(folder),
                                          other_folders[i].file);
        if (!path.p)
            return plim_oom(err);
        if (plim_file_exists(path.p))
            return plim_fail(err, PLIM_EUNSUPPORTED, 0, "%s %s", other_folders[i].is, path.p);
    }
    return plim_fail(err, PLIM_EFORMAT, 0,
                     "the folder '" PLIM_STR_FMT "' holds no config.json and no weights under "
                     "a usual name: name the file",
                     PLIM_STR_ARG(folder));
}

/* The path of the file that stands for a folder. */
static plim_status find_in_folder(plim_arena *a, plim_str folder, const char **out,
                                  plim_err *err)
{
    while (folder.n > 1 && folder.p[folder.n - 1] == '/')
        folder.n--;
    for (size_t i = 0; i < PLIM_COUNT(in_folder); i++) {
        plim_str path =
            plim_arena_printf(a, PLIM_STR_FMT "/%s", PLIM_STR_ARG(folder), in_folder[i]);
        if (!path.p)
            return plim_oom(err);
        *out = path.p;
        if (plim_file_exists(path.p))
            return PLIM_OK;
    }
    return refuse_folder(a, folder, err);
}

/* "a/llama-7b/" to "llama-7b" */
static plim_str last_of(plim_str path)
{
    while (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    for (size_t i = path.n; i-- > 0;)
        if (path.p[i] == '/' && i + 1 < path.n)
            return (plim_str){path.p + i + 1, path.n - i - 1};
    return path;
}

/* Called "config" a model says nothing: then its folder's name is its name. */
static plim_str name_of(plim_str path)
{
    plim_str file = last_of(path);
    bool usual = false;
    for (size_t i = 0; i < PLIM_COUNT(in_folder); i++)
        usual |= plim_str_is(file, in_folder[i]);
    if (usual && path.n > file.n)
        return last_of((plim_str){path.p, path.n - file.n});
    return stem_of(path);
}

/* Whether it begins as an object of JSON that is none, and is small enough to tell. */
static bool is_broken_json(plim_bytes b, plim_err *why)
{
    plim_str text = {(const char *)b.p, (size_t)b.n};
    plim_json j;
    if (!b.n || b.n > PLIM_PROBED)
        return false;
    plim_json_init(&j, text, NULL);
    j.lax = true;
    plim_json_object(&j);
    if (plim_json_peek(&j) != PLIM_JSON_STRING)
        return false;
    plim_json_init(&j, text, why);
    j.lax = true;
    plim_json_skip(&j);
    return j.bad != PLIM_OK;
}

static plim_status open_failed(const plim_model *m, plim_err *err)
{
    plim_err why = PLIM_ERR_INIT;
    plim_zip zip;
    /* one that broke on its way, most often? then say what is wrong with it */
    if ((plim_zip_is(m->source.bytes) && plim_zip_open(&zip, m->source.bytes, &why)) ||
        is_broken_json(m->source.bytes, &why))
        return plim_fail(err, why.code, why.at, "'%s': %s", plim_model_subject(m), why.msg);
    const plim_foreign *f = plim_foreign_probe(m->source.bytes);
    if (f)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "'%s' is %s, which is not read: %s",
                         plim_model_subject(m), f->what, f->instead);
    return plim_fail(err, PLIM_EFORMAT, 0, "'%s' is in no format that plimsoll reads",
                     plim_model_subject(m));
}

/* The bytes of the source are there: who reads them? */
static plim_status probe_source(plim_model *m, plim_err *err)
{
    plim_status st = plim_importer_for(m->source.bytes, &m->importer, err);
    return st || m->importer ? st : open_failed(m, err);
}

plim_status plim_model_of_bytes(plim_model *m, const char *name, plim_bytes bytes,
                                plim_err *err)
{
    m->text = plim_str_of(name);
    m->name = name_of(m->text);
    m->source = (plim_source){.path = name, .bytes = bytes, .in_memory = true};
    return probe_source(m, err);
}

/* No file has that name: what was meant?  PLIM_OK: a file, by its looks. */
static plim_status check_missing(plim_str text, plim_err *err)
{
    const char *dot = strrchr(text.p, '.'), *digits = "0123456789";
    bool suffix = dot && (!dot[1] || !strchr(digits, dot[1]));
    plim_hub_id id;
    if (plim_hub_parse(text, &id))
        return plim_hub_missing(&id, NULL, err);
    return suffix || memchr(text.p, '/', text.n) ? PLIM_OK : plim_zoo_unknown(text, err);
}

/* Whether the text is of a model that is built in, with the file of that name or without it. */
static bool is_built_in(plim_str text, bool there)
{
    return (!memchr(text.p, '/', text.n) || !there) && plim_zoo_has(text, !there);
}

plim_status plim_model_fetch_text(plim_arena *a, const char *text, bool offline,
                                  const plim_hub_watch *watch, plim_err *err)
{
    plim_hub_id id;
    plim_hub_place place;
    plim_str name = plim_str_of(text);
    if (plim_file_exists(text) || is_built_in(name, false) || !plim_hub_parse(name, &id))
        return PLIM_OK;
    PLIM_TRY(plim_hub_find(a, &id, &place, err));
    offline |= plim_hub_is_offline();
    if (place.whole || (offline && place.snapshot.p))
        return PLIM_OK;
    return offline ? plim_hub_missing(&id, "offline nothing is fetched", err)
                   : plim_hub_fetch(&id, watch, err);
}

plim_status plim_model_find(plim_model *m, plim_arena *a, const char *text, plim_err *err)
{
    plim_str path = plim_str_of(text);
    plim_hub_place hub = {.ref = {NULL, 0}};
    plim_hub_id id;
    plim_status st = PLIM_OK;
    m->text = m->name = path;
    bool there = plim_file_exists(text);
    if (is_built_in(path, there))
        return PLIM_OK;
    if (!there && plim_hub_parse(path, &id))
        st = plim_hub_find(a, &id, &hub, err);
    if (!st && !there && !hub.snapshot.p)
        st = check_missing(path, err);
    path = hub.snapshot.p ? hub.snapshot : path;
    m->source.path = path.p;
    bool folder = !st && plim_file_is_folder(path.p);
    if (folder)
        st = find_in_folder(a, path, &m->source.path, err);
    if (!st)
        st = plim_file_open(&m->source.bytes, m->source.path, folder, err);
    if (st)
        return st;
    m->name = hub.snapshot.p ? id.model : name_of(plim_str_of(m->source.path));
    m->origin = hub.origin;
    return probe_source(m, err);
}

void plim_model_close(plim_model *m)
{
    plim_source_close(&m->source);
    m->importer = NULL;
}

/* ---- into a graph ------------------------------------------------------------ */

/* The values that a node or the caller takes; NULL without memory.  Other results than the
 * first a kernel has for its own backward, of another size on another device. */
static const bool *taken_values(const plim_graph *g)
{
    bool *taken = PLIM_NEW_N(g->arena, bool, g->n_values);
    for (uint32_t i = 0; taken && i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args; k++) {
            const plim_arg *a = &g->nodes[i].args[k];
            for (uint32_t j = 0; j < plim_arg_values(a); j++)
                if (plim_arg_value(a, j) != PLIM_NONE)
                    taken[plim_arg_value(a, j)] = true;
        }
    for (uint32_t i = 0; taken && i < g->n_outputs; i++)
        taken[g->outputs[i]] = true;
    return taken;
}

/* A second opinion on each node of a file: run its rule on the file's shapes.
 * Where the two disagree the file is right and the rule not to be trusted.
 * Strides are left out: some depend on the device that the model was exported
 * on. */
static plim_status verify_nodes(plim_graph *g, plim_err *err)
{
    enum { MAX_OUTS = 64 };
    plim_meta told[MAX_OUTS];
    const bool *taken = NULL; /* asked for rarely */
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
            bool same = v->meta.dtype == told[k].dtype && plim_same_size(&v->meta, &told[k]);
            if (!same && !taken && !(taken = taken_values(g)))
                return plim_oom(err);
            agree = agree && (same || (k && !taken[n->outs[k]]));
            v->meta = told[k];
        }
        if (!agree)
            n->op = NULL;
    }
    return PLIM_OK;
}

/* An op without a rule is counted by its inputs and results: what else it takes is not known. */
static plim_status leave_unknown(plim_graph *g, plim_err *err)
{
    uint32_t n = 0;
    plim_str first = {"", 0};
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].op && !n++)
            first = g->nodes[i].target;
    if (!n)
        return PLIM_OK;
    plim_str name = plim_arena_printf(g->arena, PLIM_STR_FMT, PLIM_STR_CUT(first));
    plim_str says =
        n == 1 ? plim_arena_printf(g->arena,
                                   "what '%s', an op without a rule, takes besides its inputs "
                                   "and results is not counted",
                                   name.p)
               : plim_arena_printf(g->arena,
                                   "what %" PRIu32 " ops without a rule, the first '%s', take "
                                   "besides their inputs and results is not counted",
                                   n, name.p);
    return name.p && says.p && plim_graph_leave_out(g, says) ? PLIM_OK : plim_oom(err);
}

static plim_status read_graph(const plim_model *m, const plim_binding *bind, plim_arena *a,
                              plim_graph *g, plim_err *err)
{
    if (plim_graph_init(g, a, err))
        return PLIM_ENOMEM;
    if (m->importer && !m->importer->read)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "%s", m->importer->without);
    plim_status st = m->importer ? m->importer->read(g, &m->source, bind, err)
                                 : plim_zoo_build(g, m->text, bind, err);
    if (!st && m->importer && !m->importer->built)
        st = verify_nodes(g, err);
    if (!st)
        st = leave_unknown(g, err);
    if (!st && !g->about.name.n)
        g->about.name = plim_arena_str(a, m->name);
    if (!st)
        g->about.origin = plim_arena_str(a, m->origin);
    return st;
}

/* The user's own words are not limited as a file from elsewhere is. */
static uint64_t input_of(const plim_model *m)
{
    return m->importer ? m->source.bytes.n : PLIM_BUDGET_FREE;
}

plim_status plim_model_graph(const plim_model *m, const plim_binding *bind, plim_arena *a,
                             plim_graph *g, plim_err *err)
{
    plim_budget budget;
    plim_budget_begin(&budget, input_of(m));
    plim_status st = plim_budget_end(&budget, read_graph(m, bind, a, g, err), err);
    if (st && err && m->importer)
        plim_err_prefix(err, "'%s': ", plim_model_subject(m));
    return st;
}

/* ---- what it holds -------------------------------------------------------------- */

/* What remains of a graph that could not be built is given back: a list of the file may take as much again. */
static plim_status try_graph(const plim_model *m, const plim_binding *bind, plim_arena *a,
                             plim_graph *g, plim_err *err)
{
    plim_arena own = {.limit = a->limit};
    plim_status st = plim_model_graph(m, bind, &own, g, err);
    if (st) {
        plim_arena_free(&own);
        return st;
    }
    plim_arena_adopt(a, &own);
    g->arena = a;
    return PLIM_OK;
}

/* For training, or if it cannot be trained, for inference: *alone.  err: why not. */
static bool list_graph(const plim_model *m, const plim_binding *bind, plim_arena *a,
                       plim_graph *g, bool *alone, plim_err *err)
{
    plim_binding infer = *bind;
    plim_err none = PLIM_ERR_INIT;
    plim_status st = try_graph(m, bind, a, g, err);
    infer.infer = true;
    *alone = st == PLIM_EUNSUPPORTED && !bind->infer &&
             try_graph(m, &infer, a, g, &none) == PLIM_OK;
    return !st || *alone;
}

static plim_status list_file(const plim_model *m, plim_inventory *v, plim_err *err)
{
    plim_budget budget;
    plim_budget_begin(&budget, m->source.bytes.n);
    plim_status st = plim_budget_end(&budget, m->importer->list(v, &m->source, err), err);
    if (st && err)
        plim_err_prefix(err, "'%s': ", plim_model_subject(m));
    return st;
}

plim_status plim_model_list(const plim_model *m, const plim_binding *bind, plim_arena *a,
                            plim_inventory *v, plim_graph *g, bool *graph, plim_err *err)
{
    const plim_importer *im = m->importer;
    plim_err why = PLIM_ERR_INIT;
    plim_status st = PLIM_OK;
    *v = (plim_inventory){.arena = a};
    bool alone;
    *graph = list_graph(m, bind, a, g, &alone, &why);
    if (!*graph && (!im || !im->list))
        return plim_fail(err, why.code, why.at, "%s", why.msg);
    if (!im || !im->list)
        st = plim_inventory_graph(v, g, err);
    else
        st = list_file(m, v, err);
    if (!st && m->origin.n)
        st = plim_inventory_fact(v, err, "hub", PLIM_STR_FMT, PLIM_STR_ARG(m->origin));
    if (!st && !im)
        st = plim_inventory_about(v, g, err);
    if (!st && alone)
        st = plim_inventory_note(v, err, "a graph for --infer alone: %s", why.msg);
    else if (!st && !*graph && im->read)
        st = plim_inventory_note(v, err, "no graph: %s", why.msg);
    if (!st && !v->format.n && *graph)
        v->format = g->about.format;
    if (!st && !v->producer.n && *graph)
        v->producer = g->about.producer;
    return st;
}
