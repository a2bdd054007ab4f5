/* onnx_ops_point.c -- elementwise ONNX ops: arithmetic, activations, reductions, casts. */
#include "import/onnx/onnx_ops.h"

void plim_onnx_unary(onnx_call *c)
{
    uint32_t x;
    if (plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0, NN_OP(NN, c->op->target, ARG_T("self", x)));
}

void plim_onnx_like(onnx_call *c)
{
    const plim_meta *m = plim_onnx_in_meta(c, 0);
    if (m)
        plim_onnx_out_opaque(c, 0, m);
}

/* x * sigmoid(x), which is one op in PyTorch that saves only x. */
void plim_onnx_sigmoid(onnx_call *c)
{
    uint32_t x, at;
    const onnx_node *mul = plim_onnx_only_user(c, c->node, "Mul", &at);
    bool silu =
        mul && mul->n_in == 2 && c->node->n_in == 1 &&
        (plim_str_eq(mul->in[0], c->node->in[0]) || plim_str_eq(mul->in[1], c->node->in[0]));
    if (!plim_onnx_need(c, 1, &x))
        return;
    if (silu)
        c->fused[c->n_fused++] = at;
    plim_onnx_out(c, 0, plim_nn_unary(NN, silu ? "aten.silu.default" : c->op->target, x));
}

void plim_onnx_gelu(onnx_call *c)
{
    uint32_t x;
    if (!plim_onnx_need(c, 1, &x))
        return;
    plim_arg how = {.kind = PLIM_ARG_STR, .str = PLIM_STR("none")};
    if (plim_str_is(plim_onnx_attr_str(c, "approximate", "none"), "tanh"))
        how.str = PLIM_STR("tanh");
    plim_onnx_out(
        c, 0,
        NN_OP(NN, "aten.gelu.default", ARG_T("self", x), {PLIM_STR("approximate"), how}));
}

/* ---- two operands ------------------------------------------------------------------- */

/* Ops for a number as the first operand. */
static const struct {
    const char *target, *turned;
} turns[] = {
    {"aten.add.Tensor", "aten.add.Tensor"},  {"aten.mul.Tensor", "aten.mul.Tensor"},
    {"aten.sub.Tensor", "aten.rsub.Scalar"}, {"aten.pow.Tensor_Tensor", "aten.pow.Scalar"},
    {"aten.eq.Tensor", "aten.eq.Tensor"},    {"aten.lt.Tensor", "aten.gt.Tensor"},
    {"aten.gt.Tensor", "aten.lt.Tensor"},    {"aten.le.Tensor", "aten.ge.Tensor"},
    {"aten.ge.Tensor", "aten.le.Tensor"},
};

static plim_named_arg number_arg(const char *slot, double v, bool is_float)
{
    plim_named_arg a = {plim_str_of(slot), {.kind = PLIM_ARG_FLOAT, .f = v}};
    if (!is_float)
        a.arg = (plim_arg){.kind = PLIM_ARG_INT, .i = v > -9e18 && v < 9e18 ? (int64_t)v : 0};
    return a;
}

/* Whether an operand is a single number and the other a tensor of at least its rank. */
static bool is_number(const onnx_call *c, uint32_t i, double *v)
{
    const plim_meta *a = plim_onnx_in_meta(c, i), *b = plim_onnx_in_meta(c, 1 - i);
    return a && b && a->rank <= b->rank && a->dtype == b->dtype && plim_onnx_scalar(c, i, v);
}

static uint32_t with_number(onnx_call *c, const char *target, double v, bool first)
{
    uint32_t x = plim_onnx_in_id(c, first ? 1 : 0);
    if (x == PLIM_NONE)
        return x;
    bool is_float = plim_is_float(c->f->g->values[x].meta.dtype);
    if (!first)
        return NN_OP(
            NN, strcmp(target, "aten.pow.Tensor_Tensor") ? target : "aten.pow.Tensor_Scalar",
            ARG_T("self", x),
            number_arg(strncmp(target, "aten.pow", 8) ? "other" : "exponent", v, is_float));
    for (size_t i = 0; i < PLIM_COUNT(turns); i++)
        if (!strcmp(target, turns[i].target)) {
            if (!strcmp(turns[i].turned, "aten.pow.Scalar"))
                return NN_OP(NN, turns[i].turned, number_arg("self", v, is_float),
                             ARG_T("exponent", x));
            return NN_OP(NN, turns[i].turned, ARG_T("self", x),
                         number_arg("other", v, is_float));
        }
    if (!strcmp(target, "aten.div.Tensor") && is_float) { /* as Tensor.__rtruediv__ does */
        x = plim_nn_unary(NN, "aten.reciprocal.default", x);
        return NN_OP(NN, "aten.mul.Tensor", ARG_T("self", x), number_arg("other", v, true));
    }
    return PLIM_NONE;
}

/* In ONNX a power has the type of its base. */
static uint32_t base_type(onnx_call *c, uint32_t x, plim_dtype t)
{
    return NN->st || c->f->g->values[x].meta.dtype == t ? x : plim_onnx_to(c, x, t);
}

static uint32_t two_tensors(onnx_call *c, const char *target, uint32_t a, uint32_t b)
{
    plim_arg how = {.kind = PLIM_ARG_STR, .str = PLIM_STR("trunc")};
    if (!strncmp(target, "aten.pow", 8))
        return base_type(c, NN_OP(NN, target, ARG_T("self", a), ARG_T("exponent", b)),
                         c->f->g->values[a].meta.dtype);
    if (!strcmp(target, "aten.div.Tensor") && !plim_is_float(c->f->g->values[a].meta.dtype))
        return NN_OP(NN, "aten.div.Tensor_mode", ARG_T("self", a), ARG_T("other", b),
                     {PLIM_STR("rounding_mode"), how});
    return plim_nn_binary(NN, target, a, b);
}

void plim_onnx_binary(onnx_call *c)
{
    double v, w;
    uint32_t x[2], r = PLIM_NONE;
    const char *target = c->op->target;
    if (!strcmp(target, "aten.remainder.Tensor") && plim_onnx_attr_int(c, "fmod", 0))
        target = "aten.fmod.Tensor";
    if (is_number(c, 1, &v) && !plim_onnx_scalar(c, 0, &w))
        r = with_number(c, target, v, false);
    else if (is_number(c, 0, &v) && !plim_onnx_scalar(c, 1, &w))
        r = with_number(c, target, v, true);
    if (r == PLIM_NONE && !NN->st && plim_onnx_need(c, 2, x))
        r = two_tensors(c, target, x[0], x[1]);
    plim_onnx_out(c, 0, r);
}

/* Whether one of a node's two operands has this name. */
static bool takes_input(const onnx_node *n, plim_str name)
{
    return n->n_in == 2 && (plim_str_eq(n->in[0], name) || plim_str_eq(n->in[1], name));
}

/* x (1 + erf(x / sqrt 2)) / 2, which exporters write below operator set 20, with the half or x
 * last. */
static bool as_gelu(onnx_call *c)
{
    uint32_t at[4], x;
    double root;
    const onnx_node *erf = plim_onnx_only_user(c, c->node, "Erf", &at[0]),
                    *add = plim_onnx_only_user(c, erf, "Add", &at[1]),
                    *mul = plim_onnx_only_user(c, add, "Mul", &at[2]),
                    *half = plim_onnx_only_user(c, mul, "Mul", &at[3]);
    if (!half || mul->n_in != 2 || half->n_in != 2 ||
        !(takes_input(mul, c->node->in[0]) || takes_input(half, c->node->in[0])) ||
        !plim_onnx_scalar(c, 1, &root) || root < 1.414 || root > 1.415 ||
        !plim_onnx_need(c, 1, &x))
        return false;
    memcpy(c->fused, at, sizeof at);
    c->n_fused = PLIM_COUNT(at);
    plim_onnx_out(c, 0, plim_nn_unary(NN, "aten.gelu.default", x));
    return true;
}

void plim_onnx_div(onnx_call *c)
{
    if (!as_gelu(c))
        plim_onnx_binary(c);
}

void plim_onnx_many(onnx_call *c)
{
    uint32_t r = plim_onnx_in_id(c, 0), x;
    for (uint32_t i = 1; i < c->node->n_in && r != PLIM_NONE; i++) {
        x = plim_onnx_in_id(c, i);
        r = x == PLIM_NONE ? x : plim_nn_binary(NN, c->op->target, r, x);
    }
    if (r != PLIM_NONE && plim_str_is(c->node->op, "Mean"))
        r = NN_OP(NN, "aten.div.Tensor", ARG_T("self", r), ARG_F("other", c->node->n_in));
    plim_onnx_out(c, 0, r);
}

void plim_onnx_broadcast(onnx_call *c)
{
    const plim_meta *a = plim_onnx_in_meta(c, 0), *b = plim_onnx_in_meta(c, 1);
    plim_meta m;
    if (!a || !b || !plim_broadcast(a, b, &m))
        return;
    m.dtype = a->dtype;
    plim_onnx_out_opaque(c, 0, &m);
}

void plim_onnx_prelu(onnx_call *c)
{
    uint32_t x[2];
    uint64_t n;
    const plim_meta *a = plim_onnx_in_meta(c, 0), *w = plim_onnx_in_meta(c, 1);
    if (!a || !w || !plim_meta_numel(w, &n))
        return;
    if (n != 1 && (a->rank < 2 || n != (uint64_t)a->dim[1])) {
        plim_onnx_broadcast(c);
        return;
    }
    if (plim_onnx_need(c, 2, x))
        plim_onnx_out(c, 0,
                      NN_OP(NN, "aten.prelu.default", ARG_T("self", x[0]),
                            ARG_T("weight", plim_nn_reshape(NN, x[1], INTS((int64_t)n)))));
}

/* ---- choose, clip, cast ----------------------------------------------------------------- */

void plim_onnx_where(onnx_call *c)
{
    uint32_t x[3];
    plim_named_arg a[3] = {ARG_T("condition", 0), ARG_T("self", 0), ARG_T("other", 0)};
    double v;
    if ((x[0] = plim_onnx_in_id(c, 0)) == PLIM_NONE)
        return;
    a[0].arg.id = x[0];
    for (uint32_t i = 1; i < 3; i++) {
        const plim_meta *m = plim_onnx_in_meta(c, i), *other = plim_onnx_in_meta(c, 3 - i);
        if (m && other && m->rank <= other->rank && plim_onnx_in(c, 3 - i)->id != PLIM_NONE &&
            plim_onnx_scalar(c, i, &v)) {
            a[i] = number_arg(i == 1 ? "self" : "other", v, plim_is_float(m->dtype));
        } else if ((x[i] = plim_onnx_in_id(c, i)) != PLIM_NONE) {
            a[i].arg.id = x[i];
        } else {
            return;
        }
    }
    plim_onnx_out(c, 0, plim_nn_op(NN, "aten.where.self", a, 3));
}

void plim_onnx_clip(onnx_call *c)
{
    uint32_t x;
    double v;
    if (!plim_onnx_need(c, 1, &x))
        return;
    bool is_float = plim_is_float(c->f->g->values[x].meta.dtype);
    plim_named_arg a[3] = {ARG_T("self", x)};
    uint32_t n = 1;
    static const char *const bound[2] = {"min", "max"};
    for (uint32_t i = 0; i < 2; i++) {
        if (plim_onnx_attr(c, bound[i]))
            a[n++] = number_arg(bound[i], plim_onnx_attr_float(c, bound[i], 0), is_float);
        else if (plim_onnx_scalar(c, i + 1, &v))
            a[n++] = number_arg(bound[i], v, is_float);
        else if (plim_onnx_in(c, i + 1)) /* a tensor: its number is neither known nor needed */
            a[n++] = number_arg(bound[i], 0, is_float);
    }
    if (n == 1)
        plim_onnx_out_val(c, 0, c->in[0]);
    else
        plim_onnx_out(c, 0, plim_nn_op(NN, "aten.clamp.default", a, n));
}

uint32_t plim_onnx_to(onnx_call *c, uint32_t x, plim_dtype t)
{
    return NN_OP(NN, "aten.to.dtype", ARG_T("self", x), ARG_I("dtype", t));
}

void plim_onnx_cast(onnx_call *c)
{
    uint32_t x;
    const onnx_type *t = plim_onnx_type((uint64_t)plim_onnx_attr_int(c, "to", 0));
    if (t && t->known && plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0, plim_onnx_to(c, x, t->dtype));
}

void plim_onnx_cast_like(onnx_call *c)
{
    uint32_t x;
    const plim_meta *like = plim_onnx_in_meta(c, 1);
    if (like && plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0, plim_onnx_to(c, x, like->dtype));
}

/* ---- reductions ---------------------------------------------------------------------------- */

/* The dims to reduce, and whether there are any; the size of the result. */
static bool reduce_dims(const onnx_call *c, int64_t *dims, uint32_t *n, bool *none,
                        plim_meta *out)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    int32_t axes[PLIM_MAX_RANK];
    bool keep = plim_onnx_attr_int(c, "keepdims", 1) != 0;
    uint32_t gone = 0;
    if (!x || !plim_onnx_axes(c, 1, x->rank, axes, n))
        return false;
    *none = !*n && plim_onnx_attr_int(c, "noop_with_empty_axes", 0);
    if (!*n && !*none)
        for (int32_t i = 0; i < x->rank; i++)
            axes[(*n)++] = i;
    for (uint32_t i = 0; i < *n; i++) {
        dims[i] = axes[i];
        gone |= 1u << axes[i];
    }
    *out = (plim_meta){.dtype = x->dtype};
    for (int32_t i = 0; i < x->rank; i++)
        if (keep || !(gone >> i & 1))
            out->dim[out->rank++] = gone >> i & 1 ? 1 : x->dim[i];
    return true;
}

/* src: one ONNX reduction in terms of ATen's; ops before and after it */
static const struct {
    const char *name, *before, *target, *after;
} reductions[] = {
    {"ReduceMean", NULL, "aten.mean.dim", NULL},
    {"ReduceSum", NULL, "aten.sum.dim_IntList", NULL},
    {"ReduceMax", NULL, "aten.amax.default", NULL},
    {"ReduceMin", NULL, "aten.amin.default", NULL},
    {"ReduceL1", NULL, "aten.linalg_vector_norm.default", NULL},
    {"ReduceL2", NULL, "aten.linalg_vector_norm.default", NULL},
    {"ReduceLogSumExp", NULL, "aten.logsumexp.default", NULL},
    {"ReduceSumSquare", "aten.square.default", "aten.sum.dim_IntList", NULL},
    {"ReduceLogSum", NULL, "aten.sum.dim_IntList", "aten.log.default"},
};

void plim_onnx_reduce(onnx_call *c)
{
    int64_t dims[PLIM_MAX_RANK];
    uint32_t n, x;
    bool none;
    plim_meta m;
    size_t i = 0;
    if (!reduce_dims(c, dims, &n, &none, &m))
        return;
    while (i < PLIM_COUNT(reductions) && !plim_str_is(c->node->op, reductions[i].name))
        i++;
    bool sums = i == 1, picks = i == 2 || i == 3;
    if (none &&
        !(i < PLIM_COUNT(reductions) && (reductions[i].before || reductions[i].after))) {
        plim_onnx_out_val(c, 0, c->in[0]);
        return;
    }
    if (i == PLIM_COUNT(reductions) || none || !n ||
        (!plim_is_float(m.dtype) && !sums && !picks)) {
        plim_onnx_out_opaque(c, 0, &m);
        return;
    }
    if (!plim_onnx_need(c, 1, &x))
        return;
    if (reductions[i].before)
        x = plim_nn_unary(NN, reductions[i].before, x);
    plim_named_arg a[4] = {ARG_T("self", x), ARG_IS("dim", ((plim_ints){dims, n})),
                           ARG_I("keepdim", plim_onnx_attr_int(c, "keepdims", 1) != 0),
                           ARG_I("dtype", m.dtype)};
    x = plim_nn_op(NN, reductions[i].target, a, sums ? 4 : 3);
    if (reductions[i].after)
        x = plim_nn_unary(NN, reductions[i].after, x);
    plim_onnx_out(c, 0, x);
}

void plim_onnx_arg_reduce(onnx_call *c)
{
    uint32_t x;
    if (plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0,
                      NN_OP(NN, c->op->target, ARG_T("self", x),
                            ARG_I("dim", plim_onnx_attr_int(c, "axis", 0)),
                            ARG_I("keepdim", plim_onnx_attr_int(c, "keepdims", 1) != 0)));
}

void plim_onnx_softmax(onnx_call *c)
{
    uint32_t x;
    if (plim_onnx_need(c, 1, &x))
        plim_onnx_out(
            c, 0,
            NN_OP(NN, c->op->target, ARG_T("self", x),
                  ARG_I("dim", plim_onnx_attr_int(c, "axis", c->opset < 13 ? 1 : -1))));
}

void plim_onnx_cumsum(onnx_call *c)
{
    uint32_t x;
    plim_ints axis;
    if (plim_onnx_in_ints(c, 1, &axis) && axis.n == 1) {
        if (plim_onnx_need(c, 1, &x))
            plim_onnx_out(c, 0,
                          NN_OP(NN, c->op->target, ARG_T("self", x), ARG_I("dim", axis.p[0]),
                                ARG_I("dtype", c->f->g->values[x].meta.dtype)));
    } else {
        plim_onnx_like(c); /* whichever dim it is */
    }
}

/* ---- random ----------------------------------------------------------------------------------- */

static plim_dtype dtype_attr(const onnx_call *c, plim_dtype def)
{
    const onnx_type *t = plim_onnx_type((uint64_t)plim_onnx_attr_int(c, "dtype", 0));
    return t && t->known ? t->dtype : def;
}

void plim_onnx_random(onnx_call *c)
{
    plim_ints shape = plim_onnx_attr_ints(c, "shape");
    if (shape.n <= PLIM_MAX_RANK)
        plim_onnx_out(c, 0,
                      NN_OP(NN, c->op->target, ARG_IS("size", shape),
                            ARG_I("dtype", dtype_attr(c, PLIM_F32))));
}

void plim_onnx_random_like(onnx_call *c)
{
    uint32_t x;
    if (plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0,
                      NN_OP(NN, c->op->target, ARG_T("self", x),
                            ARG_I("dtype", dtype_attr(c, c->f->g->values[x].meta.dtype))));
}

void plim_onnx_like_dtype(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    if (!x)
        return;
    plim_meta m = *x;
    m.dtype = dtype_attr(c, x->dtype);
    plim_onnx_out_opaque(c, 0, &m);
}
