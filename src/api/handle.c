/* handle.c -- plim_model_open and the other functions of a model handle. */
#include "api/api.h"

/* A handle in its own arena, with a copy of the name, as a path. */
static plim_model *new_handle(const char *name, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_model *m = PLIM_NEW(&a, plim_model);
    plim_str text = plim_arena_str(&a, plim_str_of(name));
    if (m && text.p) {
        plim_file_slashes((char *)(uintptr_t)text.p);
        m->text = text;
        m->arena = a; /* the arena now lives in its own memory */
        return m;
    }
    plim_arena_free(&a);
    plim_oom(err);
    return NULL;
}

/* Whether no importer knows what the file is. */
static bool is_unknown(const plim_model *m, plim_status st)
{
    return st ? st == PLIM_EFORMAT || st == PLIM_EUNSUPPORTED
              : m->importer &&
                    plim_importer_score(m->importer, m->source.bytes) <= PLIM_UNSURE;
}

/* Passes the handle to the caller, or frees it if opening failed. */
static plim_status give_handle(plim_model *m, plim_budget *budget, plim_status st,
                               plim_model **out, plim_err *err)
{
    if (is_unknown(m, st))
        st = plim__elsewhere(&m->source, st, err);
    if (!st && !(m->shown = plim_arena_str(&m->arena, m->name)).p)
        st = plim_oom(err);
    st = plim_budget_end(budget, st, err);
    if (st)
        plim_model_free(m);
    else
        *out = m;
    return st;
}

plim_status plim_model_open(const char *name, plim_model **out, plim_err *err)
{
    PLIM_REQUIRE(name, err);
    PLIM_REQUIRE(out, err);
    plim_budget budget;
    plim_budget_begin(&budget, PLIM_BUDGET_FREE);
    plim_model *m = new_handle(name, err);
    plim_status st = m ? plim_model_find(m, &m->arena, m->text.p, err) : PLIM_ENOMEM;
    return give_handle(m, &budget, st, out, err);
}

plim_status plim_model_open_bytes(const char *name, const void *bytes, uint64_t n,
                                  plim_model **out, plim_err *err)
{
    PLIM_REQUIRE(name, err);
    PLIM_REQUIRE(bytes || !n, err);
    PLIM_REQUIRE(out, err);
    plim_budget budget;
    plim_budget_begin(&budget, PLIM_BUDGET_FREE);
    plim_model *m = new_handle(name, err);
    plim_bytes file = {.p = bytes, .n = n};
    plim_status st = m ? plim_model_of_bytes(m, m->text.p, file, err) : PLIM_ENOMEM;
    return give_handle(m, &budget, st, out, err);
}

plim_status plim_model_check(const plim_model *m, plim_err *err)
{
    PLIM_REQUIRE(m, err);
    const plim_binding infer = {.infer =
                                    true}; /* what cannot be trained is known all the same */
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    plim_status st = plim_model_graph(m, &infer, &a, &g, err);
    plim_arena_free(&a);
    return st;
}

void plim_model_free(plim_model *m)
{
    if (!m)
        return;
    plim_model_close(m);
    plim_arena a = m->arena; /* a copy, because freeing the arena frees *m */
    plim_arena_free(&a);
}

const char *plim_model_name(const plim_model *m) { return m ? m->shown.p : NULL; }

const char *plim_model_format(const plim_model *m)
{
    return !m ? NULL : m->importer ? m->importer->name : "built-in";
}
