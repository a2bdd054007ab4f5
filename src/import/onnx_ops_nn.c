/* onnx_ops_nn.c -- ONNX ops of layers: products, norms, attention, recurrent nets, losses. */
#include "import/onnx_ops.h"

/* ---- products ------------------------------------------------------------------------- */

/* A matrix [in, out] that the file stores: as the weight [out, in] of a Linear. */
static uint32_t linear_weight(onnx_call *c, uint32_t i)
{
    onnx *f = c->f;
    uint32_t val = i < c->node->n_in ? c->in[i] : PLIM_NONE;
    if (val == PLIM_NONE || f->vals[val].kind != ONNX_TENSOR || f->vals[val].meta.rank != 2)
        return PLIM_NONE;
    if (f->vals[val].turned != PLIM_NONE) /* the exporter turned it, as Linear does */
        return f->vals[f->vals[val].turned].from ? plim_onnx_id(c, f->vals[val].turned)
                                                 : PLIM_NONE;
    if (!f->vals[val].from || !plim_is_float(f->vals[val].meta.dtype))
        return PLIM_NONE;
    if (f->vals[val].id == PLIM_NONE) {
        onnx_val *v = &f->vals[val];
        v->meta = plim_meta_make(v->meta.dtype, 2, INTS(v->meta.dim[1], v->meta.dim[0]).p);
        uint32_t id = plim_onnx_id(c, val);
        v = &f->vals[val];
        v->meta = plim_meta_make(v->meta.dtype, 2, INTS(v->meta.dim[1], v->meta.dim[0]).p);
        v->flipped = id != PLIM_NONE;
        return id;
    }
    return f->vals[val].flipped ? f->vals[val].id : PLIM_NONE;
}

/* The bias of the Add that follows, if that makes a Linear of the two. */
static uint32_t linear_bias(onnx_call *c, int64_t out)
{
    uint32_t at, val;
    const onnx_node *add = plim_onnx_only_user(c, c->node, "Add", &at);
    if (!add || add->n_in != 2)
        return PLIM_NONE;
    plim_str other = add->in[plim_str_eq(add->in[0], c->node->out[0])];
    if (!plim_onnx_find(c->env, other, &val) || val == PLIM_NONE)
        return PLIM_NONE;
    const onnx_val *v = &c->f->vals[val];
    if (v->kind != ONNX_TENSOR || !v->from || v->meta.rank != 1 || v->meta.dim[0] != out)
        return PLIM_NONE;
    c->fused[c->n_fused++] = at;
    return plim_onnx_id(c, val);
}

void plim_onnx_matmul(onnx_call *c)
{
    const plim_meta *a = plim_onnx_in_meta(c, 0), *b = plim_onnx_in_meta(c, 1);
    uint32_t id[2], w;
    if (!a || !b || (id[0] = plim_onnx_in_id(c, 0)) == PLIM_NONE)
        return;
    int64_t out = b->rank ? b->dim[b->rank - 1] : 0;
    w = a->rank > 1 ? linear_weight(c, 1) : PLIM_NONE;
    if (w != PLIM_NONE)
        plim_onnx_out(c, 0, plim_nn_linear_op(NN, id[0], w, linear_bias(c, out)));
    else if (plim_onnx_need(c, 2, id))
        plim_onnx_out(c, 0, plim_nn_binary(NN, "aten.matmul.default", id[0], id[1]));
}

/* src: numpy.matmul */
bool plim_onnx_matmul_dims(const plim_meta *a, const plim_meta *b, plim_meta *out)
{
    plim_meta x = *a, y = *b;
    if (!a->rank || !b->rank)
        return false;
    int64_t inner = a->dim[a->rank - 1], other = b->dim[b->rank > 1 ? b->rank - 2 : 0];
    x.rank = PLIM_MAX(a->rank - 2, 0);
    y.rank = PLIM_MAX(b->rank - 2, 0);
    if (inner != other || !plim_broadcast(&x, &y, out) || out->rank > PLIM_MAX_RANK - 2)
        return false;
    if (a->rank > 1)
        out->dim[out->rank++] = a->dim[a->rank - 2];
    if (b->rank > 1)
        out->dim[out->rank++] = b->dim[b->rank - 1];
    out->dtype = a->dtype;
    return true;
}

void plim_onnx_gemm(onnx_call *c)
{
    bool ta = plim_onnx_attr_int(c, "transA", 0) != 0,
         tb = plim_onnx_attr_int(c, "transB", 0) != 0;
    double alpha = plim_onnx_attr_float(c, "alpha", 1),
           beta = plim_onnx_attr_float(c, "beta", 1);
    const plim_meta *bias = plim_onnx_in_meta(c, 2);
    uint32_t id[2], w = PLIM_NONE, b = PLIM_NONE;
    bool plain = !ta && (alpha >= 1 && alpha <= 1) && (beta >= 1 && beta <= 1) &&
                 (!plim_onnx_in(c, 2) || (bias && bias->rank == 1));
    if ((id[0] = plim_onnx_in_id(c, 0)) == PLIM_NONE)
        return;
    if (plain && !tb)
        w = linear_weight(c, 1);
    if (plain && tb)
        w = plim_onnx_in_id(c, 1);
    if (w == PLIM_NONE && !plim_onnx_need(c, 2, id))
        return;
    if (plim_onnx_in(c, 2) && (b = plim_onnx_in_id(c, 2)) == PLIM_NONE)
        return;
    if (w == PLIM_NONE) {
        id[0] = ta ? plim_nn_unary(NN, "aten.t.default", id[0]) : id[0];
        id[1] = tb ? plim_nn_unary(NN, "aten.t.default", id[1]) : id[1];
        w = b == PLIM_NONE
                ? NN_OP(NN, "aten.mm.default", ARG_T("self", id[0]), ARG_T("mat2", id[1]))
                : NN_OP(NN, "aten.addmm.default", ARG_T("self", b), ARG_T("mat1", id[0]),
                        ARG_T("mat2", id[1]));
    } else {
        w = plim_nn_linear_op(NN, id[0], w, b);
    }
    plim_onnx_out(c, 0, w);
}

void plim_onnx_einsum(onnx_call *c)
{
    enum { MAX_TERMS = 16 };
    uint32_t id[MAX_TERMS];
    plim_str text = plim_onnx_clean(c->f->a, plim_onnx_attr_str(c, "equation", ""));
    plim_arg equation = {.kind = PLIM_ARG_STR, .str = text};
    if (text.p && c->node->n_in <= MAX_TERMS && plim_onnx_need(c, c->node->n_in, id))
        plim_onnx_out(c, 0,
                      NN_OP(NN, c->op->target, {PLIM_STR("equation"), equation},
                            ARG_TS("tensors", id, c->node->n_in)));
}

/* com.microsoft: operands may be transposed first */
void plim_onnx_fused_matmul(onnx_call *c)
{
    static const char *const flags[] = {"transA", "transB"};
    uint32_t id[2];
    if (!plim_onnx_need(c, 2, id))
        return;
    for (int i = 0; i < 2; i++)
        if (plim_onnx_attr_int(c, flags[i], 0))
            id[i] = plim_nn_transpose(NN, id[i], -2, -1);
    plim_onnx_out(c, 0, plim_nn_binary(NN, "aten.matmul.default", id[0], id[1]));
}

/* ---- norms ---------------------------------------------------------------------------- */

static void is_buffer(const onnx_call *c, uint32_t i)
{
    onnx_val *v = plim_onnx_in(c, i);
    if (v)
        v->buffer = true;
}

void plim_onnx_batch_norm(onnx_call *c)
{
    uint32_t x[5];
    bool train =
        plim_onnx_attr_int(c, "training_mode", 0) || (c->opset < 14 && c->node->n_out > 1);
    is_buffer(c, 3);
    is_buffer(c, 4);
    if (!plim_onnx_need(c, 5, x))
        return;
    plim_onnx_out(c, 0,
                  NN_OP(NN, c->op->target, ARG_T("input", x[0]), ARG_T("weight", x[1]),
                        ARG_T("bias", x[2]), ARG_T("running_mean", x[3]),
                        ARG_T("running_var", x[4]), ARG_I("training", train)));
    for (uint32_t k = 1; k < 3; k++) /* written in place */
        plim_onnx_out_val(c, k, c->in[k + 2]);
}

/* The stored tensor behind a name, seen in other dims or not; nodes up to `end` may
 * still have to run. */
static uint32_t stored_behind(const onnx_call *c, plim_str name, const onnx_node *end)
{
    uint32_t val;
    for (const onnx_node *n = c->node; n < end; n++)
        if (n->n_out && n->n_in && plim_str_eq(n->out[0], name) &&
            (plim_str_is(n->op, "Unsqueeze") || plim_str_is(n->op, "Reshape")))
            name = n->in[0];
    if (!plim_onnx_find(c->env, name, &val) || val == PLIM_NONE)
        return PLIM_NONE;
    if (!c->f->vals[val].from && c->f->vals[val].viewed != PLIM_NONE)
        val = c->f->vals[val].viewed;
    return c->f->vals[val].from && c->f->vals[val].kind == ONNX_TENSOR ? val : PLIM_NONE;
}

static uint32_t group_weight(onnx_call *c, const onnx_node *n, plim_str with, int64_t channels)
{
    uint64_t numel;
    uint32_t val =
        n->n_in == 2 ? stored_behind(c, n->in[plim_str_eq(n->in[0], with)], n) : PLIM_NONE;
    if (val == PLIM_NONE || !plim_meta_numel(&c->f->vals[val].meta, &numel) ||
        numel != (uint64_t)channels)
        return PLIM_NONE;
    uint32_t id = plim_onnx_id(c, val);
    return id == PLIM_NONE || c->f->vals[val].meta.rank == 1
               ? id
               : plim_nn_reshape(NN, id, INTS(channels));
}

/* A GroupNorm, which exporters write as an instance norm of groups: Reshape,
 * InstanceNormalization, Reshape, Mul, Add. */
static bool as_group_norm(onnx_call *c)
{
    enum { MAX_APART = 64 };
    onnx *f = c->f;
    uint32_t at[3], val = c->in[0];
    const onnx_node *back = plim_onnx_only_user(c, c->node, "Reshape", &at[0]),
                    *mul = plim_onnx_only_user(c, back, "Mul", &at[1]),
                    *add = plim_onnx_only_user(c, mul, "Add", &at[2]);
    if (!add || add - c->node > MAX_APART || f->vals[val].viewed == PLIM_NONE ||
        f->vals[val].meta.rank != 3)
        return false;
    int64_t groups = f->vals[val].meta.dim[1];
    uint32_t x = f->vals[val].viewed;
    if (f->vals[x].meta.rank < 3)
        return false;
    int64_t channels = f->vals[x].meta.dim[1];
    uint32_t w = group_weight(c, mul, back->out[0], channels),
             b = group_weight(c, add, mul->out[0], channels);
    if (w == PLIM_NONE || b == PLIM_NONE || (x = plim_onnx_id(c, x)) == PLIM_NONE)
        return false;
    memcpy(c->fused, at, sizeof at);
    c->n_fused = 3;
    plim_onnx_out(c, 0,
                  NN_OP(NN, "aten.group_norm.default", ARG_T("input", x),
                        ARG_I("num_groups", groups), ARG_T("weight", w), ARG_T("bias", b)));
    return true;
}

void plim_onnx_instance_norm(onnx_call *c)
{
    uint32_t x[3];
    if (plim_onnx_in_meta(c, 0) && as_group_norm(c))
        return;
    if (plim_onnx_need(c, 3, x))
        plim_onnx_out(c, 0,
                      NN_OP(NN, c->op->target, ARG_T("input", x[0]), ARG_T("weight", x[1]),
                            ARG_T("bias", x[2])));
}

static uint32_t norm_of(onnx_call *c, const char *target, uint32_t x, uint32_t weight,
                        uint32_t bias, int64_t axis)
{
    if (NN->st)
        return PLIM_NONE;
    plim_meta m = c->f->g->values[x].meta;
    axis += axis < 0 ? m.rank : 0;
    if (axis < 0 || axis >= m.rank)
        return PLIM_NONE;
    plim_ints dims = {m.dim + axis, (uint32_t)(m.rank - axis)};
    plim_named_arg a[4] = {ARG_T("input", x), ARG_IS("normalized_shape", dims)};
    uint32_t n = 2;
    if (weight != PLIM_NONE)
        a[n++] = (plim_named_arg)ARG_T("weight", weight);
    if (bias != PLIM_NONE)
        a[n++] = (plim_named_arg)ARG_T("bias", bias);
    return plim_nn_op(NN, target, a, n);
}

void plim_onnx_layer_norm(onnx_call *c)
{
    uint32_t x;
    if (!plim_onnx_need(c, 1, &x))
        return;
    uint32_t w = plim_onnx_in_id(c, 1);
    bool root = !strcmp(c->op->target, "aten.rms_norm.default");
    uint32_t b = root ? PLIM_NONE : plim_onnx_in_id(c, 2);
    int64_t axis = plim_onnx_attr_int(c, "axis", -1);
    plim_onnx_out(c, 0, norm_of(c, c->op->target, x, w, b, axis));
    plim_meta m = c->f->g->values[x].meta;
    for (int32_t i = (int32_t)(axis < 0 ? axis + m.rank : axis); i >= 0 && i < m.rank; i++)
        m.dim[i] = 1;
    uint32_t use;
    for (uint32_t k = 1; k < c->node->n_out && k < 3; k++) /* statistics */
        if (plim_map_get(&c->env->graph->use_of, c->node->out[k], &use))
            plim_onnx_out_opaque(c, k, &m);
}

void plim_onnx_group_norm(onnx_call *c)
{
    uint32_t x[3];
    const plim_meta *m = plim_onnx_in_meta(c, 0), *w = plim_onnx_in_meta(c, 1);
    if (!m || !w || m->rank < 2 || w->dim[0] != m->dim[1])
        plim_onnx_like(c); /* operator set 18: one weight a group */
    else if (plim_onnx_need(c, 3, x))
        plim_onnx_out(c, 0,
                      NN_OP(NN, c->op->target, ARG_T("input", x[0]),
                            ARG_I("num_groups", plim_onnx_attr_int(c, "num_groups", 1)),
                            ARG_T("weight", x[1]), ARG_T("bias", x[2])));
}

/* com.microsoft: input + skip (+ bias), then the norm; the sum is a result as well */
void plim_onnx_skip_norm(onnx_call *c)
{
    uint32_t x[3];
    bool root = !strcmp(c->op->target, "aten.rms_norm.default");
    if (!plim_onnx_need(c, 3, x))
        return;
    uint32_t b = root ? PLIM_NONE : plim_onnx_in_id(c, 3),
             add = plim_onnx_in_id(c, root ? 3 : 4);
    uint32_t sum = plim_nn_binary(NN, "aten.add.Tensor", x[0], x[1]);
    if (add != PLIM_NONE)
        sum = plim_nn_binary(NN, "aten.add.Tensor", sum, add);
    plim_onnx_out(c, 0, norm_of(c, c->op->target, sum, x[2], b, -1));
    plim_onnx_out(c, 3, sum);
}

void plim_onnx_dropout(onnx_call *c)
{
    const onnx_data *train = plim_onnx_in_data(c, 2);
    uint32_t x;
    if (!plim_onnx_in(c, 0))
        return;
    if (c->opset < 12 || !train || train->is_float || train->n != 1 || !train->i[0]) {
        plim_meta m = plim_onnx_in(c, 0)->meta;
        m.dtype = PLIM_BOOL;
        plim_onnx_out_val(c, 0, c->in[0]);
        plim_onnx_out_opaque(c, 1, &m);
        return;
    }
    double p = 0.5;
    (void)plim_onnx_scalar(c, 1, &p);
    if (plim_onnx_need(c, 1, &x)) {
        plim_meta m = c->f->g->values[x].meta;
        m.dtype = PLIM_BOOL;
        plim_onnx_out(c, 0, plim_nn_dropout_op(NN, x, p));
        plim_onnx_out_opaque(c, 1, &m);
    }
}

void plim_onnx_bias_act(onnx_call *c)
{
    uint32_t x, b;
    plim_arg how = {.kind = PLIM_ARG_STR,
                    .str = plim_str_is(c->node->op, "FastGelu") ? PLIM_STR("tanh")
                                                                : PLIM_STR("none")};
    if (!plim_onnx_need(c, 1, &x))
        return;
    if ((b = plim_onnx_in_id(c, 1)) != PLIM_NONE)
        x = plim_nn_binary(NN, "aten.add.Tensor", x, b);
    plim_onnx_out(c, 0,
                  NN_OP(NN, c->op->target, ARG_T("self", x), {PLIM_STR("approximate"), how}));
}

/* ---- attention ------------------------------------------------------------------------ */

/* [batch, length, heads * size] as [batch, heads, length, size] */
static uint32_t to_heads(onnx_call *c, uint32_t x, int64_t heads)
{
    int64_t width = plim_nn_dim(NN, x, -1);
    if (NN->st || heads < 1 || width % heads) {
        plim_nn_fail(NN, PLIM_ESHAPE, "%" PRId64 " channels in %" PRId64 " heads", width,
                     heads);
        return PLIM_NONE;
    }
    x = plim_nn_view(NN, x,
                     INTS(plim_nn_dim(NN, x, 0), plim_nn_dim(NN, x, 1), heads, width / heads));
    return plim_nn_transpose(NN, x, 1, 2);
}

static uint32_t from_heads(onnx_call *c, uint32_t x)
{
    x = plim_nn_transpose(NN, x, 1, 2);
    return plim_nn_reshape(NN, x,
                           INTS(plim_nn_dim(NN, x, 0), plim_nn_dim(NN, x, 1),
                                plim_nn_dim(NN, x, 2) * plim_nn_dim(NN, x, 3)));
}

static uint32_t sdpa(onnx_call *c, uint32_t q, uint32_t k, uint32_t v, uint32_t mask,
                     bool causal)
{
    bool shared = plim_nn_dim(NN, q, 1) != plim_nn_dim(NN, k, 1);
    plim_named_arg a[] = {ARG_T("query", q),           ARG_T("key", k),
                          ARG_T("value", v),           ARG_I("is_causal", causal),
                          ARG_I("enable_gqa", shared), ARG_T("attn_mask", mask)};
    return plim_nn_op(NN, "aten.scaled_dot_product_attention.default", a,
                      mask == PLIM_NONE ? 5 : 6);
}

/* src: onnx/defs/nn/defs.cc Attention-23 */
void plim_onnx_attention(onnx_call *c)
{
    const plim_meta *q = plim_onnx_in_meta(c, 0), *v = plim_onnx_in_meta(c, 2);
    int64_t heads = plim_onnx_attr_int(c, "q_num_heads", 0),
            kv = plim_onnx_attr_int(c, "kv_num_heads", heads);
    uint32_t x[3], mask;
    if (!q || !v || q->rank != v->rank || (q->rank != 3 && q->rank != 4))
        return;
    bool flat = q->rank == 3;
    plim_meta m = *q;
    if (flat && heads > 0 && kv > 0)
        m.dim[2] = v->dim[2] / kv * heads;
    else if (!flat)
        m.dim[3] = v->dim[3];
    if (plim_onnx_in(c, 4) || c->node->n_out > 1 ||
        plim_onnx_attr_float(c, "softcap", 0) > 0) { /* with a cache: nothing of ours */
        plim_onnx_out_opaque(c, 0, &m);
        return;
    }
    if (!plim_onnx_need(c, 3, x))
        return;
    mask = plim_onnx_in_id(c, 3);
    for (uint32_t i = 0; i < 3 && flat; i++)
        x[i] = to_heads(c, x[i], i ? kv : heads);
    uint32_t r = sdpa(c, x[0], x[1], x[2], mask, plim_onnx_attr_int(c, "is_causal", 0) != 0);
    plim_onnx_out(c, 0, flat ? from_heads(c, r) : r);
}

/* com.microsoft: the projection to queries, keys and values is part of it */
void plim_onnx_ms_attention(onnx_call *c)
{
    int64_t heads = plim_onnx_attr_int(c, "num_heads", 1);
    const plim_meta *w = plim_onnx_in_meta(c, 1), *x = plim_onnx_in_meta(c, 0);
    uint32_t id[3], part[3], weight;
    plim_ints sizes = plim_onnx_attr_ints(c, "qkv_hidden_sizes");
    if (!x || !w || x->rank != 3 || w->rank != 2)
        return;
    plim_meta m = *x;
    m.dim[2] = sizes.n == 3 ? sizes.p[2] : w->dim[1] / 3;
    if (plim_onnx_in(c, 4) || plim_onnx_in(c, 5) || c->node->n_out > 1) {
        plim_onnx_out_opaque(c, 0, &m); /* a cache, a bias of positions */
        return;
    }
    weight = linear_weight(c, 1);
    if (!plim_onnx_need(c, 1, id) || weight == PLIM_NONE)
        return;
    id[0] = plim_nn_linear_op(NN, id[0], weight, plim_onnx_in_id(c, 2));
    const int64_t thirds[] = {m.dim[2], m.dim[2], m.dim[2]};
    if (sizes.n != 3)
        sizes = (plim_ints){thirds, 3};
    plim_named_arg a[3] = {ARG_T("self", id[0]), ARG_IS("split_sizes", sizes),
                           ARG_I("dim", 2)};
    plim_nn_node(NN, "aten.split_with_sizes.default", a, 3, part, 3);
    for (int i = 0; i < 3; i++)
        part[i] = to_heads(c, part[i], heads);
    plim_onnx_out(c, 0,
                  from_heads(c, sdpa(c, part[0], part[1], part[2], PLIM_NONE,
                                     plim_onnx_attr_int(c, "unidirectional", 0) != 0)));
}

/* com.microsoft: the size of its result alone; keys and values go into a cache */
void plim_onnx_grouped_attention(onnx_call *c)
{
    const plim_meta *q = plim_onnx_in_meta(c, 0);
    int64_t heads = plim_onnx_attr_int(c, "num_heads", 1),
            kv = plim_onnx_attr_int(c, "kv_num_heads", heads);
    if (!q || q->rank != 3 || heads < 1 || kv < 0 || heads > INT32_MAX || kv > INT32_MAX)
        return;
    plim_meta m = *q;
    if (!plim_onnx_in(c, 1)) /* packed: queries, keys and values in one */
        m.dim[2] = q->dim[2] / (heads + 2 * kv) * heads;
    plim_onnx_out_opaque(c, 0, &m);
}

/* ---- recurrent nets -------------------------------------------------------------------- */

typedef struct rnn {
    int64_t steps, batch, in, hidden, dirs, gates;
    plim_dtype dtype;
    bool first; /* batch first */
} rnn;

static bool rnn_read(const onnx_call *c, rnn *r)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *w = plim_onnx_in_meta(c, 1),
                    *rec = plim_onnx_in_meta(c, 2);
    if (!x || !w || !rec || x->rank != 3 || w->rank != 3 || rec->rank != 3 || !rec->dim[2])
        return false;
    r->first = plim_onnx_attr_int(c, "layout", 0) != 0;
    r->steps = x->dim[r->first];
    r->batch = x->dim[!r->first];
    r->in = x->dim[2];
    r->hidden = rec->dim[2];
    r->dirs = w->dim[0];
    r->gates = rec->dim[1] / rec->dim[2];
    r->dtype = x->dtype;
    return r->dirs == 1 || r->dirs == 2;
}

/* One of the matrices that ONNX stores one upon the other. */
static uint32_t rnn_weight(onnx_call *c, const char *what, int64_t dir, const rnn *r,
                           plim_ints dim)
{
    plim_value v = {.kind = PLIM_VALUE_PARAMETER,
                    .requires_grad = true,
                    .meta = plim_meta_make(r->dtype, (int32_t)dim.n, dim.p),
                    .tied_to = PLIM_NONE,
                    .node = PLIM_NONE};
    plim_str path = c->f->g->scopes[NN->scope].path;
    v.name = plim_arena_printf(c->f->a, PLIM_STR_FMT "%s%s_l0%s", PLIM_STR_ARG(path),
                               path.n ? "." : "", what, dir ? "_reverse" : "");
    uint32_t id = v.name.p ? plim_graph_add_value(c->f->g, &v) : PLIM_NONE;
    if (id == PLIM_NONE && !c->st)
        c->st = plim_oom(c->f->err);
    return id;
}

/* Weights of their own: stored in the file, and used here alone. */
static bool rnn_is_plain(const onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    for (uint32_t i = 1; i < 4; i++) {
        const onnx_val *v = plim_onnx_in(c, i);
        if (i < 3 && !v)
            return false;
        if (v && (!v->from || v->id != PLIM_NONE || v->kind != ONNX_TENSOR))
            return false;
    }
    return !plim_onnx_in(c, 7) && x && plim_is_float(x->dtype);
}

static uint32_t rnn_state(onnx_call *c, uint32_t i, const rnn *r)
{
    uint32_t id = plim_onnx_in_id(c, i);
    if (id != PLIM_NONE)
        return id;
    return NN_OP(NN, "aten.zeros.default", ARG_IS("size", INTS(r->dirs, r->batch, r->hidden)),
                 ARG_I("dtype", r->dtype));
}

static void rnn_run(onnx_call *c, const rnn *r, bool lstm)
{
    uint32_t x, state[2], params[8], n = 0, out[3];
    bool biases = plim_onnx_in(c, 3) != NULL;
    if (!plim_onnx_need(c, 1, &x))
        return;
    int64_t rows = r->gates * r->hidden;
    for (int64_t d = 0; d < r->dirs; d++) {
        params[n++] = rnn_weight(c, "weight_ih", d, r, INTS(rows, r->in));
        params[n++] = rnn_weight(c, "weight_hh", d, r, INTS(rows, r->hidden));
        if (biases) {
            params[n++] = rnn_weight(c, "bias_ih", d, r, INTS(rows));
            params[n++] = rnn_weight(c, "bias_hh", d, r, INTS(rows));
        }
    }
    for (uint32_t i = 1; i < 4; i++) /* known by their parts */
        if (plim_onnx_in(c, i))
            plim_onnx_in(c, i)->used = true;
    for (uint32_t i = 0; i < 1u + lstm; i++)
        state[i] = rnn_state(c, 5 + i, r);
    if (c->st || NN->st)
        return;
    plim_named_arg a[] = {ARG_T("input", x),
                          ARG_TS("params", params, n),
                          ARG_I("has_biases", biases),
                          ARG_I("num_layers", 1),
                          ARG_F("dropout", 0),
                          ARG_I("train", 1),
                          ARG_I("bidirectional", r->dirs == 2),
                          ARG_I("batch_first", 0),
                          ARG_T("hx", state[0])};
    if (lstm)
        a[8] = (plim_named_arg)ARG_TS("hx", state, 2);
    plim_nn_node(NN, c->op->target, a, 9, out, 2u + lstm);
    uint32_t y = plim_nn_view(NN, out[0], INTS(r->steps, r->batch, r->dirs, r->hidden));
    plim_onnx_out(c, 0, plim_nn_transpose(NN, y, 1, 2));
    for (uint32_t k = 1; k < 2u + lstm; k++)
        plim_onnx_out(c, k, out[k]);
}

/* src: onnx/defs/rnn/defs.cc */
void plim_onnx_rnn(onnx_call *c)
{
    rnn r;
    if (!rnn_read(c, &r))
        return;
    bool lstm = plim_str_is(c->node->op, "LSTM");
    if (rnn_is_plain(c) && !r.first) {
        rnn_run(c, &r, lstm);
        return;
    }
    int64_t y[] = {r.steps, r.dirs, r.batch, r.hidden}, h[] = {r.dirs, r.batch, r.hidden};
    int64_t y1[] = {r.batch, r.steps, r.dirs, r.hidden}, h1[] = {r.batch, r.dirs, r.hidden};
    plim_meta m = plim_meta_make(r.dtype, 4, r.first ? y1 : y);
    plim_onnx_out_opaque(c, 0, &m);
    m = plim_meta_make(r.dtype, 3, r.first ? h1 : h);
    for (uint32_t k = 1; k < 2u + lstm; k++)
        plim_onnx_out_opaque(c, k, &m);
}

/* ---- losses ------------------------------------------------------------------------------- */

void plim_onnx_loss(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *label = plim_onnx_in_meta(c, 1);
    if (!x || !label)
        return;
    plim_meta m = *label;
    m.dtype = x->dtype;
    m.rank = plim_str_is(plim_onnx_attr_str(c, "reduction", "mean"), "none") ? label->rank : 0;
    plim_onnx_out_opaque(c, 0, &m);
    plim_onnx_out_opaque(c, 1, x);
}
