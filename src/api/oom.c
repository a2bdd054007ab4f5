/* oom.c -- plim_oom_read, plim_oom_load: an out-of-memory message, explained. */
#include "oom/oom.h"
#include "api/api.h"

typedef struct oom_result {
    plim_oom_message pub;
    plim_oom_view view;
    plim_arena arena;
} oom_result;

plim_status plim_oom_read(const char *text, size_t n, plim_oom_message **out, plim_err *err)
{
    PLIM_REQUIRE(text, err);
    PLIM_REQUIRE(out, err);
    oom_result *r = plim__result_new(sizeof *r, offsetof(oom_result, arena));
    if (!r)
        return plim_oom(err);
    r->pub.size = sizeof r->pub;
    plim_status st = plim_oom_parse(&r->arena, (plim_str){text, n}, &r->view, &r->pub, err);
    if (!st)
        st = plim_oom_explain(&r->arena, &r->view, &r->pub, err);
    if (st)
        plim_oom_free(&r->pub);
    else
        *out = &r->pub;
    return st;
}

plim_status plim_oom_load(const char *path, plim_oom_message **out, plim_err *err)
{
    plim_bytes file = {0};
    PLIM_REQUIRE(path, err);
    PLIM_REQUIRE(out, err);
    plim_status st = plim_file_map(&file, path, err);
    if (!st && (st = plim_oom_read(file.n ? (const char *)file.p : "", file.n, out, err)) ==
                   PLIM_EFORMAT)
        plim_err_prefix(err, "'%s': ", path);
    plim_file_unmap(&file);
    return st;
}

void plim_oom_free(plim_oom_message *m) { plim__result_free(m, offsetof(oom_result, arena)); }
