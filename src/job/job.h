/* job.h -- a model with parsed settings, ready to run for any batch on any card.
 * All commands that run a model use it. */
#ifndef PLIM_JOB_H
#define PLIM_JOB_H

#include "alloc/alloc.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "settings/settings.h"
#include "step/step.h"
#include "transform/transform.h"
#include "world/world.h"

typedef struct plim_job {
    plim_arena *arena;
    plim_arena *
        scratch; /* of the caller: graph and tape; a result keeps no more of them than it reports */
    plim_settings *settings;    /* as used, with the defaults filled in */
    const plim_settings *given; /* as the caller gave them, borrowed; NULL: none is set */
    const plim_model *model;
    plim_binding bind;
    plim_step_settings step;
    plim_adapter adapter; /* method NULL: none */
    plim_quant quant;     /* kind 0: none */
    plim_fused_loss fused;
    bool find_seq;    /* the size that is searched for is the sequence length, not the batch */
    bool find_margin; /* and the largest size that leaves the margin */
    bool script;      /* what runs may be any program, not only a loop over the model */
    plim_bound bound; /* the size of estimated allocations, by the setting "workspace" */
    const plim_gpu *gpu; /* NULL: none was chosen */
    plim_gpu generic;    /* the card that the setting "vram" describes */
    plim_alloc_options alloc;
    unsigned
        margin; /* PLIM_JOB_MARGIN_ONE-ths of what is reserved, which the run should leave free for
                        what the simulated steps do not show: the smaller last batch of an epoch,
                        validation, other sizes.  0: the tape is the whole run */
} plim_job;

enum { PLIM_JOB_MARGIN_ONE = 10000 };

/* What the class takes, whatever a training loop passes to it. */
void plim_job_plain_call(plim_job *job);

/* Parses all settings; NULL: none is set.  PLIM_EUSAGE: the message names the setting.  The
 * job's memory is in `a`; the model is borrowed. */
plim_status plim_job_open(plim_job *job, plim_arena *a, const plim_model *model,
                          const plim_settings *s, plim_err *err);
/* Makes the job run on the card that the settings name, if any. */
plim_status plim_job_card(plim_job *job, plim_err *err);
/* Records in the settings the values that the run used, for those that depend on the model.
 * `info` may be NULL. */
plim_status plim_job_resolve(plim_job *job, const plim_graph *g, const plim_step_info *info,
                             plim_err *err);

/* The training loop that the run assumes, in a sentence; NULL for inference. */
plim_status plim_job_assumed(const plim_job *job, const plim_graph *g,
                             const plim_step_info *info, plim_arena *a, const char **out,
                             plim_err *err);

/* Samples per second of this job, if a step over `batch` of them takes so long: of training,
 * accumulated passes belong to one step.  0: the time is unknown. */
double plim_job_samples_per_s(const plim_job *job, int64_t batch, double seconds);

/* Calls the progress function of the settings, if any; PLIM_ECANCELED: it asked to stop. */
plim_status plim_job_progress(const plim_job *job, uint32_t done, uint32_t total,
                              const char *what, plim_err *err);

/* Makes the job run on this card; NULL: on a card like an A100, of unlimited
 * size. */
void plim_job_use_card(plim_job *job, const plim_gpu *gpu);

/* Builds the graph of the model in `a`, at this batch, or at this sequence length if the job
 * searches for that; 0: as the settings say. */
plim_status plim_job_graph(const plim_job *job, int64_t size, plim_arena *a, plim_graph *g,
                           plim_err *err);

/* The dtype of keys and values: that of what projects them. */
plim_dtype plim_job_cache_dtype(const plim_job *job, const plim_graph *g);

/* Adds to the graph's note what these settings leave out of the answer. */
plim_status plim_job_note(const plim_job *job, plim_graph *g, plim_err *err);

/* Runs the step and records its events in a tape in `a`.  With the setting "workspace" low or
 * high, estimated allocations have that size and no bounds. */
plim_status plim_job_tape(const plim_job *job, const plim_graph *g, plim_arena *a,
                          plim_tape *t, plim_step_info *info, plim_err *err);

#endif
