/* os_posix.c -- pages, processors and memory of Linux, macOS and WASI: see os.h. */
#include "base/os.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __wasi__
#include <sys/resource.h>
#endif

/* ---- pages ------------------------------------------------------------- */

void *plim_os_pages(size_t bytes)
{
#ifdef MADV_HUGEPAGE
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
#else
    (void)bytes;
    return NULL;
#endif
}

void plim_os_pages_free(void *p, size_t bytes) { munmap(p, bytes); }

/* ---- processors -------------------------------------------------------- */

uint32_t plim_os_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (uint32_t)n : 1;
}

/* ---- memory ------------------------------------------------------------ */

#ifdef __wasi__
uint64_t plim_os_memory(void) { return 4ull << 30; }
#else
static uint64_t number_in(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    char *end = text;
    uint64_t x = n > 0 ? strtoull(text, &end, 10) : 0;
    return end > text && x ? x : UINT64_MAX; /* "max" */
}

/* Of the container, or of the service: /proc/self/cgroup names its groups, each within the one before. */
static uint64_t group_memory(void)
{
    static const char *const whole[] = {"/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    uint64_t least = UINT64_MAX;
    char line[1024] = "", path[1200];
    for (size_t i = 0; i < PLIM_COUNT(whole); i++)
        least = PLIM_MIN(least, number_in(whole[i]));
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    char *own = n > 0 ? strstr(line, "0::/") : NULL;
    if (!own)
        return least;
    own += 3;
    own[strcspn(own, "\n")] = 0;
    for (char *end = own + strlen(own); end > own; end = strrchr(own, '/')) {
        *end = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", own);
        least = PLIM_MIN(least, number_in(path));
    }
    return least;
}

static uint64_t own_limit(int which)
{
    struct rlimit r;
    return getrlimit(which, &r) != 0 || r.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                    : (uint64_t)r.rlim_cur;
}

uint64_t plim_os_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    all = PLIM_MIN(all, group_memory());
    all = PLIM_MIN(all, own_limit(RLIMIT_AS));
    return PLIM_MIN(all, own_limit(RLIMIT_DATA));
}
#endif
