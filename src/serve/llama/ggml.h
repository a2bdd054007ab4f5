/* ggml.h -- the graphs that llama.cpp computes, and the buffers that ggml lays them out in.
 *
 * A graph is built with the operations of ggml.h, as the functions build_* of llama.cpp do it; a
 * tensor has a shape, strides and sources, and no data.  Then it is laid out as ggml-alloc.c
 * does it: tensors by lifetime, best fit, results in place of an operand where the operation
 * allows it.  What is written here is which tensors exist and when they die; the sizes of the
 * buffers follow.
 *
 * src: llama.cpp as in llama-cpp-python 0.3.36: ggml/src/ggml-alloc.c, ggml/src/ggml-backend.cpp
 * ggml_backend_sched_split_graph, ggml/src/ggml.c ggml_build_forward_expand */
#ifndef PLIM_SERVE_GGML_H
#define PLIM_SERVE_GGML_H

#include "core/shape.h"

enum { PLIM_GG_DIMS = 4, PLIM_GG_SRC = 6 };

/* Where a tensor lies, or an operation runs. */
typedef enum plim_gg_place { PLIM_GG_DEVICE, PLIM_GG_HOST, PLIM_GG_PLACES } plim_gg_place;

typedef struct plim_gg_graph plim_gg_graph;
typedef uint32_t plim_gg; /* a tensor; PLIM_NONE: none, also after memory ran out */

/* NULL: out of memory.  Everything lives in `a`.  `alignment`: of tensors in each place; `usual`: where
 * operations run.  On the device they do so even if their weights lie on the host, which copies
 * them: llama.cpp offloads operations of large batches. */
plim_gg_graph *plim_gg_new(plim_arena *a, const uint64_t alignment[PLIM_GG_PLACES],
                           plim_gg_place usual);
bool plim_gg_bad(const plim_gg_graph *g); /* memory ran out */

/* Tensors that lie outside the buffers: weights of `bytes`, 0: of fp32, and a cache, whose
 * elements have `bytes`. */
plim_gg plim_gg_weight(plim_gg_graph *g, plim_gg_place place, int64_t n0, int64_t n1,
                       int64_t n2, uint64_t bytes);
plim_gg plim_gg_cache(plim_gg_graph *g, plim_gg_place place, uint32_t bytes, int64_t n0,
                      int64_t n1);
/* An input of the graph, of `bytes` an element, on the host. */
plim_gg plim_gg_input(plim_gg_graph *g, uint32_t bytes, int64_t n0, int64_t n1, int64_t n2,
                      int64_t n3);

int64_t plim_gg_dim(const plim_gg_graph *g, plim_gg t, int i);

/* Views. */
plim_gg plim_gg_reshape(plim_gg_graph *g, plim_gg t, int64_t n0, int64_t n1, int64_t n2);
plim_gg plim_gg_permute(plim_gg_graph *g, plim_gg t, int a0, int a1, int a2, int a3);
/* n1, n2 with the strides of dimensions d1, d2 of t. */
plim_gg plim_gg_part(plim_gg_graph *g, plim_gg t, int64_t n0, int64_t n1, int d1, int64_t n2,
                     int d2);
/* The same of another shape, whatever its strides: of a cache. */
plim_gg plim_gg_view(plim_gg_graph *g, plim_gg t, int64_t n0, int64_t n1, int64_t n2,
                     int64_t n3);

/* Results in fp32. */
plim_gg plim_gg_mul_mat(plim_gg_graph *g, plim_gg weight, plim_gg x);
plim_gg plim_gg_mul_mat_id(plim_gg_graph *g, plim_gg weights, plim_gg x, plim_gg ids);
/* Runs where the table lies. */
plim_gg plim_gg_get_rows(plim_gg_graph *g, plim_gg t, plim_gg rows);
/* Of the shape of x, which it may replace; `by` may be PLIM_NONE. */
plim_gg plim_gg_map(plim_gg_graph *g, plim_gg x, plim_gg by);
/* Of the shape of x, which it may not. */
plim_gg plim_gg_make(plim_gg_graph *g, plim_gg x, plim_gg by);
/* Of any shape. */
plim_gg plim_gg_op(plim_gg_graph *g, uint32_t bytes, int64_t n0, int64_t n1, int64_t n2,
                   int64_t n3, const plim_gg *src, uint32_t n_src);
/* Keeps the tensors, and what they are made of, until `until` has run: for kernels of the CUDA
 * backend that stand for several operations. */
void plim_gg_keep(plim_gg_graph *g, const plim_gg *t, uint32_t n, bool sources, plim_gg until);
/* Makes t run there. */
void plim_gg_move(plim_gg_graph *g, plim_gg t, plim_gg_place place);
/* Writes rows of t into a cache, where that lies. */
plim_gg plim_gg_set_rows(plim_gg_graph *g, plim_gg into, plim_gg t, plim_gg rows);

/* Appends what t needs and is not in the order yet, and t itself. */
void plim_gg_expand(plim_gg_graph *g, plim_gg t);

/* Lays the graph out: bytes of the buffer in each place.  What one place reads of the other is
 * copied there.  false: out of memory. */
bool plim_gg_layout(plim_gg_graph *g, plim_arena *a, uint64_t bytes[PLIM_GG_PLACES]);

#endif
