/* hf_families.c -- the only list of model types that are built from a config.json. */
#include "families/family.h"
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
    X(wav2vec2)                                                                               \
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

const plim_hf_family *plim_hf_find(plim_str model_type, const plim_hf_group **group)
{
    for (uint32_t i = 0; (*group = plim_hf_group_at(i)) != NULL; i++)
        for (size_t k = 0; k < (*group)->n_families; k++)
            if (plim_str_is(model_type, (*group)->families[k].model_type))
                return &(*group)->families[k];
    return NULL;
}

plim_str plim_hf_text_type(plim_str model_type)
{
    static const struct {
        const char *type, *as;
    } texts[] = {
#define TEXT(type, as) {type, as},
#include "import/hf/hf_texts.def"
#undef TEXT
    };
    for (size_t i = 0; i < PLIM_COUNT(texts); i++)
        if (plim_str_is(model_type, texts[i].type))
            return plim_str_of(texts[i].as);
    return PLIM_STR("");
}

/* "LlamaForCausalLM" without a model_type: the family that builds that class. */
const plim_hf_family *plim_hf_find_class(plim_str class, const plim_hf_group **group)
{
    for (uint32_t i = 0; (*group = plim_hf_group_at(i)) != NULL; i++)
        for (size_t k = 0; k < (*group)->n_families; k++)
            if (class.n && plim_item_has((*group)->families[k].classes, class))
                return &(*group)->families[k];
    return NULL;
}

plim_str plim_hf_known_types(plim_arena *a)
{
    plim_buf list;
    const plim_hf_group *g;
    plim_buf_init(&list, a);
    for (uint32_t i = 0; (g = plim_hf_group_at(i)) != NULL; i++)
        for (size_t k = 0; k < g->n_families; k++)
            plim_buf_printf(&list, "%s%s", i || k ? ", " : "", g->families[k].model_type);
    for (uint32_t i = 0; i < plim_family_count(); i++) {
        const plim_str type = plim_str_of(plim_family_at(i)->model_type);
        if (!memchr(type.p, ':', type.n) && !plim_hf_find(type, &g) && /* no network's */
            plim_family_find(type, PLIM_STR("")) == plim_family_at(i)) /* once */
            plim_buf_printf(&list, ", " PLIM_STR_FMT, PLIM_STR_ARG(type));
    }
    return plim_buf_str(&list);
}
