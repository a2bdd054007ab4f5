/* adapter.c -- adapters, as peft adds them to a model: see transform.h and adapter.h. */
#include "transform/adapter.h"

#include "base/items.h"
#include "transform/call.h"

/* ---- which modules ---------------------------------------------------------------- */

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

typedef struct weights {
    uint32_t id[PLIM_ADAPTER_WEIGHTS];
} weights;

struct plim_adapting {
    plim_nn n;
    const plim_adapter *spec;
    plim_str targets;
    plim_transform_run run;
    plim_adapted base;       /* of the call that is rewritten */
    plim_node *first, *last; /* its nodes */
    uint32_t base_scope;
    plim_dtype made_as; /* what is trained, before it is cast */
    uint32_t x;         /* what the call was given */
    plim_node *old;     /* of the graph as it was */
    uint32_t n_old;
    int64_t widest_in, widest_out; /* 0: not measured yet */
    plim_map made;                 /* paths of adapted modules: index into weights */
    weights *weights;
    uint32_t n_weights, cap_weights;
    plim_map shared;  /* names of what all modules share: its value */
    uint32_t *copies; /* by value of the model: its copy, or PLIM_NONE */
    uint32_t n_originals, n_copies;
};

/* The dtype that a tensor of the graph has when the model runs. */
static plim_dtype run_dtype(const plim_adapting *ad, plim_dtype t)
{
    return ad->run.dtype != PLIM_DTYPE_COUNT && plim_is_float(t) ? ad->run.dtype : t;
}

bool plim_adapter_embeds(const plim_node *n)
{
    return plim_node_calls(n, "embedding") && n->args[0].kind == PLIM_ARG_VALUE;
}

plim_nn *plim_adapter_nn(plim_adapting *ad) { return &ad->n; }
const plim_adapter *plim_adapter_spec(const plim_adapting *ad) { return ad->spec; }
const plim_adapted *plim_adapter_base(const plim_adapting *ad) { return &ad->base; }

static void measure_targets(plim_adapting *ad)
{
    const plim_graph *g = ad->n.g;
    const plim_node *old = ad->old;
    for (uint32_t i = 0, end; i < ad->n_old; i = end) {
        end = plim_call_end(old, ad->n_old, i);
        if (is_target(g, old[i].scope, ad->targets) != LINEAR || old[end - 1].n_outs != 1)
            continue;
        uint32_t x = plim_call_input(g, &old[i], &old[end]);
        int64_t in = x == PLIM_NONE ? 0 : plim_nn_dim(&ad->n, x, -1),
                out = plim_nn_dim(&ad->n, old[end - 1].outs[0], -1);
        ad->widest_in = PLIM_MAX(ad->widest_in, in);
        ad->widest_out = PLIM_MAX(ad->widest_out, out);
    }
}

void plim_adapter_widest(plim_adapting *ad, int64_t *in, int64_t *out)
{
    if (!ad->widest_out) /* few methods ask */
        measure_targets(ad);
    *in = ad->widest_in;
    *out = ad->widest_out;
}

static void mark_added(plim_adapting *ad, uint32_t id)
{
    if (ad->n.st)
        return;
    ad->n.g->values[id].adapter = true;
    ad->n.g->values[id].made_as = ad->made_as;
}

uint32_t plim_adapter_weight(plim_adapting *ad, const char *module, const char *type,
                             const char *name, plim_ints dim)
{
    plim_nn_enter(&ad->n, module, type);
    uint32_t w = plim_nn_param(&ad->n, name, dim);
    mark_added(ad, w);
    plim_nn_leave(&ad->n);
    return w;
}

uint32_t plim_adapter_shared(plim_adapting *ad, const char *module, const char *name,
                             plim_ints dim)
{
    plim_nn *n = &ad->n;
    uint32_t id;
    if (plim_map_get(&ad->shared, plim_str_of(module), &id))
        return id;
    plim_nn_enter(n, module, "BufferDict");
    id = plim_nn_buffer(n, name, n->dtype, dim);
    mark_added(ad, id);
    plim_nn_leave(n);
    if (!n->st && !plim_map_put(n->g->arena, &ad->shared, plim_str_of(module), id))
        n->st = plim_oom(n->err);
    return id;
}

/* What the method trains for the open module, which all of its calls share. */
static weights weights_of(plim_adapting *ad)
{
    plim_nn *n = &ad->n;
    uint32_t k;
    weights w = {{PLIM_NONE, PLIM_NONE, PLIM_NONE, PLIM_NONE}};
    if (plim_map_get(&ad->made, ad->base.path, &k))
        return ad->weights[k];
    ad->spec->method->make(ad, w.id);
    if (!n->st && (!PLIM_PUSH_ROOM(n->g->arena, ad->weights, ad->n_weights, ad->cap_weights) ||
                   !plim_map_put(n->g->arena, &ad->made, ad->base.path, ad->n_weights)))
        n->st = plim_oom(n->err);
    if (!n->st)
        ad->weights[ad->n_weights++] = w;
    return w;
}

uint32_t plim_adapter_cast(plim_adapting *ad, uint32_t x, uint32_t w)
{
    x = plim_nn_to_like(&ad->n, x, w);
    plim_nn_holds(&ad->n, x);
    return x;
}

uint32_t plim_adapter_cast_back(plim_adapting *ad, uint32_t x)
{
    return NN_OP(&ad->n, "aten.to.dtype", ARG_T("self", x), ARG_I("dtype", ad->base.dtype));
}

void plim_adapter_add_product(plim_adapting *ad, uint32_t x, uint32_t delta, uint32_t result)
{
    plim_nn *n = &ad->n;
    uint32_t y = plim_nn_linear_op(n, plim_nn_to_like(n, x, delta), delta, PLIM_NONE);
    plim_nn_to_like(n, plim_nn_binary(n, "aten.add.Tensor", result, y), x);
}

bool plim_adapter_autocast(const plim_adapting *ad) { return ad->run.autocast != PLIM_F32; }

bool plim_adapter_drops(const plim_adapting *ad, double p) { return p > 0 && !ad->run.infer; }

uint32_t plim_adapter_dropout(plim_adapting *ad, const char *name, uint32_t x, double p)
{
    return plim_adapter_drops(ad, p) ? plim_nn_dropout(&ad->n, name, x, p) : x;
}

void plim_adapter_keep(plim_adapting *ad, const plim_node *node)
{
    if (!ad->n.st && plim_graph_add_node(ad->n.g, node) == PLIM_NONE)
        ad->n.st = plim_oom(ad->n.err);
}

/* Keeps a node with one result, which a new value holds: the old one will be that of a later
 * node.  Returns the new value. */
static uint32_t move_node(plim_adapting *ad, const plim_node *node)
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
    plim_adapter_keep(ad, &moved);
    return id;
}

/* A parameter or buffer of the module `from` becomes that of `to`, its base_layer. */
static void rename_leaf(plim_adapting *ad, uint32_t id, plim_str from, plim_str to)
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

static void rename_leaves(plim_adapting *ad, const plim_node *node, plim_str from, plim_str to)
{
    for (uint32_t i = 0; i < node->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&node->args[i]); k++) {
            uint32_t id = plim_arg_value(&node->args[i], k);
            if (id != PLIM_NONE && plim_is_leaf(&ad->n.g->values[id]))
                rename_leaf(ad, id, from, to);
        }
}

/* Gives the node arguments of its own, which may be changed. */
static plim_arg *own_args(plim_adapting *ad, plim_node *node)
{
    plim_arg *args = PLIM_NEW_N(ad->n.g->arena, plim_arg, (uint64_t)node->n_args + 1);
    if (!args) {
        ad->n.st = plim_oom(ad->n.err);
        return NULL;
    }
    memcpy(args, node->args, node->n_args * sizeof *args);
    node->args = args;
    return args;
}

void plim_adapter_replace(plim_adapting *ad, plim_node *node, uint32_t was, uint32_t is)
{
    plim_arg *args = own_args(ad, node);
    for (uint32_t i = 0; args && i < node->n_args; i++)
        if (args[i].kind == PLIM_ARG_VALUE && args[i].id == was)
            args[i].id = is;
}

uint32_t plim_adapter_call_base(plim_adapting *ad, uint32_t x)
{
    for (plim_node *node = ad->first; node < ad->last && !ad->n.st; node++) {
        node->scope = ad->base_scope;
        if (x != ad->x)
            plim_adapter_replace(ad, node, ad->x, x);
        if (node + 1 < ad->last)
            plim_adapter_keep(ad, node);
    }
    return ad->n.st ? PLIM_NONE : move_node(ad, ad->last - 1);
}

/* What is to be known of the call of the nodes [first, last) before it is rewritten. */
static bool read_call(plim_adapting *ad, plim_node *first, plim_node *last)
{
    plim_nn *n = &ad->n;
    const plim_scope *s = &n->g->scopes[first->scope];
    ad->x = plim_call_input(n->g, first, last);
    if (ad->x == PLIM_NONE || last[-1].n_outs != 1) {
        plim_nn_fail(n, PLIM_EUNSUPPORTED, "'" PLIM_STR_FMT "' cannot be adapted",
                     PLIM_STR_CUT(s->path));
        return false;
    }
    ad->first = first;
    ad->last = last;
    ad->made_as = n->g->values[last[-1].outs[0]].meta.dtype;
    ad->base = (plim_adapted){
        .weight = PLIM_NONE,
        .bias = PLIM_NONE,
        .in = plim_nn_dim(n, ad->x, -1),
        .out = plim_nn_dim(n, last[-1].outs[0], -1),
        .transposed = plim_str_is(s->type, "Conv1D"),
        .path = s->path,
        .type = s->type,
        .packed = is_packed_type(s->type),
        .dtype = ad->run.autocast != PLIM_F32 ? ad->run.autocast : run_dtype(ad, ad->made_as)};
    n->dtype = run_dtype(ad, ad->made_as); /* of what is trained */
    if (n->dtype != PLIM_F64 && !ad->run.one_type)
        n->dtype = PLIM_F32;
    return true;
}

/* Opens the base_layer, whose parameters get their new names. */
static void enter_base(plim_adapting *ad)
{
    plim_nn *n = &ad->n;
    plim_graph *g = n->g;
    plim_nn_enter(n, "base_layer", "");
    if (n->st)
        return;
    ad->base_scope = n->scope;
    g->scopes[n->scope].type = ad->base.type;
    for (plim_node *node = ad->first; node < ad->last && !n->st; node++)
        rename_leaves(ad, node, ad->base.path, g->scopes[n->scope].path);
    plim_nn_leave(n);
}

/* Rewrites the nodes [first, last) of one call of a module. */
static void adapt_call(plim_adapting *ad, plim_node *first, plim_node *last)
{
    plim_nn *n = &ad->n;
    plim_graph *g = n->g;
    uint32_t scope = first->scope, result = last[-1].outs[0];
    if (!read_call(ad, first, last))
        return;
    plim_str type =
        plim_arena_printf(g->arena, "%s." PLIM_STR_FMT, ad->spec->method->name,
                          PLIM_STR_ARG(ad->base.packed ? ad->base.type : PLIM_STR("Linear")));
    if (!type.p) {
        n->st = plim_oom(n->err);
        return;
    }
    g->scopes[scope].type = type;
    n->scope = scope;
    enter_base(ad);
    if (n->st)
        return;
    if (ad->spec->bias == PLIM_BIAS_TARGETS && ad->base.bias != PLIM_NONE)
        g->values[ad->base.bias].requires_grad = true;
    weights w = weights_of(ad);
    if (!n->st)
        ad->spec->method->call(ad, w.id, ad->x);
    if (!n->st)
        plim_call_gives(g, result);
}

static bool can_adapt(const plim_adapting *ad, uint32_t scope)
{
    const plim_scope *s = &ad->n.g->scopes[scope];
    return kind_of(s) == LINEAR &&
           !(ad->spec->method->plain_linear && plim_str_is(s->type, "Conv1D"));
}

static void refuse_target(plim_adapting *ad, uint32_t scope)
{
    const plim_scope *s = &ad->n.g->scopes[scope];
    plim_nn_fail(&ad->n, PLIM_EUSAGE,
                 "%s: '" PLIM_STR_FMT "' is of type " PLIM_STR_FMT
                 ": plimsoll adapts Linear%s",
                 ad->spec->method->name, PLIM_STR_CUT(s->path), PLIM_STR_CUT(s->type),
                 ad->spec->method->plain_linear ? "" : " and Conv1D");
}

/* ---- modules that are trained whole -------------------------------------------------- */

/* The path of the outermost module around a scope that is named in `saved`; "": none. */
static plim_str saved_path(const plim_adapting *ad, uint32_t scope)
{
    const plim_graph *g = ad->n.g;
    plim_str found = PLIM_STR("");
    for (uint32_t s = scope; s != PLIM_NONE; s = g->scopes[s].parent)
        if (is_named(g->scopes[s].path, ad->spec->saved))
            found = g->scopes[s].path;
    return found;
}

/* The copy that peft trains in place of a parameter or buffer of the module `path`. */
static uint32_t copy_of(plim_adapting *ad, uint32_t id, plim_str path)
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
static void use_copies(plim_adapting *ad, plim_node *node, plim_str path)
{
    plim_graph *g = ad->n.g;
    plim_arg *args = own_args(ad, node);
    for (uint32_t i = 0; args && i < node->n_args && !ad->n.st; i++)
        if (args[i].kind == PLIM_ARG_VALUE && args[i].id < ad->n_originals &&
            plim_is_leaf(&g->values[args[i].id]))
            args[i].id = copy_of(ad, args[i].id, path);
}

static void copy_saved(plim_adapting *ad)
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
                     "%s: the model has no module named '" PLIM_STR_FMT "'",
                     ad->spec->method->name, PLIM_STR_CUT(ad->spec->saved));
}

/* ---- the whole graph ------------------------------------------------------------------- */

/* The weight that token ids look up: that of the first embedding. */
static uint32_t input_weight(const plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (plim_adapter_embeds(&g->nodes[i]))
            return g->nodes[i].args[0].id;
    return PLIM_NONE;
}

/* Of a model with checkpoints, which need an input that requires a gradient, peft marks the result.
 * src: transformers modeling_utils.py enable_input_require_grads */
uint32_t plim_adapter_embed(plim_adapting *ad, const plim_node *first, const plim_node *last)
{
    plim_nn *n = &ad->n;
    for (const plim_node *node = first; node + 1 < last; node++)
        plim_adapter_keep(ad, node);
    uint32_t x = move_node(ad, last - 1);
    n->scope = first->scope;
    return ad->run.checkpointed ? NN_OP(n, "aten.requires_grad_.default", ARG_T("self", x))
                                : x;
}

static void embed_in_place(plim_adapting *ad, const plim_node *first, const plim_node *last)
{
    uint32_t result = last[-1].outs[0];
    plim_adapter_embed(ad, first, last);
    if (!ad->n.st)
        plim_call_gives(ad->n.g, result);
}

static void adapt_all(plim_adapting *ad)
{
    plim_graph *g = ad->n.g;
    uint32_t embedding = ad->run.checkpointed ? input_weight(g) : PLIM_NONE, n, end;
    plim_node *old = plim_graph_take_nodes(g, &n);
    ad->old = old;
    ad->n_old = n;
    for (uint32_t i = 0; i < n && !ad->n.st; i = end) {
        adapted kind = is_target(g, old[i].scope, ad->targets);
        bool embeds = embedding != PLIM_NONE && plim_adapter_embeds(&old[i]) &&
                      old[i].args[0].id == embedding;
        end = embeds || kind != NOT ? plim_call_end(old, n, i) : i + 1;
        if (kind != NOT && !can_adapt(ad, old[i].scope))
            refuse_target(ad, old[i].scope);
        else if (kind == LINEAR)
            adapt_call(ad, &old[i], &old[end]);
        else if (embeds)
            embed_in_place(ad, &old[i], &old[end]);
        else
            plim_adapter_keep(ad, &old[i]);
    }
}

/* src: peft 0.21 tuners/tuners_utils.py _mark_only_adapters_as_trainable */
static bool is_bias(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER && plim_is_float(v->meta.dtype) &&
           plim_str_has(v->name, "bias");
}

plim_status plim_adapter_apply(plim_graph *g, const plim_adapter *spec,
                               const plim_transform_run *run, plim_err *err)
{
    plim_adapting ad = {.spec = spec, .run = *run, .targets = spec->targets};
    if (!ad.targets.n)
        ad.targets = plim_adapter_family(spec->method->name, g->about.model_type);
    if (!ad.targets.n && spec->method->targets)
        ad.targets = plim_adapter_family(spec->method->targets, g->about.model_type);
    if (!ad.targets.n && !spec->method->whole)
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "%s: peft has no default targets for this model: add targets=..., the "
            "names of its modules, or all-linear",
            spec->method->name);
    for (uint32_t i = 0; i < g->n_values; i++)
        g->values[i].requires_grad = spec->bias == PLIM_BIAS_ALL && is_bias(&g->values[i]);
    plim_nn_init(&ad.n, g, err);
    copy_saved(&ad);
    if (spec->method->whole) {
        ad.n.dtype = PLIM_F32;
        ad.made_as = PLIM_F32;
        spec->method->whole(&ad);
        return ad.n.st;
    }
    adapt_all(&ad);
    if (!ad.n.st && !ad.n_weights)
        plim_nn_fail(&ad.n, PLIM_EUSAGE,
                     "%s: the model has no module named '" PLIM_STR_FMT "'",
                     spec->method->name, PLIM_STR_CUT(ad.targets));
    return ad.n.st;
}
