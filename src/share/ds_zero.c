/* ds_zero.c -- stages 1 and 2 of DeepSpeed's ZeRO.
 *
 * All parameters lie in one flat tensor, divided equally among the ranks; its optimizer
 * updates a single parameter, that part in fp32 (the master weights).  Gradients are copied into a
 * bucket of a fixed size, which is there from the first gradient of a backward pass to its end, and
 * are averaged when it is full; those of the own part are then moved to a buffer that stays until the
 * step.  Stage 2 does so as each gradient comes and frees the others, stage 1 when all are there.
 * src: DeepSpeed 0.19 runtime/zero/stage_1_and_2.py */
#include "op/rules.h"
#include "share/strategy.h"

enum { NCCL_ALIGNMENT = 2, REDUCTION_STREAM = 1 };

typedef struct placed {
    uint32_t value;
    uint64_t at, numel; /* in the flat tensor */
    plim_t grad; /* of the own part; this and norm are owned from the averaging to the step */
    plim_t norm; /* of the gradient that went to the host */
} placed;

typedef struct ds_zero {
    bool partitions; /* stage 2: gradients are shared out, too */
    bool overlaps;   /* two buckets, averaged on a stream of their own */
    bool offloads;   /* master weights and the optimizer are on the host */
    uint64_t limit;  /* of a bucket, in elements */
    plim_dtype dtype;
    placed *p; /* in the order of the flat tensor */
    uint32_t n;
    uint64_t part, first, last; /* the own part: its size, and the bounds of its elements */
    plim_t master;              /* 0: it is on the host */
    plim_t bucket[2];
    uint32_t *waiting, n_waiting; /* places in p[] of what is in the bucket */
    uint64_t filled;
    plim_t kept;               /* the own part's gradients, whole */
    plim_t padded;             /* behind them, on the last ranks */
    plim_t largest;            /* offloading: room for the largest gradient */
    plim_t loss;               /* of this pass, divided */
    plim_t norm[2], last_norm; /* of this step; the second is kept until the next one's end */
} ds_zero;

/* ---- parts ----------------------------------------------------------------------------- */

static uint64_t size_of_part(uint64_t numel, uint64_t parts)
{
    uint64_t alignment = NCCL_ALIGNMENT * parts;
    return plim_sat_mul((plim_sat_add(numel, alignment - 1)) / alignment, NCCL_ALIGNMENT);
}

static bool is_mine(const ds_zero *z, const placed *p)
{
    return p->numel && p->at < z->last && p->at + p->numel > z->first;
}

/* Two parts hold the same if as much of whole gradients is kept and as much is padded. */
static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    int64_t parts = plim_share_data_parts(s);
    uint64_t all = 0, numel, at = 0;
    (void)a;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (plim_share_trained(&g->values[i]) && plim_meta_numel(&g->values[i].meta, &numel))
            all = plim_sat_add(all, numel);
    uint64_t part = size_of_part(all, (uint64_t)parts);
    for (uint32_t i = 0; i < g->n_values && part; i++) {
        if (!plim_share_trained(&g->values[i]) ||
            !plim_meta_numel(&g->values[i].meta, &numel) || !numel)
            continue;
        for (uint64_t k = at / part; k <= (at + numel - 1) / part; k++)
            kind[k] = plim_share_mix(kind[k], numel);
        at += numel;
    }
    if (part)
        kind[at / part < (uint64_t)parts ? at / part : (uint64_t)parts - 1] ^= at;
    return true;
}

/* ---- initialize() -------------------------------------------------------------------------- */

/* The model's parameters become views of one tensor. */
static void flatten_parameters(plim_shared *x, plim_t flat)
{
    const ds_zero *z = x->own;
    for (uint32_t i = 0; i < z->n; i++)
        plim_share_map(x, z->p[i].value, flat);
    plim_share_tie(x);
}

static void check_dtypes(plim_shared *x)
{
    const ds_zero *z = x->own;
    for (uint32_t i = 0; i < z->n; i++)
        plim_share_check_type(x, "DeepSpeed's ZeRO needs parameters of one type",
                              z->p[0].value, z->dtype, z->p[i].value,
                              plim_m_meta(x->m, x->value[z->p[i].value])->dtype);
}

static uint64_t find_largest(const ds_zero *z)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < z->n; i++)
        largest = PLIM_MAX(largest, z->p[i].numel);
    return largest;
}

static void make_master(plim_shared *x)
{
    ds_zero *z = x->own;
    plim_t clone =
        plim_share_flat(x, "master weights", PLIM_CAT_OPTIMIZER_STATE, z->dtype, z->part);
    if (z->offloads) {
        plim_m_drop(x->m, clone);
        x->on_host = true;
        z->largest = plim_share_flat(x, "largest gradient", PLIM_CAT_GRADIENT, z->dtype,
                                     find_largest(z));
        return;
    }
    if (z->dtype == PLIM_F32) {
        z->master = plim_m_as_leaf(x->m, clone, true);
        return;
    }
    plim_t master =
        plim_share_flat(x, "master weights", PLIM_CAT_OPTIMIZER_STATE, PLIM_F32, z->part);
    plim_m_drop(x->m, clone);
    z->master = plim_m_as_leaf(x->m, master, true);
}

static void wrap_model(plim_shared *x, bool partitions)
{
    const plim_strategy_spec *s = &x->share->strategy;
    ds_zero *z = x->own = PLIM_NEW(x->a, ds_zero);
    uint64_t numel = 0;
    if (!z || !(z->p = PLIM_NEW_N(x->a, placed, (uint64_t)x->n_order + 1)) ||
        !(z->waiting = PLIM_NEW_N(x->a, uint32_t, (uint64_t)x->n_order + 1))) {
        plim_m_oom(x->m);
        return;
    }
    z->partitions = partitions;
    z->overlaps = plim_strategy_number(s, "overlap_comm") > 0;
    z->offloads = plim_strategy_number(s, "offload_optimizer") > 0;
    z->limit = (uint64_t)plim_strategy_number(s, "reduce_bucket_size");
    for (uint32_t i = 0; i < x->n_order; i++) {
        if (!plim_share_trained(&x->g->values[x->order[i]]))
            continue;
        placed *p = &z->p[z->n++];
        *p = (placed){.value = x->order[i],
                      .at = numel,
                      .numel = plim_share_numel(x, x->value[x->order[i]])};
        numel = plim_sat_add(numel, p->numel);
    }
    if (!z->n)
        return;
    z->dtype = plim_m_meta(x->m, x->value[z->p[0].value])->dtype;
    check_dtypes(x);
    uint64_t parts = (uint64_t)plim_share_parts(x);
    z->part = size_of_part(numel, parts);
    z->first = plim_sat_mul(z->part, (uint64_t)plim_share_part(x));
    z->last = plim_sat_add(z->first, z->part);
    plim_t padding = numel < z->part * parts
                         ? plim_share_flat(x, "padding", PLIM_CAT_PARAMETER, z->dtype,
                                           z->part * parts - numel)
                         : 0;
    plim_t flat = plim_share_flat(x, "flat parameters", PLIM_CAT_PARAMETER, z->dtype,
                                  plim_sat_mul(z->part, parts));
    plim_m_drop(x->m, padding);
    flatten_parameters(x, flat);
    make_master(x);
    x->master = &z->master;
    x->n_masters = z->master != 0;
    if (!z->offloads)
        plim_m_drop(x->m,
                    plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, PLIM_F32, z->part));
}

static void wrap_stage_1(plim_shared *x) { wrap_model(x, false); }
static void wrap_stage_2(plim_shared *x) { wrap_model(x, true); }

/* ---- backward ------------------------------------------------------------------------------ */

static plim_t scale_loss(plim_shared *x, plim_t loss)
{
    ds_zero *z = x->own;
    return plim_share_scale_loss(x, loss, &z->loss);
}

static void make_buckets(plim_shared *x)
{
    ds_zero *z = x->own;
    for (int i = 0; i <= (int)z->overlaps && !z->bucket[i]; i++)
        z->bucket[i] = plim_share_flat(x, "bucket", PLIM_CAT_GRADIENT, z->dtype, z->limit);
}

/* The slices that go to different ranks are reduced as one tensor, which is a copy unless it is a
 * single one. */
static void reduce_slices(plim_shared *x, uint32_t n, uint64_t numel)
{
    const ds_zero *z = x->own;
    if (n < 2)
        return;
    plim_m_set_stream(x->m, z->overlaps ? REDUCTION_STREAM : 0);
    plim_m_drop(x->m, plim_share_flat(x, "all-reduce", PLIM_CAT_TEMPORARY, z->dtype, numel));
    plim_m_set_stream(x->m, 0);
}

static void average_bucket(plim_shared *x)
{
    const ds_zero *z = x->own;
    uint64_t numel = 0, rank = UINT64_MAX;
    uint32_t n = 0;
    for (uint32_t i = 0; i < z->n_waiting; i++) {
        const placed *p = &z->p[z->waiting[i]];
        for (uint64_t at = p->at, end; at < p->at + p->numel; at = end) {
            end = PLIM_MIN(p->at + p->numel, (at / z->part + 1) * z->part);
            if (numel > z->limit && at / z->part != rank) {
                reduce_slices(x, n, numel);
                n = 0;
                numel = 0;
            }
            n += at / z->part != rank;
            rank = at / z->part;
            numel += end - at;
        }
    }
    reduce_slices(x, n, numel);
}

static uint64_t count_kept(const ds_zero *z)
{
    uint64_t numel = 0;
    for (uint32_t i = 0; i < z->n; i++)
        numel += is_mine(z, &z->p[i]) ? z->p[i].numel : 0;
    return numel;
}

static void keep_gradient(plim_shared *x, placed *p)
{
    ds_zero *z = x->own;
    plim_t leaf = x->value[p->value];
    if (!z->kept)
        z->kept = plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, z->dtype, count_kept(z));
    plim_m_set_grad(x->m, leaf, plim_m_alias(x->m, z->kept, plim_m_meta(x->m, leaf)));
}

static uint64_t count_own(const ds_zero *z, const placed *p)
{
    return PLIM_MIN(p->at + p->numel, z->last) - PLIM_MAX(p->at, z->first);
}

static void offload_gradient(plim_shared *x, placed *p)
{
    const ds_zero *z = x->own;
    if (x->more_passes)
        return;
    plim_m_drop(x->m, p->norm);
    p->norm = plim_share_norm(x, count_own(z, p));
    if (z->dtype != PLIM_F32)
        plim_m_drop(x->m, plim_share_flat(x, "gradient", PLIM_CAT_TEMPORARY, PLIM_F32,
                                          count_own(z, p)));
    plim_m_set_grad(x->m, x->value[p->value], 0);
}

static void reduce_bucket(plim_shared *x)
{
    ds_zero *z = x->own;
    average_bucket(x);
    for (uint32_t i = 0; i < z->n_waiting; i++) {
        placed *p = &z->p[z->waiting[i]];
        if (z->overlaps)
            plim_m_record_stream(x->m, plim_m_grad(x->m, x->value[p->value]),
                                 REDUCTION_STREAM);
        if (is_mine(z, p) && z->offloads)
            offload_gradient(x, p);
        else if (is_mine(z, p))
            keep_gradient(x, p);
        else if (z->partitions)
            plim_m_set_grad(x->m, x->value[p->value], 0);
    }
    z->n_waiting = 0;
    z->filled = 0;
    if (z->overlaps) {
        plim_t other = z->bucket[1];
        z->bucket[1] = z->bucket[0];
        z->bucket[0] = other;
    }
}

/* A gradient larger than a bucket is averaged where it is, or in a copy if it goes to the host. */
static void fill_bucket(plim_shared *x, uint32_t i)
{
    ds_zero *z = x->own;
    const placed *p = &z->p[i];
    plim_t leaf = x->value[p->value];
    if (!p->numel || !plim_m_grad(x->m, leaf))
        return;
    if (plim_sat_add(z->filled, p->numel) > z->limit)
        reduce_bucket(x);
    if (p->numel <= z->limit)
        plim_m_set_grad(x->m, leaf, plim_m_alias(x->m, z->bucket[0], plim_m_meta(x->m, leaf)));
    else if (z->offloads)
        plim_m_set_grad(x->m, leaf, plim_m_empty_like(x->m, leaf));
    z->waiting[z->n_waiting++] = i;
    z->filled += p->numel;
}

static void take_gradient(plim_shared *x, plim_t leaf)
{
    ds_zero *z = x->own;
    make_buckets(x);
    for (uint32_t i = 0; (z->partitions || z->overlaps) && i < z->n; i++)
        if (x->value[z->p[i].value] == leaf) {
            fill_bucket(x, i);
            return;
        }
}

static void finish_backward(plim_shared *x)
{
    ds_zero *z = x->own;
    bool waits = !z->partitions && !z->overlaps;
    if (waits && x->more_passes)
        return;
    for (uint32_t i = 0; waits && i < z->n; i++)
        fill_bucket(x, i);
    reduce_bucket(x);
    for (uint32_t i = 0; i < z->n; i++) {
        placed *p = &z->p[i];
        plim_t leaf = x->value[p->value];
        if (is_mine(z, p) && !z->offloads && !p->grad) /* else it is added in place */
            p->grad = plim_m_grad(x->m, leaf) ? plim_m_ref(x->m, plim_m_grad(x->m, leaf))
                                              : plim_m_empty_like(x->m, leaf);
    }
    uint64_t end = z->n ? z->p[z->n - 1].at + z->p[z->n - 1].numel : 0;
    if (!x->more_passes && !z->offloads && end < z->last)
        z->padded = plim_share_flat(x, "padding", PLIM_CAT_GRADIENT, z->dtype,
                                    z->last - PLIM_MAX(end, z->first));
    if (z->overlaps)
        plim_m_synchronize(x->m, PLIM_ALL_STREAMS);
    for (int i = 0; i < 2; i++) {
        plim_m_drop(x->m, z->bucket[i]);
        z->bucket[i] = 0;
    }
    for (uint32_t i = 0; i < z->n; i++)
        plim_m_set_grad(x->m, x->value[z->p[i].value], 0);
    plim_m_drop(x->m, z->kept);
    z->kept = 0;
    plim_m_drop(x->m, z->loss);
    z->loss = 0;
}

/* ---- step ------------------------------------------------------------------------------------- */

static void compute_norms(plim_shared *x)
{
    ds_zero *z = x->own;
    for (uint32_t i = 0; i < z->n; i++)
        if (is_mine(z, &z->p[i]))
            z->p[i].norm = plim_share_norm(x, count_own(z, &z->p[i]));
    for (int i = 0; i < 2;
         i++) /* of the gradients as they are, and without the loss's scale */
        z->norm[i] = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
}

static void drop_norms(plim_shared *x)
{
    ds_zero *z = x->own;
    for (uint32_t i = 0; i < z->n; i++) {
        plim_m_drop(x->m, z->p[i].norm);
        z->p[i].norm = 0;
    }
}

static void begin_step(plim_shared *x)
{
    ds_zero *z = x->own;
    if (!z->n || z->offloads)
        return;
    compute_norms(x);
    drop_norms(x);
    uint32_t pieces = z->padded != 0;
    plim_t flat = 0;
    for (uint32_t i = 0; i < z->n; i++)
        pieces += z->p[i].grad != 0;
    for (uint32_t i = 0; i < z->n && pieces == 1; i++)
        if (z->p[i].grad)
            flat = plim_m_ref(x->m, z->p[i].grad);
    if (!flat)
        flat = plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, z->dtype, z->part);
    plim_t grad = flat;
    if (z->dtype != PLIM_F32) {
        grad = plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, PLIM_F32, z->part);
        plim_m_drop(x->m, flat);
    }
    plim_m_set_grad(x->m, z->master, grad);
    for (uint32_t i = 0; i < z->n; i++) {
        plim_m_drop(x->m, z->p[i].grad);
        z->p[i].grad = 0;
    }
    plim_m_drop(x->m, z->padded);
    z->padded = 0;
}

static void end_step(plim_shared *x)
{
    ds_zero *z = x->own;
    plim_m_set_grad(x->m, z->master, 0);
    drop_norms(x);
    plim_m_drop(x->m, z->norm[0]);
    plim_m_drop(x->m, z->last_norm);
    z->last_norm = z->norm[1];
}

#define STAGE(number)                                                                         \
    const plim_strategy plim_strategy_ds_zero##number = {                                     \
        .setup = {.wrap = wrap_stage_##number, .kinds = number_parts},                        \
        .backward = {.loss = scale_loss,                                                      \
                     .gradient = take_gradient,                                               \
                     .returned = finish_backward},                                            \
        .step = {.begin = begin_step, .end = end_step},                                       \
    }
STAGE(1);
STAGE(2);
