/* idmap.c -- see idmap.h. */
#include "base/idmap.h"

static plim_id_slot *find_slot(plim_id_slot *slots, uint32_t cap, uint64_t id)
{
    plim_assert(cap && !(cap & (cap - 1)));
    uint32_t i = (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32) & (cap - 1);
    while (slots[i].used && slots[i].id != id)
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static bool make_room(plim_arena *a, plim_id_map *m)
{
    if (m->n * 2ull < m->cap)
        return true;
    uint64_t cap = m->cap ? (uint64_t)m->cap * 2 : 256;
    plim_id_slot *fresh = cap <= 1u << 31 ? PLIM_NEW_N(a, plim_id_slot, cap) : NULL;
    if (!fresh)
        return false;
    for (uint32_t i = 0; i < m->cap; i++)
        if (m->slots[i].used)
            *find_slot(fresh, (uint32_t)cap, m->slots[i].id) = m->slots[i];
    plim_assert(m->n < cap);
    m->slots = fresh;
    m->cap = (uint32_t)cap;
    return true;
}

plim_id_slot *plim_id_at(plim_arena *a, plim_id_map *m, uint64_t id)
{
    if (!make_room(a, m))
        return NULL;
    plim_id_slot *s = find_slot(m->slots, m->cap, id);
    m->n += !s->used;
    s->id = id;
    s->used = true;
    return s;
}

plim_id_slot *plim_id_get(const plim_id_map *m, uint64_t id)
{
    plim_id_slot *s = m->cap ? find_slot(m->slots, m->cap, id) : NULL;
    return s && s->used ? s : NULL;
}
