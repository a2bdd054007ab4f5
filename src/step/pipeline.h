/* pipeline.h -- the stages of a pipeline that a rank has, while they run: what the files pipeline*.c
 * share.  Included by them, and by no other. */
#ifndef PLIM_STEP_PIPELINE_H
#define PLIM_STEP_PIPELINE_H

#include "step/run.h"

/* A micro-batch in a stage. */
typedef struct plim_flight {
    plim_t x[PLIM_RUN_INPUTS];   /* views of the batch, or what is received; owned */
    plim_t activation, gradient; /* what is received, owned; 0: nothing is */
    plim_t out, loss;            /* owned */
    plim_t sent, sent_back;      /* an output, the gradient of what was received: owned */
    struct plim_split *split;    /* of a backward pass, the second part is to come */
    plim_t added; /* .grad of the buffer for what is received, until the next step */
} plim_flight;

typedef struct plim_stage {
    const plim_chunk *chunk;
    uint32_t first, last; /* its nodes, [first, last) */
    plim_flight *flights; /* by micro-batch */
    plim_t entered;       /* what its modules were last given, and hold; owned; 0: nothing */
    plim_t *params;       /* that are trained, as its modules hold them; borrowed */
    uint32_t n_params;
} plim_stage;

struct plim_pipeline {
    plim_stage *stages;
    uint32_t n;            /* of this rank */
    uint32_t microbatches; /* of a step */
    uint32_t passes;       /* backward passes of a step so far */
};

static inline bool plim_stage_receives(const plim_stage *s)
{
    return s->chunk->received != PLIM_NONE;
}

/* What a stage passes on is in the type in which its modules compute: a new tensor like the value. */
plim_t plim_stage_buffer(plim_run *r, uint32_t value);
/* The forward pass of a flight whose x[] is there: sets out, and loss. */
void plim_stage_forward(plim_run *r, const plim_stage *s, uint32_t k);
/* The backward pass, from f->gradient or from the loss. */
void plim_stage_backward(plim_run *r, const plim_stage *s, uint32_t k);

/* One step, in the order of the schedule: pipeline_torch.c, pipeline_megatron.c. */
void plim_run_torch(plim_run *r);
void plim_run_megatron(plim_run *r);

#endif
