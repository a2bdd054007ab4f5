/* optim.c -- see optim.h. */
#include <stdlib.h>

#include "optim/part.h"

static const plim_optim optim_rows[] = {
#define PLIM_OPTIM(name, step, at_start, impls, defaults, doc, src)                           \
    {name, step, at_start, impls, defaults, doc, src},
#include "optim/optims.def"
#undef PLIM_OPTIM
};

uint32_t plim_optim_count(void) { return PLIM_COUNT(optim_rows); }
const plim_optim *plim_optim_at(uint32_t i)
{
    return i < PLIM_COUNT(optim_rows) ? &optim_rows[i] : NULL;
}

/* ---- "name,key=value,..." ----------------------------------------------------- */

static plim_str optim_trim(plim_str s)
{
    while (s.n && *s.p == ' ')
        s.p++, s.n--;
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* Takes the next comma-separated item; splits it at '='. */
static bool optim_item(plim_str *rest, plim_str *key, plim_str *value)
{
    if (!rest->n)
        return false;
    const char *comma = memchr(rest->p, ',', rest->n);
    size_t end = comma ? (size_t)(comma - rest->p) : rest->n;
    plim_str item = {rest->p, end};
    const char *eq = memchr(item.p, '=', item.n);
    *key = optim_trim(eq ? (plim_str){item.p, (size_t)(eq - item.p)} : item);
    *value = eq ? optim_trim((plim_str){eq + 1, item.n - (size_t)(eq - item.p) - 1})
                : (plim_str){NULL, 0};
    size_t skip = PLIM_MIN(end + 1, rest->n);
    rest->p += skip;
    rest->n -= skip;
    return true;
}

/* "0.9", "True", "false"; false if it is no number. */
static bool optim_number(plim_str s, double *out)
{
    char buf[32], *end;
    if (!s.n || s.n >= sizeof buf)
        return false;
    memcpy(buf, s.p, s.n);
    buf[s.n] = 0;
    if (plim_str_is(s, "True") || plim_str_is(s, "true") || plim_str_is(s, "False") ||
        plim_str_is(s, "false")) {
        *out = s.p[0] == 'T' || s.p[0] == 't';
        return true;
    }
    *out = strtod(buf, &end);
    return *end == 0;
}

static bool optim_lookup(plim_str list, plim_str name, plim_str *value)
{
    plim_str key, v;
    bool found = false;
    while (optim_item(&list, &key, &v))
        if (plim_str_eq(key, name)) {
            *value = v;
            found = true; /* the last one given counts */
        }
    return found;
}

double plim_optim_option(const plim_optim_spec *spec, const char *name)
{
    plim_str v;
    double d = 0;
    if (optim_lookup(spec->text, plim_str_of(name), &v) ||
        optim_lookup(plim_str_of(spec->optim->defaults), plim_str_of(name), &v))
        optim_number(v, &d);
    return d;
}

static plim_status optim_impl(const plim_optim *o, plim_str v, plim_optim_impl *out,
                              plim_err *err)
{
    static const char *const names[] = {"default", "foreach", "forloop", "fused"};
    plim_str rest = plim_str_of(o->impls), key, value;
    while (optim_item(&rest, &key, &value))
        for (size_t i = 0; plim_str_eq(key, v) && i < PLIM_COUNT(names); i++)
            if (plim_str_is(v, names[i])) {
                *out = (plim_optim_impl)i;
                return PLIM_OK;
            }
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "optimizer '%s' has no impl '" PLIM_STR_FMT "': it has %s", o->name,
                     PLIM_STR_ARG(v), o->impls);
}

plim_status plim_optim_parse(plim_str text, plim_optim_spec *out, plim_err *err)
{
    plim_str rest = text, key = {"", 0}, value, known;
    plim_optim_spec s = {.text = text};
    double d;
    optim_item(&rest, &key, &value);
    for (size_t i = 0; i < PLIM_COUNT(optim_rows); i++)
        if (plim_str_is(key, optim_rows[i].name))
            s.optim = &optim_rows[i];
    if (!s.optim)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "unknown optimizer '" PLIM_STR_FMT "': see plimsoll optimizers",
                         PLIM_STR_ARG(key));
    if (!s.optim->step)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "optimizer '%s' cannot be run: %s",
                         s.optim->name, s.optim->doc);
    while (optim_item(&rest, &key, &value)) {
        if (plim_str_is(key, "impl")) {
            plim_status st = optim_impl(s.optim, value, &s.impl, err);
            if (st)
                return st;
            continue;
        }
        if (!optim_lookup(plim_str_of(s.optim->defaults), key, &known))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "optimizer '%s' has no option '" PLIM_STR_FMT
                             "': it has %s, impl",
                             s.optim->name, PLIM_STR_ARG(key), s.optim->defaults);
        if (!optim_number(value, &d))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "optimizer option '" PLIM_STR_FMT
                             "' is not a number: '" PLIM_STR_FMT "'",
                             PLIM_STR_ARG(key), PLIM_STR_ARG(value));
    }
    *out = s;
    return PLIM_OK;
}

/* ---- entry -------------------------------------------------------------------------------------- */

void plim_optim_start(plim_optim_run *r)
{
    if (!r->spec->optim->at_start)
        return;
    r->starting = true;
    r->spec->optim->step(r);
    r->starting = false;
}

void plim_optim_step(plim_optim_run *r)
{
    r->taken++;
    r->spec->optim->step(r);
}
