/* kernel.c -- the table of kernels: see kernel.h. */
#include "op/kernel.h"

#include "op/rules.h"

enum { SCRATCH, OUTPUTS };

static const plim_kernel kernel_rows[] = {
#define PLIM_KERNEL(name, requests, run, schema)                                              \
    {name, requests == OUTPUTS, plim_kernel_##run, schema},
#include "op/kernels.def"
#undef PLIM_KERNEL
};

uint32_t plim_kernel_count(void) { return PLIM_COUNT(kernel_rows); }
const plim_kernel *plim_kernel_at(uint32_t i)
{
    return i < PLIM_COUNT(kernel_rows) ? &kernel_rows[i] : NULL;
}

const plim_kernel *plim_kernel_find(plim_str name)
{
    for (size_t i = 0; i < PLIM_COUNT(kernel_rows); i++)
        if (plim_str_is(name, kernel_rows[i].name))
            return &kernel_rows[i];
    return NULL;
}

plim_status plim_kernel_call(plim_machine *m, plim_arena *scratch, const plim_kernel *k,
                             const plim_named_arg *given, uint32_t n_given,
                             const plim_t *value, plim_t *out, uint32_t *n_out, plim_err *err)
{
    plim_call c = {.m = m, .value = value, .out = out, .n_out = *n_out};
    plim_schema schema;
    plim_arg *args;
    if (!plim_schema_read(scratch, k->schema, &schema))
        return plim_oom(err);
    PLIM_TRY(plim_schema_bind(scratch, &schema, given, n_given, &args, NULL, err));
    c.args = args;
    c.n_args = schema.n;
    memset(out, 0, *n_out * sizeof *out);
    if (!k->outputs)
        c.n_out = 0;
    k->run(&c);
    plim_assert(c.n_out <= *n_out);
    *n_out = plim_m_bad(m) ? 0 : c.n_out;
    return plim_m_status(m);
}
