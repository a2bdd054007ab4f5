/* loop.h -- training loops as data: what their names hold on to, and in which order
 * they do what every loop does.  Add a loop: a row in loop.c. */
#ifndef PLIM_LOOP_H
#define PLIM_LOOP_H

#include "base/base.h"

/* What a loop's names hold until they are bound to the next one. */
enum {
    PLIM_KEEP_INPUTS = 1 << 0,  /* and targets; else they go when backward is over */
    PLIM_KEEP_OUTPUTS = 1 << 1, /* else they go when the loss is there */
    PLIM_KEEP_LOSS = 1 << 2,    /* else it goes when backward is over */
};

typedef struct plim_loop {
    const char *name;
    unsigned keeps;
    bool zero_grad_last; /* after the optimizer's step, not before the forward pass */
    bool fetch_all;      /* the batches of an accumulated step come all at once */
    bool clip;           /* clip_grad_norm_, whether asked for or not */
    const char *doc, *src;
} plim_loop;

/* NULL: the one that people write, "typical".  PLIM_EUSAGE lists the names. */
plim_status plim_loop_find(const char *name, const plim_loop **out, plim_err *err);

/* "outputs,loss", "inputs", "none" into PLIM_KEEP_...  PLIM_EUSAGE. */
plim_status plim_loop_keeps(const char *list, unsigned *out, plim_err *err);
/* And back, in `a`; {NULL, 0}: no memory. */
plim_str plim_loop_keeps_text(plim_arena *a, unsigned keeps);

#endif
