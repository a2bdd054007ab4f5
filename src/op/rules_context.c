/* rules_context.c -- attention of a part of the tokens to all of them: torch's ring attention, as its
 * functions run it.  Each rank computes with the keys of one rank after another, which an all-gather
 * has brought, and merges what comes out in fp32; gradients of keys travel around the ring.
 *
 * Of 2 n parts of a causal sequence, the rank has the part at its place from the front and the one at
 * its place from the back.  Of a rank before it, all queries attend to the first half of the keys; of one
 * after it, the second half of the queries to all of them.
 * src: torch 2.13 torch/distributed/tensor/experimental/_context_parallel/_attention.py */
#include "op/rules.h"

enum { S_Q, S_K, S_V, S_OUT, S_LSE, S_SEED, S_OFFSET }; /* saved slots */
enum { KERNEL, PARTS, PART };                           /* in gnode.i */
enum { TOKENS = 2 };                                    /* the dimension */

/* As a variable of Python, it holds a tensor until another one is assigned.  Takes t. */
static void assign_variable(plim_machine *m, plim_t *variable, plim_t t)
{
    plim_m_drop(m, *variable);
    *variable = t;
}

static void drop_all(plim_machine *m, const plim_t *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        plim_m_drop(m, t[i]);
}

static plim_t half_of(plim_machine *m, plim_t x)
{
    return plim_at_narrow(m, x, TOKENS, plim_m_meta(m, x)->dim[TOKENS] / 2);
}

/* One of the halves is another tensor: cat of both. */
static plim_t replace_half(plim_machine *m, plim_t whole, plim_t half)
{
    plim_t other = half_of(m, whole), y = plim_at_cat(m, (plim_t[]){other, half}, 2, TOKENS);
    plim_m_drop(m, other);
    return y;
}

/* cat([key.flatten(), value.flatten()]) */
static plim_t join_flat(plim_machine *m, plim_t key, plim_t value)
{
    const int64_t all = -1;
    plim_t flat[] = {plim_at_reshape(m, key, 1, &all), plim_at_reshape(m, value, 1, &all)};
    plim_t y = plim_at_cat(m, flat, 2, 0);
    drop_all(m, flat, 2);
    return y;
}

/* A contiguous tensor of the size of `like` within a flat one. */
static plim_t part_of(plim_machine *m, plim_t flat, plim_t like)
{
    const plim_meta *size = plim_m_meta(m, like);
    plim_meta out = plim_meta_make(plim_m_meta(m, flat)->dtype, size->rank, size->dim);
    return plim_m_alias(m, flat, &out);
}

static plim_t flat_times(plim_machine *m, plim_t flat, int64_t n)
{
    const plim_meta *x = plim_m_meta(m, flat);
    int64_t numel = (int64_t)plim_sat_mul((uint64_t)x->dim[0], (uint64_t)n);
    return plim_m_empty_contig(m, x->dtype, 1, &numel);
}

/* ---- keys and values of one rank after another ---------------------------------------------- */

typedef struct ring {
    plim_t key, value;
    plim_t gathered, sent; /* the second until somebody waits for the first */
    int64_t parts;
} ring;

/* Of the i-th rank before this one.  What is joined after the first time is not sent: the caller's. */
static plim_t next_keys(plim_machine *m, ring *r, int64_t i)
{
    if (i > 0) {
        assign_variable(m, &r->sent, 0);
        assign_variable(m, &r->key, part_of(m, r->gathered, r->key));
        assign_variable(m, &r->value, part_of(m, r->gathered, r->value));
    }
    if (i + 1 == r->parts)
        return 0;
    plim_t joined = join_flat(m, r->key, r->value);
    if (i > 0)
        return joined;
    r->gathered = flat_times(m, joined, r->parts);
    r->sent = plim_m_ref(m, joined);
    return joined;
}

static ring start_ring(plim_machine *m, plim_t k, plim_t v, int64_t parts)
{
    return (ring){
        .key = plim_at_contiguous(m, k), .value = plim_at_contiguous(m, v), .parts = parts};
}

static void end_ring(plim_machine *m, const ring *r)
{
    const plim_t all[] = {r->key, r->value, r->gathered, r->sent};
    drop_all(m, all, PLIM_COUNT(all));
}

/* What the rank computes with: all, or halves. */
static void choose_piece(plim_machine *m, const ring *r, int64_t i, int64_t part, plim_t q,
                         plim_t piece[3])
{
    bool first_keys = i > 0 && i <= part, last_queries = i > part;
    plim_t qkv[] = {last_queries ? half_of(m, q) : plim_m_ref(m, q),
                    first_keys ? half_of(m, r->key) : plim_m_ref(m, r->key),
                    first_keys ? half_of(m, r->value) : plim_m_ref(m, r->value)};
    for (int k = 0; k < 3; k++)
        assign_variable(m, &piece[k], qkv[k]);
}

/* ---- forward ------------------------------------------------------------------------------------ */

typedef struct merger {
    plim_t out, lse; /* fp32 */
} merger;

/* A last dimension of one, if cuDNN's kernel has not made it. */
static plim_t with_column(plim_machine *m, plim_t lse)
{
    return plim_m_meta(m, lse)->rank == 4 ? plim_m_ref(m, lse) : plim_at_unsqueeze(m, lse, 3);
}

static plim_t without_column(plim_machine *m, plim_t lse, bool added)
{
    return added ? plim_at_squeeze(m, lse, 3) : plim_m_ref(m, lse);
}

/* old - f(a - b) * rest; its operands are temporaries */
static plim_t blend_pieces(plim_machine *m, plim_t old, plim_t a, plim_t b, plim_t rest)
{
    plim_t difference = plim_iter_out(m, a, b), y = plim_iter_out(m, difference, 0);
    plim_m_drop(m, difference);
    if (rest) {
        plim_t change = plim_iter_out(m, old, rest), product = plim_iter_out(m, y, change);
        plim_m_drop(m, y);
        plim_m_drop(m, change);
        y = product;
    }
    plim_t sum = plim_iter_out(m, old, y);
    plim_m_drop(m, y);
    return sum;
}

/* _SDPAMerger: partial: of the second half of the queries. */
static void merge_piece(plim_machine *m, merger *all, const plim_t *made, bool partial)
{
    plim_t out = plim_at_to(m, made[0], PLIM_F32), lse = with_column(m, made[1]);
    if (!all->out) {
        *all = (merger){out, lse};
        return;
    }
    plim_t old_lse = partial ? half_of(m, all->lse) : plim_m_ref(m, all->lse);
    plim_t old_out = partial ? half_of(m, all->out) : plim_m_ref(m, all->out);
    assign_variable(m, &old_out, blend_pieces(m, old_out, lse, old_lse, out));
    assign_variable(m, &old_lse, blend_pieces(m, old_lse, old_lse, lse, 0));
    assign_variable(m, &all->lse,
                    partial ? replace_half(m, all->lse, old_lse) : plim_m_ref(m, old_lse));
    assign_variable(m, &all->out,
                    partial ? replace_half(m, all->out, old_out) : plim_m_ref(m, old_out));
    const plim_t locals[] = {out, lse, old_lse, old_out};
    drop_all(m, locals, PLIM_COUNT(locals));
}

/* _templated_ring_attention: the result, log-sum-exp, and the random state of the last piece. */
static void attend_to_all(plim_machine *m, plim_sdpa kernel, const plim_t *in, int64_t parts,
                          int64_t part, plim_t out[4])
{
    ring r = start_ring(m, in[1], in[2], parts);
    merger all = {0, 0};
    plim_t piece[3] = {0}, made[4] = {0}, next[4];
    for (int64_t i = 0; i < parts && !plim_m_bad(m); i++) {
        plim_m_drop(m, next_keys(m, &r, i));
        choose_piece(m, &r, i, part, in[0], piece);
        plim_sdpa_kernel(m, kernel, piece[0], piece[1], piece[2], next);
        for (int k = 0; k < 4; k++)
            assign_variable(m, &made[k], next[k]);
        merge_piece(m, &all, made, i > part);
    }
    bool added = kernel != PLIM_SDPA_CUDNN;
    out[0] = plim_at_to(m, all.out, plim_m_meta(m, in[0])->dtype);
    out[1] = without_column(m, all.lse, added);
    out[2] = plim_m_ref(m, made[2]);
    out[3] = plim_m_ref(m, made[3]);
    plim_m_drop(m, all.out);
    plim_m_drop(m, all.lse);
    end_ring(m, &r);
    drop_all(m, piece, 3);
    drop_all(m, made, 4);
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* Variables of _templated_ring_attention_backward. */
typedef struct returning {
    plim_t sum[3]; /* fp32: of the queries, and of the keys and values that are here */
    plim_t made[3];
    plim_t out, grad, lse;
    plim_t sent, received; /* gradients of keys and values, joined */
    plim_t joined;         /* keys and values, the last time */
} returning;

static void choose_results(plim_machine *m, returning *b, const plim_gnode *n, plim_t g,
                           bool partial)
{
    plim_t out = plim_m_saved(m, n, S_OUT), lse = plim_m_saved(m, n, S_LSE);
    plim_t halves[] = {partial ? half_of(m, out) : plim_m_ref(m, out),
                       partial ? half_of(m, g) : plim_m_ref(m, g),
                       partial ? half_of(m, lse) : plim_m_ref(m, lse)};
    if (partial)
        assign_variable(m, &halves[2], plim_at_contiguous(m, halves[2]));
    assign_variable(m, &b->out, halves[0]);
    assign_variable(m, &b->grad, halves[1]);
    assign_variable(m, &b->lse, halves[2]);
}

/* To the gradients that another rank has sent: of the first half of the keys, or of all. */
static void add_to_keys(plim_machine *m, returning *b, bool first_half)
{
    plim_t of[2];
    for (int k = 0; k < 2; k++)
        of[k] = part_of(m, b->received, b->sum[1 + k]);
    assign_variable(m, &b->sum[1], of[0]);
    assign_variable(m, &b->sum[2], of[1]);
    for (int k = 1; first_half && k < 3; k++) {
        plim_t half = half_of(m, b->sum[k]);
        assign_variable(m, &b->sum[k], replace_half(m, b->sum[k], half));
        plim_m_drop(m, half);
    }
}

/* The gradients of keys and values go to the next rank. */
static void send_keys(plim_machine *m, returning *b)
{
    assign_variable(m, &b->sent, join_flat(m, b->sum[1], b->sum[2]));
    assign_variable(m, &b->received, flat_times(m, b->sent, 1));
}

static void return_piece(plim_machine *m, returning *b, int64_t i, int64_t part)
{
    if (i > 0) {
        assign_variable(m, &b->sent, 0);
        add_to_keys(m, b, i <= part);
    }
    send_keys(m, b);
    if (i > part) {
        plim_t half = half_of(m, b->sum[0]);
        assign_variable(m, &b->sum[0], replace_half(m, b->sum[0], half));
        plim_m_drop(m, half);
    }
}

static plim_t fp32_zeros(plim_machine *m, plim_t x)
{
    const plim_meta out = plim_meta_like(plim_m_meta(m, x), PLIM_F32);
    return plim_m_empty(m, &out);
}

static void context_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t in[3], piece[3] = {0}, made[3];
    int64_t parts = n->i[PARTS], part = n->i[PART];
    returning b = {.sent = 0};
    for (int k = 0; k < 3; k++) {
        in[k] = plim_m_saved(m, n, S_Q + (uint32_t)k);
        b.sum[k] = fp32_zeros(m, in[k]);
    }
    ring r = start_ring(m, in[1], in[2], parts);
    for (int64_t i = 0; i < parts && !plim_m_bad(m); i++) {
        plim_t joined = next_keys(m, &r, i);
        if (joined)
            assign_variable(m, &b.joined, joined);
        choose_piece(m, &r, i, part, in[0], piece);
        choose_results(m, &b, n, g[0], i > part);
        plim_sdpa_kernel_backward(m, (plim_sdpa)n->i[KERNEL], b.grad, piece[0], piece[1],
                                  piece[2], b.out, made);
        for (int k = 0; k < 3; k++)
            assign_variable(m, &b.made[k], made[k]);
        return_piece(m, &b, i, part);
    }
    plim_dtype t = plim_m_meta(m, in[0])->dtype;
    dx[0] = plim_at_to(m, b.sum[0], t);
    assign_variable(m, &b.sent, 0);
    plim_t keys = plim_at_to(m, b.received, t);
    dx[1] = part_of(m, keys, in[1]);
    dx[2] = part_of(m, keys, in[2]);
    plim_m_drop(m, keys);
    plim_m_drop(m, b.joined);
    drop_all(m, b.made, 3);
    drop_all(m, b.sum, 3);
    end_ring(m, &r);
    plim_m_drop(m, b.received);
    drop_all(m, piece, 3);
    const plim_t rest[] = {b.out, b.grad, b.lse};
    drop_all(m, rest, PLIM_COUNT(rest));
}

/* ---- the op ---------------------------------------------------------------------------------------- */

static const plim_grad_fn context_fn[] = {
    [PLIM_SDPA_FLASH] = {"ScaledDotProductFlashAttentionBackward0", context_backward},
    [PLIM_SDPA_EFFICIENT] = {"ScaledDotProductEfficientAttentionBackward0", context_backward},
    [PLIM_SDPA_CUDNN] = {"ScaledDotProductCudnnAttentionBackward0", context_backward},
};

static plim_sdpa choose_kernel(plim_machine *m, const plim_t *in, bool gqa)
{
    const plim_sdpa_call call = {.causal = true, .gqa = gqa};
    return plim_sdpa_choice(plim_m_world(m), plim_m_meta(m, in[0]), plim_m_meta(m, in[1]),
                            plim_m_meta(m, in[2]), &call);
}

static plim_gnode *context_node(plim_machine *m, plim_sdpa kernel, const plim_t *in,
                                int64_t parts, int64_t part)
{
    plim_gnode *n = plim_m_node(m, &context_fn[kernel], 3, in);
    if (n) {
        n->i[KERNEL] = kernel;
        n->i[PARTS] = parts;
        n->i[PART] = part;
    }
    return n;
}

/* scaled_dot_product_attention within context_parallel() */
void plim_run_cp_attention(plim_call *c)
{
    plim_machine *m = c->m;
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2)};
    int64_t parts = plim_arg_int(c, 3, 1), part = plim_arg_int(c, 4, 0);
    const plim_meta *q = plim_m_meta(m, in[0]), *k = plim_m_meta(m, in[1]);
    if (q->rank != 4 || k->rank != 4 || q->dim[TOKENS] % 2 ||
        q->dim[TOKENS] != k->dim[TOKENS]) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "ring attention needs as many keys as queries, an even number");
        return;
    }
    enum { MOST = 4096 }; /* ranks: each is a step of the ring */
    /* tokens: log-sum-exp of each half is padded to 32 of them, and what is padded cannot be
     * merged ("The size of tensor a (32) must match the size of tensor b (16)") */
    enum { WHOLE = 64 };
    if (parts < 1 || parts > MOST) {
        plim_m_fail(m, PLIM_ERANGE, "ring attention among %" PRId64 " ranks, the limit is %d",
                    parts, (int)MOST);
        return;
    }
    plim_sdpa kernel = choose_kernel(m, in, plim_arg_int(c, 5, 0));
    if (kernel == PLIM_SDPA_MATH) {
        plim_m_fail(
            m, PLIM_EUNSUPPORTED,
            "ring attention has no form of PyTorch's math kernel, which this card and data "
            "type need");
        return;
    }
    if (kernel == PLIM_SDPA_EFFICIENT && q->dim[TOKENS] % WHOLE) {
        plim_m_fail(
            m, PLIM_EUSAGE,
            "ring attention with PyTorch's memory-efficient kernel, which these heads, "
            "this card or data type need, takes a multiple of %d tokens on each card, "
            "not %" PRId64 ": use sequences of a multiple of %" PRId64,
            (int)WHOLE, q->dim[TOKENS], WHOLE * parts);
        return;
    }
    plim_gnode *n = context_node(m, kernel, in, parts, part);
    plim_t out[4];
    bool mode = plim_m_grad_mode(m);
    plim_m_set_grad_mode(m, false);
    attend_to_all(m, kernel, in, parts, part, out);
    plim_m_set_grad_mode(m, mode);
    for (uint32_t i = 0; i < 3; i++)
        plim_m_save(m, n, S_Q + i, in[i]);
    for (uint32_t i = 0; i < 4; i++)
        plim_m_save(m, n, S_OUT + i, out[i]);
    drop_all(m, &out[1], 3);
    plim_m_output(m, n, 0, out[0]);
    plim_ret(c, out[0]);
}

/* The part of an input that a rank keeps, in the storage of the whole. */
void plim_run_cp_part(plim_call *c)
{
    plim_t x = plim_arg_tensor(c, 0);
    int64_t parts = plim_arg_int(c, 1, 1);
    plim_meta out = *plim_m_meta(c->m, x);
    if (out.rank)
        plim_set_dim(&out, -1, plim_dim_at(&out, -1) / PLIM_MAX(parts, 1));
    plim_meta_contiguous(&out);
    plim_ret(c, plim_m_alias(c->m, x, &out));
}
