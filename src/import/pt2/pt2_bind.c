/* pt2_bind.c -- see pt2_priv.h. */
#include "import/pt2/pt2_priv.h"

/* Reconciles the size that the caller requests with what the file says. */
static plim_status bind_size(pt2 *f, const pt2_size *s, int64_t want, bool *fixed)
{
    plim_str missing;
    *fixed = !s->is_expr;
    if (!s->is_expr)
        return s->value == want ? PLIM_OK : PLIM_EUNSUPPORTED;
    return plim_symexpr_solve(&f->syms, s->expr, want, &missing, f->err);
}

static plim_status bind_shape(pt2 *f, const pt2_env *env, const struct plim_input_shape *shape)
{
    uint32_t i = 0;
    while (i < f->n_inputs &&
           (f->inputs[i].kind != PLIM_VALUE_INPUT ||
            (shape->name.n && !plim_str_eq(f->inputs[i].name, shape->name))))
        i++;
    if (i == f->n_inputs)
        return plim_fail(f->err, PLIM_EUSAGE, 0, "the model has no input '" PLIM_STR_FMT "'",
                         PLIM_STR_ARG(shape->name));
    plim_str name = f->inputs[i].name;
    pt2_tensor t;
    plim_status st = plim_pt2_find_tensor(f, env, f->inputs[i].arg, &t);
    if (st)
        return st;
    if (t.rank != shape->rank)
        return plim_fail(f->err, PLIM_ESHAPE, 0,
                         "input '" PLIM_STR_FMT "' has %d dimensions, not %d",
                         PLIM_STR_ARG(name), (int)t.rank, (int)shape->rank);
    for (int32_t d = 0; d < t.rank; d++) {
        bool fixed;
        st = bind_size(f, &t.size[d], shape->dim[d], &fixed);
        if (st && fixed)
            return plim_fail(f->err, st, 0,
                             "dimension %d of input '" PLIM_STR_FMT "' is fixed at %" PRId64
                             ", not %" PRId64
                             ": export again with dynamic_shapes={'" PLIM_STR_FMT
                             "': {%d: torch.export.Dim('dim%d')}}",
                             (int)d, PLIM_STR_ARG(name), t.size[d].value, shape->dim[d],
                             PLIM_STR_ARG(name), (int)d, (int)d);
        if (st) {
            plim_err_prefix(f->err, "dimension %d of input '" PLIM_STR_FMT "': ", (int)d,
                            PLIM_STR_ARG(name));
            return st;
        }
    }
    return PLIM_OK;
}

/* The size in dimension d that represents all inputs: that of the first input where it is a
 * symbol, else of the first input that has this dimension.  False: none has it. */
static plim_status leading_size(pt2 *f, const pt2_env *env, int32_t d, pt2_size *out,
                                plim_str *name, bool *found)
{
    *found = false;
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        pt2_tensor t;
        if (f->inputs[i].kind != PLIM_VALUE_INPUT)
            continue;
        PLIM_TRY(plim_pt2_find_tensor(f, env, f->inputs[i].arg, &t));
        if (t.rank <= d || (*found && !t.size[d].is_expr))
            continue;
        *out = t.size[d];
        *name = f->inputs[i].name;
        *found = true;
        if (out->is_expr)
            break;
    }
    return PLIM_OK;
}

/* Inputs may have different symbols for the same size: those with the same hint get the same
 * value. */
static void bind_followers(pt2 *f, const pt2_env *env, int32_t d, const pt2_size *lead,
                           int64_t want)
{
    for (uint32_t i = 0; i < f->n_inputs && lead->has_hint; i++) {
        pt2_tensor t;
        plim_str missing;
        if (f->inputs[i].kind == PLIM_VALUE_INPUT &&
            plim_pt2_find_tensor(f, env, f->inputs[i].arg, &t) == PLIM_OK && t.rank > d &&
            t.size[d].is_expr && t.size[d].has_hint && t.size[d].value == lead->value)
            (void)plim_symexpr_solve(&f->syms, t.size[d].expr, want, &missing, NULL);
    }
}

/* --batch is dimension 0, --seq dimension 1. */
static plim_status bind_leading(pt2 *f, const pt2_env *env, int32_t d, int64_t want,
                                const char *what)
{
    pt2_size size;
    plim_str name;
    bool found, fixed;
    plim_status st = leading_size(f, env, d, &size, &name, &found);
    if (st || !want)
        return st;
    if (!found)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 0, "no input of the model has a %s", what);
    st = bind_size(f, &size, want, &fixed);
    if (st && fixed)
        return plim_fail(f->err, st, 0,
                         "%s is fixed at %" PRId64
                         " in this export: export again with dynamic_shapes={'" PLIM_STR_FMT
                         "': {%d: torch.export.Dim('%s')}}",
                         what, size.value, PLIM_STR_ARG(name), (int)d, what);
    if (st)
        plim_err_prefix(f->err, "%s: ", what);
    else if (!fixed)
        bind_followers(f, env, d, &size, want);
    return st;
}

/* Symbols of inputs that the caller did not bind keep the sizes of the export. */
static plim_status bind_hints(pt2 *f, const pt2_env *env)
{
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        pt2_tensor t;
        plim_str missing;
        if (f->inputs[i].kind != PLIM_VALUE_INPUT)
            continue;
        PLIM_TRY(plim_pt2_find_tensor(f, env, f->inputs[i].arg, &t));
        for (int32_t d = 0; d < t.rank; d++) {
            int64_t v;
            if (t.size[d].is_expr && t.size[d].has_hint &&
                plim_symexpr_eval(&f->syms, t.size[d].expr, &v, &missing, NULL) && missing.n)
                (void)plim_symexpr_solve(&f->syms, t.size[d].expr, t.size[d].value, &missing,
                                         NULL);
        }
    }
    return PLIM_OK;
}

/* src: torch/_export/utils.py, _check_input_constraints_for_graph: a lower bound of 2 comes
 * from tracing; 0 and 1 work as well */
static plim_status check_ranges(pt2 *f)
{
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        const pt2_range *r = &f->ranges[i];
        plim_str missing;
        int64_t v;
        if (plim_symexpr_eval(&f->syms, r->expr, &v, &missing, NULL))
            continue;
        if ((r->min > 2 && v < r->min) || v > r->max)
            return plim_fail(f->err, PLIM_ERANGE, 0,
                             "size '" PLIM_STR_FMT "' is %" PRId64
                             ", outside the range %" PRId64 "..%" PRId64
                             " that the model was exported for",
                             PLIM_STR_ARG(r->expr), v, r->min, r->max);
    }
    return PLIM_OK;
}

/* --dim NAME=VALUE: a symbol by its name in the file. */
static plim_status bind_named(pt2 *f, const struct plim_dim_value *dim)
{
    plim_str name, missing;
    for (uint32_t i = 0; i < f->n_ranges; i++)
        if (plim_symexpr_is_symbol(f->ranges[i].expr, &name) && plim_str_eq(name, dim->name))
            return plim_symexpr_solve(&f->syms, name, dim->value, &missing, f->err);
    return plim_fail(f->err, PLIM_EUSAGE, 0,
                     "the model has no open size '" PLIM_STR_FMT
                     "' ('plimsoll info' lists those it has)",
                     PLIM_STR_ARG(dim->name));
}

/* The symbols that can be bound, for `plimsoll info`. */
static plim_status list_open(pt2 *f)
{
    plim_str name, missing;
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        int64_t v = 0;
        if (!plim_symexpr_is_symbol(f->ranges[i].expr, &name))
            continue;
        (void)plim_symexpr_eval(&f->syms, name, &v, &missing, NULL);
        name = plim_arena_str(f->a, name);
        if (!name.p || !plim_graph_add_dim(f->g, name, v))
            return plim_oom(f->err);
    }
    return PLIM_OK;
}

/* Of a model whose inputs are known to be tokens: dimension 1 is the sequence. */
static plim_status bind_length(pt2 *f, const pt2_env *env)
{
    pt2_size size;
    plim_str name;
    bool found;
    PLIM_TRY(leading_size(f, env, 1, &size, &name, &found));
    return found && size.is_expr ? plim_pt2_eval_size(f, &size, &f->g->sizes.seq) : PLIM_OK;
}

plim_status plim_pt2_bind_sizes(pt2 *f, const pt2_env *env)
{
    static const plim_binding nothing = {0};
    const plim_binding *b = f->bind ? f->bind : &nothing;
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < b->n_dims && !st; i++)
        st = bind_named(f, &b->dims[i]);
    for (uint32_t i = 0; i < b->n_inputs && !st; i++)
        st = bind_shape(f, env, &b->inputs[i]);
    if (!st)
        st = bind_leading(f, env, 0, b->batch, "batch");
    if (!st)
        st = bind_leading(f, env, 1, b->seq, "seq");
    if (!st)
        st = bind_hints(f, env);
    if (!st)
        st = check_ranges(f);
    if (!st)
        st = list_open(f);
    pt2_size size;
    plim_str name;
    bool found = false;
    if (!st)
        st = leading_size(f, env, 0, &size, &name, &found);
    f->g->sizes.batch_fixed = !found || !size.is_expr;
    if (!st && f->source.n)
        st = bind_length(f, env);
    return st || !found ? st : plim_pt2_eval_size(f, &size, &f->g->sizes.batch);
}
