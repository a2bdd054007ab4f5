/* reduction.h -- what a sum, a maximum or the like takes on a card while it runs. */
#ifndef PLIM_REDUCTION_H
#define PLIM_REDUCTION_H

#include "machine/machine.h"

/* What a thread passes on to the next: a partial result. */
typedef enum plim_partial {
    PLIM_PARTIAL_SUM,     /* a number of the accumulator's dtype */
    PLIM_PARTIAL_EXTREME, /* one of the input's: amax, amin */
    PLIM_PARTIAL_FLAG,    /* any, all */
    PLIM_PARTIAL_PLACE,   /* argmax, max over a dim: a number and its position */
    PLIM_PARTIAL_PAIR,    /* minimum and maximum */
    PLIM_PARTIAL_MOMENTS  /* var, std: mean, squares and counts */
} plim_partial;

/* Requests what a reduction of x over the dims of `mask` to results of type `out` needs
 * besides them, and frees it. */
void plim_m_reduce(plim_machine *m, const plim_meta *x, uint32_t mask, plim_partial partial,
                   plim_dtype out);

/* The buffer that a reduction of x over the dims of `mask` uses on the card, freed at once. */
void plim_reduce_scratch(plim_machine *m, const plim_meta *x, uint32_t mask);
/* The same for a reduction to both the minimum and the maximum of all elements. */
void plim_reduce_pair_scratch(plim_machine *m, const plim_meta *x);

#endif
