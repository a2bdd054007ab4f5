/* rules_sort.c -- sorting, prefix sums, counts: kernels of cub.
 * src: cuda/Sort.cpp, cuda/TensorTopK.cu, cuda/ScanKernels.cpp, Sorting.cpp;
 * tools/autograd/derivatives.yaml. */
#include "op/rules.h"

#include "machine/reduction.h"

/* ---- values and where they stood ------------------------------------------------------- */

/* Both backwards scatter g by its indices into zeros of the input's size. */
static const plim_grad_fn sort_fn = {"SortBackward0", plim_backward_fresh};
static const plim_grad_fn topk_fn = {"TopkBackward0", plim_backward_fresh};

static uint64_t sort_numel(const plim_meta *x)
{
    uint64_t n = 0;
    return plim_meta_numel(x, &n) ? n : 0;
}
static uint64_t align_up(uint64_t n) { return plim_round_up(n, 256); }

/* One radix sort of n keys with 64-bit values: the second halves of two double buffers, a
 * histogram per pass of 8 bits, a counter, a look-back state per tile.  A single pass goes from
 * the input to the output, without buffers between; a short input is sorted by one block.  Tile sizes were measured on sm_80, 89, 90 (tests/golden/cuda), for keys of 4
 * and 8 bytes.
 * src: cub/device/dispatch/dispatch_radix_sort.cuh */
void plim_cub_sort(plim_machine *m, uint64_t n, uint64_t key_bytes, uint64_t bits,
                   bool buffers)
{
    enum { ONE_BLOCK = 2304, PASS = 2048, COUNTER = 256, STATE = 1024, SLACK = 255 };
    bool hopper = plim_world_since(plim_m_world(m), 90), wide = key_bytes > 4;
    uint64_t tile = hopper ? (wide ? 4608 : 5376) : (wide ? 3840 : 3072);
    if (hopper && !buffers) /* 32-bit values, by slice */
        tile = 5760;
    uint64_t bytes =
        plim_ceil_div(bits, 8) * PASS + COUNTER + SLACK + plim_ceil_div(n, tile) * STATE;
    if (buffers && bits > 8)
        bytes += align_up(plim_sat_mul(n, key_bytes)) + align_up(plim_sat_mul(n, 8));
    if (n <= ONE_BLOCK)
        bytes = 1;
    plim_m_drop(m, key_bytes == 4 || key_bytes == 8 ? plim_m_scratch(m, bytes)
                                                    : plim_m_scratch_about(m, bytes));
}

/* cub keeps a state for each tile, and for the lanes of a warp before them. */
static uint64_t tile_states(uint64_t n, uint64_t tile)
{
    enum { LANES = 32 };
    return plim_ceil_div(n, tile) + LANES;
}

/* Of 16 bits, a state is in three arrays.  Measured with PyTorch 2.14 (CUDA 13) on sm_75, 80, 86,
 * 89, 90, 100, 120.  src: cub/device/dispatch/dispatch_scan.cuh */
void plim_cub_scan(plim_machine *m, uint64_t n, uint64_t bytes)
{
    enum { TILE = 1920, TILE_OF_8_BYTES = 896, SLACK = 511 };
    const uint64_t states = tile_states(n, bytes == 8 ? TILE_OF_8_BYTES : TILE);
    plim_m_drop(
        m, plim_m_scratch(m, SLACK + (bytes == 2 ? 2 * align_up(states) + align_up(2 * states)
                                                 : align_up(2 * bytes * states))));
}

/* Measured in the same way.  src: cub/device/dispatch/dispatch_unique_by_key.cuh */
void plim_cub_unique_by_key(plim_machine *m, uint64_t n, uint64_t bytes)
{
    enum { STATE = 8, SLACK = 767 };
    const plim_world *w = plim_m_world(m);
    const bool hopper = plim_world_since(w, 90), a100 = plim_world_is(w, 80);
    const uint64_t wide = hopper ? 2464
                          : a100 ? 672
                                 : 160,
                   narrow = hopper ? 3584
                            : a100 ? 1408
                                   : 352;
    const uint64_t states = tile_states(n, bytes == 4 ? narrow : wide);
    plim_m_drop(m, plim_m_scratch(m, align_up(STATE * states) + SLACK));
}

/* thrust's sort of n 64-bit keys with 64-bit values by a comparison function, which is a merge
 * sort: a copy of both, and the points where tiles meet.  Measured on sm_75, 80, 86, 89, 90,
 * 100.  src: cub/device/dispatch/dispatch_merge_sort.cuh */
void plim_cub_merge_sort(plim_machine *m, uint64_t n)
{
    enum { TILE = 4096, PLACE = 8, SLACK = 255 };
    plim_m_drop(m,
                plim_m_scratch(m, 2 * align_up(8 * n) +
                                      align_up((plim_ceil_div(n, TILE) + 1) * PLACE) + SLACK));
}

/* The first of each run of equal keys among n such pairs: a state per tile, and for the lanes
 * of a warp before them.  src: cub/device/dispatch/dispatch_unique_by_key.cuh */
void plim_cub_unique(plim_machine *m, uint64_t n)
{
    enum { STATE = 16, COUNTERS = 512, SLACK = 255 };
    const plim_world *w = plim_m_world(m);
    uint64_t tile = plim_world_since(w, 90) ? 9856 : plim_world_is(w, 80) ? 2688 : 640;
    plim_m_drop(m,
                plim_m_scratch(m, align_up(STATE * tile_states(n, tile)) + COUNTERS + SLACK));
}

/* The positions 0 .. n-1. */
static plim_t sort_places(plim_machine *m, uint64_t n)
{
    return plim_m_empty_contig(m, PLIM_I64, 1, (int64_t[]){(int64_t)n});
}

/* Temporaries of a sort of slices, after its results: the positions within one slice if it
 * fits into shared memory; else within all, and cub's buffers.
 * src: cuda/Sort.cpp, cuda/SortStable.cu */
static void sort_inside(plim_machine *m, const plim_meta *x, int64_t slice)
{
    enum { SHARED = 4096, FEW = 128, LONG = 1000000 };
    uint64_t n = sort_numel(x), key = plim_dtype_bytes(x->dtype),
             slices = slice > 0 ? n / (uint64_t)slice : 0;
    if (slice <= SHARED) {
        plim_m_drop(m, sort_places(m, (uint64_t)PLIM_MAX(slice, 0)));
        return;
    }
    plim_t places = sort_places(m, n);
    if (slices == 1 || (slices < FEW && slice >= LONG)) { /* each slice on its own */
        plim_cub_sort(m, (uint64_t)slice, key, 8 * key, true);
    } else if (slices < FEW) { /* all by value, then by slice */
        plim_t pair = plim_m_scratch(m, 8 * n), by_value = plim_m_scratch(m, key * n);
        plim_cub_sort(m, n, key, 8 * key, true);
        plim_m_drop(m, by_value);
        plim_cub_sort(m, n, 8, 8, false);
        plim_m_drop(m, pair);
    } else {
        plim_m_drop(m, plim_m_scratch_about(m, plim_sat_mul(n, key + 8)));
    }
    plim_m_drop(m, places);
}

/* Results and the node; the caller adds the kernel's temporaries. */
static plim_t sort_tensor(plim_machine *m, const plim_grad_fn *fn, plim_t x,
                          const plim_meta *out, plim_t *index)
{
    plim_meta where = *out;
    where.dtype = PLIM_I64;
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    plim_t y = plim_m_empty(m, out);
    *index = plim_m_empty(m, &where);
    plim_m_save(m, n, 0, *index);
    plim_m_output(m, n, 0, y);
    return y;
}

static int64_t dim_length(const plim_meta *x, int32_t d) { return x->rank ? x->dim[d] : 1; }

static void run_sort(plim_call *c, uint32_t dim_slot, bool indices_only)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), index;
    const plim_meta *xm = plim_m_meta(m, x);
    plim_meta out = plim_meta_like(xm, xm->dtype);
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, dim_slot, -1), xm->rank);
    plim_t y = sort_tensor(m, &sort_fn, x, &out, &index);
    sort_inside(m, xm, dim_length(xm, d));
    if (!indices_only) {
        plim_rets(c, (plim_t[]){y, index}, 2);
        return;
    }
    plim_m_drop(m, y);
    plim_ret(c, index);
}
void plim_run_sort(plim_call *c) { run_sort(c, 1, false); }
void plim_run_sort_stable(plim_call *c) { run_sort(c, 2, false); }
void plim_run_argsort(plim_call *c) { run_sort(c, 1, true); }

/* Whether that many slices of such a length are searched by several blocks each. */
static bool topk_uses_blocks(uint64_t slices, uint64_t slice)
{
    static const struct {
        uint64_t slices, length;
    } from[] = {{20, 20000}, {40, 10000}, {80, 8000},       {199, 5000},
                {799, 3000}, {4000, 800}, {UINT64_MAX, 400}};
    for (size_t i = 0; i < PLIM_COUNT(from); i++)
        if (slices <= from[i].slices)
            return slice >= from[i].length;
    return false;
}

/* State shared by the blocks: for each slice the value sought, its rank and the digits known;
 * for each block a count of each digit; prefix sums of them.
 * src: cuda/TensorTopK.cu mbtopk::launch */
static void topk_inside(plim_machine *m, const plim_meta *x, int64_t slice)
{
    enum { THREADS = 256, DIGITS = 256, REGISTERS = 40, SCAN = 1279 };
    uint64_t length = (uint64_t)slice, slices = length ? sort_numel(x) / length : 0;
    if (!topk_uses_blocks(slices, length))
        return;
    uint64_t running =
        (uint64_t)plim_m_sms(m, NULL) * (65536 / (REGISTERS * THREADS)) * THREADS;
    uint64_t each = PLIM_MAX(PLIM_MIN(plim_ceil_div(slices * length, running), 64), 4);
    uint64_t blocks = plim_ceil_div(length, each * THREADS) * slices;
    const uint64_t digits = PLIM_MAX(plim_dtype_bytes(x->dtype), 4); /* now, and before */
    uint64_t bytes[] = {plim_dtype_bytes(x->dtype) * slices,
                        8 * slices,
                        2 * digits * slices,
                        2 * DIGITS * blocks,
                        4 * DIGITS * slices,
                        4 * blocks,
                        4 * blocks};
    plim_t t[PLIM_COUNT(bytes)];
    for (size_t i = 0; i < PLIM_COUNT(bytes); i++)
        t[i] = plim_m_scratch(m, bytes[i]);
    for (int i = 0; i < 2; i++)
        plim_m_drop(m, plim_m_scratch_about(m, SCAN));
    for (size_t i = PLIM_COUNT(bytes); i-- > 0;)
        plim_m_drop(m, t[i]);
}

void plim_run_topk(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), index;
    plim_meta out = *plim_m_meta(m, x);
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 2, -1), out.rank);
    int64_t k = plim_arg_int(c, 1, 1), slice = dim_length(&out, d);
    if (k < 0 || k > slice) {
        plim_m_fail(m, PLIM_ESHAPE, "topk: k is %" PRId64 ", the size of the dim is %" PRId64,
                    k, slice);
        return;
    }
    if (out.rank)
        out.dim[d] = k;
    plim_meta_contiguous(&out);
    plim_t y = sort_tensor(m, &topk_fn, x, &out, &index);
    topk_inside(m, plim_m_meta(m, x), slice);
    plim_rets(c, (plim_t[]){y, index}, 2);
}

void plim_kernel_sort(plim_call *c)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, 0));
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 1, -1), x->rank);
    sort_inside(c->m, x, dim_length(x, d));
}
void plim_kernel_topk(plim_call *c)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, 0));
    int32_t d = plim_wrap_dim(c->m, plim_arg_int(c, 1, -1), x->rank);
    topk_inside(c->m, x, dim_length(x, d));
}

/* Without replacement: checks that the probabilities are finite and not negative and that no
 * row is all zero; then takes the maximum of noise over probability.  With replacement: each
 * row normalised, and its prefix sum.  src: Distributions.cpp multinomial_out,
 * cuda/MultinomialKernel.cu */
void plim_kernel_multinomial(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_meta xm = *plim_m_meta(m, x),
              flags = plim_meta_make(PLIM_BOOL, PLIM_MAX(xm.rank - 1, 0), xm.dim);
    int64_t samples = plim_arg_int(c, 1, 1), classes = xm.rank ? plim_dim_at(&xm, -1) : 1;
    if (xm.rank < 1)
        return;
    if (samples > 1 && plim_arg_int(c, 2, 0)) {
        plim_t share = plim_m_empty_like(m, x), sum = plim_m_empty_like(m, x);
        plim_m_drop(m, sum);
        plim_m_drop(m, share);
        return;
    }
    plim_t low = plim_m_empty_contig(m, xm.dtype, 0, NULL),
           high = plim_m_empty_contig(m, xm.dtype, 0, NULL);
    plim_reduce_pair_scratch(m, &xm);
    plim_t less = plim_m_empty_contig(m, PLIM_BOOL, 0, NULL),
           least = plim_m_empty_contig(m, PLIM_BOOL, 0, NULL),
           valid = plim_m_empty_contig(m, PLIM_BOOL, 0, NULL);
    plim_m_drop(m, least);
    plim_m_drop(m, less);
    plim_t sum = plim_m_empty_contig(m, xm.dtype, xm.rank - 1, xm.dim),
           none = plim_m_empty(m, &flags), any = plim_m_empty_contig(m, PLIM_BOOL, 0, NULL);
    plim_m_drop(m, none);
    plim_m_drop(m, sum);
    plim_m_drop(m, plim_m_empty_contig(m, PLIM_BOOL, 0, NULL));
    plim_t noise = plim_m_empty_like(m, x);
    if (samples > 1) {
        plim_meta most = xm;
        plim_set_dim(&most, -1, samples);
        plim_t values = plim_m_empty_contig(m, xm.dtype, most.rank, most.dim);
        topk_inside(m, &xm, classes);
        plim_m_drop(m, values);
    }
    plim_t all[] = {noise, any, valid, high, low};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
}

/* ---- running sums and products ------------------------------------------------------------ */

/* One long vector is scanned by cub.  src: cuda/ScanUtils.cuh scan_dim */
static void scan_inside(plim_machine *m, const plim_meta *x, int64_t slice, plim_dtype t)
{
    uint64_t n = sort_numel(x);
    if (n && n == (uint64_t)slice)
        plim_cub_scan(m, n, plim_dtype_bytes(t));
}

/* x is cast or made contiguous first. */
static void scan_kernel(plim_machine *m, plim_t x, int32_t d, plim_dtype t)
{
    plim_meta xm = *plim_m_meta(m, x), out = plim_meta_make(t, xm.rank, xm.dim);
    plim_t tmp = xm.dtype != t ? plim_m_empty(m, &out) : plim_contiguous_tmp(m, x);
    scan_inside(m, &xm, dim_length(&xm, d), t);
    plim_m_drop(m, tmp);
}
/* A scan of x along d. */
static plim_t scan_tensor(plim_machine *m, plim_t x, int32_t d, plim_dtype t)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_t y = plim_m_empty_contig(m, t, xm->rank, xm->dim);
    scan_kernel(m, x, d, t);
    return y;
}

/* x.flip(d).cumsum(d).flip(d) */
static plim_t reversed_scan(plim_machine *m, plim_t x, int32_t d)
{
    plim_t flipped = plim_m_empty_like(m, x);
    plim_t sum = scan_tensor(m, flipped, d, plim_m_meta(m, x)->dtype),
           y = plim_m_empty_like(m, sum);
    plim_m_drop(m, sum);
    plim_m_drop(m, flipped);
    return y;
}

static bool scan_trivial(const plim_meta *x, int32_t d)
{
    return sort_numel(x) <= 1 || dim_length(x, d) == 1;
}

enum { SCAN_DIM }; /* in gnode.i */

static void cumsum_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    int32_t d = (int32_t)n->i[SCAN_DIM];
    dx[0] = scan_trivial(plim_m_meta(m, g[0]), d) ? plim_m_ref(m, g[0])
                                                  : reversed_scan(m, g[0], d);
}
static const plim_grad_fn cumsum_fn = {"CumsumBackward0", cumsum_backward};

/* g y summed in reverse, divided by x, which is assumed to have no zeros.
 * src: FunctionsManual.cpp cumprod_backward */
static void cumprod_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    int32_t d = (int32_t)n->i[SCAN_DIM];
    plim_t x = plim_m_saved(m, n, 1);
    plim_meta mask = plim_meta_like(plim_m_meta(m, x), PLIM_BOOL);
    if (scan_trivial(plim_m_meta(m, x), d)) {
        dx[0] = plim_m_ref(m, g[0]);
        return;
    }
    plim_t w = plim_iter_out(m, g[0], 0), zero = plim_m_empty(m, &mask);
    plim_t any = plim_m_empty_contig(m, PLIM_BOOL, 0, NULL);
    plim_m_reduce(m, &mask, (1u << mask.rank) - 1, PLIM_PARTIAL_FLAG, PLIM_BOOL);
    plim_m_drop(m, any);
    plim_t sum = reversed_scan(m, w, d);
    dx[0] = plim_m_empty_like(m, sum);
    plim_m_drop(m, sum);
    plim_m_drop(m, zero);
    plim_m_drop(m, w);
}
static const plim_grad_fn cumprod_fn = {"CumprodBackward0", cumprod_backward};

/* The result's dtype: integers are summed in 64 bits. */
static plim_dtype scan_dtype(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    plim_dtype t =
        plim_is_float(plim_m_meta(c->m, x)->dtype) ? plim_m_autocast_out(c->m, x) : PLIM_I64;
    return plim_arg_dtype(c, 2, t);
}
static int32_t scan_dim(plim_call *c)
{
    return plim_wrap_dim(c->m, plim_arg_int(c, 1, 0),
                         plim_m_meta(c->m, plim_arg_tensor(c, 0))->rank);
}

void plim_kernel_scan(plim_call *c)
{
    scan_kernel(c->m, plim_arg_tensor(c, 0), scan_dim(c), scan_dtype(c));
}

static void run_scan(plim_call *c, const plim_grad_fn *fn)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int32_t d = scan_dim(c);
    plim_gnode *n = plim_m_node(m, fn, 1, &x);
    if (n)
        n->i[SCAN_DIM] = d;
    if (fn == &cumprod_fn)
        plim_m_save(m, n, 1, x);
    plim_t y = scan_tensor(m, x, d, scan_dtype(c));
    if (fn == &cumprod_fn)
        plim_m_save(m, n, 0, y);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
void plim_run_cumsum(plim_call *c) { run_scan(c, &cumsum_fn); }
void plim_run_cumprod(plim_call *c) { run_scan(c, &cumprod_fn); }

/* ---- counts ------------------------------------------------------------------------------- */

/* Zeros that a kernel adds into.  src: cuda/SummaryOps.cu */
void plim_run_histc(plim_call *c)
{
    plim_dtype t = plim_m_meta(c->m, plim_arg_tensor(c, 0))->dtype;
    plim_ret(c, plim_m_empty_contig(c->m, t, 1, (int64_t[]){plim_arg_int(c, 1, 100)}));
}

/* Zeros that ones are scattered into.  src: Onehot.cpp */
void plim_run_one_hot(plim_call *c)
{
    plim_meta out = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    int64_t classes = plim_arg_int(c, 1, -1);
    if (classes < 0 || out.rank == PLIM_MAX_RANK) {
        plim_m_fail(
            c->m, PLIM_EUNSUPPORTED,
            "one_hot without num_classes: the size of the result depends on the values");
        return;
    }
    out.dim[out.rank++] = classes;
    plim_meta_contiguous(&out);
    plim_ret(c, plim_m_empty(c->m, &out));
}
