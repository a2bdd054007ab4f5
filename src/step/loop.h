/* loop.h -- training loops as data: which values their variables keep alive, and the order in
 * which they do what every loop does.  To add a loop, add a row in loop.c,
 * and one in settings/loops.def, which describes it. */
#ifndef PLIM_LOOP_H
#define PLIM_LOOP_H

#include "base/base.h"

/* Values that stay alive until their variable is assigned in the next iteration. */
enum {
    PLIM_KEEP_INPUTS = 1 << 0,  /* and targets; else they are freed after backward */
    PLIM_KEEP_OUTPUTS = 1 << 1, /* else they are freed once the loss is computed */
    PLIM_KEEP_LOSS = 1 << 2,    /* else it is freed after backward */
};

typedef struct plim_loop {
    const char *name;
    unsigned keeps;
    bool zero_grad_last;    /* after the optimizer's step, not before the forward pass */
    bool fetch_all;         /* all batches of an accumulated step are fetched at once */
    bool clip;              /* clip_grad_norm_, even if the settings do not request it */
    bool no_cache;          /* use_cache=False, whatever the model's configuration says */
    bool local_inputs;      /* freed before backward, but for what autograd saved of them */
    bool labels_are_inputs; /* a language model gets its tokens as labels, too */
} plim_loop;

/* PLIM_EUSAGE lists the names. */
plim_status plim_loop_find(const char *name, const plim_loop **out, plim_err *err);
/* The loop that is written most: if the model computes its own loss, "loss_only". */
const plim_loop *plim_loop_usual(bool own_loss);

/* Parses "outputs,loss", "inputs", "none" into PLIM_KEEP_...; else PLIM_EUSAGE. */
plim_status plim_loop_keeps(const char *list, unsigned *out, plim_err *err);
/* The reverse, in `a`; {NULL, 0}: no memory. */
plim_str plim_loop_keeps_text(plim_arena *a, unsigned keeps);

#endif
