/* onnx_bind.c -- see onnx_priv.h.
 *
 * A size is a number, a name (the same name is the same size everywhere), an expression of
 * names, or absent.  The file has no hint for a value, so the caller must give the open sizes;
 * only a batch defaults to 1. */
#include "import/onnx/onnx_priv.h"

/* The value of a size as the file gives it; *missing: a name without a value. */
static plim_status bind_eval(onnx *f, plim_str param, int64_t *out, plim_str *missing)
{
    *missing = (plim_str){NULL, 0};
    plim_status st = plim_symexpr_eval(&f->syms, param, out, missing, NULL);
    if (!st || missing->n)
        return st;
    plim_symbol *s = plim_symbol_get(&f->syms, param); /* a name, not an expression */
    if (!s)
        return plim_oom(f->err);
    *missing = s->bound ? *missing : param;
    *out = s->value;
    return s->bound ? PLIM_OK : PLIM_ESHAPE;
}

static plim_status bind_solve(onnx *f, plim_str param, int64_t value)
{
    plim_str missing = {NULL, 0};
    int64_t had;
    plim_status st = bind_eval(f, param, &had, &missing);
    if (st && plim_str_eq(missing, param)) {
        plim_symbol *s = plim_symbol_get(&f->syms, param);
        if (!s)
            return plim_oom(f->err);
        s->bound = true;
        s->value = value;
        return PLIM_OK;
    }
    if (st == PLIM_ENOMEM)
        return st;
    if (!st && had != value)
        return plim_fail(f->err, PLIM_ESHAPE, 0,
                         "'%.*s' is %" PRId64 " elsewhere, not %" PRId64,
                         (int)PLIM_MIN(param.n, 80), param.p, had, value);
    return st ? plim_symexpr_solve(&f->syms, param, value, &missing, f->err) : PLIM_OK;
}

/* ---- what the caller asks for ------------------------------------------------------ */

static bool is_input(const onnx *f, const onnx_info *in)
{
    uint32_t weight; /* up to IR 3 weights are also inputs */
    return !plim_map_get(&f->m.graph.init_of, in->name, &weight);
}

/* Sets the number of a size; *fixed: it already has another one. */
static plim_status bind_dim(onnx *f, onnx_dim *d, int64_t value, bool *fixed)
{
    *fixed = d->known && d->value != value;
    if (d->known)
        return *fixed ? PLIM_EUNSUPPORTED : PLIM_OK;
    if (d->param.n)
        return bind_solve(f, d->param, value);
    d->known = true;
    d->value = value;
    return PLIM_OK;
}

static plim_status bind_input(onnx *f, const struct plim_input_shape *shape)
{
    onnx_info *in = NULL;
    for (uint32_t i = 0; i < f->m.graph.n_inputs && !in; i++)
        if (is_input(f, &f->m.graph.inputs[i]) &&
            (!shape->name.n || plim_str_eq(shape->name, f->m.graph.inputs[i].name)))
            in = &f->m.graph.inputs[i];
    if (!in)
        return plim_fail(f->err, PLIM_EUSAGE, 0, "the model has no input '" PLIM_STR_FMT "'",
                         PLIM_STR_ARG(shape->name));
    plim_str name = plim_onnx_clean(f->a, in->name);
    if (!name.p)
        return plim_oom(f->err);
    if (in->has_shape && in->rank != shape->rank)
        return plim_fail(f->err, PLIM_ESHAPE, 0,
                         "input '" PLIM_STR_FMT "' has %d dimensions, not %d",
                         PLIM_STR_ARG(name), (int)in->rank, (int)shape->rank);
    in->has_shape = true;
    in->rank = shape->rank;
    for (int32_t d = 0; d < in->rank; d++) {
        bool fixed;
        plim_status st = bind_dim(f, &in->dim[d], shape->dim[d], &fixed);
        if (fixed)
            return plim_fail(f->err, st, 0,
                             "dimension %d of input '" PLIM_STR_FMT "' is fixed at %" PRId64
                             ", not %" PRId64 ": export again with it dynamic",
                             (int)d, PLIM_STR_ARG(name), in->dim[d].value, shape->dim[d]);
        if (st) {
            plim_err_prefix(f->err, "dimension %d of input '" PLIM_STR_FMT "': ", (int)d,
                            PLIM_STR_ARG(name));
            return st;
        }
    }
    return PLIM_OK;
}

static bool is_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

/* Whether `name` is the text, or a word of it. */
static bool mentions_name(plim_str text, plim_str name)
{
    for (size_t i = 0; name.n && i + name.n <= text.n; i++) {
        size_t end = i + name.n;
        if (!memcmp(text.p + i, name.p, name.n) && (!i || !is_word(text.p[i - 1])) &&
            (end == text.n || !is_word(text.p[end])))
            return true;
    }
    return false;
}

static plim_status bind_named(onnx *f, const struct plim_dim_value *v)
{
    plim_str first = {NULL, 0};
    for (uint32_t i = 0; i < f->m.graph.n_inputs; i++)
        for (int32_t d = 0; d < f->m.graph.inputs[i].rank; d++) {
            plim_str param = f->m.graph.inputs[i].dim[d].param;
            if (param.n && mentions_name(param, v->name))
                return bind_solve(f, v->name, v->value);
            first = first.n ? first : param;
        }
    if (!first.n)
        return plim_fail(f->err, PLIM_EUSAGE, 0,
                         "the model has no dimension '" PLIM_STR_FMT
                         "': all of them are fixed",
                         PLIM_STR_ARG(v->name));
    first = plim_onnx_clean(f->a, (plim_str){first.p, PLIM_MIN(first.n, 60)});
    return plim_fail(f->err, PLIM_EUSAGE, 0,
                     "the model has no dimension '" PLIM_STR_FMT "'; it has '" PLIM_STR_FMT
                     "'",
                     PLIM_STR_ARG(v->name), PLIM_STR_ARG(first));
}

/* The first input with a dimension d; preferably one where it is open. */
static onnx_info *leading_input(onnx *f, int32_t d)
{
    onnx_info *found = NULL;
    for (uint32_t i = 0; i < f->m.graph.n_inputs; i++) {
        onnx_info *in = &f->m.graph.inputs[i];
        if (in->rank <= d || !is_input(f, in) || (found && in->dim[d].known))
            continue;
        found = in;
        if (!in->dim[d].known)
            break;
    }
    return found;
}

static bool sounds_like_batch(plim_str param)
{
    for (size_t i = 0; i + 5 <= param.n; i++)
        if ((param.p[i] | 0x20) == 'b' && !memcmp(param.p + i + 1, "atch", 4))
            return true;
    return plim_str_is(param, "N");
}

/* Dimension 0 is the batch, unless it is fixed and another dimension has that name. */
static onnx_info *find_batch(onnx *f, int32_t *dim)
{
    onnx_info *in = leading_input(f, 0);
    *dim = 0;
    for (uint32_t i = 0; i < f->m.graph.n_inputs && in && in->dim[0].known; i++)
        for (int32_t d = 0; d < f->m.graph.inputs[i].rank; d++)
            if (sounds_like_batch(f->m.graph.inputs[i].dim[d].param)) {
                *dim = d;
                return &f->m.graph.inputs[i];
            }
    return in;
}

static plim_status bind_leading(onnx *f, onnx_info *in, int32_t d, int64_t want,
                                const char *what)
{
    bool fixed;
    if (!want)
        return PLIM_OK;
    if (!in)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 0, "no input of the model has a %s", what);
    plim_status st = bind_dim(f, &in->dim[d], want, &fixed);
    plim_str name = plim_onnx_clean(f->a, in->name);
    if (fixed)
        return plim_fail(f->err, st, 0,
                         "%s is fixed at %" PRId64
                         " in this export: export again with dynamic_axes={'" PLIM_STR_FMT
                         "': {%d: '%s'}}",
                         what, in->dim[d].value, PLIM_STR_ARG(name), (int)d, what);
    if (st)
        plim_err_prefix(f->err, "%s: ", what);
    return st;
}

/* ---- what nobody asked for ---------------------------------------------------------- */

bool plim_onnx_is_batch(const onnx_graph *g, const onnx_info *in, int32_t d)
{
    return sounds_like_batch(in->dim[d].param) || (d == 0 && in == &g->inputs[0]);
}

static plim_status ask_for(onnx *f, const onnx_info *in, int32_t d)
{
    plim_str param = in->dim[d].param, name = plim_onnx_clean(f->a, in->name);
    if (!param.n)
        return plim_fail(f->err, PLIM_EUSAGE, in->at,
                         "dimension %d of input '" PLIM_STR_FMT
                         "' is not in the file: give its shape with --input",
                         (int)d, PLIM_STR_ARG(name));
    param = plim_onnx_clean(f->a, (plim_str){param.p, PLIM_MIN(param.n, 60)});
    return plim_fail(f->err, PLIM_EUSAGE, in->at,
                     "dimension '" PLIM_STR_FMT "' of input '" PLIM_STR_FMT
                     "' is open: give it with --dim '" PLIM_STR_FMT "=128'",
                     PLIM_STR_ARG(param), PLIM_STR_ARG(name), PLIM_STR_ARG(param));
}

static plim_status bind_rest(onnx *f, onnx_info *in, int64_t batch)
{
    plim_str missing;
    for (int32_t d = 0; d < in->rank; d++) {
        onnx_dim *dim = &in->dim[d];
        plim_status st = PLIM_OK;
        if (dim->known)
            continue;
        int64_t v = batch;
        st = dim->param.n ? bind_eval(f, dim->param, &v, &missing)
             : d == 0     ? PLIM_OK
                          : PLIM_ESHAPE;
        if (st && dim->param.n && plim_onnx_is_batch(&f->m.graph, in, d)) {
            v = batch;
            st = bind_solve(f, dim->param, v);
        }
        if (st == PLIM_ENOMEM)
            return st;
        if (st)
            return ask_for(f, in, d);
        if (v < 0)
            return plim_fail(f->err, PLIM_ERANGE, in->at,
                             "dimension %d of an input evaluates to %" PRId64, (int)d, v);
        dim->known = true;
        dim->value = v;
    }
    return PLIM_OK;
}

plim_status plim_onnx_bind_sizes(onnx *f)
{
    static const plim_binding nothing = {0};
    const plim_binding *b = f->bind ? f->bind : &nothing;
    plim_status st = PLIM_OK;
    int32_t dim;
    onnx_info *lead = find_batch(f, &dim);
    f->g->sizes.batch_fixed = !lead || lead->dim[dim].known;
    for (uint32_t i = 0; i < b->n_inputs && !st; i++)
        st = bind_input(f, &b->inputs[i]);
    for (uint32_t i = 0; i < b->n_dims && !st; i++)
        st = bind_named(f, &b->dims[i]);
    if (!st)
        st = bind_leading(f, lead, dim, b->batch, "batch");
    if (!st)
        st = bind_leading(f, leading_input(f, 1), 1, b->seq, "seq");
    for (uint32_t i = 0; i < f->m.graph.n_inputs && !st; i++)
        if (is_input(f, &f->m.graph.inputs[i]) && f->m.graph.inputs[i].has_shape)
            st = bind_rest(f, &f->m.graph.inputs[i], b->batch ? b->batch : 1);
    if (!st && lead && lead->dim[dim].known)
        f->g->sizes.batch = lead->dim[dim].value;
    return st;
}

bool plim_onnx_shape(onnx *f, const onnx_info *info, plim_meta *out)
{
    const onnx_type *t = plim_onnx_type(info->type);
    plim_str missing;
    int64_t dim[PLIM_MAX_RANK];
    uint64_t bytes;
    if (!info->tensor || !info->has_shape || !t || !t->known)
        return false;
    for (int32_t d = 0; d < info->rank; d++) {
        const onnx_dim *x = &info->dim[d];
        dim[d] = x->value;
        if (!x->known && (!x->param.n || bind_eval(f, x->param, &dim[d], &missing)))
            return false;
    }
    *out = plim_meta_make(t->dtype, info->rank, dim);
    return plim_meta_bytes(out, &bytes);
}
