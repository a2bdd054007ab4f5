/* rules_window.c -- padding, windows as columns, pixels moved into channels and back.
 * src: PadNd.cpp, Im2Col.cu, Col2Im.cu, PixelShuffle.cpp */
#include "op/rules.h"

static const plim_grad_fn copy_fn = {"CopyBackward0", plim_backward_fresh};

/* ---- borders ----------------------------------------------------------- */

/* reflect and replicate save x for its size; constant saves nothing */
static const plim_grad_fn pad_fn = {"ConstantPadNdBackward0", plim_backward_fresh};

static plim_t pad_with(plim_machine *m, plim_t x, uint32_t n, const int64_t *pad, bool keep)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = *xm;
    if (n % 2 || (int32_t)n / 2 > xm->rank) {
        plim_m_fail(m, PLIM_ESHAPE, "pad has %u numbers for a tensor of rank %d", (unsigned)n,
                    (int)xm->rank);
        return 0;
    }
    bool grows = keep;
    for (uint32_t i = 0; i < n / 2; i++) { /* pairs, starting from the last dim */
        out.dim[xm->rank - 1 - (int32_t)i] += pad[2 * i] + pad[2 * i + 1];
        grows |= pad[2 * i] > 0 || pad[2 * i + 1] > 0;
    }
    if (!grows) /* narrow().clone(), which keeps the order of dims */
        out = plim_meta_like(&out, out.dtype);
    else if (plim_suggests_channels_last(xm))
        plim_meta_channels_last(&out);
    else
        plim_meta_contiguous(&out);
    plim_gnode *node = plim_m_node(m, &pad_fn, 1, &x);
    if (keep)
        plim_m_save(m, node, 0, x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, node, 0, y);
    return y;
}

plim_t plim_at_pad(plim_machine *m, plim_t x, uint32_t n, const int64_t *pad)
{
    return pad_with(m, x, n, pad, false);
}

void plim_run_pad(plim_call *c)
{
    int64_t pad[2 * PLIM_MAX_RANK];
    uint32_t n = plim_arg_ints(c, 1, pad, PLIM_COUNT(pad), 1);
    plim_str mode = plim_arg_string(c, 2);
    plim_ret(c, pad_with(c->m, plim_arg_tensor(c, 0), n, pad,
                         mode.n && !plim_str_is(mode, "constant")));
}

/* ---- windows as columns, and back -------------------------------------- */

typedef struct columns {
    int64_t kernel[2], dilation[2], padding[2], stride[2];
} columns;

static columns columns_of(plim_call *c, uint32_t first)
{
    columns k = {{1, 1}, {1, 1}, {0, 0}, {1, 1}};
    plim_arg_ints(c, first, k.kernel, 2, 2);
    plim_arg_ints(c, first + 1, k.dilation, 2, 2);
    plim_arg_ints(c, first + 2, k.padding, 2, 2);
    plim_arg_ints(c, first + 3, k.stride, 2, 2);
    return k;
}

/* src: Im2Col.cu.  A contiguous copy of the input, if it is not contiguous. */
static void columns_result(plim_call *c, const plim_meta *out)
{
    plim_t x = plim_arg_tensor(c, 0), xc = plim_contiguous_tmp(c->m, x);
    plim_ret(c, plim_copy_as(c->m, &copy_fn, x, out));
    plim_m_drop(c->m, xc);
}

void plim_run_im2col(plim_call *c)
{
    plim_meta out = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    columns k = columns_of(c, 1);
    int32_t at = out.rank - 3;
    int64_t windows = 1;
    if (out.rank < 3 || out.rank > 4 || k.stride[0] < 1 || k.stride[1] < 1) {
        plim_m_fail(c->m, PLIM_ESHAPE, "im2col has no rule for a tensor of rank %d",
                    (int)out.rank);
        return;
    }
    for (int32_t i = 0; i < 2; i++) {
        int64_t room = out.dim[at + 1 + i] + 2 * k.padding[i] -
                       plim_dim_mul(k.dilation[i], k.kernel[i] - 1) - 1;
        windows = plim_dim_mul(windows, room < 0 ? 0 : room / k.stride[i] + 1);
    }
    out.dim[at] = plim_dim_mul(out.dim[at], plim_dim_mul(k.kernel[0], k.kernel[1]));
    out.dim[at + 1] = windows;
    out.rank--;
    plim_meta_contiguous(&out);
    columns_result(c, &out);
}
void plim_run_col2im(plim_call *c)
{
    plim_meta out = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    int64_t size[2] = {0, 0};
    columns k = columns_of(c, 2);
    int64_t taps = plim_dim_mul(k.kernel[0], k.kernel[1]);
    int32_t at = out.rank - 2;
    plim_arg_ints(c, 1, size, 2, 2);
    if (out.rank < 2 || out.rank > 3 || taps < 1 || out.dim[at] % taps) {
        plim_m_fail(c->m, PLIM_ESHAPE, "col2im has no rule for a tensor of rank %d",
                    (int)out.rank);
        return;
    }
    out.dim[at] /= taps;
    out.dim[at + 1] = size[0];
    out.dim[at + 2] = size[1];
    out.rank++;
    plim_meta_contiguous(&out);
    columns_result(c, &out);
}

/* ---- channels and pixels ----------------------------------------------- */

void plim_run_pixel_unshuffle(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(c->m, x);
    int64_t r = plim_arg_int(c, 1, 1);
    if (out.rank < 3 || r < 1 || r > 1 << 15 || plim_dim_at(&out, -2) % r ||
        plim_dim_at(&out, -1) % r) {
        plim_m_fail(c->m, PLIM_ESHAPE,
                    "pixel_unshuffle: the image is not divisible by %" PRId64, r);
        return;
    }
    plim_set_dim(&out, -3, plim_dim_mul(plim_dim_at(&out, -3), r * r));
    plim_set_dim(&out, -2, plim_dim_at(&out, -2) / r);
    plim_set_dim(&out, -1, plim_dim_at(&out, -1) / r);
    plim_meta_contiguous(&out);
    plim_ret(c, plim_copy_as(c->m, &copy_fn, x, &out));
}

void plim_run_pixel_shuffle(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta out = *plim_m_meta(c->m, x);
    int64_t r = plim_arg_int(c, 1, 1);
    if (out.rank < 3 || r < 1 || r > 1 << 15 || plim_dim_at(&out, -3) % (r * r)) {
        plim_m_fail(c->m, PLIM_ESHAPE,
                    "pixel_shuffle: the channels are not divisible by the square of %" PRId64,
                    r);
        return;
    }
    plim_set_dim(&out, -3, plim_dim_at(&out, -3) / (r * r));
    plim_set_dim(&out, -2, plim_dim_mul(plim_dim_at(&out, -2), r));
    plim_set_dim(&out, -1, plim_dim_mul(plim_dim_at(&out, -1), r));
    plim_meta_contiguous(&out);
    plim_ret(c, plim_copy_as(c->m, &copy_fn, x, &out));
}

/* Composite on a card: [N, groups, C / groups, ...] with the two dims swapped; a copy only if
 * that moves data.  src: ChanelShuffle.cpp math_channel_shuffle */
void plim_run_channel_shuffle(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta xm = *plim_m_meta(m, x);
    int64_t groups = plim_arg_int(c, 1, 1);
    if (xm.rank < 3 || groups < 1 || xm.dim[1] % groups) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "%" PRId64 " channels cannot be divided into %" PRId64 " groups",
                    xm.rank < 3 ? 0 : xm.dim[1], groups);
        return;
    }
    int64_t dim[4] = {xm.dim[0], groups, xm.dim[1] / groups, 1};
    for (int32_t i = 2; i < xm.rank; i++)
        dim[3] *= xm.dim[i];
    plim_t split = plim_at_view(m, x, 4, dim),
           turned = plim_at_permute(m, split, (int64_t[]){0, 2, 1, 3}),
           copy = plim_at_contiguous(m, turned);
    plim_ret(c, plim_at_reshape(m, copy, xm.rank, xm.dim));
    plim_m_drop(m, copy);
    plim_m_drop(m, turned);
    plim_m_drop(m, split);
}
