/* moves.c -- see moves.h.  src: aten/src/ATen/native/TensorShape.cpp, ExpandUtils.h */
#include "machine/moves.h"

#include "machine/reduction.h"

/* ---- gradients of copies -------------------------------------------------- */

void plim_backward_pass(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)n;
    dx[0] = plim_m_ref(m, g[0]);
}

void plim_backward_fresh(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_assert(n->n_in > 0);
    dx[0] = plim_m_empty_contig(m, plim_m_meta(m, g[0])->dtype, n->in_meta[0].rank,
                                n->in_meta[0].dim);
}

/* ---- copies of the same size ------------------------------------------- */

static const plim_grad_fn clone_fn = {"CloneBackward0", plim_backward_pass};

plim_t plim_at_clone(plim_machine *m, plim_t x, const plim_meta *layout)
{
    const plim_meta *xm = plim_m_meta(m, x);
    plim_assert(!layout || layout->rank == xm->rank);
    plim_meta out = plim_meta_make(xm->dtype, xm->rank, xm->dim);
    if (layout)
        out = *layout;
    plim_gnode *n = plim_m_node(m, &clone_fn, 1, &x);
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_contiguous(plim_machine *m, plim_t x)
{
    return plim_is_contiguous(plim_m_meta(m, x)) ? plim_m_ref(m, x)
                                                 : plim_at_clone(m, x, NULL);
}

/* The engine's dtype check converts the gradient back: nothing to do here. */
static const plim_grad_fn to_copy_fn = {"ToCopyBackward0", plim_backward_pass};

static plim_t cast_tensor(plim_machine *m, plim_t x, plim_meta out)
{
    plim_gnode *n = plim_is_float(out.dtype) ? plim_m_node(m, &to_copy_fn, 1, &x) : NULL;
    plim_t y = plim_m_empty(m, &out);
    plim_m_output(m, n, 0, y);
    return y;
}

plim_t plim_at_to(plim_machine *m, plim_t x, plim_dtype t)
{
    plim_assert((unsigned)t < PLIM_DTYPE_COUNT);
    const plim_meta *xm = plim_m_meta(m, x);
    return xm->dtype == t ? plim_m_ref(m, x) : cast_tensor(m, x, plim_meta_like(xm, t));
}

plim_t plim_at_to_contiguous(plim_machine *m, plim_t x, plim_dtype t)
{
    plim_assert((unsigned)t < PLIM_DTYPE_COUNT);
    const plim_meta *xm = plim_m_meta(m, x);
    return xm->dtype == t && !plim_suggests_channels_last(xm)
               ? plim_m_ref(m, x)
               : cast_tensor(m, x, plim_meta_make(t, xm->rank, xm->dim));
}

/* ---- sums -------------------------------------------------------------- */

plim_t plim_at_sum_to(plim_machine *m, plim_t g, const plim_meta *want)
{
    const plim_meta *gm = plim_m_meta(m, g);
    int32_t lead = gm->rank - want->rank;
    uint32_t mask = 0;
    char a[96], b[96];
    if (lead < 0) {
        plim_m_fail(m, PLIM_ESHAPE, "a gradient of %s cannot be summed to %s",
                    plim_meta_str(gm, a, sizeof a), plim_meta_str(want, b, sizeof b));
        return 0;
    }
    for (int32_t i = 0; i < gm->rank; i++) {
        if (i < lead || (want->dim[i - lead] == 1 && gm->dim[i] != 1))
            mask |= 1u << i;
        else if (want->dim[i - lead] != gm->dim[i]) {
            plim_m_fail(m, PLIM_ESHAPE, "a gradient of %s cannot be summed to %s",
                        plim_meta_str(gm, a, sizeof a), plim_meta_str(want, b, sizeof b));
            return 0;
        }
    }
    plim_meta out = plim_meta_make(gm->dtype, want->rank, want->dim);
    if (!mask) /* leading dims of 1 at most: a view */
        return plim_m_alias(m, g, &out);
    plim_t r = plim_m_empty(m, &out);
    plim_reduce_scratch(m, gm, mask);
    if (!lead)
        return r;
    plim_t y = plim_m_alias(m, r, &out); /* keepdim, then a view without the leading dims */
    plim_m_drop(m, r);
    return y;
}
