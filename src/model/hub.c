/* hub.c -- see hub.h.
 * src: huggingface_hub 0.36, constants.py and file_download.py: the cache is HF_HUB_CACHE,
 * else "hub" in HF_HOME, else in huggingface in XDG_CACHE_HOME, else in ~/.cache; of
 * org/name the folder models--org--name has refs/main, which holds the name of a folder in
 * snapshots.  XDG Base Directory Specification 0.8: a relative path in its variables is
 * ignored. */
#include "model/hub.h"

#include <stdlib.h>

static bool is_id_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-' || c == '.';
}

/* Whether it ends like a file: "Llama-3.1-8B" does not, "net.onnx" does. */
static bool has_suffix(plim_str s)
{
    for (size_t i = s.n; i-- > 1;)
        if (s.p[i] == '.')
            return i + 1 < s.n && (s.p[i + 1] < '0' || s.p[i + 1] > '9');
    return false;
}

/* Whether it is a part of an id, or the name of a snapshot. */
static bool is_id_part(plim_str s)
{
    bool good = s.n && s.p[0] != '.';
    for (size_t i = 0; good && i < s.n; i++)
        good = is_id_letter(s.p[i]);
    return good;
}

static plim_str id_owner(plim_str id)
{
    const char *slash = id.n ? memchr(id.p, '/', id.n) : NULL;
    return (plim_str){id.p, slash ? (size_t)(slash - id.p) : id.n};
}

static plim_str id_model(plim_str id)
{
    size_t n = id_owner(id).n;
    return n < id.n ? (plim_str){id.p + n + 1, id.n - n - 1} : (plim_str){id.p + n, 0};
}

bool plim_hub_is_id(plim_str name)
{
    return is_id_part(id_owner(name)) && is_id_part(id_model(name)) &&
           !has_suffix(id_model(name));
}

/* ---- the cache --------------------------------------------------------------------- */

static const struct {
    const char *variable, *below;
    bool may_be_relative;
} caches[] = {
    {"HF_HUB_CACHE", "", true},
    {"HF_HOME", "/hub", true},
    {"XDG_CACHE_HOME", "/huggingface/hub", false},
    {"HOME", "/.cache/huggingface/hub", false},
    {"USERPROFILE", "/.cache/huggingface/hub", false}, /* of Windows */
};

/* "" without a home directory. */
static plim_str cache_folder(plim_arena *a)
{
    for (size_t i = 0; i < PLIM_COUNT(caches); i++) {
        const char *value = getenv(caches[i].variable);
        if (value && *value && (caches[i].may_be_relative || plim_file_is_absolute(value)))
            return plim_arena_printf(a, "%s%s", value, caches[i].below);
    }
    return PLIM_STR("");
}

/* The single word in a file, copied; "" if it is not a name for a folder. */
static plim_str read_word(plim_arena *a, const char *path)
{
    plim_bytes b;
    if (plim_file_read(&b, path, NULL))
        return PLIM_STR("");
    plim_str s = {(const char *)b.p, (size_t)b.n};
    while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r' || s.p[s.n - 1] == ' '))
        s.n--;
    s = is_id_part(s) ? plim_arena_str(a, s) : PLIM_STR("");
    plim_file_close(&b);
    return s;
}

plim_status plim_hub_snapshot(plim_arena *a, plim_str id, plim_hub_place *out, plim_err *err)
{
    *out = (plim_hub_place){.ref = {NULL, 0}};
    plim_str cache = cache_folder(a), owner = id_owner(id), model = id_model(id);
    if (!cache.p)
        return plim_oom(err);
    plim_str folder =
        plim_arena_printf(a, PLIM_STR_FMT "/models--" PLIM_STR_FMT "--" PLIM_STR_FMT,
                          PLIM_STR_ARG(cache), PLIM_STR_ARG(owner), PLIM_STR_ARG(model));
    plim_str ref = plim_arena_printf(a, PLIM_STR_FMT "/refs/main", PLIM_STR_ARG(folder));
    if (!folder.p || !ref.p)
        return plim_oom(err);
    plim_str revision = cache.n ? read_word(a, ref.p) : PLIM_STR("");
    plim_str snapshot = plim_arena_printf(a, PLIM_STR_FMT "/snapshots/" PLIM_STR_FMT,
                                          PLIM_STR_ARG(folder), PLIM_STR_ARG(revision));
    if (!revision.p || !snapshot.p)
        return plim_oom(err);
    if (revision.n && plim_file_is_folder(snapshot.p))
        *out = (plim_hub_place){.ref = ref, .snapshot = snapshot};
    return PLIM_OK;
}

plim_status plim_hub_missing(plim_str id, plim_err *err)
{
    enum { LONGEST = 64 }; /* so that the message has room for it twice */
    if (id.n > LONGEST)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'%.*s...' is neither a file nor a built-in model", (int)LONGEST,
                         id.p);
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "'" PLIM_STR_FMT "' is neither a file nor a built-in model; save its "
                     "config.json (huggingface.co/" PLIM_STR_FMT
                     "/raw/main/config.json) into a folder and name the folder",
                     PLIM_STR_ARG(id), PLIM_STR_ARG(id));
}
