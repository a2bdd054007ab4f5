/* terminal_windows.c -- see terminal.h */
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <shellapi.h>

/* A command line has at most 32,767 units of UTF-16, each at most three bytes of UTF-8. */
enum { LINE_MOST = 32768, UTF8_MOST = 3 * LINE_MOST };

static void read_arguments(int *argc, char ***argv)
{
    static char text[UTF8_MOST], *list[LINE_MOST];
    int n = 0, used = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    if (!wide || n >= LINE_MOST)
        return;
    for (int i = 0; i < n; i++) {
        list[i] = text + used;
        used += WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, list[i], UTF8_MOST - used, NULL,
                                    NULL);
    }
    LocalFree(wide);
    *argc = n;
    *argv = list;
}

/* Escape sequences move the cursor and colour the text, as on other terminals. */
static bool take_escapes(DWORD stream)
{
    HANDLE h = GetStdHandle(stream);
    DWORD mode = 0;
    return GetConsoleMode(h, &mode) &&
           SetConsoleMode(h, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

int plim_terminal_start(int *argc, char ***argv)
{
    read_arguments(argc, argv);
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    take_escapes(STD_OUTPUT_HANDLE);
    take_escapes(STD_ERROR_HANDLE);
    SetConsoleOutputCP(CP_UTF8);
    return 0;
}

/* The C library opens no file as a standard stream, and a write to one that is closed fails. */
bool plim_terminal_closed(int stream) { return (void)stream, false; }

/* The C library does not know ERROR_NO_DATA, "the pipe is being closed". */
bool plim_terminal_gone(int error) { return error == EPIPE || error == EINVAL; }

int plim_terminal_width(void)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &info))
        return 0;
    return info.srWindow.Right - info.srWindow.Left + 1;
}

bool plim_terminal_colors(void)
{
    const char *term = getenv("TERM"); /* of shells that came from elsewhere */
    return take_escapes(STD_OUTPUT_HANDLE) && !(term && !strcmp(term, "dumb"));
}
