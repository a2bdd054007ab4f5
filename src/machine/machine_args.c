/* machine_args.c -- see machine_args.h. */
#include "machine/machine_args.h"

static const plim_arg *arg_at(const plim_call *c, uint32_t slot)
{
    static const plim_arg none = {.kind = PLIM_ARG_NONE};
    return slot < c->n_args ? &c->args[slot] : &none;
}

bool plim_arg_given(const plim_call *c, uint32_t slot)
{
    return arg_at(c, slot)->kind != PLIM_ARG_NONE;
}

plim_t plim_arg_tensor(const plim_call *c, uint32_t slot)
{
    const plim_arg *a = arg_at(c, slot);
    plim_assert(a->kind != PLIM_ARG_VALUE || a->id != PLIM_NONE);
    return a->kind == PLIM_ARG_VALUE ? c->value[a->id] : 0;
}

uint32_t plim_arg_tensors(const plim_call *c, uint32_t slot, plim_t *out, uint32_t max)
{
    plim_assert(out && max);
    const plim_arg *a = arg_at(c, slot);
    if (a->kind == PLIM_ARG_VALUE && max) {
        out[0] = c->value[a->id];
        return 1;
    }
    if (a->kind != PLIM_ARG_VALUES)
        return 0;
    if (a->n > max) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "a list has %u tensors, the limit is %u",
                    (unsigned)a->n, (unsigned)max);
        return 0;
    }
    for (uint32_t i = 0; i < a->n; i++)
        out[i] = a->ids[i] == PLIM_NONE ? 0 : c->value[a->ids[i]];
    return a->n;
}

uint32_t plim_arg_count(const plim_call *c, uint32_t slot)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_VALUES || a->kind == PLIM_ARG_INTS ? a->n : 0;
}

plim_t plim_arg_nth(const plim_call *c, uint32_t slot, uint32_t i)
{
    const plim_arg *a = arg_at(c, slot);
    bool there = a->kind == PLIM_ARG_VALUES && i < a->n && a->ids[i] != PLIM_NONE;
    return there ? c->value[a->ids[i]] : 0;
}

void plim_arg_mask(const plim_call *c, uint32_t slot, bool *out, uint32_t n)
{
    const plim_arg *a = arg_at(c, slot);
    bool given = a->kind == PLIM_ARG_INTS;
    for (uint32_t i = 0; i < n; i++)
        out[i] = given ? i < a->n && a->ints[i] : true;
}

/* No size is as large, and rules may add, subtract and negate without overflow. */
static int64_t clamp_int(int64_t v)
{
    return PLIM_MIN(PLIM_MAX(v, -PLIM_ARG_MOST), PLIM_ARG_MOST);
}

static int64_t int_of_float(double f)
{
    const double most = (double)PLIM_ARG_MOST;
    return f >= most    ? PLIM_ARG_MOST
           : f <= -most ? -PLIM_ARG_MOST
           : f > -most  ? (int64_t)f
                        : 0;
}

int64_t plim_arg_int(const plim_call *c, uint32_t slot, int64_t def)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_INT     ? clamp_int(a->i)
           : a->kind == PLIM_ARG_FLOAT ? int_of_float(a->f)
                                       : def;
}

plim_dtype plim_arg_dtype(const plim_call *c, uint32_t slot, plim_dtype def)
{
    int64_t t = plim_arg_int(c, slot, def);
    return t >= 0 && t < PLIM_DTYPE_COUNT ? (plim_dtype)t : def;
}

double plim_arg_float(const plim_call *c, uint32_t slot, double def)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_FLOAT ? a->f : a->kind == PLIM_ARG_INT ? (double)a->i : def;
}

uint32_t plim_arg_ints(const plim_call *c, uint32_t slot, int64_t *out, uint32_t max,
                       uint32_t want)
{
    plim_assert(out && max);
    const plim_arg *a = arg_at(c, slot);
    if (a->kind == PLIM_ARG_INT || (a->kind == PLIM_ARG_INTS && a->n == 1 && want > 1)) {
        int64_t v = clamp_int(a->kind == PLIM_ARG_INT ? a->i : a->ints[0]);
        uint32_t n = PLIM_MIN(PLIM_MAX(want, 1), max);
        for (uint32_t i = 0; i < n; i++)
            out[i] = v;
        return n;
    }
    if (a->kind != PLIM_ARG_INTS)
        return 0;
    if (a->n > max) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "a list has %u integers, the limit is %u",
                    (unsigned)a->n, (unsigned)max);
        return 0;
    }
    for (uint32_t i = 0; i < a->n; i++)
        out[i] = clamp_int(a->ints[i]);
    return a->n;
}

plim_str plim_arg_string(const plim_call *c, uint32_t slot)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_STR ? a->str : (plim_str){NULL, 0};
}
