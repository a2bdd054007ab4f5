/* lifeline.c -- see lifeline.h */
#include "lifeline.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AT_RUN, AT_PROCESSES }; /* the bytes that are locked */

static struct flock lock_byte(int type, int at)
{
    struct flock lock = {.l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    lock.l_type = (short)type;
    return lock;
}

/* Without its lock the file would say that `run` was killed: it gets its name afterwards. */
int plim_lifeline_open(const char *path)
{
    char temporary[PATH_MAX + 64];
    struct flock lock = lock_byte(F_WRLCK, AT_RUN);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || (!fcntl(fd, F_SETLK, &lock) && !rename(temporary, path)))
        return fd;
    close(fd);
    unlink(temporary);
    return -1;
}

bool plim_lifeline_lost(int folder, const char *name)
{
    struct stat st;
    struct flock lock = lock_byte(F_WRLCK, AT_RUN);
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool lost = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
                !fcntl(fd, F_GETLK, &lock) && lock.l_type == F_UNLCK;
    if (fd >= 0)
        close(fd);
    return lost;
}

void plim_lifeline_cut(int lifeline, int number)
{
    char text[16];
    struct stat st;
    struct flock lock = lock_byte(F_UNLCK, AT_RUN);
    if (fstat(lifeline, &st) || st.st_size)
        return;
    snprintf(text, sizeof text, "%d", number);
    if (write(lifeline, text, strlen(text)) > 0) /* else they wait for the end of `run` */
        fcntl(lifeline, F_SETLK, &lock);
}

pid_t plim_lifeline_holder(int lifeline)
{
    struct flock lock = lock_byte(F_WRLCK, AT_PROCESSES);
    if (fcntl(lifeline, F_GETLK, &lock) || lock.l_type == F_UNLCK)
        return 0;
    return lock.l_pid > 0 ? lock.l_pid : -1;
}
