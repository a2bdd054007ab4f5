/* mg_parts.h -- what Megatron-LM's models have in common: see mg.h.
 *
 *     mg_parts.c  linear layers that are divided among ranks, norms, attention
 *     mg_layer.c  layers and blocks of them
 *     mg_mla.c    multi-latent attention
 *     mg_mlp.c    the MLP
 *     mg_moe.c    mixtures of experts
 *     mg_ends.c   what a model's first and last stage have: embedding, head, loss
 *
 * Tensors are [sequence, batch, features].  With tensor parallelism a rank has a part of the heads, of
 * the features of the MLP and of the vocabulary; with sequence parallelism, between these, a part of
 * the sequence. */
#ifndef PLIM_MG_PARTS_H
#define PLIM_MG_PARTS_H

#include "import/megatron/mg.h"

/* Which pairs of tokens attention leaves out.  Of padding, Transformer Engine has what is padded of both
 * sequences, [batch, 1, 1, tokens], and joins them in each layer; local attention has `keys` only, of all
 * pairs.  Without a mask, causal attention makes its own.  PLIM_NONE: none. */
typedef struct plim_mg_mask {
    bool padding;
    uint32_t queries, keys;
} plim_mg_mask;

/* Another sequence that cross attention reads. */
typedef struct plim_mg_context {
    uint32_t states;
    plim_mg_mask mask; /* of pairs with it */
} plim_mg_context;

struct plim_mg {
    plim_nn n;
    const plim_mg_rank *r;
    plim_mg_args c;
    int64_t batch, seq;
    int64_t first_layer; /* of the stage, of all */
    bool te;             /* modules of Transformer Engine */
    bool divided;        /* the sequence is, too */
    bool fused_attention;
    int64_t kernel; /* of it: 0 chosen by the card, 1 FlashAttention, 2 cuDNN */
    uint32_t freqs; /* PLIM_NONE: none */
    uint32_t table, positions, types; /* of the embedding; PLIM_NONE: not made yet */
    uint32_t buffer; /* that is made once: GlobalMemoryBuffer; PLIM_NONE: none */
};

/* A tensor that may be PLIM_NONE. */
#define ARG_MAYBE(slot, x)                                                                    \
    {                                                                                         \
        PLIM_STR(slot),                                                                       \
        {                                                                                     \
            .kind = (x) == PLIM_NONE ? PLIM_ARG_NONE : PLIM_ARG_VALUE, .id = (x)              \
        }                                                                                     \
    }

uint32_t plim_mg_norm(plim_mg *b, const char *name, uint32_t x);
/* A linear layer whose rows are divided, with `out` on this rank.  *bias NULL: it is added; else it is left to the caller. */
uint32_t plim_mg_column(plim_mg *b, const char *name, uint32_t x, int64_t out, bool biased,
                        uint32_t *bias);
/* One whose columns are; the caller adds the bias. */
uint32_t plim_mg_row(plim_mg *b, const char *name, uint32_t x, uint32_t *bias);
/* x cos + rotate_half(x) sin, joined with the features that are not turned.  src: rope_utils.py */
uint32_t plim_mg_turn(plim_nn *n, uint32_t x, uint32_t cos, uint32_t sin, uint32_t rest);
/* silu of one half times the other, in several kernels */
uint32_t plim_mg_swiglu(plim_nn *n, uint32_t x);
/* Attention of queries, keys and values of [sequence, batch, heads, size]. */
uint32_t plim_mg_core(plim_mg *b, uint32_t q, uint32_t k, uint32_t v,
                      const plim_mg_mask *mask);
/* Multi-latent attention of x; the caller adds the bias. */
uint32_t plim_mg_mla(plim_mg *b, uint32_t x, const plim_mg_mask *mask, uint32_t *bias);
/* ffn: its features on this rank, of a gated one half of what the first layer gives; the caller adds the bias. */
uint32_t plim_mg_mlp(plim_mg *b, const char *name, const char *type, uint32_t x, int64_t ffn,
                     uint32_t *bias);
uint32_t plim_mg_moe(plim_mg *b, uint32_t x);
/* Layers, with cross attention unless `context` is NULL, and a norm behind the last if the block `ends`. */
uint32_t plim_mg_block(plim_mg *b, const char *name, int64_t layers, bool ends, uint32_t x,
                       plim_mg_mask mask, const plim_mg_context *context);

/* x weight^T + bias; bias may be PLIM_NONE.  gathers: x is a part of the sequence of tensor-parallel ranks.  defers:
 * micro-batches whose gradient of the weight is computed last. */
uint32_t plim_mg_linear(plim_mg *b, uint32_t x, uint32_t weight, uint32_t bias, bool gathers,
                        bool te, int64_t defers);

/* 0, 1, ... of each sequence, for the embedding, while the module that is open runs. */
uint32_t plim_mg_positions(plim_mg *b, int64_t tokens);
/* Embeds ids; at, types: PLIM_NONE, or positions and types of tokens.  A second call takes the same tables. */
uint32_t plim_mg_embedding(plim_mg *b, uint32_t ids, uint32_t at, uint32_t types);
/* Logits; has_table: the embedding is on this stage. */
uint32_t plim_mg_head(plim_mg *b, uint32_t x, bool has_table, bool biased);
/* The losses of tokens, times what each counts, summed; labels and counts are [batch, tokens]. */
uint32_t plim_mg_loss(plim_mg *b, uint32_t logits, uint32_t labels, uint32_t counts);

/* What the stage before this one sent. */
uint32_t plim_mg_received(plim_mg *b);
/* The frequencies of rotary positions, if the model has them; modules of multi-latent attention have their own. */
void plim_mg_frequencies(plim_mg *b);

/* One tensor of [numbers] with all that a batch has; `plim_mg_unpack` views its next part. */
typedef struct plim_mg_batch {
    uint32_t all;
    int64_t at;
} plim_mg_batch;
plim_mg_batch plim_mg_pack(plim_mg *b, int64_t numbers);
uint32_t plim_mg_unpack(plim_mg *b, plim_mg_batch *in, plim_ints size);

#endif
