/* share.c -- the job and its ranks: see share.h. */
#include "share/share.h"

#include "base/fmt.h"
#include "base/items.h"
#include "share/strategy.h"

/* ---- axes ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    plim_status (*divide)(plim_graph *g, const plim_share *s, plim_err *err);
    bool alike;
} axes[] = {
#define PLIM_AXIS(name, divide, alike, doc) {#name, divide, alike},
#include "share/axes.def"
#undef PLIM_AXIS
};
_Static_assert(PLIM_COUNT(axes) == PLIM_AXES, "a row for each axis");

void plim_share_place(plim_share *s, int64_t rank)
{
    plim_assert(rank >= 0 && rank < s->world);
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
    s->every_rank = text && !strcmp(text, "all");
    if (text && !s->every_rank &&
        (*text == '-' || !plim_parse_dim(plim_str_of(text), &rank) || rank >= s->world))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'rank' is a number from 0 to %" PRId64 ", or all, not '%s'",
                         s->world - 1, text);
    plim_share_place(s, rank);
    return PLIM_OK;
}

plim_status plim_share_make(const int64_t *size, const char *rank, plim_share *out,
                            plim_err *err)
{
    *out = (plim_share){.world = 1};
    for (int i = 0; i < PLIM_AXES; i++) {
        out->size[i] = size[i] ? size[i] : 1;
        plim_assert(size[i] >= 0);
        out->world *= out->size[i];
    }
    return read_rank(rank, out, err);
}

static plim_str usual_strategy(const plim_share *s)
{
    unsigned flag = s->size[PLIM_AXIS_cp] > 1 ? PLIM_USUAL_CP : PLIM_USUAL;
    uint32_t i = 0;
    while (!(plim_strategy_at(i)->flags & flag))
        i++;
    return plim_str_of(plim_strategy_at(i)->name);
}

plim_status plim_share_choose(const char *text, plim_share *s, plim_err *err)
{
    if (!text && plim_share_data_parts(s) < 2)
        return PLIM_OK;
    return plim_strategy_parse(text ? plim_str_of(text) : usual_strategy(s), &s->strategy,
                               err);
}

/* ---- ranks that hold the same --------------------------------------------------------------- */

enum { MOST_RANKS = 4096 };

/* A number for each rank, by the strategy and by its place on the axes that divide the model. */
static plim_status number_ranks(plim_arena *a, const plim_share *s, plim_share_graph_of graph,
                                void *ud, uint64_t *kind, plim_err *err)
{
    const plim_strategy *by = s->strategy.strategy;
    int64_t parts = plim_share_data_parts(s), stage = -1;
    uint64_t *of_part = PLIM_NEW_N(a, uint64_t, parts);
    if (!of_part)
        return plim_oom(err);
    for (int64_t r = 0; r < s->world; r++) {
        plim_share at = *s;
        plim_share_place(&at, r);
        if (by && by->setup.kinds &&
            at.at[PLIM_AXIS_pp] != stage) { /* whose parameters are others */
            const plim_graph *g;
            PLIM_TRY(graph(ud, r, &g, err));
            memset(of_part, 0, (size_t)parts * sizeof *of_part);
            if (!by->setup.kinds(a, g, s, of_part))
                return plim_oom(err);
            stage = at.at[PLIM_AXIS_pp];
        }
        kind[r] = of_part[plim_share_data_part(&at)];
        for (int i = 0; i < PLIM_AXES; i++)
            kind[r] = plim_share_mix(
                kind[r], i == PLIM_AXIS_dp || axes[i].alike ? 0 : (uint64_t)at.at[i]);
    }
    return PLIM_OK;
}

/* "0-2,5": the ranks from `first` on that are of its kind. */
static bool list_ranks(plim_arena *a, const uint64_t *kind, int64_t world,
                       plim_share_group *out)
{
    plim_buf b;
    plim_buf_init(&b, a);
    for (int64_t r = out->first; r < world; r++) {
        int64_t last = r;
        if (kind[r] != kind[out->first])
            continue;
        while (last + 1 < world && kind[last + 1] == kind[r])
            last++;
        plim_buf_printf(&b, "%s%" PRId64, b.n ? "," : "", r);
        if (last > r)
            plim_buf_printf(&b, "-%" PRId64, last);
        out->n += last - r + 1;
        r = last;
    }
    out->ranks = plim_buf_str(&b);
    return !b.bad;
}

plim_status plim_share_groups(plim_arena *a, const plim_share *s, plim_share_graph_of graph,
                              void *ud, plim_share_group **out, uint32_t *n, plim_err *err)
{
    if (s->world > MOST_RANKS)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "all of %" PRId64 " ranks are too many to compare, the limit is %d: "
                         "give one with --rank",
                         s->world, MOST_RANKS);
    uint64_t *kind = PLIM_NEW_N(a, uint64_t, s->world);
    *out = PLIM_NEW_N(a, plim_share_group, s->world);
    *n = 0;
    if (!kind || !*out)
        return plim_oom(err);
    PLIM_TRY(number_ranks(a, s, graph, ud, kind, err));
    for (int64_t r = 0; r < s->world; r++) {
        uint32_t k = 0;
        while (k < *n && kind[(*out)[k].first] != kind[r])
            k++;
        if (k < *n)
            continue;
        (*out)[*n].first = r;
        if (!list_ranks(a, kind, s->world, &(*out)[(*n)++]))
            return plim_oom(err);
    }
    return PLIM_OK;
}

/* ---- NCCL ------------------------------------------------------------------------------------ */

/* Of each connection in each channel: 10 MiB to receive (three protocols), 2 MiB to send. */
enum { FEW_CHANNELS = 2, CHANNELS = 24, MOST_CHANNELS = 32, TREE_NEIGHBOURS = 3 };

bool plim_share_exchanges(const plim_share *s)
{
    return plim_share_data_parts(s) > 1 || s->size[PLIM_AXIS_tp] > 1;
}

bool plim_strategy_replicates(const plim_strategy_spec *s)
{
    return plim_share_option(s, PLIM_STR("replicate")) < s->n_options &&
           plim_strategy_number(s, "replicate") > 1;
}

/* Of each group of ranks that exchange data: those of dp and cp, in two ways if shards are replicated,
 * those of cp, those of tp. */
plim_share_nccl plim_share_buffers(const plim_share *s)
{
    const uint64_t connection = 12 << 20, tree = MOST_CHANNELS * TREE_NEIGHBOURS;
    bool shared = plim_share_data_parts(s) > 1 && s->strategy.strategy;
    bool contexts = s->size[PLIM_AXIS_cp] > 1 && s->size[PLIM_AXIS_dp] > 1;
    uint64_t divides = (s->size[PLIM_AXIS_tp] > 1 ? 1u : 0u) + contexts,
             replicates = plim_strategy_replicates(&s->strategy),
             groups = shared + replicates + divides,
             reducing =
                 (shared && s->strategy.flags & PLIM_ALL_REDUCES) + replicates + divides;
    return (plim_share_nccl){(uint32_t)groups, groups * FEW_CHANNELS * connection,
                             groups * CHANNELS * connection,
                             connection * (groups * MOST_CHANNELS + reducing * tree)};
}
