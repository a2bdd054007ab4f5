/* faults.c -- a preloaded library in which one call of the system fails once.
 *
 *     FAULTS=pread:3:5       the third call of pread returns -1 with errno 5
 *     FAULTS=shrink:3        before the third call of pread, somebody halves what it has read of the file
 *     FAULTS=signal:7:15     before the seventh call of any of them, the process gets signal 15
 *     FAULTS_COUNT=FILE      writes "pread 12" for each function, when the process ends
 *
 * Only calls of the program and the library itself are seen, not those within the C library: stdio has
 * its functions here, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default) /* these functions stand in place of the system's */

enum call {
    MALLOC,
    CALLOC,
    REALLOC,
    MMAP,
    MPROTECT,
    OPEN,
    READ,
    PREAD,
    WRITE,
    FSTAT,
    FOPEN,
    FREAD,
    FWRITE,
    FFLUSH,
    FCLOSE,
    THREAD,
    SHRINK,
    SIGNAL,
    CALLS
};
static const char *const names[CALLS] = {
    "malloc", "calloc", "realloc", "mmap",           "mprotect", "open",
    "read",   "pread",  "write",   "fstat",          "fopen",    "fread",
    "fwrite", "fflush", "fclose",  "pthread_create", "shrink",   "signal"};

static _Atomic unsigned long counts[CALLS];
static int faulty = -1, fault_errno, count_fd = -1;
static unsigned long fault_at;
static bool ready;

#define REAL(fn) ((__typeof__(&fn))real(#fn))

/* dlsym itself allocates: while the shim looks something up nothing is counted. */
static _Thread_local bool looking;
static void *real(const char *name)
{
    looking = true;
    void *p = dlsym(RTLD_NEXT, name);
    looking = false;
    return p;
}

__attribute__((constructor)) static void begin_faults(void)
{
    const char *text = getenv("FAULTS"), *path = getenv("FAULTS_COUNT");
    if (path) /* now: later the sandbox forbids it */
        count_fd = REAL(open)(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int i = 0; text && i < CALLS; i++) {
        size_t n = strlen(names[i]);
        char *end;
        if (strncmp(text, names[i], n) != 0 || text[n] != ':')
            continue;
        fault_at = strtoul(text + n + 1, &end, 10);
        fault_errno = *end == ':' ? atoi(end + 1) : 0;
        faulty = i;
    }
    ready = true;
}

__attribute__((destructor)) static void write_counts(void)
{
    ready = false;
    for (int i = 0; count_fd >= 0 && i < CALLS; i++)
        dprintf(count_fd, "%s %lu\n", names[i], counts[i]);
}

/* Is this the call that fails? */
static bool fails(enum call c)
{
    if (!ready || looking)
        return false;
    if (++counts[SIGNAL] == fault_at && faulty == SIGNAL)
        raise(fault_errno);
    if (++counts[c] != fault_at || faulty != (int)c)
        return false;
    errno = fault_errno;
    return true;
}

/* What dlsym asks for before there is a real one comes from here, and stays. */
static char early[1 << 16];
static size_t early_used;
static void *take_early(size_t n)
{
    void *p = early + early_used;
    early_used += (n + 15) / 16 * 16;
    return early_used <= sizeof early ? p : NULL;
}
static bool is_early(const void *p)
{
    return (const char *)p >= early && (const char *)p < early + sizeof early;
}

void *malloc(size_t n)
{
    static __typeof__(&malloc) next;
    if (looking)
        return take_early(n);
    if (!next)
        next = REAL(malloc);
    return fails(MALLOC) ? NULL : next(n);
}

void *calloc(size_t n, size_t size)
{
    static __typeof__(&calloc) next;
    if (looking)
        return take_early(n * size); /* zeros */
    if (!next)
        next = REAL(calloc);
    return fails(CALLOC) ? NULL : next(n, size);
}

void *realloc(void *p, size_t n)
{
    static __typeof__(&realloc) next;
    if (!next)
        next = REAL(realloc);
    return fails(REALLOC) ? NULL : next(p, n);
}

void free(void *p)
{
    static __typeof__(&free) next;
    if (is_early(p))
        return;
    if (!next)
        next = REAL(free);
    next(p);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return fails(MMAP) ? MAP_FAILED : REAL(mmap)(at, n, prot, flags, fd, offset);
}

int mprotect(void *at, size_t n, int prot)
{
    return fails(MPROTECT) ? -1 : REAL(mprotect)(at, n, prot);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(ap, int) : 0;
    va_end(ap);
    return fails(OPEN) ? -1 : REAL(open)(path, flags, mode);
}

ssize_t read(int fd, void *p, size_t n) { return fails(READ) ? -1 : REAL(read)(fd, p, n); }

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    char path[64];
    if (fails(SHRINK)) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (truncate(path, (at + (off_t)n) / 2) != 0)
            abort();
    }
    return fails(PREAD) ? -1 : REAL(pread)(fd, p, n, at);
}

ssize_t write(int fd, const void *p, size_t n)
{
    return fails(WRITE) ? -1 : REAL(write)(fd, p, n);
}

int fstat(int fd, struct stat *sb) { return fails(FSTAT) ? -1 : REAL(fstat)(fd, sb); }

FILE *fopen(const char *path, const char *mode)
{
    return fails(FOPEN) ? NULL : REAL(fopen)(path, mode);
}

size_t fread(void *p, size_t size, size_t n, FILE *f)
{
    return fails(FREAD) ? 0 : REAL(fread)(p, size, n, f);
}

/* Without the bytes, as on a disk that is full. */
size_t fwrite(const void *p, size_t size, size_t n, FILE *f)
{
    return fails(FWRITE) ? 0 : REAL(fwrite)(p, size, n, f);
}

int fflush(FILE *f) { return fails(FFLUSH) ? EOF : REAL(fflush)(f); }

int fclose(FILE *f)
{
    bool bad = fails(FCLOSE);
    int rc = REAL(fclose)(f);
    return bad ? EOF : rc;
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *ud)
{
    return fails(THREAD) ? EAGAIN : REAL(pthread_create)(t, attr, run, ud);
}
