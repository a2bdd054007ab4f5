/* hub.c -- ids, and the caches of this machine: see hub.h.
 * src: huggingface_hub 0.36, constants.py and file_download.py: the cache is HF_HUB_CACHE,
 * else "hub" in HF_HOME, else in huggingface in XDG_CACHE_HOME, else in ~/.cache; of
 * org/name the folder models--org--name has refs/REVISION, which holds the name of a folder in
 * snapshots.  XDG Base Directory Specification 0.8: a relative path in its variables is
 * ignored. */
#include "hub/hub.h"

#include <stdlib.h>

/* ---- ids ------------------------------------------------------------------------------ */

enum { PART_MOST = 96 }; /* src: huggingface_hub 0.36, utils/_validators.py */

static bool is_id_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-' || c == '.';
}

static bool is_word(plim_str s)
{
    bool good = s.n && s.n <= PART_MOST && s.p[0] != '.';
    for (size_t i = 0; good && i < s.n; i++)
        good = is_id_letter(s.p[i]);
    return good;
}

/* Of the hub no name has "--" or ".."; and where a cache writes "--" for '/', two ids could not
 * be told apart. */
static bool is_id_part(plim_str s)
{
    return is_word(s) && !plim_str_has(s, "--") && !plim_str_has(s, "..");
}

/* Words with '/' between them, as in "refs/pr/1": a part of a path, and stays in its folder. */
static bool is_revision(plim_str s)
{
    bool good = s.n && s.n <= PART_MOST && !plim_str_has(s, "..");
    for (size_t from = 0, i = 0; good && i <= s.n; i++)
        if (i == s.n || s.p[i] == '/') {
            good = is_word((plim_str){s.p + from, i - from});
            from = i + 1;
        }
    return good;
}

bool plim_hub_is_commit(plim_str s) { return is_word(s); }

/* Whether it ends like a file: "net.onnx" does; "Llama-3.1-8B" and "resnet50.a1_in1k" do not. */
static bool has_suffix(plim_str s)
{
    static const char *const long_ones[] = {"caffemodel",  "engine",  "mlmodel", "msgpack",
                                            "params",      "parquet", "pickle",  "prototxt",
                                            "safetensors", "tflite"};
    enum { SHORT = 5 }; /* .onnx, .keras */
    const char *dot = s.p + s.n;
    while (dot > s.p && *--dot != '.')
        continue;
    plim_str end = {dot + 1, s.n - (size_t)(dot - s.p) - 1};
    if (*dot != '.' || dot == s.p || !end.n || (*end.p >= '0' && *end.p <= '9'))
        return false;
    bool plain = end.n <= SHORT;
    for (size_t i = 0; plain && i < end.n; i++)
        plain = end.p[i] != '_' && end.p[i] != '-';
    for (size_t i = 0; !plain && i < PLIM_COUNT(long_ones); i++)
        plain = plim_str_is(end, long_ones[i]);
    return plain;
}

/* What is before the first c, and what is behind it; p NULL: there is no c. */
static plim_str cut_at(plim_str s, char c, plim_str *rest)
{
    const char *at = s.n ? memchr(s.p, c, s.n) : NULL;
    size_t n = at ? (size_t)(at - s.p) : s.n;
    *rest = at ? (plim_str){at + 1, s.n - n - 1} : (plim_str){NULL, 0};
    return (plim_str){s.p, n};
}

bool plim_hub_parse(plim_str text, plim_hub_id *out)
{
    plim_str revision, model, owner = cut_at(cut_at(text, '@', &revision), '/', &model);
    *out = (plim_hub_id){owner, model, revision.p ? revision : PLIM_STR("main")};
    return model.p && is_id_part(owner) && is_id_part(model) && is_revision(out->revision) &&
           (revision.p || !has_suffix(model));
}

plim_status plim_hub_missing(const plim_hub_id *id, const char *why, plim_err *err)
{
    enum { LONGEST = 32 }; /* of each part, so that the message has room for it twice */
    const plim_str o = id->owner, m = id->model;
    if (o.n > LONGEST || m.n > LONGEST)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'" PLIM_STR_FMT "/" PLIM_STR_FMT
                         "' is neither a file nor a built-in model%s%s",
                         PLIM_STR_CUT(o), PLIM_STR_CUT(m), why ? "; " : "", why ? why : "");
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "'" PLIM_STR_FMT "/" PLIM_STR_FMT
                     "' is neither a file nor a built-in model%s%s; save its "
                     "config.json (huggingface.co/" PLIM_STR_FMT "/" PLIM_STR_FMT
                     "/raw/main/config.json) into a folder and name the folder",
                     PLIM_STR_ARG(o), PLIM_STR_ARG(m), why ? ", and " : "", why ? why : "",
                     PLIM_STR_ARG(o), PLIM_STR_ARG(m));
}

/* ---- the environment ---------------------------------------------------------------------- */

/* src: huggingface_hub 0.36, constants.py: ENV_VARS_TRUE_VALUES, of any case */
static bool is_true(const char *value)
{
    static const char *const yes[] = {"1", "on", "yes", "true"};
    for (size_t i = 0; i < PLIM_COUNT(yes); i++) {
        size_t n = 0;
        while (yes[i][n] && plim_lower(value[n]) == yes[i][n])
            n++;
        if (!yes[i][n] && !value[n])
            return true;
    }
    return false;
}

bool plim_hub_is_offline(void)
{
    const char *set = getenv("HF_HUB_OFFLINE");
    if (!set || !*set)
        set = getenv("TRANSFORMERS_OFFLINE");
    return set && is_true(set);
}

static const char scheme[] = "https://";

plim_str plim_hub_endpoint(void)
{
    const char *set = getenv("HF_ENDPOINT");
    plim_str s = set && *set ? plim_str_of(set) : PLIM_STR("https://huggingface.co");
    while (s.n && s.p[s.n - 1] == '/')
        s.n--;
    return s;
}

plim_str plim_hub_host(void)
{
    plim_str s = plim_hub_endpoint();
    size_t n = plim_str_starts(s, scheme) ? sizeof scheme - 1 : 0;
    return (plim_str){s.p + n, s.n - n};
}

/* ---- the caches --------------------------------------------------------------------------- */

typedef struct cache_home {
    const char *variable, *below;
    bool may_be_relative;
} cache_home;

static const cache_home theirs[] = {
    {"HF_HUB_CACHE", "", true},
    {"HUGGINGFACE_HUB_CACHE", "", true}, /* as it was called */
    {"HF_HOME", "/hub", true},
    {"XDG_CACHE_HOME", "/huggingface/hub", false},
    {"HOME", "/.cache/huggingface/hub", false},
    {"USERPROFILE", "/.cache/huggingface/hub", false}, /* of Windows */
};
static const cache_home ours[] = {
    {"XDG_CACHE_HOME", "/plimsoll/hub/", false},
    {"HOME", "/.cache/plimsoll/hub/", false},
    {"USERPROFILE", "/.cache/plimsoll/hub/", false},
};

/* "" without a home directory. */
static plim_str cache_folder(plim_arena *a, const cache_home *homes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *value = getenv(homes[i].variable);
        if (value && *value && (homes[i].may_be_relative || plim_file_is_absolute(value)))
            return plim_arena_printf(a, "%s%s", value, homes[i].below);
    }
    return PLIM_STR("");
}

/* Another hub may have another model of the same id: a folder for each. */
plim_str plim_hub_own_cache(plim_arena *a)
{
    plim_str home = cache_folder(a, ours, PLIM_COUNT(ours)), host = plim_hub_host();
    if (!home.n)
        return home;
    plim_str path = plim_arena_printf(a, PLIM_STR_FMT PLIM_STR_FMT, PLIM_STR_ARG(home),
                                      PLIM_STR_ARG(host));
    for (char *c = (char *)(uintptr_t)path.p; c && c < path.p + path.n; c++)
        if (c >= path.p + home.n && (!is_id_letter(*c) || (*c == '.' && c[1] == '.')))
            *c = '_';
    return path;
}

plim_str plim_hub_folder(plim_arena *a, plim_str cache, const plim_hub_id *id)
{
    return plim_arena_printf(a, PLIM_STR_FMT "/models--" PLIM_STR_FMT "--" PLIM_STR_FMT,
                             PLIM_STR_ARG(cache), PLIM_STR_ARG(id->owner),
                             PLIM_STR_ARG(id->model));
}

/* The single word in a file, copied; "" if it is not a name for a folder. */
static plim_str read_word(plim_arena *a, const char *path)
{
    plim_bytes b;
    if (plim_file_open(&b, path, true, NULL))
        return PLIM_STR("");
    plim_str s = {(const char *)b.p, b.file ? 0 : (size_t)b.n}; /* too long to be all there */
    while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r' || s.p[s.n - 1] == ' '))
        s.n--;
    s = is_word(s) ? plim_arena_str(a, s) : PLIM_STR("");
    plim_file_close(&b);
    return s;
}

/* Whether there is a file in it that says what the model is. */
static bool is_whole(plim_arena *a, plim_str snapshot)
{
    static const char *const says[] = {"config.json", "model_index.json",
                                       "adapter_config.json"};
    for (size_t i = 0; i < PLIM_COUNT(says); i++) {
        plim_str path =
            plim_arena_printf(a, PLIM_STR_FMT "/%s", PLIM_STR_ARG(snapshot), says[i]);
        if (path.p && plim_file_exists(path.p))
            return true;
    }
    return false;
}

static plim_status find_in(plim_arena *a, plim_str cache, const char *kept,
                           const plim_hub_id *id, plim_hub_place *out, plim_err *err)
{
    *out = (plim_hub_place){.ref = {NULL, 0}};
    plim_str folder = plim_hub_folder(a, cache, id), r = id->revision;
    plim_str ref = plim_arena_printf(a, PLIM_STR_FMT "/refs/" PLIM_STR_FMT,
                                     PLIM_STR_ARG(folder), PLIM_STR_ARG(r));
    if (!cache.p || !folder.p || !ref.p)
        return plim_oom(err);
    if (!cache.n)
        return PLIM_OK;
    plim_str named = read_word(a, ref.p), commit = named.n ? named : r;
    plim_str snapshot = plim_arena_printf(a, PLIM_STR_FMT "/snapshots/" PLIM_STR_FMT,
                                          PLIM_STR_ARG(folder), PLIM_STR_ARG(commit));
    plim_str origin = plim_arena_printf(
        a, PLIM_STR_FMT "/" PLIM_STR_FMT "@" PLIM_STR_FMT ", %s", PLIM_STR_ARG(id->owner),
        PLIM_STR_ARG(id->model), PLIM_STR_ARG(commit), kept);
    if (!named.p || !snapshot.p || !origin.p)
        return plim_oom(err);
    if (is_word(commit) && plim_file_is_folder(snapshot.p))
        *out = (plim_hub_place){.ref = named.n ? ref : (plim_str){NULL, 0},
                                .snapshot = snapshot,
                                .origin = origin,
                                .whole = is_whole(a, snapshot)};
    return PLIM_OK;
}

plim_status plim_hub_find(plim_arena *a, const plim_hub_id *id, plim_hub_place *out,
                          plim_err *err)
{
    static const char elsewhere[] = "from the cache of huggingface_hub";
    plim_hub_place own;
    plim_str kept =
        plim_arena_printf(a, "fetched from " PLIM_STR_FMT, PLIM_STR_CUT(plim_hub_host()));
    if (!kept.p)
        return plim_oom(err);
    PLIM_TRY(find_in(a, cache_folder(a, theirs, PLIM_COUNT(theirs)), elsewhere, id, out, err));
    if (out->whole)
        return PLIM_OK;
    PLIM_TRY(find_in(a, plim_hub_own_cache(a), kept.p, id, &own, err));
    if (own.whole || !out->snapshot.p)
        *out = own;
    return PLIM_OK;
}
