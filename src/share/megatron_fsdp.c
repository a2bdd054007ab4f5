/* megatron_fsdp.c -- Megatron-FSDP, fully sharded, and its optimizer with fp32 master weights.
 *
 * The parameters of a layer, of its experts, and of what is in no layer each lie in a bucket;
 * a rank has an equal part.  A bucket is gathered before its layer runs, and those that come
 * next with it, up to half a billion elements; its storage is emptied when the layer has run.
 * What is in no layer stays until the optimizer's step.  Gradients are copied into whole
 * buckets, which are reduced when they are full, and freed at the end of backward, unless they
 * are more than a billion elements.  After the step the first layers are gathered for the next
 * one.  src: megatron-core 0.16 distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py,
 * param_and_grad_buffer.py (sharding strategy optim_grads_params) */
#include "base/idmap.h"
#include "share/megatron_layout.h"
#include "share/strategy.h"

enum { DEFAULT_STREAM, GATHER_STREAM, REDUCE_STREAM };

typedef struct bucket {
    uint32_t first, end; /* its parameters, [first, end) */
    uint32_t unit;       /* the number of units: of none */
    bool experts, trained;
    plim_mg_place own; /* of its parts */
    uint64_t numel;    /* padded */
    plim_t shard;      /* of the parameters; 0: there is one part */
    plim_t whole;      /* the parameters: its storage comes and goes */
    plim_t master;     /* fp32, of the part */
    plim_t unreduced;  /* gradients of all parts */
    uint32_t ready;    /* parameters that have one */
    bool here;
} bucket;

typedef struct fsdp {
    bucket *b;
    uint32_t n;
    plim_mg_placed *p; /* bucket by bucket */
    uint32_t n_p;
    uint32_t *of;             /* by place in p: its bucket */
    bool *shared;             /* by place in p: another one is tied to it */
    bool *taken;              /* by place in p: its gradient is in its bucket */
    plim_id_map at;           /* of a tensor that the model reads: its place in p */
    plim_dtype dtype, wide;   /* of parameters, of gradients */
    uint64_t ahead;           /* elements that are gathered in advance */
    uint64_t most_queued;     /* elements of gradients that may wait to be freed */
    uint32_t *queue, n_queue; /* buckets whose gradients are reduced */
    plim_t grads, one;        /* main gradients of all parts; a scalar */
    plim_t *master, *norms;
    uint32_t n_masters;
    bool ran_back; /* a backward pass has begun: what is in no layer gathers nothing ahead */
} fsdp;

/* ---- buckets ---------------------------------------------------------------------------------- */

static bool is_alike(const bucket *a, const bucket *b)
{
    return a->unit == b->unit && a->experts == b->experts && a->trained == b->trained;
}

/* The bucket of each parameter, in the order in which the model has the first of each. */
static void sort_out(fsdp *z, const plim_graph *g, const uint32_t *order, uint32_t n_order,
                     const uint32_t *unit)
{
    for (uint32_t i = 0; i < n_order; i++) {
        const plim_value *v = &g->values[order[i]];
        bucket own = {.unit = unit[i],
                      .experts = plim_name_in_experts(v->name),
                      .trained = v->requires_grad};
        uint64_t numel;
        if (v->kind != PLIM_VALUE_PARAMETER || v->tied_to != PLIM_NONE ||
            !plim_meta_numel(&v->meta, &numel))
            continue;
        uint32_t k = z->n; /* mostly the last one */
        while (k > 0 && !is_alike(&z->b[k - 1], &own))
            k--;
        if (!k) {
            z->b[z->n] = own;
            k = ++z->n;
        }
        z->of[z->n_p] = k - 1;
        int64_t columns = v->meta.rank && numel ? (int64_t)numel / v->meta.dim[0] : 1;
        z->p[z->n_p++] =
            (plim_mg_placed){.value = order[i], .columns = columns, .numel = numel};
    }
}

/* Parameters of a bucket follow one another; what is in no layer is divided into several buckets if gradients are
 * exchanged during backward. */
static bool fill_buckets(plim_arena *a, fsdp *z, double most, uint32_t units)
{
    plim_mg_placed *from = z->p;
    uint32_t *of = z->of, n = z->n, at = 0;
    bucket *kinds = z->b;
    z->p = PLIM_NEW_N(a, plim_mg_placed, (uint64_t)z->n_p + 1);
    z->of = PLIM_NEW_N(a, uint32_t, (uint64_t)z->n_p + 1);
    z->b = PLIM_NEW_N(a, bucket, (uint64_t)z->n_p + 1);
    z->n = 0;
    if (!z->p || !z->of || !z->b)
        return false;
    for (uint32_t k = 0; k < n; k++) {
        bucket b = kinds[k];
        uint64_t filled = 0;
        b.first = at;
        for (uint32_t i = 0; i < z->n_p; i++) {
            if (of[i] != k)
                continue;
            z->of[at] = z->n;
            z->p[at++] = from[i];
            filled += from[i].numel;
            b.end = at;
            if (b.unit != units || (double)filled < most)
                continue;
            z->b[z->n++] = b;
            b.first = at;
            filled = 0;
        }
        if (b.first < at)
            z->b[z->n++] = b;
    }
    return true;
}

static bool lay_out(plim_arena *a, const plim_graph *g, const plim_share *s, fsdp *z)
{
    bool ok = true;
    for (uint32_t k = 0; k < z->n && ok; k++) {
        bucket *b = &z->b[k];
        ok = plim_mg_lay_rows(a, z->p + b->first, b->end - b->first,
                              plim_mg_place_of(g, s, 0, b->experts).of, &b->numel);
    }
    return ok;
}

/* All that does not depend on the rank.  NULL: our memory is full. */
static fsdp *find_buckets(plim_arena *a, const plim_graph *g, const plim_share *s,
                          const uint32_t *order, uint32_t n_order, const uint32_t *unit,
                          uint32_t units)
{
    const uint64_t usual = 1000000000;
    fsdp *z = PLIM_NEW(a, fsdp);
    if (!z || !(z->p = PLIM_NEW_N(a, plim_mg_placed, (uint64_t)n_order + 1)) ||
        !(z->of = PLIM_NEW_N(a, uint32_t, (uint64_t)n_order + 1)) ||
        !(z->b = PLIM_NEW_N(a, bucket, (uint64_t)n_order + 1)))
        return NULL;
    sort_out(z, g, order, n_order, unit);
    if (!fill_buckets(a, z, plim_mg_bucket_size(s), units) || !lay_out(a, g, s, z))
        return NULL;
    uint64_t inside = 0;
    for (uint32_t i = 0; i < z->n_p; i++)
        if (z->b[z->of[i]].unit < units)
            inside = plim_sat_add(inside, z->p[i].numel);
    z->most_queued = PLIM_MAX(usual, units ? plim_sat_mul(inside / units, 2) : 0);
    z->ahead = z->most_queued / 2;
    return z;
}

/* What a rank has of each bucket. */
static void take_parts(const plim_graph *g, const plim_share *s, fsdp *z, int64_t part)
{
    for (uint32_t k = 0; k < z->n; k++) {
        bucket *b = &z->b[k];
        b->own = plim_mg_place_of(g, s, part, b->experts);
        plim_mg_take_part(z->p + b->first, b->end - b->first, b->numel, b->own);
    }
}

static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    plim_shared x;
    const uint32_t *unit = plim_share_foresee(a, g, &x);
    fsdp *z = unit ? find_buckets(a, g, s, x.order, x.n_order, unit, x.units.n) : NULL;
    for (int64_t k = 0; k < plim_share_data_parts(s) && z; k++) {
        take_parts(g, s, z, k);
        for (uint32_t i = 0; i < z->n_p; i++)
            kind[k] = plim_share_mix(kind[k], z->p[i].last - z->p[i].first);
    }
    return z != NULL;
}

static uint64_t part_numel(const bucket *b) { return b->numel / (uint64_t)b->own.of; }

/* ---- gathering ---------------------------------------------------------------------------------- */

static void gather_bucket(plim_shared *x, bucket *b)
{
    if (b->here)
        return;
    plim_m_set_stream(x->m, GATHER_STREAM);
    plim_m_place(x->m, PLIM_NONE, PLIM_STR("parameters"), NULL, PLIM_CAT_PARAMETER);
    plim_m_storage_alloc(x->m, b->whole);
    plim_m_set_stream(x->m, DEFAULT_STREAM);
    b->here = true;
}

static void release_bucket(plim_shared *x, bucket *b)
{
    if (!b->shard || !b->here)
        return;
    plim_m_storage_free(x->m, b->whole);
    b->here = false;
}

typedef enum ahead { NOTHING_AHEAD, NEXT_AHEAD, PREVIOUS_AHEAD } ahead;

/* The buckets [first, end), and as many of those after or before them. */
static void gather_range(plim_shared *x, uint32_t first, uint32_t end, ahead what)
{
    fsdp *z = x->own;
    for (uint64_t n = 0; what == NEXT_AHEAD && end < z->n && n < z->ahead; end++)
        n += z->b[end].numel;
    for (uint64_t n = 0; what == PREVIOUS_AHEAD && first > 0 && n < z->ahead; first--)
        n += z->b[first - 1].numel;
    for (uint32_t k = first; k < end; k++)
        gather_bucket(x, &z->b[k]);
}

/* The buckets of a layer, which follow one another. */
static uint32_t find_unit(const fsdp *z, uint32_t unit, uint32_t *end)
{
    uint32_t first = 0;
    while (first < z->n && z->b[first].unit != unit)
        first++;
    *end = first;
    while (*end < z->n && z->b[*end].unit == unit)
        ++*end;
    return first;
}

static void gather_unit(plim_shared *x, uint32_t unit, ahead what)
{
    uint32_t end, first = find_unit(x->own, unit, &end);
    if (first < end)
        gather_range(x, first, end, what);
}

static void release_unit(plim_shared *x, uint32_t unit)
{
    fsdp *z = x->own;
    uint32_t end, first = find_unit(z, unit, &end);
    for (uint32_t k = first; k < end; k++)
        release_bucket(x, &z->b[k]);
}

static void release_all(plim_shared *x)
{
    fsdp *z = x->own;
    for (uint32_t k = 0; k < z->n; k++)
        release_bucket(x, &z->b[k]);
}

/* The first buckets of what is in no layer. */
static void gather_outside(plim_shared *x, uint32_t most)
{
    fsdp *z = x->own;
    for (uint32_t k = 0; k < z->n && most; k++) {
        if (z->b[k].unit != x->units.n)
            continue;
        gather_range(x, k, k + 1, z->ran_back ? NOTHING_AHEAD : NEXT_AHEAD);
        most--;
    }
}

static void begin_forward(plim_shared *x, uint32_t unit)
{
    if (unit == x->units.n)
        gather_outside(x, 1);
    else
        gather_unit(x, unit, NEXT_AHEAD);
}

/* Behind the last layer modules run that are in none. */
static void end_forward(plim_shared *x, uint32_t unit)
{
    if (unit < x->units.n)
        release_unit(x, unit);
    if (unit + 1 == x->units.n)
        gather_outside(x, UINT32_MAX);
}

static void begin_backward(plim_shared *x, uint32_t unit)
{
    fsdp *z = x->own;
    if (unit == x->units.n)
        z->ran_back = true;
    else
        gather_unit(x, unit, PREVIOUS_AHEAD);
}

static void end_backward(plim_shared *x, uint32_t unit)
{
    if (unit < x->units.n)
        release_unit(x, unit);
}

/* ---- gradients ------------------------------------------------------------------------------------ */

static void free_gradients(plim_shared *x, bucket *b)
{
    plim_m_drop(x->m, b->unreduced);
    b->unreduced = 0;
    b->ready = 0;
}

static void reduce_bucket(plim_shared *x, uint32_t k)
{
    fsdp *z = x->own;
    uint64_t queued = 0;
    uint32_t gone = 0;
    for (uint32_t i = 0; i < z->n_queue; i++)
        queued += z->b[z->queue[i]].numel;
    for (; queued > z->most_queued; gone++) {
        queued -= z->b[z->queue[gone]].numel;
        free_gradients(x, &z->b[z->queue[gone]]);
    }
    z->n_queue -= gone;
    memmove(z->queue, z->queue + gone, z->n_queue * sizeof *z->queue);
    plim_m_set_stream(x->m, REDUCE_STREAM);
    plim_m_drop(x->m, plim_share_flat(x, "reduce-scatter output", PLIM_CAT_GRADIENT, z->wide,
                                      part_numel(&z->b[k])));
    plim_m_set_stream(x->m, DEFAULT_STREAM);
    z->queue[z->n_queue++] = k;
}

/* It is copied into its bucket. */
static void add_gradient(plim_shared *x, uint32_t i)
{
    fsdp *z = x->own;
    bucket *b = &z->b[z->of[i]];
    if (b->own.of > 1 && !b->unreduced)
        b->unreduced =
            plim_share_flat(x, "unreduced gradients", PLIM_CAT_GRADIENT, z->wide, b->numel);
    plim_m_set_grad(x->m, x->value[z->p[i].value], 0);
}

static void count_gradient(plim_shared *x, uint32_t i)
{
    fsdp *z = x->own;
    bucket *b = &z->b[z->of[i]];
    if (++b->ready == b->end - b->first)
        reduce_bucket(x, z->of[i]);
}

static void take_gradient(plim_shared *x, plim_t leaf)
{
    const fsdp *z = x->own;
    const plim_id_slot *at = plim_id_get(&z->at, leaf);
    if (!at || z->shared[at->value])
        return;
    add_gradient(x, at->value);
    count_gradient(x, at->value);
    z->taken[at->value] = true;
}

/* Parameters that others are tied to, and zeros for those whose gradients did not come. */
static void finish_backward(plim_shared *x)
{
    fsdp *z = x->own;
    for (int counts = 0; counts < 2; counts++)
        for (uint32_t i = 0; i < z->n_p; i++)
            if (z->b[z->of[i]].trained && !z->taken[i])
                (counts ? count_gradient : add_gradient)(x, i);
    memset(z->taken, 0, z->n_p * sizeof *z->taken);
    for (uint32_t k = 0; k < z->n; k++)
        free_gradients(x, &z->b[k]);
    z->n_queue = 0;
}

/* ---- the model -------------------------------------------------------------------------------------- */

static void check_types(plim_shared *x)
{
    fsdp *z = x->own;
    for (uint32_t i = 0; i < z->n_p; i++) {
        plim_dtype t = plim_m_meta(x->m, x->value[z->p[i].value])->dtype;
        z->dtype = i ? z->dtype : t;
        plim_share_check_type(x, "Megatron-FSDP needs parameters of one type", z->p[0].value,
                              z->dtype, z->p[i].value, t);
    }
}

static void make_bucket(plim_shared *x, bucket *b)
{
    const fsdp *z = x->own;
    if (b->own.of > 1)
        b->shard = plim_share_flat(x, "shard", PLIM_CAT_PARAMETER, z->dtype, part_numel(b));
    b->whole = plim_share_flat(x, "parameters", PLIM_CAT_PARAMETER, z->dtype, b->numel);
    b->here = true;
    if (b->trained)
        b->master = plim_share_flat(x, "master weights", PLIM_CAT_OPTIMIZER_STATE, PLIM_F32,
                                    part_numel(b));
    for (uint32_t i = b->first; i < b->end; i++)
        plim_share_map(x, z->p[i].value, b->whole);
    release_bucket(x, b);
}

/* Matrices, whose weights decay, and then the rest. */
static void make_masters(plim_shared *x)
{
    fsdp *z = x->own;
    for (int rest = 0; rest < 2; rest++)
        for (uint32_t i = 0; i < z->n_p; i++) {
            const plim_mg_placed *p = &z->p[i];
            const bucket *b = &z->b[z->of[i]];
            bool matrix = x->g->values[p->value].meta.rank > 1;
            if (!b->trained || matrix == rest || p->first == p->last)
                continue;
            z->master[z->n_masters++] =
                plim_m_as_leaf(x->m, plim_share_view(x, b->master, p->last - p->first), true);
        }
    x->master = z->master;
    x->n_masters = z->n_masters;
}

static void find_places(plim_shared *x)
{
    fsdp *z = x->own;
    for (uint32_t i = 0; i < z->n_p; i++) {
        plim_id_slot *at = plim_id_at(x->a, &z->at, x->value[z->p[i].value]);
        if (!at) {
            plim_m_oom(x->m);
            return;
        }
        at->value = i;
    }
    for (uint32_t i = 0; i < x->n_order; i++) {
        uint32_t of = x->g->values[x->order[i]].tied_to;
        const plim_id_slot *at = of == PLIM_NONE ? NULL : plim_id_get(&z->at, x->value[of]);
        if (at)
            z->shared[at->value] = true;
    }
}

static bool make_room(plim_shared *x)
{
    const uint32_t *unit = plim_share_units(x);
    fsdp *z = x->own =
        unit ? find_buckets(x->a, x->g, x->share, x->order, x->n_order, unit, x->units.n)
             : NULL;
    uint64_t n = z ? (uint64_t)z->n_p + 1 : 0;
    return z && (z->shared = PLIM_NEW_N(x->a, bool, n)) &&
           (z->taken = PLIM_NEW_N(x->a, bool, n)) &&
           (z->queue = PLIM_NEW_N(x->a, uint32_t, n)) &&
           (z->master = PLIM_NEW_N(x->a, plim_t, n)) &&
           (z->norms = PLIM_NEW_N(x->a, plim_t, n));
}

static void wrap_model(plim_shared *x)
{
    if (x->share->size[PLIM_AXIS_pp] > 1) {
        plim_m_fail(x->m, PLIM_EUSAGE, "strategy megatron_fsdp is not simulated with pp");
        return;
    }
    if (!plim_mg_check_experts(x))
        return;
    if (!make_room(x)) {
        plim_m_oom(x->m);
        return;
    }
    fsdp *z = x->own;
    take_parts(x->g, x->share, z, plim_share_part(x));
    check_types(x);
    z->wide = plim_strategy_dtype(&x->share->strategy, "main_grads");
    if (z->wide == PLIM_DTYPE_COUNT)
        z->wide = z->dtype;
    uint64_t trained = 0;
    for (uint32_t k = 0; k < z->n && !plim_m_bad(x->m); k++) {
        make_bucket(x, &z->b[k]);
        trained += z->b[k].trained ? part_numel(&z->b[k]) : 0;
    }
    z->grads = plim_share_flat(x, "main gradients", PLIM_CAT_GRADIENT, z->wide, trained);
    plim_share_tie(x);
    find_places(x);
    x->dry_step = plim_strategy_number(&x->share->strategy, "load") > 0;
    z->one = plim_share_flat(x, "loss scale", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
    make_masters(x);
}

static void begin_step(plim_shared *x)
{
    fsdp *z = x->own;
    for (uint32_t k = 0; k < z->n_masters; k++) {
        const plim_meta *meta = plim_m_meta(x->m, z->master[k]);
        plim_m_place(x->m, PLIM_NONE, PLIM_STR("master weights"), "grad", PLIM_CAT_GRADIENT);
        plim_m_set_grad(x->m, z->master[k],
                        z->wide == PLIM_F32 ? plim_m_alias(x->m, z->grads, meta)
                                            : plim_m_empty(x->m, meta));
    }
    release_all(x);
    plim_share_norms(x, z->norms);
}

/* The next iteration begins with the second, before it has a batch. */
static void end_step(plim_shared *x)
{
    fsdp *z = x->own;
    if (z->n)
        gather_range(x, 0, 1, NEXT_AHEAD);
    plim_share_drop_gradients(x);
}

const plim_strategy plim_strategy_megatron_fsdp = {
    .setup = {.wrap = wrap_model, .kinds = number_parts},
    .forward = {.begin = begin_forward, .end = end_forward},
    .backward = {.begin = begin_backward,
                 .end = end_backward,
                 .gradient = take_gradient,
                 .finish = finish_backward},
    .step = {.begin = begin_step, .end = end_step},
};
