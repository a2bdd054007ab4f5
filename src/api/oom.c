/* oom.c -- plim_oom_read, plim_oom_load: an out-of-memory message, explained. */
#include "oom/oom.h"
#include "api/api.h"

typedef struct oom_result {
    plim_oom_message pub;
    plim_oom_view view;
    plim_arena arena;
} oom_result;

static plim_status read_parts(plim_oom_reader *reader, const char *path, plim_str text,
                              plim_err *err)
{
    if (path)
        return plim_file_each(path, plim_oom_take, reader, err);
    plim_oom_take(reader, text, true);
    return PLIM_OK;
}

/* Of a file, or without a path of the text. */
static plim_status read_message(oom_result *r, const char *path, plim_str text, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_oom_reader *reader = plim_oom_reader_new(&a);
    plim_status st = reader ? read_parts(reader, path, text, err) : plim_oom(err);
    r->pub.size = sizeof r->pub;
    if (!st)
        st = plim_oom_parse(&r->arena, reader, &r->view, &r->pub, err);
    plim_arena_free(&a);
    return st ? st : plim_oom_explain(&r->arena, &r->view, &r->pub, err);
}

static plim_status new_message(const char *path, plim_str text, plim_oom_message **out,
                               plim_err *err)
{
    plim_budget budget;
    plim_budget_begin(&budget, text.n);
    oom_result *r = plim__result_new(sizeof *r, offsetof(oom_result, arena));
    plim_status st = r ? read_message(r, path, text, err) : plim_oom(err);
    st = plim_budget_end(&budget, st, err);
    if (st)
        plim__result_free(r, offsetof(oom_result, arena));
    else
        *out = &r->pub;
    return st;
}

plim_status plim_oom_read(const char *text, size_t n, plim_oom_message **out, plim_err *err)
{
    PLIM_REQUIRE(text, err);
    PLIM_REQUIRE(out, err);
    return new_message(NULL, (plim_str){text, n}, out, err);
}

plim_status plim_oom_load(const char *path, plim_oom_message **out, plim_err *err)
{
    PLIM_REQUIRE(path, err);
    PLIM_REQUIRE(out, err);
    plim_status st = new_message(path, PLIM_STR(""), out, err);
    if (st == PLIM_EFORMAT)
        plim_err_prefix(err, "'%s': ", path);
    return st;
}

void plim_oom_free(plim_oom_message *m) { plim__result_free(m, offsetof(oom_result, arena)); }
