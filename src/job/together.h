/* together.h -- what goes with what: the rows of together.def. */
#ifndef PLIM_JOB_TOGETHER_H
#define PLIM_JOB_TOGETHER_H

#include "job/job.h"

/* What of a job was read last. */
typedef enum plim_together_when {
    PLIM_TOGETHER_OPTIMIZER, /* with the loop and the average */
    PLIM_TOGETHER_AXES,
    PLIM_TOGETHER_STRATEGY,
    PLIM_TOGETHER_SCHEDULE,
    PLIM_TOGETHER_PIPELINE, /* its numbers of stages and micro-batches were checked, too */
    PLIM_TOGETHER_PARTS,
    PLIM_TOGETHER_EXPERTS,
    PLIM_TOGETHER_SCALER, /* all about several cards */
    PLIM_TOGETHER_LOSS,
    PLIM_TOGETHER_ADAPTERS, /* the texts of lora and peft are not read yet */
    PLIM_TOGETHER_ADAPTER,
    PLIM_TOGETHER_QUANT,
    PLIM_TOGETHER_GRAPH,   /* the model is built */
    PLIM_TOGETHER_DIVISION /* and changed */
} plim_together_when;

/* PLIM_EUSAGE: the sentence of the first row of this part that refuses the job.  g: NULL
 * before the model is built. */
plim_status plim_together_check(const plim_job *job, plim_together_when when,
                                const plim_graph *g, plim_err *err);

#endif
