/* assumed.c -- the training loop that a run assumes, in words. */
#include "job/job.h"

#include "base/fmt.h"

/* Assigns the loss, and the outputs if they have a variable of their own. */
static const char *say_call(const plim_graph *g, const plim_step_info *info)
{
    if (info->loop->local_inputs)
        return "that of Megatron-LM's training scripts";
    if (info->loss != PLIM_LOSS_MODEL)
        return "out = model(x), loss = criterion(out, y)";
    if (info->keeps & PLIM_KEEP_OUTPUTS)
        return g->labels_are_inputs ? "out = model(input_ids=x, labels=x), loss = out.loss"
                                    : "out = model(...), loss = out.loss";
    return g->labels_are_inputs ? "loss = model(input_ids=x, labels=x).loss"
                                : "loss = model(...).loss";
}

static const char *say_outputs(const plim_step_info *info)
{
    if (info->loop->local_inputs)
        return "the batch dropped before backward";
    return info->keeps & PLIM_KEEP_OUTPUTS ? "outputs kept until the next step's replace them"
           : info->loss == PLIM_LOSS_MODEL ? "logits and other outputs dropped before backward"
                                           : "outputs dropped before backward";
}

/* Why keys and values are cached, or not; "": the model could not. */
static const char *say_cache(const plim_job *job, const plim_graph *g,
                             const plim_step_info *info)
{
    if (!g->kv.elements)
        return "";
    if (g->kv.returned)
        return "; keys and values cached (use_cache=True)";
    if (!plim_str_is(job->step.checkpoint, "none"))
        return "; keys and values not cached, because of checkpointing";
    return info->loop->no_cache ? "; keys and values not cached, as the Trainer has it"
                                : "; keys and values not cached (use_cache=False)";
}

static const char *say_routes(const plim_graph *g)
{
    return g->part.expert_ranks
               ? "; tokens routed evenly, so that each card of ep computes as many "
                 "rows as it sends"
               : "";
}

plim_status plim_job_assumed(const plim_job *job, const plim_graph *g,
                             const plim_step_info *info, plim_arena *a, const char **out,
                             plim_err *err)
{
    *out = NULL;
    if (job->step.infer)
        return PLIM_OK;
    *out = plim_arena_printf(a, "Assumed loop: %s; %s%s%s.", say_call(g, info),
                             say_outputs(info), say_cache(job, g, info), say_routes(g))
               .p;
    return *out ? PLIM_OK : plim_oom(err);
}
