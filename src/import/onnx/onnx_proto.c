/* onnx_proto.c -- see onnx_priv.h.  Field numbers: onnx.proto, which never changes them.  src:
 * https://github.com/onnx/onnx/blob/main/onnx/onnx.proto */
#include "import/onnx/onnx_fields.h"
#include "import/onnx/onnx_priv.h"

#define PUSH(m, list, n, cap) PLIM_PUSH_ROOM((m)->a, list, n, cap)

/* clang-format off */
static const onnx_type types[] = {
    [1]  = {"fp32",         32, PLIM_F32, true},
    [2]  = {"uint8",         8, PLIM_U8, true},
    [3]  = {"int8",          8, PLIM_I8, true},
    [4]  = {"uint16",       16, PLIM_U16, true},
    [5]  = {"int16",        16, PLIM_I16, true},
    [6]  = {"int32",        32, PLIM_I32, true},
    [7]  = {"int64",        64, PLIM_I64, true},
    [8]  = {"string",        0, PLIM_U8, false},
    [9]  = {"bool",          8, PLIM_BOOL, true},
    [10] = {"fp16",         16, PLIM_F16, true},
    [11] = {"fp64",         64, PLIM_F64, true},
    [12] = {"uint32",       32, PLIM_U32, true},
    [13] = {"uint64",       64, PLIM_U64, true},
    [14] = {"complex64",    64, PLIM_C64, true},
    [15] = {"complex128",  128, PLIM_C128, true},
    [16] = {"bf16",         16, PLIM_BF16, true},
    [17] = {"fp8_e4m3fn",    8, PLIM_F8E4M3FN, true},
    [18] = {"fp8_e4m3fnuz",  8, PLIM_F8E4M3FNUZ, true},
    [19] = {"fp8_e5m2",      8, PLIM_F8E5M2, true},
    [20] = {"fp8_e5m2fnuz",  8, PLIM_F8E5M2FNUZ, true},
    [21] = {"uint4",         4, PLIM_QUINT4X2, true}, /* of 4 and 2 bits there is one */
    [22] = {"int4",          4, PLIM_QUINT4X2, true}, /* torch type each: bytes count */
    [23] = {"fp4_e2m1",      4, PLIM_QUINT4X2, true},
    [24] = {"fp8_e8m0fnu",   8, PLIM_F8E8M0FNU, true},
    [25] = {"uint2",         2, PLIM_QUINT2X4, true},
    [26] = {"int2",          2, PLIM_QUINT2X4, true},
};
/* clang-format on */

const onnx_type *plim_onnx_type(uint64_t number)
{
    return number < PLIM_COUNT(types) && types[number].name ? &types[number] : NULL;
}

bool plim_onnx_domain_is(plim_str domain, const char *name)
{
    return plim_str_is(domain, name) || (!*name && plim_str_is(domain, "ai.onnx"));
}

/* Length of the UTF-8 sequence at s; 0: invalid, or a terminal control character. */
static size_t clean_length(const uint8_t *s, size_t left)
{
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc2 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf5 ? 4
                             : 0;
    if (!n || n > left || s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0))
        return 0;
    for (size_t i = 1; i < n; i++)
        if (s[i] >> 6 != 2)
            return 0;
    return n;
}

plim_str plim_onnx_clean(plim_arena *a, plim_str s)
{
    enum { MAX_NAME = 1024 };
    plim_str out = plim_arena_str(a, (plim_str){s.p, PLIM_MIN(s.n, MAX_NAME)});
    char *p = (char *)(uintptr_t)out.p; /* writable: it was just allocated */
    for (size_t i = 0; p && i < out.n;) {
        size_t n = clean_length((const uint8_t *)p + i, out.n - i);
        if (!n)
            p[i] = '?';
        i += n ? n : 1;
    }
    return out;
}

/* ---- small messages --------------------------------------------------------------- */

typedef struct onnx_pair {
    plim_str key, value;
} onnx_pair;

static onnx_pair read_pair(onnx_wire *w, const onnx_field *f)
{
    onnx_pair p = {PLIM_STR(""), PLIM_STR("")};
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    while (plim_onnx_next(&s, &e))
        if (e.number == PAIR_KEY)
            p.key = plim_onnx_str(&s, &e);
        else if (e.number == PAIR_VALUE)
            p.value = plim_onnx_str(&s, &e);
    w->bad = w->bad ? w->bad : s.bad;
    return p;
}

static plim_status read_opset(onnx_model *m, onnx_wire *w, const onnx_field *f,
                              onnx_opset **list, uint32_t *n, uint32_t *cap)
{
    onnx_opset o = {PLIM_STR(""), 0};
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    while (plim_onnx_next(&s, &e))
        if (e.number == OPSET_DOMAIN)
            o.domain = plim_onnx_str(&s, &e);
        else if (e.number == OPSET_VERSION)
            o.version = plim_onnx_int(&s, &e);
    if (s.bad)
        return s.bad;
    if (!PUSH(m, *list, *n, *cap))
        return plim_oom(m->err);
    (*list)[(*n)++] = o;
    return PLIM_OK;
}

/* ---- tensors ------------------------------------------------------------------------ */

static void read_tensor_dims(onnx_wire *w, const onnx_field *f, onnx_tensor *t)
{
    onnx_wire part = {0};
    int64_t v;
    while (plim_onnx_next_int(w, f, &part, &v)) {
        if (t->rank < PLIM_MAX_RANK)
            t->dim[t->rank] = v;
        t->rank++;
    }
}

/* src: torch/onnx/_internal/exporter: "pkg.torch.export.graph_signature.
 * InputSpec.kind" is "InputKind.PARAMETER" or "PARAMETER" */
static void read_tensor_role(onnx_pair p, onnx_tensor *t)
{
    const char *tail = "InputSpec.kind";
    size_t n = strlen(tail);
    if (p.key.n < n || memcmp(p.key.p + p.key.n - n, tail, n) != 0)
        return;
    t->role = p.value;
    for (size_t i = 0; i < p.value.n; i++)
        if (p.value.p[i] == '.')
            t->role = (plim_str){p.value.p + i + 1, p.value.n - i - 1};
}

static plim_status check_tensor(onnx_wire *w, onnx_tensor *t, uint64_t at)
{
    plim_str n = {t->name.p, PLIM_MIN(t->name.n, 80)};
    uint64_t bytes;
    if (!plim_onnx_type(t->type))
        return plim_onnx_fail(w, PLIM_EFORMAT, at,
                              "tensor '" PLIM_STR_FMT "' has unknown type %" PRIu64,
                              PLIM_STR_ARG(n), t->type);
    if (t->rank > PLIM_MAX_RANK)
        return plim_onnx_fail(w, PLIM_EUNSUPPORTED, at,
                              "tensor '" PLIM_STR_FMT "' has %d dimensions, the limit is %d,",
                              PLIM_STR_ARG(n), (int)t->rank, PLIM_MAX_RANK);
    t->numel = 1;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            return plim_onnx_fail(w, PLIM_EFORMAT, at,
                                  "dim %d of tensor '" PLIM_STR_FMT "' is %" PRId64, (int)i,
                                  PLIM_STR_ARG(n), t->dim[i]);
        if (!plim_mul(t->numel, (uint64_t)t->dim[i], &t->numel))
            t->numel = UINT64_MAX;
    }
    if (t->numel > (1ull << 61) || !plim_onnx_tensor_bytes(t, &bytes))
        return plim_onnx_fail(w, PLIM_ERANGE, at,
                              "size of tensor '" PLIM_STR_FMT "' overflows", PLIM_STR_ARG(n));
    return PLIM_OK;
}

plim_status plim_onnx_parse_tensor(onnx_model *m, onnx_wire w, onnx_tensor *t)
{
    (void)m;
    onnx_field f;
    *t = (onnx_tensor){.name = PLIM_STR(""), .body = w};
    uint64_t at = w.at;
    while (plim_onnx_next(&w, &f)) {
        switch (f.number) {
        case TENSOR_DIMS: read_tensor_dims(&w, &f, t); break;
        case TENSOR_DATA_TYPE: t->type = (uint64_t)plim_onnx_int(&w, &f); break;
        case TENSOR_NAME: t->name = plim_onnx_str(&w, &f); break;
        case TENSOR_EXTERNAL_DATA: {
            onnx_pair p = read_pair(&w, &f);
            if (plim_str_is(p.key, "location"))
                t->location = p.value;
            break;
        }
        case TENSOR_DATA_LOCATION: t->external = plim_onnx_int(&w, &f) == 1; break;
        case TENSOR_METADATA_PROPS: read_tensor_role(read_pair(&w, &f), t); break;
        default: break;
        }
    }
    return w.bad ? w.bad : check_tensor(&w, t, at);
}

/* The values, with the dense size of the tensor. */
static plim_status parse_sparse(onnx_model *m, onnx_wire w, onnx_tensor *t)
{
    onnx_field f;
    onnx_tensor dense = {0};
    plim_status st = PLIM_OK;
    uint64_t at = w.at;
    *t = (onnx_tensor){.name = PLIM_STR(""), .body = w};
    while (!st && plim_onnx_next(&w, &f))
        if (f.number == SPARSE_VALUES)
            st = plim_onnx_parse_tensor(m, plim_onnx_message(&w, &f), t);
        else if (f.number == SPARSE_DIMS)
            read_tensor_dims(&w, &f, &dense);
    if (st || w.bad)
        return st ? st : w.bad;
    t->rank = dense.rank;
    memcpy(t->dim, dense.dim, sizeof t->dim);
    t->sparse = true;
    return check_tensor(&w, t, at);
}

bool plim_onnx_tensor_bytes(const onnx_tensor *t, uint64_t *out)
{
    uint64_t bits = 0;
    const onnx_type *type = plim_onnx_type(t->type);
    if (!type || !plim_mul(t->numel, type->bits, &bits) || bits > UINT64_MAX - 7)
        return false;
    *out = (bits + 7) / 8;
    return true;
}

plim_item_kind plim_onnx_item_kind(const onnx_tensor *t, bool initializer)
{
    static const char *const buffers[] = {"running_mean", "running_var", "num_batches_tracked",
                                          "moving_mean", "moving_variance"};
    const onnx_type *type = plim_onnx_type(t->type);
    if (plim_str_is(t->role, "PARAMETER"))
        return PLIM_ITEM_PARAMETER;
    if (plim_str_is(t->role, "BUFFER"))
        return PLIM_ITEM_BUFFER;
    bool temporary = plim_str_starts(t->name, "val_") && t->rank < 2; /* torch's own */
    if (!initializer || temporary || t->role.n || !type->known)
        return PLIM_ITEM_CONSTANT;
    for (size_t i = 0; i < PLIM_COUNT(buffers); i++)
        if (plim_str_ends(t->name, plim_str_of(buffers[i])))
            return PLIM_ITEM_BUFFER;
    if (plim_is_float(type->dtype))
        return t->rank ? PLIM_ITEM_PARAMETER : PLIM_ITEM_CONSTANT;
    /* indices and masks are few; quantised weights are narrow and many */
    bool wide = type->bits >= 32 || type->dtype == PLIM_BOOL;
    return t->numel <= 1 || (wide && t->numel <= ONNX_MAX_DATA) ? PLIM_ITEM_CONSTANT
                                                                : PLIM_ITEM_BUFFER;
}

/* ---- types ----------------------------------------------------------------------------- */

static void read_dim(onnx_wire *w, const onnx_field *f, onnx_dim *d)
{
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    *d = (onnx_dim){.param = PLIM_STR("")};
    while (plim_onnx_next(&s, &e))
        if (e.number == DIM_VALUE) {
            d->value = plim_onnx_int(&s, &e);
            d->known = d->value >= 0; /* -1: what some exporters write for "any" */
        } else if (e.number == DIM_PARAM) {
            d->param = plim_onnx_str(&s, &e);
        }
    w->bad = w->bad ? w->bad : s.bad;
}

static void read_shape(onnx_wire *w, const onnx_field *f, onnx_info *info)
{
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    onnx_dim d;
    info->has_shape = true;
    while (plim_onnx_next(&s, &e)) {
        if (e.number != SHAPE_DIM)
            continue;
        read_dim(&s, &e, &d);
        if (info->rank < PLIM_MAX_RANK)
            info->dim[info->rank] = d;
        info->rank++;
    }
    w->bad = w->bad ? w->bad : s.bad;
}

/* A TypeProto; of anything but a tensor only the fact that it is not one. */
static void read_type(onnx_wire *w, const onnx_field *f, onnx_info *info)
{
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e, t;
    while (plim_onnx_next(&s, &e)) {
        if (e.number != TYPE_TENSOR)
            continue;
        onnx_wire tensor = plim_onnx_message(&s, &e);
        info->tensor = true;
        while (plim_onnx_next(&tensor, &t))
            if (t.number == TYPE_TENSOR_ELEM_TYPE)
                info->type = (uint64_t)plim_onnx_int(&tensor, &t);
            else if (t.number == TYPE_TENSOR_SHAPE)
                read_shape(&tensor, &t, info);
        s.bad = s.bad ? s.bad : tensor.bad;
    }
    w->bad = w->bad ? w->bad : s.bad;
}

static plim_status read_info(onnx_model *m, onnx_wire *w, const onnx_field *f,
                             onnx_info **list, uint32_t *n, uint32_t *cap)
{
    onnx_info info = {.name = PLIM_STR(""), .at = f->at};
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    while (plim_onnx_next(&s, &e))
        if (e.number == INFO_NAME)
            info.name = plim_onnx_str(&s, &e);
        else if (e.number == INFO_TYPE)
            read_type(&s, &e, &info);
    if (!s.bad && info.rank > PLIM_MAX_RANK)
        plim_onnx_fail(
            &s, PLIM_EUNSUPPORTED, f->at, "'%.*s' has %d dimensions, the limit is %d,",
            (int)PLIM_MIN(info.name.n, 80), info.name.p, (int)info.rank, PLIM_MAX_RANK);
    if (s.bad)
        return s.bad;
    if (!PUSH(m, *list, *n, *cap))
        return plim_oom(m->err);
    (*list)[(*n)++] = info;
    return PLIM_OK;
}

/* ---- nodes ----------------------------------------------------------------------------- */

static plim_status read_str(onnx_model *m, onnx_wire *w, const onnx_field *f, plim_str **list,
                            uint32_t *n, uint32_t *cap)
{
    plim_str s = plim_onnx_str(w, f);
    if (w->bad)
        return w->bad;
    if (!PUSH(m, *list, *n, *cap))
        return plim_oom(m->err);
    (*list)[(*n)++] = s;
    return PLIM_OK;
}

static plim_status read_attr_ints(onnx_model *m, onnx_wire *w, const onnx_field *f,
                                  onnx_attr *a)
{
    onnx_wire part = {0};
    int64_t v;
    while (plim_onnx_next_int(w, f, &part, &v)) {
        if (!PUSH(m, a->ints, a->n_ints, a->cap_ints))
            return plim_oom(m->err);
        a->ints[a->n_ints++] = v;
    }
    return w->bad;
}

static plim_status read_attr_floats(onnx_model *m, onnx_wire *w, const onnx_field *f,
                                    onnx_attr *a)
{
    onnx_wire part = {0};
    uint64_t bits;
    while (plim_onnx_next_bits(w, f, &part, 4, &bits)) {
        if (!PUSH(m, a->floats, a->n_floats, a->cap_floats))
            return plim_oom(m->err);
        a->floats[a->n_floats++] = plim_onnx_f32(bits);
    }
    return w->bad;
}

static plim_status read_attr(onnx_model *m, onnx_wire *w, const onnx_field *f,
                             onnx_attr **list, uint32_t *n, uint32_t *cap)
{
    onnx_attr a = {.name = PLIM_STR(""), .ref = PLIM_STR(""), .s = PLIM_STR("")};
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    plim_status st = PLIM_OK;
    while (!st && plim_onnx_next(&s, &e)) {
        switch (e.number) {
        case ATTR_NAME: a.name = plim_onnx_str(&s, &e); break;
        case ATTR_F: a.f = plim_onnx_float(&s, &e), a.has_f = true; break;
        case ATTR_I: a.i = plim_onnx_int(&s, &e), a.has_i = true; break;
        case ATTR_S: a.s = plim_onnx_str(&s, &e), a.has_s = true; break;
        case ATTR_T: a.tensor = plim_onnx_message(&s, &e); break;
        case ATTR_G: a.graph = plim_onnx_message(&s, &e); break;
        case ATTR_FLOATS: st = read_attr_floats(m, &s, &e, &a); break;
        case ATTR_INTS: st = read_attr_ints(m, &s, &e, &a); break;
        case ATTR_STRINGS: st = read_str(m, &s, &e, &a.strs, &a.n_strs, &a.cap_strs); break;
        case ATTR_REF_ATTR_NAME: a.ref = plim_onnx_str(&s, &e); break;
        default: break;
        }
    }
    if (st || s.bad)
        return st ? st : s.bad;
    if (!PUSH(m, *list, *n, *cap))
        return plim_oom(m->err);
    (*list)[(*n)++] = a;
    return PLIM_OK;
}

static void read_node_note(onnx_pair p, onnx_node *n)
{
    if (plim_str_is(p.key, "pkg.torch.onnx.name_scopes"))
        n->scopes = p.value;
    else if (plim_str_is(p.key, "pkg.torch.onnx.class_hierarchy"))
        n->types = p.value;
}

static plim_status read_node(onnx_model *m, onnx_wire *w, const onnx_field *f, onnx_graph *g)
{
    plim_str none = PLIM_STR("");
    onnx_node n = {.at = f->at,
                   .name = none,
                   .op = none,
                   .domain = none,
                   .overload = none,
                   .scopes = none,
                   .types = none};
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    plim_status st = PLIM_OK;
    while (!st && plim_onnx_next(&s, &e)) {
        switch (e.number) {
        case NODE_INPUT: st = read_str(m, &s, &e, &n.in, &n.n_in, &n.cap_in); break;
        case NODE_OUTPUT: st = read_str(m, &s, &e, &n.out, &n.n_out, &n.cap_out); break;
        case NODE_NAME: n.name = plim_onnx_str(&s, &e); break;
        case NODE_OP_TYPE: n.op = plim_onnx_str(&s, &e); break;
        case NODE_ATTRIBUTE:
            st = read_attr(m, &s, &e, &n.attrs, &n.n_attrs, &n.cap_attrs);
            break;
        case NODE_DOMAIN: n.domain = plim_onnx_str(&s, &e); break;
        case NODE_OVERLOAD: n.overload = plim_onnx_str(&s, &e); break;
        case NODE_METADATA_PROPS: read_node_note(read_pair(&s, &e), &n); break;
        default: break;
        }
    }
    if (st || s.bad)
        return st ? st : s.bad;
    if (!PUSH(m, g->nodes, g->n_nodes, g->cap_nodes))
        return plim_oom(m->err);
    g->nodes[g->n_nodes++] = n;
    return PLIM_OK;
}

/* ---- graphs ------------------------------------------------------------------------------ */

static plim_status count_use(onnx_model *m, onnx_graph *g, plim_str name, uint32_t node)
{
    uint32_t at;
    if (!name.n)
        return PLIM_OK;
    if (!plim_map_get(&g->use_of, name, &at)) {
        at = g->n_uses;
        if (!PUSH(m, g->uses, g->n_uses, g->cap_uses) ||
            !plim_map_put(m->a, &g->use_of, name, at))
            return plim_oom(m->err);
        g->uses[g->n_uses++] = (onnx_use){0, node};
    }
    g->uses[at].n++;
    g->uses[at].node = node;
    return PLIM_OK;
}

/* Maps names to their users and to what the file says about them. */
static plim_status index_graph(onnx_model *m, onnx_graph *g)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < g->n_nodes && !st; i++) {
        const onnx_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_in && !st; k++)
            st = count_use(m, g, n->in[k], i);
        for (uint32_t k = 0; k < n->n_attrs; k++)
            g->nested |= n->attrs[k].graph.file.p != NULL;
    }
    for (uint32_t i = 0; i < g->n_outputs && !st; i++) {
        st = count_use(m, g, g->outputs[i].name, PLIM_NONE);
        if (!st && !plim_map_put(m->a, &g->info_of, g->outputs[i].name, g->n_infos + i))
            return plim_oom(m->err);
    }
    for (uint32_t i = 0; i < g->n_inits && !st; i++)
        if (!plim_map_put(m->a, &g->init_of, g->inits[i].name, i))
            return plim_oom(m->err);
    for (uint32_t i = 0; i < g->n_infos && !st; i++)
        if (!plim_map_put(m->a, &g->info_of, g->infos[i].name, i))
            return plim_oom(m->err);
    return st;
}

static plim_status read_init(onnx_model *m, onnx_wire *w, const onnx_field *f, onnx_graph *g)
{
    onnx_tensor t;
    onnx_wire s = plim_onnx_message(w, f);
    PLIM_TRY(s.bad                                   ? s.bad
             : f->number == GRAPH_SPARSE_INITIALIZER ? parse_sparse(m, s, &t)
                                                     : plim_onnx_parse_tensor(m, s, &t));
    if (!PUSH(m, g->inits, g->n_inits, g->cap_inits))
        return plim_oom(m->err);
    g->inits[g->n_inits++] = t;
    return PLIM_OK;
}

plim_status plim_onnx_parse_graph(onnx_model *m, onnx_wire w, onnx_graph *g)
{
    onnx_field f;
    plim_status st = w.bad;
    *g = (onnx_graph){.name = PLIM_STR("")};
    while (!st && plim_onnx_next(&w, &f)) {
        switch (f.number) {
        case GRAPH_NODE: st = read_node(m, &w, &f, g); break;
        case GRAPH_NAME: g->name = plim_onnx_str(&w, &f); break;
        case GRAPH_INITIALIZER:
        case GRAPH_SPARSE_INITIALIZER: st = read_init(m, &w, &f, g); break;
        case GRAPH_INPUT:
            st = read_info(m, &w, &f, &g->inputs, &g->n_inputs, &g->cap_inputs);
            break;
        case GRAPH_OUTPUT:
            st = read_info(m, &w, &f, &g->outputs, &g->n_outputs, &g->cap_outputs);
            break;
        case GRAPH_VALUE_INFO:
            st = read_info(m, &w, &f, &g->infos, &g->n_infos, &g->cap_infos);
            break;
        default: break;
        }
    }
    return st ? st : w.bad ? w.bad : index_graph(m, g);
}

/* ---- functions, the model ----------------------------------------------------------------- */

static plim_status read_port(onnx_model *m, onnx_wire *w, const onnx_field *f,
                             onnx_info **list, uint32_t *n, uint32_t *cap)
{
    onnx_info info = {.name = plim_onnx_str(w, f), .at = f->at};
    if (w->bad)
        return w->bad;
    if (!PUSH(m, *list, *n, *cap))
        return plim_oom(m->err);
    (*list)[(*n)++] = info;
    return PLIM_OK;
}

static plim_str function_key(plim_arena *a, plim_str domain, plim_str name, plim_str overload)
{
    enum { MAX = 1024 };
    if (plim_onnx_domain_is(domain, ""))
        domain = PLIM_STR("");
    return plim_arena_printf(
        a, "%zu %zu %.*s%.*s%.*s", domain.n, name.n, (int)PLIM_MIN(domain.n, MAX), domain.p,
        (int)PLIM_MIN(name.n, MAX), name.p, (int)PLIM_MIN(overload.n, MAX), overload.p);
}

plim_status plim_onnx_function(onnx_model *m, const onnx_node *n, onnx_function **out)
{
    uint32_t at;
    *out = NULL;
    if (!m->n_functions)
        return PLIM_OK;
    plim_str key = function_key(m->a, n->domain, n->op, n->overload);
    if (!key.p)
        return plim_oom(m->err);
    if (plim_map_get(&m->function_of, key, &at))
        *out = &m->functions[at];
    return PLIM_OK;
}

static plim_status read_function(onnx_model *m, onnx_wire *w, const onnx_field *f)
{
    plim_str none = PLIM_STR("");
    onnx_function fn = {.name = none, .domain = none, .overload = none, .body.name = none};
    onnx_graph *b = &fn.body;
    onnx_wire s = plim_onnx_message(w, f);
    onnx_field e;
    plim_status st = PLIM_OK;
    while (!st && plim_onnx_next(&s, &e)) {
        switch (e.number) {
        case FUNCTION_NAME: fn.name = plim_onnx_str(&s, &e); break;
        case FUNCTION_INPUT:
            st = read_port(m, &s, &e, &b->inputs, &b->n_inputs, &b->cap_inputs);
            break;
        case FUNCTION_OUTPUT:
            st = read_port(m, &s, &e, &b->outputs, &b->n_outputs, &b->cap_outputs);
            break;
        case FUNCTION_NODE: st = read_node(m, &s, &e, b); break;
        case FUNCTION_OPSET_IMPORT:
            st = read_opset(m, &s, &e, &fn.opsets, &fn.n_opsets, &fn.cap_opsets);
            break;
        case FUNCTION_DOMAIN: fn.domain = plim_onnx_str(&s, &e); break;
        case FUNCTION_ATTRIBUTE_PROTO:
            st = read_attr(m, &s, &e, &fn.defaults, &fn.n_defaults, &fn.cap_defaults);
            break;
        case FUNCTION_VALUE_INFO:
            st = read_info(m, &s, &e, &b->infos, &b->n_infos, &b->cap_infos);
            break;
        case FUNCTION_OVERLOAD: fn.overload = plim_onnx_str(&s, &e); break;
        default: break;
        }
    }
    PLIM_TRY(st ? st : s.bad ? s.bad : index_graph(m, b));
    plim_str key = function_key(m->a, fn.domain, fn.name, fn.overload);
    if (!key.p || !PUSH(m, m->functions, m->n_functions, m->cap_functions) ||
        !plim_map_put(m->a, &m->function_of, key, m->n_functions))
        return plim_oom(m->err);
    m->functions[m->n_functions++] = fn;
    return PLIM_OK;
}

bool plim_onnx_ir_known(int64_t ir)
{
    enum {
        IN_USE = 100
    }; /* an exporter may be newer than this program, but not by that much */
    return ir >= 1 && ir < IN_USE;
}

plim_status plim_onnx_parse(onnx_model *m, plim_arena *a, plim_bytes file, plim_err *err)
{
    plim_str none = PLIM_STR("");
    *m = (onnx_model){.a = a, .err = err, .file = file, .producer = none, .version = none};
    onnx_wire w = plim_onnx_wire(file, err);
    onnx_field f;
    plim_status st = PLIM_OK;
    bool found = false;
    while (!st && plim_onnx_next(&w, &f)) {
        switch (f.number) {
        case MODEL_IR_VERSION: m->ir = plim_onnx_int(&w, &f); break;
        case MODEL_PRODUCER_NAME: m->producer = plim_onnx_str(&w, &f); break;
        case MODEL_PRODUCER_VERSION: m->version = plim_onnx_str(&w, &f); break;
        case MODEL_GRAPH:
            if (found)
                return plim_onnx_fail(&w, PLIM_EFORMAT, f.at, "the model has a second graph");
            found = true;
            st = plim_onnx_parse_graph(m, plim_onnx_message(&w, &f), &m->graph);
            break;
        case MODEL_OPSET_IMPORT:
            st = read_opset(m, &w, &f, &m->opsets, &m->n_opsets, &m->cap_opsets);
            break;
        case MODEL_FUNCTIONS: st = read_function(m, &w, &f); break;
        default: break;
        }
    }
    if (st || w.bad)
        return st ? st : w.bad;
    if (!plim_onnx_ir_known(m->ir))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "IR version %" PRId64 " is not supported, the newest known is %d",
                         m->ir, ONNX_NEWEST_IR);
    return found ? PLIM_OK : plim_fail(err, PLIM_EFORMAT, 0, "an ONNX model without a graph");
}

/* Batch norms folded into the convolutions before them: one exporter gives such weights new
 * names, "onnx::Conv_123", the other leaves the name of the norm next to the convolution.
 * src: torch/onnx, read in what 2.13 writes */
static bool is_folded(const onnx_model *m)
{
    bool folded = false;
    for (uint32_t i = 0; i < m->graph.n_nodes; i++) {
        const onnx_node *n = &m->graph.nodes[i];
        if (plim_str_is(n->op, "BatchNormalization"))
            return false;
        if (plim_str_is(n->op, "Conv") && n->n_in > 1)
            folded |= plim_str_starts(n->in[1], "onnx::Conv_") ||
                      plim_str_has(n->types, "batch_norm");
    }
    return folded;
}

/* A batch norm that uses its running statistics: PyTorch's eval mode. */
static bool is_eval_norm(const onnx_node *n)
{
    bool norm = plim_str_is(n->op, "BatchNormalization");
    for (uint32_t i = 0; i < n->n_attrs; i++)
        if (plim_str_is(n->attrs[i].name, "training_mode") && n->attrs[i].i)
            norm = false;
    return norm;
}

const char *plim_onnx_mode_note(const onnx_model *m)
{
    if (is_folded(m))
        return "The file was exported for inference, with batch norms "
               "folded into convolutions: a training step of the "
               "original model takes more than one of this graph.";
    for (uint32_t i = 0; i < m->graph.n_nodes; i++)
        if (is_eval_norm(&m->graph.nodes[i]))
            return "The file was exported for inference: batch norms use "
                   "their stored statistics and dropouts are removed, "
                   "unlike in a training step of the original model.";
    return "";
}

plim_str plim_onnx_producer(plim_arena *a, const onnx_model *m)
{
    plim_str p = {m->producer.p, PLIM_MIN(m->producer.n, 40)};
    plim_str v = {m->version.p, PLIM_MIN(m->version.n, 40)};
    p = plim_arena_printf(a, PLIM_STR_FMT "%s" PLIM_STR_FMT, PLIM_STR_ARG(p), v.n ? " " : "",
                          PLIM_STR_ARG(v));
    return p.p ? plim_onnx_clean(a, p) : p;
}
