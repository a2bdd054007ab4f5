/* rules_attention.c -- scaled_dot_product_attention, by the backend that a
 * card would choose.
 * src: facts training-step.md 3.10; transformers/attention.cpp,
 * cuda/attention.cu, cuda/attention_backward.cu, cuda/sdp_utils.cpp. */
#include "op/rules.h"

enum { SDPA_MATH, SDPA_FLASH, SDPA_EFFICIENT };

/* saved slots */
enum { S_Q, S_K, S_V, S_MASK, S_OUT, S_LSE, S_SEED, S_OFFSET };

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
 * 256; efficient: sm50 on, aligned head size. */
static int sdpa_backend(plim_machine *m, plim_t q, plim_t k, plim_t v, plim_t mask,
                        bool causal)
{
    const plim_world *w = plim_m_world(m);
    const plim_meta *qm = plim_m_meta(m, q), *km = plim_m_meta(m, k), *vm = plim_m_meta(m, v);
    int cc = w->cc ? w->cc : 80;
    bool half = qm->dtype == PLIM_F16 || qm->dtype == PLIM_BF16;
    int64_t align = half ? 8 : 4;
    if (w->torch < 200)
        return SDPA_MATH;
    bool unit = qm->stride[3] == 1 && km->stride[3] == 1 && vm->stride[3] == 1;
    if (half && cc >= 80 && !mask && qm->dim[3] <= 256 && qm->dim[3] == vm->dim[3] && unit &&
        !(causal && qm->dim[2] != km->dim[2]))
        return SDPA_FLASH;
    if ((half || qm->dtype == PLIM_F32) && qm->dim[3] % align == 0 &&
        vm->dim[3] % align == 0 && unit && qm->dim[1] == km->dim[1])
        return SDPA_EFFICIENT;
    return SDPA_MATH;
}

/* ---- flash ------------------------------------------------------------------------- */

static void flash_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t q = plim_m_saved(m, n, S_Q), k = plim_m_saved(m, n, S_K),
           v = plim_m_saved(m, n, S_V);
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_t out = plim_m_saved(m, n, S_OUT);
    int64_t rows = round_up(d.Sq, 128),
            width = d.D <= 128 ? round_up(d.D, 32) : round_up(d.D, 64);
    const plim_meta *gm = plim_m_meta(m, g[0]);
    plim_t gc = gm->stride[3] == 1 ? 0 : plim_m_empty_like(m, out);
    dx[0] = plim_m_empty_like(m, q);
    dx[1] = plim_m_empty_like(m, k);
    dx[2] = plim_m_empty_like(m, v);
    plim_t softmax_d = plim_m_empty_contig(m, PLIM_F32, 3, (int64_t[]){d.B, d.H, rows});
    plim_t acc = plim_m_empty_contig(m, PLIM_F32, 4, (int64_t[]){d.B, rows, d.H, width});
    plim_t ek = 0, ev = 0;
    if (d.Hk != d.H) {
        ek = plim_m_empty_contig(m, gm->dtype, 4, (int64_t[]){d.B, d.Sk, d.H, d.D});
        ev = plim_m_empty_contig(m, gm->dtype, 4, (int64_t[]){d.B, d.Sk, d.H, d.Dv});
    }
    plim_m_drop(m, ev);
    plim_m_drop(m, ek);
    plim_m_drop(m, acc);
    plim_m_drop(m, softmax_d);
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

static void efficient_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t q = plim_m_saved(m, n, S_Q), k = plim_m_saved(m, n, S_K),
           v = plim_m_saved(m, n, S_V);
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_dtype t = plim_m_meta(m, g[0])->dtype;
    const plim_meta *gm = plim_m_meta(m, g[0]);
    plim_t gc = gm->stride[3] == 1 ? 0 : efficient_tensor(m, t, d.B, d.H, d.Sq, d.Dv);
    dx[0] = efficient_tensor(m, t, d.B, d.H, d.Sq, d.D);
    dx[1] = efficient_tensor(m, t, d.B, d.H, d.Sk, d.D);
    dx[2] = efficient_tensor(m, t, d.B, d.H, d.Sk, d.Dv);
    plim_t delta = plim_m_empty_contig(m, PLIM_F32, 3, (int64_t[]){d.B, d.H, d.Sq});
    plim_t ws = 0;
    if (plim_dtype_bytes(t) == 2) { /* fp32 accumulators of dq; of dk, dv for wide heads */
        int64_t elems = round_up(d.Sq, 64) * round_up(d.D, 32);
        if (d.D > 64)
            elems += round_up(d.Sk, 64) * (round_up(d.D, 32) + round_up(d.Dv, 32));
        ws = plim_m_scratch(m, (uint64_t)(d.B * d.H * elems) * 4, PLIM_ESTIMATED);
    }
    plim_m_drop(m, ws);
    plim_m_drop(m, delta);
    plim_m_drop(m, gc);
}
static const plim_grad_fn efficient_fn = {"ScaledDotProductEfficientAttentionBackward0",
                                          efficient_backward};

/* A bool mask becomes an additive one; its last dim is padded to 16 bytes. */
static plim_t efficient_mask(plim_machine *m, plim_t mask, plim_dtype t)
{
    if (!mask)
        return 0;
    plim_meta x = *plim_m_meta(m, mask);
    plim_t add = plim_m_ref(m, mask);
    if (x.dtype == PLIM_BOOL) {
        plim_m_drop(m, add);
        add = plim_m_empty_contig(m, t, x.rank, x.dim);
        plim_t flipped = plim_m_empty_contig(m, PLIM_BOOL, x.rank, x.dim);
        plim_m_drop(m, flipped);
        x = *plim_m_meta(m, add);
    }
    int64_t align = (int64_t)(16 / plim_dtype_bytes(t));
    if (x.rank && x.dim[x.rank - 1] % align) {
        x.dim[x.rank - 1] = round_up(x.dim[x.rank - 1], align);
        plim_t padded = plim_m_empty_contig(m, t, x.rank, x.dim);
        plim_m_drop(m, add);
        add = padded;
    }
    return add;
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
    plim_m_drop(m, lse);
    plim_m_drop(m, bias);
    plim_m_output(m, n, 0, out);
    return out;
}

/* ---- math ------------------------------------------------------------------------------ */

/* q and k scaled, scores, softmax, dropout, times v.  2.5 on: 16-bit operands
 * are computed in fp32. */
static plim_t sdpa_math(plim_machine *m, plim_t q0, plim_t k0, plim_t v0, plim_t mask,
                        double p)
{
    plim_dtype t = plim_m_meta(m, q0)->dtype;
    plim_dtype calc = plim_dtype_bytes(t) == 2 && plim_m_world(m)->torch >= 205 ? PLIM_F32 : t;
    plim_t q = plim_at_to(m, q0, calc), k = plim_at_to(m, k0, calc),
           v = plim_at_to(m, v0, calc);
    plim_t scale = plim_m_wrapped(m, true);
    plim_t qs = plim_at_mul(m, q, scale, false);
    plim_t kt =
        plim_at_transpose(m, k, plim_m_meta(m, k)->rank - 2, plim_m_meta(m, k)->rank - 1);
    plim_t ks = plim_at_mul(m, kt, scale, false);
    plim_t scores = plim_at_matmul(m, qs, ks);
    if (mask) {
        plim_t a = plim_m_meta(m, mask)->dtype == PLIM_BOOL
                       ? plim_m_empty_contig(m, calc, plim_m_meta(m, mask)->rank,
                                             plim_m_meta(m, mask)->dim)
                       : plim_m_ref(m, mask);
        plim_t s = plim_at_add(m, scores, a, true);
        plim_m_drop(m, a);
        plim_m_drop(m, scores);
        scores = s;
    }
    plim_t attn = plim_at_softmax(m, scores, false);
    plim_m_drop(m, scores);
    if (p > 0.0) {
        plim_t dropped = plim_at_dropout(m, attn, p, true, false);
        plim_m_drop(m, attn);
        attn = dropped;
    }
    plim_t y = plim_at_matmul(m, attn, v);
    plim_t out = plim_at_to(m, y, t);
    plim_t all[] = {y, attn, ks, kt, qs, scale, v, k, q};
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
    int backend =
        qm->rank == 4 ? sdpa_backend(m, q, k, v, mask, plim_arg_int(c, 5, 0)) : SDPA_MATH;
    double p = plim_m_world(c->m)->eval ? 0.0 : plim_arg_float(c, 4, 0.0);
    if (backend == SDPA_FLASH)
        plim_ret(c, sdpa_flash(m, q, k, v));
    else if (backend == SDPA_EFFICIENT)
        plim_ret(c, sdpa_efficient(m, q, k, v, mask));
    else
        plim_ret(c, sdpa_math(m, q, k, v, mask, p));
}
