/* draft.c -- a smaller model that guesses tokens, which the engine holds in addition to the
 * one that it serves: see serve.h. */
#include "base/items.h"
#include "serve/serve.h"

/* Options of the engine, without those that its row says are apart. */
static plim_status copy_options(const plim_serve_question *q, plim_settings *to, plim_err *err)
{
    plim_buf b;
    plim_str rest = q->options, key, value;
    plim_buf_init(&b, q->arena);
    plim_buf_puts(&b, q->engine->name);
    while (plim_item_next(&rest, &key, &value))
        if (!plim_item_has(q->engine->apart, key))
            plim_buf_printf(&b, value.n ? "," PLIM_STR_FMT "=" PLIM_STR_FMT : "," PLIM_STR_FMT,
                            PLIM_STR_ARG(key), PLIM_STR_ARG(value));
    plim_str all = plim_buf_str(&b);
    const char *text = b.bad ? NULL : plim_arena_str(q->arena, all).p;
    return text ? plim_settings_put(to, PLIM_SET_engine, text, err) : plim_oom(err);
}

static plim_status copy_settings(const plim_serve_question *q, plim_settings **out,
                                 plim_err *err)
{
    static const struct {
        plim_str name;
        plim_setting_id id;
    } apart[] = {{{"kv", 2}, PLIM_SET_kv}, {{"weights", 7}, PLIM_SET_weights}};
    plim_settings *to = *out = plim_settings_in(q->arena, q->job->settings);
    if (!to)
        return plim_oom(err);
    plim_status st = plim_settings_put(to, PLIM_SET_draft, NULL, err);
    for (size_t i = 0; i < PLIM_COUNT(apart) && !st; i++)
        if (plim_item_has(q->engine->apart, apart[i].name))
            st = plim_settings_put(to, apart[i].id, NULL, err);
    return st ? st : copy_options(q, to, err);
}

plim_status plim_question_open_draft(plim_serve_question *q, const plim_model *m,
                                     plim_err *err)
{
    plim_serve_question *draft = PLIM_NEW(q->arena, plim_serve_question);
    plim_job *job = PLIM_NEW(q->arena, plim_job);
    if (!draft || !job)
        return plim_oom(err);
    *job = *q->job;
    job->model = m;
    job->bind.packing = PLIM_STR("");
    plim_status st = copy_settings(q, &job->settings, err);
    if (!st)
        st = plim_question_open(draft, job, q->arena, true, err);
    if (st)
        plim_err_prefix(err, "draft: ");
    q->draft = st ? NULL : draft;
    return st;
}
