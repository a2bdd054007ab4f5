/* rules_index.c -- embedding, gather, advanced indexing.
 * src: docs/sources/operators.md 9; cuda/EmbeddingBackwardKernel.cu,
 * TensorAdvancedIndexing.cpp. */
#include "op/rules.h"

/* Up to this many indices the backward is one kernel with atomic adds; above, the indices are
 * sorted.  src: Embedding.cu embedding_dense_backward_cuda */
enum { EMBEDDING_SORT_ABOVE = 3072, EMBEDDING_ROWS_PER_THREAD = 10 };
enum { NO_PADDING = -1 };
enum { EMBEDDING_BY_FREQ, EMBEDDING_SPARSE, EMBEDDING_PADDING }; /* in gnode.i */

static plim_t index_words(plim_machine *m, uint64_t n, uint64_t bytes)
{
    return plim_m_scratch(m, plim_sat_mul(n, bytes));
}
static plim_t index_ids(plim_machine *m, uint64_t n) { return index_words(m, n, 8); }

/* Sorts n keys below `most` together with their positions: allocates the positions 0..n-1 and
 * cub's temporaries.  src: cub-RadixSortPairs.cuh */
static void index_sort(plim_machine *m, uint64_t n, uint64_t most, uint64_t bytes)
{
    enum { ONE_BLOCK_OF_32_BITS = 4096 }; /* at least: tests/golden/cuda */
    plim_t range = index_words(m, n, bytes);
    const uint64_t all = PLIM_MIN(8 * bytes, 64);
    uint64_t bits = 1;
    while (bits < all && most >> bits)
        bits++;
    if (bytes == 4 && n <= ONE_BLOCK_OF_32_BITS)
        plim_m_drop(m, plim_m_scratch(m, 1));
    else
        plim_cub_sort(m, n, bytes, bits, true);
    plim_m_drop(m, range);
}

/* Whether the partial sums of few rows with many indices each are added to the result at once, not
 * kept in a buffer.  src: EmbeddingBackwardKernel.cu use_fused_kernel; tests/golden/cuda */
static bool embedding_is_long(plim_machine *m, uint64_t segs, uint64_t parts, uint64_t D)
{
    enum { WARP = 32, MOST_THREADS = 1024, LONG = 4, FEW = 4 };
    const uint64_t threads = plim_ceil_div(D, WARP) * WARP,
                   blocks = plim_ceil_div(plim_sat_mul(segs, threads),
                                          PLIM_MAX(PLIM_MIN(threads, MOST_THREADS), 1));
    return plim_m_world(m)->torch >= PLIM_SINCE_EMBEDDING_LONG_SEGMENTS &&
           parts > plim_sat_mul(LONG, blocks) && blocks < FEW * (uint64_t)plim_m_sms(m, NULL);
}

/* What the keys of the sort are known to be below: older versions ask for all bits of them. */
static uint64_t embedding_keys(plim_machine *m, uint64_t rows)
{
    return plim_m_world(m)->torch >= PLIM_SINCE_EMBEDDING_SORTS_FEW_BITS ? rows : UINT64_MAX;
}

/* The path with sorting, in order; everything but dW is freed at the end.  bags: of embedding_bag. */
static plim_t embedding_sorted(plim_machine *m, uint64_t n, const plim_meta *w, bool by_freq,
                               bool bags, uint64_t bytes)
{
    uint64_t V = (uint64_t)w->dim[0], D = (uint64_t)w->dim[1];
    plim_t sorted = index_words(m, n, bytes), orig = index_words(m, n, bytes);
    index_sort(m, n, embedding_keys(m, V), bytes);
    plim_t count = by_freq ? index_words(m, n, bytes) : 0;
    for (int pass = 0; by_freq && pass < 2; pass++) /* from the front and from the back */
        plim_cub_scan(m, n, 8);
    plim_t dw = plim_m_empty(m, w);
    uint64_t segs = PLIM_MIN(n, V), parts = n / EMBEDDING_ROWS_PER_THREAD + segs;
    uint64_t acc = plim_dtype_bytes(w->dtype) == 2 ? 4 : plim_dtype_bytes(w->dtype);
    plim_t offsets = index_words(m, n, bytes), n_segs = index_ids(m, 1),
           keys = index_words(m, n, bytes);
    plim_cub_unique_by_key(m, n, bytes);
    plim_m_drop(m, keys);
    plim_t partials = index_words(m, segs, bytes), part_offsets = index_words(m, segs, bytes);
    plim_cub_scan(m, segs, bytes);
    plim_t n_parts = index_ids(m, 1), segment = index_words(m, parts, bytes);
    const bool at_once = !bags && embedding_is_long(m, segs, parts, D);
    plim_t part_segments = at_once ? index_words(m, parts, bytes) : 0,
           sums = !at_once                           ? plim_m_scratch(m, parts * D * acc)
                  : acc > plim_dtype_bytes(w->dtype) ? plim_m_scratch(m, V * D * acc)
                                                     : 0;
    plim_t all[] = {sums,   part_segments, segment, n_parts, part_offsets, partials,
                    n_segs, offsets,       count,   orig,    sorted};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return dw;
}

/* The meta of the table whose rows have the size of the last dim of g. */
static plim_meta table_of(const plim_meta *g, int64_t rows)
{
    return plim_meta_make(g->dtype, 2, (int64_t[]){rows, g->rank ? plim_dim_at(g, -1) : 1});
}

plim_t plim_at_embedding_gradient(plim_machine *m, plim_t g, plim_t idx, int64_t rows,
                                  bool by_freq)
{
    uint64_t count = 0;
    plim_meta w = table_of(plim_m_meta(m, g), rows);
    plim_meta_numel(plim_m_meta(m, idx), &count);
    plim_t ic = plim_contiguous_tmp(m, idx), gc = plim_contiguous_tmp(m, g);
    plim_t dw = count <= EMBEDDING_SORT_ABOVE && !by_freq
                    ? plim_m_empty(m, &w)
                    : embedding_sorted(m, count, &w, by_freq, false,
                                       plim_dtype_bytes(plim_m_meta(m, idx)->dtype));
    plim_m_drop(m, gc);
    plim_m_drop(m, ic);
    return dw;
}
void plim_kernel_embedding_backward(plim_call *c)
{
    c->out[0] = plim_at_embedding_gradient(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                                           plim_arg_int(c, 2, 0), plim_arg_int(c, 3, 0));
    c->n_out = 1;
}

/* The elements of x that a mask over all dims of `mask` selects, assumed to be all: [n, ...].
 * src: IndexingUtils.h expandTensors */
static plim_t masked_rows(plim_machine *m, plim_t x, const plim_meta *mask)
{
    const plim_meta *xm = plim_m_meta(m, x);
    uint64_t n = 0;
    plim_meta_numel(mask, &n);
    plim_meta rows = plim_meta_make(xm->dtype, 1, (int64_t[]){(int64_t)n}),
              places = plim_meta_make(PLIM_I64, 2, (int64_t[]){mask->rank, (int64_t)n});
    for (int32_t i = mask->rank; i < xm->rank; i++)
        rows.dim[rows.rank++] = xm->dim[i];
    plim_meta_contiguous(&rows);
    plim_t at = plim_m_empty_maybe(m, &places);
    plim_nonzero_scratch(m, n);
    plim_t y = plim_m_empty_maybe(m, &rows);
    plim_m_drop(m, at);
    return y;
}

/* One row of g for each index, without summing: views of both unless there is padding, whose
 * rows are left out.  src: Embedding.cpp embedding_sparse_backward */
static plim_t embedding_sparse(plim_machine *m, plim_t g, plim_t idx, int64_t rows,
                               int64_t padding)
{
    const plim_meta *all = plim_m_meta(m, idx);
    plim_meta w = table_of(plim_m_meta(m, g), rows);
    bool padded = padding != NO_PADDING;
    plim_t mask = padded ? plim_m_empty_contig(m, PLIM_BOOL, all->rank, all->dim) : 0,
           at = padded ? masked_rows(m, idx, all) : plim_m_ref(m, idx),
           from = padded ? masked_rows(m, g, all) : plim_m_ref(m, g);
    plim_m_drop(m, mask);
    plim_t flat = plim_at_reshape(m, at, 2, (int64_t[]){1, -1}),
           values = plim_at_reshape(m, from, 2, (int64_t[]){-1, w.dim[1]}),
           indices = plim_at_to(m, flat, PLIM_I64);
    plim_m_drop(m, flat);
    plim_m_drop(m, from);
    plim_m_drop(m, at);
    return plim_m_sparse(m, &w, indices, values, false);
}

static bool sparse_ok(plim_machine *m, bool sparse, bool by_freq)
{
    if (sparse && by_freq)
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "scale_grad_by_freq is not supported with sparse gradients");
    return !plim_m_bad(m);
}

static void embedding_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    int64_t rows = n->in_meta[0].dim[0];
    plim_t idx = plim_m_saved(m, n, 0);
    dx[0] = n->i[EMBEDDING_SPARSE]
                ? embedding_sparse(m, g[0], idx, rows, n->i[EMBEDDING_PADDING])
                : plim_at_embedding_gradient(m, g[0], idx, rows, n->i[EMBEDDING_BY_FREQ]);
}
static const plim_grad_fn embedding_fn = {"EmbeddingBackward0", embedding_backward};

void plim_run_embedding(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t w = plim_arg_tensor(c, 0), idx = plim_arg_tensor(c, 1);
    const plim_meta *wm = plim_m_meta(m, w), *im = plim_m_meta(m, idx);
    plim_meta out = *im;
    bool by_freq = plim_arg_int(c, 3, 0), sparse = plim_arg_int(c, 4, 0);
    if (wm->rank != 2 || im->rank == PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_ESHAPE, "embedding: a weight of rank %d with indices of rank %d",
                    (int)wm->rank, (int)im->rank);
        return;
    }
    if (!sparse_ok(m, sparse, by_freq))
        return;
    out.dtype = wm->dtype;
    out.dim[out.rank++] = wm->dim[1];
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &embedding_fn, 1, &w);
    if (n) {
        n->i[EMBEDDING_BY_FREQ] = by_freq;
        n->i[EMBEDDING_SPARSE] = sparse;
        n->i[EMBEDDING_PADDING] = plim_arg_int(c, 2, NO_PADDING);
    }
    plim_m_save(m, n, 0, idx);
    plim_t flat = im->rank == 1 ? plim_m_ref(m, idx) /* index_select(0, indices.reshape(-1)) */
                                : plim_at_reshape(m, idx, 1, (int64_t[]){-1});
    plim_t y = plim_m_empty(m, &out);
    plim_m_drop(m, flat);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- bags: output, which bag each index is in, the bags' sizes, where the largest was */

enum { BAG_SUM, BAG_MEAN, BAG_MAX }; /* mode */
enum { BAG_OUT, BAG_OF, BAG_SIZES, BAG_LARGEST, BAG_OUTS };

/* src: cuda/EmbeddingBag.cu */
static void bag_kernel(plim_machine *m, plim_t weight, plim_t indices, plim_t offsets,
                       int64_t mode, bool last_offset, plim_t *out)
{
    const plim_meta w = *plim_m_meta(m, weight), i = *plim_m_meta(m, indices),
                    off = *plim_m_meta(m, offsets);
    if (w.rank != 2 || i.rank != 1 || off.rank != 1 || off.dim[0] < last_offset) {
        plim_m_fail(
            m, PLIM_ESHAPE,
            "embedding_bag: a weight of rank %d with indices of rank %d, offsets of rank %d",
            (int)w.rank, (int)i.rank, (int)off.rank);
        return;
    }
    int64_t bags[2] = {off.dim[0] - last_offset, w.dim[1]};
    out[BAG_SIZES] = plim_m_empty_contig(m, i.dtype, off.rank, off.dim);
    out[BAG_OF] = plim_m_empty_contig(m, i.dtype, 1, i.dim);
    out[BAG_OUT] = plim_m_empty_contig(m, w.dtype, 2, bags);
    out[BAG_LARGEST] = mode == BAG_MAX ? plim_m_empty_contig(m, i.dtype, 2, bags)
                                       : plim_m_empty_contig(m, i.dtype, 1, (int64_t[]){0});
}
void plim_kernel_embedding_bag(plim_call *c)
{
    bag_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2),
               plim_arg_int(c, 3, 0), plim_arg_int(c, 4, 0), c->out);
    c->n_out = BAG_OUTS;
}

/* As for embedding, but always sorted; in max mode only zeros of dW. */
static plim_t bag_dense(plim_machine *m, plim_t g, plim_t indices, int64_t rows, bool by_freq,
                        int64_t mode)
{
    const plim_meta *i = plim_m_meta(m, indices);
    plim_meta w = table_of(plim_m_meta(m, g), rows);
    uint64_t n = 0;
    plim_meta_numel(i, &n);
    return mode == BAG_MAX || !n
               ? plim_m_empty(m, &w)
               : embedding_sorted(m, n, &w, by_freq, true, plim_dtype_bytes(i->dtype));
}
void plim_kernel_embedding_bag_backward(plim_call *c)
{
    c->out[0] = bag_dense(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                          plim_arg_int(c, 2, 0), plim_arg_int(c, 3, 0), plim_arg_int(c, 4, 0));
    c->n_out = 1;
}

enum { BAG_INDICES, BAG_SAVED_OF, BAG_SAVED_SIZES }; /* saved; the first of them */
enum { BAG_MODE = EMBEDDING_PADDING + 1 };           /* in gnode.i, after embedding's */

/* The gradient of each bag for each of its rows, divided by their number for a mean.
 * src: EmbeddingBag.cpp _embedding_bag_sparse_backward, apply_bag_size_backward */
static plim_t bag_sparse(plim_machine *m, plim_gnode *n, plim_t g, plim_t indices)
{
    const plim_meta gm = *plim_m_meta(m, g), i = *plim_m_meta(m, indices),
                    sizes = *plim_m_meta(m, plim_m_saved(m, n, BAG_SAVED_SIZES));
    int64_t rows[2] = {i.dim[0], gm.dim[1]};
    plim_t each = plim_m_empty_contig(m, gm.dtype, 2, rows);
    if (n->i[BAG_MODE] == BAG_MEAN) {
        plim_t size = plim_m_empty_contig(m, gm.dtype, 1, sizes.dim),
               inverse = plim_m_empty_contig(m, gm.dtype, 1, sizes.dim),
               of_each = plim_m_empty_contig(m, gm.dtype, 1, rows);
        plim_m_drop(m, inverse);
        plim_m_drop(m, size);
        plim_m_drop(m, of_each);
    }
    plim_t dw =
        embedding_sparse(m, each, indices, n->in_meta[0].dim[0], n->i[EMBEDDING_PADDING]);
    plim_m_drop(m, each);
    return dw;
}

/* The gradient of per_sample_weights first. */
static void bag_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t indices = plim_m_saved(m, n, BAG_INDICES);
    int64_t rows = n->in_meta[0].dim[0];
    if (n->n_in > 1 && plim_m_wants(m, n, 1))
        dx[1] = plim_m_empty_contig(m, plim_m_meta(m, g[0])->dtype, 1, n->in_meta[1].dim);
    if (!plim_m_wants(m, n, 0))
        return;
    if (n->i[EMBEDDING_SPARSE]) {
        dx[0] = bag_sparse(m, n, g[0], indices);
    } else {
        plim_t gc = plim_contiguous_tmp(m, g[0]);
        dx[0] = bag_dense(m, gc, indices, rows, n->i[EMBEDDING_BY_FREQ], n->i[BAG_MODE]);
        plim_m_drop(m, gc);
    }
}
static const plim_grad_fn bag_fn = {"EmbeddingBagBackward0", bag_backward};

void plim_run_embedding_bag(plim_call *c)
{
    enum { WEIGHT, INDICES, OFFSETS, BY_FREQ, MODE, SPARSE, PER_SAMPLE, LAST, PADDING };
    plim_machine *m = c->m;
    bool by_freq = plim_arg_int(c, BY_FREQ, 0), sparse = plim_arg_int(c, SPARSE, 0);
    int64_t mode = plim_arg_int(c, MODE, BAG_SUM);
    plim_t in[] = {plim_arg_tensor(c, WEIGHT), plim_arg_tensor(c, PER_SAMPLE)};
    plim_t indices = plim_contiguous_tmp(m, plim_arg_tensor(c, INDICES)),
           offsets = plim_contiguous_tmp(m, plim_arg_tensor(c, OFFSETS)), out[BAG_OUTS] = {0};
    if (!sparse_ok(m, sparse, by_freq))
        return;
    plim_gnode *n = plim_m_node(m, &bag_fn, in[1] ? 2 : 1, in);
    if (n) {
        n->i[EMBEDDING_BY_FREQ] = by_freq;
        n->i[EMBEDDING_SPARSE] = sparse;
        n->i[EMBEDDING_PADDING] = plim_arg_int(c, PADDING, NO_PADDING);
        n->i[BAG_MODE] = mode;
    }
    bag_kernel(m, in[0], indices, offsets, mode, plim_arg_int(c, LAST, 0), out);
    bool for_weights = n && n->n_in > 1 && plim_m_wants(m, n, 1);
    plim_t saved[] = {indices, out[BAG_OF], out[BAG_SIZES],         out[BAG_LARGEST],
                      offsets, in[1],       for_weights ? in[0] : 0};
    for (uint32_t i = 0; i < PLIM_COUNT(saved); i++)
        plim_m_save(m, n, i, saved[i]);
    plim_m_output(m, n, BAG_OUT, out[BAG_OUT]);
    plim_m_drop(m, offsets);
    plim_m_drop(m, indices);
    plim_rets(c, out, BAG_OUTS);
}

/* ---- zeros of the input, then the part added in place --------------------------------- */

static const plim_grad_fn index_select_fn = {"IndexSelectBackward0", plim_backward_fresh};
static const plim_grad_fn gather_fn = {"GatherBackward0", plim_backward_fresh};

void plim_run_index_select(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), idx = plim_arg_tensor(c, 2);
    plim_meta out = *plim_m_meta(m, x);
    int32_t d = plim_wrap_dim(m, plim_arg_int(c, 1, 0), out.rank);
    out.dim[d] = plim_m_meta(m, idx)->rank ? plim_m_meta(m, idx)->dim[0] : 1;
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &index_select_fn, 1, &x);
    plim_m_save(m, n, 0, idx);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

static void run_gather(plim_call *c, plim_t idx)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    const plim_meta *im = plim_m_meta(m, idx);
    plim_gnode *n = plim_m_node(m, &gather_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, idx);
    plim_t y = plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, im->rank, im->dim);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

void plim_run_gather(plim_call *c)
{
    if (plim_arg_int(c, 3, 0))
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "gather with a sparse gradient has no rule");
    run_gather(c, plim_arg_tensor(c, 2));
}

/* The remainder that maps negative indices to positive ones is a tensor. */
void plim_run_take_along(plim_call *c)
{
    plim_t idx = plim_arg_tensor(c, 1);
    idx = plim_m_world(c->m)->torch >= PLIM_SINCE_TAKE_ALONG_REMAINDER
              ? plim_m_empty_like(c->m, idx)
              : plim_m_ref(c->m, idx);
    run_gather(c, idx);
    plim_m_drop(c->m, idx);
}

/* cub counts the elements, and the host waits for the result: partial counts of as many blocks
 * of 256 as run at once, five times over.  Then the positions are written: a state for each
 * tile, and for the lanes of a warp before them.  Tile sizes were measured on three cards.
 * src: cuda/Nonzero.cu, tests/golden/cuda */
void plim_nonzero_scratch(plim_machine *m, uint64_t n)
{
    enum { SHORT = 1024, LANES = 32, STATE = 8, BLOCK = 256, ROUNDS = 5 };
    int threads = 0;
    const plim_world *w = plim_m_world(m);
    uint64_t tile = plim_world_since(w, 90) ? 4224 : plim_world_is(w, 89) ? 640 : 2304;
    plim_t count = plim_m_scratch(m, 4);
    if (n <= SHORT) {
        plim_m_drop(m, plim_m_scratch(m, 1));
    } else {
        uint64_t sms = (uint64_t)plim_m_sms(m, &threads);
        uint64_t blocks = sms * ((uint64_t)threads / BLOCK) * ROUNDS;
        plim_m_drop(m, plim_m_scratch_by_sms(m, (blocks * 4 + 255) / 256 * 256 + 255));
    }
    uint64_t state = ((n + tile - 1) / tile + LANES) * STATE;
    plim_m_drop(m, plim_m_scratch(m, (state + 255) / 256 * 256 + 511));
    plim_m_drop(m, count);
}
void plim_kernel_nonzero(plim_call *c)
{
    uint64_t n = 0;
    plim_meta_numel(plim_m_meta(c->m, plim_arg_tensor(c, 0)), &n);
    plim_nonzero_scratch(c->m, n);
}

/* Index tensors are broadcast to one shape, which replaces the indexed dims at the first of
 * them (or goes to the front if they are not adjacent). */
static bool index_meta(plim_machine *m, const plim_meta *x, const plim_t *idx, uint32_t k,
                       plim_meta *result)
{
    plim_meta ix = {.dtype = PLIM_I64}, out = {.dtype = x->dtype};
    int32_t first = -1, last = -1, used = 0;
    for (int32_t i = 0; i < (int32_t)k; i++) {
        if (!idx[i])
            continue;
        const plim_meta *im = plim_m_meta(m, idx[i]);
        if (im->dtype == PLIM_BOOL || !plim_broadcast(&ix, im, &ix)) {
            plim_m_fail(
                m, PLIM_EUNSUPPORTED,
                "indexing by a bool mask: the size of the result depends on its values");
            return false;
        }
        first = first < 0 ? i : first;
        last = i;
        used++;
    }
    if (first < 0 || (int32_t)k > x->rank || x->rank - used + ix.rank > PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_ESHAPE, "%u indices for a tensor of rank %d", (unsigned)k,
                    (int)x->rank);
        return false;
    }
    int32_t place = last - first + 1 == used ? first : 0;
    for (int32_t i = 0; i <= x->rank; i++) {
        if (out.rank == place && i >= (place == first ? first : 0) && used) {
            for (int32_t d = 0; d < ix.rank; d++)
                out.dim[out.rank++] = ix.dim[d];
            used = 0;
        }
        if (i < x->rank && (i >= (int32_t)k || !idx[i]))
            out.dim[out.rank++] = x->dim[i];
    }
    plim_meta_contiguous(&out);
    *result = out;
    return true;
}

/* wide[i]: idx[i] (0: none) broadcast to the shape of all. */
static void expand_indices(plim_machine *m, const plim_t *idx, uint32_t k, plim_t *wide)
{
    plim_meta shape = {.dtype = PLIM_I64};
    for (uint32_t i = 0; i < k; i++)
        if (idx[i])
            plim_broadcast(&shape, plim_m_meta(m, idx[i]), &shape);
    for (uint32_t i = 0; i < k; i++)
        wide[i] = idx[i] ? plim_at_expand(m, idx[i], shape.rank, shape.dim) : 0;
}

/* CUDA's kernel wants index tensors of equal strides: where they differ once all are broadcast,
 * those that are not contiguous are copied.
 * src: TensorAdvancedIndexing.cpp AdvancedIndex */
static void align_indices(plim_machine *m, const plim_t *idx, uint32_t k, plim_t *copies)
{
    const plim_meta *first = NULL;
    bool equal = true;
    expand_indices(m, idx, k, copies);
    for (uint32_t i = 0; i < k; i++)
        if (copies[i]) {
            const plim_meta *x = plim_m_meta(m, copies[i]);
            first = first ? first : x;
            equal = equal && memcmp(x->stride, first->stride,
                                    sizeof x->stride[0] * (size_t)x->rank) == 0;
        }
    for (uint32_t i = 0; i < k && !equal; i++)
        if (copies[i]) {
            plim_t copy = plim_contiguous_tmp(m, copies[i]);
            plim_m_drop(m, copies[i]);
            copies[i] = copy;
        }
}

static void drop_all(plim_machine *m, const plim_t *t, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        plim_m_drop(m, t[i]);
}

/* Checks that an index is within bounds: two scalars, compared, and the host waits. */
static void index_bounds(plim_machine *m, plim_t idx)
{
    const plim_meta x = *plim_m_meta(m, idx);
    plim_t low = plim_m_empty_contig(m, x.dtype, 0, NULL),
           high = plim_m_empty_contig(m, x.dtype, 0, NULL),
           dense = plim_contiguous_tmp(m, idx);
    plim_reduce_pair_scratch(m, &x);
    plim_m_drop(m, dense);
    for (int side = 0; side < 2; side++)
        plim_m_drop(m, plim_m_empty_contig(m, PLIM_BOOL, 0, NULL));
    plim_m_drop(m, high);
    plim_m_drop(m, low);
}

/* The values, expanded to the size of what they are written to, in one piece. */
static plim_t dense_values(plim_machine *m, plim_t values, const plim_meta *part)
{
    const plim_meta *v = plim_m_meta(m, values);
    uint64_t n = 0, all = 0;
    plim_meta_numel(v, &n);
    plim_meta_numel(part, &all);
    return n < all ? plim_m_empty_contig(m, v->dtype, part->rank, part->dim)
                   : plim_contiguous_tmp(m, values);
}

/* index_put with accumulate sorts linear indices, to which each further index tensor is added.
 * idx[i] (0: none) indexes dim i of x; all are broadcast to one shape.
 * src: cuda/Indexing.cu computeLinearIndex, index_put_with_sort_kernel */
static void index_put_inside(plim_machine *m, const plim_meta *x, const plim_t *idx,
                             uint32_t k, plim_t values, bool checked)
{
    plim_meta part;
    plim_t wide[PLIM_MAX_RANK], linear = 0;
    uint64_t count = 0, most = 1;
    if (!index_meta(m, x, idx, k, &part))
        return;
    expand_indices(m, idx, k, wide);
    for (uint32_t i = 0; i < k; i++) {
        if (!wide[i])
            continue;
        plim_meta_numel(plim_m_meta(m, wide[i]), &count);
        most = plim_sat_mul(most, (uint64_t)x->dim[i]);
        if (checked)
            index_bounds(m, wide[i]);
        plim_t wrapped = index_ids(m, count), product = index_ids(m, count);
        plim_m_drop(m, wrapped);
        if (linear)
            plim_m_drop(m, product);
        else
            linear = product;
    }
    drop_all(m, wide, k);
    plim_t dense = dense_values(m, values, &part);
    plim_t sorted = index_ids(m, count), orig = index_ids(m, count);
    index_sort(m, count, most, 8);
    plim_m_drop(m, orig);
    plim_m_drop(m, sorted);
    plim_m_drop(m, dense);
    plim_m_drop(m, linear);
}

void plim_kernel_index_put(plim_call *c)
{
    plim_t idx[PLIM_MAX_RANK] = {0};
    uint32_t k = plim_arg_tensors(c, 1, idx, PLIM_MAX_RANK);
    if (plim_arg_int(c, 3, 0))
        index_put_inside(c->m, plim_m_meta(c->m, plim_arg_tensor(c, 0)), idx, k,
                         plim_arg_tensor(c, 2), !plim_arg_int(c, 4, 0));
}

/* What stands in place of a mask: n indices from `at` on, views of `found`. */
typedef struct expanded {
    plim_t found; /* 0: there is no mask */
    uint32_t at, n;
} expanded;

/* idx[0..*k) of given[0..*k): in place of a mask that is true `count` times the positions where it is, an index for each
 * of its dims; *k: how many there are then.
 * src: native/IndexingUtils.h, expandTensors */
static expanded expand_mask(plim_machine *m, const plim_t *given, plim_t *idx, uint32_t *k,
                            int64_t count)
{
    expanded e = {0, 0, 0};
    memcpy(idx, given, PLIM_MAX_RANK * sizeof *idx);
    while (e.at < *k && !(given[e.at] && plim_m_meta(m, given[e.at])->dtype == PLIM_BOOL))
        e.at++;
    const uint32_t rank = e.at < *k ? (uint32_t)plim_m_meta(m, given[e.at])->rank : 0;
    if (count < 1 || !rank || *k + rank - 1 > PLIM_MAX_RANK)
        return e;
    const int64_t dims[2] = {rank, count};
    e.found = plim_m_empty_contig(m, PLIM_I64, 2, dims);
    e.n = rank;
    plim_meta row = *plim_m_meta(m, e.found);
    row.rank = 1;
    row.dim[0] = count;
    row.stride[0] = 1;
    for (uint32_t i = e.at + 1; i < *k; i++)
        idx[i + rank - 1] = given[i];
    for (uint32_t i = 0; i < rank; i++)
        idx[e.at + i] = plim_m_alias(m, e.found, &row);
    *k += rank - 1;
    return e;
}

static void drop_expanded(plim_machine *m, const plim_t *idx, expanded e)
{
    drop_all(m, idx + e.at, e.n);
    plim_m_drop(m, e.found);
}

/* Each index is saved in the slot of its dim, a mask as it is: it is expanded again. */
static void index_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t saved[PLIM_MAX_RANK], idx[PLIM_MAX_RANK];
    uint32_t k = (uint32_t)n->in_meta[0].rank;
    for (uint32_t i = 0; i < PLIM_MAX_RANK; i++)
        saved[i] = plim_m_saved(m, n, i);
    plim_backward_fresh(m, n, g, dx);
    const expanded e = expand_mask(m, saved, idx, &k, n->i[0]);
    index_put_inside(m, &n->in_meta[0], idx, PLIM_MIN(k, (uint32_t)n->in_meta[0].rank), g[0],
                     false);
    drop_expanded(m, idx, e);
}
static const plim_grad_fn index_fn = {"IndexBackward0", index_backward};

void plim_run_index(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), given[PLIM_MAX_RANK] = {0}, idx[PLIM_MAX_RANK],
           copies[PLIM_MAX_RANK];
    const uint32_t n_given = plim_arg_tensors(c, 1, given, PLIM_MAX_RANK);
    uint32_t k = n_given;
    plim_meta out;
    const expanded e = expand_mask(m, given, idx, &k, plim_arg_int(c, 2, 0));
    if (!index_meta(m, plim_m_meta(m, x), idx, k, &out))
        return;
    plim_gnode *n = plim_m_node(m, &index_fn, 1, &x);
    for (uint32_t i = 0; i < n_given; i++)
        plim_m_save(m, n, i, given[i]);
    if (n)
        n->i[0] = plim_arg_int(c, 2, 0);
    align_indices(m, idx, k, copies);
    plim_t y = plim_m_empty(m, &out);
    drop_all(m, copies, k);
    drop_expanded(m, idx, e);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- a copy with some places written ---------------------------------------------------- */

/* g at the written positions, in the size of what was written. */
static plim_t scattered_grad(plim_machine *m, plim_gnode *n, plim_t g)
{
    return plim_m_wants(m, n, 1) ? plim_m_empty_contig(m, plim_m_meta(m, g)->dtype,
                                                       n->in_meta[1].rank, n->in_meta[1].dim)
                                 : 0;
}
/* The same, expanded to the size it already has: a view. */
static plim_t expanded_rows(plim_machine *m, plim_gnode *n, plim_t g)
{
    plim_t rows = scattered_grad(m, n, g),
           y = rows ? plim_m_alias(m, rows, plim_m_meta(m, rows)) : 0;
    plim_m_drop(m, rows);
    return y;
}

enum { PLACED_ADDS, PLACED_ROWS }; /* i: values are added; values are whole rows */

/* The gradient of the copy is a copy of g with zeros at the positions, or g itself if the op
 * adds. */
static void placed_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    if (plim_m_wants(m, n, 0))
        dx[0] = n->i[PLACED_ADDS] ? plim_m_ref(m, g[0]) : plim_m_empty_like(m, g[0]);
    dx[1] = n->i[PLACED_ROWS] ? expanded_rows(m, n, g[0]) : scattered_grad(m, n, g[0]);
}
static const plim_grad_fn scatter_fn = {"ScatterBackward0", placed_backward};
static const plim_grad_fn scatter_add_fn = {"ScatterAddBackward0", placed_backward};
static const plim_grad_fn index_copy_fn = {"IndexCopyBackward0", placed_backward};
static const plim_grad_fn index_add_fn = {"IndexAddBackward0", placed_backward};

/* (self, dim, index, src): src may be a number.  For whole rows the formula saves src, to
 * expand to its size. */
static void run_placed(plim_call *c, const plim_grad_fn *fn, bool adds, bool rows)
{
    plim_machine *m = c->m;
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 3)};
    plim_gnode *n = plim_m_node(m, fn, in[1] ? 2 : 1, in);
    plim_m_save(m, n, 0, plim_arg_tensor(c, 2));
    if (n) {
        n->i[PLACED_ADDS] = adds;
        n->i[PLACED_ROWS] = rows;
    }
    if (n && rows && plim_m_wants(m, n, 1))
        plim_m_save(m, n, 1, in[1]);
    plim_t y;
    if (c->inplace) {
        y = plim_m_ref(m, in[0]);
        plim_m_rebase(m, n, y);
    } else {
        y = plim_m_empty_like(m, in[0]);
        plim_m_output(m, n, 0, y);
    }
    plim_ret(c, y);
}
void plim_run_scatter(plim_call *c) { run_placed(c, &scatter_fn, false, false); }
void plim_run_scatter_add(plim_call *c) { run_placed(c, &scatter_add_fn, true, false); }

/* self: a copy of g with zeros of the values' size written into it; values: g there */
static void index_put_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_dtype t = plim_m_meta(m, g[0])->dtype;
    if (plim_m_wants(m, n, 0)) {
        const plim_meta *v = &n->in_meta[1];
        plim_t zeros = plim_m_empty_contig(m, t, v->rank, v->dim);
        dx[0] = plim_m_empty_like(m, g[0]);
        plim_m_drop(m, zeros);
    }
    if (plim_m_wants(m, n, 1)) {
        plim_meta part = *n->meta;
        part.dtype = t;
        dx[1] = plim_m_empty(m, &part);
    }
}
static const plim_grad_fn index_put_fn = {"IndexPutBackward0", index_put_backward};

/* Whether an index is a bool mask, which only bounds the number of positions. */
static bool has_mask(plim_machine *m, const plim_t *idx, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        if (idx[i] && plim_m_meta(m, idx[i])->dtype == PLIM_BOOL)
            return true;
    return false;
}

void plim_run_index_put(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t given[PLIM_MAX_RANK] = {0}, in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 2)};
    plim_t idx[PLIM_MAX_RANK], copies[PLIM_MAX_RANK];
    const uint32_t n_given = plim_arg_tensors(c, 1, given, PLIM_MAX_RANK);
    uint32_t k = n_given;
    plim_meta part = {.rank = 0};
    const expanded e = expand_mask(m, given, idx, &k, plim_arg_int(c, 4, 0));
    if (has_mask(m, idx, k)) {
        uint64_t one = 0;
        plim_meta_numel(plim_m_meta(m, in[1]), &one);
        if (one != 1) {
            plim_m_fail(
                m, PLIM_EUNSUPPORTED,
                "indexing by a bool mask: the size of the result depends on its values");
            return;
        }
        part = *plim_m_meta(m, in[1]); /* done as masked_fill */
    } else if (!index_meta(m, plim_m_meta(m, in[0]), idx, k, &part)) {
        return;
    }
    plim_gnode *n = plim_m_node(m, &index_put_fn, 2, in);
    plim_m_note(m, n, &part);
    for (uint32_t i = 0; i < n_given; i++)
        plim_m_save(m, n, i, given[i]);
    plim_t y;
    if (c->inplace) {
        y = plim_m_ref(m, in[0]);
        plim_m_rebase(m, n, y);
    } else {
        y = plim_m_empty_like(m, in[0]);
        plim_m_output(m, n, 0, y);
    }
    if (plim_arg_int(c, 3, 0)) {
        index_put_inside(m, plim_m_meta(m, in[0]), idx, k, in[1], false);
    } else if (!has_mask(m, idx, k)) {
        align_indices(m, idx, k, copies);
        drop_all(m, copies, k);
    }
    drop_expanded(m, idx, e);
    plim_ret(c, y);
}

void plim_run_index_add(plim_call *c) { run_placed(c, &index_add_fn, true, true); }
void plim_run_index_copy(plim_call *c) { run_placed(c, &index_copy_fn, false, true); }

/* A copy, and a prefix sum over the mask for positions in the source.  The source's gradient
 * is g where the mask is set, which is counted first and assumed to be everywhere.
 * src: cuda/IndexKernel.cpp masked_scatter__cuda, FunctionsManual.cpp */
static void masked_scatter_backward(plim_machine *m, plim_gnode *n, const plim_t *g,
                                    plim_t *dx)
{
    plim_meta wide = plim_meta_like(plim_m_meta(m, g[0]), PLIM_I64);
    dx[0] = plim_m_wants(m, n, 0) ? plim_m_empty_like(m, g[0]) : 0;
    if (!plim_m_wants(m, n, 1))
        return;
    plim_t count = plim_m_empty_contig(m, PLIM_I64, 0, NULL), cast = plim_m_empty(m, &wide);
    plim_reduce_scratch(m, &wide, (1u << wide.rank) - 1);
    plim_m_drop(m, cast);
    plim_m_drop(m, count);
    dx[1] = scattered_grad(m, n, g[0]);
}
static const plim_grad_fn masked_scatter_fn = {"MaskedScatterBackward0",
                                               masked_scatter_backward};

void plim_run_masked_scatter(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 2)},
           mask = plim_arg_tensor(c, 1);
    plim_meta out = plim_iter_meta(m, in[0], mask, plim_m_meta(m, in[0])->dtype);
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &masked_scatter_fn, 2, in);
    plim_m_save(m, n, 0, mask);
    plim_t y = c->inplace ? plim_m_ref(m, in[0]) : plim_m_empty(m, &out);
    plim_t places = plim_m_scratch_of(m, PLIM_I64, out.rank, out.dim);
    plim_t whole = plim_same_size(plim_m_meta(m, mask), &out)
                       ? plim_contiguous_tmp(m, mask)
                       : plim_m_scratch_of(m, PLIM_BOOL, out.rank, out.dim);
    plim_t source = plim_contiguous_tmp(m, in[1]);
    plim_m_drop(m, source);
    plim_m_drop(m, whole);
    plim_m_drop(m, places);
    if (c->inplace)
        plim_m_rebase(m, n, y);
    else
        plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- an image at given places --------------------------------------------------------- */

/* Both gradients; that of the input starts as zeros.  src: GridSampler.cpp */
enum { GRID_GRID, GRID_INPUT };

static void grid_sample_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t x = plim_m_saved(m, n, GRID_INPUT), grid = plim_m_saved(m, n, GRID_GRID);
    (void)g;
    if (plim_m_wants(m, n, 0))
        dx[0] = plim_m_empty_like(m, x);
    dx[1] = plim_m_empty_like(m, grid);
}
static const plim_grad_fn grid_sample_fn = {"GridSampler2DBackward0", grid_sample_backward};

void plim_run_grid_sampler(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[2] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    const plim_meta *x = plim_m_meta(m, in[0]), *grid = plim_m_meta(m, in[1]);
    plim_meta out = *x;
    if (x->rank < 4 || x->rank > 5 || grid->rank != x->rank || x->dim[0] != grid->dim[0] ||
        plim_dim_at(grid, -1) != x->rank - 2) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "grid_sample: an input of rank %d does not match a grid of rank %d",
                    (int)x->rank, (int)grid->rank);
        return;
    }
    for (int32_t i = 2; i < x->rank; i++)
        out.dim[i] = grid->dim[i - 1];
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &grid_sample_fn, 2, in);
    plim_m_save(m, n, GRID_INPUT, in[0]);
    plim_m_save(m, n, GRID_GRID, in[1]);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
