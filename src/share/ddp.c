/* ddp.c -- DistributedDataParallel.
 *
 * Gradients are summed in buckets, flat buffers that live as long as the model: one for all in the
 * first iteration, then as many as their size asks for, filled in the order in which the first
 * backward pass made the gradients.  Without gradient_as_bucket_view they are a second copy.
 * src: torch 2.13 reducer.cpp, nn/parallel/distributed.py, c10d comm.hpp */
#include "share/strategy.h"

enum { BROADCAST_BUCKET = 250 << 20, MIB = 1 << 20 };
enum { USUAL_MIB = 25, USUAL_FIRST_MIB = 1 }; /* of buckets, if no size is given */

typedef struct ddp {
    plim_t *bucket; /* owned */
    uint32_t n_buckets;
    plim_t *ready; /* leaves, as their gradients came in the first backward pass; borrowed */
    uint32_t n_ready, n_leaves;
    bool view, rebuilt;
    bool skipped; /* the pass before did not exchange gradients */
} ddp;

/* compute_bucket_assignment_by_size: a bucket of one dtype is complete once it is as large as
 * the limit; the first limit is that of the first complete bucket. */
typedef struct filling {
    uint64_t numel, bytes;
    bool first_done;
} filling;

static void add_bucket(plim_shared *x, plim_dtype t, uint64_t numel)
{
    ddp *d = x->own;
    d->bucket[d->n_buckets++] = plim_share_flat(x, "bucket", PLIM_CAT_GRADIENT, t, numel);
}

static void fill_buckets(plim_shared *x, const plim_t *leaf, uint32_t n, uint64_t first,
                         uint64_t limit)
{
    filling open[PLIM_DTYPE_COUNT] = {0};
    for (uint32_t i = 0; i < n; i++) {
        plim_dtype t = plim_m_meta(x->m, leaf[i])->dtype;
        filling *f = &open[t];
        uint64_t numel = plim_share_numel(x, leaf[i]);
        f->numel += numel;
        f->bytes += numel * plim_dtype_bytes(t);
        if (f->bytes < (f->first_done ? limit : first))
            continue;
        add_bucket(x, t, f->numel);
        *f = (filling){.first_done = true};
    }
    for (int t = 0; t < PLIM_DTYPE_COUNT; t++)
        if (open[t].numel)
            add_bucket(x, (plim_dtype)t, open[t].numel);
}

/* Tensors of one dtype are broadcast as one, which is a copy unless it is a single one. */
static void broadcast_values(plim_shared *x, bool parameters)
{
    for (int t = 0; t < PLIM_DTYPE_COUNT; t++) {
        uint64_t numel = 0;
        uint32_t n = 0;
        for (uint32_t i = 0; i <= x->n_order; i++) {
            plim_t v = i < x->n_order ? x->value[x->order[i]] : 0;
            const plim_value *row = i < x->n_order ? &x->g->values[x->order[i]] : NULL;
            if (v && (int)plim_m_meta(x->m, v)->dtype == t && row->tied_to == PLIM_NONE &&
                row->kind != PLIM_VALUE_CONSTANT &&
                (parameters || row->kind == PLIM_VALUE_BUFFER)) {
                numel += plim_share_numel(x, v);
                n++;
            }
            if (i < x->n_order && numel * plim_dtype_bytes((plim_dtype)t) < BROADCAST_BUCKET)
                continue;
            if (n > 1)
                plim_m_drop(x->m, plim_share_flat(x, "broadcast", PLIM_CAT_TEMPORARY,
                                                  (plim_dtype)t, numel));
            numel = n = 0;
        }
    }
}

static void wrap_model(plim_shared *x)
{
    ddp *d = x->own = PLIM_NEW(x->a, ddp);
    const plim_graph *g = x->g;
    plim_t *leaf = PLIM_NEW_N(x->a, plim_t, g->n_values);
    if (!d || !leaf || !(d->ready = PLIM_NEW_N(x->a, plim_t, g->n_values)) ||
        !(d->bucket = PLIM_NEW_N(x->a, plim_t, g->n_values))) {
        plim_m_oom(x->m);
        return;
    }
    d->view = plim_strategy_number(&x->share->strategy, "view") > 0;
    for (uint32_t i = 0; i < x->n_order; i++) {
        const plim_value *v = &g->values[x->order[i]];
        if (v->kind == PLIM_VALUE_PARAMETER && v->requires_grad && v->tied_to == PLIM_NONE)
            leaf[d->n_leaves++] = x->value[x->order[i]];
    }
    broadcast_values(x, true);
    fill_buckets(x, leaf, d->n_leaves, UINT64_MAX, UINT64_MAX);
}

/* src: nn/parallel/distributed.py _BucketConfig */
static void rebuild_buckets(plim_shared *x)
{
    ddp *d = x->own;
    const plim_strategy_spec *s = &x->share->strategy;
    double given = plim_strategy_number(s, "bucket_mib"),
           first = plim_strategy_number(s, "first_mib");
    double each = given >= 0 ? given : USUAL_MIB;
    first = given >= 0 ? given : first >= 0 ? first : USUAL_FIRST_MIB;
    for (uint32_t i = 0; i < d->n_buckets; i++)
        plim_m_drop(x->m, d->bucket[i]);
    d->n_buckets = 0;
    fill_buckets(x, d->ready, d->n_ready, (uint64_t)(first * MIB), (uint64_t)(each * MIB));
}

static void begin_forward(plim_shared *x, uint32_t unit)
{
    ddp *d = x->own;
    (void)unit;
    if (d->n_ready == d->n_leaves && !d->rebuilt) {
        d->rebuilt = true;
        rebuild_buckets(x);
    }
    if (plim_strategy_number(&x->share->strategy, "broadcast") > 0 && !x->defers &&
        !d->skipped)
        broadcast_values(x, false);
    d->skipped = plim_share_skips(x);
}

/* The bucket's part of a gradient takes its place. */
static void keep_gradient(plim_shared *x, plim_t leaf)
{
    ddp *d = x->own;
    /* no_sync(), but in the very first pass: PyTorch has run the stage before, to find out what it
     * sends, and that told the reducer to expect gradients */
    if ((x->defers && x->more_passes && d->n_ready == d->n_leaves) || plim_share_skips(x))
        return;
    if (!d->rebuilt && d->n_ready < d->n_leaves)
        d->ready[d->n_ready++] = leaf;
    plim_t grad = plim_m_grad(x->m, leaf);
    if (d->view && d->n_buckets)
        plim_m_set_grad(x->m, leaf, plim_m_alias(x->m, d->bucket[0], plim_m_meta(x->m, grad)));
}

const plim_strategy plim_strategy_ddp = {
    .setup = {.wrap = wrap_model},
    .forward = {.begin = begin_forward},
    .backward = {.gradient = keep_gradient},
};
