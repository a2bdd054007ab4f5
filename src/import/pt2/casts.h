/* casts.h -- data types that a traced model took from its tensors.
 *
 * A file records the types of one run, most often in fp32.  Under autocast or in another type
 * (--dtype) the model would have chosen others:
 *
 *   x.to(float32)   returns x itself, and the tracer from then on calls x by the name of its
 *                   last cast: a caller's later uses of its own x seem to use the cast;
 *   y.to(input_dtype), empty(size, dtype=x.dtype)
 *                   are in the file as float32. */
#ifndef PLIM_CASTS_H
#define PLIM_CASTS_H

#include "core/graph.h"

/* Restores such uses to the tensor that the caller had, and such types to those they were
 * taken from. */
plim_status plim_casts_undo(plim_graph *g, plim_err *err);

#endif
