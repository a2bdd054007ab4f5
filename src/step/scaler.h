/* scaler.h -- torch.amp.GradScaler: the loss is multiplied by its scale, gradients are divided by it. */
#ifndef PLIM_STEP_SCALER_H
#define PLIM_STEP_SCALER_H

#include "machine/machine.h"
#include "optim/optim.h"

typedef struct plim_scaler {
    bool on;
    bool unscaled; /* in this step */
    plim_machine *m;
    plim_t scale, growth; /* from the first loss on */
    plim_t found;         /* whether a gradient is infinite, until the step ends */
    plim_t of_step[2];    /* what a fused optimizer is given: the scale and the same again */
} plim_scaler;

/* scaler.scale(loss), owned; takes the loss. */
plim_t plim_scaler_scale(plim_scaler *s, plim_t loss);
/* scaler.unscale_(optimizer).  PLIM_EUSAGE for gradients in fp16 and bf16, as in PyTorch. */
void plim_scaler_unscale(plim_scaler *s, plim_optim_run *o);
/* scaler.step(optimizer) up to the optimizer's own step, and scaler.update() after it. */
void plim_scaler_begin_step(plim_scaler *s, plim_optim_run *o);
void plim_scaler_update(plim_scaler *s);

#endif
