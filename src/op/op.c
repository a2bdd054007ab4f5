/* op.c -- the table of op rules: look-up, schema binding.  The only place that knows the
 * columns of ops.def. */
#include "op/op.h"

#include <stdlib.h>

#include "base/fmt.h"
#include "op/rules.h"

static const plim_op op_rows[] = {
#define PLIM_OP(name, family, run, cost, schema, doc, src)                                    \
    {name, schema, #family, run, cost, doc, src},
#include "op/ops.def"
#undef PLIM_OP
};

uint32_t plim_op_count(void) { return PLIM_COUNT(op_rows); }
const plim_op *plim_op_at(uint32_t i) { return i < PLIM_COUNT(op_rows) ? &op_rows[i] : NULL; }

/* Names of files may; those of rows end there. */
static bool has_nul(plim_str s) { return s.n && memchr(s.p, 0, s.n); }

/* A row's name is "base" or "base.overload". */
static const plim_op *op_search(plim_str base, plim_str overload)
{
    plim_assert(base.n > 0);
    const plim_op *plain = NULL;
    for (size_t i = 0; i < PLIM_COUNT(op_rows); i++) {
        const char *n = op_rows[i].name, *rest = n + base.n;
        if (n[0] != base.p[0] || strncmp(n, base.p, base.n) != 0)
            continue;
        if (*rest == '.' && overload.n && strncmp(rest + 1, overload.p, overload.n) == 0 &&
            rest[1 + overload.n] == 0)
            return &op_rows[i];
        if (!plain && !*rest)
            plain = &op_rows[i];
    }
    return plain;
}

const plim_op *plim_op_find(plim_str base, plim_str overload, bool *inplace)
{
    *inplace = false;
    if (!base.n || has_nul(base) || has_nul(overload))
        return NULL;
    const plim_op *op = op_search(base, overload);
    if (!op && base.n > 1 && base.p[base.n - 1] == '_' && base.p[base.n - 2] != '_') {
        base.n--;
        op = op_search(base, overload);
        *inplace = true;
    } else if (op && base.p[base.n - 1] == '_' && base.p[0] != '_') {
        *inplace = true; /* has an in-place row of its own: fill_, copy_; not __or__ */
    }
    return op;
}

/* ---- schemas: "input, weight, bias=None, stride=1, mode='mean'" ---------- */

static plim_str schema_trim(plim_str s)
{
    while (s.n && (*s.p == ' ' || *s.p == '*'))
        s.p++, s.n--;
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* A default is None, True, False, a number or 'text'. */
static plim_arg schema_default(plim_str d)
{
    plim_arg a = {.kind = PLIM_ARG_NONE};
    char buf[32];
    if (!d.n || plim_str_is(d, "None") || d.n >= sizeof buf)
        return a;
    memcpy(buf, d.p, d.n);
    buf[d.n] = 0;
    if (plim_str_is(d, "True") || plim_str_is(d, "False")) {
        a.kind = PLIM_ARG_INT;
        a.i = d.p[0] == 'T';
    } else if (d.p[0] == '\'') {
        a.kind = PLIM_ARG_STR;
        a.str = (plim_str){d.p + 1, d.n - 2};
    } else if (strpbrk(buf, ".e")) {
        a.kind = PLIM_ARG_FLOAT;
        plim_parse_double(d, &a.f);
    } else {
        a.kind = PLIM_ARG_INT;
        a.i = strtoll(buf, NULL, 10);
    }
    return a;
}

/* Takes the next slot from *rest; false at the end. */
static bool schema_next(plim_str *rest, plim_named_arg *out)
{
    if (!rest->n)
        return false;
    size_t end = 0, eq = SIZE_MAX;
    while (end < rest->n && rest->p[end] != ',') {
        if (rest->p[end] == '=' && eq == SIZE_MAX)
            eq = end;
        end++;
    }
    plim_str item = {rest->p, end};
    out->name = schema_trim((plim_str){item.p, PLIM_MIN(eq, end)});
    out->arg = (plim_arg){.kind = PLIM_ARG_NONE};
    if (eq < end)
        out->arg = schema_default(schema_trim((plim_str){item.p + eq + 1, end - eq - 1}));
    size_t skip = PLIM_MIN(end + 1, rest->n);
    rest->p += skip;
    rest->n -= skip;
    return true;
}

bool plim_schema_read(plim_arena *a, const char *text, plim_schema *out)
{
    plim_named_arg slot[32];
    uint32_t n = 0;
    plim_str rest = plim_str_of(text);
    while (n < PLIM_COUNT(slot) && schema_next(&rest, &slot[n]))
        n++;
    plim_assert(!rest.n);
    plim_named_arg *slots = PLIM_NEW_N(a, plim_named_arg, (uint64_t)n + 1);
    if (!slots)
        return false;
    memcpy(slots, slot, n * sizeof *slots);
    *out = (plim_schema){slots, n};
    return true;
}

/* dropout_ calls its first argument self. */
static bool slot_is(const plim_schema *s, uint32_t slot, plim_str name)
{
    plim_str own = s->slots[slot].name;
    return plim_str_eq(name, own) ||
           (slot == 0 && plim_str_is(own, "input") && plim_str_is(name, "self"));
}

/* The slot of this name; n: there is none.  Most callers give arguments in the order of the schema. */
static uint32_t find_slot(const plim_schema *s, uint32_t after, plim_str name)
{
    for (uint32_t k = after; k < s->n; k++)
        if (slot_is(s, k, name))
            return k;
    for (uint32_t k = 0; k < after; k++)
        if (slot_is(s, k, name))
            return k;
    return s->n;
}

plim_status plim_schema_bind(plim_arena *a, const plim_schema *schema,
                             const plim_named_arg *given, uint32_t n_given, plim_arg **args,
                             plim_str *unknown, plim_err *err)
{
    plim_arg *out = *args = PLIM_NEW_N(a, plim_arg, (uint64_t)schema->n + 1);
    if (!out)
        return plim_oom(err);
    for (uint32_t k = 0; k < schema->n; k++)
        out[k] = schema->slots[k].arg;
    for (uint32_t i = 0, next = 0; i < n_given; i++) {
        uint32_t k = find_slot(schema, next, given[i].name);
        if (k < schema->n) {
            out[k] = given[i].arg;
            next = k + 1;
        } else if (unknown && !unknown->p) {
            *unknown = given[i].name;
        }
    }
    return PLIM_OK;
}

plim_status plim_op_bind_read(plim_arena *a, const plim_op *op, const plim_schema *schema,
                              const plim_named_arg *given, uint32_t n_given, plim_arg **args,
                              plim_err *err)
{
    plim_str unknown = {NULL, 0};
    PLIM_TRY(plim_schema_bind(a, schema, given, n_given, args, &unknown, err));
    if (!unknown.p)
        return PLIM_OK;
    return plim_fail(err, PLIM_EUNSUPPORTED, 0, "op '%s' has no argument '" PLIM_STR_FMT "'",
                     op->name, PLIM_STR_ARG(unknown));
}

plim_status plim_op_bind(plim_arena *a, const plim_op *op, const plim_named_arg *given,
                         uint32_t n_given, const plim_arg **args, uint32_t *n_args,
                         plim_err *err)
{
    plim_assert(op);
    plim_schema schema;
    plim_arg *bound;
    if (!plim_schema_read(a, op->schema, &schema))
        return plim_oom(err);
    PLIM_TRY(plim_op_bind_read(a, op, &schema, given, n_given, &bound, err));
    *args = bound;
    *n_args = schema.n;
    return PLIM_OK;
}
