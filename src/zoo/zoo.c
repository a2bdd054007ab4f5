/* zoo.c -- the list of built-in models, and how one is made.  See zoo.h. */
#include "zoo/zoo.h"

#include "base/fmt.h"

#define FAMILIES(X)                                                                           \
    X(alexnet)                                                                                \
    X(convnext)                                                                               \
    X(densenet)                                                                               \
    X(efficientnet)                                                                           \
    X(googlenet)                                                                              \
    X(inception)                                                                              \
    X(lenet)                                                                                  \
    X(mlp)                                                                                    \
    X(mnasnet)                                                                                \
    X(mobilenet)                                                                              \
    X(resnet)                                                                                 \
    X(shufflenet)                                                                             \
    X(squeezenet)                                                                             \
    X(swin)                                                                                   \
    X(unet)                                                                                   \
    X(vgg)                                                                                    \
    X(vit)

#define X(family) extern const plim_zoo_family plim_zoo_##family;
FAMILIES(X)
#undef X
#define X(family) &plim_zoo_##family,
static const plim_zoo_family *const families[] = {FAMILIES(X)};
#undef X

/* ---- the list -------------------------------------------------------------------- */

uint32_t plim_zoo_count(void)
{
    uint32_t n = 0;
    for (size_t i = 0; i < PLIM_COUNT(families); i++)
        n += families[i]->n;
    return n;
}

const plim_zoo_model *plim_zoo_at(uint32_t i, const char **family)
{
    for (size_t k = 0; k < PLIM_COUNT(families); k++) {
        if (i < families[k]->n) {
            if (family)
                *family = families[k]->name;
            return &families[k]->models[i];
        }
        i -= families[k]->n;
    }
    return NULL;
}

/* "mlp:3,4" is "mlp" with the argument "3,4"; arg->p NULL: no colon. */
static const plim_zoo_model *zoo_find(plim_str name, plim_str *arg)
{
    const char *colon = name.n ? memchr(name.p, ':', name.n) : NULL;
    *arg = (plim_str){NULL, 0};
    if (colon) {
        *arg = (plim_str){colon + 1, name.n - (size_t)(colon - name.p) - 1};
        name.n = (size_t)(colon - name.p);
    }
    const plim_zoo_model *m;
    for (uint32_t i = 0; (m = plim_zoo_at(i, NULL)); i++)
        if (plim_str_is(name, m->name) || (m->alias && plim_str_is(name, m->alias)))
            return arg->p && !m->parse ? NULL : m;
    return NULL;
}

bool plim_zoo_has(plim_str name)
{
    plim_str arg;
    return zoo_find(name, &arg) != NULL;
}

/* ---- names that are nearly right ------------------------------------------------- */

enum { NEAREST = 3 };

plim_status plim_zoo_unknown(plim_str name, plim_err *err)
{
    const char *best[NEAREST] = {"", "", ""};
    uint32_t far[NEAREST] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const plim_zoo_model *m;
    for (uint32_t i = 0; (m = plim_zoo_at(i, NULL)); i++) {
        uint32_t d = plim_edit_distance(name, plim_str_of(m->name)), at = NEAREST;
        while (at > 0 && d < far[at - 1])
            at--;
        for (uint32_t k = NEAREST - 1; k > at; k--) {
            far[k] = far[k - 1];
            best[k] = best[k - 1];
        }
        if (at < NEAREST) {
            far[at] = d;
            best[at] = m->name;
        }
    }
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "no built-in model '" PLIM_STR_FMT "'; the nearest are '%s', '%s', '%s'",
                     (int)PLIM_MIN(name.n, (size_t)PLIM_NAME_MAX), name.p ? name.p : "",
                     best[0], best[1], best[2]);
}

/* ---- building one ------------------------------------------------------------------ */

enum { MAX_SIZE = INT32_MAX };

/* The shape that the user binds, or NULL: then the model's own is taken. */
static const struct plim_input_shape *zoo_given(plim_nn *n, const plim_zoo_model *m,
                                                const plim_binding *bind, int32_t rank,
                                                int64_t channels)
{
    if (bind->seq)
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' has no sequence length to set", m->name);
    if (bind->n_dims)
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' leaves no size '" PLIM_STR_FMT "' open", m->name,
                     PLIM_STR_ARG(bind->dims[0].name));
    if (bind->n_inputs > 1)
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' has 1 input, shapes are given for %u", m->name,
                     (unsigned)bind->n_inputs);
    if (n->st || !bind->n_inputs)
        return NULL;
    const struct plim_input_shape *in = &bind->inputs[0];
    if (in->name.n && !plim_str_is(in->name, "x"))
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' has no input '" PLIM_STR_FMT "', only 'x'", m->name,
                     PLIM_STR_ARG(in->name));
    else if (in->rank != rank)
        plim_nn_fail(n, PLIM_EUSAGE, "the input of '%s' has %d dimensions, the shape given %d",
                     m->name, (int)rank, (int)in->rank);
    else if (in->dim[1] != channels)
        plim_nn_fail(n, PLIM_ESHAPE,
                     "'%s' takes %" PRId64 " channels, the shape given has %" PRId64, m->name,
                     channels, in->dim[1]);
    return n->st ? NULL : in;
}

/* The input's sizes: batch and one sample, or what the user binds.  The batch
 * goes before the shape's first size.  Returns the rank. */
static int32_t zoo_shape(plim_nn *n, const plim_zoo_model *m, const int64_t *sample,
                         const plim_binding *bind, int64_t dim[4])
{
    static const plim_binding nothing = {0};
    int32_t rank = 1;
    bind = bind ? bind : &nothing;
    dim[0] = 1;
    for (int i = 0; i < 3 && sample[i]; i++)
        dim[rank++] = sample[i];
    const struct plim_input_shape *in = zoo_given(n, m, bind, rank, sample[0]);
    for (int32_t i = 0; in && i < rank; i++)
        dim[i] = in->dim[i];
    if (bind->batch)
        dim[0] = bind->batch;
    for (int32_t i = 0; i < rank; i++)
        if (dim[i] < 1 || dim[i] > MAX_SIZE)
            plim_nn_fail(n, PLIM_ERANGE, "size %" PRId64 " of dimension %d is not in 1..%d",
                         dim[i], (int)i, (int)MAX_SIZE);
    return rank;
}

plim_status plim_zoo_build(plim_graph *g, plim_str name, const plim_binding *bind,
                           plim_err *err)
{
    plim_str arg;
    const plim_zoo_model *m = zoo_find(name, &arg);
    int64_t sample[3], dim[4] = {0};
    plim_nn n;
    if (!m)
        return plim_zoo_unknown(name, err);
    plim_status st = plim_graph_init(g, g->arena, err);
    if (st)
        return st;
    plim_nn_init(&n, g, err);
    n.infer = bind && bind->infer;
    memcpy(sample, m->input, sizeof sample);
    const void *row = arg.p ? m->parse(&n, arg, &sample[0]) : m->row;
    g->name = arg.p ? plim_arena_str(g->arena, name) : plim_str_of(m->name);
    g->format = PLIM_STR("built-in");
    g->producer = plim_str_of(m->src);
    if (!g->name.p)
        n.st = plim_oom(err);
    int32_t rank = n.st ? 0 : zoo_shape(&n, m, sample, bind, dim);
    if (!n.st) {
        g->batch = dim[0];
        m->build(&n, row, plim_nn_input(&n, "x", PLIM_F32, (plim_ints){dim, (uint32_t)rank}));
    }
    if (n.st)
        plim_err_prefix(err, "cannot build '" PLIM_STR_FMT "': ",
                        (int)PLIM_MIN(name.n, (size_t)PLIM_NAME_MAX), name.p);
    return n.st;
}
