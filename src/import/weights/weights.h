/* weights.h -- what the names of weights give away, whatever file they are in. */
#ifndef PLIM_WEIGHTS_H
#define PLIM_WEIGHTS_H

#include "import/import.h"

/* Notes the ways of packing that the items from `first` on are stored in: several
 * parameters to an element, so that elements are not parameters. */
plim_status plim_weights_packed(plim_inventory *v, uint32_t first, plim_err *err);

/* If they belong to an adapter (LoRA): facts from the adapter_config.json beside the
 * file, or a note that there is none. */
plim_status plim_weights_adapter(plim_inventory *v, uint32_t first, const plim_source *s,
                                 plim_err *err);

#endif
