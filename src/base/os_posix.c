/* os_posix.c -- pages and files of Linux, macOS and WASI: see os.h. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- files ------------------------------------------------------------- */

/* A pipe has no size and cannot be mapped: its contents are read into memory. */
static plim_status read_to_end(plim_bytes *out, int fd, const char *path, plim_err *err)
{
    const size_t least = (size_t)1 << 20, most = (size_t)1 << 28;
    size_t cap = 0, n = 0;
    uint8_t *p = NULL;
    ssize_t got = 1;
    plim_status st = PLIM_OK;
    while (!st && got) {
        if (n == cap) {
            size_t more = cap ? cap * 2 : least;
            void *q = more > most ? NULL
                                  : mmap(NULL, more, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (!q)
                st = plim_fail(err, PLIM_EIO, 0,
                               "'%s' is not a regular file and is over the limit of %zu bytes",
                               path, most);
            else if (q == MAP_FAILED)
                st = plim_oom(err);
            if (st)
                break;
            if (p) {
                memcpy(q, p, n);
                munmap(p, cap);
            }
            p = q;
            cap = more;
        }
        got = read(fd, p + n, cap - n);
        if (got > 0)
            n += (size_t)got;
        else if (got < 0 && errno != EINTR)
            st = plim_fail(err, PLIM_EIO, 0, "cannot read '%s': %s", path, strerror(errno));
    }
    /* plim_file_unmap knows only n: unmap the unused pages behind it */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = st ? 0 : (n + page - 1) / page * page;
    if (used < cap)
        munmap(p + used, cap - used);
    *out = st || !n ? (plim_bytes){NULL, 0} : (plim_bytes){p, n};
    return st;
}

plim_status plim_file_map(plim_bytes *out, const char *path, plim_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return plim_fail(err, PLIM_EIO, 0, "cannot open '%s': %s", path, strerror(errno));
    struct stat sb;
    plim_status st = PLIM_OK;
    if (fstat(fd, &sb) != 0)
        st = plim_fail(err, PLIM_EIO, 0, "cannot stat '%s': %s", path, strerror(errno));
    else if (S_ISDIR(sb.st_mode))
        st = plim_fail(err, PLIM_EIO, 0, "cannot read '%s': is a directory", path);
    else if (!S_ISREG(sb.st_mode) || !sb.st_size)
        st = read_to_end(out, fd, path, err);
    else {
        void *p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            st = plim_fail(err, PLIM_EIO, 0, "cannot map '%s': %s", path, strerror(errno));
        else
            *out = (plim_bytes){p, (uint64_t)sb.st_size};
    }
    close(fd);
    return st;
}

bool plim_file_exists(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

bool plim_file_is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

void plim_file_unmap(plim_bytes *b)
{
    if (b->p)
        munmap((void *)(uintptr_t)b->p, (size_t)b->n);
    *b = (plim_bytes){NULL, 0};
}

void plim_file_slashes(char *path) { (void)path; }
