/* rules_fused.c -- cross entropy fused with the linear layer that makes the logits: they exist for a chunk
 * of rows at a time, and the gradients are made in the forward pass.
 *
 * src: torch 2.13 nn/modules/linear_cross_entropy.py, linear_cross_entropy_options.py; liger-kernel 0.8.5
 * ops/fused_linear_cross_entropy.py */
#include "op/rules.h"

enum { INPUT, WEIGHT, TARGET, BIAS }; /* of the schema */
enum { IN_INPUT, IN_WEIGHT, IN_BIAS, INS };

enum { MOST_CHUNKS = 1 << 16 };

typedef struct fused {
    plim_machine *m;
    int64_t rows, in, classes, chunk;
    plim_dtype t;   /* of input and weight */
    plim_dtype sum; /* in which is added up */
    bool has_bias, wants[INS];
    plim_t grad[INS]; /* 0: not wanted */
} fused;

/* The gradients that the forward pass made, times that of the loss, in place. */
static void fused_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    for (uint32_t i = 0; i < INS; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_ref(m, plim_m_saved(m, n, i));
}

/* PyTorch's op returns the gradients with the loss: autograd gives it zeros for theirs. */
static void torch_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t zeros[INS];
    fused_backward(m, n, g, dx);
    for (uint32_t i = 0; i < INS; i++)
        zeros[i] = dx[i] ? plim_m_empty_like(m, dx[i]) : 0;
    for (uint32_t i = INS; i-- > 0;)
        plim_m_drop(m, zeros[i]);
}
static const plim_grad_fn torch_fn = {"_linear_cross_entropy_batch_chunkedBackward",
                                      torch_backward};
static const plim_grad_fn liger_fn = {"LigerFusedLinearCrossEntropyFunctionBackward",
                                      fused_backward};

static plim_t make_tensor(const fused *f, plim_dtype t, int64_t rows, int64_t columns)
{
    int64_t dim[] = {rows, columns};
    return plim_m_empty_contig(f->m, t, columns ? 2 : rows ? 1 : 0, dim);
}
static plim_t make_scalar(const fused *f, plim_dtype t) { return make_tensor(f, t, 0, 0); }

/* Lives for a moment. */
static void take_briefly(const fused *f, plim_dtype t, int64_t rows, int64_t columns)
{
    plim_m_drop(f->m, make_tensor(f, t, rows, columns));
}

static int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* So many rows that their logits take about what all rows take of the input: a power of two. */
static int64_t choose_chunk(const fused *f)
{
    int64_t least = divide_up(f->rows, divide_up(f->classes, f->in)), chunk = 1;
    while (chunk < least && chunk <= INT64_MAX / 2)
        chunk *= 2;
    return chunk;
}

static void multiply_rows(const fused *f, int64_t rows)
{
    plim_m_product(
        f->m, PLIM_WORK_gemm,
        plim_sat_mul(plim_sat_mul((uint64_t)rows, (uint64_t)f->in), (uint64_t)f->classes),
        f->t);
    plim_m_gemm(f->m, false);
}

static bool read_call(plim_call *c, fused *f)
{
    plim_machine *m = f->m = c->m;
    plim_t in[INS] = {plim_arg_tensor(c, INPUT), plim_arg_tensor(c, WEIGHT),
                      plim_arg_tensor(c, BIAS)};
    const plim_meta *x = plim_m_meta(m, in[IN_INPUT]), *w = plim_m_meta(m, in[IN_WEIGHT]);
    char a[96], b[96];
    if (x->rank != 2 || w->rank != 2 || x->dim[1] != w->dim[1] || x->dim[0] < 1 ||
        x->dim[1] < 1 || w->dim[0] < 1) {
        plim_m_fail(m, PLIM_ESHAPE, "cross entropy: input %s and weight %s do not match",
                    plim_meta_str(x, a, sizeof a), plim_meta_str(w, b, sizeof b));
        return false;
    }
    if (x->dtype != w->dtype) {
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "a fused cross entropy has no rule for an input in %s and a weight in %s",
                    plim_dtype_name(x->dtype), plim_dtype_name(w->dtype));
        return false;
    }
    f->rows = x->dim[0];
    f->in = x->dim[1];
    f->classes = w->dim[0];
    f->t = x->dtype;
    f->sum = f->t == PLIM_F16 || f->t == PLIM_BF16 ? PLIM_F32 : f->t;
    for (uint32_t i = 0; i < INS; i++)
        f->wants[i] = in[i] && plim_m_would_record(m, 1, &in[i]);
    f->has_bias = in[IN_BIAS] != 0;
    return true;
}

static bool set_chunk(fused *f, int64_t chunk)
{
    f->chunk = PLIM_MAX(1, PLIM_MIN(chunk, f->rows));
    if (f->rows / f->chunk <= MOST_CHUNKS)
        return true;
    plim_m_fail(f->m, PLIM_EUNSUPPORTED,
                "a fused cross entropy of %" PRId64 " classes and %" PRId64
                " features takes more than %d chunks of rows",
                f->classes, f->in, (int)MOST_CHUNKS);
    return false;
}

/* Runs `forward`, which makes the loss and the gradients. */
static void run_fused(plim_call *c, const plim_grad_fn *fn, plim_t (*forward)(fused *f))
{
    fused f = {0};
    if (!read_call(c, &f))
        return;
    plim_t in[INS] = {plim_arg_tensor(c, INPUT), plim_arg_tensor(c, WEIGHT),
                      plim_arg_tensor(c, BIAS)};
    plim_gnode *n = plim_m_node(f.m, fn, INS, in);
    bool mode = plim_m_grad_mode(f.m);
    plim_m_set_grad_mode(f.m, false);
    plim_t loss = forward(&f);
    plim_m_set_grad_mode(f.m, mode);
    if (!loss)
        return;
    for (uint32_t i = 0; i < INS; i++) {
        plim_m_save(f.m, n, i, f.grad[i]);
        plim_m_drop(f.m, f.grad[i]);
    }
    plim_m_output(f.m, n, 0, loss);
    plim_ret(c, loss);
}

/* ---- torch.nn.functional.linear_cross_entropy -------------------------------------------- */

/* Of all rows: which are ignored, classes without them, and minus their weights in the mean. */
typedef struct weighing {
    plim_t ignored, target, weight;
} weighing;

static weighing weigh_rows(const fused *f)
{
    weighing w;
    w.ignored = make_tensor(f, PLIM_BOOL, f->rows, 0);
    plim_t zero = make_scalar(f, PLIM_I64);
    w.target = make_tensor(f, PLIM_I64, f->rows, 0);
    plim_m_drop(f->m, zero);
    plim_t used = make_tensor(f, PLIM_BOOL, f->rows, 0);
    w.weight = make_tensor(f, f->sum, f->rows, 0);
    plim_m_drop(f->m, used);
    const plim_dtype count[] = {f->sum, PLIM_BOOL, f->sum, f->sum, f->sum};
    plim_t part[PLIM_COUNT(count)]; /* the sum, whether it is 0, minus it, NaN, one of both */
    for (size_t i = 0; i < PLIM_COUNT(count); i++)
        part[i] = make_scalar(f, count[i]);
    for (size_t i = 0; i < PLIM_COUNT(count); i++)
        plim_m_drop(f->m, part[i]);
    return w;
}

/* What a chunk leaves to the next one, whose own is made before it is dropped. */
typedef struct kept {
    plim_t denominator, logits; /* these in the type of the gradient */
} kept;

static void replace_held(const fused *f, plim_t *held, plim_t by)
{
    plim_m_drop(f->m, *held);
    *held = by;
}

static void run_chunk(fused *f, int64_t rows, plim_dtype logits, kept *k)
{
    multiply_rows(f, rows);
    plim_t target = make_tensor(f, logits, rows, 1);
    plim_t cast = logits != f->sum ? make_tensor(f, f->sum, rows, 0) : 0;
    take_briefly(f, f->sum, 0, 0);
    plim_m_drop(f->m, cast);
    plim_m_drop(f->m, target);
    replace_held(f, &k->denominator, make_tensor(f, f->sum, rows, 0));
    take_briefly(f, f->sum, 0, 0);
    if (f->wants[IN_BIAS])
        take_briefly(f, f->sum, f->classes, 0);
    bool casts = logits != f->t && (f->wants[IN_INPUT] || f->wants[IN_WEIGHT]);
    if (casts && f->wants[IN_INPUT])
        replace_held(f, &k->logits, make_tensor(f, f->t, rows, f->classes));
    if (f->wants[IN_INPUT]) {
        plim_t picked = make_tensor(f, f->t, rows, f->in);
        if (f->sum != f->t)
            take_briefly(f, f->t, rows, 0);
        plim_m_drop(f->m, picked);
        multiply_rows(f, rows);
    }
    if (casts && !f->wants[IN_INPUT]) {
        replace_held(f, &k->logits, 0); /* with the chunk before */
        k->logits = make_tensor(f, f->t, rows, f->classes);
    }
    if (f->wants[IN_WEIGHT])
        multiply_rows(f, rows);
    /* the scaled input takes the place of the logits, if it fits there */
    bool fits = plim_sat_mul((uint64_t)f->classes, plim_dtype_bytes(logits)) >=
                plim_sat_mul((uint64_t)f->in, plim_dtype_bytes(f->t));
    if (f->wants[IN_WEIGHT] && !fits)
        take_briefly(f, f->t, rows, f->in);
    if (f->wants[IN_BIAS] && f->sum != f->t)
        take_briefly(f, f->t, f->classes, 0);
}

/* acc_policy "compact", chunking_method "aspect_ratio:2": what LinearCrossEntropyOptions() is on a card. */
static plim_t forward_torch(fused *f)
{
    plim_machine *m = f->m;
    plim_dtype logits = f->t == PLIM_BF16 ? PLIM_F32 : f->t;
    if (!set_chunk(f, choose_chunk(f) / 2))
        return 0;
    plim_t held[] = {make_tensor(f, logits, f->chunk, f->classes),
                     make_tensor(f, logits, f->chunk, 0), 0, 0, 0};
    plim_t loss = make_scalar(f, f->t == PLIM_F16 ? f->sum : f->t);
    if (f->wants[IN_INPUT])
        f->grad[IN_INPUT] = make_tensor(f, f->t, f->rows, f->in);
    if (f->wants[IN_WEIGHT])
        f->grad[IN_WEIGHT] = make_tensor(f, f->t, f->classes, f->in);
    if (f->wants[IN_BIAS])
        f->grad[IN_BIAS] = make_tensor(f, f->t, f->classes, 0);
    if (f->has_bias && logits != f->t)
        held[2] = make_tensor(f, logits, f->classes, 0);
    weighing w = weigh_rows(f);
    if (f->sum != f->t && f->wants[IN_WEIGHT])
        held[3] = make_tensor(f, f->sum, f->chunk, f->in);
    if (f->sum != f->t && f->wants[IN_BIAS])
        held[4] = make_tensor(f, f->sum, f->classes, 0);
    kept k = {0};
    for (int64_t at = 0; at < f->rows && !plim_m_bad(m); at += f->chunk)
        run_chunk(f, PLIM_MIN(f->chunk, f->rows - at), logits, &k);
    plim_t all[] = {k.denominator, k.logits, w.weight, w.target, w.ignored};
    if (f->t == PLIM_F16)
        replace_held(f, &loss, make_scalar(f, f->t));
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    for (size_t i = 0; i < PLIM_COUNT(held); i++)
        plim_m_drop(m, held[i]);
    return loss;
}

void plim_run_linear_cross_entropy(plim_call *c) { run_fused(c, &torch_fn, forward_torch); }

/* ---- Liger ------------------------------------------------------------------------------------ */

/* Products add to the gradient of the weight in place, except in fp32 and on cards before Ampere. */
static void add_weight_gradient(const fused *f)
{
    enum { AMPERE = 80 };
    bool half = f->sum != f->t;
    if (half && plim_world_since(plim_m_world(f->m), AMPERE))
        return;
    plim_t product = make_tensor(f, f->t, f->classes, f->in);
    if (half)
        take_briefly(f, f->sum, f->classes, f->in);
    plim_m_drop(f->m, product);
}

static plim_t forward_liger(fused *f)
{
    plim_machine *m = f->m;
    if (!set_chunk(f, choose_chunk(f)))
        return 0;
    plim_t input = f->grad[IN_INPUT] = make_tensor(f, f->t, f->rows, f->in);
    if (f->wants[IN_INPUT] && f->wants[IN_WEIGHT])
        f->grad[IN_WEIGHT] = make_tensor(f, f->t, f->classes, f->in);
    if (f->wants[IN_INPUT] && f->wants[IN_BIAS])
        f->grad[IN_BIAS] = make_tensor(f, f->t, f->classes, 0);
    plim_t each = make_tensor(f, PLIM_F32, f->rows, 0),
           used = make_tensor(f, PLIM_BOOL, f->rows, 0);
    take_briefly(f, PLIM_I64, 0, 0);
    plim_t logits = make_tensor(f, f->t, f->chunk, f->classes);
    for (int64_t at = 0; at < f->rows && !plim_m_bad(m); at += f->chunk) {
        int64_t rows = PLIM_MIN(f->chunk, f->rows - at);
        for (int k = 0; k < 1 + f->wants[IN_INPUT] + f->wants[IN_WEIGHT]; k++)
            multiply_rows(f, rows);
        if (f->grad[IN_WEIGHT])
            add_weight_gradient(f);
        if (f->grad[IN_BIAS])
            take_briefly(f, f->t, f->classes, 0);
    }
    plim_m_drop(m, logits);
    plim_t loss = make_scalar(f, PLIM_F32);
    plim_m_drop(m, used);
    plim_m_drop(m, each);
    if (!f->wants[IN_INPUT]) {
        plim_m_drop(m, input);
        f->grad[IN_INPUT] = 0;
    }
    return loss;
}

void plim_run_liger_cross_entropy(plim_call *c) { run_fused(c, &liger_fn, forward_liger); }
