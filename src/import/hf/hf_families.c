/* hf_families.c -- the only list of model types that are built from a config.json. */
#include "import/hf/hf.h"

#define GROUPS(X)                                                                             \
    X(llama)                                                                                  \
    X(gpt2)                                                                                   \
    X(neox)                                                                                   \
    X(gptj)                                                                                   \
    X(opt)                                                                                    \
    X(bloom)                                                                                  \
    X(falcon)                                                                                 \
    X(deepseek)                                                                               \
    X(mamba)                                                                                  \
    X(bert)                                                                                   \
    X(distilbert)                                                                             \
    X(vit)                                                                                    \
    X(t5)                                                                                     \
    X(bart)                                                                                   \
    X(clip)                                                                                   \
    X(swin)

#define X(name) extern const plim_hf_group plim_hf_##name;
GROUPS(X)
#undef X

#define X(name) &plim_hf_##name,
static const plim_hf_group *const groups[] = {GROUPS(X)};
#undef X

const plim_hf_group *plim_hf_group_at(uint32_t i)
{
    return i < PLIM_COUNT(groups) ? groups[i] : NULL;
}
