/* top_view.c -- see top_view.h */
#include "top_view.h"

#include <stdio.h>

#ifndef PLIM_CURSES

const char *plim_top_view_missing(void)
{
    return "this plimsoll was built without ncurses: install libncurses-dev (Debian, Ubuntu) or "
           "ncurses-devel (Fedora) and build again; 'plimsoll top --once' needs nothing";
}

int plim_top_view(plim_args *a, plim_live_monitor *live, int64_t (*now_ms)(void))
{
    (void)a;
    (void)live;
    (void)now_ms;
    return plim_console_usage("%s", plim_top_view_missing());
}

#else

#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

const char *plim_top_view_missing(void) { return NULL; }

/* ---- colours ------------------------------------------------------------------------------------ */

/* Those of Okabe and Ito, which people of any colour vision tell apart, as the nearest of 256;
 * with 8 colours their nearest there.  Nothing is said by colour alone. */
static const struct {
    short rich, poor;
    attr_t attribute;
    bool reverse;
} looks[PLIM_SCREEN_PAINT_COUNT] = {
    [PLIM_SCREEN_PLAIN] = {-1, -1, 0, false},
    [PLIM_SCREEN_DIM] = {245, -1, 0, false},
    [PLIM_SCREEN_BOLD] = {-1, -1, WA_BOLD, false},
    [PLIM_SCREEN_HEAD] = {74, COLOR_CYAN, 0, true},
    [PLIM_SCREEN_SELECTED] = {-1, -1, 0, true},
    [PLIM_SCREEN_LOW] = {36, COLOR_GREEN, 0, false},       /* bluish green */
    [PLIM_SCREEN_HIGH] = {178, COLOR_YELLOW, 0, false},    /* orange */
    [PLIM_SCREEN_FULL] = {166, COLOR_RED, WA_BOLD, false}, /* vermilion */
    [PLIM_SCREEN_BUSY] = {74, COLOR_CYAN, 0, false},       /* sky blue */
    [PLIM_SCREEN_ALERT] = {166, COLOR_RED, WA_BOLD, false},
};

static void start_colors(bool color)
{
    if (!color || !has_colors())
        return;
    start_color();
    use_default_colors();
    for (int i = 1; i < PLIM_SCREEN_PAINT_COUNT; i++)
        init_pair((short)i, COLORS >= 256 ? looks[i].rich : looks[i].poor, -1);
}

/* ---- frames ------------------------------------------------------------------------------------- */

static void show_cell(int x, int y, const plim_screen_cell *c, bool color)
{
    wchar_t text[2] = {(wchar_t)c->code, 0};
    attr_t look = looks[c->paint].attribute | (looks[c->paint].reverse ? WA_REVERSE : 0);
    cchar_t out;
    if (c->code && setcchar(&out, text, look, color ? (short)c->paint : 0, NULL) == OK)
        mvadd_wch(y, x, &out);
}

typedef struct top_view {
    plim_args *args;
    plim_live_monitor *live;
    plim_screen *screen;
    const plim_live_view *view;
    bool color;
} top_view;

static plim_status draw_frame(top_view *t, plim_err *err)
{
    enum { COLUMNS_MOST = 512, ROWS_MOST = 256 }; /* of a larger terminal a part is used */
    static plim_screen_cell cells[COLUMNS_MOST * ROWS_MOST];
    int columns = COLS < COLUMNS_MOST ? COLS : COLUMNS_MOST;
    int rows = LINES < ROWS_MOST ? LINES : ROWS_MOST;
    plim_status st = plim_screen_draw(t->screen, t->live, t->view, columns, rows, cells, err);
    if (st)
        return st;
    erase();
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            show_cell(x, y, &cells[y * columns + x], t->color);
    refresh();
    return PLIM_OK;
}

/* ---- keys --------------------------------------------------------------------------------------- */

static const struct {
    wint_t curses;
    uint32_t key;
} special_keys[] = {
    {KEY_UP, PLIM_KEY_UP},         {KEY_DOWN, PLIM_KEY_DOWN},
    {KEY_PPAGE, PLIM_KEY_PAGE_UP}, {KEY_NPAGE, PLIM_KEY_PAGE_DOWN},
    {KEY_HOME, PLIM_KEY_HOME},     {KEY_END, PLIM_KEY_END},
    {KEY_ENTER, PLIM_KEY_ENTER},   {KEY_BACKSPACE, PLIM_KEY_BACKSPACE},
};

static void take_mouse(top_view *t)
{
    MEVENT e;
    if (getmouse(&e) != OK)
        return;
    if (e.bstate & BUTTON4_PRESSED)
        plim_screen_key(t->screen, PLIM_KEY_UP);
#ifdef BUTTON5_PRESSED
    else if (e.bstate & BUTTON5_PRESSED)
        plim_screen_key(t->screen, PLIM_KEY_DOWN);
#endif
    else if (e.bstate & (BUTTON1_CLICKED | BUTTON1_PRESSED | BUTTON1_DOUBLE_CLICKED))
        plim_screen_click(t->screen, e.x, e.y);
}

static plim_screen_action take_key(top_view *t, bool special, wint_t c)
{
    uint32_t key = special ? 0 : (uint32_t)c;
    for (size_t i = 0; special && i < sizeof special_keys / sizeof *special_keys; i++)
        if (special_keys[i].curses == c)
            key = special_keys[i].key;
    if (!special)
        key = c == '\r' || c == '\n'  ? (uint32_t)PLIM_KEY_ENTER
              : c == 27               ? (uint32_t)PLIM_KEY_ESCAPE
              : c == 127 || c == '\b' ? (uint32_t)PLIM_KEY_BACKSPACE
                                      : key;
    if (special && c == KEY_MOUSE)
        take_mouse(t);
    return key ? plim_screen_key(t->screen, key)
               : (plim_screen_action){PLIM_SCREEN_STAY, 0, 0, 0};
}

/* The process may have ended since, and its number be another's: only one that the newest
 * reading has is sent a signal. */
static void end_process(top_view *t, plim_screen_action what)
{
    char said[128];
    bool there = false;
    const char *root = getenv("PLIMSOLL_ROOT");
    if (root && *root) { /* its numbers mean other processes here */
        plim_screen_say(t->screen, "the processes are those of PLIMSOLL_ROOT: none was ended");
        return;
    }
    for (uint32_t i = 0; i < t->view->n_processes; i++)
        there = there || (t->view->processes[i].pid == what.pid &&
                          t->view->processes[i].started == what.started);
    int code = there ? kill((pid_t)what.pid, what.force ? SIGKILL : SIGTERM) : -1;
    snprintf(said, sizeof said, "%s to process %llu%s%s", what.force ? "SIGKILL" : "SIGTERM",
             (unsigned long long)what.pid, code ? ": " : "",
             !there ? "it has ended"
             : code ? strerror(errno)
                    : "");
    plim_screen_say(t->screen, said);
}

/* ---- the loop ----------------------------------------------------------------------------------- */

static plim_status watch_live(top_view *t, int64_t (*now_ms)(void), plim_err *err)
{
    const int64_t interval = (int64_t)((t->args->interval > 0 ? t->args->interval : 1) * 1000);
    int64_t next = 0;
    for (;;) {
        int64_t now = now_ms();
        plim_status st = PLIM_OK;
        if (now >= next || next - now > interval) { /* the clock may be set back */
            st = plim_live_tick(t->live, now, &t->view, err);
            next = now + interval;
        }
        if (!st)
            st = draw_frame(t, err);
        if (st)
            return st;
        wint_t c;
        timeout((int)(next - now));
        int got = get_wch(&c);
        if (got == ERR || (got == KEY_CODE_YES && c == KEY_RESIZE))
            continue;
        plim_screen_action what = take_key(t, got == KEY_CODE_YES, c);
        if (what.wish == PLIM_SCREEN_QUIT)
            return PLIM_OK;
        if (what.wish == PLIM_SCREEN_KILL) {
            if (plim_live_tick(t->live, now_ms(), &t->view, err))
                return err->code;
            end_process(t, what);
        }
    }
}

int plim_top_view(plim_args *a, plim_live_monitor *live, int64_t (*now_ms)(void))
{
    plim_err err = PLIM_ERR_INIT;
    top_view t = {.args = a, .live = live, .color = a->style.color};
    setlocale(LC_CTYPE, ""); /* curses prints in the character set of the locale */
    if (plim_screen_new(a->style.ascii || MB_CUR_MAX == 1, &t.screen, &err))
        return plim_console_error(&err);
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (!terminal) {
        plim_screen_free(t.screen);
        return plim_console_usage("unknown terminal '%s': use 'plimsoll top --once'",
                                  getenv("TERM") ? getenv("TERM") : "");
    }
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    mousemask(BUTTON1_CLICKED | BUTTON1_PRESSED | BUTTON4_PRESSED
#ifdef BUTTON5_PRESSED
                  | BUTTON5_PRESSED
#endif
              ,
              NULL);
    mouseinterval(0);
    start_colors(t.color);
    plim_status st = watch_live(&t, now_ms, &err);
    endwin();
    delscreen(terminal);
    plim_screen_free(t.screen);
    return st ? plim_console_error(&err) : PLIM_EXIT_DONE;
}

#endif
