/* iterator.c -- the type and the layout of what a kernel over several operands writes, as TensorIterator
 * chooses them: see rules.h.  src: docs/sources/operators.md 1 */
#include "op/rules.h"

/* Tensors with dims take precedence over 0-dim tensors, and these over Python numbers, within
 * the same category (bool < int < float). */
plim_dtype plim_result_type(const plim_machine *m, plim_t a, plim_t b)
{
    const plim_meta *x = plim_m_meta(m, a), *y = plim_m_meta(m, b);
    int px = plim_m_is_wrapped(m, a) ? 0 : x->rank ? 2 : 1;
    int py = plim_m_is_wrapped(m, b) ? 0 : y->rank ? 2 : 1;
    if (px == py)
        return plim_promote(x->dtype, y->dtype);
    plim_dtype hi = px > py ? x->dtype : y->dtype, lo = px > py ? y->dtype : x->dtype;
    bool lo_wrapped = (px > py ? py : px) == 0;
    if (plim_is_float(lo) && !plim_is_float(hi) && !plim_dtype_rows[hi].is_complex)
        return lo_wrapped ? PLIM_F32 : lo;
    if (hi == PLIM_BOOL && lo != PLIM_BOOL)
        return lo;
    return hi;
}

plim_meta plim_iter_meta(plim_machine *m, plim_t a, plim_t b, plim_dtype t)
{
    const plim_meta *x = plim_m_meta(m, a);
    if (!b)
        return plim_meta_like(x, t);
    const plim_meta *y = plim_m_meta(m, b);
    plim_meta out = {.dtype = t};
    if (!plim_elementwise(x, y, &out)) {
        char sx[96], sy[96];
        plim_m_fail(m, PLIM_ESHAPE, "%s and %s do not broadcast",
                    plim_meta_str(x, sx, sizeof sx), plim_meta_str(y, sy, sizeof sy));
        return plim_meta_make(t, 0, NULL);
    }
    return out;
}

plim_t plim_iter_out(plim_machine *m, plim_t a, plim_t b)
{
    plim_meta meta =
        plim_iter_meta(m, a, b, b ? plim_result_type(m, a, b) : plim_m_meta(m, a)->dtype);
    return plim_m_empty(m, &meta);
}

int32_t plim_wrap_dim(plim_machine *m, int64_t dim, int32_t rank)
{
    plim_assert(rank >= 0 && rank <= PLIM_MAX_RANK);
    int32_t n = PLIM_MAX(rank, 1);
    if (dim < -n || dim >= n) {
        plim_m_fail(m, PLIM_ESHAPE, "dim %" PRId64 " is outside a tensor of rank %d", dim,
                    (int)rank);
        return 0;
    }
    return (int32_t)(dim < 0 ? dim + n : dim);
}

plim_t plim_contiguous_tmp(plim_machine *m, plim_t t)
{
    const plim_meta *x = plim_m_meta(m, t);
    if (!t || plim_is_contiguous(x))
        return plim_m_ref(m, t);
    return plim_m_empty_contig(m, x->dtype, x->rank, x->dim);
}
