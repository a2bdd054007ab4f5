/* foreign.h -- formats that are recognised but not read, so that the error can say what
 * to do instead. */
#ifndef PLIM_FOREIGN_H
#define PLIM_FOREIGN_H

#include "base/base.h"

typedef struct plim_foreign {
    const char *name;
    bool (*is)(plim_bytes b);
    const char *what;    /* "a Keras archive": as in "'m.keras' is ..." */
    const char *instead; /* "in Keras, call ...": how to get a file that can be read */
    const char *doc;     /* both, as one line of a list */
    const char *src;     /* how it is recognised */
} plim_foreign;

uint32_t plim_foreign_count(void);
const plim_foreign *plim_foreign_at(uint32_t i);
const plim_foreign *plim_foreign_probe(plim_bytes b); /* the first match, or NULL */

#endif
