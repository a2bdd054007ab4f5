/* pipeline_stage.c -- what a stage does with one micro-batch: see pipeline.h. */
#include "op/rules.h"
#include "step/pipeline.h"

/* What a stage passes on is in the type in which its modules compute. */
static plim_meta handed_meta(const plim_run *r, const plim_value *v)
{
    plim_meta meta = plim_step_meta(r->s->dtype, &v->meta);
    return plim_meta_like(&meta, plim_strategy_computes(&r->s->share.strategy, meta.dtype));
}

plim_t plim_stage_buffer(plim_run *r, uint32_t value)
{
    plim_meta meta = handed_meta(r, &r->g->values[value]);
    plim_meta_contiguous(&meta);
    return plim_m_leaf(r->m, &meta, false);
}

void plim_stage_forward(plim_run *r, const plim_stage *s, uint32_t k)
{
    plim_flight *f = &s->flights[k];
    const plim_chunk *c = s->chunk;
    plim_assert(k < r->pipeline->microbatches && c->n_outputs > 0);
    plim_m_set_grad_mode(r->m, true);
    memcpy(r->now->x, f->x, sizeof f->x);
    plim_run_stage(r, c, s->first, s->last);
    plim_m_set_grad_mode(r->m, false);
    f->out = plim_m_ref(r->m, r->out[c->output + c->n_outputs - 1]);
    if (!c->sends)
        f->loss = plim_m_ref(r->m, r->out[c->output]);
}

void plim_stage_backward(plim_run *r, const plim_stage *s, uint32_t k)
{
    plim_pipeline *p = r->pipeline;
    plim_flight *f = &s->flights[k];
    plim_assert(p->passes < p->n * p->microbatches);
    r->shared.more_passes = ++p->passes < p->n * p->microbatches;
    plim_run_mark(r, PLIM_PHASE_BACKWARD, PLIM_STR("loss"));
    plim_m_backward(r->m, s->chunk->sends ? f->out : f->loss, f->gradient, plim_run_visit, r);
}
