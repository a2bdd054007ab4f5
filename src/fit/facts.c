/* facts.c -- see facts.h. */
#include "fit/facts.h"

plim_fact *plim_facts_find(const plim_facts *f, const plim_world *world, int64_t size)
{
    const plim_id_slot *slot = plim_id_get(&f->last, (uint64_t)size);
    for (uint32_t i = slot ? slot->value : 0; i; i = f->list[i - 1].older)
        if (plim_asked_alike(&f->list[i - 1].asked, &f->list[i - 1].world, world))
            return &f->list[i - 1];
    return NULL;
}

plim_fact *plim_facts_add(plim_facts *f, const plim_fact *fact)
{
    plim_id_slot *slot = plim_id_at(f->arena, &f->last, (uint64_t)fact->size);
    if (!slot || !PLIM_PUSH_ROOM(f->arena, f->list, f->n, f->cap))
        return NULL;
    plim_fact *own = &f->list[f->n++];
    *own = *fact;
    own->older = slot->value;
    slot->value = f->n;
    return own;
}
