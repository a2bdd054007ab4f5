/* strategy.h -- the strategies of strategies.def, and what they have in common. */
#ifndef PLIM_SHARE_STRATEGY_H
#define PLIM_SHARE_STRATEGY_H

#include "share/share.h"

#define PLIM_STRATEGY(name, options, doc, src) extern const plim_strategy plim_strategy_##name;
#include "share/strategies.def"
#undef PLIM_STRATEGY

/* The option's place, or n_options. */
uint32_t plim_share_option(const plim_strategy_spec *s, plim_str name);

/* The number of parts that data is divided into, and this rank's. */
static inline int64_t plim_share_parts(const plim_shared *x)
{
    return x->share->size[PLIM_AXIS_dp];
}
static inline int64_t plim_share_part(const plim_shared *x)
{
    return x->share->at[PLIM_AXIS_dp];
}

/* A number that depends on both. */
static inline uint64_t plim_share_mix(uint64_t kind, uint64_t n)
{
    kind = (kind ^ n) * 0x9e3779b97f4a7c15u;
    return kind ^ kind >> 32;
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

/* DeepSpeed's loss / gradient_accumulation_steps * loss_scale, whatever those are: owned, as is *divided,
 * the first quotient. */
plim_t plim_share_scale_loss(plim_shared *x, plim_t loss, plim_t *divided);

/* By place in x->order: the unit that has the value.  NULL: our memory is full. */
uint32_t *plim_share_units(const plim_shared *x);
/* The values of a unit that are tensors of its own, in ids[]: their number. */
uint32_t plim_share_list(const plim_shared *x, const uint32_t *of, uint32_t unit,
                         uint32_t *ids);
/* Puts them on the card: parameters into whole[], owned, and to the front of ids[]; buffers into x->value.
 * Returns the number of parameters. */
uint32_t plim_share_move(plim_shared *x, uint32_t *ids, uint32_t n, plim_t *whole);
#endif
