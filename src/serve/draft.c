/* draft.c -- a smaller model that guesses tokens, which the engine holds beside the one that it serves: see serve.h. */
#include "base/items.h"
#include "serve/serve.h"

/* Options of the engine, without those that its row says are apart. */
static plim_status copy_options(const plim_serving *s, plim_settings *to, plim_err *err)
{
    plim_buf b;
    plim_str rest = s->options, key, value;
    plim_buf_init(&b, s->arena);
    plim_buf_puts(&b, s->engine->name);
    while (plim_item_next(&rest, &key, &value))
        if (!plim_item_has(s->engine->apart, key))
            plim_buf_printf(&b, value.n ? "," PLIM_STR_FMT "=" PLIM_STR_FMT : "," PLIM_STR_FMT,
                            PLIM_STR_ARG(key), PLIM_STR_ARG(value));
    plim_str all = plim_buf_str(&b);
    const char *text = b.bad ? NULL : plim_arena_str(s->arena, all).p;
    return text ? plim_settings_put(to, PLIM_SET_engine, text, err) : plim_oom(err);
}

static plim_status copy_settings(const plim_serving *s, plim_settings **out, plim_err *err)
{
    static const struct {
        plim_str name;
        plim_setting_id id;
    } apart[] = {{{"kv", 2}, PLIM_SET_kv}, {{"weights", 7}, PLIM_SET_weights}};
    plim_settings *to = *out = plim_settings_in(s->arena, s->job->settings);
    if (!to)
        return plim_oom(err);
    plim_status st = plim_settings_put(to, PLIM_SET_draft, NULL, err);
    for (size_t i = 0; i < PLIM_COUNT(apart) && !st; i++)
        if (plim_item_has(s->engine->apart, apart[i].name))
            st = plim_settings_put(to, apart[i].id, NULL, err);
    return st ? st : copy_options(s, to, err);
}

plim_status plim_serving_open_draft(plim_serving *s, const plim_model *m, plim_err *err)
{
    plim_serving *draft = PLIM_NEW(s->arena, plim_serving);
    plim_job *job = PLIM_NEW(s->arena, plim_job);
    if (!draft || !job)
        return plim_oom(err);
    *job = *s->job;
    job->model = m;
    job->bind.packing = PLIM_STR("");
    plim_status st = copy_settings(s, &job->settings, err);
    if (!st)
        st = plim_serving_open(draft, job, s->arena, true, err);
    if (st)
        plim_err_prefix(err, "draft: ");
    s->draft = st ? NULL : draft;
    return st;
}
