/* rules_norm.c -- batch, instance, layer and group normalisation.
 * src: docs/sources/operators.md 6; aten/src/ATen/native/cudnn/BatchNorm.cpp,
 * cuda/Normalization.cu, cuda/layer_norm_kernel.cu, cuda/group_norm_kernel.cu. */
#include "op/rules.h"

/* Statistics are accumulated in fp32 for the 16-bit types. */
static plim_dtype norm_acc(plim_dtype t) { return t == PLIM_F64 ? PLIM_F64 : PLIM_F32; }

static plim_t norm_vector(plim_machine *m, plim_dtype t, int64_t n)
{
    return plim_m_empty_contig(m, t, 1, &n);
}

/* ---- batch_norm ------------------------------------------------------------------ */

/* PyTorch's own kernels over a contiguous [N, C] or channels_last tensor split the rows into
 * blocks: if there are several, each leaves its partial results in a buffer, with a counter
 * for each column of blocks.  `parts`: numbers per block and channel.
 * src: Normalization.cuh flexible_launch_configs */
typedef struct batch_norm_stage {
    plim_t staging, counters;
} batch_norm_stage;

static bool batch_norm_by_rows(const plim_meta *x)
{
    bool last = x->rank > 2 && !plim_is_contiguous(x) && plim_is_channels_last(x);
    return last || (plim_is_contiguous(x) && x->stride[1] == 1);
}
static int64_t last_power(int64_t n, int64_t most)
{
    int64_t p = 1;
    while (p * 2 <= PLIM_MIN(n, most))
        p *= 2;
    return p;
}
static batch_norm_stage batch_norm_staging(plim_machine *m, const plim_meta *x, int64_t parts)
{
    enum { TILE = 32, PER_THREAD = 16, BLOCK = 512, BLOCKS = 128, FEW = 8 };
    uint64_t numel = 0;
    int64_t channels = x->dim[1];
    if (!batch_norm_by_rows(x) || !plim_meta_numel(x, &numel) || !numel)
        return (batch_norm_stage){0, 0};
    int64_t rows = (int64_t)(numel / (uint64_t)channels);
    int64_t w = last_power(channels, TILE),
            h = last_power((rows + PER_THREAD - 1) / PER_THREAD, BLOCK / w);
    if (w * h != BLOCK)
        w = last_power(channels, BLOCK / h);
    int64_t across = (channels + w - 1) / w,
            down = PLIM_MIN((rows + h * PER_THREAD - 1) / (h * PER_THREAD), BLOCKS);
    if (down < FEW)
        return (batch_norm_stage){0, 0};
    return (batch_norm_stage){
        plim_m_scratch_of(m, norm_acc(x->dtype), 3, (int64_t[]){parts, channels, down}),
        plim_m_scratch_of(m, PLIM_I32, 1, &across)};
}
static void batch_norm_unstage(plim_machine *m, batch_norm_stage s)
{
    plim_m_drop(m, s.counters);
    plim_m_drop(m, s.staging);
}

/* Which of the two: cuDNN needs three dims or more, no bf16, and both a weight and a bias.
 * src: Normalization.cpp _select_batch_norm_backend */
static bool batch_norm_by_cudnn(const plim_meta *x, const plim_meta *w, plim_t b)
{
    enum { MOST = 65535 };
    return x->rank > 2 && b && x->dtype != PLIM_BF16 && w->dtype != PLIM_BF16 &&
           (x->dtype != PLIM_F16 || w->dtype == PLIM_F32) && x->dim[0] <= MOST;
}

/* NCHW: one block for each channel, which reads its part twice.
 * src: cuda/Normalization.cuh batch_norm_collect_statistics_kernel */
static void batch_norm_blocks(plim_machine *m, const plim_meta *x, bool training)
{
    bool rows = batch_norm_by_rows(x);
    uint64_t channels = rows || !training ? 0 : (uint64_t)PLIM_MAX(x->dim[1], 0);
    plim_m_blocks(m, training ? PLIM_WORK_batch_norm : PLIM_WORK_batch_norm_eval, channels);
    plim_m_form(m, rows ? PLIM_FORM_LAST : PLIM_FORM_PLAIN);
}

/* y, and the statistics; cuDNN saves none in eval. */
static void batch_norm_kernel(plim_machine *m, plim_t x, bool cudnn, bool training,
                              plim_t out[3])
{
    const plim_meta xm = *plim_m_meta(m, x);
    if (cudnn)
        plim_m_calls(m, PLIM_CUDNN);
    batch_norm_blocks(m, &xm, training);
    out[0] = plim_m_empty_like(m, x);
    for (int i = 1; i <= 2; i++)
        out[i] = norm_vector(m, norm_acc(xm.dtype), training || !cudnn ? xm.dim[1] : 0);
    if (!cudnn && training)
        batch_norm_unstage(m, batch_norm_staging(m, &xm, 4));
}

static void batch_norm_vectors(plim_machine *m, plim_t x, plim_t w, const bool want[3],
                               plim_t dx[3])
{
    for (int i = 1; i <= 2; i++)
        if (want[i])
            dx[i] = norm_vector(m, plim_m_meta(m, w)->dtype, plim_m_meta(m, x)->dim[1]);
}

/* One kernel; two if split by rows: first the sums of dy and of x dy; two of them are dw and
 * db.  src: Normalization.cu batch_norm_backward_cuda, Normalization.cuh */
static void native_batch_norm_backward(plim_machine *m, plim_t x, plim_t w, const bool want[3],
                                       plim_t dx[3])
{
    const plim_meta xm = *plim_m_meta(m, x);
    plim_t sum[2] = {0};
    bool by_rows = batch_norm_by_rows(&xm);
    batch_norm_blocks(m, &xm, true);
    if (want[0] && !by_rows)
        dx[0] = plim_m_empty_like(m, x);
    for (int i = 0; want[0] && by_rows && i < 2; i++)
        sum[i] = norm_vector(m, norm_acc(xm.dtype), xm.dim[1]);
    batch_norm_vectors(m, x, w, want, dx);
    if (by_rows)
        batch_norm_unstage(m, batch_norm_staging(m, &xm, 2));
    if (want[0] && by_rows)
        dx[0] = plim_m_empty_like(m, x);
    plim_m_drop(m, sum[1]);
    plim_m_drop(m, sum[0]);
}

static void cudnn_batch_norm_backward(plim_machine *m, plim_t g, plim_t x, plim_t w,
                                      const bool want[3], plim_t dx[3])
{
    const plim_meta *xm = plim_m_meta(m, x), *gm = plim_m_meta(m, g);
    bool fits =
        plim_suggests_channels_last(xm) ? plim_is_channels_last(gm) : plim_is_contiguous(gm);
    plim_t gc = fits ? plim_m_ref(m, g) : plim_m_empty_like(m, x);
    plim_m_calls(m, PLIM_CUDNN);
    batch_norm_blocks(m, xm, true);
    if (want[0])
        dx[0] = plim_m_empty_like(m, x);
    batch_norm_vectors(m, x, w, want, dx);
    plim_m_drop(m, gc);
}

void plim_kernel_batch_norm(plim_call *c)
{
    batch_norm_kernel(c->m, plim_arg_tensor(c, 0), false, plim_arg_int(c, 1, 0), c->out);
    c->n_out = 3;
}
void plim_kernel_cudnn_batch_norm(plim_call *c)
{
    batch_norm_kernel(c->m, plim_arg_tensor(c, 0), true, plim_arg_int(c, 1, 0), c->out);
    c->out[3] = norm_vector(c->m, PLIM_U8, 0); /* the reserve: unknown, counted as none */
    c->n_out = 4;
}
static plim_t batch_norm_backward_args(plim_call *c, bool want[3])
{
    plim_t w = plim_arg_tensor(c, 2);
    plim_arg_mask(c, 3, want, 3);
    want[1] = want[1] && w;
    want[2] = want[2] && w;
    c->n_out = 3;
    return w;
}
void plim_kernel_batch_norm_backward(plim_call *c)
{
    bool want[3];
    plim_t w = batch_norm_backward_args(c, want);
    native_batch_norm_backward(c->m, plim_arg_tensor(c, 1), w, want, c->out);
}
void plim_kernel_cudnn_batch_norm_backward(plim_call *c)
{
    bool want[3];
    plim_t w = batch_norm_backward_args(c, want);
    cudnn_batch_norm_backward(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), w, want,
                              c->out);
}

/* saved: x, weight, running_mean, running_var, save_mean, save_var */
static void native_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    bool want[3];
    (void)g;
    plim_m_wanted(m, n, want, 3);
    native_batch_norm_backward(m, plim_m_saved(m, n, 0), plim_m_saved(m, n, 1), want, dx);
}
static void cudnn_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    bool want[3];
    plim_m_wanted(m, n, want, 3);
    cudnn_batch_norm_backward(m, g[0], plim_m_saved(m, n, 0), plim_m_saved(m, n, 1), want, dx);
}
static const plim_grad_fn native_norm_fn = {"NativeBatchNormBackward0", native_norm_backward};
static const plim_grad_fn cudnn_norm_fn = {"CudnnBatchNormBackward0", cudnn_norm_backward};

static plim_t batch_norm(plim_machine *m, plim_t x, plim_t w, plim_t b, plim_t rm, plim_t rv,
                         bool training)
{
    plim_t in[3] = {x, w, b}, out[3];
    if (plim_m_meta(m, x)->rank < 2) {
        plim_m_fail(m, PLIM_ESHAPE, "batch_norm has no rule for a tensor of rank %d",
                    (int)plim_m_meta(m, x)->rank);
        return 0;
    }
    bool cudnn = w && batch_norm_by_cudnn(plim_m_meta(m, x), plim_m_meta(m, w), b);
    plim_gnode *n = plim_m_node(m, cudnn ? &cudnn_norm_fn : &native_norm_fn, 3, in);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, w);
    plim_m_save(m, n, 2, rm);
    plim_m_save(m, n, 3, rv);
    batch_norm_kernel(m, x, cudnn, training, out);
    for (uint32_t i = 1; i <= 2; i++) {
        plim_m_save(m, n, 3 + i, out[i]);
        plim_m_drop(m, out[i]);
    }
    plim_m_output(m, n, 0, out[0]);
    return out[0];
}

void plim_run_batch_norm(plim_call *c)
{
    plim_ret(c, batch_norm(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                           plim_arg_tensor(c, 2), plim_arg_tensor(c, 3), plim_arg_tensor(c, 4),
                           plim_arg_int(c, 5, 0) && !plim_m_world(c->m)->eval));
}

/* instance_norm: batch_norm over a view [1, N*C, ...], with weight and bias repeated to N*C.
 * src: Normalization.cpp instance_norm */
static void repeat_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    dx[0] = plim_m_empty(m, &n->in_meta[0]);
}
static const plim_grad_fn repeat_fn = {"RepeatBackward0", repeat_backward};

static plim_t repeat_vector(plim_machine *m, plim_t v, int64_t times)
{
    if (!v)
        return 0;
    const plim_meta *vm = plim_m_meta(m, v);
    plim_gnode *n = plim_m_node(m, &repeat_fn, 1, &v);
    plim_t y = norm_vector(m, vm->dtype, plim_dim_mul(vm->dim[0], times));
    plim_m_output(m, n, 0, y);
    return y;
}

void plim_run_instance_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta xm = *plim_m_meta(m, x);
    if (xm.rank < 3 || xm.dim[0] > 1 << 24 || xm.dim[1] > 1 << 24) {
        plim_m_fail(m, PLIM_ESHAPE, "instance_norm has no rule for a tensor of rank %d",
                    (int)xm.rank);
        return;
    }
    plim_t w = repeat_vector(m, plim_arg_tensor(c, 1), xm.dim[0]);
    plim_t b = repeat_vector(m, plim_arg_tensor(c, 2), xm.dim[0]);
    plim_t rm = repeat_vector(m, plim_arg_tensor(c, 3), xm.dim[0]);
    plim_t rv = repeat_vector(m, plim_arg_tensor(c, 4), xm.dim[0]);
    int64_t dim[PLIM_MAX_RANK];
    memcpy(dim, xm.dim, sizeof dim);
    dim[1] *= dim[0];
    dim[0] = 1;
    plim_t xc = plim_at_contiguous(m, x), flat = plim_at_view(m, xc, xm.rank, dim);
    plim_t y = batch_norm(m, flat, w, b, rm, rv, plim_arg_int(c, 5, 1));
    plim_ret(c, plim_at_view(m, y, xm.rank, xm.dim));
    plim_m_drop(m, y);
    plim_m_drop(m, flat);
    plim_m_drop(m, xc);
    plim_m_drop(m, rv);
    plim_m_drop(m, rm);
    plim_m_drop(m, b);
    plim_m_drop(m, w);
}

/* ---- layer_norm ---------------------------------------------------------------------- */

/* Partial sums for each of dgamma and dbeta when rows are many and columns few; their sums
 * replace the results allocated before.
 * src: cuda/layer_norm_kernel.cu after 2.8; docs/sources/operators.md 6 */
static void layer_norm_partials(plim_machine *m, int64_t rows, int64_t cols, plim_t dx[3])
{
    const plim_world *world = plim_m_world(m);
    int64_t blocks = (cols + 31) / 32;
    if (world->torch < PLIM_SINCE_LAYER_NORM_TWO_PASS || rows <= 65536 || cols < 1 ||
        cols / 32 >= plim_m_sms(m, NULL) / 2)
        return;
    int64_t parts = PLIM_MIN((rows + 31) / 32, 32768 / blocks);
    plim_meta part = plim_meta_make(plim_m_meta(m, dx[1])->dtype, 2, (int64_t[]){parts, cols});
    uint64_t bytes = (uint64_t)parts * (uint64_t)cols * plim_dtype_bytes(part.dtype);
    plim_t partial[3] = {0};
    for (int i = 1; i <= 2; i++)
        partial[i] = dx[i] ? plim_m_scratch_by_sms(m, bytes) : 0;
    for (int i = 1; i <= 2; i++) {
        plim_t sum = dx[i] ? plim_m_empty_like(m, dx[i]) : 0;
        if (sum)
            plim_reduce_scratch(m, &part, 1);
        plim_m_drop(m, dx[i]);
        dx[i] = sum;
    }
    plim_m_drop(m, partial[2]);
    plim_m_drop(m, partial[1]);
}

/* y, mean, rstd over the last k dims; one of the two for rms_norm.  The kernel makes its own
 * contiguous copy of x, in forward and in backward, and of g. */
static void layer_norm_kernel(plim_machine *m, plim_t x, int32_t k, plim_t out[3],
                              int statistics)
{
    const plim_meta xm = *plim_m_meta(m, x);
    plim_meta one = xm;
    for (int32_t d = 1; d <= k; d++)
        plim_set_dim(&one, -d, 1);
    uint64_t rows = 0;
    if (plim_meta_numel(&one, &rows)) /* one each */
        plim_m_blocks(m, PLIM_WORK_norm, rows);
    plim_t xc = plim_contiguous_tmp(m, x);
    out[0] = plim_m_empty_contig(m, xm.dtype, xm.rank, xm.dim);
    for (int i = 1; i <= statistics; i++)
        out[i] = plim_m_empty_contig(m, norm_acc(xm.dtype), one.rank, one.dim);
    plim_m_drop(m, xc);
}

static void layer_norm_backward_kernel(plim_machine *m, plim_t g, plim_t x, int32_t k,
                                       plim_t w, const bool want[3], plim_t dx[3])
{
    const plim_meta *xm = plim_m_meta(m, x);
    int64_t rows = 1, cols = 1;
    for (int32_t i = 0; i < xm->rank; i++)
        if (i < xm->rank - k)
            rows = plim_dim_mul(rows, xm->dim[i]);
        else
            cols = plim_dim_mul(cols, xm->dim[i]);
    plim_m_blocks(m, PLIM_WORK_norm, (uint64_t)PLIM_MAX(rows, 0));
    plim_t xc = plim_contiguous_tmp(m, x);
    if (want[0])
        dx[0] = plim_m_empty_like(m, xc);
    for (int i = 1; i <= 2; i++)
        if (want[i]) /* weight and bias have one shape */
            dx[i] = plim_m_empty_contig(m, plim_m_meta(m, w)->dtype, k,
                                        &xm->dim[PLIM_MAX(xm->rank - k, 0)]);
    plim_t gc = plim_contiguous_tmp(m, g);
    if (dx[1])
        layer_norm_partials(m, rows, cols, dx);
    plim_m_drop(m, gc);
    plim_m_drop(m, xc);
}

/* Number of dims that are normalised, which must be the last of tensor x_slot; none: they are not, and the
 * machine has failed. */
static int32_t norm_dims(plim_call *c, uint32_t x_slot, uint32_t slot)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, x_slot));
    int64_t shape[PLIM_MAX_RANK];
    int32_t k = (int32_t)plim_arg_ints(c, slot, shape, PLIM_MAX_RANK, 1);
    for (int32_t i = 0; i < k; i++)
        if (k > x->rank || shape[i] != x->dim[x->rank - k + i]) {
            char buf[96];
            plim_m_fail(c->m, PLIM_ESHAPE, "%s over %d dims of %s: sizes differ",
                        c->node ? c->node->op->name : "a norm", (int)k,
                        plim_meta_str(x, buf, sizeof buf));
            return 0;
        }
    return k;
}

void plim_kernel_layer_norm(plim_call *c)
{
    layer_norm_kernel(c->m, plim_arg_tensor(c, 0), norm_dims(c, 0, 1), c->out, 2);
    c->n_out = 3;
}
void plim_kernel_layer_norm_backward(plim_call *c)
{
    plim_t w = plim_arg_tensor(c, 3);
    bool want[3];
    plim_arg_mask(c, 5, want, 3);
    want[1] = want[1] && w;
    want[2] = want[2] && plim_arg_tensor(c, 4);
    layer_norm_backward_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                               norm_dims(c, 1, 2), w, want, c->out);
    c->n_out = 3;
}

/* The same kernels without a mean and without a bias. */
void plim_kernel_rms_norm(plim_call *c)
{
    plim_t out[3];
    layer_norm_kernel(c->m, plim_arg_tensor(c, 0), norm_dims(c, 0, 1), out, 1);
    c->out[0] = out[0];
    c->out[1] = out[1];
    c->n_out = 2;
}
void plim_kernel_rms_norm_backward(plim_call *c)
{
    plim_t w = plim_arg_tensor(c, 3), dx[3] = {0};
    bool want[3] = {0};
    plim_arg_mask(c, 4, want, 2);
    want[1] = want[1] && w;
    layer_norm_backward_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                               norm_dims(c, 1, 2), w, want, dx);
    c->out[0] = dx[0];
    c->out[1] = dx[1];
    c->n_out = 2;
}

enum { NORM_DIMS, NORM_GROUPS }; /* in gnode.i */

/* saved: x, weight, bias, mean, rstd */
static void layer_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    bool want[3];
    plim_m_wanted(m, n, want, 3);
    layer_norm_backward_kernel(m, g[0], plim_m_saved(m, n, 0), (int32_t)n->i[NORM_DIMS],
                               plim_m_saved(m, n, 1), want, dx);
}
static const plim_grad_fn layer_norm_fn = {"NativeLayerNormBackward0", layer_norm_backward};

void plim_run_layer_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 2), b = plim_arg_tensor(c, 3),
           in[3] = {x, w, b}, out[3];
    int32_t k = norm_dims(c, 0, 1);
    if (plim_m_bad(m))
        return;
    plim_gnode *n = plim_m_node(m, &layer_norm_fn, 3, in);
    for (uint32_t i = 0; i < 3; i++)
        plim_m_save(m, n, i, in[i]);
    layer_norm_kernel(m, x, k, out, 2);
    for (uint32_t i = 1; i <= 2; i++) {
        plim_m_save(m, n, 2 + i, out[i]);
        plim_m_drop(m, out[i]);
    }
    if (n)
        n->i[NORM_DIMS] = k;
    plim_m_output(m, n, 0, out[0]);
    plim_ret(c, out[0]);
}

/* ---- rms_norm ------------------------------------------------------------------------ */

/* casts y to type t and drops y */
static plim_t rms_norm_cast(plim_machine *m, plim_t y, plim_dtype t)
{
    plim_t out = plim_at_to(m, y, t);
    plim_m_drop(m, y);
    return out;
}

/* x * rsqrt(mean(x^2) + eps) * weight: in early versions one expression in x's type; later in
 * fp32 and in steps, first without the weight, then with it.
 * src: layer_norm.cpp of each; tests/golden/cuda */
static plim_t rms_norm_composite(plim_machine *m, plim_t x0, int32_t k, plim_t w)
{
    const plim_dtype t = plim_m_meta(m, x0)->dtype;
    const int torch = plim_m_world(m)->torch;
    const int32_t rank = plim_m_meta(m, x0)->rank;
    const uint32_t dims = ((1u << k) - 1) << (rank - k);
    plim_t x = plim_at_to(m, x0, torch >= PLIM_SINCE_RMS_NORM_FP32 ? norm_acc(t) : t);
    plim_t square = plim_at_square(m, x), mean = plim_at_mean(m, square, dims),
           eps = plim_m_wrapped(m, true), sum = plim_at_add(m, mean, eps, true),
           rsqrt = plim_at_rsqrt(m, sum);
    plim_t y = torch < PLIM_SINCE_RMS_NORM_FP32 ? plim_at_mul(m, x, rsqrt, false) : 0;
    plim_t expression[] = {sum, eps, mean, square};
    for (size_t i = 0; i < PLIM_COUNT(expression); i++)
        plim_m_drop(m, expression[i]);
    y = y ? y : plim_at_mul(m, x, rsqrt, false);
    if (torch < PLIM_SINCE_RMS_NORM_FP32_WEIGHT)
        y = rms_norm_cast(m, y, t);
    if (torch < PLIM_SINCE_RMS_NORM_FP32)
        plim_m_drop(m, rsqrt);
    if (w) {
        plim_t scaled = plim_at_mul(m, y, w, false);
        plim_m_drop(m, y);
        y = scaled;
    }
    if (torch >= PLIM_SINCE_RMS_NORM_FP32_WEIGHT)
        y = rms_norm_cast(m, y, t);
    if (torch >= PLIM_SINCE_RMS_NORM_FP32)
        plim_m_drop(m, rsqrt);
    plim_m_drop(m, x);
    return y;
}

static void rms_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t made[3] = {0};
    bool want[3] = {0};
    plim_m_wanted(m, n, want, 2);
    layer_norm_backward_kernel(m, g[0], plim_m_saved(m, n, 0), (int32_t)n->i[NORM_DIMS],
                               plim_m_saved(m, n, 1), want, made);
    dx[0] = made[0];
    dx[1] = made[1];
}
static const plim_grad_fn rms_norm_fn = {"FusedRmsNormBackward0", rms_norm_backward};

/* One kernel if the version has it, the weight has x's type and x is not channels_last. */
void plim_run_rms_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 2), in[2] = {x, w}, out[3];
    const plim_meta *xm = plim_m_meta(m, x);
    const int torch = plim_m_world(m)->torch;
    int32_t k = norm_dims(c, 0, 1);
    if (plim_m_bad(m))
        return;
    if (torch < PLIM_SINCE_RMS_NORM) {
        plim_m_fail(m, PLIM_EUNSUPPORTED, "rms_norm came with PyTorch %d.%d; this is %d.%d",
                    PLIM_SINCE_RMS_NORM / 100, PLIM_SINCE_RMS_NORM % 100, torch / 100,
                    torch % 100);
        return;
    }
    if (torch < PLIM_SINCE_RMS_NORM_FUSED || (w && plim_m_meta(m, w)->dtype != xm->dtype) ||
        plim_suggests_channels_last(xm)) {
        plim_ret(c, rms_norm_composite(m, x, k, w));
        return;
    }
    plim_gnode *n = plim_m_node(m, &rms_norm_fn, 2, in);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, w);
    layer_norm_kernel(m, x, k, out, 1);
    plim_m_save(m, n, 2, out[1]);
    plim_m_drop(m, out[1]);
    if (n)
        n->i[NORM_DIMS] = k;
    plim_m_output(m, n, 0, out[0]);
    plim_ret(c, out[0]);
}

/* ---- group_norm ------------------------------------------------------------------------ */

/* One pixel per channel: the 1-d kernels need neither a and b nor ds and db. */
static bool group_norm_1d(const plim_meta *x)
{
    for (int32_t i = 2; i < x->rank; i++)
        if (x->dim[i] != 1)
            return false;
    return true;
}

/* src: tests/golden/cuda, group_norm (2.15); group_norm_kernel.cu of 2.9 has neither
 * channels_last nor statistics in fp32 */
static bool group_norm_channels_last(const plim_machine *m, const plim_meta *x)
{
    return plim_m_world(m)->torch >= PLIM_SINCE_GROUP_NORM_CHANNELS_LAST &&
           plim_suggests_channels_last(x) && plim_is_channels_last(x);
}

/* y, mean, rstd of a contiguous x. */
static void group_norm_kernel(plim_machine *m, plim_t x, int64_t groups, bool affine,
                              plim_t out[3])
{
    const plim_meta xm = *plim_m_meta(m, x);
    plim_dtype acc = norm_acc(xm.dtype);
    int64_t nc[2] = {xm.dim[0], xm.dim[1]}, ng[2] = {xm.dim[0], groups};
    plim_t own[4] = {0};
    out[0] = plim_m_empty_like(m, x);
    for (int i = 1; i <= 2; i++)
        out[i] = plim_m_empty_contig(m, xm.dtype, 2, ng);
    if (acc != xm.dtype && plim_m_world(m)->torch >= PLIM_SINCE_GROUP_NORM_FP32)
        for (int i = 0; i < 2; i++)
            own[i] = plim_m_scratch_of(m, acc, 2, ng);
    if (affine && !group_norm_1d(&xm)) /* y = a x + b */
        for (int i = 2; i < 4; i++)
            own[i] = plim_m_scratch_of(m, acc, 2, nc);
    for (int i = 3; i >= 0; i--)
        plim_m_drop(m, own[i]);
}

static plim_t group_norm_laid_out(plim_machine *m, plim_t t, const plim_meta *x)
{
    if (!group_norm_channels_last(m, x))
        return plim_contiguous_tmp(m, t);
    return plim_is_channels_last(plim_m_meta(m, t)) ? plim_m_ref(m, t) : plim_m_empty(m, x);
}

/* ds, db [N,C] and c2, c3 [N,G], c1 [N,C] are temporaries of the kernel. */
static void group_norm_backward_kernel(plim_machine *m, plim_t g, plim_t x, plim_t w,
                                       int64_t groups, const bool want[3], plim_t dx[3])
{
    const plim_meta xm = *plim_m_meta(m, x);
    plim_dtype acc = norm_acc(xm.dtype);
    plim_t gc = group_norm_laid_out(m, g, &xm), xc = group_norm_laid_out(m, x, &xm);
    int64_t nc[2] = {xm.dim[0], xm.dim[1]}, ng[2] = {xm.dim[0], groups};
    if (want[0])
        dx[0] = plim_m_empty_like(m, xc);
    for (int i = 1; i <= 2; i++)
        if (want[i])
            dx[i] = norm_vector(m, plim_m_meta(m, w)->dtype, xm.dim[1]);
    plim_t tmp[5] = {0};
    bool flat = group_norm_1d(&xm);
    if (!flat) {
        tmp[0] = plim_m_scratch_of(m, acc, 2, nc);
        tmp[1] = plim_m_scratch_of(m, acc, 2, nc);
    }
    if (dx[0]) {
        bool own_c1 = !flat && w && !group_norm_channels_last(m, &xm);
        tmp[2] = plim_m_scratch_of(m, acc, 2, ng);
        tmp[3] = plim_m_scratch_of(m, acc, 2, ng);
        tmp[4] = own_c1 ? plim_m_scratch_of(m, acc, 2, nc) : 0;
    }
    for (int i = 4; i >= 0; i--)
        plim_m_drop(m, tmp[i]);
    plim_m_drop(m, xc);
    plim_m_drop(m, gc);
}

void plim_kernel_group_norm(plim_call *c)
{
    bool affine = plim_arg_given(c, 1) || plim_arg_given(c, 2);
    group_norm_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_int(c, 3, 1), affine, c->out);
    c->n_out = 3;
}
void plim_kernel_group_norm_backward(plim_call *c)
{
    plim_t w = plim_arg_tensor(c, 2);
    bool want[3];
    plim_arg_mask(c, 4, want, 3);
    want[1] = want[1] && w;
    want[2] = want[2] && w;
    group_norm_backward_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), w,
                               plim_arg_int(c, 3, 1), want, c->out);
    c->n_out = 3;
}

/* saved: x, weight, mean, rstd */
static void group_norm_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    bool want[3];
    plim_m_wanted(m, n, want, 3);
    group_norm_backward_kernel(m, g[0], plim_m_saved(m, n, 0), plim_m_saved(m, n, 1),
                               n->i[NORM_GROUPS], want, dx);
}
static const plim_grad_fn group_norm_fn = {"NativeGroupNormBackward0", group_norm_backward};

void plim_run_group_norm(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 2), b = plim_arg_tensor(c, 3),
           out[3];
    const plim_meta *xm = plim_m_meta(m, x);
    int64_t groups = plim_arg_int(c, 1, 1);
    if (xm->rank < 2 || groups < 1 || xm->dim[1] % groups) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "%" PRId64 " channels cannot be divided into %" PRId64 " groups",
                    xm->rank < 2 ? 0 : xm->dim[1], groups);
        return;
    }
    bool as_is = group_norm_channels_last(m, xm); /* else forces NCHW, and records it */
    plim_t xc = as_is ? plim_m_ref(m, x) : plim_at_contiguous(m, x);
    plim_t in[3] = {xc, w, b};
    plim_gnode *n = plim_m_node(m, &group_norm_fn, 3, in);
    plim_m_save(m, n, 0, xc);
    plim_m_save(m, n, 1, w);
    group_norm_kernel(m, xc, groups, w || b, out);
    for (uint32_t i = 1; i <= 2; i++) {
        plim_m_save(m, n, 1 + i, out[i]);
        plim_m_drop(m, out[i]);
    }
    if (n)
        n->i[NORM_GROUPS] = groups;
    plim_m_output(m, n, 0, out[0]);
    plim_m_drop(m, xc);
    plim_ret(c, out[0]);
}
