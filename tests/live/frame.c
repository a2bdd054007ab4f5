/* frame.c -- what `plimsoll top` shows on a terminal, as text.
 *
 *     live_frame [--ascii] [--paint] [--day] COLUMNS ROWS TICKS [KEYS]
 *
 * The machine is that of PLIMSOLL_NVML and PLIMSOLL_ROOT; readings are a second apart by a
 * clock that does not depend on the real one.  KEYS are pressed one after another, with a draw
 * after each: characters, and < > for up and down, ~ for escape, ! for enter.
 * --paint prints the paint of each cell after the text.
 * --day draws TICKS frames and says how many bytes more are in use at the end than after the
 * first tenth of them. */
#include <malloc.h>
#include <plimsoll_live.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MOST = 400 * 200 };

static plim_screen_cell cells[CELLS_MOST];

static void put_code(uint32_t c)
{
    if (c >= 0x800)
        printf("%c%c%c", (int)(0xe0 | c >> 12), (int)(0x80 | (c >> 6 & 0x3f)),
               (int)(0x80 | (c & 0x3f)));
    else if (c >= 0x80)
        printf("%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 0x3f)));
    else if (c)
        putchar((int)c);
}

static void print_frame(int columns, int rows, bool paint)
{
    static const char letters[] = ".dbhSlHFBA";
    for (int y = 0; y < rows; y++) {
        const plim_screen_cell *row = cells + y * columns;
        int end = columns;
        while (end && (paint ? !row[end - 1].paint : row[end - 1].code == ' '))
            end--;
        for (int x = 0; x < end; x++)
            if (paint)
                putchar(letters[row[x].paint]);
            else
                put_code(row[x].code);
        putchar('\n');
    }
}

static void check_done(plim_status st, const plim_err *err)
{
    if (!st)
        return;
    fprintf(stderr, "live_frame: %s\n", err->msg);
    exit(1);
}

static void press_key(plim_screen *s, char c)
{
    plim_screen_action a = {PLIM_SCREEN_STAY, 0, 0, false};
    switch (c) {
    case '<': a = plim_screen_key(s, PLIM_KEY_UP); break;
    case '>': a = plim_screen_key(s, PLIM_KEY_DOWN); break;
    case '~': a = plim_screen_key(s, PLIM_KEY_ESCAPE); break;
    case '!': a = plim_screen_key(s, PLIM_KEY_ENTER); break;
    default: a = plim_screen_key(s, (unsigned char)c);
    }
    if (a.wish == PLIM_SCREEN_KILL)
        printf("wish: %s to %llu, started %llu\n", a.force ? "SIGKILL" : "SIGTERM",
               (unsigned long long)a.pid, (unsigned long long)a.started);
    if (a.wish == PLIM_SCREEN_QUIT)
        printf("wish: quit\n");
}

int main(int argc, char **argv)
{
    plim_err err = PLIM_ERR_INIT;
    plim_live_options o = {.nvml = getenv("PLIMSOLL_NVML"), .root = getenv("PLIMSOLL_ROOT")};
    plim_live_monitor *live = NULL;
    const plim_live_view *view = NULL;
    plim_screen *screen = NULL;
    bool ascii = false, paint = false, day = false;
    int i = 1;
    for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
        ascii = ascii || !strcmp(argv[i], "--ascii");
        paint = paint || !strcmp(argv[i], "--paint");
        day = day || !strcmp(argv[i], "--day");
    }
    if (argc - i < 3)
        return 2;
    int columns = atoi(argv[i]), rows = atoi(argv[i + 1]), ticks = atoi(argv[i + 2]);
    if (columns < 1 || rows < 1 || columns * rows > CELLS_MOST)
        return 2;
    check_done(plim_live_open(&o, &live, &err), &err);
    check_done(plim_screen_new(ascii, &screen, &err), &err);
    size_t warm = 0;
    for (int t = 0; t < ticks; t++) {
        check_done(plim_live_tick(live, (int64_t)t * 1000, &view, &err), &err);
        if (day || t + 1 == ticks)
            check_done(plim_screen_draw(screen, live, view, columns, rows, cells, &err), &err);
        if (t == ticks / 10)
            warm = mallinfo2().uordblks + mallinfo2().hblkhd;
    }
    if (day)
        printf("%zd bytes more\n",
               (ssize_t)(mallinfo2().uordblks + mallinfo2().hblkhd - warm));
    for (const char *k = argc - i > 3 ? argv[i + 3] : ""; *k; k++) {
        press_key(screen, *k);
        check_done(plim_screen_draw(screen, live, view, columns, rows, cells, &err), &err);
    }
    if (!day)
        print_frame(columns, rows, false);
    if (paint)
        print_frame(columns, rows, true);
    plim_screen_free(screen);
    plim_live_close(live);
    return 0;
}
