/* fsdp1.c -- FullyShardedDataParallel of each repeated block, and then of the model.
 *
 * A unit's parameters lie one behind the other in a flat parameter, divided equally among the
 * ranks.  It is gathered whole before the unit runs, and its storage is emptied again when the
 * unit has run; in backward the next unit is gathered before this one runs.  Gradients of the
 * parameters are joined to a flat one, and each rank receives its part of it.  With mixed
 * precision, shards are cast before they are gathered.  Gathering and reducing have streams of
 * their own.  src: torch 2.13 torch/distributed/fsdp/_flat_param.py, _runtime_utils.py,
 * _init_utils.py (use_orig_params=True, backward_prefetch=BACKWARD_PRE) */
#include "core/region.h"
#include "share/strategy.h"

enum { DEFAULT_STREAM, UNSHARD_STREAM, REDUCE_STREAM, CAST_STREAM };

typedef struct piece {
    uint32_t value;
    uint64_t at, numel; /* of the parameter, in the flat one */
} piece;

typedef enum phase { IDLE, PRE_BACKWARD, POST_BACKWARD } phase;

typedef struct unit {
    piece *p;
    uint32_t n;
    plim_dtype dtype;
    uint64_t numel; /* of the flat parameter, padded */
    plim_t shard;   /* what is trained are views of it */
    plim_t full;    /* its storage comes and goes; 0: it was not needed yet */
    plim_t sum;     /* the flat gradient that passes under no_sync left */
    bool unsharded, prefetched, reshards;
    phase phase;
    uint32_t turn; /* its place in the order of this forward pass */
} unit;

enum { MOST_FREED = 2 }; /* flat parameters, before a gathering waits for the first */

typedef struct fsdp1 {
    unit *units; /* the last is the rest of the model */
    uint32_t n;
    uint16_t *freed; /* the streams on which some were freed, the first one first */
    uint32_t n_freed, cap_freed;
    uint32_t *order, n_order; /* units, as they ran forward */
    bool started, reshards;
    plim_dtype param, reduce; /* of mixed precision; PLIM_DTYPE_COUNT: none */
} fsdp1;

/* ---- flat parameters ---------------------------------------------------------------------- */

/* Each parameter begins at a multiple of 16 bytes, and all ranks have as much.  Returns the size. */
static uint64_t lay_out(piece *p, uint32_t n, plim_dtype t, int64_t parts)
{
    const uint64_t bytes = 16;
    uint64_t at = 0, least = PLIM_MAX(1, bytes / plim_dtype_bytes(t));
    for (uint32_t i = 0; i < n; i++) {
        p[i].at = plim_round_up(at, least);
        at = plim_sat_add(p[i].at, p[i].numel);
    }
    return plim_round_up(at, (uint64_t)parts);
}

/* As much of the parameter as the part has. */
static uint64_t count_own(const piece *p, uint64_t each, int64_t part)
{
    uint64_t from = plim_sat_mul(each, (uint64_t)part), to = plim_sat_add(from, each);
    uint64_t first = PLIM_MAX(from, p->at), last = PLIM_MIN(to, plim_sat_add(p->at, p->numel));
    return first < last ? last - first : 0;
}

/* Mixes into the kinds what each part has of these parameters. */
static void mix_unit(piece *p, uint32_t n, int64_t parts, uint64_t *kind)
{
    const plim_dtype sizes[] = {PLIM_F32,
                                PLIM_BF16}; /* of the model, perhaps not of the graph */
    for (size_t k = 0; k < PLIM_COUNT(sizes); k++) {
        uint64_t each = lay_out(p, n, sizes[k], parts) / (uint64_t)parts;
        for (int64_t part = 0; part < parts; part++)
            for (uint32_t i = 0; i < n; i++)
                kind[part] = plim_share_mix(kind[part], count_own(&p[i], each, part));
    }
}

static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    plim_shared x;
    uint32_t *of = plim_share_foresee(a, g, &x);
    piece *p = PLIM_NEW_N(a, piece, (uint64_t)g->n_values + 1);
    if (!of || !p)
        return false;
    for (uint32_t k = 0; k <= x.units.n; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < x.n_order; i++) {
            uint64_t numel = 0;
            if (of[i] == k && plim_meta_numel(&g->values[x.order[i]].meta, &numel))
                p[n++] = (piece){.value = x.order[i], .numel = numel};
        }
        mix_unit(p, n, plim_share_data_parts(s), kind);
    }
    return true;
}

static uint64_t shard_numel(const plim_shared *x, const unit *u)
{
    return u->numel / (uint64_t)plim_share_parts(x);
}

/* The optimizer knows parameters by what the rank has of them. */
static void make_leaves(plim_shared *x, const unit *u)
{
    for (uint32_t i = 0; i < u->n; i++) {
        uint64_t own = count_own(&u->p[i], shard_numel(x, u), plim_share_part(x));
        x->leaf[u->p[i].value] = plim_m_as_leaf(x->m, plim_share_view(x, u->shard, own),
                                                x->g->values[u->p[i].value].requires_grad);
    }
}

static void shard_unit(plim_shared *x, unit *u, uint32_t *ids, uint32_t n)
{
    plim_t *whole = PLIM_NEW_N(x->a, plim_t, (uint64_t)n + 1);
    if (!whole || !(u->p = PLIM_NEW_N(x->a, piece, (uint64_t)n + 1))) {
        plim_m_oom(x->m);
        return;
    }
    u->n = plim_share_move(x, ids, n, whole);
    for (uint32_t i = 0; i < u->n; i++) {
        u->p[i] = (piece){.value = ids[i], .numel = plim_share_numel(x, whole[i])};
        u->dtype = i ? u->dtype : plim_m_meta(x->m, whole[i])->dtype;
        plim_share_check_type(x, "FullyShardedDataParallel flattens parameters of one type",
                              u->p[0].value, u->dtype, ids[i],
                              plim_m_meta(x->m, whole[i])->dtype);
    }
    if (u->n && !plim_m_bad(x->m)) {
        u->numel = lay_out(u->p, u->n, u->dtype, plim_share_parts(x));
        plim_t flat =
            plim_share_flat(x, "flat parameter", PLIM_CAT_PARAMETER, u->dtype, u->numel);
        u->shard =
            plim_share_flat(x, "shard", PLIM_CAT_PARAMETER, u->dtype, shard_numel(x, u));
        plim_m_drop(x->m, flat);
        make_leaves(x, u);
    }
    for (uint32_t i = 0; i < u->n; i++)
        plim_m_drop(x->m, whole[i]);
}

static void wrap_model(plim_shared *x)
{
    const plim_graph *g = x->g;
    const plim_strategy_spec *s = &x->share->strategy;
    fsdp1 *f = x->own = PLIM_NEW(x->a, fsdp1);
    uint32_t n = x->units.n + 1;
    uint32_t *of = plim_share_units(x),
             *ids = PLIM_NEW_N(x->a, uint32_t, (uint64_t)x->n_order + 1);
    x->leaf = PLIM_NEW_N(x->a, plim_t, g->n_values);
    if (!f || !of || !ids || !x->leaf || !(f->units = PLIM_NEW_N(x->a, unit, n)) ||
        !(f->order = PLIM_NEW_N(x->a, uint32_t, n))) {
        plim_m_oom(x->m);
        return;
    }
    f->n = n;
    f->reshards = plim_strategy_number(s, "reshard") > 0;
    f->param = plim_strategy_dtype(s, "param");
    f->reduce = plim_strategy_dtype(s, "reduce");
    f->reduce = f->reduce == PLIM_DTYPE_COUNT ? f->param : f->reduce;
    for (uint32_t k = 0; k < n && !plim_m_bad(x->m); k++) {
        f->units[k].reshards = k + 1 < n && f->reshards;
        shard_unit(x, &f->units[k], ids, plim_share_list(x, of, k, ids));
    }
    for (uint32_t i = 0; i < x->n_order; i++)
        if (g->values[x->order[i]].tied_to != PLIM_NONE)
            x->leaf[x->order[i]] = x->leaf[g->values[x->order[i]].tied_to];
}

/* ---- gathering ------------------------------------------------------------------------------ */

static plim_dtype used_dtype(const plim_shared *x, const unit *u)
{
    return plim_strategy_computes(&x->share->strategy, u->dtype);
}

static plim_t make_flat(plim_shared *x, const unit *u, plim_dtype t)
{
    return plim_share_flat(x, "unsharded", PLIM_CAT_PARAMETER, t, u->numel);
}

/* The first forward pass makes what is gathered into, and empties it. */
static void start_unit(plim_shared *x, const unit *u)
{
    plim_dtype t = used_dtype(x, u);
    if (!u->n)
        return;
    if (t != u->dtype) {
        plim_m_drop(x->m,
                    plim_share_flat(x, "shard", PLIM_CAT_PARAMETER, t, shard_numel(x, u)));
        plim_m_drop(x->m, make_flat(x, u, t));
    }
    plim_m_drop(x->m, make_flat(x, u, u->dtype));
}

/* The tensors that the model's ops read: views of the flat parameter. */
static void make_parameters(plim_shared *x, unit *u)
{
    for (uint32_t i = 0; i < u->n; i++) {
        uint32_t id = u->p[i].value;
        plim_meta meta = plim_meta_like(plim_m_meta(x->m, x->value[id]), used_dtype(x, u));
        plim_m_drop(x->m, x->value[id]);
        x->value[id] = plim_m_as_leaf(x->m, plim_m_alias(x->m, u->full, &meta),
                                      x->g->values[id].requires_grad);
    }
    for (uint32_t i = 0; i < x->n_order; i++) {
        uint32_t to = x->g->values[x->order[i]].tied_to;
        for (uint32_t k = 0; k < u->n && to != PLIM_NONE; k++)
            if (u->p[k].value == to)
                x->value[x->order[i]] = x->value[to];
    }
}

/* The host is not far ahead of the card: limit_all_gathers. */
static void wait_for_freed(plim_shared *x)
{
    fsdp1 *f = x->own;
    if (f->n_freed < MOST_FREED)
        return;
    plim_m_synchronize(x->m, f->freed[0]);
    f->n_freed--;
    memmove(f->freed, f->freed + 1, f->n_freed * sizeof *f->freed);
}

static void unshard_unit(plim_shared *x, unit *u)
{
    plim_dtype t = used_dtype(x, u);
    plim_t cast = 0;
    if (!u->n)
        return;
    wait_for_freed(x);
    if (u->unsharded)
        return;
    if (t != u->dtype) {
        plim_m_set_stream(x->m, CAST_STREAM);
        cast = plim_share_flat(x, "shard", PLIM_CAT_PARAMETER, t, shard_numel(x, u));
    }
    plim_m_set_stream(x->m, UNSHARD_STREAM);
    if (u->full) {
        plim_m_storage_alloc(x->m, u->full);
    } else {
        u->full = make_flat(x, u, t);
        make_parameters(x, u);
    }
    plim_m_record_stream(x->m, cast, UNSHARD_STREAM);
    plim_m_drop(x->m, cast);
    plim_m_set_stream(x->m, DEFAULT_STREAM);
    u->unsharded = true;
}

/* On the default stream in forward; the backward of what was made on a stream runs on it. */
static void reshard_unit(plim_shared *x, unit *u, uint16_t stream)
{
    fsdp1 *f = x->own;
    if (!u->unsharded)
        return;
    plim_m_record_stream(x->m, u->full, stream);
    plim_m_storage_free(x->m, u->full);
    u->unsharded = false;
    if (!PLIM_PUSH_ROOM(x->a, f->freed, f->n_freed, f->cap_freed))
        plim_m_oom(x->m);
    else
        f->freed[f->n_freed++] = stream;
}

/* ---- forward ------------------------------------------------------------------------------------ */

static void begin_forward(plim_shared *x, uint32_t k)
{
    fsdp1 *f = x->own;
    for (uint32_t i = 0; i < f->n && !f->started; i++)
        start_unit(x, &f->units[(f->n - 1 + i) % f->n]);
    f->started = true;
    if (k == f->n - 1)
        f->n_order = 0;
    unshard_unit(x, &f->units[k]);
}

static void end_forward(plim_shared *x, uint32_t k)
{
    fsdp1 *f = x->own;
    unit *u = &f->units[k];
    if (u->reshards)
        reshard_unit(x, u, DEFAULT_STREAM);
    u->turn = f->n_order;
    f->order[f->n_order++] = k;
}

/* ---- backward ------------------------------------------------------------------------------------- */

static void begin_backward(plim_shared *x, uint32_t k)
{
    fsdp1 *f = x->own;
    unit *u = &f->units[k];
    if (u->phase == PRE_BACKWARD)
        return;
    u->phase = PRE_BACKWARD;
    if (!u->prefetched)
        unshard_unit(x, u);
    u->prefetched = false;
    unit *next = u->turn ? &f->units[f->order[u->turn - 1]] : NULL;
    if (!next)
        return;
    unshard_unit(x, next);
    next->prefetched = true;
}

/* The rank's part of the flat gradient, in the type of the parameters: owned. */
static plim_t reduce_gradient(plim_shared *x, const unit *u, plim_t flat)
{
    const fsdp1 *f = x->own;
    plim_dtype t = plim_m_meta(x->m, flat)->dtype,
               reduce = f->reduce == PLIM_DTYPE_COUNT ? t : f->reduce;
    plim_m_set_stream(x->m, REDUCE_STREAM);
    plim_t cast = reduce == t ? 0
                              : plim_share_flat(x, "reduce-scatter input", PLIM_CAT_GRADIENT,
                                                reduce, u->numel);
    plim_t out = plim_share_flat(x, "reduce-scatter output", PLIM_CAT_GRADIENT, reduce,
                                 shard_numel(x, u));
    if (reduce != u->dtype) {
        plim_t own = plim_share_flat(x, "reduce-scatter output", PLIM_CAT_GRADIENT, u->dtype,
                                     shard_numel(x, u));
        plim_m_drop(x->m, out);
        out = own;
    }
    plim_m_drop(x->m, cast);
    plim_m_set_stream(x->m, DEFAULT_STREAM);
    return out;
}

static void give_gradients(plim_shared *x, const unit *u, plim_t out)
{
    for (uint32_t i = 0; i < u->n; i++) {
        plim_t leaf = x->leaf[u->p[i].value];
        bool has = plim_share_numel(x, leaf) && x->g->values[u->p[i].value].requires_grad;
        if (has && !plim_m_grad(x->m, leaf)) /* else it is added in place */
            plim_m_set_grad(x->m, leaf, plim_m_alias(x->m, out, plim_m_meta(x->m, leaf)));
    }
}

/* Autograd joins the gradients of the flat parameter's parts, with zeros for those that have none and
 * for the padding: owned, or 0 if none has one. */
static plim_t join_gradients(plim_shared *x, const unit *u)
{
    plim_t first = 0, flat = 0, *zeros = PLIM_NEW_N(x->a, plim_t, 2 * (uint64_t)u->n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->n && !first; i++)
        first = plim_m_grad(x->m, x->value[u->p[i].value]);
    if (!zeros)
        plim_m_oom(x->m);
    if (!zeros || !first)
        return 0;
    plim_dtype t = plim_m_meta(x->m, first)->dtype;
    plim_m_set_stream(x->m, UNSHARD_STREAM);
    for (uint32_t i = 0; i < u->n; i++) {
        const piece *p = &u->p[i];
        uint64_t end = p->at + p->numel, next = i + 1 < u->n ? u->p[i + 1].at : u->numel;
        if (!plim_m_grad(x->m, x->value[p->value]))
            zeros[n++] = plim_share_flat(x, "zeros", PLIM_CAT_TEMPORARY, t, p->numel);
        if (next > end)
            zeros[n++] = plim_share_flat(x, "zeros", PLIM_CAT_TEMPORARY, t, next - end);
    }
    flat = plim_share_flat(x, "flat gradient", PLIM_CAT_GRADIENT, t, u->numel);
    while (n)
        plim_m_drop(x->m, zeros[--n]);
    plim_m_set_stream(x->m, DEFAULT_STREAM);
    return flat;
}

static void end_backward(plim_shared *x, uint32_t k)
{
    fsdp1 *f = x->own;
    unit *u = &f->units[k];
    u->phase = POST_BACKWARD;
    plim_t flat = join_gradients(x, u);
    for (uint32_t i = 0; i < u->n; i++) {
        plim_m_record_stream(x->m, plim_m_grad(x->m, x->value[u->p[i].value]), UNSHARD_STREAM);
        plim_m_set_grad(x->m, x->value[u->p[i].value], 0);
    }
    if (u->sum) { /* in place */
        plim_m_drop(x->m, flat);
        flat = u->sum;
    }
    u->sum = plim_share_skips(x) ? flat : 0;
    if (!u->sum || f->reshards)
        reshard_unit(x, u, UNSHARD_STREAM);
    if (!flat || u->sum)
        return;
    plim_t out = reduce_gradient(x, u, flat);
    plim_m_record_stream(x->m, flat, REDUCE_STREAM);
    plim_m_drop(x->m, flat);
    give_gradients(x, u, out);
    plim_m_drop(x->m, out);
}

/* Units whose inputs need no gradient, the blocks first. */
static void finish_backward(plim_shared *x)
{
    fsdp1 *f = x->own;
    for (uint32_t k = 0; k < f->n; k++) {
        if (f->units[k].phase != POST_BACKWARD)
            end_backward(x, k);
        f->units[k].phase = IDLE;
    }
}

const plim_strategy plim_strategy_fsdp1 = {
    .setup = {.wrap = wrap_model, .kinds = number_parts},
    .forward = {.begin = begin_forward, .end = end_forward},
    .backward = {.begin = begin_backward, .end = end_backward, .finish = finish_backward},
};
