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

/* The multiples to which a kernel fills up the widths of experts in MXFP4, and whether only the 4-bit
 * values along what a product sums.
 * src: model_executor/layers/quantization/mxfp4.py create_weights; that Triton's Hopper layout fills up
 * is from logs: gpt-oss-120b takes 64.38 GiB in it (vllm issue 33155), 65.9651 for Marlin (23278) */
static const struct filling {
    int64_t hidden, width;
    bool inputs;
} fillings[PLIM_IN_COUNT] = {[PLIM_IN_MARLIN] = {256, 128, false},
                             [PLIM_IN_TRITON] = {256, 256, true},
                             [PLIM_IN_FLASHINFER] = {256, 256, false}};

static int64_t divide_up(int64_t n, uint64_t by)
{
    return (int64_t)plim_ceil_div((uint64_t)n, by);
}

/* Experts in MXFP4: [experts, 2 * width, hidden / 32, 16] and [experts, hidden, width / 32, 16], with
 * scales likewise. */
static uint64_t experts_bytes(const plim_serving *s, const plim_value *v, plim_experts_in in)
{
    enum { BLOCK = 32 };
    const struct filling *f = &fillings[in];
    const bool up = plim_str_has(v->name, "gate_up_proj"), values = v->meta.rank == 4;
    plim_meta m = v->meta;
    int64_t hidden = up ? m.dim[2] * BLOCK : m.dim[1],
            width = up ? m.dim[1] / 2 : m.dim[2] * BLOCK;
    if (s->by_expert)
        m.dim[0] = divide_up(m.dim[0], s->cards);
    else
        width = divide_up(width, s->cards);
    if (!f->inputs || (up && values))
        hidden = plim_dim_round_up(hidden, f->hidden);
    if (!f->inputs || (!up && values))
        width = plim_dim_round_up(width, f->width);
    m.dim[1] = up ? 2 * width : hidden;
    m.dim[2] = divide_up(up ? hidden : width, BLOCK);
    uint64_t bytes;
    return plim_meta_bytes(&m, &bytes) ? bytes : UINT64_MAX;
}

static bool in_mxfp4(const plim_value *v)
{
    return v->packed && v->meta.rank >= 3 &&
           (plim_str_ends(v->name, PLIM_STR("_proj_blocks")) ||
            plim_str_ends(v->name, PLIM_STR("_proj_scales")));
}

/* What latent attention multiplies queries and results with: a copy of kv_b_proj in the type of the
 * model, where that is packed.  src: model_executor/layers/attention/mla_attention.py
 * process_weights_after_loading */
static uint64_t absorbed_bytes(const plim_serving *s, const plim_value *v, uint64_t bytes)
{
    static const struct {
        const char *name;
        uint64_t in_byte;
    } packed[] = {
        {"kv_b_proj.weight", 1}, {"kv_b_proj.qweight", 2}, {"kv_b_proj.weight_packed", 2}};
    for (size_t i = 0; i < PLIM_COUNT(packed) && v->packed; i++)
        if (plim_str_ends(v->name, plim_str_of(packed[i].name)))
            return plim_sat_mul(bytes,
                                packed[i].in_byte * plim_dtype_bytes(plim_serving_dtype(s)));
    return 0;
}

static void add_weight(const plim_serving *s, const plim_value *v, plim_serve_sizes *out)
{
    uint64_t bytes = plim_serving_bytes(s, v); /* 0: of another stage */
    const bool experts = bytes && in_mxfp4(v);
    bytes = plim_sat_add(bytes, absorbed_bytes(s, v, bytes));
    out->weights[PLIM_IN_FILE] = plim_sat_add(out->weights[PLIM_IN_FILE], bytes);
    for (plim_experts_in in = PLIM_IN_MARLIN; in < PLIM_IN_COUNT; in++)
        out->weights[in] =
            plim_sat_add(out->weights[in], experts ? experts_bytes(s, v, in) : bytes);
}

static void sum_weights(const plim_serving *s, plim_serve_sizes *out)
{
    const plim_graph *g = s->g;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if ((v->kind == PLIM_VALUE_PARAMETER && v->tied_to == PLIM_NONE) ||
            (v->kind == PLIM_VALUE_BUFFER && v->packed))
            add_weight(s, v, out);
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
