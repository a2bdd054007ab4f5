/* asked.c -- see asked.h. */
#include "asked.h"

#include <stdio.h>

#include "job/job.h"

static plim_status set_words(plim_settings *s, const char *words, plim_err *err)
{
    char line[1024], *rest = NULL;
    plim_status st = PLIM_OK;
    if (snprintf(line, sizeof line, "%s", words ? words : "") >= (int)sizeof line)
        fail_msg("too long: '%s'", words);
    for (char *word = strtok_r(line, " ", &rest); word && !st;
         word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        if (!value)
            fail_msg("'%s' has no value", word);
        *value++ = '\0';
        st = plim_settings_set(s, word, value, err);
    }
    return st;
}

plim_settings *asked_settings(const char *words)
{
    plim_err err = PLIM_ERR_INIT;
    plim_settings *s = NULL;
    if (plim_settings_new(&s, &err) || set_words(s, words, &err))
        fail_msg("%s", err.msg);
    return s;
}

void asked_set(plim_settings *s, const char *key, const char *value)
{
    plim_err err = PLIM_ERR_INIT;
    if (plim_settings_set(s, key, value, &err))
        fail_msg("%s", err.msg);
}

plim_model *asked_model(const char *name)
{
    plim_err err = PLIM_ERR_INIT;
    plim_model *m = NULL;
    if (plim_model_open(name, &m, &err))
        fail_msg("%s: %s", name, err.msg);
    return m;
}

plim_status asked_try(const char *model, const char *words, plim_estimate **out, plim_err *err)
{
    plim_model *m = NULL;
    plim_settings *s = NULL;
    plim_status st = plim_model_open(model, &m, err);
    if (!st)
        st = plim_settings_new(&s, err);
    if (!st)
        st = set_words(s, words, err);
    if (!st)
        st = plim_estimate_run(m, s, out, err);
    plim_settings_free(s);
    plim_model_free(m);
    return st;
}

plim_estimate *asked_estimate(const char *model, const char *words)
{
    plim_err err = PLIM_ERR_INIT;
    plim_estimate *e = NULL;
    if (asked_try(model, words, &e, &err))
        fail_msg("%s: %s", model, err.msg);
    return e;
}

plim_estimate *asked_estimate_of(const char *model, const plim_settings *s)
{
    plim_err err = PLIM_ERR_INIT;
    plim_estimate *e = NULL;
    plim_model *m = asked_model(model);
    if (plim_estimate_run(m, s, &e, &err))
        fail_msg("%s: %s", model, err.msg);
    plim_model_free(m);
    return e;
}

void asked_tape(const char *model, const char *words, plim_arena *a, plim_graph *g,
                plim_tape *t, struct plim_step_info *info)
{
    plim_err err = PLIM_ERR_INIT;
    plim_settings *s = asked_settings(words);
    plim_model *m = asked_model(model);
    plim_job job;
    if (plim_job_open(&job, a, m, s, &err) || plim_job_card(&job, &err) ||
        plim_job_graph(&job, 0, a, g, &err) || plim_job_tape(&job, g, a, t, info, &err))
        fail_msg("%s: %s", model, err.msg);
    plim_model_free(m);
    plim_settings_free(s);
}
