/* lifeline.c -- see lifeline.h */
#include "lifeline.h"

#include <fcntl.h>
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

int plim_lifeline_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct flock lock = lock_byte(F_WRLCK, AT_RUN);
    if (fd < 0 || !fcntl(fd, F_SETLK, &lock))
        return fd;
    close(fd);
    unlink(path); /* a file without a lock says that `run` was killed */
    return -1;
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
    return fcntl(lifeline, F_GETLK, &lock) || lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}
