/* moves.h -- the ops that the machine itself runs: casts of autocast, copies, sums of gradients.
 *
 * plim_at_x(m, ...) is at::x of eager PyTorch on CUDA: it makes the same allocations, records
 * the autograd node and returns an owned tensor. */
#ifndef PLIM_MOVES_H
#define PLIM_MOVES_H

#include "machine/machine.h"

plim_t plim_at_contiguous(plim_machine *m, plim_t x);
plim_t plim_at_clone(plim_machine *m, plim_t x, const plim_meta *layout);
plim_t plim_at_to(plim_machine *m, plim_t x, plim_dtype t);
/* With memory_format=torch.contiguous_format: x itself if it is of the dtype, in whatever order its dims are. */
plim_t plim_at_to_contiguous(plim_machine *m, plim_t x, plim_dtype t);
/* The gradient g of what was broadcast, summed to its size. */
plim_t plim_at_sum_to(plim_machine *m, plim_t g, const plim_meta *want);

/* The backward of ops whose gradient is a new contiguous tensor of the input's size in g's
 * dtype: zeros with a part written into them, or g expanded. */
void plim_backward_fresh(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx);
/* The backward of ops that pass their gradient on unchanged. */
void plim_backward_pass(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx);

#endif
