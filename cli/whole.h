/* whole.h -- a file that is replaced as a whole: whoever reads it sees the old text or the new
 * one, never a part.
 *
 * The new one is written next to it, under a name that nobody can have prepared, and renamed.
 * What has the file's name is replaced, be it a link: nothing is written through one, which
 * somebody else may have put into a shared folder.  Only a pipe, a device, or a stream of this
 * process (/dev/stdout, /dev/fd/3) is written to where it is.
 *
 * For a file that nobody reads in part, and that its user may have made a link, fopen is
 * enough: it follows links as the redirections of a shell do. */
#ifndef PLIM_WHOLE_H
#define PLIM_WHOLE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct plim_whole {
    const char *path;
    char temporary[PATH_MAX]; /* "": it is written to where it is */
    FILE *file;
} plim_whole;

/* Begins the new text, which is then written to `file`; false: errno says why. */
bool plim_whole_open(plim_whole *w, const char *path);
/* Ends it and puts it in its place; if it is not good, drops it; false: errno says why. */
bool plim_whole_close(plim_whole *w, bool good);
/* Removes what processes that were killed have left next to it. */
void plim_whole_sweep(const char *path);

#endif
