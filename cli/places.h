/* places.h -- where the files lie that were installed, or built, with this program. */
#ifndef PLIM_PLACES_H
#define PLIM_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#ifndef PLIM_LIBDIR
#define PLIM_LIBDIR "lib"
#endif

/* Writes to `out` the first of the two paths, from the folder of this program, that is
 * readable; false if neither is. */
bool plim_place_find(char *out, size_t n, const char *installed, const char *built);

#endif
