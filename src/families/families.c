/* families.c -- the texts of all families, CLASS.fam of this folder, which CMake makes arrays of. */
#include "families/fam_priv.h"

uint32_t plim_family_count(void) { return plim_fam_n_texts; }

const plim_family *plim_family_at(uint32_t i)
{
    return i < plim_fam_n_texts ? &plim_fam_texts[i] : NULL;
}

const plim_family *plim_family_find(plim_str model_type, plim_str class)
{
    for (uint32_t i = 0; i < plim_fam_n_texts; i++) /* in the order of their classes */
        if (plim_str_is(model_type, plim_fam_texts[i].model_type) &&
            (!class.n || plim_str_is(class, plim_fam_texts[i].class)))
            return &plim_fam_texts[i];
    return NULL;
}
