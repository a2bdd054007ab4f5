/* rules_attention.c -- scaled_dot_product_attention, by the backend that a
 * card would choose.
 * src: facts training-step.md 3.10; transformers/attention.cpp,
 * cuda/attention.cu, cuda/attention_backward.cu, cuda/sdp_utils.cpp. */
#include "op/rules.h"

enum { SDPA_MATH, SDPA_FLASH, SDPA_EFFICIENT };

/* saved slots */
enum { S_Q, S_K, S_V, S_MASK, S_LSE, S_OUT, S_SEED, S_OFFSET };

typedef struct sdpa_dims {
    int64_t B, H, Hk, Sq, Sk, D, Dv;
} sdpa_dims;

static int64_t round_up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

static sdpa_dims sdpa_dims_of(plim_machine *m, plim_t q, plim_t k, plim_t v)
{
    const plim_meta *a = plim_m_meta(m, q), *b = plim_m_meta(m, k), *c = plim_m_meta(m, v);
    return (sdpa_dims){a->dim[0], a->dim[1], b->dim[1], a->dim[2],
                       b->dim[2], a->dim[3], c->dim[3]};
}

/* src: sdp_utils.cpp.  flash: 16-bit, sm80 on, no mask, equal head sizes up to
 * 256; efficient: sm50 on (bf16: sm80), aligned head size, a mask from 2.1 on. */
static int sdpa_backend(plim_machine *m, plim_t q, plim_t k, plim_t v, plim_t mask,
                        bool causal)
{
    const plim_world *w = plim_m_world(m);
    const plim_meta *qm = plim_m_meta(m, q), *km = plim_m_meta(m, k), *vm = plim_m_meta(m, v);
    int cc = w->cc ? w->cc : 80;
    bool half = qm->dtype == PLIM_F16 || qm->dtype == PLIM_BF16;
    int64_t align = half ? 8 : 4;
    if (w->torch < 200 || (mask && w->torch < 201))
        return SDPA_MATH;
    bool unit = qm->stride[3] == 1 && km->stride[3] == 1 && vm->stride[3] == 1;
    if (half && cc >= 80 && !mask && qm->dim[3] <= 256 && qm->dim[3] == vm->dim[3] && unit &&
        !(causal && qm->dim[2] != km->dim[2]))
        return SDPA_FLASH;
    bool efficient = qm->dtype == PLIM_F32 || (qm->dtype == PLIM_BF16 ? cc >= 80 : half);
    if (efficient && qm->dim[3] % align == 0 && vm->dim[3] % align == 0 && unit &&
        qm->dim[1] == km->dim[1])
        return SDPA_EFFICIENT;
    return SDPA_MATH;
}

/* A [B, H, S, D] tensor in the memory order [B, S, H, D] that the backward
 * kernels want: itself or a copy, owned.
 * src: attention_backward.cu, grad_out.contiguous() after transpose(1, 2) */
static plim_t sdpa_bshd(plim_machine *m, plim_t t)
{
    plim_meta x = *plim_m_meta(m, t);
    int64_t d = x.dim[1], s = x.stride[1];
    x.dim[1] = x.dim[2], x.stride[1] = x.stride[2];
    x.dim[2] = d, x.stride[2] = s;
    return plim_is_contiguous(&x) ? plim_m_ref(m, t)
                                  : plim_m_empty_contig(m, x.dtype, x.rank, x.dim);
}

/* ---- flash ------------------------------------------------------------------------- */

static void flash_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t q = plim_m_saved(m, n, S_Q), k = plim_m_saved(m, n, S_K),
           v = plim_m_saved(m, n, S_V);
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    int64_t rows = round_up(d.Sq, 128),
            width = d.D <= 128 ? round_up(d.D, 32) : round_up(d.D, 64);
    plim_dtype t = plim_m_meta(m, g[0])->dtype;
    plim_t gc = sdpa_bshd(m, g[0]), oc = sdpa_bshd(m, plim_m_saved(m, n, S_OUT));
    dx[0] = plim_m_empty_like(m, q);
    dx[1] = plim_m_empty_like(m, k);
    dx[2] = plim_m_empty_like(m, v);
    plim_t softmax_d = plim_m_scratch_of(m, PLIM_F32, 3, (int64_t[]){d.B, d.H, rows});
    plim_t acc = plim_m_scratch_of(m, PLIM_F32, 4, (int64_t[]){d.B, rows, d.H, width});
    plim_t ek = 0, ev = 0;
    if (d.Hk != d.H) {
        ek = plim_m_scratch_of(m, t, 4, (int64_t[]){d.B, d.Sk, d.H, d.D});
        ev = plim_m_scratch_of(m, t, 4, (int64_t[]){d.B, d.Sk, d.H, d.Dv});
    }
    plim_m_drop(m, ev);
    plim_m_drop(m, ek);
    plim_m_drop(m, acc);
    plim_m_drop(m, softmax_d);
    plim_m_drop(m, oc);
    plim_m_drop(m, gc);
}
static const plim_grad_fn flash_fn = {"ScaledDotProductFlashAttentionBackward0",
                                      flash_backward};

static plim_t sdpa_flash(plim_machine *m, plim_t q, plim_t k, plim_t v)
{
    plim_t in[3] = {q, k, v};
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_gnode *n = plim_m_node(m, &flash_fn, 3, in);
    for (uint32_t i = 0; i < 3; i++)
        plim_m_save(m, n, S_Q + i, in[i]);
    /* out keeps q's memory order: the projections' [B, S, H, D] stays viewable */
    plim_t out = plim_m_empty_like(m, q);
    plim_t lse = plim_m_empty_contig(m, PLIM_F32, 3, (int64_t[]){d.B, d.H, d.Sq});
    if (plim_m_world(m)->torch >= 207) { /* rng state on the card since 2.7 */
        plim_t seed = plim_m_empty_contig(m, PLIM_U64, 1, (int64_t[]){2});
        plim_t offset = plim_m_empty_contig(m, PLIM_U64, 0, NULL);
        plim_m_save(m, n, S_SEED, seed);
        plim_m_save(m, n, S_OFFSET, offset);
        plim_m_drop(m, offset);
        plim_m_drop(m, seed);
    }
    plim_m_save(m, n, S_OUT, out);
    plim_m_save(m, n, S_LSE, lse);
    plim_m_drop(m, lse);
    plim_m_output(m, n, 0, out);
    return out;
}

/* ---- memory-efficient ------------------------------------------------------------------ */

/* out and the gradients are [B, S, H, D] in memory, seen as [B, H, S, D] */
static plim_t efficient_tensor(plim_machine *m, plim_dtype t, int64_t B, int64_t H, int64_t S,
                               int64_t D)
{
    plim_meta x = plim_meta_make(t, 4, (int64_t[]){B, S, H, D});
    int64_t s = x.stride[1];
    x.dim[1] = H, x.dim[2] = S;
    x.stride[1] = x.stride[2], x.stride[2] = s;
    return plim_m_empty(m, &x);
}

/* Row sums of g times out.  The 16-bit kernels take them themselves; in fp32
 * they are one expression, (g * out).sum(-1).transpose(-2, -1).contiguous(),
 * whose temporaries live to its end.  src: kernel_backward.h
 * kKernelComputesDelta */
static plim_t efficient_delta(plim_machine *m, plim_dtype t, const sdpa_dims *d)
{
    int64_t rows[3] = {d->B, d->H, d->Sq};
    if (plim_dtype_bytes(t) == 2)
        return plim_m_empty_contig(m, PLIM_F32, 3, rows);
    plim_t product =
        plim_m_empty_contig(m, PLIM_F32, 4, (int64_t[]){d->B, d->Sq, d->H, d->Dv});
    plim_t sums = plim_m_empty_contig(m, PLIM_F32, 3, (int64_t[]){d->B, d->Sq, d->H});
    bool fits = d->H == 1 || d->Sq == 1;
    plim_t delta = fits ? plim_m_ref(m, sums) : plim_m_empty_contig(m, PLIM_F32, 3, rows);
    plim_m_drop(m, sums);
    plim_m_drop(m, product);
    return delta;
}

static void efficient_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t q = plim_m_saved(m, n, S_Q), k = plim_m_saved(m, n, S_K),
           v = plim_m_saved(m, n, S_V);
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_dtype t = plim_m_meta(m, g[0])->dtype;
    plim_t gc = sdpa_bshd(m, g[0]);
    dx[0] = efficient_tensor(m, t, d.B, d.H, d.Sq, d.D);
    dx[1] = efficient_tensor(m, t, d.B, d.H, d.Sk, d.D);
    dx[2] = efficient_tensor(m, t, d.B, d.H, d.Sk, d.Dv);
    plim_t delta = efficient_delta(m, t, &d);
    plim_t ws = 0;
    if (plim_dtype_bytes(t) == 2) { /* fp32 accumulators of dq; of dk, dv for wide heads */
        int64_t elems = round_up(d.Sq, 64) * round_up(d.D, 32);
        if (d.D > 64)
            elems += round_up(d.Sk, 64) * (round_up(d.D, 32) + round_up(d.Dv, 32));
        uint64_t bytes;
        plim_meta floats = plim_meta_make(PLIM_F32, 3, (int64_t[]){d.B, d.H, elems});
        ws = plim_meta_bytes(&floats, &bytes) ? plim_m_scratch_about(m, bytes) : 0;
    }
    plim_m_drop(m, ws);
    plim_m_drop(m, delta);
    plim_m_drop(m, gc);
}
static const plim_grad_fn efficient_fn = {"ScaledDotProductEfficientAttentionBackward0",
                                          efficient_backward};

/* A bool mask becomes an additive one.
 * src: attention.cpp convert_boolean_attn_mask */
static plim_t additive_mask(plim_machine *m, plim_t mask, plim_dtype t)
{
    const plim_meta *x = plim_m_meta(m, mask);
    if (!mask || x->dtype != PLIM_BOOL)
        return plim_m_ref(m, mask);
    plim_t add = plim_m_empty_contig(m, t, x->rank, x->dim);
    plim_m_drop(m, plim_m_empty_contig(m, PLIM_BOOL, x->rank, x->dim)); /* logical_not */
    return add;
}

/* Where a row of the mask does not start at a multiple of 8 elements, the last
 * dim is padded to one.  src: attention.cpp preprocess_mask, pad_bias */
static plim_t efficient_mask(plim_machine *m, plim_t mask, plim_dtype t)
{
    enum { ALIGN = 8 };
    plim_t add = additive_mask(m, mask, t);
    plim_meta x = *plim_m_meta(m, add);
    bool aligned = !x.rank || x.stride[x.rank - 1] == 1;
    for (int32_t i = 0; i + 1 < x.rank; i++)
        aligned = aligned && x.stride[i] % ALIGN == 0;
    if (aligned)
        return add;
    x.dim[x.rank - 1] += ALIGN - x.dim[x.rank - 1] % ALIGN;
    plim_t padded = plim_m_empty_contig(m, x.dtype, x.rank, x.dim);
    plim_m_drop(m, add);
    return padded;
}

static plim_t sdpa_efficient(plim_machine *m, plim_t q, plim_t k, plim_t v, plim_t mask)
{
    plim_t in[3] = {q, k, v};
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_dtype t = plim_m_meta(m, q)->dtype;
    plim_t bias = efficient_mask(m, mask, t);
    plim_gnode *n = plim_m_node(m, &efficient_fn, 3, in);
    for (uint32_t i = 0; i < 3; i++)
        plim_m_save(m, n, S_Q + i, in[i]);
    plim_m_save(m, n, S_MASK, bias);
    plim_t out = efficient_tensor(m, t, d.B, d.H, d.Sq, d.Dv);
    plim_t lse = 0;
    if (n) { /* log-sum-exp only if a backward will come */
        lse = plim_m_empty_contig(m, PLIM_F32, 3, (int64_t[]){d.B, d.H, round_up(d.Sq, 32)});
        plim_m_save(m, n, S_LSE, lse);
    }
    plim_m_save(m, n, S_OUT, out);
    if (plim_dtype_bytes(t) == 2 && PLIM_MAX(d.D, d.Dv) > 128) /* accumulated in memory */
        plim_m_drop(m, plim_m_empty_contig(m, PLIM_F32, 4, (int64_t[]){d.B, d.Sq, d.H, d.Dv}));
    plim_m_drop(m, lse);
    plim_m_drop(m, bias);
    plim_m_output(m, n, 0, out);
    return out;
}

/* ---- math ------------------------------------------------------------------------------ */

/* ones(Sq, Sk).tril(), as an additive mask */
static plim_t causal_mask(plim_machine *m, plim_t q, plim_t k)
{
    const plim_meta *a = plim_m_meta(m, q), *b = plim_m_meta(m, k);
    int64_t dim[2] = {a->dim[a->rank - 2], b->dim[b->rank - 2]};
    plim_t ones = plim_m_empty_contig(m, PLIM_BOOL, 2, dim);
    plim_t tril = plim_m_empty_contig(m, PLIM_BOOL, 2, dim);
    plim_m_drop(m, ones);
    plim_t add = additive_mask(m, tril, a->dtype);
    plim_m_drop(m, tril);
    return add;
}

/* q and k scaled, scores, softmax, dropout, times v.  2.5 on: 16-bit operands
 * are computed in fp32, and the probabilities are cast back although nobody
 * asks for them.  src: attention.cpp _scaled_dot_product_attention_math */
static plim_t sdpa_math(plim_machine *m, plim_t q0, plim_t k0, plim_t v0, plim_t mask0,
                        bool causal, double p)
{
    plim_dtype t = plim_m_meta(m, q0)->dtype;
    plim_dtype calc = plim_dtype_bytes(t) == 2 && plim_m_world(m)->torch >= 205 ? PLIM_F32 : t;
    int32_t rank = plim_m_meta(m, k0)->rank;
    plim_t mask = additive_mask(m, mask0, t);
    plim_t q = plim_at_to(m, q0, calc), k = plim_at_to(m, k0, calc),
           v = plim_at_to(m, v0, calc);
    plim_t scale = plim_m_wrapped(m, true);
    plim_t qs = plim_at_mul(m, q, scale, false);
    if (causal && !mask)
        mask = causal_mask(m, q, k);
    plim_t kt = plim_at_transpose(m, k, rank - 2, rank - 1);
    plim_t ks = plim_at_mul(m, kt, scale, false);
    plim_t scores = plim_at_matmul(m, qs, ks);
    if (mask) {
        plim_t masked = plim_at_add(m, scores, mask, true);
        plim_m_drop(m, scores);
        scores = masked;
    }
    plim_t attn = plim_at_softmax(m, scores, false);
    plim_m_drop(m, scores);
    if (p > 0.0) {
        plim_t dropped = plim_at_dropout(m, attn, p, true, false);
        plim_m_drop(m, attn);
        attn = dropped;
    }
    plim_t probabilities = plim_at_to(m, attn, t);
    plim_t y = plim_at_matmul(m, attn, v);
    plim_t out = plim_at_to(m, y, t);
    plim_t all[] = {y, probabilities, attn, ks, kt, qs, scale, mask, v, k, q};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return out;
}

/* ---- the rule ------------------------------------------------------------------------------ */

void plim_run_sdpa(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t q = plim_arg_tensor(c, 0), k = plim_arg_tensor(c, 1), v = plim_arg_tensor(c, 2),
           mask = plim_arg_tensor(c, 3);
    const plim_meta *qm = plim_m_meta(m, q), *km = plim_m_meta(m, k), *vm = plim_m_meta(m, v);
    char a[96], b[96];
    if (qm->rank < 3 || km->rank != qm->rank || vm->rank != qm->rank ||
        km->dim[km->rank - 1] != qm->dim[qm->rank - 1] ||
        km->dim[km->rank - 2] != vm->dim[vm->rank - 2]) {
        plim_m_fail(m, PLIM_ESHAPE, "attention of %s to %s", plim_meta_str(qm, a, sizeof a),
                    plim_meta_str(km, b, sizeof b));
        return;
    }
    bool causal = plim_arg_int(c, 5, 0);
    int backend = qm->rank == 4 ? sdpa_backend(m, q, k, v, mask, causal) : SDPA_MATH;
    double p = plim_m_world(c->m)->eval ? 0.0 : plim_arg_float(c, 4, 0.0);
    if (backend == SDPA_FLASH)
        plim_ret(c, sdpa_flash(m, q, k, v));
    else if (backend == SDPA_EFFICIENT)
        plim_ret(c, sdpa_efficient(m, q, k, v, mask));
    else
        plim_ret(c, sdpa_math(m, q, k, v, mask, causal, p));
}
