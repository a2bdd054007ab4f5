/* base.c -- slices and errors: see base.h. */
#include "base/base.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- slices ------------------------------------------------------------ */

int plim_str_compare(plim_str a, plim_str b)
{
    size_t n = PLIM_MIN(a.n, b.n);
    int by_bytes = n ? memcmp(a.p, b.p, n) : 0;
    return by_bytes ? by_bytes : (a.n > b.n) - (a.n < b.n);
}

static int compare_str(const void *a, const void *b)
{
    return plim_str_compare(*(const plim_str *)a, *(const plim_str *)b);
}

plim_str plim_str_twice(plim_str *list, uint64_t n)
{
    plim_assert(list || !n);
    if (n)
        qsort(list, (size_t)n, sizeof *list, compare_str);
    for (uint64_t i = 1; i < n; i++)
        if (plim_str_eq(list[i - 1], list[i]))
            return list[i];
    return (plim_str){NULL, 0};
}

/* ---- errors ------------------------------------------------------------ */

/* A message may quote a name from a hostile file and goes to terminals and logs.  It is also cut, by us
 * and at its end, where a character may be in two. */
static void clean_message(plim_err *err)
{
    err->msg[plim_utf8_clean(err->msg, strlen(err->msg))] = '\0';
}

plim_status(plim_fail)(plim_err *err, plim_status code, uint64_t at, const char *fmt, ...)
{
    plim_assert(code != PLIM_OK && fmt);
    if (err && err->code == PLIM_OK) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        clean_message(err);
        err->code = code;
        err->at = at;
    }
    return code;
}

void plim_err_clear(plim_err *err)
{
    if (err)
        *err = (plim_err)PLIM_ERR_INIT;
}

void plim_err_prefix(plim_err *err, const char *fmt, ...)
{
    if (!err || err->code == PLIM_OK)
        return;
    char old[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->msg)
        snprintf(err->msg + n, sizeof err->msg - (size_t)n, "%s", old);
    clean_message(err);
}

plim_status(plim_oom)(plim_err *err)
{
    return plim_fail(err, PLIM_ENOMEM, 0, "out of memory for plimsoll's own tables");
}

plim_status plim_put_out(plim_put put, void *ud, plim_str text, plim_err *err)
{
    return !text.n || put(ud, text.p, text.n) == 0 ? PLIM_OK : plim_unput(err);
}

plim_status plim_unput(plim_err *err)
{
    return plim_fail(err, PLIM_EIO, 0, "the output could not be written");
}

void plim_copy_out(void *to, const void *from, size_t size)
{
    size_t room;
    memcpy(&room, to, sizeof room);
    plim_assert(room >= sizeof room);
    size = PLIM_MIN(size, room);
    if (size > sizeof room)
        memcpy((char *)to + sizeof room, (const char *)from + sizeof room, size - sizeof room);
}

const char *plim_status_name(plim_status st)
{
    switch (st) {
#define X(id, value, text)                                                                    \
    case PLIM_##id: return text;
        PLIM_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}
