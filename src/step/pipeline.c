/* pipeline.c -- a step of one rank of a pipeline, which has one stage or several: see pipeline.h. */
#include "step/pipeline.h"

/* The nodes of each stage, which follow one another. */
static void find_nodes(const plim_graph *g, plim_pipeline *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        p->stages[i].first = p->stages[i].last = g->n_nodes;
    p->stages[0].first = 0;
    for (uint32_t i = 0, at = 0; i < g->n_nodes && p->n > 1; i++) {
        uint32_t s = g->nodes[i].scope;
        while (g->scopes[s].parent)
            s = g->scopes[s].parent;
        while (at < p->n && p->stages[at].chunk->scope != s)
            p->stages[at++].last = i;
        plim_assert(at < p->n);
        p->stages[at].first = PLIM_MIN(p->stages[at].first, i);
    }
}

void plim_run_pipelined(plim_run *r)
{
    const plim_graph *g = r->g;
    plim_pipeline *p = PLIM_NEW(r->a, plim_pipeline);
    if (!g->part.n_chunks)
        return;
    if (!p || !(p->stages = PLIM_NEW_N(r->a, plim_stage, g->part.n_chunks))) {
        plim_m_oom(r->m);
        return;
    }
    plim_assert(!r->pipeline && r->s->share.microbatches > 0);
    p->n = g->part.n_chunks;
    p->microbatches = (uint32_t)r->s->share.microbatches;
    for (uint32_t i = 0; i < p->n; i++) {
        p->stages[i].chunk = &g->part.chunks[i];
        if (!(p->stages[i].flights = PLIM_NEW_N(r->a, plim_flight, p->microbatches)))
            plim_m_oom(r->m);
    }
    find_nodes(g, p);
    r->pipeline = p;
    r->shared.defers = true;
    const plim_chunk *last = &g->part.chunks[p->n - 1];
    plim_assert(last->n_outputs > 0);
    if (!last->sends &&
        r->s->share.schedule !=
            PLIM_SCHEDULE_MEGATRON) /* the model's outputs are its loss and others: stage.c */
        r->loss_at = g->values[g->outputs[last->output + last->n_outputs - 1]].node + 1;
}

void plim_run_pipeline(plim_run *r)
{
    plim_pipeline *p = r->pipeline;
    plim_assert(p && p->n > 0);
    p->passes = 0;
    if (r->s->share.schedule == PLIM_SCHEDULE_MEGATRON)
        plim_run_megatron(r);
    else
        plim_run_torch(r);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->microbatches; k++) {
            plim_flight *f = &p->stages[i].flights[k];
            plim_t *rest[] = {&f->loss, &f->sent, &f->sent_back};
            for (size_t j = 0; j < PLIM_COUNT(rest); j++)
                plim_run_release(r, rest[j], 1);
        }
    plim_run_release(r, r->out, r->g->n_outputs);
}
