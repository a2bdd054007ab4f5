/* families.c -- the texts of all families, CLASS.fam of this folder, which CMake makes arrays of. */
#include "families/fam_priv.h"

uint32_t plim_family_count(void)
{
    uint32_t n = 0;
    while (plim_fam_texts[n].model_type)
        n++;
    return n;
}

const plim_family *plim_family_at(uint32_t i)
{
    return i < plim_family_count() ? &plim_fam_texts[i] : NULL;
}

const plim_family *plim_family_find(plim_str model_type)
{
    for (const plim_family *f = plim_fam_texts; f->model_type; f++)
        if (plim_str_is(model_type, f->model_type))
            return f;
    return NULL;
}
