/* hf_moe.c -- see hf_moe.h. */
#include "import/hf/hf_moe.h"

#include "import/hf/hf_quant.h"

uint32_t plim_hf_index(plim_nn *n, uint32_t x, uint32_t index)
{
    return NN_OP(n, "aten.index.Tensor", ARG_T("self", x), ARG_TS("indices", &index, 1));
}

void plim_hf_topk(plim_nn *n, uint32_t x, int64_t k, uint32_t out[2])
{
    const plim_named_arg a[] = {ARG_T("self", x), ARG_I("k", k), ARG_I("dim", -1)};
    plim_nn_node(n, "aten.topk.default", a, PLIM_COUNT(a), out, 2);
}

uint32_t plim_hf_sum(plim_nn *n, uint32_t x, int64_t dim, bool keep)
{
    return NN_OP(n, "aten.sum.dim_IntList", ARG_T("self", x), ARG_IS("dim", INTS(dim)),
                 ARG_I("keepdim", keep));
}

/* The assignment of tokens to experts, sorted by expert. */
typedef struct sorted {
    uint32_t expert, place; /* [tokens * top_k] */
    uint32_t ends;          /* [experts]: the end of each expert's rows */
    uint32_t x, weight;     /* in that order */
} sorted;

static sorted sort_by_expert(plim_nn *n, const plim_hf_experts *e, uint32_t x,
                             plim_hf_routes r)
{
    sorted s;
    uint32_t order[2];
    int64_t top_k = plim_nn_dim(n, r.index, -1);
    uint32_t weight = plim_nn_reshape(n, r.weight, INTS(-1));
    uint32_t index = plim_nn_reshape(n, r.index, INTS(-1));
    const plim_named_arg a[] = {ARG_T("self", index)};
    plim_nn_node(n, "aten.sort.default", a, PLIM_COUNT(a), order, 2);
    s.expert = order[0];
    s.place = order[1];
    uint32_t token =
        NN_OP(n, "aten.floor_divide.default", ARG_T("self", s.place), ARG_I("other", top_k));
    s.x = plim_hf_index(n, x, token);
    s.weight = plim_hf_index(n, weight, s.place);
    s.ends = NN_OP(n, "aten.histc.default", ARG_T("self", plim_nn_to(n, s.expert, PLIM_F32)),
                   ARG_I("bins", e->experts), ARG_I("min", 0), ARG_I("max", e->experts - 1));
    s.ends = NN_OP(n, "aten.cumsum.default", ARG_T("self", s.ends), ARG_I("dim", 0),
                   ARG_I("dtype", PLIM_I32));
    return s;
}

/* A weight of all experts, and each expert's bias */
typedef struct weights {
    uint32_t weight, bias;
    plim_hf_packed packed; /* used instead of the weight if n is not 0 */
} weights;

static weights make_weights(plim_hf *h, const plim_hf_experts *e, const char *name,
                            int64_t out, int64_t in)
{
    plim_nn *n = &h->n;
    weights w = {PLIM_NONE, PLIM_NONE, plim_hf_packed_experts(h, name, e->experts, out, in)};
    if (!w.packed.n)
        w.weight = plim_nn_param(
            n, name, e->oss ? INTS(e->experts, in, out) : INTS(e->experts, out, in));
    if (e->oss)
        w.bias = plim_nn_param(n, plim_nn_join(n, name, "_bias"), INTS(e->experts, out));
    return w;
}

/* each row of x, in the dtype of `like`, times the weight of its expert */
static uint32_t grouped_linear(plim_hf *h, const plim_hf_experts *e, uint32_t x,
                               const weights *w, uint32_t like, const sorted *s)
{
    plim_nn *n = &h->n;
    uint32_t row_bias = e->oss ? plim_hf_index(n, w->bias, s->expert) : PLIM_NONE;
    if (w->packed.n) {
        x = plim_hf_packed_product(h, x, &w->packed, PLIM_NONE);
    } else {
        uint32_t weight = e->oss ? w->weight : plim_nn_transpose(n, w->weight, -2, -1);
        x = plim_nn_to_like(n, x, like == PLIM_NONE ? w->weight : like);
        x = NN_OP(n, "transformers.grouped_mm_fallback.default", ARG_T("input", x),
                  ARG_T("weight", weight), ARG_T("offs", s->ends));
    }
    return e->oss ? plim_nn_binary(n, "aten.add_.Tensor", x, row_bias) : x;
}

static uint32_t apply_gate(plim_hf *h, const plim_hf_experts *e, uint32_t x)
{
    uint32_t half[2];
    plim_nn_chunk(&h->n, x, 2, -1, half);
    half[0] = plim_hf_act(h, "act_fn", e->act, half[0]);
    return plim_nn_binary(&h->n, "aten.mul.Tensor", half[0], half[1]);
}

/* GptOssExperts._apply_gate */
static uint32_t apply_gate_oss(plim_nn *n, uint32_t x)
{
    uint32_t gate = plim_nn_slice(n, x, 1, 0, INT64_MAX, 2);
    uint32_t up = plim_nn_slice(n, x, 1, 1, INT64_MAX, 2);
    gate = NN_OP(n, "aten.clamp.default", ARG_T("self", gate), ARG_F("max", 7));
    up = NN_OP(n, "aten.clamp.default", ARG_T("self", up), ARG_F("min", -7), ARG_F("max", 7));
    uint32_t s = plim_nn_scalar(n, "aten.mul.Tensor", gate, 1.702);
    s = plim_nn_unary(n, "aten.sigmoid.default", s);
    gate = plim_nn_binary(n, "aten.mul.Tensor", gate, s);
    up = plim_nn_scalar(n, "aten.add.Tensor", up, 1);
    return plim_nn_binary(n, "aten.mul.Tensor", up, gate);
}

/* Puts rows back into the order of tokens and sums those of each token. */
static uint32_t gather_rows(plim_nn *n, uint32_t rows, const sorted *s, int64_t tokens)
{
    int64_t all = plim_nn_dim(n, rows, 0), hidden = plim_nn_dim(n, rows, 1);
    uint32_t place = s->place;
    rows = plim_nn_binary(n, "aten.mul.Tensor", rows, plim_nn_unsqueeze(n, s->weight, -1));
    uint32_t back = plim_nn_unary(n, "aten.empty_like.default", place);
    back = NN_OP(n, "aten.index_put_.default", ARG_T("self", back),
                 ARG_TS("indices", &place, 1), ARG_T("values", plim_nn_arange(n, all)));
    rows = plim_hf_index(n, rows, back);
    rows = plim_nn_view(n, rows, INTS(tokens, all / tokens, hidden));
    return plim_hf_sum(n, rows, 1, false);
}

uint32_t plim_hf_run_experts(plim_hf *h, const plim_hf_experts *e, uint32_t x,
                             plim_hf_routes r)
{
    plim_nn *n = &h->n;
    int64_t tokens = plim_nn_dim(n, x, 0), hidden = plim_nn_dim(n, x, 1);
    plim_nn_enter(n, "experts", e->type);
    weights up = make_weights(h, e, "gate_up_proj", 2 * e->ffn, hidden);
    weights down = make_weights(h, e, "down_proj", hidden, e->ffn);
    sorted s = sort_by_expert(n, e, x, r);
    uint32_t y = grouped_linear(h, e, s.x, &up, PLIM_NONE, &s);
    y = e->oss ? apply_gate_oss(n, y) : apply_gate(h, e, y);
    y = grouped_linear(h, e, y, &down, s.x, &s);
    y = gather_rows(n, y, &s, tokens);
    y = plim_nn_to_like(n, y, x);
    plim_nn_leave(n);
    return y;
}
