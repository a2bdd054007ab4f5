/* vgpu_places.c -- the driver's addresses, for a ledger that is not ours: see plimsoll_vgpu.h. */
#include "alloc/place.h"
#include "vgpu/vgpu_priv.h"

struct plim_vgpu_places {
    plim_arena arena;
    const plim_placement *row;
    void *state;
};

plim_status plim_vgpu_places_open(uint64_t first, plim_vgpu_places **out, plim_err *err)
{
    PLIM_REQUIRE(out, err);
    plim_assert(plim_placement_nvidia.span == PLIM_VGPU_PLACES);
    plim_arena a = PLIM_ARENA_INIT;
    plim_vgpu_places *p = PLIM_NEW(&a, plim_vgpu_places);
    if (!p)
        return plim_oom(err);
    p->arena = a; /* from here on the arena owns itself */
    p->row = &plim_placement_nvidia;
    p->state = p->row->open(&p->arena, first);
    if (!p->state) {
        plim_vgpu_places_close(p);
        return plim_oom(err);
    }
    *out = p;
    return PLIM_OK;
}

plim_status plim_vgpu_places_take(plim_vgpu_places *p, uint64_t bytes, uint64_t *addr,
                                  plim_err *err)
{
    PLIM_REQUIRE(p, err);
    PLIM_REQUIRE(addr, err);
    return p->row->take(p->state, bytes, addr) ? PLIM_OK : plim_oom(err);
}

void plim_vgpu_places_give(plim_vgpu_places *p, uint64_t addr)
{
    p->row->give(p->state, addr);
}

void plim_vgpu_places_close(plim_vgpu_places *p)
{
    if (!p)
        return;
    plim_arena a = p->arena;
    plim_arena_free(&a);
}
