/* onnx_ops_nn.c -- ONNX ops of layers: products, norms, attention, recurrent networks,
 * losses. */
#include "import/onnx/onnx_ops.h"

/* ---- products ------------------------------------------------------------------------- */

/* A stored matrix [in, out] as the weight [out, in] of a Linear. */
static uint32_t linear_weight(onnx_call *c, uint32_t i)
{
    onnx *f = c->f;
    uint32_t val = i < c->node->n_in ? c->in[i] : PLIM_NONE;
    if (val == PLIM_NONE || f->vals[val].kind != ONNX_TENSOR || f->vals[val].meta.rank != 2)
        return PLIM_NONE;
    if (f->vals[val].turned != PLIM_NONE) /* the exporter transposed it, as Linear does */
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

/* The bias of the Add that follows, if both together are a Linear. */
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

/* The stored tensor behind a name, possibly reshaped; nodes up to `end` may not have been run
 * yet. */
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

/* A GroupNorm, which exporters write as an instance norm over groups: Reshape,
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
    for (uint32_t k = 1; k < 3; k++) /* statistics */
        if (plim_onnx_wanted(c, k))
            plim_onnx_out_opaque(c, k, &m);
}

void plim_onnx_group_norm(onnx_call *c)
{
    uint32_t x[3];
    const plim_meta *m = plim_onnx_in_meta(c, 0), *w = plim_onnx_in_meta(c, 1);
    if (!m || !w || m->rank < 2 || w->dim[0] != m->dim[1])
        plim_onnx_like(c); /* operator set 18: one weight per group */
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
    int64_t train;
    uint32_t x;
    bool known = plim_onnx_single_int(plim_onnx_in_data(c, 2), &train);
    if (!plim_onnx_in(c, 0))
        return;
    if (c->opset < 12 || !known || !train) {
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
        plim_nn_fail(NN, PLIM_ESHAPE,
                     "%" PRId64 " channels cannot be split into %" PRId64 " heads", width,
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

static uint32_t add_sdpa(onnx_call *c, uint32_t q, uint32_t k, uint32_t v, uint32_t mask,
                         bool causal)
{
    bool shared = plim_nn_dim(NN, q, 1) != plim_nn_dim(NN, k, 1);
    plim_named_arg a[] = {ARG_T("query", q),           ARG_T("key", k),
                          ARG_T("value", v),           ARG_I("is_causal", causal),
                          ARG_I("enable_gqa", shared), ARG_T("attn_mask", mask)};
    return plim_nn_op(NN, "aten.scaled_dot_product_attention.default", a,
                      mask == PLIM_NONE ? 5 : 6);
}

/* src: onnx/defs/nn/defs.cc Attention-23: queries, keys and values with or without a dimension
 * for heads */
typedef struct attn {
    bool flat;
    int64_t n, kv, batch, q_len, k_len, v_size;
} attn;

static bool heads_read(const onnx_call *c, attn *h)
{
    const plim_meta *q = plim_onnx_in_meta(c, 0), *k = plim_onnx_in_meta(c, 1),
                    *v = plim_onnx_in_meta(c, 2);
    if (!q || !k || !v || q->rank != v->rank || k->rank != v->rank ||
        (q->rank != 3 && q->rank != 4))
        return false;
    h->flat = q->rank == 3;
    h->n = h->flat ? plim_onnx_attr_int(c, "q_num_heads", 0) : q->dim[1];
    h->kv = h->flat ? plim_onnx_attr_int(c, "kv_num_heads", h->n) : v->dim[1];
    if (h->n < 1 || h->kv < 1 || h->n > INT32_MAX || h->kv > INT32_MAX)
        return false;
    h->batch = q->dim[0];
    h->q_len = q->dim[q->rank - 2];
    h->k_len = k->dim[k->rank - 2];
    h->v_size = h->flat ? v->dim[2] / h->kv : v->dim[3];
    return h->v_size <= INT32_MAX && h->k_len <= INT32_MAX;
}

/* With a cache of keys and values there is no rule: only sizes. */
static void attention_sizes(onnx_call *c, const attn *h)
{
    int64_t all = h->k_len;
    const plim_meta *q = plim_onnx_in_meta(c, 0);
    plim_meta m = *q;
    m.dim[m.rank - 1] = h->flat ? h->v_size * h->n : h->v_size;
    plim_onnx_out_opaque(c, 0, &m);
    for (uint32_t i = 0; i < 2; i++) {
        const plim_meta *past = plim_onnx_in_meta(c, 4 + i);
        if (!past || past->rank != 4 || past->dim[2] > INT32_MAX)
            continue;
        m = *past;
        m.dim[2] += h->k_len;
        all = m.dim[2];
        plim_onnx_out_opaque(c, 1 + i, &m);
    }
    int64_t scores[] = {h->batch, h->n, h->q_len, all};
    m = plim_meta_make(q->dtype, 4, scores);
    plim_onnx_out_opaque(c, 3, &m);
}

void plim_onnx_attention(onnx_call *c)
{
    attn h;
    uint32_t x[3], mask;
    if (!heads_read(c, &h))
        return;
    const plim_meta *m = plim_onnx_in_meta(c, 3);
    bool padded = m && m->rank && m->dim[m->rank - 1] != h.k_len;
    if (plim_onnx_in(c, 4) || padded || plim_onnx_wanted(c, 1) || plim_onnx_wanted(c, 2) ||
        plim_onnx_wanted(c, 3) || plim_onnx_attr_float(c, "softcap", 0) > 0) {
        attention_sizes(c, &h);
        return;
    }
    if (!plim_onnx_need(c, 3, x))
        return;
    mask = plim_onnx_in_id(c, 3);
    for (uint32_t i = 0; i < 3 && h.flat; i++)
        x[i] = to_heads(c, x[i], i ? h.kv : h.n);
    uint32_t r =
        add_sdpa(c, x[0], x[1], x[2], mask, plim_onnx_attr_int(c, "is_causal", 0) != 0);
    plim_onnx_out(c, 0, h.flat ? from_heads(c, r) : r);
}

/* ---- attention that the exporter wrote out ---------------------------------------------- */

/* Below operator set 23 both of torch's exporters write F.scaled_dot_product_attention as
 *
 *     MatMul(Softmax(MatMul(Mul(q, r), Mul(k transposed, r)) [+ mask]), v)
 *
 * with r the square root of the scale, which no hand-written model does.
 * src: torch/onnx/symbolic_opset14.py, onnxscript/function_libs/torch_lib/ops/nn.py */
typedef struct written_out {
    uint32_t k, v, mask; /* vals */
    bool turned;         /* k is still transposed */
} written_out;

static bool known_tensor(const onnx_call *c, plim_str name, int32_t rank, uint32_t *val)
{
    return plim_onnx_find(c->env, name, val) && *val != PLIM_NONE &&
           c->f->vals[*val].kind == ONNX_TENSOR && c->f->vals[*val].meta.rank == rank;
}

/* Keys before they were transposed: the tensor that the matrix was made from by views, if it
 * has this size. */
static uint32_t keys_behind(const onnx_call *c, uint32_t val)
{
    plim_meta want = c->f->vals[val].meta;
    int64_t last = want.dim[3];
    want.dim[3] = want.dim[2];
    want.dim[2] = last;
    for (int i = 0; i < 4 && val != PLIM_NONE; i++) {
        const onnx_val *v = &c->f->vals[val];
        if (plim_same_size(&v->meta, &want))
            return val;
        val = v->permuted != PLIM_NONE ? v->permuted : v->viewed;
    }
    return PLIM_NONE;
}

/* Finds the scaled keys, through a node after this one. */
static bool find_keys(onnx_call *c, plim_str product, uint32_t upto, uint32_t *at,
                      written_out *w)
{
    const onnx_graph *g = c->env->graph;
    uint32_t i = (uint32_t)(c->node - g->nodes), val;
    while (++i < upto && !(g->nodes[i].n_out && plim_str_eq(g->nodes[i].out[0], product)))
        ;
    const onnx_node *mul = &g->nodes[i];
    *at = i;
    if (i == upto || !plim_str_is(mul->op, "Mul") || mul->n_in != 2 || mul->n_out != 1 ||
        !known_tensor(c, mul->in[0], 4, &val))
        return false;
    w->k = keys_behind(c, val);
    w->turned = w->k == PLIM_NONE && c->f->vals[val].permuted != PLIM_NONE;
    w->k = w->turned ? val : w->k;
    return w->k != PLIM_NONE;
}

/* Whether batch and heads equal those of the queries. */
static bool same_heads(const onnx_call *c, const plim_meta *q, uint32_t val)
{
    const plim_meta *m = &c->f->vals[val].meta;
    return m->dim[0] == q->dim[0] && m->dim[1] == q->dim[1];
}

static bool find_attention(onnx_call *c, written_out *w, uint32_t *at, uint32_t *n)
{
    enum { MAX_APART = 64 };
    const plim_meta *q = plim_onnx_in_meta(c, 0);
    double scale;
    *n = 1; /* at[0] is the node of the keys */
    const onnx_node *scores = plim_onnx_only_user(c, c->node, "MatMul", &at[(*n)++]),
                    *sum = plim_onnx_only_user(c, scores, "Add", &at[*n]);
    *n += sum != NULL;
    const onnx_node *soft = plim_onnx_only_user(c, sum ? sum : scores, "Softmax", &at[(*n)++]),
                    *last = plim_onnx_only_user(c, soft, "MatMul", &at[(*n)++]);
    w->mask = PLIM_NONE;
    if (!last || last - c->node > MAX_APART || !q || q->rank != 4 ||
        !plim_onnx_scalar(c, 1, &scale) || !plim_str_eq(scores->in[0], c->node->out[0]) ||
        !plim_str_eq(last->in[0], soft->out[0]) || !known_tensor(c, last->in[1], 4, &w->v) ||
        !find_keys(c, scores->in[1], at[1], &at[0], w) || !same_heads(c, q, w->k) ||
        !same_heads(c, q, w->v))
        return false;
    plim_str mask = sum ? sum->in[plim_str_eq(sum->in[0], scores->out[0])] : PLIM_STR("");
    if (!sum)
        return true;
    return plim_onnx_find(c->env, mask, &w->mask) && w->mask != PLIM_NONE &&
           c->f->vals[w->mask].kind == ONNX_TENSOR;
}

static const plim_node *producer_of(const onnx_call *c, uint32_t id)
{
    uint32_t node = c->f->g->values[id].node;
    return node == PLIM_NONE ? NULL : &c->f->g->nodes[node];
}

/* is_causal, written out: where(eq(tril(ones), ..)). */
static bool is_causal_mask(const onnx_call *c, uint32_t id)
{
    static const char *const made[] = {"where", "eq", "tril"};
    for (size_t i = 0; i < PLIM_COUNT(made); i++) {
        const plim_node *n = producer_of(c, id);
        if (!n || !n->op || strcmp(n->op->name, made[i]) != 0 ||
            n->args[0].kind != PLIM_ARG_VALUE)
            return false;
        id = n->args[0].id;
    }
    return true;
}

static bool as_attention(onnx_call *c)
{
    written_out w;
    uint32_t at[PLIM_COUNT(c->fused)], n, mask = PLIM_NONE, q, k, v;
    if (c->node->n_in != 2 || !find_attention(c, &w, at, &n))
        return false;
    q = plim_onnx_in_id(c, 0);
    k = plim_onnx_id(c, w.k);
    v = plim_onnx_id(c, w.v);
    mask = w.mask == PLIM_NONE ? PLIM_NONE : plim_onnx_id(c, w.mask);
    if (q == PLIM_NONE || k == PLIM_NONE || v == PLIM_NONE || c->st)
        return false;
    bool causal = mask != PLIM_NONE && is_causal_mask(c, mask);
    k = w.turned ? plim_nn_transpose(NN, k, 2, 3) : k;
    memcpy(c->fused, at, n * sizeof *at);
    c->n_fused = n;
    plim_onnx_out(c, 0, add_sdpa(c, q, k, v, causal ? PLIM_NONE : mask, causal));
    return true;
}

void plim_onnx_mul(onnx_call *c)
{
    if (!as_attention(c))
        plim_onnx_binary(c);
}

/* com.microsoft: includes the projection to queries, keys and values */
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
                  from_heads(c, add_sdpa(c, part[0], part[1], part[2], PLIM_NONE,
                                         plim_onnx_attr_int(c, "unidirectional", 0) != 0)));
}

/* com.microsoft: only the size of its result; keys and values go into a cache */
void plim_onnx_grouped_attention(onnx_call *c)
{
    const plim_meta *q = plim_onnx_in_meta(c, 0);
    int64_t heads = plim_onnx_attr_int(c, "num_heads", 1),
            kv = plim_onnx_attr_int(c, "kv_num_heads", heads);
    if (!q || q->rank != 3 || heads < 1 || kv < 0 || heads > INT32_MAX || kv > INT32_MAX)
        return;
    plim_meta m = *q;
    if (!plim_onnx_in(c, 1)) /* packed: queries, keys and values in one tensor */
        m.dim[2] = q->dim[2] / (heads + 2 * kv) * heads;
    plim_onnx_out_opaque(c, 0, &m);
    plim_ints all;
    for (uint32_t i = 0; i < 2; i++) {
        const plim_meta *past = plim_onnx_in_meta(c, 3 + i);
        if (!past || past->rank != 4 || !plim_onnx_in_ints(c, 6, &all) || all.n != 1)
            continue;
        m = *past; /* a buffer for all future tokens, or as long as the sequence is now */
        m.dim[2] = PLIM_MAX(m.dim[2], all.p[0]);
        plim_onnx_out_opaque(c, 1 + i, &m);
    }
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

/* One of the matrices that ONNX stores stacked. */
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

/* Whether its weights are stored in the file and used only here. */
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
