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
#include "core/region.h"
#include "op/rules.h"
#include "step/run.h"

enum { PER_NODE = 4 }; /* storages, both passes */

/* ---- load -------------------------------------------------------------------------- */

static plim_status load_model(plim_run *r, plim_err *err)
{
    bool from_host = r->s->share.strategy.flags & PLIM_FROM_HOST;
    uint32_t *order = NULL, n = plim_step_order(r->a, r->g, false, &order);
    if (n == PLIM_NONE)
        return plim_oom(err);
    r->step = -1;
    plim_run_mark(r, PLIM_PHASE_LOAD, PLIM_STR(""));
    plim_step_load(r->m, r->a, r->g, r->s->dtype, from_host, r->s->made_on_card, order, n,
                   r->value);
    if (r->s->made_on_card)
        plim_step_tie(r->m, r->g, r->s->dtype);
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

/* {p: AdamW([p]) for p in model.parameters()} */
static void split_optimizer(plim_run *r)
{
    plim_assert(!r->each);
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
}

/* Muon multiplies matrices, so a rank needs whole ones.  Of what a strategy cuts up, and of what
 * PyTorch's tensor parallelism shares out, only a part is here. */
static void check_matrices(plim_run *r, const uint32_t *ids)
{
    const plim_graph *g = r->g;
    const plim_shared *x = &r->shared;
    const plim_optim *o = r->s->optim.optim;
    bool cut = r->s->share.size[PLIM_AXIS_tp] > 1 || (x->n_masters && !x->plain) || x->on_host;
    for (uint32_t k = 0; k < r->n_leaves && !cut; k++) {
        uint64_t here, whole;
        cut = plim_meta_numel(plim_m_meta(r->m, r->leaf[k]), &here) &&
              plim_meta_numel(&g->values[ids[k]].meta, &whole) && here != whole;
    }
    if (cut)
        plim_m_fail(
            r->m, PLIM_EUNSUPPORTED,
            "optimizer '%s' is simulated where a rank has whole matrices: on one card, or "
            "with --dp and a strategy that leaves them whole, such as ddp",
            o->name);
}

static void make_optimizer(plim_run *r)
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
    const bool matrices = r->s->optim.optim->flags & PLIM_OPTIM_MATRIX;
    const bool *ends = matrices ? plim_find_ends(r->a, g) : NULL;
    bool *shared = PLIM_NEW_N(r->a, bool, g->n_values); /* it has a second name */
    bool *own = PLIM_NEW_N(r->a, bool, (uint64_t)g->n_values + 1);
    uint32_t *ids = PLIM_NEW_N(r->a, uint32_t, g->n_values);
    r->leaf = PLIM_NEW_N(r->a, plim_t, g->n_values);
    if (!o->params || !shared || !own || !ids || !r->leaf || (matrices && !ends)) {
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
    if (matrices)
        check_matrices(r, ids);
    const plim_strategy *by = r->shared.strategy;
    if (by && by->setup.choose)
        by->setup.choose(&r->shared, ids, r->n_leaves, own);
    for (uint32_t k = 0; k < r->shared.n_masters; k++)
        o->params[o->n++] =
            (plim_optim_param){.leaf = r->shared.master[k],
                               .name = PLIM_STR("master weights"),
                               .plain = !r->shared.plain || r->shared.plain[k]};
    bool elsewhere = r->shared.n_masters || r->shared.on_host;
    for (uint32_t k = 0; k < r->n_leaves && !elsewhere; k++)
        if (own[k])
            o->params[o->n++] = (plim_optim_param){
                .leaf = r->leaf[k],
                .name = g->values[ids[k]].name,
                .plain = matrices && (ends[plim_graph_owner(g, ids[k])] ||
                                      plim_m_meta(r->m, r->leaf[k])->rank != 2),
                .partial = !by && g->values[ids[k]].partial};
    if (o->spec->in_backward || plim_shared_in_parts(&r->shared))
        split_optimizer(r);
    else
        plim_optim_start(o);
    if (o->spec->in_backward) /* stepped by hooks */
        plim_m_on_grad(r->m, step_in_backward, r);
}

/* What a checkpoint is read into: zeros for gradients, and a step. */
static void make_states(plim_run *r)
{
    const plim_optim_run *o = &r->optim;
    for (uint32_t i = 0; i < o->n; i++)
        plim_m_set_grad(r->m, o->params[i].leaf, plim_m_empty_like(r->m, o->params[i].leaf));
    plim_optim_step(&r->optim);
    for (uint32_t i = 0; i < o->n; i++)
        plim_m_set_grad(r->m, o->params[i].leaf, 0);
}

/* All tensors of the model that are on the card, each once. */
static void make_ema(plim_run *r)
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

static void choose_loss(plim_run *r)
{
    const plim_graph *g = r->g;
    r->loss_kind = r->s->loss;
    r->n_out = g->n_outputs ? 1 : 0;
    if (!g->n_outputs) {
        plim_m_fail(r->m, PLIM_ESHAPE, "the model has no output");
        return;
    }
    const plim_meta *first = &g->values[g->outputs[0]].meta;
    if (g->part.n_chunks) { /* the last stage has the model's own */
        r->loss_kind = PLIM_LOSS_MODEL;
        return;
    }
    if (r->loss_kind == PLIM_LOSS_DEFAULT)
        r->loss_kind = g->denoises                                   ? PLIM_LOSS_MSE_FP32
                       : looks_like_logits(first)                    ? PLIM_LOSS_CROSS_ENTROPY
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

static void choose_loop(plim_run *r)
{
    r->loop = r->s->loop ? r->s->loop : plim_loop_usual(r->loss_kind == PLIM_LOSS_MODEL);
    plim_assert(r->loop);
    r->keeps = r->s->keeps_given ? r->s->keeps : r->loop->keeps;
}

/* ---- loss ----------------------------------------------------------------------------------- */

/* mse_loss(out.float(), target.float()) */
static plim_t mse_in_fp32(plim_run *r, plim_t out)
{
    plim_t wide = plim_at_to(r->m, out, PLIM_F32);
    plim_t target = plim_at_to(r->m, r->now->y, PLIM_F32);
    plim_t loss = plim_at_mse(r->m, wide, target, true);
    plim_m_drop(r->m, target);
    plim_m_drop(r->m, wide);
    return loss;
}

static plim_t one_loss(plim_run *r, plim_t out)
{
    plim_assert(r->loss_kind != PLIM_LOSS_DEFAULT);
    plim_machine *m = r->m;
    const plim_meta *om = plim_m_meta(m, out);
    if (r->loss_kind == PLIM_LOSS_MODEL)
        return plim_m_ref(m, out);
    if (r->loss_kind == PLIM_LOSS_MSE)
        return plim_at_mse(m, out, r->now->y, true);
    if (r->loss_kind == PLIM_LOSS_MSE_FP32)
        return mse_in_fp32(r, out);
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
static void compute_loss(plim_run *r)
{
    plim_assert(r->n_out > 0);
    plim_run_mark(r, PLIM_PHASE_LOSS, PLIM_STR("loss"));
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
    plim_m_work_rest(r->m, PLIM_WORK_loss);
    plim_m_drop(r->m, r->loss);
    r->loss = total;
}

/* ---- backward and step ------------------------------------------------------------------------ */

static void enter_autocast(plim_run *r)
{
    if (r->s->autocast != PLIM_F32)
        plim_m_autocast(r->m, r->s->autocast);
}

static void release_batch(plim_run *r)
{
    if (r->keeps & PLIM_KEEP_INPUTS)
        return;
    plim_run_release(r, r->now->x, PLIM_RUN_INPUTS);
    plim_run_release(r, &r->now->y, 1);
}

/* with context_parallel(...): each input is rearranged and divided.  Copies of the parts go into the
 * inputs' storage; they themselves and the last copy are variables, until the block ends.
 * src: torch 2.13 torch/distributed/tensor/experimental/_context_parallel/_attention.py */
static void enter_context(plim_run *r)
{
    plim_t *copy = &r->divided[PLIM_RUN_INPUTS];
    for (uint32_t i = 0; r->g->part.contexts > 1 && i < r->g->n_inputs; i++) {
        plim_m_place(r->m, PLIM_NONE, r->g->values[r->g->inputs[i]].name, "part",
                     PLIM_CAT_INPUT);
        plim_meta part = *plim_m_meta(r->m, r->now->x[i]);
        plim_t whole = plim_m_empty(r->m, &part);
        plim_assert(part.rank > 0);
        part.dim[part.rank - 1] /= r->g->part.contexts;
        plim_meta_contiguous(&part);
        r->divided[i] = plim_m_empty(r->m, &part);
        plim_m_drop(r->m, whole);
    }
    for (uint32_t i = 0; r->g->part.contexts > 1 && i < r->g->n_inputs; i++) {
        plim_t next = plim_m_empty_like(r->m, r->divided[i]);
        plim_run_release(r, copy, 1);
        *copy = next;
    }
}

static void forward_backward(plim_run *r)
{
    enter_context(r);
    plim_m_set_grad_mode(r->m, true);
    enter_autocast(r);
    plim_run_forward(r);
    compute_loss(r);
    plim_m_autocast(r->m, PLIM_DTYPE_COUNT);
    if (!(r->keeps & PLIM_KEEP_OUTPUTS))
        plim_run_release(r, r->out, r->g->n_outputs);
    if (r->loop->local_inputs)
        release_batch(r);
    plim_run_mark(r, PLIM_PHASE_BACKWARD, PLIM_STR("loss"));
    plim_t loss = plim_scaler_scale(&r->scaler, plim_shared_loss(&r->shared, r->loss));
    plim_m_backward(r->m, loss, 0, plim_run_visit, r);
    plim_shared_returned(&r->shared);
    plim_m_drop(r->m, loss);
    plim_m_set_grad_mode(r->m, false);
    plim_run_release(r, r->divided, PLIM_COUNT(r->divided));
}

static void mark_optimizer(plim_run *r)
{
    plim_run_mark(r, PLIM_PHASE_OPTIMIZER, plim_str_of(r->s->optim.optim->name));
}

/* The closure of an optimizer that runs the model; its locals are freed on return. */
static plim_t run_closure(void *ud)
{
    plim_run *r = ud;
    plim_run_zero_grads(r);
    forward_backward(r);
    mark_optimizer(r);
    if (r->s->clip)
        plim_optim_clip(&r->optim);
    plim_run_release(r, r->out, r->g->n_outputs);
    plim_t got = r->loss;
    r->loss = 0;
    return got;
}

static void run_batches(plim_run *r)
{
    const plim_loop *loop = r->loop;
    uint32_t n = (uint32_t)r->s->accumulate;
    for (uint32_t k = 0; k < n && !plim_m_bad(r->m); k++) {
        if (!loop->fetch_all || !k)
            plim_run_fetch(r, loop->fetch_all ? n : 1);
        else
            r->now = &r->held[k];
        if (!k && !loop->zero_grad_last)
            plim_run_zero_grads(r);
        r->shared.more_passes = k + 1 < n;
        forward_backward(r);
        if (!(r->keeps & PLIM_KEEP_LOSS))
            plim_run_release(r, &r->loss, 1);
        release_batch(r);
    }
}

/* Gradients of one batch or of several, clipped if requested. */
static void run_passes(plim_run *r)
{
    (r->pipeline ? plim_run_pipeline : run_batches)(r);
    if (!r->s->optim.in_backward)
        mark_optimizer(r);
    if (!plim_shared_step(&r->shared) && r->s->clip) {
        plim_scaler_unscale(&r->scaler, &r->optim);
        plim_optim_clip(&r->optim);
    }
}

static uint64_t tensor_bytes(const plim_run *r, plim_t t)
{
    uint64_t bytes = 0;
    return t && plim_meta_bytes(plim_m_meta(r->m, t), &bytes) ? bytes : 0;
}

/* A step reads and writes every parameter and its state, and reads the gradient; temporaries
 * add what they take. */
static void record_optimizer(plim_run *r, const plim_optim_run *o)
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
    plim_m_work_rest(r->m, PLIM_WORK_optimizer_temporary);
    plim_m_work_bytes(r->m,
                      o->spec->impl == PLIM_IMPL_FUSED ? PLIM_WORK_optimizer_fused
                                                       : PLIM_WORK_optimizer,
                      o->n, bytes);
}

static void zero_grad(plim_run *r, const plim_optim_run *o)
{
    for (uint32_t i = 0; i < o->n; i++)
        plim_run_clear_grad(r, o->params[i].leaf);
}

/* optimizer.step(); optimizer.zero_grad() of the leaf's own optimizer */
static void step_in_backward(void *ud, plim_t leaf)
{
    plim_run *r = ud;
    plim_assert(r->each && r->tape->n_marks > 0);
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
    plim_run_mark(r, PLIM_PHASE_BACKWARD, layer);
    plim_m_place(r->m, PLIM_NONE, layer, "grad", PLIM_CAT_TEMPORARY);
}

static void step_optimizer(plim_run *r)
{
    bool parts = r->each != NULL;
    plim_scaler_begin_step(&r->scaler, &r->optim);
    for (uint32_t i = 0; i < (parts ? r->optim.n : 1); i++) {
        plim_optim_run *o = parts ? &r->each[i] : &r->optim;
        if (parts)
            plim_shared_part(&r->shared, i);
        plim_optim_step(o);
        record_optimizer(r, o);
        if (parts)
            plim_shared_part_end(&r->shared, i);
    }
    plim_scaler_update(&r->scaler);
}

static void train_step(plim_run *r)
{
    plim_assert(!r->s->infer && r->loop);
    bool runs_model = r->s->optim.optim->flags & PLIM_OPTIM_RUNS_MODEL;
    if (runs_model)
        plim_run_fetch(r, 1);
    else
        run_passes(r);
    if (!r->s->optim.in_backward)
        step_optimizer(r);
    plim_shared_step_end(&r->shared);
    if (r->s->ema.optim) {
        plim_run_mark(r, PLIM_PHASE_OPTIMIZER, PLIM_STR("ema"));
        plim_optim_step(&r->ema);
        record_optimizer(r, &r->ema);
    }
    if (r->loop->zero_grad_last)
        plim_run_zero_grads(r);
    if (runs_model)
        release_batch(r);
}

static void infer_step(plim_run *r)
{
    plim_assert(r->s->infer);
    plim_run_fetch(r, 1);
    enter_autocast(r);
    plim_run_forward(r);
    plim_m_autocast(r->m, PLIM_DTYPE_COUNT);
    if (!(r->keeps & PLIM_KEEP_OUTPUTS))
        plim_run_release(r, r->out, r->g->n_outputs);
}

/* What is allocated before the run, and the model as the settings have it checkpointed. */
static plim_status prepare_run(plim_run *r, plim_err *err)
{
    const plim_graph *g = r->g;
    const plim_step_settings *s = r->s;
    const plim_strategy_spec *by = &s->share.strategy;
    plim_world world = s->world;
    plim_assert(s->accumulate > 0 && s->steps > 0);
    if (g->n_inputs > PLIM_RUN_INPUTS || g->n_outputs > PLIM_RUN_OUTPUTS)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "%u inputs and %u outputs are over the limits of %d and %d",
                         (unsigned)g->n_inputs, (unsigned)g->n_outputs, PLIM_RUN_INPUTS,
                         PLIM_RUN_OUTPUTS);
    world.eval = s->infer;
    r->m = plim_m_new(r->a, r->tape, &world, err);
    r->value = PLIM_NEW_N(r->a, plim_t, g->n_values);
    r->out = PLIM_NEW_N(r->a, plim_t, (uint64_t)g->n_outputs + 1);
    r->held = PLIM_NEW_N(r->a, plim_batch, s->accumulate);
    r->next = PLIM_NEW_N(r->a, plim_batch, s->accumulate);
    if (!r->m || !r->value || !r->out || !r->held || !r->next ||
        !plim_step_release_plan(r->a, g, &r->plan))
        return plim_oom(err);
    if (!s->infer)
        PLIM_TRY(plim_regions_find(r->a, g, s->checkpoint, &r->regions, err));
    if (r->regions.n && r->regions.reentrant && by->flags & PLIM_WANTS_SAVED)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "with strategy '%s', reentrant checkpoints are not simulated: leave "
                         "out 'reentrant', as PyTorch recommends",
                         by->name);
    plim_tape_expect(r->tape,
                     g->n_values + PER_NODE * g->n_nodes * (uint32_t)PLIM_MIN(s->steps, 2));
    r->tape->ends = s->ends;
    r->tape->ends_ud = s->ends_ud;
    plim_run_recomputes(r);
    return PLIM_OK;
}

/* The loss, the loop, averages and the optimizer, once the model is loaded. */
static void set_up_training(plim_run *r)
{
    plim_run_pipelined(r);
    if (!r->s->infer)
        choose_loss(r);
    choose_loop(r);
    if (!r->s->infer) {
        if (r->s->ema.optim)
            make_ema(r);
        make_optimizer(r);
        if (r->shared.dry_step)
            make_states(r);
    }
    r->scaler = (plim_scaler){.on = r->s->grad_scaler, .m = r->m};
    r->ledger = (plim_ledger){.arena = r->a, .graph = r->g};
    if (plim_share_exchanges(&r->s->share))
        r->ledger.untimed = "how long the cards exchange data is not known";
}

static void run_steps(plim_run *r)
{
    const plim_step_settings *s = r->s;
    for (r->step = 0; r->step < s->steps && !plim_m_bad(r->m); r->step++) {
        if (r->step == s->steps - 1 && !s->untimed)
            plim_m_record(r->m, &r->ledger);
        if (s->infer)
            infer_step(r);
        else
            train_step(r);
        if (s->empty_cache &&
            !plim_tape_event(r->tape, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE}))
            plim_m_oom(r->m);
    }
}

plim_status plim_step_run(plim_arena *a, const plim_graph *g, const plim_step_settings *s,
                          plim_tape *tape, plim_step_info *info, plim_err *err)
{
    plim_run r = {.a = a, .g = g, .s = s, .tape = tape, .loss_at = PLIM_NONE};
    PLIM_TRY(prepare_run(&r, err));
    PLIM_TRY(load_model(&r, err));
    set_up_training(&r);
    run_steps(&r);
    if (info) {
        info->unknown_ops = plim_m_unknown_ops(r.m);
        info->loss = r.loss_kind;
        info->loop = r.loop;
        info->keeps = r.keeps;
        info->asked = plim_m_asked(r.m);
        info->ledger = r.ledger;
    }
    return plim_m_status(r.m);
}
