/* optim.c -- see optim.h. */
#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"
#include "optim/part.h"

static const plim_optim optim_rows[] = {
#define PLIM_OPTIM(name, step, flags, impls, defaults, since, doc, src)                       \
    {name, step, flags, impls, defaults, since, doc, src},
#include "optim/optims.def"
#undef PLIM_OPTIM
};

static const plim_optim ema_rows[] = {
#define PLIM_EMA(name, step, impls, defaults, doc, src)                                       \
    {name, step, PLIM_OPTIM_AT_START | PLIM_OPTIM_SPARSE, impls, defaults, "", doc, src},
#include "optim/emas.def"
#undef PLIM_EMA
};

uint32_t plim_optim_count(void) { return PLIM_COUNT(optim_rows); }
const plim_optim *plim_optim_at(uint32_t i)
{
    return i < PLIM_COUNT(optim_rows) ? &optim_rows[i] : NULL;
}

uint32_t plim_ema_count(void) { return PLIM_COUNT(ema_rows); }
const plim_optim *plim_ema_at(uint32_t i)
{
    return i < PLIM_COUNT(ema_rows) ? &ema_rows[i] : NULL;
}

/* ---- "name,key=value,..." ----------------------------------------------------- */

/* Its index among the options, or n_options. */
static uint32_t optim_place(const plim_optim_spec *spec, plim_str name)
{
    uint32_t i = 0;
    while (i < spec->n_options && !plim_str_eq(spec->option[i].name, name))
        i++;
    return i;
}

static void optim_defaults(plim_optim_spec *s)
{
    plim_str rest = plim_str_of(s->optim->defaults), key, value;
    while (plim_item_next(&rest, &key, &value)) {
        plim_assert(s->n_options < PLIM_OPTIM_OPTIONS);
        s->option[s->n_options].name = key;
        plim_item_number(value, &s->option[s->n_options++].value);
    }
}

/* `what` is "optimizer" or "ema". */
static plim_status optim_impl(const char *what, const plim_optim *o, plim_str v,
                              plim_optim_impl *out, plim_err *err)
{
    static const char *const names[] = {"default", "foreach", "forloop", "fused"};
    plim_str rest = plim_str_of(o->impls), key, value;
    while (plim_item_next(&rest, &key, &value))
        for (size_t i = 0; plim_str_eq(key, v) && i < PLIM_COUNT(names); i++)
            if (plim_str_is(v, names[i])) {
                *out = (plim_optim_impl)i;
                return PLIM_OK;
            }
    return plim_fail(err, PLIM_EUSAGE, 0, "%s '%s' has no impl '" PLIM_STR_FMT "': it has %s",
                     what, o->name, PLIM_STR_ARG(v), o->impls);
}

static plim_status optim_in_backward(plim_optim_spec *s, plim_str v, plim_err *err)
{
    if (v.n && !plim_str_is(v, "1") && !plim_str_is(v, "0"))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "optimizer option 'in_backward' is 0 or 1, not '" PLIM_STR_FMT "'",
                         PLIM_STR_ARG(v));
    s->in_backward = !plim_str_is(v, "0");
    if (s->in_backward && s->optim->flags & PLIM_OPTIM_RUNS_MODEL)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "optimizer '%s' runs the model itself, so it cannot step in backward",
                         s->optim->name);
    return PLIM_OK;
}

/* Parses the items after the name, `rest`, for the row s->optim. */
static plim_status optim_options(const char *what, plim_str rest, plim_optim_spec *s,
                                 plim_err *err)
{
    plim_str key, value;
    plim_status st = PLIM_OK;
    optim_defaults(s);
    while (!st && plim_item_next(&rest, &key, &value)) {
        uint32_t i = optim_place(s, key);
        if (plim_str_is(key, "impl"))
            st = optim_impl(what, s->optim, value, &s->impl, err);
        else if (plim_str_is(key, "in_backward") && !strcmp(what, "optimizer"))
            st = optim_in_backward(s, value, err);
        else if (i == s->n_options)
            st = plim_fail(err, PLIM_EUSAGE, 0,
                           "%s '%s' has no option '" PLIM_STR_FMT "': it has %s, impl%s", what,
                           s->optim->name, PLIM_STR_ARG(key), s->optim->defaults,
                           strcmp(what, "optimizer") ? "" : ", in_backward");
        else if (!plim_item_number(value, &s->option[i].value))
            st = plim_fail(err, PLIM_EUSAGE, 0,
                           "%s option '" PLIM_STR_FMT "' is not a number: '" PLIM_STR_FMT "'",
                           what, PLIM_STR_ARG(key), PLIM_STR_ARG(value));
    }
    return st;
}

/* Upper and lower case, '-' and '_' do not matter: "AdamW", "sparse-adam". */
static bool optim_called(const char *row, plim_str name)
{
    size_t i = 0;
    for (;; row++) {
        while (i < name.n && (name.p[i] == '-' || name.p[i] == '_'))
            i++;
        while (*row == '_')
            row++;
        if (!*row || i == name.n)
            return !*row && i == name.n;
        if (*row != plim_lower(name.p[i++]))
            return false;
    }
}

/* The row with that name, or NULL. */
static const plim_optim *optim_find(const plim_optim *rows, size_t n, plim_str name)
{
    for (size_t i = 0; i < n; i++)
        if (optim_called(rows[i].name, name))
            return &rows[i];
    return NULL;
}

/* No row has the name: lists those that have it after their library's, as bnb_adamw8bit has
 * "adamw8bit". */
static plim_status optim_unknown(plim_str name, plim_err *err)
{
    char list[128] = "";
    size_t at = 0;
    for (size_t i = 0; i < PLIM_COUNT(optim_rows) && at < sizeof list; i++) {
        const char *bar = strchr(optim_rows[i].name, '_');
        if (bar && optim_called(bar + 1, name))
            at += (size_t)snprintf(list + at, sizeof list - at, "%s'%s'",
                                   at ? " or " : "; did you mean ", optim_rows[i].name);
    }
    return plim_fail(err, PLIM_EUSAGE, 0, "unknown optimizer '" PLIM_STR_FMT "'%s%s",
                     PLIM_STR_CUT(name), list, at ? "?" : ": see plimsoll optimizers");
}

plim_status plim_optim_parse(plim_str text, plim_optim_spec *out, plim_err *err)
{
    plim_str rest = text, name = {"", 0}, value;
    plim_optim_spec s = {.text = text};
    plim_item_next(&rest, &name, &value);
    s.optim = optim_find(optim_rows, PLIM_COUNT(optim_rows), name);
    if (!s.optim)
        return optim_unknown(name, err);
    plim_status st = optim_options("optimizer", rest, &s, err);
    if (!st)
        *out = s;
    return st;
}

plim_status plim_ema_parse(plim_str text, plim_optim_spec *out, plim_err *err)
{
    plim_str rest = text, name = {"", 0}, value;
    plim_optim_spec s = {.text = text};
    char known[128] = "none";
    plim_item_next(&rest, &name, &value);
    s.optim = optim_find(ema_rows, PLIM_COUNT(ema_rows), name);
    for (size_t i = 0; i < PLIM_COUNT(ema_rows); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), ", %s",
                 ema_rows[i].name);
    if (!s.optim && !plim_str_is(text, "none"))
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown ema '" PLIM_STR_FMT "': known are %s",
                         PLIM_STR_ARG(name), known);
    plim_status st = s.optim ? optim_options("ema", rest, &s, err) : PLIM_OK;
    if (!st)
        *out = s;
    return st;
}

/* ---- entry -------------------------------------------------------------------------------------- */

/* The first step creates what later steps reuse. */
int plim_optim_steady_steps(const plim_optim_spec *spec)
{
    plim_assert(spec->optim);
    enum { USUAL = 2 };
    bool grows = spec->optim->flags & PLIM_OPTIM_RUNS_MODEL;
    return grows ? PLIM_MAX(plim_optim_lbfgs_steps(spec), USUAL) : USUAL;
}

/* Whether a feature named in a row's `since` is used. */
static bool asked_for(const plim_optim_spec *s, plim_str name)
{
    double v = plim_optim_value(s, name);
    return plim_str_is(name, "all") ||
           (plim_str_is(name, "fused") && s->impl == PLIM_IMPL_FUSED) || v < 0 || v > 0;
}

static void check_since(plim_optim_run *r)
{
    const char *name = r->spec->optim->name;
    plim_str rest = plim_str_of(r->spec->optim->since), key, value;
    while (plim_item_next(&rest, &key, &value)) {
        double since = 0;
        plim_item_number(value, &since);
        bool all = plim_str_is(key, "all");
        if (r->torch->version < (int)since && asked_for(r->spec, key))
            plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                        "PyTorch has no '%s%s" PLIM_STR_FMT "' on CUDA before %d.%d", name,
                        all ? "" : ",", PLIM_STR_ARG(all ? PLIM_STR("") : key),
                        (int)since / 100, (int)since % 100);
    }
}

void plim_optim_start(plim_optim_run *r)
{
    plim_assert(!r->starting);
    check_since(r);
    if (!(r->spec->optim->flags & PLIM_OPTIM_AT_START))
        return;
    r->starting = true;
    r->spec->optim->step(r);
    r->starting = false;
}

/* PyTorch's optimizers refuse gradients of the wrong layout too; an average of the model
 * ignores gradients, so it accepts both. */
static void check_layouts(plim_optim_run *r)
{
    const plim_optim *o = r->spec->optim;
    bool takes = o->flags & PLIM_OPTIM_SPARSE && r->spec->impl != PLIM_IMPL_FUSED,
         only = o->flags & PLIM_OPTIM_NO_DENSE;
    const plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i)) && !plim_m_bad(r->m);) {
        bool sparse = plim_optim_sparse(r, p);
        if (sparse && !takes)
            plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                        "'%s'%s does not support sparse gradients, and '" PLIM_STR_FMT
                        "' has one: sgd, adagrad and sparse_adam do",
                        o->name, r->spec->impl == PLIM_IMPL_FUSED ? ", fused," : "",
                        PLIM_STR_ARG(p->name));
        if (!sparse && only)
            plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                        "'%s' does not support dense gradients, and '" PLIM_STR_FMT
                        "' has one: use adam instead",
                        o->name, PLIM_STR_ARG(p->name));
        if (sparse && plim_optim_on(r, "weight_decay"))
            plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                        "weight_decay is not compatible with the sparse gradient of "
                        "'" PLIM_STR_FMT "'",
                        PLIM_STR_ARG(p->name));
        if (sparse && plim_optim_on(r, "momentum"))
            plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                        "the momentum of the sparse gradient of '" PLIM_STR_FMT
                        "' grows with every step and has no steady size",
                        PLIM_STR_ARG(p->name));
    }
}

void plim_optim_step(plim_optim_run *r)
{
    plim_assert(!r->starting);
    r->taken++;
    check_layouts(r);
    r->spec->optim->step(r);
}
