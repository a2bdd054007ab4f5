/* sizes.c -- what vLLM needs of a model, whatever it is asked: see serve.h. */
#include "serve/serve.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* cos and sin of a position, in the type of the model: transformers holds frequencies only.
 * src: model_executor/layers/rotary_embedding/base.py */
static uint64_t rotary_row(const plim_serving *s, const plim_value *v)
{
    if (!plim_str_ends(v->name, PLIM_STR("inv_freq")) ||
        plim_str_ends(v->name, PLIM_STR("original_inv_freq")) || v->meta.rank != 1)
        return 0;
    return 2 * (uint64_t)v->meta.dim[0] * plim_dtype_bytes(plim_serving_dtype(s));
}

static void sum_weights(const plim_serving *s, plim_serve_sizes *out)
{
    const plim_graph *g = s->g;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        uint64_t bytes = plim_serving_bytes(s, v);
        if (v->kind == PLIM_VALUE_PARAMETER && v->tied_to == PLIM_NONE)
            out->weights = plim_sat_add(out->weights, bytes);
        else if (v->kind == PLIM_VALUE_BUFFER && v->packed)
            out->weights = plim_sat_add(out->weights, bytes);
        else if (v->kind == PLIM_VALUE_BUFFER)
            out->position = plim_sat_add(out->position, rotary_row(s, v));
    }
}

/* ---- results ------------------------------------------------------------------------------------ */

/* What an op reads and writes for one token, and whether any of it is not made of parameters
 * alone; `moving` marks such values. */
static uint64_t sum_operands(const plim_serving *s, const plim_node *n, bool *moving)
{
    uint64_t sum = 0;
    bool moves = false;
    for (uint32_t i = 0; i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            uint32_t id = plim_arg_value(&n->args[i], k);
            if (id == PLIM_NONE || !moving[id])
                continue;
            moves = true;
            sum = plim_sat_add(sum, plim_serving_bytes(s, &s->g->values[id]));
        }
    for (uint32_t i = 0; i < n->n_outs; i++) {
        moving[n->outs[i]] = moves;
        sum = plim_sat_add(sum, plim_serving_bytes(s, &s->g->values[n->outs[i]]));
    }
    return moves ? sum : 0;
}

/* The most that an op of a layer works on for one token, and the hidden states beside it; the
 * head, which makes the logits, works on few tokens only. */
static plim_status find_widest(const plim_serving *s, uint64_t *out, plim_err *err)
{
    const plim_graph *g = s->g;
    const uint64_t logits = plim_serving_bytes(s, &g->values[g->outputs[0]]);
    uint64_t hidden = 0;
    bool *moving = PLIM_NEW_N(s->arena, bool, g->n_values);
    if (!moving)
        return plim_oom(err);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        moving[g->inputs[i]] = true;
    *out = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        uint64_t all = sum_operands(s, n, moving);
        uint64_t made = n->n_outs ? plim_serving_bytes(s, &g->values[n->outs[0]]) : 0;
        if (!all || made == logits)
            continue;
        hidden = hidden ? hidden : made; /* of the embedding */
        *out = PLIM_MAX(*out, all);
    }
    *out = plim_sat_add(*out, 2 * hidden);
    return PLIM_OK;
}

plim_status plim_serving_measure(const plim_serving *s, plim_serve_sizes *out, plim_err *err)
{
    *out = (plim_serve_sizes){0};
    sum_weights(s, out);
    return find_widest(s, &out->widest, err);
}
