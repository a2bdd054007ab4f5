/* onnx_scope.c -- modules, from what exporters keep of them.
 *
 * The TorchScript exporter names a node after the modules around it, each by its name within
 * its parent, "/layer1/layer1.0/conv1/Conv"; the newer one writes a list of paths as well,
 * "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']", and one of classes.  A name
 * without a '/' is a module of its own. */
#include "import/onnx/onnx_priv.h"

/* The next item of a list printed by Python, or of a path; false at the end. */
static bool next_quoted(plim_str *rest, plim_str *out)
{
    const char *p = rest->p, *end = rest->p + rest->n;
    while (p < end && *p != '\'' && *p != '"')
        p++;
    if (p == end)
        return false;
    const char *close = memchr(p + 1, *p, (size_t)(end - p) - 1);
    if (!close)
        return false;
    *out = (plim_str){p + 1, (size_t)(close - p) - 1};
    *rest = (plim_str){close + 1, (size_t)(end - close) - 1};
    return true;
}

static bool next_part(plim_str *rest, plim_str *out)
{
    while (rest->n && *rest->p == '/')
        rest->p++, rest->n--;
    const char *slash = rest->n ? memchr(rest->p, '/', rest->n) : NULL;
    size_t n = slash ? (size_t)(slash - rest->p) : rest->n;
    *out = (plim_str){rest->p, n};
    *rest = (plim_str){rest->p + n, rest->n - n};
    return n > 0;
}

static plim_str after_dot(plim_str s)
{
    for (size_t i = s.n; i-- > 0;)
        if (s.p[i] == '.')
            return (plim_str){s.p + i + 1, s.n - i - 1};
    return s;
}

/* Goes one level down: to the module that the last node was in, or to a new call. */
static plim_status descend_scope(onnx *f, uint32_t *depth, bool *same, plim_str path,
                                 plim_str type)
{
    uint32_t d = *depth;
    if (d == ONNX_MAX_STACK)
        return PLIM_OK;
    *same = *same && d < f->n_stack && plim_str_eq(path, f->stack[d]);
    if (!*same) {
        plim_str p = plim_onnx_clean(f->a, path), t = plim_onnx_clean(f->a, type);
        f->stack[d] = path;
        f->stack_scope[d] =
            p.p && t.p ? plim_graph_add_scope(f->g, d ? f->stack_scope[d - 1] : 0, p, t)
                       : PLIM_NONE;
        if (f->stack_scope[d] == PLIM_NONE)
            return plim_oom(f->err);
    }
    *depth = d + 1;
    return PLIM_OK;
}

/* The last path is the node itself. */
static plim_status scope_of_list(onnx *f, const onnx_node *n, uint32_t *depth)
{
    plim_str paths = n->scopes, types = n->types, path, after, type;
    bool same = true;
    plim_status st = PLIM_OK;
    bool more = next_quoted(&paths, &path);
    while (more && !st) {
        more = next_quoted(&paths, &after);
        if (!next_quoted(&types, &type))
            type = PLIM_STR("");
        if (!more)
            break;
        if (path.n)
            st = descend_scope(f, depth, &same, path, after_dot(type));
        else if (!f->g->scopes[0].type.n && f->calls == 1)
            f->g->scopes[0].type = plim_onnx_clean(f->a, after_dot(type));
        path = after;
    }
    return st;
}

/* "layer1" and "layer1.0" are parent and child, but so are "encoder" and "layer.0": the
 * child's name may or may not begin with its parent's. */
static plim_str join_path(onnx *f, plim_str up, plim_str last, plim_str part)
{
    bool repeats =
        last.n && part.n > last.n && part.p[last.n] == '.' && !memcmp(part.p, last.p, last.n);
    if (repeats)
        up.n -= last.n;
    else if (up.n)
        return plim_arena_printf(f->a, PLIM_STR_FMT "." PLIM_STR_FMT, PLIM_STR_ARG(up),
                                 PLIM_STR_ARG(part));
    return plim_arena_printf(f->a, PLIM_STR_FMT PLIM_STR_FMT, PLIM_STR_ARG(up),
                             PLIM_STR_ARG(part));
}

static plim_status scope_of_name(onnx *f, const onnx_node *n, uint32_t *depth)
{
    enum { MAX_NAME = 400 };
    plim_str rest = {n->name.p, PLIM_MIN(n->name.n, MAX_NAME)};
    plim_str part, after, up = PLIM_STR(""), last = PLIM_STR("");
    /* "/Relu" belongs to the model itself, "Relu_12" is a module of its own */
    bool alone = n->name.n && n->name.p[0] != '/';
    bool same = true, more = next_part(&rest, &part);
    plim_status st = PLIM_OK;
    while (more && !st) {
        more = next_part(&rest, &after);
        if (!more && !alone)
            break; /* the op's own name */
        up = join_path(f, up, last, part);
        if (!up.p)
            return plim_oom(f->err);
        st = descend_scope(f, depth, &same, up, PLIM_STR(""));
        alone = false;
        last = part;
        part = after;
    }
    return st;
}

plim_status plim_onnx_scope(onnx *f, const onnx_node *n, uint32_t *out)
{
    uint32_t depth = 0;
    plim_status st = n->scopes.n ? scope_of_list(f, n, &depth) : scope_of_name(f, n, &depth);
    f->n_stack = depth;
    *out = depth ? f->stack_scope[depth - 1] : 0;
    return st;
}

/* ---- types, where the file has none --------------------------------------------------- */

/* Types of modules by the one op that identifies them. */
static const struct {
    const char *op, *type;
} types[] = {
    {"conv1d", "Conv1d"},
    {"conv2d", "Conv2d"},
    {"conv3d", "Conv3d"},
    {"conv_transpose1d", "ConvTranspose1d"},
    {"conv_transpose2d", "ConvTranspose2d"},
    {"conv_transpose3d", "ConvTranspose3d"},
    {"linear", "Linear"},
    {"embedding", "Embedding"},
    {"batch_norm", "BatchNorm"},
    {"layer_norm", "LayerNorm"},
    {"group_norm", "GroupNorm"},
    {"instance_norm", "InstanceNorm"},
    {"rms_norm", "RMSNorm"},
    {"dropout", "Dropout"},
    {"relu", "ReLU"},
    {"gelu", "GELU"},
    {"silu", "SiLU"},
    {"sigmoid", "Sigmoid"},
    {"tanh", "Tanh"},
    {"softmax", "Softmax"},
    {"max_pool2d", "MaxPool2d"},
    {"avg_pool2d", "AvgPool2d"},
    {"adaptive_avg_pool2d", "AdaptiveAvgPool2d"},
    {"lstm.input", "LSTM"},
    {"gru.input", "GRU"},
};

static const char *type_of(const plim_node *n)
{
    for (size_t i = 0; n->op && i < PLIM_COUNT(types); i++)
        if (!strcmp(n->op->name, types[i].op))
            return types[i].type;
    return NULL;
}

/* A scope without child scopes is named after the first of its ops that is a module. */
void plim_onnx_name_types(onnx *f)
{
    plim_graph *g = f->g;
    for (uint32_t i = g->n_scopes; i-- > 1;) /* a scope with children is none of these */
        if (g->scopes[i].parent && !g->scopes[g->scopes[i].parent].type.n)
            g->scopes[g->scopes[i].parent].type = PLIM_STR(" ");
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        plim_scope *s = &g->scopes[g->nodes[i].scope];
        const char *type = g->nodes[i].scope ? type_of(&g->nodes[i]) : NULL;
        if (type && !s->type.n)
            s->type = plim_str_of(type);
    }
    for (uint32_t i = 1; i < g->n_scopes; i++)
        if (plim_str_is(g->scopes[i].type, " "))
            g->scopes[i].type = PLIM_STR("");
}
