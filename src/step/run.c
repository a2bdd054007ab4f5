/* run.c -- what a loop does with the model: batches, forward passes, checkpoints: see run.h. */
#include "step/run.h"

void plim_run_mark(plim_run *r, plim_phase phase, plim_str op)
{
    plim_assert(r->step >= -1 && phase < PLIM_PHASE_COUNT);
    if (!plim_tape_mark(r->tape, r->step, phase, op))
        plim_m_oom(r->m);
    r->ledger.phase = (uint8_t)phase;
}

/* ---- batches ---------------------------------------------------------------------------- */

/* One target serves all heads.  Class indices for cross_entropy (a rank-3 output [B, T, V] is
 * scored token by token), else values like the output. */
static plim_t make_target(plim_run *r)
{
    plim_assert(r->g->n_outputs > 0);
    plim_meta t = plim_step_meta(r->s->dtype, &r->g->values[r->g->outputs[0]].meta);
    if (r->loss_kind == PLIM_LOSS_SUM || r->loss_kind == PLIM_LOSS_MODEL)
        return 0;
    if (r->loss_kind == PLIM_LOSS_CROSS_ENTROPY) {
        int32_t cls = t.rank == 3 ? 2 : 1;
        t.dtype = PLIM_I64;
        for (int32_t i = cls; i + 1 < t.rank; i++)
            t.dim[i] = t.dim[i + 1];
        t.rank--;
    }
    plim_meta_contiguous(&t);
    return plim_m_leaf(r->m, &t, false);
}

static void load_batch(plim_run *r, plim_batch *b)
{
    const plim_graph *g = r->g;
    plim_assert(g->n_inputs <= PLIM_RUN_INPUTS);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        plim_meta meta = plim_step_meta(r->s->dtype, &v->meta);
        if (v->received)
            continue;
        if (r->pipeline && meta.rank) /* of all micro-batches */
            meta.dim[0] *= r->s->share.microbatches;
        plim_m_place(r->m, PLIM_NONE, v->name, NULL, PLIM_CAT_INPUT);
        b->x[i] = plim_m_leaf(r->m, &meta, false);
    }
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("target"), NULL, PLIM_CAT_INPUT);
    if (!r->s->infer)
        b->y = make_target(r);
}

void plim_run_release(plim_run *r, plim_t *held, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        plim_m_drop(r->m, held[i]);
        held[i] = 0;
    }
}

/* The new batches are on the device before the old ones are released. */
void plim_run_fetch(plim_run *r, uint32_t n)
{
    plim_assert(n > 0 && n <= (uint32_t)r->s->accumulate);
    plim_batch *fresh = r->next;
    plim_run_mark(r, PLIM_PHASE_INPUTS, PLIM_STR(""));
    for (uint32_t i = 0; i < n; i++)
        load_batch(r, &fresh[i]);
    for (uint32_t i = 0; i < r->n_held; i++) {
        plim_run_release(r, r->held[i].x, PLIM_RUN_INPUTS);
        plim_run_release(r, &r->held[i].y, 1);
    }
    r->next = r->held;
    r->held = r->now = fresh;
    r->n_held = n;
}

void plim_run_clear_grad(plim_run *r, plim_t leaf)
{
    if (r->s->zero_grad_keeps)
        plim_m_clear_sparse(r->m, leaf);
    else
        plim_m_set_grad(r->m, leaf, 0);
}

void plim_run_zero_grads(plim_run *r)
{
    plim_run_mark(r, PLIM_PHASE_ZERO_GRAD, PLIM_STR(""));
    for (uint32_t i = 0; i < r->n_leaves; i++)
        plim_run_clear_grad(r, r->leaf[i]);
}

/* ---- forward ------------------------------------------------------------------------------ */

static plim_str node_name(const plim_graph *g, uint32_t node)
{
    plim_assert(node < g->n_nodes && g->nodes[node].scope < g->n_scopes);
    const plim_node *n = &g->nodes[node];
    plim_str path = g->scopes[n->scope].path;
    return path.n ? path : n->target;
}

void plim_run_visit(void *ud, uint32_t where, const char *fn)
{
    plim_run *r = ud;
    plim_assert(r->tape->n_marks > 0);
    plim_str name = where == PLIM_NONE ? PLIM_STR("loss") : node_name(r->g, where);
    const plim_mark *last = &r->tape->marks[r->tape->n_marks - 1];
    (void)fn;
    if (last->phase != PLIM_PHASE_BACKWARD || !plim_str_eq(last->op, name))
        plim_run_mark(r, PLIM_PHASE_BACKWARD, name);
    plim_m_place(r->m, where, name, "grad", PLIM_CAT_TEMPORARY);
}

/* Runs the nodes [first, last), and releases each value where Python does. */
static void run_nodes(plim_run *r, uint32_t first, uint32_t last, plim_phase phase)
{
    plim_assert(first <= last && last <= r->g->n_nodes);
    const plim_graph *g = r->g;
    uint32_t scope = PLIM_NONE;
    for (uint32_t i = first; i < last && !plim_m_bad(r->m) && !plim_m_stopped(r->m); i++) {
        plim_str name = node_name(g, i);
        if (g->nodes[i].scope != scope || !g->nodes[i].scope)
            plim_run_mark(r, phase, name);
        scope = g->nodes[i].scope;
        if (i == r->loss_at) {
            plim_shared_forward_end(&r->shared);
            plim_run_release(r, r->out, g->n_outputs);
        }
        plim_shared_before(&r->shared, i);
        plim_m_place(r->m, i, name, "out", PLIM_CAT_TEMPORARY);
        plim_m_run(r->m, g, i, r->value);
        for (uint32_t k = r->plan.first[i]; k < r->plan.first[i + 1]; k++) {
            uint32_t v = r->plan.ids[k];
            plim_m_drop(r->m, r->value[v]);
            r->value[v] = 0;
        }
        if (!plim_m_stopped(r->m))
            plim_shared_after(&r->shared, i);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------ */

static void run_region(plim_run *r, uint32_t i)
{
    plim_assert(i < r->regions.n);
    const plim_region *q = &r->regions.r[i];
    plim_assert(q->first <= q->last && q->last <= r->g->n_nodes);
    bool reentrant = r->regions.reentrant; /* inference has no regions */
    plim_m_region_begin(r->m, i);
    for (uint32_t k = 0; k < q->n_inputs; k++)
        plim_m_region_input(r->m, r->value[q->input[k]]);
    if (reentrant)
        plim_m_set_grad_mode(r->m, false);
    run_nodes(r, q->first, q->last, PLIM_PHASE_FORWARD);
    if (reentrant) {
        plim_t *out = PLIM_NEW_N(r->a, plim_t, (uint64_t)q->n_outputs + 1);
        plim_m_set_grad_mode(r->m, true);
        if (!out) {
            plim_m_oom(r->m);
            return;
        }
        for (uint32_t k = 0; k < q->n_outputs; k++)
            out[k] = r->value[q->output[k]];
        plim_m_region_reentrant(r->m, out, q->n_outputs);
    }
    plim_m_region_end(r->m);
}

/* Whether the caller has to drop this value: yes if a node made it, no if it belongs to the
 * loop. */
static bool is_owned(const plim_run *r, uint32_t v)
{
    return r->g->values[v].kind == PLIM_VALUE_NODE;
}

/* Runs the region's nodes again, within the backward pass.  The values left in r->value belong
 * to the caller. */
static void recompute_forward(plim_run *r, const plim_region *q, const plim_t *input)
{
    for (uint32_t k = 0; k < q->n_inputs; k++)
        r->value[q->input[k]] =
            is_owned(r, q->input[k]) ? plim_m_ref(r->m, input[k]) : input[k];
    uint32_t depth = plim_shared_again(&r->shared, q->first);
    run_nodes(r, q->first, q->last, PLIM_PHASE_BACKWARD);
    plim_shared_again_end(&r->shared, depth);
}

static void release_value(plim_run *r, uint32_t v)
{
    if (is_owned(r, v))
        plim_m_drop(r->m, r->value[v]);
    r->value[v] = 0;
}

static void release_recomputed(plim_run *r, const plim_region *q)
{
    for (uint32_t i = q->first; i < q->last; i++)
        for (uint32_t k = 0; k < r->g->nodes[i].n_outs; k++)
            release_value(r, r->g->nodes[i].outs[k]);
    for (uint32_t k = 0; k < q->n_inputs; k++)
        release_value(r, q->input[k]);
}

static void recompute_region(void *ud, uint32_t region, const plim_t *input, uint32_t n)
{
    plim_run *r = ud;
    plim_assert(region < r->regions.n && n == r->regions.r[region].n_inputs);
    (void)n;
    recompute_forward(r, &r->regions.r[region], input);
    release_recomputed(r, &r->regions.r[region]);
}

static void recompute_backward(void *ud, uint32_t region, const plim_t *input, uint32_t n,
                               const plim_t *g, plim_t *dx)
{
    plim_run *r = ud;
    plim_assert(r->regions.reentrant && region < r->regions.n);
    const plim_region *q = &r->regions.r[region];
    plim_assert(n == q->n_inputs);
    plim_t *in = PLIM_NEW_N(r->a, plim_t, (uint64_t)n + 1),
           *out = PLIM_NEW_N(r->a, plim_t, (uint64_t)q->n_outputs + 1);
    if (!in || !out) {
        plim_m_oom(r->m);
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        in[k] = plim_m_detached(r->m, input[k]);
    recompute_forward(r, q, in);
    plim_m_autocast(r->m, PLIM_DTYPE_COUNT);
    for (uint32_t k = 0; k < q->n_outputs; k++)
        out[k] = r->value[q->output[k]];
    plim_m_set_grad_mode(r->m, false);
    plim_m_backward_from(r->m, out, g, q->n_outputs, plim_run_visit, r);
    for (uint32_t k = 0; k < n; k++)
        dx[k] = plim_m_ref(r->m, plim_m_grad(r->m, in[k]));
    release_recomputed(r, q);
    for (uint32_t k = 0; k < n; k++)
        plim_m_drop(r->m, in[k]);
}

void plim_run_recomputes(plim_run *r)
{
    plim_m_on_recompute(r->m, recompute_region, recompute_backward, r);
}

/* ---- the whole of it ---------------------------------------------------------------------- */

void plim_run_forward(plim_run *r)
{
    const plim_chunk all = {.n_outputs = r->g->n_outputs};
    plim_run_stage(r, &all, 0, r->g->n_nodes);
}

void plim_run_stage(plim_run *r, const plim_chunk *c, uint32_t first, uint32_t last)
{
    plim_assert(first <= last && r->now);
    const plim_graph *g = r->g;
    plim_assert(c->output <= g->n_outputs && c->n_outputs <= g->n_outputs - c->output);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        r->value[g->inputs[i]] = r->now->x[i];
    uint32_t at = first;
    plim_shared_forward(&r->shared);
    for (uint32_t i = 0; i < r->regions.n && !plim_m_bad(r->m); i++) {
        if (r->regions.r[i].first < first || r->regions.r[i].first >= last)
            continue;
        run_nodes(r, at, r->regions.r[i].first, PLIM_PHASE_FORWARD);
        run_region(r, i);
        at = r->regions.r[i].last;
    }
    run_nodes(r, at, last, PLIM_PHASE_FORWARD);
    if (r->loss_at == PLIM_NONE)
        plim_shared_forward_end(&r->shared);
    /* out is assigned: the last iteration's outputs are freed */
    for (uint32_t i = c->output; i < c->output + c->n_outputs; i++) {
        plim_t t = r->value[g->outputs[i]];
        const plim_value *v = &g->values[g->outputs[i]];
        plim_m_drop(r->m, r->out[i]);
        r->out[i] = v->kind == PLIM_VALUE_NODE ? t : plim_m_ref(r->m, t);
        if (v->kind == PLIM_VALUE_NODE)
            plim_m_set_category(r->m, t, PLIM_CAT_OUTPUT);
        r->value[g->outputs[i]] = v->kind == PLIM_VALUE_NODE ? 0 : t;
        for (uint32_t k = c->output; k < i; k++) /* returned twice: one more reference */
            if (g->outputs[k] == g->outputs[i])
                r->out[i] = plim_m_ref(r->m, r->out[k]);
    }
}
