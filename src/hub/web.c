/* web.c -- see web.h.
 * src: curl/curl.h of libcurl 7.88, whose numbers do not change within libcurl.so.4 */
#include "hub/web.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* ---- libcurl -------------------------------------------------------------------------- */

enum {
    OPT_WRITEDATA = 10001,
    OPT_URL = 10002,
    OPT_RANGE = 10007,
    OPT_ERRORBUFFER = 10010,
    OPT_USERAGENT = 10018,
    OPT_HTTPHEADER = 10023,
    OPT_HEADERDATA = 10029,
    OPT_XFERINFODATA = 10057,
    OPT_CAINFO = 10065,
    OPT_WRITEFUNCTION = 20011,
    OPT_HEADERFUNCTION = 20079,
    OPT_XFERINFOFUNCTION = 20219,
    OPT_LOW_SPEED_LIMIT = 19,
    OPT_LOW_SPEED_TIME = 20,
    OPT_NOPROGRESS = 43,
    OPT_NOSIGNAL = 99,
    OPT_TIMEOUT_MS = 155,
    OPT_CONNECTTIMEOUT_MS = 156,
    OPT_PROTOCOLS = 181,
};
enum { PROTOCOL_HTTP = 1, PROTOCOL_HTTPS = 2, GLOBAL_ALL = 3, ERROR_SIZE = 256 };
enum { INFO_RESPONSE_CODE = 0x200002, INFO_REDIRECT_URL = 0x10001f };
enum { E_OUT_OF_MEMORY = 27, E_TIMEDOUT = 28, E_ABORTED = 42 };

typedef struct curl_library {
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_perform)(void *easy);
    int (*easy_getinfo)(void *easy, int info, ...);
    const char *(*easy_strerror)(int code);
    void (*easy_reset)(void *easy);
    void (*easy_cleanup)(void *easy);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
} curl_library;

/* Loaded once, and by one thread at a time: older ones are not made for more. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static curl_library curl;
static bool loaded;

static bool bind_symbols(void *library)
{
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
        {"curl_global_init", &curl.global_init},
        {"curl_easy_init", &curl.easy_init},
        {"curl_easy_setopt", &curl.easy_setopt},
        {"curl_easy_perform", &curl.easy_perform},
        {"curl_easy_getinfo", &curl.easy_getinfo},
        {"curl_easy_strerror", &curl.easy_strerror},
        {"curl_easy_reset", &curl.easy_reset},
        {"curl_easy_cleanup", &curl.easy_cleanup},
        {"curl_slist_append", &curl.slist_append},
        {"curl_slist_free_all", &curl.slist_free_all},
    };
    for (size_t i = 0; i < PLIM_COUNT(wanted); i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (!symbol)
            return false;
        memcpy(wanted[i].to, &symbol, sizeof symbol); /* as POSIX has it for functions */
    }
    return true;
}

/* It stays: what it has started in the process cannot be taken back. */
static void load_library(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4",
                                        "libcurl.4.dylib"};
    const char *set = getenv("PLIMSOLL_LIBCURL");
    void *library = NULL;
    if (set && *set)
        library = dlopen(set, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !(set && *set) && !library && i < PLIM_COUNT(names); i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    loaded = library && bind_symbols(library) && !curl.global_init(GLOBAL_ALL);
}

/* ---- a connection ----------------------------------------------------------------------- */

struct plim_web {
    plim_arena *arena;
    const plim_hub_watch *watch;
    void *easy;
    const plim_web_ask *ask;
    plim_web_answer *out;
    char *body;
    uint64_t n, cap;
    bool failed;   /* there was no memory for it */
    bool canceled; /* by the user */
    bool
        ours; /* it comes from the server that was asked, not from one that it redirected to */
    char error[ERROR_SIZE];
};

plim_status plim_web_open(plim_web **out, plim_arena *a, const plim_hub_watch *watch,
                          plim_err *err)
{
    *out = NULL;
    plim_web *w = PLIM_NEW(a, plim_web);
    if (!w)
        return plim_oom(err);
    *w = (plim_web){.arena = a, .watch = watch};
    pthread_mutex_lock(&turn);
    if (!loaded)
        load_library();
    w->easy = loaded ? curl.easy_init() : NULL;
    if (w->easy) {
        *out = w;
        return PLIM_OK;
    }
    pthread_mutex_unlock(&turn);
    return loaded
               ? plim_oom(err)
               : plim_fail(
                     err, PLIM_EIO, 0,
                     "to fetch it needs libcurl, which is not here: install it ('apt install "
                     "libcurl4', 'dnf install libcurl')");
}

void plim_web_close(plim_web *w)
{
    if (!w)
        return;
    curl.easy_cleanup(w->easy);
    pthread_mutex_unlock(&turn);
}

/* ---- what comes in ------------------------------------------------------------------------ */

/* Room for n bytes more, of which there are at most as many as the question allows. */
static bool make_room(plim_web *w, uint64_t n)
{
    if (w->cap - w->n >= n)
        return true;
    uint64_t cap = PLIM_MIN(PLIM_MAX(w->cap * 2, w->n + n), w->ask->limit);
    char *body = plim_arena_new(w->arena, cap, 1);
    if (!body)
        return false;
    if (w->n)
        memcpy(body, w->body, (size_t)w->n);
    w->body = body;
    w->cap = cap;
    return true;
}

/* Takes a part of the body.  What it returns, unless it is size * n, ends the transfer. */
static size_t take_body(char *p, size_t size, size_t n, void *ud)
{
    plim_web *w = ud;
    uint64_t all = (uint64_t)size * n, room = w->ask->limit - w->n;
    if (all > room && !w->ask->head) {
        w->out->over = true;
        return 0;
    }
    uint64_t taken = PLIM_MIN(all, room);
    if (taken && !make_room(w, taken)) {
        w->failed = true;
        return 0;
    }
    if (taken)
        memcpy(w->body + w->n, p, (size_t)taken);
    w->n += taken;
    return (size_t)taken;
}

/* The value of a header line if it is the one of that name, in any case. */
static bool is_header(plim_str line, const char *name, plim_str *value)
{
    size_t n = strlen(name);
    if (line.n < n + 1 || line.p[n] != ':')
        return false;
    for (size_t i = 0; i < n; i++)
        if (plim_lower(line.p[i]) != name[i])
            return false;
    *value = (plim_str){line.p + n + 1, line.n - n - 1};
    while (value->n && strchr(" \t\r\n", value->p[value->n - 1]))
        value->n--;
    while (value->n && strchr(" \t", value->p[0]))
        value->p++, value->n--;
    return true;
}

static size_t take_header(char *p, size_t size, size_t n, void *ud)
{
    plim_web *w = ud;
    plim_str line = {p, size * n}, value;
    plim_str *to = !w->ours                                   ? NULL
                   : is_header(line, "x-repo-commit", &value) ? &w->out->commit
                   : is_header(line, "x-error-code", &value)  ? &w->out->error
                                                              : NULL;
    if (to && !(*to = plim_arena_str(w->arena, value)).p) {
        w->failed = true;
        return 0;
    }
    return line.n;
}

static int take_progress(void *ud, int64_t all, int64_t got, int64_t all_up, int64_t sent)
{
    plim_web *w = ud;
    (void)all, (void)all_up, (void)sent;
    if (w->watch && w->watch->progress)
        w->canceled =
            w->watch->progress(w->watch->ud, (uint32_t)PLIM_MIN(got, (int64_t)UINT32_MAX), 0,
                               w->ask->what) != 0;
    return w->canceled;
}

/* ---- one request ----------------------------------------------------------------------------- */

/* src: huggingface_hub 0.36, constants.py: HF_HUB_DOWNLOAD_TIMEOUT, 10 seconds */
static long read_patience(void)
{
    enum { PRESET = 10, MOST = 3600 };
    const char *set = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    long s = set ? strtol(set, NULL, 10) : 0;
    return s > 0 ? PLIM_MIN(s, (long)MOST) : PRESET;
}

/* The file of certificates that other programs of the hub's users take; libcurl has its own. */
static const char *find_certificates(void)
{
    static const char *const names[] = {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
                                        "SSL_CERT_FILE"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        const char *set = getenv(names[i]);
        if (set && *set && !plim_file_is_folder(set))
            return set;
    }
    return NULL;
}

/* A server that sends less than that for as long as is waited is given up, and so is a file that takes
 * many times as long. */
static void set_options(plim_web *w, const char *url, const char *range, void *headers)
{
    enum { SLOWEST = 100, MANY = 30 }; /* bytes a second; times as long */
    const long seconds = read_patience();
    curl.easy_reset(w->easy);
    curl.easy_setopt(w->easy, OPT_URL, url);
    curl.easy_setopt(w->easy, OPT_PROTOCOLS, (long)PROTOCOL_HTTP | PROTOCOL_HTTPS);
    curl.easy_setopt(w->easy, OPT_NOSIGNAL, 1L);
    curl.easy_setopt(w->easy, OPT_CONNECTTIMEOUT_MS, seconds * 1000);
    curl.easy_setopt(w->easy, OPT_TIMEOUT_MS, seconds * 1000 * MANY);
    curl.easy_setopt(w->easy, OPT_LOW_SPEED_TIME, seconds);
    curl.easy_setopt(w->easy, OPT_LOW_SPEED_LIMIT, (long)SLOWEST);
    curl.easy_setopt(w->easy, OPT_USERAGENT, "plimsoll/" PLIM_VERSION);
    curl.easy_setopt(w->easy, OPT_ERRORBUFFER, w->error);
    curl.easy_setopt(w->easy, OPT_WRITEFUNCTION, take_body);
    curl.easy_setopt(w->easy, OPT_WRITEDATA, (void *)w);
    curl.easy_setopt(w->easy, OPT_HEADERFUNCTION, take_header);
    curl.easy_setopt(w->easy, OPT_HEADERDATA, (void *)w);
    curl.easy_setopt(w->easy, OPT_XFERINFOFUNCTION, take_progress);
    curl.easy_setopt(w->easy, OPT_XFERINFODATA, (void *)w);
    curl.easy_setopt(w->easy, OPT_NOPROGRESS, 0L);
    if (range)
        curl.easy_setopt(w->easy, OPT_RANGE, range);
    if (headers)
        curl.easy_setopt(w->easy, OPT_HTTPHEADER, headers);
    if (find_certificates())
        curl.easy_setopt(w->easy, OPT_CAINFO, find_certificates());
}

/* What kept the answer from coming. */
static plim_status explain_code(const plim_web *w, int code, plim_err *err)
{
    enum { SHOWN = 120 };
    const char *why = *w->error ? w->error : curl.easy_strerror(code);
    if (w->failed || code == E_OUT_OF_MEMORY)
        return plim_oom(err);
    if (w->canceled || code == E_ABORTED)
        return plim_fail(err, PLIM_ECANCELED, 0, "canceled");
    if (code == E_TIMEDOUT && !w->out->status)
        return plim_fail(err, PLIM_EIO, 0, "no answer within %ld s (HF_HUB_DOWNLOAD_TIMEOUT)",
                         read_patience());
    if (code == E_TIMEDOUT)
        return plim_fail(err, PLIM_EIO, 0,
                         "%s comes too slowly: %" PRIu64 " bytes in %ld s and more "
                         "(HF_HUB_DOWNLOAD_TIMEOUT)",
                         w->ask->what, w->n, read_patience());
    if (w->out->status)
        return plim_fail(err, PLIM_EIO, 0, "%s broke off after %" PRIu64 " bytes: %.*s",
                         w->ask->what, w->n, SHOWN, why);
    return plim_fail(err, PLIM_EIO, 0, "%.*s", SHOWN, why);
}

/* A server that hangs up must not end the process of the library's host: libcurl and its TLS may raise
 * SIGPIPE. */
static int perform_quietly(void *easy)
{
    sigset_t pipe, before, pending;
    int number;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    bool was = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    int code = curl.easy_perform(easy);
    sigpending(&pending);
    if (!was && sigismember(&pending, SIGPIPE) == 1)
        sigwait(&pipe, &number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* One request, without what it redirects to. */
static plim_status ask_once(plim_web *w, const char *url, plim_err *err)
{
    plim_str range = {NULL, 0}, token = {NULL, 0};
    void *headers = NULL;
    *w->out = (plim_web_answer){
        .commit = w->out->commit, .error = w->out->error, .body = PLIM_STR("")};
    w->n = w->cap = 0;
    w->failed = w->canceled = false;
    w->error[0] = 0;
    if (w->ask->head)
        range = plim_arena_printf(w->arena, "0-%" PRIu64, w->ask->limit - 1);
    if (w->ask->token && w->ours)
        token = plim_arena_printf(w->arena, "Authorization: Bearer %s", w->ask->token);
    bool good = (!w->ask->head || range.p) && (!w->ask->token || !w->ours || token.p);
    if (good && token.p)
        good = (headers = curl.slist_append(NULL, token.p)) != NULL;
    if (!good)
        return plim_oom(err);
    set_options(w, url, range.p, headers);
    int code = perform_quietly(w->easy);
    curl.slist_free_all(headers);
    curl.easy_getinfo(w->easy, INFO_RESPONSE_CODE, &w->out->status);
    bool enough = w->out->over || (w->ask->head && w->n == w->ask->limit);
    if (code && !(enough && !w->failed && !w->canceled))
        return explain_code(w, code, err);
    w->out->body = w->n ? (plim_str){w->body, (size_t)w->n} : PLIM_STR("");
    return PLIM_OK;
}

/* ---- redirections ------------------------------------------------------------------------------ */

/* "https://host:port" of an address, as it is written. */
static plim_str origin_of(const char *url)
{
    const char *host = strstr(url, "://");
    size_t n = host ? (size_t)(host - url) + 3 : 0;
    return (plim_str){url, n + strcspn(url + n, "/?#")};
}

static bool same_origin(const char *a, const char *b)
{
    plim_str x = origin_of(a), y = origin_of(b);
    bool same = x.n == y.n;
    for (size_t i = 0; same && i < x.n; i++)
        same = plim_lower(x.p[i]) == plim_lower(y.p[i]);
    return same;
}

static bool is_secure(const char *url) { return !strncmp(url, "https://", 8); }

/* Where the answer says that it is to be had instead, copied; NULL: it is here. */
static plim_status next_url(const plim_web *w, const char *from, const char **out,
                            plim_err *err)
{
    const char *to = NULL;
    *out = NULL;
    if (w->out->status < 300 || w->out->status > 399 ||
        curl.easy_getinfo(w->easy, INFO_REDIRECT_URL, &to) || !to)
        return PLIM_OK;
    if (!is_secure(to) && (is_secure(from) || strncmp(to, "http://", 7) != 0))
        return plim_fail(err, PLIM_EIO, 0, "%s is redirected to '%.80s', which is not https",
                         w->ask->what, to);
    *out = plim_arena_str(w->arena, plim_str_of(to)).p;
    return *out ? PLIM_OK : plim_oom(err);
}

/* libcurl is not left to follow: it is for us to say who gets the token. */
plim_status plim_web_get(plim_web *w, const plim_web_ask *ask, plim_web_answer *out,
                         plim_err *err)
{
    enum { MOST = 6 };
    const char *url = ask->url, *next = NULL;
    *out =
        (plim_web_answer){.body = PLIM_STR(""), .commit = PLIM_STR(""), .error = PLIM_STR("")};
    w->ask = ask;
    w->out = out;
    w->ours = true;
    for (int i = 0; i < MOST; i++, url = next) {
        PLIM_TRY(ask_once(w, url, err));
        PLIM_TRY(next_url(w, url, &next, err));
        if (!next)
            return PLIM_OK;
        w->ours = w->ours && same_origin(ask->url, next);
    }
    return plim_fail(err, PLIM_EIO, 0, "%s is redirected more than %d times", ask->what, MOST);
}
