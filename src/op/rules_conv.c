/* rules_conv.c -- convolution and its transpose, as cuDNN runs them.
 * src: facts training-step.md 3.5; aten/src/ATen/native/Convolution.cpp,
 * cudnn/ConvShared.cpp. */
#include "op/rules.h"

typedef struct conv_geometry {
    int32_t spatial; /* 1, 2 or 3 */
    int64_t stride[3], pad[3], dilation[3], out_pad[3], groups;
    bool transposed;
} conv_geometry;

/* What the node keeps for backward, packed into gnode.i */
enum { CONV_GROUPS, CONV_TRANSPOSED, CONV_NATIVE };

/* ---- geometry --------------------------------------------------------------- */

static void conv_spatial_args(plim_call *c, uint32_t slot, int32_t n, int64_t *out,
                              int64_t min, const char *what)
{
    if (plim_arg_ints(c, slot, out, 3, (uint32_t)n) != (uint32_t)n) {
        plim_m_fail(c->m, PLIM_ESHAPE, "%s needs %d numbers", what, (int)n);
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

/* Size of the output; fails the machine where shapes do not fit. */
static bool conv_out_meta(plim_machine *m, const conv_geometry *q, const plim_meta *x,
                          const plim_meta *w, plim_meta *out)
{
    char sx[96], sw[96];
    int32_t rank = q->spatial + 2;
    plim_meta_str(x, sx, sizeof sx);
    plim_meta_str(w, sw, sizeof sw);
    if (x->rank != rank || w->rank != rank) {
        plim_m_fail(m, PLIM_ESHAPE, "convolution of %s by %s: rank is not %d", sx, sw,
                    (int)rank);
        return false;
    }
    for (int32_t i = 0; i < rank; i++)
        if (x->dim[i] > (int64_t)1 << 40 || w->dim[i] > (int64_t)1 << 40) {
            plim_m_fail(m, PLIM_ERANGE, "convolution of %s by %s: a dim is over 2^40", sx, sw);
            return false;
        }
    int64_t want = q->transposed ? w->dim[0] : w->dim[1] * q->groups;
    if (x->dim[1] != want || q->groups < 1 || w->dim[0] % q->groups) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "convolution of %s by %s: %" PRId64
                    " channels where the weight takes %" PRId64 " (%" PRId64 " groups)",
                    sx, sw, x->dim[1], want, q->groups);
        return false;
    }
    *out = (plim_meta){.dtype = x->dtype, .rank = rank};
    out->dim[0] = x->dim[0];
    out->dim[1] = q->transposed ? w->dim[1] * q->groups : w->dim[0];
    for (int32_t i = 0; i < q->spatial; i++) {
        out->dim[2 + i] = conv_out_dim(q, i, x->dim[2 + i], w->dim[2 + i]);
        if (out->dim[2 + i] < 1) {
            plim_m_fail(m, PLIM_ESHAPE, "convolution of %s by %s: output would be empty", sx,
                        sw);
            return false;
        }
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

/* t itself, or a temporary copy in the format the kernel wants: owned. */
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

/* cuDNN chooses an algorithm and its workspace at run time; there is no
 * formula.  Tensor-core kernels work on NHWC, so NCHW operands are transposed
 * in workspace: as many bytes as the operands.  Marked estimated; the upper
 * bound is twice that, the lower one none. */
void plim_conv_scratch(plim_machine *m, const plim_meta *x, const plim_meta *w,
                       const plim_meta *y)
{
    const plim_world *world = plim_m_world(m);
    uint64_t a = 0, b = 0, c = 0, sum = 0;
    bool half = x->dtype == PLIM_F16 || x->dtype == PLIM_BF16;
    bool tensor_cores = half ? world->cc >= 70 : x->dtype == PLIM_F32 && world->cc >= 80;
    if (!plim_meta_bytes(x, &a) || !plim_meta_bytes(w, &b) || !plim_meta_bytes(y, &c))
        return;
    sum = a + b + c;
    if (plim_suggests_channels_last(x))
        return;
    plim_m_drop(m, plim_m_scratch_range(m, 0, tensor_cores ? sum : 0, 2 * sum));
}

static void conv_workspace(plim_machine *m, plim_t x, plim_t w, const plim_meta *out)
{
    plim_conv_scratch(m, plim_m_meta(m, x), plim_m_meta(m, w), out);
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

/* ---- forward and backward -------------------------------------------------------- */

static void conv_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, 0), w = plim_m_saved(m, n, 1);
    const plim_meta *xm = plim_m_meta(m, x), *wm = plim_m_meta(m, w);
    bool cl = conv_channels_last(xm, wm);
    plim_t gc = conv_formatted(m, g[0], cl), xc = 0;
    if (plim_m_wants(m, n, 1) && n->i[CONV_NATIVE] == 0)
        xc = conv_formatted(m, x, cl);
    if (plim_m_wants(m, n, 0)) {
        plim_meta out = *xm;
        if (cl)
            plim_meta_channels_last(&out);
        else
            plim_meta_contiguous(&out);
        dx[0] = plim_m_empty(m, &out);
        plim_t wc = conv_formatted(m, w, cl);
        if (!n->i[CONV_NATIVE])
            conv_workspace(m, g[0], w, &out);
        plim_m_drop(m, wc);
    }
    if (plim_m_wants(m, n, 1)) {
        plim_meta out = *wm;
        if (cl)
            plim_meta_channels_last(&out);
        else
            plim_meta_contiguous(&out);
        dx[1] = plim_m_empty(m, &out);
        if (!n->i[CONV_NATIVE])
            conv_workspace(m, x, w, plim_m_meta(m, g[0]));
    }
    if (plim_m_wants(m, n, 2)) {
        const plim_meta *gm = plim_m_meta(m, gc);
        dx[2] = plim_m_empty_contig(m, gm->dtype, 1, &gm->dim[1]);
        plim_reduce_scratch(m, gm, ((1u << gm->rank) - 1) & ~2u);
    }
    plim_m_drop(m, xc);
    plim_m_drop(m, gc);
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
        n->i[CONV_GROUPS] = q->groups;
        n->i[CONV_TRANSPOSED] = q->transposed;
        n->i[CONV_NATIVE] = native;
    }
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, w);
    if (cl)
        plim_meta_channels_last(&out);
    else
        plim_meta_contiguous(&out);
    plim_t xc = conv_formatted(m, x, cl);
    plim_t y = plim_m_empty(m, &out);
    plim_t wc = conv_formatted(m, w, cl);
    if (!native)
        conv_workspace(m, x, w, &out);
    plim_m_drop(m, wc);
    plim_m_drop(m, xc);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* padding='same' and 'valid'; an odd 'same' pads the input first in PyTorch */
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
    conv_geometry q = {.spatial = plim_m_meta(c->m, plim_arg_tensor(c, 1))->rank - 2};
    if (q.spatial < 1 || q.spatial > 3) {
        plim_m_fail(c->m, PLIM_ESHAPE, "a convolution weight has rank 3 to 5, not %d",
                    (int)q.spatial + 2);
        return;
    }
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
    conv_geometry q = {.spatial = plim_m_meta(c->m, plim_arg_tensor(c, 1))->rank - 2,
                       .transposed = true};
    if (q.spatial < 1 || q.spatial > 3) {
        plim_m_fail(c->m, PLIM_ESHAPE, "a convolution weight has rank 3 to 5, not %d",
                    (int)q.spatial + 2);
        return;
    }
    conv_spatial_args(c, 3, q.spatial, q.stride, 1, "stride");
    conv_spatial_args(c, 4, q.spatial, q.pad, 0, "padding");
    conv_spatial_args(c, 5, q.spatial, q.out_pad, 0, "output_padding");
    conv_spatial_args(c, 7, q.spatial, q.dilation, 1, "dilation");
    q.groups = plim_arg_int(c, 6, 1);
    conv_apply(c, &q);
}
