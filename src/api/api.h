/* api.h -- helpers shared by the files that implement plimsoll.h. */
#ifndef PLIM_API_PRIVATE_H
#define PLIM_API_PRIVATE_H

#include "job/job.h"

/* A public result is the first member of a struct that also contains the arena in
 * which the result lives, including the struct itself.  _new returns `size` zeroed
 * bytes whose arena is at offset arena_at; NULL: out of memory.  _free takes NULL.
 * A public result begins with its size, which the function that fills it sets. */
void *plim__result_new(size_t size, size_t arena_at);
void plim__result_free(void *result, size_t arena_at);

/* Defines a function that turns rows into the list of pointers of a result; NULL: out of
 * memory. */
#define PLIM__LIST(fn, T)                                                                     \
    static const T *const *fn(plim_arena *a, const T *rows, uint32_t n)                       \
    {                                                                                         \
        const T **list = PLIM_NEW_N(a, const T *, n + UINT64_C(1));                           \
        for (uint32_t i = 0; list && i < n; i++)                                              \
            list[i] = &rows[i];                                                               \
        return list;                                                                          \
    }

/* Fills `pub`, the zeroed public part of a result. */
typedef plim_status plim__fill(plim_job *job, plim_arena *a, void *pub, plim_err *err);
/* Opens a job for the model and fills a result of this layout with `fill`; NULL: *st is the
 * error. */
void *plim__result_of(size_t size, size_t arena_at, const plim_model *model,
                      const plim_settings *s, plim__fill *fill, plim_status *st,
                      plim_err *err);

/* st, which says that the file is in no format of models; or an error that says what else it is, and which
 * commands read it.  Looks at both ends of the file only. */
plim_status plim__elsewhere(const plim_source *s, plim_status st, plim_err *err);

/* A NUL-terminated copy; NULL: out of memory. */
const char *plim__cstr(plim_arena *a, plim_str s);

/* The time of a step of this job, whose graph and ledger are given. */
plim_step_time plim__step_time(const plim_job *job, const plim_graph *g,
                               const plim_ledger *ledger);

/* The names of the ops without a rule, each once. */
plim_status plim__unknown_targets(plim_arena *a, const plim_graph *g, const char *const **out,
                                  uint32_t *n, plim_err *err);

/* The cards of the setting "gpu", or the one that "vram" describes, or all cards. */
plim_status plim__list_cards(plim_job *job, plim_arena *a, const plim_gpu ***out, uint32_t *n,
                             plim_err *err);

/* Summarizes the graph in a new plim_model_info in `a`. */
plim_status plim__model_info(plim_arena *a, const plim_graph *g, const plim_model_info **out,
                             plim_err *err);

#endif
