/* step.c -- the training loop: see step.h.  The one that is written most (loop.c has
 * the others):
 *
 *     for x, y in loader:            x, y of the last iteration go when rebound
 *         optimizer.zero_grad()
 *         out = model(x)             the old out lives until here,
 *         loss = criterion(out, y)   the old loss until here
 *         loss.backward()
 *         optimizer.step()
 *         ema.update(model)      if there is one
 */
#include "step/step.h"

#include "core/region.h"
#include "op/rules.h"

enum { MAX_INPUTS = 64, MAX_OUTPUTS = 4096, PER_NODE = 4 }; /* storages, both passes */

typedef struct batch {
    plim_t x[MAX_INPUTS], y;
} batch;

typedef struct run {
    plim_arena *a;
    const plim_graph *g;
    const plim_step_settings *s;
    plim_machine *m;
    plim_tape *tape;
    plim_t *value; /* by value id */
    plim_release plan;
    plim_regions regions;
    plim_shared shared;
    uint32_t unit; /* of shared: the next to run forward */
    plim_t *leaf;  /* what is trained, on this rank: parameters or shards of them */
    uint32_t n_leaves;
    plim_optim_run optim, ema;
    plim_optim_run *each; /* in backward: of one parameter each; else NULL */
    const plim_loop *loop;
    unsigned keeps;
    /* the values that the loop's variables hold */
    batch *held, *next, *now; /* those on the device, room for the next, the one in use */
    uint32_t n_held;
    plim_t *out, loss; /* out by output of the graph */
    uint32_t n_out;    /* outputs that enter the loss */
    plim_loss_kind loss_kind;
    int step;
    plim_ledger ledger;
} run;

static void mark_phase(run *r, plim_phase phase, plim_str op)
{
    if (!plim_tape_mark(r->tape, r->step, phase, op))
        plim_m_oom(r->m);
    r->ledger.phase = (uint8_t)phase;
}

/* ---- load -------------------------------------------------------------------------- */

static void load_model(run *r)
{
    r->step = -1;
    mark_phase(r, PLIM_PHASE_LOAD, PLIM_STR(""));
    const plim_strategy *by = r->s->share.strategy.strategy;
    plim_step_load(r->m, r->a, r->g, r->s->dtype, by && by->from_host, r->value);
}

static plim_status wrap_model(run *r, plim_err *err)
{
    uint32_t *order = NULL, n = plim_step_order(r->a, r->g, false, &order);
    if (n == PLIM_NONE)
        return plim_oom(err);
    r->shared = (plim_shared){.a = r->a,
                              .m = r->m,
                              .g = r->g,
                              .share = &r->s->share,
                              .value = r->value,
                              .order = order,
                              .n_order = n};
    return plim_shared_start(&r->shared, err);
}

static plim_t run_closure(void *ud);

static void step_in_backward(void *ud, plim_t leaf);

/* {p: AdamW([p]) for p in model.parameters()}, stepped by hooks */
static void split_optimizer(run *r)
{
    plim_optim_run *o = &r->optim;
    r->each = PLIM_NEW_N(r->a, plim_optim_run, o->n);
    if (!r->each) {
        plim_m_oom(r->m);
        return;
    }
    for (uint32_t i = 0; i < o->n; i++) {
        r->each[i] = *o;
        r->each[i].params = &o->params[i];
        r->each[i].n = 1;
        plim_optim_start(&r->each[i]);
    }
    plim_m_on_grad(r->m, step_in_backward, r);
}

static void make_optimizer(run *r)
{
    const plim_graph *g = r->g;
    plim_optim_run *o = &r->optim;
    *o = (plim_optim_run){.m = r->m,
                          .torch = r->s->torch,
                          .spec = &r->s->optim,
                          .closure = run_closure,
                          .ud = r,
                          .arena = r->a};
    o->params = PLIM_NEW_N(r->a, plim_optim_param, g->n_values);
    bool *shared = PLIM_NEW_N(r->a, bool, g->n_values); /* it has a second name */
    bool *own = PLIM_NEW_N(r->a, bool, (uint64_t)g->n_values + 1);
    uint32_t *ids = PLIM_NEW_N(r->a, uint32_t, g->n_values);
    r->leaf = PLIM_NEW_N(r->a, plim_t, g->n_values);
    if (!o->params || !shared || !own || !ids || !r->leaf) {
        plim_m_oom(r->m);
        return;
    }
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to != PLIM_NONE)
            shared[i] = shared[g->values[i].tied_to] = true;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind != PLIM_VALUE_PARAMETER || !v->requires_grad)
            continue;
        bool seen = false; /* a tensor with several names is counted under the first */
        for (uint32_t k = 0; !seen && k < r->n_leaves && shared[i]; k++)
            seen = r->leaf[k] == r->shared.leaf[i];
        if (seen)
            continue;
        own[r->n_leaves] = true;
        ids[r->n_leaves] = i;
        r->leaf[r->n_leaves++] = r->shared.leaf[i];
    }
    const plim_strategy *by = r->shared.strategy;
    if (by && by->choose)
        by->choose(&r->shared, ids, r->n_leaves, own);
    if (r->shared.master)
        o->params[o->n++] =
            (plim_optim_param){.leaf = r->shared.master, .name = PLIM_STR("master weights")};
    bool elsewhere = r->shared.master || r->shared.on_host;
    for (uint32_t k = 0; k < r->n_leaves && !elsewhere; k++)
        if (own[k])
            o->params[o->n++] =
                (plim_optim_param){.leaf = r->leaf[k],
                                   .name = g->values[ids[k]].name,
                                   .partial = !by && g->values[ids[k]].partial};
    if (o->spec->in_backward)
        split_optimizer(r);
    else
        plim_optim_start(o);
}

/* All tensors of the model that are on the card, each once. */
static void make_ema(run *r)
{
    const plim_graph *g = r->g;
    plim_optim_run *o = &r->ema;
    uint32_t *order, n = plim_step_order(r->a, g, true, &order);
    *o = (plim_optim_run){.m = r->m, .torch = r->s->torch, .spec = &r->s->ema};
    o->params = PLIM_NEW_N(r->a, plim_optim_param, g->n_values);
    bool *seen = PLIM_NEW_N(r->a, bool, g->n_values);
    if (n == PLIM_NONE || !o->params || !seen) {
        plim_m_oom(r->m);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = g->values[order[i]].tied_to;
        id = id == PLIM_NONE ? order[i] : id;
        const plim_value *v = &g->values[id];
        if (seen[id] || plim_m_tape_storage(r->m, r->value[id]) == PLIM_NONE)
            continue;
        seen[id] = true;
        o->params[o->n++] =
            (plim_optim_param){.leaf = r->value[id],
                               .name = v->name,
                               .buffer = v->kind != PLIM_VALUE_PARAMETER,
                               .transient = v->kind != PLIM_VALUE_PARAMETER && !v->persistent};
    }
    plim_optim_start(o);
}

/* ---- inputs and targets ---------------------------------------------------------------- */

static bool looks_like_logits(const plim_meta *m)
{
    return plim_is_float(m->dtype) && m->rank >= 2 && m->dim[1] > 1;
}

static void choose_loss(run *r)
{
    const plim_graph *g = r->g;
    r->loss_kind = r->s->loss;
    r->n_out = g->n_outputs ? 1 : 0;
    if (!g->n_outputs) {
        plim_m_fail(r->m, PLIM_ESHAPE, "the model has no output");
        return;
    }
    const plim_meta *first = &g->values[g->outputs[0]].meta;
    if (r->loss_kind == PLIM_LOSS_DEFAULT)
        r->loss_kind = looks_like_logits(first)                      ? PLIM_LOSS_CROSS_ENTROPY
                       : !first->rank && plim_is_float(first->dtype) ? PLIM_LOSS_MODEL
                                                                     : PLIM_LOSS_SUM;
    if (r->loss_kind == PLIM_LOSS_MODEL && first->rank)
        plim_m_fail(r->m, PLIM_ESHAPE,
                    "the model's first output has rank %d, a loss has rank 0",
                    (int)first->rank);
    if (r->loss_kind == PLIM_LOSS_CROSS_ENTROPY &&
        (!plim_is_float(first->dtype) || first->rank < 2))
        plim_m_fail(
            r->m, PLIM_ESHAPE,
            "cross_entropy needs float logits of rank 2 or more: choose another --loss");
    /* auxiliary heads have outputs of the same size: they enter the loss too */
    while (r->loss_kind != PLIM_LOSS_MODEL && r->n_out < g->n_outputs &&
           plim_same_size(first, &g->values[g->outputs[r->n_out]].meta))
        r->n_out++;
}

static void choose_loop(run *r)
{
    r->loop = r->s->loop ? r->s->loop : plim_loop_usual(r->loss_kind == PLIM_LOSS_MODEL);
    r->keeps = r->s->keeps_given ? r->s->keeps : r->loop->keeps;
}

/* One target serves all heads.  Class indices for cross_entropy (a rank-3 output [B, T, V] is
 * scored token by token), else values like the output. */
static plim_t make_target(run *r)
{
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

static void load_batch(run *r, batch *b)
{
    const plim_graph *g = r->g;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const plim_value *v = &g->values[g->inputs[i]];
        plim_meta meta = plim_step_meta(r->s->dtype, &v->meta);
        plim_m_place(r->m, PLIM_NONE, v->name, NULL, PLIM_CAT_INPUT);
        b->x[i] = plim_m_leaf(r->m, &meta, false);
    }
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("target"), NULL, PLIM_CAT_INPUT);
    if (!r->s->infer)
        b->y = make_target(r);
}

static void release_tensors(run *r, plim_t *held, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        plim_m_drop(r->m, held[i]);
        held[i] = 0;
    }
}

/* The new batches are on the device before the old ones are released. */
static void fetch_batches(run *r, uint32_t n)
{
    batch *fresh = r->next;
    mark_phase(r, PLIM_PHASE_INPUTS, PLIM_STR(""));
    for (uint32_t i = 0; i < n; i++)
        load_batch(r, &fresh[i]);
    for (uint32_t i = 0; i < r->n_held; i++) {
        release_tensors(r, r->held[i].x, MAX_INPUTS);
        release_tensors(r, &r->held[i].y, 1);
    }
    r->next = r->held;
    r->held = r->now = fresh;
    r->n_held = n;
}

static void clear_grad(run *r, plim_t leaf)
{
    if (r->s->zero_grad_keeps)
        plim_m_clear_sparse(r->m, leaf);
    else
        plim_m_set_grad(r->m, leaf, 0);
}

static void zero_grad(run *r, const plim_optim_run *o)
{
    for (uint32_t i = 0; i < o->n; i++)
        clear_grad(r, o->params[i].leaf);
}

static void zero_all_grads(run *r)
{
    mark_phase(r, PLIM_PHASE_ZERO_GRAD, PLIM_STR(""));
    for (uint32_t i = 0; i < r->n_leaves; i++)
        clear_grad(r, r->leaf[i]);
}

/* ---- forward ------------------------------------------------------------------------------ */

static plim_str node_name(const plim_graph *g, uint32_t node)
{
    const plim_node *n = &g->nodes[node];
    plim_str path = g->scopes[n->scope].path;
    return path.n ? path : n->target;
}

/* The units of a strategy, which run one after the other. */
static bool begins_unit(const run *r, uint32_t node)
{
    return r->unit < r->shared.units.n && node == r->shared.units.r[r->unit].first;
}
static bool ends_unit(const run *r, uint32_t node)
{
    return r->unit < r->shared.units.n && node + 1 == r->shared.units.r[r->unit].last;
}

/* Runs the nodes [first, last), and releases each value where Python does. */
static void run_nodes(run *r, uint32_t first, uint32_t last, plim_phase phase)
{
    const plim_graph *g = r->g;
    uint32_t scope = PLIM_NONE;
    for (uint32_t i = first; i < last && !plim_m_bad(r->m) && !plim_m_stopped(r->m); i++) {
        plim_str name = node_name(g, i);
        if (g->nodes[i].scope != scope || !g->nodes[i].scope)
            mark_phase(r, phase, name);
        scope = g->nodes[i].scope;
        if (phase == PLIM_PHASE_FORWARD && begins_unit(r, i))
            plim_shared_forward(&r->shared, r->unit);
        plim_m_place(r->m, i, name, "out", PLIM_CAT_TEMPORARY);
        plim_m_run(r->m, g, i, r->value);
        for (uint32_t k = r->plan.first[i]; k < r->plan.first[i + 1]; k++) {
            uint32_t v = r->plan.ids[k];
            plim_m_drop(r->m, r->value[v]);
            r->value[v] = 0;
        }
        if (phase == PLIM_PHASE_FORWARD && ends_unit(r, i))
            plim_shared_forward_end(&r->shared, r->unit++);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------ */

static void run_region(run *r, uint32_t i)
{
    const plim_region *q = &r->regions.r[i];
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
static bool is_owned(const run *r, uint32_t v)
{
    return r->g->values[v].kind == PLIM_VALUE_NODE;
}

/* Runs the region's nodes again, within the backward pass.  The values left in r->value belong
 * to the caller. */
static void recompute_forward(run *r, const plim_region *q, const plim_t *input)
{
    for (uint32_t k = 0; k < q->n_inputs; k++)
        r->value[q->input[k]] =
            is_owned(r, q->input[k]) ? plim_m_ref(r->m, input[k]) : input[k];
    run_nodes(r, q->first, q->last, PLIM_PHASE_BACKWARD);
}

static void release_value(run *r, uint32_t v)
{
    if (is_owned(r, v))
        plim_m_drop(r->m, r->value[v]);
    r->value[v] = 0;
}

static void release_recomputed(run *r, const plim_region *q)
{
    for (uint32_t i = q->first; i < q->last; i++)
        for (uint32_t k = 0; k < r->g->nodes[i].n_outs; k++)
            release_value(r, r->g->nodes[i].outs[k]);
    for (uint32_t k = 0; k < q->n_inputs; k++)
        release_value(r, q->input[k]);
}

static void recompute_region(void *ud, uint32_t region, const plim_t *input, uint32_t n)
{
    run *r = ud;
    (void)n;
    recompute_forward(r, &r->regions.r[region], input);
    release_recomputed(r, &r->regions.r[region]);
}

static void visit_backward(void *ud, uint32_t where, const char *fn);

static void recompute_backward(void *ud, uint32_t region, const plim_t *input, uint32_t n,
                               const plim_t *g, plim_t *dx)
{
    run *r = ud;
    const plim_region *q = &r->regions.r[region];
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
    plim_m_backward_from(r->m, out, g, q->n_outputs, visit_backward, r);
    for (uint32_t k = 0; k < n; k++)
        dx[k] = plim_m_ref(r->m, plim_m_grad(r->m, in[k]));
    release_recomputed(r, q);
    for (uint32_t k = 0; k < n; k++)
        plim_m_drop(r->m, in[k]);
}

/* ---- the whole of it ---------------------------------------------------------------------- */

static void run_forward(run *r)
{
    const plim_graph *g = r->g;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        r->value[g->inputs[i]] = r->now->x[i];
    uint32_t at = 0;
    r->unit = 0;
    plim_shared_forward(&r->shared, r->shared.units.n);
    for (uint32_t i = 0; i < r->regions.n && !plim_m_bad(r->m); i++) {
        run_nodes(r, at, r->regions.r[i].first, PLIM_PHASE_FORWARD);
        run_region(r, i);
        at = r->regions.r[i].last;
    }
    run_nodes(r, at, g->n_nodes, PLIM_PHASE_FORWARD);
    plim_shared_forward_end(&r->shared, r->shared.units.n);
    /* out is assigned: the last iteration's outputs are freed */
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        plim_t t = r->value[g->outputs[i]];
        const plim_value *v = &g->values[g->outputs[i]];
        plim_m_drop(r->m, r->out[i]);
        r->out[i] = v->kind == PLIM_VALUE_NODE ? t : plim_m_ref(r->m, t);
        if (v->kind == PLIM_VALUE_NODE)
            plim_m_set_category(r->m, t, PLIM_CAT_OUTPUT);
        r->value[g->outputs[i]] = v->kind == PLIM_VALUE_NODE ? 0 : t;
        for (uint32_t k = 0; k < i; k++) /* returned twice: one more reference */
            if (g->outputs[k] == g->outputs[i])
                r->out[i] = plim_m_ref(r->m, r->out[k]);
    }
}

/* ---- loss ----------------------------------------------------------------------------------- */

static plim_t one_loss(run *r, plim_t out)
{
    plim_machine *m = r->m;
    const plim_meta *om = plim_m_meta(m, out);
    if (r->loss_kind == PLIM_LOSS_MODEL)
        return plim_m_ref(m, out);
    if (r->loss_kind == PLIM_LOSS_MSE)
        return plim_at_mse(m, out, r->now->y, true);
    if (r->loss_kind == PLIM_LOSS_BCE)
        return plim_at_bce_logits(m, out, r->now->y, true);
    if (r->loss_kind == PLIM_LOSS_SUM)
        return plim_at_sum_all(m, out);
    if (om->rank != 3)
        return plim_at_cross_entropy(m, out, r->now->y, 0, true);
    plim_t flat = plim_at_reshape(m, out, 2, (int64_t[]){-1, om->dim[2]});
    plim_t target = plim_at_reshape(m, r->now->y, 1, (int64_t[]){-1});
    plim_t loss = plim_at_cross_entropy(m, flat, target, 0, true);
    plim_m_drop(m, target);
    plim_m_drop(m, flat);
    return loss;
}

/* loss1 + 0.4 * (loss2 + ...), as models with auxiliary heads are trained */
static void compute_loss(run *r)
{
    mark_phase(r, PLIM_PHASE_LOSS, PLIM_STR("loss"));
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("loss"), "out", PLIM_CAT_TEMPORARY);
    plim_t total = one_loss(r, r->out[0]);
    for (uint32_t i = 1; i < r->n_out && !plim_m_bad(r->m); i++) {
        plim_t aux = one_loss(r, r->out[i]), weight = plim_m_wrapped(r->m, true);
        plim_t part = plim_at_mul(r->m, aux, weight, false);
        plim_t sum = plim_at_add(r->m, total, part, false);
        plim_t done[] = {part, weight, aux, total};
        for (size_t k = 0; k < PLIM_COUNT(done); k++)
            plim_m_drop(r->m, done[k]);
        total = sum;
    }
    plim_m_set_category(r->m, total, PLIM_CAT_OUTPUT);
    plim_m_work_rest(r->m, PLIM_WORK_reduce);
    plim_m_drop(r->m, r->loss);
    r->loss = total;
}

/* ---- backward and step ------------------------------------------------------------------------ */

static void visit_backward(void *ud, uint32_t where, const char *fn)
{
    run *r = ud;
    plim_str name = where == PLIM_NONE ? PLIM_STR("loss") : node_name(r->g, where);
    const plim_mark *last = &r->tape->marks[r->tape->n_marks - 1];
    (void)fn;
    if (last->phase != PLIM_PHASE_BACKWARD || last->op.p != name.p)
        mark_phase(r, PLIM_PHASE_BACKWARD, name);
    plim_m_place(r->m, where, name, "grad", PLIM_CAT_TEMPORARY);
}

static void enter_autocast(run *r)
{
    if (r->s->autocast != PLIM_F32)
        plim_m_autocast(r->m, r->s->autocast);
}

static void forward_backward(run *r)
{
    plim_m_set_grad_mode(r->m, true);
    enter_autocast(r);
    run_forward(r);
    compute_loss(r);
    plim_m_autocast(r->m, PLIM_DTYPE_COUNT);
    if (!(r->keeps & PLIM_KEEP_OUTPUTS))
        release_tensors(r, r->out, r->g->n_outputs);
    mark_phase(r, PLIM_PHASE_BACKWARD, PLIM_STR("loss"));
    plim_t loss = plim_shared_loss(&r->shared, r->loss);
    plim_m_backward(r->m, loss, visit_backward, r);
    plim_shared_returned(&r->shared);
    plim_m_drop(r->m, loss);
    plim_m_set_grad_mode(r->m, false);
}

static void release_batch(run *r)
{
    if (r->keeps & PLIM_KEEP_INPUTS)
        return;
    release_tensors(r, r->now->x, MAX_INPUTS);
    release_tensors(r, &r->now->y, 1);
}

static void mark_optimizer(run *r)
{
    mark_phase(r, PLIM_PHASE_OPTIMIZER, plim_str_of(r->s->optim.optim->name));
}

/* The closure of an optimizer that runs the model; its locals are freed on return. */
static plim_t run_closure(void *ud)
{
    run *r = ud;
    zero_all_grads(r);
    forward_backward(r);
    mark_optimizer(r);
    if (r->s->clip)
        plim_optim_clip(&r->optim);
    release_tensors(r, r->out, r->g->n_outputs);
    plim_t got = r->loss;
    r->loss = 0;
    return got;
}

/* Gradients of one batch or of several, clipped if requested. */
static void run_passes(run *r)
{
    const plim_loop *loop = r->loop;
    uint32_t n = (uint32_t)r->s->accumulate;
    for (uint32_t k = 0; k < n && !plim_m_bad(r->m); k++) {
        if (!loop->fetch_all || !k)
            fetch_batches(r, loop->fetch_all ? n : 1);
        else
            r->now = &r->held[k];
        if (!k && !loop->zero_grad_last)
            zero_all_grads(r);
        r->shared.more_passes = k + 1 < n;
        forward_backward(r);
        if (!(r->keeps & PLIM_KEEP_LOSS))
            release_tensors(r, &r->loss, 1);
        release_batch(r);
    }
    if (!r->each)
        mark_optimizer(r);
    if (!plim_shared_step(&r->shared) && r->s->clip)
        plim_optim_clip(&r->optim);
}

static uint64_t tensor_bytes(const run *r, plim_t t)
{
    uint64_t bytes = 0;
    return t && plim_meta_bytes(plim_m_meta(r->m, t), &bytes) ? bytes : 0;
}

/* A step reads and writes every parameter and its state, and reads the gradient; temporaries
 * add what they take. */
static void record_optimizer(run *r, const plim_optim_run *o)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        const plim_optim_param *p = &o->params[i];
        plim_t grad = plim_m_grad(r->m, p->leaf);
        if (!grad)
            continue;
        bytes = plim_sat_add(bytes, plim_sat_add(plim_sat_mul(tensor_bytes(r, p->leaf), 2),
                                                 tensor_bytes(r, grad)));
        for (uint32_t k = 0; k < PLIM_OPTIM_MAX_STATES; k++)
            bytes = plim_sat_add(bytes, plim_sat_mul(tensor_bytes(r, p->state[k]), 2));
    }
    plim_m_place(r->m, PLIM_NONE, plim_str_of(o->spec->optim->name), NULL, PLIM_CAT_TEMPORARY);
    plim_m_work_rest(r->m, PLIM_WORK_optimizer);
    plim_m_work_bytes(r->m, PLIM_WORK_optimizer, o->n, bytes);
}

/* optimizer.step(); optimizer.zero_grad() of the leaf's own optimizer */
static void step_in_backward(void *ud, plim_t leaf)
{
    run *r = ud;
    plim_str layer = r->tape->marks[r->tape->n_marks - 1].op;
    uint32_t i = 0;
    while (i < r->optim.n && r->optim.params[i].leaf != leaf)
        i++;
    if (i == r->optim.n || plim_m_bad(r->m))
        return;
    mark_optimizer(r);
    plim_optim_step(&r->each[i]);
    record_optimizer(r, &r->each[i]);
    zero_grad(r, &r->each[i]);
    mark_phase(r, PLIM_PHASE_BACKWARD, layer);
    plim_m_place(r->m, PLIM_NONE, layer, "grad", PLIM_CAT_TEMPORARY);
}

static void train_step(run *r)
{
    bool runs_model = r->s->optim.optim->flags & PLIM_OPTIM_RUNS_MODEL;
    if (runs_model)
        fetch_batches(r, 1);
    else
        run_passes(r);
    if (!r->each) {
        plim_optim_step(&r->optim);
        record_optimizer(r, &r->optim);
    }
    plim_shared_step_end(&r->shared);
    if (r->s->ema.optim) {
        mark_phase(r, PLIM_PHASE_OPTIMIZER, PLIM_STR("ema"));
        plim_optim_step(&r->ema);
        record_optimizer(r, &r->ema);
    }
    if (r->loop->zero_grad_last)
        zero_all_grads(r);
    if (runs_model)
        release_batch(r);
}

static void infer_step(run *r)
{
    fetch_batches(r, 1);
    enter_autocast(r);
    run_forward(r);
    plim_m_autocast(r->m, PLIM_DTYPE_COUNT);
    if (!(r->keeps & PLIM_KEEP_OUTPUTS))
        release_tensors(r, r->out, r->g->n_outputs);
}

plim_status plim_step_run(plim_arena *a, const plim_graph *g, const plim_step_settings *s,
                          plim_tape *tape, plim_step_info *info, plim_err *err)
{
    run r = {.a = a, .g = g, .s = s, .tape = tape};
    if (g->n_inputs > MAX_INPUTS || g->n_outputs > MAX_OUTPUTS)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "%u inputs and %u outputs are over the limits of %d and %d",
                         (unsigned)g->n_inputs, (unsigned)g->n_outputs, MAX_INPUTS,
                         MAX_OUTPUTS);
    plim_world world = s->world;
    world.eval = s->infer;
    r.m = plim_m_new(a, tape, &world, err);
    r.value = PLIM_NEW_N(a, plim_t, g->n_values);
    r.out = PLIM_NEW_N(a, plim_t, (uint64_t)g->n_outputs + 1);
    r.held = PLIM_NEW_N(a, batch, s->accumulate);
    r.next = PLIM_NEW_N(a, batch, s->accumulate);
    if (!r.m || !r.value || !r.out || !r.held || !r.next ||
        !plim_step_release_plan(a, g, &r.plan))
        return plim_oom(err);
    plim_status st =
        s->infer ? PLIM_OK : plim_regions_find(a, g, s->checkpoint, &r.regions, err);
    if (st)
        return st;
    plim_tape_expect(tape,
                     g->n_values + PER_NODE * g->n_nodes * (uint32_t)PLIM_MIN(s->steps, 2));
    plim_m_on_recompute(r.m, recompute_region, recompute_backward, &r);
    load_model(&r);
    if ((st = wrap_model(&r, err)))
        return st;
    if (!s->infer) {
        choose_loss(&r);
    }
    choose_loop(&r);
    if (!s->infer) {
        if (s->ema.optim)
            make_ema(&r);
        make_optimizer(&r);
    }
    r.ledger = (plim_ledger){.arena = a, .graph = g};
    if (plim_share_exchanges(&s->share))
        r.ledger.untimed = "how long the cards exchange data is not known";
    for (r.step = 0; r.step < s->steps && !plim_m_bad(r.m); r.step++) {
        if (r.step == s->steps - 1)
            plim_m_record(r.m, &r.ledger);
        if (s->infer)
            infer_step(&r);
        else
            train_step(&r);
        if (s->empty_cache &&
            !plim_tape_event(tape, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE}))
            plim_m_oom(r.m);
    }
    if (info) {
        info->unknown_ops = plim_m_unknown_ops(r.m);
        info->loss = r.loss_kind;
        info->loop = r.loop;
        info->keeps = r.keeps;
        info->sms_matter = plim_m_sms_matter(r.m);
        info->ledger = r.ledger;
    }
    return plim_m_status(r.m);
}
