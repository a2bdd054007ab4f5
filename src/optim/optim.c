/* optim.c -- see optim.h. */
#include "optim/optim.h"

#include <stdlib.h>

#define PLIM_OPTIM(name, step, at_start, defaults, doc, src)                                  \
    static void step(plim_optim_run *r);
#include "optim/optims.def"
#undef PLIM_OPTIM

static const plim_optim optim_rows[] = {
#define PLIM_OPTIM(name, step, at_start, defaults, doc, src)                                  \
    {name, step, at_start, defaults, doc, src},
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

static plim_status optim_impl(plim_str v, plim_optim_impl *out, plim_err *err)
{
    static const char *const names[] = {"default", "foreach", "forloop", "fused"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++)
        if (plim_str_is(v, names[i])) {
            *out = (plim_optim_impl)i;
            return PLIM_OK;
        }
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "unknown optimizer impl '" PLIM_STR_FMT
                     "': one of foreach, forloop, fused",
                     PLIM_STR_ARG(v));
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
    while (optim_item(&rest, &key, &value)) {
        if (plim_str_is(key, "impl")) {
            plim_status st = optim_impl(value, &s.impl, err);
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

/* ---- pieces that the steps are made of -------------------------------------------- */

static bool on(const plim_optim_run *r, const char *option)
{
    double v = plim_optim_option(r->spec, option);
    return v < 0 || v > 0;
}

static plim_optim_impl impl_of(const plim_optim_run *r)
{
    if (r->spec->impl != PLIM_IMPL_DEFAULT)
        return r->spec->impl;
    return r->torch->foreach_default ? PLIM_IMPL_FOREACH : PLIM_IMPL_FORLOOP;
}

/* A tensor like the parameter (zeros_like, clone: strides preserved). */
static plim_t like_param(plim_optim_run *r, const plim_optim_param *p, const char *role,
                         plim_category c)
{
    plim_m_place(r->m, PLIM_NONE, p->name, role, c);
    return plim_m_empty_like(r->m, p->leaf);
}

static void make_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot, const char *role)
{
    if (!p->state[slot])
        p->state[slot] = like_param(r, p, role, PLIM_CAT_OPTIMIZER_STATE);
}

/* fused and capturable keep their step count on the card: 4 bytes a parameter */
static void make_step_count(plim_optim_run *r, plim_optim_param *p, uint32_t slot)
{
    if (p->state[slot] || (impl_of(r) != PLIM_IMPL_FUSED && !on(r, "capturable")))
        return;
    plim_m_place(r->m, PLIM_NONE, p->name, "step", PLIM_CAT_OPTIMIZER_STATE);
    p->state[slot] = plim_m_empty_contig(r->m, PLIM_F32, 0, NULL);
}

static bool has_grad(const plim_optim_run *r, uint32_t i)
{
    return plim_m_grad(r->m, r->params[i].leaf) != 0;
}

/* A foreach list: one temporary a parameter, freed last first as CPython does. */
static void list_make(plim_optim_run *r, int slot, const char *role)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (has_grad(r, i))
            r->params[i].tmp[slot] = like_param(r, &r->params[i], role, PLIM_CAT_TEMPORARY);
}
static void list_free(plim_optim_run *r, int slot)
{
    for (uint32_t i = r->n; i-- > 0;) {
        plim_m_drop(r->m, r->params[i].tmp[slot]);
        r->params[i].tmp[slot] = 0;
    }
}

/* A Python local of the for-loop path: the new value exists before the old one
 * goes. */
static void local_set(plim_optim_run *r, plim_t *local, plim_t value)
{
    plim_m_drop(r->m, *local);
    *local = value;
}

/* grad = grads[i], which lets the last parameter's temporary go; then
 * grad = -grad and grad = grad.add(param), as far as asked for.  sgd and adam
 * write -grads[i] in the first place: there the last one goes later. */
static void local_grad(plim_optim_run *r, const plim_optim_param *p, bool negated_first,
                       bool decay, plim_t *grad)
{
    bool maximize = on(r, "maximize");
    if (!maximize || !negated_first)
        local_set(r, grad, 0);
    if (maximize)
        local_set(r, grad, like_param(r, p, "negated grad", PLIM_CAT_TEMPORARY));
    if (decay)
        local_set(r, grad, like_param(r, p, "grad + weight decay", PLIM_CAT_TEMPORARY));
}

/* ---- sgd --------------------------------------------------------------------------------- */

static void sgd_foreach(plim_optim_run *r)
{
    bool copies = on(r, "weight_decay") || on(r, "maximize");
    if (copies)
        list_make(r, 0, "grad + weight decay");
    if (on(r, "momentum"))
        for (uint32_t i = 0; i < r->n; i++)
            if (has_grad(r, i))
                make_state(r, &r->params[i], 0, "momentum_buffer");
    list_free(r, 0); /* with momentum: when grads is rebound to the buffers */
}

static void sgd_forloop(plim_optim_run *r)
{
    plim_t grad = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        plim_optim_param *p = &r->params[i];
        if (!has_grad(r, i))
            continue;
        local_grad(r, p, true, on(r, "weight_decay"), &grad);
        if (on(r, "momentum"))
            make_state(r, p, 0, "momentum_buffer");
        if (on(r, "momentum")) { /* grad = buf, or grad.add(buf) for nesterov */
            plim_t next =
                on(r, "nesterov") ? like_param(r, p, "nesterov", PLIM_CAT_TEMPORARY) : 0;
            local_set(r, &grad, next);
        }
    }
    plim_m_drop(r->m, grad);
}

static void optim_sgd(plim_optim_run *r)
{
    if (impl_of(r) == PLIM_IMPL_FOREACH) {
        sgd_foreach(r);
    } else if (impl_of(r) == PLIM_IMPL_FORLOOP) {
        sgd_forloop(r);
    } else if (on(r, "momentum")) {
        for (uint32_t i = 0; i < r->n; i++)
            if (has_grad(r, i))
                make_state(r, &r->params[i], 0, "momentum_buffer");
    }
}

/* ---- adam, adamw ---------------------------------------------------------------------------- */

static void adam_state(plim_optim_run *r)
{
    bool amsgrad = on(r, "amsgrad");
    for (uint32_t i = 0; i < r->n; i++) {
        plim_optim_param *p = &r->params[i];
        if (!has_grad(r, i))
            continue;
        make_step_count(r, p, 3);
        make_state(r, p, 0, "exp_avg");
        make_state(r, p, 1, "exp_avg_sq");
        if (amsgrad)
            make_state(r, p, 2, "max_exp_avg_sq");
    }
}

static void adam_forloop(plim_optim_run *r, bool decay)
{
    plim_t grad = 0, denom = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        plim_optim_param *p = &r->params[i];
        if (!has_grad(r, i))
            continue;
        local_grad(r, p, true, decay, &grad);
        plim_t root = like_param(r, p, "sqrt", PLIM_CAT_TEMPORARY);
        plim_t next = like_param(r, p, "denom", PLIM_CAT_TEMPORARY);
        plim_m_drop(r->m, root);
        local_set(r, &denom, next);
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, denom);
}

static void adam(plim_optim_run *r, bool decoupled)
{
    bool decay = !decoupled && on(r, "weight_decay");
    adam_state(r);
    if (impl_of(r) == PLIM_IMPL_FORLOOP) {
        adam_forloop(r, decay);
    } else if (impl_of(r) == PLIM_IMPL_FOREACH) {
        if (decay || on(r, "maximize"))
            list_make(r, 0, "grad + weight decay");
        list_free(r, 0); /* del device_grads, before the square roots */
        list_make(r, 0, "sqrt");
        if (r->torch->adam_lists > 1)
            list_make(r, 1, "denom");
        list_free(r, 1);
        list_free(r, 0);
    }
}
static void optim_adam(plim_optim_run *r) { adam(r, false); }
static void optim_adamw(plim_optim_run *r) { adam(r, true); }

/* ---- rmsprop, adagrad ------------------------------------------------------------------------ */

/* One temporary a parameter for the root, kept until the next one exists. */
static void root_forloop(plim_optim_run *r)
{
    plim_t grad = 0, root = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        plim_optim_param *p = &r->params[i];
        if (!has_grad(r, i))
            continue;
        local_grad(r, p, false, on(r, "weight_decay"), &grad);
        local_set(r, &root, like_param(r, p, "sqrt", PLIM_CAT_TEMPORARY));
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, root);
}

static void optim_rmsprop(plim_optim_run *r)
{
    bool copies = on(r, "weight_decay") || on(r, "maximize");
    for (uint32_t i = 0; i < r->n; i++) {
        if (!has_grad(r, i))
            continue;
        make_state(r, &r->params[i], 0, "square_avg");
        if (on(r, "momentum"))
            make_state(r, &r->params[i], 1, "momentum_buffer");
        if (on(r, "centered"))
            make_state(r, &r->params[i], 2, "grad_avg");
    }
    if (impl_of(r) == PLIM_IMPL_FORLOOP) {
        root_forloop(r);
        return;
    }
    if (copies)
        list_make(r, 1, "grad + weight decay");
    list_make(r, 0, "sqrt");
    list_free(r, 0);
    list_free(r, 1);
}

/* The numerator reuses the weight decay copy where there is one. */
static void optim_adagrad(plim_optim_run *r)
{
    bool copies = on(r, "weight_decay") || on(r, "maximize");
    if (r->starting) {
        for (uint32_t i = 0; i < r->n; i++)
            make_state(r, &r->params[i], 0, "sum");
        return;
    }
    if (impl_of(r) == PLIM_IMPL_FUSED)
        return;
    if (impl_of(r) == PLIM_IMPL_FORLOOP) {
        root_forloop(r);
        return;
    }
    if (copies)
        list_make(r, 1, "numerator");
    list_make(r, 0, "std");
    if (!copies)
        list_make(r, 1, "numerator");
    list_free(r, 1);
    list_free(r, 0);
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

void plim_optim_step(plim_optim_run *r) { r->spec->optim->step(r); }
