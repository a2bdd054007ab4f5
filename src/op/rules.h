/* rules.h -- the ops as functions, for rules that call other ops.
 *
 * plim_at_x(m, ...) is at::x of eager PyTorch on CUDA: it makes the same allocations, records
 * the autograd node and returns an owned tensor.  run_x reads a graph node's arguments and
 * calls it.  Each family lives in rules_<family>.c. */
#ifndef PLIM_RULES_H
#define PLIM_RULES_H

#include "machine/machine_args.h"
#include "machine/moves.h"
#include "machine/reduction.h"
#include "op/op.h"

/* ---- shared helpers ----------------------------------------------------- */

/* The result of TensorIterator for two operands: the broadcast size, and the strides of the
 * first operand that has that size.  Fails the machine if the sizes clash. */
plim_meta plim_iter_meta(plim_machine *m, plim_t a, plim_t b, plim_dtype t);
/* A new result of an elementwise kernel over a and b (b may be 0). */
plim_t plim_iter_out(plim_machine *m, plim_t a, plim_t b);
plim_dtype plim_result_type(const plim_machine *m, plim_t a, plim_t b);
int32_t plim_wrap_dim(plim_machine *m, int64_t dim, int32_t rank);
/* t, or a contiguous copy of it without autograd, as kernels make it: owned. */
plim_t plim_contiguous_tmp(plim_machine *m, plim_t t);
/* Returns t[]; drops those for which the node has no output. */
static inline void plim_rets(plim_call *c, const plim_t *t, uint32_t n)
{
    plim_assert(t && n);
    for (uint32_t i = 0; i < n; i++)
        if (i < c->n_out)
            c->out[i] = t[i];
        else
            plim_m_drop(c->m, t[i]);
}
static inline void plim_ret(plim_call *c, plim_t t) { plim_rets(c, &t, 1); }

/* A size or a permutation. */
static inline int32_t plim_arg_dims(const plim_call *c, uint32_t slot, int64_t *dim)
{
    return (int32_t)plim_arg_ints(c, slot, dim, PLIM_MAX_RANK, 1);
}

/* ---- view --------------------------------------------------------------- */
plim_t plim_at_view(plim_machine *m, plim_t x, int32_t rank,
                    const int64_t *dim); /* must be viewable */
plim_t plim_at_reshape(plim_machine *m, plim_t x, int32_t rank,
                       const int64_t *dim); /* copies if it must */
/* As a matrix whose rows have the last dimension. */
plim_t plim_at_fold_rows(plim_machine *m, plim_t x);
plim_t plim_at_reshape_unsafe(plim_machine *m, plim_t x, int32_t rank,
                              const int64_t *dim); /* _unsafe_view */
plim_t plim_at_transpose(plim_machine *m, plim_t x, int32_t a, int32_t b);
plim_t plim_at_t(plim_machine *m, plim_t x);
plim_t plim_at_permute(plim_machine *m, plim_t x, const int64_t *perm);
plim_t plim_at_expand(plim_machine *m, plim_t x, int32_t rank, const int64_t *dim);
plim_t plim_at_unsqueeze(plim_machine *m, plim_t x, int32_t dim);
plim_t plim_at_squeeze(plim_machine *m, plim_t x, int32_t dim);
/* A view of x with the meta `out`, and an autograd node of this kind. */
plim_t plim_view_as(plim_machine *m, const plim_grad_fn *fn, plim_t x, const plim_meta *out);

/* ---- slice -------------------------------------------------------------- */
plim_t plim_at_narrow(plim_machine *m, plim_t x, int32_t dim, int64_t length);

/* ---- copy --------------------------------------------------------------- */
plim_t plim_at_cat(plim_machine *m, const plim_t *in, uint32_t n, int64_t dim);
/* A copy of x with the meta `out`, and an autograd node of this kind. */
plim_t plim_copy_as(plim_machine *m, const plim_grad_fn *fn, plim_t x, const plim_meta *out);
/* ---- window ------------------------------------------------------------- */
plim_t plim_at_pad(plim_machine *m, plim_t x, uint32_t n, const int64_t *pad); /* constant */

/* ---- pointwise ---------------------------------------------------------- */
plim_t plim_at_add(plim_machine *m, plim_t a, plim_t b, bool inplace);
plim_t plim_at_sub(plim_machine *m, plim_t a, plim_t b);
plim_t plim_at_mul(plim_machine *m, plim_t a, plim_t b, bool inplace);
plim_t plim_at_square(plim_machine *m, plim_t x); /* pow(x, 2), which autocast widens */
plim_t plim_at_rsqrt(plim_machine *m, plim_t x);
plim_t plim_at_where(plim_machine *m, plim_t cond, plim_t a, plim_t b); /* as large as b */

/* ---- complex ------------------------------------------------------------ */
plim_dtype plim_complex_part(plim_dtype t);  /* of a complex type's parts */
plim_dtype plim_complex_of(plim_dtype part); /* with parts of that type */
bool plim_is_complex(const plim_machine *m, plim_t t);
/* conj(t) for an op that does not know the conjugate bit: a copy, or t if it is real. */
plim_t plim_resolved_conj(plim_machine *m, plim_t t);
/* at::real of a complex t, without autograd: a view. */
plim_t plim_real_part(plim_machine *m, plim_t t);

/* ---- reduce ------------------------------------------------------------- */
plim_t plim_at_sum(plim_machine *m, plim_t x, uint32_t mask, bool keep);
plim_t plim_at_mean(plim_machine *m, plim_t x, uint32_t mask); /* keepdim=True */
plim_t plim_logsumexp_last(plim_machine *m, plim_t x); /* of the last dim, without autograd */

/* ---- index ------------------------------------------------------------------ */
/* The dense gradient of a table of that many rows, some of them chosen by idx. */
plim_t plim_at_embedding_gradient(plim_machine *m, plim_t g, plim_t idx, int64_t rows,
                                  bool by_freq);
/* The temporaries of nonzero() of n elements, freed at once. */
void plim_nonzero_scratch(plim_machine *m, uint64_t n);

/* ---- sort --------------------------------------------------------------- */
/* The temporaries of cub's radix sort of n keys with 64-bit values, over `bits` bits of the
 * key; with buffers for the passes unless the caller has them.  Freed at once. */
void plim_cub_sort(plim_machine *m, uint64_t n, uint64_t key_bytes, uint64_t bits,
                   bool buffers);
/* The temporaries of a prefix sum of n values of that many bytes, and of a search for the first of
 * each key among n sorted ones. */
void plim_cub_scan(plim_machine *m, uint64_t n, uint64_t bytes);
void plim_cub_unique_by_key(plim_machine *m, uint64_t n, uint64_t bytes);
/* thrust's sort of n pairs of 64 bits, and its unique over the sorted pairs. */
void plim_cub_merge_sort(plim_machine *m, uint64_t n);
void plim_cub_unique(plim_machine *m, uint64_t n);

/* ---- sparse --------------------------------------------------------------- */
/* Adds up the rows of the same index; t itself if it is coalesced already.  *left (may be
 * NULL): how many rows are left, usually the number expected of random indices. */
plim_t plim_at_coalesce(plim_machine *m, plim_t t, plim_rows *left);

/* ---- matmul ------------------------------------------------------------- */
plim_t plim_at_matmul(plim_machine *m, plim_t a, plim_t b);
plim_t plim_at_linear(plim_machine *m, plim_t x, plim_t weight, plim_t bias);

/* ---- attention ---------------------------------------------------------- */
typedef enum plim_sdpa { /* numbered as at::SDPBackend */
                         PLIM_SDPA_MATH,
                         PLIM_SDPA_FLASH,
                         PLIM_SDPA_EFFICIENT,
                         PLIM_SDPA_CUDNN
} plim_sdpa;
typedef struct plim_sdpa_call {
    bool mask, mask_grad, causal, gqa, dropout;
    bool mask_strided; /* the stride of its last dim is not 1 */
    unsigned without;  /* one bit for each kernel that the user has disabled */
} plim_sdpa_call;
/* The kernel that PyTorch would choose on this card. */
plim_sdpa plim_sdpa_choice(const plim_world *w, const plim_meta *q, const plim_meta *k,
                           const plim_meta *v, const plim_sdpa_call *call);

/* FlashAttention's: how many parts of the keys are worked through at once, and a head's size as its sums have it. */
typedef struct plim_sdpa_size {
    int64_t batch, heads, queries, keys, size;
} plim_sdpa_size;
int64_t plim_flash_splits(plim_machine *m, const plim_sdpa_size *d);
int64_t plim_flash_width(int64_t size);

/* What a graph of cuDNN's attention takes beside the tensors of its algorithm.
 * src: tests/golden/gpu, an H100 with cuDNN 9.19: 14 networks, 12 shapes */
enum { PLIM_CUDNN_GRAPH_BYTES = 256 };

/* What that kernel makes, and nothing is kept for backward: the result, log-sum-exp, and the random
 * state, of two tensors or of none.  Not of the math kernel, which is several ops. */
void plim_sdpa_kernel(plim_machine *m, plim_sdpa kernel, plim_t q, plim_t k, plim_t v,
                      plim_t out[4]);
void plim_sdpa_kernel_backward(plim_machine *m, plim_sdpa kernel, plim_t g, plim_t q, plim_t k,
                               plim_t v, plim_t out, plim_t dx[3]);

/* ---- softmax ------------------------------------------------------------ */
plim_t plim_at_softmax(plim_machine *m, plim_t x, bool is_log);
plim_t plim_at_safe_softmax(plim_machine *m, plim_t x); /* over the last dim */
plim_t plim_at_dropout(plim_machine *m, plim_t x, double p, bool train, bool inplace);

/* ---- loss: over the mean (reduce), or element by element ------------------- */
plim_t plim_at_cross_entropy(plim_machine *m, plim_t x, plim_t target, plim_t weight,
                             bool reduce);
plim_t plim_at_mse(plim_machine *m, plim_t x, plim_t target, bool reduce);
plim_t plim_at_bce_logits(plim_machine *m, plim_t x, plim_t target, bool reduce);
plim_t plim_at_sum_all(plim_machine *m, plim_t x);

/* ---- run and cost functions named in ops.def ----------------------------- */
#define PLIM_OP(name, family, run, cost, schema, doc, src) void run(plim_call *c);
#include "op/ops.def"
#undef PLIM_OP

/* ---- kernels named in kernels.def ----------------------------------------- */
#define PLIM_KERNEL(name, requests, run, schema) void plim_kernel_##run(plim_call *c);
#include "op/kernels.def"
#undef PLIM_KERNEL

/* The input of a cost function: metas only. */
typedef struct plim_cost_call {
    const plim_graph *g;
    const plim_node *node;
    const plim_meta *out; /* output 0 */
    uint64_t out_numel;
} plim_cost_call;

void plim_cost_none(const plim_cost_call *c,
                    plim_cost *out); /* moves bytes, computes nothing */
void plim_cost_view(const plim_cost_call *c, plim_cost *out); /* no bytes either */
void plim_cost_maybe_copy(const plim_cost_call *c,
                          plim_cost *out);                         /* a view if there is one */
void plim_cost_pointwise(const plim_cost_call *c, plim_cost *out); /* one flop per output */
void plim_cost_reduce(const plim_cost_call *c, plim_cost *out);    /* one flop per input */
void plim_cost_norm(const plim_cost_call *c, plim_cost *out);
void plim_cost_conv(const plim_cost_call *c, plim_cost *out);
void plim_cost_conv_transpose(const plim_cost_call *c, plim_cost *out);
void plim_cost_linear_loss(const plim_cost_call *c, plim_cost *out);
void plim_cost_linear(const plim_cost_call *c, plim_cost *out);
void plim_cost_matmul(const plim_cost_call *c, plim_cost *out);
void plim_cost_hada_weight(const plim_cost_call *c, plim_cost *out);
void plim_cost_addmm(const plim_cost_call *c, plim_cost *out);
void plim_cost_einsum(const plim_cost_call *c, plim_cost *out);
void plim_cost_rnn(const plim_cost_call *c, plim_cost *out);
void plim_cost_pool(const plim_cost_call *c, plim_cost *out);
void plim_cost_sdpa(const plim_cost_call *c, plim_cost *out);
void plim_cost_flash_attention(const plim_cost_call *c, plim_cost *out);
void plim_cost_cp_attention(const plim_cost_call *c, plim_cost *out);
void plim_cost_megatron_attention(const plim_cost_call *c, plim_cost *out);
void plim_cost_megatron_grouped(const plim_cost_call *c, plim_cost *out);

/* ---- Transformer Engine ------------------------------------------------- */
/* Its workspace of that name, which is made once. */
void plim_te_workspace(plim_machine *m, plim_str key);
/* a b in type t, without autograd, whatever the types of a and b. */
plim_t plim_te_product(plim_machine *m, plim_t a, plim_t b, plim_dtype t);
/* What stands for the gradient of a weight where a kernel adds that to the main gradient: a tensor that nobody reads,
 * one for each shape.  src: layers.py; pytorch/module/base.py get_dummy_wgrad */
plim_t plim_te_unread_gradient(plim_machine *m, const plim_meta *w);

#endif
