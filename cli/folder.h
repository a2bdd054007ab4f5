/* folder.h -- the temporary folder of a `run` or a `record`: plimsoll-XXXXXX in TMPDIR.
 *
 * In it is a lifeline, plimsoll-XXXXXX.lifeline, which tells whether who made the folder still
 * runs, in whatever container: the next one removes the folders of those that were killed. */
#ifndef PLIM_FOLDER_H
#define PLIM_FOLDER_H

#include <limits.h>

typedef struct plim_folder {
    char path[PATH_MAX]; /* absolute: a command may change its folder */
    char lifeline_path[PATH_MAX + 32];
    int lifeline; /* plim_lifeline_open */
} plim_folder;

/* Makes it.  Returns the exit code, after printing what is wrong. */
int plim_folder_make(plim_folder *f);
/* Removes it, with whatever is in it. */
void plim_folder_remove(plim_folder *f);

#endif
