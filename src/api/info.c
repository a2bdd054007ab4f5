/* info.c -- plim_info_run: the contents of a file, summed by kind, type and module. */
#include "api/api.h"

#include <stdlib.h>

typedef struct info_result {
    plim_info pub;
    plim_arena arena;
} info_result;

typedef struct module {
    plim_info_sum sum;
    uint32_t first, last, next; /* children in the order of their first tensors */
} module;

typedef struct builder {
    plim_arena *a;
    plim_info *out;
    plim_info_sum *held;  /* by kind */
    plim_info_sum *types; /* room for as many as there are tensors */
    plim_map type_ids;
    module *modules;
    uint32_t n_modules, cap_modules;
    plim_map module_ids;
} builder;

PLIM__LIST(tensor_list, plim_info_tensor)
PLIM__LIST(sum_list, plim_info_sum)
PLIM__LIST(pair_list, plim_info_pair)
PLIM__LIST(dim_list, plim_info_dim)

/* ---- tensors ---------------------------------------------------------------------- */

static bool copy_tensor(builder *b, const plim_inventory *v, const plim_item *it,
                        plim_info_tensor *out)
{
    *out = (plim_info_tensor){.name = plim__cstr(b->a, it->name),
                              .type = plim__cstr(b->a, it->type),
                              .kind = it->kind,
                              .rank = it->rank,
                              .elements = it->elements,
                              .bytes = it->bytes};
    memcpy(out->dim, it->dim, sizeof out->dim);
    if (it->same_as != PLIM_NONE && it->same_as < v->n_items &&
        !(out->same_as = plim__cstr(b->a, v->items[it->same_as].name)))
        return false;
    return out->name && out->type;
}

static bool copy_inputs(builder *b, const plim_graph *g)
{
    plim_info_tensor *list = PLIM_NEW_N(b->a, plim_info_tensor, g->n_inputs + 1u);
    for (uint32_t i = 0; list && i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        list[i] = (plim_info_tensor){.name = plim__cstr(b->a, v->name),
                                     .type = plim_dtype_rows[v->meta.dtype].name,
                                     .kind = PLIM_ITEM_OTHER,
                                     .rank = v->meta.rank};
        memcpy(list[i].dim, v->meta.dim, sizeof list[i].dim);
        if (!list[i].name || !plim_meta_numel(&v->meta, &list[i].elements) ||
            !plim_meta_bytes(&v->meta, &list[i].bytes))
            return false;
    }
    b->out->inputs = list ? tensor_list(b->a, list, g->n_inputs) : NULL;
    b->out->n_inputs = g->n_inputs;
    return b->out->inputs != NULL;
}

/* ---- sums --------------------------------------------------------------------------- */

static void add_item(plim_info_sum *s, const plim_item *it)
{
    s->tensors++;
    s->elements = plim_sat_add(s->elements, it->elements);
    s->bytes = plim_sat_add(s->bytes, it->bytes);
}

static bool add_type(builder *b, const plim_item *it)
{
    uint32_t at = b->out->n_types;
    if (!plim_map_get(&b->type_ids, it->type, &at)) {
        b->types[at].name = plim__cstr(b->a, it->type);
        if (!b->types[at].name || !plim_map_put(b->a, &b->type_ids, it->type, at))
            return false;
        b->out->n_types++;
    }
    add_item(&b->types[at], it);
    return true;
}

static int compare_sums(const void *x, const void *y)
{
    const plim_info_sum *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* ---- modules: the dotted prefixes of names, as a tree -------------------------------- */

enum { MODULE_DEPTH = 32 }; /* deeper modules count for the one at this depth */

static bool new_module(builder *b, plim_str path, int depth, uint32_t up, uint32_t *id)
{
    if (!PLIM_PUSH_ROOM(b->a, b->modules, b->n_modules, b->cap_modules))
        return false;
    *id = b->n_modules++;
    b->modules[*id] = (module){.sum = {.name = plim__cstr(b->a, path), .depth = depth},
                               .first = PLIM_NONE,
                               .last = PLIM_NONE,
                               .next = PLIM_NONE};
    if (depth) {
        module *above = &b->modules[up];
        *(above->first == PLIM_NONE ? &above->first : &b->modules[above->last].next) = *id;
        above->last = *id;
    }
    return b->modules[*id].sum.name && plim_map_put(b->a, &b->module_ids, path, *id);
}

/* A tensor counts for its module and for all that contain it: "a.b.weight" for "", "a" and
 * "a.b". */
static bool add_module(builder *b, const plim_item *it)
{
    uint32_t id, up = 0;
    int depth = 1;
    add_item(&b->modules[0].sum, it);
    for (size_t n = 1; n < it->name.n && depth <= MODULE_DEPTH; n++) {
        plim_str path = {it->name.p, n};
        if (it->name.p[n] != '.')
            continue;
        if (!plim_map_get(&b->module_ids, path, &id) && !new_module(b, path, depth, up, &id))
            return false;
        add_item(&b->modules[id].sum, it);
        up = id;
        depth++;
    }
    return true;
}

/* Lists parents before children; the children of a module are pushed in reverse order. */
static bool list_modules(builder *b)
{
    plim_info_sum *rows = PLIM_NEW_N(b->a, plim_info_sum, b->n_modules);
    uint32_t *stack = PLIM_NEW_N(b->a, uint32_t, b->n_modules), n = 1;
    if (!rows || !stack)
        return false;
    for (stack[0] = 0; n;) {
        const module *m = &b->modules[stack[--n]];
        rows[b->out->n_modules++] = m->sum;
        uint32_t from = n;
        for (uint32_t c = m->first; c != PLIM_NONE; c = b->modules[c].next)
            stack[n++] = c;
        for (uint32_t i = from, k = n; i + 1 < k; i++) {
            uint32_t keep = stack[i];
            stack[i] = stack[--k];
            stack[k] = keep;
        }
    }
    b->out->modules = sum_list(b->a, rows, b->out->n_modules);
    return b->out->modules != NULL;
}

/* ---- all of it ------------------------------------------------------------------------ */

static bool sum_items(builder *b, const plim_inventory *v)
{
    plim_info_tensor *list = PLIM_NEW_N(b->a, plim_info_tensor, v->n_items + 1u);
    b->types = PLIM_NEW_N(b->a, plim_info_sum, v->n_items + 1u);
    uint32_t all;
    if (!list || !b->types || !new_module(b, PLIM_STR(""), 0, 0, &all))
        return false;
    for (uint32_t i = 0; i < v->n_items; i++) {
        const plim_item *it = &v->items[i];
        if (!copy_tensor(b, v, it, &list[i]))
            return false;
        if (it->same_as != PLIM_NONE)
            continue;
        add_item(&b->held[it->kind], it);
        if (!add_type(b, it) || !add_module(b, it))
            return false;
    }
    qsort(b->types, b->out->n_types, sizeof *b->types, compare_sums);
    b->out->types = sum_list(b->a, b->types, b->out->n_types);
    b->out->tensors = tensor_list(b->a, list, v->n_items);
    b->out->n_tensors = v->n_items;
    return b->out->types && b->out->tensors && list_modules(b);
}

static bool copy_texts(builder *b, const plim_inventory *v)
{
    plim_info_pair *facts = PLIM_NEW_N(b->a, plim_info_pair, v->n_facts + 1u);
    plim_info_dim *dims = PLIM_NEW_N(b->a, plim_info_dim, v->n_dims + 1u);
    const char **notes = PLIM_NEW_N(b->a, const char *, v->n_notes + 1u);
    if (!facts || !dims || !notes)
        return false;
    for (uint32_t i = 0; i < v->n_facts; i++)
        facts[i] = (plim_info_pair){plim__cstr(b->a, v->facts[i].key),
                                    plim__cstr(b->a, v->facts[i].value)};
    for (uint32_t i = 0; i < v->n_dims; i++)
        dims[i] = (plim_info_dim){plim__cstr(b->a, v->dims[i].name), v->dims[i].value};
    for (uint32_t i = 0; i < v->n_notes; i++)
        notes[i] = plim__cstr(b->a, v->notes[i]);
    b->out->facts = pair_list(b->a, facts, v->n_facts);
    b->out->n_facts = v->n_facts;
    b->out->open_sizes = dim_list(b->a, dims, v->n_dims);
    b->out->n_open_sizes = v->n_dims;
    b->out->notes = notes;
    b->out->n_notes = v->n_notes;
    b->out->format = plim__cstr(b->a, v->format);
    b->out->producer = plim__cstr(b->a, v->producer);
    return b->out->facts && b->out->open_sizes && b->out->format && b->out->producer;
}

static bool name_kinds(builder *b)
{
    b->held = PLIM_NEW_N(b->a, plim_info_sum, PLIM_ITEM_KINDS);
    for (int k = 0; b->held && k < PLIM_ITEM_KINDS; k++)
        b->held[k].name = plim_item_kind_name((plim_item_kind)k);
    b->out->holds = b->held ? sum_list(b->a, b->held, PLIM_ITEM_KINDS) : NULL;
    b->out->n_holds = PLIM_ITEM_KINDS;
    return b->out->holds != NULL;
}

static plim_status info_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_info *out = pub;
    plim_inventory v;
    plim_graph g;
    a->lean = true; /* so that listing a file of 40 GB takes 10 MB */
    plim_job_plain_call(job);
    plim_status st = plim_model_list(job->model, &job->bind, a, &v, &g, &out->graph, err);
    builder b = {.a = a, .out = out};
    if (st)
        return st;
    if (out->graph) {
        out->ops = plim_graph_ops(&g);
        st = plim__unknown_targets(a, &g, &out->unknown_ops, &out->n_unknown_ops, err);
        if (!st && !copy_inputs(&b, &g))
            st = plim_oom(err);
    }
    out->name = plim__cstr(a, out->graph && g.about.name.n ? g.about.name : job->model->name);
    out->reader = job->model->importer ? job->model->importer->name : NULL;
    out->file_bytes = job->model->source.bytes.n;
    out->size = sizeof *out;
    if (!st && (!out->name || !name_kinds(&b) || !copy_texts(&b, &v) || !sum_items(&b, &v)))
        st = plim_oom(err);
    return st;
}

plim_status plim_info_run(const plim_model *m, const plim_settings *s, plim_info **out,
                          plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(info_result), offsetof(info_result, arena), m, s,
                              info_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_info_free(plim_info *i) { plim__result_free(i, offsetof(info_result, arena)); }
