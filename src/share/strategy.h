/* strategy.h -- the strategies of strategies.def, and what they have in common. */
#ifndef PLIM_SHARE_STRATEGY_H
#define PLIM_SHARE_STRATEGY_H

#include "share/share.h"

#define PLIM_STRATEGY(name, ...) extern const plim_strategy plim_strategy_##name;
#include "share/strategies.def"
#undef PLIM_STRATEGY

/* The option's place, or n_options. */
uint32_t plim_share_option(const plim_strategy_spec *s, plim_str name);

/* The number of parts that data is divided into, and this rank's. */
static inline int64_t plim_share_parts(const plim_shared *x)
{
    return plim_share_data_parts(x->share);
}
static inline int64_t plim_share_part(const plim_shared *x)
{
    return plim_share_data_part(x->share);
}

/* A number that depends on both. */
static inline uint64_t plim_share_mix(uint64_t kind, uint64_t n)
{
    kind = (kind ^ n) * 0x9e3779b97f4a7c15u;
    return kind ^ kind >> 32;
}

/* Whether it is a parameter of its own that is trained. */
static inline bool plim_share_trained(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER && v->requires_grad && v->tied_to == PLIM_NONE;
}

/* The option no_sync: passes before the last one of a step do not exchange gradients. */
static inline bool plim_share_skips(const plim_shared *x)
{
    return x->more_passes && !x->defers &&
           plim_strategy_number(&x->share->strategy, "no_sync") > 0;
}

/* A one-dimensional tensor of that many elements, named after its role. */
plim_t plim_share_flat(plim_shared *x, const char *role, plim_category c, plim_dtype t,
                       uint64_t numel);
uint64_t plim_share_numel(const plim_shared *x, plim_t t);
/* The first elements of a tensor, in one dimension: owned. */
plim_t plim_share_view(plim_shared *x, plim_t flat, uint64_t numel);
/* The parameter with this id becomes a view of `flat`; after the last of them, the second gives tied
 * values the tensors of those that they are tied to. */
void plim_share_map(plim_shared *x, uint32_t id, plim_t flat);
void plim_share_tie(plim_shared *x);
/* PLIM_EUSAGE: `what`, such as "ZeRO needs parameters of one type", but the value has another type than the
 * first one. */
void plim_share_check_type(plim_shared *x, const char *what, uint32_t first,
                           plim_dtype of_first, uint32_t value, plim_dtype t);
/* DeepSpeed's norm of so many elements, in double precision: a scalar, owned. */
plim_t plim_share_norm(plim_shared *x, uint64_t numel);
/* Megatron-LM's norm of each gradient that a step of the optimizer needs, whether it is clipped or not; norms[]: as
 * much room as there are masters. */
void plim_share_norms(plim_shared *x, plim_t *norms);
/* The masters' gradients, before the next iteration has a batch. */
void plim_share_drop_gradients(plim_shared *x);

/* DeepSpeed's loss / gradient_accumulation_steps * loss_scale, whatever those are: owned, as is *divided,
 * the first quotient. */
plim_t plim_share_scale_loss(plim_shared *x, plim_t loss, plim_t *divided);

/* By place in x->order: the unit that has the value.  NULL: our memory is full. */
uint32_t *plim_share_units(const plim_shared *x);
/* The values of a unit that are tensors of its own, in ids[]: their number. */
uint32_t plim_share_list(const plim_shared *x, const uint32_t *of, uint32_t unit,
                         uint32_t *ids);
/* For kinds(): puts the parameters into x->order, each once, and the repeated blocks into x->units; returns
 * plim_share_units(x).  NULL: our memory is full. */
uint32_t *plim_share_foresee(plim_arena *a, const plim_graph *g, plim_shared *x);
/* Puts them on the card: parameters into whole[], owned, and to the front of ids[]; buffers into x->value.
 * Returns the number of parameters. */
uint32_t plim_share_move(plim_shared *x, uint32_t *ids, uint32_t n, plim_t *whole);
#endif
