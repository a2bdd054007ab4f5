/* divide.c -- what one card of tensor parallelism holds of a model: see serve.h.
 *
 * Parameters are found by the names of their modules (divide.def).  What a layer computes is divided
 * from a module that divides its output features to one that divides its input features.
 * src: vllm main 001cabc distributed/utils.py divide, model_executor/layers/linear.py,
 * vocab_parallel_embedding.py, fused_moe/layer.py, quantization/fp8.py */
#include "serve/serve.h"

#include <string.h>

enum { VOCABULARY_UNIT = 64 };

typedef enum how { WHOLE, ROWS, COLUMNS, HEADS, FUSED, TABLE } how;

typedef struct module {
    const char *name;
    how how;
    int dim;
} module;

static const module modules[] = {
#define PLIM_DIVIDE(module, how, dim) {module, how, dim},
#include "serve/divide.def"
#undef PLIM_DIVIDE
};

typedef struct dividing {
    const plim_graph *g;
    uint64_t cards;
    uint64_t kv, own_kv, queries; /* heads: of keys and values, those of a card; 0: no such */
    bool by_expert;               /* whole experts, instead of a part of each */
    plim_err *err;
} dividing;

static const plim_serve_fraction whole = {1, 1};

/* ---- modules -------------------------------------------------------------------------------- */

static const module *find_module(plim_str path)
{
    for (size_t i = 0; i < PLIM_COUNT(modules); i++) {
        plim_str name = plim_str_of(modules[i].name);
        if (plim_str_ends(path, name) &&
            (path.n == name.n || path.p[path.n - name.n - 1] == '.'))
            return &modules[i];
    }
    return NULL;
}

/* The innermost module that has a row, and what of the name is its own: "weight". */
static const module *module_of(plim_str name, plim_str *leaf)
{
    for (plim_str path = name; path.n;) {
        const module *m = find_module(path);
        size_t cut = path.n < name.n ? path.n + 1 : name.n;
        *leaf = (plim_str){name.p + cut, name.n - cut};
        if (m)
            return m;
        while (path.n && path.p[path.n - 1] != '.')
            path.n--;
        path.n -= path.n > 0;
    }
    return NULL;
}

/* ---- heads --------------------------------------------------------------------------------- */

static plim_status refuse_number(const dividing *d, uint64_t n, const char *of, plim_str what)
{
    return plim_fail(d->err, PLIM_EUSAGE, 0,
                     "tp: %" PRIu64 " cards do not divide the %" PRIu64 " %s of '" PLIM_STR_FMT
                     "'",
                     d->cards, n, of, PLIM_STR_CUT(what));
}

/* Heads of queries, as attention reads them; 0: not known. */
static uint64_t count_read_queries(const plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        if (!plim_node_attends(n))
            continue;
        const plim_meta *q = &g->values[n->args[0].id].meta;
        return q->rank > 2 ? (uint64_t)q->dim[q->rank - 3] : 0;
    }
    return 0;
}

/* Heads of queries that a module makes together with keys and values; 0: not known. */
static uint64_t count_fused_queries(const plim_graph *g)
{
    plim_str leaf;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        const module *m = v->meta.rank == 2 && plim_serve_is_weight(v) && !v->packed
                              ? module_of(v->name, &leaf)
                              : NULL;
        if (!m || m->how != FUSED || !g->kv.n_kinds || !g->kv.kinds[0].keys)
            continue;
        int64_t heads = v->meta.dim[m->dim] / g->kv.kinds[0].keys - 2 * g->kv.kinds[0].heads;
        return heads > 0 ? (uint64_t)heads : 0;
    }
    return 0;
}

/* Cards that are more than the heads of keys and values have copies of them. */
static plim_status count_heads(dividing *d)
{
    for (uint32_t i = 0; i < d->g->kv.n_kinds; i++) {
        const plim_kv_layers *kv = &d->g->kv.kinds[i];
        if (!kv->heads || !kv->values)
            continue;
        if (d->kv && d->kv != (uint64_t)kv->heads)
            return plim_fail(d->err, PLIM_EUNSUPPORTED, 0,
                             "tp: layers of '" PLIM_STR_FMT "' have %" PRIu64 " and %" PRId64
                             " heads of keys and values: that is not simulated",
                             PLIM_STR_CUT(d->g->about.name), d->kv, kv->heads);
        d->kv = (uint64_t)kv->heads;
    }
    d->queries = count_read_queries(d->g);
    if (!d->queries)
        d->queries = count_fused_queries(d->g);
    if (d->queries % d->cards)
        return refuse_number(d, d->queries, "heads", d->g->about.name);
    d->own_kv = PLIM_MAX(d->kv / d->cards, 1);
    if (d->kv && (d->kv >= d->cards ? d->kv % d->cards : d->cards % d->kv))
        return refuse_number(d, d->kv, "heads of keys and values", d->g->about.name);
    return PLIM_OK;
}

/* ---- parts ------------------------------------------------------------------------------------ */

/* A bias of what all cards add up, a scale of each output feature: not divided with the inputs. */
static bool is_of_outputs(const plim_value *v, plim_str leaf)
{
    bool scale = plim_str_is(leaf, "weight_scale") &&
                 (v->meta.rank < 2 || v->meta.dim[v->meta.rank - 1] == 1);
    return scale || plim_str_is(leaf, "bias") || plim_str_is(leaf, "SCB");
}

/* Of the inputs (the order of a GPTQ weight's groups), or of no feature at all. */
static bool is_of_inputs(plim_str leaf) { return plim_str_is(leaf, "g_idx"); }
static bool is_of_none(const plim_value *v, plim_str leaf)
{
    return !v->meta.rank || plim_str_is(leaf, "weight_shape") ||
           plim_str_ends(leaf, PLIM_STR("quant_map"));
}

/* Blocks of fp8 weights stay whole. */
static plim_status check_blocks(const dividing *d, const plim_value *v, int64_t n)
{
    if (n < 0 || (uint64_t)n % d->cards == 0)
        return PLIM_OK;
    return refuse_number(d, (uint64_t)n, "blocks of weights", v->name);
}

static plim_status check_features(const dividing *d, const plim_value *v, plim_str leaf,
                                  const module *m)
{
    int dim = (int)PLIM_MIN(m->dim, (int)v->meta.rank - 1);
    bool plain = !v->packed && (v->meta.rank > 1 || m->how == ROWS);
    if (plim_str_is(leaf, "weight_scale_inv"))
        return m->how == HEADS ? PLIM_OK : check_blocks(d, v, v->meta.dim[m->how == COLUMNS]);
    if (plain && (m->how == ROWS || m->how == COLUMNS) &&
        (uint64_t)v->meta.dim[dim] % d->cards)
        return refuse_number(d, (uint64_t)v->meta.dim[dim],
                             m->how == ROWS ? "rows" : "columns", v->name);
    return PLIM_OK;
}

/* The width of each expert is divided, or their number.  The last bias is added once. */
static plim_status divide_experts(const dividing *d, const plim_value *v,
                                  plim_serve_fraction *out)
{
    uint64_t n = v->meta.rank ? (uint64_t)PLIM_MAX(v->meta.dim[0], 1) : 1;
    bool down_bias = plim_str_ends(v->name, PLIM_STR("down_proj_bias"));
    *out = d->by_expert ? (plim_serve_fraction){plim_ceil_div(n, d->cards), n}
           : down_bias  ? whole
                        : (plim_serve_fraction){1, d->cards};
    if (d->by_expert || v->meta.rank < 3)
        return PLIM_OK;
    if (plim_str_ends(v->name, PLIM_STR("gate_up_proj_scale_inv")))
        return check_blocks(d, v, v->meta.dim[1] / 2);
    if (plim_str_ends(v->name, PLIM_STR("down_proj_scale_inv")))
        return check_blocks(d, v, v->meta.dim[2]);
    return PLIM_OK;
}

static plim_status refuse_name(const dividing *d, const plim_value *v)
{
    return plim_fail(d->err, PLIM_EUNSUPPORTED, 0,
                     "tp: it is not known what each card has of '" PLIM_STR_FMT "'",
                     PLIM_STR_CUT(v->name));
}

static plim_status divide_fused(const dividing *d, const plim_value *v,
                                plim_serve_fraction *out)
{
    if (!d->queries || !d->kv)
        return refuse_name(d, v);
    *out =
        (plim_serve_fraction){d->queries / d->cards + 2 * d->own_kv, d->queries + 2 * d->kv};
    return PLIM_OK;
}

static plim_status divide_value(const dividing *d, const plim_value *v,
                                plim_serve_fraction *out)
{
    plim_str leaf;
    const module *m = module_of(v->name, &leaf);
    *out = whole;
    if (plim_name_in_experts(v->name))
        return divide_experts(d, v, out);
    if (!m)
        return refuse_name(d, v);
    if (m->how == WHOLE || m->how == TABLE || is_of_none(v, leaf) ||
        (m->how == COLUMNS ? is_of_outputs(v, leaf) : is_of_inputs(leaf)))
        return PLIM_OK;
    if (m->how == FUSED)
        return divide_fused(d, v, out);
    bool sees = plim_str_has(v->name, "vision_tower."); /* as many as of queries */
    *out = m->how == HEADS && d->kv && !sees ? (plim_serve_fraction){d->own_kv, d->kv}
                                             : (plim_serve_fraction){1, d->cards};
    return check_features(d, v, leaf, m);
}

/* Words of the vocabulary are filled up, and divided. */
static plim_status divide_words(const dividing *d, const plim_value *v, uint64_t words,
                                plim_serve_fraction *out)
{
    uint64_t all = plim_round_up(words, VOCABULARY_UNIT);
    *out = (plim_serve_fraction){all / d->cards, words};
    return all % d->cards ? refuse_number(d, all, "words", v->name) : PLIM_OK;
}

static bool has_words(const plim_graph *g, const plim_value *v, uint64_t *words)
{
    const plim_meta *logits = &g->values[g->outputs[0]].meta;
    *words = logits->rank ? (uint64_t)logits->dim[logits->rank - 1] : 0;
    return *words && v->meta.rank == 2 && (uint64_t)v->meta.dim[0] == *words;
}

/* ---- results ------------------------------------------------------------------------------------ */

/* The module whose weight the node reads; NULL: it reads none. */
static const module *reads_weight(const plim_graph *g, const plim_node *n)
{
    plim_str leaf;
    for (uint32_t i = 0; i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            uint32_t id = plim_arg_value(&n->args[i], k);
            if (id != PLIM_NONE && plim_serve_is_weight(&g->values[id]))
                return module_of(g->values[id].name, &leaf);
        }
    return NULL;
}

static bool reads_part(const plim_graph *g, const plim_node *n,
                       const plim_serve_fraction *part)
{
    for (uint32_t i = 0; i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            uint32_t id = plim_arg_value(&n->args[i], k);
            if (id != PLIM_NONE && !plim_serve_is_weight(&g->values[id]) && part[id].of > 1)
                return true;
        }
    return false;
}

static void divide_results(const dividing *d, const plim_node *n, plim_serve_fraction *part)
{
    const module *m = reads_weight(d->g, n);
    bool begins = m && (m->how == ROWS || m->how == HEADS || m->how == FUSED);
    bool ends = m && m->how == COLUMNS;
    bool divided = begins || (!ends && reads_part(d->g, n, part));
    for (uint32_t i = 0; i < n->n_outs; i++)
        part[n->outs[i]] = divided ? (plim_serve_fraction){1, d->cards} : whole;
}

/* What a card keeps of a token: a latent vector is whole. */
static void divide_cache(const dividing *d, plim_graph *g)
{
    for (uint32_t i = 0; i < g->kv.n_kinds; i++) {
        plim_kv_layers *kv = &g->kv.kinds[i];
        if (kv->heads && kv->values)
            kv->heads = (int64_t)d->own_kv;
        kv->channels = (int64_t)plim_ceil_div((uint64_t)kv->channels, d->cards);
        kv->state = (int64_t)plim_ceil_div((uint64_t)kv->state, d->cards);
    }
}

plim_status plim_divide_cards(plim_serve_question *q, plim_graph *g, plim_err *err)
{
    dividing d = {.g = g, .cards = q->cards, .by_expert = q->by_expert, .err = err};
    plim_serve_fraction *part =
        PLIM_NEW_N(q->arena, plim_serve_fraction, (uint64_t)g->n_values + 1);
    if (!part)
        return plim_oom(err);
    plim_status st = d.cards > 1 ? count_heads(&d) : PLIM_OK;
    for (uint32_t i = 0; i < g->n_values && !st; i++) {
        const plim_value *v = &g->values[i];
        uint64_t words;
        part[i] = whole;
        if (plim_serve_is_weight(v) && has_words(g, v, &words))
            st = divide_words(&d, v, words, &part[i]);
        else if (plim_serve_is_weight(v) && d.cards > 1)
            st = divide_value(&d, v, &part[i]);
    }
    for (uint32_t i = 0; i < g->n_nodes && !st && d.cards > 1; i++)
        divide_results(&d, &g->nodes[i], part);
    if (!st && d.cards > 1)
        divide_cache(&d, g);
    q->part = part;
    return st;
}
