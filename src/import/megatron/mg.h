/* mg.h -- Megatron-LM: builds, from the arguments of its training scripts, the model that these build.
 *
 *     mg_args.def    the arguments
 *     mg_args.c      reads them from a shell script or a YAML file
 *     mg_gpt.c, mg_bert.c, mg_t5.c  the models
 *     mg_parts.h     what they have in common
 *     mg_pattern.c   which layers have experts
 *     mg_stages.c    the models, listed, and the stages of a rank
 *     mg_importer.c  what the arguments mean for a rank, and the importer
 *
 * A rank has a part of the weights, and with pipelines one stage or several: the model is built as
 * what this rank has of it. */
#ifndef PLIM_MG_H
#define PLIM_MG_H

#include "import/import.h"
#include "nn/nn.h"

enum { PLIM_MG_MOST_EXPERTS = 512, PLIM_MG_MOST_LAYERS = 1024, PLIM_MG_MOST_NESTED = 8 };

typedef struct plim_mg_args {
#define MG_TYPE_SIZE int64_t
#define MG_TYPE_COUNT int64_t
#define MG_TYPE_REAL double
#define MG_TYPE_SWITCH bool
#define MG_TYPE_GIVEN bool
#define MG_TYPE_WORD plim_str
#define MG_TYPE_LIST plim_str
#define MG_ARG(KIND, field, name, def) MG_TYPE_##KIND field;
#include "import/megatron/mg_args.def"
#undef MG_ARG
    const struct plim_mg_model *model;
    plim_str cublas; /* CUBLAS_WORKSPACE_CONFIG; "": not set */
    bool no_atomics; /* NVTE_ALLOW_NONDETERMINISTIC_ALGO is 0 */
} plim_mg_args;

/* Whether the text names arguments of a model of Megatron-LM. */
bool plim_mg_names_model(plim_bytes b);
/* Words point into the text.  PLIM_EFORMAT and PLIM_EUNSUPPORTED name the argument. */
plim_status plim_mg_read(plim_bytes b, plim_mg_args *out, plim_err *err);

/* The next of "mlp moe" or "[mlp, moe]", which `list` is left without; false: there is none. */
bool plim_mg_next_item(plim_str *list, plim_str *item);

/* What a rank has of a model; all sizes are at least 1. */
typedef struct plim_mg_rank {
    plim_mg_args c;                    /* complete */
    int64_t batch, seq;                /* seq: of this rank's part of the tokens */
    int64_t contexts;                  /* parts of the tokens */
    int64_t ways;                      /* ranks of them that exchange heads for tokens */
    int64_t heads, groups, ffn, vocab; /* of this rank */
    int64_t expert_cards,
        expert_parts;   /* that share out the experts, and the features of each */
    int64_t expert_ffn; /* of an expert, on this rank */
    int64_t shared_ffn; /* of the shared experts; 0: none */
    bool has_experts[PLIM_MG_MOST_LAYERS]; /* instead of an MLP, of all layers */
    plim_rank_part part;
    bool infer;
    int64_t (*layers)(const struct plim_mg_rank *r, int64_t chunk); /* of one of its stages */
} plim_mg_rank;

/* What is built so far: mg_parts.h. */
typedef struct plim_mg plim_mg;

/* One of a rank's stages. */
typedef struct plim_mg_place {
    int64_t layers;
    bool first, last; /* of all stages */
} plim_mg_place;

/* A model that one of Megatron-LM's scripts trains. */
typedef struct plim_mg_model {
    const char *script;    /* "pretrain_gpt.py" */
    const char *type;      /* its class, "GPTModel" */
    const char *name;      /* "megatron_gpt" */
    const char *blocks[2]; /* the paths of its blocks of layers; the rest NULL */
    const char *tokenizer; /* that the script takes by default */
    bool contexts, stages; /* ranks can share out the tokens of a sequence, and the layers */
    /* Completes the arguments, and refuses what is not simulated for this model. */
    plim_status (*complete)(plim_mg_args *c, plim_err *err);
    /* Builds a stage and returns what it gives; received: its input from the stage before, left alone by the first. */
    uint32_t (*add_stage)(plim_mg *b, plim_mg_place at, uint32_t *received);
} plim_mg_model;

extern const plim_mg_model plim_mg_gpt, plim_mg_bert, plim_mg_t5;
/* The model whose script the file names, or NULL. */
const plim_mg_model *plim_mg_named(plim_bytes b);

/* Reads --moe-layer-freq, "2" or "([0]*1+[1]*23)", of that many layers. */
plim_status plim_mg_pattern(plim_str text, int64_t layers, bool *has_experts, plim_err *err);
plim_status plim_mg_build(plim_graph *g, const plim_mg_rank *r, plim_err *err);

#endif
