/* share.h -- training on several cards: what one rank of the job holds.
 *
 * A rank's tape is made by the machinery of one card.  If the model is divided, its graph is
 * that of the part (axes.def); if not, a strategy hears of the step's events and makes
 * the requests of the library that it stands for (strategies.def).  A shard is a tensor of
 * another shape, a collective an op that reads and writes tensors which are there. */
#ifndef PLIM_SHARE_H
#define PLIM_SHARE_H

#include "core/graph.h"
#include "core/region.h"
#include "machine/machine.h"

typedef enum plim_axis {
#define PLIM_AXIS(name, divide, alike, doc) PLIM_AXIS_##name,
#include "share/axes.def"
#undef PLIM_AXIS
    PLIM_AXES
} plim_axis;

struct plim_share;
struct plim_shared;

/* What a strategy goes with, and what it is like: flags in its row of strategies.def. */
enum {
    PLIM_USUAL = 1,         /* the strategy of dp unless another is given, */
    PLIM_USUAL_CP = 2,      /* and that of cp, as in accelerate */
    PLIM_WITH_TP = 4,       /* takes a model whose weights are divided: DTensors (tensor.c) */
    PLIM_WITH_PP = 8,       /* works within a pipeline, */
    PLIM_WANTS_1F1B = 16,   /* but only if a forward pass follows the first backward pass */
    PLIM_WITH_CP = 32,      /* shares among the cards of cp, too */
    PLIM_WITH_EP = 64,      /* lets some of its cards share out experts */
    PLIM_WITH_SCALER = 128, /* of it GradScaler sees as much as on one card */
    PLIM_WITH_PROMPT = 256, /* modules outside of its units run before them: virtual tokens */
    PLIM_ALONE = 512, /* does the same for one card, and takes models that divide themselves */
    PLIM_WITH_EMA = 1024,     /* leaves a model that averages can copy whole */
    PLIM_NO_CLOSURE = 2048,   /* its optimizer's step() takes none */
    PLIM_WANTS_SAVED = 4096,  /* checkpoints are not reentrant */
    PLIM_FROM_HOST = 8192,    /* the model is not on the card until wrap() puts it there */
    PLIM_ALL_REDUCES = 16384, /* gradients, so NCCL may build trees, too */
    PLIM_FUSED_OPTIM = 32768, /* brings an optimizer whose kernels make no tensors */
    PLIM_ONE_TYPE = 65536,    /* casts all parameters to the model's type */
    PLIM_OF_MODULES = 131072, /* its units are modules; recomputing runs them forward, too */
};

/* What a strategy does, and when: its hooks by phase.  NULL: nothing happens.
 *
 * A unit is one of the repeated blocks of the model, by number, or with PLIM_OF_MODULES one of all
 * calls of modules, which contain others; number x->units.n is the model itself. */
typedef struct plim_strategy {
    struct {
        void (*prepare)(plim_graph *g);      /* replaces ops that the library replaces */
        void (*wrap)(struct plim_shared *x); /* model = Strategy(model) */
        /* The parameters that this rank's optimizer updates: clears the others. */
        void (*choose)(struct plim_shared *x, const uint32_t *value, uint32_t n, bool *own);
        /* For each part of the data a number: parts of the same number hold the same.  NULL: all
         * do. */
        bool (*kinds)(plim_arena *a, const plim_graph *g, const struct plim_share *s,
                      uint64_t *kind);
    } setup;
    struct {
        void (*begin)(struct plim_shared *x, uint32_t unit);
        void (*end)(struct plim_shared *x, uint32_t unit);
        /* Whether it hears of a unit that runs again in backward.  NULL: of those of modules. */
        bool (*again)(const struct plim_shared *x, uint32_t unit);
    } forward;
    struct {
        plim_t (*loss)(struct plim_shared *x, plim_t loss);   /* what it starts from; owned */
        void (*begin)(struct plim_shared *x, uint32_t unit);  /* reaches its outputs */
        void (*end)(struct plim_shared *x, uint32_t unit);    /* has left its inputs */
        void (*gradient)(struct plim_shared *x, plim_t leaf); /* is accumulated */
        void (*finish)(struct plim_shared *x);                /* it ends */
        void (*returned)(struct plim_shared *x);              /* backward() has returned */
        void (*reduce)(struct plim_shared *x); /* the passes of a pipeline have run */
    } backward;
    struct {
        void (*begin)(struct plim_shared *x); /* before the optimizer's step: clips, too */
        /* before and after the step of one master: they are stepped one at a time */
        void (*part)(struct plim_shared *x, uint32_t i);
        void (*part_end)(struct plim_shared *x, uint32_t i);
        void (*end)(struct plim_shared *x); /* after it */
    } step;
} plim_strategy;

enum { PLIM_STRATEGY_OPTIONS = 12 };

/* A row of strategies.def. */
typedef struct plim_strategy_row {
    const char *name, *options, *doc, *src;
    const plim_strategy *strategy;
    unsigned flags;
} plim_strategy_row;

uint32_t plim_strategy_count(void);
const plim_strategy_row *plim_strategy_at(uint32_t i); /* NULL past the end */

typedef struct plim_strategy_spec {
    const char *name;              /* of its row, as are the next two */
    const plim_strategy *strategy; /* NULL: none */
    unsigned flags;
    plim_str text; /* as given: "ddp,view=1" */
    struct {
        plim_str name;
        double number;    /* -1: auto */
        plim_dtype dtype; /* PLIM_DTYPE_COUNT: none */
    } option[PLIM_STRATEGY_OPTIONS];
    uint32_t n_options;
} plim_strategy_spec;

/* Parses "fsdp2,param=bf16".  PLIM_EUSAGE names the unknown word and lists the known ones. */
plim_status plim_strategy_parse(plim_str text, plim_strategy_spec *out, plim_err *err);
double plim_strategy_number(const plim_strategy_spec *spec, const char *option);
/* Whether its shards are replicated: the option "replicate", if it has one. */
bool plim_strategy_replicates(const plim_strategy_spec *spec);
plim_dtype plim_strategy_dtype(const plim_strategy_spec *spec, const char *option);
/* The type in which modules compute on tensors of type t: another one if the strategy's policy of
 * mixed precision has one. */
plim_dtype plim_strategy_computes(const plim_strategy_spec *spec, plim_dtype t);

/* The order of a stage's forward and backward passes. */
typedef enum plim_schedule {
    PLIM_SCHEDULE_1F1B,        /* a backward pass as soon as there is one */
    PLIM_SCHEDULE_GPIPE,       /* all forward passes first */
    PLIM_SCHEDULE_INTERLEAVED, /* 1F1B of several stages per rank */
    PLIM_SCHEDULE_LOOPED,      /* all forward passes of each of them first: breadth first */
    PLIM_SCHEDULE_ZERO_BUBBLE, /* as INTERLEAVED, with gradients of parameters later than those of inputs */
    PLIM_SCHEDULE_MEGATRON /* Megatron-LM's 1F1B */
} plim_schedule;

/* A job, and one rank of it. */
typedef struct plim_share {
    int64_t size[PLIM_AXES]; /* parts; 1: not divided */
    int64_t at[PLIM_AXES];   /* the part that this rank has */
    int64_t world, rank;
    int64_t
        microbatches; /* this and the next two with pp: that enter the pipeline in a step */
    plim_schedule schedule;
    int64_t chunks;  /* stages per rank, every pp-th */
    bool sequence;   /* with tp: the tokens are divided, too, between the products of layers */
    int64_t experts; /* cards, of those of dp, that share out the experts; 1: each has all */
    bool every_rank; /* the setting is "all" */
    plim_strategy_spec strategy;
} plim_share;

/* The job and its rank.  size[]: as given, 0 for none.  rank: NULL for none. */
plim_status plim_share_make(const int64_t *size, const char *rank, plim_share *out,
                            plim_err *err);
/* Its strategy in training: the usual one if `text` is NULL and there is data to share. */
plim_status plim_share_choose(const char *text, plim_share *s, plim_err *err);
/* Makes it about this rank. */
void plim_share_place(plim_share *s, int64_t rank);
/* Divides the graph along every axis that is divided; a strategy may replace ops of it. */
plim_status plim_share_divide(plim_graph *g, const plim_share *s, plim_err *err);
/* The axes' own: stage.c, context.c, tensor.c. */
plim_status plim_share_stage(plim_graph *g, const plim_share *s, plim_err *err);
plim_status plim_share_context(plim_graph *g, const plim_share *s, plim_err *err);
plim_status plim_share_tensor(plim_graph *g, const plim_share *s, plim_err *err);
/* strategy.c */
plim_status plim_share_prepare(plim_graph *g, const plim_share *s, plim_err *err);

/* The parts that the data of a step is divided into, by samples and by tokens, and this rank's: ranks
 * that a strategy shares among. */
static inline int64_t plim_share_data_parts(const plim_share *s)
{
    return s->size[PLIM_AXIS_dp] * s->size[PLIM_AXIS_cp];
}
static inline int64_t plim_share_data_part(const plim_share *s)
{
    return s->at[PLIM_AXIS_dp] * s->size[PLIM_AXIS_cp] + s->at[PLIM_AXIS_cp];
}

/* Whether the ranks exchange data in a step. */
bool plim_share_exchanges(const plim_share *s);

/* Ranks that hold the same, because their graphs and shards are alike. */
typedef struct plim_share_group {
    int64_t first;
    plim_str ranks; /* "0-2,5" */
    int64_t n;
} plim_share_group;
/* Makes the graph of that rank; it lasts until the next one. */
typedef plim_status (*plim_share_graph_of)(void *ud, int64_t rank, const plim_graph **g,
                                           plim_err *err);
/* All ranks in groups, in the order of their first ones.  PLIM_EUSAGE: there are too many. */
plim_status plim_share_groups(plim_arena *a, const plim_share *s, plim_share_graph_of graph,
                              void *ud, plim_share_group **out, uint32_t *n, plim_err *err);

/* What NCCL takes from the driver, on top of the context; 0: it is not used.
 * src: docs/sources/cards.md 2 */
typedef struct plim_share_nccl {
    uint32_t groups;           /* of ranks, each with a communicator */
    uint64_t low, usual, high; /* what connects them */
} plim_share_nccl;
plim_share_nccl plim_share_buffers(const plim_share *s);

typedef struct plim_shared_kept {
    uint32_t unit, value;
    plim_t was; /* owned */
} plim_shared_kept;

/* A strategy at work in a step: what it needs to know, and what it decides. */
typedef struct plim_shared {
    /* the caller's: */
    plim_arena *a;
    plim_machine *m;
    const plim_graph *g;
    const plim_share *share;
    plim_t *value;         /* by value id: what the model's nodes read */
    const uint32_t *order; /* parameters, buffers and constants, as modules hold them */
    uint32_t n_order;
    bool more_passes; /* before the step, after the one that runs */
    bool defers;      /* gradients are reduced once all passes have run */
    /* set by plim_shared_start: */
    const plim_strategy *strategy; /* NULL: none */
    plim_t *leaf;         /* by value id: what is trained, a parameter or a shard of it */
    const plim_t *master; /* what the optimizer updates in the place of all leaves */
    uint32_t n_masters;   /* 0: the leaves */
    const bool *plain;    /* by master: as in plim_optim_param.  NULL: they are not matrices */
    bool on_host;         /* the optimizer and its state are not on the card */
    bool dry_step; /* one without effect makes the optimizer's state before the first pass */
    plim_regions units;
    bool *ends; /* by unit: its inputs are marked, for backward.end; NULL: those of all are */
    bool again; /* what runs is recomputed */
    plim_m_watch watch;
    void *own; /* of the strategy */
    /* strategy.c's: units that are running, and values that stand for others in them */
    uint32_t next, *open, n_open;
    plim_shared_kept *kept;
    uint32_t n_kept, cap_kept;
} plim_shared;

/* The model is wrapped. */
plim_status plim_shared_start(plim_shared *x, plim_err *err);
/* A forward pass begins; before and after each node of it; it has ended. */
void plim_shared_forward(plim_shared *x);
void plim_shared_before(plim_shared *x, uint32_t node);
void plim_shared_after(plim_shared *x, uint32_t node);
void plim_shared_forward_end(plim_shared *x);
/* The nodes from this one on run again, in backward, with the two calls above; they have, or some of
 * them.  Returns what the second wants. */
uint32_t plim_shared_again(plim_shared *x, uint32_t first);
void plim_shared_again_end(plim_shared *x, uint32_t depth);
/* What backward() starts from: owned.  After it: the second. */
plim_t plim_shared_loss(plim_shared *x, plim_t loss);
void plim_shared_returned(plim_shared *x);
/* After the passes of a pipeline. */
void plim_shared_reduce(plim_shared *x);
/* Before and after the optimizer's step.  The first says whether the strategy clips gradients. */
bool plim_shared_step(plim_shared *x);
/* Before and after the step of one of the masters, if they are stepped one at a time. */
bool plim_shared_in_parts(const plim_shared *x);
void plim_shared_part(plim_shared *x, uint32_t i);
void plim_shared_part_end(plim_shared *x, uint32_t i);
void plim_shared_step_end(plim_shared *x);

#endif
