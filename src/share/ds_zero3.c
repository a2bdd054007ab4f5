/* ds_zero3.c -- stage 3 of DeepSpeed's ZeRO: parameters, gradients and the optimizer.
 *
 * Which parameters are gathered when is in zero3_fetch.c.  Gradients are copied into a bucket of a fixed
 * size, which is always there; when it is full, each rank receives its part of them.  Master weights in
 * fp32 lie in groups, which the optimizer updates one after the other.
 * src: DeepSpeed 0.19 runtime/zero/stage3.py, partition_parameters.py,
 * runtime/comm/coalesced_collectives.py */
#include "op/rules.h"
#include "share/zero3.h"

/* What the optimizer updates at a time: those that are trained, from the first on. */
typedef struct group {
    uint32_t first, n;
    uint64_t numel; /* of the parts */
} group;

enum { NORMS = 3 };

typedef struct zero3 {
    zero3_fetcher f;
    bool offloads; /* master weights and the optimizer are on the host */
    uint32_t *trained, n_trained;
    group *groups;
    uint32_t n_groups;
    plim_t *master, flat;   /* by group; the parts in the model's type */
    plim_t bucket, kept;    /* gradients: on their way, and their parts */
    uint64_t limit, filled; /* of the bucket, in elements */
    uint32_t *waiting, n_waiting;
    plim_t loss;        /* of this pass, divided */
    plim_t found;       /* whether gradients overflowed */
    plim_t *norms;      /* of each gradient */
    plim_t norm[NORMS]; /* of a group, of all gradients, the same without the loss's scale */
    plim_t last_norm;   /* until the next step's end */
} zero3;

static uint16_t reduce_stream(const zero3 *z)
{
    return z->f.overlaps ? ZERO3_REDUCE_STREAM : ZERO3_DEFAULT_STREAM;
}

/* The elements of a part that are not padding. */
static uint64_t count_own(const zero3_param *p, uint64_t part)
{
    uint64_t from = plim_sat_mul(p->each, part);
    return from < p->numel ? PLIM_MIN(p->each, p->numel - from) : 0;
}

static bool is_divided(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER && v->tied_to == PLIM_NONE;
}

/* With the optimizer on the host, what a rank copies there depends on the padding. */
static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    uint64_t parts = (uint64_t)plim_share_data_parts(s), numel;
    (void)a;
    if (plim_strategy_number(&s->strategy, "offload_optimizer") <= 0)
        return true;
    for (uint32_t i = 0; i < g->n_values; i++) {
        if (!is_divided(&g->values[i]) || !plim_meta_numel(&g->values[i].meta, &numel) ||
            numel % parts == 0)
            continue;
        zero3_param p = {.numel = numel, .each = numel / parts + 1};
        for (uint64_t k = 0; k < parts; k++)
            kind[k] = plim_share_mix(kind[k], count_own(&p, k));
    }
    return true;
}

/* ---- initialize(): modules and their parameters ------------------------------------------------- */

static uint32_t place_of(const plim_shared *x, uint32_t value)
{
    const zero3 *z = x->own;
    uint32_t of = x->g->values[value].tied_to;
    of = of == PLIM_NONE ? value : of;
    for (uint32_t i = 0; i < z->f.n; i++)
        if (z->f.p[i].value == of)
            return i;
    return PLIM_NONE;
}

/* The innermost module whose name the parameter's begins with. */
static uint32_t owner_of(const plim_shared *x, plim_str name, const plim_map *calls)
{
    uint32_t unit;
    while (name.n) {
        while (name.n && name.p[name.n - 1] != '.')
            name.n--;
        name.n -= name.n > 0;
        if (name.n && plim_map_get(calls, name, &unit))
            return unit;
    }
    return x->units.n;
}

static bool identify_modules(plim_shared *x, plim_map *calls)
{
    zero3_fetcher *f = &((zero3 *)x->own)->f;
    for (uint32_t i = 0; i < x->units.n; i++) {
        plim_str path = x->g->scopes[x->units.r[i].scope].path;
        if (!plim_map_get(calls, path, &f->identity[i])) {
            f->identity[i] = i;
            if (!plim_map_put(x->a, calls, path, i))
                return false;
        }
    }
    f->identity[x->units.n] = x->units.n;
    return true;
}

static bool add_owner(plim_shared *x, uint32_t id, uint32_t k)
{
    zero3_fetcher *f = &((zero3 *)x->own)->f;
    zero3_module *m = &f->modules[id];
    zero3_param *p = &f->p[k];
    if (plim_zero3_owns(m, k))
        return true;
    if (!PLIM_PUSH_ROOM(x->a, m->p, m->n, m->cap) ||
        !PLIM_PUSH_ROOM(x->a, p->in, p->n_in, p->cap_in))
        return false;
    uint32_t at = m->n++;
    for (; at && m->p[at - 1] > k; at--)
        m->p[at] = m->p[at - 1];
    m->p[at] = k;
    p->in[p->n_in++] = id;
    return true;
}

static bool find_owners(plim_shared *x)
{
    const zero3_fetcher *f = &((zero3 *)x->own)->f;
    plim_map calls = {0};
    bool ok = identify_modules(x, &calls);
    for (uint32_t i = 0; i < x->n_order && ok; i++) {
        uint32_t k = place_of(x, x->order[i]);
        if (k != PLIM_NONE)
            ok = add_owner(x, owner_of(x, x->g->values[x->order[i]].name, &calls), k);
    }
    for (uint32_t i = 0; i < x->units.n && ok; i++)
        x->ends[i] = f->modules[f->identity[i]].n > 0;
    return ok;
}

static void list_parameters(plim_shared *x)
{
    const plim_strategy_spec *s = &x->share->strategy;
    zero3 *z = x->own;
    uint64_t parts = (uint64_t)plim_share_parts(x);
    for (uint32_t i = 0; i < x->n_order; i++) {
        uint32_t id = x->order[i];
        const plim_value *v = &x->g->values[id];
        if (!is_divided(v) || !x->value[id])
            continue;
        plim_dtype t = plim_m_meta(x->m, x->value[id])->dtype;
        if (!z->f.n)
            z->f.dtype = t;
        uint64_t numel = plim_share_numel(x, x->value[id]);
        z->f.p[z->f.n] = (zero3_param){
            .value = id,
            .numel = numel,
            .each = numel / parts + (numel % parts != 0),
            .trained = v->requires_grad,
            .persists =
                (double)numel <= plim_strategy_number(s, "stage3_param_persistence_threshold"),
            .status = ZERO3_HERE,
            .at_in_flight = PLIM_NONE,
        };
        if (v->requires_grad)
            z->trained[z->n_trained++] = z->f.n;
        z->f.n++;
        plim_share_check_type(x, "DeepSpeed's ZeRO needs parameters of one type",
                              z->f.p[0].value, z->f.dtype, id, t);
    }
}

static bool make_state(plim_shared *x)
{
    const plim_strategy_spec *s = &x->share->strategy;
    zero3 *z = x->own = PLIM_NEW(x->a, zero3);
    uint64_t n = (uint64_t)x->n_order + 1, units = (uint64_t)x->units.n + 1;
    if (!z)
        return false;
    z->limit = (uint64_t)plim_strategy_number(s, "reduce_bucket_size");
    z->offloads = plim_strategy_number(s, "offload_optimizer") > 0;
    z->f.on_host = plim_strategy_number(s, "offload_param") > 0;
    z->f.overlaps = plim_strategy_number(s, "overlap_comm") > 0;
    z->f.prefetch = plim_strategy_number(s, "stage3_prefetch_bucket_size");
    z->f.most_live = plim_strategy_number(s, "stage3_max_live_parameters");
    z->f.reuse = plim_strategy_number(s, "stage3_max_reuse_distance");
    z->f.p = PLIM_NEW_N(x->a, zero3_param, n);
    z->f.modules = PLIM_NEW_N(x->a, zero3_module, units);
    z->f.identity = PLIM_NEW_N(x->a, uint32_t, units);
    z->f.in_flight = PLIM_NEW_N(x->a, uint32_t, n);
    z->f.list = PLIM_NEW_N(x->a, uint32_t, n);
    z->f.backward = PLIM_NEW_N(x->a, uint32_t, units);
    z->trained = PLIM_NEW_N(x->a, uint32_t, n);
    z->groups = PLIM_NEW_N(x->a, group, n);
    z->master = PLIM_NEW_N(x->a, plim_t, n);
    z->waiting = PLIM_NEW_N(x->a, uint32_t, n);
    z->norms = PLIM_NEW_N(x->a, plim_t, n);
    x->ends = PLIM_NEW_N(x->a, bool, units);
    return z->f.p && z->f.modules && z->f.identity && z->f.in_flight && z->f.list &&
           z->f.backward && z->trained && z->groups && z->master && z->waiting && z->norms &&
           x->ends;
}

/* ---- initialize(): parts --------------------------------------------------------------------------- */

/* The model is on the card: its parameters are divided one after the other. */
static void divide_parameters(plim_shared *x)
{
    zero3 *z = x->own;
    for (uint32_t i = 0; i < z->f.n; i++) {
        zero3_param *p = &z->f.p[i];
        plim_m_place(x->m, PLIM_NONE, x->g->values[p->value].name, "part", PLIM_CAT_PARAMETER);
        int64_t each = (int64_t)p->each;
        if (!z->f.on_host)
            p->part = plim_m_empty_contig(x->m, z->f.dtype, 1, &each);
        plim_zero3_put(x, p, 0);
        p->status = ZERO3_AWAY;
    }
}

/* A group ends as soon as it has so many elements. */
static void make_groups(plim_shared *x)
{
    zero3 *z = x->own;
    double size = plim_strategy_number(&x->share->strategy, "sub_group_size");
    bool open = false;
    for (uint32_t i = 0; i < z->n_trained; i++) {
        if (!open)
            z->groups[z->n_groups++] = (group){.first = i};
        group *g = &z->groups[z->n_groups - 1];
        g->n++;
        g->numel = plim_sat_add(g->numel, z->f.p[z->trained[i]].each);
        open = (double)g->numel < size;
    }
}

static uint64_t count_parts(const zero3 *z)
{
    uint64_t numel = 0;
    for (uint32_t i = 0; i < z->n_groups; i++)
        numel = plim_sat_add(numel, z->groups[i].numel);
    return numel;
}

/* Through the memory of the host. */
static void join_parts(plim_shared *x)
{
    zero3 *z = x->own;
    for (uint32_t i = 0; i < z->n_trained; i++) {
        zero3_param *p = &z->f.p[z->trained[i]];
        plim_m_drop(x->m, p->part);
        p->part = 0;
    }
    plim_m_empty_cache(x->m);
    z->flat =
        plim_share_flat(x, "flat parameters", PLIM_CAT_PARAMETER, z->f.dtype, count_parts(z));
}

/* A copy, even of what is fp32 already; the cast of a group lives until that of the next one does. */
static void make_masters(plim_shared *x)
{
    zero3 *z = x->own;
    plim_t cast = 0;
    for (uint32_t i = 0; i < z->n_groups; i++) {
        uint64_t numel = z->groups[i].numel;
        if (z->f.dtype != PLIM_F32 || z->f.on_host) {
            plim_t next = plim_share_flat(x, "master weights", PLIM_CAT_OPTIMIZER_STATE,
                                          PLIM_F32, numel);
            plim_m_drop(x->m, cast);
            cast = next;
        }
        z->master[i] = plim_m_as_leaf(
            x->m,
            plim_share_flat(x, "master weights", PLIM_CAT_OPTIMIZER_STATE, PLIM_F32, numel),
            true);
    }
    plim_m_drop(x->m, cast);
    x->master = z->master;
    x->n_masters = z->n_groups;
}

/* For a moment, so that the optimizer has gradients. */
static void make_first_gradients(plim_shared *x)
{
    const zero3 *z = x->own;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < z->n_groups; i++)
        largest = PLIM_MAX(largest, z->groups[i].numel);
    plim_m_drop(x->m, plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, PLIM_F32, largest));
}

/* Hooks want the whole parameter. */
static void make_hooks(plim_shared *x)
{
    const zero3 *z = x->own;
    for (uint32_t i = 0; i < z->n_trained; i++) {
        plim_t whole = plim_zero3_room(x, &z->f, &z->trained[i], 1),
               part = plim_zero3_part(x, &z->f, z->trained[i]);
        plim_m_drop(x->m, part);
        plim_m_drop(x->m, whole);
    }
}

static void wrap_model(plim_shared *x)
{
    if (!make_state(x)) {
        plim_m_oom(x->m);
        return;
    }
    zero3 *z = x->own;
    list_parameters(x);
    if (!find_owners(x)) {
        plim_m_oom(x->m);
        return;
    }
    if (plim_m_bad(x->m) || !z->n_trained) {
        z->f.n = 0;
        return;
    }
    divide_parameters(x);
    make_groups(x);
    if (!z->offloads)
        z->found = plim_share_flat(x, "overflow", PLIM_CAT_TEMPORARY, PLIM_BOOL, 1);
    if (!z->f.on_host)
        join_parts(x);
    if (!z->offloads) {
        make_masters(x);
        make_first_gradients(x);
    }
    x->on_host = z->offloads;
    z->bucket = plim_share_flat(x, "bucket", PLIM_CAT_GRADIENT, z->f.dtype, z->limit);
    if (!z->offloads)
        z->kept =
            plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, z->f.dtype, count_parts(z));
    make_hooks(x);
}

/* ---- backward ----------------------------------------------------------------------------------- */

static plim_t divide_loss(plim_shared *x, plim_t loss)
{
    zero3 *z = x->own;
    return plim_share_scale_loss(x, loss, &z->loss);
}

/* Behind the parts that are shorter than others: owned, in pads[].  Returns their number. */
static uint64_t make_pads(plim_shared *x, plim_t *pads)
{
    const zero3 *z = x->own;
    uint64_t n = 0;
    for (uint64_t part = 0; part < (uint64_t)plim_share_parts(x); part++)
        for (uint32_t i = 0; i < z->n_waiting; i++) {
            const zero3_param *p = &z->f.p[z->waiting[i]];
            uint64_t pad = p->each - count_own(p, part);
            if (pad)
                pads[n++] = plim_share_flat(x, "padding", PLIM_CAT_TEMPORARY, z->f.dtype, pad);
        }
    return n;
}

/* The gradients in the bucket, by ranks: a copy, unless it is one that needs no padding. */
static plim_t reorder_bucket(plim_shared *x)
{
    const zero3 *z = x->own;
    uint64_t numel = 0, parts = (uint64_t)plim_share_parts(x), pads = 0;
    bool pad = false;
    for (uint32_t i = 0; i < z->n_waiting; i++) {
        const zero3_param *p = &z->f.p[z->waiting[i]];
        numel = plim_sat_add(numel, plim_zero3_padded(x, p));
        pad |= p->numel % parts != 0;
    }
    if (z->n_waiting < 2 && !pad)
        return 0;
    plim_t *list = pad ? PLIM_NEW_N(x->a, plim_t, parts * z->n_waiting) : NULL;
    if (pad && !list) {
        plim_m_oom(x->m);
        return 0;
    }
    pads = pad ? make_pads(x, list) : 0;
    plim_t flat = plim_share_flat(x, "reduce-scatter", PLIM_CAT_GRADIENT, z->f.dtype, numel);
    while (pads-- > 0)
        plim_m_drop(x->m, list[pads]);
    return flat;
}

/* The part of a gradient that was summed up on the host comes back for its norm. */
static void offload_part(plim_shared *x, uint32_t k, uint64_t numel)
{
    zero3 *z = x->own;
    plim_t part = plim_share_flat(x, "gradient", PLIM_CAT_TEMPORARY, z->f.dtype, numel);
    if (!x->more_passes) {
        plim_t norm = plim_share_norm(x, numel);
        plim_m_drop(x->m, z->norms[k]);
        z->norms[k] = norm;
        if (z->f.dtype != PLIM_F32)
            plim_m_drop(x->m,
                        plim_share_flat(x, "gradient", PLIM_CAT_TEMPORARY, PLIM_F32, numel));
    }
    plim_m_drop(x->m, part);
}

static void reduce_bucket(plim_shared *x)
{
    zero3 *z = x->own;
    if (!z->n_waiting)
        return;
    plim_m_set_stream(x->m, reduce_stream(z));
    plim_zero3_sort(z->waiting, z->n_waiting);
    plim_t flat = reorder_bucket(x);
    for (uint32_t i = 0; i < z->n_waiting; i++) {
        zero3_param *p = &z->f.p[z->waiting[i]];
        uint64_t own = count_own(p, (uint64_t)plim_share_part(x));
        if (own && z->offloads)
            offload_part(x, z->waiting[i], own);
        plim_m_record_stream(x->m, plim_m_grad(x->m, x->value[p->value]), reduce_stream(z));
        plim_m_set_grad(x->m, x->value[p->value], 0);
    }
    plim_m_drop(x->m, flat);
    plim_m_set_stream(x->m, ZERO3_DEFAULT_STREAM);
    z->n_waiting = 0;
    z->filled = 0;
}

static uint32_t find_trained(const plim_shared *x, plim_t leaf)
{
    const zero3 *z = x->own;
    for (uint32_t i = 0; i < z->n_trained; i++)
        if (x->value[z->f.p[z->trained[i]].value] == leaf)
            return z->trained[i];
    return PLIM_NONE;
}

/* A gradient larger than the bucket is reduced where it is. */
static void take_gradient(plim_shared *x, plim_t leaf)
{
    zero3 *z = x->own;
    uint32_t k = find_trained(x, leaf);
    if (k == PLIM_NONE || !plim_m_grad(x->m, leaf))
        return;
    uint64_t numel = z->f.p[k].numel;
    if (z->filled && plim_sat_add(z->filled, numel) > z->limit)
        reduce_bucket(x);
    if (plim_sat_add(z->filled, numel) <= z->limit) {
        plim_m_record_stream(x->m, plim_m_grad(x->m, leaf), reduce_stream(z));
        plim_m_set_grad(x->m, leaf, plim_m_alias(x->m, z->bucket, plim_m_meta(x->m, leaf)));
    }
    z->waiting[z->n_waiting++] = k;
    z->filled = plim_sat_add(z->filled, numel);
}

static void finish_backward(plim_shared *x)
{
    zero3 *z = x->own;
    reduce_bucket(x);
    plim_m_synchronize(x->m, reduce_stream(z));
    plim_zero3_returned(x, &z->f);
    plim_m_drop(x->m, z->loss);
    z->loss = 0;
}

/* ---- step ----------------------------------------------------------------------------------------- */

static void drop_norms(plim_shared *x)
{
    zero3 *z = x->own;
    for (uint32_t i = 0; i < z->f.n; i++) {
        plim_m_drop(x->m, z->norms[i]);
        z->norms[i] = 0;
    }
}

static void begin_step(plim_shared *x)
{
    zero3 *z = x->own;
    plim_zero3_release_all(x, &z->f);
    if (!z->f.n || z->offloads)
        return;
    for (uint32_t i = 0; i < z->n_trained; i++)
        z->norms[i] = plim_share_norm(x, z->f.p[z->trained[i]].each);
    drop_norms(x);
    for (int i = 0; i < NORMS; i++)
        z->norm[i] = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F64, 1);
}

/* The gradients of one group in one tensor, in fp32. */
static void begin_group(plim_shared *x, uint32_t i)
{
    zero3 *z = x->own;
    const group *g = &z->groups[i];
    plim_t grad =
        g->n > 1 ? plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, z->f.dtype, g->numel)
                 : plim_share_view(x, z->kept, g->numel);
    if (z->f.dtype != PLIM_F32) {
        plim_t wide = plim_share_flat(x, "gradients", PLIM_CAT_GRADIENT, PLIM_F32, g->numel);
        plim_m_drop(x->m, grad);
        grad = wide;
    }
    plim_m_set_grad(x->m, z->master[i], grad);
}

static void end_group(plim_shared *x, uint32_t i)
{
    const zero3 *z = x->own;
    plim_m_set_grad(x->m, z->master[i], 0);
}

/* What persists is gathered again, all of it before any part that came from the host goes. */
static void gather_persistent(plim_shared *x)
{
    zero3 *z = x->own;
    uint32_t n = 0;
    plim_t *part = PLIM_NEW_N(x->a, plim_t, (uint64_t)z->f.n + 1);
    if (!part) {
        plim_m_oom(x->m);
        return;
    }
    for (uint32_t i = 0; i < z->f.n; i++) {
        zero3_param *p = &z->f.p[i];
        if (p->persists)
            part[n++] = plim_zero3_part(x, &z->f, i);
    }
    for (uint32_t i = 0; i < z->f.n; i++) {
        zero3_param *p = &z->f.p[i];
        if (!p->persists || p->status != ZERO3_AWAY)
            continue;
        plim_zero3_put(x, p, plim_zero3_room(x, &z->f, &i, 1));
        p->status = ZERO3_HERE;
    }
    while (n-- > 0)
        plim_m_drop(x->m, part[n]);
}

static void end_step(plim_shared *x)
{
    zero3 *z = x->own;
    gather_persistent(x);
    plim_m_synchronize(x->m, PLIM_ALL_STREAMS);
    drop_norms(x);
    for (int i = 0; i < NORMS - 1; i++)
        plim_m_drop(x->m, z->norm[i]);
    plim_m_drop(x->m, z->last_norm);
    z->last_norm = z->norm[NORMS - 1];
}

/* ---- modules ------------------------------------------------------------------------------------------ */

static void begin_forward(plim_shared *x, uint32_t unit)
{
    plim_zero3_forward(x, &((zero3 *)x->own)->f, unit);
}
static void end_forward(plim_shared *x, uint32_t unit)
{
    plim_zero3_forward_end(x, &((zero3 *)x->own)->f, unit);
}
static void begin_backward(plim_shared *x, uint32_t unit)
{
    plim_zero3_backward(x, &((zero3 *)x->own)->f, unit);
}
static void end_backward(plim_shared *x, uint32_t unit)
{
    plim_zero3_backward_end(x, &((zero3 *)x->own)->f, unit);
}

/* torch.nn.functional.linear is DeepSpeed's. */
static void replace_linear(plim_graph *g)
{
    bool inplace;
    const plim_op *op = plim_op_find(PLIM_STR("zero3_linear"), PLIM_STR("default"), &inplace);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (plim_node_calls(&g->nodes[i], "linear"))
            g->nodes[i].op = op;
}

const plim_strategy plim_strategy_ds_zero3 = {
    .setup = {.prepare = replace_linear, .wrap = wrap_model, .kinds = number_parts},
    .forward = {.begin = begin_forward, .end = end_forward},
    .backward = {.loss = divide_loss,
                 .begin = begin_backward,
                 .end = end_backward,
                 .gradient = take_gradient,
                 .returned = finish_backward},
    .step = {.begin = begin_step, .part = begin_group, .part_end = end_group, .end = end_step},
};
