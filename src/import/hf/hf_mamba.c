/* hf_mamba.c -- Mamba and Mamba-2 without their kernels, as transformers runs them where those
 * are not installed: Mamba steps through the tokens one by one, Mamba-2 works in chunks.
 * src: transformers 5.23 models/{mamba,mamba2}/modeling_*.py */
#include <math.h>

#include "import/hf/hf_moe.h"

typedef struct config {
    int64_t vocab, hidden, state, layers, expand, kernel, heads, head_dim, groups, chunk;
    double eps;
    bool tie, bias, conv_bias, wide_residual;
    plim_str act, dt_rank;
} config;

typedef struct mamba {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    const char *prefix;
    int64_t inner, rank; /* width inside of a mixer; of the time steps */
    uint32_t embedding;
} mamba;

/* The loop over tokens is unrolled, and its results are joined by one op. */
enum { MAX_LOOP = 256 };

/* ---- both ------------------------------------------------------------------------------ */

typedef struct conv {
    uint32_t weight, bias;
} conv;

/* The parameters of a module that is never called. */
static conv conv_params(const mamba *m, int64_t channels)
{
    conv v;
    plim_nn_enter(m->n, "conv1d", "Conv1d");
    v.weight = plim_nn_param(m->n, "weight", INTS(channels, 1, m->c->kernel));
    v.bias = m->c->conv_bias ? plim_nn_param(m->n, "bias", INTS(channels)) : PLIM_NONE;
    plim_nn_leave(m->n);
    return v;
}

/* causal_conv1d_fn in PyTorch: [batch, channels, seq] */
static uint32_t causal_conv(const mamba *m, uint32_t x, conv v, uint32_t squeezed)
{
    plim_nn *n = m->n;
    uint32_t y = plim_nn_to_like(n, x, v.weight);
    const plim_named_arg a[] = {ARG_T("input", y),
                                ARG_T("weight", plim_nn_unsqueeze(n, squeezed, 1)),
                                ARG_IS("stride", INTS(1)),
                                ARG_IS("padding", INTS(m->c->kernel - 1)),
                                ARG_I("groups", plim_nn_dim(n, x, 1)),
                                ARG_T("bias", v.bias)};
    y = plim_nn_op(n, "aten.conv1d.default", a,
                   (uint32_t)PLIM_COUNT(a) - (v.bias == PLIM_NONE));
    y = plim_nn_slice(n, y, 2, 0, m->h->seq, 1);
    y = plim_nn_unary(n, "aten.silu.default", y);
    return plim_nn_to_like(n, y, x);
}

static uint32_t squeeze_dim(plim_nn *n, uint32_t x, int64_t dim)
{
    return NN_OP(n, "aten.squeeze.dim", ARG_T("self", x), ARG_I("dim", dim));
}

static uint32_t transpose_dims(plim_nn *n, uint32_t x)
{
    return plim_nn_transpose(n, x, 1, 2);
}

/* -exp(A_log) in fp32 */
static uint32_t negative_exp(plim_nn *n, uint32_t a)
{
    a = plim_nn_unary(n, "aten.exp.default", plim_nn_to(n, a, PLIM_F32));
    return plim_nn_unary(n, "aten.neg.default", a);
}

static uint32_t mul_tensors(plim_nn *n, uint32_t a, uint32_t b)
{
    return plim_nn_binary(n, "aten.mul.Tensor", a, b);
}

static uint32_t add_tensors(plim_nn *n, uint32_t a, uint32_t b)
{
    return plim_nn_binary(n, "aten.add.Tensor", a, b);
}

/* ---- Mamba -------------------------------------------------------------------------------- */

typedef struct scan {
    uint32_t decay, input; /* [batch, inner, seq, state] */
    uint32_t c;            /* [batch, seq, state] */
} scan;

/* One step per token, [batch, inner, seq] */
static uint32_t scan_tokens(const mamba *m, const scan *s, uint32_t like)
{
    plim_nn *n = m->n;
    uint32_t *y = PLIM_NEW_N(n->g->arena, uint32_t, m->h->seq);
    if (!y) {
        plim_hf_oom(n);
        return PLIM_NONE;
    }
    uint32_t state = NN_OP(n, "aten.zeros.default",
                           ARG_IS("size", INTS(m->h->batch, m->inner, m->c->state)),
                           ARG_I("dtype", PLIM_F32));
    for (int64_t i = 0; i < m->h->seq && !n->st; i++) {
        state = mul_tensors(n, plim_nn_select(n, s->decay, 2, i), state);
        state = add_tensors(n, state, plim_nn_select(n, s->input, 2, i));
        uint32_t typed = plim_nn_to_like(n, state, like);
        uint32_t c = plim_nn_unsqueeze(n, plim_nn_select(n, s->c, 1, i), -1);
        uint32_t out = plim_nn_binary(n, "aten.matmul.default", typed, c);
        y[i] = plim_nn_select(n, out, 2, 0);
    }
    return NN_OP(n, "aten.stack.default", ARG_TS("tensors", y, (uint32_t)m->h->seq),
                 ARG_I("dim", -1));
}

typedef struct ssm {
    uint32_t a, d, dt_weight, dt_bias;
} ssm;

static uint32_t discretize_state(const mamba *m, const ssm *p, uint32_t x, uint32_t part[3],
                                 uint32_t like)
{
    plim_nn *n = m->n;
    uint32_t step =
        plim_nn_binary(n, "aten.matmul.default", p->dt_weight, transpose_dims(n, part[0]));
    uint32_t bias = plim_nn_unsqueeze(n, plim_nn_to(n, p->dt_bias, PLIM_F32), 1);
    uint32_t b = part[1];
    step = add_tensors(n, step, bias);
    step = plim_nn_unary(n, "aten.softplus.default", step);
    uint32_t a = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, p->a, 0), 2);
    scan s;
    s.decay = mul_tensors(n, a, plim_nn_unsqueeze(n, step, 3));
    s.decay = plim_nn_unary(n, "aten.exp.default", s.decay);
    b = plim_nn_to(n, plim_nn_unsqueeze(n, b, 1), PLIM_F32);
    s.input = mul_tensors(n, plim_nn_unsqueeze(n, step, 3), b);
    s.input = mul_tensors(n, s.input, plim_nn_to(n, plim_nn_unsqueeze(n, x, 3), PLIM_F32));
    s.c = part[2];
    return scan_tokens(m, &s, like);
}

static uint32_t mamba_mixer(const mamba *m, uint32_t x)
{
    const config *c = m->c;
    plim_nn *n = m->n;
    uint32_t half[2], part[3], like = x;
    ssm p;
    plim_nn_enter(n, "mixer", "MambaMixer");
    plim_nn_order(n, "conv1d *");
    uint32_t a_log = plim_nn_param(n, "A_log", INTS(m->inner, c->state));
    p.d = plim_nn_param(n, "D", INTS(m->inner));
    conv v = conv_params(m, m->inner);
    x = plim_nn_linear(n, "in_proj", x, 2 * m->inner, c->bias);
    x = transpose_dims(n, x);
    p.a = negative_exp(n, a_log);
    plim_nn_chunk(n, x, 2, 1, half);
    x = causal_conv(m, half[0], v, squeeze_dim(n, v.weight, 1));
    x = transpose_dims(n, x);
    uint32_t y = plim_nn_linear(n, "x_proj", x, m->rank + 2 * c->state, false);
    plim_nn_enter(n, "dt_proj", "Linear");
    p.dt_weight = plim_nn_param(n, "weight", INTS(m->inner, m->rank));
    p.dt_bias = plim_nn_param(n, "bias", INTS(m->inner));
    plim_nn_leave(n);
    plim_nn_split(n, y, INTS(m->rank, c->state, c->state), -1, part);
    x = transpose_dims(n, x);
    y = discretize_state(m, &p, x, part, like);
    uint32_t d = plim_nn_to(n, p.d, PLIM_F32);
    d = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, d, 0), 2);
    y = add_tensors(n, y, mul_tensors(n, x, d));
    y = mul_tensors(n, y, plim_nn_unary(n, "aten.silu.default", half[1]));
    y = plim_nn_to_like(n, transpose_dims(n, y), like);
    y = plim_nn_linear(n, "out_proj", y, c->hidden, c->bias);
    plim_nn_leave(n);
    return y;
}

/* ---- Mamba-2 -------------------------------------------------------------------------------- */

/* pad_tensor_by_size, then reshape_into_chunks; sizes after seq are kept */
static uint32_t pad_chunks(const mamba *m, uint32_t x, bool four)
{
    int64_t more = (m->c->chunk - m->h->seq % m->c->chunk) % m->c->chunk;
    plim_ints pad = four ? INTS(0, 0, 0, 0, 0, more, 0, 0) : INTS(0, 0, 0, more, 0, 0);
    return NN_OP(m->n, "aten.pad.default", ARG_T("self", x), ARG_IS("pad", pad),
                 ARG_F("value", 0));
}

static uint32_t split_chunks(const mamba *m, uint32_t x)
{
    plim_nn *n = m->n;
    x = pad_chunks(m, x, true);
    return plim_nn_reshape(
        n, x, INTS(m->h->batch, -1, m->c->chunk, plim_nn_dim(n, x, 2), plim_nn_dim(n, x, 3)));
}

static uint32_t mask_triangle(plim_nn *n, uint32_t x, int64_t size, int64_t diagonal,
                              double value)
{
    uint32_t mask = NN_OP(n, "aten.ones.default", ARG_IS("size", INTS(size, size)),
                          ARG_I("dtype", PLIM_BOOL));
    mask = NN_OP(n, "aten.tril.default", ARG_T("self", mask), ARG_I("diagonal", diagonal));
    mask = plim_nn_unary(n, "aten.bitwise_not.default", mask);
    return NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", x), ARG_T("mask", mask),
                 ARG_F("value", value));
}

static uint32_t cumsum_dim(plim_nn *n, uint32_t x, int64_t dim)
{
    return NN_OP(n, "aten.cumsum.default", ARG_T("self", x), ARG_I("dim", dim));
}

/* exp(segment_sum(x)) of [batch, heads, ..., size] */
static uint32_t segment_decay(plim_nn *n, uint32_t x, int32_t rank, plim_ints expanded)
{
    int64_t size = expanded.p[expanded.n - 1];
    x = plim_nn_expand(n, plim_nn_unsqueeze(n, x, rank), expanded);
    x = mask_triangle(n, x, size, -1, 0);
    x = mask_triangle(n, cumsum_dim(n, x, -2), size, 0, -HUGE_VAL);
    return plim_nn_unary(n, "aten.exp.default", x);
}

static uint32_t einsum_pair(plim_nn *n, const char *equation, uint32_t a, uint32_t b)
{
    const uint32_t both[] = {a, b};
    const plim_named_arg args[] = {
        {PLIM_STR("equation"), {.kind = PLIM_ARG_STR, .str = plim_str_of(equation)}},
        ARG_TS("tensors", both, 2)};
    return plim_nn_op(n, "aten.einsum.default", args, PLIM_COUNT(args));
}

/* The heads of a group share B and C. */
static uint32_t repeat_groups(const mamba *m, uint32_t x)
{
    const config *c = m->c;
    x = plim_nn_to(m->n, x, PLIM_F32);
    return NN_OP(m->n, "aten.repeat_interleave.self_int", ARG_T("self", x),
                 ARG_I("repeats", c->heads / c->groups), ARG_I("dim", 2));
}

typedef struct chunks {
    uint32_t x, a, b, c; /* [batch, chunks, chunk, heads, ...] */
    uint32_t sum;        /* of a over each chunk, [batch, heads, chunks, chunk] */
} chunks;

/* Contributions of tokens to later ones of their chunk. */
static uint32_t within_chunks(const mamba *m, const chunks *k, uint32_t a, int64_t count)
{
    plim_nn *n = m->n;
    int64_t l = m->c->chunk;
    uint32_t decay = segment_decay(n, a, 4, INTS(m->h->batch, m->c->heads, count, l, l));
    uint32_t w = einsum_pair(n, "bclhn,bcshn->bclsh", k->c, k->b);
    w = mul_tensors(n, w, plim_nn_permute(n, decay, INTS(0, 2, 3, 4, 1)));
    return einsum_pair(n, "bclsh,bcshp->bclhp", w, k->x);
}

/* Contributions of earlier chunks. */
static uint32_t across_chunks(const mamba *m, const chunks *k, int64_t count)
{
    plim_nn *n = m->n;
    uint32_t left = plim_nn_slice(n, k->sum, 3, -1, INT64_MAX, 1);
    left = plim_nn_binary(n, "aten.sub.Tensor", left, k->sum);
    left = plim_nn_unary(n, "aten.exp.default", left);
    left = plim_nn_unsqueeze(n, plim_nn_permute(n, left, INTS(0, -2, -1, 1)), 4);
    uint32_t states = einsum_pair(n, "bclhn,bclhp->bchpn", mul_tensors(n, k->b, left), k->x);
    uint32_t first = plim_nn_slice(n, states, 1, 0, 1, 1);
    first = plim_nn_unary(n, "aten.zeros_like.default", first);
    states = plim_nn_cat(n, (uint32_t[]){first, states}, 2, 1);
    uint32_t last = plim_nn_select(n, k->sum, 3, -1);
    last = plim_nn_pad(n, last, INTS(1, 0));
    uint32_t decay =
        segment_decay(n, last, 3, INTS(m->h->batch, m->c->heads, count + 1, count + 1));
    decay = plim_nn_transpose(n, decay, 1, 3);
    states = einsum_pair(n, "bzch,bzhpn->bchpn", decay, states);
    states = plim_nn_slice(n, states, 1, 0, -1, 1);
    uint32_t in = plim_nn_unary(n, "aten.exp.default", k->sum);
    uint32_t y = einsum_pair(n, "bclhn,bchpn->bclhp", k->c, states);
    in = plim_nn_unsqueeze(n, plim_nn_permute(n, in, INTS(0, 2, 3, 1)), 4);
    return mul_tensors(n, y, in);
}

static uint32_t chunk_scan(const mamba *m, uint32_t x, uint32_t b, uint32_t c, uint32_t dt,
                           uint32_t a, uint32_t d)
{
    plim_nn *n = m->n;
    const config *cfg = m->c;
    int64_t count = (m->h->seq + cfg->chunk - 1) / cfg->chunk;
    chunks k;
    x = plim_nn_to(n, x, PLIM_F32);
    b = repeat_groups(m, b);
    c = repeat_groups(m, c);
    d = plim_nn_unsqueeze(n, d, 1);
    uint32_t skip = mul_tensors(n, d, pad_chunks(m, x, true));
    x = mul_tensors(n, x, plim_nn_to(n, plim_nn_unsqueeze(n, dt, 3), PLIM_F32));
    a = mul_tensors(n, a, plim_nn_to(n, dt, PLIM_F32));
    k.x = split_chunks(m, x);
    k.a = plim_nn_reshape(n, pad_chunks(m, a, false),
                          INTS(m->h->batch, -1, cfg->chunk, cfg->heads));
    k.b = split_chunks(m, b);
    k.c = split_chunks(m, c);
    k.a = plim_nn_permute(n, k.a, INTS(0, 3, 1, 2));
    k.sum = cumsum_dim(n, k.a, -1);
    uint32_t y = within_chunks(m, &k, k.a, count);
    y = add_tensors(n, y, across_chunks(m, &k, count));
    y = plim_nn_contiguous(n, y);
    y = plim_nn_reshape(n, y, INTS(m->h->batch, -1, cfg->heads, cfg->head_dim));
    y = add_tensors(n, y, skip);
    if (count * cfg->chunk != m->h->seq)
        y = plim_nn_slice(n, y, 1, 0, m->h->seq, 1);
    return plim_nn_reshape(n, y, INTS(m->h->batch, m->h->seq, -1));
}

/* MambaRMSNormGated, by groups */
static uint32_t gated_norm(const mamba *m, uint32_t x, uint32_t gate)
{
    plim_nn *n = m->n;
    int64_t groups = m->c->groups;
    plim_nn_enter(n, "norm", "MambaRMSNormGated");
    uint32_t w = plim_nn_param(n, "weight", INTS(m->inner));
    uint32_t y = plim_nn_to(n, x, PLIM_F32);
    gate = plim_nn_to(n, gate, PLIM_F32);
    y = mul_tensors(n, y, plim_nn_unary(n, "aten.silu.default", gate));
    y = plim_nn_view(n, y, INTS(m->h->batch, m->h->seq, groups, m->inner / groups));
    y = plim_hf_normalized(n, y, m->c->eps);
    y = plim_nn_view(n, y, INTS(m->h->batch, m->h->seq, m->inner));
    y = mul_tensors(n, w, plim_nn_to_like(n, y, x));
    plim_nn_leave(n);
    return y;
}

static uint32_t mamba2_mixer(const mamba *m, uint32_t x)
{
    const config *c = m->c;
    plim_nn *n = m->n;
    int64_t shared = c->groups * c->state, channels = m->inner + 2 * shared;
    int64_t b = m->h->batch, s = m->h->seq;
    uint32_t part[3], xbc[3], like = x;
    plim_nn_enter(n, "mixer", "Mamba2Mixer");
    plim_nn_order(n, "conv1d *");
    uint32_t dt_bias = plim_nn_param(n, "dt_bias", INTS(c->heads));
    uint32_t a = plim_nn_param(n, "A_log", INTS(c->heads));
    uint32_t d = plim_nn_param(n, "D", INTS(c->heads));
    conv v = conv_params(m, channels);
    x = plim_nn_linear(n, "in_proj", x, m->inner + channels + c->heads, c->bias);
    a = negative_exp(n, a);
    plim_nn_split(n, x, INTS(m->inner, channels, c->heads), -1, part);
    x = causal_conv(m, transpose_dims(n, part[1]), v, squeeze_dim(n, v.weight, 1));
    plim_nn_split(n, transpose_dims(n, x), INTS(m->inner, shared, shared), -1, xbc);
    xbc[0] = plim_nn_view(n, xbc[0], INTS(b, s, c->heads, c->head_dim));
    xbc[1] = plim_nn_view(n, xbc[1], INTS(b, s, c->groups, c->state));
    xbc[2] = plim_nn_view(n, xbc[2], INTS(b, s, c->groups, c->state));
    uint32_t dt = add_tensors(n, part[2], plim_nn_to_like(n, dt_bias, part[2]));
    dt = plim_nn_unary(n, "aten.softplus.default", dt);
    dt = NN_OP(n, "aten.clamp.default", ARG_T("self", dt), ARG_F("min", 0),
               ARG_F("max", HUGE_VAL));
    x = chunk_scan(m, xbc[0], xbc[1], xbc[2], dt, a, d);
    x = gated_norm(m, x, part[0]);
    x = plim_nn_to_like(n, x, like);
    x = plim_nn_linear(n, "out_proj", x, c->hidden, c->bias);
    plim_nn_leave(n);
    return x;
}

/* ---- the model --------------------------------------------------------------------------------- */

typedef struct row {
    const char *prefix;
    uint32_t (*mixer)(const mamba *m, uint32_t x);
    bool loop; /* over tokens */
} row;

static const char *class_of(const mamba *m, const char *suffix)
{
    return plim_nn_join(m->n, m->prefix, suffix);
}

static uint32_t add_block(const mamba *m, const row *r, int64_t i, uint32_t x)
{
    plim_nn *n = m->n;
    plim_nn_enter(n, plim_nn_name(n, "layers.", i), class_of(m, "Block"));
    uint32_t y = plim_nn_to_like(n, x, m->embedding); /* the dtype of parameters */
    y = plim_hf_rms_norm(n, "norm", class_of(m, "RMSNorm"), y, m->c->eps);
    if (m->c->wide_residual)
        x = plim_nn_to(n, x, PLIM_F32);
    x = add_tensors(n, x, r->mixer(m, y));
    plim_nn_leave(n);
    return x;
}

static int64_t dt_rank(plim_hf *h, const config *c)
{
    int64_t rank = 0;
    if (!c->dt_rank.n || plim_str_is(c->dt_rank, "\"auto\""))
        return (c->hidden + 15) / 16;
    for (size_t i = 0; i < c->dt_rank.n && rank <= INT32_MAX; i++) {
        if (c->dt_rank.p[i] < '0' || c->dt_rank.p[i] > '9') {
            rank = 0;
            break;
        }
        rank = rank * 10 + (c->dt_rank.p[i] - '0');
    }
    if (rank < 1 || rank > INT32_MAX)
        plim_nn_fail(&h->n, PLIM_ERANGE, "'time_step_rank' is neither \"auto\" nor in 1..%d",
                     (int)INT32_MAX);
    return rank;
}

static void check_sizes(plim_hf *h, const mamba *m, const row *r)
{
    const config *c = m->c;
    if (m->inner > INT32_MAX)
        plim_nn_fail(&h->n, PLIM_ERANGE, "an inner size of %" PRId64 " is not in 1..%d",
                     m->inner, (int)INT32_MAX);
    if (r->loop && h->seq > MAX_LOOP)
        plim_nn_fail(&h->n, PLIM_ERANGE,
                     "a sequential scan over %" PRId64
                     " tokens exceeds the limit of %d: give a shorter --seq",
                     h->seq, (int)MAX_LOOP);
    if (r->loop)
        return;
    plim_hf_check_heads(h, c->heads, c->groups, c->head_dim);
    if (c->heads > INT32_MAX / c->head_dim || c->heads * c->head_dim != m->inner)
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "%" PRId64 " heads of size %" PRId64
                     " do not make up the inner size of %" PRId64,
                     c->heads, c->head_dim, m->inner);
}

static void mamba_build(plim_hf *h, const void *p)
{
    const config *c = p;
    const row *r = h->family->row;
    plim_nn *n = &h->n;
    mamba m = {.h = h, .n = n, .c = c, .prefix = r->prefix, .inner = c->expand * c->hidden};
    m.rank = dt_rank(h, c);
    plim_hf_tokens(h, "input_ids", r->loop ? MAX_LOOP : INT32_MAX, false);
    h->seq_max = 0; /* MAX_LOOP limits this program, not the model */
    check_sizes(h, &m, r);
    if (n->st)
        return;
    plim_hf_cache(
        h, (plim_kv_layers){.layers = c->layers,
                            .channels = m.inner + (r->loop ? 0 : 2 * c->groups * c->state),
                            .kernel = c->kernel,
                            .state = m.inner * c->state});
    h->eager = true; /* there is no attention, and nothing to choose */
    plim_hf_attends(h);
    plim_nn_root(n, class_of(&m, "ForCausalLM"));
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "backbone", class_of(&m, "Model"));
    uint32_t x = plim_nn_embedding(n, "embeddings", ids, c->vocab, c->hidden, &m.embedding);
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_block(&m, r, i, x);
    x = plim_hf_rms_norm(n, "norm_f", class_of(&m, "RMSNorm"), x, c->eps);
    plim_nn_leave(n);
    x = plim_nn_to_like(n, x, m.embedding);
    x = plim_hf_lm_head(h, x, c->vocab, c->tie ? m.embedding : PLIM_NONE, false);
    plim_hf_causal_outputs(h, plim_nn_to(n, x, PLIM_F32));
}

/* clang-format off */
static const plim_hf_key mamba_keys[] = {
    HF_SIZE(vocab, "vocab_size", 50280),
    HF_SIZE(hidden, "hidden_size d_model", 768),
    HF_SIZE(state, "state_size", 16),
    HF_LAYERS(layers, "num_hidden_layers n_layer", 32),
    HF_SIZE(expand, "expand", 2),
    HF_SIZE(kernel, "conv_kernel", 4),
    HF_SIZE(heads, "num_heads", 128),
    HF_SIZE(head_dim, "head_dim", 64),
    HF_SIZE(groups, "n_groups", 8),
    HF_SIZE(chunk, "chunk_size", 256),
    HF_REAL(eps, "layer_norm_epsilon", 1e-5),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_BOOL(bias, "use_bias", 0),
    HF_BOOL(conv_bias, "use_conv_bias", 1),
    HF_BOOL(wide_residual, "residual_in_fp32", 1),
    HF_WORD(act, "hidden_act", "silu"),
    HF_RAW(dt_rank, "time_step_rank"),
};

HF_DEFAULTS(mamba2_defaults, HF_IS("vocab_size", 32768), HF_IS("hidden_size", 4096), HF_IS("state_size", 128),
            HF_IS("num_hidden_layers", 64), HF_IS("tie_word_embeddings", 0));

static const row mamba_row = {"Mamba", mamba_mixer, true};
static const row mamba2_row = {"Mamba2", mamba2_mixer, false};
static const plim_hf_family mamba_families[] = {
    {"mamba", "MambaForCausalLM", NULL, &mamba_row},
    {"mamba2", "Mamba2ForCausalLM", mamba2_defaults, &mamba2_row},
};
/* clang-format on */

const plim_hf_group plim_hf_mamba = {
    .doc = "state space models, without their kernels",
    .src = "transformers 5.23 models/{mamba,mamba2}",
    .families = mamba_families,
    .n_families = PLIM_COUNT(mamba_families),
    .keys = mamba_keys,
    .n_keys = PLIM_COUNT(mamba_keys),
    .size = sizeof(config),
    .build = mamba_build,
};
