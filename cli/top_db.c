/* top_db.c -- opens a log: see top_db.h.  docs/formats/log.md describes the tables. */
#ifdef PLIM_SQLITE

#include "top_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* SQLite keeps the text of a table as it was created, from the name on: check_tables. */
static const struct {
    const char *name, *columns;
} tables[] = {
    {"sessions",
     "("
     " id INTEGER PRIMARY KEY, host TEXT, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL)"},
    {"devices",
     "("
     " id INTEGER PRIMARY KEY, host TEXT NOT NULL, source TEXT NOT NULL, gpu TEXT NOT NULL,"
     " uuid TEXT NOT NULL, pci TEXT NOT NULL, name TEXT, total INTEGER,"
     " UNIQUE(host, source, gpu, uuid, pci))"},
    {"processes", "("
                  " id INTEGER PRIMARY KEY, device INTEGER NOT NULL, pid INTEGER NOT NULL,"
                  " started INTEGER NOT NULL, kind TEXT NOT NULL, session INTEGER NOT NULL,"
                  " ended_ms INTEGER, predicted INTEGER, user TEXT, command TEXT, job TEXT,"
                  " container TEXT, UNIQUE(device, pid, started, kind))"},
    {"device_memory",
     "("
     " device INTEGER NOT NULL, session INTEGER NOT NULL, time_ms INTEGER NOT NULL,"
     " used INTEGER, free INTEGER, PRIMARY KEY(device, session, time_ms)) WITHOUT ROWID"},
    {"process_memory", "("
                       " process INTEGER NOT NULL, time_ms INTEGER NOT NULL, memory INTEGER,"
                       " PRIMARY KEY(process, time_ms)) WITHOUT ROWID"},
};
enum { TABLES = sizeof tables / sizeof *tables, TABLE_MOST = 1024 };

static bool has_wal(const char *path)
{
    char wal[4096];
    int n = snprintf(wal, sizeof wal, "%s-wal", path);
    return n < 0 || (size_t)n >= sizeof wal || !access(wal, F_OK);
}

/* Is the file shorter than it says?  While somebody writes, a part of it is in FILE-wal.
 * src: "Database File Format" of SQLite's documentation, 1.3 */
static bool is_cut_off(sqlite3 *db, const char *path, long long *says, long long *has)
{
    enum { PAGE_BYTES = 16, CHANGES = 24, PAGES = 28, VALID_FOR = 92, HEADER = 100 };
    static const char magic[16] = "SQLite format 3";
    unsigned char head[HEADER];
    sqlite3_file *f = NULL; /* SQLite's own: closing another would give up its locks */
    sqlite3_int64 bytes = 0;
    bool read = !has_wal(path) &&
                !sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, (void *)&f) &&
                f && f->pMethods && !f->pMethods->xRead(f, head, HEADER, 0) &&
                !f->pMethods->xFileSize(f, &bytes);
    if (!read || memcmp(head, magic, sizeof magic) != 0 ||
        memcmp(head + CHANGES, head + VALID_FOR, 4) != 0) /* the pages are not counted */
        return false;
    long long page = head[PAGE_BYTES] << 8 | head[PAGE_BYTES + 1], pages = 0;
    for (int i = 0; i < 4; i++)
        pages = pages << 8 | head[PAGES + i];
    *says = (page == 1 ? 65536 : page) * pages;
    *has = bytes;
    return *has < *says;
}

/* ---- what goes wrong ------------------------------------------------------------------------------ */

/* SQLite and what is kept of its answers have a half each: of what goes on within SQLite nobody else
 * knows. */
static uint64_t halve_limit(uint64_t bytes)
{
    uint64_t half = plim_memory_limit(bytes) / 2;
    return half < INT64_MAX ? half : INT64_MAX;
}

size_t plim_top_db_memory(void)
{
    uint64_t half = (uint64_t)sqlite3_hard_heap_limit64(-1);
    return half < SIZE_MAX ? (size_t)half : SIZE_MAX;
}

static plim_status fail_memory(const char *path, plim_err *err)
{
    unsigned long long most = (unsigned long long)plim_top_db_memory() * 2;
    if (most)
        snprintf(err->msg, sizeof err->msg,
                 "out of memory for '%.120s', which may take %llu MiB (--memory-limit)", path,
                 most >> 20);
    else
        snprintf(err->msg, sizeof err->msg, "out of memory for '%.120s'", path);
    return err->code = PLIM_ENOMEM;
}

plim_status plim_top_db_fail(sqlite3 *db, int code, const char *path, plim_err *err)
{
    int what = (db ? sqlite3_errcode(db) : code) & 0xff;
    bool input = what == SQLITE_NOTADB || what == SQLITE_CORRUPT ||
                 what == SQLITE_CONSTRAINT || what == SQLITE_TOOBIG ||
                 what == SQLITE_MISMATCH || what == SQLITE_INTERRUPT ||
                 what == SQLITE_ERROR; /* of statements that are right for a log */
    if (what == SQLITE_NOMEM)
        return fail_memory(path, err);
    err->code = input ? PLIM_EFORMAT : PLIM_EIO;
    if (what == SQLITE_INTERRUPT) {
        snprintf(err->msg, sizeof err->msg,
                 "'%.120s' is damaged: its tables have more rows than its size allows", path);
        return err->code;
    }
    int n = snprintf(err->msg, sizeof err->msg, "'%.120s': ", path);
    snprintf(err->msg + n, sizeof err->msg - (size_t)n, "%s",
             db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
    for (char *z = err->msg + n; *z; z++) /* it may quote the file */
        *z = *z < 0x20 || *z > 0x7e ? '?' : *z;
    return err->code;
}

/* Also finishes `q`, which may be NULL.  *out stays as it is without a row. */
static int finish_number(sqlite3_stmt *q, int64_t *out)
{
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int db_number(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);
    return rc ? rc : finish_number(q, out);
}

/* ---- bounds --------------------------------------------------------------------------------------- */

/* In a damaged file a page may be in a table many times over, and a table have no end.  What
 * the queries take is 4 steps of SQLite's machine at most for a byte of a log, whatever there are many of;
 * who takes far more is walking in circles. */
enum { STEPS_BETWEEN = 10000, STEPS_A_BYTE = 20, STEPS_LEAST = 1000000 };
/* To read the names of all tables takes 10 for each, and the square of their number in time. */
enum { STEPS_SCHEMA = 100000 };

static int count_steps(void *ud)
{
    uint64_t *left = ud;
    *left -= *left > STEPS_BETWEEN ? STEPS_BETWEEN : *left;
    return !*left; /* SQLITE_INTERRUPT */
}

static void bound_steps(sqlite3 *db, uint64_t most, uint64_t *left)
{
    *left = most;
    sqlite3_progress_handler(db, STEPS_BETWEEN, count_steps, left);
}

int plim_top_db_bound(sqlite3 *db, uint64_t *left)
{
    int64_t bytes = 0;
    bound_steps(db, STEPS_LEAST, left);
    int rc = db_number(
        db, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", &bytes);
    bound_steps(db, STEPS_LEAST + (uint64_t)bytes * STEPS_A_BYTE, left);
    return rc;
}

/* A foreign file decides neither what runs here nor what it takes.  The longest value of a log, the command
 * line of a process, has 4 KiB; and what SQLite sorts is not put on the disk. */
static int confine_db(sqlite3 *db)
{
    enum { LONGEST = 64 << 10 };
    static const int options[][2] = {{SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                     {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                                     {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                     {SQLITE_DBCONFIG_DEFENSIVE, 1}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        sqlite3_db_config(db, options[i][0], options[i][1], (int *)NULL);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, LONGEST);
    return sqlite3_exec(db, "PRAGMA temp_store=MEMORY", NULL, NULL, NULL);
}

/* ---- is it a log? --------------------------------------------------------------------------------- */

static void print_table(int table, char *out, size_t n)
{
    snprintf(out, n, "CREATE TABLE %s%s", tables[table].name, tables[table].columns);
}

/* Are the tables those that create_db makes?  Other tables do no harm: nothing asks for
 * them. */
static plim_status check_tables(sqlite3 *db, const char *path, plim_err *err)
{
    enum { OTHER, OURS, MISSING };
    for (int i = 0; i < TABLES; i++) {
        char ours[TABLE_MOST];
        int64_t found = MISSING;
        sqlite3_stmt *q = NULL;
        print_table(i, ours, sizeof ours);
        int rc = sqlite3_prepare_v2(db, "SELECT sql IS ?2 FROM sqlite_master WHERE name = ?1",
                                    -1, &q, NULL);
        if (!rc) {
            sqlite3_bind_text(q, 1, tables[i].name, -1, SQLITE_STATIC);
            sqlite3_bind_text(q, 2, ours, -1, SQLITE_STATIC);
            rc = finish_number(q, &found);
        }
        if (rc)
            return plim_top_db_fail(db, rc, path, err);
        if (found == OURS)
            continue;
        err->code = PLIM_EFORMAT;
        if (found == MISSING)
            snprintf(err->msg, sizeof err->msg,
                     "'%.120s' has no table '%s', which a log of 'plimsoll top' has", path,
                     tables[i].name);
        else
            snprintf(err->msg, sizeof err->msg,
                     "table '%s' of '%.120s' is not that of a log of 'plimsoll top'",
                     tables[i].name, path);
        return err->code;
    }
    return PLIM_OK;
}

/* In a transaction: is it a log of a version that is known?  *empty: it has no tables. */
static plim_status check_db(sqlite3 *db, const char *path, bool *empty, plim_err *err)
{
    int64_t id = 0, version = 0, n_tables = 0;
    long long says = 0, has = 0;
    int rc = db_number(db, "PRAGMA application_id", &id);
    rc = rc ? rc : db_number(db, "PRAGMA user_version", &version);
    rc = rc ? rc : db_number(db, "SELECT count(*) FROM sqlite_master", &n_tables);
    /* Of a part of the last page SQLite does not see that it is missing. */
    if ((!rc || rc == SQLITE_CORRUPT) && is_cut_off(db, path, &says, &has)) {
        err->code = PLIM_EFORMAT;
        snprintf(err->msg, sizeof err->msg, "'%.120s' is cut off: it has %lld bytes of %lld",
                 path, has, says);
        return err->code;
    }
    if (rc)
        return plim_top_db_fail(db, rc, path, err);
    *empty = !n_tables && !id && !version;
    if (*empty)
        return PLIM_OK;
    if (id == PLIM_TOP_DB_ID && version == PLIM_TOP_DB_VERSION)
        return check_tables(db, path, err);
    err->code = PLIM_EFORMAT;
    if (id != PLIM_TOP_DB_ID)
        snprintf(err->msg, sizeof err->msg,
                 "'%.120s' is a database of another program, not a log of 'plimsoll top'",
                 path);
    else
        snprintf(err->msg, sizeof err->msg,
                 "'%.120s' has version %lld of the log, this plimsoll knows version %d", path,
                 (long long)version, PLIM_TOP_DB_VERSION);
    return err->code;
}

/* Two loggers may start at once: the second waits, and finds the tables. */
static plim_status create_tables(sqlite3 *db, const char *path, plim_err *err)
{
    char mark[96];
    bool empty = false;
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT",
             PLIM_TOP_DB_ID, PLIM_TOP_DB_VERSION);
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc)
        return plim_top_db_fail(db, rc, path, err);
    plim_status st = check_db(db, path, &empty, err);
    if (st)
        return st;
    for (int i = 0; i < TABLES && empty && !rc; i++) {
        char sql[TABLE_MOST];
        print_table(i, sql, sizeof sql);
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    rc = rc ? rc : sqlite3_exec(db, mark, NULL, NULL, NULL);
    return rc ? plim_top_db_fail(db, rc, path, err) : PLIM_OK;
}

/* Write-ahead mode is of the file and stays; while somebody else is at it, it cannot be changed,
 * and the log works in the mode that it has. */
static plim_status prepare_log(sqlite3 *db, const char *path, bool empty, plim_err *err)
{
    plim_status st = empty ? create_tables(db, path, err) : PLIM_OK;
    int rc = st ? SQLITE_OK : sqlite3_exec(db, "PRAGMA cache_size=-256", NULL, NULL, NULL);
    rc = st || rc ? rc : sqlite3_exec(db, "PRAGMA journal_mode=WAL", NULL, NULL, NULL);
    return rc && rc != SQLITE_BUSY ? plim_top_db_fail(db, rc, path, err) : st;
}

/* ---- opening -------------------------------------------------------------------------------------- */

static int open_db(const char *name, int flags, uint64_t *steps, sqlite3 **db)
{
    int rc = sqlite3_open_v2(name, db, flags, NULL);
    if (!rc)
        bound_steps(*db, STEPS_SCHEMA, steps);
    return rc ? rc : confine_db(*db);
}

/* A log in a folder that may not be written to has no place for the lock files of SQLite; if
 * nobody has left any, nobody writes, and it can be read without them. */
static int open_still(const char *path, uint64_t *steps, sqlite3 **db)
{
    static const char hex[] = "0123456789abcdef";
    char uri[4096] = "file:";
    size_t n = strlen(uri);
    if (has_wal(path))
        return SQLITE_CANTOPEN;
    for (const char *z = path; *z; z++) {
        unsigned char c = (unsigned char)*z;
        if (n + 32 > sizeof uri)
            return SQLITE_CANTOPEN;
        uri[n++] = '%';
        uri[n++] = hex[c >> 4];
        uri[n++] = hex[c & 15];
    }
    snprintf(uri + n, sizeof uri - n, "?immutable=1");
    sqlite3_close(*db);
    *db = NULL;
    return open_db(uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, steps, db);
}

/* SQLite would wait for somebody to write into a pipe.  A log that is not there yet has no bytes. */
static plim_status measure_file(const char *path, uint64_t *bytes, plim_err *err)
{
    struct stat s;
    bool there = !stat(path, &s);
    *bytes = there && s.st_size > 0 ? (uint64_t)s.st_size : 0;
    if (!there || S_ISREG(s.st_mode))
        return PLIM_OK;
    snprintf(err->msg, sizeof err->msg, "'%.120s' is not a regular file", path);
    return err->code = PLIM_EIO;
}

plim_status plim_top_db_open(const char *path, bool write, sqlite3 **out, plim_err *err)
{
    enum { WAIT_MS = 5000 };
    sqlite3 *db = NULL;
    int64_t version = 0;
    uint64_t bytes = 0, steps = 0;
    bool empty = false;
    int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    if (measure_file(path, &bytes, err))
        return err->code;
    sqlite3_hard_heap_limit64((sqlite3_int64)halve_limit(bytes));
    int rc = open_db(path, flags, &steps, &db);
    if (!rc && !write && db_number(db, "PRAGMA user_version", &version) == SQLITE_CANTOPEN)
        rc = open_still(path, &steps, &db);
    if (rc) {
        plim_top_db_fail(db, rc, path, err);
        sqlite3_close(db);
        return err->code;
    }
    sqlite3_busy_timeout(db, WAIT_MS);
    /* One state of the file, which somebody else may be about to fill. */
    rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    plim_status st =
        rc ? plim_top_db_fail(db, rc, path, err) : check_db(db, path, &empty, err);
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    if (!st && empty && !write) {
        err->code = PLIM_EFORMAT;
        snprintf(err->msg, sizeof err->msg, "'%.120s' is empty, not a log of 'plimsoll top'",
                 path);
        st = err->code;
    }
    if (!st && write)
        st = prepare_log(db, path, empty, err);
    sqlite3_progress_handler(db, 0, NULL, NULL);
    if (st) {
        if (!steps)
            snprintf(err->msg, sizeof err->msg,
                     "'%.120s' is not a log of 'plimsoll top': it has too many tables", path);
        sqlite3_close(db);
        return st;
    }
    *out = db;
    return PLIM_OK;
}

#else
typedef int plim_top_db_unused; /* a file must declare something */
#endif
