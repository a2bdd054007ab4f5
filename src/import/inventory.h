/* inventory.h -- the tensors in a file: what `plimsoll info` shows, and what weights are
 * compared with a graph by.
 *
 * A tensor's type is a name and not a plim_dtype: files have types that no op computes with
 * ("Q4_K"), and their size in bytes is what the file says. */
#ifndef PLIM_INVENTORY_H
#define PLIM_INVENTORY_H

#include "core/graph.h"

typedef struct plim_item {
    plim_str name; /* "model.layers.0.mlp.up_proj.weight" */
    plim_str type; /* "fp32", "Q4_K" */
    plim_item_kind kind;
    int32_t rank;
    int64_t dim[PLIM_MAX_RANK]; /* in PyTorch's order: the fastest-varying last */
    uint64_t elements;          /* the product of dim */
    uint64_t bytes;
    uint32_t same_as; /* whose storage it shares, and which counts the bytes; or PLIM_NONE */
} plim_item;

typedef struct plim_note_pair {
    plim_str key, value;
} plim_note_pair;

typedef struct plim_inventory {
    plim_arena *arena;
    plim_str format;   /* "GGUF 3", "safetensors, 4 shards" */
    plim_str producer; /* "": not known */
    plim_item *items;
    plim_note_pair *facts; /* metadata of the file: "architecture", "llama" */
    plim_str *notes;       /* sentences about what is not known or does not agree */
    plim_open_dim *dims;
    bool names_only; /* of the items only the names are known, and of all together: */
    uint64_t told;   /* bytes; 0: the file does not say */
    uint32_t n_items, n_facts, n_notes, n_dims;
    uint32_t cap_items, cap_facts, cap_notes, cap_dims;
} plim_inventory;

/* Each copies its arguments into the arena; PLIM_ENOMEM.  The number of elements of an item is
 * computed (PLIM_ERANGE if it does not fit); its bytes are given by the caller. */
plim_status plim_inventory_add(plim_inventory *v, const plim_item *item, plim_err *err);
plim_status plim_inventory_fact(plim_inventory *v, plim_err *err, const char *key,
                                const char *fmt, ...) PLIM_PRINTF(4, 5);
plim_status plim_inventory_note(plim_inventory *v, plim_err *err, const char *fmt, ...)
    PLIM_PRINTF(3, 4);
plim_status plim_inventory_dim(plim_inventory *v, plim_str name, int64_t value, plim_err *err);

/* Adds parameters, buffers and constants of a graph, with their ties, the sizes that it leaves
 * open, and what it keeps of its tokens. */
plim_status plim_inventory_graph(plim_inventory *v, const plim_graph *g, plim_err *err);
/* What a model keeps of its tokens: keys and values in one type, states in another; states NULL: not told. */
plim_status plim_inventory_cache(plim_inventory *v, const plim_cache *c, plim_dtype type,
                                 const plim_dtype *states, plim_err *err);
/* The note of a graph, if it has one. */
plim_status plim_inventory_about(plim_inventory *v, const plim_graph *g, plim_err *err);

#endif
