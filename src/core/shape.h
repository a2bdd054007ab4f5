/* shape.h -- dtypes, sizes and strides: PyTorch's own rules for when a tensor
 * is contiguous, when a view exists and how shapes broadcast.
 * src: aten/src/ATen/{TensorUtils,ExpandUtils}.cpp, c10/core/TensorImpl.cpp
 * semantics as described in docs.pytorch.org "Tensor Views". */
#ifndef PLIM_SHAPE_H
#define PLIM_SHAPE_H

#include "base/base.h"

#define PLIM_MAX_RANK 8
#define PLIM_NONE UINT32_MAX /* no id: ids are 32-bit indices into arrays */

typedef struct plim_dtype_row {
    const char *name;  /* short: "fp32" */
    const char *torch; /* "torch.float32" */
    uint32_t bits;     /* per element; below 8: packed */
    bool is_float, is_complex, is_signed;
    const char *doc, *src;
} plim_dtype_row;

extern const plim_dtype_row plim_dtype_rows[PLIM_DTYPE_COUNT];

/* "fp32", "float32", "torch.float32", "bf16", ...; false if not known. */
bool plim_dtype_find(plim_str name, plim_dtype *out);
static inline bool plim_is_float(plim_dtype t)
{
    plim_assert((unsigned)t < PLIM_DTYPE_COUNT);
    return plim_dtype_rows[t].is_float;
}
static inline uint64_t plim_dtype_bytes(plim_dtype t) /* of one element, rounded up */
{
    plim_assert((unsigned)t < PLIM_DTYPE_COUNT);
    return (plim_dtype_rows[t].bits + 7) / 8;
}
/* The dtype of a binary op of two tensors (both of rank > 0, or both of rank 0). */
plim_dtype plim_promote(plim_dtype a, plim_dtype b);

/* A tensor without its data.  Strides in elements. */
typedef struct plim_meta {
    plim_dtype dtype;
    int32_t rank;
    int64_t dim[PLIM_MAX_RANK];
    int64_t stride[PLIM_MAX_RANK];
} plim_meta;

/* A size and a stride by place, as in Python: 0 is the first, -1 the last.  What is not there has a size of
 * 1, as it would if the tensor were broadcast. */
static inline int64_t plim_dim_at(const plim_meta *m, int32_t i)
{
    plim_assert(m->rank >= 0 && m->rank <= PLIM_MAX_RANK);
    int32_t k = i < 0 ? i + m->rank : i;
    return k >= 0 && k < m->rank ? m->dim[k] : 1;
}
static inline int64_t plim_stride_at(const plim_meta *m, int32_t i)
{
    plim_assert(m->rank >= 0 && m->rank <= PLIM_MAX_RANK);
    int32_t k = i < 0 ? i + m->rank : i;
    return k >= 0 && k < m->rank ? m->stride[k] : 1;
}
/* Does nothing where there is no such dim. */
static inline void plim_set_dim(plim_meta *m, int32_t i, int64_t size)
{
    plim_assert(m->rank >= 0 && m->rank <= PLIM_MAX_RANK);
    int32_t k = i < 0 ? i + m->rank : i;
    if (k >= 0 && k < m->rank)
        m->dim[k] = size;
}

/* A product of sizes; one that overflows becomes a size that no tensor can have. */
static inline int64_t plim_dim_mul(int64_t a, int64_t b)
{
    uint64_t r = plim_sat_mul(a < 0 ? 0 : (uint64_t)a, b < 0 ? 0 : (uint64_t)b);
    return r > INT64_MAX ? INT64_MAX : (int64_t)r;
}

/* The next multiple; saturates, too. */
static inline int64_t plim_dim_round_up(int64_t n, int64_t to)
{
    plim_assert(to > 0);
    uint64_t up = plim_sat_add(n < 0 ? 0 : (uint64_t)n, (uint64_t)to - 1) / (uint64_t)to;
    return plim_dim_mul(up > INT64_MAX ? INT64_MAX : (int64_t)up, to);
}

/* Contiguous meta.  Dims are not checked here. */
plim_meta plim_meta_make(plim_dtype t, int32_t rank, const int64_t *dim);
void plim_meta_contiguous(plim_meta *m);    /* strides of a dense row-major tensor */
void plim_meta_channels_last(plim_meta *m); /* rank 4 (or 5): NHWC strides */

/* Elements / bytes of a dense tensor of these dims; false if a dim is negative
 * or the product passes 2^62. */
bool plim_meta_numel(const plim_meta *m, uint64_t *out);
bool plim_meta_bytes(const plim_meta *m, uint64_t *out);

bool plim_is_contiguous(const plim_meta *m);
/* MemoryFormat in the numbering of the export schema, as ops get it as an argument. */
typedef enum plim_memory_format {
    PLIM_FORMAT_CONTIGUOUS = 1,
    PLIM_FORMAT_CHANNELS_LAST = 2,
    PLIM_FORMAT_CHANNELS_LAST_3D = 3,
    PLIM_FORMAT_PRESERVE = 4,
} plim_memory_format;

bool plim_is_channels_last(const plim_meta *m); /* rank 4, NHWC, not also "suggests" */
/* What PyTorch calls suggest_memory_format() == ChannelsLast. */
bool plim_suggests_channels_last(const plim_meta *m);
bool plim_is_dense(const plim_meta *m); /* non-overlapping and dense */
bool plim_same_size(const plim_meta *a, const plim_meta *b);

/* Strides of a new output "like" m (empty_like, preserve_format): m's own order if m is dense,
 * else m's order with the gaps closed. */
plim_meta plim_meta_like(const plim_meta *m, plim_dtype t);

/* Strides of a view of m's storage with the sizes `dim`; false: a copy is needed
 * (at::detail::computeStride). */
bool plim_view_strides(const plim_meta *m, int32_t rank, const int64_t *dim, int64_t *stride);

/* Replaces the one -1 in dim so that numel matches; false if it cannot. */
bool plim_infer_size(const plim_meta *m, int32_t rank, int64_t *dim);

/* Broadcast of two sizes into *out (rank and dim only); false if they clash. */
bool plim_broadcast(const plim_meta *a, const plim_meta *b, plim_meta *out);

/* Size and strides of the result of an elementwise op over a and b; the dtype is left alone.
 * False if the sizes clash.  src: TensorIterator::reorder_dimensions */
bool plim_elementwise(const plim_meta *a, const plim_meta *b, plim_meta *out);

/* "[64, 3, 7, 7]" into buf; returns buf. */
char *plim_meta_str(const plim_meta *m, char *buf, size_t n);

#endif
