/* top_db.c -- opens a log: see top_db.h.  docs/formats/log.md describes the tables. */
#ifdef PLIM_SQLITE

#include "top_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS sessions("
    " id INTEGER PRIMARY KEY, host TEXT, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS devices("
    " id INTEGER PRIMARY KEY, host TEXT NOT NULL, source TEXT NOT NULL, gpu TEXT NOT NULL,"
    " uuid TEXT NOT NULL, pci TEXT NOT NULL, name TEXT, total INTEGER,"
    " UNIQUE(host, source, gpu, uuid, pci));"
    "CREATE TABLE IF NOT EXISTS processes("
    " id INTEGER PRIMARY KEY, device INTEGER NOT NULL, pid INTEGER NOT NULL,"
    " started INTEGER NOT NULL, kind TEXT NOT NULL, session INTEGER NOT NULL,"
    " ended_ms INTEGER, predicted INTEGER, user TEXT, command TEXT, job TEXT,"
    " container TEXT, UNIQUE(device, pid, started, kind));"
    "CREATE TABLE IF NOT EXISTS device_memory("
    " device INTEGER NOT NULL, session INTEGER NOT NULL, time_ms INTEGER NOT NULL,"
    " used INTEGER, free INTEGER, PRIMARY KEY(device, session, time_ms)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS process_memory("
    " process INTEGER NOT NULL, time_ms INTEGER NOT NULL, memory INTEGER,"
    " PRIMARY KEY(process, time_ms)) WITHOUT ROWID;";

plim_status plim_top_db_fail(sqlite3 *db, int code, const char *path, plim_err *err)
{
    int what = (db ? sqlite3_errcode(db) : code) & 0xff;
    bool input = what == SQLITE_NOTADB || what == SQLITE_CORRUPT;
    err->code = what == SQLITE_NOMEM ? PLIM_ENOMEM : input ? PLIM_EFORMAT : PLIM_EIO;
    snprintf(err->msg, sizeof err->msg, "'%.120s': %s", path,
             db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
    return err->code;
}

static int db_number(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        *out = sqlite3_column_int64(q, 0);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(q);
    return rc;
}

/* Is it a log of a version that is known?  *empty: it has no tables. */
static plim_status check_db(sqlite3 *db, const char *path, bool *empty, plim_err *err)
{
    int64_t id = 0, version = 0, tables = 0;
    int rc = db_number(db, "PRAGMA application_id", &id);
    rc = rc ? rc : db_number(db, "PRAGMA user_version", &version);
    rc = rc ? rc : db_number(db, "SELECT count(*) FROM sqlite_master", &tables);
    if (rc)
        return plim_top_db_fail(db, rc, path, err);
    *empty = !tables && !id && !version;
    if (*empty || (id == PLIM_TOP_DB_ID && version == PLIM_TOP_DB_VERSION))
        return PLIM_OK;
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
static plim_status create_db(sqlite3 *db, const char *path, plim_err *err)
{
    char mark[96];
    bool empty = false;
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT",
             PLIM_TOP_DB_ID, PLIM_TOP_DB_VERSION);
    int rc =
        sqlite3_exec(db, "PRAGMA cache_size=-256; PRAGMA journal_mode=WAL; BEGIN IMMEDIATE",
                     NULL, NULL, NULL);
    if (rc)
        return plim_top_db_fail(db, rc, path, err);
    plim_status st = check_db(db, path, &empty, err);
    if (st)
        return st;
    rc = sqlite3_exec(db, schema, NULL, NULL, NULL);
    rc = rc ? rc : sqlite3_exec(db, mark, NULL, NULL, NULL);
    return rc ? plim_top_db_fail(db, rc, path, err) : PLIM_OK;
}

/* A log in a folder that may not be written to has no place for the lock files of SQLite; if
 * nobody has left any, nobody writes, and it can be read without them. */
static int open_still(const char *path, sqlite3 **db)
{
    static const char hex[] = "0123456789abcdef";
    char uri[4096] = "file:", beside[4096];
    size_t n = strlen(uri);
    int length = snprintf(beside, sizeof beside, "%s-wal", path);
    if (length < 0 || (size_t)length >= sizeof beside || !access(beside, F_OK))
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
    return sqlite3_open_v2(uri, db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
}

plim_status plim_top_db_open(const char *path, bool write, sqlite3 **out, plim_err *err)
{
    enum { WAIT_MS = 5000 };
    sqlite3 *db = NULL;
    int64_t version = 0;
    bool empty = false;
    int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    int rc = sqlite3_open_v2(path, &db, flags, NULL);
    if (!rc && !write && db_number(db, "PRAGMA user_version", &version) == SQLITE_CANTOPEN)
        rc = open_still(path, &db);
    if (rc) {
        plim_top_db_fail(db, rc, path, err);
        sqlite3_close(db);
        return err->code;
    }
    sqlite3_busy_timeout(db, WAIT_MS);
    plim_status st = check_db(db, path, &empty, err);
    if (!st && empty && !write) {
        err->code = PLIM_EFORMAT;
        snprintf(err->msg, sizeof err->msg, "'%.120s' is empty, not a log of 'plimsoll top'",
                 path);
        st = err->code;
    }
    if (!st && empty)
        st = create_db(db, path, err);
    if (st) {
        sqlite3_close(db);
        return st;
    }
    *out = db;
    return PLIM_OK;
}

#else
typedef int plim_top_db_unused; /* a file must declare something */
#endif
