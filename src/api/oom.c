/* oom.c -- plim_oom_read, plim_oom_load: an out-of-memory message, explained. */
#include "oom/oom.h"
#include "api/api.h"

typedef struct oom_result {
    plim_oom_message pub;
    plim_oom_view view;
    plim_arena arena;
} oom_result;

static plim_status read_message(oom_result *r, plim_str text, plim_err *err)
{
    r->pub.size = sizeof r->pub;
    plim_status st = plim_oom_parse(&r->arena, text, &r->view, &r->pub, err);
    return st ? st : plim_oom_explain(&r->arena, &r->view, &r->pub, err);
}

plim_status plim_oom_read(const char *text, size_t n, plim_oom_message **out, plim_err *err)
{
    PLIM_REQUIRE(text, err);
    PLIM_REQUIRE(out, err);
    plim_budget budget;
    plim_budget_begin(&budget, n);
    oom_result *r = plim__result_new(sizeof *r, offsetof(oom_result, arena));
    plim_status st = r ? read_message(r, (plim_str){text, n}, err) : plim_oom(err);
    st = plim_budget_end(&budget, st, err);
    if (st)
        plim__result_free(r, offsetof(oom_result, arena));
    else
        *out = &r->pub;
    return st;
}

plim_status plim_oom_load(const char *path, plim_oom_message **out, plim_err *err)
{
    plim_bytes file = {0};
    PLIM_REQUIRE(path, err);
    PLIM_REQUIRE(out, err);
    plim_status st = plim_file_read(&file, path, err);
    if (!st && (st = plim_oom_read(file.n ? (const char *)file.p : "", (size_t)file.n, out,
                                   err)) == PLIM_EFORMAT)
        plim_err_prefix(err, "'%s': ", path);
    plim_file_close(&file);
    return st;
}

void plim_oom_free(plim_oom_message *m) { plim__result_free(m, offsetof(oom_result, arena)); }
