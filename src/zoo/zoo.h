/* zoo.h -- built-in models.
 *
 * Those of torchvision, and a few that everybody knows, are built from their definition
 * as the graph that an export in train mode shows: so a model and its .pt2 file need the
 * same memory, event for event.  One file a family; zoo.c holds the only list.
 *
 * Those of the Hugging Face hub are rows of names.def: a name, and the config.json from
 * which import/hf builds the model, as it does from a file. */
#ifndef PLIM_ZOO_H
#define PLIM_ZOO_H

#include "import/import.h"
#include "nn/nn.h"

typedef struct plim_zoo_model {
    const char *name;  /* "resnet50" */
    const char *alias; /* other names, separated by spaces, or NULL; of a model of the hub
                          its id comes first, which is also found by its last part */
    const char *doc, *src;
    uint64_t parameters; /* as published; 0: the argument decides */
    int64_t input[3];    /* one sample: channels, height, width; or features, 0, 0 */
    /* Writes the model over input x and ends in plim_nn_output. */
    void (*build)(plim_nn *n, const void *row, uint32_t x);
    const void *row; /* what this model's size is; the family's own type */
    /* "NAME:ARG": ARG into a row and input; NULL: the name takes no argument. */
    const void *(*parse)(plim_nn *n, plim_str arg, int64_t *features);
    /* of a model of the hub, whose `build` is NULL: what it is made from */
    const char *model_type, *config;
} plim_zoo_model;

typedef struct plim_zoo_family {
    const char *name;
    const plim_zoo_model *models;
    uint32_t n;
} plim_zoo_family;

uint32_t plim_zoo_count(void);
/* NULL: past the end.  `family` may be NULL; the family of a model of the hub is its
 * model_type. */
const plim_zoo_model *plim_zoo_at(uint32_t i, const char **family);

/* Is this the name (or "mlp:...") of a built-in model?  Upper and lower case are the same. */
bool plim_zoo_has(plim_str name);
/* PLIM_EUSAGE, with the names that are near. */
plim_status plim_zoo_unknown(plim_str name, plim_err *err);

/* Builds a model into g (its arena is set; the rest is overwritten).  bind may
 * be NULL: batch 1 and the model's own size.  PLIM_EUSAGE: no such model (the
 * nearest names are given) or a shape of another rank; PLIM_ESHAPE: a size that
 * the model cannot take; PLIM_ERANGE: sizes that overflow. */
plim_status plim_zoo_build(plim_graph *g, plim_str name, const plim_binding *bind,
                           plim_err *err);

#define PLIM_ZOO_FAMILY(sym, family)                                                          \
    const plim_zoo_family plim_zoo_##sym = {family, sym##_models, PLIM_COUNT(sym##_models)}

#endif
