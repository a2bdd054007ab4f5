/* whole.c -- see whole.h */
#include "whole.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char mark[] = ".plimsoll-"; /* and 8 digits: the name after that of the file's */
enum { MARK_DIGITS = 8 };

/* The folder of a file, and the name in it. */
static const char *split_path(const char *path, char *folder, size_t room)
{
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) + 1 : 0;
    snprintf(folder, room, "%.*s", n ? n : 1, n ? path : ".");
    return path + n;
}

/* Links of these folders are files of this process, wherever they lead. */
static bool is_in_place(const char *path)
{
    struct stat st;
    char folder[PATH_MAX], real[PATH_MAX];
    if (lstat(path, &st))
        return false;
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return true;
    split_path(path, folder, sizeof folder);
    return realpath(folder, real) && (!strcmp(real, "/dev") || !strncmp(real, "/proc/", 6));
}

/* Opens a new file next to it, and locks it while it is written: plim_whole_sweep. */
static int open_beside(plim_whole *w)
{
    struct timespec t;
    struct stat st;
    clock_gettime(CLOCK_REALTIME, &t);
    unsigned number = (unsigned)t.tv_nsec * 2654435761u ^ (unsigned)getpid() << 12;
    for (int tries = 0; tries < 100; tries++, number++) {
        int n = snprintf(w->temporary, sizeof w->temporary, "%s%s%0*x", w->path, mark,
                         MARK_DIGITS, number);
        errno = ENAMETOOLONG;
        int fd = n > 0 && (size_t)n < sizeof w->temporary
                     ? open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                            0666)
                     : -1;
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0) {
            flock(fd, LOCK_EX);
            if (!fstat(fd, &st) && st.st_nlink)
                return fd;
            close(fd); /* swept before it was locked */
        }
    }
    errno = EEXIST;
    return -1;
}

bool plim_whole_open(plim_whole *w, const char *path)
{
    *w = (plim_whole){.path = path};
    int fd = is_in_place(path) ? open(path, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC)
                               : open_beside(w);
    w->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    return w->file;
}

/* An errno, or 0.  A network's file system reports a full disk when the file is synced. */
static int put_in_place(const plim_whole *w)
{
    bool good = !fflush(w->file);
    if (*w->temporary)
        good = good && !fsync(fileno(w->file)) && !rename(w->temporary, w->path);
    return good ? 0 : errno;
}

bool plim_whole_close(plim_whole *w, bool good)
{
    int error = good ? put_in_place(w) : errno;
    if (*w->temporary && (error || !good))
        unlink(w->temporary);
    if (fclose(w->file) && good && !error) /* it is locked until here */
        error = errno;
    errno = error;
    return good && !error;
}

static bool is_beside(const char *name, const char *file)
{
    size_t n = strlen(file), m = sizeof mark - 1;
    return !strncmp(name, file, n) && !strncmp(name + n, mark, m) &&
           strspn(name + n + m, "0123456789abcdef") == MARK_DIGITS &&
           !name[n + m + MARK_DIGITS];
}

void plim_whole_sweep(const char *path)
{
    char folder[PATH_MAX];
    const char *file = split_path(path, folder, sizeof folder);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        int fd =
            is_beside(e->d_name, file)
                ? openat(dirfd(d), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                : -1;
        if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            !flock(fd, LOCK_EX | LOCK_NB))
            unlinkat(dirfd(d), e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}
