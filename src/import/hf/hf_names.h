/* hf_names.h -- maps a tensor of a checkpoint to the tensor of the class that it is, or is a
 * part of, as from_pretrained does: published files have names of older versions. */
#ifndef PLIM_HF_NAMES_H
#define PLIM_HF_NAMES_H

#include "base/base.h"

typedef struct plim_hf_rule plim_hf_rule; /* a row of hf_names.def */

/* The rules of a model type. */
typedef struct plim_hf_names {
    plim_str base; /* base_model_prefix with its dot, or "" */
    const plim_hf_rule **rules;
    uint32_t n_rules;
} plim_hf_names;

plim_status plim_hf_names_of(plim_hf_names *n, plim_str model_type, plim_arena *a,
                             plim_err *err);

/* All of a tensor of the class, or part `part` of `parts` of its item `number`. */
typedef struct plim_hf_place {
    uint32_t tensor; /* the map's value */
    uint32_t number, part, parts;
    const plim_hf_rule *rule; /* NULL: the whole */
} plim_hf_place;

/* `model`: the names of the class.  False: none of them matches. */
bool plim_hf_place_of(const plim_hf_names *n, const plim_map *model, plim_str stored,
                      plim_hf_place *out);

/* The name of a part of the same tensor as `stored`, which is another part of it, at `there`;
 * {NULL, 0}: no memory. */
plim_str plim_hf_name_beside(plim_arena *a, plim_str stored, const plim_hf_place *there,
                             uint64_t number, uint64_t part);

/* The class's name of a module, given the file's; {NULL, 0}: no memory. */
plim_str plim_hf_renamed(const plim_hf_names *n, plim_str module, plim_arena *a);

/* Whether it is not in the class and is ignored without a note. */
bool plim_hf_ignores(const plim_hf_names *n, plim_str stored);

#endif
