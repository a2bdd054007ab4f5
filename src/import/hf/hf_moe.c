/* hf_moe.c -- see hf_moe.h. */
#include "import/hf/hf_moe.h"

#include "import/hf/hf_quant.h"

/* x[index] */
static uint32_t index_rows(plim_nn *n, uint32_t x, uint32_t index)
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
    uint32_t expert, place;   /* [tokens * top_k] */
    uint32_t ends;            /* [experts]: the end of each expert's rows */
    uint32_t counted, counts; /* whose ends are made */
    uint32_t x, weight;       /* in that order */
    uint32_t mask;            /* PLIM_NONE: all experts are here */
} sorted;

/* Rows that other experts than those here would have to compute: masked, though there are none.  Where
 * experts are shared out, they are numbered among those here. */
static void mask_strangers(plim_nn *n, const plim_hf_experts *e, sorted *s)
{
    uint32_t mask =
        NN_OP(n, "aten.ge.Scalar", ARG_T("self", s->expert), ARG_I("other", e->experts));
    s->mask = plim_nn_unsqueeze(n, mask, -1);
    s->expert = NN_OP(n, "aten.clamp_.default", ARG_T("self", s->expert),
                      ARG_I("max", e->experts - 1));
    s->x = NN_OP(n, "aten.masked_fill_.Scalar", ARG_T("self", s->x), ARG_T("mask", s->mask),
                 ARG_F("value", 0));
}

static sorted sort_by_expert(plim_nn *n, const plim_hf_experts *e, uint32_t x,
                             plim_hf_routes r)
{
    sorted s = {.mask = PLIM_NONE};
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
    s.x = index_rows(n, x, token);
    s.weight = index_rows(n, weight, s.place);
    s.counted = plim_nn_to(n, s.expert, PLIM_I32);
    s.counts = NN_OP(n, "aten.histc.default", ARG_T("self", s.counted),
                     ARG_I("bins", e->experts), ARG_I("min", 0), ARG_I("max", e->experts - 1));
    s.ends = NN_OP(n, "aten.cumsum.default", ARG_T("self", s.counts), ARG_I("dim", 0),
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

/* Each row of x, in the dtype of `like`, times the weight of its expert.  *row_bias: a variable, of the
 * product before and then of this one. */
static uint32_t grouped_linear(plim_hf *h, const plim_hf_experts *e, uint32_t x,
                               const weights *w, uint32_t like, const sorted *s,
                               uint32_t *row_bias)
{
    plim_nn *n = &h->n;
    uint32_t before = *row_bias;
    *row_bias = e->oss ? index_rows(n, w->bias, s->expert) : PLIM_NONE;
    plim_hf_end_variables(n, &before, before != PLIM_NONE);
    if (w->packed.n) {
        x = plim_hf_packed_product(h, x, &w->packed, PLIM_NONE);
    } else {
        uint32_t weight = e->oss ? w->weight : plim_nn_transpose(n, w->weight, -2, -1);
        x = plim_nn_to_like(n, x, like == PLIM_NONE ? w->weight : like);
        x = NN_OP(n, "transformers.grouped_mm_fallback.default", ARG_T("input", x),
                  ARG_T("weight", weight), ARG_T("offs", s->ends));
    }
    return e->oss ? plim_nn_binary(n, "aten.add_.Tensor", x, *row_bias) : x;
}

static uint32_t mask_rows(plim_nn *n, uint32_t x, const sorted *s)
{
    return s->mask == PLIM_NONE ? x
                                : NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", x),
                                        ARG_T("mask", s->mask), ARG_F("value", 0));
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
    uint32_t glu = plim_nn_binary(n, "aten.mul.Tensor", gate, s);
    uint32_t y = plim_nn_scalar(n, "aten.add.Tensor", up, 1);
    y = plim_nn_binary(n, "aten.mul.Tensor", y, glu);
    plim_hf_end_variables(n, (uint32_t[]){x, gate, up, glu}, 4);
    return y;
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
    rows = index_rows(n, rows, back);
    rows = plim_nn_view(n, rows, INTS(tokens, all / tokens, hidden));
    return plim_hf_sum(n, rows, 1, false);
}

/* grouped_mm_experts_forward, of all experts or of those here */
static uint32_t run_experts(plim_hf *h, const plim_hf_experts *e, const weights w[2],
                            uint32_t x, plim_hf_routes r, bool shared_out)
{
    plim_nn *n = &h->n;
    int64_t tokens = plim_nn_dim(n, x, 0);
    sorted s = sort_by_expert(n, e, x, r);
    if (shared_out || h->version < PLIM_HF_SINCE_MASKED_RANKS)
        mask_strangers(n, e, &s);
    uint32_t bias = PLIM_NONE;
    uint32_t y = mask_rows(n, grouped_linear(h, e, s.x, &w[0], PLIM_NONE, &s, &bias), &s);
    y = e->oss ? apply_gate_oss(n, y) : apply_gate(h, e, y);
    y = mask_rows(n, grouped_linear(h, e, y, &w[1], s.x, &s, &bias), &s);
    uint32_t rows = y; /* proj_out */
    y = plim_nn_to_like(n, gather_rows(n, y, &s, tokens), x);
    const uint32_t held[] = {s.expert, s.place, s.counted, s.counts, s.x, rows};
    plim_hf_end_variables(n, held, PLIM_COUNT(held));
    plim_hf_end_variables(n, &bias, bias != PLIM_NONE);
    return y;
}

/* ---- experts of several ranks --------------------------------------------------------------- */

/* Rows that a rank sends, and those that it receives: as many, if tokens are routed evenly. */
typedef struct exchanged {
    uint32_t order, sent, send_counts, recv_counts;
    uint32_t x;       /* received */
    plim_hf_routes r; /* of them, to the experts here */
} exchanged;

/* How many rows each rank has for each expert, which the host reads. */
static void count_rows(plim_nn *n, exchanged *d, uint32_t ids, int64_t ranks, int64_t experts)
{
    uint32_t all = NN_OP(n, "aten.new_zeros.default", ARG_T("self", ids),
                         ARG_IS("size", INTS(ranks * experts)));
    uint32_t one = NN_OP(n, "aten.ones_like.default", ARG_T("self", ids));
    all = NN_OP(n, "aten.scatter_add_.default", ARG_T("self", all), ARG_I("dim", 0),
                ARG_T("index", ids), ARG_T("src", one));
    d->send_counts = plim_nn_view(n, all, INTS(ranks, experts));
    d->recv_counts = plim_nn_unary(n, "aten.empty_like.default", d->send_counts);
    uint32_t sums[] = {plim_hf_sum(n, d->send_counts, 1, false),
                       plim_hf_sum(n, d->recv_counts, 1, false)};
    NN_OP(n, "aten.stack.default", ARG_TS("tensors", sums, 2));
}

/* AllToAllEP._dispatch_tokens */
static exchanged dispatch_tokens(plim_hf *h, const plim_hf_experts *e, uint32_t x,
                                 plim_hf_routes r)
{
    plim_nn *n = &h->n;
    exchanged d;
    int64_t ranks = h->bind->part.experts, top_k = plim_nn_dim(n, r.index, -1);
    uint32_t ids = plim_nn_reshape(n, r.index, INTS(-1));
    d.order = NN_OP(n, "aten.argsort.default", ARG_T("self", ids));
    uint32_t token =
        NN_OP(n, "aten.floor_divide.default", ARG_T("self", d.order), ARG_I("other", top_k));
    d.sent = index_rows(n, x, token);
    count_rows(n, &d, ids, ranks, e->experts);
    d.x = NN_OP(n, "plimsoll.ep_exchange.default", ARG_T("self", d.sent));
    uint32_t own =
        NN_OP(n, "aten.repeat.default", ARG_T("self", plim_nn_arange(n, e->experts)),
              ARG_IS("repeats", INTS(ranks)));
    own = NN_OP(n, "aten.repeat_interleave.self_Tensor", ARG_T("self", own),
                ARG_T("repeats", plim_nn_reshape(n, d.recv_counts, INTS(-1))),
                ARG_I("output_size", plim_nn_dim(n, d.x, 0)));
    d.r.index = plim_nn_unsqueeze(n, own, -1);
    d.r.weight = NN_OP(n, "aten.new_ones.default", ARG_T("self", d.x),
                       ARG_IS("size", INTS(plim_nn_dim(n, d.x, 0), 1)));
    plim_hf_end_variables(n, (uint32_t[]){d.sent, d.send_counts, d.recv_counts}, 3);
    return d;
}

/* AllToAllEP._combine_tokens */
static uint32_t combine_tokens(plim_hf *h, const exchanged *d, uint32_t y, uint32_t weight)
{
    plim_nn *n = &h->n;
    int64_t hidden = plim_nn_dim(n, y, 1);
    uint32_t order = d->order,
             received = NN_OP(n, "plimsoll.ep_exchange.default", ARG_T("self", y));
    uint32_t rows = plim_nn_unary(n, "aten.empty_like.default", received);
    rows = NN_OP(n, "aten.index_put_.default", ARG_T("self", rows),
                 ARG_TS("indices", &order, 1), ARG_T("values", received));
    rows = plim_nn_view(n, rows,
                        INTS(plim_nn_dim(n, weight, 0), plim_nn_dim(n, weight, 1), hidden));
    rows = plim_nn_binary(n, "aten.mul.Tensor", rows, plim_nn_unsqueeze(n, weight, -1));
    rows = plim_hf_sum(n, rows, 1, false);
    plim_hf_end_variables(n, (uint32_t[]){received, d->x, d->r.index, d->r.weight, y}, 5);
    return rows;
}

static int64_t divide_experts(plim_hf *h, const plim_hf_experts *e)
{
    int64_t ranks = PLIM_MAX(h->bind->part.experts, 1);
    if (e->experts % ranks)
        plim_nn_fail(&h->n, PLIM_EUSAGE,
                     "ep: %" PRId64 " cards do not divide %" PRId64 " experts", ranks,
                     e->experts);
    h->n.g->part.expert_ranks = ranks > 1 ? ranks : 0;
    return ranks;
}

uint32_t plim_hf_run_experts(plim_hf *h, const plim_hf_experts *e, uint32_t x,
                             plim_hf_routes r)
{
    plim_nn *n = &h->n;
    int64_t hidden = plim_nn_dim(n, x, 1), ranks = divide_experts(h, e);
    plim_hf_experts here = *e;
    here.experts = PLIM_MAX(e->experts / ranks, 1);
    plim_nn_enter(n, "experts", e->type);
    const weights w[] = {make_weights(h, &here, "gate_up_proj", 2 * e->ffn, hidden),
                         make_weights(h, &here, "down_proj", hidden, e->ffn)};
    uint32_t y;
    if (ranks > 1) {
        exchanged d = dispatch_tokens(h, &here, x, r);
        y = run_experts(h, &here, w, d.x, d.r, true);
        y = plim_nn_to_like(n, combine_tokens(h, &d, y, r.weight), x);
    } else {
        y = run_experts(h, &here, w, x, r, false);
    }
    plim_nn_leave(n);
    return y;
}
