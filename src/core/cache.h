/* cache.h -- what a model keeps of the tokens that it has seen, for the next one: layer by layer.
 *
 * One description, whoever makes it (a config, the metadata of a GGUF file) and whoever reads it (info, estimate, fit,
 * serve).  How an engine holds it is not part of it: that is a plim_cache_rules. */
#ifndef PLIM_CACHE_H
#define PLIM_CACHE_H

#include "base/base.h"

/* ---- what layers keep --------------------------------------------------------------------- */

/* Layers that keep the same.  A layer that reads what another one keeps has nothing of its own: all is 0. */
typedef struct plim_kv_layers {
    int64_t layers;
    int64_t heads;        /* of keys and values; 0: no attention */
    int64_t keys, values; /* elements of a head for each token; values 0: both are made of one
                             latent vector, which all heads share (MLA) */
    int64_t window;       /* the last tokens that are kept; 0: all */
    bool chunked;         /* those of the chunk of `window` tokens that is not full */
    bool cross;     /* of the tokens that an encoder has read, not of those of the text */
    int64_t copies; /* of each head that transformers keeps; 0: one */
    int64_t index_keys,
        index_values; /* elements more for each token: sparse attention finds by them which
                                         tokens to look at */
    int64_t
        ratio; /* tokens that one more key, and one more of the index, stand for; 0: none */
    int64_t channels, kernel; /* of a convolution over time, whose last inputs are kept */
    int64_t state;            /* elements of the state of a recurrence */
} plim_kv_layers;

/* So many layers of a kind, one after another. */
typedef struct plim_cache_run {
    uint32_t kind;
    int64_t layers;
} plim_cache_run;

/* No kinds: it keeps nothing, or that is not known. */
typedef struct plim_cache {
    plim_kv_layers *kinds; /* no two alike; each with the number of all its layers */
    plim_cache_run *runs;  /* the layers of the model, in order */
    uint32_t n_kinds, cap_kinds, n_runs, cap_runs;
    uint64_t elements; /* for each token in transformers' cache; 0: none, or not known */
    bool returned;     /* keys and values of this pass are among the outputs */
} plim_cache;

/* Whether they keep keys and values of the text, or a state, or nothing: not both, and nothing else. */
bool plim_cache_is_simple(const plim_kv_layers *k);

/* Adds k->layers layers, the next ones of the model.  False: our memory is full. */
bool plim_cache_add(plim_cache *c, plim_arena *a, const plim_kv_layers *k);

/* ---- how they are held -------------------------------------------------------------------- */

/* A type in which a cache holds keys and values: blocks of so many elements. */
typedef struct plim_kv_type {
    const char *name;
    uint32_t elements, bytes;
} plim_kv_type;

/* How an engine holds what layers keep.  A stream is what has a cache of its own: a sequence, or several of them. */
typedef struct plim_cache_rules {
    const plim_kv_type *keys, *values;
    uint32_t
        state_bytes;  /* of an element of a state, and of the last inputs of a convolution */
    uint64_t step;    /* tokens are held in multiples of it */
    uint64_t source;  /* tokens that an encoder has read, of each stream */
    uint64_t windows; /* in each stream: one for each of its sequences */
    uint64_t ahead;   /* tokens for which a stream has room besides its windows */
    uint64_t least_values; /* elements of values that each token takes at least */
} plim_cache_rules;

/* Tokens of a stream of `tokens` that one of those layers holds. */
uint64_t plim_cache_tokens(const plim_kv_layers *k, const plim_cache_rules *r,
                           uint64_t tokens);
/* Bytes of keys, values and index for each token in one of those layers. */
uint64_t plim_cache_row(const plim_kv_layers *k, const plim_cache_rules *r);
/* Bytes of all that one of those layers holds of the tokens of a stream. */
uint64_t plim_cache_bytes(const plim_kv_layers *k, const plim_cache_rules *r, uint64_t tokens);
/* The same of all layers, with the copies of heads that transformers makes. */
uint64_t plim_cache_sum(const plim_cache *c, const plim_cache_rules *r, uint64_t tokens);
/* Bytes of the states of one of those layers, for each sequence. */
uint64_t plim_cache_state(const plim_kv_layers *k, const plim_cache_rules *r);

#endif
