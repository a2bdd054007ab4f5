/* top_log.c -- adds readings to a log: see top_log.h.
 *
 * What was written last is asked of the database, not remembered, so a log takes the same
 * memory after a month, and two loggers do not write the same thing twice. */
#include "top_log.h"

#ifndef PLIM_SQLITE

#include <stddef.h>

const char *plim_top_log_missing(void)
{
    return "this plimsoll was built without SQLite, which '--log' and '--history' need: install "
           "libsqlite3-dev (Debian, Ubuntu) or sqlite-devel (Fedora) and build again";
}

plim_status plim_top_log_open(const char *path, double keep_s, plim_top_log **out,
                              plim_err *err)
{
    (void)path;
    (void)keep_s;
    *out = NULL;
    return err->code = PLIM_EUNSUPPORTED;
}

plim_status plim_top_log_add(plim_top_log *l, const plim_live_view *v, plim_err *err)
{
    (void)l;
    (void)v;
    return err->code = PLIM_EUNSUPPORTED;
}

void plim_top_log_close(plim_top_log *l) { (void)l; }

int plim_top_history(plim_args *a)
{
    (void)a;
    return plim_console_usage("%s", plim_top_log_missing());
}

#else

#include "top_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *plim_top_log_missing(void) { return NULL; }

/* ?1, ?2, ... are bound: no text of a process becomes SQL. */
#define STATEMENTS(X)                                                                         \
    X(NEW_SESSION, "INSERT INTO sessions(host, first_ms, last_ms) VALUES(?1, ?2, ?2)")        \
    X(TOUCH_SESSION, "UPDATE sessions SET last_ms = max(last_ms, ?2) WHERE id = ?1")          \
    X(FIND_DEVICE, "SELECT id FROM devices WHERE host = ?1 AND source = ?2 AND gpu = ?3"      \
                   " AND uuid = ?4 AND pci = ?5")                                             \
    X(NEW_DEVICE, "INSERT INTO devices(host, source, gpu, uuid, pci, name, total)"            \
                  " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                      \
    X(LAST_DEVICE, "SELECT used, free FROM device_memory WHERE device = ?1 AND session = ?2"  \
                   " ORDER BY time_ms DESC LIMIT 1")                                          \
    X(ADD_DEVICE, "INSERT OR REPLACE INTO device_memory VALUES(?1, ?2, ?3, ?4, ?5)")          \
    X(FIND_PROCESS, "SELECT id, session, ended_ms FROM processes WHERE device = ?1"           \
                    " AND pid = ?2 AND started = ?3 AND kind = ?4")                           \
    X(NEW_PROCESS, "INSERT INTO processes(device, pid, started, kind, session, predicted,"    \
                   " user, command, job, container)"                                          \
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")                        \
    X(TAKE_PROCESS, "UPDATE processes SET session = ?2, ended_ms = NULL WHERE id = ?1")       \
    X(END_PROCESS, "UPDATE processes SET ended_ms = ?2 WHERE id = ?1")                        \
    X(LAST_PROCESS, "SELECT memory FROM process_memory WHERE process = ?1"                    \
                    " ORDER BY time_ms DESC LIMIT 1")                                         \
    X(ADD_PROCESS, "INSERT OR REPLACE INTO process_memory VALUES(?1, ?2, ?3)")                \
    X(BEGIN, "BEGIN IMMEDIATE")                                                               \
    X(COMMIT, "COMMIT")                                                                       \
    X(ROLLBACK, "ROLLBACK")

enum {
#define X(id, sql) id,
    STATEMENTS(X)
#undef X
        STATEMENT_COUNT
};

static const char *const statements[] = {
#define X(id, sql) sql,
    STATEMENTS(X)
#undef X
};

struct plim_top_log {
    plim_memory memory; /* this struct is in it, too */
    sqlite3 *db;
    const char *path;
    int64_t keep_ms, pruned_ms; /* keep_ms 0: forever */
    int64_t session;            /* 0: before the first reading */
    uint64_t steps;             /* that what is done with this reading may still take */
    int64_t *seen, *before;     /* the processes of this reading and of the last one, by id */
    size_t n_seen, n_before, cap_seen, cap_before;
    sqlite3_stmt *sql[STATEMENT_COUNT];
};

static void bind_text(sqlite3_stmt *q, int at, const char *z)
{
    if (z)
        sqlite3_bind_text(q, at, z, -1, SQLITE_STATIC);
}

static void bind_number(sqlite3_stmt *q, int at, uint64_t v)
{
    if (v <= INT64_MAX)
        sqlite3_bind_int64(q, at, (int64_t)v);
}

/* A statement with nothing bound: every parameter is NULL. */
static sqlite3_stmt *reset_statement(plim_top_log *l, int which)
{
    sqlite3_reset(l->sql[which]);
    sqlite3_clear_bindings(l->sql[which]);
    return l->sql[which];
}

/* SQLITE_OK, or what went wrong. */
static int finish_statement(sqlite3_stmt *q)
{
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        rc = SQLITE_OK;
    sqlite3_reset(q);
    return rc;
}

static int finish_ids(plim_top_log *l, int which, int64_t one, int64_t other)
{
    sqlite3_stmt *q = reset_statement(l, which);
    sqlite3_bind_int64(q, 1, one);
    sqlite3_bind_int64(q, 2, other);
    return finish_statement(q);
}

/* Is the value of a column what a reading says? */
static bool same_number(sqlite3_stmt *q, int column, uint64_t v)
{
    if (sqlite3_column_type(q, column) == SQLITE_NULL)
        return v > INT64_MAX;
    return v <= INT64_MAX && sqlite3_column_int64(q, column) == (int64_t)v;
}

static const char *text_or_empty(const char *z) { return z ? z : ""; }

/* ---- a reading -------------------------------------------------------------------------------- */

static int add_session(plim_top_log *l, const plim_live_view *v)
{
    if (l->session)
        return finish_ids(l, TOUCH_SESSION, l->session, v->time_ms);
    sqlite3_stmt *q = reset_statement(l, NEW_SESSION);
    bind_text(q, 1, v->host);
    sqlite3_bind_int64(q, 2, v->time_ms);
    int rc = finish_statement(q);
    l->session = rc ? 0 : sqlite3_last_insert_rowid(l->db);
    return rc;
}

static int find_device(plim_top_log *l, const plim_live_view *v, const plim_live_device *d,
                       int64_t *id)
{
    char gpu[64];
    snprintf(gpu, sizeof gpu, "%u%s%s", (unsigned)d->index, d->mig ? ":" : "",
             text_or_empty(d->mig));
    for (int which = FIND_DEVICE;; which = NEW_DEVICE) {
        sqlite3_stmt *q = reset_statement(l, which);
        bind_text(q, 1, text_or_empty(v->host));
        bind_text(q, 2, d->source);
        bind_text(q, 3, gpu);
        bind_text(q, 4, text_or_empty(d->uuid));
        bind_text(q, 5, text_or_empty(d->pci));
        if (which == NEW_DEVICE) {
            bind_text(q, 6, d->name);
            bind_number(q, 7, d->total);
        }
        int rc = sqlite3_step(q);
        if (rc == SQLITE_ROW)
            *id = sqlite3_column_int64(q, 0);
        sqlite3_reset(q);
        if (which == NEW_DEVICE && rc == SQLITE_DONE)
            *id = sqlite3_last_insert_rowid(l->db);
        if (rc == SQLITE_ROW || which == NEW_DEVICE || rc != SQLITE_DONE)
            return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
}

static int add_device(plim_top_log *l, const plim_live_view *v, const plim_live_device *d,
                      int64_t id)
{
    sqlite3_stmt *q = reset_statement(l, LAST_DEVICE);
    sqlite3_bind_int64(q, 1, id);
    sqlite3_bind_int64(q, 2, l->session);
    int rc = sqlite3_step(q);
    bool same = rc == SQLITE_ROW && same_number(q, 0, d->used) && same_number(q, 1, d->free);
    sqlite3_reset(q);
    if (same || (rc != SQLITE_ROW && rc != SQLITE_DONE))
        return same ? SQLITE_OK : rc;
    q = reset_statement(l, ADD_DEVICE);
    sqlite3_bind_int64(q, 1, id);
    sqlite3_bind_int64(q, 2, l->session);
    sqlite3_bind_int64(q, 3, v->time_ms);
    bind_number(q, 4, d->used);
    bind_number(q, 5, d->free);
    return finish_statement(q);
}

static int new_process(plim_top_log *l, const plim_live_process *p, int64_t device,
                       int64_t *id)
{
    sqlite3_stmt *q = reset_statement(l, NEW_PROCESS);
    sqlite3_bind_int64(q, 1, device);
    bind_number(q, 2, p->pid);
    bind_number(q, 3, p->started);
    bind_text(q, 4, text_or_empty(p->kind));
    sqlite3_bind_int64(q, 5, l->session);
    bind_number(q, 6, p->predicted);
    bind_text(q, 7, p->user);
    bind_text(q, 8, p->command_line ? p->command_line : p->command);
    bind_text(q, 9, p->job);
    bind_text(q, 10, p->container);
    int rc = finish_statement(q);
    *id = sqlite3_last_insert_rowid(l->db);
    return rc;
}

static int add_memory(plim_top_log *l, int64_t process, int64_t now_ms, uint64_t memory)
{
    sqlite3_stmt *q = reset_statement(l, LAST_PROCESS);
    sqlite3_bind_int64(q, 1, process);
    int rc = sqlite3_step(q);
    bool same = rc == SQLITE_ROW && same_number(q, 0, memory);
    sqlite3_reset(q);
    if (same || (rc != SQLITE_ROW && rc != SQLITE_DONE))
        return same ? SQLITE_OK : rc;
    q = reset_statement(l, ADD_PROCESS);
    sqlite3_bind_int64(q, 1, process);
    sqlite3_bind_int64(q, 2, now_ms);
    bind_number(q, 3, memory);
    return finish_statement(q);
}

static int add_process(plim_top_log *l, const plim_live_view *v, const plim_live_process *p,
                       int64_t device)
{
    int64_t id = 0;
    sqlite3_stmt *q = reset_statement(l, FIND_PROCESS);
    sqlite3_bind_int64(q, 1, device);
    bind_number(q, 2, p->pid);
    bind_number(q, 3, p->started);
    bind_text(q, 4, text_or_empty(p->kind));
    int rc = sqlite3_step(q);
    bool known = rc == SQLITE_ROW, ours = false;
    if (known) {
        id = sqlite3_column_int64(q, 0);
        ours = sqlite3_column_int64(q, 1) >= l->session && /* the newest logger has it */
               sqlite3_column_type(q, 2) == SQLITE_NULL;
    }
    sqlite3_reset(q);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return rc;
    rc = !known ? new_process(l, p, device, &id)
         : ours ? SQLITE_OK
                : finish_ids(l, TAKE_PROCESS, id, l->session);
    if (rc)
        return rc;
    l->seen[l->n_seen++] = id;
    return add_memory(l, id, v->time_ms, p->memory);
}

static int order_ids(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;
    return (a > b) - (a < b);
}

/* Processes that the last reading had and this one has not. */
static int end_processes(plim_top_log *l, int64_t now_ms)
{
    int rc = SQLITE_OK;
    if (l->n_seen)
        qsort(l->seen, l->n_seen, sizeof *l->seen, order_ids);
    for (size_t i = 0, k = 0; i < l->n_before && !rc; i++) {
        while (k < l->n_seen && l->seen[k] < l->before[i])
            k++;
        if (k < l->n_seen && l->seen[k] == l->before[i])
            continue;
        rc = finish_ids(l, END_PROCESS, l->before[i], now_ms);
        rc = rc ? rc : add_memory(l, l->before[i], now_ms, 0);
    }
    return rc;
}

/* Drops what is older than `keep`, but of each process and device that still runs the last
 * value before, which holds on. */
static int drop_old(plim_top_log *l, int64_t now_ms)
{
    static const char *const drops[] = {
        "DELETE FROM process_memory WHERE time_ms < ?1 AND EXISTS(SELECT 1 FROM process_memory n"
        " WHERE n.process = process_memory.process AND n.time_ms > process_memory.time_ms"
        " AND n.time_ms <= ?1)",
        "DELETE FROM device_memory WHERE time_ms < ?1 AND EXISTS(SELECT 1 FROM device_memory n"
        " WHERE n.device = device_memory.device AND n.session = device_memory.session"
        " AND n.time_ms > device_memory.time_ms AND n.time_ms <= ?1)",
        "DELETE FROM device_memory WHERE session IN"
        " (SELECT id FROM sessions WHERE last_ms < ?1)",
        "DELETE FROM processes WHERE coalesce(ended_ms, (SELECT last_ms FROM sessions s"
        " WHERE s.id = processes.session)) < ?1",
        "DELETE FROM process_memory WHERE process NOT IN (SELECT id FROM processes)",
        "DELETE FROM sessions WHERE last_ms < ?1",
    };
    enum { EVERY_MS = 3600 * 1000 };
    int rc = SQLITE_OK;
    if (!l->keep_ms || (l->pruned_ms && now_ms - l->pruned_ms < EVERY_MS))
        return rc;
    l->pruned_ms = now_ms;
    for (size_t i = 0; i < sizeof drops / sizeof *drops && !rc; i++) {
        sqlite3_stmt *q = NULL;
        rc = sqlite3_prepare_v2(l->db, drops[i], -1, &q, NULL);
        if (!rc && sqlite3_bind_parameter_count(q))
            sqlite3_bind_int64(q, 1, now_ms - l->keep_ms);
        rc = rc ? rc : finish_statement(q);
        sqlite3_finalize(q);
    }
    return rc;
}

static int add_view(plim_top_log *l, const plim_live_view *v)
{
    int rc = add_session(l, v);
    uint32_t k = 0; /* processes are in the order of devices */
    for (uint32_t i = 0; i < v->n_devices && !rc; i++) {
        int64_t id = 0;
        rc = find_device(l, v, &v->devices[i], &id);
        rc = rc ? rc : add_device(l, v, &v->devices[i], id);
        for (; k < v->n_processes && v->processes[k].device == i && !rc; k++)
            rc = add_process(l, v, &v->processes[k], id);
    }
    rc = rc ? rc : end_processes(l, v->time_ms);
    return rc ? rc : drop_old(l, v->time_ms);
}

plim_status plim_top_log_add(plim_top_log *l, const plim_live_view *v, plim_err *err)
{
    int64_t session = l->session;
    if (!plim_memory_grow(&l->memory, (void **)&l->seen, &l->cap_seen, v->n_processes,
                          sizeof *l->seen))
        return plim_top_db_fail(NULL, SQLITE_NOMEM, l->path, err);
    l->n_seen = 0;
    int rc = plim_top_db_bound(l->db, &l->steps);
    rc = rc ? rc : finish_statement(reset_statement(l, BEGIN));
    rc = rc ? rc : add_view(l, v);
    rc = rc ? rc : finish_statement(reset_statement(l, COMMIT));
    if (rc) { /* the reading is in the file as a whole, or not at all */
        plim_top_db_fail(l->db, rc, l->path, err);
        finish_statement(reset_statement(l, ROLLBACK));
        l->session = session;
        return err->code;
    }
    int64_t *ids = l->before;
    size_t cap = l->cap_before;
    l->before = l->seen;
    l->cap_before = l->cap_seen;
    l->n_before = l->n_seen;
    l->seen = ids;
    l->cap_seen = cap;
    return PLIM_OK;
}

plim_status plim_top_log_open(const char *path, double keep_s, plim_top_log **out,
                              plim_err *err)
{
    plim_memory memory = {.blocks = NULL};
    plim_top_log *l = plim_memory_new(&memory, sizeof *l);
    const char *own = plim_memory_text(&memory, path);
    if (!l || !own) {
        plim_memory_free(&memory);
        return plim_top_db_fail(NULL, SQLITE_NOMEM, path, err);
    }
    l->memory = memory;
    l->path = own;
    l->keep_ms = (int64_t)(keep_s * 1000);
    plim_status st = plim_top_db_open(path, true, &l->db, err);
    /* After a crash of the machine the last readings may be missing, the file is whole. */
    int rc = st ? 0 : sqlite3_exec(l->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    for (int i = 0; i < STATEMENT_COUNT && !st && !rc; i++)
        rc = sqlite3_prepare_v2(l->db, statements[i], -1, &l->sql[i], NULL);
    if (rc)
        st = plim_top_db_fail(l->db, rc, path, err);
    if (st)
        plim_top_log_close(l);
    else
        *out = l;
    return st;
}

void plim_top_log_close(plim_top_log *l)
{
    if (!l)
        return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(l->sql[i]);
    sqlite3_close(l->db);
    plim_memory memory = l->memory;
    plim_memory_free(&memory);
}

#endif
