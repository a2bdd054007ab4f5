/* lbfgs.c -- L-BFGS, which runs the model within its step.
 *
 * How many iterations a step takes, and which of them are remembered, depends on the data.
 * Here it takes as many as allowed, each is remembered and, with strong_wolfe, each line
 * search ends with its first trial.  The history is estimated: at least one pair, at most all
 * of them.  Scalars on the card that are freed within an iteration are left out.
 * src: torch/optim/lbfgs.py */
#include "base/fmt.h"
#include "op/rules.h"
#include "optim/part.h"

enum { MAX_ITERATIONS = 1000, MAX_HISTORY = 1000 };
enum { X_INIT = 1, X_NEXT, ZEROS }; /* lists; 0 is used by clipping within the closure */

typedef struct memory {
    plim_t dir, stp, ro;
} memory;

/* Data kept from step to step. */
typedef struct lbfgs {
    plim_meta flat; /* all parameters, concatenated */
    plim_t d, prev; /* direction, previous gradient */
    memory *old;    /* [history] oldest first */
    plim_t *al;     /* [history] */
    uint32_t n, history, max_iter, max_eval;
} lbfgs;

/* ---- options -------------------------------------------------------------------------- */

static uint32_t count_option(plim_optim_run *r, const char *option, uint32_t most)
{
    double v = plim_optim_option(r->spec, option);
    if (v >= 1 && v <= most)
        return (uint32_t)v;
    plim_m_fail(r->m, PLIM_EUSAGE, "optimizer option '%s' is %s, not in 1..%u", option,
                plim_fmt_double(v).s, (unsigned)most);
    return 1;
}

static void flat_meta(plim_optim_run *r, plim_meta *out)
{
    uint64_t total = 0, n;
    plim_dtype t = r->n ? plim_m_meta(r->m, r->params[0].leaf)->dtype : PLIM_F32;
    for (uint32_t i = 0; i < r->n; i++) {
        const plim_meta *m = plim_m_meta(r->m, r->params[i].leaf);
        if (m->dtype != t)
            plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                        "lbfgs supports parameters of one dtype only, '" PLIM_STR_FMT
                        "' has another",
                        PLIM_STR_ARG(r->params[i].name));
        if (plim_meta_numel(m, &n))
            total = plim_sat_add(total, n);
    }
    *out = plim_meta_make(t, 1, (int64_t[]){(int64_t)PLIM_MIN(total, (uint64_t)INT64_MAX)});
}

static lbfgs *lbfgs_new(plim_optim_run *r)
{
    lbfgs *l = PLIM_NEW(r->arena, lbfgs);
    if (l) {
        l->history = count_option(r, "history_size", MAX_HISTORY);
        l->max_iter = count_option(r, "max_iter", MAX_ITERATIONS);
        l->max_eval = plim_optim_on(r, "max_eval")
                          ? count_option(r, "max_eval", MAX_ITERATIONS)
                          : l->max_iter * 5 / 4;
        l->old = PLIM_NEW_N(r->arena, memory, l->history);
        l->al = PLIM_NEW_N(r->arena, plim_t, l->history);
        flat_meta(r, &l->flat);
    }
    if (!l || !l->old || !l->al) {
        plim_m_oom(r->m);
        return NULL;
    }
    return l;
}

/* ---- flat vectors ------------------------------------------------------------------------ */

static plim_t alloc_flat(plim_optim_run *r, const lbfgs *l, const char *role, plim_category c)
{
    plim_m_place(r->m, PLIM_NONE, PLIM_STR(""), role, c);
    return plim_m_empty(r->m, &l->flat);
}

static plim_t alloc_temporary(plim_optim_run *r, const lbfgs *l, const char *role)
{
    return alloc_flat(r, l, role, PLIM_CAT_TEMPORARY);
}

/* The first pair is exact: an iteration has its own pair, remembered or not. */
static plim_t alloc_history(plim_optim_run *r, const lbfgs *l, const plim_meta *meta,
                            const char *role)
{
    plim_m_place(r->m, PLIM_NONE, PLIM_STR(""), role, PLIM_CAT_OPTIMIZER_STATE);
    return l->n ? plim_m_empty_maybe(r->m, meta) : plim_m_empty(r->m, meta);
}

/* x.abs().max(); the result is one of the scalars left out */
static void find_largest(plim_optim_run *r, const lbfgs *l)
{
    plim_t t = alloc_temporary(r, l, "abs");
    plim_reduce_scratch(r->m, &l->flat, 1);
    plim_m_drop(r->m, t);
}

/* _gather_flat_grad: a missing gradient is replaced by zeros */
static plim_t gather_grad(plim_optim_run *r, const lbfgs *l)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (!plim_m_grad(r->m, r->params[i].leaf))
            r->params[i].tmp[ZEROS] = plim_optim_like(r, &r->params[i], "zeros");
    plim_t t = alloc_temporary(r, l, "flat_grad");
    plim_optim_list_free(r, ZEROS);
    return t;
}

static void run_closure(plim_optim_run *r) { plim_m_drop(r->m, r->closure(r->ud)); }

/* ---- an iteration ------------------------------------------------------------------------- */

/* Adds y and s to the history; computes q and the direction from it. */
static plim_t find_direction(plim_optim_run *r, lbfgs *l, plim_t *q)
{
    plim_meta number = plim_meta_make(l->flat.dtype, 0, NULL);
    memory fresh = {.dir = alloc_history(r, l, &l->flat, "old_dirs"),
                    .stp = alloc_history(r, l, &l->flat, "old_stps")};
    if (l->n == l->history) {
        plim_m_drop(r->m, l->old[0].dir);
        plim_m_drop(r->m, l->old[0].stp);
        plim_m_drop(r->m, l->old[0].ro);
        memmove(l->old, l->old + 1, --l->n * sizeof *l->old);
    }
    l->old[l->n++] = fresh;
    l->old[l->n - 1].ro = alloc_history(r, l, &number, "ro");
    plim_optim_set(r, q, alloc_temporary(r, l, "q"));
    if (!l->al[l->n - 1])
        l->al[l->n - 1] = alloc_history(r, l, &number, "al");
    return alloc_flat(r, l, "d", PLIM_CAT_OPTIMIZER_STATE);
}

static void copy_parameters(plim_optim_run *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        r->params[i].tmp[X_NEXT] = plim_optim_like(r, &r->params[i], "x_init");
    plim_optim_list_free(r, X_INIT);
    for (uint32_t i = 0; i < r->n; i++) {
        r->params[i].tmp[X_INIT] = r->params[i].tmp[X_NEXT];
        r->params[i].tmp[X_NEXT] = 0;
    }
}

/* _strong_wolfe */
static void search_line(plim_optim_run *r, const lbfgs *l, plim_t *grad)
{
    copy_parameters(r);
    find_largest(r, l);
    plim_t g = alloc_temporary(r, l, "g");
    run_closure(r);
    plim_t next = gather_grad(r, l);
    plim_m_drop(r->m, g);
    plim_optim_set(r, grad, next);
    find_largest(r, l);
}

/* d.mul(t).abs().max() */
static void measure_progress(plim_optim_run *r, const lbfgs *l)
{
    plim_t product = alloc_temporary(r, l, "d * t"), t = alloc_temporary(r, l, "abs");
    plim_m_drop(r->m, product);
    plim_reduce_scratch(r->m, &l->flat, 1);
    plim_m_drop(r->m, t);
}

static void run_iterations(plim_optim_run *r, lbfgs *l, plim_t *grad, plim_t *d, plim_t *q)
{
    bool wolfe = plim_optim_on(r, "strong_wolfe");
    for (uint32_t i = 1, evals = 1; !plim_m_bad(r->m); i++, evals++) {
        plim_optim_set(r, d,
                       l->prev ? find_direction(r, l, q)
                               : alloc_flat(r, l, "d", PLIM_CAT_OPTIMIZER_STATE));
        if (!l->prev) {
            l->prev = alloc_flat(r, l, "prev_flat_grad", PLIM_CAT_OPTIMIZER_STATE);
            find_largest(r, l); /* flat_grad.abs().sum() */
        }
        if (wolfe) {
            search_line(r, l, grad);
        } else if (i < l->max_iter) {
            run_closure(r);
            plim_optim_set(r, grad, gather_grad(r, l));
            find_largest(r, l);
        }
        if (i >= l->max_iter || evals + 1 >= l->max_eval)
            return;
        measure_progress(r, l);
    }
}

void plim_optim_lbfgs(plim_optim_run *r)
{
    lbfgs *l = r->own ? r->own : lbfgs_new(r);
    if (!(r->own = l) || plim_m_bad(r->m))
        return;
    plim_t loss = r->closure(r->ud), grad = gather_grad(r, l), q = 0;
    plim_t d = plim_m_ref(r->m, l->d); /* the state holds it until the step ends */
    find_largest(r, l);
    run_iterations(r, l, &grad, &d, &q);
    plim_optim_set(r, &l->d, d);
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, q);
    plim_optim_list_free(r, X_INIT);
    plim_m_drop(r->m, loss);
}

/* Steps until the history is full. */
int plim_optim_lbfgs_steps(const plim_optim_spec *s)
{
    double history = plim_optim_option(s, "history_size"), most = 1,
           iterations = plim_optim_option(s, "max_iter"),
           evals = plim_optim_option(s, "max_eval");
    if (!(history >= 1 && history <= MAX_HISTORY && iterations >= 1 &&
          iterations <= MAX_ITERATIONS))
        return 1; /* the step will report it */
    int usual = (int)iterations * 5 / 4;
    if (!(evals >= 1))
        evals = (double)usual;
    most = PLIM_MAX(1, PLIM_MIN(iterations, evals - 1));
    return (int)((history + most) / most) + 1;
}
