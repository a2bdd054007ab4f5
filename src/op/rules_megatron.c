/* rules_megatron.c -- autograd functions of Megatron-LM and of Transformer Engine, which keep other
 * tensors than the ops of PyTorch that they replace.  Sequences are dimension 0.
 *
 * What torch.compile fuses makes only its results, and keeps what its inputs are not.
 * src: megatron-core 0.16 tensor_parallel/layers.py, mappings.py, cross_entropy.py, fusions/;
 * Transformer Engine 2.8 pytorch/module, pytorch/attention */
#include "op/rules.h"

/* in gnode.i: of a collective; listed: of parts of different sizes */
enum { PARTS, LISTED };
/* and of a linear layer */
enum { OF_TE = PARTS + 1, ACCUMULATES, DEFERS };

/* ---- parts of a sequence ---------------------------------------------------------------- */

static plim_meta scale_first(const plim_meta *x, int64_t times, int64_t over)
{
    plim_meta out = *x;
    plim_set_dim(&out, 0, plim_dim_mul(plim_dim_at(&out, 0), times) / PLIM_MAX(over, 1));
    plim_meta_contiguous(&out);
    return out;
}

static plim_t make_gathered(plim_machine *m, plim_t x, int64_t parts)
{
    plim_meta out = scale_first(plim_m_meta(m, x), parts, 1);
    return plim_m_empty(m, &out);
}

static plim_t make_scattered(plim_machine *m, plim_t x, int64_t parts)
{
    plim_meta out = scale_first(plim_m_meta(m, x), 1, parts);
    return plim_m_empty(m, &out);
}

/* The whole sequence, of whose parts x is one: in a buffer that is never freed, or for this moment. */
static plim_t gather_input(plim_machine *m, plim_t x, int64_t parts, bool te)
{
    plim_meta full = scale_first(plim_m_meta(m, x), parts, 1);
    return parts > 1 && te ? plim_m_empty(m, &full) : plim_m_alias(m, x, &full);
}

/* What a collective of a list of tensors makes of them for itself; `whole` has its size. */
static void flatten_list(plim_machine *m, bool listed, plim_t whole)
{
    if (listed)
        plim_m_drop(m, plim_m_empty_like(m, whole));
}

static void scatter_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t gc = plim_contiguous_tmp(m, g[0]);
    dx[0] = make_gathered(m, gc, n->i[PARTS]);
    flatten_list(m, n->i[LISTED], dx[0]);
    plim_m_drop(m, gc);
}
static const plim_grad_fn scatter_fn = {"_ReduceScatterToSequenceParallelRegionBackward",
                                        scatter_backward},
                          split_fn = {"_ScatterToSequenceParallelRegionBackward",
                                      scatter_backward};

/* reduce_scatter_to_sequence_parallel_region */
void plim_run_megatron_scatter(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(m, &scatter_fn, 1, &x);
    if (n) {
        n->i[PARTS] = plim_arg_int(c, 1, 1);
        n->i[LISTED] = plim_arg_int(c, 2, 0);
    }
    plim_t y = make_scattered(m, x, plim_arg_int(c, 1, 1));
    flatten_list(m, plim_arg_int(c, 2, 0), x);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* scatter_to_sequence_parallel_region: a view */
void plim_run_megatron_split(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(m, &split_fn, 1, &x);
    if (n)
        n->i[PARTS] = plim_arg_int(c, 1, 1);
    plim_meta part = scale_first(plim_m_meta(m, x), 1, plim_arg_int(c, 1, 1));
    plim_t y = plim_m_alias(m, x, &part);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

static void gather_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t gc = plim_contiguous_tmp(m, g[0]);
    dx[0] = make_scattered(m, gc, n->i[PARTS]);
    flatten_list(m, n->i[LISTED], gc);
    plim_m_drop(m, gc);
}
static const plim_grad_fn gather_fn = {"_GatherFromSequenceParallelRegionBackward",
                                       gather_backward};

/* gather_from_sequence_parallel_region, which may put it into the buffer that is never freed */
void plim_run_megatron_gather(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    int64_t parts = plim_arg_int(c, 1, 1), listed = plim_arg_int(c, 3, 0);
    plim_gnode *n = plim_m_node(m, &gather_fn, 1, &x);
    if (n) {
        n->i[PARTS] = parts;
        n->i[LISTED] = listed;
    }
    plim_t y =
        plim_arg_int(c, 2, 0) ? gather_input(m, x, parts, false) : make_gathered(m, x, parts);
    flatten_list(m, listed, y);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- linear -------------------------------------------------------------------------------- */

/* src: pytorch/cpp_extensions/gemm.py get_cublas_workspace_size_bytes */
void plim_te_workspace(plim_machine *m, plim_str key)
{
    enum { HOPPER = 90, MIB = 1 << 20 };
    int64_t bytes = plim_world_since(plim_m_world(m), HOPPER) ? 32 * MIB : 4 * MIB;
    const plim_meta workspace = plim_meta_make(PLIM_U8, 1, &bytes);
    plim_m_kept(m, key, &workspace);
}

plim_t plim_te_product(plim_machine *m, plim_t a, plim_t b, plim_dtype t)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b);
    int64_t inner = plim_dim_at(x, -1);
    uint64_t numel;
    plim_meta out = *x;
    plim_set_dim(&out, -1, plim_dim_at(y, -1));
    out.dtype = t;
    plim_meta_contiguous(&out);
    plim_t product = plim_m_empty(m, &out);
    plim_te_workspace(m, PLIM_STR("workspace of Transformer Engine"));
    if (plim_meta_numel(&out, &numel))
        plim_m_product(m, PLIM_WORK_gemm, plim_sat_mul(numel, (uint64_t)inner), out.dtype);
    return product;
}

static plim_t multiply_matrices(plim_machine *m, bool te, plim_t a, plim_t b)
{
    return te ? plim_te_product(m, a, b, plim_m_meta(m, a)->dtype) : plim_at_matmul(m, a, b);
}

plim_t plim_te_unread_gradient(plim_machine *m, const plim_meta *w)
{
    plim_t unread = plim_m_kept(m, PLIM_STR("unread gradient"), w);
    return unread ? plim_m_alias(m, unread, w) : plim_m_outside(m, w); /* --workspace off */
}

static plim_t weight_gradient(plim_machine *m, const plim_gnode *n, plim_t g, plim_t x,
                              plim_t w)
{
    if (n->i[ACCUMULATES])
        return plim_te_unread_gradient(m, plim_m_meta(m, w));
    plim_t rows = plim_at_fold_rows(m, g), in = plim_at_fold_rows(m, x),
           rows_t = plim_at_t(m, rows);
    plim_t dw = multiply_matrices(m, n->i[OF_TE], rows_t, in);
    plim_m_drop(m, rows_t);
    plim_m_drop(m, in);
    plim_m_drop(m, rows);
    return dw;
}

/* Of the head, gradients of the weight may be put off until all micro-batches are through: of the first ones, so many.
 * What is gathered for them is in two buffers that are never freed. */
static bool defer_weight(plim_machine *m, const plim_gnode *n, plim_t g)
{
    enum { TENSORS = 2 }; /* of each */
    plim_t x = plim_m_saved(m, n, 0);
    if (plim_m_deferred(m) / TENSORS >= (uint64_t)n->i[DEFERS])
        return false;
    plim_m_defer(m, g);
    plim_m_defer(m, x);
    if (n->i[PARTS] > 1) {
        const plim_meta full = scale_first(plim_m_meta(m, x), n->i[PARTS], 1);
        plim_m_kept(m, PLIM_STR("mpu_0"), &full);
        plim_m_kept(m, PLIM_STR("mpu_1"), &full);
    }
    return true;
}

/* All that is made is a variable, until it returns. */
static void linear_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t w = plim_m_saved(m, n, 1), input = 0;
    int64_t parts = n->i[PARTS];
    plim_t x = gather_input(m, plim_m_saved(m, n, 0), parts, n->i[OF_TE]);
    if (plim_m_wants(m, n, 0)) {
        input = multiply_matrices(m, n->i[OF_TE], g[0], w);
        dx[0] = parts > 1 ? make_scattered(m, input, parts) : plim_m_ref(m, input);
    }
    if (plim_m_wants(m, n, 1) && (!n->i[DEFERS] || !defer_weight(m, n, g[0])))
        dx[1] = weight_gradient(m, n, g[0], x, w);
    if (plim_m_wants(m, n, 2)) {
        plim_t rows = plim_at_fold_rows(m, g[0]);
        dx[2] = plim_at_sum(m, rows, 1, false);
        plim_m_drop(m, rows);
    }
    plim_m_drop(m, input);
    plim_m_drop(m, x);
}
static const plim_grad_fn linear_fn = {
    "LinearWithGradAccumulationAndAsyncCommunicationBackward", linear_backward};

/* Transformer Engine adds the bias in the product. */
static plim_t run_linear(plim_machine *m, const plim_t *in, int64_t parts, bool te)
{
    plim_t x = gather_input(m, in[0], parts, te), wt = plim_at_t(m, in[1]),
           y = multiply_matrices(m, te, x, wt);
    plim_m_drop(m, wt);
    if (in[2] && !te) {
        plim_t sum = plim_at_add(m, y, in[2], false);
        plim_m_drop(m, y);
        y = sum;
    }
    plim_m_drop(m, x);
    return y;
}

void plim_run_megatron_linear(plim_call *c)
{
    plim_machine *m = c->m;
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2)};
    const plim_meta *xm = plim_m_meta(m, in[0]), *wm = plim_m_meta(m, in[1]);
    char a[96], b[96];
    if (!xm->rank || wm->rank != 2 || plim_dim_at(xm, -1) != wm->dim[1]) {
        plim_m_fail(m, PLIM_ESHAPE, "linear: input %s and weight %s do not match",
                    plim_meta_str(xm, a, sizeof a), plim_meta_str(wm, b, sizeof b));
        return;
    }
    plim_gnode *n = plim_m_node(m, &linear_fn, PLIM_COUNT(in), in);
    plim_m_save(m, n, 0, in[0]);
    plim_m_save(m, n, 1, in[1]);
    if (n) {
        n->i[PARTS] = plim_arg_int(c, 3, 1);
        n->i[OF_TE] = plim_arg_int(c, 4, 0);
        n->i[ACCUMULATES] = plim_arg_int(c, 5, 0);
        n->i[DEFERS] = plim_arg_int(c, 6, 0);
    }
    bool mode = plim_m_grad_mode(m);
    plim_m_set_grad_mode(m, false);
    plim_t y = run_linear(m, in, plim_arg_int(c, 3, 1), plim_arg_int(c, 4, 0));
    plim_m_set_grad_mode(m, mode);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* ---- fused kernels -------------------------------------------------------------------------- */

/* A gradient that is written over the one that is read. */
static void inplace_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = plim_m_ref(m, g[0]);
}
static const plim_grad_fn softmax_fn = {"ScaledUpperTriangMaskedSoftmaxBackward",
                                        inplace_backward};

/* softmax(scale * scores, with a causal mask) in one kernel, in the type of the scores */
void plim_run_megatron_softmax(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(m, &softmax_fn, 1, &x);
    plim_t y = plim_m_empty_like(m, x);
    plim_m_save(m, n, 0, y);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* The sum of g over all but the last dimension. */
static plim_t bias_gradient(plim_machine *m, plim_t g)
{
    return plim_at_sum(m, g, (1u << (plim_m_meta(m, g)->rank - 1)) - 1, false);
}

/* The gradient of x serves as that of the bias, too. */
static void activation_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    dx[0] = plim_m_empty_like(m, plim_m_saved(m, n, 0));
    if (plim_m_wants(m, n, 1))
        dx[1] = bias_gradient(m, dx[0]);
}
static const plim_grad_fn activation_fn = {"BiasActivationFunctionBackward",
                                           activation_backward};

/* gelu(x + bias), or of halves (gated) silu(x0 + bias0) * (x1 + bias1) */
void plim_run_megatron_activation(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    plim_meta out = *plim_m_meta(m, in[0]);
    if (plim_arg_int(c, 2, 0) && out.rank)
        plim_set_dim(&out, -1, plim_dim_at(&out, -1) / 2);
    plim_meta_contiguous(&out);
    plim_gnode *n = plim_m_node(m, &activation_fn, PLIM_COUNT(in), in);
    plim_m_save(m, n, 0, in[0]);
    plim_m_save(m, n, 1, in[1]);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

enum { OF_X, OF_BIAS, OF_RESIDUAL };

static void dropout_add_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    bool drops = plim_m_saved(m, n, 0) != 0;
    if (plim_m_wants(m, n, OF_X))
        dx[OF_X] = drops ? plim_m_empty_like(m, g[0]) : plim_m_ref(m, g[0]);
    if (plim_m_wants(m, n, OF_BIAS))
        dx[OF_BIAS] = bias_gradient(m, drops && dx[OF_X] ? dx[OF_X] : g[0]);
    if (plim_m_wants(m, n, OF_RESIDUAL))
        dx[OF_RESIDUAL] = plim_m_ref(m, g[0]);
}
static const plim_grad_fn dropout_add_fn = {"CompiledFunctionBackward", dropout_add_backward};

/* One kernel, that keeps which elements were dropped. */
static plim_t fused_dropout_add(plim_machine *m, const plim_t *in, bool drops)
{
    plim_gnode *n = plim_m_node(m, &dropout_add_fn, 3, in);
    plim_meta mask = plim_meta_like(plim_m_meta(m, in[OF_X]), PLIM_BOOL);
    plim_t y = plim_m_empty_like(m, in[OF_X]), dropped = drops ? plim_m_empty(m, &mask) : 0;
    plim_m_save(m, n, 0, dropped);
    plim_m_drop(m, dropped);
    plim_m_output(m, n, 0, y);
    return y;
}

static plim_t plain_dropout_add(plim_machine *m, const plim_t *in, double p, bool train)
{
    plim_t x =
        in[OF_BIAS] ? plim_at_add(m, in[OF_X], in[OF_BIAS], false) : plim_m_ref(m, in[OF_X]);
    plim_t dropped = plim_at_dropout(m, x, p, train, false),
           y = plim_at_add(m, in[OF_RESIDUAL], dropped, false);
    plim_m_drop(m, dropped);
    plim_m_drop(m, x);
    return y;
}

/* residual + dropout(x + bias) */
void plim_run_megatron_dropout_add(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2)};
    double p = plim_arg_float(c, 3, 0);
    bool train = !plim_m_world(m)->eval;
    plim_ret(c, plim_arg_int(c, 4, 1) ? fused_dropout_add(m, in, train && p > 0)
                                      : plain_dropout_add(m, in, p, train));
}

static void rope_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    plim_meta out = *plim_m_meta(m, g[0]);
    plim_meta_contiguous(&out);
    dx[0] = plim_m_empty(m, &out);
}
static const plim_grad_fn rope_fn = {"FusedRoPEFuncBackward", rope_backward};

/* fused_apply_rotary_pos_emb */
void plim_run_megatron_rope(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0);
    plim_gnode *n = plim_m_node(m, &rope_fn, 1, &x);
    plim_m_save(m, n, 0, plim_arg_tensor(c, 1));
    plim_meta out = *plim_m_meta(m, x);
    plim_meta_contiguous(&out);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}

/* Keys and values come together, the positions of keys for all heads at once. */
static void mla_rope_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t dk = plim_contiguous_tmp(m, g[0]), dv = plim_contiguous_tmp(m, g[1]);
    for (uint32_t i = 0; i < 2; i++) {
        plim_meta out = n->in_meta[i];
        plim_meta_contiguous(&out);
        dx[i] = plim_m_empty(m, &out);
    }
    plim_m_drop(m, dv);
    plim_m_drop(m, dk);
}
static const plim_grad_fn mla_rope_fn = {"ApplyMLARotaryEmbKVBackward", mla_rope_backward};

/* fused_apply_mla_rope_for_kv */
void plim_run_megatron_mla_rope(plim_call *c)
{
    plim_machine *m = c->m;
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1)};
    const plim_meta both = *plim_m_meta(m, in[0]), position = *plim_m_meta(m, in[1]);
    int64_t size = plim_arg_int(c, 2, 0);
    if (both.rank != 4 || position.rank != 4 || size < 0 || size > both.dim[3]) {
        plim_m_fail(m, PLIM_ESHAPE, "keys and values of %" PRId64 " and positions", size);
        return;
    }
    plim_gnode *n = plim_m_node(m, &mla_rope_fn, 2, in);
    plim_meta key = both, value = both;
    plim_set_dim(&key, 3, both.dim[3] - size + position.dim[3]);
    plim_set_dim(&value, 3, size);
    plim_meta_contiguous(&key);
    plim_meta_contiguous(&value);
    plim_t made[] = {plim_m_empty(m, &key), plim_m_empty(m, &value)};
    for (uint32_t i = 0; i < 2; i++)
        plim_m_output(m, n, i, made[i]);
    plim_rets(c, made, 2);
}

/* ---- cross entropy of a part of the vocabulary -------------------------------------------------- */

enum { FUSED }; /* in gnode.i */

/* The softmax that the forward pass left becomes the gradient.  What torch.compile fuses copies it. */
static void loss_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    plim_t softmax = plim_m_saved(m, n, 0), target = plim_m_saved(m, n, 2);
    const plim_meta *tm = plim_m_meta(m, target);
    plim_t row = plim_m_empty_contig(m, PLIM_I64, tm->rank, tm->dim),
           update = plim_m_empty_contig(m, PLIM_F32, tm->rank, tm->dim);
    dx[0] = n->i[FUSED] ? plim_m_empty(m, &n->in_meta[0]) : plim_m_ref(m, softmax);
    plim_m_drop(m, update);
    plim_m_drop(m, row);
}
static const plim_grad_fn loss_fn = {"_VocabParallelCrossEntropyBackward", loss_backward};

static plim_t like_target(plim_machine *m, plim_t target, plim_dtype t)
{
    return plim_m_empty_contig(m, t, plim_m_meta(m, target)->rank,
                               plim_m_meta(m, target)->dim);
}

/* Which targets another rank has, and where the others are: of these, only the last two stay. */
static void place_targets(plim_machine *m, plim_t target, plim_t *elsewhere, plim_t *at)
{
    plim_t below = like_target(m, target, PLIM_BOOL),
           above = like_target(m, target, PLIM_BOOL);
    *elsewhere = like_target(m, target, PLIM_BOOL);
    plim_m_drop(m, below);
    plim_m_drop(m, above);
    plim_t copy = like_target(m, target, PLIM_I64);
    *at = like_target(m, target, PLIM_I64);
    plim_m_drop(m, copy);
}

/* Fused, the exponents of the logits are a copy of them. */
void plim_run_megatron_loss(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t x = plim_arg_tensor(c, 0), target = plim_arg_tensor(c, 1), elsewhere, at;
    plim_gnode *n = plim_m_node(m, &loss_fn, 1, &x);
    bool mode = plim_m_grad_mode(m), fused = plim_arg_int(c, 2, 0);
    plim_m_set_grad_mode(m, false);
    plim_t wide = plim_at_to(m, x, PLIM_F32), most = like_target(m, target, PLIM_F32),
           which = like_target(m, target, PLIM_I64);
    plim_m_drop(m, which);
    place_targets(m, target, &elsewhere, &at);
    plim_t copy = fused ? plim_m_empty_like(m, wide) : 0;
    plim_t row = like_target(m, target, PLIM_I64), picked = like_target(m, target, PLIM_F32),
           predicted = like_target(m, target, PLIM_F32);
    plim_m_drop(m, picked);
    plim_t sum = like_target(m, target, PLIM_F32);
    plim_m_drop(m, row);
    plim_t logarithm = like_target(m, target, PLIM_F32), y = like_target(m, target, PLIM_F32);
    plim_m_drop(m, logarithm);
    plim_m_set_grad_mode(m, mode);
    const plim_t kept[] = {wide, elsewhere, at}, rest[] = {most, predicted, sum, copy};
    for (uint32_t i = 0; i < PLIM_COUNT(kept); i++) {
        plim_m_save(m, n, i, kept[i]);
        plim_m_drop(m, kept[i]);
    }
    for (uint32_t i = 0; i < PLIM_COUNT(rest); i++)
        plim_m_drop(m, rest[i]);
    if (n)
        n->i[FUSED] = fused;
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
