/* mg_mla.c -- Megatron-LM's MLASelfAttention: keys and values of all heads come from one vector of each token,
 * and a part of them has the positions.  See mg_parts.h.
 *
 * The layers that make these vectors are whole on every rank, as Transformer Engine has them.
 * src: megatron-core 0.16 transformer/multi_latent_attention.py, models/common/embeddings/rope_utils.py,
 * yarn_rotary_pos_embedding.py; fusions/fused_mla_yarn_rope_apply.py */
#include "import/megatron/mg_parts.h"

enum { CACHED_POSITIONS = 4096 }; /* original_max_position_embeddings */

typedef struct latent {
    plim_mg *b;
    const plim_mg_args *c;
    int64_t heads;  /* of this rank */
    bool fused;     /* positions are turned in a kernel of its own */
    uint32_t freqs; /* of positions */
} latent;

/* Every module has its own; what it computes of a length is kept.  The fused kernel makes cosines again for its type. */
static void add_positions(latent *a)
{
    plim_nn *n = &a->b->n;
    int64_t size = a->c->rope_size, seq = a->b->seq;
    bool yarn = plim_str_is(a->c->rope_type, "yarn");
    plim_nn_enter(n, "rotary_pos_emb", yarn ? "YarnRotaryEmbedding" : "RotaryEmbedding");
    plim_nn_temporary_buffer(n, "inv_freq", PLIM_F32, INTS(size / 2));
    if (yarn) {
        plim_ints cached = INTS(a->fused ? seq : CACHED_POSITIONS, 1, 1, size);
        plim_nn_temporary_buffer(n, "inv_freq_extra", PLIM_F32, INTS(size / 2));
        plim_nn_temporary_buffer(n, "inv_freq_inter", PLIM_F32, INTS(size / 2));
        plim_nn_temporary_buffer(n, "cos_cached", n->dtype, cached);
        plim_nn_temporary_buffer(n, "sin_cached", n->dtype, cached);
    }
    a->freqs = plim_nn_temporary_buffer(n, "freqs", PLIM_F32, INTS(seq, 1, 1, size));
    plim_nn_leave(n);
}

/* Every rank has the whole weight, and computes the tokens that it has. */
static uint32_t add_whole(latent *a, const char *name, uint32_t x, int64_t out)
{
    plim_nn *n = &a->b->n;
    plim_nn_enter(n, name, a->b->te ? "TELinear" : "Linear");
    uint32_t w = plim_nn_param(n, "weight", INTS(out, a->c->hidden));
    x = plim_mg_linear(a->b, x, w, PLIM_NONE, false, a->b->te, 0);
    plim_nn_leave(n);
    return x;
}

/* cos or sin of the angles, scaled */
static uint32_t add_wave(latent *a, const char *target, uint32_t x)
{
    plim_nn *n = &a->b->n;
    uint32_t angles = plim_nn_slice(n, a->freqs, 0, 0, a->b->seq, 1);
    uint32_t y = plim_nn_scalar(n, "aten.mul.Tensor", plim_nn_unary(n, target, angles), 1);
    return plim_nn_to_like(n, y, x);
}

/* Even features come before odd ones. */
static uint32_t add_rope(latent *a, uint32_t x)
{
    plim_nn *n = &a->b->n;
    int64_t size = a->c->rope_size;
    uint32_t rest = plim_nn_slice(n, x, 3, size, INT64_MAX, 1);
    x = plim_nn_slice(n, x, 3, 0, size, 1);
    uint32_t even = plim_nn_slice(n, x, 3, 0, INT64_MAX, 2);
    uint32_t odd = plim_nn_slice(n, x, 3, 1, INT64_MAX, 2);
    x = plim_nn_cat(n, (uint32_t[]){even, odd}, 2, -1);
    uint32_t cos = add_wave(a, "aten.cos.default", x),
             sin = add_wave(a, "aten.sin.default", x);
    return plim_mg_turn(n, x, cos, sin, rest);
}

/* [sequence, batch, heads, first + second] in two of these sizes */
static void split_heads(latent *a, uint32_t x, int64_t first, int64_t second, uint32_t out[2])
{
    plim_nn *n = &a->b->n;
    x = plim_nn_view(n, x, INTS(-1, a->b->batch, a->heads, first + second));
    plim_nn_split(n, x, INTS(first, second), -1, out);
}

/* Turns the positions of queries and of keys, which are the same for all heads: queries, keys and values. */
static void turn_positions(latent *a, uint32_t q, uint32_t kv, uint32_t position,
                           uint32_t out[3])
{
    plim_nn *n = &a->b->n;
    int64_t size = a->c->rope_size;
    uint32_t query[2], key[2];
    split_heads(a, q, a->c->qk_size, size, query);
    split_heads(a, kv, a->c->qk_size, a->c->v_size, key);
    query[1] = add_rope(a, query[1]);
    position = add_rope(a, position);
    out[0] = plim_nn_cat(n, query, 2, -1);
    position = plim_nn_expand(n, position, INTS(a->b->seq, a->b->batch, a->heads, size));
    out[1] = plim_nn_cat(n, (uint32_t[]){key[0], position}, 2, -1);
    out[2] = plim_nn_contiguous(n, key[1]);
}

/* Queries are turned where they are. */
static void turn_fused(latent *a, uint32_t q, uint32_t kv, uint32_t position, uint32_t out[3])
{
    plim_nn *n = &a->b->n;
    int64_t size = a->c->rope_size, all = a->c->qk_size + a->c->v_size;
    out[0] = plim_nn_view(n, q, INTS(-1, a->b->batch, a->heads, a->c->qk_size + size));
    kv = plim_nn_view(n, kv, INTS(-1, a->b->batch, a->heads, all));
    const plim_named_arg args[] = {ARG_T("self", kv), ARG_T("position", position),
                                   ARG_I("size", a->c->v_size)};
    plim_nn_node(n, "plimsoll.megatron_mla_rope.default", args, PLIM_COUNT(args), &out[1], 2);
}

static uint32_t add_queries(latent *a, uint32_t x)
{
    int64_t out = a->heads * (a->c->qk_size + a->c->rope_size);
    if (!a->c->q_rank)
        return plim_mg_column(a->b, "linear_q_proj", x, out, false, NULL);
    x = add_whole(a, "linear_q_down_proj", x, a->c->q_rank);
    if (a->c->qk_norm)
        x = plim_mg_norm(a->b, "q_layernorm", x);
    plim_nn_holds(&a->b->n, x);
    return plim_mg_column(a->b, "linear_q_up_proj", x, out, false, NULL);
}

/* Keys and values, and the part of the keys that has the positions. */
static uint32_t add_keys(latent *a, uint32_t x, uint32_t *position)
{
    plim_nn *n = &a->b->n;
    uint32_t part[2];
    x = add_whole(a, "linear_kv_down_proj", x, a->c->kv_rank + a->c->rope_size);
    plim_nn_split(n, x, INTS(a->c->kv_rank, a->c->rope_size), -1, part);
    if (a->b->divided)
        part[1] = NN_OP(n, "plimsoll.megatron_gather.default", ARG_T("self", part[1]),
                        ARG_I("parts", a->b->r->part.weights));
    *position = plim_nn_unsqueeze(n, part[1], -2);
    x = a->c->qk_norm ? plim_mg_norm(a->b, "kv_layernorm", part[0]) : part[0];
    plim_nn_holds(n, x);
    return plim_mg_column(a->b, "linear_kv_up_proj", x,
                          a->heads * (a->c->qk_size + a->c->v_size), false, NULL);
}

uint32_t plim_mg_mla(plim_mg *b, uint32_t x, const plim_mg_mask *mask, uint32_t *bias)
{
    plim_nn *n = &b->n;
    latent a = {.b = b, .c = &b->c, .heads = b->r->heads};
    a.fused = b->te && plim_str_is(b->c.position, "rope") && !b->c.no_rope_fusion;
    uint32_t position, part[3];
    plim_nn_enter(n, "self_attention", "MLASelfAttention");
    plim_nn_order(n, "rotary_pos_emb core_attention linear_proj linear_q_proj "
                     "linear_q_down_proj linear_q_up_proj linear_kv_down_proj "
                     "linear_kv_up_proj q_layernorm kv_layernorm");
    add_positions(&a);
    uint32_t q = add_queries(&a, x), kv = add_keys(&a, x, &position);
    (a.fused ? turn_fused : turn_positions)(&a, q, kv, position, part);
    for (int i = 0; i < 3; i++)
        plim_nn_holds(n, part[i]);
    x = plim_mg_core(b, part[0], part[1], part[2], mask);
    x = plim_mg_row(b, "linear_proj", x, bias);
    plim_nn_leave(n);
    return x;
}
