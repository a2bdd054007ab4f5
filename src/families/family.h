/* family.h -- model types as data: a text for each, NAME.fam, says what its modules have and do, with sizes as
 * expressions over the keys of config.json.  tools/families writes these texts from runs of transformers;
 * docs/formats/family.md is their grammar.
 *
 *     fam_expr.c    expressions and their values
 *     fam_text.c    a text into blocks of statements
 *     fam_config.c  the keys of a config.json, or their defaults
 *     fam_run.c     runs the blocks, which writes the graph
 *     families.c    the list of texts
 *
 * Each calls only those above it. */
#ifndef PLIM_FAMILY_H
#define PLIM_FAMILY_H

#include "core/binding.h"
#include "nn/nn.h"

typedef struct plim_family {
    const char *model_type;    /* "qwen3" */
    const char *class;         /* "Qwen3ForCausalLM" */
    const unsigned char *text; /* as it is, or a gzip file */
    size_t n;
} plim_family;

uint32_t plim_family_count(void);
const plim_family *plim_family_at(uint32_t i);
/* "": any class, one with a head before the bare model; NULL: not known. */
const plim_family *plim_family_find(plim_str model_type, plim_str class);

/* A family with the keys of one configuration. */
typedef struct plim_family_model plim_family_model;

/* Reads a config.json, in `a`.  A key that the family does not know, or a value that it was not made with, is
 * PLIM_EUNSUPPORTED. */
plim_status plim_family_open(plim_arena *a, const plim_family *f, plim_str config,
                             plim_family_model **out, plim_err *err);
plim_str plim_family_class(const plim_family_model *m); /* "Qwen3ForCausalLM" */
plim_str plim_family_unread(
    const plim_family_model *m); /* keys of the file that no code of the class reads */
plim_str plim_family_attention(
    const plim_family_model *m); /* by default: "sdpa", "eager"; "": it has none */
plim_str plim_family_library(const plim_family_model *m); /* "timm 1.0.31" */
/* What a training step does besides, as its loss: "v8DetectionLoss"; what stands for the loss is in the model.  "": nothing. */
plim_str plim_family_without(const plim_family_model *m);
plim_str plim_family_kernels(
    const plim_family_model
        *m); /* packages whose kernels it takes, where they are installed */
const char *plim_family_input(const plim_family_model *m); /* the first: "pixel_values" */
bool plim_family_caches(
    const plim_family_model *m); /* generation keeps keys and values, or states */
bool plim_family_sees(const plim_family_model *m);  /* is called with images */
bool plim_family_reads(const plim_family_model *m); /* is called with tokens */
bool plim_family_pairs(const plim_family_model *
                           m); /* with texts and images, as pairs: no image is within a text */
/* Tokens of the text whose states it is called with, as a step of a diffusion model is; 0: none. */
int64_t plim_family_text(plim_family_model *m);
int64_t plim_family_frames(plim_family_model *m);   /* of the video that it makes; 0: none */
bool plim_family_fixed(const plim_family_model *m); /* with images of one size */
bool plim_family_rounds(
    const plim_family_model *m); /* of sizes that are multiples of another */
/* How many tokens a sequence has at most, INT64_MAX if that is not said; *hard: they are rows of a table. */
int64_t plim_family_positions(plim_family_model *m, bool *hard);

/* How the model is called. */
typedef struct plim_family_call {
    int64_t batch, seq;     /* seq 0: the family's own, of those that have one */
    int64_t frames;         /* of a video; 0: the family's own */
    int64_t images;         /* of each sequence, where it takes tokens, too */
    int64_t image[2];       /* height and width of its images; 0: as the configuration says */
    bool train;             /* with labels, in train mode */
    bool tokens_are_labels; /* one tensor is both */
    bool cache;             /* use_cache */
    bool eager;             /* attention; else what transformers takes by default */
} plim_family_call;

/* Height and width of its images. */
void plim_family_image(plim_family_model *m, const plim_family_call *call, int64_t *height,
                       int64_t *width);

/* Writes the model, parameters in n->dtype. */
void plim_family_build(plim_nn *n, plim_family_model *m, const plim_family_call *call);

/* What its layers keep of the tokens of a sequence, into g->kv: as a pass over more tokens than any window has keeps them.
 * Nothing is added where that is not keys and values alone, or where such a pass cannot be built.  PLIM_ENOMEM. */
plim_status plim_family_keeps(plim_family_model *m, plim_graph *g, plim_err *err);

#endif
