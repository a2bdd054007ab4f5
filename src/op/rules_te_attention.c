/* rules_te_attention.c -- Transformer Engine's attention: FlashAttention and cuDNN's kernel, of all tokens
 * or of the part that a rank has of them.
 *
 * Of a sequence in 2 n parts, a rank has the part at its place from the front and the one at
 * its place from the back.  Keys and values travel around a ring of the ranks.  Of a rank
 * before it, all queries attend to the first half of the keys; of one after it, the second
 * half of the queries to all of them.  Ranks may exchange heads for tokens first: `ways` of
 * them; each then has the tokens of all for a part of the heads.  src: Transformer Engine 2.8
 * pytorch/attention/dot_product_attention backends.py, context_parallel.py
 * AttnFuncWithCPAndKVP2P, AttnFuncWithCPAndQKVOA2A; flash-attention 2.8
 * csrc/flash_attn/flash_api.cpp mha_fwd, mha_bwd */
#include "op/rules.h"

typedef enum te_kernel { FLASH, CUDNN } te_kernel;
enum { MOST_PARTS = 256 };

enum { A_Q, A_K, A_V, A_OUT, A_LSE, A_SEED, A_KV }; /* saved slots */
enum { KERNEL, DETERMINISTIC, PARTS, PART, WAYS };  /* in gnode.i */

/* How a kernel wants its tensors: [batch, tokens, heads, size], or of cuDNN's tokens first. */
static int32_t tokens_at(te_kernel kernel) { return kernel == FLASH ? 1 : 0; }

/* ---- the kernels -------------------------------------------------------------------------- */

typedef struct te_made {
    plim_t out, lse, seed;
} te_made;

static plim_meta resize_tokens(const plim_meta *x, te_kernel kernel, int64_t over)
{
    plim_meta out = *x;
    int32_t d = tokens_at(kernel);
    plim_set_dim(&out, d, plim_dim_at(x, d) / over);
    plim_meta_contiguous(&out);
    return out;
}

/* q: the meta of the queries; size: of a value */
static te_made run_kernel(plim_machine *m, te_kernel kernel, const plim_meta *q, int64_t size)
{
    int32_t tokens = tokens_at(kernel);
    const int64_t two = 2, lse[] = {q->dim[1 - tokens], q->dim[2], q->dim[tokens]};
    plim_meta out = *q;
    plim_set_dim(&out, 3, size);
    plim_meta_contiguous(&out);
    te_made made = {.out = plim_m_empty(m, &out)};
    made.lse = plim_m_empty_contig(m, PLIM_F32, 3, lse);
    made.seed = plim_m_empty_contig(m, PLIM_I64, 1, &two);
    return made;
}

/* FlashAttention adds up the gradients of queries in fp32: in one sum, or, so that the order does not matter, in
 * one for each group of blocks that run at the same time.  Where several heads share a key, it has gradients of
 * keys and values for each. */
static void flash_gradient_scratch(plim_machine *m, const plim_meta *q, const plim_meta *k,
                                   bool deterministic)
{
    enum { TOKENS = 128, SIZE = 32 }; /* multiples */
    int64_t batch = q->dim[0], tokens = plim_dim_round_up(q->dim[1], TOKENS),
            heads = q->dim[2], size = plim_dim_round_up(q->dim[3], SIZE),
            rows = (int64_t)PLIM_MIN(plim_sat_mul((uint64_t)batch, (uint64_t)heads),
                                     (uint64_t)INT32_MAX),
            sums = deterministic && rows ? (plim_m_sms(m, NULL) + rows - 1) / rows : 1;
    plim_t tmp[] = {
        plim_m_scratch_of(m, PLIM_F32, 3, (int64_t[]){batch, heads, tokens}),
        plim_m_scratch_of(m, PLIM_F32, 5, (int64_t[]){sums, batch, tokens, heads, size}),
        0,
        0,
    };
    if (k->dim[2] != heads)
        for (int i = 2; i < 4; i++)
            tmp[i] = plim_m_scratch_of(m, q->dtype, 4,
                                       (int64_t[]){batch, k->dim[1], heads, q->dim[3]});
    for (size_t i = 0; i < PLIM_COUNT(tmp); i++)
        plim_m_drop(m, tmp[i]);
}

static void gradient_scratch(plim_machine *m, const plim_gnode *n, const plim_meta *q,
                             const plim_meta *k)
{
    if (n->i[KERNEL] == FLASH)
        flash_gradient_scratch(m, q, k, n->i[DETERMINISTIC] != 0);
    else { /* sums of the gradients of queries, in fp32 */
        plim_m_calls(m, PLIM_CUDNN);
        plim_m_drop(m, plim_m_scratch_of(m, PLIM_F32, q->rank, q->dim));
    }
}

/* ---- heads for tokens -------------------------------------------------------------------------- */

/* x with `more` times the tokens and one of so many parts of the heads, or the other way round for `fewer`. */
static plim_meta exchanged_meta(const plim_meta *x, te_kernel kernel, int64_t more,
                                int64_t fewer)
{
    plim_meta out = *x;
    int32_t d = tokens_at(kernel);
    plim_set_dim(&out, d, plim_dim_mul(x->dim[d], more) / fewer);
    plim_set_dim(&out, 2, plim_dim_mul(x->dim[2], fewer) / more);
    plim_meta_contiguous(&out);
    return out;
}

/* Makes out[], which is owned, of up to three in[]: what is sent is put in order while the one
 * before it is on its way, and what arrives while the next is.
 * src: context_parallel.py flash_attn_a2a_communicate */
static void exchange_parts(plim_machine *m, te_kernel kernel, const plim_t *in, uint32_t n,
                           int64_t more, int64_t fewer, plim_t *out)
{
    plim_t sent[3] = {0}, got[3] = {0};
    bool gathers = more > 1; /* it orders what arrived first, else what is sent */
    for (uint32_t i = 0; i < n + 2; i++) {
        if (i > 0 && i <= n)
            got[i - 1] = plim_m_empty_like(m, sent[i - 1]);
        if (!gathers && i < n)
            sent[i] = plim_m_empty_like(m, in[i]);
        if (i > 1) {
            plim_meta y = exchanged_meta(plim_m_meta(m, in[i - 2]), kernel, more, fewer);
            out[i - 2] = plim_m_empty(m, &y);
            plim_m_drop(m, got[i - 2]);
        }
        if (gathers && i < n)
            sent[i] = plim_m_empty_like(m, in[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        plim_m_drop(m, sent[i]);
}

/* To the tokens of all ranks, for a part of the heads. */
static void gather_tokens(plim_machine *m, te_kernel kernel, const plim_t *in, uint32_t n,
                          int64_t ways, plim_t *out)
{
    if (ways > 1)
        exchange_parts(m, kernel, in, n, ways, 1, out);
    else
        for (uint32_t i = 0; i < n; i++)
            out[i] = plim_m_ref(m, in[i]);
}

/* Back; x[] is replaced. */
static void scatter_tokens(plim_machine *m, te_kernel kernel, plim_t *x, uint32_t n,
                           int64_t ways)
{
    plim_t out[3];
    if (ways < 2)
        return;
    exchange_parts(m, kernel, x, n, 1, ways, out);
    for (uint32_t i = 0; i < n; i++) {
        plim_m_drop(m, x[i]);
        x[i] = out[i];
    }
}

/* ---- all tokens ------------------------------------------------------------------------------ */

static void attention_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    te_kernel kernel = (te_kernel)n->i[KERNEL];
    plim_t gc = kernel == FLASH ? plim_m_ref(m, g[0]) : plim_contiguous_tmp(m, g[0]), all;
    gather_tokens(m, kernel, &gc, 1, n->i[WAYS], &all);
    for (uint32_t i = 0; i < 3; i++) {
        plim_meta like = *plim_m_meta(m, plim_m_saved(m, n, i));
        plim_meta_contiguous(&like);
        dx[i] = plim_m_empty(m, &like);
    }
    gradient_scratch(m, n, plim_m_meta(m, dx[0]), plim_m_meta(m, dx[1]));
    scatter_tokens(m, kernel, dx, 3, n->i[WAYS]);
    plim_m_drop(m, all);
    plim_m_drop(m, gc);
}
static const plim_grad_fn attention_fn = {"FusedAttnFuncBackward", attention_backward};

/* The result, which is owned; the rest is saved. */
static plim_t save_result(plim_machine *m, plim_gnode *n, te_made made)
{
    plim_m_save(m, n, A_OUT, made.out);
    plim_m_save(m, n, A_LSE, made.lse);
    plim_m_drop(m, made.lse);
    return made.out;
}

static plim_t attend_to_all(plim_machine *m, plim_gnode *n, te_kernel kernel, const plim_t *in)
{
    te_made made = run_kernel(m, kernel, plim_m_meta(m, in[0]), plim_m_meta(m, in[2])->dim[3]);
    for (uint32_t i = 0; i < 3; i++)
        plim_m_save(m, n, A_Q + i, in[i]);
    plim_m_save(m, n, A_SEED, made.seed);
    plim_m_drop(m, made.seed);
    return save_result(m, n, made);
}

/* ---- a part of them ----------------------------------------------------------------------------- */

/* Of what a rank attends to at a step of the ring: the number by which queries and keys are divided. */
typedef struct te_section {
    int64_t queries, keys;
} te_section;

static te_section section_at(int64_t step, int64_t part)
{
    return (te_section){step > part ? 2 : 1, step > 0 && step <= part ? 2 : 1};
}

/* Keys and values, one after the other, of another rank. */
static plim_t receive_keys(plim_machine *m, plim_t like) { return plim_m_empty_like(m, like); }

/* cat([k.view(-1), v.view(-1)]) */
static plim_t join_keys(plim_machine *m, plim_t k, plim_t v)
{
    const int64_t all = -1;
    plim_t flat[] = {plim_at_reshape(m, k, 1, &all), plim_at_reshape(m, v, 1, &all)};
    plim_t y = plim_at_cat(m, flat, 2, 0);
    plim_m_drop(m, flat[0]);
    plim_m_drop(m, flat[1]);
    return y;
}

/* All that the steps made lives until the results have been merged. */
static plim_t attend_ring(plim_machine *m, plim_gnode *n, te_kernel kernel, const plim_t *in,
                          int64_t parts, int64_t part)
{
    te_made step[MOST_PARTS] = {{0, 0, 0}}, all = {0, 0, 0};
    plim_t keys[MOST_PARTS];
    const plim_meta q = *plim_m_meta(m, in[0]);
    keys[0] = join_keys(m, in[1], in[2]);
    for (int64_t i = 0; i < parts; i++) {
        if (i + 1 < parts)
            keys[i + 1] = receive_keys(m, keys[i]);
        plim_meta here = resize_tokens(&q, kernel, section_at(i, part).queries);
        step[i] = run_kernel(m, kernel, &here, here.dim[3]);
        if (i == 1)
            all.lse = plim_m_empty_like(m, step[0].lse);
    }
    all.out = plim_m_empty_like(m, step[0].out);
    plim_m_save(m, n, A_Q, in[0]);
    plim_m_save(m, n, A_KV, keys[parts - 1]);
    for (int64_t i = 0; i < parts; i++) {
        plim_m_hold(m, n, step[i].seed);
        plim_m_drop(m, step[i].seed);
        plim_m_drop(m, step[i].lse);
        plim_m_drop(m, step[i].out);
        plim_m_drop(m, keys[i]);
    }
    return save_result(m, n, all);
}

/* Keys and values, and below them the gradients of both. */
static plim_t ring_buffer(plim_machine *m, plim_t kv)
{
    const plim_meta *x = plim_m_meta(m, kv);
    return plim_m_empty_contig(m, x->dtype, 2, (int64_t[]){2, x->dim[0]});
}

/* The gradients of one step, which are added to those that have come so far. */
static void ring_gradients(plim_machine *m, const plim_gnode *n, const plim_meta *q,
                           const plim_meta *k, te_section s)
{
    te_kernel kernel = (te_kernel)n->i[KERNEL];
    plim_meta dq = resize_tokens(q, kernel, s.queries), dk = resize_tokens(k, kernel, s.keys);
    plim_t made[] = {plim_m_empty(m, &dq), plim_m_empty(m, &dk), plim_m_empty(m, &dk)};
    gradient_scratch(m, n, &dq, &dk);
    for (size_t i = 0; i < PLIM_COUNT(made); i++)
        plim_m_drop(m, made[i]);
}

static void ring_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    int64_t parts = n->i[PARTS], part = n->i[PART], ways = n->i[WAYS];
    te_kernel kernel = (te_kernel)n->i[KERNEL];
    plim_t gc = kernel == FLASH ? plim_m_ref(m, g[0]) : plim_contiguous_tmp(m, g[0]), half = 0,
           all;
    plim_t q = plim_m_saved(m, n, A_Q), kv = plim_m_saved(m, n, A_KV);
    const plim_meta *lse = plim_m_meta(m, plim_m_saved(m, n, A_LSE));
    const plim_meta qm = exchanged_meta(&n->in_meta[0], kernel, ways, 1),
                    km = exchanged_meta(&n->in_meta[1], kernel, ways, 1);
    if (part + 1 < parts)
        half = plim_m_empty_contig(m, lse->dtype, 3,
                                   (int64_t[]){lse->dim[0], lse->dim[1], lse->dim[2] / 2});
    dx[0] = plim_m_empty_like(m, q);
    plim_t ring[] = {ring_buffer(m, kv), ring_buffer(m, kv)};
    gather_tokens(m, kernel, &gc, 1, ways, &all);
    for (int64_t i = 0; i < parts && !plim_m_bad(m); i++)
        ring_gradients(m, n, &qm, &km, section_at(parts - 1 - i, part));
    for (uint32_t i = 1; i < 3; i++)
        dx[i] = plim_m_alias(m, ring[parts % 2], &km);
    scatter_tokens(m, kernel, dx, 3, ways);
    plim_m_drop(m, ring[0]);
    plim_m_drop(m, ring[1]);
    plim_m_drop(m, all);
    plim_m_drop(m, half);
    plim_m_drop(m, gc);
}
static const plim_grad_fn ring_fn = {"AttnFuncWithCPAndKVP2PBackward", ring_backward};

/* ---- the op ---------------------------------------------------------------------------------------- */

static plim_t run_attention(plim_call *c, te_kernel kernel, const plim_t *in)
{
    plim_machine *m = c->m;
    int64_t parts = plim_arg_int(c, 6, 1), part = plim_arg_int(c, 7, 0),
            ways = plim_arg_int(c, 8, 1);
    plim_gnode *n = plim_m_node(m, parts > 1 ? &ring_fn : &attention_fn, 3, in);
    plim_t all[3];
    if (n) {
        n->i[KERNEL] = kernel;
        n->i[DETERMINISTIC] = plim_arg_int(c, 4, 0);
        n->i[PARTS] = parts;
        n->i[PART] = part;
        n->i[WAYS] = ways;
    }
    bool mode = plim_m_grad_mode(m);
    plim_m_set_grad_mode(m, false);
    if (kernel == CUDNN)
        plim_m_calls(m, PLIM_CUDNN);
    gather_tokens(m, kernel, in, 3, ways, all);
    plim_t y = parts > 1 ? attend_ring(m, n, kernel, all, parts, part)
                         : attend_to_all(m, n, kernel, all);
    scatter_tokens(m, kernel, &y, 1, ways);
    plim_m_output(m, n, 0, y);
    for (uint32_t i = 0; i < 3; i++)
        plim_m_drop(m, all[i]);
    plim_m_set_grad_mode(m, mode);
    return y;
}

/* [d0, d1, heads, size] as [d0, d1, heads x size], a view */
static plim_t join_heads(plim_machine *m, plim_t x)
{
    const plim_meta *t = plim_m_meta(m, x);
    return plim_at_reshape(
        m, x, 3, (int64_t[]){t->dim[0], t->dim[1], plim_dim_mul(t->dim[2], t->dim[3])});
}

/* FlashAttention wants batches first, and gives them. */
static plim_t flash_attention(plim_call *c, const plim_t *in)
{
    plim_machine *m = c->m;
    plim_t copy[3];
    for (uint32_t i = 0; i < 3; i++) {
        plim_t turned = plim_at_transpose(m, in[i], 0, 1);
        copy[i] = plim_at_contiguous(m, turned);
        plim_m_drop(m, turned);
    }
    plim_t y = run_attention(c, FLASH, copy), joined = join_heads(m, y),
           turned = plim_at_transpose(m, joined, 0, 1), out = plim_at_contiguous(m, turned);
    const plim_t rest[] = {turned, joined, y, copy[0], copy[1], copy[2]};
    for (size_t i = 0; i < PLIM_COUNT(rest); i++)
        plim_m_drop(m, rest[i]);
    return out;
}

/* Whether the three lie in one tensor, side by side in each head. */
static bool are_packed(plim_machine *m, const plim_t *in)
{
    for (uint32_t i = 1; i < 3; i++)
        if (plim_m_tape_storage(m, in[i]) != plim_m_tape_storage(m, in[0]) ||
            !plim_same_size(plim_m_meta(m, in[i]), plim_m_meta(m, in[0])))
            return false;
    return plim_m_tape_storage(m, in[0]) != PLIM_NONE;
}

/* cuDNN's reads the three where they are, if it knows that layout and they stay here. */
static plim_t cudnn_attention(plim_call *c, const plim_t *in)
{
    plim_machine *m = c->m;
    bool packed = are_packed(m, in) && plim_arg_int(c, 6, 1) < 2 && plim_arg_int(c, 8, 1) < 2;
    plim_t read[3];
    for (uint32_t i = 0; i < 3; i++)
        read[i] = packed ? plim_m_ref(m, in[i]) : plim_at_contiguous(m, in[i]);
    plim_t y = run_attention(c, CUDNN, read), out = join_heads(m, y);
    const plim_t rest[] = {y, read[0], read[1], read[2]};
    for (size_t i = 0; i < PLIM_COUNT(rest); i++)
        plim_m_drop(m, rest[i]);
    return out;
}

/* What Transformer Engine chooses on the card, unless it was told.  FlashAttention 2 has queries and values of one size.
 * src: pytorch/attention/dot_product_attention/utils.py get_attention_backend */
static te_kernel choose_kernel(const plim_call *c)
{
    enum { AUTO, ONLY_FLASH, ONLY_CUDNN }; /* kernel */
    enum { HOPPER = 90, BLACKWELL = 100 };
    const plim_world *w = plim_m_world(c->m);
    bool sizes_differ = plim_m_meta(c->m, plim_arg_tensor(c, 0))->dim[3] !=
                        plim_m_meta(c->m, plim_arg_tensor(c, 2))->dim[3];
    bool deterministic_dropout = plim_arg_float(c, 3, 0) > 0 && plim_arg_int(c, 4, 0);
    switch (sizes_differ ? ONLY_CUDNN : plim_arg_int(c, 5, AUTO)) {
    case ONLY_FLASH: return FLASH;
    case ONLY_CUDNN: return CUDNN;
    default:
        return !plim_world_since(w, HOPPER) ||
                       (deterministic_dropout && plim_world_since(w, BLACKWELL))
                   ? FLASH
                   : CUDNN;
    }
}

static bool check_attention(plim_call *c, const plim_t *in)
{
    plim_machine *m = c->m;
    int64_t parts = plim_arg_int(c, 6, 1), part = plim_arg_int(c, 7, 0),
            ways = plim_arg_int(c, 8, 1);
    for (uint32_t i = 0; i < 3; i++) {
        const plim_meta *x = plim_m_meta(m, in[i]);
        if (ways < 1 || ways > MOST_PARTS || (x->rank == 4 && x->dim[2] % ways)) {
            plim_m_fail(m, PLIM_ERANGE, "heads are not exchanged in %" PRId64 " parts", ways);
            return false;
        }
        if (x->rank != 4 || (parts > 1 && x->dim[0] % 2) ||
            (parts > 1 && x->dim[3] != plim_m_meta(m, in[0])->dim[3])) {
            plim_m_fail(m, PLIM_ESHAPE, "attention needs tensors of rank 4%s",
                        parts > 1 ? ", of one size, with an even number of tokens" : "");
            return false;
        }
    }
    if (parts < 1 || parts > MOST_PARTS || part < 0 || part >= parts) {
        plim_m_fail(m, PLIM_ERANGE, "part %" PRId64 " of %" PRId64 ": the limit is %d parts",
                    part, parts, (int)MOST_PARTS);
        return false;
    }
    return true;
}

void plim_run_megatron_attention(plim_call *c)
{
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2)};
    if (check_attention(c, in))
        plim_ret(c, (choose_kernel(c) == FLASH ? flash_attention : cudnn_attention)(c, in));
}
