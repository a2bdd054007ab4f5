/* kernel.h -- CUDA kernels by the names of their ops: kernels.def.
 *
 * A kernel is the part of an op below autograd: it allocates results and temporaries in
 * PyTorch's order.  Op rules call these functions in C; the pretend GPU, which has PyTorch's
 * own dispatcher, calls them by name. */
#ifndef PLIM_KERNEL_H
#define PLIM_KERNEL_H

#include "machine/machine_args.h"
#include "op/op.h"

typedef struct plim_kernel {
    const char *name; /* "addmm", "sum.dim_IntList" */
    bool outputs;     /* allocates its results too; else only scratch, after the results */
    void (*run)(plim_call *c);
    const char *schema;
} plim_kernel;

uint32_t plim_kernel_count(void);
const plim_kernel *plim_kernel_at(uint32_t i);
const plim_kernel *plim_kernel_find(plim_str name); /* NULL: none of that name */

/* Runs k on m.  Arguments that its schema does not name are ignored; value[] holds the tensors
 * that the others refer to.  out[*n_out] receives the results (owned by the caller); it needs
 * room for as many as there are values, and PLIM_KERNEL_OUTS more. */
enum { PLIM_KERNEL_OUTS = 8 };
plim_status plim_kernel_call(plim_machine *m, plim_arena *scratch, const plim_kernel *k,
                             const plim_named_arg *given, uint32_t n_given,
                             const plim_t *value, plim_t *out, uint32_t *n_out, plim_err *err);

#endif
