/* clip.c -- torch.nn.utils.clip_grad_norm_, with its return value discarded.
 * src: torch/nn/utils/clip_grad.py; ATen/native/cuda/ForeachReduceOp.cu */
#include "op/rules.h"
#include "optim/part.h"

enum { CHUNK = 65536 };

static plim_t clip_temp(plim_optim_run *r, const char *role, plim_dtype t, int32_t rank,
                        int64_t n)
{
    plim_m_place(r->m, PLIM_NONE, PLIM_STR("clip_grad_norm_"), role, PLIM_CAT_TEMPORARY);
    return plim_m_empty_contig(r->m, t, rank, &n);
}

/* What the kernel over all gradients allocates besides its results: since 2.15 one number per
 * chunk, before that as many for each tensor as the longest one has. */
static void clip_buffers(plim_optim_run *r, int64_t n, plim_t out[2])
{
    plim_assert(n > 0);
    uint64_t elements, sum = 0, most = 0;
    const plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));)
        if (plim_meta_numel(plim_m_meta(r->m, p->leaf), &elements)) {
            uint64_t chunks = (elements + CHUNK - 1) / CHUNK;
            sum += chunks;
            most = PLIM_MAX(most, chunks);
        }
    if (r->torch->version >= PLIM_SINCE_FOREACH_NORM_PACKED)
        out[0] = clip_temp(r, "offsets", PLIM_I64, 1, n + 1);
    else
        sum = most * (uint64_t)n;
    out[1] = clip_temp(r, "partial norms", PLIM_F32, 1, (int64_t)sum);
}

/* The norm of each gradient; for a sparse one that of its coalesced rows. */
static void clip_norms(plim_optim_run *r, int64_t n)
{
    plim_optim_param *p;
    plim_t buffer[2] = {0};
    bool foreach = r->torch->foreach_default && !plim_optim_any_sparse(r);
    if (foreach)
        clip_buffers(r, n, buffer);
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        plim_t whole = plim_optim_sparse(r, p) ? plim_optim_coalesced(r, p) : 0;
        const plim_meta *m = plim_m_meta(r->m, whole ? plim_m_values(r->m, whole) : p->leaf);
        p->tmp[0] = clip_temp(r, "norm", m->dtype, 0, 0);
        if (!foreach)
            plim_reduce_scratch(r->m, m, (1u << m->rank) - 1);
        plim_m_drop(r->m, whole);
    }
    plim_m_drop(r->m, buffer[1]);
    plim_m_drop(r->m, buffer[0]);
}

void plim_optim_clip(plim_optim_run *r)
{
    int64_t n = 0;
    plim_dtype t = PLIM_F32;
    const plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i)); n++)
        t = plim_m_meta(r->m, p->leaf)->dtype;
    if (!n)
        return;
    if (r->torch->version < PLIM_SINCE_CLIP_SPARSE && plim_optim_any_sparse(r))
        plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                    "clip_grad_norm_ does not support sparse gradients before PyTorch %d.%d",
                    PLIM_SINCE_CLIP_SPARSE / 100, PLIM_SINCE_CLIP_SPARSE % 100);
    plim_assert(n <= r->n);
    clip_norms(r, n);
    plim_t stack = clip_temp(r, "norms", t, 1, n), total = clip_temp(r, "norm", t, 0, 0);
    plim_reduce_scratch(r->m, plim_m_meta(r->m, stack), 1);
    plim_m_drop(r->m, stack);
    /* else they live to the end of the function */
    if (r->torch->version >= PLIM_SINCE_CLIP_FREES_NORMS)
        plim_optim_list_free(r, 0);
    plim_t sum = clip_temp(r, "coef", t, 0, 0), inverse = clip_temp(r, "coef", t, 0, 0),
           coef = clip_temp(r, "coef", t, 0, 0);
    plim_m_drop(r->m, inverse);
    plim_m_drop(r->m, sum);
    plim_t clamped = clip_temp(r, "coef", t, 0, 0);
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) /* dense ones are scaled in place */
        if (plim_optim_sparse(r, p))
            plim_optim_scale_sparse(r, p);
    plim_m_drop(r->m, clamped);
    plim_optim_list_free(r, 0);
    plim_m_drop(r->m, coef);
    plim_m_drop(r->m, total);
}
