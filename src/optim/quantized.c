/* quantized.c -- states of 8 and 4 bits, of bitsandbytes and torchao.  Their steps are one
 * kernel per parameter, without temporaries.
 * src: bitsandbytes/optim/optimizer.py, torchao/optim/; docs/sources/optimizers.md 3, 4 */
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

enum { BNB_BLOCK = 256, BNB_QMAP = 256 };

static void step_bnb(plim_optim_run *r, uint32_t states)
{
    static const char *const state[] = {"state1", "state2"};
    static const char *const absmax[] = {"absmax1", "absmax2"};
    static const char *const qmap[] = {"qmap dynamic", "qmap udynamic"};
    double least = plim_optim_option(r->spec, "min_8bit_size");
    plim_optim_param *p;
    for (uint32_t i = 0; (p = plim_optim_next(r, &i));) {
        int64_t n = count_elements(r, p), blocks = (n + BNB_BLOCK - 1) / BNB_BLOCK;
        bool small = (double)n < least;
        for (uint32_t k = 0; !small && k < PLIM_COUNT(qmap); k++)
            if (!r->shared[k])
                r->shared[k] = plim_optim_tensor_state(r, PLIM_STR(""), qmap[k], PLIM_F32, 1,
                                                       &(const int64_t){BNB_QMAP});
        if (p->state[0])
            continue;
        for (uint32_t k = 0; k < states; k++)
            p->state[k] = alloc_state(r, p, state[k], small ? PLIM_F32 : PLIM_U8, n);
        for (uint32_t k = 0; !small && k < states; k++)
            p->state[2 + k] = alloc_state(r, p, absmax[k], PLIM_F32, blocks);
    }
}
void plim_optim_bnb_two(plim_optim_run *r) { step_bnb(r, 2); }
void plim_optim_bnb_one(plim_optim_run *r) { step_bnb(r, 1); }

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
