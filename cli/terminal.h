/* terminal.h -- what the program asks of the operating system: its arguments, its streams and
 * its terminal.  Each system is one file: terminal_posix.c, terminal_windows.c. */
#ifndef PLIM_TERMINAL_H
#define PLIM_TERMINAL_H

#include <stdbool.h>

/* Called first: afterwards arguments are UTF-8, and the streams take bytes as they are.  A
 * standard stream that is closed becomes the null device: else the next file to be opened,
 * here or in a command that is started, would be that stream.  Returns an errno, or 0. */
int plim_terminal_start(int *argc, char ***argv);
/* Is that file descriptor a standard stream that was closed when the program began? */
bool plim_terminal_closed(int stream);
/* Is that the errno of a write to a pipe whose reader has gone? */
bool plim_terminal_gone(int error);
/* Columns of the terminal that stdout is; 0: not known. */
int plim_terminal_width(void);
/* Does the terminal that stdout is understand colours? */
bool plim_terminal_colors(void);

#endif
