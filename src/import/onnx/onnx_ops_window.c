/* onnx_ops_window.c -- ONNX ops with a sliding window: convolution, pooling; resizing. */
#include "import/onnx/onnx_ops.h"

#include <math.h>

enum { MAX_SPATIAL = 3 };

typedef struct window {
    int32_t n; /* spatial dims */
    int64_t k[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], before[MAX_SPATIAL],
        after[MAX_SPATIAL];
    bool lopsided; /* padding before and after differ */
} window;

static bool window_attr(const onnx_call *c, const char *name, uint32_t n, int64_t def,
                        int64_t *out)
{
    plim_ints v = plim_onnx_attr_ints(c, name);
    for (uint32_t i = 0; i < n; i++)
        out[i] = v.p && i < v.n ? v.p[i] : def;
    for (uint32_t i = 0; i < n; i++)
        if (out[i] < 0 || out[i] > INT32_MAX)
            return false;
    return !v.p || v.n == n;
}

/* src: onnx/defs/nn/defs.cc convPoolShapeInference: SAME gives the size of the input over the
 * stride; an odd total puts the extra one at the end, or at the beginning for SAME_LOWER */
static void pad_same(window *w, const plim_meta *x, bool lower)
{
    for (int32_t i = 0; i < w->n; i++) {
        int64_t in = x->dim[i + 2], out = (in + w->stride[i] - 1) / w->stride[i],
                all = (out - 1) * w->stride[i] + (w->k[i] - 1) * w->dilation[i] + 1 - in;
        all = PLIM_MAX(all, 0);
        w->before[i] = lower ? all - all / 2 : all / 2;
        w->after[i] = all - w->before[i];
    }
}

/* `kernel`: the weight of a convolution, or NULL if the size is an attribute. */
static bool window_read(const onnx_call *c, const plim_meta *x, const plim_meta *kernel,
                        window *w)
{
    int64_t pads[2 * MAX_SPATIAL];
    plim_str how = plim_onnx_attr_str(c, "auto_pad", "NOTSET");
    *w = (window){.n = x->rank - 2};
    uint32_t n = (uint32_t)w->n;
    if (w->n < 1 || w->n > MAX_SPATIAL || (kernel && kernel->rank != x->rank) ||
        !window_attr(c, "strides", n, 1, w->stride) ||
        !window_attr(c, "dilations", n, 1, w->dilation) ||
        !window_attr(c, "pads", 2 * n, 0, pads) ||
        (!kernel && !window_attr(c, "kernel_shape", n, 1, w->k)))
        return false;
    for (int32_t i = 0; i < w->n; i++) {
        w->k[i] = kernel ? kernel->dim[i + 2] : w->k[i];
        w->before[i] = pads[i];
        w->after[i] = pads[i + w->n];
        if (w->stride[i] < 1 || w->dilation[i] < 1 || w->k[i] < 1 || w->k[i] > INT32_MAX ||
            x->dim[i + 2] > INT32_MAX)
            return false;
    }
    if (plim_str_starts(how, "SAME_"))
        pad_same(w, x, plim_str_is(how, "SAME_LOWER"));
    for (int32_t i = 0; i < w->n; i++)
        w->lopsided |= w->before[i] != w->after[i];
    return true;
}

static void window_dims(const window *w, const plim_meta *x, bool ceil_mode, plim_meta *out)
{
    for (int32_t i = 0; i < w->n; i++) {
        plim_assert(w->stride[i] > 0 && w->k[i] > 0);
        int64_t room =
            x->dim[i + 2] + w->before[i] + w->after[i] - (w->k[i] - 1) * w->dilation[i] - 1;
        int64_t steps = room < 0 ? -1 : room / w->stride[i];
        if (ceil_mode && room >= 0 && room % w->stride[i]) {
            steps++; /* unless it would begin in the padding after the input */
            steps -= steps * w->stride[i] >= x->dim[i + 2] + w->before[i];
        }
        out->dim[i + 2] = steps + 1;
    }
}

/* Padding that differs between both sides is a separate op in PyTorch. */
static uint32_t pad_first(onnx_call *c, uint32_t x, window *w)
{
    int64_t before[PLIM_MAX_RANK] = {0}, after[PLIM_MAX_RANK] = {0};
    if (!w->lopsided)
        return x;
    for (int32_t i = 0; i < w->n; i++) {
        before[i + 2] = w->before[i];
        after[i + 2] = w->after[i];
        w->before[i] = w->after[i] = 0;
    }
    return plim_onnx_pad_dims(c, x, before, after, PLIM_STR("constant"));
}

/* ---- convolution ---------------------------------------------------------------------- */

static const char *const convs[] = {"aten.conv1d.default", "aten.conv2d.default",
                                    "aten.conv3d.default"};
static const char *const transposed[] = {"aten.conv_transpose1d.default",
                                         "aten.conv_transpose2d.input",
                                         "aten.conv_transpose3d.input"};

bool plim_onnx_conv_dims(const onnx_call *c, const plim_meta *x, const plim_meta *w,
                         plim_meta *out)
{
    window win;
    if (!window_read(c, x, w, &win))
        return false;
    *out = *x;
    out->dim[1] = w->dim[0];
    window_dims(&win, x, false, out);
    return true;
}

#define LIST(v) ((plim_ints){(v), (uint32_t)w.n})

void plim_onnx_conv(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *k = plim_onnx_in_meta(c, 1);
    window w;
    uint32_t id[3];
    if (!x || !k || !window_read(c, x, k, &w) || !plim_onnx_need(c, 2, id))
        return;
    id[2] = plim_onnx_in_id(c, 2);
    id[0] = pad_first(c, id[0], &w);
    plim_named_arg a[] = {ARG_T("input", id[0]),
                          ARG_T("weight", id[1]),
                          ARG_IS("stride", LIST(w.stride)),
                          ARG_IS("padding", LIST(w.before)),
                          ARG_IS("dilation", LIST(w.dilation)),
                          ARG_I("groups", plim_onnx_attr_int(c, "group", 1)),
                          ARG_T("bias", id[2])};
    plim_onnx_out(c, 0, plim_nn_op(NN, convs[w.n - 1], a, id[2] == PLIM_NONE ? 6 : 7));
}

/* src: onnx/defs/nn/defs.cc convTransposeShapeInference */
void plim_onnx_conv_transpose(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *k = plim_onnx_in_meta(c, 1);
    window w;
    int64_t extra[MAX_SPATIAL], want[MAX_SPATIAL], groups = plim_onnx_attr_int(c, "group", 1);
    uint32_t id[3];
    if (!x || !k || !window_read(c, x, k, &w) || groups < 1 || groups > INT32_MAX ||
        k->dim[1] > INT32_MAX || !window_attr(c, "output_padding", (uint32_t)w.n, 0, extra) ||
        !window_attr(c, "output_shape", (uint32_t)w.n, 0, want))
        return;
    plim_meta m = *x;
    m.dim[1] = k->dim[1] * groups;
    bool same = plim_str_starts(plim_onnx_attr_str(c, "auto_pad", ""), "SAME_");
    bool given = plim_onnx_attr_ints(c, "output_shape").p != NULL;
    for (int32_t i = 0; i < w.n; i++)
        m.dim[i + 2] = given  ? want[i]
                       : same ? x->dim[i + 2] * w.stride[i]
                              : (x->dim[i + 2] - 1) * w.stride[i] - w.before[i] - w.after[i] +
                                    (w.k[i] - 1) * w.dilation[i] + extra[i] + 1;
    if (given || same || w.lopsided) {
        plim_onnx_out_opaque(c, 0, &m);
        return;
    }
    if (!plim_onnx_need(c, 2, id))
        return;
    id[2] = plim_onnx_in_id(c, 2);
    plim_named_arg a[] = {ARG_T("input", id[0]),
                          ARG_T("weight", id[1]),
                          ARG_IS("stride", LIST(w.stride)),
                          ARG_IS("padding", LIST(w.before)),
                          ARG_IS("output_padding", LIST(extra)),
                          ARG_IS("dilation", LIST(w.dilation)),
                          ARG_I("groups", groups),
                          ARG_T("bias", id[2])};
    plim_onnx_out(c, 0, plim_nn_op(NN, transposed[w.n - 1], a, id[2] == PLIM_NONE ? 7 : 8));
}

/* com.microsoft FusedConv: includes the activation that follows */
void plim_onnx_fused_conv(onnx_call *c)
{
    static const struct {
        const char *name, *target;
    } acts[] = {{"Relu", "aten.relu.default"},
                {"Tanh", "aten.tanh.default"},
                {"Sigmoid", "aten.sigmoid.default"},
                {"LeakyRelu", "aten.leaky_relu.default"},
                {"HardSigmoid", "aten.hardsigmoid.default"}};
    plim_str act = plim_onnx_attr_str(c, "activation", "");
    plim_onnx_conv(c);
    for (size_t i = 0; i < PLIM_COUNT(acts); i++)
        if (plim_str_is(act, acts[i].name) && c->out[0] != PLIM_NONE)
            plim_onnx_out(c, 0, plim_nn_unary(NN, acts[i].target, c->f->vals[c->out[0]].id));
}

/* ---- pooling ---------------------------------------------------------------------------- */

static const char *const pools[2][MAX_SPATIAL] = {
    {"aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default"},
    {"aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default"}};

static uint32_t run_pool(onnx_call *c, uint32_t x, const window *win, bool max, bool ceil_mode)
{
    const window w = *win;
    plim_named_arg a[] = {
        ARG_T("self", x),
        ARG_IS("kernel_size", LIST(w.k)),
        ARG_IS("stride", LIST(w.stride)),
        ARG_IS("padding", LIST(w.before)),
        ARG_I("ceil_mode", ceil_mode),
        ARG_IS("dilation", LIST(w.dilation)),
    };
    if (!max)
        a[5] = (plim_named_arg)ARG_I("count_include_pad",
                                     plim_onnx_attr_int(c, "count_include_pad", 0));
    return plim_nn_op(NN, pools[max][w.n - 1], a, 6);
}

/* If PyTorch counts windows differently, or does not support the case, the size is ONNX's. */
void plim_onnx_pool(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    bool max = plim_str_is(c->node->op, "MaxPool"), average = !max && c->op->target;
    bool ceil_mode = plim_onnx_attr_int(c, "ceil_mode", 0) != 0, fits = true;
    window w;
    uint32_t id;
    if (!x || !window_read(c, x, NULL, &w))
        return;
    plim_meta m = *x;
    window_dims(&w, x, ceil_mode, &m);
    for (int32_t i = 0; i < w.n; i++)
        fits = fits && w.before[i] <= w.k[i] / 2 && (max || w.dilation[i] == 1);
    if ((!max && !average) || !fits || (w.lopsided && ceil_mode) || plim_onnx_wanted(c, 1)) {
        plim_onnx_out_opaque(c, 0, &m);
        m.dtype = PLIM_I64;
        plim_onnx_out_opaque(c, 1, &m);
        return;
    }
    if (plim_onnx_need(c, 1, &id)) {
        id = pad_first(c, id, &w);
        plim_onnx_out(c, 0, run_pool(c, id, &w, max, ceil_mode));
    }
}

void plim_onnx_global_pool(onnx_call *c)
{
    static const char *const targets[] = {"aten.adaptive_avg_pool1d.default",
                                          "aten.adaptive_avg_pool2d.default",
                                          "aten.adaptive_avg_pool3d.default"};
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    int64_t one[PLIM_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1}, dims[] = {2, 3, 4, 5, 6, 7};
    uint32_t id;
    if (!x || x->rank < 3)
        return;
    uint32_t n = (uint32_t)x->rank - 2;
    plim_meta m = *x;
    for (uint32_t i = 0; i < n; i++)
        m.dim[i + 2] = 1;
    if (!c->op->target) {
        plim_onnx_out_opaque(c, 0, &m);
    } else if (plim_onnx_need(c, 1, &id)) {
        bool average = n <= 3 && plim_str_is(c->node->op, "GlobalAveragePool");
        id = average ? NN_OP(NN, targets[n - 1], ARG_T("self", id),
                             ARG_IS("output_size", ((plim_ints){one, n})))
                     : NN_OP(NN, c->op->target, ARG_T("self", id),
                             ARG_IS("dim", ((plim_ints){dims, n})), ARG_I("keepdim", 1));
        plim_onnx_out(c, 0, id);
    }
}

/* src: onnx/defs/nn/defs.cc maxUnpoolShapeInference */
void plim_onnx_max_unpool(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    plim_ints size;
    window w;
    if (!x || !window_read(c, x, NULL, &w))
        return;
    plim_meta m = *x;
    bool given = plim_onnx_in(c, 2) != NULL;
    if (given && (!plim_onnx_in_ints(c, 2, &size) || size.n != (uint32_t)x->rank))
        return;
    for (int32_t i = 0; i < w.n; i++)
        m.dim[i + 2] =
            given ? size.p[i + 2]
                  : (x->dim[i + 2] - 1) * w.stride[i] + w.k[i] - w.before[i] - w.after[i];
    plim_onnx_out_opaque(c, 0, &m);
}

/* Regions, each pooled to one size, which RoiAlign gives in its own attributes. */
void plim_onnx_roi(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *rois = plim_onnx_in_meta(c, 1);
    plim_ints size = plim_onnx_attr_ints(c, "pooled_shape");
    const int64_t own[] = {plim_onnx_attr_int(c, "output_height", 1),
                           plim_onnx_attr_int(c, "output_width", 1)};
    if (!size.p)
        size = (plim_ints){own, 2};
    if (!x || !rois || x->rank != 4 || rois->rank != 2 || size.n != 2)
        return;
    int64_t dim[] = {rois->dim[0], x->dim[1], size.p[0], size.p[1]};
    plim_meta m = plim_meta_make(x->dtype, 4, dim);
    plim_onnx_out_opaque(c, 0, &m);
}

/* ---- resizing --------------------------------------------------------------------------- */

static const struct {
    const char *mode, *target[MAX_SPATIAL];
} resizes[] = {
    {"nearest",
     {"aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec",
      "aten.upsample_nearest3d.vec"}},
    {"linear",
     {"aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec",
      "aten.upsample_trilinear3d.vec"}},
    {"cubic", {NULL, "aten.upsample_bicubic2d.vec", NULL}},
};

/* A size scaled by its factor.  src: onnx/defs/tensor/utils.cc resizeShapeInferenceHelper */
static int64_t scale_dim(int64_t dim, double scale)
{
    double v = floor((double)dim * (double)(float)scale);
    return v >= 0 && v < 1e15 ? (int64_t)v : -1;
}

/* keep_aspect_ratio_policy: one factor for all dims.  src: as above */
static void keep_aspect(const onnx_call *c, const plim_meta *x, const int32_t *axes,
                        uint32_t n, plim_meta *m)
{
    plim_str how = plim_onnx_attr_str(c, "keep_aspect_ratio_policy", "stretch");
    bool larger = plim_str_is(how, "not_smaller");
    float best = 0;
    if (!larger && !plim_str_is(how, "not_larger"))
        return;
    for (uint32_t i = 0; i < n; i++) {
        float f = (float)m->dim[axes[i]] / (float)x->dim[axes[i]];
        best = !i || (larger ? f > best : f < best) ? f : best;
    }
    for (uint32_t i = 0; i < n; i++) {
        double v = round((double)(best * (float)x->dim[axes[i]]));
        m->dim[axes[i]] = v >= 0 && v < 1e15 ? (int64_t)v : -1;
    }
}

static bool resize_dims(const onnx_call *c, const plim_meta *x, plim_meta *m)
{
    bool newer = c->opset >= 11 && plim_str_is(c->node->op, "Resize");
    const onnx_attr *attr = plim_onnx_attr(c, "scales"); /* Upsample up to 8 */
    const onnx_data *scales = plim_onnx_in_data(c, newer ? 2 : 1);
    int32_t axes[PLIM_MAX_RANK];
    uint32_t n;
    plim_ints sizes = {NULL, 0};
    if (newer && plim_onnx_in(c, 3) && !plim_onnx_in_ints(c, 3, &sizes))
        return false;
    if (!plim_onnx_axes(c, UINT32_MAX, x->rank, axes, &n))
        return false;
    for (; !plim_onnx_attr_ints(c, "axes").p && n < (uint32_t)x->rank; n++)
        axes[n] = (int32_t)n;
    *m = *x;
    uint32_t have = sizes.p                      ? sizes.n
                    : attr                       ? attr->n_floats
                    : scales && scales->is_float ? scales->n
                                                 : 0;
    if (have != n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        m->dim[axes[i]] =
            sizes.p ? sizes.p[i]
                    : scale_dim(x->dim[axes[i]], attr ? attr->floats[i] : scales->f[i]);
    if (sizes.p)
        keep_aspect(c, x, axes, n, m);
    for (int32_t i = 0; i < m->rank; i++)
        if (m->dim[i] < 0)
            return false;
    return true;
}

void plim_onnx_resize(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    plim_str mode = plim_onnx_attr_str(c, "mode", "nearest");
    const char *target = NULL;
    plim_meta m;
    uint32_t id;
    if (!x || !resize_dims(c, x, &m))
        return;
    int32_t n = x->rank - 2;
    for (size_t i = 0; i < PLIM_COUNT(resizes) && n >= 1 && n <= MAX_SPATIAL; i++)
        if (plim_str_is(mode, resizes[i].mode) && m.dim[0] == x->dim[0] &&
            m.dim[1] == x->dim[1])
            target = resizes[i].target[n - 1];
    if (!target)
        plim_onnx_out_opaque(c, 0, &m);
    else if (plim_onnx_need(c, 1, &id))
        plim_onnx_out(c, 0,
                      NN_OP(NN, target, ARG_T("input", id),
                            ARG_IS("output_size", ((plim_ints){m.dim + 2, (uint32_t)n}))));
}

void plim_onnx_grid_sample(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *grid = plim_onnx_in_meta(c, 1);
    uint32_t id[2];
    if (!x || !grid || x->rank != grid->rank)
        return;
    plim_meta m = *x;
    for (int32_t i = 2; i < x->rank; i++)
        m.dim[i] = grid->dim[i - 1];
    if (x->rank != 4)
        plim_onnx_out_opaque(c, 0, &m);
    else if (plim_onnx_need(c, 2, id))
        plim_onnx_out(
            c, 0,
            NN_OP(NN, c->op->target, ARG_T("input", id[0]), ARG_T("grid", id[1]),
                  ARG_I("interpolation_mode", 0), ARG_I("padding_mode", 0),
                  ARG_I("align_corners", plim_onnx_attr_int(c, "align_corners", 0))));
}
