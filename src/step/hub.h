/* hub.h -- models of the Hugging Face hub that this machine has already: what
 * huggingface_hub keeps of them on disk.  Nothing is downloaded. */
#ifndef PLIM_HUB_H
#define PLIM_HUB_H

#include "base/base.h"

/* Could this be an id of the hub: "org/name", of letters, digits and "._-"?  What has the
 * suffix of a file ("runs/net.onnx") is none. */
bool plim_hub_is_id(plim_str name);

/* The folder of the id's snapshot that refs/main names, in `a`; p NULL: the cache has none. */
plim_status plim_hub_snapshot(plim_arena *a, plim_str id, plim_str *out, plim_err *err);

/* PLIM_EUSAGE: what to do about an id that is not here. */
plim_status plim_hub_missing(plim_str id, plim_err *err);

#endif
