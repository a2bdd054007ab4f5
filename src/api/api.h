/* api.h -- what the files behind plimsoll.h share. */
#ifndef PLIM_API_PRIVATE_H
#define PLIM_API_PRIVATE_H

#include "fit/job.h"

/* A public result is the first member of a struct that also has the arena in
 * which all of it lives, the struct too: _new gives `size` zeroed bytes whose
 * arena stands at arena_at; NULL: no memory.  _free takes NULL.  A public result
 * begins with its size, which whoever fills it sets. */
void *plim__result_new(size_t size, size_t arena_at);
void plim__result_free(void *result, size_t arena_at);

/* A function from rows to the list of pointers that stands in a result; NULL: no memory. */
#define PLIM__LIST(fn, T)                                                                     \
    static const T *const *fn(plim_arena *a, const T *rows, uint32_t n)                       \
    {                                                                                         \
        const T **list = PLIM_NEW_N(a, const T *, n + UINT64_C(1));                           \
        for (uint32_t i = 0; list && i < n; i++)                                              \
            list[i] = &rows[i];                                                               \
        return list;                                                                          \
    }

/* What is done with a model, into the zeroed public part of a result. */
typedef plim_status plim__fill(plim_job *job, plim_arena *a, void *pub, plim_err *err);
/* A result of this layout, filled for the model; NULL: *st says why. */
void *plim__result_of(size_t size, size_t arena_at, const plim_model *model,
                      const plim_settings *s, plim__fill *fill, plim_status *st,
                      plim_err *err);

/* A NUL-terminated copy; NULL: no memory. */
const char *plim__cstr(plim_arena *a, plim_str s);

/* The distinct ops of the graph that have no rule. */
plim_status plim__unknown_targets(plim_arena *a, const plim_graph *g, const char *const **out,
                                  uint32_t *n, plim_err *err);

plim_status plim__model_info(plim_arena *a, const plim_graph *g, const plim_model_info **out,
                             plim_err *err);

#endif
