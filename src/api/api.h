/* api.h -- what the files behind plimsoll.h share. */
#ifndef PLIM_API_PRIVATE_H
#define PLIM_API_PRIVATE_H

#include "fit/job.h"

/* A public result is the first member of a struct that also has the arena in
 * which all of it lives, the struct too: _new gives `size` zeroed bytes whose
 * arena stands at arena_at; NULL: no memory.  _free takes NULL. */
void *plim__result_new(size_t size, size_t arena_at);
void plim__result_free(void *result, size_t arena_at);

/* A NUL-terminated copy; NULL: no memory. */
const char *plim__cstr(plim_arena *a, plim_str s);

/* The distinct ops of the graph that have no rule. */
plim_status plim__unknown_targets(plim_arena *a, const plim_graph *g, const char *const **out,
                                  uint32_t *n, plim_err *err);

plim_status plim__model_info(plim_arena *a, const plim_graph *g, plim_model_info *out,
                             plim_err *err);

#endif
