/* hf_moe.h -- experts as transformers 5 runs them: one product over all experts of tokens
 * sorted by expert, so memory does not depend on how tokens are routed.
 * src: transformers 5.23 integrations/moe.py */
#ifndef PLIM_HF_MOE_H
#define PLIM_HF_MOE_H

#include "import/hf/hf_parts.h"

typedef struct plim_hf_routes {
    uint32_t weight, index; /* [tokens, top_k] */
    uint32_t logits;        /* [tokens, experts]: a variable of the block, until it returns */
} plim_hf_routes;

typedef struct plim_hf_experts {
    const char *type; /* "MixtralExperts" */
    int64_t experts, ffn;
    plim_str act;
    bool oss; /* gpt-oss: transposed weights, biases, its own activation */
} plim_hf_experts;

/* Module "experts": [tokens, hidden] to the same. */
uint32_t plim_hf_run_experts(plim_hf *h, const plim_hf_experts *e, uint32_t x,
                             plim_hf_routes r);

void plim_hf_topk(plim_nn *n, uint32_t x, int64_t k, uint32_t out[2]);
uint32_t plim_hf_sum(plim_nn *n, uint32_t x, int64_t dim, bool keep);

#endif
