/* job.h -- a model and settings made definite, ready to be run for any batch on
 * any card.  What the commands that run a model have in common. */
#ifndef PLIM_JOB_H
#define PLIM_JOB_H

#include "alloc/alloc.h"
#include "gpu/gpu.h"
#include "step/model.h"
#include "step/step.h"

typedef struct plim_job {
    plim_arena *arena;
    const plim_settings *given;
    plim_model model;
    plim_binding bind;
    plim_step_settings step;
    const char *dtype, *autocast, *workspace, *zero_grad; /* after defaults */
    plim_bound bound;    /* as --workspace says: what estimated bytes are */
    const plim_gpu *gpu; /* NULL: none chosen */
    plim_gpu generic;    /* of --vram */
    plim_alloc_options alloc;
} plim_job;

/* Opens the model and reads every setting.  PLIM_EUSAGE names the setting. */
plim_status plim_job_open(plim_job *job, plim_arena *a, const char *model,
                          const plim_settings *s, plim_err *err);
void plim_job_close(plim_job *job); /* harmless on {0} */

/* From now on the job runs on this card; NULL: as on sm_80 with 108 SMs, and
 * of any size. */
void plim_job_on(plim_job *job, const plim_gpu *gpu);

/* The model at this batch (0: as the settings say), in `a`. */
plim_status plim_job_graph(const plim_job *job, int64_t batch, plim_arena *a, plim_graph *g,
                           plim_err *err);

/* The events of the run.  With --workspace low or high nothing is left open:
 * what is estimated has that size and no bounds. */
plim_status plim_job_tape(const plim_job *job, const plim_graph *g, plim_arena *a,
                          plim_tape *t, plim_step_info *info, plim_err *err);

#endif
