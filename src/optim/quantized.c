/* quantized.c -- states of 8 and 4 bits, of bitsandbytes and torchao.  Their steps are one
 * kernel per parameter, without temporaries.
 * src: bitsandbytes/optim/optimizer.py, torchao/optim/; docs/sources/optimizers.md 3, 4 */
#include "op/rules.h"
#include "optim/part.h"

static int64_t count_elements(const plim_optim_run *r, const plim_optim_param *p)
{
    uint64_t n = 0;
    return plim_meta_numel(plim_m_meta(r->m, p->leaf), &n) ? (int64_t)n : 0;
}

static plim_t alloc_state(plim_optim_run *r, const plim_optim_param *p, const char *role,
                          plim_dtype t, int64_t n)
{
    return plim_optim_tensor_state(r, p->name, role, t, 1, &n);
}

/* ---- bitsandbytes: blocks of 256 since 0.46; below 4096 elements fp32 --------------------- */

enum { BNB_BLOCK = 256, BNB_QMAP = 256, BNB_PAGED_LEAST = 100000 };
enum { BNB_ABSMAX = 2, BNB_UNORM = 4 }; /* slots, after those of the states */

typedef struct bnb_kind {
    uint32_t states;
    int64_t averages;  /* that the first state holds, one after the other */
    bool absmax_first; /* before the states */
} bnb_kind;

static void share_maps(plim_optim_run *r, uint32_t n)
{
    static const char *const qmap[] = {"qmap dynamic", "qmap udynamic"};
    for (uint32_t k = 0; k < n; k++)
        if (!r->shared[k])
            r->shared[k] = plim_optim_tensor_state(r, PLIM_STR(""), qmap[k], PLIM_F32, 1,
                                                   &(const int64_t){BNB_QMAP});
}

static void bnb_absmax(plim_optim_run *r, plim_optim_param *p, const bnb_kind *kind, int64_t n)
{
    static const char *const role[] = {"absmax1", "absmax2"};
    int64_t blocks = (n + BNB_BLOCK - 1) / BNB_BLOCK;
    for (uint32_t k = 0; k < kind->states; k++)
        p->state[BNB_ABSMAX + k] =
            alloc_state(r, p, role[k], PLIM_F32, k ? blocks : blocks * kind->averages);
}

/* A paged state is memory that the driver moves between host and card as the card has room;
 * PyTorch's allocator does not see it.  Small states are not paged. */
static void bnb_init(plim_optim_run *r, plim_optim_param *p, const bnb_kind *kind)
{
    static const char *const role[] = {"state1", "state2"};
    unsigned flags = r->spec->optim->flags;
    int64_t n = count_elements(r, p);
    bool codes = flags & PLIM_OPTIM_8BIT &&
                 (double)n >= plim_optim_option(r->spec, "min_8bit_size"),
         paged = flags & PLIM_OPTIM_PAGED && n >= BNB_PAGED_LEAST;
    if (!codes && flags & PLIM_OPTIM_NO_BF16 && plim_m_meta(r->m, p->leaf)->dtype == PLIM_BF16)
        plim_m_fail(r->m, PLIM_EUNSUPPORTED,
                    "'%s' does not take gradients in bfloat16 where its states are fp32, and "
                    "'" PLIM_STR_FMT "' has one",
                    r->spec->optim->name, PLIM_STR_ARG(p->name));
    if (codes)
        share_maps(r, kind->states);
    if (codes && kind->absmax_first)
        bnb_absmax(r, p, kind, n);
    for (uint32_t k = 0; !paged && k < kind->states; k++)
        p->state[k] =
            alloc_state(r, p, role[k], codes ? PLIM_U8 : PLIM_F32, k ? n : n * kind->averages);
    if (codes && !kind->absmax_first)
        bnb_absmax(r, p, kind, n);
    if (plim_optim_on(r, "max_unorm"))
        p->state[BNB_UNORM] =
            plim_optim_tensor_state(r, p->name, "unorm_vec", PLIM_F32, 1, &(const int64_t){1});
}

/* torch.norm(p.data.float()) */
static void bnb_norm(plim_optim_run *r, const plim_optim_param *p)
{
    plim_meta meta = plim_meta_like(plim_m_meta(r->m, p->leaf), PLIM_F32);
    bool cast = plim_m_meta(r->m, p->leaf)->dtype != PLIM_F32;
    plim_m_place(r->m, PLIM_NONE, p->name, "norm of the parameter", PLIM_CAT_TEMPORARY);
    plim_t copy = cast ? plim_m_empty(r->m, &meta) : 0,
           norm = plim_m_empty_contig(r->m, PLIM_F32, 0, NULL);
    plim_reduce_scratch(r->m, &meta, (1u << meta.rank) - 1);
    plim_m_drop(r->m, copy);
    plim_m_drop(r->m, norm);
}

static void step_bnb(plim_optim_run *r, const bnb_kind *kind)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i)) && !plim_m_bad(r->m);) {
        if (!p->state[0] && !p->state[BNB_ABSMAX])
            bnb_init(r, p, kind);
        if (plim_optim_on(r, "max_unorm"))
            bnb_norm(r, p);
    }
}
void plim_optim_bnb_two(plim_optim_run *r) { step_bnb(r, &(bnb_kind){2, 1, false}); }
void plim_optim_bnb_one(plim_optim_run *r) { step_bnb(r, &(bnb_kind){1, 1, false}); }
void plim_optim_bnb_ademamix(plim_optim_run *r) { step_bnb(r, &(bnb_kind){2, 2, true}); }
void plim_optim_bnb_momentum(plim_optim_run *r)
{
    if (!plim_optim_on(r, "momentum"))
        plim_m_fail(r->m, PLIM_EUNSUPPORTED, "bitsandbytes has no '%s' without momentum",
                    r->spec->optim->name);
    if (!r->starting)
        plim_optim_bnb_one(r);
}

/* ---- torchao ---------------------------------------------------------------------------------- */

typedef struct ao_kind {
    int64_t block, per_byte; /* elements */
    plim_dtype codes;
    int64_t qmap; /* entries of each state's own map; 0: none */
} ao_kind;

static void ao_state(plim_optim_run *r, plim_optim_param *p, const ao_kind *kind,
                     uint32_t slot, const char *role)
{
    enum { LEAST = 4096 };
    int64_t n = count_elements(r, p);
    if (p->state[slot])
        return;
    if (n < LEAST || n % kind->block) {
        plim_optim_state(r, p, slot, role);
        return;
    }
    p->state[slot] = alloc_state(r, p, role, kind->codes, n / kind->per_byte);
    p->state[slot + 1] = alloc_state(r, p, "scale", PLIM_F32, n / kind->block);
    if (kind->qmap)
        p->state[slot + 2] = alloc_state(r, p, "qmap", PLIM_F32, kind->qmap);
}

static void step_torchao(plim_optim_run *r, const ao_kind *kind)
{
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        ao_state(r, p, kind, 0, "exp_avg");
        ao_state(r, p, kind, 3, "exp_avg_sq");
        if (plim_optim_on(r, "amsgrad"))
            ao_state(r, p, kind, 6, "max_exp_avg_sq");
    }
}
void plim_optim_torchao_8bit(plim_optim_run *r)
{
    step_torchao(r, &(ao_kind){256, 1, PLIM_U8, 256});
}
void plim_optim_torchao_4bit(plim_optim_run *r)
{
    step_torchao(r, &(ao_kind){128, 2, PLIM_U8, 16});
}
void plim_optim_torchao_fp8(plim_optim_run *r)
{
    step_torchao(r, &(ao_kind){256, 1, PLIM_F8E4M3FN, 0});
}
