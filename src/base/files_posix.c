/* files_posix.c -- files that are read only where asked for: base.h, "files". */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifndef __wasi__
#include <pthread.h>
#endif

static plim_status no_memory(plim_err *err)
{
    plim_budget_failed();
    return plim_oom(err);
}

/* ---- files, read in order ----------------------------------------------- */

/* Files of /proc have a size of 0, whatever they hold. */
plim_status plim_os_open(plim_os_file *f, const char *path, plim_err *err)
{
    struct stat sb;
    plim_status st = PLIM_OK;
    *f = (plim_os_file){open(path, O_RDONLY | O_CLOEXEC), UINT64_MAX, path};
    if (f->fd < 0)
        return plim_fail(err, PLIM_EIO, 0, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(f->fd, &sb) != 0)
        st = plim_fail(err, PLIM_EIO, 0, "cannot stat '%s': %s", path, strerror(errno));
    else if (S_ISDIR(sb.st_mode))
        st = plim_fail(err, PLIM_EIO, 0, "cannot read '%s': is a directory", path);
    else if (S_ISREG(sb.st_mode) && sb.st_size)
        f->n = (uint64_t)sb.st_size;
    if (st)
        plim_os_close(f);
    return st;
}

plim_status plim_os_read(const plim_os_file *f, void *to, size_t n, size_t *got, plim_err *err)
{
    ssize_t r;
    do
        r = read(f->fd, to, n);
    while (r < 0 && errno == EINTR);
    *got = r > 0 ? (size_t)r : 0;
    return r >= 0
               ? PLIM_OK
               : plim_fail(err, PLIM_EIO, 0, "cannot read '%s': %s", f->path, strerror(errno));
}

void plim_os_close(const plim_os_file *f) { close(f->fd); }

/* ---- files that are read only where asked for ---------------------------- */

/* A pipe has no size and cannot be mapped: its contents are read into memory. */
static plim_status read_to_end(plim_bytes *out, const plim_os_file *f, plim_err *err)
{
    const size_t least = (size_t)1 << 20, most = (size_t)1 << 28;
    size_t cap = 0, n = 0, got = 1;
    uint8_t *p = NULL;
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
                               f->path, most);
            else if (q == MAP_FAILED)
                st = no_memory(err);
            if (st)
                break;
            if (p) {
                memcpy(q, p, n);
                munmap(p, cap);
            }
            p = q;
            cap = more;
        }
        st = plim_os_read(f, p + n, cap - n, &got, err);
        n += got;
    }
    /* plim_file_close knows only n: unmap the unused pages behind it */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = st ? 0 : (n + page - 1) / page * page;
    if (used < cap)
        munmap(p + used, cap - used);
    *out = st || !n ? (plim_bytes){.p = NULL} : (plim_bytes){.p = p, .n = n};
    return st;
}

/* A file that is not all in memory.  Its addresses are taken at once; blocks that were read
 * have memory behind them, others none, so that a reader that forgot to ask stops at once. */
struct plim_file {
    uint8_t *p;
    uint64_t n;
    uint64_t block; /* bytes of one */
    uint64_t *here; /* one bit for each block */
    uint64_t held;  /* bytes of blocks that are there, and of this record */
    int fd;
    char *path;
#ifndef __wasi__
    pthread_mutex_t lock;
#endif
};

#ifdef __wasi__
static void lock_file(struct plim_file *f) { (void)f; }
static void unlock_file(struct plim_file *f) { (void)f; }

/* Nothing can be protected there: all blocks have memory behind them. */
enum { UNREAD = PROT_READ | PROT_WRITE };
static bool allow_block(void *p, uint64_t n)
{
    (void)p, (void)n;
    return true;
}
#else
static void lock_file(struct plim_file *f) { pthread_mutex_lock(&f->lock); }
static void unlock_file(struct plim_file *f) { pthread_mutex_unlock(&f->lock); }

enum { UNREAD = PROT_NONE };
static bool allow_block(void *p, uint64_t n)
{
    return mprotect(p, (size_t)n, PROT_READ | PROT_WRITE) == 0;
}
#endif

#ifdef PLIM_DEBUG /* tests see each place where a reader has to ask */
enum { LEAST_BLOCK = 4096, READ_WHOLE = 64 << 10 };
#else
enum { LEAST_BLOCK = 8 << 10, READ_WHOLE = 1 << 20 };
#endif

static void free_file(struct plim_file *f)
{
    if (!f)
        return;
    if (f->p)
        munmap(f->p, (size_t)f->n);
    if (f->fd >= 0)
        close(f->fd);
#ifndef __wasi__
    pthread_mutex_destroy(&f->lock);
#endif
    plim_memory_give(f->held);
    free(f->here);
    free(f->path);
    free(f);
}

static struct plim_file *new_file(int fd, uint64_t n, const char *path)
{
    long page = sysconf(_SC_PAGESIZE); /* has up to 64 KiB */
    uint64_t block = PLIM_MAX((uint64_t)LEAST_BLOCK, page > 0 ? (uint64_t)page : 0);
    uint64_t words = n / block / 64 + 1;
    struct plim_file *f = plim_memory_fails() ? NULL : calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->fd = fd;
    f->n = n;
    f->block = block;
#ifndef __wasi__
    pthread_mutex_init(&f->lock, NULL);
#endif
    void *p = words > SIZE_MAX / 8
                  ? MAP_FAILED
                  : mmap(NULL, (size_t)n, UNREAD, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    f->p = p == MAP_FAILED ? NULL : p;
    f->here = calloc((size_t)words, 8);
    f->path = malloc(strlen(path) + 1);
    if (f->p && f->here && f->path) {
        memcpy(f->path, path, strlen(path) + 1);
        return f;
    }
    f->fd = -1; /* the caller's */
    free_file(f);
    return NULL;
}

static plim_status read_at(const struct plim_file *f, uint64_t from, uint64_t n, uint8_t *to,
                           plim_err *err)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(f->fd, to + done, (size_t)(n - done), (off_t)(from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return plim_fail(err, PLIM_EIO, from, "cannot read '%s': %s", f->path,
                             strerror(errno));
        if (!got)
            return plim_fail(err, PLIM_EIO, from + done,
                             "'%s' had %" PRIu64 " bytes and was truncated while it was read: "
                             "there is nothing at byte %" PRIu64,
                             f->path, f->n, from + done);
        done += (uint64_t)got;
    }
    return PLIM_OK;
}

static plim_status read_block(struct plim_file *f, uint64_t from, uint64_t n, plim_err *err)
{
    if (plim_memory_fails() || !plim_memory_take(n))
        return no_memory(err);
    f->held += n;
    return allow_block(f->p + from, n) ? read_at(f, from, n, f->p + from, err)
                                       : no_memory(err);
}

/* Blocks [first, last), all of which are missing. */
static plim_status read_blocks(struct plim_file *f, uint64_t first, uint64_t last,
                               plim_err *err)
{
    uint64_t from = first * f->block, end = PLIM_MIN(last * f->block, f->n);
    plim_status st = read_block(f, from, end - from, err);
    for (uint64_t i = first; i < last && !st; i++)
        f->here[i / 64] |= 1ull << i % 64;
    return st;
}

static bool is_here(const struct plim_file *f, uint64_t block)
{
    return f->here[block / 64] >> block % 64 & 1;
}

plim_status plim_bytes_need(plim_bytes b, uint64_t at, uint64_t n, plim_err *err)
{
    struct plim_file *f = b.file;
    plim_status st = PLIM_OK;
    plim_assert(at <= b.n && n <= b.n - at);
    if (!f || !n)
        return PLIM_OK;
    uint64_t from = (uint64_t)(b.p - f->p) + at, end = (from + n - 1) / f->block + 1;
    lock_file(f);
    for (uint64_t i = from / f->block; i < end && !st;) {
        uint64_t last = i;
        while (last < end && !is_here(f, last))
            last++;
        if (last > i)
            st = read_blocks(f, i, last, err);
        i = last + 1;
    }
    unlock_file(f);
    return st;
}

plim_status plim_bytes_copy(plim_bytes b, uint64_t at, uint64_t n, void *to, plim_err *err)
{
    plim_assert(at <= b.n && n <= b.n - at);
    if (b.file)
        return read_at(b.file, (uint64_t)(b.p - b.file->p) + at, n, to, err);
    if (n)
        memcpy(to, b.p + at, (size_t)n);
    return PLIM_OK;
}

/* Small files are read at once. */
static plim_status open_regular(plim_bytes *out, int *fd, uint64_t n, const char *path,
                                plim_err *err)
{
    if (n > SIZE_MAX || n > INT64_MAX)
        return plim_fail(err, PLIM_EIO, 0,
                         "'%s' has %" PRIu64 " bytes, more than this build can address", path,
                         n);
    struct plim_file *f = new_file(*fd, n, path);
    if (!f)
        return no_memory(err);
    *fd = -1;
    *out = (plim_bytes){.p = f->p, .n = n, .file = f};
    plim_status st = plim_bytes_need(*out, 0, PLIM_MIN(n, (uint64_t)READ_WHOLE), err);
    if (st)
        plim_file_close(out);
    else if (n <= READ_WHOLE) { /* nothing is left to ask for */
        f->p = NULL;
        free_file(f);
        out->file = NULL;
    }
    return st;
}

/* A pipe in the place of a file would be waited for: it is not opened. */
static plim_status check_regular(const char *path, plim_err *err)
{
    struct stat sb;
    return stat(path, &sb) != 0 || S_ISREG(sb.st_mode) || S_ISDIR(sb.st_mode)
               ? PLIM_OK
               : plim_fail(err, PLIM_EIO, 0, "'%s' is not a regular file", path);
}

plim_status plim_file_open(plim_bytes *out, const char *path, bool regular, plim_err *err)
{
    plim_os_file f;
    *out = (plim_bytes){.p = NULL};
    PLIM_TRY(regular ? check_regular(path, err) : PLIM_OK);
    PLIM_TRY(plim_os_open(&f, path, err));
    plim_status st = f.n == UINT64_MAX ? read_to_end(out, &f, err)
                                       : open_regular(out, &f.fd, f.n, path, err);
    if (f.fd >= 0)
        plim_os_close(&f);
    return st;
}

plim_status plim_file_read(plim_bytes *out, const char *path, plim_err *err)
{
    plim_status st = plim_file_open(out, path, false, err);
    if (!st && (st = plim_bytes_need(*out, 0, out->n, err)) != PLIM_OK)
        plim_file_close(out);
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

void plim_file_close(plim_bytes *b)
{
    if (b->file)
        free_file(b->file);
    else if (b->p)
        munmap((void *)(uintptr_t)b->p, (size_t)b->n);
    *b = (plim_bytes){.p = NULL};
}

bool plim_file_is_absolute(const char *path) { return *path == '/'; }

void plim_file_slashes(char *path) { (void)path; }
