/* rules_quant.c -- linear layers of bitsandbytes: x W^T + b of a W that is packed in 4 or 8 bits.
 *
 * src: bitsandbytes 0.50 autograd/_functions.py, functional.py, nn/modules.py, backends/cuda/ops.py,
 * backends/default/ops.py */
#include "op/rules.h"

static int64_t count_elements(const plim_machine *m, plim_t t)
{
    uint64_t n = 0;
    return plim_meta_numel(plim_m_meta(m, t), &n) && n <= INT64_MAX ? (int64_t)n : 0;
}

static plim_t empty_1d(plim_machine *m, plim_dtype t, int64_t n)
{
    return plim_m_empty_contig(m, t, 1, (int64_t[]){n});
}

/* t in this dtype; it takes the reference. */
static plim_t cast_to(plim_machine *m, plim_t t, plim_dtype to)
{
    plim_t y = plim_at_to(m, t, to);
    plim_m_drop(m, t);
    return y;
}

/* grad_output.sum(0), which autograd sums further to the size of the bias */
static plim_t bias_gradient(plim_machine *m, plim_t g) { return plim_at_sum(m, g, 1, false); }

/* What both kinds check: rows of `in` features. */
static bool check_input(plim_machine *m, plim_t x, int64_t in)
{
    const plim_meta *a = plim_m_meta(m, x);
    char s[96];
    if (a->rank && plim_dim_at(a, -1) == in)
        return true;
    plim_m_fail(m, PLIM_ESHAPE,
                "linear: input %s and a quantized weight of %" PRId64 " inputs do not match",
                plim_meta_str(a, s, sizeof s), in);
    return false;
}

/* ---- 4 bits ------------------------------------------------------------------------ */

enum { BLOCK = 64 }; /* weights that share a maximum */
enum {
    INPUT,
    WEIGHT,
    STATE,
    SIZE,
    MADE_AS,
    COMPUTE,
    BIAS,
    KEEPS,
    UNPACKS
};                                                                 /* of the schema */
enum { ABSMAX, CODE, NESTED_ABSMAX, NESTED_CODE, OFFSET, STATES }; /* of STATE */
enum { IN_INPUT, IN_BIAS };                                        /* of the node */

typedef struct packed {
    plim_t absmax;
    bool nested;
    int64_t out, in;
    plim_dtype made_as;
    bool keeps_input; /* before 0.43.2, for a gradient that it does not compute */
    bool
        unpacks; /* as before 0.50: all but a single row is multiplied with the unpacked weight */
} packed;

/* The kernel that multiplies packed weights serves few rows; more are multiplied with the weight
 * in the dtype of the input, which is made for the moment.
 * src: backends/cuda/ops.py gemm_4bit, _gemm_4bit_use_custom_cuda: between these bounds, tables of
 * measured crossings decide, by card and size */
typedef enum path { FUSED, UNPACKED, EITHER } path;

static path path_of(const plim_machine *m, const packed *w, int64_t rows)
{
    enum { ALWAYS = 4, USUALLY = 512, EVER = 1536, SMALL = 4 << 20 };
    if (rows > EVER || w->in % BLOCK)
        return UNPACKED;
    if (rows <= ALWAYS)
        return FUSED;
    bool long_reach =
        plim_world_is(plim_m_world(m), 80) && w->in * 2 < w->out && w->in * w->out < SMALL;
    return rows > USUALLY && !long_reach ? UNPACKED : EITHER;
}

/* linear(A, dequantize_4bit(B, state).to(A.dtype).t(), bias)
 * src: bitsandbytes 0.41 to 0.46 autograd/_functions.py MatMul4Bit.forward */
static plim_t product_unpacked_first(plim_machine *m, plim_t x, const packed *w, plim_t bias)
{
    plim_t absmax = w->nested ? empty_1d(m, PLIM_F32, count_elements(m, w->absmax)) : 0;
    plim_t weight = plim_m_empty_contig(m, w->made_as, 2, (int64_t[]){w->out, w->in});
    plim_m_drop(m, absmax);
    weight = cast_to(m, weight, plim_m_meta(m, x)->dtype);
    plim_t y = plim_at_linear(m, x, weight, bias);
    plim_m_drop(m, weight);
    return y;
}

/* src: ops.py _dequant_linear_fallback */
static plim_t product_unpacked(plim_machine *m, plim_t x, const packed *w, plim_t bias)
{
    plim_t absmax = 0, sum = 0;
    if (w->nested) {
        absmax = empty_1d(m, PLIM_F32, count_elements(m, w->absmax));
        sum = empty_1d(m, PLIM_F32, count_elements(m, w->absmax));
    }
    plim_t weight =
        plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, 2, (int64_t[]){w->out, w->in});
    plim_t y = plim_at_linear(m, x, weight, bias), all[] = {weight, sum, absmax};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return y;
}

static plim_t product_fused(plim_machine *m, plim_t x, const packed *w, path how)
{
    plim_t rows = plim_contiguous_tmp(m, x), scratch = 0;
    plim_meta y = *plim_m_meta(m, rows);
    plim_set_dim(&y, -1, w->out);
    plim_meta_contiguous(&y);
    plim_t r = plim_m_empty(m, &y);
    if (how == EITHER) {
        enum { FEW = 8 };
        uint64_t whole = plim_sat_mul((uint64_t)(w->out * w->in), plim_dtype_bytes(y.dtype));
        bool few = count_elements(m, rows) / w->in < FEW;
        scratch = plim_m_scratch_range(m, 0, few ? 0 : whole, whole);
    }
    plim_m_drop(m, scratch);
    plim_m_drop(m, rows);
    return r;
}

/* MatMul4Bit.backward: the weight is unpacked again, in the dtype that it had when it was loaded. */
static void linear4bit_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t absmax = 0;
    if (plim_m_wants(m, n, IN_BIAS))
        dx[IN_BIAS] = bias_gradient(m, g[0]);
    if (!plim_m_wants(m, n, IN_INPUT))
        return;
    if (n->i[2])
        absmax = empty_1d(m, PLIM_F32, n->i[2]);
    plim_t weight = plim_m_empty_contig(m, (plim_dtype)n->i[3], 2, n->i);
    plim_m_drop(m, absmax);
    weight = cast_to(m, weight, plim_m_meta(m, g[0])->dtype);
    dx[IN_INPUT] = plim_at_matmul(m, g[0], weight);
    plim_m_drop(m, weight);
}
static const plim_grad_fn linear4bit_fn = {"MatMul4BitBackward", linear4bit_backward};

static plim_t multiply_4bit(plim_machine *m, plim_t x, const packed *w, plim_t bias)
{
    const int64_t rows = count_elements(m, x) / PLIM_MAX(w->in, 1);
    if (w->unpacks && (rows > 1 || plim_m_requires_grad(m, x)))
        return product_unpacked_first(m, x, w, bias);
    path how = w->unpacks ? FUSED : path_of(m, w, rows);
    return how == UNPACKED ? product_unpacked(m, x, w, bias) : product_fused(m, x, w, how);
}

static plim_t matmul_4bit(plim_machine *m, plim_t x, const packed *w, plim_t bias)
{
    const plim_t in[] = {x, bias};
    plim_gnode *n = plim_m_node(m, &linear4bit_fn, 2, in);
    if (n) {
        n->i[0] = w->out;
        n->i[1] = w->in;
        n->i[2] = w->nested ? count_elements(m, w->absmax) : 0;
        n->i[3] = w->made_as;
    }
    if (w->keeps_input)
        plim_m_hold(m, n, x);
    bool mode = plim_m_grad_mode(m);
    plim_m_set_grad_mode(m, false);
    plim_t y = multiply_4bit(m, x, w, bias);
    plim_m_set_grad_mode(m, mode);
    plim_m_output(m, n, 0, y);
    return y;
}

/* Linear4bit.forward */
void plim_run_linear4bit(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, INPUT), b = plim_arg_tensor(c, BIAS);
    int64_t size[2] = {1, 1};
    plim_arg_ints(c, SIZE, size, 2, 1);
    plim_dtype was = plim_m_meta(m, x)->dtype;
    const packed w = {.absmax = plim_arg_nth(c, STATE, ABSMAX),
                      .nested = plim_arg_count(c, STATE) == STATES,
                      .out = size[0],
                      .in = size[1],
                      .made_as = plim_arg_dtype(c, MADE_AS, was),
                      .keeps_input = plim_arg_int(c, KEEPS, 0),
                      .unpacks = plim_arg_int(c, UNPACKS, 0)};
    if (!check_input(m, x, w.in))
        return;
    plim_dtype compute = plim_arg_dtype(c, COMPUTE, was);
    x = plim_at_to(m, x, compute);
    b = plim_at_to(m, b, compute);
    plim_t y = matmul_4bit(m, x, &w, b);
    plim_t r = plim_at_to(m, y, was), all[] = {y, b, x};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    plim_ret(c, r);
}

/* ---- 8 bits ------------------------------------------------------------------------ */

enum { W8_INPUT, W8_WEIGHT, W8_SCALE, W8_BIAS };

/* The rows of x in int8 and their maxima, from a copy in fp16.  It is supposed that no element
 * reaches the threshold of outliers. */
static void quantize_rows(plim_machine *m, plim_t x, plim_t *rows, plim_t *maxima)
{
    const plim_meta *a = plim_m_meta(m, x);
    int64_t n = a->dim[0], in = a->dim[1], size[] = {n, in};
    plim_t half = plim_at_to(m, x, PLIM_F16);
    *maxima = empty_1d(m, PLIM_F32, n);
    *rows = plim_m_empty_contig(m, PLIM_I8, 2, size);
    plim_t magnitude = plim_m_empty_contig(m, PLIM_F16, 2, size);
    plim_t outliers = plim_m_empty_contig(m, PLIM_BOOL, 2, size);
    plim_m_drop(m, magnitude);
    plim_m_drop(m, outliers);
    plim_m_drop(m, half);
}

/* src: ops.py int8_linear_matmul, int8_mm_dequant: sums in int32, then fp16, then the dtype of x */
static plim_t product_8bit(plim_machine *m, plim_t rows, int64_t out, plim_dtype t)
{
    int64_t size[] = {plim_m_meta(m, rows)->dim[0], out};
    plim_t sums = plim_m_empty_contig(m, PLIM_I32, 2, size);
    plim_t half = plim_m_empty_contig(m, PLIM_F16, 2, size);
    plim_t y = cast_to(m, half, t);
    plim_m_drop(m, sums);
    return y;
}

/* MatMul8bitLt.backward */
static void linear8bit_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    const plim_meta *x = &n->in_meta[IN_INPUT];
    if (plim_m_wants(m, n, IN_BIAS))
        dx[IN_BIAS] = bias_gradient(m, g[0]);
    if (!plim_m_wants(m, n, IN_INPUT))
        return;
    plim_t flat = plim_at_reshape(m, g[0], 2, (int64_t[]){-1, n->i[0]});
    plim_t rows = plim_contiguous_tmp(m, flat);
    plim_m_drop(m, flat);
    plim_t weight = plim_m_empty_contig(m, x->dtype, 2, n->i),
           scale = empty_1d(m, PLIM_F32, n->i[0]);
    plim_m_drop(m, scale);
    rows = cast_to(m, rows, x->dtype);
    plim_t p = plim_at_matmul(m, rows, weight);
    dx[IN_INPUT] = plim_at_view(m, p, x->rank, x->dim);
    plim_t all[] = {p, rows, weight};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
}
static const plim_grad_fn linear8bit_fn = {"MatMul8bitLtBackward", linear8bit_backward};

static plim_t matmul_8bit(plim_machine *m, plim_t x, int64_t out, int64_t in)
{
    const plim_meta *a = plim_m_meta(m, x);
    plim_meta y = *a;
    plim_set_dim(&y, -1, out);
    plim_t flat =
        a->rank == 3 ? plim_at_reshape(m, x, 2, (int64_t[]){-1, in}) : plim_m_ref(m, x);
    plim_t rows, maxima;
    quantize_rows(m, flat, &rows, &maxima);
    plim_t p = product_8bit(m, rows, out, y.dtype), r = plim_at_view(m, p, y.rank, y.dim),
           all[] = {p, maxima, rows, flat};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return r;
}

/* Linear8bitLt.forward.  The context of its autograd function keeps the input as an attribute: for
 * as long as the graph exists, whatever hooks a checkpoint has for saved tensors. */
void plim_run_linear8bit(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, W8_INPUT);
    const plim_meta *w = plim_m_meta(m, plim_arg_tensor(c, W8_WEIGHT));
    int64_t out = w->dim[0], in = w->dim[1];
    if (!check_input(m, x, in))
        return;
    const plim_t inputs[] = {x, plim_arg_tensor(c, W8_BIAS)};
    plim_gnode *n = plim_m_node(m, &linear8bit_fn, 2, inputs);
    if (n) {
        n->i[0] = out;
        n->i[1] = in;
    }
    if (n && plim_m_wants(m, n, IN_INPUT))
        plim_m_hold(m, n, x);
    bool mode = plim_m_grad_mode(m);
    plim_m_set_grad_mode(m, false);
    plim_t y = matmul_8bit(m, x, out, in);
    plim_m_set_grad_mode(m, mode);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
