/* job_priv.h -- what the files of this room share about a job. */
#ifndef PLIM_JOB_JOB_PRIV_H
#define PLIM_JOB_JOB_PRIV_H

#include "base/fmt.h"
#include "job/job.h"

/* Models of Megatron-LM's arguments are built as a rank's part, and run by its loop. */
static inline bool plim_job_divides_itself(const plim_job *job)
{
    return job->model->importer && job->model->importer->divides;
}

static inline bool plim_job_checkpoints(const plim_step_settings *step)
{
    return !step->infer && !plim_str_is(step->checkpoint, "none");
}

/* job_words.c: the default if the setting is not set, NULL if there is no word. */
plim_loss_kind plim_job_loss(const plim_settings *s);
plim_fused_loss plim_job_fused_loss(const plim_settings *s);
const char *plim_job_loss_word(plim_loss_kind loss, plim_fused_loss fused);
plim_schedule plim_job_schedule(const plim_settings *s);

/* compared.c: adds a sentence about what was never compared, if there is any. */
plim_status plim_job_say_uncompared(const plim_job *job, plim_arena *a, plim_buf *b,
                                    plim_err *err);

/* share_read.c: the settings of training on several cards, once those of the step are read. */
plim_status plim_job_read_share(plim_job *job, plim_err *err);

#endif
