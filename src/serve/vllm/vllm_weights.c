/* vllm_weights.c -- see vllm_weights.h. */
#include "serve/vllm/vllm_weights.h"

/* The multiples to which a kernel fills up the widths of experts in MXFP4, and whether only
 * the 4-bit values along what a product sums.
 * src: model_executor/layers/quantization/mxfp4.py create_weights; that Triton's Hopper layout
 * fills up is from logs: gpt-oss-120b takes 64.38 GiB in it (vllm issue 33155), 65.9651 for
 * Marlin (23278) */
static const plim_serve_filling fillings[PLIM_IN_COUNT] = {
    [PLIM_IN_MARLIN] = {256, 128, false},
    [PLIM_IN_TRITON] = {256, 256, true},
    [PLIM_IN_FLASHINFER] = {256, 256, false}};

/* What latent attention multiplies queries and results with: a copy of kv_b_proj in the type
 * of the model, where that is packed.  src: model_executor/layers/attention/mla_attention.py
 * process_weights_after_loading */
static uint64_t absorbed_bytes(const plim_serve_question *q, const plim_value *v,
                               uint64_t bytes)
{
    static const struct {
        const char *name;
        uint64_t in_byte;
    } packed[] = {
        {"kv_b_proj.weight", 1}, {"kv_b_proj.qweight", 2}, {"kv_b_proj.weight_packed", 2}};
    for (size_t i = 0; i < PLIM_COUNT(packed) && v->packed; i++)
        if (plim_str_ends(v->name, plim_str_of(packed[i].name)))
            return plim_sat_mul(bytes,
                                packed[i].in_byte * plim_dtype_bytes(plim_question_dtype(q)));
    return 0;
}

static void add_weight(const plim_serve_question *q, const plim_value *v, plim_vllm_sizes *out)
{
    uint64_t bytes = plim_question_bytes(q, v);
    bytes = plim_sat_add(bytes, absorbed_bytes(q, v, bytes));
    for (int in = PLIM_IN_FILE; in < PLIM_IN_COUNT; in++) {
        uint64_t filled = in == PLIM_IN_FILE ? 0 : plim_question_filled(q, v, &fillings[in]);
        out->weights[in] = plim_sat_add(out->weights[in], filled ? filled : bytes);
    }
}

plim_status plim_vllm_measure(const plim_serve_question *q, const void **out, plim_err *err)
{
    plim_vllm_sizes *sizes = PLIM_NEW(q->arena, plim_vllm_sizes);
    if (!sizes)
        return plim_oom(err);
    for (uint32_t i = 0; i < q->g->n_values; i++) {
        const plim_value *v = &q->g->values[i];
        if (plim_serve_has_weight(v))
            add_weight(q, v, sizes);
        sizes->position = plim_sat_add(sizes->position, plim_serve_positions(v));
    }
    /* in the type of the model.  src: model_executor/layers/rotary_embedding/base.py */
    sizes->position = plim_sat_mul(sizes->position, plim_dtype_bytes(plim_question_dtype(q)));
    *out = sizes;
    return plim_question_widest(q, &sizes->widest, err);
}
