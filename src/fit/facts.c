/* facts.c -- see facts.h. */
#include "fit/facts.h"

/* The fact with this number, or an older one of the same size, that is about this; NULL: there is none. */
static const plim_fact *next_about(const plim_facts *f, uint32_t i, const plim_world *world,
                                   unsigned what)
{
    for (; i; i = f->list[i - 1].older) {
        const plim_fact *own = &f->list[i - 1];
        if (own->what == what && plim_asked_alike(&own->asked, &own->world, world))
            return own;
    }
    return NULL;
}

static uint32_t newest_of(const plim_facts *f, int64_t size)
{
    const plim_id_slot *slot = plim_id_get(&f->last, (uint64_t)size);
    return slot ? slot->value : 0;
}

const plim_fact *plim_facts_find(const plim_facts *f, const plim_world *world, int64_t size,
                                 unsigned what, uint64_t room)
{
    const plim_fact *own = next_about(f, newest_of(f, size), world, what);
    while (own && (room < own->rooms.least || room >= own->rooms.end))
        own = next_about(f, own->older, world, what);
    return own;
}

const plim_fact *plim_facts_live(const plim_facts *f, const plim_world *world, int64_t size,
                                 unsigned what)
{
    const plim_fact *own = next_about(f, newest_of(f, size), world, what), *most = NULL;
    for (; own; own = next_about(f, own->older, world, what))
        if (!own->rooms.least && (!most || own->rooms.end > most->rooms.end))
            most = own;
    return most;
}

bool plim_facts_add(plim_facts *f, const plim_fact *fact)
{
    plim_id_slot *slot = plim_id_at(f->arena, &f->last, (uint64_t)fact->size);
    if (!slot || !PLIM_PUSH_ROOM(f->arena, f->list, f->n, f->cap))
        return false;
    plim_fact *own = &f->list[f->n++];
    *own = *fact;
    own->older = slot->value;
    plim_assert(own->older < f->n);
    slot->value = f->n;
    return true;
}
