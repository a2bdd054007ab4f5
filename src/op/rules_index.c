/* rules_index.c -- embedding, gather, advanced indexing.
 * src: facts training-step.md 3.9; cuda/EmbeddingBackwardKernel.cu,
 * TensorAdvancedIndexing.cpp. */
#include "op/rules.h"

/* Up to this many indices the backward is one kernel that adds atomically;
 * above, indices are sorted.  src: Embedding.cu embedding_dense_backward_cuda */
enum { EMBEDDING_SORT_ABOVE = 3072, EMBEDDING_ROWS_PER_THREAD = 10 };
enum { EMBEDDING_BY_FREQ }; /* in gnode.i: scale_grad_by_freq */

static plim_t index_ids(plim_machine *m, uint64_t n) { return plim_m_scratch(m, n * 8); }

/* n keys and their places sorted: the places 0..n-1, and room for the passes in
 * between, since cub may not overwrite what it reads.  src: cub-RadixSortPairs.cuh */
static void index_sort(plim_machine *m, uint64_t n)
{
    plim_t range = index_ids(m, n);
    plim_m_drop(m, plim_m_scratch_about(m, n * 16));
    plim_m_drop(m, range);
}

/* The sorted path, in order; everything but dW is gone at the end. */
static plim_t embedding_sorted(plim_machine *m, uint64_t n, const plim_meta *w, bool by_freq)
{
    uint64_t V = (uint64_t)w->dim[0], D = (uint64_t)w->dim[1];
    plim_t sorted = index_ids(m, n), orig = index_ids(m, n);
    index_sort(m, n);
    plim_t count = by_freq ? index_ids(m, n) : 0, dw = plim_m_empty(m, w);
    uint64_t segs = PLIM_MIN(n, V), parts = n / EMBEDDING_ROWS_PER_THREAD + segs;
    uint64_t acc = plim_dtype_bytes(w->dtype) == 2 ? 4 : plim_dtype_bytes(w->dtype);
    plim_t offsets = index_ids(m, n), n_segs = index_ids(m, 1), partials = index_ids(m, segs),
           part_offsets = index_ids(m, segs), n_parts = index_ids(m, 1);
    plim_t segment = index_ids(m, parts);
    plim_t per_segment = plim_m_scratch(m, parts * D * acc);
    plim_m_drop(m, per_segment);
    plim_t all[] = {segment, n_parts, part_offsets, partials, n_segs,
                    offsets, count,   orig,         sorted};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return dw;
}

static void embedding_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    uint64_t count = 0;
    plim_meta w = n->in_meta[0];
    w.dtype = plim_m_meta(m, g[0])->dtype;
    plim_meta_contiguous(&w);
    plim_meta_numel(plim_m_meta(m, plim_m_saved(m, n, 0)), &count);
    plim_t gc = plim_contiguous_tmp(m, g[0]);
    bool by_freq = n->i[EMBEDDING_BY_FREQ];
    dx[0] = count <= EMBEDDING_SORT_ABOVE && !by_freq
                ? plim_m_empty(m, &w)
                : embedding_sorted(m, count, &w, by_freq);
    plim_m_drop(m, gc);
}
static const plim_grad_fn embedding_fn = {"EmbeddingBackward0", embedding_backward};

void plim_run_embedding(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t w = plim_arg_tensor(c, 0), idx = plim_arg_tensor(c, 1);
    const plim_meta *wm = plim_m_meta(m, w), *im = plim_m_meta(m, idx);
    plim_meta out = *im;
    if (wm->rank != 2 || im->rank == PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_ESHAPE, "embedding of rank %d by indices of rank %d",
                    (int)wm->rank, (int)im->rank);
        return;
    }
    out.dtype = wm->dtype;
    out.dim[out.rank++] = wm->dim[1];
    plim_meta_contiguous(&out);
    if (plim_arg_int(c, 4, 0))
        plim_m_fail(m, PLIM_EUNSUPPORTED, "a sparse gradient has no rule");
    plim_gnode *n = plim_m_node(m, &embedding_fn, 1, &w);
    if (n)
        n->i[EMBEDDING_BY_FREQ] = plim_arg_int(c, 3, 0);
    plim_m_save(m, n, 0, idx);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
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

void plim_run_gather(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), idx = plim_arg_tensor(c, 2);
    const plim_meta *im = plim_m_meta(m, idx);
    plim_gnode *n = plim_m_node(m, &gather_fn, 1, &x);
    plim_m_save(m, n, 0, x);
    plim_m_save(m, n, 1, idx);
    plim_t y = plim_m_empty_contig(m, plim_m_meta(m, x)->dtype, im->rank, im->dim);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* x[idx]: index_put with accumulate sorts linear indices */
static void index_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    uint64_t count = 0;
    dx[0] = plim_m_empty_contig(m, plim_m_meta(m, g[0])->dtype, n->in_meta[0].rank,
                                n->in_meta[0].dim);
    plim_meta_numel(plim_m_meta(m, plim_m_saved(m, n, 0)), &count);
    plim_t linear = index_ids(m, count), sorted = index_ids(m, count),
           orig = index_ids(m, count);
    index_sort(m, count);
    plim_m_drop(m, orig);
    plim_m_drop(m, sorted);
    plim_m_drop(m, linear);
}
static const plim_grad_fn index_fn = {"IndexBackward0", index_backward};

/* Index tensors broadcast to one shape, which replaces the indexed dims where
 * the first stands (or goes first if they are not adjacent). */
void plim_run_index(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), idx[PLIM_MAX_RANK] = {0};
    plim_meta xm = *plim_m_meta(m, x), ix = {.dtype = PLIM_I64}, out = {.dtype = xm.dtype};
    uint32_t k = plim_arg_tensors(c, 1, idx, PLIM_MAX_RANK);
    int32_t first = -1, last = -1, used = 0;
    for (int32_t i = 0; i < (int32_t)k; i++) {
        if (!idx[i])
            continue;
        const plim_meta *im = plim_m_meta(m, idx[i]);
        if (im->dtype == PLIM_BOOL || !plim_broadcast(&ix, im, &ix)) {
            plim_m_fail(m, PLIM_EUNSUPPORTED,
                        "indexing by a mask has no size known beforehand");
            return;
        }
        first = first < 0 ? i : first;
        last = i;
        used++;
    }
    if (first < 0 || (int32_t)k > xm.rank || xm.rank - used + ix.rank > PLIM_MAX_RANK) {
        plim_m_fail(m, PLIM_ESHAPE, "%u indices into rank %d", (unsigned)k, (int)xm.rank);
        return;
    }
    int32_t at = last - first + 1 == used ? first : 0;
    for (int32_t i = 0; i <= xm.rank; i++) {
        if (out.rank == at && i >= (at == first ? first : 0) && used) {
            for (int32_t d = 0; d < ix.rank; d++)
                out.dim[out.rank++] = ix.dim[d];
            used = 0;
        }
        if (i < xm.rank && (i >= (int32_t)k || !idx[i]))
            out.dim[out.rank++] = xm.dim[i];
    }
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &index_fn, 1, &x);
    for (uint32_t i = (uint32_t)first, slot = 0; i < k && slot < PLIM_MAX_SAVED; i++)
        if (idx[i])
            plim_m_save(m, n, slot++, idx[i]);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
