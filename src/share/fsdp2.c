/* fsdp2.c -- fully_shard of each repeated block, and then of the model.
 *
 * Each parameter lies on the card as a shard of its rows, padded to those of rank 0.
 * src: torch 2.13 torch/distributed/fsdp/_fully_shard/_fully_shard.py */
#include "share/fsdp2.h"

/* The number of parts that a parameter is divided into; each replica has all of them. */
static int64_t count_parts(const plim_share *s)
{
    int64_t replicas = (int64_t)plim_strategy_number(&s->strategy, "replicate");
    return plim_share_data_parts(s) / PLIM_MAX(1, replicas);
}

/* Experts that are shared out have a mesh of their own: ranks that have the same ones. */
static bool has_experts(const plim_share *s, plim_str path)
{
    return s->experts > 1 && plim_str_ends(path, PLIM_STR(".experts"));
}

static bool is_expert(const plim_share *s, plim_str name)
{
    while (name.n && name.p[name.n - 1] != '.')
        name.n--;
    return name.n && has_experts(s, (plim_str){name.p, name.n - 1});
}

static bool number_parts(plim_arena *a, const plim_graph *g, const plim_share *s,
                         uint64_t *kind)
{
    int64_t all = plim_share_data_parts(s), most = PLIM_MAX(1, count_parts(s));
    (void)a;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        bool expert = is_expert(s, v->name);
        int64_t parts = expert ? most / s->experts : most;
        if (v->kind != PLIM_VALUE_PARAMETER || !v->meta.rank || v->meta.dim[0] % parts == 0)
            continue;
        for (int64_t k = 0; k < all; k++) {
            int64_t part = expert ? k / s->experts : k % parts;
            kind[k] = plim_share_mix(kind[k],
                                     (uint64_t)plim_fsdp2_rows(v->meta.dim[0], parts, part));
        }
    }
    return true;
}

/* By default the model itself keeps its parameters until backward. */
static plim_fsdp2_mesh place_unit(const plim_shared *x, uint32_t k)
{
    double reshard = plim_strategy_number(&x->share->strategy, "reshard");
    int64_t parts = count_parts(x->share), ranks = x->share->experts, at = plim_share_part(x);
    bool experts =
        k < x->units.n && has_experts(x->share, x->g->scopes[x->units.r[k].scope].path);
    return (plim_fsdp2_mesh){.parts = experts ? parts / ranks : parts,
                             .part = experts ? at / ranks : at % parts,
                             .experts = experts,
                             .divides = experts, /* by the ranks whose tokens they saw */
                             .reshards = reshard < 0 ? k < x->units.n : reshard > 0};
}

static void wrap_model(plim_shared *x)
{
    int64_t parts = count_parts(x->share);
    double replicas = plim_strategy_number(&x->share->strategy, "replicate");
    if (parts < 2 || (double)parts * replicas != (double)plim_share_parts(x))
        plim_m_fail(x->m, PLIM_EUSAGE,
                    "strategy fsdp2: 'replicate' divides the %" PRId64
                    " cards of dp into replicas of two or more cards each",
                    plim_share_parts(x));
    else
        plim_fsdp2_wrap(x, "fully_shard", place_unit);
}

const plim_strategy plim_strategy_fsdp2 = {
    .setup = {.wrap = wrap_model, .kinds = number_parts},
    PLIM_FSDP2_HOOKS,
};
