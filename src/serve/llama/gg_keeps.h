/* gg_keeps.h -- what llama.cpp keeps of a request, layer by layer: keys and values of its tokens, the state
 * of a recurrence, both or neither. */
#ifndef PLIM_SERVE_GG_KEEPS_H
#define PLIM_SERVE_GG_KEEPS_H

#include "import/weights/gguf.h"

/* Which layers keep what. */
typedef enum plim_gg_keeping {
    PLIM_GG_KEEPS_TOKENS,      /* keys and values in all of them */
    PLIM_GG_KEEPS_NOTHING,     /* a text is read at once: an encoder */
    PLIM_GG_KEEPS_STATES,      /* a state in all of them */
    PLIM_GG_KEEPS_BOTH,        /* both in all of them */
    PLIM_GG_KEEPS_BY_HEADS,    /* a state in those without heads of keys and values */
    PLIM_GG_KEEPS_BY_WIDTH,    /* the same, in layers without an MLP */
    PLIM_GG_KEEPS_BY_INTERVAL, /* keys and values in every fourth, or as the metadata say */
} plim_gg_keeping;

typedef struct plim_gg_kept {
    int64_t kv_heads; /* 0: no keys and values */
    bool windowed;    /* only of the last tokens */
    uint64_t state;   /* bytes for each sequence */
} plim_gg_kept;

/* By layer, in `a`; `state` is that of a layer which has one.  PLIM_EUNSUPPORTED, PLIM_EFORMAT: the metadata
 * do not say. */
plim_status plim_gg_kept_of(const plim_gguf *g, plim_gg_keeping how, uint64_t state,
                            int64_t layers, plim_arena *a, plim_gg_kept **out, plim_err *err);

/* Bytes of the state of a layer that has one, for each sequence; 0: the metadata give none.  `grouped`: its
 * convolution goes over groups of inputs, too. */
uint64_t plim_gg_state(const plim_gguf *g, bool grouped);

#endif
