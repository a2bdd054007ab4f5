/* shape.c -- see shape.h. */
#include "core/shape.h"

#include <stdio.h>

/* src: torch/_utils_internal, c10/core/ScalarType.h; element sizes as
 * torch.empty(1, dtype=...).element_size() prints them (2.13). */
#define T_SRC "c10/core/ScalarType.h"
const plim_dtype_row plim_dtype_rows[PLIM_DTYPE_COUNT] = {
    /*                    name           torch                     bits flt   cplx  sign */
    [PLIM_F32] = {"fp32", "torch.float32", 32, true, false, true,
                  "single precision, the default", T_SRC},
    [PLIM_F16] = {"fp16", "torch.float16", 16, true, false, true, "half precision", T_SRC},
    [PLIM_BF16] = {"bf16", "torch.bfloat16", 16, true, false, true,
                   "brain float: fp32's range, 8 bits of mantissa", T_SRC},
    [PLIM_F64] = {"fp64", "torch.float64", 64, true, false, true, "double precision", T_SRC},
    [PLIM_I64] = {"int64", "torch.int64", 64, false, false, true,
                  "labels, token ids and indices", T_SRC},
    [PLIM_I32] = {"int32", "torch.int32", 32, false, false, true, "integer", T_SRC},
    [PLIM_I16] = {"int16", "torch.int16", 16, false, false, true, "integer", T_SRC},
    [PLIM_I8] = {"int8", "torch.int8", 8, false, false, true, "integer", T_SRC},
    [PLIM_U8] = {"uint8", "torch.uint8", 8, false, false, false, "bytes, images", T_SRC},
    [PLIM_BOOL] = {"bool", "torch.bool", 8, false, false, false, "masks: one byte an element",
                   T_SRC},
    [PLIM_U16] = {"uint16", "torch.uint16", 16, false, false, false, "unsigned integer",
                  T_SRC},
    [PLIM_U32] = {"uint32", "torch.uint32", 32, false, false, false, "unsigned integer",
                  T_SRC},
    [PLIM_U64] = {"uint64", "torch.uint64", 64, false, false, false, "unsigned integer",
                  T_SRC},
    [PLIM_C32] = {"complex32", "torch.complex32", 32, false, true, true, "two fp16", T_SRC},
    [PLIM_C64] = {"complex64", "torch.complex64", 64, false, true, true, "two fp32", T_SRC},
    [PLIM_C128] = {"complex128", "torch.complex128", 128, false, true, true, "two fp64",
                   T_SRC},
    [PLIM_F8E4M3FN] = {"fp8_e4m3fn", "torch.float8_e4m3fn", 8, true, false, true,
                       "8-bit float", T_SRC},
    [PLIM_F8E5M2] = {"fp8_e5m2", "torch.float8_e5m2", 8, true, false, true, "8-bit float",
                     T_SRC},
    [PLIM_F8E4M3FNUZ] = {"fp8_e4m3fnuz", "torch.float8_e4m3fnuz", 8, true, false, true,
                         "8-bit float, no negative zero", T_SRC},
    [PLIM_F8E5M2FNUZ] = {"fp8_e5m2fnuz", "torch.float8_e5m2fnuz", 8, true, false, true,
                         "8-bit float, no negative zero", T_SRC},
    [PLIM_F8E8M0FNU] = {"fp8_e8m0fnu", "torch.float8_e8m0fnu", 8, true, false, false,
                        "8-bit scale, exponent only", T_SRC},
    [PLIM_F4E2M1X2] = {"fp4_e2m1x2", "torch.float4_e2m1fn_x2", 8, true, false, true,
                       "two 4-bit floats in a byte", T_SRC},
    [PLIM_QINT8] = {"qint8", "torch.qint8", 8, false, false, true, "quantized", T_SRC},
    [PLIM_QUINT8] = {"quint8", "torch.quint8", 8, false, false, false, "quantized", T_SRC},
    [PLIM_QINT32] = {"qint32", "torch.qint32", 32, false, false, true, "quantized", T_SRC},
    [PLIM_QUINT4X2] = {"quint4x2", "torch.quint4x2", 4, false, false, false,
                       "quantized, two in a byte", T_SRC},
    [PLIM_QUINT2X4] = {"quint2x4", "torch.quint2x4", 2, false, false, false,
                       "quantized, four in a byte", T_SRC},
};

const char *plim_dtype_name(plim_dtype t)
{
    return (unsigned)t < PLIM_DTYPE_COUNT ? plim_dtype_rows[t].name : "unknown";
}

bool plim_dtype_find(plim_str name, plim_dtype *out)
{
    static const struct {
        const char *name;
        plim_dtype t;
    } alias[] = {
        {"float", PLIM_F32},   {"half", PLIM_F16},    {"bfloat16", PLIM_BF16},
        {"double", PLIM_F64},  {"long", PLIM_I64},    {"int", PLIM_I32},
        {"short", PLIM_I16},   {"float32", PLIM_F32}, {"float16", PLIM_F16},
        {"float64", PLIM_F64},
    };
    for (int i = 0; i < PLIM_DTYPE_COUNT; i++) {
        const char *torch = plim_dtype_rows[i].torch;
        if (plim_str_is(name, plim_dtype_rows[i].name) || plim_str_is(name, torch) ||
            plim_str_is(name, torch + strlen("torch."))) {
            *out = (plim_dtype)i;
            return true;
        }
    }
    for (size_t i = 0; i < PLIM_COUNT(alias); i++)
        if (plim_str_is(name, alias[i].name)) {
            *out = alias[i].t;
            return true;
        }
    return false;
}

/* Category first (complex > float > int > bool), then width; fp16 and bf16 promote to fp32.
 * src: c10/core/ScalarType.cpp promoteTypes. */
plim_dtype plim_promote(plim_dtype a, plim_dtype b)
{
    plim_assert((unsigned)a < PLIM_DTYPE_COUNT && (unsigned)b < PLIM_DTYPE_COUNT);
    if (a == b)
        return a;
    const plim_dtype_row *ra = &plim_dtype_rows[a], *rb = &plim_dtype_rows[b];
    int ca = ra->is_complex ? 3 : ra->is_float ? 2 : a == PLIM_BOOL ? 0 : 1;
    int cb = rb->is_complex ? 3 : rb->is_float ? 2 : b == PLIM_BOOL ? 0 : 1;
    if (ca == 3 && cb == 2 && rb->bits > ra->bits / 2) /* complex with parts of that width */
        return rb->bits == 64 ? PLIM_C128 : PLIM_C64;
    if (cb == 3 && ca == 2)
        return plim_promote(b, a);
    if (ca != cb)
        return ca > cb ? a : b;
    if (ca == 2 && ra->bits == 16 && rb->bits == 16)
        return PLIM_F32;
    if (ca == 1 && ra->bits == rb->bits) /* u8 with i8 -> i16 */
        return ra->bits == 8 ? PLIM_I16 : ra->is_signed ? a : b;
    return ra->bits > rb->bits ? a : b;
}

plim_meta plim_meta_make(plim_dtype t, int32_t rank, const int64_t *dim)
{
    plim_assert(rank >= 0 && rank <= PLIM_MAX_RANK && (dim || !rank));
    plim_meta m = {.dtype = t, .rank = rank};
    for (int32_t i = 0; i < rank; i++)
        m.dim[i] = dim[i];
    plim_meta_contiguous(&m);
    return m;
}

/* Products of strides may overflow for hostile sizes: numel is checked before any stride is
 * used, so the overflow itself only has to be harmless. */
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

void plim_meta_contiguous(plim_meta *m)
{
    plim_assert(m->rank >= 0 && m->rank <= PLIM_MAX_RANK);
    int64_t s = 1;
    for (int32_t i = m->rank - 1; i >= 0; i--) {
        m->stride[i] = s;
        s = wrap_mul(s, PLIM_MAX(m->dim[i], 1));
    }
}

void plim_meta_channels_last(plim_meta *m)
{
    static const int order4[] = {1, 3, 2, 0}, order5[] = {1, 4, 3, 2, 0};
    if (m->rank != 4 && m->rank != 5) {
        plim_meta_contiguous(m);
        return;
    }
    const int *order = m->rank == 4 ? order4 : order5;
    int64_t s = 1;
    for (int32_t k = 0; k < m->rank; k++) {
        m->stride[order[k]] = s;
        s = wrap_mul(s, PLIM_MAX(m->dim[order[k]], 1));
    }
}

bool plim_meta_numel(const plim_meta *m, uint64_t *out)
{
    plim_assert(m->rank >= 0 && m->rank <= PLIM_MAX_RANK);
    uint64_t n = 1;
    bool empty = false;
    for (int32_t i = 0; i < m->rank; i++) {
        if (m->dim[i] < 0)
            return false;
        if (m->dim[i] == 0)
            empty = true;
        else if (!plim_mul(n, (uint64_t)m->dim[i], &n) || n > (uint64_t)1 << 62)
            return false;
    }
    *out = empty ? 0 : n;
    return true;
}

bool plim_meta_bytes(const plim_meta *m, uint64_t *out)
{
    plim_assert((unsigned)m->dtype < PLIM_DTYPE_COUNT);
    uint64_t n, bits;
    if (!plim_meta_numel(m, &n) || !plim_mul(n, plim_dtype_rows[m->dtype].bits, &bits))
        return false;
    *out = bits / 8 + (bits % 8 != 0);
    return true;
}

bool plim_is_contiguous(const plim_meta *m)
{
    int64_t s = 1;
    for (int32_t i = 0; i < m->rank; i++)
        if (m->dim[i] == 0)
            return true;
    for (int32_t i = m->rank - 1; i >= 0; i--) {
        if (m->dim[i] == 1)
            continue;
        if (m->stride[i] != s)
            return false;
        s = wrap_mul(s, m->dim[i]);
    }
    return true;
}

bool plim_is_channels_last(const plim_meta *m)
{
    static const int order[] = {1, 3, 2, 0};
    int64_t s = 1;
    if (m->rank != 4)
        return false;
    for (int k = 0; k < 4; k++) {
        int d = order[k];
        if (m->dim[d] == 1)
            continue;
        if (m->stride[d] != s)
            return false;
        s = wrap_mul(s, m->dim[d]);
    }
    return true;
}

/* src: c10/core/MemoryFormat.h is_channels_last_strides_2d_s4: strides must grow in the order
 * C, W, H, N; dims of size 1 must not decide. */
bool plim_suggests_channels_last(const plim_meta *m)
{
    static const int order[] = {1, 3, 2, 0};
    int64_t min = 0;
    if (m->rank != 4 || m->stride[1] == 0)
        return false;
    for (int k = 0; k < 4; k++) {
        int d = order[k];
        if (m->dim[d] == 0 || m->stride[d] < min)
            return false;
        /* N1HW: contiguous and channels_last look alike; PyTorch says contiguous */
        if (d == 0 && min == m->stride[1])
            return false;
        min = m->stride[d];
        if (m->dim[d] > 1)
            min = wrap_mul(min, m->dim[d]);
    }
    return true;
}

/* Dims in order of ascending stride (stable, size-1 dims anywhere). */
static void stride_order(const plim_meta *m, int32_t *perm)
{
    for (int32_t i = 0; i < m->rank; i++) {
        int32_t j = i;
        int32_t d = m->rank - 1 - i; /* innermost first, so ties keep row-major order */
        while (j > 0 && m->stride[perm[j - 1]] > m->stride[d]) {
            perm[j] = perm[j - 1];
            j--;
        }
        perm[j] = d;
    }
}

bool plim_is_dense(const plim_meta *m)
{
    int32_t perm[PLIM_MAX_RANK];
    int32_t n = 0;
    int64_t s = 1;
    plim_meta t = *m;
    t.rank = 0;
    for (int32_t i = 0; i < m->rank; i++) { /* dims of size below 2 do not matter */
        if (m->dim[i] == 0)
            return true;
        if (m->dim[i] > 1) {
            t.dim[n] = m->dim[i];
            t.stride[n++] = m->stride[i];
        }
    }
    t.rank = n;
    stride_order(&t, perm);
    for (int32_t k = 0; k < n; k++) {
        if (t.stride[perm[k]] != s)
            return false;
        s = wrap_mul(s, t.dim[perm[k]]);
    }
    return true;
}

bool plim_same_size(const plim_meta *a, const plim_meta *b)
{
    plim_assert(a->rank >= 0 && a->rank <= PLIM_MAX_RANK);
    return a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

/* ---- the order that TensorIterator gives a fresh result --------------------------- */

/* Whether dim i is further out than dim k: 1 yes, -1 no, 0 undecided.  Decided by the first
 * operand that is expanded in neither dim and has different strides for them. */
static int compare_dims(const plim_meta *const *m, int n, int32_t i, int32_t k)
{
    for (int o = 0; o < n; o++) {
        int64_t si = m[o]->stride[i], sk = m[o]->stride[k];
        if (si == 0 || sk == 0)
            continue;
        if (si != sk)
            return si > sk ? 1 : -1;
        if (m[o]->dim[i] > m[o]->dim[k]) /* equal strides: the smaller dim goes inside */
            return 1;
    }
    return 0;
}

/* Strides of a dense tensor of out's size with its dims in the order of the operands' strides:
 * an insertion sort that skips pairs it cannot compare.
 * src: c10 infer_dense_strides, TensorIterator::reorder_dimensions */
static void dense_strides(const plim_meta *const *m, int n, plim_meta *out)
{
    plim_assert(n > 0);
    int32_t perm[PLIM_MAX_RANK];
    int64_t step = 1;
    for (int32_t i = 0; i < out->rank; i++) {
        int32_t at = i;
        perm[i] = out->rank - 1 - i; /* innermost first */
        for (int32_t j = i - 1; j >= 0; j--) {
            int cmp = compare_dims(m, n, perm[j], perm[at]);
            if (cmp < 0)
                break;
            if (cmp == 0)
                continue;
            int32_t d = perm[j];
            perm[j] = perm[at];
            perm[at] = d;
            at = j;
        }
    }
    for (int32_t k = 0; k < out->rank; k++) {
        out->stride[perm[k]] = step;
        step = wrap_mul(step, PLIM_MAX(out->dim[perm[k]], 1));
    }
}

plim_meta plim_meta_like(const plim_meta *m, plim_dtype t)
{
    plim_meta out = *m;
    out.dtype = t;
    if (!plim_is_dense(m))
        dense_strides(&m, 1, &out);
    return out;
}

/* m expanded to out's size. */
static plim_meta expand_meta(const plim_meta *m, const plim_meta *out)
{
    plim_assert(m->rank <= out->rank);
    plim_meta e = *out;
    for (int32_t i = 0; i < out->rank; i++) {
        int32_t from = i - (out->rank - m->rank);
        bool here = from >= 0 && (m->dim[from] == out->dim[i]);
        e.stride[i] = here ? m->stride[from] : 0;
    }
    return e;
}

bool plim_elementwise(const plim_meta *a, const plim_meta *b, plim_meta *out)
{
    if (!plim_broadcast(a, b, out))
        return false;
    if (plim_same_size(a, b) && plim_is_contiguous(a) && plim_is_contiguous(b)) {
        plim_meta_contiguous(out);
        return true;
    }
    plim_meta ea = expand_meta(a, out), eb = expand_meta(b, out);
    const plim_meta *m[] = {&ea, &eb};
    dense_strides(m, 2, out);
    return true;
}

/* src: aten/src/ATen/TensorUtils.cpp computeStride_impl: walks the old dims from the inside,
 * collects them into contiguous chunks, and fits the new dims into each chunk. */
bool plim_view_strides(const plim_meta *m, int32_t rank, const int64_t *dim, int64_t *stride)
{
    plim_assert(rank >= 0 && rank <= PLIM_MAX_RANK);
    uint64_t numel;
    if (!plim_meta_numel(m, &numel))
        return false;
    if (numel == 0 || m->rank == 0) {
        plim_meta c = plim_meta_make(m->dtype, rank, dim);
        memcpy(stride, c.stride, sizeof c.stride);
        return true;
    }
    int32_t v = rank - 1;
    int64_t base = m->stride[m->rank - 1], chunk = 1, seen = 1;
    for (int32_t d = m->rank - 1; d >= 0; d--) {
        chunk = wrap_mul(chunk, m->dim[d]);
        bool ends =
            d == 0 || (m->dim[d - 1] != 1 && m->stride[d - 1] != wrap_mul(chunk, base));
        if (!ends)
            continue;
        while (v >= 0 && (seen < chunk || dim[v] == 1)) {
            stride[v] = wrap_mul(seen, base);
            seen = wrap_mul(seen, dim[v]);
            v--;
        }
        if (seen != chunk)
            return false;
        if (d > 0) {
            base = m->stride[d - 1];
            chunk = seen = 1;
        }
    }
    return v == -1;
}

bool plim_infer_size(const plim_meta *m, int32_t rank, int64_t *dim)
{
    plim_assert(rank >= 0 && rank <= PLIM_MAX_RANK);
    uint64_t numel, known = 1;
    int32_t hole = -1;
    if (!plim_meta_numel(m, &numel))
        return false;
    for (int32_t i = 0; i < rank; i++) {
        if (dim[i] == -1 && hole < 0)
            hole = i;
        else if (dim[i] < 0 || !plim_mul(known, (uint64_t)dim[i], &known))
            return false;
    }
    if (hole < 0)
        return known == numel;
    if (known == 0 || numel % known)
        return false;
    dim[hole] = (int64_t)(numel / known);
    return true;
}

bool plim_broadcast(const plim_meta *a, const plim_meta *b, plim_meta *out)
{
    int32_t rank = PLIM_MAX(a->rank, b->rank);
    plim_assert(rank >= 0 && rank <= PLIM_MAX_RANK);
    int64_t dim[PLIM_MAX_RANK];
    for (int32_t i = 0; i < rank; i++) {
        int32_t ia = i - (rank - a->rank), ib = i - (rank - b->rank);
        int64_t x = ia >= 0 ? a->dim[ia] : 1, y = ib >= 0 ? b->dim[ib] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        dim[i] = x == 1 ? y : x;
    }
    out->rank = rank;
    memcpy(out->dim, dim, (size_t)rank * sizeof dim[0]);
    return true;
}

char *plim_meta_str(const plim_meta *m, char *buf, size_t n)
{
    plim_assert(n > 0);
    size_t at = 0;
    buf[0] = 0;
    for (int32_t i = 0; i <= m->rank && at < n; i++) {
        int k = i == m->rank
                    ? snprintf(buf + at, n - at, i ? "]" : "[]")
                    : snprintf(buf + at, n - at, "%s%" PRId64, i ? ", " : "[", m->dim[i]);
        at += k > 0 ? (size_t)k : 0;
    }
    return buf;
}
