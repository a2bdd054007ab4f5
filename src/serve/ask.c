/* ask.c -- asking an engine, and the search for the most that it holds: see serve.h. */
#include "serve/serve.h"

/* ---- asking ----------------------------------------------------------------------------- */

static plim_status run_engine(const plim_serve_question *q, plim_arena *a,
                              plim_serve_answer *out, plim_err *err)
{
    *out = (plim_serve_answer){.arena = a, .token_bytes = plim_question_token(q)};
    return q->engine->code->answer(q, out, err);
}

/* What the engine has of a model that guesses, as of any other. */
static plim_status add_draft(const plim_serve_question *q, plim_serve_answer *out,
                             plim_err *err)
{
    plim_assert(q->draft);
    const plim_serve_question draft = plim_question_draft(q);
    plim_serve_answer its;
    plim_status st = run_engine(&draft, out->arena, &its, err);
    for (uint32_t i = 0; i < its.n_rows && !st; i++) {
        plim_serve_row row = its.rows[i];
        row.part = plim_arena_printf(out->arena, "draft's %s", row.part).p;
        st = row.part ? plim_answer_add(out, row, err) : plim_oom(err);
    }
    out->token_bytes = plim_sat_add(out->token_bytes, its.token_bytes);
    out->request_bytes = plim_sat_add(out->request_bytes, its.request_bytes);
    return st;
}

static plim_status ask_engine(const plim_serve_question *q, plim_arena *a,
                              plim_serve_answer *out, plim_err *err)
{
    plim_status st = run_engine(q, a, out, err);
    if (!st && q->draft && q->engine->flags & PLIM_ENGINE_APART)
        st = add_draft(q, out, err);
    return st ? st : plim_answer_context(q, out, err);
}

/* Whether `a` holds fewer requests, or takes more. */
static bool is_worse(const plim_serve_answer *a, const plim_serve_answer *b)
{
    if (a->pool && a->requests != b->requests)
        return a->requests < b->requests;
    return plim_answer_total(a, PLIM_ON_CARD).usual > plim_answer_total(b, PLIM_ON_CARD).usual;
}

plim_status plim_engine_ask(const plim_serve_question *q, plim_arena *a,
                            plim_serve_answer *out, plim_err *err)
{
    plim_assert(q->n_stages == 0 || q->stage < q->n_stages);
    if (q->n_stages < 2)
        return ask_engine(q, a, out, err);
    plim_status st = PLIM_OK;
    for (uint64_t i = 0; i < q->n_stages && !st; i++) {
        const plim_serve_question at = plim_question_at(q, i);
        plim_serve_answer one;
        st = ask_engine(&at, a, &one, err);
        if (!st && (!i || is_worse(&one, out)))
            *out = one;
    }
    return st;
}

plim_status plim_engine_note(const plim_serve_question *q, const char **out, plim_err *err)
{
    *out = "";
    return q->engine->code->note ? q->engine->code->note(q, out, err) : PLIM_OK;
}

/* ---- the longest, the most -------------------------------------------------------------- */

static plim_status ask_held(const plim_serve_question *q, plim_serve_axis axis, uint64_t n,
                            bool sure, bool *held, plim_err *err)
{
    plim_assert(n > 0);
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_serve_question at = *q;
    plim_serve_answer out;
    *(axis == PLIM_MOST_CONTEXT ? &at.context : &at.concurrency) = n;
    at.arena = &scratch;
    plim_status st = plim_engine_ask(&at, &scratch, &out, err);
    *held = !st && plim_answer_holds(&at, &out, sure ? 2 : 1);
    plim_arena_free(&scratch);
    return st;
}

plim_status plim_engine_most(const plim_serve_question *q, plim_serve_axis axis, bool sure,
                             uint64_t *out, bool *limited, plim_err *err)
{
    enum { CONTEXT_MOST = 1 << 24, REQUESTS_MOST = 1 << 20 }; /* far beyond any card */
    uint64_t low = 0, high = axis == PLIM_MOST_REQUESTS ? REQUESTS_MOST
                             : q->most_context          ? q->most_context
                                                        : CONTEXT_MOST;
    plim_status st = PLIM_OK;
    bool held;
    const uint64_t most = high;
    while (!st && low < high) {
        uint64_t n = low + (high - low + 1) / 2;
        st = ask_held(q, axis, n, sure, &held, err);
        if (held)
            low = n;
        else
            high = n - 1;
    }
    plim_assert(st || (low == high && low <= most));
    *out = low;
    *limited = low == most;
    return st;
}
