/* sizes.c -- what engines need of a model, whatever they are asked: see serve.h. */
#include "serve/serve.h"

/* ---- weights ---------------------------------------------------------------------------- */

bool plim_serve_is_weight(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER || (v->kind == PLIM_VALUE_BUFFER && v->packed);
}

bool plim_serve_has_weight(const plim_value *v)
{
    return plim_serve_is_weight(v) &&
           (v->kind == PLIM_VALUE_BUFFER || v->tied_to == PLIM_NONE);
}

/* Engines hold cos and sin of each position; transformers holds frequencies only. */
uint64_t plim_serve_positions(const plim_value *v)
{
    if (v->kind != PLIM_VALUE_BUFFER || v->packed ||
        !plim_str_ends(v->name, PLIM_STR("inv_freq")) ||
        plim_str_ends(v->name, PLIM_STR("original_inv_freq")) || v->meta.rank != 1)
        return 0;
    return 2 * (uint64_t)v->meta.dim[0];
}

/* ---- experts in MXFP4 ------------------------------------------------------------------- */

static int64_t divide_up(int64_t n, uint64_t by)
{
    return (int64_t)plim_ceil_div((uint64_t)n, by);
}

static bool in_mxfp4(const plim_value *v)
{
    return v->packed && v->meta.rank >= 3 &&
           (plim_str_ends(v->name, PLIM_STR("_proj_blocks")) ||
            plim_str_ends(v->name, PLIM_STR("_proj_scales")));
}

/* [experts, 2 * width, hidden / 32, 16] and [experts, hidden, width / 32, 16]; the same for
 * scales. */
uint64_t plim_question_filled(const plim_serve_question *q, const plim_value *v,
                              const plim_serve_filling *f)
{
    enum { BLOCK = 32 };
    if (!in_mxfp4(v) || !plim_question_bytes(q, v)) /* 0: of another stage */
        return 0;
    const bool up = plim_str_has(v->name, "gate_up_proj"), values = v->meta.rank == 4;
    plim_meta m = v->meta;
    int64_t hidden = up ? m.dim[2] * BLOCK : m.dim[1],
            width = up ? m.dim[1] / 2 : m.dim[2] * BLOCK;
    if (q->by_expert)
        m.dim[0] = divide_up(m.dim[0], q->cards);
    else
        width = divide_up(width, q->cards);
    if (!f->inputs || (up && values))
        hidden = plim_dim_round_up(hidden, f->hidden);
    if (!f->inputs || (!up && values))
        width = plim_dim_round_up(width, f->width);
    m.dim[1] = up ? 2 * width : hidden;
    m.dim[2] = divide_up(up ? hidden : width, BLOCK);
    uint64_t bytes;
    return plim_meta_bytes(&m, &bytes) ? bytes : UINT64_MAX;
}

/* ---- results ---------------------------------------------------------------------------- */

/* What an op reads and writes for one token, and whether any of it is not made of parameters
 * alone; `moving` marks such values. */
static uint64_t sum_operands(const plim_serve_question *q, const plim_node *n, bool *moving)
{
    uint64_t sum = 0;
    bool moves = false;
    for (uint32_t i = 0; i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            uint32_t id = plim_arg_value(&n->args[i], k);
            if (id == PLIM_NONE || !moving[id])
                continue;
            moves = true;
            sum = plim_sat_add(sum, plim_question_bytes(q, &q->g->values[id]));
        }
    for (uint32_t i = 0; i < n->n_outs; i++) {
        moving[n->outs[i]] = moves;
        sum = plim_sat_add(sum, plim_question_bytes(q, &q->g->values[n->outs[i]]));
    }
    return moves ? sum : 0;
}

/* The head, which makes the logits, works on few tokens only. */
plim_status plim_question_widest(const plim_serve_question *q, uint64_t *out, plim_err *err)
{
    const plim_graph *g = q->g;
    const uint64_t logits = plim_question_bytes(q, &g->values[g->outputs[0]]);
    uint64_t hidden = 0;
    bool *moving = PLIM_NEW_N(q->arena, bool, g->n_values);
    if (!moving)
        return plim_oom(err);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        moving[g->inputs[i]] = true;
    *out = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        uint64_t all = sum_operands(q, n, moving);
        uint64_t made = n->n_outs ? plim_question_bytes(q, &g->values[n->outs[0]]) : 0;
        if (!all || made == logits)
            continue;
        hidden = hidden ? hidden : made; /* of the embedding */
        *out = PLIM_MAX(*out, all);
    }
    *out = plim_sat_add(*out, 2 * hidden);
    return PLIM_OK;
}
