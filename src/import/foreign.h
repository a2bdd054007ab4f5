/* foreign.h -- formats that are recognised but not read, so that the error can say what
 * to do instead. */
#ifndef PLIM_FOREIGN_H
#define PLIM_FOREIGN_H

#include "base/base.h"

typedef struct plim_foreign {
    const char *name;
    bool (*is)(plim_bytes b);
    const char *what;    /* "a Keras archive": as in "'m.keras' is ..." */
    const char *instead; /* "in Keras, call ...": what makes of it a file that is read */
    const char *doc;     /* both, as a line of a list */
    const char *src;     /* how it is recognised */
} plim_foreign;

uint32_t plim_foreign_count(void);
const plim_foreign *plim_foreign_at(uint32_t i);
const plim_foreign *plim_foreign_probe(plim_bytes b); /* the first that it is, or NULL */

#endif
