/* rules_attention.c -- scaled_dot_product_attention, with the backend that PyTorch would
 * choose on the card.
 * src: docs/sources/operators.md 11; transformers/attention.cpp, cuda/attention.cu,
 * cuda/attention_backward.cu, cuda/sdp_utils.cpp. */
#include "op/rules.h"

/* saved slots */
enum { S_Q, S_K, S_V, S_MASK, S_LSE, S_OUT, S_SEED, S_OFFSET };

typedef struct sdpa_dims {
    int64_t B, H, Hk, Sq, Sk, D, Dv;
} sdpa_dims;

static sdpa_dims sdpa_dims_of(plim_machine *m, plim_t q, plim_t k, plim_t v)
{
    const plim_meta *a = plim_m_meta(m, q), *b = plim_m_meta(m, k), *c = plim_m_meta(m, v);
    return (sdpa_dims){a->dim[0], a->dim[1], b->dim[1], a->dim[2],
                       b->dim[2], a->dim[3], c->dim[3]};
}

/* q k^T and p v; backward computes the first again and four more of their size, two of them
 * of width D, two of width Dv. */
static void sdpa_product(plim_machine *m, plim_t q, plim_t k, plim_t v, bool backward)
{
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    uint64_t scores = plim_sat_mul(plim_sat_mul((uint64_t)d.B, (uint64_t)d.H),
                                   plim_sat_mul((uint64_t)d.Sq, (uint64_t)d.Sk));
    uint64_t width =
        backward ? 3 * (uint64_t)d.D + 2 * (uint64_t)d.Dv : (uint64_t)d.D + (uint64_t)d.Dv;
    plim_m_product(m, PLIM_WORK_attention, plim_sat_mul(scores, width),
                   plim_m_meta(m, q)->dtype);
    plim_m_side(m, (uint64_t)PLIM_MAX(d.D, 1));
}

static bool backend_off(const plim_sdpa_call *call, plim_sdpa backend)
{
    return call->without >> backend & 1;
}

/* Hopper and data-centre Blackwell use cuDNN's kernel where it supports the call and the
 * wheels contain a cuDNN that has it.
 * src: sdp_utils.cpp check_prefer_cudnn_attention; tests/golden/cuda, 2.11 to 2.15 */
static bool cudnn_serves(const plim_world *w, const plim_meta *q, const plim_meta *v,
                         const plim_sdpa_call *call)
{
    return w->torch >= PLIM_SINCE_SDPA_CUDNN &&
           (plim_world_is(w, 90) || plim_world_is(w, 100)) && !call->mask_grad &&
           !(call->dropout && w->torch >= PLIM_SINCE_SDPA_CUDNN_NO_DROPOUT) && q->dim[2] > 1 &&
           q->dim[3] % 8 == 0 && v->dim[3] % 8 == 0 && q->dim[3] <= 256 && v->dim[3] <= 256;
}

/* flash: 16-bit, sm80 and newer, no mask, equal head sizes up to 256; efficient: sm50 and
 * newer (bf16: sm80), aligned head size, optionally a mask whose rows are in one piece.
 * src: sdp_utils.cpp, check_last_dim_stride_equals_1_dense */
plim_sdpa plim_sdpa_choice(const plim_world *w, const plim_meta *q, const plim_meta *k,
                           const plim_meta *v, const plim_sdpa_call *call)
{
    bool half = q->dtype == PLIM_F16 || q->dtype == PLIM_BF16;
    if (q->rank != 4 || w->torch < PLIM_SINCE_SDPA_KERNELS ||
        (call->mask && w->torch < PLIM_SINCE_SDPA_EFFICIENT_MASK) ||
        (q->dtype == PLIM_BF16 && !plim_world_since(w, 80)))
        return PLIM_SDPA_MATH;
    bool unit =
        q->stride[3] == 1 && k->stride[3] == 1 && v->stride[3] == 1 && !call->mask_strided;
    bool heads = q->dim[1] == k->dim[1] && k->dim[1] == v->dim[1];
    bool square = q->dim[2] == k->dim[2], grouped = heads || call->gqa;
    if (!backend_off(call, PLIM_SDPA_CUDNN) && half && unit && grouped &&
        cudnn_serves(w, q, v, call))
        return PLIM_SDPA_CUDNN;
    if (!backend_off(call, PLIM_SDPA_FLASH) && half && plim_world_since(w, 80) &&
        !call->mask && unit && q->dim[3] <= 256 && q->dim[3] == v->dim[3] && grouped &&
        (square || !call->causal))
        return PLIM_SDPA_FLASH;
    int64_t align = half ? 8 : 4;
    if (!backend_off(call, PLIM_SDPA_EFFICIENT) && plim_world_since(w, 50) &&
        (half || q->dtype == PLIM_F32) && heads && unit && q->dim[3] % align == 0 &&
        v->dim[3] % align == 0)
        return PLIM_SDPA_EFFICIENT;
    return PLIM_SDPA_MATH;
}

/* t, a [B, H, S, D] tensor, in the memory order [B, S, H, D] that the backward kernels
 * require: itself or a copy, owned.
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

/* Saves what every kernel but the math one saves: out[0..3] as the kernel made them. */
static plim_t sdpa_keep(plim_machine *m, plim_gnode *n, const plim_t *in, plim_t mask,
                        plim_t out[4])
{
    static const uint32_t slot[4] = {S_OUT, S_LSE, S_SEED, S_OFFSET};
    for (uint32_t i = 0; i < 3; i++)
        plim_m_save(m, n, S_Q + i, in[i]);
    plim_m_save(m, n, S_MASK, mask);
    for (uint32_t i = 4; i-- > 0;) {
        plim_m_save(m, n, slot[i], out[i]);
        if (i)
            plim_m_drop(m, out[i]);
    }
    plim_m_drop(m, mask);
    plim_m_output(m, n, 0, out[0]);
    return out[0];
}

/* ---- flash ------------------------------------------------------------------------- */

/* The number of parts that the keys are split into if there are too few blocks of rows to fill
 * the card.  src: flash_api.cpp set_params_splitkv, num_splits_heuristic */
int64_t plim_flash_splits(plim_machine *m, const plim_sdpa_size *d)
{
    enum { MOST = 128, ROWS = 64 };
    int64_t width = d->size <= 64 ? 256 : d->size <= 128 ? 128 : 64;
    int64_t blocks = (d->keys + width - 1) / width, slots = 2 * plim_m_sms(m, NULL);
    int64_t row_blocks = (d->queries + ROWS - 1) / ROWS;
    double rows = (double)d->batch * (double)d->heads * (double)row_blocks;
    double eff[MOST + 1], best = 0;
    int64_t most = PLIM_MIN(PLIM_MIN((int64_t)MOST, slots), blocks);
    if (rows >= 0.8 * (double)slots)
        return 1;
    for (int64_t n = 1; n <= most; n++) {
        bool other = n == 1 || (blocks + n - 1) / n != (blocks + n - 2) / (n - 1);
        double waves = rows * (double)n / (double)slots;
        int64_t whole = (int64_t)waves + ((double)(int64_t)waves < waves);
        eff[n] = other && whole ? waves / (double)whole : 0;
        best = PLIM_MAX(best, eff[n]);
    }
    for (int64_t n = 1; n <= most; n++)
        if (eff[n] > 0 && eff[n] >= 0.85 * best)
            return n;
    return 1;
}

int64_t plim_flash_width(int64_t size)
{
    return plim_dim_round_up(size, size <= 128 ? 32 : 64);
}

/* out and log-sum-exp; the random state, in some versions on the card.  The result keeps q's
 * memory order, so the projections' [B, S, H, D] stays viewable. */
enum { F_OUT, F_LSE, F_SEED, F_OFFSET, F_COUNT };

static void flash_kernel(plim_machine *m, plim_t q, plim_t k, plim_t v, bool dropout,
                         plim_t out[F_COUNT])
{
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    sdpa_product(m, q, k, v, false);
    bool on_card = plim_m_world(m)->torch >= PLIM_SINCE_FLASH_SEED_ON_DEVICE;
    int64_t splits =
        dropout ? 1 : plim_flash_splits(m, &(plim_sdpa_size){d.B, d.H, d.Sq, d.Sk, d.D});
    plim_t lse_acc = 0, out_acc = 0;
    out[F_OUT] = plim_m_empty_like(m, q);
    out[F_LSE] = plim_m_empty_contig(m, PLIM_F32, 3, (int64_t[]){d.B, d.H, d.Sq});
    if (splits > 1) {
        lse_acc = plim_m_scratch_of(m, PLIM_F32, 4, (int64_t[]){splits, d.B, d.H, d.Sq});
        out_acc = plim_m_scratch_of(
            m, PLIM_F32, 5, (int64_t[]){splits, d.B, d.H, d.Sq, plim_flash_width(d.D)});
    }
    out[F_SEED] = on_card ? plim_m_empty_contig(m, PLIM_U64, 1, (int64_t[]){2}) : 0;
    out[F_OFFSET] = on_card ? plim_m_empty_contig(m, PLIM_U64, 0, NULL) : 0;
    if (on_card && dropout) { /* the drawn state replaces it */
        plim_t drawn = plim_m_empty_contig(m, PLIM_U64, 1, (int64_t[]){2});
        plim_m_drop(m, out[F_SEED]);
        out[F_SEED] = drawn;
    }
    plim_m_drop(m, lse_acc);
    plim_m_drop(m, out_acc);
}

static void flash_backward_kernel(plim_machine *m, plim_t g, plim_t q, plim_t k, plim_t v,
                                  plim_t out, plim_t dx[3])
{
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    sdpa_product(m, q, k, v, true);
    int64_t rows = plim_dim_round_up(d.Sq, 128);
    plim_dtype t = plim_m_meta(m, g)->dtype;
    plim_t gc = sdpa_bshd(m, g), oc = sdpa_bshd(m, out);
    dx[0] = plim_m_empty_like(m, q);
    dx[1] = plim_m_empty_like(m, k);
    dx[2] = plim_m_empty_like(m, v);
    plim_t softmax_d = plim_m_scratch_of(m, PLIM_F32, 3, (int64_t[]){d.B, d.H, rows});
    plim_t acc =
        plim_m_scratch_of(m, PLIM_F32, 4, (int64_t[]){d.B, rows, d.H, plim_flash_width(d.D)});
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

/* output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox seed, offset, debug_attn_mask:
 * returns those that are tensors, in order */
void plim_kernel_flash(plim_call *c)
{
    plim_t q = plim_arg_tensor(c, 0), made[F_COUNT];
    flash_kernel(c->m, q, plim_arg_tensor(c, 1), plim_arg_tensor(c, 2),
                 plim_arg_float(c, 3, 0.0) > 0.0, made);
    c->out[0] = made[F_OUT];
    c->out[1] = made[F_LSE];
    c->out[4] = made[F_SEED];
    c->out[5] = made[F_OFFSET];
    c->out[6] = plim_m_empty_contig(c->m, plim_m_meta(c->m, q)->dtype, 1, (int64_t[]){0});
    c->n_out = 7;
}
void plim_kernel_flash_backward(plim_call *c)
{
    flash_backward_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                          plim_arg_tensor(c, 2), plim_arg_tensor(c, 3), plim_arg_tensor(c, 4),
                          c->out);
    c->n_out = 3;
}

static void flash_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    flash_backward_kernel(m, g[0], plim_m_saved(m, n, S_Q), plim_m_saved(m, n, S_K),
                          plim_m_saved(m, n, S_V), plim_m_saved(m, n, S_OUT), dx);
}
static const plim_grad_fn flash_fn = {"ScaledDotProductFlashAttentionBackward0",
                                      flash_backward};

static plim_t sdpa_flash(plim_machine *m, plim_t q, plim_t k, plim_t v, bool dropout)
{
    plim_t in[3] = {q, k, v}, out[F_COUNT];
    plim_gnode *n = plim_m_node(m, &flash_fn, 3, in);
    flash_kernel(m, q, k, v, dropout, out);
    return sdpa_keep(m, n, in, 0, out);
}

/* ---- memory-efficient ------------------------------------------------------------------ */

/* out and the gradients are [B, S, H, D] in memory, viewed as [B, H, S, D] */
static plim_t efficient_tensor(plim_machine *m, plim_dtype t, int64_t B, int64_t H, int64_t S,
                               int64_t D)
{
    plim_meta x = plim_meta_make(t, 4, (int64_t[]){B, S, H, D});
    int64_t s = x.stride[1];
    x.dim[1] = H, x.dim[2] = S;
    x.stride[1] = x.stride[2], x.stride[2] = s;
    return plim_m_empty(m, &x);
}

/* Row sums of g times out.  The 16-bit kernels compute them themselves; in fp32 they are one
 * expression, (g * out).sum(-1).transpose(-2, -1).contiguous(), whose temporaries live to its
 * end.  src: kernel_backward.h kKernelComputesDelta */
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

/* fp32 accumulators of dq, in tiles with a lock each; also of dk and dv, if these are 16-bit
 * and do not stay in registers.  The larger tiles need the shared memory of the data-centre
 * cards.
 * src: mem_eff_attention/kernel_backward.h workspace_elements_gq and _gk, gv;
 * kernels/generate_kernels.py; tests/golden/cuda */
static uint64_t efficient_workspace(plim_machine *m, plim_dtype t, const sdpa_dims *d)
{
    const plim_world *w = plim_m_world(m);
    bool half = plim_dtype_bytes(t) == 2,
         roomy = plim_world_is(w, 80) || plim_world_is(w, 90) || plim_world_is(w, 100);
    int64_t D = PLIM_MAX(d->D, d->Dv), rows = D > 64 && roomy ? 128 : 64;
    bool in_registers = half && (D <= rows && D <= 128);
    int64_t cols = in_registers && D > 64 && plim_world_since(w, 80) ? 128 : 64;
    int64_t lock = 4; /* floats */
    int64_t per_head =
        (d->Sq + rows - 1) / rows * ((d->D + cols - 1) / cols) * (rows * cols + lock);
    if (half && !in_registers)
        per_head += plim_dim_round_up(d->Sk, cols) *
                    (plim_dim_round_up(d->D, rows) + plim_dim_round_up(d->Dv, rows));
    plim_meta all = plim_meta_make(PLIM_F32, 3, (int64_t[]){d->B, d->H, per_head});
    uint64_t bytes = 0;
    return plim_meta_bytes(&all, &bytes) ? bytes : 0;
}

/* dx[0..2], and the mask's gradient, whose rows are aligned to 16 elements */
static void efficient_backward_kernel(plim_machine *m, plim_t g, plim_t q, plim_t k, plim_t v,
                                      bool want_mask, plim_t dx[4])
{
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    sdpa_product(m, q, k, v, true);
    plim_dtype t = plim_m_meta(m, g)->dtype;
    plim_t gc = sdpa_bshd(m, g);
    dx[0] = efficient_tensor(m, t, d.B, d.H, d.Sq, d.D);
    dx[1] = efficient_tensor(m, t, d.B, d.H, d.Sk, d.D);
    dx[2] = efficient_tensor(m, t, d.B, d.H, d.Sk, d.Dv);
    if (want_mask) {
        plim_meta part =
            plim_meta_make(t, 4, (int64_t[]){d.B, d.H, d.Sq, plim_dim_round_up(d.Sk, 16)});
        plim_t whole = plim_m_empty(m, &part);
        part.dim[3] = d.Sk;
        dx[3] = plim_m_alias(m, whole, &part);
        plim_m_drop(m, whole);
    }
    plim_t delta = efficient_delta(m, t, &d);
    plim_t ws = plim_m_scratch(m, efficient_workspace(m, t, &d));
    plim_m_drop(m, ws);
    plim_m_drop(m, delta);
    plim_m_drop(m, gc);
}

/* out, and the log-sum-exp if it is needed for backward; the random state, which recent
 * versions put on the card if nothing is drawn */
static void efficient_kernel(plim_machine *m, plim_t q, plim_t k, plim_t v, bool keep_lse,
                             bool dropout, plim_t out[4])
{
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    sdpa_product(m, q, k, v, false);
    plim_dtype t = plim_m_meta(m, q)->dtype;
    bool on_card = !dropout && plim_m_world(m)->torch >= PLIM_SINCE_EFFICIENT_SEED_ON_DEVICE;
    for (int i = 2; i < 4; i++)
        out[i] = on_card ? plim_m_empty_contig(m, PLIM_I64, 0, NULL) : 0;
    out[0] = efficient_tensor(m, t, d.B, d.H, d.Sq, d.Dv);
    int64_t rows[3] = {d.B, d.H, keep_lse ? plim_dim_round_up(d.Sq, 32) : 0};
    out[1] = plim_m_empty_contig(m, PLIM_F32, 3, rows);
    if (plim_dtype_bytes(t) == 2 && PLIM_MAX(d.D, d.Dv) > 128) /* accumulated in memory */
        plim_m_drop(m, plim_m_empty_contig(m, PLIM_F32, 4, (int64_t[]){d.B, d.Sq, d.H, d.Dv}));
}

/* output, log_sumexp, philox seed and offset */
void plim_kernel_efficient(plim_call *c)
{
    efficient_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2),
                     plim_arg_int(c, 3, 0), plim_arg_float(c, 4, 0.0) > 0.0, c->out);
    c->n_out = 4;
}
void plim_kernel_efficient_backward(plim_call *c)
{
    bool want[4];
    plim_arg_mask(c, 6, want, 4);
    efficient_backward_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                              plim_arg_tensor(c, 2), plim_arg_tensor(c, 3),
                              want[3] && plim_arg_given(c, 4), c->out);
    c->n_out = 4;
}

static void efficient_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    efficient_backward_kernel(m, g[0], plim_m_saved(m, n, S_Q), plim_m_saved(m, n, S_K),
                              plim_m_saved(m, n, S_V), plim_m_wants(m, n, S_MASK), dx);
}
static const plim_grad_fn efficient_fn = {"ScaledDotProductEfficientAttentionBackward0",
                                          efficient_backward};

/* A bool mask becomes an additive one: where(mask, 0, -inf), with both scalars on the card; in
 * older versions zeros filled through the inverted mask.
 * src: attention.cpp convert_boolean_attn_mask */
static plim_t additive_mask(plim_machine *m, plim_t mask, plim_dtype t)
{
    const plim_meta *x = plim_m_meta(m, mask);
    if (!mask || x->dtype != PLIM_BOOL)
        return plim_m_ref(m, mask);
    if (plim_m_world(m)->torch < PLIM_SINCE_SDPA_MASK_BY_WHERE) {
        plim_t zeros = plim_m_empty_contig(m, t, x->rank, x->dim);
        plim_m_drop(m, plim_m_empty_contig(m, PLIM_BOOL, x->rank, x->dim)); /* logical_not */
        return zeros;
    }
    plim_t zero = plim_m_empty_contig(m, t, 0, NULL),
           minus = plim_m_empty_contig(m, t, 0, NULL);
    plim_t add = plim_m_empty_contig(m, t, x->rank, x->dim);
    plim_m_drop(m, minus);
    plim_m_drop(m, zero);
    return add;
}

/* If the rows of the mask do not start at multiples of 8 elements, the last dim is padded;
 * then the mask is expanded to one per head.
 * src: attention.cpp preprocess_mask, pad_bias */
static plim_t efficient_mask(plim_machine *m, plim_t mask, plim_t q, plim_t k, plim_t v)
{
    enum { ALIGN = 8 };
    if (!mask)
        return 0;
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_t add = additive_mask(m, mask, plim_m_meta(m, q)->dtype);
    plim_meta x = *plim_m_meta(m, add);
    bool aligned = !x.rank || plim_stride_at(&x, -1) == 1;
    for (int32_t i = 0; i + 1 < x.rank; i++)
        aligned = aligned && x.stride[i] % ALIGN == 0;
    if (!aligned) {
        int64_t last = plim_dim_at(&x, -1), pad[2] = {0, ALIGN - last % ALIGN};
        plim_t padded = plim_at_pad(m, add, 2, pad);
        plim_m_drop(m, add);
        add = plim_at_narrow(m, padded, x.rank - 1, last);
        plim_m_drop(m, padded);
    }
    plim_t each = plim_at_expand(m, add, 4, (int64_t[]){d.B, d.H, d.Sq, d.Sk});
    plim_m_drop(m, add);
    return each;
}

static plim_t sdpa_efficient(plim_machine *m, plim_t q, plim_t k, plim_t v, plim_t mask,
                             bool dropout)
{
    plim_t bias = efficient_mask(m, mask, q, k, v), in[4] = {q, k, v, bias}, out[4];
    plim_gnode *n = plim_m_node(m, &efficient_fn, 4, in);
    efficient_kernel(m, q, k, v, n != NULL, dropout, out);
    return sdpa_keep(m, n, in, bias, out);
}

/* ---- cuDNN ----------------------------------------------------------------------------- */

/* The random state comes first; log-sum-exp [B, H, S, 1] only if it is needed for backward.
 * src: cudnn/MHA.cpp, transformers/cuda/attention.cu */
static void cudnn_kernel(plim_machine *m, plim_t q, plim_t k, plim_t v, bool keep_lse,
                         plim_t out[4])
{
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_m_calls(m, PLIM_CUDNN);
    sdpa_product(m, q, k, v, false);
    out[2] = plim_m_empty_contig(m, PLIM_I64, 0, NULL);
    out[3] = plim_m_empty_contig(m, PLIM_I64, 0, NULL);
    plim_meta y = plim_meta_like(plim_m_meta(m, q), plim_m_meta(m, q)->dtype);
    if (d.Dv != d.D) {
        y.dim[3] = d.Dv;
        plim_meta_contiguous(&y);
    }
    out[0] = plim_m_empty(m, &y);
    out[1] =
        keep_lse ? plim_m_empty_contig(m, PLIM_F32, 4, (int64_t[]){d.B, d.H, d.Sq, 1}) : 0;
    plim_m_drop(m, plim_m_scratch(m, PLIM_CUDNN_GRAPH_BYTES));
}

/* Accumulators of dq and row sums, in fp32; if heads share keys, dk and dv of each head. */
static uint64_t cudnn_backward_workspace(const sdpa_dims *d, plim_dtype t)
{
    const plim_meta sums =
                        plim_meta_make(PLIM_F32, 4, (int64_t[]){d->B, d->H, d->Sq, d->D + 1}),
                    each = plim_meta_make(t, 4, (int64_t[]){d->B, d->H, d->Sk, d->D + d->Dv});
    uint64_t bytes = 0, more = 0;
    if (!plim_meta_bytes(&sums, &bytes) || (d->Hk != d->H && !plim_meta_bytes(&each, &more)))
        return 0;
    return plim_sat_add(plim_sat_add(bytes, more), PLIM_CUDNN_GRAPH_BYTES);
}

static void cudnn_backward_kernel(plim_machine *m, plim_t q, plim_t k, plim_t v, plim_t dx[3])
{
    sdpa_dims d = sdpa_dims_of(m, q, k, v);
    plim_m_calls(m, PLIM_CUDNN);
    sdpa_product(m, q, k, v, true);
    dx[0] = plim_m_empty_like(m, q);
    dx[1] = plim_m_empty_like(m, k);
    dx[2] = plim_m_empty_like(m, v);
    plim_dtype t = plim_m_meta(m, q)->dtype;
    plim_m_drop(m, plim_m_scratch(m, cudnn_backward_workspace(&d, t)));
}

/* output, logsumexp, cum_seq_q, cum_seq_k, philox seed, offset, debug_attn_mask */
void plim_kernel_cudnn_attention(plim_call *c)
{
    plim_t made[4];
    cudnn_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2),
                 plim_arg_int(c, 3, 0), made);
    c->out[0] = made[0];
    c->out[1] = made[1];
    c->out[4] = made[2];
    c->out[5] = made[3];
    c->n_out = 7;
}
void plim_kernel_cudnn_attention_backward(plim_call *c)
{
    cudnn_backward_kernel(c->m, plim_arg_tensor(c, 0), plim_arg_tensor(c, 1),
                          plim_arg_tensor(c, 2), c->out);
    c->n_out = 3;
}

static void cudnn_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    cudnn_backward_kernel(m, plim_m_saved(m, n, S_Q), plim_m_saved(m, n, S_K),
                          plim_m_saved(m, n, S_V), dx);
}
static const plim_grad_fn cudnn_fn = {"ScaledDotProductCudnnAttentionBackward0",
                                      cudnn_backward};

static plim_t sdpa_cudnn(plim_machine *m, plim_t q, plim_t k, plim_t v, plim_t mask)
{
    plim_t in[3] = {q, k, v}, out[4];
    plim_t bias = additive_mask(m, mask, plim_m_meta(m, q)->dtype);
    plim_gnode *n = plim_m_node(m, &cudnn_fn, 3, in);
    cudnn_kernel(m, q, k, v, n != NULL, out);
    return sdpa_keep(m, n, in, bias, out);
}

/* ---- math ------------------------------------------------------------------------------ */

/* ones(Sq, Sk).tril(), as an additive mask */
static plim_t causal_mask(plim_machine *m, plim_t q, plim_t k)
{
    const plim_meta *a = plim_m_meta(m, q), *b = plim_m_meta(m, k);
    int64_t dim[2] = {plim_dim_at(a, -2), plim_dim_at(b, -2)};
    plim_t ones = plim_m_empty_contig(m, PLIM_BOOL, 2, dim);
    plim_t tril = plim_m_empty_contig(m, PLIM_BOOL, 2, dim);
    plim_m_drop(m, ones);
    plim_t add = additive_mask(m, tril, a->dtype);
    plim_m_drop(m, tril);
    return add;
}

/* Grouped queries: repeats each head of t for the heads of q that share it.  Takes t.
 * src: attention.cpp pre_process_group_query_attention_input */
static plim_t sdpa_repeat_heads(plim_machine *m, plim_t t, plim_t q)
{
    plim_meta x = *plim_m_meta(m, t);
    int32_t h = x.rank - 3;
    int64_t heads = plim_m_meta(m, q)->dim[h], dim[PLIM_MAX_RANK];
    if (h < 0 || x.dim[h] == heads || x.rank == PLIM_MAX_RANK || x.dim[h] < 1 ||
        heads % x.dim[h])
        return t;
    for (int32_t i = 0, to = 0; i < x.rank; i++) {
        dim[to++] = x.dim[i];
        if (i == h)
            dim[to++] = heads / x.dim[h];
    }
    plim_t u = plim_at_unsqueeze(m, t, h + 1), e = plim_at_expand(m, u, x.rank + 1, dim);
    x.dim[h] = heads;
    plim_t y = plim_at_reshape(m, e, x.rank, x.dim);
    plim_m_drop(m, e);
    plim_m_drop(m, u);
    plim_m_drop(m, t);
    return y;
}

/* q and k scaled, scores, softmax, dropout, times v.  16-bit operands may be computed in fp32,
 * and the probabilities are cast back even if they are not used.
 * src: attention.cpp _scaled_dot_product_attention_math */
static plim_t sdpa_math(plim_machine *m, plim_t q0, plim_t k0, plim_t v0, plim_t mask0,
                        bool causal, double p)
{
    plim_dtype t = plim_m_meta(m, q0)->dtype;
    bool wide = plim_m_world(m)->torch >= PLIM_SINCE_SDPA_MATH_FP32;
    plim_dtype calc = plim_dtype_bytes(t) == 2 && wide ? PLIM_F32 : t;
    int32_t rank = plim_m_meta(m, k0)->rank;
    plim_t mask = additive_mask(m, mask0, t);
    plim_t q = plim_at_to(m, q0, calc), k = plim_at_to(m, k0, calc),
           v = plim_at_to(m, v0, calc);
    plim_t scale = plim_m_wrapped(m, true);
    plim_t qs = plim_at_mul(m, q, scale, false);
    if (causal && !mask)
        mask = causal_mask(m, q, k);
    k = sdpa_repeat_heads(m, k, q);
    v = sdpa_repeat_heads(m, v, q);
    plim_t kt = plim_at_transpose(m, k, rank - 2, rank - 1);
    plim_t ks = plim_at_mul(m, kt, scale, false);
    plim_t scores = plim_at_matmul(m, qs, ks);
    plim_m_drop(m, ks); /* a temporary of the expression */
    plim_m_drop(m, kt);
    if (mask) {
        plim_t masked = plim_at_add(m, scores, mask, true);
        plim_m_drop(m, scores);
        scores = masked;
    }
    plim_t attn = plim_m_world(m)->torch >= PLIM_SINCE_SDPA_SAFE_SOFTMAX
                      ? plim_at_safe_softmax(m, scores)
                      : plim_at_softmax(m, scores, false);
    plim_m_drop(m, scores);
    if (p > 0.0) {
        plim_t dropped = plim_at_dropout(m, attn, p, true, false);
        plim_m_drop(m, attn);
        attn = dropped;
    }
    plim_t probabilities = plim_at_to(m, attn, t);
    plim_t y = plim_at_matmul(m, attn, v);
    plim_t out = plim_at_to(m, y, t);
    plim_t all[] = {y, probabilities, attn, qs, scale, mask, v, k, q};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
    return out;
}

/* ---- kernels alone -------------------------------------------------------------------------- */

void plim_sdpa_kernel(plim_machine *m, plim_sdpa kernel, plim_t q, plim_t k, plim_t v,
                      plim_t out[4])
{
    plim_t made[F_COUNT] = {0};
    switch (kernel) {
    case PLIM_SDPA_FLASH: flash_kernel(m, q, k, v, false, made); break;
    case PLIM_SDPA_EFFICIENT: efficient_kernel(m, q, k, v, true, false, made); break;
    case PLIM_SDPA_CUDNN: cudnn_kernel(m, q, k, v, true, made); break;
    case PLIM_SDPA_MATH: break;
    }
    memcpy(out, made, sizeof made);
}

void plim_sdpa_kernel_backward(plim_machine *m, plim_sdpa kernel, plim_t g, plim_t q, plim_t k,
                               plim_t v, plim_t out, plim_t dx[3])
{
    plim_t made[4] = {0};
    switch (kernel) {
    case PLIM_SDPA_FLASH: flash_backward_kernel(m, g, q, k, v, out, made); break;
    case PLIM_SDPA_EFFICIENT: efficient_backward_kernel(m, g, q, k, v, false, made); break;
    case PLIM_SDPA_CUDNN: cudnn_backward_kernel(m, q, k, v, made); break;
    case PLIM_SDPA_MATH: break;
    }
    memcpy(dx, made, 3 * sizeof *dx);
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
        plim_dim_at(km, -1) != plim_dim_at(qm, -1) ||
        plim_dim_at(km, -2) != plim_dim_at(vm, -2)) {
        plim_m_fail(m, PLIM_ESHAPE, "attention: query %s and key %s do not match",
                    plim_meta_str(qm, a, sizeof a), plim_meta_str(km, b, sizeof b));
        return;
    }
    bool causal = plim_arg_int(c, 5, 0);
    double p = plim_m_world(c->m)->eval ? 0.0 : plim_arg_float(c, 4, 0.0);
    const plim_meta *mm = mask ? plim_m_meta(m, mask) : NULL;
    const plim_sdpa_call call = {.mask = mask != 0,
                                 .mask_strided =
                                     mm && mm->rank && mm->stride[mm->rank - 1] != 1,
                                 .mask_grad = mask && plim_m_requires_grad(m, mask),
                                 .causal = causal,
                                 .gqa = plim_arg_int(c, 7, 0),
                                 .dropout = p > 0.0};
    switch (plim_sdpa_choice(plim_m_world(m), qm, km, vm, &call)) {
    case PLIM_SDPA_FLASH: plim_ret(c, sdpa_flash(m, q, k, v, call.dropout)); break;
    case PLIM_SDPA_EFFICIENT:
        plim_ret(c, sdpa_efficient(m, q, k, v, mask, call.dropout));
        break;
    case PLIM_SDPA_CUDNN: plim_ret(c, sdpa_cudnn(m, q, k, v, mask)); break;
    case PLIM_SDPA_MATH: plim_ret(c, sdpa_math(m, q, k, v, mask, causal, p)); break;
    }
}
