/* files_windows.c -- files of Windows: base.h, "files".
 *
 * Paths are UTF-8 here and UTF-16 there.  Files are opened through the C library, whose errno
 * has the words that the other systems use. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

enum { PATH_MOST = 32768 }; /* of Windows, with the NUL */

/* False: it is not a path. */
static bool widen_path(wchar_t *out, const char *path)
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, PATH_MOST))
        return true;
    errno = EINVAL;
    return false;
}

static DWORD path_attributes(const char *path)
{
    wchar_t wide[PATH_MOST];
    return widen_path(wide, path) ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
}

/* /dev/stdin, as other systems name it, is the standard input. */
static int open_file(const char *path)
{
    wchar_t wide[PATH_MOST];
    if (!strcmp(path, "/dev/stdin")) {
        int fd = _dup(0);
        if (fd >= 0)
            _setmode(fd, _O_BINARY);
        return fd;
    }
    return widen_path(wide, path) ? _wopen(wide, _O_RDONLY | _O_BINARY | _O_NOINHERIT) : -1;
}

/* ---- files, read in order ----------------------------------------------- */

plim_status plim_os_open(plim_os_file *f, const char *path, plim_err *err)
{
    struct _stat64 sb;
    *f = (plim_os_file){-1, UINT64_MAX, path};
    if (plim_file_is_folder(path))
        return plim_fail(err, PLIM_EIO, 0, "cannot read '%s': is a directory", path);
    f->fd = open_file(path);
    if (f->fd < 0)
        return plim_fail(err, PLIM_EIO, 0, "cannot open '%s': %s", path, strerror(errno));
    if (_fstat64(f->fd, &sb)) {
        plim_fail(err, PLIM_EIO, 0, "cannot stat '%s': %s", path, strerror(errno));
        plim_os_close(f);
        return PLIM_EIO;
    }
    if ((sb.st_mode & _S_IFMT) == _S_IFREG && sb.st_size)
        f->n = (uint64_t)sb.st_size;
    return PLIM_OK;
}

plim_status plim_os_read(const plim_os_file *f, void *to, size_t n, size_t *got, plim_err *err)
{
    int r = _read(f->fd, to, (unsigned)PLIM_MIN(n, (size_t)INT_MAX));
    *got = r > 0 ? (size_t)r : 0;
    return r >= 0
               ? PLIM_OK
               : plim_fail(err, PLIM_EIO, 0, "cannot read '%s': %s", f->path, strerror(errno));
}

void plim_os_close(const plim_os_file *f) { _close(f->fd); }

/* ---- files that are read whole -------------------------------------------- */

/* Of a file, or with INVALID_HANDLE_VALUE of that much memory; it outlives the handle.  NULL:
 * GetLastError says why. */
static void *map_view(HANDLE file, uint64_t bytes)
{
    bool memory = file == INVALID_HANDLE_VALUE;
    HANDLE mapping = CreateFileMappingW(file, NULL, memory ? PAGE_READWRITE : PAGE_READONLY,
                                        (DWORD)(bytes >> 32), (DWORD)bytes, NULL);
    DWORD access = memory ? FILE_MAP_WRITE : FILE_MAP_READ;
    void *view = mapping ? MapViewOfFile(mapping, access, 0, 0, 0) : NULL;
    if (mapping)
        CloseHandle(mapping);
    return view;
}

/* A pipe has no size and cannot be mapped: its contents are read into memory. */
static plim_status read_to_end(plim_bytes *out, const plim_os_file *f, plim_err *err)
{
    const uint64_t least = 1u << 20, most = 1u << 28;
    uint64_t cap = 0;
    size_t got = 1;
    while (got) {
        if (out->n == cap) {
            uint64_t more = cap ? cap * 2 : least;
            if (more > most)
                return plim_fail(
                    err, PLIM_EIO, 0,
                    "'%s' is not a regular file and is over the limit of %llu bytes", f->path,
                    (unsigned long long)most);
            plim_bytes grown = {.p = map_view(INVALID_HANDLE_VALUE, more), .n = out->n};
            if (!grown.p)
                return plim_oom(err);
            if (out->n)
                memcpy((void *)(uintptr_t)grown.p, out->p, (size_t)out->n);
            plim_file_close(out);
            *out = grown;
            cap = more;
        }
        PLIM_TRY(plim_os_read(f, (void *)(uintptr_t)(out->p + out->n), (size_t)(cap - out->n),
                              &got, err));
        out->n += got;
    }
    return PLIM_OK;
}

static plim_status map_or_read(plim_bytes *out, const plim_os_file *f, plim_err *err)
{
    if (f->n == UINT64_MAX)
        return read_to_end(out, f, err);
    *out = (plim_bytes){.p = map_view((HANDLE)_get_osfhandle(f->fd), 0), .n = f->n};
    if (out->p)
        return PLIM_OK;
    return plim_fail(err, PLIM_EIO, 0, "cannot map '%s': error %lu of Windows", f->path,
                     GetLastError());
}

/* A file that is mapped cannot be cut short here. */
plim_status plim_bytes_need(plim_bytes b, uint64_t at, uint64_t n, plim_err *err)
{
    (void)b, (void)at, (void)n, (void)err;
    return PLIM_OK;
}

plim_status plim_bytes_copy(plim_bytes b, uint64_t at, uint64_t n, void *to, plim_err *err)
{
    (void)err;
    if (n)
        memcpy(to, b.p + at, (size_t)n);
    return PLIM_OK;
}

plim_status plim_file_read(plim_bytes *out, const char *path, plim_err *err)
{
    return plim_file_open(out, path, false, err);
}

plim_status plim_file_open(plim_bytes *out, const char *path, bool regular, plim_err *err)
{
    plim_os_file f;
    (void)regular; /* pipes have names of their own */
    *out = (plim_bytes){.p = NULL};
    PLIM_TRY(plim_os_open(&f, path, err));
    plim_status st = map_or_read(out, &f, err);
    if (st || !out->n)
        plim_file_close(out);
    plim_os_close(&f);
    return st;
}

void plim_file_close(plim_bytes *b)
{
    if (b->p)
        UnmapViewOfFile(b->p);
    *b = (plim_bytes){.p = NULL};
}

bool plim_file_exists(const char *path)
{
    return path_attributes(path) != INVALID_FILE_ATTRIBUTES;
}

bool plim_file_is_folder(const char *path)
{
    DWORD a = path_attributes(path);
    return a != INVALID_FILE_ATTRIBUTES && a & FILE_ATTRIBUTE_DIRECTORY;
}

/* "C:/x", "//server/x", with either slash */
bool plim_file_is_absolute(const char *path)
{
    bool drive = *path && path[1] == ':' && (path[2] == '\\' || path[2] == '/');
    return drive || *path == '\\' || *path == '/';
}

void plim_file_slashes(char *path)
{
    for (; *path; path++)
        if (*path == '\\')
            *path = '/';
}
