/* weights.h -- what the names of weights reveal, whatever file they are in. */
#ifndef PLIM_WEIGHTS_H
#define PLIM_WEIGHTS_H

#include "import/import.h"

/* Notes the packing formats of the items from `first` on, in which an element holds several
 * parameters, so that elements are not parameters. */
plim_status plim_weights_packed(plim_inventory *v, uint32_t first, plim_err *err);

/* If the weights belong to an adapter (LoRA): adds facts from the adapter_config.json next to
 * the file, or a note that there is none. */
plim_status plim_weights_adapter(plim_inventory *v, uint32_t first, const plim_source *s,
                                 plim_err *err);

#endif
