/* terminal_posix.c -- see terminal.h */
#include "terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void plim_terminal_start(int *argc, char ***argv) { (void)argc, (void)argv; }

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
