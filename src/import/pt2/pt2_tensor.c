/* pt2_tensor.c -- see pt2_priv.h. */
#include "import/pt2/pt2_priv.h"

/* ---- pieces of JSON ------------------------------------------------------------ */

plim_json plim_pt2_json_at(const pt2 *f, uint32_t at)
{
    plim_json j = f->text;
    j.at = at;
    return j;
}

bool plim_pt2_enter_union(plim_json *j, plim_str *tag)
{
    return plim_json_object(j) && plim_json_member(j, tag);
}

void plim_pt2_leave_union(plim_json *j)
{
    plim_str key;
    while (plim_json_member(j, &key))
        plim_json_skip(j);
}

plim_str plim_pt2_read_name(plim_json *j)
{
    plim_str name = {NULL, 0}, key;
    if (plim_json_peek(j) == PLIM_JSON_STRING)
        return plim_json_str(j);
    if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        plim_json_skip(j);
        return name;
    }
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "name") || plim_str_is(key, "as_tensor"))
            name = plim_pt2_read_name(j);
        else
            plim_json_skip(j);
    return name;
}

bool plim_pt2_skip_seen(pt2 *f, plim_json *j, pt2_seen *s)
{
    enum { BACK = 32 };
    if (!PLIM_PUSH_ROOM(f->a, s->rows, s->n, s->cap))
        return false;
    if (plim_json_again(j, s->rows[s->last].raw))
        return true;
    uint32_t *next = &s->rows[s->last].next, i = s->n, end = i - PLIM_MIN(i, BACK);
    if (!plim_json_again(j, s->rows[*next].raw)) {
        while (i > end && !plim_json_again(j, s->rows[i - 1].raw))
            i--;
        *next = i > end ? i - 1 : s->n++;
        if (i == end)
            s->rows[*next].raw = plim_json_raw(j);
    }
    s->last = *next;
    return true;
}

static int64_t read_hint(plim_json *j, bool *has)
{
    plim_str tag;
    int64_t v = 0;
    switch (plim_json_peek(j)) {
    case PLIM_JSON_NUMBER: *has = true; return plim_json_i64(j);
    case PLIM_JSON_OBJECT:
        if (plim_pt2_enter_union(j, &tag)) {
            if (plim_str_is(tag, "as_int"))
                v = read_hint(j, has);
            else
                plim_json_skip(j);
            plim_pt2_leave_union(j);
        }
        return v;
    default: plim_json_skip(j); return 0;
    }
}

static void read_expr(plim_json *j, pt2_size *out)
{
    plim_str key;
    out->is_expr = true;
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "expr_str"))
            out->expr = plim_json_str(j);
        else if (plim_str_is(key, "hint"))
            out->value = read_hint(j, &out->has_hint);
        else
            plim_json_skip(j);
}

pt2_size plim_pt2_read_size(plim_json *j)
{
    pt2_size s = {0};
    plim_str tag;
    if (plim_json_peek(j) == PLIM_JSON_NUMBER) {
        s.value = plim_json_i64(j);
    } else if (plim_pt2_enter_union(j, &tag)) {
        if (plim_str_is(tag, "as_int"))
            s.value = plim_json_i64(j);
        else if (plim_str_is(tag, "as_expr"))
            read_expr(j, &s);
        else
            plim_json_fail(j, PLIM_EUNSUPPORTED, "unsupported kind of size '" PLIM_STR_FMT "'",
                           PLIM_STR_ARG(tag));
        plim_pt2_leave_union(j);
    }
    return s;
}

plim_status plim_pt2_eval_size(pt2 *f, const pt2_size *s, int64_t *out)
{
    plim_str missing, symbol;
    *out = s->value;
    if (!s->is_expr)
        return PLIM_OK;
    plim_err why = PLIM_ERR_INIT;
    plim_status st = plim_symexpr_eval(&f->syms, s->expr, out, &missing, &why);
    if (st == PLIM_ESHAPE && missing.n && s->has_hint) {
        if (plim_symexpr_is_symbol(s->expr, &symbol)) {
            plim_symbol *sym = plim_symbol_get(&f->syms, symbol);
            if (!sym)
                return plim_oom(f->err);
            sym->bound = true;
            sym->value = s->value;
            f->bound++;
        }
        *out = s->value;
        return PLIM_OK;
    }
    if (st == PLIM_ESHAPE && missing.n)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, why.at,
                         "size '" PLIM_STR_FMT "' is data-dependent", PLIM_STR_ARG(missing));
    return st ? plim_fail(f->err, st, why.at, "%s", why.msg) : PLIM_OK;
}

/* ---- tensors -------------------------------------------------------------------- */

/* src: torch/_export/serde/schema.py, ScalarType: not the numbers of c10::ScalarType.  Files
 * of torch 2.1 have names instead. */
static const struct {
    int number;
    const char *name;
    plim_dtype dtype;
} scalar_types[] = {
    {1, "BYTE", PLIM_U8},
    {2, "CHAR", PLIM_I8},
    {3, "SHORT", PLIM_I16},
    {4, "INT", PLIM_I32},
    {5, "LONG", PLIM_I64},
    {6, "HALF", PLIM_F16},
    {7, "FLOAT", PLIM_F32},
    {8, "DOUBLE", PLIM_F64},
    {9, "COMPLEXHALF", PLIM_C32},
    {10, "COMPLEXFLOAT", PLIM_C64},
    {11, "COMPLEXDOUBLE", PLIM_C128},
    {12, "BOOL", PLIM_BOOL},
    {13, "BFLOAT16", PLIM_BF16},
    {28, "UINT16", PLIM_U16},
    {29, "FLOAT8E4M3FN", PLIM_F8E4M3FN},
    {30, "FLOAT8E5M2", PLIM_F8E5M2},
    {31, "FLOAT8E4M3FNUZ", PLIM_F8E4M3FNUZ},
    {32, "FLOAT8E5M2FNUZ", PLIM_F8E5M2FNUZ},
};

bool plim_pt2_read_scalar_type(plim_json *j, plim_dtype *out)
{
    bool named = plim_json_peek(j) == PLIM_JSON_STRING;
    plim_str name = named ? plim_json_str(j) : (plim_str){NULL, 0};
    int64_t number = named ? 0 : plim_json_i64(j);
    for (size_t i = 0; i < PLIM_COUNT(scalar_types) && !j->bad; i++)
        if (named ? plim_str_is(name, scalar_types[i].name)
                  : number == scalar_types[i].number) {
            *out = scalar_types[i].dtype;
            return true;
        }
    return false;
}

static int32_t read_sizes(plim_json *j, pt2_size *out)
{
    int32_t n = 0;
    plim_json_array(j);
    while (plim_json_item(j)) {
        if (n == PLIM_MAX_RANK) {
            plim_json_fail(j, PLIM_EUNSUPPORTED, "a tensor of more than %d dimensions",
                           PLIM_MAX_RANK);
            return n;
        }
        out[n++] = plim_pt2_read_size(j);
    }
    return n;
}

/* A TensorMeta, its sizes not evaluated yet. */
static void read_tensor(plim_json *j, pt2_tensor *t)
{
    enum { STRIDED = 7, MKLDNN = 6 };
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        if (plim_str_is(key, "dtype")) {
            if (!plim_pt2_read_scalar_type(j, &t->dtype))
                plim_json_fail(j, PLIM_EUNSUPPORTED, "a tensor of an unknown data type");
        } else if (plim_str_is(key, "sizes")) {
            t->rank = read_sizes(j, t->size);
        } else if (plim_str_is(key, "strides")) {
            t->has_strides = true;
            t->n_strides = read_sizes(j, t->stride);
        } else if (plim_str_is(key, "requires_grad")) {
            t->requires_grad = plim_json_bool(j);
        } else if (plim_str_is(key, "layout") && plim_json_peek(j) == PLIM_JSON_NUMBER) {
            int64_t layout = plim_json_i64(j);
            t->sparse = layout != STRIDED && layout != MKLDNN;
        } else if (plim_str_is(key, "meta")) { /* torch 2.1 wraps it in a TensorValue */
            read_tensor(j, t);
        } else {
            plim_json_skip(j);
        }
    }
}

/* ---- names ----------------------------------------------------------------------- */

/* NULL if there is none. */
static const pt2_name *find_name(const pt2_env *env, plim_str name)
{
    uint32_t at;
    return plim_map_get(&env->tensors, name, &at) ? &env->names[at - 1] : NULL;
}

uint32_t plim_pt2_intern_name(pt2 *f, pt2_env *env, plim_str name)
{
    uint32_t *at = plim_map_at(f->a, &env->tensors, name);
    if (!at || !PLIM_PUSH_ROOM(f->a, env->names, env->n_names, env->cap_names))
        return PLIM_NONE;
    if (!*at) {
        env->names[env->n_names] = (pt2_name){.name = name, .id = PLIM_NONE};
        *at = ++env->n_names;
    }
    return *at - 1;
}

uint32_t plim_pt2_find_value(const pt2_env *env, plim_str name)
{
    const pt2_name *n = find_name(env, name);
    return n ? n->id : PLIM_NONE;
}

plim_status plim_pt2_get_value(pt2 *f, const pt2_env *env, plim_str name, uint32_t *id)
{
    *id = plim_pt2_find_value(env, name);
    return *id != PLIM_NONE ? PLIM_OK : plim_pt2_undefined(f, name);
}

plim_status plim_pt2_undefined(pt2 *f, plim_str name)
{
    return plim_fail(f->err, PLIM_EFORMAT, 0,
                     "tensor '" PLIM_STR_FMT "' is used but not defined", PLIM_STR_ARG(name));
}

/* ---- shapes ---------------------------------------------------------------------- */

static plim_status no_shape(pt2 *f, plim_str name)
{
    return plim_fail(f->err, PLIM_EFORMAT, 0, "tensor '" PLIM_STR_FMT "' has no shape",
                     PLIM_STR_ARG(name));
}

plim_status plim_pt2_find_tensor(pt2 *f, const pt2_env *env, plim_str name, pt2_tensor *t)
{
    const pt2_name *n = find_name(env, name);
    *t = (pt2_tensor){.rank = -1};
    if (!n || !n->at)
        return no_shape(f, name);
    plim_json j = plim_pt2_json_at(f, n->at);
    read_tensor(&j, t);
    if (!j.bad && t->rank < 0)
        plim_json_fail(&j, PLIM_EFORMAT, "tensor '" PLIM_STR_FMT "' has no sizes",
                       PLIM_STR_ARG(name));
    if (!j.bad && t->has_strides && t->n_strides != t->rank)
        plim_json_fail(&j, PLIM_EFORMAT,
                       "tensor '" PLIM_STR_FMT "' has %d sizes and %d strides",
                       PLIM_STR_ARG(name), (int)t->rank, (int)t->n_strides);
    if (!j.bad && t->sparse)
        plim_json_fail(&j, PLIM_EUNSUPPORTED, "tensor '" PLIM_STR_FMT "' is sparse",
                       PLIM_STR_ARG(name));
    return j.bad;
}

/* Whether neither its size in bytes nor the extent of its strides overflows. */
static bool meta_fits(const plim_meta *m)
{
    uint64_t bytes, reach = 1, step;
    for (int32_t i = 0; i < m->rank; i++)
        if (m->dim[i] > 1 &&
            (!plim_mul((uint64_t)m->dim[i] - 1, (uint64_t)m->stride[i], &step) ||
             !plim_add(reach, step, &reach)))
            return false;
    return plim_meta_bytes(m, &bytes) && reach < 1ull << 58;
}

static plim_status tensor_meta(pt2 *f, const pt2_env *env, plim_str name, plim_meta *m,
                               bool *requires_grad)
{
    pt2_tensor t;
    plim_status st = plim_pt2_find_tensor(f, env, name, &t);
    *m = (plim_meta){.dtype = t.dtype, .rank = t.rank};
    *requires_grad = t.requires_grad;
    for (int32_t i = 0; i < t.rank && !st; i++) {
        st = plim_pt2_eval_size(f, &t.size[i], &m->dim[i]);
        if (!st && t.has_strides)
            st = plim_pt2_eval_size(f, &t.stride[i], &m->stride[i]);
    }
    if (st)
        return st;
    if (!t.has_strides)
        plim_meta_contiguous(m);
    char dims[128];
    for (int32_t i = 0; i < m->rank; i++)
        if (m->dim[i] < 0 || m->stride[i] < 0)
            return plim_fail(f->err, PLIM_EFORMAT, 0,
                             "tensor '" PLIM_STR_FMT "' has a negative size or stride",
                             PLIM_STR_ARG(name));
    if (!meta_fits(m))
        return plim_fail(f->err, PLIM_ERANGE, 0,
                         "tensor '" PLIM_STR_FMT "' of %s is too large", PLIM_STR_ARG(name),
                         plim_meta_str(m, dims, sizeof dims));
    return PLIM_OK;
}

plim_status plim_pt2_add_value(pt2 *f, pt2_env *env, uint32_t name, plim_value v, uint32_t *id)
{
    pt2_name *n = &env->names[name];
    if (n->id != PLIM_NONE)
        return plim_fail(f->err, PLIM_EFORMAT, 0, "tensor '" PLIM_STR_FMT "' is defined twice",
                         PLIM_STR_ARG(n->name));
    if (!n->at)
        return no_shape(f, n->name);
    pt2_shape *t = &env->shapes[n->shape];
    if (t->read != f->bound) {
        uint32_t bound = f->bound;
        PLIM_TRY(tensor_meta(f, env, n->name, &t->meta, &t->requires_grad));
        t->read = bound;
    }
    v.meta = t->meta;
    v.name = plim_json_unescape(f->a, v.name);
    v.requires_grad = v.kind == PLIM_VALUE_PARAMETER && t->requires_grad;
    v.tied_to = PLIM_NONE;
    v.node = PLIM_NONE;
    if (!v.name.p || (*id = plim_graph_add_value(f->g, &v)) == PLIM_NONE)
        return plim_oom(f->err);
    n->id = *id;
    return PLIM_OK;
}
