/* os_posix.c -- pages, processors and memory of Linux, macOS and WASI: see os.h. */
#define _GNU_SOURCE /* mremap */
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

void *plim_os_pages_more(void *p, size_t was, size_t bytes)
{
#ifdef MREMAP_MAYMOVE
    void *q = mremap(p, was, bytes, MREMAP_MAYMOVE);
    return q == MAP_FAILED ? NULL : q;
#else
    (void)p, (void)was, (void)bytes;
    return NULL;
#endif
}

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

/* Lowers *least to the limits of the group `own` below `root` and of those around it; shortens `own`. */
static void lower_limit(uint64_t *least, const char *root, char *own, const char *file)
{
    char path[1200];
    for (char *end = own + strlen(own); end; end = strrchr(own, '/')) {
        *end = 0;
        snprintf(path, sizeof path, "%s%s/%s", root, own, file);
        uint64_t limit = number_in(path);
        *least = PLIM_MIN(*least, limit);
    }
}

/* Of the container, or of the service: a line of /proc/self/cgroup is "0::/a/b" (version 2) or, of
 * version 1, "4:memory:/a/b". */
static uint64_t group_memory(void)
{
    static const char *const two = "/sys/fs/cgroup", *max = "memory.max";
    static const char *const one = "/sys/fs/cgroup/memory", *limit = "memory.limit_in_bytes";
    char text[4096] = "", none[] = "", line[1024];
    uint64_t least = UINT64_MAX;
    /* in a container its own group is the root, whatever the name that it has outside */
    lower_limit(&least, two, none, max);
    lower_limit(&least, one, none, limit);
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    for (const char *at = n > 0 ? text : ""; *at; at += strcspn(at, "\n"), at += *at != 0) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        char *names = strchr(line, ':'), *own = names ? strchr(names + 1, ':') : NULL;
        if (!own || own[1] != '/')
            continue;
        *own++ = 0;
        if (!names[1])
            lower_limit(&least, two, own, max);
        else if (strstr(names, ":memory"))
            lower_limit(&least, one, own, limit);
    }
    return least;
}

/* `failed` is what getrlimit() returned: its first argument has another type with each C library. */
static uint64_t own_limit(int failed, const struct rlimit *r)
{
    return failed || r->rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)r->rlim_cur;
}

uint64_t plim_os_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    struct rlimit space, data;
    const uint64_t limits[] = {group_memory(), own_limit(getrlimit(RLIMIT_AS, &space), &space),
                               own_limit(getrlimit(RLIMIT_DATA, &data), &data)};
    for (size_t i = 0; i < PLIM_COUNT(limits); i++)
        all = PLIM_MIN(all, limits[i]);
    return all;
}
#endif
