/* stages.c -- what one stage of a pipeline holds of a model: see serve.h. */
#include "serve/serve.h"

/* The number of the layer that has it: of "model.layers.3.mlp", 3; -1: none. */
static int64_t layer_of(plim_str name)
{
    for (size_t i = 0; i < name.n; i++) {
        int64_t n = 0;
        size_t k = i;
        bool begins = i && name.p[i - 1] == '.';
        for (; begins && k < name.n && name.p[k] >= '0' && name.p[k] <= '9' && n < INT32_MAX;)
            n = 10 * n + (name.p[k++] - '0');
        if (begins && k > i && (k == name.n || name.p[k] == '.'))
            return n;
    }
    return -1;
}

/* Layers that are left over go to the last stages but one.
 * src: vllm distributed/utils.py get_pp_indices */
static uint64_t count_layers(uint64_t layers, uint64_t stages, uint64_t stage)
{
    plim_assert(stage < stages);
    uint64_t left = layers % stages, from_end = stages - stage; /* 1: the last */
    return layers / stages + (from_end >= 2 && from_end < left + 2);
}

/* The first node of a layer. */
static uint32_t find_layers(const plim_graph *g)
{
    uint32_t i = 0;
    while (i < g->n_nodes && layer_of(g->scopes[g->nodes[i].scope].path) < 0)
        i++;
    return i;
}

/* Whether a node before the layers reads it. */
static bool is_entrance(const plim_graph *g, uint32_t value)
{
    for (uint32_t i = 0, end = find_layers(g); i < end; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args; k++)
            for (uint32_t j = 0; j < plim_arg_values(&g->nodes[i].args[k]); j++)
                if (plim_arg_value(&g->nodes[i].args[k], j) == value)
                    return true;
    return false;
}

static bool is_tied(const plim_graph *g, uint32_t value)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to == value)
            return true;
    return false;
}

/* The first stage has what comes before the layers; the last what comes after, and an
 * embedding that is tied to the head. */
static plim_status make_stage(plim_serve_question *q, const plim_graph *g, uint64_t at,
                              uint64_t first, plim_serve_stage *out, plim_err *err)
{
    const plim_serve_fraction none = {0, 1};
    uint64_t n = count_layers((uint64_t)g->kv.kinds[0].layers, q->n_stages, at);
    plim_graph *own = PLIM_NEW(q->arena, plim_graph);
    plim_kv_layers *kv = PLIM_NEW(q->arena, plim_kv_layers);
    plim_serve_fraction *part =
        PLIM_NEW_N(q->arena, plim_serve_fraction, (uint64_t)g->n_values + 1);
    if (!own || !kv || !part)
        return plim_oom(err);
    *own = *g;
    *kv = g->kv.kinds[0];
    kv->layers = (int64_t)n;
    own->kv.kinds = kv;
    own->kv.n_runs = 0;
    for (uint32_t i = 0; i < g->n_values; i++) {
        int64_t layer = layer_of(g->values[i].name);
        bool here = !plim_serve_is_weight(&g->values[i]) ||
                    (layer >= 0 ? (uint64_t)layer >= first && (uint64_t)layer < first + n
                     : is_entrance(g, i) ? !at || (at + 1 == q->n_stages && is_tied(g, i))
                                         : at + 1 == q->n_stages);
        part[i] = here ? q->part[i] : none;
    }
    *out = (plim_serve_stage){.g = own, .part = part};
    return PLIM_OK;
}

plim_serve_question plim_question_at(const plim_serve_question *q, uint64_t stage)
{
    plim_assert(stage < q->n_stages);
    plim_serve_question at = *q;
    at.stage = stage;
    at.g = q->stages[stage].g;
    at.part = q->stages[stage].part;
    at.measured = q->stages[stage].measured;
    return at;
}

static plim_status divide_layers(plim_serve_question *q, const plim_graph *g,
                                 plim_serve_measure *measure, plim_err *err)
{
    plim_serve_stage *stages = PLIM_NEW_N(q->arena, plim_serve_stage, q->n_stages);
    plim_status st = stages ? PLIM_OK : plim_oom(err);
    if (!st && g->kv.n_kinds != 1)
        st = plim_fail(err, PLIM_EUNSUPPORTED, 0,
                       "pp: layers of '" PLIM_STR_FMT
                       "' are of several kinds: their division among stages is not simulated",
                       PLIM_STR_CUT(g->about.name));
    if (!st && q->n_stages > (uint64_t)g->kv.kinds[0].layers)
        st = plim_fail(err, PLIM_EUSAGE, 0,
                       "pp: %" PRIu64 " stages are more than the %" PRId64
                       " layers of the model",
                       q->n_stages, g->kv.kinds[0].layers);
    uint64_t first = 0;
    for (uint64_t i = 0; i < q->n_stages && !st; i++) {
        st = make_stage(q, g, i, first, &stages[i], err);
        first += count_layers((uint64_t)g->kv.kinds[0].layers, q->n_stages, i);
    }
    plim_assert(st || first == (uint64_t)g->kv.kinds[0].layers);
    q->stages = stages;
    for (uint64_t i = 0; i < q->n_stages && !st; i++) {
        const plim_serve_question at = plim_question_at(q, i);
        st = measure(&at, &stages[i].measured, err);
    }
    return st;
}

plim_status plim_question_divide(plim_serve_question *q, plim_graph *g, bool by_expert,
                                 plim_serve_measure *measure, plim_err *err)
{
    q->by_expert = by_expert;
    plim_status st = plim_divide_cards(q, g, err);
    if (st || q->n_stages > 1)
        return st ? st : divide_layers(q, g, measure, err);
    return measure(q, &q->measured, err);
}
