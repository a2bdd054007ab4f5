/* onnx_fold.c -- see onnx_priv.h.
 *
 * An export with dynamic sizes computes them in the graph: Shape, Gather, Concat, Reshape.
 * Once sizes are bound these are all known numbers, which were Python numbers in PyTorch; they
 * allocate no tensor here either. */
#include "import/onnx/onnx_priv.h"

#include <math.h>

/* ---- numbers ------------------------------------------------------------------------- */

static void data_copy(onnx_data *to, uint32_t k, const onnx_data *from, uint64_t at)
{
    if (to->is_float)
        to->f[k] = from->f[at];
    else
        to->i[k] = from->i[at];
}

/* src: what a C cast leaves undefined is clamped to the ends of the range */
static int64_t to_int(double v)
{
    return v != v ? 0 : v >= 9.2e18 ? INT64_MAX : v <= -9.2e18 ? INT64_MIN : (int64_t)v;
}

/* ---- operands -------------------------------------------------------------------------- */

typedef struct folded {
    const onnx_data *d;
    const plim_meta *m;
} folded;

/* Weights are not folded, however small. */
static bool fold_in(const onnx_call *c, uint32_t i, folded *x)
{
    const onnx_val *v = plim_onnx_in(c, i);
    if (!v || v->kind != ONNX_TENSOR)
        return false;
    if (v->from && !v->constant && plim_is_float(v->meta.dtype) && v->from->numel > 1)
        return false;
    x->d = plim_onnx_in_data(c, i);
    x->m = &c->f->vals[c->in[i]].meta;
    return x->d != NULL;
}

/* Elements of d in the order of m's strides, from an offset on. */
static bool fold_view(onnx_call *c, uint32_t k, const onnx_data *d, const plim_meta *m,
                      int64_t offset)
{
    uint64_t n;
    plim_meta out = plim_meta_make(m->dtype, m->rank, m->dim);
    if (!plim_meta_numel(m, &n))
        return false;
    onnx_data *to = plim_onnx_new_data(c->f, d->is_float, n);
    if (!to)
        return false;
    int64_t index[PLIM_MAX_RANK] = {0}, at = offset;
    for (uint32_t i = 0; i < to->n; i++) {
        data_copy(to, i, d, (uint64_t)at);
        for (int32_t r = m->rank; r-- > 0;) {
            at += m->stride[r];
            if (++index[r] < m->dim[r])
                break;
            at -= index[r] * m->stride[r];
            index[r] = 0;
        }
    }
    plim_onnx_out_data(c, k, &out, to);
    return true;
}

/* ---- sources ----------------------------------------------------------------------------- */

static bool fold_ints(onnx_call *c, const int64_t *p, uint32_t n, int32_t rank)
{
    int64_t dim = n;
    plim_meta m = plim_meta_make(PLIM_I64, rank, &dim);
    onnx_data *d = plim_onnx_new_data(c->f, false, n);
    if (!d)
        return false;
    if (n)
        memcpy(d->i, p, n * sizeof *p);
    plim_onnx_out_data(c, 0, &m, d);
    return true;
}

static bool fold_floats(onnx_call *c, const double *p, uint32_t n, int32_t rank)
{
    int64_t dim = n;
    plim_meta m = plim_meta_make(PLIM_F32, rank, &dim);
    onnx_data *d = plim_onnx_new_data(c->f, true, n);
    if (!d)
        return false;
    if (n)
        memcpy(d->f, p, n * sizeof *p);
    plim_onnx_out_data(c, 0, &m, d);
    return true;
}

static bool fold_constant(onnx_call *c)
{
    const onnx_attr *a;
    if ((a = plim_onnx_attr(c, "value_int")) != NULL)
        return fold_ints(c, &a->i, 1, 0);
    if ((a = plim_onnx_attr(c, "value_ints")) != NULL)
        return fold_ints(c, a->ints, a->n_ints, 1);
    if ((a = plim_onnx_attr(c, "value_float")) != NULL)
        return fold_floats(c, &a->f, 1, 0);
    if ((a = plim_onnx_attr(c, "value_floats")) != NULL)
        return fold_floats(c, a->floats, a->n_floats, 1);
    a = plim_onnx_attr(c, "value");
    onnx_tensor *t = a && a->tensor.file.p ? PLIM_NEW(c->f->a, onnx_tensor) : NULL;
    if (!t)
        return false;
    c->st = plim_onnx_parse_tensor(&c->f->m, a->tensor, t);
    if (!c->st)
        plim_onnx_out_val(c, 0, plim_onnx_stored_val(c->f, t, c->node->out[0], true));
    return true;
}

static bool fold_shape(onnx_call *c)
{
    const plim_meta *m = plim_onnx_in_meta(c, 0);
    if (!m)
        return false;
    int64_t rank = m->rank, from = plim_onnx_attr_int(c, "start", 0),
            to = plim_onnx_attr_int(c, "end", rank);
    from = PLIM_MAX(PLIM_MIN(from < 0 ? from + rank : from, rank), 0);
    to = PLIM_MAX(PLIM_MIN(to < 0 ? to + rank : to, rank), from);
    return fold_ints(c, m->dim + from, (uint32_t)(to - from), 1);
}

static bool fold_size(onnx_call *c)
{
    const plim_meta *m = plim_onnx_in_meta(c, 0);
    uint64_t n;
    if (!m || !plim_meta_numel(m, &n))
        return false;
    int64_t v = (int64_t)n;
    return fold_ints(c, &v, 1, 0);
}

/* The same value under another name. */
static bool fold_identity(onnx_call *c)
{
    if (!plim_onnx_in(c, 0))
        return false;
    plim_onnx_out_val(c, 0, c->in[0]);
    return true;
}

static bool fold_filled(onnx_call *c)
{
    plim_meta m = {.dtype = PLIM_F32};
    uint64_t n;
    onnx_tensor t;
    const onnx_data *value = NULL;
    const onnx_attr *a = plim_onnx_attr(c, "value");
    if (a && a->tensor.file.p) {
        c->st = plim_onnx_parse_tensor(&c->f->m, a->tensor, &t);
        value = !c->st && t.numel == 1 ? plim_onnx_read_data(c->f, &t) : NULL;
        if (!value)
            return false;
        m.dtype = plim_onnx_type(t.type)->dtype;
    }
    if (!plim_onnx_dims(c, 0, &m) || !plim_meta_numel(&m, &n))
        return false;
    onnx_data *d = plim_onnx_new_data(c->f, plim_is_float(m.dtype), n);
    for (uint32_t i = 0; d && value && i < d->n; i++)
        data_copy(d, i, value, 0);
    plim_onnx_out_data(c, 0, &m, d);
    return d != NULL;
}

static bool fold_range(onnx_call *c)
{
    folded x[3];
    for (uint32_t i = 0; i < 3; i++)
        if (!fold_in(c, i, &x[i]) || x[i].d->n != 1)
            return false;
    double from = plim_onnx_number(x[0].d, 0), step = plim_onnx_number(x[2].d, 0);
    double count = ceil((plim_onnx_number(x[1].d, 0) - from) / step);
    if (!(count <= ONNX_MAX_DATA))
        return false;
    int64_t n = count > 0 ? (int64_t)count : 0;
    plim_meta m = plim_meta_make(x[0].m->dtype, 1, &n);
    onnx_data *d = plim_onnx_new_data(c->f, x[0].d->is_float, (uint64_t)n);
    for (uint32_t i = 0; d && i < d->n; i++)
        if (d->is_float)
            d->f[i] = from + step * i;
        else
            d->i[i] = to_int(from + step * i);
    plim_onnx_out_data(c, 0, &m, d);
    return d != NULL;
}

/* ---- views ------------------------------------------------------------------------------- */

static bool fold_other_dims(onnx_call *c)
{
    folded x;
    plim_meta m;
    if (!fold_in(c, 0, &x) || !plim_onnx_other_dims(c, x.m, &m))
        return false;
    return fold_view(c, 0, x.d, &m, 0);
}

static bool fold_transpose(onnx_call *c)
{
    folded x;
    int64_t perm[PLIM_MAX_RANK];
    if (!fold_in(c, 0, &x) || !plim_onnx_perm(c, x.m, perm))
        return false;
    plim_meta m = *x.m;
    for (int32_t i = 0; i < m.rank; i++) {
        m.dim[i] = x.m->dim[perm[i]];
        m.stride[i] = x.m->stride[perm[i]];
    }
    return fold_view(c, 0, x.d, &m, 0);
}

static bool fold_slice(onnx_call *c)
{
    folded x;
    onnx_slice list[PLIM_MAX_RANK];
    uint32_t n;
    int64_t offset = 0;
    if (!fold_in(c, 0, &x) || !plim_onnx_slices(c, x.m, list, &n))
        return false;
    plim_meta m = *x.m;
    for (uint32_t i = 0; i < n; i++) {
        const onnx_slice *s = &list[i];
        offset += s->count ? s->start * x.m->stride[s->axis] : 0;
        m.dim[s->axis] = s->count;
        m.stride[s->axis] = s->count > 1 ? x.m->stride[s->axis] * s->step : 0;
    }
    return fold_view(c, 0, x.d, &m, offset);
}

static bool fold_expand(onnx_call *c)
{
    folded x;
    plim_meta m;
    if (!fold_in(c, 0, &x) || !plim_onnx_expand(c, x.m, &m))
        return false;
    m.dtype = x.m->dtype;
    for (int32_t i = 0; i < m.rank; i++) {
        int32_t k = i - (m.rank - x.m->rank);
        m.stride[i] = k < 0 || x.m->dim[k] == 1 ? 0 : x.m->stride[k];
    }
    return fold_view(c, 0, x.d, &m, 0);
}

static bool fold_split(onnx_call *c)
{
    enum { MAX_PARTS = 64 };
    folded x;
    int32_t axis;
    int64_t sizes[MAX_PARTS], offset = 0;
    bool ok = fold_in(c, 0, &x) && plim_onnx_split(c, x.m, &axis, sizes, MAX_PARTS);
    for (uint32_t k = 0; ok && k < c->node->n_out; k++) {
        plim_meta m = *x.m;
        m.dim[axis] = sizes[k];
        plim_onnx_in(c, 0);
        ok = fold_view(c, k, x.d, &m, offset);
        (void)fold_in(c, 0, &x); /* reload: values may have moved */
        offset += sizes[k] * m.stride[axis];
    }
    return ok;
}

static bool fold_gather(onnx_call *c)
{
    folded x, index;
    int32_t axis;
    uint64_t n;
    if (!fold_in(c, 0, &x) || !fold_in(c, 1, &index) || index.d->is_float ||
        !plim_onnx_axis(plim_onnx_attr_int(c, "axis", 0), x.m->rank, &axis) ||
        x.m->rank - 1 + index.m->rank > PLIM_MAX_RANK)
        return false;
    plim_meta m = {.dtype = x.m->dtype};
    for (int32_t i = 0; i < axis; i++)
        m.dim[m.rank++] = x.m->dim[i];
    for (int32_t i = 0; i < index.m->rank; i++)
        m.dim[m.rank++] = index.m->dim[i];
    for (int32_t i = axis + 1; i < x.m->rank; i++)
        m.dim[m.rank++] = x.m->dim[i];
    plim_meta_contiguous(&m);
    onnx_data *d = plim_meta_numel(&m, &n) ? plim_onnx_new_data(c->f, x.d->is_float, n) : NULL;
    if (!d)
        return false;
    uint64_t inner = 1, size = (uint64_t)x.m->dim[axis];
    for (int32_t i = axis + 1; i < x.m->rank; i++)
        inner *= (uint64_t)x.m->dim[i];
    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t in = i % inner, which = i / inner % PLIM_MAX(index.d->n, 1),
                 outer = i / inner / PLIM_MAX(index.d->n, 1);
        int64_t at = index.d->i[which];
        at += at < 0 ? (int64_t)size : 0;
        if (at < 0 || (uint64_t)at >= size)
            return false;
        data_copy(d, i, x.d, (outer * size + (uint64_t)at) * inner + in);
    }
    plim_onnx_out_data(c, 0, &m, d);
    return true;
}

static bool fold_concat(onnx_call *c)
{
    folded x;
    int32_t axis;
    uint64_t n = 0, numel;
    if (!c->node->n_in || !fold_in(c, 0, &x) ||
        !plim_onnx_axis(plim_onnx_attr_int(c, "axis", 0), x.m->rank, &axis))
        return false;
    plim_meta m = *x.m;
    m.dim[axis] = 0;
    for (uint32_t i = 0; i < c->node->n_in; i++) {
        if (!fold_in(c, i, &x) || x.m->rank != m.rank || x.m->dtype != m.dtype)
            return false;
        for (int32_t r = 0; r < m.rank; r++)
            if (r != axis && x.m->dim[r] != m.dim[r])
                return false;
        m.dim[axis] += x.m->dim[axis]; /* each at most ONNX_MAX_DATA, else the data is empty */
        if (m.dim[axis] < 0 || m.dim[axis] > INT32_MAX)
            return false;
    }
    plim_meta_contiguous(&m);
    onnx_data *d = plim_meta_numel(&m, &n) ? plim_onnx_new_data(c->f, x.d->is_float, n) : NULL;
    uint64_t row = 0, outer = 1, before = 0;
    for (int32_t r = 0; r < axis; r++)
        outer *= (uint64_t)m.dim[r];
    row = d && outer ? n / outer : 0;
    for (uint32_t i = 0; d && outer && i < c->node->n_in; i++) {
        (void)fold_in(c, i, &x);
        numel = x.d->n / outer;
        for (uint64_t k = 0; k < x.d->n; k++)
            data_copy(d, (uint32_t)(k / numel * row + before + k % numel), x.d, k);
        before += numel;
    }
    plim_onnx_out_data(c, 0, &m, d);
    return d != NULL;
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

typedef enum math_kind { M_SAME, M_BOOL } math_kind; /* the dtype of the result */

static int64_t wrap_int(uint64_t v) { return (int64_t)v; } /* as in numpy */

static int64_t int_math(char op, int64_t a, int64_t b)
{
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case '+': return wrap_int(x + y);
    case '-': return wrap_int(x - y);
    case '*': return wrap_int(x * y);
    case '/': return !b ? 0 : b == -1 ? wrap_int(0 - x) : a / b;
    case 'f': return !b || b == -1 ? 0 : a % b;
    case '%': {
        int64_t r = !b || b == -1 ? 0 : a % b;
        return r && (r < 0) != (b < 0) ? r + b : r;
    }
    case '^': return to_int(pow((double)a, (double)b));
    case 'm': return PLIM_MIN(a, b);
    case 'M': return PLIM_MAX(a, b);
    case '=': return a == b;
    case '<': return a < b;
    case '>': return a > b;
    case 'l': return a <= b;
    case 'g': return a >= b;
    case '&': return a && b;
    case '|': return a || b;
    default: return !a != !b; /* 'x' */
    }
}

static double float_math(char op, double a, double b)
{
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    case '%':
    case 'f': return fmod(a, b);
    case '^': return pow(a, b);
    case 'm': return fmin(a, b);
    case 'M': return fmax(a, b);
    case '=': return a == b;
    case '<': return a < b;
    case '>': return a > b;
    case 'l': return a <= b;
    default: return a >= b; /* 'g' */
    }
}

static const struct {
    const char *name;
    char op;
    math_kind kind;
} binaries[] = {
    {"Add", '+', M_SAME},         {"Sub", '-', M_SAME},
    {"Mul", '*', M_SAME},         {"Div", '/', M_SAME},
    {"Mod", '%', M_SAME},         {"Pow", '^', M_SAME},
    {"Min", 'm', M_SAME},         {"Max", 'M', M_SAME},
    {"Sum", '+', M_SAME},         {"Equal", '=', M_BOOL},
    {"Less", '<', M_BOOL},        {"Greater", '>', M_BOOL},
    {"LessOrEqual", 'l', M_BOOL}, {"GreaterOrEqual", 'g', M_BOOL},
    {"And", '&', M_BOOL},         {"Or", '|', M_BOOL},
    {"Xor", 'x', M_BOOL},
};

/* Index in x of element i of a broadcast result. */
static uint32_t broadcast_at(const plim_meta *out, const plim_meta *x, uint64_t i)
{
    uint64_t at = 0, step = 1;
    for (int32_t r = out->rank, k = x->rank; r-- > 0 && k-- > 0;) {
        uint64_t index = i % (uint64_t)out->dim[r];
        i /= (uint64_t)out->dim[r];
        at += x->dim[k] == 1 ? 0 : index * step;
        step *= (uint64_t)x->dim[k];
    }
    return (uint32_t)at;
}

static bool fold_two(onnx_call *c, char op, math_kind kind, const folded *a, const folded *b,
                     plim_meta *m, onnx_data **out)
{
    uint64_t n;
    if (a->d->is_float != b->d->is_float || !plim_broadcast(a->m, b->m, m) ||
        !plim_meta_numel(m, &n))
        return false;
    bool is_float = a->d->is_float;
    m->dtype = kind == M_BOOL ? PLIM_BOOL : a->m->dtype;
    plim_meta_contiguous(m);
    onnx_data *d = plim_onnx_new_data(c->f, is_float && kind == M_SAME, n);
    for (uint32_t i = 0; d && i < d->n; i++) {
        uint32_t p = broadcast_at(m, a->m, i), q = broadcast_at(m, b->m, i);
        if (!is_float)
            d->i[i] = int_math(op, a->d->i[p], b->d->i[q]);
        else if (kind == M_BOOL)
            d->i[i] = float_math(op, a->d->f[p], b->d->f[q]) != 0;
        else
            d->f[i] = float_math(op, a->d->f[p], b->d->f[q]);
    }
    *out = d;
    return d != NULL;
}

/* Two operands, or several folded from the left. */
static bool fold_binary(onnx_call *c)
{
    size_t op = 0;
    folded a, b;
    plim_meta m[2];
    onnx_data *d = NULL;
    while (op < PLIM_COUNT(binaries) && !plim_str_is(c->node->op, binaries[op].name))
        op++;
    char sign = binaries[op].op;
    if (sign == '%' && plim_onnx_attr_int(c, "fmod", 0))
        sign = 'f';
    if (c->node->n_in < 2 || !fold_in(c, 0, &a))
        return false;
    for (uint32_t i = 1; i < c->node->n_in; i++) {
        plim_meta *to = &m[i % 2];
        if (!fold_in(c, i, &b) || !fold_two(c, sign, binaries[op].kind, &a, &b, to, &d))
            return false;
        a = (folded){d, to};
    }
    plim_onnx_out_data(c, 0, a.m, d);
    return true;
}

static bool fold_where(onnx_call *c)
{
    folded x[3];
    plim_meta m, all;
    uint64_t n;
    for (uint32_t i = 0; i < 3; i++)
        if (!fold_in(c, i, &x[i]))
            return false;
    if (x[0].d->is_float || x[1].d->is_float != x[2].d->is_float ||
        !plim_broadcast(x[0].m, x[1].m, &m) || !plim_broadcast(&m, x[2].m, &all) ||
        !plim_meta_numel(&all, &n))
        return false;
    all.dtype = x[1].m->dtype;
    plim_meta_contiguous(&all);
    onnx_data *d = plim_onnx_new_data(c->f, x[1].d->is_float, n);
    for (uint32_t i = 0; d && i < d->n; i++) {
        int which = x[0].d->i[broadcast_at(&all, x[0].m, i)] ? 1 : 2;
        data_copy(d, i, x[which].d, broadcast_at(&all, x[which].m, i));
    }
    plim_onnx_out_data(c, 0, &all, d);
    return d != NULL;
}

static double float_unary(char op, double v)
{
    switch (op) {
    case 'n': return -v;
    case 'a': return fabs(v);
    case 'f': return floor(v);
    case 'c': return ceil(v);
    case 'r': return nearbyint(v);
    case 's': return sqrt(v);
    case 'e': return exp(v);
    case 'l': return log(v);
    default: return 1 / v; /* '1' */
    }
}

static const struct {
    const char *name;
    char op;
} unaries[] = {
    {"Neg", 'n'},  {"Abs", 'a'}, {"Floor", 'f'}, {"Ceil", 'c'},       {"Round", 'r'},
    {"Sqrt", 's'}, {"Exp", 'e'}, {"Log", 'l'},   {"Reciprocal", '1'}, {"Not", '!'},
};

static bool fold_unary(onnx_call *c)
{
    folded x;
    size_t op = 0;
    while (op < PLIM_COUNT(unaries) && !plim_str_is(c->node->op, unaries[op].name))
        op++;
    char sign = unaries[op].op;
    if (!fold_in(c, 0, &x) || (!x.d->is_float && !strchr("na!", sign)))
        return false;
    plim_meta m = *x.m;
    onnx_data *d = plim_onnx_new_data(c->f, x.d->is_float, x.d->n);
    for (uint32_t i = 0; d && i < d->n; i++) {
        int64_t v = d->is_float ? 0 : x.d->i[i];
        if (d->is_float)
            d->f[i] = float_unary(sign, x.d->f[i]);
        else
            d->i[i] = sign == '!' ? !v : sign == 'n' || v < 0 ? wrap_int(0 - (uint64_t)v) : v;
    }
    plim_onnx_out_data(c, 0, &m, d);
    return d != NULL;
}

static bool fold_cast(onnx_call *c)
{
    folded x;
    const onnx_type *t = plim_onnx_type((uint64_t)plim_onnx_attr_int(c, "to", 0));
    if (!fold_in(c, 0, &x) || !t || !t->known || t->bits < 8 || t->dtype == PLIM_C64 ||
        t->dtype == PLIM_C128)
        return false;
    plim_meta m = plim_meta_make(t->dtype, x.m->rank, x.m->dim);
    onnx_data *d = plim_onnx_new_data(c->f, plim_is_float(t->dtype), x.d->n);
    for (uint32_t i = 0; d && i < d->n; i++) {
        if (d->is_float)
            d->f[i] = plim_onnx_number(x.d, i);
        else if (t->dtype == PLIM_BOOL)
            d->i[i] = plim_onnx_number(x.d, i) != 0;
        else
            d->i[i] = x.d->is_float ? to_int(x.d->f[i]) : x.d->i[i];
    }
    plim_onnx_out_data(c, 0, &m, d);
    return d != NULL;
}

/* ---- reductions: of all there is ------------------------------------------------------------ */

static const struct {
    const char *name;
    char op;
} reductions[] = {
    {"ReduceProd", '*'}, {"ReduceSum", '+'}, {"ReduceMax", 'M'}, {"ReduceMin", 'm'}};

static bool fold_reduce(onnx_call *c)
{
    folded x;
    int32_t axes[PLIM_MAX_RANK];
    uint32_t n;
    size_t op = 0;
    while (op < PLIM_COUNT(reductions) && !plim_str_is(c->node->op, reductions[op].name))
        op++;
    if (!fold_in(c, 0, &x) || !plim_onnx_axes(c, 1, x.m->rank, axes, &n) || !x.d->n ||
        (n && n != (uint32_t)x.m->rank) ||
        (!n && plim_onnx_attr_int(c, "noop_with_empty_axes", 0)))
        return false;
    plim_meta m = {.dtype = x.m->dtype};
    if (plim_onnx_attr_int(c, "keepdims", 1))
        for (m.rank = 0; m.rank < x.m->rank; m.rank++)
            m.dim[m.rank] = 1;
    plim_meta_contiguous(&m);
    onnx_data *d = plim_onnx_new_data(c->f, x.d->is_float, 1);
    if (!d)
        return false;
    data_copy(d, 0, x.d, 0);
    for (uint32_t i = 1; i < x.d->n; i++)
        if (d->is_float)
            d->f[0] = float_math(reductions[op].op, d->f[0], x.d->f[i]);
        else
            d->i[0] = int_math(reductions[op].op, d->i[0], x.d->i[i]);
    plim_onnx_out_data(c, 0, &m, d);
    return true;
}

static bool fold_nonzero(onnx_call *c)
{
    folded x;
    uint32_t n = 0, k = 0;
    if (!fold_in(c, 0, &x))
        return false;
    int32_t rank = x.m->rank ? x.m->rank : 1;
    for (uint32_t i = 0; i < x.d->n; i++)
        n += plim_onnx_number(x.d, i) != 0;
    int64_t dim[2] = {rank, n};
    plim_meta m = plim_meta_make(PLIM_I64, 2, dim);
    onnx_data *d = plim_onnx_new_data(c->f, false, (uint64_t)rank * n);
    for (uint32_t i = 0; d && i < x.d->n; i++) {
        uint64_t rest = i;
        if (plim_onnx_number(x.d, i) == 0)
            continue;
        for (int32_t r = x.m->rank; r-- > 0; rest /= (uint64_t)x.m->dim[r])
            d->i[(uint64_t)r * n + k] = (int64_t)(rest % (uint64_t)x.m->dim[r]);
        k++;
    }
    plim_onnx_out_data(c, 0, &m, d);
    return d != NULL;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool (*fold)(onnx_call *c);
} folds[] = {
    {"Constant", fold_constant},
    {"Shape", fold_shape},
    {"Size", fold_size},
    {"Identity", fold_identity},
    {"ConstantOfShape", fold_filled},
    {"Range", fold_range},
    {"Reshape", fold_other_dims},
    {"Flatten", fold_other_dims},
    {"Squeeze", fold_other_dims},
    {"Unsqueeze", fold_other_dims},
    {"Transpose", fold_transpose},
    {"Slice", fold_slice},
    {"Expand", fold_expand},
    {"Split", fold_split},
    {"Gather", fold_gather},
    {"Concat", fold_concat},
    {"Where", fold_where},
    {"Cast", fold_cast},
    {"NonZero", fold_nonzero},
};

bool plim_onnx_fold(onnx_call *c)
{
    plim_str op = c->node->op;
    if (!plim_onnx_domain_is(c->node->domain, ""))
        return false;
    for (size_t i = 0; i < PLIM_COUNT(folds); i++)
        if (plim_str_is(op, folds[i].name))
            return folds[i].fold(c);
    for (size_t i = 0; i < PLIM_COUNT(binaries); i++)
        if (plim_str_is(op, binaries[i].name))
            return fold_binary(c);
    for (size_t i = 0; i < PLIM_COUNT(unaries); i++)
        if (plim_str_is(op, unaries[i].name))
            return fold_unary(c);
    for (size_t i = 0; i < PLIM_COUNT(reductions); i++)
        if (plim_str_is(op, reductions[i].name))
            return fold_reduce(c);
    return false;
}
