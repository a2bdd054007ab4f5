/* sparse.c -- steps on sparse gradients, those of embedding(sparse=True): one row for each
 * index that was looked up, and the indices of these rows in the parameter.
 *
 * An optimizer that is not linear in the gradient coalesces it first: the number of rows left
 * is a range (plim_at_coalesce).
 * src: torch/optim/_functional.py, adagrad.py; SparseTensor.cpp */
#include "op/rules.h"
#include "optim/part.h"

/* ---- tensors of the rows that are left ---------------------------------------------- */

typedef struct rows {
    plim_optim_run *r;
    const plim_optim_param *p;
    plim_meta values; /* its first dim is the usual number */
    plim_rows n;
    plim_t grad, grad_indices, grad_values; /* Python locals: owned */
} rows;

static plim_t like_values(const rows *w, const char *role)
{
    plim_m_place(w->r->m, PLIM_NONE, w->p->name, role, PLIM_CAT_TEMPORARY);
    return plim_m_empty_rows(w->r->m, &w->values, w->n);
}

static plim_t like_indices(const rows *w)
{
    int64_t n = (int64_t)w->n.usual;
    plim_meta meta = plim_meta_make(PLIM_I64, 1, &n); /* [1, n], transposed */
    plim_m_place(w->r->m, PLIM_NONE, w->p->name, "indices", PLIM_CAT_TEMPORARY);
    return plim_m_empty_rows(w->r->m, &meta, w->n);
}

/* Values freed at once. */
static void brief_values(const rows *w, const char *role)
{
    plim_m_drop(w->r->m, like_values(w, role));
}

/* dense.sparse_mask(grad): dense's rows at grad's indices; the copy of the indices is owned
 * too.  The rows are multiplied by ones that have grad's indices. */
static plim_t mask_values(const rows *w, const char *role, plim_t *indices)
{
    plim_machine *m = w->r->m;
    plim_m_place(m, PLIM_NONE, w->p->name, "ones", PLIM_CAT_TEMPORARY);
    plim_t one = plim_m_empty_contig(m, w->values.dtype, 0, NULL);
    plim_t picked = like_values(w, role);
    *indices = like_indices(w);
    plim_t values = like_values(w, role);
    plim_m_drop(m, picked);
    plim_m_drop(m, one);
    return values;
}

/* grad = grads[i], negated for maximize; grad = grad.coalesce(), and its parts. */
static void next_grad(rows *w, const plim_optim_param *p)
{
    plim_machine *m = w->r->m;
    plim_t grad = plim_m_grad(m, p->leaf);
    w->p = p;
    plim_optim_set(w->r, &w->grad, 0);
    plim_m_place(m, PLIM_NONE, p->name, "negated grad", PLIM_CAT_TEMPORARY);
    w->grad =
        plim_optim_on(w->r, "maximize") ? plim_m_sparse_copy(m, grad) : plim_m_ref(m, grad);
    plim_m_place(m, PLIM_NONE, p->name, "coalesced grad", PLIM_CAT_TEMPORARY);
    plim_optim_set(w->r, &w->grad, plim_at_coalesce(m, w->grad, &w->n));
    w->values = *plim_m_meta(m, plim_m_values(m, w->grad));
    plim_optim_set(w->r, &w->grad_indices, plim_m_ref(m, plim_m_indices(m, w->grad)));
    plim_optim_set(w->r, &w->grad_values, plim_m_ref(m, plim_m_values(m, w->grad)));
}

/* ---- clip_grad_norm_ ------------------------------------------------------------------ */

plim_t plim_optim_coalesced(plim_optim_run *r, const plim_optim_param *p)
{
    plim_m_place(r->m, PLIM_NONE, p->name, "coalesced grad", PLIM_CAT_TEMPORARY);
    return plim_at_coalesce(r->m, plim_m_grad(r->m, p->leaf), NULL);
}

void plim_optim_scale_sparse(plim_optim_run *r, const plim_optim_param *p)
{
    plim_machine *m = r->m;
    plim_t grad = plim_m_grad(m, p->leaf);
    int64_t n = plim_m_meta(m, plim_m_values(m, grad))->dim[0];
    plim_m_place(m, PLIM_NONE, p->name, "grad", PLIM_CAT_GRADIENT);
    plim_m_set_grad(m, p->leaf, plim_m_sparse_like(m, grad, n));
}

/* ---- the steps ----------------------------------------------------------------------- */

void plim_optim_sparse_adam(plim_optim_run *r)
{
    rows w = {.r = r};
    plim_machine *m = r->m;
    plim_optim_param *p;
    plim_t old = 0, old_sq = 0, numer = 0, denom = 0, indices = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_state(r, p, 0, "exp_avg");
        plim_optim_state(r, p, 1, "exp_avg_sq");
    }
    for (uint32_t i = 0; (p = plim_optim_next(r, &i)) && !plim_m_bad(m);) {
        next_grad(&w, p);
        if (!w.n.high)
            continue;
        plim_t now = mask_values(&w, "old exp_avg", &indices);
        plim_m_drop(m, indices);
        plim_optim_set(r, &old, now);
        plim_t update = like_values(&w, "exp_avg update");
        now = mask_values(&w, "old exp_avg_sq", &indices);
        plim_m_drop(m, indices);
        plim_optim_set(r, &old_sq, now);
        plim_t update_sq = like_values(&w, "exp_avg_sq update");
        plim_optim_set(r, &numer, update);
        plim_optim_set(r, &denom, update_sq);
        brief_values(&w, "step");
    }
    plim_t locals[] = {old, old_sq, numer, denom, w.grad, w.grad_values, w.grad_indices};
    for (size_t i = 0; i < PLIM_COUNT(locals); i++)
        plim_m_drop(m, locals[i]);
}

/* One parameter at a time, dense ones too: if one gradient of a group is sparse, no foreach op
 * is used. */
void plim_optim_sparse_adagrad(plim_optim_run *r)
{
    rows w = {.r = r};
    plim_machine *m = r->m;
    plim_optim_param *p;
    plim_t std = 0, std_indices = 0, std_values = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i)) && !plim_m_bad(m);) {
        if (!plim_optim_sparse(r, p)) {
            plim_optim_grad(r, p, false, false, &w.grad);
            plim_optim_set(r, &std, plim_optim_like(r, p, "sqrt"));
            plim_optim_set(r, &std_indices, 0);
            continue;
        }
        next_grad(&w, p);
        brief_values(&w, "square");
        plim_t indices = 0, values = mask_values(&w, "std", &indices);
        plim_optim_set(r, &std, 0);
        plim_optim_set(r, &std_indices, indices);
        plim_optim_set(r, &std_values, values);
        brief_values(&w, "step");
    }
    plim_t locals[] = {w.grad, w.grad_indices, w.grad_values, std, std_indices, std_values};
    for (size_t i = 0; i < PLIM_COUNT(locals); i++)
        plim_m_drop(m, locals[i]);
}
