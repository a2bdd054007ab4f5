/* megatron_layout.h -- where Megatron-LM's buffers have each parameter, and what of it a rank's optimizer updates.
 * src: megatron-core 0.16 distributed/param_and_grad_buffer.py, parallel_state.py,
 * distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py; of 2026-08 optimizer/layer_wise_optimizer.py */
#ifndef PLIM_SHARE_MEGATRON_LAYOUT_H
#define PLIM_SHARE_MEGATRON_LAYOUT_H

#include "share/share.h"

typedef struct plim_mg_placed {
    uint32_t value;
    int64_t rows, columns; /* as a matrix */
    bool alone;            /* in its bucket */
    bool expert;           /* another rank has other ones */
    bool plain;            /* as in plim_optim_param */
    uint64_t at, numel;    /* in the buffers */
    uint64_t first, last;  /* its elements that this rank's optimizer updates */
    int64_t owner;         /* the rank that updates it as a whole */
} plim_mg_placed;

/* A rank's place among those that have the same parameters, and how many these are. */
typedef struct plim_mg_place {
    int64_t at, of;
} plim_mg_place;

/* The place of a part of the data, of a rank's experts or of the rest of its model. */
plim_mg_place plim_mg_place_of(const plim_graph *g, const plim_share *s, int64_t data_part,
                               bool expert);
/* False, and x->m has failed: experts cannot be shared out among the cards that there are. */
bool plim_mg_check_experts(plim_shared *x);
/* Of the options overlap_grad_reduce and bucket_size, with Megatron-LM's default: the elements with which a bucket
 * ends. */
double plim_mg_bucket_size(const plim_share *s);

/* The three give n parameters of one buffer their places, from the last to the first, and return or set the size of
 * that buffer, in elements.
 * Without the distributed optimizer there is no padding, and every rank updates all. */
uint64_t plim_mg_lay_whole(plim_mg_placed *p, uint32_t n);
/* A rank updates an equal part of every bucket, which ends as soon as it has `bucket` elements. */
uint64_t plim_mg_lay_parts(plim_mg_placed *p, uint32_t n, double bucket, plim_mg_place own);
/* The same, but each matrix is in the part of one of so many ranks: its owner.  False: our memory is full. */
bool plim_mg_lay_matrices(plim_arena *a, plim_mg_placed *p, uint32_t n, double bucket,
                          int64_t ranks, uint64_t *numel);

/* Megatron-FSDP's layout: sorts the n parameters of one buffer; each of so many ranks updates
 * an equal part that begins and ends with whole rows of matrices.  `columns`: the elements of
 * a row, of tensors with more dimensions, too; at least 1.  *size: of the buffer.  False: our
 * memory is full. */
bool plim_mg_lay_rows(plim_arena *a, plim_mg_placed *p, uint32_t n, int64_t ranks,
                      uint64_t *size);
/* Of such a buffer, a rank updates its part. */
void plim_mg_take_part(plim_mg_placed *p, uint32_t n, uint64_t size, plim_mg_place own);

/* Gives the parameters of all buffers owners among so many ranks, ranks[1] of them for experts.  False: our memory
 * is full. */
bool plim_mg_deal_out(plim_arena *a, plim_mg_placed *p, uint32_t n, const int64_t ranks[2]);
/* A rank updates what it owns. */
void plim_mg_claim(plim_mg_placed *p, uint32_t n, int64_t rank);
#endif
