/* casts.h -- data types that a traced model took from its tensors.
 *
 * A file has the types of one run, in fp32 most often.  Under autocast or in another
 * type (--dtype) the model would have chosen others:
 *
 *   x.to(float32)   gives x itself, and the tracer calls x by the name of its last cast
 *                   from there on: what a caller did with its own x later seems to use
 *                   the cast;
 *   y.to(input_dtype), empty(size, dtype=x.dtype)
 *                   are in the file as float32. */
#ifndef PLIM_CASTS_H
#define PLIM_CASTS_H

#include "core/graph.h"

/* Gives such uses back to the tensor that the caller had, and such types to what
 * they were taken from. */
plim_status plim_casts_undo(plim_graph *g, plim_err *err);

#endif
