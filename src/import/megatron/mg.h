/* mg.h -- Megatron-LM: builds, from the arguments of its training scripts, the GPT model that it builds.
 *
 *     mg_args.def    the arguments
 *     mg_args.c      reads them from a shell script or a YAML file
 *     mg_gpt.c       the model
 *     mg_moe.c       its mixtures of experts
 *     mg_importer.c  what the arguments mean for it, and the importer
 *
 * A rank has a part of the weights, and with pipelines one stage or several: the model is built as
 * what this rank has of it. */
#ifndef PLIM_MG_H
#define PLIM_MG_H

#include "import/import.h"
#include "nn/nn.h"

enum { PLIM_MG_MOST_EXPERTS = 512 };

typedef struct plim_mg_args {
#define MG_TYPE_SIZE int64_t
#define MG_TYPE_REAL double
#define MG_TYPE_SWITCH bool
#define MG_TYPE_WORD plim_str
#define MG_ARG(KIND, field, name, def) MG_TYPE_##KIND field;
#include "import/megatron/mg_args.def"
#undef MG_ARG
    plim_str cublas; /* CUBLAS_WORKSPACE_CONFIG; "": not set */
    bool no_atomics; /* NVTE_ALLOW_NONDETERMINISTIC_ALGO is 0 */
} plim_mg_args;

/* Whether the text names arguments of a model of Megatron-LM. */
bool plim_mg_names_model(plim_bytes b);
/* Words point into the text.  PLIM_EFORMAT and PLIM_EUNSUPPORTED name the argument. */
plim_status plim_mg_read(plim_bytes b, plim_mg_args *out, plim_err *err);

/* What a rank has of a model; all sizes are at least 1. */
typedef struct plim_mg_rank {
    plim_mg_args c;                    /* complete */
    int64_t batch, seq;                /* seq: of this rank's part of the tokens */
    int64_t contexts;                  /* parts of the tokens */
    int64_t heads, groups, ffn, vocab; /* of this rank */
    int64_t expert_cards,
        expert_parts;   /* that share out the experts, and the features of each */
    int64_t expert_ffn; /* of an expert, on this rank */
    plim_rank_part part;
    bool infer;
    int64_t (*layers)(const struct plim_mg_rank *r, int64_t chunk); /* of one of its stages */
} plim_mg_rank;

/* A layer of experts, of x of [sequence, batch, features]; te: modules of Transformer Engine. */
uint32_t plim_mg_moe(plim_nn *n, const plim_mg_rank *r, bool te, uint32_t x);
plim_status plim_mg_build(plim_graph *g, const plim_mg_rank *r, plim_err *err);

#endif
