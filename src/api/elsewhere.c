/* elsewhere.c -- files that hold no model, and the commands that read them: see api.h. */
#include "api/api.h"
#include "oom/oom.h"
#include "trace/log.h"
#include "trace/recording.h"

enum { LOOKED_AT = 64 << 10 }; /* bytes at each end of a file */

/* A file as it is told apart: its ends, which are there. */
typedef struct ends {
    plim_bytes file;
    plim_str head, tail;
} ends;

static const char *find_recording(const ends *e) { return plim_recording_what(e->file); }

/* src: "Database File Format" of SQLite's documentation, 1.3; cli/top_db.h */
static const char *find_history(const ends *e)
{
    enum { APPLICATION_ID = 68 };
    static const char magic[] = "SQLite format 3", ours[] = "Plim";
    return e->head.n >= APPLICATION_ID + sizeof ours &&
                   !memcmp(e->head.p, magic, sizeof magic) &&
                   !memcmp(e->head.p + APPLICATION_ID, ours, sizeof ours - 1)
               ? "a log of 'plimsoll top'"
               : NULL;
}

static bool has_message(plim_str text)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_oom_message message = {0};
    plim_oom_view view = {0};
    plim_oom_reader *reader = plim_oom_reader_new(&scratch);
    if (reader)
        plim_oom_take(reader, text, true);
    bool has = reader && !plim_oom_parse(&scratch, reader, &view, &message, NULL);
    plim_arena_free(&scratch);
    return has;
}

/* A program that runs out of memory most often says so last. */
static const char *find_message(const ends *e)
{
    return !memchr(e->head.p, 0, e->head.n) && (has_message(e->tail) || has_message(e->head))
               ? "a text with an out-of-memory message"
               : NULL;
}

static bool has_figures(plim_str text)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_log log = {0};
    plim_log_reader *reader = plim_log_reader_new(&scratch, &log);
    if (reader)
        plim_log_take(reader, text, true);
    plim_arena_free(&scratch);
    return log.source;
}

static const char *find_figures(const ends *e)
{
    return plim_log_detect(e->file) && (has_figures(e->head) || has_figures(e->tail))
               ? "a log with figures of GPU memory"
               : NULL;
}

static const struct {
    const char *(*find)(const ends *e); /* what it is; NULL: something else */
    const char *commands;
} kinds[] = {
    {find_recording, "'plimsoll replay' or 'plimsoll diff'"},
    {find_history, "'plimsoll top --history'"},
    {find_message, "'plimsoll oom'"},
    {find_figures, "'plimsoll diff'"},
};

plim_status plim__elsewhere(const plim_source *s, plim_status st, plim_err *err)
{
    const plim_bytes b = s->bytes;
    const uint64_t n = PLIM_MIN(b.n, (uint64_t)LOOKED_AT);
    if (!n || plim_bytes_need(b, 0, n, NULL) || plim_bytes_need(b, b.n - n, n, NULL))
        return st;
    const ends e = {
        b, {(const char *)b.p, (size_t)n}, {(const char *)b.p + (b.n - n), (size_t)n}};
    for (size_t i = 0; i < PLIM_COUNT(kinds); i++) {
        const char *what = kinds[i].find(&e);
        if (!what)
            continue;
        plim_err_clear(err);
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "'%s' is %s, not a model: give it to %s",
                         s->path, what, kinds[i].commands);
    }
    return st;
}
