/* api.h -- what the files behind plimsoll.h share. */
#ifndef PLIM_API_PRIVATE_H
#define PLIM_API_PRIVATE_H

#include "fit/job.h"

/* A public result is the first member of a struct that also has the arena in
 * which all of it lives, the struct too: _new gives `size` zeroed bytes whose
 * arena stands at arena_at; NULL: no memory.  _free takes NULL. */
void *plim__result_new(size_t size, size_t arena_at);
void plim__result_free(void *result, size_t arena_at);

/* What is done with a model, into the zeroed public part of a result; `more` is the
 * caller's. */
typedef plim_status plim__fill(plim_job *job, plim_arena *a, void *pub, const void *more,
                               plim_err *err);
/* A result of this layout, filled for the model; NULL: *st says why. */
void *plim__result_of(size_t size, size_t arena_at, const char *model, const plim_settings *s,
                      plim__fill *fill, const void *more, plim_status *st, plim_err *err);

/* A NUL-terminated copy; NULL: no memory. */
const char *plim__cstr(plim_arena *a, plim_str s);

/* The distinct ops of the graph that have no rule. */
plim_status plim__unknown_targets(plim_arena *a, const plim_graph *g, const char *const **out,
                                  uint32_t *n, plim_err *err);

plim_status plim__model_info(plim_arena *a, const plim_graph *g, plim_model_info *out,
                             plim_err *err);

#endif
