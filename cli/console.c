/* console.c -- see console.h */
#include "console.h"
#include "terminal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const struct {
    plim_status status;
    int code;
} console_exits[] = {
    {PLIM_EUSAGE, PLIM_EXIT_USAGE}, {PLIM_EFORMAT, PLIM_EXIT_INPUT},
    {PLIM_ESHAPE, PLIM_EXIT_INPUT}, {PLIM_ERANGE, PLIM_EXIT_INPUT},
    {PLIM_EIO, PLIM_EXIT_HOST},     {PLIM_EUNSUPPORTED, PLIM_EXIT_INPUT},
    {PLIM_ENOMEM, PLIM_EXIT_HOST},  {PLIM_EDRIVER, PLIM_EXIT_HOST},
};

/* ---- progress ------------------------------------------------------------- */

/* Calls shorter than the delay show no progress; longer ones redraw it at this interval. */
#define PROGRESS_DELAY_S 1.0
#define PROGRESS_INTERVAL_S 0.1

static bool progress_shown;

static void progress_clear(void)
{
    if (progress_shown)
        fputs("\r\x1b[K", stderr);
    progress_shown = false;
}

static double progress_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int plim_console_progress(void *console, uint32_t done, uint32_t total, const char *what)
{
    static double start, last;
    double now = progress_now();
    (void)console;
    if (start <= 0)
        start = now;
    if (now - start < PROGRESS_DELAY_S || now - last < PROGRESS_INTERVAL_S ||
        !isatty(STDERR_FILENO))
        return 0;
    last = now;
    progress_shown = true;
    if (total)
        fprintf(stderr, "\r%u of %u: %.60s\x1b[K", (unsigned)done + 1, (unsigned)total, what);
    else
        fprintf(stderr, "\r%.60s: %u\x1b[K", what, (unsigned)done);
    fflush(stderr);
    return 0;
}

/* ---- error messages ------------------------------------------------------- */

/* A message may quote a name from a hostile file, which must not control the terminal:
 * control characters of ASCII and, in UTF-8, of Latin 1 become '?'. */
static void console_print_error(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
            *p = '?';
    progress_clear();
    fflush(stdout); /* keeps the order of the output if both streams have one destination */
    fprintf(stderr, "plimsoll: %s\n", text);
}

int plim_console_usage(const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    console_print_error(text);
    return PLIM_EXIT_USAGE;
}

int plim_console_said(int code, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    console_print_error(text);
    return code;
}

int plim_console_error(const plim_err *err)
{
    char text[sizeof err->msg];
    snprintf(text, sizeof text, "%s", err->msg[0] ? err->msg : plim_status_name(err->code));
    console_print_error(text);
    for (size_t i = 0; i < sizeof console_exits / sizeof *console_exits; i++)
        if (console_exits[i].status == err->code)
            return console_exits[i].code;
    return PLIM_EXIT_HOST;
}

int plim_console_failed(const char *what, const char *file, int error)
{
    plim_err err = {.code = PLIM_EIO};
    snprintf(err.msg, sizeof err.msg, "%s '%.200s': %s", what, file, strerror(error));
    return plim_console_error(&err);
}

/* ---- output --------------------------------------------------------------- */

/* Leaves out the colours: escape sequences that end in 'm'. */
static bool put_plain(plim_console *c, FILE *to, const char *text, size_t n)
{
    bool good = true;
    for (size_t i = 0; i < n && good; i++) {
        bool inside = c->escape;
        c->escape = inside ? text[i] != 'm' : text[i] == '\x1b';
        good = inside || c->escape || putc(text[i], to) != EOF;
    }
    return good;
}

int plim_console_put(void *console, const char *text, size_t n)
{
    plim_console *c = console;
    FILE *to = c->file ? c->file : stdout;
    progress_clear();
    if (!c->error && n && plim_terminal_closed(fileno(to)))
        c->error = EBADF;
    if (!c->error && !(c->plain ? put_plain(c, to, text, n) : fwrite(text, 1, n, to) == n))
        c->error = errno ? errno : EIO;
    return c->error;
}

int plim_console_result(const plim_console *c, plim_status st, const plim_err *err)
{
    return !st || c->error ? PLIM_EXIT_DONE : plim_console_error(err);
}

void plim_console_puts(plim_console *c, const char *text)
{
    plim_console_put(c, text, strlen(text));
}

int plim_console_code(const plim_console *c, int code)
{
    if (!c->error || plim_terminal_gone(c->error))
        return code;
    if (code > PLIM_EXIT_NO) /* it said why */
        return code;
    fprintf(stderr, "plimsoll: cannot write: %s\n", strerror(c->error));
    return PLIM_EXIT_HOST;
}

int plim_console_close(plim_console *c, int code)
{
    if (fclose(stdout) && !c->error)
        c->error = errno;
    return plim_console_code(c, code);
}

/* ---- the terminal --------------------------------------------------------- */

/* An empty variable counts as not set: NULL. */
static const char *console_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int console_width(bool terminal)
{
    enum { DEFAULT = 80, MOST = 10000 };
    int own = terminal ? plim_terminal_width() : 0;
    if (own > 0)
        return own;
    const char *columns = console_variable("COLUMNS");
    long n = columns ? strtol(columns, NULL, 10) : 0;
    return n > 0 && n <= MOST ? (int)n : DEFAULT;
}

/* Does the locale name a character set other than UTF-8?  Without a locale, UTF-8 is
 * assumed, as most terminals use it. */
static bool console_locale_is_ascii(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"}; /* by precedence */
    const char *locale = NULL;
    for (int i = 0; i < 3 && !locale; i++)
        locale = console_variable(names[i]);
    const char *set = locale ? strchr(locale, '.') : NULL;
    return locale && (!set || strncasecmp(set, ".utf", 4) != 0);
}

void plim_console_style(plim_style *st, plim_color color)
{
    bool terminal = isatty(STDOUT_FILENO);
    if (!st->width)
        st->width = console_width(terminal);
    if (terminal && console_locale_is_ascii())
        st->ascii = true;
    st->color = color == PLIM_COLOR_ALWAYS ||
                (color == PLIM_COLOR_AUTO && terminal && plim_terminal_colors() &&
                 !console_variable("NO_COLOR"));
}
