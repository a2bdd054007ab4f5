/* fetch.c -- plim_hub_fetch: which files of a repository are asked for, and what an answer of the hub means.
 * src: huggingface_hub 0.36, file_download.py and utils/_http.py: a file is at ORG/NAME/resolve/REVISION/FILE,
 * X-Repo-Commit says which commit that is, X-Error-Code why there is none; a repository that does not exist is
 * 401 to who has no token. */
#include "base/json.h"
#include "hub/store.h"
#include "hub/web.h"

#include <stdlib.h>

enum { FILES_MOST = 160, PARTS_MOST = 32 };
enum { CONFIG_MOST = 8 << 20, INDEX_MOST = 64 << 20, LIST_MOST = 32 << 20 };
enum {
    HEADER_READ = 128 << 10,
    HEADER_MOST = 16 << 20
}; /* of safetensors: most are shorter than the first */

typedef struct fetching {
    plim_arena *arena;
    plim_err *err;
    const plim_hub_id *id;
    plim_web *web;
    const char *token; /* NULL: none */
    plim_str name;     /* "org/name", as messages have it */
    plim_str at;       /* the revision; from the first answer on the commit that it is */
    bool begun;        /* there was a first answer */
    plim_str error;    /* the first X-Error-Code of a 404 */
    plim_hub_file files[FILES_MOST];
    uint32_t n;
} fetching;

/* ---- the token ---------------------------------------------------------------------------- */

/* The text without white space around it; NULL: none, or not one that a header can have. */
static const char *clean_token(plim_arena *a, plim_str s)
{
    enum { LONGEST = 4096 };
    while (s.n && strchr(" \t\r\n", s.p[s.n - 1]))
        s.n--;
    while (s.n && strchr(" \t\r\n", s.p[0]))
        s.p++, s.n--;
    bool good = s.n > 0 && s.n <= LONGEST;
    for (size_t i = 0; good && i < s.n; i++)
        good = s.p[i] > ' ' && s.p[i] < 0x7f;
    return good ? plim_arena_str(a, s).p : NULL;
}

static const char *token_in(plim_arena *a, const char *variable, const char *below)
{
    const char *home = getenv(variable);
    plim_str path = home && *home ? plim_arena_printf(a, "%s%s", home, below) : PLIM_STR("");
    plim_bytes b;
    if (!path.n || plim_file_open(&b, path.p, true, NULL))
        return NULL;
    const char *token =
        clean_token(a, (plim_str){(const char *)b.p, b.file ? 0 : (size_t)b.n});
    plim_file_close(&b);
    return token;
}

/* src: huggingface_hub 0.36, utils/_auth.py and constants.py */
static const char *find_token(plim_arena *a)
{
    static const struct {
        const char *variable, *below;
    } files[] = {{"HF_TOKEN_PATH", ""},
                 {"HF_HOME", "/token"},
                 {"XDG_CACHE_HOME", "/huggingface/token"},
                 {"HOME", "/.cache/huggingface/token"}};
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    const char *token = NULL, *none = getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
    for (size_t i = 0; i < PLIM_COUNT(names) && !token; i++)
        token = clean_token(a, plim_str_of(getenv(names[i])));
    if (none && *none && *none != '0')
        return token;
    for (size_t i = 0; i < PLIM_COUNT(files) && !token; i++) {
        const char *set = getenv(files[i].variable);
        token = token_in(a, files[i].variable, files[i].below);
        if (set && *set)
            break;
    }
    return token;
}

/* ---- what an answer means -------------------------------------------------------------------- */

static bool has_code(const plim_web_answer *w, const char *code)
{
    return plim_str_is(w->error, code);
}

/* The hub was not asked, or gave no answer. */
static plim_status refuse_asking(const fetching *f, const char *what, const plim_err *why)
{
    return plim_fail(f->err, why->code, 0,
                     "'" PLIM_STR_FMT "' is neither a file nor a built-in model, and %s%s",
                     PLIM_STR_CUT(f->name), what, why->msg);
}

static plim_status refuse_reader(const fetching *f, const plim_web_answer *w)
{
    const plim_str host = plim_hub_host();
    if (has_code(w, "GatedRepo") || w->status == 403)
        return plim_fail(f->err, PLIM_EIO, 0,
                         "'" PLIM_STR_FMT "' is gated: accept its licence on " PLIM_STR_FMT
                         "/" PLIM_STR_FMT " and set HF_TOKEN to a token of that account%s",
                         PLIM_STR_CUT(f->name), PLIM_STR_CUT(host), PLIM_STR_CUT(f->name),
                         f->token ? "; the token that was sent has no access" : "");
    if (f->token && !has_code(w, "RepoNotFound"))
        return plim_fail(f->err, PLIM_EIO, 0,
                         PLIM_STR_FMT
                         " refuses the token that was sent for '" PLIM_STR_FMT
                         "' (%ld): renew HF_TOKEN, or the token file of huggingface_hub",
                         PLIM_STR_CUT(host), PLIM_STR_CUT(f->name), w->status);
    return plim_fail(
        f->err, PLIM_EIO, 0,
        "there is no '" PLIM_STR_FMT "' on " PLIM_STR_FMT
        ", or it is private or gated: check the name, accept its licence there, %s",
        PLIM_STR_CUT(f->name), PLIM_STR_CUT(host),
        f->token ? "or use the token of another account"
                 : "and set HF_TOKEN to a token that may read it");
}

static plim_status refuse_missing(const fetching *f)
{
    const plim_str host = plim_hub_host(), rev = f->id->revision;
    if (plim_str_is(f->error, "RevisionNotFound"))
        return plim_fail(f->err, PLIM_EUSAGE, 0,
                         "'" PLIM_STR_FMT "' on " PLIM_STR_FMT
                         " has no revision '" PLIM_STR_FMT "'",
                         PLIM_STR_CUT(f->name), PLIM_STR_CUT(host), PLIM_STR_CUT(rev));
    return plim_fail(
        f->err, PLIM_EUSAGE, 0,
        "'" PLIM_STR_FMT "' is neither a file nor a built-in model, and there is no "
        "such repository on " PLIM_STR_FMT "%s",
        PLIM_STR_CUT(f->name), PLIM_STR_CUT(host),
        plim_str_is(f->error, "RepoNotFound") ? "" : ", or none with a config.json");
}

static plim_status refuse_status(const fetching *f, const char *file, const plim_web_answer *w)
{
    if (w->status == 401 || w->status == 403)
        return refuse_reader(f, w);
    return plim_fail(f->err, PLIM_EIO, 0,
                     PLIM_STR_FMT " answered %ld for %s of '" PLIM_STR_FMT "'%s",
                     PLIM_STR_CUT(plim_hub_host()), w->status, file, PLIM_STR_CUT(f->name),
                     w->status == 429 ? ": too many requests; try again later, or set HF_TOKEN"
                     : w->status > 499 ? ": try again later"
                                       : "");
}

/* Whether it is one object of JSON: a proxy may have sent a page in its place. */
static bool is_object(plim_str text)
{
    plim_json j;
    plim_json_init(&j, text, NULL);
    j.lax = true;
    if (plim_json_peek(&j) != PLIM_JSON_OBJECT)
        return false;
    plim_json_skip(&j);
    return !plim_json_end(&j);
}

/* ---- one file ----------------------------------------------------------------------------------- */

/* As a part of an address: a revision may have a '/'. */
static plim_str escape_revision(plim_arena *a, plim_str s)
{
    plim_buf b;
    plim_buf_init(&b, a);
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '/')
            plim_buf_puts(&b, "%2F");
        else
            plim_buf_add(&b, (plim_str){s.p + i, 1});
    return b.bad ? (plim_str){NULL, 0} : plim_buf_str(&b);
}

static plim_status ask_at(fetching *f, const char *path, const char *file, uint64_t limit,
                          bool head, plim_web_answer *out)
{
    plim_str what =
        plim_arena_printf(f->arena, "%s of '" PLIM_STR_FMT "'", file, PLIM_STR_CUT(f->name));
    plim_str url = plim_arena_printf(f->arena, PLIM_STR_FMT "%s",
                                     PLIM_STR_ARG(plim_hub_endpoint()), path);
    if (!what.p || !url.p)
        return plim_oom(f->err);
    const plim_web_ask ask = {
        .url = url.p, .token = f->token, .what = what.p, .limit = limit, .head = head};
    plim_err why = PLIM_ERR_INIT;
    plim_status st = plim_web_get(f->web, &ask, out, &why);
    if (st && out->status == 0 && st == PLIM_EIO)
        return f->begun ? plim_fail(f->err, st, 0, "no answer for %s: %s", what.p, why.msg)
                        : refuse_asking(f, "the hub cannot be reached: ", &why);
    return st ? plim_fail(f->err, st, why.at, "%s", why.msg) : PLIM_OK;
}

/* What all files of a repository are asked with.  From the first answer on they are of one commit. */
static plim_status ask_file(fetching *f, const char *file, uint64_t limit, bool head,
                            plim_web_answer *out)
{
    plim_str at = escape_revision(f->arena, f->at);
    plim_str path =
        plim_arena_printf(f->arena, "/" PLIM_STR_FMT "/resolve/" PLIM_STR_FMT "/%s",
                          PLIM_STR_ARG(f->name), PLIM_STR_ARG(at), file);
    if (!at.p || !path.p)
        return plim_oom(f->err);
    PLIM_TRY(ask_at(f, path.p, file, limit, head, out));
    if (!f->begun && plim_hub_is_commit(out->commit))
        f->at = out->commit;
    f->begun = true;
    if (out->status == 404 && !f->error.n)
        f->error = out->error;
    return PLIM_OK;
}

static plim_status keep_file(fetching *f, const char *file, plim_str body)
{
    plim_str name = plim_arena_str(f->arena, plim_str_of(file));
    if (!name.p)
        return plim_oom(f->err);
    if (f->n < FILES_MOST)
        f->files[f->n++] = (plim_hub_file){name, body};
    return PLIM_OK;
}

/* A configuration, which has to be right if it is there.  body.p NULL: it is not. */
static plim_status fetch_config(fetching *f, const char *file, plim_str *body)
{
    plim_web_answer w;
    *body = (plim_str){NULL, 0};
    PLIM_TRY(ask_file(f, file, CONFIG_MOST, false, &w));
    if (w.status == 404)
        return PLIM_OK;
    if (w.status != 200)
        return refuse_status(f, file, &w);
    if (w.over)
        return plim_fail(f->err, PLIM_EFORMAT, 0,
                         "%s of '" PLIM_STR_FMT "' is over the limit of %d bytes", file,
                         PLIM_STR_CUT(f->name), CONFIG_MOST);
    if (!is_object(w.body))
        return plim_fail(f->err, PLIM_EFORMAT, 0,
                         "what " PLIM_STR_FMT " sent as %s of '" PLIM_STR_FMT
                         "' is no object of JSON: is it a page of a proxy?",
                         PLIM_STR_CUT(plim_hub_host()), file, PLIM_STR_CUT(f->name));
    *body = w.body;
    return keep_file(f, file, w.body);
}

/* What an answer can do without: kept if it can be had and is what it should be. */
static plim_status fetch_more(fetching *f, const char *file, uint64_t limit, bool *there)
{
    plim_web_answer w;
    *there = false;
    PLIM_TRY(ask_file(f, file, limit, false, &w));
    if (w.status >= 500 || w.status == 429)
        return refuse_status(f, file, &w);
    *there = w.status == 200 && !w.over && is_object(w.body);
    return *there ? keep_file(f, file, w.body) : PLIM_OK;
}

/* ---- weights: what is said about them ---------------------------------------------------------- */

/* How long the header of safetensors is, with the number before it; 0: it is none. */
static uint64_t header_bytes(plim_str s)
{
    uint64_t n = 0;
    for (size_t i = 8; i-- > 0 && s.n >= 8;)
        n = n << 8 | (uint8_t)s.p[i];
    return n && n <= HEADER_MOST ? n + 8 : 0;
}

/* The header alone, by a request for a part of the file.  A server that sends all of it is not listened to
 * any longer than that. */
static plim_status fetch_header(fetching *f, const char *file)
{
    plim_web_answer w = {.status = 0};
    uint64_t n = 0;
    for (uint64_t want = HEADER_READ; want;) {
        PLIM_TRY(ask_file(f, file, want, true, &w));
        if (w.status != 200 && w.status != 206)
            return PLIM_OK;
        n = header_bytes(w.body);
        want = n > w.body.n && want < n ? n : 0;
    }
    plim_str name = plim_arena_printf(f->arena, "%s.header", file);
    if (!name.p)
        return plim_oom(f->err);
    if (!n || n > w.body.n || !is_object((plim_str){w.body.p + 8, (size_t)n - 8}))
        return PLIM_OK;
    return keep_file(f, name.p, (plim_str){w.body.p, (size_t)n});
}

/* The index of weights in several files, else the header of those in one. */
static plim_status fetch_weights(fetching *f, const char *folder, const char *stem)
{
    bool there;
    plim_str index = plim_arena_printf(f->arena, "%s%s.safetensors.index.json", folder, stem),
             whole = plim_arena_printf(f->arena, "%s%s.safetensors", folder, stem);
    if (!index.p || !whole.p)
        return plim_oom(f->err);
    PLIM_TRY(fetch_more(f, index.p, INDEX_MOST, &there));
    return there ? PLIM_OK : fetch_header(f, whole.p);
}

/* ---- models of several parts ----------------------------------------------------------------------- */

/* Whether a part of a pipeline may be a folder with a model in it.  Its name comes from the net. */
static bool is_part_name(plim_str s) { return plim_hub_is_commit(s) && s.p[0] != '_'; }

/* "unet": ["diffusers", "UNet2DConditionModel"]; library "" for all else. */
static plim_str read_library(plim_json *j)
{
    plim_str library = PLIM_STR("");
    if (plim_json_peek(j) != PLIM_JSON_ARRAY) {
        plim_json_skip(j);
        return library;
    }
    plim_json_array(j);
    for (int i = 0; plim_json_item(j); i++)
        if (!i && plim_json_peek(j) == PLIM_JSON_STRING)
            library = plim_json_str(j);
        else
            plim_json_skip(j);
    return library;
}

static plim_status fetch_part(fetching *f, plim_str part, plim_str library)
{
    plim_str body, folder = plim_arena_printf(f->arena, PLIM_STR_FMT "/", PLIM_STR_ARG(part));
    plim_str config =
        plim_arena_printf(f->arena, PLIM_STR_FMT "config.json", PLIM_STR_ARG(folder));
    if (!folder.p || !config.p)
        return plim_oom(f->err);
    PLIM_TRY(fetch_config(f, config.p, &body));
    if (!body.p)
        return PLIM_OK; /* a tokenizer, a scheduler */
    return fetch_weights(
        f, folder.p, plim_str_is(library, "diffusers") ? "diffusion_pytorch_model" : "model");
}

/* The parts that the pipeline names: src: diffusers 0.35, pipelines/pipeline_utils.py, model_index.json */
static plim_status fetch_parts(fetching *f, plim_str index)
{
    plim_json j;
    plim_str key;
    int n = 0;
    plim_json_init(&j, index, NULL);
    j.lax = true;
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        plim_str library = read_library(&j);
        bool named = plim_str_is(library, "diffusers") || plim_str_is(library, "transformers");
        if (named && is_part_name(key) && n++ < PARTS_MOST)
            PLIM_TRY(fetch_part(f, key, library));
    }
    return PLIM_OK;
}

/* ---- a repository without a configuration ---------------------------------------------------------------- */

/* {"rfilename": "config.json", ...}; "" for none */
static plim_str read_name(plim_json *j)
{
    plim_str key, name = PLIM_STR("");
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "rfilename"))
            name = plim_json_str(j);
        else
            plim_json_skip(j);
    return name;
}

/* Puts into `list` the names of files that end so, as many as a message has room for.  Returns how many
 * there are. */
static uint32_t list_names(plim_json j, const char *suffix, plim_buf *list)
{
    enum { ROOM = 90 };
    plim_str key, name;
    uint32_t n = 0;
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        bool siblings = plim_str_is(key, "siblings") && plim_json_peek(&j) == PLIM_JSON_ARRAY;
        if (!siblings) {
            plim_json_skip(&j);
            continue;
        }
        plim_json_array(&j);
        while (plim_json_item(&j)) {
            name = read_name(&j);
            if (!plim_str_ends(name, plim_str_of(suffix)))
                continue;
            if (!n++ || list->n + name.n < ROOM)
                plim_buf_printf(list, "%s" PLIM_STR_FMT, n > 1 ? ", " : "",
                                PLIM_STR_CUT(name));
        }
    }
    return n;
}

/* It is there, and holds no model that can be estimated by its configuration: what else? */
static plim_status refuse_files(const fetching *f, plim_str listing)
{
    plim_json j;
    plim_buf names;
    plim_json_init(&j, listing, NULL);
    plim_buf_init(&names, f->arena);
    uint32_t n = list_names(j, ".gguf", &names);
    if (n && !names.bad)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 0,
                         "'" PLIM_STR_FMT "' has no config.json but %u GGUF file%s (%s%s): "
                         "download one and ask 'plimsoll serve FILE'",
                         PLIM_STR_CUT(f->name), (unsigned)n, n == 1 ? "" : "s", names.p,
                         n > 1 ? ", ..." : "");
    return plim_fail(
        f->err, PLIM_EUNSUPPORTED, 0,
        "'" PLIM_STR_FMT "' on " PLIM_STR_FMT
        " has neither config.json nor model_index.json: it is not a model that can "
        "be built from its configuration",
        PLIM_STR_CUT(f->name), PLIM_STR_CUT(plim_hub_host()));
}

static plim_status explain_nothing(fetching *f)
{
    plim_web_answer w;
    plim_str at = escape_revision(f->arena, f->at);
    plim_str path =
        plim_arena_printf(f->arena, "/api/models/" PLIM_STR_FMT "/revision/" PLIM_STR_FMT,
                          PLIM_STR_ARG(f->name), PLIM_STR_ARG(at));
    if (!at.p || !path.p)
        return plim_oom(f->err);
    PLIM_TRY(ask_at(f, path.p, "the list of files", LIST_MOST, false, &w));
    if (w.status == 200 && !w.over && is_object(w.body))
        return refuse_files(f, w.body);
    return refuse_missing(f);
}

/* ---- a model ------------------------------------------------------------------------------------------ */

static plim_status fetch_files(fetching *f)
{
    plim_str body;
    bool there;
    PLIM_TRY(fetch_config(f, "config.json", &body));
    if (body.p) {
        PLIM_TRY(fetch_more(f, "generation_config.json", CONFIG_MOST, &there));
        return fetch_weights(f, "", "model");
    }
    if (plim_str_is(f->error, "RepoNotFound") || plim_str_is(f->error, "RevisionNotFound"))
        return refuse_missing(f);
    PLIM_TRY(fetch_config(f, "model_index.json", &body));
    if (body.p)
        return fetch_parts(f, body);
    PLIM_TRY(fetch_config(f, "adapter_config.json", &body));
    return body.p ? PLIM_OK : explain_nothing(f);
}

static plim_status check_endpoint(plim_err *err)
{
    plim_str s = plim_hub_endpoint();
    bool good = plim_str_starts(s, "https://") || plim_str_starts(s, "http://");
    for (size_t i = 0; good && i < s.n; i++)
        good = s.p[i] > ' ' && s.p[i] < 0x7f && !strchr("@?#\\\"", s.p[i]);
    return good ? PLIM_OK
                : plim_fail(err, PLIM_EUSAGE, 0,
                            "'HF_ENDPOINT': '" PLIM_STR_FMT "' is not an address such as "
                            "https://huggingface.co",
                            PLIM_STR_CUT(s));
}

static plim_status fetch_model(fetching *f, const plim_hub_watch *watch)
{
    f->name = plim_arena_printf(f->arena, PLIM_STR_FMT "/" PLIM_STR_FMT,
                                PLIM_STR_ARG(f->id->owner), PLIM_STR_ARG(f->id->model));
    if (!f->name.p)
        return plim_oom(f->err);
    f->token = find_token(f->arena);
    PLIM_TRY(check_endpoint(f->err));
    plim_err why = PLIM_ERR_INIT;
    if (plim_web_open(&f->web, f->arena, watch, &why))
        return refuse_asking(f, "", &why);
    plim_status st = fetch_files(f);
    plim_web_close(f->web);
    if (st)
        return st;
    /* a server that names no commit: the revision, as one word */
    plim_str commit = plim_arena_str(f->arena, f->at);
    for (char *c = (char *)(uintptr_t)commit.p; c && *c; c++)
        *c = *c == '/' ? '_' : *c;
    return commit.p ? plim_hub_store(f->arena, f->id, commit, f->files, f->n, f->err)
                    : plim_oom(f->err);
}

plim_status plim_hub_fetch(const plim_hub_id *id, const plim_hub_watch *watch, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    fetching *f = PLIM_NEW(&a, fetching);
    if (!f)
        return plim_oom(err);
    *f = (fetching){.arena = &a, .err = err, .id = id, .at = id->revision, .error = {"", 0}};
    plim_status st = fetch_model(f, watch);
    plim_arena_free(&a);
    return st;
}
