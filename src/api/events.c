/* events.c -- plim_tape_print: the events of a run as text. */
#include "api/api.h"

plim_status plim_tape_print(const plim_model *m, const plim_settings *s, bool json,
                            plim_put put, void *ud, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_budget budget;
    plim_job job;
    plim_graph g;
    plim_tape t;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(put, err);
    plim_budget_begin(&budget, PLIM_BUDGET_FREE);
    plim_status st = plim_job_open(&job, &a, m, s, err);
    if (!st)
        st = plim_job_card(&job, err);
    if (!st)
        st = plim_job_graph(&job, 0, &a, &g, err);
    if (!st)
        st = plim_job_tape(&job, &g, &a, &t, NULL, err);
    st = plim_budget_end(&budget, st, err);
    if (!st)
        st = (json ? plim_tape_write_json : plim_tape_write)(&t, put, ud, err);
    plim_arena_free(&a);
    return st;
}
