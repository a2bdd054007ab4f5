/* matrix.c -- optimizers that treat parameters as matrices: adafactor, muon.
 * src: torch/optim/_adafactor.py, torch/optim/_muon.py; NVIDIA's emerging_optimizers 0.4
 * orthogonalized_optimizers/orthogonalized_optimizer.py, muon_utils.py */
#include "op/rules.h"
#include "optim/part.h"

/* ---- adafactor --------------------------------------------------------------------------- */

/* A new tensor of the leaf's dims with some of them 1: the result of a reduction with
 * keepdim. */
static plim_t alloc_keepdim(plim_optim_run *r, const plim_optim_param *p, const char *role,
                            int32_t one, int32_t other, plim_category c)
{
    const plim_meta *m = plim_m_meta(r->m, p->leaf);
    int64_t dim[PLIM_MAX_RANK];
    for (int32_t i = 0; i < m->rank; i++)
        dim[i] = i == m->rank - one || i == m->rank - other ? 1 : m->dim[i];
    plim_m_place(r->m, PLIM_NONE, p->name, role, c);
    return plim_m_empty_contig(r->m, m->dtype, m->rank, dim);
}

static plim_t alloc_reduced(plim_optim_run *r, const plim_optim_param *p, const char *role,
                            int32_t dim)
{
    const plim_meta *m = plim_m_meta(r->m, p->leaf);
    plim_t t = alloc_keepdim(r, p, role, dim, 0, PLIM_CAT_TEMPORARY);
    plim_reduce_scratch(r->m, m, 1u << (m->rank - dim));
    return t;
}

/* t.norm().item() */
static void take_norm(plim_optim_run *r, const plim_optim_param *p)
{
    const plim_meta *m = plim_m_meta(r->m, p->leaf);
    plim_m_place(r->m, PLIM_NONE, p->name, "norm", PLIM_CAT_TEMPORARY);
    plim_t t = plim_m_empty_contig(r->m, m->dtype, 0, NULL);
    plim_reduce_scratch(r->m, m, (1u << m->rank) - 1);
    plim_m_drop(r->m, t);
}

static bool is_matrix(const plim_optim_run *r, const plim_optim_param *p)
{
    return plim_m_meta(r->m, p->leaf)->rank > 1;
}

static plim_t make_product(plim_optim_run *r, const plim_optim_param *p)
{
    plim_t t = alloc_keepdim(r, p, "var_estimate", 0, 0, PLIM_CAT_TEMPORARY);
    plim_m_gemm(r->m, false);
    return t;
}

static plim_t make_row_mean(plim_optim_run *r, const plim_optim_param *p)
{
    return alloc_keepdim(r, p, "row_var mean", 1, 2, PLIM_CAT_TEMPORARY);
}

static void adafactor_forloop(plim_optim_run *r)
{
    plim_optim_param *p;
    plim_t grad = 0, row = 0, col = 0, squared = 0, estimate = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_grad(r, p, true, false, &grad);
        take_norm(r, p);
        plim_t next;
        if (is_matrix(r, p)) {
            plim_optim_set(r, &row, alloc_reduced(r, p, "row_mean", 1));
            plim_optim_set(r, &col, alloc_reduced(r, p, "col_mean", 2));
            next = make_product(r, p);
            plim_m_drop(r->m, make_row_mean(r, p));
        } else {
            plim_optim_set(r, &squared, plim_optim_like(r, p, "grad_squared"));
            next = plim_optim_like(r, p, "var_estimate");
        }
        plim_optim_set(r, &estimate, next);
        take_norm(r, p);
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, row);
    plim_m_drop(r->m, col);
    plim_m_drop(r->m, squared);
    plim_m_drop(r->m, estimate);
}

enum { GRADS, ESTIMATES, NEXT, BRIEF };

typedef plim_t (*make_fn)(plim_optim_run *r, const plim_optim_param *p);
static plim_t reduce_rows(plim_optim_run *r, const plim_optim_param *p)
{
    return alloc_reduced(r, p, "row_mean", 1);
}
static plim_t reduce_cols(plim_optim_run *r, const plim_optim_param *p)
{
    return alloc_reduced(r, p, "col_mean", 2);
}
static plim_t make_squared(plim_optim_run *r, const plim_optim_param *p)
{
    return plim_optim_like(r, p, "grad_squared");
}
static plim_t make_estimate(plim_optim_run *r, const plim_optim_param *p)
{
    return plim_optim_like(r, p, "var_estimate");
}
static plim_t make_negated(plim_optim_run *r, const plim_optim_param *p)
{
    return plim_optim_like(r, p, "negated grad");
}

/* A list over the matrices, or over the vectors. */
static void make_list(plim_optim_run *r, bool matrix, int slot, make_fn make)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        if (is_matrix(r, p) == matrix)
            p->tmp[slot] = make(r, p);
}

static void take_norms(plim_optim_run *r, bool matrix)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        if (is_matrix(r, p) == matrix)
            take_norm(r, p);
}

static void make_brief_list(plim_optim_run *r, bool matrix, make_fn make)
{
    make_list(r, matrix, BRIEF, make);
    plim_optim_list_free(r, BRIEF);
}

static void adafactor_group(plim_optim_run *r, bool matrix)
{
    plim_optim_list_free(r, GRADS); /* of the previous group */
    if (plim_optim_on(r, "maximize"))
        make_list(r, matrix, GRADS, make_negated);
    take_norms(r, matrix);
    if (matrix) {
        make_brief_list(r, matrix, reduce_rows);
        make_brief_list(r, matrix, reduce_cols);
        make_list(r, matrix, NEXT, make_product);
        make_brief_list(r, matrix, make_row_mean);
    } else {
        make_brief_list(r, matrix, make_squared);
        make_list(r, matrix, NEXT, make_estimate);
    }
    plim_optim_list_free(r, ESTIMATES);
    for (uint32_t i = 0; i < r->n; i++) {
        r->params[i].tmp[ESTIMATES] = r->params[i].tmp[NEXT];
        r->params[i].tmp[NEXT] = 0;
    }
    take_norms(r, matrix);
}

static void adafactor_foreach(plim_optim_run *r)
{
    uint32_t i = 0, n = 0;
    const plim_optim_param *p = plim_optim_next(r, &i);
    if (!p)
        return;
    bool first = is_matrix(r, p);
    adafactor_group(r, first);
    while ((p = plim_optim_next(r, &i)))
        n += is_matrix(r, p) != first;
    if (n)
        adafactor_group(r, !first);
    plim_optim_list_free(r, GRADS);
    plim_optim_list_free(r, ESTIMATES);
}

void plim_optim_adafactor(plim_optim_run *r)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        if (!is_matrix(r, p)) {
            plim_optim_state(r, p, 0, "variance");
        } else if (!p->state[0]) {
            p->state[0] = alloc_keepdim(r, p, "row_var", 1, 0, PLIM_CAT_OPTIMIZER_STATE);
            p->state[1] = alloc_keepdim(r, p, "col_var", 2, 0, PLIM_CAT_OPTIMIZER_STATE);
        }
    }
    if (plim_optim_impl_of(r) == PLIM_IMPL_FORLOOP)
        adafactor_forloop(r);
    else
        adafactor_foreach(r);
}

/* ---- muon of torch.optim ---------------------------------------------------------------------- */

static plim_t alloc_bf16(plim_optim_run *r, const plim_optim_param *p, const char *role,
                         int32_t rank, int64_t rows, int64_t cols)
{
    plim_m_place(r->m, PLIM_NONE, p->name, role, PLIM_CAT_TEMPORARY);
    return plim_m_empty_contig(r->m, PLIM_BF16, rank, (const int64_t[]){rows, cols});
}

/* Newton-Schulz, on the matrix with no more rows than columns: on a copy in bf16, or, before
 * 2.15, on the gradient itself if it is bf16. */
static plim_t orthogonalize_grad(plim_optim_run *r, const plim_optim_param *p)
{
    const plim_meta *m = plim_m_meta(r->m, p->leaf);
    int64_t rows = PLIM_MIN(m->dim[0], m->dim[1]), cols = PLIM_MAX(m->dim[0], m->dim[1]);
    plim_meta as_half = plim_meta_like(m, PLIM_BF16);
    bool copied = m->dtype != PLIM_BF16 || r->torch->version >= PLIM_SINCE_MUON_COPIES;
    plim_t ortho = copied ? alloc_bf16(r, p, "ortho_grad", 2, rows, cols) : 0, gram = 0,
           update = 0;
    plim_t size = alloc_bf16(r, p, "norm", 0, 1, 1);
    plim_reduce_scratch(r->m, &as_half, 3);
    plim_t clamped = alloc_bf16(r, p, "norm", 0, 1, 1);
    plim_m_drop(r->m, size);
    plim_m_drop(r->m, clamped);
    for (int k = 0; k < plim_optim_option(r->spec, "ns_steps"); k++) {
        plim_t next = alloc_bf16(r, p, "gram_matrix", 2, rows, rows);
        plim_m_gemm(r->m, false);
        plim_optim_set(r, &gram, next);
        next = alloc_bf16(r, p, "gram_update", 2, rows, rows);
        plim_m_gemm(r->m, true);
        plim_optim_set(r, &update, next);
        next = alloc_bf16(r, p, "ortho_grad", 2, rows, cols);
        plim_m_gemm(r->m, k > 0 || rows == m->dim[0]); /* a transpose: not through cuBLASLt */
        plim_optim_set(r, &ortho, next);
    }
    plim_m_drop(r->m, gram);
    plim_m_drop(r->m, update);
    return ortho;
}

void plim_optim_muon(plim_optim_run *r)
{
    bool nesterov = plim_optim_on(r, "nesterov");
    plim_optim_param *p;
    plim_t update = 0;
    for (uint32_t i = 0; r->starting && i < r->n; i++)
        if (plim_m_meta(r->m, r->params[i].leaf)->rank != 2)
            plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                        "muon supports parameters of rank 2 only, '" PLIM_STR_FMT
                        "' has rank %d: muon_adamw trains those with AdamW",
                        PLIM_STR_ARG(r->params[i].name),
                        (int)plim_m_meta(r->m, r->params[i].leaf)->rank);
    for (uint32_t i = 0; !r->starting && (p = plim_optim_next(r, &i));)
        plim_optim_state(r, p, 0, "momentum_buffer");
    for (uint32_t i = 0; !r->starting && (p = plim_optim_next(r, &i));) {
        plim_optim_set(r, &update, nesterov ? plim_optim_like(r, p, "update") : 0);
        plim_optim_set(r, &update, orthogonalize_grad(r, p));
    }
    plim_m_drop(r->m, update);
}

/* ---- muon of emerging_optimizers ------------------------------------------------------------- */

/* Of the momentum divided by its norm, in bf16; the result is in fp32 and scaled twice. */
static plim_t newton_schulz(plim_optim_run *r, const plim_optim_param *p)
{
    const plim_meta *m = plim_m_meta(r->m, p->leaf);
    int64_t rows = PLIM_MIN(m->dim[0], m->dim[1]), cols = PLIM_MAX(m->dim[0], m->dim[1]);
    plim_t norm = plim_optim_scalar(r, p, "norm");
    plim_reduce_scratch(r->m, m, 3);
    plim_t clamped = plim_optim_scalar(r, p, "norm");
    plim_m_drop(r->m, norm);
    plim_t wide = plim_optim_like(r, p, "ortho_grad");
    plim_m_drop(r->m, clamped);
    plim_t ortho = alloc_bf16(r, p, "ortho_grad", 2, rows, cols);
    plim_m_drop(r->m, wide);
    for (int k = 0; k < plim_optim_option(r->spec, "ns_steps"); k++) {
        plim_t gram = alloc_bf16(r, p, "gram_matrix", 2, rows, rows);
        plim_m_gemm(r->m, false);
        plim_t update = alloc_bf16(r, p, "gram_update", 2, rows, rows);
        plim_m_gemm(r->m, true);
        plim_t next = alloc_bf16(r, p, "ortho_grad", 2, rows, cols);
        plim_m_gemm(r->m, k > 0 || rows == m->dim[0]);
        plim_m_drop(r->m, gram);
        plim_m_drop(r->m, update);
        plim_optim_set(r, &ortho, next);
    }
    wide = plim_optim_like(r, p, "ortho_grad");
    plim_m_drop(r->m, ortho);
    plim_t scaled = plim_optim_like(r, p, "ortho_grad"),
           result = plim_optim_like(r, p, "ortho_grad");
    plim_m_drop(r->m, scaled);
    plim_m_drop(r->m, wide);
    return result;
}

static void step_matrices(plim_optim_run *r)
{
    bool nesterov = plim_optim_on(r, "nesterov");
    plim_optim_param *p;
    plim_t grad = 0, ortho = 0;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        plim_optim_state(r, p, 0, "momentum_buffer");
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_optim_set(r, &grad, 0);
        if (nesterov)
            grad = plim_optim_like(r, p, "grad");
        plim_optim_set(r, &ortho, newton_schulz(r, p));
    }
    plim_m_drop(r->m, grad);
    plim_m_drop(r->m, ortho);
}

/* ---- one of the two for matrices, and Adam for all else ---------------------------------------- */

static void step_both(plim_optim_run *r, void (*matrices)(plim_optim_run *r))
{
    r->which = PLIM_OPTIM_MATRICES;
    matrices(r);
    r->which = PLIM_OPTIM_PLAIN;
    plim_optim_adamw(r);
    r->which = PLIM_OPTIM_ALL;
}

void plim_optim_muon_adamw(plim_optim_run *r) { step_both(r, plim_optim_muon); }
void plim_optim_emerging_muon(plim_optim_run *r) { step_both(r, step_matrices); }
