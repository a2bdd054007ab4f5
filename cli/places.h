/* places.h -- where the files lie that were installed, or built, with this program. */
#ifndef PLIM_PLACES_H
#define PLIM_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#ifndef PLIM_LIBDIR
#define PLIM_LIBDIR "lib"
#endif

/* Writes to `out` the first of the two paths, from the folder of this program, that is
 * readable and does not belong to another user than this program does; false if neither is. */
bool plim_place_find(char *out, size_t n, const char *installed, const char *built);

/* Puts `path` before those that an environment variable lists, which stay as they are.  Where
 * one of the separators is in it, it would be several, some of them from the working directory.
 * Returns the exit code, after printing what is wrong. */
int plim_place_prepend(const char *variable, const char *separators, const char *path);

#endif
