/* terminal.h -- what the program asks of the operating system: its arguments, its streams and
 * its terminal.  Each system is one file: terminal_posix.c, terminal_windows.c. */
#ifndef PLIM_TERMINAL_H
#define PLIM_TERMINAL_H

#include <stdbool.h>

/* Called first: afterwards arguments are UTF-8, and the streams take bytes as they are. */
void plim_terminal_start(int *argc, char ***argv);
/* Is that the errno of a write to a pipe whose reader has gone? */
bool plim_terminal_gone(int error);
/* Columns of the terminal that stdout is; 0: not known. */
int plim_terminal_width(void);
/* Does the terminal that stdout is understand colours? */
bool plim_terminal_colors(void);

#endif
