/* zoo.h -- built-in models.
 *
 * Models of torchvision and a few well-known others are built from their definition as the
 * graph that an export in train mode shows, so that a model and its .pt2 file need the same
 * memory, event for event.  There is one file per family; zoo.c holds the only list.
 *
 * Models of the Hugging Face hub are rows of names.def: a name, and the config.json from which
 * import/hf builds the model, as it does from a file. */
#ifndef PLIM_ZOO_H
#define PLIM_ZOO_H

#include "import/import.h"
#include "nn/nn.h"

typedef struct plim_zoo_model {
    const char *name;  /* "resnet50" */
    const char *alias; /* other names, space-separated; of a hub model first its id */
    const char *doc, *src;
    uint64_t parameters; /* as published; 0: depends on the argument */
    int64_t input[3];    /* one sample: channels, height, width; or features, 0, 0 */
    /* Writes the model over input x and ends with plim_nn_output. */
    void (*build)(plim_nn *n, const void *row, uint32_t x);
    const void *row; /* the size of this model, in a type of the family's own */
    /* "NAME:ARG": parses ARG into a row and the input; NULL: the name takes no argument. */
    const void *(*parse)(plim_nn *n, plim_str arg, int64_t *features);
    /* of a model of the hub, whose `build` is NULL: what it is built from */
    const char *model_type, *config;
    const char *library; /* of a network of another library: "timm" */
    int year;            /* in which its weights were first published; 0: not listed */
    const char *weights; /* the format in which they are published; NULL: not quantized */
} plim_zoo_model;

typedef struct plim_zoo_family {
    const char *name;
    const plim_zoo_model *models;
    uint32_t n;
} plim_zoo_family;

uint32_t plim_zoo_count(void);
/* NULL past the end.  `family` may be NULL; the family of a model of the hub is its
 * model_type, or its library. */
const plim_zoo_model *plim_zoo_at(uint32_t i, const char **family);

/* Whether this is the name (or "mlp:...") of a built-in model; case is ignored.  `loosely`,
 * spaces, dashes, underscores and dots are ignored too, if that leaves one model: "Llama 3.1
 * 8B". */
bool plim_zoo_has(plim_str name, bool loosely);
/* What it works on: "text", "encoder", "seq2seq", "audio", "vision", "vision-text"; "": of mlp. */
const char *plim_zoo_kind(const plim_zoo_model *m);
/* How many positions the configuration of a model of the hub names; 0: none. */
uint64_t plim_zoo_context(const plim_zoo_model *m);
/* The format in which the weights of a built-in model are published: "fp8"; NULL: not quantized. */
const char *plim_zoo_weights(plim_str name);
/* PLIM_EUSAGE, with the nearest names. */
plim_status plim_zoo_unknown(plim_str name, plim_err *err);

/* Builds a model into g (its arena is set; the rest is overwritten).  bind may be NULL: batch
 * 1 and the model's default size.  PLIM_EUSAGE: no such model (with the nearest names) or a
 * shape of another rank; PLIM_ESHAPE: a size that the model cannot take; PLIM_ERANGE: sizes
 * that overflow. */
plim_status plim_zoo_build(plim_graph *g, plim_str name, const plim_binding *bind,
                           plim_err *err);

#define PLIM_ZOO_FAMILY(sym, family)                                                          \
    const plim_zoo_family plim_zoo_##sym = {family, sym##_models, PLIM_COUNT(sym##_models)}

#endif
