/* source.c -- see import.h: files next to the one that was opened. */
#include "import/import.h"

plim_status plim_source_beside(const plim_source *s, plim_str name, plim_arena *a,
                               plim_source *out, plim_err *err)
{
    *out = (plim_source){.path = NULL};
    if (!name.n || memchr(name.p, '/', name.n) || memchr(name.p, '\\', name.n) ||
        memchr(name.p, 0, name.n) || plim_str_is(name, ".."))
        return plim_fail(err, PLIM_EFORMAT, 0,
                         "'" PLIM_STR_FMT "' is not the name of a file in the same folder",
                         (int)PLIM_MIN(name.n, (size_t)80), name.p ? name.p : "");
    return plim_source_under(s, name, a, out, err);
}

plim_status plim_source_under(const plim_source *s, plim_str name, plim_arena *a,
                              plim_source *out, plim_err *err)
{
    *out = (plim_source){.path = NULL};
    if (!s->path || s->in_memory)
        return plim_fail(err, PLIM_EIO, 0, "'" PLIM_STR_FMT "' was not found",
                         PLIM_STR_ARG(name));
    const char *slash = strrchr(s->path, '/');
    int folder = slash ? (int)(slash + 1 - s->path) : 0;
    plim_str path =
        plim_arena_printf(a, "%.*s" PLIM_STR_FMT, folder, s->path, PLIM_STR_ARG(name));
    if (!path.p)
        return plim_oom(err);
    out->path = path.p;
    return plim_file_open(&out->bytes, path.p, true, err);
}

void plim_source_close(plim_source *s)
{
    if (!s->in_memory)
        plim_file_close(&s->bytes);
    s->path = NULL;
}
