/* machine_args.h -- what a rule is called with: the call, and its arguments by schema slot. */
#ifndef PLIM_MACHINE_ARGS_H
#define PLIM_MACHINE_ARGS_H

#include "machine/machine.h"

typedef struct plim_call {
    plim_machine *m;
    const plim_node *node; /* NULL for a kernel */
    const plim_arg *args;
    uint32_t n_args;
    const plim_t *value; /* tensor handles by value id: args refer to these */
    plim_t *out;         /* [n_out]: the rule puts its outputs here (owned) */
    uint32_t n_out;      /* of an op; a kernel is given room and sets the count */
    bool inplace;
} plim_call;

/* Arguments by slot; for a missing one 0 or the given default is returned. */
plim_t plim_arg_tensor(const plim_call *c, uint32_t slot); /* borrowed */
uint32_t plim_arg_tensors(const plim_call *c, uint32_t slot, plim_t *out, uint32_t max);
uint32_t plim_arg_count(const plim_call *c, uint32_t slot);         /* of a list; 0: no list */
plim_t plim_arg_nth(const plim_call *c, uint32_t slot, uint32_t i); /* of a list of tensors */
/* A list of bools such as output_mask; all true if it is not given. */
void plim_arg_mask(const plim_call *c, uint32_t slot, bool *out, uint32_t n);
bool plim_arg_given(const plim_call *c, uint32_t slot);
/* Integers are between -PLIM_ARG_MOST and PLIM_ARG_MOST: what is beyond, such as "to the end", becomes the
 * nearer of the two. */
#define PLIM_ARG_MOST ((int64_t)1 << 60)
int64_t plim_arg_int(const plim_call *c, uint32_t slot, int64_t def);
plim_dtype plim_arg_dtype(const plim_call *c, uint32_t slot, plim_dtype def);
double plim_arg_float(const plim_call *c, uint32_t slot, double def);
/* At most max ints; a single int is repeated `want` times (stride=2 -> 2,2). */
uint32_t plim_arg_ints(const plim_call *c, uint32_t slot, int64_t *out, uint32_t max,
                       uint32_t want);
plim_str plim_arg_string(const plim_call *c, uint32_t slot);

#endif
