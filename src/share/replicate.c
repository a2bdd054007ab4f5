/* replicate.c -- replicate of each repeated block, and then of the model: FSDP2's groups of
 * parameters on a mesh without shards.
 *
 * The only part of a parameter is all of it.  The copy that modules compute with stays from
 * forward until the unit's backward pass is over.  The gradients of a unit are added up over
 * all cards in one flat buffer.
 * src: torch 2.13 torch/distributed/_composable/replicate_with_fsdp.py */
#include "share/fsdp2.h"

static plim_fsdp2_mesh keep_whole(const plim_shared *x, uint32_t unit)
{
    (void)unit;
    return (plim_fsdp2_mesh){
        .parts = 1, .divides = plim_strategy_number(&x->share->strategy, "divide_factor") > 0};
}

static void wrap_model(plim_shared *x) { plim_fsdp2_wrap(x, "replicate", keep_whole); }

const plim_strategy plim_strategy_replicate = {
    .setup = {.wrap = wrap_model},
    PLIM_FSDP2_HOOKS,
};
