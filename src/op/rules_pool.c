/* rules_pool.c -- pooling and resizing.
 * src: docs/sources/operators.md 8; cuda/DilatedMaxPool2d.cu, AveragePool2d.cu,
 * AdaptiveAveragePooling.cpp, UpSample.cpp. */
#include "op/rules.h"

/* dx of the input's size, zero-filled, in the layout of x; then, inside the kernel, g in that
 * layout */
static void pool_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_meta out =
        plim_meta_make(plim_m_meta(m, g[0])->dtype, n->in_meta[0].rank, n->in_meta[0].dim);
    bool cl = plim_suggests_channels_last(&n->in_meta[0]);
    if (cl)
        plim_meta_channels_last(&out);
    const plim_meta *gm = plim_m_meta(m, g[0]);
    bool fits = cl ? plim_is_channels_last(gm) : plim_is_contiguous(gm);
    dx[0] = plim_m_empty(m, &out);
    plim_t gc = fits ? 0 : plim_m_empty_contig(m, gm->dtype, gm->rank, gm->dim);
    plim_m_drop(m, gc);
}
static const plim_grad_fn max_pool_fn = {"MaxPool2DWithIndicesBackward0", pool_backward};
static const plim_grad_fn avg_pool_fn = {"AvgPool2DBackward0", pool_backward};
static const plim_grad_fn adaptive_fn = {"AdaptiveAvgPool2DBackward0", pool_backward};
static const plim_grad_fn upsample_fn = {"UpsampleBackward0", pool_backward};

static int64_t pool_dim(int64_t in, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil)
{
    int64_t room = in + 2 * p - d * (k - 1) - 1 + (ceil ? s - 1 : 0);
    if (room < 0)
        return 0;
    int64_t out = room / s + 1;
    if (ceil && (out - 1) * s >= in + p) /* the last window must start inside */
        out--;
    return out;
}

typedef struct pool_slots {
    uint32_t dilation, ceil;
} pool_slots; /* 0: none */

static bool pool_meta(plim_call *c, pool_slots at, plim_meta *out)
{
    plim_machine *m = c->m;
    const plim_meta *x = plim_m_meta(m, plim_arg_tensor(c, 0));
    const char *name = c->node->op->name;
    int32_t n = strstr(name, "1d") ? 1 : strstr(name, "3d") ? 3 : 2;
    int64_t k[3], s[3], p[3], d[3] = {1, 1, 1};
    if (plim_arg_ints(c, 1, k, 3, (uint32_t)n) != (uint32_t)n || x->rank < n + 1) {
        plim_m_fail(m, PLIM_ESHAPE, "%s has no rule for a tensor of rank %d", name,
                    (int)x->rank);
        return false;
    }
    if (plim_arg_ints(c, 2, s, 3, (uint32_t)n) != (uint32_t)n)
        memcpy(s, k, sizeof s);
    if (plim_arg_ints(c, 3, p, 3, (uint32_t)n) != (uint32_t)n)
        memset(p, 0, sizeof p);
    if (at.dilation)
        plim_arg_ints(c, at.dilation, d, 3, (uint32_t)n);
    *out = *x;
    for (int32_t i = 0; i < n; i++) {
        int64_t in = x->dim[x->rank - n + i];
        bool sane = k[i] > 0 && s[i] > 0 && p[i] >= 0 && d[i] > 0 && k[i] < 1 << 20 &&
                    s[i] < 1 << 20 && p[i] < 1 << 20 && d[i] < 1 << 20 &&
                    in < (int64_t)1 << 40;
        int64_t o =
            sane ? pool_dim(in, k[i], s[i], p[i], d[i], plim_arg_int(c, at.ceil, 0)) : 0;
        if (o < 1) {
            plim_m_fail(m, PLIM_ESHAPE, "%s: window %" PRId64 " does not fit in %" PRId64,
                        name, k[i], in);
            return false;
        }
        out->dim[x->rank - n + i] = o;
    }
    if (plim_suggests_channels_last(x))
        plim_meta_channels_last(out);
    else
        plim_meta_contiguous(out);
    return true;
}

/* y, then int64 indices; both kernels always allocate them. */
static void max_pool(plim_call *c, plim_meta out)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(m, &max_pool_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_t y = plim_m_empty(m, &out);
    out.dtype = PLIM_I64;
    plim_t idx = plim_m_empty(m, &out);
    plim_m_save(m, n, 1, idx);
    plim_m_output(m, n, 0, y);
    plim_rets(c, (plim_t[]){y, idx}, 2);
}

void plim_run_max_pool(plim_call *c)
{
    plim_meta out;
    if (pool_meta(c, (pool_slots){4, 5}, &out))
        max_pool(c, out);
}

void plim_run_avg_pool(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out;
    if (!pool_meta(c, (pool_slots){0, 4}, &out))
        return;
    plim_gnode *n = plim_m_node(m, &avg_pool_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

static int32_t adaptive_rank(const plim_call *c)
{
    const char *name = c->node->op->name;
    return strstr(name, "1d") ? 1 : strstr(name, "3d") ? 3 : 2;
}

static bool adaptive_meta(plim_call *c, plim_meta *out)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, 0));
    const char *name = c->node->op->name;
    int32_t n = adaptive_rank(c);
    int64_t size[3];
    if (plim_arg_ints(c, 1, size, 3, (uint32_t)n) != (uint32_t)n || x->rank < n + 1) {
        plim_m_fail(c->m, PLIM_ESHAPE, "%s has no rule for a tensor of rank %d", name,
                    (int)x->rank);
        return false;
    }
    *out = *x;
    for (int32_t i = 0; i < n; i++)
        out->dim[x->rank - n + i] = size[i];
    if (plim_suggests_channels_last(x))
        plim_meta_channels_last(out);
    else
        plim_meta_contiguous(out);
    return true;
}

/* A pool to one output per channel is a mean over the window's dims: it saves nothing in
 * current versions, and its gradient is an expanded g divided by the count, which is
 * contiguous whatever the layout of x. */
static const plim_grad_fn window_mean_fn = {"MeanBackward1", plim_backward_fresh};

/* A channels_last mean gets its strides from as_strided_, whose backward allocates its own
 * gradient. */
static const plim_grad_fn as_strided_fn = {"AsStridedBackward1", plim_backward_fresh};

static plim_t window_mean(plim_machine *m, plim_t x, const plim_meta *out, int32_t window)
{
    plim_gnode *n = plim_m_node(m, &window_mean_fn, 1, &x);
    if (plim_m_world(m)->torch < PLIM_SINCE_MEAN_WITHOUT_INPUT)
        plim_m_save(m, n, 0, x);
    plim_t y = plim_m_empty(m, out);
    plim_reduce_scratch(m, plim_m_meta(m, x), ((1u << window) - 1) << (out->rank - window));
    plim_m_output(m, n, 0, y);
    if (plim_suggests_channels_last(plim_m_meta(m, x)))
        plim_m_rebase(m, plim_m_node(m, &as_strided_fn, 1, &y), y);
    return y;
}

void plim_run_adaptive_avg(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out;
    if (!adaptive_meta(c, &out))
        return;
    int32_t window = adaptive_rank(c);
    bool mean = true;
    for (int32_t i = 0; i < window; i++)
        mean &= out.dim[out.rank - 1 - i] == 1;
    if (mean) {
        plim_ret(c, window_mean(m, x, &out, window));
        return;
    }
    plim_gnode *n = plim_m_node(m, &adaptive_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

void plim_run_adaptive_max(plim_call *c)
{
    plim_meta out;
    if (adaptive_meta(c, &out))
        max_pool(c, out);
}

/* ---- resize: sizes only are kept ----------------------------------------------------- */

static void run_upsample(plim_call *c, uint32_t scale_slot)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(m, x);
    int32_t n = out.rank - 2;
    int64_t size[PLIM_MAX_RANK];
    const plim_arg *scale = scale_slot < c->n_args ? &c->args[scale_slot] : NULL;
    if (n < 1 || n > 3) {
        plim_m_fail(m, PLIM_ESHAPE, "upsample has no rule for a tensor of rank %d",
                    (int)out.rank);
        return;
    }
    if (plim_arg_ints(c, 1, size, PLIM_MAX_RANK, (uint32_t)n) == (uint32_t)n) {
        for (int32_t i = 0; i < n; i++)
            out.dim[2 + i] = size[i];
    } else if (scale && ((scale->kind == PLIM_ARG_FLOATS && scale->n) ||
                         scale->kind == PLIM_ARG_FLOAT)) {
        for (int32_t i = 0; i < n; i++) {
            double f = scale->kind == PLIM_ARG_FLOAT
                           ? scale->f
                           : scale->floats[PLIM_MIN((uint32_t)i, scale->n - 1)];
            double d = (double)out.dim[2 + i] * f;
            out.dim[2 + i] = d >= 0 && d < 1e12 ? (int64_t)d : -1;
        }
    } else {
        plim_m_fail(m, PLIM_ESHAPE, "upsample needs a size or a scale");
        return;
    }
    if (plim_suggests_channels_last(plim_m_meta(m, x)))
        plim_meta_channels_last(&out);
    else
        plim_meta_contiguous(&out);
    plim_gnode *node = plim_m_node(m, &upsample_fn, 1, &x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, node, 0, y);
    plim_ret(c, y);
}
void plim_run_upsample(plim_call *c) { run_upsample(c, 2); }
void plim_run_upsample_corners(plim_call *c) { run_upsample(c, 3); }
