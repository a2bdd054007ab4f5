/* api.c -- see api.h. */
#include "api/api.h"

#include "base/fmt.h"

const char *plim_version(void) { return PLIM_VERSION; }

uint32_t plim_version_number(void) { return PLIM_VERSION_NUMBER; }

void *plim__result_new(size_t size, size_t arena_at)
{
    plim_arena a = PLIM_ARENA_INIT;
    char *r = plim_arena_new(&a, 1, size);
    if (r)
        memcpy(r + arena_at, &a, sizeof a); /* the arena now lives in its own memory */
    return r;
}

void plim__result_free(void *result, size_t arena_at)
{
    plim_arena a;
    if (!result)
        return;
    memcpy(&a, (char *)result + arena_at, sizeof a); /* freeing the arena frees `result` */
    plim_arena_free(&a);
}

void *plim__result_of(size_t size, size_t arena_at, const plim_model *model,
                      const plim_settings *s, plim__fill *fill, plim_status *st, plim_err *err)
{
    plim_budget budget;
    plim_budget_begin(&budget, PLIM_BUDGET_FREE);
    char *r = plim__result_new(size, arena_at);
    plim_job job = {0};
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_arena *a = r ? (plim_arena *)(void *)(r + arena_at) : NULL;
    *st = r ? plim_job_open(&job, a, model, s, err) : plim_oom(err);
    job.scratch = &scratch;
    if (!*st)
        *st = fill(&job, a, r, err);
    plim_arena_free(&scratch);
    *st = plim_budget_end(&budget, *st, err);
    if (!*st)
        return r;
    plim__result_free(r, arena_at);
    return NULL;
}

const char *plim__cstr(plim_arena *a, plim_str s) { return plim_arena_str(a, s).p; }

/* ---- model ---------------------------------------------------------------------- */

plim_status plim__unknown_targets(plim_arena *a, const plim_graph *g, const char *const **out,
                                  uint32_t *n, plim_err *err)
{
    plim_map seen = {0};
    const char **list = NULL;
    uint32_t cap = 0, found;
    *n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        plim_str target = g->nodes[i].target;
        if (g->nodes[i].op || plim_map_get(&seen, target, &found))
            continue;
        if (!plim_map_put(a, &seen, target, *n) || !PLIM_PUSH_ROOM(a, list, *n, cap) ||
            !(list[*n] = plim__cstr(a, target)))
            return plim_oom(err);
        ++*n;
    }
    *out = list;
    return PLIM_OK;
}

plim_status plim__model_info(plim_arena *a, const plim_graph *g, const plim_model_info **out,
                             plim_err *err)
{
    plim_graph_counts c;
    plim_model_info *m = PLIM_NEW(a, plim_model_info);
    PLIM_TRY(m ? plim_graph_count(g, &c, err) : plim_oom(err));
    *m = (plim_model_info){.size = sizeof *m,
                           .name = plim__cstr(a, g->about.name),
                           .format = plim__cstr(a, g->about.format),
                           .producer = plim__cstr(a, g->about.producer),
                           .origin = plim__cstr(a, g->about.origin),
                           .note = plim__cstr(a, plim_graph_note(g)),
                           .left_out = plim__cstr(a, g->about.left_out),
                           .releases = plim__cstr(a, g->about.releases),
                           .parameters = c.parameters,
                           .trainable_parameters = c.trainable,
                           .buffers = c.buffers,
                           .parameter_bytes = c.parameter_bytes,
                           .buffer_bytes = c.buffer_bytes,
                           .batch = g->sizes.batch,
                           .seq = g->sizes.seq,
                           .seq_max = g->sizes.seq_max,
                           .top1 = g->about.top1 / 1000.0,
                           .packed_weights = g->packed_weights,
                           .ops = plim_graph_ops(g)};
    for (uint32_t i = 0; i < g->n_nodes; i++)
        m->unknown_ops += g->nodes[i].op == NULL;
    m->dtype = PLIM_F32;
    for (uint32_t i = g->n_values; i-- > 0;)
        if (g->values[i].kind == PLIM_VALUE_PARAMETER)
            m->dtype = g->values[i].meta.dtype;
    *out = m;
    return m->name && m->format && m->producer && m->note && m->origin && m->left_out &&
                   m->releases
               ? PLIM_OK
               : plim_oom(err);
}

/* ---- helpers for front ends ---------------------------------------------------------- */

plim_status plim_size_parse(const char *text, uint64_t *bytes, plim_err *err)
{
    PLIM_REQUIRE(text, err);
    PLIM_REQUIRE(bytes, err);
    return plim_parse_size(plim_str_of(text), bytes, err);
}

plim_status plim_shape_parse(const char *text, int64_t *dim, int max, int *rank, plim_err *err)
{
    int32_t r = 0;
    PLIM_REQUIRE(text, err);
    PLIM_REQUIRE(dim || max <= 0, err);
    PLIM_REQUIRE(rank, err);
    plim_status st = plim_parse_shape(plim_str_of(text), dim, max, &r, err);
    if (!st)
        *rank = r;
    return st;
}

plim_status plim_tensor_bytes(plim_dtype t, int rank, const int64_t *dim, uint64_t *bytes,
                              plim_err *err)
{
    PLIM_REQUIRE(dim || rank <= 0, err);
    PLIM_REQUIRE(bytes, err);
    if ((unsigned)t >= PLIM_DTYPE_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "dtype %d is not in 0..%d", (int)t,
                         PLIM_DTYPE_COUNT - 1);
    if (rank < 0 || rank > PLIM_MAX_RANK)
        return plim_fail(err, PLIM_EUSAGE, 0, "rank %d is not in 0..%d", rank, PLIM_MAX_RANK);
    plim_meta m = plim_meta_make(t, rank, dim);
    if (!plim_meta_bytes(&m, bytes))
        return plim_fail(err, PLIM_ERANGE, 0, "the tensor has more than 2^64 bytes");
    return PLIM_OK;
}
