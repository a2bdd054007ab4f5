/* job.c -- see job.h. */
#include "fit/job.h"

#include "base/fmt.h"

/* ---- words to values -------------------------------------------------------- */

typedef struct word {
    const char *name;
    int value;
} word;

static const word losses[] = {{"cross_entropy", PLIM_LOSS_CROSS_ENTROPY},
                              {"mse", PLIM_LOSS_MSE},
                              {"bce", PLIM_LOSS_BCE},
                              {"sum", PLIM_LOSS_SUM},
                              {"model", PLIM_LOSS_MODEL}};
static const word zero_grads[] = {{"none", false}, {"zeros", true}};
static const word workspaces[] = {{"auto", PLIM_BOUND_USUAL},
                                  {"off", -1},
                                  {"low", PLIM_BOUND_LOW},
                                  {"high", PLIM_BOUND_HIGH}};

/* Leaves *out alone where nothing was given; *name is the table's own string. */
static plim_status word_find(const char *what, const char *given, const word *table, size_t n,
                             int *out, const char **name, plim_err *err)
{
    if (!given)
        return PLIM_OK;
    const word *w = plim_row_find(what, given, table, n, sizeof *table, err);
    if (!w)
        return PLIM_EUSAGE;
    *out = w->value;
    *name = w->name;
    return PLIM_OK;
}

static plim_status read_dtype(plim_job *job, const char *given, plim_err *err)
{
    plim_dtype t;
    job->step.dtype = PLIM_DTYPE_COUNT;
    if (!given)
        return PLIM_OK;
    if (!plim_dtype_find(plim_str_of(given), &t) ||
        (t != PLIM_F32 && t != PLIM_F16 && t != PLIM_BF16 && t != PLIM_F64))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "unknown dtype '%s': known are fp32, fp16, bf16, fp64", given);
    job->step.dtype = t;
    job->dtype = plim_dtype_rows[t].name;
    return PLIM_OK;
}

static plim_status read_autocast(plim_job *job, const char *given, plim_err *err)
{
    plim_dtype t = PLIM_F32;
    if (given &&
        (!plim_dtype_find(plim_str_of(given), &t) || (t != PLIM_F16 && t != PLIM_BF16)))
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown autocast '%s': known are fp16, bf16",
                         given);
    job->step.autocast = t;
    job->autocast = given ? plim_dtype_rows[t].name : NULL;
    return PLIM_OK;
}

static plim_status in_range(const char *what, int64_t v, int64_t max, plim_err *err)
{
    if (v >= 0 && v <= max)
        return PLIM_OK;
    return plim_fail(err, PLIM_EUSAGE, 0, "%s %" PRId64 " is not in 1..%" PRId64, what, v,
                     max);
}

enum { MAX_STEPS = 1000 };
#define MAX_BATCH ((int64_t)1 << 32)

static plim_status read_numbers(plim_job *job, const plim_settings *s, plim_err *err)
{
    plim_status st = in_range("batch", s->batch, MAX_BATCH, err);
    if (!st)
        st = in_range("seq", s->seq, MAX_BATCH, err);
    if (!st)
        st = in_range("steps", s->steps, MAX_STEPS, err);
    if (!st)
        st = in_range("accumulate", s->accumulate, MAX_STEPS, err);
    job->bind.batch = s->batch;
    job->bind.seq = s->seq;
    job->bind.infer = s->infer;
    job->step.infer = s->infer;
    job->step.steps = s->steps;
    job->step.accumulate = s->accumulate ? s->accumulate : 1;
    job->step.clip = s->clip;
    return st;
}

/* What the optimizer says about the loop around it. */
static plim_status fit_optimizer(plim_step_settings *step, plim_err *err)
{
    const plim_optim *o = step->optim.optim;
    if (!step->steps)
        step->steps =
            step->infer ? 2 : PLIM_MIN(plim_optim_steady_steps(&step->optim), MAX_STEPS);
    if (o->flags & PLIM_OPTIM_RUNS_MODEL && step->accumulate > 1)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'%s' runs the model within its step: 'accumulate' cannot be %d",
                         o->name, step->accumulate);
    return PLIM_OK;
}

static plim_status one_batch(const plim_binding *b, plim_err *err)
{
    bool first = b->n_inputs && !b->inputs[0].name.n && b->inputs[0].rank;
    int64_t given = first ? b->inputs[0].dim[0] : b->batch;
    if (!b->batch || given == b->batch)
        return PLIM_OK;
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "batch is %" PRId64 " and the first size of the input %" PRId64
                     ": give one",
                     b->batch, given);
}

static plim_status read_card(plim_job *job, const plim_settings *s, plim_err *err)
{
    enum { SMALLEST = 1 << 20 };
    plim_status st = PLIM_OK;
    const plim_gpu *gpu = NULL;
    if (s->vram && s->vram < SMALLEST)
        return plim_fail(err, PLIM_EUSAGE, 0, "a card of %s: write 24GiB, not 24",
                         plim_fmt_bytes(s->vram, false).s);
    if (s->gpu)
        st = plim_gpu_find(plim_str_of(s->gpu), &gpu, err);
    if (!st && s->vram && gpu) { /* that card with another memory */
        job->generic = *gpu;
        job->generic.memory_bytes = s->vram;
        job->generic.memory_kind = PLIM_GPU_GIVEN;
    } else if (!st && s->vram) {
        st = plim_gpu_generic(job->arena, s->vram, &job->generic, err);
    }
    if (s->vram)
        gpu = &job->generic;
    plim_job_on(job, gpu);
    return st;
}

static plim_status read_loop(plim_step_settings *step, const plim_settings *s, plim_err *err)
{
    plim_status st = plim_loop_find(s->loop, &step->loop, err);
    if (st)
        return st;
    step->keeps = step->loop->keeps;
    step->clip |= step->loop->clip;
    return s->keep ? plim_loop_keeps(s->keep, &step->keeps, err) : PLIM_OK;
}

plim_status plim_job_open(plim_job *job, plim_arena *a, const char *model,
                          const plim_settings *s, plim_err *err)
{
    int loss = PLIM_LOSS_DEFAULT, ws = PLIM_BOUND_USUAL;
    const char *loss_name = NULL;
    int zeros = false;
    *job = (plim_job){.arena = a, .given = s, .workspace = "auto"};
    plim_step_settings *step = &job->step;
    plim_status st = read_numbers(job, s, err);
    if (!st)
        st = read_dtype(job, s->dtype, err);
    if (!st)
        st = read_autocast(job, s->autocast, err);
    if (!st)
        st = word_find("loss", s->loss, losses, PLIM_COUNT(losses), &loss, &loss_name, err);
    if (!st)
        st = read_loop(step, s, err);
    if (!st)
        st = word_find("workspace", s->workspace, workspaces, PLIM_COUNT(workspaces), &ws,
                       &job->workspace, err);
    if (!st)
        st = plim_optim_parse(plim_str_of(s->optimizer ? s->optimizer : "sgd"), &step->optim,
                              err);
    if (!st)
        st = plim_ema_parse(plim_str_of(s->ema ? s->ema : "none"), &step->ema, err);
    if (!st)
        st = fit_optimizer(step, err);
    step->checkpoint = plim_str_of(s->checkpoint ? s->checkpoint : "none");
    step->torch = plim_torch_newest();
    if (!st && s->torch)
        st = plim_torch_find(plim_str_of(s->torch), &step->torch, err);
    zeros = !step->torch->zero_grad_to_none;
    job->zero_grad = zero_grads[zeros].name;
    if (!st)
        st = word_find("zero_grad", s->zero_grad, zero_grads, PLIM_COUNT(zero_grads), &zeros,
                       &job->zero_grad, err);
    if (!st)
        st = plim_binding_inputs(a, s->input, &job->bind, err);
    if (!st)
        st = plim_binding_dims(a, s->dims, &job->bind, err);
    if (!st)
        st = one_batch(&job->bind, err);
    step->loss = (plim_loss_kind)loss;
    step->zero_grad_keeps = zeros;
    step->world.workspace = ws >= 0;
    job->bound = ws < 0 ? PLIM_BOUND_USUAL : (plim_bound)ws;
    if (!st)
        st = read_card(job, s, err);
    job->alloc.torch = step->torch->version;
    job->alloc.conf = plim_str_of(s->alloc_conf ? s->alloc_conf : "");
    if (!st)
        st = plim_model_open(&job->model, a, model, err);
    return st;
}

void plim_job_close(plim_job *job) { plim_model_close(&job->model); }

/* ---- running ------------------------------------------------------------------ */

void plim_job_on(plim_job *job, const plim_gpu *gpu)
{
    const plim_torch *torch = job->step.torch;
    plim_world *w = &job->step.world;
    job->gpu = gpu;
    w->torch = torch->version;
    w->cc = gpu && gpu->cc ? gpu->cc : 80;
    w->sms = gpu ? gpu->sms : 0;
    w->threads_per_sm = gpu ? plim_gpu_threads_per_sm(gpu->cc) : 0;
    w->cublas_ws = plim_torch_cublas_bytes(torch, w->cc);
    w->cublas_ws_temporary = torch->blas == PLIM_WS_TEMP;
    w->lt_ws = torch->lt == PLIM_WS_NONE ? 0 : PLIM_LT_WORKSPACE_BYTES;
    w->lt_ws_temporary = torch->lt == PLIM_WS_TEMP;
}

plim_status plim_job_graph(const plim_job *job, int64_t batch, plim_arena *a, plim_graph *g,
                           plim_err *err)
{
    plim_binding bind = job->bind;
    if (batch && bind.n_inputs) { /* of the shapes given, the batch alone is another */
        struct plim_input_shape *in = PLIM_NEW_N(a, struct plim_input_shape, bind.n_inputs);
        if (!in)
            return plim_oom(err);
        for (uint32_t i = 0; i < bind.n_inputs; i++) {
            in[i] = bind.inputs[i];
            if (in[i].rank && in[i].dim[0] == bind.inputs[0].dim[0])
                in[i].dim[0] = batch;
        }
        bind.inputs = in;
    }
    if (batch)
        bind.batch = batch;
    return plim_model_graph(&job->model, &bind, a, g, err);
}

static void settle(plim_tape *t, plim_bound b)
{
    for (uint32_t i = 0; i < t->n_storages; i++) {
        t->storages[i].bytes = plim_storage_bytes(&t->storages[i], b);
        t->storages[i].low = t->storages[i].high = 0;
    }
}

plim_status plim_job_tape(const plim_job *job, const plim_graph *g, plim_arena *a,
                          plim_tape *t, plim_step_info *info, plim_err *err)
{
    plim_tape_init(t, a);
    plim_status st = plim_step_run(a, g, &job->step, t, info, err);
    if (!st && job->bound != PLIM_BOUND_USUAL)
        settle(t, job->bound);
    return st;
}
