/* gg_model.h -- a decoder as llama.cpp builds it: what of it matters to memory. */
#ifndef PLIM_SERVE_GG_MODEL_H
#define PLIM_SERVE_GG_MODEL_H

#include "serve/llama/ggml.h"

typedef struct plim_gg_model {
    int64_t layers, hidden, vocab, heads, kv_heads, head_k, head_v, ffn, experts, used;
    const bool *windowed; /* by layer; NULL: none is */
    int64_t window;
    bool qkv_bias, out_bias, q_norm, post_norms, fused_qkv, fused_gate, gated, mlp_bias;
    bool layer_norm;  /* with a bias, not RMS */
    bool scaled;      /* embeddings, and queries apart from the scores (Gemma) */
    bool query_scale; /* queries apart from the scores (Phi-3) */
    bool softcap, final_softcap;
    bool
        positions; /* a table of them is added to the embeddings, and nothing is rotated (GPT-2) */
    bool residual_first; /* in the sum that ends a layer */
    bool norm_weights;   /* of the experts that were chosen */
    bool tied;           /* the output is the embedding */
    bool encodes;        /* without a cache and without logits */
    /* Bytes of "ffn_up.weight" of a layer, or of none (-1); 0: it is small, and in fp32. */
    uint64_t (*weight_bytes)(const void *file, int64_t layer, const char *name);
    const void *file;
} plim_gg_model;

/* How a context of llama.cpp is made. */
typedef struct plim_gg_context {
    int64_t tokens, outputs;         /* of the batch that is laid out */
    int64_t cells, windowed_cells;   /* of a stream's cache */
    int64_t streams;                 /* of the cache: 1, or one for each sequence */
    uint32_t key_bytes, value_bytes; /* of an element of the cache */
    int64_t
        first; /* layer whose weights and cache are on the device; those before it are not */
    bool card, flash, output_there; /* weights of the output on the device */
    /* Whether that weight of a layer lies apart from it, and then where. */
    bool (*moved)(const void *ud, int64_t layer, const char *name, plim_gg_place *place);
    const void *moved_ud;
} plim_gg_context;

/* The graph of that batch; NULL: out of memory. */
plim_gg_graph *plim_gg_build(plim_arena *a, const plim_gg_model *m, const plim_gg_context *c);

#endif
