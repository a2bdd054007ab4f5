/* mg_moe.c -- Megatron-LM's MoELayer, what one rank has of it: see mg_parts.h.
 *
 * Of the experts a rank has one of `experts` parts, and of each of these one of `expert_parts` parts of its
 * features.  Tokens reach them by an all-gather among all these ranks, or by an exchange.  Routes are
 * assumed to be even: each expert gets as many rows.
 * src: megatron-core 0.16 transformer/moe moe_layer.py, router.py, token_dispatcher.py, experts.py,
 * shared_experts.py */
#include "import/megatron/mg_parts.h"

enum { MOST_CHUNKS = 16 };

typedef struct moe {
    plim_mg *b;
    plim_nn *n;
    const plim_mg_rank *r;
    int64_t tokens; /* of this rank */
    int64_t local;  /* experts of this rank */
    int64_t cards;  /* that share them out */
} moe;

/* ---- routes -------------------------------------------------------------------------------- */

typedef struct routes {
    uint32_t probs, map; /* [tokens, experts]; map: bool */
} routes;

/* The k largest along the last dimension. */
static uint32_t take_most(const moe *e, uint32_t x, int64_t k, uint32_t *values)
{
    uint32_t out[2];
    const plim_named_arg a[] = {ARG_T("self", x), ARG_I("k", k), ARG_I("dim", -1)};
    plim_nn_node(e->n, "aten.topk.default", a, PLIM_COUNT(a), out, 2);
    *values = out[0];
    return out[1];
}

static uint32_t sum_last(const moe *e, uint32_t x, bool keeps)
{
    return NN_OP(e->n, "aten.sum.dim_IntList", ARG_T("self", x), ARG_IS("dim", INTS(-1)),
                 ARG_I("keepdim", keeps));
}

/* group_limited_topk: scores outside of the best groups do not count. */
static uint32_t mask_groups(const moe *e, uint32_t x)
{
    plim_nn *n = e->n;
    const plim_mg_args *c = &e->r->c;
    int64_t groups = c->router_groups, size = c->experts / groups;
    uint32_t best, grouped = plim_nn_view(n, x, INTS(e->tokens, groups, -1));
    take_most(e, grouped, c->top_k / c->router_group_top, &best);
    uint32_t sums = sum_last(e, best, false);
    uint32_t index = take_most(e, sums, c->router_group_top, &best);
    uint32_t mask = plim_nn_unary(n, "aten.zeros_like.default", sums);
    mask = NN_OP(n, "aten.scatter_.value", ARG_T("self", mask), ARG_I("dim", 1),
                 ARG_T("index", index), ARG_I("value", 1));
    mask = plim_nn_expand(n, plim_nn_unsqueeze(n, mask, -1), INTS(e->tokens, groups, size));
    mask = plim_nn_to(n, plim_nn_reshape(n, mask, INTS(e->tokens, -1)), PLIM_BOOL);
    return NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", x),
                 ARG_T("mask", plim_nn_unary(n, "aten.bitwise_not.default", mask)),
                 ARG_F("value", -1e30));
}

static uint32_t choose_most(const moe *e, uint32_t x, uint32_t *values)
{
    if (e->r->c.router_group_top)
        x = mask_groups(e, x);
    return take_most(e, x, e->r->c.top_k, values);
}

/* zeros_like(logits).int().scatter(1, indices, 1).bool() */
static uint32_t add_map(const moe *e, uint32_t logits, uint32_t indices)
{
    plim_nn *n = e->n;
    uint32_t x = plim_nn_to(n, plim_nn_unary(n, "aten.zeros_like.default", logits), PLIM_I32);
    x = NN_OP(n, "aten.scatter.value", ARG_T("self", x), ARG_I("dim", 1),
              ARG_T("index", indices), ARG_I("value", 1));
    return plim_nn_to(n, x, PLIM_BOOL);
}

static uint32_t softmax_wide(const moe *e, uint32_t x)
{
    return plim_nn_softmax(e->n, plim_nn_to(e->n, x, PLIM_F32), 1);
}

/* Its iterations free what they make. */
static uint32_t add_sinkhorn(const moe *e, uint32_t logits)
{
    plim_nn *n = e->n;
    uint32_t x = plim_nn_unary(n, "aten.detach.default", logits);
    x = plim_nn_unary(n, "aten.exp.default", plim_nn_to(n, x, PLIM_F32));
    x = plim_nn_binary(n, "aten.mul.Tensor", x, x);
    return plim_nn_binary(n, "aten.mul.Tensor", x, x);
}

static routes route_sinkhorn(const moe *e, uint32_t logits)
{
    plim_nn *n = e->n;
    uint32_t values, indices = choose_most(e, add_sinkhorn(e, logits), &values);
    uint32_t x = e->r->c.top_k == 1 ? plim_nn_unary(n, "aten.sigmoid.default", logits)
                                    : plim_nn_to_like(n, softmax_wide(e, logits), logits);
    routes out = {.map = add_map(e, logits, indices)};
    out.probs = plim_nn_binary(n, "aten.mul.Tensor", x, out.map);
    return out;
}

/* x / (the sum of each row + 1e-20) */
static uint32_t divide_by_sum(const moe *e, uint32_t x)
{
    plim_nn *n = e->n;
    uint32_t sum = plim_nn_scalar(n, "aten.add.Tensor", sum_last(e, x, true), 1e-20);
    return plim_nn_binary(n, "aten.div.Tensor", x, sum);
}

static bool scores_by_sigmoid(const moe *e) { return plim_str_is(e->r->c.score, "sigmoid"); }

/* switch_load_balancing_loss_func */
static uint32_t add_balance(const moe *e, uint32_t logits, uint32_t probs)
{
    plim_nn *n = e->n;
    uint32_t scores = scores_by_sigmoid(e)
                          ? divide_by_sum(e, plim_nn_unary(n, "aten.sigmoid.default", logits))
                          : softmax_wide(e, logits);
    uint32_t values, map = add_map(e, logits, take_most(e, scores, e->r->c.top_k, &values));
    uint32_t counts =
        NN_OP(n, "aten.sum.dim_IntList", ARG_T("self", map), ARG_IS("dim", INTS(0)));
    uint32_t sums =
        NN_OP(n, "aten.sum.dim_IntList", ARG_T("self", scores), ARG_IS("dim", INTS(0)));
    uint32_t x = plim_nn_binary(n, "aten.mul.Tensor", sums, counts);
    x = plim_nn_scalar(n, "aten.mul.Tensor", plim_nn_unary(n, "aten.sum.default", x), 0.01);
    return NN_OP(n, "plimsoll.megatron_attach.default", ARG_T("self", probs),
                 ARG_T("loss", x));
}

/* zeros_like(logits) with x at those places of each row */
static uint32_t spread_probs(const moe *e, uint32_t logits, uint32_t indices, uint32_t x)
{
    plim_nn *n = e->n;
    uint32_t zeros = plim_nn_unary(n, "aten.zeros_like.default", logits);
    if (!e->r->c.deterministic)
        return NN_OP(n, "aten.scatter.src", ARG_T("self", zeros), ARG_I("dim", 1),
                     ARG_T("index", indices), ARG_T("src", x));
    uint32_t at[] = {plim_nn_unsqueeze(n, plim_nn_arange(n, e->tokens), 1), indices};
    return NN_OP(n, "aten.index_put_.default", ARG_T("self", zeros), ARG_TS("indices", at, 2),
                 ARG_T("values", x));
}

/* Weights of the chosen experts, and which they are. */
static uint32_t weigh_softmax(const moe *e, uint32_t logits, uint32_t *indices)
{
    bool first = e->r->c.pre_softmax;
    uint32_t values, x = logits;
    if (first)
        x = plim_nn_to_like(e->n, softmax_wide(e, x), logits);
    *indices = choose_most(e, x, &values);
    return first ? values : plim_nn_to_like(e->n, softmax_wide(e, values), logits);
}

/* bias: what is added for the choice only, or PLIM_NONE */
static uint32_t weigh_sigmoid(const moe *e, uint32_t logits, uint32_t bias, uint32_t *indices)
{
    plim_nn *n = e->n;
    uint32_t x = plim_nn_unary(n, "aten.sigmoid.default", plim_nn_to(n, logits, PLIM_F32)),
             values;
    x = plim_nn_to_like(n, x, logits);
    if (bias != PLIM_NONE) {
        *indices = choose_most(e, plim_nn_binary(n, "aten.add.Tensor", x, bias), &values);
        x = NN_OP(n, "aten.gather.default", ARG_T("self", x), ARG_I("dim", 1),
                  ARG_T("index", *indices));
    } else {
        *indices = choose_most(e, x, &values);
        x = values;
    }
    return e->r->c.top_k > 1 ? divide_by_sum(e, x) : x;
}

static routes route_most(const moe *e, uint32_t logits, uint32_t bias)
{
    plim_nn *n = e->n;
    uint32_t indices, x = scores_by_sigmoid(e) ? weigh_sigmoid(e, logits, bias, &indices)
                                               : weigh_softmax(e, logits, &indices);
    if (e->r->c.router_scale.n)
        x = plim_nn_scalar(n, "aten.mul.Tensor", x, 1);
    routes out = {.map = add_map(e, logits, indices)};
    out.probs = spread_probs(e, logits, indices, x);
    if (e->r->c.balance > 0 && !n->infer)
        out.probs = add_balance(e, logits, out.probs);
    return out;
}

/* It stays in fp32, and so do counts of tokens. */
static uint32_t add_bias(const moe *e)
{
    if (!e->r->c.expert_bias)
        return PLIM_NONE;
    plim_ints size = INTS(e->r->c.experts);
    plim_nn_temporary_buffer(e->n, "local_tokens_per_expert", e->n->dtype, size);
    return plim_nn_buffer(e->n, "expert_bias", PLIM_F32, size);
}

static routes add_router(const moe *e, uint32_t x)
{
    plim_nn *n = e->n;
    plim_nn_enter(n, "router", "TopKRouter");
    uint32_t w = plim_nn_param(n, "weight", INTS(e->r->c.experts, e->r->c.hidden));
    uint32_t bias = add_bias(e);
    uint32_t logits =
        NN_OP(n, "plimsoll.megatron_router.default", ARG_T("input", x), ARG_T("weight", w),
              ARG_I("wide", plim_str_is(e->r->c.router_type, "fp32")));
    logits = plim_nn_view(n, logits, INTS(-1, e->r->c.experts));
    routes out = plim_str_is(e->r->c.balancing, "sinkhorn") ? route_sinkhorn(e, logits)
                                                            : route_most(e, logits, bias);
    plim_nn_leave(n);
    return out;
}

/* ---- experts ---------------------------------------------------------------------------------- */

/* The activation, and the weight of each row's expert. */
static uint32_t add_activation(const moe *e, uint32_t x, uint32_t probs)
{
    plim_nn *n = e->n;
    const plim_mg_args *c = &e->r->c;
    uint32_t scale = plim_nn_unsqueeze(n, probs, -1), y;
    if (c->swiglu && !c->no_swiglu_fusion)
        return NN_OP(n, "plimsoll.megatron_weighted_swiglu.default", ARG_T("self", x),
                     ARG_T("scale", scale));
    y = c->swiglu ? plim_mg_swiglu(n, x) : plim_nn_unary(n, "aten.gelu.default", x);
    y = plim_nn_binary(n, "aten.mul.Tensor", y, scale);
    return plim_nn_to(n, y, n->dtype);
}

static int64_t width_of(const moe *e) { return e->r->expert_ffn * (e->r->c.swiglu ? 2 : 1); }

static uint32_t add_linear(const moe *e, const char *name, const char *type, uint32_t x,
                           int64_t out)
{
    plim_nn *n = e->n;
    plim_nn_enter(n, name, type);
    uint32_t w = plim_nn_param(n, "weight", INTS(out, plim_nn_dim(n, x, -1)));
    x = plim_mg_linear(e->b, x, w, PLIM_NONE, false, e->b->te, 0);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_expert(const moe *e, int64_t i, uint32_t x, uint32_t probs)
{
    plim_nn *n = e->n;
    plim_nn_enter(n, plim_nn_name(n, "", i), "MLP");
    x = add_linear(e, "linear_fc1",
                   e->b->te ? "TEColumnParallelLinear" : "ColumnParallelLinear", x,
                   width_of(e));
    x = add_activation(e, x, probs);
    x = add_linear(e, "linear_fc2", e->b->te ? "TERowParallelLinear" : "RowParallelLinear", x,
                   e->r->c.hidden);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_sequence(const moe *e, uint32_t x, uint32_t probs)
{
    plim_nn *n = e->n;
    uint32_t rows[PLIM_MG_MOST_EXPERTS], scale[PLIM_MG_MOST_EXPERTS];
    uint32_t count = (uint32_t)e->local;
    plim_nn_enter(n, "experts", "SequentialMLP");
    plim_nn_enter(n, "local_experts", "ModuleList");
    if (count == 1)
        x = add_expert(e, 0, x, probs);
    else {
        plim_nn_chunk(n, x, count, 0, rows);
        plim_nn_chunk(n, probs, count, 0, scale);
        for (uint32_t i = 0; i < count && !n->st; i++)
            rows[i] = add_expert(e, i, rows[i], scale[i]);
        plim_nn_called(n, rows, count); /* a list, until all are joined */
        x = plim_nn_cat(n, rows, count, 0);
    }
    plim_nn_leave(n);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_grouped_linear(const moe *e, const char *name, const char *type,
                                   uint32_t x, int64_t out)
{
    plim_nn *n = e->n;
    uint32_t w[PLIM_MG_MOST_EXPERTS], count = (uint32_t)e->local;
    plim_nn_enter(n, name, type);
    for (uint32_t i = 0; i < count && !n->st; i++)
        w[i] =
            plim_nn_param(n, plim_nn_name(n, "weight", i), INTS(out, plim_nn_dim(n, x, -1)));
    x = NN_OP(n, "plimsoll.megatron_grouped_linear.default", ARG_T("input", x),
              ARG_TS("weights", w, count),
              ARG_I("accumulates", !e->r->c.no_accumulation_fusion));
    plim_nn_leave(n);
    return x;
}

static uint32_t add_grouped(const moe *e, uint32_t x, uint32_t probs)
{
    plim_nn *n = e->n;
    plim_nn_enter(n, "experts", "TEGroupedMLP");
    x = add_grouped_linear(e, "linear_fc1", "TEColumnParallelGroupedLinear", x, width_of(e));
    x = add_activation(e, x, probs);
    x = add_grouped_linear(e, "linear_fc2", "TERowParallelGroupedLinear", x, e->r->c.hidden);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_experts(const moe *e, uint32_t x, uint32_t probs)
{
    return e->r->c.grouped_gemm ? add_grouped(e, x, probs) : add_sequence(e, x, probs);
}

/* ---- what moves tokens ------------------------------------------------------------------------------ */

static uint32_t gather_rows(const moe *e, uint32_t x, int64_t parts, bool buffered,
                            bool listed)
{
    return NN_OP(e->n, "plimsoll.megatron_gather.default", ARG_T("self", x),
                 ARG_I("parts", parts), ARG_I("buffered", buffered), ARG_I("listed", listed));
}

static uint32_t scatter_rows(const moe *e, uint32_t x, int64_t parts, bool listed)
{
    return NN_OP(e->n, "plimsoll.megatron_scatter.default", ARG_T("self", x),
                 ARG_I("parts", parts), ARG_I("listed", listed));
}

/* x.T.contiguous() */
static uint32_t transpose_copy(const moe *e, uint32_t x)
{
    return plim_nn_contiguous(e->n, plim_nn_transpose(e->n, x, 0, 1));
}

typedef struct permuted {
    uint32_t rows, probs, indices;
} permuted;

/* permute(): the rows of each expert, one expert after the other. */
static permuted permute_rows(const moe *e, uint32_t x, uint32_t probs, uint32_t map,
                             int64_t rows)
{
    plim_nn *n = e->n;
    uint32_t turned = transpose_copy(e, map);
    permuted out = {.indices = NN_OP(n, "plimsoll.megatron_indices.default",
                                     ARG_T("map", turned), ARG_I("rows", rows))};
    out.probs =
        NN_OP(n, "plimsoll.megatron_select.default", ARG_T("self", transpose_copy(e, probs)),
              ARG_T("map", turned), ARG_I("rows", rows));
    out.rows = NN_OP(n, "aten.index_select.default", ARG_T("self", x), ARG_I("dim", 0),
                     ARG_T("index", out.indices));
    return out;
}

/* The dispatcher has it until the next one. */
static void keep_attribute(const moe *e, const char *name, uint32_t x)
{
    plim_str path = plim_arena_printf(e->n->g->arena, PLIM_STR_FMT ".%s",
                                      PLIM_STR_ARG(e->n->g->scopes[e->n->scope].path), name);
    const plim_named_arg a[] = {ARG_T("self", x),
                                {PLIM_STR("name"), {.kind = PLIM_ARG_STR, .str = path}}};
    if (!path.p) {
        e->n->st = plim_oom(e->n->err);
        return;
    }
    plim_nn_node(e->n, "plimsoll.megatron_attribute.default", a, PLIM_COUNT(a), NULL, 0);
}

static uint32_t unpermute_rows(const moe *e, uint32_t x, uint32_t indices, int64_t rows)
{
    return NN_OP(e->n, "plimsoll.megatron_unpermute.default", ARG_T("self", x),
                 ARG_T("indices", indices), ARG_I("rows", rows),
                 ARG_I("twice", e->r->c.deterministic));
}

/* Of a map of all experts, the part that this rank has. */
static uint32_t own_experts(const moe *e, uint32_t x)
{
    return plim_nn_contiguous(e->n, plim_nn_slice(e->n, x, 1, 0, e->local, 1));
}

/* MoEAllGatherTokenDispatcher */
static uint32_t add_all_gather(const moe *e, uint32_t x, routes r)
{
    plim_nn *n = e->n;
    int64_t cards = e->cards * e->r->expert_parts, all = e->tokens * cards,
            rows = PLIM_MAX(all * e->r->c.top_k / e->cards / e->local * e->local, e->local);
    if (cards > 1) {
        r.map = gather_rows(e, r.map, cards, false, false);
        r.probs = gather_rows(e, r.probs, cards, false, false);
        x = gather_rows(e, x, cards, true, false);
    }
    const uint32_t map = own_experts(e, r.map);
    keep_attribute(e, "local_map", map);
    permuted p = permute_rows(e, x, own_experts(e, r.probs), map, rows);
    keep_attribute(e, "reversed_local_input_permutation_mapping", p.indices);
    keep_attribute(e, "local_probs", p.probs);
    x = unpermute_rows(e, add_experts(e, p.rows, p.probs), p.indices, all);
    if (cards > 1) {
        x = scatter_rows(e, plim_nn_to_like(n, x, r.probs), cards, false);
        x = plim_nn_to(n, x, n->dtype);
    }
    return x;
}

/* Up to here, a variable holds it. */
static void end_variable(const moe *e, uint32_t x)
{
    const plim_named_arg a[] = {ARG_T("self", x)};
    plim_nn_node(e->n, "plimsoll.held.default", a, PLIM_COUNT(a), NULL, 0);
}

/* torch.split() and torch.cat() in another order */
static uint32_t sort_chunks(const moe *e, uint32_t x)
{
    uint32_t part[MOST_CHUNKS];
    int64_t rows = plim_nn_dim(e->n, x, 0), most = e->local * e->cards * e->r->expert_parts;
    uint32_t count = (uint32_t)PLIM_MIN(most, MOST_CHUNKS);
    if (rows < count)
        return x;
    plim_nn_chunk(e->n, x, count, 0, part);
    int64_t size = (rows + count - 1) / count; /* of each, so that there may be fewer */
    return plim_nn_cat(e->n, part, (uint32_t)((rows + size - 1) / size), 0);
}

static uint32_t exchange_rows(const moe *e, uint32_t x)
{
    return e->cards > 1 ? NN_OP(e->n, "plimsoll.ep_exchange.default", ARG_T("self", x)) : x;
}

/* MoEAlltoAllTokenDispatcher */
static uint32_t add_all_to_all(const moe *e, uint32_t x, routes r)
{
    int64_t parts = e->r->expert_parts;
    keep_attribute(e, "probs", r.probs);
    keep_attribute(e, "routing_map", r.map);
    permuted p = permute_rows(e, x, r.probs, r.map, e->tokens * e->r->c.top_k);
    keep_attribute(e, "reversed_local_input_permutation_mapping", p.indices);
    const uint32_t sent = p.rows;
    p.rows = exchange_rows(e, p.rows);
    p.probs = exchange_rows(e, p.probs);
    plim_nn_called(e->n, (uint32_t[]){sent, p.rows, p.probs},
                   3); /* variables, until it returns */
    if (parts > 1) {
        p.rows = gather_rows(e, p.rows, parts, false, true);
        p.probs = gather_rows(e, p.probs, parts, false, true);
    }
    if (e->local > 1) {
        p.rows = sort_chunks(e, p.rows);
        p.probs = sort_chunks(e, p.probs);
    }
    uint32_t sorted = p.rows, made = add_experts(e, p.rows, p.probs);
    x = e->local > 1 ? sort_chunks(e, made) : made;
    if (parts > 1)
        x = scatter_rows(e, x, parts, true);
    end_variable(e, made);
    end_variable(e, sorted);
    return unpermute_rows(e, exchange_rows(e, x), p.indices, e->tokens);
}

/* ---- the layer ---------------------------------------------------------------------------------------- */

/* What every token goes through, with a weight of its own if it has a gate. */
static uint32_t add_shared(plim_mg *b, uint32_t x)
{
    plim_nn *n = &b->n;
    uint32_t gate = PLIM_NONE, bias;
    if (b->c.shared_gate) {
        plim_nn_enter(n, "shared_experts", "SharedExpertMLP");
        gate = plim_nn_param(n, "gate_weight", INTS(1, b->c.hidden));
        plim_nn_leave(n);
    }
    uint32_t y =
        plim_mg_mlp(b, "shared_experts", "SharedExpertMLP", x, b->r->shared_ffn, &bias);
    if (gate == PLIM_NONE)
        return y;
    x = plim_nn_unary(n, "aten.sigmoid.default", plim_nn_linear_op(n, x, gate, PLIM_NONE));
    return plim_nn_binary(n, "aten.mul.Tensor", y, x);
}

uint32_t plim_mg_moe(plim_mg *b, uint32_t x)
{
    plim_nn *n = &b->n;
    const plim_mg_rank *r = b->r;
    int64_t seq = plim_nn_dim(n, x, 0), batch = plim_nn_dim(n, x, 1);
    const moe e = {.b = b,
                   .n = n,
                   .r = r,
                   .tokens = plim_dim_mul(seq, batch),
                   .cards = r->expert_cards,
                   .local = r->c.experts / r->expert_cards};
    plim_nn_enter(n, "mlp", "MoELayer");
    plim_nn_order(n, "router experts shared_experts");
    const uint32_t shared = r->shared_ffn ? add_shared(b, x) : PLIM_NONE;
    routes to = add_router(&e, x);
    x = plim_nn_view(n, x, INTS(-1, r->c.hidden));
    x = plim_str_is(r->c.dispatcher, "alltoall") ? add_all_to_all(&e, x, to)
                                                 : add_all_gather(&e, x, to);
    x = plim_nn_view(n, x, INTS(seq, batch, r->c.hidden));
    if (shared != PLIM_NONE)
        x = plim_nn_binary(n, "aten.add.Tensor", x, shared);
    plim_nn_leave(n);
    return x;
}
