/* rules_sparse.c -- coalesce: adds up rows of the same index. */
#include "op/rules.h"

/* Number of distinct values among n indices below `most`; for random indices most * (1 - (1 -
 * 1/most)^n). */
static plim_rows distinct_rows(uint64_t n, uint64_t most)
{
    uint64_t high = PLIM_MIN(n, most);
    double left = 1, base = 1 - 1 / (double)most;
    if (high < 2)
        return (plim_rows){high, high, high};
    for (uint64_t k = n; k; k >>= 1) {
        left *= k & 1 ? base : 1;
        base *= base;
    }
    uint64_t usual = (uint64_t)((double)most * (1 - left) + 0.5);
    return (plim_rows){1, PLIM_MIN(PLIM_MAX(usual, 1), high), high};
}

/* By sorting the indices.  The coalesced indices keep the storage of all.
 * src: cuda/SparseCUDATensor.cu _coalesce_sparse_cuda */
static plim_rows coalesce_parts(plim_machine *m, const plim_meta *values, int64_t most,
                                plim_t out[2])
{
    int64_t n = values->dim[0];
    plim_meta left = *values;
    plim_rows rows = distinct_rows((uint64_t)n, (uint64_t)most);
    plim_t all = plim_m_empty_contig(m, PLIM_I64, 2, (int64_t[]){1, n}),
           origin = plim_m_empty_contig(m, PLIM_I64, 1, &n),
           offsets = plim_m_empty_contig(m, PLIM_I64, 1, &n);
    plim_cub_merge_sort(m, (uint64_t)n);
    plim_cub_unique(m, (uint64_t)n);
    left.dim[0] = (int64_t)rows.usual;
    plim_meta_contiguous(&left);
    plim_meta indices = plim_meta_make(PLIM_I64, 2, (int64_t[]){1, left.dim[0]});
    out[0] = plim_m_alias(m, all, &indices);
    out[1] = plim_m_empty_rows(m, &left, rows);
    plim_m_drop(m, offsets);
    plim_m_drop(m, origin);
    plim_m_drop(m, all);
    return rows;
}

plim_t plim_at_coalesce(plim_machine *m, plim_t t, plim_rows *left)
{
    const plim_meta *values = plim_m_meta(m, plim_m_values(m, t));
    uint64_t n = (uint64_t)values->dim[0];
    plim_rows rows = {n, n, n};
    plim_t part[2] = {0}, done = 0;
    if (plim_m_coalesced(m, t)) {
        done = plim_m_ref(m, t);
    } else {
        rows = coalesce_parts(m, values, plim_m_meta(m, t)->dim[0], part);
        done = plim_m_sparse(m, plim_m_meta(m, t), part[0], part[1], true);
    }
    if (left)
        *left = rows;
    return done;
}

void plim_kernel_coalesce(plim_call *c)
{
    const plim_meta values = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    int64_t most = plim_arg_int(c, 1, 0);
    if (values.rank < 1 || most < 1) {
        plim_m_fail(c->m, PLIM_ESHAPE,
                    "coalesce: values of rank %d cannot come from %" PRId64 " rows",
                    (int)values.rank, most);
        return;
    }
    coalesce_parts(c->m, &values, most, c->out);
    c->n_out = 2;
}
