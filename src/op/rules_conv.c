/* rules_conv.c -- convolution and its transpose, as cuDNN runs them.
 * src: docs/sources/operators.md 5; aten/src/ATen/native/Convolution.cpp,
 * cudnn/ConvShared.cpp. */
#include <stdio.h>

#include "op/cudnn.h"
#include "op/rules.h"

typedef struct conv_geometry {
    int32_t spatial; /* 1, 2 or 3 */
    int64_t stride[3], pad[3], dilation[3], out_pad[3], groups;
    bool transposed;
} conv_geometry;

enum { CONV_NATIVE, CONV_TRANSPOSED }; /* in gnode.i: not run by cuDNN; transposed */

/* ---- geometry --------------------------------------------------------------- */

static bool conv_rank(plim_call *c, conv_geometry *q)
{
    q->spatial = plim_m_meta(c->m, plim_arg_tensor(c, 1))->rank - 2;
    if (q->spatial >= 1 && q->spatial <= 3)
        return true;
    plim_m_fail(c->m, PLIM_ESHAPE, "a convolution weight has rank %d, outside 3..5",
                (int)q->spatial + 2);
    return false;
}

static void conv_spatial_args(plim_call *c, uint32_t slot, int32_t n, int64_t *out,
                              int64_t min, const char *what)
{
    if (plim_arg_ints(c, slot, out, 3, (uint32_t)n) != (uint32_t)n) {
        plim_m_fail(c->m, PLIM_ESHAPE, "%s needs %d values", what, (int)n);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        if (out[i] < min || out[i] > 1 << 20)
            plim_m_fail(c->m, PLIM_ESHAPE, "%s %" PRId64 " is outside %" PRId64 "..1048576",
                        what, out[i], min);
}

static int64_t conv_out_dim(const conv_geometry *q, int32_t i, int64_t in, int64_t k)
{
    int64_t window = q->dilation[i] * (k - 1) + 1;
    if (q->transposed)
        return (in - 1) * q->stride[i] - 2 * q->pad[i] + window + q->out_pad[i];
    return in + 2 * q->pad[i] < window ? 0 : (in + 2 * q->pad[i] - window) / q->stride[i] + 1;
}

static bool conv_fail(plim_machine *m, plim_status st, const plim_meta *x, const plim_meta *w,
                      const char *why)
{
    char sx[96], sw[96];
    plim_m_fail(m, st, "convolution of %s with %s: %s", plim_meta_str(x, sx, sizeof sx),
                plim_meta_str(w, sw, sizeof sw), why);
    return false;
}

/* Size of the output; fails the machine if the shapes do not fit. */
static bool conv_out_meta(plim_machine *m, const conv_geometry *q, const plim_meta *x,
                          const plim_meta *w, plim_meta *out)
{
    char why[160];
    int32_t rank = q->spatial + 2;
    if (x->rank != rank || w->rank != rank) {
        snprintf(why, sizeof why, "the rank must be %d", (int)rank);
        return conv_fail(m, PLIM_ESHAPE, x, w, why);
    }
    for (int32_t i = 0; i < rank; i++)
        if (x->dim[i] > (int64_t)1 << 40 || w->dim[i] > (int64_t)1 << 40)
            return conv_fail(m, PLIM_ERANGE, x, w, "a dim is over the limit of 2^40");
    int64_t want = q->transposed ? w->dim[0] : plim_dim_mul(w->dim[1], q->groups);
    if (x->dim[1] != want || q->groups < 1 || w->dim[0] % q->groups) {
        snprintf(why, sizeof why,
                 "the input has %" PRId64 " channels, the weight expects %" PRId64 " (%" PRId64
                 " groups)",
                 x->dim[1], want, q->groups);
        return conv_fail(m, PLIM_ESHAPE, x, w, why);
    }
    *out = (plim_meta){.dtype = x->dtype, .rank = rank};
    out->dim[0] = x->dim[0];
    out->dim[1] = q->transposed ? plim_dim_mul(w->dim[1], q->groups) : w->dim[0];
    for (int32_t i = 0; i < q->spatial; i++) {
        out->dim[2 + i] = conv_out_dim(q, i, x->dim[2 + i], w->dim[2 + i]);
        if (out->dim[2 + i] < 1)
            return conv_fail(m, PLIM_ESHAPE, x, w, "the output would be empty");
    }
    return true;
}

/* ---- layout and workspace ----------------------------------------------------- */

static bool conv_channels_last(const plim_meta *x, const plim_meta *w)
{
    return x->dtype != PLIM_F64 &&
           (plim_suggests_channels_last(x) || plim_suggests_channels_last(w));
}

static bool conv_in_format(const plim_meta *t, bool channels_last)
{
    return channels_last ? plim_is_channels_last(t) : plim_is_contiguous(t);
}

/* t itself, or a temporary copy in the memory format of the kernel: owned. */
static plim_t conv_formatted(plim_machine *m, plim_t t, bool channels_last)
{
    plim_meta want = *plim_m_meta(m, t);
    if (conv_in_format(&want, channels_last))
        return plim_m_ref(m, t);
    if (channels_last)
        plim_meta_channels_last(&want);
    else
        plim_meta_contiguous(&want);
    return plim_m_empty(m, &want);
}

/* What PyTorch keeps a plan for; the size of the output stands for stride and padding.
 * src: cudnn/Conv_v8.cpp, CacheKey and run_single_conv, which empties the cache after a search */
static void conv_search(plim_machine *m, const plim_cudnn_conv *c)
{
    const plim_meta *of[] = {&c->x, &c->w, &c->y};
    int64_t key[3 + 3 * PLIM_MAX_RANK] = {c->pass, c->channels_last, c->x.dtype};
    uint32_t n = 3;
    for (size_t i = 0; i < PLIM_COUNT(of); i++)
        for (int32_t d = 0; d < of[i]->rank; d++)
            key[n++] = of[i]->dim[d];
    plim_m_search(m, (plim_str){(const char *)key, n * sizeof *key});
}

static void conv_workspace(plim_machine *m, plim_cudnn_pass pass, plim_t x, plim_t w,
                           const plim_meta *y, bool channels_last)
{
    const plim_cudnn_conv conv = {.pass = pass,
                                  .x = *plim_m_meta(m, x),
                                  .w = *plim_m_meta(m, w),
                                  .y = *y,
                                  .channels_last = channels_last};
    plim_m_calls(m, PLIM_CUDNN);
    if (plim_m_world(m)->lib.benchmark)
        conv_search(m, &conv);
    plim_cudnn_bytes n = plim_cudnn_workspace(plim_m_world(m), &conv);
    plim_m_drop(m, plim_m_scratch_range(m, n.low, n.usual, n.high));
}

/* The forward pass and each gradient multiply as often: every element on the side of the
 * weight's first dim, with as many weights as belong to one channel of it. */
static void conv_product(plim_machine *m, plim_t x, plim_t wt, const plim_meta *y,
                         bool transposed, bool channels_last)
{
    enum { THIN = 4 };
    const plim_meta *w = plim_m_meta(m, wt);
    const plim_meta *side = transposed ? plim_m_meta(m, x) : y;
    const plim_meta *other = transposed ? y : plim_m_meta(m, x);
    uint64_t n = 0, weights = 0;
    int64_t window = 1;
    for (int32_t i = 2; i < w->rank; i++)
        window *= w->dim[i];
    if (w->dim[0] < 1 || !plim_meta_numel(side, &n) || !plim_meta_numel(w, &weights))
        return;
    plim_m_product(m,
                   other->dim[1] > w->dim[1]
                       ? (w->dim[1] == 1 ? PLIM_WORK_conv_depthwise : PLIM_WORK_conv_grouped)
                   : window == 1       ? PLIM_WORK_conv_1x1
                   : w->dim[1] <= THIN ? PLIM_WORK_conv_thin
                                       : PLIM_WORK_conv,
                   plim_sat_mul(n, weights / (uint64_t)w->dim[0]), y->dtype);
    plim_m_form(m, channels_last ? PLIM_FORM_LAST : PLIM_FORM_PLAIN);
    if (plim_m_world(m)->lib.no_tf32)
        plim_m_full(m);
}

/* A pass over y, or its gradient. */
static void conv_bias(plim_machine *m, const plim_meta *y, uint64_t times)
{
    uint64_t bytes = 0;
    if (plim_meta_bytes(y, &bytes))
        plim_m_bias(m, plim_sat_mul(bytes, times));
}

/* Depthwise NCHW convolutions run PyTorch's own kernel: no workspace.
 * src: Convolution.cpp use_cudnn_depthwise: cuDNN only for channels_last, or
 * fp16 in a few shapes. */
static bool conv_is_native_depthwise(const conv_geometry *q, const plim_meta *x,
                                     const plim_meta *w, bool channels_last)
{
    return !q->transposed && q->groups > 1 && q->groups == x->dim[1] &&
           w->dim[0] % x->dim[1] == 0 && !channels_last && x->dtype != PLIM_F16;
}

/* ---- kernels ---------------------------------------------------------------------- */

static void conv_format(plim_meta *t, bool channels_last)
{
    if (channels_last)
        plim_meta_channels_last(t);
    else
        plim_meta_contiguous(t);
}

/* y, whose size is given. */
static plim_t conv_kernel(plim_machine *m, plim_t x, plim_t w, plim_meta out, bool native,
                          bool transposed)
{
    bool cl = conv_channels_last(plim_m_meta(m, x), plim_m_meta(m, w));
    conv_format(&out, cl);
    plim_t xc = conv_formatted(m, x, cl);
    plim_t y = plim_m_empty(m, &out);
    plim_t wc = conv_formatted(m, w, cl);
    if (!native)
        conv_workspace(m, PLIM_CUDNN_FORWARD, x, w, &out, cl);
    conv_product(m, x, w, &out, transposed, cl);
    plim_m_drop(m, wc);
    plim_m_drop(m, xc);
    return y;
}

/* PyTorch's own depthwise kernels: the weight's gradient first. */
static void depthwise_backward(plim_machine *m, plim_t x, plim_t w, const bool want[3],
                               plim_t dx[3])
{
    plim_meta dw = *plim_m_meta(m, w), dxm = *plim_m_meta(m, x);
    plim_meta_contiguous(&dw);
    plim_meta_contiguous(&dxm);
    if (want[1])
        dx[1] = plim_m_empty(m, &dw);
    if (want[0])
        dx[0] = plim_m_empty(m, &dxm);
}

static void cudnn_backward(plim_machine *m, plim_t g, plim_t x, plim_t w, bool channels_last,
                           const bool want[3], plim_t dx[3])
{
    plim_t xc = want[1] ? conv_formatted(m, x, channels_last) : 0;
    if (want[0]) {
        plim_meta out = *plim_m_meta(m, x);
        conv_format(&out, channels_last);
        dx[0] = plim_m_empty(m, &out);
        plim_t wc = conv_formatted(m, w, channels_last);
        conv_workspace(m, PLIM_CUDNN_GRAD_INPUT, x, w, plim_m_meta(m, g), channels_last);
        plim_m_drop(m, wc);
    }
    if (want[1]) {
        plim_meta out = *plim_m_meta(m, w);
        conv_format(&out, channels_last);
        dx[1] = plim_m_empty(m, &out);
        conv_workspace(m, PLIM_CUDNN_GRAD_WEIGHT, x, w, plim_m_meta(m, g), channels_last);
    }
    plim_m_drop(m, xc);
}

/* dx[0..2]: of x, w and the bias.  The bias gradient is a separate sum, after the copies for
 * the others were freed. */
static void conv_backward_kernel(plim_machine *m, plim_t g, plim_t x, plim_t w, bool native,
                                 bool transposed, const bool want[3], plim_t dx[3])
{
    const plim_meta *gm = plim_m_meta(m, g);
    bool cl = conv_channels_last(plim_m_meta(m, x), plim_m_meta(m, w));
    plim_t gc = conv_formatted(m, g, cl);
    if (native)
        depthwise_backward(m, x, w, want, dx);
    else
        cudnn_backward(m, g, x, w, cl, want, dx);
    for (int i = 0; i < 2; i++)
        if (want[i])
            conv_product(m, x, w, gm, transposed, cl);
    plim_m_drop(m, gc);
    if (want[2]) {
        conv_bias(m, gm, 1);
        dx[2] = plim_m_empty_contig(m, gm->dtype, 1, &gm->dim[1]);
        plim_reduce_scratch(m, gm, ((1u << gm->rank) - 1) & ~2u);
    }
}

/* Arguments as in cudnn_convolution_transpose; the other schemas lack output_padding. */
static void kernel_conv(plim_call *c, bool transposed, bool native)
{
    conv_geometry q = {.transposed = transposed, .groups = plim_arg_int(c, 6, 1)};
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 1);
    plim_meta out;
    if (native) /* their schema has no groups: one per channel */
        q.groups = PLIM_MAX(plim_m_meta(c->m, x)->dim[1], 1);
    conv_rank(c, &q);
    conv_spatial_args(c, 2, q.spatial, q.pad, 0, "padding");
    conv_spatial_args(c, 3, q.spatial, q.out_pad, 0, "output_padding");
    conv_spatial_args(c, 4, q.spatial, q.stride, 1, "stride");
    conv_spatial_args(c, 5, q.spatial, q.dilation, 1, "dilation");
    if (plim_m_bad(c->m) ||
        !conv_out_meta(c->m, &q, plim_m_meta(c->m, x), plim_m_meta(c->m, w), &out))
        return;
    c->out[0] = conv_kernel(c->m, x, w, out, native, transposed);
    c->n_out = 1;
}
void plim_kernel_conv(plim_call *c) { kernel_conv(c, false, false); }
void plim_kernel_conv_transpose(plim_call *c) { kernel_conv(c, true, false); }
void plim_kernel_conv_depthwise(plim_call *c) { kernel_conv(c, false, true); }

void plim_kernel_conv_backward(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 1), w = plim_arg_tensor(c, 2);
    const plim_meta *xm = plim_m_meta(c->m, x), *wm = plim_m_meta(c->m, w);
    const conv_geometry q = {.transposed = plim_arg_int(c, 3, 0),
                             .groups = plim_arg_int(c, 4, 1)};
    bool want[3];
    plim_arg_mask(c, 5, want, 3);
    conv_backward_kernel(c->m, plim_arg_tensor(c, 0), x, w,
                         conv_is_native_depthwise(&q, xm, wm, conv_channels_last(xm, wm)),
                         q.transposed, want, c->out);
    c->n_out = 3;
}

/* ---- the rules --------------------------------------------------------------------- */

static void conv_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    bool want[3];
    plim_m_wanted(m, n, want, 3);
    conv_backward_kernel(m, g[0], plim_m_saved(m, n, 0), plim_m_saved(m, n, 1),
                         n->i[CONV_NATIVE], n->i[CONV_TRANSPOSED], want, dx);
}
static const plim_grad_fn conv_fn = {"ConvolutionBackward0", conv_backward};

static void conv_apply(plim_call *c, const conv_geometry *q)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), w = plim_arg_tensor(c, 1), b = plim_arg_tensor(c, 2);
    plim_t in[3] = {x, w, b};
    plim_meta out;
    if (plim_m_bad(m) || !conv_out_meta(m, q, plim_m_meta(m, x), plim_m_meta(m, w), &out))
        return;
    bool cl = conv_channels_last(plim_m_meta(m, x), plim_m_meta(m, w));
    bool native = conv_is_native_depthwise(q, plim_m_meta(m, x), plim_m_meta(m, w), cl);
    plim_gnode *n = plim_m_node(m, &conv_fn, 3, in);
    if (n) {
        n->i[CONV_NATIVE] = native;
        n->i[CONV_TRANSPOSED] = q->transposed;
    }
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, w);
    plim_t y = conv_kernel(m, x, w, out, native, q->transposed);
    if (b && !native) /* src: Convolution.cpp: output.add_(bias) */
        conv_bias(m, &out, 2);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* padding='same' and 'valid'; for an odd 'same' PyTorch pads the input first */
static void conv_named_padding(plim_call *c, conv_geometry *q)
{
    plim_str name = plim_arg_string(c, 4);
    const plim_meta *w = plim_m_meta(c->m, plim_arg_tensor(c, 1));
    for (int32_t i = 0; i < q->spatial; i++)
        q->pad[i] = plim_str_is(name, "same") && w->rank > 2 + i
                        ? q->dilation[i] * (w->dim[2 + i] - 1) / 2
                        : 0;
}

void plim_run_conv(plim_call *c)
{
    conv_geometry q = {0};
    if (!conv_rank(c, &q))
        return;
    conv_spatial_args(c, 3, q.spatial, q.stride, 1, "stride");
    conv_spatial_args(c, 5, q.spatial, q.dilation, 1, "dilation");
    if (plim_arg_string(c, 4).n)
        conv_named_padding(c, &q);
    else
        conv_spatial_args(c, 4, q.spatial, q.pad, 0, "padding");
    q.groups = plim_arg_int(c, 6, 1);
    conv_apply(c, &q);
}

void plim_run_conv_transpose(plim_call *c)
{
    conv_geometry q = {.transposed = true};
    if (!conv_rank(c, &q))
        return;
    conv_spatial_args(c, 3, q.spatial, q.stride, 1, "stride");
    conv_spatial_args(c, 4, q.spatial, q.pad, 0, "padding");
    conv_spatial_args(c, 5, q.spatial, q.out_pad, 0, "output_padding");
    conv_spatial_args(c, 7, q.spatial, q.dilation, 1, "dilation");
    q.groups = plim_arg_int(c, 6, 1);
    conv_apply(c, &q);
}
