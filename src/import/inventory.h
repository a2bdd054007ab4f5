/* inventory.h -- what a file holds, tensor by tensor: what `plimsoll info` shows,
 * and what weights are compared with a graph by.
 *
 * A tensor's type is a name and not a plim_dtype: files have types that no op
 * computes with ("Q4_K"), and their bytes are what the file says. */
#ifndef PLIM_INVENTORY_H
#define PLIM_INVENTORY_H

#include "core/graph.h"

typedef struct plim_item {
    plim_str name; /* "model.layers.0.mlp.up_proj.weight" */
    plim_str type; /* "fp32", "Q4_K" */
    plim_item_kind kind;
    int32_t rank;
    int64_t dim[PLIM_MAX_RANK]; /* as PyTorch has them: the fastest last */
    uint64_t elements;          /* the product of dim */
    uint64_t bytes;
    uint32_t same_as; /* the item whose storage this is or views, or PLIM_NONE: then its
                         bytes are counted there */
} plim_item;

typedef struct plim_note_pair {
    plim_str key, value;
} plim_note_pair;

typedef struct plim_inventory {
    plim_arena *arena;
    plim_str format;   /* "GGUF 3", "safetensors, 4 shards" */
    plim_str producer; /* "": not known */
    plim_item *items;
    plim_note_pair *facts; /* what the file says of itself: "architecture", "llama" */
    plim_str *notes;       /* sentences: what is not known, what does not agree */
    plim_open_dim *dims;
    uint32_t n_items, n_facts, n_notes, n_dims;
    uint32_t cap_items, cap_facts, cap_notes, cap_dims;
} plim_inventory;

/* Each copies what it is given into the arena; PLIM_ENOMEM.  Of an item the elements are
 * computed (PLIM_ERANGE if they do not fit), the bytes are the caller's. */
plim_status plim_inventory_add(plim_inventory *v, const plim_item *item, plim_err *err);
plim_status plim_inventory_fact(plim_inventory *v, plim_err *err, const char *key,
                                const char *fmt, ...) PLIM_PRINTF(4, 5);
plim_status plim_inventory_note(plim_inventory *v, plim_err *err, const char *fmt, ...)
    PLIM_PRINTF(3, 4);
plim_status plim_inventory_dim(plim_inventory *v, plim_str name, int64_t value, plim_err *err);

/* Parameters, buffers and constants of a graph, ties pointing at each other, and what
 * it leaves open. */
plim_status plim_inventory_graph(plim_inventory *v, const plim_graph *g, plim_err *err);

#endif
