/* hub.h -- finds models of the Hugging Face hub in the cache that huggingface_hub keeps on
 * disk.  Nothing is downloaded. */
#ifndef PLIM_HUB_H
#define PLIM_HUB_H

#include "base/base.h"

/* Whether this could be an id of the hub: "org/name", of letters, digits and "._-".  A name
 * with the suffix of a file ("runs/net.onnx") is not one. */
bool plim_hub_is_id(plim_str name);

/* Where the cache has a model; p NULL: it has not. */
typedef struct plim_hub_place {
    plim_str ref;      /* the file that names the snapshot, refs/main */
    plim_str snapshot; /* its folder */
} plim_hub_place;

/* The place of this id, in `a`. */
plim_status plim_hub_snapshot(plim_arena *a, plim_str id, plim_hub_place *out, plim_err *err);

/* PLIM_EUSAGE: says what to do about an id that is not in the cache. */
plim_status plim_hub_missing(plim_str id, plim_err *err);

#endif
