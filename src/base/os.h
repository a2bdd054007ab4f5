/* os.h -- what the library asks of the operating system besides the C library: large pages, processors and
 * files that are read in order here, other files in base.h ("files"), threads through pthread.h, which every
 * system of ours has.
 *
 * Each system has a file: os_posix.c, os_windows.c; and one for files: files_posix.c, files_windows.c. */
#ifndef PLIM_OS_H
#define PLIM_OS_H

#include "base/base.h"

/* Zeroed memory in large pages; NULL: there are none, so it has to come from the heap. */
void *plim_os_pages(size_t bytes);
void plim_os_pages_free(void *p, size_t bytes);
/* Makes `was` bytes of such memory more, perhaps at another address; NULL: it cannot, and p is as it was. */
void *plim_os_pages_more(void *p, size_t was, size_t bytes);

/* The processors that are online, at least 1. */
uint32_t plim_os_processors(void);

/* Bytes of memory that this process may have, by the machine, its container and limits of the
 * process. */
uint64_t plim_os_memory(void);

/* ---- files, read in order ----------------------------------------------- */

typedef struct plim_os_file {
    int fd;
    uint64_t n; /* bytes that it has; UINT64_MAX: it is not a regular file, or does not say */
    const char *path;
} plim_os_file;

/* PLIM_EIO names the file and the reason. */
plim_status plim_os_open(plim_os_file *f, const char *path, plim_err *err);
/* The next bytes, at most n; *got 0: there are no more. */
plim_status plim_os_read(const plim_os_file *f, void *to, size_t n, size_t *got,
                         plim_err *err);
void plim_os_close(const plim_os_file *f);

#endif
