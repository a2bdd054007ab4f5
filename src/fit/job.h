/* job.h -- a model and settings made definite, ready to be run for any batch on
 * any card.  What the commands that run a model have in common. */
#ifndef PLIM_JOB_H
#define PLIM_JOB_H

#include "alloc/alloc.h"
#include "gpu/gpu.h"
#include "settings/settings.h"
#include "step/model.h"
#include "step/step.h"
#include "step/world.h"

typedef struct plim_job {
    plim_arena *arena;
    plim_settings *settings; /* as they are used: with their defaults */
    const plim_model *model;
    plim_binding bind;
    plim_step_settings step;
    plim_bound bound;    /* as the setting workspace says: what estimated bytes are */
    const plim_gpu *gpu; /* NULL: none chosen */
    plim_gpu generic;    /* of --vram */
    plim_alloc_options alloc;
} plim_job;

/* Reads every setting (NULL: none is set).  PLIM_EUSAGE names the setting.  All that the
 * job has lives in `a`; the model is borrowed. */
plim_status plim_job_open(plim_job *job, plim_arena *a, const plim_model *model,
                          const plim_settings *s, plim_err *err);
/* On the card that the settings name, if they name one. */
plim_status plim_job_card(plim_job *job, plim_err *err);
/* Tells the settings what the run of this graph made of those that depend on the model. */
plim_status plim_job_resolve(plim_job *job, const plim_graph *g, const plim_step_info *info,
                             plim_err *err);

/* Tells whoever wants to know; PLIM_ECANCELED: that was enough. */
plim_status plim_job_progress(const plim_job *job, uint32_t done, uint32_t total,
                              const char *what, plim_err *err);

/* From now on the job runs on this card; NULL: as on an A100, and of any
 * size. */
void plim_job_use_card(plim_job *job, const plim_gpu *gpu);

/* The model at this batch (0: as the settings say), in `a`. */
plim_status plim_job_graph(const plim_job *job, int64_t batch, plim_arena *a, plim_graph *g,
                           plim_err *err);

/* The events of the run.  With --workspace low or high nothing is left open:
 * what is estimated has that size and no bounds. */
plim_status plim_job_tape(const plim_job *job, const plim_graph *g, plim_arena *a,
                          plim_tape *t, plim_step_info *info, plim_err *err);

#endif
