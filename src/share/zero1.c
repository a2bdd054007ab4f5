/* zero1.c -- ZeroRedundancyOptimizer over DistributedDataParallel: each parameter is updated by
 * one rank only, which has the optimizer's state for it.
 * src: torch 2.13 torch/distributed/optim/zero_redundancy_optimizer.py _partition_parameters */
#include "share/strategy.h"

#include <stdlib.h>

typedef struct by_size {
    uint64_t numel;
    uint32_t at;
} by_size;

static int compare_sizes(const void *a, const void *b)
{
    const by_size *x = a, *y = b;
    if (x->numel != y->numel)
        return x->numel < y->numel ? 1 : -1;
    return x->at > y->at ? 1 : -1;
}

/* The largest parameters first, each to the part that has the fewest elements: sorts order[], and
 * puts their parts into part[]. */
static bool divide_parameters(plim_arena *a, by_size *order, uint32_t n, int64_t parts,
                              int64_t *part)
{
    uint64_t *load = PLIM_NEW_N(a, uint64_t, parts);
    if (!load)
        return false;
    qsort(order, n, sizeof *order, compare_sizes);
    for (uint32_t i = 0; i < n; i++) {
        int64_t least = 0;
        for (int64_t k = 1; k < parts; k++)
            least = load[k] < load[least] ? k : least;
        load[least] += order[i].numel;
        part[i] = least;
    }
    return true;
}

static void choose_parameters(plim_shared *x, const uint32_t *value, uint32_t n, bool *own)
{
    by_size *order = PLIM_NEW_N(x->a, by_size, (uint64_t)n + 1);
    int64_t *part = PLIM_NEW_N(x->a, int64_t, (uint64_t)n + 1);
    for (uint32_t i = 0; order && i < n; i++)
        order[i] = (by_size){plim_share_numel(x, x->leaf[value[i]]), i};
    if (!order || !part || !divide_parameters(x->a, order, n, plim_share_parts(x), part)) {
        plim_m_oom(x->m);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        own[order[i].at] = part[i] == plim_share_part(x);
}

static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    int64_t parts = plim_share_data_parts(s);
    by_size *order = PLIM_NEW_N(a, by_size, (uint64_t)g->n_values + 1);
    int64_t *part = PLIM_NEW_N(a, int64_t, (uint64_t)g->n_values + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; order && i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind == PLIM_VALUE_PARAMETER && v->requires_grad && v->tied_to == PLIM_NONE &&
            plim_meta_numel(&v->meta, &order[n].numel))
            order[n++].at = i;
    }
    if (!order || !part || !divide_parameters(a, order, n, parts, part))
        return false;
    for (uint32_t i = 0; i < n; i++)
        kind[part[i]] = plim_share_mix(kind[part[i]], order[i].numel);
    return true;
}

/* The model is wrapped as with ddp. */
static void wrap_model(plim_shared *x) { plim_strategy_ddp.setup.wrap(x); }
static void begin_forward(plim_shared *x, uint32_t unit)
{
    plim_strategy_ddp.forward.begin(x, unit);
}
static void keep_gradient(plim_shared *x, plim_t leaf)
{
    plim_strategy_ddp.backward.gradient(x, leaf);
}

const plim_strategy plim_strategy_zero1 = {
    .setup = {.wrap = wrap_model, .choose = choose_parameters, .kinds = number_parts},
    .forward = {.begin = begin_forward},
    .backward = {.gradient = keep_gradient},
};
