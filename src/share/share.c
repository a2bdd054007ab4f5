/* share.c -- the job and its ranks: see share.h. */
#include "share/share.h"

#include "base/fmt.h"
#include "base/items.h"
#include "share/strategy.h"

/* ---- axes ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    plim_status (*divide)(plim_graph *g, const plim_share *s, plim_err *err);
} axes[] = {
#define PLIM_AXIS(name, divide, doc) {#name, divide},
#include "share/axes.def"
#undef PLIM_AXIS
};

void plim_share_place(plim_share *s, int64_t rank)
{
    s->rank = rank;
    for (int i = PLIM_AXES; i-- > 0; rank /= s->size[i])
        s->at[i] = rank % s->size[i];
}

plim_status plim_share_divide(plim_graph *g, const plim_share *s, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (int i = 0; i < PLIM_AXES && !st; i++)
        if (s->size[i] > 1 && axes[i].divide)
            st = axes[i].divide(g, s, err);
    return st;
}

/* ---- the settings -------------------------------------------------------------------------- */

static plim_status read_rank(const char *text, plim_share *s, plim_err *err)
{
    int64_t rank = 0;
    int32_t n;
    if (text && (*text == '-' || plim_parse_shape(plim_str_of(text), &rank, 1, &n, NULL) ||
                 rank >= s->world))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'rank' is a number from 0 to %" PRId64 ", not '%s'", s->world - 1,
                         text);
    plim_share_place(s, rank);
    return PLIM_OK;
}

plim_status plim_share_make(const int64_t *size, const char *rank, const char *strategy,
                            bool infer, plim_share *out, plim_err *err)
{
    *out = (plim_share){.world = 1};
    for (int i = 0; i < PLIM_AXES; i++) {
        out->size[i] = size[i] ? size[i] : 1;
        out->world *= out->size[i];
    }
    plim_status st = read_rank(rank, out, err);
    bool shares = out->size[PLIM_AXIS_dp] > 1;
    if (!st && strategy && !shares)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "strategy '%s' shares among cards that train on different data: give "
                         "their number, such as --dp 8",
                         strategy);
    if (!st && strategy && infer)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "strategy '%s' is one of training, not of --infer", strategy);
    if (!st && shares && !infer)
        st = plim_strategy_parse(strategy ? plim_str_of(strategy) : PLIM_STR("ddp"),
                                 &out->strategy, err);
    return st;
}

/* ---- NCCL ------------------------------------------------------------------------------------ */

/* Of each connection in each channel: 10 MiB to receive (three protocols), 2 MiB to send. */
enum { FEW_CHANNELS = 2, CHANNELS = 24, MOST_CHANNELS = 32, TREE_NEIGHBOURS = 3 };

plim_share_nccl plim_share_buffers(const plim_share *s)
{
    const uint64_t connection = 12 << 20;
    const plim_strategy *by = s->strategy.strategy;
    if (s->world < 2 || !by)
        return (plim_share_nccl){0, 0, 0};
    return (plim_share_nccl){FEW_CHANNELS * connection, CHANNELS * connection,
                             connection * MOST_CHANNELS *
                                 (by->reduces ? 1 + TREE_NEIGHBOURS : 1)};
}
