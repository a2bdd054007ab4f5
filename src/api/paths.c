/* paths.c -- plim_model_paths: the files of an answer, before they are opened. */
#include "api/api.h"
#include "model/model.h"

typedef struct telling {
    plim_arena arena;
    plim_put put;
    void *ud;
    plim_err *err;
} telling;

static plim_status tell_path(const telling *t, plim_str path)
{
    return plim_put_out(t->put, t->ud, path, t->err);
}

/* Folders of a pipeline's parts, of one that is there. */
static plim_status tell_parts(telling *t, plim_str folder)
{
    plim_str index =
        plim_arena_printf(&t->arena, PLIM_STR_FMT "/model_index.json", PLIM_STR_ARG(folder));
    if (!index.p)
        return plim_oom(t->err);
    const bool pipeline = plim_file_exists(index.p);
    for (uint32_t i = 0; pipeline && plim_part_at(i); i++) {
        plim_str part = plim_arena_printf(&t->arena, PLIM_STR_FMT "/%s", PLIM_STR_ARG(folder),
                                          plim_part_at(i));
        if (!part.p)
            return plim_oom(t->err);
        PLIM_TRY(tell_path(t, part));
    }
    return PLIM_OK;
}

static plim_status tell_folder(telling *t, plim_str folder)
{
    PLIM_TRY(tell_path(t, folder));
    return tell_parts(t, folder);
}

/* A file has neighbours that it may name: parts of a model, its config.json. */
static plim_status tell_file(telling *t, plim_str path)
{
    const char *slash = strrchr(path.p, '/');
    plim_str folder = {path.p, slash ? (size_t)(slash - path.p) + 1 : 0};
    if (plim_file_is_folder(path.p))
        return tell_folder(t, path);
    PLIM_TRY(tell_path(t, path));
    return tell_folder(t, folder.n ? folder : PLIM_STR("."));
}

static plim_status tell_name(telling *t, const char *name)
{
    plim_hub_id id;
    plim_hub_place hub;
    plim_str path = plim_arena_str(&t->arena, plim_str_of(name));
    if (!path.p)
        return plim_oom(t->err);
    plim_file_slashes((char *)(uintptr_t)path.p);
    if (plim_file_exists(path.p))
        return tell_file(t, path);
    if (!plim_hub_parse(path, &id))
        return PLIM_OK;
    plim_status st = plim_hub_find(&t->arena, &id, &hub, t->err);
    if (!st && hub.ref.p)
        st = tell_path(t, hub.ref);
    return !st && hub.snapshot.p ? tell_folder(t, hub.snapshot) : st;
}

plim_status plim_model_paths(const char *name, const plim_settings *s, plim_put put, void *ud,
                             plim_err *err)
{
    /* settings that may name a file */
    static const char *const files[] = {"draft", "lora", "peft"};
    PLIM_REQUIRE(name, err);
    PLIM_REQUIRE(put, err);
    telling t = {.arena = PLIM_ARENA_INIT, .put = put, .ud = ud, .err = err};
    plim_status st = tell_name(&t, name);
    for (size_t i = 0; s && !st && i < PLIM_COUNT(files); i++) {
        const char *value = plim_settings_get(s, files[i]);
        st = value ? tell_name(&t, value) : PLIM_OK;
    }
    plim_arena_free(&t.arena);
    return st;
}
