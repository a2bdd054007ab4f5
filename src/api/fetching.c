/* fetching.c -- plim_model_fetch: models of the hub, before they are opened. */
#include "api/api.h"

static plim_status fetch_name(plim_arena *a, const char *name, bool offline,
                              const plim_hub_watch *watch, plim_err *err)
{
    plim_str path = plim_arena_str(a, plim_str_of(name));
    if (!path.p)
        return plim_oom(err);
    plim_file_slashes((char *)(uintptr_t)path.p);
    return plim_model_fetch_text(a, path.p, offline, watch, err);
}

plim_status plim_model_fetch(const char *name, const plim_settings *s, bool offline,
                             plim_err *err)
{
    PLIM_REQUIRE(name, err);
    plim_arena a = PLIM_ARENA_INIT;
    const char *draft = s ? plim_settings_get(s, "draft") : NULL;
    const plim_hub_watch watch = {s ? s->progress : NULL, s ? s->progress_ud : NULL};
    plim_status st = fetch_name(&a, name, offline, &watch, err);
    if (!st && draft)
        st = fetch_name(&a, draft, offline, &watch, err);
    plim_arena_free(&a);
    return st;
}
