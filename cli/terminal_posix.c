/* terminal_posix.c -- see terminal.h */
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool closed[STDERR_FILENO + 1];

int plim_terminal_start(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        closed[fd] = fcntl(fd, F_GETFD) < 0 && errno == EBADF;
        if (closed[fd] && open("/dev/null", O_RDWR) != fd) /* the lowest that is free */
            return errno;
    }
    return 0;
}

bool plim_terminal_closed(int stream)
{
    return stream >= STDIN_FILENO && stream <= STDERR_FILENO && closed[stream];
}

bool plim_terminal_gone(int error) { return error == EPIPE; }

int plim_terminal_width(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) ? 0 : size.ws_col;
}

bool plim_terminal_colors(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}
