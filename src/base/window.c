/* window.c -- see window.h. */
#include "base/window.h"

#ifdef PLIM_DEBUG /* tests see each place where the window may end */
enum { FIRST_WINDOW = 64, KEEPS_MEMORY = 0 };
#else
enum { FIRST_WINDOW = 256 << 10, KEEPS_MEMORY = 1 };
#endif

/* The next bytes, at most n; *got is 0 at the end. */
static plim_status read_more(plim_window *w, char *to, uint64_t n, uint64_t *got,
                             plim_err *err)
{
    if (w->zipped)
        return plim_gzip_read(&w->gzip, to, n, got, err);
    *got = PLIM_MIN(n, w->file.n - w->next);
    plim_assert(w->next <= w->file.n);
    plim_status st = plim_bytes_copy(w->file, w->next, *got, to, err);
    w->next += *got;
    return st;
}

static plim_status fill_window(plim_window *w, plim_err *err)
{
    uint64_t got = 1;
    while (w->n < w->cap && got) {
        PLIM_TRY(read_more(w, w->room + w->n, w->cap - w->n, &got, err));
        w->n += got;
    }
    plim_assert(w->n <= w->cap);
    w->more = got != 0 && (w->zipped || w->next < w->file.n);
    return PLIM_OK;
}

plim_status plim_window_open(plim_window *w, plim_arena *a, plim_bytes file, plim_err *err)
{
    *w = (plim_window){.arena = a, .file = file, .zipped = plim_gzip_is(file)};
    if (KEEPS_MEMORY && !file.file && !w->zipped) {
        w->p = (const char *)file.p;
        w->n = file.n;
        return PLIM_OK;
    }
    w->cap = FIRST_WINDOW;
    w->p = w->room = PLIM_NEW_N(a, char, w->cap);
    PLIM_TRY(!w->room    ? plim_oom(err)
             : w->zipped ? plim_gzip_open(&w->gzip, a, file, err)
                         : PLIM_OK);
    return fill_window(w, err);
}

plim_status plim_window_move(plim_window *w, uint64_t from, plim_err *err)
{
    plim_assert(w->more && from <= w->n);
    if (!from && !plim_arena_move_to(w->arena, (void **)&w->room, w->n, &w->cap, 1))
        return plim_oom(err);
    w->n -= from;
    w->base += from;
    memmove(w->room, w->room + from, (size_t)w->n);
    w->p = w->room;
    return fill_window(w, err);
}
