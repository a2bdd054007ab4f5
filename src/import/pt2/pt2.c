/* pt2.c -- torch.export archives (.pt2), and the model JSON taken out of one.
 *
 * The reader goes by the fields that are present, not by version: torch 2.1 to 2.15 differ in
 * where the archive keeps its JSON and in which optional fields they write.
 * docs/formats/pt2.md says what is read. */
#include "base/zip.h"
#include "import/pt2/casts.h"
#include "import/pt2/pt2_priv.h"
#include "import/pt2/ties.h"

#define PT2_JSON_LIMIT (1ull << 30)

/* ---- signature: what the graph's inputs and outputs are -------------------- */

/* src: torch/_export/serde/schema.py, InputSpec.  Kinds not listed (tokens, custom objects,
 * plain numbers) are not tensors. */
static const struct {
    const char *tag, *name_key;
    plim_value_kind kind;
} input_specs[] = {
    {"parameter", "parameter_name", PLIM_VALUE_PARAMETER},
    {"buffer", "buffer_name", PLIM_VALUE_BUFFER},
    {"tensor_constant", "tensor_constant_name", PLIM_VALUE_CONSTANT},
    {"user_input", "", PLIM_VALUE_INPUT},
};

/* The same, as torch 2.1 wrote it: {"arg": "name in the model"}. */
static const struct {
    const char *key;
    plim_value_kind kind;
} input_dicts[] = {
    {"inputs_to_parameters", PLIM_VALUE_PARAMETER},
    {"inputs_to_buffers", PLIM_VALUE_BUFFER},
    {"inputs_to_lifted_tensor_constants", PLIM_VALUE_CONSTANT},
};

static bool read_input_spec(pt2 *f, plim_json *j)
{
    plim_str tag, key;
    if (!plim_pt2_enter_union(j, &tag))
        return !j->bad;
    size_t i = 0;
    while (i < PLIM_COUNT(input_specs) && !plim_str_is(tag, input_specs[i].tag))
        i++;
    if (i == PLIM_COUNT(input_specs)) {
        plim_json_skip(j);
        plim_pt2_leave_union(j);
        return true;
    }
    pt2_input in = {.kind = input_specs[i].kind, .persistent = true};
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "arg"))
            in.arg = plim_pt2_read_name(j);
        else if (plim_str_is(key, input_specs[i].name_key))
            in.name = plim_pt2_read_name(j);
        else if (plim_str_is(key, "persistent") && plim_json_peek(j) == PLIM_JSON_BOOL)
            in.persistent = plim_json_bool(j);
        else
            plim_json_skip(j);
    plim_pt2_leave_union(j);
    if (!in.name.n)
        in.name = in.arg;
    return !in.arg.n || PT2_PUSH(f, inputs, n_inputs, cap_inputs, in);
}

static bool read_output_spec(pt2 *f, plim_json *j)
{
    plim_str tag, key, name = {NULL, 0};
    if (!plim_pt2_enter_union(j, &tag))
        return !j->bad;
    bool wanted = plim_str_is(tag, "user_output") || plim_str_is(tag, "loss_output");
    if (wanted) {
        plim_json_object(j);
        while (plim_json_member(j, &key))
            if (plim_str_is(key, "arg"))
                name = plim_pt2_read_name(j);
            else
                plim_json_skip(j);
    } else {
        plim_json_skip(j);
    }
    plim_pt2_leave_union(j);
    return !name.n || PT2_PUSH(f, outputs, n_outputs, cap_outputs, name);
}

static bool read_input_dict(pt2 *f, plim_json *j, plim_value_kind kind)
{
    pt2_input in = {.kind = kind, .persistent = true};
    plim_json_object(j);
    while (plim_json_member(j, &in.arg)) {
        in.name = plim_json_str(j);
        if (!PT2_PUSH(f, inputs, n_inputs, cap_inputs, in))
            return false;
    }
    return true;
}

/* "user_inputs" and "user_outputs" are names, as torch 2.1 wrote them. */
static bool read_user_input(pt2 *f, plim_json *j)
{
    plim_str name = plim_pt2_read_name(j);
    pt2_input in = {PLIM_VALUE_INPUT, name, name, true};
    return !name.n || PT2_PUSH(f, inputs, n_inputs, cap_inputs, in);
}

static bool read_user_output(pt2 *f, plim_json *j)
{
    plim_str name = plim_pt2_read_name(j);
    return !name.n || PT2_PUSH(f, outputs, n_outputs, cap_outputs, name);
}

/* Calls `read` for each item of a list; false: no memory. */
static bool read_items(pt2 *f, plim_json *j, bool (*read)(pt2 *f, plim_json *j))
{
    bool room = true;
    plim_json_array(j);
    while (room && plim_json_item(j))
        room = read(f, j);
    return room;
}

static plim_status read_signature(pt2 *f, plim_json *j)
{
    plim_str key;
    bool room = true;
    plim_json_object(j);
    while (room && plim_json_member(j, &key)) {
        size_t i = 0;
        while (i < PLIM_COUNT(input_dicts) && !plim_str_is(key, input_dicts[i].key))
            i++;
        if (i < PLIM_COUNT(input_dicts)) {
            room = read_input_dict(f, j, input_dicts[i].kind);
        } else if (plim_str_is(key, "input_specs")) {
            room = read_items(f, j, read_input_spec);
        } else if (plim_str_is(key, "output_specs")) {
            room = read_items(f, j, read_output_spec);
        } else if (plim_str_is(key, "user_inputs")) {
            room = read_items(f, j, read_user_input);
        } else if (plim_str_is(key, "user_outputs")) {
            room = read_items(f, j, read_user_output);
        } else {
            plim_json_skip(j);
        }
    }
    return j->bad ? j->bad : room ? PLIM_OK : plim_oom(f->err);
}

/* ---- the top ------------------------------------------------------------------ */

static int64_t read_bound(plim_json *j, int64_t unbounded)
{
    if (plim_json_peek(j) == PLIM_JSON_NUMBER)
        return plim_json_i64(j);
    plim_json_skip(j);
    return unbounded;
}

static plim_status read_ranges(pt2 *f, plim_json *j)
{
    plim_str key;
    pt2_range r;
    plim_json_object(j);
    while (plim_json_member(j, &r.expr)) {
        r.min = 0;
        r.max = INT64_MAX;
        plim_json_object(j);
        while (plim_json_member(j, &key))
            if (plim_str_is(key, "min_val"))
                r.min = read_bound(j, 0);
            else if (plim_str_is(key, "max_val"))
                r.max = read_bound(j, INT64_MAX);
            else
                plim_json_skip(j);
        if (!PT2_PUSH(f, ranges, n_ranges, cap_ranges, r))
            return plim_oom(f->err);
    }
    return j->bad;
}

static plim_status read_module(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_str key;
    plim_status st = PLIM_OK;
    bool graph = false, signature = false;
    plim_json_object(j);
    while (!st && plim_json_member(j, &key))
        if (plim_str_is(key, "graph")) {
            graph = true;
            st = plim_pt2_note_graph(f, j, env);
        } else if (plim_str_is(key, "signature")) {
            signature = true;
            st = read_signature(f, j);
        } else {
            if (plim_str_is(key, "module_call_graph") && plim_json_peek(j) == PLIM_JSON_ARRAY)
                f->calls = (uint32_t)j->at;
            plim_json_skip(j);
        }
    if (!st && !j->bad && (!graph || !signature))
        plim_json_fail(j, PLIM_EFORMAT, "an exported program without %s",
                       graph ? "signature" : "graph");
    return st ? st : j->bad;
}

/* A text of the Python package about an export that it made. */
static plim_str read_told(pt2 *f, plim_json *j)
{
    if (plim_json_peek(j) == PLIM_JSON_STRING)
        return plim_json_unescape(f->a, plim_json_str(j));
    plim_json_skip(j);
    return PLIM_STR("");
}

static plim_status read_program(pt2 *f, plim_json *j, pt2_env *env)
{
    plim_str key;
    plim_status st = PLIM_OK;
    bool found = false;
    f->note = f->source = f->attention = f->type = f->left_out = PLIM_STR("");
    plim_json_object(j);
    while (!st && plim_json_member(j, &key))
        if (plim_str_is(key, "graph_module")) {
            found = true;
            st = read_module(f, j, env);
        } else if (plim_str_is(key, "range_constraints")) {
            st = read_ranges(f, j);
        } else if (plim_str_is(key, "torch_version") &&
                   plim_json_peek(j) == PLIM_JSON_STRING) {
            f->producer = plim_json_str(j);
        } else if (plim_str_is(key, "plimsoll_note")) {
            f->note = read_told(f, j);
        } else if (plim_str_is(key, "plimsoll_source")) {
            f->source = read_told(f, j);
        } else if (plim_str_is(key, "plimsoll_left_out")) {
            f->left_out = read_told(f, j);
        } else if (plim_str_is(key, "plimsoll_attention")) {
            f->attention = read_told(f, j);
        } else if (plim_str_is(key, "plimsoll_model_type")) {
            f->type = read_told(f, j);
        } else {
            plim_json_skip(j);
        }
    if (!st && !plim_json_end(j) && !found)
        plim_json_fail(j, PLIM_EFORMAT, "JSON without 'graph_module'");
    if (!f->note.p || !f->source.p || !f->attention.p || !f->type.p || !f->left_out.p)
        return plim_oom(f->err);
    return st ? st : j->bad;
}

static plim_status add_inputs(pt2 *f, pt2_env *env)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < f->n_inputs && !st; i++) {
        const pt2_input *in = &f->inputs[i];
        plim_value v = {.name = in->name, .kind = in->kind, .persistent = in->persistent};
        uint32_t id, name = plim_pt2_intern_name(f, env, in->arg);
        if (name == PLIM_NONE)
            return plim_oom(f->err);
        st = plim_pt2_add_value(f, env, name, v, &id);
        if (!st && in->kind == PLIM_VALUE_INPUT && !plim_graph_add_input(f->g, id))
            return plim_oom(f->err);
    }
    return st;
}

static plim_status add_outputs(pt2 *f, const pt2_env *env)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < f->n_outputs && !st; i++) {
        uint32_t id;
        st = plim_pt2_get_value(f, env, f->outputs[i], &id);
        if (!st && !plim_graph_add_output(f->g, id))
            return plim_oom(f->err);
    }
    return st;
}

/* ---- what modules were called with ------------------------------------------------ */

/* {"inputs": [{"as_tensor": {"name": "x"}}, {"as_none": true}, ..], ..} */
static bool read_call_args(pt2 *f, const pt2_env *env, plim_json *j, uint32_t **ids,
                           uint32_t *n)
{
    plim_str key;
    uint32_t cap = 0;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        if (!plim_str_is(key, "inputs") || plim_json_peek(j) != PLIM_JSON_ARRAY) {
            plim_json_skip(j);
            continue;
        }
        plim_json_array(j);
        while (plim_json_item(j)) {
            plim_str name = plim_pt2_read_name(j);
            uint32_t id = name.n ? plim_pt2_find_value(env, name) : PLIM_NONE;
            if (id == PLIM_NONE)
                continue;
            if (!PLIM_PUSH_ROOM(f->a, *ids, *n, cap))
                return false;
            (*ids)[(*n)++] = id;
        }
    }
    return true;
}

/* The arguments of modules whose signature the export kept (preserve_module_call_signature),
 * for the first call of each: later ones are called "path@1". */
static plim_status read_calls(pt2 *f, const pt2_env *env)
{
    plim_json j = plim_pt2_json_at(f, f->calls);
    plim_map scopes = {0};
    uint32_t seen;
    for (uint32_t i = 0; i < f->g->n_scopes; i++)
        if (!plim_map_get(&scopes, f->g->scopes[i].path, &seen) &&
            !plim_map_put(f->a, &scopes, f->g->scopes[i].path, i))
            return plim_oom(f->err);
    plim_json_array(&j);
    while (plim_json_item(&j)) {
        plim_str key, path = {NULL, 0};
        uint32_t *ids = NULL, n = 0, scope;
        plim_json_object(&j);
        while (plim_json_member(&j, &key))
            if (plim_str_is(key, "fqn") && plim_json_peek(&j) == PLIM_JSON_STRING)
                path = plim_json_str(&j);
            else if (!plim_str_is(key, "signature") || plim_json_peek(&j) != PLIM_JSON_OBJECT)
                plim_json_skip(&j);
            else if (!read_call_args(f, env, &j, &ids, &n))
                return plim_oom(f->err);
        if (n && plim_map_get(&scopes, path, &scope)) {
            f->g->scopes[scope].args = ids;
            f->g->scopes[scope].n_args = n;
        }
    }
    return j.bad;
}

static plim_status read_graph(pt2 *f)
{
    pt2_env env = {0};
    plim_json j = f->text;
    plim_status st = read_program(f, &j, &env);
    if (!st)
        st = plim_pt2_bind_sizes(f, &env);
    if (!st) /* most names belong to a value, and a node makes one */
        plim_graph_expect(f->g, env.n_names + env.n_names / 8);
    if (!st)
        st = add_inputs(f, &env);
    if (!st)
        st = plim_pt2_run_nodes(f, &env);
    if (!st && f->calls)
        st = read_calls(f, &env);
    return st ? st : add_outputs(f, &env);
}

/* ---- the mode of the export ---------------------------------------------------------- */

typedef enum pt2_mode { MODE_BOTH, MODE_EVAL, MODE_TRAIN } pt2_mode;

/* "dropout" of "aten.dropout.default" */
static plim_str op_name(const plim_node *n)
{
    static const char lib[] = "aten.";
    plim_str name = n->target;
    if (n->op)
        return plim_str_of(n->op->name);
    if (name.n > sizeof lib && memcmp(name.p, lib, sizeof lib - 1) == 0)
        name = (plim_str){name.p + sizeof lib - 1, name.n - (sizeof lib - 1)};
    return plim_pt2_upto(&name, '.');
}

/* The mode in which the op was exported.  (An unused dropout, p = 0, does the same in both.)
 * Those that run_decompositions() leaves have one mode each. */
static pt2_mode node_mode(const plim_node *n)
{
    static const struct {
        const char *op;
        uint32_t slot; /* of the argument that says so, if the mode is MODE_BOTH */
        pt2_mode mode;
    } rows[] = {{"batch_norm", 5, MODE_BOTH},
                {"dropout", 2, MODE_BOTH},
                {"feature_dropout", 2, MODE_BOTH},
                {"_native_batch_norm_legit_no_training", 0, MODE_EVAL},
                {"_native_batch_norm_legit_functional", 0, MODE_TRAIN},
                {"native_dropout", 0, MODE_TRAIN}};
    plim_str name = op_name(n);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        uint32_t slot = rows[i].slot;
        if (!plim_str_is(name, rows[i].op))
            continue;
        if (rows[i].mode != MODE_BOTH)
            return rows[i].mode;
        if (slot >= n->n_args || n->args[slot].kind != PLIM_ARG_INT)
            return MODE_BOTH;
        bool unused = slot == 2 && n->args[1].kind == PLIM_ARG_FLOAT && !(n->args[1].f > 0);
        return unused ? MODE_BOTH : n->args[slot].i ? MODE_TRAIN : MODE_EVAL;
    }
    return MODE_BOTH;
}

/* What an export made after model.eval() lacks in training; "" if any op is in train mode,
 * because a script may freeze the others on purpose. */
static plim_str mode_note(const plim_graph *g)
{
    bool eval = false;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        pt2_mode mode = node_mode(&g->nodes[i]);
        if (mode == MODE_TRAIN)
            return PLIM_STR("");
        eval |= mode == MODE_EVAL;
    }
    return eval ? PLIM_STR("The file was exported after model.eval(): batch norms use their "
                           "stored statistics and dropouts do nothing, unlike in a training "
                           "step after model.train().")
                : PLIM_STR("");
}

/* ---- archives ---------------------------------------------------------------------- */

typedef struct pt2_file {
    bool archive;
    plim_zip zip;
    plim_zip_entry entry; /* the model JSON */
    plim_zip_member json; /* its contents */
    plim_str model;       /* its name, "model" unless given */
} pt2_file;

/* "root/models/NAME.json", whatever the root is called: sets NAME. */
static bool is_model(plim_str path, plim_str *name)
{
    static const char tail[] = ".json", flat[] = "serialized_exported_program.json";
    plim_str file = plim_pt2_after_last(path, '/'), dir = {path.p, path.n - file.n};
    size_t n = sizeof tail - 1;
    if (plim_str_is(file, flat)) {
        *name = PLIM_STR("model");
        return true;
    }
    if (dir.n)
        dir.n--;
    if (!plim_str_is(plim_pt2_after_last(dir, '/'), "models") || file.n <= n ||
        memcmp(file.p + file.n - n, tail, n) != 0)
        return false;
    *name = (plim_str){file.p, file.n - n};
    return true;
}

/* Finds the only model, or the one of several that is called "model". */
static uint32_t find_models(pt2_file *p)
{
    plim_zip_entry e;
    plim_str name;
    uint32_t n = 0;
    for (uint64_t cursor = 0; plim_zip_next(&p->zip, &cursor, &e);)
        if (is_model(e.name, &name)) {
            if (!n || plim_str_is(name, "model")) {
                p->entry = e;
                p->model = name;
            }
            n++;
        }
    return n;
}

/* "root/data/aotinductor/...": compiled kernels; their graph is not in the archive. */
static bool has_compiled(const plim_zip *z)
{
    plim_zip_entry e;
    for (uint64_t cursor = 0; plim_zip_next(z, &cursor, &e);)
        for (plim_str rest = e.name; rest.n;)
            if (plim_str_is(plim_pt2_upto(&rest, '/'), "aotinductor"))
                return true;
    return false;
}

static plim_status open_archive(pt2_file *p, plim_bytes b, plim_arena *a, plim_err *err)
{
    PLIM_TRY(plim_zip_open(&p->zip, b, err));
    uint32_t n = find_models(p);
    if (!n && has_compiled(&p->zip))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "a compiled package without a graph: save the model with "
                         "torch.export.save");
    if (!n)
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "an archive without an exported program: torch.export.save did not "
                         "finish, or another program wrote it");
    if (n > 1 && !plim_str_is(p->model, "model"))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "a package of %u models: save one model per file", (unsigned)n);
    return plim_zip_begin(&p->zip, &p->entry, a, PT2_JSON_LIMIT, &p->json, err);
}

/* ---- tied weights by their place in the archive ------------------------------------ */

typedef struct pt2_payload {
    uint32_t value;
    plim_str place;
} pt2_payload;

/* Names of the non-empty records under data/weights: in an export from the meta device they
 * are empty. */
static bool index_records(pt2 *f, const plim_zip *z, plim_map *records)
{
    plim_zip_entry e;
    for (uint64_t cursor = 0; plim_zip_next(z, &cursor, &e);) {
        plim_str file = plim_pt2_after_last(e.name, '/'), dir = {e.name.p, e.name.n - file.n};
        if (dir.n)
            dir.n--;
        if (e.size && plim_str_is(plim_pt2_after_last(dir, '/'), "weights") &&
            !plim_map_put(f->a, records, file, 1))
            return false;
    }
    return true;
}

/* {"path_name": "weight_0", "tensor_meta": {"storage_offset": ..}}: a text that is equal for
 * the same place in the same record. */
static plim_str read_place(pt2 *f, plim_json *j, const plim_map *records)
{
    plim_str key, inner, path = {NULL, 0};
    int64_t offset = 0;
    uint32_t one;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        if (plim_str_is(key, "path_name") && plim_json_peek(j) == PLIM_JSON_STRING) {
            path = plim_json_str(j);
        } else if (plim_str_is(key, "tensor_meta") && plim_json_peek(j) == PLIM_JSON_OBJECT) {
            plim_json_object(j);
            while (plim_json_member(j, &inner))
                if (plim_str_is(inner, "storage_offset"))
                    offset = plim_pt2_read_size(j).value;
                else
                    plim_json_skip(j);
        } else {
            plim_json_skip(j);
        }
    }
    if (j->bad || !plim_map_get(records, path, &one))
        return (plim_str){NULL, 0};
    return plim_arena_printf(f->a, "%" PRId64 " " PLIM_STR_FMT, offset, PLIM_STR_ARG(path));
}

/* Parameters stored at one place are tied; torch.export assigns the uses to the last one. */
static bool tie_places(pt2 *f, const pt2_payload *list, uint32_t n)
{
    plim_map last = {0};
    uint32_t id;
    for (uint32_t i = 0; i < n; i++)
        if (!plim_map_put(f->a, &last, list[i].place, list[i].value))
            return false;
    for (uint32_t i = 0; i < n; i++) {
        plim_value *v = &f->g->values[list[i].value];
        if (plim_map_get(&last, list[i].place, &id) && id != list[i].value &&
            v->meta.dtype == f->g->values[id].meta.dtype &&
            plim_same_size(&v->meta, &f->g->values[id].meta))
            v->tied_to = id;
    }
    return true;
}

/* *known: the archive gives the place of each weight. */
static plim_status tie_by_place(pt2 *f, const pt2_file *p, bool *known)
{
    plim_zip_entry e;
    plim_bytes text;
    plim_map names = {0}, records = {0};
    pt2_payload *list = NULL;
    uint32_t n = 0, cap = 0;
    plim_str key, fqn, file;
    *known = false;
    file = plim_arena_printf(f->a, "weights/" PLIM_STR_FMT "_weights_config.json",
                             PLIM_STR_ARG(p->model));
    if (!file.p)
        return plim_oom(f->err);
    if (!p->archive || !plim_zip_find(&p->zip, file.p, &e))
        return PLIM_OK;
    PLIM_TRY(plim_zip_read(&p->zip, &e, f->a, PT2_JSON_LIMIT, &text, f->err));
    for (uint32_t i = 0; i < f->g->n_values; i++)
        if (f->g->values[i].kind == PLIM_VALUE_PARAMETER &&
            !plim_map_put(f->a, &names, f->g->values[i].name, i))
            return plim_oom(f->err);
    if (!index_records(f, &p->zip, &records))
        return plim_oom(f->err);
    plim_json j;
    plim_json_init(&j, (plim_str){(const char *)text.p, (size_t)text.n}, f->err);
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (!plim_str_is(key, "config") || plim_json_peek(&j) != PLIM_JSON_OBJECT) {
            plim_json_skip(&j);
            continue;
        }
        plim_json_object(&j);
        while (plim_json_member(&j, &fqn)) {
            pt2_payload one = {0, read_place(f, &j, &records)};
            if (!one.place.p || !plim_map_get(&names, fqn, &one.value))
                continue;
            if (!PLIM_PUSH_ROOM(f->a, list, n, cap))
                return plim_oom(f->err);
            list[n++] = one;
        }
    }
    *known = n > 0;
    return j.bad ? j.bad : tie_places(f, list, n) ? PLIM_OK : plim_oom(f->err);
}

static bool add_note(pt2 *f, plim_str note)
{
    plim_str *all = &f->g->about.note;
    if (note.n)
        *all = all->n ? plim_arena_printf(f->a, PLIM_STR_FMT " " PLIM_STR_FMT,
                                          PLIM_STR_ARG(*all), PLIM_STR_ARG(note))
                      : note;
    return !note.n || all->p;
}

/* ---- the importer ------------------------------------------------------------------- */

static plim_status pt2_import(pt2 *f, const pt2_file *p)
{
    bool known;
    plim_status st = read_graph(f);
    if (!st)
        st = tie_by_place(f, p, &known);
    if (!st && !known)
        st = plim_ties_find(f->g, f->err);
    if (st)
        return st;
    const char *wrong = plim_graph_check(f->g);
    if (wrong)
        return plim_fail(f->err, PLIM_EFORMAT, 0, "%s", wrong);
    PLIM_TRY(plim_casts_undo(f->g, f->err));
    plim_str version = plim_pt2_upto(&f->producer, '+');
    f->g->about.format = PLIM_STR("pt2");
    if (!f->bind || !f->bind->infer)
        f->g->about.note = mode_note(f->g);
    if (!add_note(f, f->note) || (f->left_out.n && !plim_graph_leave_out(f->g, f->left_out)) ||
        (f->autocast &&
         !plim_graph_leave_out(f->g, PLIM_STR("a part of the model enters torch.autocast "
                                              "itself, whose casts are not counted"))))
        return plim_oom(f->err);
    f->g->about.producer =
        plim_arena_printf(f->a, PLIM_STR_FMT "%storch%s" PLIM_STR_FMT,
                          (int)PLIM_MIN(f->source.n, 80), f->source.p, f->source.n ? ", " : "",
                          version.n ? " " : "", (int)PLIM_MIN(version.n, 40), version.p);
    f->g->about.attention = f->attention;
    f->g->about.model_type = f->type;
    if (p->archive && !plim_str_is(p->model, "model"))
        f->g->about.name = plim_json_unescape(f->a, p->model);
    return f->g->about.producer.p &&
                   (!p->archive || plim_str_is(p->model, "model") || f->g->about.name.p)
               ? PLIM_OK
               : plim_oom(f->err);
}

static plim_status read_json(plim_graph *g, const pt2_file *p, plim_bytes json, uint64_t base,
                             const plim_binding *bind, plim_err *err)
{
    pt2 f = {.g = g, .a = g->arena, .err = err, .bind = bind, .bound = 1};
    f.syms.arena = g->arena;
    plim_json_init(&f.text, (plim_str){(const char *)json.p, (size_t)json.n}, err);
    f.text.base = base;
    return pt2_import(&f, p);
}

/* The JSON is read while its checksum is computed: a wrong checksum takes precedence over
 * other errors. */
static plim_status read_archive(plim_graph *g, plim_bytes b, const plim_binding *bind,
                                plim_err *err)
{
    pt2_file p = {.archive = true};
    PLIM_TRY(open_archive(&p, b, g->arena, err));
    plim_err why = PLIM_ERR_INIT;
    uint64_t base = p.entry.method == 0 ? (uint64_t)(p.json.bytes.p - b.p) : 0;
    plim_status st = read_json(g, &p, p.json.bytes, base, bind, &why);
    plim_status damaged = plim_zip_check(&p.json, err);
    return damaged ? damaged : st ? plim_fail(err, st, why.at, "%s", why.msg) : PLIM_OK;
}

static plim_status pt2_read(plim_graph *g, const plim_source *s, const plim_binding *bind,
                            plim_err *err)
{
    plim_bytes b = s->bytes;
    pt2_file alone = {.archive = false};
    if (plim_zip_is(b))
        return read_archive(g, b, bind, err);
    if (b.n > PT2_JSON_LIMIT)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "a model JSON of %" PRIu64 " bytes, more than %llu", b.n,
                         PT2_JSON_LIMIT);
    PLIM_TRY(plim_bytes_need(b, 0, b.n, err));
    return read_json(g, &alone, b, 0, bind, err);
}

/* What the Python package notes of an export, before all else: a file of torch's own says
 * nothing. */
static plim_status pt2_settings(const plim_source *s, const plim_given *given, plim_arena *a,
                                const char **out, plim_err *err)
{
    enum { FAR = 4096 };
    plim_bytes b = s->bytes;
    plim_json j;
    plim_str key, text = PLIM_STR("");
    (void)given;
    PLIM_TRY(plim_bytes_need(b, 0, PLIM_MIN(b.n, (uint64_t)FAR), err));
    plim_json_init(&j, (plim_str){(const char *)b.p, (size_t)PLIM_MIN(b.n, (uint64_t)FAR)},
                   NULL);
    plim_json_object(&j);
    if (!plim_zip_is(b) && plim_json_member(&j, &key) &&
        plim_str_is(key, "plimsoll_settings") && plim_json_peek(&j) == PLIM_JSON_STRING)
        text = plim_json_str(&j);
    *out = plim_json_unescape(a, text).p;
    return *out ? PLIM_OK : plim_oom(err);
}

/* The model JSON on its own: an object whose "graph_module" comes early. */
static bool is_program(plim_bytes b)
{
    plim_json j;
    plim_str key;
    plim_json_init(&j, (plim_str){(const char *)b.p, (size_t)PLIM_MIN(b.n, 1u << 16)}, NULL);
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (plim_str_is(key, "graph_module"))
            return true;
        plim_json_skip(&j);
    }
    return false;
}

static int pt2_probe(plim_bytes b)
{
    pt2_file p = {0};
    plim_zip_entry e;
    if (!plim_zip_is(b))
        return is_program(b) ? 90 : 0;
    if (plim_zip_open(&p.zip, b, NULL))
        return 0;
    return find_models(&p) ? 95 : plim_zip_find(&p.zip, "archive_format", &e) ? 60 : 0;
}

const plim_importer plim_importer_pt2 = {
    .name = "pt2",
    .doc = "torch.export archive, torch 2.1 to 2.15, or the model JSON out of one",
    .src = "https://docs.pytorch.org/docs/stable/export/pt2_archive.html",
    .gives = "graph, parameters",
    .probe = pt2_probe,
    .asks = true,
    .read = pt2_read,
    .settings = pt2_settings,
};
