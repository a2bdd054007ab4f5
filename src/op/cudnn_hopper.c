/* cudnn_hopper.c -- the workspaces of cuDNN's kernels on Hopper, by kind of kernel.
 *
 * Tensor cores work on NHWC with channels in rows of 16 bytes: NCHW operands are copied so, and
 * the gradient of a weight is summed in parts, in fp32, as many as fill the card.
 * src: docs/sources/workspaces.md 4, measured on an H100 with cuDNN 9.19 */
#include "op/cudnn.h"

enum {
    SMS = 132,
    TILE = 128,
    SMALLEST_TILE = 64,
    ROW = 16 /* bytes */,
    FEW_CHANNELS = 4,
    SMALLEST_PART = 1792 /* pixels */
};
/* Partial sums of a tile in each multiprocessor. */
enum { FULL_CARD = SMS * TILE * TILE * 4 };
enum { FFT_BYTES = 40000 }; /* at most, for two channels */

uint64_t plim_cudnn_winograd(const plim_cudnn_sizes *s)
{
    uint64_t tiled = 1;
    for (int32_t i = 2; i < s->conv->x.rank; i++)
        tiled *= plim_round_up((uint64_t)s->conv->x.dim[i], 4);
    return (s->x + s->y) / s->in_pixels * tiled / 4 * 9 + 4 * s->w;
}

static uint64_t bytes_of(const plim_cudnn_sizes *s)
{
    return plim_dtype_bytes(s->conv->x.dtype);
}

static bool is_depthwise(const plim_cudnn_sizes *s)
{
    return s->groups > 1 && s->groups == s->in;
}

/* Channels of one group as the kernels want them: of many groups, a power of two. */
static uint64_t pad_group(const plim_cudnn_sizes *s, uint64_t channels)
{
    uint64_t row = ROW / bytes_of(s), padded = row;
    if (is_depthwise(s))
        return channels;
    if (s->groups <= 2)
        return plim_round_up(channels, row);
    while (padded < channels)
        padded *= 2;
    return padded;
}

static uint64_t pad_bytes(const plim_cudnn_sizes *s, uint64_t bytes, uint64_t channels)
{
    return bytes / channels * pad_group(s, channels);
}

static uint64_t copy_x(const plim_cudnn_sizes *s)
{
    return pad_bytes(s, s->x, s->in / s->groups);
}

static uint64_t copy_y(const plim_cudnn_sizes *s)
{
    return pad_bytes(s, s->y, s->out / s->groups);
}

static uint64_t copy_w(const plim_cudnn_sizes *s)
{
    return pad_bytes(s, pad_bytes(s, s->w, s->in / s->groups), s->out / s->groups);
}

static bool is_strided(const plim_cudnn_sizes *s) { return s->in_pixels != s->out_pixels; }
static bool is_fp32(const plim_cudnn_sizes *s) { return bytes_of(s) == 4; }

static uint64_t weight_sum(const plim_cudnn_sizes *s) { return s->w / bytes_of(s) * 4; }

/* Partial sums of the gradient of a weight, in fp32: of `tiles` tiles, each over as many parts of
 * the pixels as fill the card, if a part is worth it. */
static uint64_t split_tiles(const plim_cudnn_sizes *s, uint64_t tiles, uint64_t tile)
{
    const uint64_t pixels = s->batch * s->out_pixels;
    const uint64_t parts = PLIM_MIN(SMS / tiles, pixels / SMALLEST_PART);
    const bool long_sums = pixels >= 14 * SMALLEST_PART;
    if (parts > (long_sums ? 1 : 2))
        return parts * tiles * tile * 4;
    return parts && long_sums ? FULL_CARD / 2 : 0;
}

/* More tiles than the card has multiprocessors: six parts of each row of tiles, until it is full. */
static uint64_t split_many(const plim_cudnn_sizes *s)
{
    const uint64_t side = (uint64_t)s->conv->y.dim[s->conv->y.rank - 1];
    const uint64_t pixels = s->batch * s->out_pixels / side * plim_round_up(side, 8);
    return PLIM_MIN(6 * plim_ceil_div(pixels, TILE), SMS) * TILE * TILE * 4;
}

/* In fp32.  Two taps of at most 64 channels are one tile. */
static uint64_t split_fp32(const plim_cudnn_sizes *s, uint64_t in, uint64_t out)
{
    const uint64_t narrow = PLIM_MIN(in, out), broad = PLIM_MAX(in, out);
    const uint64_t pairs = plim_ceil_div(s->taps, 2) * s->groups;
    if (broad <= SMALLEST_TILE)
        return split_tiles(s, s->taps * s->groups, SMALLEST_TILE * SMALLEST_TILE);
    if (narrow <= SMALLEST_TILE && (in == narrow || s->out_pixels >= 56 * 56)) {
        const uint64_t high = broad <= TILE ? SMALLEST_TILE : TILE;
        return split_tiles(s, pairs * plim_ceil_div(broad, high), high * TILE);
    }
    const uint64_t side = narrow <= SMALLEST_TILE ? SMALLEST_TILE : TILE;
    const uint64_t tiles =
        plim_ceil_div(in, side) * plim_ceil_div(out, side) * s->taps * s->groups;
    if (tiles > SMS && tiles <= 2 * SMS)
        return split_many(s);
    return tiles <= SMS ? split_tiles(s, tiles, side * side) : 0;
}

/* Tiles up to 128x256; a part has the more pixels, the larger the tile, but the largest. */
static uint64_t split_16bit(const plim_cudnn_sizes *s, uint64_t in, uint64_t out)
{
    const uint64_t wide = in <= SMALLEST_TILE ? SMALLEST_TILE : TILE;
    const uint64_t high = out <= SMALLEST_TILE                       ? SMALLEST_TILE
                          : out <= TILE                              ? TILE
                          : wide == TILE && out <= 3 * SMALLEST_TILE ? 3 * SMALLEST_TILE
                                                                     : 2 * TILE;
    const uint64_t tile = wide * high;
    const uint64_t tiles =
        plim_ceil_div(in, wide) * plim_ceil_div(out, high) * s->taps * s->groups;
    const uint64_t part = tile < TILE * TILE       ? 2 * SMALLEST_PART
                          : tile < 2 * TILE * TILE ? 6 * SMALLEST_PART
                                                   : 4 * SMALLEST_PART;
    const uint64_t most = wide == SMALLEST_TILE && high == 2 * TILE ? 6 : 13;
    if (s->out_pixels < 28 * 28 || tiles > SMS / 4)
        return 0;
    return PLIM_MIN(PLIM_MIN(SMS / tiles, most), s->batch * s->out_pixels / part) * tiles *
           tile * 4;
}

/* Parts of the whole gradient, of few channels. */
static uint64_t few_parts(const plim_cudnn_sizes *s)
{
    if (!is_fp32(s))
        return s->taps > 3 * 3 ? 61 : 126;
    return s->out_pixels >= 56 * 56 ? 120 : 0;
}

static uint64_t split_sums(const plim_cudnn_sizes *s)
{
    const uint64_t in = s->in / s->groups, out = s->out / s->groups;
    if (in <= 32 && s->groups == 1) /* the kernel's taps and the channels are one dimension */
        return s->taps <= 7 * 7 && s->out_pixels >= 28 * 28
                   ? few_parts(s) * copy_w(s) / bytes_of(s) * 4
                   : 0;
    return is_fp32(s) ? split_fp32(s, in, out) : split_16bit(s, in, out);
}

/* ---- NCHW -------------------------------------------------------------------------- */

/* Elements of a weight up to which a product of matrices reads NCHW as it lies: in small images
 * copies pay sooner.  The limits were seen in networks. */
static uint64_t largest_product(const plim_cudnn_sizes *s)
{
    const bool forward = s->conv->pass == PLIM_CUDNN_FORWARD;
    if (s->in_pixels <= 7 * 7 && forward && !is_fp32(s)) /* rows at odd places */
        return 0;
    if (s->in_pixels <= 8 * 8)
        return is_fp32(s) && !forward ? 300000 : 1000000;
    return is_fp32(s) || s->in_pixels > 20 * 20 ? UINT64_MAX : 512 * 1024 - 1;
}

/* The gradient of a weight: a product for each sample, whose results are summed.  Where the
 * limits are was seen in networks. */
static bool sums_by_sample(const plim_cudnn_sizes *s, uint64_t sums)
{
    const uint64_t pixels = s->in_pixels, operands = s->x + s->y;
    if (is_strided(s))
        return false;
    if (pixels >= 28 * 28)
        return !is_fp32(s) || s->in > 40 || s->batch >= 64;
    if (!is_fp32(s))
        return pixels <= 8 * 8 ? s->in < 512 || (s->in > 832 && s->in <= 1536 && s->out <= 320)
                               : sums <= operands / 7 * 8;
    return pixels <= 8 * 8 ? sums <= operands / 2 * 7 : s->in < 1024 || sums <= operands;
}

static uint64_t pointwise_sums(const plim_cudnn_sizes *s)
{
    const uint64_t sums = plim_sat_mul(s->batch, weight_sum(s));
    if (sums_by_sample(s, sums))
        return sums;
    if (is_fp32(s) && is_strided(s) && s->in <= 32)
        return 0;
    const uint64_t copies = copy_x(s) + copy_y(s) + ROW;
    if (is_fp32(s) && s->out_pixels >= 28 * 28)
        return copies + split_sums(s);
    if (s->out_pixels <= 8 * 8 && plim_sat_mul(s->in, s->out) >= 1000000)
        return copies;
    return copies + PLIM_MIN(2 * weight_sum(s), FULL_CARD);
}

static uint64_t pointwise_bytes(const plim_cudnn_sizes *s)
{
    if (s->in_pixels == 1)
        return 0;
    if (s->conv->pass == PLIM_CUDNN_GRAD_WEIGHT)
        return pointwise_sums(s);
    const bool forward = s->conv->pass == PLIM_CUDNN_FORWARD;
    bool few = s->in <= (forward ? 64 : is_fp32(s) ? 128 : 0);
    if (is_strided(s) ? few : plim_sat_mul(s->in, s->out) <= largest_product(s))
        return 0;
    if (is_fp32(s) && forward && is_strided(s) && s->in_pixels >= 38 * 38)
        return copy_x(s) + copy_w(s) + ROW;
    return copy_x(s) + copy_y(s) + ROW;
}

/* fp32 kernels of few channels read NCHW, those of some more write it. */
static uint64_t forward_bytes(const plim_cudnn_sizes *s)
{
    const uint64_t rows = s->batch * s->out_pixels;
    if (s->in <= FEW_CHANNELS && s->taps <= 4 * 4)
        return 0;
    if (is_fp32(s) && s->in <= FEW_CHANNELS)
        return s->x + s->w + s->y + ROW;
    if (!is_fp32(s) || s->groups > 1 || s->in > 80 || s->taps > 3 * 3)
        return copy_x(s) + copy_w(s) + copy_y(s) + ROW;
    if (s->in < 24 || (s->in <= 32 && s->out_pixels <= 14 * 14))
        return 0;
    bool writes_nchw = s->in > 32 && (is_strided(s) || s->out % TILE == 0 ||
                                      (s->out <= SMALLEST_TILE && rows < 150000));
    return copy_x(s) + copy_w(s) + (writes_nchw ? 0 : copy_y(s)) + ROW;
}

/* The gradient of a 3x3 weight over small images, in fp32.  The limits were seen in networks. */
static bool is_winograd(const plim_cudnn_sizes *s)
{
    const uint64_t weights = plim_sat_mul(s->in, s->out);
    if (!is_fp32(s) || s->taps != 3 * 3 || is_strided(s) || s->groups > 1 || s->in < 32)
        return false;
    if (s->out_pixels <= 8 * 8)
        return weights <= 256 * 256;
    return s->out_pixels <= 14 * 14 && weights <= 128 * 128 && s->out <= 2 * s->in;
}

static uint64_t spatial_bytes(const plim_cudnn_sizes *s)
{
    const uint64_t copies = copy_x(s) + copy_w(s) + copy_y(s) + ROW;
    if (s->conv->pass == PLIM_CUDNN_FORWARD)
        return forward_bytes(s);
    if (is_fp32(s) && s->in <= FEW_CHANNELS && s->taps <= 4 * 4)
        return 0;
    if (s->conv->pass == PLIM_CUDNN_GRAD_INPUT)
        return copies;
    return is_winograd(s) ? plim_cudnn_winograd(s) : copies + split_sums(s);
}

/* Of fp16 only: PyTorch runs the others itself. */
static uint64_t depthwise_bytes(const plim_cudnn_sizes *s)
{
    bool sums = s->conv->pass == PLIM_CUDNN_GRAD_WEIGHT;
    return sums && !is_strided(s) && s->out_pixels >= 28 * 28 ? s->x + s->y + ROW : 0;
}

/* ---- NHWC, and no tensor cores ------------------------------------------------------- */

static uint64_t depthwise_sums(const plim_cudnn_sizes *s)
{
    if (!is_fp32(s))
        return plim_sat_mul(8 * s->batch, weight_sum(s));
    return s->taps > 3 * 3 && s->out_pixels >= 28 * 28 ? s->x / 4 * 33 : 0;
}

static uint64_t channels_last(const plim_cudnn_sizes *s)
{
    if (s->conv->pass != PLIM_CUDNN_GRAD_WEIGHT)
        return 0;
    return is_depthwise(s) ? depthwise_sums(s) : split_sums(s);
}

/* fp32 without TF32: kernels read NCHW, and the gradient of a 3x3 weight is Winograd's. */
static uint64_t without_tensor_cores(const plim_cudnn_sizes *s)
{
    bool sums = s->conv->pass == PLIM_CUDNN_GRAD_WEIGHT;
    if (s->conv->channels_last)
        return sums || s->groups > 1 ? 0 : s->x + s->w + s->y + ROW;
    if (!sums || s->conv->w.rank != 4 || s->taps != 3 * 3 || is_strided(s) || s->in < 64 ||
        s->groups > 1)
        return 0;
    return plim_cudnn_winograd(s);
}

static uint64_t usual_bytes(const plim_cudnn_sizes *s)
{
    if (!s->tensor_cores)
        return without_tensor_cores(s);
    if (s->conv->channels_last)
        return channels_last(s);
    if (is_depthwise(s))
        return depthwise_bytes(s);
    return s->taps == 1 ? pointwise_bytes(s) : spatial_bytes(s);
}

plim_cudnn_bytes plim_cudnn_hopper(const plim_cudnn_sizes *s)
{
    plim_cudnn_bytes out = {.usual = usual_bytes(s)};
    out.high = copy_x(s) + copy_w(s) + copy_y(s) + 2 * (uint64_t)FULL_CARD;
    if (s->conv->pass == PLIM_CUDNN_GRAD_WEIGHT)
        out.high = PLIM_MAX(out.high, plim_sat_mul(s->batch, weight_sum(s)));
    if (!s->tensor_cores && s->taps > 1) /* Winograd, or FFT, whose weights are large */
        out.high =
            plim_sat_add(3 * out.high, plim_sat_mul(FFT_BYTES, plim_sat_mul(s->in, s->out)));
    out.high = PLIM_MAX(out.high, out.usual);
    return out;
}
