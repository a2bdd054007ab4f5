/* job_words.c -- what words of settings stand for. */
#include "job/job_priv.h"

static const struct {
    const char *word;
    plim_loss_kind loss;
    plim_fused_loss fused;
} losses[] = {
    {"cross_entropy", PLIM_LOSS_CROSS_ENTROPY, PLIM_FUSED_NONE},
    {"mse", PLIM_LOSS_MSE, PLIM_FUSED_NONE},
    {"mse_fp32", PLIM_LOSS_MSE_FP32, PLIM_FUSED_NONE},
    {"bce", PLIM_LOSS_BCE, PLIM_FUSED_NONE},
    {"sum", PLIM_LOSS_SUM, PLIM_FUSED_NONE},
    {"model", PLIM_LOSS_MODEL, PLIM_FUSED_NONE},
    {"linear_cross_entropy", PLIM_LOSS_MODEL, PLIM_FUSED_TORCH},
    {"liger", PLIM_LOSS_MODEL, PLIM_FUSED_LIGER},
};

static const struct {
    const char *word;
    plim_schedule schedule;
} schedules[] = {
    {"1f1b", PLIM_SCHEDULE_1F1B},
    {"gpipe", PLIM_SCHEDULE_GPIPE},
    {"interleaved", PLIM_SCHEDULE_INTERLEAVED},
    {"looped_bfs", PLIM_SCHEDULE_LOOPED},
    {"zero_bubble", PLIM_SCHEDULE_ZERO_BUBBLE},
};

plim_loss_kind plim_job_loss(const plim_settings *s)
{
    for (size_t i = 0; i < PLIM_COUNT(losses); i++)
        if (plim_setting_is(s, PLIM_SET_loss, losses[i].word))
            return losses[i].loss;
    return PLIM_LOSS_DEFAULT;
}

plim_fused_loss plim_job_fused_loss(const plim_settings *s)
{
    for (size_t i = 0; i < PLIM_COUNT(losses); i++)
        if (plim_setting_is(s, PLIM_SET_loss, losses[i].word))
            return losses[i].fused;
    return PLIM_FUSED_NONE;
}

const char *plim_job_loss_word(plim_loss_kind loss, plim_fused_loss fused)
{
    for (size_t i = 0; i < PLIM_COUNT(losses); i++)
        if (losses[i].loss == loss && losses[i].fused == fused)
            return losses[i].word;
    return NULL;
}

plim_schedule plim_job_schedule(const plim_settings *s)
{
    for (size_t i = 0; i < PLIM_COUNT(schedules); i++)
        if (plim_setting_is(s, PLIM_SET_schedule, schedules[i].word))
            return schedules[i].schedule;
    return PLIM_SCHEDULE_1F1B;
}
