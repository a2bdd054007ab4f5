/* console.h -- the program's streams: what it prints, what it complains about,
 * what the terminal can show, and how it exits.
 *
 * Answers go to stdout, complaints to stderr as one line `plimsoll: ...`. */
#ifndef PLIM_CONSOLE_H
#define PLIM_CONSOLE_H

#include <plimsoll.h>

/* What a script may rely on. */
enum {
    PLIM_EXIT_DONE = 0,
    PLIM_EXIT_NO = 1,    /* the answer is no: it does not fit */
    PLIM_EXIT_USAGE = 2, /* the command line */
    PLIM_EXIT_INPUT = 3, /* the file or the model */
    PLIM_EXIT_HOST = 4   /* a system error: I/O, out of memory, a driver */
};

#if defined(__GNUC__)
#define PLIM_CONSOLE_PRINTF __attribute__((format(printf, 1, 2)))
#else
#define PLIM_CONSOLE_PRINTF
#endif

/* Says what is wrong with the command line; returns PLIM_EXIT_USAGE. */
int plim_console_usage(const char *fmt, ...) PLIM_CONSOLE_PRINTF;
/* Says what the library said; returns the exit code that goes with it. */
int plim_console_error(const plim_err *err);

/* stdout.  Zero at start. */
typedef struct plim_console {
    int error; /* errno of the first write that failed; what follows it is dropped */
} plim_console;

/* A plim_put; `console` is a plim_console. */
int plim_console_put(void *console, const char *text, size_t n);
/* The exit code after the library has printed through it.  A write that failed is no
 * error of the library's: plim_console_close reports it. */
int plim_console_result(const plim_console *c, plim_status st, const plim_err *err);
/* A plim_progress: on a terminal, from the second second on, one line on stderr, which
 * disappears with the first output; `console` is not used. */
int plim_console_progress(void *console, uint32_t done, uint32_t total, const char *what);
void plim_console_puts(plim_console *c, const char *text);
/* Writes what is still buffered.  Returns `code`, or PLIM_EXIT_HOST if a write
 * failed; a reader that went away (head, less) is no failure. */
int plim_console_close(plim_console *c, int code);

typedef enum plim_color { PLIM_COLOR_AUTO, PLIM_COLOR_ALWAYS, PLIM_COLOR_NEVER } plim_color;

/* Fills in what the options left open: the width from the terminal or COLUMNS;
 * colour only on a terminal, and not with NO_COLOR or TERM=dumb; ASCII on a
 * terminal whose locale is not UTF-8.  A pipe or a file gets the same bytes
 * everywhere, whatever the locale. */
void plim_console_style(plim_style *st, plim_color color);

#endif
