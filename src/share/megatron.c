/* megatron.c -- Megatron-LM's DistributedDataParallel and its optimizer with fp32 master weights.
 *
 * Gradients are added to one buffer, which is there from the start, usually in fp32.  Without the
 * distributed optimizer each rank has all master weights and their state.  With it, parameters lie in
 * a buffer of their own, both buffers are divided into buckets, and a rank has an equal part of each.
 * Experts that are shared out have buffers of their own, and only the ranks that have the same share these.
 * The layer-wise optimizer shares out master weights as wholes, of all parameters or, together with the distributed
 * one, of matrices, which then have a buffer of their own.
 * src: megatron-core 0.16 distributed/param_and_grad_buffer.py, optimizer/optimizer.py,
 * optimizer/distrib_optimizer.py; of 2026-08 optimizer/layer_wise_optimizer.py */
#include "op/op.h"
#include "op/rules.h"
#include "share/megatron_layout.h"
#include "share/strategy.h"

/* How parameters lie, and who updates them. */
typedef struct manner {
    bool distributed, layer_wise;
} manner;

/* Of a stage, or of its experts, or of the matrices that a layer-wise optimizer takes; there is one stage unless the
 * rank has several. */
typedef struct buffers {
    uint32_t stage;
    bool experts, matrices;
    uint32_t first, end; /* its parameters, [first, end) */
    uint64_t numel;
    plim_t params, grads; /* params 0: the model's own tensors */
} buffers;

typedef struct megatron {
    manner how;
    bool wide;         /* gradients in fp32 */
    plim_dtype dtype;  /* of parameters */
    plim_mg_placed *p; /* in the order of the model */
    uint32_t n;
    buffers *b;
    uint32_t n_buffers;
    plim_t one, overflow; /* scalars */
    plim_t *master;       /* in the optimizer's order */
    uint32_t n_masters, *of;
    bool *plain;   /* by master */
    plim_t *norms; /* within a step */
} megatron;

/* ---- buffers ---------------------------------------------------------------------------------- */

/* Only on the first rank of a pipeline there are several buckets, of its first stage. */
static double bucket_size(const plim_share *s, const buffers *b)
{
    return b->stage || s->at[PLIM_AXIS_pp] ? (double)UINT64_MAX : plim_mg_bucket_size(s);
}

/* Those among which the optimizer's state is divided: of so many instances, each has all. */
static plim_mg_place divide_place(const plim_share *s, plim_mg_place p)
{
    int64_t n =
        (int64_t)plim_strategy_number(&s->strategy, "num_distributed_optimizer_instances");
    int64_t of = PLIM_MAX(p.of / PLIM_MAX(n, 1), 1);
    return (plim_mg_place){p.at % of, of};
}

/* Megatron-LM takes the table of words and the head for the model's ends, and positions for a matrix.
 * src: models/common/language_module/language_module.py, is_embedding_or_output_parameter */
static bool is_plain(const plim_graph *g, const bool *ends, uint32_t value)
{
    plim_str name = g->values[value].name;
    bool end = ends[plim_graph_owner(g, value)] || plim_str_has(name, "word_embeddings.");
    return g->values[value].meta.rank != 2 ||
           (end && !plim_str_has(name, "position_embeddings."));
}

/* alone: the parameter that its first and its last stage have. */
static plim_mg_placed place_value(const plim_graph *g, const bool *ends, uint32_t value,
                                  uint64_t numel)
{
    const plim_value *v = &g->values[value];
    bool matrix = v->meta.rank == 2;
    return (plim_mg_placed){.value = value,
                            .rows = matrix ? v->meta.dim[0] : (int64_t)numel,
                            .columns = matrix ? v->meta.dim[1] : 1,
                            .numel = numel,
                            .alone = v->shared,
                            .expert =
                                g->part.expert_ranks > 1 && plim_name_in_experts(v->name),
                            .plain = is_plain(g, ends, value)};
}

static manner manner_of(const plim_strategy_spec *s)
{
    return (manner){plim_strategy_number(s, "use_distributed_optimizer") > 0,
                    plim_strategy_number(s, "layer_wise") > 0};
}

/* The buffer of its stage: matrices have one of their own where they are laid out as wholes, and experts. */
static uint32_t buffer_for(manner how, const plim_mg_placed *p)
{
    return p->expert ? 2 : how.distributed && how.layer_wise && !p->plain;
}

/* Parameters of a stage follow one another; those of its second and its third buffer are put last. */
static bool find_buffers(plim_arena *a, const plim_graph *g, manner how, plim_mg_placed *p,
                         uint32_t n, buffers **out, uint32_t *n_out)
{
    enum { KINDS = 3 };
    uint32_t chunks = PLIM_MAX(g->part.n_chunks, 1u), at = 0;
    plim_mg_placed *room = PLIM_NEW_N(a, plim_mg_placed, (uint64_t)n + 1);
    *n_out = 0;
    *out = PLIM_NEW_N(a, buffers, KINDS * (uint64_t)chunks);
    if (!*out || !room)
        return false;
    memcpy(room, p, n * sizeof *p);
    for (uint32_t k = 0, end = 0; k < chunks; k++) {
        plim_str path = chunks > 1 ? g->scopes[g->part.chunks[k].scope].path : PLIM_STR("");
        uint32_t first = end;
        while (end < n && (!path.n || plim_name_within(g->values[room[end].value].name, path)))
            end++;
        for (uint32_t kind = 0; kind < KINDS; kind++) {
            buffers b = {.stage = k,
                         .experts = kind == 2,
                         .matrices = kind && how.distributed && how.layer_wise,
                         .first = at};
            for (uint32_t i = first; i < end; i++)
                if (buffer_for(how, &room[i]) == kind)
                    p[at++] = room[i];
            b.end = at;
            if (!kind || b.first < b.end)
                (*out)[(*n_out)++] = b;
        }
    }
    return true;
}

/* All that does not depend on the rank. */
static bool lay_out(plim_arena *a, const plim_graph *g, const plim_share *s, plim_mg_placed *p,
                    uint32_t n, buffers *b, uint32_t n_buffers)
{
    manner how = manner_of(&s->strategy);
    bool ok = true;
    const int64_t ranks[2] = {plim_mg_place_of(g, s, 0, false).of,
                              plim_mg_place_of(g, s, 0, true).of};
    for (uint32_t k = 0; k < n_buffers && ok; k++)
        if (b[k].matrices)
            ok = plim_mg_lay_matrices(a, p + b[k].first, b[k].end - b[k].first,
                                      bucket_size(s, &b[k]), ranks[b[k].experts], &b[k].numel);
        else if (!how.distributed)
            b[k].numel = plim_mg_lay_whole(p + b[k].first, b[k].end - b[k].first);
    return ok && (how.distributed || !how.layer_wise || plim_mg_deal_out(a, p, n, ranks));
}

/* What a rank updates. */
static void choose_updates(const plim_graph *g, const plim_share *s, plim_mg_placed *p,
                           buffers *b, uint32_t n_buffers, int64_t part)
{
    manner how = manner_of(&s->strategy);
    for (uint32_t k = 0; k < n_buffers; k++) {
        plim_mg_place own = plim_mg_place_of(g, s, part, b[k].experts);
        uint32_t n = b[k].end - b[k].first;
        if (b[k].matrices || (how.layer_wise && !how.distributed))
            plim_mg_claim(p + b[k].first, n, own.at);
        else if (how.distributed)
            b[k].numel = plim_mg_lay_parts(p + b[k].first, n, bucket_size(s, &b[k]),
                                           divide_place(s, own));
    }
}

static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    manner how = manner_of(&s->strategy);
    int64_t all = plim_share_data_parts(s);
    uint32_t n = 0, n_buffers;
    buffers *b;
    if (!how.distributed && !how.layer_wise)
        return true;
    plim_mg_placed *p = PLIM_NEW_N(a, plim_mg_placed, (uint64_t)g->n_values + 1);
    const bool *ends = plim_find_ends(a, g);
    if (!p || !ends)
        return false;
    for (uint32_t i = 0; i < g->n_values; i++) {
        uint64_t numel;
        if (plim_share_trained(&g->values[i]) && plim_meta_numel(&g->values[i].meta, &numel))
            p[n++] = place_value(g, ends, i, numel);
    }
    if (!find_buffers(a, g, how, p, n, &b, &n_buffers) ||
        !lay_out(a, g, s, p, n, b, n_buffers))
        return false;
    for (int64_t k = 0; k < all; k++) {
        choose_updates(g, s, p, b, n_buffers, k);
        for (uint32_t i = 0; i < n; i++)
            kind[k] = plim_share_mix(kind[k], p[i].last - p[i].first);
    }
    return true;
}

/* ---- the model ----------------------------------------------------------------------------------- */

static void list_parameters(plim_shared *x)
{
    megatron *z = x->own;
    const bool *ends = plim_find_ends(x->a, x->g);
    for (uint32_t i = 0; i < x->n_order && ends; i++) {
        uint32_t id = x->order[i];
        if (!plim_share_trained(&x->g->values[id]))
            continue;
        plim_dtype t = plim_m_meta(x->m, x->value[id])->dtype;
        if (!z->n)
            z->dtype = t;
        z->p[z->n++] = place_value(x->g, ends, id, plim_share_numel(x, x->value[id]));
        plim_share_check_type(x, "Megatron's buffers need parameters of one type",
                              z->p[0].value, z->dtype, id, t);
    }
}

static void make_buffers(plim_shared *x, buffers *b)
{
    megatron *z = x->own;
    if (z->how.distributed)
        b->params = plim_share_flat(x, "parameters", PLIM_CAT_PARAMETER, z->dtype, b->numel);
    b->grads = plim_share_flat(x, "main gradients", PLIM_CAT_GRADIENT,
                               z->wide ? PLIM_F32 : z->dtype, b->numel);
    for (uint32_t i = b->end;
         i-- > b->first && z->how.distributed;) /* they become views of the buffer */
        plim_share_map(x, z->p[i].value, b->params);
}

/* ---- the optimizer ----------------------------------------------------------------------------------- */

static const buffers *buffers_of(const megatron *z, const plim_mg_placed *p)
{
    uint32_t k = 0;
    while ((uint32_t)(p - z->p) >= z->b[k].end)
        k++;
    return &z->b[k];
}

/* Whole ones keep their shape.  Of fp32 parameters there is no copy. */
static plim_t make_master(plim_shared *x, const plim_mg_placed *p)
{
    const megatron *z = x->own;
    uint64_t numel = p->last - p->first;
    plim_meta whole = plim_meta_like(plim_m_meta(x->m, x->value[p->value]), PLIM_F32);
    if (z->dtype == PLIM_F32 && numel == p->numel)
        return plim_m_ref(x->m, x->value[p->value]);
    if (z->dtype == PLIM_F32)
        return plim_share_view(x, buffers_of(z, p)->params, numel);
    plim_t clone = plim_share_flat(x, "master weights", PLIM_CAT_TEMPORARY, z->dtype, numel);
    plim_m_place(x->m, PLIM_NONE, x->g->values[p->value].name, "master",
                 PLIM_CAT_OPTIMIZER_STATE);
    int64_t dim = (int64_t)numel;
    plim_t master = numel == p->numel ? plim_m_empty(x->m, &whole)
                                      : plim_m_empty_contig(x->m, PLIM_F32, 1, &dim);
    plim_m_drop(x->m, clone);
    return master;
}

/* Matrices, whose weights decay, and then the rest. */
static void make_masters(plim_shared *x)
{
    megatron *z = x->own;
    for (int rest = 0; rest < 2; rest++)
        for (uint32_t i = 0; i < z->n; i++) {
            plim_mg_placed *p = &z->p[i];
            bool matrix = plim_m_meta(x->m, x->value[p->value])->rank > 1;
            if (matrix == rest || p->first == p->last)
                continue;
            z->of[z->n_masters] = i;
            z->plain[z->n_masters] = p->plain;
            z->master[z->n_masters++] = plim_m_as_leaf(x->m, make_master(x, p), true);
        }
    x->master = z->master;
    x->n_masters = z->n_masters;
    x->plain = z->how.distributed && !z->how.layer_wise ? NULL : z->plain;
}

static bool check_instances(plim_shared *x)
{
    const plim_share *s = x->share;
    double n = plim_strategy_number(&s->strategy, "num_distributed_optimizer_instances");
    plim_mg_place all = plim_mg_place_of(x->g, s, 0, false);
    const megatron *z = x->own;
    if (z->how.layer_wise && n > 1) {
        plim_m_fail(x->m, PLIM_EUSAGE,
                    "strategy megatron: 'layer_wise' excludes "
                    "'num_distributed_optimizer_instances'");
        return false;
    }
    if (!plim_mg_check_experts(x))
        return false;
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
    if (!z || !(z->p = PLIM_NEW_N(x->a, plim_mg_placed, n)) ||
        !(z->master = PLIM_NEW_N(x->a, plim_t, n)) ||
        !(z->of = PLIM_NEW_N(x->a, uint32_t, n)) || !(z->plain = PLIM_NEW_N(x->a, bool, n)) ||
        !(z->norms = PLIM_NEW_N(x->a, plim_t, n))) {
        plim_m_oom(x->m);
        return;
    }
    z->how = manner_of(s);
    z->wide = plim_strategy_number(s, "grad_reduce_in_fp32") > 0;
    list_parameters(x);
    if (plim_m_bad(x->m) || !z->n || !check_instances(x))
        return;
    if (!find_buffers(x->a, x->g, z->how, z->p, z->n, &z->b, &z->n_buffers) ||
        !lay_out(x->a, x->g, x->share, z->p, z->n, z->b, z->n_buffers)) {
        plim_m_oom(x->m);
        return;
    }
    choose_updates(x->g, x->share, z->p, z->b, z->n_buffers, plim_share_part(x));
    for (uint32_t k = 0; k < z->n_buffers; k++)
        make_buffers(x, &z->b[k]);
    if (z->how.distributed)
        plim_share_tie(x);
    if (z->how.distributed && z->dtype == PLIM_F32)
        z->overflow = plim_share_flat(x, "overflow", PLIM_CAT_TEMPORARY, PLIM_I32, 1);
    z->one = plim_share_flat(x, "loss scale", PLIM_CAT_TEMPORARY, PLIM_F32, 1);
    make_masters(x);
}

/* It is added to the buffer. */
static void take_gradient(plim_shared *x, plim_t leaf) { plim_m_set_grad(x->m, leaf, 0); }

static void begin_step(plim_shared *x)
{
    megatron *z = x->own;
    bool wide = z->wide || z->dtype == PLIM_F32;
    for (uint32_t k = 0; k < z->n_masters; k++) {
        const plim_mg_placed *p = &z->p[z->of[k]];
        plim_m_place(x->m, PLIM_NONE, x->g->values[p->value].name, "main gradient",
                     PLIM_CAT_GRADIENT);
        const plim_meta *meta = plim_m_meta(x->m, z->master[k]);
        plim_m_set_grad(x->m, z->master[k],
                        wide ? plim_m_alias(x->m, buffers_of(z, p)->grads, meta)
                             : plim_m_empty(x->m, meta));
    }
    plim_share_norms(x, z->norms);
}

const plim_strategy plim_strategy_megatron = {
    .setup = {.wrap = wrap_model, .kinds = number_parts},
    .backward = {.gradient = take_gradient},
    .step = {.begin = begin_step, .end = plim_share_drop_gradients},
};
