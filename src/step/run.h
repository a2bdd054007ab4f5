/* run.h -- a training loop while it runs: what step.c and pipeline.c do with the model (run.c). */
#ifndef PLIM_STEP_RUN_H
#define PLIM_STEP_RUN_H

#include "core/region.h"
#include "step/scaler.h"
#include "step/step.h"

enum { PLIM_RUN_INPUTS = 64, PLIM_RUN_OUTPUTS = 4096 };

typedef struct plim_batch {
    plim_t x[PLIM_RUN_INPUTS], y;
} plim_batch;

typedef struct plim_pipeline plim_pipeline; /* pipeline.c */

typedef struct plim_run {
    plim_arena *a;
    const plim_graph *g;
    const plim_step_settings *s;
    plim_machine *m;
    plim_tape *tape;
    plim_t *value; /* by value id */
    plim_release plan;
    plim_regions regions;
    plim_shared shared;
    plim_t *leaf; /* what is trained, on this rank: parameters or shards of them */
    uint32_t n_leaves;
    plim_optim_run optim, ema;
    plim_scaler scaler;
    plim_optim_run *each; /* stepped one by one: of one parameter each; else NULL */
    const plim_loop *loop;
    unsigned keeps;
    /* the values that the loop's variables hold */
    plim_batch *held, *next, *now; /* those on the device, room for the next, the one in use */
    uint32_t n_held;
    plim_t *out, loss; /* out by output of the graph */
    uint32_t n_out;    /* outputs that enter the loss */
    plim_loss_kind loss_kind;
    int step;
    plim_ledger ledger;
    uint32_t loss_at; /* the node from which on the caller computes the loss, once it has bound
                         the outputs; PLIM_NONE: the model does, or there is none */
    plim_t divided[PLIM_RUN_INPUTS +
                   1];       /* of g->part.contexts: parts of inputs, and a copy of one */
    plim_pipeline *pipeline; /* NULL: there is none */
} plim_run;

void plim_run_mark(plim_run *r, plim_phase phase, plim_str op);
void plim_run_release(plim_run *r, plim_t *held, uint32_t n);
/* New batches take the place of the old ones. */
void plim_run_fetch(plim_run *r, uint32_t n);
void plim_run_clear_grad(plim_run *r, plim_t leaf);
void plim_run_zero_grads(plim_run *r);
/* out = model(x) of r->now; of a chunk: its part of it */
void plim_run_forward(plim_run *r);
void plim_run_stage(plim_run *r, const plim_chunk *c, uint32_t first, uint32_t last);
/* Names what a backward pass makes; ud: the run. */
void plim_run_visit(void *ud, uint32_t where, const char *fn);

/* Regions of r->regions run a second time in the backward pass. */
void plim_run_recomputes(plim_run *r);

/* pipeline.c: the forward and backward passes of a stage; room for them, if it is one. */
void plim_run_pipelined(plim_run *r);
void plim_run_pipeline(plim_run *r);

#endif
