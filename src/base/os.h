/* os.h -- what the library asks of the operating system besides the C library: large pages and processors
 * here, files in base.h ("files"), threads through pthread.h, which every system of ours has.
 *
 * Each system has a file: os_posix.c, os_windows.c; and one for files: files_posix.c, files_windows.c. */
#ifndef PLIM_OS_H
#define PLIM_OS_H

#include "base/base.h"

/* Zeroed memory in large pages; NULL: there are none, so it has to come from the heap. */
void *plim_os_pages(size_t bytes);
void plim_os_pages_free(void *p, size_t bytes);

/* The processors that are online, at least 1. */
uint32_t plim_os_processors(void);

/* Bytes of memory that this process may have, by the machine, its container and limits of the
 * process. */
uint64_t plim_os_memory(void);

#endif
