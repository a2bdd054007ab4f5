/* lora.c -- adapters of low rank, as peft adds them to a model: see transform.h.
 *
 * A module that is adapted becomes peft's lora.Linear, which calls the module it replaces and
 * then its own:
 *
 *     result = self.base_layer(x)
 *     x = x.to(lora_A.weight.dtype)
 *     result = result + lora_B(lora_A(dropout(x))) * scaling
 *     return result.to(its dtype before)
 */
#include "transform/transform.h"

#include <math.h>

#include "base/fmt.h"
#include "base/items.h"
#include "nn/nn.h"
#include "transform/call.h"

/* ---- the setting ---------------------------------------------------------------- */

enum { RANK = 8 }; /* peft's defaults */

static plim_status parse_bias(plim_str word, plim_lora_bias *out, plim_err *err)
{
    static const char *const words[] = {"none", "all", "lora_only"};
    for (size_t i = 0; i < PLIM_COUNT(words); i++)
        if (plim_str_is(word, words[i])) {
            *out = (plim_lora_bias)i;
            return PLIM_OK;
        }
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "lora: 'bias' is none, all or lora_only, not '" PLIM_STR_FMT "'",
                     PLIM_STR_CUT(word));
}

plim_status plim_lora_parse(plim_str text, plim_lora *out, plim_err *err)
{
    plim_str rest = text, key, value;
    double r = RANK, alpha = -1, rslora = 0, dora = 0;
    *out = (plim_lora){.targets = PLIM_STR(""), .saved = PLIM_STR("")};
    const struct {
        const char *key;
        double *number, least, most;
    } items[] = {{"r", &r, 1, 65536},
                 {"alpha", &alpha, 0, 1e9},
                 {"dropout", &out->dropout, 0, 1},
                 {"rslora", &rslora, 0, 1},
                 {"dora", &dora, 0, 1}};
    while (plim_item_next(&rest, &key, &value)) {
        size_t i = 0;
        double v = 1; /* of a name alone: "rslora" */
        if ((plim_str_is(key, "targets") || plim_str_is(key, "save")) && value.n) {
            *(*key.p == 't' ? &out->targets : &out->saved) = value;
            continue;
        }
        if (plim_str_is(key, "bias")) {
            plim_status st = parse_bias(value, &out->bias, err);
            if (st)
                return st;
            continue;
        }
        while (i < PLIM_COUNT(items) && !plim_str_is(key, items[i].key))
            i++;
        if (i == PLIM_COUNT(items))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "lora has no item '" PLIM_STR_FMT
                             "': it has r, targets, save, alpha, dropout, bias, rslora, dora",
                             PLIM_STR_CUT(key));
        if ((value.n && !plim_item_number(value, &v)) || (!value.n && i < 3) ||
            !(v >= items[i].least && v <= items[i].most))
            return plim_fail(
                err, PLIM_EUSAGE, 0,
                "lora: '%s' must be a number from %.9g to %.9g, not '" PLIM_STR_FMT "'",
                items[i].key, items[i].least, items[i].most, PLIM_STR_CUT(value));
        *items[i].number = v;
    }
    out->r = (int64_t)r;
    out->alpha = alpha < 0 ? (double)out->r : alpha;
    out->rslora = rslora > 0;
    out->dora = dora > 0;
    return PLIM_OK;
}

/* ---- which modules ---------------------------------------------------------------- */

static const struct {
    const char *model_type, *targets;
} family_rows[] = {
#define LORA_TARGETS(model_type, targets) {model_type, targets},
#include "transform/lora.def"
#undef LORA_TARGETS
};

static plim_str family_targets(plim_str model_type)
{
    for (size_t i = 0; i < PLIM_COUNT(family_rows); i++)
        if (plim_str_is(model_type, family_rows[i].model_type))
            return plim_str_of(family_rows[i].targets);
    return PLIM_STR("");
}

typedef enum adapted { NOT, LINEAR, OTHER } adapted;

/* Of bitsandbytes: see quant.c. */
static bool is_packed_type(plim_str type)
{
    return plim_str_is(type, "Linear4bit") || plim_str_is(type, "Linear8bitLt");
}

static adapted kind_of(const plim_scope *s)
{
    bool linear = plim_str_ends(s->type, PLIM_STR("Linear")) /* FalconLinear is one, too */
                  || is_packed_type(s->type);
    return linear || plim_str_is(s->type, "Conv1D") ? LINEAR : OTHER;
}

/* The path ends with one of "q_proj+v_proj". */
static bool is_named(plim_str path, plim_str names)
{
    plim_str name;
    while (plim_item_word(&names, '+', &name))
        if (name.n && plim_path_ends(path, name))
            return true;
    return false;
}

static adapted is_target(const plim_graph *g, uint32_t scope, plim_str targets)
{
    const plim_scope *s = &g->scopes[scope];
    if (plim_str_is(targets, "all-linear")) /* but the output layer */
        return kind_of(s) == OTHER || plim_path_ends(s->path, PLIM_STR("lm_head"))
                   ? NOT
                   : kind_of(s);
    return is_named(s->path, targets) ? kind_of(s) : NOT;
}

/* ---- the new graph ------------------------------------------------------------------- */

/* The parameters of an adapter, which all calls of its module share: value ids. */
typedef struct weights {
    uint32_t a, b, magnitude;
} weights;

/* The parameters of the module that is adapted; PLIM_NONE: it has none. */
typedef struct base_layer {
    uint32_t weight, bias;
    bool transposed; /* Conv1D */
    plim_str type;
} base_layer;

typedef struct adapter {
    plim_nn n;
    const plim_lora *spec;
    plim_str targets;
    plim_transform_run run;
    base_layer base; /* of the call that is rewritten */
    plim_map made;   /* paths of adapted modules: index into weights */
    weights *weights;
    uint32_t n_weights, cap_weights;
    uint32_t *copies; /* by value of the model: its copy, or PLIM_NONE */
    uint32_t n_originals, n_copies;
} adapter;

/* The dtype that a tensor of the graph has when the model runs. */
static plim_dtype run_dtype(const adapter *ad, plim_dtype t)
{
    return ad->run.dtype != PLIM_DTYPE_COUNT && plim_is_float(t) ? ad->run.dtype : t;
}

static bool is_embedding(const plim_node *n)
{
    return plim_node_calls(n, "embedding") && n->args[0].kind == PLIM_ARG_VALUE;
}

/* A parameter that is added to the model on the card, as `made_as`, and then cast to the
 * builder's dtype. */
static uint32_t add_leaf(adapter *ad, const char *module, const char *type, plim_ints dim,
                         plim_dtype made_as)
{
    plim_nn_enter(&ad->n, module, type);
    uint32_t w = plim_nn_param(&ad->n, "weight", dim);
    if (!ad->n.st) {
        ad->n.g->values[w].adapter = true;
        ad->n.g->values[w].made_as = made_as;
    }
    plim_nn_leave(&ad->n);
    return w;
}

/* The parameters of the adapter of the open module, which maps `in` features to `out` of dtype
 * t.  peft keeps them in fp32, unless the module is in fp64. */
static weights weights_of(adapter *ad, int64_t in, int64_t out, plim_dtype t)
{
    plim_nn *n = &ad->n;
    plim_str path = n->g->scopes[n->scope].path;
    uint32_t k;
    if (plim_map_get(&ad->made, path, &k))
        return ad->weights[k];
    n->dtype = run_dtype(ad, t);
    if (n->dtype != PLIM_F64 && !ad->run.one_type)
        n->dtype = PLIM_F32;
    weights w = {.magnitude = PLIM_NONE};
    w.a = add_leaf(ad, "lora_A.default", "Linear", INTS(ad->spec->r, in), t);
    w.b = add_leaf(ad, "lora_B.default", "Linear", INTS(out, ad->spec->r), t);
    if (ad->spec->dora)
        w.magnitude =
            add_leaf(ad, "lora_magnitude_vector.default", "DoraLinearLayer", INTS(out), t);
    if (!n->st && (!PLIM_PUSH_ROOM(n->g->arena, ad->weights, ad->n_weights, ad->cap_weights) ||
                   !plim_map_put(n->g->arena, &ad->made, path, ad->n_weights)))
        n->st = plim_oom(n->err);
    if (!n->st)
        ad->weights[ad->n_weights++] = w;
    return w;
}

static uint32_t call_linear(plim_nn *n, const char *name, uint32_t x, uint32_t weight)
{
    plim_nn_enter(n, name, "Linear");
    x = plim_nn_linear_op(n, x, weight, PLIM_NONE);
    plim_nn_leave(n);
    return x;
}

static uint32_t scale_by(plim_nn *n, uint32_t x, double by)
{
    return plim_nn_scalar(n, "aten.mul.Tensor", x, by);
}

/* DoraLinearLayer.forward: to the result `base` it adds
 *     (magnitude / norm - 1) * base + magnitude / norm * lora_B(lora_A(x)) * scaling
 * with the norm of the rows of the adapted weight, which is made anew each time.
 * src: peft 0.21 tuners/lora/dora.py */
static uint32_t call_dora(adapter *ad, const weights *w, uint32_t x, uint32_t base, double by)
{
    plim_nn *n = &ad->n;
    const base_layer *l = &ad->base;
    plim_nn_enter(n, "lora_magnitude_vector.default", "DoraLinearLayer");
    uint32_t eye = NN_OP(n, "aten.eye.default", ARG_I("n", plim_nn_dim(n, x, -1)),
                         ARG_I("dtype", n->dtype));
    uint32_t delta = plim_nn_linear_op(n, eye, w->a, PLIM_NONE);
    delta = plim_nn_unary(n, "aten.t.default", plim_nn_linear_op(n, delta, w->b, PLIM_NONE));
    delta = plim_nn_to_like(n, delta, x);
    uint32_t weight = plim_nn_to_like(n, l->weight, x);
    uint32_t constant = plim_nn_unary(n, "aten.detach.default", delta);
    uint32_t rows = l->transposed ? plim_nn_unary(n, "aten.t.default", weight) : weight;
    uint32_t sum = plim_nn_binary(n, "aten.add.Tensor", rows, scale_by(n, constant, by));
    uint32_t norm = NN_OP(n, "aten.linalg_vector_norm.default", ARG_T("self", sum),
                          ARG_IS("dim", INTS(1)));
    norm = plim_nn_unary(n, "aten.detach.default", norm);
    uint32_t scale =
        plim_nn_view(n, plim_nn_binary(n, "aten.div.Tensor", w->magnitude, norm), INTS(1, -1));
    uint32_t low = plim_nn_linear_op(n, x, w->a, PLIM_NONE);
    low = plim_nn_linear_op(n, low, w->b, PLIM_NONE);
    if (base == PLIM_NONE)
        base = plim_nn_linear_op(n, x, rows, PLIM_NONE);
    else if (l->bias != PLIM_NONE)
        base = plim_nn_binary(n, "aten.sub.Tensor", base, l->bias);
    plim_nn_called(n, (uint32_t[]){delta, weight, norm, scale, low, base}, 6); /* variables */
    base = plim_nn_binary(n, "aten.mul.Tensor", plim_nn_scalar(n, "aten.sub.Tensor", scale, 1),
                          base);
    low = scale_by(n, plim_nn_binary(n, "aten.mul.Tensor", scale, low), by);
    x = plim_nn_binary(n, "aten.add.Tensor", base, low);
    plim_nn_leave(n);
    return x;
}

/* lora.Linear.forward after the call of its base_layer: the result for `x` is `base`.  Those of
 * packed layers cast the adapter's part before they add it; that of 4 bits copies the result.
 * src: peft 0.21 tuners/lora/layer.py, bnb.py */
static uint32_t add_adapter(adapter *ad, uint32_t x, uint32_t base)
{
    plim_nn *n = &ad->n;
    const plim_lora *l = ad->spec;
    if (n->st)
        return PLIM_NONE;
    plim_dtype t = n->g->values[base].meta.dtype;
    double by = l->alpha / (l->rslora ? sqrt((double)l->r) : (double)l->r);
    bool drops = l->dropout > 0 && !ad->run.infer;
    bool packed = is_packed_type(ad->base.type);
    if (plim_str_is(ad->base.type, "Linear4bit"))
        base = plim_nn_unary(n, "aten.clone.default", base);
    plim_dtype was = ad->run.autocast != PLIM_F32 ? ad->run.autocast : run_dtype(ad, t);
    weights w = weights_of(ad, plim_nn_dim(n, x, -1), plim_nn_dim(n, base, -1), t);
    x = plim_nn_to_like(n, x, w.a);
    plim_nn_called(n, &x, 1); /* a variable of the call */
    if (drops)
        x = plim_nn_dropout(n, "lora_dropout.default", x, l->dropout);
    if (l->dora) {
        x = call_dora(ad, &w, x, drops ? PLIM_NONE : base, by);
    } else {
        x = call_linear(n, "lora_A.default", x, w.a);
        x = call_linear(n, "lora_B.default", x, w.b);
        x = scale_by(n, x, by);
    }
    if (packed && ad->run.autocast == PLIM_F32)
        x = NN_OP(n, "aten.to.dtype", ARG_T("self", x), ARG_I("dtype", was));
    x = plim_nn_binary(n, "aten.add.Tensor", base, x);
    if (packed)
        return x;
    return NN_OP(n, "aten.to.dtype", ARG_T("self", x), ARG_I("dtype", was));
}

static void keep_node(adapter *ad, const plim_node *node)
{
    if (!ad->n.st && plim_graph_add_node(ad->n.g, node) == PLIM_NONE)
        ad->n.st = plim_oom(ad->n.err);
}

/* Keeps a node with one result, which a new value holds: the old one will be that of a later
 * node.  Returns the new value. */
static uint32_t move_result(adapter *ad, const plim_node *node)
{
    plim_graph *g = ad->n.g;
    plim_value v = g->values[node->outs[0]];
    plim_node moved = *node;
    uint32_t id = plim_graph_add_value(g, &v), *outs = PLIM_NEW_N(g->arena, uint32_t, 1);
    if (id == PLIM_NONE || !outs) {
        ad->n.st = ad->n.st ? ad->n.st : plim_oom(ad->n.err);
        return PLIM_NONE;
    }
    *outs = id;
    moved.outs = outs;
    keep_node(ad, &moved);
    return id;
}

/* A parameter or buffer of the module `from` becomes that of `to`, its base_layer. */
static void rename_leaf(adapter *ad, uint32_t id, plim_str from, plim_str to)
{
    plim_value *v = &ad->n.g->values[id];
    if (v->name.n <= from.n || v->name.p[from.n] != '.' ||
        !plim_str_eq((plim_str){v->name.p, from.n}, from))
        return; /* it has the name of another module, to which it is tied */
    plim_str leaf = {v->name.p + from.n, v->name.n - from.n};
    if (!plim_str_starts(leaf, ".base_layer."))
        v->name = plim_arena_printf(ad->n.g->arena, PLIM_STR_FMT PLIM_STR_FMT,
                                    PLIM_STR_ARG(to), PLIM_STR_ARG(leaf));
    if (!v->name.p && !ad->n.st)
        ad->n.st = plim_oom(ad->n.err);
    if (plim_str_is(leaf, ".weight") || plim_str_is(leaf, ".base_layer.weight"))
        ad->base.weight = id;
    if (plim_str_is(leaf, ".bias") || plim_str_is(leaf, ".base_layer.bias"))
        ad->base.bias = id;
}

static void rename_leaves(adapter *ad, const plim_node *node, plim_str from, plim_str to)
{
    for (uint32_t i = 0; i < node->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&node->args[i]); k++) {
            uint32_t id = plim_arg_value(&node->args[i], k);
            if (id != PLIM_NONE && plim_is_leaf(&ad->n.g->values[id]))
                rename_leaf(ad, id, from, to);
        }
}

/* Rewrites the nodes [first, last) of one call of a module. */
static void adapt_call(adapter *ad, plim_node *first, plim_node *last)
{
    plim_nn *n = &ad->n;
    plim_graph *g = n->g;
    plim_scope *s = &g->scopes[first->scope];
    plim_str path = s->path, type = s->type;
    uint32_t x = plim_call_input(g, first, last), result = last[-1].outs[0];
    if (x == PLIM_NONE || last[-1].n_outs != 1) {
        plim_nn_fail(n, PLIM_EUNSUPPORTED, "'" PLIM_STR_FMT "' cannot be adapted",
                     PLIM_STR_CUT(path));
        return;
    }
    s->type = plim_str_is(type, "Linear4bit")     ? PLIM_STR("lora.Linear4bit")
              : plim_str_is(type, "Linear8bitLt") ? PLIM_STR("lora.Linear8bitLt")
                                                  : PLIM_STR("lora.Linear");
    ad->base = (base_layer){PLIM_NONE, PLIM_NONE, plim_str_is(type, "Conv1D"), type};
    n->scope = first->scope;
    plim_nn_enter(n, "base_layer", "");
    if (n->st)
        return;
    g->scopes[n->scope].type = type;
    for (plim_node *node = first; node < last && !n->st; node++) {
        rename_leaves(ad, node, path, g->scopes[n->scope].path);
        node->scope = n->scope;
        if (node + 1 < last)
            keep_node(ad, node);
    }
    uint32_t base = move_result(ad, last - 1);
    plim_nn_leave(n);
    if (ad->spec->dora && ad->base.weight == PLIM_NONE)
        plim_nn_fail(n, PLIM_EUNSUPPORTED, "lora: '" PLIM_STR_FMT "' has no weight for dora",
                     PLIM_STR_CUT(path));
    if (ad->spec->bias == PLIM_BIAS_LORA_ONLY && ad->base.bias != PLIM_NONE)
        g->values[ad->base.bias].requires_grad = true;
    add_adapter(ad, x, base);
    if (!n->st)
        plim_call_gives(g, result);
}

static void refuse_target(adapter *ad, uint32_t scope)
{
    const plim_scope *s = &ad->n.g->scopes[scope];
    plim_nn_fail(&ad->n, PLIM_EUSAGE,
                 "lora: '" PLIM_STR_FMT "' is of type " PLIM_STR_FMT
                 ": plimsoll adapts Linear and Conv1D",
                 PLIM_STR_CUT(s->path), PLIM_STR_CUT(s->type));
}

/* ---- modules that are trained whole -------------------------------------------------- */

/* The path of the outermost module around a scope that is named in `saved`; "": none. */
static plim_str saved_path(const adapter *ad, uint32_t scope)
{
    const plim_graph *g = ad->n.g;
    plim_str found = PLIM_STR("");
    for (uint32_t s = scope; s != PLIM_NONE; s = g->scopes[s].parent)
        if (is_named(g->scopes[s].path, ad->spec->saved))
            found = g->scopes[s].path;
    return found;
}

/* The copy that peft trains in place of a parameter or buffer of the module `path`. */
static uint32_t copy_of(adapter *ad, uint32_t id, plim_str path)
{
    plim_graph *g = ad->n.g;
    if (ad->copies[id] != PLIM_NONE)
        return ad->copies[id];
    plim_value v = g->values[id];
    bool inside = v.name.n > path.n && plim_str_eq((plim_str){v.name.p, path.n}, path);
    size_t from = inside ? path.n : v.name.n; /* else its name is that of what it is tied to */
    while (!inside && from && v.name.p[from - 1] != '.')
        from--;
    from -= !inside && from;
    v.requires_grad = v.kind == PLIM_VALUE_PARAMETER && plim_is_float(v.meta.dtype);
    v.adapter = true;
    v.made_as = v.meta.dtype;
    v.meta = plim_meta_like(&v.meta, run_dtype(ad, v.meta.dtype));
    v.tied_to = PLIM_NONE;
    v.name = plim_arena_printf(g->arena, PLIM_STR_FMT ".modules_to_save.default" PLIM_STR_FMT,
                               PLIM_STR_ARG(path), (int)(v.name.n - from), v.name.p + from);
    uint32_t copy = v.name.p ? plim_graph_add_value(g, &v) : PLIM_NONE;
    if (copy == PLIM_NONE)
        ad->n.st = ad->n.st ? ad->n.st : plim_oom(ad->n.err);
    ad->n_copies++;
    return ad->copies[id] = copy;
}

/* Makes a node of a module that is trained whole take the copies. */
static void use_copies(adapter *ad, plim_node *node, plim_str path)
{
    plim_graph *g = ad->n.g;
    plim_arg *args = PLIM_NEW_N(g->arena, plim_arg, (uint64_t)node->n_args + 1);
    if (!args) {
        ad->n.st = plim_oom(ad->n.err);
        return;
    }
    memcpy(args, node->args, node->n_args * sizeof *args);
    for (uint32_t i = 0; i < node->n_args && !ad->n.st; i++)
        if (args[i].kind == PLIM_ARG_VALUE && args[i].id < ad->n_originals &&
            plim_is_leaf(&g->values[args[i].id]))
            args[i].id = copy_of(ad, args[i].id, path);
    node->args = args;
}

static void copy_saved(adapter *ad)
{
    plim_graph *g = ad->n.g;
    if (!ad->spec->saved.n)
        return;
    ad->n_originals = g->n_values;
    if (!(ad->copies = PLIM_NEW_N(g->arena, uint32_t, g->n_values))) {
        ad->n.st = plim_oom(ad->n.err);
        return;
    }
    memset(ad->copies, 0xff, g->n_values * sizeof *ad->copies); /* PLIM_NONE */
    for (uint32_t i = 0; i < g->n_nodes && !ad->n.st; i++) {
        plim_str path = saved_path(ad, g->nodes[i].scope);
        if (path.n && is_target(g, g->nodes[i].scope, ad->targets) == NOT)
            use_copies(ad, &g->nodes[i], path);
    }
    if (!ad->n.st && !ad->n_copies)
        plim_nn_fail(&ad->n, PLIM_EUSAGE,
                     "lora: the model has no module named '" PLIM_STR_FMT "'",
                     PLIM_STR_CUT(ad->spec->saved));
}

/* ---- the whole graph ------------------------------------------------------------------- */

/* The weight that token ids look up: that of the first embedding. */
static uint32_t input_weight(const plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (is_embedding(&g->nodes[i]))
            return g->nodes[i].args[0].id;
    return PLIM_NONE;
}

/* Of a model with checkpoints, which need an input that requires a gradient, peft marks the
 * result of the module that embeds the tokens: the nodes [first, last).
 * src: transformers modeling_utils.py enable_input_require_grads */
static void mark_embedded(adapter *ad, const plim_node *first, const plim_node *last)
{
    plim_nn *n = &ad->n;
    uint32_t v = last[-1].outs[0];
    for (const plim_node *node = first; node + 1 < last; node++)
        keep_node(ad, node);
    uint32_t x = move_result(ad, last - 1);
    n->scope = first->scope;
    NN_OP(n, "aten.requires_grad_.default", ARG_T("self", x));
    if (!n->st)
        plim_call_gives(n->g, v);
}

static void adapt_all(adapter *ad)
{
    plim_graph *g = ad->n.g;
    uint32_t n, end;
    uint32_t embedding = ad->run.checkpointed ? input_weight(g) : PLIM_NONE;
    plim_node *old = plim_graph_take_nodes(g, &n);
    for (uint32_t i = 0; i < n && !ad->n.st; i = end) {
        adapted kind = is_target(g, old[i].scope, ad->targets);
        bool embeds =
            embedding != PLIM_NONE && is_embedding(&old[i]) && old[i].args[0].id == embedding;
        for (end = i + 1;
             end < n && old[end].scope == old[i].scope && (embeds || kind != NOT);)
            end++;
        if (kind == OTHER)
            refuse_target(ad, old[i].scope);
        else if (kind == LINEAR)
            adapt_call(ad, &old[i], &old[end]);
        else if (embeds)
            mark_embedded(ad, &old[i], &old[end]);
        else
            keep_node(ad, &old[i]);
    }
}

/* src: peft 0.21 tuners/tuners_utils.py _mark_only_adapters_as_trainable */
static bool is_bias(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER && plim_is_float(v->meta.dtype) &&
           plim_str_has(v->name, "bias");
}

plim_status plim_lora_apply(plim_graph *g, const plim_lora *spec,
                            const plim_transform_run *run, plim_err *err)
{
    adapter ad = {.spec = spec, .run = *run, .targets = spec->targets};
    if (!ad.targets.n)
        ad.targets = family_targets(g->model_type);
    if (!ad.targets.n)
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "lora: peft has no default targets for this model: add targets=..., the "
            "names of its modules, or all-linear");
    for (uint32_t i = 0; i < g->n_values; i++)
        g->values[i].requires_grad = spec->bias == PLIM_BIAS_ALL && is_bias(&g->values[i]);
    plim_nn_init(&ad.n, g, err);
    copy_saved(&ad);
    adapt_all(&ad);
    if (!ad.n.st && !ad.n_weights)
        plim_nn_fail(&ad.n, PLIM_EUSAGE,
                     "lora: the model has no module named '" PLIM_STR_FMT "'",
                     PLIM_STR_CUT(ad.targets));
    return ad.n.st;
}
