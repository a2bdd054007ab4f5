/* megatron.c -- Megatron-LM's DistributedDataParallel and its optimizer with fp32 master weights.
 *
 * Gradients are added to one buffer, which is there from the start, usually in fp32.  Without the
 * distributed optimizer each rank has all master weights and their state.  With it, parameters lie in
 * a buffer of their own, both buffers are divided into buckets, and a rank has an equal part of each.
 * Experts that are shared out have buffers of their own, and only the ranks that have the same share these.
 * src: megatron-core 0.16 distributed/param_and_grad_buffer.py, optimizer/optimizer.py,
 * optimizer/distrib_optimizer.py */
#include "op/rules.h"
#include "share/strategy.h"

enum { PARAM_ALIGNMENT = 64, BUCKET_ALIGNMENT = 128 }; /* elements */

typedef struct placed {
    uint32_t value;
    bool alone;           /* in its bucket */
    bool expert;          /* another rank has other ones */
    uint64_t at, numel;   /* in the buffers */
    uint64_t first, last; /* its elements that this rank's optimizer updates */
} placed;

/* Of a stage, or of its experts; there is one stage unless the rank has several. */
typedef struct buffers {
    uint32_t stage;
    bool experts;
    uint32_t first, end;  /* its parameters, [first, end) */
    plim_t params, grads; /* params 0: the model's own tensors */
} buffers;

typedef struct megatron {
    bool distributed, wide; /* wide: gradients in fp32 */
    plim_dtype dtype;       /* of parameters */
    placed *p;              /* in the order of the model */
    uint32_t n;
    buffers *b;
    uint32_t n_buffers;
    plim_t one, overflow; /* scalars */
    plim_t *master;       /* in the optimizer's order */
    uint32_t n_masters, *of;
    plim_t *norms; /* within a step */
} megatron;

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return plim_sat_mul(a / x, b);
}

/* ---- buffers ---------------------------------------------------------------------------------- */

/* Gives a part its piece of each parameter of a bucket. */
static void divide_bucket(placed *p, uint32_t n, uint64_t from, uint64_t to, uint64_t parts,
                          uint64_t part)
{
    uint64_t each = (to - from) / parts, first = from + each * part, last = first + each;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t a = PLIM_MAX(first, p[i].at), b = PLIM_MIN(last, p[i].at + p[i].numel);
        p[i].first = a < b ? a - p[i].at : 0;
        p[i].last = a < b ? b - p[i].at : 0;
    }
}

/* The last parameters come first, as backward has their gradients first.  A bucket ends as soon as it has
 * `bucket` elements.  Returns the size of a buffer. */
static uint64_t lay_out(placed *p, uint32_t n, double bucket, uint64_t parts, uint64_t part)
{
    uint64_t at = 0, from = 0, divisor = common_multiple(parts, BUCKET_ALIGNMENT);
    uint32_t top = n; /* of the open bucket */
    for (uint32_t i = n; i-- > 0;) {
        at = plim_share_round_up(at, PARAM_ALIGNMENT);
        if (p[i].alone && i + 1 < top) {
            at = plim_share_round_up(at, divisor);
            divide_bucket(&p[i + 1], top - i - 1, from, at, parts, part);
            from = at;
            top = i + 1;
        }
        p[i].at = at;
        at = plim_sat_add(at, p[i].numel);
        if (i && !p[i].alone && (double)(at - from) < bucket)
            continue;
        at = plim_share_round_up(at, divisor);
        divide_bucket(&p[i], top - i, from, at, parts, part);
        from = at;
        top = i;
    }
    return at;
}

/* Without the distributed optimizer there is no padding, and every rank has all. */
static uint64_t lay_out_whole(placed *p, uint32_t n)
{
    uint64_t at = 0;
    for (uint32_t i = n; i-- > 0;) {
        p[i].at = at;
        p[i].last = p[i].numel;
        at = plim_sat_add(at, p[i].numel);
    }
    return at;
}

/* In elements, with the default of Megatron-LM.  Only on the first rank of a pipeline there are several
 * buckets, of its first stage, and there only with overlap. */
static double bucket_size(const plim_share *s, const buffers *b)
{
    const double least = 40e6, each = 1e6;
    double given = plim_strategy_number(&s->strategy, "bucket_size");
    if (b->stage || s->at[PLIM_AXIS_pp] ||
        plim_strategy_number(&s->strategy, "overlap_grad_reduce") <= 0)
        return (double)UINT64_MAX;
    return given >= 0 ? given : PLIM_MAX(least, each * (double)plim_share_data_parts(s));
}

/* A rank's place among those that have the same parameters, and how many these are. */
typedef struct place {
    int64_t at, of;
} place;

/* That share out the experts and the features of each. */
static int64_t count_expert_cards(const plim_graph *g)
{
    return PLIM_MAX(g->expert_ranks, 1) * PLIM_MAX(g->expert_parts, 1);
}

/* src: parallel_state.py: ranks of a stage that follow one another divide an expert, then share out experts */
static place place_of(const plim_graph *g, const plim_share *s, int64_t data_part, bool expert)
{
    int64_t tp = s->size[PLIM_AXIS_tp], all = plim_share_data_parts(s),
            cards = count_expert_cards(g);
    return expert ? (place){(data_part * tp + s->at[PLIM_AXIS_tp]) / cards,
                            PLIM_MAX(all * tp / cards, 1)}
                  : (place){data_part, all};
}

/* Those among which the optimizer's state is divided: of so many instances, each has all. */
static place divide_place(const plim_share *s, place p)
{
    int64_t n =
        (int64_t)plim_strategy_number(&s->strategy, "num_distributed_optimizer_instances");
    int64_t of = PLIM_MAX(p.of / PLIM_MAX(n, 1), 1);
    return (place){p.at % of, of};
}

/* alone: the parameter that its first and its last stage have. */
static placed place_value(const plim_graph *g, uint32_t value, uint64_t numel)
{
    return (placed){.value = value,
                    .numel = numel,
                    .alone = g->values[value].shared,
                    .expert =
                        g->expert_ranks > 1 && plim_name_in_experts(g->values[value].name)};
}

/* Moves experts behind all else, in the order in which they are.  Returns where they begin. */
static uint32_t part_experts(placed *p, uint32_t first, uint32_t end, placed *room)
{
    uint32_t to = first, n = 0;
    for (uint32_t i = first; i < end; i++)
        if (p[i].expert)
            room[n++] = p[i];
        else
            p[to++] = p[i];
    memcpy(p + to, room, n * sizeof *p);
    return to;
}

/* Parameters of a stage follow one another; its experts are put last. */
static bool find_buffers(plim_arena *a, const plim_graph *g, placed *p, uint32_t n,
                         buffers **out, uint32_t *n_out)
{
    uint32_t chunks = PLIM_MAX(g->n_chunks, 1u), at = 0;
    placed *room = PLIM_NEW_N(a, placed, (uint64_t)n + 1);
    *n_out = 0;
    *out = PLIM_NEW_N(a, buffers, 2 * (uint64_t)chunks);
    if (!*out || !room)
        return false;
    for (uint32_t k = 0; k < chunks; k++) {
        plim_str path = chunks > 1 ? g->scopes[g->chunks[k].scope].path : PLIM_STR("");
        uint32_t first = at;
        while (at < n && (!path.n || plim_name_within(g->values[p[at].value].name, path)))
            at++;
        uint32_t experts = part_experts(p, first, at, room);
        (*out)[(*n_out)++] = (buffers){.stage = k, .first = first, .end = experts};
        if (experts < at)
            (*out)[(*n_out)++] =
                (buffers){.stage = k, .experts = true, .first = experts, .end = at};
    }
    return true;
}

static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    int64_t all = plim_share_data_parts(s);
    uint32_t n = 0, n_buffers;
    buffers *b;
    if (plim_strategy_number(&s->strategy, "use_distributed_optimizer") <= 0)
        return true;
    placed *p = PLIM_NEW_N(a, placed, (uint64_t)g->n_values + 1);
    if (!p)
        return false;
    for (uint32_t i = 0; i < g->n_values; i++) {
        uint64_t numel;
        if (plim_share_trained(&g->values[i]) && plim_meta_numel(&g->values[i].meta, &numel))
            p[n++] = place_value(g, i, numel);
    }
    if (!find_buffers(a, g, p, n, &b, &n_buffers))
        return false;
    for (int64_t k = 0; k < all; k++) {
        for (uint32_t i = 0; i < n_buffers; i++) {
            place at = divide_place(s, place_of(g, s, k, b[i].experts));
            lay_out(p + b[i].first, b[i].end - b[i].first, bucket_size(s, &b[i]),
                    (uint64_t)at.of, (uint64_t)at.at);
        }
        for (uint32_t i = 0; i < n; i++)
            kind[k] = plim_share_mix(kind[k], p[i].last - p[i].first);
    }
    return true;
}

/* ---- the model ----------------------------------------------------------------------------------- */

static void list_parameters(plim_shared *x)
{
    megatron *z = x->own;
    for (uint32_t i = 0; i < x->n_order; i++) {
        uint32_t id = x->order[i];
        if (!plim_share_trained(&x->g->values[id]))
            continue;
        plim_dtype t = plim_m_meta(x->m, x->value[id])->dtype;
        if (!z->n)
            z->dtype = t;
        z->p[z->n++] = place_value(x->g, id, plim_share_numel(x, x->value[id]));
        plim_share_check_type(x, "Megatron's buffers need parameters of one type",
                              z->p[0].value, z->dtype, id, t);
    }
}

static void make_buffers(plim_shared *x, uint32_t k)
{
    megatron *z = x->own;
    buffers *b = &z->b[k];
    placed *p = z->p + b->first;
    uint32_t n = b->end - b->first;
    place at =
        divide_place(x->share, place_of(x->g, x->share, plim_share_part(x), b->experts));
    uint64_t numel = z->distributed ? lay_out(p, n, bucket_size(x->share, b), (uint64_t)at.of,
                                              (uint64_t)at.at)
                                    : lay_out_whole(p, n);
    if (z->distributed)
        b->params = plim_share_flat(x, "parameters", PLIM_CAT_PARAMETER, z->dtype, numel);
    b->grads = plim_share_flat(x, "main gradients", PLIM_CAT_GRADIENT,
                               z->wide ? PLIM_F32 : z->dtype, numel);
    if (!z->distributed)
        return;
    for (uint32_t i = n; i-- > 0;) /* they become views of the buffer */
        plim_share_map(x, p[i].value, b->params);
}

/* ---- the optimizer ----------------------------------------------------------------------------------- */

static const buffers *buffers_of(const megatron *z, const placed *p)
{
    uint32_t k = 0;
    while ((uint32_t)(p - z->p) >= z->b[k].end)
        k++;
    return &z->b[k];
}

/* Of fp32 parameters there is no copy. */
static plim_t make_master(plim_shared *x, const placed *p)
{
    const megatron *z = x->own;
    uint64_t numel = p->last - p->first;
    if (z->dtype == PLIM_F32)
        return z->distributed ? plim_share_view(x, buffers_of(z, p)->params, numel)
                              : plim_m_ref(x->m, x->value[p->value]);
    plim_t clone = plim_share_flat(x, "master weights", PLIM_CAT_TEMPORARY, z->dtype, numel);
    plim_m_place(x->m, PLIM_NONE, x->g->values[p->value].name, "master",
                 PLIM_CAT_OPTIMIZER_STATE);
    int64_t dim = (int64_t)numel;
    plim_t master = plim_m_empty_contig(x->m, PLIM_F32, 1, &dim);
    plim_m_drop(x->m, clone);
    return master;
}

/* Matrices, whose weights decay, and then the rest. */
static void make_masters(plim_shared *x)
{
    megatron *z = x->own;
    for (int rest = 0; rest < 2; rest++)
        for (uint32_t i = 0; i < z->n; i++) {
            placed *p = &z->p[i];
            bool matrix = plim_m_meta(x->m, x->value[p->value])->rank > 1;
            if (matrix == rest || (p->first == p->last && z->distributed))
                continue;
            z->of[z->n_masters] = i;
            z->master[z->n_masters++] = plim_m_as_leaf(x->m, make_master(x, p), true);
        }
    x->master = z->master;
    x->n_masters = z->n_masters;
}

static bool check_instances(plim_shared *x)
{
    const plim_share *s = x->share;
    double n = plim_strategy_number(&s->strategy, "num_distributed_optimizer_instances");
    place all = place_of(x->g, s, 0, false);
    int64_t cards = count_expert_cards(x->g);
    if (all.of * s->size[PLIM_AXIS_tp] % cards) {
        plim_m_fail(x->m, PLIM_EUSAGE,
                    "experts are shared out among %" PRId64
                    " cards, which do not divide the %" PRId64 " cards of a stage",
                    cards, all.of * s->size[PLIM_AXIS_tp]);
        return false;
    }
    if ((double)(divide_place(s, all).of * (int64_t)n) == (double)all.of)
        return true;
    plim_m_fail(x->m, PLIM_EUSAGE,
                "strategy megatron: 'num_distributed_optimizer_instances' divides the %" PRId64
                " cards of dp, %g does not",
                plim_share_data_parts(s), n);
    return false;
}

static void wrap_model(plim_shared *x)
{
    const plim_strategy_spec *s = &x->share->strategy;
    megatron *z = x->own = PLIM_NEW(x->a, megatron);
    uint64_t n = (uint64_t)x->n_order + 1;
    if (!z || !(z->p = PLIM_NEW_N(x->a, placed, n)) ||
        !(z->master = PLIM_NEW_N(x->a, plim_t, n)) ||
        !(z->of = PLIM_NEW_N(x->a, uint32_t, n)) ||
        !(z->norms = PLIM_NEW_N(x->a, plim_t, n))) {
        plim_m_oom(x->m);
        return;
    }
    z->distributed = plim_strategy_number(s, "use_distributed_optimizer") > 0;
    z->wide = plim_strategy_number(s, "grad_reduce_in_fp32") > 0;
    list_parameters(x);
    if (plim_m_bad(x->m) || !z->n || !check_instances(x))
        return;
    if (!find_buffers(x->a, x->g, z->p, z->n, &z->b, &z->n_buffers)) {
        plim_m_oom(x->m);
        return;
    }
    for (uint32_t k = 0; k < z->n_buffers; k++)
        make_buffers(x, k);
    if (z->distributed)
        plim_share_tie(x);
    if (z->distributed && z->dtype == PLIM_F32)
        z->overflow = plim_share_flat(x, "overflow", PLIM_CAT_TEMPORARY, PLIM_I32, 1);
    z->one = plim_share_flat(x, "loss scale", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
    make_masters(x);
}

/* It is added to the buffer. */
static void take_gradient(plim_shared *x, plim_t leaf) { plim_m_set_grad(x->m, leaf, 0); }

/* The next iteration begins so, before it has a batch. */
static void drop_gradients(plim_shared *x)
{
    megatron *z = x->own;
    for (uint32_t k = 0; k < z->n_masters; k++)
        plim_m_set_grad(x->m, z->master[k], 0);
}

/* A norm of each gradient, whether they are clipped or not. */
static void compute_norms(plim_shared *x)
{
    megatron *z = x->own;
    plim_t overflow = plim_share_flat(x, "overflow", PLIM_CAT_TEMPORARY, PLIM_I32, 1), all;
    for (uint32_t k = 0; k < z->n_masters; k++) {
        z->norms[k] = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
        plim_reduce_scratch(x->m, plim_m_meta(x->m, z->master[k]), 1);
    }
    all = plim_share_flat(x, "norm", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
    for (uint32_t k = 0; k < z->n_masters; k++)
        plim_m_drop(x->m, z->norms[k]);
    plim_m_drop(x->m, all);
    plim_m_drop(x->m, overflow);
}

static void begin_step(plim_shared *x)
{
    megatron *z = x->own;
    bool wide = z->wide || z->dtype == PLIM_F32;
    for (uint32_t k = 0; k < z->n_masters; k++) {
        const placed *p = &z->p[z->of[k]];
        plim_m_place(x->m, PLIM_NONE, x->g->values[p->value].name, "main gradient",
                     PLIM_CAT_GRADIENT);
        const plim_meta *meta = plim_m_meta(x->m, z->master[k]);
        plim_m_set_grad(x->m, z->master[k],
                        wide ? plim_m_alias(x->m, buffers_of(z, p)->grads, meta)
                             : plim_m_empty(x->m, meta));
    }
    compute_norms(x);
}

const plim_strategy plim_strategy_megatron = {
    .name = "megatron",
    .alone = true,
    .reduces = true,
    .one_type = true,
    .fused = true,
    .wrap = wrap_model,
    .gradient = take_gradient,
    .step = begin_step,
    .step_end = drop_gradients,
    .kinds = number_parts,
};
