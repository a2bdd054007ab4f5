/* store.h -- writes what was fetched into plimsoll's own cache, in the layout of huggingface_hub: whole, or
 * not at all.  A reader sees a snapshot only when each of its files is there. */
#ifndef PLIM_STORE_H
#define PLIM_STORE_H

#include "hub/hub.h"

/* A file of a model.  Its name is of words that were checked, with at most one '/': "unet/config.json". */
typedef struct plim_hub_file {
    plim_str name, body;
} plim_hub_file;

/* As the snapshot `commit`, to which the revision of the id leads from now on.  PLIM_EIO: it cannot be
 * written; nothing is left behind. */
plim_status plim_hub_store(plim_arena *a, const plim_hub_id *id, plim_str commit,
                           const plim_hub_file *files, uint32_t n, plim_err *err);

#endif
