/* asked.h -- estimates for tests that are tables: a model by name and settings as a line of
 * words, "batch=32 optimizer=adam gpu=rtx4090".  NULL: no settings. */
#ifndef PLIM_ASKED_H
#define PLIM_ASKED_H

#include "core/graph.h"
#include "core/tape.h"
#include "settings/settings.h"
#include "unit.h"

/* A settings object with these settings; the test fails if one is refused. */
plim_settings *asked_settings(const char *words);
/* Sets one more, or (value NULL) removes one; the test fails if it is refused. */
void asked_set(plim_settings *s, const char *key, const char *value);

/* The test fails if it cannot be opened. */
plim_model *asked_model(const char *name);

/* Opens, sets, estimates and closes; returns the status of the first call that fails. */
plim_status asked_try(const char *model, const char *words, plim_estimate **out,
                      plim_err *err);
/* As asked_try; the test fails if any call does. */
plim_estimate *asked_estimate(const char *model, const char *words);
/* The same with settings owned by the test. */
plim_estimate *asked_estimate_of(const char *model, const plim_settings *s);

struct plim_step_info; /* step/step.h */
/* The graph of what is run and its events, in `a`; info may be NULL. */
void asked_tape(const char *model, const char *words, plim_arena *a, plim_graph *g,
                plim_tape *t, struct plim_step_info *info);

#endif
