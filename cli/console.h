/* console.h -- the program's output, error messages, exit codes, and the capabilities of
 * the terminal.
 *
 * Answers go to stdout, errors to stderr as one line `plimsoll: ...`. */
#ifndef PLIM_CONSOLE_H
#define PLIM_CONSOLE_H

#include <plimsoll.h>

#include <stdio.h>

/* The exit codes, on which scripts rely. */
enum {
    PLIM_EXIT_DONE = 0,  /* success */
    PLIM_EXIT_NO = 1,    /* the answer is no: it does not fit */
    PLIM_EXIT_USAGE = 2, /* invalid command line */
    PLIM_EXIT_INPUT = 3, /* invalid or unsupported file or model */
    PLIM_EXIT_HOST = 4   /* system error: I/O, out of memory, a driver */
};

#if defined(__GNUC__)
#define PLIM_CONSOLE_PRINTF __attribute__((format(printf, 1, 2)))
#else
#define PLIM_CONSOLE_PRINTF
#endif

/* Prints what is wrong with the command line; returns PLIM_EXIT_USAGE. */
int plim_console_usage(const char *fmt, ...) PLIM_CONSOLE_PRINTF;
/* Prints what is wrong, however long it is; returns `code`. */
int plim_console_said(int code, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* Prints an error of the library; returns its exit code. */
int plim_console_error(const plim_err *err);
/* Prints what failed, as in `cannot write`, with which file, and the reason, an errno; returns
 * PLIM_EXIT_HOST. */
int plim_console_failed(const char *what, const char *file, int error);

/* Where output goes.  Starts as zero: stdout. */
typedef struct plim_console {
    FILE *file;  /* NULL: stdout */
    bool plain;  /* it gets the text without colours */
    bool escape; /* if plain: within a colour's escape sequence */
    int error;   /* errno of the first failed write; later output is dropped */
} plim_console;

/* A plim_put; `console` is a plim_console. */
int plim_console_put(void *console, const char *text, size_t n);
/* The exit code after the library has printed with plim_console_put.  A failed write is not
 * reported here but by plim_console_close. */
int plim_console_result(const plim_console *c, plim_status st, const plim_err *err);
/* A plim_progress: on a terminal, after one second, shows one line on stderr, which the
 * first output removes; `console` is not used. */
int plim_console_progress(void *console, uint32_t done, uint32_t total, const char *what);
void plim_console_puts(plim_console *c, const char *text);
/* Returns `code`, or PLIM_EXIT_HOST, after saying so, if a write failed; a reader that closed
 * the pipe (head, less) is not a failure. */
int plim_console_code(const plim_console *c, int code);
/* The same, after stdout has been flushed and closed. */
int plim_console_close(plim_console *c, int code);

typedef enum plim_color { PLIM_COLOR_AUTO, PLIM_COLOR_ALWAYS, PLIM_COLOR_NEVER } plim_color;

/* Fills in what the options did not set: the width, from the terminal or COLUMNS;
 * colour, only on a terminal and without NO_COLOR and TERM=dumb; ASCII, on a
 * terminal whose locale is not UTF-8.  The locale has no effect on output to a
 * pipe or a file. */
void plim_console_style(plim_style *st, plim_color color);

#endif
